# runs in: py37-tf1.15-bert; because: bert-tensorflow is installed in no other cell
"""BERT is fine-tuned in batches of 16, four of which make 64.

A batch of 64 may need more memory than there is. `everstep.accumulate` takes four batches of 16, and updates once. The
rule is that of BERT's `create_optimizer`: Adam without bias correction, a rate that warms up and then decays, weight
decay that leaves out biases and normalization, and clipping by the global norm. All of these apply once for each
update, not for each batch: `clip` inside of `accumulate` clips the mean of four gradients, and the schedule counts
updates. `global_step` counts batches.

The model is BERT's own code (`bert-tensorflow`), but small: two layers of 32 units. Nothing is downloaded, so the
checkpoint that both runs start from has random weights; with Google's checkpoints the lines are the same. Dropout is
off, because batches of two sizes cannot draw the same noise. A text has words of two topics, and the model has to say
which topic has more. After 40 updates, the weights are the same to rounding.
"""
from __future__ import absolute_import, division, print_function

import numpy as np
import tensorflow as tf
from bert import modeling

import everstep
from everstep.optimizers import Adam

WORDS, LENGTH, UPDATES, WARM_UP, RATE = 20, 16, 40, 4, 1e-3
CONFIG = modeling.BertConfig(vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                             intermediate_size=64, max_position_embeddings=32)
RANDOM = np.random.RandomState(1)


def texts(count):
    """Returns words, and the topic of each text: 0 has the words 0 to 9, 1 has the words 10 to 19."""
    topic = RANDOM.randint(0, 2, count)
    is_of_topic = RANDOM.uniform(0, 1, (count, LENGTH)) < 0.7
    return RANDOM.randint(0, 10, (count, LENGTH)) + 10 * (is_of_topic == topic[:, None]), topic


def save_bert(path):
    """Saves a BERT that knows nothing, as a checkpoint to start from."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        modeling.BertModel(CONFIG, False, tf.zeros((1, LENGTH), tf.int32))
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, path)


def fine_tune(path, size):
    """Trains in batches of a size. Returns the losses of the updates, the weights, and the state of the optimizer."""
    parts = 64 // size
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(2)    # of the last layer
        words, topic = tf.placeholder(tf.int32, (None, LENGTH)), tf.placeholder(tf.int32, (None,))
        model = modeling.BertModel(CONFIG, False, words)    # False: no dropout; variables are trainable all the same
        scores = tf.layers.dense(model.get_pooled_output(), 2, name="topics")
        loss = tf.losses.sparse_softmax_cross_entropy(topic, scores)
        variables = tf.trainable_variables()
        tf.train.init_from_checkpoint(path, modeling.get_assignment_map_from_checkpoint(variables, path)[0])

        rate = everstep.Warmup(everstep.PolynomialDecay(RATE, decay_steps=UPDATES, end=0.0), WARM_UP)
        rule = Adam(rate, epsilon=1e-6, bias_correction=False)
        rule = everstep.decoupled_weight_decay(rule, 0.01, exclude=["LayerNorm", "layer_norm", "bias"])
        rule = everstep.clip(rule, global_norm=1.0)
        optimizer = everstep.accumulate(rule, steps=parts).bind(tf.train)
        train_op = optimizer.minimize(loss, tf.train.get_or_create_global_step())

        session.run(tf.global_variables_initializer())
        losses = []
        for batch in TRAINING:
            for part in zip(*(np.split(values, parts) for values in batch)):
                losses.append(session.run([loss, train_op], dict(zip((words, topic), part)))[0])
        right = np.mean(session.run(scores, {words: TEST[0]}).argmax(1) == TEST[1])
        state = everstep.capture(optimizer, variables, session=session, weights=True)
        losses = np.reshape(losses, (-1, parts)).mean(1).tolist()
        print("batches of %d: global_step %3d, %d updates, last loss %.5f, %.1f %% of the test texts right" % (
            size, session.run(tf.train.get_global_step()), state.updates, losses[-1], 100 * right))
    assert right > 0.85 and state.updates == UPDATES
    return losses, state


tf.logging.set_verbosity(tf.logging.ERROR)
save_bert("bert.ckpt")
TRAINING, TEST = [texts(64) for _ in range(UPDATES)], texts(1000)
whole, at_once = fine_tune("bert.ckpt", 64)
parts, accumulated = fine_tune("bert.ckpt", 16)
one, other = at_once.variables, accumulated.variables
difference = max(np.abs(one[name] - other[name]).max() for name in one)
print("weights are %.0e apart at most; the largest is %.2f" % (
    difference, max(np.abs(values).max() for values in one.values())))
assert difference < 1e-4
CURVES = {"batches of 64": whole, "batches of 16, four to an update": parts}
AXES = ("updates", "loss of 64 texts")
