"""Optimizers as their authors write them for one API, to be ported. Those of `traps` cannot be, each for one reason.

Each function takes TensorFlow, or Keras, and returns {name: class}.
"""
from __future__ import absolute_import, division, print_function


def train_classes(tf):
    """Returns classes of tf.train.Optimizer; tf: tf.compat.v1, or TensorFlow 1."""

    class Written(tf.train.Optimizer):
        """What such classes share: slots, and one update for dense gradients of both kinds of variables."""

        slots = ("m", "v")

        def __init__(self, learning_rate=0.01, beta1=0.9, beta2=0.999, epsilon=1e-8, use_locking=False, name="Written"):
            super(Written, self).__init__(use_locking, name)
            self._lr, self._beta1, self._beta2, self._epsilon = learning_rate, beta1, beta2, epsilon

        def _create_slots(self, var_list):
            first = min(var_list, key=lambda x: x.name)
            for name, value in (("beta1_power", self._beta1), ("beta2_power", self._beta2)):
                self._create_non_slot_variable(value, name, first)
            for var in var_list:
                for slot in self.slots:
                    self._zeros_slot(var, slot, self._name)

        def _power(self, name):
            return self._get_non_slot_variable(name, tf.get_default_graph())

        def _apply_dense(self, grad, var):
            return self._update(grad, var)

        _resource_apply_dense = _apply_dense

        def _finish(self, update_ops, name_scope):
            with tf.control_dependencies(update_ops):
                powers = [self._power("beta1_power"), self._power("beta2_power")]
                moved = [p.assign(p * b) for p, b in zip(powers, (self._beta1, self._beta2))]
            return tf.group(*(update_ops + moved), name=name_scope)

        def _moments(self, grad, var):
            m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
            m_t = m.assign(self._beta1 * m + (1 - self._beta1) * grad)
            v_t = v.assign(self._beta2 * v + (1 - self._beta2) * grad * grad)
            return m_t, v_t

        def _rate(self):
            return self._lr * tf.sqrt(1 - self._power("beta2_power")) / (1 - self._power("beta1_power"))

    class Padam(Written):
        """Chen et al. 2018, arXiv:1806.06763."""

        slots = ("m", "v", "v_hat")

        def __init__(self, learning_rate=0.1, partial=0.125, **kwargs):
            super(Padam, self).__init__(learning_rate, name="Padam", **kwargs)
            self._partial = partial

        def _update(self, grad, var):
            m_t, v_t = self._moments(grad, var)
            v_hat = self.get_slot(var, "v_hat")
            v_hat_t = v_hat.assign(tf.maximum(v_hat, v_t))
            change = self._rate() * m_t / tf.pow(v_hat_t + self._epsilon, self._partial)
            return tf.group(var.assign_sub(change), m_t, v_t, v_hat_t)

    class AdaBound(Written):
        """Luo et al. 2019, arXiv:1902.09843."""

        def __init__(self, learning_rate=0.001, final_lr=0.1, gamma=1e-3, **kwargs):
            super(AdaBound, self).__init__(learning_rate, name="AdaBound", **kwargs)
            self._final_lr, self._gamma = final_lr, gamma

        def _update(self, grad, var):
            m_t, v_t = self._moments(grad, var)
            t = tf.cast(tf.train.get_global_step(), tf.float32) + 1.0
            lower = self._final_lr * (1.0 - 1.0 / (self._gamma * t + 1.0))
            upper = self._final_lr * (1.0 + 1.0 / (self._gamma * t))
            clipped = tf.clip_by_value(self._rate() / (tf.sqrt(v_t) + self._epsilon), lower, upper)
            return tf.group(var.assign_sub(clipped * m_t), m_t, v_t)

    class FTML(Written):
        """Zheng and Kwok 2017."""

        slots = ("v", "d", "z")

        def _update(self, grad, var):
            v, d, z = [self.get_slot(var, name) for name in self.slots]
            v_t = v.assign(self._beta2 * v + (1 - self._beta2) * grad * grad)
            root = tf.sqrt(v_t / (1 - self._power("beta2_power"))) + self._epsilon
            d_t = (1 - self._power("beta1_power")) / self._lr * root
            sigma = d_t - self._beta1 * d
            z_t = self._beta1 * z + (1 - self._beta1) * grad - sigma * var
            with tf.control_dependencies([sigma, z_t]):
                moved = [d.assign(d_t), z.assign(z_t), var.assign(-z_t / d_t)]
            return tf.group(v_t, *moved)

    class QHAdam(Written):
        """Ma and Yarats 2018, arXiv:1810.06801."""

        def __init__(self, learning_rate=0.01, nu1=0.7, nu2=1.0, **kwargs):
            super(QHAdam, self).__init__(learning_rate, name="QHAdam", **kwargs)
            self._nu1, self._nu2 = nu1, nu2

        def _update(self, grad, var):
            m_t, v_t = self._moments(grad, var)
            m_hat = m_t / (1 - self._power("beta1_power"))
            v_hat = v_t / (1 - self._power("beta2_power"))
            top = (1 - self._nu1) * grad + self._nu1 * m_hat
            root = tf.sqrt((1 - self._nu2) * tf.square(grad) + self._nu2 * v_hat)
            return tf.group(var.assign_sub(self._lr * top / (root + self._epsilon)), m_t, v_t)

    class AdaShift(Written):
        """A lagged second moment: the gradient before goes into v."""

        slots = ("m", "v", "previous")

        def _update(self, grad, var):
            m, v, previous = [self.get_slot(var, name) for name in self.slots]
            v_t = self._beta2 * v + (1 - self._beta2) * tf.square(previous)
            m_t = self._beta1 * m + (1 - self._beta1) * grad
            change = self._lr * m_t / (tf.sqrt(v_t / (1 - self._power("beta2_power"))) + 0.1)
            with tf.control_dependencies([change]):
                return tf.group(var.assign_sub(change), m.assign(m_t), v.assign(v_t), previous.assign(grad))

    class SignMomentum(Written):
        """signSGD with momentum."""

        slots = ("m",)

        def _update(self, grad, var):
            m = self.get_slot(var, "m")
            m_t = m.assign(self._beta1 * m + (1 - self._beta1) * grad)
            return var.assign_sub(self._lr * tf.sign(m_t))

    class Restarting(Written):
        """A cosine that starts again. Both branches of a condition write the count of its steps."""

        slots = ()

        def __init__(self, learning_rate=0.01, period=7):
            super(Restarting, self).__init__(learning_rate, name="Restarting")
            self._period = period

        def _create_slots(self, var_list):
            self._create_non_slot_variable(0.0, "place", min(var_list, key=lambda x: x.name))

        def _update(self, grad, var):
            share = self._power("place") / self._period
            return var.assign_sub(0.5 * self._lr * (1 + tf.cos(3.14159 * share)) * grad)

        def _finish(self, update_ops, name_scope):
            place = self._power("place")
            with tf.control_dependencies(update_ops):
                is_last = tf.equal(place, self._period - 1.0)
                moved = tf.cond(is_last, lambda: tf.assign(place, 0.0), lambda: tf.assign(place, place + 1.0))
            return tf.group(moved, *update_ops, name=name_scope)

    return {each.__name__: each for each in (Padam, AdaBound, FTML, QHAdam, AdaShift, SignMomentum, Restarting)}


def v2_classes(tf, base):
    """Returns classes of OptimizerV2. base: the class."""

    class Written(base):
        slots = ("m", "v")

        def __init__(self, learning_rate=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-7, name="Written", **kwargs):
            super(Written, self).__init__(name, **kwargs)
            self._set_hyper("learning_rate", kwargs.get("lr", learning_rate))
            self._set_hyper("beta_1", beta_1)
            self._set_hyper("beta_2", beta_2)
            self.epsilon = epsilon

        def _create_slots(self, var_list):
            for slot in self.slots:
                for var in var_list:
                    self.add_slot(var, slot)

        def _hypers(self, var):
            kind = var.dtype.base_dtype
            return self._decayed_lr(kind), self._get_hyper("beta_1", kind), self._get_hyper("beta_2", kind)

        def _moments(self, grad, var):
            _, beta_1, beta_2 = self._hypers(var)
            m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
            m_t = m.assign(beta_1 * m + (1 - beta_1) * grad)
            v_t = v.assign(beta_2 * v + (1 - beta_2) * tf.square(grad))
            return m_t, v_t

        def _step(self):
            return tf.cast(self.iterations + 1, tf.float32)

        def get_config(self):
            return dict(super(Written, self).get_config(), epsilon=self.epsilon)

    class Averaged(Written):
        """Keeps an average of the variable. Its slot has the name of an argument."""

        slots = ("momentum",)

        def __init__(self, learning_rate=0.01, momentum=0.9, decay_rate=0.75, name="Averaged", **kwargs):
            super(Averaged, self).__init__(learning_rate, name=name, **kwargs)
            self.momentum, self.decay_rate = momentum, decay_rate

        def _create_slots(self, var_list):
            super(Averaged, self)._create_slots(var_list)
            for var in var_list:
                self.add_slot(var, "average", initializer=var)

        def _resource_apply_dense(self, grad, var, apply_state=None):
            m, average = self.get_slot(var, "momentum"), self.get_slot(var, "average")
            m_t = m.assign(self.momentum * m + grad)
            new = var - self._hypers(var)[0] * m_t
            moved = average.assign(self.decay_rate * average + (1 - self.decay_rate) * new)
            return tf.group(var.assign(new), moved)

    class Periodic(Written):
        """Lookahead as somebody writes it, around another optimizer."""

        slots = ("slow",)

        def __init__(self, inner=None, period=3, share=0.4, name="Periodic"):
            super(Periodic, self).__init__(name=name)
            self.inner, self.period, self.share = inner or Warmed(), period, share

        def _create_slots(self, var_list):
            self.inner._create_slots(var_list)
            for var in var_list:
                self.add_slot(var, "slow", initializer=var)

        def _create_hypers(self):
            self.inner._create_hypers()

        def _prepare(self, var_list):
            self.inner._iterations = self.iterations
            return self.inner._prepare(var_list)

        def _resource_apply_dense(self, grad, var, apply_state=None):
            slow, is_sync = self.get_slot(var, "slow"), tf.equal((self.iterations + 1) % self.period, 0)
            with tf.control_dependencies([self.inner._resource_apply_dense(grad, var, apply_state)]):
                fast = var.read_value()
                moved = tf.where(is_sync, slow + self.share * (fast - slow), slow)
                return tf.group(slow.assign(moved), var.assign(tf.where(is_sync, moved, fast)))

    class Shaped(Written):
        """The form of its update is a text."""

        slots = ("m",)

        def __init__(self, learning_rate=0.01, mode="sign", name="Shaped", **kwargs):
            super(Shaped, self).__init__(learning_rate, name=name, **kwargs)
            self._mode = mode
            if mode not in ("sign", "tanh", "plain"):
                raise ValueError(mode)

        def _create_slots(self, var_list):
            if self._mode != "plain":
                super(Shaped, self)._create_slots(var_list)

        def _resource_apply_dense(self, grad, var, apply_state=None):
            rate, beta_1, _ = self._hypers(var)
            if self._mode == "plain":
                return var.assign_sub(rate * grad)
            m = self.get_slot(var, "m")
            m_t = m.assign(beta_1 * m + (1 - beta_1) * grad)
            return var.assign_sub(rate * (tf.sign(m_t) if self._mode.lower() == "sign" else tf.tanh(m_t)))

    class DiffGrad(Written):
        """Dubey et al. 2019, arXiv:1909.11015."""

        slots = ("m", "v", "previous_grad")

        def _resource_apply_dense(self, grad, var, apply_state=None):
            rate, beta_1, beta_2 = self._hypers(var)
            m_t, v_t = self._moments(grad, var)
            previous = self.get_slot(var, "previous_grad")
            friction = tf.sigmoid(tf.abs(previous - grad))
            rate = rate * tf.sqrt(1 - tf.pow(beta_2, self._step())) / (1 - tf.pow(beta_1, self._step()))
            change = rate * friction * m_t / (tf.sqrt(v_t) + self.epsilon)
            with tf.control_dependencies([change]):
                return tf.group(var.assign_sub(change), previous.assign(grad))

    class CenteredGradient(Written):
        """Adam with gradient centralization (Yong et al. 2020, arXiv:2004.01461)."""

        def _resource_apply_dense(self, grad, var, apply_state=None):
            if grad.shape.ndims > 1:
                grad = grad - tf.reduce_mean(grad, axis=list(range(1, grad.shape.ndims)), keepdims=True)
            rate, beta_1, beta_2 = self._hypers(var)
            m_t, v_t = self._moments(grad, var)
            m_hat = m_t / (1 - tf.pow(beta_1, self._step()))
            v_hat = v_t / (1 - tf.pow(beta_2, self._step()))
            return var.assign_sub(rate * m_hat / (tf.sqrt(v_hat) + self.epsilon))

    class LayerScaled(Written):
        """A trust ratio of norms, as in LARS (You et al. 2017, arXiv:1708.03888)."""

        slots = ("momentum",)

        def _resource_apply_dense(self, grad, var, apply_state=None):
            rate, beta_1, _ = self._hypers(var)
            weight_norm, grad_norm = tf.norm(var), tf.norm(grad)
            ratio = tf.where(weight_norm * grad_norm > 0, 0.1 * weight_norm / (grad_norm + 1e-6), 1.0)
            momentum = self.get_slot(var, "momentum")
            momentum_t = momentum.assign(beta_1 * momentum + rate * ratio * grad)
            return var.assign_sub(momentum_t)

    class Warmed(Written):
        """SGD whose rate grows linearly."""

        slots = ()

        def __init__(self, learning_rate=0.1, warmup_steps=30, **kwargs):
            super(Warmed, self).__init__(learning_rate, name="Warmed", **kwargs)
            self.warmup_steps = warmup_steps

        def _resource_apply_dense(self, grad, var, apply_state=None):
            rate = self._hypers(var)[0] * tf.minimum(1.0, self._step() / float(self.warmup_steps))
            return var.assign_sub(rate * grad)

        def _resource_apply_sparse(self, grad, var, indices, apply_state=None):
            rate = self._hypers(var)[0] * tf.minimum(1.0, self._step() / float(self.warmup_steps))
            return self._resource_scatter_add(var, indices, -rate * grad)

    class Trust(Written):
        """AdamW with a decay that an option decouples."""

        def __init__(self, learning_rate=0.01, weight_decay=0.05, decoupled=True, **kwargs):
            super(Trust, self).__init__(learning_rate, name="Trust", **kwargs)
            self.weight_decay, self.decoupled = weight_decay, decoupled

        def _resource_apply_dense(self, grad, var, apply_state=None):
            rate = self._hypers(var)[0]
            if not self.decoupled:
                grad = grad + self.weight_decay * var
            m_t, v_t = self._moments(grad, var)
            change = rate * m_t / (tf.sqrt(v_t) + self.epsilon)
            if self.decoupled:
                change = change + rate * self.weight_decay * var
            return var.assign_sub(change)

    made = DiffGrad, CenteredGradient, LayerScaled, Warmed, Trust, Shaped, Averaged, Periodic
    return {each.__name__: each for each in made}


def v2_traps(tf, base):
    """Returns classes of OptimizerV2 that cannot be ported. base: the class."""
    written = v2_classes(tf, base)["Warmed"].__mro__[1]

    class Coupled(written):
        """Scales every gradient by the norm of all of them."""

        def apply_gradients(self, grads_and_vars, **kwargs):
            pairs = list(grads_and_vars)
            norm = tf.linalg.global_norm([grad for grad, _ in pairs])
            return super(Coupled, self).apply_gradients([(grad / (1.0 + norm), var) for grad, var in pairs], **kwargs)

        def _resource_apply_dense(self, grad, var, apply_state=None):
            return var.assign_sub(self._hypers(var)[0] * grad)

    class FrozenShape(written):
        """Divides a sum by a number of elements that Python counted."""

        def _resource_apply_dense(self, grad, var, apply_state=None):
            size = 1
            for dimension in var.shape:
                size *= int(dimension)
            return var.assign_sub(self._hypers(var)[0] * grad * (tf.reduce_sum(tf.abs(grad)) / float(size)))

    class InPython(written):
        """Counts its steps in a Python attribute."""

        count = 0

        def apply_gradients(self, *args, **kwargs):
            self.count = self.count + 1
            return super(InPython, self).apply_gradients(*args, **kwargs)

        def _resource_apply_dense(self, grad, var, apply_state=None):
            return var.assign_sub(self._hypers(var)[0] / self.count * grad)

    class RandomStart(written):
        """A slot that starts at random."""

        slots = ()

        def _create_slots(self, var_list):
            for var in var_list:
                self.add_slot(var, "m", initializer="random_normal")

        def _resource_apply_dense(self, grad, var, apply_state=None):
            m = self.get_slot(var, "m")
            return var.assign_sub(self._hypers(var)[0] * m.assign(0.9 * m + grad))

    class Noisy(written):
        """Adds noise to gradients."""

        def _resource_apply_dense(self, grad, var, apply_state=None):
            return var.assign_sub(self._hypers(var)[0] * (grad + tf.random.normal(tf.shape(grad))))

    class Looping(written):
        """A loop of Newton's steps."""

        def _resource_apply_dense(self, grad, var, apply_state=None):
            root = tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, (x + 1 / x) / 2), [0, tf.abs(grad) + 1.0])[1]
            return var.assign_sub(self._hypers(var)[0] * grad / root)

    class Sorting(written):
        """Drops the smaller half of a gradient."""

        def _resource_apply_dense(self, grad, var, apply_state=None):
            values = tf.nn.top_k(tf.reshape(tf.abs(grad), [-1]), k=2).values
            kept = tf.where(tf.abs(grad) >= values[-1], grad, tf.zeros_like(grad))
            return var.assign_sub(self._hypers(var)[0] * kept)

    traps = (Coupled, FrozenShape, InPython, RandomStart, Noisy, Looping, Sorting)
    return {each.__name__: each for each in traps}


def keras_classes(keras):
    """Returns classes with `get_updates`; keras: the standalone package."""
    K = keras.backend  # noqa: N806

    class AdaMod(keras.optimizers.Optimizer):
        """Ding et al. 2019, arXiv:1910.12249. Its counter is incremented in no order with its read, as stock's is."""

        def __init__(self, lr=0.01, beta_1=0.9, beta_2=0.999, beta_3=0.99, decay=0.0, **kwargs):
            super(AdaMod, self).__init__(**kwargs)
            with K.name_scope("AdaMod"):
                self.iterations = K.variable(0, dtype="int64", name="iterations")
                self.learning_rate = K.variable(lr, name="learning_rate")
                self.beta_1 = K.variable(beta_1, name="beta_1")
                self.beta_2 = K.variable(beta_2, name="beta_2")
                self.beta_3 = K.variable(beta_3, name="beta_3")
                self.decay = K.variable(decay, name="decay")
            self.initial_decay, self.epsilon = decay, 1e-7

        def get_updates(self, loss, params):
            grads = self.get_gradients(loss, params)
            self.updates = [K.update_add(self.iterations, 1)]
            lr = self.learning_rate
            if self.initial_decay > 0:
                lr = lr * (1.0 / (1.0 + self.decay * K.cast(self.iterations, K.dtype(self.decay))))
            t = K.cast(self.iterations, K.floatx()) + 1
            lr_t = lr * K.sqrt(1.0 - K.pow(self.beta_2, t)) / (1.0 - K.pow(self.beta_1, t))
            ms, vs, ss = [[K.zeros(K.int_shape(p)) for p in params] for _ in range(3)]
            self.weights = [self.iterations] + ms + vs + ss
            for p, g, m, v, s in zip(params, grads, ms, vs, ss):
                m_t = self.beta_1 * m + (1.0 - self.beta_1) * g
                v_t = self.beta_2 * v + (1.0 - self.beta_2) * K.square(g)
                eta = lr_t / (K.sqrt(v_t) + self.epsilon)
                s_t = self.beta_3 * s + (1.0 - self.beta_3) * eta
                self.updates += [K.update(m, m_t), K.update(v, v_t), K.update(s, s_t)]
                self.updates.append(K.update(p, p - K.minimum(eta, s_t) * m_t))
            return self.updates

        def get_config(self):
            numbers = {name: float(K.get_value(getattr(self, name))) for name in ("beta_1", "beta_2", "beta_3")}
            numbers["lr"] = float(K.get_value(self.learning_rate))
            return dict(super(AdaMod, self).get_config(), decay=self.initial_decay, **numbers)

    class SGDR(keras.optimizers.Optimizer):
        """SGD with the cosine of warm restarts (Loshchilov and Hutter 2016, arXiv:1608.03983), without momentum."""

        def __init__(self, lr=0.1, period=40.0, **kwargs):
            super(SGDR, self).__init__(**kwargs)
            self.iterations = K.variable(0, dtype="int64", name="iterations")
            self.learning_rate = K.variable(lr, name="learning_rate")
            self.period = K.variable(period, name="period")

        def get_updates(self, loss, params):
            grads = self.get_gradients(loss, params)
            step = K.cast(self.iterations, K.floatx())
            phase = (step - self.period * K.cast(K.cast(step / self.period, "int32"), K.floatx())) / self.period
            rate = self.learning_rate * 0.5 * (1.0 + K.cos(3.14159265 * phase))
            self.weights = [self.iterations]
            self.updates = [K.update(p, p - rate * g) for p, g in zip(params, grads)]
            self.updates.append(K.update_add(self.iterations, 1))
            return self.updates

        def get_config(self):
            return dict(super(SGDR, self).get_config(), lr=float(K.get_value(self.learning_rate)))

    return {each.__name__: each for each in (AdaMod, SGDR)}


def new_classes(tf, keras):
    """Returns classes of new-style Keras and Keras 3; keras: tf.keras or the package."""
    arrays = keras.ops if hasattr(keras, "ops") else tf

    class Written(keras.optimizers.Optimizer):
        names = ("momentum", "velocity")

        def __init__(self, learning_rate=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-7, name="written", **kwargs):
            if hasattr(keras, "ops"):
                super(Written, self).__init__(learning_rate=learning_rate, name=name, **kwargs)
            else:
                super(Written, self).__init__(name=name, **kwargs)
                self._learning_rate = self._build_learning_rate(learning_rate)
            self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

        def build(self, variables):
            super(Written, self).build(variables)
            if not hasattr(self, "_held"):
                add = self.add_variable_from_reference
                if hasattr(keras, "ops"):
                    self._held = [[add(each, name=name) for name in self.names] for each in variables]
                else:
                    self._held = [[add(each, name) for name in self.names] for each in variables]

        def slots_of(self, variable):
            if hasattr(keras, "ops"):
                return self._held[self._get_variable_index(variable)]
            return self._held[self._index_dict[self._var_key(variable)]]

        def update_step(self, gradient, variable, learning_rate=None):
            rate = self.learning_rate if learning_rate is None else learning_rate
            self.change(gradient, variable, arrays.cast(rate, variable.dtype), self.slots_of(variable))

        def get_config(self):
            return dict(super(Written, self).get_config(), beta_1=self.beta_1, beta_2=self.beta_2)

    class AdaPNM(Written):
        """Two momenta that take turns by the parity of the step (after Xie et al. 2021, arXiv:2103.17182)."""

        names = ("even", "odd", "velocity")

        def change(self, gradient, variable, rate, slots):
            even, odd, velocity = slots
            step = arrays.cast(self.iterations, variable.dtype)
            is_even = arrays.equal(step % 2, 0)
            new_even = arrays.where(is_even, self.beta_1 * even + (1 - self.beta_1) * gradient, even)
            new_odd = arrays.where(is_even, odd, self.beta_1 * odd + (1 - self.beta_1) * gradient)
            new_velocity = self.beta_2 * velocity + (1 - self.beta_2) * gradient * gradient
            mixed = arrays.where(is_even, 2 * new_even - new_odd, 2 * new_odd - new_even)
            variable.assign(variable - rate * mixed / (arrays.sqrt(new_velocity) + 0.1))
            even.assign(new_even)
            odd.assign(new_odd)
            velocity.assign(new_velocity)

    class SofterAdam(Written):
        """Adam with a softplus of the root (Tong et al. 2019, arXiv:1908.00700)."""

        def change(self, gradient, variable, rate, slots):
            momentum, velocity = slots
            momentum.assign(self.beta_1 * momentum + (1 - self.beta_1) * gradient)
            velocity.assign(self.beta_2 * velocity + (1 - self.beta_2) * gradient * gradient)
            logarithm = getattr(arrays, "log", None) or arrays.math.log
            root = logarithm(1 + arrays.exp(50.0 * arrays.sqrt(velocity))) / 50.0
            variable.assign(variable - rate * momentum / root)

    return {each.__name__: each for each in (AdaPNM, SofterAdam)}
