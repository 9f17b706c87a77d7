"""Trains any bound optimizer in a uniform way: `Run(make, start, kinds)`, then `step`, `weights`, `slot`, `resumed`.

Tests pass gradients in, so that every target gets the same ones. A *way* is one mode of one target: eager, in a
function, in a session. Each subclass of `Run` is one way; `all_ways()` lists those of this environment.
"""

from __future__ import absolute_import, division, print_function

import contextlib
import gc
import importlib
import inspect
import logging
import os
import shutil
import sys
import tempfile
import warnings
from collections import OrderedDict, namedtuple

import numpy as np

import everstep
from everstep.compat.targets import detect, native_classes

FULL = bool(os.environ.get("EVERSTEP_FULL"))  # run every case, not only this cell's share
# Rotates ways and cases from cell to cell, so that the matrix as a whole covers all of them.
TURN = sum(map(ord, os.environ.get("EVERSTEP_CELL", "")))

# stock: the module or namespace with the native classes; sparse: whether gradients may be sparse
Way = namedtuple("Way", "name target module run stock sparse")

DENSE, SPARSE, NONE = "dense", "sparse", "none"


def way_name(way):
    """Returns a way's name, for a test's `ids`. A test without any way gets another object here."""
    return getattr(way, "name", None)


_kept = []  # old sessions, kept until their callables are collected


def arguments_of(function):
    """Returns the names of a function's arguments, those that are by keyword alone last.

    Where it can, it looks through decorators: TF 2.10 and Keras 3 wrap Model.compile.
    """
    if hasattr(inspect, "signature"):
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return [name for name, each in inspect.signature(function).parameters.items() if each.kind not in kinds]
    return list(inspect.getargspec(function).args)  # Python 2.7


def clear_session(keras):
    """Clears the Keras session. Avoids a crash of TF 1.6 to 1.12, when a callable is collected after its session."""
    backend = keras.backend
    tf = sys.modules.get("tensorflow")
    if tf is not None and tf.__version__.split(".")[:2] in [["1", minor] for minor in "6 7 8 9 10 11 12".split()]:
        if len(_kept) > 30:
            gc.collect()  # collects the callables before their sessions
            del _kept[:-1]
        _kept.append(backend.get_session())
    backend.clear_session()


@contextlib.contextmanager
def unregistered(module):
    """Hides our classes from the API's loaders, as in a process that has not bound any definition."""
    table = native_classes.registry_of(detect.find(module).base).get_custom_objects()
    classes = {name: value for name, value in table.items() if hasattr(value, "definition_class")}
    modules = {name: value for name, value in sys.modules.items() if name.startswith("everstep.native.")}
    for known, names in ((table, classes), (sys.modules, modules)):
        for name in names:
            del known[name]
    try:
        yield
    finally:
        table.update(classes)
        sys.modules.update(modules)


class Run(object):
    """One model in training.

    Args:
        make: a function that returns the bound optimizer.
        start: {name: array}, the start values of the variables.
        kinds: {name: DENSE, SPARSE or NONE}, the kinds of their gradients.
    """

    def __init__(self, make, start, kinds):
        self.make, self.kinds, self.names = make, kinds, sorted(start)
        self.start = start
        self.build()

    def trained(self):
        return [name for name in self.names if self.kinds[name] != NONE]

    def flush(self):
        """Applies all deferred updates of all rows."""
        self.optimizer.flush()

    def catch_up(self, name, rows):
        """Applies the deferred updates of the rows that are read next."""
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
        """Returns the trained variables in order: a state names arrays by the order in which steps first saw them."""
        return OrderedDict((name, self.variables[name]) for name in self.trained())

    def resumed(self):
        state = everstep.capture(self.optimizer, self.in_order())
        other = ArraysRun(self.make, self.weights(), self.kinds)
        everstep.restore(other.optimizer, state, other.in_order())
        return other


class GraphRun(Run):
    """A TF 1 graph and its session. Subclasses define `apply`, which passes the pairs to the optimizer."""

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
        # Set a graph variable in its own session: K.set_value uses another one.
        initializer = self.optimizer.learning_rate.initializer
        self.session.run(initializer, {initializer.inputs[1]: rate})


class EagerRun(Run):
    """TF 2 in eager mode."""

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
        # Slots are restored when they are created, so the file has to stay until the run is closed.
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
    """A plain K.function. Its loss is linear, so that its gradients are those that are fed."""

    keras = None

    def build(self):
        K = self.keras.backend
        clear_session(self.keras)
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
        if operation is not None:  # None on TF 2, where variables are eager
            self.keras.backend.get_session().run(operation)

    def catch_up(self, name, rows):
        if self.optimizer.backend.eager:  # Keras on TF 2
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
    """Keras 3 on any backend, in eager mode."""

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
        """Enables float64 on JAX, which has it off by default."""
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
            warnings.filterwarnings("ignore", "Gradients do not exist")  # one variable has none on purpose
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
    """Keras 3 in a tf.function."""

    def build(self):
        import tensorflow as tf

        super(KerasFunctionRun, self).build()
        self.function = tf.function(self.apply)

    def step(self, grads):
        self.function(self.tensors(grads))


class KerasJitRun(KerasRun):
    """Keras 3 on JAX: `stateless_apply` in a jitted function, with the state held outside of the variables."""

    def build(self):
        import jax

        super(KerasJitRun, self).build()
        self.function = jax.jit(self.stateless)
        self.state = None

    def stateless(self, optimizer_values, grads, values):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Gradients do not exist")
            return self.optimizer.stateless_apply(optimizer_values, grads, values)

    def step(self, grads):
        with self.precision():
            trained = [self.variables[name] for name in self.names]
            groups = self.optimizer.variables, trained
            optimizer_values, values = ([variable.value for variable in group] for group in groups)
            values, optimizer_values = self.function(optimizer_values, self.tensors(grads), values)
            for variable, value in list(zip(trained, values)) + list(zip(self.optimizer.variables, optimizer_values)):
                variable.assign(value)


def _way(name, api, run, stock, sparse=True):
    return Way(name, api.target.name, api.module, run, stock, sparse)


def all_ways():
    """Returns every way of this environment once, the same objects at every call."""
    if not _ways:
        _ways.extend(_find_ways())
    return list(_ways)


_ways = []


def _find_ways():
    ways, bases = [], set()
    for name, module in detect.known_modules():
        if module is None:
            continue
        try:
            api = detect.find(module)
        except everstep.errors.TargetError:
            continue
        if api.base in bases:
            continue
        bases.add(api.base)
        ways.extend(_ways_of_api(name, api))
    return ways


def names_its_optimizers(module):
    """Returns False for the `keras` beside TF 2.5, for one: it exports no classes, so that programs do not use it."""
    return hasattr(getattr(module, "optimizers", module), "Adam")


def kerases():
    """Returns {name: module} of each Keras once: from 2.4 on, `keras` and `tf.keras` are the same."""
    modules = [(name, module) for name, module in detect.known_modules() if hasattr(module, "Sequential")]
    once = {detect.find(module).base: (name, module) for name, module in sorted(modules, key=lambda pair: pair[0])
            if names_its_optimizers(module)}
    return dict(once.values())


def one_of_each_target(ways, turn=TURN):
    """Picks one way of each target, by rotation."""
    targets_here = []
    for way in ways:
        if way.target not in targets_here:
            targets_here.append(way.target)
    grouped = [[way for way in ways if way.target == target] for target in targets_here]
    return [group[turn % len(group)] for group in grouped]


@contextlib.contextmanager
def tensorflow_log():
    """Yields a list of what TensorFlow's Python code logs in the block."""
    said, handler = [], logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("tensorflow").addHandler(handler)
    try:
        yield said
    finally:
        logging.getLogger("tensorflow").removeHandler(handler)


def share(cases, each_of, turn=TURN):
    """Returns every n-th of some cases, this cell's share; all of them with EVERSTEP_FULL=1."""
    return cases if FULL else cases[turn % each_of :: each_of]


def rotate(cases, ways):
    """Pairs each way with one of some cases, by rotation: over the matrix every case meets every way."""
    if FULL:
        return [(case, way) for case in cases for way in ways]
    return [(cases[place % len(cases)], way) for place, way in enumerate(ways, TURN)]


def framework_ways():
    return [way for way in all_ways() if way.target != "arrays"]


class ByGet(object):
    """The optimizers of a keras package that exports no classes, such as the one beside TF 2.5; `get` makes them."""

    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        if hasattr(self._module, name):
            return getattr(self._module, name)
        try:
            return type(self._module.get(name.lower()))
        except ValueError:
            raise AttributeError(name)


def _ways_of_api(name, api):
    target, module = api.target.name, api.module
    if target == "arrays":
        return [_way("numpy", api, ArraysRun, None)]
    stock = getattr(module, "optimizers", module)
    if hasattr(stock, "get") and not hasattr(stock, "Adam"):
        stock = ByGet(stock)
    if target == "keras3":
        return _ways_of_keras3(api, stock)
    import tensorflow as tf

    eager = getattr(tf, "executing_eagerly", lambda: False)()
    if target == "tf_train":
        ways = [
            _way("tf_train ref", api, TrainRefRun, module),
            _way("tf_train resource", api, TrainResourceRun, module),
        ]
        return ways + ([_way("tf_train eager", api, EagerRun, module)] if eager else [])
    if target == "optimizer_v2":
        ways = [_way("optimizer_v2 session", api, V2SessionRun, stock)]
        if eager:
            ways.append(_way("optimizer_v2 eager", api, EagerRun, stock))
            ways.append(_way("optimizer_v2 function", api, FunctionRun, stock))
        return ways
    if target == "update_step":
        return [
            _way("update_step eager", api, EagerRun, stock),
            _way("update_step function", api, FunctionRun, stock),
        ]
    run = type(str("GetUpdatesRun"), (GetUpdatesRun,), {"keras": module})
    return [_way("get_updates " + name.replace("tensorflow", "tf"), api, run, stock)]


def _ways_of_keras3(api, stock):
    import keras

    backend = keras.backend.backend()
    of_keras = {"keras": keras, "sparse": backend == "tensorflow"}
    runs = [("eager", KerasRun)]
    runs += [("function", KerasFunctionRun)] if backend == "tensorflow" else []
    runs += [("jit", KerasJitRun)] if backend == "jax" else []
    return [
        _way("keras3 %s %s" % (backend, how), api, type(run.__name__, (run,), of_keras), stock, of_keras["sparse"])
        for how, run in runs
    ]


# The fastest first: eager mode is slow.
QUICK = (TrainResourceRun, FunctionRun, GetUpdatesRun, KerasJitRun, KerasFunctionRun, ArraysRun, V2SessionRun, KerasRun)


def quickest():
    """Returns the fastest way of each target."""
    fastest = {}
    for run in QUICK:
        for way in all_ways():
            if issubclass(way.run, run):
                fastest.setdefault(way.target, way)
    return [fastest[target] for target in sorted(fastest)]


NUMPY = next(way for way in all_ways() if way.target == "arrays")
