"""A fused kernel inside of wrappers: the numbers of the rule, and a kernel under every stack that people use."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import pytest

import everstep
import harness
from everstep.optimizers import SGD, Adagrad, Adam, AdamW, Ftrl, Nadam, RMSprop
from test_lowering import FORBIDDEN, WAYS, apart, cases, name_of, run

pytestmark = [pytest.mark.shared, pytest.mark.skipif(not WAYS, reason="no TensorFlow, and so no fused kernels")]


def adam(**settings):
    return Adam(everstep.CosineDecay(0.1, 30), epsilon=1e-3, **settings)


def bert(inner, **settings):
    """BERT's stack: a clipped gradient, Adam, weight decay of all but some variables."""
    return everstep.decoupled_weight_decay(everstep.clip(inner, global_norm=0.5), 0.3, exclude=["bias"], **settings)


STACKS = OrderedDict([
    ("clip", everstep.clip(adam(), global_norm=0.5)),
    ("clip each", everstep.clip(Nadam(0.1, epsilon=1e-3, momentum_schedule=False), norm=2.0, value=1.0)),
    ("decay", everstep.decoupled_weight_decay(adam(), 0.3)),
    ("decay beside", everstep.decoupled_weight_decay(SGD(0.1, momentum=0.9), 0.3, beside=True)),
    ("decay of what reads it", everstep.decoupled_weight_decay(Ftrl(0.1, l1=0.01, l2=0.1), 0.3)),
    ("decay of l1", everstep.decoupled_weight_decay(adam(amsgrad=True), 0.3, times_rate=False, l1=0.01)),
    ("two decays", everstep.decoupled_weight_decay(AdamW(0.1, epsilon=1e-3, weight_decay=0.2), 0.3)),
    ("average", everstep.moving_average(adam(), 0.9)),
    ("average overwrites", everstep.moving_average(SGD(0.1, momentum=0.9, nesterov=True), 0.9, overwrite_every=3)),
    ("average of decay", everstep.moving_average(everstep.decoupled_weight_decay(adam(), 0.3), 0.9)),
    ("decay of average", everstep.decoupled_weight_decay(everstep.moving_average(adam(), 0.9), 0.3)),
    ("lookahead", everstep.lookahead(RMSprop(0.1, momentum=0.9, epsilon=1e-3), 3)),
    ("average of lookahead", everstep.moving_average(everstep.lookahead(adam(), 3), 0.9)),
    ("multipliers", everstep.learning_rate_multipliers(adam(), [("bias", 0.5), ("dense", 2.0)])),
    ("rate decay", everstep.rate_decay(adam(), 0.1)),
    ("multipliers of decay", everstep.learning_rate_multipliers(bert(adam()), {"bias": 0.5}, otherwise=0.7)),
    ("BERT", bert(adam())),
    ("centralize", everstep.centralize(Adagrad(0.1))),
    ("noise", everstep.gradient_noise(SGD(0.1, momentum=0.9), 0.1)),
    ("loss scale", everstep.loss_scale(SGD(0.1, momentum=0.9), 2.0)),
    ("accumulate", everstep.accumulate(bert(adam()), 2)),
    ("average of accumulate", everstep.moving_average(everstep.accumulate(adam(), 3), 0.9)),
    ("stochastic average", everstep.stochastic_weight_averaging(adam(), 4, 3)),
    ("partition", everstep.partition({"bias": SGD(0.1, momentum=0.9)}, default=bert(adam()))),
])


@pytest.mark.parametrize("name, way", cases(list(STACKS), 4), ids=name_of)
def test_a_wrapper_keeps_the_kernel(name, way):
    definition = STACKS[name]
    actual, plan = run(way, definition, None, steps=12)
    expected, plain = run(way, definition, FORBIDDEN, steps=12)
    assert {each.strategy for each in plain.values()} == {"plain"}
    for planned in (plan["dense"], plan["bias"]):
        missing = "this TensorFlow has no" in planned.why or "a branch here cannot" in planned.why
        assert planned.strategy == "kernel" or missing, planned
    assert apart(actual, expected) <= 2e-6


@pytest.mark.parametrize("name, way", cases(["BERT", "average", "partition"]), ids=name_of)
def test_on_rows(name, way):
    part = "default" if name == "partition" else "inner"
    definition = STACKS[name].replace(**{part: SGD(0.1, momentum=0.9, sparse="rows")})
    actual, plan = run(way, definition, None, steps=12)
    assert plan["duplicates"].strategy == "kernel" or "this TensorFlow has no" in plan["duplicates"].why
    assert apart(actual, run(way, definition, FORBIDDEN, steps=12)[0]) <= 2e-6


class Sign(everstep.Wrapper):
    """Uses the change itself, which no kernel gives."""

    prefix = "sign"

    def update(self, ops, grad, var, slots, hyper, t):
        change, new = super(Sign, self).update(ops, grad, var, slots, hyper, t)
        return 0.1 * ops.sign(change), new


class OtherVariable(everstep.Wrapper):
    """Shows the rule another variable."""

    prefix = "other"

    def update(self, ops, grad, var, slots, hyper, t):
        return super(OtherVariable, self).update(ops, grad, 2 * var, slots, hyper, t)


class NewSlots(everstep.Wrapper):
    """Changes a slot that the rule returned."""

    prefix = "other"

    def update(self, ops, grad, var, slots, hyper, t):
        change, new = super(NewSlots, self).update(ops, grad, var, slots, hyper, t)
        return change, {"inner": {name: 0.5 * value for name, value in new["inner"].items()}}


class Direct(everstep.Wrapper):
    """Calls its inner rule's update itself."""

    prefix = "direct"

    def update(self, ops, grad, var, slots, hyper, t):
        change, new = self.inner.update(ops, grad, var, slots.inner, hyper.inner, t)
        return change, {"inner": new}


class ByVariable(everstep.Wrapper):
    """Computes the rate from the old values, as layer-wise rules do, and keeps what they were."""

    prefix = "by_variable"
    locality = "variable"
    before = everstep.slot()

    def update(self, ops, grad, var, slots, hyper, t):
        trust = 1 / (1 + ops.mean(ops.abs(var)))
        change, new = super(ByVariable, self).update(ops, grad, var, slots, hyper.scaled("learning_rate", trust), t)
        return change, dict(new, before=0.5 * slots.before + (var - change) - 0.1 * var + slots.inner.m)


OTHERS = [(Sign, "needs the change itself"), (OtherVariable, "another variable"), (NewSlots, "changes the slots"),
          (Direct, "calls its inner rule's update itself"), (ByVariable, None)]


@pytest.mark.parametrize("wrapper, why, way", [pair[0] + pair[1:] for pair in harness.rotate(OTHERS, WAYS)],
                         ids=lambda value: getattr(value, "__name__", None) or name_of(value))
def test_wrappers_of_other_people(wrapper, why, way):
    actual, plan = run(way, wrapper(adam()), None, steps=5)
    expected, _ = run(way, wrapper(adam()), FORBIDDEN, steps=5)
    assert plan["dense"].strategy == ("plain" if why else "kernel") or "in_place" in plan["dense"].strategy
    assert (why or "") in plan["dense"].why
    assert apart(actual, expected) <= 2e-6


@pytest.mark.parametrize("way", WAYS, ids=name_of)
def test_large_variables_are_compiled_instead(way, monkeypatch):
    """Where compiling costs no more than a kernel, one pass over memory replaces the passes of wrappers."""
    harness.shrink(monkeypatch, SMALL=4, COMPILES_INSTEAD=4)
    actual, plan = run(way, STACKS["average of decay"], None, steps=5)
    alone = run(way, adam(), None, steps=1)[1]["dense"]
    assert plan["dense"].strategy in ("compiled", "kernel") and alone.strategy == "kernel"
    assert apart(actual, run(way, STACKS["average of decay"], FORBIDDEN, steps=5)[0]) <= 2e-6
