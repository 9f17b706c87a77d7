"""A step that fails changes nothing, where only the values of a run show it, and where shapes are not known.

test_calls.py has the calls that are wrong by themselves.
"""
from __future__ import absolute_import, division, print_function

import inspect
import re

import numpy as np
import pytest

import everstep
import harness
from everstep.errors import GradientError, VariableError
from everstep.optimizers import LAMB, SGD, Adafactor, Adam, NovoGrad

pytestmark = pytest.mark.shared
WAYS = harness.all_ways()

START = {"a": np.arange(6, dtype="float32").reshape(3, 2) + 1, "b": np.arange(10, dtype="float32").reshape(5, 2) + 1}
G = {name: np.ones_like(value) for name, value in START.items()}
SPARSE_FORMS = [
    SGD, Adam, lambda: Adam(sparse="rows"), lambda: Adam(sparse="catch_up"), lambda: Adam(sparse="variable_rows"),
    lambda: everstep.accumulate(SGD(), 2), lambda: everstep.clip(Adam(), global_norm=1.0),
]  # fmt: skip
SPARSE_WAYS = [way for way in WAYS if way.sparse]
ROWS = {"a": (np.ones((2, 2), "float32"), np.array([0, 2])), "b": (np.ones((2, 2), "float32"), np.array([1, 4]))}


def new_run(way, definition, kind):
    return way.run(lambda: definition().bind(way.module), START, dict.fromkeys(START, kind))


def learned(run):
    """Returns all that a run has learned, as text."""
    with run.inside():
        state = run.captured(weights=True)
    slots = {name: {slot: value.tolist() for slot, value in each.items()} for name, each in state.slots.items()}
    weights = {name: value.tolist() for name, value in state.variables.items()}
    return repr((state.updates, state.steps, state.pending, dict(state.scalars), sorted(slots.items()), weights))


def failing_step(run, grads):
    """Returns the message of a step that has to fail: of everstep in eager code, of TensorFlow in a graph."""
    with pytest.raises(Exception) as caught:
        run.step(grads)
    expected = GradientError, getattr(getattr(getattr(run, "tf", None), "errors", None), "OpError", ())
    if not isinstance(run, harness.GetUpdatesRun) and not hasattr(run, "keras"):
        assert isinstance(caught.value, expected)
    return str(caught.value)


@pytest.mark.parametrize("bad", [-1, 5])
@pytest.mark.parametrize(
    "definition, way", harness.rotate(SPARSE_FORMS, SPARSE_WAYS), ids=lambda each: getattr(each, "name", None)
)
def test_a_row_that_does_not_exist_fails_the_whole_step(definition, way, bad):
    """TensorFlow would drop it without a word, or fail after it wrote other variables."""
    run = new_run(way, definition, harness.SPARSE)
    try:
        run.step(ROWS)
        before = learned(run)
        message = failing_step(run, dict(ROWS, b=(ROWS["b"][0], np.array([0, bad]))))
        if way.target != "get_updates":  # whose forward pass gathers the row, and fails first
            in_graph = re.search(r"\bb(:0)? has rows", message) and "[{}]".format(bad) in message
            assert "5 rows has no row {}".format(bad) in message or in_graph
        assert learned(run) == before
        run.step(ROWS)
        run.step({name: (rows[0][:0], rows[1][:0]) for name, rows in ROWS.items()})  # no rows at all
        for name, value in run.weights().items():
            assert np.isfinite(value).all(), name
    finally:
        run.close()


@pytest.mark.parametrize("way", [way for way in WAYS if issubclass(way.run, harness.GraphRun)], ids=harness.way_name)
def test_a_graph_checks_shapes_that_it_learns_late(way):
    """A gradient of one row would broadcast, and one that cannot be computed would leave other variables written."""
    run = new_run(way, Adam, harness.DENSE)
    tf = run.tf
    try:
        with run.inside():
            late = tf.placeholder(tf.float32, None)
            failing = tf.check_numerics(tf.placeholder_with_default(np.float32("nan"), []), "no number") * G["b"]
            pairs = [(tf.constant(G["a"]), run.variables["a"]), (late, run.variables["b"])]
            operations = [run.optimizer.apply_gradients(pairs)]
            operations.append(run.optimizer.apply_gradients([pairs[0], (failing, run.variables["b"])]))
        before = learned(run)
        for operation, value in [(operations[0], G["b"][:1]), (operations[0], G["b"][0]), (operations[1], G["b"])]:
            with pytest.raises(tf.errors.InvalidArgumentError):
                run.session.run(operation, {late: value})
            assert learned(run) == before
        run.session.run(operations[0], {late: G["b"]})
        assert learned(run) != before
    finally:
        run.close()


def test_catch_up_of_a_row_that_does_not_exist():
    for way in [way for way in SPARSE_WAYS if way.target != "arrays"]:
        run = new_run(way, lambda: Adam(sparse="catch_up"), harness.SPARSE)
        run.step(ROWS)
        run.step(ROWS)
        before = learned(run)
        with pytest.raises(Exception, match="no row 7|rows 0 to n - 1"):
            run.catch_up("b", [[1, 7]])
        assert learned(run) == before
        run.close()


class Folded(everstep.Definition):
    """A rule with shapes of which one size is left open."""

    learning_rate = everstep.hyper(0.5)
    locality = "variable"

    def update(self, ops, grad, var, slots, hyper, t):
        return hyper.learning_rate * ops.reshape(ops.reshape(grad, (2, -1)), (-1, 2)), {}


@pytest.mark.parametrize("way", harness.one_of_each_target(harness.framework_ways()), ids=harness.way_name)
def test_a_size_that_is_left_open_is_known_before_a_step(way):
    run = new_run(way, Folded, harness.DENSE)
    try:
        run.step(START)
        for name, value in run.weights().items():
            np.testing.assert_allclose(value, 0.5 * START[name], rtol=1e-6)
    finally:
        run.close()


# Variables of an unknown shape.

UNKNOWN = [None, (None, 2)]
UNKNOWN_WAYS = [(shape, way) for way in WAYS for shape in UNKNOWN if way.name.startswith("tf_train")]
KERAS = [way for way in WAYS if way.target in ("optimizer_v2", "update_step")]
UNKNOWN_WAYS += harness.share(harness.rotate(UNKNOWN, KERAS), 2)


def unknown(way, definition, shape, sparse, steps=3):
    """Returns (weights, state, that state restored and captured again) after some steps.

    `shape` is the static shape, and the start value's is (5, 2).
    """
    with way.world(way.module) as world:
        tf, optimizer = world.tf, definition().bind(way.module)
        if world.graph is None:
            variable = world.variable(START["b"], "w", shape=tf.TensorShape(shape))
        else:
            start, resource = tf.placeholder_with_default(START["b"], shape), {"use_resource": True}
            variable = tf.Variable(start, validate_shape=False, name="w", **(resource if world.resource else {}))
        grad = world.rows(G["b"][:1], [1], (5, 2)) if sparse else world.tensor(G["b"])

        def apply():
            return optimizer.apply_gradients([(grad, variable)])

        if world.graph is not None:
            operation = apply()
            step = lambda: world.run(operation)  # noqa: E731
        else:
            step = tf.function(lambda: [apply()][:0]) if way.name.endswith("function") else apply
        for _ in range(steps):
            step()
        weights, state = world.read(variable), everstep.capture(optimizer, [variable], session=world.session)
        other = definition().bind(way.module) if world.graph is None else optimizer
        if world.graph is not None:
            step()
        everstep.restore(other, state, [variable], session=world.session)
        return weights, state, everstep.capture(other, [variable], session=world.session)


@pytest.mark.parametrize("shape, way", UNKNOWN_WAYS, ids=lambda each: getattr(each, "name", str(each)))
def test_variables_of_an_unknown_shape(way, shape):
    """They train as ones of a known shape do, or raise VariableError if the rule needs the shape."""
    if way.name == "tf_train resource" and not resource_takes_unknown_shapes():
        pytest.skip("tf.Variable has no use_resource here")
    several = [SGD, Adam, lambda: everstep.accumulate(Adam(), 2), lambda: LAMB(0.1)]
    for definition in harness.share(several, 2) + [NovoGrad]:  # which has a slot of the shape ()
        for sparse in (False, True) if definition is not NovoGrad else (False,):
            weights, captured, again = unknown(way, definition, shape, sparse)
            known = {"w": np.array(START["b"])}
            optimizer = definition().bind(np)
            for _ in range(3):
                grad = everstep.IndexedSlices(G["b"][:1], [1]) if sparse else G["b"]
                optimizer.apply_gradients([(grad, known["w"])])
            np.testing.assert_allclose(weights, known["w"], rtol=1e-5)
            slots = everstep.capture(optimizer, known).slots["w"]
            assert captured.slots["w"].keys() == slots.keys()
            assert again.updates == captured.updates and again.scalars == captured.scalars
            for slot, value in captured.slots["w"].items():
                assert value.shape == slots[slot].shape and np.array_equal(again.slots["w"][slot], value)
    for definition in (Adafactor, lambda: Adam(sparse="catch_up")):
        with pytest.raises(VariableError, match="needs the shape of w"):
            unknown(way, definition, shape, False)




@pytest.mark.parametrize("way", [way for way in KERAS if "function" in way.name], ids=harness.way_name)
def test_a_gradient_and_a_variable_of_an_unknown_number_of_rows(way):
    """A gradient of one row would broadcast to all."""
    import tensorflow as tf

    optimizer = everstep.optimizers.AdaBelief(0.1).bind(way.module)
    variable = tf.Variable(START["b"], shape=tf.TensorShape((None, 2)), name="w")
    step = tf.function(lambda grad: [optimizer.apply_gradients([(grad, variable)])][:0],
                       input_signature=[tf.TensorSpec((None, 2))])
    with pytest.raises(tf.errors.InvalidArgumentError):
        step(G["b"][:1])
    assert np.array_equal(variable.numpy(), START["b"])
    step(G["b"])
    assert not np.array_equal(variable.numpy(), START["b"])


GROWING = [way for way in WAYS if way.name.endswith("eager") and way.sparse]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("way", GROWING, ids=harness.way_name)
def test_a_variable_that_grows(way, sparse):
    """SGD follows it, as stock does. Stock with slots raises TensorFlow's own error, at the first step or later."""
    import tensorflow as tf

    def trained(optimizer):
        variable = tf.Variable([1.0, 1.0], shape=tf.TensorShape([None]), name="w")
        for size in (2, 3, 5, 1):
            variable.assign([1.0] * size)
            row = tf.IndexedSlices(tf.ones([1]), tf.constant([size - 1]), tf.constant([size]))
            try:
                optimizer.apply_gradients([(row if sparse else tf.ones([size]), variable)])
            except VariableError as error:
                return error, variable, optimizer
        return variable.numpy().tolist()

    assert trained(SGD(0.5).bind(way.module)) == [0.5]
    if way.target != "update_step":  # whose stock SGD always has a velocity
        stock = getattr(way.stock, "SGD", None) or way.stock.GradientDescentOptimizer
        assert trained(stock(0.5)) == [0.5]
    for definition in (SGD(0.5, momentum=0.5), Adam(0.5)):
        error, variable, optimizer = trained(definition.bind(way.module))
        assert "needs the shape of w" in str(error) if way.target == "keras3" else "do not grow" in str(error)
        assert way.target == "keras3" or variable.numpy().tolist() == [1.0] * 3  # it has changed nothing
        assert way.target in ("keras3", "tf_train") or int(optimizer.iterations) == 1


def resource_takes_unknown_shapes():
    import tensorflow

    tf = getattr(getattr(tensorflow, "compat", None), "v1", None) or tensorflow
    return "use_resource" in str(getattr(inspect, "signature", lambda function: "")(tf.Variable.__init__))


def test_a_variable_of_an_unknown_shape_on_keras_3():
    """Its slots have fixed shapes; stock raises TensorFlow's error."""
    ways = [way for way in WAYS if way.target == "keras3" and "tensorflow" in way.name]
    for way in ways[:1]:
        import tensorflow as tf

        for shape in UNKNOWN:
            optimizer = Adam().bind(way.module)
            variable = tf.Variable(START["b"], shape=tf.TensorShape(shape), name="w")
            with pytest.raises(VariableError, match="needs the shape of w"):
                optimizer.apply_gradients([(tf.constant(G["b"]), variable)])
            assert np.array_equal(variable.numpy(), START["b"]) and not optimizer.built
            known = tf.Variable(START["b"])
            optimizer.apply_gradients([(tf.constant(G["b"]), known)])
            assert not np.array_equal(known.numpy(), START["b"])
