"""Runs one call on a stock optimizer and on ours: `outcome(call, mode, ours)`, then `judge(call, stock, ours)`.

A call is a function of a `World`: it makes optimizers with `world.make(...)`, which is a stock class on one side and
our native class on the other, and everything else is the same. A *mode* is one kind of variable of one target.
"""

from __future__ import absolute_import, division, print_function

import contextlib
import os
import re
import sys
import traceback
import warnings
from collections import namedtuple

import numpy as np

import everstep
import harness
from everstep.errors import EverstepError

START = np.arange(12, dtype="float32").reshape(4, 3) + 1
GRAD = np.full((4, 3), 0.5, "float32")

# name: of the way in the harness; target: of everstep; module: to bind to; stock: the namespace of stock classes, or
# None; kind: the World; graph: whether a call builds operations; sparse: whether gradients may be sparse.
Mode = namedtuple("Mode", "name target module stock kind graph sparse")

_TRAIN_CLASSES = {
    "SGD": "GradientDescentOptimizer", "Momentum": "MomentumOptimizer", "Adam": "AdamOptimizer",
    "Adagrad": "AdagradOptimizer", "RMSprop": "RMSPropOptimizer",
}  # fmt: skip
_TRAIN_NAMES = {"beta_1": "beta1", "beta_2": "beta2", "nesterov": "use_nesterov", "rho": "decay"}


class World(object):
    """Variables, tensors and steps of one mode, and `make`, which differs between stock and ours."""

    def __init__(self, mode, ours):
        self.mode, self.ours, self.module = mode, ours, mode.module
        self.variables = []
        self.w = self.variable(START)
        self.expected = START  # the value of w after the right steps

    def rule(self, name):
        if self.ours:
            return getattr(everstep.optimizers, name).native_class(self.module)
        return getattr(self.mode.stock, name)

    def make(self, rule="SGD", *args, **keywords):
        """Returns an optimizer. `keywords` are spelled as everstep spells them; unknown ones are handed on."""
        return self.rule(rule)(*args, **keywords)

    def sgd(self):
        return self.make("SGD", learning_rate=0.5)

    @contextlib.contextmanager
    def inside(self):
        yield

    def variable(self, value, **keywords):
        """Returns a new variable, remembered by `values`."""
        variable = self.new_variable(np.asarray(value), **keywords)
        self.variables.append(variable)
        return variable

    def apply(self, optimizer, pairs, *args, **keywords):
        """Calls `apply_gradients`, and in a graph runs the operation."""
        self.run(optimizer.apply_gradients(pairs, *args, **keywords))
        self.expected = np.array(self.read(self.w))

    def step(self, optimizer, variable=None, grad=None):
        """Takes one right step, on every target."""
        variable = self.w if variable is None else variable
        self.apply(optimizer, [(self.tensor(GRAD if grad is None else grad), variable)])

    def run(self, operation):
        """Runs an operation of a graph. Eager code has run it."""

    def values(self):
        return [self.read(variable) for variable in self.variables]

    def unchanged(self):
        return bool((self.read(self.w) == self.expected).all())

    def foreign_variable(self):
        """Returns something that this target cannot train, but another could."""
        return np.array(START)


class Arrays(World):
    def new_variable(self, value):
        return np.array(value)

    def tensor(self, value, dtype=None):
        return np.array(value, dtype)

    def slices(self, values, ids, shape=None):
        return everstep.IndexedSlices(np.array(values), np.zeros(0, "int64") if _empty(ids) else np.array(ids))

    def read(self, variable):
        return variable

    def foreign_variable(self):
        return [1.0, 2.0]


class Eager(World):
    def __init__(self, mode, ours):
        import tensorflow

        self.tf = tensorflow
        super(Eager, self).__init__(mode, ours)

    def make(self, rule="SGD", *args, **keywords):
        if not self.ours and self.mode.target == "tf_train":
            rule, args, keywords = _for_train(rule, args, keywords)
        return super(Eager, self).make(rule, *args, **keywords)

    def new_variable(self, value, **keywords):
        return self.tf.Variable(value, **keywords)

    def tensor(self, value, dtype=None):
        return self.tf.constant(value, dtype)

    def slices(self, values, ids, shape=None):
        ids = self.tf.zeros([0], "int64") if _empty(ids) else self.tf.constant(ids)
        return self.tf.IndexedSlices(self.tf.constant(values), ids, shape)

    def loss(self, variable=None):
        variable = self.w if variable is None else variable
        return lambda: self.tf.reduce_sum(variable * self.tf.constant(GRAD))

    def minimize(self, optimizer, loss, *args, **keywords):
        self.run(optimizer.minimize(loss, *args, **keywords))

    def read(self, variable):
        return variable.numpy()


class Graph(Eager):
    """A graph and its session."""

    resource = True

    def __init__(self, mode, ours):
        import tensorflow

        self.tf = getattr(getattr(tensorflow, "compat", None), "v1", None) or tensorflow
        self.graph, self.session = self.tf.Graph(), None
        with self.inside():
            World.__init__(self, mode, ours)

    @contextlib.contextmanager
    def inside(self):
        before = self.tf.get_default_graph()
        with self.graph.as_default():
            self.session = self.session or self.tf.Session()
            with self.session.as_default():
                yield
        if self.tf.get_default_graph() is not before:
            assert not self.ours, "the call left its graph as the default one"
            self._leave()

    @staticmethod
    def _leave():
        """Leaves the graphs that stock stays in if its `name_scope` fails, in TF 1.4 and 1.5."""
        from tensorflow.python.framework import ops

        del ops._default_graph_stack.stack[:]

    def new_variable(self, value, **keywords):
        keywords = dict({"use_resource": self.resource}, **keywords)
        keywords.setdefault("name", "w{}".format(len(self.variables)))
        shape_known = keywords.pop("validate_shape", True)
        variable = self.tf.get_variable(initializer=self.tf.constant(value), validate_shape=shape_known, **keywords)
        self.session.run(variable.initializer)
        return variable

    def loss(self, variable=None):
        return super(Graph, self).loss(variable)()

    def run(self, operation):
        known = set(map(id, self.variables))
        self.session.run(self.tf.variables_initializer([v for v in self.tf.global_variables() if id(v) not in known]))
        self.session.run(operation)

    def read(self, variable):
        return self.session.run(variable)

    def foreign_variable(self):
        with self.tf.Graph().as_default():
            return self.tf.get_variable("other", initializer=self.tf.constant(START), use_resource=self.resource)


class RefGraph(Graph):
    resource = False


class GetUpdates(Eager):
    """Standalone Keras and the old tf.keras, which take gradients of a loss."""

    def __init__(self, mode, ours):
        harness.clear_session(mode.module)
        self.K = mode.module.backend
        super(GetUpdates, self).__init__(mode, ours)

    def make(self, rule="SGD", *args, **keywords):
        if not self.ours and "learning_rate" in keywords and "lr" in _arguments(self.rule(rule)):
            keywords["lr"] = keywords.pop("learning_rate")  # Keras before 2.3
        return super(GetUpdates, self).make(rule, *args, **keywords)

    def new_variable(self, value, **keywords):
        return self.K.variable(value, dtype=str(value.dtype), **keywords)

    def symbolic(self, call):
        """Calls a function in Keras's graph, in which its functions are built."""
        return getattr(self.K, "symbolic", lambda function: function)(call)()

    def loss(self, variable=None):
        return self.symbolic(super(GetUpdates, self).loss(variable))

    def step(self, optimizer, variable=None, grad=None):
        variable = self.w if variable is None else variable
        grad = GRAD if grad is None else grad
        self.updates(optimizer, lambda: self.K.sum(variable * self.tf.constant(grad)), [variable])
        self.expected = np.array(self.read(self.w))

    def updates(self, optimizer, loss, params, **names):
        """Builds the updates of `loss()` and runs them once."""

        def build():
            value = loss() if callable(loss) else loss
            updates = optimizer.get_updates(loss=value, params=params)
            return self.K.function([self.K.placeholder((1,))], [value], updates=updates)

        self.symbolic(build)([np.zeros(1)])

    def read(self, variable):
        return self.K.get_value(variable)


class Keras3(World):
    def __init__(self, mode, ours):
        import keras

        self.keras = keras
        super(Keras3, self).__init__(mode, ours)

    def new_variable(self, value, **keywords):
        keywords.setdefault("trainable", value.dtype.kind == "f")
        return self.keras.Variable(value, dtype=str(value.dtype), **keywords)

    def tensor(self, value, dtype=None):
        return self.keras.ops.convert_to_tensor(np.array(value), dtype)

    def slices(self, values, ids, shape=None):
        import tensorflow as tf

        ids = tf.zeros([0], "int64") if _empty(ids) else tf.constant(ids)
        return tf.IndexedSlices(tf.constant(values), ids, None if shape is None else tf.constant(shape))

    def read(self, variable):
        return np.array(self.keras.ops.convert_to_numpy(variable.value if hasattr(variable, "path") else variable))


def _empty(ids):
    return isinstance(ids, list) and not ids


def _for_train(name, args, keywords):
    """Returns a call in the names of tf.train."""
    if name == "SGD" and set(keywords) & {"momentum", "nesterov"}:
        name = "Momentum"
    return _TRAIN_CLASSES[name], args, {_TRAIN_NAMES.get(key, key): value for key, value in keywords.items()}


def _arguments(stock):
    return stock.__init__.__code__.co_varnames[: stock.__init__.__code__.co_argcount]


def _arrays(ways):
    return [Mode("numpy", "arrays", np, None, Arrays, False, True)]


def modes():
    """Returns the modes of this environment."""
    found = []
    for way in harness.all_ways():
        if "function" in way.name or "jit" in way.name:
            continue  # the same checks as in eager mode
        kind = {
            harness.ArraysRun: Arrays, harness.TrainRefRun: RefGraph, harness.TrainResourceRun: Graph,
            harness.V2SessionRun: Graph, harness.EagerRun: Eager,
        }.get(way.run)  # fmt: skip
        if kind is None:
            kind = Keras3 if way.target == "keras3" else GetUpdates
        graph = issubclass(kind, Graph) or kind is GetUpdates
        found.append(Mode(way.name, way.target, way.module, way.stock, kind, graph, way.sparse))
    return found


MODES = modes()

# Calls that abort the process on stock: (in the call's name, in the mode's name).
ABORTS = [
    # tf.train casts its rate to the gradient's dtype, and the kernel reads a variable of that dtype.
    (re.compile("gradient is (a )?(NumPy )?(complex|float64|half|int|bool)|(complex|int|bool) rows"), "tf_train"),
    (re.compile("a variable is (text|of )"), "tf_train"),
]


class Aborted(Exception):
    """Stands for a stock optimizer that aborts the process."""


# error: what was raised, or None; value: the numbers that the call returned; changed: whether an error of ours left
# another w behind; by_caller: whether the error was raised in the call's own code.
Outcome = namedtuple("Outcome", "error value changed by_caller")


def outcome(call, mode, ours):
    """Makes a call and returns its `Outcome`: the error or None, the numbers that it returned, whether w changed."""
    if not ours and any(name.search(call.name) and mode.name.startswith(prefix) for name, prefix in ABORTS):
        return Outcome(Aborted(), None, False, False)
    world = mode.kind(mode, ours)
    error = value = None
    by_caller = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with world.inside():
            try:
                value = call.function(world)
            except Exception as raised:
                error = raised
                place = traceback.extract_tb(sys.exc_info()[2])[-1][0]
                by_caller = os.path.basename(place) in ("calls.py", "call_worlds.py")
            changed = isinstance(error, EverstepError) and not world.unchanged()
    if getattr(world, "session", None) is not None:
        world.session.close()
    return Outcome(error, value if isinstance(value, list) else None, changed, by_caller)


def judge(call, stock, ours):
    """Returns how our outcome of a call compares with stock's. `stock` is None where there is no stock.

    ours: we raise an everstep error. same: Python raises at the call itself (arguments that do not fit the signature,
    an error in the caller's own function), or both raise the same class, with the same message or when the graph runs.
    taken: both take it. silent: stock raises and we do not. foreign: we raise what stock does not. refused: stock takes
    a right call and we do not. differs: both take it, with other numbers. beyond: we take what stock does not.
    """
    if ours.error is None:
        if stock is None:
            return "taken" if call.right else "silent"
        if stock.error is not None:
            return "beyond" if call.right else "silent"
        return "taken" if _agree(stock.value, ours.value) else "differs"
    if call.right and (stock is None or stock.error is None):
        return "refused"
    if isinstance(ours.error, EverstepError):
        return "ours"
    if ours.by_caller:
        return "same"
    if stock is not None and stock.error is not None and _is_same(stock.error, ours.error):
        return "same"
    return "foreign"


def _is_same(stock, ours):
    if type(stock) is not type(ours):
        return False
    at_run_time = hasattr(ours, "error_code") and hasattr(ours, "op")  # an OpError of TensorFlow
    return at_run_time or _plain(stock) == _plain(ours)


def _plain(error):
    """Returns an error's message without the parts that differ from call to call."""
    text = re.sub(r"0x[0-9a-f]+|\d+|<class '[^']*'>|\w+\.(?=\w+\(\) )", "#", str(error))
    return re.sub(r"\w*(SGD|Adam|GradientDescent|Momentum|Optimizer)\w*", "OPTIMIZER", text)


def _agree(stock, ours):
    if stock is None or ours is None:
        return True
    return all(np.allclose(one, other, rtol=1e-5, atol=1e-5, equal_nan=True) for one, other in zip(stock, ours))
