"""Every public callable documents its arguments, its return value and its errors."""
from __future__ import absolute_import, division, print_function

import ast
import inspect
import sys
import textwrap

import pytest

import everstep
from everstep.compat.targets.stepping import Stepping

pytestmark = pytest.mark.skipif(sys.version_info < (3, 8), reason="reads sources with inspect, once per modern cell")

# Methods of a bound optimizer that the framework's own class does not have.
NATIVE = ("everstep_plan", "scale_loss", "by_hand")


def public_callables():
    """Returns (name, callable, owner or None) of everything public in `everstep`, methods included."""
    seen = set()
    owners = [("everstep." + name, getattr(everstep, name)) for name in everstep.__all__]
    owners += [("optimizers." + name, getattr(everstep.optimizers, name)) for name in everstep.optimizers.__all__]
    owners += [("errors." + name, value) for name, value in vars(everstep.errors).items() if inspect.isclass(value)]
    owners += [("native optimizer", Stepping)]
    for name, value in owners:
        if inspect.isclass(value) and value.__module__.startswith("everstep") and value not in seen:
            seen.add(value)
            if value is not Stepping and not issubclass(value, Exception):
                yield name, value, None
            for attribute, method in vars(value).items():
                function = getattr(method, "__func__", method)
                if value is Stepping and attribute not in NATIVE:
                    continue
                if not attribute.startswith("_") and inspect.isfunction(function) and function.__doc__:
                    yield "{}.{}".format(name, attribute), function, value
        elif inspect.isfunction(value):
            yield name, value, None


def missing(name, value, owner):
    """Returns the sections that a docstring lacks, of those that the source shows to be needed."""
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value):
        takes = list(getattr(value, "argument_names", list)()) or takes_arguments(value.__init__)
        # All definitions raise the same errors for wrong arguments. everstep.Definition documents them.
        needed = ["Args:"] if value.__module__.startswith("everstep.optimizers") else ["Args:", "Raises:"]
        return [section for section in (needed if takes else []) if section not in text]
    tree = ast.parse(textwrap.dedent(inspect.getsource(value)))
    needed = ["Raises:"] if owner is None or any(isinstance(node, ast.Raise) for node in ast.walk(tree)) else []
    if takes_arguments(value):
        needed.append("Args:")
    if any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(tree)):
        needed.append("Returns:")
    # Without arguments, a line that starts with "Returns" is enough.
    return [each for each in needed if each not in text and not (each == "Returns:" and text.startswith("Returns "))]


def takes_arguments(function):
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return bool([name for name in names if name not in ("self", "cls")]) or bool(code.co_flags & 0x0C)


@pytest.mark.parametrize("name, value, owner", [pytest.param(*each, id=each[0]) for each in public_callables()])
def test_docstring_is_whole(name, value, owner):
    assert not missing(name, value, owner)


def test_missing_sections_are_reported():
    def lacks(first, second):
        """Adds."""
        return first + second

    assert missing("lacks", lacks, None) == ["Raises:", "Args:", "Returns:"]
