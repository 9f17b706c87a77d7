"""Trains models in graphs with tf.train, so that the same start gives the same numbers."""
from __future__ import absolute_import, division, print_function

import numpy as np
import tensorflow as tf
from compare import apart, shown

import everstep


class Run(object):
    """A model in a graph of its own.

    Args:
        build: a function of the global step that returns the loss of a step.
        make: a function that returns an optimizer.
    """

    def __init__(self, build, make):
        with tf.Graph().as_default():
            tf.set_random_seed(1)
            self.step = tf.train.get_or_create_global_step()
            self.loss = build(tf.identity(self.step))
            self.optimizer = make()
            self.train_op = self.optimizer.minimize(self.loss, self.step)
            self.variables = tf.trainable_variables()
            self.saver = tf.train.Saver()
            # One thread: the order in which several add up is the greatest noise between two runs.
            self.session = tf.Session(config=tf.ConfigProto(
                intra_op_parallelism_threads=1, inter_op_parallelism_threads=1))
            self.session.run(tf.global_variables_initializer())

    def train(self, steps):
        return [self.session.run([self.loss, self.train_op])[0] for _ in range(steps)]

    def weights(self):
        return self.session.run(self.variables)


def same_maths(client, build, make, text, steps, path):
    """Compares training by a stock optimizer with ours, then ours with a run that was saved and loaded."""

    def make_ours():
        return everstep.from_native(make()).bind(tf.train)

    own, again, ours = Run(build, make), Run(build, make), Run(build, make_ours)
    assert apart(own.weights(), ours.weights()) == 0
    start, (losses, losses_again, our_losses) = own.weights(), [run.train(steps) for run in (own, again, ours)]
    difference = apart(losses, our_losses), apart(own.weights(), ours.weights())
    resumed = resumed_apart(ours, build, make_ours, steps, path)
    shown(*(client + (text, steps, difference[0], apart(losses, losses_again), difference[1],
                      apart(own.weights(), again.weights()), "tf.train.Saver: {:.1e}".format(resumed))))
    assert apart(start, own.weights()) > 1e-2 and np.mean(our_losses[-5:]) < np.mean(our_losses[:5])
    assert max(difference) < 1e-5
    assert resumed < 1e-6


def resumed_apart(run, build, make, steps, path):
    """Returns how far a run that was saved and loaded is from one that was not."""
    path = run.saver.save(run.session, path)
    expected = run.train(steps)
    resumed = Run(build, make)
    resumed.saver.restore(resumed.session, path)
    return max(apart(expected, resumed.train(steps)), apart(run.weights(), resumed.weights()))
