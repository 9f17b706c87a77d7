# -*- coding: utf-8 -*-
# not run: it needs matplotlib and the results of demo.py
"""Prints the table and the nearest words and draws the curves, from the results of worker.py. demo.py calls it:

    python report.py FOLDER PICTURE [FAILED ...]

FAILED are the environments that demo.py could not install or train. The last line is the verdict. Exits with 1 if it
is no, and with 2 if the picture cannot be written.
"""
import glob
import json
import os
import sys
import textwrap
from collections import OrderedDict, namedtuple

import numpy as np

import words
import worker

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


def short(framework):
    """Returns names and versions in few letters: "tensorflow 2.15.1" as "TF 2.15"."""
    parts = [part.split(" ") for part in framework.replace("tensorflow", "TF").split(", ")]
    if parts[0][0] == "tf_keras":
        parts = parts[:1]  # its TensorFlow has the same version
    return ", ".join("%s %s" % (name, ".".join(version.split(".")[:2])) for name, version in parts)


def table(oracles, results, own):
    """Returns the lines of the table, none longer than 100."""
    rows = [("API", "Python", "framework", "s", "loss", "score", "off by", "its own")]
    groups = [(1, None)]
    for run in results:
        for result in [oracles[run]] + results[run]:
            stock = own.get((result.cell, result.api)) if run == ADAM else None
            off = "oracle" if result is oracles[run] else "%.1e" % difference(result, oracles[run])
            rows.append((result.api, ".".join(result.python.split(".")[:2]), short(result.framework),
                         "%.1f" % result.seconds, "%.4f" % result.losses[-20:].mean(),
                         "%.1f%%" % (100 * result.score), off,
                         "%.1e" % difference(stock, oracles[run]) if stock else ""))
        groups.append((len(rows), run))
    widths = [max(map(len, column)) for column in zip(*rows)]
    written = ["  ".join(text.rjust(width) if column > 2 else text.ljust(width)
                         for column, (text, width) in enumerate(zip(row, widths))).rstrip() for row in rows]
    lines = written[:1]
    for (first, _), (last, run) in zip(groups, groups[1:]):
        lines += [("-- %s " % run).ljust(len(written[0]), "-")] + written[first:last]
    return lines


def print_table(oracles, results, own):
    print("\n".join(table(oracles, results, own)))
    print("""
loss     mean of the last 20 batches
score    digits: {}; words: {}
off by   largest max|difference| / max|weight| of a variable, against the same
         training in NumPy float64, the oracle
its own  the same for the Adam that the API brings, with the same hypers
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
    said = "Seconds with gradients by hand / differentiated: %s" % "; ".join(ratios)
    print(textwrap.fill(said, 100, subsequent_indent="    ") + "\n")


def smooth(losses, width=20):
    return np.convolve(losses, np.ones(width) / width, "valid")


def apart(result, oracle):
    return smooth(np.abs(result.losses - oracle.losses) / np.abs(oracle.losses))


def draw(oracles, results, own, path):
    """Draws the losses, which coincide, above, and their differences below."""
    import matplotlib  # here, because the table and the verdict need none

    matplotlib.use("Agg")  # it needs no screen
    import matplotlib.pyplot as plt

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


def verdict(oracles, results, failed):
    """Returns (yes or no, the sentence that says so)."""
    found = [(result, difference(result, oracles[run])) for run in results for result in results[run]]
    strayed = ["%s of %s on %s" % (result.run, result.cell, result.api) for result, off in found if not off < BOUND]
    if strayed or failed or not found:
        causes = ["%d of %d results differ from the oracle by more than %.0e: %s" % (
            len(strayed), len(found), BOUND, "; ".join(strayed))] if strayed else []
        causes += ["failed in part or whole: %s" % ", ".join(failed)] if failed else []
        return False, "No: %s." % ("; ".join(causes) or "nothing was trained")
    apis = {(result.cell, result.api) for result, _ in found}
    pythons = {result.python for result, _ in found}
    said = "Yes: each definition gave the same weights on %d APIs of %d Python%s, within %.1e (allowed: %.0e)."
    return True, said % (
        len(apis), len(pythons), "s" * (len(pythons) > 1), max(off for _, off in found), BOUND)


def main(folder, picture, failed):
    oracles, results, own = read_all(os.path.join(folder, "results"))
    if any(results.values()):
        print_table(oracles, results, own)
        print_neighbours(folder, oracles, results)
        print_speed(results)
        draw(oracles, results, own, picture + ".part.png")
        os.replace(picture + ".part.png", picture)
        print("Picture: " + picture)
    yes, said = verdict(oracles, results, failed)
    print(said)
    return 0 if yes else 1


if __name__ == "__main__":
    try:
        code = main(sys.argv[1], sys.argv[2], sys.argv[3:])
    except OSError as error:
        print("No: the results cannot be read or the picture written: %s. The last run's are kept." % error)
        code = 2
    sys.exit(code)
