"""All errors that everstep raises, and its warning. An error is also a built-in one that callers already catch."""
from __future__ import absolute_import, division, print_function


class EverstepError(Exception):
    """Base class of all errors that everstep raises."""

    # tf.function raises an error again in its own class only if the class has the __init__ of Exception:
    # https://github.com/tensorflow/tensorflow/blob/v2.15.0/tensorflow/python/autograph/pyct/error_utils.py#L216
    __init__ = Exception.__init__

    def __str__(self):
        # KeyError would print the message in quotes.
        return str(self.args[0]) if len(self.args) == 1 else Exception.__str__(self)


class DefinitionError(EverstepError, TypeError):
    """The class of a definition is declared wrongly, or a definition is built with arguments that do not fit."""


class NativeArgumentError(DefinitionError, ValueError):
    """The native base class refuses the value of a keyword, such as two bounds for clipping."""


class HyperTypeError(EverstepError, TypeError):
    """The value of a hyper or option is of the wrong type."""


class HyperValueError(EverstepError, ValueError):
    """The value of a hyper or option is outside its range, or it cannot be set now."""


class RuleError(EverstepError, ValueError):
    """A verb (`update`, `collect`, ...) breaks the contract of `everstep.Definition`."""


class UnknownOpError(EverstepError, AttributeError):
    """A verb used an op that `ops` does not have."""


class NotBoundError(EverstepError, AttributeError):
    """A definition was used as a native optimizer: `.bind(module)` was forgotten."""


class TargetError(EverstepError, TypeError):
    """A module belongs to no optimizer API that everstep can bind to."""


class UnsupportedError(EverstepError, ValueError):
    """The target, or this version of it, cannot do what was asked."""


class PortError(UnsupportedError):
    """A foreign optimizer cannot be written down as a definition, or what was written down computes something else."""


class PortSparseError(PortError):
    """The dense update of a foreign optimizer was written down, but its sparse update is none that definitions have."""


class UnsupportedMemberError(UnsupportedError, AttributeError):
    """The target lacks a method or attribute. `hasattr` returns False for it."""


class GradientError(EverstepError, ValueError):
    """Gradients do not fit their variables, or no variable has a gradient."""


class VariableError(EverstepError, TypeError):
    """The target cannot train a variable of this kind."""


class SlotError(EverstepError, KeyError):
    """A slot does not exist, or does not exist yet."""


class TrainSlotError(SlotError, AttributeError):
    """A tf.train optimizer has no such slot, or not yet. TF up to 1.12 needs an AttributeError to save its objects."""


class NotBuiltError(SlotError, ValueError):
    """Weights were set before the slots exist."""


class ConfigError(EverstepError, ValueError):
    """A config cannot be written or read."""


class StateError(EverstepError, ValueError):
    """A state does not fit the definition or the variables that it is restored to."""

    def __str__(self):
        # A file can have names of megabytes, or millions of names.
        text = EverstepError.__str__(self)
        more = len(text) - 20000
        return text if more <= 0 else "{} ... ({} characters more)".format(text[:-more], more)


class FileError(StateError):
    """A file cannot be read: it is damaged, of another format, or without an optimizer's state."""


class NoFileError(FileError):
    """There is no file or checkpoint at a path."""


class CheckError(EverstepError, AssertionError):
    """`everstep.testing` found a mistake in a definition, or a difference between optimizers."""


class StateWarning(UserWarning):
    """A framework's loader or copy left out a part of an optimizer's state and went on, as it does with stock.

    The message says what was left out, why, and which line restores it.

    >>> import warnings, everstep
    >>> warnings.simplefilter("error", everstep.StateWarning)    # a program that wants an error instead
    >>> warnings.resetwarnings()
    """
