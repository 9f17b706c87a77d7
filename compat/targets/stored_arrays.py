"""The arrays that Keras 2.11 and newer store by position: those of `variables`, or those of a stock optimizer."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import numpy as np

from everstep.compat.engine.overwritten import has_stock_slots, is_overwritten
from everstep.compat.targets.loading import warn
from everstep.errors import SlotError
from everstep.optimizers.contract.binder import binder

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments


class StoredArrays(object):
    """Loads and saves the variables of one new-style optimizer.

    A file that is loaded before `build` waits for the slots, in `bound.carried`. Its counters arrive at once.
    """

    def __init__(self, adapter):
        self.adapter, self.bound, self.native = adapter, adapter.bound, adapter.native
        self._before_load = []  # [(counter, its value before the load that waits)]

    def put(self, values):
        """Sets all variables, or raises SlotError and changes nothing."""
        self._write(self._places(values))
        self._forget()

    def load(self, values):
        """Takes the arrays of a file, as a loader does: warns if they do not fit.

        Hypers stay as they are, as stock's do. The learning rate is loaded where stock loads it: once there are slots.
        """
        self._take_back()
        if self.adapter.is_built():
            self._deliver(values, self._hypers()[1:])
            return
        own, hypers = list(self.native._variables), self._hypers()
        counters = self._without(zip(own if _is_ours(values, own) else own[:1], values), hypers)
        counters = [(variable, value) for variable, value in counters if self._fits(variable, value)]
        self._before_load = list(zip([variable for variable, _ in counters], self._read(counters)))
        self._write(counters)
        self.bound.carried = values

    def take_waiting(self):
        """Gives the variables the state that waits for them."""
        self._deliver(self.bound.carried, self._hypers())

    def values(self):
        """Returns the arrays to save. Before the slots exist, those that wait, with the counters and hypers of now."""
        own, waiting = self._read([(variable, None) for variable in self.native._variables]), self.bound.carried
        if waiting is None:
            return own
        return own + waiting[len(own):] if _is_ours(waiting, own) else own[:1] + waiting[1:]

    def _deliver(self, values, without):
        try:
            pairs = self._places(values)
        except SlotError as error:
            self._take_back()
            warn(self.bound, error)
            return
        self._write(self._without(pairs, without))
        self._forget()

    def _take_back(self):
        """Undoes a load whose slots have not arrived."""
        if self.bound.carried is not None:
            self._write(self._before_load)
        self._forget()

    def _forget(self):
        self.bound.carried, self._before_load = None, []

    def _hypers(self):
        """Returns the variables of hypers; that of the learning rate is the first."""
        return [self.native._learning_rate] + list(self.native._hypers.values())

    @staticmethod
    def _without(pairs, variables):
        left_out = set(map(id, variables))
        return [(variable, value) for variable, value in pairs if id(variable) not in left_out]

    def _places(self, values):
        """Returns [(variable, its value)] of arrays of ours or of stock. Raises SlotError if they are neither."""
        adapter, variables = self.adapter, list(self.native._variables)
        values = [np.asarray(value) for value in values]
        shapes, expected = [value.shape for value in values], [tuple(variable.shape) for variable in variables]
        pairs = list(zip(variables, values))  # type: Any
        if shapes and shapes == expected[: adapter.before_slots] and not np.any(values[0]):
            pairs = pairs[: adapter.before_slots]  # the state was saved before `build`
        elif shapes != expected:
            pairs = self._places_of_stock(values)
        if pairs is None:
            raise SlotError(
                "{} has {} variables, {}; the state has {} of shapes {}. It was written by another optimizer, or for "
                "other variables".format(
                    self.bound.owner,
                    len(expected),
                    ", ".join("{} {}".format(v.name, shape) for v, shape in zip(variables, expected)),
                    len(shapes),
                    shapes,
                )
            )
        for variable, value in pairs:
            if not self._fits(variable, value):
                raise SlotError(
                    "{} is of dtype {}; the state has {!r} for it".format(variable.name, self._dtype(variable), value)
                )
        return pairs

    def _places_of_stock(self, values):
        """Returns the same for the arrays of the stock optimizer that computes the same; None if they are not that."""
        bound = self.bound
        trained = [variable for variable in self.adapter.trained() if has_stock_slots(self.native, variable)]
        shapes = OrderedDict((str(place), bound.record(variable).shape) for place, variable in enumerate(trained))
        found = binder.stock_arrays(self.adapter.target, bound.definition, values, shapes)
        if found is None:
            return None
        own = {"updates": self.native._variables[0], "learning_rate": self.native._learning_rate}
        pairs = [(own[name], value) for name, value in found[0].items() if name in own]
        for variable, slots in zip(trained, found[1]):
            if is_overwritten(variable):
                continue
            own_slots = self.adapter.slots[bound.variable_key(variable)]
            pairs += [(own_slots[name], np.asarray(value)) for name, value in slots.items()]
        return pairs

    def _dtype(self, variable):
        return self.adapter.backend.dtype(self.adapter.unwrap(variable))

    def _fits(self, variable, value):
        """Returns whether an array is of a kind that a variable takes."""
        return value.dtype.kind in ("iu" if "int" in self._dtype(variable) else "iufV")  # V: bfloat16

    def _read(self, pairs):
        unwrap = self.adapter.unwrap
        return self.adapter.backend.values([unwrap(variable) for variable, _ in pairs], None)

    def _write(self, pairs):
        backend = self.adapter.backend
        for variable, value in pairs:
            variable.assign(backend.cast(backend.tensor(value), self._dtype(variable)))


def _is_ours(values, own):
    """Returns whether the arrays of a file begin with all the numbers that our optimizer has before its slots."""
    return len(values) >= len(own) and all(np.shape(value) == () for value in values[: len(own)])
