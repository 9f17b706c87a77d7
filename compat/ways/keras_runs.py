"""Trains an optimizer of Keras with `get_updates`, or of Keras 3 on any backend."""
from __future__ import absolute_import, division, print_function

import contextlib
import gc
import importlib
import sys
import warnings

import numpy as np

from everstep.compat.ways.runs import DENSE, Run

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

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
    backend.clear_session()


class GetUpdatesRun(Run):
    """A plain K.function. Its loss is linear, so that its gradients are those that are fed."""

    keras = None  # type: Any

    def build(self):
        K = self.keras.backend
        clear_session(self.keras)
        symbolic = getattr(K, "symbolic", lambda function: function)
        self.variables = {
            name: K.variable(self.start[name], dtype=str(self.start[name].dtype), name=name) for name in self.names
        }
        self.optimizer = self.make()
        symbolic(self.make_function)(K)

    def make_function(self, K):
        inputs, losses, self.order = [], [], []
        for name in self.trained():
            value, variable = self.start[name], self.variables[name]
            if self.kinds[name] == DENSE:
                holders = [K.placeholder(value.shape, dtype=str(value.dtype))]
                losses.append(K.sum(variable * holders[0]))
            else:
                holders = [
                    K.placeholder((None,) + value.shape[1:], dtype=str(value.dtype)),
                    K.placeholder((None,), dtype="int64"),
                ]
                losses.append(K.sum(K.gather(variable, holders[1]) * holders[0]))
            inputs.extend(holders)
        loss = sum(K.cast(part, "float64") for part in losses)
        updates = self.optimizer.get_updates(loss=loss, params=[self.variables[name] for name in self.trained()])
        self.function = K.function(inputs, [loss], updates=updates)

    def step(self, grads):
        fed = []
        for name in self.trained():
            fed.extend(grads[name] if isinstance(grads[name], tuple) else [grads[name]])
        self.function(fed)

    def flush(self):
        operation = self.optimizer.flush()
        if operation is not None:  # None on TF 2, where variables are eager
            self.keras.backend.get_session().run(operation)

    def catch_up(self, name, rows):
        if self.optimizer.backend.eager:  # Keras on TF 2
            self.optimizer.catch_up(self.variables[name], rows)
            return
        if not hasattr(self, "catching_up"):
            holder = self.keras.backend.placeholder((None, None), dtype="int64")
            self.catching_up = holder, self.optimizer.catch_up(self.variables[name], holder)
        self.keras.backend.get_session().run(self.catching_up[1], {self.catching_up[0]: rows})

    def weights(self):
        return {name: self.keras.backend.get_value(value) for name, value in self.variables.items()}

    def slot(self, name, slot):
        return self.keras.backend.get_value(self.optimizer.get_slot(self.variables[name], slot))

    def set_rate(self, rate):
        self.keras.backend.set_value(self.optimizer.lr, rate)

    def resumed(self):
        weights, state = self.weights(), self.optimizer.get_weights()
        other = type(self)(self.make, weights, self.kinds)
        other.optimizer.set_weights(state)
        return other


class KerasRun(Run):
    """Keras 3 on any backend, in eager mode."""

    keras = None  # type: Any
    sparse = False

    def build(self):
        with self.precision():
            self.variables = {
                name: self.keras.Variable(value, dtype=str(value.dtype), name=name)
                for name, value in self.start.items()
            }
            self.optimizer = self.make()
            self.optimizer.build([self.variables[name] for name in self.names])

    def precision(self):
        """Enables float64 on JAX, which has it off by default."""
        doubles = any(value.dtype == "float64" for value in self.start.values())
        if self.keras.backend.backend() != "jax" or not doubles:
            return contextlib.nullcontext()
        import jax

        enable = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")
        return enable.enable_x64(True)

    def tensor(self, name, grad):
        convert = self.keras.ops.convert_to_tensor
        if not isinstance(grad, tuple):
            return None if grad is None else convert(grad)
        if self.sparse:
            import tensorflow as tf

            return tf.IndexedSlices(convert(grad[0]), convert(grad[1]), convert(self.start[name].shape))
        whole = np.zeros(self.start[name].shape, grad[0].dtype)
        np.add.at(whole, grad[1], grad[0])
        return convert(whole)

    def tensors(self, grads):
        return [self.tensor(name, grads[name]) for name in self.names]

    def apply(self, grads):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Gradients do not exist")  # one variable has none on purpose
            self.optimizer.apply(grads, [self.variables[name] for name in self.names])

    def step(self, grads):
        with self.precision():
            self.apply(self.tensors(grads))

    def weights(self):
        return {name: self.array(value) for name, value in self.variables.items()}

    def array(self, variable):
        return np.array(self.keras.ops.convert_to_numpy(variable.value))

    def slot(self, name, slot):
        return self.array(self.optimizer.get_slot(self.variables[name], slot))

    def set_rate(self, rate):
        self.optimizer.learning_rate = rate

    def resumed(self):
        store = {}
        self.optimizer.save_own_variables(store)
        other = type(self)(self.make, self.weights(), self.kinds)
        other.optimizer.load_own_variables(store)
        return other


class KerasFunctionRun(KerasRun):
    """Keras 3 in a tf.function."""

    def build(self):
        import tensorflow as tf

        super(KerasFunctionRun, self).build()
        self.function = tf.function(self.apply)

    def step(self, grads):
        self.function(self.tensors(grads))


class KerasJitRun(KerasRun):
    """Keras 3 on JAX: `stateless_apply` in a jitted function, with the state held outside of the variables."""

    def build(self):
        import jax

        super(KerasJitRun, self).build()
        self.function = jax.jit(self.stateless)
        self.state = None

    def stateless(self, optimizer_values, grads, values):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Gradients do not exist")
            return self.optimizer.stateless_apply(optimizer_values, grads, values)

    def step(self, grads):
        with self.precision():
            trained = [self.variables[name] for name in self.names]
            groups = self.optimizer.variables, trained
            optimizer_values, values = ([variable.value for variable in group] for group in groups)
            values, optimizer_values = self.function(optimizer_values, self.tensors(grads), values)
            for variable, value in list(zip(trained, values)) + list(zip(self.optimizer.variables, optimizer_values)):
                variable.assign(value)
