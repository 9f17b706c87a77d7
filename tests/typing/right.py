"""What people write, all of it right: pyright and mypy must have no objection, and it runs."""
from typing import TYPE_CHECKING, Any

import numpy as np

import everstep
from everstep.optimizers import SGD, Accumulate, Adam, AdamW
from everstep.optimizers.adam import Adam as SameAdam


class Sign(everstep.Definition):
    """A rule without annotations."""

    learning_rate = everstep.hyper(0.1)
    nesterov = everstep.option(False)
    period = everstep.option(2, minimum=1)
    mode = everstep.option("mean", choices=("mean", "sum"))
    v = everstep.slot(when="nesterov")
    count = everstep.scalar(0.0)
    zero_grad_is_noop = False

    def advance(self, ops, scalars, hyper, t):
        return {"count": scalars.count + 1}

    def update(self, ops, grad, var, slots, hyper, t):
        if self.nesterov:
            new = 0.9 * slots.v + grad
            return everstep.assign(var - hyper.learning_rate * ops.sign(new)), {"v": new}
        return hyper.learning_rate * ops.sign(grad), {}


class Annotated(everstep.Definition):
    """A rule with annotations, and names of its own for what it is given."""

    learning_rate = everstep.hyper(0.1, minimum=0)
    nesterov = everstep.option(False)
    v = everstep.slot(init=everstep.VARIABLE, dtype="float32")

    @property
    def zero_grad_is_noop(self) -> bool:
        return not self.nesterov  # as a property may

    def specialize(self, variable: everstep.Variable) -> "Annotated":
        return self.replace(nesterov=False) if variable.index else self

    def update(self, np: Any, g: Any, x: Any, state: Any, h: Any, step: Any) -> tuple[Any, dict[str, Any]]:
        nesterov: bool = self.nesterov
        new: dict[str, Any] = {"v": g if nesterov else state.v + g}
        return h.learning_rate * g, new


class Bounded(Adam):
    """An algorithm with another default, and a change to its rule."""

    learning_rate = everstep.hyper(0.01)
    kernel = None

    def update(self, ops, grad, var, slots, hyper, t):
        change, new = super().update(ops, ops.clip(grad, -1, 1), var, slots, hyper, t)
        new["m"] = slots.m
        return change, new


class Slower(Adam):
    """An algorithm with one more argument. A type checker would take Adam's constructor for this one's."""

    drag = everstep.hyper(0.5)

    if TYPE_CHECKING:

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...


class Halved(everstep.Wrapper):
    """A wrapper with an option."""

    prefix = "halved"
    share = everstep.option(0.5)

    def update(self, ops, grad, var, slots, hyper, t):
        change, inner = self.inner.update(ops, grad, var, slots.inner, hyper.inner, t)
        return self.share * change, {"inner": inner}


class Steps(everstep.Schedule):
    """A schedule."""

    initial = everstep.option(0.1)

    def value(self, ops, updates):
        return self.initial / (1 + ops.floor(updates / 10))


# Constructors: by position and by name; numbers, arrays, callables and schedules.
Adam()
Adam(0.1, 0.8, beta_2=0.99, amsgrad=True, sparse="rows", dense_ok=True)
Adam(1, epsilon=np.float32(1e-7), beta_1=np.array(0.9))
Adam(lambda: 0.1)
Adam(everstep.CosineDecay(0.1, decay_steps=100, warmup_steps=10))
AdamW(Steps(0.2), weight_decay=1e-2)
everstep.optimizers.SGD(learning_rate=0.1, momentum=0.9, nesterov=True)
Sign(0.1, nesterov=True).replace(period=3)
Annotated(learning_rate=0.1)
Bounded(beta_1=0.8)
Slower(0.1, drag=0.25)
Halved(SGD(0.1), share=0.25)
Accumulate(SameAdam(), steps=4, reduction="sum")
everstep.accumulate(Sign(), steps=Steps())
everstep.clip(everstep.lookahead(SGD(0.1), sync_period=5), global_norm=1.0)
everstep.partition({"bias": SGD(0.1)}, default=Adam())
everstep.Warmup(everstep.ExponentialDecay(0.1, staircase=True), steps=10)(3) + 1.0
everstep.optimizers.SGD(0.5 * everstep.Warmup(lambda step: 0.5**step, 4) - everstep.Noam() / 2)

# Attributes.
rate: float = Adam().learning_rate
amsgrad: bool = Adam().amsgrad
period: int = Sign().period
inner: everstep.Definition = everstep.accumulate(SGD(), steps=2).inner
default: float = Adam.beta_1.default
everstep.get("adamw", learning_rate=0.1, sparse="rows").replace(beta_1=0.8)
names: list[str] = everstep.names()

# Native optimizers.
weights = np.zeros(2)
optimizer = Adam(0.1).bind(np, name="adam")
optimizer.apply_gradients([(np.ones(2), weights)])
optimizer.learning_rate = 0.2
current_rate: float = everstep.current_rate(optimizer)
slot = optimizer.get_slot(weights, "m")
is_native: bool = isinstance(optimizer, everstep.NativeOptimizer)


def compile_model(optimizer: str) -> None:
    """Takes what a framework's `compile` does: a class of its own, which no stub of everstep names."""


compile_model(optimizer)
compile_model(Adam.native_class(np)(0.1, name="adam"))


def its_own(optimizer: everstep.NativeOptimizer) -> int:
    return optimizer.what_only_this_framework_has(1)


def schedule_rate(rate: everstep.HyperValue) -> everstep.NativeOptimizer:
    return SGD(rate).bind(np)


schedule_rate(0.1)
state = everstep.capture(optimizer, [weights])
everstep.restore(optimizer, state, [weights])
