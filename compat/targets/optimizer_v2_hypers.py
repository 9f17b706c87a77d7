"""The hypers of an OptimizerV2: the base class keeps them in one dictionary, as numbers, variables or schedules."""
from __future__ import absolute_import, division, print_function

from everstep.compat.targets import hypers
from everstep.compat.targets.hypers import attribute
from everstep.compat.targets.since_v2 import check_schedule, is_native_schedule, replace_by_schedule
from everstep.errors import EverstepError


def hand_over(bound):
    """Gives all hypers to the base class, which makes variables of the numbers at the first step."""
    for name, (owner, declaration) in bound.hyper_declarations().items():
        bound.base._set_hyper(attribute(name), _kept(bound, owner._values[declaration.name]))


def _kept(bound, value):
    if hasattr(value, "assign"):
        # TF 1.14 would copy the variable's present value. Drop this when 1.14 is no longer supported.
        return lambda: value
    check_schedule(bound, value)
    return value


def set_hyper(bound, numbers, name, value):
    """Sets a hyper to a number or a native schedule.

    Args:
        numbers: {hyper: (number it was given, its variable)} of those that became native schedules.
    """
    held = bound.native._hyper
    if is_native_schedule(bound, value):
        before = bound.given(name), held[attribute(name)]
        replace_by_schedule(bound, name, value)
        if isinstance(before[0], float):
            numbers[name] = before
        held[attribute(name)] = value
    elif name in numbers:
        _set_number_again(bound, numbers, name, value)
    else:
        bound.base._set_hyper(attribute(name), hypers.check(bound, name, value))


def _set_number_again(bound, numbers, name, value):
    """Sets a hyper that became a native schedule to a number, as stock does."""
    number, variable = numbers[name]
    with_schedule, bound.definition = bound.definition, hypers.definition_with(bound, name, number)
    try:
        checked = hypers.check(bound, name, value)
    except EverstepError:
        bound.definition = with_schedule
        raise
    bound.native._hyper[attribute(name)] = variable
    del numbers[name]
    bound.base._set_hyper(attribute(name), checked)
