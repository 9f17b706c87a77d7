"""skorch, Stable-Baselines3 and Hydra take an optimizer as a class: ours in the place of torch's, with pickles.

They keep the class in what they save, or in settings, by its name, and load it in another process.
"""
from __future__ import absolute_import, division, print_function

import json
import pickle
import subprocess
import sys

import gymnasium
import hydra
import numpy as np
import pytest
import skorch
import stable_baselines3
import torch
from compare import apart, shown
from omegaconf import OmegaConf
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from torch_net import Net, train_sharded

from everstep.optimizers import Adam, RMSprop

BATCH, BATCHES, EPOCHS, HALF = 16, 5, 6, 3
SETTINGS = {"Adam": dict(betas=(0.875, 0.9921875), eps=1e-5), "RMSprop": dict(alpha=0.875, eps=1e-5, momentum=0.5)}
FORMS = {
    "Adam": (Adam, dict(corrected_root=True)),
    "RMSprop": (RMSprop, dict(epsilon_in_root=False, initial_mean_square=0.0, rate_in_velocity=False)),
}
torch.set_num_threads(1)


def stock(name):
    """Returns (class, its keywords)."""
    return getattr(torch.optim, name), SETTINGS[name]


def ours(name):
    definition, form = FORMS[name]
    return definition.native_class(torch.optim), dict(SETTINGS[name], **form)


def data():
    random = np.random.RandomState(0)
    x = random.normal(size=(BATCH * BATCHES, 4)).astype("float32")
    return x, (x[:, 0] + x[:, 1] > 0).astype("int64")


def net(optimizer, epochs=EPOCHS):
    torch.manual_seed(1)
    cls, keywords = optimizer
    return skorch.NeuralNetClassifier(
        Net, optimizer=cls, lr=0.01, max_epochs=epochs, batch_size=BATCH, iterator_train__shuffle=False,
        train_split=None, verbose=0, callbacks=[skorch.callbacks.LRScheduler("StepLR", step_size=2, gamma=0.5)],
        **{"optimizer__" + key: value for key, value in keywords.items()})


def weights(module):
    return {name: value.detach().numpy().copy() for name, value in module.named_parameters()}


def in_another_process(code, *arguments):
    """Returns what a program prints as JSON in a process that has not bound anything."""
    start = "import json, sys\nsys.path[:0] = json.loads(sys.argv[1])\nimport torch\ntorch.set_num_threads(1)\n"
    command = [sys.executable, "-c", start + code, json.dumps(sys.path)] + list(arguments)
    return json.loads(subprocess.check_output(command).decode("utf-8").splitlines()[-1])


LOADED_NET = """
import pickle
with open(sys.argv[2], "rb") as file:
    x, y, fitted = pickle.load(file)
fitted.partial_fit(x, y)
print(json.dumps({name: value.tolist() for name, value in fitted.module_.named_parameters()}))
"""


@pytest.mark.parametrize("name", sorted(FORMS))
def test_skorch(name, tmp_path):
    x, y = data()
    losses, again, own = (net(make(name)).fit(x, y) for make in (stock, stock, ours))
    difference = apart(weights(losses.module_), weights(own.module_))
    curves = [each.history[:, "train_loss"] for each in (losses, again, own)]
    assert curves[2][-1] < 0.9 * curves[2][0]

    half = net(ours(name), HALF).fit(x, y)
    path = tmp_path / "net.pkl"
    path.write_bytes(pickle.dumps((x, y, half)))
    there = in_another_process(LOADED_NET, str(path))
    half.partial_fit(x, y)
    resumed = apart(weights(half.module_), there)
    half.save_params(f_params=tmp_path / "p.pt", f_optimizer=tmp_path / "o.pt", f_history=tmp_path / "h.json")
    loaded = net(ours(name), HALF).initialize()
    loaded.load_params(f_params=tmp_path / "p.pt", f_optimizer=tmp_path / "o.pt", f_history=tmp_path / "h.json")
    for each in (half, loaded):
        each.partial_fit(x, y)
    resumed = max(resumed, apart(weights(half.module_), weights(loaded.module_)))
    shown("skorch", "{}, torch {}".format(skorch.__version__, torch.__version__), "a classifier, " + name,
          EPOCHS * BATCHES, apart(curves[0], curves[2]), apart(curves[0], curves[1]), difference,
          apart(weights(losses.module_), weights(again.module_)),
          "pickle in another process, save_params: {:.1e}".format(resumed))
    assert difference < 1e-5 and resumed == 0


def test_skorch_searches_in_other_processes():
    x, y = data()
    given = clone(net(ours("Adam"), 2))
    search = GridSearchCV(given, {"lr": [1e-6, 0.05]}, cv=2, n_jobs=2, scoring="neg_log_loss").fit(x, y)
    assert search.best_params_ == {"lr": 0.05}
    assert type(search.best_estimator_.optimizer_) is ours("Adam")[0]


def agent(kind, optimizer, **settings):
    cls, keywords = optimizer
    return getattr(stable_baselines3, kind)(
        "MlpPolicy", gymnasium.make("CartPole-v1"), seed=0, device="cpu", **dict(
            settings, policy_kwargs=dict(net_arch=[16], optimizer_class=cls, optimizer_kwargs=keywords)))


LOADED_AGENT = """
import stable_baselines3
loaded = getattr(stable_baselines3, sys.argv[3]).load(sys.argv[2])
state = loaded.policy.optimizer.state_dict()["state"]
print(json.dumps([type(loaded.policy.optimizer).__module__, {
    "%s %s" % (place, name): value.tolist() for place in state for name, value in state[place].items()}]))
"""


def test_zero_redundancy_optimizer(tmp_path):
    """torch's own: it makes an optimizer of a class in each process, for a share of the parameters."""
    runs = []
    for name, (cls, keywords) in [("stock", stock("Adam")), ("again", stock("Adam")), ("ours", ours("Adam"))]:
        torch.multiprocessing.spawn(train_sharded, (str(tmp_path), name, cls, keywords), nprocs=2)
        runs.append({key: value.numpy() for key, value in torch.load(str(tmp_path / (name + ".pt"))).items()})
    difference = apart(runs[0], runs[2])
    shown("torch", torch.__version__, "ZeroRedundancyOptimizer, Adam", 12, weights=difference,
          own_weights=apart(runs[0], runs[1]), saved="gathered, saved and loaded at half")
    assert difference < 1e-5


def by_hydra(name, keywords):
    """Returns the losses and weights of a network whose optimizer a settings file names."""
    settings = OmegaConf.create(dict(keywords, _target_=name, lr=0.01, betas=[0.875, 0.9921875], _partial_=True))
    torch.manual_seed(1)
    network, losses, (x, y) = Net(), [], map(torch.tensor, data())
    optimizer = hydra.utils.instantiate(settings)(network.parameters())
    for _ in range(EPOCHS * BATCHES):
        optimizer.zero_grad()
        loss = torch.nn.functional.nll_loss(torch.log(network(x)), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, weights(network)


def test_hydra():
    plain = SETTINGS["Adam"]
    first, again = by_hydra("torch.optim.Adam", plain), by_hydra("torch.optim.Adam", plain)
    own = by_hydra("everstep.native.torch.torch_optim.Adam", ours("Adam")[1])
    differences = [apart(first[place], run[place]) for run in (own, again) for place in (0, 1)]
    shown("hydra-core", "{}, torch {}".format(hydra.__version__, torch.__version__), "a class named in settings, Adam",
          EPOCHS * BATCHES, differences[0], differences[2], differences[1], differences[3])
    assert differences[1] < 1e-5


AGENTS = [
    ("PPO", "Adam", dict(n_steps=32, batch_size=16, n_epochs=2, learning_rate=lambda left: 1e-3 * left)),
    ("A2C", "RMSprop", dict(use_rms_prop=False)),
    ("DQN", "Adam", dict(learning_starts=20, buffer_size=200, train_freq=4)),
]


@pytest.mark.parametrize("kind, name, settings", AGENTS, ids=[each[0] for each in AGENTS])
def test_stable_baselines3(kind, name, settings, tmp_path):
    first, again, own = (agent(kind, make(name), **settings).learn(128) for make in (stock, stock, ours))
    expected, repeated, actual = (weights(each.policy) for each in (first, again, own))
    difference = apart(expected, actual)
    steps = {int(values["step"]) for values in own.policy.optimizer.state.values()}

    own.save(str(tmp_path / "agent"))
    module, state = in_another_process(LOADED_AGENT, str(tmp_path / "agent"), kind)
    assert module == "everstep.native.torch.torch_optim"
    kept = own.policy.optimizer.state_dict()["state"]
    saved = apart({"{} {}".format(place, key): np.asarray(value) for place in kept for key, value in kept[place].items()
                   }, state)
    shown("stable-baselines3", "{}, torch {}".format(stable_baselines3.__version__, torch.__version__),
          "{}, {}".format(kind, name), max(steps), weights=difference, own_weights=apart(expected, repeated),
          saved="its file in another process: {:.1e}".format(saved))
    assert len(steps) == 1 and difference < 1e-4 and saved == 0
