"""`NativeOptimizer`: the members of ours that the native class of every target has, one line each to `Bound`."""
from __future__ import absolute_import, division, print_function

from everstep.compat.targets import construction, copying, flushing, hypers
from everstep.compat.targets.bound import Bound

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments


class NativeOptimizer(object):
    """An optimizer of some framework that runs an everstep definition: the class of all that `bind` returns.

    >>> import numpy, everstep
    >>> isinstance(everstep.optimizers.Adam().bind(numpy), everstep.NativeOptimizer)
    True
    """

    definition_class = None  # type: Any
    native_base = None  # type: Any
    adapter_class = None  # type: Any

    def __init__(self, *args, **kwargs):
        before = set(vars(self))
        vars(self)["_bound"] = bound = Bound(self, super(NativeOptimizer, self), args, kwargs)
        construction.start(bound, kwargs)
        bound.base_attributes = set(vars(self)) - before

    @classmethod
    def from_definition(cls, definition, **native):
        return cls(definition=definition, **native)

    @property
    def definition(self):
        """The bound definition, with the hypers as they were given."""
        return self._bound.definition

    @property
    def steps(self):
        """The counter of all steps, including those that do not update."""
        return self._bound.steps

    def get_slot(self, variable, name):
        """Returns the variable or array that holds a slot.

        Args:
            variable: a variable that this optimizer trains.
            name: the flat name of the slot, such as "m" or "lookahead/slow".

        Returns:
            The slot itself, not a copy. On `tf.train` None if this optimizer does not train the variable, as in stock.

        Raises:
            SlotError: there is no such slot, or it does not exist yet.
        """
        return self._bound.slot_of(variable, name)

    def scale_loss(self, loss):
        """Returns the loss to differentiate: multiplied by the loss scale if the definition has one.

        `everstep.loss_scale` divides the gradients by the same scale. `minimize`, `compute_gradients`, `get_updates`
        and `fit` call this method themselves; call it in a training loop of your own.

        Args:
            loss: a tensor, a number, or a function without arguments that returns one.

        Returns:
            The scaled loss: a function if `loss` is one, else a tensor or number. `loss` itself without a loss scale.

        Raises:
            UnsupportedError: Keras 3 on JAX, in a function of jax.jit, outside of `keras.StatelessScope`.
        """
        return self._bound.adapter.scale_loss(loss)

    def flush(self, variables=None):
        """Finishes the pending work of earlier steps. Call it before evaluation or a checkpoint.

        First, an open accumulation window makes its update, as if it were full: `everstep.accumulate` uses the mean (or
        sum) of the steps so far. Then, with `sparse="catch_up"`, every row is brought up to date. If no work is
        pending, nothing changes and nothing is counted.

        Args:
            variables: a list of variables. Default: all that this optimizer has trained. An open window takes all of
                its variables in one call.

        Returns:
            In a graph, the operation to run. In eager code None; the work is done.

        Raises:
            SlotError: the optimizer has no slots for one of the variables yet.
            UnsupportedError: an accumulation window is open for other variables than these.
        """
        return flushing.flush(self._bound, variables)

    def catch_up(self, variable, rows):
        """Brings rows up to date before a batch reads them. Does nothing without `sparse="catch_up"`.

        Args:
            variable: the embedding table.
            rows: row numbers, integers of any shape, repeated or not.

        Returns:
            In a graph, the operation to run before the rows are looked up. In eager code None; the work is done.

        Raises:
            SlotError: the optimizer has no slots for the variable yet.
            GradientError: the variable has no such row. In a graph the operation fails instead.
        """
        return flushing.catch_up(self._bound, variable, rows)

    def everstep_plan(self):
        """Returns how each variable trained so far is updated, and why no faster strategy was chosen.

        Returns:
            A list of namedtuples (name, shape, gradient, strategy, why), one for each variable and kind of gradient.
            gradient: "dense" or "sparse". strategy: one of the strategies in docs/strategies.md. why: a string with the
            reasons why faster strategies were rejected.
        """
        return self._bound.lowerings.plan()

    def __getattr__(self, name):
        bound = vars(self).get("_bound")
        # Copying and pickling ask for members before there is an optimizer, and base classes for their own.
        if bound is None or not bound.started and name not in bound.hyper_names:
            raise AttributeError(name)
        return hypers.attribute_of(bound, name)

    def __setattr__(self, name, value):
        bound = vars(self).get("_bound")
        is_native = bound is None or not bound.started and name not in bound.hyper_names
        if is_native or not hypers.assign(bound, name, value):
            super(NativeOptimizer, self).__setattr__(name, value)

    def __dir__(self):
        inherited = getattr(super(NativeOptimizer, self), "__dir__", None)  # Python 2 has none
        names = inherited() if inherited else dir(type(self)) + list(vars(self))
        return sorted(set(names).union(self._bound.hyper_names))

    def __repr__(self):
        return copying.shown(self._bound)

    def __copy__(self):
        return copying.shallow(self._bound)

    def __deepcopy__(self, memo):
        return copying.deep(self._bound, memo)

    def __reduce__(self):
        return copying.parts(self._bound, self._bound.adapter.exclusions(False))

    def __reduce_ex__(self, protocol):
        return self.__reduce__()

    def __setstate__(self, state):
        self._bound.adapter.carries.keep(self._bound, state)
