"""Measures a sparse step of Adam on a table of embeddings, by rows and look-ups, and prints a table in Markdown.

    PYTHONPATH=.dev python benchmarks/catch_up.py [--graph ref|resource] [--case ROWS,LOOKUPS ...] [--exact-up-to ROWS]

CPU time of a step in milliseconds, medians of interleaved rounds. Look-ups are new and Zipf-distributed in every step,
so rows were away for one step to a whole run. `stock` is the API's own Adam, `LazyAdam` that of tf.contrib. Without
--graph, steps are a tf.function with an optimizer of tf.keras; with it, a graph of TF 1.
"""

import argparse
import os
import time

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402  # after its settings

import everstep  # noqa: E402

COLUMNS, BATCHES, ROUNDS = 64, 64, 7
CASES = ["10000,1024", "1000000,1024", "1000000,10240", "5000000,1024"]
v1 = getattr(getattr(tf, "compat", None), "v1", None) or tf


def batches(rows, lookups):
    """Returns batches of distinct-by-chance row numbers, Zipf-distributed; scattered, so that no cache is warm."""
    random = np.random.RandomState(0)
    ranks = np.minimum(random.zipf(1.1, (BATCHES, lookups)), 10**9).astype("int64")
    return ranks * 2654435761 % rows


def makers(graph):
    """Returns `{name: function that returns an optimizer}`."""
    module = v1.train if graph else tf.keras
    adam = everstep.optimizers.Adam
    optimizers = {
        meaning: lambda meaning=meaning: adam(1e-3, sparse=meaning).bind(module)
        for meaning in ("rows", "catch_up", "exact")
    }
    optimizers["stock"] = lambda: v1.train.AdamOptimizer(1e-3) if graph else tf.keras.optimizers.Adam(1e-3)
    try:
        from tensorflow.contrib.opt import LazyAdamOptimizer

        optimizers["LazyAdam"] = lambda: LazyAdamOptimizer(1e-3)
    except ImportError:
        pass
    return optimizers


def graph_step(make, rows, lookups, kind):
    """Returns a function that runs a step on a batch of row numbers, in a session of a graph of its own."""
    with v1.Graph().as_default() as graph:
        with v1.variable_scope("table", use_resource=kind == "resource"):
            start = v1.constant_initializer(0.1)
            table = v1.get_variable("table", [rows, COLUMNS], initializer=start)
        chosen = v1.placeholder(tf.int64, [lookups])
        grad = tf.constant(np.random.RandomState(1).normal(0, 1, (lookups, COLUMNS)).astype("float32"))
        slices = tf.IndexedSlices(grad, chosen, tf.constant([rows, COLUMNS], "int64"))
        operation = make().apply_gradients([(slices, table)])
        session = v1.Session(graph=graph)
        session.run(v1.global_variables_initializer())
    return lambda batch: session.run(operation, {chosen: batch})


def function_step(make, rows, lookups):
    """Returns a function that runs a step on a batch of row numbers, in a tf.function."""
    table, optimizer = tf.Variable(tf.fill([rows, COLUMNS], 0.1)), make()
    grad = tf.constant(np.random.RandomState(1).normal(0, 1, (lookups, COLUMNS)).astype("float32"))

    @tf.function
    def step(chosen):
        slices = tf.IndexedSlices(grad, chosen, tf.constant([rows, COLUMNS], tf.int64))
        optimizer.apply_gradients([(slices, table)])

    return lambda batch: step(tf.constant(batch))


def measure(rows, lookups, graph, most_exact):
    """Returns `{name: milliseconds of CPU time of a step}`."""
    batch, steps = batches(rows, lookups), {}
    for name, make in makers(graph).items():
        if rows <= most_exact or name not in ("exact", "stock"):
            steps[name] = graph_step(make, rows, lookups, graph) if graph else function_step(make, rows, lookups)
    counts = {name: 2 if name in ("exact", "stock") and rows > 100000 else 32 for name in steps}
    times = {name: [] for name in steps}
    for name, step in steps.items():
        for number in range(min(counts[name], 8)):
            step(batch[number])
    for turn in range(ROUNDS):
        for name, step in steps.items():
            start = time.process_time()
            for number in range(counts[name]):
                step(batch[(turn * 32 + number) % BATCHES])
            times[name].append((time.process_time() - start) / counts[name] * 1000)
    medians = {name: np.median(taken) for name, taken in times.items()}
    medians["ratio"] = np.median(np.array(times["catch_up"]) / times["rows"])
    return medians


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--graph", choices=("ref", "resource"))
    parser.add_argument("--case", action="append", help="ROWS,LOOKUPS")
    parser.add_argument("--exact-up-to", type=int, default=1000000, help="the largest table for `exact` and `stock`")
    given = parser.parse_args()
    if given.graph and hasattr(v1, "disable_v2_behavior"):
        v1.disable_v2_behavior()
    names = ["rows", "catch_up", "exact", "LazyAdam", "stock"]
    print("| rows | look-ups | {} | catch_up / rows |".format(" | ".join(names)))
    print("| ---: | ---: |" + " ---: |" * (len(names) + 1))
    for case in given.case or CASES:
        rows, lookups = map(int, case.split(","))
        taken = measure(rows, lookups, given.graph, given.exact_up_to)
        cells = ["{:.2f} ms".format(taken[name]) if name in taken else "" for name in names]
        print("| {:,} | {:,} | {} | {:.2f} |".format(rows, lookups, " | ".join(cells), taken["ratio"]), flush=True)


if __name__ == "__main__":
    main()
