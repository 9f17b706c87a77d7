"""Runs a program on the tensors of many variables at once, where to launch an operation costs more than to compute it.

Each operation is one call for all tensors, see compat/backends/torch_foreach.py. Hypers are numbers, read again when
they were set: to read them at each step would be to wait for the device.
"""
from __future__ import absolute_import, division, print_function

from everstep.compat.backends.on_numpy import NumpyBackend
from everstep.compat.engine.fitting import VAR
from everstep.compat.engine.variable_view import GRAD
from everstep.compat.rules.interpreter import Interpreter

MOST = 2**27  # elements that one call computes, so that temporaries take half a GiB each


_SUBTRACTED = {"negative": "add", "multiply": "subtract_product", "divide": "subtract_quotient"}


class _OnDevice(Exception):
    """A value is known on the device alone."""


class OnLists(object):
    """How a program runs, for all steps.

    Args:
        names: what its results are for: VAR first, then slots; or slots alone, for what is collected.
        assigned: whether the result for VAR is its new value, not a change to subtract.
    """

    def __init__(self, lists, program, names, assigned=False):
        self.lists, self.program, self.names, self.results = lists, program, names, program.results
        self.steps, self.inputs = program.steps(lists.fresh), program.inputs_by_place()
        slots = {name: place for name, place in zip(names, program.results) if name != VAR}
        direct = program.results_in_place(self.steps, slots, lists.fresh)
        self.spares = _in_place(self.steps, dict(self.inputs), direct, lists.fresh)
        self.change = None  # how the variable gets what is subtracted from it: (op, places of its other operands)
        if names[0] == VAR and not assigned:
            self.change = "subtract", self.results[:1]
            self._join_change(self.results[0])

    def _join_change(self, result):
        """Takes the last step of the change out, where it is subtracted from the variable as it is computed."""
        number = next((number for number, step in enumerate(self.steps) if step[0] == result), None)
        if number is None or self.steps[number][1] not in _SUBTRACTED or self.results.count(result) > 1:
            return
        operands, later = self.steps[number][2], self.steps[number + 1:]
        overwritten = [self.spares.get(step[0], step[4]) for step in later]
        if not any(result in step[2] for step in later) and not set(operands).intersection(overwritten):
            self.change = _SUBTRACTED[self.steps[number][1]], operands
            del self.steps[number]

    def leaves(self, view):
        """Returns `{place: number or tensor}` of what the program does not compute, in a view's step."""
        outside = [_number_or_native(self.lists, view, value) for value in self.program.outside]
        return self.program.leaves(lambda number, dtype: number, outside)

    def run(self, leaves, tensors, grads):
        """Computes the results and writes them.

        Args:
            leaves: what `leaves` returned.
            tensors: {VAR or slot: list of tensors}, which take the results.
            grads: the gradients, one for each variable.
        """
        foreach, natives, kept = self.lists.foreach, dict(leaves), self.change[1] if self.change else ()
        for place, name in self.inputs:
            natives[place] = grads if name == GRAD else tensors[name]
        for place, op, operands, options, spare, dead in self.steps:
            values = [natives[operand] for operand in operands]
            natives[place] = foreach.compute(op, values, options, natives.get(self.spares.get(place, spare)))
            for operand in dead:
                if operand not in kept:
                    del natives[operand]
        stored, news = [grads] + list(tensors.values()), []
        for name, place in zip(self.names, self.results):
            if name == VAR and self.change:
                continue
            value = natives[place]
            if value is not tensors[name]:  # what was computed in place of the old values is written
                news.append((name, foreach.copy(value) if any(value is each for each in stored) else value))
        if self.change:  # before the slots are written, which it may read
            op, operands = self.change
            foreach.compute(op, [tensors[VAR]] + [natives[operand] for operand in operands], {}, tensors[VAR])
        for name, value in news:
            foreach.write(tensors[name], value)


def slices(tensors):
    """Divides lists of tensors. Yields slices of at most `MOST` elements, or of one tensor."""
    first, room = 0, MOST
    for place, tensor in enumerate(tensors):
        if tensor.numel() > room and place > first:
            yield slice(first, place)
            first, room = place, MOST
        room -= tensor.numel()
    yield slice(first, len(tensors))


def _number_or_native(lists, view, value):
    """Returns a step-wide value: a number if it is made of numbers, else its tensor."""
    def read(name):
        kind, hyper = name
        number = lists.number(view.step.hyper(hyper), "learning_rate" in hyper) if kind == "hyper" else None
        if number is None:
            raise _OnDevice
        return number

    try:
        return float(Interpreter(NumpyBackend(), read).lower(value))
    except _OnDevice:
        return view.lower(value)


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
