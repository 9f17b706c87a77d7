"""The set-ups of code blocks: what a block takes for granted, and what is true after it.

A comment above a block names its set-up (`matrix/blocks.py` has the form). A set-up is a function decorated with
`@setup` that yields once, where the block runs. What it puts into `run.names` are names that the block can use.
"""
from __future__ import absolute_import, division, print_function

import contextlib
import copy
import importlib
import io
import json
import os
import re

import numpy as np

import everstep
import harness
import small_model
import stock
from everstep.errors import TargetError
from everstep.optimizers import SGD, Adagrad, Adam, DiffGrad

try:
    import tensorflow as tf

    v1 = getattr(getattr(tf, "compat", None), "v1", None) or tf
except ImportError:
    tf = v1 = None

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
X = np.linspace(-1, 1, 256).reshape(64, 4).astype("float32")
Y = X.sum(axis=1, keepdims=True)
SETUPS = {}


def setup(function):
    SETUPS[function.__name__] = contextlib.contextmanager(function)
    return function


@contextlib.contextmanager
def nothing(run):
    """The set-up of blocks that name none."""
    yield


# Every Keras


def import_keras(name):
    """Returns a Keras that has optimizers, or None."""
    try:
        module = getattr(tf, "keras", None) if name == "tf.keras" else importlib.import_module(name)
    except ImportError:
        return None
    return module if hasattr(getattr(module, "optimizers", None), "Adam") else None


def every_keras():
    """Returns the Kerases of this environment, `import keras` first, each once."""
    modules = [module for module in map(import_keras, ("keras", "tf.keras", "tf_keras")) if module]
    return [module for place, module in enumerate(modules)
            if harness.base_of(module) not in map(harness.base_of, modules[:place])]


KERAS = (every_keras() + [None])[0]


def dense_model(keras, units=1, names=None):
    """Returns a model of two layers, with Keras's own names for them unless some are given."""
    inputs = keras.layers.Input((4,))
    named = [{"name": name} for name in names or ()] or [{}, {}]
    outputs = keras.layers.Dense(units, **named[1])(keras.layers.Dense(3, **named[0])(inputs))
    return keras.models.Model(inputs, outputs)


def train_small(keras, optimizer):
    """Trains an embedding and a kernel for a step; asserts that both move."""
    model = small_model.build(keras, optimizer)
    model.train_on_batch(small_model.IDS, small_model.TARGETS)
    assert all((new != old).any() for new, old in zip(
        model.get_weights(), (small_model.EMBEDDINGS, small_model.KERNEL)))


class OneOfEach(object):
    """What a page calls `model` where each line is of another Keras: compiling makes a model of the optimizer's."""

    def compile(self, optimizer, loss):
        model = dense_model(next(each for each in every_keras() if isinstance(optimizer, bases(each))))
        model.compile(optimizer, loss)


def bases(keras):
    """Returns the native base classes of a Keras, that of its legacy namespace too."""
    try:
        return harness.base_of(keras), harness.base_of(getattr(keras.optimizers, "legacy", keras))
    except TargetError:  # Keras 3 emptied the namespace
        return (harness.base_of(keras),)


@setup
def falling_loss(run):
    yield
    assert isinstance(run.names["model"].optimizer, Adam.native_class(tf.keras))
    losses = re.findall(r"loss: ([0-9.e-]+)", run.printed())
    assert len(losses) == 5 and float(losses[-1]) < float(losses[0])


@setup
def any_api(run):
    """Every module of this environment, and a loss for tf.train."""
    array, grad = np.ones(3), np.full(3, 0.5)
    names = dict(tf=tf, numpy=np, keras=import_keras("keras"), tf_keras=import_keras("tf_keras"), model=OneOfEach(),
                 array=array, grad=grad)
    if tf is not None and hasattr(tf.train, "Optimizer"):
        weights = tf.get_variable("weights", initializer=[1.0, 2.0], use_resource=True)
        names.update(loss=tf.reduce_sum(weights * weights), global_step=tf.train.get_or_create_global_step())
    run.names.update(names)
    yield
    assert (array < 1).all()
    if "train_op" in run.names:
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(run.names["train_op"])
            assert session.run(names["global_step"]) == 1 and (session.run(weights) < [1.0, 2.0]).all()


@setup
def keras_model(run):
    """A model of `keras`, and TensorFlow as `tf`."""
    model = dense_model(KERAS)
    run.names.update(everstep=everstep, tf=tf, keras=KERAS, model=model)
    yield
    model.fit(X, Y, verbose=0)
    rule = model.optimizer.definition
    assert (rule.momentum, rule.epsilon, rule.epsilon_in_root) == (0.9, 1e-10, True)


@setup
def tf_keras_model(run):
    run.names.update(everstep=everstep, tf=tf, model=dense_model(tf.keras), x=X, y=Y)
    yield
    assert "hidden" in run.printed() or "dense" in run.printed()


@setup
def any_keras(run):
    """`keras`. Runs the block for each Keras here, and trains with the block's `optimizer`."""
    for place, keras in enumerate(every_keras()):
        run.names["keras"] = keras
        if place:
            run.again()
        else:
            yield
        assert run.names["optimizer"].definition.base.learning_rate == 0.01
        train_small(keras, run.names["optimizer"])


@setup
def stock_of_any_keras(run):
    """`keras`. Runs the block for each Keras here: its `optimizer` is that Keras's own Adam."""
    for place, keras in enumerate(every_keras()):
        run.names["keras"] = keras
        if place:
            run.again()
        else:
            yield
        optimizer = run.names["optimizer"]
        assert type(optimizer).__name__ == "Adam" and not hasattr(optimizer, "definition")
        assert stock.migrate(optimizer).learning_rate == 1e-3
        train_small(keras, optimizer)


@setup
def config_of_tf_1(run):
    """optimizer.json as TF 1.4 wrote it, and `keras` as in `any_keras`."""
    with io.open(os.path.join(ROOT, "tests", "golden", "tf_train_1.4.json"), encoding="ascii") as file:
        definition = json.load(file)["cases"]["RMSprop, centered"]["definition"]
    with open("optimizer.json", "w") as file:
        json.dump(dict(definition, learning_rate=0.01), file)
    with contextlib.contextmanager(any_keras)(run):
        yield


@setup
def saved_model(run):
    """A model.keras that was trained with everstep, in a process whose Keras does not know that class."""
    model = dense_model(tf.keras)
    model.compile(Adam(1e-2).bind(tf.keras), "mse")
    model.fit(X, Y, verbose=0)
    model.save("model.keras")
    with harness.unregistered(tf.keras):
        yield
        assert run.names["model"].optimizer.definition == Adam(1e-2)
        np.testing.assert_array_equal(run.names["model"].get_weights()[0], model.get_weights()[0])


@setup
def two_models(run):
    """`optimizer` and `variables` of a trained model; the state goes to a second model of the same process too."""
    models = first, second = [dense_model(KERAS) for _ in range(2)]
    for model in models:
        model.compile(Adam(1e-2).bind(KERAS), "mse")
    first.fit(X, Y, verbose=0)
    if v1 is not None:
        with tf.Graph().as_default(), v1.Session() as session:
            weights = v1.get_variable("weights", initializer=[1.0, 2.0], use_resource=True)
            train_op = v1.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(weights))
            session.run(v1.global_variables_initializer())
            session.run(train_op)
            v1.train.Saver().save(session, "./model.ckpt")
    run.names.update(everstep=everstep, optimizer=first.optimizer, variables=first.trainable_weights)
    yield
    if "state" in run.names:
        assert run.names["state"].updates == 1 and list(run.names["state"].slots) == ["weights"]
    everstep.restore(second.optimizer, everstep.State.load("run.npz"), second.trainable_weights, weights=True)
    for mine, theirs in zip(second.get_weights(), first.get_weights()):
        np.testing.assert_array_equal(mine, theirs)
    states = [everstep.capture(model.optimizer, model.trainable_weights) for model in models]
    for mine, theirs in zip(*[state.slots.values() for state in states]):
        for name in mine:
            np.testing.assert_array_equal(np.asarray(mine[name]), np.asarray(theirs[name]))


@setup
def accumulated(run):
    """`x`, `y` and a model. After the block: the weights are those of batches four times as large."""
    model, other = (dense_model(tf.keras) for _ in range(2))
    other.set_weights(model.get_weights())
    other.compile(SGD(0.01, momentum=0.9).bind(tf.keras), "mse")
    run.names.update(model=model, x=X, y=Y)
    yield
    other.fit(X, Y, batch_size=32, shuffle=False, verbose=0)
    for mine, theirs in zip(model.get_weights(), other.get_weights()):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@setup
def averaged(run):
    model = dense_model(tf.keras)
    run.names.update(everstep=everstep, Adam=Adam, tf=tf, model=model, x=X, y=Y)
    yield
    trained = model.get_weights()
    with everstep.averaged(model.optimizer, model.trainable_variables):
        assert all((old != new).all() for old, new in zip(model.get_weights(), trained))


@setup
def another_head(run):
    """The state of a model with five classes, and an optimizer of one with seven."""
    old, model = (dense_model(KERAS, classes, ("hidden", "head")) for classes in (5, 7))
    for each in (old, model):
        each.compile(Adam(1e-2).bind(KERAS), "mse")
    old.fit(X, np.repeat(Y, 5, axis=1), verbose=0)
    state = everstep.capture(old.optimizer, old.trainable_variables)
    run.names.update(everstep=everstep, optimizer=model.optimizer, state=state, model=model)
    yield
    assert len(run.names["report"].restored) == 2
    assert "in the state m (3, 5), v (3, 5)" in run.printed()


# Sparse rows


def rows_of(steps):
    random = np.random.RandomState(2)
    return [random.randint(0, 1000, 16) for _ in range(steps)]


def dense_run(batches):
    """Returns the table after training as docs/sparse.md does, in NumPy float64, with sparse="exact"."""
    table = np.ones((1000, 8))
    optimizer = Adam(1e-3).bind(np)
    for rows in batches:
        optimizer.apply_gradients([(everstep.IndexedSlices(2 * table[rows], rows), table)])
    return table


@setup
def batches_of_rows(run):
    run.names["batches"] = rows_of(4)
    yield
    np.testing.assert_allclose(run.names["table"].numpy(), dense_run(rows_of(4)), rtol=2e-6)


@setup
def graph_of_rows(run):
    """A `table`, and a `loss` of the rows in a placeholder."""
    with v1.Graph().as_default():
        table = v1.get_variable("table", initializer=tf.ones([1000, 8]), use_resource=True)
        rows = v1.placeholder(tf.int64, [None])
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, rows) ** 2)
        run.names.update(everstep=everstep, tf=v1, table=table, rows=rows, loss=loss, batches=rows_of(4))
        yield
        np.testing.assert_allclose(run.names["values"], dense_run(rows_of(4)), rtol=2e-6)


def model_of_rows(run):
    """Gives a block a `model` with an embedding, and batches of row numbers `x` with targets `y`."""
    inputs = tf.keras.layers.Input((3,), dtype="int32")
    embedded = tf.keras.layers.Flatten()(tf.keras.layers.Embedding(1000, 8)(inputs))
    model = tf.keras.models.Model(inputs, tf.keras.layers.Dense(1)(embedded))
    x = np.random.RandomState(0).randint(0, 1000, (96, 3))
    run.names.update(tf=tf, model=model, x=x, y=np.ones((96, 1), np.float32))
    return model


@setup
def embedding_model(run):
    model = model_of_rows(run)
    yield
    table = model.layers[1].embeddings
    assert not model.optimizer.get_slot(table, "catch_up/updates").numpy()  # the flush brought all rows up to date
    assert model.layers[1].call.__name__ != "call"


# Definitions


def same_steps(mine, shipped):
    """Asserts that two definitions take the same steps on NumPy, and that they move."""
    ended = []
    for definition in (mine, shipped):
        weights = np.ones(3)
        optimizer = definition.bind(np)
        for grad in (1.0, -2.0, 0.5):
            optimizer.apply_gradients([(np.full(3, grad), weights)])
        ended.append(weights)
    assert (ended[0] == ended[1]).all() and (ended[0] != 1).all(), ended


@setup
def diffgrad(run):
    run.names["tf"] = tf
    yield
    assert run.names["DiffGrad"] is not DiffGrad
    same_steps(run.names["DiffGrad"](0.1), DiffGrad(0.1))


def trained_in_graph(make, start, grads):
    """Returns the weights of a session of TF 1. `make(variable)` returns an object with `apply_gradients`."""
    with v1.Graph().as_default(), v1.Session() as session:
        variable, grad = v1.get_variable("weights", initializer=start), v1.placeholder("float32", start.shape)
        step = make(variable).apply_gradients([(grad, variable)])
        session.run(v1.global_variables_initializer())
        for each in grads:
            session.run(step, {grad: each})
        return session.run(variable)


@setup
def contrib_wrappers(run):
    embedding = tf.get_variable("embedding", initializer=np.full((3, 4), 2.0, "float32"))
    step = tf.train.get_or_create_global_step()
    loss = tf.reduce_sum(embedding**2)
    run.names.update(tf=tf, everstep=everstep, embedding=embedding, global_step=step, loss=loss)
    yield
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(run.names["train_op"])
        assert session.run(step) == 1 and np.allclose(session.run(embedding), 0.5)  # the norm of a row is 1


WRAPPED = [np.array([[1.0, -2.0], [0.0, 0.5]]), np.zeros((2, 2)), np.array([[0.5, 0.5], [3.0, 0.0]])]
WRAPPED_START = np.array([[1.0, -2.0], [0.25, 0.5]], "float32")


def contrib_agrees(definition, wrap):
    """Compares with the wrapper of tf.contrib, if it is here. `wrap(optimizer, variable)` returns it."""
    if hasattr(tf, "contrib"):
        expected = trained_in_graph(lambda each: wrap(tf.train.AdamOptimizer(0.1), each), WRAPPED_START, WRAPPED)
        actual = trained_in_graph(lambda each: definition.bind(tf.train), WRAPPED_START, WRAPPED)
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


@setup
def multitask(run):
    run.names["everstep"] = everstep
    yield
    optimizer, weights = run.names["definition"].bind(np), WRAPPED_START.copy()
    optimizer.apply_gradients([(WRAPPED[0], weights)])
    before, moment = weights.copy(), optimizer.get_slot(weights, "m").copy()
    optimizer.apply_gradients([(WRAPPED[1], weights)])
    assert (weights == before).all() and (optimizer.get_slot(weights, "m") == moment).all() and moment.any()
    contrib_agrees(run.names["definition"], lambda inner, _: tf.contrib.opt.MultitaskOptimizerWrapper(inner))


@setup
def max_norm(run):
    run.names["everstep"] = everstep
    yield
    optimizer, weights = run.names["definition"].bind(np), WRAPPED_START.copy()
    optimizer.apply_gradients([(WRAPPED[0], weights)])
    norms = np.sqrt((weights**2).sum(1))
    assert abs(norms[0] - 1) < 1e-6 and norms[1] < 1
    contrib_agrees(run.names["definition"],
                   lambda inner, each: tf.contrib.opt.VariableClippingOptimizer(inner, {each: [1]}, 1.0))


@setup
def kernel_of_adagrad(run):
    run.names["everstep"] = everstep
    yield
    rule = run.names["MyAdagrad"]
    same_steps(rule(0.1), Adagrad(0.1))
    if tf is not None:
        with v1.Graph().as_default(), v1.Session() as session:
            weights = v1.get_variable("weights", initializer=np.ones(3, "float32"), use_resource=True)
            optimizer = rule(0.1).bind(v1.train)
            step = optimizer.minimize(tf.reduce_sum(weights))
            session.run(v1.global_variables_initializer())
            session.run(step)
            assert [each.strategy for each in optimizer.everstep_plan()] == ["kernel"]


@setup
def golden(run):
    """After the block: its numbers are those of the rule that it works out by hand."""
    yield
    assert list(run.names["CONFIGURATIONS"][0]) == ["weight_decay"]
    for arguments, value, grads, expected in run.names["GOLDEN"]:
        average = 0.0
        for grad, wanted in zip(grads, expected):
            average = arguments["beta_1"] * average + (1 - arguments["beta_1"]) * grad
            value -= arguments["learning_rate"] * average
            assert abs(value - wanted) < 1e-7


# States and files


@setup
def checkout(run):
    """The files of tests/, under the paths that they have in a checkout."""
    os.symlink(os.path.join(ROOT, "tests"), "tests")
    yield


@setup
def old_program(run):
    with io.open("train.py", "w", encoding="utf-8") as file:
        file.write(u"import tensorflow as tf\n\noptimizer = tf.train.AdamOptimizer(0.1)\n"
                   u"train_op = optimizer.minimize(loss)\nsaver = tf.train.Saver()\n")
    os.environ["COLUMNS"] = "100"  # a wider table is cut off on the site
    try:
        yield
    finally:
        del os.environ["COLUMNS"]


@setup
def run_of_tensorflow_1(run):
    """What `everstep convert` makes of tests/files/tf1.15/adam.ckpt. A step more must be that of stock's Adam."""
    with io.open(os.path.join(ROOT, "tests", "files", "tf1.15", "adam.ckpt.json"), encoding="utf-8") as file:
        truth = json.load(file)
    slots = {name: {slot: np.array(value, "float32") for slot, value in values.items()}
             for name, values in truth["slots"].items()}
    variables = {name: np.array(value, "float32") for name, value in truth["variables"].items()}
    everstep.State(definition=Adam(0.1, epsilon=1e-8).get_config(), updates=truth["updates"], slots=slots,
                   variables=variables).save("run.npz")
    yield
    rows = truth["gradients"]["embeddings"]
    dense = {"embeddings": np.zeros((5, 3), "float32"), "kernel": np.array(truth["gradients"]["kernel"], "float32")}
    dense["embeddings"][rows["indices"]] = rows["values"]
    for name, value in one_step_more(run.names, dense).items():
        assert np.abs(value - truth["next"][name]).max() < 1e-6


def one_step_more(names, gradients):
    """Returns {name: weights} after a step of the optimizer of a page: torch's, optax's or a Keras model's."""
    if "parameters" in names:
        for name, parameter in names["parameters"].items():
            value = gradients["embeddings"] if name == "0.weight" else gradients["kernel"].T
            parameter.grad = names["torch"].tensor(value.copy())
        names["optimizer"].step()
        values = [parameter.detach().numpy() for parameter in names["parameters"].values()]
        return {"embeddings": values[0], "kernel": values[1].T}
    if "params" in names:
        updates, _ = names["transform"].update(gradients, names["opt_state"], names["params"])
        params = names["optax"].apply_updates(names["params"], updates)
        return {name: np.asarray(value) for name, value in params.items()}
    variables = names["variables"]
    convert = names["keras"].ops.convert_to_tensor
    names["model"].optimizer.apply([convert(gradients[name]) for name in variables], list(variables.values()))
    return {name: names["keras"].ops.convert_to_numpy(variable.value) for name, variable in variables.items()}


def save_state():
    weights = np.ones(3)
    optimizer = Adam(0.1).bind(np)
    optimizer.apply_gradients([(np.ones(3), weights)])
    everstep.capture(optimizer, {"weights": weights}).save("run.npz")


@setup
def state_in_file(run):
    save_state()
    yield
    assert "1 updates, 1 variables" in run.printed() and os.path.exists("run.safetensors")


@setup
def saved_state(run):
    save_state()
    run.names.update(json=json, numpy=np, members=None)
    yield
    members = run.names["members"]
    assert json.loads(members["everstep.json"].decode())["format"] == "everstep-state"
    assert "array_0" in members.files
    members.close()


# tf.train: the page says `tf`, which is TensorFlow 1 or `import tensorflow.compat.v1 as tf`

FEATURES = X[:8]
LABELS = X[8:16, :2]


def predict(features):
    return tf.matmul(features, v1.get_variable("kernel", [4, 2]))


def batches():
    data = v1.data.Dataset.from_tensors((FEATURES, LABELS)).repeat()
    if hasattr(v1.data, "make_one_shot_iterator"):
        return v1.data.make_one_shot_iterator(data).get_next()
    return data.make_one_shot_iterator().get_next()


def stock_run(path, steps):
    """Trains with stock Adam and saves. Returns the kernel."""
    with v1.Graph().as_default(), v1.Session() as session:
        train_op = v1.train.AdamOptimizer(1e-3).minimize(square_loss(), v1.train.get_or_create_global_step())
        session.run(v1.global_variables_initializer())
        for _ in range(steps):
            session.run(train_op)
        v1.train.Saver().save(session, path)
        return session.run(v1.trainable_variables()[0])


def square_loss():
    return v1.losses.mean_squared_error(LABELS, predict(tf.constant(FEATURES)))


@setup
def tensorflow_1(run):
    run.names["tf"] = v1
    with v1.Graph().as_default():
        yield


@setup
def old_run(run):
    """A checkpoint of stock Adam in old_run, and a `loss`. After the block: it went on from there."""
    weights = stock_run("old_run/model.ckpt", steps=7)
    with new_run(run):
        yield
    check_new_run(weights, 5)


@setup
def old_run_resumed(run):
    """The same; then the block runs again and goes on from its own checkpoint."""
    weights = stock_run("old_run/model.ckpt", steps=7)
    with new_run(run):
        yield
    check_new_run(weights, 5)
    with new_run(run):
        run.again()
    check_new_run(weights, 10)


@contextlib.contextmanager
def new_run(run):
    with v1.Graph().as_default():
        run.names.update(everstep=everstep, tf=v1, loss=square_loss(), predict=predict, input_fn=batches)
        yield


def check_new_run(weights, count):
    reader = v1.train.NewCheckpointReader(v1.train.latest_checkpoint("new_run"))
    assert reader.get_tensor("Adam/updates") == count
    assert reader.get_tensor("global_step") == 7 + count
    assert 0 < np.abs(reader.get_tensor("kernel") - weights).max() <= 1.1e-3 * count


@setup
def hard_coded(run):
    """`train` is code that makes stock Adam."""
    optimizers = []

    def train(loss):
        optimizers.append(v1.train.AdamOptimizer(0.1, epsilon=1e-5))
        optimizers[-1].minimize(loss)

    with v1.Graph().as_default():
        run.names.update(everstep=everstep, tf=v1, loss=square_loss(), train=train)
        yield
    assert [type(each).__name__ for each in optimizers] == ["DiffGrad", "MovingAverage"]
    assert optimizers[0].definition.epsilon == optimizers[1].definition.inner.epsilon == 1e-5


@setup
def old_state(run):
    """The checkpoint of stock Adam after five steps. After the block: the sixth is that of a run that went on."""
    stock_run("old_run/model.ckpt-5", steps=5)
    with v1.Graph().as_default(), v1.Session() as session:
        optimizer = Adam(1e-3, epsilon=1e-8).bind(v1.train)
        train_op = optimizer.minimize(square_loss())
        session.run(v1.global_variables_initializer())
        v1.train.Saver(v1.trainable_variables()).restore(session, "old_run/model.ckpt-5")
        run.names.update(everstep=everstep, tf=v1, optimizer=optimizer, session=session)
        yield
        slots = [np.abs(session.run(optimizer.get_slot(v1.trainable_variables()[0], name))).max() for name in "mv"]
        assert everstep.capture(optimizer, v1.trainable_variables(), session=session).updates == 5 and min(slots) > 0
        session.run(train_op)


@setup
def bert(run):
    """A checkpoint with slots named as BERT's optimizer names them, and a `session` with the same variables."""
    values = {"layer/kernel": np.ones((2, 3), "float32"), "layer/bias": np.full(3, 2, "float32")}
    os.mkdir("bert")
    with v1.Graph().as_default(), v1.Session() as session:
        for name, value in values.items():
            v1.get_variable(name, initializer=value)
            v1.get_variable(name + "/adam_m", initializer=value * 3, trainable=False)
            v1.get_variable(name + "/adam_v", initializer=value * 5, trainable=False)
        v1.get_variable("global_step", initializer=np.int64(60), trainable=False)
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, "bert/model.ckpt-60")
    with v1.Graph().as_default(), v1.Session() as session:
        variables = [v1.get_variable(name, initializer=value) for name, value in values.items()]
        rule = everstep.optimizers.AdamW(1e-4, weight_decay=0.01, epsilon=1e-6, bias_correction=False)
        optimizer = rule.bind(v1.train)
        optimizer.minimize(tf.add_n([tf.reduce_sum(each) for each in variables]))
        session.run(v1.global_variables_initializer())
        run.names.update(everstep=everstep, tf=v1, optimizer=optimizer, session=session)
        yield
        for variable, value in zip(variables, values.values()):
            for name, times in (("m", 3), ("v", 5)):
                np.testing.assert_array_equal(session.run(optimizer.get_slot(variable, name)), value * times)


@setup
def wide_and_deep(run):
    """A checkpoint that a DNNLinearCombinedClassifier wrote, with Adagrad and Ftrl."""
    column = tf.feature_column
    place = column.categorical_column_with_identity("place", 7)
    estimator = tf.estimator.DNNLinearCombinedClassifier(
        model_dir="run", linear_feature_columns=[place], linear_optimizer="Ftrl",
        dnn_feature_columns=[column.embedding_column(place, 4)], dnn_optimizer="Adagrad", dnn_hidden_units=[8])
    estimator.train(lambda: tf.data.Dataset.from_tensors(({"place": [1, 3, 5, 1]}, [0, 1, 1, 0])).repeat(), steps=20)
    run.names.update(everstep=everstep, Adagrad=Adagrad, Ftrl=everstep.optimizers.Ftrl)
    yield
    state = run.names["state"]
    assert state.updates == 20
    saved = {"deep/accumulator": "Adagrad", "wide/accumulator": "Ftrl", "wide/linear": "Ftrl_1"}
    for variable, slots in state.slots.items():
        assert sorted(slots) == sorted(slot for slot in saved if slot.startswith(
            "deep" if variable.startswith("dnn") else "wide"))
        for slot, value in slots.items():
            stored = estimator.get_variable_value("{}/{}".format(variable, saved[slot]))
            np.testing.assert_array_equal(np.asarray(value), stored)
    assert len(state.slots) == 7


# Fine-tuning


@setup
def pretrained(run):
    """A file of weights that a model has trained, and a new model of the same layers."""
    old, model = (dense_model(KERAS, names=("hidden", "head")) for _ in range(2))
    old.save_weights("pretrained.weights.h5")
    run.names.update(everstep=everstep, keras=KERAS, model=model, x=X, y=Y)
    yield
    for start, end in zip(old.get_weights(), model.get_weights()):
        assert 0 < np.abs(start - end).max() < 0.01


@setup
def pretrained_graph(run):
    """A checkpoint with momentum, and the graph of the same model without an optimizer."""
    with v1.Graph().as_default(), v1.Session() as session:
        v1.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_sum(v1.get_variable("w", initializer=[3.0, 4.0])))
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, os.path.join(".", "pretrained.ckpt"))
    with v1.Graph().as_default():
        weight = v1.get_variable("w", initializer=[0.0, 0.0])
        run.names.update(everstep=everstep, tf=v1, loss=tf.reduce_sum(weight * weight))
        yield
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            run.names["weights"].restore(session, "pretrained.ckpt")
            assert session.run(weight).tolist() == [3, 4]
            session.run(run.names["train_op"])
            assert 0 < np.abs(session.run(weight) - [3, 4]).max() < 0.001


@contextlib.contextmanager
def training_graph():
    """Yields (session, optimizer, its operation, its variable) after two steps."""
    with v1.Graph().as_default(), v1.Session() as session:
        weight = v1.get_variable("w", initializer=[3.0, 4.0])
        optimizer = Adam(0.1).bind(v1.train)
        train_op = optimizer.minimize(tf.reduce_sum(weight * weight), v1.train.get_or_create_global_step())
        session.run(v1.global_variables_initializer())
        for _ in range(2):
            session.run(train_op)
        yield session, optimizer, train_op, weight


@setup
def trained_graph(run):
    with training_graph() as (session, optimizer, _, weight):
        before = session.run(weight)
        run.names.update(tf=v1, session=session, optimizer=optimizer)
        yield
        state = everstep.capture(optimizer, [weight], session=session)
        assert state.updates == 0 and not np.asarray(state.slots["w"]["m"]).any()
        np.testing.assert_array_equal(session.run(weight), before)


@setup
def saved_graph(run):
    with training_graph() as (session, optimizer, train_op, weight):
        v1.add_to_collection("train_op", train_op)
        v1.train.Saver().save(session, os.path.join("run", "model.ckpt"))
        session.run(train_op)
        expected = session.run(weight)
    with v1.Graph().as_default() as graph:
        run.names["tf"] = v1
        yield
        with v1.Session(graph=graph) as session:
            run.names["saver"].restore(session, os.path.join("run", "model.ckpt"))
            session.run(run.names["train_op"])
            np.testing.assert_array_equal(session.run(v1.trainable_variables()[0]), expected)
    assert everstep.read_checkpoint(os.path.join("run", "model.ckpt"), Adam(0.1)).updates == 2


@setup
def another_file(run):
    """A model file, and a model that trains a layer less."""
    keras = tf.keras if hasattr(tf.keras.optimizers, "AdamW") else KERAS
    old, model = (dense_model(keras, names=("hidden", "head")) for _ in range(2))
    for each in (old, model):
        each.compile(Adam(1e-2).bind(keras), "mse")
    old.fit(X, Y, verbose=0)
    old.save("model.keras")
    model.layers[-1].trainable = False
    model.compile(Adam(1e-2).bind(keras), "mse")
    run.names.update(everstep=everstep, model=model, optimizer=model.optimizer)
    yield
    old_state = everstep.capture(old.optimizer, old.trainable_variables)
    state = everstep.capture(model.optimizer, model.trainable_variables)
    for slots, expected in zip(state.slots.values(), old_state.slots.values()):
        np.testing.assert_array_equal(slots["m"], expected["m"])
    assert len(state.slots) == 2 and state.updates == old_state.updates == 2


@setup
def bert_converted(run):
    yield
    state = everstep.State.load("run.npz")
    assert state.updates == 60 and sorted(state.slots) == ["layer/bias", "layer/kernel"]


@setup
def my_project(run):
    """A folder that can be installed. After the block it has the files of the matrix."""
    with open("setup.py", "w") as file:
        file.write("from setuptools import setup\n\nsetup(name='mylib', py_modules=['mylib'])\n")
    yield
    with open("tox.ini") as file:
        assert "[testenv:py39-tf2.10]" in file.read()
    assert "all files are current" in run.printed()


@setup
def other_names(run):
    """A trained optimizer, and a model whose variables have other names."""
    keras = tf.keras if hasattr(tf.keras.optimizers, "AdamW") else KERAS
    model, other = (dense_model(keras, names=names) for names in (("hidden", "head"), ("first", "second")))
    model.compile(Adam(1e-2).bind(keras), "mse")
    model.fit(X, Y, verbose=0)
    run.names.update(copy=copy, everstep=everstep, model=model, optimizer=model.optimizer, other=other)
    yield
    expected = everstep.capture(model.optimizer, model.trainable_variables)
    state = everstep.capture(run.names["twin"], other.trainable_variables)
    assert state.updates == expected.updates > 0
    for slots, wanted in zip(state.slots.values(), expected.slots.values()):
        np.testing.assert_array_equal(slots["m"], wanted["m"])
