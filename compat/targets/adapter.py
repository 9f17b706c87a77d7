"""The contract of an adapter: all that the engine, `Bound` and `compat/checkpoints` ask of one native API.

A target is two classes. The native class has the API's own methods (minimize, apply_gradients, get_updates, hooks), one
line each. The adapter has the code; `Bound` holds it, and it holds `Bound`. It has no native base class, so that no
name of ours can meet one of the API's. `bound.base` calls the native base class's own methods.
"""
from __future__ import absolute_import, division, print_function

import functools

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments


def required(member):
    """Marks a member that each adapter defines."""

    @functools.wraps(member)
    def missing(self, *args, **kwargs):
        raise NotImplementedError("the adapter of {} has no {}".format(self.target, member.__name__))

    vars(missing)["is_required"] = True
    return missing


class Adapter(object):
    """What is different from API to API. Adapters define the required members in this order.

    A `variable` argument is the object that the user passes. Names of hypers, scalars and slots are flat, see
    optimizers/contract/trees.py.

    Attributes:
        bound: the `Bound` that this adapter belongs to.
        native, base, backend: those of `bound`.
    """

    # Facts.

    target = ""  # the target's name
    works_on = ""  # the modules that it supports, in words for error messages
    native_class = None  # type: Any  # the class with the API's methods, before it has a base class
    unsupported = ()  # type: tuple[Any, ...]  # `Unsupported` records, in the order of the README's table
    stock_members = {}  # type: dict[str, Any]  # `{name: StockMember}`: attributes of stock that people's code reads
    stock_hypers = ("learning_rate", "lr", "weight_decay")  # type: Any  # base class attributes that stock has as hypers
    moved_natively = ()  # type: tuple[str, ...]  # names of the counters that the base class increments itself
    takes_gradients = False  # whether this API's optimizers compute gradients of a loss
    casts_gradients = False  # whether this API takes gradients of another precision than their variable's
    ascends = True  # whether stock takes a negative learning rate
    sets_hypers = True  # whether hypers can be set after construction
    holds_state = True  # whether the native object holds its counters and slots; else the caller does
    has_slots = ""  # when slots exist, in words for an error message
    knows_no_slot = False  # whether get_slot gives None for a variable that the optimizer does not train, as in stock
    is_fused = True  # whether this API's own optimizers run fused kernels
    carries = None  # type: Any  # how copies and pickles keep slots: a class, see `compat/targets/copying.py`
    copies_deeply = False  # whether copy.copy makes a deep copy, as in stock
    # A function of (native class, args, kwargs) that returns the definition's own `args` of those of the native
    # class, and changes `kwargs`; None if they are the same.
    respelled = None  # type: Any
    lane_of = None  # type: Any  # a function of a variable, or of None for all, that returns its `Lane`; None without lanes
    groups = None  # type: Any  # the `Groups` of an API whose variables have hypers by group

    backend = None  # type: Any  # the same as of `bound`

    def __init__(self, bound):
        self.bound, self.native, self.base = bound, bound.native, bound.base

    def use(self, backend):
        """Sets the backend that computes."""
        self.backend = self.bound.backend = backend

    # Construction and config.

    @classmethod
    @required
    def base_class(cls, optimizer, module):
        """Returns the native base class, given the module's Adam or SGD class."""

    @classmethod
    @required
    def entries(cls, base):
        """Returns the names of methods that a user calls inside tf.function, which autograph shall not rewrite."""

    @classmethod
    @required
    def schedules(cls, base):
        """Returns the native module of schedules; None if the API has none."""

    @classmethod
    @required
    def native_keywords(cls, config):
        """Returns the keywords of `bind` in what is left of a native config without the definition."""

    @required
    def start(self, name=None, **native):
        """Makes the backend, hypers, counters and scalars, and calls the base class's constructor."""

    # Hypers. A fourth verb, `bound.given(name)`, returns what the definition was given.

    @required
    def present(self, name):
        """Returns the value that a step uses: a number, a scalar tensor, a function of one or an everstep.Schedule."""

    @required
    def read(self, name):
        """Returns the variable that holds the value, or the value that the definition was given."""

    @required
    def set(self, name, value):
        """Sets it to `hypers.check(bound, name, value)`, or raises HyperValueError."""

    @required
    def number(self, name, value):
        """Returns what `read` gave as a number for a config. Raises any error if it has none here."""

    def stock_compiles(self):
        """Returns whether XLA compiles stock's steps: new-style optimizers say so, where there is a GPU."""
        return bool(vars(self.native).get("jit_compile"))

    # Counters and scalars.

    @required
    def counter(self, name):
        """Returns the native variable of a counter, a scalar int64."""

    @required
    def scalar(self, name):
        """Returns the native variable of a scalar, float32."""

    @required
    def own_variables(self):
        """Returns `{name: variable}` of the counters and scalars that exist."""

    @required
    def counted_elsewhere(self):
        """Returns the variable that counts updates if the optimizer has no counter, or None."""

    @required
    def calls_per_update(self):
        """Returns the amount that the counter of updates grows by per update."""

    # Variables and slots.

    @required
    def find_key(self, variable):
        """Returns a hashable key, equal for a variable's copies on all replicas."""

    @required
    def variable_name(self, variable):
        """Returns the name without `:0`."""

    @required
    def state_name(self, variable, index):
        """Returns the variable's name in a State; `index` is its position in the user's list."""

    @required
    def unwrap(self, variable):
        """Returns the native variable that the backend works on."""

    @required
    def collections(self, variable):
        """Returns the names of the graph collections that contain it."""

    @required
    def parts(self, variable):
        """Returns the parts of a partitioned variable, or a list of the variable itself."""

    @required
    def place(self, variable):
        """Returns the `Place` of a part or of a part's slot; None for anything else."""

    @required
    def decays(self, record):
        """Returns False for a variable that the user excludes from weight decay."""

    @required
    def find_slot(self, variable, name):
        """Returns the variable that holds a slot, or None."""

    @required
    def other_slots(self, variable):
        """Returns the names of the slots of a variable that the user's class adds."""

    @required
    def get_slot(self, variable, name):
        """Returns the slot as the user sees it, or raises SlotError."""

    # State.

    @required
    def check_variable(self, variable):
        """Raises VariableError for a variable that the target cannot train."""

    @required
    def make_state(self, variables):
        """Creates missing counters, scalars and slots; returns a list of any other variables that it created."""

    @required
    def default_session(self, variables):
        """Returns the session to use if the user gives none and the graph has no default one; or None."""

    @required
    def not_carried(self):
        """Returns the reason why a State would be incomplete now, or None."""

    # Copies.

    @required
    def trained(self):
        """Returns a list of the variables that have state, in order."""

    @required
    def copied_variable(self, variable, memo):
        """Returns the variable that a deep copy trains."""

    @required
    def exclusions(self, same_variables):
        """Returns what tells a copy which variables have no weight decay; None if all have. A copy `exclude`s it.

        Args:
            same_variables: True if the copy trains the same variables.
        """

    # The step.

    @required
    def scale_loss(self, loss):
        """Returns the loss to differentiate."""

    @required
    def update(self, variable, function, grad):
        """Calls `function(variable, grad)` where the variable lives; returns operations."""

    @required
    def constrain(self, variable, write):
        """Returns the operation `write`, followed by the variable's constraint."""

    @required
    def native_decay(self, variable):
        """Returns the base class's weight decay for a variable, or None. It is multiplied by the learning rate."""

    @required
    def take_flush(self, variables):
        """Runs the update of an open accumulation window; returns operations."""


class InOneProcess(Adapter):
    """Adapters of APIs whose variables are whole and on one process's devices, and whose classes add no slots."""

    def unwrap(self, variable):
        return variable

    def collections(self, variable):
        return ()

    def parts(self, variable):
        return [variable]

    def place(self, variable):
        return None

    def decays(self, record):
        return True

    def other_slots(self, variable):
        return []
