"""Several optimizers in one model."""
from __future__ import absolute_import, division, print_function

import re
from collections import OrderedDict

from everstep.errors import ConfigError, DefinitionError, HyperTypeError, HyperValueError
from everstep.optimizers.contract.by_name import COLLECTION, holds
from everstep.optimizers.contract.checks import TEXT, check_pattern
from everstep.optimizers.contract.composite import Composite
from everstep.optimizers.contract.declarations import Child, option
from everstep.optimizers.contract.declared import Declared
from everstep.optimizers.contract.schedule_base import Schedule
from everstep.optimizers.contract.trees import Names, flat, later
from everstep.optimizers.contract.verbs import defines

DEFAULT = "default"


class Partition(Composite):
    """Updates each variable by one of several definitions, its branch: `everstep.partition`.

    A rule chooses the variables of a branch. It is one of
    - a regular expression that matches anywhere in the variable's name (without `:0`);
    - `"collection:NAME"`: the variable is in that collection of a TF 1 graph (on tf.train);
    - a function of the variable's record (`name, shape, dtype, index, collections, native`) that returns True or False.

    A variable belongs to exactly one branch. If two rules match it, or none does and there is no default, an error
    names it. An expression or collection that matches no variable of the first step (or of `build`, on APIs that have
    it) is an error too; a function may match none. The order of branches does not matter.

    Branches keep separate state: a slot `m` is named `BRANCH/m`, and the hyper `BRANCH/learning_rate` is the attribute
    `BRANCH_learning_rate`, for callbacks to set. There is no shared `learning_rate`; setting it is an error. Sums that
    a definition measures over all variables, such as a global norm, are over its branch; a wrapper around the partition
    sees all variables. All branches share one count of updates; `starts` says by how many a branch is ahead, which is
    what a file of several optimizers says that stepped by themselves. Each branch has its own `sparse`.

    A config holds no functions: after saving a partition with one, `from_config` is an error.

    Advice:
        Use it if parts of a model need different algorithms. Wide & Deep (Cheng et al. 2016,
        https://arxiv.org/abs/1606.07792) trains its linear part with FTRL and its deep part with Adagrad. Put clip with
        a global norm around the partition: inside a branch, the norm is over that branch alone. accumulate and
        loss_scale must be around it. If only the learning rate differs, learning_rate_multipliers is simpler.

    Args:
        rules: ((branch, rule), ...).
        starts: {branch: int} or ((branch, int), ...): how many updates a branch had made before those that the
            partition counts. Its t, for corrections of the bias, is larger by that. Keyword only. Default: none.
        chosen: Set by everstep: the branch of the variable for which the partition is specialized. Keyword only.
        **branches: The definition of each branch, and of `default` for all other variables.

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

    settings = Composite.keyword_only  # each branch has these itself
    keyword_only = settings + ("chosen", "starts")
    _keywords = "branches"
    rules = option(())
    chosen = option(None)
    starts = option(())

    @classmethod
    def takes(cls, name):
        return True

    def _checked(self, args, kwargs):
        argument_names = self.argument_names()
        settings = {name: kwargs.pop(name) for name in self.settings if name in kwargs}  # for all branches
        branches = OrderedDict()
        for name in sorted(set(kwargs) - set(argument_names), key=lambda name: (name == DEFAULT, name)):
            is_child = Child()
            is_child.name = name
            branches[name] = is_child.check(type(self).__name__, kwargs.pop(name))
            branches[name] = branches[name].replace(**settings) if settings else branches[name]
        chosen = kwargs.get("chosen")
        object.__setattr__(self, "_branches", branches)
        object.__setattr__(self, "_active", branches if chosen is None else {chosen: branches[chosen]})
        values = super(Partition, self)._checked(args, kwargs)
        try:
            values["rules"] = tuple(sorted((str(name), rule) for name, rule in values["rules"]))
        except (TypeError, ValueError):
            raise HyperTypeError("the rules of a partition are (branch, rule); got {!r}".format(values["rules"]))
        starts = values.get("starts") or ()
        try:
            starts = [(str(name), count) for name, count in (starts.items() if isinstance(starts, dict) else starts)]
        except (TypeError, ValueError):
            raise HyperTypeError("the starts of a partition are {{branch: int}}; got {!r}".format(starts))
        values["starts"] = tuple(sorted((name, count) for name, count in starts if count != 0))
        values.update(branches)
        return values

    def _default(self, name, values):
        settings = {getattr(branch, name) for branch in self._active.values()} if name in self.settings else ()
        return settings.pop() if len(settings) == 1 else self.declarations[name].default

    def _check(self):
        names = [name for name, _ in self.rules]
        if sorted(names) != sorted(set(self._branches) - {DEFAULT}) or not names:
            raise DefinitionError(
                "a partition has a rule for each branch but default (a config does not hold rules that are functions); "
                "got rules for {} and the branches {}".format(
                    ", ".join(names) or "none", ", ".join(self._branches) or "none"
                )
            )
        for name, rule in self.rules:
            _check_name(name)
            if isinstance(rule, TEXT):
                check_pattern("partition, branch {}".format(name), rule)
            elif not callable(rule):
                raise HyperTypeError(
                    "partition, branch {}: a rule is a regular expression, 'collection:NAME' or a function of a "
                    "variable's record; got {!r}".format(name, rule)
                )
        for branch in self._branches.values():
            if defines(branch, "should_update") or defines(branch, "should_accept"):
                raise DefinitionError(
                    "{} skips steps, but all branches of a partition update together; put it around the "
                    "partition".format(branch._short())
                )
        for name, count in self.starts:
            if name not in self._branches or isinstance(count, bool) or not hasattr(count, "__index__") or count < 0:
                raise HyperValueError(
                    "the starts of a partition are {{branch: int}}, with counts from 0 on and the branches {}; got "
                    "{!r}: {!r}".format(", ".join(self._branches), name, count)
                )
            hypers = flat(self._branches[name], "hyper").values()
            if any(isinstance(getattr(owner, each.name), Schedule) for owner, each in hypers):
                raise DefinitionError(
                    "the branch {} of a partition cannot start {} updates later: it has a schedule, which goes by the "
                    "count of all branches. Give it a number".format(name, count)
                )
        attributes = [name.replace("/", "_") for name in flat(self, "hyper")]
        repeated = sorted(name for name in set(attributes) if attributes.count(name) > 1)
        if repeated:
            raise DefinitionError(
                "two hypers of a partition have the attribute name {}; rename a branch".format(", ".join(repeated))
            )

    def get_config(self, strict=True):
        functions = [name for name, rule in self.rules if not isinstance(rule, TEXT)]
        if strict and functions:
            raise ConfigError(
                "a function chooses the variables of branch {} of a partition, which cannot be written to a config; "
                "give a regular expression".format(", ".join(functions))
            )
        config = super(Partition, self).get_config(strict)
        kept = ("starts",) if self.starts else ()
        return {name: value for name, value in config.items() if name in kept or name not in self.keyword_only}

    def children(self):
        return self._branches

    def active(self):
        return self._active

    @property
    def without_grad(self):
        rules = {name: branch.without_grad for name, branch in self.active().items()}
        unchanged = all(rule is self._branches[name] for name, rule in rules.items())
        return self if unchanged else self.replace(**rules)

    def check_variables(self, records):
        by_branch = OrderedDict((name, []) for name in self._branches)
        for record in records:
            by_branch[self.branch_of(record)].append(record)
        for name, rule in self.rules:
            if not by_branch[name] and isinstance(rule, TEXT):
                raise DefinitionError(
                    "branch {} of the partition ({}) takes no variable; there are: {}".format(
                        name, rule, ", ".join(record.name for record in records)
                    )
                )
            self._branches[name].check_variables(by_branch[name])

    def branch_of(self, variable):
        """Finds the branch that a variable belongs to.

        Args:
            variable: An `everstep.Variable` record.

        Returns:
            The name of the branch, `"default"` if no rule matches.

        Raises:
            DefinitionError: Several rules match, or none does and there is no default.
        """
        matches = [name for name, rule in self.rules if holds(rule, variable)]
        if len(matches) > 1 or not matches and DEFAULT not in self._branches:
            raise DefinitionError(
                "{} belongs to {} of the partition, but each variable needs exactly one: {}".format(
                    variable.name,
                    "the branches " + " and ".join(matches) if matches else "no branch",
                    "let their rules exclude each other" if matches else "give default=",
                )
            )
        return matches[0] if matches else DEFAULT

    def specialize(self, variable):
        name = self.branch_of(variable)
        return self.replace(chosen=name, **{name: self._branches[name].specialize(variable)})

    def _hypers_of(self, key, hyper):
        start, hypers = dict(self.starts).get(key), super(Partition, self)._hypers_of(key, hyper)
        return later(hypers, start) if start else hypers

    def advance(self, ops, scalars, hyper, t):
        starts = dict(self.starts)
        return {name: branch.advance(ops, getattr(scalars, name), self._hypers_of(name, hyper),
                                     t + starts[name] if name in starts else t)
                for name, branch in self.children().items()}

    def update(self, ops, grad, var, slots, hyper, t):
        starts = {id(self._branches[name]): start for name, start in self.starts}

        def updated(branch, slots, hyper):
            start = starts.get(id(branch))
            return ops.update_of(branch, grad, var, slots, hyper, t + start if start else t)

        return self._of_branch(updated, slots, hyper)

    def fast_forward(self, ops, var, slots, hyper, steps):
        return self._of_branch(lambda branch, *names: branch.fast_forward(ops, var, *(names + (steps,))), slots, hyper)

    def _of_branch(self, verb, slots, hyper):
        # Normally one branch is active; a dry run on everstep's test arrays has all of them.
        results = self._each(verb, slots, hyper)
        changes = [change for change, _ in results.values()]
        return changes[-1] if changes else 0.0, {name: new for name, (_, new) in results.items()}


def _check_name(name):
    reserved = name in Declared.reserved or hasattr(Partition, name) or hasattr(Names, name) or name == DEFAULT
    if reserved or not re.match("[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*$", name):
        raise DefinitionError(
            "{!r} cannot name a branch of a partition; give another name by {{name: (rule, definition)}}, of letters, "
            "digits and single _, that everstep does not use itself".format(name)
        )


def partition(rules, default=None, starts=()):
    """Combines several optimizers in one model, one per variable. See `everstep.optimizers.Partition`.

    Args:
        rules: `{rule: definition}`. A rule is a regular expression for names, "collection:NAME" or a function of a
            variable's record. The branch is named after the letters and digits of its rule (`embed` for `"/embed"`) or
            after the function. `{name: (rule, definition)}` gives another name.
        default: The definition for all other variables. Default None: another variable is an error.
        starts: {branch: int}, how many updates ahead a branch is. See `everstep.optimizers.Partition`.

    Returns:
        An `everstep.optimizers.Partition`.

    Raises:
        DefinitionError: A name is reserved or given twice, there is no rule, or a definition skips steps.
        HyperTypeError, HyperValueError: An argument is of the wrong type, or a rule is no valid regular expression.

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
        rule = name
        if isinstance(definition, tuple) and len(definition) == 2:
            rule, definition = definition
        else:
            text = getattr(rule, "__name__", str(rule))
            text = text[len(COLLECTION) :] if text.startswith(COLLECTION) else text
            name = re.sub("[^A-Za-z0-9]+", "_", text).strip("_")
        _check_name(str(name))
        if name in branches:
            raise DefinitionError(
                "two branches of a partition are called {!r}; name them by {{name: (rule, definition)}}".format(name)
            )
        branches[str(name)] = definition
        by_name.append((name, rule))
    return Partition(rules=tuple(by_name), starts=starts, **branches)
