"""One way to train with any bound optimizer: `Run(make, start, kinds)`, then `step`, `weights`, `slot`, `resumed`.

Gradients are given from outside, so that all targets get the same. Each class below is one way in which one target is
used; `here()` lists those that this environment has.
"""

from __future__ import absolute_import, division, print_function

import contextlib
import gc
import importlib
import os
import shutil
import sys
import tempfile
import warnings
from collections import OrderedDict, namedtuple

import numpy as np

import everstep
from everstep.compat.targets import detect, native_classes

FULL = bool(os.environ.get("EVERSTEP_FULL"))  # all that the quick battery's cells share between them
# What takes turns, by a number of the environment: what one cell of the matrix leaves out, the next ones have.
TURN = sum(map(ord, os.environ.get("EVERSTEP_CELL", "")))

# stock: what gives the native classes, by name; sparse: whether gradients can be
Way = namedtuple("Way", "name target module run stock sparse")

DENSE, SPARSE, NONE = "dense", "sparse", "none"


_kept = []  # sessions that Keras has done with


def start_anew(keras):
    """`clear_session`, without the crash of TF 1.6 to 1.12: a callable that is collected after its session."""
    backend = keras.backend
    tf = sys.modules.get("tensorflow")
    if tf is not None and tf.__version__.split(".")[:2] in [["1", minor] for minor in "6 7 8 9 10 11 12".split()]:
        if len(_kept) > 30:
            gc.collect()  # the callables first
            del _kept[:-1]
        _kept.append(backend.get_session())
    backend.clear_session()


@contextlib.contextmanager
def unregistered(module):
    """As in a process that has bound nothing: the loaders of the module's API know no class of ours."""
    table = native_classes.registry_of(detect.find(module).base).get_custom_objects()
    ours = {name: value for name, value in table.items() if hasattr(value, "definition_class")}
    for name in ours:
        del table[name]
    try:
        yield
    finally:
        table.update(ours)


class Run(object):
    """Args: make: gives the optimizer; start: {name: array}; kinds: {name: DENSE, SPARSE or NONE}."""

    def __init__(self, make, start, kinds):
        self.make, self.kinds, self.names = make, kinds, sorted(start)
        self.start = start
        self.build()

    def trained(self):
        return [name for name in self.names if self.kinds[name] != NONE]

    def flush(self):
        """Brings every row up to date."""
        self.optimizer.flush()

    def catch_up(self, name, rows):
        """Brings the rows that are read next up to date."""
        self.optimizer.catch_up(self.variables[name], rows)

    def close(self):
        pass


class ArraysRun(Run):
    def build(self):
        self.variables = {name: np.array(value) for name, value in self.start.items()}
        self.optimizer = self.make()

    def step(self, grads):
        pairs = []
        for name in self.names:
            grad = grads[name]
            pairs.append((everstep.IndexedSlices(*grad) if isinstance(grad, tuple) else grad, self.variables[name]))
        self.optimizer.apply_gradients(pairs)

    def weights(self):
        return {name: value.copy() for name, value in self.variables.items()}

    def slot(self, name, slot):
        return self.optimizer.get_slot(self.variables[name], slot).copy()

    def set_rate(self, rate):
        self.optimizer.learning_rate = rate

    def in_order(self):
        """The variables that are trained; arrays have names by the order in which they are first seen."""
        return OrderedDict((name, self.variables[name]) for name in self.trained())

    def resumed(self):
        state = everstep.capture(self.optimizer, self.in_order())
        other = ArraysRun(self.make, self.weights(), self.kinds)
        everstep.restore(other.optimizer, state, other.in_order())
        return other


class GraphRun(Run):
    """A TF1 graph and session; `apply` says how the optimizer is given the pairs."""

    resource = True

    def build(self):
        import tensorflow

        self.tf = tf = getattr(getattr(tensorflow, "compat", None), "v1", None) or tensorflow
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.variables = {
                name: tf.get_variable(name, initializer=tf.constant(self.start[name]), use_resource=self.resource)
                for name in self.names
            }
            self.feeds, pairs = {}, []
            for name in self.names:
                pairs.append((self.placeholder(name), self.variables[name]))
            self.rate = tf.placeholder_with_default(np.float32(0), [])
            self.optimizer = self.make()
            self.train_op = self.apply(pairs)
            self.saver = tf.train.Saver(max_to_keep=None)
            self.session = tf.Session(graph=self.graph)
            self.session.run(tf.global_variables_initializer())

    def placeholder(self, name):
        tf, value = self.tf, self.start[name]
        if self.kinds[name] == NONE:
            return None
        dtype = tf.as_dtype(value.dtype)
        if self.kinds[name] == DENSE:
            self.feeds[name] = (tf.placeholder(dtype, value.shape),)
            return self.feeds[name][0]
        self.feeds[name] = tf.placeholder(dtype, (None,) + value.shape[1:]), tf.placeholder(tf.int64, (None,))
        return tf.IndexedSlices(*self.feeds[name], dense_shape=tf.constant(value.shape))

    def feed(self, grads):
        fed = {}
        for name, holders in self.feeds.items():
            grad = grads[name] if isinstance(grads[name], tuple) else (grads[name],)
            fed.update(zip(holders, grad))
        return fed

    def step(self, grads):
        self.session.run(self.train_op, self.feed(grads))

    def flush(self):
        with self.graph.as_default():
            self.session.run(self.optimizer.flush())

    def catch_up(self, name, rows):
        if not hasattr(self, "catching_up"):
            with self.graph.as_default():
                holder = self.tf.placeholder(self.tf.int64)
                self.catching_up = holder, self.optimizer.catch_up(self.variables[name], holder)
        self.session.run(self.catching_up[1], {self.catching_up[0]: rows})

    def weights(self):
        return self.session.run(self.variables)

    def slot(self, name, slot):
        with self.graph.as_default():
            return self.session.run(self.optimizer.get_slot(self.variables[name], slot))

    def resumed(self):
        folder = tempfile.mkdtemp()
        try:
            with self.graph.as_default():
                path = self.saver.save(self.session, os.path.join(folder, "model"), write_meta_graph=False)
            other = type(self)(self.make, self.start, self.kinds)
            with other.graph.as_default():
                other.saver.restore(other.session, path)
        finally:
            shutil.rmtree(folder)
        return other

    def close(self):
        self.session.close()


class TrainResourceRun(GraphRun):
    def apply(self, pairs):
        return self.optimizer.apply_gradients(pairs)


class TrainRefRun(TrainResourceRun):
    resource = False


class V2SessionRun(GraphRun):
    def apply(self, pairs):
        return self.optimizer.apply_gradients(pairs)

    def set_rate(self, rate):
        # Graph variables are set through their session, which K.set_value would not know.
        initializer = self.optimizer.learning_rate.initializer
        self.session.run(initializer, {initializer.inputs[1]: rate})


class EagerRun(Run):
    """TF 2, a call at a time."""

    folder = None

    def build(self):
        import tensorflow as tf

        self.tf = tf
        self.variables = {name: tf.Variable(self.start[name], name=name) for name in self.names}
        self.optimizer = self.make()

    def pairs(self, grads):
        pairs = []
        for name in self.names:
            grad = grads[name]
            if isinstance(grad, tuple):
                values, indices = map(self.tf.convert_to_tensor, grad)
                grad = self.tf.IndexedSlices(values, indices, self.tf.constant(self.start[name].shape, "int64"))
            elif grad is not None:
                grad = self.tf.convert_to_tensor(grad)
            pairs.append((grad, self.variables[name]))
        return pairs

    def step(self, grads):
        self.optimizer.apply_gradients(self.pairs(grads))

    def weights(self):
        return {name: value.numpy() for name, value in self.variables.items()}

    def slot(self, name, slot):
        return self.optimizer.get_slot(self.variables[name], slot).numpy()

    def set_rate(self, rate):
        self.optimizer.learning_rate = rate

    def resumed(self):
        # Slots are restored when they are made, so the file has to stay until the run is closed.
        self.folder = tempfile.mkdtemp()
        path = self.checkpoint().write(os.path.join(self.folder, "model"))
        other = type(self)(self.make, self.start, self.kinds)
        other.checkpoint().restore(path)
        return other

    def checkpoint(self):
        return self.tf.train.Checkpoint(optimizer=self.optimizer, **self.variables)

    def close(self):
        if self.folder:
            shutil.rmtree(self.folder)
            self.folder = None


class FunctionRun(EagerRun):
    def build(self):
        super(FunctionRun, self).build()
        self.function = self.tf.function(lambda grads: EagerRun.step(self, grads))

    def step(self, grads):
        tensors = {}
        for name, grad in grads.items():
            if isinstance(grad, tuple):
                tensors[name] = tuple(self.tf.convert_to_tensor(part) for part in grad)
            elif grad is not None:
                tensors[name] = self.tf.convert_to_tensor(grad)
        self.function(dict(tensors, **{name: None for name in grads if name not in tensors}))


class GetUpdatesRun(Run):
    """A bare K.function, whose loss has the gradients that are fed."""

    keras = None

    def build(self):
        K = self.keras.backend
        start_anew(self.keras)
        symbolic = getattr(K, "symbolic", lambda function: function)
        self.variables = {
            name: K.variable(self.start[name], dtype=str(self.start[name].dtype), name=name) for name in self.names
        }
        self.optimizer = self.make()
        symbolic(self.make_function)(K)

    def make_function(self, K):
        inputs, losses, self.order = [], [], []
        for name in self.trained():
            value, variable = self.start[name], self.variables[name]
            if self.kinds[name] == DENSE:
                holders = [K.placeholder(value.shape, dtype=str(value.dtype))]
                losses.append(K.sum(variable * holders[0]))
            else:
                holders = [
                    K.placeholder((None,) + value.shape[1:], dtype=str(value.dtype)),
                    K.placeholder((None,), dtype="int64"),
                ]
                losses.append(K.sum(K.gather(variable, holders[1]) * holders[0]))
            inputs.extend(holders)
        loss = sum(K.cast(part, "float64") for part in losses)
        updates = self.optimizer.get_updates(loss=loss, params=[self.variables[name] for name in self.trained()])
        self.function = K.function(inputs, [loss], updates=updates)

    def step(self, grads):
        fed = []
        for name in self.trained():
            fed.extend(grads[name] if isinstance(grads[name], tuple) else [grads[name]])
        self.function(fed)

    def flush(self):
        operation = self.optimizer.flush()
        if operation is not None:  # on TF 2 variables are eager
            self.keras.backend.get_session().run(operation)

    def catch_up(self, name, rows):
        if self.optimizer.backend.eager:  # the variables of Keras on TF 2
            self.optimizer.catch_up(self.variables[name], rows)
            return
        if not hasattr(self, "catching_up"):
            holder = self.keras.backend.placeholder((None, None), dtype="int64")
            self.catching_up = holder, self.optimizer.catch_up(self.variables[name], holder)
        self.keras.backend.get_session().run(self.catching_up[1], {self.catching_up[0]: rows})

    def weights(self):
        return {name: self.keras.backend.get_value(value) for name, value in self.variables.items()}

    def slot(self, name, slot):
        return self.keras.backend.get_value(self.optimizer.get_slot(self.variables[name], slot))

    def set_rate(self, rate):
        self.keras.backend.set_value(self.optimizer.lr, rate)

    def resumed(self):
        weights, state = self.weights(), self.optimizer.get_weights()
        other = type(self)(self.make, weights, self.kinds)
        other.optimizer.set_weights(state)
        return other


class KerasRun(Run):
    """Keras 3 on any backend, a call at a time."""

    keras = None
    sparse = False

    def build(self):
        with self.precision():
            self.variables = {
                name: self.keras.Variable(value, dtype=str(value.dtype), name=name)
                for name, value in self.start.items()
            }
            self.optimizer = self.make()
            self.optimizer.build([self.variables[name] for name in self.names])

    def precision(self):
        """JAX has no float64 unless it is asked for."""
        doubles = any(value.dtype == "float64" for value in self.start.values())
        if self.keras.backend.backend() != "jax" or not doubles:
            return contextlib.nullcontext()
        import jax

        enable = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")
        return enable.enable_x64(True)

    def tensor(self, name, grad):
        convert = self.keras.ops.convert_to_tensor
        if not isinstance(grad, tuple):
            return None if grad is None else convert(grad)
        if self.sparse:
            import tensorflow as tf

            return tf.IndexedSlices(convert(grad[0]), convert(grad[1]), convert(self.start[name].shape))
        whole = np.zeros(self.start[name].shape, grad[0].dtype)
        np.add.at(whole, grad[1], grad[0])
        return convert(whole)

    def tensors(self, grads):
        return [self.tensor(name, grads[name]) for name in self.names]

    def apply(self, grads):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Gradients do not exist")  # for the variable that has none, on purpose
            self.optimizer.apply(grads, [self.variables[name] for name in self.names])

    def step(self, grads):
        with self.precision():
            self.apply(self.tensors(grads))

    def weights(self):
        return {name: self.array(value) for name, value in self.variables.items()}

    def array(self, variable):
        return np.array(self.keras.ops.convert_to_numpy(variable.value))

    def slot(self, name, slot):
        return self.array(self.optimizer.get_slot(self.variables[name], slot))

    def set_rate(self, rate):
        self.optimizer.learning_rate = rate

    def resumed(self):
        store = {}
        self.optimizer.save_own_variables(store)
        other = type(self)(self.make, self.weights(), self.kinds)
        other.optimizer.load_own_variables(store)
        return other


class KerasFunctionRun(KerasRun):
    """In a tf.function."""

    def build(self):
        import tensorflow as tf

        super(KerasFunctionRun, self).build()
        self.function = tf.function(self.apply)

    def step(self, grads):
        self.function(self.tensors(grads))


class KerasJitRun(KerasRun):
    """On JAX, `stateless_apply` in a jitted function; the state lives outside of the variables."""

    def build(self):
        import jax

        super(KerasJitRun, self).build()
        self.function = jax.jit(self.stateless)
        self.state = None

    def stateless(self, own, grads, values):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Gradients do not exist")
            return self.optimizer.stateless_apply(own, grads, values)

    def step(self, grads):
        with self.precision():
            trained = [self.variables[name] for name in self.names]
            own, values = ([variable.value for variable in group] for group in (self.optimizer.variables, trained))
            values, own = self.function(own, self.tensors(grads), values)
            for variable, value in list(zip(trained, values)) + list(zip(self.optimizer.variables, own)):
                variable.assign(value)


def _way(name, found, run, stock, sparse=True):
    return Way(name, found.target.name, found.module, run, stock, sparse)


def here():
    """The ways in which this environment can train, each once; the same objects at every call."""
    if not _ways:
        _ways.extend(_found_here())
    return list(_ways)


_ways = []


def _found_here():
    ways, bases = [], set()
    for name, module in detect.known_modules():
        if module is None:
            continue
        try:
            found = detect.find(module)
        except everstep.errors.TargetError:
            continue
        if found.base in bases:
            continue
        bases.add(found.base)
        ways.extend(_ways_of(name, found))
    return ways


def one_of_each_target(ways, turn=TURN):
    """For each target one of its ways, which take turns."""
    targets_here = []
    for way in ways:
        if way.target not in targets_here:
            targets_here.append(way.target)
    grouped = [[way for way in ways if way.target == target] for target in targets_here]
    return [group[turn % len(group)] for group in grouped]


def part(some, each_of, turn=TURN):
    """Those of some cases that this cell has, one in so many; all with EVERSTEP_FULL=1."""
    return some if FULL else some[turn % each_of :: each_of]


def in_turn(some, ways):
    """(one of `some`, way) for each way: over the matrix all of them on all ways."""
    if FULL:
        return [(one, way) for one in some for way in ways]
    return [(some[place % len(some)], way) for place, way in enumerate(ways, TURN)]


def of_frameworks():
    return [way for way in here() if way.target != "arrays"]


def _ways_of(name, found):
    target, module = found.target.name, found.module
    if target == "arrays":
        return [_way("numpy", found, ArraysRun, None)]
    stock = getattr(module, "optimizers", module)
    if target == "keras3":
        return _ways_of_keras3(found, stock)
    import tensorflow as tf

    eager = getattr(tf, "executing_eagerly", lambda: False)()
    if target == "tf_train":
        ways = [
            _way("tf_train ref", found, TrainRefRun, module),
            _way("tf_train resource", found, TrainResourceRun, module),
        ]
        return ways + ([_way("tf_train eager", found, EagerRun, module)] if eager else [])
    if target == "optimizer_v2":
        ways = [_way("optimizer_v2 session", found, V2SessionRun, stock)]
        if eager:
            ways.append(_way("optimizer_v2 eager", found, EagerRun, stock))
            ways.append(_way("optimizer_v2 function", found, FunctionRun, stock))
        return ways
    if target == "update_step":
        return [
            _way("update_step eager", found, EagerRun, stock),
            _way("update_step function", found, FunctionRun, stock),
        ]
    run = type(str("GetUpdatesRun"), (GetUpdatesRun,), {"keras": module})
    return [_way("get_updates " + name.replace("tensorflow", "tf"), found, run, stock)]


def _ways_of_keras3(found, stock):
    import keras

    backend = keras.backend.backend()
    of_keras = {"keras": keras, "sparse": backend == "tensorflow"}
    runs = [("eager", KerasRun)]
    runs += [("function", KerasFunctionRun)] if backend == "tensorflow" else []
    runs += [("jit", KerasJitRun)] if backend == "jax" else []
    return [
        _way("keras3 %s %s" % (backend, how), found, type(run.__name__, (run,), of_keras), stock, of_keras["sparse"])
        for how, run in runs
    ]


# The quickest first: a call at a time is slow.
QUICK = (TrainResourceRun, FunctionRun, GetUpdatesRun, KerasJitRun, KerasFunctionRun, ArraysRun, V2SessionRun, KerasRun)


def quickest():
    """Of each target the quickest way."""
    found = {}
    for run in QUICK:
        for way in here():
            if issubclass(way.run, run):
                found.setdefault(way.target, way)
    return [found[target] for target in sorted(found)]


NUMPY = next(way for way in here() if way.target == "arrays")
