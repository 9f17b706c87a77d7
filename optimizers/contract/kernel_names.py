"""Declares that a rule is a well-known one, which frameworks have fused kernels for."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract.configured import once

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments


# The rules that everstep.compat.engine.fused has kernels for.
KERNEL_NAMES = frozenset(
    "adadelta adagrad adam adamax adamw addsign ftrl nadam nadamw powersign proximal_adagrad "
    "proximal_gradient_descent rmsprop sgd sgdw".split()
)


class kernel(object):
    """Declares that `update` computes a well-known rule: `kernel = everstep.kernel("adam")`.

    If a framework has a kernel for the rule, the engine may run it instead of `update`. The numbers stay within the
    bounds of docs/numbers.md, which a test of everstep checks for each definition. The definition must have the hypers,
    options and slots of the rule of that name in `everstep.optimizers`, under the same names. A subclass that overrides
    `update` has no kernel.

    Args:
        name: the rule: "adadelta", "adagrad", "adam", "adamax", "adamw", "addsign", "ftrl", "nadam", "nadamw",
            "powersign", "proximal_adagrad", "proximal_gradient_descent", "rmsprop", "sgd" or "sgdw".
        when: the name of an option, or a function of the definition, that tells whether the rule is the well-known one.
            Default None: always.

    Raises:
        DefinitionError: no kernel has this name, or `when` is neither a name nor a function.

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
        """Returns whether a definition, with its options, is the rule of this name.

        Args:
            definition: an instance of the class that has this declaration.
        """
        if self.when is None:
            return True
        return bool(self.when(definition) if callable(self.when) else getattr(definition, self.when))

    def __repr__(self):
        return "everstep.kernel({!r})".format(self.name)


def kernel_of(definition):
    """Returns the `kernel` declaration that holds for a definition; None if there is none."""
    return once(definition, "kernel", lambda: _kernel_of(definition))


def _kernel_of(definition):
    rule = type(definition)  # type: Any
    owner = next(base for base in rule.__mro__ if "kernel" in vars(base))
    declared = vars(owner)["kernel"]
    if declared is None or _function(rule.update) is not _function(owner.update) or not declared.holds(definition):
        return None
    return declared


def _function(method):
    return getattr(method, "__func__", method)  # Python 2 wraps it in a method
