"""Runs a TensorFlow graph on expressions in place of numbers: what the variables hold after one step."""
from __future__ import absolute_import, division, print_function

import collections
import heapq

import numpy as np

from everstep.compat.port.algebra import ops
from everstep.compat.rules.expressions import Value
from everstep.errors import PortError, RuleError


class Reference(object):
    """A variable: its handle, or the buffer of a variable of TF 1. key: its name."""

    def __init__(self, key):
        self.key = key


class Array(object):
    """A constant array, such as a shape."""

    def __init__(self, value):
        self.value = np.asarray(value)


class Unknown(object):
    """A value that no op of an update may need. why: what it is."""

    def __init__(self, why):
        self.why = why


class Machine(object):
    """Runs the ops of a graph in order.

    Args:
        graph: the graph, which has the functions that ops call.
        leaf_of: a function of a variable's key that returns its expression before the step.
        in_order: True if the ops run in the order of their creation, as in `tf.function`.
        rules: {type of an op: function (machine, op) -> values of its outputs}.
        patches: {number of a constant in the order of ops: expression that it stands for}.
        names: {name of a tensor: name of the local variable that holds it}.

    Attributes:
        written: the keys of written variables, in order.
        constants: the float constants as found, [(name of the op, value)].
        hints: {expression: name of a local variable}.
        types: the types of all ops in order.
    """

    def __init__(self, graph, leaf_of, in_order, rules, patches=(), names=(), axes="trailing"):
        self.graph, self.leaf_of, self.in_order, self.rules = graph, leaf_of, in_order, rules
        self.patches, self.names, self.axes = dict(patches), dict(names), axes
        self.frames = [{}]  # {name of a tensor: value}, of the graph and of each function that is running
        self.writes = collections.OrderedDict()  # {key: [(bit, expression, guards)]}
        self.overlays = []  # {key: expression}, what a running function wrote
        self.bits = {}  # {op: the bits of all that it waits for, and its own}
        self.own = {}  # {op: its bit}
        self.current = None
        self.written, self.constants, self.types = [], [], []
        self.hints, self.guards = {}, []

    # Variables.

    def read(self, key):
        """Returns what a variable holds when the current op runs."""
        for overlay in reversed(self.overlays):
            if key in overlay:
                return overlay[key]
        writes = self.writes.get(key, ())
        if self.in_order:
            return writes[-1][1] if writes else self.leaf_of(key)
        if self.current is not None:
            for bit, value, _ in reversed(writes):
                if self.bits[self.current] & bit:
                    return value
        return self.leaf_of(key)

    def write(self, key, value):
        value = self.expression(value)
        if self.guards:
            before = self._otherwise(key)
            for predicate in self.guards:
                value = ops.where(predicate, value, before)
        if key not in self.written:
            self.written.append(key)
        if self.overlays:
            self.overlays[-1][key] = value
        else:
            self.writes.setdefault(key, []).append((self.own.get(self.current, 0), value, self.guards))

    def _otherwise(self, key):
        """Returns what a variable holds if the current op's branch is not taken: the other branch may write it."""
        if self.overlays or self.in_order:
            return self.read(key)
        negated = [~predicate for predicate in self.guards]
        for bit, value, guards in reversed(self.writes.get(key, ())):
            if self.bits[self.current] & bit or any(each is guard for each in negated for guard in guards):
                return value
        return self.leaf_of(key)

    def last(self, key):
        """Returns what a variable holds after the step."""
        writes = self.writes.get(key)
        return writes[-1][1] if writes else self.leaf_of(key)

    # Values.

    def get(self, tensor):
        name = tensor.name
        if name not in self.frames[-1]:
            raise PortError("the value of {} is not known".format(name))
        return self.frames[-1][name]

    def value(self, tensor):
        """Returns a tensor's value, read if it is a variable."""
        value = self.get(tensor)
        return self.read(value.key) if isinstance(value, Reference) else value

    def expression(self, value):
        """Returns a value as an expression, or raises PortError."""
        if isinstance(value, Value):
            return value
        if isinstance(value, Array) and value.value.size and (value.value == value.value.flat[0]).all():
            return ops.constant(value.value.flat[0].item())
        if isinstance(value, Unknown):
            raise PortError("it needs {}".format(value.why))
        raise PortError("it needs an array of numbers that differ from element to element")

    def key(self, tensor):
        value = self.get(tensor)
        if not isinstance(value, Reference):
            raise PortError("{} is no variable".format(tensor.name))
        return value.key

    def note_constant(self, op, value):
        """Returns the expression of a float constant: what it stands for, if that is known."""
        place = len(self.constants)
        self.constants.append((op.name, value))
        return self.patches.get(place, ops.constant(value))

    # Ops.

    def run(self, ops):
        for op in ops:
            if not self.overlays:
                self.place(op)
            self.types.append(op.type)
            if op.outputs and all(output.name in self.frames[-1] for output in op.outputs):
                continue
            self.guards = self.guards_of(op)
            rule = self.rules.get(op.type)
            if rule is None:
                raise PortError(op_refusal(op))
            try:
                values = rule(self, op)
            except (PortError, RuleError) as error:
                if getattr(error, "op", None):
                    raise
                error = PortError("op {} ({}): {}".format(op.type, op.name, error))
                error.op = op.type
                raise error
            for output, value in zip(op.outputs, values or ()):
                self.frames[-1][output.name] = value
                hint = self.names.get(output.name)
                if hint and isinstance(value, Value) and value.args:
                    self.hints.setdefault(value, hint)

    def place(self, op):
        own = 1 << len(self.own)
        bits = own
        for before in [tensor.op for tensor in op.inputs] + list(op.control_inputs):
            bits |= self.bits.get(before, 0)
        self.bits[op], self.own[op], self.current = bits, own, op

    def guards_of(self, op):
        """Returns the predicates of the branches of `tf.cond` of TF 1 that an op stands in."""
        guards, context = [], getattr(op, "_get_control_flow_context", lambda: None)()
        while context is not None:
            if type(context).__name__ == "WhileContext":
                raise PortError("a loop (tf.while_loop) cannot be written down; unroll it")
            if type(context).__name__ == "CondContext" and context.pred.name in self.frames[-1]:
                predicate = self.expression(self.value(context.pred))
                guards.append(predicate if context.branch else ~predicate)
            context = context.outer_context
        return guards

    def call(self, name, arguments):
        """Runs a function of the graph. Returns (values of its outputs, {key: what it wrote})."""
        function = self.graph._get_function(name)
        graph = getattr(function, "graph", None)
        if graph is None:
            raise PortError("it calls the function {}, whose graph TensorFlow does not give".format(name))
        frame = {tensor.name: value for tensor, value in zip(graph.inputs, arguments)}
        outer, self.graph = self.graph, graph
        self.frames.append(frame)
        self.overlays.append(collections.OrderedDict())
        guards, current = self.guards, self.current
        try:
            self.run(graph.get_operations())
            results = [self.get(tensor) for tensor in graph.outputs]
        finally:
            self.graph, self.guards, self.current = outer, guards, current
            self.frames.pop()
            written = self.overlays.pop()
        return results, written


def op_refusal(op):
    """Returns what to say of an op that no definition has."""
    kind = op.type
    if kind in ("While", "StatelessWhile", "Enter", "NextIteration", "Exit", "LoopCond"):
        return "op {} ({}): a loop (tf.while_loop) cannot be written down; unroll it".format(kind, op.name)
    if kind.startswith(("Random", "Stateless", "StatefulStandard", "Multinomial", "TruncatedNormal")):
        return "op {} ({}): it draws random numbers, which no two runs share; everstep has {}".format(
            kind, op.name, "everstep.gradient_noise for noise on gradients")
    return "op {} ({}): definitions have no such op".format(kind, op.name)


def in_order_of_need(fetches, graph):
    """Returns the ops that fetches need: each after those that it waits for, the oldest first."""
    needed, waiting = set(), [getattr(fetch, "op", fetch) for fetch in fetches]
    while waiting:
        op = waiting.pop()
        if op not in needed:
            needed.add(op)
            waiting.extend(tensor.op for tensor in op.inputs)
            waiting.extend(op.control_inputs)
    number = {op: place for place, op in enumerate(graph.get_operations())}
    left, users, ready, ordered = {}, collections.defaultdict(list), [], []
    for op in needed:
        before = set(tensor.op for tensor in op.inputs).union(op.control_inputs)
        left[op] = len(before)
        for each in before:
            users[each].append(op)
        if not before:
            heapq.heappush(ready, (number[op], op.name, op))
    while ready:
        op = heapq.heappop(ready)[2]
        ordered.append(op)
        for user in users[op]:
            left[user] -= 1
            if not left[user]:
                heapq.heappush(ready, (number[user], user.name, user))
    if len(ordered) < len(needed):
        raise PortError("a loop (tf.while_loop) cannot be written down; unroll it")
    return ordered
