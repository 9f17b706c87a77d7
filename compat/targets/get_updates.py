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
files store everything except hypers, by position: iterations, the other counters, scalars, then the slots, as stock
does: the first slot of all parameters, then the next slot. (The slots of one parameter, then those of the next one,
where parameters have different slots.) As in stock Keras, the list is empty until a train function is built. It covers
the parameters of the train function that was built last. Slots of other parameters are kept, and used again when these
return.

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
from everstep.compat.engine.flush import Flush
from everstep.compat.engine.pairs import as_list
from everstep.compat.engine.step import counters, skips
from everstep.compat.targets import hypers
from everstep.compat.targets.adapter import InOneProcess
from everstep.compat.targets.checking import check_connected, check_grads, failing_updates, forgetting_failures
from everstep.compat.targets.construction import (
    COMPLEX,
    DECAY,
    PARTITIONED,
    config_of,
    from_config,
    in_parts,
    keyword,
    member,
    prefix,
)
from everstep.compat.targets.copying import ByRole
from everstep.compat.targets.global_step import check_global_step
from everstep.compat.targets.hypers import attribute, is_function
from everstep.compat.targets.loading import in_stock_order, weights_fit
from everstep.compat.targets.losses import by_hand, scaled
from everstep.compat.targets.native import NativeOptimizer
from everstep.compat.targets.native_clipping import check_bounds, clip
from everstep.compat.targets.stock_members import constant, number
from everstep.errors import StateError, TargetError, UnsupportedError, VariableError
from everstep.optimizers.contract import VARIABLE, Schedule, flat, is_tensor, scalar_starts
from everstep.optimizers.wrappers.clip import Clip


class GetUpdatesOptimizer(NativeOptimizer):
    @property
    def iterations(self):
        """The variable that counts updates."""
        return self._bound.adapter.counter("updates")

    @iterations.setter
    def iterations(self, variable):
        self._bound.adapter.set_iterations(variable)

    def get_slot_names(self):
        return list(flat(self.definition, "slot"))

    def set_weights(self, weights):
        """Sets the values that `get_weights` returns. If they do not fit, nothing changes.

        Raises:
            StateError: the number of weights or a shape differs. Keras's loader goes on instead, with a `StateWarning`.
        """
        self._bound.adapter.set_weights(weights)

    def get_gradients(self, loss, params):
        """Returns the gradients, clipped. Sparse gradients stay sparse."""
        return self._bound.adapter.get_gradients(loss, params)

    def get_updates(self, loss, params, last=None):
        """Returns the operations of one step. Their order is fixed: see `compat/engine/step.py`.

        As stock, it also takes those of Keras before 2.0.7: parameters, constraints, which it ignores, and loss.
        """
        if last is not None:
            loss, params = last, loss  # programs of actors and critics: get_updates(weights, [], loss)
        return self._bound.adapter.get_updates(loss, params)

    def get_config(self):
        return self._bound.adapter.get_config()

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return from_config(cls, config)


class GetUpdatesAdapter(InOneProcess):
    target = "get_updates"
    works_on = "keras 2.0.8 to 2.3.1 on TensorFlow, tf.keras of TF 1.4 to 1.13"
    native_class = GetUpdatesOptimizer
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
    carries = ByRole

    # Construction and config.

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

    @classmethod
    def entries(cls, base):
        return ()

    @classmethod
    def schedules(cls, base):
        return None

    @classmethod
    def native_keywords(cls, config):
        return config

    def start(self, name=None, **native):
        import tensorflow

        self.use(TensorFlowBackend(tensorflow))
        module, definition = sys.modules[type(self.native).native_base.__module__], self.bound.definition
        self.keras = module.K  # Keras's backend module
        self.name = self.native.name = prefix(name, definition.base)
        # clipnorm bounds the norm of all gradients together, except in the last tf.keras before OptimizerV2, which
        # bounds each gradient. Only that version lacks the helper `clip_norm`.
        self.one_norm = hasattr(module, "clip_norm")
        self.base.__init__(**check_bounds(native))
        self._is_building = False  # while `get_updates` builds a step
        self._hypers, self._own, self._slots = {}, OrderedDict(), {}  # _own: counters and scalars
        for counter in counters(definition):
            self._own[counter] = self._variable("iterations" if counter == "updates" else counter, 0, "int64")
        for scalar, start in scalar_starts(definition).items():
            self._own[scalar] = self._variable(scalar, start, "float32")
        for hyper in self.bound.hyper_declarations():
            value = self.bound.given(hyper)
            if isinstance(value, float):
                value = self._variable(attribute(hyper), value, "float32")
            self._hypers[hyper] = value

    def _variable(self, name, value, dtype):
        # An absolute name: files must not depend on the name scope in which a model is compiled.
        with self.backend.tf.name_scope(None):
            return self.keras.variable(value, dtype=dtype, name="{}/{}".format(self.name, name))

    def get_config(self):
        config = self.base.get_config()
        config.update(config_of(self.bound))
        config["name"] = self.name
        return config

    # Hypers.

    def present(self, name):
        return hypers.lazily(self.bound, name, self._hypers[name])

    def read(self, name):
        return self._hypers[name]

    def set(self, name, value):
        self.keras.set_value(self._hypers[name], hypers.check(self.bound, name, value))

    def number(self, name, value):
        value = value() if is_function(value) else value
        return self.keras.get_value(value) if is_tensor(value) else value

    # Counters and scalars.

    def counter(self, name):
        return self._own[name]

    def scalar(self, name):
        return self._own[name]

    def own_variables(self):
        return OrderedDict(self._own)

    def counted_elsewhere(self):
        return None

    def calls_per_update(self):
        return 1

    def set_iterations(self, variable):
        """Counts updates in the user's variable; as in stock, train functions that were built before do not."""
        check_global_step(self.bound, variable)
        self._own["updates"] = variable

    # Variables and slots.

    def find_key(self, variable):
        return id(self.backend.distributed(variable))

    def variable_name(self, variable):
        return variable.name.split(":")[0]

    def state_name(self, variable, index):
        return self.variable_name(variable)

    def find_slot(self, variable, name):
        return self._slots.get(self.bound.variable_key(variable), {}).get(name)

    def get_slot(self, variable, name):
        return self.bound.require_slot(variable, name)

    def set_weights(self, weights):
        weights, own = as_list(weights, StateError, "set_weights takes a list of arrays"), self.native.weights
        unused = weights[len(own) :]  # of stock: one zero for each slot that its form does not have
        if own and all(np.shape(value) == (1,) and not np.any(value) for value in unused):
            weights = weights[: len(own)]
        named = [(variable.name.split(":")[0], self.backend.shape(variable)) for variable in own]
        none_yet = "There are none before a train function is built: train a step first"
        weights = in_stock_order(self.bound, named, weights)
        if weights_fit(self.bound, named, weights, StateError, none_yet):
            self.base.set_weights([np.asarray(value) for value in weights])

    # State.

    def check_variable(self, variable):
        if in_parts(variable):
            raise hypers.refusal(self.bound, "partitioned variables", got=variable)
        if not hasattr(variable, "assign_sub") or not hasattr(variable, "read_value"):
            raise VariableError(
                "{} trains Keras and TensorFlow variables; got {!r}".format(self.bound.owner, variable)
            )

    def make_state(self, variables):
        """Creates missing slots. Keeps existing ones: Keras builds a new train function when a model is recompiled."""
        bound = self.bound
        for variable in variables:
            slots = self._slots.setdefault(bound.variable_key(variable), {})
            for name in bound.slot_names(variable):
                if name not in slots:
                    slots[name] = self._make_slot(variable, name)
        weights = list(self._own.values()) + [bound.slot(*each) for each in bound.stored_slots(variables)]
        self.base.__setattr__("weights", weights)  # an option may have this name
        return []

    def _make_slot(self, variable, name):
        initial, shape, dtype = self.bound.slot_declaration(variable, name)
        with self.backend.outside():
            if initial is VARIABLE:
                value = self.backend.start_value(variable, dtype)
            else:
                value = self.backend.filled(shape, initial, dtype, variable)
            return self._variable("{}/{}".format(self.variable_name(variable), name), value, dtype)

    def default_session(self, variables):
        return self.keras.get_session()

    def not_carried(self):
        return None

    # Copies.

    def trained(self):
        return self.bound.first_seen()

    def copied_variable(self, variable, memo):
        return variable

    def exclusions(self, same_variables):
        return None

    # The step.

    def scale_loss(self, loss):
        return scaled(self.bound, loss)

    def update(self, variable, function, grad):
        with self.backend.at(variable):
            return list(function(variable, grad))

    def constrain(self, variable, write):
        return self.backend.constrain(variable, write)

    def native_decay(self, variable):
        return None

    def take_flush(self, variables):
        return Flush(self.bound, variables).run()

    def get_gradients(self, loss, params):
        return self._in_graph(self._get_gradients)(loss, params)

    def _in_graph(self, function):
        """Returns a function that enters the Keras graph: under TF 2, of Keras 2.3 and newer."""
        return getattr(self.keras, "symbolic", lambda plain: plain)(function)

    def _get_gradients(self, loss, params):
        grads = check_connected(self._gradients_of(self.scale_loss(loss), params), params)
        grads = [grad for grad, _ in check_grads(self.bound, list(zip(grads, params)))] if params else []
        bounds = vars(self.native).get("clipnorm"), vars(self.native).get("clipvalue")
        grads, rule = clip(self.backend, grads, *bounds, one_norm=self.one_norm), self.bound.definition
        if self._is_building or not isinstance(rule, Clip):
            return grads
        # As of a stock optimizer with bounds, which `from_native` makes a `clip`. In `get_updates` the engine clips, by
        # schedules too, which no stock optimizer has.
        one_norm = rule.norm is None
        own = [None if isinstance(bound, Schedule) else bound
               for bound in (rule.global_norm if one_norm else rule.norm, rule.value)]
        return clip(self.backend, grads, *own, one_norm=one_norm)

    def _gradients_of(self, loss, params):
        if self.bound.gradients is not None:
            return [grad for grad, _ in by_hand(self.bound, loss, params)]
        return self.keras.gradients(loss, params)

    def get_updates(self, loss, params):
        with forgetting_failures(self.bound):
            self._check_arguments(loss, params)
            self.bound.check_first(params)
            self._check_built_again(params)
            return self._in_graph(self._get_updates)(loss, params)

    def _get_updates(self, loss, params):
        native = self.native
        native.updates = failing_updates(self.bound, params)
        if native.updates:
            return native.updates
        self._is_building = True
        try:
            grads = native.get_gradients(loss, params)
        finally:
            self._is_building = False
        self.carries.give(self.bound, params)
        self.make_state(params)
        # As with stock optimizers, a model may have nothing to train.
        native.updates = self.bound.take_step(list(zip(grads, params)), before=[loss]) if params else []
        return native.updates

    def _check_arguments(self, loss, params):
        owner = self.bound.owner
        if not isinstance(params, (list, tuple)) or not is_tensor(loss):
            raise VariableError(
                "{}.get_updates takes loss, a tensor, and params, a list of variables; got {!r} and {!r}".format(
                    owner, loss, params
                )
            )
        for variable in params:
            self.check_variable(variable)
        if len(set(map(self.bound.variable_key, params))) < len(params):
            raise VariableError("{}.get_updates got a variable twice: {!r}".format(owner, params))
        graph = getattr(self.counter("updates"), "graph", None)  # eager variables have none
        if graph is not None and getattr(loss, "graph", graph) is not graph:
            raise VariableError(
                "this {} belongs to another graph than the model (keras.backend.clear_session starts a new one); "
                "bind the definition again".format(owner)
            )

    def _check_built_again(self, variables):
        """Raises UnsupportedError if a definition that counts its calls would miss variables.

        Building again is allowed for the same variables, a subset or a superset.
        """
        if not skips(self.bound.definition):
            return
        keys = frozenset(map(self.bound.variable_key, variables))
        built_keys = self.bound.calls.get(None, keys)
        if not (keys <= built_keys or built_keys <= keys):
            raise UnsupportedError(
                "{} counts its calls, so it takes all variables in one call, and one model; bind one definition for "
                "each group of variables".format(self.bound.definition._short())
            )
        self.bound.calls[None] = keys | built_keys


GetUpdatesTarget = GetUpdatesAdapter  # its name in older pickles
