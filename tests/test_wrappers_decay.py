"""`decoupled_weight_decay`, `learning_rate_multipliers` and schedules, compared with the published formulas."""

from __future__ import absolute_import, division, print_function

import sys
from collections import OrderedDict

import numpy as np
import pytest

import everstep
import harness
import runs
from everstep.errors import ConfigError, DefinitionError, HyperTypeError, HyperValueError
from everstep.optimizers import LAMB, SGD, Adam
from everstep.testing import training
from runs import ONE_EACH, SPARSE_ONES, WAYS
from test_battery import ids
from test_catch_up import compare, train, zipf_batches

pytestmark = pytest.mark.shared
SHAPES = {"bias": (3,), "kernel": (4, 3), "table": (6, 3)}
KINDS = {"bias": harness.DENSE, "kernel": harness.DENSE, "table": harness.SPARSE}
START = {
    name: np.random.RandomState(3).uniform(0.5, 1, shape).astype("float32") for name, shape in sorted(SHAPES.items())
}
BATCHES = [{name: (grad[0] - np.float32(0.6), grad[1]) if isinstance(grad, tuple) else grad - np.float32(0.6)
            for name, grad in batch.items()}  # of a mean of 0.1: weights stay near 1, so that they round alike
           for batch in training.make_batches("float32", 12, SHAPES, KINDS)]


def rule(way, name):
    """Returns a rule that selects a variable: by name, or by shape on arrays, which have no names."""
    return name if way.target != "arrays" else lambda variable: variable.shape == SHAPES[name]


def trained(way, definition):
    return runs.trained(way, definition, START, KINDS, BATCHES)


def by_hand(update, by_rows=False):
    """Trains Adam by hand: `update(name, step, var, delta)` returns the new value; delta is Adam's step at rate 1."""
    weights, beta_1, beta_2 = {}, np.float64(np.float32(0.9)), np.float64(np.float32(0.999))
    for name in SHAPES:
        var = START[name].astype("float64")
        m, v = np.zeros_like(var), np.zeros_like(var)
        for step, batch in enumerate(BATCHES, 1):
            rows = np.unique(batch[name][1]) if by_rows and isinstance(batch[name], tuple) else Ellipsis
            grad = runs.whole(batch[name], SHAPES[name])[rows]
            m[rows] = beta_1 * m[rows] + (1 - beta_1) * grad
            v[rows] = beta_2 * v[rows] + (1 - beta_2) * grad**2
            size = np.sqrt(1 - beta_2**step) / (1 - beta_1**step)
            var[rows] = update(name, step, var[rows], size * m[rows] / (np.sqrt(v[rows]) + 1e-3))
        weights[name] = var
    return weights


def annealed(step):
    """keras-adamw's eta_t, one cosine of 30 updates."""
    return 0.5 * (1 + np.cos(np.pi * (step - 1) / 30))


ADAM, RATE = Adam(0.05, epsilon=1e-3), 0.05
decay = everstep.decoupled_weight_decay


def keras_adamw(way):
    annealing = ADAM.replace(learning_rate=everstep.CosineDecay(RATE, decay_steps=30))
    factors = [(rule(way, "table"), 0.4), (rule(way, "kernel"), 0.2)]
    return decay(decay(annealing, factors, base_rate=RATE, beside=True), 0.0, base_rate=RATE, l1=0.01,
                 include=rule(way, "kernel"), beside=True)


# The everstep definition that follows each library, and the library's formula, from its source.
FORMULAS = {
    "Keras": (lambda way: decay(ADAM, 0.1), lambda name, step, var, delta: var - var * 0.1 * RATE - RATE * delta),
    "Addons": (lambda way: decay(ADAM.replace(sparse="rows", dense_ok=True), 0.1, times_rate=False,
                                 include=lambda variable: True),
               lambda name, step, var, delta: (var - 0.1 * var) - RATE * delta),
    "BERT": (lambda way: decay(ADAM, 0.1, exclude=["LayerNorm", rule(way, "bias")]),
             lambda name, step, var, delta: var - RATE * (delta + (0 if name == "bias" else 0.1) * var)),
    "keras-adamw": (keras_adamw, lambda name, step, var, delta: var - annealed(step) * (
        RATE * delta + {"kernel": 0.2, "table": 0.4, "bias": 0}[name] * var
        + (0.01 if name == "kernel" else 0) * np.sign(var))),
}


@pytest.mark.parametrize("peer", sorted(FORMULAS))
@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_reaches_the_formulas_of_peers(way, peer):
    make, update = FORMULAS[peer]
    expected = by_hand(update, by_rows=peer == "Addons" and way.sparse)
    assert runs.distance(trained(way, make(way)).weights(), expected) <= 5e-6


@pytest.mark.parametrize("way", [way for way in WAYS if way.target in ("update_step", "keras3")], ids=ids)
def test_equals_native_weight_decay_with_exclusions(way):
    def stock():
        optimizer = way.stock.Adam(RATE, epsilon=1e-3, weight_decay=0.1)
        optimizer.exclude_from_weight_decay(var_names=["bias"])
        return optimizer

    actual = trained(way, decay(ADAM, 0.1, exclude="bias")).weights()
    expected = runs.stepped(harness.new_run(way, stock, START, KINDS), BATCHES).weights()
    if way.target == "keras3" and way.sparse:  # stock squares the parts of a repeated row, not their sum
        del expected["table"]
    assert runs.distance(actual, expected) <= 4e-6


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_multipliers(way):
    """Each variable has its own rate, the shared rate does not change, and the first matching rule counts."""
    factors = [(rule(way, "kernel"), 0.5), (rule(way, "table"), 3.0)]
    factors += [("table|kernel", 9.0)] if way.target != "arrays" else []
    run = trained(way, everstep.learning_rate_multipliers(decay(ADAM, 0.1), factors))
    rates = {"bias": RATE, "kernel": RATE * 0.5, "table": RATE * 3}
    expected = by_hand(lambda name, step, var, delta: var - rates[name] * (0.1 * var + delta))
    actual = run.weights()
    assert runs.distance(actual, expected) <= 5e-6
    if way.target != "tf_train":
        run.set_rate(0.0)
        run.step(BATCHES[0])
        assert runs.same(run.weights(), actual)


def test_a_decay_around_multipliers_goes_by_the_shared_rate():
    weights = np.ones(2)
    always = lambda variable: True  # noqa: E731
    inner = everstep.learning_rate_multipliers(SGD(0.5), {always: 0.5})
    runs.steps(decay(inner, 0.5), weights, np.ones(2))
    assert weights.tolist() == [1 - 0.5 * 0.5 - 0.25] * 2


def test_multipliers_of_a_partition_and_of_a_rule_that_measures():
    kernel, bias = np.ones((2, 2)), np.ones(2)
    is_bias = lambda variable: len(variable.shape) == 1  # noqa: E731
    definition = everstep.partition({"bias": (is_bias, SGD(1.0))}, default=SGD(0.5))
    optimizer = everstep.learning_rate_multipliers(definition, {is_bias: 0.25}, otherwise=0.5).bind(np)
    optimizer.apply_gradients([(np.ones((2, 2)), kernel), (np.ones(2), bias)])
    assert kernel[0, 0] == 0.75 and bias[0] == 0.75
    optimizer.bias_learning_rate = 2.0
    optimizer.apply_gradients([(np.ones((2, 2)), kernel), (np.ones(2), bias)])
    assert kernel[0, 0] == 0.5 and bias[0] == 0.25
    half, direct = np.ones((2, 2)), np.ones((2, 2))
    everstep.learning_rate_multipliers(LAMB(0.1), (), otherwise=0.5).bind(np).apply_gradients([(kernel, half)])
    LAMB(0.05).bind(np).apply_gradients([(kernel, direct)])
    np.testing.assert_allclose(half, direct, rtol=1e-12)


# Decay


def test_a_schedule_of_its_own_and_a_live_decay():
    weights = np.full(1, 16.0)
    halving = everstep.ExponentialDecay(0.5, decay_steps=1, rate=0.5)
    optimizer = decay(SGD(1.0), halving, times_rate=False).bind(np)
    for expected in (8.0, 6.0):
        optimizer.apply_gradients([(np.zeros(1), weights)])
        assert weights == expected
    optimizer = decay(SGD(1.0), 0.5, times_rate=False).bind(np)
    optimizer.decoupled_weight_decay = 0.25
    optimizer.apply_gradients([(np.zeros(1), weights)])
    assert weights == 4.5


def test_the_rule_sees_the_variable_before_or_after_decay():
    """This also holds with a proximal inner rule, which assigns the new value itself."""
    for beside, expected in ((False, 0.5 * 0.5), (True, 0.5 * 1 - 0.5)):
        weights = np.ones(1)
        inner = Halving(1.0)
        runs.steps(decay(inner, 0.5, beside=beside), weights, np.zeros(1))
        assert weights == expected


class Halving(everstep.Definition):
    learning_rate = everstep.hyper(1.0)

    def update(self, ops, grad, var, slots, hyper, t):
        return everstep.assign(var / 2), {}


def test_l1_stops_at_zero_but_for_one_step():
    weights = np.array([0.25, -0.25, 0.0])
    optimizer = decay(SGD(1.0), 0.0, l1=0.125).bind(np)
    for expected in ([0.125, -0.125, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]):
        optimizer.apply_gradients([(np.zeros(3), weights)])
        assert weights.tolist() == expected


MISSED = [lambda inner: decay(inner, 0.1, l1=0.01), lambda inner: decay(everstep.clip(inner, value=0.5), 0.1),
          lambda inner: everstep.learning_rate_multipliers(decay(inner, 0.1), (), 0.5)]


@pytest.mark.parametrize("place, way", harness.each_in_turn(range(len(MISSED)), SPARSE_ONES), ids=ids)
def test_missed_decay_is_taken(place, way):
    expected = train(way, MISSED[place](Adam(0.05)), zipf_batches(40))
    actual = train(way, MISSED[place](Adam(0.05, sparse="catch_up")), zipf_batches(40))
    assert max(compare(actual, expected)) <= 2e-6


@runs.numpy_cells
def test_long_gaps_of_l1():
    """After more than 200 missed steps the result is exact until it reaches 0, then within one step of 0."""
    def gap(sparse):
        table = np.array([[0.9, -0.9], [0.3, -2.0]])
        inner = SGD(0.5, momentum=0.5, sparse=sparse)
        grads = [(np.full((2, 2), 1e-3), [0, 1])] + [(np.full((1, 2), 1e-3), [0])] * 600
        optimizer = runs.steps(decay(inner, 1e-3, l1=2e-3), table, *grads)
        optimizer.flush()
        return table

    expected, actual = gap("exact"), gap("catch_up")
    assert abs(actual[1, 0]) <= 1e-3 and abs(expected[1, 0]) <= 1e-3
    assert abs(actual[1, 1] - expected[1, 1]) <= 1e-9 and -2 < expected[1, 1] < -0.5


class Plain(everstep.Definition):
    learning_rate = everstep.hyper(0.5)
    max_replay_steps = 0

    def update(self, ops, grad, var, slots, hyper, t):
        return hyper.learning_rate * grad, {}


def test_missed_decay_of_a_rule_without_a_closed_form():
    table = np.ones((2, 1))
    runs.steps(decay(Plain(sparse="catch_up"), 0.25), table, *[(np.ones((1, 1)), [row]) for row in (0, 1, 1, 1, 0)])
    # Each update multiplies by 1 - 0.5 * 0.25; a gradient subtracts 0.5.
    assert abs(table[0, 0] - ((0.875 - 0.5) * 0.875**4 - 0.5)) <= 1e-12


def test_a_table_that_does_not_decay_costs_its_rows():
    table = np.ones((100, 1))
    optimizer = runs.steps(decay(SGD(1.0), 0.5, exclude=lambda variable: True), table, (np.ones((1, 1)), [3]))
    assert harness.bound(optimizer).rule(table).zero_grad_is_noop and not optimizer.definition.zero_grad_is_noop
    assert table.sum() == 99 and table[3] == 0


# Rules


@pytest.mark.parametrize("way", [way for way in ONE_EACH if way.target != "arrays"], ids=ids)
def test_a_rule_that_chooses_nothing(way):
    for definition in (everstep.learning_rate_multipliers(SGD(0.1), {"kernal": 0.5}),
                       decay(SGD(0.1), {"kernal": 0.5}),
                       decay(SGD(0.1), include="kernal")):
        with pytest.raises(DefinitionError, match="'kernal' of .* chooses no variable; the variables are: .*kernel"):
            trained(way, definition)
    trained(way, decay(SGD(0.1), exclude=["LayerNorm", "bias"]))
    with pytest.warns(UserWarning, match="none of the exclusions 'LayerNorm', 'gamma' .* there are: .*kernel"):
        trained(way, decay(SGD(0.1), exclude=["LayerNorm", "gamma"]))


def test_collections():
    variable = everstep.Variable("w", (2,), "float32", 0, ("slow", "trainable_variables"), None)
    definition = everstep.learning_rate_multipliers(SGD(), [("collection:slow", 0.5), ("w", 2.0)])
    assert definition.specialize(variable).otherwise == 0.5
    assert definition.specialize(variable._replace(collections=())).otherwise == 2.0
    assert definition.specialize(variable._replace(collections=(), name="b")).otherwise == 1.0


def test_configs():
    again = [decay(Adam(), 0.01, False, l1=0.1, exclude=["bias", "norm"]),
             decay(Adam(), OrderedDict([("a", 0.1), ("b", 0.2)]), base_rate=0.1, exclude="c"),
             everstep.learning_rate_multipliers(decay(Adam(), include="kernel"), {"first": 0.5}),
             SGD(everstep.Warmup(everstep.CosineDecayRestarts(0.1, 10, 2.0, 0.5, 0.1, 3), 5, shift=True))]
    assert again[1].factors == (("c", 0.0), ("a", 0.1), ("b", 0.2)) and again[1].otherwise == 0
    for definition in again:
        runs.check_config(definition)


@pytest.mark.parametrize("definition", [
    decay(SGD(0.5), exclude=["bias", lambda variable: True]),
    everstep.learning_rate_multipliers(SGD(0.5), {(lambda variable: True): 2.0}),
], ids=["decay", "multipliers"])
def test_functions_do_not_go_into_a_config(definition):
    assert definition == definition.replace(otherwise=1.0) and hash(definition) == hash(definition.replace())
    with pytest.raises(ConfigError, match="by the function .* cannot be written to a config"):
        definition.get_config()
    optimizer, weights = definition.bind(np), np.ones(2)
    with pytest.raises(HyperTypeError, match="chosen by a function, which a config does not hold"):
        type(optimizer).from_config(optimizer.get_config())
    optimizer.apply_gradients([(weights, weights)])
    other = definition.bind(np)
    everstep.restore(other, everstep.capture(optimizer, [weights]), [weights])  # a state does not hold rules
    assert other.iterations == 1


class NoRate(everstep.Definition):
    def update(self, ops, grad, var, slots, hyper, t):
        return grad, {}


test_bad_input = runs.refused([
    (lambda: decay(SGD(), -1), HyperValueError, "weight_decay must be at least 0"),
    (lambda: decay(SGD(), l1=-1.0), HyperValueError, "l1 must be at least 0"),
    (lambda: decay(SGD(), {"a": -1}), HyperValueError, "'a' must be at least 0"),
    (lambda: decay(SGD(), {"(a": 1}), HyperValueError, "takes a regular expression"),
    (lambda: decay(SGD(), exclude=[3]), HyperTypeError, "a regular expression, 'collection"),
    (lambda: decay(SGD(), {"a": 1}, include="b"), DefinitionError, "leave out include"),
    (lambda: decay(SGD(), 0.1, False, 0.5), DefinitionError, "needs times_rate=True"),
    (lambda: decay(everstep.lookahead(SGD()), beside=True), DefinitionError, "put it around decoupled_weight_decay"),
    (lambda: decay(everstep.partition({"a": SGD()}, default=SGD())), DefinitionError, "no single learning rate"),
    (lambda: everstep.learning_rate_multipliers(SGD(), {"a": "b"}), HyperTypeError, "'a' takes a number"),
    (lambda: everstep.learning_rate_multipliers(SGD(), {"a": -0.5}), HyperValueError, "'a' must be at least 0"),
    (lambda: everstep.learning_rate_multipliers(SGD(), "a"), HyperTypeError, "takes {rule: number}"),
    (lambda: everstep.learning_rate_multipliers(SGD(), 5), HyperTypeError, "takes {rule: number}"),
    (lambda: everstep.learning_rate_multipliers(NoRate(), {"a": 1.0}), DefinitionError, "no learning rate to"),
    (lambda: everstep.CosineDecayRestarts(0.1, multiplier=0.5), HyperValueError, "multiplier must be at least 1"),
    (lambda: everstep.Warmup("a"), HyperTypeError, "takes a number"),
])


def test_a_dictionary_without_an_order():
    """The first rule that selects a variable counts. On Python 2.7, two entries of a dictionary have no first one."""
    everstep.learning_rate_multipliers(SGD(), {"a": 1.0})
    everstep.learning_rate_multipliers(SGD(), OrderedDict([("a", 1.0), ("b", 0.5)]))
    if sys.version_info >= (3, 6):
        assert everstep.learning_rate_multipliers(SGD(), {"b": 1.0, "a": 0.5}).factors == (("b", 1.0), ("a", 0.5))
    else:
        with pytest.raises(HyperTypeError, match="a dictionary has no order"):
            everstep.learning_rate_multipliers(SGD(), {"b": 1.0, "a": 0.5})


# Schedules


def restarts(updates, initial, first, multiplier, peak, alpha):
    """Evaluates SGDR's equation 5 by a loop over the cycles."""
    start, length, top = 0.0, float(first), 1.0
    while updates >= start + length:
        start, length, top = start + length, length * multiplier, top * peak
    cosine = 0.5 * (1 + np.cos(np.pi * (updates - start) / length))
    return initial * ((1 - alpha) * top * cosine + alpha)


RESTARTS = [(0.1, 10, 2.0, 1.0, 0.0), (0.1, 7, 1.0, 0.5, 0.1), (0.1, 3, 1.5, 0.9, 0.0), (0.1, 100, 3.0, 1.0, 0.2)]


@pytest.mark.parametrize("settings", RESTARTS)
def test_warm_restarts(settings):
    schedule = everstep.CosineDecayRestarts(*settings)
    for updates in list(range(400)) + [3279, 3280, 10229, 10230, 10231]:
        expected = restarts(updates, *settings)
        assert abs(schedule(updates) - expected) <= 1e-9 * 0.1
        assert abs(schedule.replace(done=5)(updates) - restarts(updates + 5, *settings)) <= 1e-9 * 0.1


@pytest.mark.parametrize("way", WAYS, ids=ids)
def test_schedules_are_the_same_everywhere(way):
    """Plain descent with gradient 1 sums a schedule: warm-up, then restarts, each cosine from its first update."""
    schedule = everstep.Warmup(everstep.CosineDecayRestarts(0.5, 5, 2.0), 4, shift=True)
    run, total = runs.started(way, SGD(schedule), {"w": np.zeros(2, "float32")}, {"w": harness.DENSE}), 0.0
    for updates in range(24):
        run.step({"w": -np.ones(2, "float32")})
        total += 0.5 * updates / 4 if updates < 4 else restarts(updates - 4, 0.5, 5, 2.0, 1.0, 0.0)
        assert np.abs(run.weights()["w"] - total).max() <= 2e-6 * total + 1e-7, updates


def test_restarts_in_float32():
    """A cosine's first value is not lost to a rounded logarithm, even at late updates."""
    for settings in RESTARTS[:1] + RESTARTS[3:]:
        schedule, starts, at = everstep.CosineDecayRestarts(*settings), [], 0
        while at < 300000:
            at += int(settings[1] * settings[2] ** len(starts))
            starts.append(at)
        weights = np.zeros(1, "float32")
        for start in starts:
            optimizer = SGD(schedule).bind(np)
            harness.bound(optimizer).adapter.counters["updates"][...] = start
            weights[:] = 0
            optimizer.apply_gradients([(-np.ones(1, "float32"), weights)])
            np.testing.assert_allclose(weights, 0.1, rtol=1e-4)


def test_bert_warmup():
    schedule = everstep.Warmup(everstep.PolynomialDecay(0.1, decay_steps=100, end=0.0), steps=10)
    for updates in range(120):
        decayed = 0.1 * (1 - min(updates, 100) / 100.0)
        assert abs(schedule(updates) - (0.1 * updates / 10.0 if updates < 10 else decayed)) <= 1e-12
    assert everstep.Warmup(0.1, steps=10, start=0.05)(5) == 0.07500000000000001


@pytest.mark.parametrize("way", [way for way in ONE_EACH if way.target in ("update_step", "keras3")], ids=ids)
@pytest.mark.filterwarnings("ignore:stock Keras 3 on TensorFlow applies equal rows:UserWarning")  # none here
def test_equals_the_restarts_of_keras(way):
    stock = way.stock.schedules.CosineDecayRestarts(0.1, 7, t_mul=1.5, m_mul=0.9, alpha=0.1)
    ours = everstep.CosineDecayRestarts(0.1, 7.0, 1.5, 0.9, 0.1)
    for updates in (0, 3, 6, 8, 15, 30, 50):
        assert abs(float(stock(updates)) - ours(updates)) <= 1e-6
    assert everstep.from_native(way.stock.SGD(stock)).learning_rate == ours


# A wrapper's hyper under the name of its argument.


@pytest.mark.parametrize("way", [way for way in ONE_EACH if way.target != "tf_train"], ids=ids)
def test_a_hyper_is_set_by_the_name_of_its_argument(way):
    """On Keras 3, the base class has a weight decay of that name, which is not applied beside ours."""
    start, grads = {"w": np.ones((2, 2), "float32")}, {"w": np.full((2, 2), 0.5, "float32")}
    ended = []
    for decay, after in ((0.1, 0.5), (0.5, None)):
        run = harness.new_run(way, everstep.decoupled_weight_decay(SGD(0.1), decay), start, {"w": harness.DENSE})
        assert {"weight_decay", "decoupled_weight_decay"} <= set(dir(run.optimizer))
        if after is not None:
            run.world.set_hyper(run.optimizer, "weight_decay", after)
        for _ in range(2):
            run.step(grads)
        with run.inside():
            read = [float(run.world.read(getattr(run.optimizer, name))) if way.target != "arrays"
                    else getattr(run.optimizer, name) for name in ("weight_decay", "decoupled_weight_decay")]
        assert read == [0.5, 0.5]
        ended.append(run.weights()["w"])
        if hasattr(run.optimizer, "get_config") and way.target in ("update_step", "keras3"):
            config = run.optimizer.get_config()
            assert config["weight_decay"] is None and config["decoupled_weight_decay"] == 0.5
    np.testing.assert_array_equal(*ended)


@pytest.mark.parametrize("way", [way for way in ONE_EACH if way.target in ("update_step", "keras3")], ids=ids)
def test_a_native_weight_decay_keeps_its_name(way):
    optimizer = everstep.decoupled_weight_decay(SGD(0.1), 0.1).bind(way.module, weight_decay=0.2)
    assert optimizer.weight_decay == 0.2
    optimizer.weight_decay = 0.3
    assert optimizer.weight_decay == 0.3 and harness.bound(optimizer).given("decoupled/weight_decay") == 0.1


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_a_name_that_two_wrappers_share_is_an_error(way):
    once = everstep.decoupled_weight_decay(SGD(0.1), 0.1)
    optimizer = everstep.decoupled_weight_decay(once, 0.2).bind(way.module)
    names = "decoupled_1_weight_decay or decoupled_weight_decay"
    with pytest.raises(everstep.errors.HyperValueError, match=names):
        optimizer.weight_decay = 0.3
    if way.target not in ("update_step", "keras3"):  # whose base class has None
        with pytest.raises(AttributeError, match=names):
            getattr(optimizer, "weight_decay")  # noqa: B009  # it raises
