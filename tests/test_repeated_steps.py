"""Steps on torch that repeat the last one: which do, and that whatever changed since is obeyed."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

import everstep
import test_grouped as grouped
from everstep.compat.engine.step import Step
from everstep.optimizers import SGD, Adam, AdamW, Lion, RMSprop
from everstep.testing import oracle

if grouped.BACKEND != "torch":
    pytest.skip("about torch", allow_module_level=True)

import torch  # noqa: E402

keras, PLAIN = grouped.keras, grouped.PLAIN
SHAPES = {"bias": (3,), "kernel": (4, 3), "last": ()}


@pytest.fixture(autouse=True)
def _fresh_names():
    keras.utils.clear_session()


class Loop(object):
    """An optimizer that trains variables by gradients of a quadratic loss."""

    def __init__(self, definition, lowering=None, **native):
        random = np.random.RandomState(0)
        self.variables = [keras.Variable(random.normal(4, 0.5, shape).astype("float32"), name=name)
                          for name, shape in sorted(SHAPES.items())]
        self.optimizer, self.seen = definition.bind(keras, lowering=lowering, **native), 0
        self.optimizer.build(self.variables)

    def grads(self):
        self.seen += 1
        return [variable.value.detach() * 0.5 + 0.01 * self.seen for variable in self.variables]

    def steps(self, count):
        for _ in range(count):
            self.optimizer.apply(self.grads(), self.variables)

    def values(self):
        return [grouped.array(variable) for variable in self.variables + list(self.optimizer.variables)]


@pytest.fixture
def full_steps(monkeypatch):
    """Returns a list that gets each step that is run in full."""
    ran, run = [], Step.run
    monkeypatch.setattr(Step, "run", lambda step, count=True: ran.append(step) or run(step, count))
    return ran


class EverySecond(everstep.Wrapper):
    """Leaves out every other step, and measures only where it updates."""

    measures_on_update = True

    def should_update(self, ops, hyper):
        return hyper.pending >= 2


RATE = keras.optimizers.schedules.InverseTimeDecay(0.1, 3, 1.0)
REPEATED = [
    Adam(0.1), AdamW(0.1, weight_decay=0.1), SGD(0.1), SGD(0.1, momentum=0.9, nesterov=True), RMSprop(0.1), Lion(0.1),
    Adam(RATE), Lion(everstep.InverseTimeDecay(0.1, 0.3)), SGD(lambda: 0.25),
    everstep.clip(AdamW(0.1), global_norm=0.5), everstep.accumulate(Adam(0.1), 3),
    everstep.moving_average(everstep.accumulate(SGD(0.1, momentum=0.9), 2)),
    everstep.accumulate(Adam(everstep.InverseTimeDecay(0.1, 0.3)), 2),
    EverySecond(everstep.clip(SGD(0.1), global_norm=0.5)),
]


@pytest.mark.parametrize("definition", REPEATED, ids=grouped.short)
def test_what_is_repeated_equals_each_variable_alone(definition, full_steps):
    loop, alone = Loop(definition), Loop(definition, PLAIN)
    loop.steps(4)
    alone.steps(10)
    del full_steps[:]
    loop.steps(6)
    assert not full_steps
    for ours, other in zip(loop.values(), alone.values()):
        assert oracle.distance(ours, other) <= 4e-6
    assert int(loop.optimizer.iterations) == int(alone.optimizer.iterations)


@pytest.mark.parametrize("definition, start", [
    (everstep.clip(AdamW(0.1), norm=0.5), lambda optimizer: None),
    (everstep.loss_scale(Adam(0.1)), lambda optimizer: optimizer.scale_loss(1.0)),
    (everstep.sharpness_aware(SGD(0.1)), everstep.enable_multistage)],
    ids=["norms of each variable", "steps that are not accepted", "several gradients"])
def test_what_asks_more_is_never_repeated(definition, start, full_steps):
    loop = Loop(definition)
    start(loop.optimizer)
    loop.steps(4)
    assert len(full_steps) == 4


class Shrunk(keras.constraints.Constraint):
    def __call__(self, w):
        return w * 0.9


def _constraint(loop):
    loop.variables[1].constraint = Shrunk()


def _method(loop):
    clip = loop.optimizer._clip_gradients
    loop.optimizer._clip_gradients = lambda grads: [grad / 2 for grad in clip(grads)]


def _hook(loop):
    update = loop.optimizer.update_step
    loop.optimizer.update_step = lambda grad, variable, rate: update(grad * 2, variable, rate)


def _set(name, value):
    return lambda loop: setattr(loop.optimizer, name, value)


def _grads(change):
    """Returns a change that is one step with other gradients."""
    return lambda loop: loop.optimizer.apply(change(loop.grads()), loop.variables)


def _restored(loop):
    state = everstep.capture(loop.optimizer, variables=loop.variables)
    loop.steps(2)
    everstep.restore(loop.optimizer, state, variables=loop.variables)


def _in_a_scope(loop):
    state = [variable.value.detach().clone() for variable in loop.variables]
    slots = [variable.value.detach().clone() for variable in loop.optimizer.variables]
    before = loop.values()
    loop.optimizer.stateless_apply(slots, loop.grads(), state)
    for one, other in zip(loop.values(), before):
        np.testing.assert_array_equal(one, other)


CHANGES = {
    "rate": _set("learning_rate", 0.3), "hyper": _set("beta_1", 0.5), "native schedule": _set("learning_rate", RATE),
    "clipnorm": _set("clipnorm", 0.01), "global_clipnorm": _set("global_clipnorm", 0.01),
    "clipvalue": _set("clipvalue", 0.01), "decay": _set("weight_decay", 0.2), "scale": _set("loss_scale_factor", 4.0),
    "constraint": _constraint, "method": _method, "hook": _hook,
    "values": lambda loop: [variable.assign(variable * 3) for variable in loop.variables],
    "memory": lambda loop: loop.variables[1].value.data.resize_(4, 3),
    "iterations": lambda loop: loop.optimizer.iterations.assign(40),
    "slots": lambda loop: [each.assign(each * 2) for each in loop.optimizer.variables[-6:]],
    "none": _grads(lambda grads: [None] + grads[1:]),
    "float64": _grads(lambda grads: [grad.double() for grad in grads]),
    "strided": _grads(lambda grads: [grads[0], torch.empty(3, 4).t().copy_(grads[1]), grads[2]]),
    "order": lambda loop: loop.optimizer.apply(loop.grads()[::-1], loop.variables[::-1]),
    "fewer": lambda loop: loop.optimizer.apply(loop.grads()[:2], loop.variables[:2]),
    "itself": lambda loop: loop.optimizer.apply([v.value.detach() for v in loop.variables], loop.variables),
    "pairs": lambda loop: loop.optimizer.apply_gradients(zip(loop.grads(), loop.variables)),
    "restored": _restored, "stateless": _in_a_scope,
}


@pytest.mark.filterwarnings("ignore:Gradients do not exist")  # Keras says so of "none"
@pytest.mark.parametrize("name", sorted(CHANGES))
def test_what_changes_between_steps_is_obeyed(name):
    results = []
    for lowering in (None, PLAIN):
        loop = Loop(Adam(0.1), lowering)
        for _ in range(2):
            loop.steps(3)
            CHANGES[name](loop)
        loop.steps(3)
        results.append(loop.values())
    for ours, other in zip(*results):
        assert oracle.distance(ours, other) <= 4e-6


@pytest.mark.parametrize("wrong", [torch.ones(2), torch.ones(3, dtype=torch.int64), "three"], ids=repr)
def test_a_wrong_gradient_between_right_ones(wrong):
    loop = Loop(Adam(0.1))
    loop.steps(3)
    before = loop.values()
    with pytest.raises(everstep.errors.GradientError):
        loop.optimizer.apply([wrong] + loop.grads()[1:], loop.variables)
    for one, other in zip(loop.values(), before):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("definition", [Adam(0.1), Lion(0.1), everstep.clip(SGD(0.1), global_norm=0.5)],
                         ids=grouped.short)
def test_a_run_that_goes_on_from_its_state_is_the_same_bit_for_bit(definition):
    whole, loop = Loop(definition), Loop(definition)
    whole.steps(7)
    loop.steps(4)
    state = everstep.capture(loop.optimizer, variables=loop.variables)
    other = Loop(definition)
    for variable, old in zip(other.variables, loop.variables):
        variable.assign(old)
    everstep.restore(other.optimizer, state, variables=other.variables)
    other.seen = loop.seen
    other.steps(3)
    for one, expected in zip(other.values(), whole.values()):
        np.testing.assert_array_equal(one, expected)


def test_a_counter_at_its_end():
    loop = Loop(SGD(0.1))
    loop.steps(3)
    loop.optimizer.iterations.assign(2**31 - 2**16)
    loop.optimizer._bound.adapter.framework._unread = 0
    with pytest.raises(everstep.errors.StateError):
        loop.steps(1)


def test_a_subclass_of_the_users(full_steps):
    class Doubled(SGD(0.1).bind(keras).__class__):
        def update_step(self, gradient, variable, learning_rate):
            super(Doubled, self).update_step(gradient * 2, variable, learning_rate)

    loop, plain = Loop(SGD(0.1)), Loop(SGD(0.1), PLAIN)
    loop.optimizer = Doubled(0.1)
    loop.steps(3)
    plain.optimizer.learning_rate = 0.2
    plain.steps(3)
    for one, other in zip(loop.values()[:3], plain.values()[:3]):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_steps_of_a_compiled_function_are_repeated(full_steps):
    """torch.compile leaves our step out; what it then calls still repeats the last step."""
    loop, plain = Loop(Adam(0.1)), Loop(Adam(0.1))
    step = torch.compile(lambda: loop.steps(1), backend="eager")
    for _ in range(4):
        step()
    del full_steps[:]
    step()
    assert not full_steps
    plain.steps(5)
    for ours, other in zip(loop.values(), plain.values()):
        assert oracle.distance(ours, other) <= 4e-6
