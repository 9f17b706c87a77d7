"""The step-wide values of a step: t, hypers, scalars and sums."""
from __future__ import absolute_import, division, print_function

import operator
from collections import OrderedDict

import numpy as np

from everstep.compat.rules.interpreter import Interpreter
from everstep.optimizers.contract import Names, Schedule, flat, tree


class Scope(object):
    """Step-wide values (t, hypers, scalars, sums) in one compute dtype, and what they are in one step."""

    shared_names = ("pending", "updates", "row_number", "place_in_row")

    def __init__(self, step, dtype):
        self.step, self.dtype = step, dtype
        self.tracer = step.host.lowerings.tracer(dtype)
        self.readers = {}  # {leaf's name: function that returns its native value}
        self.interpreter = Interpreter(step.backend, lambda name: self.readers[name]())
        updates = self._count("updates", lambda: step.count("updates"))
        self.t = self.tracer.once("t", lambda: updates + 1)
        self.scalars = {name: self._scalar(name) for name in flat(step.definition, "scalar")}
        self.values = OrderedDict(self.scalars)
        self.values["updates"] = updates
        self.values["pending"] = self._count("pending", lambda: step.pending())
        self.values.update((name, self._hyper(name)) for name in flat(step.definition, "hyper"))
        self.key = ()  # type: tuple  # what stands for all the values in the key of a trace
        self.learn(step.known)

    def names(self, definition, extra=()):
        return Names(tree(definition), dict(self.values, **dict(extra)), self.shared_names)

    def learn(self, natives):
        """Adds or replaces values by their native values."""
        for name, native in natives.items():
            self.values[name] = self._leaf(("known", name), lambda native=native: self._cast(native))
        self.key = tuple(sorted(self.values.items(), key=operator.itemgetter(0)))

    def native(self, value):
        return self.interpreter.lower(self.tracer.as_value(value))

    def _scalar(self, name):
        read = lambda: self._cast(self.step.backend.read(self.step.host.adapter.scalar(name)))  # noqa: E731
        return self._leaf(("scalar", name), read)

    def _hyper(self, name):
        value = self._present(name)
        if isinstance(value, Schedule):
            return self.tracer.scheduled(value, self.values["updates"])
        if isinstance(value, float):  # every framework keeps its hypers in float32 variables
            return self.tracer.constant(float(np.float32(value)))
        read = lambda: self._cast(self.step.backend.tensor(value() if callable(value) else value))  # noqa: E731
        return self._leaf(("hyper", name), read)

    def _present(self, name):
        return self.step.hyper(name)

    def _leaf(self, name, read):
        leaf = self.tracer.leaf(name, step_wide=True, shape=())
        self.readers[name] = read
        return leaf

    def _count(self, name, read):
        tracer, backend = self.tracer, self.step.backend
        count = tracer.count_leaf(("count", name), step_wide=True, shape=())
        self.readers[count.exact.integer.leaf] = lambda: backend.cast(read(), tracer.integer)
        return count

    def _cast(self, native):
        return self.step.backend.cast(native, self.dtype)
