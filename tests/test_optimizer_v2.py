"""The optimizer_v2 target: training, saving and changing a model with every OptimizerV2 of tf.keras here.

The battery checks the numbers for gradients that tests pass in. Here Keras computes them, or results are compared with
stock.
"""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

import everstep
import harness
import keras_suite
from everstep.errors import DefinitionError, GradientError, HyperValueError, SlotError, UnsupportedError
from everstep.optimizers import SGD, AdagradDecay, Adam
from keras_suite import difference, same

HERE = keras_suite.available_modules().get("optimizer_v2")
if not HERE:
    pytest.skip("no OptimizerV2 is in this environment", allow_module_level=True)

NAME, MODULE = HERE[0]


class OptimizerV2Keras(keras_suite.Keras2):
    @property
    def legacy(self):
        takes_format = "use_legacy_format" in harness.arguments_of(self.keras.optimizers.serialize)
        return {"use_legacy_format": True} if takes_format else {}

    @property
    def formats(self):
        formats = {"h5": (".h5", "save", {"save_format": "h5"}),
                   "weights": (".checkpoint", "save_weights", {"save_format": "tf"})}
        if self.eager:  # TF 1.14 cannot save one in graph mode, TF 1.15 cannot train a loaded one
            formats["saved model"] = "", "save", {"save_format": "tf"}
        is_zip = hasattr(getattr(self.keras, "saving", None), "deserialize_keras_object")  # from 2.12 on
        # they load no such optimizer; stock cannot either
        if is_zip and not tf.__version__.startswith(("2.13.", "2.14.")):
            formats["keras"] = ".keras", "save", {"save_format": "keras"}
        return formats


API = OptimizerV2Keras(NAME, MODULE)
tf, keras, K, BASE, EAGER, INPUTS, OUTPUTS = API.tf, API.keras, API.K, API.base, API.eager, API.INPUTS, API.OUTPUTS
v1 = tf.compat.v1
build, compiled, compile_, fit, stepper = API.build, API.compiled, API.compile, API.fit, API.stepper
variable, constant, slices, number, schedule = API.variable, API.tensor, API.slices, API.number, API.schedule

eager_only = pytest.mark.skipif(not EAGER, reason="this TensorFlow executes in graphs alone")


@pytest.fixture(autouse=True)
def _fresh_graph():
    K.clear_session()


class TestShared(keras_suite.SharedTests, keras_suite.Keras2Tests):
    api = API


# Ways to train.


def test_in_a_separate_graph_and_session():
    """In a graph of TF 1.x, on TF 2 too."""
    with v1.Graph().as_default():
        weight = v1.get_variable("W", initializer=tf.constant([1.0, 2.0]), use_resource=True)
        optimizer = SGD(0.25, momentum=0.5).bind(MODULE)
        loss = tf.reduce_sum(tf.square(weight))
        train_op = optimizer.apply_gradients([(v1.gradients(loss, weight)[0], weight)])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for _ in range(2):
                session.run(train_op)
            # 1 -> 1 - 0.5 = 0.5. Then the velocity goes from -0.5 to -0.25 - 0.25 = -0.5, so the weight is 0.
            assert session.run(weight).tolist() == [0.0, 0.0]
            assert session.run(optimizer.iterations) == 2
        names = sorted(each.name for each in v1.global_variables())
    assert names == ["SGD/W/velocity:0", "SGD/iter:0", "SGD/learning_rate:0", "SGD/momentum:0", "W:0"]


# Clipping. The learning rate is 1, so the change is the clipped gradient.

DENSE_GRAD = np.array([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]], "float32")
REPEATED = ([[1.0, 0.0], [2.0, 0.0], [0.0, 4.0]], [0, 0, 1])  # the same gradient, with row 0 in two parts
BOUNDS = [{"clipnorm": 1.0}, {"clipvalue": 2.5}, {"global_clipnorm": 1.0}]
CLIPPED = {"clipnorm": DENSE_GRAD / 5, "clipvalue": np.minimum(DENSE_GRAD, 2.5), "global_clipnorm": DENSE_GRAD / 5}


@pytest.mark.shared
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("way", ["apply_gradients", "minimize", "fit"])
@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: list(bound)[0])
def test_clipping(bound, way, sparse):
    """In TF 2.0 and 2.1 stock optimizers clip only in `minimize`, and clip equal rows separately."""
    if "global_clipnorm" in bound and not hasattr(BASE, "global_clipnorm"):
        with pytest.raises(DefinitionError, match="global_clipnorm"):
            SGD(1.0).bind(MODULE, **bound)
        return
    optimizer = SGD(1.0).bind(MODULE, **bound)
    if way == "fit":
        change = _change_of_fit(optimizer, sparse)
    else:
        weight = variable(np.zeros((3, 2)))
        if way == "apply_gradients":
            grad = slices(REPEATED[0], REPEATED[1], [3, 2]) if sparse else constant(DENSE_GRAD)
            stepper(optimizer, [(grad, weight)])()
        else:
            train_op = optimizer.minimize(lambda: _loss(weight, sparse), [weight])
            EAGER or K.get_session().run(train_op)
        change = -K.get_value(weight)
    np.testing.assert_allclose(change, CLIPPED[list(bound)[0]], rtol=1e-6)
    assert optimizer.get_config()[list(bound)[0]] == list(bound.values())[0]


def test_each_gradient_is_clipped_by_its_own_norm():
    one, two, optimizer = variable([0.0, 0.0]), variable([0.0]), SGD(1.0).bind(MODULE, clipnorm=1.0)
    stepper(optimizer, [(constant([3.0, 4.0]), one), (constant([-0.5]), two)])()
    np.testing.assert_allclose(K.get_value(one), [-0.6, -0.8], rtol=1e-6)
    assert K.get_value(two).tolist() == [0.5]


def _loss(weight, sparse):
    if sparse:
        return tf.reduce_sum(tf.gather(weight, REPEATED[1]) * constant(REPEATED[0]))
    return tf.reduce_sum(weight * constant(DENSE_GRAD))


def _change_of_fit(optimizer, sparse):
    if sparse:
        model = keras.Sequential([keras.layers.Embedding(3, 2, input_length=3, embeddings_initializer="zeros")])
        model.compile(optimizer, lambda targets, outputs: tf.reduce_sum(targets * outputs))
        x, y = np.array([REPEATED[1]]), np.array([REPEATED[0]], "float32")
    else:
        layer = keras.layers.Dense(2, use_bias=False, kernel_initializer="zeros", input_shape=(3,))
        model = keras.Sequential([layer])
        model.compile(optimizer, lambda targets, outputs: tf.reduce_sum(targets * outputs))
        x, y = np.eye(3, dtype="float32"), DENSE_GRAD
    model.fit(x, y, batch_size=3, verbose=0)
    return -model.get_weights()[0]


# Hypers.


@eager_only
def test_a_function_is_traced_once():
    """Even though its first step creates the slots. With a stock optimizer it is then traced twice."""
    weights, optimizer, traced = [variable([0.0]), variable([0.0, 0.0])], Adam(0.5).bind(MODULE), []

    @tf.function
    def step():
        traced.append(1)
        optimizer.apply_gradients([(tf.ones_like(weight), weight) for weight in weights])

    step()
    step()
    assert len(traced) == 1
    assert [weight.shape for weight in optimizer.weights] == [(), (1,), (2,), (1,), (2,)]
    for weight in weights:
        np.testing.assert_allclose(weight.numpy(), -1.0, rtol=1e-4)


@eager_only
def test_the_third_argument_of_apply_gradients():
    if "experimental_aggregate_gradients" not in harness.arguments_of(BASE.apply_gradients):
        pytest.skip("TF 2.0 and 2.1 have no third argument")
    weight = tf.Variable([1.0])
    SGD(0.5).bind(MODULE).apply_gradients([(tf.constant([1.0]), weight)], None, False)
    assert weight.numpy().tolist() == [0.5]


def test_K_set_value_before_the_first_step():
    weight, optimizer = variable([0.0]), SGD(0.5).bind(MODULE)
    K.set_value(optimizer.lr, 0.25)
    stepper(optimizer, [(constant([1.0]), weight)])()
    assert K.get_value(weight).tolist() == [-0.25]


@pytest.mark.parametrize("steps", [0, 1])
def test_a_rate_that_a_wrapper_sets(steps):
    """Lookahead of TensorFlow Addons hands its rate over in this way."""
    weight, optimizer = variable([0.0]), SGD(0.5).bind(MODULE)
    for _ in range(steps):
        stepper(optimizer, [(constant([0.0]), weight)])()
    optimizer._set_hyper("learning_rate", 0.25)
    with pytest.raises(HyperValueError, match="learning_rate"):
        optimizer._set_hyper("learning_rate", float("nan"))
    stepper(optimizer, [(constant([1.0]), weight)])()
    assert K.get_value(weight).tolist() == [-0.25] and float(K.get_value(optimizer.lr)) == 0.25


# Weights and slots.


def test_weights_in_their_order():
    optimizer = everstep.accumulate(Adam(0.1), steps=2).bind(MODULE)
    assert optimizer.get_weights() == []
    one, two = variable([1.0, 2.0], name="one"), variable([3.0], name="two")
    stepper(optimizer, [(constant([1.0, 1.0]), one), (constant([1.0]), two)])()
    names = ["/".join(each.name.split(":")[0].split("/")[-2:]) for each in optimizer.weights]
    assert [name.split("/")[-1] for name in names] == ["iter", "pending", "steps", "m", "m", "v", "v", "sum", "sum"]
    assert [each.name for each in optimizer.variables()] == [each.name for each in optimizer.weights]
    weights = optimizer.get_weights()
    assert [weight.shape for weight in weights] == [(), (), ()] + [(2,), (1,)] * 3
    assert [int(weight) for weight in weights[:3]] == [0, 1, 1]
    doubled = [weight * 2 for weight in weights]
    optimizer.set_weights(doubled)
    assert same(optimizer.get_weights(), doubled)
    for wrong in (weights[:-1], weights + weights[:1], weights[:-1] + [np.zeros(5)], []):
        with pytest.raises(SlotError, match="has 9 weights"):
            optimizer.set_weights(wrong)
    assert same(optimizer.get_weights(), doubled)


def test_names_of_slots():
    optimizer = AdagradDecay(0.1, decay_steps=1).bind(MODULE)
    stepper(optimizer, [(constant(np.ones((3, 2))), variable(np.ones((3, 2))))])()
    assert optimizer.get_slot_names() == ["accumulator"]  # `decays` has another shape: see the module
    assert Adam(amsgrad=True).bind(MODULE).get_slot_names() == []  # as in stock: only those created so far


# Files.


@eager_only
def test_a_checkpoint_restored_before_anything_is_built(tmpdir):
    """Slots are then created in the checkpoint's order. get_weights, and with it HDF5, keeps its own order."""
    path = str(tmpdir.join("checkpoint"))

    def run(steps, restore):
        variables = {name: variable([start]) for name, start in [("a", 1.0), ("b", 2.0)]}
        optimizer = Adam(0.1).bind(MODULE)
        checkpoint = tf.train.Checkpoint(optimizer=optimizer, **variables)
        if restore:
            status = checkpoint.restore(path)
        for _ in range(steps):
            optimizer.apply_gradients([(constant([1.0]), variables["b"]), (constant([0.5]), variables["a"])])
        if restore:
            status.assert_consumed()
        return checkpoint, [K.get_value(each) for _, each in sorted(variables.items())] + optimizer.get_weights()

    checkpoint, _ = run(3, False)
    path = checkpoint.save(path)
    _, expected = run(5, False)
    _, actual = run(2, True)
    assert same(actual, expected)


@eager_only
def test_a_checkpoint_of_another_optimizer(tmpdir):
    weight, stock = variable([1.0]), API.stock("RMSprop", 0.1)
    stock.apply_gradients([(constant([1.0]), weight)])
    path = tf.train.Checkpoint(optimizer=stock, weight=weight).write(str(tmpdir.join("checkpoint")))
    with pytest.warns(everstep.StateWarning, match="'rms', of another optimizer"):
        tf.train.Checkpoint(optimizer=Adam().bind(MODULE), weight=variable([1.0])).restore(path)
    other = variable([5.0])
    tf.train.Checkpoint(weight=other).restore(path).expect_partial()
    assert same([K.get_value(other)], [K.get_value(weight)])


class Idle(keras.layers.Layer):
    """Has a variable that no output depends on."""

    def build(self, shape):
        self.idle = self.add_weight("idle", shape=(2,), initializer="ones")
        super(Idle, self).build(shape)

    def call(self, inputs):
        return inputs


def idle_model(optimizer):
    model = keras.Sequential([Idle(input_shape=(3,)), keras.layers.Dense(2)])
    compile_(model, optimizer, traced=False)
    return model


def test_a_variable_without_gradient_does_not_spoil_a_file(tmpdir):
    """Loaders create slots for every trainable variable, so the positions must match."""
    model = idle_model(Adam(0.01).bind(MODULE))
    try:
        fit(idle_model(MODULE.optimizers.Adam(0.01) if hasattr(MODULE, "optimizers") else MODULE.Adam(0.01)))
    except ValueError:  # in Keras's graphs stock raises
        with pytest.raises(GradientError, match="no gradient for idle"):
            fit(model)
        return
    fit(model)
    path = str(tmpdir.join("model.h5"))
    model.save(path)
    loaded = keras.models.load_model(path, custom_objects=dict(everstep.custom_objects(MODULE), Idle=Idle))
    assert same(loaded.optimizer.get_weights(), model.optimizer.get_weights())
    assert len(model.optimizer.get_weights()) == 7


def test_some_gradients_are_missing():
    optimizer, with_grad, without = SGD(1.0, momentum=0.5).bind(MODULE), variable([1.0]), variable([1.0])
    stepper(optimizer, [(None, without), (constant([1.0]), with_grad)])()
    assert [K.get_value(each).tolist() for each in (with_grad, without)] == [[0.0], [1.0]]
    assert K.get_value(optimizer.get_slot(without, "velocity")).tolist() == [0.0]


# Constraints, mixed precision, wrapping optimizers, two groups of variables.


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_constraints(sparse):
    """Stock refuses a sparse gradient of a constrained variable."""
    weight = variable(np.ones((3, 1)), constraint=keras.constraints.NonNeg())
    grad = slices([[2.0], [2.0], [0.25]], [0, 0, 1], [3, 1]) if sparse else constant([[4.0], [0.25], [0.0]])
    stepper(SGD(1.0).bind(MODULE), [(grad, weight)])()
    assert K.get_value(weight).tolist() == [[0.0], [0.75], [1.0]]


@pytest.mark.parametrize("loss_scale", [False, True], ids=["plain", "loss scale"])
def test_mixed_precision(loss_scale):
    precision = getattr(keras, "mixed_precision", None)
    if not hasattr(precision, "LossScaleOptimizer"):
        pytest.skip("mixed precision is experimental before TF 2.4")
    results = []
    for optimizer in (SGD(0.01, momentum=0.5).bind(MODULE), API.stock("SGD", 0.01, momentum=0.5)):
        layer = keras.layers.Dense(2, dtype=precision.Policy("mixed_float16"), input_shape=(3,))
        model = keras.Sequential([layer])
        model.set_weights([np.ones((3, 2)) * 0.1, np.zeros(2)])
        model.compile(precision.LossScaleOptimizer(optimizer) if loss_scale else optimizer, "mse")
        fit(model)
        assert [each.dtype.name for each in model.trainable_variables] == ["float32"] * 2
        assert np.isfinite(model.get_weights()[0]).all() and abs(model.get_weights()[0] - 0.1).max() > 0.01
        results.append(model.get_weights() + [number(optimizer.iterations)])
    assert difference(results[0][:2], results[1][:2]) <= 1e-6
    assert results[0][2] == results[1][2] > 0


def test_a_wrapper_that_hands_over_single_variables():
    """The wrappers of tensorflow_addons do so: they share `iterations` and call the inner optimizer's hooks."""

    class Outer(BASE):
        def __init__(self, inner):
            super(Outer, self).__init__("Outer")
            self._inner = inner
            for hook in "_create_slots _create_hypers _prepare _resource_apply_dense _resource_apply_sparse".split():
                setattr(self, hook, getattr(inner, hook))

        def apply_gradients(self, grads_and_vars, name=None, **native):
            self._inner._iterations = self.iterations
            return super(Outer, self).apply_gradients(grads_and_vars, name=name, **native)

        def get_config(self):
            return {}

    results = []
    for wrap in (lambda inner: inner, Outer):
        optimizer = wrap(Adam(0.1).bind(MODULE))
        dense, rows = variable([1.0, 2.0]), variable(np.ones((3, 2)))
        pairs = [(constant([1.0, -1.0]), dense), (slices([[1.0, 2.0], [1.0, 0.0]], [1, 1], [3, 2]), rows)]
        step = stepper(optimizer, pairs)
        for _ in range(3):
            step()
        assert number(optimizer.iterations) == 3
        results.append([K.get_value(dense), K.get_value(rows)])
    assert difference(*results) <= 1e-6
    with pytest.raises(UnsupportedError, match="apply_gradients"):
        stepper(Outer(everstep.accumulate(SGD(), 2).bind(MODULE)), [(constant([1.0]), variable([1.0]))])()


def test_applied_twice_in_a_step():
    """Two groups of variables make two updates: `iterations` moves twice, and the second group starts at t = 2."""
    optimizer, one, two = Adam(0.1).bind(MODULE), variable([0.0]), variable([0.0])
    for weight in (one, two):
        stepper(optimizer, [(constant([1.0]), weight)])()
    assert number(optimizer.iterations) == 2
    np.testing.assert_allclose(K.get_value(one), [-0.1], rtol=1e-4)
    second = 0.1 * np.sqrt(1 - 0.999**2) / (1 - 0.9**2) * 0.1 / np.sqrt(0.001)
    np.testing.assert_allclose(K.get_value(two), [-second], rtol=1e-4)
    counting = everstep.accumulate(SGD(0.1), 2).bind(MODULE)
    stepper(counting, [(constant([1.0]), one)])()
    with pytest.raises(UnsupportedError, match="all variables in one call"):
        stepper(counting, [(constant([1.0]), two)])()


def test_accumulate_in_a_model_compiled_again():
    optimizer = everstep.accumulate(SGD(0.1), steps=2).bind(MODULE)
    model = compiled(optimizer, traced=False)
    start = model.get_weights()
    model.train_on_batch(INPUTS[:8], OUTPUTS[:8])
    compile_(model, optimizer, traced=False)
    assert same(model.get_weights(), start)
    model.train_on_batch(INPUTS[:8], OUTPUTS[:8])
    assert not same(model.get_weights(), start)
    assert number(optimizer.iterations) == 1


# In the order of stock.


def in_stocks_order():
    """Yields (definition with all slots, the stock table's slots in the order of get_weights) of each stock class."""
    options = {"Adam": {"amsgrad": True}, "RMSprop": {"momentum": 0.5, "centered": True}, "SGD": {"momentum": 0.5}}
    for entry in harness.entries_of("optimizer_v2"):
        yield entry.make(options.get(entry.native, {})), entry.blocks


@pytest.mark.parametrize("definition, blocks", list(in_stocks_order()), ids=lambda value: type(value).__name__)
def test_weights_have_the_order_of_the_stock_table(definition, blocks):
    optimizer, weights = definition.bind(MODULE), [variable([1.0, 2.0], name=name) for name in ("one", "two")]
    stepper(optimizer, [(constant([1.0, 1.0]), each) for each in weights])()
    expected = [optimizer.get_slot(each, slot.name) for block in blocks for each in weights for slot in block]
    assert list(map(id, optimizer.weights[-len(expected):])) == list(map(id, expected))


@eager_only
@pytest.mark.parametrize("name, arguments", [("Adam", {}), ("Adam", {"amsgrad": True}), ("SGD", {"momentum": 0.5}),
                                             ("RMSprop", {"momentum": 0.5, "centered": True}), ("Ftrl", {})])
def test_a_list_of_stocks_weights_is_taken_in_its_order(name, arguments):
    """Both variables have one shape, so that no shape tells a wrong order."""
    start, grads = ([1.0, 2.0], [3.0, 4.0]), (constant([1.0, -2.0]), constant([0.5, 3.0]))
    stock = getattr(harness.ByGet(getattr(MODULE, "optimizers", MODULE)), name)(0.1, **arguments)
    ours = everstep.from_native(stock).bind(MODULE)
    theirs, weights = ([variable(each) for each in start] for _ in range(2))
    for optimizer, trained in ((stock, theirs), (ours, weights)):
        optimizer.apply_gradients(list(zip(grads, trained)))
    ours.set_weights([value * 2 for value in stock.get_weights()])
    stock.set_weights([value * 2 for value in stock.get_weights()])
    for optimizer, trained in ((stock, theirs), (ours, weights)):
        optimizer.apply_gradients(list(zip(grads, trained)))
    for one, other in zip(theirs, weights):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-6)


@pytest.mark.parametrize("order", ["of stock", "variable by variable"])
def test_a_file_is_read_by_the_names_of_its_weights(tmp_path, order):
    """Everstep stored slots variable by variable before its first release."""
    h5py, path = pytest.importorskip("h5py"), str(tmp_path / "model.h5")
    size = INPUTS.shape[1]
    model = keras.Sequential([keras.layers.Dense(size, input_shape=(size,), name="one"),
                              keras.layers.Dense(size, name="two"), keras.layers.Dense(OUTPUTS.shape[1])])
    compile_(model, Adam(0.1).bind(MODULE))
    fit(model)
    model.save(path, save_format="h5")
    if order != "of stock":
        with h5py.File(path, "r+") as file:
            group = file["optimizer_weights"]
            names = [name if isinstance(name, bytes) else name.encode() for name in group.attrs["weight_names"]]
            half = len(names) // 2  # iter, then m of all, then v of all
            pairs = zip(names[1 : half + 1], names[half + 1 :])
            group.attrs["weight_names"] = names[:1] + [name for pair in pairs for name in pair]
    state = everstep.read_checkpoint(path)
    for each in model.trainable_weights:
        found = state.slots[next(name for name in state.slots if each.name.split(":")[0] in name)]
        for slot in "mv":
            np.testing.assert_array_equal(np.asarray(found[slot]), K.get_value(model.optimizer.get_slot(each, slot)))


# Names that do not depend on the first call.

FIRST = {
    "a step": lambda optimizer, weight: stepper(optimizer, [(constant([1.0]), weight)])(),
    "iterations": lambda optimizer, weight: optimizer.iterations,
    "slots": lambda optimizer, weight: optimizer._create_slots([weight]),
    "a slot": lambda optimizer, weight: optimizer.add_slot(weight, "m"),
    "hypers": lambda optimizer, weight: optimizer._create_hypers(),
    "all weights": lambda optimizer, weight: optimizer._create_all_weights([weight]),
}


@eager_only
@pytest.mark.parametrize("first", sorted(FIRST))
def test_names_do_not_depend_on_the_first_call(first):
    weight, optimizer = variable([1.0], name="kernel"), Adam(0.1).bind(MODULE, name="Mine")
    if first == "all weights" and not hasattr(optimizer, "_create_all_weights"):
        pytest.skip("OptimizerV2 has this method from TF 2.3 on")
    FIRST[first](optimizer, weight)
    FIRST["a step"](optimizer, weight)
    kernel = weight.name.split(":")[0]
    names = ["iter"] + ["{}/{}".format(kernel, slot) for slot in "mv"]
    assert [each.name for each in optimizer.weights] == ["Mine/{}:0".format(name) for name in names]
    hypers = [each.name for each in optimizer._hyper.values() if hasattr(each, "name")]
    assert hypers and all(name.startswith("Mine/") for name in hypers)


# get_updates, in a function of Keras's backend.


@pytest.mark.parametrize("definition", [None, SGD(0.5, momentum=0.5), everstep.accumulate(SGD(0.5), 2)], ids=[
    "stock", "SGD", "accumulate"])
def test_get_updates_in_a_function_of_the_backend(definition):
    """With eager TensorFlow, up to 2.3, Keras has a graph of its own; newer ones have none that a loss could be in.

    TF 2.3 makes the updates still, but its functions take none.
    """
    stock = getattr(MODULE, "optimizers", MODULE).SGD  # MODULE may be tf.keras.optimizers.legacy
    optimizer = stock(0.5, momentum=0.5) if definition is None else definition.bind(MODULE)
    layer, place = keras.layers.Dense(1, kernel_initializer="ones", use_bias=False), keras.layers.Input((2,))
    loss = K.mean(layer(place))
    if EAGER and not hasattr(loss, "graph"):  # a KerasTensor
        with pytest.raises(TypeError):
            optimizer.get_updates(loss, layer.trainable_weights)
        return
    updates = optimizer.get_updates(loss, layer.trainable_weights)
    if EAGER and tf.__version__.startswith("2.3."):
        with pytest.raises(ValueError, match="updates"):
            K.function([place], [loss], updates=updates)
        return
    step = K.function([place], [loss], updates=updates)
    for _ in range(2):
        step([np.ones((4, 2), "float32")])
    # The gradient is 1. Momentum: 1 - 0.5 - (0.25 + 0.5). Of two accumulated steps there is one update.
    count, after = (1, 0.5) if hasattr(definition, "steps") else (2, -0.25)
    assert K.get_value(layer.kernel).tolist() == [[after], [after]]
    assert K.get_value(optimizer.iterations) == count


def test_a_schedule_of_ours_is_one_of_keras_too():
    """TensorBoard draws the rate of such a schedule alone."""
    schedule = everstep.InverseTimeDecay(0.5, rate=1.0)
    optimizer = SGD(schedule).bind(MODULE)
    schedules = harness.bound(optimizer).adapter.schedules(harness.base_of(MODULE))
    for shown in (optimizer.lr, optimizer.learning_rate):
        assert isinstance(shown, schedules.LearningRateSchedule) and isinstance(shown, everstep.Schedule)
        assert shown == schedule and schedule == shown and repr(shown) == repr(schedule) and shown.rate == 1.0
        assert K.get_value(shown(3)) == 0.125
    with pytest.raises(HyperValueError, match="cannot be set"):
        optimizer.lr = shown
