"""Runs optimizers of Keras 3 on JAX and torch."""
import os
import time

import keras
import numpy as np

import models
from apis import Api
from timing import Run, gradients

BACKEND = os.environ["KERAS_BACKEND"]


class Jitted(Run):
    """JAX: a jitted step on donated buffers, as in `fit`."""

    def __init__(self, make, shapes, look_ups=0):
        import jax

        self.shapes, self.jax, self.variables = shapes, jax, _variables(shapes)
        self.grads = [jax.numpy.asarray(values) for values, _ in gradients(shapes, look_ups, np.random.RandomState(0))]
        start = time.process_time()
        self.state, apply = self.begin(make())
        self.apply = jax.jit(apply, donate_argnums=0)
        self.run(1)
        self.first = time.process_time() - start

    def begin(self, optimizer):
        optimizer.build(self.variables)
        optimizer_values = [each.value for each in optimizer.variables]
        weights = [each.value for each in self.variables]

        def apply(state, grads):
            return optimizer.stateless_apply(state[1], grads, state[0])

        return (weights, optimizer_values), apply

    def run(self, steps):
        for _ in range(steps):
            self.state = self.apply(self.state, self.grads)
        self.jax.block_until_ready(self.state)

    def weights(self):
        return [np.asarray(value) for value in self.state[0]]


class Optax(Jitted):
    """The same step with an optimizer of optax."""

    def begin(self, optimizer):
        import optax

        weights = [self.jax.numpy.ones(shape, "float32") for shape in self.shapes]

        def apply(state, grads):
            updates, optimizer_values = optimizer.update(grads, state[1], state[0])
            return optax.apply_updates(state[0], updates), optimizer_values

        return (weights, optimizer.init(weights)), apply


class Eager(Run):
    """Keras on torch, in eager mode."""

    def __init__(self, make, shapes, look_ups=0):
        import torch

        self.shapes, self.variables = shapes, _variables(shapes)
        self.grads = [torch.tensor(values) for values, _ in gradients(shapes, look_ups, np.random.RandomState(0))]
        start = time.process_time()
        self.begin(make)
        self.run(1)
        self.first = time.process_time() - start

    def begin(self, make):
        self.optimizer = make()
        self.optimizer.build(self.variables)

    def run(self, steps):
        import torch

        for _ in range(steps):
            with torch.no_grad():
                self.optimizer.apply(self.grads, self.variables)

    def weights(self):
        return [keras.ops.convert_to_numpy(variable) for variable in self.variables]


class TorchOptim(Eager):
    """The same step with an optimizer of torch.optim, which takes the list of parameters."""

    def begin(self, make):
        import torch

        self.variables = [torch.nn.Parameter(torch.ones(shape)) for shape in self.shapes]
        for variable, grad in zip(self.variables, self.grads):
            variable.grad = grad
        self.optimizer = make(self.variables)

    def run(self, steps):
        for _ in range(steps):
            self.optimizer.step()

    def weights(self):
        return [variable.detach().numpy() for variable in self.variables]


def _variables(shapes):
    return [keras.Variable(np.ones(shape, "float32"), name="v%d" % number) for number, shape in enumerate(shapes)]


def _peers():
    """Returns {label: function that runs it on shapes} of Adam in the libraries of the framework itself."""
    if BACKEND == "torch":
        import torch

        return {
            "torch.optim": lambda shapes: TorchOptim(torch.optim.Adam, shapes),
            "torch.optim, fused": lambda shapes: TorchOptim(lambda given: torch.optim.Adam(given, fused=True), shapes),
        }
    try:
        import optax
    except ImportError:
        return {}
    return {"optax": lambda shapes: Optax(lambda: optax.adam(1e-3), shapes)}


def apis():
    run = Jitted if BACKEND == "jax" else Eager
    model = lambda name, make: models.Fit(keras, name, make)  # noqa: E731
    yield Api("keras3, " + BACKEND, keras, keras.optimizers, run, model=model, peers=_peers())
