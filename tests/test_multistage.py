"""Rules that take several gradients per update: orders of convergence, `minimize`, `fit`, and errors."""

from __future__ import absolute_import, division, print_function

import importlib
import warnings

import numpy as np
import pytest

import everstep
import harness
import runs
from everstep.errors import DefinitionError, HyperTypeError, HyperValueError, NotBoundError, UnsupportedError
from everstep.optimizers import SGD, Adam
from everstep.optimizers.wrappers.multistage import TABLEAUS
from everstep.testing import oracle
from test_battery import ids

pytestmark = pytest.mark.shared
ONE_EACH = harness.one_of_each_target(harness.all_ways())
QUICKEST = harness.quickest()
MATRIX = np.array([[2.0, 0.3], [0.3, 1.0]])
FIRST = np.array([[1.0], [-2.0]])


def descend(way, definition, updates, slope, first=FIRST, dtype="float64"):
    """Trains a variable whose gradient is `slope(value)`. Returns its value and the state after `updates`."""
    run = runs.started(way, definition, {"w": first.astype(dtype)}, {"w": harness.DENSE})
    for _ in range(updates * definition.stages):
        run.step({"w": slope(run.weights()["w"]).astype(dtype)})
    return run.weights()["w"], run.captured()


def linear(value):
    return MATRIX.dot(value)


def exact(time):
    rates, vectors = np.linalg.eigh(MATRIX)
    return (vectors * np.exp(-rates * time)).dot(vectors.T).dot(FIRST)


@pytest.mark.parametrize("way", QUICKEST, ids=ids)
@pytest.mark.parametrize("tableau, order", [("heun", 2), ("rk23", 3), ("rk45", 5)])
def test_order_of_convergence(way, tableau, order):
    errors = []
    for updates in (2, 4):  # rates that float32 represents exactly
        value, state = descend(way, everstep.multistage(SGD(1.0 / updates), tableau), updates, linear)
        assert (state.updates, state.steps) == (updates, updates * everstep.multistage(SGD(), tableau).stages)
        errors.append(np.abs(value - exact(1.0)).max())
    assert order - 0.3 < np.log2(errors[0] / errors[1]) < order + 1.2, errors


@pytest.mark.parametrize("tableau, order", [("midpoint", 2), ("ralston", 2), ("rk4", 4)])
def test_order_of_the_others(tableau, order):
    ends = [descend(harness.NUMPY, everstep.multistage(SGD(1.0 / n), tableau), n, linear)[0] for n in (4, 8)]
    errors = [np.abs(end - exact(1.0)).max() for end in ends]
    assert order - 0.2 < np.log2(errors[0] / errors[1]) < order + 0.6


NODES = {  # and the orders of the method and of the one inside it, with which its error is estimated
    "heun": ([0, 1], 2, 1),
    "midpoint": ([0, 1 / 2], 2, 1),
    "ralston": ([0, 2 / 3], 2, 1),
    "rk23": ([0, 1 / 2, 3 / 4, 1], 3, 2),  # Bogacki & Shampine 1989
    "rk4": ([0, 1 / 2, 1 / 2, 1], 4, None),
    "rk45": ([0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1], 5, 4),  # Dormand & Prince 1980
}
EMBEDDED = {  # the weights of the method inside, in the papers
    "rk23": [7 / 24, 1 / 4, 1 / 3, 1 / 8],
    "rk45": [5179 / 57600, 0, 7571 / 16695, 393 / 640, -92097 / 339200, 187 / 2100, 1 / 40],
}


def order_conditions(matrix, nodes):
    """Yields (order, sums that the weights multiply, value): Butcher's conditions up to order 4."""
    inner = matrix.dot(nodes)
    yield 1, np.ones(len(nodes)), 1
    yield 2, nodes, 1 / 2
    yield 3, nodes**2, 1 / 3
    yield 3, inner, 1 / 6
    yield 4, nodes**3, 1 / 4
    yield 4, nodes * inner, 1 / 8
    yield 4, matrix.dot(nodes**2), 1 / 12
    yield 4, matrix.dot(inner), 1 / 24


def test_tableaus_are_those_of_the_papers():
    assert sorted(TABLEAUS) == sorted(NODES)
    for name, (nodes, order, inside) in NODES.items():
        tableau, size = TABLEAUS[name], len(nodes)
        matrix = np.array([[0.0] * size] + [list(row) + [0.0] * (size - len(row)) for row in tableau.points])
        assert np.abs(matrix.sum(axis=1) - nodes).max() < 1e-14, name
        for least, sums, value in order_conditions(matrix, np.array(nodes, float)):
            if least <= order:
                assert abs(np.dot(tableau.weights, sums) - value) < 1e-14, (name, least)
            if inside and least <= inside:
                assert abs(np.dot(tableau.error, sums)) < 1e-14, (name, least)
        assert tableau.order == (inside and inside + 1), name
        if name in EMBEDDED:
            assert np.abs(np.subtract(tableau.weights, EMBEDDED[name]) - tableau.error).max() < 1e-14, name


# A table whose touched rows change from stage to stage, and an inner rule with slots.
START = {"w": np.linspace(0.5, 1.5, 6).reshape(2, 3), "table": np.linspace(-1.0, 1.0, 12).reshape(4, 3)}
ROWS = [np.array([0, 2, 2]), np.array([2, 3, 0]), np.array([1, 1, 1])]


def look(values, stage):
    rows = ROWS[stage % 3]
    return {"w": np.sin(values["w"]) + 0.5, "table": (np.cos(values["table"][rows]) + 0.25, rows)}


def dense(values, stage):
    return {name: runs.whole(grad, values[name].shape) for name, grad in look(values, stage).items()}


def by_hand(inner, tableau, rate, updates):
    """Computes the same in float64: stage points, the weighted mean of the slopes, and the inner rule by the oracle."""
    points, weights = tableau
    means, value, stage = [], START, 0
    for _ in range(updates):
        slopes = []
        for row in ((),) + tuple(points):
            at = {name: value[name] - rate * sum((a * g[name] for a, g in zip(row, slopes)), 0.0) for name in value}
            slopes.append(dense(at, stage))
            stage += 1
        means.append({name: sum(b * g[name] for b, g in zip(weights, slopes)) for name in value})
        value, slots = oracle.trajectory(inner, START, means)
    return value, slots


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
@pytest.mark.parametrize("inner", [SGD(0.125, momentum=0.9), Adam(0.0625, epsilon=1e-3)], ids=["momentum", "Adam"])
def test_follows_the_method_worked_by_hand(way, inner):
    tableau = TABLEAUS["rk23"].points[:2], TABLEAUS["rk23"].weights[:3]
    start = {name: value.astype("float32") for name, value in START.items()}
    kinds = {"w": harness.DENSE, "table": harness.SPARSE}
    run = runs.started(way, everstep.multistage(inner, tableau), start, kinds)
    for stage in range(3 * 20):
        grads = look(run.weights(), stage)
        run.step({"w": grads["w"].astype("float32"), "table": (grads["table"][0].astype("float32"), grads["table"][1])})
    expected, slots = by_hand(inner, tableau, inner.learning_rate, 20)
    assert runs.distance(run.weights(), expected) < 4e-6
    for name in START:
        for slot in slots[name]:
            assert oracle.distance(run.slot(name, slot), slots[name][slot]) < 4e-6


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_size_follows_the_error(way):
    definition = everstep.multistage(SGD(0.03125), "rk23", tolerance=1e-4)
    updates = 12
    value, state = descend(way, definition, updates, linear)
    time, again, size = 0.0, FIRST, np.float32(1)
    for _ in range(updates):  # the same method in NumPy, with the size in float32
        rate, slopes = 0.03125 * float(size), []
        for row in ((),) + TABLEAUS["rk23"].points:
            slopes.append(linear(again - rate * sum((a * g for a, g in zip(row, slopes)), np.zeros((2, 1)))))
        off = rate * sum(e * g for e, g in zip(TABLEAUS["rk23"].error, slopes))
        error = np.sqrt(np.mean((off / (1e-4 * (1e-3 + np.abs(again)))) ** 2))
        if error <= 1:
            again = again - rate * sum(b * g for b, g in zip(TABLEAUS["rk23"].weights, slopes))
            time += rate
        size = np.float32(size * np.clip(0.9 * error ** (-1 / 3), 0.2, 5))
    assert oracle.distance(value, again) < 1e-5
    assert abs(float(state.scalars["multistage/size"]) - size) < 1e-4 * size
    assert size > 2
    assert np.abs(value - exact(time)).max() < 1e-3


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_an_update_that_is_too_far_off_is_taken_back(way):
    value, state = descend(way, everstep.multistage(Adam(2.0), "heun", tolerance=1e-6), 1, linear, dtype="float32")
    assert np.array_equal(value, FIRST.astype("float32"))
    assert state.updates == 1
    assert abs(float(state.scalars["multistage/size"]) - 0.2) < 1e-6
    assert not np.any(np.array(state.slots[list(state.slots)[0]]["v"]))


class Sharp(everstep.Definition):
    """Sharpness-aware descent (Foret et al. 2021): a rule of two gradients that is not a Runge-Kutta method."""

    learning_rate = everstep.hyper(0.1)
    rho = everstep.hyper(0.05)
    start = everstep.slot()
    stages = 2

    def measure(self, ops, grad, var, slots, hyper):
        return {"squares": everstep.total(ops.sum(grad * grad))}

    def update(self, ops, grad, var, slots, hyper, t):
        first = ops.equal(hyper.pending, 1)
        start = ops.where(first, var, slots.start)
        up = start + hyper.rho * grad / ops.sqrt(hyper.squares)
        return everstep.assign(ops.where(first, up, start - hyper.learning_rate * grad)), {"start": start}


@pytest.mark.parametrize("way", QUICKEST, ids=ids)
def test_a_rule_of_a_users_own(way):
    value, _ = descend(way, Sharp(0.125, 0.0625), 10, linear)
    expected = FIRST
    for _ in range(10):
        grad = linear(expected)
        expected = expected - 0.125 * linear(expected + 0.0625 * grad / np.sqrt(np.sum(grad * grad)))
    assert oracle.distance(value, expected) < 1e-6


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
@pytest.mark.parametrize("adaptive", [False, True])
def test_sharpness_aware(way, adaptive):
    """Foret et al. 2020 and, adaptive, Kwon et al. 2021, with momentum and a decay that sees the weights themselves."""
    inner = everstep.decoupled_weight_decay(SGD(0.125, momentum=0.5, rate_in_velocity=False), 0.25)
    value, state = descend(way, everstep.sharpness_aware(inner, 0.5, adaptive, eta=0.125), 10, linear)
    expected, velocity = FIRST, 0.0
    for _ in range(10):
        size = np.abs(expected) + 0.125 if adaptive else 1.0
        up = 0.5 * size * size * linear(expected) / np.sqrt(np.sum((size * linear(expected)) ** 2))
        velocity = 0.5 * velocity + linear(expected + up)
        expected = expected * (1 - 0.125 * 0.25) - 0.125 * velocity
    assert oracle.distance(value, expected) < 2e-6
    assert (state.updates, state.steps) == (10, 20)


def test_sharpness_aware_of_a_rule_that_measures():
    """The norm is that of the second gradient, and of the variables before the first."""
    value, _ = descend(harness.NUMPY, everstep.sharpness_aware(everstep.clip(SGD(1.0), norm=0.25), 0.5), 1, linear)
    grad = linear(FIRST)
    worse = linear(FIRST + 0.5 * grad / np.sqrt(np.sum(grad * grad)))
    assert oracle.distance(value, FIRST - 0.25 * worse / np.sqrt(np.sum(worse * worse))) < 1e-6


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_resumes_between_two_stages(way):
    definition = everstep.multistage(SGD(0.125, momentum=0.9), "rk23")

    def train(run, count):
        for _ in range(count):
            run.step({"w": linear(run.weights()["w"]).astype("float32")})
        return run

    def started():
        return runs.started(way, definition, {"w": FIRST.astype("float32")}, {"w": harness.DENSE})

    expected = train(started(), 12).weights()
    assert runs.same(train(runs.resumed(train(started(), 5)), 7).weights(), expected)


# Calls that evaluate a loss again.

HEUN = everstep.multistage(SGD(0.125), "heun")


def after_minimize(updates=3):
    return descend(harness.NUMPY, HEUN, updates, linear, dtype="float32")[0]


MINIMIZE = [way for way in harness.framework_ways() if way.target in ("optimizer_v2", "update_step", "tf_train")]


@pytest.mark.parametrize("way", MINIMIZE, ids=ids)
def test_minimize_calls_the_loss(way):
    if way.name == "tf_train ref":
        with pytest.raises(everstep.errors.VariableError, match="use_resource=True"):
            minimize(way)
        return
    value, iterations = minimize(way)
    assert oracle.distance(value, after_minimize()) < 1e-6
    assert iterations == 3


def minimize(way):
    with way.world(way.module) as world:
        variable, optimizer = world.variable(FIRST.astype("float32")), HEUN.bind(way.module)

        def take():
            slope = lambda: world.tf.matmul(world.tf.constant(MATRIX.astype("float32")), variable)  # noqa: E731
            return optimizer.minimize(lambda: world.tf.reduce_sum(variable * slope()) / 2, var_list=[variable])

        operation = take() if issubclass(way.run, harness.GraphRun) else None
        step = world.tf.function(lambda: take() and None) if issubclass(way.run, harness.FunctionRun) else take
        for _ in range(3):
            step() if operation is None else world.run(operation)
        return world.read(variable), int(world.read(harness.bound(optimizer).adapter.counter("updates")))


def packages():
    """Returns (name, module to bind to, package with its models) of every Keras here."""
    triples = []
    for way in harness.all_ways():
        name = getattr(way.module, "__name__", "")
        package = way.module if hasattr(way.module, "models") else None
        if package is None and name.endswith("legacy"):
            package = importlib.import_module("tf_keras" if "tf_keras" in name else "tensorflow.keras")
        if package is not None and not any(module is way.module for _, module, _ in triples):
            triples.append((way.name, way.module, package))
    return triples


KERAS = packages()
X = np.random.RandomState(0).uniform(-1, 1, (12, 2)).astype("float32")
Y = X.dot([[1.0], [-0.5]]).astype("float32") + 0.25


def a_model(keras, optimizer, normalized=False, **more):
    if hasattr(keras.backend, "clear_session"):
        harness.clear_session(keras)
    outputs = inputs = keras.layers.Input((2,))
    if normalized:
        outputs = keras.layers.BatchNormalization(momentum=0.5)(inputs)
    model = keras.models.Model(inputs, keras.layers.Dense(1, use_bias=False)(outputs))
    if not normalized:
        model.set_weights([FIRST.astype("float32") / 4])
    model.compile(optimizer(), "mse", **dict(compiled(model), **more))
    return model


def compiled(model):
    """Returns what Keras 2 of TF 1.14 to 2.1 needs besides, to train in a way that can be changed."""
    is_old = not hasattr(model, "train_step") and hasattr(model, "_experimental_run_tf_function")
    return {"experimental_run_tf_function": False} if is_old else {}


def fitted(model):
    with warnings.catch_warnings():
        # Keras 3.0 on JAX converts arrays in a way that NumPy 2 deprecates.
        warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)
        history = model.fit(X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    return model.get_weights()[0], history.history["loss"]


def fitted_by_hand(definition):
    """Trains in NumPy. Returns the weights, and each epoch's mean of the losses at the batches' first gradients."""
    value, losses = FIRST.astype("float64") / 4, []
    optimizer = runs.bound(harness.NUMPY, definition)
    for _ in range(2):
        seen = []
        for batch in (slice(0, 4), slice(4, 8), slice(8, 12)):
            for stage in range(definition.stages):
                off = X[batch].dot(value) - Y[batch]
                if not stage:
                    seen.append(np.mean(off * off))
                optimizer.apply_gradients([(2 * X[batch].T.dot(off) / 4, value)])
        losses.append(np.mean(seen))
    return value, losses


IN_TURN = harness.rotate(["heun", "rk4", "rk23"], KERAS)


@pytest.mark.parametrize("tableau, way", IN_TURN, ids=["{}-{}".format(one, way[0]) for one, way in IN_TURN])
def test_fit(tableau, way):
    _, module, keras = way
    definition = everstep.multistage(SGD(0.25, momentum=0.5), tableau)
    model = a_model(keras, lambda: definition.bind(module))
    everstep.enable_multistage(model)
    value, losses = fitted(model)
    expected, wanted_losses = fitted_by_hand(definition)
    assert oracle.distance(value, expected) < 1e-6
    assert np.allclose(losses, wanted_losses, rtol=1e-5)


@pytest.mark.parametrize("name, module, keras", KERAS, ids=[name.replace(" ", "-") for name, _, _ in KERAS])
def test_fit_alone_is_refused_and_disabling_undoes(name, module, keras):
    model = a_model(keras, lambda: HEUN.bind(module))
    with pytest.raises(Exception, match="takes 2 gradients of each batch"):  # in a session, TensorFlow raises it
        fitted(model)
    if hasattr(model, "jax_state_sync"):  # Keras drops the variables when a model's first step fails
        model = a_model(keras, lambda: HEUN.bind(module))
    assert np.array_equal(model.get_weights()[0], FIRST.astype("float32") / 4)
    everstep.enable_multistage(model)
    everstep.enable_multistage(model)  # a second call changes nothing
    assert oracle.distance(fitted(model)[0], fitted_by_hand(HEUN)[0]) < 1e-6
    everstep.disable_multistage(model)
    assert "train_step" not in vars(model) and "_make_train_function" not in vars(model)
    with pytest.raises(Exception, match="takes 2 gradients of each batch"):
        fitted(model)


@pytest.mark.parametrize("name, module, keras", KERAS, ids=[name.replace(" ", "-") for name, _, _ in KERAS])
def test_fit_counts_metrics_and_averages_once(name, module, keras):
    moving, weights = [], None
    for definition in (SGD(0.125), HEUN):
        model = a_model(keras, lambda: definition.bind(module), True, metrics=["mae"])  # noqa: B023  # called at once
        if definition is HEUN:
            everstep.enable_multistage(model)
            model.set_weights(weights)
        weights = model.get_weights()
        shown = model.fit(X, Y, batch_size=12, epochs=2, verbose=0).history
        moving.append(model.layers[1].get_weights()[2:] + [shown[name][0] for name in sorted(shown)])
    for one, other in zip(*moving):  # averages of two batches, not of four evaluations
        assert np.allclose(one, other, rtol=1e-5)


@pytest.mark.skipif(not KERAS, reason="no Keras here, so no model to load")
def test_a_loaded_model_is_enabled_again(tmpdir):
    name, module, keras = KERAS[0]
    path = str(tmpdir.join("model.keras" if harness.find(module).target.name == "keras3" else "model.h5"))
    model = a_model(keras, lambda: everstep.multistage(Adam(0.0625), "heun").bind(module))
    everstep.enable_multistage(model)
    fitted(model)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "You are saving your model as an HDF5 file")
        model.save(path)
    expected = fitted(model)[0]
    loaded = keras.models.load_model(path, custom_objects=everstep.custom_objects(module))
    if compiled(loaded):
        loaded.compile(loaded.optimizer, "mse", **compiled(loaded))
    everstep.enable_multistage(loaded)
    assert oracle.distance(fitted(loaded)[0], expected) < 1e-6


# Errors.


test_refuses = runs.refused([
    (lambda: everstep.multistage(SGD(), "euler"), HyperValueError, "is one of heun, midpoint, .*; got 'euler'"),
    (lambda: everstep.multistage(SGD(), 3), HyperValueError, "is one of heun, midpoint, .*; got 3"),
    (lambda: everstep.multistage(SGD(), (1, 2, 3)), HyperTypeError, "all of numbers; got"),
    (lambda: everstep.multistage(SGD(), ((("a",),), (0.5, 0.5))), HyperTypeError, "takes a number; got 'a'"),
    (lambda: everstep.multistage(SGD(), (((1.0,),), (0.5, 0.6))), HyperValueError, "weights that add up to 1"),
    (lambda: everstep.multistage(SGD(), (((1.0, 2.0),), (0.5, 0.5))), HyperValueError, "a row of points for each"),
    (lambda: everstep.multistage(SGD(), "rk4", tolerance=1e-3), DefinitionError, "has no error estimate"),
    (lambda: everstep.multistage(SGD(sparse="rows")), DefinitionError, 'takes only sparse="exact"'),
    (lambda: everstep.multistage(everstep.accumulate(SGD(), 2)), DefinitionError, "skips, collects or rejects"),
    (lambda: everstep.multistage(everstep.loss_scale(SGD())), DefinitionError, "skips, collects or rejects"),
    (lambda: everstep.accumulate(everstep.multistage(SGD()), 2), DefinitionError, "already skips or collects"),
    (lambda: everstep.lookahead(everstep.multistage(SGD())), DefinitionError, "takes 2 gradients for one update"),
    (lambda: everstep.sharpness_aware(SGD(sparse="rows")), DefinitionError, 'takes only sparse="exact"'),
    (lambda: everstep.sharpness_aware(everstep.accumulate(SGD(), 2)), DefinitionError, "skips, collects or rejects"),
    (lambda: everstep.sharpness_aware(everstep.multistage(SGD())), DefinitionError, "skips, collects or rejects"),
    (lambda: everstep.clip(everstep.sharpness_aware(SGD()), value=1.0), DefinitionError, "measures gradients before"),
    (lambda: everstep.clip(Sharp(), value=1.0), DefinitionError, "measures gradients before"),
    (lambda: everstep.enable_multistage(SGD()), NotBoundError, "that is bound to a definition"),
    (lambda: everstep.enable_multistage(SGD().bind(np)), UnsupportedError, "takes one gradient for each update"),
    (lambda: everstep.disable_multistage(3), NotBoundError, "that is bound to a definition, .*; got 3"),
])


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_one_gradient_of_a_batch_is_refused(way):
    first = FIRST.astype("float32")
    in_session = way.target == "get_updates"  # where TensorFlow raises it
    with pytest.raises(Exception if in_session else UnsupportedError, match="takes 2 gradients of each batch"):
        run = harness.opened(way.run(lambda: HEUN.bind(way.module), {"w": first}, {"w": harness.DENSE}))
        run.step({"w": first})
    assert not in_session or np.array_equal(run.weights()["w"], first)


def test_config():
    for definition in (everstep.multistage(everstep.clip(Adam(), norm=1.0), "rk45", tolerance=1e-3),
                       everstep.multistage(SGD(), (((0.5,),), (0.0, 1.0)))):
        runs.check_config(definition)
