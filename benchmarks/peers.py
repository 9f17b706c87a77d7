"""Measures rules of other libraries and of the APIs themselves, and ours in their place."""
import importlib
from functools import partial

import everstep
from timing import DENSE, Case

OURS = everstep.optimizers
ADDONS, CONTRIB = "tensorflow_addons.optimizers", "tensorflow.contrib.opt"
PEERS = {  # (module, class, arguments, ours) by target
    "tf_train": [
        (CONTRIB, "AdamWOptimizer", {"weight_decay": 0.01}, OURS.AdamW(weight_decay=0.01)),
        (CONTRIB, "AddSignOptimizer", {}, OURS.AddSign()),
        (CONTRIB, "NadamOptimizer", {}, OURS.Nadam(momentum_schedule=False, epsilon=1e-8)),
    ],
    "get_updates": [
        ("keras_adamw", "AdamW", {"total_iterations": 0}, OURS.AdamW()),
        ("keras.optimizers", "Nadam", {}, OURS.Nadam()),
        ("keras.optimizers", "RMSprop", {}, OURS.RMSprop()),
    ],
    "optimizer_v2": [
        (ADDONS, "AdaBelief", {}, OURS.AdaBelief()),
        (ADDONS, "LAMB", {}, OURS.LAMB()),
        (ADDONS, "NovoGrad", {}, OURS.NovoGrad()),
        (ADDONS, "RectifiedAdam", {}, OURS.RAdam()),
        (ADDONS, "Yogi", {}, OURS.Yogi()),
    ],
    "update_step": [("keras.optimizers", name, {}, getattr(OURS, name)()) for name in ("Adafactor", "Lion", "Nadam")],
    "keras3": [("keras.optimizers", name, {}, getattr(OURS, name)()) for name in ("Adafactor", "Lion", "Nadam")],
}


def peers(api):
    """Measures case B, 100 variables of 100k, with the first step. Leaves out a library that is not installed."""
    for module, name, options, definition in PEERS.get(api.name.replace(", jax", "").replace(", torch", ""), ()):
        make = installed(module, name)
        if make:
            yield Case(name, module, partial(api.compared, partial(make, **options), definition, DENSE["B"]))


def installed(module, name):
    """Returns a class of a library, or None if it is not installed."""
    try:
        return getattr(importlib.import_module(module), name) if module else None
    except (ImportError, AttributeError):
        return None
