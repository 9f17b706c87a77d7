"""Prints definitions in wrappers as the Python that makes them."""
from __future__ import absolute_import, division, print_function

from everstep.compat.port.choices import quoted

_FUNCTIONS = (
    "accumulate", "centralize", "clip", "lookahead", "loss_scale", "moving_average", "stochastic_weight_averaging",
)


def expression_of(definition, inner, text):
    """Returns the Python text of a definition. inner: a definition inside, which is written as `text`."""
    if definition == inner:
        return text
    function = type(definition).__module__.rpartition(".")[2]
    callee = function if function in _FUNCTIONS else "optimizers." + type(definition).__name__
    arguments = [expression_of(definition.inner, inner, text)]
    for name, value in definition._given().items():
        if name != "inner" and value != definition.declarations[name].default and name not in ("sparse", "dense_ok"):
            arguments.append("{}={}".format(name, quoted(value)))
    return "everstep.{}({})".format(callee, ", ".join(arguments))
