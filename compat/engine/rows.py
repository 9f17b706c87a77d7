"""The rows of a variable that an update is on, and their numbers."""
from __future__ import absolute_import, division, print_function

from everstep.compat.engine.fitting import is_known, shape_needed
from everstep.errors import VariableError

LAST_WINDOW = "touched"  # the slot with the last accumulation window in which a row got a gradient


class Rows(object):
    """Some rows of a variable in one step, each once; all of them if `find` is None.

    Args:
        step: the `Step`.
        variable, record: the variable and its record.
        find: returns the numbers of the rows, a native vector.

    Attributes:
        are_some: whether there is a `find`.
        found: their numbers, once they are computed.
    """

    def __init__(self, step, variable, record, find=None):
        self.step, self.variable, self.record, self.backend = step, variable, record, step.backend
        self._find, self.are_some, self.found = find, find is not None, None

    @property
    def numbers(self):
        """The numbers of the rows, computed at first use; None for the whole variable."""
        if self.found is None and self._find:
            self.found = self._find()
        return self.found

    def row_number(self):
        """Returns each element's row number in the whole variable, of which this may be a part."""
        self._require_shape()
        if not self.record.shape:
            return self.backend.constant(0, "int32")
        place, rows = self.step.host.adapter.place(self.variable), self.numbers
        rows = self.backend.iota(self.backend.rows_of(self.variable)) if rows is None else rows
        rows = self.backend.cast(rows, "int32") + (place.slices[0].start if place else 0)
        return self.backend.ops["reshape"](rows, (-1,) + (1,) * (len(self.record.shape) - 1))

    def place_in_row(self):
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
            raise VariableError(shape_needed(self.step.host.rule(self.variable), self.record))

    # Windows of accumulation.

    def window(self):
        """Returns the number of the current accumulation window: the step that opened it, counted from 1.

        The number of updates will not do: Keras's LossScaleOptimizer also moves it at steps that it skips.
        """
        count = self.step.count
        opened = count("steps") - count("pending") if self.step.skips else count("updates")
        return self.backend.cast(opened + 1, "int64")

    def _marks(self):
        return self.backend.read(self.step.host.slot(self.variable, LAST_WINDOW))

    def of_window(self):
        """Returns the numbers of the rows that got a gradient in the current window."""
        return self.backend.rows_equal(self._marks(), self.window())

    def of_window_and_these(self):
        """Returns the numbers of the rows of the current window, and of these, which it may not have yet."""
        marks = self.backend.ops["reshape"](self._marks(), (-1,))
        present = self.backend.cast(self.numbers, "int64") * 0 + self.window()
        present = self.backend.scatter_to_dense(present, self.numbers, self.backend.rows_of(self.variable))
        return self.backend.rows_equal(self.backend.ops["maximum"](marks, present), self.window())

    def chosen(self, numbers, changed, unchanged):
        """Returns values of the whole variable: `changed` on the rows of some numbers, `unchanged` on the others."""
        ops = self.backend.ops
        marks = self.backend.scatter_to_dense(ops["ones_like"](numbers), numbers, self.backend.rows_of(self.variable))
        marks = ops["reshape"](marks, (-1,) + (1,) * (len(self.record.shape) - 1))
        return ops["where"](ops["greater"](marks, ops["zeros_like"](marks)), changed, unchanged)
