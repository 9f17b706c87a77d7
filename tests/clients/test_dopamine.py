"""Dopamine 4.1 (TF 2.19, tf_keras): its DQN agent with tf.train's optimizers, saved in its bundle."""
from __future__ import absolute_import, division, print_function

from importlib import metadata

import gin
import numpy as np
import pytest
import tensorflow as tf
from beside import same_numbers
from dopamine.discrete_domains import gym_lib
from dopamine.tf.agents.dqn import dqn_agent

import everstep

DOPAMINE = "dopamine-rl", "{}, TF {}".format(metadata.version("dopamine-rl"), tf.__version__)
tf.compat.v1.disable_v2_behavior()  # as each agent does
gin.bind_parameter("WrappedReplayBuffer.replay_capacity", 1000)  # a bundle holds all of it
HALF, BATCH, SHAPE = 20, 32, (4, 1)
train = tf.compat.v1.train
STOCK = {
    "its centered RMSProp": lambda: train.RMSPropOptimizer(2e-3, decay=0.95, epsilon=1e-5, centered=True),
    "Momentum": lambda: train.MomentumOptimizer(1e-2, 0.9),
}


class Run(object):
    """An agent of Cartpole that learns from transitions at random."""

    def __init__(self, optimizer):
        with tf.Graph().as_default():
            tf.compat.v1.set_random_seed(1)
            # One thread: the order in which several add up is the greatest noise between two runs.
            self.session = tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(
                intra_op_parallelism_threads=1, inter_op_parallelism_threads=1))
            self.agent = agent = dqn_agent.DQNAgent(
                self.session, num_actions=2, observation_shape=SHAPE, observation_dtype=tf.float64, stack_size=1,
                network=gym_lib.CartpoleDQNNetwork, gamma=0.5, min_replay_history=BATCH, update_period=1,
                target_update_period=10, optimizer=optimizer)
            chosen = tf.one_hot(agent._replay.actions, 2) * agent._replay_net_outputs.q_values
            self.loss = tf.reduce_mean((agent._build_target_q_op() - tf.reduce_sum(chosen, 1)) ** 2)
            self.variables = tf.compat.v1.trainable_variables("Online")
        random = np.random.RandomState(0)
        for each in range(4 * BATCH):
            seen, action = random.uniform(-1, 1, SHAPE), random.randint(2)
            agent._store_transition(seen, action, seen[0, 0] * (2 * action - 1), each % 8 == 7)

    def train(self, steps=HALF):
        losses = []
        for _ in range(steps):
            np.random.seed(self.agent.training_steps)  # what the replay buffer draws
            self.agent._train_step()
            np.random.seed(1)
            losses.append(self.session.run(self.loss))
        return losses

    def weights(self):
        return self.session.run(self.variables)

    def save(self, folder):
        bundle = self.agent.bundle_and_checkpoint(str(folder), 1)
        np.savez(str(folder / "bundle.npz"), **bundle)

    def load(self, folder):
        with np.load(str(folder / "bundle.npz")) as bundle:
            restored = self.agent.unbundle(
                str(folder), 1, dict(state=bundle["state"], training_steps=int(bundle["training_steps"])))
        assert restored and self.agent.training_steps == HALF


@pytest.mark.parametrize("name", sorted(STOCK))
def test_dqn(name, tmp_path):
    same_numbers(
        DOPAMINE, "DQNAgent, " + name, Run, STOCK[name], lambda: everstep.from_native(STOCK[name]()).bind(train),
        tmp_path, HALF, "bundle_and_checkpoint")
