"""Checks a call before it creates or writes anything, and forgets one that failed."""
from __future__ import absolute_import, division, print_function

import contextlib
import re

from everstep.compat.engine.fitting import is_known
from everstep.compat.engine.pairs import check_pairs, check_rows
from everstep.compat.engine.rehearsal import Rehearsal, rehearse
from everstep.compat.engine.step import skips
from everstep.compat.targets.asynchronous import check_workers
from everstep.compat.targets.hypers import refusal
from everstep.compat.targets.partitioned import is_lost_shard
from everstep.errors import GradientError, HyperTypeError, HyperValueError, UnsupportedError, VariableError
from everstep.optimizers.contract import defines, is_tensor
from everstep.optimizers.contract.checks import TEXT_OR_BYTES
from everstep.optimizers.contract.trees import tree, walk


def check_grads(bound, pairs):
    """Returns pairs whose gradients and rules were checked, before anything is created or written.

    Args:
        pairs: (gradient, variable) pairs, whose variables were checked. A gradient can be None.

    Raises:
        GradientError: no pair has a gradient, or one does not fit its variable.
        RuleError: the rule of a variable breaks its contract.
    """
    backend, variables = bound.backend, [variable for _, variable in pairs]
    natives = [(grad, bound.adapter.unwrap(variable)) for grad, variable in pairs]
    try:
        natives = check_pairs(backend, natives, bound.adapter.casts_gradients)
    except GradientError:
        _check_real(bound, natives)
        raise
    # other backends undo a step whose rule raises, and have no partitioned variables
    if "all_or_nothing" in backend.unsupported:
        trained = [(grad, variable) for (grad, _), variable in zip(natives, variables) if grad is not None]
        rehearse(bound, trained, _check_new)
    return [(grad, variable) for (grad, _), variable in zip(check_rows(backend, natives), variables)]


def _check_new(bound, variable):
    """Raises UnsupportedError for a part of a variable whose rule needs the whole, and for shared windows."""
    lost, needed = is_lost_shard(variable), "make it without a partitioner"
    needs_whole = bound.rule(variable).locality == "variable"
    if lost and not needs_whole and defines(bound.definition, "measure"):
        needs_whole, needed = Rehearsal(bound).has_sums(variable), "take TensorFlow 2.9, which can join the shards"
    if needs_whole and (lost or bound.adapter.place(variable) is not None):
        raise UnsupportedError(
            "{} needs {} whole, but it is partitioned; {}".format(
                bound.definition._short(), bound.adapter.variable_name(variable), needed
            )
        )
    check_workers(bound, [variable])


def _check_real(bound, pairs):
    for grad, variable in pairs:
        dtype = str(bound.backend.dtype(variable)) if grad is not None else ""
        if "complex" in dtype:
            raise refusal(bound, "complex variables", got=getattr(variable, "name", "an array"), dtype=dtype)


def check_connected(grads, variables):
    """Returns the gradients; raises GradientError if a variable has none, as `get_gradients` of stock does."""
    missing = [variable.name for grad, variable in zip(grads, variables) if grad is None]
    if missing:
        raise GradientError(
            "no gradient for {}: the loss does not depend on it, or an op on the way has no gradient (argmax, "
            "round, ...)".format(", ".join(missing))
        )
    return grads


def check_not_grown(bound, pairs):
    """Raises VariableError if a variable of unknown shape has another one than its slots: stock's slots do not grow."""
    shape_of = bound.backend.shape
    for grad, variable in pairs:
        known = bound.known(variable)
        if grad is None or is_known(known.record.shape):
            continue
        shape = shape_of(bound.backend.read(bound.adapter.unwrap(variable)))
        for name in known.slot_names:
            slot, declared = bound.adapter.find_slot(variable, name), bound.slot_declaration(variable, name)[1]
            held = None if slot is None else shape_of(bound.backend.read(bound.adapter.unwrap(slot)))
            if held is not None and declared == known.record.shape and held != shape:
                raise VariableError(
                    "{} is of shape {} now, and its slot {} of shape {}: slots do not grow with a variable. Train it "
                    "with a rule without slots, such as SGD(0.1), or bind a new optimizer".format(
                        known.record.name, shape, name, held
                    )
                )


@contextlib.contextmanager
def forgetting_failures(bound):
    """Returns a context that forgets what it learned of variables and calls if its body raises.

    Else `capture` would ask for the variables of a call that failed, and a definition that counts calls for the
    same ones again.
    """
    first_new, made, checked = len(bound.rules), bound.made, bound.has_checked
    calls = dict(bound.calls) if bound.calls or skips(bound.definition) else {}
    try:
        yield
    except BaseException:
        for key in [key for key, known in bound.rules.items() if known.record.index >= first_new]:
            del bound.rules[key]
        bound.seen.clear()
        bound.lowerings.checked = ()
        bound.calls.clear()
        bound.calls.update(calls)
        bound.made, bound.has_checked = made, checked
        raise


def check_repeat(bound, variables):
    """Raises UnsupportedError for a call that would break the definition.

    A definition that counts calls needs all variables in one call: a second group would count twice. In eager code a
    later call may have more or fewer variables, as where layers are frozen, if it shares one with the call before.
    """
    check_caller(bound)
    definition = bound.definition
    if not skips(definition):
        return
    graph = bound.graph_now()
    keys = [bound.variable_key(variable) for variable in variables]
    call = graph, bound.backend.replica()
    first = bound.calls.setdefault(call, keys)
    if graph is None and definition.stages == 1 and not set(first).isdisjoint(keys):
        bound.calls[call] = keys
    elif first != keys or graph is not None and first is not keys and definition.stages == 1:
        raise UnsupportedError(
            "{} counts its calls, so it takes all variables in one call, and one call in a graph; bind one "
            "definition for each group of variables".format(definition._short())
        )


def check_caller(bound):
    """Raises UnsupportedError if the caller left out what the definition needs: a scaled loss, more gradients."""
    definition = bound.definition
    if defines(definition, "loss_scale") and not bound.has_scaled:
        raise UnsupportedError(
            "{} divides gradients by the loss scale, but no loss was scaled. Take gradients of "
            "optimizer.scale_loss(loss). For fit of TF 2.0 to 2.3, or inside a LossScaleOptimizer, bind a "
            "definition without loss_scale".format(definition._short())
        )
    if bound.gradients is not None and not bound.has_called_gradients:
        raise UnsupportedError(
            "this {} was bound with gradients={!r}, but the caller computed gradients itself (as fit of TF 2.0 to "
            "2.3 does). Call minimize, or bind without gradients= and give your gradients to "
            "apply_gradients".format(bound.owner, bound.gradients)
        )
    check_stages(bound)


def check_dense(definition, why):
    """Raises UnsupportedError if a definition needs sparse gradients where all are dense; `why`: what makes them so."""
    for node in walk(tree(definition)):
        each = node.definition
        if each.sparse != "exact" and not each.zero_grad_is_noop and not each.dense_ok:
            raise UnsupportedError(
                'sparse="{}" of {} has no effect here: {}, so every row would be updated. Use sparse="exact", or '
                "dense_ok=True to accept that".format(each.sparse, each._short(), why)
            )


def check_stages(bound):
    """Raises UnsupportedError if a multistage rule would get only one gradient of each batch."""
    if bound.definition.stages > 1 and not bound.takes_stages:
        raise UnsupportedError(
            "{0} takes {1} gradients of each batch, one after the other, but this call has one. Give minimize a "
            "function without arguments that computes the loss (if this API has minimize), or call "
            "everstep.enable_multistage(model) before fit. In a loop of your own, call "
            "everstep.enable_multistage(optimizer) once, then take {1} gradients of each batch, each followed by a "
            "step".format(bound.definition._short(), bound.definition.stages)
        )


def failing_updates(bound, params):
    """Returns updates that fail when run, if a multistage rule would get one gradient per batch; else [].

    Building must not fail: Keras builds the train function when it loads a model.
    """
    try:
        check_stages(bound)
        return []
    except UnsupportedError as error:
        bound.adapter.make_state(params)
        return [bound.backend.failure(str(error))]


def check_operation_name(bound, name):
    """Raises HyperTypeError or HyperValueError for a name that no operation of a graph can have.

    TensorFlow 1.4 and 1.5 raise an error, too, but then stay in the graph: no `tf.reset_default_graph` works.
    """
    if not isinstance(name, TEXT_OR_BYTES + (type(None),)):
        raise HyperTypeError("name is a text; got {!r}".format(name))
    if not name or bound.backend.eager:
        return
    is_first = not bound.backend.tf.get_default_graph().get_name_scope()  # a scope's name can be any text of these
    if not re.match(r"[A-Za-z0-9_.\\/-]+$", str(name)) or is_first and str(name)[0] in "_\\/-":
        raise HyperValueError(
            "name must begin with a letter, a digit or a dot, and may contain only those, _, - and /; got {!r}".format(
                name)
        )


def check_graph_of_hypers(bound):
    """Raises HyperValueError if a hyper is a tensor of another graph than the one that a call builds in."""
    tf = bound.backend.tf
    graph = tf.get_default_graph()
    if bound.backend.eager or type(graph) is not tf.Graph:  # a function captures tensors from outside
        return
    for name in bound.hyper_declarations():
        value = bound.given(name)
        if is_tensor(value) and getattr(value, "graph", None) is not graph:
            raise HyperValueError(
                "{}.{} is a tensor of another graph than the one that trains; bind a definition for each graph, or "
                "give a callable that makes the tensor".format(bound.owner, name)
            )
