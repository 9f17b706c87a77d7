"""`Definition`, the base class of all optimizers. It is the contract between an optimizer and the engine."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict, namedtuple

from everstep.errors import DefinitionError, NotBoundError
from everstep.optimizers.contract.binder import binder
from everstep.optimizers.contract.configured import Configured, once
from everstep.optimizers.contract.declarations import option
from everstep.optimizers.contract.instances import NATIVE, InstanceMethod
from everstep.optimizers.contract.refreshing import check_refreshes

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

# The record of a variable that `specialize` gets. name: without `:0`; shape: the full shape, a tuple; dtype: its name,
# such as "float32"; index: its place in the list, from 0; collections: the names of the TF 1 graph collections that it
# is in, else (); native: the framework's own object, which must not be written to.
Variable = namedtuple("Variable", "name shape dtype index collections native")


class assign(namedtuple("assign", "value")):
    """The variable's new value, for `update` to return instead of a value to subtract from the variable."""


class total(namedtuple("total", "value")):
    """A sum over all variables, for `measure` to return instead of a sum for each variable."""


class Definition(Configured):
    """Base class of all optimizers. A subclass declares hypers, options, slots and scalars, and writes `update`.

    >>> import everstep
    >>> class Sign(everstep.Definition):
    ...     learning_rate = everstep.hyper(0.1)
    ...     def update(self, ops, grad, var, slots, hyper, t):
    ...         return hyper.learning_rate * ops.sign(grad), {}
    >>> Sign(0.5)
    <everstep definition Sign(learning_rate=0.5): bind(module) makes an optimizer of it>

    The constructor is made from the declarations: its arguments are the hypers and options, in the order of the class
    body. A definition never changes once it is built. `replace` returns a changed copy, `bind` a native optimizer.

    The methods that take `ops` are the verbs. They are pure functions, and only `update` is required. One step of the
    optimizer calls those that the class overrides, in this order:

        loss_scale         once, before gradients are taken of the loss
        measure            for each variable that has a gradient
        should_update      once
        should_accept      once
        reject             once; its results are kept if the step is not accepted
        advance            once; its results are kept if the step updates
        collect            for each variable; its results are kept if the step is accepted
        fast_forward       for each variable, with `sparse="catch_up"`, for rows that missed updates
        update             for each variable; its results are kept if the step updates

    `specialize` runs before all of them, once for each variable. `evaluation_value` runs outside of steps, in
    `everstep.averaged`. Counters move last.

    Verbs run before there are numbers, as a function under `tf.function` does, and once for all variables of a shape:
    later steps compute what they returned. So they depend on arguments and options alone, not on Python state. Python's
    arithmetic, comparisons and `& | ~` work on their arguments. Everything else is an op: `ops.where` instead of `if`,
    `ops.sqrt` instead of `numpy.sqrt`, `ops.equal` instead of `==`. `float()` is an error. Read options
    from `self`, and all the rest from the arguments:

        ops      abs all any arange cast cholesky clip concat cos eigh einsum equal exp eye floor isfinite log
                 logical_and logical_not logical_or matmul max maximum mean min minimum norm ones_like outer pow qr
                 random_normal random_uniform reshape rsqrt sigmoid sign sin solve sqrt square sum svd tanh transpose
                 where zeros_like as in NumPy and numpy.linalg, and `cast(value, "float32")`. `value[1:3, 0]` is a part.
                 docs/numbers.md has random numbers, factors of matrices, and which ops need a whole variable.
        grad     The gradient: a float array of the variable's shape. A sparse gradient may come as its n rows alone,
                 shape (n,) + shape[1:]; equal rows are added up before.
        var      The variable's value, in the shape of grad: whole, or the same n rows. As grad and slots it has
                 `dtype`, `shape` and `ndim`; n is None in a shape.
        slots    `slots.NAME` for each slot of the variable, in its declared shape. If the first dimension is the
                 variable's, it has the same rows as grad.
        hyper    `hyper.NAME` for each hyper and scalar, and for each sum that `measure` returned; schedules are
                 evaluated before. `hyper.updates` is the number of updates so far. `hyper.pending` is the number of
                 steps since the last update, this one included. Each is a single number. See t for counts.
                 `measure` and `update` also have `hyper.row_number` and `hyper.place_in_row` (int32): the number of
                 each row in the whole variable, shape (n, 1, ..., 1), and of each element in its row.
        t        The number of this update: 1.0 at the first, a single number. t, `hyper.updates` and `hyper.pending`
                 know their integer, up to 2^53. With whole numbers `+ - * % // < <= > >=`, `ops.equal`, minimum and
                 maximum are exact, and so is `ops.floor(t / 6)`: use them for periods. With other values t is a float.
        scalars  `scalars.NAME` for each scalar: its value before this step, a single number.

    All are of the compute dtype: float32 for variables of float16 and bfloat16, else the variable's own dtype. In
    verbs that run once a step it is float32. In a wrapper, `slots.inner.NAME` and `hyper.inner.NAME` are the child's.

    Args:
        sparse: what a sparse gradient does to the rows that it does not have. "exact" (default): the same as the dense
            gradient with zeros there. "rows": nothing. "catch_up": nothing until the row next gets a gradient, which
            first takes the steps that it missed; the result of "exact" at the cost of the rows present.
            "variable_rows": slots change as in "exact", the variable does not, as in TensorFlow's stock Nadam. See
            docs/sparse.md. Keyword only, as is dense_ok.
        dense_ok: True to allow other values of sparse than "exact" on backends that never have sparse gradients (JAX,
            torch). Default False.

    Raises:
        DefinitionError: an argument is missing or unknown, or the class has no `update`.
        HyperTypeError: an argument is of the wrong type.
        HyperValueError: an argument is outside of its bounds, or is not one of its choices.
        RuleError: a verb breaks the contract. Building a definition runs it on small NumPy arrays, once for each set of
            options.
        UnknownOpError: a verb uses an op that is not listed above.

    Class attributes:
        locality: what an element's update depends on. "element" (default): on that element alone. "row": on its row,
            an index of the first dimension. "variable": on the whole variable. Ops that reduce (`sum`, `mean`, ...) in
            `update` and `collect` need "row", or "variable" if over axis 0, as `matmul` and `transpose` do.
        zero_grad_is_noop: True if a zero gradient changes neither the variable nor its slots. `sparse="exact"` then
            costs as much as "rows". Default False. It may be a property that reads options.
        stages: the number of gradients of one batch that an update takes. Default 1. If it is more, `update` runs at
            each of them, `hyper.pending` counts them from 1, and the last one counts as the update. See
            everstep.optimizers.Multistage.
        max_replay_steps: how many missed steps `sparse="catch_up"` replays one by one before it uses `fast_forward`.
            Default 200; 0 if `fast_forward` holds for all of them. It may be a property that reads options.
        kernel: `everstep.kernel(name)` if `update` is a rule that frameworks have fused kernels for. Default None.
        dry_run: False if the rule cannot run on the small float32 arrays on which every new definition is checked.
            Default True.
        family: the heading of the definition in `everstep list`. Default "other".
    """

    kind = "definition"
    verbs = tuple(
        "specialize loss_scale measure should_accept collect should_update advance reject update fast_forward "
        "evaluation_value".split()
    )
    keyword_only = ("sparse", "dense_ok")  # type: tuple[str, ...]
    hints = {
        "lr": "lr is called learning_rate on every target",
        "decay": "decay means another thing on each API: give the learning rate as a schedule, such as "
        "everstep.InverseTimeDecay(0.01, rate=1e-4), or wrap, as in everstep.rate_decay(definition, 1e-4)",
    }
    prefix = ""
    locality = "element"
    zero_grad_is_noop = False
    stages = 1
    max_replay_steps = 200
    kernel = None  # type: Any  # or `everstep.kernel(name)`
    dry_run = True
    family = "other"

    sparse = option("exact", choices=("exact", "rows", "catch_up", "variable_rows"))
    dense_ok = option(False)

    def _check(self):
        if self.refresh_methods:
            check_refreshes(self)
        binder.check(self)

    # The verbs. All are pure functions.

    def specialize(self, variable):
        """Returns the rule for one variable. Called once for each variable, before its slots are made.

        Args:
            variable: an `everstep.Variable`: name (without `:0`), shape (a tuple), dtype ("float32"), index (from 0),
                collections (of a TF 1 graph, else empty) and native (the framework's object; do not write to it).

        Returns:
            This definition, or `self.replace(...)` with other options. It must have the same hypers, with the same
            values, and the same scalars: the optimizer has one of each for all variables.
        """
        return self

    def loss_scale(self, ops, hyper):
        """Returns the loss scale: one float32 that multiplies the loss before gradients are computed. Default 1.

        The verbs have to divide gradients by it. It is called before the step, when `minimize`, `fit` or
        `optimizer.scale_loss(loss)` scales the loss.

        Args:
            ops: the operations, see `everstep.Definition`.
            hyper: the hypers and scalars, `updates` and `pending`.
        """
        return 1.0

    def measure(self, ops, grad, var, slots, hyper):
        """Returns sums over a variable, which the later verbs of the step see as `hyper.NAME`.

        Called first in each step, for each variable that has a gradient. A sparse gradient is measured on its rows
        alone; with `collect` or `stages`, on the rows of all steps since the last update, or on the whole variable.

        Args:
            ops: the operations, see `everstep.Definition`.
            grad: the gradient, shape of the variable or (n,) + shape[1:].
            var: the variable's value, same shape.
            slots: its slots, before this step.
            hyper: the hypers, the scalars before this step, `updates`, `pending`, `row_number` and `place_in_row`.

        Returns:
            `{name: sum}`, with single numbers. A plain sum belongs to the variable: only its own `collect` and
            `update` see it. `everstep.total(sum)` is added up over all variables, in float32, and all verbs see it.
            A name must be neither declared nor reserved. The parts of a partitioned variable are added up, so return
            sums, not means.
        """
        return {}

    def should_accept(self, ops, hyper):
        """Returns whether this step's gradients are used: a single bool, by default True.

        If not, the step changes nothing but the scalars that `reject` returns. It counts neither as an update nor in
        `hyper.pending`. Called once a step, after `measure`.

        Args:
            ops: the operations, see `everstep.Definition`.
            hyper: the hypers, the scalars before this step, totals of `measure`, `updates` and `pending`.
        """
        return True

    def collect(self, ops, grad, slots, hyper):
        """Returns `{name: new slot}` from this step's gradient, kept whether or not the step updates.

        Called for each variable, before `update`, which sees the new slots. They are kept if the step is accepted.
        Slots that are left out stay as they are.

        Args:
            ops: the operations, see `everstep.Definition`.
            grad: the gradient, shape of the variable or (n,) + shape[1:].
            slots: the variable's slots, before this step.
            hyper: the hypers, the scalars before this step, sums of `measure`, `updates` and `pending`.
        """
        return {}

    def should_update(self, ops, hyper):
        """Returns whether this step updates: a single bool, by default `hyper.pending >= stages`.

        Called once a step, after `measure`. A step that is not accepted does not update either.

        Args:
            ops: the operations, see `everstep.Definition`.
            hyper: the hypers, the scalars before this step, totals of `measure`, `updates` (so far) and `pending`
                (steps since the last update, this one included).
        """
        return self.stages == 1 or hyper.pending >= self.stages

    def advance(self, ops, scalars, hyper, t):
        """Returns `{name: new value}` of every scalar, kept if the step updates.

        Called once a step, after `should_update` and `should_accept`. `update` sees the new values as `hyper.NAME`.

        Args:
            ops: the operations, see `everstep.Definition`.
            scalars: the scalars before this step, float32.
            hyper: the hypers, the scalars before this step, totals of `measure`, `updates` and `pending`.
            t: the number of this update, from 1.0.
        """
        return {}

    def reject(self, ops, scalars, hyper):
        """Returns `{name: new value}` of scalars, kept if the step is not accepted.

        Called once a step, if `should_accept` is defined. Scalars that are left out stay as they are.

        Args:
            ops: the operations, see `everstep.Definition`.
            scalars: the scalars before this step, float32.
            hyper: the hypers, the scalars before this step, totals of `measure`, `updates` and `pending`.
        """
        return {}

    def update(self, ops, grad, var, slots, hyper, t):
        """Returns what to subtract from the variable, and its new slots. The only verb that a rule must define.

        Called for each variable that has a gradient, after `advance` and `collect`. The results are kept if the step
        updates; with `stages`, at each step. With `sparse="catch_up"` it also replays the updates that rows missed,
        with a zero gradient. Then t and hyper have one number for each row, shape (n, 1, ..., 1), and hyper has only
        hypers, scalars, `updates` and `pending`, which is 1.

        Args:
            ops: the operations, see `everstep.Definition`.
            grad: the gradient, shape of the variable or (n,) + shape[1:].
            var: the variable's value, same shape.
            slots: the variable's slots, as `collect` left them.
            hyper: the hypers, the scalars after `advance`, sums of `measure`, `updates`, `pending`, `row_number` and
                `place_in_row`.
            t: the number of this update, from 1.0: for bias corrections.

        Returns:
            (change, `{name: new slot}`). The variable becomes var - change, or the value of `everstep.assign(value)`.
            Both have var's shape or broadcast to it. Each declared slot is returned here or by `collect`.

        Raises:
            DefinitionError: the class does not define it.
        """
        raise DefinitionError(
            "{} must define update(self, ops, grad, var, slots, hyper, t)".format(type(self).__name__))

    def fast_forward(self, ops, var, slots, hyper, steps):
        """Returns what `steps` updates with a zero gradient do together: a closed form, for `sparse="catch_up"`.

        Called for rows that missed updates, after `update` has replayed up to `max_replay_steps` of these. If the form
        holds for all of them, set `max_replay_steps = 0`: then a row's cost does not depend on how many it missed.
        Without a form, the updates that were not replayed are dropped.

        `steps` also gives sums over the missed updates, read from a table that each step adds to. In the arguments of
        these methods, `hyper` and `hyper.updates` have the values of each missed update; elsewhere those of the last:

            steps.product(factor)       The product of a factor, such as hyper.beta_1. Inside `sum` and `quotient`, the
                                        product until that missed update, inclusive.
            steps.decay(share)          1 - the product of 1 - share: what decays by `share` take off in all.
            steps.sum(term, fade)       The sum of a term. If it holds a product, `fade` is the share of its term that
                                        the next update has, such as hyper.beta_1: below 1e-10 the sum ends, or after
                                        4,095 updates. Without `fade` it is the latter.
            steps.quotient(weight, left, root, epsilon, fade, shrink, scale)
                                        The sum of weight / (left * root + scale * epsilon), to 3e-8; `root` is an
                                        array. `fade` and `shrink`: the next weight and left, divided by these. If no
                                        table can give it, 200 updates are replayed, and it is 0. scale: default 1.
            steps.decayed(share)        The same methods, for changes of a variable that each missed update also decays
                                        by `share`, before the change. With after=True, after it.
            steps.slowed(pace)          The same methods, with decays multiplied by a pace.
            steps.rest_first()          Says that the form holds only once the row has come to rest: at least 200
                                        updates are replayed. `steps.rests_first` is whether that was said.

        Momentum, for example: `slots.m * steps.sum(hyper.learning_rate * steps.product(hyper.beta_1), hyper.beta_1)`.
        A subclass or wrapper that overrides `update` but not this method replays 200 updates by its `update` first.

        Args:
            ops: the operations, see `everstep.Definition`.
            var: the rows' values, shape (n,) + shape[1:].
            slots: the rows' slots.
            hyper: the hypers and scalars of the last update, `updates` before it, and `pending`, which is 1.
            steps: the number of updates still missing, shape (n, 1, ..., 1), in the compute dtype. It may be 0, for
                which nothing may change.

        Returns:
            (change, `{name: new slot}`), as `update` does. Slots that are left out stay as they are.
        """
        return 0.0, {}

    def evaluation_value(self, ops, var, slots, hyper):
        """Returns the array with which a variable is evaluated and exported, such as its average. Default: its value.

        Called by `everstep.averaged` and `everstep.assign_averages`, outside of steps.

        Args:
            ops: the operations on NumPy arrays.
            var: the whole variable, a NumPy array.
            slots: its whole slots, NumPy arrays.
            hyper: the present hypers alone.
        """
        return var

    @property
    def without_grad(self):
        """Returns the definition that a missed step runs, for `sparse="catch_up"`.

        A wrapper that only changes gradients returns its `inner`.
        """
        return self

    def has_slot(self, name):
        """Returns whether a slot exists, by the `when` of its declaration. A rule with several forms asks it.

        Args:
            name: the name of a declared slot.
        """
        return self.declarations[name].exists(self)

    # The tree.

    def children(self):
        """Returns `{name: definition}` of the definitions inside this one, in the order of the class body."""
        return once(self, "children", self._children)

    def _children(self):
        return OrderedDict((n, self._values[n]) for n in self.declared_order if self.declarations[n].kind == "child")

    def active(self):
        """Returns the children that update the variable that this was specialized for. Only their slots exist."""
        return self.children()

    def check_variables(self, records):
        """Checks the variables of the first step, before anything is made. Raises DefinitionError if they do not fit.

        Args:
            records: a list of `everstep.Variable`, one for each variable.
        """

    @property
    def base(self):
        """Returns the innermost rule of a chain of wrappers; the definition itself if it has no child, or several."""
        children = list(self.children().values())
        return children[0].base if len(children) == 1 else self

    # Native optimizers.

    @InstanceMethod
    def bind(self, module=None, **native):
        """Returns a native optimizer that does what this definition says, for the API that a module belongs to.

        Args:
            module: always needed: the module you import, `tf.train`, `tf.keras`, `keras`, `tf_keras.optimizers.legacy`,
                `torch.optim`, `optax`, `numpy`, ...
            **native: keywords of the native base class, docs/native_keywords.md: `name`, `clipnorm`, `use_locking`,
                `params` of `torch.optim`, which is required; `axis_name` of optax. If the API's optimizers take
                gradients of a loss (tf.train, OptimizerV2, Keras 2), also `gradients`: a function (loss, variables) ->
                a gradient, IndexedSlices or None for each variable. `minimize`, `compute_gradients` and, in graphs,
                `fit` call it instead of differentiating. A config cannot hold it, so load with `compile=False`.

        Returns:
            An instance of that module's own `Optimizer` class.

        Raises:
            TargetError: the module belongs to no known API. The message lists what was looked for.
            DefinitionError: a native keyword is unknown, or clashes with the definition.
        """
        return self.native_class(module).from_definition(self, **native)

    @InstanceMethod
    def to_native_config(self, module=None):
        """Returns the config of the stock optimizer that does the same, for the API that a module belongs to.

        Args:
            module: always needed, as for `bind`.

        Returns:
            `{"class_name": ..., "config": ...}`. The config holds the constructor's arguments.

        Raises:
            UnsupportedError: no stock optimizer of that API does the same. The message says what stands in the way.
        """
        return binder.to_native_config(self, module)

    @classmethod
    def native_class(cls, module=None):
        """Returns the class of the optimizers that `bind(module)` returns.

        Args:
            module: always needed, as for `bind`.

        Returns:
            A subclass of that module's `Optimizer`. Its constructor takes this definition's arguments as well as the
            native keywords.
        """
        return binder.native_class(cls, module)

    def __getattr__(self, name):
        if name in NATIVE:
            raise NotBoundError(
                "{} is an everstep definition, not an optimizer of any framework, so it has no {!r}. Bind it to the "
                "module you train with first: {}(...).bind(tf.keras)".format(self._short(), name, type(self).__name__)
            )
        raise AttributeError("{} has no attribute {!r}".format(type(self).__name__, name))

    def __repr__(self):
        return "<everstep definition {}: bind(module) makes an optimizer of it>".format(self._short())
