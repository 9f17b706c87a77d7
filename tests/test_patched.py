"""`everstep.patched`: code that names its optimizer trains with ours, on every API."""
from __future__ import absolute_import, division, print_function

import inspect
import types

import numpy as np
import pytest

import everstep
import harness
from everstep.errors import DefinitionError, TargetError
from everstep.optimizers import SGD, Adam, DiffGrad, Lion
from harness import find

WAYS = [way for way in harness.quickest() if way.stock is not None]
pytestmark = pytest.mark.skipif(not WAYS, reason="needs stock optimizers")
SEVERAL = pytest.mark.parametrize("way", WAYS, ids=harness.way_name)


def names(way):
    """Returns (the name of stock's Adam, of its SGD)."""
    return ("AdamOptimizer", "GradientDescentOptimizer") if way.target == "tf_train" else ("Adam", "SGD")


def stock_class(way, place=0):
    return getattr(getattr(way.module, "optimizers", way.module), names(way)[place])


def rate_name(stock):
    return "lr" if "lr" in harness.arguments_of(stock.__init__) else "learning_rate"


def weights(way, make):
    batches = [{"w": np.full((3, 2), scale, np.float32)} for scale in (1.0, -0.5, 2.0)]
    return harness.new_run(way, make, {"w": np.ones((3, 2), np.float32)}, {"w": harness.DENSE}, batches).weights()["w"]


@SEVERAL
def test_a_definition_in_place_of_a_class(way):
    stock = stock_class(way)
    by_name = {rate_name(stock): 0.1, "epsilon": 1e-3}

    def build():
        with everstep.patched(way.module, **{names(way)[0]: DiffGrad}):
            assert stock_class(way) is stock
            optimizer = stock(**by_name)
        assert type(optimizer).__name__ == "DiffGrad" and isinstance(optimizer, find(way.module).base)
        assert type(stock(**by_name)) is type_of_stock
        return optimizer

    type_of_stock = type(stock(**by_name))  # Keras 3 on torch makes one of a subclass

    expected = weights(way, lambda: DiffGrad(0.1, epsilon=1e-3).bind(way.module))
    np.testing.assert_array_equal(weights(way, build), expected)
    assert np.abs(expected - 1).max() > 0.05


@pytest.mark.filterwarnings("ignore:stock :UserWarning")
@SEVERAL
def test_a_function_is_called_with_the_arguments(way):
    calls = []

    def make(*args, **kwargs):
        calls.append((args, kwargs))
        return everstep.from_native(stock(*args, **kwargs))  # the class itself, of stock again

    stock, name = stock_class(way), names(way)[0]

    def build():
        with everstep.patched(way.module, **{name: make}):
            return stock(0.1, 0.8, epsilon=1e-3)

    expected = weights(way, lambda: everstep.from_native(stock(0.1, 0.8, epsilon=1e-3)).bind(way.module))
    np.testing.assert_array_equal(weights(way, build), expected)
    assert calls == [((0.1, 0.8), {"epsilon": 1e-3})]


@SEVERAL
def test_positions_and_names_of_stock_become_ours(way):
    stock = stock_class(way)
    with everstep.patched(way.module, **{names(way)[0]: Adam}):
        optimizer = stock(0.1, 0.8, 0.9)
    rule = optimizer.definition
    assert (rule.learning_rate, rule.beta_1, rule.beta_2) == (0.1, 0.8, 0.9)
    assert rule.epsilon == Adam().epsilon  # the call does not give it, so it is the definition's own default


@SEVERAL
def test_arguments_that_the_rule_lacks(way):
    """Stock's own defaults may be given; what the base class does beside the rule is passed on to it."""
    stock = stock_class(way)
    with everstep.patched(way.module, **{names(way)[0]: SGD}):
        assert stock(0.1, 0.9, 0.999).definition == SGD(0.1)
        assert stock(0.1, epsilon=None).definition == SGD(0.1)  # None stands for a default in most versions of Keras
        if way.target in ("optimizer_v2", "update_step", "keras3"):
            assert stock(0.1, clipnorm=0.5).clipnorm == 0.5
            assert getattr(stock(0.1, clipnorm=None), "clipnorm", None) is None


@SEVERAL
def test_blocks_end_and_can_be_nested(way):
    stock, name = stock_class(way), names(way)[0]
    module, sgd = way.module, stock_class(way, 1)
    rate = {rate_name(stock): 0.1}
    types = type(stock(**rate)), type(sgd(0.1))
    with everstep.patched(module, **{name: DiffGrad, names(way)[1]: Lion}):
        with everstep.patched(module, **{name: Lion(0.5)}):
            assert stock(**rate).definition.learning_rate == 0.5
        assert type(stock(**rate)).__name__ == "DiffGrad"
        assert type(sgd(0.1)).__name__ == "Lion"

        class Subclass(stock):
            """Of somebody else: stays as it is."""

        assert isinstance(Subclass(**rate), Subclass)
    with pytest.raises(ZeroDivisionError), everstep.patched(module, **{name: DiffGrad}):
        raise ZeroDivisionError
    assert (type(stock(**rate)), type(sgd(0.1))) == types and isinstance(Subclass(**rate), Subclass)
    if hasattr(inspect, "signature"):
        assert "beta_1" in str(inspect.signature(stock)) or "beta1" in str(inspect.signature(stock))


@SEVERAL
def test_an_argument_that_the_definition_lacks_is_an_error(way):
    stock, name = stock_class(way), names(way)[0]
    with everstep.patched(way.module, **{name: Lion}):
        with pytest.raises(DefinitionError, match=r"was called with epsilon=0.25, which Lion does not have; give a f"):
            stock(epsilon=0.25)
        with pytest.raises(DefinitionError, match="does not take|unexpected|clpinorm"):
            stock(clpinorm=1.0)
    with everstep.patched(way.module, **{name: lambda *args, **kwargs: None}):
        with pytest.raises(DefinitionError, match="must return a definition or a bound optimizer; it returned None"):
            stock()
    with everstep.patched(way.module, **{name: stock}):
        with pytest.raises(DefinitionError, match="must return a definition or a bound"):
            stock()


@SEVERAL
def test_a_class_of_another_package(way):
    module = types.ModuleType("somebody")
    base, body = find(way.module).base, {"__init__": lambda self, rate: None}
    if hasattr(base, "get_config"):  # may be abstract
        body["get_config"] = lambda self: {}
    module.Own = type("Own", (base,), body)
    with everstep.patched(module, Own=lambda rate: Lion(rate)):
        assert isinstance(module.Own(0.5), Lion.native_class(way.module))
    assert type(module.Own(0.5)) is module.Own


@SEVERAL
def test_what_cannot_be_patched(way):
    with pytest.raises(TargetError, match="has no class Adamm"), everstep.patched(way.module, Adamm=Lion):
        pass
    with pytest.raises(TargetError, match="is not the class of an optimizer that can be replaced"):
        with everstep.patched(np, ndarray=Lion):
            pass
    with pytest.raises(DefinitionError, match="everstep.patched.module, Adam="), everstep.patched(way.module):
        pass
    with pytest.raises(DefinitionError, match="or a function; got 3"):
        with everstep.patched(way.module, **{names(way)[0]: 3}):
            pass


@pytest.mark.parametrize("way", [way for way in WAYS if way.target != "tf_train"], ids=harness.way_name)
def test_strings_and_configs(way):
    optimizers = getattr(way.module, "optimizers", way.module)
    if not hasattr(optimizers, "get") or stock_class(way) is not type(optimizers.get("adam")):
        pytest.skip("this module's strings are of other classes")
    config = optimizers.serialize(optimizers.Adam(0.25))
    with everstep.patched(way.module, Adam=Adam):
        assert optimizers.get("adam").definition == Adam()
        loaded = optimizers.deserialize(config)
        assert loaded.definition.learning_rate == 0.25
        assert type(optimizers.get("sgd")) is optimizers.SGD
    assert type(optimizers.get("adam")) is optimizers.Adam


@SEVERAL
def test_a_module_whose_optimizers_were_replaced_by_hand(way, monkeypatch):
    holder = getattr(way.module, "optimizers", way.module)
    expected = find(way.module)
    for name in names(way):
        monkeypatch.setattr(holder, name, lambda *args, **kwargs: None)
    assert find(way.module)[:3] == expected[:3]
    Lion(0.1).bind(way.module)
    monkeypatch.setattr(holder, names(way)[0], Lion.native_class(way.module))
    assert find(way.module)[:3] == expected[:3]
