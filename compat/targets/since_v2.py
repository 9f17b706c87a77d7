"""The code that OptimizerV2 and its successors share: native schedules, and updates across replicas."""
from __future__ import absolute_import, division, print_function

import sys

from everstep.compat.targets import hypers
from everstep.errors import HyperTypeError
from everstep.optimizers.contract import Schedule


def module_of(base):
    """Returns the module that defines a native class. Targets use a few helpers that it does not export."""
    return sys.modules[base.__module__]


def is_native_schedule(bound, value):
    return isinstance(value, bound.adapter.schedules(type(bound.native).native_base).LearningRateSchedule)


def check_schedule(bound, value):
    """Raises HyperTypeError for a schedule of another API."""
    if hasattr(value, "get_config") and not isinstance(value, Schedule) and not is_native_schedule(bound, value):
        raise HyperTypeError(
            "{} is a schedule of another API; give one of {}, or an everstep.Schedule".format(
                type(value), type(bound.native).native_base.__module__
            )
        )


def number_of_rate(bound, tensor):
    """Takes an eager tensor that was given as the learning rate as its number, which can be set. Returns the number."""
    number = float(tensor.numpy())
    bound.definition = hypers.definition_with(bound, "learning_rate", number)
    return number


def is_eager_tensor(value):
    return hasattr(value, "numpy") and not hasattr(value, "assign")


def replace_by_schedule(bound, name, schedule):
    """Makes a native schedule what a hyper was given, instead of a number, a variable or another native schedule.

    Raises:
        HyperValueError: the hyper was given as a tensor or callable, or the schedule needs a slot.
    """
    if not is_native_schedule(bound, bound.given(name)):
        hypers.check(bound, name, bound.given(name))
    bound.definition = hypers.definition_with(bound, name, schedule)


def update_everywhere(backend, variable, function, grad):
    """Calls `function(variable, grad)` on the variable's device, or on each replica; returns operations."""
    tf = backend.tf
    if backend.eager and backend.without_strategy():
        with tf.device(variable.device):  # without a strategy, `extended.update` does no more than this
            return backend.operations(function(variable, grad))
    extended = tf.distribute.get_strategy().extended
    return backend.operations(extended.update(variable, backend.plain(function), args=(grad,), group=False))
