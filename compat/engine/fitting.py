"""Shapes that fit: of gradients, of variables, and of what a rule returns."""
from __future__ import absolute_import, division, print_function

from everstep.compat.rules.shapes import agree
from everstep.errors import RuleError

VAR = ("var",)  # the variable's name among a program's inputs; a tuple, so that no slot has such a name


def is_known(shape):
    """Returns whether a shape has a rank and all its sizes."""
    return shape is not None and None not in shape


def shape_needed(rule, record):
    """Returns the message for a variable whose shape must be known and is not."""
    shape = "not known" if record.shape is None else record.shape
    return (
        "{} needs the shape of {}, which is {}. Create the variable with a fixed shape, without validate_shape=False "
        "or shape=".format(rule._short(), record.name, shape)
    )


def broadcasts(actual, expected):
    """Returns whether a shape broadcasts to the expected shape, as far as both are known."""
    sizes = zip(reversed(actual), reversed(expected))
    return len(actual) <= len(expected) and all(a in (1, None, e) or e is None for a, e in sizes)


def fitted(backend, native, like, name, about, expected=None):
    """Broadcasts a rule's result to its full shape.

    Args:
        native: the result.
        like: the old value that the result replaces or changes.
        name: the slot's name; None or VAR for the change.
        about: the names of the rule's class and of the variable, for the error.
        expected: the full shape; by default that of `like`.

    Raises:
        RuleError: the result has another shape.
    """
    actual, expected = backend.shape(native), backend.shape(like) if expected is None else expected
    if agree(actual, expected):
        return native
    check_fits(actual, expected, name, about)
    return native + backend.ops["zeros_like"](like)


def check_fits(actual, expected, name, about):
    """Raises RuleError if a shape does not broadcast to the expected one. None: not known. The rest: see `fitted`."""
    if actual is not None and expected is not None and not broadcasts(actual, expected):
        raise RuleError(
            "{}.update gave {} shape {} for {}, which needs {}".format(
                about[0], "the change" if name in (None, VAR) else "slot " + name, actual, about[1], tuple(expected)
            )
        )
