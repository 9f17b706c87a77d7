"""Hypers, options, slots and scalars of any name: on each target one works as any other does, or an error names it."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

import everstep
import harness
from everstep.errors import DefinitionError

# Names of ours and of people's rules that meet something: in a native class, in `Bound`, in an adapter, in the engine.
NAMES = """
    target steps rule place record parts counter trained flush catch_up constrain exclude lowerings
    base backend definition_class native_base adapter_class adapter bound native hyper_names options arguments
    gradients started carried made calls seen rules read set present number start update_step apply build built
    weight_decay momentum epsilon clipnorm use_ema ema_momentum jit_compile loss_scale_factor
    gradient_accumulation_steps stateless_apply exclude_from_weight_decay add_slot add_weight get_config from_config
    variables weights minimize compute_gradients get_name iterations unsupported scale_loss everstep_plan get_slot
    from_definition save_own_variables assign finalize_variable_values gradient_transformers get_gradients works_on
""".split()
KINDS = ("hyper", "option", "slot", "scalar")
WAYS = harness.one_of_each_target([way for way in harness.all_ways() if "ref" not in way.name])
START = {"w": np.array([[1.0, 2.0], [3.0, 4.0]], "float32")}


def definition_class(kind, name):
    """Returns a definition class with one declaration of a kind under a name, which its rule uses."""
    declared = {"hyper": everstep.hyper(0.5), "option": everstep.option(0.5), "slot": everstep.slot(init=0.5),
                "scalar": everstep.scalar(0.5)}[kind]

    def update(self, ops, grad, var, slots, hyper, t):
        value = getattr({"hyper": hyper, "scalar": hyper, "slot": slots, "option": self}[kind], name)
        return hyper.learning_rate * value * grad, {name: value * 2} if kind == "slot" else {}

    def advance(self, ops, scalars, hyper, t):
        return {name: getattr(scalars, name) * 2} if kind == "scalar" else {}

    body = {"learning_rate": everstep.hyper(0.25), "update": update, "advance": advance, name: declared,
            "__module__": __name__}
    return type(str("Named"), (everstep.Definition,), body)


def trained(way, made, kind, name):
    """Returns the weights after three steps; a hyper is read first, and set to 1 before the last one if it can be."""
    run = harness.opened(way.run(lambda: made().bind(way.module), START, {"w": harness.DENSE}))
    grads, is_live = {"w": np.ones((2, 2), "float32")}, run.bound.adapter.sets_hypers
    run.step(grads)
    run.step(grads)
    if kind == "hyper":
        assert name in dir(run.optimizer) and value_of(run, name) == 0.5
    if kind == "hyper" and is_live:
        run.world.set_hyper(run.optimizer, name, 1.0)
        assert value_of(run, name) == 1.0
    run.step(grads)
    return run.weights()["w"]


def value_of(run, name):
    with run.inside():
        value = getattr(run.optimizer, name)
        return float(run.world.read(value) if hasattr(value, "dtype") else value)


@pytest.mark.shared
@pytest.mark.parametrize("way", WAYS, ids=harness.way_name)
@pytest.mark.parametrize("kind", KINDS)
def test_every_name_works_or_is_refused(way, kind):
    plain = trained(way, definition_class(kind, "plain"), kind, "plain")
    stock, refused = harness.bound(everstep.optimizers.SGD().bind(way.module)).adapter.stock_hypers, []
    for name in map(str, harness.share(NAMES, 1 if kind == "hyper" else 4)):
        try:
            made = definition_class(kind, name)
        except DefinitionError as error:  # a member of everstep.Definition, or what rules or configs call so
            assert hasattr(everstep.Definition, name) or name in str(error)
            continue
        try:
            np.testing.assert_array_equal(trained(way, made, kind, name), plain, err_msg=name)
        except DefinitionError as error:
            assert "hyper {!r} on {}".format(name, way.target) in str(error), error
            assert name not in stock
            refused.append(name)
    print("refused:", " ".join(refused))
    assert kind == "hyper" or not refused
    assert kind != "hyper" or {"steps", "flush", "catch_up", "get_slot"} <= set(refused)


def test_a_class_is_refused_before_there_is_an_optimizer():
    with pytest.raises(DefinitionError, match="Named cannot have a hyper 'flush' on arrays.*such as Named_flush"):
        definition_class("hyper", "flush").native_class(np)
    assert everstep.custom_objects(np)["Adam"] is everstep.optimizers.Adam.native_class(np)  # it hinders no other one


@pytest.mark.parametrize("way", WAYS, ids=harness.way_name)
def test_a_hyper_inside_of_a_wrapper_is_refused_too(way):
    inner = definition_class("hyper", "flush")()
    with pytest.raises(DefinitionError, match="cannot have a hyper 'flush'"):
        everstep.accumulate(inner, 2).bind(way.module)
