"""The definition that computes what a stock optimizer does with the arguments of a call, as text of Python."""
from __future__ import absolute_import, division, print_function

import warnings
from collections import namedtuple

from everstep.compat.stock.composed import COMPOSED
from everstep.compat.stock.from_native import from_native
from everstep.compat.stock.lookup import entries_of
from everstep.compat.stock.third_party import ADDONS, OTHERS
from everstep.errors import EverstepError
from everstep.optimizers.contract.configured import Configured
from everstep.optimizers.contract.declarations import REQUIRED
from everstep.optimizers.wrappers.clip import clip
from everstep.scan.parsing import bare, literal, one_line
from everstep.scan.signatures import computes, order, taking

_FUNCTIONS = {  # of the wrappers that stock arguments become
    "Accumulate": "accumulate", "Clip": "clip", "DecoupledWeightDecay": "decoupled_weight_decay",
    "MovingAverage": "moving_average", "RateDecay": "rate_decay",
}
# What one range of versions makes of a call. span: the versions that take it; definition: text, or None; sparse: its
# treatment of sparse gradients; why: why there is no definition; notes: what else there is to know.
Computed = namedtuple("Computed", "span definition sparse why notes")


def entry_of(span, name):
    """Returns the entry of the stock table of a class in some versions."""
    if span.product == "TensorFlow Addons":
        return OTHERS[ADDONS, name]
    return next((entry for entry in entries_of(span.target) if entry.native == name), None)


def computed(span, name, arguments):
    """Returns the `Computed` of a call in some versions; None if they do not take it.

    Args:
        span: a `Span`.
        name: the class.
        arguments: its `Arguments`.
    """
    if span.product == "Transformers":
        return _transformers(span, name, arguments)
    entry = entry_of(span, name)
    if entry is None:
        return None
    given = _named(span, name, arguments)
    if given is None:
        return None
    part = span
    for argument, node in given.items():
        part = part and taking(part, entry, argument)
        part = part and _taking_value(part, argument, node)
    if part is None:
        return None
    if arguments.starred:
        return Computed(part, None, None, "it gets more arguments by * or **, which are not known", ())
    values = _Values(given, entry)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            definition = _made(part, entry, values)
    except (EverstepError, TypeError, ValueError) as error:
        return Computed(part, None, None, values.reason(error), ())
    if values.unread:
        return Computed(part, None, None, "{} is no number or text that can be read".format(values.unread[0]), ())
    notes = [entry.differs] if entry.differs else []
    if span.target == "get_updates" and "epsilon" in entry.names and "epsilon" not in given:
        notes.append("in TF 1.4 and 1.5, and Keras before 2.1.3, epsilon is 1e-08 where it is not given")
    rule = definition.base
    if values.unsure_momentum(rule):
        notes.append("where its momentum is 0, stock has sparse='exact'")
    return Computed(part, values.text(definition), rule.sparse, None, tuple(notes))


def _named(span, name, arguments):
    """Returns `{argument: node}` of a call; None if there are too many."""
    names = order(span, name)
    if len(arguments.positional) > len(names):
        return None
    given = dict(zip(names, arguments.positional))
    if any(each in given for each in arguments.named) or "lr" in arguments.named and "learning_rate" in given:
        return None
    given.update(arguments.named)
    return given


def _taking_value(span, argument, node):
    """Returns the part of some versions that takes a value of an argument."""
    known, value = literal(node)
    if not known:
        return span
    if argument == "epsilon" and value is None:  # later versions keep None, and fail in the first step
        if span.target in ("update_step", "keras3"):
            return None
        return span.cut(last="2.2") if span.product == "Keras" and span.target == "get_updates" else span
    if argument == "learning_rate" and type(value) is int and span.target == "keras3":
        return None  # it has to be a float
    return span


_WHOLE = ("gradient_accumulation_steps", "ema_overwrite_frequency", "ns_steps", "warmup_steps", "total_steps")
_SWITCHES = ("amsgrad", "nesterov", "use_nesterov", "centered", "rectify", "grad_averaging", "relative_step", "use_ema",
             "exclude_embeddings")


class _Values(object):
    """The values of arguments. A number stands for each that is an expression, until its text is written again."""

    def __init__(self, given, entry):
        self._texts, self._switches, self.config, self.unread, self._entry = {}, {}, {}, [], entry
        for argument, node in sorted(given.items()):
            if not computes(argument):
                continue
            known, value = literal(node)
            if known:
                self.config[argument] = value
                continue
            text = one_line(node)
            if argument in _SWITCHES:
                if argument == "use_ema":
                    self.unread.append(argument)
                self._switches[entry.names.get(argument, argument)] = text
                continue
            number = self._number(argument, entry)
            if number is None:
                self.unread.append(argument)
                continue
            self.config[argument], self._texts[number] = number, _in_call(node, text)

    def _number(self, argument, entry):
        place = len(self._texts)
        if argument in _WHOLE:
            return 1000003 + place
        default = entry.defaults.get(argument, 0.5)
        if default is REQUIRED or default is None or isinstance(default, (int, float)):
            return (-0.5 if argument == "learning_rate_power" else 0.5) + 1.23456e-7 * (place + 1)
        return None

    def reason(self, error):
        """Returns an error's text with the texts of arguments."""
        message = str(error)
        for number, text in self._texts.items():
            message = message.replace(repr(number), text)
        return message

    def unsure_momentum(self, rule):
        momentum = getattr(rule, "momentum", None)
        return momentum in self._texts and rule.sparse == "rows" and self._entry.sparse({"momentum": 0.0}) == "exact" \
            and not rule.zero_grad_is_noop

    def text(self, value):
        """Returns a definition, schedule or plain value as Python text."""
        if not isinstance(value, Configured):
            return self._texts.get(value, repr(value)) if isinstance(value, (int, float)) else repr(value)
        name = type(value).__name__
        arguments = []
        for argument in value.argument_names():
            inner = getattr(value, argument)
            if argument in self._switches and name not in _FUNCTIONS:
                arguments.append("{}={}".format(argument, self._switches[argument]))
            elif argument == "inner":
                arguments.append(self.text(inner))
            elif isinstance(inner, Configured) or not _is_default(value, argument, inner):
                arguments.append("{}={}".format(argument, self.text(inner)))
        if name in _FUNCTIONS:
            return "everstep.{}({})".format(_FUNCTIONS[name], ", ".join(arguments))
        where = "everstep.optimizers." if hasattr(value, "bind") else "everstep."
        return "{}{}({})".format(where, name, ", ".join(arguments))


def _in_call(node, text):
    """Returns the text of an expression as an argument of a call."""
    needs = bare(node).type in ("lambda", "named_expression", "yield") and text[0] != "("
    return "({})".format(text) if needs else text


def _is_default(value, argument, inner):
    """Returns whether an argument need not be written. The learning rate always is."""
    if argument == "learning_rate":
        return False
    if argument in ("sparse", "dense_ok"):
        default = type(value).declarations[argument].default if argument in type(value).declarations else None
        return inner == default or hasattr(value, "inner")
    default = type(value).declarations[argument].default
    return type(inner) is type(default) and inner == default or inner is None and default is None


def _made(span, entry, values):
    """Returns the definition of a stock class in some versions with arguments."""
    config = dict(values.config)
    if span.target == "optimizer_v2" and config.get("epsilon", 1) == 0:
        del config["epsilon"]  # it takes 0 for no value
    if entry.native == "Nadam" and span.target == "optimizer_v2":  # its decay= changes nothing
        config.pop("decay", None)
        if "schedule_decay" in config:
            config["decay"] = config.pop("schedule_decay")
    if config.get("epsilon", 1) is None:
        del config["epsilon"]
    norms = {}
    if span.product == "TF" and span.target == "get_updates":  # it bounds each norm, and standalone Keras the joint one
        norms = {name: config.pop(name) for name in ("clipnorm", "clipvalue") if config.get(name)}
    if span.product == "TensorFlow Addons":
        rate = config.get("learning_rate", entry.defaults["learning_rate"])
        if rate is REQUIRED:
            raise ValueError("it has no learning rate")
        if set(config) - set(entry.names):
            raise ValueError("{} is not an argument that can be read without the optimizer: use from_native".format(
                sorted(set(config) - set(entry.names))[0]))
        for name, value in config.items():
            if isinstance(value, (list, tuple)):
                config[name] = "|".join(value)
        return entry.make(config)
    definition = from_native({"class_name": entry.native, "config": config}, span.target)
    return clip(definition, norms.get("clipnorm"), None, norms.get("clipvalue")) if norms else definition


def _transformers(span, name, arguments):
    given = _named(span, name, arguments)
    if given is None:
        return None
    parts = ["{}={}".format(argument, one_line(node)) for argument, node in given.items() if argument != "name"]
    if arguments.starred:
        return Computed(span, None, None, "it gets more arguments by * or **, which are not known", ())
    assert name in COMPOSED
    return Computed(span, "everstep.get({})".format(", ".join(['"{}"'.format(name)] + parts)), "exact", None, ())
