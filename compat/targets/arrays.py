"""Target `arrays`: NumPy arrays, updated in place, for `bind(numpy)`.

There is no native optimizer API: `apply_gradients` takes arrays, and nothing differentiates a loss.
Tests, examples and the dry run of a new definition use this target. A step that fails changes nothing.
"""
from __future__ import absolute_import, division, print_function

import contextlib

import numpy as np

from everstep.compat.backends.on_numpy import NumpyBackend
from everstep.compat.engine.flush import Flush
from everstep.compat.engine.pairs import as_pairs, with_gradients
from everstep.compat.engine.step import counters
from everstep.compat.targets import hypers
from everstep.compat.targets.adapter import InOneProcess
from everstep.compat.targets.checking import check_grads, check_repeat, forgetting_failures
from everstep.compat.targets.construction import Unsupported, config_of, from_config, in_parts, member, prefix
from everstep.compat.targets.copying import ByRole, copied_array
from everstep.compat.targets.losses import scaled
from everstep.compat.targets.native import NativeOptimizer
from everstep.errors import GradientError, HyperTypeError, VariableError
from everstep.optimizers.contract import VARIABLE, Schedule, check_number, flat, is_tensor, scalar_starts


class Optimizer(object):
    """The base class of optimizers from `bind(numpy)`, since NumPy has no native one."""


class ArraysOptimizer(NativeOptimizer):
    @property
    def iterations(self):
        """The number of updates so far, an int."""
        return int(self._bound.adapter.counter("updates"))

    def apply_gradients(self, grads_and_vars):
        """Runs one step, in place. A step that fails changes nothing.

        Args:
            grads_and_vars: pairs of a gradient (an array, `everstep.IndexedSlices` or None) and a writable float array.

        Raises:
            VariableError: not a writable float array.
            GradientError: an array is given twice, no pair has a gradient, or one does not fit its array.
            UnsupportedError: a definition that counts calls got other variables than in its first call.
        """
        self._bound.adapter.apply_gradients(grads_and_vars)

    def get_slot_names(self):
        return list(flat(self.definition, "slot"))

    def get_config(self):
        return self._bound.adapter.get_config()

    @classmethod
    def from_config(cls, config):
        return from_config(cls, config)


class ArraysAdapter(InOneProcess):
    target = "arrays"
    works_on = "numpy"
    native_class = ArraysOptimizer
    unsupported = (
        member("minimize", "nothing differentiates a loss here; give gradients to apply_gradients"),
        member("get_weights", "everstep.capture(optimizer, variables) takes its state"),
        Unsupported("partitioned variables", VariableError, "{optimizer} trains whole arrays; got {got!r}"),
        Unsupported(
            "constraints", VariableError,
            "{optimizer} applies no constraint, and the array has {got!r}; apply it after each step",
        ),
    )
    has_slots = "once apply_gradients has run"
    carries = ByRole

    # Construction and config.

    @classmethod
    def base_class(cls, optimizer, module):
        return Optimizer

    @classmethod
    def entries(cls, base):
        return ()

    @classmethod
    def schedules(cls, base):
        return None

    @classmethod
    def native_keywords(cls, config):
        return config

    def start(self, name=None):
        self.use(NumpyBackend())
        definition = self.bound.definition
        self.name = self.native.name = prefix(name, definition.base)
        self.hypers = {hyper: self.bound.given(hyper) for hyper in self.bound.hyper_declarations()}
        for hyper, value in self.hypers.items():
            if is_tensor(value):
                self.number(hyper, value)  # raises now, not at the first step, for a tensor of a graph
        self.counters = {counter: np.zeros((), np.int64) for counter in counters(definition)}
        self.scalars = {scalar: np.array(start, np.float32) for scalar, start in scalar_starts(definition).items()}
        self.slots = {}  # by variable: {name: array}
        self._present = {}  # the hypers' values in the current step: each callable is called once a step

    def get_config(self):
        return dict(config_of(self.bound), name=self.name)

    # Hypers.

    def present(self, name):
        value = self._present[name]
        # A function, because a number would become a constant of the traced rule: each new one would trace it anew.
        return value if isinstance(value, Schedule) else lambda: np.float32(value)

    def read(self, name):
        return self.hypers[name]

    def set(self, name, value):
        self.hypers[name] = hypers.check(self.bound, name, value)

    def number(self, name, value):
        """Returns a hyper's present value, a float or a Schedule. Calls callables and converts tensors."""
        what = "{}.{}".format(self.bound.owner, name)
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

    def read_hypers(self):
        """Reads the present values, those of one step."""
        self._present = {name: self.number(name, value) for name, value in self.hypers.items()}

    # Counters and scalars.

    def counter(self, name):
        return self.counters[name]

    def scalar(self, name):
        return self.scalars[name]

    def own_variables(self):
        return dict(self.counters, **self.scalars)

    def counted_elsewhere(self):
        return None

    def calls_per_update(self):
        return 1

    # Variables and slots.

    def find_key(self, variable):
        # Equal views of the same memory are one variable: each `weights.T` creates a new object.
        return variable.__array_interface__["data"][0], variable.shape, variable.strides, variable.dtype.str

    def variable_name(self, variable):
        return "array_{}".format(len(self.bound.rules))

    def state_name(self, variable, index):
        return str(index)

    def find_slot(self, variable, name):
        return self.slots.get(self.bound.variable_key(variable), {}).get(name)

    def get_slot(self, variable, name):
        self.check_variable(variable)
        return self.bound.require_slot(variable, name)

    # State.

    def check_variable(self, variable):
        if in_parts(variable):
            raise hypers.refusal(self.bound, "partitioned variables", got=variable)
        if not isinstance(variable, np.ndarray):
            raise VariableError("bind(numpy) trains NumPy arrays, which it changes in place; got {!r}".format(variable))
        if variable.dtype.kind != "f" or not variable.flags.writeable:
            raise VariableError(
                "bind(numpy) trains writable arrays of floats; got {} array of {}".format(
                    "a" if variable.flags.writeable else "a read-only", variable.dtype
                )
            )
        if type(variable) is not np.ndarray and getattr(variable, "constraint", None) is not None:
            raise hypers.refusal(self.bound, "constraints", got=variable.constraint)

    def make_state(self, variables):
        for variable in variables:
            slots = self.slots.setdefault(self.bound.variable_key(variable), {})
            for name in self.bound.slot_names(variable):
                if name not in slots:
                    initial, shape, dtype = self.bound.slot_declaration(variable, name)
                    is_copy = initial is VARIABLE
                    slots[name] = np.array(variable, dtype) if is_copy else np.full(shape, initial, dtype)
        return []

    def default_session(self, variables):
        return None

    def not_carried(self):
        return None

    # Copies.

    def trained(self):
        return self.bound.first_seen()

    def copied_variable(self, variable, memo):
        return copied_array(variable, memo)

    def exclusions(self, same_variables):
        return None

    # The step.

    def scale_loss(self, loss):
        self.read_hypers()
        return scaled(self.bound, loss)

    def update(self, variable, function, grad):
        return function(variable, grad)

    def constrain(self, variable, write):
        return write

    def native_decay(self, variable):
        return None

    def take_flush(self, variables):
        self.read_hypers()
        with self.backend.all_or_nothing():
            return Flush(self.bound, variables).run()

    def apply_gradients(self, grads_and_vars):
        with forgetting_failures(self.bound), self._forgetting_slots():
            pairs = self._check(as_pairs(grads_and_vars))
            variables = [variable for _, variable in pairs]
            self.carries.give(self.bound, variables)
            self.make_state(variables)
            self.read_hypers()
            with self.backend.all_or_nothing():
                self.bound.take_step(pairs, checked=False)

    def _check(self, pairs):
        """Returns the pairs that have a gradient. Raises all errors of a call before it creates slots."""
        for _, variable in pairs:
            self.check_variable(variable)
        keys = [self.bound.variable_key(variable) for _, variable in pairs]
        if len(set(keys)) < len(keys):
            raise GradientError("one array is given twice in one call; add its gradients up")
        pairs = with_gradients(check_grads(self.bound, pairs))
        self.bound.check_first([variable for _, variable in pairs])
        check_repeat(self.bound, [variable for _, variable in pairs])
        return pairs

    @contextlib.contextmanager
    def _forgetting_slots(self):
        keys = set(self.slots)
        try:
            yield
        except BaseException:
            for key in set(self.slots) - keys:
                del self.slots[key]
            raise


ArraysTarget = ArraysAdapter  # its name in older pickles
