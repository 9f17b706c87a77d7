"""Times steps of bind(torch.optim) beside torch's own optimizers: its default, foreach and fused.

    python benchmarks/beside_torch.py             # `--json FILE` also writes the figures

CPU time of one thread; steps of all take turns, and a figure is the median ratio of ours to theirs.
"""
import argparse
import json
import statistics
import time

import torch

from everstep import optimizers

MODELS = {"4 of 30": [(6, 5)] * 4, "100 of 1,000": [(40, 25)] * 100, "8 of 500,000": [(1000, 500)] * 8}
PAIRS = {
    "Adam": (torch.optim.Adam, {}, optimizers.Adam(1e-3, epsilon=1e-8, corrected_root=True)),
    "AdamW": (torch.optim.AdamW, {}, optimizers.AdamW(1e-3, epsilon=1e-8, corrected_root=True, weight_decay=0.01)),
    "SGD": (torch.optim.SGD, dict(lr=0.1), optimizers.SGD(0.1)),
    "SGD, momentum": (torch.optim.SGD, dict(lr=0.1, momentum=0.9),
                      optimizers.SGD(0.1, momentum=0.9, rate_in_velocity=False)),
    "RMSprop": (torch.optim.RMSprop, {}, optimizers.RMSprop(0.01, rho=0.99, epsilon=1e-8, epsilon_in_root=False)),
    "Adagrad": (torch.optim.Adagrad, {}, optimizers.Adagrad(0.01, initial_accumulator_value=0.0, epsilon=1e-10,
                                                            epsilon_in_root=False)),
}
WAYS = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}
SETTLE = 10


def parameters(shapes):
    """Returns parameters with gradients."""
    made = [torch.ones(shape, requires_grad=True) for shape in shapes]
    for param in made:
        param.grad = torch.full_like(param, 0.1)
    return made


def steppers(name, shapes):
    """Returns {way: `step` of a new optimizer}; torch has no fused one of RMSprop."""
    stock, arguments, ours = PAIRS[name]
    made = {"ours": ours.bind(torch.optim, params=parameters(shapes)).step}
    for way, flags in WAYS.items():
        try:
            made[way] = stock(parameters(shapes), **dict(arguments, **flags)).step
        except TypeError:
            continue
    return made


def ratios(name, shapes, steps):
    """Returns {way: median of our CPU time, divided by that of torch}."""
    made = steppers(name, shapes)
    times = {way: [] for way in made}
    for _ in range(SETTLE + steps):
        for way, step in made.items():
            start = time.process_time()
            step()
            times[way].append(time.process_time() - start)
    ours = times.pop("ours")[SETTLE:]
    return {way: statistics.median(mine / theirs for mine, theirs in zip(ours, others[SETTLE:]))
            for way, others in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="a file for the figures")
    parser.add_argument("--steps", type=int, default=200, help="steps of each (200)")
    given, found = parser.parse_args(), {}
    torch.set_num_threads(1)
    for name in PAIRS:
        found[name] = {model: ratios(name, shapes, given.steps) for model, shapes in MODELS.items()}
        print(name, flush=True)
        for model, of_model in found[name].items():
            figures = "".join("  {} {:.2f}".format(*each) for each in of_model.items())
            print("    {:14}".format(model) + figures, flush=True)
    if given.json:
        with open(given.json, "w", encoding="ascii") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
