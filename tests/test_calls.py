"""Each call of calls.py in each way: where stock raises we raise ours, and where stock takes a right call we take it.

A shared message counts as stock's own; `judge` in call_worlds.py has the exact rule. A refused call changes nothing: no
variable, slot, counter, collection or registry. tests/make/call_tables.py writes the counts of a whole environment.
"""

from __future__ import absolute_import, division, print_function

import collections
import re

import numpy as np
import pytest

import everstep
import harness
from call_worlds import GRAD, WAYS, Side, goes_on, judge, outcome
from calls import CALLS, cells
from everstep.errors import EverstepError, HyperTypeError, VariableError
from everstep.optimizers import SGD, Adam

# name: a regular expression for the whole name of the call; ways: prefixes of ways; verdict: what `judge` says there;
# when: a function of the way, or None.
Difference = collections.namedtuple("Difference", "name ways verdict reason when")


def _clips_in_minimize_alone(way):
    return not hasattr(getattr(way.stock, "SGD", None), "_transform_gradients")


DIFFERENCES = [Difference(*entry) for entry in [
    ("(learning_rate|momentum) is a bool", ("",), "refused", "True in a number's place is a slip of the hand", None),
    ("clipnorm is (an int|float32|a 0-d array)", ("optimizer_v2",), "differs",
     "stock clips in minimize alone; ours clips in apply_gradients too", _clips_in_minimize_alone),
    ("clipnorm is a tensor", ("optimizer_v2", "update_step"), "refused",
     "a config could not hold it, and stock's own get_config fails to be written then", None),
    ("get_updates, a variable twice", ("get_updates",), "refused", "stock updates it twice in no fixed order", None),
    ("learning_rate set to a function", ("optimizer_v2", "keras3"), "refused",
     "a hyper that was bound as a number stays one, or becomes a native schedule; functions are given to bind", None),
    ("learning_rate set to a tensor", ("optimizer_v2 session",), "refused",
     "a tensor of a graph has no number to set, and stock takes it before its first step alone; it is given to bind",
     None),
    ("a complex variable", ("optimizer_v2",), "refused", "definitions compute with real numbers", None),
]]  # fmt: skip


def difference(call, way):
    """Returns the entry of DIFFERENCES for a call in a way, or None."""
    for each in DIFFERENCES:
        if re.match("(?:%s)$" % each.name, call.name) and way.name.startswith(each.ways) and (
                each.when is None or each.when(way)):  # fmt: skip
            return each
    return None


GOOD = {False: ("ours", "same", "taken"), True: ("taken", "beyond", "ours", "same")}


def shown(result):
    if result is None:
        return "is not there"
    return "takes it" if result.error is None else "{}: {}".format(type(result.error).__name__, result.error)


@pytest.fixture(scope="module", autouse=True)
def sessions_are_cleared():
    """Two Kerases share the default graph: neither may keep a session of a graph that the other has dropped."""
    yield
    for way in WAYS:
        if way.target == "get_updates":
            harness.clear_session(way.module)


def test_the_table_is_long_enough():
    assert len({call.name for call in CALLS}) == len(CALLS)
    assert sum(not call.right for call in CALLS) >= 450 and sum(call.right for call in CALLS) >= 160


def ids(cases):
    return [pytest.param(*case, id="-".join([case[0].name, case[1].name])) for case in cases]


CELLS = cells()
# A call whose message is known is made everywhere, without stock.
TOLD = [cell for cell in CELLS if cell[0].error is not None and not (cell[0].has_stock and cell[1].stock)]


@pytest.mark.parametrize("call, way", ids(harness.share([cell for cell in CELLS if cell not in TOLD], 60) + TOLD))
def test_a_call(call, way):
    stock, ours = outcome(call, way, ours=False), outcome(call, way, ours=True)
    verdict, expected = judge(call, stock, ours), difference(call, way)
    assert not ours.changed, "the refused call changed the variable"
    told = "{}: stock {}, ours {}".format(verdict, shown(stock), shown(ours))
    if expected is not None and (stock is None or stock.error is None):
        assert verdict == expected.verdict, "the difference is no longer: " + told
        return
    assert verdict in GOOD[call.right], told
    if call.error is not None:
        assert isinstance(ours.error, call.error), told
    if isinstance(ours.error, EverstepError) and not call.right:
        assert re.search(call.match, str(ours.error)), told


# A refused call changes nothing.

LATER = [SGD(0.5), Adam(0.5), everstep.accumulate(Adam(0.5), 2)]  # what is bound, where a call does not say it
WRONG = harness.share([cell for cell in CELLS if not cell[0].right], 80)


@pytest.mark.parametrize("call, way, turn", ids([cell + (turn,) for turn, cell in enumerate(WRONG)]))
def test_a_refused_call_changes_nothing(call, way, turn):
    """Before the first step, or between two: the run goes on as one in which the call never was."""
    definition, steps = LATER[turn % 3], 2 * (turn // 3 % 2)
    if definition is LATER[2] and harness.in_graph(way):
        steps = 0  # it takes one call in a graph
    states = goes_on(call, way, definition, steps)
    assert states is None or states[0] == states[1]


@pytest.mark.parametrize("way", WAYS, ids=harness.way_name)
def test_a_change_is_seen(way):
    def wrong(side):
        side.world.step(side.bind(Adam(0.5)), [(GRAD, side.w)])
        side.known = side.collected()
        raise EverstepError("after a step")

    states = goes_on(CALLS[0]._replace(function=wrong), way, LATER[0], 0)
    assert states[0] != states[1]


EAGER = [way for way in WAYS if not harness.in_graph(way) and way.stock]


@pytest.mark.parametrize("way", EAGER, ids=harness.way_name)
def test_capture_of_stock_takes_any_iterable(way):
    side = Side(way, ours=False)
    optimizer = side.make("Adam", learning_rate=0.5)
    side.step(optimizer)
    listed, generated = [everstep.capture(optimizer, v) for v in ([side.w], (v for v in [side.w]))]
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


APIS = harness.one_of_each_target(harness.all_ways())


def test_an_error_inside_of_a_callable_is_its_own():
    def rate():
        return len(3)

    optimizer, weights = SGD(rate).bind(np), np.ones(2)
    for way in APIS:
        if way.target in ("optimizer_v2", "update_step", "keras3"):
            with pytest.raises(TypeError, match="has no len"):
                harness.hypers.called(harness.bound(SGD(rate).bind(way.module)), "learning_rate", rate)
    with pytest.raises(HyperTypeError, match="len"):  # NumPy reads it where it reads numbers
        optimizer.apply_gradients([(np.ones(2), weights)])


MODELS = harness.kerases()


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_definition_given_to_compile_says_that_it_must_be_bound(name):
    """Keras raises the error, and prints the object. The object's repr is ours."""
    module = MODELS[name]
    model = module.models.Sequential([module.layers.Dense(1, input_shape=(2,))])
    with pytest.raises(Exception, match=r"bind\(module\) makes an optimizer of it"):
        model.compile(Adam(), "mse")
