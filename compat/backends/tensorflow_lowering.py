"""TensorFlow's verbs for compat/engine/lowering.py: fused operations, compiled functions, parts of variables."""
from __future__ import absolute_import, division, print_function

import copy
import itertools

import numpy as np
from packaging.version import Version

from everstep.compat.backends.base import Backend

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments


class TensorFlowLowering(Backend):
    """The verbs of TensorFlowBackend for lowering strategies."""

    tf = _v2 = _version = _xla = _shares_compiled = use_locking = None  # type: Any  # TensorFlowBackend sets them

    def lowers(self, strategy):
        return strategy != "compiled" or self._shares_compiled or self._xla is not None

    def is_since(self, version):
        return self._version >= Version(version)

    def in_session(self):
        return not self.eager and type(self.tf.get_default_graph()) is self.tf.Graph

    def is_here(self, variable):
        return not self.in_session() or not variable.device

    def device(self, variable):
        return variable.device

    def shares_variables(self):
        return self.in_session() and bool(self.use_locking)

    def operation(self, name, ref, by_rows):
        return getattr(_training_ops(), ("" if ref else "resource_") + ("sparse_" if by_rows else "") + name, None)

    def kernel(self, operation, variable, slots, by_rows):
        ref = self.is_ref(variable)
        function = self.operation(operation, ref, by_rows)
        if function is None or (not ref) in [self.is_ref(slot) for slot in slots]:
            return None
        return None if self._is_for_processors(function.__name__, variable) else self._fused(function)

    def _fused(self, function):
        """Returns a function of (variable, {argument: native value}) that calls a fused operation."""
        def run(variable, arguments):
            if not self.is_ref(variable):
                arguments = {name: getattr(value, "handle", value) for name, value in arguments.items()}
                variable = variable.handle
            return function(var=variable, use_locking=self.use_locking is not False, **arguments)

        return run

    def _is_for_processors(self, name, variable):
        """Returns whether an operation has no kernel for GPUs, and the variable may lie on one: a step would fail."""
        if not self.is_since("1.14") or "GPU" not in self._devices() or "CPU:" in (variable.device or ""):
            return False
        from tensorflow.python.framework import kernels

        names = {each.lower(): each for each in dir(self.tf.raw_ops)}
        found = kernels.get_registered_kernels_for_op(names[name.replace("_", "")]).kernel
        return not {"GPU", "DEFAULT"}.intersection(kernel.device_type for kernel in found)

    def cannot_compile(self, variable, forced, stock_compiles):
        if not self.without_strategy():
            return "not compiled: under a tf.distribute strategy"
        if not forced and not stock_compiles and self._devices() - {"CPU", "XLA_CPU"}:
            return "not compiled: there are other devices than processors"
        if self.eager and not self._shares_compiled:
            return "not compiled: TensorFlow before 2.5 compiles in graphs only"
        if not self.in_session():
            if self.is_ref(variable):
                return "not compiled: a ref variable in a function"
            if not forced and not self._shares_compiled:
                return "not compiled: TensorFlow before 2.5 compiles functions only if forced"
            # Nothing waits for the writes there, so an eager step of tf.train would change nothing.
            return "" if self.is_since("2.1") else "not compiled: TensorFlow before 2.1 loses its writes in functions"
        return "" if forced else self._cannot_compile_in_session(variable)

    def _cannot_compile_in_session(self, variable):
        if self.use_locking:
            return "not compiled: it takes no locks, which use_locking=True asks for"
        if variable.device:
            return "not compiled: the variable has a device"
        if self.tf.get_default_graph()._get_control_flow_context() is not None:
            return "not compiled: in a loop or branch of a session"
        has_xla = getattr(self.tf.test, "is_built_with_xla", lambda: "XLA_CPU" in self._devices())  # before TF 2.2
        return "" if has_xla() else "not compiled: this TensorFlow has no XLA"

    def _devices(self):
        config = self.tf.config
        config = config if hasattr(config, "list_physical_devices") else config.experimental
        return {each.device_type for each in config.list_physical_devices()}

    def compile(self, function, by_values):
        if self._shares_compiled:
            return self.tf.function(function, jit_compile=True, autograph=False)
        if by_values:
            return lambda natives: self._compiled_here(lambda *natives: function(natives), natives)
        return lambda variable, slots, grad, outside: self._compiled_here(
            lambda grad, *outside: function(variable, slots, grad, outside), [grad] + outside)[0]

    def _compiled_here(self, function, natives):
        """Returns the results of a function that is compiled for this place of a graph."""
        # Compiled operations lose some control dependencies; these copies keep them.
        done = self._xla.compile(function, [self.tf.identity(value) for value in natives])
        return done if isinstance(done, (list, tuple)) else [done]

    def for_xla(self):
        if self.is_since("2.1") and not self.is_since("2.21"):
            return self
        # There XLA adds one element after another: sums of a million equal numbers are off by 3e-4 to 6e-4.
        backend = copy.copy(self)
        backend.ops = dict(self.ops, **{name: self._in_float64(self.ops[name]) for name in ("sum", "mean")})
        return backend

    def _in_float64(self, function):
        return lambda value, **options: self.tf.cast(function(self.tf.cast(value, "float64"), **options), value.dtype)

    def sum_of_squares(self, value):
        return 2 * self.tf.nn.l2_loss(value)  # makes no squares in memory

    def keeps_functions(self):
        tf_2 = self._v2 if hasattr(self._v2, "function") else None  # from 1.14 on
        run_eagerly = getattr(getattr(tf_2, "config", None), "functions_run_eagerly", lambda: False)
        return bool(tf_2) and self.eager and self.without_strategy() and not run_eagerly()

    def parts(self, grad):
        return (grad.values, grad.indices) if isinstance(grad, self.tf.IndexedSlices) else (self.tensor(grad),)

    def from_parts(self, natives, variable):
        return natives[0] if len(natives) == 1 else self.tf.IndexedSlices(natives[0], natives[1], variable.shape)

    def function(self, function, parts, shapes):
        specs, counts = [], [len(natives) for natives in parts]
        for natives, shape in zip(parts, shapes):
            for native in natives:
                shape = [None] + native.shape.as_list()[1:] if len(natives) > 1 else shape
                specs.append(self._v2.TensorSpec(shape, native.dtype))

        def run(*flat):
            natives = iter(flat)
            function([tuple(itertools.islice(natives, count)) for count in counts])
            return self.constant(True, "bool")

        concrete = self._v2.function(run, input_signature=specs, autograph=False).get_concrete_function()
        return lambda parts: concrete(*[native for natives in parts for native in natives])

    def part(self, value, place):
        value = self.read(value) if hasattr(value, "read_value") else value
        return self.tf.strided_slice(value, place[:1], place[1:])

    def write_part(self, variable, value, place):
        # For ref variables only: a resource variable written like this is copied whole at every later read.
        return variable[place[0] : place[1]].assign(self.cast(value, self.dtype(variable)))

    def concat_flat(self, values):
        flat = self.tf.constant([-1])
        return self.tf.concat([v if len(self.shape(v)) == 1 else self.tf.reshape(v, flat) for v in values], 0)

    def split(self, value, shapes):
        parts = self.tf.split(value, [int(np.prod(shape)) for shape in shapes])
        constants = {shape: self.tf.constant(shape, "int32") for shape in shapes if len(shape) != 1}
        return [self.tf.reshape(p, constants[s]) if s in constants else p for p, s in zip(parts, shapes)]


def _training_ops():
    """Returns TensorFlow's module of fused training operations."""
    try:
        from tensorflow.python.ops import gen_training_ops
    except ImportError:  # before TF 2.9; when that is the minimum, this can go
        from tensorflow.python.training import gen_training_ops
    return gen_training_ops
