"""stable-baselines 2.10 (TF 1.15): its agents name tf.train's optimizers; `everstep.patched` trains them with ours."""
from __future__ import absolute_import, division, print_function

import contextlib

import gym
import numpy as np
import pytest
import stable_baselines
import tensorflow as tf
from compare import apart, shown
from stable_baselines.common.vec_env import DummyVecEnv

import everstep

gym.logger.MIN_LEVEL = gym.logger.min_level  # stable-baselines reads the name of older gyms, whose sdists do not build
AGENTS = {
    "A2C": ("RMSPropOptimizer", dict(learning_rate=7e-4, n_steps=5), 500),
    "PPO2": ("AdamOptimizer", dict(learning_rate=2.5e-4, n_steps=64, nminibatches=4), 512),
    "DQN": ("AdamOptimizer", dict(learning_rate=5e-4, learning_starts=50, batch_size=16), 400),
}


def weights(name, replacement=None, path=None, **changed):
    """Returns {variable: values} after training with a replacement of the agent's optimizer, or with its own (None).

    With a path the agent is saved there, loaded, and trains again. It saves no optimizer, so that it begins anew.
    """
    optimizer, arguments, steps = AGENTS[name]
    agent_class = getattr(stable_baselines, name)
    with everstep.patched(tf.train, **{optimizer: replacement}) if replacement else contextlib.nullcontext():
        agent = agent_class("MlpPolicy", cart_pole(), seed=0, n_cpu_tf_sess=1, verbose=0, **dict(arguments, **changed))
        agent.learn(steps)
        if path:
            agent.save(path)
            agent = agent_class.load(path, env=cart_pole() if name == "DQN" else DummyVecEnv([cart_pole]))
            agent.learn(steps)
    if replacement:
        names = [variable.name for variable in agent.graph.get_collection("variables")]
        assert any(each.endswith("/updates:0") for each in names), "it did not train with ours"
    return agent.get_parameters()


def cart_pole():
    env = gym.make("CartPole-v1")
    env.seed(0)
    return env


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_an_agent_with_our_optimizer(name, tmp_path):
    stock_class = getattr(tf.train, AGENTS[name][0])

    def same_maths(*args, **kwargs):
        return everstep.from_native(stock_class(*args, **kwargs))

    own, again, ours = weights(name), weights(name), weights(name, same_maths)
    # What the last digit of float32 comes to: steps of an agent choose its next data.
    nudged = weights(name, learning_rate=AGENTS[name][1]["learning_rate"] * (1 + 2e-7))
    start = weights_before(name)
    assert sorted(own) == sorted(ours)
    moved, noise, nudge, difference = (apart(own, each) for each in (start, again, nudged, ours))
    path = str(tmp_path / "agent")
    loaded = apart(weights(name, path=path), weights(name, same_maths, path))
    versions = "{}, TF {}".format(stable_baselines.__version__, tf.__version__)
    text = "{}, {}; a last digit of its learning rate: {:.1e}".format(name, AGENTS[name][0], nudge)
    shown("stable-baselines", versions, text, AGENTS[name][2], weights=difference, own_weights=noise,
          saved="save, load, as many steps again: {:.1e}".format(loaded))
    assert moved > 1e-2 and difference < max(1e-5, 4 * nudge)
    assert loaded < 1e-2  # rounding grows with each step


def weights_before(name):
    _, arguments, _ = AGENTS[name]
    agent = getattr(stable_baselines, name)("MlpPolicy", gym.make("CartPole-v1"), seed=0, n_cpu_tf_sess=1, **arguments)
    return agent.get_parameters()


def test_an_agent_with_another_rule():
    assert all(np.isfinite(each).all() for each in weights("PPO2", everstep.optimizers.DiffGrad).values())
