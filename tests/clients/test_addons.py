"""TensorFlow Addons 0.19 (TF 2.10): fit of a model of its layers and losses, with its optimizers and with ours."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_addons as tfa
from compare import apart, one_thread, shown

import everstep
from everstep import errors
from everstep.optimizers import LAMB, Adam, AdamW, NovoGrad, RAdam

ADDONS = "tensorflow-addons", "{}, TF {}".format(tfa.__version__, tf.__version__)
one_thread(tf)
WORDS, LENGTH, BATCH, BATCHES, EPOCHS = 8, 6, 32, 5, 12
STEPS = BATCHES * EPOCHS


def its_adam():
    return tf.keras.optimizers.Adam(5e-3)


def adam():
    return Adam(5e-3)


def cyclical():
    return tfa.optimizers.TriangularCyclicalLearningRate(1e-3, 1e-2, step_size=10)


OPTIMIZERS = {
    "LAMB": (
        lambda: tfa.optimizers.LAMB(0.02, weight_decay=0.01, exclude_from_weight_decay=["bias", "norm"]),
        lambda: LAMB(0.02, weight_decay=0.01, exclude_from_weight_decay="bias|norm"),
    ),
    "AdamW": (
        lambda: tfa.optimizers.AdamW(1e-3, learning_rate=5e-3),
        lambda: AdamW(5e-3, weight_decay=1e-3, decay_times_rate=False),
    ),
    "Lookahead": (
        lambda: tfa.optimizers.Lookahead(its_adam(), sync_period=4), lambda: everstep.lookahead(adam(), 4)),
    "MovingAverage": (
        lambda: tfa.optimizers.MovingAverage(its_adam(), 0.9), lambda: everstep.moving_average(adam(), 0.9)),
    "SWA": (
        lambda: tfa.optimizers.SWA(its_adam(), start_averaging=20, average_period=5),
        lambda: everstep.stochastic_weight_averaging(adam(), start=20, period=5),
    ),
    # Addons subtracts numbers near 2000 in float32 to tell how far its warm-up is.
    "RectifiedAdam": (
        lambda: tfa.optimizers.RectifiedAdam(cyclical(), warmup_proportion=0.0),
        lambda: RAdam(cyclical(), epsilon=1e-7),
    ),
    "NovoGrad": (lambda: tfa.optimizers.NovoGrad(5e-3), lambda: NovoGrad(5e-3)),
    "MultiOptimizer": (None, lambda: everstep.partition(
        {"embedding": ("embedding", Adam(1e-2))}, default=everstep.optimizers.SGD(0.02, momentum=0.9))),
}


def compiled(optimizer):
    """Returns a model of Addons' layers, compiled with Addons' loss. `optimizer` gets the model's layers."""
    tf.keras.utils.set_random_seed(1)
    layers = [
        tf.keras.layers.Embedding(WORDS, 8, input_length=LENGTH, name="embedding"),
        tf.keras.layers.Flatten(name="flat"),
        tfa.layers.WeightNormalization(tf.keras.layers.Dense(16, tf.nn.tanh), data_init=False, name="hidden"),
        tfa.layers.GroupNormalization(4, name="norm"),
        tf.keras.layers.Dense(1, "sigmoid", name="top"),
    ]
    model = tf.keras.Sequential(layers)
    model.compile(optimizer(layers), tfa.losses.SigmoidFocalCrossEntropy())
    return model


def its_own(name):
    if name == "MultiOptimizer":
        return lambda layers: tfa.optimizers.MultiOptimizer(
            [(tf.keras.optimizers.Adam(1e-2), layers[0]), (tf.keras.optimizers.SGD(0.02, 0.9), layers[1:])])
    return lambda layers: OPTIMIZERS[name][0]()


def ours(name):
    return lambda layers: OPTIMIZERS[name][1]().bind(tf.keras)


def fitted(model, epochs=EPOCHS, callbacks=()):
    random = np.random.RandomState(0)
    words = random.randint(0, WORDS, (BATCH * BATCHES, LENGTH))
    labels = (words[:, :1] + words[:, 1:2] > WORDS) * 1.0
    return model.fit(words, labels, BATCH, epochs, shuffle=False, verbose=0, callbacks=list(callbacks)).history["loss"]


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_fit(name):
    own, again, with_ours = (compiled(each(name)) for each in (its_own, its_own, ours))
    start = own.get_weights()
    losses = [fitted(model) for model in (own, again, with_ours)]
    noise, difference = apart(losses[0], losses[1]), apart(losses[0], losses[2])
    own_weights, weights = (apart(own.get_weights(), model.get_weights()) for model in (again, with_ours))
    shown(*ADDONS, "fit, " + name, STEPS, difference, noise, weights, own_weights)
    assert losses[0][-1] < 0.8 * losses[0][0] and apart(start, own.get_weights()) > 0.1
    assert difference < 1e-4 and weights < 1e-3


@pytest.mark.parametrize("name", ["MovingAverage", "SWA"])
def test_averages(name, tmp_path):
    """Its AverageModelCheckpoint, and `everstep.averaged` around model.save."""
    own, with_ours = compiled(its_own(name)), compiled(ours(name))
    path = str(tmp_path / "own")
    fitted(own, callbacks=[tfa.callbacks.AverageModelCheckpoint(False, path, save_weights_only=True)])
    fitted(with_ours)
    with everstep.averaged(with_ours.optimizer, with_ours.trainable_variables):
        with_ours.save(str(tmp_path / "ours.h5"), include_optimizer=False)
    own.load_weights(path)
    averages = tf.keras.models.load_model(str(tmp_path / "ours.h5"), compile=False)
    difference = apart(own.get_weights(), averages.get_weights())
    shown(*ADDONS, "averages of " + name, STEPS, weights=difference, saved="AverageModelCheckpoint, everstep.averaged")
    assert apart(own.get_weights(), with_ours.get_weights()) > 1e-3 and difference < 1e-3


@pytest.mark.parametrize("name", ["LAMB", "Lookahead", "MovingAverage"])
def test_resumed_from_a_saved_model(name, tmp_path):
    whole, first = compiled(ours(name)), compiled(ours(name))
    expected = fitted(whole)
    losses = fitted(first, EPOCHS // 2)
    first.save(str(tmp_path / "model.h5"))
    second = tf.keras.models.load_model(str(tmp_path / "model.h5"))
    losses += fitted(second, EPOCHS - EPOCHS // 2)
    weights = apart(whole.get_weights(), second.get_weights())
    shown(*ADDONS, "fit resumed, " + name, STEPS, apart(expected, losses), weights=weights, saved="load_model, HDF5")
    assert int(second.optimizer.iterations) == STEPS and weights < 1e-5


def test_a_rule_that_it_lacks():
    rule = everstep.accumulate(everstep.optimizers.DiffGrad(1e-2), 2)
    model = compiled(lambda layers: rule.bind(tf.keras))
    losses = fitted(model)
    assert losses[-1] < 0.8 * losses[0] and int(model.optimizer.iterations) == STEPS // 2
    assert "previous_grad" in model.optimizer.get_slot_names()
    shown(*ADDONS, "accumulate(DiffGrad, 2): loss {:.3f} to {:.3f}".format(losses[0], losses[-1]), STEPS)


# Addons' decay around our classes: the classes that it makes of ours, and its mixin beside them.

EXTENDED = {
    "Adam": dict(learning_rate=5e-3), "SGD": dict(learning_rate=0.02, momentum=0.9), "Adagrad": dict(learning_rate=0.1),
}


def extended(name, form, with_ours):
    """Returns the class that decays, and what it takes but for the weight decay."""
    base, arguments = getattr(tf.keras.optimizers, name), EXTENDED[name]
    if with_ours:
        rule = everstep.from_native(base(**arguments))
        base, arguments = type(rule.bind(tf.keras)), dict(definition=rule)
    if form == "function":
        return tfa.optimizers.extend_with_decoupled_weight_decay(base), arguments
    return type("Decayed", (tfa.optimizers.DecoupledWeightDecayExtension, base), {}), arguments


def decayed(name, form, with_ours, decay=1e-2):
    """Returns its class, and a model of dense layers and an embedding, whose gradients are sparse."""
    cls, arguments = extended(name, form, with_ours)
    model = compiled(lambda layers: cls(
        weight_decay=decay, exclude_from_weight_decay=["bias", "norm"], **arguments))
    return cls, model


@pytest.mark.parametrize("name, form, decay", [
    ("Adam", "function", 1e-2), ("Adagrad", "mixin", 1e-2),
    ("SGD", "mixin", tf.keras.optimizers.schedules.PolynomialDecay(1e-2, STEPS, 1e-3)),
], ids=lambda value: value if isinstance(value, str) else type(value).__name__)
def test_its_decay_around_our_classes(name, form, decay, tmp_path):
    (_, own), (_, again), (cls, ours) = [decayed(name, form, each, decay) for each in (False, False, True)]
    undecayed = compiled(lambda layers: everstep.from_native(
        getattr(tf.keras.optimizers, name)(**EXTENDED[name])).bind(tf.keras))
    losses, losses_again, our_losses, other_losses = [fitted(each) for each in (own, again, ours, undecayed)]
    difference, noise = apart(losses, our_losses), apart(losses, losses_again)
    weights, own_weights = (apart(own.get_weights(), model.get_weights()) for model in (ours, again))
    paths = [str(tmp_path / each) for each in ("model.h5", "weights")]
    ours.save(paths[0])
    ours.save_weights(paths[1])
    loaded = [tf.keras.models.load_model(paths[0], {cls.__name__: cls}), decayed(name, form, True, decay)[1]]
    loaded[1].load_weights(paths[1])
    expected = fitted(ours, 4)
    resumed = max(max(apart(expected, fitted(each, 4)), apart(ours.get_weights(), each.get_weights()))
                  for each in loaded)
    text = "fit, {}, decay by its {}{}".format(name, form, "" if isinstance(decay, float) else ", of a schedule")
    shown(*ADDONS, text, STEPS, difference, noise, weights, own_weights,
          "model.save and load_model, save_weights and load_weights: {:.1e}".format(resumed))
    assert losses[-1] < 0.8 * losses[0] and apart(losses, other_losses) > 1e-3
    assert max(difference, weights) < 1e-5 and resumed < 1e-6
    assert [type(each.optimizer) for each in loaded] == [cls, type(loaded[1].optimizer)]


@pytest.mark.parametrize("sparse", [False, True])
def test_its_list_of_variables_to_decay(sparse):
    def made(with_ours):
        cls, arguments = extended("Adam", "function", with_ours)
        optimizer = cls(weight_decay=0.1, **arguments)
        step = optimizer.apply_gradients
        optimizer.apply_gradients = lambda pairs: _decaying_kernels(step, list(pairs))
        return optimizer

    assert apart(train(lambda: made(False), sparse), train(lambda: made(True), sparse)) < 1e-6


def _decaying_kernels(step, pairs):
    step(pairs, decay_var_list=[each for _, each in pairs if each.name == "kernel:0"])


def momentum():
    return tf.keras.optimizers.SGD(0.02, 0.9)


# How a definition that from_native reads follows each class. {case: function that makes the optimizer}
its = tfa.optimizers
ITS_CLASSES = {
    "LAMB": lambda: its.LAMB(0.02, weight_decay=0.01, exclude_from_weight_decay=["bias", "norm"]),
    "LAMB, no layer adaptation": lambda: its.LAMB(0.02, weight_decay=0.01, exclude_from_layer_adaptation=["bias"]),
    "LazyAdam": lambda: its.LazyAdam(0.05, epsilon=1e-3),
    "AdaBelief": lambda: its.AdaBelief(0.05, epsilon=1e-4, weight_decay=0.01),
    "AdaBelief, plain": lambda: its.AdaBelief(0.05, epsilon=1e-4, amsgrad=True, rectify=False),
    "RectifiedAdam": lambda: its.RectifiedAdam(0.05, epsilon=1e-3, weight_decay=0.01),
    "RectifiedAdam, warm-up": lambda: its.RectifiedAdam(
        0.05, epsilon=1e-3, total_steps=40, warmup_proportion=0.25, min_lr=0.01),
    "RectifiedAdam, no warm-up": lambda: its.RectifiedAdam(
        0.05, epsilon=1e-3, total_steps=40, warmup_proportion=0.0, min_lr=0.01),
    "NovoGrad": lambda: its.NovoGrad(0.05, weight_decay=0.01, grad_averaging=True),
    "Yogi": lambda: its.Yogi(0.05, l1_regularization_strength=0.01),
    "ProximalAdagrad": lambda: its.ProximalAdagrad(0.5, l1_regularization_strength=0.01),
    "ConditionalGradient": lambda: its.ConditionalGradient(0.99, lambda_=0.5),
    "COCOB": lambda: its.COCOB(alpha=10.0),
    "AdamW": lambda: its.AdamW(1e-3, learning_rate=0.05, epsilon=1e-3, clipnorm=1.0),
    "AdamW, exclusions": lambda: its.AdamW(1e-3, exclude_from_weight_decay=["bias"], learning_rate=0.05, epsilon=1e-3),
    "SGDW": lambda: its.SGDW(1e-3, learning_rate=0.05, momentum=0.9, nesterov=True),
    "extend_with_decoupled_weight_decay": lambda: its.extend_with_decoupled_weight_decay(tf.keras.optimizers.Adadelta)(
        1e-3, learning_rate=1.0, epsilon=1e-3),
    "extend_with_decoupled_weight_decay, Adagrad": lambda: its.extend_with_decoupled_weight_decay(
        tf.keras.optimizers.Adagrad)(1e-2, learning_rate=0.1),
    "SGDW, without momentum": lambda: its.SGDW(1e-2, learning_rate=0.05),
    "Lookahead": lambda: its.Lookahead(tf.keras.optimizers.Adam(0.05, epsilon=1e-3), 4, 0.4),
    "Lookahead, rectified": lambda: its.Lookahead(its.RectifiedAdam(0.05, epsilon=1e-3), 4, 0.4),
    "MovingAverage": lambda: its.MovingAverage(tf.keras.optimizers.SGD(0.1), 0.9, start_step=3, dynamic_decay=True),
    "SWA": lambda: its.SWA(tf.keras.optimizers.Adam(0.05, epsilon=1e-3), 4, 3),
    "SWA, clipped": lambda: its.SWA(tf.keras.optimizers.Adam(0.05, epsilon=1e-3, clipnorm=0.5), 4, 3, clipvalue=0.5),
    "MovingAverage, of Lookahead": lambda: its.MovingAverage(its.Lookahead(momentum(), 4, 0.4), 0.9),
    "SWA, of Lookahead": lambda: its.SWA(its.Lookahead(momentum(), 4, 0.4), 4, 3),
    "Lookahead, of MovingAverage": lambda: its.Lookahead(its.MovingAverage(momentum(), 0.9), 4, 0.4),
    "MultiOptimizer": lambda: its.MultiOptimizer(optimizer_specs=[
        {"optimizer": tf.keras.optimizers.Adam(0.05, epsilon=1e-3), "weights": ["bias:0"]},
        {"optimizer": tf.keras.optimizers.SGD(0.02), "weights": ["kernel:0", "table:0"]}]),
}
# On sparse gradients Addons fails; decays the rows present and moves all; adds epsilon to the rows present alone; clips
# the parts of a row one by one; decays no row; moves the rows present alone, where the definition moves all; or syncs
# all rows, where the definition syncs those present.
DENSE_ONLY = (
    "COCOB", "AdamW", "AdamW, exclusions", "AdaBelief", "AdaBelief, plain", "SWA, clipped", "NovoGrad",
    "SGDW, without momentum", "Lookahead, rectified", "Lookahead, of MovingAverage", "MovingAverage, of Lookahead",
    "SWA, of Lookahead",
)


def train(bind, sparse):
    """Returns the weights after 60 steps, with an optimizer that `bind` makes."""
    random = np.random.RandomState(7)
    shapes = dict(kernel=(4, 3), bias=(3,), table=(5, 2))
    variables = [tf.Variable(random.uniform(0.3, 0.9, shape).astype("float32"), name=name)
                 for name, shape in sorted(shapes.items())]
    optimizer = bind()
    for _ in range(STEPS):
        grads = [tf.constant(random.normal(0.2, 1, each.shape).astype("float32")) for each in variables]
        if sparse:
            grads[-1] = tf.IndexedSlices(grads[-1][:3], tf.constant(random.randint(0, 5, 3)), tf.constant([5, 2]))
        optimizer.apply_gradients(zip(grads, variables))
    return [each.numpy() for each in variables]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", sorted(ITS_CLASSES))
def test_from_native_reads_its_classes(name, sparse):
    if sparse and name in DENSE_ONLY:
        return

    expected = train(ITS_CLASSES[name], sparse)
    weights = train(lambda: everstep.from_native(ITS_CLASSES[name]()).bind(tf.keras), sparse)
    difference = apart(dict(enumerate(expected)), dict(enumerate(weights)))
    shown(*ADDONS, "from_native, {}{}".format(name, ", sparse" if sparse else ""), STEPS, weights=difference)
    assert difference < 4e-6


@pytest.mark.parametrize("name, does", [("Lookahead", "syncs"), ("MovingAverage", "averages"), ("SWA", "averages")])
def test_wrappers_around_a_rule_that_leaves_rows(name, does):
    with pytest.warns(UserWarning, match="stock {} all rows".format(does)) as warned:
        everstep.from_native(getattr(its, name)(momentum()))
    assert [each.filename for each in warned] == [__file__]


def test_two_wrappers_around_a_rule_that_counts():
    """Addons counts the steps of the outer two alone: Adam corrects each step as if it were the first."""
    def make():
        return its.SWA(its.Lookahead(tf.keras.optimizers.Adam(0.05), 4, 0.4), 4, 3)

    with pytest.warns(UserWarning, match="does not count the steps of an optimizer in two wrappers") as warned:
        rule = everstep.from_native(make())
    assert warned[0].filename == __file__
    expected, weights = train(make, False), train(lambda: rule.bind(tf.keras), False)
    assert apart(dict(enumerate(expected)), dict(enumerate(weights))) > 0.1


def test_every_class_is_read():
    """But for the base class of the averages, and the one that takes a class as an argument."""
    classes = {name for name in dir(its) if isinstance(getattr(its, name), type)
               and issubclass(getattr(its, name), tf.keras.optimizers.Optimizer)}
    read = {name.split(",")[0] for name in ITS_CLASSES}
    assert classes - {"AveragedOptimizerWrapper", "KerasLegacyOptimizer"} <= read


# Files of its classes. Those of wrappers hold the slots of two optimizers.
RESUMED = 5
WITH_FILES = [name for name in sorted(ITS_CLASSES) if name != "MultiOptimizer"]


class Layer(object):
    """A layer of Keras that an optimizer trains."""

    def __init__(self, optimizer):
        tf.keras.backend.clear_session()
        self.optimizer = optimizer
        tf.keras.utils.set_random_seed(1)
        self.model = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(4,), name="output")])
        self.model.compile(optimizer, "mse")
        self.variables = self.model.trainable_weights

    def train(self):
        random = np.random.RandomState(5)
        for _ in range(RESUMED):
            self.model.train_on_batch(random.normal(size=(8, 4)), random.normal(size=(8, 3)))
        return self.model.get_weights()

    def state(self, kind, folder):
        """Returns the state, live or from a file."""
        path, definition = str(folder / kind), everstep.from_native(self.optimizer)
        if kind == "live":
            return everstep.capture(self.optimizer, self.variables, weights=True)
        if kind == "model.h5":
            self.model.save(path)
            return everstep.read_checkpoint(path, definition=definition)
        path = tf.train.Checkpoint(model=self.model, optimizer=self.optimizer).write(path)
        return everstep.read_checkpoint(path, definition=definition)


@pytest.mark.parametrize("kind", ["model.h5", "checkpoint", "live"])
@pytest.mark.parametrize("name", WITH_FILES)
def test_states_of_its_classes(name, kind, tmp_path):
    """A run that its class began goes on with ours."""
    own = Layer(ITS_CLASSES[name]())
    own.train()
    if (name, kind) == ("Lookahead, of MovingAverage", "model.h5"):  # Addons adds a count of SGD's steps, which is 0
        with pytest.raises(errors.FileError, match="are not the state of Lookahead"):
            own.state(kind, tmp_path)
        return

    definition, state = everstep.from_native(own.optimizer), own.state(kind, tmp_path)
    ours = Layer(definition.bind(tf.keras))
    ours.train()
    scalars = everstep.capture(ours.optimizer, ours.variables).scalars
    assert state.updates == RESUMED and dict(state.scalars) == pytest.approx(dict(scalars), rel=1e-6)
    everstep.restore(ours.optimizer, state, ours.variables, by_order=True, weights=True)
    differences = [apart(own.train(), ours.train())]
    if hasattr(own.optimizer, "assign_average_vars"):
        own.optimizer.assign_average_vars(own.variables)
        with everstep.averaged(ours.optimizer, ours.variables):
            differences.append(apart(own.model.get_weights(), ours.model.get_weights()))
    shown(*ADDONS, "{}, {}".format(name, kind), RESUMED, weights=max(differences), saved=kind)
    assert max(differences) < (1e-4 if "ectified" in name or "Belief" in name else 4e-6)  # see OPTIMIZERS
