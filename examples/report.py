# -*- coding: utf-8 -*-
# not run: it needs matplotlib and the results of demo.py
"""Prints the table and the nearest words and draws the curves, from the results of worker.py. demo.py calls it:

    python report.py FOLDER

Exits with 1 if an API differs from the oracle by more than rounding.
"""
import glob
import json
import os
import sys
from collections import OrderedDict, namedtuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  # after choosing a backend that needs no screen
import numpy as np  # noqa: E402

import words  # noqa: E402
import worker  # noqa: E402

BOUND = 1e-5  # more than rounding causes; a mistake in a rule causes far more
ADAM, OWN = "digits, Adam", "digits, the API's own Adam"
Result = namedtuple("Result", "run task api target framework cell python seconds score losses weights")


def read(path):
    with np.load(path) as arrays:
        for number, result in enumerate(json.loads(arrays["results"].item())):
            own = {name.split("/", 1)[1]: arrays[name].astype(float) for name in arrays.files
                   if name.startswith("%d/" % number)}
            yield Result(losses=own.pop("losses"), weights=own, **result)


def read_all(folder):
    """Returns {run: oracle}, {run: other results}, and {(cell, API): result of the stock Adam}."""
    oracles = OrderedDict((result.run, result) for result in read(os.path.join(folder, "oracle.npz")))
    paths = glob.glob(os.path.join(folder, "py*.npz"))
    found = sorted((result for path in paths for result in read(path)),
                   key=lambda result: [int(part) for part in result.python.split(".")])
    results = OrderedDict((run, [result for result in found if result.run == run]) for run in oracles)
    return oracles, results, {(result.cell, result.api): result for result in results.pop(OWN)}


def difference(result, oracle):
    """Returns the largest max|difference| / max|weight| of any variable."""
    return max(np.abs(result.weights[name] - value).max() / np.abs(value).max()
               for name, value in oracle.weights.items())


def print_table(oracles, results, own):
    rows = [("task", "API", "target", "Python", "framework",
             "seconds", "final loss", "score", "off oracle", "API's own")]
    for run in results:
        for result in [oracles[run]] + results[run]:
            stock = own.get((result.cell, result.api)) if run == ADAM else None
            rows.append((run, result.api, result.target, result.python, result.framework, "%.1f" % result.seconds,
                         "%.6f" % result.losses[-20:].mean(), "%.1f %%" % (100 * result.score),
                         "" if result is oracles[run] else "%.1e" % difference(result, oracles[run]),
                         "%.1e" % difference(stock, oracles[run]) if stock else ""))
    widths = [max(map(len, column)) for column in zip(*rows)]
    for number, row in enumerate(rows):
        if number == 1 or number > 1 and row[0] != rows[number - 1][0]:
            print("  ".join("-" * width for width in widths))
        print("  ".join(cell.rjust(width) if place > 4 else cell.ljust(width)
                        for place, (cell, width) in enumerate(zip(row, widths))).rstrip())
    print("""
final loss  mean of the last 20 batches
score       digits: {}; words: {}
off oracle  largest max|difference| / max|weight| of a variable, against the same training in NumPy float64
API's own   the same for the Adam that the API brings, with the same hypers
""".format(worker.digits.SCORE, words.SCORE))


def print_neighbours(folder, oracles, results):
    """Prints the nearest words, and on how many APIs they are the same."""
    data = worker.prepared(folder, words)[1]
    runs = [run for run in results if oracles[run].task == "words"]  # they share an oracle
    near = {word: words.nearest(oracles[runs[0]].weights, data, word) for word in words.SHOWN}
    found = [result for run in runs for result in results[run]]
    same = sum(all(words.nearest(result.weights, data, word) == near[word] for word in near) for result in found)
    print("Nearest words, the same in the same order on %d of %d:" % (same, len(found)))
    for word in near:
        print("    %-8s %s" % (word, ", ".join(near[word])))
    print()


def print_speed(results):
    """Prints the seconds with gradients by hand, relative to differentiation on the same API."""
    whole = {(result.cell, result.api): result.seconds for result in results["words, AdagradDecay"]}
    by_hand = [result for result in results["words, by hand"] if (result.cell, result.api) in whole]
    ratios = ["%s on Python %s %.2f" % (result.api, result.python, result.seconds / whole[result.cell, result.api])
              for result in by_hand]
    print("Seconds with gradients by hand / differentiated: %s\n" % "; ".join(ratios))


def smooth(losses, width=20):
    return np.convolve(losses, np.ones(width) / width, "valid")


def apart(result, oracle):
    return smooth(np.abs(result.losses - oracle.losses) / np.abs(oracle.losses))


def draw(oracles, results, own, path):
    """Draws the losses, which coincide, above, and their differences below."""
    targets = list(OrderedDict.fromkeys(result.target for run in results.values() for result in run))
    colors = dict(zip(targets, plt.get_cmap("tab10").colors))
    figure, axes = plt.subplots(2, len(results), figsize=(18, 8.5), sharex="col", squeeze=False,
                                gridspec_kw=dict(height_ratios=(3, 2)), constrained_layout=True)
    for (above, below), run in zip(axes.T, results):
        oracle, others = oracles[run], results[run]
        above.plot(smooth(oracle.losses), color="0.85", linewidth=10, label="oracle: NumPy, float64")
        if run == ADAM:
            for stock in own.values():
                below.plot(apart(stock, oracle), color="0.4", linewidth=0.9, linestyle=":")
        for number, result in enumerate(others):
            color = colors[result.target]
            # Alternating dashes keep coinciding curves visible.
            dashes = 5 * number, (5, 5 * len(others) - 5)
            above.plot(smooth(result.losses), color=color, linewidth=1.8, linestyle=dashes if len(others) > 1 else "-")
            below.plot(apart(result, oracle), color=color, linewidth=1.0, alpha=0.8)
        above.set_title(run)
        below.set_yscale("log")
        below.sharey(axes[1, 0]) if below is not axes[1, 0] else None
        below.set_xlabel("step")
        below.grid(alpha=0.3)
    for target in targets:
        count = len({(result.cell, result.api) for result in sum(results.values(), []) if result.target == target})
        axes[0, 0].plot([], color=colors[target], linewidth=1.8, label="%s (%d curves)" % (target, count))
    if own:
        axes[1, 0].plot([], color="0.4", linestyle=":", label="the API's own Adam")
        axes[1, 0].legend(frameon=False, loc="upper right")
    axes[0, 0].set_ylabel("loss")
    axes[1, 0].set_ylabel("|loss - oracle's| / oracle's")
    axes[0, 0].legend(frameon=False)
    figure.suptitle("One definition each, trained on every API found")
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    folder = sys.argv[1]
    oracles, results, own = read_all(os.path.join(folder, "results"))
    print_table(oracles, results, own)
    print_neighbours(folder, oracles, results)
    print_speed(results)
    draw(oracles, results, own, os.path.join(folder, "curves.png"))
    print("Curves: " + os.path.join(folder, "curves.png"))
    strayed = [result for run in results for result in results[run] if not difference(result, oracles[run]) < BOUND]
    for result in strayed:
        print("%s strays from the oracle on %s of %s" % (result.run, result.api, result.cell))
    sys.exit(bool(strayed))
