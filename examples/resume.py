# runs in: py38-tf2.4
"""Resuming after a crash, bit for bit.

A process that dies in the middle of training loses only the steps since the last save. `everstep.capture` takes
weights, slots and counters every few batches. `State.save` writes a temporary file and renames it, so the file under
its name is always complete: either the new one or the old one. It also has the weights, so a new process needs nothing
else, on this API or another.

The script trains three times: once without a crash; once in a process that is killed with SIGKILL in the middle of the
third epoch; and once more in a new process, which goes on from the file. The learning rate follows a schedule, Adam has
its bias corrections, and gradients are accumulated over two batches, so every wrong counter would show. At the end the
weights are equal, bit for bit.
"""
from __future__ import absolute_import, division, print_function

import gzip
import os
import signal
import subprocess
import sys

import numpy as np
import tensorflow as tf

import everstep
from everstep.optimizers import Adam

keras = tf.keras
BATCHES, EPOCHS, SAVED_EVERY, KILLED_AFTER = 44, 4, 15, 100    # 100: between two saves, and within an update
with gzip.open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "digits.csv.gz")) as table:
    IMAGES = np.loadtxt(table, delimiter=",", dtype="float32")
PIXELS, DIGITS = IMAGES[:, :64] / 16, IMAGES[:, 64].astype("int32")


def train(path, killed_after=None):
    """Trains, from what the file has if there is one. Returns (steps at the start, losses, weights)."""
    model = keras.Sequential([keras.layers.Dense(64, "tanh", input_shape=(64,)), keras.layers.Dense(10)])
    random = np.random.RandomState(1)
    model.set_weights([random.normal(0, 0.1, value.shape) for value in model.get_weights()])
    rule = everstep.accumulate(Adam(everstep.CosineDecay(1e-2, decay_steps=88)), steps=2)
    model.compile(rule.bind(keras), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    first = 0
    if os.path.exists(path):
        state = everstep.State.load(path)
        everstep.restore(model.optimizer, state, model.trainable_variables, weights=True)
        first = state.steps
    losses = []
    for step in range(first, BATCHES * EPOCHS):
        rows = np.arange(step * 32, step * 32 + 32) % len(DIGITS)    # the data goes on where it was, too
        losses.append(float(model.train_on_batch(PIXELS[rows], DIGITS[rows])))
        if (step + 1) % SAVED_EVERY == 0:
            everstep.capture(model.optimizer, model.trainable_variables, weights=True).save(path)
        if step + 1 == killed_after:
            os.kill(os.getpid(), signal.SIGKILL)
    return first, losses, model.get_weights()


if len(sys.argv) == 3 and sys.argv[1] == "--die":
    train(sys.argv[2], KILLED_AFTER)

_, whole, expected = train("whole.npz")
script = os.path.abspath(__file__)
same_packages = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
code = subprocess.call([sys.executable, script, "--die", "killed.npz"], env=same_packages)
first, resumed, weights = train("killed.npz")
print("killed by signal %d after batch %d; a new process goes on after batch %d" % (-code, KILLED_AFTER, first))
print("last loss: %.6f without the crash, %.6f with it" % (whole[-1], resumed[-1]))
same = all((one == other).all() for one, other in zip(expected, weights))
print("weights at the end: %s" % ("the same bits" if same else "not the same"))
assert code == -signal.SIGKILL and first == 90 and same
CURVES = {"without a crash": whole, "killed after batch 100": whole[:KILLED_AFTER],
          "a new process": [None] * first + resumed}
AXES = ("batches", "loss of a batch")
