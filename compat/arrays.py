"""Target `arrays`: NumPy arrays, updated in place. What examples and oracles run a definition with."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.compat.adapter import Adapter
from everstep.compat.ops import NumpyBackend
from everstep.compat.step import skips
from everstep.errors import SlotError, VariableError
from everstep.optimizers.declarations import VARIABLE
from everstep.optimizers.tree import flat


class Optimizer(object):
    """The base class that `bind(numpy)` gives; there is no native one."""

    backend = NumpyBackend()


class ArraysAdapter(Adapter):
    target = "arrays"
    works_on = "numpy"
    cannot = ("minimize", "get_weights", "partitioned variables", "constraints")

    @classmethod
    def base_class(cls, module):
        return Optimizer

    def start(self, name=None):
        self.name = name or type(self.definition.base).__name__
        self._hypers = {hyper: self.given_hyper(hyper) for hyper in self.hyper_declarations()}
        counters = ("updates", "pending", "steps") if skips(self.definition) else ("updates",)
        self._counters = {counter: np.zeros((), np.int64) for counter in counters}
        self._scalars = {
            scalar: np.array(declaration.init, np.float32)
            for scalar, (_, declaration) in flat(self.definition, "scalar").items()
        }
        self._slots = {}  # by variable: {name: array}

    # Hypers.

    def hyper(self, name):
        return self._hypers[name]

    def read_hyper(self, name):
        return self._hypers[name]

    def set_hyper(self, name, value):
        self._hypers[name] = self.check_hyper(name, value)

    # Counters and scalars.

    def counter(self, name):
        return self._counters[name]

    def scalar(self, name):
        return self._scalars[name]

    @property
    def iterations(self):
        """The number of updates done."""
        return int(self._counters["updates"])

    # Variables and slots.

    def variable_name(self, variable):
        return "array_{}".format(len(self._rules))

    def slot(self, variable, name):
        slots = self._slots.setdefault(self.variable_key(variable), {})
        if name not in slots:
            initial, shape, dtype = self.slot_declaration(variable, name)
            slots[name] = np.array(variable, dtype) if initial is VARIABLE else np.full(shape, initial, dtype)
        return slots[name]

    def get_slot(self, variable, name):
        """The array that holds a slot of a variable that was trained already."""
        slots = self._slots.get(self.variable_key(variable), {})
        if name not in slots:
            raise SlotError(
                "no slot {!r} for this array yet; it has {}. Slots are made by the first step".format(
                    name, ", ".join(sorted(slots)) or "none"
                )
            )
        return slots[name]

    def get_slot_names(self):
        return list(flat(self.definition, "slot"))

    # The step.

    def update(self, variable, function, grad):
        return function(variable, grad)

    def apply_gradients(self, grads_and_vars):
        """One step, in place.

        Args:
            grads_and_vars: pairs of a gradient (array or `everstep.IndexedSlices`) and a writable float array.
        """
        pairs = [tuple(pair) for pair in grads_and_vars]
        for grad, variable in pairs:
            if not isinstance(variable, np.ndarray) or variable.dtype.kind != "f" or not variable.flags.writeable:
                raise VariableError("bind(numpy) trains writable arrays of floats; got {!r}".format(variable))
        self.take_step([(_as_grad(grad), variable) for grad, variable in pairs])

    # Config.

    def get_config(self):
        config = self.definition_config()
        config["name"] = self.name
        return config

    @classmethod
    def from_config(cls, config):
        definition, native = cls.split_config(config)
        return cls.from_definition(definition, **native)


def _as_grad(grad):
    return grad if grad is None or hasattr(grad, "indices") else np.asarray(grad)
