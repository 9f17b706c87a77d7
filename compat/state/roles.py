"""Which entry of a framework's file is which slot of a definition: one table, and how it is read.

Files of stock optimizers tell slots by place or by a number at a name's end; what that means depends on the API and the
kind of optimizer. A line of ROLES says it for one. `a b | c d` are two blocks: in the first come a and b of one
variable, then of the next; then c and d likewise. `ours=theirs` where the API has another name for a slot; `*` at one
that is there whether or not it is used.
"""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict, namedtuple

import numpy as np

from everstep.compat.state.native_file import Handle
from everstep.compat.state.state import State
from everstep.compat.stock.table import FORMS
from everstep.errors import FileError, StateError, UnsupportedError
from everstep.optimizers.contract.tree import flat

# op: what the names of its slots end with in tf.train.Saver's files, _1, _2, ... behind all but the first.
Roles = namedtuple("Roles", "target native op blocks")

_TRAIN = [
    ("GradientDescentOptimizer", "GradientDescent", ""),
    ("MomentumOptimizer", "Momentum", "velocity=momentum"),
    ("RMSPropOptimizer", "RMSProp", "mean_square=rms mean_grad=mg velocity=momentum*"),
    ("AdagradOptimizer", "Adagrad", "accumulator"),
    ("AdadeltaOptimizer", "Adadelta", "mean_square=accum mean_square_step=accum_update"),
    ("AdamOptimizer", "Adam", "m v"),
    ("FtrlOptimizer", "Ftrl", "accumulator=accum linear"),
    ("LazyAdamOptimizer", "Adam", "m v"),
    ("AdaMaxOptimizer", "AdaMax", "m u=v"),
    ("NadamOptimizer", "Adam", "m v"),
    ("AdamWOptimizer", "AdamW", "m v"),
    ("MomentumWOptimizer", "MomentumW", "velocity=momentum"),
]
_OPTIMIZER_V2 = [
    ("SGD", "", "velocity=momentum"),
    ("RMSprop", "", "mean_square=rms | velocity=momentum | mean_grad=mg"),
    ("Adagrad", "", "accumulator"),
    ("Adadelta", "", "mean_square=accum_grad | mean_square_step=accum_var"),
    ("Adam", "", "m | v | v_hat=vhat"),
    ("Adamax", "", "m | u=v"),
    ("Nadam", "", "m | v"),
    ("Ftrl", "", "accumulator linear"),
]
_GET_UPDATES = [
    ("SGD", "", "velocity*"),
    ("RMSprop", "", "mean_square"),
    ("Adagrad", "", "accumulator"),
    ("Adadelta", "", "mean_square | mean_square_step"),
    ("Adam", "", "m | v | v_hat*"),
    ("Adamax", "", "m | u"),
    ("Nadam", "", "m | v"),
]
_UPDATE_STEP = [
    ("SGD", "", "velocity*"),
    ("RMSprop", "", "mean_square | velocity | mean_grad"),
    ("Adagrad", "", "accumulator"),
    ("Adadelta", "", "mean_square mean_square_step"),
    ("Adam", "", "m v | v_hat"),
    ("AdamW", "", "m v | v_hat"),
    ("Adamax", "", "m u"),
    ("Nadam", "", "m v"),
    ("Ftrl", "", "accumulator linear"),
]
_KERAS3 = [("SGD", "", "velocity")] + _UPDATE_STEP[1:]
_BY_TARGET = [
    ("tf_train", _TRAIN),
    ("optimizer_v2", _OPTIMIZER_V2),
    ("get_updates", _GET_UPDATES),
    ("update_step", _UPDATE_STEP),
    ("keras3", _KERAS3),
]
ROLES = tuple(Roles(target, *line) for target, lines in _BY_TARGET for line in lines)

Slot = namedtuple("Slot", "name native always")


def blocks(roles):
    """The blocks of a line, each a list of Slots."""
    made = []
    for block in roles.blocks.split("|"):
        parts = [part.rstrip("*").partition("=") + (part.endswith("*"),) for part in block.split()]
        made.append([Slot(ours, theirs or ours, always) for ours, _, theirs, always in parts])
    return [block for block in made if block]


def roles_of(target, definition):
    """The line of the stock optimizer of an API whose slots mean what those of a definition do."""
    kind, used = type(definition.base), set(flat(definition.base, "slot"))
    for form in FORMS:
        if form.target == target and form.definition is kind:
            roles = next(roles for roles in ROLES if (roles.target, roles.native) == (target, form.native))
            if used <= {slot.name for block in blocks(roles) for slot in block}:
                return roles, form
    raise UnsupportedError(
        "{} has no stock optimizer with the slots of {}".format(target or "no API", definition.base._short())
    )


def in_form(state, rate_in_velocity, learning_rate=None):
    """A state whose velocities sum gradients times their rates (Keras), or gradients (tf.train).

    Args:
        learning_rate: the rate in force; unless given, that of the state's definition.

    Raises:
        StateError: there is no rate to scale by.
    """
    config = dict(state.definition or {})
    base = config
    while isinstance(base.get("inner"), dict):
        base["inner"] = base = dict(base["inner"])
    if base.get("rate_in_velocity", rate_in_velocity) == rate_in_velocity:
        return state
    rate = base.get("learning_rate") if learning_rate is None else learning_rate
    if not isinstance(rate, float) or not rate > 0:
        raise StateError(
            "tf.train keeps the sum of gradients as momentum, Keras that of gradients times -rate: give "
            "learning_rate= (--learning-rate), the rate that was in force"
        )
    base["rate_in_velocity"] = rate_in_velocity
    slots = OrderedDict()
    for name, found in state.slots.items():
        slots[name] = OrderedDict(
            (slot, scaled(handle, -rate if rate_in_velocity else -1.0 / rate) if slot == "velocity" else handle)
            for slot, handle in found.items())
    return State(config, state.updates, state.steps, state.pending, state.scalars, slots, state.variables)


def scaled(handle, factor):
    def read(selection):
        return (np.asarray(handle[selection]) * factor).astype(handle.dtype)

    return Handle(getattr(handle, "name", "velocity"), handle.shape, handle.dtype, read)


def count_of_powers(native, definition, own):
    """The count that beta powers tell: after n updates they are beta^(n+1), multiplied up in their own dtype."""
    found = []
    for power, hyper in (("beta1_power", "beta_1"), ("beta2_power", "beta_2")):
        value = own.get(power)
        beta = getattr(definition.base, hyper, None)
        if value is None or beta is None:
            continue
        value = np.asarray(value)
        dtype = value.dtype if value.dtype in (np.dtype("f4"), np.dtype("f8")) else np.dtype("f4")
        value = float(value)
        if not isinstance(beta, float) or not 0 < beta < 1 or not value > np.finfo("f4").tiny * 100:
            continue  # it came to nothing; the other one goes on for longer
        most = int(np.log(value) / np.log(beta) * 1.01) + 10
        powers = np.multiply.accumulate(np.full(min(most, 10**8), beta, dtype))
        place = int(np.argmin(np.abs(powers - value)))
        if abs(float(powers[place]) - value) > 1e-4 * value:
            raise FileError(
                "{}: {} is {!r}, which is no power of {} = {!r}; give the definition with the {} that it was trained "
                "with".format(native.path, power, value, hyper, beta, hyper)
            )
        found.append(place)
    if len(found) == 2 and found[0] != found[1]:
        raise FileError("{}: beta1_power tells {} updates, beta2_power {}; give the definition with the betas that it "
                        "was trained with".format(native.path, *found))
    return found[0] if found else None


def beta_power(beta, updates):
    """beta^(updates + 1), as tf.train multiplies it up."""
    if not isinstance(beta, float):
        raise StateError("a beta that is no number has no power to write; got {!r}".format(beta))
    power = np.float32(1)
    for start in range(0, updates + 1, 1 << 20):
        count = min(1 << 20, updates + 1 - start)
        power = np.multiply.accumulate(np.append(power, np.full(count, beta, np.float32)), dtype=np.float32)[-1]
        if power == 0 or power == 1:
            break
    return np.array(power, np.float32)


MEANINGS = ("momentum_schedule", "momentum_decay", "rate_in_velocity")  # options that decide what is kept


def check_meaning(definition, native, options):
    """Raises where scalars of the same name mean something else. (Velocities can be rescaled.)"""
    for option in MEANINGS[:2]:
        wanted = options.get(option)
        found = getattr(definition.base, option, wanted)
        if wanted is not None and found != wanted:
            raise StateError("{} has {}={!r}, {} {!r}: what they keep is not the same quantity".format(
                native, option, wanted, definition._short(), found))


def some(texts):
    texts = list(texts)
    return ", ".join(texts[:8] + ["... ({} in all)".format(len(texts))] * (len(texts) > 8)) or "none"
