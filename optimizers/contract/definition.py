"""The contract: what an optimizer is, whatever framework runs it."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict, namedtuple

from everstep.errors import DefinitionError, NotBoundError
from everstep.optimizers.contract.binder import binder
from everstep.optimizers.contract.configured import Configured, once
from everstep.optimizers.contract.declarations import option

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

# What `specialize` is told of a variable: its name without `:0`, its whole shape, the dtype's name, its place in
# the list, the graph collections it is in, and the framework's own object (not to be written to).
Variable = namedtuple("Variable", "name shape dtype index collections native")


class assign(namedtuple("assign", "value")):
    """What `update` returns where the variable's new value matters, not what to subtract from it."""


class total(namedtuple("total", "value")):
    """What `measure` returns for a sum that is added over all variables, not for each by itself."""


# What people call on a native optimizer: asking a definition for one means that `.bind` was forgotten.
_NATIVE = frozenset(
    "minimize compute_gradients apply_gradients get_updates get_gradients get_slot get_slot_names get_weights "
    "set_weights weights variables iterations lr apply stateless_apply update_step build".split()
)


class Definition(Configured):
    """Base class of all optimizers: declare hypers, options, slots and scalars, and write `update`.

    >>> import everstep
    >>> class Sign(everstep.Definition):
    ...     learning_rate = everstep.hyper(0.1)
    ...     def update(self, ops, grad, var, slots, hyper, t):
    ...         return hyper.learning_rate * ops.sign(grad), {}
    >>> Sign(0.5)
    <everstep definition Sign(learning_rate=0.5): bind(module) makes an optimizer of it>

    Every definition also takes `sparse="exact"` (a sparse gradient does what the dense one with zeros elsewhere
    would do), `"rows"` (only the rows present change), `"catch_up"` (a row first takes the steps that it missed: what
    exact does, at the cost of the rows present; see docs/sparse.md) or `"variable_rows"` (slots as exact, and of the
    variable only the rows present: what stock Nadam of TensorFlow does), and `dense_ok=True` for backends that never
    have sparse gradients.

    Class attributes:
        locality: "element" (default), "row" (each row of the first dimension by itself) or "variable" (needs the
            whole variable).
        zero_grad_is_noop: True if a zero gradient changes neither the variable nor its slots. `exact` then costs as
            much as the rows present. It may be a property that reads options.
        stages: how many gradients of one batch an update takes; 1. Where it is more, `update` runs at each of them,
            `hyper.pending` says which it is, and the last one counts: see everstep.optimizers.Multistage.
        max_replay_steps: how many missed steps `sparse="catch_up"` replays one by one before it uses `fast_forward`.
            Default 200. It may be a property that reads options.
        kernel: `everstep.kernel(name)`, where `update` is a well-known rule that frameworks have fused kernels for.
        family: the heading that it stands under in `everstep list`.
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
        "everstep.InverseTimeDecay(0.01, rate=1e-4)",
    }
    prefix = ""
    locality = "element"
    zero_grad_is_noop = False
    stages = 1
    max_replay_steps = 200
    kernel = None  # type: Any  # or `everstep.kernel(name)`
    dry_run = True  # whether the rule runs on the float32 arrays that everstep tries it on
    family = "other"

    sparse = option("exact", choices=("exact", "rows", "catch_up", "variable_rows"))
    dense_ok = option(False)

    def _check(self):
        binder.check(self)

    # The verbs, in the order in which the engine calls them. All are pure functions of values.

    def specialize(self, variable):
        """The rule for one variable (a `Variable` record): this one, or a copy with other options."""
        return self

    def loss_scale(self, ops, hyper):
        """What the loss was multiplied with before gradients were taken of it: 1, or a value of step-wide ones."""
        return 1.0

    def measure(self, ops, grad, var, slots, hyper):
        """`{name: sum}` over the rows present, seen later as `hyper.NAME`; `total(sum)` adds over all variables."""
        return {}

    def should_accept(self, ops, hyper):
        """Whether this step's gradients are taken. If not it changes nothing but scalars, and neither counts as an
        update nor as one of the steps to the next."""
        return True

    def collect(self, ops, grad, slots, hyper):
        """New slots from this step's gradient, kept whether or not the step updates."""
        return {}

    def should_update(self, ops, hyper):
        """Whether this step updates. `hyper.pending` counts the steps since the last update, this one included, and
        `hyper.updates` the updates so far."""
        return self.stages == 1 or hyper.pending >= self.stages

    def advance(self, ops, scalars, hyper, t):
        """The scalars' new values, once per update; `update` sees them as `hyper.NAME`."""
        return {}

    def reject(self, ops, scalars, hyper):
        """The scalars' new values after a step that was not accepted."""
        return {}

    def update(self, ops, grad, var, slots, hyper, t):
        """What to subtract from the variable (or `assign(new value)`), and `{name: new slot}`. t is 1.0 at first."""
        raise DefinitionError(
            "{} must define update(self, ops, grad, var, slots, hyper, t)".format(type(self).__name__)
        )

    def fast_forward(self, ops, var, slots, hyper, steps):
        """What `update` would return of `steps` zero gradients together: the closed form, for `sparse="catch_up"`."""
        return 0.0, {}

    def evaluation_value(self, ops, var, slots, hyper):
        """What the variable is evaluated and exported with, where not itself: what `everstep.averaged` puts there."""
        return var

    @property
    def without_grad(self):
        """The definition that a step without a gradient runs."""
        return self

    def has_slot(self, name):
        """Whether a slot exists, by its declaration's `when`; what a rule asks that has more than one form."""
        return self.declarations[name].exists(self)

    # The tree.

    def children(self):
        """`{name: definition}` of the definitions that this one is made of."""
        return once(self, "children", self._children)

    def _children(self):
        return OrderedDict((n, self._values[n]) for n in self.declared_order if self.declarations[n].kind == "child")

    def active(self):
        """The children that have a part in the variable that this was specialized for: their slots exist."""
        return self.children()

    def check_variables(self, records):
        """Raises DefinitionError where the variables of the first step, `Variable` records, show a mistake."""

    @property
    def base(self):
        """The innermost rule of a chain of wrappers; the definition itself where there is none, or more than one."""
        children = list(self.children().values())
        return children[0].base if len(children) == 1 else self

    # Native optimizers.

    def bind(self, module, **native):
        """A native optimizer of the API that `module` speaks, which does what this definition says.

        Args:
            module: the module you already import: `tf.train`, `tf.keras`, `keras`, `tf_keras.optimizers.legacy`,
                `numpy`, ...
            **native: the native base class's own keywords (`name`, `clipnorm`, `use_locking`, ...).
                And `gradients`, where the API's optimizers take gradients of a loss (tf.train, OptimizerV2, Keras 2):
                a function of (loss, variables) that gives a gradient, IndexedSlices or None for each variable, and
                that `minimize`, `compute_gradients` and, in graphs, `fit` ask in place of differentiation. No config
                holds it: a saved model is loaded with `compile=False`.

        Returns:
            An instance of that module's own `Optimizer` class.

        Raises:
            TargetError: the module speaks none of the known APIs; the message lists what was looked for.
        """
        return self.native_class(module).from_definition(self, **native)

    def to_native_config(self, module):
        """`{"class_name": ..., "config": ...}` of the stock optimizer of `module` that does the same.

        The config holds the constructor's arguments.

        Raises:
            UnsupportedError: that API has none; the message says what stands in the way.
        """
        return binder.to_native_config(self, module)

    @classmethod
    def native_class(cls, module):
        """The class whose instances `bind(module)` returns; it takes this definition's arguments too."""
        return binder.native_class(cls, module)

    def __getattr__(self, name):
        if name in _NATIVE:
            raise NotBoundError(
                "{} is an everstep definition, not an optimizer of any framework, so it has no {!r}. Bind it to the "
                "module you train with first: {}(...).bind(tf.keras)".format(self._short(), name, type(self).__name__)
            )
        raise AttributeError("{} has no attribute {!r}".format(type(self).__name__, name))

    def __repr__(self):
        return "<everstep definition {}: bind(module) makes an optimizer of it>".format(self._short())
