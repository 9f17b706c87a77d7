"""Converts what APIs store in different forms: momentum, and the count of updates as powers of beta."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import numpy as np

from everstep.compat.checkpoints.saver_names import POWERS
from everstep.compat.files.contents import Handle
from everstep.errors import FileError, StateError
from everstep.optimizers.contract import Schedule, tree, walk
from everstep.optimizers.wrappers.accumulate import Accumulate


def convert_momentum(state, rate_in_velocity, learning_rate=None):
    """Converts a state's velocities between Keras's and tf.train's conventions.

    Args:
        rate_in_velocity: True for sums of -learning_rate * gradient (Keras), False for sums of gradients (tf.train).
        learning_rate: the rate in force. Default: the rate of the state's definition.

    Raises:
        StateError: there is no rate to scale with.
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
            "tf.train keeps the sum of gradients as momentum, Keras the sum of -rate * gradient: give "
            "learning_rate= (--learning-rate), the rate that was in force"
        )
    base["rate_in_velocity"] = rate_in_velocity
    slots = OrderedDict()
    for name, variable_slots in state.slots.items():
        slots[name] = OrderedDict(
            (slot, scaled(handle, -rate if rate_in_velocity else -1.0 / rate) if slot == "velocity" else handle)
            for slot, handle in variable_slots.items())
    return state.replace(definition=config, slots=slots)


def scaled(handle, factor):
    """Returns a handle that multiplies what it reads by a factor."""
    def read(selection):
        return (np.asarray(handle[selection]) * factor).astype(handle.dtype)

    return Handle(getattr(handle, "name", "velocity"), handle.shape, handle.dtype, read)


_GONE = float(np.finfo("f4").tiny) * 100  # below this, a power has lost its digits


def count_of_powers(path, definition, powers):
    """Returns (the number of updates that beta powers imply or None, a note or None).

    After n updates, tf.train's power is beta^(n+1), multiplied up step by step in the variable's dtype. A power that
    has underflowed tells nothing if the other one has not. If all have, the count is the smallest one from which the
    correction of the bias is 1 to rounding, so that any later count makes the same step.

    Args:
        powers: {"beta1_power": handle, "beta2_power": handle}, or one of them.
    """
    counts, gone = OrderedDict(), OrderedDict()
    for power, hyper in POWERS.items():
        beta = getattr(definition.base, hyper, None)
        if power not in powers or not isinstance(beta, float) or not 0 < beta < 1:
            continue
        value = np.asarray(powers[power])
        dtype = value.dtype if value.dtype in (np.dtype("f4"), np.dtype("f8")) else np.dtype("f4")
        value = float(value)
        if 0 <= value <= _GONE:
            gone[power] = int(np.ceil(np.log(np.finfo(dtype).eps / 4) / np.log(beta)))
            continue
        bound = min(int(np.log(value) / np.log(beta) * 1.01) + 10, 10**8) if 0 < value <= 1 else 1
        multiplied = np.multiply.accumulate(np.full(bound, beta, dtype))
        count = int(np.argmin(np.abs(multiplied - value)))
        if not abs(float(multiplied[count]) - value) <= 1e-4 * value:
            raise FileError(
                "{}: {} is {!r}, which is no power of {} = {!r}; give the definition with the {} that it was trained "
                "with".format(path, power, value, hyper, beta, hyper)
            )
        counts[power] = count
    if len(set(counts.values())) > 1:
        raise FileError("{}: beta1_power means {} updates, beta2_power {}; give the definition with the betas that it "
                        "was trained with".format(path, *counts.values()))
    if counts:
        count = next(iter(counts.values()))
        for power, hyper in POWERS.items():
            if power in gone and getattr(definition.base, hyper) ** (count + 1) > _GONE * 100:
                raise FileError("{}: {} has underflowed, which {} updates do not do; give the definition with the {} "
                                "that it was trained with".format(path, power, count, hyper))
        return count, None
    if not gone:
        return None, None
    return max(gone.values()), "its beta powers have underflowed: it has made {} updates or more, and from there on " \
        "every count makes the same step".format(max(gone.values()))


def beta_power(beta, updates):
    """Returns beta^(updates + 1), multiplied up in float32 as tf.train does."""
    if not isinstance(beta, float):
        raise StateError("only a beta that is a number has a power to write; got {!r}".format(beta))
    power, left = np.float32(1), updates + 1
    while left > 0:
        count = min(1 << 20, left)
        left -= count
        power = np.multiply.accumulate(np.append(power, np.full(count, beta, np.float32)), dtype=np.float32)[-1]
        if power * np.float32(beta) == power:  # such as the smallest float32 for 0.9: 0.9 of it is rounded up to it
            break
    return np.array(power, np.float32)


def calls_per_update(claim, definition):
    """Returns how many calls make one update of a stock optimizer of Keras 3, which counts calls; None if each does."""
    if claim.config is not None:
        return claim.config.get("gradient_accumulation_steps")
    steps = [node.definition.steps for node in walk(tree(definition)) if isinstance(node.definition, Accumulate)]
    return steps[0] if steps and not isinstance(steps[0], Schedule) else None


def other_form(definition, entry):
    """Returns rate_in_velocity of a stock entry if the definition's velocity has the other form; None if it has not."""
    form = getattr(definition.base, "rate_in_velocity", None)
    stock_form = entry.fixed.get("rate_in_velocity") if entry is not None else None
    differ = None not in (form, stock_form) and form != stock_form and definition.base.has_slot("velocity")
    return stock_form if differ else None


# options that change the meaning of what is stored
MEANINGS = ("momentum_schedule", "momentum_decay", "rate_in_velocity")


def check_meaning(definition, native, options):
    """Raises StateError if scalars of equal names mean different things.

    It ignores rate_in_velocity, since velocities can be rescaled.
    """
    for option in MEANINGS[:2]:
        native_value = options.get(option)
        value = getattr(definition.base, option, native_value)
        if native_value is not None and value != native_value:
            raise StateError("{} has {}={!r}, {} {!r}: what they store is not the same quantity".format(
                native, option, native_value, definition._short(), value))


def first_few(texts, count=8, separator=", ", nothing="none"):
    """Returns the first texts, joined, and the number of all if there are more."""
    texts = list(texts)
    return separator.join(texts[:count] + ["... ({} in all)".format(len(texts))] * (len(texts) > count)) or nothing


# The slots of a factored second moment: {name: that of the other one}. Those of a matrix (a, b) are (a, 1) and (1, b).
FACTORED = {"rows": "columns", "columns": "rows"}


def factored_shape(slots):
    """Returns the shape of the variable with these slots, `{name: array}`; () if they are not rows and columns."""
    shapes = {name.rpartition("/")[2]: tuple(array.shape) for name, array in slots.items()}
    rows, columns = shapes.get("rows", ()), shapes.get("columns", ())
    return rows[:-1] + columns[-1:] if len(rows) == len(columns) > 1 else ()
