"""The rules of variables whose gradients are their new values, such as Keras's scales of float8 training."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract.declarations import slot
from everstep.optimizers.contract.definition import Definition, assign
from everstep.optimizers.contract.verbs import defines


class Overwritten(Definition):
    """Writes the gradient into the variable, at each update."""

    def update(self, ops, grad, var, slots, hyper, t):
        return assign(grad), {}


class OverwrittenByMaximum(Definition):
    """Writes the maximum of a window's gradients and 0, as `gradient_accumulation_steps` of Keras 3 does."""

    prefix = "overwrite"
    maximum = slot()

    def collect(self, ops, grad, slots, hyper):
        return {"maximum": ops.maximum(slots.maximum, grad)}

    def update(self, ops, grad, var, slots, hyper, t):
        return assign(slots.maximum), {"maximum": ops.zeros_like(slots.maximum)}


def overwritten(definition):
    """Returns the rule of such a variable in an optimizer of a definition."""
    return OverwrittenByMaximum() if defines(definition, "collect") else Overwritten()


def is_overwritten(variable):
    """Returns whether a variable takes its gradient as its value: Keras 3 marks it so, and no rule updates it."""
    return bool(getattr(variable, "overwrite_with_gradient", False))


def has_stock_slots(optimizer, variable):
    """Returns whether an optimizer of stock Keras makes slots of a variable; before 3.10 of overwritten ones as well.

    Keras 3.10 has add_optimizer_variables, which leaves them out:
    https://github.com/keras-team/keras/blob/v3.10.0/keras/src/optimizers/base_optimizer.py
    """
    return not is_overwritten(variable) or not hasattr(optimizer, "add_optimizer_variables")
