"""Every public callable documents its arguments, its return value and its errors."""
from __future__ import absolute_import, division, print_function

import ast
import inspect
import math
import re
import sys
import textwrap

import pytest

import everstep
from everstep.errors import HyperValueError

pytestmark = pytest.mark.skipif(sys.version_info < (3, 8), reason="reads sources with inspect, once per modern cell")

# Methods of a bound optimizer that the framework's own class does not have.
NATIVE = ("everstep_plan", "scale_loss", "flush", "catch_up", "get_slot")
STEPPING = everstep.NativeOptimizer


def public_callables():
    """Returns (name, callable, owner or None) of everything public in `everstep`, methods included."""
    seen = set()
    owners = [("everstep." + name, getattr(everstep, name)) for name in everstep.__all__]
    owners += [("optimizers." + name, getattr(everstep.optimizers, name)) for name in everstep.optimizers.__all__]
    owners += [("errors." + name, value) for name, value in vars(everstep.errors).items() if inspect.isclass(value)]
    owners += [("native optimizer", STEPPING)]
    for name, value in owners:
        if inspect.isclass(value) and value.__module__.startswith("everstep") and value not in seen:
            seen.add(value)
            if value is not STEPPING and not issubclass(value, Exception):
                yield name, value, None
            for attribute, method in vars(value).items():
                function = getattr(method, "__func__", method)
                if value is STEPPING and attribute not in NATIVE:
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


def documented_arguments():
    """Yields (class, argument, default, what its docstring says of it) of each definition, wrapper and schedule."""
    for _, value, owner in public_callables():
        if owner is None and inspect.isclass(value) and hasattr(value, "declarations"):
            section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", inspect.getdoc(value), re.MULTILINE | re.DOTALL)
            entries = re.findall(r"^    (\w[\w, ]*): (.*?)(?=^    \w[\w, ]*: |\Z)", section.group(1) if section else "",
                                 re.MULTILINE | re.DOTALL)
            for names, words in entries:
                for name in names.split(", "):
                    yield value, name, inspect.signature(value).parameters[name].default, " ".join(words.split())


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def test_documented_defaults_are_those_of_the_code():
    compared = 0
    for owner, name, default, words in documented_arguments():
        written = re.search(r"Default (.+?)(?=[.:;,]( |$)|$)", words)
        if written:
            assert eval(written.group(1).replace("^", "**"), {"e": math.e}) == default, (owner, name)
            compared += 1
        elif (owner.__name__, name) != ("Accumulate", "steps"):  # `everstep.accumulate` has no default for it
            assert not is_number(default), (owner, name)
    assert compared > 150


# Numbers whose docstring tells no bound are at least 0, but for these: (lowest, highest).
ABOVE_0 = "above 0"
UNTOLD = {
    "averaging_power": (None, None), "rate_power": (None, None), "nu_1": (None, None), "sign_decay": (None, None),
    "initial": (None, None), "end": (None, None), "start": (None, None), "of": (None, None),
    "AddSign.alpha": (None, None), "CosineDecay.alpha": (None, None), "CosineDecayRestarts.alpha": (None, None),
    "Cyclical.low": (None, None), "Cyclical.high": (None, None), "Cyclical.rise": (ABOVE_0, None),
    "InverseSquareRoot.steps": (ABOVE_0, None), "Noam.factor": (None, None),
    "OneCycle.peak": (None, None), "OneCycle.steps": (ABOVE_0, None),
    "WarmupStableDecay.peak": (None, None), "WarmupStableDecay.fall": (ABOVE_0, None),
    "CosineDecay.decay_steps": (ABOVE_0, None), "CosineDecayRestarts.decay_steps": (ABOVE_0, None),
    "ExponentialDecay.decay_steps": (ABOVE_0, None), "PolynomialDecay.decay_steps": (ABOVE_0, None),
    "Warmup.steps": (ABOVE_0, None), "DecoupledWeightDecay.base_rate": (ABOVE_0, None),
    "AdaBelief.sma_threshold": (4, None), "Centralize.minimum_rank": (2, None),
    "MovingAverage.start": (0, None), "StochasticWeightAveraging.start": (0, None),
}


def documented_bounds(owner, name, words):
    """Returns the lowest and the highest number allowed, or None for no bound."""
    whole = "%s.%s" % (owner.__name__, name)
    told = re.search(r"(at least (\d+))|([Mm]ore than 0)|\b(0 to 1)\b|(0 or less)", words)
    if "any sign" in words:
        return None, None
    if not told or whole in UNTOLD:
        return UNTOLD.get(whole, UNTOLD.get(name, (0, None)))
    least, number, positive, share, _ = told.groups()
    return (int(number), None) if least else (ABOVE_0, 1 if "to 1" in words else None) if positive else (
        (0, 1) if share else (None, 0))


def test_documented_bounds_are_those_of_the_code():
    compared = 0
    for owner, name, default, words in documented_arguments():
        if not is_number(default):
            continue
        lowest, highest = documented_bounds(owner, name, words)
        near = 1 if isinstance(default, int) else 1e-6
        inside = [-1.5 if lowest is None else 1e-20 if lowest == ABOVE_0 else lowest]
        outside = [] if lowest is None else [0 if lowest == ABOVE_0 else lowest - near]
        if highest is not None:
            inside.append(highest)
            outside.append(highest + near)
        inner = [everstep.optimizers.SGD()] if "inner" in inspect.signature(owner).parameters else []
        for value in inside:
            owner(*inner, **{name: value})
        for value in outside:
            with pytest.raises(HyperValueError):
                owner(*inner, **{name: value})
                pytest.fail("%s(%s=%r) was accepted" % (owner.__name__, name, value))
            compared += 1
    assert compared > 150
