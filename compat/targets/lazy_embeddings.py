"""Implements `everstep.lazy_embeddings`: rows are brought up to date before the forward pass reads them.

It changes objects of the user, on request alone: the `call` of embedding layers, or operations of a TF 1 graph.
"""
from __future__ import absolute_import, division, print_function

from everstep.compat.engine.fast_forward import UPDATES, catches_up
from everstep.compat.targets.native import NativeOptimizer
from everstep.errors import NotBoundError, UnsupportedError, VariableError
from everstep.optimizers.contract.trees import tree, walk

FLUSH = "everstep/flush"  # the graph collection of the operations that bring all rows up to date
_READS = ("Gather", "GatherV2", "ResourceGather")


def lazy_embeddings(trained):
    """Brings the rows of embeddings up to date before a forward pass reads them, for `sparse="catch_up"`.

    With it, training equals the dense run, and costs what the rows of a batch cost. Call `optimizer.flush()` before you
    save only the weights, export the model, or read a table yourself. Checkpoints of model and optimizer need no flush:
    they store which steps each row has missed.

    For example, with Keras:

        model.compile(everstep.optimizers.Adam(1e-3, sparse="catch_up").bind(keras), "mse")
        everstep.lazy_embeddings(model)
        model.fit(x, y)
        model.optimizer.flush()

    Args:
        trained: a compiled and built Keras model of TF 2 or Keras 3 on TensorFlow, whose optimizer is everstep's. Its
            `Embedding` layers then call `optimizer.catch_up` first, also in `evaluate` and `predict`. Or, in a TF 1
            graph and after `minimize`, the optimizer: all look-ups that the newest step depends on wait for
            `catch_up`. Call this once in each graph. The collection "everstep/flush" of the graph then has the
            operation that brings all rows up to date.

    Returns:
        A list of the names of the layers, or of the look-ups.

    Raises:
        NotBoundError: the optimizer is not everstep's.
        UnsupportedError: the optimizer has no sparse="catch_up", no row can miss a step here, or there are several
            replicas.
        VariableError: there is no embedding, or the model is not built.
    """
    optimizer = getattr(trained, "optimizer", trained)
    if not isinstance(optimizer, NativeOptimizer):
        raise NotBoundError(
            "lazy_embeddings takes a model compiled with an everstep optimizer, or such an optimizer; got "
            "{!r}".format(optimizer)
        )
    if not any(node.definition.sparse == "catch_up" for node in walk(tree(optimizer.definition))):
        raise UnsupportedError(
            '{} changes no row later: give it sparse="catch_up", or leave out lazy_embeddings'.format(
                optimizer.definition._short()
            )
        )
    backend = optimizer._bound.backend
    if not backend.moves_rows or backend.replicas() > 1:
        raise UnsupportedError("lazy_embeddings needs TensorFlow, and one replica")
    names = _in_graph(optimizer) if trained is optimizer else _in_model(trained, optimizer)
    if not names:
        raise VariableError("lazy_embeddings found no look-up of a variable whose rows can miss steps")
    return names


def _in_model(model, optimizer):
    """Replaces the `call` of the model's embedding layers. Returns their names."""
    if not optimizer._bound.backend.eager:
        raise UnsupportedError(
            "in a graph of TF 1, lazy_embeddings takes the optimizer of tf.train, after minimize; Keras builds its "
            "train function too late"
        )
    if not model.built:
        raise VariableError("lazy_embeddings needs the variables of the model: build it, or call it once, before")
    optimizer._bound.adapter.make_state(list(model.trainable_variables))
    layers = [layer for layer in _layers(model) if hasattr(layer, "embeddings") and hasattr(layer, "input_dim")]
    layers = [layer for layer in layers if layer.trainable and _misses(optimizer, layer.embeddings)]
    for layer in layers:
        call = getattr(layer.call, "everstep_replaced", layer.call)
        layer.call = _caught_up_call(optimizer, layer, call)
    return [layer.name for layer in layers]


def _layers(model):
    """Returns a model's layers, those inside of layers included."""
    flatten = getattr(model, "_flatten_layers", None)
    return list(flatten()) if flatten else [layer for layer in model.submodules if hasattr(layer, "call")]


def _misses(optimizer, variable):
    bound = optimizer._bound
    return catches_up(bound.backend.moves_rows, bound.rule(variable))


def _caught_up_call(optimizer, layer, call):
    backend = optimizer._bound.backend

    def caught_up_call(inputs, *args, **kwargs):
        rows = getattr(inputs, "flat_values", inputs)  # of a ragged tensor
        optimizer.catch_up(layer.embeddings, backend.cast(backend.tensor(rows), "int64"))
        return call(inputs, *args, **kwargs)

    replacing = backend.plain(caught_up_call)
    replacing.everstep_replaced = call
    return replacing


def _in_graph(optimizer):
    """Lets the look-ups of the newest train operation wait for their rows. Returns the look-ups' names."""
    backend = optimizer._bound.backend
    if backend.eager:
        raise UnsupportedError("lazy_embeddings takes an optimizer only in a graph of TF 1; give the compiled model")
    tf = backend.tf
    trained = [variable for variable in optimizer._bound.variables_with_slots() if _misses(optimizer, variable)]
    lookups = []
    for operation in _forward_pass(optimizer, trained):
        for variable in trained if operation.type in _READS else ():
            if operation.inputs[0].name in _names(variable):
                lookups.append((variable, operation))
    done = []
    for variable, operation in lookups:
        # One after the other: rows that two look-ups share would move twice.
        with backend.after(done):
            done = [optimizer.catch_up(variable, operation.inputs[1])]
        operation._add_control_inputs(done)
    if lookups:
        tf.add_to_collection(FLUSH, optimizer.flush())
    return [operation.name for _, operation in lookups]


def _forward_pass(optimizer, variables):
    """Returns the operations that the optimizer's newest step depends on, without its own, in the graph's order."""
    tf = optimizer._bound.backend.tf
    names = {name for variable in variables for name in _names(optimizer._bound.slot(variable, UPDATES))}
    graph = tf.get_default_graph()
    for step in reversed(tf.get_collection(tf.GraphKeys.TRAIN_OP)):
        before, own = _operations_before(step), getattr(step, "name", "").split(":")[0] + "/"
        if any(tensor.name in names for each in before if each.name.startswith(own) for tensor in each.inputs):
            return [each for each in graph.get_operations() if each in before and not each.name.startswith(own)]
    raise VariableError("lazy_embeddings needs the step in this graph: call minimize or apply_gradients before")


def _operations_before(step):
    """Returns a set of an operation and all that it depends on."""
    before, waiting = set(), [getattr(step, "op", step)]
    while waiting:
        operation = waiting.pop()
        if operation not in before:
            before.add(operation)
            waiting.extend([tensor.op for tensor in operation.inputs] + list(operation.control_inputs))
    return before


def _names(variable):
    """Returns the names of the tensors by which operations read a variable without a copy."""
    if hasattr(variable, "handle"):
        return {variable.handle.name}
    reference = variable.op.outputs[0]
    return {reference.name}.union(op.outputs[0].name for op in reference.consumers() if op.type == "Identity")
