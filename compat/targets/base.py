"""The base class of all targets."""
from __future__ import absolute_import, division, print_function

from everstep.compat.targets.construction import Construction
from everstep.compat.targets.stepping import Stepping

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments


class Target(Construction, Stepping):
    target = ""  # the name in the table of targets
    works_on = ""  # what speaks it, for people
    unsupported = ()  # type: tuple[Any, ...]
    definition_class = None  # type: Any
    native_base = None  # type: Any
    definition = None  # type: Any
    moved_natively = ()  # type: tuple[str, ...]  # counters that the base class moves by itself
    takes_gradients = False  # whether this API's optimizers take gradients of a loss
    sets_hypers = True  # whether hypers can be set after the optimizer is made
    has_slots = "once apply_gradients has run"  # when there are slots, for an error
    is_fused = True  # whether this API's own optimizers run fused kernels
