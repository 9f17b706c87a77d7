"""`everstep.averaged` and `everstep.assign_averages`: put averages into the variables, on every target."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.compat.backends.on_numpy import numpy_ops
from everstep.compat.checkpoints import in_trees
from everstep.compat.checkpoints.live import as_variables, open_access
from everstep.compat.checkpoints.unwrapping import unwrapped
from everstep.compat.engine import fast_forward
from everstep.compat.targets.native import NativeOptimizer
from everstep.compat.targets.optax_transform import transform_of
from everstep.errors import StateError
from everstep.optimizers.contract import Names, Schedule, defines, flat, tree


class averaged(object):  # noqa: N801  # used like a function, in a with statement
    """Puts averages into the variables for the length of a `with` block, then puts the old values back.

        with everstep.averaged(optimizer):
            model.evaluate(...)

    The averages are those of `moving_average` and `stochastic_weight_averaging`, the slow weights of `lookahead`, or
    those of a rule that averages itself (ASGD, ScheduleFreeAdamW). If several wrappers average, the
    outermost one counts.

    Inside the block the slots are unchanged, and saved files have the averages as weights. So export inside the block,
    and save checkpoints to resume from outside of it.

    Training inside the block is an error. In eager code it is raised before anything changes; in graphs and compiled
    functions at the end of the block, after the old values are back. A second block inside, for the same optimizer, is
    an error too.

    Args:
        optimizer: the optimizer that `bind(module)` returned.
        variables: all variables that it trains, a list or {name: variable}, as for `everstep.capture`. Default: those
            that the optimizer knows, since its first step or `build`.
        session: as for `everstep.capture`. Nothing is added to a graph.

    For a transform of optax, `averaged(transform, opt_state, params)` returns the averages, a tree like the parameters,
    and changes nothing.

    Raises:
        StateError: the optimizer keeps no averages, or does not know its variables yet; rows are not up to date
            (`sparse="catch_up"`: call `optimizer.flush()` first); there is a block inside another, or training inside.
        VariableError: `variables` has something that is not a variable, one twice, or only some parts of one.
        UnsupportedError: `optimizer` is not a bound optimizer.

    >>> import numpy, everstep
    >>> weights = numpy.zeros(1)
    >>> optimizer = everstep.moving_average(everstep.optimizers.SGD(1.0), 0.5).bind(numpy)
    >>> optimizer.apply_gradients([(-numpy.ones(1), weights)])
    >>> with everstep.averaged(optimizer, [weights]):
    ...     print(weights)
    [0.5]
    >>> print(weights)
    [1.]
    """

    def __new__(cls, optimizer, variables=None, session=None):
        transform = transform_of(optimizer)
        if transform is None:
            return object.__new__(cls)
        with in_trees.opened(transform, variables, session) as tree:
            with open_access(tree.layout.native, tree.named(), None) as access:
                access.write(access.assignments(_averages(access)[0]))
                return tree.params()

    def __init__(self, optimizer, variables=None, session=None):
        self._arguments = unwrapped(optimizer), None if variables is None else as_variables(variables), session
        self._before = self._updates = None

    def __enter__(self):
        optimizer, variables, session = self._arguments
        self._arguments = optimizer, _given_or_known(optimizer, variables), session
        with open_access(*self._arguments) as access:
            if access.bound.is_averaged:
                raise StateError("the averages of {} are in its variables already".format(access.owner))
            averages, self._before = _averages(access)
            self._updates = _updates(access)
            access.write(access.assignments(averages))
            access.bound.is_averaged = True
        return self

    def __exit__(self, kind, error, trace):
        with open_access(*self._arguments) as access:
            access.bound.is_averaged = False
            access.write(access.assignments(self._before))
            if kind is None and _updates(access) != self._updates:
                raise StateError(
                    "{} has trained inside of everstep.averaged. Its variables have their old values again, without "
                    "those updates, but slots and counters have changed: restore an earlier state".format(access.owner)
                )


def assign_averages(optimizer, variables=None, session=None):
    """Sets the variables to their averages for good, at the end of training. Slots stay as they are.

    Args:
        optimizer: the optimizer that `bind(module)` returned.
        variables: all variables that it trains, a list or {name: variable}, as for `everstep.capture`. Default: those
            that the optimizer knows, since its first step or `build`.
        session: as for `everstep.capture`.

    Raises:
        StateError: the optimizer keeps no averages or does not know its variables yet, rows are not up to date
            (`sparse="catch_up"`: call `optimizer.flush()` first), or this is inside of `everstep.averaged`.
        VariableError: `variables` has something that is not a variable, one twice, or only some parts of one.
        UnsupportedError: `optimizer` is not a bound optimizer.

    >>> import numpy, everstep
    >>> weights = numpy.zeros(1)
    >>> optimizer = everstep.moving_average(everstep.optimizers.SGD(1.0), 0.5).bind(numpy)
    >>> optimizer.apply_gradients([(-numpy.ones(1), weights)])
    >>> everstep.assign_averages(optimizer, [weights])
    >>> print(weights)
    [0.5]
    """
    optimizer = unwrapped(optimizer)
    with open_access(optimizer, _given_or_known(optimizer, variables), session) as access:
        if access.bound.is_averaged:
            raise StateError(
                "inside of everstep.averaged the variables already have averages, and the end of its block would undo "
                "this"
            )
        access.write(access.assignments(_averages(access)[0]))


def check_averages(optimizer):
    """Raises StateError unless the optimizer keeps averages."""
    definition = getattr(unwrapped(optimizer), "definition", None)
    if definition is None or not defines(definition, "evaluation_value"):
        name = repr(optimizer) if definition is None else definition._short()
        raise StateError(
            "{} keeps no averages; bind everstep.moving_average(definition) or another that does".format(name)
        )


def _given_or_known(optimizer, variables):
    """Returns the variables that were given, or those that the optimizer knows. Raises StateError if it knows none."""
    if variables is not None or not isinstance(optimizer, NativeOptimizer):
        return variables if variables is not None else ()
    known = optimizer._bound.adapter.trained()
    if not known:
        raise StateError("{} has made no step, so it does not know its variables yet: give them, such as "
                         "model.trainable_variables".format(optimizer._bound.owner))
    return known


class _Value(object):
    """The value of a whole variable, as `_Access.assignments` takes it."""

    is_shared = True  # an average can be the variable's own value, so that value must be copied

    def __init__(self, name, value):
        self.name, self.value, self.shape = name, value, value.shape

    def __call__(self):
        return self.value

    def part(self, place):
        return self.value[place.slices]


def _updates(access):
    counter = access.bound.adapter.own_variables().get("updates")
    return 0 if counter is None else int(access.read(counter))


def _averages(access):
    """Returns ([(whole variable, None, its average)], [(whole variable, None, its value)])."""
    bound = access.bound
    check_averages(bound.native)
    bound.adapter.carries.give(bound, access.variables)  # of a pickle or a file, before the first step
    updates = int(access.read_counters().get("updates", 0))
    hypers = {name: _current_hyper(access, name, updates) for name in flat(bound.definition, "hyper")}
    averages, values = [], []
    for whole, slots, value in access.read_wholes():
        values.append((whole, None, _Value(whole.name, value)))
        rule = bound.rule(whole.first)
        if not defines(rule, "evaluation_value"):  # a branch of a partition that does not average
            continue
        if fast_forward.ROWS in slots and np.any(slots[fast_forward.ROWS] != slots[fast_forward.UPDATES]):
            raise StateError(
                "{} has rows with steps that they have yet to take: call optimizer.flush() first".format(whole.name)
            )
        node = tree(rule)
        average = rule.evaluation_value(numpy_ops, value, Names(node, slots), Names(node, hypers))
        averages.append((whole, None, _Value(whole.name, np.asarray(average, value.dtype))))
    return averages, values


def _current_hyper(access, name, updates):
    value = access.hyper(name)
    return value(updates) if isinstance(value, Schedule) else value

