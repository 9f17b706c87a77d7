"""`everstep.current_rate`: reads the learning rate of the next update, on every API, ours and stock."""
from __future__ import absolute_import, division, print_function

import sys

import numpy as np

from everstep.compat.backends.on_tensorflow import with_names_of_tf1
from everstep.compat.checkpoints.stock_live import api_of, keras_session
from everstep.compat.checkpoints.unwrapping import unwrapped
from everstep.compat.targets.hypers import attribute, decays_of, is_function, rates_of_branches
from everstep.compat.targets.native import NativeOptimizer
from everstep.errors import EverstepError, StateError, UnsupportedError
from everstep.optimizers.contract import Definition, Schedule, is_tensor

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

# Attributes that hold a stock optimizer's rate, the first that there is: Keras 2.3 and older, tf.train, newer Keras.
_RATES = dict(get_updates=("lr", "learning_rate"), tf_train=("_lr", "_learning_rate"))


def current_rate(optimizer, session=None):
    # type: (Any, Any) -> Any
    """Returns the learning rate that the next update uses, as a float.

    It is the number behind `learning_rate`: a schedule's value at the present count of updates, or the present value
    of a callable or tensor. The `decay` of stock Keras and of `rate_decay` is included. What a rule makes of the rate
    (bias correction, trust ratios, the factors of `learning_rate_multipliers`) is not.

    Args:
        optimizer: an optimizer that `bind(module)` returned, or a stock optimizer of any API; also one inside of a
            LossScaleOptimizer.
        session: for graphs, the session to read from. Default: the default session, or Keras's. Schedules add nothing
            to the graph.

    Returns:
        A float. For `everstep.partition`, whose branches have a rate each, `{branch: float}`.

    Raises:
        StateError: the rate has no value here: there is no session, a placeholder has no value, or this runs inside of
            a function that is being traced.
        UnsupportedError: this is no optimizer, or one without a learning rate.

    >>> import numpy, everstep
    >>> optimizer = everstep.optimizers.SGD(everstep.PolynomialDecay(1.0, decay_steps=4, end=0.0)).bind(numpy)
    >>> weights = numpy.ones(1)
    >>> for _ in range(3):
    ...     optimizer.apply_gradients([(weights, weights)])
    >>> everstep.current_rate(optimizer)
    0.25
    """
    if session is not None:  # counters of tf.train are found by graph
        with session.graph.as_default():
            return _current_rate(unwrapped(optimizer), session)
    return _current_rate(unwrapped(optimizer), None)


def _current_rate(optimizer, session):
    if isinstance(optimizer, NativeOptimizer):
        bound = optimizer._bound
        rates = ["learning_rate"] if "learning_rate" in bound.hyper_declarations() else None
        branches = rates_of_branches(bound)
        if rates is None and not branches:
            raise UnsupportedError("{} has no learning rate".format(type(optimizer).__name__))
        values = []
        for name in rates or branches:
            values.append(_evaluate(optimizer, bound.adapter.read(name), session))
            for decay in decays_of(bound, name):
                decay = _evaluate(optimizer, bound.adapter.read(decay), session)
                values[-1] /= 1 + decay * updates_so_far(optimizer, session)
        return values[0] if rates else dict(zip([attribute(name.rpartition("/")[0]) for name in branches], values))
    api = api_of(optimizer)
    if api is None:
        bind = "; bind it first" if isinstance(optimizer, Definition) else ""
        raise UnsupportedError("current_rate takes an optimizer of a known API; got {!r}{}".format(optimizer, bind))
    if type(optimizer).__name__ == "TFOptimizer":  # of tf.train, in Keras
        wrapper = optimizer
        return _current_rate(wrapper.optimizer, session)
    return _rate_of_stock(optimizer, api.name, session)


def _rate_of_stock(optimizer, api, session):
    hypers = getattr(optimizer, "_hyper", None) or {}  # of an OptimizerV2
    names = _RATES.get(api, ("_learning_rate",))
    held = [getattr(optimizer, name) for name in names if getattr(optimizer, name, None) is not None]
    if not hypers and not held:
        raise UnsupportedError("{} has no learning rate that everstep can find".format(type(optimizer).__name__))
    rate = _evaluate(optimizer, hypers["learning_rate"] if hypers else held[0], session)
    decay = hypers.get("decay") if hypers else getattr(optimizer, "decay", None) if api == "get_updates" else None
    decay = 0.0 if decay is None else _evaluate(optimizer, decay, session)
    return rate / (1 + decay * updates_so_far(optimizer, session)) if decay else rate


def _evaluate(owner, value, session):
    """Returns what a hyper is now, as a float."""
    if isinstance(value, Schedule):
        return _of_schedule(owner, value, session)
    if callable(value) and hasattr(value, "get_config") and not is_tensor(value):  # a schedule of Keras
        return _of_native_schedule(owner, value, session)
    return _number(owner, value() if is_function(value) else value, session)


def _of_schedule(owner, schedule, session):
    count = updates_so_far(owner, session)
    counter = getattr(owner, "iterations", None)
    if not schedule._natives() or _graph_of(counter) is None:
        return schedule(count)
    tf = imported_tensorflow()
    with tf.Graph().as_default(), tf.Session().as_default():  # the user's graph may be finalized
        return schedule(count)


def _of_native_schedule(owner, schedule, session):
    counter = owner.iterations
    if _graph_of(counter) is None:
        on_v2 = hasattr(owner, "_hyper") and not hasattr(owner, "update_step")
        return _number(owner, schedule(imported_tensorflow().cast(counter, "float32") if on_v2 else counter), session)
    tf, count = imported_tensorflow(), float(_number(owner, counter, session))
    with tf.Graph().as_default(), tf.Session() as own:  # the user's graph may be finalized
        return _number(owner, schedule(tf.constant(count, "float32")), own)


def updates_so_far(owner, session):
    """Returns the number of updates so far."""
    if isinstance(owner, NativeOptimizer):
        adapter = owner._bound.adapter
        counter = adapter.own_variables().get("updates")
        counter = adapter.counted_elsewhere() if counter is None else counter
    else:
        counter = owner.iterations
    return 0.0 if counter is None else _number(owner, counter, session)


def _number(owner, value, session):
    """Returns the present value of a number, variable or tensor of any framework."""
    if hasattr(value, "path") and hasattr(value, "value"):
        value = value.value  # what Keras 3 keeps in its variables
    graph = _graph_of(value)
    try:
        if graph is not None:
            session = session or _default_session(owner, value)
            if session is None:
                raise StateError("the learning rate is a tensor of a graph: give session=")
            return float(session.run(value))
        value = value.detach().cpu() if hasattr(value, "detach") else value  # torch
        return float(value.numpy() if hasattr(value, "numpy") else np.asarray(value))
    except EverstepError:
        raise
    except Exception as error:  # each framework has its own
        raise StateError("{} has no learning rate with a value here: {}: {}".format(
            type(owner).__name__, type(error).__name__, error))


def _graph_of(value):
    """Returns the graph of a symbolic tensor or variable, or None."""
    if not is_tensor(value) or isinstance(value, (np.ndarray, np.generic)):
        return None
    return getattr(value, "graph", None)


def _default_session(owner, value):
    default = imported_tensorflow().get_default_session()
    if default is not None and default.graph is value.graph:
        return default
    is_variable = hasattr(value, "assign")
    return keras_session(owner, [value]) if is_variable or default is None else None


def imported_tensorflow():
    """Returns the TensorFlow that the program has imported, with the names of TF 1."""
    return with_names_of_tf1(sys.modules["tensorflow"])
