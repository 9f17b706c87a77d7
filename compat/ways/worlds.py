"""Worlds: how each mode of each API makes variables, tensors and sparse gradients, takes steps, and reads numbers."""
from __future__ import absolute_import, division, print_function

import contextlib

import numpy as np

from everstep.compat.backends.on_numpy import IndexedSlices
from everstep.compat.backends.on_tensorflow import with_names_of_tf1

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments


def graph_mode_tensorflow():
    """Returns TensorFlow with the names of TF 1."""
    import tensorflow

    return with_names_of_tf1(tensorflow)


def whole_numbers(indices):
    """Returns indices as they are; no indices as an array of integers, as an empty list is one of floats."""
    return np.zeros(0, "int64") if isinstance(indices, list) and not indices else indices


class World(object):
    """One mode of one API. Its members are the same on all, so that a test of an optimizer is written once.

    As a context it makes its graph and its session, if it has any, the default ones, and closes them at the end.

    >>> from everstep.optimizers import SGD
    >>> from everstep.testing import all_ways
    >>> ones = np.ones(2, "float32")
    >>> for way in all_ways():  # each mode of each API that is installed
    ...     with way.world(way.module) as world:
    ...         weights, optimizer = world.variable(ones), SGD(0.5).bind(world.module)
    ...         world.step(optimizer, [(ones, weights)])
    ...         assert world.read(weights).tolist() == [0.5, 0.5], way.name

    Args:
        module: what `bind` takes.
    """

    graph = session = None  # type: Any  # where the mode has none
    tf = None  # type: Any  # TensorFlow, in a graph with the names of TF 1
    keras = None  # type: Any

    def __init__(self, module):
        self.module = module
        self._steppers = {}  # type: dict

    def __enter__(self):
        self._entered = self.inside()
        self._entered.__enter__()
        return self

    def __exit__(self, *failure):
        self._entered.__exit__(*failure)
        self.close()

    @contextlib.contextmanager
    def inside(self):
        """Makes the graph and the session the default ones in a block."""
        yield

    def variable(self, value, name=None, **native):
        """Returns a new variable. `native` are keywords of the framework's own variable."""
        raise NotImplementedError

    def tensor(self, value, dtype=None):
        raise NotImplementedError

    def rows(self, values, indices, shape=None):
        """Returns a sparse gradient of a variable of `shape`; a dense one on JAX and torch, which have none."""
        raise NotImplementedError

    def gradient(self, grad, variable):
        """Returns a native gradient of an array, of (values, indices) or of None."""
        if isinstance(grad, tuple):
            return self.rows(grad[0], grad[1], tuple(map(int, variable.shape)))  # TF 1 has Dimensions
        return None if grad is None else self.tensor(grad)

    def run(self, operation, feed=None):
        """Runs what a call of an optimizer returned. Eager code has run it."""

    def apply(self, optimizer, pairs, *args, **more):
        """Calls `apply_gradients`, and runs what it returns."""
        self.run(optimizer.apply_gradients(pairs, *args, **more))

    def step(self, optimizer, pairs):
        """Takes a step. What it needs is built once for an optimizer and its variables.

        Args:
            optimizer: a native one.
            pairs: of gradient and variable. A gradient is an array, (values, indices) for some rows, or None.
        """
        grads, variables = zip(*pairs)
        kinds = [None if grad is None else type(grad) for grad in grads]
        key = id(optimizer), tuple(map(id, variables)), tuple(kinds)
        if key not in self._steppers:
            with self.inside():
                self._steppers[key] = self.stepper(optimizer, variables, kinds), optimizer, variables
        self._steppers[key][0](grads)

    def stepper(self, optimizer, variables, kinds):
        """Returns a function that takes a step on a list of gradients.

        Args:
            optimizer: a native one.
            variables: a list.
            kinds: of the gradients: tuple for those of some rows, None for none.
        """
        return lambda grads: self.apply(optimizer, list(zip(map(self.gradient, grads, variables), variables)))

    def loss(self, pairs):
        """Returns a loss, as `minimize` takes it, whose gradients are those of (array, variable) pairs."""
        raise NotImplementedError

    def read(self, variable):
        """Returns a variable's or a tensor's value as a new array."""
        raise NotImplementedError

    def set_hyper(self, optimizer, name, value):
        """Sets a number of a native optimizer, such as "learning_rate"."""
        setattr(optimizer, name, value)

    def close(self):
        pass


class Arrays(World):
    def variable(self, value, name=None, **native):
        return np.array(value)

    def tensor(self, value, dtype=None):
        return np.array(value, dtype)

    def rows(self, values, indices, shape=None):
        return IndexedSlices(np.array(values), np.array(whole_numbers(indices)))

    def read(self, variable):
        return np.array(variable)


class Eager(World):
    """TensorFlow in eager mode."""

    def __init__(self, module):
        import tensorflow

        super(Eager, self).__init__(module)
        self.tf = tensorflow

    def variable(self, value, name=None, **native):
        return self.tf.Variable(value, name=name, **native)

    def tensor(self, value, dtype=None):
        return self.tf.convert_to_tensor(value, dtype)

    def rows(self, values, indices, shape=None):
        shape = None if shape is None else self.tf.constant(shape, "int64")
        return self.tf.IndexedSlices(self.tensor(values), self.tensor(whole_numbers(indices)), shape)

    def loss(self, pairs):
        return lambda: sum(self.tf.reduce_sum(variable * self.tensor(grad)) for grad, variable in pairs)

    def read(self, variable):
        return np.array(variable.numpy() if hasattr(variable, "numpy") else variable)  # NumPy 2 warns of __array__


class Function(Eager):
    """TensorFlow in functions: a call of `apply` traces a new one, `step` traces once."""

    def apply(self, optimizer, pairs, *args, **more):
        @self.tf.function
        def apply():
            optimizer.apply_gradients(pairs, *args, **more)

        apply()

    def stepper(self, optimizer, variables, kinds):
        @self.tf.function
        def step(grads):
            optimizer.apply_gradients(list(zip(map(self.gradient, grads, variables), variables)))

        def tensors(grad):
            return tuple(map(self.tensor, grad)) if isinstance(grad, tuple) else self.gradient(grad, None)

        return lambda grads: step([tensors(grad) for grad in grads])


class Graph(Eager):
    """A graph of TF 1 and its session. New variables get their first values before anything runs."""

    resource = True

    def __init__(self, module):
        super(Graph, self).__init__(module)
        self.tf = graph_mode_tensorflow()
        self.graph = self.tf.Graph()
        self.session = self.tf.Session(graph=self.graph)
        self._started = {}  # type: dict

    @contextlib.contextmanager
    def inside(self):
        with self.graph.as_default(), self.session.as_default():
            yield

    def variable(self, value, name=None, **native):
        native = dict({"use_resource": self.resource}, **native)
        name = name or "w{}".format(len(self.graph.get_collection_ref("variables")))
        with self.graph.as_default():
            return self.tf.get_variable(name, initializer=self.tf.constant(value), **native)

    def stepper(self, optimizer, variables, kinds):
        holders = [self.holders(variable, kind) for variable, kind in zip(variables, kinds)]
        grads = [self.gradient(each if len(each) > 1 else each[0], variable) if each else None
                 for each, variable in zip(holders, variables)]
        operation = optimizer.apply_gradients(list(zip(grads, variables)))
        self.start()

        def step(grads):
            feed = {}
            for each, grad in zip(holders, grads):
                feed.update(zip(each, grad if isinstance(grad, tuple) else (grad,)))
            self.session.run(operation, feed)

        return step

    def holders(self, variable, kind):
        """Returns the placeholders of a gradient."""
        dtype, shape = variable.dtype.base_dtype, variable.shape.as_list()
        if kind is None:
            return ()
        if kind is tuple:
            return self.tf.placeholder(dtype, [None] + shape[1:]), self.tf.placeholder(self.tf.int64, [None])
        return (self.tf.placeholder(dtype, shape),)

    def start(self):
        """Gives new variables their first values."""
        new = [each for each in self.graph.get_collection_ref("variables") if id(each) not in self._started]
        self._started.update((id(each), each) for each in new)
        if new:
            with self.graph.as_default():
                unset = set(self.session.run(self.tf.report_uninitialized_variables(new)))  # a restore has set some
            self.session.run([each.initializer for each in new if each.op.name.encode("utf-8") in unset])

    def run(self, operation, feed=None):
        self.start()
        return self.session.run(operation, feed)

    def loss(self, pairs):
        return super(Graph, self).loss(pairs)()

    def read(self, variable):
        return self.run(variable)

    def set_hyper(self, optimizer, name, value):
        # A graph variable is set in its own session: K.set_value uses another one.
        initializer = getattr(optimizer, name).initializer
        self.run(initializer, {initializer.inputs[1]: value})

    def close(self):
        self.session.close()


class RefGraph(Graph):
    resource = False


class KerasGraph(Graph):
    """A graph for optimizers of Keras, whose `minimize` takes a function in TF 1."""

    def loss(self, pairs):
        return super(Graph, self).loss(pairs)
