"""Kinds of Keras files: Keras 1 and 2, tf.keras, Keras 3. See people_files.py."""
from __future__ import absolute_import, division, print_function

import importlib
import os
import shutil

import numpy as np

from people_truth import Watch

INPUTS = np.array([[0.5, -1.0], [0.2, 0.4], [-0.7, 0.1], [1.0, 0.8]], np.float32)
TARGETS = np.array([[1.0, -1.0], [0.5, 0.3], [-0.5, 0.25], [0.75, -0.5]], np.float32)
SERIES = np.stack([INPUTS, -0.5 * INPUTS[::-1], INPUTS * INPUTS], 1)
STEPS = 3


def to(name, make):
    """Returns a kind that saves under another name."""
    return lambda case, k: make(case, k, name)


class Keras(object):
    """A Keras, with one spelling for all versions."""

    def __init__(self, keras, optimizers=None, eager=False):
        self.keras, self.layers, self.K = keras, keras.layers, keras.backend
        self.optimizers, self.eager = optimizers or keras.optimizers, eager
        self.version = getattr(keras, "__version__", "")
        self.Sequential, self.Model = keras.models.Sequential, keras.models.Model
        if hasattr(keras, "utils") and hasattr(keras.utils, "clear_session"):
            keras.utils.clear_session()
        elif hasattr(self.K, "clear_session"):
            self.K.clear_session()
        self.rng = np.random.RandomState(7)

    def optimizer(self, name, rate, **arguments):
        maker = getattr(self.optimizers, name)
        try:
            return maker(learning_rate=rate, **arguments)
        except Exception:  # before Keras 2.3; Keras 1.1 raises just this
            return maker(lr=rate, **arguments)

    def fill(self, model):
        """Sets all weights to numbers that differ, so that each is known by its bits."""
        for layer in model.layers:  # Keras 1 has the weights of a model in another order than their values
            made = []
            for variable, value in zip(layer.weights, layer.get_weights()):
                new = self.rng.uniform(0.2, 0.9, value.shape) * self.rng.choice([-1, 1], value.shape)
                if any(part in str(getattr(variable, "path", None) or variable.name) for part in ("var", "std")):
                    new = np.abs(new)  # of a normalization
                made.append(new.astype(value.dtype) if value.dtype.kind in "fV" else value)
            layer.set_weights(made)
        return model

    def compile(self, model, optimizer, loss="mse", **more):
        if self.eager:
            more.setdefault("run_eagerly", True)
        model.compile(optimizer=optimizer, loss=loss, **more)
        return Watch(self.keras, model.optimizer)

    def input(self, *shape):
        return self.layers.Input(shape=shape)

    def save(self, model, path):
        """Saves a model, or its weights alone with the optimizer's if that is what the end of the name says."""
        if path.endswith(".weights.h5"):
            model.save_weights(path)
        elif path.endswith(".keras") and self.version.startswith("2.12."):  # there it means HDF5, unless one says so
            model.save(path, save_format="keras_v3")
        else:
            model.save(path)

    def how(self, watch, name):
        """Returns what a reader must be told: `.weights.h5` does not say which optimizer it is of."""
        if not name.endswith(".weights.h5"):
            return {}
        rate = float("{:.6g}".format(float(watch.value(watch.optimizer.learning_rate))))
        return {"optimizer": "{}(learning_rate={!r})".format(watch.class_name(), rate)}


def steps_of(model, inputs=INPUTS, targets=TARGETS, count=STEPS):
    for _ in range(count):
        model.train_on_batch(inputs, targets)


def keep(case, k, model, watch, name="model.h5", inputs=INPUTS, targets=TARGETS, save=None, how=None, **facts):
    """Trains, saves the model, and makes one more step."""
    steps_of(model, inputs, targets)
    save = save or (lambda: k.save(model, case.path(name)))
    how = k.how(watch, name) if how is None else how
    case.write(name, [watch], save, lambda: steps_of(model, inputs, targets, 1), how=how, **facts)


# Models


def deep(k, count=11, functional=False):
    """Eleven layers: sorted by name, dense_10 and dense_11 come before dense_2."""
    if functional:
        first = each = k.input(2)
        for _ in range(count):
            each = k.layers.Dense(2)(each)
        return k.fill(k.Model(first, each))
    model = k.Sequential()
    for number in range(count):
        model.add(k.layers.Dense(2, **({} if number else {"input_shape": (2,)})))
    return k.fill(model)


def functional(k):
    return deep(k, functional=True)


def named(k):
    """Layers with names that a person gives, in no alphabetical order, and a normalization."""
    model = k.Sequential()
    model.add(k.layers.Dense(3, input_shape=(2,), activation="tanh", name="zeta"))
    model.add(k.layers.BatchNormalization(name="norm"))
    model.add(k.layers.Dense(3, activation="tanh", name="hidden10"))
    model.add(k.layers.Dense(3, activation="tanh", name="hidden2"))
    model.add(k.layers.Dense(2, name="alpha"))
    return k.fill(model)


def recurrent(k):
    model = k.Sequential()
    model.add(k.layers.LSTM(2, input_shape=(3, 2)))
    model.add(k.layers.Dense(2, name="after"))
    return k.fill(model)


def frozen(k):
    """A base of three frozen layers with new layers after it."""
    model = k.Sequential()
    for number in range(3):
        options = {} if number else {"input_shape": (2,)}
        model.add(k.layers.Dense(2, trainable=False, name="conv{}".format(number), **options))
    model.add(k.layers.Dense(2, activation="tanh", name="new"))
    model.add(k.layers.Dense(2, name="last"))
    return k.fill(model)


def shared(k):
    """Two inputs through one layer that they share."""
    left, right, tower = k.input(2), k.input(2), k.layers.Dense(3, activation="tanh", name="tower")
    parts = [tower(left), k.layers.Dense(3, activation="tanh", name="beside")(tower(right))]
    if hasattr(k.layers, "concatenate"):
        joined = k.layers.concatenate(parts)
    else:
        joined = k.layers.merge(parts, mode="concat")
    return k.fill(k.Model([left, right], k.layers.Dense(2, name="answer")(joined)))


# Kinds of one compiled model


def plain(build, optimizer, rate=0.01, series=False, two=False, how=None, notes="", **arguments):
    """Returns a kind: build, compile, train, `model.save`."""
    def make(case, k, name="model.h5"):
        model = build(k)
        watch = k.compile(model, k.optimizer(optimizer, rate, **arguments))
        inputs = SERIES if series else [INPUTS, INPUTS[::-1]] if two else INPUTS
        keep(case, k, model, watch, name, inputs, how=how, notes=notes)

    return make


OLD = {
    "rmsprop-deep": plain(deep, "RMSprop"),
    "adagrad-functional": plain(functional, "Adagrad"),
    "adadelta-deep": plain(deep, "Adadelta", 1.0),
    "adadelta-lstm": plain(recurrent, "Adadelta", 1.0, series=True),
    "adam-deep": plain(deep, "Adam"),
    "adam-named": plain(named, "Adam"),
    "adam-decay": plain(named, "Adam", decay=0.01),  # Theano alone reads its counter once in a step
    "adam-frozen": plain(frozen, "Adam"),
    "adam-lstm": plain(recurrent, "Adam", series=True),
    "adamax-deep": plain(deep, "Adamax"),
    "nadam-named": plain(named, "Nadam"),
    "sgd-nesterov-decay": plain(functional, "SGD", momentum=0.9, nesterov=True, decay=0.01),
    "sgd-plain": plain(named, "SGD", notes="no momentum, no decay"),
    "rmsprop-named": plain(named, "RMSprop"),
    "rmsprop-decay": plain(named, "RMSprop", decay=0.1, how={"updates": STEPS},
                           notes="the rate decays by a counter that the file has not"),
    "rmsprop-shared": plain(shared, "RMSprop", two=True),
    "adagrad-named": plain(named, "Adagrad"),
    "amsgrad-deep": plain(deep, "Adam", amsgrad=True),
}


SHARED = plain(shared, "Adam", two=True, notes="a layer that two inputs share")


# GANs, bases that are trained further


def gan_of(which):
    """A GAN as people write it: the discriminator is compiled, then frozen inside of the combined model."""
    def make(case, k, name="model.h5"):
        discriminator = k.Sequential()
        discriminator.add(k.layers.Dense(3, input_shape=(2,), activation="tanh", name="d_in"))
        discriminator.add(k.layers.Dense(1, name="d_out"))
        k.fill(discriminator)
        d_watch = k.compile(discriminator, k.optimizer("Adam", 0.01))
        generator = k.Sequential()
        generator.add(k.layers.Dense(3, input_shape=(2,), activation="tanh", name="g_in"))
        generator.add(k.layers.Dense(2, name="g_out"))
        k.fill(generator)
        discriminator.trainable = False
        noise = k.input(2)
        combined = k.Model(noise, discriminator(generator(noise)))
        c_watch = k.compile(combined, k.optimizer("Adam", 0.02))
        ones = np.ones((4, 1), np.float32)

        def step():
            if k.eager:
                discriminator.trainable = True  # these read the flags in each step
            discriminator.train_on_batch(INPUTS, ones)
            discriminator.train_on_batch(TARGETS, 0 * ones)
            discriminator.trainable = False
            combined.train_on_batch(INPUTS, ones)

        def last():
            if which == "combined":
                combined.train_on_batch(INPUTS, ones)
            else:
                discriminator.trainable = True
                discriminator.train_on_batch(INPUTS, ones)

        for _ in range(STEPS):
            step()
        model, watch = (combined, c_watch) if which == "combined" else (discriminator, d_watch)
        case.write(name, [watch], lambda: k.save(model, case.path(name)), last, how=k.how(watch, name),
                   notes="a GAN's {}, saved while the discriminator is frozen".format(which))

    return make


def flags_of(thawed, optimizer="Adam"):
    """Flags that were changed after compile: what trained is not what is trainable in the file."""
    def make(case, k, name="model.h5"):
        model = k.Sequential()
        for number, layer in enumerate("ABC"):
            options = {} if number else {"input_shape": (2,)}
            model.add(k.layers.Dense(2, name=layer, **options))
        k.fill(model)
        model.layers[0].trainable = not thawed
        watch = k.compile(model, k.optimizer(optimizer, 0.01))
        steps_of(model)

        def save():
            model.layers[0].trainable = bool(thawed)
            k.save(model, case.path(name))

        def last():
            model.layers[0].trainable = not thawed
            steps_of(model, count=1)

        case.write(name, [watch], save, last, how=k.how(watch, name), notes="layer A was {} after it trained".format(
            "thawed" if thawed else "frozen"))

    return make


def nested(case, k, name="model.h5"):
    """A model inside of a model, of which a part is frozen."""
    base = k.Sequential(name="base")
    base.add(k.layers.Dense(2, input_shape=(2,), name="first"))
    base.add(k.layers.Dense(2, name="second"))
    base.layers[0].trainable = False
    entry = k.input(2)
    middle = k.layers.Dense(2, activation="tanh", name="middle")(entry)
    model = k.fill(k.Model(entry, k.layers.Dense(2, name="top")(base(middle))))
    keep(case, k, model, k.compile(model, k.optimizer("Adam", 0.01)), name, notes="a part of the inner model is frozen")


def compiled_base(case, k, name="model.h5"):
    """A base that was compiled and trained itself, with a new top."""
    base = k.Sequential(name="base")
    base.add(k.layers.Dense(2, input_shape=(2,), activation="tanh", name="b_in"))
    base.add(k.layers.Dense(2, name="b_out"))
    k.fill(base)
    k.compile(base, k.optimizer("Adam", 0.01))
    steps_of(base, count=5)
    entry = k.input(2)
    model = k.Model(entry, k.layers.Dense(2, name="top")(base(entry)))
    watch = k.compile(model, k.optimizer("RMSprop" if k.eager else "Adam", 0.005))
    keep(case, k, model, watch, name, notes="the base was compiled and made 5 steps with an optimizer of its own")


def two_ways(k, cell="LSTM"):
    """Two layers that read both ways, of one shape: no shape tells four cells apart."""
    layers, model = k.layers, k.Sequential()
    model.add(layers.Bidirectional(getattr(layers, cell)(1, return_sequences=True), input_shape=(3, 2)))
    model.add(layers.TimeDistributed(layers.Dense(2, name="each")))
    model.add(layers.Bidirectional(getattr(layers, cell)(1)))
    model.add(layers.Dense(2, name="answer"))
    return k.fill(model)


def bidirectional(cell):
    def make(case, k, name="model.h5"):
        model = two_ways(k, cell)
        keep(case, k, model, k.compile(model, k.optimizer("Adam", 0.01)), name, SERIES,
             notes="Bidirectional and TimeDistributed")

    return make


def multi_gpu(case, k, name="model.h5"):
    """multi_gpu_model: the optimizer is that of the parallel model, as people save it.

    Without a GPU Keras places the two copies on the processor, if it is told that there are two.
    """
    entry = k.input(2)
    middle = k.layers.Dense(3, activation="tanh", name="middle")(entry)
    model = k.fill(k.Model(entry, k.layers.Dense(2, name="top")(middle)))
    utils = importlib.import_module(k.keras.utils.multi_gpu_model.__module__)
    look = utils._get_available_devices
    utils._get_available_devices = lambda: ["/device:CPU:0", "/device:GPU:0", "/device:GPU:1"]
    try:
        parallel = k.keras.utils.multi_gpu_model(model, gpus=2)
    finally:
        utils._get_available_devices = look
    watch = k.compile(parallel, k.optimizer("Adam", 0.01))
    keep(case, k, parallel, watch, name, notes="the parallel model of multi_gpu_model, with its model inside")


# Keras 3 and tf.keras 2.12 and newer


def gan_class(case, k, name="model.keras"):
    """A GAN as a subclass of Model, with two compiled models inside, as keras.io has it."""
    keras = k.keras

    class GAN(keras.Model):
        def __init__(self, discriminator, generator, **more):
            super(GAN, self).__init__(**more)
            self.discriminator, self.generator = discriminator, generator

        def call(self, inputs):
            return self.discriminator(self.generator(inputs))

        def get_config(self):
            return {}

    discriminator = k.fill(keras.Sequential([
        keras.layers.InputLayer((2,)), keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(1)]))
    generator = k.fill(keras.Sequential([
        keras.layers.InputLayer((2,)), keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(2)]))
    k.compile(discriminator, k.optimizer("Adam", 0.01))
    ones = np.ones((4, 1), np.float32)
    steps_of(discriminator, INPUTS, ones, 2)
    discriminator.trainable = False
    gan = GAN(discriminator, generator)
    watch = k.compile(gan, k.optimizer("Adam", 0.02))
    gan(INPUTS)
    keep(case, k, gan, watch, name, INPUTS, ones,
         notes="a subclass, whose discriminator was compiled and made 2 steps")


def equal_biases(case, k, name="model.weights.h5"):
    """Layers of two classes in turn, with biases of one shape. In the file a class's layers come together."""
    model = k.fill(k.Sequential([
        k.layers.InputLayer((2,)), k.layers.Dense(3, name="zeta"), k.layers.LayerNormalization(name="norm"),
        k.layers.Dense(3, name="beta"), k.layers.Dense(3, name="alpha")]))
    keep(case, k, model, k.compile(model, k.optimizer("Adam", 0.01)), name, targets=np.hstack([TARGETS, INPUTS[:, :1]]),
         notes="biases of one shape")


def attention(case, k, name="model.keras"):
    entry = k.input(3, 2)
    each = k.layers.MultiHeadAttention(num_heads=2, key_dim=2, name="heads")(entry, entry)
    each = k.layers.LayerNormalization(name="norm")(each)
    model = k.fill(k.Model(entry, k.layers.Dense(2, name="answer")(k.layers.Flatten()(each))))
    keep(case, k, model, k.compile(model, k.optimizer("AdamW", 0.01)), name, SERIES,
         notes="key biases have gradients of rounding alone")


def mixed(case, k, name="model.keras"):
    """Mixed precision: a LossScaleOptimizer around Adam."""
    policy = k.keras.mixed_precision
    policy.set_global_policy("mixed_float16")
    try:
        model = k.fill(k.Sequential([k.layers.InputLayer((2,)), k.layers.Dense(3, name="hidden"),
                                     k.layers.Dense(2, dtype="float32", name="answer")]))
        keep(case, k, model, k.compile(model, k.optimizer("Adam", 0.01)), name,
             notes="LossScaleOptimizer; gradients as the inner optimizer was given them")
    finally:
        policy.set_global_policy("float32")


def windows(build):
    """Returns a kind of file as tf.keras 2.12 to 2.15 writes it on Windows.

    Their saving_lib makes the names of groups by `tf.io.gfile.join`, which is `os.path.join` for a path without "://"
    (tensorflow/python/lib/io/file_io.py): `layers\\dense`. Only the parts after that, `/vars/0`, are HDF5's own. The
    saver is the real one; in its process `join` is ntpath's while it writes, but for paths of this system. Keras 3.0
    and newer put "/" in place of each backslash (saving_lib.py, `.replace("\\\\", "/")`).
    """
    def make(case, k, name="model.keras"):
        import ntpath

        saving_lib = importlib.import_module("keras.{}saving.saving_lib".format(
            "" if k.version.startswith("2.12.") else "src."))
        model = build(k)
        watch = k.compile(model, k.optimizer("Adam", 0.01))
        gfile = saving_lib.tf.io.gfile
        join = gfile.join

        def save():
            gfile.join = lambda first, *rest: (join if first.startswith("/") else ntpath.join)(first, *rest)
            try:
                model.save(case.path(name))
            finally:
                gfile.join = join

        series = model.input_shape[1:] == (3, 2)
        keep(case, k, model, watch, name, SERIES if series else INPUTS, save=save, notes="as Windows writes it")

    return make


# Checkpoints of tf.keras


def object_checkpoint(case, k, name="run-1"):
    """tf.train.Checkpoint with a model and two optimizers."""
    import tensorflow as tf

    model = k.fill(k.Sequential([k.layers.InputLayer((2,)), k.layers.Dense(3, name="hidden"),
                                 k.layers.Dense(2, name="answer")]))
    first, second = k.optimizer("Adam", 0.01), k.optimizer("SGD", 0.1, momentum=0.9)
    watches = [Watch(k.keras, first), Watch(k.keras, second)]
    sides = [model.layers[-2].trainable_weights, model.layers[-1].trainable_weights]

    def step(count=1):
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean(tf.square(model(INPUTS) - TARGETS))
        for number, (optimizer, side) in enumerate(zip((first, second), sides)):
            grads = tape.gradient(loss, side)
            for _ in range(1 if number else count):
                optimizer.apply_gradients(list(zip(grads, side)))

    for count in (2, 2, 1):
        step(count)
    checkpoint = tf.train.Checkpoint(net=model, encoder_opt=first, decoder_opt=second)
    case.write(name, watches, lambda: checkpoint.save(case.path("run")), step,
               how=[{"optimizer": "Adam(learning_rate=0.01)"}, {"optimizer": "SGD(learning_rate=0.1, momentum=0.9)"}],
               notes="two optimizers with 5 and 3 steps")


def tf_weights(case, k, name="weights"):
    """save_weights in TensorFlow's format."""
    model = named(k)
    keep(case, k, model, k.compile(model, k.optimizer("Adam", 0.01)), name,
         save=lambda: model.save_weights(case.path(name), save_format="tf"),
         how={"optimizer": "Adam(learning_rate=0.01)"})


def saved_model(case, k, name="saved"):
    model = k.fill(k.Sequential([k.layers.InputLayer((2,)), k.layers.Dense(3, name="hidden"),
                                 k.layers.Dense(2, name="answer")]))

    def save():
        model.save(case.path(name), save_format="tf")
        for leftover in ("assets", "keras_metadata.pb", "fingerprint.pb", "saved_model.pb"):
            path = case.path(os.path.join(name, leftover))
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif os.path.exists(path) and leftover != "saved_model.pb":
                os.remove(path)

    keep(case, k, model, k.compile(model, k.optimizer("Adam", 0.01)), name, save=save,
         how={"optimizer": "Adam(learning_rate=0.01)"})
