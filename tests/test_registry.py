"""`everstep.get` and `everstep.names`: definitions by name, by config and by what stock calls them."""
from __future__ import absolute_import, division, print_function

import functools

import numpy as np
import pytest

import everstep
import harness
import stock
from block_setups import every_keras
from everstep.errors import ConfigError, DefinitionError, UnsupportedError
from everstep.optimizers import SGD, Adam, Adamax, AdamW, RAdam, RMSprop
from everstep.optimizers.contract.declared import inspect_arguments
from stock import STOCK, UNSUPPORTED, find_name, spelled

kerases = pytest.mark.parametrize("keras", [pytest.param(keras, id=keras.__name__) for keras in every_keras()])
# The same everywhere, and without the definitions of other tests.
pytestmark = [pytest.mark.shared, pytest.mark.usefixtures("shipped_only")]


def test_every_name_finds_its_definition():
    assert "AdamW" in everstep.names() and not {"Clip", "Wrapper", "Undecayed"}.intersection(everstep.names())
    for name in set(everstep.names()).intersection(everstep.optimizers.__all__):
        definition = getattr(everstep.optimizers, name)
        for spelling in (name, name.lower(), "everstep>" + name, u"_".join(name)):
            assert type(everstep.get(spelling)) is definition, spelling


@pytest.mark.parametrize("name, expected", [
    ("adam", Adam()), ("AdamOptimizer", Adam(epsilon=1e-8)), ("adam_optimizer", Adam(epsilon=1e-8)),
    ("rmsprop", RMSprop()), ("adamax", Adamax()), ("AdaMaxOptimizer", Adamax(epsilon=1e-8, sparse="rows")),
    ("LazyAdamOptimizer", Adam(epsilon=1e-8, sparse="rows")), ("LazyAdam", Adam(sparse="rows")),  # contrib's, Addons'
    ("RectifiedAdam", RAdam(sparse="variable_rows")), ("AdamWeightDecay", Adam()),
])
def test_a_name_has_the_form_of_its_api(name, expected):
    assert everstep.get(name) == expected


def test_arguments_have_either_spelling():
    momentum = SGD(0.1, 0.9, nesterov=True, rate_in_velocity=False, sparse="rows")
    for name in ("momentum", "MomentumOptimizer"):
        assert everstep.get(name, learning_rate=0.1, momentum=0.9, use_nesterov=True) == momentum
        assert everstep.get(name, learning_rate=0.1, momentum=0.9, nesterov=True) == momentum
        exact = everstep.get(name, learning_rate=0.1, momentum=0.9, nesterov=True, sparse="exact", dense_ok=True)
        assert exact == momentum.replace(sparse="exact", dense_ok=True)
    assert everstep.get("adamw", learning_rate=0.01, sparse="rows") == AdamW(0.01, sparse="rows")


def test_names_of_a_definition_in_a_wrapper():
    exclude = ["LayerNorm", "bias"]
    bert = dict(learning_rate=1e-4, weight_decay_rate=0.01, exclude_from_weight_decay=exclude)
    rule = Adam(1e-4, epsilon=1e-6, bias_correction=False)
    expected = everstep.decoupled_weight_decay(rule, 0.01, exclude=exclude)
    assert everstep.get("AdamWeightDecayOptimizer", **bert) == expected
    assert everstep.get({"class_name": "adam_weight_decay_optimizer", "config": bert}) == expected
    transformers = everstep.get("AdamWeightDecay", weight_decay_rate=0.01, include_in_weight_decay=["kernel"])
    assert transformers == everstep.decoupled_weight_decay(Adam(), [("kernel", 0.01), (".", 0.01)])
    assert everstep.get("AdamWeightDecay", sparse="rows") == Adam(sparse="rows")


def test_every_stock_name_with_its_api():
    for entry in STOCK:
        for name in (entry.native, spelled(entry.native)):
            assert find_name(name, entry.target) == (entry.definition, entry)
        definition, by_name = find_name(entry.native)
        assert definition is entry.definition, entry
        assert by_name in (entry, None) or by_name.fixed == entry.fixed
    assert everstep.get("adam", api="tf_train", beta1=0.8) == Adam(beta_1=0.8, epsilon=1e-8)


ADAM = {"learning_rate": 0.01, "name": "Adam", "clipnorm": None}
WRONG = [
    ("momentum", {}, "no default for learning_rate and momentum"),
    ("AdamOptimizer", {"beta1": 0.8, "beta_1": 0.8}, "twice"), ("AdamOptimizer", {"clipnorm": 1.0}, "everstep.clip"),
    ("lion", {"api": "get_updates"}, "get_updates has no stock optimizer 'lion'; it has Adadelta"),
    ("adam", {"api": "keras9"}, "one of tf_train, "), ("adamm", {}, "no definition called 'adamm'; did you mean Adam"),
    ("rms_propp", {}, "did you mean RMSprop"), ("clip", {}, "Clip is a wrapper|clip is a wrapper"), (3, {}, "got 3"),
    ({"class_name": "Adam", "config": ADAM}, {}, "say of which API"), ({}, {}, "a config is"),
    ({"config": {}}, {}, "a config is"), ({"class_name": "Adam", "config": 3}, {}, "a config is")]


@pytest.mark.parametrize("name, how, word", WRONG)
def test_what_is_refused(name, how, word):
    error = DefinitionError if name == "AdamOptimizer" else ConfigError
    with pytest.raises(error, match=word):
        everstep.get(name, **how)


@pytest.mark.parametrize("identifier", ["AdamOptimizer", Adam, Adam(), {"class_name": "Adam", "config": {}}])
def test_a_rate_by_position_is_no_api(identifier):
    with pytest.raises(ConfigError, match="learning_rate=...") as caught:
        everstep.get(identifier, 0.1)
    assert "got 0.1" in str(caught.value)


def test_what_no_definition_follows():
    for name, reason in UNSUPPORTED.items():
        try:
            find_name(name)
        except UnsupportedError as error:
            assert reason in str(error)


def test_definitions_and_configs_pass_through():
    definition = everstep.clip(Adam(0.01), norm=1.0)
    assert everstep.get(definition) is definition
    assert everstep.get(definition.get_config()) == definition
    assert everstep.get(Adam(), learning_rate=0.5) == Adam(0.5) == everstep.get(Adam, learning_rate=0.5)
    assert everstep.get(Adam(0.5).bind(np)) == Adam(0.5)
    config = {"class_name": "Adam", "config": {"learning_rate": 0.01}}
    assert everstep.get(config) == Adam(0.01)
    assert everstep.get(config, "update_step") == everstep.get(config, u"update_step") == Adam(0.01)
    assert everstep.get({"class_name": "AdamOptimizer", "config": {"beta1": 0.8}}) == Adam(beta_1=0.8, epsilon=1e-8)
    clipped = {"class_name": "Adam", "config": {"learning_rate": 0.01, "name": "Adam", "clipnorm": 1.0}}
    assert everstep.get(clipped, "update_step") == definition


@pytest.mark.filterwarnings("ignore:stock ")
@kerases
def test_what_keras_serializes(keras):
    harness.clear_session(keras)  # in TF 1 an earlier test's session may be of another graph
    bound = Adam(0.25).bind(keras)
    assert everstep.get({"class_name": type(bound).__name__, "config": bound.get_config()}) == Adam(0.25)
    native = keras.optimizers.RMSprop(0.25)
    expected = everstep.from_native(native)
    assert everstep.get(native) == expected
    assert everstep.get({"class_name": "RMSprop", "config": native.get_config()}, keras) == expected
    assert everstep.get("rmsprop", keras, learning_rate=0.25) == expected


@pytest.mark.shared(False)
@pytest.mark.filterwarnings("ignore:stock ")
@pytest.mark.parametrize("epsilon", [1e-7, 1e-4])
@kerases
def test_a_name_with_a_module_has_the_defaults_of_its_version(keras, epsilon, request):
    """Keras's epsilon was 1e-8 before 2.1.3, then `keras.backend.epsilon()`, and is a fixed number in TF 2."""
    harness.clear_session(keras)  # in TF 1 an earlier test's session may be of another graph
    request.addfinalizer(functools.partial(keras.backend.set_epsilon, keras.backend.epsilon()))
    keras.backend.set_epsilon(epsilon)
    for name in sorted({name for name, _, _ in stock.KERAS if stock.has_class(keras.optimizers, name)}):
        stock_class = getattr(keras.optimizers, name)
        rate = {"lr" if "lr" in inspect_arguments(stock_class.__init__) else "learning_rate": 0.25}
        expected = stock.migrate(stock_class(**rate))
        assert everstep.get(name, keras, learning_rate=0.25) == expected
        assert everstep.get({"class_name": name, "config": rate}, keras) == expected


def test_definitions_of_ones_own(monkeypatch):
    monkeypatch.undo()
    class OnesOwn(everstep.Definition):
        learning_rate = everstep.hyper(0.1)

        def update(self, ops, grad, var, slots, hyper, t):
            return hyper.learning_rate * grad, {}

    assert type(everstep.get("ones_own", learning_rate=0.5)) is OnesOwn
    assert "OnesOwn" in everstep.names()
    first = OnesOwn

    class OnesOwn(first):  # noqa: F811  # the name again, in the same module: the newer one counts
        pass

    assert type(everstep.get("OnesOwn")) is OnesOwn
