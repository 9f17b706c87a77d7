"""The hypers of an OptimizerV2: the base class keeps them in one dictionary, as numbers, variables or schedules."""
from __future__ import absolute_import, division, print_function

from everstep.compat.targets import hypers
from everstep.compat.targets.hypers import attribute
from everstep.compat.targets.since_v2 import (
    check_schedule,
    is_eager_tensor,
    is_native_schedule,
    number_of_rate,
    replace_by_schedule,
)
from everstep.compat.targets.stock_members import schedule_value
from everstep.errors import EverstepError


def hand_over(bound):
    """Gives all hypers to the base class, which makes variables of the numbers at the first step.

    `hyper_names` begins with the names of the declared hypers, in their order.
    """
    for name, (owner, declaration) in zip(bound.hyper_names, bound.hyper_declarations().values()):
        bound.base._set_hyper(name, _kept(bound, name, owner._values[declaration.name]))


def _kept(bound, name, value):
    if hasattr(value, "assign"):
        # TF 1.14 would copy the variable's present value. Drop this when 1.14 is no longer supported.
        return lambda: value
    if name == "learning_rate" and is_eager_tensor(value):
        return number_of_rate(bound, value)
    check_schedule(bound, value)
    return value


def set_hyper(bound, numbers, name, value):
    """Sets a hyper to a number or a native schedule. A variable that was given for it gets the number.

    Args:
        numbers: {hyper: (what it was given, its variable)} of those that became native schedules.
    """
    held, value = bound.native._hyper, getattr(value, "_of_everstep", value)
    if is_native_schedule(bound, value):
        before = bound.given(name), held[attribute(name)]
        replace_by_schedule(bound, name, value)
        if not is_native_schedule(bound, before[0]):
            numbers[name] = before
        held[attribute(name)] = value
        return
    checked = _number_again(bound, numbers, name, value) if name in numbers else hypers.check(bound, name, value)
    name = attribute(name)
    if callable(held[name]):  # it returns the variable that was given
        bound.adapter.module.backend.set_value(held[name](), checked)
    else:
        bound.base._set_hyper(name, checked)


def shown(bound, schedule):
    """Returns an everstep.Schedule as users see it: as one of Keras too, whose values TensorBoard draws."""

    def call(self, step):
        return schedule_value(bound, schedule, lambda: bound.backend.tf.cast(step, "int64"), "float32")

    base = bound.adapter.schedules(type(bound.native).native_base).LearningRateSchedule
    members = {
        "_of_everstep": schedule,
        "__call__": call,
        "__class__": property(lambda self: type(schedule)),  # so that isinstance finds both classes
        "__getattr__": lambda self, name: getattr(schedule, name),
        "__eq__": lambda self, other: schedule == getattr(other, "_of_everstep", other),
        "__hash__": lambda self: hash(schedule),
        "__repr__": lambda self: repr(schedule),
        "get_config": lambda self: schedule.get_config(),
    }
    return type(str("Shown"), (base,), members)()


def _number_again(bound, numbers, name, value):
    """Makes a hyper that became a native schedule the number or variable that it was. Returns the number to set."""
    number, variable = numbers[name]
    with_schedule, bound.definition = bound.definition, hypers.definition_with(bound, name, number)
    try:
        checked = hypers.check(bound, name, value)
    except EverstepError:
        bound.definition = with_schedule
        raise
    bound.native._hyper[attribute(name)] = variable
    del numbers[name]
    return checked
