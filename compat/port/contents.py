"""What an original's code contains: the keys of its dictionaries and sets, and its whole numbers."""
from __future__ import absolute_import, division, print_function

import inspect

from everstep.compat.stock.lookup import FRAMEWORKS

_DEEPEST, _MOST = 7, 4000  # how far, and how many values


class Contents(object):
    """Strings and whole numbers of the code of an optimizer's classes, closures, globals, attributes and arguments.

    Attributes:
        keys: a set of texts: keys of dictionaries, and what sets have.
        numbers: a set of whole numbers.
        codes: the code objects of functions.
    """

    def __init__(self, optimizer, arguments):
        self.keys, self.numbers, self.codes, self._seen = set(), set(), [], {}
        for value in list(arguments.values()) + [type(optimizer)]:
            self._add(value, 0)
        used = set(name for code in self.codes for name in code.co_names)
        for name, value in vars(optimizer).items():
            if name in used:  # and no attribute that only frameworks use
                self._add(value, 0)

    def keys_at(self, path, line):
        """Returns the texts that a name may be looked up by in a line: keys, and the constants of its function."""
        codes = [code for code in self.codes if code.co_filename == path and code.co_firstlineno <= line]
        inner = max(codes, key=lambda code: code.co_firstlineno).co_consts if codes else ()
        texts = [text for each in inner for text in (each if isinstance(each, (tuple, frozenset)) else [each])]
        return sorted(self.keys.union(text for text in texts if isinstance(text, str)))

    def _add(self, value, depth):
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value // 1:
            self.numbers.add(value)
        if id(value) in self._seen or depth > _DEEPEST or len(self._seen) > _MOST:
            return
        self._seen[id(value)] = value  # held, so that no other gets its id
        for each in self._inside(value):
            self._add(each, depth + 1)

    def _inside(self, value):
        """Returns the values in a value."""
        if isinstance(value, dict):
            self.keys.update(key for key in value if isinstance(key, str))
            return list(value.values()) + [key for key in value if not isinstance(key, str)]
        if isinstance(value, (set, frozenset)):
            self.keys.update(each for each in value if isinstance(each, str))
            return list(value)
        if isinstance(value, (list, tuple)):
            return list(value)[:200]
        if inspect.ismethod(value):
            return [value.__func__]
        if isinstance(value, type):
            owned = [base for base in value.__mro__ if _is_users(base.__module__)]
            return [each for base in owned for name, each in vars(base).items() if not name.startswith("__")
                    or name in ("__init__", "__call__")]
        if isinstance(value, property):
            return [value.fget]
        if isinstance(value, (staticmethod, classmethod)):
            return [value.__func__]
        if inspect.isfunction(value):
            return self._of_function(value) if _is_users(value.__module__) else []
        if inspect.iscode(value):
            self.codes.append(value)
            return [each for each in value.co_consts if not isinstance(each, str)]
        if hasattr(value, "func") and hasattr(value, "keywords"):  # functools.partial
            return [value.func, value.args, value.keywords]
        return [vars(value), type(value)] if hasattr(value, "__dict__") and _is_users(type(value).__module__) else []

    @staticmethod
    def _of_function(function):
        inside = [function.__code__, function.__defaults__] + list(function.__dict__.values())
        for cell in function.__closure__ or ():
            try:
                inside.append(cell.cell_contents)
            except ValueError:  # of a variable that has no value yet
                pass
        for code in [function.__code__] + [each for each in function.__code__.co_consts if inspect.iscode(each)]:
            inside += [function.__globals__[name] for name in code.co_names if name in function.__globals__]
        return inside


def _is_users(module):
    return str(module).split(".")[0] not in FRAMEWORKS + ("builtins", "__builtin__", "numpy", "inspect", "re")
