"""Finds reads and writes of a variable that a TF 1 graph leaves unordered, and orders them."""
from __future__ import absolute_import, division, print_function

from everstep.compat.port.machine import in_order_of_need
from everstep.errors import PortError

_WRITERS = ("Assign", "Scatter", "Apply")
_THROUGH = ("Identity", "RefIdentity", "Switch", "RefSwitch", "Enter", "RefEnter")


def order_reads(fetches, graph, counters=(), after=False, adds=True):
    """Adds control edges between reads and writes that nothing orders. Returns [(op that reads, op that writes)].

    Args:
        counters: the ops of variables that count steps.
        after: whether these are read after they are written. All else is read before.
        adds: False to find the pairs alone.

    Raises:
        PortError: such a read is in a branch of tf.cond, where no edge can order it.
    """
    ops = in_order_of_need(fetches, graph)
    reads, writes, among, branches = {}, {}, set(ops), []
    for op in ops:
        if _in_branch(op):
            if op.type in ("ReadVariableOp", "Identity"):
                branches += [(op, _root(tensor)) for tensor in op.inputs if _is_variable(tensor)]
            continue
        for tensor in op.inputs:
            if not _is_variable(tensor):
                continue
            is_write = any(part in op.type for part in _WRITERS)
            if is_write or op.type not in ("Switch", "RefSwitch", "RefIdentity", "VarIsInitializedOp"):
                uses = [op] if is_write else _uses(op, tensor, among)
                (writes if is_write else reads).setdefault(_root(tensor), []).extend(uses)
    before, pairs = _waits(ops), []
    for root in sorted(set(reads).intersection(writes), key=lambda op: op.name):
        for write in writes[root]:
            for read in reads[root]:
                if read is write or read in before[write] or write in before[read]:
                    continue
                pairs.append((read, write))
                if adds:
                    first, second = (write, read) if after and root in counters else (read, write)
                    second._add_control_input(first)
                    before = _waits(in_order_of_need(fetches, graph))
    for read, root in branches:
        for write in writes.get(root, ()):
            if read not in before[write] and write not in before[read]:
                raise PortError(
                    "the original leaves open whether {}, in a branch of tf.cond, reads before or after {} writes, so "
                    "that two runs differ. Order them with tf.control_dependencies, or read the variable before "
                    "tf.cond".format(read.name, write.name))
    return pairs


def session_config(tf1):
    """Returns a config for a graph with new edges; None for the usual one.

    The arithmetic optimizer of TF 1.13 and 1.14 forgets the edges of reads:
    https://github.com/tensorflow/tensorflow/blob/v1.14.0/tensorflow/core/grappler/optimizers/arithmetic_optimizer.cc
    """
    from tensorflow.core.protobuf import rewriter_config_pb2

    rewrites = rewriter_config_pb2.RewriterConfig
    if not hasattr(rewrites, "ARITHMETIC_OPTIMIZATION_FIELD_NUMBER"):  # TF 1.4
        return None
    config = tf1.ConfigProto()
    config.graph_options.rewrite_options.arithmetic_optimization = rewrites.OFF
    return config


def root_of(read):
    """Returns the op of the variable that an op reads or writes."""
    return next((_root(tensor) for tensor in read.inputs if _is_variable(tensor)), None)


def _waits(ops):
    """Returns {op: all ops that it waits for}."""
    before = {}
    for op in ops:
        direct = set(tensor.op for tensor in op.inputs).union(op.control_inputs)
        before[op] = direct.union(*[before[each] for each in direct])
    return before


def _uses(op, tensor, among):
    """Returns the ops that read a variable's value through `op`: an Identity of a ref variable is no copy."""
    if op.type != "Identity" or "resource" in str(tensor.dtype):
        return [op]
    users = [user for user in op.outputs[0].consumers() if user in among]
    return [op] + [each for user in users for each in _uses(user, op.outputs[0], among)]


def _is_variable(tensor):
    return "resource" in str(tensor.dtype) or getattr(tensor.dtype, "_is_ref_dtype", False)


def _root(tensor):
    while tensor.op.inputs and (tensor.op.type in _THROUGH or any(part in tensor.op.type for part in _WRITERS)):
        tensor = tensor.op.inputs[0]
    return tensor.op


def _in_branch(op):
    context = op._get_control_flow_context()
    return context is not None and type(context).__name__ == "CondContext"
