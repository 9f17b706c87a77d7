"""The callbacks of every Keras here with bound optimizers: as with stock, or with an error that says what to do."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

import everstep
import harness
import small_model
from everstep.errors import EverstepError, HyperValueError
from everstep.optimizers import SGD, Adam
from harness import detect

NAMED = dict((name, module) for name, module in detect.known_modules() if module is not None)
KERASES = sorted(harness.kerases())
if not KERASES:
    pytest.skip("no Keras is in this environment", allow_module_level=True)

INPUTS = np.tile(np.random.RandomState(0).randn(4, 3).astype("float32"), (2, 1))  # the second half is the first again
OUTPUTS = np.tile(np.random.RandomState(1).randn(4, 2).astype("float32"), (2, 1))
RATE = 0.05
# All of them train as the rule alone. So does `accumulate` if each half of a batch of stock's is a step.
DEFINITIONS = {"plain": lambda rule: rule, "accumulate": lambda rule: everstep.accumulate(rule, 2),
               "moving_average": lambda rule: everstep.moving_average(rule, 0.5),
               "partition": lambda rule: everstep.partition({"last": ("last", rule)}, default=rule),
               "clip": lambda rule: everstep.clip(rule, global_norm=1e6)}
RATES = [name for name in sorted(DEFINITIONS) if name != "partition"]  # it has two learning rates, see below
kerases = pytest.mark.parametrize("name", KERASES if harness.FULL else [KERASES[harness.TURN % len(KERASES)]])
kinds = pytest.mark.parametrize("kind", harness.share(["LearningRateScheduler", "ReduceLROnPlateau"], 2))
definitions = pytest.mark.parametrize("definition", harness.share(sorted(DEFINITIONS), 5))

pytestmark = [pytest.mark.shared, pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")]


def started(name):
    """Returns a Keras with a new session."""
    harness.clear_session(NAMED[name])
    return NAMED[name]


def races(keras):
    """Returns True if stock Adam of this Keras reads its counter at random, see docs/from_native.md.

    Its stock optimizers also backpropagate through weights that they have updated already, at random: with TF 1.5
    nearly always. So only the last layer is compared there.
    """
    return detect.find(keras).target.name == "get_updates"


def bound(keras, definition, **native):
    rule = SGD(RATE, momentum=0.9) if races(keras) else Adam(RATE)
    return DEFINITIONS[definition](rule).bind(keras, **native)


def stock(keras, **native):
    name, more = ("SGD", {"momentum": 0.9}) if races(keras) else ("Adam", native)
    return small_model.stock_optimizer(keras.optimizers, name, dict(more, learning_rate=RATE))


def runs_eagerly(keras):
    """Returns True to save the time of a trace, where Keras can."""
    if hasattr(keras, "ops"):
        return not harness.FULL and keras.config.backend() == "tensorflow"
    eager = getattr(pytest.importorskip("tensorflow"), "executing_eagerly", lambda: False)()
    return eager and not harness.FULL and not races(keras)


def build(keras, optimizer):
    layers, model = keras.layers, keras.models.Sequential()
    more = {}
    if hasattr(keras, "ops"):
        model.add(keras.Input((3,)))
    else:
        more["input_shape"] = (3,)
    if not races(keras):
        model.add(layers.Dense(3, name="first", **more))
        more = {}
    model.add(layers.Dense(2, name="last", **more))
    model.compile(optimizer, "mse", **({"run_eagerly": True} if runs_eagerly(keras) else {}))
    random = np.random.RandomState(2)
    model.set_weights([random.randn(*weight.shape).astype("float32") for weight in model.get_weights()])
    return model


def fit(model, callbacks=(), epochs=3, batch=8, **more):
    return model.fit(INPUTS, OUTPUTS, batch_size=batch, epochs=epochs, shuffle=False, verbose=0,
                     callbacks=list(callbacks), **more)


def batch_of(definition):
    return 4 if definition == "accumulate" else 8


def as_stock(keras, definition, make, **more):
    """Trains stock and ours with the same callbacks; returns both models."""

    def trained(optimizer, batch):
        model = build(keras, optimizer)
        return model, fit(model, make(keras.callbacks), batch=batch, **more).history

    ours, history = trained(bound(keras, definition), batch_of(definition))
    theirs, expected = trained(stock(keras), 8)
    for one, other in zip(theirs.get_weights(), ours.get_weights()):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    for name in ("lr", "learning_rate"):
        if name in expected and name in history:
            np.testing.assert_allclose(expected[name], history[name], rtol=1e-5)
    return [theirs, ours]


def callbacks_of_keras(callbacks):
    stop = callbacks.EarlyStopping(monitor="loss", mode="max", patience=1)
    stop.restore_best_weights = True  # only some versions of Keras have it
    return {
        "EarlyStopping": stop,
        "LearningRateScheduler": callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1)),
        # With mode="max" a falling loss is a plateau at every epoch.
        "ReduceLROnPlateau": callbacks.ReduceLROnPlateau(monitor="loss", mode="max", factor=0.5, patience=1),
    }


@pytest.mark.parametrize("given", ["variable", "tensor"])
@pytest.mark.parametrize("name", [name for name in KERASES if detect.find(NAMED[name]).target.name in (
    "optimizer_v2", "update_step")])
def test_callbacks_set_a_rate_that_was_given_as(name, given):
    """Stock of OptimizerV2 reads the variable, new-style ones copy its number; callbacks set both."""
    keras, tensorflow, weights = started(name), pytest.importorskip("tensorflow"), []
    if not tensorflow.executing_eagerly():
        pytest.skip("a variable of a graph belongs to one session, and Keras makes a new one here")
    make_rate = tensorflow.Variable if given == "variable" else tensorflow.constant
    # stock's callbacks cannot set a tensor of an OptimizerV2
    of_stock = make_rate(0.1) if given == "variable" or detect.find(keras).target.name == "update_step" else 0.1
    for optimizer in (keras.optimizers.SGD(of_stock), SGD(make_rate(0.1)).bind(keras)):
        model = build(keras, optimizer)
        fit(model, [keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1))])
        weights.append(model.get_weights())
    for expected, got in zip(*weights):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(keras.backend.get_value(model.optimizer.learning_rate), 0.1 / 3, rtol=1e-6)


@kerases
@pytest.mark.parametrize("kind", harness.share(["LearningRateScheduler", "EarlyStopping", "ReduceLROnPlateau"], 2))
@pytest.mark.parametrize("definition", harness.share(RATES, 4))
def test_callbacks_as_stock(name, kind, definition):
    as_stock(started(name), definition, lambda callbacks: [callbacks_of_keras(callbacks)[kind]])


@pytest.mark.filterwarnings("ignore:stock get_updates reads its counter:UserWarning")
@pytest.mark.parametrize("kind", ["LearningRateScheduler", "ReduceLROnPlateau"])
@pytest.mark.parametrize("name", [name for name in KERASES if not hasattr(NAMED[name], "ops")])
def test_callbacks_set_a_rate_that_decays(name, kind):
    """The line of Keras's manual: SGD(lr, decay=1e-6, momentum=0.9, nesterov=True)."""
    keras, histories, weights = started(name), [], []
    holder = keras.optimizers if detect.find(keras).target.name != "update_step" else keras.optimizers.legacy
    for bind in (lambda stock: stock, lambda stock: everstep.from_native(stock).bind(holder)):
        model = build(keras, bind(holder.SGD(RATE, decay=0.1, momentum=0.9, nesterov=True)))
        fit(model, [callbacks_of_keras(keras.callbacks)[kind]])
        histories.append(float(keras.backend.get_value(model.optimizer.lr)))
        weights.append(model.get_weights())
    assert histories[0] == histories[1] != RATE
    for one, other in zip(*weights) if not races(keras) else ():  # over the count, and so over the decay
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def lists_optimizers(keras):
    """Returns True if the callbacks of this Keras know optimizers that have a list of others."""
    return "optimizers" in keras.callbacks.LearningRateScheduler.on_epoch_begin.__code__.co_consts


@kerases
@kinds
def test_callbacks_of_the_rate_of_a_partition(name, kind):
    """As with Keras's MultiOptimizer, where there is one: every rate. Else an error, before anything is set."""
    keras = started(name)
    if lists_optimizers(keras):
        ours = as_stock(keras, "partition", lambda callbacks: [callbacks_of_keras(callbacks)[kind]])[1].optimizer
        rates = [float(np.asarray(branch.learning_rate)) for branch in ours.optimizers]
        assert rates[0] == rates[1] == float(np.asarray(ours.last_learning_rate)) != RATE
        assert [branch.name for branch in ours.optimizers] == ["last", "default"]
        return
    model = build(keras, bound(keras, "partition"))
    with pytest.raises((EverstepError, ValueError), match="several learning rates|must have a .l"):
        fit(model, [callbacks_of_keras(keras.callbacks)[kind]])
    for rate in (model.optimizer.last_learning_rate, model.optimizer.default_learning_rate):
        value = np.asarray(rate) if hasattr(keras, "ops") else keras.backend.get_value(rate)
        assert abs(float(value) - RATE) < 1e-7


def test_the_list_of_the_optimizers_of_a_partition():
    """A schedule shows its present rate, and cannot be set. Other definitions have no list.

    Averages are swapped once for each of the list that has them, so one alone has those of all variables.
    """
    if not hasattr(NAMED[KERASES[0]], "ops"):
        pytest.skip("callbacks of Keras 3 ask for it")
    keras = started(KERASES[0])
    rule = everstep.partition({"last": ("last", Adam(everstep.InverseTimeDecay(0.5, rate=1.0)))}, default=Adam(RATE))
    optimizer = rule.bind(keras)
    last, default = optimizer.optimizers
    assert float(np.asarray(last.learning_rate)) == 0.5
    with pytest.raises(HyperValueError, match="cannot be set"):
        last.learning_rate = 0.1
    default.learning_rate = 0.25
    assert float(np.asarray(optimizer.default_learning_rate)) == 0.25
    assert not hasattr(Adam().bind(keras), "optimizers")
    for native, expected in (({}, [False, False]), ({"use_ema": True}, [True, False])):
        assert [branch.use_ema for branch in rule.bind(keras, **native).optimizers] == expected


@kerases
@definitions
@pytest.mark.parametrize("whole", harness.share([False, True], 2))
def test_model_checkpoint(name, definition, whole, tmpdir):
    keras = started(name)
    path = str(tmpdir.join("model" + (".keras" if hasattr(keras, "ops") else ".h5") if whole else "model.weights.h5"))
    checkpoint = keras.callbacks.ModelCheckpoint(path, save_weights_only=not whole)
    model, batch = build(keras, bound(keras, definition)), batch_of(definition)
    fit(model, [checkpoint], 2, batch)
    if whole:
        resumed = keras.models.load_model(path, custom_objects=everstep.custom_objects(keras))
        for each in (resumed, model):
            fit(each, epochs=1, batch=batch)
    else:
        resumed = build(keras, bound(keras, definition))
        resumed.load_weights(path)
    for one, other in zip(model.get_weights(), resumed.get_weights()):
        np.testing.assert_array_equal(one, other)


@kerases
@definitions
def test_tensorboard(name, definition, tmpdir):
    pytest.importorskip("tensorboard")
    try:
        as_stock(started(name), definition, lambda callbacks: [callbacks.TensorBoard(str(tmpdir.join("logs")))])
    except AttributeError as error:
        if "_get_distribution_strategy" in str(error):
            pytest.skip("TF 2.1 asks this of Keras 2.3: https://github.com/tensorflow/tensorflow/pull/34870")
        raise
    assert tmpdir.join("logs").check()


@kerases
@pytest.mark.parametrize("definition", harness.share([each for each in sorted(DEFINITIONS) if each != "accumulate"], 4))
def test_swap_averages(name, definition):
    """Those of Keras itself, which `accumulate` refuses."""
    keras = started(name)
    if not hasattr(keras.callbacks, "SwapEMAWeights"):
        pytest.skip("this Keras has no SwapEMAWeights")
    weights, native = [], {"use_ema": True, "ema_momentum": 0.5}
    for optimizer in (stock(keras, **native), bound(keras, definition, **native)):
        model = build(keras, optimizer)
        fit(model, [keras.callbacks.SwapEMAWeights(swap_on_epoch=True)])
        weights.append(model.get_weights())
    for one, other in zip(*weights):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


# use_ema of Keras 3 starts at the second step.
RULES = {"moving_average": lambda rule: everstep.moving_average(rule, 0.5, start=1),
         "around": lambda rule: everstep.clip(everstep.moving_average(rule, 0.5, start=1), global_norm=1e6),
         "partition": lambda rule: everstep.moving_average(
             everstep.partition({"last": ("last", rule)}, default=rule), 0.5, start=1)}


class Watch(object):
    """Makes a callback that keeps the weights where training has those that train, and where it has averages."""

    def __init__(self, keras):
        self.seen = seen = []

        class Callback(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                seen.append(self.model.get_weights())

            def on_epoch_end(self, epoch, logs=None):
                seen.append(self.model.get_weights())

            def on_test_batch_end(self, batch, logs=None):
                seen.append(self.model.get_weights())

        self.callback = Callback()


@kerases
@pytest.mark.parametrize("swap_on_epoch", [False, True])
@pytest.mark.parametrize("kind", sorted(RULES))
def test_swap_averages_of_moving_average(name, kind, swap_on_epoch):
    """As with the same rule and `use_ema`, batch by batch and in evaluations. Then stock leaves averages in the model.

    So does ours with `swap_on_epoch`; else the model keeps the weights that trained, for `everstep.assign_averages`.
    """
    keras = started(name)
    if not hasattr(keras.callbacks, "SwapEMAWeights"):
        pytest.skip("this Keras has no SwapEMAWeights")
    if kind == "partition" and not lists_optimizers(keras):
        pytest.skip("the callbacks of this Keras do not know several optimizers")
    seen, losses, ends = [], [], []
    for optimizer in (Adam(RATE).bind(keras, use_ema=True, ema_momentum=0.5), RULES[kind](Adam(RATE)).bind(keras)):
        model, watch = build(keras, optimizer), Watch(keras)
        swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=swap_on_epoch)
        history = model.fit(INPUTS, OUTPUTS, batch_size=4, epochs=3, shuffle=False, verbose=0,
                            callbacks=[swap, watch.callback], validation_data=(INPUTS, OUTPUTS))
        seen.append(watch.seen)
        losses.append(history.history["val_loss"] + history.history["loss"])
        ends.append(model)
    assert len(seen[0]) == len(seen[1]) >= 3 * (2 + 1 + 1)
    for theirs, ours in zip(*seen):
        for one, other in zip(theirs, ours):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    theirs, ours = ends
    if not swap_on_epoch:
        assert not np.allclose(theirs.get_weights()[0], ours.get_weights()[0], rtol=1e-3)
        everstep.assign_averages(ours.optimizer)
    for one, other in zip(theirs.get_weights(), ours.get_weights()):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@kerases
def test_swap_averages_of_one_branch(name):
    """The variables of the other branch stay. Without any average, Keras says what is missing."""
    keras = started(name)
    if not hasattr(keras.callbacks, "SwapEMAWeights") or not lists_optimizers(keras):
        pytest.skip("this Keras has no SwapEMAWeights, or none that knows several optimizers")
    rule = everstep.partition({"last": ("last", everstep.moving_average(Adam(RATE), 0.5))}, default=Adam(RATE))
    model = build(keras, rule.bind(keras))
    fit(model)
    trained = model.get_weights()
    with everstep.averaged(model.optimizer):
        averages, loss = model.get_weights(), model.evaluate(INPUTS, OUTPUTS, verbose=0)
    watch = Watch(keras)
    measured = model.evaluate(INPUTS, OUTPUTS, verbose=0, callbacks=[keras.callbacks.SwapEMAWeights(), watch.callback])
    np.testing.assert_allclose(measured, loss, rtol=1e-5)
    for before, average, inside, after in zip(trained, averages, watch.seen[0], model.get_weights()):
        np.testing.assert_allclose(inside, average, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(before, after, rtol=1e-5, atol=1e-6)
    assert not np.allclose(trained[2], averages[2]) and np.array_equal(trained[0], averages[0])
    for other in (Adam(RATE), everstep.lookahead(Adam(RATE))):
        model = build(keras, other.bind(keras))
        fit(model, epochs=1)
        with pytest.raises(ValueError, match="use_ema"):
            model.evaluate(INPUTS, OUTPUTS, verbose=0, callbacks=[keras.callbacks.SwapEMAWeights()])
