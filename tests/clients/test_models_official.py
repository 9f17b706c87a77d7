"""tf-models-official 2.10 (TF 2.10): its Trainer with classes of ours in its factory, its average and its noise."""
from __future__ import absolute_import, division, print_function

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from compare import apart, one_thread, shown
from official.core import base_task, base_trainer, config_definitions
from official.modeling import optimization

import everstep

MODELS = "tf-models-official", "2.10.1, TF {}".format(tf.__version__)
one_thread(tf)
STEPS, BATCH = 16, 8


@dataclasses.dataclass
class Optimizers(optimization.OptimizerConfig):
    """Its optimizers and ours, as its manual adds a class: by a field, and by the name of that field."""

    our_adam: optimization.opt_cfg.AdamConfig = optimization.opt_cfg.AdamConfig()


optimization.register_optimizer_cls("our_adam", type(everstep.optimizers.Adam().bind(tf.keras)))


class Task(base_task.Task):
    def build_model(self):
        return tf.keras.Sequential([tf.keras.layers.Dense(8, "tanh", input_shape=(4,)), tf.keras.layers.Dense(1)])

    def build_losses(self, labels, model_outputs, aux_losses=None):
        return tf.reduce_mean(tf.square(labels - model_outputs))

    def build_inputs(self, params, input_context=None):
        random = np.random.RandomState(0)
        x = random.normal(size=(BATCH * STEPS, 4)).astype("float32")
        return tf.data.Dataset.from_tensor_slices((x, x[:, :1] * x[:, 1:2])).batch(BATCH).repeat()


class Run(object):
    """A trainer, and what its `run_lib` makes around it: the checkpoints of a folder."""

    def __init__(self, name, average, folder):
        tf.keras.backend.clear_session()
        tf.keras.utils.set_random_seed(1)
        optimizers = optimization.OptimizationConfig(dict(
            optimizer=dict(type="adam"), ema=dict(average_decay=0.9) if average else None,
            learning_rate=dict(type="polynomial", polynomial=dict(initial_learning_rate=0.05, decay_steps=40)),
            warmup=dict(type="linear", linear=dict(warmup_steps=3)),
        ))
        optimizers.optimizer = Optimizers(dict(type=name, **{name: dict(global_clipnorm=1.0)}))
        config = config_definitions.ExperimentConfig(
            task=config_definitions.TaskConfig(), trainer=config_definitions.TrainerConfig(train_tf_while_loop=False))
        task = Task(config.task)
        privacy = base_task.DifferentialPrivacyConfig(clipping_norm=1.0, noise_multiplier=0.01)
        if not average:
            optimizers.optimizer.get().global_clipnorm = None  # stock clips or transforms
        optimizer = Task.create_optimizer(optimizers, dp_config=None if average else privacy)
        self.trainer = base_trainer.Trainer(config, task, task.build_model(), optimizer, evaluate=False)
        self.saved = tf.train.CheckpointManager(self.trainer.checkpoint, str(folder), 2)
        self.saved.restore_or_initialize()
        tf.keras.utils.set_random_seed(1)  # of the noise

    def train(self, steps):
        return [float(self.trainer.train(tf.constant(1))["training_loss"]) for _ in range(steps)]

    def weights(self):
        optimizer, weights = self.trainer.optimizer, [each.numpy() for each in self.trainer.model.trainable_variables]
        if hasattr(optimizer, "swap_weights"):
            weights += [optimizer.get_slot(each, "average").numpy() for each in
                        self.trainer.model.trainable_variables]
        return weights


@pytest.mark.parametrize("average", [True, False])
def test_trainer(average, tmp_path):
    own, again, ours = [Run(name, average, tmp_path / folder) for name, folder in (
        ("adam", "own"), ("adam", "again"), ("our_adam", "ours"))]
    start, losses = own.weights(), []
    for run in (own, again, ours):
        tf.keras.utils.set_random_seed(1)
        losses.append(run.train(STEPS))
    difference, noise = apart(losses[0], losses[2]), apart(losses[0], losses[1])
    weights, own_weights = apart(own.weights(), ours.weights()), apart(own.weights(), again.weights())
    ends = []
    for name, folder, run in (("adam", "own", own), ("our_adam", "ours", ours)):
        run.saved.save()
        loaded = Run(name, average, tmp_path / folder)
        assert apart(run.weights(), loaded.weights()) == 0 and int(loaded.trainer.global_step) == STEPS
        ends.append((loaded.train(STEPS), loaded.weights()))
    resumed = max(map(apart, *ends))
    if average:  # without noise, a run that was not interrupted is the same
        resumed = max(resumed, apart(ours.train(STEPS), ends[1][0]), apart(ours.weights(), ends[1][1]))
    text = "Trainer, Adam with warm-up, {}".format("its moving average" if average else "its noise on gradients")
    shown(*MODELS, text, STEPS, difference, noise, weights, own_weights,
          "its checkpoints, a new Trainer: {:.1e}".format(resumed))
    assert np.mean(losses[0][-4:]) < np.mean(losses[0][:4]) and apart(start, own.weights()) > 0.1
    assert max(difference, weights, resumed) < 1e-5
