"""A table of wrong calls. Each raises an everstep error that says what is needed, and changes no variable.

`pytest -s tests/test_bad_input.py` prints the table.
"""
from __future__ import absolute_import, division, print_function

import contextlib
import importlib
import json
from collections import namedtuple

import numpy as np
import pytest

import everstep
from everstep import errors
from everstep.compat.targets import detect
from everstep.optimizers import SGD, AdagradDecay, Adam

START = np.arange(12, dtype="float32").reshape(4, 3) + 1
GRAD = np.ones((4, 3), "float32")


# Worlds: each kind of variable that each target trains here, and how to make a call there.


class World(object):
    """A variable `w` with the value START, and the calls that train it."""

    def __init__(self, module):
        self.module = module
        self.w = self.variable(START)

    @contextlib.contextmanager
    def inside(self):
        yield

    def array(self, value):
        return np.array(value)

    def apply(self, pairs, definition=None, **native):
        return (definition or SGD(0.5)).bind(self.module, **native).apply_gradients(pairs)

    def foreign_variable(self):
        return np.array(START)

    def tensor(self, value):
        """Returns a tensor of the framework that this module computes with."""
        import tensorflow

        return tensorflow.constant(value)


class Arrays(World):
    def variable(self, value):
        return np.array(value)

    def value(self):
        return self.w

    def slices(self, values, indices):
        return everstep.IndexedSlices(np.array(values), np.array(indices))

    def foreign_variable(self):
        return [1.0, 2.0]


class Eager(World):
    def __init__(self, module):
        import tensorflow

        self.tf = tensorflow
        super(Eager, self).__init__(module)

    def variable(self, value):
        return self.tf.Variable(value)

    def array(self, value):
        return self.tf.constant(value)

    def value(self):
        return self.w.numpy()

    def slices(self, values, indices):
        return self.tf.IndexedSlices(self.tf.constant(values), self.tf.constant(indices))


class Graph(World):
    """A graph and a session. Runs the result even of a call that should fail, so that a change would be seen."""

    resource = True

    def __init__(self, module):
        import tensorflow

        self.tf = getattr(getattr(tensorflow, "compat", None), "v1", None) or tensorflow
        self.graph = self.tf.Graph()
        self.count = 0
        with self.inside():
            super(Graph, self).__init__(module)
            self.session.run(self.tf.global_variables_initializer())

    @contextlib.contextmanager
    def inside(self):
        with self.graph.as_default():
            if not hasattr(self, "session"):
                self.session = self.tf.Session()
            with self.session.as_default():
                yield

    def variable(self, value):
        self.count += 1
        return self.tf.get_variable(
            "w{}".format(self.count), initializer=self.tf.constant(value), use_resource=self.resource
        )

    def array(self, value):
        return self.tf.constant(value)

    def value(self):
        return self.session.run(self.w)

    def slices(self, values, indices):
        return self.tf.IndexedSlices(self.tf.constant(values), self.tf.constant(indices))

    def apply(self, pairs, definition=None, **native):
        operation = super(Graph, self).apply(pairs, definition, **native)
        self.session.run(self.tf.global_variables_initializer())
        self.session.run(operation)


class Keras3(World):
    def variable(self, value):
        return self.module.Variable(value, dtype=str(value.dtype), trainable=value.dtype.kind == "f")

    def array(self, value):
        return self.module.ops.convert_to_tensor(np.array(value))

    tensor = array

    def value(self):
        return self.module.ops.convert_to_numpy(self.w)

    def slices(self, values, indices):
        import tensorflow

        return tensorflow.IndexedSlices(self.array(values), self.array(indices))


class RefGraph(Graph):
    resource = False


class Function(World):
    """Standalone Keras and the old tf.keras, which take gradients of a loss."""

    def variable(self, value):
        return self.module.backend.variable(value)

    def value(self):
        return self.module.backend.get_value(self.w)

    def updates(self, loss, params, definition=None, **native):
        keras = self.module.backend
        updates = (definition or SGD(0.5)).bind(self.module, **native).get_updates(loss=loss, params=params)
        keras.function([keras.placeholder((1,))], [loss], updates=updates)([np.zeros(1)])


def worlds():
    """Returns {name: (class, module)}."""
    worlds, bases = {}, set()
    for name, module in detect.known_modules():
        try:
            known = module and detect.find(module)
        except errors.TargetError:
            continue
        if not known or known.base in bases:
            continue
        bases.add(known.base)
        worlds.update(worlds_of(known.target.name, name, module))
    return worlds


def worlds_of(target, name, module):
    if target == "arrays":
        return {"numpy": (Arrays, module)}
    if target == "get_updates":
        return {"get_updates " + name: (Function, module)}
    if target == "keras3":
        keras = importlib.import_module("keras")
        return {"keras3 " + keras.backend.backend(): (Keras3, keras)}
    if target == "update_step":
        return {"update_step eager": (Eager, module)}
    import tensorflow as tf

    worlds = {target + " graph": (Graph, module)}
    if target == "tf_train":
        worlds["tf_train ref"] = RefGraph, module
    if getattr(tf, "executing_eagerly", lambda: False)():
        worlds[target + " eager"] = Eager, module
    return worlds


WORLDS = worlds()


V2 = [module for name, (_, module) in WORLDS.items() if name.startswith("optimizer_v2")]


# The table


Case = namedtuple("Case", "name worlds call error needle")
ONCE = ("numpy",)  # cases that do not depend on the target
NEW_STYLE = ("update_step", "keras3")  # one optimizer trains one list of variables
STEPS = ("numpy", "tf_train", "optimizer_v2") + NEW_STYLE
SLICED = ("numpy", "tf_train", "optimizer_v2", "update_step", "keras3 tensorflow")  # targets that take sparse gradients
ALL = STEPS + ("get_updates",)
KERAS = ("optimizer_v2", "get_updates") + NEW_STYLE
SETTABLE = ("numpy",) + KERAS  # on tf_train hypers are constants of the graph


def bind(definition, **native):
    return lambda world: definition().bind(world.module, **native)


def steps(pairs, definition=None):
    return lambda world: world.apply(pairs(world), definition and definition())


def sets(definition, name, value):
    def call(world):
        optimizer = definition().bind(world.module)
        setattr(optimizer, name, value)

    return call


def reads_slot(name):
    return lambda world: Adam().bind(world.module).get_slot(world.w, name)


def trains(definition):
    def call(world):
        if isinstance(world, Function):
            K = world.module.backend
            symbolic = getattr(K, "symbolic", lambda function: function)  # from Keras 2.3 on
            symbolic(lambda: world.updates(K.sum(world.w), [world.w], definition()))()
        world.apply([(world.array(GRAD), world.w)], definition())

    return call


def twice(world):
    optimizer = everstep.accumulate(SGD(), 2).bind(world.module)
    other = world.variable(START[0])
    optimizer.apply_gradients([(world.array(GRAD[0]), other)])
    optimizer.apply_gradients([(world.array(GRAD), world.w)])


def another_variable(world):
    optimizer = SGD().bind(world.module)
    optimizer.build([world.variable(START)])
    optimizer.apply_gradients([(world.array(GRAD), world.w)])


def in_a_graph(call):
    def called(world):
        import tensorflow

        with tensorflow.Graph().as_default():
            call(world)

    return called


def other_weights(world):
    other = SGD().bind(world.module)
    other.apply_gradients([(world.array(GRAD), world.variable(START))])
    optimizer = Adam().bind(world.module)
    optimizer.build([world.w])
    variables = other.variables() if callable(other.variables) else other.variables  # a method in TF 2.11
    optimizer.set_weights([variable.numpy() for variable in variables])


def restored(breaks):
    def call(world):
        optimizer, weights = Adam().bind(np), np.array(START)
        optimizer.apply_gradients([(GRAD, weights)])
        state = everstep.capture(optimizer, [weights])
        breaks(state)
        everstep.restore(Adam().bind(np), state, [world.w])

    return call


CASES = [
    # Modules to bind to
    Case("bind(None)", ONCE, lambda w: Adam().bind(None), errors.TargetError, "bind takes the module you train with"),
    Case(
        'bind("tf.keras")',
        ONCE,
        lambda w: Adam().bind("tf.keras"),
        errors.TargetError,
        "bind takes the module.*'tf.keras'",
    ),
    Case(
        "bind(json)",
        ONCE,
        lambda w: Adam().bind(json),
        errors.TargetError,
        "json speaks no optimizer API.*Looked for: .*get_updates",
    ),
    Case(
        "native_class(json)",
        ONCE,
        lambda w: Adam.native_class(json),
        errors.TargetError,
        "What works: .*tf.keras",
    ),
    Case(
        "custom_objects(json)",
        ONCE,
        lambda w: everstep.custom_objects(json),
        errors.TargetError,
        "speaks no optimizer API",
    ),
    Case(
        "bind(tensorflow)",
        ("tf_train",),
        lambda w: Adam().bind(__import__("tensorflow")),
        errors.TargetError,
        "tf.compat.v1.train",
    ),
    Case(
        "bind(an optimizer)",
        STEPS,
        lambda w: Adam().bind(SGD().bind(w.module)),
        errors.TargetError,
        "bind takes the module",
    ),
    Case(
        "bind(a class)",
        ALL,
        lambda w: Adam().bind(SGD.native_class(w.module)),
        errors.TargetError,
        "bind takes the module",
    ),
    # Arguments of definitions
    Case('Adam("0.1")', ONCE, lambda w: Adam("0.1"), errors.HyperTypeError, "Adam.learning_rate takes a number.*'0.1'"),
    Case("Adam(None)", ONCE, lambda w: Adam(None), errors.HyperTypeError, "takes a number"),
    Case("Adam([0.1])", ONCE, lambda w: Adam([0.1]), errors.HyperTypeError, "takes a number"),
    Case("Adam(True)", ONCE, lambda w: Adam(True), errors.HyperTypeError, "takes a number.*True"),
    Case("Adam(1j)", ONCE, lambda w: Adam(1j), errors.HyperTypeError, "takes a number"),
    Case(
        "Adam(an array)",
        ONCE,
        lambda w: Adam(np.ones(2)),
        errors.HyperTypeError,
        r"takes a scalar; got an array of shape \(2,\)",
    ),
    Case(
        "Adam(a schedule's class)",
        ONCE,
        lambda w: Adam(everstep.InverseTimeDecay),
        errors.HyperTypeError,
        "takes a number",
    ),
    Case("Adam(another definition)", ONCE, lambda w: Adam(SGD()), errors.HyperTypeError, "takes a number"),
    Case("Adam(NaN)", ONCE, lambda w: Adam(float("nan")), errors.HyperValueError, "must be finite; got nan"),
    Case("Adam(infinity)", ONCE, lambda w: Adam(np.inf), errors.HyperValueError, "must be finite; got inf"),
    Case("Adam(-1)", ONCE, lambda w: Adam(-1), errors.HyperValueError, "must be at least 0; got -1"),
    Case("Adam(beta_1=1.5)", ONCE, lambda w: Adam(beta_1=1.5), errors.HyperValueError, "Adam.beta_1 must be at most 1"),
    Case(
        'Adam(amsgrad="yes")', ONCE, lambda w: Adam(amsgrad="yes"), errors.HyperTypeError, "amsgrad takes True or False"
    ),
    Case(
        'SGD(sparse="row")', ONCE, lambda w: SGD(sparse="row"), errors.HyperValueError, "must be one of 'exact', 'rows'"
    ),
    Case(
        "AdagradDecay(decay_steps=0)", ONCE, lambda w: AdagradDecay(decay_steps=0), errors.HyperValueError, "at least 1"
    ),
    Case(
        "AdagradDecay(decay_steps=1.5)",
        ONCE,
        lambda w: AdagradDecay(decay_steps=1.5),
        errors.HyperTypeError,
        "a whole number",
    ),
    Case("Adam(lr=0.1)", ONCE, lambda w: Adam(lr=0.1), errors.DefinitionError, "called learning_rate on every target"),
    Case("Adam(decay=1e-4)", ONCE, lambda w: Adam(decay=1e-4), errors.DefinitionError, "everstep.InverseTimeDecay"),
    Case("six arguments too many", ONCE, lambda w: Adam(*range(11)), errors.DefinitionError, "at most 6 positional"),
    Case(
        "Adam(a vector tensor)",
        ("tf_train",) + NEW_STYLE,
        lambda w: Adam(w.array([0.1, 0.2])),
        errors.HyperTypeError,
        r"shape \(2,\)",
    ),
    Case(
        "Adam(a text tensor)", ("tf_train",), lambda w: Adam(w.array("0.1")), errors.HyperTypeError, "of dtype .*string"
    ),
    Case(
        "SGD(a native schedule)",
        ONCE,
        steps(lambda w: [(GRAD, w.w)], lambda: SGD(lambda step: 0.1)),
        errors.HyperTypeError,
        "without arguments",
    ),
    Case(
        "SGD(a callable that gives NaN)",
        ONCE,
        steps(lambda w: [(GRAD, w.w)], lambda: SGD(lambda: float("nan"))),
        errors.HyperValueError,
        "must be finite",
    ),
    Case(
        'accumulate("adam", 4)',
        ONCE,
        lambda w: everstep.accumulate("adam", 4),
        errors.HyperTypeError,
        "takes an everstep definition.*'adam'",
    ),
    Case(
        "accumulate(a bound optimizer)",
        ALL,
        lambda w: everstep.accumulate(SGD().bind(w.module), 4),
        errors.HyperTypeError,
        "everstep definition",
    ),
    Case("accumulate(SGD(), 0)", ONCE, lambda w: everstep.accumulate(SGD(), 0), errors.HyperValueError, "at least 1"),
    Case(
        "accumulate(accumulate(...))",
        ONCE,
        lambda w: everstep.accumulate(everstep.accumulate(SGD(), 2), 2),
        errors.DefinitionError,
        "multiply",
    ),
    Case(
        "definition.learning_rate = 0.1",
        ONCE,
        lambda w: setattr(Adam(), "learning_rate", 0.1),
        errors.HyperValueError,
        "replace",
    ),
    # Definitions passed in place of bound optimizers
    Case("Adam().minimize(loss)", ONCE, lambda w: Adam().minimize(None), errors.NotBoundError, r"Adam\(...\).bind"),
    Case(
        "Adam().apply_gradients(...)",
        ONCE,
        lambda w: Adam().apply_gradients([(GRAD, w.w)]),
        errors.NotBoundError,
        "bind",
    ),
    Case("Adam().get_updates(...)", ONCE, lambda w: Adam().get_updates(None, None), errors.NotBoundError, "bind"),
    Case("capture(Adam(), ...)", ONCE, lambda w: everstep.capture(Adam(), [w.w]), errors.UnsupportedError, "bind"),
    # Native keywords and config
    Case("bind(..., clipnrm=1)", ALL, bind(Adam, clipnrm=1.0), errors.DefinitionError, "clipnrm"),
    Case("bind(..., name='a b')", ALL, bind(Adam, name="a b"), errors.DefinitionError, "give another"),
    Case("bind(..., clipnorm='1')", KERAS, bind(Adam, clipnorm="1"), errors.HyperTypeError, "clipnorm takes a number"),
    Case("bind(..., clipvalue=-1)", KERAS, bind(Adam, clipvalue=-1.0), errors.HyperValueError, "clipvalue must be at"),
    Case(
        "bind(..., clipnorm=1, global_clipnorm=1)",
        NEW_STYLE,
        bind(Adam, clipnorm=1.0, global_clipnorm=1.0),
        errors.DefinitionError,
        "global_clipnorm",
    ),
    Case(
        "bind(..., weight_decay='1')", NEW_STYLE, bind(Adam, weight_decay="1"), errors.HyperTypeError, "takes a number"
    ),
    Case(
        "bind(..., use_ema=True, ema_momentum=2)",
        NEW_STYLE,
        bind(Adam, use_ema=True, ema_momentum=2.0),
        errors.DefinitionError,
        "ema_momentum",
    ),
    Case("bind(..., decay=1e-4)", ALL, bind(Adam, decay=1e-4), errors.DefinitionError, "everstep.InverseTimeDecay"),
    Case("bind(..., lr=0.1)", ALL, bind(Adam, lr=0.1), errors.DefinitionError, "learning_rate"),
    Case(
        "native_class(...)(beta=0.9)",
        ALL,
        lambda w: Adam.native_class(w.module)(beta=0.9),
        errors.DefinitionError,
        "beta",
    ),
    Case(
        "from_config of a stock config",  # of a name that no stock optimizer has
        SETTABLE,
        lambda w: everstep.optimizers.QHAdam.native_class(w.module).from_config({"learning_rate": 0.1}),
        errors.ConfigError,
        "no 'everstep' key.*it has learning_rate",
    ),
    Case(
        "from_config of an unknown class",
        ONCE,
        lambda w: everstep.Definition.from_config({"definition": "Foo"}),
        errors.ConfigError,
        "'Foo'",
    ),
    # Gradients and variables
    Case(
        "apply_gradients([])",
        ("numpy", "tf_train"),
        steps(lambda w: []),
        errors.GradientError,
        "no gradients.*an empty list",
    ),
    Case("only None gradients", STEPS, steps(lambda w: [(None, w.w)]), errors.GradientError, "no gradients provided"),
    Case("no pairs", STEPS, steps(lambda w: [w.array(GRAD)]), errors.GradientError, "pairs"),
    Case(
        "a gradient of the wrong shape",
        STEPS,
        steps(lambda w: [(w.array(GRAD[:2]), w.w)]),
        errors.GradientError,
        r"\(2, 3\).*needs \(4, 3\)",
    ),
    Case(
        "a gradient of the wrong rank",
        STEPS,
        steps(lambda w: [(w.array(GRAD[0]), w.w)]),
        errors.GradientError,
        r"\(3,\).*needs \(4, 3\)",
    ),
    Case(
        "sparse rows of the wrong width",
        SLICED,
        steps(lambda w: [(w.slices(GRAD[:2, :2], [0, 1]), w.w)]),
        errors.GradientError,
        r"rows.*\(2,\).*\(3,\)",
    ),
    Case("a text gradient", STEPS, steps(lambda w: [("gradient", w.w)]), errors.GradientError, "gradient"),
    Case(
        "sparse rows for a number",
        SLICED,
        steps(lambda w: [(w.slices(GRAD[0], [0, 1, 2]), w.variable(np.float32(1)))]),
        errors.GradientError,
        "no rows",
    ),
    Case(
        "a variable of whole numbers",
        STEPS,
        steps(lambda w: [(w.array(GRAD), w.variable(START.astype("int32")))]),
        errors.EverstepError,
        "float",
    ),
    Case(
        "no variable", STEPS, steps(lambda w: [(w.array(GRAD), w.foreign_variable())]), errors.VariableError, "trains"
    ),
    Case(
        "the second gradient is wrong",
        STEPS,
        steps(lambda w: [(w.array(GRAD), w.w), (w.array(GRAD[0]), w.variable(START))]),
        errors.GradientError,
        "needs",
    ),
    Case(
        "an everstep.IndexedSlices",
        ("tf_train", "optimizer_v2") + NEW_STYLE,
        steps(lambda w: [(everstep.IndexedSlices(GRAD[:1], [0]), w.w)]),
        errors.GradientError,
        "IndexedSlices",
    ),
    Case(
        "IndexedSlices with a row too high",
        ONCE,
        steps(lambda w: [(w.slices(GRAD[:2], [0, 4]), w.w)]),
        errors.GradientError,
        "4 rows has no row 4",
    ),
    Case(
        "IndexedSlices with a negative row",
        ONCE,
        steps(lambda w: [(w.slices(GRAD[:2], [0, -1]), w.w)]),
        errors.GradientError,
        "no row -1",
    ),
    Case(
        "IndexedSlices with two such rows",
        ONCE,
        steps(lambda w: [(w.slices(GRAD[:3], [5, 1, -1]), w.w)]),
        errors.GradientError,
        "no row 5",
    ),
    Case(
        "IndexedSlices with too few rows",
        ONCE,
        lambda w: everstep.IndexedSlices(GRAD, [0]),
        errors.GradientError,
        "1 indices needs as many rows",
    ),
    Case(
        "IndexedSlices with fractions",
        ONCE,
        lambda w: everstep.IndexedSlices(GRAD, [0.5] * 4),
        errors.GradientError,
        "whole numbers",
    ),
    Case("a complex gradient", ONCE, steps(lambda w: [(GRAD * 1j, w.w)]), errors.GradientError, "array of numbers"),
    Case("one array twice", ONCE, steps(lambda w: [(GRAD, w.w), (GRAD, w.w[:])]), errors.GradientError, "twice"),
    Case(
        "a tensor of a graph",
        ("tf_train graph",),
        lambda w: SGD().bind(np).apply_gradients([(w.array(GRAD), np.ones((4, 3)))]),
        errors.GradientError,
        "gradient",
    ),
    Case(
        "a tensor's rate on NumPy",
        ("tf_train graph",),
        lambda w: SGD(w.array(0.1)).bind(np),
        errors.HyperTypeError,
        "bind.numpy. cannot read a number",
    ),
    Case(
        "a TensorFlow variable on NumPy",
        ("tf_train",),
        lambda w: SGD().bind(np).apply_gradients([(GRAD, w.w)]),
        errors.VariableError,
        "NumPy arrays",
    ),
    Case(
        "a loss without the variable",
        ("get_updates",),
        lambda w: w.updates(w.module.backend.sum(w.variable(START)), [w.w]),
        errors.GradientError,
        "no gradient for",
    ),
    Case("variables in two calls", STEPS, twice, errors.UnsupportedError, "counts its calls"),
    Case(
        "another variable than those built on",
        NEW_STYLE,
        another_variable,
        errors.VariableError,
        "was built on other variables",
    ),
    Case(
        "a gradient too few",
        ("keras3",),
        lambda w: SGD().bind(w.module).apply([], [w.w]) or SGD().bind(w.module).apply([w.array(GRAD)], [w.w, w.w]),
        errors.GradientError,
        "1 gradients were given for 2 variables",
    ),
    Case(
        "gradients alone, before build",
        ("keras3",),
        lambda w: SGD().bind(w.module).apply([w.array(GRAD)]),
        errors.GradientError,
        "call build",
    ),
    Case(
        "bind in a graph of TF 1",
        ("update_step", "keras3 tensorflow"),
        in_a_graph(lambda w: SGD().bind(w.module)),
        errors.UnsupportedError,
        "tf.compat.v1.train",
    ),
    Case(
        'sparse="rows" where gradients are dense',
        ("keras3 jax", "keras3 torch"),
        bind(lambda: Adam(sparse="rows")),
        errors.UnsupportedError,
        "dense_ok=True",
    ),
    # Slots and hypers
    Case("get_slot before a step", ALL, reads_slot("m"), errors.SlotError, "has no slot 'm'.* it has m, v once"),
    Case("get_slot of an unknown slot", ALL, reads_slot("momentum"), errors.SlotError, "has no slot 'momentum'"),
    Case(
        "learning_rate = NaN",
        SETTABLE,
        sets(SGD, "learning_rate", float("nan")),
        errors.HyperValueError,
        "finite",
    ),
    Case(
        'lr = "0.1"',
        SETTABLE,
        sets(SGD, "lr", "0.1"),
        errors.HyperTypeError,
        "takes a number",
    ),
    Case(
        "learning_rate = 0.1 in a graph",
        ("tf_train",),
        sets(SGD, "learning_rate", 0.1),
        errors.HyperValueError,
        "constant of the graph",
    ),
    Case(
        "setting a callable hyper",
        SETTABLE,
        sets(lambda: SGD(lambda: 0.1), "lr", 0.1),
        errors.HyperValueError,
        "given as a callable",
    ),
    Case(
        "setting a scheduled hyper",
        SETTABLE,
        sets(lambda: SGD(everstep.InverseTimeDecay()), "lr", 0.1),
        errors.HyperValueError,
        "everstep schedule",
    ),
    Case(
        "setting a hyper given as a tensor",
        KERAS,
        lambda w: sets(lambda: SGD(w.tensor(0.1)), "lr", 0.1)(w),
        errors.HyperValueError,
        "given as a tensor",
    ),
    Case(
        "momentum = 0.9 where there is no slot",
        SETTABLE,
        sets(SGD, "momentum", 0.9),
        errors.HyperValueError,
        "without the slot velocity",
    ),
    # State
    Case(
        "set_weights before build",  # Keras 3 stores them until then, because its HDF5 loader sets them first
        ("update_step",),
        lambda w: SGD().bind(w.module).set_weights([]),
        errors.SlotError,
        "call build",
    ),
    Case(
        "set_weights of another optimizer",
        NEW_STYLE,
        other_weights,
        errors.SlotError,
        "written by another optimizer",
    ),
    Case(
        "restore with a slot less",
        ONCE,
        restored(lambda state: state.slots["0"].pop("v")),
        errors.StateError,
        "slots of 0 m; Adam needs m, v",
    ),
    Case(
        "restore of another shape",
        ONCE,
        restored(lambda state: state.slots["0"].update(m=np.ones(3))),
        errors.StateError,
        r"0/m.*\(3,\)",
    ),
    Case(
        "restore of other variables",
        ONCE,
        restored(lambda state: state.slots.update({"1": {}})),
        errors.StateError,
        "variables 0, 1",
    ),
    Case(
        "capture of one array",
        ONCE,
        lambda w: everstep.capture(SGD().bind(np), w.w),
        errors.VariableError,
        "a list of arrays",
    ),
    # Kinds of variables
    # Callables
    Case("rate = lambda: None", ALL, trains(lambda: SGD(lambda: None)), errors.HyperTypeError, "number"),
    Case("rate = lambda: text", ALL, trains(lambda: SGD(lambda: "0.1")), errors.HyperTypeError, "number"),
    Case(
        "rate = lambda: vector",
        ALL,
        trains(lambda: SGD(lambda: np.array([0.1, 0.2], "float32"))),
        errors.HyperTypeError,
        "scalar",
    ),
    Case("momentum = lambda: {}", ALL, trains(lambda: SGD(0.1, lambda: {})), errors.HyperTypeError, "number"),
    Case(
        "a ref variable for OptimizerV2",
        ("ref and v2",),
        lambda w: SGD().bind(V2[0]).apply_gradients([(w.array(GRAD), w.w)]),
        errors.VariableError,
        "use_resource=True",
    ),
]


def runs():
    """Returns every (case, name of a world) of this environment."""
    for case in CASES:
        for name in sorted(WORLDS):
            if {name, name.split(" ")[0]}.intersection(case.worlds):
                yield case, name
            elif case.worlds == ("ref and v2",) and name == "tf_train ref" and V2:
                yield case, name


TABLE = []


@pytest.fixture(scope="module", autouse=True)
def printed_table():
    yield
    widths = [max([len(row[column]) for row in TABLE] or [0]) for column in range(3)]
    print("\n" + "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths + [0])) for row in TABLE))


def test_the_table_is_long_enough():
    assert len({case.name for case in CASES}) == len(CASES) >= 60
    assert len({case.name for case, _ in runs()}) >= 30


@pytest.mark.parametrize("case, name", [pytest.param(*run, id="{}-{}".format(run[0].name, run[1])) for run in runs()])
def test_a_wrong_call(case, name):
    kind, module = WORLDS[name]
    world = kind(module)
    with world.inside():
        with pytest.raises(case.error, match=case.needle) as caught:
            case.call(world)
        assert isinstance(caught.value, errors.EverstepError)
        assert (world.value() == START).all()
    message = str(caught.value)
    TABLE.append(
        (case.name, name, type(caught.value).__name__, message if len(message) < 100 else message[:97] + "...")
    )


MODELS = {name: module for name, module in detect.known_modules() if hasattr(module, "Sequential")}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_definition_given_to_compile_says_that_it_must_be_bound(name):
    """Keras raises the error, and prints the object. The object's repr is ours."""
    module = MODELS[name]
    model = module.Sequential([module.layers.Dense(1, input_shape=(2,))])
    with pytest.raises(Exception, match=r"bind\(module\) makes an optimizer of it"):
        model.compile(Adam(), "mse")
