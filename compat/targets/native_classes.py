"""Makes native classes, one for each definition class and native base, and registers them with Keras.

The class of Adam on Keras 3 is `everstep.native.keras.keras3.Adam`: the native base's package, then the target. A
pickle of a class has only this name. A process that has not made the class makes it when it is asked for by name.
TF 2.0 and newer, and Keras 3, have a registry of classes by package. The class is registered there as `everstep>Adam`,
a name that no stock class has. Older Kerases write the bare class name to files and look it up in one table of custom
objects. The class is put there as `Adam` and `adam`; stock configs still become stock optimizers. So it is up to 2.10.
"""
from __future__ import absolute_import, division, print_function

import importlib
import sys
import types

from packaging.version import Version

from everstep.compat.backends.on_tensorflow import TensorFlowBackend
from everstep.compat.targets.hypers import check_names
from everstep.compat.targets.signature import NativeSignature
from everstep.optimizers.contract.binder import binder

PACKAGE = "everstep"  # the package name in Keras's registry
# Keras's modules with the registry, relative to the package that has the optimizers; the newest first.
_REGISTRIES = ("saving.object_registration", "utils.generic_utils")

_SHARED_SINCE = Version("2.11")  # from here on one table of names serves two APIs of one stock
_CLASSES = "_native_classes"  # in a definition class: its native classes, by adapter class and native base
_REGISTERED = "_is_registered"  # in a native class, once Keras has a name for it
_registries = {}  # type: dict  # by module of the native base
_NATIVE = "everstep.native"
# {package of a native base: the targets of its classes}
_TARGETS = dict(
    numpy="arrays", torch="torch_optim", optax="optax_transform", tf_keras="optimizer_v2 update_step",
    keras="get_updates optimizer_v2 update_step keras3", tensorflow="tf_train get_updates optimizer_v2",
    tensorflow_core="tf_train get_updates optimizer_v2",
)


def native_class(adapter_class, definition_class, base):
    """Returns the native class of a definition. Creates it at the first call.

    Raises:
        DefinitionError: a hyper has the name of a method or property of the base class.
    """
    # In a table of this module, every class would stay alive that a notebook defines again and again.
    if _CLASSES not in vars(definition_class):
        setattr(definition_class, _CLASSES, {})
    classes, key = vars(definition_class)[_CLASSES], (adapter_class, base)
    if key not in classes:
        new_class = _made(adapter_class, definition_class, base)
        new_class.__module__ = module_name(adapter_class, base)
        setattr(_module(new_class.__module__), new_class.__name__, new_class)
        classes[key] = new_class
    return classes[key]


def _made(adapter_class, definition_class, base):
    """Returns a new native class: the target's over `base`, with the definition's name."""
    body = {name: getattr(definition_class, name) for name in ("__doc__", "__module__")}
    body.update(definition_class=definition_class, native_base=base, adapter_class=adapter_class)
    body.update(__signature__=NativeSignature())
    new_class = type(str(definition_class.__name__), (adapter_class.native_class, base), body)
    start = definition_class.prefix + "_" if definition_class.prefix else ""
    declared = definition_class.declarations.items()
    check_names(new_class, [start + name for name, each in declared if each.kind == "hyper"])
    for name in adapter_class.entries(base):
        import tensorflow

        setattr(new_class, name, TensorFlowBackend(tensorflow).plain(vars(adapter_class.native_class)[name]))
    return new_class


def registered_name(native_class):
    return "{}>{}".format(PACKAGE, native_class.__name__)


def register(native_class):
    """Registers a native class with its Keras, so that files load. Returns False if the API has no registry."""
    registry = registry_of(native_class.native_base)
    if registry is None:
        return False
    table, name = registry.get_custom_objects(), registered_name(native_class)
    if hasattr(registry, "register_keras_serializable"):
        if _REGISTERED in vars(native_class):
            table[name] = native_class  # when a scope ends, older Kerases restore the table from before it
        else:
            table.pop(name, None)  # the class of another definition of that name
            _forget_redefined(registry, native_class)
            registry.register_keras_serializable(PACKAGE, native_class.__name__)(native_class)
            setattr(native_class, _REGISTERED, True)
    # For older Kerases, HDF5 files of TF 2.0 to 2.2, and people who write {"class_name": config["name"], ...}. Loaders
    # look stock names up in lower case.
    if _is_in_doubt(native_class):
        return True
    bare = native_class.__name__
    for name in (bare, bare.lower()) if stock_class(native_class) else (bare,):
        if name not in table or hasattr(table[name], "definition_class"):  # keep a user's own class of that name
            table[name] = native_class
    return True


def _is_in_doubt(native_class):
    """Returns whether a class's bare name could mean another, of the other API that the same table serves."""
    version = Version(sys.modules[_root(native_class.native_base)].__version__)
    return version >= _SHARED_SINCE and stock_class(native_class) is not None


def name_subclass(subclass):
    """Gives a subclass of its native class's name that class's registered name, so that its files load as that class.

    Horovod makes such classes at run time. Stock ones are written under a bare name, which is that of the stock class.
    """
    native = next(each for each in subclass.__mro__ if "native_base" in vars(each))
    if native is not subclass and native.__name__ == subclass.__name__ and _is_in_doubt(native):
        for names in _names_by_class(registry_of(native.native_base)):
            names.setdefault(subclass, registered_name(native))


def subclass_in_scope(native_class, custom_objects=None):
    """Returns the subclass that a loader was given for a class's bare name, as Horovod gives it; else the class."""
    registry, bare = registry_of(native_class.native_base), native_class.__name__
    if registry is None:
        return native_class
    look_up = getattr(registry, "get_registered_object", None) or registry.get_custom_objects().get
    for name in (bare, bare.lower()):
        for found in ((custom_objects or {}).get(name), look_up(name)):
            if isinstance(found, type) and issubclass(found, native_class) and found is not native_class:
                return found
    return native_class


def _names_by_class(registry):
    """Returns the registry's tables {class: registered name}."""
    names = ("GLOBAL_CUSTOM_NAMES", "_GLOBAL_CUSTOM_NAMES")
    return [getattr(registry, name) for name in names if hasattr(registry, name)]


def _forget_redefined(registry, native_class):
    """Removes the classes of an older definition of the same name and module, which Keras would keep for ever."""
    definition = native_class.definition_class
    for names in _names_by_class(registry):
        for each in list(names):
            old = getattr(each, "definition_class", definition)
            if old is not definition and (old.__name__, old.__module__) == (definition.__name__, definition.__module__):
                del names[each]


def stock_class(native_class):
    """Returns the stock class of the same API and name; None if there is none."""
    return stock_class_named(native_class.native_base, native_class.__name__)


def stock_class_of(native_class, config):
    """Returns the stock class that reads a config; None if there is none.

    With new-style classes, Keras gives a config of an OptimizerV2 to its `.legacy` class of the same name. All of those
    configs have a `decay`, which new-style classes refuse.
    https://github.com/keras-team/tf-keras/blob/v2.19.0/tf_keras/optimizers/__init__.py#L140
    """
    if native_class.adapter_class.target == "update_step" and "decay" in config:
        return stock_class_named(native_class.native_base, native_class.__name__, is_legacy=True)
    return stock_class(native_class)


def stock_class_named(base, name, is_legacy=False):
    """Returns the stock subclass of a native base with a name, ignoring case; None if there is none.

    Args:
        is_legacy: whether to look for an OptimizerV2, which has not that base but the one below `object` in common.
    """
    candidates = [base.__mro__[-2] if is_legacy else base]
    while candidates:
        stock = candidates.pop(0)
        fits = stock.__name__.lower() == name.lower() and (not is_legacy or hasattr(stock, "_resource_apply_dense"))
        if fits and _root(stock) == _root(base) and not hasattr(stock, "definition_class"):
            return stock
        candidates.extend(stock.__subclasses__())
    return None


def _root(native_class):
    return native_class.__module__.split(".")[0]


def module_name(adapter_class, base):
    """Returns the name of the module that has the native classes over a base."""
    package = "numpy" if adapter_class.target == "arrays" else _root(base)
    return "{}.{}.{}".format(_NATIVE, package, adapter_class.target)


class NativeModule(types.ModuleType):
    """The native classes of a target over the optimizers of a package."""

    def __getattr__(self, name):
        found = binder.class_named(*self.__name__.split(".")[2:] + [name])
        if found is None:
            raise AttributeError("{!r} has no class {}".format(self, name))
        register(found)
        return found

    def __repr__(self):  # pickle says nothing else of what is missing
        return "<module {!r}, which has classes of imported definitions alone>".format(self.__name__)


def make_modules():
    """Makes the modules of all native classes, for who imports one by name."""
    names = []
    for package, targets in _TARGETS.items():
        parent = "{}.{}".format(_NATIVE, package)
        names.append(parent)
        for target in targets.split():
            names.append("{}.{}".format(parent, target))
    _make(names)


def _module(name):
    """Returns the module of a name, such as everstep.native.keras.keras3. Creates it and its parent if needed."""
    importlib.import_module(_NATIVE)
    _make([name.rpartition(".")[0], name])
    return sys.modules[name]


def _make(names):
    """Makes those modules that are not there, in an order in which parents come first."""
    for name in names:
        if name not in sys.modules:
            parent, _, last = name.rpartition(".")
            of = types.ModuleType if parent == _NATIVE else NativeModule
            module = sys.modules[name] = of(str(name), "Native classes that everstep made.")
            setattr(sys.modules[parent], last, module)


def registry_of(base):
    """Returns the module with the registry of a native base's Keras, or None."""
    if base.__module__ not in _registries:
        _registries[base.__module__] = _find_registry(base.__module__.split("."))
    return _registries[base.__module__]


def _find_registry(parents):
    for size in range(len(parents) - 1, 0, -1):
        for path in _REGISTRIES:
            try:
                registry = importlib.import_module(".".join(parents[:size] + [path]))
            except ImportError:
                continue
            if hasattr(registry, "get_custom_objects"):
                return registry
    return None
