"""Foreign optimizers, built and run on their own API, on variables of given shapes."""
from __future__ import absolute_import, division, print_function

import sys

import numpy as np

from everstep.compat.port.looks import Looks
from everstep.compat.port.ordering import order_reads, root_of, session_config
from everstep.compat.port.setting import SEED
from everstep.compat.port.variables import LocalNames, arguments_of, flags_of, fresh, reachable
from everstep.compat.targets.detect import TARGETS
from everstep.errors import EverstepError, PortError

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments


class Kind(object):
    """A foreign optimizer: what makes it, and the API that it is of.

    Args:
        factory: a class, or a function of keywords that returns an optimizer.

    Attributes:
        target: the name of the API, as in `everstep doctor`.
        cls: the class of the optimizers.
        order: how a counter is read that the graph does not order: "before" or "after" its increment; "open" to leave
            it so; None if `racing.settle` has not found it yet, which is as "before".
        renamed: {an argument's name here: its own name}.
        order_note: a sentence on what the original shows of that; None if all is ordered.
    """

    def __init__(self, factory, arguments):
        import tensorflow

        self.tf, self.factory = tensorflow, factory
        self.order, self.order_note, self.renamed = None, None, {}  # type: Any, Any, dict[str, str]
        self.tf1 = getattr(getattr(tensorflow, "compat", None), "v1", tensorflow)
        self.cls = factory if isinstance(factory, type) else self._made(arguments)
        self.target = next((api.name for api in TARGETS if api.speaks(self.cls)), None)
        if self.target is None or hasattr(self.cls, "definition_class"):
            raise PortError(
                "{} is an optimizer of no API that can be ported: tf.train, OptimizerV2, get_updates, new-style Keras, "
                "Keras 3 on TensorFlow".format(self.cls.__name__)
            )
        if self.target == "keras3" and sys.modules["keras"].backend.backend() != "tensorflow":
            raise PortError(
                "{} runs on {}; its update is read from a TensorFlow graph: start Python with "
                "KERAS_BACKEND=tensorflow".format(self.cls.__name__, sys.modules["keras"].backend.backend())
            )
        eager = getattr(tensorflow, "executing_eagerly", lambda: False)()
        self.in_graph = self.target in ("tf_train", "get_updates") or not eager

    def _made(self, arguments):
        with self.tf1.Graph().as_default():
            return type(self.make(arguments))

    def make(self, arguments):
        try:
            return self.factory(**{self.renamed.get(name, name): fresh(value) for name, value in arguments.items()})
        except EverstepError:
            raise
        except Exception as error:
            raise PortError("{}({}) cannot be made: {}: {}".format(
                getattr(self.factory, "__name__", "the function"),
                ", ".join("{}={!r}".format(*item) for item in sorted(arguments.items())), type(error).__name__, error))


class Original(object):
    """An original in a graph, and ready to run.

    Attributes:
        optimizer: the original.
        graph, ops: its graph, and the ops of one step in order.
        in_order: whether they run in this order, or wait for one another alone.
        inputs: {name of a tensor: number of the variable whose gradient it is}.
        found: {key: [(path, native variable)]}: the variables of the graph, and where the optimizer has them.
        counters: the native variables that count steps.
        unordered: [(op that reads, op that writes)] that the graph left open, once it is ready to run.
        local_names: {name of a tensor: name of a local variable}, and of variables.
        flags: {attribute: True or False} before the first step.
        looks: what it asked about its variables, a `Looks`.
    """

    def __init__(self, kind, setting):
        self.kind, self.setting = kind, setting
        self.tf, self.tf1 = kind.tf, kind.tf1
        self.found, self.inputs, self.captured, self.unordered = {}, {}, {}, []
        self.looks, self.optimizer = Looks(), None  # type: Looks, Any
        self.local_names = LocalNames(self.looks)

    def key_of(self, native):
        """Returns the key of a variable in the graph; None if it is not in it."""
        raise NotImplementedError

    @staticmethod
    def of(kind, setting):
        """Builds an original for a `Setting`."""
        if setting.dtype == "float32":
            return Original._of(kind, setting)
        backends = [module.backend for module in (sys.modules.get("keras"), getattr(kind.tf, "keras", None))
                    if hasattr(getattr(module, "backend", None), "set_floatx")]
        before = [backend.floatx() for backend in backends]
        try:
            for backend in backends if setting.dtype != "bfloat16" else ():  # models of another dtype are made so
                backend.set_floatx(setting.dtype)
            return Original._of(kind, setting)
        finally:
            for backend, dtype in zip(backends, before):
                backend.set_floatx(dtype)

    @staticmethod
    def _of(kind, setting):
        if not kind.in_graph:
            return FunctionOriginal(kind, setting)
        if kind.target != "tf_train" or setting.resource is not None:
            return GraphOriginal(kind, setting)
        # The variables of the API's time first. Classes of TF 1 may know no others, and later ones no ref variables.
        ref_first = kind.tf.__version__.startswith("1.")
        first, second = (False, True) if ref_first else (True, False)
        try:
            return GraphOriginal(kind, setting.of(first))
        except (NotImplementedError, AttributeError, TypeError) as error:
            try:
                return GraphOriginal(kind, setting.of(second))
            except NotImplementedError:
                raise error

    def note(self, path, native):
        key = self.key_of(native)
        if key is not None and (path, native) not in [(old, each) for old, each in self.found.get(key, ())]:
            self.found.setdefault(key, []).append((path, native))

    def numbers_kept(self):
        """Returns {path: number} of the Python numbers that the optimizer holds, which a graph cannot change."""
        numbers = {}
        for owner_path, owner in optimizers_in(self.optimizer):
            for name, value in vars(owner).items():
                if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
                    numbers[owner_path + name] = value
        return numbers

    def check_numbers(self, before):
        """Raises PortError if a step changed a Python number of the optimizer."""
        after = self.numbers_kept()
        changed = sorted(name for name in before if name in after and after[name] != before[name])
        changed = [name for name in changed if name.split(".")[-1] not in IGNORED_NUMBERS]
        if changed:
            name = changed[0]
            raise PortError(
                "{} keeps state in a Python attribute: {} was {!r}, and is {!r} after a step. A graph freezes such a "
                "number; keep it in a variable, or compute it from the count of updates".format(
                    self.kind.cls.__name__, name, before[name], after[name]))


# Numbers that frameworks count themselves.
IGNORED_NUMBERS = ("_uid", "_self_update_uid", "_deferred_slot_restorations", "_version", "updates_count")


def optimizers_in(optimizer):
    """Yields (path, optimizer) of an optimizer and those that it holds."""
    yield "", optimizer
    for name, value in sorted(vars(optimizer).items()):
        if value is not optimizer and any(hasattr(value, hook) for hook in ("apply_gradients", "get_updates")):
            if not isinstance(value, type):
                yield name + ".", value


class GraphOriginal(Original):
    """An original in a graph of TF 1, with its session."""

    in_order = False

    def __init__(self, kind, setting):
        super(GraphOriginal, self).__init__(kind, setting)
        self.graph = self.tf1.Graph()
        self._session = self.tf1.Session(graph=self.graph)
        self._keras = self._backend()
        with self.graph.as_default(), self._session.as_default():  # Keras takes the default session for its own
            self._build(setting)

    def _build(self, setting):
        self.tf1.set_random_seed(SEED)
        start = setting.start()
        self.variables = [self._variable(name, value) for name, value in zip(setting.names, start)]
        self.feeds = [self._feeds(value) for value in start]
        with self.looks.at(self.variables):
            self.optimizer = self.kind.make(setting.arguments)
            self.flags = flags_of(self.optimizer)
            with self.local_names.of(self.optimizer):
                self.fetches = self._step()
        self.collect()
        if self.kind.order == "after":
            self._order()
        if setting.check_state:
            before = self.numbers_kept()
            self._step_again()
            self.check_numbers(before)

    def _step_again(self):
        with self.tf1.variable_scope(self.tf1.get_variable_scope(), reuse=True):
            try:
                self._step()
            except ValueError:  # it names its slots itself, and cannot do so twice
                pass

    def _backend(self):
        """Returns Keras's backend module for classes with `get_updates`; None for others."""
        if self.kind.target != "get_updates":
            return None
        base = next(base for base in reversed(self.kind.cls.__mro__) if "get_updates" in vars(base))
        return sys.modules[base.__module__].K

    def _variable(self, name, value):
        if self._keras is not None:
            return self._keras.variable(value, name=name)
        resource = True if self.setting.resource is None else self.setting.resource
        return self.tf1.get_variable(name, initializer=value, use_resource=resource)

    def _feeds(self, value):
        dtype = self.setting.dtype
        if not self.setting.sparse:
            return [self.tf1.placeholder(dtype, value.shape)]
        return [self.tf1.placeholder(dtype, (None,) + value.shape[1:]), self.tf1.placeholder(np.int64, (None,))]

    def _gradient(self, feeds, variable):
        if len(feeds) == 1:
            return feeds[0]
        shape = self.tf.constant(np.array(variable.get_shape().as_list(), np.int64))
        return self.tf.IndexedSlices(feeds[0], feeds[1], shape)

    def _step(self):
        if self._keras is not None:
            return self._updates()
        pairs = [(self._gradient(feeds, variable), variable) for feeds, variable in zip(self.feeds, self.variables)]
        arguments = arguments_of(self.optimizer.apply_gradients)
        if self.kind.target == "tf_train":
            step = self.tf1.train.get_or_create_global_step()
            if "global_step" in arguments:
                return [self.optimizer.apply_gradients(pairs, global_step=step)]
        return [self.optimizer.apply_gradients(pairs)]

    def _updates(self):
        """Returns the updates of a Keras class, whose gradients are those of a sum of products."""
        tf, keras = self.tf, self._keras
        products = []
        for feeds, variable in zip(self.feeds, self.variables):
            value = variable if len(feeds) == 1 else keras.gather(variable, feeds[1])
            products.append(tf.reduce_sum(value * feeds[0]))
        loss = tf.add_n(products)
        arguments = arguments_of(self.optimizer.get_updates)
        if "constraints" in arguments:
            updates = self.optimizer.get_updates(self.variables, {}, loss)
        else:
            updates = self.optimizer.get_updates(loss, self.variables)
        ops = [self.tf1.assign(*update) if isinstance(update, tuple) else update for update in updates]
        return [op for op in ops if op is not None]

    def key_of(self, native):
        handle = getattr(native, "handle", None)
        op = getattr(handle, "op", None) or getattr(native, "op", None)
        return getattr(op, "name", None)

    def collect(self):
        for place, variable in enumerate(self.variables):
            self.note("variable {}".format(place), variable)
        for path, native in reachable(self.optimizer):
            self.note(path, native)
        for native in self.graph.get_collection("variables"):
            self.note("", native)
        self.inputs = {feeds[0].name: place for place, feeds in enumerate(self.feeds)}
        self.counters = counters_of(self.optimizer)
        if self.kind.target == "tf_train":
            self.counters.append(self.tf1.train.get_global_step())

    def start_running(self, moves_counter=True):
        """Starts the session. moves_counter: False if the step does not count itself, as in some classes of TF 1."""
        self._order()
        self._session.close()  # one that ran something, as K.get_value does, does not see new edges
        config = session_config(self.tf1) if self.unordered and self.kind.order != "open" else None
        self._session = self.tf1.Session(graph=self.graph, config=config)
        with self.graph.as_default():
            with self.tf1.control_dependencies([getattr(fetch, "op", fetch) for fetch in self.fetches]):
                step = self.tf1.train.get_global_step() if self.kind.target == "tf_train" else None
                more = [] if moves_counter or step is None else [self.tf1.assign_add(step, 1)]
                self._done = self.tf1.group(*(list(self.fetches) + more))
            initial = self.tf1.global_variables_initializer()
        self._session.run([variable.initializer for variable in self.variables])  # slots may start from them
        self._session.run(initial)

    def _order(self):
        counters = [self.graph.get_operation_by_name(self.key_of(native)) for native in self.counters]
        self.unordered += order_reads(
            self.fetches, self.graph, counters, self.kind.order == "after", self.kind.order != "open")

    def counter_pairs(self):
        """Returns those of `unordered` that are of a counter."""
        names = [self.key_of(native) for native in self.counters]
        return [pair for pair in self.unordered if getattr(root_of(pair[1]), "name", None) in names]

    def step(self, batch):
        feeds = {}
        for placeholders, gradient in zip(self.feeds, batch):
            values = gradient if self.setting.sparse else (gradient,)
            feeds.update(zip(placeholders, values))
        self._session.run(self._done, feeds)

    def number(self, native):
        return np.array(self._session.run(native))

    def weights(self):
        return [np.array(value) for value in self._session.run(self.variables)]

    def close(self):
        self._session.close()


def _argument(place):
    """Returns the name of a function's argument, a tensor of the gradients."""
    return "tensor_{}".format(place)


class FunctionOriginal(Original):
    """An original in a `tf.function`."""

    in_order = True

    def __init__(self, kind, setting, eagerly=False):
        super(FunctionOriginal, self).__init__(kind, setting)
        self.variables = [self._variable(name, value) for name, value in zip(setting.names, setting.start())]
        with self.looks.at(self.variables):
            self.optimizer = kind.make(setting.arguments)
            self._make_state()
        self.eagerly, self.flags = eagerly, flags_of(self.optimizer)
        if eagerly:
            return
        before = None
        for _ in range(2 if setting.check_state else 1):
            function = self.tf.function(self._apply, autograph=False)
            with self.local_names.of(self.optimizer) if before is None else _Nothing(), self.looks.at(self.variables):
                concrete = function.get_concrete_function(*self._specifications())
            if before is None:
                self._function, self.graph = concrete, concrete.graph
            else:
                self.check_numbers(before)
            before = self.numbers_kept()
        self.fetches = list(self.graph.control_outputs) + list(self.graph.outputs)
        self.collect()

    def _make_state(self):
        if hasattr(self.optimizer, "_create_all_weights"):
            self.optimizer._create_all_weights(self.variables)
        elif hasattr(self.optimizer, "build"):
            self.optimizer.build(self.variables)
        elif hasattr(self.optimizer, "_create_slots"):
            self.optimizer.iterations  # noqa: B018  # makes the variable
            self.optimizer._create_hypers()
            self.optimizer._create_slots(self.variables)

    def _variable(self, name, value):
        if self.kind.target != "keras3":
            return self.tf.Variable(value, name=name)
        scope, _, rest = name.partition("/")
        if not rest:
            return sys.modules["keras"].Variable(value, name=name)
        with sys.modules["keras"].name_scope(scope):
            return self._variable(rest, value)

    def _specifications(self):
        tf, specifications = self.tf, []
        for shape in self.setting.shapes:
            if self.setting.sparse:
                specifications += [((None,) + tuple(shape[1:]), self.setting.dtype), ((None,), tf.int64)]
            else:
                specifications.append((shape, self.setting.dtype))
        return [tf.TensorSpec(*each, name=_argument(place)) for place, each in enumerate(specifications)]

    def _apply(self, *tensors):
        gradients = list(tensors)
        if self.setting.sparse:
            gradients = [
                self.tf.IndexedSlices(tensors[2 * place], tensors[2 * place + 1], self.tf.constant(shape, np.int64))
                for place, shape in enumerate(self.setting.shapes)
            ]
        if self.kind.target == "keras3" and type(self.optimizer).__name__ == "LossScaleOptimizer":
            gradients = [gradient * self.optimizer.scale_loss(1.0) for gradient in gradients]
        self.optimizer.apply_gradients(list(zip(gradients, self.variables)))

    def key_of(self, native):
        return self.captured.get(id(getattr(native, "_value", native).handle))

    def collect(self):
        arguments = [tensor.name for tensor in self.graph.inputs]
        self.constants = {}
        for external, internal in self.graph.captures:
            arguments.remove(internal.name)
            if "resource" in str(internal.dtype):
                self.captured[id(external)] = internal.name
            else:
                self.constants[internal.name] = np.asarray(external)
        self.inputs = {name: place for place, name in enumerate(arguments[:: 2 if self.setting.sparse else 1])}
        for place, variable in enumerate(self.variables):
            self.note("variable {}".format(place), variable)
        for path, native in reachable(self.optimizer):
            self.note(path, native)
        self.counters = counters_of(self.optimizer)

    def start_running(self, moves_counter=True):
        self.unordered = []

    def step(self, batch):
        tensors = []
        for gradient in batch:
            tensors += map(self.tf.constant, gradient if self.setting.sparse else (gradient,))
        if self.eagerly:
            self._apply(*tensors)
        else:  # by name, because TF 2.3 takes no more positions than the Python function names
            self._function(**{_argument(place): tensor for place, tensor in enumerate(tensors)})

    def number(self, native):
        return np.array(getattr(native, "_value", native).numpy())

    def weights(self):
        return [self.number(variable) for variable in self.variables]

    def close(self):
        pass


class _Nothing(object):
    def __enter__(self):
        return self

    def __exit__(self, *unused):
        return False


def counters_of(optimizer):
    """Returns the native variables that an optimizer, or one inside, counts its steps in."""
    counters = []
    for _, each in optimizers_in(optimizer):
        if getattr(each, "iterations", None) is not None:
            counters.append(each.iterations)
    return counters
