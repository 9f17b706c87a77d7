"""Trains transforms of optax on the gradients of other tests: the way of `optax_transform`."""
from __future__ import absolute_import, division, print_function

import contextlib
import importlib

import numpy as np

import everstep
from everstep.compat.ways.known import Way
from everstep.compat.ways.runs import NONE, Run
from everstep.compat.ways.worlds import World


class TreeRun(Run):
    """A tree of parameters in a jitted `update`. `everstep.capture` and `restore` carry it on."""

    compiles = True

    def build(self):
        import jax

        self.jax = jax
        self.doubles = any(np.asarray(value).dtype == "float64" for value in self.start.values())
        with self.inside():
            self.variables = {name: jax.numpy.asarray(self.start[name]) for name in self.trained()}
            self.begin()

    def begin(self):
        self.optimizer = self.make()
        self.state = self.optimizer.init(self.variables)
        self._update = self.jax.jit(self.optimizer.update) if self.compiles else self.optimizer.update

    @contextlib.contextmanager
    def inside(self):
        if not self.doubles:
            yield
            return
        enable = self.jax if hasattr(self.jax, "enable_x64") else importlib.import_module("jax.experimental")
        with enable.enable_x64(True):
            yield

    def dense(self, name, grad):
        if not isinstance(grad, tuple):
            return self.jax.numpy.asarray(grad)
        whole = np.zeros(self.start[name].shape, grad[0].dtype)
        np.add.at(whole, grad[1], grad[0])
        return self.jax.numpy.asarray(whole)

    def step(self, grads):
        import optax

        with self.inside():
            grads = {name: self.dense(name, grads[name]) for name in self.trained()}
            updates, self.state = self._update(grads, self.state, self.variables)
            self.variables = optax.apply_updates(self.variables, updates)

    def weights(self):
        trained = {name: np.array(value) for name, value in self.variables.items()}
        return dict({name: self.start[name] for name in self.names if self.kinds[name] == NONE}, **trained)

    def slot(self, name, slot):
        return np.array(self.state.slots[slot.replace("/", "_")][name])

    def captured(self, **more):
        with self.inside():
            return everstep.capture(self.optimizer, self.state, self.variables, **more)

    def restored(self, state, **more):
        with self.inside():
            found = everstep.restore(self.optimizer, state, self.variables, **more)
            self.state, self.variables = found if more.get("weights") else (found, self.variables)

    def resumed(self):
        other = type(self)(self.make, self.weights(), self.kinds)
        other.restored(self.captured())
        return other

    def close(self):
        pass


class EagerTreeRun(TreeRun):
    compiles = False


def tree_ways():
    """Returns the ways of optax; none where it is not installed."""
    try:
        import optax
    except ImportError:
        return []
    runs = [type(run.__name__, (run,), {"module": optax}) for run in (TreeRun, EagerTreeRun)]
    return [Way("optax " + name, "optax_transform", optax, World, run, None, False)
            for name, run in zip(("jit", "eager"), runs)]
