"""Turns the docstrings of the package into Markdown."""
import ast
import html
import inspect
import re
import textwrap

from formulas import formula

SECTION = re.compile(r"(Args|Class attributes|Returns|Raises|Yields|Attributes|Advice|Note|Example|Examples):$")
URL = re.compile(r"(?<![<\"`])(https?://(?:[^\s()>,;\"]|\([^\s()]*\))*[^\s()>,;\".:])")
LISTS = ("Args", "Raises", "Attributes", "Class attributes")
# What a reader would type: `v_hat := max(v_hat, v)`, `sparse="rows"`, `beta_1`, `tf.train`.
OPERAND = r"(?:\w+(?:\.\d+)?(?:\([^()]*\))?|\([^()]*\))"
TYPED = re.compile(
    r"(\b\w+ := -?" + OPERAND + r"(?: ?[-+*/^@] ?" + OPERAND + r')*|\b[a-z_]\w*=(?:"[^"]*"|[\w.+-]*\w(?:\*\*\d+)?)'
    r"|\b(?:tf|torch|keras|everstep|numpy)\.\w+(?:\.\w+)*(?:\(\))?|\b[A-Za-z]\w*_\w*(?:\.\w+)*(?:\(\))?"
    r'|\b\w+\*\*\d+|(?<!\w)"(?:exact|rows|catch_up|variable_rows)")')
ITEM = re.compile(r"([\w*., `-]+): ")


def markdown(text, level):
    """Returns Markdown of a docstring.

    Args:
        level: the level of headings of sections, such as Args; None to print them bold.
    """
    blocks, lines = [], inspect.cleandoc(text).splitlines()
    for section, body in _sections(lines):
        if section:
            title = {"Args": "Arguments"}.get(section, section)
            blocks.append("{} {}".format("#" * level, title) if level else "**{}**".format(title))
        blocks += _list(items(body)) if section in LISTS else _blocks(body)
    return "\n\n".join(blocks) + "\n"


def sections(text):
    """Returns [(name or None, lines)] of a docstring: None for text that stands in no section."""
    return list(_sections(inspect.cleandoc(text).splitlines()))


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
    yield name, body


def items(lines):
    """Returns [(name or None, text)] of lines `name: text`. What stands in no item has no name."""
    found = []
    for line in textwrap.dedent("\n".join(lines)).strip("\n").splitlines():
        if line and not line.startswith(" ") and ITEM.match(line):
            name, _, text = line.partition(": ")
            found.append([name.replace("`", ""), [text]])
        elif found and (line.startswith(" ") or not line):
            found[-1][1].append(line)
        elif line:
            found.append([None, [line]])
    return [(name, inspect.cleandoc("\n".join(text))) for name, text in found]


def indented(text):
    """Returns Markdown of the text of an item in a list."""
    return "\n\n  ".join(block.replace("\n", "\n  ") for block in _blocks(text.splitlines()))


def _list(found):
    """Returns a Markdown list of items."""
    def bold(name):
        words = " " in name.replace(", ", "") or "-" in name
        return "**{}**: ".format(name) if words else "**`{}`**: ".format("`**, **`".join(name.split(", ")))

    rows = ["- {}{}".format(bold(name) if name else "", indented(text)) for name, text in found]
    return ["\n".join(rows)] if rows else []


def _blocks(lines):
    """Returns paragraphs, formulas, tables, lists and code."""
    blocks = []
    for paragraph in re.split(r"\n\s*\n", textwrap.dedent("\n".join(lines)).strip("\n")):
        rows = paragraph.splitlines()
        if not any(row.strip() for row in rows):
            continue
        if all(row.lstrip().startswith("|") for row in rows):
            blocks.append(_table(rows))
        elif rows[0].lstrip().startswith(">>>"):
            blocks.append("```pycon\n{}\n```".format(inspect.cleandoc(paragraph)))
        elif all(row.startswith("    ") for row in rows):
            code = textwrap.dedent(paragraph)
            blocks.append("```{}\n{}\n```".format("python" if _is_python(code) else "text", code))
        elif re.match(r" *[-*] ", rows[0]):
            blocks.append("\n".join(map(_text, rows)))
        elif _are_items(rows):
            blocks += _list(items(rows))
        else:
            blocks += _prose(rows)
    return blocks


def _are_items(rows):
    """Returns whether rows are two or more items `name: text`, and the rest of their texts."""
    starts = [row for row in rows if re.match(r"[A-Za-z_][\w, -]{,30}: \S", row) and formula(row) is None]
    return rows[0] in starts and len(starts) > 1 and all(row in starts or row.startswith("    ") for row in rows)


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
    """Returns text with what Markdown would read as HTML escaped, with links, and with names of code as code."""
    pieces = re.split(r"(`[^`]*`)", text)
    for index in range(0, len(pieces), 2):
        parts = URL.split(pieces[index])
        parts[::2] = [TYPED.sub(r"`\1`", part) for part in parts[::2]]
        parts[1::2] = ["<{}>".format(part) for part in parts[1::2]]
        pieces[index] = "".join(parts)
    pieces = re.split(r"(`[^`]*`|<https?:[^>]*>)", "".join(pieces))
    pieces[::2] = [html.escape(piece, quote=False).replace("&amp;", "&").replace("[", r"\[") for piece in pieces[::2]]
    return "".join(pieces)
