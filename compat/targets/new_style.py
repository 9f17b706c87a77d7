"""The code that `update_step` and `keras3` share. In both APIs, `build` creates the slots of all variables at once.

As in stock, one optimizer trains one list of variables: `apply_gradients` on other variables raises an error. A second
`apply_gradients` call in the same step is a second update. A definition that counts calls refuses it.
"""
from __future__ import absolute_import, division, print_function

import copy
from collections import OrderedDict

import numpy as np

from everstep.compat.engine.fitting import is_known
from everstep.compat.engine.overwritten import is_overwritten
from everstep.compat.engine.pairs import as_list
from everstep.compat.engine.step import counters, skips
from everstep.compat.targets import hypers
from everstep.compat.targets.adapter import Adapter, required
from everstep.compat.targets.checking import check_grads, check_repeat
from everstep.compat.targets.construction import Unsupported, config_of, member
from everstep.compat.targets.copying import ByPosition
from everstep.compat.targets.hooks import replaced, why_own_stay
from everstep.compat.targets.hypers import attribute, is_function
from everstep.compat.targets.loading import is_loading
from everstep.compat.targets.native_clipping import check_bounds
from everstep.compat.targets.partitioned import shards_of
from everstep.compat.targets.sharded import ShardedSlots, name_of, place_of
from everstep.compat.targets.since_v2 import check_schedule, is_native_schedule, replace_by_schedule
from everstep.compat.targets.stock_members import present_schedule, schedule_value, searched, slot_lists
from everstep.compat.targets.stored_arrays import StoredArrays
from everstep.errors import DefinitionError, HyperTypeError, NotBuiltError, SlotError, UnsupportedError, VariableError
from everstep.optimizers.contract import VARIABLE, Schedule, flat, scalar_starts, tree, walk

BOUNDS = ("clipnorm", "clipvalue", "global_clipnorm", "weight_decay")
GRAPHS = Unsupported(
    "graphs of TF 1", UnsupportedError,
    "{optimizer} cannot train in a graph of TF 1 (tf.Graph, tf.Session, disable_eager_execution): optimizers of this "
    "API do nothing there. Bind the definition to tf.compat.v1.train, or to tf.keras.optimizers.legacy (from TF 2.16 "
    "on tf_keras.optimizers.legacy)",
)
SLOT_NAMES = member("get_slot_names", "checkpoints would mistake it for an OptimizerV2; `variables` have names")
WEIGHTS = member("get_weights", "set_weights takes the values of `variables`")


class NewStyleAdapter(Adapter):
    """The members that are the same from Keras 2.11 to Keras 3. The `required` ones differ."""

    stock_members = slot_lists(("_momentums", "m"), ("_velocities", "v"), ("momentums", "velocity"))
    has_slots = "once it is built on the variable"
    is_fused = False
    carries = ByPosition

    # Construction and config.

    @classmethod
    def base_class(cls, optimizer, module):
        return next(base for base in optimizer.__mro__ if base.__name__ == "Optimizer")

    def start(self, name=None, **native):
        native = check_bounds(native, BOUNDS)
        weight_decay = native.pop("weight_decay", None)
        self._check_settings(weight_decay, native)
        self._own = OrderedDict()  # counters and scalars by name
        self.slots = {}  # by variable's key, then slot name
        self._trained = OrderedDict()  # the variables that it was built on, by key
        self._made = None  # the number of variables after `build`; a subclass may add its own
        self.before_slots = 0  # the number of optimizer variables before `build`
        self.stored, self.sharded = StoredArrays(self), ShardedSlots(self)
        self._undecayed = ()  # of a pickle: the indices of variables without weight decay, in the order of the step
        self.use(self.make_backend())
        self.check_eager()
        self.start_native(name, native)
        bound = self.bound
        if weight_decay is not None:
            self.native.weight_decay = weight_decay
        numbers = [name for name in bound.hyper_declarations() if isinstance(bound.given(name), float)]
        names = [name for name in numbers if name != "learning_rate"]  # the base class creates that one
        self.native._hypers = {name: self.make_hyper(attribute(name), bound.given(name)) for name in names}
        for counter in counters(bound.definition):
            if counter != "updates":
                self._own[counter] = self.make_variable(counter, (), "int64", 0)
        for scalar, start in scalar_starts(bound.definition).items():
            self._own[scalar] = self.make_variable(attribute(scalar), (), "float32", start)

    @required
    def make_backend(self):
        """Returns the backend that computes."""

    @required
    def start_native(self, name, native):
        """Calls the base class's constructor. `name` is that of `bind`, or None."""

    @required
    def make_hyper(self, name, value):
        """Returns a new variable for a hyper."""

    @required
    def make_variable(self, name, shape, dtype, initial, variable=None):
        """Returns a new variable of the optimizer; a slot if `variable` is given."""

    def _check_settings(self, weight_decay, native):
        definition, short = self.bound.definition, self.bound.definition._short()
        if weight_decay:
            if "weight_decay" in self.bound.hyper_declarations():
                raise DefinitionError(
                    "{} already has a weight_decay; use bind(module, weight_decay=...) only with a definition that has "
                    "none".format(short)
                )
            if "learning_rate" not in self.bound.hyper_declarations():
                raise DefinitionError(
                    "on this API weight_decay is multiplied by the learning rate, and {} has none".format(short)
                )
        if weight_decay and definition.stages > 1:
            raise UnsupportedError(
                "weight_decay={} would decay at each of the gradients that {} takes; put "
                "everstep.decoupled_weight_decay inside of it".format(weight_decay, short)
            )
        if weight_decay and any(node.definition.sparse == "catch_up" for node in walk(tree(definition))):
            raise UnsupportedError(
                '{} has sparse="catch_up", but weight_decay={} changes every row at every step; use '
                "everstep.decoupled_weight_decay(definition), which rows can catch up with later".format(
                    short, weight_decay
                )
            )
        if skips(definition) and native.get("use_ema"):
            raise UnsupportedError(
                "use_ema averages at every call, even if {} skips its update; bind without use_ema".format(short)
            )

    @required
    def check_eager(self):
        """Raises UnsupportedError in graphs of TF 1: stock optimizers of this API silently train nothing there."""

    def native_config(self):
        """Returns the native config, with the definition's part in it."""
        config = self.base.get_config()
        config.pop("learning_rate", None)
        config.update((name, None) for name in self.bound.aliases.intersection(config))
        config.update(config_of(self.bound))
        return config

    # Hypers.

    def present(self, name):
        value = self.read(name)
        if is_native_schedule(self.bound, value):
            return value(self.counter_of_schedules())
        if isinstance(value, Schedule):
            return present_schedule(self.bound, value)
        return hypers.called(self.bound, name, value) if is_function(value) else value

    def read(self, name):
        value = self.bound.given(name)
        if not isinstance(value, float):
            return value
        return self.native._learning_rate if name == "learning_rate" else self.native._hypers[name]

    def set(self, name, value):
        if name == "learning_rate" and is_native_schedule(self.bound, value):
            replace_by_schedule(self.bound, name, value)
            self.take_schedule(value)
        else:
            checked, variable = hypers.check(self.bound, name, value), self.unwrap(self.read(name))
            self.backend.write(variable, self.backend.constant(checked, self.backend.dtype(variable)))

    def number(self, name, value):
        value = value() if is_function(value) else value
        return value.numpy() if hasattr(value, "numpy") else value

    @required
    def counter_of_schedules(self):
        """Returns the variable at whose value the base class reads native schedules."""

    @required
    def take_schedule(self, schedule):
        """Makes a native schedule the base class's learning rate."""

    def given_rate(self):
        """Returns the learning rate in the form that the base class takes: a number or a native schedule."""
        if "learning_rate" not in self.bound.hyper_declarations():
            return 1.0
        rate = self.bound.given("learning_rate")
        if isinstance(rate, float) or is_native_schedule(self.bound, rate):
            return rate
        check_schedule(self.bound, rate)
        base = self.schedules(type(self.native).native_base).LearningRateSchedule
        return type(str("Given"), (base,), {"__call__": lambda _, step: self._rate_at(step), "get_config": dict})()

    def _rate_at(self, step):
        """Returns the present value of a learning rate that is not a number, for callers of the base class."""
        rate = self.bound.given("learning_rate")
        if isinstance(rate, Schedule):
            return schedule_value(self.bound, rate)
        try:
            rate = hypers.called(self.bound, "learning_rate", rate) if is_function(rate) else rate
        except HyperTypeError:
            if self.bound.started:
                raise
            rate = 0.0  # `bind` goes on with 0; the first step raises the error
        return self.backend.tensor(rate)

    # Counters and scalars.

    def scalar(self, name):
        return self.unwrap(self._own[name])

    def own_variables(self):
        names = list(counters(self.bound.definition)) + list(flat(self.bound.definition, "scalar"))
        return OrderedDict((name, self.counter(name)) for name in names)

    def counted_elsewhere(self):
        return None

    # Variables and slots.

    def find_key(self, variable):
        return self.native._var_key(variable)

    def variable_name(self, variable):
        return getattr(variable, "path", None) or name_of(variable)

    def state_name(self, variable, index):
        return self.variable_name(variable)

    def collections(self, variable):
        return ()

    def parts(self, variable):
        return shards_of(variable) or [variable]

    def place(self, variable):
        return place_of(variable)

    def decays(self, record):
        return record.index not in self._undecayed and self.native._use_weight_decay(searched(record.native))

    def find_slot(self, variable, name):
        return self.slots.get(self.bound.variable_key(variable), {}).get(name)

    def other_slots(self, variable):
        return []

    def get_slot(self, variable, name):
        return self.sharded.get_slot(variable, name)

    @required
    def is_built(self):
        """Returns whether the slots exist."""

    def build_slots(self, variables):
        """Creates the slots of all variables to train."""
        if self.is_built():
            self.take_waiting()
            return
        self.check_eager()
        variables = as_list(variables, VariableError, "build takes a list of variables")
        for variable in variables:
            self.check_variable(variable)
        bound, native = self.bound, self.native
        bound.check_first(variables)
        self.carries.check_names(bound, variables)
        self.before_slots = len(native._variables)
        self.base.build(variables)
        for variable in variables:
            key = bound.variable_key(variable)
            self._trained[key] = variable
            slots = self.slots[key] = OrderedDict()
            for name in bound.slot_names(variable):
                initial, shape, dtype = bound.slot_declaration(variable, name)
                slots[name] = self.make_variable(name, shape, dtype, initial, variable)
        self.sharded.join(variables)
        if not self.is_built():  # Keras 3 has set its own flag already
            native._built = True
        self._made = len(native._variables)
        has_more = self.bound.carried is not None and len(self.bound.carried) > self._made
        if not (has_more and replaced(native, ["build"])):  # such a subclass adds its own first
            self.take_waiting()

    def start_value(self, initial, shape, dtype, variable):
        """Returns the first value of a slot or another variable of the optimizer."""
        if initial is not VARIABLE and not is_known(shape):
            return self.backend.filled(shape, initial, dtype, variable)
        if initial is not VARIABLE:
            return np.full(shape, initial, dtype if dtype != "bfloat16" else "float32")
        variable = self.unwrap(variable)
        return self.backend.copy(self.backend.cast(self.backend.read(variable), dtype), variable)

    def give_weights(self, weights):
        """Sets the values of `variables`, as `set_weights` does. What Keras's loaders give is loaded: see `load`."""
        weights = [np.asarray(weight) for weight in as_list(weights, SlotError, "set_weights takes a list of arrays")]
        if is_loading():
            self.stored.load(weights)
        elif self.is_built():
            self.stored.put(weights)
        else:
            raise NotBuiltError(
                "{} has no slots yet; call build(trainable_variables) before set_weights".format(self.bound.owner)
            )

    def load(self, store):
        """Loads the state from a file, as `load_own_variables` does."""
        self.stored.load([np.asarray(store[key]) for key in sorted(store.keys(), key=lambda key: (len(key), key))])

    def save(self, store):
        """Saves the state to a file, as `save_own_variables` does."""
        for position, value in enumerate(self.stored.values()):
            store[str(position)] = value

    def take_waiting(self):
        """Gives the variables the state that waits for them."""
        if self.bound.carried is not None:
            with self.backend.outside():  # assigns once, not at each call of a function that is being traced
                self.stored.take_waiting()

    # State.

    def make_state(self, variables):
        self.native.build(variables)
        return []

    def default_session(self, variables):
        return None

    def why_others_stay(self):
        """Returns why a State would lack variables of the base class or of a subclass; None if there are none."""
        if self._made is not None and len(self.native._variables) > self._made:
            return why_own_stay("variables of its own")
        if self.native.use_ema:
            return (
                "use_ema keeps averages, and a state cannot hold them; save them with the API's own files, or train "
                "with everstep.moving_average, as everstep.from_native(optimizer) has: its averages are slots"
            )
        return None

    # Copies.

    def trained(self):
        return list(self._trained.values())

    def copied_variable(self, variable, memo):
        return variable

    def exclusions(self, same_variables):
        native = vars(self.native)
        keys = native.get("_exclude_from_weight_decay", ())
        pattern = native.get("_exclude_from_weight_decay_pattern")  # Keras 3
        names = list(native.get("_exclude_from_weight_decay_names") or ([pattern.pattern] if pattern else ()))
        if not keys and not names and not self._undecayed:
            return None
        if same_variables:
            return {"names": names, "keys": keys, "places": self._undecayed}
        trained = self.trained()
        if keys and not trained:
            raise UnsupportedError(
                "{} excludes variables by var_list, and a pickle has no variables: exclude them by var_names, or "
                "pickle after the first step".format(self.bound.owner)
            )
        places = [index for index, each in enumerate(trained) if not self.decays(self.bound.record(each))]
        return {"names": names, "keys": (), "places": tuple(places) if trained else self._undecayed}

    def exclude(self, exclusions):
        """Takes over what `exclusions` returned, before the first step."""
        self.native.exclude_from_weight_decay(var_names=exclusions["names"])
        if exclusions["keys"]:
            self.native._exclude_from_weight_decay = copy.copy(exclusions["keys"])
        self._undecayed = exclusions["places"]

    # The step.

    def native_decay(self, variable):
        decay = vars(self.native).get("weight_decay")
        record = self.bound.record(variable)
        if not decay or self.decays_by_hook() or not self.decays(record) or is_overwritten(record.native):
            return None
        return decay

    def decays_by_hook(self):
        """Returns whether the user's class has its own weight decay, which runs before each step."""
        return bool(replaced(self.native, ["_apply_weight_decay"]))

    def apply_weight_decay(self, variables):
        """Decays as the base class does if that hook is replaced. Else the engine decays, only at updates."""
        if self.decays_by_hook():
            self.base._apply_weight_decay(variables)

    def check_step(self, pairs):
        """Returns the (gradient, variable) pairs of a step, checked before anything is created or changed."""
        bound = self.bound
        self.check_eager()
        if self._repeats(pairs):
            check_repeat(bound, bound.lowerings.checked)
            return pairs
        for _, variable in pairs:
            self.check_variable(variable)
        pairs = check_grads(bound, pairs)
        bound.check_first([variable for _, variable in pairs])
        check_repeat(bound, [variable for _, variable in pairs])
        if self.is_built():
            unknown = [variable for _, variable in pairs if bound.variable_key(variable) not in self._trained]
            if unknown:
                raise VariableError(
                    "{} was built on other variables than {}; call its build(...) once, with all variables that it "
                    "will train, or make one optimizer for each group".format(
                        bound.owner, ", ".join(self.variable_name(variable) for variable in unknown)
                    )
                )
            self.take_waiting()
            bound.lowerings.checked = [variable for _, variable in pairs]
        return pairs

    def _repeats(self, pairs):
        """Returns whether the last step had these variables, and all gradients surely fit: nothing is to check."""
        checked, fits = self.bound.lowerings.checked, self.backend.surely_fits
        if len(checked) != len(pairs) or self.bound.carried is not None or not checked:
            return False
        return all(v is old and fits(grad, self.unwrap(v)) for (grad, v), old in zip(pairs, checked))
