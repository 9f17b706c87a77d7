"""Converts quantities that APIs keep in different forms: momentum, and counts kept as powers of beta."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import numpy as np

from everstep.compat.state.native_file import Handle
from everstep.compat.state.state import State
from everstep.errors import FileError, StateError


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


POWERS = {"beta1_power": "beta_1", "beta2_power": "beta_2"}


def count_of_powers(native, definition, own):
    """The count that beta powers tell: after n updates they are beta^(n+1), multiplied up in their own dtype."""
    found = []
    for power, hyper in sorted(POWERS.items()):
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
