"""The arguments of a rule in one step: the values of one variable or of some of its rows."""
from __future__ import absolute_import, division, print_function

import contextlib
import functools
from collections import OrderedDict, namedtuple

from everstep.compat.engine.fast_forward import Missed, catches_up
from everstep.compat.engine.fitting import VAR, agree, fitted
from everstep.compat.engine.rows import LAST_WINDOW, Rows
from everstep.compat.rules.interpreter import Interpreter
from everstep.compat.rules.program import Program
from everstep.optimizers.contract import Names, compute_dtype, defines, flat, has_refresh, tree
from everstep.optimizers.contract.configured import once

GRAD = ("grad",)  # the gradient's name among a program's inputs, as VAR


# The leaves of a rule for one shape: values and shapes. slots: {name: leaf}. by_rows: the slots that rows are read of.
Leaves = namedtuple("Leaves", "grad var slots by_rows row place")


class VariableView(object):
    """One variable in one step: the values that its rule gets, of the whole variable or of some rows.

    Args:
        step: the `Step`.
        variable: the variable.
        read_grad: returns the gradient, in the compute dtype.
        find_rows: returns the rows that the view is on, each once; None for the whole variable.
    """

    def __init__(self, step, variable, read_grad, find_rows=None):
        self.step, self.variable, self.backend = step, variable, step.backend
        self.record, self.rule = step.host.record(variable), step.host.rule(variable)
        self.owner = type(self.rule).__name__
        self.about = self.owner, self.record.name  # for errors
        self.dtype = compute_dtype(self.record.dtype)
        self.scope = step.scope(self.dtype)
        self.ops = self.scope.tracer
        self.interpreter = Interpreter(step.backend, self._read, self.scope.interpreter)
        self.lower, self.hoist = self.interpreter.lower, self.interpreter.hoist
        self.on = Rows(step, variable, self.record, find_rows)
        self.by_rows = self.on.are_some
        self.is_sparse = self.by_rows  # whether the gradient was sparse, also if the view is on the whole variable
        self.changed_rows = None  # a function that returns the only rows of the variable that may change, or None
        self.declared = flat(self.rule, "slot")
        self.missed, self._caught_up = None, None  # the rows' `Missed` updates; {name: value} after them
        # A slot's shape may be a function of the variable, its name for one.
        own = once(self.rule, "own shapes", lambda: any(callable(each.shape) for _, each in self.declared.values()))
        like = id(self.record) if own else self.record.shape
        leaves = self.ops.once(("leaves", id(self.rule), like, self.by_rows), self._leaves)
        self.grad, self.var, self.slot_values = leaves.grad, leaves.var, leaves.slots
        self._gathered, self._numbers = leaves.by_rows, (leaves.row, leaves.place)
        self._read_grad, self._collected = read_grad, {}

    def _leaves(self):
        """Returns the `Leaves` of the rule for the variable's shape."""
        shape, ops, rule = self.record.shape, self.ops, self.rule
        slots, by_rows = OrderedDict(), set() if shape == () else {LAST_WINDOW}
        for name, (owner, declared) in self.declared.items():
            expected = declared.shape_for(self.record, owner)
            # A slot is read and written by rows if its first dimension is the variable's, or both are unknown.
            if expected is None or shape is None:
                is_by_rows = expected is None
            else:
                is_by_rows = bool(expected) and expected[0] == shape[0]
            if is_by_rows:
                by_rows.add(name)
            slots[name] = ops.leaf(("slot", name), shape=self._shape(expected) if is_by_rows else expected)
        row, place = (ops.leaf((name, None), dtype="int32") for name in ("row_number", "place_in_row"))
        leaf = functools.partial(ops.leaf, shape=self._shape(shape))
        ops.once(("alive", id(rule)), lambda: rule)  # keeps the ids their own
        ops.once(("alive", id(self.record)), lambda: self.record)
        return Leaves(leaf(("grad", None)), leaf(("var", None)), slots, frozenset(by_rows), row, place)

    @classmethod
    def of_gradient(cls, step, variable, grad):
        """Returns the view for a gradient. Sums equal rows of a sparse gradient."""
        backend = step.backend
        dtype = compute_dtype(backend.dtype(variable))
        slices = backend.slices(grad)
        if slices is None:
            return cls(step, variable, lambda: backend.cast(backend.tensor(grad), dtype))
        summed, rows = backend.sum_duplicates(backend.cast(slices[0], dtype), slices[1])
        return cls(step, variable, lambda: summed, lambda: rows)

    def for_update(self, collected):
        """Returns the view that `update` gets: on the gradient's rows, the window's rows, or the whole variable.

        Args:
            collected: `{name: native value}` of slots that `collect` returned and that are not written yet.
        """
        view = self._for_update(collected)
        if view.by_rows and catches_up(self.backend.moves_rows, self.rule):
            view._catch_up()
        return view

    def _for_update(self, collected):
        if not self.by_rows:
            for name, native in collected.items():
                if name in self.slot_values:
                    self._collected[name] = native
                    self._replace(name, "collected")
            return self
        if self.row_rule and not defines(self.rule, "collect"):
            return self
        return self._on(self.on.of_window)

    def _catch_up(self):
        """Replaces the variable's and slots' values by those after the missed updates."""
        self.missed = Missed(self.step.host, self.variable, lambda: self.rows)
        for name in [None] + self.missed.slots:
            self._replace(name, "caught_up")

    def _caught_up_value(self, name):
        if self._caught_up is None:
            self._caught_up = self.missed.values()
        return self._caught_up[name]

    def _replace(self, name, what):
        """Puts another leaf in the place of the variable (None) or of a slot."""
        leaf = self.leaf(what, name)
        if name is None:
            self.var = leaf
        else:
            self.slot_values = OrderedDict(self.slot_values)
            self.slot_values[name] = leaf

    def leaf(self, what, name):
        """Returns a leaf of the shape of the variable (None) or of a slot: what it is, is a key of `_READERS`."""
        like = self.var if name is None else self.slot_values[name]
        return self.ops.leaf((what, name), shape=like.leaf_shape)

    def _read(self, name):
        return _READERS[name[0]](self, name[1])

    @property
    def is_on_rows(self):
        """Whether rows differ in what they take: some stay unchanged, or some missed updates."""
        return self.by_rows or self.missed is not None or self.changed_rows is not None

    def for_measure(self):
        """Returns the view that `measure` gets: on this step's rows; with accumulation, on every row of the window."""
        if not self.by_rows or not (self.rule.stages > 1 or defines(self.rule, "collect")):
            return self
        return self._on(self.on.of_window_and_these)

    @property
    def row_rule(self):
        """Whether a sparse update needs some rows of the variable only."""
        by_rows = self.rule.sparse in ("rows", "catch_up") or self.rule.zero_grad_is_noop
        return by_rows and self.rule.locality != "variable" and not has_refresh(self.rule)

    def _on(self, find_rows):
        """Returns the view on other rows, or on the whole variable if the rule needs it.

        The gradient is 0 on rows for which none came.
        """
        summed, present = self.lower(self.grad), self.rows

        def whole_grad():
            return self.backend.scatter_to_dense(summed, present, self.backend.rows_of(self.variable))

        if not self.row_rule:
            view = VariableView(self.step, self.variable, whole_grad)
            view.is_sparse = True
            if self.rule.sparse == "variable_rows" and not self.rule.zero_grad_is_noop:
                view.changed_rows = find_rows if defines(self.rule, "collect") else lambda: present
            return view
        view = VariableView(self.step, self.variable, lambda: self.backend.gather(whole_grad(), view.rows), find_rows)
        return view

    @property
    def rows(self):
        """The numbers of the rows that the view is on, computed at first use; None for the whole variable."""
        return self.on.numbers

    @contextlib.contextmanager
    def forgetting(self):
        """Returns a context that forgets what is computed in it: tensors of a branch do not exist outside of it."""
        rows, caught_up = self.on.found, self._caught_up
        try:
            with self.interpreter.forgetting():
                yield
        finally:
            self.on.found, self._caught_up = rows, caught_up

    @property
    def slots(self):
        return Names(tree(self.rule), self.slot_values)

    @property
    def hypers(self):
        row, place = self._numbers
        return self.scope.names(self.rule, dict(self.sums(), row_number=row, place_in_row=place))

    @property
    def hypers_before(self):
        """Like `hypers`, with the scalars before they advance: a step without an update does not advance them."""
        return self.scope.names(self.rule, dict(self.sums(), **self.scope.scalars))

    def sums(self):
        """Returns the sums that were measured for this variable."""
        return {name: self.ops.leaf(("sum", name)) for name in self._sums()}

    def _sums(self):
        return self.step.sums.get(self.step.host.whole_key(self.variable), {}) if self.step.sums else {}

    def key(self, *more):
        """Returns the key of what the rule does with these values, for `once` of its tracer."""
        sums = tuple(sorted(self._sums()))
        slots = tuple(self.slot_values.values())
        return more + (id(self.rule), self.grad, self.var, slots, self.scope.key, sums)

    def gathered(self, name):
        """Returns whether a slot is read and written by rows: its first dimension is the variable's."""
        return name in self._gathered

    def _shape(self, shape):
        if shape is None:
            return None
        return (None,) + tuple(shape[1:]) if self.by_rows else tuple(shape)

    def _slot_value(self, name):
        return self.backend.cast(self.slot_native(name), self.dtype)

    def slot_native(self, name):
        slot = self.step.host.slot(self.variable, name)
        return self.backend.gather(slot, self.rows) if self.by_rows and self.gathered(name) else self.backend.read(slot)

    def stored(self):
        """Returns the variable's stored value, before any missed updates."""
        backend, variable = self.backend, self.variable
        native = backend.gather(variable, self.rows) if self.by_rows else backend.read(variable)
        return backend.cast(native, self.dtype)

    def as_value(self, value):
        return self.ops.as_value(value)

    def changed_slots(self, slots):
        """Returns the slots to write, as values: those that the rule changed, and those that take missed updates."""
        caught_up = self.missed.slots if self.missed else ()
        values = OrderedDict((name, self.slot_values[name]) for name in caught_up)
        values.update((name, self.as_value(value)) for name, value in slots.items())
        return OrderedDict(
            (name, value) for name, value in values.items() if name in caught_up or value is not self.slot_values[name]
        )

    def program(self, traced, collected=()):
        """Returns the `Program` of the traced change and slots. Its inputs are GRAD, VAR and the slots' names."""
        values = (traced.change,) + tuple(traced.slots.values())
        return self.ops.once(self.key("program", values, tuple(collected)), lambda: self.program_of(values, collected))

    def program_of(self, values, collected=()):
        """Returns the `Program` of some values."""
        inputs = {self.grad: GRAD, self.var: VAR}
        inputs.update((value, name) for name, value in self.slot_values.items() if name not in collected)
        return Program(values, inputs)

    def native_decay(self):
        """Returns the share of the variable that the base class's own weight decay subtracts, or None."""
        decay = self.step.host.adapter.native_decay(self.variable)
        return self.scope.values["learning_rate"] * decay if decay else None

    def decay(self, share, earlier):
        """Subtracts a share of the variable from all its rows, before the rule reads it. Returns an operation."""
        backend = self.backend
        with backend.after(earlier):
            value = backend.cast(backend.read(self.variable), self.dtype)
            return backend.subtract(self.variable, value * self.lower(share))

    def keep(self, value, changing):
        """Returns a native value that stays as it is when a kernel changes the variable and the slots `changing`."""
        native, leaf = self.lower(value), value
        while leaf.args and leaf.is_buffer:
            leaf = leaf.args[0]
        if leaf is self.var or any(leaf is self.slot_values[name] for name in changing):
            native = self.backend.copy(native, self.variable)
            self.interpreter.natives[value] = native
        return native

    def show(self, value, earlier):
        """Writes the value of the variable that a wrapper shows to its inner rule. Returns an operation."""
        if value.op != "subtract" or value.args[0] is not self.var:
            with self.backend.after(earlier):
                native = self.fit(None, value)
            with self.backend.after(earlier + [native]):
                return self.backend.write(self.variable, native, self.rows)
        with self.backend.after(earlier):
            return self.backend.subtract(self.variable, self.fit(None, value.args[1]), self.rows)

    def fit(self, name, value):
        """Returns the native value, in full shape, of a slot's new value or (name None) of the change."""
        backend = self.backend
        like = self.var if name is None else self.slot_values[name]
        native = self.lower(value)
        if value.dtype != self.dtype:
            native = backend.cast(native, self.dtype)
        actual, expected = backend.shape(native), like.leaf_shape
        if not agree(actual, expected):
            native = fitted(backend, native, self.lower(like), name, self.about, expected)
        return backend.copy(native, self.variable) if value.is_buffer else native


# {what a leaf is: function of (view, name) that returns its native value}
_READERS = {
    "grad": lambda view, name: view._read_grad(),
    "var": lambda view, name: view.stored(),
    "slot": VariableView._slot_value,
    "collected": lambda view, name: view._collected[name],  # by `collect` of this step
    "caught_up": VariableView._caught_up_value,
    "new": lambda view, name: view.stored() if name is None else view._slot_value(name),  # once a kernel wrote it
    "sum": lambda view, name: view._sums()[name],
    "row_number": lambda view, name: view.on.row_number(),
    "place_in_row": lambda view, name: view.on.place_in_row(),
}
