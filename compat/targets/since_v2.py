"""The code that OptimizerV2 and its successors share: native schedules, tf.distribute, steps inside tf.function."""
from __future__ import absolute_import, division, print_function

import sys

from everstep.compat.backends.on_tensorflow import TensorFlowBackend
from everstep.compat.targets.base import Target
from everstep.compat.targets.hypers import is_function
from everstep.errors import ConfigError, HyperTypeError
from everstep.optimizers.contract import Schedule


class SinceV2Target(Target):
    """The members that are the same from OptimizerV2 to Keras 3."""

    entries = ()  # type: tuple[str, ...]  # the methods that a user calls inside tf.function

    @classmethod
    def runs_on_tensorflow(cls, base):
        return True

    @classmethod
    def made_for(cls, definition_class, base):
        native_class = super(SinceV2Target, cls).made_for(definition_class, base)
        if cls.runs_on_tensorflow(base):
            import tensorflow

            for name in cls.entries:  # keeps autograph from rewriting every function of the engine
                setattr(native_class, name, TensorFlowBackend(tensorflow).plain(vars(cls)[name]))
        return native_class

    @classmethod
    def _schedules(cls):
        """Returns the native module of schedules."""
        return module_of(cls.native_base).learning_rate_schedule

    def _is_native_schedule(self, value):
        return isinstance(value, self._schedules().LearningRateSchedule)

    def _check_schedule(self, value):
        """Raises HyperTypeError for a schedule of another API."""
        if hasattr(value, "get_config") and not isinstance(value, Schedule) and not self._is_native_schedule(value):
            raise HyperTypeError(
                "{} is a schedule of another API; give one of {}, or an everstep.Schedule".format(
                    type(value), self.native_base.__module__
                )
            )

    def replace_by_schedule(self, name, schedule):
        """Makes a native schedule the value that a hyper was given, instead of a number or another native schedule.

        Raises:
            HyperValueError: the hyper was given as a tensor or callable, or the schedule needs a slot.
        """
        if not self._is_native_schedule(self.given_hyper(name)):
            self.check_hyper(name, self.given_hyper(name))
        self.__dict__["definition"] = self.definition_with(name, schedule)

    def __setattr__(self, name, value):
        if name == "iterations" and not hasattr(value, "assign_add"):
            raise HyperTypeError("iterations is the variable that counts updates; got {!r}".format(value))
        super(SinceV2Target, self).__setattr__(name, value)

    def update(self, variable, function, grad):
        tf = self.backend.tf
        if self.backend.eager and self.backend.without_strategy():
            with tf.device(variable.device):  # without a strategy, `extended.update` does no more than this
                return self.backend.operations(function(variable, grad))
        results = tf.distribute.get_strategy().extended.update(
            variable, self.backend.plain(function), args=(grad,), group=False
        )
        return self.backend.operations(results)

    def write_hyper(self, name, value):
        if isinstance(value, Schedule):
            return value
        if self._is_native_schedule(value):
            return self._schedules().serialize(value)
        value = value() if is_function(value) else value
        try:
            return self.as_given(name, float(self._present_number(value)))
        except Exception as error:  # a traced value or a tensor of another graph; the error's type varies
            raise ConfigError(
                "{}.{} has no value that a config could hold: {}".format(type(self).__name__, name, error)
            )

    @classmethod
    def from_config(cls, config, custom_objects=None):
        stock = cls.stock_for(config)
        if stock is not None:
            return stock.from_config(config, custom_objects)
        native_schedules = {
            name: cls._schedules().deserialize(value, custom_objects=custom_objects)
            for name, value in config.items()
            if isinstance(value, dict) and "class_name" in value
        }
        return cls.of_config(dict(config, **native_schedules))


def module_of(base):
    """Returns the module that defines a native class. Targets use a few helpers that it does not export."""
    return sys.modules[base.__module__]
