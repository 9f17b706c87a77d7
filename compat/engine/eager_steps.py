"""Runs eager steps as functions of TensorFlow: one for the variables and kinds of gradients of a call, which is reused.

Python plans an eager step anew at each call, and launches its operations one by one. A function is planned once. What
Python code may decide anew at each step is computed before it: gradients, clipping, and hypers that are functions or
native schedules.

The first step is such a function too: TensorFlow simplifies functions, so their last bits are not those of operations
one by one, and a resumed run, whose first step is a later one, would not be the same bit for bit.
"""
from __future__ import absolute_import, division, print_function

from collections import namedtuple

from everstep.compat.engine.pairs import with_gradients
from everstep.compat.engine.step import Step
from everstep.optimizers.contract import Schedule, flat

MOST = 32  # functions of one optimizer; a program that needs more does not repeat its steps


class EagerSteps(object):
    """The functions of one optimizer. `host`: a `Bound`, see `compat/engine/step.py`."""

    def __init__(self, host):
        self.host = host
        self._functions = {}  # {what a step is: its `_Kept`}

    def run(self, pairs):
        """Runs a step on checked (gradient, variable) pairs: by its function, if it has one. Returns no operations."""
        host, backend = self.host, self.host.backend
        pairs = with_gradients(pairs)
        # each function is called once
        hypers = {name: _called(host.adapter.present(name)) for name in flat(host.definition, "hyper")}
        given = [name for name in sorted(hypers) if not (_stays(hypers[name]) and _stays(host.adapter.read(name)))]
        parts = [backend.parts(grad) for grad, _ in pairs] + [(backend.tensor(hypers[name]),) for name in given]
        key = (
            id(host.definition),
            tuple(id(variable) for _, variable in pairs),
            tuple(host.adapter.native_decay(variable) for _, variable in pairs),
            tuple((len(natives), natives[0].dtype) for natives in parts),
            tuple(None if name in given else _identity(hypers[name]) for name in sorted(hypers)),
        )
        kept = self._functions.get(key)
        if kept is None and len(self._functions) < MOST:
            variables = [variable for _, variable in pairs]
            if all(getattr(variable, "constraint", None) is None for variable in variables):  # the user's Python code
                shapes = [backend.shape(variable) for variable in variables] + [()] * len(given)
                function = backend.function(lambda parts: self._step(variables, given, parts), parts, shapes)
                kept = self._functions[key] = _Kept(function, variables, hypers, host.definition)
        if kept:
            kept.function(parts)
        else:
            Step(host, pairs, hypers=hypers).run()
        return []

    def _step(self, variables, given, parts):
        host, count = self.host, len(variables)
        pairs = [(host.backend.from_parts(natives, v), v) for natives, v in zip(parts, variables)]
        hypers = {name: natives[0] for name, natives in zip(given, parts[count:])}
        Step(host, pairs, hypers=hypers).run()


# The key names these objects by their ids. They are kept, so that no other object gets such an id.
_Kept = namedtuple("_Kept", "function variables hypers definition")


def _called(hyper):
    """Returns a hyper, or what the user's function returns for it now."""
    return hyper if _stays(hyper) or not callable(hyper) else hyper()


def _stays(hyper):
    """Returns whether a function may read a hyper itself: a number, a variable, or an everstep schedule."""
    return isinstance(hyper, (float, Schedule)) or hasattr(hyper, "assign")


def _identity(hyper):
    return hyper if isinstance(hyper, float) else id(hyper)
