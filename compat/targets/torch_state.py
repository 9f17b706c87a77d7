"""`state[param]` of torch: slots, counters and scalars of a definition, under the names of the stock optimizer."""
from __future__ import absolute_import, division, print_function

import numbers
import warnings
from collections import namedtuple

import numpy as np

from everstep.compat.backends.on_numpy import numpy_ops
from everstep.compat.engine.step import counters
from everstep.errors import StateError, StateWarning, VariableError
from everstep.optimizers.contract import VARIABLE, Names, scalar_starts
from everstep.optimizers.contract.binder import binder
from everstep.optimizers.contract.trees import flatten, tree

_EXACT = 2**24  # the first count that float32, stock's dtype for it, cannot step beyond
STEP = "step"


# shape: of the parameter; tensors: [(key, tensor)] of its slots, counters and scalars.
_Record = namedtuple("_Record", "param shape state tensors")


class Repeated(object):
    """A counter or scalar, which is stored beside each parameter."""

    repeats = True

    def __init__(self, state, name, dtype, start):
        self.state, self.name, self.dtype, self.start = state, name, dtype, start
        self.shape = ()

    def value(self):
        """Returns it as a tensor: that of the parameters, of the first one that was in the last step."""
        trained, state = self.state.adapter.trained(), self.state
        number = state.number(state.latest(trained), self.name) if trained else self.start
        return state.torch.tensor(number, dtype=self.dtype, device="cpu")

    def put(self, number):
        for param in self.state.adapter.trained():
            self.state.put(param, self.name, number)

    def __int__(self):
        return int(self.value())

    def __repr__(self):
        return repr(self.value().item())


class ParamState(object):
    """The state of one optimizer's parameters. `adapter`: the one of torch_optim."""

    def __init__(self, adapter):
        self.adapter, self.bound, self.torch = adapter, adapter.bound, adapter.backend.torch
        definition = self.bound.definition
        self._names = {ours: theirs for theirs, ours in binder.stock_slots("torch_optim", definition).items()}
        self._names.update(binder.stock_groups(type(definition.base), None)[2])
        self._counters, self._scalars = counters(definition), scalar_starts(definition)
        self.starts = dict(dict.fromkeys(self._counters, 0), **self._scalars)
        self.repeated = {
            name: Repeated(self, name, self.torch.int64 if name in self._counters else self.torch.float32, start)
            for name, start in self.starts.items()}
        self._records = {}  # {id of a parameter: `_Record`} of the last step
        self._known = {}  # {id of a tensor: (the tensor, its version, its number)}

    def name(self, name):
        """Returns the key of a slot, counter or scalar."""
        return STEP if name == "updates" else self._names.get(name, name)

    def of(self, param):
        """Returns the state of a parameter, a dictionary; an empty one if it has none yet."""
        state = self.adapter.native.state
        return state[param] if param in state else {}

    def ready(self, params):
        """Creates what the state of parameters lacks. Returns whether slots are other tensors than at the last step."""
        states, replaced = self.adapter.native.state, False
        for param in params:
            record, state = self._records.get(id(param)), states.get(param)
            if record is not None and record.state is state and record.param is param:
                if param.shape != record.shape:
                    self._refuse_grown(record)
                if all([state.get(key) is tensor for key, tensor in record.tensors]):
                    continue
            replaced = replaced or record is not None
            if not isinstance(states.get(param, {}), dict):
                raise StateError("the state of {} is a dictionary; got {!r}".format(
                    self.adapter.variable_name(param), states[param]))
            self.make(param)
            state, slots = states[param], self.bound.slot_names(param)
            for name in slots:
                self._check_slot(param, name, state[self.name(name)])
            keys = map(self.name, slots + list(self.starts))
            self._records[id(param)] = _Record(param, param.shape, state, [(key, state[key]) for key in keys])
        return replaced

    def _refuse_grown(self, record):
        raise VariableError(
            "{} is of shape {} now, and was of shape {} at the last step; an optimizer's state does not grow with a "
            "parameter. Bind a new optimizer".format(
                self.adapter.variable_name(record.param), tuple(record.param.shape), tuple(record.shape)))

    def _check_slot(self, param, name, value):
        """Raises StateError if a value cannot be a slot of a parameter."""
        shape, is_tensor = tuple(self.bound.slot_declaration(param, name)[1]), isinstance(value, self.torch.Tensor)
        if is_tensor and tuple(value.shape) == shape and not value.is_complex():
            return
        got = "a tensor of shape {} and of {}".format(tuple(value.shape), value.dtype) if is_tensor else repr(value)
        raise StateError("{} of {} is a tensor of real numbers of shape {}; got {}".format(
            self.name(name), self.adapter.variable_name(param), shape, got))

    def make(self, param):
        """Creates what a parameter's state lacks."""
        torch, state = self.torch, self.adapter.native.state[param]
        for name in self.bound.slot_names(param):
            if state.get(self.name(name)) is not None:
                continue
            initial, shape, dtype = self.bound.slot_declaration(param, name)
            state[self.name(name)] = self._new(param, initial, shape, getattr(torch, dtype))
        for name, start in self.starts.items():
            if self.name(name) not in state:
                state[self.name(name)] = self._number_tensor(param, name, start)

    def _new(self, param, initial, shape, dtype):
        torch = self.torch
        if initial is VARIABLE:
            return param.detach().to(dtype).clone()
        if not isinstance(initial, (int, float)):
            array = np.asarray(initial, np.float64)
            return torch.as_tensor(np.broadcast_to(array, shape).copy(), dtype=dtype, device=param.device)
        if tuple(shape) == tuple(param.shape):
            return torch.full_like(param, initial, dtype=dtype, requires_grad=False)
        return torch.full(tuple(shape), initial, dtype=dtype, device=param.device)

    def _number_tensor(self, param, name, number):
        torch = self.torch
        if name in self._counters and name != "updates":
            return torch.tensor(number, dtype=torch.int64, device="cpu")
        group = self._group(param)
        on_device = bool(group.get("capturable") or group.get("fused"))
        wide = number > _EXACT if name == "updates" else False
        return torch.tensor(float(number), dtype=torch.float64 if wide else torch.float32,
                            device=param.device if on_device else "cpu")

    def _group(self, param):
        return next(g for g in self.adapter.native.param_groups if any(param is each for each in g["params"]))

    # Numbers.

    def number(self, param, name):
        """Returns a counter's or scalar's number for a parameter."""
        value = self.of(param).get(self.name(name))
        if value is None:
            return self.starts[name]
        if not isinstance(value, self.torch.Tensor):
            return self._read(param, name, value)
        known = self._known.get(id(value))
        if known is None or known[0] is not value or known[1] != value._version:
            known = self._known[id(value)] = value, value._version, self._read(param, name, value)
        return known[2]

    def _read(self, param, name, value):
        """Returns the number that stands for a counter or scalar. Raises StateError if it cannot be one."""
        is_one = isinstance(value, self.torch.Tensor) and value.numel() == 1
        number, counts = value.item() if is_one else value, name in self._counters
        if isinstance(number, numbers.Real) and not (counts and (number < 0 or number % 1 != 0)):  # NaN % 1 is NaN
            return int(number) if counts else float(number)  # type: ignore[call-overload]
        raise StateError("{} of {} is a {}; got {!r}".format(
            self.name(name), self.adapter.variable_name(param), "count of steps" if counts else "number", value))

    def put(self, param, name, number):
        state, key = self.of(param), self.name(name)
        tensor = state.get(key)
        small = isinstance(tensor, self.torch.Tensor) and tensor.dtype is self.torch.float32
        if not isinstance(tensor, self.torch.Tensor) or name == "updates" and small and number >= _EXACT:
            state[key] = tensor = self._number_tensor(param, name, number)
        else:
            tensor.fill_(number)
        self._known[id(tensor)] = tensor, tensor._version, number

    def counts(self, param):
        """Returns the numbers of all counters and scalars of a parameter, a tuple."""
        if len(self.starts) > 1:
            return tuple([self.number(param, name) for name in self.starts])
        step = self.of(param).get(STEP)
        known = self._known.get(id(step))
        if known is not None and known[0] is step and known[1] == step._version:
            return known[2:]
        return (self.number(param, "updates"),)

    def lane_variables(self):
        """Returns ({name: tensor} of counters, the same of scalars) for a new lane."""
        torch = self.torch
        return ({name: torch.zeros((), dtype=torch.int64, device="cpu") for name in self._counters},
                {name: torch.zeros((), dtype=torch.float32, device="cpu") for name in self._scalars})

    def fill(self, lane, counts):
        """Gives a lane the numbers of `counts`."""
        with self.torch.no_grad():
            for name, number in zip(self.starts, counts):
                (lane.counters if name in lane.counters else lane.scalars)[name].fill_(number)

    def store(self, lane, variables):
        """Stores the numbers of a lane beside each of its variables."""
        for name in self.starts:
            number = (lane.counters if name in lane.counters else lane.scalars)[name].item()
            if self.number(variables[0], name) == number:  # so it is for all of them
                continue
            if name == "updates" and self._count_all(variables, number):
                continue
            for variable in variables:
                self.put(variable, name, number)

    def _count_all(self, variables, number):
        """Adds 1 to the counts of variables at once, and returns True, where all are small and on the processor."""
        tensors = [self.of(variable)[STEP] for variable in variables]
        cpu = self.torch.device("cpu")
        if number >= _EXACT or any(not isinstance(each, self.torch.Tensor) or each.device != cpu for each in tensors):
            return False
        self.torch._foreach_add_(tensors, 1)
        for tensor in tensors:
            self._known[id(tensor)] = tensor, tensor._version, number
        return True

    def latest(self, params):
        """Returns the first parameter that was in the last step; the first of all where steps are not counted."""
        return max(params, key=lambda param: self.number(param, "steps")) if "steps" in self.starts else params[0]

    def why_unequal(self):
        """Returns why no State holds the counts, or None."""
        trained = self.adapter.trained()
        for name in self.starts:
            numbers = {self.number(param, name): param for param in trained}
            if len(numbers) > 1:
                names = ["{} at {}".format(self.adapter.variable_name(numbers[each]), each) for each in sorted(numbers)]
                return "its parameters have different counts, and a state holds one: {}".format(", ".join(names))
        return None

    # Loading.

    def check(self, state_dict):
        """Raises an error if a state_dict does not fit the definition, before anything changes."""
        groups, ours = state_dict["param_groups"], self.adapter.native.param_groups
        are_groups = isinstance(groups, (list, tuple)) and all(isinstance(group, dict) for group in groups)
        if not are_groups or not isinstance(state_dict["state"], dict):
            raise StateError(
                "param_groups of a state_dict is a list of dictionaries, and its state is a dictionary; got {} and "
                "{}".format(type(groups).__name__, type(state_dict["state"]).__name__))
        if [len(each["params"]) for each in groups] != [len(each["params"]) for each in ours]:
            return  # torch raises
        for group in groups:
            self.adapter.groups.check_loaded(group)
        for param, saved in self._pairs(state_dict):
            if not isinstance(saved, dict):
                raise StateError("the state of {} in the state_dict is a dictionary; got {!r}".format(
                    self.adapter.variable_name(param), saved))
            lacks = [key for key in map(self.name, self.bound.slot_names(param)) if key not in saved]
            if lacks:
                raise StateError("the state_dict has no {} of {}, which {} needs; it has {}".format(
                    " and ".join(lacks), self.adapter.variable_name(param), self.bound.definition._short(),
                    ", ".join(sorted(map(str, saved))) or "nothing"))
            for name in self.bound.slot_names(param):
                if saved[self.name(name)] is not None:  # if it is None, `make` creates it
                    self._check_slot(param, name, saved[self.name(name)])
            for name in self.starts:
                if self.name(name) in saved:
                    self._read(param, name, saved[self.name(name)])

    def _pairs(self, state_dict):
        """Yields (parameter, its state in a state_dict) of those that have one."""
        for saved, group in zip(state_dict["param_groups"], self.adapter.native.param_groups):
            for number, param in zip(saved["params"], group["params"]):
                of_param = state_dict["state"].get(number, {})
                if of_param or not isinstance(of_param, dict):
                    yield param, of_param

    def take_exact(self, state_dict, of_uncounted=None):
        """Takes slots of another dtype than their parameter's from a state_dict: torch's loader has rounded them.

        Args:
            of_uncounted: the updates where the state_dict has none. Default None: 1, with a `StateWarning`.
        """
        torch, uncounted, replayed = self.torch, False, {}  # type: ignore[var-annotated]
        for param, saved in self._pairs(state_dict):
            state = self.adapter.native.state[param]
            for name in self.bound.slot_names(param):
                dtype, value = getattr(torch, self.bound.slot_declaration(param, name)[2]), saved[self.name(name)]
                if isinstance(value, torch.Tensor) and dtype is not param.dtype:
                    state[self.name(name)] = value.detach().to(device=param.device, dtype=dtype, copy=True)
            for name in self.starts:
                value = saved.get(self.name(name), self.starts[name])
                if name == "updates" and STEP not in saved and self._has_slots(param, saved):
                    value, uncounted = of_uncounted or 1, of_uncounted is None
                value = value.item() if isinstance(value, torch.Tensor) else value
                if name in self._scalars and self.name(name) not in saved:
                    count = int(saved.get(STEP, 0))
                    replayed[count] = replayed.get(count) or self._after(count)
                    value = replayed[count][name]
                state[self.name(name)] = self._number_tensor(param, name, value)
        self.settle()
        if uncounted:
            warnings.warn(StateWarning(
                "the state_dict has no count of steps, as that of stock SGD, so {} counts from 1".format(
                    self.bound.owner)), stacklevel=4)

    def _after(self, count):
        """Returns the scalars after some updates, which stock of torch computes anew at each step (RAdam)."""
        definition, scalars = self.bound.definition, dict(self._scalars)
        node = tree(definition)
        hyper = {name: self.adapter.groups.value(self.adapter.native.param_groups[0], name, self.adapter.lane_of(None))
                 for name in self.bound.hyper_declarations()}
        for t in range(1, count + 1):
            known = dict(hyper, updates=t - 1, **scalars)
            new = flatten(definition, "scalar", definition.advance(
                numpy_ops, Names(node, scalars), Names(node, known, ("updates",)), float(t)), "advance")
            new = {name: float(value) for name, value in new.items()}
            if new == scalars:
                break
            scalars = new
        return scalars

    def _has_slots(self, param, saved):
        return any(saved.get(self.name(name)) is not None for name in self.bound.slot_names(param))

    def forget(self, key):
        """Forgets a parameter by its id."""
        self._records.pop(key, None)

    def settle(self):
        """Completes groups and state after a loader or a copy has replaced them."""
        self.adapter.groups.settle(self.adapter.native.param_groups)
        self.adapter.names.clear()
        self.adapter.forget()
        self._known.clear()
        self._records.clear()
