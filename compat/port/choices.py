"""Finds the values that an argument can have: True and False, or the texts that the original compares it with."""
from __future__ import absolute_import, division, print_function

import ast
import inspect
import textwrap

from everstep.compat.stock.lookup import FRAMEWORKS

_METHODS = ("lower", "upper", "strip")  # mode.lower() == "x"


def choices_of(cls, name, value):
    """Returns the values of an argument, those that a class compares it with too; () if it has no choice."""
    if isinstance(value, bool):
        return () if name in ("use_locking", "jit_compile") else (True, False)
    if not isinstance(value, str) or name == "name":
        return ()
    texts = [value]
    for base in cls.__mro__:
        if base.__module__.split(".")[0] not in FRAMEWORKS and base is not object:
            for text in _compared_with(base, name):
                if text not in texts:
                    texts.append(text)
    return tuple(texts) if len(texts) > 1 else ()


def condition(owner, name, value):
    """Returns the Python text of whether an option has a value. owner: what has the option."""
    if isinstance(value, bool):
        return "{}{}.{}".format("" if value else "not ", owner, name)
    return "{}.{} == {}".format(owner, name, quoted(value))


def quoted(value):
    """Returns the Python text of a value, in double quotes if it can be."""
    text = repr(value)
    return text if '"' in text else text.replace("'", '"')


def _compared_with(cls, name):
    """Yields the texts that the source of a class compares an argument with, or an attribute of that name."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (IOError, TypeError, SyntaxError):  # it has no source
        return
    for compare in ast.walk(tree):
        if isinstance(compare, ast.Compare):
            sides = [compare.left] + compare.comparators
            if any(_name_of(side) == name.strip("_") for side in sides):
                for side in sides:
                    for text in _texts(side):
                        yield text


def _name_of(node):
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
        return _name_of(node.func.value)
    return getattr(node, "id", getattr(node, "attr", "")).strip("_")


def _texts(node):
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return [text for each in node.elts for text in _texts(each)]
    value = getattr(node, {"Constant": "value", "Str": "s"}.get(type(node).__name__, ""), None)
    return [value] if isinstance(value, str) else []
