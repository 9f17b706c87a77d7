"""torch.optim: every public member and wrong calls, of ours beside stock, and the checks of everstep.testing.

The tables of the other targets (calls.py, test_members.py) make optimizers without parameters. Their values are used
here too. A refused call changes nothing: neither parameters nor state, and the run goes on as if it had not been made.
"""
from __future__ import absolute_import, division, print_function

import copy
import pickle
import re
import warnings

import numpy as np
import pytest

import everstep
import harness
from call_worlds import Outcome, caught, judge
from calls import WRONG_NUMBERS, Call
from everstep.compat.ways.torch_world import torch_ways
from everstep.errors import EverstepError
from everstep.optimizers import SGD, Adam
from everstep.testing import checks, training
from test_members import equal, verdict

if torch_ways():
    import torch

    optim = torch.optim
else:
    torch = optim = None

pytestmark = pytest.mark.skipif(torch is None, reason="torch is not in this environment")

WAYS = torch_ways()


def parameter(*shape, **more):
    return torch.nn.Parameter(torch.arange(1.0, 1 + np.prod(shape)).reshape(shape).to(more.get("dtype", torch.float32)))


class Side(object):
    """Stock or ours, with two parameters. `opt` is an Adam that took some steps, once `begin` was called."""

    def __init__(self, ours):
        self.ours, self.a, self.b = ours, parameter(4, 3), parameter(3)
        self.params, self.opt = [self.a, self.b], None

    def inside(self):
        return warnings.catch_warnings()

    def make(self, rule, params, **more):
        return (getattr(everstep.optimizers, rule).native_class(optim) if self.ours else getattr(optim, rule))(
            params, **more)

    def begin(self, optimizer, steps):
        self.opt = optimizer
        for number in range(steps):
            self.step(number)
        return self

    def give(self, number=2):
        for param in self.params:
            param.grad = torch.full_like(param, 0.5 + number)

    def step(self, number=2):
        self.give(number)
        self.opt.step()

    def trained(self):
        """Returns the parameters and all that the optimizer holds."""
        return plain([self.params, self.opt.state_dict()])


def plain(value):
    """Returns a value with arrays in the place of tensors."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value.detach().numpy().copy() if isinstance(value, torch.Tensor) else value


# Wrong calls: (name, function of a `Side`, what our message says). Those of NEW make an optimizer.


def made(**more):
    return lambda side: side.begin(side.make("Adam", side.params, **more), 1) and None


def made_of(make):
    return lambda side: side.make("Adam", make(side)) and None


NEW = [("params: " + name, made_of(make), message) for name, make, message in [
    ("nothing", lambda side: None, "needs params="), ("a number", lambda side: 3, "needs params="),
    ("a text", lambda side: "ab", "params is str"), ("one tensor", lambda side: side.a, "should be an iterable"),
    ("empty", lambda side: [], "empty parameter list"), ("of None", lambda side: [None], "is NoneType"),
    ("of arrays", lambda side: [np.ones(3)], "ndarray"), ("not a leaf", lambda side: [side.a * 2], "non-leaf"),
    ("one in two groups", lambda side: [{"params": [side.a]}, {"params": [side.a]}], "more than one parameter group"),
    ("a group of a set", lambda side: [{"params": {side.a}}], "ordered collections"),
    ("a group without params", lambda side: [{"lr": 0.1}], ""),
    ("some named", lambda side: [("a", side.a), side.b], "with/without names"),
    ("a generator that raises", lambda side: (1 / 0 for _ in [0]), ""),
    ("a group", lambda side: {"params": [side.a]}, "params is str"), ("complex", lambda side: [
        parameter(2, dtype=torch.complex64)], "trains variables of real numbers"),
    ("a module", lambda side: torch.nn.Linear(1, 1), "not iterable"),
    ("a group beside a tensor", lambda side: [{"params": [side.a]}, side.b], "must be a dict"),
]] + [(name, made(**more), message) for name, more, message in [
    ("betas of one", dict(betas=(0.9,)), "betas takes a tuple of 2 numbers"),
    ("betas of three", dict(betas=(0.9, 0.9, 0.9)), "betas takes a tuple of 2 numbers"),
    ("betas of a number", dict(betas=0.9), "betas takes a tuple of 2 numbers"),
    ("betas of None", dict(betas=None), "betas takes a tuple of 2 numbers"),
    ("betas of text", dict(betas=("a", 0.9)), "beta_1 takes a number"),
    ("eps negative", dict(eps=-1.0), "epsilon must be at least 0"), ("eps of text", dict(eps="x"), "epsilon takes"),
    ("weight_decay negative", dict(weight_decay=-1.0), "weight_decay"), ("unknown", dict(foo=1), "foo"),
    ("momentum", dict(momentum=0.9), "momentum is called beta_1"), ("amsgrad of text", dict(amsgrad="yes"), "amsgrad"),
    ("foreach and fused", dict(foreach=True, fused=True), "foreach and fused"),
    ("beta_1 beside betas", dict(beta_1=0.9, betas=(0.9, 0.9)), "beta_1 is given twice"),
    ("learning_rate beside lr", dict(lr=0.1, learning_rate=0.1), "learning_rate is given twice"),
]] + [("params twice", lambda side: side.make("Adam", side.params, params=side.params), "given twice")]
NEW.append(("lr: negative", made(lr=-0.5), "must be at least 0.*maximize=True"))
for text, values in WRONG_NUMBERS:
    NEW += [("lr: " + name, made(lr=value), text) for name, value in values]
    NEW += [("betas[0]: " + name, made(betas=(value, 0.9)), text) for name, value in values[1::3]]

# Calls on an optimizer that took two steps.


def of_gradient(value):
    """A step with another tensor in b.grad, which torch checks where it is assigned, but not in `grad.data`."""
    def call(side):
        side.give()
        side.b.grad.data = value()
        side.opt.step()

    return call


def of_rows(*rows):
    def call(side):
        side.give()
        side.a.grad = torch.sparse_coo_tensor(torch.tensor([rows]), torch.ones(len(rows), 3), (4, 3),
                                              check_invariants=False)
        side.opt.step()

    return call


def reverted(held, act, side):
    """Changes a dictionary, takes a step, and puts back what was there."""
    before = dict(held)
    side.give()
    try:
        act(held)
        side.opt.step()
    finally:
        for key in set(held) - set(before):
            del held[key]
        held.update(before)


def of_group(**more):
    return lambda side: reverted(side.opt.param_groups[0], lambda group: group.update(more), side)


def of_state(act):
    return lambda side: reverted(side.opt.state[side.a], act, side)


def grown(side):
    values, side.b.grad = side.b.data, None
    side.b.data = torch.ones(5)
    try:
        side.step()
    finally:
        side.b.grad, side.b.data = None, values


def added(make):
    return lambda side: side.opt.add_param_group(make(side))


def added_then_stepped(**more):
    def call(side):
        side.opt.add_param_group(dict(more, params=[parameter(2)]))
        try:
            side.opt.param_groups[1]["params"][0].grad = torch.ones(2)
            side.step()
        finally:
            side.opt.state.pop(side.opt.param_groups.pop()["params"][0], None)

    return call


def loaded(change):
    """Loads a changed copy of the optimizer's own state_dict, and takes a step: stock often fails only there."""
    def call(side):
        side.opt.load_state_dict(change(copy.deepcopy(side.opt.state_dict())))
        side.step()

    return call


def with_state(**more):
    return lambda saved: dict(saved, state={key: dict(each, **more) for key, each in saved["state"].items()})


def with_groups(**more):
    return lambda saved: dict(saved, param_groups=[dict(each, **more) for each in saved["param_groups"]])


def without(key):
    def change(saved):
        groups = [{name: each for name, each in group.items() if name != key} for group in saved["param_groups"]]
        state = {place: {name: each for name, each in of.items() if name != key}
                 for place, of in saved["state"].items()}
        return dict(saved, state=state, param_groups=groups)

    return change


def of_another(rule, *shapes, **more):
    def change(saved):
        params = [parameter(*shape) for shape in shapes]
        optimizer = getattr(optim, rule)(params, **more)
        for param in params:
            param.grad = torch.ones_like(param)
        optimizer.step()
        return optimizer.state_dict()

    return change


def other_state(*shapes):
    """Returns the state of an Adam on other parameters."""
    params = [parameter(*shape) for shape in shapes]
    optimizer = Adam(0.1).bind(optim, params=params)
    for param in params:
        param.grad = torch.ones_like(param)
    optimizer.step()
    return everstep.capture(optimizer, params)


def restored(make):
    return lambda side: everstep.restore(side.opt, make(side), side.params)


# Of everstep alone.
OURS = [("capture of " + name, lambda side, make=make: everstep.capture(side.opt, make(side)), message)
        for name, make, message in [
    ("None", lambda side: None, "variables are a list"), ("a number", lambda side: 3, "variables are a list"),
    ("of None", lambda side: [None], "trains the parameters"), ("one tensor", lambda side: side.a, "variables are a"),
    ("another parameter", lambda side: [parameter(2)], "trains the parameters that it was given; got Parameter"),
    ("one parameter twice", lambda side: [side.a, side.a], "param_0 is given twice"),
    ("no parameters", lambda side: [], "has slots of"),
    ("a view", lambda side: [side.a[:]], "trains the parameters")]
] + [("restore of " + name, restored(make), message) for name, make, message in [
    ("None", lambda side: None, "takes an everstep.State"), ("a text", lambda side: "x", "takes an everstep.State"),
    ("a state_dict", lambda side: side.opt.state_dict(), "takes an everstep.State"),
    ("other shapes", lambda side: other_state((5, 2), (2,)), r"the state has shape \(5, 2\); needed is \(4, 3\)"),
    ("fewer", lambda side: other_state((4, 3)), "unmatched"),
    ("more", lambda side: other_state((4, 3), (3,), (2,)), "unmatched")]
] + [("flush of " + name, lambda side, make=make: side.opt.flush(make()), "trains the parameters")
     for name, make in [("a text", lambda: "x"), ("another parameter", lambda: [parameter(2)])]
] + [("set " + name, lambda side, name=name, value=value: setattr(side.opt, name, value), message)
     for name, value, message in [
         ("learning_rate", "x", "takes a number"), ("lr", "x", "takes a number"), ("beta_1", 2.0, "must be at most 1"),
         ("learning_rate", float("nan"), "must be finite"), ("amsgrad", True, "is an option, fixed when it is bound")]
] + [("get " + name, lambda side, name=name: getattr(side.opt, name), "has no attribute")
     for name in "minimize apply_gradients get_config get_weights build iterations variables".split()]
HYPERS = [  # of a group, in place or of a loaded one
    ("betas of one", dict(betas=(0.9,)), "betas takes a tuple"), ("betas of None", dict(betas=None), "betas takes"),
    ("betas of three", dict(betas=(0.9,) * 3), "betas takes a tuple"), ("betas", dict(betas=0.9), "betas takes"),
    ("betas above 1", dict(betas=(1.5, 0.9)), "beta_1 must be at most 1"), ("eps", dict(eps="x"), "epsilon takes"),
    ("amsgrad", dict(amsgrad=True), "was bound with amsgrad=False"),
    ("differentiable", dict(differentiable=True), "does not take differentiable")]
LATER = [
    ("a closure that is a number", lambda side: side.opt.step(3), ""),
    ("a closure that takes arguments", lambda side: side.opt.step(lambda batch: batch), ""),
    ("a closure that raises", lambda side: side.opt.step(lambda: 1 / 0), ""),
    ("two arguments of step", lambda side: side.opt.step(None, None), ""),
    ("an unknown keyword of step", lambda side: side.opt.step(loss=None), ""),
    ("load_state_dict of nothing", lambda side: side.opt.load_state_dict(), ""),
    ("two arguments of zero_grad", lambda side: side.opt.zero_grad(1, 2), ""),
    ("get_slot of an unknown slot", lambda side: side.opt.get_slot(side.a, "momenta"), "has no slot 'momenta'"),
    ("get_slot of another parameter", lambda side: side.opt.get_slot(parameter(2), "m"), "trains the parameters"),
    ("a parameter that has grown", grown, r"param_1 is of shape \(5,\) now, and was of shape \(3,\)"),
    ("a row that is not there", of_rows(0, 9), "param_0 of 4 rows has no row 9"),
    ("a negative row", of_rows(-1, 0), "param_0 of 4 rows has no row -1"),
] + [("a gradient " + name, of_gradient(value), "the gradient of param_1 " + text) for name, value, text in [
    ("of another shape", lambda: torch.ones(2), "has values of shape"),
    ("that broadcasts", lambda: torch.ones(1), "has values"),
    ("of another rank", lambda: torch.ones(1, 3), "has values"),
    ("of int", lambda: torch.ones(3, dtype=torch.int32), "is of dtype int32"),
    ("of bool", lambda: torch.ones(3, dtype=torch.bool), "is of dtype bool"),
    ("of complex", lambda: torch.ones(3, dtype=torch.complex64), "is of dtype complex64")]
] + [("add_param_group, " + name, added(make), message) for name, make, message in [
    ("None", lambda side: None, ""), ("a list", lambda side: [parameter(2)], ""), ("no params", lambda side: {}, ""),
    ("there already", lambda side: {"params": [side.a]}, ""), ("a set", lambda side: {"params": {parameter(2)}}, ""),
    ("of numbers", lambda side: {"params": [1.0]}, ""), ("no leaf", lambda side: {"params": [side.a * 2]}, ""),
    ("complex", lambda side: {"params": [parameter(2, dtype=torch.complex64)]}, "real numbers"),
    ("named", lambda side: {"params": [("x", parameter(2))]}, ""), ("of None", lambda side: {"params": None}, ""),
    ("learning_rate", lambda side: {"params": [parameter(2)], "learning_rate": 0.1}, "calls learning_rate 'lr'")]
] + [("add_param_group and a step, " + name, added_then_stepped(**more), message) for name, more, message in HYPERS + [
    ("lr of text", dict(lr="x"), "learning_rate takes"), ("lr of NaN", dict(lr=float("nan")), "must be finite")]
] + [("a group's " + name, of_group(**more), message) for name, more, message in HYPERS + [
    ("params", dict(params=None), "")]
] + [("the state's " + name, of_state(act), message) for name, act, message in [
    ("step is a text", lambda state: state.update(step="x"), "step of param_0 is a count of steps; got 'x'"),
    ("step is NaN", lambda state: state.update(step=torch.tensor(float("nan"))), "is a count of steps"),
    ("step is a vector", lambda state: state.update(step=torch.ones(2)), "is a count of steps"),
    ("slot is of another shape", lambda state: state.update(exp_avg=torch.ones(7)), r"shape \(4, 3\); got a tensor"),
    ("slot is a text", lambda state: state.update(exp_avg="x"), "exp_avg of param_0 is a tensor.* got 'x'"),
    ("slot is an array", lambda state: state.update(exp_avg=np.ones((4, 3))), "exp_avg of param_0 is a tensor")]
] + [("load_state_dict, " + name, loaded(change), message) for name, change, message in [
    ("None", lambda saved: None, ""), ("a text", lambda saved: "x", ""), ("empty", lambda saved: {}, ""),
    ("no state", lambda saved: {"param_groups": saved["param_groups"]}, ""),
    ("no groups", lambda saved: {"state": saved["state"]}, ""),
    ("groups of text", lambda saved: dict(saved, param_groups="x"), "param_groups of a state_dict is a list"),
    ("groups of None", lambda saved: dict(saved, param_groups=[None]), "param_groups of a state_dict is a list"),
    ("a state of text", lambda saved: dict(saved, state="x"), "its state is a dictionary; got list and str"),
    ("a parameter's None", lambda saved: dict(saved, state={0: None}), "state of param_0 in the state_dict"),
    ("a parameter's text", lambda saved: dict(saved, state={1: "x"}), "state of param_1 in the state_dict"),
    ("one group more", lambda saved: dict(saved, param_groups=2 * saved["param_groups"]), ""),
    ("slots swapped", lambda saved: dict(saved, state={0: saved["state"][1], 1: saved["state"][0]}), "got a tensor of"),
    ("slots of another shape", lambda saved: with_state(exp_avg=torch.ones(7))(saved), "got a tensor of shape"),
    ("complex slots", lambda saved: with_state(exp_avg=saved["state"][0]["exp_avg"] * 1j)(saved), "real numbers"),
    ("a slot of text", with_state(exp_avg="x"), "got 'x'"), ("no slot", without("exp_avg"), "has no exp_avg of"),
    ("no lr", without("lr"), "has no lr, which"), ("no betas", without("betas"), "has no betas, which"),
    ("lr of text", with_groups(lr="x"), "learning_rate takes"),
    ("lr of None", with_groups(lr=None), "takes a number"),
    ("lr of NaN", with_groups(lr=float("nan")), "must be finite"), ("negative lr", with_groups(lr=-1.0), "at least 0"),
    ("params of None", with_groups(params=None), ""),
    ("a model's", lambda saved: torch.nn.Linear(2, 2).state_dict(), ""),
    ("of SGD", of_another("SGD", (4, 3), (3,), lr=0.1, momentum=0.9), "has no betas and eps"),
    ("of another model", of_another("Adam", (5, 2), (2,)), "exp_avg of param_0 is .* got a tensor of shape"),
    ("of a larger model", of_another("Adam", (4, 3), (3,), (2,)), "")] + [
    ("step of " + name, with_state(step=step), "is a count of steps") for name, step in [
        ("text", "x"), ("None", None), ("-1", -1), ("1.5", 1.5), ("infinity", float("inf"))]] + [
    (name, with_groups(**more), message) for name, more, message in HYPERS]
] + [("lr: " + name, of_group(lr=value), "learning_rate") for _, values in WRONG_NUMBERS for name, value in values]


def cases(calls):
    """Returns the parameters of a test; none without torch."""
    return [pytest.param(Call(name, None, function, False, True, message, None), id=name)
            for name, function, message in calls if torch is not None]


def outcome(call, side):
    error, value, by_caller = caught(call, side)
    return Outcome(error, value, False, by_caller)


def check_refused(call, stock, ours):
    how = judge(call, stock, ours)
    # Stock takes some, such as an infinite rate.
    assert how in ("ours", "same"), "{}: stock {!r}, ours {!r}".format(how, stock and stock.error, ours.error)
    if isinstance(ours.error, EverstepError):
        assert re.search(call.match, str(ours.error))


@pytest.mark.parametrize("call", cases(NEW))
def test_wrong_arguments(call):
    ours = Side(True)
    check_refused(call, outcome(call, Side(False)), outcome(call, ours))
    assert equal(plain(ours.params), plain(Side(True).params))


def stepped(ours, steps=2):
    side = Side(ours)
    return side.begin(side.make("Adam", side.params, lr=0.1), steps)


@pytest.mark.parametrize("call", cases(LATER + OURS))
def test_a_refused_call_changes_nothing(call):
    ours, clean = stepped(True), stepped(True)
    is_shared = any(call.function is function for _, function, _ in LATER)
    check_refused(call, outcome(call, stepped(False)) if is_shared else None, outcome(call, ours))
    assert equal(ours.trained(), clean.trained())
    ours.step()
    clean.step()
    assert equal(ours.trained(), clean.trained())


OTHERS = [
    everstep.accumulate(Adam(0.1), 3), everstep.moving_average(Adam(0.1), 0.5), SGD(0.1, momentum=0.9),
    SGD(everstep.InverseTimeDecay(0.5, 0.5)), everstep.optimizers.Nadam(0.1)]


@pytest.mark.parametrize("definition", OTHERS if torch else [], ids=lambda each: type(each).__name__)
def test_a_refused_call_changes_nothing_of_other_definitions(definition):
    def begun():
        side = Side(True)
        return side.begin(definition.bind(optim, params=side.params), 2)

    clean = begun()
    before = clean.trained()
    clean.step()
    after, refused = clean.trained(), 0
    for call in LATER[harness.TURN % 3 :: 1 if harness.FULL else 3]:
        side = begun()
        if caught(Call(call[0], None, call[1], False, True, call[2], None), side)[0] is not None:
            refused += 1
            assert equal(side.trained(), before), call
            side.step()
            assert equal(side.trained(), after), call
    assert refused > 25


# What stock refuses and ours takes.

TAKEN = [(name, function, "") for name, function in [
    ("sparse gradients of Adam", of_rows(0, 2)),
    ("float64 gradients", of_gradient(lambda: torch.ones(3, dtype=torch.float64))),
    ("float16 gradients", of_gradient(lambda: torch.ones(3, dtype=torch.float16))),
    ("a slot of another dtype", of_state(lambda state: state.update(exp_avg=torch.ones(4, 3, dtype=torch.float64)))),
    ("a slot that is gone", of_state(lambda state: state.pop("exp_avg"))),
    ("a count that is gone", of_state(lambda state: state.pop("step"))),
]]


@pytest.mark.parametrize("call", cases(TAKEN))
def test_ours_takes_more(call):
    stock, ours = [outcome(call, stepped(is_ours)) for is_ours in (False, True)]
    how = ["silent"] if hasattr(optim.Optimizer, "register_state_dict_post_hook") else ["silent", "taken"]  # torch 2.0
    assert judge(call, stock, ours) in how and ours.error is None


# Members.


def of_stock(group):
    """Returns what stock's Adam, AdamW and SGD have in a group; a definition may have more."""
    flags = "maximize foreach fused differentiable amsgrad nesterov".split()
    names = ["lr", "betas", "eps", "weight_decay", "momentum", "dampening"] + flags
    return {name: plain(group[name]) for name in names if group.get(name) is not None}


def of_state_dict(saved):
    return [list(map(of_parameter, saved["state"].values())), list(map(of_stock, saved["param_groups"])), sorted(saved)]


def of_parameter(state):
    """Returns a parameter's state, without the count that stock's SGD does not keep."""
    return {key: plain(value) for key, value in state.items() if key != "step" or "momentum_buffer" not in state}


def states(side):
    return [of_parameter(side.opt.state[param]) if param in side.opt.state else None for param in side.params]


def weights_after(act):
    """Returns the parameters after a change and a step."""
    def call(side):
        act(side)
        side.step()
        return plain(side.params) + states(side)

    return call


def registered(name, act):
    """Returns how often a hook was called, with how many arguments."""
    def call(side):
        calls = []
        handle = getattr(side.opt, name)(lambda *given: calls.append(len(given)))
        act(side)
        handle.remove()
        act(side)
        return calls

    return call


def load_again(side):
    side.opt.load_state_dict(side.opt.state_dict())


MEMBERS = {
    "defaults": lambda side: of_stock(side.opt.defaults),
    "param_groups": lambda side: [[of_stock(group), plain(group["params"])] for group in side.opt.param_groups],
    "state": states, "state_dict": lambda side: of_state_dict(side.opt.state_dict()),
    "step": weights_after(lambda side: None), "load_state_dict": weights_after(load_again),
    "zero_grad": lambda side: (side.give(), side.opt.zero_grad(False), plain([p.grad for p in side.params]))[2],
    "add_param_group": weights_after(lambda side: (
        side.params.append(parameter(2)), side.opt.add_param_group({"params": side.params[-1:], "lr": 0.5}))),
    "register_step_pre_hook": registered("register_step_pre_hook", Side.step),
    "register_step_post_hook": registered("register_step_post_hook", Side.step),
    "register_state_dict_pre_hook": registered("register_state_dict_pre_hook", lambda side: side.opt.state_dict()),
    "register_state_dict_post_hook": registered("register_state_dict_post_hook", lambda side: side.opt.state_dict()),
    "register_load_state_dict_pre_hook": registered("register_load_state_dict_pre_hook", load_again),
    "register_load_state_dict_post_hook": registered("register_load_state_dict_post_hook", load_again),
    "profile_hook_step": lambda side: side.opt.profile_hook_step(lambda optimizer: 3)(side.opt),
    "OptimizerPreHook": lambda side: str(side.opt.OptimizerPreHook),
    "OptimizerPostHook": lambda side: str(side.opt.OptimizerPostHook),
    # Not public, but read and called by people's code, schedulers and GradScaler.
    "_optimizer_step_pre_hooks": lambda side: list(side.opt._optimizer_step_pre_hooks),
    "_optimizer_step_post_hooks": lambda side: list(side.opt._optimizer_step_post_hooks),
    "_zero_grad_profile_name": lambda side: side.opt._zero_grad_profile_name.split("#")[0],
    "_step_supports_amp_scaling": lambda side: hasattr(side.opt, "_step_supports_amp_scaling"),
    "_patch_step_function": lambda side: side.opt._patch_step_function(),
    # the last line of ours is the definition, and numbers of stock may be 0 where ours are 0.0
    "__repr__": lambda side: [line.split(":")[0] for line in repr(side.opt).partition("\n<")[0].split("\n")
                              if "capturable" not in line],  # SGD of stock has none
}
STOCK = [("Adam", dict(lr=0.1)), ("AdamW", dict(lr=0.1, amsgrad=True)), ("SGD", dict(lr=0.1, momentum=0.9))]


def side_of(ours, rule, arguments, steps):
    side = Side(ours)
    optimizer = getattr(optim, rule)(side.params, **arguments)
    return side.begin(everstep.from_native(optimizer).bind(optim, params=side.params) if ours else optimizer, steps)


def test_every_member_of_stock_has_an_entry():
    names = {name for rule, arguments in STOCK for name in dir(side_of(False, rule, arguments, 1).opt)}
    assert {name for name in names if not name.startswith("_")} - set(MEMBERS) == set()


def found(side, member):
    try:
        return MEMBERS[member](side), None
    except Exception as error:
        return None, error


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("rule, arguments", STOCK, ids=[rule for rule, _ in STOCK])
def test_members(rule, arguments, steps):
    for member in sorted(MEMBERS):
        if not hasattr(optim.Adam, member) and member.startswith(("register_", "Optimizer")):  # torch 2.0
            continue
        stock, ours = [found(side_of(is_ours, rule, arguments, steps), member) for is_ours in (False, True)]
        assert verdict(stock, ours, False) == "same" and stock[1] is None, (member, stock, ours)


# The checks of everstep.testing, which makes optimizers of other targets only: `bind` takes the parameters here.

SETTINGS = dict(shapes=training.SHAPES, kinds=training.KINDS, steps=training.STEPS, between=training.START)
CHECKS = [name for name in checks.CHECKS if name != "config"]  # that has none


@pytest.mark.parametrize("name", CHECKS)
def test_checks(name):
    measured = checks.CHECKS[name](WAYS[0], Adam(0.03), dict(SETTINGS))
    assert measured.bound >= max([each.distance for each in measured.differences] or [0.0])


# Copies and schedules.


@pytest.mark.parametrize("again", [
    copy.deepcopy, lambda optimizer: pickle.loads(pickle.dumps(optimizer)), None], ids=["copy", "pickle", "load"])
def test_a_schedule_goes_on(again):
    definition = SGD(everstep.InverseTimeDecay(0.5, 0.5))
    side = Side(True)
    side.begin(definition.bind(optim, params=side.params), 3)
    other = Side(True)
    if again:
        other.opt = again(side.opt)
        other.params = other.opt.param_groups[0]["params"]
    else:
        other.opt = definition.bind(optim, params=other.params)
        other.opt.load_state_dict(side.opt.state_dict())
    before = [plain(each.params) for each in (side, other)]
    for each in (side, other):
        each.step()
    moved = [[now - old for now, old in zip(plain(each.params), start)] for each, start in zip((side, other), before)]
    assert equal(*moved) and side.opt.param_groups[0]["lr"] == other.opt.param_groups[0]["lr"] == 0.2


def test_a_function_is_called_once_at_a_step():
    rates = iter([0.5, 0.25, 0.125])
    side = Side(True)
    side.begin(SGD(lambda: next(rates)).bind(optim, params=side.params), 0)
    shown = []
    for number in range(2):
        side.step(number)
        shown.append(side.opt.param_groups[0]["lr"])
    assert shown == [0.25, 0.125]  # the first is in `defaults`
