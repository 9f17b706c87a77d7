"""Records the results of other libraries' wrappers in tests/golden/incumbents_WHO_VERSION.json.

    python tests/make/incumbents.py [FOLDER]    # where one of them is installed; writes to tests/golden, or FOLDER

The libraries are tensorflow_addons 0.19 on TF 2.10 and 0.23 on TF 2.15, transformers 4.26 on TF 2.10, and keras_adamw
1.38 on Keras 2.3 and TF 1.15. Only the former has "warm-up of the rate".
Cases, start values and gradients come from tests/test_incumbents.py.
"""
from __future__ import absolute_import, division, print_function

import importlib
import io
import json
import os
import platform
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
for folder in (os.path.join(os.path.dirname(TESTS), ".dev"), TESTS):
    sys.path.insert(0, folder)
GOLDEN = sys.argv[1] if sys.argv[1:] else os.path.join(TESTS, "golden")


def of_tf_keras(module, cases, make, role):
    import tensorflow as tf

    optimizer = make(module, tf)
    variables = {name: tf.Variable(value, name=name) for name, value in cases.START.items()}
    for batch in cases.batches():
        optimizer.apply_gradients([(tf.constant(batch[name]), variables[name]) for name in cases.START])
    weights = {name: variable.numpy().tolist() for name, variable in variables.items()}
    if role is None:
        return {"weights": weights}
    slots = {name: optimizer.get_slot(variable, role).numpy().tolist() for name, variable in variables.items()}
    return {"weights": weights, "slots": slots}


def of_adamw(module, cases, make, role):
    """Runs keras_adamw's updates in the intended order: in one session.run, its counters race with their readers."""
    import keras
    import tensorflow as tf

    tf.enable_resource_variables()  # with ref variables it reads t_cur before or after incrementing it
    K = keras.backend
    K.clear_session()
    variables = [K.variable(value, name=name) for name, value in cases.START.items()]
    holders = [K.placeholder(value.shape) for value in cases.START.values()]
    optimizer = make(module)
    updates = optimizer.get_updates(sum(K.sum(v * holder) for v, holder in zip(variables, holders)), variables)
    variable_updates = 3 * len(variables)  # m, v and the variable; before them stands the update of the counter
    session = K.get_session()
    for batch in cases.batches():
        fed = dict(zip(holders, batch.values()))
        session.run(updates[1 : 1 + variable_updates], fed)
        session.run([updates[0], updates[-1]], fed)  # the last update, of eta_t or t_cur, waits for t_cur
    return {"weights": {name: K.get_value(v).tolist() for name, v in zip(cases.START, variables)}}


def main():
    import numpy
    import tensorflow

    import test_incumbents as cases

    for who in filter(_is_here, cases.LIBRARIES):
        write = of_adamw if who == cases.ADAMW else of_tf_keras
        module = importlib.import_module(who)
        chosen = {name: case for name, case in cases.CASES.items() if case[0] == who}
        left = {name: write(module, cases, make, role) for name, (_, make, _, role) in sorted(chosen.items())}
        versions = {
            "python": platform.python_version(),
            "numpy": numpy.__version__,
            "tensorflow": tensorflow.__version__,
            who: module.__version__,
        }
        text = json.dumps({"written by": versions, "cases": left}, indent=1, sort_keys=True)
        path = os.path.join(GOLDEN, "incumbents_{}_{}.json".format(who, module.__version__))
        with io.open(path, "w", encoding="ascii", newline="\n") as file:
            file.write(u"{}\n".format("\n".join(line.rstrip() for line in text.splitlines())))


def _is_here(name):
    try:
        importlib.import_module(name)
        return True
    except ImportError:
        return False


if __name__ == "__main__":
    main()
