"""Spektral 1.3 (TF 2.10): its models of graphs by fit of its loaders, with stock optimizers and with ours."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import scipy.sparse
import spektral
import tensorflow as tf
from compare import apart, one_thread, shown
from spektral.data import Dataset, DisjointLoader, Graph, SingleLoader
from spektral.models import GCN, GeneralGNN
from spektral.transforms import GCNFilter

import everstep
from everstep.optimizers import Adam, DiffGrad

SPEKTRAL = "spektral", "{}, TF {}".format(spektral.__version__, tf.__version__)
one_thread(tf)
STEPS = 60


class Ring(Dataset):
    """One graph: a ring with chords; a node's label depends on its neighbours."""

    def read(self):
        random = np.random.RandomState(0)
        size = 40
        x = random.randn(size, 5).astype("float32")
        rows = np.arange(size)
        adjacency = scipy.sparse.coo_matrix((np.ones(size), (rows, (rows + 1) % size)), (size, size)).toarray()
        adjacency[rows[::4], (rows[::4] * 7 + 3) % size] = 1
        adjacency = np.maximum(adjacency, adjacency.T).astype("float32")
        label = (adjacency.dot(x)[:, 0] > 0) * 1
        return [Graph(x, scipy.sparse.csr_matrix(adjacency), y=np.eye(2)[label].astype("float32"))]


class Molecules(Dataset):
    """Small graphs, each with a label."""

    def read(self):
        random = np.random.RandomState(0)
        graphs = []
        for _ in range(80):
            size = random.randint(4, 8)
            adjacency = np.triu(random.rand(size, size) < 0.5, 1)
            adjacency = (adjacency | adjacency.T).astype("float32")
            x = random.randn(size, 3).astype("float32")
            label = np.array([float(x[:, 0].sum() > 0)])
            graphs.append(Graph(x, scipy.sparse.csr_matrix(adjacency), y=label))
        return graphs


def nodes(optimizer):
    """Returns a network of a graph's nodes, and a function that trains it."""
    model = GCN(2, channels=8, dropout_rate=0.0)
    model.compile(optimizer, "categorical_crossentropy")
    return model, trainer(model, lambda: SingleLoader(Ring(transforms=[GCNFilter()])), 1, STEPS)


def graphs(optimizer):
    """Returns the same for a network of graphs."""
    model = GeneralGNN(1, "sigmoid", hidden=8, batch_norm=False)
    model.compile(optimizer, "binary_crossentropy")
    return model, trainer(model, lambda: DisjointLoader(Molecules(), batch_size=16, shuffle=False), 5, STEPS // 5)


def trainer(model, loader, steps, usual):
    """Returns a function that trains for some epochs."""

    def fit(epochs=usual):
        tf.keras.utils.set_random_seed(1)  # the first fit builds the model
        return model.fit(loader().load(), steps_per_epoch=steps, epochs=epochs, verbose=0).history["loss"]

    return fit


RUNS = {
    "GCN, Adam": (nodes, lambda: tf.keras.optimizers.Adam(1e-2), lambda: Adam(1e-2).bind(tf.keras)),
    "GeneralGNN, Nadam": (graphs, lambda: tf.keras.optimizers.Nadam(5e-3), None),
}


def ours(name):
    make, own, optimizer = RUNS[name]
    return make(optimizer() if optimizer else everstep.from_native(own()).bind(tf.keras))


@pytest.mark.parametrize("name", sorted(RUNS))
def test_fit(name):
    make, own, _ = RUNS[name]
    runs = [make(own()), make(own()), ours(name)]
    losses = [fit() for _, fit in runs]
    noise, difference = (apart(losses[0], each) for each in losses[1:])
    values = [model.get_weights() for model, _ in runs]
    own_weights, weights = (apart(values[0], each) for each in values[1:])
    shown(*SPEKTRAL, "fit, " + name, STEPS, difference, noise, weights, own_weights)
    assert losses[0][-1] < 0.8 * losses[0][0] and difference < 1e-4 and weights < 1e-3


@pytest.mark.parametrize("name", sorted(RUNS))
def test_resumed_from_its_weights(name, tmp_path):
    """Subclassed models: TensorFlow's format, with the optimizer."""
    (whole, fit_whole), (first, fit_first), (second, fit_second) = (ours(name) for _ in range(3))
    half = len(fit_whole()) // 2
    fit_first(half)
    first.save_weights(str(tmp_path / "half"))
    second.load_weights(str(tmp_path / "half"))
    fit_second(half)
    weights = apart(whole.get_weights(), second.get_weights())
    shown(*SPEKTRAL, "fit resumed, " + name, STEPS, weights=weights, saved="save_weights")
    assert int(second.optimizer.iterations) == STEPS and weights < 1e-5


def test_its_own_run_continued(tmp_path):
    name = "GCN, Adam"
    make, own, _ = RUNS[name]
    (whole, fit_whole), (first, fit_first), (second, fit_second) = make(own()), make(own()), ours(name)
    expected = fit_whole()
    fit_first(STEPS // 2)
    fit_second(1)  # builds the model
    first.save_weights(str(tmp_path / "half"))
    state = everstep.read_checkpoint(str(tmp_path / "half"), optimizer="Adam(learning_rate=0.01)")
    everstep.restore(second.optimizer, state, second.trainable_variables, weights=True)
    losses = fit_second(STEPS // 2)
    weights = apart(whole.get_weights(), second.get_weights())
    shown(*SPEKTRAL, "GCN, Adam continued by ours", STEPS, apart(expected[STEPS // 2:], losses), weights=weights,
          saved="save_weights, everstep.read_checkpoint")
    assert weights < 1e-4


def test_a_rule_that_it_lacks():
    model, fit = graphs(everstep.accumulate(DiffGrad(1e-2), 5).bind(tf.keras))
    losses = fit(24)
    assert losses[-1] < 0.9 * losses[0] and "previous_grad" in model.optimizer.get_slot_names()
    assert int(model.optimizer.iterations) == 24
    shown(*SPEKTRAL, "GeneralGNN, accumulate(DiffGrad, 5): loss {:.2f} to {:.2f}".format(losses[0], losses[-1]), 120)
