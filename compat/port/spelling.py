"""Names of hypers, slots and local variables of a definition, made from those of the original."""
from __future__ import absolute_import, division, print_function

import keyword
import re

from everstep.optimizers.contract.declared import Declared
from everstep.optimizers.contract.definition import Definition

_CANONICAL = {"lr": "learning_rate", "learn_rate": "learning_rate", "beta1": "beta_1", "beta2": "beta_2",
              "eps": "epsilon", "decay": "rate_decay", "name": "label"}
_MEMBERS = frozenset(name for name in dir(Definition) if not name.startswith("_"))
ARGUMENTS = ("self", "ops", "grad", "var", "slots", "hyper", "t", "scalars")
# What authors call the new value of the variable, and the rate at a step.
_LOCAL = {"var_t": "new_var", "var_update": "new_var", "new_p": "new_var", "p_t": "new_var", "next_param": "new_var",
          "lr_t": "rate", "lr": "rate", "update_with_lr": "scaled_update"}


def cleaned(name):
    """Returns a name that Python takes, without leading or double underscores."""
    name = re.sub(r"[^0-9a-zA-Z_]", "_", name)
    name = re.sub(r"__+", "_", name).strip("_") or "value"
    name = "n" + name if name[0].isdigit() else name
    return name + "_value" if keyword.iskeyword(name) else name


def declared_name(name):
    """Returns the name of a hyper, slot or scalar for a name of the original."""
    name = cleaned(name)
    name = _CANONICAL.get(name, name)
    return "the_" + name if name in Declared.reserved or name in _MEMBERS else name


def local_name(name, taken):
    """Returns a free name of a local variable for one of the original's, and adds it to `taken`."""
    name = cleaned(name)
    name = _LOCAL.get(name, name)
    if name.endswith("_t") and len(name) > 3 and name[:-2] not in taken:
        name = name[:-2]
    free, number = name, 2
    while free in taken or free in ARGUMENTS:
        free, number = "{}_{}".format(name, number), number + 1
    taken.add(free)
    return free
