"""Mistakes, marked: pyright and mypy must object to each marked line, and to no other. See tests/typing/check.py."""
import numpy as np

import everstep
from everstep.optimizers import SGD, Adam, Adamm  # error

Adam(beta_3=1)  # error
Adam("0.1")  # error
Adam(None)  # error
Adam(0.1, amsgrad="yes")  # error
Adam(sparse="row")  # error
Adam(0.1, 0.9, 0.999, 1e-7, False, "rows")  # error
Adam().minimize(lambda: 0.0)  # error
Adam().beta_3  # error
SGD(0.1).bind()  # error
everstep.optimizers.Adem(0.1)  # error
everstep.optimizers.importlib  # error
everstep.accumulate(SGD(0.1).bind(np).apply_gradients, steps=2)  # error
everstep.accumulate(SGD(0.1))  # error
everstep.accumulate(SGD(0.1), steps=2, reduction="median")  # error
everstep.CosineDecay(0.1, decay_steps="all")  # error
everstep.optimizers.Accumulate(steps=2)  # error


class OneResult(everstep.Definition):
    learning_rate = everstep.hyper("fast")  # error

    def update(self, ops, grad, var, slots, hyper, t) -> float:  # error
        return 0.1


class TooFew(everstep.Definition):
    nesterov = everstep.option(False)

    def update(self, ops, grad):  # error
        return self.nesterov.real_part, {}  # error


number: str = TooFew().nesterov  # error
right = Adam(0.1, beta_1=0.9).bind(np)
