"""Measures steps on dense gradients: of rules with a kernel, with that kernel forbidden, and without one."""
from functools import partial

import everstep
import stacks
from timing import DENSE, Case, DiffGrad

OURS = everstep.optimizers
MOMENTUM = {"learning_rate": 0.01, "momentum": 0.9}


def dense(api):
    """Measures Adam and DiffGrad. Case A is 1 variable of 10M numbers, B 100 of 100k, C 300 of 1k."""
    for case, shapes in DENSE.items():
        yield Case(case, stacks.ADAM, partial(_dense, api, case, shapes))


def _dense(api, case, shapes):
    adam = OURS.Adam()
    makes = {"stock": api.adam, "everstep": api.bind(adam), "DiffGrad": api.bind(DiffGrad())}
    if api.backend == "tensorflow":
        makes["no kernel"] = api.bind(adam, lowering={"kernel": False})
    if api.opt_in_xla and case == "B":
        makes["XLA"] = api.bind(adam, lowering={"kernel": False, "compiled": True})
    runs = {label: api.run(make, shapes) for label, make in makes.items()}
    runs.update((label, run(shapes)) for label, run in api.peers.items())
    return runs


def rules(api):
    """Measures momentum in its default form, and rules without a kernel, beside the API's own class or its Adam."""
    momentum = partial(api.own("MomentumOptimizer") or api.own("SGD"), **MOMENTUM)
    nesterov = {"use_nesterov" if api.target == "tf_train" else "nesterov": True}
    compared = {
        "SGD momentum": (OURS.SGD(**MOMENTUM), momentum),
        "Nesterov momentum": (OURS.SGD(nesterov=True, **MOMENTUM), partial(momentum, **nesterov)),
        "Lion": (OURS.Lion(), api.own("Lion")),
        "AdaBelief": (OURS.AdaBelief(), None),
        "LAMB": (OURS.LAMB(), api.own("Lamb")),
    }
    for rule, (definition, make) in compared.items():
        beside = "the same rule" if make else stacks.ADAM
        for case in "BC" if "momentum" in rule else "B":
            runs = partial(api.compared, make or api.adam, definition, DENSE[case])
            yield Case("{}, {}".format(rule, case), beside, runs)
