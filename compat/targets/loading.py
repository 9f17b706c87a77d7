"""What a framework's own loaders hand over. Where stock warns and goes on, so do we, with one `StateWarning`."""
from __future__ import absolute_import, division, print_function

import sys
import warnings

import numpy as np

from everstep.errors import StateWarning

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

_KERAS = ("keras", "tf_keras")
_SAVED_MODEL = "saved_model.load"  # the module of Keras that loads SavedModels
_REST = (
    "{} is as it was before. What fits by name arrives with\n"
    "    everstep.restore(optimizer, everstep.read_checkpoint(path), model.trainable_variables, partial=True)"
)
_OF_SAVED_MODEL = (
    "Keras gives no optimizer the state of a SavedModel, so {0} begins with new slots and a count of 0 (a schedule of "
    "the learning rate too). The state is in its files:\n"
    "    everstep.restore(optimizer, everstep.read_checkpoint(path), model.trainable_variables)"
)


def _callers():
    """Yields the names of the modules that called, from the nearest on, without everstep's own."""
    frame = sys._getframe(2)  # type: Any
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.split(".")[0] != "everstep":
            yield name
        frame = frame.f_back


def _is_keras(name):
    return not set(_KERAS).isdisjoint(name.split("."))


def is_loading():
    """Returns whether Keras itself called the method that is running, which only its loaders do, and not the user."""
    return _is_keras(next(_callers(), ""))


def warn(bound, error):
    """Warns that a state did not arrive, once for each reason. `error`: why."""
    text = "{}. {}".format(str(error).rstrip("."), _REST.format(bound.owner))
    if text not in bound.warned:
        bound.warned.add(text)
        warnings.warn(StateWarning(text), stacklevel=2)


def keep_from_restores(variable, read, nothing):
    """Makes restores of `tf.train.Checkpoint` leave the variable of a hyper as it is: stock has a number in its place.

    Checkpoints have its value all the same, for `everstep.read_checkpoint`.

    Args:
        variable: a variable of TensorFlow 2.11 or newer, or of Keras 3 on it.
        read: the function that returns its value.
        nothing: the function that makes an operation that does nothing.

    Returns:
        The variable.
    """
    variable._serialize_to_tensors = lambda: {"VARIABLE_VALUE": read()}
    variable._restore_from_tensors = lambda restored: nothing()
    return variable


def weights_fit(bound, own, weights, error, none_yet):
    """Returns whether weights have the shapes of the optimizer's own.

    If not, it warns where Keras's loader gives them, which goes on; else it raises the error.

    Args:
        own: `[(name, shape)]` of the optimizer's weights.
        none_yet: what to say if it has none.
    """
    shapes = [np.shape(weight) for weight in weights]
    if shapes == [tuple(shape) for _, shape in own]:
        return True
    names = ", ".join("{} {}".format(*each) for each in own)
    text = "{} has {} weights, {}; got {} of shapes {}{}".format(
        bound.owner, len(own), names or "none", len(shapes), shapes, "" if own else ". " + none_yet)
    if not is_loading():
        raise error(text)
    warn(bound, text)
    return False


def in_stock_order(bound, own, weights, stock_orders=()):
    """Returns weights in stock's order, if they fit in that of older versions of everstep alone.

    That was variable by variable. Weights that fit in stock's order, or in neither, come back as they are.

    Args:
        own: as of `weights_fit`.
        stock_orders: as of `Bound.stored_slots`.
    """
    shapes, variables = [tuple(shape) for _, shape in own], bound.adapter.trained()
    if len(weights) != len(own) or [np.shape(weight) for weight in weights] == shapes:
        return weights
    pairs = [(id(variable), name) for variable, name in bound.stored_slots(variables, stock_orders)]
    first = len(bound.adapter.own_variables())
    older = [(id(variable), name) for variable in variables for name in bound.slot_names(variable)]
    moved = list(weights)
    for place, pair in enumerate(pairs):
        moved[first + place] = weights[first + older.index(pair)]
    return moved if [np.shape(weight) for weight in moved] == shapes else weights


def remember_saved_model(bound):
    """Remembers that a SavedModel is loading the optimizer, for a warning at the first step."""
    for name in _callers():
        if not _is_keras(name):
            return
        if name.endswith(_SAVED_MODEL):
            bound.lost = _OF_SAVED_MODEL.format(bound.owner)
            return


def tell_what_is_lost(bound):
    """Warns at the first step of an optimizer whose state no loader brings, unless a checkpoint was restored since."""
    text, bound.lost = bound.lost, None
    with bound.backend.outside():
        counter = bound.adapter.counter("updates")
        has_arrived = bound.backend.eager and np.any(bound.backend.values([counter], None)[0])
    if not has_arrived:
        warnings.warn(StateWarning(text), stacklevel=2)
