"""everstep: write an optimizer once, run it on every TensorFlow and Keras there is.

>>> import numpy, everstep
>>> weights = numpy.zeros(2)
>>> optimizer = everstep.optimizers.Adam(0.1).bind(numpy)   # or bind(tf.train), bind(tf.keras), bind(keras)
>>> optimizer.apply_gradients([(numpy.array([1.0, -2.0]), weights)])
>>> weights.round(3)
array([-0.1,  0.1])
"""
from __future__ import absolute_import, division, print_function

from everstep import errors, optimizers
from everstep.compat.backends.on_numpy import IndexedSlices, numpy_ops
from everstep.compat.checkpoints.by_position import stock_arrays
from everstep.compat.checkpoints.capture import capture
from everstep.compat.checkpoints.files import read_checkpoint, write_checkpoint
from everstep.compat.checkpoints.in_trees import scale_loss
from everstep.compat.checkpoints.restore import restore
from everstep.compat.checkpoints.state import State
from everstep.compat.engine import fast_forward
from everstep.compat.extras.average_checkpoint import average_checkpoint
from everstep.compat.extras.averaged import assign_averages, averaged
from everstep.compat.extras.rate import current_rate
from everstep.compat.extras.training_log import log_hook, log_training
from everstep.compat.extras.warm_start import WarmStart, warm_start
from everstep.compat.port.entry import port
from everstep.compat.stock.from_native import from_native, to_native_config
from everstep.compat.stock.lookup import slots_of_stock
from everstep.compat.stock.of_torch import groups_of_stock
from everstep.compat.stock.patched import patched
from everstep.compat.stock.registry import get, names
from everstep.compat.targets import native_classes
from everstep.compat.targets.detect import class_named, find
from everstep.compat.targets.dry_run import check_rule
from everstep.compat.targets.fit_multistage import disable_multistage, enable_multistage
from everstep.compat.targets.lazy_embeddings import lazy_embeddings
from everstep.compat.targets.native import NativeOptimizer
from everstep.errors import StateWarning
from everstep.optimizers.contract.binder import binder
from everstep.optimizers.contract.composite import Composite, Wrapper
from everstep.optimizers.contract.counted_random import random_normal, random_uniform
from everstep.optimizers.contract.declarations import VARIABLE, child, hyper, option, scalar, slot
from everstep.optimizers.contract.definition import Definition, Variable, assign, total
from everstep.optimizers.contract.kernel_names import kernel
from everstep.optimizers.contract.refreshing import refresh
from everstep.optimizers.contract.schedule import (
    CosineDecay,
    CosineDecayRestarts,
    ExponentialDecay,
    InverseTimeDecay,
    PiecewiseConstantDecay,
    PolynomialDecay,
    Warmup,
)
from everstep.optimizers.contract.schedule_base import AsSchedule, Schedule
from everstep.optimizers.contract.schedule_phases import (
    Cyclical,
    Hold,
    InverseSquareRoot,
    Noam,
    OneCycle,
    WarmupStableDecay,
)
from everstep.optimizers.contract.types import HyperValue
from everstep.optimizers.contract.undecayed import Undecayed
from everstep.optimizers.wrappers import (
    accumulate,
    cautious,
    centralize,
    clip,
    decoupled_weight_decay,
    gradient_noise,
    grokfast,
    l2_penalty,
    learning_rate_multipliers,
    lookahead,
    loss_scale,
    master_copies,
    moving_average,
    multistage,
    partition,
    rate_decay,
    sharpness_aware,
    stochastic_weight_averaging,
)

__version__ = "1.0.0rc1"


def _check(definition):
    if definition.sparse == "catch_up":
        fast_forward.check(definition)
    check_rule(definition)


def _native_class(definition_class, module):
    native_class = find(module).native_class(definition_class)
    native_classes.register(native_class)
    return native_class


binder.use(
    _native_class, to_native_config, _check, numpy_ops, stock_arrays, slots_of_stock, groups_of_stock, class_named)


def custom_objects(module):
    """Returns the native classes of all imported definitions, for `load_model(..., custom_objects=)` and scopes.

    They hide no stock optimizer: a config that everstep did not write becomes the stock optimizer that it names.

    Args:
        module: the module you train with, as for `bind`.

    Returns:
        `{name: class}`, with every spelling that loaders look up: `Adam`, `adam`, `everstep>Adam`.

    Raises:
        TargetError: the module has no optimizer API that everstep knows.

    >>> import numpy, everstep
    >>> everstep.custom_objects(numpy)["everstep>Adam"].__name__
    'Adam'
    """
    objects = {}
    for each in _native_classes(module):
        for name in (each.__name__, each.__name__.lower(), native_classes.registered_name(each)):
            objects[name] = each
    return objects


def register(module):
    """Registers the native classes of all imported definitions, so that files load without `custom_objects`.

    `bind` registers the class that it makes. A program that only loads a file registers them first:

        everstep.register(tf.keras)
        model = tf.keras.models.load_model("model.keras")

    Args:
        module: the module you train with, as for `bind`.

    Raises:
        TargetError: the module has no optimizer API that everstep knows.
        UnsupportedError: the API has no files that name an optimizer (tf.train, numpy).
    """
    for each in _native_classes(module):
        if not native_classes.register(each):
            raise errors.UnsupportedError(
                "nothing to register for {}: none of its files names an optimizer. Bind the definition in the program "
                "that loads the file".format(each.adapter_class.target)
            )


def _native_classes(module):
    api, classes = find(module), []
    for each in Definition.registered():
        try:
            classes += [api.native_class(each)] if each not in (Composite, Wrapper, Undecayed) else []
        except errors.DefinitionError:  # this API refuses the name of a hyper, so that it has no files of it
            continue
    return classes


__all__ = [
    "AsSchedule", "CosineDecay", "CosineDecayRestarts", "Cyclical", "Definition", "ExponentialDecay", "Hold",
    "HyperValue", "IndexedSlices", "InverseSquareRoot", "InverseTimeDecay", "NativeOptimizer", "Noam", "OneCycle",
    "PiecewiseConstantDecay", "PolynomialDecay", "Schedule", "State", "StateWarning", "VARIABLE", "Variable",
    "WarmStart", "Warmup", "WarmupStableDecay", "Wrapper", "accumulate", "assign", "assign_averages",
    "average_checkpoint", "averaged", "capture", "cautious", "centralize", "child", "clip", "current_rate",
    "custom_objects", "decoupled_weight_decay", "disable_multistage", "enable_multistage", "errors", "from_native",
    "get", "gradient_noise", "grokfast", "hyper", "kernel", "l2_penalty", "lazy_embeddings",
    "learning_rate_multipliers", "log_hook", "log_training", "lookahead", "loss_scale", "master_copies",
    "moving_average", "multistage", "names", "optimizers", "option", "partition", "patched", "port", "random_normal",
    "random_uniform", "rate_decay", "read_checkpoint", "refresh", "register", "restore", "scalar", "scale_loss",
    "sharpness_aware", "slot", "stochastic_weight_averaging", "total", "warm_start", "write_checkpoint",
]
