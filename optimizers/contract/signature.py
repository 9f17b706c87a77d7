"""The signature of a constructor that is made from declarations, for `help`, `inspect.signature` and editors."""
from __future__ import absolute_import, division, print_function

import inspect

from everstep.optimizers.contract.declarations import REQUIRED


class _Shown(object):
    """Stands for a default that is no value, in the text of a signature."""

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


OF_INNER = _Shown("<as inside>")  # what a definition made of others has unless it is given
GIVEN = _Shown("<required>")  # where an argument without a default comes after one with


def signature_of(configured):
    """Returns the `inspect.Signature` of the constructor of a definition or schedule class.

    Raises:
        AttributeError: Python 2.7 has no signatures; `hasattr(cls, "__signature__")` is False there.
    """
    if not hasattr(inspect, "Signature"):
        raise AttributeError("__signature__: this Python has no inspect.Signature")
    return inspect.Signature(parameters(configured))


def parameters(configured):
    """Returns a list of the `inspect.Parameter` of a class's constructor."""
    positional, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    listed, optional = [], False
    for name in configured.argument_names():
        default = configured._shown_default(name)
        default = inspect.Parameter.empty if default is REQUIRED else default
        kind = keyword if name in configured.without_position + configured.keyword_only else positional
        if kind is positional:
            default = GIVEN if optional and default is inspect.Parameter.empty else default
            optional = default is not inspect.Parameter.empty
        listed.append(inspect.Parameter(name, kind, default=default))
    if configured._keywords:
        listed.append(inspect.Parameter(configured._keywords, inspect.Parameter.VAR_KEYWORD))
    return listed
