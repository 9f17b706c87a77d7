"""Measures checkpoints of a model: capture and save, load and restore, relative to the API's own or np.savez."""
import os
import shutil
import tempfile
from functools import partial

import numpy as np

import everstep
from timing import Case, Run

MEGABYTES, COUNT = 500, 100  # of 100 variables and their two slots
ADAM = everstep.optimizers.Adam()


def state(api):
    """The API's own is tf.train.Saver in a session, tf.train.Checkpoint in eager code, np.savez without TensorFlow."""
    if api.sessions and api.target != "tf_train":
        return  # the same variables as those of tf_train
    model = Graph if api.sessions else Eager if api.backend == "tensorflow" else Saved
    for task in ("save", "load"):
        yield Case("%s, %d MB" % (task, MEGABYTES), model.peer, partial(_runs, api, model, task))


def _runs(api, model, task):
    sides = model(api), model(api)
    tasks = {"stock": getattr(sides[0], "native_" + task), "everstep": getattr(sides[1], task)}
    return {label: Task(side, tasks[label]) for label, side in zip(("stock", "everstep"), sides)}


class Task(Run):
    """Repeats one task of a `Saved`. Both files hold other values than the variables have then."""

    warm = 1

    def __init__(self, saved, task):
        self.saved, self.task, self.shapes = saved, task, [(saved.size,)] * COUNT
        saved.save()
        saved.native_save()
        saved.train()

    def run(self, steps):
        for _ in range(steps):
            self.task()

    def weights(self):
        return self.saved.values()


class Saved(object):
    """A model after two steps of Adam, and its files. This one is Keras 3 on JAX and torch."""

    peer, session = "np.savez", None

    def __init__(self, api):
        self.api, self.folder = api, tempfile.mkdtemp()
        self.path, self.native_path = (os.path.join(self.folder, name) for name in ("ours.npz", "native"))
        self.size = int(MEGABYTES * 1e6 / (COUNT * 3 * 4))
        self.build()

    def __del__(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def build(self):
        import keras

        self.ones = keras.ops.ones((self.size,))
        self.variables = [keras.Variable(np.zeros(self.size, "f4"), name="v%d" % number) for number in range(COUNT)]
        self.optimizer = ADAM.bind(keras)
        self.train()
        self.stored = self.variables + list(self.optimizer.variables)

    def train(self):
        self.optimizer.apply_gradients([(self.ones, variable) for variable in self.variables])

    def values(self):
        return [np.asarray(variable) for variable in self.variables]

    def save(self):
        everstep.capture(self.optimizer, self.variables, session=self.session, weights=True).save(self.path)

    def load(self):
        state = everstep.State.load(self.path)
        everstep.restore(self.optimizer, state, self.variables, session=self.session, weights=True)

    def native_save(self):
        import keras

        np.savez(self.native_path, *map(keras.ops.convert_to_numpy, self.stored))

    def native_load(self):
        with np.load(self.native_path + ".npz") as arrays:
            for number, variable in enumerate(self.stored):
                variable.assign(arrays["arr_%d" % number])


class Eager(Saved):
    peer = "tf.train.Checkpoint"

    def build(self):
        import tensorflow as tf

        keras = self.api.module
        is_keras3 = self.api.target == "keras3"
        make = keras.Variable if is_keras3 else tf.Variable
        self.ones, self.optimizer = tf.ones((self.size,)), ADAM.bind(keras)
        self.variables = [make(np.zeros(self.size, "f4"), name="v%d" % number) for number in range(COUNT)]
        self.train()
        own = self.optimizer.variables
        stored = self.variables + list(own() if callable(own) else own)
        self.checkpoint = tf.train.Checkpoint(variables=[each.value for each in stored] if is_keras3 else stored)

    def native_save(self):
        self.checkpoint.write(self.native_path)

    def native_load(self):
        self.checkpoint.read(self.native_path).assert_consumed()


class Graph(Saved):
    peer = "tf.train.Saver"

    def build(self):
        import tensorflow

        tf = getattr(getattr(tensorflow, "compat", None), "v1", tensorflow)
        with tf.Graph().as_default() as graph:
            options = dict(initializer=tf.ones_initializer(), use_resource=self.api.name.endswith("resource"))
            self.variables = [tf.get_variable("v%d" % number, (self.size,), **options) for number in range(COUNT)]
            self.optimizer = ADAM.bind(self.api.module)
            self.step = self.optimizer.apply_gradients([(each.read_value(), each) for each in self.variables])
            self.session, self.saver = tf.Session(graph=graph), tf.train.Saver()
            self.session.run(tf.global_variables_initializer())
            graph.finalize()
        self.train()

    def train(self):
        self.session.run(self.step)

    def values(self):
        return self.session.run(self.variables)

    def native_save(self):
        with self.session.graph.as_default():  # else eager code saves no ref variables
            self.saver.save(self.session, self.native_path, write_meta_graph=False)

    def native_load(self):
        with self.session.graph.as_default():
            self.saver.restore(self.session, self.native_path)
