"""TF-Agents 0.14 (TF 2.10): a DQN agent with optimizers of tf.keras and of tf.compat.v1.train, and its Checkpointer."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf
import tf_agents
from compare import apart, one_thread, shown
from tf_agents.agents.dqn import dqn_agent
from tf_agents.networks import q_network
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step, trajectory
from tf_agents.utils import common

import everstep

AGENTS = "tf-agents", "{}, TF {}".format(tf_agents.__version__, tf.__version__)
one_thread(tf)
STEPS, BATCH = 40, 16
STOCK = {
    "tf.keras Adam": lambda: tf.keras.optimizers.Adam(1e-2),
    "tf.train RMSProp": lambda: tf.compat.v1.train.RMSPropOptimizer(5e-3, momentum=0.5),
}


def ours(name):
    module = tf.keras if "keras" in name else tf.compat.v1.train
    return everstep.from_native(STOCK[name]()).bind(module)


class Run(object):
    """An agent, its step and the Checkpointer, which takes up what the folder has."""

    def __init__(self, optimizer, folder):
        tf.random.set_seed(1)
        observations = tensor_spec.TensorSpec((4,), tf.float32)
        actions = tensor_spec.BoundedTensorSpec((), tf.int32, 0, 1)
        seeds = tf.keras.initializers.GlorotUniform(1)
        layers = q_network.QNetwork(observations, actions, fc_layer_params=(16,), kernel_initializer=seeds)
        self.step = tf.Variable(0, dtype=tf.int64, name="train_step")
        self.agent = dqn_agent.DqnAgent(
            time_step.time_step_spec(observations), actions, layers, optimizer, target_update_period=5,
            gradient_clipping=1.0, td_errors_loss_fn=common.element_wise_squared_loss, train_step_counter=self.step)
        self.agent.initialize()
        self.train_once = common.function(self.agent.train)
        self.saved = common.Checkpointer(
            str(folder), agent=self.agent, optimizer=optimizer, global_step=self.step)
        self.saved.initialize_or_restore()

    def train(self, steps):
        losses = []
        for _ in range(steps):
            random = np.random.RandomState(int(self.step))
            seen = random.normal(size=(BATCH, 2, 4)).astype("float32")
            actions = random.randint(0, 2, (BATCH, 2)).astype("int32")
            rewards = (seen[..., 0] * (2 * actions - 1)).astype("float32")
            kinds, ones = np.ones((BATCH, 2), "int32"), np.ones((BATCH, 2), "float32")
            experience = trajectory.Trajectory(
                *map(tf.constant, (kinds, seen, actions)), (), *map(tf.constant, (kinds, rewards, 0.9 * ones)))
            losses.append(float(self.train_once(experience).loss))
        return losses

    def weights(self):
        return [each.numpy() for each in self.agent.collect_policy.variables()]


@pytest.mark.parametrize("name", sorted(STOCK))
def test_dqn(name, tmp_path):
    makes = [("own", STOCK[name]), ("again", STOCK[name]), ("ours", lambda: ours(name))]
    own, again, with_ours = [Run(make(), tmp_path / folder) for folder, make in makes]
    start = own.weights()
    losses, losses_again, our_losses = [run.train(STEPS) for run in (own, again, with_ours)]
    difference, noise = apart(losses, our_losses), apart(losses, losses_again)
    weights, own_weights = apart(own.weights(), with_ours.weights()), apart(own.weights(), again.weights())
    resumed = []
    for (folder, make), run in ((makes[0], own), (makes[2], with_ours)):
        run.saved.save(run.step)
        expected, loaded = run.train(STEPS // 2), Run(make(), tmp_path / folder)
        assert int(loaded.step) == STEPS
        resumed.append(max(apart(expected, loaded.train(STEPS // 2)), apart(run.weights(), loaded.weights())))
    shown(*AGENTS, "DqnAgent, " + name, STEPS, difference, noise, weights, own_weights,
          "Checkpointer: {:.1e} (its own: {:.1e})".format(resumed[1], resumed[0]))
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) and apart(start, own.weights()) > 0.1
    assert max(difference, weights) < 1e-5 and resumed[1] <= max(1e-6, resumed[0])
