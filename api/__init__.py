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
from everstep.compat.engine import fast_forward
from everstep.compat.state.averaged import assign_averages, averaged
from everstep.compat.state.capture import capture
from everstep.compat.state.files import read_checkpoint, write_checkpoint
from everstep.compat.state.restore import restore
from everstep.compat.state.state import State
from everstep.compat.state.warm_start import WarmStart, warm_start
from everstep.compat.stock.from_native import from_native, to_native_config
from everstep.compat.targets.detect import find
from everstep.compat.targets.dry_run import check_rule
from everstep.compat.targets.fit_multistage import disable_multistage, enable_multistage
from everstep.compat.targets.native_classes import register_bare, registered_name
from everstep.optimizers.contract.binder import binder
from everstep.optimizers.contract.composite import Composite, Wrapper
from everstep.optimizers.contract.declarations import VARIABLE, child, hyper, option, scalar, slot
from everstep.optimizers.contract.definition import Definition, Variable, assign, total
from everstep.optimizers.contract.kernel_names import kernel
from everstep.optimizers.contract.schedule import (
    CosineDecay,
    CosineDecayRestarts,
    ExponentialDecay,
    InverseTimeDecay,
    PiecewiseConstantDecay,
    PolynomialDecay,
    Schedule,
    Warmup,
)
from everstep.optimizers.wrappers.accumulate import accumulate
from everstep.optimizers.wrappers.centralize import centralize
from everstep.optimizers.wrappers.clip import clip
from everstep.optimizers.wrappers.decoupled_weight_decay import decoupled_weight_decay
from everstep.optimizers.wrappers.gradient_noise import gradient_noise
from everstep.optimizers.wrappers.learning_rate_multipliers import learning_rate_multipliers
from everstep.optimizers.wrappers.lookahead import lookahead
from everstep.optimizers.wrappers.loss_scale import loss_scale
from everstep.optimizers.wrappers.master_copies import master_copies
from everstep.optimizers.wrappers.moving_average import moving_average
from everstep.optimizers.wrappers.multistage import multistage
from everstep.optimizers.wrappers.partition import partition
from everstep.optimizers.wrappers.stochastic_weight_averaging import stochastic_weight_averaging

__version__ = "0.1.0"


def _check(definition):
    if definition.sparse == "catch_up":
        fast_forward.check(definition)
    check_rule(definition)


binder.use(lambda made, module: find(module).native_class(made), to_native_config, _check, numpy_ops)


def custom_objects(module):
    """`{name: class}` of all imported definitions for a module's `load_model(..., custom_objects=)`.

    It holds both spellings of a name that stock also has (`Adam`, `adam`): stock loaders look names up in lower case.

    Raises:
        TargetError: the module speaks no known API.
    """
    found = find(module)
    objects = {}
    for definition in Definition.registered():
        if definition not in (Composite, Wrapper):
            native_class = found.native_class(definition)
            names = [definition.__name__, definition.__name__.lower(), registered_name(native_class)]
            objects.update((name, native_class) for name in names)
    return objects


def register(module):
    """Registers the native classes of all imported definitions, so that files load without `custom_objects`.

    `bind` registers the class that it makes. A program that only loads a file calls this before:

        everstep.register(tf.keras)
        model = tf.keras.models.load_model("model.keras")

    Classes are registered as `everstep>Adam`, a name that no stock class has. Kerases without such a registry (Keras
    2.0 to 2.3.1, tf.keras of TF 1) write the bare name `Adam` to files and find it in one table of all custom objects.
    There the bare names are registered, here alone and not by `bind`; stock configs still become stock optimizers.

    Args:
        module: the module you train with, as for `bind`.

    Raises:
        TargetError: the module speaks no known API.
        UnsupportedError: the API has no files that name an optimizer (tf.train, numpy).
    """
    register_bare(custom_objects(module))


__all__ = [
    "CosineDecay", "CosineDecayRestarts", "Definition", "ExponentialDecay", "IndexedSlices", "InverseTimeDecay",
    "PiecewiseConstantDecay", "PolynomialDecay", "Schedule", "State", "VARIABLE", "Variable", "WarmStart", "Warmup",
    "Wrapper", "accumulate", "assign", "assign_averages", "averaged", "capture", "centralize", "child", "clip",
    "custom_objects", "decoupled_weight_decay", "disable_multistage", "enable_multistage", "errors", "from_native",
    "gradient_noise", "hyper", "kernel", "learning_rate_multipliers", "lookahead", "loss_scale", "master_copies",
    "moving_average", "multistage", "optimizers", "option", "partition", "read_checkpoint", "register", "restore",
    "scalar", "slot", "stochastic_weight_averaging", "total", "warm_start", "write_checkpoint",
]
