"""Target `arrays`: NumPy arrays, updated in place, for `bind(numpy)`.

There is no native optimizer API: `apply_gradients` takes arrays, and nothing differentiates a loss.
Tests, examples and the dry run of a new definition use this target. A step that fails changes nothing.
"""
from __future__ import absolute_import, division, print_function

import contextlib

import numpy as np

from everstep.compat.backends.on_numpy import NumpyBackend
from everstep.compat.engine.pairs import as_pairs, with_gradients
from everstep.compat.engine.step import counters
from everstep.compat.targets.base import Target
from everstep.compat.targets.construction import Unsupported, in_parts, member
from everstep.compat.targets.copying import copied_array
from everstep.errors import GradientError, HyperTypeError, VariableError
from everstep.optimizers.contract import VARIABLE, Schedule, check_number, flat, is_tensor


class Optimizer(object):
    """The base class of optimizers from `bind(numpy)`, since NumPy has no native one."""


class ArraysTarget(Target):
    target = "arrays"
    works_on = "numpy"
    unsupported = (
        member("minimize", "nothing differentiates a loss here; give gradients to apply_gradients"),
        member("get_weights", "everstep.capture(optimizer, variables) takes its state"),
        Unsupported("partitioned variables", VariableError, "{optimizer} trains whole arrays; got {got!r}"),
        Unsupported(
            "constraints", VariableError,
            "{optimizer} applies no constraint, and the array has {got!r}; apply it after each step",
        ),
    )

    @classmethod
    def base_class(cls, optimizer, module):
        return Optimizer

    def start(self, name=None):
        self.backend = NumpyBackend()
        self.name = self.native_name(name)
        self._hypers = {hyper: self.given_hyper(hyper) for hyper in self.hyper_declarations()}
        for hyper, value in self._hypers.items():
            if is_tensor(value):
                self._present_value(hyper)  # raises now, not at the first step, for a tensor of a graph
        self._counters = {counter: np.zeros((), np.int64) for counter in counters(self.definition)}
        self._scalars = {
            scalar: np.array(declaration.init, np.float32)
            for scalar, (_, declaration) in flat(self.definition, "scalar").items()
        }
        self._slots = {}  # by variable: {name: array}
        self._present = {}  # the hypers' values in the current step: each callable is called once a step

    # Hypers.

    def hyper(self, name):
        return self._present[name]

    def _present_value(self, name):
        """Returns a hyper's present value, a float or a Schedule. Calls callables and converts tensors."""
        value, what = self._hypers[name], "{}.{}".format(type(self).__name__, name)
        if isinstance(value, (float, Schedule)):
            return value
        try:
            return check_number(what, value() if callable(value) else value)
        except (TypeError, NotImplementedError) as error:  # a tensor of a graph raises NotImplementedError
            raise HyperTypeError(
                "{}: bind(numpy) cannot read a number from {!r} ({}). It takes numbers, functions without arguments "
                "and everstep.Schedule; bind to a framework to use its tensors and schedules".format(
                    what, value, error
                )
            )

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
        """The number of updates so far, an int."""
        return int(self._counters["updates"])

    @property
    def steps(self):
        """The number of steps so far, an int, including steps that did not update."""
        return int(super(ArraysTarget, self).steps)

    # Variables and slots.

    def find_key(self, variable):
        # Equal views of the same memory are one variable: each `weights.T` creates a new object.
        return variable.__array_interface__["data"][0], variable.shape, variable.strides, variable.dtype.str

    def variable_name(self, variable):
        return "array_{}".format(len(self._rules))

    def slot(self, variable, name):
        slots = self._slots.setdefault(self.variable_key(variable), {})
        if name not in slots:
            initial, shape, dtype = self.slot_declaration(variable, name)
            slots[name] = np.array(variable, dtype) if initial is VARIABLE else np.full(shape, initial, dtype)
        return slots[name]

    def get_slot(self, variable, name):
        """Returns the array that holds a slot.

        Args:
            variable: an array that this optimizer trains.
            name: the flat name of the slot.

        Returns:
            The slot itself, not a copy.

        Raises:
            SlotError: there is no such slot, or it does not exist yet.
            VariableError: `variable` is not a writable float array.
        """
        self.check_variable(variable)
        return self.require_slot(variable, name)

    def get_slot_names(self):
        return list(flat(self.definition, "slot"))

    # State.

    def check_variable(self, variable):
        if in_parts(variable):
            raise self.refusal("partitioned variables", got=variable)
        if not isinstance(variable, np.ndarray):
            raise VariableError("bind(numpy) trains NumPy arrays, which it changes in place; got {!r}".format(variable))
        if variable.dtype.kind != "f" or not variable.flags.writeable:
            raise VariableError(
                "bind(numpy) trains writable arrays of floats; got {} array of {}".format(
                    "a" if variable.flags.writeable else "a read-only", variable.dtype
                )
            )
        if type(variable) is not np.ndarray and getattr(variable, "constraint", None) is not None:
            raise self.refusal("constraints", got=variable.constraint)

    def state_name(self, variable, place):
        return str(place)

    def make_state(self, variables):
        for variable in variables:
            for name in self.slot_names(variable):
                self.slot(variable, name)
        return []

    # Copies.

    def copied_variable(self, variable, memo):
        return copied_array(variable, memo)

    # The step.

    def scale_loss(self, loss):
        self._read_hypers()
        return super(ArraysTarget, self).scale_loss(loss)

    def apply_gradients(self, grads_and_vars):
        """Runs one step, in place. A step that fails changes nothing.

        Args:
            grads_and_vars: pairs of a gradient (an array, `everstep.IndexedSlices` or None) and a writable float array.

        Raises:
            VariableError: not a writable float array.
            GradientError: an array is given twice, no pair has a gradient, or one does not fit its array.
            UnsupportedError: a definition that counts calls got other variables than in its first call.
        """
        with self.forgetting_failures():
            pairs = self._check(as_pairs(grads_and_vars))
            variables = [variable for _, variable in pairs]
            self.take_carried(variables)
            self.make_state(variables)
            self._read_hypers()
            with self.backend.all_or_nothing():
                self.take_step(pairs, checked=False)

    def _check(self, pairs):
        """Returns the pairs that have a gradient. Raises all errors of a call before it creates slots."""
        for _, variable in pairs:
            self.check_variable(variable)
        keys = [self.variable_key(variable) for _, variable in pairs]
        if len(set(keys)) < len(keys):
            raise GradientError("one array is given twice in one call; add its gradients up")
        pairs = with_gradients(self.check_grads(pairs))
        self.check_first([variable for _, variable in pairs])
        self.check_repeat([variable for _, variable in pairs])
        return pairs

    def update(self, variable, function, grad):
        return function(variable, grad)

    def take_flush(self, variables):
        self._read_hypers()
        with self.backend.all_or_nothing():
            return super(ArraysTarget, self).take_flush(variables)

    def _read_hypers(self):
        self._present = {name: self._present_value(name) for name in self._hypers}

    def catch_up(self, variable, rows):
        self.check_variable(variable)
        rows = np.asarray(rows)
        if rows.dtype.kind not in "iu":
            raise GradientError("catch_up takes row numbers, integers; got {!r}".format(rows))
        super(ArraysTarget, self).catch_up(variable, rows)

    @contextlib.contextmanager
    def forgetting_failures(self):
        keys = set(self._slots)
        with super(ArraysTarget, self).forgetting_failures():
            try:
                yield
            except BaseException:
                for key in set(self._slots) - keys:
                    del self._slots[key]
                raise

    # Config.

    def get_config(self):
        config = self.definition_config()
        config["name"] = self.name
        return config

    def write_hyper(self, name, value):
        return self._present_value(name)

    @classmethod
    def from_config(cls, config):
        return cls.of_config(config)
