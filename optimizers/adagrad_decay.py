"""AdagradDecay: Adagrad whose accumulators decay."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, option, slot

_TURN = 2**24  # `decays` holds the remainder by it: a float32 holds every integer up to there


class AdagradDecay(Definition):
    """Adagrad (Duchi et al. 2011, https://jmlr.org/papers/v12/duchi11a.html) with accumulators that decay.

    The idea is DeepRec's, for the embeddings of models that are trained for a month and more:
    https://github.com/DeepRec-AI/DeepRec/blob/main/docs/docs_en/AdagradDecay-Optimizer.md

    due = floor((t - 1) / decay_steps), the number of decays due; `decays` counts, for each row, those it has had
    (`decays` holds the remainder by 2^24)
    accumulator := max(accumulator * decay_rate^(due - decays), initial_accumulator_value) if due > decays
    accumulator := accumulator + grad^2;  decays := due
    var := var - learning_rate * grad / sqrt(accumulator)

    When a row is next touched, it takes all the decays that it missed. (DeepRec takes one per touch.) So with
    sparse="rows" the variable is the same as after dense steps; only the slots of untouched rows lag behind.

    Advice:
        Use it for continuous training on very much data, for which Adagrad's accumulators grow until new data no longer
        change the model. Let decay_steps be a period of the data, such as the updates of a quarter of a day (DeepRec).

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.001.
        decay_rate: The factor by which accumulators are multiplied, 0 to 1. Default 0.9.
        decay_steps: Number of updates from one decay to the next, at least 1. Default 100000.
        initial_accumulator_value: The first value of accumulators and their lower limit, more than 0. Default 0.1.

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
        accumulator, due = self._decayed(ops, slots, hyper, t)
        accumulator = accumulator + grad * grad
        return hyper.learning_rate * grad / ops.sqrt(accumulator), {"accumulator": accumulator, "decays": due}

    def _decayed(self, ops, slots, hyper, t):
        """Returns (the accumulator after the decays that it missed, how many were due)."""
        due = (t - 1) // self.decay_steps % _TURN
        missed = due - slots.decays
        missed = ops.where(missed < -_TURN / 2, missed + _TURN, missed)
        decayed = ops.maximum(slots.accumulator * hyper.decay_rate**missed, self.initial_accumulator_value)
        return ops.where(missed > 0, decayed, slots.accumulator), due

    max_replay_steps = 0

    def fast_forward(self, ops, var, slots, hyper, steps):
        accumulator, due = self._decayed(ops, slots, hyper, hyper.updates + 1)
        missed = steps > 0
        return 0, {
            "accumulator": ops.where(missed, accumulator, slots.accumulator),
            "decays": ops.where(missed, due, slots.decays),
        }
