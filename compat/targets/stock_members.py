"""Attributes that only some stock classes have, and that people's code reads: the present rate, decay, lists of slots.

Each target lists its own in `stock_members`.
"""
from __future__ import absolute_import, division, print_function

from collections import namedtuple

from everstep.compat.engine.trace import Tracer
from everstep.compat.targets.hypers import is_function
from everstep.errors import UnsupportedMemberError
from everstep.optimizers.contract import Schedule

# kind, needs: the definition has it if it declares this hyper or slot; None if every definition has it.
# read: a function of the optimizer that returns the attribute's value.
StockMember = namedtuple("StockMember", "kind needs read")

_PRIVATE_HYPERS = (
    ("_lr", "learning_rate"), ("_learning_rate", "learning_rate"), ("_beta1", "beta_1"), ("_beta2", "beta_2"),
    ("_epsilon", "epsilon"), ("_momentum", "momentum"),
)


def present_value(optimizer, name):
    """Returns the value that the next step uses for a hyper, as a tensor."""
    value = optimizer.hyper(name)
    if isinstance(value, Schedule):
        return schedule_value(optimizer, value)
    return optimizer.backend.tensor(value() if is_function(value) else value)


def present_rate(optimizer):
    """Returns the learning rate of the next step, as a tensor. Raises UnsupportedMemberError if there is not one."""
    if "learning_rate" not in optimizer.hyper_declarations():
        many = optimizer._many_rates("learning_rate")
        raise UnsupportedMemberError(many or "{} has no learning rate".format(type(optimizer).__name__))
    return present_value(optimizer, "learning_rate")


def schedule_value(optimizer, schedule):
    """Returns the value of an everstep.Schedule at the next step."""
    tracer = Tracer(optimizer.backend, "float32")
    value = schedule.value(tracer, tracer.count_leaf(lambda: optimizer.read_counter("updates"), shape=()))
    return tracer.lower(value if hasattr(value, "tracer") else tracer.constant(value), {})


def kept(name, make):
    """Returns a function of the optimizer that makes a tensor once in a graph: reading it must not grow the graph."""

    def read(optimizer):
        graph = optimizer._graph_now()
        if graph is None:
            return make(optimizer)
        if optimizer.__dict__.get("_tensors_read", (None,))[0] is not graph:
            optimizer.__dict__["_tensors_read"] = graph, {}
        tensors = optimizer.__dict__["_tensors_read"][1]
        if name not in tensors:
            tensors[name] = make(optimizer)
        return tensors[name]

    return read


def constant(name, value):
    """Returns the member that is a tensor with a constant value."""
    return StockMember(None, None, kept(name, lambda optimizer: optimizer.backend.constant(value, "float32")))


def number(value):
    """Returns the member that is a number."""
    return StockMember(None, None, lambda optimizer: value)


def slot_lists(*names):
    """Returns the members that list the slots of one name, in the order of the variables: {member: slot} pairs."""

    def listed(slot):
        def read(optimizer):
            found = [optimizer.find_slot(variable, slot) for variable in optimizer.trained()]
            return [variable for variable in found if variable is not None]

        return read

    return {member: StockMember("slot", slot, listed(slot)) for member, slot in names}


class Branch(object):
    """One of the optimizers of a partition, as callbacks of Keras see those of its MultiOptimizer."""

    def __init__(self, optimizer, rate):
        self._optimizer, self._rate = optimizer, rate
        self.name = rate.rpartition("/")[0].replace("/", "_")

    @property
    def learning_rate(self):
        value = self._optimizer.read_hyper(self._rate)
        return value if hasattr(value, "assign") else present_value(self._optimizer, self._rate)

    @learning_rate.setter
    def learning_rate(self, value):
        self._optimizer.set_hyper(self._rate, value)

    @property
    def use_ema(self):
        # Its averages are of all variables, and a callback that finds them twice swaps them back.
        return self._optimizer.use_ema and self._optimizer.rates_of_branches()[0] == self._rate

    def __getattr__(self, name):
        if name.startswith("__"):  # copying asks for them before there is an optimizer
            raise AttributeError(name)
        return getattr(self._optimizer, name)


def branches(optimizer):
    """Returns a `Branch` for each learning rate. Raises UnsupportedMemberError if there is but one for all."""
    rates = optimizer.rates_of_branches()
    if not rates:
        raise UnsupportedMemberError("{} is one optimizer, it has no list of them".format(type(optimizer).__name__))
    return [Branch(optimizer, rate) for rate in rates]


def check_counts(optimizer):
    """Raises UnsupportedMemberError before the optimizer has a counter: stock has None then."""
    if not optimizer.own_variables():
        raise UnsupportedMemberError(
            "{} counts no updates yet; call minimize or apply_gradients first".format(type(optimizer).__name__)
        )


def private_hypers():
    """Returns the members of tf.train: hypers as given (`_lr`) and as tensors (`_lr_t`), and Adam's powers of beta."""

    def given(hyper):
        return lambda optimizer: optimizer.given_hyper(hyper)

    def tensor(name, hyper):
        def read(optimizer):
            if isinstance(optimizer.given_hyper(hyper), Schedule):
                check_counts(optimizer)
            return present_value(optimizer, hyper)

        return kept(name, read)

    def power(hyper):
        def read(optimizer):
            check_counts(optimizer)
            t = optimizer.backend.cast(optimizer.read_counter("updates"), "float32") + 1
            return present_value(optimizer, hyper) ** t

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
        "hyper", "beta_2", lambda optimizer: lambda: (first(optimizer), second(optimizer))
    )
    return members


def searched(variable):
    """Returns the variable whose name stock searches for excluded ones: Keras 3 on TensorFlow takes the tf.Variable."""
    value = getattr(variable, "value", None)
    return value if hasattr(value, "assign_sub") else variable
