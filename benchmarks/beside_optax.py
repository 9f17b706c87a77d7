"""Times jitted steps of bind(optax) beside optax's own transforms, and asks XLA what memory each takes for itself.

    python benchmarks/beside_optax.py             # `--json FILE` also writes the figures

Both train the same tree: eight matrices of 512 x 512 and eight vectors of 512, 2.1 million numbers, with the parameters
and the state donated. Steps of the two take turns; a figure is the median of all.
"""
import argparse
import json
import statistics
import time

import jax
import optax

from everstep import optimizers

SHAPES = [(512, 512), (512,)] * 8
PAIRS = {
    "sgd": (optax.sgd(0.1), optimizers.SGD(0.1)),
    "sgd momentum": (optax.sgd(0.1, 0.9), optimizers.SGD(0.1, momentum=0.9)),
    "adam": (optax.adam(1e-3), optimizers.Adam(1e-3)),
    "adamw": (optax.adamw(1e-3), optimizers.AdamW(1e-3, weight_decay=1e-4)),
    "lion": (optax.lion(1e-4), optimizers.Lion(1e-4, weight_decay=1e-3)),
    "rmsprop": (optax.rmsprop(1e-3), optimizers.RMSprop(1e-3, epsilon_in_root=True)),
    "lamb": (optax.lamb(1e-3), optimizers.LAMB(1e-3)),
    "adafactor": (optax.adafactor(1e-3), optimizers.Adafactor(1e-3, relative_step=False)),
}
STEPS, SETTLE = 60, 5


class Stepper:
    """A compiled step and its parameters and state."""

    def __init__(self, transform):
        keys = jax.random.split(jax.random.key(0), len(SHAPES))
        self.params = [jax.random.normal(key, shape) for key, shape in zip(keys, SHAPES)]
        self.grads = [0.1 * each for each in self.params]
        self.state = transform.init(self.params)

        def step(params, state, grads):
            updates, state = transform.update(grads, state, params)
            return optax.apply_updates(params, updates), state

        start = time.perf_counter()
        self.compiled = jax.jit(step, donate_argnums=(0, 1)).lower(self.params, self.state, self.grads).compile()
        self.compile_seconds = time.perf_counter() - start
        self.temporaries = self.compiled.memory_analysis().temp_size_in_bytes

    def seconds(self):
        start = time.perf_counter()
        self.params, self.state = self.compiled(self.params, self.state, self.grads)
        jax.block_until_ready((self.params, self.state))
        return time.perf_counter() - start


def figures(name):
    """Returns {what: (optax's, ours)}."""
    stock, ours = PAIRS[name]
    steppers = [Stepper(stock), Stepper(ours.bind(optax))]
    times = [[stepper.seconds() for stepper in steppers] for _ in range(STEPS)][SETTLE:]
    return {"ms": [1e3 * statistics.median(each) for each in zip(*times)],
            "MB of temporaries": [stepper.temporaries / 1e6 for stepper in steppers],
            "s to compile": [stepper.compile_seconds for stepper in steppers]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="a file for the figures")
    given, found = parser.parse_args(), {}
    for name in PAIRS:
        found[name] = figures(name)
        print("{:14}".format(name) + "".join(
            "  {} {:.2f} / {:.2f}".format(what, *reversed(both)) for what, both in found[name].items()), flush=True)
    if given.json:
        with open(given.json, "w", encoding="ascii") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
