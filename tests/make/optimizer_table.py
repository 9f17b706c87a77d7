"""Writes docs/optimizers.md from the definitions and their docstrings.

    PYTHONPATH=.dev python tests/make/optimizer_table.py    # `--check` only says whether the page is current
"""
import inspect
import sys

import everstep
from everstep.optimizers.contract.composite import Composite
from everstep.optimizers.contract.declarations import REQUIRED
from regions import renew

SHARED = ("sparse", "dense_ok")  # arguments of every definition


def families():
    """Returns {family: definitions}, wrappers last."""
    classes = [getattr(everstep.optimizers, name) for name in everstep.optimizers.__all__]
    classes.sort(key=lambda each: (issubclass(each, Composite), each.family.lower(), each.__name__.lower()))
    return {family: [each for each in classes if each.family == family] for family in dict.fromkeys(
        each.family for each in classes)}


def summary(definition_class):
    return inspect.getdoc(sys.modules[definition_class.__module__]).splitlines()[0]


def config_keys(definition_class):
    for name in definition_class.argument_names():
        if name not in SHARED:
            default = definition_class.declarations[name].default
            yield "`{}`".format(name if default is REQUIRED else "{}={!r}".format(name, default))


def slot_names(definition_class):
    """Yields names of slots; those that exist with some options only in brackets; numbered ones as one."""
    seen = set()
    for slot in definition_class.declarations.values():
        if slot.kind == "slot":
            stem = slot.name.rstrip("0123456789")
            name = stem + "*" if stem != slot.name else slot.name
            if name not in seen:
                seen.add(name)
                yield "`{}`".format(name if slot.when is None else "[{}]".format(name))


def rule(definition_class):
    """Returns (the paper, the rule) from a class docstring: its first paragraph, and those up to the first formula."""
    paragraphs = inspect.getdoc(definition_class).split("\n\n")
    end = next(index for index, text in enumerate(paragraphs) if ":=" in text)
    return " ".join(paragraphs[0].split()), "\n\n".join(paragraphs[1:end + 1])


def page():
    lines = []
    for family, classes in families().items():
        lines += ["## " + family[0].upper() + family[1:], ""]
        lines += ["| name | summary | config keys and defaults | slots |", "| --- | --- | --- | --- |"]
        for each in classes:
            cells = each.__name__, summary(each), ", ".join(config_keys(each)), ", ".join(slot_names(each)) or "none"
            lines.append("| {} |".format(" | ".join(cell.replace("|", "\\|") for cell in cells)))
        lines.append("")
    lines += ["## Update rules", ""]
    for classes in families().values():
        for each in classes:
            if not issubclass(each, Composite):
                paper, formula = rule(each)
                lines += ["### " + each.__name__, "", paper, "", "```text", formula, "```", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(renew("optimizers.md", "optimizers", "optimizer_table.py", page()))
