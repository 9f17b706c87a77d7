"""The way to train with torch.optim, whose optimizers are made with the parameters that they train."""
from __future__ import absolute_import, division, print_function

import importlib

import numpy as np

from everstep.compat.targets import detect
from everstep.compat.ways.known import Way
from everstep.compat.ways.runs import Run
from everstep.compat.ways.worlds import World, whole_numbers


class Torch(World):
    """PyTorch without Keras. `apply` and `step` set `grad` of each parameter."""

    def __init__(self, module):
        super(Torch, self).__init__(module)
        self.torch = importlib.import_module("torch")

    def variable(self, value, name=None, **native):
        return self.torch.nn.Parameter(self.tensor(value), **native)

    def tensor(self, value, dtype=None):
        return self.torch.tensor(np.asarray(value), dtype=dtype and getattr(self.torch, dtype))

    def rows(self, values, indices, shape=None):
        indices = np.asarray(whole_numbers(indices))[None]
        return self.torch.sparse_coo_tensor(indices, self.tensor(values), shape, check_invariants=False)

    def apply(self, optimizer, pairs, *args, **more):
        for grad, variable in pairs:
            variable.grad = grad
        optimizer.step(*args, **more)

    def read(self, variable):
        tensor = variable.detach().cpu()
        return np.array((tensor.float() if tensor.dtype is self.torch.bfloat16 else tensor).numpy())


class TorchRun(Run):
    makes_world = Torch

    def build(self):
        self.variables = {name: self.world.variable(self.start[name]) for name in self.names}
        self.optimizer = self.make(params=[(name, self.variables[name]) for name in self.names])
        self.begin()

    def resumed(self):
        other = type(self)(self.make, self.weights(), self.kinds)
        other.optimizer.load_state_dict(self.optimizer.state_dict())
        return other


def torch_ways():
    """Returns the way of torch.optim in a list; [] if torch is not installed.

    It is none of `all_ways`, since `bind` needs `params=` there.
    """
    module = dict(detect.known_modules())["torch.optim"]
    if module is None:
        return []
    run = type("TorchRun", (TorchRun,), {"module": module})
    return [Way("torch_optim", "torch_optim", module, Torch, run, module, True)]
