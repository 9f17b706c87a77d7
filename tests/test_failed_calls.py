"""A call that fails changes nothing: no variable, slot, counter, collection or registry, on every target.

Each failure happens in a run before its first step, or between two steps. Afterwards the run has to train, and to be
captured, as one in which the call never was.
"""
from __future__ import absolute_import, division, print_function

import contextlib
import re

import numpy as np
import pytest

import everstep
from everstep.errors import EverstepError, GradientError, RuleError, VariableError
from everstep.optimizers import LAMB, SGD, Adafactor, Adam, NovoGrad
from harness import (
    DENSE,
    SPARSE,
    GetUpdatesRun,
    GraphRun,
    all_ways,
    framework_ways,
    one_of_each_target,
    rotate,
    share,
    way_name,
)

pytestmark = pytest.mark.shared

START = {"a": np.arange(6, dtype="float32").reshape(3, 2) + 1, "b": np.arange(10, dtype="float32").reshape(5, 2) + 1}
STEPS = [{name: np.full(value.shape, scale, "float32") for name, value in START.items()} for scale in (1.0, -0.5, 2.0)]


class Fussy(everstep.Definition):
    """A rule that raises for variables of a shape, or returns a wrong one, while the test says so."""

    learning_rate = everstep.hyper(0.1)
    m = everstep.slot()
    raises_at = wrong_at = None

    def update(self, ops, grad, var, slots, hyper, t):
        if var.shape[1:] and var.shape == Fussy.raises_at:
            raise RuleError("fussy about {}".format(var.shape))
        m = slots.m * 0.9 + grad
        if var.shape == Fussy.wrong_at:
            m = ops.reshape(m, (-1,))
        return hyper.learning_rate * m, {"m": m}


@contextlib.contextmanager
def fussy(**where):
    for name, shape in where.items():
        setattr(Fussy, name, shape)
    try:
        yield
    finally:
        for name in where:
            setattr(Fussy, name, None)


class Case(object):
    """One run, and wrong calls in it."""

    def __init__(self, run, optimizer):
        self.run, self.optimizer = run, optimizer
        self.tf = getattr(optimizer.backend, "tf", None)
        self.variables = run.variables

    def grad(self, value):
        if self.tf is not None:
            return self.tf.constant(value)
        return self.run.keras.ops.convert_to_tensor(value) if hasattr(self.run, "keras") else value

    def rows(self, values, indices):
        if self.tf is None:
            return everstep.IndexedSlices(values, indices)
        return self.tf.IndexedSlices(self.tf.constant(values), self.tf.constant(indices))

    def variable(self, value):
        """Returns another variable."""
        if isinstance(self.run, GetUpdatesRun) or hasattr(self.run, "keras"):
            keras = self.run.keras
            if not hasattr(keras, "Variable"):
                return keras.backend.variable(value, dtype=str(value.dtype))
            return keras.Variable(value, dtype=str(value.dtype), trainable=value.dtype.kind == "f")
        if isinstance(self.run, GraphRun):
            return self.tf.get_variable("other", initializer=self.tf.constant(value), use_resource=self.run.resource)
        return self.tf.Variable(value) if self.tf is not None else value

    def call(self, *pairs):
        """Runs a step. Gradients are arrays, or functions of this case."""
        pairs = [(grad(self) if callable(grad) else self.grad(grad), variable) for grad, variable in pairs]
        if not isinstance(self.run, GetUpdatesRun):
            return self.optimizer.apply_gradients(pairs)
        K, losses = self.run.keras.backend, []

        def updates():
            for grad, variable in pairs:
                losses.append(K.sum(K.cast(variable, "float32") * grad))
            return self.optimizer.get_updates(loss=sum(losses), params=[variable for _, variable in pairs])

        return getattr(K, "symbolic", lambda function: function)(updates)()


@contextlib.contextmanager
def nothing():
    yield


G = {name: np.ones_like(value) for name, value in START.items()}


def wrong_shape(case):
    with pytest.raises(GradientError, match=r"needs \(5, 2\)"):
        case.call((G["a"], case.variables["a"]), (G["a"], case.variables["b"]))


def complex_gradient(case):
    with pytest.raises(GradientError, match="complex|list or array"):
        case.call((G["a"], case.variables["a"]), (G["b"] * 1j, case.variables["b"]))


def whole_numbers(case):
    with pytest.raises(EverstepError, match="float|no gradient|int32|other variables|all variables"):
        case.call((G["a"], case.variables["a"]), (G["b"], case.variable(START["b"].astype("int32"))))


def no_variable(case):
    with pytest.raises(VariableError):
        case.call((G["a"], case.variables["a"]), (G["b"], "b"))


def wrong_row(case):
    with pytest.raises(GradientError, match="of 5 rows has no row -1"):
        case.call((G["a"], case.variables["a"]), (lambda c: c.rows(G["b"][:2], [-1, 0]), case.variables["b"]))


def rule_raises_first(case):
    with fussy(raises_at=(3, 2)), pytest.raises(RuleError, match="fussy"):
        case.call((G["a"], case.variables["a"]), (G["b"], case.variables["b"]))


def rule_raises_second(case):
    with fussy(raises_at=(5, 2)), pytest.raises(RuleError, match="fussy"):
        case.call((G["a"], case.variables["a"]), (G["b"], case.variables["b"]))


def rule_returns_a_wrong_shape(case):
    with fussy(wrong_at=(5, 2)), pytest.raises(RuleError, match="shape|slot m"):
        case.call((G["a"], case.variables["a"]), (G["b"], case.variables["b"]))


def another_graph(case):
    with case.tf.Graph().as_default():
        other = case.tf.get_variable("other", initializer=case.tf.constant(START["b"]), use_resource=True)
        grad = case.tf.constant(G["b"])
    with pytest.raises(VariableError, match="another graph"):
        case.optimizer.apply_gradients([(case.grad(G["a"]), case.variables["a"]), (case.grad(G["b"]), other)])
    with pytest.raises(GradientError, match="another graph"):
        case.optimizer.apply_gradients([(case.grad(G["a"]), case.variables["a"]), (grad, case.variables["b"])])


FIRST = [rule_raises_first, rule_raises_second, rule_returns_a_wrong_shape]  # only before the first step
ANY = [wrong_shape, complex_gradient, whole_numbers, no_variable, wrong_row, another_graph]
BY_LOSS = [whole_numbers, no_variable] + FIRST  # for get_updates, whose gradients fit by themselves


def failures(way):
    """Returns (failure, step before which it happens) for a way."""
    if way.target == "get_updates":
        names = BY_LOSS
    else:
        names = FIRST + ANY
        names = [f for f in names if f is not wrong_row or way.sparse and not issubclass(way.run, GraphRun)]
        names = [f for f in names if f is not another_graph or issubclass(way.run, GraphRun)]
    return [(failure, place) for failure in names for place in ((0,) if failure in FIRST else (0, 2))]


def state(run):
    if isinstance(run, GraphRun):
        with run.graph.as_default():
            return everstep.capture(run.optimizer, run.variables, session=run.session, weights=True)
    return everstep.capture(run.optimizer, run.variables, weights=True)


def collections(case):
    if not isinstance(case.run, GraphRun):
        return None
    keys = "variables", "train_op", "trainable_variables"
    return {key: list(case.run.graph.get_collection_ref(key)) for key in keys}


def failed(case, failure):
    """Makes the failing call. Checks all that can be seen at once."""
    before = collections(case)
    known = len(case.optimizer._rules)
    failure(case)
    after = collections(case)
    if failure is not whole_numbers:  # whose variable is the caller's
        assert before == after
    assert len(case.optimizer._rules) == known


def trained(way, definition, failure=None, place=0):
    """Returns the state after STEPS, with a failing call before the step `place`."""

    class Failing(way.run):
        def build(self):
            make = self.make

            def failing_make():
                optimizer = make()
                if failure and place == 0:
                    failed(Case(self, optimizer), failure)
                return optimizer

            self.make = failing_make
            super(Failing, self).build()

    run = Failing(lambda: definition().bind(way.module), START, {name: DENSE for name in START})
    try:
        for number, grads in enumerate(STEPS):
            if failure and number == place > 0:
                with run.graph.as_default() if isinstance(run, GraphRun) else nothing():
                    failed(Case(run, run.optimizer), failure)
            run.step(grads)
        return state(run)
    finally:
        run.close()


def as_text(state):
    slots = {name: {slot: value.tolist() for slot, value in each.items()} for name, each in state.slots.items()}
    weights = {name: value.tolist() for name, value in state.variables.items()}
    return repr((state.updates, state.steps, state.pending, dict(state.scalars), sorted(slots.items()), weights))


DEFINITIONS = [Fussy, lambda: everstep.accumulate(Fussy(), 2)]
RUNS = [
    (way, definition, failure, place)
    for way in all_ways()
    for definition in DEFINITIONS
    for failure, place in failures(way)
    # NumPy undoes a step that fails; accumulation would return the wrong shape at its second step only.
    if way.target != "arrays" or failure is not rule_returns_a_wrong_shape or definition is Fussy
]
_clean = {}


@pytest.mark.parametrize(
    "way, definition, failure, place",
    share(RUNS, 4),
    ids=["{}-{}-{}-{}".format(w.name, DEFINITIONS.index(d), f.__name__, p) for w, d, f, p in share(RUNS, 4)],
)
def test_a_failed_call_changes_nothing(way, definition, failure, place):
    if (way.name, definition) not in _clean:
        _clean[way.name, definition] = as_text(trained(way, definition))
    assert as_text(trained(way, definition, failure, place)) == _clean[way.name, definition]


# Failures that only the values of a run show: the whole step fails, and nothing of it is written.

SPARSE_FORMS = [
    SGD,
    Adam,
    lambda: Adam(sparse="rows"),
    lambda: Adam(sparse="catch_up"),
    lambda: Adam(sparse="variable_rows"),
    lambda: everstep.accumulate(SGD(), 2),
    lambda: everstep.clip(Adam(), global_norm=1.0),
]
SPARSE_WAYS = [way for way in all_ways() if way.sparse]
ROWS = {"a": (np.ones((2, 2), "float32"), np.array([0, 2])), "b": (np.ones((2, 2), "float32"), np.array([1, 4]))}


def failing_step(run, grads):
    """Returns the message of a step that has to fail: of everstep in eager code, of TensorFlow in a graph."""
    with pytest.raises(Exception) as caught:
        run.step(grads)
    expected = everstep.errors.GradientError, getattr(getattr(getattr(run, "tf", None), "errors", None), "OpError", ())
    if not isinstance(run, GetUpdatesRun) and not hasattr(run, "keras"):
        assert isinstance(caught.value, expected)
    return str(caught.value)


@pytest.mark.parametrize("bad", [-1, 5])
@pytest.mark.parametrize(
    "definition, way", rotate(SPARSE_FORMS, SPARSE_WAYS), ids=lambda each: getattr(each, "name", None)
)
def test_a_row_that_does_not_exist_fails_the_whole_step(definition, way, bad):
    """TensorFlow would drop it without a word, or fail after it wrote other variables."""
    run = way.run(lambda: definition().bind(way.module), START, {"a": SPARSE, "b": SPARSE})
    try:
        run.step(ROWS)
        before = as_text(state(run))
        message = failing_step(run, dict(ROWS, b=(ROWS["b"][0], np.array([0, bad]))))
        if way.target != "get_updates":  # whose forward pass gathers the row, and fails first
            in_graph = re.search(r"\bb(:0)? has rows", message) and "[{}]".format(bad) in message
            assert "5 rows has no row {}".format(bad) in message or in_graph
        assert as_text(state(run)) == before
        run.step(ROWS)
        run.step({name: (rows[0][:0], rows[1][:0]) for name, rows in ROWS.items()})  # no rows at all
        for name, value in run.weights().items():
            assert np.isfinite(value).all(), name
    finally:
        run.close()


@pytest.mark.parametrize("way", [way for way in all_ways() if issubclass(way.run, GraphRun)], ids=way_name)
def test_a_graph_checks_shapes_that_it_learns_late(way):
    """A gradient of one row would broadcast, and one that cannot be computed would leave other variables written."""
    run = way.run(lambda: Adam().bind(way.module), START, {"a": DENSE, "b": DENSE})
    tf = run.tf
    try:
        with run.graph.as_default():
            late = tf.placeholder(tf.float32, None)
            failing = tf.check_numerics(tf.placeholder_with_default(np.float32("nan"), []), "no number") * G["b"]
            pairs = [(tf.constant(G["a"]), run.variables["a"]), (late, run.variables["b"])]
            operations = [run.optimizer.apply_gradients(pairs)]
            operations.append(run.optimizer.apply_gradients([pairs[0], (failing, run.variables["b"])]))
        before = as_text(state(run))
        for operation, value in [(operations[0], G["b"][:1]), (operations[0], G["b"][0]), (operations[1], G["b"])]:
            with pytest.raises(tf.errors.InvalidArgumentError):
                run.session.run(operation, {late: value})
            assert as_text(state(run)) == before
        run.session.run(operations[0], {late: G["b"]})
        assert as_text(state(run)) != before
    finally:
        run.close()


def test_catch_up_of_a_row_that_does_not_exist():
    for way in [way for way in SPARSE_WAYS if way.target != "arrays"]:
        run = way.run(lambda way=way: Adam(sparse="catch_up").bind(way.module), START, {"a": SPARSE, "b": SPARSE})
        run.step(ROWS)
        run.step(ROWS)
        before = as_text(state(run))
        with pytest.raises(Exception, match="no row 7|rows 0 to n - 1"):
            run.catch_up("b", [[1, 7]])
        assert as_text(state(run)) == before
        run.close()


# Gradients that are no tensors, or of another dtype.


def converted(grad):
    """Returns what each framework makes of a gradient that is no tensor of it."""
    return [grad.tolist(), grad, grad.astype("float64"), grad.astype("int64")]


@pytest.mark.parametrize("way", [way for way in all_ways() if way.target != "get_updates"], ids=way_name)
def test_lists_and_arrays_are_taken_for_gradients(way):
    run = way.run(lambda: SGD(1.0).bind(way.module), START, {"a": DENSE, "b": DENSE})
    case = Case(run, run.optimizer)
    with run.graph.as_default() if isinstance(run, GraphRun) else nothing():
        operations = []
        for grad in converted(G["b"]):
            operations.append(run.optimizer.apply_gradients([(G["a"], run.variables["a"]), (grad, run.variables["b"])]))
        if way.sparse and case.tf is not None:
            slices = case.tf.IndexedSlices(G["b"][:2], np.array([0, 3]))
            pairs = [(G["a"], run.variables["a"]), (slices, run.variables["b"])]
            operations.append(run.optimizer.apply_gradients(pairs))
        if isinstance(run, GraphRun):
            for operation in operations:
                run.session.run(operation)
    expected = START["b"] - 4
    if way.sparse and case.tf is not None:
        expected[[0, 3]] -= 1
    assert np.array_equal(run.weights()["b"], expected)
    run.close()


WRONG = {
    "complex64": lambda case: case.grad(G["b"] * 1j),
    "bool": lambda case: case.grad(G["b"] > 0),
    "int32": lambda case: case.grad(G["b"].astype("int32")),
    "list or array": lambda case: [["1", "2"]] * 5,
    "float64; the variable needs float32. Cast it": lambda case: case.tf.cast(case.grad(G["b"]), "float64"),
    "is of dtype string|str": lambda case: case.tf.constant([["1", "2"]] * 5),
    "float32; needed is int32": lambda case: case.rows(G["b"][:2], [0.0, 1.0]),
    "a vector; got shape": lambda case: case.rows(G["b"][:2], [[0, 1]]),
    "one row for each": lambda case: case.rows(G["b"][:2], [0]),
}


@pytest.mark.parametrize("way", [way for way in framework_ways() if way.target != "get_updates"], ids=way_name)
def test_gradients_that_are_no_real_numbers_are_refused(way):
    run = way.run(lambda: SGD(1.0).bind(way.module), START, {"a": DENSE, "b": DENSE})
    case = Case(run, run.optimizer)
    with run.graph.as_default() if isinstance(run, GraphRun) else nothing():
        for message, grad in WRONG.items():
            of_tensorflow = "float64" in message or "str" in message or grad.__code__.co_names[:1] == ("rows",)
            if of_tensorflow and (case.tf is None or "float64" in message and way.target == "keras3"):
                continue
            with pytest.raises(GradientError, match=message):
                pairs = [(case.grad(G["a"]), run.variables["a"]), (grad(case), run.variables["b"])]
                case.optimizer.apply_gradients(pairs)
    assert all(np.array_equal(value, START[name]) for name, value in run.weights().items())
    run.close()


class Folded(everstep.Definition):
    """A rule with shapes of which one size is left open."""

    learning_rate = everstep.hyper(0.5)
    locality = "variable"

    def update(self, ops, grad, var, slots, hyper, t):
        return hyper.learning_rate * ops.reshape(ops.reshape(grad, (2, -1)), (-1, 2)), {}


@pytest.mark.parametrize("way", one_of_each_target(framework_ways()), ids=way_name)
def test_a_size_that_is_left_open_is_known_before_a_step(way):
    run = way.run(lambda: Folded().bind(way.module), START, {"a": DENSE, "b": DENSE})
    try:
        run.step(START)
        for name, value in run.weights().items():
            np.testing.assert_allclose(value, 0.5 * START[name], rtol=1e-6)
    finally:
        run.close()


# Variables of an unknown shape.

UNKNOWN = [None, (None, 2)]
UNKNOWN_WAYS = [(shape, way) for way in all_ways() for shape in UNKNOWN if way.name.startswith("tf_train")]
UNKNOWN_WAYS += share(rotate(UNKNOWN, [way for way in all_ways() if way.target in ("optimizer_v2", "update_step")]), 2)


def unknown(way, definition, shape, sparse, steps=3):
    """Returns (weights, state, that state restored into a new optimizer and captured again) after some steps.

    `shape` is the static shape, and the start value's is (5, 2).
    """
    import tensorflow

    tf = getattr(getattr(tensorflow, "compat", None), "v1", None) or tensorflow

    def make(optimizer):
        if eager:
            variable = tensorflow.Variable(START["b"], shape=tf.TensorShape(shape), name="w")
        else:
            start = tf.placeholder_with_default(START["b"], shape)
            variable = tf.Variable(start, validate_shape=False, name="w", **{"use_resource": True} if resource else {})
        grad = tf.IndexedSlices(tf.constant(G["b"][:1]), tf.constant([1]), tf.constant([5, 2]))
        return variable, lambda: optimizer.apply_gradients([(grad if sparse else tf.constant(G["b"]), variable)])

    def again(state, variable):
        twin = definition().bind(way.module)
        everstep.restore(twin, state, [variable])
        return everstep.capture(twin, [variable])

    resource, eager = way.name != "tf_train ref", way.name.endswith(("eager", "function"))
    optimizer = definition().bind(way.module)
    if eager:
        variable, step = make(optimizer)
        step = tensorflow.function(lambda apply=step: [apply()][:0]) if way.name.endswith("function") else step
        for _ in range(steps):
            step()
        state = everstep.capture(optimizer, [variable])
        return variable.numpy(), state, again(state, variable)
    with tf.Graph().as_default(), tf.Session() as session:
        variable, step = make(optimizer)
        operation = step()
        session.run(tf.global_variables_initializer())
        for _ in range(steps):
            session.run(operation)
        weights, state = session.run(variable), everstep.capture(optimizer, [variable], session=session)
        session.run(operation)
        everstep.restore(optimizer, state, [variable], session=session)
        return weights, state, everstep.capture(optimizer, [variable], session=session)


@pytest.mark.parametrize("shape, way", UNKNOWN_WAYS, ids=lambda each: getattr(each, "name", str(each)))
def test_variables_of_an_unknown_shape(way, shape):
    """They train as ones of a known shape do, or raise VariableError if the rule needs the shape."""
    if way.name == "tf_train resource" and not resource_takes_unknown_shapes():
        pytest.skip("tf.Variable has no use_resource here")
    several = [SGD, Adam, lambda: everstep.accumulate(Adam(), 2), lambda: LAMB(0.1)]
    for definition in share(several, 2) + [NovoGrad]:  # which has a slot of the shape ()
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


FUNCTIONS = [way for way in all_ways() if way.target in ("optimizer_v2", "update_step") and "function" in way.name]


@pytest.mark.parametrize("way", FUNCTIONS, ids=way_name)
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


def resource_takes_unknown_shapes():
    import inspect

    import tensorflow

    tf = getattr(getattr(tensorflow, "compat", None), "v1", None) or tensorflow
    return "use_resource" in str(getattr(inspect, "signature", lambda function: "")(tf.Variable.__init__))


def test_a_variable_of_an_unknown_shape_on_keras_3():
    """Its slots have fixed shapes; stock raises TensorFlow's error."""
    ways = [way for way in all_ways() if way.target == "keras3" and "tensorflow" in way.name]
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
