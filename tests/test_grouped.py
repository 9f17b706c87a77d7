"""Updates of many variables in one call: the kernels and blocks of torch, and the order of jitted steps on JAX."""
from __future__ import absolute_import, division, print_function

import functools

import numpy as np
import pytest

import everstep
import harness
import runs
import test_battery as battery
from everstep.optimizers import SGD, AdaBelief, Adagrad, Adam, AdamW, DiffGrad, Lion
from everstep.optimizers.contract.verbs import defines
from everstep.testing import oracle

WAYS = [way for way in harness.all_ways() if way.target == "keras3" and not way.sparse]
if not WAYS:
    pytest.skip("no Keras 3 on torch or JAX is in this environment", allow_module_level=True)

keras = WAYS[0].module
BACKEND = keras.backend.backend()
on_torch = pytest.mark.skipif(BACKEND != "torch", reason="about torch")
on_jax = pytest.mark.skipif(BACKEND != "jax", reason="about JAX")
if BACKEND == "torch":
    import torch
else:
    import jax

# Many small variables are joined to a block, a large one is cut into several.
SHAPES = {"w%d" % number: (3, number % 5 + 1) for number in range(12)}
SHAPES.update(large=(300, 1100), single=(), empty=(0, 2), vector=(7,))
PLAIN = {"kernel": False, "flattened": False}


@pytest.fixture(autouse=True)
def _fresh_names():
    keras.utils.clear_session()


def short(value):
    """Returns the name of a parameter of a test; None for pytest's own."""
    return value._short().replace("learning_rate=", "") if isinstance(value, everstep.Definition) else None


def starts(shapes=None, dtype="float32"):
    random = np.random.RandomState(0)
    return {name: random.normal(1, 0.5, shape).astype(dtype) for name, shape in sorted((shapes or SHAPES).items())}


def gradients(steps, shapes=None, dtype="float32"):
    random, shapes = np.random.RandomState(1), shapes or SHAPES
    return [{name: random.normal(0, 1, shape).astype(dtype) for name, shape in sorted(shapes.items())}
            for _ in range(steps)]


def started(make, start):
    """Returns a run of the optimizer that `make()` returns; `make` may be a definition."""
    kinds = dict.fromkeys(start, harness.DENSE)
    if isinstance(make, everstep.Definition):
        return runs.started(WAYS[0], make, start, kinds)
    return harness.opened(WAYS[0].run(make, start, kinds))


def train(definition, batches, start=None, lowering=None, **native):
    make = lambda: definition.bind(keras, lowering=lowering, **native)  # noqa: E731
    return runs.stepped(started(make, start or starts()), batches)


def apart(one, other):
    """Returns the largest difference, relative to each variable; a weight of one element may stand near 0 by chance."""
    return max(np.abs(one[name] - other[name]).max() / max(np.abs(other[name]).max(), 0.25)
               for name in one if one[name].size)


def variables(run):
    return [run.variables[name] for name in run.names]


def array(variable):
    return np.array(keras.ops.convert_to_numpy(variable.value))


def strategies(run):
    return {each.strategy for each in run.optimizer.everstep_plan()}


def distance(actual, expected):
    return max(oracle.distance(actual[name], expected[name]) for name in expected if expected[name].size)


KERNELS = [
    Adam(0.1), Adam(0.1, amsgrad=True), Adam(0.1, epsilon=0.5, beta_1=0.5), AdamW(0.1, weight_decay=0.1),
    AdamW(0.1, weight_decay=0.1, decay_times_rate=False), SGD(0.1), SGD(0.1, momentum=0.9),
    SGD(0.1, momentum=0.9, rate_in_velocity=False), SGD(0.1, momentum=0.9, rate_in_velocity=False, nesterov=True),
    SGD(0.1, momentum=0.9, nesterov=True), Adagrad(0.1), Adagrad(0.1, epsilon=0.0),
]
BLOCKS = [Adagrad(0.1, epsilon_in_root=True), AdaBelief(0.1), DiffGrad(0.1), Lion(0.1),
          everstep.grokfast(Lion(0.1)), everstep.accumulate(Lion(0.1), 2)]
INNER = Adam(0.1, epsilon=1e-3)
WRAPPED = [  # a kernel, and something before or after it; without kernels, blocks
    everstep.decoupled_weight_decay(Adam(0.1), 0.1), everstep.clip(Adam(0.1), global_norm=1.0),
    everstep.moving_average(Adam(0.1)), everstep.accumulate(INNER, 3),
    everstep.accumulate(everstep.clip(INNER, global_norm=1.0), 2, reduction="sum"),
    everstep.moving_average(everstep.accumulate(SGD(0.1, momentum=0.9), 2)),
    everstep.decoupled_weight_decay(everstep.clip(AdamW(0.1, weight_decay=0.1), global_norm=1.0), 0.3),
    everstep.moving_average(everstep.lookahead(INNER, 3), 0.9), everstep.grokfast(Adagrad(0.1)),
    everstep.stochastic_weight_averaging(SGD(0.1, momentum=0.9, nesterov=True), 2, 2),
    everstep.learning_rate_multipliers(INNER, {".": 0.5}),
]
EACH = [(each, "kernel") for each in KERNELS + WRAPPED] + [(each, "flattened") for each in BLOCKS + WRAPPED]


@on_torch
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("definition, strategy", harness.share(EACH, 2), ids=short)
def test_each_rule_equals_the_float64_oracle(definition, strategy, dtype):
    batches, start = gradients(8, dtype=dtype), starts(dtype=dtype)
    run = train(definition, batches, start, None if strategy == "kernel" else {"kernel": False})
    assert strategies(run) == {strategy}
    expected, slots = oracle.trajectory(definition, start, batches)
    bound = 2e-6 if dtype == "float32" else 2e-7  # sums and scalars are of float32
    assert distance(run.weights(), expected) <= bound
    assert distance(run.weights(), start) > 0.01
    for name, variable in zip(run.names, variables(run)):
        for slot, value in slots[name].items():
            actual = keras.ops.convert_to_numpy(run.optimizer.get_slot(variable, slot).value)
            assert not actual.size or oracle.distance(actual, value) <= bound, (name, slot)


@on_torch
@pytest.mark.parametrize("definition_class, settings", harness.share(
    [each for each in battery.CONFIGURED if each[0].stages == 1], 6))
def test_every_definition_is_the_same_together_and_alone(definition_class, settings):
    more = {"epsilon": 1e-3} if definition_class.takes("epsilon") else {}
    if definition_class.takes("beta"):  # Tiger's: halves are exact, so no sign depends on the order of operations
        more["beta"] = 0.5
    definition, batches = battery.define(definition_class, settings, **more), gradients(4)
    alone = train(definition, batches, lowering=PLAIN)
    assert strategies(alone) == {"plain"}
    for lowering in (None, {"kernel": False}):
        together = train(definition, batches, lowering=lowering)
        if definition.locality == "element":
            assert "plain" not in strategies(together) or everstep.optimizers.contract.defines(definition, "measure")
        one, other = together.weights(), alone.weights()
        if definition.family == "signs":  # of an average near 0, rounding may turn the sign: of three elements at most
            turned = {name: np.abs(one[name] - other[name]) > 1e-5 for name in one}
            assert sum(map(np.sum, turned.values())) <= 3
            one = {name: np.where(turned[name], other[name], one[name]) for name in one}
        # a variable that is updated alone gets hypers and powers of betas as float32 tensors
        difference = apart(one, other)
        assert difference <= 4e-6, (difference, strategies(together))


@on_torch
@pytest.mark.parametrize("name, settings", [
    ("Adam", {}), ("Adam", {"amsgrad": True}), ("AdamW", {}), ("SGD", {"momentum": 0.9}), ("Adagrad", {})])
def test_kernels_beside_stock(name, settings):
    ours, stock = (getattr(optimizers, name) for optimizers in (everstep.optimizers, keras.optimizers))
    expected = runs.stepped(started(lambda: stock(0.01, **settings), starts()), gradients(20))
    assert distance(train(ours(0.01, **settings), gradients(20)).weights(), expected.weights()) <= 2e-6


@on_torch
def test_a_kernel_after_2_to_the_24_updates():
    start, updates = {"w": np.ones(3, "float32")}, 2**24 + 1
    run = started(Adam(0.1, beta_2=1 - 2.0**-20), start)
    run.optimizer.iterations.assign(updates)
    runs.stepped(run, gradients(3, {"w": (3,)}))
    assert strategies(run) == {"kernel"}
    expected, _ = oracle.trajectory(run.optimizer.definition, start, gradients(3, {"w": (3,)}), updates=updates)
    assert distance(run.weights(), expected) <= 2e-6


# Gradients and variables that share memory.


def after_sharing(definition, sizes, sharing, lowering=None):
    """Returns the weights after three steps on gradients in the optimizer's own memory, and on copies of them."""
    results = []
    for copied in (False, True):
        variables = [keras.Variable(np.arange(1.0 + place, 1 + place + size).astype("float32"))
                     for place, size in enumerate(sizes)]
        optimizer = definition.bind(keras, lowering=lowering)
        optimizer.build(variables)
        for _ in range(3):
            grads = sharing(optimizer, variables, [variable.value.detach() for variable in variables])
            optimizer.apply([grad.clone() for grad in grads] if copied else grads, variables)
        results.append(np.concatenate([array(variable) for variable in variables]))
    return results


@on_torch
@pytest.mark.parametrize("lowering", [None, {"kernel": False}, PLAIN], ids=["kernel", "blocks", "plain"])
@pytest.mark.parametrize(
    "definition", [SGD(0.5), SGD(0.5, momentum=0.9), Adam(0.5), everstep.accumulate(Adam(0.5), 2)], ids=short)
def test_a_gradient_that_is_the_value_of_a_variable_is_read_before_it_is_written(definition, lowering):
    swapped = after_sharing(definition, (2, 2), lambda optimizer, variables, values: values[::-1], lowering)
    assert np.array_equal(*swapped)


@on_torch
@pytest.mark.parametrize("definition", [Adam(0.5), Lion(0.5)], ids=short)
def test_gradients_in_the_memory_of_a_variable_or_a_slot(definition):
    """Its own value, a part of another one's, and a slot."""
    assert np.array_equal(*after_sharing(definition, (4, 2, 2), lambda optimizer, variables, values: [
        values[0], values[0][1:3], optimizer.get_slot(variables[1], "m").value.detach()]))


@on_torch
def test_a_gradient_that_is_the_sum_itself():
    """PyTorch refuses to add to memory that overlaps: then the sum gets new memory."""
    variable, start = keras.Variable(np.arange(4.0, dtype="float32")), np.arange(1.0, 5.0)
    optimizer = everstep.accumulate(SGD(0.5), 3).bind(keras)
    optimizer.build([variable])
    total = optimizer.get_slot(variable, "accumulate/sum")
    total.assign(start)
    for _ in range(3):
        optimizer.apply([total.value.detach()], [variable])
    assert oracle.distance(array(variable), np.arange(4.0) - 0.5 * 8 * start / 3) <= 1e-6


@on_torch
@pytest.mark.parametrize("definition", [Adam(0.5), Lion(0.5)], ids=short)
def test_variables_whose_memory_changes(definition):
    """If data is replaced, transposed in place or shared, the result is as if each variable were updated alone."""
    results, plans = [], []
    for lowering in (None, PLAIN):
        run = train(definition, [], starts({"a": (3, 3), "b": (3, 3), "c": (3, 3)}), lowering)
        a, b, c = variables(run)
        batches = gradients(4, {"a": (3, 3), "b": (3, 3), "c": (3, 3)})
        run.step(batches[0])
        a.value.data = a.value.data + 1.0
        run.step(batches[1])
        b.value.data = b.value.data.t()
        run.step(batches[2])
        plans.append(strategies(run))
        c.value.data = a.value.data
        run.step(batches[3])
        results.append(run.weights())
    assert distance(*results) <= 2e-6
    assert plans[1] == {"plain"} and len(plans[0]) == 1


@on_torch
def test_two_variables_of_one_parameter():
    parameter = torch.nn.Parameter(torch.ones(3))
    variables = [keras.Variable(parameter, name=name) for name in ("a", "b")]
    assert variables[0].value.data_ptr() == variables[1].value.data_ptr()
    optimizer = SGD(0.5).bind(keras)
    optimizer.apply([torch.ones(3), torch.ones(3)], variables)
    assert parameter.tolist() == [0.0, 0.0, 0.0]  # both updates count


@on_torch
@pytest.mark.parametrize("definition", [Adam(0.5), Lion(0.5)], ids=short)
def test_stateless_apply_leaves_what_it_is_given(definition):
    variable, optimizer = keras.Variable(np.ones(3, "float32")), definition.bind(keras)
    optimizer.apply([torch.ones(3)], [variable])
    before = array(variable)
    values, state = [torch.full((3,), 5.0)], [each.value.detach().clone() for each in optimizer.variables]
    kept = [each.clone() for each in state]
    new, new_state = optimizer.stateless_apply(state, [torch.ones(3)], values)
    assert values[0].tolist() == [5.0] * 3 and all(torch.equal(a, b) for a, b in zip(state, kept))
    assert np.array_equal(array(variable), before)
    assert not torch.equal(new[0].detach(), values[0])
    assert int(new_state[0]) == 2 and int(optimizer.iterations.value) == 1


@on_torch
def test_gradients_of_other_dtypes_and_orders():
    start, batches = starts({"w": (3, 2)}), gradients(3, {"w": (3, 2)})
    for definition in (Adam(0.1), Lion(0.1)):
        expected = train(definition, batches, start).weights()["w"]
        run = started(definition, start)
        for batch in batches:
            run.optimizer.apply([torch.tensor(batch["w"].T.astype("float64").copy()).t()], variables(run))
        assert np.array_equal(run.weights()["w"], expected)


@on_torch
def test_variables_of_several_dtypes():
    start = starts({"a": (3,), "b": (3,)})
    start["b"] = start["b"].astype("float64")
    start["c"] = start["a"].astype("float16")
    given = gradients(5, {"a": (3,), "b": (3,)})
    batches = [dict(a=g["a"], b=g["b"].astype("float64"), c=g["a"].astype("float16")) for g in given]
    for definition in (Adam(0.1), Lion(0.1)):
        actual, alone = (train(definition, batches, start, lowering) for lowering in (None, PLAIN))
        assert distance(actual.weights(), alone.weights()) <= 2e-6
        planned = {each.name: each.strategy for each in actual.optimizer.everstep_plan()}
        assert planned["c"] == "plain" and "plain" not in (planned["a"], planned["b"])


# What Keras does around a step.


@on_torch
@pytest.mark.parametrize("definition", [Adam(0.1), SGD(0.1, momentum=0.9, nesterov=True)], ids=short)
@pytest.mark.parametrize("native", [
    {"weight_decay": 0.1}, {"use_ema": True, "ema_overwrite_frequency": 2}, {"global_clipnorm": 0.1},
    {"gradient_accumulation_steps": 2}, {"loss_scale_factor": 4.0}], ids=lambda native: next(iter(native)))
def test_arguments_of_the_base_class(definition, native):
    shapes = {"kernel": (3, 2), "bias": (2,)}
    together, alone = [train(definition, gradients(6, shapes), starts(shapes), each, **native)
                       for each in (None, PLAIN)]
    assert "plain" not in strategies(together)
    assert distance(together.weights(), alone.weights()) <= 2e-6


@on_torch
def test_weight_decay_that_is_set_later_leaves_excluded_variables():
    results = []
    for lowering in (None, PLAIN):
        optimizer = SGD(0.1).bind(keras, lowering=lowering)
        variables = [keras.Variable(np.ones(2, "float32"), name=name) for name in ("bias", "kernel")]
        optimizer.exclude_from_weight_decay(var_names=["bias"])
        for decay in (None, 0.5, 0.25):
            optimizer.weight_decay = decay
            optimizer.apply([torch.ones(2), torch.ones(2)], variables)
        results.append([array(variable) for variable in variables])
    assert np.allclose(*results, rtol=1e-6) and not np.array_equal(*results[0])


@on_torch
def test_a_kernel_inside_of_partition():
    start, batches = starts(), gradients(3)
    definition = everstep.partition({"small": ("^w", Adam(0.1))}, default=SGD(0.1, momentum=0.9))
    results = [train(definition, batches, start, each) for each in (None, PLAIN)]
    assert "plain" not in strategies(results[0])
    assert distance(*[each.weights() for each in results]) <= 2e-6


@on_torch
@pytest.mark.parametrize("scale", [False, True], ids=["constrained", "scaled"])
def test_fit_with_a_constraint_or_a_loss_scale(scale):
    inputs = np.random.RandomState(0).normal(0, 1, (64, 4)).astype("float32")
    results = []
    for lowering in (None, PLAIN):
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Dense(8, kernel_constraint=keras.constraints.MaxNorm(0.5)), keras.layers.Dense(1)]
        model, optimizer = keras.Sequential(layers), Adam(0.01).bind(keras, lowering=lowering)
        wrapped = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=8.0) if scale else optimizer
        model.compile(wrapped, "mse")
        model.fit(inputs, inputs[:, :1], epochs=2, batch_size=16, verbose=0, shuffle=False)
        assert np.linalg.norm(model.get_weights()[0], axis=0).max() <= 0.5 + 1e-6
        results.append(dict(enumerate(model.get_weights())))
    assert distance(*results) <= 2e-6


@on_torch
def test_a_step_outside_of_no_grad_one_variable_at_a_time():
    """A wrapper optimizer that loops over variables itself makes such calls."""
    for definition in (SGD(0.5), Lion(0.5)):
        variable, optimizer = keras.Variable(np.ones(2, "float32")), definition.bind(keras)
        optimizer.build([variable])
        optimizer.update_step(torch.ones(2), variable, 0.5)
        assert array(variable).tolist() == [0.5, 0.5]


@on_torch
def test_a_torch_without_kernels(monkeypatch):
    for name in ("_fused_adam_", "_fused_sgd_", "_fused_adagrad_"):
        monkeypatch.delattr(torch, name)
    for definition in (Adam(0.1), SGD(0.1), Adagrad(0.1)):
        run = train(definition, gradients(3))
        assert strategies(run) == {"flattened"} and "no kernel" in run.optimizer.everstep_plan()[0].why
        assert distance(run.weights(), oracle.trajectory(definition, starts(), gradients(3))[0]) <= 2e-6


@on_torch
@pytest.mark.parametrize("wrong", [np.ones((2, 2), "float32"), np.ones(3, "complex64"), np.array(["a"] * 3)], ids=str)
def test_a_wrong_gradient_after_right_ones(wrong):
    run = train(Adam(0.1), gradients(2, {"w": (3,)}), starts({"w": (3,)}))
    before = run.weights()["w"]
    with pytest.raises(everstep.errors.GradientError):
        run.optimizer.apply([torch.tensor(wrong) if wrong.dtype.kind != "U" else wrong], variables(run))
    assert np.array_equal(run.weights()["w"], before) and int(run.optimizer.iterations.value) == 2
    run.step(gradients(1, {"w": (3,)})[0])
    assert int(run.optimizer.iterations.value) == 3


def torch_lists():
    return harness.bound(Adam().bind(keras)).backend.lists


@on_torch
def test_blocks_fill_what_a_thread_computes_at_a_time():
    """2^17 elements for each thread: 10, 20 and 5 go together, and a tensor of two more than a block in two halves."""
    threads = torch.get_num_threads()
    full = 131072 * threads
    tensors = [torch.empty(size) for size in (10, 20, full + 2, 5, full, 0)]
    half = full // 2 + 1
    expected = [[(0, 0, 10), (1, 0, 20), (3, 0, 5)], [(2, 0, half)], [(2, half, half)], [(4, 0, full)]]
    assert torch_lists().blocks(tensors) == expected


@on_torch
def test_tensors_that_are_updated_in_place_are_contiguous_and_apart():
    whole, lists = torch.zeros(4, 6), torch_lists()
    assert lists.are_separate([whole[:2], whole[2:], torch.zeros(3)])
    assert not lists.are_separate([whole[:, :3]]) and not lists.are_separate([whole.T])
    assert not lists.are_separate([whole[:3], whole[2:]])
    assert not lists.are_separate([torch.zeros(3), torch.zeros(3).to_sparse()])


# JAX.


@on_jax
def test_a_jitted_step_rounds_to_16_bits():
    """XLA of JAX 0.4.30 drops a cast to 16 bits and back. Newer ones do not."""
    backend = harness.bound(Adam().bind(keras)).backend
    for dtype in ("bfloat16", "float16"):
        traced = jax.make_jaxpr(functools.partial(backend.cast, dtype=dtype))(np.ones(2, "float32"))
        assert "reduce_precision" in str(traced)


@on_jax
def test_a_jax_without_an_order(monkeypatch):
    """Before 0.11.2 no order of a jitted step is asked for; its numbers are the same."""

    def stepped():
        optimizer, variable = Adam(0.1).bind(keras), keras.Variable(np.ones(3, "float32"))
        optimizer.build([variable])
        state = [variable.value], [each.value for each in optimizer.variables]
        step = jax.jit(lambda state, grads: optimizer.stateless_apply(state[1], grads, state[0]))
        return np.array(step(state, [jax.numpy.ones(3)])[0][0])

    expected = stepped()
    monkeypatch.setattr(jax, "__version_info__", (0, 11, 1))
    assert np.array_equal(stepped(), expected)
    assert np.allclose(expected, 0.9, atol=1e-5)  # the first step of Adam is as long as the rate


IN_PLACE = [Adam(), Lion(), AdaBelief(), SGD(0.1, momentum=0.9), DiffGrad()]
IN_PLACE += [everstep.accumulate(Adam(), 4), everstep.accumulate(everstep.clip(Adam(), global_norm=1.0), 4)]


@on_jax
@pytest.mark.parametrize("definition", IN_PLACE, ids=short)
def test_a_jitted_step_updates_in_place(definition):
    """XLA copies no slot before it overwrites it. Stock Lion has such a copy of each of its slots.

    Ours too before JAX 0.11.2, whose XLA knows no order here. A norm inside of a branch takes the memory of a gradient.
    """
    size, count = 10000, 3
    variables = [keras.Variable(np.ones(size, "float32")) for _ in range(count)]
    optimizer = definition.bind(keras)
    optimizer.build(variables)
    # In the order of the results: JAX gives a result the first donated memory of its shape.
    state = [each.value for each in variables], [each.value for each in optimizer.variables]
    grads = [jax.numpy.ones(size)] * count
    step = jax.jit(lambda state, grads: optimizer.stateless_apply(state[1], grads, state[0]), donate_argnums=0)
    compiled = step.lower(state, grads).compile().memory_analysis()
    copies = 0 if jax.__version_info__ >= (0, 11, 2) else count
    assert compiled.temp_size_in_bytes < 4 * size * (1 + copies) * (2 if defines(definition, "measure") else 1)
