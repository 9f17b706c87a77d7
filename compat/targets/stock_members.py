"""Attributes that only some stock classes have, and that people's code reads: the present rate, decay, lists of slots.

Each target lists its own in `stock_members`.
"""
from __future__ import absolute_import, division, print_function

from collections import namedtuple

from everstep.compat.rules.expressions import Tracer
from everstep.compat.rules.interpreter import Interpreter
from everstep.compat.targets.hypers import decays_of, is_function, many_rates, rates_of_branches
from everstep.errors import UnsupportedMemberError
from everstep.optimizers.contract import Averages, Schedule
from everstep.optimizers.contract.trees import tree, walk
from everstep.optimizers.contract.verbs import overrides

# kind, needs: the definition has it if it declares this hyper or slot; None if every definition has it.
# read: a function of the `Bound` that returns the attribute's value.
StockMember = namedtuple("StockMember", "kind needs read")

_PRIVATE_HYPERS = (
    ("_lr", "learning_rate"), ("_learning_rate", "learning_rate"), ("_beta1", "beta_1"), ("_beta2", "beta_2"),
    ("_epsilon", "epsilon"), ("_momentum", "momentum"),
)


def present_value(bound, name):
    """Returns the value that the next step uses for a hyper, as a tensor."""
    value = bound.adapter.present(name)
    if isinstance(value, Schedule):
        return schedule_value(bound, value)
    return bound.backend.tensor(value() if is_function(value) else value)


def present_rate(bound):
    """Returns the learning rate of the next step, as a tensor. Raises UnsupportedMemberError if there is not one."""
    if "learning_rate" not in bound.hyper_declarations():
        many = many_rates(bound, "learning_rate")
        raise UnsupportedMemberError(many or "{} has no learning rate".format(bound.owner))
    rate = present_value(bound, "learning_rate")
    for decay in decays_of(bound, "learning_rate"):
        updates = bound.backend.cast(bound.read_counter("updates"), "float32")
        rate = rate / (1 + present_value(bound, decay) * updates)
    return rate


class _WithNatives(Tracer):
    """A tracer of schedules that may have native ones in them. Those are leaves: their framework computes them."""

    def __init__(self, dtype, integer):
        super(_WithNatives, self).__init__(dtype, integer)
        self.natives = {}  # {leaf's name: (native schedule, count)}

    def native_schedule(self, schedule, count):
        """Returns the value of a native schedule at a count."""
        name = "native schedule", len(self.natives)
        self.natives[name] = schedule, self.as_value(count)
        return self.leaf(name, shape=())


def schedule_value(bound, schedule, read_count=None, native_counts=None):
    """Returns the value of an everstep.Schedule at a count of updates; by default that of the next step.

    Args:
        read_count: returns the count. Default None: the number of updates so far.
        native_counts: the dtype of counts that the API gives to its own schedules. Default None: that of its counters.
    """
    backend, tracer = bound.backend, _WithNatives("float32", bound.backend.stored("int64"))
    read_count = read_count or (lambda: bound.read_counter("updates"))
    value = schedule.value(tracer, tracer.count_leaf(("count", "updates"), shape=()))

    def read(leaf):
        if leaf not in tracer.natives:
            return backend.cast(read_count(), tracer.integer)
        native, count = tracer.natives[leaf]
        count = interpreter.lower(count.exact.integer if count.exact else count)
        return backend.cast(native(backend.cast(count, native_counts) if native_counts else count), tracer.dtype)

    interpreter = Interpreter(backend, read)
    return interpreter.lower(tracer.as_value(value))


def present_schedule(bound, schedule, native_counts=None):
    """Returns an everstep.Schedule itself, or its present value if native schedules are in it."""
    return schedule_value(bound, schedule, None, native_counts) if schedule._natives() else schedule


def kept(name, make):
    """Returns a function of the `Bound` that makes a tensor once in a graph: reading it must not grow the graph."""

    def read(bound):
        graph = bound.graph_now()
        if graph is None:
            return make(bound)
        if bound.tensors_read[0] is not graph:
            bound.tensors_read = graph, {}
        tensors = bound.tensors_read[1]
        if name not in tensors:
            tensors[name] = make(bound)
        return tensors[name]

    return read


def constant(name, value):
    """Returns the member that is a tensor with a constant value."""
    return StockMember(None, None, kept(name, lambda bound: bound.backend.constant(value, "float32")))


def number(value):
    """Returns the member that is a number."""
    return StockMember(None, None, lambda bound: value)


def slot_lists(*names):
    """Returns the members that list the slots of one name, in the order of the variables: {member: slot} pairs."""

    def listed(slot):
        def read(bound):
            found = [bound.adapter.find_slot(variable, slot) for variable in bound.adapter.trained()]
            return [variable for variable in found if variable is not None]

        return read

    return {member: StockMember("slot", slot, listed(slot)) for member, slot in names}


def _averages(bound):
    """Returns [(variable, the slot that is its average)] of those that have one, as `everstep.averaged` takes it."""
    found = []
    for variable in bound.adapter.trained():
        averaging = [node for node in walk(tree(bound.rule(variable)), active=True)
                     if overrides(node.definition, "evaluation_value")]
        if averaging and isinstance(averaging[-1].definition, Averages):
            found.append((variable, bound.adapter.find_slot(variable, averaging[-1].prefix + "average")))
    return found


def averages_of_all(bound):
    """Returns the slots that are the averages of the variables, in their order: Keras's SwapEMAWeights swaps them.

    Raises:
        UnsupportedMemberError: a variable has none.
    """
    averages = [average for _, average in _averages(bound)]
    if not averages or len(averages) < len(bound.adapter.trained()):
        raise UnsupportedMemberError("{} has no averages of all its variables".format(bound.owner))
    return averages


class Branch(object):
    """One of the optimizers of a partition, as callbacks of Keras see those of its MultiOptimizer."""

    def __init__(self, bound, rate):
        self._bound, self._rate = bound, rate
        self.name = rate.rpartition("/")[0].replace("/", "_")

    @property
    def learning_rate(self):
        value = self._bound.adapter.read(self._rate)
        return value if hasattr(value, "assign") else present_value(self._bound, self._rate)

    @learning_rate.setter
    def learning_rate(self, value):
        self._bound.adapter.set(self._rate, value)

    @property
    def use_ema(self):
        # Its averages are of all variables, and a callback that finds them twice swaps them back.
        has_averages = self._bound.native.use_ema or bool(_averages(self._bound))
        return has_averages and rates_of_branches(self._bound)[0] == self._rate

    @property
    def _trainable_variables(self):
        own = self._bound.native._trainable_variables
        return own if self._bound.native.use_ema else [variable for variable, _ in _averages(self._bound)]

    @property
    def _model_variables_moving_average(self):
        if self._bound.native.use_ema:
            return self._bound.native._model_variables_moving_average
        return [average for _, average in _averages(self._bound)]

    def __getattr__(self, name):
        if name.startswith("__"):  # copying asks for them before there is an optimizer
            raise AttributeError(name)
        return getattr(self._bound.native, name)


def branches(bound):
    """Returns a `Branch` for each learning rate. Raises UnsupportedMemberError if there is but one for all."""
    rates = rates_of_branches(bound)
    if not rates:
        raise UnsupportedMemberError("{} is one optimizer, it has no list of them".format(bound.owner))
    return [Branch(bound, rate) for rate in rates]


def check_counts(bound):
    """Raises UnsupportedMemberError before the optimizer has a counter: stock has None then."""
    if not bound.adapter.own_variables():
        raise UnsupportedMemberError(
            "{} counts no updates yet; call minimize or apply_gradients first".format(bound.owner)
        )


def private_hypers():
    """Returns the members of tf.train: hypers as given (`_lr`) and as tensors (`_lr_t`), and Adam's powers of beta."""

    def given(hyper):
        return lambda bound: bound.given(hyper)

    def tensor(name, hyper):
        def read(bound):
            if isinstance(bound.given(hyper), Schedule):
                check_counts(bound)
            return present_value(bound, hyper)

        return kept(name, read)

    def power(hyper):
        def read(bound):
            check_counts(bound)
            t = bound.backend.cast(bound.read_counter("updates"), "float32") + 1
            value = present_value(bound, hyper) ** t
            if bound.adapter.keeps_count and hasattr(value, "op"):
                # Programs that reset stock Adam give its two variables to tf.variables_initializer.
                value.initializer = bound.adapter.counter("updates").initializer
            return value

        return kept(hyper, read)

    members = {}
    for name, hyper in _PRIVATE_HYPERS:
        members[name] = StockMember("hyper", hyper, given(hyper))
        for ending in ("_t", "_tensor"):
            members[name + ending] = StockMember("hyper", hyper, tensor(name, hyper))
    first, second = power("beta_1"), power("beta_2")
    members["_beta1_power"] = StockMember("hyper", "beta_1", first)
    members["_beta2_power"] = StockMember("hyper", "beta_2", second)
    members["_get_beta_accumulators"] = StockMember(
        "hyper", "beta_2", lambda bound: lambda: (first(bound), second(bound))
    )
    return members


def searched(variable):
    """Returns the variable whose name stock searches for excluded ones: Keras 3 on TensorFlow takes the tf.Variable."""
    value = getattr(variable, "value", None)
    return value if hasattr(value, "assign_sub") else variable
