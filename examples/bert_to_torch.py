# runs in: py37-tf1.15-bert, py311-k3torch-transformers; because: bert-tensorflow and transformers are in no other cells
"""BERT begins on TF 1.15 and goes on in PyTorch, with its moments.

A small BERT is pre-trained with the model and the optimizer class of bert-tensorflow, on TF 1.15 and Python 3.7. It is
stopped, and goes on in Hugging Face's `BertForPreTraining`, in PyTorch, as if it had never stopped: weights, moments
and the count of steps come out of the checkpoint of `tf.train.Saver`. Converters of weights leave the moments behind; a
run that goes on with the weights alone is drawn, too.

On TF 1.15 this script is the old program. It saves its checkpoint, from which everstep reads the state, and goes on
itself for comparison. Both are kept in [data](data/README.txt). In PyTorch the state gets the names and axes of the
other model, and the definition that `from_native` makes of BERT's class is bound to `torch.optim`. Dropout is off and
the batches are the same, so the remaining differences are rounding. The two models differ by default in three things:
torch has another gelu, torch does not train the embedding of token 0 (`padding_idx`), and BERT's own training operation
may count a step before it reads the rate.

The bias of a key in an attention has no effect, because softmax cancels it. So its gradient is only rounding, which
Adam divides by itself. These biases are therefore compared separately.
"""
from __future__ import absolute_import, division, print_function

import os
import re
import shutil
import tempfile

import numpy as np

import everstep

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
STATE, TRUTH = os.path.join(DATA, "bert.safetensors"), os.path.join(DATA, "bert.npz")
CONFIG = dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
              max_position_embeddings=16, type_vocab_size=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
BATCH, LENGTH, PREDICTIONS, BEFORE, AFTER, ALL, WARMUP, RATE = 16, 16, 4, 60, 20, 200, 10, 5e-4

# [(end of a name in BERT, in Hugging Face's model)]
ENDS = [("/kernel", "/weight"), ("/gamma", "/weight"), ("/beta", "/bias"), ("_embeddings", "_embeddings/weight"),
        ("/output_weights", "/weight"), ("/output_bias", "/bias")]


def batches():
    random = np.random.RandomState(0)
    for _ in range(BEFORE + AFTER):
        ids = random.randint(0, CONFIG["vocab_size"], (BATCH, LENGTH))
        positions = np.array([random.choice(LENGTH, PREDICTIONS, False) for _ in range(BATCH)])
        yield dict(ids=ids, segments=(ids > 32) * 1, positions=positions,
                   labels=(np.take_along_axis(ids, positions, 1) * 7 + 3) % CONFIG["vocab_size"],
                   next=(ids.sum(1) % 2)[:, None])


def begin_on_tensorflow_1(tf, folder):
    """Pre-trains with BERT's model and optimizer class, saves a checkpoint, and goes on."""
    from bert import modeling, optimization, run_pretraining

    tf.set_random_seed(1)
    shapes = dict(ids=LENGTH, segments=LENGTH, positions=PREDICTIONS, labels=PREDICTIONS, next=1)
    given = {name: tf.placeholder(tf.int32, [None, size], name) for name, size in shapes.items()}
    config = modeling.BertConfig(**CONFIG)
    # One-hot embeddings, as on TPUs: the norm that gradients are clipped by counts a row of a sparse one as often as it
    # is in the batch.
    model = modeling.BertModel(config, True, given["ids"], None, given["segments"], use_one_hot_embeddings=True)
    masked = run_pretraining.get_masked_lm_output(
        config, model.get_sequence_output(), model.get_embedding_table(), given["positions"], given["labels"],
        tf.ones_like(given["labels"], tf.float32))[0]
    loss = masked + run_pretraining.get_next_sentence_output(config, model.get_pooled_output(), given["next"])[0]
    step, variables = tf.train.get_or_create_global_step(), tf.trainable_variables()
    rate = tf.train.polynomial_decay(RATE, step, ALL, 0.0) * tf.minimum(1.0, tf.cast(step, tf.float32) / WARMUP)
    optimizer = optimization.AdamWeightDecayOptimizer(
        rate, weight_decay_rate=0.01, exclude_from_weight_decay=["LayerNorm", "layer_norm", "bias"])
    grads, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), 1.0)
    # BERT's create_optimizer does the same, but nothing orders its count of the step and its update, so its rate may be
    # that of this step or that of the next one.
    with tf.control_dependencies([optimizer.apply_gradients(list(zip(grads, variables)))]):
        train_op = tf.assign_add(step, 1)
    saver, losses = tf.train.Saver(), []
    with tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)) as session:
        session.run(tf.global_variables_initializer())
        for number, batch in enumerate(batches()):
            if number == BEFORE:
                path = saver.save(session, os.path.join(folder, "model.ckpt"))
            feed = {given[name]: value for name, value in batch.items()}
            losses.append(session.run([loss, train_op], feed)[0])
        weights = dict(zip((variable.op.name for variable in variables), session.run(variables)))
    state = everstep.read_checkpoint(
        path, everstep.from_native(optimizer), slots={"m": "{var}/adam_m", "v": "{var}/adam_v"}, updates="global_step")
    print("BERT on TF {}, saved: {}".format(tf.__version__, state))
    return state, losses, weights


def torch_name(name):
    """Returns what Hugging Face calls a variable of BERT."""
    for end, theirs in ENDS:
        if name.endswith(end):
            name = name[: -len(end)] + theirs
            break
    return re.sub(r"/layer_(\d+)/", r"/layer.\1/", name).replace("/", ".")


def for_torch(state):
    """Returns the state with the names and axes of `transformers.BertForPreTraining`."""
    state = state.transposed({".*/kernel": (1, 0)})
    return state.renamed({re.escape(name): torch_name(name) for name in state.variables})


def go_on_in_torch(torch, state, moments=True, dtype="float64"):
    """Returns the losses of Hugging Face's model from the state on, and its weights at the end."""
    from transformers import BertConfig, BertForPreTraining

    state = for_torch(state)
    # BERT has tanh in its gelu, and trains the embedding of token 0, which torch's `padding_idx` would leave out.
    config = BertConfig(hidden_act="gelu_new", pad_token_id=None, **CONFIG)
    model = BertForPreTraining(config).to(getattr(torch, dtype)).train()
    named = dict(model.named_parameters())
    assert set(named) == set(state.slots)
    rate = everstep.PolynomialDecay(RATE, ALL, 0.0)  # the warmup is over
    definition = everstep.Definition.from_config(state.definition)
    definition = definition.replace(inner=definition.inner.replace(learning_rate=rate))
    optimizer = everstep.clip(definition, global_norm=1.0).bind(torch.optim, params=list(named.items()))
    everstep.restore(optimizer, state, named, weights=True, other_definition=True)
    if not moments:
        optimizer = everstep.clip(definition, global_norm=1.0).bind(torch.optim, params=list(named.items()))
    losses, entropy = [], torch.nn.functional.cross_entropy
    for batch in list(batches())[BEFORE:]:
        batch = {name: torch.tensor(value) for name, value in batch.items()}
        out = model(input_ids=batch["ids"], token_type_ids=batch["segments"])
        scores = torch.take_along_dim(out.prediction_logits, batch["positions"][:, :, None], 1)
        masked = entropy(scores.flatten(0, 1), batch["labels"].flatten(), reduction="sum") / (
            batch["labels"].numel() + 1e-5)
        loss = masked + entropy(out.seq_relationship_logits, batch["next"].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: parameter.detach().double().numpy() for name, parameter in named.items()}


def apart(weights, others):
    """Returns (the largest max|difference| / max|weight| of a variable, the same of the biases of keys)."""
    found = {name: np.abs(weights[name] - others[name]).max() / np.abs(others[name]).max() for name in others}
    keys = {name for name in found if "key.bias" in name}
    return max(found[name] for name in set(found) - keys), max(found[name] for name in keys)


try:
    import torch
except ImportError:
    torch = None
if torch is None:
    import tensorflow
    folder = tempfile.mkdtemp()
    state, losses, weights = begin_on_tensorflow_1(tensorflow, folder)
    if not os.path.exists(TRUTH):
        state.save(STATE)
        np.savez_compressed(TRUTH, losses=losses, **weights)
    shutil.rmtree(folder)
    with np.load(TRUTH) as old:
        assert np.abs(old["losses"] - losses).max() < 1e-3
    CURVES = {"TF 1.15, never stopped": [float(loss) for loss in losses]}
else:
    state = everstep.State.load(STATE)
    with np.load(TRUTH) as old:
        weights = dict(old)
    expected_losses = weights.pop("losses")[BEFORE:]
    expected = for_torch(everstep.State(variables=weights)).variables
    CURVES = {}
    for label, options in (("float64", {}), ("float32", {"dtype": "float32"}), ("weights alone", {"moments": False})):
        losses, weights = go_on_in_torch(torch, state, **options)
        others, keys = apart(weights, {name: np.asarray(value) for name, value in expected.items()})
        print("PyTorch, {}: {} steps later, losses differ by {:.0e}, weights by {:.0e} of the largest one of their "
              "variable, biases of keys by {:.0e}".format(
                  label, AFTER, np.abs(losses - expected_losses).max(), others, keys))
        assert (others < 1e-5) == options.get("moments", True)
        if label != "float32":
            CURVES["PyTorch, " + label] = [None] * BEFORE + losses
AXES = ("step", "loss of a batch")
