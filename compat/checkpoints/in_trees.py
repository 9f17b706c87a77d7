"""The state of a transform of optax, which the caller holds: opened for what reads and writes an optimizer's own."""
from __future__ import absolute_import, division, print_function

import contextlib

from everstep.compat.targets.optax_transform import transform_of
from everstep.compat.targets.optax_trees import TransformState, Tree, name_of
from everstep.errors import StateError, UnsupportedError, VariableError


@contextlib.contextmanager
def opened(transform, opt_state, params):
    """Yields the `Tree` of the parameters; in the block, the transform's variables have the values of the state.

    Args:
        transform: the `Transform`.
        opt_state: its state, or one of `optax.chain`, `multi_transform` or such that has it in it.
        params: the tree that it trains. Leaves that the state has no slots for are left out.

    Raises:
        StateError: there is no state of a transform in it, or several.
        VariableError: there are no parameters.
    """
    if params is None:
        raise VariableError("a transform of optax holds no state: give the transform, its state and the parameters")
    pure, state = transform._bound.adapter, _state_in(opt_state)
    try:
        tree = Tree(pure, params)
        values = tree.given(state)
    except (ValueError, StateError):  # of optax.masked and the like, which has fewer leaves
        state, params = _aligned(state, params)
        tree = Tree(pure, params)
        values = tree.given(state)
    with pure.held.holding(values):
        yield tree


@contextlib.contextmanager
def started(transform, params):
    """Yields the `Tree` of the parameters; in the block, the transform's variables have the values of `init`."""
    if params is None or isinstance(params, TransformState):
        raise VariableError("restore(transform, state, params) takes the parameters, and returns the optimizer's state")
    pure = transform._bound.adapter
    tree = Tree(pure, params)
    with pure.held.holding(tree.given(pure.init(params))):
        yield tree


def scale_loss(transform, opt_state, loss):
    """Returns the loss to differentiate: multiplied by the loss scale that the state of a transform of optax holds.

    `everstep.loss_scale` divides the gradients by the same scale. Other optimizers have a method of this name.

        def scaled_loss(params, opt_state, batch):
            return everstep.scale_loss(transform, opt_state, loss(params, batch))

    Args:
        transform: what `bind(optax)` returned.
        opt_state: its state, or one of `optax.chain` or such that has it in it.
        loss: an array, a number, or a function that returns one. Can be traced.

    Returns:
        The scaled loss: a function of the same arguments if `loss` is one. `loss` itself without a loss scale.

    Raises:
        UnsupportedError: `transform` is something else.
        StateError: there is no state of a transform in `opt_state`, or several.
    """
    native = transform_of(transform)
    if native is None:
        raise UnsupportedError(
            "everstep.scale_loss takes a transform of optax, its state and a loss; got {!r}. An optimizer has its own "
            "method, optimizer.scale_loss(loss)".format(transform))
    if callable(loss):
        return lambda *args, **kwargs: scale_loss(transform, opt_state, loss(*args, **kwargs))
    pure = native._bound.adapter
    with pure.held.holding(pure.given(_state_in(opt_state))):
        return pure.scale_loss(loss)


def _state_in(opt_state):
    import jax

    is_one = lambda each: isinstance(each, TransformState)  # noqa: E731
    states = [each for each in jax.tree_util.tree_leaves(opt_state, is_leaf=is_one) if is_one(each)]
    if len(states) != 1:
        raise StateError(
            "needed is an optax state with one state of an everstep transform in it; this has {}. Give the part that "
            "belongs to the transform, such as opt_state[1] of a chain".format(len(states) or "none"))
    return states[0]


def _aligned(state, params):
    """Returns a state and parameters of one structure, with None where the state has no slot of a leaf."""
    import jax

    leaves_of, mapped = jax.tree_util.tree_flatten_with_path, jax.tree_util.tree_map_with_path
    found = {role: {name_of(path): leaf for path, leaf in leaves_of(tree)[0]} for role, tree in state.slots.items()}
    names = set().union(*found.values())
    slots = {role: mapped(lambda path, leaf, role=role: found[role].get(name_of(path)), params) for role in found}
    return state._replace(slots=slots), mapped(lambda path, leaf: leaf if name_of(path) in names else None, params)
