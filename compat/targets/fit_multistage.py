"""Implements `everstep.enable_multistage`: `fit` for rules that take several gradients of each batch.

This is the only place that changes an object of the user, and only on request. It replaces the model's train step; for
models without one, the train function.
"""
from __future__ import absolute_import, division, print_function

import sys

from everstep.compat.targets.native import NativeOptimizer
from everstep.errors import NotBoundError, UnsupportedError

# {method to replace: attribute that caches the train function built from it}. TF 2.2 and newer and Keras 3 have a
# `train_step`. Before, each model builds its train function; in TF 1.11 to 1.13 `fit` has a second one.
_STEP = {"train_step": "train_function"}
_MAKERS = {"_make_train_function": "train_function", "_make_fit_function": "_fit_function"}


def enable_multistage(model):
    """Makes `fit` compute several gradients of each batch, as many as the model's optimizer needs for an update.

    `fit` reports the loss and metrics of the first pass over a batch, at the variables before the update. Only that
    pass updates the moving averages of batch normalization, apart from a hidden count that Keras 2.0 to 2.2 keep for
    them. On Keras 3 all passes over a batch use the same dropout masks. Elsewhere each pass draws new masks, so the
    gradients belong to different functions.

    Args:
        model: a compiled model of tf.keras, tf_keras, keras 2.x or Keras 3, with an optimizer bound to a definition
            such as `everstep.multistage(...)`. For a training loop of your own, give the optimizer instead: then
            compute `optimizer.definition.stages` gradients of each batch, and take a step after each.

    Raises:
        NotBoundError: the optimizer is not bound to a definition.
        UnsupportedError: the definition takes only one gradient for each update; or the model's train function cannot
            compute more (`fit` of TF 2.0 and 2.1 without `compile(..., experimental_run_tf_function=False)`).

    >>> import numpy, everstep
    >>> optimizer = everstep.multistage(everstep.optimizers.SGD(0.1), "heun").bind(numpy)
    >>> everstep.enable_multistage(optimizer)
    >>> optimizer.definition.stages    # gradients of each batch that your loop takes
    2
    """
    model, optimizer = _parts(model)
    if optimizer.definition.stages == 1:
        raise UnsupportedError("{} takes one gradient for each update".format(optimizer.definition._short()))
    if model is not None:
        methods = [name for name in (_STEP if hasattr(model, "train_step") else _MAKERS) if hasattr(model, name)]
        if not methods or optimizer._bound.backend.eager and getattr(model, "_experimental_run_tf_function", False):
            raise UnsupportedError(
                "fit of {!r} cannot compute more than one gradient of a batch. On TF 2.0 and 2.1 compile the model "
                "with experimental_run_tf_function=False, or write the loop yourself and call "
                "everstep.enable_multistage(optimizer)".format(model)
            )
        disable_multistage(model)
        for name in methods:
            staged = _staged_step(model) if name in _STEP else _staged_maker(model, name)
            staged.everstep_replaced = (vars(model).get(name),)
            _put(model, name, staged)
    optimizer._bound.takes_stages = True


def disable_multistage(model):
    """Undoes `enable_multistage`. Does nothing if it was not called.

    Args:
        model: the model, or the optimizer, that was given to `enable_multistage`.

    Raises:
        NotBoundError: the optimizer is not bound to a definition.

    >>> import numpy, everstep
    >>> optimizer = everstep.multistage(everstep.optimizers.SGD(0.1), "heun").bind(numpy)
    >>> everstep.enable_multistage(optimizer)
    >>> everstep.disable_multistage(optimizer)
    """
    model, optimizer = _parts(model)
    optimizer._bound.takes_stages = False
    for name in list(_STEP) + list(_MAKERS) if model is not None else ():
        replaced = getattr(vars(model).get(name), "everstep_replaced", None)
        if replaced:
            _put(model, name, *replaced)


def _parts(model):
    """Returns (the model that `fit` trains, its optimizer), or (None, optimizer) for an optimizer."""
    optimizer = model if isinstance(model, NativeOptimizer) else getattr(model, "optimizer", None)
    if not isinstance(optimizer, NativeOptimizer):
        raise NotBoundError(
            "give an optimizer that is bound to a definition, or a model that is compiled with one; got "
            "{!r}{}".format(model, "" if optimizer is None else ", with {!r}".format(optimizer))
        )
    if optimizer is model:
        return None, optimizer
    inner = getattr(model, "model", None)  # a Sequential of Keras 2.0 and 2.1 trains this model
    return (inner if hasattr(inner, "_make_train_function") else model), optimizer


def _put(model, name, member):
    """Sets an instance attribute of a model that hides the class's method; None deletes it."""
    if member is None:
        del vars(model)[name]
    else:
        vars(model)[name] = member
    setattr(model, dict(_STEP, **_MAKERS)[name], None)  # drops the train function built from the former method


def _stages(model):
    return getattr(getattr(model.optimizer, "definition", None), "stages", 1)


def _staged_step(model):
    train_step = model.train_step
    if _is_stateless(model):

        def staged(state, data):
            trainable, others, optimizer, metrics = state
            logs, (trainable, new_others, optimizer, metrics) = train_step(state, data)
            for _ in range(_stages(model) - 1):
                _, again = train_step((trainable, others, optimizer, metrics), data)
                trainable, optimizer = again[0], again[2]
            return logs, (trainable, new_others, optimizer, metrics)

    else:

        def staged(data):
            before = _values(model, model.non_trainable_variables)
            logs = train_step(data)
            after = _values(model, model.non_trainable_variables + _metric_variables(model))
            for _ in range(_stages(model) - 1):
                _write(model, before)
                train_step(data)
            _write(model, after)
            return logs

    return staged


def _is_stateless(model):
    """Returns True if the train step takes and returns the state: Keras 3 on JAX."""
    return model.optimizer._bound.backend.name == "jax"


def _metric_variables(model):
    return [variable for metric in model.metrics for variable in metric.variables]


def _values(model, variables):
    bound = model.optimizer._bound
    natives = [bound.adapter.unwrap(variable) for variable in variables]
    return [(native, bound.backend.copy(bound.backend.read(native), native)) for native in natives]


def _write(model, values):
    for variable, value in values:
        model.optimizer._bound.backend.write(variable, value)


def _staged_maker(model, name):
    make, newest = getattr(model, name), []

    def staged_maker():
        make()
        function = getattr(model, _MAKERS[name])
        if not newest or function is not newest[0]:
            newest[:] = [_staged_function(model, function)]
            setattr(model, _MAKERS[name], newest[0])

    return staged_maker


def _staged_function(model, train_function):
    owner = next(base for base in type(model).__mro__ if "_make_train_function" in vars(base))
    keras = sys.modules[owner.__module__].K

    def staged(inputs):
        outputs = train_function(inputs)
        weights = list(model.non_trainable_weights) + _metric_weights(model)
        values = keras.batch_get_value(weights)
        for _ in range(_stages(model) - 1):
            train_function(inputs)
        keras.batch_set_value(list(zip(weights, values)))
        return outputs

    return staged


def _metric_weights(model):
    of_version = getattr(model, "_get_training_eval_metrics", None)  # from TF 1.14 and Keras 2.3 on
    metrics = of_version() if of_version else getattr(model, "stateful_metric_functions", ())
    return [weight for metric in metrics for weight in metric.weights]
