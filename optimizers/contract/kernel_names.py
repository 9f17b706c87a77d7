"""Declares that a rule is a well-known one, for which frameworks have fused kernels."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract.configured import once

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments


# The rules that everstep.compat.engine.fused has kernels of.
KERNEL_NAMES = frozenset(
    "adadelta adagrad adam adamax adamw addsign ftrl nadam nadamw powersign proximal_adagrad rmsprop sgd sgdw".split()
)


class kernel(object):
    """A declaration, `kernel = everstep.kernel("adam")`: this definition's `update` is the rule of that name.

    Where a framework has a kernel for it, the engine may run that in place of `update`; the numbers stay within the
    bounds of docs/numbers.md, which a test of everstep's shows for each. The definition has the hypers, options and
    slots that the rule of that name has in `everstep.optimizers`, under the same names. A subclass that overrides
    `update` loses the word.

    Args:
        name: one of those in KERNEL_NAMES: "adam", "sgd", ...
        when: the name of an option, or a predicate on the definition, that says whether it holds; always unless given.

    >>> import everstep
    >>> class MyAdam(everstep.optimizers.Adam):
    ...     kernel = everstep.kernel("adam", when=lambda self: not self.amsgrad)
    """

    def __init__(self, name, when=None):
        if name not in KERNEL_NAMES:
            known = ", ".join(sorted(KERNEL_NAMES))
            raise DefinitionError("there is no kernel {!r}; there are: {}".format(name, known))
        if not (when is None or callable(when) or isinstance(when, str)):
            raise DefinitionError("`when` is a name or a function of the definition; got {!r}".format(when))
        self.name, self.when = name, when

    def holds(self, definition):
        if self.when is None:
            return True
        return bool(self.when(definition) if callable(self.when) else getattr(definition, self.when))

    def __repr__(self):
        return "everstep.kernel({!r})".format(self.name)


def kernel_of(definition):
    """The `kernel` that says what a definition's `update` is; None where nothing does."""
    return once(definition, "kernel", lambda: _kernel_of(definition))


def _kernel_of(definition):
    made = type(definition)  # type: Any
    owner = next(base for base in made.__mro__ if "kernel" in vars(base))
    declared = vars(owner)["kernel"]
    if declared is None or _function(made.update) is not _function(owner.update) or not declared.holds(definition):
        return None
    return declared


def _function(method):
    return getattr(method, "__func__", method)  # Python 2 wraps it
