"""The shared part of wrappers that treat variables by name: rules that select variables, each with a factor."""
from __future__ import absolute_import, division, print_function

import re
from collections import OrderedDict

from everstep.errors import ConfigError, DefinitionError, HyperTypeError, VariableError
from everstep.optimizers.contract.checks import TEXT, check_number, check_pattern
from everstep.optimizers.contract.declarations import Option

COLLECTION = "collection:"
_DICTS_HAVE_AN_ORDER = list({str(number): number for number in range(99)}.values()) == list(range(99))


class Unnamed(str):
    """The text that stands for a variable without a name: a parameter of torch that was given without one."""


def matches(pattern, variable):
    """Returns whether a regular expression is found in a variable's name. Raises VariableError if it has none."""
    if isinstance(variable.name, Unnamed) and pattern:
        raise VariableError(
            "{!r} chooses variables by name, but the parameters of this optimizer have none; give "
            "params=model.named_parameters()".format(pattern)
        )
    return re.search(pattern, variable.name) is not None


def holds(rule, variable):
    """Returns whether a rule selects a variable, given by its record.

    A rule is a regular expression searched for in the name, "collection:NAME" of a TF 1 graph, or a function of the
    record.
    """
    if not isinstance(rule, TEXT):
        return bool(rule(variable))
    if rule.startswith(COLLECTION):
        return rule[len(COLLECTION) :] in variable.collections
    return matches(rule, variable)


def check_rule(what, rule):
    """Raises an error if a rule is of no kind that `holds` knows. `what` names the option in its message."""
    if isinstance(rule, TEXT):
        check_pattern(what, rule)
    elif rule is None:
        raise HyperTypeError(
            "{}: variables were chosen by a function, which a config does not hold; build the definition again, with "
            "that function".format(what)
        )
    elif not callable(rule):
        raise HyperTypeError(
            "{} takes a regular expression, 'collection:NAME' or a function of a variable's record; got {!r}".format(
                what, rule
            )
        )


def rules_of(rules):
    """Returns None, one rule or a collection of rules as a tuple of rules."""
    if rules is None:
        return ()
    return tuple(rules) if isinstance(rules, (list, tuple, set, frozenset)) else (rules,)


class Factors(Option):
    """An option for the class attribute `factors` of a `ByName` wrapper: ((rule, number), ...).

    It is given as pairs or as a dictionary. The first rule that selects a variable sets its factor.
    """

    def __init__(self):
        super(Factors, self).__init__(())

    def check(self, owner, value):
        what = "{}.{}".format(owner, self.name)
        if isinstance(value, dict):
            if len(value) > 1 and not isinstance(value, OrderedDict) and not _DICTS_HAVE_AN_ORDER:
                raise HyperTypeError(
                    "{}: the first rule that selects a variable counts, and a dictionary has no order on this Python; "
                    "give a list of pairs, such as {!r}".format(what, sorted(value.items(), key=repr))
                )
            value = value.items()
        try:
            pairs = [(rule, number) for rule, number in value]
        except (TypeError, ValueError):
            raise HyperTypeError("{} takes {{rule: number}}; got {!r}".format(what, value))
        for rule, _ in pairs:
            check_rule(what, rule)
        return tuple((rule, check_number("{}, {!r}".format(what, rule), number, 0)) for rule, number in pairs)


class ByName(object):
    """Mixin for a Wrapper that has one factor for each variable.

    List it before Wrapper. The subclass declares `factors = Factors()`, and `otherwise` for all other variables. In the
    rule specialized for a variable, `factors` is empty and `otherwise` is that variable's factor.
    """

    def specialize(self, variable):
        special = super(ByName, self).specialize(variable)  # type: ignore[misc]
        if not self.factors:  # type: ignore[attr-defined]
            return special
        factors = [factor for rule, factor in self.factors if holds(rule, variable)]  # type: ignore[attr-defined]
        return special.replace(factors=(), otherwise=factors[0] if factors else self.otherwise)  # type: ignore[attr-defined]

    def must_hold(self, factor):
        """Returns whether a rule with this factor has to select at least one variable."""
        return True

    def check_variables(self, records):
        super(ByName, self).check_variables(records)  # type: ignore[misc]
        for rule, factor in self.factors:  # type: ignore[attr-defined]
            chooses = any(holds(rule, record) for record in records) or not self.must_hold(factor)
            if isinstance(rule, TEXT) and not chooses:
                raise DefinitionError(
                    "{!r} of {} chooses no variable; the variables are: {}".format(
                        rule, type(self).__name__, ", ".join(record.name for record in records)
                    )
                )

    def get_config(self, strict=True):
        functions = [rule for rule, _ in self.factors if not isinstance(rule, TEXT)]  # type: ignore[attr-defined]
        if strict and functions:
            raise ConfigError(
                "{} chooses variables by the function {!r}, which cannot be written to a config; give a regular "
                "expression".format(type(self).__name__, functions[0])
            )
        config = super(ByName, self).get_config(strict)  # type: ignore[misc]
        if functions:  # None stands for a function; `check_rule` refuses it when the config is read
            pairs = [(rule if isinstance(rule, TEXT) else None, factor) for rule, factor in self.factors]  # type: ignore[attr-defined]
            config["factors"] = tuple(pairs)
        return config
