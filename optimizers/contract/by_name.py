"""What wrappers share that treat variables by their names: rules that choose variables, each with a factor."""
from __future__ import absolute_import, division, print_function

import re
from collections import OrderedDict

from everstep.errors import ConfigError, DefinitionError, HyperTypeError
from everstep.optimizers.contract.checks import check_number, check_pattern
from everstep.optimizers.contract.declarations import Option

COLLECTION = "collection:"
_TEXT = (str, type(u""))
_DICTS_HAVE_AN_ORDER = list({str(number): number for number in range(99)}.values()) == list(range(99))


def holds(rule, variable):
    """Whether a rule chooses a variable, by its record.

    A rule is a regular expression that is found in its name, "collection:NAME" of a TF 1 graph, or a function of it.
    """
    if not isinstance(rule, _TEXT):
        return bool(rule(variable))
    if rule.startswith(COLLECTION):
        return rule[len(COLLECTION) :] in variable.collections
    return re.search(rule, variable.name) is not None


def check_rule(what, rule):
    if isinstance(rule, _TEXT):
        check_pattern(what, rule)
    elif rule is None:
        raise HyperTypeError(
            "{}: variables were chosen by a function, which a config does not hold; make the definition anew, with "
            "it".format(what)
        )
    elif not callable(rule):
        raise HyperTypeError(
            "{} takes a regular expression, 'collection:NAME' or a function of a variable's record; got {!r}".format(
                what, rule
            )
        )


def rules_of(given):
    """A tuple of one rule or many."""
    if given is None:
        return ()
    return tuple(given) if isinstance(given, (list, tuple, set, frozenset)) else (given,)


class Factors(Option):
    """An option that holds ((rule, number), ...), of which the first that holds counts; given so, or as a dictionary.

    Its `Wrapper` has `ByName` before it.
    """

    def __init__(self):
        super(Factors, self).__init__(())

    def check(self, owner, value):
        what = "{}.{}".format(owner, self.name)
        if isinstance(value, dict):
            if len(value) > 1 and not isinstance(value, OrderedDict) and not _DICTS_HAVE_AN_ORDER:
                raise HyperTypeError(
                    "{}: the first rule that holds counts, and a dictionary has no order on this Python; give a list "
                    "of pairs, such as {!r}".format(what, sorted(value.items(), key=repr))
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
    """Stands before Wrapper; the definition declares `factors = Factors()` and `otherwise`, for all other variables.

    The rule of a variable has no factors, and for `otherwise` that variable's own.
    """

    def specialize(self, variable):
        made = super(ByName, self).specialize(variable)  # type: ignore[misc]
        if not self.factors:  # type: ignore[attr-defined]
            return made
        found = [factor for rule, factor in self.factors if holds(rule, variable)]  # type: ignore[attr-defined]
        return made.replace(factors=(), otherwise=found[0] if found else self.otherwise)  # type: ignore[attr-defined]

    def must_hold(self, factor):
        """Whether it is a mistake if the rule with a factor chooses no variable."""
        return True

    def check_variables(self, records):
        super(ByName, self).check_variables(records)  # type: ignore[misc]
        for rule, factor in self.factors:  # type: ignore[attr-defined]
            chooses = any(holds(rule, record) for record in records) or not self.must_hold(factor)
            if isinstance(rule, _TEXT) and not chooses:
                raise DefinitionError(
                    "{!r} of {} chooses no variable; there are: {}".format(
                        rule, type(self).__name__, ", ".join(record.name for record in records)
                    )
                )

    def get_config(self, strict=True):
        chosen = [rule for rule, _ in self.factors if not isinstance(rule, _TEXT)]  # type: ignore[attr-defined]
        if strict and chosen:
            raise ConfigError(
                "{} chooses variables by the function {!r}, which cannot be written to a config; give a regular "
                "expression".format(type(self).__name__, chosen[0])
            )
        config = super(ByName, self).get_config(strict)  # type: ignore[misc]
        if chosen:  # reading it is an error then
            pairs = [(rule if isinstance(rule, _TEXT) else None, factor) for rule, factor in self.factors]  # type: ignore[attr-defined]
            config["factors"] = tuple(pairs)
        return config
