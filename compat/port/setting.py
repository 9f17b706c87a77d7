"""The arguments and variables with which an original is run, and the gradients that it gets."""
from __future__ import absolute_import, division, print_function

import sys

import numpy as np

SEED = 5
# Variables as models have them, {name: shape}: what an original does to each is compared.
REAL = (
    ("dense_1/kernel", (160, 40)), ("dense_1/bias", (40,)), ("bert/encoder/layer_1/attention/LayerNorm/gamma", (48,)),
    ("layer_norm/beta", (24,)), ("token_embeddings/embeddings", (1100, 8)), ("conv2d/kernel", (3, 3, 4, 8)),
    ("bert/encoder/layer_11/output/dense/kernel", (130, 130)), ("batch_normalization/gamma", (16,)),
    ("lstm/recurrent_kernel", (12, 48)), ("head/logits/weights", (16, 1)), ("scale", (1,)),
)


class Setting(object):
    """The arguments and the variables of one run of an original. Equal settings give the same graph.

    Attributes:
        arguments: {name: value} of the constructor.
        shapes: of the variables.
        names: of the variables.
        sparse: whether gradients are rows.
        resource: the kind of the variables of `tf.train`; None for what the API's time had.
        check_state: whether to look for state in Python attributes, by building the step twice.
        dtype: the name of the dtype of the variables.
        is_real: whether names are given for several variables.
    """

    def __init__(
        self, arguments, shapes=((4, 3),), names=("theta",), sparse=False, resource=None, check_state=False,
        dtype="float32"
    ):
        self.arguments, self.shapes, self.sparse, self.dtype = arguments, shapes, sparse, dtype
        self.resource, self.check_state = resource, check_state
        self.is_real = len(names) > 1
        self.names = tuple(names) + tuple("other_{}".format(place) for place in range(1, len(shapes)))[len(names) - 1:]

    def of(self, resource):
        """Returns the same setting, with variables of a kind."""
        return Setting(self.arguments, self.shapes, self.names, self.sparse, resource, self.check_state, self.dtype)

    def of_dtype(self, array):
        """Returns an array, or a number, in the dtype of the variables."""
        is_numpys = self.dtype != "bfloat16"
        return np.asarray(array).astype(
            self.dtype if is_numpys else sys.modules["tensorflow"].bfloat16.as_numpy_dtype)

    def start(self):
        random = np.random.RandomState(SEED)
        return [self.of_dtype(random.uniform(0.5, 1.5, shape)) for shape in self.shapes]


def gradients(setting, steps, duplicates=True):
    """Returns a list of gradients for each step: an array for each variable, or (rows, their numbers)."""
    random, batches = np.random.RandomState(SEED + 1), []
    for _ in range(steps):
        batch = []
        for shape in setting.shapes:
            if setting.sparse:
                count = max(2, shape[0] // 2)
                places = random.randint(0, shape[0], count) if duplicates else random.permutation(shape[0])[:count]
                rows = setting.of_dtype(random.normal(size=(count,) + shape[1:]))
                batch.append((rows, places.astype(np.int64)))
            else:
                batch.append(setting.of_dtype(random.normal(size=shape)))
        batches.append(batch)
    return batches
