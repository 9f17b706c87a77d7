"""Runs optimizers of TensorFlow's APIs: in sessions, in functions, and in eager mode."""
import time

import numpy as np
import tensorflow as tf

import models
from apis import Api
from timing import BATCHES, Run, gradients

v1 = getattr(getattr(tf, "compat", None), "v1", None) or tf
v1.logging.set_verbosity(v1.logging.ERROR)
TF = tuple(map(int, tf.__version__.split(".")[:2]))


class Session(Run):
    """An optimizer in a new graph."""

    use_resource = False

    def __init__(self, make, shapes, look_ups=0):
        self.shapes, graph, random = shapes, tf.Graph(), np.random.RandomState(0)
        self.look_ups, self.steps = look_ups, 0
        with graph.as_default():
            self.variables, grads, ones = [], [], v1.ones_initializer()
            self.batch = v1.placeholder_with_default(0, ())
            for number, (shape, (values, rows)) in enumerate(zip(shapes, gradients(shapes, look_ups, random))):
                options = dict(initializer=ones, use_resource=self.use_resource)
                name = "v{}".format(number)
                self.variables.append(v1.get_variable(name, shape, **options))
                grad = v1.get_variable(name + "_grad", values.shape, trainable=False, **options)
                grads.append((grad, values, rows))
            pairs = []
            for variable, (grad, _, rows) in zip(self.variables, grads):
                value = grad.read_value()
                if rows is not None:
                    shape = tf.constant(variable.shape.as_list(), "int64")
                    value = tf.IndexedSlices(value, tf.constant(rows)[self.batch], shape)
                pairs.append((value, variable))
            before, start = len(graph.get_operations()), time.process_time()
            self.operation = self.build(make, pairs)
            self.nodes = (len(graph.get_operations()) - before) / len(shapes)
            self.first = time.process_time() - start
            self.session = self.make_session(graph)
            self.session.run(v1.variables_initializer(self.variables))  # averages start from their values
            self.session.run(v1.global_variables_initializer())
            given = {grad.initializer.inputs[1]: values for grad, values, _ in grads}  # one run: `load` is one for each
            self.session.run([grad.initializer for grad, _, _ in grads], given)
        start = time.process_time()
        self.run(1)
        self.first += time.process_time() - start

    def make_session(self, graph):
        return v1.Session(graph=graph)

    def build(self, make, pairs):
        return make().apply_gradients(pairs)

    def run(self, steps):
        for _ in range(steps):
            self.steps += 1
            self.session.run(self.operation, {self.batch: self.steps % BATCHES} if self.look_ups else None)

    def weights(self):
        return self.session.run(self.variables)


class ResourceSession(Session):
    use_resource = True


class GetUpdates(ResourceSession):
    """`get_updates` of Keras 2.3, on given gradients."""

    def build(self, make, pairs):
        import keras

        optimizer, given = make(), keras.backend.gradients
        keras.backend.gradients = lambda loss, params: [grad for grad, _ in pairs]  # stock clips what it returns
        try:
            updates = optimizer.get_updates(loss=tf.constant(0.0), params=[variable for _, variable in pairs])
        finally:
            keras.backend.gradients = given
        updates = [keras.backend.update(*each) if isinstance(each, tuple) else each for each in updates]
        return tf.group(*updates)

    def make_session(self, graph):
        import keras

        session = v1.Session(graph=graph)
        keras.backend.set_session(session)
        return session


class Function(Run):
    """An optimizer in a tf.function, on variables of TensorFlow."""

    def __init__(self, make, shapes, look_ups=0):
        self.shapes, random = shapes, np.random.RandomState(0)
        self.variables = [self.variable(shape, "v{}".format(number)) for number, shape in enumerate(shapes)]
        given = [(tf.constant(values), rows) for values, rows in gradients(shapes, look_ups, random)]
        self.batches = [self.grads(given, batch) for batch in range(BATCHES if look_ups else 1)]
        self.steps = 0
        start = time.process_time()
        self.optimizer = make()
        if hasattr(self.optimizer, "build"):
            self.optimizer.build(self.variables)
        self.begin()
        self.first = time.process_time() - start

    def begin(self):
        self.function = tf.function(self.apply)
        self.run(1)
        graph = self.function.get_concrete_function(self.batches[0]).graph.as_graph_def()
        functions = sum(len(function.node_def) for function in graph.library.function)
        self.nodes = (len(graph.node) + functions) / len(self.shapes)

    def variable(self, shape, name):
        return tf.Variable(tf.ones(shape), name=name)

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

    def weights(self):
        return [np.asarray(variable) for variable in self.variables]


class Eager(Function):
    """An optimizer in eager mode."""

    def begin(self):
        self.run(1)

    def run(self, steps):
        for _ in range(steps):
            self.steps += 1
            self.apply(self.batches[self.steps % len(self.batches)])


class _KerasVariables(object):
    def variable(self, shape, name):
        import keras

        return keras.Variable(np.ones(shape, "float32"), name=name)


class Keras3Function(_KerasVariables, Function):
    """An optimizer of Keras 3 in a tf.function."""


class Keras3Eager(_KerasVariables, Eager):
    """An optimizer of Keras 3 in eager mode."""


class GraphFit(models.Fit):
    """Steps of a Keras model on TF 1, in a graph of its own."""

    def __init__(self, keras, name, make):
        self.session = v1.Session(graph=tf.Graph())
        with self.session.graph.as_default(), self.session.as_default():
            models.Fit.__init__(self, keras, name, make)

    def run(self, steps):
        with self.session.graph.as_default(), self.session.as_default():
            models.Fit.run(self, steps)

    def weights(self):
        with self.session.graph.as_default(), self.session.as_default():
            return models.Fit.weights(self)


class SessionModel(Run):
    """Steps of a model whose loss a `tf.train` optimizer minimizes."""

    def __init__(self, name, make):
        start = time.process_time()
        with tf.Graph().as_default() as graph:
            words, following = models.data()
            model = models.network(tf.keras, name)
            chosen = tf.one_hot(following[:, 0], models.WORDS)
            loss = -tf.reduce_mean(v1.log(tf.reduce_sum(chosen * model(tf.constant(words)), 1)))
            self.variables = model.trainable_weights
            self.operation = make().apply_gradients(list(zip(tf.gradients(loss, self.variables), self.variables)))
            self.session = v1.Session(graph=graph)
            self.session.run(v1.global_variables_initializer())
        self.shapes = [tuple(variable.shape.as_list()) for variable in self.variables]
        self.run(1)
        self.first = time.process_time() - start

    def run(self, steps):
        for _ in range(steps):
            self.session.run(self.operation)

    def weights(self):
        return self.session.run(self.variables)


def apis():
    train = v1.train
    yield Api("tf_train", train, train, Session, sessions=True)
    whole = SessionModel if TF < (2, 16) else None  # Keras 3 has no graphs
    yield Api("tf_train, resource", train, train, ResourceSession, model=whole, sessions=True, opt_in_xla=TF < (2, 0))
    if TF < (2, 0):
        yield from _apis_of_tf_1()
    elif TF < (2, 11):
        yield _of_functions("optimizer_v2", tf.keras, tf.keras.optimizers, tf.keras)
    elif TF < (2, 16):
        yield from _two_of(tf.keras)
    else:
        import keras

        yield _of_functions("keras3", keras, keras.optimizers, keras, Keras3Function, Keras3Eager)
        try:
            import tf_keras
        except ImportError:
            return
        yield from _two_of(tf_keras)


def _two_of(keras):
    """Yields the APIs of Keras 2.11 to 2.15 and tf_keras."""
    legacy = keras.optimizers.legacy
    yield _of_functions("optimizer_v2", legacy, legacy, keras)
    yield _of_functions("update_step", keras, keras.optimizers, keras)


def _of_functions(name, module, optimizers, keras, run=Function, eager=Eager):
    return Api(name, module, optimizers, run, eager, lambda model, make: models.Fit(keras, model, make))


def _apis_of_tf_1():
    of_tf = lambda name, make: GraphFit(tf.keras, name, make)  # noqa: E731
    yield Api("optimizer_v2", tf.keras, tf.keras.optimizers, ResourceSession, model=of_tf, sessions=True)
    try:
        import keras
    except ImportError:
        return
    of_keras = lambda name, make: GraphFit(keras, name, make)  # noqa: E731
    yield Api("get_updates", keras, keras.optimizers, GetUpdates, model=of_keras, sessions=True)
