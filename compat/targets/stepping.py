"""Step and state hooks: what the engine asks of a target, and what `everstep.capture` and `everstep.restore` do."""
from __future__ import absolute_import, division, print_function

import operator
from collections import OrderedDict, namedtuple

import numpy as np

from everstep.compat.engine.fast_forward import ROWS, Missed, catches_up
from everstep.compat.engine.step import Flush, LossScale, Step, counters, engine_slots, holds, skips
from everstep.compat.targets.hypers import Hypers
from everstep.errors import GradientError, RuleError, SlotError, UnsupportedError
from everstep.optimizers.contract import Definition, Variable, defines, flat, is_tensor

# Where the part of a partitioned variable lies in the whole: a slice of each axis, and the shape of the whole.
Place = namedtuple("Place", "slices whole")
Known = namedtuple("Known", "rule record variable key slot_names slots")


class Stepping(Hypers):
    """Members for counters, variables, slots, state and steps."""

    # Counters and scalars.

    def read_counter(self, name):
        """A counter's value before the step."""
        return self.backend.read(self.counter(name))

    @property
    def steps(self):
        """What counts the steps, those that updated nothing too."""
        return self.counter("steps" if skips(self.definition) else "updates")

    # Variables and slots.

    def variable_key(self, variable):
        """What is one variable's alone, the same for all its parts on replicas."""
        known = self._seen.get(id(variable))
        return known.key if known is not None and known.variable is variable else self.find_key(variable)

    def find_key(self, variable):
        # Of a replica's part, the whole; newer versions of TensorFlow keep it at the handle.
        for holder in (variable, getattr(variable, "_handle", None)):
            container = getattr(holder, "_distributed_container", None)
            if callable(container):
                return id(container())
        return id(variable)

    def whole_key(self, variable):
        """What parts of one variable have in common, and no two variables."""
        return self.variable_key(variable)

    def variable_name(self, variable):
        return variable.name.split(":")[0]

    def unwrap(self, variable):
        """What the backend works on."""
        return variable

    def record(self, variable):
        return self._known(variable).record

    def rule(self, variable):
        return self._known(variable).rule

    def _known(self, variable):
        known = self._seen.get(id(variable))
        if known is not None and known.variable is variable:
            return known
        key = self.find_key(variable)
        if key not in self._rules:
            name, native = self.variable_name(variable), self.unwrap(variable)
            shape, dtype = tuple(self.backend.shape(native)), self.backend.dtype(native)
            record = Variable(name, shape, dtype, len(self._rules), self.collections(variable), variable)
            rule = self._specialized(record)
            names = list(flat(rule, "slot")) + list(engine_slots(self.backend, rule, record))
            self._rules[key] = Known(rule, record, variable, key, names, {})
        if len(self._seen) > 64 * len(self._rules):  # views of arrays are made anew each time
            self._seen.clear()
        known = self._seen[id(variable)] = self._rules[key]._replace(variable=variable, slots={})
        return known

    def _specialized(self, record):
        rule = self.definition.specialize(record)
        if not isinstance(rule, Definition):
            raise RuleError(
                "{}.specialize must return a definition (self, or self.replace(...)); for {} it returned {!r}".format(
                    type(self.definition).__name__, record.name, rule
                )
            )
        for kind in ("hyper", "scalar"):  # those are of the whole optimizer
            if list(flat(rule, kind)) != list(flat(self.definition, kind)):
                raise RuleError(
                    "{}.specialize must keep the {}s; for {} it returned {}".format(
                        type(self.definition).__name__, kind, record.name, rule._short()
                    )
                )
        return rule

    def collections(self, variable):
        return ()

    def slot_names(self, variable):
        return self._known(variable).slot_names

    def slot_declaration(self, variable, name, record=None):
        """(initial value or VARIABLE, shape, dtype) of a slot of a variable, or of what `record` makes of it."""
        rule, record = self.rule(variable), record or self.record(variable)
        own = engine_slots(self.backend, rule, record)
        if name in own:
            return own[name]
        owner, slot = flat(rule, "slot")[name]
        return slot.initial_value(owner), slot.shape_for(record), slot.dtype_for(record)

    def slot(self, variable, name):
        """What the backend works on of a slot that is made."""
        slots = self._known(variable).slots
        if slots.get(name) is None:
            slots[name] = self.unwrap(self.find_slot(variable, name))
        return slots[name]

    def found_slot(self, variable, name):
        """What holds a slot, or SlotError."""
        slot = self.find_slot(variable, name)
        if slot is None:
            raise SlotError(
                "{} has no slot {!r} of {}; it has {} {}".format(
                    type(self).__name__,
                    name,
                    getattr(variable, "name", "this array"),
                    ", ".join(flat(self.definition, "slot")) or "none",
                    self.has_slots,
                )
            )
        return slot

    def has_made(self, variables):
        """Whether these are the very variables that slots were made for last."""
        return len(variables) == len(self._made) and all(map(operator.is_, variables, self._made))

    # State: what `everstep.capture` and `everstep.restore` ask for.

    def check_given(self, variable):
        """Raises VariableError for what the target cannot train."""

    def parts(self, variable):
        """The variables that a partitioned one stands for."""
        return [variable]

    def place(self, variable):
        """The `Place` of a part, or of its slot; None of what is whole."""

    def state_name(self, variable, place):
        """The name of one in a list of variables."""
        return self.variable_name(variable)

    def own_variables(self):
        """{name: variable} of the counters and scalars, as far as they are made."""
        made = OrderedDict((name, self.counter(name)) for name in counters(self.definition))
        made.update((name, self.scalar(name)) for name in flat(self.definition, "scalar"))
        return made

    def find_slot(self, variable, name):
        """What holds a slot, or None."""
        return self._slots.get(self.variable_key(variable), {}).get(name)

    def slotted(self):
        """The variables that have slots."""
        known = [each.variable for each in self._rules.values()]
        return [v for v in known if any(self.find_slot(v, name) is not None for name in self.slot_names(v))]

    def make_state(self, variables):
        """Makes the counters, scalars and slots that there are not yet: what it made beside them, in a list."""
        return []

    def default_session(self, variables):
        """The session to use for variables of a graph where none is given and there is no default one."""

    def calls_per_update(self):
        """What the counter of updates moves by at one of them."""
        return 1

    def not_carried(self):
        """What keeps a State from holding all that this optimizer has learned, or None."""

    # The step.

    def scale_loss(self, loss):
        """The loss to take gradients of, a tensor, number or function: multiplied where `everstep.loss_scale` divides.

        `minimize`, `compute_gradients`, `get_updates` and `fit` do it themselves.
        """
        if not defines(self.definition, "loss_scale"):
            return loss
        self.__dict__["_scales"] = True
        if callable(loss):
            return lambda: self.scale_loss(loss())
        loss = loss.item() if isinstance(loss, np.generic) else loss
        return loss * LossScale(self).native(self.backend.dtype(loss) if is_tensor(loss) else "float32")

    def by_hand(self, loss, variables):
        """Pairs of what the user's own function gives for the gradients of a loss."""
        self.__dict__["_by_hand"] = True
        grads, variables = list(self._gradients(loss, variables)), list(variables)
        if len(grads) != len(variables):
            raise GradientError(
                "{!r} gave {} gradients for {} variables ({}); give one for each, or None".format(
                    self._gradients,
                    len(grads),
                    len(variables),
                    ", ".join(str(getattr(variable, "name", variable)) for variable in variables),
                )
            )
        return list(zip(self.backend.wait_for_loss(grads, loss), variables))

    def take_step(self, pairs, count=True, before=(), checked=True):
        return Step(self, pairs, before, checked).run(count)

    def flush(self, variables=None):
        """Does what steps so far have left undone, before evaluation or a checkpoint.

        Gradients of an open window make their update, as if it had been full: with `everstep.accumulate`, of the mean
        (or sum) of the steps that came. Then, where `sparse="catch_up"`, every row is brought up to date. Where nothing
        was left undone, nothing is changed or counted.

        Args:
            variables: those that it is done for; all that this optimizer has trained unless given. An open window has
                all of them.

        Returns:
            In a graph the operation that does it; in eager code None, and it is done.

        Raises:
            SlotError: the optimizer has not been made to train one of the variables yet.
            UnsupportedError: there are windows, which belong to other variables.
        """
        return self.backend.plain(self._flush)(variables)

    def _flush(self, variables):
        done = self._update_held(variables) if holds(self.definition) else []
        known = self.slotted() if variables is None else variables
        with self.backend.after(done):
            return self.backend.group(done + self._bring_up([(variable, None) for variable in known]))

    def _update_held(self, variables):
        """The update of an open window."""
        calls = self._calls.get((self._graph_now(), 0)) or [key for keys in self._calls.values() for key in keys]
        if variables is None:
            known = [each.variable for each in self._rules.values() if each.key in calls] if calls else self.slotted()
        else:
            known = [part for variable in variables for part in self.parts(variable)]
            for variable in known:
                for name in self.slot_names(variable):
                    self.get_slot(variable, name)  # or an error that says what to do first
            if calls and set(calls) != set(map(self.variable_key, known)):
                raise UnsupportedError(
                    "{} counts the steps of all its variables together; flush them in one call".format(
                        self.definition._short()
                    )
                )
        return self.take_flush([self.unwrap(variable) for variable in known]) if known else []

    def take_flush(self, variables):
        return Flush(self, variables).run()

    def catch_up(self, variable, rows):
        """Brings the rows that a batch is about to read up to date, where `sparse="catch_up"`.

        Args:
            variable: the table.
            rows: whole numbers of any shape; a row may be there more than once.

        Returns:
            In a graph the operation that does it, which the look-up must wait for; in eager code None.

        Raises:
            SlotError: the optimizer has not been made to train the variable yet.
        """
        bring_up = self.backend.plain(self._bring_up)
        return self.backend.group(bring_up([(variable, rows)]))

    def _bring_up(self, wanted):
        operations = []
        for variable, rows in wanted:
            if not self.record(variable).shape or not catches_up(self.backend.moves_rows, self.rule(variable)):
                continue
            self.get_slot(variable, ROWS)  # or an error that says what to do first
            with self.backend.at(self.unwrap(variable)):
                found = None if rows is None else self.backend.unique(rows)
                missed = Missed(self, variable, None if rows is None else lambda found=found: found)
                operations.extend(missed.take())
        return operations

    def constrain(self, variable, write):
        """The operation that wrote a variable, with its constraint."""
        return self.backend.constrain(variable, write)

    def native_decay(self, variable):
        """The base class's own weight decay of a variable, which is times the rate; None where there is none."""

    def check_first(self, variables):
        """Raises where the variables of the first step show a mistake in the definition, before anything is made."""
        if not self._checked:
            self.definition.check_variables([self.record(variable) for variable in variables])
            self.__dict__["_checked"] = True
            self.take_carried(variables)

    def check_repeat(self, variables):
        """A definition that counts calls needs all its variables in one call; a second group would count twice."""
        if defines(self.definition, "loss_scale") and not self._scales:
            raise UnsupportedError(
                "{} divides gradients by the scale of a loss, and no loss was scaled: take gradients of "
                "optimizer.scale_loss(loss). What takes them in another way (fit of TF 2.0 to 2.3, a "
                "LossScaleOptimizer around it) needs a definition without loss_scale".format(self.definition._short())
            )
        if self._gradients is not None and not self._by_hand:
            raise UnsupportedError(
                "this {} was bound with gradients={!r}, and what trains here takes gradients by itself (fit of TF 2.0 "
                "to 2.3 does); call minimize, or give your gradients to apply_gradients of an optimizer bound without "
                "it".format(type(self).__name__, self._gradients)
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
        """Raises where a rule that takes several gradients of a batch would get one of each."""
        if self.definition.stages > 1 and not self.takes_stages:
            raise UnsupportedError(
                "{0} takes {1} gradients of each batch, one after the other, and this call has one: give minimize a "
                "function without arguments that computes the loss (where this API has it), or call "
                "everstep.enable_multistage(model) before fit. In a loop of your own, call "
                "everstep.enable_multistage(optimizer) once, then take {1} gradients of each batch, each followed by a "
                "step".format(self.definition._short(), self.definition.stages)
            )

    def refused_updates(self, params):
        """What stands in a train function that gives one gradient of a batch to a rule of several: it fails when run.

        Not before, since loading a model builds its train function.
        """
        try:
            self.check_stages()
            return []
        except UnsupportedError as error:
            self.make_state(params)
            return [self.backend.failure(str(error))]

    def each_stage(self, minimize, loss, *args, **kwargs):
        """Calls `minimize` of the base class once for each gradient that an update takes."""
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
        """How the variables that were trained so far are updated, and why not faster.

        Returns:
            A list of (name, shape, gradient, way, why): "dense" or "sparse", one of the ways in docs/speed.md, and what
            kept the faster ones from it.
        """
        return self.lowerings.plan()
