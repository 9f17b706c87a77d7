"""Everything that everstep raises. Each class is also the built-in one that callers already catch."""
from __future__ import absolute_import, division, print_function


class EverstepError(Exception):
    """Base of all errors raised by everstep."""

    # What comes out of a tf.function is of the class that was raised only if it has this very __init__:
    # https://github.com/tensorflow/tensorflow/blob/v2.15.0/tensorflow/python/autograph/pyct/error_utils.py#L216
    __init__ = Exception.__init__

    def __str__(self):
        # KeyError would show the message in quotes.
        return str(self.args[0]) if len(self.args) == 1 else Exception.__str__(self)


class DefinitionError(EverstepError, TypeError):
    """A definition's class is declared wrongly, or it is built with arguments that it does not take."""


class HyperTypeError(EverstepError, TypeError):
    """A hyper or option was given something of a type that it cannot be."""


class HyperValueError(EverstepError, ValueError):
    """A hyper or option has a value outside its range, or cannot be set now."""


class RuleError(EverstepError, ValueError):
    """A rule (`update`, `collect`, ...) returned or did what the contract does not allow."""


class UnknownOpError(EverstepError, AttributeError):
    """A rule used an op that is not in the table."""


class NotBoundError(EverstepError, AttributeError):
    """A definition was used where a native optimizer belongs; `.bind(module)` was forgotten."""


class TargetError(EverstepError, TypeError):
    """A module speaks no optimizer API that everstep can bind to."""


class UnsupportedError(EverstepError, ValueError):
    """The target, or this version of it, cannot do what was asked."""


class UnsupportedMemberError(UnsupportedError, AttributeError):
    """The target has no such method; `hasattr` says False."""


class GradientError(EverstepError, ValueError):
    """The gradients do not fit their variables, or there are none."""


class VariableError(EverstepError, TypeError):
    """A variable is of a kind that the target cannot train."""


class SlotError(EverstepError, KeyError):
    """A slot does not exist, or does not exist yet."""


class ConfigError(EverstepError, ValueError):
    """A configuration cannot be written, or cannot be read back."""


class StateError(EverstepError, ValueError):
    """A state does not fit the definition or the variables it is restored to."""


class FileError(StateError):
    """A file cannot be read as what it should be: damaged, of another format, or without an optimizer's state."""
