"""The code that `update_step` and `keras3` share. In both APIs, `build` creates the slots of all variables at once.

As in stock, one optimizer trains one list of variables: `apply_gradients` on other variables raises an error. A second
`apply_gradients` call in the same step is a second update. A definition that counts calls refuses it.
"""
from __future__ import absolute_import, division, print_function

import copy
from collections import OrderedDict

import numpy as np

from everstep.compat.backends.on_tensorflow import TensorFlowBackend
from everstep.compat.engine.pairs import as_list
from everstep.compat.engine.step import counters, skips
from everstep.compat.engine.variable_view import is_known
from everstep.compat.targets.construction import Unsupported, member
from everstep.compat.targets.hypers import attribute, is_function
from everstep.compat.targets.native_clipping import check_bounds
from everstep.compat.targets.since_v2 import SinceV2Target
from everstep.compat.targets.stock_members import schedule_value, searched, slot_lists
from everstep.errors import DefinitionError, HyperTypeError, NotBuiltError, SlotError, UnsupportedError, VariableError
from everstep.optimizers.contract import VARIABLE, Schedule, flat, tree, walk
from everstep.optimizers.contract.undecayed import undecayed

BOUNDS = ("clipnorm", "clipvalue", "global_clipnorm", "weight_decay")
GRAPHS = Unsupported(
    "graphs of TF 1", UnsupportedError,
    "{optimizer} cannot train in a graph of TF 1 (tf.Graph, tf.Session, disable_eager_execution): optimizers of this "
    "API do nothing there. Bind the definition to tf.compat.v1.train, or to tf.keras.optimizers.legacy (from TF 2.16 "
    "on tf_keras.optimizers.legacy)",
)
SLOT_NAMES = member("get_slot_names", "checkpoints would mistake it for an OptimizerV2; `variables` have names")
WEIGHTS = member("get_weights", "set_weights takes the values of `variables`")


class NewStyleTarget(SinceV2Target):
    """The members that are the same from Keras 2.11 to Keras 3."""

    stock_members = slot_lists(("_momentums", "m"), ("_velocities", "v"), ("momentums", "velocity"))
    has_slots = "once it is built on the variable"
    is_fused = False

    @classmethod
    def base_class(cls, optimizer, module):
        return next(base for base in optimizer.__mro__ if base.__name__ == "Optimizer")

    def start(self, name=None, **native):
        native = check_bounds(native, BOUNDS)
        weight_decay = native.pop("weight_decay", None)
        self._check_settings(weight_decay, native)
        self.__dict__.update(
            backend=self._make_backend(),
            _own=OrderedDict(),  # counters and scalars by name
            _slots={},  # by variable's key, then slot name
            _trained=OrderedDict(),  # the variables that it was built on, by key
            _before_slots=0,  # the number of optimizer variables before `build`
            _waiting=None,  # state that was loaded before the slots existed
            _undecayed=(),  # the places of variables without weight decay, in the order of the first step, of a pickle
        )
        self._check_eager()
        self._start_native(self.native_name(name), native)
        if weight_decay is not None:
            self.weight_decay = weight_decay
        numbers = [name for name in self.hyper_declarations() if isinstance(self.given_hyper(name), float)]
        names = [name for name in numbers if name != "learning_rate"]  # the base class creates that one
        self._hypers = {name: self._make_hyper(attribute(name), self.given_hyper(name)) for name in names}
        for counter in counters(self.definition):
            if counter != "updates":
                self._own[counter] = self._make_variable(counter, (), "int64", 0)
        for scalar, (_, declaration) in flat(self.definition, "scalar").items():
            self._own[scalar] = self._make_variable(attribute(scalar), (), "float32", declaration.init)

    def _check_settings(self, weight_decay, native):
        definition = self.definition._short()
        if weight_decay:
            if "weight_decay" in self.hyper_declarations():
                raise DefinitionError(
                    "{} already has a weight_decay; use bind(module, weight_decay=...) only with a definition that has "
                    "none".format(definition)
                )
            if "learning_rate" not in self.hyper_declarations():
                raise DefinitionError(
                    "on this API weight_decay is multiplied by the learning rate, and {} has none".format(definition)
                )
        if weight_decay and self.definition.stages > 1:
            raise UnsupportedError(
                "weight_decay={} would decay at each of the gradients that {} takes; put "
                "everstep.decoupled_weight_decay inside of it".format(weight_decay, definition)
            )
        if weight_decay and any(node.definition.sparse == "catch_up" for node in walk(tree(self.definition))):
            raise UnsupportedError(
                '{} has sparse="catch_up", but weight_decay={} changes every row at every step; use '
                "everstep.decoupled_weight_decay(definition), which rows can catch up with later".format(
                    definition, weight_decay
                )
            )
        if skips(self.definition) and native.get("use_ema"):
            raise UnsupportedError(
                "use_ema averages at every call, even if {} skips its update; bind without use_ema".format(definition)
            )

    def _check_eager(self):
        """Raises UnsupportedError in graphs of TF 1: stock optimizers of this API silently train nothing there."""
        if not isinstance(self.backend, TensorFlowBackend):
            return
        if not self.backend.tf.executing_eagerly_outside_functions():
            raise self.refusal("graphs of TF 1")

    # Hypers.

    def hyper(self, name):
        value = self.read_hyper(name)
        if self._is_native_schedule(value):
            return value(self._schedule_step())
        return self.call_hyper(name, value) if is_function(value) else value

    def read_hyper(self, name):
        value = self.given_hyper(name)
        if not isinstance(value, float):
            return value
        return self._learning_rate if name == "learning_rate" else self._hypers[name]

    def set_hyper(self, name, value):
        if "_hypers" not in self.__dict__:
            return  # the base class sets its default for an attribute of that name
        if name == "learning_rate" and self._is_native_schedule(value):
            self.replace_by_schedule(name, value)
            self._take_schedule(value)
        else:
            checked = self.check_hyper(name, value)
            self.backend.write(self.unwrap(self.read_hyper(name)), self.backend.constant(checked, "float32"))

    def _take_schedule(self, schedule):
        """Makes a native schedule the base class's learning rate."""
        raise NotImplementedError

    def _given_rate(self):
        """Returns the learning rate in the form that the base class takes: a number or a native schedule."""
        if "learning_rate" not in self.hyper_declarations():
            return 1.0
        rate = self.given_hyper("learning_rate")
        if isinstance(rate, float) or self._is_native_schedule(rate):
            return rate
        self._check_schedule(rate)
        base = self._schedules().LearningRateSchedule
        return type(str("Given"), (base,), {"__call__": lambda _, step: self._rate_at(step), "get_config": dict})()

    def _rate_at(self, step):
        """Returns the present value of a learning rate that is not a number, for callers of the base class."""
        rate = self.given_hyper("learning_rate")
        if not isinstance(rate, Schedule):
            try:
                rate = self.call_hyper("learning_rate", rate) if is_function(rate) else rate
            except HyperTypeError:
                if "_hypers" in self.__dict__:
                    raise
                rate = 0.0  # while it is bound; the first step raises the error
            return self.backend.tensor(rate)
        return schedule_value(self, rate)

    # Counters and scalars.

    def counter(self, name):
        return self.unwrap(self._own[name])

    def scalar(self, name):
        return self.unwrap(self._own[name])

    # Variables and slots.

    def find_key(self, variable):
        return self._var_key(variable)

    def variable_name(self, variable):
        return getattr(variable, "path", None) or variable.name.split(":")[0]

    def build(self, variables):
        """Creates the slots of all variables to train. The first step calls it if nobody did before.

        Args:
            variables: all variables that this optimizer will train.

        Raises:
            SlotError: a state that was loaded before belongs to another optimizer or other variables. Each step raises
                the same error until another state is loaded.
        """
        if self._is_built():
            self._take_waiting()
            return
        self._check_eager()
        variables = as_list(variables, VariableError, "build takes a list of variables")
        for variable in variables:
            self.check_variable(variable)
        self.check_first(variables)
        self.__dict__["_before_slots"] = len(self._variables)
        super(NewStyleTarget, self).build(variables)
        for variable in variables:
            self._trained[self.variable_key(variable)] = variable
            slots = self._slots[self.variable_key(variable)] = OrderedDict()
            for name in self.slot_names(variable):
                initial, shape, dtype = self.slot_declaration(variable, name)
                slots[name] = self._make_variable(name, shape, dtype, initial, variable)
        if not self._is_built():  # Keras 3 has said so under another name
            self._built = True
        self._take_waiting()

    def start_value(self, initial, shape, dtype, variable):
        """Returns the first value of a slot or another variable of the optimizer."""
        if initial is not VARIABLE and not is_known(shape):
            return self.backend.filled(shape, initial, dtype, variable)
        if initial is not VARIABLE:
            return np.full(shape, initial, dtype if dtype != "bfloat16" else "float32")
        variable = self.unwrap(variable)
        return self.backend.copy(self.backend.cast(self.backend.read(variable), dtype), variable)

    def get_slot(self, variable, name):
        """Returns the variable that holds a slot.

        There is no `get_slot_names`: checkpoints mistake an object that has it for an OptimizerV2.

        Raises:
            SlotError: there is no such slot, or it does not exist yet.
        """
        return self.require_slot(variable, name)

    def set_weights(self, weights):
        """Sets the values of `optimizer.variables`, a list of arrays. If they do not fit, nothing changes.

        Raises:
            NotBuiltError: `build` was not called.
            SlotError: the number of weights or a shape differs. It is not a ValueError: some Keras loaders catch that,
                log a line and continue with a fresh optimizer.
        """
        if not self._is_built():
            raise NotBuiltError(
                "{} has no slots yet; call build(trainable_variables) before set_weights".format(type(self).__name__)
            )
        self._give(as_list(weights, SlotError, "set_weights takes a list of arrays"))

    def load_own_variables(self, store):
        """Loads the state from a file. If the slots do not exist yet, keeps the state until they do.

        Raises:
            SlotError: the state belongs to another optimizer or other variables. Nothing changes.
        """
        keys = [str(position) for position in range(len(store.keys()))]
        if set(keys) != set(store.keys()):
            raise SlotError(
                "{} is stored under the numbers 0, 1, ...; the state has {}. It was written by another optimizer, or "
                "for other variables".format(type(self).__name__, ", ".join(sorted(store.keys())))
            )
        values = [np.asarray(store[key]) for key in keys]
        if self._is_built():
            self._give(values)
        else:
            self.__dict__["_waiting"] = values

    _load_own_variables = load_own_variables  # its name in TF 2.11 and 2.12

    def _take_waiting(self):
        if self._waiting is not None:
            with self.backend.outside():  # assigns once, not at each call of a function that is being traced
                self._give(self._waiting)

    def _give(self, values):
        """Sets all variables, or raises SlotError and changes nothing."""
        variables, values = list(self._variables), [np.asarray(value) for value in values]
        shapes = [value.shape for value in values]
        expected = [tuple(variable.shape) for variable in variables]
        if shapes and shapes == expected[: self._before_slots] and not np.any(values[0]):
            variables = variables[: self._before_slots]  # the state was saved before `build`
        elif shapes != expected:
            raise SlotError(
                "{} has {} variables, {}; the state has {} of shapes {}. It was written by another optimizer, or for "
                "other variables".format(
                    type(self).__name__,
                    len(expected),
                    ", ".join("{} {}".format(v.name, shape) for v, shape in zip(variables, expected)),
                    len(shapes),
                    shapes,
                )
            )
        dtypes = [self.backend.dtype(self.unwrap(variable)) for variable in variables]
        for variable, value, dtype in zip(variables, values, dtypes):
            if value.dtype.kind not in ("iu" if "int" in dtype else "iufV"):  # V: bfloat16
                raise SlotError("{} is of dtype {}; the state has {!r} for it".format(variable.name, dtype, value))
        for variable, value, dtype in zip(variables, values, dtypes):
            variable.assign(self.backend.cast(self.backend.tensor(value), dtype))
        self.__dict__["_waiting"] = None

    # State.

    def make_state(self, variables):
        self.build(variables)
        return []

    def not_carried(self):
        if self.use_ema:
            return (
                "use_ema keeps averages, and a state cannot hold them; save them with the API's own files, or train "
                "with everstep.moving_average, as everstep.from_native(optimizer) has: its averages are slots"
            )
        return None

    # Copies.

    def trained(self):
        return list(self._trained.values())

    def exclusions(self, same_variables):
        keys = getattr(self, "_exclude_from_weight_decay", ())
        pattern = getattr(self, "_exclude_from_weight_decay_pattern", None)  # Keras 3
        names = list(getattr(self, "_exclude_from_weight_decay_names", None) or ([pattern.pattern] if pattern else ()))
        if not keys and not names and not self._undecayed:
            return None
        if same_variables:
            return {"names": names, "keys": keys, "places": self._undecayed}
        trained = self.trained()
        if keys and not trained:
            raise UnsupportedError(
                "{} excludes variables by var_list, and a pickle has no variables: exclude them by var_names, or "
                "pickle after the first step".format(type(self).__name__)
            )
        places = [place for place, each in enumerate(trained) if not self.decays(self.record(each))]
        return {"names": names, "keys": (), "places": tuple(places) if trained else self._undecayed}

    def exclude(self, exclusions):
        self.exclude_from_weight_decay(var_names=exclusions["names"])
        if exclusions["keys"]:
            self._exclude_from_weight_decay = copy.copy(exclusions["keys"])
        self.__dict__["_undecayed"] = exclusions["places"]

    def decays(self, record):
        """Returns False for a variable that the user excludes from weight decay."""
        return record.index not in self._undecayed and self._use_weight_decay(searched(record.native))

    def state_to_copy(self):
        """Returns (the values of all variables there are, those that wait for the first step or None)."""
        values = self.backend.values([self.unwrap(variable) for variable in self._variables], None)
        return values, values if self._waiting is None and self._is_built() else self._waiting

    def keep_state(self, state):
        values, self.__dict__["_waiting"] = state or ((), None)
        for variable, value in zip(self._variables, values):  # the counters and hypers, which come first
            variable.assign(self.backend.cast(self.backend.tensor(value), self.backend.dtype(self.unwrap(variable))))

    def take_carried(self, variables):
        if self._waiting is not None:
            self.build(variables)

    # The step.

    def check_step(self, pairs):
        """Returns the (gradient, variable) pairs of a step, checked before anything is created or changed."""
        self._check_eager()
        if self._repeats(pairs):
            self.check_repeat(self.lowerings.checked)
            return pairs
        for _, variable in pairs:
            self.check_variable(variable)
        pairs = self.check_grads(pairs)
        self.check_first([variable for _, variable in pairs])
        self.check_repeat([variable for _, variable in pairs])
        if self._is_built():
            unknown = [variable for _, variable in pairs if self.variable_key(variable) not in self._trained]
            if unknown:
                raise VariableError(
                    "{} was built on other variables than {}; call its build(...) once, with all variables that it "
                    "will train, or make one optimizer for each group".format(
                        type(self).__name__, ", ".join(self.variable_name(variable) for variable in unknown)
                    )
                )
            self._take_waiting()
            self.lowerings.checked = [variable for _, variable in pairs]
        return pairs

    def _repeats(self, pairs):
        """Returns whether the last step had these variables, and all gradients surely fit: nothing is to check."""
        checked, fits = self.lowerings.checked, self.backend.surely_fits
        if len(checked) != len(pairs) or self._waiting is not None or not checked:
            return False
        return all(v is old and fits(grad, self.unwrap(v)) for (grad, v), old in zip(pairs, checked))

    def constrain(self, variable, write):
        return write  # the base class applies constraints after the step

    def _specialized(self, record):
        rule = super(NewStyleTarget, self)._specialized(record)
        return rule if self.decays(record) else undecayed(rule)

    def native_decay(self, variable):
        if "weight_decay" in self.hyper_declarations() or not self.weight_decay:
            return None
        return self.weight_decay if self.decays(self.record(variable)) else None

    def _apply_weight_decay(self, variables):
        """Does nothing: the engine decays each variable right before its update, and only at updates."""

    # Config.

    def get_config(self):
        config = super(NewStyleTarget, self).get_config()
        config.pop("learning_rate", None)
        config.update(self.definition_config())
        return config

    def _present_number(self, value):
        return value.numpy() if hasattr(value, "numpy") else value

    @classmethod
    def split_config(cls, config):
        definition, native = super(NewStyleTarget, cls).split_config(config)
        native.pop("is_legacy_optimizer", None)  # 2.11 to 2.15 write it for their own loaders
        return definition, native
