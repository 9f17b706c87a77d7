"""The worlds of Keras: `get_updates`, and Keras 3 on each backend."""
from __future__ import absolute_import, division, print_function

import contextlib
import gc
import importlib
import sys
import warnings

import numpy as np

from everstep.compat.ways.worlds import Eager, World, whole_numbers

_kept = []  # old sessions, kept until their callables are collected


def clear_session(keras):
    """Clears the Keras session. Avoids a crash of TF 1.6 to 1.12, when a callable is collected after its session."""
    backend = keras.backend
    tf = sys.modules.get("tensorflow")
    if tf is not None and tf.__version__.split(".")[:2] in [["1", minor] for minor in "6 7 8 9 10 11 12".split()]:
        if len(_kept) > 30:
            gc.collect()  # collects the callables before their sessions
            del _kept[:-1]
        _kept.append(backend.get_session())
        _release_in_live_sessions()
    backend.clear_session()


def _release_in_live_sessions():
    """Makes TF 1.6 to 1.9 release a callable only while its session lives, as TF 1.10 does; they crash otherwise.

    One garbage collection may find both, and delete the session first.
    """
    from tensorflow.python.client.session import BaseSession

    callable_class = getattr(BaseSession, "_Callable", None)
    release = getattr(callable_class, "__del__", None)
    if release is None or release.__name__ == "release_in_live_session":
        return

    def release_in_live_session(self):
        if self._session._session is not None:
            release(self)

    callable_class.__del__ = release_in_live_session


class GetUpdates(Eager):
    """Standalone Keras and the old tf.keras, whose optimizers take gradients of a loss."""

    def __init__(self, module):
        super(GetUpdates, self).__init__(module)
        self.keras, self.K = module, module.backend
        clear_session(module)

    @property
    def session(self):
        """Keras's own; None on TF 2, where variables are eager."""
        return None if getattr(self.tf, "executing_eagerly", lambda: False)() else self.K.get_session()

    def symbolic(self, call):
        """Calls a function in Keras's graph, in which its functions are built."""
        return getattr(self.K, "symbolic", lambda function: function)(call)()

    def variable(self, value, name=None, **native):
        return self.K.variable(value, dtype=str(np.asarray(value).dtype), name=name, **native)

    def loss(self, pairs):
        return self.symbolic(super(GetUpdates, self).loss(pairs))

    def apply(self, optimizer, pairs):
        """Runs the updates of a loss whose gradients are those of the pairs."""
        self.updates(optimizer, super(GetUpdates, self).loss(pairs), [variable for _, variable in pairs])

    def updates(self, optimizer, loss, params):
        """Builds the updates of a loss, a tensor or a function that returns it, and runs them once."""

        def build():
            value = loss() if callable(loss) else loss
            updates = optimizer.get_updates(loss=value, params=params)
            return self.K.function([self.K.placeholder((1,))], [value], updates=updates)

        self.symbolic(build)([np.zeros(1)])

    def stepper(self, optimizer, variables, kinds):
        trained = [(variable, kind) for variable, kind in zip(variables, kinds) if kind is not None]
        function = self.symbolic(lambda: self.function(optimizer, trained))

        def step(grads):
            fed = []
            for grad in grads:
                fed.extend(() if grad is None else grad if isinstance(grad, tuple) else (grad,))
            function(fed)

        return step

    def function(self, optimizer, trained):
        """Returns a plain K.function. Its loss is linear, so that its gradients are those that are fed."""
        K, inputs, losses = self.K, [], []
        for variable, kind in trained:
            shape, dtype = K.int_shape(variable), K.dtype(variable)
            if kind is not tuple:
                holders = [K.placeholder(shape, dtype=dtype)]
                losses.append(K.sum(variable * holders[0]))
            else:
                holders = [K.placeholder((None,) + shape[1:], dtype=dtype), K.placeholder((None,), dtype="int64")]
                losses.append(K.sum(K.gather(variable, holders[1]) * holders[0]))
            inputs.extend(holders)
        loss = sum(K.cast(part, "float64") for part in losses)
        updates = optimizer.get_updates(loss=loss, params=[variable for variable, _ in trained])
        return K.function(inputs, [loss], updates=updates)

    def run(self, operation, feed=None):
        if self.session is not None and operation is not None:
            self.session.run(operation, feed)

    def read(self, variable):
        return self.K.get_value(variable)

    def set_hyper(self, optimizer, name, value):
        self.K.set_value(getattr(optimizer, "lr" if name == "learning_rate" else name), value)


class Keras3(World):
    """Keras 3 on any backend, in eager mode."""

    def __init__(self, module):
        import keras

        super(Keras3, self).__init__(module)
        self.keras, self.backend, self.doubles = keras, keras.backend.backend(), False

    @contextlib.contextmanager
    def inside(self):
        """Enables float64 on JAX, which has it off by default, once there is a variable of it."""
        if self.backend != "jax" or not self.doubles:
            yield
            return
        import jax

        enable = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")
        with enable.enable_x64(True):
            yield

    def variable(self, value, name=None, **native):
        value = np.asarray(value)
        self.doubles = self.doubles or value.dtype == "float64"
        native.setdefault("trainable", value.dtype.kind in "fV")  # V: bfloat16
        with self.inside():
            return self.keras.Variable(value, dtype=str(value.dtype), name=name, **native)

    def tensor(self, value, dtype=None):
        return self.keras.ops.convert_to_tensor(value, dtype)

    def rows(self, values, indices, shape=None):
        if self.backend == "tensorflow":
            import tensorflow as tf

            shape = None if shape is None else self.tensor(shape)
            return tf.IndexedSlices(self.tensor(values), self.tensor(whole_numbers(indices)), shape)
        whole = np.zeros(shape, values.dtype)
        np.add.at(whole, indices, values)
        return self.tensor(whole)

    def stepper(self, optimizer, variables, kinds):
        if not optimizer.built:
            optimizer.build(variables)
        step = self.compiled(optimizer, variables)

        def converted(grads):
            with self.inside(), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Gradients do not exist")  # one variable has none on purpose
                step([self.gradient(grad, variable) for grad, variable in zip(grads, variables)])

        return converted

    def compiled(self, optimizer, variables):
        """Returns a function of native gradients that takes a step."""
        return lambda grads: optimizer.apply(grads, variables)

    def loss(self, pairs):
        return lambda: sum(self.keras.ops.sum(variable * self.tensor(grad)) for grad, variable in pairs)

    def read(self, variable):
        return np.array(self.keras.ops.convert_to_numpy(variable.value if hasattr(variable, "path") else variable))


class Keras3Function(Keras3):
    """Keras 3 in functions of TensorFlow."""

    def compiled(self, optimizer, variables):
        import tensorflow as tf

        return tf.function(super(Keras3Function, self).compiled(optimizer, variables))


class Keras3Jit(Keras3):
    """Keras 3 on JAX: `stateless_apply` in a jitted function, with the state held outside of the variables."""

    def compiled(self, optimizer, variables):
        import jax

        function = jax.jit(optimizer.stateless_apply)

        def step(grads):
            groups = optimizer.variables, variables
            state, values = ([variable.value for variable in group] for group in groups)
            values, state = function(state, grads, values)
            for variable, value in list(zip(variables, values)) + list(zip(optimizer.variables, state)):
                variable.assign(value)

        return step
