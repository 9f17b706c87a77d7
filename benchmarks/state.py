"""Measures state: capture and save, load and restore, beside the API's own checkpoint, or np.savez.

    python benchmarks/state.py [MEGABYTES [TARGET]]

A model of 100 variables and Adam's two slots of each is 500 MB, unless said otherwise. Runs in any environment of the
matrix, for the targets found there; Keras 3 runs on the backend of KERAS_BACKEND. The figures are ratios of CPU time
(user and system, all threads). Ours and theirs alternate, and the median of the rounds counts.
"""
import importlib
import os
import shutil
import sys
import tempfile
import time
from functools import partial

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import everstep  # noqa: E402  # after the setting of TensorFlow
from everstep.optimizers import Adam  # noqa: E402

COUNT, ROUNDS = 100, 5


class Arrays(object):
    """NumPy arrays. The peer: np.savez and np.load, into arrays that exist."""

    name, peer, session = "arrays", "np.savez", None

    def __init__(self, size, folder):
        self.path, self.native_path = (os.path.join(folder, name) for name in ("ours.npz", "native"))
        self.begin(size)

    def begin(self, size):
        self.optimizer = Adam(1e-3).bind(np)
        self.variables = {str(number): np.zeros(size, "f4") for number in range(COUNT)}
        self.optimizer.apply_gradients([(np.ones(size, "f4"), each) for each in self.variables.values()])
        self.stored = list(self.variables.values())
        self.stored += [self.optimizer.get_slot(each, slot) for each in self.stored for slot in ("m", "v")]

    def save(self):
        everstep.capture(self.optimizer, self.variables, session=self.session, weights=True).save(self.path)

    def load(self):
        state = everstep.State.load(self.path)
        everstep.restore(self.optimizer, state, self.variables, session=self.session, weights=True)

    def native_save(self):
        np.savez(self.native_path, *map(np.asarray, self.stored))

    def native_load(self):
        with np.load(self.native_path + ".npz") as arrays:
            for number, variable in enumerate(self.stored):
                self.assign(variable, arrays["arr_%d" % number])

    def assign(self, variable, value):
        variable[...] = value


class Graph(Arrays):
    """A session. The peer: tf.train.Saver."""

    peer = "Saver"

    def __init__(self, size, folder, use_resource):
        self.use_resource, self.name = use_resource, "tf_train, " + ("resource" if use_resource else "ref")
        super(Graph, self).__init__(size, folder)

    def begin(self, size):
        import tensorflow

        tf = getattr(getattr(tensorflow, "compat", None), "v1", tensorflow)
        with tf.Graph().as_default() as graph:
            options = dict(initializer=tf.ones_initializer(), use_resource=self.use_resource)
            self.variables = [tf.get_variable("v%d" % number, (size,), **options) for number in range(COUNT)]
            self.optimizer = Adam(1e-3).bind(tf.train)
            self.optimizer.apply_gradients([(variable.read_value(), variable) for variable in self.variables])
            self.session, self.saver = tf.Session(graph=graph), tf.train.Saver()
            self.session.run(tf.global_variables_initializer())
            graph.finalize()

    def native_save(self):
        self.saver.save(self.session, self.native_path, write_meta_graph=False)

    def native_load(self):
        self.saver.restore(self.session, self.native_path)


class Eager(Arrays):
    """Eager tf.keras. The peer: tf.train.Checkpoint."""

    peer = "Checkpoint"

    def __init__(self, size, folder, keras):
        self.keras, self.name = keras, "eager, " + keras.__name__
        super(Eager, self).__init__(size, folder)

    def begin(self, size):
        import tensorflow as tf

        self.variables = [self.variable(np.zeros(size, "f4")) for _ in range(COUNT)]
        self.optimizer = Adam(1e-3).bind(self.keras)
        self.optimizer.apply_gradients([(tf.ones((size,)), each) for each in self.variables])
        stored = [getattr(each, "value", each) if self.is_keras3() else each for each in self.all_variables()]
        self.checkpoint = tf.train.Checkpoint(variables=stored)

    def is_keras3(self):
        return getattr(self.keras, "__version__", "2").startswith("3")

    def variable(self, value):
        if self.is_keras3():
            return self.keras.Variable(value)
        import tensorflow as tf

        return tf.Variable(value)

    def all_variables(self):
        own = self.optimizer.variables
        return self.variables + list(own() if callable(own) else own)

    def native_save(self):
        self.checkpoint.write(self.native_path)

    def native_load(self):
        self.checkpoint.read(self.native_path).assert_consumed()


class Keras3(Eager):
    """Keras 3 on JAX and torch. The peer: np.savez."""

    peer = "np.savez"

    def begin(self, size):
        self.name += ", " + self.keras.backend.backend()
        self.variables = [self.variable(np.zeros(size, "f4")) for _ in range(COUNT)]
        self.optimizer = Adam(1e-3).bind(self.keras)
        self.optimizer.apply_gradients([(self.keras.ops.ones((size,)), each) for each in self.variables])
        self.stored = self.all_variables()

    def native_save(self):
        np.savez(self.native_path, *map(self.keras.ops.convert_to_numpy, self.stored))

    native_load = Arrays.native_load

    def assign(self, variable, value):
        variable.assign(value)


def targets():
    """Returns functions (size, folder) that make the cases of this environment."""
    modules = {}
    for name in ("tensorflow", "keras"):
        try:
            modules[name] = importlib.import_module(name)
        except ImportError:
            pass
    if not modules:
        return [Arrays]
    if "tensorflow" not in modules:
        return [partial(Keras3, keras=modules["keras"])]
    tf = modules["tensorflow"]
    eager = [partial(Eager, keras=tf.keras)] if tf.__version__.startswith("2") else []
    return [partial(Graph, use_resource=False), partial(Graph, use_resource=True)] + eager


def measures(megabytes=500, name=""):
    """Yields (target, what, its peer, our seconds of CPU, the median ratio to the peer's)."""
    for make in targets():
        folder = tempfile.mkdtemp()
        try:
            case = make(int(megabytes * 1e6 / (COUNT * 3 * 4)), folder)
            if name in case.name:
                functions = (case.save, case.native_save, case.load, case.native_load)
                rounds = np.array([[seconds(function) for function in functions] for _ in range(ROUNDS + 1)])[1:]
                for what, place in (("save", 0), ("load", 2)):
                    ratio = np.median(rounds[:, place] / rounds[:, place + 1])
                    yield case.name, what, case.peer, float(np.median(rounds[:, place])), float(ratio)
        finally:
            shutil.rmtree(folder)


def seconds(function):
    start = time.process_time()
    function()
    return time.process_time() - start


if __name__ == "__main__":
    print("{:28} {:5} {:11} {:>6} {:>6}".format("", "", "peer", "CPU s", "ratio"))
    for line in measures(*([float(sys.argv[1])] if sys.argv[1:] else []) + sys.argv[2:]):
        print("{:28} {:5} {:11} {:6.2f} {:6.2f}".format(*line))
        sys.stdout.flush()
