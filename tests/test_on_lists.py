"""Updates of torch where launching an operation costs more than computing it: one call for all tensors.

A processor's torch does that here for its own tensors: what is far is what the test says. Numbers, and counts of calls.
"""
from __future__ import absolute_import, division, print_function

import collections

import numpy as np
import pytest

import everstep
import harness
import runs
import test_battery as battery
import test_grouped as grouped
from everstep.compat.backends.on_torch import TorchLists
from everstep.compat.engine import fused, on_lists
from everstep.optimizers import SGD, AdaBelief, Adam, AdamW, DiffGrad, Lion, Yogi
from everstep.testing import oracle

if grouped.BACKEND != "torch":
    pytest.skip("about torch", allow_module_level=True)

import torch  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

keras, train, gradients, starts, distance = (
    grouped.keras, grouped.train, grouped.gradients, grouped.starts, grouped.distance)


@pytest.fixture(autouse=True)
def _far(monkeypatch):
    keras.utils.clear_session()
    monkeypatch.setattr(TorchLists, "is_far", staticmethod(lambda tensors: True))
    monkeypatch.setattr(TorchLists, "kernel", lambda self, operation, settings, tensors: None)


def _with_kernels(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(TorchLists, "is_far", staticmethod(lambda tensors: True))


class Literals(everstep.Definition):
    """Numbers in sums, quotients and powers, on either side."""

    learning_rate = everstep.hyper(0.1)
    beta = everstep.hyper(0.9)
    m = everstep.slot()
    v = everstep.slot(1.0)
    largest = everstep.slot()

    def update(self, ops, grad, var, slots, hyper, t):
        m = 0.9 * slots.m + 0.1 * grad / 2
        v = hyper.beta * slots.v + (1 - hyper.beta) * ops.square(grad) + 1e-3
        largest = ops.maximum(slots.largest, abs(m))
        bounded = ops.clip(m, -0.5, 0.5) + ops.minimum(m, 1 / t)
        share = ops.where(largest > 0.1, 2 - m, m - 3) / 7 - ops.sign(grad) * ops.exp(-largest)
        change = bounded / (1 + ops.sqrt(v)) + (1 - share) * 0.01 + 2.0 ** (-v) - v**1.5 / 9
        return hyper.learning_rate * change, {"m": m, "v": v, "largest": largest}


class Swapped(everstep.Definition):
    """Each slot gets what another value was before."""

    learning_rate = everstep.hyper(0.1)
    one = everstep.slot(everstep.VARIABLE)
    other = everstep.slot(2.0)
    last = everstep.slot()

    def update(self, ops, grad, var, slots, hyper, t):
        change = hyper.learning_rate * slots.other * grad
        return change, {"one": slots.other, "other": slots.one, "last": var}


EACH = [definition for definition, strategy in grouped.EACH if strategy == "flattened"]
EACH += grouped.KERNELS + [Literals(), Swapped(), Yogi(0.1), everstep.accumulate(Literals(), 3)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("definition", EACH, ids=grouped.short)
def test_each_rule_equals_the_float64_oracle(definition, dtype):
    batches, start = gradients(8, dtype=dtype), starts(dtype=dtype)
    run = train(definition, batches, start)
    assert grouped.strategies(run) == {"flattened"}
    expected, slots = oracle.trajectory(definition, start, batches)
    bound = 4e-6 if dtype == "float32" else 2e-7  # sums and scalars are of float32
    if dtype == "float32" and everstep.optimizers.contract.defines(definition, "measure"):
        bound = 8e-6  # torch's norm of 330,000 elements on a processor, which adds them up one after the other
    assert distance(run.weights(), expected) <= bound
    for name, variable in zip(run.names, grouped.variables(run)):
        for slot, value in slots[name].items():
            actual = keras.ops.convert_to_numpy(run.optimizer.get_slot(variable, slot).value)
            assert not actual.size or oracle.distance(actual, value) <= bound, (name, slot)


@pytest.mark.parametrize("definition", grouped.KERNELS, ids=grouped.short)
def test_the_kernels_of_a_device(definition, monkeypatch):
    """Steps whose hypers are known use torch's fused kernel if the device has one; other steps run the program."""
    _with_kernels(monkeypatch)
    run, batches = train(definition, gradients(4)), gradients(8)
    for place, batch in enumerate(batches[4:]):
        run.optimizer.learning_rate = 0.1 + place * 1e-7  # known to its device alone
        run.step(batch)
    expected, _ = oracle.trajectory(definition, starts(), batches)
    assert distance(run.weights(), expected) <= 4e-5


@pytest.mark.parametrize("definition_class, settings", harness.share(
    [each for each in battery.CONFIGURED if each[0].stages == 1], 6))
def test_every_definition_is_the_same_together_and_alone(definition_class, settings):
    more = {"epsilon": 1e-3} if definition_class.takes("epsilon") else {}
    if definition_class.takes("beta"):  # as in test_grouped.py
        more["beta"] = 0.5
    definition, batches = battery.define(definition_class, settings, **more), gradients(4)
    together, alone = (train(definition, batches, lowering=how).weights() for how in (None, grouped.PLAIN))
    if definition.family == "signs":
        turned = {name: np.abs(together[name] - alone[name]) > 1e-5 for name in alone}
        assert sum(map(np.sum, turned.values())) <= 3
        together = {name: np.where(turned[name], alone[name], together[name]) for name in alone}
    assert grouped.apart(together, alone) <= 2e-6


@pytest.mark.parametrize("definition", [
    SGD(0.5), SGD(0.5, momentum=0.9), Adam(0.5), Lion(0.5), Swapped(), everstep.accumulate(Adam(0.5), 2)],
    ids=grouped.short)
def test_gradients_that_are_values_of_variables(definition):
    share = lambda optimizer, variables, values: values[::-1]  # noqa: E731
    assert np.array_equal(*grouped.after_sharing(definition, (2, 2), share))


def test_large_groups_are_computed_in_parts(monkeypatch):
    batches = gradients(3)
    expected = train(Literals(), batches).weights()
    monkeypatch.setattr(on_lists, "MOST", 10)
    assert distance(train(Literals(), batches).weights(), expected) == 0
    tensors = [torch.empty(size) for size in (4, 4, 4, 30, 1)]
    assert list(on_lists.slices(tensors)) == [slice(0, 2), slice(2, 3), slice(3, 4), slice(4, 5)]


def test_hypers_that_are_set_are_read_again():
    """Changes come through the optimizer or the variable; a callback or a schedule changes the rate at each step."""
    results = []
    for lowering in (None, grouped.PLAIN):
        run = train(AdamW(0.1, weight_decay=0.1), [], lowering=lowering)
        for place, batch in enumerate(gradients(8)):
            if place > 5:
                run.optimizer.learning_rate = 0.1 / place
            run.step(batch)
            if place == 2:
                run.optimizer.beta_1 = 0.5
            if place == 3:
                run.optimizer.learning_rate.assign(0.3)
                run.optimizer.beta_2.assign(0.75)
        results.append(run.weights())
    assert distance(*results) <= 3e-5  # alone, 1 - beta_2**t is computed in float32
    rate = keras.optimizers.schedules.InverseTimeDecay(0.5, 3, 1.0)
    scheduled = [train(Lion(rate), gradients(5), lowering=how).weights() for how in (None, grouped.PLAIN)]
    assert distance(*scheduled) <= 2e-6


class Calls(TorchDispatchMode):
    """Counts the operations that torch carries out, and how often it waits for a number."""

    free = ("detach", "alias", "lift_fresh", "view", "expand", "empty_like", "_to_copy")

    def __init__(self):
        super(Calls, self).__init__()
        self.counts = collections.Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.split("::")[1]
        if name not in self.free:
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


def calls(make, count, steps=1):
    """Returns the calls of a step with some variables, once everything is planned."""
    shapes = {"w%02d" % number: (3, number % 5 + 1) for number in range(count)}
    run = grouped.started(make, starts(shapes))
    runs.stepped(run, gradients(12, shapes))
    with Calls() as counted, torch.no_grad():
        for batch in gradients(steps, shapes):
            grads = [torch.tensor(batch[name]) for name in run.names]
            run.optimizer.apply(grads, grouped.variables(run))
    return counted.counts


@pytest.mark.parametrize("definition", [
    SGD(0.1), SGD(0.1, momentum=0.9), Adam(0.1), AdamW(0.1, weight_decay=0.1), Lion(0.1), DiffGrad(0.1),
    everstep.moving_average(Adam(0.1)), everstep.decoupled_weight_decay(AdaBelief(0.1, rectify=False), 0.1)],
    ids=grouped.short)
def test_the_calls_of_a_step_do_not_grow_with_the_variables(definition):
    few, many = (calls(definition, count) for count in (3, 30))
    assert few == many
    assert not many["_local_scalar_dense"], many


@pytest.mark.parametrize("name, settings", [
    ("SGD", {}), ("SGD", {"momentum": 0.9}), ("Adam", {}), ("AdamW", {"weight_decay": 0.01}), ("Lion", {})])
def test_calls_beside_stock(name, settings):
    ours, stock = (calls(make, 30) for make in (
        getattr(everstep.optimizers, name)(0.1, **settings),
        lambda: getattr(keras.optimizers, name)(0.1, **settings)))
    assert sum(ours.values()) <= sum(stock.values()), (ours, stock)


@pytest.mark.parametrize("name, settings, beside", [
    ("Adam", {}, lambda p: torch.optim.Adam(p, fused=True)),
    ("AdamW", {"weight_decay": 0.1}, lambda p: torch.optim.AdamW(p, fused=True)),
    ("SGD", {}, lambda p: torch.optim.SGD(p, 0.1, fused=True)),
    ("SGD", {"momentum": 0.9}, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True))])
def test_calls_beside_the_fused_optimizers_of_torch(name, settings, beside, monkeypatch):
    _with_kernels(monkeypatch)
    ours = calls(getattr(everstep.optimizers, name)(0.1, **settings), 30)
    tensors = [torch.ones(3, requires_grad=True) for _ in range(30)]
    optimizer = beside(tensors)
    for tensor in tensors:
        tensor.grad = torch.ones(3)
    optimizer.step()
    with Calls() as counted:
        optimizer.step()
    assert sum(ours.values()) <= sum(counted.counts.values()) + 1, (ours, counted.counts)
    assert not ours["_local_scalar_dense"]


def test_a_kernel_that_a_device_lacks_or_that_computes_another_thing(monkeypatch):
    _with_kernels(monkeypatch)
    expected = train(Adam(0.1), gradients(4)).weights()
    lists = TorchLists(keras.Variable)
    [kernel] = [fused.KERNELS["adam"](Adam(0.1), lambda name: None)]
    assert lists.device_kernel(kernel, ["lr", "beta1", "beta2", "epsilon", "beta1_power", "beta2_power"],
                               [torch.ones(2, device="meta")]) is None
    monkeypatch.setattr(TorchLists, "device_kernel", lambda self, kernel, scalars, tensors: None)
    assert distance(train(Adam(0.1), gradients(4)).weights(), expected) <= 2e-6


def test_waits_of_accumulate_beside_stock():
    ours = calls(everstep.accumulate(Adam(0.1), 4), 30, steps=4)
    stock = calls(lambda: keras.optimizers.Adam(0.1, gradient_accumulation_steps=4), 30, steps=4)
    assert ours["_local_scalar_dense"] <= stock["_local_scalar_dense"], (ours, stock)
    assert sum(ours.values()) <= sum(stock.values()), (ours, stock)
