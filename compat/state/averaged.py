"""`everstep.averaged` and `everstep.assign_averages`: averages in the place of the variables, on every target."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.compat.backends.on_numpy import numpy_ops
from everstep.compat.engine import fast_forward
from everstep.compat.state.live import opened
from everstep.errors import StateError
from everstep.optimizers.contract import Names, Schedule, defines, flat, tree


class averaged(object):  # noqa: N801  # used like a function, in a with statement
    """Puts averages into the variables for the length of a `with` block, then what they were.

        with everstep.averaged(optimizer, model.trainable_variables):
            model.evaluate(...)

    The averages are those of `moving_average` and `stochastic_weight_averaging`, the slow weights of `lookahead`, or
    the averages of a rule that keeps them itself (ScheduleFreeAdamW); the outermost, where there are several.

    Inside, slots are as they were, and what is saved has the averages for weights: export there, and save what is to
    be trained on outside. A block inside another of the same optimizer is an error, and so is training: in eager code
    before anything is changed, in graphs and compiled functions at the end of the block, when the variables are again
    what they were before it.

    Args:
        optimizer: what `bind(module)` gave.
        variables: all variables that it trains, a list or {name: variable}, as for `everstep.capture`.
        session: as for `everstep.capture`. Nothing is added to a graph.

    Raises:
        StateError: there are no averages, or rows that have yet to be brought up to date (`sparse="catch_up"`:
            `optimizer.flush()` first); a block inside another; training inside.
        UnsupportedError: it is no bound optimizer.
    """

    def __init__(self, optimizer, variables, session=None):
        self._given = optimizer, variables, session
        self._before = self._updates = None

    def __enter__(self):
        with opened(*self._given) as access:
            if access.optimizer.is_averaged:
                raise StateError("the averages of {} are in its variables already".format(access.owner))
            found = _averages(access)
            self._before = [
                (whole, None, _Value(name, access.read_whole(whole))) for name, whole in access.wholes.items()
            ]
            self._updates = _updates(access)
            _put(access, found)
            access.optimizer.__dict__["is_averaged"] = True
        return self

    def __exit__(self, kind, error, trace):
        with opened(*self._given) as access:
            access.optimizer.__dict__["is_averaged"] = False
            _put(access, self._before)
            if kind is None and _updates(access) != self._updates:
                raise StateError(
                    "{} has trained inside of everstep.averaged. Its variables are what they were before, without "
                    "those updates, but slots and counters are not: restore a state from before".format(access.owner)
                )


def assign_averages(optimizer, variables, session=None):
    """Makes the averages the values of the variables, for good: at the end of training. Slots stay as they are.

    Args, Raises: as for `everstep.averaged`.
    """
    with opened(optimizer, variables, session) as access:
        if optimizer.is_averaged:
            raise StateError("inside of everstep.averaged averages are there already, and its end would undo this")
        _put(access, _averages(access))


class _Value(object):
    """What `places` of an access takes for the value of a whole variable."""

    def __init__(self, name, value):
        self.name, self.value, self.shape = name, value, value.shape

    def __call__(self):
        return self.value

    def part(self, place):
        return self.value[place.slices]


def _updates(access):
    counter = access.own().get("updates")
    return 0 if counter is None else int(access.read(counter))


def _averages(access):
    """[(whole, None, its average)]"""
    optimizer = access.optimizer
    if not defines(optimizer.definition, "evaluation_value"):
        raise StateError(
            "{} keeps no averages; bind everstep.moving_average(definition) or another that does".format(
                optimizer.definition._short()
            )
        )
    hypers = {name: _present(access, name) for name in flat(optimizer.definition, "hyper")}
    found = []
    for name, whole in access.wholes.items():
        rule = optimizer.rule(whole.first)
        if not defines(rule, "evaluation_value"):  # a branch of a partition without
            continue
        slots = {slot: access.read_slot(whole, slot) for slot in whole.slot_names}
        if fast_forward.ROWS in slots and np.any(slots[fast_forward.ROWS] != slots[fast_forward.UPDATES]):
            raise StateError("{} has rows with steps that they have yet to take: optimizer.flush() first".format(name))
        value = access.read_whole(whole)
        node = tree(rule)
        average = rule.evaluation_value(numpy_ops, value, Names(node, slots), Names(node, hypers))
        found.append((whole, None, _Value(name, np.asarray(average, value.dtype))))
    return found


def _present(access, name):
    value = access.hyper(name)
    return value(_updates(access)) if isinstance(value, Schedule) else value


def _put(access, values):
    for variable, value in access.places(values):
        access.write(variable, value())
