"""Definitions as gradient transformations of optax."""

from __future__ import absolute_import, division, print_function

import copy
import os
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

import everstep
import harness
import test_grid
from everstep.compat.backends.on_jax import rounded
from everstep.errors import (
    DefinitionError,
    GradientError,
    HyperTypeError,
    HyperValueError,
    StateError,
    UnsupportedError,
    UnsupportedMemberError,
    VariableError,
)
from everstep.optimizers import (
    LAMB,
    LARS,
    SGD,
    Adafactor,
    Adagrad,
    Adam,
    AdamW,
    Lion,
    Nadam,
    NovoGrad,
    Prodigy,
    RAdam,
    RMSprop,
    SophiaH,
    Yogi,
)
from everstep.testing import oracle, training
from test_battery import CONFIGURED, define, ids, start_range
from tree_run import tree_ways

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax", reason="optax is in the cells that have it: api/matrix_kit/cells.ini")
jnp, PartitionSpec = jax.numpy, jax.sharding.PartitionSpec
JIT, EAGER = tree_ways()
PARAMS = {"dense": {"kernel": jnp.arange(1.0, 7.0).reshape(2, 3), "bias": jnp.ones(3)}, "scales": [jnp.full(4, 2.0)]}
GRADS = jax.tree.map(lambda x: 0.3 * jnp.cos(x) + 0.1, PARAMS)
NAMES = ["dense/bias", "dense/kernel", "scales/0"]  # in the order of the leaves


def trained(transform, steps=5, grads=None, params=PARAMS, extra=None, sees_params=True):
    """Returns the parameters and the state after some steps on the same gradients, or, compiled, on many."""
    def step(carry, grads):
        params, state = carry
        updates, state = transform.update(grads, state, params if sees_params else None, **(extra or {}))
        return (optax.apply_updates(params, updates), state), None

    carry = params, transform.init(params)
    if grads is not None:
        return jax.jit(lambda carry: jax.lax.scan(step, carry, grads)[0])(carry)
    for _ in range(steps):
        carry, _ = step(carry, GRADS)
    return carry


def far(actual, expected):
    """Returns the largest difference of two trees, each leaf's as a share of its largest number."""
    each = jax.tree.map(lambda x, y: float(abs(x - y).max() / abs(y).max()), actual, expected)
    return max(jax.tree.leaves(each))


def equal(one, other):
    same = jax.tree.map(lambda x, y: np.array_equal(x, y) and x.dtype == y.dtype, one, other)
    return jax.tree.structure(one) == jax.tree.structure(other) and all(jax.tree.leaves(same))


# The same numbers as on every other target, in every definition.


@pytest.mark.shared
@pytest.mark.parametrize("configured", harness.share([each for each in CONFIGURED if each[0].stages == 1], 16), ids=ids)
def test_equals_oracle(configured):
    definition = define(*configured)
    trial = training.Trial(JIT, definition, between=start_range(definition))
    assert max(each.distance for each in trial.differences()) <= trial.bound


WRAPPED = [
    everstep.accumulate(Adam(0.1), 4), everstep.clip(Adam(0.1), global_norm=1.0),
    everstep.lookahead(SGD(0.1, momentum=0.9), sync_period=3), everstep.moving_average(Adam(0.1)),
    everstep.stochastic_weight_averaging(SGD(0.1), period=3), everstep.centralize(Adam(0.1)),
    everstep.cautious(AdamW(0.1)), everstep.decoupled_weight_decay(Adam(0.1), 0.01),
    everstep.gradient_noise(Adam(0.1)), everstep.grokfast(Adam(0.1)), everstep.master_copies(Adam(0.1)),
    everstep.rate_decay(SGD(0.1), 0.1), everstep.learning_rate_multipliers(Adam(0.1), {"dense": 0.1}),
    everstep.partition({"bias": SGD(0.1)}, default=Adam(0.1)),
    everstep.moving_average(everstep.accumulate(everstep.clip(Adam(0.1), norm=1.0), 2)),
]


@pytest.mark.parametrize("definition, way", harness.each_in_turn(WRAPPED, [EAGER, JIT]), ids=ids)
def test_wrappers_do_what_they_do_on_numpy(definition, way):
    trials = [training.Trial(each, definition, steps=12) for each in (way, harness.NUMPY)]
    actual, expected = (trial.train(trial.run()).weights() for trial in trials)
    assert max(oracle.distance(actual[name], expected[name]) for name in expected) <= 5e-6


def test_a_step_that_does_not_update_returns_zeros():
    transform = everstep.accumulate(Adam(0.1), 2).bind(optax)
    state, counts = transform.init(PARAMS), []
    for number in range(1, 5):
        updates, state = jax.jit(transform.update)(GRADS, state)
        moved = [bool(abs(update).max()) for update in jax.tree.leaves(updates)]
        assert set(moved) == {number % 2 == 0}
        counts.append((int(state.count), int(state.counters["pending"]), int(state.counters["steps"])))
    assert counts == [(0, 1, 1), (1, 0, 2), (1, 1, 3), (2, 0, 4)]


# Beside optax's own.


class NadamOfOptax(everstep.Definition):
    """optax corrects the momentum of the next step by its own bias correction. beta_2 is 0.75."""

    learning_rate = everstep.hyper(0.1)
    m = everstep.slot()
    v = everstep.slot()

    def update(self, ops, grad, var, slots, hyper, t):
        m, v = 0.9 * slots.m + 0.1 * grad, 0.75 * slots.v + 0.25 * grad * grad
        direction = 0.9 * m / (1 - 0.9 ** (t + 1)) + 0.1 * grad / (1 - 0.9**t)
        return hyper.learning_rate * direction / (ops.sqrt(v / (1 - 0.75**t)) + 1e-8), dict(m=m, v=v)


ROUNDING = 1e-6
# optax multiplies by 1 - 0.999 in float64, and corrects the bias by 1 - 0.999^t in float32, which is 1.3e-5 less.
BETA = 2e-5
# (of optax, ours, bound). After each pair whose difference is more: why, as a pair without the cause.
BESIDE = [
    ("adam", optax.adam(0.1), Adam(0.1, epsilon=1e-8), BETA),
    ("adamw", optax.adamw(0.1, weight_decay=0.01), AdamW(0.1, epsilon=1e-8, weight_decay=0.01), BETA),
    ("adam b2=0.75", optax.adam(0.1, b2=0.75), Adam(0.1, beta_2=0.75, epsilon=1e-8), ROUNDING),  # an exact float32
    ("sgd", optax.sgd(0.1), SGD(0.1), ROUNDING),
    ("sgd momentum", optax.sgd(0.1, 0.9), SGD(0.1, momentum=0.9), ROUNDING),
    ("sgd nesterov", optax.sgd(0.1, 0.9, True), SGD(0.1, momentum=0.9, nesterov=True), ROUNDING),
    ("rmsprop", optax.rmsprop(0.1), RMSprop(0.1, epsilon=1e-8, epsilon_in_root=True), ROUNDING),
    ("adagrad", optax.adagrad(0.5), Adagrad(0.5, epsilon_in_root=True), ROUNDING),
    ("lion", optax.lion(0.1, weight_decay=0.01), Lion(0.1, weight_decay=0.01), ROUNDING),
    ("lamb", optax.lamb(0.1, weight_decay=0.01), LAMB(0.1, weight_decay=0.01), BETA),
    ("lars", optax.lars(20.0), LARS(20.0, weight_decay=0.0), ROUNDING),
    # optax's ratio has the norm of the sum of gradient and decay, the paper's the sum of their norms.
    ("lars decay", optax.lars(20.0, 0.01), LARS(20.0, weight_decay=0.01), 1.0),
    ("adafactor", optax.adafactor(0.1, min_dim_size_to_factor=0), Adafactor(0.1, relative_step=False), ROUNDING),
    # The paper warms the momentum up; the form without that corrects all of it by one step.
    ("nadam", optax.nadam(0.1), Nadam(0.1, epsilon=1e-8), 0.5),
    ("nadam no warm-up", optax.nadam(0.1), Nadam(0.1, epsilon=1e-8, momentum_schedule=False), 0.1),
    ("nadam of optax", optax.nadam(0.1, b2=0.75), NadamOfOptax(0.1), ROUNDING),
    # optax subtracts two numbers near 2000 in float32 to get the length; with b2=0.75 they are near 7.
    ("radam", optax.radam(0.5), RAdam(0.5, epsilon=1e-8), 5e-3),
    ("radam b2=0.75", optax.radam(0.1, b2=0.75), RAdam(0.1, beta_2=0.75, epsilon=1e-8), ROUNDING),
    # optax adds epsilon after the bias correction, and its first moment begins at 1e-6.
    ("yogi", optax.yogi(0.1), Yogi(0.1), 0.05),
    ("yogi eps=1e-9", optax.yogi(0.1, eps=1e-9), Yogi(0.1, epsilon=1e-9), 2 * BETA),
    ("novograd", optax.novograd(0.1, 0.95, 0.75), NovoGrad(0.1, 0.95, 0.75, epsilon=1e-6), ROUNDING),
]
_RANDOM = np.random.RandomState(0)
MANY = jax.tree.map(lambda x: jnp.asarray(_RANDOM.normal(0.5, 1.0, (100,) + x.shape), "float32"), PARAMS)


def in_multi_transform(transform):
    labels = {"dense": {"kernel": "it", "bias": "other"}, "scales": ["it"]}
    return optax.multi_transform({"it": transform, "other": optax.sgd(0.1)}, labels)


def in_chain(transform):
    return optax.chain(optax.clip(2.0), transform)


FORMS = {"alone": lambda transform: transform, "chain": in_chain, "multi_transform": in_multi_transform}
FAR = {}


@pytest.mark.parametrize("pair, form", harness.each_in_turn(BESIDE, sorted(FORMS)),
                         ids=lambda value: value if isinstance(value, str) else value[0].replace(" ", "-"))
def test_beside_optax(pair, form):
    """After 100 steps alone, in a chain or in multi_transform. The last test prints the differences."""
    name, stock, ours, bound = pair
    expected = trained(FORMS[form](stock), grads=MANY)[0]
    moved = jax.tree.map(lambda x, y: float(abs(x - y).max() / abs(y).max()), expected, PARAMS)
    assert min(jax.tree.leaves(moved)) > 0.2
    FAR[name, form] = far(trained(FORMS[form](ours.bind(optax)), grads=MANY)[0], expected)
    assert FAR[name, form] <= bound
    assert bound == ROUNDING or FAR[name, form] > ROUNDING  # else the reason given is none


# A pure function that optax's own wrappers take.


def test_it_is_a_transformation():
    transform = Adam(0.1).bind(optax)
    init, update = transform
    assert isinstance(transform, optax.GradientTransformationExtraArgs)
    assert isinstance(transform, Adam.native_class(optax)) and isinstance(transform, everstep.NativeOptimizer)
    assert type(transform).__name__ == "Adam" and "bound to optax_transform" in repr(transform)
    assert equal(update(GRADS, init(PARAMS)), transform.update(GRADS, transform.init(PARAMS)))
    assert equal(trained(transform, extra={"value": 1.0, "grad": GRADS, "value_fn": None}), trained(transform))
    assert hash(transform) == hash(transform) and transform != Adam(0.1).bind(optax)


def test_copies_do_the_same():
    transform = everstep.accumulate(Adam(0.1), 2).bind(optax)
    remade = jax.tree.map(lambda function: function, transform)  # as libraries do that take trees apart
    for other in (copy.copy(transform), copy.deepcopy(transform), pickle.loads(pickle.dumps(transform)), remade):
        assert equal(trained(other), trained(transform))
        assert everstep.capture(other, transform.init(PARAMS), PARAMS).updates == 0


def in_masked(transform):
    return optax.masked(transform, {"dense": False, "scales": True})


WRAPPERS = [
    in_masked, in_multi_transform, lambda transform: optax.chain(optax.clip_by_global_norm(0.5), transform),
    lambda transform: optax.apply_if_finite(transform, 3),
    lambda transform: optax.MultiSteps(transform, 2).gradient_transformation(),
]


@pytest.mark.parametrize("wrap", WRAPPERS, ids=["masked", "multi_transform", "chain", "apply_if_finite", "MultiSteps"])
def test_in_wrappers_of_optax(wrap):
    ours, stock = (trained(wrap(each)) for each in (SGD(0.1, momentum=0.5).bind(optax), optax.sgd(0.1, 0.5)))
    assert far(ours[0], stock[0]) <= ROUNDING


def test_a_branch_of_multi_transform_may_have_no_leaf():
    labels = jax.tree.map(lambda _: "it", PARAMS)
    both = optax.multi_transform({"it": Adam(0.1).bind(optax), "none": Nadam(0.1).bind(optax)}, labels)
    params, state = trained(both)
    assert equal(params, trained(Adam(0.1).bind(optax))[0])
    assert int(state.inner_states["none"].inner_state.count) == 5


def test_inject_hyperparams():
    native = Adam.native_class(optax)
    injected = optax.inject_hyperparams(native)(0.1)
    assert set(injected.init(PARAMS).hyperparams) == {"learning_rate", "beta_1", "beta_2", "epsilon"}
    assert far(trained(injected)[0], trained(Adam(0.1).bind(optax))[0]) <= ROUNDING
    state = injected.init(PARAMS)
    state.hyperparams["learning_rate"] = jnp.float32(0.0)
    assert equal(injected.update(GRADS, state, PARAMS)[0], jax.tree.map(jnp.zeros_like, PARAMS))
    fixed = optax.inject_hyperparams(Yogi.native_class(optax), static_args="initial_accumulator_value")
    assert far(trained(fixed(0.1))[0], trained(Yogi(0.1).bind(optax))[0]) <= ROUNDING
    with pytest.raises(HyperTypeError, match="name it in static_args"):
        optax.inject_hyperparams(Yogi.native_class(optax))(0.1).init(PARAMS)
    without = optax.inject_hyperparams(LARS.native_class(optax), static_args="momentum")(0.1, momentum=0.0)
    assert not jax.tree.leaves(without.init(PARAMS).inner_state.slots)


@pytest.mark.parametrize("rate", [lambda count: 0.1 / (count + 1.0), optax.cosine_decay_schedule(0.1, 10)])
def test_a_schedule_of_the_count(rate):
    assert far(trained(SGD(rate).bind(optax))[0], trained(optax.sgd(rate))[0]) <= ROUNDING
    ours = everstep.CosineDecay(0.1, 10)
    assert far(trained(SGD(ours).bind(optax))[0], trained(optax.sgd(optax.cosine_decay_schedule(0.1, 10)))[0]) <= BETA
    late = SGD(rate).bind(optax)
    assert everstep.capture(late, trained(late)[1], PARAMS).definition["learning_rate"] == pytest.approx(float(rate(5)))


def test_params_are_needed_where_the_rule_reads_them():
    without = trained(everstep.accumulate(Adam(0.1), 2).bind(optax), sees_params=False)
    assert equal(without, trained(everstep.accumulate(Adam(0.1), 2).bind(optax)))
    transform = AdamW(0.1).bind(optax)
    with pytest.raises(ValueError) as caught:
        transform.update(GRADS, transform.init(PARAMS))
    with pytest.raises(ValueError) as stock:
        optax.adamw(0.1).update(GRADS, optax.adamw(0.1).init(PARAMS))
    assert str(caught.value) == str(stock.value)


KEPT = [everstep.accumulate(Nadam(0.1), 2), Adafactor(0.1), everstep.lookahead(everstep.moving_average(SGD(0.1))),
        everstep.partition({"bias": SGD(0.1, momentum=0.5)}, default=Adam(0.1))]


@pytest.mark.parametrize("definition", KEPT, ids=lambda definition: type(definition).__name__)
def test_a_state_keeps_its_types(definition):
    """A step compiles once. A weak type or another structure would compile it again, and break scan."""
    transform = definition.bind(optax)
    first = transform.init(PARAMS)
    updates, second = transform.update(GRADS, first, PARAMS)
    leaves = jax.tree.leaves((first, second, updates))
    assert all(isinstance(leaf, jax.Array) and not leaf.aval.weak_type for leaf in leaves)
    described = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), each)
                 for each in (first, second, jax.eval_shape(transform.init, PARAMS))]
    assert described[0] == described[1] == described[2]
    doubled = optax.tree_utils.tree_map_params(transform, lambda leaf: leaf + 1, second)
    assert int(doubled.count) == int(second.count) == int(optax.tree_utils.tree_get(second, "count"))
    assert jax.tree.structure(doubled) == jax.tree.structure(second)


def test_scan_vmap_and_donation():
    transform = everstep.lookahead(everstep.accumulate(Adam(0.1), 2), sync_period=2).bind(optax)
    expected = trained(transform, 6)

    def body(carry, _):
        updates, state = transform.update(GRADS, carry[1], carry[0])
        return (optax.apply_updates(carry[0], updates), state), None

    scanned = jax.lax.scan(body, (PARAMS, transform.init(PARAMS)), None, length=6)[0]
    assert far(scanned[0], expected[0]) <= ROUNDING and int(scanned[1].count) == int(expected[1].count) == 3
    params = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), PARAMS)
    grads = jax.tree.map(lambda x: jnp.stack([x, x]), GRADS)
    state = jax.vmap(transform.init)(params)
    for _ in range(6):
        updates, state = jax.vmap(transform.update)(grads, state, params)
        params = optax.apply_updates(params, updates)
    assert far(jax.tree.map(lambda x: x[0], params), expected[0]) <= ROUNDING
    donated = jax.jit(lambda params, state: body((params, state), None)[0], donate_argnums=(0, 1))
    params, state = jax.tree.map(jnp.copy, PARAMS), transform.init(PARAMS)
    for _ in range(6):
        params, state = donated(params, state)
    assert far(params, expected[0]) <= ROUNDING


def test_a_slot_that_starts_at_the_parameter_is_a_copy():
    transform = everstep.lookahead(SGD(0.1)).bind(optax)
    state = transform.init(PARAMS)
    slow, params = (jax.tree.leaves(tree) for tree in (state.slots["lookahead_slow"], PARAMS))
    assert equal(slow, params)
    assert not {each.unsafe_buffer_pointer() for each in slow} & {each.unsafe_buffer_pointer() for each in params}


def test_a_step_is_differentiable():
    def moved(rate):
        transform = SGD.native_class(optax)(learning_rate=rate)
        updates, _ = transform.update(GRADS, transform.init(PARAMS), PARAMS)
        return sum(map(jnp.sum, jax.tree.leaves(updates)))

    assert float(jax.grad(moved)(0.1)) == pytest.approx(-float(sum(map(jnp.sum, jax.tree.leaves(GRADS)))), rel=1e-6)


def test_updates_have_the_dtype_of_the_gradients():
    params, grads = (jax.tree.map(lambda x: x.astype("bfloat16"), tree) for tree in (PARAMS, GRADS))
    transform = optax.apply_if_finite(Adam(0.1).bind(optax), 2)
    updates, state = transform.update(grads, transform.init(params), params)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(updates)} == {"bfloat16"}
    assert {leaf.dtype.name for leaf in jax.tree.leaves(state.inner_state.slots)} == {"float32"}
    updates, _ = Adam(0.1).bind(optax).update(grads, Adam(0.1).bind(optax).init(PARAMS), PARAMS)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(updates)} == {"bfloat16"}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_compiled_code_rounds_to_16_bits(dtype):
    """By an operation that XLA keeps, also to the subnormal numbers of float16. Other dtypes have no need of it."""
    values = jnp.array([1.00123, 3.00077e-5, 2.0**-15 + 2.0**-25, 7.00011e-6, -3.1e-7, 2e-8], "float32")
    cast = jax.jit(lambda x: Adam().bind(optax)._bound.adapter.backend.cast(x, dtype))
    assert equal(jax.jit(lambda x: rounded(x, dtype))(values), values.astype(dtype).astype("float32"))
    assert "reduce_precision" in str(jax.make_jaxpr(cast)(values))
    assert equal(cast(jnp.arange(3)), jnp.arange(3).astype(dtype))


def test_a_gradient_may_be_missing():
    transform = Adam(0.1).bind(optax)
    grads = dict(GRADS, scales=[None])
    updates, state = transform.update(grads, transform.init(PARAMS), PARAMS)
    assert updates["scales"] == [None] and not np.any(state.slots["m"]["scales"][0])
    assert equal(updates["dense"], transform.update(GRADS, transform.init(PARAMS))[0]["dense"])


def test_rules_for_some_names_go_by_paths():
    plain, decayed = (AdamW(0.1, weight_decay=0.5), everstep.decoupled_weight_decay(
        Adam(0.1), 0.5, exclude=["bias", "scales/0"]))
    params, _ = trained(decayed.bind(optax))
    without, _ = trained(Adam(0.1).bind(optax))
    assert equal(params["dense"]["bias"], without["dense"]["bias"]) and equal(params["scales"], without["scales"])
    assert far(params["dense"]["kernel"], trained(plain.bind(optax))[0]["dense"]["kernel"]) < 0.1
    assert far(params["dense"]["kernel"], without["dense"]["kernel"]) > 0.1


def test_the_noise_of_a_leaf_does_not_depend_on_what_was_trained_before():
    fresh, used = (everstep.gradient_noise(SGD(0.1)).bind(optax) for _ in range(2))
    used.init({"other": jnp.ones(2)})
    assert equal(trained(used), trained(fresh))


def test_loss_scale():
    transform = everstep.loss_scale(SGD(0.1), initial_scale=4.0, growth_interval=2).bind(optax)

    @jax.jit
    def step(params, state, factor):
        loss = everstep.scale_loss(transform, state, lambda params: factor * jnp.sum(params["w"] ** 2))
        grads = jax.grad(loss)(params)
        updates, state = transform.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss(params)

    params = {"w": jnp.ones(2)}
    chained, seen = transform.init(params), []
    for factor in (1.0, np.inf, 1.0, 1.0):
        params, chained, loss = step(params, chained, factor)
        seen.append((round(float(params["w"][0]), 3), float(loss), int(chained.count), int(chained.counters["steps"])))
    assert [each[0] for each in seen] == [0.8, 0.8, 0.64, 0.512]
    assert [each[2:] for each in seen] == [(1, 1), (1, 2), (2, 3), (3, 4)]
    assert seen[0][1] == 8.0 and seen[2][1] == pytest.approx(0.8**2 * 2 * 2)
    unscaled = SGD(0.1).bind(optax)
    assert everstep.scale_loss(unscaled, (optax.EmptyState(), unscaled.init(params)), 3.0) == 3.0


# State.


@pytest.mark.parametrize("writer", ["tf_train-tf1.4", "keras3-jax"])
@pytest.mark.parametrize("name", sorted(test_grid.DEFINITIONS))
def test_a_run_that_began_elsewhere_goes_on(writer, name):
    [written] = [each for each in test_grid.WRITERS if each.name == writer]
    assert test_grid.goes_on(JIT, written, name) <= 1e-5


@pytest.mark.parametrize("way", [way for way in harness.quickest() if way.target in ("arrays", "keras3")],
                         ids=harness.way_name)
@pytest.mark.parametrize("name", sorted(test_grid.DEFINITIONS))
def test_a_run_that_began_here_goes_on_elsewhere(way, name, tmp_path):
    assert test_grid.goes_on_elsewhere(JIT, way, name, str(tmp_path / "half.npz")) <= 1e-5


def test_capture_and_restore_lose_nothing():
    definition = everstep.moving_average(everstep.accumulate(AdamW(0.1), 2), 0.5)
    transform = definition.bind(optax)
    params, opt_state = trained(transform)
    state = everstep.capture(transform, opt_state, params, weights=True)
    assert (state.updates, state.steps, state.pending) == (2, 5, 1) and sorted(state.slots) == NAMES
    assert everstep.Definition.from_config(state.definition) == definition
    assert equal(everstep.restore(definition.bind(optax), state, PARAMS), opt_state)
    assert equal(everstep.restore(definition.bind(optax), state, PARAMS, weights=True), (opt_state, params))
    averages = everstep.averaged(transform, opt_state, params)
    assert equal(averages, opt_state.slots["moving_average_average"]) and far(averages, params) > 0.01


def test_a_state_in_that_of_a_wrapper():
    transform = Adam(0.1).bind(optax)
    params, opt_state = trained(optax.chain(optax.clip(1.0), in_masked(transform)))
    state = everstep.capture(transform, opt_state, params)
    assert state.updates == 5 and list(state.slots) == ["scales/0"]
    both = trained(in_multi_transform(SGD(0.1).bind(optax)), params=PARAMS)[1]
    assert everstep.capture(SGD(0.1).bind(optax), both, PARAMS).updates == 5


def test_two_leaves_of_one_name():
    """A state tells them apart by a number."""
    params = {"a": {"b": jnp.ones(2)}, "a/b": jnp.ones(3)}
    transform = SGD(0.1, momentum=0.9).bind(optax)
    opt_state = transform.update(params, transform.init(params), params)[1]
    state = everstep.capture(transform, opt_state, params)
    assert list(state.slots) == ["a/b#0", "a/b#1"]
    assert equal(everstep.restore(transform, state, params), opt_state)


def test_wrong_states_are_named():
    adam, sgd = Adam(0.1).bind(optax), SGD(0.1).bind(optax)
    state = adam.init(PARAMS)
    for wrong, said in ((sgd.init(PARAMS), "has the slot m"), (optax.adam(0.1).init(PARAMS), "this is tuple with none"),
                        (adam.init({"other": jnp.ones(2)}), "slot m of the state is a tree of another structure"),
                        (None, "this is NoneType with none"), (GRADS, "this is dict with none")):
        with pytest.raises(StateError, match=said):
            adam.update(GRADS, wrong, PARAMS)
    with pytest.raises(StateError, match="this has 2"):
        everstep.capture(adam, (state, state), PARAMS)
    with pytest.raises(StateError, match="this has none"):
        everstep.capture(adam, optax.EmptyState(), PARAMS)
    with pytest.raises(StateError, match="counts its updates itself"):
        everstep.capture(adam, state, PARAMS, updates=3)
    with pytest.raises(VariableError, match="give the transform, its state and the parameters"):
        everstep.capture(adam, state, None)
    for given in (state, None):
        with pytest.raises(VariableError, match="takes the parameters"):
            everstep.restore(adam, everstep.capture(adam, state, PARAMS), given)
    with pytest.raises(StateError, match="this optimizer is SGD"):
        everstep.restore(sgd, everstep.capture(adam, state, PARAMS), PARAMS)
    with pytest.raises(StateError, match="cannot be set"):
        everstep.restore(adam, everstep.capture(adam, state, PARAMS), PARAMS, hypers=True)
    with pytest.raises(UnsupportedError, match="optimizer.scale_loss"):
        everstep.scale_loss(Adam(0.1).bind(np), None, 1.0)
    with pytest.raises(StateError, match="keeps no averages"):
        everstep.averaged(adam, state, PARAMS)


# What it does not support raises.

REFUSED = [
    (lambda: setattr(Adam().bind(optax), "learning_rate", 0.2), HyperValueError, "inject_hyperparams"),
    (lambda: Adam().bind(optax).get_slot(PARAMS, "m"), UnsupportedMemberError, "read slots of the state"),
    (lambda: Adam().bind(optax).steps, UnsupportedMemberError, "read counters of the state"),
    (lambda: Adam().bind(optax).iterations, UnsupportedMemberError, "read count of the state"),
    (lambda: Adam().bind(optax).scale_loss(1.0), UnsupportedMemberError, "everstep.scale_loss"),
    (lambda: Adam().bind(optax).flush(), UnsupportedMemberError, "closes at its last step"),
    (lambda: Adam().bind(optax).apply_gradients, UnsupportedMemberError, "call update"),
    (lambda: Adam().bind(optax).minimize, UnsupportedMemberError, "call update"),
    (lambda: Adam().bind(optax, name="x"), DefinitionError, "has no name"),
    (lambda: Adam().bind(optax, clipnorm=1.0), DefinitionError, "everstep.clip"),
    (lambda: Adam().bind(optax, clipvalue=1.0), DefinitionError, "everstep.clip"),
    (lambda: Adam().bind(optax, global_clipnorm=1.0), DefinitionError, "everstep.clip"),
    (lambda: Adam(sparse="rows").bind(optax), UnsupportedError, "gradients are dense"),
    (lambda: SophiaH().bind(optax), UnsupportedError, "takes 2 gradients of each batch"),
    (lambda: Adam().bind(optax).init({"w": jnp.ones(2, "complex64")}), GradientError, "real numbers"),
    (lambda: Adam().bind(optax).update({"w": jnp.ones(1)}, Adam().bind(optax).init({"w": jnp.ones(2)}),
                                       {"w": jnp.ones(2)}), GradientError, "of shape \\(1,\\)"),
    (lambda: Adam().bind(optax).update(GRADS, Adam().bind(optax).init(PARAMS), {"other": jnp.ones(1)}), GradientError,
     "params is a tree of another structure"),
    (lambda: Adam().bind(optax).update({"w": jnp.ones(2)}, Adam().bind(optax).init({"w": jnp.ones(2)}), {"w": None}),
     VariableError, "w is None in params"),
    (lambda: optax.chain(Adam()), AttributeError, "bind"),
    (lambda: everstep.from_native(optax.adam(0.1)), UnsupportedError, "closures that do not tell"),
    (lambda: everstep.capture(optax.adam(0.1), None, PARAMS), UnsupportedError, "closures that do not tell"),
    (lambda: everstep.restore(optax.adam(0.1), None, PARAMS), UnsupportedError, "closures that do not tell"),
    (lambda: everstep.averaged(optax.adam(0.1), None, PARAMS), UnsupportedError, "closures that do not tell"),
    (lambda: everstep.loss_scale(Adam()).bind(optax).update(
        GRADS, everstep.loss_scale(Adam()).bind(optax).init(PARAMS)), UnsupportedError, "no loss was scaled"),
]


def test_arrays_of_numpy_give_what_stock_gives():
    """A float64 array becomes float32, as everywhere in JAX, and nothing warns of it."""
    params, grads = {"w": np.ones(3)}, {"w": np.full(3, 0.5)}
    outcomes = []
    for transform in (optax.adam(0.1), Adam(0.1, epsilon=1e-8).bind(optax)):
        updates, _ = transform.update(grads, transform.init(params), params)
        outcomes.append(updates["w"])
    assert outcomes[1].dtype == outcomes[0].dtype
    np.testing.assert_allclose(outcomes[1], outcomes[0], rtol=1e-5)


@pytest.mark.parametrize("call, error, said", REFUSED)
def test_refusals(call, error, said):
    with pytest.raises(error, match=said):
        call()


def test_rows_of_dense_gradients_by_choice():
    rows = Adam(0.1, sparse="rows", dense_ok=True).bind(optax)
    assert equal(trained(rows)[0], trained(Adam(0.1).bind(optax))[0])


# Several devices.

SHARDED = """
import jax, numpy as np, optax, everstep
from jax.sharding import NamedSharding, PartitionSpec
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
put = lambda tree, spec: jax.device_put(tree, NamedSharding(mesh, PartitionSpec(*spec)))
params = {"w": jax.numpy.arange(1.0, 33.0).reshape(8, 4), "b": jax.numpy.ones(4)}
grads = jax.tree.map(lambda x: 0.1 * jax.numpy.cos(x), params)
definition = everstep.clip(everstep.optimizers.LAMB(0.1), global_norm=0.5)
step = jax.jit(definition.bind(optax).update)
expected, _ = step(grads, definition.bind(optax).init(params), params)
split = {"w": put(params["w"], ("x", None)), "b": put(params["b"], ())}
state = definition.bind(optax).init(split)
assert state.slots["m"]["w"].sharding == split["w"].sharding and len(split["w"].sharding.device_set) == 4
updates, state = step({"w": put(grads["w"], ("x", None)), "b": put(grads["b"], ())}, state, split)
assert updates["w"].sharding.is_equivalent_to(split["w"].sharding, 2), updates["w"].sharding
assert state.slots["v"]["w"].sharding.is_equivalent_to(split["w"].sharding, 2)
for name in params:
    np.testing.assert_allclose(updates[name], expected[name], rtol=1e-5)
whole, part = PartitionSpec(), PartitionSpec("x", None)
adam = everstep.optimizers.Adam(0.1).bind(optax)
def mapped(values, state, params):  # each device has a part of the batch; gradients are reduced
    return adam.update(jax.tree.map(lambda x: jax.lax.pmean(x.mean(0), "x"), values), state, params)
batch = jax.tree.map(lambda x: jax.numpy.stack([x * k for k in range(8)]), grads)
by_part = jax.jit(jax.shard_map(mapped, mesh=mesh, in_specs=(PartitionSpec("x"), whole, whole), out_specs=whole))
reduced, _ = by_part(batch, adam.init(params), params)
for name, value in adam.update(jax.tree.map(lambda x: x.mean(0), batch), adam.init(params), params)[0].items():
    np.testing.assert_allclose(reduced[name], value, rtol=1e-5)
spec = lambda tree: jax.tree.map(lambda x: part if x.ndim == 2 else whole, tree)
def trained(transform, update, params):
    state = transform.init(params)
    for _ in range(4):
        updates, state = update(grads, state, params)
        params = optax.apply_updates(params, updates)
    return params
clip = lambda axis: everstep.clip(everstep.accumulate(everstep.optimizers.SGD(0.1), 2), global_norm=0.05).bind(
    optax, axis_name=axis)
specs = spec(grads), spec(clip("x").init(params)), spec(params)
update = jax.jit(jax.shard_map(clip("x").update, mesh=mesh, in_specs=specs, out_specs=specs[:2]))
expected = trained(clip(None), jax.jit(clip(None).update), params)
for name, value in trained(clip("x"), update, params).items():  # b is whole on each device
    assert np.abs(value - params[name]).max() > 1e-3
    np.testing.assert_allclose(value, expected[name], rtol=1e-6)
rows = {"w": params["w"].reshape(4, 2, 4)}
once = lambda grads: clip("x").update(grads, clip("x").init(grads))[1].slots["accumulate_sum"]
alone = lambda grads: clip(None).update(grads, clip(None).init(grads))[1].slots["accumulate_sum"]
np.testing.assert_allclose(jax.pmap(once, axis_name="x")(rows)["w"], alone(rows)["w"], rtol=1e-6)
print("sharded")
"""


def test_on_four_devices():
    environment = dict(os.environ, XLA_FLAGS="--xla_force_host_platform_device_count=4", JAX_PLATFORMS="cpu")
    done = subprocess.run([sys.executable, "-c", SHARDED], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True)
    assert done.stdout.endswith("sharded\n"), done.stdout


IN_PARTS = [everstep.clip(Adam(0.1), global_norm=0.05), everstep.clip(everstep.accumulate(SGD(0.1), 2), norm=0.05),
            Prodigy()]


@pytest.mark.parametrize("definition", IN_PARTS, ids=ids)
@pytest.mark.parametrize("sees_params", [True, False])
def test_totals_over_an_axis(definition, sees_params):
    """Every leaf is in two parts, which vmap trains as devices would. They do what the whole leaves do."""
    if not sees_params and isinstance(definition, Prodigy):
        return  # it reads the parameters
    params = {"w": jnp.arange(1.0, 13.0).reshape(4, 3), "b": jnp.ones(4)}
    grads = jax.tree.map(lambda x: jnp.stack([0.3 * jnp.cos(k + x) for k in range(4)]), params)
    transform = pickle.loads(pickle.dumps(definition.bind(optax, axis_name="data")))
    assert "axis_name='data'" in repr(transform)

    def halves(tree, axis=0):
        shape = lambda x: x.shape[:axis] + (2, x.shape[axis] // 2) + x.shape[axis + 1:]  # noqa: E731
        return jax.tree.map(lambda x: jnp.moveaxis(x.reshape(shape(x)), axis, 0), tree)

    def run(params, grads):
        return trained(transform, grads=grads, params=params, sees_params=sees_params)

    parts, state = jax.vmap(run, axis_name="data")(halves(params), halves(grads, 1))
    expected, whole = trained(definition.bind(optax), grads=grads, params=params, sees_params=sees_params)
    assert far(parts, halves(expected)) <= ROUNDING and far(expected, params) > 1e-6
    assert state.count.tolist() == [int(whole.count)] * 2
    for name, value in whole.scalars.items():
        np.testing.assert_allclose(state.scalars[name], [value] * 2, rtol=1e-5)


def on_one_device(transform, specs):
    """Returns a step in `shard_map` over the axes x and y, of one device. specs: (of gradients, of parameters)."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("x", "y"))

    def update(grads, params):
        return transform.update(grads, transform.init(params), params)[0]

    return jax.shard_map(update, mesh=mesh, in_specs=specs, out_specs=specs[0])


def test_leaves_that_are_whole_are_counted_once():
    """shard_map says over which axes a leaf is in parts; `axis_name` may be several."""
    clipped = everstep.clip(SGD(0.1), global_norm=0.05)
    params = {"w": jnp.arange(1.0, 7.0), "b": jnp.ones(4), "s": jnp.ones((2, 2)), "u": jnp.ones(2)}
    specs = {"w": PartitionSpec("x"), "b": PartitionSpec(), "s": PartitionSpec("x", "y"), "u": PartitionSpec("x")}
    step = jax.jit(on_one_device(clipped.bind(optax, axis_name=("x", "y")), (specs, specs)))
    whole = clipped.bind(optax)
    text = str(jax.make_jaxpr(step)(params, params))
    assert re.findall(r"psum\w*\[\s*axes=\((.*?)\)", text) == ["'x', 'y'", "'x',"]  # of s, and of u and w; not of b
    assert far(step(params, params), whole.update(params, whole.init(params), params)[0]) <= ROUNDING


def test_a_whole_leaf_needs_a_reduced_gradient():
    transform, specs = Adam(0.1).bind(optax, axis_name="x"), ({"w": PartitionSpec("x")}, {"w": PartitionSpec()})
    ones = {"w": jnp.ones(2)}
    with pytest.raises(GradientError, match="along the axis x have the same w.*pmean over x"):
        on_one_device(transform, specs)(ones, ones)


def in_vmap(transform):
    update = lambda grads: transform.update(grads, transform.init(grads), grads)  # noqa: E731
    return jax.vmap(update, axis_name="data")({"w": jnp.ones((2, 3))})


AXES_REFUSED = [
    (lambda: trained(Adam().bind(optax, axis_name="data")), UnsupportedError,
     "Adam was bound with axis_name='data', and there is no axis of the name 'data' here. Call update inside of"),
    (lambda: in_vmap(Adam().bind(optax, axis_name=("data", "b"))), UnsupportedError, "of the name 'b' here"),
    (lambda: in_vmap(LAMB().bind(optax, axis_name="data")), UnsupportedError, "LAMB.* needs w whole, but it is in"),
    (lambda: Adam().bind(optax, axis_name=3), HyperTypeError, "name of an axis or a tuple of names; got 3"),
    (lambda: Adam().bind(optax, axis_name=("x", 3)), HyperTypeError, "got \\('x', 3\\)"),
]


@pytest.mark.parametrize("call, error, said", AXES_REFUSED)
def test_refusals_of_axes(call, error, said):
    with pytest.raises(error, match=said):
        call()


def test_zz_table():
    """Prints the differences from optax. The name makes it run last."""
    assert FAR, "no case has run"
    print("\nmax|d| / max|w| after 100 steps\n{:18}{:>17}{:>17}{:>17}".format("", *FORMS))
    for name, _, _, _ in BESIDE:
        cells = [FAR.get((name, form)) for form in FORMS]
        print("{:18}{:>17}{:>17}{:>17}".format(name, *("" if each is None else "%.1e" % each for each in cells)))
