"""Each call of calls.py in each mode: where stock raises we raise ours, and where stock takes a right call we take it.

A shared message counts as stock's own; `judge` in call_worlds.py has the exact rule. tests/make/call_tables.py writes
the counts of a whole environment.
"""

from __future__ import absolute_import, division, print_function

import collections
import re

import numpy as np
import pytest

import everstep
import harness
from call_worlds import MODES, judge, outcome
from calls import CALLS, cells
from everstep.errors import DefinitionError, HyperTypeError, HyperValueError, VariableError
from everstep.optimizers import SGD, Adam

# name: a regular expression for the whole name of the call; modes: prefixes of modes; verdict: what `judge` says there;
# when: a function of the mode, or None.
Difference = collections.namedtuple("Difference", "name modes verdict reason when")


def _clips_in_minimize_alone(mode):
    return not hasattr(getattr(mode.stock, "SGD", None), "_transform_gradients")


ANY = ("",)
DIFFERENCES = [
    Difference(
        "(learning_rate|momentum) is a bool", ANY, "refused", "True in a number's place is a slip of the keyboard", None
    ),
    Difference(
        "clipnorm is (an int|float32|a 0-d array)",
        ("optimizer_v2",),
        "differs",
        "stock clips in minimize alone; ours clips in apply_gradients too",
        _clips_in_minimize_alone,
    ),
    Difference(
        "clipnorm is a tensor",
        ("optimizer_v2", "update_step"),
        "refused",
        "a config could not hold it, and stock's own get_config fails to be written then",
        None,
    ),
    Difference(
        "get_updates, a variable twice", ("get_updates",), "refused", "stock updates it twice in no fixed order", None
    ),
    Difference(
        "learning_rate set to a function",
        ("optimizer_v2", "keras3"),
        "refused",
        "a hyper that was bound as a number stays one, or becomes a native schedule; functions are given to bind",
        None,
    ),
    Difference(
        "learning_rate set to a tensor",
        ("optimizer_v2 session",),
        "refused",
        "a tensor of a graph has no number to set, and stock takes it before its first step alone; it is given to bind",
        None,
    ),
    Difference("a complex variable", ("optimizer_v2",), "refused", "definitions compute with real numbers", None),
]  # fmt: skip


def matches(entry_name, entry_modes, call, mode):
    return re.match("(?:%s)$" % entry_name, call.name) and any(mode.name.startswith(prefix) for prefix in entry_modes)


def difference(call, mode):
    """Returns the entry of DIFFERENCES for a call in a mode, or None."""
    for each in DIFFERENCES:
        if matches(each.name, each.modes, call, mode) and (each.when is None or each.when(mode)):
            return each
    return None


GOOD = {False: ("ours", "same", "taken"), True: ("taken", "beyond", "ours", "same")}


def shown(result):
    return "takes it" if result.error is None else "{}: {}".format(type(result.error).__name__, result.error)


@pytest.fixture(scope="module", autouse=True)
def sessions_are_cleared():
    """Two Kerases share the default graph: neither may keep a session of a graph that the other has dropped."""
    yield
    for mode in MODES:
        if mode.target == "get_updates":
            harness.clear_session(mode.module)


def test_the_tables_are_long_enough():
    assert len({call.name for call in CALLS}) == len(CALLS)
    assert sum(not call.right for call in CALLS) >= 200 and sum(call.right for call in CALLS) >= 100


@pytest.mark.parametrize(
    "call, mode", [pytest.param(*each, id="{0.name}-{1.name}".format(*each)) for each in harness.share(cells(), 80)]
)
def test_a_call(call, mode):
    stock = None if mode.stock is None else outcome(call, mode, ours=False)
    ours = outcome(call, mode, ours=True)
    verdict, expected = judge(call, stock, ours), difference(call, mode)
    assert not ours.changed, "the refused call changed the variable"
    told = "{}: stock {}, ours {}".format(verdict, "is not there" if stock is None else shown(stock), shown(ours))
    if expected is not None and (stock is None or stock.error is None):
        assert verdict == expected.verdict, "the difference is no longer: " + told
    else:
        assert verdict in GOOD[call.right], told


# Arguments that other libraries spell otherwise.

SPELLED = [
    (Adam, "beta1", "beta1 is called beta_1 here"),
    (Adam, "beta2", "beta2 is called beta_2 here"),
    (Adam, "betas", "beta_1=... and beta_2"),
    (Adam, "eps", "eps is called epsilon here"),
    (Adam, "rho", "rho is called beta_2 here"),
    (Adam, "alpha", "alpha is called learning_rate here"),
    (Adam, "momentum", "momentum is called beta_1 here"),
    (Adam, "nesterov", "Nadam"),
    (Adam, "weight_decay", "decoupled_weight_decay.Adam"),
    (Adam, "clipnorm", "everstep.clip.Adam.*norm=.*bind.module, clipnorm"),
    (Adam, "clipvalue", "everstep.clip.Adam.*value="),
    (Adam, "global_clipnorm", "everstep.clip.Adam.*global_norm="),
    (Adam, "use_ema", "everstep.moving_average"),
    (Adam, "initial_accumulator_value", "Adagrad"),
    (Adam, "amsgard", "did you mean amsgrad"),
    (Adam, "name", "bind.module, name="),
    (Adam, "decay", "everstep.InverseTimeDecay"),
    (Adam, "lr", "called learning_rate"),
    (SGD, "amsgrad", "Adam"),
    (SGD, "use_nesterov", "use_nesterov is called nesterov here"),
    (SGD, "step_size", "step_size is called learning_rate here"),
    (everstep.optimizers.RMSprop, "alpha", "alpha is called rho here"),
    (everstep.optimizers.AdamW, "wd", "wd is called weight_decay here"),
    (everstep.optimizers.Ftrl, "l1_regularization_strength", "is called l1 here"),
    (everstep.ExponentialDecay, "initial_learning_rate", "is called initial here"),
    (everstep.ExponentialDecay, "decay_rate", "is called rate here"),
]


@pytest.mark.parametrize("owner, name, hint", SPELLED, ids=lambda value: getattr(value, "__name__", None))
def test_an_argument_of_another_library_is_told_its_name(owner, name, hint):
    with pytest.raises(DefinitionError, match="has no argument {}; it takes .*; .*{}".format(name, hint)):
        owner(**{name: 0.5})


APIS = [way for way in harness.one_of_each_target(harness.all_ways())]


@pytest.mark.parametrize("way", APIS, ids=lambda way: getattr(way, "target", None))
def test_a_native_class_tells_the_name_too(way):
    with pytest.raises(DefinitionError, match="beta1 is called beta_1 here"):
        Adam.native_class(way.module)(beta1=0.9)
    with pytest.raises(DefinitionError, match="beta1 is called beta_1 here"):
        Adam().bind(way.module, beta1=0.9)
    if way.target not in ("update_step", "keras3"):  # there it is a native keyword
        with pytest.raises(DefinitionError, match="everstep.decoupled_weight_decay"):
            Adam().bind(way.module, weight_decay=0.1)


@pytest.mark.parametrize("way", APIS, ids=lambda way: getattr(way, "target", None))
@pytest.mark.parametrize("name", ["learning_rate", "beta_1"])
def test_bind_takes_no_hyper_of_the_definition(way, name):
    for definition in (Adam(1e-3), everstep.accumulate(Adam(1e-3), 2)):
        with pytest.raises(DefinitionError, match="{} is no argument of bind.*Adam.{}=".format(name, name)):
            definition.bind(way.module, **{name: 0.1})


@pytest.mark.parametrize(
    "value, error",
    [
        (10**400, HyperValueError), (np.array("0.1"), HyperTypeError), (np.array(1j), HyperTypeError),
        (np, HyperTypeError), (np.float64, HyperTypeError), (np.array("2020", "M8"), HyperTypeError),
    ],
    ids=repr,
)  # fmt: skip
def test_odd_numbers(value, error):
    with pytest.raises(error, match="SGD.learning_rate"):
        SGD(value)


def test_bounds_as_arrays_of_one_number():
    for way in APIS:
        if way.target in ("optimizer_v2", "get_updates", "update_step", "keras3"):
            assert SGD().bind(way.module, clipnorm=np.array(2.0)).clipnorm == 2.0
            with pytest.raises(HyperValueError, match="clipvalue"):
                SGD().bind(way.module, clipvalue=np.array(-1.0))


@pytest.mark.parametrize(
    "arguments, error, needle",
    [
        (((5, 2), (1.0, 2.0, 3.0)), HyperValueError, "must increase"),
        (((2, 2), (1.0, 2.0, 3.0)), HyperValueError, "must increase"),
        (((2, 5), (1.0, 2.0)), HyperValueError, "2 boundaries need 3 values"),
        ((("2",), (1.0, 2.0)), HyperTypeError, "each of boundaries"),
        (((2,), (1.0, None)), HyperTypeError, "each of values"),
        ((2, (1.0, 2.0)), HyperTypeError, "boundaries are a tuple"),
        (((2,), (1.0, float("nan"))), HyperValueError, "each of values must be finite"),
    ],
)
def test_wrong_boundaries(arguments, error, needle):
    with pytest.raises(error, match=needle):
        everstep.PiecewiseConstantDecay(*arguments)


# Variables as any iterable.

EAGER = [mode for mode in MODES if not mode.graph and mode.target in ("optimizer_v2", "update_step", "keras3")]


@pytest.mark.parametrize("mode", [pytest.param(mode, id=mode.name) for mode in EAGER])
def test_capture_of_stock_takes_any_iterable(mode):
    world = mode.kind(mode, ours=False)
    optimizer = world.make("Adam", learning_rate=0.5)
    world.step(optimizer)
    listed, generated = [everstep.capture(optimizer, v) for v in ([world.w], (v for v in [world.w]))]
    assert [list(state.slots) for state in (listed, generated)] == [list(listed.slots)] * 2
    for slot, value in listed.to_dict()["slots"].popitem()[1].items():
        assert (value == generated.to_dict()["slots"].popitem()[1][slot]).all()
    for wrong in (None, 3, "w"):
        with pytest.raises(VariableError, match="variables are a list of arrays or variables"):
            everstep.capture(optimizer, wrong)


def test_averages_take_any_iterable():
    weights = np.ones(2)
    optimizer = everstep.moving_average(SGD(0.5), 0.5).bind(np)
    for _ in range(2):
        optimizer.apply_gradients([(np.ones(2), weights)])
    trained = weights.copy()
    with everstep.averaged(optimizer, (each for each in [weights])):
        average = weights.copy()
        assert (average != trained).all()
    assert (weights == trained).all()
    everstep.assign_averages(optimizer, {"weights": weights}.values())
    assert (weights == average).all()


def test_a_set_has_no_order():
    class Weights(np.ndarray):
        __hash__ = object.__hash__

    weights = np.ones(2).view(Weights)
    optimizer = Adam(0.5).bind(np)
    optimizer.apply_gradients([(np.ones(2), weights)])
    assert everstep.capture(optimizer, [weights]).ordered and not everstep.capture(optimizer, {weights}).ordered


def test_an_error_inside_of_a_callable_is_its_own():
    def rate():
        return len(3)

    optimizer, weights = SGD(rate).bind(np), np.ones(2)
    for way in APIS:
        if way.target in ("optimizer_v2", "update_step", "keras3"):
            with pytest.raises(TypeError, match="has no len"):
                SGD(rate).bind(way.module).call_hyper("learning_rate", rate)
    with pytest.raises(HyperTypeError, match="len"):  # NumPy reads it where it reads numbers
        optimizer.apply_gradients([(np.ones(2), weights)])
