"""Runs a new definition on small NumPy arrays, so that a mistake in its rule raises at construction."""
from __future__ import absolute_import, division, print_function

import sys
import threading

import numpy as np

from everstep.compat.backends.on_numpy import IndexedSlices
from everstep.compat.engine import tracing
from everstep.compat.engine.fast_forward import catches_up
from everstep.compat.engine.step import Step
from everstep.compat.engine.variable_view import VariableView
from everstep.compat.rules.expressions import equal
from everstep.compat.rules.operations import MIXING
from everstep.compat.targets.arrays import ArraysAdapter, ArraysOptimizer, Optimizer
from everstep.errors import EverstepError, RuleError
from everstep.optimizers.contract import (
    Definition,
    Schedule,
    Variable,
    assign,
    defines,
    flat,
    flatten,
    tree,
    walk,
    with_hypers,
)
from everstep.optimizers.contract.configured import is_plain
from everstep.optimizers.contract.declarations import running_rule
from everstep.optimizers.contract.verbs import overrides

_OURS = "everstep.optimizers."
_SIMPLE = frozenset([bool, int, float, str, type(None)])  # of most options: known without a call
_passed = set()  # forms that passed: a definition that differs only in its numbers is not run again
_reading = {}  # {form: whether its rule reads the count of updates}
_running = threading.local()


def check_rule(definition):
    """Runs a definition's rule once. Raises RuleError, UnknownOpError or DefinitionError if it breaks the contract."""
    if not definition.dry_run or _is_known(definition):
        return
    form = _form(definition)
    if form in _passed or getattr(_running, "now", False):  # a rule may construct definitions itself
        return
    _running.now = True
    try:
        with np.errstate(all="ignore"):
            _check(definition)
    finally:
        _running.now = False
    if form is not None:
        _passed.add(form)


def _is_known(definition):
    """Returns whether all in a definition is everstep's own, whose tests run each rule with each option."""
    classes = {type(node.definition) for node in walk(tree(definition))}
    # A class that `type` made has the module of the metaclass, and is not in it.
    if definition.sparse == "catch_up" or not all(each.__module__.startswith(_OURS) and getattr(
            sys.modules[each.__module__], each.__name__, None) is each for each in classes):
        return False
    return not any(isinstance(owner._values[declared.name], Schedule)
                   for owner, declared in flat(definition, "hyper").values())


def _form(definition):
    """Returns a key of all that selects the maths of a rule: classes, options, schedules and slots, without numbers.

    None if an option is an object: its text may be that of another one.
    """
    options = [
        (name, node.definition._values[name])
        for node in walk(tree(definition))
        for name in node.definition.declared_order
        if node.definition.declarations[name].kind == "option"
    ]
    others = [value for _, value in options if type(value) not in _SIMPLE]
    if others and not is_plain(tuple(others)):
        return None
    options = [(name, repr(value)) for name, value in options]
    classes = tuple((type(node.definition).serial, node.prefix) for node in walk(tree(definition)))
    values = [(name, owner._values[hyper.name]) for name, (owner, hyper) in flat(definition, "hyper").items()]
    schedules = tuple((name, value._structure()) for name, value in values if isinstance(value, Schedule))
    return classes, tuple(options), schedules, tuple(flat(definition, "slot"))


def reads_updates(definition):
    """Returns whether a rule reads the count of updates, other than for a schedule of its hypers.

    Returns True too for rules that differ between variables, or that cannot run here.
    """
    if getattr(_running, "now", False):  # a rule that is run here asks for it: not known yet
        return True
    form = _form(definition)
    reads = _reading.get(form)
    if reads is None:
        reads = _reads_updates(definition)
        if form is not None:
            _reading[form] = reads
    return reads


def _reads_updates(definition):
    for node in walk(tree(definition)):
        if not type(node.definition).dry_run or overrides(node.definition, "specialize"):
            return True
    _running.now = True
    try:
        with np.errstate(all="ignore"):
            return any(_reads_updates_of(definition, shape) for shape in ((), (3,), (3, 2), (2, 3, 2, 2)))
    except Exception:  # the rule does not take these shapes
        return True
    finally:
        _running.now = False


def _reads_updates_of(definition, shape):
    bound, variable = _bound(definition, (float,)), np.ones(shape, np.float32)
    bound.learn(variable, bound.definition)
    bound.adapter.make_state([variable])
    grads = [np.full(shape, 0.5, np.float32)]
    if shape:
        grads.append(IndexedSlices(grads[0][:2], np.array([2 % shape[0], 0])))
    for grad in grads:
        step = Step(bound, [(grad, variable)])
        step.run()
        if "updates" in step.counts:
            return True
    return False


class _AnyName(object):
    def __contains__(self, name):
        return True


class _DryAdapter(ArraysAdapter):
    stock_hypers = _AnyName()  # nobody reads hypers as attributes here, so that any name will do


class _DryRun(ArraysOptimizer, Optimizer):
    definition_class, native_base, adapter_class = Definition, Optimizer, _DryAdapter


def _bound(definition, kept):
    """Returns the `Bound` of a definition for arrays. A hyper that is not of the `kept` types is a number instead."""
    numbers = {}
    for name, (owner, hyper) in flat(definition, "hyper").items():
        value = owner._values[hyper.name]
        if not isinstance(value, kept) or isinstance(value, Schedule) and value._natives():
            low = 0.5 if hyper.minimum is None else max(0.5, hyper.minimum)
            numbers[name] = low if hyper.maximum is None else min(low, hyper.maximum)
    bound = _DryRun(definition=with_hypers(definition, numbers) if numbers else definition)._bound
    bound.has_checked = bound.has_scaled = bound.takes_stages = True  # neither variables nor loss are the user's
    bound.adapter.read_hypers()
    return bound


def _check(definition):
    bound = _bound(definition, (float, Schedule))
    _check_as(bound, bound.definition)
    if any(overrides(node.definition, "specialize") for node in walk(tree(definition))):
        bound = _bound(definition, (float, Schedule))
        try:
            special = bound._specialized(Variable("kernel", (3, 2), "float32", 0, (), None))
        except EverstepError:
            raise
        except Exception:  # this `specialize` only knows the names of its own model
            return
        if special != bound.definition:
            _check_as(bound, special)


def _check_as(bound, definition):
    """Runs what `specialize` returns for a variable, or the definition itself."""
    optimizer = bound.native
    variable, grad = np.ones((3, 2), np.float32), np.full((3, 2), 0.5, np.float32)
    bound.learn(variable, definition)
    bound.adapter.make_state([variable])
    step = Step(bound, [(grad, variable)])
    step.run()
    _check_returned(definition, VariableView.of_gradient(step, variable, grad))
    optimizer.apply_gradients([(IndexedSlices(grad[:2], [2, 2]), variable)])
    if catches_up(bound.backend.moves_rows, definition):
        _check_replay(definition, optimizer, (IndexedSlices(grad[:1], [0]), variable))
    if definition.zero_grad_is_noop and not defines(definition, "collect"):
        _check_noop(optimizer, variable)


def _check_replay(definition, optimizer, pair):
    """Runs a step on a row that has missed one. Raises RuleError if the rule needs what a missed step does not have."""
    try:
        optimizer.apply_gradients([pair])
    except RuleError as error:
        raise RuleError(
            '{} cannot take sparse="catch_up", which replays updates that a row missed: {}. Use sparse="exact" or '
            '"rows"'.format(definition._short(), error)
        )


def _check_returned(definition, view):
    owner = type(definition).__name__
    with running_rule():
        collected = definition.collect(view.ops, view.grad, view.slots, view.hypers)
        change, updated = view.ops.update_of(
            definition, view.grad, view.var, view.slots, view.hypers, view.scope.t)
        scalars = definition.advance(view.ops, view.hypers, view.hypers, view.scope.t)
    _check_pure(view, change, flatten(definition, "slot", updated, "update"))
    slots = flatten(definition, "slot", collected, "collect")
    slots.update(flatten(definition, "slot", updated, "update"))
    missing = [name for name in flat(definition, "slot") if name not in slots]
    if missing:
        raise RuleError(
            "{} declares the slot {}, which neither update nor collect returns; return it (unchanged, if so) or "
            "declare it with when=".format(owner, ", ".join(missing))
        )
    scalars = flatten(definition, "scalar", scalars, "advance")
    missing = [name for name in flat(definition, "scalar") if name not in scalars]
    if missing:
        raise RuleError("{} declares the scalar {}, which advance does not return".format(owner, ", ".join(missing)))
    values = [change.value if isinstance(change, assign) else change] + list(slots.values())
    _check_locality(definition, [view.as_value(value) for value in values])


def _check_pure(view, change, slots):
    """Raises RuleError if `update` returned something else than when the step ran it: steps run it once."""
    before, as_value = tracing.updated(view), view.as_value
    pairs = [(before.change, as_value(change.value if isinstance(change, assign) else change))]
    pairs += [(value, as_value(slots[name])) for name, value in before.slots.items()]
    if not all(equal(*pair) for pair in pairs):
        raise RuleError(
            "{}.update returns something else each time it runs. A rule runs once for each shape, and what it returned "
            "is computed at every step: it can depend on its arguments and on the definition's options alone. Count "
            "with t, and draw with ops.random_normal(seed, t, hyper)".format(view.owner)
        )


def _check_locality(definition, values):
    """Raises RuleError if a rule on elements or rows reduces over more.

    Such a rule never gets the whole variable, so its result would depend on which part it gets.
    """
    if definition.locality == "variable":
        return
    pending, seen = list(values), set()
    while pending:
        value = pending.pop()
        if id(value) in seen or value.step_wide:
            continue
        seen.add(id(value))
        pending.extend(value.args)
        if value.op in MIXING and not (definition.locality == "row" and _within_rows(value.options.get("axis"))):
            raise RuleError(
                '{0}.update mixes elements with ops.{1}, but its locality is "{2}": it may get only some rows, or a '
                'part of a variable. Return the sum from `measure`, or declare locality = "variable"{3}'.format(
                    type(definition).__name__,
                    value.op,
                    definition.locality,
                    ' (or "row", for an axis other than 0)'
                    if definition.locality == "element"
                    else "; axis 0 is the rows",
                )
            )


def _within_rows(axis):
    return axis is not None and 0 not in (axis if isinstance(axis, tuple) else (axis,))


def _check_noop(optimizer, variable):
    bound = optimizer._bound
    slots = bound.adapter.slots.get(bound.variable_key(variable), {})
    arrays = dict({"the variable": variable}, **slots)
    before = {name: np.array(array) for name, array in arrays.items()}
    optimizer.apply_gradients([(np.zeros_like(variable), variable)])
    for name, old in sorted(before.items()):
        new = arrays[name]
        if not ((new == old) | (new != new) & (old != old)).all():  # NaN stays NaN
            raise RuleError(
                "{} declares zero_grad_is_noop, but a zero gradient changed {}".format(
                    type(optimizer.definition).__name__, name
                )
            )
