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
from everstep.compat.engine.pairs import as_pairs, check_rows, with_gradients
from everstep.compat.engine.step import Step, counters, skips
from everstep.compat.engine.variable_view import is_known
from everstep.compat.targets.base import Target
from everstep.compat.targets.construction import COMPLEX, Unsupported, keyword, member
from everstep.compat.targets.dry_run import reads_updates
from everstep.compat.targets.global_step import check_global_step, count_step
from everstep.compat.targets.partitioned import is_partitioned, part_of, place_slice
from everstep.compat.targets.stepping import Place
from everstep.compat.targets.stock_members import private_hypers
from everstep.errors import HyperValueError, StateError, TrainSlotError, UnsupportedError, VariableError
from everstep.optimizers.contract import VARIABLE, Schedule, defines, flat, is_tensor

_HOOKS = "_apply_dense _resource_apply_dense _apply_sparse _apply_sparse_duplicate_indices".split()
_HOOKS += "_resource_apply_sparse _resource_apply_sparse_duplicate_indices".split()


class TrainTarget(Target):
    target = "tf_train"
    works_on = "tf.train of TF 1.4 to 1.15, tf.compat.v1.train of TF 1.13 to 2.21"
    unsupported = (
        member("get_config", "optimizer.definition.get_config() returns the definition's config"),
        member("get_weights", "everstep.capture(optimizer, variables) takes its state"),
        keyword("clipnorm", "bind everstep.clip(definition, norm=...)"),
        COMPLEX,
        Unsupported(
            "setting hypers", HyperValueError,
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
    has_slots = "once minimize or apply_gradients has run"
    sets_hypers = False

    @classmethod
    def base_class(cls, optimizer, module):
        return next(base for base in reversed(optimizer.__mro__) if "_apply_dense" in vars(base))

    def start(self, use_locking=False, name=None, **native):
        import tensorflow

        self.backend = TensorFlowBackend(tensorflow, use_locking)
        # Counters and scalars by (name, graph). Only for TF 1.4 and 1.5, whose base class keeps no variables but slots.
        self._counts = {}
        self._keeps_count = self._needs_count()
        self.native_super().__init__(use_locking, self.native_name(name), **native)

    # Hypers.

    def hyper(self, name):
        return self.lazy_hyper(name, self.given_hyper(name))

    def read_hyper(self, name):
        return self.given_hyper(name)

    def set_hyper(self, name, value):
        raise self.refusal("setting hypers", name=name)

    # Counters and scalars.

    @property
    def moved_natively(self):
        return () if self._keeps_count else ("updates",)  # a counter that does not exist is not incremented

    def counter(self, name):
        return self.unwrap(self._variable_called(name))

    def scalar(self, name):
        return self.unwrap(self._variable_called(name))

    def _variable_called(self, name):
        with self.backend.outside():
            graph = None if self.backend.eager else self.backend.tf.get_default_graph()
        if hasattr(self, "_get_non_slot_variable"):
            return self._get_non_slot_variable("{}/{}".format(self._name, name), graph=graph)
        return self._counts.get((name, graph))

    def _needs_count(self):
        """Returns whether something reads the count of updates, or is stored beside it."""
        definition = self.definition
        stored = flat(definition, "slot") or flat(definition, "scalar") or skips(definition)
        if stored or catches_up(self.backend.moves_rows, definition):
            return True
        scheduled = any(isinstance(self.given_hyper(name), Schedule) for name in self.hyper_declarations())
        return scheduled or reads_updates(definition)

    def _make_variable(self, name, initial_value, beside):
        full_name = "{}/{}".format(self._name, name)
        if hasattr(self, "_create_non_slot_variable"):
            return self._owned(name, self._create_non_slot_variable(initial_value, full_name, beside))
        graph = beside.graph  # for TF 1.4 and 1.5; drop it when 1.6 is the minimum
        if (name, graph) not in self._counts:
            from tensorflow.python.ops import variable_scope

            with self.backend.tf.colocate_with(beside):
                self._counts[name, graph] = variable_scope.variable(initial_value, name=full_name, trainable=False)
        return self._owned(name, self._counts[name, graph])

    def _owned(self, name, variable):
        """Marks a counter or scalar for `everstep.warm_start`, which may come when the optimizer is gone."""
        variable.everstep_owner = name, self.definition
        return variable

    # Variables and slots.

    def whole_key(self, variable):
        part = part_of(variable)
        return (part.full_name, variable.graph) if part else super(TrainTarget, self).whole_key(variable)

    def variable_name(self, variable):
        part = part_of(variable)
        return part.full_name if part else super(TrainTarget, self).variable_name(variable)

    def unwrap(self, variable):
        return self.backend.component(variable)

    def collections(self, variable):
        if self.backend.eager:
            return ()
        graph = self.backend.tf.get_default_graph()
        keys = [key for key in graph.get_all_collection_keys() if isinstance(key, str)]
        return tuple(key for key in keys if any(member is variable for member in graph.get_collection_ref(key)))

    def _create_slots(self, var_list):
        if self.has_slots_for(var_list):
            return
        for variable in var_list:
            for name in self.slot_names(variable):
                self._make_slot(variable, name)
        self._make_own(var_list)
        self._made = tuple(var_list)

    def _make_own(self, var_list):
        beside = min(var_list, key=lambda variable: variable.name)
        for name in counters(self.definition) if self._keeps_count else ():
            self._make_variable(name, np.array(0, np.int64), beside)
        for name, (_, declaration) in flat(self.definition, "scalar").items():
            self._make_variable(name, np.array(declaration.init, np.float32), beside)

    def _make_slot(self, variable, name):
        tf = self.backend.tf
        initial, shape, dtype = self.slot_declaration(variable, name)
        op_name = "{}/{}".format(self._name, name)
        if initial is VARIABLE:
            slot = self._get_or_make_slot(variable, self.backend.start_value(variable, dtype), name, op_name)
        elif not is_known(shape):
            start = self.backend.filled(shape, initial, dtype, variable)
            slot = self._get_or_make_slot(variable, start, name, op_name)
        else:
            plain = isinstance(initial, (int, float))
            start = tf.constant_initializer(initial if plain else np.full(shape, initial, dtype))
            slot = self._get_or_make_slot_with_initializer(
                variable, start, tf.TensorShape(shape), tf.as_dtype(dtype), name, op_name
            )
        if part_of(variable):
            whole = self.record(variable)._replace(shape=tuple(part_of(variable).full_shape))
            place_slice(variable, slot, op_name, shape, self.slot_declaration(variable, name, whole)[1])

    def _create_or_restore_slot_variable(self, slot_variable_position, slot_name, variable):
        # Restoring an object checkpoint calls this. The base class would give every slot its variable's shape.
        if self.backend.eager and slot_name in self.slot_names(variable):
            self._make_slot(variable, slot_name)
        super(TrainTarget, self)._create_or_restore_slot_variable(slot_variable_position, slot_name, variable)

    def get_slot(self, var, name):
        """Returns the variable that holds a slot.

        Raises:
            SlotError: there is no such slot, or it does not exist yet.
        """
        # Saving an object checkpoint asks for each slot of every object. Up to TF 1.12 it expects only this error.
        return self.require_slot(var, name, TrainSlotError)

    # State.

    def check_variable(self, variable):
        if is_partitioned(variable):
            raise VariableError("{} is a partitioned variable; give its parts, list(variable)".format(variable.name))
        self._check_not_ref_in_function(variable)
        if not hasattr(variable, "assign_sub") or isinstance(variable, self.backend.tf.Tensor):
            raise VariableError("{} trains TensorFlow variables; got {!r}".format(type(self).__name__, variable))

    def parts(self, variable):
        return list(variable) if is_partitioned(variable) else [variable]

    def place(self, variable):
        part = part_of(variable)
        if part is None:
            return None
        slices = tuple(slice(start, start + size) for start, size in zip(part.var_offset, part.var_shape))
        return Place(slices, tuple(part.full_shape))

    def own_variables(self):
        variables = super(TrainTarget, self).own_variables()
        return {name: variable for name, variable in variables.items() if variable is not None}

    def counted_elsewhere(self):
        return None if self._keeps_count or self.backend.eager else self.backend.tf.train.get_global_step()

    def find_slot(self, variable, name):
        return super(TrainTarget, self).get_slot(variable, name)

    def make_state(self, variables):
        if self.backend.eager:
            self._create_slots(variables)
        elif self._keeps_count and not self.own_variables():
            raise StateError(
                "{} has no slots in this graph yet; call minimize or apply_gradients before everstep.restore".format(
                    type(self).__name__
                )
            )
        return []

    # The step.

    def scale_loss(self, loss):
        if defines(self.definition, "loss_scale") and not self.own_variables():
            variables = self.backend.tf.trainable_variables()
            if not variables:
                raise StateError("there is no variable yet that {} could train".format(type(self).__name__))
            with self.backend.outside():
                self._make_own(variables)
        return super(TrainTarget, self).scale_loss(loss)

    def minimize(self, loss, global_step=None, var_list=None, *args, **kwargs):
        """Minimizes a loss, as in stock.

        A multistage rule needs `loss` as a function without arguments, and in a graph resource variables.
        """
        minimize, stages = super(TrainTarget, self).minimize, self.definition.stages
        if stages == 1 or self.takes_stages:
            return minimize(loss, global_step, var_list, *args, **kwargs)
        if not self.backend.eager:
            variables = self.backend.tf.trainable_variables() if var_list is None else var_list
            for variable in [part for whole in variables for part in self.parts(whole)]:
                if self.backend.is_ref(variable):
                    raise VariableError(
                        "{} evaluates its loss {} times in one call, but a ref variable such as {} is read only once; "
                        "create it with use_resource=True".format(self.definition._short(), stages, variable.name)
                    )
        global_steps = [None] * (stages - 1) + [global_step]

        def run_stage(loss):
            return minimize(loss if self.backend.eager else loss(), global_steps.pop(0), var_list, *args, **kwargs)

        return self.run_stages(run_stage, loss)

    def compute_gradients(self, loss, var_list=None, *args, **kwargs):
        """Returns (gradient, variable) pairs, as in stock. Accepts partitioned variables in `var_list`."""
        if isinstance(var_list, (list, tuple)):
            var_list = [part for each in var_list for part in (each if is_partitioned(each) else [each])]
        if defines(self.definition, "loss_scale") and var_list:
            self._make_own(var_list)
        if self._gradients is not None:
            variables = self.backend.tf.trainable_variables() if var_list is None else var_list
            return self.by_hand(self.scale_loss(loss), variables)
        return super(TrainTarget, self).compute_gradients(self.scale_loss(loss), var_list, *args, **kwargs)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        """Runs one step.

        Args:
            grads_and_vars: (gradient, variable) pairs.
            global_step: a variable to increment at every step, even if that step only accumulates, or the ref tensor
                of one, which `tf.train.get_global_step()` gives in some graphs. Default: none.
            name: the name of the operation. Default: the optimizer's name.

        Returns:
            In a graph, the operation that runs the step. In eager code None; the step has run.
        """
        return self.backend.plain(self._apply_checked)(grads_and_vars, global_step, name)

    def update(self, variable, function, grad):
        with self.backend.at(variable):
            return list(function(variable, grad))

    def _apply_checked(self, grads_and_vars, global_step, name):
        with self.forgetting_failures():
            self.check_operation_name(name)
            pairs = self._check(grads_and_vars, global_step)
            if self._hooks_are_replaced():
                return super(TrainTarget, self).apply_gradients(pairs, global_step, name)
            return self._apply(pairs, global_step, name)

    def _check(self, grads_and_vars, global_step):
        """Returns the pairs that have a gradient. Raises all errors of a call before it builds anything."""
        pairs = as_pairs(grads_and_vars)
        variables = [variable for _, variable in pairs]
        already_checked = self.backend.eager and self.has_slots_for(variables)
        for variable in [] if already_checked else variables:
            self.check_variable(variable)
        if global_step is not None:
            self._check_not_ref_in_function(global_step)
            check_global_step(self, global_step)
        self.check_first(variables)
        pairs = with_gradients(self.check_grads(pairs))
        for _, variable in pairs:
            if part_of(variable) and self.rule(variable).locality == "variable":
                raise UnsupportedError(
                    "{} needs {} whole, but it is partitioned; make it without a partitioner".format(
                        self.definition._short(), self.variable_name(variable)
                    )
                )
        if self.backend.replicas() > 1:
            raise self.refusal("tf.distribute over several replicas")
        for name in self.hyper_declarations():
            self._check_graph_of(name, self.given_hyper(name))
        self.check_repeat([variable for _, variable in pairs])
        self.take_carried(variables)
        return pairs

    def _check_graph_of(self, name, hyper):
        graph = self.backend.tf.get_default_graph()
        if self.backend.eager or type(graph) is not self.backend.tf.Graph:  # a function captures tensors from outside
            return
        if is_tensor(hyper) and getattr(hyper, "graph", None) is not graph:
            raise HyperValueError(
                "{}.{} is a tensor of another graph than the one that trains; bind a definition for each graph, or "
                "give a callable that makes the tensor".format(type(self).__name__, name)
            )

    def _check_not_ref_in_function(self, variable):
        in_function = not self.backend.eager and type(self.backend.tf.get_default_graph()) is not self.backend.tf.Graph
        if in_function and hasattr(variable, "dtype") and self.backend.is_ref(variable):
            raise VariableError(
                "{} is a ref variable, and functions (in TF 2 also branches and loops) cannot write it; create it with "
                "use_resource=True".format(variable.name)
            )

    def _hooks_are_replaced(self):
        """Returns True if a subclass or wrapper replaced hooks: then the base class must call them one by one."""
        owners = [base for base in type(self).__mro__ if not set(_HOOKS).isdisjoint(vars(base))]
        return owners[0] is not TrainTarget or not set(_HOOKS).isdisjoint(vars(self))

    def _apply(self, pairs, global_step, name):
        tf = self.backend.tf
        with self.backend.outside():
            self._create_slots([variable for _, variable in pairs])
        self._prepare()
        with tf.name_scope(name or self._name) as scope:
            operations = self.take_step([(grad, self.unwrap(variable)) for grad, variable in pairs], checked=False)
            if global_step is not None:
                operations = [count_step(self, global_step, operations)]
            if self.backend.eager:
                return None
            train_op = tf.group(*operations, name=scope)
        collection = tf.get_collection_ref(tf.GraphKeys.TRAIN_OP)
        if train_op not in collection:
            collection.append(train_op)
        return train_op

    def _apply_one(self, grad, variable):
        """Updates one variable. For optimizers that wrap this one and loop over variables; they call `_finish` last."""
        return self.backend.tf.group(*self.take_step(check_rows(self.backend, [(grad, variable)]), count=False))

    _apply_dense = _resource_apply_dense = _apply_sparse = _apply_sparse_duplicate_indices = _apply_one

    def _resource_apply_sparse(self, grad, handle, indices):
        return self._apply_one(self.backend.tf.IndexedSlices(grad, indices), handle)

    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices):
        return self._resource_apply_sparse(grad, handle, indices)

    def _finish(self, update_ops, name_scope):
        with self.backend.after(update_ops):
            counted = Step.count_update(self) if self._keeps_count else self.backend.tf.no_op()
        return self.backend.tf.group(*(list(update_ops) + [counted]), name=name_scope)

    # TF 1.4 lacks this method.

    def _non_slot_variables(self):
        return list(super(TrainTarget, self)._non_slot_variables()) + list(self._counts.values())  # TF 1.5 keeps none

    def variables(self):
        """Returns all variables that this optimizer created in the current graph, sorted by name."""
        if hasattr(super(TrainTarget, self), "variables"):
            return super(TrainTarget, self).variables()
        graph = self.backend.tf.get_default_graph()
        variables = [variable for (_, owner), variable in self._counts.items() if owner is graph]
        for slots in self._slots.values():
            variables.extend(slot for slot in slots.values() if slot.graph is graph)
        return sorted(variables, key=lambda variable: variable.name)
