"""Takes the measurements of `python -m benchmarks` in one environment, and prints a line of JSON for each.

    python worker.py MEASURE ...

benchmarks/timing.py tells how.
"""
import importlib
import os
import sys
import time

import numpy as np

from timing import BATCHES, DENSE, DiffGrad, asked, gradients, report, selected

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import tensorflow as tf  # noqa: E402  # after its settings

import everstep  # noqa: E402

TABLES, COLUMNS = (10000, 100000, 1000000), 64
v1 = getattr(getattr(tf, "compat", None), "v1", None) or tf
TF = tuple(map(int, tf.__version__.split(".")[:2]))


class GraphCase(object):
    """An optimizer in a new graph."""

    def __init__(self, make, shapes, sparse, resource_variables):
        self.shapes, graph, random = shapes, tf.Graph(), np.random.RandomState(0)
        self.sparse, self.steps = sparse, 0
        with graph.as_default():
            variables, grads = [], []
            self.batch = v1.placeholder_with_default(0, ())
            for number, (shape, (values, rows)) in enumerate(zip(shapes, gradients(shapes, sparse, random))):
                options = dict(use_resource=resource_variables)
                name = "v{}".format(number)
                variables.append(v1.get_variable(name, shape, initializer=v1.zeros_initializer(), **options))
                grad = v1.get_variable(
                    name + "_grad", values.shape, initializer=v1.zeros_initializer(), trainable=False, **options
                )
                grads.append((grad, values, rows))
            pairs = []
            for variable, (grad, _, rows) in zip(variables, grads):
                value = grad.read_value()
                if rows is not None:
                    shape = tf.constant(variable.shape.as_list(), "int64")
                    value = tf.IndexedSlices(value, tf.constant(rows)[self.batch], shape)
                pairs.append((value, variable))
            before, start = len(graph.get_operations()), time.time()
            self.operation = self.build(make, pairs)
            self.nodes = (len(graph.get_operations()) - before) / len(shapes)
            self.first = time.time() - start
            self.session = self.make_session(graph)
            self.session.run(v1.global_variables_initializer())
            for grad, values, _ in grads:
                grad.load(values, self.session)
        start = time.time()
        self.run(1)
        self.first += time.time() - start

    def make_session(self, graph):
        return v1.Session(graph=graph)

    def build(self, make, pairs):
        return make().apply_gradients(pairs)

    def run(self, steps):
        for _ in range(steps):
            self.steps += 1
            self.session.run(self.operation, {self.batch: self.steps % BATCHES} if self.sparse else None)


class KerasCase(GraphCase):
    """`get_updates`, on given gradients."""

    def build(self, make, pairs):
        import keras

        optimizer = make()
        optimizer.get_gradients = lambda loss, params: [grad for grad, _ in pairs]
        updates = optimizer.get_updates(loss=tf.constant(0.0), params=[variable for _, variable in pairs])
        updates = [keras.backend.update(*each) if isinstance(each, tuple) else each for each in updates]
        return tf.group(*updates)

    def make_session(self, graph):
        import keras

        session = v1.Session(graph=graph)
        keras.backend.set_session(session)
        return session


class FunctionCase(object):
    """An optimizer in a tf.function."""

    def __init__(self, make, shapes, sparse, of_keras=None):
        self.shapes, random = shapes, np.random.RandomState(0)
        if of_keras:
            self.variables = [of_keras.Variable(np.zeros(shape, "float32")) for shape in shapes]
        else:
            self.variables = [tf.Variable(tf.zeros(shape)) for shape in shapes]
        given = [(tf.constant(values), rows) for values, rows in gradients(shapes, sparse, random)]
        self.batches = [self.grads(given, batch) for batch in range(BATCHES if sparse else 1)]
        self.steps = 0
        start = time.time()
        self.optimizer = make()
        if hasattr(self.optimizer, "build"):
            self.optimizer.build(self.variables)
        self.function = tf.function(self.apply)
        self.run(1)
        self.first = time.time() - start
        graph = self.function.get_concrete_function(self.batches[0]).graph.as_graph_def()
        functions = sum(len(function.node_def) for function in graph.library.function)
        self.nodes = (len(graph.node) + functions) / len(shapes)

    def grads(self, given, batch):
        return [
            values if rows is None else tf.IndexedSlices(values, tf.constant(rows[batch]), tf.constant(shape, tf.int64))
            for (values, rows), shape in zip(given, self.shapes)
        ]

    def apply(self, grads):
        self.optimizer.apply_gradients(list(zip(grads, self.variables)))

    def run(self, steps):
        for _ in range(steps):
            self.steps += 1
            self.function(self.batches[self.steps % len(self.batches)])


class EagerCase(FunctionCase):
    """An optimizer in eager mode."""

    def run(self, steps):
        for _ in range(steps):
            self.apply(self.batches[0])


class Target(object):
    """One API of this environment, and how to run an optimizer on it."""

    def __init__(self, name, module, run, native):
        self.name, self.module, self.run, self.native = name, module, run, native

    def bind(self, definition, **native):
        return lambda: definition.bind(self.module, **native)


def targets():
    graph = lambda make, shapes, sparse: GraphCase(make, shapes, sparse, False)  # noqa: E731
    train = v1.train
    yield Target("tf_train", train, graph, train.AdamOptimizer)
    resources = lambda make, shapes, sparse: GraphCase(make, shapes, sparse, True)  # noqa: E731
    yield Target("tf_train, resource", train, resources, train.AdamOptimizer)
    if TF < (2, 0):
        yield Target("optimizer_v2", tf.keras, resources, tf.keras.optimizers.Adam)
        try:
            import keras
        except ImportError:
            return
        run = lambda make, shapes, sparse: KerasCase(make, shapes, sparse, True)  # noqa: E731
        yield Target("get_updates", keras, run, keras.optimizers.Adam)
        return
    if TF < (2, 11):
        yield Target("optimizer_v2", tf.keras, FunctionCase, tf.keras.optimizers.Adam)
        return
    if TF < (2, 16):
        legacy = tf.keras.optimizers.legacy
        yield Target("optimizer_v2", legacy, FunctionCase, legacy.Adam)
        yield Target("update_step", tf.keras, FunctionCase, tf.keras.optimizers.Adam)
        return
    import keras

    run = lambda make, shapes, sparse: FunctionCase(make, shapes, sparse, keras)  # noqa: E731
    yield Target("keras3", keras, run, keras.optimizers.Adam)
    try:
        import tf_keras
    except ImportError:
        return
    legacy = tf_keras.optimizers.legacy
    yield Target("optimizer_v2", legacy, FunctionCase, legacy.Adam)
    yield Target("update_step", tf_keras, FunctionCase, tf_keras.optimizers.Adam)


ADAM = everstep.optimizers.Adam
WITHOUT = {"kernel": False}


def dense(target, case):
    shapes = DENSE[case]
    makes = {
        "native": target.native,
        "kernel": target.bind(ADAM()),
        "no kernel": target.bind(ADAM(), lowering=WITHOUT),
        "DiffGrad": target.bind(DiffGrad()),
    }
    if "--plain" in sys.argv:
        forbidden = dict.fromkeys(("kernel", "compiled", "flattened", "chunks"), False)
        makes["plain"] = target.bind(ADAM(), lowering=forbidden)
    if target.name == "tf_train, resource" and case == "B" and TF < (2, 0):
        makes["XLA"] = target.bind(ADAM(), lowering={"kernel": False, "compiled": True})  # opt-in for sessions
    return {label: target.run(make, shapes, False) for label, make in makes.items()}


# The case and the rule on which each strategy should pay.
STRATEGIES = {
    "kernel": ("B", ADAM()),
    "flattened": ("C", DiffGrad()),
    "compiled": ("B", DiffGrad()),
    "chunks": ("A", DiffGrad()),
    "in_place": ("B", DiffGrad()),
}


def strategies(target):
    """Yields the cases of each strategy in use: with it, and with it forbidden."""
    in_sessions = TF < (2, 0) or target.name.startswith("tf_train")
    for name, (case, definition) in STRATEGIES.items():
        if name in (("compiled",) if in_sessions else ("chunks", "in_place")):
            continue
        makes = {"native": target.bind(definition, lowering={name: False}), name: target.bind(definition)}
        yield name, {label: target.run(make, DENSE[case], False) for label, make in makes.items()}


def sparse(target, rows):
    shapes = [(rows, COLUMNS)]
    makes = {"native": target.native}
    for meaning in ("exact", "rows", "catch_up"):
        makes[meaning] = target.bind(ADAM(sparse=meaning))
    lazy_adam = _first(LAZY_ADAM.get(target.name.split(",")[0], ()))
    if lazy_adam:
        makes["LazyAdam"] = lazy_adam
    return {label: target.run(make, shapes, True) for label, make in makes.items()}


def flat(target, meaning):
    """One sparse mode on tables of different sizes: ratios are relative to the smallest."""
    make = target.bind(ADAM(sparse=meaning))
    return {str(rows): target.run(make, [(rows, COLUMNS)], True) for rows in TABLES}


def lazy(target):
    """Stock optimizers of tf.train that leave rows without a gradient alone, and ours in their place."""
    train, shapes = target.module, [(100000, COLUMNS)]
    stock = {
        "Momentum": lambda: train.MomentumOptimizer(0.01, 0.9),
        "RMSProp": lambda: train.RMSPropOptimizer(0.01, momentum=0.9),
        "Adadelta": lambda: train.AdadeltaOptimizer(0.01),
        "Ftrl": lambda: train.FtrlOptimizer(0.01),
    }
    for name, make in sorted(stock.items()):
        with tf.Graph().as_default():
            same = everstep.from_native(make())
        cases = {"native": make}
        for meaning in ("rows", "exact"):
            cases[meaning] = target.bind(same.replace(sparse=meaning))
        yield name, {label: target.run(maker, shapes, True) for label, maker in cases.items()}


# Popular optimizers for an API beside its own: (module, class, options, ours) by target, if installed.
LAZY_ADAM = {
    "tf_train": [("tensorflow.contrib.opt", "LazyAdamOptimizer", {})],
    "optimizer_v2": [("tensorflow_addons.optimizers", "LazyAdam", {})],
}
OURS = everstep.optimizers
PEERS = {
    "tf_train": [
        ("tensorflow.contrib.opt", "AdamWOptimizer", {"weight_decay": 0.01}, OURS.AdamW(weight_decay=0.01)),
        ("tensorflow.contrib.opt", "AddSignOptimizer", {}, OURS.AddSign()),
        ("tensorflow.contrib.opt", "NadamOptimizer", {}, OURS.Nadam(momentum_schedule=False, epsilon=1e-8)),
    ],
    "get_updates": [
        ("keras_adamw", "AdamW", {"total_iterations": 0}, OURS.AdamW()),
        ("keras.optimizers", "Nadam", {}, OURS.Nadam()),
        ("keras.optimizers", "RMSprop", {}, OURS.RMSprop()),
    ],
    "optimizer_v2": [
        ("tensorflow_addons.optimizers", name, {}, getattr(OURS, ours)())
        for name, ours in (
            ("AdaBelief", "AdaBelief"),
            ("LAMB", "LAMB"),
            ("NovoGrad", "NovoGrad"),
            ("RectifiedAdam", "RAdam"),
            ("Yogi", "Yogi"),
        )
    ],
    "update_step": [("keras.optimizers", name, {}, getattr(OURS, name)()) for name in ("Adafactor", "Lion", "Nadam")],
    "keras3": [("keras.optimizers", name, {}, getattr(OURS, name)()) for name in ("Adafactor", "Lion", "Nadam")],
}


def _first(named):
    """Returns a function that creates the first class that is installed, or None."""
    for module, name, options in named:
        try:
            optimizer_class = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
        return lambda: optimizer_class(**options)
    return None


def peers(target):
    """Rules of other libraries, and ours in their place."""
    for module, name, options, definition in PEERS.get(target.name, ()):
        make = _first([(module, name, options)])
        if make:
            cases = {"native": make, "everstep": target.bind(definition)}
            yield name, {label: target.run(maker, DENSE["B"], False) for label, maker in cases.items()}


def measure(names):
    for target in targets():
        target.run(target.native, [(2,)], False)  # keep one-time work of the process out of all first steps
        for case in DENSE:
            if selected(names, "dense", target.name, case):
                yield "dense", target.name, case, dense(target, case)
        for rows in TABLES:
            if selected(names, "sparse", target.name, str(rows)):
                yield "sparse", target.name, str(rows), sparse(target, rows)
        for meaning in ("rows", "catch_up"):
            if selected(names, "flat", target.name, meaning):
                yield "flat", target.name, meaning, flat(target, meaning)
        if target.run is FunctionCase and selected(names, "eager", target.name, "C"):
            cases = {"native": target.native, "kernel": target.bind(ADAM()), "DiffGrad": target.bind(DiffGrad())}
            yield "eager", target.name, "C", {k: EagerCase(make, DENSE["C"], False) for k, make in cases.items()}
        if target.name.startswith("tf_train") and selected(names, "lazy", target.name):
            for name, cases in lazy(target):
                yield "lazy", target.name, name, cases
        if selected(names, "strategies", target.name):
            for name, cases in strategies(target):
                yield "strategies", target.name, name, cases
        if selected(names, "peers", target.name):
            for name, cases in peers(target):
                yield "peers", target.name, name, cases


if __name__ == "__main__":
    report(measure(asked()))
