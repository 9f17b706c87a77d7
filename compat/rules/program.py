"""Programs: the maths of a traced rule, free of references to a step, so that variables can share it."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

from everstep.compat.rules.interpreter import computed
from everstep.compat.rules.operations import LINALG, MIXING

_LEAVES = ("input", "outside", "constant")
_TERMS = {  # {(op, op of an operand): the op of both}
    ("add", "multiply"): "add_product",
    ("subtract", "multiply"): "subtract_product",
    ("add", "divide"): "add_quotient",
}


class Program(object):
    """A rule's maths as a flat list of operations on named inputs, free of references to a step.

    Two variables have equal `key()`s if their rules do the same to the same inputs. Their results then differ only by
    their inputs and by the values in `outside`.

    Args:
        values: the values to compute, in order.
        inputs: `{leaf: input name}`. Other leaves, and step-wide values, are computed outside.

    Attributes:
        nodes: a tuple of ("input", name), ("outside", place), ("constant", number, dtype) or (op, places, options). A
            place is an index into `nodes`; after "outside", into `outside`.
        inputs: the names of the inputs that the program reads.
        results: the places of the values to compute; `dtypes` are their dtypes.
        outside: the values that are computed before the program runs, branches of `values_if` among them.
    """

    def __init__(self, values, inputs):
        self.outside, self._places, nodes = [], {}, []
        for value in values:
            self._add(value, inputs, nodes)
        self.nodes = tuple(nodes)
        self.inputs = {node[1] for node in nodes if node[0] == "input"}
        self.results = tuple(self._places[value] for value in values)
        self.dtypes = tuple(value.dtype for value in values)
        del self._places

    def _add(self, value, inputs, nodes):
        if value in self._places:
            return
        if value in inputs:
            node = ("input", inputs[value])  # type: tuple
        elif value.op == "constant":
            node = ("constant", value.options["number"], value.dtype)
        elif value.step_wide or value.leaf is not None or value.op == "chosen":
            node = ("outside", len(self.outside))
            self.outside.append(value)
        else:
            for arg in value.args:
                self._add(arg, inputs, nodes)
            places = tuple(self._places[arg] for arg in value.args)
            node = (value.op, places, tuple(sorted(value.options.items())))
        self._places[value] = len(nodes)
        nodes.append(node)

    def key(self):
        return self.nodes, self.results, self.dtypes

    def better_without_xla(self):
        """Returns why XLA compiles it only if that is forced; "" if it may."""
        ops = {node[0] for node in self.nodes}
        if "pow" in ops:
            return "powers take longer in XLA"
        # Its eigenvectors are off by 1e-4 in TF 2.1, where TensorFlow's own are off by 1e-7.
        return "XLA factors matrices less accurately" if ops.intersection(LINALG) else ""

    def is_elementwise(self, sums=False):
        """Returns whether each element of a result depends only on the same element of the inputs.

        Args:
            sums: whether it may also depend on sums and means of all elements, so that the shape does not count.
        """
        for node in self.nodes:
            whole = sums and node[0] in ("sum", "mean") and not any(value for _, value in node[2])
            if (node[0] in MIXING or node[0] == "reshape") and not whole:
                return False
        return all(value.step_wide for value in self.outside)

    def in_place_updates(self, names):
        """Finds slot updates that can be done in place: `old + x` or `(1 - share) * old + share * x * ...`.

        Args:
            names: the slots that the results after the first are for, in order.

        Returns:
            `{name: (place of the result, places of the factors x, place of the share)}`. The share is None for
            `old + x`. Leaves out slots of another form, those whose old value or whose added value is used twice, and
            all if a branch may read them: nothing orders that before the update.
        """
        updates = {}  # type: dict[str, tuple]
        if any(value.op == "chosen" for value in self.outside):
            return updates
        used = self._used()
        for name, result in zip(names, self.results[1:]):
            op, args = self.nodes[result][:2]
            for old, added in (args, args[::-1]) if op == "add" else ():
                parts = self._parts(name, old, added)
                if parts and used.count(self._place_of(name)) == used.count(added) == 1:
                    updates[name] = (result,) + parts
        return updates

    def scaled_change(self):
        """Splits a first result of the form `scalar * x` or `scalar * x / y`.

        Returns:
            (place of the scalar, place of x, place of y or None); None for another form, or if the product or the
            result is used more than once.
        """
        op, args = self.nodes[self.results[0]][:2]
        product, divisor = args if op == "divide" else (self.results[0], None)
        used = self._used()
        if self.nodes[product][0] != "multiply" or used.count(product) > 1 or used.count(self.results[0]) > 1:
            return None
        for scalar, other in (self.nodes[product][1], self.nodes[product][1][::-1]):
            node = self.nodes[scalar]
            if node[0] == "constant" or node[0] == "outside" and self.outside[node[1]].step_wide:
                return scalar, other, divisor
        return None

    def steps(self, fresh):
        """Plans a run that reads and writes little memory.

        A sum with a product or quotient that nothing else uses is one step. No value is kept longer than it is needed.

        Args:
            fresh: the ops with results of an operand's dtype, in memory that no operand has.

        Returns:
            A list of (place, op, places of operands, options, spare, dead), in order. op: an op, or "add_product",
            "subtract_product" or "add_quotient" of three operands. spare: the place of an operand that the result may
            overwrite, or None. dead: places that no later step needs.
        """
        operations, inner = OrderedDict(), set()
        for place, node in enumerate(self.nodes):
            if node[0] not in _LEAVES:
                operations[place] = self._combined(node, inner)
        last = {operand: place for place, node in operations.items() if place not in inner for operand in node[1]}
        steps, overwritable = [], set()
        for place, (op, operands, options) in operations.items():
            if place in inner:
                continue
            dead = [operand for operand in set(operands) if last[operand] == place and operand not in self.results]
            if op in fresh:
                spare = next((operand for operand in dead if operand in overwritable), None)
                overwritable.add(place)
            else:
                spare = None
                overwritable.difference_update(operands)  # the result may be an operand itself
            steps.append((place, op, operands, dict(options), spare, dead))
        return steps

    def results_in_place(self, steps, slots, fresh):
        """Returns `{place: slot}` of the results that may be written over the slot's old value when they are computed.

        Args:
            steps, fresh: of `steps`.
            slots: {slot: place of the result that it is for}.
        """
        order = {step[0]: number for number, step in enumerate(steps) if step[1] in fresh}
        places = {}
        for slot, place in slots.items():
            old = self._place_of(slot) if slot in self.inputs else None
            is_last = place in order and all(old not in step[2] for step in steps[order[place] + 1 :])
            if is_last and self.results.count(place) == 1 and old not in self.results:
                places[place] = slot
        return places

    def _combined(self, node, inner):
        """Returns a sum or difference as one node with its product or quotient, whose place it adds to `inner`."""
        op, operands = node[:2]
        orders = {"add": (operands, operands[::-1]), "subtract": (operands,)}.get(op, ())
        for rest, term in orders:
            name = _TERMS.get((op, self.nodes[term][0]))
            if name and self._used().count(term) == 1:
                inner.add(term)
                return name, (rest,) + self.nodes[term][1], ()
        return node

    def leaves(self, constant, outside):
        """Returns `{place: value}` of the constants and of the values in `outside`, natives of `self.outside`.

        Args:
            constant: a function of (number, dtype).
        """
        return {
            place: outside[node[1]] if node[0] == "outside" else constant(*node[1:])
            for place, node in enumerate(self.nodes)
            if node[0] in ("outside", "constant")
        }

    def inputs_by_place(self):
        """Returns [(place, name)] of the inputs."""
        return [(place, node[1]) for place, node in enumerate(self.nodes) if node[0] == "input"]

    def _place_of(self, name):
        return next(place for place, node in enumerate(self.nodes) if node[:2] == ("input", name))

    def _parts(self, name, old, added):
        """Returns (factors, share) of a slot's `old + added`; None if it cannot be done in place."""
        if self.nodes[old] == ("input", name):
            return (added,), None
        if self.nodes[old][0] != "multiply":
            return None
        kept = [place for place in self.nodes[old][1] if self.nodes[place] != ("input", name)]
        return self._split_share(added, kept[0]) if len(kept) == 1 else None

    def _used(self):
        """Returns a list of places, each as often as an operation or a result uses it."""
        operations = [node for node in self.nodes if node[0] not in _LEAVES]
        return [place for _, places, _ in operations for place in places] + list(self.results)

    def _split_share(self, place, kept):
        """Returns (other factors, share) of a product that has the factor `share = 1 - kept`; else None."""
        factors, waiting = [], [place]
        while waiting:
            node = self.nodes[waiting[0]]
            if node[0] == "multiply":
                waiting[:1] = node[1]
            else:
                factors.append(waiting.pop(0))
        for share in factors:
            others = tuple(factor for factor in factors if factor != share)
            if others and self._add_to_one(self.nodes[share], self.nodes[kept]):
                return others, share
        return None

    def _add_to_one(self, share, kept):
        if share[0] == kept[0] == "constant":
            return abs(share[1] + kept[1] - 1) < 1e-9
        share = self._outside_of(share)
        if share is None or share.op != "subtract" or share.args[0].options.get("number") != 1:
            return False
        left = share.args[1]
        return left.options.get("number") == kept[1] if kept[0] == "constant" else left is self._outside_of(kept)

    def _outside_of(self, node):
        return self.outside[node[1]] if node[0] == "outside" else None

    def run(self, backend, inputs, outside, overrides=None):
        """Returns the native results.

        Args:
            inputs: `{input name: native value}`.
            outside: the native values of `self.outside`.
            overrides: `{place: function}`. The function returns the native value of that place; it takes a function
                that returns the native value of any other.
        """
        natives, overrides = {}, overrides or {}

        def native(place):
            if place not in natives:
                natives[place] = overrides[place](native) if place in overrides else compute(*self.nodes[place])
            return natives[place]

        def compute(op, operand, options=None):
            if op == "input":
                return inputs[operand]
            if op == "outside":
                return outside[operand]
            if op == "constant":
                return backend.constant(operand, options)
            return computed(backend, op, [native(place) for place in operand], dict(options))

        return [native(place) for place in self.results]
