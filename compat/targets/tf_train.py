"""Target `tf_train`: `tf.train.Optimizer` of TF 1.4 to 1.15 and `tf.compat.v1.train.Optimizer` up to 2.21.

The API: `minimize` calls `compute_gradients`, then `apply_gradients`. In a graph they build operations; in eager code
they run. The first `apply_gradients` creates the slots. Hypers that are numbers become constants of the graph.

Names of variables. NAME is the name given to `bind`, by default the class name of the innermost definition.

| what | name |
|---|---|
| counters | `NAME/updates`; `NAME/steps` and `NAME/pending` exist only if steps can skip updates |
| scalars | `NAME/<scalar>` |
| slots of `W` | `W/NAME/<slot>` |

As with stock optimizers:
- A rule that stores nothing and does not read its count of updates, such as plain SGD, has no variable at all.
- The variable scope of the first `apply_gradients` prefixes all names: `train/W/NAME/<slot>`, `train/NAME/updates`. A
  name scope prefixes only counters and scalars.
- A second optimizer of the same NAME in a graph gets `W/NAME/<slot>_1` and `NAME/updates_1`.
- The slots of a partitioned variable's parts are saved as slices of one whole slot, `W/NAME/<slot>`. A slot that is not
  split as its variable is split is saved for each part: `W/part_0/NAME/<slot>`.
- Checkpoints of objects (`tf.train.Checkpoint`) find slots by `<slot>`, counters and scalars by `NAME/updates`.

Two calls of `minimize` or `apply_gradients` in one graph are two updates that share one counter. So t is 2 for the
second, whichever variables it updates. Never run the two unordered in one `session.run`. For several groups of
variables in one step, bind one definition for each group. Definitions that count calls (`accumulate`) refuse a second
call.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.compat.backends.on_tensorflow import TensorFlowBackend
from everstep.compat.engine.fast_forward import catches_up
from everstep.compat.engine.fitting import is_known
from everstep.compat.engine.flush import Flush
from everstep.compat.engine.pairs import as_pairs, with_gradients
from everstep.compat.engine.step import counters, skips
from everstep.compat.targets import hypers
from everstep.compat.targets.adapter import Adapter
from everstep.compat.targets.bound import Place
from everstep.compat.targets.checking import (
    check_grads,
    check_graph_of_hypers,
    check_operation_name,
    check_repeat,
    forgetting_failures,
)
from everstep.compat.targets.construction import COMPLEX, Unsupported, keyword, member, prefix
from everstep.compat.targets.copying import ByRole
from everstep.compat.targets.dry_run import reads_updates
from everstep.compat.targets.global_step import check_global_step, count_step
from everstep.compat.targets.hooks import why_other_slots_stay
from everstep.compat.targets.losses import by_hand, run_stages, scaled
from everstep.compat.targets.partitioned import is_partitioned, part_of, place_slice
from everstep.compat.targets.stock_members import private_hypers
from everstep.compat.targets.tf_train_class import TrainOptimizer
from everstep.compat.targets.tf_train_hooks import hooks_of
from everstep.errors import HyperValueError, StateError, TrainSlotError, UnsupportedError, VariableError
from everstep.optimizers.contract import VARIABLE, Schedule, defines, flat, scalar_starts

# {rule: stock's name of the operation}, for rules that store nothing: no file has the name of such an optimizer.
_WITHOUT_STATE = {"SGD": "GradientDescent"}


class TrainAdapter(Adapter):
    target = "tf_train"
    works_on = "tf.train of TF 1.4 to 1.15, tf.compat.v1.train of TF 1.13 to 2.21"
    native_class = TrainOptimizer
    unsupported = (
        member("get_config", "optimizer.definition.get_config() returns the definition's config"),
        member("get_weights", "everstep.capture(optimizer, variables) takes its state"),
        keyword("clipnorm", "bind everstep.clip(definition, norm=...)"),
        COMPLEX,
        Unsupported(
            "changing rates after bind", HyperValueError,
            "{optimizer}.{name} is a constant of the graph, as in every tf.train optimizer, so that a restored "
            "checkpoint never brings back an old value. Give {name} as a tensor, placeholder or everstep.Schedule to "
            "vary it",
        ),
        Unsupported(
            "tf.distribute over several replicas", UnsupportedError,
            "{optimizer} on tf.train does not sum gradients over replicas; bind the definition to tf.keras, whose "
            "optimizers work under tf.distribute",
        ),
    )
    stock_members = private_hypers()
    takes_gradients = True
    sets_hypers = False
    knows_no_slot = True
    has_slots = "once minimize or apply_gradients has run"
    carries = ByRole

    # Construction and config.

    @classmethod
    def base_class(cls, optimizer, module):
        return next(base for base in reversed(optimizer.__mro__) if "_apply_dense" in vars(base))

    @classmethod
    def entries(cls, base):
        return ()

    @classmethod
    def schedules(cls, base):
        return None

    @classmethod
    def native_keywords(cls, config):
        return config

    def start(self, use_locking=False, name=None, **native):
        import tensorflow

        self.use(TensorFlowBackend(tensorflow, use_locking))
        # Counters and scalars by (name, graph). Only for TF 1.4 and 1.5, whose base class keeps no variables but slots.
        self._counts = {}
        self.keeps_count = self._needs_count()
        # A counter that does not exist is not incremented.
        self.moved_natively = () if self.keeps_count else ("updates",)
        base = self.bound.definition.base
        self.name = prefix(name if self.keeps_count else name or _WITHOUT_STATE.get(type(base).__name__), base)
        self.base.__init__(use_locking, self.name, **native)

    # Hypers.

    def present(self, name):
        return hypers.lazily(self.bound, name, self.bound.given(name))

    def read(self, name):
        return self.bound.given(name)

    def set(self, name, value):
        raise hypers.refusal(self.bound, "changing rates after bind", name=name)

    def number(self, name, value):
        return value

    # Counters and scalars.

    def counter(self, name):
        return self.unwrap(self._variable_called(name))

    def scalar(self, name):
        return self.unwrap(self._variable_called(name))

    def own_variables(self):
        names = list(counters(self.bound.definition)) + list(flat(self.bound.definition, "scalar"))
        variables = [(name, self.counter(name)) for name in names]
        return {name: variable for name, variable in variables if variable is not None}

    def counted_elsewhere(self):
        return None if self.keeps_count or self.backend.eager else self.backend.tf.train.get_global_step()

    def calls_per_update(self):
        return 1

    def _variable_called(self, name):
        with self.backend.outside():
            graph = None if self.backend.eager else self.backend.tf.get_default_graph()
        if hasattr(self.base, "_get_non_slot_variable"):
            return self.native._get_non_slot_variable("{}/{}".format(self.name, name), graph=graph)
        return self._counts.get((name, graph))

    def _needs_count(self):
        """Returns whether something reads the count of updates, or is stored beside it."""
        definition = self.bound.definition
        stored = flat(definition, "slot") or flat(definition, "scalar") or skips(definition)
        if stored or catches_up(self.backend.moves_rows, definition):
            return True
        scheduled = any(isinstance(self.bound.given(name), Schedule) for name in self.bound.hyper_declarations())
        return scheduled or reads_updates(definition)

    def _make_variable(self, name, initial_value, beside):
        full_name = "{}/{}".format(self.name, name)
        if hasattr(self.base, "_create_non_slot_variable"):
            return self._owned(name, self.native._create_non_slot_variable(initial_value, full_name, beside))
        graph = beside.graph  # for TF 1.4 and 1.5; drop it when 1.6 is the minimum
        if (name, graph) not in self._counts:
            with self.backend.tf.colocate_with(beside):
                self._counts[name, graph] = _new_variable(self.backend.tf, initial_value, full_name)
        return self._owned(name, self._counts[name, graph])

    def _owned(self, name, variable):
        """Marks a counter or scalar for `everstep.warm_start`, which may come when the optimizer is gone."""
        variable.everstep_owner = name, self.bound.definition
        return variable

    # Variables and slots.

    def find_key(self, variable):
        return id(self.backend.distributed(variable))

    def variable_name(self, variable):
        part = part_of(variable)
        return part.full_name if part else variable.name.split(":")[0]

    def state_name(self, variable, index):
        return self.variable_name(variable)

    def unwrap(self, variable):
        return self.backend.component(variable)

    def collections(self, variable):
        if self.backend.eager:
            return ()
        graph = self.backend.tf.get_default_graph()
        keys = [key for key in graph.get_all_collection_keys() if isinstance(key, str)]
        return tuple(key for key in keys if any(member is variable for member in graph.get_collection_ref(key)))

    def parts(self, variable):
        return list(variable) if is_partitioned(variable) else [variable]

    def place(self, variable):
        part = part_of(variable)
        if part is None:
            return None
        slices = tuple(slice(start, start + size) for start, size in zip(part.var_offset, part.var_shape))
        return Place(slices, tuple(part.full_shape), (part.full_name, variable.graph))

    def decays(self, record):
        return True

    def find_slot(self, variable, name):
        return self.base.get_slot(variable, name)

    def other_slots(self, variable):
        names = self.bound.slot_names(variable)
        others = [name for name in self.native.get_slot_names() if name not in names]
        return [name for name in others if self.find_slot(variable, name) is not None]

    def get_slot(self, variable, name):
        # Saving an object checkpoint asks for each slot of every object. Up to TF 1.12 it expects only this error.
        return self.bound.require_slot(variable, name, TrainSlotError)

    def create_slots(self, var_list):
        if self.bound.has_slots_for(var_list):
            return
        for variable in var_list:
            for name in self.bound.slot_names(variable):
                self._make_slot(variable, name)
        self._make_own(var_list)
        self.bound.made = tuple(var_list)

    def _make_own(self, var_list):
        beside = min(var_list, key=lambda variable: variable.name)
        for name in counters(self.bound.definition) if self.keeps_count else ():
            self._make_variable(name, np.array(0, np.int64), beside)
        for name, start in scalar_starts(self.bound.definition).items():
            self._make_variable(name, np.array(start, np.float32), beside)

    def _make_slot(self, variable, name):
        tf, native = self.backend.tf, self.native
        initial, shape, dtype = self.bound.slot_declaration(variable, name)
        op_name = "{}/{}".format(self.name, name)
        if initial is VARIABLE:
            slot = native._get_or_make_slot(variable, self.backend.start_value(variable, dtype), name, op_name)
        elif not is_known(shape):
            start = self.backend.filled(shape, initial, dtype, variable)
            slot = native._get_or_make_slot(variable, start, name, op_name)
        else:
            plain = isinstance(initial, (int, float))
            start = tf.constant_initializer(initial if plain else np.full(shape, initial, dtype))
            slot = native._get_or_make_slot_with_initializer(
                variable, start, tf.TensorShape(shape), tf.as_dtype(dtype), name, op_name
            )
        if part_of(variable):
            whole = self.bound.record(variable)._replace(shape=tuple(part_of(variable).full_shape))
            place_slice(variable, slot, op_name, shape, self.bound.slot_declaration(variable, name, whole)[1])

    def create_or_restore(self, position, slot_name, variable):
        """Makes a slot that an object checkpoint restores. The base class would give it its variable's shape."""
        if self.backend.eager and slot_name in self.bound.slot_names(variable):
            self._make_slot(variable, slot_name)
        self.base._create_or_restore_slot_variable(position, slot_name, variable)

    # State.

    def check_variable(self, variable):
        if is_partitioned(variable):
            raise VariableError("{} is a partitioned variable; give its parts, list(variable)".format(variable.name))
        self._check_not_ref_in_function(variable)
        if not hasattr(variable, "assign_sub") or isinstance(variable, self.backend.tf.Tensor):
            raise VariableError("{} trains TensorFlow variables; got {!r}".format(self.bound.owner, variable))

    def make_state(self, variables):
        if self.backend.eager:
            self.native._create_slots(variables)
        elif self.keeps_count and not self.own_variables():
            raise StateError("{} has no slots in this graph yet; call minimize or apply_gradients before "
                             "everstep.restore".format(self.bound.owner))
        return []

    def default_session(self, variables):
        return None

    def not_carried(self):
        return why_other_slots_stay(self)

    # Copies.

    def trained(self):
        return self.bound.first_seen()

    def copied_variable(self, variable, memo):
        return variable

    def exclusions(self, same_variables):
        return None

    # The step.

    def scale_loss(self, loss):
        if defines(self.bound.definition, "loss_scale") and not self.own_variables():
            with self.backend.outside():
                self._make_own(self._variables_to_train())
        return scaled(self.bound, loss)

    def _variables_to_train(self):
        """Returns what the first step will train, as far as that is known before it."""
        if self.backend.eager:  # there is no list of them, and a new variable is placed as they are
            return [_new_variable(self.backend.tf, 0.0)]
        variables = self.backend.tf.trainable_variables()
        if not variables:
            raise StateError("there is no variable yet that {} could train".format(self.bound.owner))
        return variables

    def update(self, variable, function, grad):
        with self.backend.at(variable):
            return list(function(variable, grad))

    def constrain(self, variable, write):
        return self.backend.constrain(variable, write)

    def native_decay(self, variable):
        return None

    def take_flush(self, variables):
        return Flush(self.bound, variables).run()

    def minimize(self, loss, global_step, var_list, args, kwargs):
        minimize, stages = self.base.minimize, self.bound.definition.stages
        if stages == 1 or self.bound.takes_stages:
            return minimize(loss, global_step, var_list, *args, **kwargs)
        if not self.backend.eager:
            variables = self.backend.tf.trainable_variables() if var_list is None else var_list
            for variable in [part for whole in variables for part in self.parts(whole)]:
                if self.backend.is_ref(variable):
                    raise VariableError(
                        "{} evaluates its loss {} times in one call, but a ref variable such as {} is read only once; "
                        "create it with use_resource=True".format(self.bound.definition._short(), stages, variable.name)
                    )
        global_steps = [None] * (stages - 1) + [global_step]

        def run_stage(loss):
            return minimize(loss if self.backend.eager else loss(), global_steps.pop(0), var_list, *args, **kwargs)

        return run_stages(self.bound, run_stage, loss)

    def compute_gradients(self, loss, var_list, args, kwargs):
        if isinstance(var_list, (list, tuple)):
            var_list = [part for each in var_list for part in (each if is_partitioned(each) else [each])]
        if defines(self.bound.definition, "loss_scale") and var_list:
            self._make_own(var_list)
        loss = self.native.scale_loss(loss)
        if self.bound.gradients is not None:
            variables = self.backend.tf.trainable_variables() if var_list is None else var_list
            return by_hand(self.bound, loss, variables)
        return self.base.compute_gradients(loss, var_list, *args, **kwargs)

    def apply_gradients(self, grads_and_vars, global_step, name):
        return self.backend.plain(self._apply_checked)(grads_and_vars, global_step, name)

    def _apply_checked(self, grads_and_vars, global_step, name):
        with forgetting_failures(self.bound):
            check_operation_name(self.bound, name)
            pairs = self._check(grads_and_vars, global_step)
            return self._apply(pairs, global_step, name)

    def _check(self, grads_and_vars, global_step):
        """Returns the pairs that have a gradient. Raises all errors of a call before it builds anything."""
        bound, pairs = self.bound, as_pairs(grads_and_vars)
        variables = [variable for _, variable in pairs]
        already_checked = self.backend.eager and bound.has_slots_for(variables)
        for variable in [] if already_checked else variables:
            self.check_variable(variable)
        if global_step is not None:
            self._check_not_ref_in_function(global_step)
            check_global_step(bound, global_step)
        bound.check_first(variables)
        pairs = with_gradients(check_grads(bound, pairs))
        if self.backend.replicas() > 1:
            raise hypers.refusal(bound, "tf.distribute over several replicas")
        check_graph_of_hypers(bound)
        check_repeat(bound, [variable for _, variable in pairs])
        self.carries.give(bound, variables)
        return pairs

    def _check_not_ref_in_function(self, variable):
        in_function = not self.backend.eager and type(self.backend.tf.get_default_graph()) is not self.backend.tf.Graph
        if in_function and hasattr(variable, "dtype") and self.backend.is_ref(variable):
            raise VariableError(
                "{} is a ref variable, and functions (in TF 2 also branches and loops) cannot write it; create it with "
                "use_resource=True".format(variable.name)
            )

    def _apply(self, pairs, global_step, name):
        tf = self.backend.tf
        with self.backend.outside():
            self.native._create_slots([variable for _, variable in pairs])
        with tf.name_scope(name or self.name) as scope:
            self.native._prepare()
            natives = [(grad, self.unwrap(variable)) for grad, variable in pairs]
            hooks = hooks_of(self.bound, scope if global_step is None else "update")
            operations = self.bound.take_step(natives, checked=False, hooks=hooks)
            if global_step is not None:
                operations = [count_step(self, global_step, operations)]
            if self.backend.eager:
                return None
            train_op = operations[-1] if hooks and global_step is None else tf.group(*operations, name=scope)
        collection = tf.get_collection_ref(tf.GraphKeys.TRAIN_OP)
        if train_op not in collection:
            collection.append(train_op)
        return train_op

    # TF 1.4 lacks `variables`.

    def non_slot_variables(self):
        return list(self.base._non_slot_variables()) + list(self._counts.values())  # TF 1.5 keeps none

    def variables(self):
        if hasattr(self.base, "variables"):
            return self.base.variables()
        graph = self.backend.tf.get_default_graph()
        variables = [variable for (_, owner), variable in self._counts.items() if owner is graph]
        for slots in self.native._slots.values():
            variables.extend(slot for slot in slots.values() if slot.graph is graph)
        return sorted(variables, key=lambda variable: variable.name)


def _new_variable(tf, initial_value, name=None):
    from tensorflow.python.ops import variable_scope

    make = getattr(variable_scope, "variable", tf.Variable)  # tf.Variable of TF 1.5 to 1.10 refuses eager code
    return make(initial_value, name=name, trainable=False)


TrainTarget = TrainAdapter  # its name in older pickles
