"""What rules are given in one step: the values of one variable, of the whole or of some rows, and those of all."""
from __future__ import absolute_import, division, print_function

import contextlib
from collections import OrderedDict

import numpy as np

from everstep.compat.engine.fast_forward import Missed, catches_up
from everstep.compat.engine.trace import Program, Tracer, Value
from everstep.errors import RuleError
from everstep.optimizers.contract import Names, Schedule, compute_dtype, defines, flat, tree

GRAD, VAR = ("grad",), ("var",)  # the roles that are no slots' names
LAST_WINDOW = "touched"  # the slot that remembers in which window a row last got a gradient


def agree(found, wanted):
    return len(found) == len(wanted) and all(f is None or w is None or f == w for f, w in zip(found, wanted))


def broadcasts(found, wanted):
    return len(found) <= len(wanted) and all(f in (1, w) for f, w in zip(reversed(found), reversed(wanted)))


def fitted(backend, native, like, name, about, wanted=None):
    """A rule's result in the full shape of what it is for, `wanted` where that is not known as well as that of `like`.

    Raises:
        RuleError: it has another shape. `about` is the rule's class and the variable's name.
    """
    found, wanted = backend.shape(native), backend.shape(like) if wanted is None else wanted
    if found is None or wanted is None or agree(found, wanted):
        return native
    if broadcasts(found, wanted):
        return native + backend.ops["zeros_like"](like)
    raise RuleError(
        "{}.update gave {} shape {} for {}, which needs {}".format(
            about[0], "the change" if name in (None, VAR) else "slot " + name, found, about[1], tuple(wanted)
        )
    )


class Scope(object):
    """The step-wide values in one compute dtype, each computed once."""

    shared_names = ("pending", "updates", "row_number", "place_in_row")

    def __init__(self, step, dtype):
        self.step, self.dtype = step, dtype
        self.tracer = Tracer(step.backend, dtype)
        updates = self._leaf(lambda: self._cast(step.count("updates")))
        self.t = updates + 1.0
        self.scalars = {name: self._scalar(name) for name in flat(step.definition, "scalar")}
        self.values = dict(self.scalars)
        self.values["updates"] = updates
        self.values["pending"] = self._leaf(lambda: self._cast(step.pending()))
        self.values.update((name, self._hyper(name)) for name in flat(step.definition, "hyper"))
        self.learn(step.known)

    def names(self, definition, extra=()):
        return Names(tree(definition), dict(self.values, **dict(extra)), self.shared_names)

    def learn(self, natives):
        for name, native in natives.items():
            self.values[name] = self._leaf(lambda native=native: self._cast(native))

    def native(self, value):
        return self.tracer.lower(self.as_value(value), {})

    def as_value(self, value):
        return value if isinstance(value, Value) else self.tracer.constant(value)

    def _scalar(self, name):
        return self._leaf(lambda: self._cast(self.step.backend.read(self.step.host.scalar(name))))

    def _hyper(self, name):
        value = self.step.host.hyper(name)
        if isinstance(value, Schedule):
            return self.as_value(value.value(self.tracer, self.values["updates"]))
        if isinstance(value, float):  # as every framework's own hypers, which are float32 variables
            return self.as_value(float(np.float32(value)))
        return self._leaf(lambda: self._cast(self.step.backend.tensor(value() if callable(value) else value)))

    def _leaf(self, read):
        return self.tracer.leaf(read, step_wide=True, shape=())

    def _cast(self, native):
        return self.step.backend.cast(native, self.dtype)


class VariableView(object):
    """One variable's part of a step: the values that its rule sees, of the whole variable or of some rows."""

    def __init__(self, step, variable, read_grad, find_rows=None):
        self.step, self.variable, self.backend = step, variable, step.backend
        self.record, self.rule = step.host.record(variable), step.host.rule(variable)
        self.owner = type(self.rule).__name__
        self.about = self.owner, self.record.name  # whose results a mistake is in
        self.dtype = compute_dtype(self.record.dtype)
        self.scope = step.scope(self.dtype)
        self.ops = self.scope.tracer
        self.by_rows, self._find_rows, self._rows = find_rows is not None, find_rows, None
        self.is_sparse = self.by_rows  # whether the gradient came as one
        self.changed_rows = None  # gives the rows outside of which the variable stays, where there are such
        self.declared = flat(self.rule, "slot")
        self.missed, self._caught_up = None, None  # what the rows take before this step, and what it makes of them
        self.results = {}
        self.grad = self.ops.leaf(read_grad, shape=self._shape(self.record.shape))
        self.var = self.ops.leaf(self.stored, shape=self._shape(self.record.shape))
        self.slot_values = OrderedDict((name, self._slot(name)) for name in self.declared)

    @classmethod
    def of_gradient(cls, step, variable, grad):
        """The work that a gradient brings: equal rows of a sparse one are added up here, once."""
        backend = step.backend
        dtype = compute_dtype(backend.dtype(variable))
        slices = backend.slices(grad)
        if slices is None:
            return cls(step, variable, lambda: backend.cast(backend.tensor(grad), dtype))
        summed, rows = backend.sum_duplicates(backend.cast(slices[0], dtype), slices[1])
        return cls(step, variable, lambda: summed, lambda: rows)

    def for_update(self, collected):
        """The work that `update` does: on the same rows, on all that the window touched, or on the whole."""
        view = self._for_update(collected)
        if self.record.shape and catches_up(self.backend.moves_rows, self.rule):
            view._catch_up()
        return view

    def _for_update(self, collected):
        if not self.by_rows:
            for name, native in collected.items():
                if name in self.slot_values:
                    self.slot_values[name] = self.ops.leaf(lambda native=native: native, shape=self._slot_shape(name))
            return self
        if self._row_rule and not defines(self.rule, "collect"):
            return self
        return self._on(lambda: self.backend.rows_equal(self._marks(), self.accumulation_window()))

    def _catch_up(self):
        """From here on the values are those of rows that have taken all that they missed."""
        self.missed = Missed(self.step.host, self.variable, (lambda: self.rows) if self.by_rows else None)
        self.var = self._now(None, self.var)
        self.slot_values.update((name, self._now(name, self.slot_values[name])) for name in self.missed.slots)

    def _now(self, name, old):
        def read():
            if self._caught_up is None:
                self._caught_up = self.missed.values()
            return self._caught_up[name]

        return self.ops.leaf(read, shape=old.shape)

    @property
    def is_on_rows(self):
        """Whether some rows are left as they are, or have a past of their own."""
        return self.by_rows or self.missed is not None or self.changed_rows is not None

    def for_measure(self):
        """The work that `measure` does: on the rows present, and where steps add up, on all of the window's."""
        if not self.by_rows or not (self.rule.stages > 1 or defines(self.rule, "collect")):
            return self
        return self._on(self._window_and_present)

    @property
    def _row_rule(self):
        by_rows = self.rule.sparse in ("rows", "catch_up") or self.rule.zero_grad_is_noop
        return by_rows and self.rule.locality != "variable"

    def _on(self, find_rows):
        """The work on other rows, or on the whole where the rule needs it; where no gradient came, it is 0."""
        summed, present = self.lower(self.grad), self.rows

        def whole_grad():
            return self.backend.scatter_to_dense(summed, present, self.backend.rows_of(self.variable))

        if not self._row_rule:
            view = VariableView(self.step, self.variable, whole_grad)
            view.is_sparse = True
            if self.rule.sparse == "variable_rows" and not self.rule.zero_grad_is_noop:
                view.changed_rows = find_rows if defines(self.rule, "collect") else lambda: present
            return view
        view = VariableView(self.step, self.variable, lambda: self.backend.gather(whole_grad(), view.rows), find_rows)
        return view

    def on_changed_rows(self, changed, unchanged):
        """`changed` on the rows that may change, `unchanged` on the others."""
        rows, ops = self.changed_rows(), self.backend.ops
        marks = self.backend.scatter_to_dense(ops["ones_like"](rows), rows, self.backend.rows_of(self.variable))
        marks = ops["reshape"](marks, (-1,) + (1,) * (len(self.record.shape) - 1))
        return ops["where"](ops["greater"](marks, ops["zeros_like"](marks)), changed, unchanged)

    def accumulation_window(self):
        """The mark of rows touched since the last update: the step that opened the window, counted from 1.

        Not the number of updates, which Keras's LossScaleOptimizer also moves, at steps that it leaves out.
        """
        count = self.step.count
        opened = count("steps") - count("pending") if self.step.skips else count("updates")
        return self.backend.cast(opened + 1, "int64")

    def _marks(self):
        return self.backend.read(self.step.host.slot(self.variable, LAST_WINDOW))

    def _window_and_present(self):
        marks = self.backend.ops["reshape"](self._marks(), (-1,))
        present = self.backend.cast(self.rows, "int64") * 0 + self.accumulation_window()
        present = self.backend.scatter_to_dense(present, self.rows, self.backend.rows_of(self.variable))
        return self.backend.rows_equal(self.backend.ops["maximum"](marks, present), self.accumulation_window())

    @property
    def rows(self):
        """The rows that this work is on, found when first asked for; None for the whole."""
        if self._rows is None and self.by_rows:
            self._rows = self._find_rows()
        return self._rows

    @contextlib.contextmanager
    def forgetting(self):
        """Forgets what was computed within: outside of a branch, or where it is traced again, that is not there."""
        before = dict(self.results), self._rows, self._caught_up
        try:
            yield
        finally:
            self.results, self._rows, self._caught_up = before

    @property
    def slots(self):
        return Names(tree(self.rule), self.slot_values)

    @property
    def hypers(self):
        row, place = (self.ops.leaf(read, dtype="int32") for read in (self._row_number, self._place_in_row))
        return self.scope.names(self.rule, dict(self._own_sums(), row_number=row, place_in_row=place))

    def _row_number(self):
        """The number that each element's row has in the whole variable."""
        if not self.record.shape:
            return self.backend.constant(0, "int32")
        place, rows = self.step.host.place(self.variable), self.rows
        rows = self.backend.iota(self.backend.rows_of(self.variable)) if rows is None else rows
        rows = self.backend.cast(rows, "int32") + (place.slices[0].start if place else 0)
        return self.backend.ops["reshape"](rows, (-1,) + (1,) * (len(self.record.shape) - 1))

    def _place_in_row(self):
        """The number that each element has in its row of the whole variable."""
        place, found, size = self.step.host.place(self.variable), self.backend.constant(0, "int32"), 1
        for axis in range(len(self.record.shape) - 1, 0, -1):
            number = self.backend.iota(self.record.shape[axis]) + (place.slices[axis].start if place else 0)
            alone = [-1 if other == axis else 1 for other in range(len(self.record.shape))]
            found = found + self.backend.ops["reshape"](number * size, tuple(alone))
            size *= (place.whole if place else self.record.shape)[axis]
        return found

    @property
    def hypers_before(self):
        """With the scalars as they were: they advance with an update, and a step may come to none."""
        return self.scope.names(self.rule, dict(self._own_sums(), **self.scope.scalars))

    def _own_sums(self):
        own = self.step.sums.get(self.step.host.whole_key(self.variable), {})
        return {name: self.ops.leaf(lambda native=native: native) for name, native in own.items()}

    def gathered(self, name):
        """Whether a slot goes by rows: its first dimension is the variable's."""
        shape = self.record.shape if name == LAST_WINDOW else self.declared[name][1].shape_for(self.record)
        return bool(shape) and shape[0] == self.record.shape[0]

    def _shape(self, shape):
        return (None,) + tuple(shape[1:]) if self.by_rows else tuple(shape)

    def _slot_shape(self, name):
        shape = self.declared[name][1].shape_for(self.record)
        return self._shape(shape) if self.gathered(name) else shape

    def _slot(self, name):
        read = lambda: self.backend.cast(self.slot_native(name), self.dtype)  # noqa: E731  # a leaf's reader
        return self.ops.leaf(read, shape=self._slot_shape(name))

    def slot_native(self, name):
        slot = self.step.host.slot(self.variable, name)
        return self.backend.gather(slot, self.rows) if self.by_rows and self.gathered(name) else self.backend.read(slot)

    def stored(self):
        """The variable as it is, whatever its rows have missed."""
        backend, variable = self.backend, self.variable
        native = backend.gather(variable, self.rows) if self.by_rows else backend.read(variable)
        return backend.cast(native, self.dtype)

    def as_value(self, value):
        return self.scope.as_value(value)

    def lower(self, value):
        return self.ops.lower(value, self.results)

    def changed_slots(self, slots):
        """The returned slots as values, without those returned unchanged, where nothing else changes them."""
        caught_up = self.missed.slots if self.missed else ()
        found = OrderedDict((name, self.slot_values[name]) for name in caught_up)
        found.update((name, self.as_value(value)) for name, value in slots.items())
        return OrderedDict(
            (name, value) for name, value in found.items() if name in caught_up or value is not self.slot_values[name]
        )

    def program(self, traced, collected=()):
        """What the traced change and slots compute, as operations on roles: GRAD, VAR and the slots' names."""
        roles = {id(self.grad): GRAD, id(self.var): VAR}
        roles.update((id(value), name) for name, value in self.slot_values.items() if name not in collected)
        return Program([traced.change] + list(traced.slots.values()), roles)

    def native_decay(self):
        """The share of the variable that the base class's own weight decay takes off; None where there is none."""
        decay = self.step.host.native_decay(self.variable)
        return self.scope.values["learning_rate"] * decay if decay else None

    def decay(self, share, earlier):
        """Takes a share of the variable off it: of all rows, before the rule sees it."""
        backend = self.backend
        with backend.after(earlier):
            value = backend.cast(backend.read(self.variable), self.dtype)
            return backend.subtract(self.variable, value * self.lower(share))

    def fit(self, name, value):
        """The native form of a slot's new value, or without a name of the change, in its full shape."""
        backend = self.backend
        like = self.var if name is None else self.slot_values[name]
        native = self.lower(value)
        if value.dtype != self.dtype:
            native = backend.cast(native, self.dtype)
        found, wanted = backend.shape(native), like.shape
        if found is not None and not agree(found, wanted):
            native = fitted(backend, native, self.lower(like), name, self.about, wanted)
        return backend.copy(native, self.variable) if value.is_buffer else native
