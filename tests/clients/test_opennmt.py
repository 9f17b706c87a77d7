"""OpenNMT-tf 2.31 (TF 2.10): its runner trains a small language model with a class of ours, registered by name."""
from __future__ import absolute_import, division, print_function

import numpy as np
import opennmt
import pytest
import tensorflow as tf
from compare import apart, one_thread, shown

import everstep

OPENNMT = "opennmt-tf", "{}, TF {}".format(opennmt.__version__, tf.__version__)
one_thread(tf)
WORDS, LENGTH, BATCH, STEPS = "a b c d e f g h".split(), 6, 8, 8
DECAY = dict(weight_decay=0.05)  # OpenNMT makes a class with Addons' decay of the one it was given
SCHEDULE = dict(decay_type="NoamDecay", decay_params=dict(model_dim=8, warmup_steps=4))


@opennmt.optimizers.register_optimizer
class OurAdam(type(everstep.optimizers.Adam().bind(tf.keras))):
    """A name of its own, for OpenNMT looks for classes of tf.keras first."""


@pytest.fixture
def noted(monkeypatch):
    """Returns a list that gets the loss of each step."""
    losses, its_own = [], opennmt.training.TrainingStats.update_on_step

    def update_on_step(self, step, loss):
        losses.append(float(loss))
        its_own(self, step, loss)

    monkeypatch.setattr(opennmt.training.TrainingStats, "update_on_step", update_on_step)
    return losses


def trained(noted, folder, name, upto, accumulated, optimizer, params):
    """Trains up to each of some steps, each time with a new model that goes on from the last checkpoint.

    Returns:
        The loss of each step, and the weights and slots of the last checkpoint.
    """
    del noted[:]
    random = np.random.RandomState(0)
    folder.mkdir()
    (folder / "words.txt").write_text("\n".join(["<blank>", "<s>", "</s>"] + WORDS))
    lines = [" ".join(WORDS[(start + 2 * step) % 8] for step in range(LENGTH))
             for start in random.randint(0, 8, BATCH * accumulated * STEPS // 2)]  # the steps are two epochs
    (folder / "lines.txt").write_text("\n".join(lines) + "\n")
    config = dict(
        model_dir=str(folder / "model"),
        data=dict(train_features_file=str(folder / "lines.txt"), vocabulary=str(folder / "words.txt")),
        train=dict(batch_size=BATCH, batch_type="examples", effective_batch_size=BATCH * accumulated,
                   sample_buffer_size=None, save_checkpoints_steps=None),
        params=dict(params, optimizer=name, optimizer_params=dict(optimizer, epsilon=1e-7), learning_rate=0.5),
    )
    for step in upto:
        tf.keras.backend.clear_session()
        decoder = opennmt.decoders.SelfAttentionDecoder(
            1, num_units=8, num_heads=2, ffn_inner_dim=16, dropout=0, attention_dropout=0, ffn_dropout=0, num_sources=0)
        config["train"]["max_step"] = step
        runner = opennmt.Runner(opennmt.models.LanguageModel(decoder, embedding_size=8), config, seed=1)
        runner.train()
    path = tf.train.latest_checkpoint(config["model_dir"])
    names = [each for each, shape in tf.train.list_variables(path) if shape and not each.startswith("_CHECKPOINTABLE")]
    return list(noted), {each: tf.train.load_variable(path, each) for each in names}


@pytest.mark.parametrize("accumulated, optimizer, params", [(2, DECAY, {}), (1, {}, SCHEDULE)])
def test_runner(accumulated, optimizer, params, noted, tmp_path):
    rest = accumulated, optimizer, params
    runs = {who: trained(noted, tmp_path / who, name, upto, *rest) for who, name, upto in (
        ("own", "Adam", [STEPS]), ("again", "Adam", [STEPS]), ("ours", "OurAdam", [STEPS]),
        ("resumed", "OurAdam", [STEPS // 2, STEPS]), ("own resumed", "Adam", [STEPS // 2, STEPS]),
    )}
    (losses, weights), (our_losses, our_weights) = runs["own"], runs["ours"]
    slots = {each for each in weights if "OPTIMIZER_SLOT" in each}
    assert slots and set(weights) == set(our_weights)
    difference, noise = apart(losses, our_losses), apart(losses, runs["again"][0])
    apart_by = {who: apart(weights, runs[who][1]) for who in ("again", "ours")}
    resumed, own_resumed = (max(map(apart, runs[one], runs[other]))
                            for one, other in (("ours", "resumed"), ("own", "own resumed")))
    text = "runner, Adam, {}".format("weight_decay, accumulated batches" if optimizer else "NoamDecay")
    shown(*OPENNMT, text, STEPS, difference, noise, apart_by["ours"], apart_by["again"],
          "its checkpoints, a second train(): {:.1e} (its own: {:.1e})".format(resumed, own_resumed))
    assert losses[-1] < losses[0] and len(losses) == STEPS
    assert max(difference, apart_by["ours"]) < 1e-5 and resumed <= max(own_resumed, 1e-5)
