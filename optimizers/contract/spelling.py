"""What other libraries call an argument, and what it is called here: the hint in the error for an unknown argument."""
from __future__ import absolute_import, division, print_function

import difflib

# {name elsewhere: names here, the first that the class has}
_NAMES = {
    "alpha": ("rho", "learning_rate"), "b1": ("beta_1",), "b2": ("beta_2",), "beta1": ("beta_1",),
    "beta2": ("beta_2",), "decay_rate": ("rate",), "end_learning_rate": ("end",), "eps": ("epsilon",),
    "epsilon_hat": ("epsilon",), "eta": ("learning_rate",), "init_accumulator_value": ("initial_accumulator_value",),
    "initial_learning_rate": ("initial",), "l1_regularization_strength": ("l1",), "l2_regularization_strength": ("l2",),
    "l2_shrinkage_regularization_strength": ("l2_shrinkage",), "learningrate": ("learning_rate",),
    "momentum": ("beta_1", "beta"), "rate": ("learning_rate",), "rho": ("beta_2", "beta"),
    "step_size": ("learning_rate",), "t_mul": ("multiplier",), "m_mul": ("peak",), "use_nesterov": ("nesterov",),
    "wd": ("weight_decay",), "weight_decay_rate": ("weight_decay",),
}  # fmt: skip
_CLIP = "everstep.clip({owner}(...), {bound}=...) clips on every target; on Keras also .bind(module, {name}=...)"
_DECAY = (
    "AdamW, SGDW and NadamW have weight_decay, and everstep.decoupled_weight_decay({owner}(...), weight_decay=...) "
    "adds it to any definition"
)
_NATIVE = "it is an argument of bind: {owner}(...).bind(module, {name}=...)"
# {name elsewhere: how it is done here, if the class has no such argument}
_WAYS = {
    "amsgrad": "Adam, AdaBound, NovoGrad and RAdam have amsgrad",
    "betas": "give beta_1=... and beta_2=...",
    "centered": "RMSprop has centered",
    "clipnorm": _CLIP.replace("{bound}", "norm"),
    "clipvalue": _CLIP.replace("{bound}", "value"),
    "dampening": "SGD(momentum=..., dampening=...) has it",
    "ema_momentum": "everstep.moving_average({owner}(...), average_decay=...) averages on every target",
    "global_clipnorm": _CLIP.replace("{bound}", "global_norm"),
    "gradient_accumulation_steps": "everstep.accumulate({owner}(...), steps=...) accumulates on every target",
    "initial_accumulator_value": "Adagrad, AdagradDecay, Ftrl, ProximalAdagrad and Yogi have it",
    "jit_compile": _NATIVE,
    "loss_scale_factor": "everstep.loss_scale({owner}(...)) scales the loss on every target",
    "max_grad_norm": "everstep.clip({owner}(...), global_norm=...) clips on every target",
    "momentum": "SGD, RMSprop and LARS have momentum",
    "name": _NATIVE,
    "nesterov": "SGD(momentum=..., nesterov=True) and Nadam have Nesterov momentum",
    "rho": "RMSprop and Adadelta have rho",
    "use_ema": "everstep.moving_average({owner}(...), average_decay=...) averages on every target",
    "use_locking": _NATIVE,
    "wd": _DECAY,
    "weight_decay": _DECAY,
    "weight_decay_rate": _DECAY,
}


def advice(name, owner, known):
    """Returns what to write instead of an unknown argument, or None.

    Args:
        name: the unknown argument.
        owner: the name of the class.
        known: the names of the class's arguments.
    """
    for here in _NAMES.get(name, ()):
        if here in known:
            return "{} is called {} here".format(name, here)
    if name in _WAYS:
        return _WAYS[name].format(owner=owner, name=name)
    close = difflib.get_close_matches(name, known, 1, 0.7)
    return "did you mean {}?".format(close[0]) if close else None
