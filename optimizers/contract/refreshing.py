"""Declares methods that run every few updates: the costly part of a rule, such as the roots of Shampoo."""
from __future__ import absolute_import, division, print_function

import itertools
import numbers

from everstep.errors import DefinitionError, HyperValueError, RuleError
from everstep.optimizers.contract.configured import once
from everstep.optimizers.contract.trees import tree, walk

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

_order = itertools.count()  # Python 2.7 does not keep the order of a class body


def refresh(every, after=None):
    """Makes a method run every few updates, before `update`: first at update 1, then at updates 1 + every, ...

    The method is `(self, ops, grad, var, slots, hyper) -> {name: new slot}`. Each new slot has the shape and dtype of
    the old one. `update` sees the new slots; it need not return them. In between nothing of the method is computed.
    Several methods may have different periods. They run in the order of the class body; each sees the slots of those
    before it.
    They get whole variables, so the definition takes only `sparse="exact"`.

    A wrapper around such a rule calls `super().update` or `ops.update_of(self.inner, ...)`, not `self.inner.update`.

    Args:
        every: the number of updates, from 1, or the name of an option that holds it. None: only at update 1.
        after: a number of updates, from 0. The method then runs at updates after + every, after + 2 * every, ...

    Returns:
        A decorator, which returns the method.

    Raises:
        DefinitionError: `every` is neither a whole number from 1 nor a name, or `after` is no whole number from 0.

    >>> import everstep
    >>> class Held(everstep.Definition):
    ...     learning_rate = everstep.hyper(0.1)
    ...     period = everstep.option(10)
    ...     scale = everstep.slot(1.0)
    ...     @everstep.refresh(every="period")
    ...     def new_scale(self, ops, grad, var, slots, hyper):
    ...         return {"scale": ops.abs(grad) + 1e-8}
    ...     def update(self, ops, grad, var, slots, hyper, t):
    ...         return hyper.learning_rate * grad / slots.scale, {}
    >>> import numpy
    >>> weights = numpy.ones(2)
    >>> optimizer = Held().bind(numpy)
    >>> for grad in (numpy.array([4.0, 2.0]), numpy.array([2.0, 2.0])):
    ...     optimizer.apply_gradients([(grad, weights)])
    >>> weights.round(3)
    array([0.85, 0.8 ])
    """
    if not (every is None or isinstance(every, str) or _is_whole(every, 1)):
        raise DefinitionError(
            "refresh(every=...) takes a whole number from 1 or the name of an option; got {!r}".format(every))
    if after is not None and not (every and _is_whole(after, 0)):
        raise DefinitionError("refresh(after=...) takes a whole number from 0, beside `every`; got {!r}".format(after))

    def mark(method):
        method.everstep_refresh = next(_order), every, after
        return method

    return mark


def _is_whole(value, least):
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= least


def refreshes(definition):
    """Returns [(name of a method, its period, after)] of a definition's own methods, in the order of the class body.

    Raises HyperValueError if an option is no period.
    """
    marks = type(definition).refresh_methods
    return [(name, _period(definition, name, every), after) for name, (_, every, after) in marks]


def _period(definition, method, every):
    """Returns a number of updates, or None for a method that runs once."""
    if not isinstance(every, str):
        return every
    declared = definition.declarations.get(every)
    if declared is None or declared.kind != "option":
        raise DefinitionError("{}.{} runs every {!r} updates, which is no option of it".format(
            type(definition).__name__, method, every))
    value = definition._values[every]
    if not _is_whole(value, 1):
        raise HyperValueError(
            "{}: {} is how many updates lie between two of {}, a whole number from 1; got {!r}".format(
                type(definition).__name__, every, method, value))
    return int(value)


def has_refresh(definition):
    """Returns whether a definition, or one inside of it, has methods that run every few updates."""
    return once(definition, "has a refresh", lambda: any(
        type(node.definition).refresh_methods for node in walk(tree(definition), active=True)))


def check_refreshes(definition):
    """Raises DefinitionError if a definition with such methods takes rows of sparse gradients alone."""
    names = ", ".join(each[0] for each in refreshes(definition))
    if definition.sparse != "exact":
        raise DefinitionError('{} takes only sparse="exact": {} works on whole variables; got sparse={!r}'.format(
            type(definition).__name__, names, definition.sparse))


def refreshed_update(ops, definition, grad, var, slots, hyper, t):
    """Returns what `definition.update` returns, after the methods that run every few updates.

    Args:
        ops: the operations. `ops.values_if(due, new, old)` chooses between two lists of values, and computes `new` only
            if it is due.
        slots: has `replaced({name: value})`, which returns the slots with other values.
    """
    if not type(definition).refresh_methods:
        return definition.update(ops, grad, var, slots, hyper, t)
    changed = {}  # type: dict[str, Any]
    for name, period, after in refreshes(definition):
        new = getattr(definition, name)(ops, grad, var, slots, hyper)
        if not isinstance(new, dict):
            raise RuleError("{}.{} must return a dict of slots; it returned {!r}".format(
                type(definition).__name__, name, new))
        names = sorted(new)
        old = [getattr(slots, each) for each in names]
        values = ops.values_if(_due(ops, t, period, after), [new[each] for each in names], old)
        slots = slots.replaced(dict(zip(names, values)))
        changed.update(zip(names, values))
    returned = definition.update(ops, grad, var, slots, hyper, t)
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], dict):
        return returned[0], dict(changed, **returned[1])
    return returned


def _due(ops, t, period, after):
    if period is None:
        return ops.equal(t, 1)
    if after is None:
        return ops.equal((t - 1) % period, 0)
    return ops.logical_and(t > after, ops.equal((t - after) % period, 0))
