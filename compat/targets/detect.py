"""Finds the optimizer API of a module, and its target, by the methods of the module's optimizer classes.

`module.optimizers.Optimizer` misleads (the `keras` 2.10 package keeps an old class there, every OptimizerV2 has a
`get_updates` too), so the class behind the module's own Adam or SGD decides, in the order of `TARGETS`.
"""
from __future__ import absolute_import, division, print_function

import importlib
import types
from collections import namedtuple

from everstep.compat.targets.native_classes import module_name, native_class
from everstep.errors import TargetError
from everstep.optimizers.contract.definition import Definition

# name: the target's name; path: the module and class of its adapter, in this folder; speaks: returns True for an
# optimizer class of the API; looked_for: the methods that it looks for, for error messages.
Api = namedtuple("Api", "name path speaks looked_for")


def _has(optimizer, *names):
    return all(hasattr(optimizer, name) for name in names)


def _is_transform(optimizer):
    return getattr(optimizer, "_fields", None) == ("init", "update")


def _is_train(optimizer):
    hooks = _has(optimizer, "_apply_dense", "_resource_apply_dense", "compute_gradients")
    return hooks and not _has(optimizer, "get_config")


def _is_optimizer_v2(optimizer):
    return _has(optimizer, "_resource_apply_dense", "_create_hypers", "add_slot", "get_config")


def _is_get_updates(optimizer):
    hooks = _has(optimizer, "get_updates", "get_gradients", "get_config")
    return hooks and not _has(optimizer, "_resource_apply_dense")


def _is_update_step(optimizer):
    # The experimental optimizers of TF 2.10 lack the last one, and much else.
    return _has(optimizer, "update_step", "build", "_distributed_apply_gradients_fn", "exclude_from_weight_decay")


def _is_keras3(optimizer):
    return _has(optimizer, "update_step", "build", "stateless_apply", "_backend_update_step")


def _is_torch(optimizer):
    return _has(optimizer, "add_param_group", "load_state_dict", "zero_grad", "profile_hook_step")


# The first match wins: an OptimizerV2 has get_updates too.
TARGETS = (
    Api("tf_train", "tf_train.TrainAdapter", _is_train,
        "an Optimizer with _apply_dense and compute_gradients (tf.train)"),
    Api("optimizer_v2", "optimizer_v2.V2Adapter", _is_optimizer_v2,
        "an Adam or SGD with _resource_apply_dense and add_slot (tf.keras 1.14 to 2.10, .legacy)"),
    Api("get_updates", "get_updates.GetUpdatesAdapter", _is_get_updates,
        "an Adam or SGD with get_updates (Keras 2.0.8 to 2.3.1, tf.keras up to 1.13)"),
    Api("update_step", "update_step.UpdateStepAdapter", _is_update_step,
        "an Adam or SGD with update_step and _distributed_apply_gradients_fn (tf.keras 2.11 to 2.15, tf_keras)"),
    Api("keras3", "keras3.Keras3Adapter", _is_keras3,
        "an Adam or SGD with update_step and stateless_apply (Keras 3, tf.keras from 2.16 on)"),
    Api("torch_optim", "torch_optim.TorchAdapter", _is_torch,
        "an Adam or SGD with add_param_group and load_state_dict (torch.optim)"),
    Api("optax_transform", "optax_transform.TransformAdapter", _is_transform,
        "a GradientTransformationExtraArgs of init and update (optax)"),
)

ARRAYS = Api("arrays", "arrays.ArraysAdapter", None, "numpy itself")

WHAT_WORKS = (
    "What works: tf.train (TF 1.x), tf.compat.v1.train, tf.keras of TF 1.4 and newer, tf.keras.optimizers.legacy of TF "
    "2.11 to 2.15, tf_keras, tf_keras.optimizers.legacy, standalone keras 2.0.8 and newer, torch.optim, optax, and "
    "numpy"
)


class Found(namedtuple("Found", "target adapter_class base module")):
    """The optimizer API of a module: the `Api`, its adapter class, the native base class and the module."""

    def native_class(self, definition_class):
        return native_class(self.adapter_class, definition_class, self.base)


def load(target):
    """Imports and returns the adapter class of a target."""
    module, name = target.path.split(".")
    return getattr(importlib.import_module("everstep.compat.targets." + module), name)


def find(module):
    """Returns the `Found` of a module: its optimizer API.

    Raises:
        TargetError: nothing that everstep knows; the message lists what was looked for.
    """
    name = getattr(module, "__name__", repr(module))
    if name == "numpy":
        adapter_class = load(ARRAYS)
        return Found(ARRAYS, adapter_class, adapter_class.base_class(None, module), module)
    if isinstance(module, type) or not hasattr(module, "__name__"):
        raise TargetError(
            "bind takes the module you train with, such as tf.keras; got {!r}. {}".format(module, WHAT_WORKS)
        )
    first = None
    for optimizer in () if _is_tensorflow(module) else _optimizer_classes(module):
        found = find_class(optimizer, module)
        if found is not None:
            return found
        first = first or optimizer
    raise TargetError(
        "{} has no optimizer API that everstep knows.{} Looked for: {}{}. {}".format(
            name,
            _hint(module, name),
            "; ".join(target.looked_for for target in TARGETS + (ARRAYS,)),
            "; found {0.__module__}.{0.__name__}".format(first) if first else "",
            WHAT_WORKS,
        )
    )


def find_class(optimizer, module):
    """Returns the `Found` of a module's optimizer class; None if it belongs to no API that everstep knows."""
    for target in TARGETS:
        if target.speaks(optimizer):
            adapter_class = load(target)
            return Found(target, adapter_class, adapter_class.base_class(optimizer, module), module)
    return None


def _is_tensorflow(module):
    """Returns whether a module is TensorFlow itself, which has several optimizer APIs. `tf.optimizers` is only one."""
    return all(hasattr(module, part) for part in ("Variable", "train", "keras"))


def _hint(module, name):
    if _is_tensorflow(module):
        return " Pass the part of it that you train with: tf.keras, tf.train or tf.compat.v1.train."
    if name.endswith(".train"):
        return " In TF 2 these optimizers are in tf.compat.v1.train."
    if name.endswith(".experimental"):
        return " The experimental optimizers of TF 2.10 and older are too unlike those of 2.11: pass tf.keras."
    if name.endswith(".legacy"):
        return (
            " Pass tf.keras.optimizers.legacy; from TF 2.16 on it is empty: install tf_keras, pass "
            "tf_keras.optimizers.legacy."
        )
    return ""


def _optimizer_classes(module):
    """Yields the classes whose methods may identify the API: the module's Adam or SGD, else its Optimizer.

    Code that trains other people's programs replaces some of them, by functions or by classes of ours.
    """
    holder = getattr(module, "optimizers", module)
    for name in ("Adam", "SGD", "RMSprop", "AdamOptimizer", "GradientDescentOptimizer"):
        optimizer = getattr(holder, name, None)
        if isinstance(optimizer, type) and not hasattr(optimizer, "definition_class"):
            yield optimizer
    if hasattr(module, "GradientTransformationExtraArgs"):
        yield module.GradientTransformationExtraArgs
    base = getattr(holder, "Optimizer", None)
    if isinstance(base, type) and _is_train(base):
        yield base
    if isinstance(holder, types.ModuleType) and hasattr(holder, "get") and hasattr(holder, "deserialize"):
        yield type(holder.get("sgd"))  # the keras packages 2.5 to 2.8 export no Adam


def known_modules(packages=None):
    """Yields (name, module or None) for each module that may speak an API. Imports the installed ones.

    Args:
        packages: names of packages, to import no others.
    """
    names = "tensorflow:train tensorflow:compat.v1.train tensorflow:keras tensorflow:keras.optimizers.legacy keras "
    names += "keras:optimizers.legacy tf_keras tf_keras:optimizers.legacy torch:optim numpy optax"
    for name in names.split():
        package, _, path = name.partition(":")
        if packages is not None and package not in packages:
            continue
        try:
            module = importlib.import_module(package)
            for part in path.split(".") if path else ():
                module = getattr(module, part)
        except Exception:  # absent, or broken, which compat/targets/doctor.py reports
            module = None
        yield name.replace(":", "."), module


def class_named(package, target, name):
    """Returns the native class of an imported definition; None if there is no such definition or API, or several.

    Args:
        package: the package of the native base.
        target: the name of the target.
        name: of the definition class.
    """
    definitions = [each for each in Definition.registered() if each.__name__ == name]
    # tf.keras may have the classes of keras, tf_keras, or those of tensorflow_core, as TensorFlow 1.15 calls itself.
    shared = ("keras", "tf_keras", "tensorflow_core")
    packages = (package, "tensorflow") if package in shared else (package,)
    for _, module in known_modules(packages) if len(definitions) == 1 else ():
        try:
            found = find(module)
        except TargetError:
            continue
        if module_name(found.adapter_class, found.base).split(".")[2:] == [package, target]:
            return found.native_class(definitions[0])
    return None
