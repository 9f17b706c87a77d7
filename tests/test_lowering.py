"""The strategies of engine/lowering.py: each gives the same numbers, and the right one is chosen."""
from __future__ import absolute_import, division, print_function

import itertools
import sys

import numpy as np
import pytest

import everstep
import harness
import runs
import test_battery as battery
from everstep.compat.engine import lowering
from everstep.compat.engine.fused import KERNELS
from everstep.errors import DefinitionError, UnsupportedError
from everstep.optimizers.contract.kernel_names import kernel_of
from everstep.optimizers.contract.verbs import defines
from everstep.testing import training

pytestmark = pytest.mark.shared
FORBIDDEN = dict.fromkeys(lowering.STRATEGIES, False)
WAYS = [way for way in harness.framework_ways() if way.sparse]  # those on TensorFlow
needs_tensorflow = pytest.mark.skipif(not WAYS, reason="no TensorFlow, and so no other way than operation by operation")


def with_kernels():
    """Yields every definition that has a kernel, in each configuration that the kernel supports."""
    for definition_class, settings in battery.CONFIGURED:
        definition = battery.define(definition_class, settings)
        if kernel_of(definition) and KERNELS[kernel_of(definition).name](definition, lambda name: None):
            yield definition_class, settings


KERNEL_FORMS = list(with_kernels())


NAMES = ("dense", "bias", "single", "duplicates", "missing")  # those of the battery that have different plans
SHAPES, KINDS = ({name: known[name] for name in NAMES} for known in (training.SHAPES, training.KINDS))


def run(way, definition, lowered, steps=20, dtype="float32", **native):
    """Trains, and returns ({variable or (variable, slot): value}, {variable: plan})."""
    start = battery.start_values(dtype, SHAPES, definition)
    batches = training.make_batches(dtype, steps, SHAPES, KINDS)
    trained = runs.trained(way, definition, start, KINDS, batches, lowering=lowered, **native)
    values = trained.weights()
    for name in trained.trained():
        for slot in harness.bound(trained.optimizer).slot_names(trained.variables[name]):
            values[name, slot] = trained.slot(name, slot)
    return values, {each.name.split("/")[-1]: each for each in trained.optimizer.everstep_plan()}


def apart(one, other):
    """Returns the largest distance. A variable of one element may stand at 0 by chance: it started at 0.2 or more."""
    smallest = {name: 1e-6 if isinstance(name, tuple) else 0.1 for name in other}  # a tuple names a slot
    return max(np.abs(one[name] - other[name]).max() / max(np.abs(other[name]).max(), smallest[name]) for name in other)


def cases(forms, each_of=6, ways=WAYS):
    return harness.each_in_turn(forms, ways, each_of)


def name_of(value):
    return getattr(value, "name", None) or (battery.label(*value) if isinstance(value, tuple) else None)


@pytest.mark.shared(False)
@needs_tensorflow
@pytest.mark.parametrize("form, sparse, way", [
    (form, sparse, way) for (form, sparse), way in cases(list(itertools.product(KERNEL_FORMS, ["exact", "rows"])), 12)
], ids=name_of)
def test_a_kernel_does_what_the_rule_says(form, sparse, way):
    definition = battery.define(*form, epsilon=1e-3) if form[0].takes("epsilon") else battery.define(*form)
    definition = definition.replace(sparse=sparse, learning_rate=0.3)  # a rate of 1 would hide its absence
    actual, plan = run(way, definition, None)
    expected, plain = run(way, definition, FORBIDDEN)
    assert {each.strategy for each in plain.values()} == {"plain"}
    kernel = KERNELS[kernel_of(definition).name](definition, lambda name: None)
    if plan["dense"].strategy != "kernel":
        assert "this TensorFlow has no" in plan["dense"].why or "XLA has no" in plan["dense"].why
        pytest.skip(plan["dense"].why)
    by_rows = sparse == "rows" or definition.zero_grad_is_noop
    assert plan["duplicates"].strategy == ("kernel" if kernel.by_rows or not by_rows else "plain"), plan["duplicates"]
    assert apart(actual, expected) <= 2e-6


@needs_tensorflow
@pytest.mark.parametrize("way", WAYS, ids=name_of)
def test_kernels_in_float64(way):
    definition = everstep.optimizers.Adam(0.1)
    actual, plan = run(way, definition, None, dtype="float64")
    assert plan["dense"].strategy == "kernel"
    assert apart(actual, run(way, definition, FORBIDDEN, dtype="float64")[0]) <= 1e-9


class Twice(everstep.optimizers.Adam):
    """Has Adam's hypers and slots, but another rule."""

    def update(self, ops, grad, var, slots, hyper, t):
        change, new = super(Twice, self).update(ops, grad, var, slots, hyper, t)
        return 2 * change, new


class Renamed(everstep.optimizers.Adam):
    """Adam under another name."""


@needs_tensorflow
def test_a_subclass_that_overrides_update_has_no_kernel():
    actual, plan = run(WAYS[0], Twice(0.1), None, steps=2)
    assert plan["dense"].strategy != "kernel" and "no kernel: the rule" in plan["dense"].why
    assert apart(actual, run(WAYS[0], Twice(0.1), FORBIDDEN, steps=2)[0]) <= 1e-6
    assert run(WAYS[0], Renamed(0.1), None, steps=2)[1]["dense"].strategy == "kernel"


FORMS = [each for each in battery.CONFIGURED if not each[1]]


def _lowers(way, name):
    return harness.bound(everstep.optimizers.SGD().bind(way.module)).backend.lowers(name)


TORCH = [way for way in harness.framework_ways() if "torch" in way.name]


@pytest.mark.parametrize("lowered", lowering.STRATEGIES[1:] if WAYS else ["flattened"] if TORCH else [])
@pytest.mark.parametrize("form, way", cases(FORMS, 4, WAYS or TORCH), ids=name_of)
def test_each_way_gives_the_same(form, way, lowered, monkeypatch):
    if not _lowers(way, lowered):
        pytest.skip("TensorFlow before 1.14 compiles nothing")
    harness.shrink(monkeypatch, CHUNK_ELEMENTS=3)
    definition = battery.define(*form, epsilon=1e-3) if form[0].takes("epsilon") else battery.define(*form)
    actual, plan = run(way, definition, dict(FORBIDDEN, **{lowered: True}))
    expected, _ = run(way, definition, FORBIDDEN)
    most = 4e-6 if "torch" in way.name else 2e-6  # its plain steps have hypers as float32 tensors, blocks as numbers
    assert apart(actual, expected) <= most
    is_by_element = definition.locality == "element" and definition.stages == 1
    if lowered == "flattened" and is_by_element and not defines(definition, "measure"):
        assert plan["dense"].strategy == plan["bias"].strategy == "flattened", plan
    elif lowered == "compiled":
        assert plan["dense"].strategy == "compiled" or "not compiled" in plan["dense"].why, plan


class ByTheSum(everstep.Definition):
    locality = "variable"
    learning_rate = everstep.hyper(1.0)

    def update(self, ops, grad, var, slots, hyper, t):
        return hyper.learning_rate * grad / ops.sum(grad), {}


@pytest.mark.shared(False)
@pytest.mark.parametrize("way", WAYS + TORCH, ids=name_of)
def test_sums_of_a_million_equal_numbers(way):
    """One after another in float32, they are off by 3e-4 in the XLA of TF 1.14 to 2.0, and by 6e-4 in that of 2.21."""
    start, grad = np.zeros((1031, 1024), "float32"), np.full((1031, 1024), 0.1, "float32")
    trained = runs.trained(way, ByTheSum(), {"large": start}, {"large": harness.DENSE}, [{"large": grad}])
    assert abs(trained.weights()["large"] * start.size + 1).max() < 1e-5


class ByRow(everstep.Definition):
    """A row's change depends on its number, which no flattened variable has."""

    learning_rate = everstep.hyper(0.5)

    def update(self, ops, grad, var, slots, hyper, t):
        return hyper.learning_rate * (grad + ops.cast(hyper.row_number, grad.dtype)), {}


@pytest.mark.parametrize("definition, expected", [
    (everstep.optimizers.AdaBelief(0.1), "flattened"), (ByRow(), "plain")], ids=["AdaBelief", "ByRow"])
@pytest.mark.parametrize("way", WAYS + TORCH, ids=name_of)
def test_many_variables_of_one_shape(way, definition, expected):
    shapes = {"bias%d" % number: (3,) for number in range(lowering.FEW)}
    kinds = dict.fromkeys(shapes, harness.DENSE)
    start, batches = battery.start_values("float32", shapes), training.make_batches("float32", 2, shapes, kinds)
    ends, plans = [], []
    for lowered in (dict(FORBIDDEN, flattened=True), FORBIDDEN):
        trained = runs.trained(way, definition, start, kinds, batches, lowering=lowered)
        ends.append(trained.weights())
        plans.append({each.strategy for each in trained.optimizer.everstep_plan()})
    assert plans == [{expected}, {"plain"}]
    assert apart(*ends) <= 2e-6


@needs_tensorflow
def test_in_place_updates_with_an_average_of_the_weights():
    """moving_average uses the inner change twice: for the variable, and for the average of its new value."""
    definition = everstep.moving_average(everstep.optimizers.Adam(0.1, epsilon=1e-3))
    for way in [way for way in WAYS if issubclass(way.run, (harness.GraphRun, harness.GetUpdatesRun))]:
        actual, _ = run(way, definition, dict(FORBIDDEN, in_place=True), steps=5)
        assert apart(actual, run(way, definition, FORBIDDEN, steps=5)[0]) <= 2e-6, way.name


@needs_tensorflow
def test_the_rate_of_a_change_takes_no_memory_of_its_own():
    """In place, one operation subtracts `rate * x` from the variable, without an array for the product."""
    tf = harness.graph_mode_tensorflow()
    for way in SESSIONS:
        optimizer = everstep.optimizers.AdaBelief(0.1).bind(way.module, lowering=dict(FORBIDDEN, in_place=True))
        with tf.Graph().as_default():
            variable = tf.get_variable("w", initializer=np.ones((3, 2), "f"), use_resource="resource" in way.name)
            optimizer.apply_gradients([(tf.ones((3, 2)), variable)])
            types = [operation.type for operation in variable.op.outputs[0].consumers()]
        assert [each.strategy for each in optimizer.everstep_plan()] == ["in_place"]
        writes = [each.replace("Resource", "") for each in types if "Apply" in each or "Sub" in each]
        assert writes == ["ApplyGradientDescent"], way.name


@needs_tensorflow
def test_default_strategies(monkeypatch):
    """The default is the first that applies in the table of compat/engine/lowering.py."""
    harness.shrink(monkeypatch, SMALL=4, FEW=2, LARGE=30, CHUNK_ELEMENTS=3)
    for way in WAYS:
        _, plan = run(way, everstep.optimizers.AdaBelief(0.1), None, steps=1)
        assert plan["single"].strategy == plan["bias"].strategy == "flattened", (way.name, plan)
        backend = harness.bound(everstep.optimizers.SGD().bind(way.module)).backend
        # On TensorFlow 2, Keras 2.3 builds functions.
        sessions = (harness.GraphRun,) if backend.is_since("2.0") else (harness.GraphRun, harness.GetUpdatesRun)
        other = "compiled" if backend.is_since("2.5") else "plain"
        if issubclass(way.run, sessions):
            why = "keep the memory" if backend.is_since("2.9") else "copies a resource variable whole"
            in_pieces = way.name == "tf_train ref" and not backend.is_since("2.9")
            other = "chunks" if in_pieces or "not chunks" not in plan["dense"].why else "in_place"
            assert other == "chunks" or "resource" in plan["dense"].why or why in plan["dense"].why
        assert plan["dense"].strategy == other, (way.name, plan)


class Factored(everstep.Definition):
    """Factors the gradients of matrices, which XLA does less accurately than TensorFlow."""

    locality = "variable"
    learning_rate = everstep.hyper(0.1)
    is_matrix = everstep.option(True)

    def specialize(self, variable):
        return self.replace(is_matrix=len(variable.shape) == 2)

    def update(self, ops, grad, var, slots, hyper, t):
        change = ops.matmul(*ops.qr(grad)) if self.is_matrix else ops.sin(grad)
        return hyper.learning_rate * change, {}


@needs_tensorflow
@pytest.mark.parametrize("way", WAYS, ids=name_of)
def test_large_variables_are_compiled(way, monkeypatch):
    """Rules without a kernel are compiled, in sessions too, where TensorFlow has XLA and nothing forbids it."""
    harness.shrink(monkeypatch, SMALL=4, IN_SESSIONS=4)
    definition = everstep.optimizers.AdaBelief(0.1, epsilon=1e-3)
    actual, plan = run(way, definition, None, steps=6)
    reasons = ("no such strategy", "before 2.5", "ref variable in a function", "has no XLA")
    assert plan["dense"].strategy == "compiled" or any(why in plan["dense"].why for why in reasons), plan
    assert apart(actual, run(way, definition, FORBIDDEN, steps=6)[0]) <= 2e-6
    powers = run(way, everstep.optimizers.Ftrl(0.1, l2_shrinkage=0.1, learning_rate_power=-0.7), None, steps=1)[1]
    assert powers["dense"].strategy != "compiled", powers
    factors = run(way, Factored(0.1), None, steps=1)[1]
    assert factors["dense"].strategy != "compiled", factors


def list_a_gpu(monkeypatch, way):
    """Adds a GPU to the list of devices, which stock and everstep ask. No operation runs there."""
    optimizer = everstep.optimizers.SGD().bind(way.module)
    of_stock = sys.modules[type(optimizer).native_base.__module__]
    modules = harness.bound(optimizer).backend.tf, getattr(of_stock, "tf", None)
    configs = [getattr(each, "config", None) for each in modules]
    for owner in configs + [getattr(config, "experimental", None) for config in configs]:
        if hasattr(owner, "list_physical_devices"):
            found = owner.list_physical_devices()
            gpu = type(found[0])("/physical_device:GPU:0", "GPU")
            monkeypatch.setattr(owner, "list_physical_devices", lambda kind=None, found=found + [gpu]: [
                each for each in found if kind in (None, each.device_type)])


@needs_tensorflow
@pytest.mark.parametrize("way", [way for way in WAYS if _lowers(way, "compiled")], ids=name_of)
def test_with_a_gpu_xla_is_used_where_stock_uses_it(way, monkeypatch):
    """Stock's optimizers of TF 2.11 to 2.15 compile their step there, the others nothing."""
    harness.shrink(monkeypatch, SMALL=4, IN_SESSIONS=4)
    list_a_gpu(monkeypatch, way)
    definition = everstep.optimizers.AdaBelief(0.1)
    stock_compiles = getattr(definition.bind(way.module), "jit_compile", False)  # as the base class found it
    assert stock_compiles == (way.target == "update_step")
    _, plan = run(way, definition, None, steps=1)
    assert (plan["dense"].strategy == "compiled") == stock_compiles, plan
    assert stock_compiles or "not compiled" in plan["dense"].why, plan


@needs_tensorflow
@pytest.mark.parametrize("way", [way for way in WAYS if issubclass(way.run, harness.GraphRun)], ids=name_of)
def test_with_a_gpu_no_kernel_is_used_that_is_for_processors(way, monkeypatch):
    """One is ResourceSparseApplyMomentum. It fails on a variable of a GPU, for which these TensorFlows have no kernel.

    This matters in a graph, where a variable may be on any device; an eager one is known to be on the CPU.
    """
    definition = everstep.optimizers.Adam(0.1)
    if not harness.bound(definition.bind(way.module)).backend.is_since("1.14"):
        pytest.skip("TensorFlow before 1.14 does not list its devices")
    assert run(way, definition, None, steps=1)[1]["dense"].strategy == "kernel"
    list_a_gpu(monkeypatch, way)
    assert run(way, definition, None, steps=1)[1]["dense"].strategy != "kernel"


UPDATE_STEP = [way for way in WAYS if way.target == "update_step"]


@pytest.mark.skipif(not UPDATE_STEP, reason="no API here has jit_compile")
@pytest.mark.parametrize("gpu", [False, True])
def test_who_forbids_xla_gets_none(gpu, monkeypatch):
    harness.shrink(monkeypatch, SMALL=4)
    for way in UPDATE_STEP:
        definition = everstep.optimizers.AdaBelief(0.1)
        if gpu:
            list_a_gpu(monkeypatch, way)
        assert run(way, definition, None, steps=1)[1]["dense"].strategy == "compiled"
        plan = run(way, definition, None, steps=1, jit_compile=False)[1]
        assert "compiled" not in [each.strategy for each in plan.values()], plan
        assert "jit_compile=False" in plan["dense"].why, plan
        forbids, says_nothing = definition.bind(way.module, jit_compile=False), definition.bind(way.module)
        for optimizer, expected in ((forbids, False), (says_nothing, None)):
            again = type(optimizer).from_config(optimizer.get_config())
            assert harness.bound(again).lowerings.requested.get("compiled") is expected
            assert again.get_config() == optimizer.get_config()


SESSIONS = [way for way in WAYS if way.target == "tf_train" and issubclass(way.run, harness.GraphRun)]


@pytest.mark.parametrize("why", ["locks", "device", "branch", "small"])
@pytest.mark.parametrize("way", SESSIONS, ids=name_of)
def test_what_speaks_against_compiling_in_a_session(way, why, monkeypatch):
    tf = harness.graph_mode_tensorflow()
    if why == "branch" and getattr(tf, "control_flow_v2_enabled", bool)():
        pytest.skip("branches are functions here, and compiled like others")
    harness.shrink(monkeypatch, IN_SESSIONS=7 if why == "small" else 4)
    optimizer = everstep.optimizers.AdaBelief(0.1).bind(way.module, use_locking=why == "locks")
    with tf.Graph().as_default(), tf.Session() as session:
        with tf.device("/cpu:0" if why == "device" else None):
            variable = tf.get_variable("w", initializer=np.ones((3, 2), "float32"), use_resource="resource" in way.name)
        apply_gradients = lambda: tf.group(optimizer.apply_gradients([(tf.ones((3, 2)), variable)]))  # noqa: E731
        if why == "branch" and not harness.bound(optimizer).backend.can_branch(variable):
            pytest.skip("branches of this TensorFlow cannot write ref variables")
        train_op = tf.cond(tf.constant(True), apply_gradients, tf.no_op) if why == "branch" else apply_gradients()
        session.run(tf.global_variables_initializer())
        session.run(train_op)
        np.testing.assert_allclose(session.run(variable), 0.9, rtol=1e-3)
    (planned,) = optimizer.everstep_plan()
    assert planned.strategy != "compiled" and "not compiled" in planned.why
    expected = {"locks": "use_locking", "device": "device", "branch": "branch", "small": "small"}[why]
    assert expected in planned.why or "no such strategy" in planned.why or "in a function" in planned.why


@needs_tensorflow
def test_kernels_and_groups(monkeypatch):
    """Small variables of a rule with a kernel are flattened where the API's own optimizers have no kernels."""
    harness.shrink(monkeypatch, FEW=2)
    definition = everstep.optimizers.Adam(0.1)
    for way in WAYS:
        optimizer = definition.bind(way.module)
        bound = harness.bound(optimizer)
        is_fused = bound.adapter.is_fused or way.name.endswith("eager") and not bound.backend.keeps_functions()
        for tiny, expected in ((2048, "kernel" if is_fused else "flattened"), (2, "kernel")):
            harness.shrink(monkeypatch, TINY=tiny)
            _, plan = run(way, definition, None, steps=1)
            assert plan["bias"].strategy == expected, (way.name, tiny, plan)


@pytest.mark.parametrize("wrong", [{"compile": True}, {"kernel": 1}, "kernel"], ids=str)
def test_invalid_lowering_arguments(wrong):
    with pytest.raises(DefinitionError, match="lowering"):
        everstep.optimizers.SGD(0.1).bind(np, lowering=wrong)


def test_a_forced_strategy_must_exist():
    with pytest.raises(UnsupportedError, match="kernel"):
        everstep.optimizers.SGD(0.1).bind(np, lowering={"kernel": True})


def test_a_plan_on_arrays():
    optimizer, weights = everstep.optimizers.SGD(0.1).bind(np), np.zeros(2)
    assert optimizer.everstep_plan() == []
    optimizer.apply_gradients([(np.ones(2), weights)])
    (planned,) = optimizer.everstep_plan()
    assert planned.strategy == "plain" and planned.shape == (2,) and planned.gradient == "dense"


def test_kernels_have_names():
    with pytest.raises(DefinitionError, match="no kernel 'adaam'"):
        everstep.kernel("adaam")
    declared = {vars(cls)["kernel"].name for cls in battery.definition_classes() if vars(cls).get("kernel")}
    assert declared == set(KERNELS)
