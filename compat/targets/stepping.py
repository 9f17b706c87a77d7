"""The members of a target that the engine and `compat/checkpoints` call during a step, `capture` and `restore`."""
from __future__ import absolute_import, division, print_function

import operator
from collections import OrderedDict, namedtuple

import numpy as np

from everstep.compat.engine.fast_forward import ROWS, Missed, catches_up
from everstep.compat.engine.other_steps import Flush, LossScale
from everstep.compat.engine.pairs import check_pairs
from everstep.compat.engine.step import Step, counters, engine_slots, holds, remembers_rows, skips
from everstep.compat.engine.variable_view import is_known, shape_needed
from everstep.compat.targets.hypers import Hypers
from everstep.compat.targets.random_starts import initial_value
from everstep.errors import DefinitionError, GradientError, RuleError, SlotError, UnsupportedError, VariableError
from everstep.optimizers.contract import Definition, Variable, changed_hypers, defines, flat, is_tensor
from everstep.optimizers.contract.checks import TEXT_OR_BYTES

# The position of a part in its partitioned variable: one slice for each axis, and the shape of the whole variable.
Place = namedtuple("Place", "slices whole")
# The facts about one variable, cached by its key. slots: `{name: native variable}`; rehearsed: kinds of gradients.
Known = namedtuple("Known", "rule record variable key slot_names rehearsed slots")


def check_connected(grads, variables):
    """Returns the gradients; raises GradientError if a variable has none, as `get_gradients` of stock does."""
    missing = [variable.name for grad, variable in zip(grads, variables) if grad is None]
    if missing:
        raise GradientError(
            "no gradient for {}: the loss does not depend on it, or an op on the way has no gradient (argmax, "
            "round, ...)".format(", ".join(missing))
        )
    return grads


class Stepping(Hypers):
    """Members for counters, variables, slots, state and steps."""

    # Counters and scalars.

    def read_counter(self, name):
        """Returns a counter's value before the step."""
        return self.backend.read(self.counter(name))

    @property
    def steps(self):
        """The counter of all steps, including those that do not update."""
        return self.counter("steps" if skips(self.definition) else "updates")

    # Variables and slots.

    def variable_key(self, variable):
        """Returns a hashable key, equal for a variable's copies on all replicas."""
        known = self._seen.get(id(variable))
        return known.key if known is not None and known.variable is variable else self.find_key(variable)

    def find_key(self, variable):
        return id(self.backend.distributed(variable))

    def whole_key(self, variable):
        """Returns a key that all parts of a partitioned variable share."""
        return self.variable_key(variable)

    def variable_name(self, variable):
        return variable.name.split(":")[0]

    def unwrap(self, variable):
        """Returns the native variable that the backend works on."""
        return variable

    def record(self, variable):
        return self._known(variable).record

    def rule(self, variable):
        return self._known(variable).rule

    def rehearsed(self, variable):
        return self._known(variable).rehearsed

    def _known(self, variable):
        known = self._seen.get(id(variable))
        if known is not None and known.variable is variable:
            return known
        key = self.find_key(variable)
        if key not in self._rules:
            name, native = self.variable_name(variable), self.unwrap(variable)
            shape, dtype = self.backend.shape(native), self.backend.dtype(native)
            record = Variable(name, shape, dtype, len(self._rules), self.collections(variable), variable)
            rule = self._specialized(record) if is_known(shape) else self._without_shape(record)
            names = list(flat(rule, "slot")) + list(engine_slots(self.backend, rule, record))
            self._rules[key] = Known(rule, record, variable, key, names, set(), {})
        if len(self._seen) > 64 * len(self._rules):  # `weights.T` is a new array view, with a new id, each time
            self._seen.clear()
        known = self._seen[id(variable)] = self._rules[key]._replace(variable=variable, slots={})
        return known

    def _without_shape(self, record):
        """Returns the rule of a variable whose shape is not known. Raises VariableError if the rule needs it."""
        try:
            rule = self._specialized(record)
            shapes = [slot.shape_for(record) for _, slot in flat(rule, "slot").values()]
            if all(is_known(shape) or shape == record.shape for shape in shapes):
                if not remembers_rows(rule) and not catches_up(self.backend.moves_rows, rule):
                    return rule
        except (DefinitionError, TypeError, IndexError, ValueError):  # `len(None)` and the like
            rule = self.definition
        raise VariableError(shape_needed(rule, record))

    def _specialized(self, record):
        rule = self.definition.specialize(record)
        if not isinstance(rule, Definition):
            raise RuleError(
                "{}.specialize must return a definition (self, or self.replace(...)); for {} it returned {!r}".format(
                    type(self.definition).__name__, record.name, rule
                )
            )
        for kind in ("hyper", "scalar"):  # the optimizer has one of each for all variables
            if list(flat(rule, kind)) != list(flat(self.definition, kind)):
                raise RuleError(
                    "{}.specialize must keep the {}s; for {} it returned {}".format(
                        type(self.definition).__name__, kind, record.name, rule._short()
                    )
                )
        changed = changed_hypers(self.definition, rule)
        if changed:
            raise RuleError(
                "{0}.specialize changed {1} for {2}, but an optimizer has one value of a hyper for all its variables. "
                "Change an option, such as a factor that `update` multiplies {1} by; or use decoupled_weight_decay("
                "exclude=...) or learning_rate_multipliers".format(
                    type(self.definition).__name__, " and ".join(changed), record.name
                )
            )
        return rule

    def collections(self, variable):
        return ()

    def slot_names(self, variable):
        return self._known(variable).slot_names

    def slot_declaration(self, variable, name, whole=None):
        """Returns (initial value or VARIABLE, shape, dtype) of a slot; `whole`: the record of all parts together."""
        rule, record = self.rule(variable), whole or self.record(variable)
        declared_by_engine = engine_slots(self.backend, rule, record)
        if name in declared_by_engine:
            return declared_by_engine[name]
        (owner, slot), place = flat(rule, "slot")[name], None if record is whole else self.place(variable)
        return initial_value(owner, slot, record, place), slot.shape_for(record), slot.dtype_for(record)

    def slot(self, variable, name):
        """Returns the native variable of an existing slot."""
        slots = self._known(variable).slots
        if slots.get(name) is None:
            slots[name] = self.unwrap(self.find_slot(variable, name))
        return slots[name]

    def require_slot(self, variable, name, error=SlotError):
        """Returns the variable that holds a slot, or raises the error, a SlotError."""
        slot = self.find_slot(variable, name) if isinstance(name, TEXT_OR_BYTES) else None
        if slot is None:
            raise error(
                "{} has no slot {!r} of {}; it has {} {}".format(
                    type(self).__name__,
                    name,
                    getattr(variable, "name", "this array"),
                    ", ".join(flat(self.definition, "slot")) or "none",
                    self.has_slots,
                )
            )
        return slot

    def has_slots_for(self, variables):
        """Returns True if slots were last created for exactly these variables."""
        return len(variables) == len(self._made) and all(map(operator.is_, variables, self._made))

    # State: called by `everstep.capture` and `everstep.restore`.

    def check_variable(self, variable):
        """Raises VariableError for a variable that the target cannot train."""

    def parts(self, variable):
        """Returns the parts of a partitioned variable, or a list of the variable itself."""
        return [variable]

    def place(self, variable):
        """Returns the `Place` of a part or of a part's slot; None for anything else."""

    def state_name(self, variable, place):
        """Returns the variable's name in a State; `place` is its index in the user's list."""
        return self.variable_name(variable)

    def own_variables(self):
        """Returns `{name: variable}` of the counters and scalars that exist."""
        variables = OrderedDict((name, self.counter(name)) for name in counters(self.definition))
        variables.update((name, self.scalar(name)) for name in flat(self.definition, "scalar"))
        return variables

    def counted_elsewhere(self):
        """Returns the variable that counts updates if the optimizer has no counter, or None."""

    def find_slot(self, variable, name):
        """Returns the variable that holds a slot, or None."""
        return self._slots.get(self.variable_key(variable), {}).get(name)

    def variables_with_slots(self):
        """Returns a list of the variables that have slots."""
        variables = [known.variable for known in self._rules.values()]
        return [v for v in variables if any(self.find_slot(v, name) is not None for name in self.slot_names(v))]

    def make_state(self, variables):
        """Creates missing counters, scalars and slots; returns a list of any other variables that it created."""
        return []

    def default_session(self, variables):
        """Returns the session to use if the user gives none and the graph has no default one; or None."""

    def calls_per_update(self):
        """Returns the amount that the counter of updates grows by per update."""
        return 1

    def not_carried(self):
        """Returns the reason why a State would be incomplete now, or None."""

    def scale_loss(self, loss):
        """Returns the loss to differentiate: multiplied by the loss scale if the definition has one.

        `everstep.loss_scale` divides the gradients by the same scale. `minimize`, `compute_gradients`, `get_updates`
        and `fit` call this method themselves; call it in a training loop of your own.

        Args:
            loss: a tensor, a number, or a function without arguments that returns one.

        Returns:
            The scaled loss: a function if `loss` is one, else a tensor or number. `loss` itself without a loss scale.
        """
        if not defines(self.definition, "loss_scale"):
            return loss
        self.__dict__["_scales"] = True
        if callable(loss):
            return lambda: self.scale_loss(loss())
        loss = loss.item() if isinstance(loss, np.generic) else loss
        return loss * LossScale(self).native(self.backend.dtype(loss) if is_tensor(loss) else "float32")

    def by_hand(self, loss, variables):
        """Computes gradients with the user's function, the one given as `bind(module, gradients=...)`.

        Args:
            loss: the loss, a tensor or a function that computes it, as the caller has it.
            variables: the variables to differentiate with respect to.

        Returns:
            A list of (gradient, variable) pairs.

        Raises:
            GradientError: the function did not return one gradient, or None, for each variable.
        """
        self.__dict__["_by_hand"] = True
        grads, variables = list(self._gradients(loss, variables)), list(variables)
        if len(grads) != len(variables):
            names = ", ".join(str(getattr(variable, "name", variable)) for variable in variables)
            raise GradientError(
                "{!r} gave {} gradients for {} variables ({}); give one for each, or None".format(
                    self._gradients, len(grads), len(variables), names
                )
            )
        return list(zip(self.backend.wait_for_loss(grads, loss), variables))

    def take_step(self, pairs, count=True, before=(), checked=True):
        pairs = check_pairs(self.backend, pairs, self.casts_gradients) if checked else pairs
        eager = count and self.backend.keeps_functions() and not self.is_averaged
        return self.eager_steps.run(pairs) if eager else Step(self, pairs, before).run(count)

    def flush(self, variables=None):
        """Finishes the pending work of earlier steps. Call it before evaluation or a checkpoint.

        First, an open accumulation window makes its update, as if it were full: `everstep.accumulate` uses the mean (or
        sum) of the steps so far. Then, with `sparse="catch_up"`, every row is brought up to date. If no work is
        pending, nothing changes and nothing is counted.

        Args:
            variables: a list of variables. Default: all that this optimizer has trained. An open window takes all of
                its variables in one call.

        Returns:
            In a graph, the operation to run. In eager code None; the work is done.

        Raises:
            SlotError: the optimizer has no slots for one of the variables yet.
            UnsupportedError: an accumulation window is open for other variables than these.
        """
        return self.backend.plain(self._flush)(variables)

    def _flush(self, variables):
        operations = self._update_window(variables) if holds(self.definition) else []
        variables = self.variables_with_slots() if variables is None else variables
        with self.backend.after(operations):
            return self.backend.group(operations + self._catch_up_rows([(variable, None) for variable in variables]))

    def _update_window(self, variables):
        """Runs the update of an open window."""
        keys = self._calls.get((self._graph_now(), 0)) or [key for keys in self._calls.values() for key in keys]
        if variables is None:
            parts = [known.variable for known in self._rules.values() if known.key in keys]
            parts = parts if keys else self.variables_with_slots()
        else:
            parts = [part for variable in variables for part in self.parts(variable)]
            for variable in parts:
                for name in self.slot_names(variable):
                    self.get_slot(variable, name)  # raises an error that tells the user what to do first
            if keys and set(keys) != set(map(self.variable_key, parts)):
                raise UnsupportedError(
                    "{} counts the steps of all its variables together; flush them in one call".format(
                        self.definition._short()
                    )
                )
        return self.take_flush([self.unwrap(variable) for variable in parts]) if parts else []

    def take_flush(self, variables):
        return Flush(self, variables).run()

    def catch_up(self, variable, rows):
        """Brings rows up to date before a batch reads them. Does nothing without `sparse="catch_up"`.

        Args:
            variable: the embedding table.
            rows: row numbers, integers of any shape, repeated or not.

        Returns:
            In a graph, the operation to run before the rows are looked up. In eager code None; the work is done.

        Raises:
            SlotError: the optimizer has no slots for the variable yet.
            GradientError: the variable has no such row. In a graph the operation fails instead.
        """
        catch_up_rows = self.backend.plain(self._catch_up_rows)
        return self.backend.group(catch_up_rows([(variable, rows)]))

    def _catch_up_rows(self, rows_of_variables):
        """Takes missed updates for (variable, rows) pairs; rows of None are all rows. Returns operations."""
        operations = []
        for variable, rows in rows_of_variables:
            if not self.record(variable).shape or not catches_up(self.backend.moves_rows, self.rule(variable)):
                continue
            self.get_slot(variable, ROWS)  # raises an error that tells the user what to do first
            with self.backend.at(self.unwrap(variable)):
                unique = None if rows is None else self._existing(rows, variable)
                missed = Missed(self, variable, None if rows is None else lambda unique=unique: unique)
                operations.extend(missed.take_all() if rows is None else missed.take())
        return operations

    def _existing(self, rows, variable):
        """Returns each of some rows once. Raises GradientError if the variable lacks one."""
        return self.backend.existing_rows(self.backend.unique(rows), self.unwrap(variable), self.record(variable).name)

    def constrain(self, variable, write):
        """Returns the operation `write`, followed by the variable's constraint."""
        return self.backend.constrain(variable, write)

    def native_decay(self, variable):
        """Returns the base class's weight decay for a variable, or None. It is multiplied by the learning rate."""

    def check_first(self, variables):
        """Checks the definition against the variables of the first step, before any slot is created."""
        if not self._checked:
            self.definition.check_variables([self.record(variable) for variable in variables])
            self.__dict__["_checked"] = True

    def check_repeat(self, variables):
        """Raises UnsupportedError for a call that would break the definition.

        A definition that counts calls needs all variables in one call: a second group would count twice.
        """
        if defines(self.definition, "loss_scale") and not self._scales:
            raise UnsupportedError(
                "{} divides gradients by the loss scale, but no loss was scaled. Take gradients of "
                "optimizer.scale_loss(loss). For fit of TF 2.0 to 2.3, or inside a LossScaleOptimizer, bind a "
                "definition without loss_scale".format(self.definition._short())
            )
        if self._gradients is not None and not self._by_hand:
            raise UnsupportedError(
                "this {} was bound with gradients={!r}, but the caller computed gradients itself (as fit of TF 2.0 to "
                "2.3 does). Call minimize, or bind without gradients= and give your gradients to "
                "apply_gradients".format(type(self).__name__, self._gradients)
            )
        self.check_stages()
        if not skips(self.definition):
            return
        graph = self._graph_now()
        keys = [self.variable_key(variable) for variable in variables]
        first = self._calls.setdefault((graph, self.backend.replica()), keys)
        if first != keys or graph is not None and first is not keys and self.definition.stages == 1:
            raise UnsupportedError(
                "{} counts its calls, so it takes all variables in one call, and one call in a graph; bind one "
                "definition for each group of variables".format(self.definition._short())
            )

    def check_stages(self):
        """Raises UnsupportedError if a multistage rule would get only one gradient of each batch."""
        if self.definition.stages > 1 and not self.takes_stages:
            raise UnsupportedError(
                "{0} takes {1} gradients of each batch, one after the other, but this call has one. Give minimize a "
                "function without arguments that computes the loss (if this API has minimize), or call "
                "everstep.enable_multistage(model) before fit. In a loop of your own, call "
                "everstep.enable_multistage(optimizer) once, then take {1} gradients of each batch, each followed by a "
                "step".format(self.definition._short(), self.definition.stages)
            )

    def failing_updates(self, params):
        """Returns updates that fail when run, if a multistage rule would get one gradient per batch; else [].

        Building must not fail: Keras builds the train function when it loads a model.
        """
        try:
            self.check_stages()
            return []
        except UnsupportedError as error:
            self.make_state(params)
            return [self.backend.failure(str(error))]

    def run_stages(self, minimize, loss, *args, **kwargs):
        """Calls the base class's `minimize` once for each stage of an update."""
        if self.definition.stages == 1 or self.takes_stages:
            return minimize(loss, *args, **kwargs)
        if not callable(loss):
            self.check_stages()
        self.__dict__["takes_stages"] = True
        try:
            done = []
            for _ in range(self.definition.stages):
                with self.backend.after(done):
                    done = [minimize(loss, *args, **kwargs)]
            return done[0]
        finally:
            self.__dict__["takes_stages"] = False

    def _graph_now(self):
        return None if self.backend.eager else self.backend.tf.get_default_graph()

    def everstep_plan(self):
        """Returns how each variable trained so far is updated, and why no faster strategy was chosen.

        Returns:
            A list of namedtuples (name, shape, gradient, strategy, why), one for each variable and kind of gradient.
            gradient: "dense" or "sparse". strategy: one of the strategies in docs/speed.md. why: a string with the
            reasons why faster strategies were rejected.
        """
        return self.lowerings.plan()
