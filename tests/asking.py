"""Optimizers that ask for the name, size, dtype or index of a variable, in the ways of authors, on every API.

`ASKED` has the questions. Each is a function of (self, var) that returns the factor of the rate, or a bool that says
whether the variable decays; `made` makes a class with it.
"""
from __future__ import absolute_import, division, print_function

import functools
import re

RATES = {"layer_norm": 0.5, "embeddings": 0.25}
NO_DECAY = re.compile("LayerNorm|bias")
FROZEN = frozenset(["dense_1/bias:0", "layer_norm/beta"])


def plain_name(var):
    """Returns the name as the BERT of Google does."""
    found = re.match("^(.*):\\d+$", var.name)
    return var.name if found is None else found.group(1)


def contains(self, var):
    return "bias" not in var.name


def in_any_case(self, var):
    return "layernorm" not in var.name.lower()


def starts(self, var):
    return not var.name.startswith("token_emb")


def ends(self, var):
    return not plain_name(var).endswith("bias")


def ends_of_two(self, var):
    return not var.name.split(":")[0].endswith(("gamma", "beta"))


def last_part(self, var):
    return plain_name(var).split("/")[-1] not in ("bias", "gamma", "beta")


def first_part(self, var):
    return plain_name(var).split("/")[0] != "bert"


def searched(self, var):
    return not any(re.search(pattern, var.name) for pattern in ["LayerNorm", "layer_norm", "bias"])


def compiled(self, var):
    return NO_DECAY.search(var.name) is None


def found(self, var):
    return var.name.find("gamma") < 0 and var.name.count("beta") == 0


def by_dictionary(self, var):
    for key, factor in RATES.items():
        if key in var.name:
            return factor
    return 1.0


def looked_up(self, var):
    return {"dense_1/bias": 0.5, "scale": 0.1}.get(plain_name(var), 1.0)


def in_a_set(self, var):
    return not (var.name in FROZEN or plain_name(var) in FROZEN)


def two_factors(self, var):
    factor = 1.0
    if "bias" in var.name:
        factor = factor * 2.0
    if "dense" in var.name:
        factor = factor * 0.5
    return factor


def three_factors(self, var):
    return two_factors(self, var) * (0.5 if "gamma" in var.name else 1.0)


def depth(self, var):
    found = re.search("layer_(\\d+)", var.name)
    return 1.0 if found is None else 0.9 ** int(found.group(1))


def slots_alone(self, var):
    self.known = dict(getattr(self, "known", {}), **{var.name: var.name + "/m"})
    return True


def wide(self, var):
    return max(int(size) for size in var.shape) < 128


def large(self, var):
    size = 1
    for each in var.shape:
        size *= int(each)
    return size <= 1024


def exactly(self, var):
    return int(var.shape[-1]) != 768


def kernels(self, var):
    return len(var.shape) < 2


def convolutions(self, var):
    return 1.0 if len(var.shape) < 4 else 0.1


def cubes(self, var):
    return len(var.shape) != 3


def volumes(self, var):
    return 0.3 if len(var.shape) > 4 else 1.0


def scalars(self, var):
    return 2.0 if len(var.shape) == 0 else 1.0


def many_rows(self, var):
    return 0.5 if len(var.shape) and int(var.shape[0]) > 1000 else 1.0


def large_matrices(self, var):
    return len(var.shape) == 2 and min(int(size) for size in var.shape) >= 40


def wide_rows(self, var):
    return 1.0 if len(var.shape) == 0 or int(var.shape[-1]) < LIMITS["wide"] else 0.5


def few(self, var):
    return count_of(var) < 5e2


def fan_in(self, var):
    return 1.0 if len(var.shape) != 2 else 1.0 / int(var.shape[0])


def long_vectors(self, var):
    return 1.0 if len(var.shape) != 1 or int(var.shape[0]) < 200 else 0.5


def two_sizes(self, var):
    return 1.0 if count_of(var) < 300 else 0.5 if count_of(var) < 1500 else 0.25


def size_and_name(self, var):
    return "bias" not in var.name and count_of(var) < 1000


def name_of_large(self, var):
    return count_of(var) < 1000 or "kernel" not in var.name


def between(self, var):
    return not 100 <= count_of(var) < 2000


LIMITS = {"wide": 64}


def count_of(var):
    count = 1
    for each in var.shape:
        count *= int(each)
    return count


def dtype_of(var):
    import tensorflow

    return tensorflow.as_dtype(var.dtype).base_dtype


def of_half(self, var):
    return 0.5 if dtype_of(var) == "float16" else 1.0


def of_small_dtypes(self, var):
    return 1.0 if dtype_of(var).size >= 4 else 0.25


def by_dtype(self, var):
    return {"float16": 0.125, "bfloat16": 0.25, "float32": 1.0, "float64": 2.0}[dtype_of(var).name]


def not_double(self, var):
    return dtype_of(var).name.lower() != "float64"


def by_numpy(self, var):
    import numpy

    return bool(numpy.finfo(dtype_of(var).as_numpy_dtype).eps < 1e-10)


def of_floatx(self, var):
    import tensorflow

    return 0.5 if tensorflow.keras.backend.floatx() == "float64" else 1.0


def checked_dtype(self, var):
    if dtype_of(var) not in [dtype_of(var)] or not dtype_of(var).is_floating:
        raise ValueError("no float")
    return 0.5


def index_of(self, var):
    """Returns the index of a variable, in the order in which they are asked for."""
    ids = self.__dict__.setdefault("ids", [])
    ids += [] if id(var) in ids else [id(var)]
    return ids


def is_first(self, var):
    return 0.5 if index_of(self, var).index(id(var)) == 0 else 1.0


def by_index(self, var):
    place = index_of(self, var).index(id(var))
    return 1.0 / (1 + place // 4)


def after_many(self, var):
    place = index_of(self, var).index(id(var))
    return 1.0 if place < 30 else 0.5


# {question: (what becomes of it, texts of the source, error or of what is not verified)}. "condition": a part of
# `specialize` that tests the shape or dtype; "plain": no `specialize`.
ASKED = {
    contains: ("pattern", ['names = everstep.option(("bias",))']),
    in_any_case: ("pattern", ['"(?i)layernorm"']),
    starts: ("pattern", ['"^token_emb"']),
    ends: ("pattern", ['"bias$"']),
    ends_of_two: ("pattern", ['("gamma$", "beta$")']),
    last_part: ("pattern", ['"(^|/)bias$", "(^|/)gamma$", "(^|/)beta$"']),
    first_part: ("pattern", ['"^bert(/|$)"']),
    searched: ("pattern", ['("LayerNorm", "layer_norm", "bias")']),
    compiled: ("pattern", ['"LayerNorm|bias"']),
    found: ("pattern", ['("gamma", "beta")']),
    by_dictionary: ("pattern", ['names_1', '("embeddings",)', '("layer_norm",)']),
    looked_up: ("pattern", ['"^dense_1/bias$"', '"^scale$"']),
    in_a_set: ("pattern", ['"^dense_1/bias$"', '"^layer_norm/beta$"']),
    two_factors: ("pattern", ['names_1 = everstep.option(("^(?=.*(?:bias))(?=.*(?:dense))",))']),
    three_factors: ("refused", ["can match both dense and gamma"]),
    depth: ("refused", ["in a way that no pattern has"]),
    slots_alone: ("plain", ["{"]),
    wide: ("condition", ["is_large=variable.shape != () and max(variable.shape) >= 128"]),
    large: ("condition", ["is_large=bool(np.prod(variable.shape) >= 1025)"]),
    exactly: ("refused", ["changes with the size of the variable"]),
    kernels: ("plain", ["grad.ndim < 2"]),
    convolutions: ("plain", ["grad.ndim > 3"]),
    cubes: ("plain", ["grad.ndim > 3", "grad.ndim > 2"]),
    volumes: ("plain", ["grad.ndim > 4"]),
    scalars: ("plain", ["grad.ndim < 1"]),
    many_rows: ("condition", ["variable.shape[0] >= 1001"]),
    large_matrices: ("condition", ["min(variable.shape) >= 40", "grad.ndim < 2"]),
    wide_rows: ("condition", ["variable.shape[-1] >= 64"]),
    few: ("condition", ["np.prod(variable.shape) >= 500"]),
    fan_in: ("refused", ["the shape of the variable is frozen"]),
    long_vectors: ("refused", ["changes with the size of the variable"]),
    two_sizes: ("refused", ["changes with the size of the variable"]),
    size_and_name: ("refused", ["and with its size"]),
    name_of_large: ("refused", ["asks for the names of large variables alone"]),
    between: ("refused", ["changes with the size of the variable"]),
    of_half: ("condition", ['is_float16=variable.dtype == "float16"']),
    of_small_dtypes: ("condition", ["self.is_float16", "0.25 * grad"]),
    by_dtype: ("condition", ['if variable.dtype == "float64":', "self.is_float16", "0.125 * grad"]),
    not_double: ("condition", ["is_float64"]),
    by_numpy: ("condition", ["is_float64"]),
    of_floatx: ("condition", ["is_float64"]),
    checked_dtype: ("plain", ["0.5 * grad"]),
    is_first: ("refused", ["changes with the index of a variable", "asking.py, line"]),
    by_index: ("refused", ["changes with the index of a variable"]),
    after_many: ("unverified", ["what the index of a variable is used for is not followed (", "asking.py, line"]),
}
QUESTIONS = {each.__name__: each for each in ASKED}


def made(ask, api, module, base):
    """Returns a class of an API: momentum, whose rate or decay depends on an answer.

    Args:
        api: "train", "v2", "get_updates" or "new".
        module: `tf.compat.v1`, TensorFlow, the standalone Keras, or `tf.keras`.
        base: the class of optimizers.
    """
    def change(self, grad, var):
        answer = ask(self, var)
        if answer is True:
            return grad + 0.05 * var
        return grad if answer is False else answer * grad

    return {"train": _train, "v2": _v2, "get_updates": _get_updates, "new": _new}[api](change, module, base)


def _train(change, tf, base):
    class Asking(base):
        def __init__(self, learning_rate=0.02, beta=0.9, name="Asking"):
            super(Asking, self).__init__(False, name)
            self._rate, self._beta = learning_rate, beta

        def _create_slots(self, var_list):
            for var in var_list:
                self._zeros_slot(var, "m", self._name)

        def _apply_dense(self, grad, var):
            m = self.get_slot(var, "m")
            m_t = m.assign(self._beta * m + change(self, grad, var))
            return var.assign_sub(self._rate * m_t)

        _resource_apply_dense = _apply_dense

    return Asking


def _v2(change, tf, base):
    class Asking(base):
        def __init__(self, learning_rate=0.02, beta=0.9, name="Asking", **kwargs):
            super(Asking, self).__init__(name, **kwargs)
            self._set_hyper("learning_rate", learning_rate)
            self.beta = beta

        def _create_slots(self, var_list):
            for var in var_list:
                self.add_slot(var, "m")

        def _resource_apply_dense(self, grad, var, apply_state=None):
            m = self.get_slot(var, "m")
            m_t = m.assign(self.beta * m + change(self, grad, var))
            return var.assign_sub(self._decayed_lr(var.dtype.base_dtype) * m_t)

        def get_config(self):
            return dict(super(Asking, self).get_config(), beta=self.beta)

    return Asking


def _get_updates(change, keras, base):
    K = keras.backend  # noqa: N806

    class Asking(base):
        def __init__(self, lr=0.02, beta=0.9, **kwargs):
            super(Asking, self).__init__(**kwargs)
            self.iterations = K.variable(0, dtype="int64", name="iterations")
            self.learning_rate, self.beta = K.variable(lr, name="lr"), K.variable(beta, name="beta")

        def get_updates(self, loss, params):
            grads = self.get_gradients(loss, params)
            ms = [K.zeros(K.int_shape(p)) for p in params]
            self.weights, self.updates = [self.iterations] + ms, [K.update_add(self.iterations, 1)]
            for p, g, m in zip(params, grads, ms):
                m_t = self.beta * m + change(self, g, p)
                self.updates += [K.update(m, m_t), K.update(p, p - self.learning_rate * m_t)]
            return self.updates

    return Asking


def _new(change, keras, base):
    class Asking(base):
        def __init__(self, learning_rate=0.02, beta=0.9, name="asking", **kwargs):
            if hasattr(keras, "ops"):
                super(Asking, self).__init__(learning_rate=learning_rate, name=name, **kwargs)
            else:
                super(Asking, self).__init__(name=name, **kwargs)
                self._learning_rate = self._build_learning_rate(learning_rate)
            self.beta = beta

        def build(self, variables):
            super(Asking, self).build(variables)
            if not hasattr(self, "ms"):
                add = functools.partial(self.add_variable_from_reference)
                self.ms = [add(each, name="m") if hasattr(keras, "ops") else add(each, "m") for each in variables]

        def update_step(self, gradient, variable, learning_rate=None):
            is_new = hasattr(keras, "ops")
            place = self._get_variable_index(variable) if is_new else self._index_dict[self._var_key(variable)]
            rate = self.learning_rate if learning_rate is None else learning_rate
            m = self.ms[place]
            m.assign(self.beta * m + change(self, gradient, variable))
            variable.assign_sub(rate * m)

    return Asking
