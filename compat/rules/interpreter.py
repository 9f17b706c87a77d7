"""Computes expressions on a backend: the one place where an operation of a rule becomes one of a framework."""
from __future__ import absolute_import, division, print_function

import contextlib

import numpy as np

from everstep.compat.rules.expressions import step_wide_parts
from everstep.errors import RuleError


class Interpreter(object):
    """Computes values on what their leaves stand for, each value once.

    Args:
        backend: the backend.
        read: returns the native value of a leaf, by its name. A leaf is read when a value first needs it.
        shared: the interpreter of step-wide values. Default: this one.

    Attributes:
        natives: {value: native value} of those that are computed.
    """

    def __init__(self, backend, read, shared=None):
        self.backend, self.read, self.shared = backend, read, self if shared is None else shared
        self.natives = {}

    def lower(self, value):
        """Returns the native value of a value."""
        known = self.shared if value.step_wide else self
        if value not in known.natives:
            known.natives[value] = known.native_of(value, self.lower)
        return known.natives[value]

    def native_of(self, value, lower):
        """Returns the native value of a value that is not computed yet. `lower` gives those that it is made of."""
        backend = self.backend
        if value.leaf is not None:
            return self.read(value.leaf)
        if value.op == "constant":
            return backend.constant(**value.options)
        if value.exact:  # perhaps the read of a ref variable, which needs the backend's own cast
            return backend.cast(lower(value.args[0]), value.dtype)
        if value.op == "sum" and not value.options:
            base = squared(value.args[0])
            if base is not None:
                return backend.sum_of_squares(lower(base))
        if value.op == "values_if":
            return self._values_if(value.args, lower)
        return self.operate(value, [lower(arg) for arg in value.args])

    def _values_if(self, args, lower):
        """Returns the native values of `values_if`, in a branch: the new ones are computed only where it is taken.

        What the branch reads, and branches that it needs, come before it: tensors of a branch do not exist outside, and
        writes wait for reads.
        """
        count = len(args) // 2
        due, new, old = lower(args[0]), args[1 : 1 + count], [lower(value) for value in args[1 + count :]]
        for value in sorted(step_wide_parts(new, (None, "values_if")), key=lambda value: str(value.leaf)):
            lower(value)

        taken = []

        def yes():
            taken.append(True)
            with self.forgetting():
                return [self.backend.cast(self.lower(value), value.dtype) for value in new]

        def no():
            taken.append(False)
            return old

        values = self.backend.values_if(due, yes, no)
        if len(taken) == 1:  # in eager code, so that the next variable need not ask the device again
            self.shared.natives[args[0]] = taken[0]
        return values

    def operate(self, value, natives):
        """Returns the result of a value's op on the native values that it takes."""
        return computed(self.backend, value.op, natives, value.options)

    @contextlib.contextmanager
    def forgetting(self):
        """Returns a context that forgets what is computed in it: tensors of a branch or loop do not exist outside."""
        before = dict(self.natives)
        try:
            yield
        finally:
            self.natives = before

    def hoist(self, values):
        """Computes the step-wide parts of values now, outside of the branches that use them."""
        for value in step_wide_parts(values):
            self.lower(value)


def squared(value):
    """Returns what a value is the square of, or None."""
    product = value.op == "multiply" and value.args[0] is value.args[1]
    return value.args[0] if product or value.op == "square" else None


def computed(backend, op, natives, options):
    """Returns the result of an op on native values.

    Raises:
        RuleError: the op does not take values of these shapes.
    """
    if op in ("item", "chosen"):
        return natives[0][options["place"]]
    try:
        return backend.ops[op](*natives, **options)
    except (IndexError, TypeError, ValueError, np.linalg.LinAlgError) as error:
        raise RuleError(
            "ops.{} cannot take values of shapes {}{}: {}".format(
                op,
                " and ".join(str(backend.shape(native)) for native in natives),
                " with {}".format(options) if options else "",
                error,
            )
        )
