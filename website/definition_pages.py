"""Writes the page of a definition: use, arguments, rule, stock optimizers, advice, what it stores, how it descends."""
import html
import inspect
import os
import re

import docstrings_as_markdown
import usage
from docstrings_as_markdown import indented, items, sections

import parity_map
from everstep import show as describe
from everstep.compat.engine.fused import KERNELS
from everstep.compat.targets import doctor
from everstep.optimizers.contract import REQUIRED
from everstep.optimizers.contract.kernel_names import kernel_of

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BY_US = "Set by everstep: "
OF_ALL = {
    "sparse": "What a sparse gradient of an embedding does; see [below](#sparse-gradients-and-speed).",
    "dense_ok": "`True` allows other modes than `'exact'` on JAX and torch, which have no sparse gradients.",
}
KINDS = "A *hyper* is a number that can follow a [schedule]({}) and be set while you train. An *option* is fixed."


def doc(name):
    """Returns the link from the page of a definition to a page of docs/, on whatever shelf it stands."""
    for folder, _, names in os.walk(os.path.join(ROOT, "docs")):
        if name in names:
            return os.path.relpath(os.path.join(folder, name), os.path.join(ROOT, "definitions")).replace(os.sep, "/")
    raise ValueError("docs/ has no page {}".format(name))


def page(definition, picture, measured):
    """Returns the page of a definition.

    Args:
        picture: (SVG, caption) of how it descends, or None.
        measured: the figures of all cells, of `proof.read()`.
    """
    text, _, example = inspect.getdoc(definition).partition("\n>>>")
    parts = dict((name, lines) for name, lines in reversed(sections(text)))
    rule, stock = without_stock_table(parts[None])
    chapters = [
        ("", head(definition)), ("Use", use(definition)), ("Arguments", arguments(definition, parts.get("Args", []))),
        ("Rule", docstrings_as_markdown.markdown(rule, 3)),
        ("Stock optimizers", stock and "The options with which it computes what a stock optimizer does:\n\n"
         + docstrings_as_markdown.markdown(stock, 3)),
        ("Advice", docstrings_as_markdown.markdown("\n".join(parts.get("Advice", [])), 3)),
        ("What it stores", stored(definition)),
        ("How it descends", picture and "{}\n\n{}".format(picture[0], html.escape(picture[1]))),
        ("Sparse gradients and speed", speed(definition)), ("Accuracy", accuracy(definition, measured)),
        ("Example", example and "```pycon\n>>>" + example.rstrip() + "\n```"),
    ]
    # Not in the sidebar: it would list sixty pages on every page.
    return "---\norphan: true\n---\n\n# {}\n\n{}\n".format(definition.__name__, "\n\n".join(
        ("## {}\n\n".format(title) if title else "") + body.strip() for title, body in chapters if body))


def without_stock_table(lines):
    """Returns (text, table) of the first part of a docstring."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines).strip())
    tables = [each for each in paragraphs if re.match(r"\| stock\b", each)]
    return "\n\n".join(each for each in paragraphs if each not in tables), "\n\n".join(tables)


def head(definition):
    function = describe.function_of(definition)
    name = "everstep." + (function.__name__ if function else "optimizers." + definition.__name__)
    written = ["{}={!r}".format(*each) if each[1] is not REQUIRED else each[0] for each in taken(definition)]
    return "{}\n\n```python\n{}(\n    {},\n)\n```\n\n" \
        "[All definitions](index.md) · family: {} · [API reference]({})".format(
            docstrings_as_markdown._text(describe.description(definition)), name, ",\n    ".join(written),
            definition.family, doc("api.md"))


def taken(definition):
    """Returns [(argument, default or REQUIRED)] as a user gives them; not what everstep sets by itself."""
    function = describe.function_of(definition)
    if function is not None:
        return [(each.name, REQUIRED if each.default is each.empty else each.default)
                for each in inspect.signature(function).parameters.values()]
    own = {name for name, text in documented(definition).items() if text.startswith(BY_US)}
    return [(name, definition.declarations[name].default) for name in definition.argument_names() if name not in own]


def documented(value):
    """Returns {argument: text} of a docstring's section Args."""
    found = {}
    for name, lines in sections(inspect.getdoc(value).partition("\n>>>")[0]):
        for names, text in items(lines) if name == "Args" else []:
            found.update((each, text) for each in (names or "").split(", "))
    return found


def use(definition):
    keras, others = usage.lines(definition)
    return "```python\n{}\n```\n\nOn other APIs only the module changes. [The chooser](../which.md) says which you " \
        "have.\n\n```python\n{}\n```".format("\n".join(keras), "\n".join(others))


def arguments(definition, lines):
    """Returns the list of arguments: what each is, takes and does."""
    texts, function = documented(definition), describe.function_of(definition)
    if function is not None:
        texts.update((name, text) for name, text in documented(function).items() if not text.startswith("See `"))
    rows = []
    for name, default in taken(definition):
        declared = definition.declarations.get(name)
        facts = [] if declared is None or declared.kind == "child" else [declared.kind, describe.takes(declared)]
        facts.append("required" if default is REQUIRED else "default `{!r}`".format(default))
        text = texts.get(name) or OF_ALL[name]
        text = text[len(facts[1]) + 2:] if len(facts) > 2 and text.startswith(facts[1] + ". ") else text
        text = re.sub(r" ?\bDefault [^\s]+?\.(?= |$)", "", text) if default is not REQUIRED else text
        text = re.sub(r"\bDefault None: ", "`None`: ", text)
        rows.append("- **`{}`** ({}): {}".format(
            name, code_values("; ".join(fact for fact in facts if fact)), indented(text) if name in texts else text))
    hypers = any(each.kind == "hyper" for each in definition.declarations.values())
    return (KINDS.format(doc("schedules.md")) + "\n\n" if hypers else "") + "{.arguments}\n" + "\n".join(rows)


def code_values(text):
    """Returns facts of an argument with strings and truth values as code."""
    return re.sub(r"(?<!`)('[^']*'|\bTrue\b|\bFalse\b)(?!`)", r"`\1`", text)


def stored(definition):
    """Returns the table of slots and scalars."""
    rows = describe.state_rows(definition)
    if not rows:
        return "Nothing of its own."
    rows = ["| `{}` | {} | {} | {} | {} |".format(*row[:4], code_options(definition, row[4])) for row in rows]
    return "A *slot* is kept for each variable, a *scalar* once. These are the names in checkpoints and of " \
        "`get_slot`; see [names on disk]({}).\n\n| name | kind | starts as | shape | exists |\n" \
        "| --- | --- | --- | --- | --- |\n{}".format(doc("on_disk.md"), "\n".join(rows))


def code_options(definition, text):
    return " ".join("`{}`".format(word) if word in definition.declarations else word for word in text.split())


def kernels_of(cls):
    """Returns the names of TensorFlow's fused operations that run a definition, with some options or others."""
    if cls.kernel is None:
        return []
    variants = [definition for definition in doctor._variants(cls) if kernel_of(definition)]
    kernels = [KERNELS[cls.kernel.name](definition, definition._values.get) for definition in variants]
    return sorted({kernel.operation for kernel in kernels if kernel})


def speed(definition):
    operations = kernels_of(definition)
    fused = "TensorFlow's fused operations run it where they can: {}.".format(
        ", ".join("`%s`" % operation for operation in operations)) if operations \
        else "TensorFlow has no fused operation for it."
    return "{}\n\n{} [Speed]({}) says how fast it is, [sparse gradients]({}) what the modes are for.".format(
        docstrings_as_markdown._text(describe.sparse_behaviour(definition)), fused, doc("speed.md"), doc("sparse.md"))


def accuracy(definition, measured):
    name = definition.__name__
    figures = {cell: values["worst"][name] for cell, values in measured.items() if name in values["worst"]}
    if not figures:
        return "It was not measured in the last run of all combinations of versions. Its tests run in every cell of " \
            "[the matrix](../matrix/README.md)."
    worst = max(figures, key=lambda cell: parity_map.share(figures[cell]))
    return "Measured with {} combinations of versions. The largest difference from the same training in float64 is " \
        "{:.0f} % of what is allowed, in `{}`. [The parity map](../map.md) has all figures.".format(
            len(figures), 100 * parity_map.share(figures[worst]), worst)
