"""The interface of a backend: the verbs that the rest of compat/ calls."""
from __future__ import absolute_import, division, print_function

import contextlib
import functools

import numpy as np

from everstep.compat.backends.gradient_values import numbers_of
from everstep.errors import UnsupportedError
from everstep.optimizers.contract.checks import is_tensor

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

REQUIRED = []  # the names of verbs without a default, in order; `required` adds them


def required(verb):
    """Marks a verb without a default. A backend defines it, or lists it in `unsupported`; it then raises this error."""
    REQUIRED.append(verb.__name__)

    @functools.wraps(verb)
    def refuse(self, *args, **kwargs):
        raise UnsupportedError("the {} backend has no {}".format(self.name, verb.__name__))

    return refuse


GRAPHS = tuple("failure is_since operation kernel cannot_compile compile for_xla parts from_parts function part "
               "write_part".split())  # required verbs that only TensorFlow has
ROWS = tuple("sparse existing_rows no_rows gather stack concat unique sum_duplicates scatter_to_dense rows_equal "
             "largest repeat".split())  # required verbs that a backend without sparse gradients lacks


class Backend(object):
    """A backend: computes with one kind of arrays.

    A value is an array or tensor. A predicate is a scalar bool. Operations are graph operations; eager code has none.
    Subclasses define the required verbs, in this order. The defaults of the others suit eager arrays on one device.
    A subclass may offer the module that it computes with (`tf`, `keras`), for targets that run only on that module.
    """

    name = ""  # for people
    ops = {}  # type: dict  # `{op: function}` for NAMES and OPERATORS
    eager = True  # whether values exist at once, so that Python can read them
    moves_rows = True  # whether gradients can be sparse
    separates = adds_in_place = False  # whether `separate` may gain something; whether `add` needs no new memory
    unsupported = ()  # type: tuple[str, ...]  # required verbs that raise UnsupportedError here
    lists = None  # the verbs for lists of variables, if it has them: see on_torch.py

    # Values and dtypes. A dtype is a name, such as "float32".

    @required
    def constant(self, number, dtype):
        """Returns a number or array as a value of that dtype."""

    @required
    def tensor(self, value):
        """Returns anything array-like as a value of the same dtype."""

    @required
    def cast(self, value, dtype):
        """Returns the value in another dtype; the value itself if it has it."""

    def stored(self, dtype):
        """Returns the dtype that a variable gets here if this one is requested."""
        return dtype

    def is_traced(self, value):
        """Returns whether a value is of a jitted function of JAX, so that Python can neither read it nor raise."""
        return False

    def separate(self, values):
        """Returns the values, computed before all that is computed from them; None if there is nothing to gain."""

    @required
    def dtype(self, variable):
        """Returns the dtype of a variable or value."""

    @required
    def shape(self, value):
        """Returns the shape of a variable or value, a tuple; None if its rank is unknown."""

    # Reading and writing variables. Writes return operations.

    def is_ref(self, variable):
        """Returns whether a variable is a ref variable of TF 1, whose value may be its own buffer."""
        return False

    @required
    def read(self, variable):
        """Returns a variable's whole value. It may be the variable's own buffer: see `copy`."""

    def start_value(self, variable, dtype):
        """Returns a variable's value in a dtype; in a graph, the initial value if it is not initialized."""
        return self.cast(self.read(variable), dtype)

    @required
    def write(self, variable, value, rows=None):
        """Writes a value, cast to the variable's dtype: the whole variable, or `value[i]` to row `rows[i]`."""

    @required
    def add(self, variable, value):
        """Adds a value of any dtype to the whole variable. Concurrent additions survive."""

    @required
    def subtract(self, variable, value, rows=None, share=None):
        """Subtracts a value, or share * value, from a variable or its rows.

        Concurrent writes survive, except if the variable has lower precision than the value. `share` is a scalar of the
        variable's dtype, for whole variables only; only lowering strategies for sessions pass it.
        """

    @required
    def copy(self, value, variable):
        """Returns a copy of a value read from a variable, which later writes do not change."""

    def constrain(self, variable, write):
        """Applies the variable's constraint after a write, an operation. Returns the last operation."""
        return write

    @required
    def all_or_nothing(self):
        """Returns a context that undoes all writes in it if its body raises."""

    # Gradients, checked before a step: see compat/engine/pairs.py.

    def gradient(self, value, dtype):
        """Returns a tensor as it is, and numbers, lists and arrays in a dtype; None for anything else."""
        if is_tensor(value) and not isinstance(value, (np.ndarray, np.generic)):
            return value
        array = numbers_of(value)
        return None if array is None else self.constant(array, dtype)

    def surely_fits(self, grad, variable):
        """Returns whether this is the usual gradient of eager code, which needs no other check. Every step asks."""
        return False

    def is_foreign(self, value):
        """Returns whether a value or variable belongs to another graph than the code that runs."""
        return False

    def name_of(self, variable):
        """Returns what messages call a variable."""
        return getattr(variable, "name", "an array")

    def fitting(self, grad, variable, name):
        """Returns a checked gradient, or one that fails in a run in which its values do not fit the variable `name`.

        In eager code it raises GradientError if the gradient has rows that the variable lacks.
        """
        return grad

    def lasting(self, pairs):
        """Returns the pairs with gradients that stay as they are while the variables are written, if need be copies."""
        return pairs

    # Rows. `rows` is a vector of row numbers.

    def slices(self, grad):
        """Returns (values, indices) of a sparse gradient; None for a dense one."""

    def dense(self, grad):
        """Returns a dense gradient if this one is sparse and the backend cannot compute with that; else itself."""
        return grad

    @required
    def sparse(self, values, rows, like):
        """Returns a sparse gradient of given values and row numbers, both array-like; `like` is the one to replace.

        Returns None if the values are no real numbers or the rows no vector of whole numbers.
        """

    @required
    def existing_rows(self, rows, variable, name):
        """Returns rows of a variable. Raises GradientError, or in a graph fails when it runs, if it lacks one."""

    @required
    def no_rows(self, variable):
        """Returns an empty sparse gradient of a variable."""

    @required
    def gather(self, variable, rows):
        """Returns rows of a variable or value: shape (len(rows),) + shape[1:]."""

    @required
    def rows_of(self, variable):
        """Returns how many rows a variable has, as a number or a value."""

    def filled(self, shape, number, dtype, variable):
        """Returns a value full of a number, or an array of numbers. A shape that is not known is the variable's."""
        return self.constant(np.full(shape, number), dtype)

    @required
    def iota(self, count):
        """Returns 0, 1, ..., count - 1 as int32."""

    @required
    def stack(self, numbers):
        """Returns some scalars as a vector."""

    @required
    def concat(self, values, axis):
        """Returns values of one dtype, concatenated along an axis."""

    @required
    def unique(self, rows):
        """Returns each of the rows once, in any order."""

    @required
    def sum_duplicates(self, values, indices):
        """Returns (sums, rows): each row once, with the sum of its values."""

    @required
    def scatter_to_dense(self, values, rows, count):
        """Returns zeros of shape (count,) + values.shape[1:] with the values at `rows`, which are distinct."""

    @required
    def rows_equal(self, marks, mark):
        """Returns the numbers of the rows whose mark equals `mark`, a scalar. `marks` has one mark for each row."""

    @required
    def largest(self, counts):
        """Returns the largest of some int64 counts; 0 if there are none. An int in eager code."""

    @required
    def repeat(self, count, body, values):
        """Runs `values = body(step, values)` for steps 0 to count - 1. Returns the last values, a list."""

    # Branches and order.

    def can_branch(self, variable):
        """Returns whether branches can write a variable."""
        return True

    def branch(self, predicate, yes, no, variables):
        """Runs one of two functions without arguments, which write some of `variables`. Returns operations."""
        return yes() if bool(predicate) else no()

    def values_if(self, predicate, yes, no):
        """Returns `yes()` if the predicate holds, else `no()`: lists of natives of the same shapes and dtypes."""
        return yes() if bool(predicate) else no()

    @required
    def choose(self, predicate, yes, no):
        """Returns `yes` if the predicate holds, else `no`: two computed values of equal shape and dtype."""

    @contextlib.contextmanager
    def after(self, operations):
        """Returns a context: what is built in it runs after these operations or values. Skips None."""
        yield

    def sum_of(self, values):
        """Returns the sum of a list of values, in order."""
        return sum(values[1:], values[0])

    def wait(self, value, operations):
        """Returns the value, which then waits for the operations."""
        return value

    def wait_for_loss(self, grads, loss):
        """Returns gradients that wait for the loss. Else a loss fetched with a step may be read after its writes."""
        return grads

    def barrier(self, values):
        """Returns an operation that runs after all values and gradients; None in eager code."""

    def group(self, operations):
        """Returns one operation for all; None in eager code."""

    def operations(self, done):
        """Returns a flat list of the operations in nested lists of results."""
        if isinstance(done, (list, tuple)):
            return [operation for part in done for operation in self.operations(part)]
        return [operation for operation in self.in_replicas(done) if operation is not None]

    @required
    def failure(self, message):
        """Returns an operation that fails when it runs."""

    def plain(self, function):
        """Returns the function, whose Python autograph and torch.compile then leave alone."""
        return function

    # Scopes, placing and replicas. Scopes are contexts.

    def computing(self):
        """Returns the scope that a step runs in."""
        return self.after(())

    def at(self, variable):
        """Returns a scope on the variable's device."""
        return self.after(())

    def outside(self):
        """Returns a scope outside of every branch, loop and function, for creating variables."""
        return self.after(())

    def at_once(self):
        """Returns a scope that creates variables eagerly, so that tf.function traces once."""
        return self.after(())

    def first_replica(self):
        """Returns a scope that creates variables that take the first replica's value when replicas write them."""
        return self.after(())

    def scope_of(self, variable):
        """Returns the scope of the strategy that a variable was created under, unless that is the active one."""
        return self.after(())

    def without_strategy(self):
        """Returns whether no strategy is active that copies or places variables."""
        return True

    def replicas(self):
        """Returns the number of replicas of the present strategy; 1 without one."""
        return 1

    def component(self, variable):
        """Returns the one variable that a strategy of one replica put into another; any other variable as it is."""
        return variable

    def distributed(self, variable):
        """Returns the variable of a strategy that a replica's copy belongs to; any other variable as it is."""
        return variable

    def replica(self):
        """Returns this replica's number, from 0; None in cross-replica context."""
        return 0

    def in_replicas(self, value):
        """Returns the value in each replica, as a sequence."""
        return (value,)

    def local(self, value):
        """Returns the value in the first replica."""
        return self.in_replicas(value)[0]

    def added_up(self, strategy, pairs):
        """Returns (gradient, variable) pairs with gradients summed over replicas. For cross-replica context."""
        return list(pairs)

    def mirrored(self, value):
        """Marks a value as equal in all replicas. Returns it."""
        return value

    # Lowering strategies: see compat/engine/lowering.py.

    def lowers(self, strategy):
        """Returns whether a lowering strategy, given by name, exists on this backend."""
        return False

    @required
    def is_since(self, version):
        """Returns whether the framework has this version or a newer one."""

    def in_session(self):
        """Returns whether code runs in a graph for a session, not eagerly or in a function."""
        return False

    def is_here(self, variable):
        """Returns whether a variable is on the step's device. In a session, False if the variable has a device set."""
        return True

    def device(self, variable):
        """Returns the name of a variable's device; "" if there is only one."""
        return ""

    def shares_variables(self):
        """Returns whether others may write the variables during a step, so that their writes must survive."""
        return False

    @required
    def operation(self, name, ref, by_rows):
        """Returns a fused operation for ref or resource variables, dense or on rows; None if it does not exist."""

    @required
    def kernel(self, operation, variable, slots, by_rows):
        """Returns a fused operation as a function of (variable, {argument: value}); None if it does not exist."""

    @required
    def cannot_compile(self, variable, forced, stock_compiles):
        """Returns why a variable's update is not compiled; "" if it is. stock_compiles: whether stock's is."""

    @required
    def compile(self, function, by_values):
        """Returns `function(variable, slots, grad, outside)`; by values, `function(natives)`; compiled by XLA."""

    @required
    def for_xla(self):
        """Returns the backend for what a compiled function runs: its sums of many elements are exact to the dtype."""

    def sum_of_squares(self, value):
        """Returns the sum of the squares of all elements."""
        return self.ops["sum"](self.ops["square"](value))

    def keeps_functions(self):
        """Returns whether eager steps may run as functions that are kept for the next call."""
        return False

    @required
    def parts(self, grad):
        """Returns the natives that make up a gradient, as a tuple."""

    @required
    def from_parts(self, natives, variable):
        """Returns the gradient that `parts` took apart."""

    @required
    def function(self, function, parts, shapes):
        """Returns `function(parts)` of the framework: tuples of natives like these, of wholes of these `shapes`."""

    @required
    def part(self, value, place):
        """Returns the rows place[0] to place[1] - 1 of a variable or value."""

    @required
    def write_part(self, variable, value, place):
        """Writes the rows place[0] to place[1] - 1 of a ref variable."""

    @required
    def concat_flat(self, values):
        """Returns a vector of all elements of some values of one dtype, concatenated."""

    @required
    def split(self, value, shapes):
        """Splits a vector into values of those shapes. The inverse of `concat_flat`."""

    # Values in and out, for capture and restore.

    def inside(self, variables):
        """Returns a scope inside of the variables' graph and strategy."""
        return self.after(())

    def session_for(self, variables, session, default):
        """Returns the session for the variables: this one, the default one or `default(variables)`; None if eager."""

    @required
    def values(self, variables, session):
        """Returns copies of variables' values, a list of NumPy arrays. Raises StateError if one has no value."""

    def start(self, variables, session):
        """Initializes new variables in a session."""

    @required
    def put(self, writes, session):
        """Sets variables. `writes` yields (variable, array to cast to its dtype, True if others hold the array)."""
