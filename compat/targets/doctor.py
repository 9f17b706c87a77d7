"""Collects the facts that `everstep doctor` prints: installed packages, their APIs, and the fast paths they allow."""
from __future__ import absolute_import, division, print_function

import importlib
import platform
import sys
from collections import OrderedDict, namedtuple

from everstep import optimizers
from everstep.compat.backends.on_tensorflow import TensorFlowBackend
from everstep.compat.engine.fused import KERNELS
from everstep.compat.engine.lowering import STRATEGIES
from everstep.compat.targets import detect
from everstep.errors import TargetError
from everstep.optimizers.contract.kernel_names import kernel_of

Package = namedtuple("Package", "name version broken")  # version: None if absent; broken: the error of its import
Speaks = namedtuple("Speaks", "module target why")  # target: None if the module has no known API

# torch before the other frameworks: after them its import may crash, as Keras's own source notes.
_PACKAGES = ("numpy", "packaging", "torch", "jax", "tensorflow", "keras", "tf_keras", "h5py", "optax")


def packages():
    """Yields the Python version and the packages that everstep works with. Imports those that are installed."""
    yield Package("python", platform.python_version(), None)
    for name in _PACKAGES:
        try:
            module = importlib.import_module(name)
            yield Package(name, module.__version__, None)
            if name == "keras":
                yield Package("keras runs on", module.backend.backend(), None)
        except Exception as error:  # a broken installation raises anything; the doctor reports it
            absent = isinstance(error, ImportError) and _missing(error) == name
            why = " ".join(str(error).split())  # one line: TensorFlow's errors have several
            yield Package(name, None, None if absent else "{}: {}".format(type(error).__name__, why))


def can_drive_tox():
    """Returns whether `everstep matrix` runs on this Python. Delete it when everstep needs 3.8."""
    return sys.version_info >= (3, 8)


def _missing(error):
    """Returns the name of the module that an import did not find; on Python 2 only the message has it."""
    return getattr(error, "name", None) or str(error).split(" ")[-1]


def speaks():
    """Yields the target of each installed module and the reason, or the reason why it has none."""
    for name, module in detect.known_modules():
        if module is None:
            continue
        try:
            api = detect.find(module)
        except TargetError as error:
            yield Speaks(name, None, str(error).split(". ")[0])
        else:
            base = "{}.{}".format(api.base.__module__, api.base.__name__)
            yield Speaks(name, api.target.name, "{}: {}".format(base, api.target.looked_for.split(" (")[0]))


def strategies():
    """Yields (strategy, "yes" or "no: ...") for each update strategy on the installed TensorFlow, if any."""
    backend = _tensorflow_backend()
    for strategy in STRATEGIES if backend else ():
        yield strategy, "yes" if backend.lowers(strategy) else "no: TensorFlow is older than 1.14"


def kernels():
    """Yields (definition, operation, kinds of variables, the same for rows) for each fused kernel of TensorFlow."""
    backend = _tensorflow_backend()
    for name in optimizers.__all__ if backend else ():
        cls = getattr(optimizers, name)
        if cls.kernel is None:
            continue
        by_operation = OrderedDict()
        for definition in _variants(cls):
            kernel = KERNELS[cls.kernel.name](definition, definition._values.get) if kernel_of(definition) else None
            if kernel:
                by_operation[kernel.operation] = kernel
        for operation, kernel in by_operation.items():
            dense = [backend.operation(operation, ref, False) for ref in (False, True)]
            rows = [kernel.by_rows and backend.operation(operation, ref, True) for ref in (False, True)]
            yield name, operation, _kinds(dense), _kinds(rows)


def _variants(cls):
    """Yields a definition with its defaults, with each boolean option flipped, with momentum and without epsilon."""
    yield cls()
    for name, declaration in sorted(cls.declarations.items()):
        if declaration.kind == "option" and isinstance(declaration.default, bool):
            yield cls(**{name: not declaration.default})
        if name == "momentum":
            yield cls(momentum=0.9)
            if cls.takes("rate_in_velocity"):
                yield cls(momentum=0.9, rate_in_velocity=False)
        if name == "epsilon":
            yield cls(epsilon=0.0)


def _kinds(operations):
    """Returns "resource, ref", one of them, or "none": the kinds of variables for which an operation exists."""
    return ", ".join(kind for kind, operation in zip(("resource", "ref"), operations) if operation) or "none"


def _tensorflow_backend():
    try:
        return TensorFlowBackend(importlib.import_module("tensorflow"))
    except Exception:  # absent, or broken: `packages` reports it
        return None
