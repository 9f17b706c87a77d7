"""`everstep.capture`: copies the state of an optimizer."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

from everstep.compat.checkpoints import in_trees, stock_live
from everstep.compat.checkpoints.live import open_access
from everstep.compat.checkpoints.state import State, finished
from everstep.compat.checkpoints.unwrapping import scale_variables, unwrapped
from everstep.compat.engine.step import counters
from everstep.compat.stock.entry import own_count
from everstep.compat.stock.of_torch import bound_as
from everstep.compat.targets.native import NativeOptimizer
from everstep.compat.targets.optax_transform import transform_of
from everstep.errors import StateError
from everstep.optimizers.contract.trees import scalar_starts


def capture(optimizer=None, variables=None, session=None, weights=False, path=None, updates=None):
    """Returns a copy of the state of an optimizer, bound or stock.

        >>> import numpy as np
        >>> from everstep import capture, optimizers
        >>> weights = np.ones(2)
        >>> optimizer = optimizers.SGD(0.5, momentum=0.5).bind(np)
        >>> _ = optimizer.apply_gradients([(np.ones(2), weights)])
        >>> state = capture(optimizer, {"w": weights})
        >>> state.updates, state.slots["w"]["velocity"].tolist()
        (1, [-0.5, -0.5])

    Args:
        optimizer: always needed: the optimizer that `bind(module)` returned. If it has not trained yet, you get the
            state that it will start with. Or a stock optimizer that has trained: its state is of the definition that
            `everstep.from_native` makes of it. In a LossScaleOptimizer or a wrapper of Horovod, the optimizer inside is
            captured; the loss scale is `state.loss_scale`.
        variables: always needed: all variables that it trains: an iterable, {name: variable} or pairs of these, such as
            `named_parameters()` of torch. In an iterable, variables keep their own names, without `:0`; equal names get
            `#0`, `#1`, ... in order. Arrays have no names and are called "0", "1", ... by position. A partitioned
            variable, or the list of its parts, counts as one variable. For a stock optimizer of standalone Keras 2,
            give the list in the order in which it trains them, as `model.trainable_weights`. For a transform of optax,
            give its state, or that of a chain that contains it.
        session: the session that holds the values of variables in a graph. Default: the default session, or Keras's.
            For a transform of optax, give the tree of the parameters here: `capture(transform, opt_state, params)`.
            Their names are the paths in the tree, such as "Dense_0/kernel".
        weights: True also copies the values of the variables. Default False.
        path: a `.npz` file to write, as `capture(...).save(path)` does. A bound optimizer's arrays are read and written
            one at a time, so that a state of 2 GB takes no 2 GB of memory. Default None: the state is in memory.
        updates: int, at least 0: the number of steps of a stock optimizer that does not count them, such as SGD of
            torch. Default None: 0, or 1 if it has momentum.

    Returns:
        A `State` of NumPy arrays; with a path, the `State` in the file, whose arrays are read on demand.
        If a hyper differs between parameter groups of torch, the state has the definition's, and a `StateWarning` says
        so.

    Raises:
        StateError: the optimizer has slots of other variables, or something that no state can hold; a value could not
            be read, or the file not be written; `updates` of an optimizer that counts by itself.
        VariableError: `variables` has something that is not a variable, one twice, or only some parts of one.
        UnsupportedError: `optimizer` is neither a bound nor a stock optimizer, or no definition computes what it does.
    """
    if updates is not None and (isinstance(updates, (bool, float)) or not hasattr(updates, "__index__") or updates < 0):
        raise StateError("updates must be an integer, at least 0; got {!r}".format(updates))
    transform = transform_of(optimizer)
    if transform is not None:
        _check_counts_not(optimizer, updates)
        with in_trees.opened(transform, variables, session) as tree:
            return _captured(tree.layout.native, tree.named(), None, weights, path, {})
    scale, optimizer = scale_variables(optimizer), unwrapped(optimizer)
    if hasattr(optimizer, "param_groups") and not isinstance(optimizer, NativeOptimizer):  # a stock optimizer of torch
        return _captured(bound_as(optimizer, updates), variables, session, weights, path, scale)
    if not isinstance(optimizer, NativeOptimizer) and stock_live.api_of(optimizer) is not None:
        return stock_live.capture_stock(optimizer, variables, session, weights, scale, path, updates)
    _check_counts_not(optimizer, updates)
    return _captured(optimizer, variables, session, weights, path, scale)


def _check_counts_not(optimizer, updates):
    if updates is not None:
        raise StateError(own_count(type(optimizer).__name__))


def _captured(optimizer, variables, session, weights, path, scale):
    """Returns the `State` of a bound optimizer. `scale`: {name: variable} of a LossScaleOptimizer around it."""
    with open_access(optimizer, variables, session) as access:
        bound, adapter = access.bound, access.bound.adapter
        # hands over the state that a pickle or a file left, if no step was made since
        adapter.carries.give(bound, access.variables)
        optimizer_values = access.read_counters()
        counts = {name: int(optimizer_values.get(name, 0)) for name in counters(bound.definition)}
        outside = adapter.counted_elsewhere()
        if outside is not None:
            counts["updates"] = int(access.read(outside))
        scalars = OrderedDict(
            (name, float(optimizer_values.get(name, start)))
            for name, start in scalar_starts(bound.definition).items()
        )
        slots, values = access.handles(weights)
        updates = counts["updates"] // adapter.calls_per_update()
        steps, pending = counts.get("steps"), counts.get("pending", 0)
        state = State(access.config(), updates, steps, pending, scalars, slots, values, access.ordered,
                      {name: float(access.read(variable)) for name, variable in scale.items()} or None)
        return finished(state, path)
