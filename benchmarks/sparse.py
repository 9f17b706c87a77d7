"""Measures steps on rows of embedding tables of 64 columns. Look-ups follow Zipf's law and differ at each step."""
from functools import partial

import everstep
import stacks
from peers import installed
from timing import Case

TABLES, COLUMNS, LOOK_UPS = (10000, 100000, 1000000), 64, 1024
LARGE = 5000000  # steps on all rows would take seconds and gigabytes
ADAM = everstep.optimizers.Adam
MODES = ("exact", "rows", "catch_up")
LAZY_ADAM = {  # (module, class) by target
    "tf_train": ("tensorflow.contrib.opt", "LazyAdamOptimizer"),
    "optimizer_v2": ("tensorflow_addons.optimizers", "LazyAdam"),
}
OURS = everstep.optimizers
FORMS = {  # every rule with a closed form for missed steps, and what keeps it
    "Adam": OURS.Adam(),
    "Adam, amsgrad": OURS.Adam(amsgrad=True),
    "AdamW": OURS.AdamW(),
    "Adamax": OURS.Adamax(),
    "Nadam": OURS.Nadam(),
    "NadamW": OURS.NadamW(),
    "QHAdam": OURS.QHAdam(),
    "RAdam": OURS.RAdam(),
    "DiffGrad": OURS.DiffGrad(),
    "Yogi": OURS.Yogi(),
    "Adan": OURS.Adan(beta_1=0.9),
    "SGD, momentum": OURS.SGD(momentum=0.9),
    "SGDW, momentum": OURS.SGDW(momentum=0.9),
    "Lion": OURS.Lion(),
    "Tiger": OURS.Tiger(),
    "RMSprop": OURS.RMSprop(),
    "Ftrl": OURS.Ftrl(),
    "Adadelta": OURS.Adadelta(),
    "AdagradDecay": OURS.AdagradDecay(),
    "AddSign": OURS.AddSign(),
    "PowerSign": OURS.PowerSign(),
    "ProximalAdagrad": OURS.ProximalAdagrad(),
    "ScheduleFreeAdamW": OURS.ScheduleFreeAdamW(),
    "decoupled_weight_decay(Adam)": everstep.decoupled_weight_decay(OURS.Adam(), 0.01),
    "moving_average(Adam)": everstep.moving_average(OURS.Adam()),
    "lookahead(Adam)": everstep.lookahead(OURS.Adam()),
}


def sparse(api):
    if api.backend == "tensorflow":
        for rows in TABLES:
            yield Case(str(rows), stacks.ADAM, partial(_sparse, api, rows, LOOK_UPS))
        yield Case("1000000, ten times the look-ups", stacks.ADAM, partial(_sparse, api, 1000000, 10 * LOOK_UPS))
        yield Case(str(LARGE), "", partial(_sparse, api, LARGE, LOOK_UPS, ("rows", "catch_up")))


def _sparse(api, rows, look_ups, modes=MODES):
    return _compared(api, ADAM(epsilon=api.epsilon), rows, look_ups, modes)


def _compared(api, definition, rows, look_ups, modes=MODES):
    makes = {"stock": api.adam} if "exact" in modes else {}
    makes.update((mode, api.bind(definition.replace(sparse=mode))) for mode in modes)
    lazy_adam = installed(*LAZY_ADAM.get(api.target, (None, None)))
    if lazy_adam:
        makes["LazyAdam"] = lazy_adam
    return {label: api.run(make, [(rows, COLUMNS)], look_ups) for label, make in makes.items()}


def forms(api):
    """Measures every rule with a closed form, beside the API's own Adam and LazyAdam."""
    if api.backend == "tensorflow":
        for name, definition in FORMS.items():
            yield Case(name, stacks.ADAM, partial(_compared, api, definition, TABLES[1], LOOK_UPS))


def flat(api):
    """Measures the same mode on larger tables."""
    if api.backend == "tensorflow":
        for mode in ("rows", "catch_up"):
            yield Case(mode, "10,000 rows", partial(_flat, api, mode))


def _flat(api, mode):
    make = api.bind(ADAM(sparse=mode))
    return {str(rows): api.run(make, [(rows, COLUMNS)], LOOK_UPS) for rows in TABLES + (LARGE,)}


def lazy(api):
    """Measures stock optimizers of tf.train that update only rows with a gradient, and ours, on 100,000 rows."""
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
    return {label: api.run(make, [(TABLES[1], COLUMNS)], LOOK_UPS) for label, make in makes.items()}
