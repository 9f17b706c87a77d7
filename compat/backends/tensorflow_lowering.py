"""TensorFlow's verbs for compat/engine/lowering.py: fused operations, compiled functions, parts of variables."""
from __future__ import absolute_import, division, print_function

import numpy as np
from packaging.version import Version

from everstep.compat.backends.base import Backend

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments


class TensorFlowLowering(Backend):
    """The verbs of TensorFlowBackend for lowering strategies."""

    tf = _version = _xla = _shares_compiled = use_locking = None  # type: Any  # TensorFlowBackend sets them

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
        if function is None or any(self.is_ref(slot) != ref for slot in slots):
            return None

        def run(variable, arguments):
            if not ref:
                arguments = {name: getattr(value, "handle", value) for name, value in arguments.items()}
                variable = variable.handle
            return function(var=variable, use_locking=self.use_locking is not False, **arguments)

        return run

    def cannot_compile(self, variable, forced):
        if self.is_ref(variable):
            return "not compiled: ref variables have no compiled functions"
        if not self.without_strategy():
            return "not compiled: under a tf.distribute strategy"
        if self.eager and not self._shares_compiled:
            return "not compiled: TensorFlow before 2.5 compiles in graphs only"
        if not forced and not self._shares_compiled:
            return "not compiled: TensorFlow before 2.5 compiles only if forced, each variable by itself"
        return "not compiled: in a session only if forced" if self.in_session() and not forced else ""

    def compile(self, function):
        if self._shares_compiled:
            return self.tf.function(function, jit_compile=True, autograph=False)

        def run(variable, slots, grad, outside):
            # Compiled operations lose some control dependencies; these copies keep them.
            inputs = [self.tf.identity(value) for value in [grad] + outside]
            done = self._xla.compile(lambda grad, *outside: function(variable, slots, grad, outside), inputs)
            return done[0] if isinstance(done, (list, tuple)) else done

        return run

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
