"""What `optax_transform` does with trees: the state of a transform, and the places of the leaves that it sees.

A transform keeps nothing. `Layouts` remembers, for each set of names, shapes and dtypes that it met, the places of its
leaves and the rules for them. So the rule is traced once, and what `specialize` sees does not depend on earlier calls.
"""
from __future__ import absolute_import, division, print_function

import copy
from collections import OrderedDict, namedtuple

import numpy as np

from everstep.compat.backends.on_jax import Place
from everstep.compat.engine.step import engine_slot_names
from everstep.compat.targets.hypers import attribute
from everstep.errors import GradientError, StateError, VariableError
from everstep.optimizers.contract.trees import tree, walk
from everstep.optimizers.contract.verbs import overrides

# count: the number of updates, int32. counters: {"pending", "steps": int32} where steps can skip updates. scalars:
# {name: float32}. slots: {name: a tree like the parameters}, without a leaf where a parameter has no such slot.
TransformState = namedtuple("TransformState", "count counters scalars slots")


def name_of(path):
    """Returns the name of a leaf: the keys on its path in the tree, with `/` between them."""
    keys = [getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))) for key in path]
    return "/".join(map(str, keys)) or "params"


class Layouts(object):
    """The places of leaves. `adapter`: a `TransformAdapter`."""

    def __init__(self, adapter):
        self._adapter, self._known = adapter, {}  # {((name, shape, dtype), ...): `Layout`}

    def of(self, leaves):
        """Returns the `Layout` of [(name, array)]."""
        dtype_of = self._adapter.backend.dtype
        key = tuple((name, tuple(leaf.shape), dtype_of(leaf)) for name, leaf in leaves)
        if key not in self._known:
            self._known[key] = Layout(self._adapter.native, key)
        return self._known[key]


class Layout(object):
    """The leaves of one tree, in order.

    Attributes:
        native: an optimizer like the user's, whose `Bound` knows these variables alone.
        variables: their `Place`s, with those of their slots.
        roles: the names of all slots, also of those that none of these variables has.
    """

    def __init__(self, native, leaves):
        self.native = copy.copy(native)
        self.bound = self.native._bound
        self.bound.rules, self.bound.seen, self.bound.calls = {}, {}, {}
        self.variables = [Place(*leaf, is_trained=True) for leaf in leaves]
        if self.variables:  # a branch of optax.multi_transform may have none
            self.bound.check_first(self.variables)
        for variable in self.variables:
            for name in self.bound.slot_names(variable):
                _, shape, dtype = self.bound.slot_declaration(variable, name)
                variable.slots[name] = Place(name, shape, dtype)

        self.roles = _roles(self.bound.definition)
        for variable in self.variables:
            self.roles += [name for name in variable.slots if name not in self.roles]


def _roles(definition):
    """Returns the names of all slots that some variable may have: the same for every tree, as optax expects."""
    names = []
    for node in walk(tree(definition)):
        varies = overrides(node.definition, "specialize")
        names += [node.prefix + name for name in node.definition.declared_order
                  if node.definition.declarations[name].kind == "slot"
                  and (varies or node.definition.declarations[name].exists(node.definition))]
    return names + engine_slot_names(definition, False)


class Tree(object):
    """The leaves of one call: those of the gradients, or of the parameters. A gradient can be None.

    Args:
        adapter: a `TransformAdapter`.
        whole: the gradients or the parameters.
        params: the parameters if `whole` is of gradients, or None.
    """

    def __init__(self, adapter, whole, params=None):
        import jax

        self._adapter, self._backend = adapter, adapter.backend
        leaves, self._shape = jax.tree_util.tree_flatten_with_path(whole, is_leaf=lambda leaf: leaf is None)
        self._all = [leaf for _, leaf in leaves]
        self._values = self._all if params is None else self._leaves_of(params, GradientError, "params")
        self.present = [place for place, leaf in enumerate(self._all) if leaf is not None]
        names = [name_of(leaves[place][0]) for place in self.present]
        for place, name in zip(self.present, names):
            if self._values[place] is None:
                raise VariableError("{} is None in params, and has a gradient".format(name))
        self.leaves = [self._array(self._all[place]) for place in self.present]
        self.values = [self._array(self._values[place]) for place in self.present]
        self.layout = adapter.layouts.of(list(zip(names, self.values)))

    def _array(self, leaf):
        if isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind in "iuf":
            return self._backend.tensor(leaf)  # float64 becomes float32 without a warning
        return leaf if hasattr(leaf, "dtype") else self._backend.tensor(leaf)

    def _leaves_of(self, other, kind, name):
        """Returns the leaves of a tree of the same structure. Raises `kind` if it has another one."""
        try:
            return self._shape.flatten_up_to(other)
        except ValueError as error:
            raise kind("{} is a tree of another structure than the gradients or parameters that were given with it: "
                       "{}".format(name, error))

    def named(self):
        """Returns {name: `Place`} of the variables; a list of them if two have one name."""
        variables = self.layout.variables
        named = OrderedDict((variable.name, variable) for variable in variables)
        return named if len(named) == len(variables) else variables

    def given_params(self):
        """Returns {`Place`: value} of the parameters."""
        return dict(zip(self.layout.variables, self.values))

    def given(self, state, has_params=True):
        """Returns {`Place`: value} of a state, and of the parameters, if there are any."""
        held, adapter = self.given_params() if has_params else {}, self._adapter
        held.update(adapter.given(state))
        for role in self.layout.roles:
            places = [(place, variable.slots[role]) for place, variable in zip(self.present, self.layout.variables)
                      if role in variable.slots]
            if places:
                slots = self._leaves_like(state, role)
                held.update((slot, slots[place]) for place, slot in places)
        for variable in self.layout.variables:
            for slot in variable.slots.values():
                if not hasattr(held[slot], "dtype"):
                    raise StateError(
                        "{} has the slot {} of {}, and this state has none there: it is of another definition or of "
                        "other parameters".format(adapter.bound.owner, slot.name, variable.name))
        return held

    def _leaves_like(self, state, role):
        if attribute(role) not in state.slots:
            raise StateError(
                "{} has the slot {}; this state has {}. It is of another definition".format(
                    self._adapter.bound.owner, role, ", ".join(sorted(state.slots)) or "none"))
        return self._leaves_of(state.slots[attribute(role)], StateError, "the slot {} of the state".format(role))

    def state(self, before=None):
        """Returns the `TransformState` of what is held; where a leaf has no gradient, with the slots of the one before.
        """
        slots = OrderedDict()
        for role in self.layout.roles:
            leaves = [self._adapter.no_leaf()] * len(self._all)
            if before is not None:
                leaves = self._leaves_like(before, role)
            for place, variable in zip(self.present, self.layout.variables):
                if role in variable.slots:
                    leaves[place] = self._backend.read(variable.slots[role])
            slots[attribute(role)] = self._shape.unflatten(leaves)
        return self._adapter.state(dict(slots))

    def params(self):
        """Returns the tree of the parameters' values, in the dtypes of the parameters."""
        params = list(self._all)
        for place, variable in zip(self.present, self.layout.variables):
            params[place] = self._backend.read(variable)
        return self._shape.unflatten(params)

    def changes(self, held):
        """Returns the tree of what a step adds, in the dtypes of the gradients; None where there was none."""
        changes, backend = list(self._all), self._backend
        for place, grad, variable in zip(self.present, self.leaves, self.layout.variables):
            change = held.get(variable.change)
            change = backend.ops["zeros_like"](grad) if change is None else change
            changes[place] = backend.cast(change, backend.dtype(grad))
        return self._shape.unflatten(changes)
