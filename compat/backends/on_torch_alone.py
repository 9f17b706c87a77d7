"""The backend for torch without Keras: variables, slots and gradients are tensors of torch."""
from __future__ import absolute_import, division, print_function

import contextlib

import numpy as np

from everstep.compat.backends.arrays_in_memory import as_own
from everstep.compat.backends.base import GRAPHS, Backend
from everstep.compat.backends.gradient_values import check_row_numbers, numbers_of
from everstep.compat.backends.on_torch import TorchLists
from everstep.compat.backends.ops_table import add_linalg, ops_table

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

# What the engine also asks of Python's numbers, which torch does not take.
_ALSO_OF_NUMBERS = "less less_equal greater greater_equal equal maximum minimum logical_and where".split()


class TorchBackend(Backend):
    """Tensors of torch, which are updated in place. Sparse gradients are COO tensors with one sparse dimension."""

    name = "torch"
    # A sparse gradient is one tensor of torch, so none is put together from values and rows.
    unsupported = GRAPHS + ("sparse", "all_or_nothing", "concat_flat", "split")
    adds_in_place = True
    lists = None  # type: Any

    def __init__(self, named):
        """`named`: a function that returns the name of a parameter, which torch itself does not know."""
        import torch

        self._named = named
        self.torch = torch
        self.lists = TorchLists(None)
        self._device = "cpu"  # where new values are made: see `at`
        linalg = torch.linalg
        self.ops = ops_table(torch, {}, {
            "cast": self.cast, "equal": torch.eq, "sum": _reduced(torch.sum), "mean": _reduced(torch.mean),
            "any": _reduced(torch.any), "all": _reduced(torch.all), "max": _reduced(torch.amax, ()),
            "min": _reduced(torch.amin, ()), "where": torch.where,
            "transpose": lambda x, axes=None: x.permute(axes or tuple(range(x.dim()))[::-1]),
            "eye": lambda size, dtype: torch.eye(size, dtype=self._type(dtype), device=self._device),
            "arange": lambda size, dtype: torch.arange(size, dtype=self._type(dtype), device=self._device),
        })
        for name in _ALSO_OF_NUMBERS:
            self.ops[name] = self._of_tensors(self.ops[name])
        power = self.ops["pow"]
        self.ops["pow"] = lambda x, y: power(*self._together([x, y]))
        add_linalg(self.ops, linalg.qr, linalg.eigh, lambda x: linalg.svd(x, full_matrices=False), linalg.cholesky,
                   linalg.solve, torch.diagonal)

    def _of_tensors(self, function):
        """Returns a function of tensors that takes numbers too, which get the dtype of the first tensor of floats."""
        of_torch = self.torch.Tensor

        def call(*values):
            floats = [value for value in values if isinstance(value, of_torch) and value.is_floating_point()]
            dtype = floats[0].dtype if floats else None
            tensors = [value if isinstance(value, of_torch) else self._as_tensor(value, dtype)
                       for value in values]
            return function(*self._together(tensors))

        return call

    def _together(self, values):
        """Returns values that lie on one device.

        Single numbers lie on the processor, as counts do, so that nothing waits for a device. Some operations of torch,
        unlike others, do not take them beside tensors of a device.
        """
        of_torch = self.torch.Tensor
        there = [value.device for value in values if isinstance(value, of_torch) and value.device.type != "cpu"]
        return [value.to(there[0]) if there and isinstance(value, of_torch) and not value.dim() else value
                for value in values]

    def _as_tensor(self, value, dtype=None):
        """Returns a tensor on the processor, also where people's code has set another device as the default."""
        return self.torch.as_tensor(value, dtype=dtype, device="cpu")

    def _type(self, dtype):
        return getattr(self.torch, dtype)

    def constant(self, number, dtype):
        if isinstance(number, np.ndarray) and number.dtype.kind not in "fiub":  # NumPy's bfloat16
            number = number.astype(np.float32)
        device = self._device if np.ndim(number) else "cpu"  # see `_together`
        return self.torch.as_tensor(number, dtype=self._type(dtype), device=device)

    def tensor(self, value):
        return value if isinstance(value, self.torch.Tensor) else self._as_tensor(value)

    def cast(self, value, to):
        return value.to(self._type(to))

    def dtype(self, variable):
        return str(variable.dtype).rpartition(".")[2]

    def shape(self, value):
        return tuple(value.shape)

    def read(self, variable):
        return variable.detach() if variable.requires_grad else variable

    def write(self, variable, value, rows=None):
        if rows is None:
            variable.copy_(value)
        else:
            variable.index_copy_(0, self.cast(rows, "int64"), value.to(variable.dtype))

    def add(self, variable, value):
        variable.add_(value.to(variable.device) if isinstance(value, self.torch.Tensor) else value)

    def subtract(self, variable, value, rows=None, share=None):
        if rows is not None:
            self.write(variable, self.gather(variable, rows).to(value.dtype) - value, rows)
        elif variable.dtype == value.dtype:
            variable.sub_(value)
        else:
            variable.copy_(variable.to(value.dtype) - value)

    def copy(self, value, variable):
        return value.clone()

    def gradient(self, value, dtype):
        if isinstance(value, self.torch.Tensor):
            return value
        array = numbers_of(value)
        return None if array is None else self.constant(array, dtype)

    def surely_fits(self, grad, variable):
        return self.lists.surely_fits(grad, variable)

    def name_of(self, variable):
        return self._named(variable)

    def fitting(self, grad, variable, name):
        slices = self.slices(grad)
        if slices:
            self.existing_rows(slices[1], variable, name)
        return grad

    def slices(self, grad):
        return (grad._values(), grad._indices()[0]) if self._is_sparse(grad) else None

    def _is_sparse(self, grad):
        return getattr(grad, "layout", None) is self.torch.sparse_coo and grad.sparse_dim() == 1

    def dense(self, grad):
        is_dense = grad is None or grad.layout is self.torch.strided or self._is_sparse(grad)
        return grad if is_dense else grad.to_dense()

    def existing_rows(self, rows, variable, name):
        rows = self.constant(rows, "int64")  # after a wrong row number a device fails at every later call
        check_row_numbers(rows.cpu().numpy(), len(variable), name)
        return rows

    def no_rows(self, variable):
        rows = self.torch.zeros((1, 0), dtype=self.torch.int64, device=variable.device)
        return self.torch.sparse_coo_tensor(
            rows, self.read(variable)[:0], variable.shape, check_invariants=False)

    def gather(self, variable, rows):
        return self.read(variable).index_select(0, self.cast(rows, "int64"))

    def rows_of(self, variable):
        return len(variable)

    def iota(self, count):
        return self.torch.arange(count, dtype=self.torch.int32, device=self._device)

    def stack(self, numbers):
        return self.torch.stack(numbers)

    def concat(self, values, axis):
        return self.torch.concat(values, axis)

    def unique(self, rows):
        return self.torch.unique(rows)

    def sum_duplicates(self, values, indices):
        rows, places = self.torch.unique(indices, return_inverse=True)
        sums = values.new_zeros((len(rows),) + tuple(values.shape[1:]))
        return sums.index_add_(0, places, values), rows

    def scatter_to_dense(self, values, rows, count):
        dense = values.new_zeros((count,) + tuple(values.shape[1:]))
        return dense.index_copy_(0, self.cast(rows, "int64"), values)

    def rows_equal(self, marks, mark):
        return self.torch.nonzero(marks.reshape(-1) == mark).reshape(-1)

    def largest(self, counts):
        return int(counts.max()) if counts.numel() else 0

    def repeat(self, count, body, values):
        for step in range(count):
            values = body(step, values)
        return values

    def choose(self, predicate, yes, no):
        return self.torch.where(predicate, yes, no)

    def plain(self, function):
        return self.torch.no_grad()(function)

    def computing(self):
        return self.torch.no_grad()

    @contextlib.contextmanager
    def at(self, variable):
        before, self._device = self._device, variable.device
        try:
            yield
        finally:
            self._device = before

    def lowers(self, strategy):
        return strategy in ("kernel", "flattened")

    def device(self, variable):
        return str(variable.device)

    def values(self, variables, session):
        arrays = []
        for variable in variables:
            tensor = (variable.value() if hasattr(variable, "repeats") else variable).detach().cpu()
            arrays.append(as_own((tensor.float() if tensor.dtype is self.torch.bfloat16 else tensor).numpy()))
        return arrays

    def put(self, writes, session):
        with self.torch.no_grad():
            for variable, value, _ in writes:
                value = np.asarray(value)
                if value.dtype.kind not in "fiub":
                    value = value.astype(np.float32)
                if hasattr(variable, "repeats"):
                    variable.put(value.item())
                else:
                    variable.copy_(self._as_tensor(np.array(value)))
                del value  # before the next one is read


def _reduced(function, every=None):
    """Returns a function of torch that reduces, with NumPy's arguments. every: what stands for all axes."""
    def reduced(x, axis=None, keepdims=False):
        if axis is None and not keepdims and every is None:
            return function(x)
        return function(x, dim=every if axis is None else axis, keepdim=keepdims)

    return reduced
