"""Prints the map from the code blocks of all pages to the cells that run them: python matrix/blocks.py [CELL ...]

Comments that no reader sees stand directly above a block and claim its cells:

    <!-- runs in: py37-tf1.15*, *-tf2.10 -->          every one of these cells
    <!-- runs in one of: *-tf2* -->                   one of these, by rotation; in all of them with EVERSTEP_FULL=1
    <!-- runs after: previous -->                     the cells, names and files of the block above it
    <!-- not run: it installs nine environments -->   the reason stands for all that follows

More can follow the cells, after semicolons:

    setup: NAME        a function of tests/block_setups.py, which makes what the block takes for granted
    lines: 1 3-5       only these lines of the block. Several comments can share a block; together they have all lines
    because: REASON    why none of the cells is a quick one

`python` and `pycon` blocks run as they stand, and so do the `everstep` commands of `console` and `sh` blocks. The
output in `pycon` and `console` blocks is compared. `text` and `mermaid` are no code. A script in examples/ has such a
comment behind a # in place of <!-- and -->. tests/test_blocks.py runs what claims its cell.
"""
from __future__ import absolute_import, division, print_function

import io
import os
import re
import sys
import zlib
from collections import OrderedDict, namedtuple

import cells

ROOT = os.path.dirname(cells.HERE)
# Other folders hold environments and data.
FOLDERS = ("", "api", "docs", os.path.join("docs", "records"), "examples", "matrix", os.path.join("matrix", "record"))
SCRIPTS = os.path.join("examples", "")
CODE, NO_CODE = ("python", "pycon", "console", "sh"), ("text", "mermaid")
COMMANDS = ("everstep ",)  # the commands that run; others change the machine
KEYS = ("setup", "lines", "because")

FENCE = re.compile(r"((?:^ *<!--(?:(?!-->).)*-->[ \t]*\n)*)^( *)```(\S*)[ \t]*\n(.*?)^\2```[ \t]*$", re.S | re.M)
COMMENT = re.compile(r"<!-- *((?:(?!-->).)*?) *-->", re.S)
SCRIPT_COMMENT = re.compile(r"^# ((?:runs in|runs in one of|not run): .*)$", re.M)
INDENTED = re.compile(r"\n\n(?: {4}| {0,3}\t) *(?![-*+]|\d+\.)\S.*")

# A block of a page. line: the page's line on which its code begins. language: "script" for a file of examples/.
Block = namedtuple("Block", "page line language code claims")
# how: "in", "one of", "after" or "not". cells: patterns. lines: the numbers of lines, or None for all.
Claim = namedtuple("Claim", "how cells setup lines because")
# What runs as one program: the first block's patterns and every block with its claim. how: "in" or "one of".
Chain = namedtuple("Chain", "how cells steps")


def pages(root=ROOT):
    """Returns the paths of all pages, relative to the root."""
    return sorted(
        os.path.join(folder, name)
        for folder in FOLDERS
        if os.path.isdir(os.path.join(root, folder))
        for name in os.listdir(os.path.join(root, folder))
        if name.endswith(".md")
    )


def scripts(root=ROOT):
    """Returns the paths of the scripts in examples/, relative to the root."""
    found = []
    for folder, _, names in os.walk(os.path.join(root, SCRIPTS)):
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names if name.endswith(".py")]
    return sorted(found)


def read(path):
    with io.open(path, encoding="utf-8") as file:
        return file.read()


def claim(text):
    """Returns the Claim in the text of a comment. Raises ValueError if it is none."""
    how = re.match(r"(runs in one of|runs in|runs after|not run): *(\S.*)\Z", " ".join(text.split()))
    if how is None:
        raise ValueError("%r is no claim; matrix/blocks.py has the forms" % text)
    if how.group(1) == "not run":
        return Claim("not", (), None, _lines(how.group(2)), re.sub(r"^lines: [^;]*; *", "", how.group(2)))
    first, _, rest = how.group(2).partition(";")
    values = {}
    while rest.strip():
        key, _, rest = rest.strip().partition(":")
        if key not in KEYS:
            raise ValueError("%r is none of the keys %s" % (key, ", ".join(KEYS)))
        values[key], _, rest = (rest, "", "") if key == "because" else rest.partition(";")
        values[key] = values[key].strip()
    patterns = tuple(first.replace(",", " ").split())
    if how.group(1) == "runs after" and patterns != ("previous",):
        raise ValueError("a block runs after: previous, not %s" % first)
    lines = _lines("lines: " + values["lines"]) if "lines" in values else None
    return Claim({"runs in": "in", "runs in one of": "one of", "runs after": "after"}[how.group(1)],
                 () if how.group(1) == "runs after" else patterns, values.get("setup"), lines, values.get("because"))


def _lines(text):
    """Returns the line numbers of "lines: 1 3-5; ...", or None for a text that does not begin so."""
    match = re.match(r"lines: ([\d -]+)(?:;|\Z)", text)
    if match is None:
        return None
    numbers = [part.partition("-") for part in match.group(1).split()]
    return tuple(number for first, _, last in numbers for number in range(int(first), int(last or first) + 1))


def blocks(root=ROOT):
    """Returns all blocks, those that are no code left out. Raises ValueError at a comment that is no claim."""
    found = []
    for page in pages(root):
        text = read(os.path.join(root, page))
        for match in FENCE.finditer(text):
            comments, _, language, code = match.groups()
            line = text.count("\n", 0, match.start(4)) + 1
            claims = tuple(_claim(page, line, comment) for comment in COMMENT.findall(comments))
            if language not in NO_CODE:
                found.append(Block(page, line, language, code, claims))
    for script in scripts(root):
        code = read(os.path.join(root, script))
        claims = tuple(_claim(script, 1, comment) for comment in SCRIPT_COMMENT.findall(code))
        found.append(Block(script, 1, "script", code, claims))
    return found


def _claim(page, line, comment):
    try:
        return claim(comment)
    except ValueError as error:
        raise ValueError("%s:%d: %s" % (page, line, error))


def chains(all_blocks):
    """Returns what runs as one program each: a block, and those that run after it."""
    finished, open_chains, page = [], [], None
    for block in all_blocks:
        before = open_chains if block.page == page else []
        open_chains, page = [], block.page
        for each in block.claims:
            if each.how == "after":
                open_chains += [chain._replace(steps=chain.steps + ((block, each),)) for chain in before]
            elif each.how != "not":
                open_chains.append(Chain(each.how, each.cells, ((block, each),)))
        if any(each.how == "after" for each in block.claims):
            finished = [chain for chain in finished if chain not in before]  # each goes on in a longer one
        finished += open_chains
    return finished


def cells_of(chain, full=False):
    """Returns the names of the cells that run a chain. Rotation picks one quick cell for those in "one of" them.

    A pattern with * means the cells of the groups quick and full, which run all tests. Others are named in full.
    """
    table = cells.read()
    names = [name for name in table if name in chain.cells or not table[name].runs_tools
             and table[name].group in ("quick", "full")
             and any(cells.matches(pattern, name) for pattern in chain.cells)]
    quick = [name for name in names if table[name].group == "quick"]
    if chain.how == "in" or full or not quick:
        return names
    turn = zlib.crc32(chain.steps[0][0].code.encode("utf-8")) % len(quick)
    return [name for name in names if name not in quick or name == quick[turn]]


def source(block, claim):
    """Returns the lines that a claim has, with the others empty, so that their numbers stay."""
    lines = block.code.split("\n")
    return "\n".join(line if claim.lines is None or number in claim.lines else ""
                     for number, line in enumerate(lines, 1))


def commands(code):
    r"""Yields (command, output) of a console or sh block. A command may go on after a \ at a line's end.

    In a console block commands begin with "$ ". In an sh block all lines are commands, and output is None.
    """
    prompts = re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", code, re.M)
    if not prompts:
        prompts = [(command, None) for command in re.findall(r"^((?:.*\\\n)*.*\S.*)$", code, re.M)]
    for command, output in prompts:
        yield command.replace("\\\n", ""), output


def faults(root=ROOT, setups=None):
    """Returns what is wrong with the map, a line for each fault. setups: the names of all set-ups, if known."""
    table, wrong, before = cells.read(), [], None
    quick = [name for name in table if table[name].group == "quick" and not table[name].runs_tools]
    all_blocks = blocks(root)
    for block in all_blocks:
        place = "%s:%d: " % (block.page, block.line)
        if block.language not in CODE + ("script",):
            wrong.append(place + "the language of a block is one of %s; this has %s" % (
                ", ".join(CODE + NO_CODE), block.language or "none"))
        if not block.claims:
            wrong.append(place + "no comment says where the block runs, such as <!-- runs in: py313-numpy -->")
        claimed = set()
        for each in block.claims:
            claimed.update(range(1, block.code.count("\n") + 2) if each.lines is None else each.lines)
            for pattern in each.cells:
                if not any(cells.matches(pattern, name) for name in table):
                    wrong.append(place + "%s is none of the cells in api/matrix_kit/cells.ini" % pattern)
            if each.cells and not each.because and not any(
                    cells.matches(pattern, name) for pattern in each.cells for name in quick):
                wrong.append(place + "no quick cell runs it; add one, or the reason: `because: ...`")
            if each.setup and setups is not None and each.setup not in setups:
                wrong.append(place + "there is no set-up %s in tests/block_setups.py" % each.setup)
            if each.how == "after" and (before is None or before.page != block.page or not any(
                    other.how != "not" for other in before.claims)):
                wrong.append(place + "it runs after the block above it, which does not run")
            if each.lines and max(each.lines) > block.code.count("\n"):
                wrong.append(place + "the block has %d lines, not %d" % (block.code.count("\n"), max(each.lines)))
            if block.language in ("console", "sh") and each.how != "not":
                for command, _ in commands(source(block, each)):
                    if not command.startswith(COMMANDS):
                        wrong.append(place + "only everstep's commands run, not: " + command)
        for number, line in enumerate(block.code.split("\n"), 1):
            if block.claims and line.strip() and number not in claimed:
                wrong.append("%s:%d: no comment claims this line" % (block.page, block.line + number - 1))
        before = block
    for page in pages(root):
        for match in INDENTED.finditer(FENCE.sub("", read(os.path.join(root, page)))):
            wrong.append("%s: this is indented as code; put it between ``` lines: %s" % (page, match.group().strip()))
    return wrong


def rows(all_blocks):
    """Yields (place, language, how many quick cells, how many others, where and how) for every claim of every block."""
    table, runs = cells.read(), OrderedDict()
    for chain in chains(all_blocks):
        for block, each in chain.steps:
            runs.setdefault((block, each), set()).update(cells_of(chain))
    for block in all_blocks:
        for each in block.claims:
            names = runs.get((block, each), set())
            quick = len([name for name in names if table[name].group == "quick"])
            where = {"in": "", "one of": "one of ", "not": "not run", "after": "the cells above"}[each.how]
            where += ", ".join(each.cells)
            if each.how == "one of":
                where += ", now " + " ".join(name for name in names if table[name].group == "quick")
            where += "; lines " + _spans(each.lines) if each.lines else ""
            where += "; setup: " + each.setup if each.setup else ""
            where += (": " if each.how == "not" else "; because: ") + each.because if each.because else ""
            yield "%s:%d" % (block.page, block.line), block.language, str(quick), str(len(names) - quick), where


def _spans(numbers):
    """Returns "1-3 5" for (1, 2, 3, 5)."""
    spans = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return " ".join("%d" % first if first == last else "%d-%d" % (first, last) for first, last in spans)


def main():
    """Prints the map; with names of cells, the blocks that these run. Returns what is wrong."""
    try:
        all_blocks, wrong = blocks(), faults()
    except ValueError as error:
        return str(error)
    for name in sys.argv[1:]:
        if name not in cells.read():
            return "there is no cell %s in api/matrix_kit/cells.ini" % name
    chosen = [(block, each) for chain in chains(all_blocks) for block, each in chain.steps
              if set(sys.argv[1:]).intersection(cells_of(chain))]
    if sys.argv[1:]:
        all_blocks = [block._replace(claims=tuple(each for each in block.claims if (block, each) in chosen))
                      for block in all_blocks]
    table = [("BLOCK", "LANGUAGE", "QUICK", "OTHER", "CELLS")] + list(rows(all_blocks))
    widths = [max(len(row[place]) for row in table) for place in range(4)]
    for row in table:
        print("%s  %s  %s  %s  %s" % (row[0].ljust(widths[0]), row[1].ljust(widths[1]), row[2].rjust(widths[2]),
                                      row[3].rjust(widths[3]), row[4]))
    shown = [block for block in all_blocks if block.claims]
    print("\n%d blocks of %d pages and scripts; QUICK and OTHER: how many cells run it"
          % (len(shown), len({block.page for block in shown})))
    return "\n" + "\n".join(wrong) if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
