"""`everstep.State`: what an optimizer has learned, in no framework's form."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import numpy as np

from everstep.compat.state import npz


class State(object):
    """What an optimizer has learned, in no framework's form.

    Arrays are NumPy's, or handles: what has `shape`, `dtype`, rows by `[a:b]` and the whole by `numpy.asarray`.

    Attributes:
        definition: the definition's config, with hypers as they were; None where a file does not say.
        updates, steps, pending: counts of updates, of steps in all and of steps since the last update; steps is None
            where every step updates.
        scalars: {name: float}.
        slots: {variable name: {slot name: array}}.
        variables: {variable name: array}, the values of the variables; empty where they were not taken.
    """

    def __init__(self, definition=None, updates=0, steps=None, pending=0, scalars=(), slots=(), variables=()):
        self.definition, self.updates, self.steps, self.pending = definition, updates, steps, pending
        self.scalars, self.slots, self.variables = OrderedDict(scalars), OrderedDict(slots), OrderedDict(variables)

    def save(self, path):
        """Writes a `.npz` file, of which docs/state_format.md tells all. It is there when it is whole.

        Raises:
            StateError: something in the state has no place in a file, or the file cannot be written.
        """
        npz.save(self, path)

    @classmethod
    def load(cls, path):
        """The state in a file that `save` wrote. Its arrays are handles, read and checked when asked for.

        Raises:
            StateError: it is no such file, is of a newer format, damaged or truncated.
        """
        return cls(**npz.load(path))

    def to_dict(self):
        """All of it, in dictionaries, lists, numbers and arrays."""
        slots = OrderedDict((name, _arrays(slots)) for name, slots in self.slots.items())
        return dict(vars(self), scalars=OrderedDict(self.scalars), slots=slots, variables=_arrays(self.variables))

    def __repr__(self):
        owner = (self.definition or {}).get("definition", "an unknown definition")
        return "<everstep state of {}: {} updates, {} variables>".format(owner, self.updates, len(self.slots))


def _arrays(handles):
    return OrderedDict((name, np.asarray(handle)) for name, handle in handles.items())
