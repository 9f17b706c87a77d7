"""Measures first steps: building, tracing, compiling and one step. Sizes change each time, so nothing is reused."""
from functools import partial

import accumulate
import everstep
import stacks
from timing import Case, DiffGrad, Run

SMALLEST, MANY, SOME = 1000, 300, 100


class First(Run):
    """Each step builds an optimizer anew, and takes its first step. Variables and gradients are not counted."""

    warm = 0

    def __init__(self, api, make, count):
        self.api, self.make, self.count, self.size = api, make, count, SMALLEST
        self.shapes = [(SMALLEST,)] * count

    def run(self, steps):
        for _ in range(steps):
            self.size += 1
            self.last = self.api.run(self.make, [(self.size,)] * self.count)

    def seconds(self, steps):
        self.run(steps)
        return self.last.first

    def weights(self):
        return self.last.weights()


def first_step(api):
    adam, made = everstep.optimizers.Adam(), stacks.stacks(api)
    compared = partial(api.compared, run=partial(First, api))
    yield Case("Adam, 300 variables", stacks.ADAM, partial(compared, api.adam, adam, MANY))
    yield Case("DiffGrad, 300 variables", stacks.ADAM, partial(compared, api.adam, DiffGrad(), MANY))
    if stacks.BERT in made:
        bert = made[stacks.BERT]
        yield Case("BERT's stack, 100 variables", bert.beside, partial(compared, bert.make, bert.definition, SOME))
    yield Case("accumulate, 100 variables", accumulate.beside(api), partial(_accumulate, api, adam))


def _accumulate(api, adam):
    return {label: First(api, make, SOME) for label, make in accumulate.makes(api, adam, accumulate.STEPS).items()}
