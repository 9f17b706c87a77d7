"""Float32 copies of 16-bit variables."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import SIXTEEN_BITS, VARIABLE, Wrapper, assign, option, slot


class MasterCopies(Wrapper):
    """Keeps a float32 copy of each 16-bit variable: `everstep.master_copies`.

    Micikevicius et al. 2018, https://arxiv.org/abs/1710.03740, section 3.1.

    Variables of float16 and bfloat16 get a float32 copy that `inner` reads and updates; the variable is the rounded
    copy. So updates smaller than half of the variable's last digit (1 / 4096 of it in float16, 1 / 512 in bfloat16) add
    up instead of being lost. Other variables get no copy, and `inner` updates them directly.

    Other changes of the variable (a weight decay around this wrapper or of the base class, a constraint, an assignment)
    change the copy by the same amount. Slots of 16-bit variables are float32 with and without this wrapper.

    | stock                                         | options      |
    |-----------------------------------------------|--------------|
    | multi_precision of MXNet, master of Apex O2   | the defaults |

    Advice:
        Use it if variables themselves are 16-bit. The mixed-precision policies of Keras keep variables in float32 and
        do not need it (https://www.tensorflow.org/guide/mixed_precision). With float16, put loss_scale around it.

    Args:
        inner: The definition that updates.
        stored: Set by everstep: the dtype of a variable that has a copy, else "". Keyword only.

    >>> import numpy, everstep
    >>> weights = numpy.ones(1, "float16")
    >>> optimizer = everstep.master_copies(everstep.optimizers.SGD(2.0**-13)).bind(numpy)
    >>> for _ in range(8):
    ...     optimizer.apply_gradients([(numpy.ones(1, "float16"), weights)])
    >>> float(1 - weights[0]) * 2**10, float(1 - optimizer.get_slot(weights, "master/value")[0]) * 2**10
    (1.0, 1.0)
    """

    prefix = "master"
    forwarded_verbs = frozenset(["measure", "fast_forward"])
    keyword_only = Wrapper.keyword_only + ("stored",)
    stored = option("")  # the variable's dtype if it has a copy
    value = slot(init=VARIABLE, when="stored")

    @property
    def dry_run(self):  # type: ignore[override]
        return not self.stored and self.inner.dry_run

    def specialize(self, variable):
        rule = super(MasterCopies, self).specialize(variable)
        return rule.replace(stored=variable.dtype) if variable.dtype in SIXTEEN_BITS else rule

    def _default(self, name, values):
        return "" if name == "stored" else super(MasterCopies, self)._default(name, values)

    def measure(self, ops, grad, var, slots, hyper):
        return super(MasterCopies, self).measure(ops, grad, self._copy(ops, var, slots), slots, hyper)

    def update(self, ops, grad, var, slots, hyper, t):
        copy = self._copy(ops, var, slots)
        change, new = super(MasterCopies, self).update(ops, grad, copy, slots, hyper, t)
        if not self.stored:
            return change, new
        value = change.value if isinstance(change, assign) else copy - change
        return assign(value), dict(new, value=value)

    def fast_forward(self, ops, var, slots, hyper, steps):
        copy = self._copy(ops, var, slots)
        change, new = super(MasterCopies, self).fast_forward(ops, copy, slots, hyper, steps)
        return (change + var - copy, dict(new, value=copy - change)) if self.stored else (change, new)

    def _copy(self, ops, var, slots):
        if not self.stored:
            return var
        rounded = ops.cast(ops.cast(slots.value, self.stored), var.dtype)
        return slots.value + (var - rounded)


def master_copies(definition):
    """Keeps float32 copies of 16-bit variables, so that small updates add up: `MasterCopies(definition)`.

    Args:
        definition: The definition that updates.

    Returns:
        An `everstep.optimizers.MasterCopies`.

    Raises:
        HyperTypeError: `definition` is no everstep definition.
    """
    return MasterCopies(definition)
