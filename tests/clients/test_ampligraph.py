"""AmpliGraph 2.0 (TF 2.10): embeddings of a graph, also in partitions, whose slots it takes out by `get_weights`."""
from __future__ import absolute_import, division, print_function

import os
import tempfile

import numpy as np
import pytest
import tensorflow as tf
from compare import apart, one_thread, shown

import everstep

WHERE = os.getcwd()
os.chdir(tempfile.mkdtemp())  # AmpliGraph opens a log in the folder in which it is imported

import ampligraph  # noqa: E402
from ampligraph.latent_features import ScoringBasedEmbeddingModel, optimizers  # noqa: E402
from ampligraph.utils import restore_model, save_model  # noqa: E402

os.chdir(WHERE)
AMPLIGRAPH = "ampligraph", "{}, TF {}".format(ampligraph.__version__, tf.__version__)
one_thread(tf)
EPOCHS, BATCH = 6, 20
STOCK = {"Adam": lambda: tf.keras.optimizers.Adam(0.05), "Adagrad": lambda: tf.keras.optimizers.Adagrad(0.1)}


def its_optimizer(name, with_ours):
    """AmpliGraph asks for classes of tf.keras where it counts the slots of Adam; its wrapper says so for others."""
    stock = STOCK[name]()
    if not with_ours:
        return stock
    wrapped = optimizers.get(everstep.from_native(stock).bind(tf.keras))
    wrapped.number_hyperparams = optimizers.get(stock).number_hyperparams
    return wrapped


def triples():
    random = np.random.RandomState(0)
    heads, relations = random.randint(0, 12, 60), random.randint(0, 3, 60)
    return np.array([["e%d" % head, "r%d" % relation, "e%d" % ((head + relation) % 12)]
                     for head, relation in zip(heads, relations)])


def compiled(name, with_ours):
    tf.keras.backend.clear_session()
    tf.keras.utils.set_random_seed(1)
    model = ScoringBasedEmbeddingModel(eta=2, k=4, scoring_type="DistMult", seed=1)
    model.compile(its_optimizer(name, with_ours), "nll",
                  entity_relation_initializer=tf.keras.initializers.GlorotUniform(seed=1))
    return model


def fitted(model, partitions=1):
    model.run_eagerly = True  # in its function, one print changes what stock trains: it draws other corrupted triples
    tf.keras.utils.set_random_seed(1)  # the seed of those triples
    return model.fit(triples(), BATCH, EPOCHS, verbose=False, partitioning_k=partitions).history["loss"]


def embeddings(model):
    return [model.get_embeddings(["e%d" % each for each in range(12)]),
            model.get_embeddings(["r0", "r1", "r2"], embedding_type="r")]


@pytest.mark.parametrize("name, partitions", [("Adam", 1), ("Adagrad", 1), ("Adam", 2)])
def test_fit(name, partitions, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # for the files of its partitions
    models = [compiled(name, each) for each in (False, False, True)]
    losses = [fitted(model, partitions) for model in models]
    found = losses if partitions > 1 else [embeddings(model) for model in models]
    difference, noise = apart(losses[0], losses[2]), apart(losses[0], losses[1])
    weights, own_weights = apart(found[0], found[2]), apart(found[0], found[1])
    resumed = ""
    if partitions == 1:
        went_on = []
        for who, model in (("own", models[0]), ("ours", models[2])):
            save_model(model, str(tmp_path / who))
            loaded = restore_model(str(tmp_path / who))
            assert apart(embeddings(model), embeddings(loaded)) == 0
            went_on.append((fitted(loaded), embeddings(loaded)))
        resumed = max(map(apart, *went_on))
        assert resumed < 1e-5
        resumed = "save_model, restore_model, fit, beside its own: {:.1e}".format(resumed)
    text = "DistMult, {}{}".format(name, ", in partitions" if partitions > 1 else "")
    shown(*AMPLIGRAPH, text, EPOCHS * 3, difference, noise, weights, own_weights, resumed)
    assert losses[0][-1] < losses[0][0] and max(difference, weights) < 1e-5
