"""Reads and sets the hypers of a bound optimizer, by flat name or as attributes (`optimizer.beta_1 = 0.8`)."""
from __future__ import absolute_import, division, print_function

import functools
import sys
from collections import OrderedDict

import numpy as np

from everstep.errors import DefinitionError, HyperTypeError, HyperValueError, UnsupportedMemberError
from everstep.optimizers.contract import Schedule, flat, is_tensor, with_hypers
from everstep.optimizers.contract.checks import check_number

_RATE = ("learning_rate", "lr")


class Hypers(object):
    """The members for hypers. Each instance has its own names: a wrapper has the hypers of the definition inside."""

    def native_super(self):
        """Returns a `super` object that skips the target's classes and starts at the native base class."""
        return super(Hypers, self)

    def hyper_declarations(self):
        return flat(self.definition, "hyper")

    def given_hyper(self, name):
        """Returns the value that the definition was given for a flat hyper name."""
        owner, declaration = self.hyper_declarations()[name]
        return owner._values[declaration.name]

    def check_hyper(self, name, value):
        """Returns the float to set; raises HyperValueError if the hyper or the value does not allow it."""
        bound_value = self.given_hyper(name)
        if not isinstance(bound_value, float):
            kind = "a tensor" if is_tensor(bound_value) else "a callable"
            kind = "a native schedule" if hasattr(bound_value, "get_config") else kind
            kind = "an everstep schedule" if isinstance(bound_value, Schedule) else kind
            raise HyperValueError(
                "{}.{} was given as {}, which decides its value at every step; it cannot be set. Bind a definition "
                "with a number to set it".format(type(self).__name__, name, kind)
            )
        owner, declaration = self.hyper_declarations()[name]
        value = _number_of(value) if is_tensor(value) else value
        checked = declaration.check(type(owner).__name__, value)
        if not isinstance(checked, float):
            raise HyperValueError("{}.{} can be set to a number; got {!r}".format(type(self).__name__, name, value))
        self.definition_with(name, checked)
        return checked

    def definition_with(self, name, value):
        """Returns the definition with another value of a hyper; raises HyperValueError if that needs more slots."""
        definition = with_hypers(self.definition, {name: value})
        missing = set(flat(definition, "slot")) - set(flat(self.definition, "slot"))
        if missing:
            raise HyperValueError(
                "{0}.{1} was given as {2!r}, without the slot {3}, so it cannot become {4!r}; bind a definition with "
                "another {1}".format(
                    type(self).__name__, name, self.given_hyper(name), ", ".join(sorted(missing)), value
                )
            )
        return definition

    def call_hyper(self, name, function):
        """Returns what a callable hyper gives; raises HyperTypeError unless it is a number or a scalar tensor."""
        try:
            value = function()
        except TypeError as error:
            if sys.exc_info()[2].tb_next is not None:  # raised inside of the function
                raise
            raise HyperTypeError(
                "{}.{} takes a callable without arguments; {!r} cannot be called so: {}".format(
                    type(self).__name__, name, function, error
                )
            )
        what = "{}.{}, given by a callable,".format(type(self).__name__, name)
        if is_tensor(value):
            self.hyper_declarations()[name][1].check_tensor(what, value)
        else:
            check_number(what, value)
        return value

    def lazy_hyper(self, name, value):
        """Returns a hyper's value for graphs: a callable is called, and checked, when the engine reads it."""
        return functools.partial(self.call_hyper, name, value) if is_function(value) else value

    def __getattr__(self, name):
        if name in self.__dict__.get("_hyper_names", ()):
            return self.read_hyper(self._hyper_names[name])
        for item in self.unsupported:
            if item.what == name and issubclass(item.error, AttributeError):
                raise self.refusal(name)
        if name in self.__dict__.get("_options", ()):
            return self._options[name]
        member = self.stock_members.get(name)
        if member is not None and (member.kind is None or member.needs in flat(self.definition, member.kind)):
            return member.read(self)
        raise UnsupportedMemberError(
            self._many_rates(name) or "{} has no attribute {!r}".format(type(self).__name__, name)
        )

    def __dir__(self):
        inherited = getattr(super(Hypers, self), "__dir__", None)  # Python 2 has none
        names = inherited() if inherited else dir(type(self)) + list(self.__dict__)
        return sorted(set(names).union(self.__dict__.get("_hyper_names", ())))

    def __setattr__(self, name, value):
        if name in self.__dict__.get("_hyper_names", ()):
            return self.set_hyper(self._hyper_names[name], value)
        if self._many_rates(name):
            raise HyperValueError(self._many_rates(name))
        if name in self.__dict__.get("_options", ()):
            raise HyperValueError(
                "{0}.{1} is an option, fixed when it is bound; bind definition.replace({1}={2!r})".format(
                    type(self).__name__, name, value
                )
            )
        for item in self.unsupported:
            if item.what == name and item.error is DefinitionError and not is_off(value):
                raise self.refusal(name)
        super(Hypers, self).__setattr__(name, value)

    def rates_of_branches(self):
        """Returns the flat names of the learning rates if each branch of the definition has its own; else nothing."""
        hypers = self.__dict__.get("_hyper_names", {})
        rates = [name for name in hypers.values() if name.endswith("/learning_rate")]
        return rates if "learning_rate" not in hypers else []

    def _many_rates(self, name):
        """Returns an error message if `name` is the learning rate but each branch of the definition has its own."""
        rates = [attribute(rate) for rate in self.rates_of_branches()] if name in _RATE else ()
        if rates:
            return (
                "{} has no one learning rate; it has {}. Set each, in a callback too: LambdaCallback(on_epoch_begin="
                "lambda epoch, logs: setattr(optimizer, {!r}, 0.1))".format(
                    type(self).__name__, ", ".join(rates), rates[0]
                )
            )
        return None


def is_function(value):
    """Returns True for a function that gives a hyper's value: some schedules and tensors can be called too."""
    return callable(value) and not isinstance(value, Schedule) and not is_tensor(value)


def _number_of(tensor):
    """Returns the number in an array or tensor; itself if it has none yet, or many."""
    try:
        array = np.asarray(tensor)
    except Exception:  # a traced tensor; each framework has its own error
        return tensor
    return array.item() if array.ndim == 0 else tensor


def is_off(value):
    """Returns True for a setting that stock takes as "none": None or the number 0."""
    return value is None or isinstance(value, (int, float)) and not value


def attribute(name):
    """Returns the attribute name and config key of a flat hyper name."""
    return name.replace("/", "_")


def options(definition):
    """Returns `{attribute: value}` of the options of a definition and its children."""
    declared = flat(definition, "option").items()
    return {attribute(name): owner._values[declaration.name] for name, (owner, declaration) in declared}


def attribute_names(definition):
    """Returns `{attribute: flat hyper name}`, with the alias `lr`."""
    hypers = flat(definition, "hyper")
    names = OrderedDict((attribute(hyper), hyper) for hyper in hypers)
    if "learning_rate" in hypers:
        names["lr"] = "learning_rate"
    return names
