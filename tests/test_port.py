"""`everstep.port` writes foreign optimizers as definitions, and refuses what it cannot write, by name."""
from __future__ import absolute_import, division, print_function

import functools
import io
import os
import sys
import weakref
from collections import OrderedDict

import numpy as np
import pytest

import everstep
import foreign
import harness
import runs
from everstep import cli
from everstep.compat.port import rules
from everstep.compat.port.algebra import evaluate, ops, substitute, walk
from everstep.compat.port.arguments import explain, factory_of, given_and_defaults
from everstep.compat.port.choices import choices_of
from everstep.compat.port.originals import Kind
from everstep.compat.port.porting import Porting
from everstep.compat.port.printing import number_text, text_of
from everstep.compat.port.wrapping import port_of
from everstep.compat.rules.operations import TABLE
from everstep.errors import ConfigError, PortError, PortSparseError, UnsupportedError
from everstep.optimizers.contract import Definition

try:
    import tensorflow as tf
except ImportError:
    tf = None

pytestmark = pytest.mark.shared
needs_tensorflow = pytest.mark.skipif(tf is None, reason="there is no graph to read without TensorFlow")
tf1 = getattr(getattr(tf, "compat", None), "v1", tf)
is_eager = tf is not None and getattr(tf, "executing_eagerly", lambda: False)()


def ported(factory, arguments=None, sparse=None, steps=12):
    """Ports with fewer steps than `everstep.port`, for the time of a cell."""
    arguments = arguments or {}
    return Porting(Kind(factory, arguments), arguments, sparse, steps=steps).port()


def optimizer_v2():
    """Returns the class OptimizerV2 of this TensorFlow; None if it has none."""
    optimizers = getattr(tf.keras, "optimizers", None)
    for holder in (optimizers, getattr(optimizers, "legacy", None)):
        adam = getattr(holder, "Adam", None)
        if hasattr(adam, "_resource_apply_dense") and hasattr(adam, "_create_hypers"):
            return [each for each in adam.__mro__ if "_create_hypers" in vars(each)][-1]
    return None


def classes(kind):
    """Returns {name: class} of tests/foreign.py for an API; skips the test where the API is not installed."""
    if tf is None:
        pytest.skip("there is no graph to read without TensorFlow")
    keras = sys.modules.get("keras")
    if kind == "train":
        if not hasattr(tf1.train.Optimizer, "_create_non_slot_variable"):
            pytest.skip("this TensorFlow has no variables of an optimizer besides slots")
        return foreign.train_classes(tf1)
    if kind in ("v2", "traps"):
        base = optimizer_v2()
        if base is None:
            pytest.skip("this TensorFlow has no OptimizerV2")
        return (foreign.v2_classes if kind == "v2" else foreign.v2_traps)(tf, base)
    if kind == "get_updates":
        if keras is None or tuple(map(int, keras.__version__.split(".")[:2])) >= (2, 4):
            pytest.skip("there is no Keras with get_updates")
        if is_eager:
            pytest.skip("Keras 2.3 in a TensorFlow with eager execution")
        return foreign.keras_classes(keras)
    if not hasattr(getattr(getattr(tf.keras, "optimizers", None), "Adam", None), "update_step"):
        pytest.skip("this TensorFlow has no new-style optimizers")
    if keras is not None and hasattr(keras, "backend") and keras.backend.backend() != "tensorflow":
        pytest.skip("Keras 3 runs on another backend")
    return foreign.new_classes(tf, tf.keras)


# Expressions.


def random_expression(random, depth):
    if depth == 0:
        return [ops.leaf("x"), ops.leaf("y"), ops.constant(round(random.uniform(-2, 2), 2))][random.randint(3)]
    op = ["add", "subtract", "multiply", "divide", "negative", "abs", "maximum", "pow", "floor_divide", "remainder",
          "where", "sign"][random.randint(12)]
    args = [random_expression(random, depth - 1) for _ in range({"negative": 1, "abs": 1, "sign": 1}.get(op, 2))]
    if op == "pow":
        return abs(args[0]) ** float(random.randint(4))
    if op == "where":
        test = args[0] < args[1] if random.randint(2) else args[0] >= args[1]
        return ops.where(test & (args[1] < 1), args[0], args[1])
    return ops.apply(op, args)


def plain(expression, values):
    """Evaluates the text of an expression with NumPy."""
    from everstep.compat.backends.on_numpy import numpy_ops

    return eval(text_of(expression), {"ops": numpy_ops, "x": np.float64(values["x"]), "y": np.float64(values["y"])})


@pytest.mark.parametrize("seed", range(3))
def test_an_expression_prints_as_it_computes(seed):
    random, seen = np.random.RandomState(seed), 0
    for _ in range(300):
        expression = random_expression(random, 1 + random.randint(4))
        values = {"x": random.uniform(-3, 3), "y": random.uniform(-3, 3)}
        with np.errstate(all="ignore"):
            expected, printed = evaluate(expression, values), plain(expression, values)
            parts = [evaluate(part, values) for part in walk([expression])]
        if np.isfinite(parts).all() and np.abs(parts).max() < 1e4:
            np.testing.assert_allclose(printed, expected, rtol=1e-5, atol=1e-6, err_msg=text_of(expression))
            seen += 1
    assert seen > 150


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide", "negative", "pow", "maximum", "where"])
def test_simplification_keeps_the_value(op):
    random = np.random.RandomState(3)
    x, y = ops.leaf("x"), ops.leaf("y")
    pool = [x, y, -x, x - y, x + 1, ops.plain("multiply", (ops.constant(-2), y))]
    pool += [ops.constant(number) for number in (0, 1, -1, 2)]
    count = {"negative": 1, "where": 3}.get(op, 2)
    for _ in range(200):
        args = [pool[random.randint(len(pool))] for _ in range(count)]
        if op == "where":
            args[0] = x < args[0]
        values = {"x": random.uniform(0.5, 3), "y": random.uniform(0.5, 3)}
        with np.errstate(all="ignore"):
            expected = TABLE[op].numpy(*[evaluate(argument, values) for argument in args])
        if np.isfinite(expected):
            np.testing.assert_allclose(evaluate(ops.apply(op, args), values), expected, rtol=1e-12, atol=1e-12)


def test_equal_expressions_are_the_same_object():
    x, y = ops.leaf("x"), ops.leaf("y")
    assert x + 1 is x + ops.constant(1.0)
    assert substitute(x + 1, {x: y}) is y + 1
    assert ops.constant(True) is not ops.constant(1)


def test_expressions_that_nobody_holds_are_forgotten():
    value = weakref.ref(ops.leaf("of this test") * 3)
    assert value() is None


@pytest.mark.parametrize("value, text", [
    (float(np.float32(0.1)), "0.1"), (1e-7, "1e-07"), (3.0, "3"), (-0.5, "-0.5"), (0.123456789, "0.12345679"),
    (float("inf"), 'float("inf")'), (1e6, "1e+06"),
])
def test_numbers_are_short(value, text):
    assert number_text(value) == text
    assert np.float32(eval(text)) == np.float32(value)


def test_constants_are_explained_by_arguments():
    given, changed = OrderedDict([("a", 0.9), ("b", 0.25)]), {"a": 0.89, "b": 0.24}
    assert text_of(explain(0.9, 0.89, given, changed)) == "hyper.a"
    assert text_of(explain(1 - 0.9, 1 - 0.89, given, changed)) == "1 - hyper.a"
    assert text_of(explain(0.9 * 0.25, 0.89 * 0.24, given, changed)) == "hyper.a * hyper.b"
    assert explain(0.9**3, 0.89**3, given, changed) is None


def test_arguments_keep_the_order_of_the_constructor():
    class Rule(object):
        def __init__(self, learning_rate=0.1, beta=0.9, name="Rule", **kwargs):
            pass

    assert list(given_and_defaults(Rule, {"gamma": 2, "lr": 0.5}).items()) == [("lr", 0.5), ("beta", 0.9), ("gamma", 2)]


def test_choices_are_the_texts_that_a_class_compares():
    class Choosy(object):
        def update(self, mode):
            if self._mode.lower() == "fast" or mode not in ("slow", "off"):
                return self.kind == "other"

    assert choices_of(Choosy, "mode", "slow") == ("slow", "fast", "off")
    assert choices_of(Choosy, "label", "slow") == choices_of(Choosy, "mode", 3) == ()
    assert choices_of(dict, "mode", "slow") == ()  # it has no source
    assert choices_of(Choosy, "mode", False) == (True, False)


# Whole ports.


def clip():
    with tf.Graph().as_default():
        return "ops.clip(" if tf.clip_by_value(0.0, 0.0, 1.0).op.type == "ClipByValue" else "ops.minimum("  # in TF 1.8


# {API and class: (arguments, what the port reads of sparse gradients, texts of its source)}
WHOLE = {
    "train AdaBound": ({}, "none", [clip, "gamma = everstep.hyper(0.001)", '"m": "{var}/AdaBound"']),
    "train Restarting": ({}, "none", [
        "where(ops.equal(scalars.next_place, hyper.period - 1), 0, scalars.next_place + 1)"]),  # in both branches
    "v2 Trust": ({}, "none", ["decoupled = everstep.option(True)", "if self.decoupled:"]),
    "v2 CenteredGradient": ({}, "none", ["axis=tuple(range(1, grad.ndim))", "grad.ndim < 2", 'locality = "row"']),
    "v2 LayerScaled": ({}, "none", ['locality = "variable"', "momentum = everstep.slot()"]),
    "v2 Shaped": ({}, "none", [
        'mode = everstep.option("sign", choices=("sign", "tanh", "plain"))', 'if self.mode == "sign":',
        'slot(when=lambda definition: definition.mode == "sign" or definition.mode == "tanh")']),
    "v2 Warmed": ({}, "exact", ["warmup_steps = everstep.hyper(30)", "zero_grad_is_noop = True"]),
    "get_updates AdaMod": ({"lr": 0.02}, None, [
        "learning_rate = everstep.hyper(0.02)", "beta_3 = everstep.hyper(0.99)"]),
    "new AdaPNM": ({"learning_rate": 0.02}, None, ["ops.where(is_even, ", "beta_1 = everstep.hyper(0.9)"]),
}


@needs_tensorflow
@pytest.mark.parametrize("kind, name", [each.split() for each in sorted(WHOLE)])
def test_whole_ports(kind, name):
    arguments, sparse, texts = WHOLE[kind + " " + name]
    port = ported(classes(kind)[name], arguments)
    assert issubclass(type(port.definition), Definition)
    for text in texts:
        assert (text() if callable(text) else text) in port.source, port.source
    assert port.report.dense < 1e-4 and sparse in (port.report.sparse, None)
    if kind == "get_updates":  # nothing orders its counter and the read of it
        assert any("leaves open whether its counter" in note for note in port.report.notes)


@needs_tensorflow
@pytest.mark.parametrize("order", ["before", "after"])
def test_the_order_of_the_counter_is_that_of_the_original(order):
    """Nothing orders the counter, but a slow sum stands before its read or its increment."""
    base = classes("get_updates")["SGDR"]
    keras = sys.modules["keras"]

    class Fading(base):
        def get_updates(self, loss, params):
            slow = tf.ones((300, 300)) * self.learning_rate  # no constant, which would be computed once
            for _ in range(25):
                slow = tf.matmul(slow, slow) / 300.0
            slow = tf1.Print(slow, [slow], first_n=0)  # an op that is never left out, and prints nothing
            with tf.control_dependencies([slow] if order == "after" else []):
                step = keras.backend.cast(self.iterations.read_value(), "float32")
            with tf.control_dependencies([slow] if order == "before" else []):
                self.updates = [keras.backend.update_add(self.iterations, 1)]
            self.weights, rate = [self.iterations], self.learning_rate / (1.0 + step)
            grads = self.get_gradients(loss, params)
            self.updates += [keras.backend.update(p, p - rate * g) for p, g in zip(params, grads)]
            return self.updates

    port = ported(Fading, {"lr": 0.1})
    assert ("hyper.learning_rate / t" if order == "before" else "hyper.learning_rate / (1 + t)") in port.source
    (note,) = [note for note in port.report.notes if "leaves open whether its counter" in note]
    assert "read {}, as here".format(order) in note and " of 5 fresh graphs" in note
    assert port.report.order == order  # in which a test that is written runs the original


@needs_tensorflow
def test_whole_numbers_are_options():
    """A count of which the original takes no fraction is an option; one that shapes the graph stays as it is."""
    base = classes("train")["SignMomentum"]

    class Counted(base):
        def __init__(self, learning_rate=0.01, order=2, period=3, warmup=20, **kwargs):
            super(Counted, self).__init__(learning_rate, name="Counted", **kwargs)
            self._order, self._period, self._warmup = order, int(period), warmup

        def _update(self, grad, var):
            step = tf1.train.get_global_step() + 1
            is_sync = tf.cast(tf.equal(step % tf.constant(self._period, step.dtype), 0), tf.float32)
            rate = self._lr * tf.minimum(1.0, tf.cast(step, tf.float32) / float(self._warmup))
            for _ in range(self._order):
                rate = rate * 0.5
            return var.assign_sub(rate * (1.0 + is_sync) * tf.sign(grad))

    port = ported(Counted)
    assert "warmup = everstep.hyper(20)" in port.source and "period = everstep.option(3)" in port.source
    assert "self.period" in port.source and "order" not in port.source.split("def update")[0].split("class")[1].replace(
        "order=2 is a count", "")
    assert any(note.startswith("order=2 is a count that shapes the rule") for note in port.report.notes)
    weights = np.ones(2, np.float32)
    optimizer = port.definition.replace(period=1).bind(np)
    optimizer.apply_gradients([(np.ones(2, np.float32), weights)])
    np.testing.assert_allclose(weights, 1 - 0.01 / 20 * 0.25 * 2, rtol=1e-6)


@needs_tensorflow
def test_a_rate_of_another_name_is_the_learning_rate():
    class Stepping(classes("train")["SignMomentum"]):
        slots = ()

        def __init__(self, step_size=0.02, power=0.5):
            super(Stepping, self).__init__(step_size, name="Stepping")
            self._share = power

        def _update(self, grad, var):
            return var.assign_sub(self._lr * tf.sign(grad) * self._share)

    port = ported(Stepping, {"step_size": 0.03})
    assert "learning_rate = everstep.hyper(0.03)" in port.source and "step_size =" not in port.source
    assert "step_size is called learning_rate here" in port.report.notes
    assert port.report.arguments["step_size"] == 0.03  # of the original


@needs_tensorflow
def test_euclidean_norms_and_zeros_that_multiply():
    base = classes("train")["SignMomentum"]
    if not hasattr(tf, "raw_ops"):
        pytest.skip("this TensorFlow has no such op")

    class Normed(base):
        def __init__(self, learning_rate=0.01, decay=0.0, **kwargs):
            super(Normed, self).__init__(learning_rate, name="Normed", **kwargs)
            self._decay = decay

        def _update(self, grad, var):
            norm = tf.raw_ops.EuclideanNorm(input=grad, axis=list(range(grad.shape.ndims)))
            return var.assign_sub(self._lr * (grad / (norm + 0.1) + self._decay * var))

    with tf1.Graph().as_default(), tf1.Session() as session:
        keeps_sign = session.run(tf.raw_ops.EuclideanNorm(input=[-2.0], axis=[0])) == -2  # in TensorFlow 1.15
    if keeps_sign:
        with pytest.raises(PortError, match="EuclideanNorm of this TensorFlow returns one number as it is"):
            ported(Normed)
        return
    port = ported(Normed)
    assert "ops.sqrt(ops.sum(grad * grad)) + 0.1" in port.source
    assert "decay=0 leaves out a part of the rule: give the number that you use" in port.report.notes


TRAPS = {
    "Coupled": "depends on the gradient of another variable", "FrozenShape": "is frozen in the rule: the constant 12",
    "InPython": "state in a Python attribute: count was 1, and is 2", "RandomStart": "slot m starts at random",
    "Noisy": "draws random numbers", "Looping": "loop", "Sorting": "op TopKV2",
}


@needs_tensorflow
@pytest.mark.parametrize("name", sorted(TRAPS))
def test_traps_are_found(name):
    with pytest.raises(PortError, match=TRAPS[name]):
        ported(classes("traps")[name])


@needs_tensorflow
def test_a_rule_that_is_read_wrongly_is_an_error(monkeypatch):
    """The comparison does not trust the reading: here `sqrt` is read as `abs`."""
    cls = classes("train")["QHAdam"]
    monkeypatch.setitem(rules.RULES, "Sqrt", rules.RULES["Abs"])
    with pytest.raises(PortError, match="computes something else than QHAdam .shape .4, 3.*distance of weights is"):
        ported(cls)


def pattern_class():
    """Returns a class as BERT's: slots made by name, and no decay of variables that patterns name."""

    class Decayed(tf1.train.Optimizer):
        def __init__(self, learning_rate, rate=0.05, beta=0.9, exclude=None, name="Decayed"):
            super(Decayed, self).__init__(False, name)
            self.learning_rate, self.rate, self.beta, self.exclude = learning_rate, rate, beta, exclude

        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            assignments = []
            for grad, param in grads_and_vars:
                name = param.name.split(":")[0]
                m = tf1.get_variable(name + "/my_m", shape=param.shape.as_list(), dtype=tf1.float32, trainable=False,
                                     initializer=tf1.zeros_initializer())
                next_m = self.beta * m + (1.0 - self.beta) * grad
                update = next_m
                if not any(part in name for part in self.exclude or ()):
                    update = update + self.rate * param
                assignments += [param.assign(param - self.learning_rate * update), m.assign(next_m)]
            return tf1.group(*assignments, name=name)

    return Decayed


@needs_tensorflow
def test_patterns_of_names_become_specialize():
    port = ported(pattern_class(), {"learning_rate": 0.1, "exclude": ["LayerNorm", "bias"]})
    assert "def specialize(self, variable):" in port.source and '"m": "{var}/my_m"' in port.source
    record = everstep.Variable("kernel", (2,), "float32", 0, (), None)
    assert port.definition.specialize(record._replace(name="dense/bias")).is_excluded
    assert not port.definition.specialize(record).is_excluded
    for patterns, expected in ((("array",), 1.0), (("bias",), 1 - 0.1 * 0.05)):
        weights = np.ones(2, np.float32)  # called array_0
        port.definition.replace(exclude=patterns).bind(np).apply_gradients([(np.zeros(2, np.float32), weights)])
        np.testing.assert_allclose(weights, expected, rtol=1e-6)


def wrapped(factory, arguments=None):
    arguments = arguments or {}
    return port_of(Kind(factory, arguments), arguments, steps=12)


@needs_tensorflow
@pytest.mark.parametrize("arguments, expected", [
    ({"clipnorm": 1.0}, "everstep.clip(Warmed(), norm=1.0)"),
    ({"clipvalue": 5.0}, "everstep.clip(Warmed(), value=5.0)"),
])
def test_clipping_arguments_become_clip(arguments, expected):
    cls = classes("v2")["Warmed"]
    if not hasattr(cls, "_transform_gradients"):
        with pytest.raises(PortError, match="Port without it, and wrap the definition: everstep.clip"):
            wrapped(cls, arguments)
        return
    port = wrapped(cls, arguments)
    assert port.source.endswith("definition = {}\n".format(expected)) and port.report.is_wrapped
    bounds = [each.what for each in port.report.comparisons if "=0." in each.what]
    assert len(bounds) == 3  # with a bound that clips, whatever the user's is
    namespace = {}
    exec(compile(port.source, "port", "exec"), namespace)
    assert repr(namespace["definition"]) == repr(port.definition)


@needs_tensorflow
@pytest.mark.parametrize("given", [{}, {"ema_momentum": 0.9}])
def test_use_ema_becomes_a_moving_average(given):
    if not hasattr(tf.keras.optimizers.Adam, "_build_learning_rate"):
        pytest.skip("only new-style optimizers have use_ema and _build_learning_rate: TF 2.11 to 2.15")

    class Signed(tf.keras.optimizers.Optimizer):
        def __init__(self, learning_rate=0.1, name="Signed", **native):
            super(Signed, self).__init__(name=name, **native)
            self._learning_rate = self._build_learning_rate(learning_rate)

        def build(self, variables):
            super(Signed, self).build(variables)
            self._built = True  # else the base class makes its averages again

        def update_step(self, gradient, variable):
            variable.assign_sub(self.learning_rate * tf.sign(gradient))

        def get_config(self):
            return dict(super(Signed, self).get_config(), learning_rate=0.1)

    average = wrapped(Signed, dict(given, use_ema=True)).definition
    assert (type(average).__name__, average.average_decay) == ("MovingAverage", given.get("ema_momentum", 0.99))


@needs_tensorflow
def test_a_wrapper_is_recognised_by_its_maths():
    written = classes("v2")
    port = wrapped(lambda: written["Periodic"](written["Warmed"](0.02)))
    assert "definition = everstep.lookahead(Warmed(), sync_period=3, slow_step_size=0.4)" in port.source
    port = wrapped(lambda: written["Periodic"](written["Warmed"](0.02), period=1000))
    assert "class Periodic(" in port.source and not port.report.is_wrapped  # so few steps cannot tell: one rule


@needs_tensorflow
def test_loss_scaling_is_recognised():
    scaling = getattr(getattr(tf.keras, "mixed_precision", None), "LossScaleOptimizer", None)
    if scaling is None:
        pytest.skip("this TensorFlow has no LossScaleOptimizer that is no experiment")
    kind = "new" if hasattr(tf.keras.optimizers.Adam, "update_step") else "v2"
    cls = classes(kind)["SofterAdam" if kind == "new" else "Warmed"]
    port = wrapped(lambda: scaling(cls(), initial_scale=4.0))
    assert port.source.endswith("definition = everstep.loss_scale({}(), initial_scale=4.0)\n".format(cls.__name__))


@needs_tensorflow
def test_an_average_is_for_evaluation():
    port = ported(classes("v2")["Averaged"])
    assert 'stored_as = ("optimizer_v2", "velocity=momentum | average", "updates")' in port.source
    weights = np.ones(2, np.float32)
    optimizer = port.definition.bind(np)
    optimizer.apply_gradients([(np.ones(2, np.float32), weights)])
    with everstep.averaged(optimizer, [weights]):
        np.testing.assert_allclose(weights, 0.75 + 0.25 * 0.99, rtol=1e-6)


@needs_tensorflow
def test_reads_in_branches_that_nothing_orders_are_refused():
    if not tf.__version__.startswith("1.1"):
        pytest.skip("tf.cond is one op in graphs of TF 2")

    class Racing(classes("train")["SignMomentum"]):
        def _update(self, grad, var):
            m = self.get_slot(var, "m")
            is_half = tf.equal(self._power("beta1_power"), 0.5)
            used = tf.cond(is_half, lambda: m.read_value(), lambda: 2 * m.read_value())
            return tf.group(var.assign_sub(self._lr * used), m.assign(self._beta1 * m + grad))

    with pytest.raises(PortError, match="in a branch of tf.cond, reads before or after .* writes"):
        ported(Racing)


@needs_tensorflow
@pytest.mark.parametrize("kind, name", [("v2", "Averaged"), ("get_updates", "AdaMod"), ("new", "AdaPNM")])
def test_keras_files_of_the_original_are_read(kind, name, tmp_path):
    cls = classes(kind)[name]
    pytest.importorskip("h5py")
    module = sys.modules["keras"] if kind == "get_updates" else tf.keras
    if kind == "v2" and (not is_eager or module.optimizers.Adam.__mro__[1] not in cls.__mro__):
        pytest.skip("tf.keras's own models take these in TF 2.0 to 2.10")
    definition = ported(cls).definition
    if kind == "get_updates":
        harness.clear_session(module)  # an earlier test's session may be of another graph
    model = module.models.Sequential([module.layers.Dense(3, input_shape=(4,)), module.layers.Dense(2)])
    model.compile(cls(), "mse")
    x = np.random.RandomState(0).rand(8, 4).astype(np.float32)
    for _ in range(3):
        model.train_on_batch(x, x[:, :2])
    path = str(tmp_path / "model.h5")
    model.save(path)
    paths = [path]
    if kind == "v2" or kind == "new" and hasattr(model.optimizer, "_trackable_children"):  # Keras 3.0's is no Trackable
        paths.append(tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(tmp_path / "checkpoint")))
    variables = getattr(model.optimizer, "variables", None)
    variables = variables() if callable(variables) else variables  # a method on TF 2.11
    held = model.optimizer.get_weights() if kind != "new" else [each.numpy() for each in variables]
    slots = {"v2": ["velocity", "average"], "get_updates": ["m", "v", "s"], "new": ["even", "odd", "velocity"]}[kind]
    held = held[len(held) - 4 * len(slots):]
    if kind == "new":  # the slots of a variable stand together
        held = [held[len(slots) * variable + slot] for slot in range(len(slots)) for variable in range(4)]
    for path in paths:
        state = everstep.read_checkpoint(path, definition)
        assert state.updates == 3
        for place, (slot, name) in enumerate((slot, name) for slot in slots for name in state.slots):
            np.testing.assert_array_equal(np.asarray(state.slots[name][slot]), held[place])


@needs_tensorflow
def test_a_checkpoint_of_the_original_is_read(tmp_path):
    port = ported(pattern_class(), {"learning_rate": 0.1})
    rate, steps = 0.1, 3
    with tf1.Graph().as_default(), tf1.Session() as session:
        variable = tf1.get_variable("dense/kernel", initializer=np.ones((2, 3), np.float32))
        step = tf1.train.get_or_create_global_step()
        apply = pattern_class()(rate).apply_gradients([(tf1.ones((2, 3)), variable)])
        with tf1.control_dependencies([apply]):
            train = tf1.assign_add(step, 1).op
        session.run(tf1.global_variables_initializer())
        for _ in range(steps):
            session.run(train)
        path = tf1.train.Saver().save(session, str(tmp_path / "model.ckpt"))
        slot = next(each for each in tf1.global_variables() if each.name == "dense/kernel/my_m:0")
        expected, m = session.run([variable, slot])
        session.run(train)
        after = session.run(variable)
    state = everstep.read_checkpoint(path, port.definition)
    assert state.updates == steps
    np.testing.assert_array_equal(np.asarray(state.slots["dense/kernel"]["m"]), m)
    optimizer = port.definition.bind(np)
    everstep.restore(optimizer, state, {"dense/kernel": expected})
    optimizer.apply_gradients([(np.ones((2, 3), np.float32), expected)])
    np.testing.assert_allclose(expected, after, rtol=1e-6)


@needs_tensorflow
def test_a_sparse_update_of_another_kind_is_an_error():
    """It decays the rows present twice as fast as dense ones."""
    base = optimizer_v2()
    if base is None:
        pytest.skip("this TensorFlow has no OptimizerV2")
    dense = foreign.v2_classes(tf, base)["Warmed"]

    class Odd(dense):
        def _resource_apply_sparse(self, grad, var, indices, apply_state=None):
            return self._resource_scatter_add(var, indices, -0.7 * grad)

    with pytest.raises(PortSparseError, match=r"does none of exact \(.*\), rows \(.*\), variable_rows"):
        ported(Odd)
    port = ported(Odd, sparse="rows")
    assert port.definition.sparse == "rows" and port.report.sparse == "other"
    assert any("used as rows, though the original does something else" in note for note in port.report.notes)


@pytest.mark.shared(False)
@needs_tensorflow
def test_stock_optimizers_are_those_of_from_native():
    port = everstep.port(tf1.train.MomentumOptimizer, {"learning_rate": 0.1, "momentum": 0.9})
    assert port.definition == everstep.from_native(tf1.train.MomentumOptimizer(0.1, 0.9))
    assert port.report.is_stock and port.report.dense < 1e-5
    assert "everstep.optimizers.SGD(" in port.source


test_arguments_that_cannot_be_read = needs_tensorflow(runs.refused([
    (lambda: everstep.port(pattern_class()(0.1)), PortError, "Give its class and its arguments"),
    (lambda: everstep.port(tf1.train.AdamOptimizer, {"rate": 0.1}), PortError, "cannot be made: TypeError"),
    (lambda: everstep.port(tf1.train.AdamOptimizer, sparse="lazy"), PortError, "sparse is None"),
    (lambda: everstep.port(everstep.optimizers.Adam), PortError, "is a definition already"),
    (lambda: everstep.port(dict), PortError, "of no API that can be ported"),
]))


@needs_tensorflow
def test_instances_and_schedules():
    """An instance is ported if its config has every argument. A schedule is the definition's rate."""
    warmed = classes("v2")["Warmed"]

    class Told(warmed):
        def get_config(self):
            config = {name: self._serialize_hyperparameter(name) for name in ("learning_rate", "beta_1", "beta_2")}
            return dict(super(Told, self).get_config(), warmup_steps=self.warmup_steps, **config)

    if not hasattr(tf.keras.optimizers, "schedules"):
        pytest.skip("this TensorFlow has no schedules")
    with pytest.raises(PortError, match="does not say learning_rate"):
        everstep.port(warmed(0.3))
    factory, arguments = factory_of(Told(0.25, warmup_steps=7), {})
    assert factory is Told and arguments["learning_rate"] == 0.25 and arguments["warmup_steps"] == 7
    schedule = tf.keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    port = ported(warmed, {"learning_rate": schedule})
    assert port.definition.learning_rate is schedule
    assert port.report.dense < 1e-4


@pytest.mark.skipif(tf is not None, reason="TensorFlow is installed")
def test_without_tensorflow():
    with pytest.raises(UnsupportedError, match="needs TensorFlow"):
        everstep.port(dict)


# The command line.

SOURCE = '''
try:
    import tensorflow.compat.v1 as tf
except ImportError:
    import tensorflow as tf


class Halving(tf.train.Optimizer):
    def __init__(self, learning_rate, share=0.5, name="Halving"):
        super(Halving, self).__init__(False, name)
        self._rate, self._share = learning_rate, share

    def _apply_dense(self, grad, var):
        return var.assign_sub(self._rate * grad * tf.abs(grad) ** self._share)

    _resource_apply_dense = _apply_dense
'''


@pytest.mark.shared(False)
@needs_tensorflow
def test_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name = "halving_{}".format(os.getpid())
    with io.open(name + ".py", "w") as file:
        file.write(u"{}".format(SOURCE))
    command = ["port", name + ":Halving", "--api", "tf.train", "-a", "learning_rate=0.02", "-o", "my_rule.py", "--test"]
    assert cli.main(command) == 0
    out, progress = capsys.readouterr()
    assert "my_rule.py is written" in out and "reading the rule" in progress and "100 steps" in progress
    namespace = {}
    monkeypatch.syspath_prepend(str(tmp_path))
    with io.open("test_my_rule.py") as file:
        exec(compile(file.read(), "test_my_rule.py", "exec"), namespace)
    check_all = namespace["check_definition"]  # on NumPy alone: other tests train on every API
    namespace["check_definition"] = functools.partial(check_all, targets=["arrays"], checks=["gradients"], echo=None)
    namespace["test_weights_are_those_of_the_original"]()
    assert sys.modules["my_rule"].Halving().learning_rate == 0.02
    del sys.modules["my_rule"]
    with pytest.raises(AssertionError):
        namespace["WEIGHTS"] += 1e-3
        namespace["test_weights_are_those_of_the_original"]()
    assert cli.main(command) == 2 and "exists" in capsys.readouterr()[1]
    assert cli.main(["port", name + ":Halving", "--api", "keras", "-a", "learning_rate=0.02"]) == 2
    assert "is an optimizer of tf_train, not of keras" in capsys.readouterr()[1]
    assert cli.main(["port", name + ":Halving"]) == 1
    assert "cannot be made" in capsys.readouterr()[1]


@pytest.mark.parametrize("arguments, message", [
    (["no.such.module:Adam"], "cannot be imported"), (["json"], "package.module:Class"),
    (["json:JSONDecoder", "-a", "rate"], "NAME=VALUE"), (["json:JSONDecoder", "--test"], "-o NAME.py"),
])
def test_wrong_calls(arguments, message, capsys):
    assert cli.main(["port"] + arguments) == 2
    assert message in capsys.readouterr()[1]
    assert issubclass(ConfigError, ValueError)
