"""Members and constructor arguments of stock optimizers: ours have each, or refuse it with an everstep error.

The tables list how each public member is called. A member or argument that no table has fails the test, so that a new
version's new ones are noticed. Members in REFUSED and arguments in KEYWORDS_REFUSED raise; all others give what stock's
give.
"""
from __future__ import absolute_import, division, print_function

import functools
import itertools
import warnings
from collections import OrderedDict, namedtuple

import numpy as np
import pytest
from packaging.version import Version

import everstep
from everstep.errors import EverstepError
from everstep.optimizers import SGD, Adam, ScheduleFreeAdamW
from harness import DENSE, GraphRun, all_ways, arguments_of, base_of, share, way_name

START = {"w": np.arange(6, dtype="float32").reshape(3, 2) + 1, "x": np.array([0.5, -1, 2, 4], "float32")}
KINDS = {"w": DENSE, "x": DENSE}
GRADS = {"w": np.array([[3, -1], [0.5, 2], [-2, 1]], "float32"), "x": np.array([0.1, -3, 2, 1], "float32")}

# One stock class of an API, and how to make it and ours. names: {stock slot name: ours}
Pair = namedtuple("Pair", "way stock ours names")


def ways():
    """Returns one way of each mode: a tf.function and a ref variable change no member."""
    left_out = ("function", "jit", "ref")
    return [way for way in all_ways() if way.stock is not None and not way.name.endswith(left_out)]


def stock_class(way, *names):
    return next(getattr(way.stock, name) for name in names if isinstance(getattr(way.stock, name, None), type))


def pairs_of(way):
    name = {} if way.target == "get_updates" else {"name": "opt"}

    def adam(**native):
        return Adam(0.1, epsilon=1e-7).bind(way.module, **native)

    def sgd(**native):
        return SGD(0.1, momentum=0.9, rate_in_velocity=way.target != "tf_train").bind(way.module, **native)

    kinds = [("Adam", stock_class(way, "Adam", "AdamOptimizer"), {"epsilon": 1e-7}, adam, {})]
    kinds += [("SGD", stock_class(way, "SGD", "MomentumOptimizer"), {"momentum": 0.9}, sgd, {"momentum": "velocity"})]
    for label, stock, arguments, ours, names in kinds:
        yield label, Pair(way, lambda s=stock, a=arguments, **native: s(0.1, **dict(name, **dict(a, **native))),
                          lambda o=ours, **native: o(**dict(name, **native)), names)


CASES = [(label, pair) for way in ways() for label, pair in pairs_of(way)]
IDS = ["{} {}".format(pair.way.name, label) for label, pair in CASES]


class Side(object):
    """A run of one of the two optimizers, stock or ours, and the ways to call its members."""

    def __init__(self, pair, is_ours, change=None, **native):
        self.pair, self.is_ours, self.target = pair, is_ours, pair.way.target
        make = pair.ours if is_ours else pair.stock

        def made():
            optimizer = make(**native)
            if change is not None:
                change(optimizer)
            return optimizer

        self.run = pair.way.run(made, START, KINDS)
        self.opt = self.run.optimizer
        self.variables = [self.run.variables[name] for name in self.run.names]
        self.w = self.variables[0]
        self.world, self.is_graph = self.run.world, isinstance(self.run, GraphRun)
        # Adam of standalone Keras reads its count before or after it is incremented, at random, so weights vary.
        self.is_random = pair.way.name == "get_updates keras" and hasattr(self.opt, "beta_1")
        self.train_op = None

    def step(self):
        if self.target != "optimizer_v2" or hasattr(self.opt, "gradient_transformers"):
            self.run.step(GRADS)
            return
        # Before TF 2.4, stock clips in `minimize` only.
        with self.run.inside():
            if self.train_op is None or not self.is_graph:
                self.train_op = self.opt.minimize(self.linear_loss(), self.variables)
            self.do(self.train_op)

    def slot(self, name):
        return self.opt.get_slot(self.w, self.pair.names.get(name, name) if self.is_ours else name)

    def tensors(self):
        return [self.world.tensor(GRADS[name]) for name in self.run.names]

    def pairs(self):
        return list(zip(self.tensors(), self.variables))

    def loss(self):
        return sum(self.world.tf.reduce_sum(v * v) for v in self.variables)

    def linear_loss(self):
        return self.world.loss([(GRADS[name], variable) for name, variable in self.run.variables.items()])

    def weights(self):
        weights = self.run.weights()
        return {name: value.shape for name, value in weights.items()} if self.is_random else weights

    def do(self, operations):
        """Runs the operations of a graph, and returns the weights after it."""
        if self.target == "get_updates":
            self.world.K.function([], [], updates=operations)([])
        else:
            self.world.run(operations)
        return self.weights()

    def value(self, found):
        """Returns a plain value of what a member gave."""
        if found is None or isinstance(found, (bool, str, type(u""), float, np.ndarray, np.generic)):
            return found
        if isinstance(found, dict):
            return {key: self.value(value) for key, value in found.items()}
        if isinstance(found, (list, tuple)):
            return [self.value(value) for value in found]
        if isinstance(found, (int, np.integer)) or not (hasattr(found, "dtype") and hasattr(found, "shape")):
            return found
        return self.world.K.eval(found) if self.target == "get_updates" else self.world.read(found)

    def state(self, variables):
        """Returns the values of slots, sorted. Leaves out counters, and zeros(1), Keras 2's unused slots."""
        values = [np.asarray(self.value(variable)) for variable in variables]
        return sorted((value.tolist() for value in values if value.shape not in ((), (1,))), key=repr)


def outcome(side, call):
    """Returns (what a member gives, the error that it raises), one of them None."""
    try:
        with side.run.inside(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return side.value(call(side)), None
    except Exception as error:
        return None, error


def verdict(stock, ours, may_refuse):
    """Compares two outcomes: "same", "ours" for our declared error, "foreign" for other errors, else "differs"."""
    (stock_value, stock_error), (our_value, our_error) = stock, ours
    if stock_error is not None:
        if our_error is None:
            return "silent"
        return "same" if isinstance(our_error, (EverstepError, type(stock_error))) else "foreign"
    if our_error is not None:
        return "ours" if may_refuse and isinstance(our_error, EverstepError) else "foreign"
    return "same" if equal(stock_value, our_value) else "differs"


def equal(one, other):
    if isinstance(one, dict) and isinstance(other, dict):
        return set(one) == set(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    numbers = (int, float, np.ndarray, np.generic)
    if isinstance(one, numbers) and isinstance(other, numbers) and not isinstance(one, bool):
        return np.shape(one) == np.shape(other) and np.allclose(one, other, rtol=1e-5, atol=1e-5)
    return type(one) is type(other) and one == other


# Members. Each table: {member: function of a `Side`}. A name stands for an attribute that is read.


def read(name):
    return lambda side: getattr(side.opt, name)


def reading(names):
    return {name: read(name) for name in names.split()}


def config(side):
    config = dict(side.opt.get_config())
    # What a definition has as an option stands in its own part of our config. `decay` is refused.
    for name in ["everstep", "decay", "amsgrad", "nesterov", "adaptive_epsilon", "is_legacy_optimizer"]:
        config.pop(name, None)
    if side.target == "get_updates":
        config.pop("name", None)  # stock has one since Keras 2.3
    rate = config.pop("lr", None)  # Keras 2.0 to 2.2 write the alias
    return dict(config, learning_rate=rate) if rate is not None else config


def copied(side):
    return equal(type(side.opt).from_config(side.opt.get_config()).get_config(), side.opt.get_config())


def doubled(side):
    values = [np.asarray(value) for value in side.opt.get_weights()]
    side.opt.set_weights([value * 2 if value.ndim else value for value in values])
    return side.state(side.opt.get_weights())


def built_again(side):
    weights = side.do(side.opt.get_updates(side.loss(), side.variables))
    return weights if side.steps == 0 else None  # stock starts afresh, ours goes on


def loss_of(side):
    return side.loss() if side.target == "tf_train" and side.is_graph else side.loss


TABLES = {
    "tf_train": dict(
        reading("GATE_GRAPH GATE_NONE GATE_OP"), get_name=lambda side: side.opt.get_name(),
        get_slot=lambda side: [side.slot(name) for name in side.stock_slots],
        get_slot_names=lambda side: len(side.opt.get_slot_names()),
        variables=lambda side: side.state(side.opt.variables()),
        compute_gradients=lambda side: [grad for grad, _ in side.opt.compute_gradients(loss_of(side), side.variables)],
        apply_gradients=lambda side: side.do(side.opt.apply_gradients(side.pairs(), name="again")),
        minimize=lambda side: side.do(side.opt.minimize(loss_of(side), var_list=side.variables, name="again")),
    ),
    "optimizer_v2": dict(
        reading("beta_1 beta_2 epsilon momentum amsgrad nesterov decay learning_rate lr clipnorm clipvalue iterations "
                "global_clipnorm"),
        get_slot=lambda side: [side.slot(name) for name in side.stock_slots],
        get_slot_names=lambda side: len(side.opt.get_slot_names()),
        add_slot=lambda side: [side.opt.add_slot(side.w, side.opt.get_slot_names()[0])],
        add_weight=lambda side: side.opt.add_weight("extra", [2], initializer="ones"),
        apply_gradients=lambda side: side.do(side.opt.apply_gradients(side.pairs(), name="again")),
        from_config=copied, get_config=config,
        get_gradients=lambda side: side.opt.get_gradients(side.loss(), side.variables),
        get_updates=lambda side: side.do(side.opt.get_updates(side.loss(), side.variables)),
        get_weights=lambda side: side.state(side.opt.get_weights()), set_weights=doubled,
        gradient_aggregator=lambda side: [grad for grad, _ in side.opt.gradient_aggregator(side.pairs())],
        gradient_transformers=lambda side: list(side.opt.gradient_transformers),
        minimize=lambda side: side.do(side.opt.minimize(side.loss, var_list=side.variables, name="again")),
        variables=lambda side: side.state(side.opt.variables()), weights=lambda side: side.state(side.opt.weights),
    ),
    "get_updates": dict(
        reading("beta_1 beta_2 epsilon momentum amsgrad nesterov decay initial_decay learning_rate lr iterations"),
        from_config=copied, get_config=config,
        get_gradients=lambda side: len(side.opt.get_gradients(side.loss(), side.variables)), get_updates=built_again,
        get_weights=lambda side: side.state(side.opt.get_weights()), set_weights=doubled,
        updates=lambda side: isinstance(side.opt.updates, list) and len(side.opt.updates) > 0,
        weights=lambda side: side.state(side.opt.weights),
    ),
}


def saved(side):
    store = {}
    side.opt.save_own_variables(store)
    return store


def loaded(side):
    store = {key: np.asarray(value) for key, value in saved(side).items()}
    side.opt.load_own_variables({key: value * 2 if value.ndim else value for key, value in store.items()})
    return side.state(saved(side).values())


def variables(side):
    return side.opt.variables() if callable(side.opt.variables) else side.opt.variables


def set_variables(side):
    values = [np.asarray(side.value(variable)) for variable in variables(side)]
    side.opt.set_weights([value * 2 if value.ndim else value for value in values])
    return side.state(variables(side))


def set_one(name):
    def call(side):
        getattr(side.opt, name)(side.w, side.tensors()[0])
        return side.run.weights()

    return call


def one_update(*rate):
    def call(side):
        side.opt.update_step(side.tensors()[0], side.w, *rate)
        return side.run.weights()

    return call


def stateless(side):
    values = [variable.value for variable in side.opt.variables], side.tensors(), [v.value for v in side.variables]
    return list(side.opt.stateless_apply(*values)[0])


NEW_STYLE = dict(
    reading("beta_1 beta_2 epsilon momentum amsgrad nesterov adaptive_epsilon learning_rate clipnorm clipvalue "
            "global_clipnorm ema_momentum ema_overwrite_frequency use_ema iterations name weight_decay"),
    build=lambda side: side.opt.build(side.variables),
    exclude_from_weight_decay=lambda side: side.opt.exclude_from_weight_decay(var_names=["x"]),
    finalize_variable_values=lambda side: side.opt.finalize_variable_values(side.variables) or side.run.weights(),
    from_config=copied, get_config=config,
    apply_gradients=lambda side: side.opt.apply_gradients(side.pairs()) is None or side.run.weights(),
    save_own_variables=lambda side: side.state(saved(side).values()), load_own_variables=loaded,
    set_weights=set_variables, variables=lambda side: side.state(variables(side)),
    momentums=lambda side: list(side.opt.momentums),
)
TABLES["update_step"] = dict(NEW_STYLE, lr=read("lr"), jit_compile=read("jit_compile"),
    add_variable=lambda side: side.opt.add_variable([2], initializer="ones", name="extra"),
    add_variable_from_reference=lambda side: side.opt.add_variable_from_reference(side.w, "extra"),
    aggregate_gradients=lambda side: [grad for grad, _ in side.opt.aggregate_gradients(side.pairs())],
    compute_gradients=lambda side: [grad for grad, _ in side.opt.compute_gradients(side.loss, side.variables)],
    minimize=lambda side: side.opt.minimize(side.loss, side.variables) is None or side.run.weights(),
    update_step=one_update())
TABLES["keras3"] = dict(NEW_STYLE, built=read("built"), gradient_accumulation_steps=read("gradient_accumulation_steps"),
    loss_scale_factor=read("loss_scale_factor"),
    add_variable=lambda side: side.opt.add_variable((2,), "ones", name="extra"),
    add_variable_from_reference=lambda side: side.opt.add_variable_from_reference(side.w, "extra"),
    add_optimizer_variables=lambda side: side.opt.add_optimizer_variables(side.variables, "extra"),
    apply=lambda side: side.opt.apply(side.tensors()) or side.run.weights(), assign=set_one("assign"),
    assign_add=set_one("assign_add"), assign_sub=set_one("assign_sub"),
    scale_loss=lambda side: side.opt.scale_loss(3.0), stateless_apply=stateless, update_step=one_update(0.1))

# Not public, but read and called by people's code.
PRIVATE = {
    "tf_train": dict(
        reading("_name _use_locking _lr _lr_t _learning_rate _learning_rate_tensor _momentum _momentum_tensor _beta1 "
                "_beta2 _epsilon _beta1_t _beta2_t _epsilon_t"),
        _get_beta_accumulators=lambda side: list(side.opt._get_beta_accumulators()),
        _beta1_power=read("_beta1_power"), _beta2_power=read("_beta2_power"), _prepare=lambda side: side.opt._prepare(),
        _create_slots=lambda side: side.opt._create_slots(side.variables),
        _zeros_slot=lambda side: side.opt._zeros_slot(side.w, "extra", "extra"),
        _valid_dtypes=lambda side: len(side.opt._valid_dtypes()),
        _call_if_callable=lambda side: side.opt._call_if_callable(0.5),
    ),
    "optimizer_v2": dict(
        reading("_name _initial_decay _hypers_created"),
        _iterations=lambda side: side.opt.iterations is side.opt._iterations,
        _weights=lambda side: side.state(side.opt._weights), _hyper=lambda side: side.opt._hyper["learning_rate"],
        _get_hyper=lambda side: [side.opt._get_hyper("learning_rate"), side.opt._get_hyper("learning_rate", "float64")],
        _decayed_lr=lambda side: side.opt._decayed_lr("float32"),
        _serialize_hyperparameter=lambda side: side.opt._serialize_hyperparameter("learning_rate"),
        _create_slots=lambda side: side.opt._create_slots(side.variables),
        _create_hypers=lambda side: side.opt._create_hypers(),
        _create_all_weights=lambda side: side.opt._create_all_weights(side.variables),
        _set_hyper=lambda side: side.opt._set_hyper("learning_rate", 0.1),
    ),
    "get_updates": {},
    "update_step": dict(
        reading("_iterations _learning_rate _current_learning_rate _momentums _velocities _built"),
        _variables=lambda side: side.state(side.opt._variables),
        _var_key=lambda side: side.opt._var_key(side.w) == side.opt._var_key(side.w),
        _use_weight_decay=lambda side: side.opt._use_weight_decay(side.w),
        _serialize_hyperparameter=lambda side: side.opt._serialize_hyperparameter(side.opt._learning_rate),
    ),
    "keras3": dict(
        reading("_iterations _learning_rate _momentums _velocities"),
        _variables=lambda side: side.state(side.opt._variables),
        _get_current_learning_rate=lambda side: side.opt._get_current_learning_rate(),
        _get_variable_index=lambda side: side.opt._get_variable_index(side.w),
        _trainable_variables=lambda side: list(side.opt._trainable_variables),
        _use_weight_decay=lambda side: side.opt._use_weight_decay(side.w),
    ),
}

# {target: {members that raise an everstep error instead}}
REFUSED = {"update_step": ["adaptive_epsilon"]}
# Those that add variables, and `stateless_apply`: stock's changes the variables on torch, though it should not.
LAST = "stateless_apply get_updates add_variable add_variable_from_reference add_optimizer_variables add_weight".split()
LAST += ["_zeros_slot"]


def quietly(function):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function()


def public(optimizer):
    return {name for name in set(dir(optimizer)) | set(dir(type(optimizer))) if not name.startswith("_")}


def results(pair, is_ours, names, table, slots, steps):
    side = Side(pair, is_ours)
    side.stock_slots, side.steps = slots, steps
    for _ in range(steps):
        side.step()
    found = OrderedDict((name, outcome(side, table[name])) for name in names)
    side.run.close()
    return found


def stock_slots(side):
    return sorted(side.opt.get_slot_names()) if hasattr(side.opt, "get_slot_names") else []


def cases(each_of, *more):
    """Returns the parameters of a test: this cell's share of the cases."""
    every = [(label, pair) + values for values in itertools.product(*more) for label, pair in CASES]
    ids = [" ".join([case[1].way.name, case[0]] + list(map(str, case[2:]))) for case in every]
    return share([pytest.param(*case, id=name) for case, name in zip(every, ids)], each_of)


@pytest.mark.parametrize("label, pair", CASES, ids=IDS)
def test_every_member_and_argument_has_an_entry(label, pair):
    target = pair.way.target
    optimizer, base = quietly(pair.stock), base_of(pair.way.module)
    assert sorted(public(optimizer) - set(TABLES[target])) == []
    assert sorted(set(arguments(base.__init__)) - set(KEYWORDS[target])) == []


@pytest.mark.parametrize("label, pair, steps", cases(4, [2, 0]))
def test_members(label, pair, steps):
    target, side = pair.way.target, Side(pair, False)
    table = dict(TABLES[target], **PRIVATE[target])
    there = public(side.opt)
    slots = stock_slots(side)
    names = [name for name in table if name in there or name.startswith("_") and hasattr(side.opt, name)]
    names.sort(key=lambda name: (name in LAST, name != "_prepare", name))
    side.run.close()
    stock, ours = (results(pair, is_ours, names, table, slots, steps) for is_ours in (False, True))
    report = [(name, verdict(stock[name], ours[name], name in REFUSED.get(target, ()))) for name in names]
    wrong = ["{}: {}: stock {}, ours {}".format(name, how, stock[name], ours[name])
             for name, how in report if how not in ("same", "ours")]
    assert not wrong, "\n".join(wrong)


# Attributes that are set after construction: {target: {name: value}}.

BOUNDS = {"clipnorm": 1.0, "clipvalue": 0.5, "global_clipnorm": 1.0}
HYPERS = {"learning_rate": 0.2, "lr": 0.2, "beta_1": 0.5, "epsilon": 0.1, "momentum": 0.5}
OPTIONS = {"amsgrad": True, "nesterov": True}
EMA = {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2, "weight_decay": 0.1}
OLD_STYLE = dict(HYPERS, decay=0.5, **dict(BOUNDS, **OPTIONS))
NEW = dict(HYPERS, name="other", **dict(BOUNDS, **dict(OPTIONS, **EMA)))
SETTINGS = {
    "tf_train": {}, "optimizer_v2": OLD_STYLE, "get_updates": OLD_STYLE, "update_step": dict(NEW, jit_compile=False),
    "keras3": dict(NEW, gradient_accumulation_steps=2, loss_scale_factor=4.0),
}  # fmt: skip
# With this, stock Adam before Keras 3.5 takes the number of calls for t.
OLD_KERAS_3 = any(way.target == "keras3" and Version(way.world(way.module).keras.__version__) < Version("3.5")
                  for way in ways())
COUNTS_CALLS = "gradient_accumulation_steps" if OLD_KERAS_3 else None
# Stock cannot set these, ours can.
SETTINGS_BETTER = {"get_updates": ["lr"]}
SETTINGS_REFUSED = {
    "get_updates": ["amsgrad", "nesterov", "decay", "global_clipnorm"], "keras3": ["amsgrad", "nesterov"],
    "optimizer_v2": ["amsgrad", "nesterov", "decay"], "update_step": ["amsgrad", "nesterov"]}


def trained(pair, is_ours, steps, change=None, **native):
    """Returns the weights after some steps and after `finalize_variable_values`."""
    side = Side(pair, is_ours, change, **native)
    for _ in range(steps):
        side.step()
    if hasattr(side.opt, "finalize_variable_values"):
        side.opt.finalize_variable_values(side.variables)
    weights = side.weights()
    side.run.close()
    return weights


def outcomes(pair, steps, **arguments):
    results = []
    for is_ours in (False, True):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results.append((trained(pair, is_ours, steps, **arguments), None))
        except Exception as error:
            results.append((None, error))
    return results


def check(pair, label, steps, settings, refused, better):
    """Trains stock and ours with each of {name: arguments}. Ours raises for the refused, stock may for the better."""
    wrong = []
    for name, arguments in sorted(settings.items()):
        if name == COUNTS_CALLS and label == "Adam":
            continue
        stock, ours = outcomes(pair, steps, **arguments)
        how = verdict(stock, ours, name in refused)
        if how not in ("same", "ours") and not (how == "silent" and name in better):
            wrong.append("{}: {}: stock {}, ours {}".format(name, how, stock, ours))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("label, pair", cases(6))
def test_settings(label, pair):
    target, side = pair.way.target, Side(pair, False)
    names = set(SETTINGS[target]) & (set(dir(side.opt)) | set(HYPERS) | set(BOUNDS))
    values = {name: SETTINGS[target][name] for name in names if name not in HYPERS or hasattr(side.opt, name)}
    side.run.close()
    settings = {name: {"change": functools.partial(setting, name, value)} for name, value in values.items()}
    check(pair, label, 2, settings, SETTINGS_REFUSED.get(target, ()), SETTINGS_BETTER.get(target, ()))


def setting(name, value, optimizer):
    setattr(optimizer, name, value)


# Constructor arguments: {target: {name: value}}.


def twice(grads_and_vars):
    return [(grad * 2, variable) for grad, variable in grads_and_vars]


KEYWORDS = {
    "tf_train": {"name": "other", "use_locking": True, "use_own_namescope_for_non_slot_vars": True},
    "optimizer_v2": dict(BOUNDS, name="other", decay=0.5, lr=0.2, gradient_aggregator=twice,
                         gradient_transformers=[twice]),
    "get_updates": dict(BOUNDS, decay=0.5, lr=0.2),
    "update_step": dict(BOUNDS, name="other", weight_decay=0.1, use_ema=True, ema_momentum=0.5, mesh=1,
                        ema_overwrite_frequency=2, jit_compile=False, is_legacy_optimizer=False),
}  # fmt: skip
KEYWORDS["keras3"] = dict(
    KEYWORDS["update_step"], loss_scale_factor=4.0, learning_rate=0.2, gradient_accumulation_steps=2
)
KEYWORDS_REFUSED = {
    "optimizer_v2": ["decay", "lr"], "get_updates": ["decay", "lr"], "update_step": ["mesh"],
    "keras3": ["learning_rate"],
}  # fmt: skip


def arguments(function):
    return arguments_of(function)[1:]


@pytest.mark.parametrize("label, pair", cases(6))
def test_constructor_arguments(label, pair):
    of_base = arguments(base_of(pair.way.module).__init__)
    left_out = set(of_base) - set(arguments(type(quietly(pair.stock)).__init__))  # by this stock class
    settings = {name: {name: value} for name, value in KEYWORDS[pair.way.target].items()}
    for name in settings:
        if name.startswith("ema_"):
            settings[name]["use_ema"] = True
    check(pair, label, 3, settings, KEYWORDS_REFUSED.get(pair.way.target, ()), left_out)


# What callbacks and training loops read to log the rate.

READ_RATE = {
    "tf_train": [read("_lr_t")], "optimizer_v2": [lambda side: side.opt._decayed_lr("float32")], "get_updates": [],
    "update_step": [read("learning_rate"), read("lr")], "keras3": [read("learning_rate")],
}
WAYS = [way for way in ways() if READ_RATE[way.target]]


def read_rates(way, rule):
    """Returns [(value, error)] of each way to read the rate, after a step."""
    side = Side(Pair(way, None, lambda: rule.bind(way.module), {}), True)
    side.step()
    found = [outcome(side, call) for call in READ_RATE[way.target]]
    side.run.close()
    return found


@pytest.mark.parametrize("way", WAYS, ids=way_name)
def test_the_rate_of_a_schedule_is_its_value_at_the_next_step(way):
    # In update_step, stock too returns the rate of the last step.
    expected = 1.0 if way.target == "update_step" else 0.75
    for value, error in read_rates(way, SGD(everstep.PolynomialDecay(1.0, 4, 0.0))):
        assert error is None and abs(value - expected) < 1e-6, (value, error)


# Not on Keras 3, whose TensorBoard callback reads `learning_rate` of every optimizer.
@pytest.mark.parametrize("way", [way for way in WAYS if way.target != "keras3"], ids=way_name)
def test_the_rate_of_optimizers_without_one(way):
    """Each branch of a partition has its own rate."""
    for _, error in read_rates(way, everstep.partition({"w": SGD(0.1), "x": Adam(0.2)})):
        assert isinstance(error, EverstepError) and isinstance(error, AttributeError), error


# What an optimizer makes.


def trainable_of(run):
    """Returns the names of the optimizer's variables that the framework would train."""
    if isinstance(run, GraphRun):
        trained = set(map(id, run.variables.values()))
        return [each.name for each in run.graph.get_collection("trainable_variables") if id(each) not in trained]
    variables = run.optimizer.variables if hasattr(run.optimizer, "variables") else run.optimizer.weights
    variables = list(variables() if callable(variables) else variables)
    assert len(variables) > 4
    return [each.name for each in variables if each.trainable]


@pytest.mark.parametrize("way", [way for way in ways() if way.target != "get_updates"], ids=way_name)
def test_nothing_that_an_optimizer_makes_is_trained(way):
    run = way.run(lambda: everstep.accumulate(ScheduleFreeAdamW(0.1), 2).bind(way.module), START, KINDS)
    try:
        run.step(GRADS)
        assert trainable_of(run) == []
    finally:
        run.close()
