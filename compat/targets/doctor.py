"""What is installed here, and what it speaks: the facts that `everstep doctor` prints."""
from __future__ import absolute_import, division, print_function

import importlib
import platform
from collections import OrderedDict, namedtuple

from everstep import optimizers
from everstep.compat.backends.on_tensorflow import TensorFlowBackend
from everstep.compat.engine.fused import KERNELS
from everstep.compat.engine.lowering import STRATEGIES
from everstep.compat.targets import detect
from everstep.errors import TargetError
from everstep.optimizers.contract.kernel_names import kernel_of

Package = namedtuple("Package", "name version broken")  # version: None where absent; broken: why it does not import
Speaks = namedtuple("Speaks", "module target why")  # target: None where it speaks none

# torch before the other frameworks: after them its import may crash, as Keras's own source notes.
_PACKAGES = ("numpy", "packaging", "torch", "jax", "tensorflow", "keras", "tf_keras", "h5py")


def packages():
    """The Python and the packages that matter here; imports those that are installed."""
    yield Package("python", platform.python_version(), None)
    for name in _PACKAGES:
        try:
            module = importlib.import_module(name)
            yield Package(name, module.__version__, None)
            if name == "keras":
                yield Package("keras runs on", module.backend.backend(), None)
        except Exception as error:  # whatever a broken installation raises is what a doctor is asked about
            absent = isinstance(error, ImportError) and _missing(error) == name
            yield Package(name, None, None if absent else "{}: {}".format(type(error).__name__, error))


def _missing(error):
    """The module that an import did not find; on Python 2 only the message says it."""
    return getattr(error, "name", None) or str(error).split(" ")[-1]


def speaks():
    """Which target each known module that is here speaks, and why, or why none."""
    for name, module in detect.known_modules():
        if module is None:
            continue
        try:
            found = detect.find(module)
        except TargetError as error:
            yield Speaks(name, None, str(error).split(". ")[0])
        else:
            base = "{}.{}".format(found.base.__module__, found.base.__name__)
            yield Speaks(name, found.target.name, "{}: {}".format(base, found.target.looked_for.split(" (")[0]))


def strategies():
    """(way, whether) for each way of carrying updates out on the TensorFlow that is here; nothing without one."""
    backend = _tensorflow_backend()
    for strategy in STRATEGIES if backend else ():
        yield strategy, "yes" if backend.lowers(strategy) else "no: TensorFlow is older than 1.14"


def kernels():
    """(definition, operation, variables that it is there for, the same on rows) of the TensorFlow that is here."""
    backend = _tensorflow_backend()
    for name in optimizers.__all__ if backend else ():
        made = getattr(optimizers, name)
        if made.kernel is None:
            continue
        found = OrderedDict()
        for definition in _forms(made):
            kernel = KERNELS[made.kernel.name](definition, definition._values.get) if kernel_of(definition) else None
            if kernel:
                found[kernel.operation] = kernel
        for operation, kernel in found.items():
            here = [backend.operation(operation, ref, False) for ref in (False, True)]
            rows = [kernel.by_rows and backend.operation(operation, ref, True) for ref in (False, True)]
            yield name, operation, _variables(here), _variables(rows)


def _forms(made):
    """A definition with its defaults, with each of its options turned, and with a momentum."""
    yield made()
    for name, declaration in sorted(made.declarations.items()):
        if declaration.kind == "option" and isinstance(declaration.default, bool):
            yield made(**{name: not declaration.default})
        if name == "momentum":
            yield made(momentum=0.9)
            if made.takes("rate_in_velocity"):
                yield made(momentum=0.9, rate_in_velocity=False)
        if name == "epsilon":
            yield made(epsilon=0.0)


def _variables(there):
    return ", ".join(kind for kind, found in zip(("resource", "ref"), there) if found) or "none"


def _tensorflow_backend():
    try:
        return TensorFlowBackend(importlib.import_module("tensorflow"))
    except Exception:  # absent, or broken, which `packages` reports
        return None
