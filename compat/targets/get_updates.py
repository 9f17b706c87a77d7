"""Target `get_updates`: standalone Keras 2.0.8 to 2.3.1 on TensorFlow, and `tf.keras` of TF 1.4 to 1.13.

The API: `get_updates(loss, params)` returns the operations of one step. Keras runs them in its train function.

Names of variables. NAME is the name given to `bind`, by default the class name of the innermost definition. `W` is a
parameter.

| what | name |
|---|---|
| slots | `NAME/W/<slot>` |
| counters | `NAME/iterations` counts updates; `NAME/steps` and `NAME/pending` exist only if steps can skip updates |
| scalars | `NAME/<scalar>` |
| hypers | `NAME/<hyper>` |

A second optimizer of the same name in a graph gets `NAME_1`, or `_1` at the end of each name. `get_weights` and Keras
files store everything except hypers, by position: iterations, the other counters, scalars, then the slots of each
parameter in turn. As in stock Keras, the list is empty until a train function is built. It covers the parameters of the
train function that was built last. Slots of other parameters are kept, and used again when these return.

Each `get_updates` call creates its own step, which shares the optimizer's slots and counters: two functions, called in
turn, take two steps. Never put the updates of two calls into one function: their order would be undefined. A definition
that counts calls (accumulation) needs all its variables in one call. It can be built again for the same variables, a
subset or a superset, since Keras builds again when a model is compiled again.

A hyper that is a callable is called when a train function is built.
"""
from __future__ import absolute_import, division, print_function

import sys
from collections import OrderedDict

import numpy as np

from everstep.compat.backends.on_tensorflow import TensorFlowBackend
from everstep.compat.engine.pairs import as_list
from everstep.compat.engine.step import counters, skips
from everstep.compat.targets.base import Target
from everstep.compat.targets.construction import COMPLEX, DECAY, PARTITIONED, in_parts, keyword, member
from everstep.compat.targets.hypers import attribute
from everstep.compat.targets.native_clipping import check_bounds, clip
from everstep.compat.targets.stepping import check_connected
from everstep.compat.targets.stock_members import constant, number
from everstep.errors import ConfigError, StateError, TargetError, UnsupportedError, VariableError
from everstep.optimizers.contract import VARIABLE, Schedule, flat, is_tensor


class GetUpdatesTarget(Target):
    target = "get_updates"
    works_on = "keras 2.0.8 to 2.3.1 on TensorFlow, tf.keras of TF 1.4 to 1.13"
    unsupported = (
        member("minimize", "train with fit, or run get_updates(loss, params) in keras.backend.function"),
        member("apply_gradients", "get_updates(loss, params) returns the operations of a step"),
        PARTITIONED, COMPLEX, DECAY,
        keyword("global_clipnorm", "bind everstep.clip(definition, global_norm=...)"),
    )
    stock_members = {"decay": constant("decay", 0.0), "initial_decay": number(0.0)}
    takes_gradients = True
    has_slots = "once a train function was built"
    is_fused = False

    @classmethod
    def base_class(cls, optimizer, module):
        base = next(base for base in reversed(optimizer.__mro__) if "get_updates" in vars(base))
        backend = sys.modules[base.__module__].K.backend()
        if backend != "tensorflow":
            raise TargetError(
                "{} runs on {}; everstep supports Keras 2 only on TensorFlow. Set its backend to tensorflow "
                "(KERAS_BACKEND or keras.json) before it is imported".format(module.__name__, backend)
            )
        return base

    def start(self, name=None, **native):
        import tensorflow

        self.backend = TensorFlowBackend(tensorflow)
        self.name = self.native_name(name)
        # clipnorm bounds the norm of all gradients together, except in the last tf.keras before OptimizerV2, which
        # bounds each gradient. Only that version lacks the helper `clip_norm`.
        self._one_norm = hasattr(sys.modules[self.native_base.__module__], "clip_norm")
        self.native_super().__init__(**check_bounds(native))
        self._hypers, self._counters, self._slots = {}, OrderedDict(), {}
        for counter in counters(self.definition):
            self._counters[counter] = self._variable("iterations" if counter == "updates" else counter, 0, "int64")
        for scalar, (_, declaration) in flat(self.definition, "scalar").items():
            self._counters[scalar] = self._variable(scalar, declaration.init, "float32")
        for hyper in self.hyper_declarations():
            value = self.given_hyper(hyper)
            if isinstance(value, float):
                value = self._variable(attribute(hyper), value, "float32")
            self._hypers[hyper] = value

    @property
    def _keras(self):
        """Keras's backend module."""
        return sys.modules[self.native_base.__module__].K

    def _variable(self, name, value, dtype):
        # An absolute name: files must not depend on the name scope in which a model is compiled.
        with self.backend.tf.name_scope(None):
            return self._keras.variable(value, dtype=dtype, name="{}/{}".format(self.name, name))

    # Hypers.

    def hyper(self, name):
        return self.lazy_hyper(name, self._hypers[name])

    def read_hyper(self, name):
        return self._hypers[name]

    def set_hyper(self, name, value):
        self._keras.set_value(self._hypers[name], self.check_hyper(name, value))

    # Counters and scalars.

    def counter(self, name):
        return self._counters[name]

    def scalar(self, name):
        return self._counters[name]

    @property
    def iterations(self):
        """The variable that counts updates."""
        return self._counters["updates"]

    # Variables and slots.

    def _create_slots(self, params):
        """Creates missing slots. Keeps existing ones: Keras builds a new train function when a model is recompiled."""
        for variable in params:
            slots = self._slots.setdefault(self.variable_key(variable), {})
            for name in self.slot_names(variable):
                if name not in slots:
                    slots[name] = self._make_slot(variable, name)
        slots_in_use = [self.slot(variable, name) for variable in params for name in self.slot_names(variable)]
        self.weights = list(self._counters.values()) + slots_in_use

    def _make_slot(self, variable, name):
        initial, shape, dtype = self.slot_declaration(variable, name)
        with self.backend.outside():
            if initial is VARIABLE:
                value = self.backend.start_value(variable, dtype)
            else:
                value = self.backend.filled(shape, initial, dtype, variable)
            return self._variable("{}/{}".format(self.variable_name(variable), name), value, dtype)

    def get_slot(self, var, name):
        """Returns the variable that holds a slot.

        Raises:
            SlotError: there is no such slot, or it does not exist yet.
        """
        return self.require_slot(var, name)

    def get_slot_names(self):
        return list(flat(self.definition, "slot"))

    def set_weights(self, weights):
        """Sets the values that `get_weights` returns. If they do not fit, nothing changes.

        Raises:
            StateError: the number of weights or a shape differs. The message names the first weight that does not fit.
        """
        weights = as_list(weights, StateError, "set_weights takes a list of arrays")
        if len(weights) != len(self.weights):
            raise StateError(
                "{} has {} weights ({}); got {}{}".format(
                    type(self).__name__,
                    len(self.weights),
                    ", ".join(variable.name.split(":")[0] for variable in self.weights) or "none",
                    len(weights),
                    "" if self.weights else ". There are none before a train function is built: train a step first",
                )
            )
        for variable, value in zip(self.weights, weights):
            shape, expected = np.shape(value), tuple(self.backend.shape(variable))
            if shape != expected:
                raise StateError("{} needs shape {}; got {}".format(variable.name.split(":")[0], expected, shape))
        super(GetUpdatesTarget, self).set_weights([np.asarray(value) for value in weights])

    # State.

    def check_variable(self, variable):
        if in_parts(variable):
            raise self.refusal("partitioned variables", got=variable)
        if not hasattr(variable, "assign_sub") or not hasattr(variable, "read_value"):
            raise VariableError(
                "{} trains Keras and TensorFlow variables; got {!r}".format(type(self).__name__, variable)
            )

    def make_state(self, variables):
        self._create_slots(variables)
        return []

    def default_session(self, variables):
        return self._keras.get_session()

    # The step.

    def update(self, variable, function, grad):
        with self.backend.at(variable):
            return list(function(variable, grad))

    def get_gradients(self, loss, params):
        """Returns the gradients, clipped. Sparse gradients stay sparse."""
        return self._in_graph(self._get_gradients)(loss, params)

    def _in_graph(self, function):
        """Returns a function that enters the Keras graph: under TF 2, of Keras 2.3 and newer."""
        return getattr(self._keras, "symbolic", lambda plain: plain)(function)

    def _get_gradients(self, loss, params):
        grads = check_connected(self._gradients_of(self.scale_loss(loss), params), params)
        grads = [grad for grad, _ in self.check_grads(list(zip(grads, params)))] if params else []
        bounds = getattr(self, "clipnorm", None), getattr(self, "clipvalue", None)
        return clip(self.backend, grads, *bounds, one_norm=self._one_norm)

    def _gradients_of(self, loss, params):
        if self._gradients is not None:
            return [grad for grad, _ in self.by_hand(loss, params)]
        return self._keras.gradients(loss, params)

    def get_updates(self, loss, params):
        """Returns the operations of one step. Their order is fixed: see `compat/engine/step.py`."""
        with self.forgetting_failures():
            self._check_arguments(loss, params)
            self.check_first(params)
            self.check_repeat(params)
            return self._in_graph(self._get_updates)(loss, params)

    def _get_updates(self, loss, params):
        self.updates = self.failing_updates(params)
        if self.updates:
            return self.updates
        grads = self.get_gradients(loss, params)
        self.take_carried(params)
        self._create_slots(params)
        # As with stock optimizers, a model may have nothing to train.
        self.updates = self.take_step(list(zip(grads, params)), before=[loss]) if params else []
        return self.updates

    def _check_arguments(self, loss, params):
        owner = type(self).__name__
        if not isinstance(params, (list, tuple)) or not is_tensor(loss):
            raise VariableError(
                "{}.get_updates takes loss, a tensor, and params, a list of variables; got {!r} and {!r}".format(
                    owner, loss, params
                )
            )
        for variable in params:
            self.check_variable(variable)
        if len(set(map(self.variable_key, params))) < len(params):
            raise VariableError("{}.get_updates got a variable twice: {!r}".format(owner, params))
        graph = getattr(self.iterations, "graph", None)  # eager variables have none
        if graph is not None and getattr(loss, "graph", graph) is not graph:
            raise VariableError(
                "this {} belongs to another graph than the model (keras.backend.clear_session starts a new one); "
                "bind the definition again".format(owner)
            )

    def check_repeat(self, variables):
        """As in the base class, but allows building again for the same variables, a subset or a superset."""
        if not skips(self.definition):
            return
        keys = frozenset(map(self.variable_key, variables))
        built_keys = self._calls.get(None, keys)
        if not (keys <= built_keys or built_keys <= keys):
            raise UnsupportedError(
                "{} counts its calls, so it takes all variables in one call, and one model; bind one definition for "
                "each group of variables".format(self.definition._short())
            )
        self._calls[None] = keys | built_keys

    # Config.

    def get_config(self):
        config = super(GetUpdatesTarget, self).get_config()
        config.update(self.definition_config())
        config["name"] = self.name
        return config

    def write_hyper(self, name, value):
        if isinstance(value, Schedule):
            return value
        value = value() if callable(value) else value
        try:
            return self.as_given(name, float(self._keras.get_value(value) if is_tensor(value) else value))
        except Exception as error:  # a placeholder or a tensor of another graph; the error's type varies
            owner = type(self).__name__
            raise ConfigError("{}.{} has no value that a config could hold: {}".format(owner, name, error))

    @classmethod
    def from_config(cls, config, custom_objects=None):
        stock = cls.stock_for(config)
        return cls.of_config(config) if stock is None else stock.from_config(config)
