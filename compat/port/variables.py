"""Finds an optimizer's variables and the names that its own code has for values."""
from __future__ import absolute_import, division, print_function

import contextlib
import inspect
import sys

from everstep.compat.stock.lookup import FRAMEWORKS

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

_DEEPEST = 6
# Files of frameworks whose local variables mean nothing.
_BASES = ("optimizer_v2.py", "optimizer.py", "base.py", "autotrackable.py", "base_optimizer.py", "module.py")
_LINKS = (
    "_distribution_strategy _unconditional_checkpoint_dependencies _self_unconditional_checkpoint_dependencies "
    "_unconditional_dependency_names _self_unconditional_dependency_names _tracker"
).split()


def is_variable(value):
    """Returns whether a value is a variable of TensorFlow, or one of Keras 3 that holds one."""
    if hasattr(value, "_value") and hasattr(value, "path"):
        value = value._value
    return all(hasattr(value, name) for name in ("assign", "shape", "dtype", "initializer"))


def reachable(value, path="", seen=None, depth=0):
    """Yields (path, variable) of all variables that an optimizer holds, those of optimizers inside it too."""
    seen = set() if seen is None else seen
    if is_variable(value):
        yield path, value
        return
    if id(value) in seen or depth > _DEEPEST:
        return
    seen.add(id(value))
    if isinstance(value, dict):
        items = [(key_text(key), each) for key, each in list(value.items())]
    elif isinstance(value, (list, tuple)):
        items = [("#", each) for each in value]
    elif hasattr(value, "__dict__") and (depth == 0 or _may_hold(value)):
        items = [(name, each) for name, each in list(vars(value).items()) if name not in _LINKS]
    else:
        return
    for name, each in items:
        for found in reachable(each, "{}.{}".format(path, name), seen, depth + 1):
            yield found


def key_text(key):
    """Returns the part of a path that a key of a dictionary gives: names of slots count, those of variables do not."""
    if isinstance(key, str):
        return key
    first = key[0] if isinstance(key, tuple) and key else None
    return first if isinstance(first, str) else "#"


def _may_hold(value):
    names = [base.__name__ for base in type(value).__mro__]
    return any("ptimizer" in name or "Wrapper" in name for name in names)


class LocalNames(object):
    """The names of local variables in an optimizer's own functions, by the value that they hold at the return.

    Args:
        looks: a `Looks`, which is told of calls of compiled patterns, and of functions that ran.

    Attributes:
        tensors: {name of a tensor: name of a local variable}.
        variables: {id of a variable: [names of local variables]}.
    """

    def __init__(self, looks=None):
        self.looks = looks
        self.tensors, self.variables = {}, {}  # type: dict[str, str], dict[int, list[str]]
        self._files = set()  # type: set[str]
        self._tensor_class = None  # type: Any

    @contextlib.contextmanager
    def of(self, optimizer):
        """Collects names inside a `with` block."""
        import tensorflow

        self._tensor_class = tensorflow.Tensor
        owners = [optimizer] + [each for each in vars(optimizer).values() if hasattr(each, "apply_gradients")]
        for owner in owners:
            for base in type(owner).__mro__:
                path = getattr(sys.modules.get(base.__module__), "__file__", None) or ""
                of_framework = base.__module__.split(".")[0] in FRAMEWORKS
                if path and not (of_framework and path.endswith(_BASES)):
                    self._files.add(path.replace(".pyc", ".py"))
        outer = sys.getprofile()
        sys.setprofile(self._look)
        try:
            yield
        finally:
            sys.setprofile(outer)

    def _look(self, frame, event, argument):
        if event == "c_call" and self.looks is not None:
            self.looks.note_call(argument, frame)
        if event == "return" and frame.f_code.co_filename in self._files:
            if self.looks is not None:
                self.looks.codes.add(frame.f_code)
            for name, value in list(frame.f_locals.items()):
                self._note(name, value)

    def _note(self, name, value):
        if name.startswith("_") or name == "self":
            return
        if isinstance(value, self._tensor_class):
            if not hasattr(value, "numpy"):  # eager tensors have no name
                self.tensors.setdefault(value.name, name)
        elif isinstance(value, dict):
            for key, each in list(value.items()):
                if isinstance(key, str) and isinstance(each, self._tensor_class):
                    self._note(key, each)
        elif isinstance(value, (list, tuple)):
            if len(value) == 1:
                self._note(name[:-1] if name.endswith("s") and len(name) > 1 else name, value[0])
        elif type(value).__module__ != "builtins" and is_variable(value):
            self.variables.setdefault(id(value), []).append(name)


def flags_of(optimizer):
    """Returns {attribute: True or False} of those that the optimizer's own constructor sets."""
    names = set()  # type: set[str]
    for base in type(optimizer).__mro__:
        init = vars(base).get("__init__")
        if base.__module__.split(".")[0] not in FRAMEWORKS and hasattr(init, "__code__"):
            names.update(getattr(init, "__code__").co_names)  # noqa: B009  # of a function, which mypy cannot know
    return {name: value for name, value in vars(optimizer).items() if isinstance(value, bool) and name in names}


def arguments_of(function):
    """Returns the names of a function's arguments."""
    if hasattr(inspect, "signature"):
        return list(inspect.signature(function).parameters)
    return list(getattr(inspect, "getargspec")(function).args)  # noqa: B009  # Python 2.7


def fresh(value):
    """Returns a new optimizer with the config of one that is an argument: each graph needs its own."""
    if hasattr(value, "get_config") and any(hasattr(value, hook) for hook in ("apply_gradients", "get_updates")):
        return type(value).from_config(value.get_config())
    return value
