"""The definitions, one algorithm a file. Each module here and in `wrappers` is imported; what it defines is found here.

>>> from everstep.optimizers import Adam
>>> Adam(1e-2).beta_1
0.9
"""
from __future__ import absolute_import, division, print_function

# Private names, so that editors offer algorithms alone.
import importlib as _importlib
import pkgutil as _pkgutil

from everstep.optimizers.contract.definition import Definition as _Definition


def _found(package):
    """{name: value} of the definitions in the modules of a package, and of the functions that are named like theirs.

    So a new file is all that a new optimizer needs.
    """
    found = {}
    for _, name, is_package in _pkgutil.iter_modules(_importlib.import_module(package).__path__):
        if is_package:
            continue
        module = _importlib.import_module("{}.{}".format(package, name))
        for key, value in vars(module).items():
            is_definition = isinstance(value, type) and issubclass(value, _Definition)
            if (is_definition or key == name) and value.__module__ == module.__name__:
                found[key] = value
    return found


_in_wrappers = _found(__name__ + ".wrappers")
vars(_importlib.import_module(__name__ + ".wrappers")).update(_in_wrappers, __all__=sorted(_in_wrappers))
_shipped = _found(__name__)
_shipped.update((name, value) for name, value in _in_wrappers.items() if isinstance(value, type))
globals().update(_shipped)
__all__ = [name for name in sorted(_shipped)]


def __dir__():  # completion offers algorithms, not their modules; Python 2.7 and 3.6 do not ask
    return __all__ + [name for name in globals() if name.startswith("__")]
