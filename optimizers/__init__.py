"""The definitions, one algorithm a file. Each module here and in `wrappers` is imported; what it defines is found here.

>>> from everstep.optimizers import Adam
>>> Adam(1e-2).beta_1
0.9
"""
from __future__ import absolute_import, division, print_function

# Private names, so that editors offer algorithms alone.
import importlib as _importlib
import pkgutil as _pkgutil
from itertools import chain as _chain

from everstep.optimizers.contract.definition import Definition as _Definition


def _definitions(package):
    """The definitions in the modules of a package; so that a new file is all that a new optimizer needs."""
    for _, name, is_package in _pkgutil.iter_modules(_importlib.import_module(package).__path__):
        if is_package:
            continue
        module = _importlib.import_module("{}.{}".format(package, name))
        for value in list(vars(module).values()):
            if isinstance(value, type) and issubclass(value, _Definition) and value.__module__ == module.__name__:
                yield value


_shipped = {each.__name__: each for each in _chain(_definitions(__name__), _definitions(__name__ + ".wrappers"))}
globals().update(_shipped)
__all__ = [name for name in sorted(_shipped)]


def __dir__():  # completion offers algorithms, not their modules; Python 2.7 and 3.6 do not ask
    return __all__ + [name for name in globals() if name.startswith("__")]
