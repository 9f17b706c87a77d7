# runs in: py313-k3jax
"""BERT begins on TF 1.15 and goes on in plain JAX with optax, with its moments.

The run is that of [BERT goes on in PyTorch](bert_to_torch.md): a small BERT that the model and the optimizer class of
bert-tensorflow pre-trained on TF 1.15 and Python 3.7, stopped after 60 steps. Here it goes on in a model written with
`jax.numpy` alone. The state has the definition that `from_native` made of BERT's class, and this script binds that
definition to optax.

The parameters are a tree with BERT's own names: a variable `bert/pooler/dense/kernel` is the leaf at that path. So the
state needs no new names and no other axes. Dropout is off and the batches are the same, so that what is left is
rounding. A run that goes on with the weights alone is drawn, too.

The bias of a key in an attention has no effect, because softmax cancels it. So its gradient is only rounding, which
Adam divides by itself. These biases are therefore compared separately.
"""
from __future__ import absolute_import, division, print_function

import os

import jax
import jax.numpy as jnp
import numpy as np
import optax

import everstep

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
LAYERS, HEADS, VOCABULARY, LENGTH = 2, 2, 64, 16
BATCH, PREDICTIONS, BEFORE, AFTER, ALL, RATE = 16, 4, 60, 20, 200, 5e-4


def batches():
    """Yields what examples/bert_to_torch.py trains on."""
    random = np.random.RandomState(0)
    for _ in range(BEFORE + AFTER):
        ids = random.randint(0, VOCABULARY, (BATCH, LENGTH))
        positions = np.array([random.choice(LENGTH, PREDICTIONS, False) for _ in range(BATCH)])
        yield dict(ids=ids, segments=(ids > 32) * 1, positions=positions,
                   labels=(np.take_along_axis(ids, positions, 1) * 7 + 3) % VOCABULARY, next=ids.sum(1) % 2)


# The model. `p` is a part of the tree of parameters.


def dense(p, x):
    return x @ p["kernel"] + p["bias"]


def normalized(p, x):
    scale = p["gamma"] / jnp.sqrt(x.var(-1, keepdims=True) + 1e-12)
    return (x - x.mean(-1, keepdims=True)) * scale + p["beta"]


def attention(p, x):
    def heads(name):
        return dense(p[name], x).reshape(x.shape[:2] + (HEADS, -1))

    query, key, value = heads("query"), heads("key"), heads("value")
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(query.shape[-1])
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), value).reshape(x.shape)


def layer(p, x):
    x = normalized(p["attention"]["output"]["LayerNorm"],
                   x + dense(p["attention"]["output"]["dense"], attention(p["attention"]["self"], x)))
    inner = jax.nn.gelu(dense(p["intermediate"]["dense"], x))  # with tanh, as in BERT
    return normalized(p["output"]["LayerNorm"], x + dense(p["output"]["dense"], inner))


def entropy(logits, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)


def loss_of(params, batch):
    bert, cls = params["bert"], params["cls"]
    words = bert["embeddings"]["word_embeddings"]
    x = words[batch["ids"]] + bert["embeddings"]["token_type_embeddings"][batch["segments"]]
    x = normalized(bert["embeddings"]["LayerNorm"], x + bert["embeddings"]["position_embeddings"])
    for number in range(LAYERS):
        x = layer(bert["encoder"]["layer_%d" % number], x)
    transform = cls["predictions"]["transform"]
    masked = jnp.take_along_axis(x, batch["positions"][..., None], 1)
    masked = normalized(transform["LayerNorm"], jax.nn.gelu(dense(transform["dense"], masked)))
    masked = entropy(masked @ words.T + cls["predictions"]["output_bias"], batch["labels"])
    follows = jnp.tanh(dense(bert["pooler"]["dense"], x[:, 0])) @ cls["seq_relationship"]["output_weights"].T
    follows = entropy(follows + cls["seq_relationship"]["output_bias"], batch["next"])
    return masked.sum() / (masked.size + 1e-5) + follows.mean()


# The run.


def tree_of(variables, dtype):
    """Returns the parameters as a tree of dictionaries: one for each part of a name."""
    params = {}
    for name, value in variables.items():
        *parts, last = name.split("/")
        place = params
        for part in parts:
            place = place.setdefault(part, {})
        place[last] = jnp.asarray(np.asarray(value), dtype)
    return params


state = everstep.State.load(os.path.join(DATA, "bert.safetensors"))
adam = everstep.Definition.from_config(state.definition)
rate = everstep.PolynomialDecay(RATE, ALL, 0.0)  # the warmup is over
adam = adam.replace(inner=adam.inner.replace(learning_rate=rate))
transform = everstep.clip(adam, global_norm=1.0).bind(optax)


@jax.jit
def step(params, opt_state, batch):
    loss, grads = jax.value_and_grad(loss_of)(params, batch)
    updates, opt_state = transform.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def go_on(dtype, moments=True):
    """Returns the losses from the state on, and the parameters at the end."""
    params, losses = tree_of(state.variables, dtype), []
    opt_state = transform.init(params)
    if moments:
        opt_state = everstep.restore(transform, state, params, other_definition=True)
    for batch in list(batches())[BEFORE:]:
        params, opt_state, loss = step(params, opt_state, batch)
        losses.append(float(loss))
    return losses, params


def apart(params, others):
    """Returns (the largest max|difference| / max|weight| of a variable, the same of the biases of keys)."""
    found = jax.tree.map(lambda x, y: float(abs(x - y).max() / abs(y).max()), params, others)
    found = {jax.tree_util.keystr(path): far for path, far in jax.tree_util.tree_leaves_with_path(found)}
    keys = {path for path in found if path.endswith("['key']['bias']")}
    return max(found[path] for path in set(found) - keys), max(found[path] for path in keys)


RUNS = [("float64", ["float64"]), ("float32", ["float32"]), ("weights alone", ["float64", False])]
with np.load(os.path.join(DATA, "bert.npz")) as old:
    truth = dict(old)
expected_losses = truth.pop("losses")
CURVES = {"TF 1.15, never stopped": [float(loss) for loss in expected_losses]}
with jax.enable_x64(True):
    for label, options in RUNS:
        losses, params = go_on(*options)
        others, keys = apart(params, tree_of(truth, "float64"))
        print("optax, {}: {} steps later, losses differ by {:.0e}, weights by {:.0e} of the largest one of their "
              "variable, biases of keys by {:.0e}".format(
                  label, AFTER, np.abs(losses - expected_losses[BEFORE:]).max(), others, keys))
        assert (others < 1e-5) == (label != "weights alone")
        if label != "float32":
            CURVES["optax, " + label] = [None] * BEFORE + losses
AXES = ("step", "loss of a batch")
