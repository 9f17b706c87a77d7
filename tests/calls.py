"""Wrong calls, and right but unusual ones, each written once for stock and ours, with the ways in which it is made.

A call gets a `Side` of call_worlds.py. `wrong(name, where, function)` adds one that stock refuses, `right` one that
stock takes, and `ours` a wrong one of everstep alone. `where` names targets, "tf_train keras3", or ways, "only tf_train
ref", and after a "+" conditions: "graph", "eager", "sparse", "tf", "not torch". test_calls.py makes them.
"""

from __future__ import absolute_import, division, print_function

import collections
import fractions
import functools
import json
import os
import shutil
import sys
import tempfile
from collections import OrderedDict

import numpy as np

import everstep
import harness
from call_worlds import GRAD, START, WAYS, Side
from everstep.errors import (
    ConfigError,
    DefinitionError,
    EverstepError,
    GradientError,
    HyperTypeError,
    HyperValueError,
    NotBoundError,
    RuleError,
    SlotError,
    TargetError,
    UnsupportedError,
    VariableError,
)  # fmt: skip
from everstep.optimizers import SGD, AdagradDecay, Adam

# match: what our message says; error: its class, None if Python's or TensorFlow's own error does in some ways
Call = collections.namedtuple("Call", "name where function right has_stock match error")

CALLS = []

ALL = "numpy tf_train optimizer_v2 get_updates update_step keras3"
APPLY = "numpy tf_train optimizer_v2 update_step keras3"  # have apply_gradients
NATIVE_APPLY = "tf_train optimizer_v2 update_step keras3"
NATIVE = "tf_train optimizer_v2 get_updates update_step keras3"
KERAS = "optimizer_v2 get_updates update_step keras3"
SETTABLE = "numpy optimizer_v2 get_updates update_step keras3"  # on tf_train hypers are constants of the graph
MINIMIZE = "tf_train optimizer_v2 update_step"
TENSORFLOW = "tf_train optimizer_v2 update_step keras3+tf"
NEW_STYLE = "update_step keras3"  # one optimizer trains one list of variables


def add(name, where, function=None, match="", error=None, right=False, has_stock=True):
    """Adds a call; without a function it is a decorator."""
    if function is None:
        return lambda function: add(name, where, function, match, error, right, has_stock)
    CALLS.append(Call(name, where, function, right, has_stock, match, error))
    return function


wrong, right = add, functools.partial(add, right=True)


def each(add, name, where, call, values):
    """Adds a call for each (label, value) and what else `add` takes; `call(value)` makes it."""
    for value in values:
        add(name.format(value[0]), where, call(value[1]), *value[2:])


def ours(name, where, function=None, match="", error=EverstepError):
    return add(name, where, function, match, error, has_stock=False)


def applies(call, way):
    targets, _, conditions = call.where.partition("+")
    graph = harness.in_graph(way)
    facts = {"graph": graph, "eager": not graph, "sparse": way.sparse, "not torch": "torch" not in way.name,
             "tf": way.target != "keras3" or "tensorflow" in way.name}  # fmt: skip
    if targets.startswith("only "):
        fits = way.name in targets[len("only ") :].split(", ")
    else:
        fits = (way.name if way.target == "arrays" else way.target) in targets.split()
    return fits and all(facts[each] for each in conditions.split("+") if each)


def cells():
    """Returns every (call, way) of this environment."""
    return [(call, way) for call in CALLS for way in WAYS if applies(call, way)]


class Odd(object):
    def __repr__(self):
        return "<odd>"


class Rate(object):
    def __call__(self):
        return 0.25

    def method(self):
        return 0.25


def raises():
    raise ZeroDivisionError("the user's own error")


# Hypers: (label, value, targets or None for all). A value that is a `From` is made in the world.


class From(object):
    def __init__(self, make):
        self.make = make


def given(world, value):
    return value.make(world) if isinstance(value, From) else value


# (what the message says, values)
WRONG_NUMBERS = [
    ("(takes|set to) a number|without arguments", [
        ("None", None), ("a text", "0.1"), ("a word", "fast"), ("bytes", b"0.1"), ("unicode", u"0.1"),
        ("an empty text", ""), ("a list", [0.1]), ("an empty list", []), ("a tuple", (0.1, 0.2)),
        ("a dictionary", {"rate": 0.1}), ("a set", {0.1}), ("an object", Odd()), ("a class", Odd), ("a type", float),
        ("a generator", (rate for rate in [0.1])), ("a range", range(2)), ("a slice", slice(1)), ("Ellipsis", Ellipsis),
        ("a module", np), ("complex", 0.1 + 1j), ("NumPy complex", np.complex64(1j)),
        ("an array of text", np.array("0.1")), ("an array of objects", np.array(None, object)),
        ("a date", np.datetime64("2020-01-01")), ("a definition", SGD()),
        ("a schedule's class", everstep.InverseTimeDecay),
        ("a function of one argument", lambda step: 0.1), ("a function that gives None", lambda: None),
        ("a function that gives text", lambda: "0.1"),
        ("a function that gives an object", lambda: Odd()), ("a function that gives a dictionary", lambda: {}),
        ("a function that gives complex", lambda: 1j), ("a function that gives a function", lambda: lambda: 0.1),
    ]),
    ("scalar|number", [
        ("a vector", np.ones(2, "float32")), ("a vector of one", np.ones(1, "float32")), ("a matrix", np.ones((2, 2))),
        ("an empty array", np.ones(0)), ("a function that gives a vector", lambda: np.ones(2, "float32")),
        ("a function that gives a list", lambda: [0.1, 0.2]),
    ]),
    ("must be", [
        ("NaN", float("nan")), ("infinity", float("inf")), ("-infinity", np.float32("-inf")),
        ("a huge int", 10**400), ("a function that gives NaN", lambda: float("nan")),
    ]),
]  # fmt: skip
WRONG_HYPERS = [(label, value, ALL, match) for match, values in WRONG_NUMBERS for label, value in values] + [
    ("a vector tensor", From(lambda w: w.tensor(np.ones(2, "float32"))), NATIVE, r"shape \(2,\)"),
    ("a text tensor", From(lambda w: w.tensor("0.1")), TENSORFLOW, "string"),
    ("a bool tensor", From(lambda w: w.tensor(True)), NATIVE, "bool"),
    ("a complex tensor", From(lambda w: w.tensor(np.complex64(1j))), NATIVE, "complex64"),
    ("a vector variable", From(lambda w: w.variable(np.ones(2, "float32"))), NATIVE, r"shape \(2,\)"),
]

OPTIMIZER_OF = {"learning_rate": "SGD", "momentum": "SGD", "beta_1": "Adam", "epsilon": "Adam"}


def numbers_of(world, rule):
    """Returns w; None for Adam on get_updates, where stock reads its counter before or after it moves, at random."""
    return None if (rule, world.way.target) == ("Adam", "get_updates") else world.values()[:1]


def made_with(hyper, value):
    def call(world):
        keywords = {"learning_rate": 0.5, hyper: given(world, value)}
        world.step(world.make(OPTIMIZER_OF[hyper], **keywords))
        return numbers_of(world, OPTIMIZER_OF[hyper])

    return call


def each_hyper(add, values):
    """Adds a call for each value as the learning rate, and for some of them as another hyper."""
    some = ("momentum", values[::2]), ("beta_1", values[1::2]), ("epsilon", values[::3])
    for hyper, values_of_hyper in (("learning_rate", values),) + some:
        for each in values_of_hyper:
            add("{} is {}".format(hyper, each[0]), each[2], made_with(hyper, each[1]), *each[3:])


each_hyper(wrong, WRONG_HYPERS)
each(wrong, "{} is negative", ALL, lambda name: made_with(name, -0.5), [
    (name, name, "must be at least 0", HyperValueError) for name in ("momentum", "beta_1", "epsilon")])  # fmt: skip
wrong("momentum above 1", ALL, made_with("momentum", 1.5))
wrong("beta_1 above 1", ALL, made_with("beta_1", 1.5))
wrong("amsgrad is a text", "numpy " + KERAS, lambda w: w.step(w.make("Adam", amsgrad="yes")))
wrong("nesterov is None", "numpy " + KERAS, lambda w: w.step(w.make("SGD", momentum=0.9, nesterov=None)))
wrong("a function that raises", NATIVE, made_with("learning_rate", raises))

RIGHT_HYPERS = [(label, value, ALL) for label, value in [
    ("an int", 1), ("zero", 0), ("float32", np.float32(0.25)), ("float64", np.float64(0.25)),
    ("float16", np.float16(0.25)), ("a NumPy int", np.int64(1)), ("a 0-d array", np.array(0.25)),
    ("a 0-d float32 array", np.array(0.25, "float32")), ("a 0-d int array", np.array(1)),
    ("a fraction", fractions.Fraction(1, 4)), ("a bool", True), ("a function", lambda: 0.25),
    ("a function that gives an int", lambda: 1), ("a function that gives float32", lambda: np.float32(0.25)),
    ("a function that gives a 0-d array", lambda: np.array(0.25)), ("a partial", functools.partial(float, 0.25)),
    ("a callable object", Rate()), ("a bound method", Rate().method),
    ("a function with defaults", lambda scale=0.25: scale),
]] + [(label, From(make), NATIVE) for label, make in [
    ("a tensor", lambda w: w.tensor(0.25)), ("a float64 tensor", lambda w: w.tensor(np.float64(0.25))),
    ("an int tensor", lambda w: w.tensor(1)), ("a variable", lambda w: w.variable(np.float32(0.25))),
    ("a function that gives a tensor", lambda w: lambda: w.tensor(0.25)),
    ("a function that gives a variable", lambda w: functools.partial(lambda v: v, w.variable(np.float32(0.25)))),
]]  # fmt: skip
each_hyper(right, RIGHT_HYPERS)
right("learning_rate is negative", ALL, made_with("learning_rate", -0.5))  # some programs ascend so


# Setting a hyper later.


def set_to(value, name="learning_rate"):
    def call(world):
        optimizer = world.sgd()
        setattr(optimizer, name, given(world, value))
        world.step(optimizer)
        return world.values()[:1]

    return call


for label, value, where, match in WRONG_HYPERS[::3]:
    wrong("learning_rate set to " + label, where.replace("tf_train ", ""), set_to(value), match + "|takes a number")
wrong("lr set to a text", "numpy optimizer_v2", set_to("0.1", "lr"))
wrong("iterations set to a text", "optimizer_v2 update_step", set_to("1", "iterations"))
each(right, "learning_rate set to {}", "numpy optimizer_v2 update_step keras3", set_to, [
    ("an int", 1), ("float32", np.float32(0.25)), ("a 0-d array", np.array(0.25)), ("-0.5", -0.5)])  # fmt: skip
each(wrong, "learning_rate set to a tensor of {}", "optimizer_v2 update_step keras3",
     lambda value: set_to(From(lambda w: w.tensor(np.float32(value)))), [
         ("NaN", np.nan), ("many numbers", [0.5, 0.5])])  # fmt: skip
right("lr set", "numpy optimizer_v2", set_to(0.25, "lr"))
right("learning_rate set to a function", "optimizer_v2 keras3", set_to(lambda: 0.25))
right("learning_rate set to a tensor", "optimizer_v2 update_step keras3", set_to(From(lambda w: w.tensor(0.25))))


# Native keywords of the constructor.


def keywords(rule="SGD", **native):
    def call(world):
        values = {name: given(world, value) for name, value in native.items()}
        world.step(world.make(rule, **dict({"learning_rate": 0.5}, **values)))
        return world.values()[:1]

    return call


def keyword(name, rule="SGD", **more):
    return lambda value: keywords(rule, **dict(more, **{name: value}))


wrong("an unknown keyword", ALL, keywords(lerning_rate=0.1), "lerning_rate")
wrong("an unknown keyword beside right ones", ALL, keywords("Adam", beta_3=0.1), "beta_3")
wrong("an empty keyword", ALL, keywords(**{"": 1}))
wrong("too many positional arguments", ALL, lambda w: w.step(w.make("SGD", *([0.5] * 20))))
wrong("a hyper given twice", ALL, lambda w: w.step(w.make("SGD", 0.5, learning_rate=0.5)))
NAMED = "numpy tf_train optimizer_v2 update_step keras3"
each(wrong, "name is {}", NAMED, keyword("name"), [
    ("an int", 7), ("a list", ["sgd"]), ("an object", Odd()), ("with a space", "a b"), ("with a colon", "a:b"),
    ("a float", 0.5), ("a dictionary", {"name": "a"}), ("starting with a dash", "-a")])  # fmt: skip
BAD_BOUNDS = [
    ("a text", "1", "takes a number", HyperTypeError), ("a list", [1.0], "takes a", HyperTypeError),
    ("negative", -1.0, "must be at", HyperValueError), ("an object", Odd(), "takes a number", HyperTypeError),
    ("NaN", float("nan"), "must be", HyperValueError),
    ("a negative array", np.array(-1.0), "must be at", HyperValueError),
]  # fmt: skip
each(wrong, "clipnorm is {}", KERAS, keyword("clipnorm"), BAD_BOUNDS)
each(wrong, "clipvalue is {}", KERAS, keyword("clipvalue"), BAD_BOUNDS)
each(wrong, "global_clipnorm is {}", "optimizer_v2 " + NEW_STYLE, keyword("global_clipnorm"),
     [bound[:2] for bound in BAD_BOUNDS[:3]])  # fmt: skip
wrong("two clip bounds", NEW_STYLE, keywords(clipnorm=1.0, clipvalue=1.0))
wrong("two norms", NEW_STYLE, keywords(clipnorm=1.0, global_clipnorm=1.0), "global_clipnorm", DefinitionError)
wrong("clipnorm on tf.train", "tf_train", keywords(clipnorm=1.0), "clipnorm", DefinitionError)
wrong("clipnorm on NumPy", "numpy", keywords(clipnorm=1.0))
each(wrong, "decay is {}", "optimizer_v2 get_updates", keyword("decay"), [("negative", -1.0), ("a text", "1")])
each(wrong, "weight_decay is {}", NEW_STYLE, keyword("weight_decay"), [
    ("a text", "1", "takes a number", HyperTypeError), ("a list", [0.1])])  # fmt: skip
each(wrong, "ema_momentum is {}", NEW_STYLE, keyword("ema_momentum", use_ema=True), [
    ("above 1", 2.0, "ema_momentum", DefinitionError), ("a text", "x")])  # fmt: skip
each(wrong, "ema_overwrite_frequency is {}", NEW_STYLE, keyword("ema_overwrite_frequency", use_ema=True), [
    ("a fraction", 0.5), ("a text", "x")])  # fmt: skip
each(wrong, "gradient_accumulation_steps is {}", "keras3", keyword("gradient_accumulation_steps"), [
    ("1", 1), ("0", 0), ("negative", -2), ("a text", "2")])  # fmt: skip
wrong("loss_scale_factor is a text", "keras3", lambda w: w.make(loss_scale_factor="x").scale_loss(w.tensor(1.0)))
wrong("gradient_transformers is a number", "optimizer_v2", keywords(gradient_transformers=1))
wrong("gradient_aggregator is a number", "optimizer_v2", keywords(gradient_aggregator=1))


def each_name(rule, where, names):
    each(wrong, rule + "({}=)", where, lambda name: keywords(rule, **{name: 0.5}), [(n, n, n) for n in names.split()])


# `beta1` and `decay` are right on some APIs; there they are told their name here.
each_name("Adam", ALL, "eps betas alpha rho momentum nesterov initial_accumulator_value amsgard learningrate b1 eta")
each_name("Adam", "numpy " + KERAS, "beta1 beta2")
each_name("SGD", ALL, "beta_1 epsilon amsgrad")

right("name is None", NAMED, lambda w: w.step(w.make("SGD", 0.5, **({"name": None} if w.ours else {}))))
each(right, "name {}", NAMED, keyword("name"), [
    ("is unicode", u"trainer"), ("is a NumPy text", np.array(["trainer"])[0]), ("is long", "n" * 200)])  # fmt: skip
right("name has an underscore first", "optimizer_v2 update_step keras3", keywords(name="my_trainer"))
right("name has a dash and a dot", "tf_train optimizer_v2 update_step keras3", keywords(name="my-trainer.1"))
right("use_locking", "tf_train", keywords(use_locking=True))
right("use_locking is an int", "tf_train", keywords(use_locking=1))
RIGHT_BOUNDS = [("an int", 1), ("float32", np.float32(1)), ("a 0-d array", np.array(1.0))]
each(right, "clipnorm is {}", KERAS, keyword("clipnorm"), RIGHT_BOUNDS)
each(right, "clipvalue is {}", KERAS, keyword("clipvalue"), RIGHT_BOUNDS)
right("clipnorm is None", "optimizer_v2 update_step keras3", keywords(clipnorm=None))
right("clipnorm is a tensor", "optimizer_v2 update_step+eager", keywords(clipnorm=From(lambda w: w.tensor(1.0))))
right("clipnorm and clipvalue", "get_updates", keywords(clipnorm=1.0, clipvalue=0.1))
each(right, "weight_decay is {}", NEW_STYLE, keyword("weight_decay"), [
    ("an int", 0), ("float32", np.float32(0.1)), ("None", None)])  # fmt: skip
right("use_ema", NEW_STYLE, keywords(use_ema=True, ema_momentum=0.5))
right("use_ema is an int", NEW_STYLE, keywords(use_ema=1))
right("jit_compile", "update_step", keywords(jit_compile=False))
right("one positional argument", ALL, lambda w: w.step(w.make("SGD", 0.25)) or w.values())
right("two positional arguments", SETTABLE, lambda w: w.step(w.make("SGD", 0.25, 0.9)) or w.values())
right("four positional arguments", ALL,
      lambda w: w.step(w.make("Adam", 0.25, 0.9, 0.99, 1e-3)) or numbers_of(w, "Adam"))  # fmt: skip
right("no argument", SETTABLE, lambda w: w.step(w.make("SGD")) or w.values())
right("keywords with unicode names", ALL, lambda w: w.step(w.make("SGD", **{str("learning_rate"): 0.25})) or w.values())


# Pairs of apply_gradients.


def applied(pairs, *args, **native):
    def call(world):
        world.apply(world.sgd(), pairs(world), *args, **native)
        return world.values()[:1]

    return call


def good(w):
    return [(w.tensor(GRAD), w.w)]


each(wrong, "pairs {}", APPLY, applied, [
    ("are None", lambda w: None), ("are a number", lambda w: 3), ("are a text", lambda w: "pairs"),
    ("are an object", lambda w: Odd()), ("are one pair", lambda w: good(w)[0]), ("are a class", lambda w: dict),
    ("are gradients only", lambda w: [w.tensor(GRAD)], "pairs", GradientError),
    ("are a dictionary", lambda w: {"w": w.tensor(GRAD)}), ("of one", lambda w: [(w.tensor(GRAD),)]),
    ("of three", lambda w: [(w.tensor(GRAD), w.w, 1)]), ("that raise", lambda w: (raises() for _ in [0])),
    ("of None gradients only", lambda w: [(None, w.w)], "no gradients provided", GradientError)])  # fmt: skip
wrong("pairs are empty", "numpy tf_train", applied(lambda w: []), "no gradients.*an empty list", GradientError)
# Not on JAX, whose arrays never end when they are iterated over by index.
wrong("pairs are a variable", TENSORFLOW, applied(lambda w: w.w))
each(wrong, "a pair is {}", APPLY, lambda pair: applied(lambda w: [pair]), [
    ("None", None), ("empty", ()), ("a text of two", "ab"), ("a set", {1, 2})])  # fmt: skip
wrong("a pair is swapped", NATIVE_APPLY, applied(lambda w: [(w.w, w.tensor(GRAD))]))
wrong("no pairs given", APPLY, lambda w: w.sgd().apply_gradients())
wrong("an unknown keyword of apply_gradients", APPLY, applied(good, gobal_step=None))
wrong("too many arguments of apply_gradients", APPLY, applied(good, None, None, None, None, None, None))

each(right, "pairs are {}", APPLY, lambda change: applied(lambda w: change(good(w))), [
    ("a tuple", tuple), ("zip", lambda pairs: zip(*zip(*pairs))), ("a generator", lambda pairs: (p for p in pairs)),
    ("an iterator", iter), ("map", lambda pairs: map(tuple, pairs)), ("a deque", collections.deque),
    ("a dict view", lambda pairs: dict(enumerate(pairs)).values()), ("lists", lambda pairs: list(map(list, pairs))),
    ("named tuples", lambda pairs: [collections.namedtuple("Pair", "grad var")(*pair) for pair in pairs])])  # fmt: skip
right("some None gradients", APPLY, applied(lambda w: [(None, w.variable(START))] + good(w)))
right("pairs by keyword", APPLY, lambda w: w.run(w.sgd().apply_gradients(grads_and_vars=good(w))) and None)
right("empty pairs", "optimizer_v2", applied(lambda w: []))


# Gradients.


def gradient(make, start=None):
    """A step with one gradient for w, or for a new variable of the value `start`."""

    def call(world):
        variable = world.w if start is None else world.variable(start)
        world.apply(world.sgd(), [(make(world), variable)])
        return world.values()

    return call


def of_tensor(grad):
    return gradient(lambda w: w.tensor(grad))


def fixed(grad):
    return gradient(lambda w: grad)


each(wrong, "a gradient is {}", APPLY, fixed, [
    ("a text", "gradient", "gradient", GradientError), ("a dictionary", {"g": GRAD}), ("an object", Odd()),
    ("a word per element", np.full((4, 3), "x"), "list or array|array of numbers", GradientError), ("a class", Odd),
    ("a list of text", [["1", "2", "3"]] * 4, "list or array|array of numbers", GradientError),
    ("a function", lambda: GRAD), ("a set", {1.0}), ("a ragged list", [[1.0], [1.0, 2.0]]), ("an empty list", []),
    ("a list of None", [None]), ("a NumPy bool array", GRAD > 0), ("a NumPy array of fewer rows", GRAD[:2]),
    ("a NumPy complex array", GRAD.astype("complex64"), "complex|array of numbers", GradientError),
    ("a Python number", 1.0), ("a list of other shape", [1.0, 2.0])])  # fmt: skip
each(wrong, "a gradient is {}", APPLY, of_tensor, [
    ("of fewer rows", GRAD[:2], r"\(2, 3\).*needs \(4, 3\)", GradientError), ("of fewer columns", GRAD[:, :2]),
    ("of one row", GRAD[0], r"\(3,\).*needs \(4, 3\)", GradientError), ("of higher rank", GRAD[None]),
    ("transposed", GRAD.T.copy()), ("flat", GRAD.reshape(-1)), ("a scalar", np.float32(1)),
    ("empty", np.ones((0, 3), "float32")), ("bool", GRAD > 0, "bool|array of numbers", GradientError),
    ("complex", GRAD.astype("complex64"), "complex64|array of numbers", GradientError)])  # fmt: skip
wrong("a gradient is text tensor", TENSORFLOW, of_tensor([["x"] * 3] * 4), "string|str", GradientError)
wrong("a gradient is int", NATIVE_APPLY, of_tensor(GRAD.astype("int32")), "int32", GradientError)
for dtype in ("float64", "float16"):
    wrong("a gradient is " + dtype, "tf_train optimizer_v2 update_step", of_tensor(GRAD.astype(dtype)),
          dtype + "; the variable needs float32. Cast it", GradientError)  # fmt: skip


@wrong("a gradient of another graph", "tf_train optimizer_v2+graph", match="another graph", error=GradientError)
def _(w):
    with w.tf.Graph().as_default():
        grad = w.tf.constant(GRAD)
    w.apply(w.sgd(), [(grad, w.w)])


def of_two(make):
    """A step of which the second pair is wrong."""
    return lambda w: w.apply(w.sgd(), good(w) + [make(w)])


each(wrong, "the second {}", APPLY, of_two, [
    ("gradient is of another shape", lambda w: (w.tensor(GRAD[0]), w.variable(START)), "needs", GradientError),
    ("gradient is complex", lambda w: (GRAD * 1j, w.variable(START)), "complex|list or array|array of numbers",
     GradientError),
    ("variable is of whole numbers", lambda w: (w.tensor(GRAD), w.variable(START.astype("int32"))),
     "float|int32|other variables|all variables", EverstepError),
    ("variable is a text", lambda w: (w.tensor(GRAD), "b"), "", VariableError)])  # fmt: skip
wrong("the second variable is of another graph", "tf_train optimizer_v2+graph",
      of_two(lambda w: (w.tensor(GRAD), w.foreign_variable())), "another graph", VariableError)  # fmt: skip
wrong("the second gradient is of a row that is not there", APPLY + "+eager+sparse",
      of_two(lambda w: (w.rows(GRAD[:2], [-1, 0]), w.variable(START))), "of 4 rows has no row -1",
      GradientError)  # fmt: skip

each(right, "a gradient is {}", APPLY, fixed, [
    ("a NumPy array", GRAD), ("a list", GRAD.tolist()), ("a tuple", tuple(map(tuple, GRAD.tolist()))),
    ("a float64 array", GRAD.astype("float64")), ("an int64 array", (2 * GRAD).astype("int64")),
    ("a Fortran array", np.asfortranarray(GRAD)), ("a strided array", np.repeat(GRAD, 2, 0)[::2])])  # fmt: skip
each(right, "a gradient is {} for a scalar", APPLY, lambda grad: gradient(lambda w: grad, np.float32(2)), [
    ("a float", 0.5), ("an int", 1), ("a NumPy number", np.float32(0.5))])  # fmt: skip
right("a gradient is a masked array", "numpy", fixed(np.ma.array(GRAD)))
right("a gradient is a matrix", "numpy tf_train", gradient(lambda w: np.asmatrix(GRAD)))
# torch makes no tensor of a Keras variable.
right("a gradient is a variable", NATIVE_APPLY + "+not torch", gradient(lambda w: w.variable(GRAD)))
right("a gradient is the variable itself", NATIVE_APPLY + "+not torch", gradient(lambda w: w.w))
right("one gradient for two variables", APPLY, lambda w: (
    lambda grad: w.apply(w.sgd(), [(grad, w.w), (grad, w.variable(START))]))(w.tensor(GRAD)) and None)  # fmt: skip


def of_variable(value):
    return gradient(lambda w: w.tensor(np.ones_like(value)), value)


each(right, "a {}", APPLY, of_variable, [
    ("scalar variable", np.float32(2)), ("variable of no rows", np.ones((0, 3), "float32")),
    ("variable of four axes", np.ones((1, 2, 1, 2), "float32")), ("float16 variable", START.astype("float16")),
])  # fmt: skip
right("a float64 variable", "numpy tf_train optimizer_v2 update_step", of_variable(START.astype("float64")))
right("a complex variable", "optimizer_v2", of_variable(START.astype("complex64")))


# Sparse gradients.

SLICED = APPLY + "+sparse"


def _tf():
    import tensorflow as tf

    return tf


def by_adam(make):
    return lambda w: w.apply(w.make("Adam", 0.5), [(make(w), w.w)])


def of_rows(*parts):
    return gradient(lambda w: w.rows(*parts))


WRONG_IDS = [
    ("a negative id", (GRAD[:2], [-1, 0]), "4 rows has no row -1"), ("a very negative id", (GRAD[:1], [-5])),
    ("an id too high", (GRAD[:2], [0, 4]), "4 rows has no row 4"), ("an id far too high", (GRAD[:1], [2**31 - 1])),
    ("two such ids", (GRAD[:3], [5, 1, -1]), "no row 5|no row -1"),
    ("float ids", (GRAD[:2], [0.0, 1.0]), "float32; needed is int32|whole numbers", GradientError),
    ("text ids", (GRAD[:2], ["0", "1"])), ("bool ids", (GRAD[:2], [True, False])), ("a scalar id", (GRAD[0], 0)),
    ("ids of rank 2", (GRAD[:2], [[0], [1]]), "a vector; got shape|whole numbers", GradientError),
    ("more ids than rows", (GRAD[:1], [0, 1]), "one row for each|2 indices needs as many rows", GradientError),
    ("fewer ids than rows", (GRAD[:3], [0, 1]), "one row for each|2 indices needs as many rows", GradientError),
]  # fmt: skip
each(wrong, "sparse, {}", SLICED, lambda parts: of_rows(*parts), WRONG_IDS + [
    ("narrow rows", (GRAD[:2, :2], [0, 1]), r"rows.*\(2,\).*\(3,\)", GradientError),
    ("wide rows", (np.ones((2, 4), "float32"), [0, 1])), ("rows of rank 1", (GRAD[:2, 0], [0, 1])),
    ("rows of rank 3", (GRAD[:2, None], [0, 1])), ("a single number", (np.float32(1), [0])),
    ("complex rows", (GRAD[:2].astype("complex64"), [0, 1])), ("bool rows", (GRAD[:2] > 0, [0, 1])),
    ("text rows", ([["a"] * 3] * 2, [0, 1]))])  # fmt: skip
each(wrong, "sparse Adam, {}", SLICED, lambda parts: by_adam(lambda w: w.rows(*parts)), WRONG_IDS)
wrong("sparse, int rows", NATIVE_APPLY + "+sparse", of_rows(GRAD[:2].astype("int32"), [0, 1]))
wrong("sparse, for a scalar", SLICED, gradient(lambda w: w.rows(GRAD[0], [0, 1, 2]), np.float32(1)), "no rows",
      GradientError)  # fmt: skip
wrong("sparse, for a variable of no rows", SLICED,
      gradient(lambda w: w.rows(GRAD[:1], [0]), np.ones((0, 3), "float32")))  # fmt: skip
wrong("sparse of everstep on a framework", NATIVE_APPLY, gradient(lambda w: everstep.IndexedSlices(GRAD[:1], [0])),
      "IndexedSlices", GradientError)  # fmt: skip
wrong("a SparseTensor", TENSORFLOW, gradient(lambda w: _tf().SparseTensor([[0, 0]], [1.0], [4, 3])))

RIGHT_SLICES = [
    ("int32 ids", (GRAD[:2], np.array([0, 3], "int32"))), ("int64 ids", (GRAD[:2], np.array([0, 3], "int64"))),
    ("equal ids", (GRAD[:3], [1, 1, 2])), ("unordered ids", (GRAD[:3], [3, 0, 1])), ("one id", (GRAD[:1], [3])),
    ("all rows", (GRAD, [0, 1, 2, 3])), ("no ids", (np.ones((0, 3), "float32"), [])),
    ("more rows than the variable", (np.ones((6, 3), "float32"), [0, 0, 1, 2, 3, 3])),
    ("a shape", (GRAD[:2], [0, 1], (4, 3))),
]  # fmt: skip
each(right, "sparse, {}", SLICED, lambda parts: of_rows(*parts), RIGHT_SLICES)
each(right, "sparse Adam, {}", SLICED, lambda parts: by_adam(lambda w: w.rows(*parts)), RIGHT_SLICES)
right("sparse, NumPy rows and ids", TENSORFLOW + "+sparse",
      gradient(lambda w: _tf().IndexedSlices(GRAD[:2], np.array([0, 1]))))  # fmt: skip
right("sparse, Python ids", TENSORFLOW + "+sparse", gradient(lambda w: _tf().IndexedSlices(w.tensor(GRAD[:2]), [0, 1])))
right("sparse, for a vector", SLICED,
      gradient(lambda w: w.rows(np.ones(2, "float32"), [0, 2]), np.ones(3, "float32")))  # fmt: skip
right("sparse, empty, for a variable of no rows", SLICED,
      gradient(lambda w: w.rows(np.ones((0, 3), "float32"), []), np.ones((0, 3), "float32")))  # fmt: skip


# Variables.


def trained(make, grad=GRAD):
    return lambda w: w.apply(w.sgd(), [(w.tensor(grad), make(w))])


each(wrong, "a variable is {}", APPLY, trained, [
    ("None", lambda w: None), ("a number", lambda w: 1.0), ("a text", lambda w: "w"), ("a list", lambda w: [w.w]),
    ("an object", lambda w: Odd()), ("a class", lambda w: Odd), ("a function", lambda w: (lambda: w.w)),
    ("something else", lambda w: w.foreign_variable(), "trains|another graph", VariableError)])  # fmt: skip
wrong("a variable is a tensor", NATIVE_APPLY, trained(lambda w: w.tensor(START)))
wrong("a variable is an array", NATIVE_APPLY, trained(lambda w: START.copy()))
wrong("a variable is text", "tf_train optimizer_v2 update_step", trained(lambda w: w.variable([["x"] * 3] * 4)))
each(wrong, "a variable is of {}", APPLY, lambda dtype: trained(lambda w: w.variable(START.astype(dtype))), [
    ("int32", "int32", "float", EverstepError), ("int64", "int64"), ("bool", "bool")])  # fmt: skip
wrong("a variable twice", "numpy update_step keras3", applied(lambda w: 2 * good(w)), "twice")
wrong("a variable and a view of it", "numpy", applied(lambda w: [(GRAD, w.w), (GRAD, w.w[:])]), "twice", GradientError)


@wrong("a variable is read-only", "numpy", match="read-only", error=VariableError)
def _(w):
    w.w.setflags(write=False)
    try:
        w.apply(w.sgd(), good(w))
    finally:
        w.w.setflags(write=True)


IN_GRAPHS = "tf_train optimizer_v2+graph"


@wrong("a step in another graph", IN_GRAPHS)
def _(w):
    optimizer = w.sgd()
    with w.tf.Graph().as_default():
        w.apply(optimizer, good(w))


@wrong("a finished graph", IN_GRAPHS)
def _(w):
    optimizer = w.sgd()
    w.graph.finalize()
    try:
        optimizer.apply_gradients([(GRAD, w.w)])
    finally:
        w.graph._unsafe_unfinalize()


def run_in(make):
    def call(w):
        operation = w.sgd().apply_gradients(good(w))
        with make(w) as session:
            session.run(operation)

    return call


def closed(w):
    session = w.tf.Session(graph=w.graph)
    session.close()
    return session


each(wrong, "{}", IN_GRAPHS, run_in, [
    ("another session", lambda w: w.tf.Session(graph=w.tf.Graph())), ("a closed session", closed),
    ("a session without initial values", lambda w: w.tf.Session(graph=w.graph))])  # fmt: skip


@right("one optimizer in two graphs", "tf_train+graph")
def _(w):
    optimizer = w.sgd()
    for _ in range(2):
        with w.tf.Graph().as_default(), w.tf.Session() as session:
            variable = w.tf.get_variable("v", initializer=w.tf.constant(START), use_resource=w.resource)
            operation = optimizer.apply_gradients([(w.tensor(GRAD), variable)])
            session.run(w.tf.global_variables_initializer())
            session.run(operation)
            value = session.run(variable)
    return [value]


@right("two steps on one optimizer", APPLY)
def _(w):
    optimizer = w.sgd()
    if w.graph_mode:
        operations = [optimizer.apply_gradients(good(w))]
        with w.tf.control_dependencies(operations):
            operations.append(optimizer.apply_gradients(good(w)))
        w.run(operations)
    else:
        w.step(optimizer)
        w.step(optimizer)
    return w.values()


@right("two optimizers on one variable", APPLY)
def _(w):
    for _ in range(2):
        w.step(w.sgd())
    return w.values()


@right("a variable of unknown shape", "tf_train+graph")
def _(w):
    holder = w.tf.placeholder_with_default(w.tf.constant(START), None)
    variable = w.tf.Variable(holder, validate_shape=False, use_resource=w.resource)
    w.apply(w.sgd(), [(w.tensor(GRAD), variable)])
    return [w.read(variable)]


def within(scope):
    def call(w):
        optimizer = w.sgd()
        with scope(w):
            result = optimizer.apply_gradients(good(w))
        w.run(result)
        return w.values()

    return call


right("in a name scope", TENSORFLOW, within(lambda w: (w.tf or _tf()).name_scope("scope")))
right("in a variable scope", "tf_train+graph", within(lambda w: w.tf.variable_scope("scope")))
right("on a device", "tf_train optimizer_v2 update_step", within(lambda w: w.tf.device("/cpu:0")))
right("after control dependencies", IN_GRAPHS, within(lambda w: w.tf.control_dependencies([w.tf.no_op()])))


@right("a tf.function", "tf_train optimizer_v2 update_step keras3+eager+tf")
def _(w):
    optimizer = w.sgd()
    tf = _tf()
    function = tf.function(lambda grad: optimizer.apply_gradients([(grad, w.w)]) and None)
    function(tf.constant(GRAD))
    return w.values()


right("a gradient of unknown shape", IN_GRAPHS,
      gradient(lambda w: w.tf.placeholder_with_default(w.tf.constant(GRAD), None)))  # fmt: skip
right("ids of unknown shape", IN_GRAPHS, gradient(
    lambda w: w.tf.IndexedSlices(w.tf.constant(GRAD[:2]), w.tf.placeholder_with_default(w.tf.constant([0, 1]), None))
))  # fmt: skip


# global_step and name of apply_gradients.


def counted(make):
    return lambda w: w.apply(w.sgd(), good(w), global_step=make(w))


each(wrong, "global_step is {}", "tf_train", counted, [
    ("an int", lambda w: 3), ("a text", lambda w: "global_step"), ("a constant", lambda w: w.tf.constant(3)),
    ("an array", lambda w: np.array(3)), ("an object", lambda w: Odd()), ("True", lambda w: True),
    ("a list", lambda w: [0]), ("a variable of bools", lambda w: w.variable(True)),
    ("a text variable", lambda w: w.variable("x"))])  # fmt: skip
wrong("global_step is of another graph", "tf_train+graph", counted(lambda w: w.foreign_variable()))
each(right, "global_step is {}", "tf_train", lambda start: counted(lambda w: w.variable(start)), [
    ("of int32", np.array(0, "int32")), ("of int64", np.array(0, "int64")), ("of float32", np.array(0, "float32")),
    ("a vector", np.zeros(2, "int64"))])  # fmt: skip
right("global_step is the graph's", "tf_train+graph", counted(lambda w: w.tf.train.get_or_create_global_step()))


@right("global_step is a plain variable", "tf_train+graph")
def _(w):
    step = w.tf.Variable(0, name="global_step", trainable=False)
    w.apply(w.sgd(), good(w), global_step=step)
    return w.values() + [w.read(step)]


right("global_step is None", "tf_train", applied(good, None))
right("global_step and name by position", "tf_train", applied(good, None, "train"))
each(right, "name of the operation{}", "tf_train optimizer_v2", lambda name: applied(good, name=name), [
    ("", "train"), (" is None", None), (" is unicode", u"t")])  # fmt: skip
each(wrong, "name of the operation is {}", "tf_train optimizer_v2", lambda name: applied(good, name=name), [
    ("an int", 7), ("an object", Odd()), ("with a space", "a b")])  # fmt: skip
wrong("name of the operation has an underscore first", "tf_train+graph", applied(good, name="_train"))


@right("name of the operation has an underscore first, in a scope", "tf_train+graph")
def _(w):
    with w.tf.name_scope("scope"):
        w.run(w.sgd().apply_gradients(good(w), name="_train"))
    return w.values()


# minimize and compute_gradients.


def minimized(loss, **native):
    def call(world):
        keywords = {name: given(world, value) for name, value in native.items()}
        keywords.setdefault("var_list", [world.w])
        world.minimize(world.sgd(), loss(world), **keywords)
        return world.values()[:1]

    return call


def tensor_loss(w):
    loss = w.loss()
    return loss() if callable(loss) else loss


def with_loss(name, value):
    return minimized(lambda w: w.loss(), **{name: value})


def on(make):
    return with_loss("var_list", From(make))


each(wrong, "loss is {}", MINIMIZE, minimized, [
    ("None", lambda w: None), ("a number", lambda w: 1.0), ("a text", lambda w: "loss"), ("an object", lambda w: Odd()),
    ("an array", lambda w: np.float32(1)), ("a list", lambda w: [1.0]), ("a dictionary", lambda w: {"loss": 1.0}),
    ("without the variable", lambda w: w.loss(w.variable(START))), ("a constant", lambda w: w.tensor(1.0)),
])  # fmt: skip
each(wrong, "loss {}", MINIMIZE + "+eager", lambda loss: minimized(lambda w: loss), [
    ("gives None", lambda: None), ("gives a text", lambda: "x"), ("raises", raises),
    ("takes an argument", lambda batch: batch)])  # fmt: skip
wrong("loss is a tensor in eager code", MINIMIZE + "+eager", minimized(lambda w: w.loss()()))
wrong("loss is a function in a graph", "tf_train+graph", minimized(lambda w: lambda: w.loss()))
wrong("loss is an int tensor", IN_GRAPHS, minimized(lambda w: w.tf.cast(tensor_loss(w), "int32")))


@wrong("loss is of another graph", IN_GRAPHS)
def _(w):
    with w.tf.Graph().as_default():
        loss = w.tf.constant(1.0)
    w.minimize(w.sgd(), loss, var_list=[w.w])


each(wrong, "var_list is {}", MINIMIZE, on, [
    ("empty", lambda w: []), ("a number", lambda w: 3), ("a text", lambda w: "w"), ("a list of None", lambda w: [None]),
    ("a list of text", lambda w: ["w"]), ("a list of arrays", lambda w: [START]), ("an object", lambda w: Odd()),
    ("a list of tensors", lambda w: [w.tensor(START)]), ("a dictionary", lambda w: {"w": w.w}),
    ("nested", lambda w: [[w.w]]), ("an integer variable", lambda w: [w.variable(START.astype("int32"))]),
    ("of another graph", lambda w: [w.foreign_variable()])])  # fmt: skip
wrong("var_list is None in eager code", "optimizer_v2 update_step+eager", with_loss("var_list", None))
wrong("minimize without a loss", MINIMIZE, lambda w: w.sgd().minimize(var_list=[w.w]))
wrong("an unknown keyword of minimize", MINIMIZE, with_loss("variables", [1]))
each(wrong, "gate_gradients is {}", "tf_train", lambda gate: with_loss("gate_gradients", gate), [
    ("7", 7), ("a text", "x"), ("None", None)])  # fmt: skip
wrong("grad_loss of another shape", IN_GRAPHS, with_loss("grad_loss", From(lambda w: w.tensor(np.ones(3, "float32")))))
wrong("grad_loss is a text", IN_GRAPHS, with_loss("grad_loss", "x"))
wrong("aggregation_method is 77", "tf_train+graph",
      lambda w: w.minimize(w.sgd(), w.loss() + w.loss(), var_list=[w.w], aggregation_method=77))  # fmt: skip
wrong("compute_gradients of None", "tf_train", lambda w: w.sgd().compute_gradients(None, [w.w]))
wrong("compute_gradients of a text", "tf_train", lambda w: w.sgd().compute_gradients("x", [w.w]))
wrong("compute_gradients without a loss", "tf_train update_step", lambda w: w.sgd().compute_gradients())
wrong("get_gradients of None", "optimizer_v2 get_updates+graph", lambda w: w.sgd().get_gradients(None, [w.w]))
wrong("get_gradients of a text", "optimizer_v2 get_updates+graph", lambda w: w.sgd().get_gradients("x", [w.w]))
wrong("get_gradients of no params", "optimizer_v2 get_updates+graph",
      lambda w: w.sgd().get_gradients(tensor_loss(w), None))  # fmt: skip
wrong("get_gradients without arguments", "optimizer_v2 get_updates", lambda w: w.sgd().get_gradients())

each(right, "var_list is {}", MINIMIZE, on, [
    ("a tuple", lambda w: (w.w,)), ("a dict view", lambda w: {"w": w.w}.values()),
    ("a generator", lambda w: (v for v in [w.w]))])  # fmt: skip
each(right, "var_list is {}", "tf_train+graph", on, [
    ("one variable", lambda w: w.w), ("an array", lambda w: w.tf.trainable_variables())])  # fmt: skip
right("var_list is a function", "optimizer_v2+eager", on(lambda w: lambda: [w.w]))
right("var_list is None", "tf_train+graph", with_loss("var_list", None))
right("var_list names a variable twice", "tf_train+graph", lambda w: on(lambda w: [w.w, w.w])(w) and None)


def summed(axis=None, dtype="float32"):
    def make(w):
        loss = lambda: w.tf.cast(w.tf.reduce_sum(w.w * GRAD, axis=axis), dtype)  # noqa: E731
        return loss() if w.graph_mode and w.way.target == "tf_train" else loss

    return minimized(make)


right("loss is a vector", MINIMIZE, summed(axis=1))
right("loss is float64", MINIMIZE, summed(dtype="float64"))
right("loss by keyword", MINIMIZE, lambda w: w.run(w.sgd().minimize(loss=w.loss(), var_list=[w.w])) and None)
right("minimize by position", "tf_train", lambda w: w.run(w.sgd().minimize(w.loss(), None, [w.w])) and None)
right("minimize by position (Keras)", "optimizer_v2 update_step",
      lambda w: w.minimize(w.sgd(), w.loss(), [w.w]) and None)  # fmt: skip
each(right, "gate_gradients is {}", "tf_train+graph", lambda gate: with_loss("gate_gradients", gate), [
    ("0", 0), ("1", 1), ("2", 2)])  # fmt: skip
right("aggregation_method is 2", "tf_train+graph", with_loss("aggregation_method", 2))
right("colocate_gradients_with_ops", "tf_train+graph", with_loss("colocate_gradients_with_ops", True))
right("grad_loss", IN_GRAPHS, with_loss("grad_loss", From(lambda w: w.tensor(np.float32(2)))))
right("name of minimize", "tf_train optimizer_v2", with_loss("name", "train"))
right("name of minimize is None", "tf_train optimizer_v2", with_loss("name", None))
right("loss is a partial", MINIMIZE + "+eager", minimized(lambda w: functools.partial(w.loss())))


def in_two_calls(change):
    def call(w):
        optimizer = w.sgd()
        w.apply(optimizer, change(optimizer.compute_gradients(w.loss(), [w.w])))
        return w.values()

    return call


right("pairs of compute_gradients", "tf_train", in_two_calls(list))
right("pairs of compute_gradients, changed", "tf_train",
      in_two_calls(lambda pairs: [(grad * 2, variable) for grad, variable in pairs]))  # fmt: skip
right("get_gradients", "get_updates optimizer_v2+graph",
      lambda w: w.sgd().get_gradients(tensor_loss(w), [w.w]) and None)  # fmt: skip


# get_updates of Keras 2.

each(wrong, "get_updates, loss is {}", "get_updates", lambda loss: lambda w: w.updates(w.sgd(), loss(w), [w.w]), [
    ("None", lambda w: None), ("a number", lambda w: 1.0), ("a text", lambda w: "loss"), ("an object", lambda w: Odd()),
    ("without the variable", lambda w: w.loss(w.variable(START)), "no gradient for", GradientError)])  # fmt: skip
each(wrong, "get_updates, params are {}", "get_updates", lambda make: lambda w: w.updates(w.sgd(), w.loss, make(w)), [
    ("None", lambda w: None), ("a number", lambda w: 3), ("a text", lambda w: "w"), ("of None", lambda w: [None]),
    ("of arrays", lambda w: [START]), ("of text", lambda w: ["w"]), ("of tensors", lambda w: [w.tensor(START)]),
    ("an integer variable", lambda w: [w.variable(START.astype("int32"))]), ("nested", lambda w: [[w.w]])])  # fmt: skip
wrong("get_updates without arguments", "get_updates", lambda w: w.sgd().get_updates())
wrong("get_updates of too many", "get_updates", lambda w: w.sgd().get_updates(w.loss(), [w.w], 3, 4, 5))
right("get_updates, params are a tuple", "get_updates",
      lambda w: w.updates(w.sgd(), w.loss, (w.w,)) or w.values())  # fmt: skip
right("get_updates, no params", "get_updates", lambda w: w.updates(w.sgd(), w.loss, []))
right("get_updates by position", "get_updates",
      lambda w: w.symbolic(lambda: w.sgd().get_updates(w.loss(), [w.w])) and None)  # fmt: skip
right("get_updates twice", "get_updates", lambda w: (lambda optimizer: [
    w.updates(optimizer, w.loss, [w.w]) or w.values()[0] for _ in range(2)])(w.sgd()))  # fmt: skip
right("get_updates, a variable twice", "get_updates",
      lambda w: w.symbolic(lambda: w.sgd().get_updates(w.loss(), [w.w, w.w])) and None)  # fmt: skip


# Slots, weights, config.


def stepped(w, rule="Adam"):
    optimizer = w.make(rule, learning_rate=0.5)
    w.step(optimizer)
    return optimizer


def after_a_step(act):
    """A call of a function of an optimizer of Adam that took a step."""
    return lambda w: act(stepped(w)) and None


HAS_SLOTS = "numpy tf_train optimizer_v2"
each(wrong, "get_slot {}", "numpy optimizer_v2", lambda key: lambda w: stepped(w).get_slot(*key(w)), [
    ("of an unknown slot", lambda w: (w.w, "momenta"), "has no slot 'momenta'"), ("of None", lambda w: (None, "m")),
    ("of a number", lambda w: (3, "m"))])  # fmt: skip
wrong("get_slot without a name", HAS_SLOTS, lambda w: stepped(w).get_slot(w.w))
wrong("get_slot named by a list", HAS_SLOTS, lambda w: stepped(w).get_slot(w.w, ["m"]))
WITH_WEIGHTS = "optimizer_v2 get_updates"
WRONG_WEIGHTS = [
    ("too few", lambda v: v[:1]), ("too many", lambda v: v + v), ("None", lambda v: None), ("a number", lambda v: 3),
    ("a text", lambda v: "weights"), ("of other shapes", lambda v: [np.ones(7)] * len(v)), ("empty", lambda v: []),
    ("of text", lambda v: ["x"] * len(v)), ("of None", lambda v: [None] * len(v)),
    ("of objects", lambda v: [Odd()] * len(v)),
    ("complex", lambda v: [np.asarray(a) * 1j for a in v]), ("a dictionary", lambda v: dict(enumerate(v))),
]  # fmt: skip


def weights_set(change):
    return after_a_step(lambda optimizer: optimizer.set_weights(change(optimizer.get_weights())))


def variables_set(change):
    """The same where set_weights takes the values of `variables`."""

    def call(w):
        optimizer = stepped(w)
        variables = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
        optimizer.set_weights(change([w.read(variable) for variable in variables]))

    return call


each(wrong, "set_weights, {}", WITH_WEIGHTS, weights_set, WRONG_WEIGHTS)
each(wrong, "set_weights of the new style, {}", NEW_STYLE, variables_set, WRONG_WEIGHTS)
wrong("set_weights before a step", WITH_WEIGHTS, lambda w: w.make("Adam").set_weights([np.ones((4, 3))] * 5))
wrong("set_weights without an argument", KERAS, lambda w: stepped(w).set_weights())

each(right, "set_weights of {}", WITH_WEIGHTS, weights_set, [
    ("get_weights", list), ("a tuple", tuple), ("nested lists", lambda v: [np.asarray(a).tolist() for a in v]),
    ("float64", lambda v: [np.asarray(a, "float64") if np.ndim(a) else a for a in v])])  # fmt: skip
each(right, "set_weights of the new style{}", NEW_STYLE, variables_set, [
    ("", list), (", a tuple", tuple), (", lists", lambda v: [a.tolist() for a in v])])  # fmt: skip
right("get_slot after a step", HAS_SLOTS, lambda w: w.read(stepped(w).get_slot(w.w, "m")) is None)
right("get_slot_names", "tf_train optimizer_v2", after_a_step(lambda optimizer: optimizer.get_slot_names()))
right("variables", "tf_train", after_a_step(lambda optimizer: optimizer.variables()))
right("get_name", "tf_train", lambda w: w.sgd().get_name() and None)


def configured(change, rule="SGD"):
    """from_config of a changed config."""

    def call(w):
        optimizer = w.make(rule, learning_rate=0.25)
        return w.step(w.rule(rule).from_config(change(optimizer.get_config()))) or w.values()

    return call


CONFIGS = "optimizer_v2 update_step keras3"  # stock of get_updates takes any rate and name
each(wrong, "from_config of {}", KERAS, configured, [
    ("None", lambda c: None), ("a text", lambda c: "config"), ("a list", lambda c: [1]), ("a number", lambda c: 3),
    ("an unknown key", lambda c: dict(c, foo=1)), ("a clipnorm of text", lambda c: dict(c, clipnorm="x")),
    ("an object", lambda c: Odd()), ("pairs", lambda c: list(c.items()))])  # fmt: skip
each(wrong, "from_config of a {}", CONFIGS, lambda more: configured(lambda c: dict(c, **more)), [
    ("learning rate of None", {"learning_rate": None}), ("learning rate of text", {"learning_rate": "fast"}),
    ("name of 7", {"name": 7}), ("learning rate of a list", {"learning_rate": [0.1, 0.2]}),
    ("learning rate of a dictionary", {"learning_rate": {"a": 1}}),
    ("schedule of no known class", {"learning_rate": {"class_name": "Foo", "config": {}}})])  # fmt: skip
wrong("from_config without an argument", KERAS, lambda w: w.rule("SGD").from_config())
each(right, "from_config {}", KERAS, configured, [
    ("of get_config", dict), ("of an OrderedDict", OrderedDict), ("through JSON", lambda c: json.loads(json.dumps(c)))
])  # fmt: skip
each(right, "from_config {}", CONFIGS, lambda more: configured(lambda c: dict(c, **more)), [
    ("of a changed learning rate", {"learning_rate": 0.5}), ("of an int learning rate", {"learning_rate": 1}),
    ("with another name", {"name": "other"})])  # fmt: skip
right("get_config into JSON", KERAS,
      lambda w: json.dumps(w.make("Adam", learning_rate=np.float32(0.1)).get_config()) and None)  # fmt: skip
right("a config is a copy", KERAS, lambda w: w.sgd().get_config().clear())
right("optimizers.get of an instance", KERAS, lambda w: w.module.optimizers.get(w.sgd()) and None)


# build, apply and update_step of the new style.


def built(act, rule="SGD", **more):
    """A call of a function of an optimizer that was built on w, and of the side."""

    def call(w):
        optimizer = w.make(rule, **more)
        optimizer.build([w.w])
        return act(optimizer, w)

    return call


each(wrong, "build on {}", NEW_STYLE, lambda make: lambda w: w.make("Adam").build(make(w)), [
    ("None", lambda w: None), ("a number", lambda w: 3), ("a text", lambda w: "w"), ("of None", lambda w: [None]),
    ("of arrays", lambda w: [START]), ("of text", lambda w: ["w"]), ("an object", lambda w: Odd()),
    ("nested", lambda w: [[w.w]])])  # fmt: skip
wrong("build without variables", NEW_STYLE, lambda w: w.sgd().build())


@wrong("a step on other variables", NEW_STYLE, match="was built on other variables", error=VariableError)
def _(w):
    optimizer = w.rule("SGD")(learning_rate=0.5)
    optimizer.build([w.w])
    optimizer.apply_gradients([(w.tensor(GRAD), w.variable(START))])


each(wrong, "apply {}", "keras3", lambda arguments: lambda w: w.sgd().apply(*arguments(w)), [
    ("of too few gradients", lambda w: ([w.tensor(GRAD)], [w.w, w.variable(START)]),
     "1 gradients were given for 2 variables", GradientError),
    ("of too many gradients", lambda w: ([w.tensor(GRAD)] * 2, [w.w])),
    ("before build", lambda w: ([w.tensor(GRAD)],), "call build", GradientError), ("of None", lambda w: (None, [w.w])),
    ("of a number", lambda w: (3, [w.w])), ("without arguments", lambda w: ()),
    ("to a number", lambda w: ([w.tensor(GRAD)], 3)), ("of text", lambda w: (["x"], [w.w]))])  # fmt: skip
wrong("stateless_apply before build", "keras3",
      lambda w: w.sgd().stateless_apply([], [w.tensor(GRAD)], [w.tensor(START)]))  # fmt: skip
wrong("stateless_apply of too few values", "keras3",
      built(lambda o, w: o.stateless_apply([], [w.tensor(GRAD)], [w.tensor(START)])))  # fmt: skip
wrong("exclude_from_weight_decay of a number", NEW_STYLE, lambda w: w.sgd().exclude_from_weight_decay(var_list=3))
wrong("exclude_from_weight_decay after build", NEW_STYLE,
      built(lambda o, w: o.exclude_from_weight_decay(var_list=[w.w]), weight_decay=0.1))  # fmt: skip
right("build on a tuple", NEW_STYLE, lambda w: (lambda o: o.build((w.w,)) or w.step(o) and None)(w.make("Adam")))
right("build on a dict view", "update_step", lambda w: w.make("Adam").build(list({"w": w.w}.values())))
right("build twice", NEW_STYLE, built(lambda o, w: (o.build([w.w]), w.step(o)) and None, "Adam"))
right("apply of no gradients", "keras3", lambda w: w.sgd().apply([], [w.w]))
right("apply by position", "keras3", lambda w: w.sgd().apply([w.tensor(GRAD)], [w.w]) or w.values())
right("apply of tuples", "keras3", lambda w: w.sgd().apply((w.tensor(GRAD),), (w.w,)) or w.values())
right("apply by keywords", "keras3",
      lambda w: w.sgd().apply(grads=[w.tensor(GRAD)], trainable_variables=[w.w]) or w.values())  # fmt: skip
right("apply after build", "keras3", built(lambda o, w: o.apply([w.tensor(GRAD)]) or w.values()))
right("stateless_apply of tuples", "keras3", built(lambda o, w: [w.read(value) for value in o.stateless_apply(
    [v.value for v in o.variables], (w.tensor(GRAD),), (w.w.value,))[0]]))  # fmt: skip
right("exclude_from_weight_decay by name", NEW_STYLE, lambda w: (lambda o: o.exclude_from_weight_decay(
    var_names=["w"]) or w.step(o) and None)(w.make("SGD", weight_decay=0.1)))  # fmt: skip


# Models.

MODELS = "get_updates update_step optimizer_v2 keras3+eager"


def compiled(choose):
    def call(w):
        if hasattr(w.module, "models"):
            layers = w.module.layers
            net, optimizer = w.module.models.Sequential([layers.Dense(1, input_shape=(2,))]), choose(w)
            for _ in range(2):
                net.compile(optimizer, "mse")
                net.train_on_batch(np.ones((2, 2), "float32"), np.ones((2, 1), "float32"))
        elif choose is not Side.sgd:
            raise UnsupportedError("this module has no models")

    return call


right("compile twice", MODELS, compiled(Side.sgd))
wrong("compile with the class", MODELS, compiled(lambda w: w.rule("SGD")))


# Our own API, for everstep alone.


def numpy_state():
    weights = np.array(START)
    optimizer = Adam(0.5).bind(np)
    optimizer.apply_gradients([(GRAD, weights)])
    return optimizer, weights, everstep.capture(optimizer, {"w": weights})


def captured(change):
    return lambda w: everstep.capture(stepped(w), change(w.w), session=w.session) and None


def restored(change):
    def call(w):
        optimizer = stepped(w)
        state = everstep.capture(optimizer, change(w.w))
        everstep.restore(optimizer, state, change(w.w))

    return call


ITERABLES = [
    ("a tuple", lambda w: (w,)), ("a generator", lambda w: (v for v in [w])), ("a dictionary", lambda w: {"w": w}),
    ("an OrderedDict", lambda w: OrderedDict(w=w)), ("a dict view", lambda w: {"w": w}.values()),
    ("a list", lambda w: [w]),
]  # fmt: skip
own = functools.partial(add, right=True, has_stock=False)
each(own, "capture of {}", APPLY + "+eager", captured, ITERABLES)
each(own, "restore to {}", APPLY + "+eager", restored, ITERABLES)


def paths(folder):
    path = os.path.join(folder, "state.npz")
    found = [path, u"" + path, path.encode("ascii")]
    if sys.version_info >= (3, 6):
        import pathlib

        found.append(pathlib.Path(path))
    return found


def saved(save, load):
    def call(w):
        state = numpy_state()[2]
        folder = tempfile.mkdtemp()
        try:
            for path in paths(folder):
                save(state, path)
                assert load(path).updates == 1
        finally:
            shutil.rmtree(folder)

    return call


def write(state, path):
    everstep.write_checkpoint(state, path, "everstep")


own("paths of save and load", "numpy", saved(lambda s, path: s.save(path), everstep.State.load))
own("paths of read_checkpoint", "numpy", saved(lambda s, path: s.save(path), everstep.read_checkpoint))
own("paths of write_checkpoint", "numpy", saved(write, everstep.read_checkpoint))
PATHS = [("None", None), ("a number", 3.5), ("a list", ["x"]), ("an object", Odd()), ("a missing file", "/no/x")]
each(ours, "load of {}", "numpy", lambda path: lambda w: everstep.State.load(path), PATHS)
each(ours, "read_checkpoint of {}", "numpy", lambda path: lambda w: everstep.read_checkpoint(path), PATHS)
each(ours, "save to {}", "numpy", lambda path: lambda w: numpy_state()[2].save(path), PATHS)
each(ours, "write_checkpoint to {}", "numpy", lambda path: lambda w: write(numpy_state()[2], path), PATHS)
OTHERS = [("None", None), ("a text", "adam"), ("an object", Odd()), ("a class", Odd)]
each(ours, "capture with an optimizer that is {}", "numpy",
     lambda other: lambda w: everstep.capture(other, [w.w]), OTHERS)  # fmt: skip
each(ours, "restore with an optimizer that is {}", "numpy",
     lambda other: lambda w: everstep.restore(other, numpy_state()[2], [w.w]), OTHERS)  # fmt: skip
each(ours, "restore of a state that is {}", APPLY + "+eager",
     lambda state: lambda w: everstep.restore(w.sgd(), state, [w.w]), OTHERS)  # fmt: skip
each(ours, "capture of variables that are {}", APPLY + "+eager", captured, [
    ("None", lambda w: None), ("a number", lambda w: 3), ("a text", lambda w: "w"), ("of None", lambda w: [None]),
    ("of objects", lambda w: [Odd()]), ("one variable twice", lambda w: [w, w]), ("empty", lambda w: [])])  # fmt: skip
ours("capture of one array", "numpy", captured(lambda w: w), "a list of arrays", VariableError)
ours("capture of a definition", "numpy", lambda w: everstep.capture(Adam(), [w.w]), "bind", UnsupportedError)


def definitions(make):
    return lambda w: make()


def schedules(arguments):
    return lambda w: everstep.PiecewiseConstantDecay(*arguments)


# Definitions: arguments, wrappers, schedules, configs.
TAKEN = "takes a number"
each(ours, "Adam({})", "numpy", lambda rate: lambda w: Adam(rate), [
    ("a text", "0.1", "Adam.learning_rate takes a number.*'0.1'", HyperTypeError),
    ("None", None, TAKEN, HyperTypeError),
    ("a list", [0.1], TAKEN, HyperTypeError), ("True", True, TAKEN + ".*True", HyperTypeError),
    ("a complex number", 1j, TAKEN, HyperTypeError), ("a module", np, "Adam.learning_rate", HyperTypeError),
    ("a type", np.float64, "Adam.learning_rate", HyperTypeError),
    ("an array", np.ones(2), r"takes a scalar; got an array of shape \(2,\)", HyperTypeError),
    ("an array of text", np.array("0.1"), "Adam.learning_rate", HyperTypeError),
    ("a complex array", np.array(1j), "Adam.learning_rate", HyperTypeError),
    ("a date", np.array("2020", "M8"), "Adam.learning_rate", HyperTypeError),
    ("a huge int", 10**400, "Adam.learning_rate", HyperValueError),
    ("a schedule's class", everstep.InverseTimeDecay, TAKEN, HyperTypeError),
    ("a definition", SGD(), TAKEN, HyperTypeError), ("NaN", float("nan"), "must be finite; got nan", HyperValueError),
    ("infinity", np.inf, "must be finite; got inf", HyperValueError)])  # fmt: skip
each(ours, "{}", "numpy", definitions, [
    ("Adam(beta_1=1.5)", lambda: Adam(beta_1=1.5), "Adam.beta_1 must be at most 1", HyperValueError),
    ("Adam(amsgrad='yes')", lambda: Adam(amsgrad="yes"), "amsgrad takes True or False", HyperTypeError),
    ("SGD(sparse='row')", lambda: SGD(sparse="row"), "must be one of 'exact', 'rows'", HyperValueError),
    ("SGD(sparse=['rows'])", lambda: SGD(sparse=["rows"])), ("SGD(dense_ok='yes')", lambda: SGD(dense_ok="yes")),
    ("AdagradDecay(decay_steps=0)", lambda: AdagradDecay(decay_steps=0), "at least 1", HyperValueError),
    ("AdagradDecay(decay_steps=1.5)", lambda: AdagradDecay(decay_steps=1.5), "a whole number", HyperTypeError),
    ("five arguments too many", lambda: Adam(*range(11)), "at most 6 positional", DefinitionError),
    ("accumulate('adam', 4)", lambda: everstep.accumulate("adam", 4), "takes an everstep definition.*'adam'",
     HyperTypeError),
    ("accumulate of None", lambda: everstep.accumulate(None, 2)),
    ("accumulate of no steps", lambda: everstep.accumulate(SGD(), 0), "at least 1", HyperValueError),
    ("accumulate of 2.5 steps", lambda: everstep.accumulate(SGD(), 2.5)),
    ("accumulate of accumulate", lambda: everstep.accumulate(everstep.accumulate(SGD(), 2), 2),
     "multiply the numbers of steps", DefinitionError),
    ("clip by text", lambda: everstep.clip(SGD(), norm="1")),
    ("clip by a list", lambda: everstep.clip(SGD(), norm=[1.0])),
    ("lookahead of 0 steps", lambda: everstep.lookahead(SGD(), 0)),
    ("partition of None", lambda: everstep.partition(None)),
    ("partition of a text", lambda: everstep.partition("x")), ("Warmup of None", lambda: everstep.Warmup(None, 5)),
    ("a schedule from text", lambda: everstep.ExponentialDecay("x")),
    ("CosineDecay of 0 steps", lambda: everstep.CosineDecay(0.1, 0)),
    ("PolynomialDecay of negative steps", lambda: everstep.PolynomialDecay(0.1, -5)),
    ("definition.learning_rate = 0.1", lambda: setattr(Adam(), "learning_rate", 0.1), "replace", HyperValueError),
    ("replace of an unknown name", lambda: SGD().replace(foo=1)),
    ("Adam().minimize(loss)", lambda: Adam().minimize(None), r"Adam\(...\).bind", NotBoundError),
    ("Adam().apply_gradients(pairs)", lambda: Adam().apply_gradients([(GRAD, GRAD)]), "bind", NotBoundError),
    ("Adam().get_updates(loss, params)", lambda: Adam().get_updates(None, None), "bind", NotBoundError),
    ("from_config of nothing", lambda: everstep.Definition.from_config(None)),
    ("from_config of a name", lambda: everstep.Definition.from_config("SGD")),
    ("from_config of an unknown class", lambda: everstep.Definition.from_config({"definition": "Foo"}), "'Foo'",
     ConfigError),
    ("from_config of a wrong value",
     lambda: everstep.Definition.from_config({"definition": "SGD", "learning_rate": "x"})),
    ("from_native of None", lambda: everstep.from_native(None)),
    ("from_native of a text", lambda: everstep.from_native("x")),
    ("an IndexedSlices of text", lambda: everstep.IndexedSlices("x", [0])),
    ("an IndexedSlices of None", lambda: everstep.IndexedSlices(None, None)),
    ("an IndexedSlices of a scalar", lambda: everstep.IndexedSlices(1.0, 0)),
    ("an IndexedSlices of too few rows", lambda: everstep.IndexedSlices(GRAD, [0]), "1 indices needs as many rows",
     GradientError)])  # fmt: skip
each(ours, "PiecewiseConstantDecay{}", "numpy", schedules, [
    ("((5, 2), ...)", ((5, 2), (1.0, 2.0, 3.0)), "must increase", HyperValueError),
    ("((2, 2), ...)", ((2, 2), (1.0, 2.0, 3.0)), "must increase", HyperValueError),
    (" of too few values", ((2, 5), (1.0, 2.0)), "2 boundaries need 3 values", HyperValueError),
    ("(('2',), ...)", (("2",), (1.0, 2.0)), "each of boundaries", HyperTypeError),
    (" of a value of None", ((2,), (1.0, None)), "each of values", HyperTypeError),
    ("(2, ...)", (2, (1.0, 2.0)), "boundaries are a tuple", HyperTypeError),
    (" of a value of NaN", ((2,), (1.0, float("nan"))), "each of values must be finite", HyperValueError)])  # fmt: skip

# Arguments that other libraries, and other targets, spell otherwise.
SPELLED = [
    (Adam, [
        ("beta1", "beta1 is called beta_1 here"), ("beta2", "beta2 is called beta_2 here"),
        ("eps", "eps is called epsilon here"),
        ("betas", "beta_1=... and beta_2"), ("rho", "rho is called beta_2 here"), ("nesterov", "Nadam"),
        ("alpha", "alpha is called learning_rate here"), ("momentum", "momentum is called beta_1 here"),
        ("weight_decay", "decoupled_weight_decay.Adam"), ("clipvalue", "everstep.clip.Adam.*value="),
        ("clipnorm", "everstep.clip.Adam.*norm=.*bind.module, clipnorm"), ("use_ema", "everstep.moving_average"),
        ("global_clipnorm", "everstep.clip.Adam.*global_norm="), ("initial_accumulator_value", "Adagrad"),
        ("amsgard", "did you mean amsgrad"), ("name", "bind.module, name="), ("decay", "everstep.InverseTimeDecay"),
        ("lr", "called learning_rate on every target"),
    ]),
    (SGD, [("amsgrad", "Adam"), ("use_nesterov", "use_nesterov is called nesterov here"),
           ("step_size", "step_size is called learning_rate here")]),
    (everstep.optimizers.RMSprop, [("alpha", "alpha is called rho here")]),
    (everstep.optimizers.AdamW, [("wd", "wd is called weight_decay here")]),
    (everstep.optimizers.Ftrl, [("l1_regularization_strength", "is called l1 here")]),
    (everstep.ExponentialDecay, [("initial_learning_rate", "is called initial here"),
    ("decay_rate", "is called rate here")]),
]  # fmt: skip
for owner, names in SPELLED:
    each(ours, owner.__name__ + "({}=), our definition", "numpy",
         lambda name, owner=owner: lambda w: owner(**{name: 0.5}), [
             (name, name, "has no argument {}; it takes .*; .*{}".format(name, hint), DefinitionError)
             for name, hint in names])  # fmt: skip

# `bind`, and native classes.


def bound(definition=Adam, **native):
    return lambda w: w.bind(definition(), **native)


each(ours, "bind to {}", ALL, lambda given: lambda w: Adam().bind(given(w)), [
    ("an optimizer", lambda w: SGD().bind(w.module), "bind takes the module", TargetError),
    ("a class", lambda w: SGD.native_class(w.module), "bind takes the module", TargetError)])  # fmt: skip
each(ours, "bind to {}", "numpy", lambda given: lambda w: Adam().bind(given), [
    ("a text", "tf.keras", "bind takes the module.*'tf.keras'", TargetError),
    ("unicode", u"tf.keras", "What works", TargetError),
    ("None", None, "bind takes the module you train with.*What works", TargetError),
    ("a number", 3, "What works", TargetError),
    ("an object", Odd(), "What works", TargetError), ("a list", [], "What works", TargetError),
    ("a definition", Adam(), "What works", TargetError), ("a definition's class", Adam, "What works", TargetError),
    ("a function", lambda: None, "What works", TargetError),
    ("json", json, "json has no optimizer API.*Looked for: .*get_updates", TargetError)])  # fmt: skip
each(ours, "{}", "numpy", definitions, [
    ("native_class(json)", lambda: Adam.native_class(json), "What works: .*tf.keras", TargetError),
    ("custom_objects(json)", lambda: everstep.custom_objects(json), "has no optimizer API", TargetError),
])  # fmt: skip
each(ours, "{} without a module", "numpy", definitions, [
    ("bind", lambda: SGD().bind(), "bind takes the module you train with", TargetError),
    ("bind with a keyword", lambda: SGD().bind(name="a"), "bind takes the module you train with", TargetError),
    ("native_class", lambda: SGD.native_class(), "the module you train with", TargetError),
    ("to_native_config", lambda: SGD().to_native_config(), "the module you train with", TargetError)])  # fmt: skip
each(ours, "{} without more", "numpy", definitions, [
    ("from_native", everstep.from_native, "takes a stock optimizer", UnsupportedError),
    ("capture", everstep.capture, "needs an optimizer", UnsupportedError),
    ("restore", everstep.restore, "needs an optimizer", UnsupportedError)])  # fmt: skip
each(ours, "{}", APPLY + "+eager", lambda call: lambda w: call(w.sgd()), [
    ("capture without variables", everstep.capture, "such as model.trainable_variables", VariableError),
    ("restore without a state", everstep.restore, "such as model.trainable_variables", VariableError)])  # fmt: skip
ours("bind to tensorflow", "tf_train", lambda w: Adam().bind(_tf()), "tf.compat.v1.train", TargetError)
ours("accumulate of a bound optimizer", ALL, lambda w: everstep.accumulate(SGD().bind(w.module), 4),
     "everstep definition", HyperTypeError)  # fmt: skip
each(ours, "bind with {}", ALL, lambda native: bound(**native), [
    ("clipnrm", {"clipnrm": 1.0}, "clipnrm", DefinitionError), ("a name with a space", {"name": "a b"}, "be the prefix",
                                                                DefinitionError),
    ("decay", {"decay": 1e-4}, "everstep.InverseTimeDecay", DefinitionError),
    ("lr", {"lr": 0.1}, "learning_rate", DefinitionError),
    ("beta1", {"beta1": 0.9}, "beta1 is called beta_1 here", DefinitionError)])  # fmt: skip
for name in ("learning_rate", "beta_1"):  # also of a wrapper
    each(ours, "bind{} with " + name, ALL, lambda make, name=name: bound(make, **{name: 0.1}), [
        ("", Adam, "{} is no argument of bind.*Adam.{}=".format(name, name), DefinitionError),
        (" of a wrapper", lambda: everstep.accumulate(Adam(), 2), "{} is no argument of bind.*Adam.{}=".format(name,
        name),
         DefinitionError)])  # fmt: skip
each(ours, "native_class of Adam, {}", ALL, lambda name: lambda w: Adam.native_class(w.module)(**{name: 0.9}), [
    ("beta", "beta", "beta", DefinitionError), ("beta1", "beta1", "beta1 is called beta_1 here", DefinitionError)
])  # fmt: skip
ours("weight_decay where it is no native keyword", "numpy tf_train optimizer_v2 get_updates", bound(weight_decay=0.1),
     "everstep.decoupled_weight_decay", DefinitionError)  # fmt: skip
ours("from_config of a stock config", SETTABLE,  # of a name that no stock optimizer has
     lambda w: everstep.optimizers.QHAdam.native_class(w.module).from_config({"learning_rate": 0.1}),
     "no 'everstep' key.*it has learning_rate", ConfigError)  # fmt: skip


@ours("bind in a graph of TF 1", "only update_step eager, keras3 tensorflow eager",
                   match="tf.compat.v1.train", error=UnsupportedError)  # fmt: skip
def _(w):
    with _tf().Graph().as_default():
        SGD().bind(w.module)


ours("sparse='rows' where gradients are dense", "only keras3 jax eager, keras3 torch eager",
bound(lambda: Adam(sparse="rows")),
     "dense_ok=True", UnsupportedError)  # fmt: skip

# Slots, hypers and steps of bound definitions.


def sets(name, value, definition=SGD):
    return lambda w: setattr(w.bind(definition()), name, value)


each(ours, "get_slot before a step, {}", ALL, lambda name: lambda w: w.bind(Adam()).get_slot(w.w, name), [
    ("m", "m", "has no slot 'm'.* it has m, v once", SlotError),
    ("momentum", "momentum", "has no slot 'momentum'", SlotError)])  # fmt: skip
each(ours, "learning_rate = {}", SETTABLE, lambda value: sets("learning_rate", value), [
    ("NaN", float("nan"), "finite", HyperValueError), ("a text", "0.1", TAKEN, HyperTypeError)])  # fmt: skip
each(ours, "setting a rate that is {}", SETTABLE, lambda rate: sets("lr", 0.1, lambda: SGD(rate)), [
    ("a callable", lambda: 0.1, "given as a callable", HyperValueError),
    ("a schedule", everstep.InverseTimeDecay(), "everstep schedule", HyperValueError)])  # fmt: skip
SETS_A_TENSOR = lambda w: sets("lr", 0.1, lambda: SGD(w.tensor(0.1)))(w)  # noqa: E731
ours("setting a rate that is a tensor", "get_updates keras3", SETS_A_TENSOR, "given as a tensor", HyperValueError)
ours("setting a rate that is a tensor of a graph", "optimizer_v2+graph", SETS_A_TENSOR, "given as a", HyperValueError)
own("setting a rate that is an eager tensor", "optimizer_v2 update_step+eager", SETS_A_TENSOR)
ours("learning_rate = 0.1 in a graph", "tf_train", sets("learning_rate", 0.1), "constant of the graph", HyperValueError)
ours("momentum = 0.9 where there is no slot", SETTABLE, sets("momentum", 0.9), "without the slot velocity",
     HyperValueError)  # fmt: skip
# Old code says `decay=0.0`.
own("decay off", "optimizer_v2 get_updates", lambda w: setattr(w.bind(SGD(0.1), decay=0.0), "decay", 0.0))
ours("decay set", "optimizer_v2 get_updates", sets("decay", 0.5), "decay", DefinitionError)
own("clipnorm off on tf.train", "tf_train", lambda w: setattr(w.bind(SGD(0.1), clipnorm=0.0), "clipnorm", 0.0))
ours("clipnorm set on tf.train", "tf_train", sets("clipnorm", 0.5), "clipnorm", DefinitionError)
ours("set_weights before build", "update_step",  # Keras 3 stores them until then: its HDF5 loader sets them first
     lambda w: w.bind(SGD()).set_weights([]), "call build", SlotError)  # fmt: skip


@ours("set_weights of another optimizer", NEW_STYLE, match="written by another optimizer",
                   error=SlotError)  # fmt: skip
def _(w):
    other, optimizer = stepped(w, "SGD"), Adam().bind(w.module)
    optimizer.build([w.w])
    variables = other.variables() if callable(other.variables) else other.variables  # a method in TF 2.11
    optimizer.set_weights([w.read(variable) for variable in variables])


@ours("variables in two calls", APPLY, match="counts its calls", error=UnsupportedError)
def _(w):
    optimizer, other = everstep.accumulate(SGD(), 2).bind(w.module), w.variable(START[0])
    optimizer.apply_gradients([(w.tensor(GRAD[0]), other)])
    optimizer.apply_gradients(good(w))


def frozen_between(definition, moved):
    """Returns a call that steps twice with two variables, twice with one of them, and twice with both."""
    def call(w):
        optimizer, other = definition.bind(w.module), w.variable(START[0])
        for frozen in (False, True, False):
            for _ in range(2):
                optimizer.scale_loss(w.tensor(1.0))
                optimizer.apply_gradients(good(w) + ([] if frozen else [(w.tensor(GRAD[0]), other)]))
        np.testing.assert_allclose(w.read(other), START[0] - moved * GRAD[0], rtol=1e-5)

    return call


own("frozen for one window", APPLY + "+eager", frozen_between(everstep.accumulate(SGD(0.1), 2), 0.2))
own("frozen for two steps with a loss scale", APPLY + "+eager",
    frozen_between(everstep.loss_scale(SGD(0.1), initial_scale=4.0), 0.1))  # fmt: skip


@own("minimize of a scaled loss, no variables named", "tf_train+eager")
def _(w):
    optimizer = everstep.loss_scale(SGD(0.1)).bind(w.module)
    optimizer.minimize(lambda: w.w * w.w)
    optimizer.apply_gradients(optimizer.compute_gradients(lambda: w.w * w.w))
    np.testing.assert_allclose(w.read(w.w), START * 0.64, rtol=1e-5)


def numpy_step(w, grad, variable):
    return SGD().bind(np).apply_gradients([(grad, variable)])


ours("a tensor of a graph on NumPy", "only tf_train resource", lambda w: numpy_step(w, w.tensor(GRAD), np.ones((4, 3))),
     "gradient", GradientError)  # fmt: skip
ours("a tensor's rate on NumPy", "only tf_train resource", lambda w: SGD(w.tensor(0.1)).bind(np),
     "bind.numpy. cannot read a number", HyperTypeError)  # fmt: skip
ours("a TensorFlow variable on NumPy", "tf_train", lambda w: numpy_step(w, GRAD, w.w), "NumPy arrays", VariableError)
V2 = [way.module for way in WAYS if way.target == "optimizer_v2"]
if V2:
    ours("a ref variable for OptimizerV2", "only tf_train ref", lambda w: SGD().bind(V2[0]).apply_gradients(good(w)),
         "use_resource=True", VariableError)  # fmt: skip


# Rules that fail while a step is built.


class Fussy(everstep.Definition):
    """A rule that raises for variables of a shape, or returns a wrong one, while a call says so."""

    learning_rate = everstep.hyper(0.1)
    m = everstep.slot()
    raises_at = wrong_at = None

    def update(self, ops, grad, var, slots, hyper, t):
        if var.shape[1:] and var.shape == Fussy.raises_at:
            raise RuleError("fussy about {}".format(var.shape))
        m = slots.m * 0.9 + grad
        return hyper.learning_rate * m, {"m": ops.reshape(m, (-1,)) if var.shape == Fussy.wrong_at else m}


def fussy(definition, **where):
    def call(w):
        optimizer, variables = w.bind(definition), [w.w, w.variable(START[:2])]
        for name, shape in where.items():
            setattr(Fussy, name, shape)
        try:
            w.step(optimizer, variables)
        finally:
            Fussy.raises_at = Fussy.wrong_at = None

    return call


each(ours, "a rule that raises at {}", ALL, lambda arguments: fussy(arguments[0], raises_at=arguments[1]), [
    ("the first variable", (Fussy(), (4, 3)), "fussy", RuleError),
    ("the second variable", (Fussy(), (2, 3)), "fussy", RuleError),
    ("the first variable, in a wrapper", (everstep.accumulate(Fussy(), 2), (4, 3)), "fussy", RuleError),
    ("the second variable, in a wrapper", (everstep.accumulate(Fussy(), 2), (2, 3)), "fussy", RuleError)])  # fmt: skip
ours("a rule that returns a wrong shape", ALL, fussy(Fussy(), wrong_at=(2, 3)), "shape|slot m", RuleError)
# On NumPy accumulation would return the wrong shape at its second step only.
ours("a rule that returns a wrong shape, in a wrapper", NATIVE, fussy(everstep.accumulate(Fussy(), 2), wrong_at=(2, 3)),
     "shape|slot m", RuleError)  # fmt: skip
