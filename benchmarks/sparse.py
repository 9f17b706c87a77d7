"""Steps on rows of embedding tables of 64 columns: 1,024 Zipf-distributed look-ups, different at each step."""
from functools import partial

import everstep
import stacks
from peers import installed
from timing import Case

TABLES, COLUMNS = (10000, 100000, 1000000), 64
ADAM = everstep.optimizers.Adam
MODES = ("exact", "rows", "catch_up")
LAZY_ADAM = {  # (module, class) by target
    "tf_train": ("tensorflow.contrib.opt", "LazyAdamOptimizer"),
    "optimizer_v2": ("tensorflow_addons.optimizers", "LazyAdam"),
}


def sparse(api):
    if api.backend == "tensorflow":
        for rows in TABLES:
            yield Case(str(rows), stacks.ADAM, partial(_sparse, api, rows))


def _sparse(api, rows):
    makes = {"stock": api.adam}
    makes.update((mode, api.bind(ADAM(sparse=mode))) for mode in MODES)
    lazy_adam = installed(*LAZY_ADAM.get(api.target, (None, None)))
    if lazy_adam:
        makes["LazyAdam"] = lazy_adam
    return {label: api.run(make, [(rows, COLUMNS)], True) for label, make in makes.items()}


def flat(api):
    """The same mode on larger tables."""
    if api.backend == "tensorflow":
        for mode in ("rows", "catch_up"):
            yield Case(mode, "10,000 rows", partial(_flat, api, mode))


def _flat(api, mode):
    return {str(rows): api.run(api.bind(ADAM(sparse=mode)), [(rows, COLUMNS)], True) for rows in TABLES}


def lazy(api):
    """Stock optimizers of tf.train that update only rows with a gradient, and ours in their place, on 100,000 rows."""
    if api.target != "tf_train":
        return
    train = api.optimizers
    makes = {
        "Adadelta": partial(train.AdadeltaOptimizer, 0.01),
        "Ftrl": partial(train.FtrlOptimizer, 0.01),
        "Momentum": partial(train.MomentumOptimizer, 0.01, 0.9),
        "RMSProp": partial(train.RMSPropOptimizer, 0.01, momentum=0.9),
    }
    for name, make in makes.items():
        yield Case(name, "the same rule", partial(_lazy, api, make))


def _lazy(api, make):
    import tensorflow as tf

    with tf.Graph().as_default():
        same = everstep.from_native(make())
    makes = {"stock": make}
    makes.update((mode, api.bind(same.replace(sparse=mode))) for mode in ("rows", "exact"))
    return {label: api.run(make, [(TABLES[1], COLUMNS)], True) for label, make in makes.items()}
