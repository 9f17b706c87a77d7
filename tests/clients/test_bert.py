"""bert-tensorflow 1.0 (TF 1.15): pretraining of a tiny model with BERT's own optimizer and with a rule of ours."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf
from bert import modeling, optimization, run_pretraining
from compare import apart, shown

import everstep

BERT = "bert-tensorflow", "1.0.4, TF " + tf.__version__
CONFIG = dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
              max_position_embeddings=32, type_vocab_size=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
BATCH, LENGTH, PREDICTIONS, STEPS, MORE = 16, 16, 4, 60, 30


class BertAdam(everstep.Definition):
    """Adam without bias correction and with decoupled decay, as BERT's AdamWeightDecayOptimizer."""

    learning_rate = everstep.hyper(1e-3)
    weight_decay = everstep.hyper(0.01)
    decays = everstep.option(True)
    m, v = everstep.slot(), everstep.slot()

    def specialize(self, variable):
        excluded = any(part in variable.name for part in ("LayerNorm", "layer_norm", "bias"))
        return self.replace(decays=not excluded)

    def update(self, ops, grad, var, slots, hyper, t):
        m, v = 0.9 * slots.m + 0.1 * grad, 0.999 * slots.v + 0.001 * ops.square(grad)
        change = m / (ops.sqrt(v) + 1e-6)
        if self.decays:
            change = change + hyper.weight_decay * var
        return hyper.learning_rate * change, {"m": m, "v": v}


def batches(count, seed=0):
    random = np.random.RandomState(seed)
    for _ in range(count):
        ids = random.randint(0, CONFIG["vocab_size"], (BATCH, LENGTH))
        positions = np.array([random.choice(LENGTH, PREDICTIONS, False) for _ in range(BATCH)])
        yield dict(ids=ids, segments=(ids > 32) * 1, positions=positions,
                   labels=(np.take_along_axis(ids, positions, 1) * 7 + 3) % CONFIG["vocab_size"],
                   next=(ids.sum(1) % 2)[:, None])


class Model(object):
    """BERT's pretraining model in a graph of its own. `make` gets (loss, parameters of the run) and gives train ops."""

    def __init__(self, make):
        with tf.Graph().as_default():
            tf.set_random_seed(1)
            shapes = dict(ids=LENGTH, segments=LENGTH, positions=PREDICTIONS, labels=PREDICTIONS, next=1)
            self.given = {name: tf.placeholder(tf.int32, [None, size], name) for name, size in shapes.items()}
            config = modeling.BertConfig(**CONFIG)
            model = modeling.BertModel(config, True, self.given["ids"], None, self.given["segments"])
            masked = run_pretraining.get_masked_lm_output(
                config, model.get_sequence_output(), model.get_embedding_table(), self.given["positions"],
                self.given["labels"], tf.ones_like(self.given["labels"], tf.float32),
            )[0]
            following = run_pretraining.get_next_sentence_output(
                config, model.get_pooled_output(), self.given["next"])[0]
            self.loss = masked + following
            self.step = tf.train.get_or_create_global_step()
            self.train_op = make(self.loss)
            self.variables = tf.trainable_variables()
            self.saver = tf.train.Saver()
            # One thread: the order in which several add up is the greatest noise between two runs.
            self.session = tf.Session(config=tf.ConfigProto(
                intra_op_parallelism_threads=1, inter_op_parallelism_threads=1))
            self.session.run(tf.global_variables_initializer())

    def train(self, feeds):
        return [self.session.run([self.loss, self.train_op], self._feed(feed))[0] for feed in feeds]

    def _feed(self, feed):
        return {self.given[name]: value for name, value in feed.items()}

    def weights(self):
        """Returns {variable: values}, without the biases of keys: softmax cancels them."""
        named = dict(zip((variable.op.name for variable in self.variables), self.session.run(self.variables)))
        return {name: value for name, value in named.items() if "key/bias" not in name}

    def put(self, weights, step):
        for variable in self.variables:
            variable.load(weights[variable.op.name], self.session)
        self.step.load(step, self.session)


def own(loss):
    return optimization.create_optimizer(loss, 5e-4, 200, 10, False)


ITS_CLASS = optimization.AdamWeightDecayOptimizer


def by_hand(learning_rate, weight_decay_rate, **others):
    return BertAdam(learning_rate, weight_decay_rate)


def by_from_native(*arguments, **others):
    return everstep.from_native(ITS_CLASS(*arguments, **others))


def ours(rule=by_hand, made=None):
    """Returns a function that trains BERT's own way, but for the optimizer."""

    def optimizer(*arguments, **others):
        bound = rule(*arguments, **others).bind(tf.train)
        # BERT's create_optimizer increments global_step itself.
        apply_gradients = bound.apply_gradients
        bound.apply_gradients = lambda pairs, global_step=None, name=None: apply_gradients(pairs, None, name)
        if made is not None:
            made.append(bound)
        return bound

    def make(loss):
        with everstep.patched(optimization, AdamWeightDecayOptimizer=optimizer):
            return own(loss)

    return make


@pytest.fixture(scope="module")
def trained():
    """Returns a model that trained with BERT's own optimizer, and its losses."""
    model = Model(own)
    return model, model.train(batches(STEPS))


@pytest.mark.parametrize("rule", [by_hand, by_from_native])
def test_pretraining(trained, rule):
    model, losses = trained
    again, with_ours = Model(own), Model(ours(rule))
    assert apart(again.weights(), with_ours.weights()) == 0
    noise, difference = (apart(losses, each.train(batches(STEPS))) for each in (again, with_ours))
    weights = [apart(model.weights(), each.weights()) for each in (again, with_ours)]
    name = "pretraining, AdamWeightDecayOptimizer" + (" by from_native" if rule is by_from_native else "")
    shown(*BERT, name, STEPS, difference, noise, weights[1], weights[0])
    assert losses[-1] < losses[0] - 0.1
    assert with_ours.session.run(with_ours.step) == STEPS
    # Adam takes 1 - beta of a float32, BERT of a double; the model enlarges it.
    bounds = (1e-5, 2e-4) if rule is by_from_native else (1e-6, 1e-5)
    assert difference < bounds[0] and weights[1] < bounds[1]


def test_from_native_follows_its_class():
    def trained(make):
        with tf.Graph().as_default(), tf.Session() as session:
            random = np.random.RandomState(3)
            variables = [tf.get_variable(name, initializer=random.normal(0.5, 1, (4, 3)).astype("float32"))
                         for name in ("dense/kernel", "dense/bias")]
            grads = [tf.placeholder(tf.float32, (4, 3)) for _ in variables]
            step = make().apply_gradients(list(zip(grads, variables)))
            session.run(tf.global_variables_initializer())
            for _ in range(100):
                session.run(step, {grad: random.normal(0.2, 1, (4, 3)) for grad in grads})
            return session.run(variables)

    def make():
        return ITS_CLASS(0.05, 0.1, epsilon=1e-3, exclude_from_weight_decay=["bias"])

    difference = apart(trained(make), trained(lambda: everstep.from_native(make()).bind(tf.train)))
    shown(*BERT, "from_native, AdamWeightDecayOptimizer", 100, weights=difference)
    assert difference < 1e-5  # BERT rounds 1 - beta from a double: for 0.999 it is 1.3e-5 apart from 1 - float32(0.999)
    assert everstep.from_native(make()) == everstep.decoupled_weight_decay(
        everstep.optimizers.Adam(0.05, epsilon=1e-3, bias_correction=False), 0.1, exclude=["bias"])


def test_continued_from_its_own_checkpoint(trained, tmp_path):
    model, _ = trained
    saved = model.session.run([model.step] + model.variables)
    path = model.saver.save(model.session, str(tmp_path / "model.ckpt"))
    expected = model.train(batches(MORE, seed=1))
    again = Model(own)
    again.saver.restore(again.session, path)
    noise = apart(expected, again.train(batches(MORE, seed=1)))

    made = []
    resumed = Model(ours(made=made))
    resumed.put(dict(zip((variable.op.name for variable in resumed.variables), saved[1:])), saved[0])
    state = everstep.read_checkpoint(
        path, BertAdam(), slots={"m": "{var}/adam_m", "v": "{var}/adam_v"}, updates=int(saved[0]))
    everstep.restore(made[0], state, resumed.variables, resumed.session)
    difference = apart(expected, resumed.train(batches(MORE, seed=1)))
    shown(*BERT, "own checkpoint continued by read_checkpoint(slots=)", MORE, difference, noise, saved="tf.train.Saver")
    assert difference < 1e-6


def test_accumulation_on_a_quarter_of_the_batch():
    def quarters(feeds):
        for feed in feeds:
            for part in range(4):
                yield {name: value[part * BATCH // 4 : (part + 1) * BATCH // 4] for name, value in feed.items()}

    def unclipped(change):
        def make(loss):
            return change(BertAdam(1e-3)).bind(tf.train).minimize(loss, tf.train.get_global_step())

        return make

    # Each part is clipped by its own norm, so without BERT's clipping the mean of four is the gradient of all.
    full, parts = Model(unclipped(lambda rule: rule)), Model(unclipped(lambda rule: everstep.accumulate(rule, 4)))
    whole, pieces = full.train(batches(MORE)), parts.train(quarters(batches(MORE)))
    means = [np.mean(pieces[4 * step : 4 * step + 4]) for step in range(MORE)]
    shown(*BERT, "accumulate(4) on quarters, beside whole batches by ours", MORE, apart(whole, means))
    assert apart(whole, means) < 1e-5 and full.session.run(full.step) * 4 == parts.session.run(parts.step)
