"""Target `optax_transform`: gradient transformations of optax, for training in JAX without Keras.

The API: `init(params)` makes a state, `update(updates, state, params)` returns what to add and the next state. Both are
pure. The state is a `TransformState` of arrays alone:

| field | what |
|---|---|
| `count` | the number of updates |
| `counters` | `pending` and `steps`, only if steps can skip updates |
| `scalars` | by name, with `_` for each `/` |
| `slots` | likewise: each a tree like the parameters |

- A leaf's name is its path in the tree, such as `Dense_0/kernel`. Rules for some names work on it.
- `update` returns minus the change, in the dtype of the gradients. A step that does not update returns zeros;
  transforms that are chained behind it run all the same.
- Parameters are needed only where the rule reads them. Without them, optax's own error says so.
- A hyper can be a function of the count of updates, as optax's schedules are, or an array.
- Totals, such as a global norm, are over the leaves that this transform sees. A `jit` over sharded arrays needs
  nothing. In `shard_map` and `pmap` give gradients that are reduced. If parameters are in parts there, bind with
  `axis_name`: the name of the axis, or a tuple of them, over which `StepOverAxes` adds what was measured.
- Gradients are dense, so `sparse="rows"` needs `dense_ok=True`. Counters and int64 slots are int32.
"""
from __future__ import absolute_import, division, print_function

import functools
import sys
from collections import OrderedDict

from everstep.compat.backends.on_jax import Axes, Held, JaxBackend, Place
from everstep.compat.engine.pairs import check_pairs
from everstep.compat.engine.step import Step, counters
from everstep.compat.targets import hypers
from everstep.compat.targets.adapter import InOneProcess
from everstep.compat.targets.checking import check_dense, check_repeat, forgetting_failures
from everstep.compat.targets.construction import COMPLEX, Unsupported, keyword, member
from everstep.compat.targets.losses import scaled
from everstep.compat.targets.native import NativeOptimizer
from everstep.compat.targets.optax_trees import Layouts, TransformState, Tree
from everstep.errors import (
    GradientError,
    HyperTypeError,
    HyperValueError,
    StateError,
    UnsupportedError,
    UnsupportedMemberError,
    VariableError,
)
from everstep.optimizers.contract import VARIABLE, scalar_starts
from everstep.optimizers.contract.checks import TEXT_OR_BYTES

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

_APPLY = "call update, then optax.apply_updates"


def _of_state(name, instead):
    """Declares what a transform has not, since its state is the caller's."""
    text = "{optimizer} on {target} has no state of its own: " + instead
    return Unsupported(name, UnsupportedMemberError, text)


class _Functions(object):
    """The two functions of one transform. They outlive copies of the tuple that optax makes."""

    native = None  # type: Any  # the transform

    def init(self, params):
        """Returns the state to start with. Can be traced."""
        return self.native._bound.adapter.init(params)

    def update(self, updates, state, params=None, **extra_args):
        """Returns (what to add to the parameters, the next state). Ignores `extra_args`.

        Raises:
            ValueError: `params` is None, and the rule reads the parameters.
            StateError: the state is of another definition or of other parameters.
            GradientError: a gradient does not fit its parameter.
        """
        return self.native._bound.adapter.update_tree(updates, state, params)


class Transform(NativeOptimizer):
    """A `GradientTransformationExtraArgs` of optax."""

    def __new__(cls, *args, **kwargs):
        if len(args) == 2 and isinstance(getattr(args[0], "__self__", None), _Functions):
            return cls.native_base(*args)  # JAX takes such a tuple apart, and makes a new one of its items
        functions = _Functions()
        functions.native = transform = cls.native_base.__new__(cls, functions.init, functions.update)
        return transform


CLOSURE = (
    "{} is a transform of optax's own, a pair of closures that do not tell what they compute; bind a definition, such "
    "as everstep.optimizers.Adam(1e-3).bind(optax)"
)


def transform_of(optimizer):
    """Returns the `Transform` that something is, or was before JAX made the tuple anew; else None.

    Raises:
        UnsupportedError: it is a transform of optax's own.
    """
    functions = getattr(getattr(optimizer, "init", None), "__self__", None)
    if isinstance(functions, _Functions):
        return functions.native
    if getattr(optimizer, "_fields", None) == ("init", "update"):
        raise UnsupportedError(CLOSURE.format(type(optimizer).__name__))
    return None


class WithoutState(object):
    """Copies carry no state: there is none."""

    has_slots_at_once = False

    @staticmethod
    def taken(bound):
        return None

    @staticmethod
    def keep(bound, state):
        pass

    @staticmethod
    def give(bound, variables):
        pass


class StepOverAxes(Step):
    """A step on variables that can be in parts over axes of devices: what it measures is of whole variables.

    Args:
        in_parts: {variable: names of the axes over which it is in parts}.
    """

    def __init__(self, host, pairs, in_parts):
        super(StepOverAxes, self).__init__(host, pairs)
        self.in_parts = in_parts

    def sums_of(self, requests, dtypes):
        groups, sums = OrderedDict(), {}
        for request in requests:
            groups.setdefault(self.in_parts[request[2].variable], []).append(request)
        for names, group in groups.items():
            keys = OrderedDict.fromkeys((whole, name) for whole, name, _, _ in group)
            natives = super(StepOverAxes, self).sums_of(group, dtypes)
            for key, native in zip(keys, self.host.adapter.axes.sum(natives, names)):
                sums[key] = sums[key] + native if key in sums else native
        return [sums[key] for key in dtypes]


class TransformAdapter(InOneProcess):
    target = "optax_transform"
    works_on = "optax, for JAX without Keras"
    native_class = Transform
    unsupported = (
        COMPLEX,
        Unsupported("changing rates after bind", HyperValueError,
                    "{optimizer} is a pair of pure functions, so {name} is a constant: give a function of the count, "
                    "or use optax.inject_hyperparams with the native class"),
        member("apply_gradients", _APPLY),
        member("minimize", _APPLY),
        keyword("name", "a transform of optax has no name"),
        keyword("clipnorm", "write everstep.clip(..., norm=...) around it"),
        keyword("clipvalue", "write everstep.clip(..., value=...) around it"),
        keyword("global_clipnorm", "write everstep.clip(..., global_norm=...) around it"),
        _of_state("iterations", "read count of the state"),
        _of_state("steps", "read counters of the state"),
        _of_state("get_slot", "read slots of the state"),
        _of_state("scale_loss", "call everstep.scale_loss(transform, state, loss)"),
        _of_state("flush", "a window closes at its last step"),
    )
    casts_gradients = True
    sets_hypers = holds_state = False
    is_fused = False
    carries = WithoutState

    # Construction and config.

    @classmethod
    def base_class(cls, optimizer, module):
        return optimizer

    @classmethod
    def entries(cls, base):
        return ()

    @classmethod
    def schedules(cls, base):
        return None

    @classmethod
    def native_keywords(cls, config):
        return config

    def start(self, axis_name=None):
        names = (axis_name,) if isinstance(axis_name, TEXT_OR_BYTES) else () if axis_name is None else axis_name
        if not isinstance(names, (list, tuple)) or not all(isinstance(name, TEXT_OR_BYTES) for name in names):
            raise HyperTypeError("axis_name is the name of an axis or a tuple of names; got {!r}".format(axis_name))
        definition, base = self.bound.definition, type(self.native).native_base
        check_dense(definition, "in optax gradients are dense")
        if definition.stages > 1:
            raise UnsupportedError(
                "{} takes {} gradients of each batch, and a transform of optax gets one. Train it with Keras 3 on "
                "JAX".format(definition._short(), definition.stages))
        self._optax = sys.modules[base.__module__.split(".")[0]]
        self.held = Held(sys.modules[base.__module__].NO_PARAMS_MSG)
        self.use(JaxBackend(self.held))
        self.layouts, self.axes = Layouts(self), Axes(names)
        self._counters = {name: Place(name, (), "int32") for name in counters(definition)}
        self._scalars = {name: Place(name, (), "float32") for name in scalar_starts(definition)}

    # Hypers.

    def present(self, name):
        value = self.bound.given(name)
        if not hypers.is_function(value):
            return value
        count = self.backend.read(self.counter("updates"))
        return functools.partial(hypers.called, self.bound, name, lambda: value(count))

    def read(self, name):
        return self.bound.given(name)

    def set(self, name, value):
        raise hypers.refusal(self.bound, "changing rates after bind", name=name)

    def number(self, name, value):
        return value(self.backend.read(self.counter("updates"))) if hypers.is_function(value) else value

    # Counters and scalars.

    def counter(self, name):
        if not self.held.values:
            raise hypers.refusal(self.bound, "steps")
        return self._counters[name]

    def scalar(self, name):
        return self._scalars[name]

    def own_variables(self):
        return dict(self._counters, **self._scalars)

    def counted_elsewhere(self):
        return None

    def calls_per_update(self):
        return 1

    # Variables and slots.

    def find_key(self, variable):
        return variable

    def variable_name(self, variable):
        return variable.name

    def state_name(self, variable, index):
        return variable.name

    def find_slot(self, variable, name):
        return variable.slots.get(name)

    def get_slot(self, variable, name):
        raise hypers.refusal(self.bound, "get_slot")

    # State.

    def check_variable(self, variable):
        if not isinstance(variable, Place):
            raise VariableError("{} trains the leaves of a tree; got {!r}".format(self.bound.owner, variable))

    def make_state(self, variables):
        backend = self.backend
        for variable in variables:
            for name, slot in variable.slots.items():
                initial, shape, dtype = self.bound.slot_declaration(variable, name)
                if initial is VARIABLE:
                    value = backend.copy(backend.cast(backend.read(variable), dtype), variable)
                else:
                    value = backend.filled(shape, initial, dtype, variable)
                backend.write(slot, value)
        return []

    def default_session(self, variables):
        return None

    def not_carried(self):
        return None

    # Copies.

    def trained(self):
        return self.bound.first_seen()

    def copied_variable(self, variable, memo):
        return variable

    def exclusions(self, same_variables):
        return None

    # The step.

    def scale_loss(self, loss):
        if not self.held.values:
            raise hypers.refusal(self.bound, "scale_loss")
        return scaled(self.bound, loss)

    def update(self, variable, function, grad):
        return function(variable, grad)

    def constrain(self, variable, write):
        return write

    def native_decay(self, variable):
        return None

    def take_flush(self, variables):
        return []

    # Pure functions.

    def init(self, params):
        tree, backend = Tree(self, params), self.backend
        for variable in tree.layout.variables:
            if "complex" in variable.dtype:
                raise hypers.refusal(self.bound, "complex variables", got=variable.name, dtype=variable.dtype)
        with self.held.holding(tree.given_params()) as held, forgetting_failures(tree.layout.bound):
            starts = scalar_starts(self.bound.definition)
            held.update((place, backend.constant(0, "int32")) for place in self._counters.values())
            held.update((place, backend.constant(starts[name], "float32")) for name, place in self._scalars.items())
            tree.layout.bound.adapter.make_state(tree.layout.variables)
            return tree.state()

    def update_tree(self, updates, state, params):
        tree = Tree(self, updates, params)
        bound = tree.layout.bound
        with self.held.holding(tree.given(state, params is not None)) as held, forgetting_failures(bound):
            check_repeat(self.bound, [])
            pairs = list(zip(tree.leaves, tree.layout.variables))
            pairs = check_pairs(self.backend, pairs, True) if pairs else []
            if self.axes.names:
                StepOverAxes(bound, pairs, self._in_parts(bound, pairs)).run()
            else:
                bound.take_step(pairs, checked=False)
            return tree.changes(held), tree.state(state)

    def _in_parts(self, bound, pairs):
        """Returns {variable: names of the axes over which it is in parts}: as its value, if given, else its gradient.
        """
        unbound, in_parts = self.axes.unbound(), {}
        if unbound:
            raise UnsupportedError(
                "{} was bound with axis_name={!r}, and there is no axis of the name {} here. Call update inside of "
                "jax.shard_map or jax.pmap over it, or bind without axis_name".format(
                    bound.owner, bound.arguments["axis_name"], " or ".join(map(repr, unbound))))
        for grad, variable in pairs:
            names = in_parts[variable] = self.axes.of(self.held.values.get(variable, grad))
            if names and bound.rule(variable).locality != "element":
                raise UnsupportedError(
                    "{} needs {} whole, but it is in parts over the axis {}. Call update on sharded arrays in jax.jit, "
                    "without shard_map or pmap".format(bound.definition._short(), variable.name, ", ".join(names)))
            partial = [name for name in self.axes.of(grad) if name not in names]
            if partial:
                raise GradientError(
                    "all devices along the axis {0} have the same {1}, but each has another gradient for it: reduce "
                    "that first, by jax.lax.psum or pmean over {0}".format(", ".join(partial), variable.name))
        return in_parts

    def given(self, state):
        """Returns {`Place`: value} of the counters and scalars of a state. Raises StateError if it has others."""
        found = {}
        if isinstance(state, TransformState):
            found = dict(state.scalars, updates=state.count, **state.counters)
        places = {hypers.attribute(name): place for name, place in self.own_variables().items()}
        if set(found) != set(places):
            names = [", ".join(sorted(names)) or "none" for names in (places, found)]
            raise StateError(
                "update takes the state that init of this transform returned, or the update before; {} needs {}, and "
                "this is {} with {}".format(self.bound.owner, names[0], type(state).__name__, names[1]))
        return {place: found[name] for name, place in places.items()}

    def state(self, slots):
        """Returns the `TransformState` of what is held, given its slots."""
        counts = {name: self.backend.read(place) for name, place in self._counters.items()}
        scalars = {hypers.attribute(name): self.backend.read(place) for name, place in self._scalars.items()}
        return TransformState(counts.pop("updates"), counts, scalars, slots)

    def no_leaf(self):
        """Returns what optax puts into a tree where it has no leaf."""
        return self._optax.MaskedNode()
