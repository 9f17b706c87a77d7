"""Trains an optimizer of NumPy or TensorFlow: `Run(make, start, kinds)`, then `step`, `weights`, `slot`, `resumed`.

Gradients are passed in, so that every API gets the same ones.
"""
from __future__ import absolute_import, division, print_function

import os
import shutil
import tempfile
from collections import OrderedDict

import numpy as np

from everstep.compat.backends.on_numpy import IndexedSlices
from everstep.compat.backends.on_tensorflow import with_names_of_tf1
from everstep.compat.state.capture import capture
from everstep.compat.state.restore import restore

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

DENSE, SPARSE, NONE = "dense", "sparse", "none"


def graph_mode_tensorflow():
    """Returns TensorFlow with the names of TF 1."""
    import tensorflow

    return with_names_of_tf1(tensorflow)


class Run(object):
    """One model in training.

    Args:
        make: a function that returns the bound optimizer.
        start: {name: array}, the start values of the variables.
        kinds: {name: DENSE, SPARSE or NONE}, the kinds of their gradients.
    """

    optimizer = None  # type: Any
    variables = None  # type: Any

    def __init__(self, make, start, kinds):
        self.make, self.kinds, self.names = make, kinds, sorted(start)
        self.start = start
        self.build()

    def build(self):
        """Creates the variables and the optimizer."""
        raise NotImplementedError

    def trained(self):
        return [name for name in self.names if self.kinds[name] != NONE]

    def flush(self):
        """Applies all deferred updates of all rows."""
        self.optimizer.flush()

    def catch_up(self, name, rows):
        """Applies the deferred updates of the rows that are read next."""
        self.optimizer.catch_up(self.variables[name], rows)

    def captured(self, **more):
        """Returns the `everstep.State` of the optimizer."""
        return capture(self.optimizer, self.variables, session=getattr(self, "session", None), **more)

    def restored(self, state, **more):
        return restore(self.optimizer, state, self.variables, session=getattr(self, "session", None), **more)

    def close(self):
        pass


class ArraysRun(Run):
    def build(self):
        self.variables = {name: np.array(value) for name, value in self.start.items()}
        self.optimizer = self.make()

    def step(self, grads):
        pairs = []
        for name in self.names:
            grad = grads[name]
            pairs.append((IndexedSlices(*grad) if isinstance(grad, tuple) else grad, self.variables[name]))
        self.optimizer.apply_gradients(pairs)

    def weights(self):
        return {name: value.copy() for name, value in self.variables.items()}

    def slot(self, name, slot):
        return self.optimizer.get_slot(self.variables[name], slot).copy()

    def set_rate(self, rate):
        self.optimizer.learning_rate = rate

    def in_order(self):
        """Returns the trained variables in order: a state names arrays by the order in which steps first saw them."""
        return OrderedDict((name, self.variables[name]) for name in self.trained())

    def resumed(self):
        state = capture(self.optimizer, self.in_order())
        other = ArraysRun(self.make, self.weights(), self.kinds)
        restore(other.optimizer, state, other.in_order())
        return other


class GraphRun(Run):
    """A TF 1 graph and its session."""

    resource = True

    def apply(self, pairs):
        """Returns the train operation of (gradient, variable) pairs."""
        return self.optimizer.apply_gradients(pairs)

    def build(self):
        self.tf = tf = graph_mode_tensorflow()
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.variables = {
                name: tf.get_variable(name, initializer=tf.constant(self.start[name]), use_resource=self.resource)
                for name in self.names
            }
            self.feeds, pairs = {}, []
            for name in self.names:
                pairs.append((self.placeholder(name), self.variables[name]))
            self.rate = tf.placeholder_with_default(np.float32(0), [])
            self.optimizer = self.make()
            self.train_op = self.apply(pairs)
            self.saver = tf.train.Saver(max_to_keep=None)
            self.session = tf.Session(graph=self.graph)
            self.session.run(tf.global_variables_initializer())

    def placeholder(self, name):
        tf, value = self.tf, self.start[name]
        if self.kinds[name] == NONE:
            return None
        dtype = tf.as_dtype(value.dtype)
        if self.kinds[name] == DENSE:
            self.feeds[name] = (tf.placeholder(dtype, value.shape),)
            return self.feeds[name][0]
        self.feeds[name] = tf.placeholder(dtype, (None,) + value.shape[1:]), tf.placeholder(tf.int64, (None,))
        return tf.IndexedSlices(*self.feeds[name], dense_shape=tf.constant(value.shape))

    def feed(self, grads):
        fed = {}
        for name, holders in self.feeds.items():
            grad = grads[name] if isinstance(grads[name], tuple) else (grads[name],)
            fed.update(zip(holders, grad))
        return fed

    def step(self, grads):
        self.session.run(self.train_op, self.feed(grads))

    def flush(self):
        with self.graph.as_default():
            self.session.run(self.optimizer.flush())

    def catch_up(self, name, rows):
        if not hasattr(self, "catching_up"):
            with self.graph.as_default():
                holder = self.tf.placeholder(self.tf.int64)
                self.catching_up = holder, self.optimizer.catch_up(self.variables[name], holder)
        self.session.run(self.catching_up[1], {self.catching_up[0]: rows})

    def weights(self):
        return self.session.run(self.variables)

    def slot(self, name, slot):
        with self.graph.as_default():
            return self.session.run(self.optimizer.get_slot(self.variables[name], slot))

    def resumed(self):
        folder = tempfile.mkdtemp()
        try:
            with self.graph.as_default():
                path = self.saver.save(self.session, os.path.join(folder, "model"), write_meta_graph=False)
            other = type(self)(self.make, self.start, self.kinds)
            with other.graph.as_default():
                other.saver.restore(other.session, path)
        finally:
            shutil.rmtree(folder)
        return other

    def close(self):
        self.session.close()


class TrainResourceRun(GraphRun):
    pass


class TrainRefRun(TrainResourceRun):
    resource = False


class V2SessionRun(GraphRun):
    def set_rate(self, rate):
        # Set a graph variable in its own session: K.set_value uses another one.
        initializer = self.optimizer.learning_rate.initializer
        self.session.run(initializer, {initializer.inputs[1]: rate})


class EagerRun(Run):
    """TF 2 in eager mode."""

    folder = None

    def build(self):
        import tensorflow as tf

        self.tf = tf
        self.variables = {name: tf.Variable(self.start[name], name=name) for name in self.names}
        self.optimizer = self.make()

    def pairs(self, grads):
        pairs = []
        for name in self.names:
            grad = grads[name]
            if isinstance(grad, tuple):
                values, indices = map(self.tf.convert_to_tensor, grad)
                grad = self.tf.IndexedSlices(values, indices, self.tf.constant(self.start[name].shape, "int64"))
            elif grad is not None:
                grad = self.tf.convert_to_tensor(grad)
            pairs.append((grad, self.variables[name]))
        return pairs

    def step(self, grads):
        self.optimizer.apply_gradients(self.pairs(grads))

    def weights(self):
        return {name: value.numpy() for name, value in self.variables.items()}

    def slot(self, name, slot):
        return self.optimizer.get_slot(self.variables[name], slot).numpy()

    def set_rate(self, rate):
        self.optimizer.learning_rate = rate

    def resumed(self):
        # Slots are restored when they are created, so the file has to stay until the run is closed.
        self.folder = tempfile.mkdtemp()
        path = self.checkpoint().write(os.path.join(self.folder, "model"))
        other = type(self)(self.make, self.start, self.kinds)
        other.checkpoint().restore(path)
        return other

    def checkpoint(self):
        return self.tf.train.Checkpoint(optimizer=self.optimizer, **self.variables)

    def close(self):
        if self.folder:
            shutil.rmtree(self.folder)
            self.folder = None


class FunctionRun(EagerRun):
    def build(self):
        super(FunctionRun, self).build()
        self.function = self.tf.function(lambda grads: EagerRun.step(self, grads))

    def step(self, grads):
        tensors = {}
        for name, grad in grads.items():
            if isinstance(grad, tuple):
                tensors[name] = tuple(self.tf.convert_to_tensor(part) for part in grad)
            elif grad is not None:
                tensors[name] = self.tf.convert_to_tensor(grad)
        self.function(dict(tensors, **{name: None for name in grads if name not in tensors}))
