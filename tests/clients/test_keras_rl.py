"""keras-rl2 1.0.5 (TF 2.10): agents that call get_updates of an OptimizerV2, by an optimizer of their own."""
from __future__ import absolute_import, division, print_function

import random

import numpy as np
import pytest
import tensorflow as tf
from compare import apart, shown
from rl.agents import DDPGAgent, DQNAgent
from rl.memory import SequentialMemory
from rl.policy import EpsGreedyQPolicy

import everstep

RL = "keras-rl2", "1.0.5, TF " + tf.__version__
STEPS = 150
layers = tf.keras.layers


class Line(object):
    """A point to be moved to 0: by +-0.1 of an action's number, or by the number that an action is."""

    def reset(self):
        self.random = getattr(self, "random", None) or np.random.RandomState(0)
        self.place, self.steps = self.random.uniform(-1, 1, 2), 0
        return self.place.copy()

    def step(self, action):
        move = np.clip(action, -0.2, 0.2)[0] if np.ndim(action) else 0.1 if action else -0.1
        self.place[0] += move
        self.steps += 1
        return self.place.copy(), -abs(self.place[0]), self.steps == 20, {}


def start():
    tf.keras.backend.clear_session()
    random.seed(1)
    np.random.seed(1)
    tf.compat.v1.set_random_seed(1)
    one = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    tf.compat.v1.keras.backend.set_session(tf.compat.v1.Session(config=one))


def dqn():
    model = tf.keras.Sequential([
        layers.Flatten(input_shape=(1, 2)), layers.Dense(16, activation="tanh"), layers.Dense(2)])
    return DQNAgent(model=model, nb_actions=2, memory=SequentialMemory(limit=1000, window_length=1), gamma=0.9,
                    nb_steps_warmup=20, target_model_update=1e-2, policy=EpsGreedyQPolicy(0.2)), [model]


def ddpg():
    actor = tf.keras.Sequential([
        layers.Flatten(input_shape=(1, 2)), layers.Dense(16, activation="tanh"), layers.Dense(1, activation="tanh")])
    action, seen = layers.Input(shape=(1,)), layers.Input(shape=(1, 2))
    hidden = layers.Dense(16, activation="tanh")(layers.Concatenate()([action, layers.Flatten()(seen)]))
    critic = tf.keras.Model([action, seen], layers.Dense(1)(hidden))
    return DDPGAgent(nb_actions=1, actor=actor, critic=critic, critic_action_input=action, gamma=0.9,
                     memory=SequentialMemory(limit=1000, window_length=1), nb_steps_warmup_critic=20,
                     nb_steps_warmup_actor=20, target_model_update=1e-2), [actor, critic]


AGENTS = {"DQN": (dqn, 1), "DDPG": (ddpg, 2)}  # the agent, and how many optimizers it takes


def trained(name, make):
    """Returns the agent's weights before and after, and its optimizers."""
    start()
    build, count = AGENTS[name]
    agent, models = build()
    before = [weight for model in models for weight in model.get_weights()]
    optimizers = [make() for _ in range(count)]
    agent.compile(optimizers if count > 1 else optimizers[0], metrics=[])
    agent.fit(Line(), nb_steps=STEPS, visualize=False, verbose=0)
    return agent, before, [weight for model in models for weight in model.get_weights()], optimizers


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_an_agent(name, tmp_path):
    def stock():
        return tf.keras.optimizers.Adam(1e-3)

    def ours():
        return everstep.from_native(stock()).bind(tf.keras)

    (_, before, own, _), (_, _, again, _) = trained(name, stock), trained(name, stock)
    agent, _, weights, optimizers = trained(name, ours)
    agent.save_weights(str(tmp_path / "agent.h5"))
    agent.load_weights(str(tmp_path / "agent.h5"))
    shown(*RL, name + ", Adam", STEPS, weights=apart(own, weights), own_weights=apart(own, again),
          saved="save_weights: the weights alone")
    updates = [tf.keras.backend.get_value(optimizer.iterations) for optimizer in optimizers]
    assert apart(before, own) > 5e-2 and min(updates) > STEPS / 2
    # Nothing orders its soft update of the target network and the step: it takes the weights from before or after.
    assert apart(own, weights) < 5e-3


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_another_rule(name):
    rule = everstep.accumulate(everstep.optimizers.DiffGrad(5e-3), 2)
    _, before, after, optimizers = trained(name, lambda: rule.bind(tf.keras))
    updates = [tf.keras.backend.get_value(optimizer.iterations) for optimizer in optimizers]
    assert apart(before, after) > 1e-2 and min(updates) > STEPS / 4
