"""TensorFlow's verbs for placing computations and variables: devices, graphs, strategies and their replicas."""
from __future__ import absolute_import, division, print_function

import sys

from everstep.compat.backends.base import Backend

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments


# (module, function that returns the present strategy), the newest first.
_STRATEGIES = (
    ("tensorflow.python.distribute.distribute_lib", "get_strategy"),
    ("tensorflow.python.distribute.distribution_strategy_context", "get_strategy"),
    ("tensorflow.python.training.distribution_strategy_context", "get_distribution_strategy"),  # TF 1.11 and 1.12
    ("tensorflow.python.training.distribute", "get_distribution_strategy"),  # up to TF 1.10
)


class TensorFlowPlacing(Backend):
    """The verbs of TensorFlowBackend for scopes, strategies and replicas."""

    tf = _v2 = None  # type: Any  # TensorFlowBackend sets them

    def at(self, variable):
        return self.tf.name_scope("at") if self.eager else self.tf.colocate_with(variable)

    def outside(self):
        scope = getattr(self.tf, "init_scope", None)  # from 1.5 on
        return scope() if scope else self.tf.control_dependencies(None)

    def at_once(self):
        if self.eager or self.in_session() or not self.without_strategy():
            return self.after(())
        # tf.function traces a function that creates variables in its first call a second time, even if `init_scope`
        # lifts them out of it. An optimizer's first step took twice as long.
        return self._v2.variable_creator_scope(self._create_eagerly)

    def _create_eagerly(self, next_creator, **options):
        from tensorflow.python.ops.resource_variable_ops import ResourceVariable

        if not self.eager:
            return next_creator(**options)
        names = ("initial_value", "trainable", "name", "dtype", "constraint", "synchronization", "aggregation", "shape")
        return ResourceVariable(**{name: options[name] for name in names if options.get(name) is not None})

    def first_replica(self):
        return self._v2.variable_creator_scope(self._create_for_first_replica)

    def _create_for_first_replica(self, next_creator, **options):
        if options.get("aggregation") in (None, self.tf.VariableAggregation.NONE):
            options["aggregation"] = self.tf.VariableAggregation.ONLY_FIRST_REPLICA
        return next_creator(**options)

    def scope_of(self, variable):
        strategy = getattr(variable, "distribute_strategy", None)
        distribute = getattr(self.tf, "distribute", None)
        if strategy is None or distribute.get_strategy() is strategy:
            return self.after(())
        return strategy.scope()

    def without_strategy(self):
        distribute = getattr(self.tf, "distribute", None)
        has_strategy = getattr(distribute, "has_strategy", None)  # from 1.14 on
        return not (has_strategy and has_strategy())

    def replicas(self):
        """Returns the number of replicas of the present strategy; 1 without one."""
        for module, get_strategy in _STRATEGIES:
            strategy = getattr(sys.modules.get(module), get_strategy, lambda: None)()
            for count in ("num_replicas_in_sync", "num_replicas", "num_towers") if strategy is not None else ():
                if hasattr(strategy, count):  # the last two are their names up to TF 1.12
                    return getattr(strategy, count)
        return 1

    def component(self, variable):
        """Returns the one variable that a strategy of one replica put into another; any other variable as it is.

        The outer one refuses most of what a variable does: in TF 1.13 to 2.1 it has no constraint, and cannot be
        written but by its strategy.
        """
        state = getattr(variable, "__dict__", {})
        by_device = state.get("_index")  # in TF 1.13 and older
        components = tuple(by_device.values()) if isinstance(by_device, dict) else state.get("_values")
        return components[0] if isinstance(components, tuple) and len(components) == 1 else variable

    def distributed(self, variable):
        # A replica's copy refers to its distributed variable; in newer TensorFlow its handle does.
        for holder in (variable, getattr(variable, "_handle", None)):
            owner = getattr(holder, "_distributed_container", None)
            if owner is not None:
                return owner() if callable(owner) else owner  # TF 2.3 holds the variable itself, not a weak reference
        return variable

    def replica(self):
        distribute = getattr(self.tf, "distribute", None)
        context = distribute.get_replica_context() if hasattr(distribute, "get_replica_context") else None
        number = 0 if context is None else context.replica_id_in_sync_group
        if not isinstance(number, int):
            from tensorflow.python.framework import tensor_util

            number = tensor_util.constant_value(number)
        return None if number is None else int(number)

    def in_replicas(self, value):
        if self.without_strategy():
            return (value,)
        strategy = self.tf.distribute.get_strategy()
        local_results = getattr(strategy, "experimental_local_results", None) or strategy.unwrap  # its name in TF 1.13
        return local_results(value)

    def _in_all_replicas(self, values):
        """Returns a list of the values in each replica."""
        if self.without_strategy():
            return list(values)
        return [part for value in values for part in self.in_replicas(value)]

    def added_up(self, strategy, pairs):
        pairs = list(pairs)
        if strategy.num_replicas_in_sync == 1:
            return pairs
        distribute, replica = self.tf.distribute, self.tf.distribute.get_replica_context()
        if replica is None:
            sums = strategy.extended.batch_reduce_to(distribute.ReduceOp.SUM, pairs)
        else:  # XLA's strategies on several GPUs never leave the replica context
            sums = replica.all_reduce(distribute.ReduceOp.SUM, [grad for grad, _ in pairs])
        return [(grad, variable) for grad, (_, variable) in zip(sums, pairs)]

    def mirrored(self, value):
        # TF 2.3 to 2.5 need values that are equal in all replicas marked as Mirrored.
        values = sys.modules.get("tensorflow.python.distribute.values")
        return values.Mirrored(value.values) if isinstance(value, getattr(values, "PerReplica", ())) else value
