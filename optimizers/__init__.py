"""The definitions, one algorithm a file. Each module here and in `wrappers` is imported; what it defines is found here.

>>> from everstep.optimizers import Adam
>>> Adam(1e-2).beta_1
0.9
"""
from __future__ import absolute_import, division, print_function

import importlib
import pkgutil

from everstep.optimizers.contract.definition import Composite, Definition, Wrapper

_BASES = (Definition, Composite, Wrapper)


def _definitions(path, package):
    """The definitions in the modules of a folder; so that a new file is all that a new optimizer needs."""
    for _, name, is_package in pkgutil.iter_modules(path):
        module = importlib.import_module("{}.{}".format(package, name))
        if is_package:
            for found in _definitions(module.__path__, module.__name__):
                yield found
        for value in list(vars(module).values()):
            own = isinstance(value, type) and issubclass(value, Definition) and value.__module__ == module.__name__
            if own and value not in _BASES:
                yield value


_found = sorted(_definitions(__path__, __name__), key=lambda made: made.__name__)
globals().update((made.__name__, made) for made in _found)
__all__ = [made.__name__ for made in _found]
