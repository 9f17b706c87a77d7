"""The arguments of a rule in one step: the values of one variable or of some of its rows, and the step-wide values."""
from __future__ import absolute_import, division, print_function

import contextlib
from collections import OrderedDict

import numpy as np

from everstep.compat.engine.fast_forward import Missed, catches_up
from everstep.compat.engine.program import Program
from everstep.compat.engine.trace import Tracer, Value
from everstep.errors import RuleError, VariableError
from everstep.optimizers.contract import Names, Schedule, compute_dtype, defines, flat, tree

GRAD, VAR = ("grad",), ("var",)  # a program's inputs beside the slots; tuples, so that no slot has such a name
LAST_WINDOW = "touched"  # the slot with the last accumulation window in which a row got a gradient


def agree(actual, expected):
    """Returns whether two shapes are equal as far as both are known. None: not even the rank is."""
    if actual is None or expected is None:
        return True
    return len(actual) == len(expected) and all(a is None or e is None or a == e for a, e in zip(actual, expected))


def is_known(shape):
    """Returns whether a shape has a rank and all its sizes."""
    return shape is not None and None not in shape


def shape_needed(rule, record):
    """Returns the message for a variable whose shape must be known and is not."""
    shape = "not known" if record.shape is None else record.shape
    return (
        "{} needs the shape of {}, which is {}. Create the variable with a fixed shape, without validate_shape=False "
        "or shape=".format(rule._short(), record.name, shape)
    )


def broadcasts(actual, expected):
    """Returns whether a shape broadcasts to the expected shape, as far as both are known."""
    sizes = zip(reversed(actual), reversed(expected))
    return len(actual) <= len(expected) and all(a in (1, None, e) or e is None for a, e in sizes)


def fitted(backend, native, like, name, about, expected=None):
    """Broadcasts a rule's result to its full shape.

    Args:
        native: the result.
        like: the old value that the result replaces or changes.
        name: the slot's name; None or VAR for the change.
        about: the names of the rule's class and of the variable, for the error.
        expected: the full shape; by default that of `like`.

    Raises:
        RuleError: the result has another shape.
    """
    actual, expected = backend.shape(native), backend.shape(like) if expected is None else expected
    if agree(actual, expected):
        return native
    check_fits(actual, expected, name, about)
    return native + backend.ops["zeros_like"](like)


def check_fits(actual, expected, name, about):
    """Raises RuleError if a shape does not broadcast to the expected one. None: not known. The rest: see `fitted`."""
    if actual is not None and expected is not None and not broadcasts(actual, expected):
        raise RuleError(
            "{}.update gave {} shape {} for {}, which needs {}".format(
                about[0], "the change" if name in (None, VAR) else "slot " + name, actual, about[1], tuple(expected)
            )
        )


class Scope(object):
    """Step-wide values (t, hypers, scalars, sums) in one compute dtype, each computed once."""

    shared_names = ("pending", "updates", "row_number", "place_in_row")

    def __init__(self, step, dtype):
        self.step, self.dtype = step, dtype
        self.tracer = Tracer(step.backend, dtype)
        updates = self._count(lambda: step.count("updates"))
        self.t = updates + 1
        self.scalars = {name: self._scalar(name) for name in flat(step.definition, "scalar")}
        self.values = dict(self.scalars)
        self.values["updates"] = updates
        self.values["pending"] = self._count(lambda: step.pending())
        self.values.update((name, self._hyper(name)) for name in flat(step.definition, "hyper"))
        self.learn(step.known)

    def names(self, definition, extra=()):
        return Names(tree(definition), dict(self.values, **dict(extra)), self.shared_names)

    def learn(self, natives):
        """Adds or replaces values by their native values."""
        for name, native in natives.items():
            self.values[name] = self._leaf(lambda native=native: self._cast(native))

    def native(self, value):
        return self.tracer.lower(self.as_value(value), {})

    def as_value(self, value):
        return value if isinstance(value, Value) else self.tracer.constant(value)

    def _scalar(self, name):
        return self._leaf(lambda: self._cast(self.step.backend.read(self.step.host.adapter.scalar(name))))

    def _hyper(self, name):
        value = self.step.hyper(name)
        if isinstance(value, Schedule):
            return self.as_value(value.value(self.tracer, self.values["updates"]))
        if isinstance(value, float):  # every framework keeps its hypers in float32 variables
            return self.as_value(float(np.float32(value)))
        return self._leaf(lambda: self._cast(self.step.backend.tensor(value() if callable(value) else value)))

    def _leaf(self, read):
        return self.tracer.leaf(read, step_wide=True, shape=())

    def _count(self, read):
        return self.tracer.count_leaf(read, step_wide=True, shape=())

    def _cast(self, native):
        return self.step.backend.cast(native, self.dtype)


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
        self.by_rows, self._find_rows, self._rows = find_rows is not None, find_rows, None
        self.is_sparse = self.by_rows  # whether the gradient was sparse, also if the view is on the whole variable
        self.changed_rows = None  # a function that returns the only rows of the variable that may change, or None
        self.declared = flat(self.rule, "slot")
        self.missed, self._caught_up = None, None  # the rows' `Missed` updates; {name: value} after them
        self.results = {}
        self.grad = self.ops.leaf(read_grad, shape=self._shape(self.record.shape))
        self.var = self.ops.leaf(self.stored, shape=self._shape(self.record.shape))
        self.slot_values = OrderedDict((name, self.slot_leaf(name)) for name in self.declared)

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
                    self.slot_values[name] = self.ops.leaf(lambda native=native: native, shape=self._slot_shape(name))
            return self
        if self.row_rule and not defines(self.rule, "collect"):
            return self
        return self._on(lambda: self.backend.rows_equal(self._marks(), self.accumulation_window()))

    def _catch_up(self):
        """Replaces the variable's and slots' values by those after the missed updates."""
        self.missed = Missed(self.step.host, self.variable, lambda: self.rows)
        self.var = self._caught_up_leaf(None, self.var)
        for name in self.missed.slots:
            self.slot_values[name] = self._caught_up_leaf(name, self.slot_values[name])

    def _caught_up_leaf(self, name, old):
        def read():
            if self._caught_up is None:
                self._caught_up = self.missed.values()
            return self._caught_up[name]

        return self.ops.leaf(read, shape=old.shape)

    @property
    def is_on_rows(self):
        """Whether rows differ in what they take: some stay unchanged, or some missed updates."""
        return self.by_rows or self.missed is not None or self.changed_rows is not None

    def for_measure(self):
        """Returns the view that `measure` gets: on this step's rows; with accumulation, on every row of the window."""
        if not self.by_rows or not (self.rule.stages > 1 or defines(self.rule, "collect")):
            return self
        return self._on(self._window_and_present)

    @property
    def row_rule(self):
        """Whether a sparse update needs some rows of the variable only."""
        by_rows = self.rule.sparse in ("rows", "catch_up") or self.rule.zero_grad_is_noop
        return by_rows and self.rule.locality != "variable"

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

    def on_changed_rows(self, changed, unchanged):
        """Returns `changed` on the rows that may change, `unchanged` on the others."""
        rows, ops = self.changed_rows(), self.backend.ops
        marks = self.backend.scatter_to_dense(ops["ones_like"](rows), rows, self.backend.rows_of(self.variable))
        marks = ops["reshape"](marks, (-1,) + (1,) * (len(self.record.shape) - 1))
        return ops["where"](ops["greater"](marks, ops["zeros_like"](marks)), changed, unchanged)

    def accumulation_window(self):
        """Returns the number of the current accumulation window: the step that opened it, counted from 1.

        The number of updates will not do: Keras's LossScaleOptimizer also moves it at steps that it skips.
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
        """The rows that the view is on, computed at first use; None for the whole variable."""
        if self._rows is None and self.by_rows:
            self._rows = self._find_rows()
        return self._rows

    @contextlib.contextmanager
    def forgetting(self):
        """Returns a context that forgets what is computed in it: tensors of a branch do not exist outside of it."""
        results_before = dict(self.results), self._rows, self._caught_up
        try:
            yield
        finally:
            self.results, self._rows, self._caught_up = results_before

    @property
    def slots(self):
        return Names(tree(self.rule), self.slot_values)

    @property
    def hypers(self):
        row, place = (self.ops.leaf(read, dtype="int32") for read in (self._row_number, self._place_in_row))
        return self.scope.names(self.rule, dict(self._sums(), row_number=row, place_in_row=place))

    def _row_number(self):
        """Returns each element's row number in the whole variable, of which this may be a part."""
        self._require_shape()
        if not self.record.shape:
            return self.backend.constant(0, "int32")
        place, rows = self.step.host.adapter.place(self.variable), self.rows
        rows = self.backend.iota(self.backend.rows_of(self.variable)) if rows is None else rows
        rows = self.backend.cast(rows, "int32") + (place.slices[0].start if place else 0)
        return self.backend.ops["reshape"](rows, (-1,) + (1,) * (len(self.record.shape) - 1))

    def _place_in_row(self):
        """Returns each element's index in its row of the whole variable, counted in C order."""
        self._require_shape()
        place, index, stride = self.step.host.adapter.place(self.variable), self.backend.constant(0, "int32"), 1
        for axis in range(len(self.record.shape) - 1, 0, -1):
            number = self.backend.iota(self.record.shape[axis]) + (place.slices[axis].start if place else 0)
            along_axis = [-1 if other == axis else 1 for other in range(len(self.record.shape))]
            index = index + self.backend.ops["reshape"](number * stride, tuple(along_axis))
            stride *= (place.whole if place else self.record.shape)[axis]
        return index

    def _require_shape(self):
        if not is_known(self.record.shape):
            raise VariableError(shape_needed(self.rule, self.record))

    @property
    def hypers_before(self):
        """Like `hypers`, with the scalars before they advance: a step without an update does not advance them."""
        return self.scope.names(self.rule, dict(self._sums(), **self.scope.scalars))

    def _sums(self):
        """Returns the sums that were measured for this variable."""
        sums = self.step.sums.get(self.step.host.whole_key(self.variable), {})
        return {name: self.ops.leaf(lambda native=native: native) for name, native in sums.items()}

    def gathered(self, name):
        """Returns whether a slot is read and written by rows: its first dimension is the variable's."""
        shape = self.record.shape if name == LAST_WINDOW else self.declared[name][1].shape_for(self.record)
        if shape is None or self.record.shape is None:
            return shape is None  # as unknown as the variable's
        return bool(shape) and shape[0] == self.record.shape[0]

    def _shape(self, shape):
        if shape is None:
            return None
        return (None,) + tuple(shape[1:]) if self.by_rows else tuple(shape)

    def _slot_shape(self, name):
        shape = self.declared[name][1].shape_for(self.record)
        return self._shape(shape) if self.gathered(name) else shape

    def slot_leaf(self, name):
        """Returns a slot's value when it is lowered."""
        read = lambda: self.backend.cast(self.slot_native(name), self.dtype)  # noqa: E731  # a leaf's reader
        return self.ops.leaf(read, shape=self._slot_shape(name))

    def slot_native(self, name):
        slot = self.step.host.slot(self.variable, name)
        return self.backend.gather(slot, self.rows) if self.by_rows and self.gathered(name) else self.backend.read(slot)

    def stored(self):
        """Returns the variable's stored value, before any missed updates."""
        backend, variable = self.backend, self.variable
        native = backend.gather(variable, self.rows) if self.by_rows else backend.read(variable)
        return backend.cast(native, self.dtype)

    def as_value(self, value):
        return self.scope.as_value(value)

    def lower(self, value):
        return self.ops.lower(value, self.results)

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
        inputs = {id(self.grad): GRAD, id(self.var): VAR}
        inputs.update((id(value), name) for name, value in self.slot_values.items() if name not in collected)
        return Program([traced.change] + list(traced.slots.values()), inputs)

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
            self.results[id(value)] = value, native
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
