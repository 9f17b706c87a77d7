"""Finds the rule of an original for one set of options: hypers, slots, scalars and expressions, for any shape."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict, namedtuple

import numpy as np

from everstep.compat.port.algebra import evaluate, leaf_names, ops, substitute
from everstep.compat.port.arguments import as_hypers, explain, explained, is_number, is_whole, moved
from everstep.compat.port.reading import Reading
from everstep.compat.port.setting import Setting
from everstep.compat.port.shapes import SHAPES, check_coupling, check_shapes
from everstep.compat.port.spelling import declared_name
from everstep.errors import PortError

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

# A slot of a definition. start: "VARIABLE", a number, or the name of an argument. shape: None, "()" or "row".
Slot = namedtuple("Slot", "name start shape saved")
# A scalar. new: its next value, in leaves `scalars.NAME`.
Scalar = namedtuple("Scalar", "name start new")


class Rule(object):
    """The rule of an original for one set of options.

    Attributes:
        hypers: {name: default} in order.
        slots: {name: Slot}; scalars: [Scalar].
        var: the expression of the variable's new value; news: {slot: expression}.
        ranks: {rank: (var, news)} where the maths differs with the number of dimensions.
        hints: {expression: name of a local variable}.
        readings: [(what differs from the first, Reading, changed arguments)], for the comparison.
        notes: sentences for the report.
        of_ranks: {rank: outputs of a Reading} where they differ with the number of dimensions.
        unported: ranks of variables that are not ported.
        counts: names of whole numbers that are options: the original does not take fractions for them.
    """

    def __init__(self, kind, arguments, names=("theta",), shapes=SHAPES):
        self.kind, self.arguments, self.names, self.shapes = kind, arguments, names, shapes
        self.notes, self.readings, self.frozen, self.unported = [], [], set(), []  # type: Any
        self.numbers = [name for name in arguments if is_number(arguments[name])]
        self.given, self.counts, self.of_ranks = as_hypers(arguments, self.numbers), [], OrderedDict()
        self.axes, self.slot_names = "trailing", ()
        self.base = self.read("", arguments, check_state=True)
        self.slot_names = self.base.run().slots
        self.patches = self._explained()
        self.base.run(self.patches)
        for role in self.base.roles.values():
            if role.kind == "slot":
                self._slot_shape(role.name, tuple(int(size) for size in role.native.shape.as_list()))
        self._freeze_zeros()
        check_shapes(self)
        check_coupling(self)
        self.make()

    def read(self, what, arguments, shapes=None, check_state=False):
        """Returns a Reading, kept for the comparison. what: what differs from the first."""
        shapes = shapes or (self.shapes.base,)
        reading = Reading(self.kind, Setting(arguments, shapes, self.names, check_state=check_state), self.given,
                          self.slot_names)
        self.readings.append((what, reading, arguments))
        return reading

    def close(self):
        for _, reading, _ in self.readings:
            reading.close()

    # Hypers.

    def _explained(self):
        """Returns {place of a constant: expression of hypers}, from a graph with other arguments."""
        names = [name for name in self.numbers if moved(self.arguments, [name])[name] != self.arguments[name]]
        for name in [name for name in names if is_whole(self.arguments[name])]:
            if not self._is_fraction(name):
                self.counts.append(name)
                if self._moves([name]) is not True:
                    names.remove(name)
                    self.notes.append("{}={!r} is a count that shapes the rule, and stays as given".format(
                        name, self.arguments[name]))
        other, arguments = self._changed(names)
        if other is None:  # an argument changes the graph, not a number in it
            for name in list(names):
                reading, _ = self._changed([name])
                if reading is None:
                    names.remove(name)
                    self.frozen.add(name)
                    self.notes.append("{}={!r} shapes the rule, and stays as given".format(name, self.arguments[name]))
                else:
                    reading.close()
            other, arguments = self._changed(names)
        if other is None:
            self.notes.append("the numbers given shape the rule together, and stay as given")
            return {}
        self.readings.append(("altered hypers", other, arguments))
        patches, left = explained(
            self.base.machine.constants, other.machine.constants, self.given, as_hypers(arguments, self.numbers))
        for place in left:
            name, before = self.base.machine.constants[place]
            raise PortError(
                "the constant {} ({} in the graph) depends on the arguments in a way that is not recognised: "
                "it is {} with other ones. Port with these numbers as defaults of the class, in a function "
                "that takes no arguments, to keep them fixed".format(before, name, other.machine.constants[place][1]))
        return self._with_options(patches)

    def _is_fraction(self, name):
        """Returns whether a whole number is none for the original: it moves with it as with a fraction."""
        moves = self._moves([name])
        if moves is not None:
            return moves
        self.counts.append(name)  # it does not move with a fraction: it is a count, or not used
        try:
            return self._moves([name]) is None
        finally:
            self.counts.remove(name)

    def _moves(self, names):
        """Returns whether constants move with arguments in a way that is recognised; None if the graph stays."""
        other, arguments = self._changed(names)
        if other is None:
            return False
        found, left = explained(
            self.base.machine.constants, other.machine.constants, self.given, as_hypers(arguments, self.numbers))
        other.close()
        return not left if found else None

    def _changed(self, names):
        """Returns (the reading with some arguments changed, those arguments); None if the graph is another."""
        arguments = moved(self.arguments, names, self.counts)
        try:
            reading = Reading(self.kind, Setting(arguments, (self.shapes.base,), self.names), self.given).run()
        except PortError:
            return None, arguments
        if reading.machine.types != self.base.machine.types:
            reading.close()
            return None, arguments
        return reading, arguments

    def _freeze_zeros(self):
        """Keeps hypers of 0 that switch a part of the rule off, and tells which others it finds."""
        for name in self.numbers:
            hyper = "hyper." + declared_name(name)
            if self.arguments[name] != 0:
                continue
            used = hyper in leaf_names(*self.base.outputs.values())
            arguments = dict(self.arguments, **{name: 0.01})
            try:
                other = Reading(self.kind, Setting(arguments, (self.shapes.base,), self.names), self.given).run()
            except PortError:
                continue
            if used and self.is_same(other.outputs, self.base.outputs):
                self.readings.append(("{}=0.01".format(name), other, arguments))
                continue
            other.close()
            if used:
                self.frozen.add(name)
                table = {ops.leaf(hyper): ops.constant(0)}
                self.base.outputs = OrderedDict(
                    (output, substitute(value, table)) for output, value in self.base.outputs.items())
            if other.machine.types != self.base.machine.types or not (
                    used or self.is_same(other.outputs, self.base.outputs)):
                self.notes.append("{}=0 leaves out a part of the rule: give the number that you use".format(name))

    @staticmethod
    def is_same(one, two):
        """Returns whether two graphs compute the same. one, two: outputs of a Reading."""
        return set(one) == set(two) and all(one[name] is two[name] for name in one)

    # Other graphs.

    def of(self, reading):
        """Returns the outputs of a Reading, in which hypers of 0 that shape the rule are 0."""
        zero = ops.constant(0)
        table = {ops.leaf("hyper." + declared_name(name)): zero for name in self.frozen if not self.arguments[name]}
        return OrderedDict((name, substitute(value, table)) for name, value in reading.outputs.items())

    def patches_of(self, reading):
        """Returns the patches of another graph: by place if it has the same ops, else found anew."""
        if not hasattr(reading, "machine"):
            reading.run((), self.axes)
        if reading.machine.types == self.base.machine.types:
            return self.patches
        return self.explained_in(reading)

    def explained_in(self, reading):
        """Returns the patches of a graph of other ops than the first."""
        setting = Setting(self.altered_arguments(), reading.setting.shapes, reading.setting.names,
                          dtype=reading.setting.dtype)
        other = Reading(self.kind, setting, self.given)
        other.run()
        changed = as_hypers(other.setting.arguments, self.numbers)
        found, left = explained(reading.machine.constants, other.machine.constants, self.given, changed)
        other.close()
        return self._with_options({place: value for place, value in found.items() if place not in left})

    def _with_options(self, patches):
        """Returns patches in which counts are options, not hypers."""
        options = {ops.leaf("hyper." + name): ops.leaf("self." + name) for name in map(declared_name, self.counts)}
        return {place: substitute(value, options) for place, value in patches.items()}

    def altered_arguments(self):
        return next((arguments for what, _, arguments in self.readings if what == "altered hypers"), self.arguments)

    def traced(self, names, shape, dtype="float32"):
        """Returns a Reading of one variable of a name, shape and dtype, which has not run."""
        return Reading(self.kind, Setting(self.arguments, (shape,), names, dtype=dtype), self.given, self.slot_names)

    def outputs_of(self, reading, patches=None):
        return self.of(reading.run(self.patches_of(reading) if patches is None else patches, self.axes))

    # The parts of the definition.

    def make(self):
        """Makes the parts of the definition from the outputs."""
        for _, reading, _ in self.readings:
            reading.start()
        base = self.base
        table = self._numbers_table(base)
        outputs = OrderedDict((name, self._replaced(value, table)) for name, value in base.outputs.items())
        self._make_scalars(outputs)
        self.var = outputs["var"]
        if self.var is ops.leaf("var"):
            raise PortError("its graph never writes the variable")
        all_slots = [name[len("slots."):] for name in outputs if name.startswith("slots.")]
        self.news = OrderedDict((name, outputs["slots." + name]) for name in all_slots)
        self.ranks = OrderedDict()
        for rank, found in self.of_ranks.items():
            pairs = [(name, found.get("slots." + name, ops.leaf("slots." + name))) for name in all_slots]
            news = OrderedDict((name, self._replaced(new, table)) for name, new in pairs)
            self.ranks[rank] = self._replaced(found["var"], table), news
        forms = [(self.var, self.news)] + list(self.ranks.values())
        for name in all_slots:
            own = ops.leaf("slots." + name)
            still = all(news[name] is own for _, news in forms)
            read = any(own.leaf in leaf_names(var, *[new for slot, new in news.items() if slot != name])
                       for var, news in forms)
            if still and not read:
                for _, news in forms:
                    del news[name]
        self.slots = OrderedDict((name, self._slot(name)) for name in self.news)
        self.hints = {}
        for expression, name in base.machine.hints.items():
            self.hints.setdefault(self._replaced(expression, table), name)
        self._make_hypers(forms)

    def _replaced(self, expression, table):
        for _ in range(2):  # what replaces a leaf has leaves too
            expression = substitute(expression, table)
        return expression

    def _numbers_table(self, base):
        """Returns {leaf: what it is} of the optimizer's own numbers, such as powers. Collects the scalars."""
        table, self._left = OrderedDict(), []
        for name in [name[len("number."):] for name in base.outputs if name.startswith("number.")]:
            old, new = ops.leaf("number." + name), base.outputs["number." + name]
            start = float(base.initial["number", name])
            factors = new.args if new.op == "multiply" else ()
            factor = [each for each in factors if each is not old] if any(each is old for each in factors) else []
            if new is old:
                table[old] = ops.leaf("hyper." + name)
            elif factor and all(each.startswith(("hyper.", "number.", "self.")) for each in leaf_names(factor[0])):
                power = ops.leaf("t")
                if start == 1:
                    power = ops.leaf("t") - 1
                elif abs(evaluate(factor[0], self._present(base)) - start) > 1e-7:
                    self._left.append((name, old, new, start))
                    continue
                table[old] = factor[0] ** power
            elif new is old + 1 and start in (0.0, 1.0):
                table[old] = ops.leaf("t") if start else ops.leaf("t") - 1
            else:
                self._left.append((name, old, new, start))
        for name, old, _, _ in self._left:
            table[old] = ops.leaf("hyper." + name)
        return table

    def _present(self, base):
        values = {kind + name: number for name, number in self.given.items() for kind in ("hyper.", "self.")}
        for kind, name in base.initial:
            if kind in ("number", "hyper"):
                values[kind + "." + name] = float(base.initial[kind, name])
                values.setdefault("hyper." + name, float(base.initial[kind, name]))
        return values

    def _make_scalars(self, outputs):
        """Makes scalars of numbers that change. `update` reads the new one, or, if need be, the one before too."""
        self.scalars = []
        news = {}
        for name, _, _, _ in self._left:
            new = outputs["number." + name]
            if any(each in ("var", "grad") or each.startswith(("slots.", "other.")) for each in leaf_names(new)):
                raise PortError(
                    "{} is one number for all variables, made of their values. Write `measure` with everstep.total, "
                    "and read it in `advance`".format(name))
            news[name] = new
        for place in list(outputs):
            if not place.startswith("number."):
                for name, new in news.items():
                    outputs[place] = substitute(outputs[place], {new: ops.leaf("hyper.new " + name)})
        places = [place for place in outputs if not place.startswith("number.")]
        held = {}  # {number: the scalar that has its new value}
        for name in news:
            old = "hyper." + name
            needs_old = old in leaf_names(*[outputs[place] for place in places]) or old in leaf_names(
                *[news[other] for other in news if other != name])
            held[name] = "next_" + name if needs_old else name
        before = {ops.leaf("hyper." + name): ops.leaf("scalars." + held[name]) for name in news}
        for name, _, _, start in self._left:
            new = {ops.leaf("hyper.new " + name): ops.leaf("hyper." + held[name])}
            for place in places:
                outputs[place] = substitute(outputs[place], new)
            self.scalars.append(Scalar(held[name], start, substitute(news[name], before)))
            if held[name] != name:
                self.scalars.append(Scalar(name, start, ops.leaf("scalars." + held[name])))

    def _slot(self, name):
        """Returns the Slot for a name: its first value and its shape."""
        value = self.base.initial["slot", name]
        shape, expected = value.shape, self.base.setting.shapes[0]
        kind = self._slot_shape(name, shape)
        role = next(role for role in self.base.roles.values() if (role.kind, role.name) == ("slot", name))
        if shape == expected and np.array_equal(value, self.base.setting.start()[0]):
            return Slot(name, "VARIABLE", kind, role.saved)
        if not (value == value.flat[0]).all():
            raise PortError(
                "slot {} starts at random: its values are neither all the same nor the variable's. No two runs would "
                "agree".format(name))
        return Slot(name, self._first(name, float(value.flat[0])), kind, role.saved)

    def _slot_shape(self, name, shape):
        """Returns the shape of a slot as a declaration has it."""
        expected = self.base.setting.shapes[0]
        if shape == expected:
            return None
        if int(np.prod(shape)) == 1:
            return "()"
        if shape == expected[:1] + (1,) * (len(expected) - 1):
            return "row"
        raise PortError(
            "slot {} has the shape {} for a variable of shape {}; a definition's slot has the variable's, one number "
            "for each row, or one".format(name, shape, expected))

    def _first(self, name, value):
        """Returns the first number of a slot: a number, or the name of the argument that gives it."""
        for what, reading, arguments in self.readings:
            if what not in ("altered hypers",) and not what.startswith("shape"):
                continue
            other = reading.start().initial.get(("slot", name))
            other = value if other is None else float(other.flat[0])
            if other == value:
                continue
            changed = as_hypers(arguments, self.numbers)
            found = explain(value, other, self.given, changed) if what == "altered hypers" else None
            if found is None or found.leaf is None:
                raise PortError(
                    "slot {} starts at {}, and at {} in another run: at random, or in a way that is not "
                    "recognised".format(name, value, other))
            return found.leaf[len("hyper."):]
        return value

    def _make_hypers(self, forms):
        """Finds the hypers that the rule uses, in the order of the original's arguments."""
        leaves = leaf_names(*[scalar.new for scalar in self.scalars])
        leaves.update(*[leaf_names(var, *news.values()) for var, news in forms])
        scalars = {scalar.name for scalar in self.scalars}
        names = list(self.given) + [name for kind, name in self.base.initial if kind in ("hyper", "number")]
        values = self._present(self.base)
        self.starts = [slot.start for slot in self.slots.values() if isinstance(slot.start, str)]
        self.hypers = OrderedDict()
        self.options = OrderedDict((name, int(self.given[name])) for name in map(declared_name, self.counts)
                                   if "self." + name in leaves)
        for name in names:
            if "hyper." + name in leaves and name not in scalars and name not in self.hypers:
                self.hypers[name] = values["hyper." + name]
        both = [name for name in self.starts if name in self.hypers]
        if both:
            raise PortError("{} is both a hyper and the first value of a slot; keep two arguments".format(both[0]))

    def is_multiple_of(self, name):
        """Returns whether the change of the variable is a multiple of a hyper."""
        table = {ops.leaf("hyper." + name): ops.constant(0)}
        news = [self.var] + [var for var, _ in self.ranks.values()]
        return all(substitute(new, table) is ops.leaf("var") for new in news)

    def hypers_of(self, reading, arguments):
        """Returns the definition's arguments for a reading: its numbers as given, or as its variables hold them."""
        given = as_hypers(arguments, self.numbers)
        held = {name: float(value) for (kind, name), value in reading.initial.items() if kind in ("hyper", "number")}
        names = [name for name in list(self.hypers) + self.starts if name != "VARIABLE"]
        hypers = {name: held.get(name, given.get(name)) for name in names}
        return dict(hypers, **{name: int(given[name]) for name in self.options})
