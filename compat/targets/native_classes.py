"""Native classes: one for each definition class and native base, findable by module and name, registered with Keras.

The class of Adam on Keras 3 is `everstep.native.keras.keras3.Adam`: the native base's package, then the target. Keras
has a registry of classes since TF 2.0 (standalone: Keras 3); there it is `everstep>Adam`, which no stock class is called.
Older Kerases write the bare class name to files, and have one table of names for optimizers, layers and the rest.
Nothing is put there before `everstep.register` is called.
"""
from __future__ import absolute_import, division, print_function

import importlib
import sys
import types

from everstep.errors import UnsupportedError

PACKAGE = "everstep"  # the package name in Keras's registry
# Where Kerases keep their registry, below the package that has the optimizers; the newest first.
_REGISTRIES = ("saving.object_registration", "utils.generic_utils")

_classes = {}  # type: dict  # by target class, definition class and native base


def native_class(target_class, definition_class, base):
    """Returns the native class of a definition, made once."""
    key = target_class, definition_class, base
    if key not in _classes:
        made = _classes[key] = target_class.made_for(definition_class, base)
        made.__module__ = _module_name(target_class, base)
        setattr(_module(made.__module__), made.__name__, made)
        registry = _registry(base)
        if hasattr(registry, "register_keras_serializable"):
            registry.get_custom_objects().pop(registered_name(made), None)  # of a definition that was defined anew
            registry.register_keras_serializable(PACKAGE, made.__name__)(made)
    return _classes[key]


def target_class_of(native_class):
    """Returns the target that a native class was made of."""
    return next(base for base in native_class.__mro__ if base.__module__.startswith("everstep.compat.targets."))


def registered_name(native_class):
    return "{}>{}".format(PACKAGE, native_class.__name__)


def register_bare(native_classes):
    """Puts classes in the table of names of a Keras that has no registry of packages.

    Raises:
        UnsupportedError: the API has no table of names, since it has no files with optimizers in them.
    """
    for each in native_classes.values():
        registry = _registry(each.native_base)
        if registry is None:
            raise UnsupportedError(
                "{} has no registry of classes: none of its files names an optimizer. Bind the definition in the "
                "program that loads the file".format(each.target)
            )
        if not hasattr(registry, "register_keras_serializable"):
            registry.get_custom_objects().update(native_classes)


def stock_class(native_class):
    """Returns the stock class of the same API and name, upper and lower case aside; None if there is none."""
    base, waiting = native_class.native_base, [native_class.native_base]
    while waiting:
        stock = waiting.pop(0)
        if stock.__name__.lower() == native_class.__name__.lower() and _root(stock) == _root(base):
            return stock
        waiting.extend(stock.__subclasses__())
    return None


def _root(native_class):
    return native_class.__module__.split(".")[0]


def _module_name(target_class, base):
    package = "numpy" if target_class.target == "arrays" else _root(base)
    return "everstep.native.{}.{}".format(package, target_class.target)


def _module(name):
    """The module of that name, made where there is none, each of its parents too."""
    if name not in sys.modules:
        parent, _, last = name.rpartition(".")
        module = sys.modules[name] = types.ModuleType(str(name), "Classes that everstep's bind made.")
        setattr(_module(parent), last, module)
    return sys.modules[name]


def _registry(base):
    """The module with Keras's registry, of the same Keras as a native base; None if there is none."""
    parents = base.__module__.split(".")
    for size in range(len(parents) - 1, 0, -1):
        for place in _REGISTRIES:
            try:
                registry = importlib.import_module(".".join(parents[:size] + [place]))
            except ImportError:
                continue
            if hasattr(registry, "get_custom_objects"):
                return registry
    return None
