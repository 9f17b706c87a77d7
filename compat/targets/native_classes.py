"""Native classes: one for each definition class and native base, found by module and name, known to Keras's loaders.

The class of Adam on Keras 3 is `everstep.native.keras.keras3.Adam`: the native base's package, then the target.
TF 2.0 and newer, and Keras 3, have a registry of classes by package; there it is `everstep>Adam`, which no stock class
is called. Older Kerases write the bare class name to files and look it up in one table of custom objects; there it is
`Adam` and `adam`, and a config that everstep did not write still becomes the stock optimizer that it names.
"""
from __future__ import absolute_import, division, print_function

import importlib
import sys
import types

PACKAGE = "everstep"  # the package name in Keras's registry
# Where Kerases keep their registry, below the package that has the optimizers; the newest first.
_REGISTRIES = ("saving.object_registration", "utils.generic_utils")

_classes = {}  # type: dict  # by target class, definition class and native base
_registered = set()  # type: set  # the native classes that Keras has a name for
_registries = {}  # type: dict  # by module of the native base


def native_class(target_class, definition_class, base):
    """Returns the native class of a definition, made once."""
    key = target_class, definition_class, base
    if key not in _classes:
        made = _classes[key] = target_class.made_for(definition_class, base)
        made.__module__ = _module_name(target_class, base)
        setattr(_module(made.__module__), made.__name__, made)
    return _classes[key]


def target_class_of(native_class):
    """Returns the target that a native class was made of."""
    return next(base for base in native_class.__mro__ if base.__module__.startswith("everstep.compat.targets."))


def registered_name(native_class):
    return "{}>{}".format(PACKAGE, native_class.__name__)


def register(native_class):
    """Makes a native class known to the loaders of its API. Returns False if the API has none."""
    registry = registry_of(native_class.native_base)
    if registry is None:
        return False
    table, name = registry.get_custom_objects(), registered_name(native_class)
    if hasattr(registry, "register_keras_serializable"):
        if native_class in _registered:
            table[name] = native_class  # again: the end of a scope puts old Kerases' table back as it was
        else:
            table.pop(name, None)  # of a definition that was defined anew
            registry.register_keras_serializable(PACKAGE, native_class.__name__)(native_class)
            _registered.add(native_class)
        if hasattr(registry, "get_registered_name"):
            return True
    # Older Kerases, and HDF5 files of TF 2.0 to 2.2. Loaders look stock names up in lower case.
    bare = native_class.__name__
    for name in (bare, bare.lower()) if stock_class(native_class) else (bare,):
        if name not in table or hasattr(table[name], "definition_class"):  # not another's class of that name
            table[name] = native_class
    return True


def stock_class(native_class):
    """Returns the stock class of the same API and name; None if there is none."""
    return stock_class_named(native_class.native_base, native_class.__name__)


def stock_class_named(base, name):
    """Returns the stock class of a name, upper and lower case aside, below a native base; None if there is none."""
    waiting = [base]
    while waiting:
        stock = waiting.pop(0)
        if stock.__name__.lower() == name.lower() and _root(stock) == _root(base):
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


def registry_of(base):
    """Returns the module with Keras's registry, of the same Keras as a native base; None if there is none."""
    if base.__module__ not in _registries:
        _registries[base.__module__] = _find_registry(base.__module__.split("."))
    return _registries[base.__module__]


def _find_registry(parents):
    for size in range(len(parents) - 1, 0, -1):
        for place in _REGISTRIES:
            try:
                registry = importlib.import_module(".".join(parents[:size] + [place]))
            except ImportError:
                continue
            if hasattr(registry, "get_custom_objects"):
                return registry
    return None
