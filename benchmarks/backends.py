"""Like benchmarks/worker.py, for Keras 3 on JAX and torch: compares with stock Keras, and with optax and torch.optim.

    KERAS_BACKEND=jax python backends.py MEASURE ...
"""
import os
import time

import keras
import numpy as np

import everstep
from timing import DENSE, DiffGrad, asked, gradients, report, selected

BACKEND = os.environ["KERAS_BACKEND"]


class JaxCase(object):
    """A jitted step on donated buffers, as in `fit`."""

    nodes = None  # JAX has no graph

    def __init__(self, make, shapes):
        import jax

        self.shapes, self.jax, start = shapes, jax, time.time()
        self.grads = [jax.numpy.asarray(values) for values, _ in gradients(shapes, False, np.random.RandomState(0))]
        self.state, apply = self.begin(make())
        self.apply = jax.jit(apply, donate_argnums=0)
        self.run(1)
        self.first = time.time() - start

    def begin(self, optimizer):
        variables = [keras.Variable(np.zeros(shape, "float32")) for shape in self.shapes]
        optimizer.build(variables)
        optimizer_values, weights = [each.value for each in optimizer.variables], [each.value for each in variables]

        def apply(state, grads):
            return optimizer.stateless_apply(state[1], grads, state[0])

        return (weights, optimizer_values), apply

    def run(self, steps):
        for _ in range(steps):
            self.state = self.apply(self.state, self.grads)
        self.jax.block_until_ready(self.state)


class OptaxCase(JaxCase):
    def begin(self, optimizer):
        import optax

        weights = [self.jax.numpy.zeros(shape, "float32") for shape in self.shapes]

        def apply(state, grads):
            updates, optimizer_values = optimizer.update(grads, state[1], state[0])
            return optax.apply_updates(state[0], updates), optimizer_values

        return (weights, optimizer.init(weights)), apply


class TorchCase(object):
    """Keras on torch, in eager mode."""

    nodes = None  # torch has no graph

    def __init__(self, make, shapes):
        import torch

        self.shapes, start = shapes, time.time()
        self.grads = [torch.tensor(values) for values, _ in gradients(shapes, False, np.random.RandomState(0))]
        self.begin(make)
        self.run(1)
        self.first = time.time() - start

    def begin(self, make):
        self.variables = [keras.Variable(np.zeros(shape, "float32")) for shape in self.shapes]
        self.optimizer = make()
        self.optimizer.build(self.variables)

    def run(self, steps):
        import torch

        for _ in range(steps):
            with torch.no_grad():
                self.optimizer.apply(self.grads, self.variables)


class TorchOptimCase(TorchCase):
    def begin(self, make):
        import torch

        variables = [torch.nn.Parameter(torch.zeros(shape)) for shape in self.shapes]
        for variable, grad in zip(variables, self.grads):
            variable.grad = grad
        self.optimizer = make(variables)

    def run(self, steps):
        for _ in range(steps):
            self.optimizer.step()


def cases(shapes):
    run = JaxCase if BACKEND == "jax" else TorchCase
    optimizers = {
        "native": run(keras.optimizers.Adam, shapes),
        "everstep": run(lambda: everstep.optimizers.Adam().bind(keras), shapes),
        "DiffGrad": run(lambda: DiffGrad().bind(keras), shapes),
    }
    try:
        if BACKEND == "jax":
            import optax

            optimizers["optax"] = OptaxCase(lambda: optax.adam(1e-3), shapes)
        else:
            import torch

            optimizers["torch.optim"] = TorchOptimCase(lambda v: torch.optim.Adam(v), shapes)
            optimizers["torch.optim, fused"] = TorchOptimCase(lambda v: torch.optim.Adam(v, fused=True), shapes)
    except ImportError:
        pass
    return optimizers


def measure(names):
    target = "keras3, " + BACKEND
    for case, shapes in DENSE.items():
        if selected(names, "dense", target, case):
            yield "dense", target, case, cases(shapes)
    if BACKEND == "torch" and selected(names, "strategies", target):
        makes = {"native": {"flattened": False}, "flattened": None}
        optimizers = {
            label: TorchCase(lambda given=given: DiffGrad().bind(keras, lowering=given), DENSE["C"])
            for label, given in makes.items()
        }
        yield "strategies", target, "flattened", optimizers


if __name__ == "__main__":
    report(measure(asked()))
