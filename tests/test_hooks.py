"""Hooks that a user's class replaces are called as stock calls them, and what they do counts: beside the stock class.

A hook is a method that the base class of an API calls, and that people replace: to decay weights, to add noise, to
change gradients or to count. A subclass, a mixin and the object itself can replace it.
"""
from __future__ import absolute_import, division, print_function

import copy
import functools
import types

import numpy as np
import pytest

import everstep
import harness
import stock
from crafted_files import tensorflow
from everstep.errors import EverstepError, StateError, UnsupportedError
from everstep.optimizers import LAMB, SGD, Adafactor, Adam, Nadam
from runs import ONE_EACH

# The hooks of each API in the order in which a step calls them.
PER_VARIABLE = {
    "tf_train": "_apply_dense _apply_sparse _resource_apply_dense _resource_apply_sparse".split(),
    "optimizer_v2": "_resource_apply_dense _resource_apply_sparse".split(),
    "update_step": ["update_step"], "keras3": ["update_step"], "get_updates": [],
}
OTHERS = {
    "tf_train": "minimize compute_gradients apply_gradients _create_slots _prepare _apply_sparse_duplicate_indices "
                "_resource_apply_sparse_duplicate_indices _finish",
    "optimizer_v2": "minimize _compute_gradients get_updates get_gradients apply_gradients _create_slots _prepare "
                    "_prepare_local _transform_unaggregated_gradients _aggregate_gradients _transform_gradients "
                    "_distributed_apply _resource_apply_sparse_duplicate_indices _transform_loss _get_gradients",
    "update_step": "minimize compute_gradients apply_gradients build aggregate_gradients _clip_gradients "
                   "_deduplicate_sparse_grad _apply_weight_decay _internal_apply_gradients _update_step "
                   "_compute_current_learning_rate",
    "keras3": "apply_gradients apply build _filter_empty_gradients _clip_gradients _apply_weight_decay "
              "_backend_apply_gradients _backend_update_step",
    "get_updates": "get_updates get_gradients",
}
WAYS = [way for way in harness.framework_ways() if way.stock is not None]
FORMS = ("subclass", "mixin", "instance")
START = {"kernel": np.linspace(-1, 1, 6).reshape(3, 2).astype("float32"), "bias": np.array([0.5, -2], "float32")}
GRADS = [np.full((3, 2), 0.3, "float32"), np.array([0.1, -0.2], "float32")]
ROWS = [(np.array([[0.5, 1.0], [0.25, 0.0]], "float32"), np.array([2, 0])), GRADS[1]]


def natives(way, **native):
    """Returns {"stock" and "everstep": (class, a function of a class that makes the optimizer)}."""
    stock_class = stock.stock_class(way, "MomentumOptimizer" if way.target == "tf_train" else "SGD")
    name = {} if way.target == "get_updates" else dict(native, name="trained")  # stock has no name there
    with way.world(way.module):  # stock Keras 2 makes variables at once
        from_stock = stock.migrate(stock_class(0.1, momentum=0.9))
    if way.name.startswith("keras3 torch"):  # stock itself is replaced by a class with other hooks; a subclass is not
        stock_class = type(str("SGD"), (stock_class,), {})
    return {
        "stock": (stock_class, lambda cls: cls(0.1, momentum=0.9, **name)),
        "everstep": (from_stock.native_class(way.module), lambda cls: cls.from_definition(from_stock, **name)),
    }


def replaced(native, hooks, form, around):
    """Returns an optimizer whose hooks are replaced.

    Args:
        native: its class, and a function that makes one of a class.
        hooks: their names. Those that the class does not have are left out.
        form: one of FORMS.
        around: a function of (hook, the method that it replaces, its arguments, its keywords).
    """
    cls, make = native
    hooks = [name for name in hooks if hasattr(cls, name)]
    if form == "instance":
        optimizer = make(cls)
        for name in hooks:
            method = _method(name, lambda self, name: functools.partial(getattr(type(self), name), self), around)
            setattr(optimizer, name, types.MethodType(method, optimizer))
        return optimizer
    owners = []
    body = {name: _method(name, lambda self, name: getattr(super(owners[0], self), name), around) for name in hooks}
    owners.append(type(str("Replaced"), (cls if form == "subclass" else object,), body))
    return make(owners[0] if form == "subclass" else type(str("Mixed"), (owners[0], cls), {}))


def _method(name, above, around):
    """Returns a method that calls `around`. The base class asks some whether they take `apply_state`."""

    def dense(self, grad, var, apply_state=None):
        return plain(self, grad, var, **_given(apply_state))

    def sparse(self, grad, var, indices, apply_state=None):
        return plain(self, grad, var, indices, **_given(apply_state))

    def plain(self, *args, **keywords):
        return around(name, above(self, name), args, keywords)

    return {"_resource_apply_dense": dense, "_resource_apply_sparse": sparse}.get(name, plain)


def _given(apply_state):
    return {} if apply_state is None else {"apply_state": apply_state}


def shown(value):
    """Returns what two calls of a hook can be compared by."""
    if isinstance(value, (list, tuple)):
        return [shown(each) for each in value]
    if isinstance(value, dict):  # apply_state; stock has more in it, each class its own
        return {str(key): "lr_t" in each for key, each in value.items()}
    if hasattr(value, "shape"):
        return "array", str(value.shape), str(value.dtype).replace("_ref", "")
    if hasattr(value, "dense_shape"):
        return "rows", shown(value.values), shown(value.indices)
    return type(value).__name__, value if isinstance(value, (str, int, float)) else None


def steps(way, optimizer, grads, count=2):
    """Returns the weights after some steps."""
    with way.world(way.module) as world:
        variables = [world.variable(START[name], name=name) for name in ("kernel", "bias")]
        optimizer = optimizer()
        for _ in range(count):
            world.step(optimizer, list(zip(grads, variables)))
        return [world.read(variable) for variable in variables]


def grads_for(way):
    return ROWS if way.sparse and way.target != "get_updates" else GRADS  # stock there makes sparse gradients dense


def logged(native, hooks, form, log):
    """Returns a function that makes an optimizer whose hooks note their calls in a list, and go on."""

    def noted(name, method, args, keywords):
        log.append((name, shown(args), {key: shown(value) for key, value in keywords.items()}))
        return method(*args, **keywords)

    return lambda: replaced(native, hooks, form, noted)


@pytest.mark.shared
@pytest.mark.parametrize("form", FORMS)
@harness.ways_where(WAYS.__contains__)
def test_hooks_are_called_as_by_stock(way, form):
    """Each by as many calls, with arguments of the same kinds, in the same order."""
    hooks, logs = PER_VARIABLE[way.target] + OTHERS[way.target].split(), {"stock": [], "everstep": []}
    for who, native in natives(way).items():
        steps(way, logged(native, hooks, form, logs[who]), grads_for(way))
    if " function" in way.name:  # TensorFlow traces stock twice where that makes variables
        starts = {who: [place for place, call in enumerate(log) if call[0] == log[0][0]] for who, log in logs.items()}
        logs = {who: log[starts[who][-1]:] for who, log in logs.items()}
    assert logs["stock"] and "\n".join(map(str, logs["everstep"])) == "\n".join(map(str, logs["stock"]))


CALLS = [(way, "minimize") for way in WAYS if way.target in ("tf_train", "optimizer_v2", "update_step")]
CALLS += [(way, "get_updates") for way in WAYS if way.target == "get_updates" or way.name == "optimizer_v2 session"]
CALLS = [(way, call) for way, call in CALLS if not way.name.endswith("function")]


@pytest.mark.parametrize("way,call", CALLS, ids=[way.name + " " + call for way, call in CALLS])
def test_hooks_are_called_by_minimize_and_get_updates_as_by_stock(way, call):
    hooks, logs = PER_VARIABLE[way.target] + OTHERS[way.target].split(), {"stock": [], "everstep": []}
    for who, native in natives(way).items():
        with way.world(way.module) as world:
            variables = [world.variable(START[name], name=name) for name in ("kernel", "bias")]
            optimizer, loss = logged(native, hooks, "subclass", logs[who])(), world.loss(list(zip(GRADS, variables)))
            if call == "minimize":
                world.run(optimizer.minimize(loss, var_list=variables))
            else:
                world.run(optimizer.get_updates(loss() if callable(loss) else loss, variables))
    assert logs["stock"][0][0] == call
    assert "\n".join(map(str, logs["everstep"])) == "\n".join(map(str, logs["stock"]))


def scaled(grad, factor):
    is_sparse = hasattr(grad, "indices") and hasattr(grad, "dense_shape")
    return type(grad)(grad.values * factor, grad.indices, grad.dense_shape) if is_sparse else grad * factor


def decayed(var, done):
    """Subtracts a tenth of a variable, after an operation; None if the update has run."""
    if done is None:
        return var.assign(var * 0.9)
    with tensorflow.control_dependencies([done]):
        return var.assign(var.read_value() * 0.9)


def halved_then_decayed(name, method, args, keywords):
    """As people's mixins do: another gradient, and a write after the update. Keras 3 also passes a rate."""
    args = (scaled(args[0], 0.5),) + args[1:]
    if name == "update_step" and len(args) == 3:
        args = args[:2] + (args[2] * 0.5,)
    return decayed(args[1], method(*args, **keywords))


def frozen(name, method, args, keywords):
    return method(scaled(args[0], 0.0), *args[1:], **keywords)


@pytest.mark.shared
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("around", [halved_then_decayed, frozen])
@harness.ways_where(lambda way: way in WAYS and PER_VARIABLE[way.target])
def test_what_a_hook_does_counts(way, around, form):
    weights = {
        who: steps(way, lambda native=native: replaced(native, PER_VARIABLE[way.target], form, around), grads_for(way))
        for who, native in natives(way).items()
    }
    for actual, expected, name in zip(weights["everstep"], weights["stock"], ("kernel", "bias")):
        np.testing.assert_allclose(actual, expected, rtol=1e-6, err_msg=name)
        assert np.array_equal(expected, START[name]) == (around is frozen)


def is_kernel(variable):
    return len(variable.shape) == 2


# Definitions with state of each kind; those that need all gradients of a step refuse.
DEFINITIONS = {
    "Adam": Adam(0.1), "catch_up": Adam(0.1, sparse="catch_up", dense_ok=True), "Nadam": Nadam(0.1),
    "LAMB": LAMB(0.1), "Adafactor": Adafactor(0.1), "accumulate": everstep.accumulate(Adam(0.1), 2),
    "accumulate(Nadam)": everstep.accumulate(Nadam(0.1), 2), "lookahead": everstep.lookahead(SGD(0.1), sync_period=2),
    "clip": everstep.clip(Adam(0.1), norm=0.1),
    "partition": everstep.partition({"large": (is_kernel, Nadam(0.1))}, default=SGD(0.1, momentum=0.9)),
}
NEED_ALL = {
    "clip by global norm": (everstep.clip(Adam(0.1), global_norm=0.1), "over all variables"),
    "loss scale": (everstep.loss_scale(Adam(0.1), 8.0), "looks at all gradients"),
}
HOOKED = [way for way in ONE_EACH if PER_VARIABLE.get(way.target)]


def passed_on(name, method, args, keywords):
    return method(*args, **keywords)


@pytest.mark.shared
@pytest.mark.parametrize("name", sorted(DEFINITIONS))
@harness.ways_where(HOOKED.__contains__)
def test_a_hook_that_only_passes_on_changes_nothing(way, name):
    definition = DEFINITIONS[name]
    native = type(definition.bind(way.module)), lambda cls: cls.from_definition(definition)
    hooked = steps(way, lambda: replaced(native, PER_VARIABLE[way.target], "subclass", passed_on), grads_for(way), 4)
    plain = steps(way, lambda: definition.bind(way.module), grads_for(way), 4)
    for actual, expected in zip(hooked, plain):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", sorted(NEED_ALL))
@harness.ways_where(HOOKED.__contains__)
def test_a_definition_that_needs_all_gradients_refuses_by_the_name_of_the_hook(way, name):
    definition, why = NEED_ALL[name]
    native, hooks = (type(definition.bind(way.module)), lambda cls: cls.from_definition(definition)), PER_VARIABLE
    with way.world(way.module) as world:
        variables = [world.variable(START[each], name=each) for each in ("kernel", "bias")]
        optimizer = replaced(native, hooks[way.target], "subclass", passed_on)
        if name == "loss scale":
            optimizer.scale_loss(world.tensor(1.0))
        with pytest.raises(UnsupportedError, match="one variable at a time where .*replaces _?[a-z_]+, but .*" + why):
            world.step(optimizer, list(zip(GRADS, variables)))
        for variable, name in zip(variables, ("kernel", "bias")):
            np.testing.assert_array_equal(world.read(variable), START[name])


# Hooks that are not of one variable: of the rate, of weight decay and of clipping.
WHOLE = {
    "optimizer_v2": ["_decayed_lr", "_prepare_local"], "update_step": ["_apply_weight_decay", "_clip_gradients"],
    "keras3": ["_apply_weight_decay", "_clip_gradients"],
}


def half_as_much(name, method, args, keywords):
    """Halves the rate or the gradients; decays once more."""
    if name == "_prepare_local":
        method(*args, **keywords)
        coefficients = args[2][args[0], args[1]]
        coefficients["lr_t"] = coefficients["lr_t"] * 0.5
        return None
    if name == "_apply_weight_decay":
        method(*args, **keywords)
        return method(*args, **keywords)
    returned = method(*args, **keywords)
    return [grad * 0.5 for grad in returned] if name == "_clip_gradients" else returned * 0.5


@pytest.mark.parametrize("place", [0, 1])
@harness.ways_where(lambda way: way in WAYS and way.target in WHOLE)
def test_what_other_hooks_do_counts(way, place):
    hook, weights, native = WHOLE[way.target][place], {}, {}
    if way.target != "optimizer_v2":
        native = {"weight_decay": 0.5, "clipnorm": 0.25}
    if native and "weight_decay" not in harness.arguments_of(stock.stock_class(way, "SGD").__init__):
        pytest.skip("SGD of TF 2.11 has no weight_decay")
    for who, (cls, make) in natives(way, **native).items():
        if not hasattr(cls, hook):
            pytest.skip("TF 1.14 has no {}".format(hook))
        weights[who] = steps(way, functools.partial(replaced, (cls, make), [hook], "subclass", half_as_much), GRADS)
    for actual, expected in zip(weights["everstep"], weights["stock"]):
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
    plain = steps(way, lambda: natives(way, **native)["everstep"][1](natives(way)["everstep"][0]), GRADS)
    assert not np.allclose(weights["everstep"][0], plain[0], rtol=1e-3)  # the hook made a difference


class OfTrain(object):
    def _create_slots(self, var_list):
        super(OfTrain, self)._create_slots(var_list)
        for var in var_list:
            self._zeros_slot(var, "seen", "seen")

    def _apply_dense(self, grad, var):
        with tensorflow.control_dependencies([self.get_slot(var, "seen").assign_add(grad)]):
            return super(OfTrain, self)._apply_dense(self.get_slot(var, "seen").read_value(), var)

    def _resource_apply_dense(self, grad, var):
        with tensorflow.control_dependencies([self.get_slot(var, "seen").assign_add(grad)]):
            return super(OfTrain, self)._resource_apply_dense(self.get_slot(var, "seen").read_value(), var)


class OfV2(object):
    def _create_slots(self, var_list):
        super(OfV2, self)._create_slots(var_list)
        for var in var_list:
            self.add_slot(var, "seen")

    def _resource_apply_dense(self, grad, var, *apply_state):
        with tensorflow.control_dependencies([self.get_slot(var, "seen").assign_add(grad)]):
            return super(OfV2, self)._resource_apply_dense(self.get_slot(var, "seen").read_value(), var, *apply_state)


class OfKeras(object):
    def build(self, variables):
        super(OfKeras, self).build(variables)
        if not hasattr(self, "seen"):
            self.seen = []
            for variable in variables:
                add = self.add_variable_from_reference
                self.seen.append(add(model_variable=variable, variable_name="seen") if hasattr(self, "_index_dict")
                                 else add(variable, name="seen"))

    def update_step(self, gradient, variable, *rate):
        index = self._index_dict[self._var_key(variable)] if hasattr(self, "_index_dict") else None
        seen = self.seen[self._get_variable_index(variable) if index is None else index]
        seen.assign(seen + gradient)
        super(OfKeras, self).update_step(seen + 0.0, variable, *rate)


MIXINS = {"tf_train": OfTrain, "optimizer_v2": OfV2, "update_step": OfKeras, "keras3": OfKeras}


@harness.ways_where(lambda way: way in HOOKED and way in WAYS)
def test_slots_of_a_subclass_live_beside_ours(way):
    """Trained, listed and saved as those of a stock subclass are."""
    weights, shapes = {}, {}
    for who, (cls, make) in natives(way).items():
        with way.world(way.module) as world:
            optimizer, variables = trained_with_own_slots(world, way, cls, make)
            weights[who] = [world.read(variable) for variable in variables]
            if way.target == "tf_train":
                shapes[who] = len(optimizer.get_slot_names())
            else:
                kept = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
                shapes[who] = [tuple(map(int, variable.shape)) for variable in kept if len(variable.shape)]
            if who == "everstep":
                with pytest.raises(StateError, match="adds (slots|variables) of its own"):
                    everstep.capture(optimizer, variables, session=world.session)
    for actual, expected in zip(weights["everstep"], weights["stock"]):
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
    assert shapes["everstep"] == shapes["stock"]


def trained_with_own_slots(world, way, cls, make):
    variables = [world.variable(START[name], name=name) for name in ("kernel", "bias")]
    optimizer = make(type(str("Own"), (MIXINS[way.target], cls), {}))
    for _ in range(2):
        world.step(optimizer, list(zip(GRADS, variables)))
    return optimizer, variables


@harness.ways_where(lambda way: way in HOOKED and not harness.in_graphs(way))
def test_slots_of_a_subclass_are_copied_and_restored(way):
    cls, make = natives(way)["everstep"]
    with way.world(way.module) as world:
        optimizer, variables = trained_with_own_slots(world, way, cls, make)
        # A deep copy of Keras 3 begins anew, as stock's.
        others = [copy.deepcopy(optimizer)] if way.target != "keras3" else []
        start = [world.read(variable) for variable in variables]
        if way.target in ("update_step", "keras3"):
            store, loaded = {}, make(type(optimizer))
            private = "" if hasattr(cls.native_base, "save_own_variables") else "_"  # TF 2.11 and 2.12
            getattr(optimizer, private + "save_own_variables")(store)
            getattr(loaded, private + "load_own_variables")(store)  # before it has any slot
            others.append(loaded)
        ends = []
        for each in [optimizer] + others:
            for variable, value in zip(variables, start):
                variable.assign(value)
            world.step(each, list(zip(GRADS, variables)))
            ends.append([world.read(variable) for variable in variables])
        for end in ends[1:]:
            for actual, expected in zip(end, ends[0]):
                np.testing.assert_allclose(actual, expected, rtol=1e-6)
        assert not np.array_equal(ends[0][0], start[0])


@harness.ways_where(HOOKED.__contains__)
def test_a_subclass_that_makes_no_slots_is_told_so(way):
    def nothing(name, method, args, keywords):
        return None

    definition = Adam(0.1)
    native = type(definition.bind(way.module)), lambda cls: cls.from_definition(definition)
    with way.world(way.module) as world:
        variables = [world.variable(START[name], name=name) for name in ("kernel", "bias")]
        optimizer = replaced(native, ["_create_slots", "build"], "subclass", nothing)
        # `stateless_apply` of Keras 3.5 and older asks itself whether the optimizer is built, before ours is called.
        told = (EverstepError, ValueError) if way.name.endswith("jit") else EverstepError
        with pytest.raises(told, match="must call super|must be built"):
            world.step(optimizer, list(zip(GRADS, variables)))
        np.testing.assert_array_equal(world.read(variables[0]), START["kernel"])


@pytest.mark.parametrize("name", ["assign", "assign_add", "assign_sub"])
@harness.ways_where(lambda way: way in HOOKED and way.target == "keras3")
def test_helpers_of_keras_3_that_ours_does_not_call_are_refused(way, name):
    definition = SGD(0.1)
    native = type(definition.bind(way.module)), lambda cls: cls.from_definition(definition)
    with way.world(way.module) as world:
        variable = world.variable(START["bias"], name="bias")
        with pytest.raises(UnsupportedError, match="replaces {},".format(name)):
            world.step(replaced(native, [name], "subclass", passed_on), [(GRADS[1], variable)])
        np.testing.assert_array_equal(world.read(variable), START["bias"])


@harness.ways_where(lambda way: way.name == "tf_train resource")
def test_sums_over_the_parts_of_a_variable_refuse(way):
    definition = everstep.clip(SGD(0.1), norm=0.1)
    native = type(definition.bind(way.module)), lambda cls: cls.from_definition(definition)
    with way.world(way.module) as world:
        whole = world.tf.get_variable("whole", (4, 2), use_resource=True,
                                      partitioner=world.tf.fixed_size_partitioner(2))
        optimizer = replaced(native, PER_VARIABLE[way.target], "subclass", passed_on)
        with pytest.raises(UnsupportedError, match="measures whole over all its parts"):
            optimizer.minimize(world.tf.reduce_sum(world.tf.square(whole)))
