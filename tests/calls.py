"""Wrong calls that stock refuses, and right but unusual calls that stock takes, written once for stock and ours.

A call gets a `World` of call_worlds.py. `wrong(name, where)` and `right(name, where)` add one to CALLS. `where` names
targets ("tf_train"), modes by their prefix ("keras3 tensorflow"), or "graph", "eager", "sparse" after a "+".
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
from call_worlds import GRAD, MODES, START

Call = collections.namedtuple("Call", "name where function right")

CALLS = []

ALL = "numpy tf_train optimizer_v2 get_updates update_step keras3"
APPLY = "numpy tf_train optimizer_v2 update_step keras3"  # have apply_gradients
NATIVE_APPLY = "tf_train optimizer_v2 update_step keras3"
NATIVE = "tf_train optimizer_v2 get_updates update_step keras3"
KERAS = "optimizer_v2 get_updates update_step keras3"
SETTABLE = "numpy optimizer_v2 get_updates update_step keras3"
MINIMIZE = "tf_train optimizer_v2 update_step"
TENSORFLOW = "tf_train optimizer_v2 update_step keras3+tf"
NEW_STYLE = "update_step keras3"


def add(name, where, function, is_right):
    CALLS.append(Call(name, where, function, is_right))


def wrong(name, where, function=None):
    if function is None:
        return lambda function: wrong(name, where, function)
    add(name, where, function, False)
    return function


def right(name, where, function=None):
    if function is None:
        return lambda function: right(name, where, function)
    add(name, where, function, True)
    return function


def applies(call, mode):
    targets, _, conditions = call.where.partition("+")
    facts = {
        "graph": mode.graph, "eager": not mode.graph, "sparse": mode.sparse,
        "tf": mode.target != "keras3" or "tensorflow" in mode.name,
    }  # fmt: skip
    fits = mode.target in targets.split() or any(mode.name == each for each in targets.split(","))
    return (fits or mode.name in targets.split()) and all(facts[c] for c in conditions.split("+") if c)


def cells():
    """Returns every (call, mode) of this environment."""
    return [(call, mode) for call in CALLS for mode in MODES if applies(call, mode)]


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


TF = "tf_train optimizer_v2 update_step keras3+tf"
WRONG_HYPERS = [
    ("None", None, ALL),
    ("a text", "0.1", ALL),
    ("a word", "fast", ALL),
    ("bytes", b"0.1", ALL),
    ("unicode", "0.1", ALL),
    ("an empty text", "", ALL),
    ("a list", [0.1], ALL),
    ("an empty list", [], ALL),
    ("a tuple", (0.1, 0.2), ALL),
    ("a dictionary", {"rate": 0.1}, ALL),
    ("a set", {0.1}, ALL),
    ("an object", Odd(), ALL),
    ("a class", Odd, ALL),
    ("a type", float, ALL),
    ("a generator", (rate for rate in [0.1]), ALL),
    ("a range", range(2), ALL),
    ("a slice", slice(1), ALL),
    ("Ellipsis", Ellipsis, ALL),
    ("a module", np, ALL),
    ("complex", 0.1 + 1j, ALL),
    ("NumPy complex", np.complex64(1j), ALL),
    ("a vector", np.ones(2, "float32"), ALL),
    ("a vector of one", np.ones(1, "float32"), ALL),
    ("a matrix", np.ones((2, 2)), ALL),
    ("an array of text", np.array("0.1"), ALL),
    ("an array of objects", np.array(None, object), ALL),
    ("an empty array", np.ones(0), ALL),
    ("NaN", float("nan"), ALL),
    ("infinity", float("inf"), ALL),
    ("-infinity", np.float32("-inf"), ALL),
    ("negative", -0.5, ALL),
    ("a huge int", 10**400, ALL),
    ("a date", np.datetime64("2020-01-01"), ALL),
    ("a function of one argument", lambda step: 0.1, ALL),
    ("a function that gives None", lambda: None, ALL),
    ("a function that gives text", lambda: "0.1", ALL),
    ("a function that gives a vector", lambda: np.ones(2, "float32"), ALL),
    ("a function that gives a list", lambda: [0.1, 0.2], ALL),
    ("a function that gives an object", lambda: Odd(), ALL),
    ("a function that gives complex", lambda: 1j, ALL),
    ("a function that gives a function", lambda: lambda: 0.1, ALL),
    ("a vector tensor", From(lambda w: w.tensor(np.ones(2, "float32"))), NATIVE),
    ("a text tensor", From(lambda w: w.tensor("0.1")), TF),
    ("a bool tensor", From(lambda w: w.tensor(True)), NATIVE),
    ("a complex tensor", From(lambda w: w.tensor(np.complex64(1j))), NATIVE),
    ("a vector variable", From(lambda w: w.variable(np.ones(2, "float32"))), NATIVE),
]

OPTIMIZER_OF = {"learning_rate": "SGD", "momentum": "SGD", "beta_1": "Adam", "epsilon": "Adam"}


def numbers_of(world, rule):
    """Returns w; None for Adam on get_updates, where stock reads its counter before or after it moves, at random."""
    return None if (rule, world.mode.target) == ("Adam", "get_updates") else world.values()[:1]


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
        for label, value, where in values_of_hyper:
            add("{} is {}".format(hyper, label), where, made_with(hyper, value))


each_hyper(wrong, WRONG_HYPERS)
wrong("momentum above 1", ALL, made_with("momentum", 1.5))
wrong("beta_1 above 1", ALL, made_with("beta_1", 1.5))
wrong("amsgrad is a text", "numpy " + KERAS, lambda w: w.step(w.make("Adam", amsgrad="yes")))
wrong("nesterov is None", "numpy " + KERAS, lambda w: w.step(w.make("SGD", momentum=0.9, nesterov=None)))
wrong("a function that raises", NATIVE, made_with("learning_rate", raises))

RIGHT_HYPERS = [
    ("an int", 1, ALL),
    ("zero", 0, ALL),
    ("float32", np.float32(0.25), ALL),
    ("float64", np.float64(0.25), ALL),
    ("float16", np.float16(0.25), ALL),
    ("a NumPy int", np.int64(1), ALL),
    ("a 0-d array", np.array(0.25), ALL),
    ("a 0-d float32 array", np.array(0.25, "float32"), ALL),
    ("a 0-d int array", np.array(1), ALL),
    ("a fraction", fractions.Fraction(1, 4), ALL),
    ("a bool", True, ALL),
    ("a function", lambda: 0.25, ALL),
    ("a function that gives an int", lambda: 1, ALL),
    ("a function that gives float32", lambda: np.float32(0.25), ALL),
    ("a function that gives a 0-d array", lambda: np.array(0.25), ALL),
    ("a partial", functools.partial(float, 0.25), ALL),
    ("a callable object", Rate(), ALL),
    ("a bound method", Rate().method, ALL),
    ("a function with defaults", lambda scale=0.25: scale, ALL),
    ("a tensor", From(lambda w: w.tensor(0.25)), NATIVE),
    ("a float64 tensor", From(lambda w: w.tensor(np.float64(0.25))), NATIVE),
    ("an int tensor", From(lambda w: w.tensor(1)), NATIVE),
    ("a variable", From(lambda w: w.variable(np.float32(0.25))), NATIVE),
    ("a function that gives a tensor", From(lambda w: lambda: w.tensor(0.25)), NATIVE),
    (
        "a function that gives a variable",
        From(lambda w: functools.partial(lambda v: v, w.variable(np.float32(0.25)))),
        NATIVE,
    ),
]

each_hyper(right, RIGHT_HYPERS)


# Setting a hyper later.


def set_to(value, name="learning_rate"):
    def call(world):
        optimizer = world.sgd()
        setattr(optimizer, name, given(world, value))
        world.step(optimizer)
        return world.values()[:1]

    return call


for label, value, where in WRONG_HYPERS[::3]:
    targets = " ".join(each for each in where.split("+")[0].split() if each != "tf_train")
    wrong("learning_rate set to " + label, targets + where[len(where.split("+")[0]) :], set_to(value))
wrong("lr set to a text", "numpy optimizer_v2", set_to("0.1", "lr"))
wrong("iterations set to a text", "optimizer_v2 update_step", set_to("1", "iterations"))
for label, value in [("an int", 1), ("float32", np.float32(0.25)), ("a 0-d array", np.array(0.25))]:
    right("learning_rate set to " + label, "numpy optimizer_v2 update_step keras3", set_to(value))
for label, value in [("NaN", np.nan), ("a negative number", -0.5), ("many numbers", [0.5, 0.5])]:
    wrong("learning_rate set to a tensor of " + label, "optimizer_v2 update_step keras3",
          set_to(From(lambda w, value=value: w.tensor(np.float32(value)))))  # fmt: skip
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


wrong("an unknown keyword", ALL, keywords(lerning_rate=0.1))
wrong("an unknown keyword beside right ones", ALL, keywords("Adam", beta_3=0.1))
wrong("an empty keyword", ALL, keywords(**{"": 1}))
wrong("too many positional arguments", ALL, lambda w: w.step(w.make("SGD", *([0.5] * 20))))
wrong("a hyper given twice", ALL, lambda w: w.step(w.make("SGD", 0.5, learning_rate=0.5)))
for label, value in [
    ("an int", 7), ("a list", ["sgd"]), ("an object", Odd()), ("with a space", "a b"), ("with a colon", "a:b"),
    ("a float", 0.5), ("a dictionary", {"name": "a"}), ("starting with a dash", "-a"),
]:  # fmt: skip
    wrong("name is " + label, "numpy tf_train optimizer_v2 update_step keras3", keywords(name=value))
BAD_BOUNDS = [("a text", "1"), ("a list", [1.0]), ("negative", -1.0), ("an object", Odd()), ("NaN", float("nan"))]
for bound in ("clipnorm", "clipvalue"):
    for label, value in BAD_BOUNDS:
        wrong("{} is {}".format(bound, label), KERAS, keywords(**{bound: value}))
for label, value in BAD_BOUNDS[:3]:
    wrong("global_clipnorm is " + label, "optimizer_v2 " + NEW_STYLE, keywords(global_clipnorm=value))
wrong("two clip bounds", NEW_STYLE, keywords(clipnorm=1.0, clipvalue=1.0))
wrong("two norms", NEW_STYLE, keywords(clipnorm=1.0, global_clipnorm=1.0))
wrong("clipnorm on tf.train", "tf_train", keywords(clipnorm=1.0))
wrong("clipnorm on NumPy", "numpy", keywords(clipnorm=1.0))
wrong("negative decay", "optimizer_v2 get_updates", keywords(decay=-1.0))
wrong("decay is a text", "optimizer_v2 get_updates", keywords(decay="1"))
wrong("weight_decay is a text", NEW_STYLE, keywords(weight_decay="1"))
wrong("weight_decay is a list", NEW_STYLE, keywords(weight_decay=[0.1]))
wrong("ema_momentum above 1", NEW_STYLE, keywords(use_ema=True, ema_momentum=2.0))
wrong("ema_momentum is a text", NEW_STYLE, keywords(use_ema=True, ema_momentum="x"))
wrong("ema_overwrite_frequency is a fraction", NEW_STYLE, keywords(use_ema=True, ema_overwrite_frequency=0.5))
wrong("ema_overwrite_frequency is a text", NEW_STYLE, keywords(use_ema=True, ema_overwrite_frequency="x"))
wrong("gradient_accumulation_steps is 1", "keras3", keywords(gradient_accumulation_steps=1))
wrong("gradient_accumulation_steps is 0", "keras3", keywords(gradient_accumulation_steps=0))
wrong("gradient_accumulation_steps is negative", "keras3", keywords(gradient_accumulation_steps=-2))
wrong("gradient_accumulation_steps is a text", "keras3", keywords(gradient_accumulation_steps="2"))
wrong("loss_scale_factor is a text", "keras3", lambda w: w.make(loss_scale_factor="x").scale_loss(w.tensor(1.0)))
wrong("gradient_transformers is a number", "optimizer_v2", keywords(gradient_transformers=1))
wrong("gradient_aggregator is a number", "optimizer_v2", keywords(gradient_aggregator=1))
# `beta1` and `decay` are right on some APIs; there they are told their name here.
for keyword, value in [
    ("eps", 1e-3), ("betas", (0.9, 0.99)), ("alpha", 0.9), ("rho", 0.9), ("momentum", 0.9), ("nesterov", True),
    ("initial_accumulator_value", 0.1), ("amsgard", True), ("learningrate", 0.1), ("b1", 0.9), ("eta", 0.1),
]:  # fmt: skip
    wrong("Adam({}=)".format(keyword), ALL, keywords("Adam", **{keyword: value}))
for keyword, value in [("beta1", 0.9), ("beta2", 0.99)]:
    wrong("Adam({}=)".format(keyword), "numpy " + KERAS, keywords("Adam", **{keyword: value}))
for keyword, value in [("beta_1", 0.9), ("epsilon", 1e-3), ("amsgrad", True), ("dampening", 0.1)]:
    wrong("SGD({}=)".format(keyword), ALL, keywords("SGD", **{keyword: value}))

right("name is None", "numpy tf_train optimizer_v2 update_step keras3",
      lambda w: w.step(w.make("SGD", 0.5, name=None)) if w.ours else w.step(w.make("SGD", 0.5)))  # fmt: skip
right("name is unicode", "numpy tf_train optimizer_v2 update_step keras3", keywords(name="trainer"))
right("name is a NumPy text", "numpy tf_train optimizer_v2 update_step keras3", keywords(name=np.array(["trainer"])[0]))
right("name has an underscore first", "optimizer_v2 update_step keras3", keywords(name="my_trainer"))
right("name has a dash and a dot", "tf_train optimizer_v2 update_step keras3", keywords(name="my-trainer.1"))
right("name is long", "numpy tf_train optimizer_v2 update_step keras3", keywords(name="n" * 200))
right("use_locking", "tf_train", keywords(use_locking=True))
right("use_locking is an int", "tf_train", keywords(use_locking=1))
for bound in ("clipnorm", "clipvalue"):
    for label, value in [("an int", 1), ("float32", np.float32(1)), ("a 0-d array", np.array(1.0)), ("None", None)]:
        if value is not None or bound == "clipnorm":
            where = "optimizer_v2 update_step keras3" if value is None else KERAS
            right("{} is {}".format(bound, label), where, keywords(**{bound: value}))
right("clipnorm is a tensor", "optimizer_v2 update_step+eager", keywords(clipnorm=From(lambda w: w.tensor(1.0))))
right("clipnorm and clipvalue", "get_updates", keywords(clipnorm=1.0, clipvalue=0.1))
right("weight_decay is an int", NEW_STYLE, keywords(weight_decay=0))
right("weight_decay is float32", NEW_STYLE, keywords(weight_decay=np.float32(0.1)))
right("weight_decay is None", NEW_STYLE, keywords(weight_decay=None))
right("use_ema", NEW_STYLE, keywords(use_ema=True, ema_momentum=0.5))
right("use_ema is an int", NEW_STYLE, keywords(use_ema=1))
right("jit_compile", "update_step", keywords(jit_compile=False))
right("one positional argument", ALL, lambda w: w.step(w.make("SGD", 0.25)) or w.values())
right("two positional arguments", SETTABLE, lambda w: w.step(w.make("SGD", 0.25, 0.9)) or w.values())
right(
    "four positional arguments", ALL, lambda w: w.step(w.make("Adam", 0.25, 0.9, 0.99, 1e-3)) or numbers_of(w, "Adam")
)
right("no argument", SETTABLE, lambda w: w.step(w.make("SGD")) or w.values())
right("keywords with unicode names", ALL, lambda w: w.step(w.make("SGD", **{str("learning_rate"): 0.25})) or w.values())


# Pairs of apply_gradients.


def applied(pairs, *args, **native):
    def call(world):
        world.apply(world.sgd(), pairs(world), *args, **native)
        return world.values()[:1]

    return call


wrong("pairs are None", APPLY, applied(lambda w: None))
wrong("pairs are a number", APPLY, applied(lambda w: 3))
wrong("pairs are a text", APPLY, applied(lambda w: "pairs"))
wrong("pairs are empty", "numpy tf_train", applied(lambda w: []))
wrong("pairs are an object", APPLY, applied(lambda w: Odd()))
# Not on JAX, whose arrays never end when they are iterated over by index.
wrong("pairs are a variable", "tf_train optimizer_v2 update_step keras3+tf", applied(lambda w: w.w))
wrong("pairs are one pair", APPLY, applied(lambda w: (w.tensor(GRAD), w.w)))
wrong("pairs are gradients only", APPLY, applied(lambda w: [w.tensor(GRAD)]))
wrong("pairs of one", APPLY, applied(lambda w: [(w.tensor(GRAD),)]))
wrong("pairs of three", APPLY, applied(lambda w: [(w.tensor(GRAD), w.w, 1)]))
wrong("a pair is None", APPLY, applied(lambda w: [None]))
wrong("a pair is empty", APPLY, applied(lambda w: [()]))
wrong("a pair is a text of two", APPLY, applied(lambda w: ["ab"]))
wrong("a pair is a set", APPLY, applied(lambda w: [{1, 2}]))
wrong("a pair is swapped", NATIVE_APPLY, applied(lambda w: [(w.w, w.tensor(GRAD))]))
wrong("pairs are a dictionary", APPLY, applied(lambda w: {"w": w.tensor(GRAD)}))
wrong("pairs are a class", APPLY, applied(lambda w: dict))
wrong("only None gradients", APPLY, applied(lambda w: [(None, w.w)]))
wrong("pairs that raise", APPLY, applied(lambda w: (raises() for _ in [0])))
wrong("no pairs given", APPLY, lambda w: w.sgd().apply_gradients())
wrong("an unknown keyword of apply_gradients", APPLY, applied(lambda w: [(w.tensor(GRAD), w.w)], gobal_step=None))
wrong("too many arguments of apply_gradients", APPLY,
      applied(lambda w: [(w.tensor(GRAD), w.w)], None, None, None, None, None, None))  # fmt: skip

right("pairs are a tuple", APPLY, applied(lambda w: ((w.tensor(GRAD), w.w),)))
right("pairs are zip", APPLY, applied(lambda w: zip([w.tensor(GRAD)], [w.w])))
right("pairs are a generator", APPLY, applied(lambda w: (pair for pair in [(w.tensor(GRAD), w.w)])))
right("pairs are an iterator", APPLY, applied(lambda w: iter([(w.tensor(GRAD), w.w)])))
right("pairs are map", APPLY, applied(lambda w: map(tuple, [[w.tensor(GRAD), w.w]])))
right("pairs are a dict view", APPLY, applied(lambda w: {"w": (w.tensor(GRAD), w.w)}.values()))
right("pairs are a deque", APPLY, applied(lambda w: collections.deque([(w.tensor(GRAD), w.w)])))
right("pairs of lists", APPLY, applied(lambda w: [[w.tensor(GRAD), w.w]]))
right("a pair is a named tuple", APPLY,
      applied(lambda w: [collections.namedtuple("Pair", "grad var")(w.tensor(GRAD), w.w)]))  # fmt: skip
right("some None gradients", APPLY, applied(lambda w: [(None, w.variable(START)), (w.tensor(GRAD), w.w)]))
right("pairs by keyword", APPLY,
      lambda w: w.run(w.sgd().apply_gradients(grads_and_vars=[(w.tensor(GRAD), w.w)])) and None)  # fmt: skip
right("empty pairs", "optimizer_v2", applied(lambda w: []))


# Gradients.


def gradient(make, start=None):
    """A step with one gradient for w, or for a new variable of the value `start`."""

    def call(world):
        variable = world.w if start is None else world.variable(start)
        world.apply(world.sgd(), [(make(world), variable)])
        return world.values()

    return call


WRONG_GRADIENTS = [
    ("a text", lambda w: "gradient"),
    ("a word per element", lambda w: np.full((4, 3), "x")),
    ("a dictionary", lambda w: {"g": GRAD}),
    ("an object", lambda w: Odd()),
    ("a class", lambda w: Odd),
    ("a function", lambda w: lambda: GRAD),
    ("a set", lambda w: {1.0}),
    ("a ragged list", lambda w: [[1.0], [1.0, 2.0]]),
    ("an empty list", lambda w: []),
    ("a list of None", lambda w: [None]),
    ("of fewer rows", lambda w: w.tensor(GRAD[:2])),
    ("of fewer columns", lambda w: w.tensor(GRAD[:, :2])),
    ("of one row", lambda w: w.tensor(GRAD[0])),
    ("of higher rank", lambda w: w.tensor(GRAD[None])),
    ("transposed", lambda w: w.tensor(GRAD.T.copy())),
    ("flat", lambda w: w.tensor(GRAD.reshape(-1))),
    ("a scalar", lambda w: w.tensor(np.float32(1))),
    ("empty", lambda w: w.tensor(np.ones((0, 3), "float32"))),
    ("complex", lambda w: w.tensor(GRAD.astype("complex64"))),
    ("bool", lambda w: w.tensor(GRAD > 0)),
    ("a NumPy bool array", lambda w: GRAD > 0),
    ("a NumPy complex array", lambda w: GRAD.astype("complex64")),
    ("a NumPy array of fewer rows", lambda w: GRAD[:2]),
    ("a Python number", lambda w: 1.0),
    ("a list of other shape", lambda w: [1.0, 2.0]),
]
for label, make in WRONG_GRADIENTS:
    wrong("a gradient is " + label, APPLY, gradient(make))
wrong("a gradient is text tensor", TENSORFLOW, gradient(lambda w: w.tensor([["x"] * 3] * 4)))
wrong("a gradient is int", NATIVE_APPLY, gradient(lambda w: w.tensor(GRAD.astype("int32"))))
wrong(
    "a gradient is float64", "tf_train optimizer_v2 update_step", gradient(lambda w: w.tensor(GRAD.astype("float64")))
)
wrong("a gradient is half", "tf_train optimizer_v2 update_step", gradient(lambda w: w.tensor(GRAD.astype("float16"))))


@wrong("a gradient of another graph", "tf_train optimizer_v2+graph")
def _(w):
    with w.tf.Graph().as_default():
        grad = w.tf.constant(GRAD)
    w.apply(w.sgd(), [(grad, w.w)])


@wrong("the second gradient is wrong", APPLY)
def _(w):
    w.apply(w.sgd(), [(w.tensor(GRAD), w.w), (w.tensor(GRAD[0]), w.variable(START))])


right("a gradient is a NumPy array", APPLY, gradient(lambda w: GRAD))
right("a gradient is a list", APPLY, gradient(lambda w: GRAD.tolist()))
right("a gradient is a tuple", APPLY, gradient(lambda w: tuple(map(tuple, GRAD.tolist()))))
right("a gradient is a float for a scalar", APPLY, gradient(lambda w: 0.5, np.float32(2)))
right("a gradient is an int for a scalar", APPLY, gradient(lambda w: 1, np.float32(2)))
right("a gradient is a NumPy number for a scalar", APPLY, gradient(lambda w: np.float32(0.5), np.float32(2)))
right("a gradient is a float64 array", APPLY, gradient(lambda w: GRAD.astype("float64")))
right("a gradient is a Fortran array", APPLY, gradient(lambda w: np.asfortranarray(GRAD)))
right("a gradient is a strided array", APPLY, gradient(lambda w: np.repeat(GRAD, 2, 0)[::2]))
right("a gradient is a masked array", "numpy", gradient(lambda w: np.ma.array(GRAD)))
right("a gradient is a matrix", "numpy tf_train", gradient(lambda w: np.asmatrix(GRAD)))
right("a gradient is a variable", NATIVE_APPLY, gradient(lambda w: w.variable(GRAD)))
right("a gradient is the variable itself", NATIVE_APPLY, gradient(lambda w: w.w))
right("one gradient for two variables", APPLY, lambda w: (
    lambda grad: w.apply(w.sgd(), [(grad, w.w), (grad, w.variable(START))]))(w.tensor(GRAD)) and None)  # fmt: skip
right("a scalar variable", APPLY, gradient(lambda w: w.tensor(np.float32(0.5)), np.float32(2)))
right(
    "a variable of no rows", APPLY, gradient(lambda w: w.tensor(np.ones((0, 3), "float32")), np.ones((0, 3), "float32"))
)
right("a variable of four axes", APPLY,
      gradient(lambda w: w.tensor(np.ones((1, 2, 1, 2), "float32")), np.ones((1, 2, 1, 2), "float32")))  # fmt: skip
right("a float64 variable", "numpy tf_train optimizer_v2 update_step",
      gradient(lambda w: w.tensor(GRAD.astype("float64")), START.astype("float64")))  # fmt: skip
right("a float16 variable", APPLY, gradient(lambda w: w.tensor(GRAD.astype("float16")), START.astype("float16")))
right("a complex variable", "optimizer_v2",
      gradient(lambda w: w.tensor(GRAD.astype("complex64")), START.astype("complex64")))  # fmt: skip


# Sparse gradients.

WRONG_SLICES = [
    ("a negative id", lambda w: w.slices(GRAD[:2], [-1, 0])),
    ("a very negative id", lambda w: w.slices(GRAD[:1], [-5])),
    ("an id too high", lambda w: w.slices(GRAD[:2], [0, 4])),
    ("an id far too high", lambda w: w.slices(GRAD[:1], [2**31 - 1])),
    ("float ids", lambda w: w.slices(GRAD[:2], [0.0, 1.0])),
    ("text ids", lambda w: w.slices(GRAD[:2], ["0", "1"])),
    ("bool ids", lambda w: w.slices(GRAD[:2], [True, False])),
    ("ids of rank 2", lambda w: w.slices(GRAD[:2], [[0], [1]])),
    ("a scalar id", lambda w: w.slices(GRAD[0], 0)),
    ("more ids than rows", lambda w: w.slices(GRAD[:1], [0, 1])),
    ("fewer ids than rows", lambda w: w.slices(GRAD[:3], [0, 1])),
    ("narrow rows", lambda w: w.slices(GRAD[:2, :2], [0, 1])),
    ("wide rows", lambda w: w.slices(np.ones((2, 4), "float32"), [0, 1])),
    ("rows of rank 1", lambda w: w.slices(GRAD[:2, 0], [0, 1])),
    ("rows of rank 3", lambda w: w.slices(GRAD[:2, None], [0, 1])),
    ("a single number", lambda w: w.slices(np.float32(1), [0])),
    ("complex rows", lambda w: w.slices(GRAD[:2].astype("complex64"), [0, 1])),
    ("int rows", lambda w: w.slices(GRAD[:2].astype("int32"), [0, 1])),
    ("bool rows", lambda w: w.slices(GRAD[:2] > 0, [0, 1])),
    ("text rows", lambda w: w.slices([["a"] * 3] * 2, [0, 1])),
]
SLICED = APPLY + "+sparse"
for label, make in WRONG_SLICES:
    where = SLICED if label != "int rows" else NATIVE_APPLY + "+sparse"
    wrong("sparse, " + label, where, gradient(make))
    if "id" in label:
        wrong("sparse Adam, " + label, where, lambda w, make=make: w.apply(w.make("Adam", 0.5), [(make(w), w.w)]))
wrong("sparse, for a scalar", SLICED, gradient(lambda w: w.slices(GRAD[0], [0, 1, 2]), np.float32(1)))
wrong("sparse, for a variable of no rows", SLICED,
      gradient(lambda w: w.slices(GRAD[:1], [0]), np.ones((0, 3), "float32")))  # fmt: skip
wrong("sparse of everstep on a framework", NATIVE_APPLY,
      gradient(lambda w: everstep.IndexedSlices(GRAD[:1], [0])))  # fmt: skip
wrong("a SparseTensor", TENSORFLOW, gradient(lambda w: _tf().SparseTensor([[0, 0]], [1.0], [4, 3])))


def _tf():
    import tensorflow as tf

    return tf


RIGHT_SLICES = [
    ("int32 ids", lambda w: w.slices(GRAD[:2], np.array([0, 3], "int32"))),
    ("int64 ids", lambda w: w.slices(GRAD[:2], np.array([0, 3], "int64"))),
    ("equal ids", lambda w: w.slices(GRAD[:3], [1, 1, 2])),
    ("unordered ids", lambda w: w.slices(GRAD[:3], [3, 0, 1])),
    ("all rows", lambda w: w.slices(GRAD, [0, 1, 2, 3])),
    ("more rows than the variable", lambda w: w.slices(np.ones((6, 3), "float32"), [0, 0, 1, 2, 3, 3])),
    ("no ids", lambda w: w.slices(np.ones((0, 3), "float32"), [])),
    ("a shape", lambda w: w.slices(GRAD[:2], [0, 1], (4, 3))),
    ("one id", lambda w: w.slices(GRAD[:1], [3])),
]
for label, make in RIGHT_SLICES:
    right("sparse, " + label, SLICED, gradient(make))
    right("sparse Adam, " + label, SLICED, lambda w, make=make: w.apply(w.make("Adam", 0.5), [(make(w), w.w)]) and None)
right("sparse, NumPy rows and ids", TENSORFLOW + "+sparse",
      gradient(lambda w: _tf().IndexedSlices(GRAD[:2], np.array([0, 1]))))  # fmt: skip
right("sparse, Python ids", TENSORFLOW + "+sparse", gradient(lambda w: _tf().IndexedSlices(w.tensor(GRAD[:2]), [0, 1])))
right(
    "sparse, for a vector", SLICED, gradient(lambda w: w.slices(np.ones(2, "float32"), [0, 2]), np.ones(3, "float32"))
)
right("sparse, empty, for a variable of no rows", SLICED,
      gradient(lambda w: w.slices(np.ones((0, 3), "float32"), []), np.ones((0, 3), "float32")))  # fmt: skip


# Variables.


def trained(make, grad=GRAD):
    return lambda w: w.apply(w.sgd(), [(w.tensor(grad), make(w))])


for label, make in [
    ("None", lambda w: None), ("a number", lambda w: 1.0), ("a text", lambda w: "w"), ("a list", lambda w: [w.w]),
    ("an object", lambda w: Odd()), ("a class", lambda w: Odd), ("a function", lambda w: (lambda: w.w)),
    ("something else", lambda w: w.foreign_variable()),
]:  # fmt: skip
    wrong("a variable is " + label, APPLY, trained(make))
wrong("a variable is a tensor", NATIVE_APPLY, trained(lambda w: w.tensor(START)))
wrong("a variable is an array", NATIVE_APPLY, trained(lambda w: START.copy()))
wrong("a variable is text", "tf_train optimizer_v2 update_step", trained(lambda w: w.variable([["x"] * 3] * 4)))
for dtype in ("int32", "int64", "bool"):
    wrong("a variable is of " + dtype, APPLY,
          lambda w, dtype=dtype: w.apply(w.sgd(), [(w.tensor(GRAD), w.variable(START.astype(dtype)))]))  # fmt: skip
wrong("a variable twice", "numpy update_step keras3",
      lambda w: w.apply(w.sgd(), [(w.tensor(GRAD), w.w), (w.tensor(GRAD), w.w)]))  # fmt: skip
wrong("a variable is read-only", "numpy",
      lambda w: w.w.setflags(write=False) or w.apply(w.sgd(), [(GRAD, w.w)]))  # fmt: skip


@wrong("a step in another graph", "tf_train optimizer_v2+graph")
def _(w):
    optimizer = w.sgd()
    with w.tf.Graph().as_default():
        w.apply(optimizer, [(w.tensor(GRAD), w.w)])


@wrong("a finished graph", "tf_train optimizer_v2+graph")
def _(w):
    w.graph.finalize()
    w.sgd().apply_gradients([(GRAD, w.w)])


@wrong("another session", "tf_train optimizer_v2+graph")
def _(w):
    operation = w.sgd().apply_gradients([(w.tensor(GRAD), w.w)])
    with w.tf.Session(graph=w.tf.Graph()) as session:
        session.run(operation)


@wrong("a session without initial values", "tf_train optimizer_v2+graph")
def _(w):
    operation = w.sgd().apply_gradients([(w.tensor(GRAD), w.w)])
    with w.tf.Session(graph=w.graph) as session:
        session.run(operation)


@wrong("a closed session", "tf_train optimizer_v2+graph")
def _(w):
    operation = w.sgd().apply_gradients([(w.tensor(GRAD), w.w)])
    session = w.tf.Session(graph=w.graph)
    session.close()
    session.run(operation)


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
    if w.mode.graph:
        operations = [optimizer.apply_gradients([(w.tensor(GRAD), w.w)])]
        with w.tf.control_dependencies(operations):
            operations.append(optimizer.apply_gradients([(w.tensor(GRAD), w.w)]))
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


right(
    "in a name scope", TENSORFLOW + "+tf", lambda w: _within(w, w.tf.name_scope("scope") if hasattr(w, "tf") else None)
)
right("in a variable scope", "tf_train+graph", lambda w: _within(w, w.tf.variable_scope("scope")))
right("on a device", "tf_train optimizer_v2 update_step", lambda w: _within(w, w.tf.device("/cpu:0")))
right("after control dependencies", "tf_train optimizer_v2+graph",
      lambda w: _within(w, w.tf.control_dependencies([w.tf.no_op()])))  # fmt: skip


def _within(w, scope):
    if scope is None:
        import tensorflow as tf

        scope = tf.name_scope("scope")
    optimizer = w.sgd()
    with scope:
        result = optimizer.apply_gradients([(w.tensor(GRAD), w.w)])
    w.run(result)
    return w.values()


@right("a tf.function", "tf_train optimizer_v2 update_step keras3+eager+tf")
def _(w):
    optimizer = w.sgd()
    tf = _tf()
    function = tf.function(lambda grad: optimizer.apply_gradients([(grad, w.w)]) and None)
    function(tf.constant(GRAD))
    return w.values()


@right("a gradient of unknown shape", "tf_train optimizer_v2+graph")
def _(w):
    grad = w.tf.placeholder_with_default(w.tf.constant(GRAD), None)
    w.apply(w.sgd(), [(grad, w.w)])
    return w.values()


@right("ids of unknown shape", "tf_train optimizer_v2+graph")
def _(w):
    ids = w.tf.placeholder_with_default(w.tf.constant([0, 1]), None)
    w.apply(w.sgd(), [(w.tf.IndexedSlices(w.tf.constant(GRAD[:2]), ids), w.w)])
    return w.values()


# global_step and name of apply_gradients.


def counted(make):
    return lambda w: w.apply(w.sgd(), [(w.tensor(GRAD), w.w)], global_step=make(w))


for label, make in [
    ("an int", lambda w: 3), ("a text", lambda w: "global_step"), ("a constant", lambda w: w.tf.constant(3)),
    ("an array", lambda w: np.array(3)), ("an object", lambda w: Odd()), ("True", lambda w: True),
    ("a list", lambda w: [0]), ("a variable of bools", lambda w: w.variable(True)),
    ("a text variable", lambda w: w.variable("x")),
]:  # fmt: skip
    wrong("global_step is " + label, "tf_train", counted(make))
wrong("global_step is of another graph", "tf_train+graph", counted(lambda w: w.foreign_variable()))
for dtype in ("int32", "int64", "float32"):
    right("global_step is of " + dtype, "tf_train", lambda w, dtype=dtype: (
        lambda step: w.apply(w.sgd(), [(w.tensor(GRAD), w.w)], global_step=step) and w.values())(
        w.variable(np.array(0, dtype))) and None)  # fmt: skip
right("global_step is a vector", "tf_train", lambda w: counted(lambda w: w.variable(np.zeros(2, "int64")))(w) and None)
right("global_step is the graph's", "tf_train+graph",
      lambda w: counted(lambda w: w.tf.train.get_or_create_global_step())(w) and None)  # fmt: skip


@right("global_step is a plain variable", "tf_train+graph")
def _(w):
    step = w.tf.Variable(0, name="global_step", trainable=False)
    w.apply(w.sgd(), [(w.tensor(GRAD), w.w)], global_step=step)
    return w.values() + [w.read(step)]


right("global_step is None", "tf_train", applied(lambda w: [(w.tensor(GRAD), w.w)], None))
right("global_step and name by position", "tf_train", applied(lambda w: [(w.tensor(GRAD), w.w)], None, "train"))
right("name of the operation", "tf_train optimizer_v2", applied(lambda w: [(w.tensor(GRAD), w.w)], name="train"))
right("name of the operation is None", "tf_train optimizer_v2", applied(lambda w: [(w.tensor(GRAD), w.w)], name=None))
right("name of the operation is unicode", "tf_train optimizer_v2", applied(lambda w: [(w.tensor(GRAD), w.w)], name="t"))
for label, value in [("an int", 7), ("an object", Odd()), ("with a space", "a b")]:
    wrong("name of the operation is " + label, "tf_train optimizer_v2",
          applied(lambda w: [(w.tensor(GRAD), w.w)], name=value))  # fmt: skip
wrong("name of the operation has an underscore first", "tf_train+graph",
      applied(lambda w: [(w.tensor(GRAD), w.w)], name="_train"))  # fmt: skip


@right("name of the operation has an underscore first, in a scope", "tf_train+graph")
def _(w):
    with w.tf.name_scope("scope"):
        w.run(w.sgd().apply_gradients([(w.tensor(GRAD), w.w)], name="_train"))
    return w.values()


# minimize and compute_gradients.


def minimized(loss, **native):
    def call(world):
        keywords = {name: given(world, value) for name, value in native.items()}
        keywords.setdefault("var_list", [world.w])
        world.minimize(world.sgd(), loss(world), **keywords)
        return world.values()[:1]

    return call


for label, make in [
    ("None", lambda w: None), ("a number", lambda w: 1.0), ("a text", lambda w: "loss"), ("an object", lambda w: Odd()),
    ("an array", lambda w: np.float32(1)), ("a list", lambda w: [1.0]), ("a dictionary", lambda w: {"loss": 1.0}),
    ("without the variable", lambda w: w.loss(w.variable(START))), ("a constant", lambda w: w.tensor(1.0)),
]:  # fmt: skip
    wrong("loss is " + label, MINIMIZE, minimized(make))
wrong("loss gives None", MINIMIZE + "+eager", minimized(lambda w: lambda: None))
wrong("loss gives a text", MINIMIZE + "+eager", minimized(lambda w: lambda: "x"))
wrong("loss raises", MINIMIZE + "+eager", minimized(lambda w: raises))
wrong("loss takes an argument", MINIMIZE + "+eager", minimized(lambda w: lambda batch: batch))
wrong("loss is a tensor in eager code", MINIMIZE + "+eager", minimized(lambda w: w.loss()()))
wrong("loss is a function in a graph", "tf_train+graph", minimized(lambda w: lambda: w.loss()))
wrong("loss is an int tensor", "tf_train optimizer_v2+graph", minimized(lambda w: w.tf.cast(w.loss(), "int32")))


@wrong("loss is of another graph", "tf_train optimizer_v2+graph")
def _(w):
    with w.tf.Graph().as_default():
        loss = w.tf.constant(1.0)
    w.minimize(w.sgd(), loss, var_list=[w.w])


for label, make in [
    ("empty", lambda w: []), ("a number", lambda w: 3), ("a text", lambda w: "w"), ("a list of None", lambda w: [None]),
    ("a list of text", lambda w: ["w"]), ("a list of arrays", lambda w: [START]), ("an object", lambda w: Odd()),
    ("a list of tensors", lambda w: [w.tensor(START)]), ("a dictionary", lambda w: {"w": w.w}),
    ("nested", lambda w: [[w.w]]), ("an integer variable", lambda w: [w.variable(START.astype("int32"))]),
    ("of another graph", lambda w: [w.foreign_variable()]),
]:  # fmt: skip
    wrong("var_list is " + label, MINIMIZE, minimized(lambda w: w.loss(), var_list=From(make)))
wrong("var_list is None in eager code", "optimizer_v2 update_step+eager", minimized(lambda w: w.loss(), var_list=None))
wrong("minimize without a loss", MINIMIZE, lambda w: w.sgd().minimize(var_list=[w.w]))
wrong("an unknown keyword of minimize", MINIMIZE, minimized(lambda w: w.loss(), variables=[1]))
for label, value in [("7", 7), ("a text", "x"), ("None", None)]:
    wrong("gate_gradients is " + label, "tf_train", minimized(lambda w: w.loss(), gate_gradients=value))
wrong("grad_loss of another shape", "tf_train optimizer_v2+graph",
      minimized(lambda w: w.loss(), grad_loss=From(lambda w: w.tensor(np.ones(3, "float32")))))  # fmt: skip
wrong("grad_loss is a text", "tf_train optimizer_v2+graph", minimized(lambda w: w.loss(), grad_loss="x"))
wrong("aggregation_method is 77", "tf_train+graph",
      lambda w: w.minimize(w.sgd(), w.loss() + w.loss(), var_list=[w.w], aggregation_method=77))  # fmt: skip
wrong("compute_gradients of None", "tf_train", lambda w: w.sgd().compute_gradients(None, [w.w]))
wrong("compute_gradients of a text", "tf_train", lambda w: w.sgd().compute_gradients("x", [w.w]))
wrong("compute_gradients without a loss", "tf_train update_step", lambda w: w.sgd().compute_gradients())
wrong("get_gradients of None", "optimizer_v2 get_updates+graph", lambda w: w.sgd().get_gradients(None, [w.w]))
wrong("get_gradients of a text", "optimizer_v2 get_updates+graph", lambda w: w.sgd().get_gradients("x", [w.w]))
wrong("get_gradients of no params", "optimizer_v2 get_updates+graph", lambda w: w.sgd().get_gradients(w.loss(), None))
wrong("get_gradients without arguments", "optimizer_v2 get_updates", lambda w: w.sgd().get_gradients())

right("var_list is a tuple", MINIMIZE, minimized(lambda w: w.loss(), var_list=From(lambda w: (w.w,))))
right("var_list is one variable", "tf_train+graph", minimized(lambda w: w.loss(), var_list=From(lambda w: w.w)))
right("var_list is a dict view", MINIMIZE, minimized(lambda w: w.loss(), var_list=From(lambda w: {"w": w.w}.values())))
right("var_list is a generator", MINIMIZE, minimized(lambda w: w.loss(), var_list=From(lambda w: (v for v in [w.w]))))
right("var_list is an array", "tf_train+graph", minimized(
    lambda w: w.loss(), var_list=From(lambda w: w.tf.trainable_variables())))  # fmt: skip
right(
    "var_list is a function",
    "optimizer_v2+eager",
    minimized(lambda w: w.loss(), var_list=From(lambda w: lambda: [w.w])),
)
right("var_list is None", "tf_train+graph", minimized(lambda w: w.loss(), var_list=None))
right("var_list names a variable twice", "tf_train+graph", lambda w: minimized(
    lambda w: w.loss(), var_list=From(lambda w: [w.w, w.w]))(w) and None)  # fmt: skip
right("loss is a vector", MINIMIZE, minimized(lambda w: _reduced(w)))
right("loss is float64", MINIMIZE, minimized(lambda w: _cast(w)))
right("loss by keyword", MINIMIZE, lambda w: w.run(w.sgd().minimize(loss=w.loss(), var_list=[w.w])) and None)
right("minimize by position", "tf_train", lambda w: w.run(w.sgd().minimize(w.loss(), None, [w.w])) and None)
right(
    "minimize by position (Keras)", "optimizer_v2 update_step", lambda w: w.minimize(w.sgd(), w.loss(), [w.w]) and None
)
for gate in (0, 1, 2):
    right("gate_gradients is {}".format(gate), "tf_train+graph", minimized(lambda w: w.loss(), gate_gradients=gate))
right("aggregation_method is 2", "tf_train+graph", minimized(lambda w: w.loss(), aggregation_method=2))
right("colocate_gradients_with_ops", "tf_train+graph", minimized(lambda w: w.loss(), colocate_gradients_with_ops=True))
right("grad_loss", "tf_train optimizer_v2+graph",
      minimized(lambda w: w.loss(), grad_loss=From(lambda w: w.tensor(np.float32(2)))))  # fmt: skip
right("name of minimize", "tf_train optimizer_v2", minimized(lambda w: w.loss(), name="train"))
right("name of minimize is None", "tf_train optimizer_v2", minimized(lambda w: w.loss(), name=None))
right("loss is a partial", MINIMIZE + "+eager", minimized(lambda w: functools.partial(w.loss())))
right("pairs of compute_gradients", "tf_train", lambda w: _in_two_calls(w))
right("pairs of compute_gradients, changed", "tf_train", lambda w: _in_two_calls(w, lambda pairs: [
    (grad * 2, variable) for grad, variable in pairs]))  # fmt: skip
right("get_gradients", "get_updates optimizer_v2+graph",
      lambda w: w.sgd().get_gradients(w.loss(), [w.w]) and None)  # fmt: skip


def _reduced(w):
    tf = w.tf
    loss = lambda: tf.reduce_sum(w.w * GRAD, axis=1)  # noqa: E731
    return loss() if w.mode.graph else loss


def _cast(w):
    tf = w.tf
    loss = lambda: tf.cast(tf.reduce_sum(w.w * GRAD), "float64")  # noqa: E731
    return loss() if w.mode.graph else loss


def _in_two_calls(w, change=list):
    optimizer = w.sgd()
    w.apply(optimizer, change(optimizer.compute_gradients(w.loss(), [w.w])))
    return w.values()


# get_updates of Keras 2.

for label, make in [
    ("None", lambda w: None), ("a number", lambda w: 1.0), ("a text", lambda w: "loss"), ("an object", lambda w: Odd()),
    ("without the variable", lambda w: w.loss(w.variable(START))),
]:  # fmt: skip
    wrong("get_updates, loss is " + label, "get_updates", lambda w, make=make: w.updates(w.sgd(), make(w), [w.w]))
for label, make in [
    ("None", lambda w: None), ("a number", lambda w: 3), ("a text", lambda w: "w"), ("of None", lambda w: [None]),
    ("of arrays", lambda w: [START]), ("of text", lambda w: ["w"]), ("of tensors", lambda w: [w.tensor(START)]),
    ("an integer variable", lambda w: [w.variable(START.astype("int32"))]), ("nested", lambda w: [[w.w]]),
]:  # fmt: skip
    wrong("get_updates, params are " + label, "get_updates",
          lambda w, make=make: w.updates(w.sgd(), w.loss, make(w)))  # fmt: skip
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


HAS_SLOTS = "numpy tf_train optimizer_v2"
wrong("get_slot of an unknown slot", "numpy optimizer_v2", lambda w: stepped(w).get_slot(w.w, "momenta"))
wrong("get_slot of None", "numpy optimizer_v2", lambda w: stepped(w).get_slot(None, "m"))
wrong("get_slot without a name", HAS_SLOTS, lambda w: stepped(w).get_slot(w.w))
wrong("get_slot of a number", "numpy optimizer_v2", lambda w: stepped(w).get_slot(3, "m"))
wrong("get_slot named by a list", HAS_SLOTS, lambda w: stepped(w).get_slot(w.w, ["m"]))
WITH_WEIGHTS = "optimizer_v2 get_updates"
for label, weights in [
    ("too few", lambda v: v[:1]), ("too many", lambda v: v + v), ("None", lambda v: None), ("a number", lambda v: 3),
    ("a text", lambda v: "weights"), ("of other shapes", lambda v: [np.ones(7)] * len(v)), ("empty", lambda v: []),
    ("of text", lambda v: ["x"] * len(v)), ("of None", lambda v: [None] * len(v)),
    ("of objects", lambda v: [Odd()] * len(v)),
    ("complex", lambda v: [np.asarray(a) * 1j for a in v]), ("a dictionary", lambda v: dict(enumerate(v))),
]:  # fmt: skip
    wrong("set_weights, " + label, WITH_WEIGHTS,
          lambda w, weights=weights: (lambda o: o.set_weights(weights(o.get_weights())))(stepped(w)))  # fmt: skip
    wrong("set_weights of the new style, " + label, NEW_STYLE,
          lambda w, weights=weights: (lambda o: o.set_weights(weights(_arrays(w, o))))(stepped(w)))  # fmt: skip
wrong("set_weights before a step", WITH_WEIGHTS, lambda w: w.make("Adam").set_weights([np.ones((4, 3))] * 5))
wrong("set_weights without an argument", KERAS, lambda w: stepped(w).set_weights())


def _arrays(w, optimizer):
    variables = optimizer.variables
    return [w.read(variable) for variable in (variables() if callable(variables) else variables)]


right("set_weights of get_weights", WITH_WEIGHTS, lambda w: (lambda o: o.set_weights(o.get_weights()))(stepped(w)))
right("set_weights of a tuple", WITH_WEIGHTS, lambda w: (lambda o: o.set_weights(tuple(o.get_weights())))(stepped(w)))
right("set_weights of nested lists", WITH_WEIGHTS, lambda w: (lambda o: o.set_weights(
    [np.asarray(a).tolist() for a in o.get_weights()]))(stepped(w)))  # fmt: skip
right("set_weights of float64", WITH_WEIGHTS, lambda w: (lambda o: o.set_weights(
    [np.asarray(a, "float64") if np.ndim(a) else a for a in o.get_weights()]))(stepped(w)))  # fmt: skip
right("set_weights of the new style", NEW_STYLE, lambda w: (lambda o: o.set_weights(_arrays(w, o)))(stepped(w)))
right("set_weights of the new style, a tuple", NEW_STYLE,
      lambda w: (lambda o: o.set_weights(tuple(_arrays(w, o))))(stepped(w)))  # fmt: skip
right("set_weights of the new style, lists", NEW_STYLE, lambda w: (lambda o: o.set_weights(
    [a.tolist() for a in _arrays(w, o)]))(stepped(w)))  # fmt: skip
right("get_slot after a step", HAS_SLOTS, lambda w: w.read(stepped(w).get_slot(w.w, "m")) is None)
right("get_slot_names", "tf_train optimizer_v2", lambda w: stepped(w).get_slot_names() and None)
right("variables", "tf_train", lambda w: stepped(w).variables() and None)
right("get_name", "tf_train", lambda w: w.sgd().get_name() and None)


def configured(change, rule="SGD"):
    """from_config of a changed config."""

    def call(w):
        optimizer = w.make(rule, learning_rate=0.25)
        return w.step(w.rule(rule).from_config(change(optimizer.get_config()))) or w.values()

    return call


for label, change in [
    ("None", lambda c: None), ("a text", lambda c: "config"), ("a list", lambda c: [1]), ("a number", lambda c: 3),
    ("an unknown key", lambda c: dict(c, foo=1)), ("a learning rate of None", lambda c: dict(c, learning_rate=None)),
    ("a learning rate of text", lambda c: dict(c, learning_rate="fast")), ("a name of 7", lambda c: dict(c, name=7)),
    ("a learning rate of a list", lambda c: dict(c, learning_rate=[0.1, 0.2])),
    ("a learning rate of a dictionary", lambda c: dict(c, learning_rate={"a": 1})),
    ("a schedule of no known class", lambda c: dict(c, learning_rate={"class_name": "Foo", "config": {}})),
    ("a clipnorm of text", lambda c: dict(c, clipnorm="x")), ("an object", lambda c: Odd()),
    ("pairs", lambda c: list(c.items())),
]:  # fmt: skip
    where = KERAS if "name" not in label and "schedule" not in label else "optimizer_v2 update_step keras3"
    where = where.replace("get_updates ", "") if "learning rate" in label else where
    wrong("from_config of " + label, where, configured(change))
wrong("from_config without an argument", KERAS, lambda w: w.rule("SGD").from_config())
right("from_config of get_config", KERAS, configured(lambda c: c))
right("from_config of an OrderedDict", KERAS, configured(OrderedDict))
right("from_config through JSON", KERAS, configured(lambda c: json.loads(json.dumps(c))))
right("from_config of a changed learning rate", "optimizer_v2 update_step keras3",
      configured(lambda c: dict(c, learning_rate=0.5)))  # fmt: skip
right("from_config of an int learning rate", "optimizer_v2 update_step keras3",
      configured(lambda c: dict(c, learning_rate=1)))  # fmt: skip
right("from_config with another name", "optimizer_v2 update_step keras3", configured(lambda c: dict(c, name="other")))
right(
    "get_config into JSON",
    KERAS,
    lambda w: json.dumps(w.make("Adam", learning_rate=np.float32(0.1)).get_config()) and None,
)
right("a config is a copy", KERAS, lambda w: w.sgd().get_config().clear())
right("optimizers.get of an instance", KERAS, lambda w: w.module.optimizers.get(w.sgd()) and None)


# build, apply and update_step of the new style.

for label, make in [
    ("None", lambda w: None), ("a number", lambda w: 3), ("a text", lambda w: "w"), ("of None", lambda w: [None]),
    ("of arrays", lambda w: [START]), ("of text", lambda w: ["w"]), ("an object", lambda w: Odd()),
    ("nested", lambda w: [[w.w]]),
]:  # fmt: skip
    wrong("build on " + label, NEW_STYLE, lambda w, make=make: w.make("Adam").build(make(w)))
wrong("build without variables", NEW_STYLE, lambda w: w.sgd().build())
wrong("a step on other variables", NEW_STYLE,
      lambda w: (lambda o: o.build([w.variable(START)]) or w.step(o))(w.make("Adam")))  # fmt: skip
wrong("apply of too few gradients", "keras3", lambda w: w.sgd().apply([w.tensor(GRAD)], [w.w, w.variable(START)]))
wrong("apply of too many gradients", "keras3", lambda w: w.sgd().apply([w.tensor(GRAD)] * 2, [w.w]))
wrong("apply before build", "keras3", lambda w: w.sgd().apply([w.tensor(GRAD)]))
wrong("apply of None", "keras3", lambda w: w.sgd().apply(None, [w.w]))
wrong("apply of a number", "keras3", lambda w: w.sgd().apply(3, [w.w]))
wrong("apply without arguments", "keras3", lambda w: w.sgd().apply())
wrong("apply to a number", "keras3", lambda w: w.sgd().apply([w.tensor(GRAD)], 3))
wrong("apply of text", "keras3", lambda w: w.sgd().apply(["x"], [w.w]))
wrong(
    "stateless_apply before build", "keras3", lambda w: w.sgd().stateless_apply([], [w.tensor(GRAD)], [w.tensor(START)])
)
wrong("stateless_apply of too few values", "keras3", lambda w: (lambda o: o.build([w.w]) or o.stateless_apply(
    [], [w.tensor(GRAD)], [w.tensor(START)]))(w.sgd()))  # fmt: skip
wrong("exclude_from_weight_decay of a number", NEW_STYLE, lambda w: w.sgd().exclude_from_weight_decay(var_list=3))
wrong("exclude_from_weight_decay after build", NEW_STYLE, lambda w: (lambda o: o.build([w.w]) or (
    o.exclude_from_weight_decay(var_list=[w.w])))(w.make("SGD", weight_decay=0.1)))  # fmt: skip
right("build on a tuple", NEW_STYLE, lambda w: (lambda o: o.build((w.w,)) or w.step(o) and None)(w.make("Adam")))
right("build on a dict view", "update_step", lambda w: w.make("Adam").build(list({"w": w.w}.values())))
right(
    "build twice", NEW_STYLE, lambda w: (lambda o: (o.build([w.w]), o.build([w.w]), w.step(o)) and None)(w.make("Adam"))
)
right("apply by position", "keras3", lambda w: w.sgd().apply([w.tensor(GRAD)], [w.w]) or w.values())
right("apply of tuples", "keras3", lambda w: w.sgd().apply((w.tensor(GRAD),), (w.w,)) or w.values())
right("apply by keywords", "keras3",
      lambda w: w.sgd().apply(grads=[w.tensor(GRAD)], trainable_variables=[w.w]) or w.values())  # fmt: skip
right(
    "apply after build",
    "keras3",
    lambda w: (lambda o: o.build([w.w]) or o.apply([w.tensor(GRAD)]))(w.sgd()) or w.values(),
)
right("stateless_apply of tuples", "keras3", lambda w: (lambda o: o.build([w.w]) or [w.read(value) for value in (
    o.stateless_apply([v.value for v in o.variables], (w.tensor(GRAD),), (w.w.value,))[0])])(w.sgd()))  # fmt: skip
right("exclude_from_weight_decay by name", NEW_STYLE, lambda w: (lambda o: o.exclude_from_weight_decay(
    var_names=["w"]) or w.step(o) and None)(w.make("SGD", weight_decay=0.1)))  # fmt: skip


# Models.


def model(w):
    layers = w.module.layers
    return w.module.Sequential([layers.Dense(1, input_shape=(2,))])


MODELS = "get_updates update_step optimizer_v2 keras3"


def has_models(w):
    return hasattr(w.module, "Sequential")


@right("compile twice", MODELS + "+eager")
def _(w):
    if has_models(w):
        net, optimizer = model(w), w.sgd()
        for _ in range(2):
            net.compile(optimizer, "mse")
            net.train_on_batch(np.ones((2, 2), "float32"), np.ones((2, 1), "float32"))


@wrong("compile with the class", MODELS + "+eager")
def _(w):
    if not has_models(w):
        raise everstep.errors.UnsupportedError("this module has no models")
    model(w).compile(w.rule("SGD"), "mse")


# Our own API, for everstep alone.


def numpy_state():
    weights = np.array(START)
    optimizer = everstep.optimizers.Adam(0.5).bind(np)
    optimizer.apply_gradients([(GRAD, weights)])
    return optimizer, weights, everstep.capture(optimizer, {"w": weights})


for label, change in [
    ("a tuple", lambda w: (w,)), ("a generator", lambda w: (v for v in [w])),
    ("an OrderedDict", lambda w: OrderedDict(w=w)),
    ("a dictionary", lambda w: {"w": w}), ("a dict view", lambda w: {"w": w}.values()), ("a list", lambda w: [w]),
]:  # fmt: skip
    right("capture of " + label, APPLY + "+eager", lambda w, change=change: (
        everstep.capture(stepped(w), change(w.w)) and None) if w.ours else None)  # fmt: skip

    @right("restore to " + label, APPLY + "+eager")
    def _(w, change=change):
        if w.ours:
            optimizer = stepped(w)
            state = everstep.capture(optimizer, change(w.w))
            everstep.restore(optimizer, state, change(w.w))


def paths(folder):
    path = os.path.join(folder, "state.npz")
    found = [("str", path), ("unicode", "" + path), ("bytes", path.encode("ascii"))]
    if sys.version_info >= (3, 6):
        import pathlib

        found.append(("pathlib", pathlib.Path(path)))
    return found


def saved(save, load):
    def call(w):
        state = numpy_state()[2]
        folder = tempfile.mkdtemp()
        try:
            for _, path in paths(folder):
                save(state, path)
                assert load(path).updates == 1
        finally:
            shutil.rmtree(folder)

    return call


right("paths of save and load", "numpy", saved(lambda s, path: s.save(path), everstep.State.load))
right("paths of read_checkpoint", "numpy", saved(lambda s, path: s.save(path), everstep.read_checkpoint))
right("paths of write_checkpoint", "numpy",
      saved(lambda s, path: everstep.write_checkpoint(s, path, "everstep"), everstep.read_checkpoint))  # fmt: skip
for label, path in [
    ("None", None),
    ("a number", 3.5),
    ("a list", ["x"]),
    ("an object", Odd()),
    ("a missing file", "/no/x"),
]:
    wrong("load of " + label, "numpy", lambda w, path=path: everstep.State.load(path))
    wrong("read_checkpoint of " + label, "numpy", lambda w, path=path: everstep.read_checkpoint(path))
    wrong("save to " + label, "numpy", lambda w, path=path: numpy_state()[2].save(path))
    wrong("write_checkpoint to " + label, "numpy",
          lambda w, path=path: everstep.write_checkpoint(numpy_state()[2], path, "everstep"))  # fmt: skip
for label, optimizer in [("None", None), ("a text", "adam"), ("an object", Odd()), ("a class", Odd)]:
    wrong("capture with an optimizer that is " + label, "numpy",
          lambda w, optimizer=optimizer: everstep.capture(optimizer, [w.w]))  # fmt: skip
    wrong("restore with an optimizer that is " + label, "numpy",
          lambda w, optimizer=optimizer: everstep.restore(optimizer, numpy_state()[2], [w.w]))  # fmt: skip
    wrong("restore of a state that is " + label, APPLY + "+eager", lambda w, state=optimizer: (
        everstep.restore(w.sgd(), state, [w.w]) if w.ours else raises()))  # fmt: skip
for label, make in [
    ("None", lambda w: None), ("a number", lambda w: 3), ("a text", lambda w: "w"), ("of None", lambda w: [None]),
    ("of objects", lambda w: [Odd()]), ("one variable twice", lambda w: [w.w, w.w]), ("empty", lambda w: []),
]:  # fmt: skip
    wrong("capture of variables that are " + label, APPLY + "+eager", lambda w, make=make: (
        everstep.capture(stepped(w), make(w)) if w.ours else raises()))  # fmt: skip
for label, make in [
    ("accumulate of a text", lambda: everstep.accumulate("sgd", 2)),
    ("accumulate of None", lambda: everstep.accumulate(None)),
    ("accumulate of 2.5 steps", lambda: everstep.accumulate(everstep.optimizers.SGD(), 2.5)),
    ("clip by text", lambda: everstep.clip(everstep.optimizers.SGD(), norm="1")),
    ("clip by a list", lambda: everstep.clip(everstep.optimizers.SGD(), norm=[1.0])),
    ("lookahead of 0 steps", lambda: everstep.lookahead(everstep.optimizers.SGD(), 0)),
    ("partition of None", lambda: everstep.partition(None)), ("partition of a text", lambda: everstep.partition("x")),
    ("a schedule from text", lambda: everstep.ExponentialDecay("x")),
    ("a schedule of unsorted boundaries", lambda: everstep.PiecewiseConstantDecay([5, 2], [1.0, 2.0, 3.0])),
    ("a schedule of too few values", lambda: everstep.PiecewiseConstantDecay([2, 5], [1.0, 2.0])),
    ("a schedule of text boundaries", lambda: everstep.PiecewiseConstantDecay(["a"], [1.0, 2.0])),
    ("Warmup of None", lambda: everstep.Warmup(None, 5)),
    ("CosineDecay of 0 steps", lambda: everstep.CosineDecay(0.1, 0)),
    ("PolynomialDecay of negative steps", lambda: everstep.PolynomialDecay(0.1, -5)),
    ("sparse of another word", lambda: everstep.optimizers.SGD(sparse="row")),
    ("sparse of a list", lambda: everstep.optimizers.SGD(sparse=["rows"])),
    ("dense_ok of text", lambda: everstep.optimizers.SGD(dense_ok="yes")),
    ("replace of an unknown name", lambda: everstep.optimizers.SGD().replace(foo=1)),
    ("a definition from_config of None", lambda: everstep.Definition.from_config(None)),
    ("a definition from_config of a text", lambda: everstep.Definition.from_config("SGD")),
    ("from_config of a wrong value",
     lambda: everstep.Definition.from_config({"definition": "SGD", "learning_rate": "x"})),
    ("from_native of None", lambda: everstep.from_native(None)),
    ("from_native of a text", lambda: everstep.from_native("x")),
    ("bind to None", lambda: everstep.optimizers.SGD().bind(None)),
    ("bind to a text", lambda: everstep.optimizers.SGD().bind("numpy")),
    ("bind without a module", lambda: everstep.optimizers.SGD().bind()),
    ("bind to a number", lambda: everstep.optimizers.SGD().bind(3)),
    ("bind with learning_rate", lambda: everstep.optimizers.Adam(1e-3).bind(np, learning_rate=0.1)),
    ("bind with beta_1", lambda: everstep.optimizers.Adam(1e-3).bind(np, beta_1=0.1)),
    ("an IndexedSlices of text", lambda: everstep.IndexedSlices("x", [0])),
    ("an IndexedSlices of None", lambda: everstep.IndexedSlices(None, None)),
    ("an IndexedSlices of a scalar", lambda: everstep.IndexedSlices(1.0, 0)),
]:  # fmt: skip
    wrong(label, "numpy", lambda w, make=make: make())
