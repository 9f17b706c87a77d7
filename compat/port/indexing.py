"""Finds where an original computes with the index of a variable, or compares it."""
from __future__ import absolute_import, division, print_function

import ast
import linecache

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

_PICKERS = ("index", "_get_variable_index")  # methods that return an index
_TEXTS = ("str", "repr", "format", "get", "append", "print")  # calls that only name or pick something by it


def index_looks(codes):
    """Returns ["file:line"] where functions use an index for more than picking. codes: their code objects."""
    found = set()
    for code in codes:
        nodes = _nodes_of(code)
        names = _index_names(nodes)
        found.update((code.co_filename, node.lineno) for node in nodes if _uses(node, names))
    return ["{}:{}".format(*each) for each in sorted(found)]


def _nodes_of(code):
    """Returns the nodes of a function's source; [] if it has none."""
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except (SyntaxError, ValueError):
        return []
    functions = [node for node in ast.walk(tree) if getattr(node, "name", None) == code.co_name]  # type: list[Any]
    near = [node for node in functions if abs(node.lineno - code.co_firstlineno) <= 5]  # decorators are before it
    return [each for node in near for each in ast.walk(node)]


def _index_names(nodes):
    """Returns the names of local variables that hold indices."""
    names = set()
    for node in nodes:
        if isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.iter, ast.Call):
            counter, target = _called(node.iter), node.target
            if counter == "enumerate" and isinstance(target, ast.Tuple):
                target = target.elts[0]
            if counter == "enumerate" or counter in ("range", "xrange") and "len" in map(_called, ast.walk(node.iter)):
                names.add(getattr(target, "id", None))
        elif isinstance(node, ast.Assign) and _is_picker(node.value):
            names.update(getattr(target, "id", None) for target in node.targets)
    return names - {None}


def _called(node):
    """Returns the name of what a node calls; None if it is no call."""
    function = node.func if isinstance(node, ast.Call) else None
    return getattr(function, "id", getattr(function, "attr", None))


def _is_picker(node):
    if isinstance(node, ast.Subscript):
        return getattr(node.value, "attr", "") == "_index_dict"  # of Keras
    return _called(node) in _PICKERS


def _uses(node, names):
    """Returns whether a node computes with an index, or decides by it."""
    if isinstance(node, ast.Compare):
        parts = [node.left] + node.comparators
    elif isinstance(node, ast.BinOp):
        parts = [node.left, node.right]
        if any(type(each).__name__ == "Str" or isinstance(getattr(each, "value", None), str) for each in parts):
            return False  # a text
    elif isinstance(node, (ast.If, ast.IfExp)):
        parts = [node.test]
    elif isinstance(node, ast.BoolOp):
        parts = node.values
    elif isinstance(node, ast.Call) and _called(node) not in _TEXTS:
        parts = node.args + [each.value for each in node.keywords]
    else:
        return False
    return any(getattr(each, "id", None) in names or _is_picker(each) for each in parts)
