"""Trains ported definitions on every API that is installed here, against recorded runs of their originals.

    PYTHONPATH=.dev python tests/make/ported_runs.py record FOLDER    # in cells that have the originals
    PYTHONPATH=.dev python tests/make/ported_runs.py follow FOLDER    # in any cell

The originals are BERT's AdamWeightDecayOptimizer (TF 1.15, with bert-tensorflow on the path), RectifiedAdam of
tensorflow-addons 0.19 (TF 2.10), and AdaMod of tests/foreign.py (standalone Keras 2.3.1). Recorded are the weights of
two variables after 100 steps, the state of BERT's after 50 in a checkpoint of tf.train.Saver, and the ports.
"""
from __future__ import absolute_import, division, print_function

import io
import os
import sys

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
STEPS, HALF = 100, 50
SHAPES, NAMES = ((5, 4), (6,)), ("theta", "other_1")


def originals():
    """Yields (name, class, arguments) of the originals that are installed here."""
    import tensorflow as tf

    if tf.__version__.startswith("1."):
        from bert.optimization import AdamWeightDecayOptimizer

        import foreign

        decay = {"learning_rate": 0.01, "weight_decay_rate": 0.05, "exclude_from_weight_decay": ["LayerNorm", "bias"]}
        yield "AdamWeightDecay", AdamWeightDecayOptimizer, decay
        import keras

        yield "AdaMod", foreign.keras_classes(keras)["AdaMod"], {"lr": 0.01}
    else:
        import tensorflow_addons

        yield "RectifiedAdam", tensorflow_addons.optimizers.RectifiedAdam, {"learning_rate": 0.01}


def record(folder):
    from everstep.compat.port.originals import Kind, Original
    from everstep.compat.port.porting import Porting
    from everstep.compat.port.setting import Setting, gradients

    for name, cls, arguments in originals():
        kind = Kind(cls, arguments)
        port = Porting(kind, arguments).port()
        with io.open(os.path.join(folder, name + ".py"), "w", encoding="utf-8") as file:
            file.write(u"{}".format(port.source))
        setting = Setting(dict(port.report.arguments), SHAPES, NAMES)
        original = Original.of(kind, setting)
        original.start_running(port.report.counts_itself)
        batches = gradients(setting, STEPS)
        for number, batch in enumerate(batches, 1):
            original.step(batch)
            if number == HALF:
                half = original.weights()
                if name == "AdamWeightDecay":
                    with original.graph.as_default():
                        path = os.path.join(folder, "bert.ckpt")
                        kind.tf1.train.Saver().save(original._session, path)
        values = {"start_{}".format(place): value for place, value in enumerate(setting.start())}
        values.update(("half_{}".format(place), value) for place, value in enumerate(half))
        values.update(("end_{}".format(place), value) for place, value in enumerate(original.weights()))
        for place in range(len(SHAPES)):
            values["grads_{}".format(place)] = np.stack([batch[place] for batch in batches])
        np.savez(os.path.join(folder, name + ".npz"), **values)
        print("{}: recorded, {}".format(name, port.report.original))


def follow(folder):
    import everstep
    import harness

    sys.path.insert(0, folder)
    for file in sorted(os.listdir(folder)):
        if not file.endswith(".npz") or file == "bert_state.npz":
            continue
        name = file[: -len(".npz")]
        definition = getattr(__import__(name), name)(dense_ok=True)
        run = np.load(os.path.join(folder, file))
        for way in harness.all_ways():
            kinds = {variable: harness.DENSE for variable in NAMES}
            start = {variable: run["start_{}".format(place)] for place, variable in enumerate(NAMES)}
            training = way.run(lambda way=way, rule=definition: rule.bind(way.module), start, kinds)
            for step in range(STEPS):
                training.step({variable: run["grads_{}".format(place)][step] for place, variable in enumerate(NAMES)})
            say(name, way.name, training.weights(), run)
            training.close()
        if name == "AdamWeightDecay":
            carry_on(folder, definition, run, everstep, harness)


def carry_on(folder, definition, run, everstep, harness):
    """Carries on from the checkpoint of BERT's class, on every API."""
    path = os.path.join(folder, "bert_state.npz")
    if os.path.exists(path):
        state = everstep.State.load(path)
    else:
        state = everstep.read_checkpoint(os.path.join(folder, "bert.ckpt"), definition)
        state.save(path)
    kinds = {variable: harness.DENSE for variable in NAMES}
    for way in harness.all_ways():
        if way.target not in ("keras3", "arrays", "update_step", "optimizer_v2"):
            continue
        half = {variable: run["half_{}".format(place)] for place, variable in enumerate(NAMES)}
        training = way.run(lambda way=way: definition.bind(way.module), half, kinds)
        if getattr(training, "graph", None) is not None or not hasattr(training, "optimizer"):
            continue
        everstep.restore(training.optimizer, state, {variable: training.variables[variable] for variable in NAMES})
        for step in range(HALF, STEPS):
            training.step({variable: run["grads_{}".format(place)][step] for place, variable in enumerate(NAMES)})
        say("AdamWeightDecay carried on at {} of {}".format(state.updates, STEPS), way.name, training.weights(), run)
        training.close()


def say(name, way, weights, run):
    distance = 0.0
    for place, variable in enumerate(NAMES):
        expected, start = run["end_{}".format(place)], run["start_{}".format(place)]
        distance = max(distance, float(np.abs(weights[variable] - expected).max() / np.abs(expected - start).max()))
    print("{}: {}: {:.1e}".format(name, way, distance))
    sys.stdout.flush()


if __name__ == "__main__":
    {"record": record, "follow": follow}[sys.argv[1]](os.path.abspath(sys.argv[2]))
