"""Turns the docstrings of the package into Markdown."""
import ast
import html
import inspect
import re

from formulas import formula

SECTION = re.compile(r"(Args|Returns|Raises|Yields|Attributes|Advice|Note|Example|Examples):$")
URL = re.compile(r"(?<![<\"`])(https?://[^\s)>,;\"]*[^\s)>,;\".:])")


def markdown(text, level):
    """Returns Markdown of a docstring.

    Args:
        level: the level of headings of sections, such as Args.
    """
    blocks, lines = [], inspect.cleandoc(text).splitlines()
    for section, body in _sections(lines):
        if section:
            blocks.append("{} {}".format("#" * level, {"Args": "Arguments"}.get(section, section)))
        blocks += _items(body) if section in ("Args", "Raises", "Attributes") else _blocks(body)
    return "\n\n".join(blocks) + "\n"


def _sections(lines):
    """Yields (name or None, lines) of each section."""
    name, body = None, []
    for line in lines:
        match = SECTION.match(line)
        if match or name and line and not line.startswith(" "):
            yield name, body
            name, body = (match.group(1), []) if match else (None, [line])
        else:
            body.append(line)
    yield name, inspect.cleandoc("\n".join(body)).splitlines() if name else body


def _items(lines):
    """Returns a list of the items `name: text`. What stands in no item is text."""
    items = []
    for line in inspect.cleandoc("\n".join(lines)).splitlines():
        if line and not line.startswith(" ") and re.match(r"[\w*., `]+: ", line):
            name, _, text = line.partition(": ")
            items.append([name, [text]])
        elif items and (line.startswith(" ") or not line):
            items[-1][1].append(line)
        elif line:
            items.append([None, [line]])
    texts = []
    for name, text in items:
        body = [block.replace("\n", "\n  ") for block in _blocks(inspect.cleandoc("\n".join(text)).splitlines())]
        texts.append(("- **{}**: ".format(_text(name.replace("`", "")).replace("*", r"\*")) if name else "- ")
                     + "\n\n  ".join(body))
    return ["\n".join(texts)] if texts else []


def _blocks(lines):
    """Returns paragraphs, formulas, tables, lists and code."""
    blocks = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc("\n".join(lines))):
        rows = paragraph.splitlines()
        if not any(row.strip() for row in rows):
            continue
        if all(row.lstrip().startswith("|") for row in rows):
            blocks.append(_table(rows))
        elif rows[0].lstrip().startswith(">>>"):
            blocks.append("```pycon\n{}\n```".format(inspect.cleandoc(paragraph)))
        elif all(row.startswith("    ") for row in rows):
            code = inspect.cleandoc(paragraph)
            blocks.append("```{}\n{}\n```".format("python" if _is_python(code) else "text", code))
        elif re.match(r" *[-*] ", rows[0]):
            blocks.append("\n".join(map(_text, rows)))
        else:
            blocks += _prose(rows)
    return blocks


def _is_python(code):
    try:
        ast.parse(code)
    except SyntaxError:
        return False
    return True


def _prose(rows):
    """Returns the text of a paragraph, and its lines that are formulas as such."""
    blocks, before = [], []
    for row in rows:
        math = formula(row)
        if math is None:
            before.append(_text(row))
            continue
        if before:
            blocks.append("\n".join(before))
        before = []
        if blocks and blocks[-1].startswith('<div class="formulas">'):
            blocks[-1] = blocks[-1].replace("\n</div>", "\n<p>{}</p>\n</div>".format(math))
        else:
            blocks.append('<div class="formulas">\n<p>{}</p>\n</div>'.format(math))
    return blocks + (["\n".join(before)] if before else [])


def _table(rows):
    """Returns a table whose long cells stand on several lines as a Markdown table."""
    merged = []
    for row in rows:
        cells = row.strip().strip("|").split("|")
        if set(row) <= set("|-: "):
            continue
        is_rest = merged and (not cells[0].strip() or cells[0].startswith("   ") or not any(
            cell.strip() for cell in cells[1:]))
        if is_rest and len(cells) == len(merged[-1]):
            merged[-1] = [(old + " " + new.strip()).strip() for old, new in zip(merged[-1], cells)]
        else:
            merged.append([cell.strip() for cell in cells])
    lines = ["| {} |".format(" | ".join(map(_text, row))) for row in merged]
    return "\n".join([lines[0], "|" + " --- |" * len(merged[0])] + lines[1:])


def _text(text):
    """Returns text with what Markdown would read as HTML escaped, and with links, but for code."""
    pieces = re.split(r"(`[^`]*`)", text)
    for place in range(0, len(pieces), 2):
        piece = html.escape(pieces[place], quote=False).replace("[", r"\[")
        pieces[place] = URL.sub(r"<\1>", piece.replace("&amp;", "&"))
    return "".join(pieces)
