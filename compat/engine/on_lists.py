"""Runs a program on lists of tensors: those of many variables at once, or one vector, a block of values.

Each operation is one call for all tensors, see compat/backends/torch_foreach.py. All variables at once, where to launch
an operation costs more than to compute it; blocks, which fit into a processor's cache, elsewhere.
"""
from __future__ import absolute_import, division, print_function

from everstep.compat.engine.fitting import VAR
from everstep.compat.engine.variable_view import GRAD

FEW = 4  # tensors; computing so few one by one takes less time than joining them
MOST = 2**27  # elements in one call, so that each temporary takes at most half a GiB


_SUBTRACTED = {"negative": "add", "multiply": "subtract_product", "divide": "subtract_quotient"}


class OnLists(object):
    """How a program runs, for all steps.

    Args:
        names: what its results are for: VAR first, then slots; or slots alone, for what is collected.
        assigned: whether the result for VAR is its new value, not a change to subtract.
    """

    def __init__(self, lists, program, names, assigned=False):
        self.lists, self.program, self.names, self.results = lists, program, names, program.results
        self.steps, self.inputs = program.steps(lists.fresh), program.inputs_by_place()
        slots = {name: place for name, place in zip(names, program.results) if name not in (VAR, GRAD)}
        direct = program.results_in_place(self.steps, slots, lists.fresh)
        self.spares = _in_place(self.steps, dict(self.inputs), direct, lists.fresh)
        self.has_sums = not program.is_elementwise()
        self.subtracts = names[:1] == [VAR] and not assigned
        self.last = self._last(self.results[0]) if self.subtracts else None  # the step that computes the change

    def _last(self, result):
        """Takes the last step of the change out, where it is subtracted from the variable as it is computed."""
        number = next((number for number, step in enumerate(self.steps) if step[0] == result), None)
        if number is None or self.steps[number][1] not in _SUBTRACTED or self.results.count(result) > 1:
            return None
        operands, later = self.steps[number][2], self.steps[number + 1:]
        overwritten = [self.spares.get(step[0], step[4]) for step in later]
        if any(result in step[2] for step in later) or set(operands).intersection(overwritten):
            return None
        return self.steps.pop(number)

    def compute(self, outside, tensors, grads):
        """Returns {place: value} of what is still to write.

        Args:
            outside: the numbers or tensors of the program's values outside.
            tensors: {VAR or slot: list of tensors}.
            grads: the gradients, one for each variable.
        """
        natives = self.program.leaves(lambda number, dtype: number, outside)
        kept = self.last[2] if self.last else ()
        for place, name in self.inputs:
            natives[place] = grads if name == GRAD else tensors[name]
        for step in self.steps:
            natives[step[0]] = self._step(step, natives, grads[0])
            for operand in step[5]:
                if operand not in kept:
                    del natives[operand]
        return natives

    def _step(self, step, natives, like):
        place, op, operands, options, spare, _ = step
        values = [natives[operand] for operand in operands]
        spare = natives.get(self.spares.get(place, spare))
        if self.has_sums and not (isinstance(spare, list) and spare[0].dim()):
            spare = None  # the memory of a sum is too small for its product with a vector
        return self.lists.foreach.compute(op, values, options, spare, like)

    def run(self, outside, tensors, grads):
        """Computes the results and writes them into the tensors. The arguments are those of `compute`."""
        foreach, natives = self.lists.foreach, self.compute(outside, tensors, grads)
        stored, news = [grads] + list(tensors.values()), []
        for name, place in zip(self.names, self.results):
            if name == VAR and self.subtracts:
                continue
            value = natives[place]
            if value is not tensors[name]:  # what was computed in place of the old values is written
                news.append((name, foreach.copy(value) if any(value is each for each in stored) else value))
        if self.subtracts:  # before the slots are written, which it may read
            op = _SUBTRACTED[self.last[1]] if self.last else "subtract"
            operands = self.last[2] if self.last else self.results[:1]
            foreach.compute(op, [tensors[VAR]] + [natives[operand] for operand in operands], {}, tensors[VAR])
        for name, value in news:
            foreach.write(tensors[name], value)

    def run_block(self, outside, parts, grads):
        """Runs on parts of variables: one by one, or joined to one vector."""
        if len(grads) <= FEW:
            self.run(outside, parts, grads)
            return
        for name, values in self.joined(outside, parts, grads):
            if name == VAR and self.subtracts:
                self.lists.foreach.compute("subtract", [parts[VAR], values], {}, parts[VAR])
            else:
                self.lists.foreach.write(parts[name], values)

    def joined(self, outside, parts, grads):
        """Computes on the joined values of parts. Returns [(name, result for each part)]."""
        lists, names = self.lists, {name for _, name in self.inputs if name != GRAD}
        natives = self.compute(outside, {name: [lists.join(parts[name])] for name in names}, [lists.join(grads)])
        if self.last:
            natives[self.last[0]] = self._step(self.last, natives, grads[0])
        return [(name, lists.split(grads, natives[place])) for name, place in zip(self.names, self.results)]


def slices(tensors):
    """Divides lists of tensors. Yields slices of at most `MOST` elements, or of one tensor."""
    first, room = 0, MOST
    for place, tensor in enumerate(tensors):
        if tensor.numel() > room and place > first:
            yield slice(first, place)
            first, room = place, MOST
        room -= tensor.numel()
    yield slice(first, len(tensors))


def _in_place(steps, inputs, direct, fresh):
    """Returns {place: place of the operand that its result takes the memory of}, so that slots are updated in place.

    That is, where a slot's new value is computed of its old one, or of one operation on it, and nothing else needs
    these.

    Args:
        steps, fresh: of `Program.steps`.
        inputs: {place: name}.
        direct: {place of a result: slot}, see `Program.results_in_place`.
    """
    by_place, spares = {step[0]: step for step in steps}, {}
    for place, slot in direct.items():
        operands, dead = by_place[place][2], by_place[place][5]
        for operand in operands:
            if operand not in dead:
                continue
            if inputs.get(operand) == slot:
                spares[place] = operand
            elif operand in by_place and by_place[operand][1] in fresh:
                olds = [old for old in by_place[operand][5] if inputs.get(old) == slot]
                if olds:
                    spares[operand], spares[place] = olds[0], operand
    return spares
