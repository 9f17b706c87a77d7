"""Parameter groups of torch: a definition's hypers and options in them, under torch's names."""
from __future__ import absolute_import, division, print_function

import numbers

import numpy as np

from everstep.compat.targets import hypers
from everstep.compat.targets.construction import has_own_init
from everstep.errors import DefinitionError, HyperTypeError, HyperValueError, StateError
from everstep.optimizers.contract import Schedule, flat, is_tensor
from everstep.optimizers.contract.binder import binder
from everstep.optimizers.contract.checks import is_sequence

# {name here: (key of a group, position in its tuple or None)}, the same for all stock classes
SPELLED = {
    "learning_rate": ("lr", None), "epsilon": ("eps", None), "beta_1": ("betas", 0), "beta_2": ("betas", 1),
    "beta_3": ("betas", 2),
}
_FLAGS = ("maximize", "foreach", "fused", "capturable")


def _spelling(target_names, names):
    """Returns {flat hyper: (key, position or None)}."""
    bare = [name.rpartition("/")[2] for name in names]
    if "weight_decay" in names and bare.count("weight_decay") > 1:  # a wrapper's is what stock of torch calls so
        bare[names.index("weight_decay")] = "own_weight_decay"
    betas = {"beta_1", "beta_2"} <= set(bare)
    spelled = {}
    for name, last in zip(names, bare):
        key = target_names.get(name) or target_names.get(last) or SPELLED.get(last, (last, None))
        if bare.count(last) > 1 and "/" in name or key[0] == "betas" and not betas:
            key = hypers.attribute(name), None
        spelled[name] = key
    return spelled


def torch_arguments(native_class, args, kwargs):
    """Returns the arguments of a definition, of those of a native class, which are spelled as torch's.

    The parameters come first, as in stock. `kwargs` is changed in place.
    """
    is_copy = "definition" in kwargs
    if is_copy and not has_own_init(native_class):
        return args
    if args and not isinstance(args[0], (int, float)):
        if "params" in kwargs:
            raise DefinitionError("params is given twice")
        kwargs["params"], args = args[0], args[1:]
    definition_class = native_class.definition_class
    own = definition_class.argument_names()
    spelled = dict(SPELLED, **binder.stock_groups(definition_class, None)[0])
    if is_copy:
        for name, (key, _) in spelled.items():
            if name in own:
                kwargs.pop(key, None)
        return args
    by_key = {}  # type: dict
    for name, (key, place) in spelled.items():
        if name in own and key in kwargs and key not in own:
            by_key.setdefault(key, []).append((place, name))
    for key, places in by_key.items():
        value, names = kwargs.pop(key), [name for _, name in sorted(places, key=str)]
        if places[0][0] is not None:
            _check_tuple(definition_class.__name__, key, value, len(names))
        for name, each in zip(names, [value] if places[0][0] is None else value):
            if name in kwargs:
                raise DefinitionError("{} is given twice, as {} and as {}; give one of them".format(name, name, key))
            kwargs[name] = each
    nones = [name for name in spelled if kwargs.get(name, name) is None]
    if nones:
        rule = definition_class(*args, **{name: kwargs[name] for name in own if name in kwargs and name not in nones})
        numbers_for_none = binder.stock_groups(definition_class, rule)[3]
        kwargs.update((name, numbers_for_none[name]) for name in nones if name in numbers_for_none)
    return args


def _check_tuple(owner, key, value, count):
    if not is_sequence(value) or len(value) != count:
        raise HyperTypeError("{}.{} takes a tuple of {} numbers; got {!r}".format(owner, key, count, value))


def _is_native(value):
    return is_tensor(value) and hasattr(value, "numel")


class Groups(object):
    """The groups of one optimizer.

    Args:
        bound: the `Bound`.
        flags: {name: value} of stock's flags.

    Attributes:
        keys: {flat hyper: (key of a group, position in its tuple or None)}.
    """

    def __init__(self, bound, flags):
        self.bound, self.flags = bound, flags
        definition = bound.definition
        declared = flat(definition, "hyper")
        names, settings, _, none = binder.stock_groups(type(definition.base), definition)
        self.keys = _spelling(names, list(declared))
        self._none = {name: none[name] for name in self.keys if name in none}  # {flat hyper: the number that is None}
        taken = {key for key, _ in self.keys.values()}
        # What stock has in its groups beside the hypers. It is part of the definition, and cannot be set.
        self.fixed = {key: value for key, value in settings.items() if key not in taken and key not in _FLAGS}
        places = [key for key, place in self.keys.values() if place is not None]
        self._sizes = {key: places.count(key) for key in places}  # {key of a group: length of its tuple}
        given = {name: bound.given(name) for name in self.keys}
        # Hypers that a schedule or function decides.
        self._decides = {name for name, each in given.items() if isinstance(each, Schedule) or hypers.is_function(each)}
        self._checked = {}  # {(id of a group, flat hyper): value that was checked last}
        self._starts = {}  # {flat hyper: its first value}
        self._shown = {}  # {(id of a group, flat hyper): number that a schedule or function gave last}

    def defaults(self):
        defaults = dict(self.fixed, **self.flags)
        defaults["differentiable"] = False
        tuples = {}  # type: dict
        for name, (key, place) in self.keys.items():
            value = self._starts[name] = self._first(name)
            if place is None:
                defaults[key] = self._stored(name, value)
            else:
                tuples.setdefault(key, {})[place] = self._stored(name, value)
        for key, values in tuples.items():
            defaults[key] = tuple(values[place] for place in sorted(values))
        return defaults

    def _first(self, name):
        given = self.bound.given(name)
        if isinstance(given, Schedule):
            return float(given(0))
        return hypers.called(self.bound, name, given) if hypers.is_function(given) else given

    def _check_real(self, params):
        for param in params:
            tensor = param[1] if isinstance(param, tuple) else param
            if hasattr(tensor, "is_complex") and tensor.is_complex():
                raise hypers.refusal(self.bound, "complex variables", got="a parameter", dtype=tensor.dtype)
            if hasattr(tensor, "placements"):
                raise hypers.refusal(self.bound, "DTensor parameters (FSDP2)")

    def added(self, group):
        """Returns a group that a user gives, with its (name, parameter) pairs apart: torch before 2.6 takes no pairs.

        As in torch, it is the same dictionary.

        Raises:
            DefinitionError: it spells a hyper as everstep does, or has names where others have none.
        """
        for name, (key, place) in self.keys.items():
            wrong = hypers.attribute(name)
            if wrong in group and wrong != key and wrong not in self.fixed:
                raise DefinitionError("a parameter group calls {} {!r}, as torch does; got {!r}".format(
                    wrong, key if place is None else "{}[{}]".format(key, place), wrong))
        if "params" not in group or isinstance(group["params"], set):
            return group  # torch raises an error that says what is wrong
        params = [group["params"]] if _is_native(group["params"]) else list(group["params"])
        self._check_real(params)
        named = [param for param in params if isinstance(param, tuple)]
        others = self.bound.native.param_groups
        if named and len(named) != len(params) or others and bool(
                named or "param_names" in group) != ("param_names" in others[0]):
            raise DefinitionError("{} has names for some of its parameters only; give all with/without names".format(
                self.bound.owner))
        group["params"] = [param[1] for param in named] or params
        if named:
            group["param_names"] = [param[0] for param in named]
        return group

    def value(self, group, name, lane):
        """Returns the value of a hyper in a group that a step uses: a number as float32 holds it, or a tensor."""
        value = self._checked_value(group, name)
        if name in self._decides:
            return self._decided(group, name, self.bound.given(name), lane)
        return value if _is_native(value) else float(np.float32(value))

    def _checked_value(self, group, name):
        """Returns what a group holds of a hyper. Raises an error if no step can use it."""
        value, last = self._raw(group, name), self._checked.get((id(group), name), self)
        if type(value) is type(last) and value == last:
            return value
        if name in self._decides:
            return self._checked_shown(group, name, value)
        if _is_native(value):
            if value.numel() != 1:
                raise HyperTypeError("{}.{} takes a scalar; got a tensor of shape {}".format(
                    self.bound.owner, name, tuple(value.shape)))
            return value
        if isinstance(self.bound.given(name), float):
            hypers.check(self.bound, name, value)
        else:
            owner, declaration = self.bound.hyper_declarations()[name]
            declaration.check(type(owner).__name__, value)
        self._checked[id(group), name] = value
        return value

    def read(self, group, name):
        """Returns a hyper's value in a group, or the schedule or function that decides it."""
        return self.bound.given(name) if name in self._decides else self._raw(group, name)

    def _raw(self, group, name):
        key, place = self.keys[name]
        value = group[key] if place is None else group[key][place]
        return self._none[name] if value is None and name in self._none else value

    def _stored(self, name, value):
        """Returns what a group holds for a hyper's value."""
        return None if isinstance(value, float) and name in self._none and value == self._none[name] else value

    def _checked_shown(self, group, name, value):
        """Returns what a schedule or function gave last, which the group has. Raises HyperValueError if it was set."""
        shown = self._shown.get((id(group), name), self._starts[name])
        if value is shown or isinstance(value, numbers.Real) and value == shown:
            return value
        raise HyperValueError(
            "{}.{} was given as {!r}, which decides its value at every step, but the group has {!r} now; it had {!r}. "
            "Bind a definition with a number to set it".format(
                self.bound.owner, name, self.bound.given(name), value, shown))

    def _decided(self, group, name, given, lane):
        """Returns the value of a schedule or function, and shows it in the group."""
        new = float(given(int(lane.counters["updates"]))) if isinstance(given, Schedule) else hypers.called(
            self.bound, name, given)
        self._put(group, name, new)
        self._shown[id(group), name] = new
        return float(np.float32(new)) if isinstance(new, float) else new

    def _put(self, group, name, value):
        key, place = self.keys[name]
        value = self._stored(name, value)
        if place is None:
            group[key] = value
        else:
            group[key] = tuple(value if at == place else old for at, old in enumerate(group[key]))

    def set(self, groups, name, value):
        for group in groups:
            self._put(group, name, value)

    def key(self, group):
        """Returns what is equal for groups with the same hypers."""
        values = [self._raw(group, name) for name in self.keys]
        return tuple(id(value) if is_tensor(value) and not isinstance(value, np.generic) else value
                     for value in values) + (bool(group["maximize"]),)

    def check_loaded(self, group):
        """Raises an error if a loaded group does not fit the definition."""
        of_stock = {key for key, _ in SPELLED.values()}  # others, such as sma_threshold of RAdam, keep their values
        lacks = sorted({key for key, _ in self.keys.values() if key in of_stock and key not in group})
        if lacks:
            raise StateError("a parameter group of the state_dict has no {}, which {} needs; it has {}".format(
                " and ".join(lacks), self.bound.definition._short(), ", ".join(sorted(map(str, group)))))
        whole = dict(self.native_defaults(), **group)
        self._check_options(whole)
        for name in self.keys:
            value = self._raw(whole, name)
            if name not in self._decides:
                self._checked_value(whole, name)
            elif not isinstance(value, numbers.Real) and not _is_native(value):
                raise HyperTypeError("{}.{} is a number; the state_dict has {!r}".format(self.bound.owner, name, value))

    def check(self, group):
        """Raises an error if a group's options are not those of the definition, or if no step can use its hypers."""
        self._check_options(group)
        for name in self.keys:
            self._checked_value(group, name)

    def _check_options(self, group):
        for key, value in self.fixed.items():
            if group.get(key, value) != value:
                raise StateError(
                    "{} was bound with {}={!r}, which is fixed, and its parameter group has {!r} now; bind "
                    "another definition".format(self.bound.owner, key, value, group[key]))
        if group.get("differentiable"):
            raise hypers.refusal(self.bound, "differentiable")
        for key, count in self._sizes.items():
            _check_tuple(self.bound.owner, key, group[key], count)

    def settle(self, groups):
        """Completes groups that a loader or a copy brought, and takes what schedules gave last from them."""
        self._shown.clear()
        self._checked.clear()  # of dictionaries that are gone, whose ids others get
        for group in groups:
            for key, value in self.native_defaults().items():  # another torch, or stock, lacks some
                group.setdefault(key, value)
            for name in self._decides:
                self._shown[id(group), name] = self._raw(group, name)

    def native_defaults(self):
        return vars(self.bound.native).get("defaults", {})

    def differing(self):
        """Returns {flat hyper: its values} of those that are not the same in all groups."""
        found, groups = {}, self.bound.native.param_groups
        for name in set(self.keys) - self._decides:
            values = [self._raw(group, name) for group in groups]
            if any(value is not values[0] and value != values[0] for value in values):
                found[name] = values
        return found
