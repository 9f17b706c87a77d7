"""Variables of a State under other names, and with their axes in another order."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import numpy as np
import pytest

import everstep
from everstep.errors import StateError
from everstep.optimizers import Adafactor, Adam

RANDOM = np.random.RandomState(7)
SHAPES = OrderedDict([("conv/kernel", (3, 2, 5, 4)), ("dense/kernel", (6, 4)), ("dense/bias", (4,))])


def trained(definition, variables, gradients, state=None, steps=2):
    """Returns the State after some steps, of new arrays with the same values."""
    variables = OrderedDict((name, np.array(value)) for name, value in variables.items())
    optimizer = definition.bind(np)
    if state is not None:
        everstep.restore(optimizer, state, variables, weights=True)
    for step in range(steps):
        optimizer.apply_gradients([(gradients[name] * (step + 1), array) for name, array in variables.items()])
    return everstep.capture(optimizer, variables, weights=True)


def arrays(state):
    return {(name, slot): np.asarray(each) for name, slots in state.slots.items() for slot, each in slots.items()}


def test_new_names():
    values = OrderedDict((name, RANDOM.randn(*shape)) for name, shape in SHAPES.items())
    state = trained(Adam(0.1), values, values)
    moved = state.renamed([("dense/(.*)", r"fc.\1"), (r"(.*)/kernel", r"\g<1>.weight")])
    assert list(moved.slots) == list(moved.variables) == ["conv.weight", "fc.kernel", "fc.bias"]
    assert list(state.slots) == list(SHAPES) and moved.updates == 2
    assert np.asarray(moved.slots["fc.bias"]["m"]) is np.asarray(state.slots["dense/bias"]["m"])
    assert list(everstep.State(variables={"a": np.ones(2)}).renamed({"a": "b"}).variables) == ["b"]


@pytest.mark.parametrize("patterns, message", [
    ({"nothing": "x"}, "no variable is called 'nothing'; there are conv/kernel, dense/kernel, dense/bias"),
    ([(".*/kernel", r"\g<0>s"), ("dense/kernel", "x")], "no variable that no pattern before it took is called"),
    ({"dense/.*": "w"}, "dense/kernel and dense/bias would both be w"),
    ({"dense/bias": "conv/kernel"}, "conv/kernel and dense/bias would both be conv/kernel"),
    ({"(": "x"}, "is no regular expression"),
    ({"dense/bias": r"\1"}, "does not fit"),
])
def test_names_that_do_not_fit(patterns, message):
    state = everstep.State(slots={name: {"m": np.zeros(shape)} for name, shape in SHAPES.items()})
    state.slots = OrderedDict((name, state.slots[name]) for name in SHAPES)
    with pytest.raises(StateError) as info:
        state.renamed(patterns)
    assert message in str(info.value)


@pytest.mark.parametrize("definition", [Adam(0.1, amsgrad=True), Adafactor(0.1)], ids=["Adam", "Adafactor"])
def test_training_goes_on_with_other_axes(definition):
    """A factored rule is the same one for the transposed matrix: its rows are the columns there."""
    axes = {"conv/kernel": (1, 0, 3, 2), "dense/kernel": (1, 0), "dense/bias": (0,)}
    values = OrderedDict((name, RANDOM.randn(*shape)) for name, shape in SHAPES.items())
    gradients = {name: RANDOM.randn(*shape) for name, shape in SHAPES.items()}
    state = trained(definition, values, gradients)
    moved = state.transposed(axes)
    assert {name: value.shape for name, value in moved.variables.items()} == {
        "conv/kernel": (2, 3, 4, 5), "dense/kernel": (4, 6), "dense/bias": (4,)}
    others = OrderedDict((name, np.zeros(value.shape)) for name, value in moved.variables.items())
    turned = {name: np.transpose(each, axes[name]) for name, each in gradients.items()}
    here, there = trained(definition, values, gradients, state), trained(definition, others, turned, moved)
    for name, value in there.transposed(
            {name: np.argsort(order) for name, order in axes.items()}).variables.items():
        np.testing.assert_allclose(np.asarray(value), np.asarray(here.variables[name]), rtol=1e-12)
    back = moved.transposed({name: np.argsort(order) for name, order in axes.items()})
    assert {key: each.tolist() for key, each in arrays(back).items()} == {
        key: each.tolist() for key, each in arrays(state).items()}


def test_arrays_are_read_when_they_are_asked_for(tmp_path):
    state = everstep.State(slots={"w": {"m": RANDOM.randn(6, 4)}, "b": {"m": np.float32([[1, 2]])}})
    state.save(str(tmp_path / "run.npz"))
    moved = everstep.State.load(str(tmp_path / "run.npz")).transposed({"[wb]": (-1, 0)})
    handle = moved.slots["w"]["m"]
    assert handle.shape == (4, 6) and np.array_equal(handle[1:3], state.slots["w"]["m"].T[1:3])
    moved.save(str(tmp_path / "moved.npz"))
    again = everstep.State.load(str(tmp_path / "moved.npz"))
    assert np.array_equal(np.asarray(again.slots["w"]["m"]), state.slots["w"]["m"].T)
    assert again.slots["b"]["m"].dtype == np.float32 and again.slots["b"]["m"].shape == (2, 1)


@pytest.mark.parametrize("axes", [(0,), (0, 0), (0, 2), 1, "10", None, (0, 1, 2), (0.5, 1)], ids=repr)
def test_axes_that_do_not_fit(axes):
    state = everstep.State(slots={"w": {"m": np.zeros((4, 3))}})
    with pytest.raises(StateError, match=r"do not fit w, which has the shape \(4, 3\): give each of \[0, 1\] once"):
        state.transposed({"w": axes})


@pytest.mark.parametrize("slots, axes, message", [
    ({"m": (4, 3), "touched": (4,)}, (1, 0), "touched of w counts for each row"),
    ({"rows": (2, 4, 1), "columns": (2, 1, 3)}, (1, 0, 2),
     " and the variable (2, 4, 3): everstep does not know what its axes are after the order (1, 0, 2)"),
    ({"m": (4, 3), "kept": (4, 2)}, (1, 0), "does not say which shape w has: its slots are "),
    ({"m": (4, 3), "kept": (4, 1)}, (1, 0), "Capture it with weights=True"),
])
def test_slots_without_such_axes(slots, axes, message):
    slots = {slot: np.zeros(shape) for slot, shape in slots.items()}
    with pytest.raises(StateError) as info:
        everstep.State(slots={"w": slots}).transposed({"w": axes})
    assert message in str(info.value)
    with pytest.raises(StateError, match="no variable is called 'v'"):
        everstep.State(slots={"w": slots}).transposed({"v": axes})


def test_slots_that_need_no_axes():
    slots = OrderedDict([("m", np.zeros((4, 3))), ("count", np.float64(3)), ("touched", np.arange(4))])
    state = everstep.State(slots={"w": slots}, variables={"w": np.zeros((4, 3, 2))[..., 0]})
    same = state.transposed({"w": (0, 1)})
    assert same.slots["w"]["touched"] is slots["touched"]
    del slots["touched"]
    assert everstep.State(slots={"w": slots}).transposed({"w": (1, 0)}).slots["w"]["count"] == 3
    wrong = everstep.State(slots={"w": {"kept": np.zeros((4, 1))}}, variables={"w": np.zeros((4, 3))})
    with pytest.raises(StateError, match=r"kept of w has the shape \(4, 1\), and the variable \(4, 3\)"):
        wrong.transposed({"w": (1, 0)})
