"""Records what an original asks about its variables: their names, and where it looks at their sizes and dtypes.

Code outside of the frameworks gets names that note each question: a part of a name, its start, its end, a pattern.
"""
from __future__ import absolute_import, division, print_function

import contextlib
import linecache
import os
import re
import sys
from collections import namedtuple

from everstep.compat.stock.lookup import FRAMEWORKS
from everstep.optimizers.contract.checks import TEXT

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

# A question about a name. kind: "contains", "starts", "ends", "equals", "search", "match", "fullmatch"; "key" of a
# dictionary or set, or "rank" among other names. text: what it is compared with. any_case: whether the name was made
# lower or upper case. part: "" for all of it, else "first", "middle" or "last" between slashes, "only" if there are
# none, or "?". where: "file:line". truth: the answer, None if it is not known.
Look = namedtuple("Look", "kind text any_case part where truth")
_INSIDE = FRAMEWORKS + ("numpy", "everstep", "six", "wrapt", "absl", "typeguard", "tree", "google")
_STANDARD = os.path.dirname(os.__file__)  # where Python's own modules are
_DECAYING = ("_use_weight_decay", "_do_use_weight_decay")  # of Keras, but what they look for is the user's
_SIZED = ("int_shape", "ndim", "count_params", "shape", "rank", "size")  # functions of frameworks that users call
_TYPED = ("dtype", "floatx")  # those that return the name of a dtype
_BACKEND = re.compile(r"(keras|tf_keras|tensorflow|tensorflow_core)\..*(backend|config)[^.]*$")
_OF_DTYPES = ("__eq__", "__ne__", "__hash__", "size", "as_numpy_dtype", "limits", "min", "max", "is_floating")
_PATTERN = type(re.compile(""))


def is_outside(frame):
    """Returns whether a frame runs code of no framework, and not of Python's own modules."""
    root, path = str(frame.f_globals.get("__name__", "")).split(".")[0], frame.f_code.co_filename
    is_standard = path.startswith(("<frozen", _STANDARD)) and "-packages" not in path
    return not (root in _INSIDE or is_standard) or frame.f_code.co_name in _DECAYING


def where(frame):
    """Returns "file:line" of a frame."""
    return "{}:{}".format(frame.f_code.co_filename, frame.f_lineno)


def line_of(place):
    """Returns "file, line 7: its text" of "file:7"."""
    path, _, number = place.rpartition(":")
    text = linecache.getline(path, int(number)).strip()
    return "{}, line {}{}".format(path, number, text and ": " + text)


class Looks(object):
    """Records the questions of an original about its variables while it is traced.

    Attributes:
        names: [Look] at names, in order.
        sizes: ["file:line"] where it reads a shape.
        dtypes: ["file:line"] where it compares or measures a dtype, or looks something up by one.
        codes: the code objects of the original's functions that ran.
    """

    def __init__(self):
        self.names, self.sizes, self.dtypes, self.codes = [], [], [], set()  # type: Any
        self._variables = []  # type: list[Any]

    @contextlib.contextmanager
    def at(self, variables):
        """Records inside a `with` block. variables: those whose names count."""
        self._variables = list(variables) + [each._value for each in variables if hasattr(each, "_value")]
        tf, classes = sys.modules["tensorflow"], {type(each) for each in self._variables}
        changed = [_replaced(cls, name, self._looked) for cls in classes for name in ("name", "_shared_name", "path")]
        changed += [_replaced(cls, name, self._sized) for cls in classes | {tf.Tensor}
                    for name in ("shape", "get_shape")]
        changed += [_replaced(type(tf.float32), name, self._typed) for name in _OF_DTYPES]
        changed += [_replaced(*each) for each in [(type(tf.float32), "name", self._type_named)] + [
            (cls, "dtype", self._type_named) for cls in classes]]
        functions = [(re, name, self._search(name, getattr(re, name))) for name in _SEARCHES]
        # TF 1.14 wraps modules in objects that ask the module for each name, so `vars` does not have it.
        backends = [module for name, module in sorted(sys.modules.items()) if _BACKEND.match(name)]
        functions += [(module, "floatx", self._floatx(module.floatx)) for module in backends
                      if callable(getattr(module, "floatx", None))]
        for owner, name, function in functions:
            changed.append((owner, name, getattr(owner, name)))
            setattr(owner, name, function)
        try:
            yield
        finally:
            for each in reversed([each for each in changed if each]):
                setattr(*each)

    def _looked(self, owner, value, frame):
        is_ours = isinstance(value, TEXT) and any(owner is each for each in self._variables)
        return Name(str(value), self) if is_ours and is_outside(frame) else value

    def _sized(self, owner, value, frame):
        if not is_outside(frame) and frame.f_code.co_name in _SIZED:
            frame = frame.f_back
        if is_outside(frame) and where(frame) not in self.sizes:
            self.sizes.append(where(frame))
        return value

    def _typed(self, owner, value, frame):
        if "apply_state" not in linecache.getline(frame.f_code.co_filename, frame.f_lineno):  # OptimizerV2's own keys
            self.note_dtype(frame)
        return value

    def _type_named(self, owner, value, frame):
        if frame.f_code.co_name in _TYPED and not is_outside(frame):
            frame = frame.f_back
        return Name(str(value), _OfDtype(self)) if isinstance(value, TEXT) and is_outside(frame) else value

    def _floatx(self, function):
        return lambda: self._type_named(None, function(), sys._getframe(1))

    def note_dtype(self, frame):
        if is_outside(frame) and where(frame) not in self.dtypes:
            self.dtypes.append(where(frame))

    def note(self, kind, name, text, truth, frame):
        if is_outside(frame):
            for each in text if isinstance(text, (tuple, list)) else [text]:
                if kind == "equals" and is_private(str(each)):
                    continue
                look = Look(kind, each, name.any_case, name.part, where(frame), truth)
                if look not in self.names:
                    self.names.append(look)

    def note_call(self, function, frame):
        """Notes a call of a compiled pattern, which does not say of which text."""
        pattern = getattr(function, "__self__", None)
        if isinstance(pattern, _PATTERN) and function.__name__ in _SEARCHES and is_outside(frame):
            self.note(_SEARCHES[function.__name__], Name("", self), pattern, None, frame)

    def _search(self, name, function):
        def search(pattern, string, *args, **kwargs):
            if not isinstance(string, Name):
                return function(pattern, string, *args, **kwargs)
            found = function(pattern, str(string), *args, **kwargs)
            flags = kwargs.get("flags", args[0] if args else 0)
            pattern = re.compile(pattern, flags) if flags else pattern
            string.looks.note(_SEARCHES[name], string, pattern, bool(found), sys._getframe(1))
            return _Match(found, string) if found else found

        return search


def is_private(name):
    """Returns whether a name is that of an attribute: TF 2.0 looks keys up among them. No variable is called so."""
    return name.startswith("_")


class _OfDtype(object):
    """Notes what the name of a dtype is compared with."""

    def __init__(self, looks):
        self._looks = looks

    def note(self, kind, name, text, truth, frame):
        self._looks.note_dtype(frame)


_SEARCHES = {"search": "search", "match": "match"}
if hasattr(re, "fullmatch"):
    _SEARCHES["fullmatch"] = "fullmatch"


def _replaced(cls, name, looked):
    """Makes an attribute of a class call `looked(object, value, frame)`. Returns what undoes it, or None."""
    owner = next((base for base in cls.__mro__ if name in vars(base)), None)
    old = vars(owner).get(name) if owner else None
    if isinstance(old, property):
        get = old.fget  # type: Any
        new = property(lambda self: looked(self, get(self), sys._getframe(1)), old.fset)  # type: Any
    elif callable(old):
        call = old  # type: Any

        def new(self, *args, **kwargs):
            return looked(self, call(self, *args, **kwargs), sys._getframe(1))
    else:
        return None
    setattr(owner, name, new)
    return owner, name, old


class Name(str):
    """The name of a variable, or a part of it, that notes what it is compared with."""

    any_case, part = False, ""
    looks = None  # type: Any

    def __new__(cls, text, looks, any_case=False, part=""):
        self = str.__new__(cls, text)
        self.looks, self.any_case, self.part = looks, any_case, part
        return self

    def __hash__(self):
        self.looks.note("key", self, "", None, sys._getframe(1))
        return str.__hash__(self)

    def __ne__(self, other):
        return not self._asked("equals", "__eq__", other)

    def _asked(self, kind, method, *args):
        truth = getattr(str, method)(self, *args)
        self.looks.note(kind, self, args[0], truth not in (False, -1, NotImplemented), sys._getframe(2))
        return truth

    def _made(self, text, method):
        """Returns what a method made of the name."""
        if isinstance(text, (list, tuple)):
            count = len(text)
            parts = ["first"] + ["middle"] * (count - 2) + ["last"] if count > 1 else ["only"]
            return type(text)([Name(each, self.looks, self.any_case, part) for each, part in zip(text, parts)])
        return Name(text, self.looks, self.any_case or method in ("lower", "upper", "casefold"), self.part)


def _question(kind, method):
    return lambda self, *args: self._asked(kind, method, *args)


def _maker(method):
    def make(self, *args, **kwargs):
        made = getattr(str, method)(self, *args, **kwargs)
        if isinstance(made, (list, tuple)):
            known = args and args[0] == "/"
            names = self._made(made, method)
            if not known and args[:1] != (":",):
                for each in names:
                    each.part = "?"
            elif not known:  # what stands before the `:0`
                names[0].part = self.part
            return names
        return self._made(made, method) if isinstance(made, str) else made

    return make


for _kind, _methods in (
    ("contains", ("__contains__", "find", "rfind", "index", "count")), ("starts", ("startswith",)),
    ("ends", ("endswith",)), ("equals", ("__eq__",)),
    ("rank", ("__lt__", "__gt__", "__le__", "__ge__")),
):
    for _name in _methods:
        setattr(Name, _name, _question(_kind, _name))
for _name in ("lower upper casefold strip lstrip rstrip replace split rsplit partition rpartition __add__ __mod__ "
              "__getitem__ __getslice__").split():  # the last one of Python 2
    if hasattr(str, _name):
        setattr(Name, _name, _maker(_name))


class _Match(object):
    """A match in a name, whose groups are parts of that name."""

    def __init__(self, match, name):
        self._match, self._name = match, name

    def __getattr__(self, attribute):
        return getattr(self._match, attribute)

    def group(self, *places):
        found = self._match.group(*places)
        return self._name._made(found, "group") if isinstance(found, str) else found

    def groups(self, *args):
        return tuple(each and self._name._made(each, "group") for each in self._match.groups(*args))
