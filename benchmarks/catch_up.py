"""What a sparse step costs by the rows of its table: python benchmarks/catch_up.py

CPU seconds of one step of Adam on an embedding of 32 columns, 256 Zipf-distributed rows to a batch, in a tf.function;
steps of all tables and semantics take turns, so that what else the machine does meets all alike. Needs TensorFlow 2.
"""
import time

import numpy as np
import tensorflow as tf

import everstep

TABLES = (10000, 100000, 1000000)
SEMANTICS = ("exact", "rows", "catch_up")
WARM, STEPS, ROUNDS, BATCH, COLUMNS = 30, 20, 5, 256, 32


class Case(object):
    def __init__(self, rows, sparse):
        self.rows, self.random = rows, np.random.RandomState(0)
        self.table = tf.Variable(tf.zeros((rows, COLUMNS)))
        module = getattr(tf.keras.optimizers, "legacy", tf.keras)
        self.optimizer = everstep.optimizers.Adam(sparse=sparse).bind(module)
        self.function = tf.function(self.apply)

    def apply(self, values, indices):
        grad = tf.IndexedSlices(values, indices, (self.rows, COLUMNS))
        self.optimizer.apply_gradients([(grad, self.table)])

    def run(self, steps):
        """CPU seconds a step."""
        batches = [
            (
                tf.constant(self.random.normal(0, 1, (BATCH, COLUMNS)).astype("float32")),
                tf.constant(np.minimum(self.random.zipf(1.3, BATCH), self.rows) - 1, tf.int64),
            )
            for _ in range(steps)
        ]
        start = time.process_time()
        for batch in batches:
            self.function(*batch)
        return (time.process_time() - start) / steps


def main():
    cases = {(rows, sparse): Case(rows, sparse) for sparse in SEMANTICS for rows in TABLES}
    for case in cases.values():
        case.run(WARM)
    seconds = {key: [] for key in cases}
    for _ in range(ROUNDS):
        for key, case in cases.items():
            seconds[key].append(case.run(STEPS))
    print("{:10}".format("rows") + "".join("{:>14}".format(sparse) for sparse in SEMANTICS))
    for rows in TABLES:
        cells = ["{:11.2f} ms".format(1e3 * np.median(seconds[rows, sparse])) for sparse in SEMANTICS]
        print("{:<10}".format(rows) + "".join(cells))


if __name__ == "__main__":
    main()
