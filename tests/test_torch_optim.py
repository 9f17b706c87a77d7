"""The torch_optim target: optimizers bound to torch.optim beside stock ones; state_dicts, groups and schedulers."""
from __future__ import absolute_import, division, print_function

import collections
import copy
import gc
import inspect
import io
import pickle
import warnings
import weakref

import numpy as np
import pytest

import everstep
import harness
import test_grid
from everstep.compat.stock.of_torch import FLAG
from everstep.compat.ways.torch_world import torch_ways
from everstep.errors import (
    DefinitionError,
    GradientError,
    HyperTypeError,
    HyperValueError,
    StateError,
    StateWarning,
    UnsupportedError,
    VariableError,
)
from everstep.optimizers import LAMB, SGD, Adam, AdamW, Adan

if torch_ways():
    import torch
    from torch.optim import lr_scheduler

    optim = torch.optim
else:
    torch = optim = lr_scheduler = None

pytestmark = pytest.mark.skipif(torch is None, reason="torch is not in this environment")

STEPS = 100
# Stock computes with hypers in float64. A definition computes on all APIs with what float32 holds of them: 1 - 0.999 of
# float32 is larger by 1.3e-5.
LIKE_STOCK = 2e-5
SHAPES = [(7, 5), (7,), (2, 3, 4), ()]
BETAS = dict(betas=(0.8, 0.99))
# (class, arguments): what from_native takes.
STOCK = [
    ("SGD", {}), ("SGD", dict(momentum=0.9)), ("SGD", dict(momentum=0.9, nesterov=True)),
    ("SGD", dict(momentum=0.9, dampening=0.3)), ("SGD", dict(momentum=0.9, weight_decay=0.1, maximize=True)),
    ("Adam", {}), ("Adam", dict(amsgrad=True, **BETAS)), ("Adam", dict(weight_decay=0.1, eps=1e-3)),
    ("Adam", dict(weight_decay=0.1, decoupled_weight_decay=True, maximize=True)), ("AdamW", {}),
    ("AdamW", dict(amsgrad=True, weight_decay=0.1)), ("RMSprop", {}), ("RMSprop", dict(momentum=0.9)),
    ("RMSprop", dict(centered=True, momentum=0.5, weight_decay=0.1, alpha=0.9)), ("Adagrad", {}),
    ("Adagrad", dict(lr_decay=0.1, initial_accumulator_value=0.1, weight_decay=0.01)), ("Adadelta", dict(lr=1.0)),
    ("Adadelta", dict(lr=1.0, rho=0.8, weight_decay=0.01)), ("Adamax", dict(eps=0.01)),
    ("Adamax", dict(weight_decay=0.01, **BETAS)), ("NAdam", {}),
    ("NAdam", dict(weight_decay=0.01, decoupled_weight_decay=True, momentum_decay=0.1)), ("RAdam", {}),
    ("RAdam", dict(weight_decay=0.01)), ("RAdam", dict(weight_decay=0.01, decoupled_weight_decay=True)),
    ("ASGD", {}), ("ASGD", dict(t0=7.0, lambd=0.02, alpha=0.6, weight_decay=0.1, maximize=True)), ("Rprop", {}),
    ("Rprop", dict(etas=(0.7, 1.3), step_sizes=(1e-3, 0.5), maximize=True)), ("Adafactor", {}),
    ("Adafactor", dict(beta2_decay=-0.5, eps=(0.3, 0.7), d=1.5, weight_decay=0.1, lr=0.3, maximize=True)),
    ("Adafactor", dict(d=1.1, eps=(None, 0.2), weight_decay=0.02)),
]
if torch is not None:  # decoupled_weight_decay is not in the oldest
    STOCK = [case for case in STOCK if hasattr(optim, case[0])  # Adafactor is not in the oldest
             and set(case[1]) <= set(inspect.signature(getattr(optim, case[0])).parameters)]
HAS_HOOKS = hasattr(getattr(optim, "Optimizer", None), "register_state_dict_post_hook")  # not in torch 2.0


def ids(case):
    return "-".join([case[0]] + ["{}={}".format(*item) for item in sorted(case[1].items())]).replace(" ", "")


def parameters(dtype="float32", seed=0):
    random = np.random.RandomState(seed)
    arrays = [np.asarray(random.uniform(0.2, 0.8, shape)) for shape in SHAPES]
    return [torch.nn.Parameter(torch.tensor(array).to(getattr(torch, dtype))) for array in arrays]


def gradients(params, step):
    random = np.random.RandomState(100 + step)
    return [torch.tensor(np.asarray(random.normal(0.5, 1.0, tuple(p.shape)))).to(p.dtype) for p in params]


def train(optimizer, params, steps=STEPS, first=0):
    for step in range(first, first + steps):
        for param, grad in zip(params, gradients(params, step)):
            param.grad = grad
        optimizer.step()


def apart(actual, expected):
    """Returns the largest difference of two lists of tensors, each divided by the largest number in it."""
    pairs = [(a.detach().double(), b.detach().double()) for a, b in zip(actual, expected)]
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) for a, b in pairs)


def stock(case, params):
    name, arguments = case
    return getattr(optim, name)(params, **dict(dict(lr=0.05), **arguments))


def ours(case, params):
    flags = {"maximize": True} if case[1].get("maximize") else {}
    return everstep.from_native(stock(case, parameters())).bind(optim, params=params, **flags)


def tensors_of(optimizer, param):
    return {key: value for key, value in optimizer.state[param].items() if torch.is_tensor(value)}


# Beside stock.


@pytest.mark.parametrize("case", STOCK, ids=ids)
def test_computes_what_stock_does(case):
    theirs, own, start = parameters(), parameters(), parameters()
    expected, actual = stock(case, theirs), ours(case, own)
    train(expected, theirs)
    train(actual, own)
    assert apart(own, theirs) < LIKE_STOCK and apart(start, theirs) > 0.15
    for param, other in zip(own, theirs):
        states = tensors_of(actual, param), tensors_of(expected, other)
        for key, value in states[1].items():
            assert apart([states[0][key]], [value]) < LIKE_STOCK, key
            assert states[0][key].dtype is value.dtype, key
    assert isinstance(actual, optim.Optimizer) and type(actual).__module__ == "everstep.native.torch.torch_optim"


@pytest.mark.parametrize("place", ["keywords", "group"])
def test_any_sequence_is_a_tuple(place):
    """Hydra and other settings files give lists, or what OmegaConf makes of them."""
    betas, weights = collections.UserList([0.75, 0.875]), []
    for cls, form in ((optim.Adam, {}), (Adam.native_class(optim), dict(corrected_root=True))):
        params = parameters()
        groups = [dict(params=params, betas=betas)] if place == "group" else params
        optimizer = cls(groups, lr=0.05, eps=1e-8, **(form if place == "group" else dict(form, betas=betas)))
        train(optimizer, params, 10)
        weights.append(params)
        if cls is optim.Adam:
            definition = everstep.from_native(optimizer)
            assert (definition.beta_1, definition.beta_2) == (0.75, 0.875)
    assert apart(*weights) < LIKE_STOCK


@pytest.mark.parametrize("case", STOCK, ids=ids)
def test_state_dicts_of_stock_load_and_back(case):
    """Each goes on with what the other has learned."""
    theirs, own = parameters(), parameters()
    expected, actual = stock(case, theirs), ours(case, own)
    train(expected, theirs, 10)
    train(actual, own, 10)
    into_ours, into_stock = ours(case, own), stock(case, theirs)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        into_ours.load_state_dict(expected.state_dict())
    keeps_no_count = case[0] == "SGD" and "momentum" in case[1]
    assert [each.category for each in told] == ([StateWarning] if keeps_no_count else [])
    into_stock.load_state_dict(actual.state_dict())
    train(into_ours, own, 10, first=10)
    train(into_stock, theirs, 10, first=10)
    assert apart(own, theirs) < LIKE_STOCK
    same = {key: value for key, value in expected.param_groups[0].items() if key != "params"}
    assert {key: actual.param_groups[0][key] for key in same} == same


# A run of SGD without momentum leaves no state, so that its file cannot say what wrote it.
@pytest.mark.parametrize("case", [case for case in STOCK if case[0] != "SGD" or "momentum" in case[1]]
                         + [("SparseAdam", {})], ids=ids)
def test_files_of_stock_say_what_they_are(case, tmp_path):
    """The groups and slots of a file, read without torch, give what from_native gives."""
    params, path = parameters(), str(tmp_path / "run.pt")
    optimizer = stock(case, params)
    if case[0] == "SparseAdam":
        params[0].grad = sparse_gradient(params[0], 0)
        optimizer.step()
    else:
        train(optimizer, params, 3)
    torch.save(optimizer.state_dict(), path)
    group = optimizer.param_groups[0]
    is_older = case[0].startswith("Adam") and group.get("weight_decay") and FLAG not in group  # see the next test
    state = everstep.read_checkpoint(path, optimizer=case[0] if is_older and case[0] != "Adamax" else None,
                                     updates=3 if case[0] == "SGD" else None)
    twin = everstep.from_native(optimizer)
    if case[1].get("decoupled_weight_decay") and case[0] == "Adam":  # the groups are those of AdamW
        twin = AdamW(0.05, weight_decay=0.1, epsilon=1e-8, corrected_root=True, decay_times_rate=True)
    assert everstep.Definition.from_config(state.definition) == twin
    for number, param in enumerate(params[:len(state.slots)]):
        stored = tensors_of(optimizer, param)
        assert len(state.slots[str(number)]) == len(set(stored).difference(["step", "mu_product"]))


def test_files_of_an_older_torch_say_not_whether_decay_is_decoupled(tmp_path):
    params, path = parameters(), str(tmp_path / "run.pt")
    optimizer = optim.AdamW([dict(params=params[:1], weight_decay=0.0), dict(params=params[1:])], weight_decay=0.1)
    train(optimizer, params, 1)
    saved = optimizer.state_dict()
    for group in saved["param_groups"]:
        group.pop(FLAG, None)
        group["weight_decay"] = 0.1
    torch.save(saved, path)
    with pytest.raises(StateError, match='the same for Adam and AdamW: give optimizer= .--optimizer., "Adam" or "A'):
        everstep.read_checkpoint(path)
    read = [everstep.read_checkpoint(path, optimizer=name) for name in ("Adam", "AdamW")]
    assert [state.definition["definition"] for state in read] == ["L2Penalty", "AdamW"]


def test_files_of_other_classes_are_not_taken_for_stock(tmp_path):
    """Another class may have the same keys in its groups and the same slots, here RAdam."""
    params, path = parameters(), str(tmp_path / "run.pt")
    optimizer = optim.RAdam(params)
    train(optimizer, params, 1)
    saved = optimizer.state_dict()
    for key in ("foreach", "maximize", "capturable", "differentiable", "decoupled_weight_decay"):
        saved["param_groups"][0].pop(key, None)  # the oldest torch has no maximize there
    torch.save(saved, path)
    with pytest.raises(StateError, match="is of no optimizer that torch.optim has: give definition="):
        everstep.read_checkpoint(path)


def sparse_gradient(param, step):
    random = np.random.RandomState(step)
    rows = random.randint(0, len(param), 4)  # equal ones add up
    values = torch.tensor(random.normal(0.5, 1.0, (4, param.shape[1])).astype("float32"))
    return torch.sparse_coo_tensor(torch.tensor(rows)[None], values, param.shape, check_invariants=True)


# Of stock Adagrad's own sparse tensors.
@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")
@pytest.mark.parametrize("case", [("SparseAdam", {}), ("SGD", {}), ("Adagrad", {})], ids=ids)
def test_sparse_gradients_as_in_stock(case):
    theirs, own = [[torch.nn.Parameter(torch.full((9, 3), 0.5))] for _ in range(2)]
    expected, actual = stock(case, theirs), ours(case, own)
    for step in range(STEPS):
        theirs[0].grad, own[0].grad = [sparse_gradient(theirs[0], step) for _ in range(2)]
        expected.step()
        actual.step()
    assert apart(own, theirs) < 1e-5
    assert [each.gradient for each in actual.everstep_plan()] == ["sparse"]


def test_gradients_may_become_sparse_and_dense_again():
    param, array = torch.nn.Parameter(torch.full((9, 3), 0.5)), np.full((9, 3), 0.5, "float32")
    optimizer, on_numpy = Adam(0.1, sparse="rows").bind(optim, params=[param]), Adam(0.1, sparse="rows").bind(np)
    for step in range(8):
        grad = sparse_gradient(param, step)
        rows = everstep.IndexedSlices(grad._values().numpy(), grad._indices()[0].numpy())
        param.grad = grad.to_dense() if step // 2 % 2 else grad
        optimizer.step()
        on_numpy.apply_gradients([(param.grad.numpy() if step // 2 % 2 else rows, array)])
    assert apart([param], [torch.tensor(array)]) < 1e-6


@pytest.mark.parametrize("name", ["LBFGS", "Muon"])
def test_what_no_definition_computes_is_refused_with_a_reason(name):
    if not hasattr(optim, name):
        pytest.skip("newer than this torch: https://pytorch.org/docs/stable/optim.html#algorithms")
    optimizer = getattr(optim, name)([torch.nn.Parameter(torch.ones(2, 2))])
    with pytest.raises(UnsupportedError, match="no definition for torch.optim.{}: ".format(name)):
        everstep.from_native(optimizer)


def test_every_stock_class_is_taken_or_refused_with_a_reason():
    from everstep.compat.stock.of_torch import REFUSED, TORCH

    names = {name for name in dir(optim) if isinstance(getattr(optim, name), type)} - {"Optimizer"}
    known = set(REFUSED) | {entry.native for entry in TORCH}
    assert names == {name for name in known if hasattr(optim, name)} and (
        names == known or not hasattr(optim, "Muon"))  # the newest one


def test_defaults_are_those_of_the_class():
    from everstep.compat.stock.lookup import installed_defaults
    from everstep.compat.stock.of_torch import TORCH

    for entry in TORCH:
        if not hasattr(optim, entry.native):  # newer than this torch
            continue
        found = dict(entry.none, **installed_defaults(entry, optim))
        if not HAS_HOOKS and entry.native == "SGD":
            found["lr"] = 0.001  # there it has no default
        assert found == entry.defaults, entry


@pytest.mark.skipif(not hasattr(optim, "Adafactor"),
                    reason="newer than this torch: https://pytorch.org/docs/stable/generated/torch.optim.Adafactor.html")
def test_none_of_stock_is_a_number_of_its_form_alone():
    """Adafactor's eps=(None, 0.001) is epsilon_1=0 with epsilon_floor; added to squares, 0 would divide by 0."""
    params = parameters()
    saved = optim.Adafactor(params).state_dict()
    bound = everstep.optimizers.Adafactor(0.01, epsilon_1=0.0, epsilon_floor=True).bind(optim, params=params)
    assert bound.param_groups[0]["eps"] == (None, 1e-3) and bound.epsilon_1 == 0
    bound.epsilon_1 = 0.5
    assert bound.param_groups[0]["eps"] == (0.5, 1e-3)
    bound.load_state_dict(saved)
    assert bound.epsilon_1 == 0
    config = everstep.from_native(bound).to_native_config(optim)
    assert config == {"class_name": "Adafactor", "config": dict(lr=0.01, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0)}
    other = everstep.optimizers.Adafactor(0.01).bind(optim, params=params)
    with pytest.raises(HyperTypeError, match="epsilon_1 takes a number.*got None"):
        other.load_state_dict(saved)
    assert other.param_groups[0]["eps"] == (1e-30, 1e-3)
    native = everstep.optimizers.Adafactor.native_class(optim)
    made = native(params, 0.01, eps=(None, 1e-3), epsilon_floor=True)
    assert made.definition == everstep.from_native(optim.Adafactor(params)) and made.param_groups[0]["eps"][0] is None
    for wrong in ({}, {"epsilon_floor": True, "relative_step": False}):
        with pytest.raises(HyperTypeError, match="epsilon_1 takes a number.*got None"):
            native(params, eps=(None, 1e-3), **wrong)


@pytest.mark.parametrize("case", [case for case in STOCK if not {"weight_decay", "lr_decay"}.intersection(case[1])],
                         ids=ids)
def test_configs_make_the_stock_optimizer(case):
    optimizer = stock(case, parameters())
    config = everstep.from_native(optimizer).to_native_config(optim)
    again = getattr(optim, config["class_name"])(parameters(), **config["config"])
    expected = dict(optimizer.param_groups[0], params=0)
    if "maximize" in expected:
        expected["maximize"] = False
    assert config["class_name"] == case[0] and dict(again.param_groups[0], params=0) == expected


def test_configs_of_stock():
    definition = Adam(0.1, epsilon=1e-8, corrected_root=True)
    config = definition.to_native_config(optim)
    assert config == {"class_name": "Adam", "config": dict(lr=0.1, betas=(0.9, 0.999), eps=1e-8, amsgrad=False)}
    with pytest.raises(UnsupportedError, match="Adam has corrected_root=True"):
        Adam(0.1).to_native_config(optim)
    bound = definition.bind(optim, params=parameters())
    bound.learning_rate = 0.2
    assert everstep.from_native(bound).learning_rate == 0.2


def test_capture_of_a_stock_optimizer():
    params = parameters()
    optimizer = stock(("AdamW", {}), params)
    train(optimizer, params, 3)
    state = everstep.capture(optimizer, params)
    assert state.updates == 3 and state.definition["definition"] == "AdamW"
    np.testing.assert_array_equal(state.slots["param_0"]["v"], optimizer.state[params[0]]["exp_avg_sq"].numpy())


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_capture_of_stock_sgd_is_told_its_count(momentum):
    params = parameters()
    optimizer = optim.SGD(params, lr=0.1, momentum=momentum)
    train(optimizer, params, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state = everstep.capture(optimizer, params, updates=3)
    assert state.updates == 3 and everstep.capture(optimizer, params, updates=0).updates == 0
    if momentum:
        np.testing.assert_array_equal(
            state.slots["param_0"]["velocity"], optimizer.state[params[0]]["momentum_buffer"].numpy())
    with pytest.warns(StateWarning, match="keeps no count of its steps.* give capture.*updates="):
        assert everstep.capture(optimizer, params).updates == (1 if momentum else 0)
    twin = parameters()
    rate = everstep.InverseTimeDecay(0.5, 0.5)
    restored = SGD(rate, momentum=momentum, rate_in_velocity=False).bind(optim, params=twin)
    everstep.restore(restored, state, twin)
    train(restored, twin, 1)
    assert abs(restored.param_groups[0]["lr"] - rate(3)) < 1e-7


def test_capture_is_told_no_count_of_what_counts():
    params = parameters()
    bound = SGD(0.1).bind(optim, params=params)
    for optimizer in (optim.Adam(params), bound):
        with pytest.raises(StateError, match="counts its updates itself; leave out updates="):
            everstep.capture(optimizer, params, updates=3)
    for wrong in (-1, 2.0, True, "3", float("nan")):
        with pytest.raises(StateError, match="updates must be an integer, at least 0; got"):
            everstep.capture(optim.SGD(params, lr=0.1), params, updates=wrong)


# Construction.


def test_bind_needs_parameters_and_says_so():
    with pytest.raises(DefinitionError, match="needs params="):
        Adam().bind(optim)
    with pytest.raises(DefinitionError, match="optimizer got an empty parameter list"):
        Adam().bind(optim, params=[])


def test_the_class_takes_what_the_stock_class_takes():
    own, theirs = parameters(), parameters()
    cls = Adam.native_class(optim)
    actual = cls(own, lr=0.05, betas=(0.8, 0.99), eps=1e-3, corrected_root=True)
    train(actual, own, 5)
    train(optim.Adam(theirs, lr=0.05, betas=(0.8, 0.99), eps=1e-3), theirs, 5)
    assert apart(own, theirs) < 1e-6
    assert actual.defaults["betas"] == (0.8, 0.99) and actual.learning_rate == 0.05


def test_names_of_parameters():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    definition = everstep.decoupled_weight_decay(SGD(0.5), 0.1, exclude="bias")
    optimizer = definition.bind(optim, params=model.named_parameters())
    for param in model.parameters():
        param.grad = torch.zeros_like(param)
    before = [param.detach().clone() for param in model.parameters()]
    optimizer.step()
    moved = [not torch.equal(old, new) for old, new in zip(before, model.parameters())]
    assert moved == [True, False, True, False]
    unnamed = definition.bind(optim, params=model.parameters())
    with pytest.raises(VariableError, match="the parameters of this optimizer have none; give params=model.named"):
        unnamed.step()


NAMED = {
    "pairs": lambda a, b: [("a", a), ("b", b)],
    "an iterator": lambda a, b: iter([("a", a), ("b", b)]),
    "groups": lambda a, b: [dict(params=[("a", a)], lr=0.1), dict(params=iter([("b", b)]))],
    "groups of torch 2.5": lambda a, b: [dict(params=[a, b], param_names=["a", "b"])],
}


@pytest.mark.parametrize("form", sorted(NAMED))
def test_names_are_kept_in_each_torch(form):
    """Torch before 2.6 keeps no names of parameters, so everstep keeps them, in the groups and in the state_dict."""
    optimizers = []
    for _ in range(2):
        a, b = params = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
        optimizers.append(everstep.decoupled_weight_decay(SGD(0.1), 0.1, exclude="b").bind(
            optim, params=NAMED[form](a, b)))
        train_ones(optimizers[-1], params)
        assert torch.equal(a, torch.full((2,), 0.89)) and torch.equal(b, torch.full((2,), 0.9))
    first, second = optimizers
    saved = first.state_dict()
    assert [name for group in saved["param_groups"] for name in group["param_names"]] == ["a", "b"]
    for group in saved["param_groups"]:
        del group["param_names"]  # as in a file of torch 2.5
    second.load_state_dict(saved)
    assert [name for group in second.param_groups for name in group["param_names"]] == ["a", "b"]
    assert sorted(everstep.capture(second, params, weights=True).variables) == ["a", "b"]
    for group in saved["param_groups"]:
        group["param_names"] = [name + "_saved" for name in group.get("param_names", "ab"[:len(group["params"])])]
    second.load_state_dict(saved)  # names of the file replace the optimizer's, as in torch 2.6
    assert second.param_groups[0]["param_names"][0] == "a_saved"


def train_ones(optimizer, params):
    for param in params:
        param.grad = torch.ones_like(param)
    optimizer.step()


def test_a_stock_optimizer_loads_names_and_forgets_none():
    params = [torch.nn.Parameter(torch.ones(2))]
    optimizer = Adam(corrected_root=True).bind(optim, params=[("a", params[0])])
    train_ones(optimizer, params)
    stock_one = optim.Adam(params)
    stock_one.load_state_dict(optimizer.state_dict())
    assert stock_one.state_dict()["param_groups"][0]["param_names"] == ["a"]
    np.testing.assert_allclose(everstep.capture(stock_one, params).slots["a"]["m"], [0.1, 0.1], rtol=1e-6)


def test_names_of_some_parameters_are_refused():
    a, b = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    for params in ([("a", a), b], [dict(params=[("a", a)]), dict(params=[b])], [dict(params=[a]), dict(
            params=[("b", b)])]):
        with pytest.raises(DefinitionError, match="has names for some of its parameters only"):
            Adam().bind(optim, params=params)
    optimizer = Adam().bind(optim, params=[("a", a)])
    for group in (dict(params=b), dict(params=[b])):
        with pytest.raises(DefinitionError, match="has names for some of its parameters only"):
            optimizer.add_param_group(group)
    optimizer.add_param_group(dict(params=[("b", b)]))
    assert [group["param_names"] for group in optimizer.param_groups] == [["a"], ["b"]]


def test_flags():
    params = parameters()
    optimizer = Adam().bind(optim, params=params, foreach=True, fused=False, capturable=False)
    assert optimizer.param_groups[0]["foreach"] is True
    with pytest.raises(DefinitionError, match="differentiable"):
        Adam().bind(optim, params=params, differentiable=True)
    optimizer.param_groups[0]["amsgrad"] = True
    with pytest.raises(StateError, match="was bound with amsgrad=False, which is fixed"):
        train(optimizer, params, 1)


def test_complex_parameters_are_refused():
    param = torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))
    for params in ([param], [("w", param)], [{"params": [param]}]):
        with pytest.raises(GradientError, match="trains variables of real numbers"):
            Adam().bind(optim, params=params)


@pytest.mark.filterwarnings("ignore:DTensor random operators may not have complete support on cpu")
def test_sharded_parameters_are_refused():
    from torch.distributed import HashStore, destroy_process_group, init_process_group

    try:
        from torch.distributed.tensor import DeviceMesh, distribute_tensor
    except ImportError:  # torch before 2.5
        from torch.distributed._tensor import DeviceMesh, distribute_tensor

    init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        param = torch.nn.Parameter(distribute_tensor(torch.ones(2), DeviceMesh("cpu", [0])))
        with pytest.raises(VariableError, match="trains whole tensors; got a DTensor"):
            Adam().bind(optim, params=[param])
    finally:
        destroy_process_group()


@pytest.mark.skipif(not harness.FULL, reason="to import torch's compiler takes half a minute")
def test_compiled_code_leaves_the_step_out():
    params, twin = parameters(), parameters()
    optimizer, other = [Adam(0.05).bind(optim, params=each) for each in (params, twin)]
    step = torch.compile(optimizer.step, backend="eager")
    for number in range(3):
        for each in (params, twin):
            for param, grad in zip(each, gradients(each, number)):
                param.grad = grad
        step()
        other.step()
    assert apart(params, twin) == 0


# Groups.


def by_groups(params, *settings):
    return [dict(each, params=params[place::len(settings)]) for place, each in enumerate(settings)]


def test_groups_have_hypers_of_their_own():
    settings = dict(lr=0.1), dict(betas=(0.5, 0.9), weight_decay=0.3)
    own, theirs = parameters(), parameters()
    definition = AdamW(0.01, weight_decay=0.1, corrected_root=True, epsilon=1e-8)
    actual = definition.bind(optim, params=by_groups(own, *settings))
    expected = optim.AdamW(by_groups(theirs, *settings), lr=0.01, weight_decay=0.1)
    for optimizer, params in ((actual, own), (expected, theirs)):
        train(optimizer, params, 20)
        optimizer.param_groups[1]["lr"] = 0.2
        train(optimizer, params, 20, first=20)
    assert apart(own, theirs) < 1e-5


def test_state_moves_between_optimizers_with_groups():
    """A state has one value of each hyper: those that differ stay as each optimizer has them."""
    settings = dict(lr=0.1), dict(lr=0.02, weight_decay=0.0)
    definition = AdamW(0.01, weight_decay=0.1, beta_1=0.8)
    params, twin = parameters(), parameters()
    optimizer = definition.bind(optim, params=by_groups(params, *settings))
    train(optimizer, params, 5)
    for group in optimizer.param_groups:
        group["eps"] = 1e-5
    with pytest.warns(StateWarning, match=r"different values of learning_rate \(0.1, 0.02\) and of weight_decay "):
        state = everstep.capture(optimizer, params, weights=True)
    learned = everstep.Definition.from_config(state.definition)
    assert learned == definition.replace(epsilon=1e-5)
    other = definition.bind(optim, params=by_groups(twin, *settings))
    for group in other.param_groups:
        group["eps"] = 1e-5
    everstep.restore(other, state, twin, weights=True)
    for each, trained in ((optimizer, params), (other, twin)):
        train(each, trained, 5, first=5)
    assert apart(twin, params) == 0
    with pytest.raises(StateError, match="different values of learning_rate and weight_decay, and a state has one"):
        everstep.restore(other, state, twin, hypers=True)
    assert [group["lr"] for group in other.param_groups] == [0.1, 0.02]


def test_a_group_that_comes_later_counts_by_itself():
    own, theirs = parameters(), parameters()
    actual = Adam(0.05, epsilon=1e-8, corrected_root=True).bind(optim, params=own[:2])
    expected = optim.Adam(theirs[:2], lr=0.05)
    for optimizer, params in ((actual, own), (expected, theirs)):
        train(optimizer, params, 10)
        optimizer.add_param_group({"params": params[2:], "lr": 0.01})
        train(optimizer, params, 10, first=10)
    assert apart(own, theirs) < 1e-5
    assert [int(actual.state[param]["step"]) for param in own] == [20, 20, 10, 10]
    with pytest.raises(StateError, match="different counts"):
        everstep.capture(actual, own)
    with pytest.raises(DefinitionError, match="a parameter group calls learning_rate 'lr'"):
        actual.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))], "learning_rate": 0.1})


def test_a_parameter_without_gradient_stands_still():
    own, theirs = parameters(), parameters()
    actual = Adam(0.05, epsilon=1e-8, corrected_root=True).bind(optim, params=own)
    expected = optim.Adam(theirs, lr=0.05)
    for optimizer, params in ((actual, own), (expected, theirs)):
        for step in range(10):
            for place, (param, grad) in enumerate(zip(params, gradients(params, step))):
                param.grad = None if place == step % 3 else grad
            optimizer.step()
    assert apart(own, theirs) < 1e-5
    optimizer = Adam().bind(optim, params=parameters())
    assert optimizer.step() is None and not optimizer.state


# (a number for each step: of which of 3 parameters there are gradients). The first has one at every step.
GRADIENTS_OF = [(0, 1), (0, 1), (0, 2), (0, 1, 2), (0,), (0, 1), (0, 2), (0,), (0, 1, 2), (0,), (0, 1, 2), (0, 1, 2)]


def train_some(optimizer, params, steps, zero=None):
    """Takes steps with `GRADIENTS_OF` of the first parameters; the others have none, or `zero(step, place)` of them."""
    for step in steps:
        for place, (param, grad) in enumerate(zip(params[:3], gradients(params, step))):
            missing = torch.zeros_like(param) if zero is not None and zero(step, place) else None
            param.grad = grad if place in GRADIENTS_OF[step] else missing
        optimizer.step()


@pytest.mark.parametrize("groups", [False, True], ids=["one group", "groups"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_window_takes_the_gradients_that_there_are(reduction, groups):
    """One call of step on the sum of the gradients of 3 batches: a parameter without any stands still."""
    own, theirs = parameters(), parameters()

    def of_groups(params):
        return [{"params": params[:1]}, {"params": params[1:], "lr": 0.01}] if groups else params

    actual = everstep.accumulate(Adam(0.05, epsilon=1e-8, corrected_root=True), 3, reduction).bind(
        optim, params=of_groups(own))
    expected = optim.Adam(of_groups(theirs), lr=0.05)
    for first in range(0, len(GRADIENTS_OF), 3):
        train_some(actual, own, (first, first + 1))
        if first == 3:  # within a window that began without a gradient of one parameter
            saved = copy.deepcopy(actual.state_dict())
            actual = everstep.accumulate(Adam(0.05, epsilon=1e-8, corrected_root=True), 3, reduction).bind(
                optim, params=of_groups(own))
            actual.load_state_dict(saved)
        train_some(actual, own, (first + 2,))
        expected.zero_grad()
        for step in range(first, first + 3):
            for place in GRADIENTS_OF[step]:
                param, grad = theirs[place], gradients(theirs, step)[place] / (3 if reduction == "mean" else 1)
                param.grad = grad if param.grad is None else param.grad + grad
        expected.step()
        assert apart(own[:3], theirs[:3]) < 1e-5, first
    assert [int(actual.state[param]["step"]) for param in own[:3]] == [4, 4, 4]
    assert int(actual.steps) == 12 and not actual.state[own[3]]


def test_a_parameter_frozen_for_whole_windows_stands_still():
    params = parameters()
    optimizer = everstep.accumulate(Adam(0.05), 2).bind(optim, params=params)
    train(optimizer, params, 4)
    params[1].grad, before = None, params[1].detach().clone()
    for step in range(4, 9):
        for place in (0, 2, 3):
            params[place].grad = gradients(params, step)[place]
        optimizer.step()
    assert torch.equal(params[1], before) and int(optimizer.state[params[1]]["step"]) == 2
    others = [param.detach().clone() for param in params]
    optimizer.flush(params)  # the window that is open has no gradient of it
    assert torch.equal(params[1], before) and not torch.equal(params[0], others[0])
    added = torch.nn.Parameter(torch.ones(3))
    optimizer.add_param_group({"params": [added]})
    train(optimizer, params + [added], 1, first=9)
    with pytest.raises(UnsupportedError, match="flush them in one call"):
        optimizer.flush(params)
    train(optimizer, params + [added], 1, first=10)
    assert [int(optimizer.state[param]["step"]) for param in params + [added]] == [6, 3, 6, 6, 1]
    assert {int(optimizer.state[param]["steps"]) for param in params + [added]} == {11}


def test_a_table_without_a_batch_in_a_window_keeps_its_rows():
    """Only rows of the window change, also if one of its batches has no gradient of the table."""
    table, twin, other = [torch.nn.Parameter(torch.full((9, 3), 0.5)) for _ in range(3)]
    actual = everstep.accumulate(Adam(0.1, sparse="rows"), 2).bind(optim, params=[table, other])
    expected = Adam(0.1, sparse="rows").bind(optim, params=[twin])
    for step in range(0, 8, 2):
        for late in (False, True):
            table.grad = sparse_gradient(table, step) if late == (step > 3) else None
            other.grad = torch.ones(9, 3)
            actual.step()
        twin.grad = sparse_gradient(table, step) / 2
        expected.step()
    assert apart([table], [twin]) < 1e-6


def test_a_loss_scale_is_one_for_all_parameters():
    """Also for those that had no gradient when it grew or fell, or came later."""
    start = [torch.full((3,), number) for number in (1.0, 2.0, 3.0)]
    own, theirs = [[torch.nn.Parameter(each.clone()) for each in start] for _ in range(2)]
    actual = everstep.loss_scale(Adam(0.05, epsilon=1e-8, corrected_root=True), 8.0, growth_interval=2).bind(
        optim, params=own[1:])
    expected = optim.Adam(theirs[1:], lr=0.05)
    present = [(1, 2), (2,), (2,), (1, 2), (2,), (0, 2), (0, 1, 2), (0, 1), (1,), (1, 2), (0,)]
    for step, places in enumerate(present):
        if step == 5:
            for optimizer, params in ((actual, own), (expected, theirs)):
                optimizer.add_param_group({"params": params[:1]})
        is_finite = step not in (4, 8)
        for optimizer, params in ((actual, own), (expected, theirs)):
            optimizer.zero_grad(set_to_none=True)
            loss = sum((params[place] ** 2).sum() for place in places)
            (actual.scale_loss(loss) if optimizer is actual else loss).backward()
            if is_finite or optimizer is actual:
                params[places[0]].grad *= 1 if is_finite else float("inf")
                optimizer.step()
        assert apart(own, theirs) < 1e-5, step
    assert float(actual.scale_loss(1.0)) == 8.0 * 2**4 / 2**2


def test_a_sharpness_aware_step_needs_no_gradient_of_all():
    """A parameter may have none at one of the two points: there it counts as 0."""
    weights = []
    for missing in (torch.zeros_like, lambda param: None):
        own = parameters()[:3]
        optimizer = everstep.sharpness_aware(Adam(0.05), 0.5).bind(optim, params=own)
        everstep.enable_multistage(optimizer)
        for step in range(2, 12):
            of_pair = GRADIENTS_OF[step] + GRADIENTS_OF[step ^ 1]
            for place, (param, grad) in enumerate(zip(own, gradients(own, step))):
                param.grad = grad if place in GRADIENTS_OF[step] else missing(param) if place in of_pair else None
            optimizer.step()
        weights.append(own)
        assert [int(optimizer.state[param]["step"]) for param in own] == [5, 4, 4]
    assert apart(*weights) < 1e-6


@pytest.mark.parametrize("name", ["RAdam", "Prodigy", "Adafactor", "Rprop", "ASGD", "clip", "accumulate", "loss_scale"])
def test_another_default_device_changes_nothing(name):
    """`torch.set_default_device` and `with torch.device(...)`: single numbers stay on the processor."""
    make = {
        "clip": lambda: everstep.clip(SGD(everstep.ExponentialDecay(0.1, 3, 0.5)), global_norm=1.0),
        "accumulate": lambda: everstep.accumulate(Adam(0.1), 2),
        "loss_scale": lambda: everstep.loss_scale(everstep.moving_average(AdamW(0.1), 0.5), growth_interval=2),
    }.get(name) or (lambda: getattr(everstep.optimizers, name)())
    weights = []
    for device in ("cpu", "meta"):
        params, optimizer = parameters(), None
        for step in range(6):
            for param, grad in zip(params, gradients(params, step)):
                param.grad = grad
            with torch.device(device):
                if step == 0:
                    optimizer = make().bind(optim, params=params)
                if step == 3:
                    state = everstep.capture(optimizer, params)
                    optimizer = make().bind(optim, params=params)
                    everstep.restore(optimizer, state, params)
                optimizer.scale_loss(1.0)
                optimizer.step()
        weights.append(params)
    assert apart(*weights) == 0


def test_totals_span_groups():
    definition = everstep.clip(SGD(1.0), global_norm=1.0)
    one, two = parameters(), parameters()
    first = definition.bind(optim, params=one)
    second = definition.bind(optim, params=by_groups(two, dict(lr=1.0), dict(lr=2.0)))
    before = parameters()
    train(first, one, 1)
    train(second, two, 1)
    for place in range(len(one)):
        factor = 1 + place % 2
        np.testing.assert_allclose(*[(now.detach() - old.detach()).numpy() * scale for now, old, scale in (
            (two[place], before[place], 1), (one[place], before[place], factor))], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["learning_rate", "epsilon"])
def test_a_loss_scale_spans_groups(name):
    """Groups with other hypers measure and accept together: one that is not finite stops both."""
    clipped = everstep.clip(Adam(0.1, corrected_root=True), global_norm=1.0)
    other = {"learning_rate": {"lr": 0.5}, "epsilon": {"eps": 1e-3}}[name]
    own, theirs = parameters(), parameters()
    actual = everstep.loss_scale(clipped, 8.0).bind(optim, params=by_groups(own, {}, other))
    expected = optim.Adam(by_groups(theirs, {"eps": 1e-7}, dict({"eps": 1e-7}, **other)), lr=0.1)
    for step in range(6):
        scale = float(actual.scale_loss(1.0))
        for param, twin, grad in zip(own, theirs, gradients(own, step)):
            param.grad, twin.grad = grad * scale, grad
        torch.nn.utils.clip_grad_norm_(theirs, 1.0)
        if step == 3:
            own[1].grad[0] = float("nan")
        else:
            expected.step()
        actual.step()
        assert apart(own, theirs) < 1e-5, step
    assert float(actual.scale_loss(1.0)) == 4.0
    accumulated = everstep.loss_scale(everstep.accumulate(clipped, 2)).bind(optim, params=by_groups(own, {}, other))
    accumulated.scale_loss(1.0)
    train(accumulated, own, 3)
    accumulated.flush()
    assert {int(accumulated.state[param]["step"]) for param in own} == {2}


def test_a_gradient_that_is_a_parameter_of_another_group():
    """Each group steps by the gradients as they were before the step."""
    one, two = [torch.nn.Parameter(torch.full((3,), number)) for number in (1.0, 2.0)]
    optimizer = SGD(0.5).bind(optim, params=[{"params": [one], "lr": 1.0}, {"params": [two]}])
    one.grad, two.grad = two.detach(), one.detach()
    optimizer.step()
    assert one.tolist() == [-1.0] * 3 and two.tolist() == [1.5] * 3


def test_a_hyper_that_decides_for_all_has_one_value():
    definition = everstep.optimizers.Prodigy()
    groups = by_groups(parameters(), dict(lr=1.0), dict(lr=0.5))
    optimizer = definition.bind(optim, params=groups)
    with pytest.raises(UnsupportedError, match="for all variables together, but parameter groups have different"):
        train(optimizer, optimizer.param_groups[0]["params"] + optimizer.param_groups[1]["params"], 1)


# Hypers.


def test_hypers_are_read_at_each_step():
    own, theirs = parameters(), parameters()
    actual = SGD(0.1, momentum=0.5, rate_in_velocity=False).bind(optim, params=own)
    expected = optim.SGD(theirs, lr=0.1, momentum=0.5)
    for optimizer, params in ((actual, own), (expected, theirs)):
        train(optimizer, params, 3)
        optimizer.param_groups[0].update(lr=0.3, momentum=0.9)
        train(optimizer, params, 3, first=3)
    assert apart(own, theirs) < 1e-6 and actual.learning_rate == 0.3
    actual.learning_rate = 0.7
    assert actual.param_groups[0]["lr"] == 0.7
    actual.param_groups[0]["lr"] = -1.0
    with pytest.raises(HyperValueError, match="learning_rate must be at least 0"):
        train(actual, own, 1)


def test_a_tensor_rate_stays_one():
    own, theirs = parameters(), parameters()
    rates = [torch.tensor(0.1), torch.tensor(0.1)]
    actual = Adam(rates[0], epsilon=1e-8, corrected_root=True).bind(optim, params=own)
    expected = optim.Adam(theirs, lr=rates[1])
    for optimizer, params, rate in ((actual, own, rates[0]), (expected, theirs, rates[1])):
        train(optimizer, params, 3)
        rate.fill_(0.01)
        train(optimizer, params, 3, first=3)
    assert apart(own, theirs) < 1e-5 and actual.param_groups[0]["lr"] is rates[0]


def test_a_schedule_decides():
    params, twin = parameters(), parameters()
    optimizer = SGD(everstep.InverseTimeDecay(0.5, 0.5)).bind(optim, params=params)
    other = SGD(0.5).bind(optim, params=twin)
    for step in range(4):
        train(optimizer, params, 1, first=step)
        other.learning_rate = 0.5 / (1 + 0.5 * step)
        train(other, twin, 1, first=step)
    assert apart(params, twin) < 1e-6
    assert abs(optimizer.param_groups[0]["lr"] - 0.5 / 2.5) < 1e-7  # what the last step used
    optimizer.param_groups[0]["lr"] = 0.1
    with pytest.raises(HyperValueError, match="decides its value at every step"):
        train(optimizer, params, 1)


SCHEDULERS = [
    ("LambdaLR", lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.9**epoch)),
    ("MultiplicativeLR", lambda o: lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.9)),
    ("StepLR", lambda o: lr_scheduler.StepLR(o, 3)),
    ("MultiStepLR", lambda o: lr_scheduler.MultiStepLR(o, [2, 5])),
    ("ConstantLR", lambda o: lr_scheduler.ConstantLR(o, total_iters=3)),
    ("LinearLR", lambda o: lr_scheduler.LinearLR(o, total_iters=4)),
    ("ExponentialLR", lambda o: lr_scheduler.ExponentialLR(o, 0.8)),
    ("PolynomialLR", lambda o: lr_scheduler.PolynomialLR(o, 20)),
    ("CosineAnnealingLR", lambda o: lr_scheduler.CosineAnnealingLR(o, 20)),
    ("CosineAnnealingWarmRestarts", lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4)),
    ("SequentialLR", lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o, total_iters=2), lr_scheduler.ExponentialLR(o, 0.9)], [2])),
    ("ChainedScheduler", lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, total_iters=2), lr_scheduler.ExponentialLR(o, 0.9)])),
    ("CyclicLR", lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 3, cycle_momentum=True)),
    ("OneCycleLR", lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=20)),
    ("ReduceLROnPlateau", lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1)),
]


# SequentialLR of older torch calls its schedulers so.
@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step")
@pytest.mark.parametrize("name, make", SCHEDULERS, ids=[name for name, _ in SCHEDULERS])
def test_schedulers_of_torch(name, make):
    own, theirs = parameters(), parameters()
    case = ("Adam", {}) if name != "CyclicLR" else ("SGD", dict(momentum=0.9))
    rates = []
    for optimizer, params in ((ours(case, own), own), (stock(case, theirs), theirs)):
        scheduler = make(optimizer)
        for step in range(12):
            train(optimizer, params, 1, first=step)
            scheduler.step(*([1.0] if name == "ReduceLROnPlateau" else []))
            rates.append(optimizer.param_groups[0]["lr"])
    assert apart(own, theirs) < 1e-5 and rates[:12] == rates[12:] and len(set(rates)) > 1


def test_every_scheduler_of_torch_is_tried():
    bases = {"LRScheduler", "_LRScheduler"}
    here = {name for name in lr_scheduler.__all__ if isinstance(getattr(lr_scheduler, name), type)}
    assert here - bases == {name for name, _ in SCHEDULERS}


# What stock's `step` does.


def test_hooks():
    params, calls = parameters(), []
    optimizer = Adam().bind(optim, params=params)
    optimizer.register_step_pre_hook(lambda *args: calls.append("before"))
    optimizer.register_step_post_hook(lambda *args: calls.append("after"))
    if HAS_HOOKS:
        optimizer.register_state_dict_post_hook(lambda _, saved: dict(saved, more=1))
        optimizer.register_load_state_dict_post_hook(lambda _: calls.append("loaded"))
    train(optimizer, params, 1)
    saved = optimizer.state_dict()
    optimizer.load_state_dict(saved)
    assert calls == ["before", "after"] + ["loaded"] * HAS_HOOKS and saved.get("more") == (1 if HAS_HOOKS else None)
    optimizer.zero_grad()
    assert all(param.grad is None for param in params)


def test_closure():
    param = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = SGD(0.25).bind(optim, params=[param])

    def closure():
        optimizer.zero_grad()
        loss = (param**2).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 5.0
    assert param.tolist() == [0.5, 1.0]
    twice = everstep.sharpness_aware(SGD(0.25), 0.1).bind(optim, params=[param])
    with pytest.raises(UnsupportedError, match="give step a closure"):
        twice.step()
    assert twice.step(closure).item() == 1.25 and param.tolist() != [0.25, 0.5]


def test_wrappers_count_steps():
    params, twin = parameters(), parameters()
    accumulated = everstep.accumulate(Adam(0.1), 4).bind(optim, params=params)
    plain = Adam(0.1).bind(optim, params=twin)
    train(accumulated, params, 6)
    for param, grads in zip(twin, zip(*[gradients(twin, step) for step in range(4)])):
        param.grad = sum(grads) / 4
    plain.step()
    assert apart(params, twin) < 1e-6
    assert int(accumulated.state[params[0]]["step"]) == 1 and int(accumulated.steps) == 6
    resumed = everstep.accumulate(Adam(0.1), 4).bind(optim, params=params)
    resumed.load_state_dict(accumulated.state_dict())
    before = [param.detach().clone() for param in params]
    train(resumed, params, 1, first=6)
    assert apart(params, before) == 0
    train(resumed, params, 1, first=7)
    assert apart(params, before) > 0
    resumed.flush()


@pytest.mark.skipif(torch is None or not hasattr(torch.amp, "GradScaler"),
                    reason="before torch 2.3 it is of CUDA only: https://pytorch.org/docs/stable/amp.html#gradient-scaling")
def test_gradient_scaler():
    param = torch.nn.Parameter(torch.ones(2))
    optimizer = Adam(0.5).bind(optim, params=[param])
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale((param * torch.tensor([1.0, float("inf")])).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert param.tolist() == [1.0, 1.0] and not optimizer.state and scaler.get_scale() == 2.0
    optimizer.zero_grad()
    scaler.scale((param * torch.tensor([1.0, 2.0])).sum()).backward()
    scaler.step(optimizer)
    np.testing.assert_allclose(param.detach().numpy(), [0.5, 0.5], rtol=1e-5)
    assert not hasattr(optimizer, "_step_supports_amp_scaling")


def test_loss_scale():
    param = torch.nn.Parameter(torch.ones(2))
    optimizer = everstep.loss_scale(SGD(0.5), initial_scale=8.0).bind(optim, params=[param])
    optimizer.scale_loss((param * 2).sum()).backward()
    assert param.grad.tolist() == [16.0, 16.0]
    optimizer.step()
    assert param.tolist() == [0.0, 0.0]


# Copies.


def pickled(optimizer):
    return pickle.loads(pickle.dumps(optimizer))


def through_torch_save(optimizer):
    file = io.BytesIO()
    torch.save(optimizer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")  # torch.save of torch 2.0
@pytest.mark.parametrize("copied", [copy.deepcopy, pickled, through_torch_save])
def test_copies_train_copies_of_the_parameters(copied):
    params = parameters()
    optimizer = AdamW(0.05).bind(optim, params=[dict(params=params, initial_lr=0.05)])
    train(optimizer, params, 5)
    optimizer.param_groups[0]["lr"] = 0.01
    twin = copied(optimizer)
    others = twin.param_groups[0]["params"]
    assert type(twin) is type(optimizer) and others[0] is not params[0]
    assert twin.param_groups[0]["initial_lr"] == 0.05 and twin.learning_rate == 0.01
    train(optimizer, params, 5, first=5)
    train(twin, others, 5, first=5)
    assert apart(others, params) == 0


def test_a_deep_copy_goes_with_the_model():
    model = torch.nn.Linear(2, 1)
    optimizer = Adam().bind(optim, params=model.parameters())
    model_copy, optimizer_copy = copy.deepcopy((model, optimizer))
    assert optimizer_copy.param_groups[0]["params"][0] is model_copy.weight


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")  # torch.load of torch 2.0
def test_state_dicts_load_with_weights_only():
    params = parameters()
    optimizer = Adan(0.01).bind(optim, params=params)
    train(optimizer, params, 2)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    resumed = Adan(0.01).bind(optim, params=params)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    twin = copy.deepcopy(optimizer)
    train(resumed, params, 3, first=2)
    others = twin.param_groups[0]["params"]
    train(twin, others, 3, first=2)
    assert apart(params, others) == 0


# Loading.


def test_slots_keep_their_dtype():
    """torch's own loader rounds all slots to the parameter's dtype."""
    params = parameters("bfloat16")
    definition = everstep.master_copies(Adam(0.01))
    optimizer = definition.bind(optim, params=params)
    train(optimizer, params, 3)
    resumed = definition.bind(optim, params=params)
    resumed.load_state_dict(optimizer.state_dict())
    for param in params:
        for key, value in optimizer.state[param].items():
            assert torch.equal(value, resumed.state[param][key]) and value.dtype is resumed.state[param][key].dtype, key
    assert optimizer.state[params[0]]["exp_avg"].dtype is torch.float32


def test_what_does_not_fit_changes_nothing():
    params = parameters()
    optimizer = Adam(0.05).bind(optim, params=params)
    train(optimizer, params, 2)
    before = copy.deepcopy(optimizer.state_dict())
    other = optim.Adam(parameters(), amsgrad=True)
    for wrong, error, text in (
        (other.state_dict(), StateError, "was bound with amsgrad=False"),
        (optim.Adam(parameters()[:2]).state_dict(), ValueError, "size of optimizer's group"),
        (dict(before, state={0: {"step": torch.tensor(1.0)}}), StateError, "has no exp_avg and exp_avg_sq of param_0"),
    ):
        with pytest.raises(error, match=text):
            optimizer.load_state_dict(wrong)
    after = optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"]
    assert all(torch.equal(after["state"][0][key], value) for key, value in before["state"][0].items())


def test_state_that_is_replaced_counts():
    params, twin = parameters(), parameters()
    optimizer, other = [Adam(0.05).bind(optim, params=each) for each in (params, twin)]
    train(optimizer, params, 2)
    train(other, twin, 2)
    for param in params:
        optimizer.state[param]["exp_avg"] = torch.zeros_like(param)
    for param in twin:
        other.state[param]["exp_avg"].zero_()
    train(optimizer, params, 2, first=2)
    train(other, twin, 2, first=2)
    assert apart(params, twin) == 0
    optimizer.state.clear()
    train(optimizer, params, 1)
    assert int(optimizer.state[params[0]]["step"]) == 1


def grown(optimizer, names, steps=5):
    """Returns the parameter that is left, and weak references to those before it.

    Gaussian splatting replaces its parameters by larger ones in the groups and moves their state (`_prune_optimizer`
    and `cat_tensors_to_optimizer` of https://github.com/graphdeco-inria/gaussian-splatting).
    """
    old, group = [], optimizer.param_groups[0]
    for _ in range(steps):
        param = group["params"][0]
        (param.sum() ** 2).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        state = optimizer.state.pop(param)
        state.update((name, torch.cat([state[name], torch.zeros(1)])) for name in names)
        old.append(weakref.ref(param))
        group["params"][0] = torch.nn.Parameter(torch.cat([param.detach(), torch.zeros(1)]))
        optimizer.state[group["params"][0]] = state
    param = group["params"][0]
    (param.sum() ** 2).backward()
    optimizer.step()
    return param, old


def test_parameters_that_are_replaced_are_freed():
    names = ["exp_avg", "exp_avg_sq"]
    stock, old = grown(optim.Adam([torch.nn.Parameter(torch.ones(3))], lr=0.1), names)
    ours, ours_old = grown(Adam(0.1, epsilon=1e-8).bind(optim, params=[torch.nn.Parameter(torch.ones(3))]), names)
    gc.collect()
    assert apart([ours], [stock]) < 1e-6
    kept, ours_kept = [sum(each() is not None for each in some) for some in (old, ours_old)]
    assert ours_kept <= kept <= 1

    param = torch.nn.Parameter(torch.ones(3))
    optimizer = everstep.accumulate(SGD(0.1), 2).bind(optim, params=[param])
    for step in range(4):
        if step == 2:
            state = optimizer.state.pop(param)
            param = optimizer.param_groups[0]["params"][0] = torch.nn.Parameter(param.detach().clone())
            optimizer.state[param] = state
        param.grad = torch.ones(3)
        optimizer.step()
    assert apart([param], [torch.full((3,), 0.8)]) < 1e-6


def test_what_comes_and_goes_is_not_kept(monkeypatch):
    monkeypatch.setattr("everstep.compat.backends.on_torch.MOST_CONSTANTS", 50)
    param = torch.nn.Parameter(torch.ones(3))
    optimizer = everstep.optimizers.Rprop(1e-3).bind(optim, params=[param])
    for step in range(100):
        optimizer.param_groups[0]["lr"] = 1e-3 / (1 + step)
        param.grad = torch.ones(3)
        optimizer.step()
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert len(optimizer._bound.backend.lists._constants) <= 50
    assert len(optimizer._bound.adapter.groups._checked) < 20


class Louder(AdamW.native_class(optim) if torch else object):
    def __init__(self, params, lr=1e-2, loudness=2.0, **given):
        super(Louder, self).__init__(params, lr=lr, **given)
        self.loudness = loudness


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_copies_of_a_subclass_with_an_init_of_its_own(duplicate):
    params = parameters()
    optimizer = Louder(params, 0.05, loudness=3.0, betas=(0.8, 0.9))
    train(optimizer, params, 2)
    again, twins = duplicate((optimizer, params))
    assert type(again) is Louder and again.loudness == 3.0
    assert again.param_groups[0]["lr"] == 0.05 and again.param_groups[0]["betas"] == (0.8, 0.9)
    train(optimizer, params, 2, first=2)
    train(again, twins, 2, first=2)
    assert apart(params, twins) == 0


def test_counts_go_on_where_float32_ends():
    params = parameters()
    optimizer = SGD(0.0).bind(optim, params=params)
    train(optimizer, params, 1)
    for param in params:
        optimizer.state[param]["step"].fill_(2**24 - 1)
    train(optimizer, params, 3)
    assert {int(optimizer.state[param]["step"]) for param in params} == {2**24 + 2}


# State.


def test_state_moves_to_numpy_and_back():
    params = parameters()
    optimizer = Adam(0.05).bind(optim, params=params)
    train(optimizer, params, 3)
    arrays = [param.detach().numpy().copy() for param in params]
    state = everstep.capture(optimizer, {str(place): param for place, param in enumerate(params)})
    assert state.updates == 3 and sorted(state.slots["0"]) == ["m", "v"]
    on_numpy = Adam(0.05).bind(np)
    everstep.restore(on_numpy, state, {str(place): array for place, array in enumerate(arrays)})
    train(optimizer, params, 1, first=3)
    on_numpy.apply_gradients([(grad.numpy(), array) for grad, array in zip(gradients(params, 3), arrays)])
    assert apart([torch.tensor(array) for array in arrays], params) < 1e-6
    twin = parameters()
    restored = Adam(0.05).bind(optim, params=twin)
    everstep.restore(restored, state, {str(place): param for place, param in enumerate(twin)})
    assert int(restored.state[twin[0]]["step"]) == 3
    np.testing.assert_array_equal(restored.get_slot(twin[0], "m").numpy(), state.slots["0"]["m"])


@pytest.mark.parametrize("written", test_grid.WRITERS, ids=lambda written: written.name)
@pytest.mark.parametrize("name", sorted(test_grid.DEFINITIONS))
def test_a_run_that_began_elsewhere_goes_on(written, name):
    """The states of tests/states: of TF 1.4 to 2.21 and of every Keras."""
    assert test_grid.goes_on(torch_ways()[0], written, name) <= 1e-5


@pytest.mark.parametrize("way", [way for way in harness.quickest() if way.target in ("arrays", "keras3")],
                         ids=harness.way_name)
@pytest.mark.parametrize("name", sorted(test_grid.DEFINITIONS))
def test_a_run_that_began_here_goes_on_elsewhere(way, name, tmp_path):
    assert test_grid.goes_on_elsewhere(torch_ways()[0], way, name, str(tmp_path / "half.npz")) <= 1e-5


def test_variables_may_be_named_pairs():
    """As params= of bind takes them; a generator too, and beside a stock optimizer."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    optimizer = Adam(0.1).bind(optim, params=model.named_parameters())
    plain = optim.Adam(model.parameters(), 0.1)
    for each in (optimizer, plain):
        train(each, list(model.parameters()), 2)
        expected = everstep.capture(each, dict(model.named_parameters()), weights=True)
        for pairs in (model.named_parameters(), list(model.named_parameters()), iter(model.named_parameters())):
            state = everstep.capture(each, pairs, weights=True)
            assert list(state.slots) == list(expected.slots) == [name for name, _ in model.named_parameters()]
            assert list(state.variables) == list(state.slots) and state.ordered
    restored = Adam(0.1, corrected_root=True).bind(optim, params=model.named_parameters())
    matching = everstep.restore(restored, state, model.named_parameters())
    assert not matching.missing and not matching.unused
    assert torch.equal(restored.state[model[0].bias]["exp_avg"], plain.state[model[0].bias]["exp_avg"])
    twice = [("a", model[0].bias), ("a", model[1].bias)]
    with pytest.raises(VariableError, match="two variables have the same name, of a, a"):
        everstep.capture(optimizer, twice)


def test_averages():
    params = parameters()
    optimizer = everstep.moving_average(SGD(0.5), average_decay=0.5).bind(optim, params=params)
    train(optimizer, params, 3)
    trained = [param.detach().clone() for param in params]
    with everstep.averaged(optimizer):
        assert apart(params, trained) > 0.1
        with pytest.raises(StateError, match="train outside of it"):
            optimizer.step()
    assert apart(params, trained) == 0


def test_averages_of_asgd_are_those_of_stock():
    theirs, own = parameters(), parameters()
    case = "ASGD", dict(t0=5.0)
    expected, actual = stock(case, theirs), ours(case, own)
    train(expected, theirs, 20)
    train(actual, own, 20)
    averages = [expected.state[param]["ax"] for param in theirs]
    assert apart(averages, theirs) > 0.05
    with everstep.averaged(actual):
        assert apart(own, averages) < LIKE_STOCK


@pytest.mark.parametrize("name", ["ASGD", "Rprop"])
def test_a_new_rate_acts_when_it_does_in_stock(name):
    """ASGD uses a new rate from the second update on, Rprop never."""
    case, (theirs, own) = (name, dict(lambd=0.1) if name == "ASGD" else {}), (parameters(), parameters())
    kept = parameters()
    for optimizer, params in ((stock(case, theirs), theirs), (ours(case, own), own), (ours(case, kept), kept)):
        scheduler = lr_scheduler.LambdaLR(optimizer, lambda step: step / 4 if params is not kept else 0)  # noqa: B023
        for step in range(8):
            train(optimizer, params, 1, first=step)
            scheduler.step()
    assert apart(own, theirs) < LIKE_STOCK and (apart(kept, theirs) < LIKE_STOCK) == (name == "Rprop")


@pytest.mark.parametrize("dtype, bound", [("bfloat16", 5e-2), ("float32", 1e-5)])
def test_dtypes(dtype, bound):
    params, exact = parameters(dtype), parameters("float64")
    train(Adam(0.01).bind(optim, params=params), params, 20)
    train(Adam(0.01).bind(optim, params=exact), exact, 20)
    assert apart(params, exact) < bound


def test_rules_of_whole_variables():
    params, twin = parameters(), [param.detach().numpy().copy() for param in parameters()]
    train(LAMB(0.05).bind(optim, params=params), params, 10)
    on_numpy = LAMB(0.05).bind(np)
    for step in range(10):
        grads = gradients(params, step)
        on_numpy.apply_gradients([(grad.numpy(), array) for grad, array in zip(grads, twin)])
    assert apart(params, [torch.tensor(array) for array in twin]) < 1e-5
