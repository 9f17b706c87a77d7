"""How a definition is written on each API, for its page. tests/test_website.py binds each in every cell."""
from __future__ import absolute_import, division, print_function

import re

import everstep
from everstep.optimizers import *  # noqa: F403  the names that the calls below use
from everstep.optimizers.contract import Composite
from everstep.show import function_of

INNER = "Adam(1e-3)"
# What a wrapper needs besides the definition inside of it.
WRAPPED = {
    "accumulate": "{inner}, steps=4",
    "clip": "{inner}, global_norm=1.0",
    "decoupled_weight_decay": "{inner}, weight_decay=0.01, exclude=\"bias|norm\"",
    "l2_penalty": "{inner}, weight_decay=1e-4",
    "learning_rate_multipliers": "{inner}, {{\"embedding\": 0.1}}",
    "multistage": "SGD(0.1), \"heun\"",
    "partition": "{{\"embedding\": SGD(0.1)}}, default={inner}",
    "rate_decay": "{inner}, rate=0.01",
    "stochastic_weight_averaging": "{inner}, start=1000, period=100",
}
# (how it is written, a comment). {} is the definition.
KERAS = "model.compile(optimizer={}.bind(keras), loss=\"mse\")"
OTHERS = [
    ("model.compile(optimizer={}.bind(tf.keras), loss=\"mse\")", "tf.keras of TF 1.4 to 2.21"),
    ("train_op = {}.bind(tf.train).minimize(loss, global_step)", "graphs of TF 1; in TF 2 tf.compat.v1.train"),
    ("optimizer = {}.bind(torch.optim, params=model.parameters())", "PyTorch without Keras"),
]
OPTAX = ("transform = {}.bind(optax)", "JAX without Keras")
STAGES = ("everstep.enable_multistage(model)", "fit then takes {} gradients of each batch")


def call(definition):
    """Returns an expression that makes an instance of a definition's class."""
    function = function_of(definition)
    if function is not None:
        return "everstep.{}({})".format(
            function.__name__, WRAPPED.get(function.__name__, "{inner}").format(inner=INNER))
    rate = definition.declarations.get("learning_rate")
    return "{}({})".format(definition.__name__, "" if rate is None else "learning_rate={!r}".format(rate.default))


def instance(definition):
    """Returns what `call` makes."""
    return eval(call(definition), dict(globals(), everstep=everstep))


def imports(definition):
    """Returns the lines before the call."""
    names = set(re.findall(r"\w+(?=\()", call(definition))).intersection(everstep.optimizers.__all__)
    imported = "from everstep.optimizers import " + ", ".join(sorted(names))
    return (["import everstep"] if "everstep." in call(definition) else []) + [imported]


def lines(definition):
    """Returns (lines for Keras, lines for other APIs)."""
    made = instance(definition)
    text, before = call(definition), []
    if issubclass(definition, Composite):
        before, text = ["definition = " + text], "definition"
    others = OTHERS + ([OPTAX] if made.stages == 1 else [])
    after = ["{}    # {}".format(STAGES[0], STAGES[1].format(made.stages))] if made.stages > 1 else []
    return (imports(definition) + [""] + before + [KERAS.format(text)] + after,
            [line for template, where in others for line in ("# " + where, template.format(text), "")][:-1])
