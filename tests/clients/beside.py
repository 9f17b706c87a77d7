"""Trains twice with a client's own optimizer and once with ours, and resumes each run from what it saved halfway."""
from __future__ import absolute_import, division, print_function

from collections import namedtuple

from compare import apart, shown

Trained = namedtuple("Trained", "losses weights moved resumed")


class InCheckpoint(object):
    """A run that is saved by `tf.train.Checkpoint`."""

    def checkpoint(self):
        """Returns a Checkpoint of all that the run trains."""
        raise AssertionError("each run says what its checkpoint has")

    def save(self, folder):
        self.checkpoint().write(str(folder / "half"))

    def load(self, folder):
        self.checkpoint().read(str(folder / "half"))


def trained(make, optimizer, folder, half):
    """Trains, saves, trains on, and resumes a second run from the file.

    Args:
        make: a function of an optimizer that returns a run: an object with `train(steps)`, which returns losses,
            `weights()`, `save(folder)` and `load(folder)`.
        optimizer: a function that returns an optimizer.
        folder: a path that does not exist.
        half: the steps before the run is saved, and again after it.

    Returns:
        Its losses and weights, how far the weights moved, and how far the resumed run is from it.
    """
    folder.mkdir()
    whole = make(optimizer())
    start = whole.weights()
    losses = list(whole.train(half))
    whole.save(folder)
    rest = list(whole.train(half))
    second = make(optimizer())
    second.load(folder)
    resumed = max(apart(rest, list(second.train(half))), apart(whole.weights(), second.weights()))
    return Trained(losses + rest, whole.weights(), apart(start, whole.weights()), resumed)


def same_numbers(client, text, make, stock, ours, folder, half, saved, each=1, within=1e-5):
    """Fails unless ours trains as stock does, and resumes as well. Keeps a row of the client table.

    Args:
        client: (its name, its versions).
        text: what is trained.
        make, half: as in `trained`.
        stock, ours: functions that return the client's own optimizer and ours.
        folder: an empty folder.
        saved: what `save` of a run calls.
        each: the steps that `train` counts as one, such as those of an epoch.
        within: the bound of the difference between stock's losses and weights and ours.
    """
    own, again, with_ours = (
        trained(make, optimizer, folder / name, half)
        for name, optimizer in (("own", stock), ("again", stock), ("ours", ours)))
    difference, noise = apart(own.losses, with_ours.losses), apart(own.losses, again.losses)
    weights, own_weights = apart(own.weights, with_ours.weights), apart(own.weights, again.weights)
    shown(*client, text, 2 * half * each, difference, noise, weights, own_weights,
          "{}: {:.1e} (its own: {:.1e})".format(saved, with_ours.resumed, own.resumed))
    assert own.losses[-1] < own.losses[0] and own.moved > 1e-3
    assert max(difference, weights) < within
    assert with_ours.resumed <= max(1e-6, own.resumed)
