"""Several optimizers in one model."""
from __future__ import absolute_import, division, print_function

import re
from collections import OrderedDict

from everstep.errors import ConfigError, DefinitionError, HyperTypeError
from everstep.optimizers.contract.by_name import COLLECTION, holds
from everstep.optimizers.contract.checks import check_pattern
from everstep.optimizers.contract.composite import Composite
from everstep.optimizers.contract.declarations import Child, option
from everstep.optimizers.contract.declared import Declared
from everstep.optimizers.contract.trees import flat
from everstep.optimizers.contract.verbs import defines

DEFAULT = "default"
_TEXT = (str, type(u""))


class Partition(Composite):
    """Each variable is updated by one of several definitions, its branch: `everstep.partition`.

    A branch is chosen by one of
    - a regular expression, found in the variable's name (without `:0`);
    - `"collection:NAME"`: the variable is in that collection of a TF 1 graph (on tf.train);
    - a function of the variable's record (`name, shape, dtype, index, collections, native`) that says yes or no.

    A variable belongs to exactly one branch: one that two take, or that none takes where there is no default, is an
    error that names it, and so is an expression or collection that takes no variable of the first step (or of `build`,
    on APIs that have it); a function may take none. The order of the branches has no meaning.

    State is kept apart: what a definition calls `m` is `BRANCH/m`, and `BRANCH/learning_rate` is the attribute
    `BRANCH_learning_rate`, for callbacks to set. There is no `learning_rate` of all: setting it is an error. Sums that
    a definition measures over all variables (a global norm) are over those of its branch; a wrapper around the
    partition sees all. All branches count updates together, and `sparse` is each branch's own.

    A config holds no functions: with one, `from_config` of what was saved is an error.

    Args:
        rules: ((branch, expression), ...).
        **branches: the definition of each branch; of `default` for all other variables.

    >>> import numpy, everstep
    >>> from everstep.optimizers import SGD
    >>> weights, bias = numpy.zeros((2, 2)), numpy.zeros(2)
    >>> is_bias = lambda variable: len(variable.shape) == 1
    >>> optimizer = everstep.partition({"bias": (is_bias, SGD(1.0))}, default=SGD(0.5)).bind(numpy)
    >>> optimizer.default_learning_rate = 2.0
    >>> optimizer.apply_gradients([(numpy.ones((2, 2)), weights), (numpy.ones(2), bias)])
    >>> print(weights, bias)
    [[-2. -2.]
     [-2. -2.]] [-1. -1.]
    """

    settings = Composite.keyword_only  # which every branch has of its own
    keyword_only = settings + ("chosen",)
    _keywords = "branches"
    rules = option(())
    chosen = option(None)

    @classmethod
    def takes(cls, name):
        return True

    def _checked(self, args, kwargs):
        own = self.argument_names()
        given = {name: kwargs.pop(name) for name in self.settings if name in kwargs}  # for all branches
        branches = OrderedDict()
        for name in sorted(set(kwargs) - set(own), key=lambda name: (name == DEFAULT, name)):
            is_child = Child()
            is_child.name = name
            branches[name] = is_child.check(type(self).__name__, kwargs.pop(name))
            branches[name] = branches[name].replace(**given) if given else branches[name]
        chosen = kwargs.get("chosen")
        self.__dict__["_branches"] = branches
        self.__dict__["_active"] = branches if chosen is None else {chosen: branches[chosen]}
        values = super(Partition, self)._checked(args, kwargs)
        try:
            values["rules"] = tuple(sorted((str(name), rule) for name, rule in values["rules"]))
        except (TypeError, ValueError):
            raise HyperTypeError("the rules of a partition are (branch, rule); got {!r}".format(values["rules"]))
        values.update(branches)
        return values

    def _default(self, name, values):
        found = {getattr(branch, name) for branch in self._active.values()} if name in self.settings else ()
        return found.pop() if len(found) == 1 else self.declarations[name].default

    def _check(self):
        named = [name for name, _ in self.rules]
        if sorted(named) != sorted(set(self._branches) - {DEFAULT}) or not named:
            raise DefinitionError(
                "a partition has a rule for each branch but default (a config does not hold rules that are functions); "
                "got rules for {} and the branches {}".format(
                    ", ".join(named) or "none", ", ".join(self._branches) or "none"
                )
            )
        for name, rule in self.rules:
            _check_name(name)
            if isinstance(rule, _TEXT):
                check_pattern("partition, branch {}".format(name), rule)
            elif not callable(rule):
                raise HyperTypeError(
                    "partition, branch {}: a rule is a regular expression, 'collection:NAME' or a function of a "
                    "variable's record; got {!r}".format(name, rule)
                )
        for branch in self._branches.values():
            if defines(branch, "should_update") or defines(branch, "should_accept"):
                raise DefinitionError(
                    "{} skips steps, which all branches of a partition do together; put it around the partition".format(
                        branch._short()
                    )
                )
        attributes = [name.replace("/", "_") for name in flat(self, "hyper")]
        twice = sorted(name for name in set(attributes) if attributes.count(name) > 1)
        if twice:
            raise DefinitionError("two branches of a partition have a hyper called {}".format(", ".join(twice)))

    def get_config(self, strict=True):
        functions = [name for name, rule in self.rules if not isinstance(rule, _TEXT)]
        if strict and functions:
            raise ConfigError(
                "a function chooses the variables of branch {} of a partition, which cannot be written to a config; "
                "give a regular expression".format(", ".join(functions))
            )
        config = super(Partition, self).get_config(strict)
        return {name: value for name, value in config.items() if name not in self.keyword_only}

    def children(self):
        return self._branches

    def active(self):
        return self._active

    @property
    def without_grad(self):
        changed = {name: branch.without_grad for name, branch in self.active().items()}
        same = all(branch is self._branches[name] for name, branch in changed.items())
        return self if same else self.replace(**changed)

    def check_variables(self, records):
        taken = OrderedDict((name, []) for name in self._branches)
        for record in records:
            taken[self.branch_of(record)].append(record)
        for name, rule in self.rules:
            if not taken[name] and isinstance(rule, _TEXT):
                raise DefinitionError(
                    "branch {} of the partition ({}) takes no variable; there are: {}".format(
                        name, rule, ", ".join(record.name for record in records)
                    )
                )
            self._branches[name].check_variables(taken[name])

    def branch_of(self, variable):
        """The name of the branch that a variable, by its record, belongs to."""
        found = [name for name, rule in self.rules if holds(rule, variable)]
        if len(found) > 1 or not found and DEFAULT not in self._branches:
            raise DefinitionError(
                "{} is of {} of the partition; a variable belongs to exactly one: {}".format(
                    variable.name,
                    "the branches " + " and ".join(found) if found else "no branch",
                    "let their rules exclude each other" if found else "give default=",
                )
            )
        return found[0] if found else DEFAULT

    def specialize(self, variable):
        name = self.branch_of(variable)
        return self.replace(chosen=name, **{name: self._branches[name].specialize(variable)})

    def update(self, ops, grad, var, slots, hyper, t):
        return self._of_branch("update", ops, (grad, var), slots, hyper, t)

    def fast_forward(self, ops, var, slots, hyper, steps):
        return self._of_branch("fast_forward", ops, (var,), slots, hyper, steps)

    def _of_branch(self, verb, ops, values, slots, hyper, count):
        # All of them only where everstep tries a rule on arrays of its own.
        change, new = 0.0, {}
        for name, branch in self.active().items():
            run = getattr(branch, verb)
            change, new[name] = run(ops, *(values + (getattr(slots, name), getattr(hyper, name), count)))
        return change, new


def _check_name(name):
    known = name in Declared.reserved or hasattr(Partition, name) or name == DEFAULT
    if known or not re.match("[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*$", name):
        raise DefinitionError(
            "{!r} is no name for a branch of a partition; give another by {{name: (rule, definition)}}, of letters, "
            "digits and single _, that everstep does not use itself".format(name)
        )


def partition(rules, default=None):
    """Several optimizers in one model: each variable belongs to one of them. See `everstep.optimizers.Partition`.

    Args:
        rules: `{what: definition}`, where `what` is a regular expression for names, "collection:NAME" or a function of
            a variable's record. The branch is called after its letters and digits, `embed` for `"/embed"`, or after the
            function; `{name: (what, definition)}` gives another name.
        default: the definition for all other variables; without it, another variable is an error.

    >>> import everstep
    >>> from everstep.optimizers import SGD, Adagrad
    >>> definition = everstep.partition({"/embed": Adagrad(0.1, sparse="rows")}, default=SGD(0.01))
    >>> definition.children()["embed"].sparse
    'rows'
    """
    if not isinstance(rules, dict):
        raise HyperTypeError("partition takes {{rule: definition}}; got {!r}".format(rules))
    branches = {} if default is None else {DEFAULT: default}
    by_name = []
    for name, definition in rules.items():
        what = name
        if isinstance(definition, tuple) and len(definition) == 2:
            what, definition = definition
        else:
            text = getattr(what, "__name__", str(what))
            text = text[len(COLLECTION) :] if text.startswith(COLLECTION) else text
            name = re.sub("[^A-Za-z0-9]+", "_", text).strip("_")
        _check_name(str(name))
        if name in branches:
            raise DefinitionError(
                "two branches of a partition are called {!r}; name them by {{name: (rule, definition)}}".format(name)
            )
        branches[str(name)] = definition
        by_name.append((name, what))
    return Partition(rules=tuple(by_name), **branches)
