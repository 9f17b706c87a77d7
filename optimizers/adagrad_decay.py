"""Adagrad whose accumulators decay."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, option, slot


class AdagradDecay(Definition):
    """Adagrad (Duchi et al. 2011) with accumulators that decay every N updates, as used for embeddings that live long.

    due = floor((t - 1) / decay_steps), the number of decays due; `decays` counts, for each row, those it has had
    accumulator := max(accumulator * decay_rate^(due - decays), initial_accumulator_value) where due > decays
    accumulator := accumulator + grad^2;  decays := due
    var := var - learning_rate * grad / sqrt(accumulator)

    A row takes all decays that it missed when it is next touched (DeepRec's AdagradDecay, the origin of the idea,
    takes one for each touch). So with `sparse="rows"` the variable is that of the dense run; slots of untouched rows
    wait.

    Args:
        learning_rate: float, tensor, callable or schedule; 0.001.
        decay_rate: what accumulators are multiplied with, 0 to 1; 0.9.
        decay_steps: number of updates from one decay to the next, at least 1; 100000.
        initial_accumulator_value: where accumulators start, and what decay does not go below; more than 0; 0.1.

    >>> import numpy
    >>> weights = numpy.zeros(1)
    >>> optimizer = AdagradDecay(1.0, decay_rate=0.5, decay_steps=1, initial_accumulator_value=1.0).bind(numpy)
    >>> for _ in range(2):
    ...     optimizer.apply_gradients([(numpy.array([1.0]), weights)])
    >>> optimizer.get_slot(weights, "accumulator")  # max((1 + 1) * 0.5, 1) + 1
    array([2.])
    """

    family = "Adagrad"
    locality = "row"
    learning_rate = hyper(1e-3, minimum=0)
    decay_rate = hyper(0.9, minimum=0, maximum=1)
    decay_steps = option(100000, minimum=1)
    initial_accumulator_value = option(0.1, minimum=1e-30)
    accumulator = slot(init="initial_accumulator_value")
    decays = slot(shape="row", dtype="float32")

    def update(self, ops, grad, var, slots, hyper, t):
        due = ops.floor((t - 1) / self.decay_steps)
        missed = due - slots.decays
        decayed = ops.maximum(slots.accumulator * hyper.decay_rate**missed, self.initial_accumulator_value)
        accumulator = ops.where(missed > 0, decayed, slots.accumulator) + grad * grad
        return hyper.learning_rate * grad / ops.sqrt(accumulator), {"accumulator": accumulator, "decays": due}
