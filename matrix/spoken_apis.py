"""Which modules there are with which versions, and the optimizer API that each speaks: for tables and pages.

`bind` does not read this: it looks at the classes. tests/test_website.py compares both in every cell.
"""
from __future__ import absolute_import, division, print_function

import re
from collections import OrderedDict, namedtuple

# module: as users write it. package: whose version decides. first, end: the module speaks the API from version `first`
# on and before `end`. target: the name of everstep's target. line: what a user writes.
Api = namedtuple("Api", "module package first end target line")

FIT = "model.compile(Adam(1e-3).bind({}), \"mse\")"
GRAPH = "train_op = Adam(1e-3).bind({}).minimize(loss, global_step)"
TORCH = "optimizer = Adam(1e-3).bind({}, params=model.parameters())"
TREES = "transform = Adam(1e-3).bind({})"
ARRAYS = "Adam(1e-3).bind({}).apply_gradients([(grad, array)])"
APIS = tuple(
    Api(module, package, first, end, target, line.format(module))
    for module, package, first, end, target, line in [
        ("tf.train", "tensorflow", "1.4", "2", "tf_train", GRAPH),
        ("tf.compat.v1.train", "tensorflow", "1.13", "3", "tf_train", GRAPH),
        ("tf.keras", "tensorflow", "1.4", "1.14", "get_updates", FIT),
        ("tf.keras", "tensorflow", "1.14", "2.11", "optimizer_v2", FIT),
        ("tf.keras", "tensorflow", "2.11", "2.16", "update_step", FIT),
        ("tf.keras", "tensorflow", "2.16", "3", "keras3", FIT),
        ("tf.keras.optimizers.legacy", "tensorflow", "2.9", "2.16", "optimizer_v2", FIT),
        ("keras", "keras", "2.0.8", "2.4", "get_updates", FIT),
        ("keras", "keras", "2.5", "2.13", "optimizer_v2", FIT),
        ("keras", "keras", "2.13", "2.16", "update_step", FIT),
        ("keras.optimizers.legacy", "keras", "2.13", "2.16", "optimizer_v2", FIT),
        ("keras", "keras", "3", "4", "keras3", FIT),
        ("tf_keras", "tf_keras", "2.16", "3", "update_step", FIT),
        ("tf_keras.optimizers.legacy", "tf_keras", "2.16", "3", "optimizer_v2", FIT),
        ("torch.optim", "torch", "2", "3", "torch_optim", TORCH),
        ("optax", "optax", "0.2", "1", "optax_transform", TREES),
        ("numpy", "numpy", "1.14", "3", "arrays", ARRAYS),
    ]
)

# What the API of a target is, for people.
TITLES = {
    "tf_train": "the optimizers of TensorFlow 1",
    "get_updates": "the first optimizers of Keras (get_updates)",
    "optimizer_v2": "OptimizerV2, the optimizers of tf.keras before 2.11",
    "update_step": "the new-style optimizers of tf.keras (update_step)",
    "keras3": "the optimizers of Keras 3",
    "torch_optim": "an optimizer of PyTorch, without Keras",
    "optax_transform": "a gradient transformation for JAX, without Keras",
    "arrays": "arrays, updated in place",
}
# (first TensorFlow, last one, the Pythons that have a wheel): https://www.tensorflow.org/install/source#linux, and what
# `pip index versions tensorflow --only-binary=:all: --python-version 3.9` lists.
PYTHONS = [
    ("1.4", "1.12", "2.7 3.5 3.6"),
    ("1.13", "2.1", "2.7 3.5 3.6 3.7"),
    ("2.2", "2.3", "3.5 3.6 3.7 3.8"),
    ("2.4", "2.4", "3.6 3.7 3.8"),
    ("2.5", "2.6", "3.6 3.7 3.8 3.9"),
    ("2.7", "2.7", "3.7 3.8 3.9"),
    ("2.8", "2.11", "3.7 3.8 3.9 3.10"),
    ("2.12", "2.13", "3.8 3.9 3.10 3.11"),
    ("2.14", "2.15", "3.9 3.10 3.11"),
    ("2.16", "2.19", "3.9 3.10 3.11 3.12"),
    ("2.20", "2.20", "3.9 3.10 3.11 3.12 3.13"),
    ("2.21", "2.21", "3.10 3.11 3.12 3.13"),
]


def number(version):
    """Returns a version as a tuple of ints: (2, 13, 0) for "2.13.0+cpu"."""
    return tuple(map(int, re.match(r"\d+(\.\d+)*", version).group().split(".")))


def spoken(versions):
    """Returns {module: Api} for installed `{package: version}`."""
    found = OrderedDict()
    for api in APIS:
        version = versions.get(api.package)
        if version and number(api.first) <= number(version) < number(api.end):
            found[api.module] = api
    return found
