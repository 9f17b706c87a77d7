"""TensorFlow's verbs for placing computations and variables: devices, graphs, strategies and their replicas."""
from __future__ import absolute_import, division, print_function

import sys

from everstep.compat.backends.base import Backend

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments


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

    def replica(self):
        distribute = getattr(self.tf, "distribute", None)
        context = distribute.get_replica_context() if hasattr(distribute, "get_replica_context") else None
        number = 0 if context is None else context.replica_id_in_sync_group
        number = number if isinstance(number, int) else self.tf.get_static_value(number)
        return None if number is None else int(number)

    def in_replicas(self, value):
        if self.without_strategy():
            return (value,)
        strategy = self.tf.distribute.get_strategy()
        local_results = getattr(strategy, "experimental_local_results", None) or strategy.unwrap  # its name in TF 1.13
        return local_results(value)

    def added_up(self, strategy, pairs):
        pairs = list(pairs)
        if strategy.num_replicas_in_sync == 1:
            return pairs
        sums = strategy.extended.batch_reduce_to(self.tf.distribute.ReduceOp.SUM, pairs)
        return [(grad, variable) for grad, (_, variable) in zip(sums, pairs)]

    def mirrored(self, value):
        # TF 2.3 to 2.5 need values that are equal in all replicas marked as Mirrored.
        values = sys.modules.get("tensorflow.python.distribute.values")
        return values.Mirrored(value.values) if isinstance(value, getattr(values, "PerReplica", ())) else value
