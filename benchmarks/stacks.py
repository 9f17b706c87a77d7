"""Adam with what people put around it, written with stock parts as a good user of each API does, and as we define it.

Both sides compute the same: tests/test_benchmarks.py compares the weights. The environments do not have TensorFlow
Addons: `_decaying` is the formula of its AdamW, of the same operations.
"""
import collections
import functools
import importlib
import re

import everstep

RATE, DECAY, AVERAGE_DECAY, NORM = 1e-3, 0.01, 0.999, 1.0
WARM_UP, UPDATES = 100, 10000
EXCLUDED = ("v[89]($|:)", "bias", "norm", "gamma", "beta")  # of plain variables, and of the variables of models
ADAM, BERT, BERT_CLASS = "Adam", "BERT's stack", "BERT's own class"

# What the stock side is, a function that makes it, and our definition.
Stack = collections.namedtuple("Stack", "beside make definition")


def stacks(api):
    """Returns {name: Stack} of what can be done with stock parts on an API."""
    ours = _definitions(api.target in ("update_step", "keras3"), api.epsilon)
    return {name: Stack(beside, make, ours[name]) for name, (beside, make) in SIDES[api.target](api).items()}


def _definitions(times_rate, epsilon):
    """Returns {name: definition}. Keras multiplies the decay by the learning rate, contrib and Addons do not."""
    adam = functools.partial(everstep.optimizers.Adam, epsilon=epsilon)
    clip = functools.partial(everstep.clip, global_norm=NORM)
    decay = functools.partial(everstep.decoupled_weight_decay, weight_decay=DECAY, times_rate=times_rate)
    warm = everstep.Warmup(everstep.PolynomialDecay(RATE, UPDATES, end=0.0), WARM_UP)
    bert = clip(decay(adam(warm), exclude=list(EXCLUDED)))
    return {
        "clip": clip(adam()),
        "decay": decay(adam()),
        "clip, decay": clip(decay(adam())),
        "moving average": everstep.moving_average(adam(), AVERAGE_DECAY),
        "multipliers": everstep.learning_rate_multipliers(adam(), {"v[0-4]($|:)": 0.1}),
        BERT: bert,
        BERT_CLASS: bert,  # another rule, without bias correction, for the same purpose
    }


class Combined(object):
    """A stock optimizer with averages after it, or with more arguments, as one optimizer.

    `options` returns keywords of the optimizer's apply_gradients for a list of variables.
    """

    def __init__(self, optimizer, average=False, options=lambda variables: {}):
        import tensorflow as tf

        self.tf, self.optimizer, self.options = tf, optimizer, options
        self.average = tf.train.ExponentialMovingAverage(AVERAGE_DECAY) if average else None

    def apply_gradients(self, pairs):
        variables = [variable for _, variable in pairs]
        step = self.optimizer.apply_gradients(pairs, **self.options(variables))
        if not self.average:
            return step
        with self.tf.control_dependencies([step]):
            return self.average.apply(variables)


def _of_sessions(api):
    """tf.train: clip_by_global_norm, contrib's AdamW, ExponentialMovingAverage, a schedule of BERT's kind."""
    import tensorflow as tf

    train, adam = api.module, api.adam
    contrib = getattr(tf, "contrib", None)  # TF 2 has none
    name = "contrib AdamW" if contrib else "Adam with assign_sub"

    def adam_w(rate=RATE, excluded=(), around=lambda optimizer_class: optimizer_class):
        if contrib:
            return around(contrib.opt.AdamWOptimizer)(DECAY, rate)
        return around(_decaying(adam, excluded))(rate)

    def bert(make, decays=False):
        step = train.get_or_create_global_step()
        after = train.polynomial_decay(RATE, step, UPDATES, 0.0)
        rate = tf.where(step < WARM_UP, RATE * tf.cast(step, tf.float32) / WARM_UP, after)

        def options(variables):
            kept = [variable for variable in variables if not _matches(variable.name, EXCLUDED)]
            return dict({"decay_var_list": kept} if decays else {}, global_step=step)

        return Combined(make(rate), options=options)

    sides = {
        "clip": ("clip_by_global_norm, Adam", _clipping(adam)),
        "decay": (name, adam_w),
        "clip, decay": ("clip_by_global_norm, " + name, lambda: adam_w(around=_clipping)),
        "moving average": ("Adam, ExponentialMovingAverage", lambda: Combined(adam(), average=True)),
        "multipliers": (ADAM, adam),
        BERT: (
            "clip_by_global_norm, " + name,
            lambda: bert(lambda rate: adam_w(rate, EXCLUDED, _clipping), decays=bool(contrib)),
        ),
    }
    if contrib:  # its time
        sides[BERT_CLASS] = ("its AdamWeightDecayOptimizer", lambda: bert(_clipping(_bert_class(train))))
    return sides


def _of_optimizer_v2(api):
    """OptimizerV2: the same functions of TensorFlow, and Addons' formula of AdamW."""
    import tensorflow as tf

    adam, name = api.adam, "Addons' formula of AdamW"
    keras = importlib.import_module("tf_keras") if adam.__module__.startswith("tf_keras.") else tf.keras
    warm = _warm_up(keras.optimizers.schedules, tf)
    return {
        "clip": ("clip_by_global_norm, Adam", _clipping(adam)),
        "decay": (name, _decaying(adam)),
        "clip, decay": ("clip_by_global_norm, " + name, _clipping(_decaying(adam))),
        "moving average": ("Adam, ExponentialMovingAverage", lambda: Combined(adam(), average=True)),
        "multipliers": (ADAM, adam),
        BERT: ("clip_by_global_norm, " + name, lambda: _clipping(_decaying(adam, EXCLUDED))(warm())),
    }


def _of_new_keras(api):
    """tf.keras from 2.11 on, tf_keras and Keras 3: keywords of their own optimizers."""
    if api.target == "keras3":
        import keras

        keras_module, ops = keras, keras.ops
    else:
        import tensorflow as tf

        keras_module, ops = api.module, tf
    optimizers = keras_module.optimizers
    warm = _warm_up(optimizers.schedules, ops)

    def bert():
        optimizer = optimizers.AdamW(warm(), weight_decay=DECAY, global_clipnorm=NORM)
        optimizer.exclude_from_weight_decay(var_names=list(EXCLUDED))
        return optimizer

    clip, decay = {"global_clipnorm": NORM}, {"weight_decay": DECAY}
    average = {"use_ema": True, "ema_momentum": AVERAGE_DECAY}
    return {
        "clip": ("Adam(global_clipnorm)", lambda: api.adam(**clip)),
        "decay": ("AdamW", lambda: optimizers.AdamW(**decay)),
        "clip, decay": ("AdamW(global_clipnorm)", lambda: optimizers.AdamW(**dict(clip, **decay))),
        "moving average": ("Adam(use_ema)", lambda: api.adam(**average)),
        "multipliers": (ADAM, api.adam),
        BERT: ("AdamW(schedule, global_clipnorm)", bert),
    }


def _of_get_updates(api):
    """Keras 2.3: its clipnorm is that of all gradients. It has no decay and no averages; peers.py has keras-adamw."""
    return {"clip": ("Adam(clipnorm)", lambda: api.adam(clipnorm=NORM)), "multipliers": (ADAM, api.adam)}


SIDES = {
    "tf_train": _of_sessions,
    "optimizer_v2": _of_optimizer_v2,
    "update_step": _of_new_keras,
    "keras3": _of_new_keras,
    "get_updates": _of_get_updates,
}


def _matches(name, patterns):
    return any(re.search(pattern, name) for pattern in patterns)


def _warm_up(schedules, ops):
    """Returns a Keras schedule that grows for WARM_UP updates, and then falls as PolynomialDecay."""

    class WarmUp(schedules.LearningRateSchedule):
        def __init__(self):
            self.after = schedules.PolynomialDecay(RATE, UPDATES, 0.0)

        def __call__(self, step):
            step = ops.cast(step, "float32")
            return ops.where(step < WARM_UP, RATE * step / WARM_UP, self.after(step))

        def get_config(self):
            return {}

    return WarmUp


def _clipping(base):
    """Returns a class of optimizer that clips all gradients by their norm, in `fit` too."""
    import tensorflow as tf

    class Clipping(base):
        def apply_gradients(self, grads_and_vars, *args, **options):
            grads, variables = zip(*grads_and_vars)
            grads, _ = tf.clip_by_global_norm(grads, NORM)
            return super(Clipping, self).apply_gradients(list(zip(grads, variables)), *args, **options)

    return Clipping


def _decaying(base, excluded=()):
    """Returns a class of Adam that first subtracts a share of the variable, as contrib and Addons do it."""
    import tensorflow as tf

    def decays_first(name):
        def apply(self, grad, var, *args, **options):
            decays = not _matches(var.name, excluded)
            with tf.control_dependencies([var.assign_sub(DECAY * var, read_value=False)] if decays else []):
                return getattr(super(Decaying, self), name)(grad, var, *args, **options)

        return apply

    class Decaying(base):
        pass

    for name in ("_apply_dense", "_resource_apply_dense", "_apply_sparse", "_resource_apply_sparse"):
        setattr(Decaying, name, decays_first(name))
    return Decaying


def _bert_class(train):
    """Returns AdamWeightDecayOptimizer: https://github.com/google-research/bert, optimization.py."""
    import tensorflow as tf

    class AdamWeightDecayOptimizer(train.Optimizer):
        def __init__(self, rate, beta_1=0.9, beta_2=0.999, epsilon=1e-6):
            super(AdamWeightDecayOptimizer, self).__init__(False, "AdamWeightDecayOptimizer")
            self.rate, self.beta_1, self.beta_2, self.epsilon = rate, beta_1, beta_2, epsilon

        def apply_gradients(self, pairs, global_step=None, name=None):
            assignments = []
            for grad, param in pairs:
                name, options = param.name.split(":")[0], dict(trainable=False, initializer=tf.zeros_initializer())
                m = tf.get_variable(name + "/adam_m", param.shape.as_list(), **options)
                v = tf.get_variable(name + "/adam_v", param.shape.as_list(), **options)
                next_m = tf.multiply(self.beta_1, m) + tf.multiply(1.0 - self.beta_1, grad)
                next_v = tf.multiply(self.beta_2, v) + tf.multiply(1.0 - self.beta_2, tf.square(grad))
                update = next_m / (tf.sqrt(next_v) + self.epsilon)
                if not _matches(param.name, EXCLUDED):
                    update += DECAY * param
                assignments.extend([param.assign(param - self.rate * update), m.assign(next_m), v.assign(next_v)])
            return tf.group(*assignments, name=name)

    return AdamWeightDecayOptimizer
