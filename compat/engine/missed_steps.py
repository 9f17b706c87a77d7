"""`MissedSteps`, the argument `steps` of `fast_forward`, and what computes values that are made of sums over them."""
from __future__ import absolute_import, division, print_function

from everstep.compat.engine.curves import quotient_curve
from everstep.compat.rules import expressions
from everstep.compat.rules.expressions import Value
from everstep.compat.rules.interpreter import Interpreter

WIDE = "float64"  # the dtype of the table of sums


class MissedSteps(Value):
    """The number of missed updates, with sums over them: the argument `steps` of `fast_forward`, which describes it."""

    __slots__ = ("columns", "decays", "pace")

    def __init__(self, columns, decays=(), pace=1):
        super(MissedSteps, self).__init__(columns.tracer, None, (), {}, columns.dtype, False)
        self.columns, self.pace = columns, pace
        self.decays = decays  # ((share, whether after the term is added), ...)

    def product(self, factor):
        return self.columns.product(factor)

    def decay(self, share):
        share = share * self.pace
        if not any(after for _, after in self.decays):
            return self.columns.lost(share)
        self.rest_first()
        return self.columns.slow_sum(share, self.decays, share)

    def sum(self, term, fade=None):
        if self.columns.has_products(term):
            return self.columns.fast_sum([term], None, self.decays, self.columns.number(fade))[0]
        return self.columns.slow_sum(term, self.decays)

    def quotient(self, weight, left, root, epsilon, fade, shrink, scale=1.0):
        ops, columns, fade = self.tracer, self.columns, self.columns.number(fade)
        curve = quotient_curve(fade, columns.number(shrink))
        if curve is None:  # once the row rests, the sum is negligible
            self.rest_first()
            return 0.0
        if isinstance(scale, Value):
            first = columns.first_value(scale)
            scale, epsilon = scale / first, epsilon * first
        coefficients = columns.fast_sum([weight, left, scale], curve, self.decays, fade)
        divisor = ops.maximum(root + epsilon, 1e-30)
        of_epsilon, total = epsilon / divisor, coefficients[-1]
        for coefficient in coefficients[-2::-1]:
            total = total * of_epsilon + coefficient
        return total / divisor

    def decayed(self, share, after=False):
        return MissedSteps(self.columns, self.decays + ((share, after),), self.pace)

    def slowed(self, pace):
        return MissedSteps(self.columns, self.decays, self.pace * pace)

    def rest_first(self):
        self.columns.needs_rest = True

    @property
    def rests_first(self):
        return self.columns.needs_rest


def leaves_of(value):
    """Returns the leaves that a value depends on. A product or sum is a leaf."""
    return [leaf_of(leaf) for leaf in expressions.leaves_of(value)]


def leaf_of(value):
    """Returns the leaf that stands for a value in a table: of every `MissedSteps` the number of missed updates."""
    return value.columns.count if isinstance(value, MissedSteps) else value


class TableInterpreter(Interpreter):
    """Computes values in the table's dtype where one that they are made of has it: values of a table and of a step.

    Args:
        natives: {value: native value} of the leaves; it gets all others.
        dtype: the compute dtype.
    """

    def __init__(self, backend, natives, dtype):
        super(TableInterpreter, self).__init__(backend, None)
        self.natives, self.dtype = natives, dtype

    def lower(self, value):
        return super(TableInterpreter, self).lower(leaf_of(value))

    def operate(self, value, natives):
        dtypes = [self.backend.dtype(native) for native in natives]
        if value.op == "cast" and dtypes[0] == WIDE:
            return natives[0]
        if self.dtype != WIDE and WIDE in dtypes:
            pairs = zip(natives, dtypes)
            natives = [self.backend.cast(each, WIDE) if dtype == self.dtype else each for each, dtype in pairs]
        return super(TableInterpreter, self).operate(value, natives)
