"""Stock optimizers, how to train with one, and where everstep does not follow it; for tests, the stock table too."""

from __future__ import absolute_import, division, print_function

import warnings

import everstep
import harness
from crafted_files import tensorflow, tf1
from everstep.compat.stock import from_native as from_native_room  # noqa: F401
from everstep.compat.stock.lookup import FRAMEWORKS, entry_for, entry_named, entry_of_class  # noqa: F401
from everstep.compat.stock.registry import find_name, spelled  # noqa: F401
from everstep.compat.stock.table import STOCK, UNSUPPORTED  # noqa: F401
from everstep.testing.training import KINDS, make_batches
from test_battery import start_values

BOUND = 4e-6
KIND_OF = {"dense": "dense", "bias": "dense", "single": "dense", "unique": "unique", "duplicates": "duplicates"}

# (stock class, learning rate, other arguments) on each kind of API. epsilon=1e-3 is large, so that its place shows.
TRAIN = [
    ("GradientDescentOptimizer", 0.1, {}), ("MomentumOptimizer", 0.1, {"momentum": 0.9}),
    ("MomentumOptimizer", 0.1, {"momentum": 0.9, "use_nesterov": True}), ("RMSPropOptimizer", 0.1, {"epsilon": 1e-3}),
    ("RMSPropOptimizer", 0.1, {"momentum": 0.9, "centered": True, "epsilon": 1e-3}), ("AdagradOptimizer", 1.0, {}),
    ("AdadeltaOptimizer", 3.0, {"epsilon": 1e-3}), ("AdamOptimizer", 0.1, {"epsilon": 1e-3}),
    ("FtrlOptimizer", 1.0, {"l1_regularization_strength": 0.01, "l2_regularization_strength": 0.001}),
    ("FtrlOptimizer", 1.0, {"learning_rate_power": -0.4, "l2_shrinkage_regularization_strength": 0.001}),
    ("ProximalAdagradOptimizer", 1.0, {"l1_regularization_strength": 0.01, "l2_regularization_strength": 0.001}),
    ("ProximalGradientDescentOptimizer", 0.1, {"l1_regularization_strength": 0.1, "l2_regularization_strength": 0.01}),
    ("AdagradDAOptimizer", 1.0, {}),
    ("AdagradDAOptimizer", 1.0, {"l1_regularization_strength": 0.01, "l2_regularization_strength": 0.001})]
CONTRIB = [
    ("LazyAdamOptimizer", 0.1, {"epsilon": 1e-3}), ("AdamGSOptimizer", 0.1, {"epsilon": 1e-3}),
    ("LazyAdamGSOptimizer", 0.1, {"epsilon": 1e-3}), ("RegAdagradOptimizer", 1.0, {}),
    ("AdaMaxOptimizer", 0.1, {"epsilon": 1e-3}), ("NadamOptimizer", 0.1, {"epsilon": 1e-3}),
    ("AdamWOptimizer", 0.1, {"weight_decay": 0.001, "epsilon": 1e-3}),
    ("MomentumWOptimizer", 0.1, {"weight_decay": 0.001, "momentum": 0.9}),
    ("AddSignOptimizer", 0.1, {"alpha": 1.5, "beta": 0.8}), ("PowerSignOptimizer", 0.1, {"base": 2.0, "beta": 0.8}),
    ("LARSOptimizer", 1.0, {"weight_decay": 0.01, "eeta": 0.1, "epsilon": 1e-3}),
    ("LARSOptimizer", 1.0, {"momentum": 0.5, "eeta": 0.1, "use_nesterov": True, "skip_list": ["single", "bia"]})]
KERAS = [("SGD", 0.1, {}), ("SGD", 0.1, {"momentum": 0.9}), ("SGD", 0.1, {"momentum": 0.9, "nesterov": True}),
         ("RMSprop", 0.1, {"epsilon": 1e-3}), ("RMSprop", 0.1, {"epsilon": 1e-3, "centered": True}),
         ("RMSprop", 0.1, {"epsilon": 1e-3, "momentum": 0.9}),
         ("RMSprop", 0.1, {"epsilon": 1e-3, "momentum": 0.9, "centered": True}), ("Adagrad", 1.0, {"epsilon": 1e-3}),
         ("Adadelta", 3.0, {"epsilon": 1e-3}), ("Adam", 0.1, {"epsilon": 1e-3}), ("Adam", 0.1, {"amsgrad": True}),
         ("Adamax", 0.1, {"epsilon": 1e-3}), ("Nadam", 0.1, {"epsilon": 1e-3}),
         ("Ftrl", 1.0, {"l1_regularization_strength": 0.01, "l2_regularization_strength": 0.001, "beta": 0.1}),
         ("Ftrl", 1.0, {"learning_rate_power": -0.4, "l2_shrinkage_regularization_strength": 0.001}),
         ("AdamW", 0.1, {"weight_decay": 0.1, "epsilon": 1e-3}), ("Lion", 0.1, {"beta_1": 0.8, "weight_decay": 0.01}),
         ("Adafactor", 0.1, {"epsilon_1": 1e-3, "clip_threshold": 0.9}),
         ("Adafactor", 0.1, {"relative_step": False, "weight_decay": 0.01}),
         ("Lamb", 0.1, {"epsilon": 1e-3, "weight_decay": 0.01}),
         ("ScheduleFreeAdamW", 0.1, {"epsilon": 1e-3, "warmup_steps": 10}),
         ("Muon", 0.1, {"epsilon": 1e-3, "weight_decay": 0.1, "adam_weight_decay": 0.01, "adam_lr_ratio": 0.5}),
         ("Muon", 0.1, {"exclude_layers": ["sing", "kern"], "rms_rate": None, "nesterov": False, "weight_decay": None})]


# Known differences from stock: (prefix of the way's name, stock classes or None for all that square gradients, kinds
# of gradients, largest difference, cause).
RACE = "stock get_updates reads its counter before or after moving it, at random"
ROUNDING = "stock rounds 1 - beta from a double and beta^t from a float32, which for 0.999 are 1.3e-5 apart"
AVERAGE = "stock takes its average from a slot that it has changed already"
EXCEPTIONS = [
    ("get_updates", ("Adam", "Adamax", "Nadam"), ("dense", "unique", "duplicates"), 0.5, RACE),
    ("tf_train", ("AdamWOptimizer",), ("unique", "duplicates"), 0.1, "stock decays the rows present, but moves all"),
    ("tf_train", ("LARSOptimizer",), ("unique", "duplicates"), 5.0, "with sparse gradients stock does plain momentum"),
    ("update_step", ("Adam", "AdamW"), ("dense", "unique", "duplicates"), 1e-5, ROUNDING),
    ("keras3", ("Adam", "AdamW", "Muon"), ("dense", "unique"), 1e-5, ROUNDING),
    ("keras3 torch", ("Nadam",), ("dense",), 1e-5, ROUNDING),
    ("keras3 tensorflow", ("ScheduleFreeAdamW",), ("dense", "unique", "duplicates"), 0.5, AVERAGE),
    ("keras3 torch", ("ScheduleFreeAdamW",), ("dense",), 0.5, AVERAGE),
    ("keras3", None, ("duplicates",), 2.0, "stock Keras 3 on TensorFlow squares the parts of a row one by one"),
    ("update_step function", ("Nadam",), ("dense", "unique", "duplicates"), 0.1,
     "stock multiplies its momentum product once per variable in a compiled step"),
]


# TF before 1.13, measured in 1.4 and 1.8. Its Nadam takes no sparse gradients.
ALL = ("dense", "unique", "duplicates")
FIRST = [("tf_train", ("AdadeltaOptimizer",), ALL, 0.5, "it steps with the new average"),
         ("tf_train", ("FtrlOptimizer",), ALL, 0.5, "it accumulates the shrunk gradient"),
         ("tf_train", ("LazyAdamOptimizer",), ALL[1:], 1.0, "it is dense for resource variables")]
# TF 1.11, the first to have it, to 1.14.
EARLY = [("tf_train", ("LARSOptimizer",), ALL, 5.0,
          "its ratio is outside of the velocity, and its weight decay in the ratio alone")]


def is_tf_train(way, *versions):
    return way.target == "tf_train" and tensorflow.__version__.startswith(versions)


def is_before_1_13(way):
    return is_tf_train(way, *("1.{}.".format(minor) for minor in range(4, 13)))


def allowed(way, name, kind):
    """Returns (how far a run may be from stock, why that is more than BOUND or None)."""
    kind = kind if way.sparse else "dense"
    older = FIRST if is_before_1_13(way) else []
    older = older + EARLY if is_tf_train(way, "1.11.", "1.12.", "1.13.", "1.14.") else older
    for target, names, kinds, bound, cause in EXCEPTIONS + older:
        if way.name.startswith(target) and kind in kinds and (name in names if names else name not in ("SGD", "Lion")):
            return bound, cause
    return BOUND, None


def stock_class(way, name):
    if name in [each[0] for each in CONTRIB]:
        return getattr(getattr(getattr(tensorflow, "contrib", None), "opt", None), name, None)
    return getattr(way.stock, name, None)


LAZY = ("tf_train resource", "LazyAdamOptimizer")


def has_class(optimizers, name):
    """Returns whether a Keras has a class. The Muon before 3.14 is another rule, which does not run on TensorFlow."""
    stock = getattr(optimizers, name, None)
    return stock is not None and (name != "Muon" or hasattr(stock, "lr_adjust"))


def is_available(way, name):
    """Returns whether this version has the stock optimizer, in working order."""
    broken = is_before_1_13(way) and name == "NadamOptimizer"
    # From TF 1.5 on it passes rows to an op that needs the whole table.
    broken = broken or is_before_1_13(way) and not is_tf_train(way, "1.4.") and (way.name, name) == LAZY
    older = name == "Muon" and not has_class(way.stock, name)
    return way.stock is not None and not broken and not older and stock_class(way, name) is not None


def stock_way(way, name, arguments):
    """Returns the way in which stock itself trains. Keras 3.0 cannot jit two of its own: it passes JAX a variable."""
    if way.name == "keras3 jax jit" and (name == "Adafactor" or arguments.get("centered")):
        if way.module.__version__.startswith("3.0."):
            return next(each for each in harness.all_ways() if each.name == "keras3 jax eager")
    return way


def make_stock(way, name, rate, arguments):
    """Creates a stock optimizer, or returns None if this version lacks an argument."""
    stock = stock_class(way, name)
    for rate_name in ("learning_rate", "lr"):  # Keras before 2.3
        try:
            return counted(stock, **dict(arguments, **{rate_name: rate}))
        except (TypeError, ValueError):
            continue
    return None


BY_GLOBAL_STEP = ("AdagradDAOptimizer", "AdamGSOptimizer", "LazyAdamGSOptimizer")


def counted(stock, **arguments):
    """Creates a stock optimizer. One that counts by global_step also moves it, in each step."""
    if getattr(stock, "__name__", None) not in BY_GLOBAL_STEP:
        return stock(**arguments)
    optimizer = stock(global_step=tf1.train.get_or_create_global_step(), **arguments)
    apply_gradients, step = optimizer.apply_gradients, optimizer._global_step
    optimizer.apply_gradients = lambda pairs, global_step=None, name=None: apply_gradients(pairs, step, name)
    return optimizer


def cases():
    """Yields (way, name, rate, arguments) of every stock optimizer in every way."""
    for way in harness.all_ways():
        for name, rate, arguments in TRAIN + CONTRIB if way.target == "tf_train" else KERAS:
            if is_available(way, name):
                yield way, name, rate, arguments


# (stock classes, first parts of the versions, prefix of the way's name, why stock fails on sparse gradients).
DENSE_ONLY = [
    (("AddSignOptimizer", "PowerSignOptimizer"), ("1.",), "tf_train resource", "it lacks the method"),
    (("AdamWOptimizer", "MomentumWOptimizer"), ("1.10.",), "tf_train", "it gives rows the decay of a whole variable"),
    (("LARSOptimizer",), ("1.11.", "1.12."), "tf_train", "it reads a tensor that it never makes")]


def takes_sparse(way, name):
    return not any(
        name in names and way.name.startswith(prefix) and is_tf_train(way, *versions)
        for names, versions, prefix, _ in DENSE_ONLY
    )


def kinds_for(way, name):
    """Returns the gradient kinds that stock supports."""
    return KINDS if takes_sparse(way, name) else dict(KINDS, unique=harness.NONE, duplicates=harness.NONE)


def run(way, make_optimizer, steps=100, kinds=KINDS):
    batches = make_batches("float32", steps, kinds=kinds)
    return harness.new_run(way, make_optimizer, start_values("float32"), kinds, batches).weights()


def migrate(*stock_and_api):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "stock ")  # the differences in EXCEPTIONS
        return everstep.from_native(*stock_and_api)


def accepts_arguments(way, name, rate, arguments):
    """Returns whether this version of stock takes the arguments. Creates one in the graph that it would train in."""
    with way.world(way.module):
        return make_stock(way, name, rate, arguments) is not None
