"""`check_definition` finds what authors get wrong, and names the line. Each rule here has one mistake."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

import everstep
from everstep.errors import CheckError, DefinitionError
from everstep.testing import check_definition
from runs import numpy_cells

HERE = r" \(.*test_planted.py, line \d+\)"


class Decaying(everstep.Definition):
    """SGD with momentum and decay by the rate; a right rule."""

    learning_rate = everstep.hyper(0.1)
    beta = everstep.hyper(0.5)
    rate_of_decay = everstep.hyper(0.01)
    m = everstep.slot()
    max_replay_steps = 0

    def update(self, ops, grad, var, slots, hyper, t):
        m = hyper.beta * slots.m + grad
        return hyper.learning_rate * (m + self.decay(hyper) * var), {"m": m}

    def decay(self, hyper):
        return 0.0


class Missed(Decaying):
    """Does what missed updates would: m decays, and the variable loses the sum of rate times m."""

    def fast_forward(self, ops, var, slots, hyper, steps):
        moved = steps.sum(hyper.learning_rate * steps.product(hyper.beta), hyper.beta)
        return slots.m * moved, {"m": slots.m * steps.product(hyper.beta)}


class RateOfTheEnd(Decaying):
    """At a constant rate it is right."""

    def fast_forward(self, ops, var, slots, hyper, steps):
        moved = steps.sum(steps.product(hyper.beta), hyper.beta)
        return hyper.learning_rate * slots.m * moved, {"m": slots.m * steps.product(hyper.beta)}


class RateOfTheClass(Decaying):
    def fast_forward(self, ops, var, slots, hyper, steps):
        moved = steps.sum(steps.product(hyper.beta), hyper.beta)
        return 0.1 * slots.m * moved, {"m": slots.m * steps.product(hyper.beta)}


class SlotForgotten(Decaying):
    def fast_forward(self, ops, var, slots, hyper, steps):
        moved = steps.sum(hyper.learning_rate * steps.product(hyper.beta), hyper.beta)
        return slots.m * moved, {"m": slots.m}


class OneStepAlone(Decaying):
    def fast_forward(self, ops, var, slots, hyper, steps):
        return hyper.learning_rate * hyper.beta * slots.m, {"m": hyper.beta * slots.m}


class WideIsUnfinished(Decaying):
    """Only wide variables go that way."""

    is_wide = everstep.option(False)

    def specialize(self, variable):
        return self.replace(is_wide=max(variable.shape or (1,)) >= 128)

    def update(self, ops, grad, var, slots, hyper, t):
        if self.is_wide:
            return hyper.learning_rate * ops.sqroot(grad), {"m": slots.m}
        return hyper.learning_rate * grad, {"m": slots.m}


class NormIsUnfinished(Decaying):
    """Only variables called so go that way."""

    is_norm = everstep.option(False)

    def specialize(self, variable):
        return self.replace(is_norm="LayerNorm" in variable.name)

    def update(self, ops, grad, var, slots, hyper, t):
        if self.is_norm:
            return hyper.learning_rate * grad * hyper.gamma, {"m": slots.m}
        return hyper.learning_rate * grad, {"m": slots.m}


class AxesOfMatrices(Decaying):
    """It takes the norm along axis 3 of convolutions alone, and that of rows of others."""

    locality = "variable"

    def update(self, ops, grad, var, slots, hyper, t):
        size = ops.sqrt(ops.sum(grad * grad, (0, 1, 4), True)) if grad.ndim == 4 else 1.0
        return hyper.learning_rate * grad / size, {"m": slots.m}


class WholeMatrix(Decaying):
    """Half precision cannot hold so large a sum."""

    locality = "variable"

    def update(self, ops, grad, var, slots, hyper, t):
        scale = ops.sum(ops.ones_like(grad) * 1e35)
        return hyper.learning_rate * grad * (scale / scale), {"m": slots.m}


class StartsElsewhere(Decaying):
    """A start that the author drew himself, anew for each run."""

    drawn = [0.0]

    def update(self, ops, grad, var, slots, hyper, t):
        self.drawn[0] += 1e-3
        return hyper.learning_rate * (grad + self.drawn[0]), {"m": slots.m}


class RandomStart(Decaying):
    """A right rule: its slot starts at random."""

    m = everstep.slot(init=everstep.random_normal(seed=3))
    max_replay_steps = 200


class ByPlace(Decaying):
    """It knows its variables by the order in which one API gives them."""

    is_first = everstep.option(False)

    def specialize(self, variable):
        return self.replace(is_first=variable.native is not None and variable.index == 0)

    def update(self, ops, grad, var, slots, hyper, t):
        return hyper.learning_rate * (2.0 if self.is_first else 1.0) * grad, {"m": slots.m}


PLANTED = [
    (RateOfTheEnd, "fast_forward", "fast forward: .e-.., the variable .*" + HERE),
    (RateOfTheClass, "fast_forward", "fast forward: .e-.., the variable .*" + HERE),
    (SlotForgotten, "fast_forward", "fast forward: .*" + HERE),
    (OneStepAlone, "fast_forward", "fast forward: .*" + HERE),
    (WideIsUnfinished, "model", "model: UnknownOpError: ops has no 'sqroot'.*" + HERE),
    (NormIsUnfinished, "model", "model: RuleError: NormIsUnfinished has no 'gamma'.*" + HERE),
    (AxesOfMatrices, "model", "model: .*axis.*" + HERE),
    (WholeMatrix, "model", "model: inf from step 1 on, the variable .*" + HERE),
    (StartsElsewhere, "gradients", "update returns something else each time it runs.*" + HERE),
    (ByPlace, "gradients", "dense: .*, the variable bias; rounding is at most 1e-05" + HERE),
]


@numpy_cells
@pytest.mark.parametrize("rule, check, message", PLANTED, ids=[each[0].__name__ for each in PLANTED])
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_planted_mistakes_are_found(rule, check, message):
    with pytest.raises(CheckError, match=message):
        check_definition(rule, checks=[check], targets=["arrays"], echo=None)


@numpy_cells
def test_right_rules_pass():
    for rule in (Missed, RandomStart):
        report = check_definition(rule, targets=["arrays"], echo=None)
        assert not report.failures and {"gradients", "model"} <= {result.check for result in report.results}
        assert ("fast_forward" in {result.check for result in report.results}) == (rule is Missed)


@numpy_cells
def test_a_constant_rate_does_not_show_the_rate_of_the_end():
    """What was checked before: rows that miss few steps at a constant rate."""
    check_definition(RateOfTheEnd, checks=["catch_up"], targets=["arrays"], echo=None)


@numpy_cells
def test_bounds_of_ones_own():
    rough = np.float32(1 + 3e-5)

    class Rough(Decaying):
        def update(self, ops, grad, var, slots, hyper, t):
            wide = ops.cast(grad, "float32") if hasattr(grad, "dtype") and grad.dtype == "float32" else grad / rough
            return hyper.learning_rate * wide, {"m": slots.m}

    with pytest.raises(CheckError, match="3e-05 .*; rounding is at most 1e-05"):
        check_definition(Rough, checks=["gradients"], targets=["arrays"], echo=None)
    check_definition(Rough, checks=["gradients"], targets=["arrays"], echo=None, bounds={"float32": 1e-4})
    for wrong in ({"float": 1e-4}, {"float32": 2.0}, {"float32": "1e-4"}):
        with pytest.raises(DefinitionError, match="bounds are numbers between 0 and 1 for float16, float32, float64"):
            check_definition(Rough, targets=["arrays"], bounds=wrong)
