"""Runs one call on a stock optimizer and on ours: `outcome(call, way, ours)`, then `judge(call, stock, ours)`.

A call is a function of a `Side`: it makes optimizers with `side.make(...)`, which is a stock class on one side and our
native class on the other, and everything else is the same.
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
# A tf.function and a jitted function make the same checks as eager mode.
WAYS = [way for way in harness.all_ways() if not way.name.endswith(("function", "jit"))]

_TRAIN_CLASSES = {
    "SGD": "GradientDescentOptimizer", "Momentum": "MomentumOptimizer", "Adam": "AdamOptimizer",
    "Adagrad": "AdagradOptimizer", "RMSprop": "RMSPropOptimizer",
}  # fmt: skip
_TRAIN_NAMES = {"beta_1": "beta1", "beta_2": "beta2", "nesterov": "use_nesterov", "rho": "decay"}


class Side(object):
    """Stock or ours in one way: a world with a variable `w`, and `make`, which differs between the two.

    Args:
        way: of everstep.testing.
        ours: whether optimizers are ours.
        definition: what `sgd` binds, if it is ours.
        steps: number of right steps that each optimizer takes as soon as it is made.
    """

    def __init__(self, way, ours, definition=None, steps=0):
        self.way, self.ours, self.definition, self.steps = way, ours, definition, steps
        self.graph_mode = harness.in_graph(way)
        self.world = way.world(way.module)
        self.variables = []
        self.made = []  # [optimizer, a function of another side that makes the same, its right steps on w]
        self.w = self.variable(START)
        self.expected, self.known = START, self.collected()  # w's value and the graph's collections after right steps

    def __getattr__(self, name):
        return getattr(self.world, name)

    def rule(self, name):
        if self.ours:
            return getattr(everstep.optimizers, name).native_class(self.module)
        return getattr(self.way.stock, name)

    def make(self, rule="SGD", *args, **keywords):
        """Returns an optimizer. `keywords` are spelled as everstep spells them; unknown ones are handed on."""
        if self.ours:
            return self._made(lambda side: side.rule(rule)(*args, **keywords))
        if self.way.target == "tf_train":
            if rule == "SGD" and set(keywords) & {"momentum", "nesterov"}:
                rule = "Momentum"
            rule, keywords = _TRAIN_CLASSES[rule], {_TRAIN_NAMES.get(key, key): each for key, each in keywords.items()}
        elif self.way.target == "get_updates" and "learning_rate" in keywords:
            code = self.rule(rule).__init__.__code__
            if "lr" in code.co_varnames[: code.co_argcount]:  # Keras before 2.3
                keywords["lr"] = keywords.pop("learning_rate")
        return self.rule(rule)(*args, **keywords)

    def _made(self, make):
        self.made.append([make(self), make, 0])
        for _ in range(self.steps):
            self.step(self.made[-1][0])
        self.known = self.collected()
        return self.made[-1][0]

    def bind(self, definition, **native):
        """Returns a definition, bound. On our side alone."""
        return self._made(lambda side: definition.bind(side.module, **native))

    def sgd(self):
        return self.bind(self.definition) if self.definition else self.make("SGD", learning_rate=0.5)

    @contextlib.contextmanager
    def inside(self):
        before = self.graph and self.tf.get_default_graph()
        with self.world.inside():
            yield
        if self.graph and self.tf.get_default_graph() is not before:
            assert not self.ours, "the call left its graph as the default one"
            # Stock in TF 1.4 and 1.5 stays in the graph if its `name_scope` fails.
            from tensorflow.python.framework import ops

            del ops._default_graph_stack.stack[:]

    def variable(self, value, **keywords):
        """Returns a new variable, remembered by `values`."""
        self.variables.append(self.world.variable(np.asarray(value), **keywords))
        return self.variables[-1]

    def foreign_variable(self):
        """Returns something that this target cannot train, but another could."""
        if not self.graph:
            return [1.0, 2.0] if self.way.target == "arrays" else np.array(START)
        with self.tf.Graph().as_default():
            return self.tf.get_variable("other", initializer=self.tf.constant(START), use_resource=self.resource)

    def loss(self, variable=None):
        return self.world.loss([(GRAD, self.w if variable is None else variable)])

    def apply(self, optimizer, pairs, *args, **keywords):
        """Calls `apply_gradients`, and in a graph runs the operation."""
        self.world.apply(optimizer, pairs, *args, **keywords)
        self.expected = self.read(self.w)

    def minimize(self, optimizer, loss, *args, **keywords):
        self.run(optimizer.minimize(loss, *args, **keywords))

    def step(self, optimizer, variables=None):
        """Takes one right step, on every target."""
        variables = variables or [self.w]
        self.world.step(optimizer, [(np.full_like(self.read(each), 0.5), each) for each in variables])
        self.expected, self.known = self.read(self.w), self.collected()
        for made in self.made:
            made[2] += made[0] is optimizer

    def values(self):
        return [self.read(variable) for variable in self.variables]

    def unchanged(self):
        return bool((self.read(self.w) == self.expected).all())

    def collected(self):
        """Returns the names of what is in the graph's collections, without the caller's own variables."""
        callers = set(map(id, self.variables))
        keys = ("variables", "train_op", "trainable_variables") if self.graph else ()
        return [[each.name for each in self.graph.get_collection_ref(key) if id(each) not in callers] for key in keys]

    def state(self, optimizer):
        """Returns all that an optimizer has learned, as text."""
        variables = {"w{}".format(place): each for place, each in enumerate(self.floats())}
        state = everstep.capture(optimizer, variables, session=self.session, weights=True)
        slots = {name: {slot: value.tolist() for slot, value in each.items()} for name, each in state.slots.items()}
        weights = {name: value.tolist() for name, value in state.variables.items()}
        return repr((state.updates, state.steps, state.pending, dict(state.scalars), sorted(slots.items()), weights))

    def floats(self):
        """Returns the variables that can be trained."""
        return [each for each in self.variables if "float32" in str(each.dtype)]


# Calls that abort the process on stock: (in the call's name, in the way's name).
ABORTS = [
    # tf.train casts its rate to the gradient's dtype, and the kernel reads a variable of that dtype.
    (re.compile("gradient is (an? )?(NumPy )?(complex|float64|float16|int|bool)|(complex|int|bool) rows"), "tf_train"),
    (re.compile("variable is (text|of )"), "tf_train"),
]


class Aborted(Exception):
    """Stands for a stock optimizer that aborts the process."""


# error: what was raised, or None; value: the numbers that the call returned; changed: whether an error of ours left
# another w behind; by_caller: whether the error was raised in the call's own code.
Outcome = namedtuple("Outcome", "error value changed by_caller")


def outcome(call, way, ours):
    """Makes a call and returns its `Outcome`; None on the side of stock, if that has no such call."""
    if not ours and (way.stock is None or not call.has_stock):
        return None
    if not ours and any(name.search(call.name) and way.name.startswith(prefix) for name, prefix in ABORTS):
        return Outcome(Aborted(), None, False, False)
    side = Side(way, ours)
    error, value, by_caller = caught(call, side)
    with side.inside():
        changed = isinstance(error, EverstepError) and not side.unchanged()
    side.close()
    return Outcome(error, value if isinstance(value, list) else None, changed, by_caller)


def caught(call, side):
    """Makes a call, and returns (its error or None, what it returned, whether its own code raised the error)."""
    with warnings.catch_warnings(), side.inside():
        warnings.simplefilter("ignore")
        try:
            return None, call.function(side), False
        except Exception as error:
            place = traceback.extract_tb(sys.exc_info()[2])[-1][0]
            return error, None, os.path.basename(place).endswith(("calls.py", "worlds.py"))


def goes_on(call, way, definition, steps):
    """Makes a wrong call of ours, and then a right step, as a clean run does.

    Returns what was in the graph's collections before the right step, and the state after it, of both runs; None if the
    call made no optimizer, or one that cannot take a step, or may have built a graph's step.
    """
    side = Side(way, True, definition, steps)
    error, _, _ = caught(call, side)
    if error is None or not side.made or side.graph_mode and not isinstance(error, EverstepError):
        return None
    failed, make, steps = side.made[-1]
    collected, known = side.collected(), side.known
    others = [np.array(side.read(each)) for each in side.variables[1:]]
    state = _after_a_step(side, lambda side: failed, 0, steps)
    clean = Side(way, True)  # after the other has ended: each Keras has one session
    for each in others:
        clean.variable(each)
    expected = _after_a_step(clean, make, steps, steps)
    return None if isinstance(expected, Exception) else ((collected, state), (known, expected))


def _after_a_step(side, make, before, all_before):
    """Returns the state after some steps on w and one on all variables, or the error of an optimizer that is wrong."""
    try:
        with side.inside():
            optimizer = make(side)
            for _ in range(before):
                side.step(optimizer)
            side.step(optimizer, None if all_before else side.floats())
            return side.state(optimizer)
    except Exception as error:
        return error
    finally:
        side.close()


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
