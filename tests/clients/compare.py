"""Compares a client's training with its own optimizer and with ours.

A test trains three times from the same start with the same data: with the client's own optimizer twice, and with ours.
What two runs of its own differ by is the noise; ours may differ by little more. `shown` keeps the figures.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

LINES = []  # what each client showed: the rows of the table in matrix/record/proof.md


def apart(own, others):
    """Returns the largest `max|difference| / max|own|` of two lists or dicts of arrays, such as losses or weights."""
    keys = sorted(own) if isinstance(own, dict) else range(len(own))
    assert len(own) == len(others)
    own, others = ([np.asarray(values[key], np.float64) for key in keys] for values in (own, others))
    assert all(one.shape == other.shape and np.isfinite(other).all() for one, other in zip(own, others))
    if all(one.ndim == 0 for one in own):  # a curve
        own, others = [np.array(own)], [np.array(others)]
    pairs = [(one, other) for one, other in zip(own, others) if one.size]
    return max(np.abs(one - other).max() / max(np.abs(one).max(), 1e-12) for one, other in pairs)


def one_thread(tf):
    """Keeps TensorFlow to one thread: the order of additions is the noise between two runs. For before its first op."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def fitted(model, epochs, batch, batches, **others):
    """Trains a model of Keras to tell whether the first two of four numbers are positive together.

    Returns the loss of each epoch.
    """
    x = np.random.RandomState(0).normal(size=(batch * batches, 4)).astype("float32")
    y = (x[:, :1] + x[:, 1:2] > 0) * 1.0
    return model.fit(x, y, batch, epochs, shuffle=False, verbose=0, **others).history["loss"]


def shown(client, versions, trained, steps, losses="", own_losses="", weights="", own_weights="", saved=""):
    """Keeps a row of the client table, and prints it.

    Args:
        client, versions: its name on the package index, and "1.0.4, TF 1.15.5".
        trained: what was trained and with which optimizer, in a few words.
        losses, weights: what `apart` gives for its own optimizer and ours.
        own_losses, own_weights: the same for two runs of its own.
        saved: what was saved, loaded and resumed, and how far from the run that was not interrupted.
    """
    figures = dict(losses=losses, own_losses=own_losses, weights=weights, own_weights=own_weights)
    line = {key: value if isinstance(value, str) else "{:.1e}".format(value) for key, value in figures.items()}
    line.update(client=client, versions=versions, trained=trained, steps=steps, saved=saved)
    LINES.append(line)
    print(line)
