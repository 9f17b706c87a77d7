"""Makes notebooks of the tutorials from their pages: python matrix/notebooks.py [--to FOLDER] [--execute]

They are in no commit: a page is the one source, and its blocks run in the matrix. A block becomes code if it runs in
the cell `cells.NOTEBOOKS` or on NumPy alone. Other blocks, for other versions, stay text. A comment that begins with
`notebook:`, with an empty line below it, holds code that makes what the next block takes for granted.

Only --execute needs something installed: nbclient and ipykernel. That cell has them: tests/test_notebooks.py.
website/pages.py offers the notebooks as downloads.
"""
import argparse
import ast
import doctest
import json
import os
import re
import sys

import blocks
import cells

TUTORIALS = ("docs/keras3.md", "docs/custom_loops.md", "docs/schedules.md", "examples/old_run.md",
             "docs/swap_optimizer.md")
GALLERY = "examples/README.md"  # the page that lists them
PREPARES = re.compile(r"^<!-- notebook:\n(.*?)^-->\n\n", re.S | re.M)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?!\w+:|#)(?P<address>[^()\s]+)\)")
LIMIT = 120  # seconds for one cell


def notebook(page, folder=None):
    """Returns the notebook of a page, as its JSON holds it (nbformat 4.5).

    Args:
        folder: where it will stand; its links lead to the checkout from there. None if nobody knows, as with a
            download: then only links within the page are left.
    """
    text = blocks.read(os.path.join(blocks.ROOT, page))
    runs = {block.line for chain in blocks.chains(blocks.blocks()) for block, claim in chain.steps
            if block.page == page and _runs(chain)}
    made, end = [], 0
    for match in list(blocks.FENCE.finditer(text)):
        line = text.count("\n", 0, match.start(4)) + 1
        whole = match.group(3) == "python" and _is_script(page, match.group(4))
        if line in runs or whole:
            made += _text(text[end:match.start()], page, folder)
            made += _code(match.group(3), match.group(4))
            end = match.end()
    made += _text(text[end:], page, folder)
    if any("__file__" in cell["source"] for cell in made):
        script = os.path.relpath(os.path.join(blocks.ROOT, page[:-len(".md")] + ".py"), folder or blocks.ROOT)
        where = "its data are beside it, in the checkout" if folder else "save it in a checkout: it reads data there"
        made.insert(1, _code_cell("__file__ = {!r}  # {}".format(script, where)))
    for number, cell in enumerate(made):
        cell["id"] = "cell-{}".format(number)  # the same each time
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return dict(cells=made, metadata={"kernelspec": kernel}, nbformat=4, nbformat_minor=5)


def _code_cell(source, **metadata):
    return dict(cell_type="code", source=source, metadata=metadata, outputs=[], execution_count=None)


def _runs(chain):
    names = blocks.cells_of(chain, full=True)
    return cells.NOTEBOOKS in names or any(name.endswith("-numpy") for name in names)


def _is_script(page, code):
    """Returns whether a block is the script beside its page: that one runs, not the block."""
    script = os.path.join(blocks.ROOT, page[:-len(".md")] + ".py")
    return os.path.exists(script) and code.strip() in blocks.read(script)


def _text(text, page, folder):
    """Returns cells of a text, and of the code in it that only a notebook needs."""
    def link(match):
        if folder is None:
            return "" if match.group("image") else match.group("text")
        path, anchor = (match.group("address").split("#") + [""])[:2]
        path = os.path.relpath(os.path.join(blocks.ROOT, os.path.dirname(page), path), folder).replace(os.sep, "/")
        return "{}[{}]({}{})".format(match.group("image"), match.group("text"), path, anchor and "#" + anchor)

    made = []
    for number, part in enumerate(PREPARES.split(text)):
        if number % 2:
            made.append(_code_cell(part.strip()))
        else:
            part = blocks.COMMENT.sub("", LINK.sub(link, part)).strip()
            made += [dict(cell_type="markdown", source=part, metadata={})] if part else []
    return made


def _code(language, code):
    """Returns the cells of a block. Those of a pycon block have what they must print as `metadata.prints`."""
    if language == "python":
        return [_code_cell(part) for part in _parts(code)]
    made, source = [], ""
    for example in doctest.DocTestParser().get_examples(code):
        source += example.source
        if example.want:
            made.append(_code_cell(source.strip(), prints=example.want.strip()))
            source = ""
    return made + ([_code_cell(source.strip())] if source else [])


def _parts(code):
    """Yields a long program in parts: each function is one, and what stands between functions."""
    lines, start = code.strip().splitlines(), 0
    functions = [node for node in ast.parse("\n".join(lines)).body if isinstance(node, ast.FunctionDef)]
    for node in functions if len(lines) > 40 else []:
        first = min([node.lineno] + [each.lineno for each in node.decorator_list]) - 1
        yield from filter(None, ["\n".join(lines[start:first]).strip()])
        yield "\n".join(lines[first:node.end_lineno])
        start = node.end_lineno
    yield "\n".join(lines[start:]).strip()


def execute(made, folder):
    """Runs a notebook in a folder, and returns it with what it printed.

    Raises:
        ValueError: a cell does not print what the page says.
        nbclient.exceptions.CellExecutionError: a cell fails.
    """
    import nbclient
    import nbformat

    made = nbformat.from_dict(made)
    nbclient.NotebookClient(made, timeout=LIMIT, kernel_name="python3", resources={"metadata": {"path": folder}},
                            extra_arguments=["--HistoryManager.enabled=False"]).execute()
    for cell in made.cells:
        if "prints" in cell.metadata:
            printed = "".join(_printed(output) for output in cell.outputs)
            if printed.split() != cell.metadata.prints.split():
                raise ValueError("{}\nprints\n{}\nnot\n{}".format(cell.source, printed, cell.metadata.prints))
    return made


def _printed(output):
    if output.output_type == "stream":
        return output.text if output.name == "stdout" else ""
    return output.get("data", {}).get("text/plain", "")


def write(made, path):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(made, file, indent=1, sort_keys=True, ensure_ascii=False)
        file.write("\n")


def path_of(page, folder):
    return os.path.join(folder, os.path.basename(page)[:-len(".md")] + ".ipynb")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", default=os.path.join(blocks.ROOT, "build", "notebooks"), metavar="FOLDER")
    parser.add_argument("--execute", action="store_true", help="run them, and keep what they print")
    options = parser.parse_args()
    os.makedirs(options.to, exist_ok=True)
    for page in TUTORIALS:
        made = notebook(page, os.path.abspath(options.to))
        if options.execute:
            made = execute(made, options.to)
        write(made, path_of(page, options.to))
        print(path_of(page, options.to))


if __name__ == "__main__":
    sys.exit(main())
