"""Ports every optimizer that is installed here, and adds the results to a file; or writes the table of all results.

    PYTHONPATH=.dev python tests/make/ports.py tests/golden/ports.json            # in each cell, with more packages
    PYTHONPATH=.dev python tests/make/ports.py tests/golden/ports.json --table    # writes docs/records/port_table.md
    ... --only NAME     # one optimizer, and prints its source

Put packages such as tensorflow-addons 0.19, keras-adamw, bert-tensorflow and keras-radam on the path to try them too.
Stock optimizers are ported as if they were foreign.
"""
from __future__ import absolute_import, division, print_function

import importlib
import io
import json
import os
import re
import sys
import textwrap
import time
import warnings

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = os.path.join(ROOT, "docs", "records", "port_table.md")
RATE = {"learning_rate": 0.01}
# {module: name of its package}, where they differ in more than underscores.
DISTRIBUTIONS = {
    "madgrad": "tf-madgrad", "official": "tf-models-official", "tf_adan": "adan-tensorflow",
    "SVRGoptimizerKeras": "svrg-optimizer-keras",
}


def installed(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def is_old(keras):
    """Returns whether Keras is the standalone one with `get_updates`."""
    return tuple(map(int, keras.__version__.split(".")[:2])) < (2, 4)


def classes_of(module, names, origin):
    """Yields (origin, name, class, arguments) of the names that a module has. names: {name: arguments}."""
    for name, arguments in names.items():
        if hasattr(module, name):
            yield origin, name, getattr(module, name), arguments


def of_train(tf, tf1):
    train = {
        "AdadeltaOptimizer": {"learning_rate": 1.0}, "AdagradOptimizer": {"learning_rate": 0.1},
        "AdamOptimizer": RATE, "FtrlOptimizer": {"learning_rate": 0.1, "l1_regularization_strength": 0.01},
        "GradientDescentOptimizer": RATE, "MomentumOptimizer": {"learning_rate": 0.01, "momentum": 0.9},
        "ProximalAdagradOptimizer": {"learning_rate": 0.1, "l1_regularization_strength": 0.01},
        "ProximalGradientDescentOptimizer": {"learning_rate": 0.1, "l2_regularization_strength": 0.01},
        "RMSPropOptimizer": {"learning_rate": 0.01, "momentum": 0.9},
    }
    for case in classes_of(tf1.train, train, "tf.train"):
        yield case

    def adagrad_da(learning_rate):
        step = tf1.train.get_or_create_global_step()
        return tf1.train.AdagradDAOptimizer(learning_rate, step, l1_regularization_strength=0.01)

    yield "tf.train", "AdagradDAOptimizer", adagrad_da, {"learning_rate": 0.1}
    contrib = {
        "AdaMaxOptimizer": RATE, "AdamGSOptimizer": RATE, "AdamWOptimizer": dict(RATE, weight_decay=0.01),
        "AddSignOptimizer": RATE, "GGTOptimizer": RATE, "LARSOptimizer": RATE, "LazyAdamGSOptimizer": RATE,
        "LazyAdamOptimizer": RATE, "MomentumWOptimizer": dict(RATE, weight_decay=0.01, momentum=0.9),
        "NadamOptimizer": RATE, "PowerSignOptimizer": RATE, "RegAdagradOptimizer": {"learning_rate": 0.1},
        "ShampooOptimizer": {}, "WeightDecay": {},
    }
    if tf.__version__.startswith("1."):
        contrib_opt = installed("tensorflow.contrib.opt")
        for case in classes_of(contrib_opt, contrib, "tf.contrib.opt"):
            yield case
    import foreign

    for name, cls in sorted(foreign.train_classes(tf1).items()):
        yield "tests/foreign.py", name, cls, {}


def of_packages(tf):
    bert = installed("bert.optimization")
    if bert and tf.__version__.startswith("1."):
        decay = {"learning_rate": 0.01, "weight_decay_rate": 0.01, "exclude_from_weight_decay": ["LayerNorm", "bias"]}
        yield "bert-tensorflow", "AdamWeightDecayOptimizer", bert.AdamWeightDecayOptimizer, decay
    tfa = installed("tensorflow_addons") if tf.__version__ == "2.10.1" else None
    if tfa:
        decay = {"learning_rate": 0.01, "weight_decay": 0.01}
        names = {
            "RectifiedAdam": RATE, "LAMB": RATE, "AdaBelief": RATE, "NovoGrad": RATE, "Yogi": RATE, "COCOB": {},
            "AdamW": decay, "SGDW": dict(decay, momentum=0.9), "LazyAdam": RATE,
            "ProximalAdagrad": {"learning_rate": 0.1, "l1_regularization_strength": 0.01},
            "ConditionalGradient": {"learning_rate": 0.1, "lambda_": 10.0},
        }
        for case in classes_of(tfa.optimizers, names, "tensorflow-addons"):
            yield case
        warm = dict(decay, total_steps=60, warmup_proportion=0.2, min_lr=1e-3)
        yield "tensorflow-addons", "RectifiedAdam(warmup)", tfa.optimizers.RectifiedAdam, warm
        nuclear = {"learning_rate": 0.1, "lambda_": 10.0, "ord": "nuclear"}
        yield "tensorflow-addons", "ConditionalGradient(nuclear)", tfa.optimizers.ConditionalGradient, nuclear
        for name in ("Lookahead", "MovingAverage", "SWA"):
            wrapper = getattr(tfa.optimizers, name)
            yield "tensorflow-addons", name, lambda wrapper=wrapper: wrapper(tf.keras.optimizers.Adam(0.01)), {}
    named = {
        "keras_radam": {"RAdam": {"learning_rate": 0.01}}, "keras_adabound": {"AdaBound": {"lr": 0.01}},
        "keras_bert.optimizers": {"AdamWarmup": {"decay_steps": 100, "warmup_steps": 20, "lr": 0.01}},
        "keras_adamw.optimizers_v2": {"AdamW": {"lr": 0.01}, "SGDW": {"lr": 0.01}, "NadamW": {"lr": 0.01}},
        "keras_adamw.optimizers": {"AdamW": {"lr": 0.01}, "SGDW": {"lr": 0.01}, "NadamW": {"lr": 0.01}},
        "adabelief_tf": {"AdaBeliefOptimizer": RATE}, "tf_adan.adan": {"Adan": RATE}, "madgrad": {"MadGrad": RATE},
        "keras_gradient_accumulation.optimizer_v1": {"AdamAccumulated": {"accumulation_steps": 4, "lr": 0.01}},
        "keras_rnadam.optimizers": {"RNAdam": {"lr": 0.01}},
        "SVRGoptimizerKeras.optimizer": {"SVRG": {"lr": 0.01}},
        "tensorflow_recommenders.experimental.optimizers.clippy_adagrad": {"ClippyAdagrad": {"learning_rate": 0.1}},
        "official.modeling.optimization.lars": {"LARS": dict(RATE, weight_decay_rate=0.01)},
        "official.modeling.optimization.lamb": {"LAMB": dict(RATE, weight_decay_rate=0.01)},
        "tf_transformers.optimization.adam_weighted": {"AdamWeightDecay": dict(RATE, weight_decay_rate=0.01)},
    }
    wrappers = (
        ("keras_lookahead.optimizers", "Lookahead", lambda wrapper, inner: wrapper(inner, sync_period=4)),
        ("keras_gradient_accumulation.optimizers", "GradientAccumulation", lambda wrapper, inner: wrapper(inner, 4)),
    )
    keras = installed("keras") if tf.__version__.startswith("1.") else None
    for package, name, wrap in wrappers if keras is not None and is_old(keras) else ():
        module = installed(package)
        if module is not None:
            make = lambda module=module, name=name, wrap=wrap: wrap(  # noqa: E731
                getattr(module, name), keras.optimizers.Adam(lr=0.01))
            yield package.split(".")[0].replace("_", "-"), name, make, {}
    for package, names in sorted(named.items()):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                module = installed(package)
        except Exception as error:  # of another generation than this TensorFlow
            print("{}: {}".format(package, error), file=sys.stderr)
            continue
        origin = DISTRIBUTIONS.get(package.split(".")[0], package.split(".")[0].replace("_", "-"))
        for case in classes_of(module, names, origin):
            yield case
            if case[0] == "keras-adamw":
                cosine = {"lr": 0.01, "total_iterations": 25, "use_cosine_annealing": True, "init_verbose": False}
                yield case[0], case[1] + "(cosine)", case[2], cosine


def of_factories(tf):
    """Yields classes that the factories of bert4keras make, and other packages whose rules know names."""
    if tf.__version__ != "1.15.5":
        return
    names = ["LayerNorm", "Norm", "bias"]
    bert4keras = installed("bert4keras.optimizers")
    if bert4keras:
        adam, keras_adam = bert4keras.Adam, installed("keras").optimizers.Adam
        is_tf = os.environ.get("TF_KERAS") == "1"  # bert4keras is for one of both
        for base, ending, inner in ((adam, "_v2", "tf.keras"),) if is_tf else ((keras_adam, "", "keras"),):
            for name, given in (
                ("weight_decay", {"weight_decay_rate": 0.05, "exclude_from_weight_decay": names}),
                ("layer_adaptation", {"exclude_from_layer_adaptation": names}),
                ("piecewise_linear_lr", {"lr_schedule": {10: 1.0, 50: 0.1}}),
                ("gradient_accumulation", {"grad_accum_steps": 3}),
                ("lookahead", {"steps_per_slow_update": 4, "slow_step_size": 0.5}),
                ("lazy_optimization", {"include_in_lazy_optimization": ["embedding"]}),
                ("exponential_moving_average", {"ema_momentum": 0.9}),
                ("parameter_wise_lr", {"paramwise_lr_schedule": {"bias": 2.0, "gamma": 0.5}}),
            ):
                factory = getattr(bert4keras, "extend_with_" + name + ending)
                yield "bert4keras", "{}({})".format(name, inner), factory(base), dict(RATE, **given)
        for name in ("Adam", "LionV2", "AdaFactorV2") if is_tf else ("AdaFactorV1",):
            yield "bert4keras", name, getattr(bert4keras, name), RATE
    multiplier = installed("keras_lr_multiplier")
    if multiplier:
        adam = installed("keras").optimizers.Adam
        yield ("keras-lr-multiplier", "LRMultiplier",
               lambda: multiplier.LRMultiplier(adam(lr=0.01), {"dense_1": 0.5, "bert": 0.1}), {})
    expectigrad = installed("expectigrad.tensorflow1")
    if expectigrad:
        yield "expectigrad", "ExpectigradOptimizer", expectigrad.ExpectigradOptimizer, RATE


def of_asking(tf, tf1):
    """Yields the classes of tests/asking.py on the APIs that are installed."""
    import asking

    keras = installed("keras")
    bases = {"train": (tf1, tf1.train.Optimizer)} if tf.__version__.startswith(("1.", "2.10")) else {}
    adam = tf.keras.optimizers.Adam
    if hasattr(adam, "_create_hypers"):
        bases["v2"] = tf, [each for each in adam.__mro__ if "_create_hypers" in vars(each)][-1]
    if keras is not None and is_old(keras) and tf.__version__.startswith("1."):
        bases["get_updates"] = keras, keras.optimizers.Optimizer
    if hasattr(adam, "update_step"):
        bases["new"] = tf.keras, tf.keras.optimizers.Optimizer
    for api, (module, base) in sorted(bases.items()):
        for name, ask in sorted(asking.QUESTIONS.items()):
            yield "tests/asking.py", "{} ({})".format(name, api), asking.made(ask, api, module, base), {}


# Variables that no port was compared on, {name: shape}.
BESIDE = (
    ("model/dense_2/kernel", (200, 33)), ("model/dense_2/bias", (33,)), ("encoder/LayerNorm/beta", (64,)),
    ("word_embeddings", (1500, 6)), ("stem/conv1/kernel", (5, 5, 3, 7)), ("pooler/dense_1/kernel", (140, 140)),
    ("gamma", (9,)), ("bert/layer_2/attention/query/kernel", (64, 64)), ("output_bias", (10,)),
)
BESIDE_STEPS = 30


def beside(kind, port):
    """Returns {API: distance} of a definition on each API from the original, on variables of real names."""
    from everstep.compat.port.originals import Original
    from everstep.compat.port.setting import Setting, gradients
    from everstep.testing import all_ways

    notes = " ".join(port.report.notes)
    without = [rank for rank in (1, 3) if "variables of {} dimension".format(rank) in notes]
    names, shapes = zip(*[each for each in BESIDE if min(len(each[1]), 3) not in without])
    setting, found = Setting(dict(port.report.arguments), shapes, names), {}
    original = Original.of(kind, setting)
    original.start_running(port.report.counts_itself)
    batches = gradients(setting, BESIDE_STEPS)
    for batch in batches:
        original.step(batch)
    start, ends = setting.start(), original.weights()
    original.close()
    for way in all_ways():
        if way.target in found or " ref" in way.name:
            continue
        if way.target == "keras3":  # whose names of variables have no slash
            continue
        run = way.run(lambda way=way: port.definition.bind(way.module), dict(zip(names, start)),
                      dict.fromkeys(names, "dense"))
        for batch in batches:
            run.step(dict(zip(names, batch)))
        mine = run.weights()
        run.close()
        found[way.target] = max(_far(mine[name], end, before) for name, end, before in zip(names, ends, start))
    return found


def _far(mine, theirs, before):
    size = lambda array: float(np.sqrt(np.mean(np.square(array.astype(np.float64)))))  # noqa: E731
    return size(mine - theirs) / max(size(theirs - before), 0.01 * size(theirs), 1e-30)


def of_keras(tf):
    """Yields the optimizers of every Keras that is installed: classes, by generation."""
    rate = {
        "Adam": RATE, "SGD": dict(RATE, momentum=0.9), "RMSprop": RATE, "Adagrad": {"learning_rate": 0.1},
        "Adadelta": {"learning_rate": 1.0}, "Adamax": RATE, "Nadam": RATE,
        "Ftrl": {"learning_rate": 0.1, "l1_regularization_strength": 0.01}, "AdamW": RATE, "Lion": RATE, "Lamb": RATE,
        "Adafactor": RATE, "Muon": RATE,
    }
    import foreign

    module = tf.keras.optimizers
    for case in classes_of(module, rate, "tf.keras"):
        yield case
    legacy = tf.keras.optimizers if hasattr(tf.keras.optimizers.Adam, "_resource_apply_dense") else None
    legacy = legacy or getattr(tf.keras.optimizers, "legacy", None)
    if legacy is not None and hasattr(getattr(legacy, "Adam", None), "_resource_apply_dense"):
        if legacy is not tf.keras.optimizers:
            for case in classes_of(legacy, rate, "tf.keras legacy"):
                yield case
        base = [each for each in legacy.Adam.__mro__ if "_create_hypers" in vars(each)][-1]
        for make in (foreign.v2_classes, foreign.v2_traps):
            for name, cls in sorted(make(tf, base).items()):
                yield "tests/foreign.py", name, cls, {}
    keras = installed("keras")
    if keras is not None and is_old(keras):
        for case in classes_of(keras.optimizers, rate, "keras"):
            yield case
        for name, cls in sorted(foreign.keras_classes(keras).items()):
            yield "tests/foreign.py", name, cls, {}
    if hasattr(tf.keras.optimizers.Adam, "update_step"):
        for name, cls in sorted(foreign.new_classes(tf, tf.keras).items()):
            yield "tests/foreign.py", name, cls, {}


def tried(origin, name, factory, arguments, show):
    """Ports one. Returns a row of the table."""
    from everstep.compat.port.originals import Kind
    from everstep.compat.port.wrapping import port_of
    from everstep.errors import EverstepError, PortSparseError

    started = time.time()
    row = {"origin": origin, "name": name, "result": "verified", "why": "", "lines": 0, "dense": None, "rows": None}
    try:
        kind = Kind(factory, arguments)
        row["target"] = kind.target
        try:
            port = port_of(kind, arguments)
        except PortSparseError as error:
            row["why"] = str(error)
            port = port_of(kind, arguments, "exact")
        report = port.report
        row.update(lines=len([line for line in body_of(port.source) if line.strip()]), dense=report.dense)
        row["sparse"] = report.sparse
        row["rows"] = max([each.distance for each in report.comparisons if each.what.startswith("sparse")] or [None])
        row["notes"], row["unverified"] = report.notes, list(report.unverified)
        row["seconds"] = round(time.time() - started, 1)
        if row["unverified"]:
            row.update(result="not verified", why="; ".join(row["unverified"]))
        else:
            row["beside"] = beside(kind, port)
        if show:
            print(port.source)
    except EverstepError as error:
        row.update(result="caught" if "computes something else" in str(error) else "refused", why=str(error))
    except Exception as error:
        row.update(result="error", why="{}: {}".format(type(error).__name__, error))
    row.setdefault("seconds", round(time.time() - started, 1))
    return row


def body_of(source):
    """Returns the lines of a source from the class on, without its docstring and comments."""
    lines = [line for line in source[source.find("\nclass ") + 1 :].splitlines() if not line.startswith("# ")]
    if len(lines) > 1 and '"""' in lines[1]:
        end = next(place for place in range(2, len(lines)) if lines[place].strip() == '"""')
        del lines[1 : end + 1]
    return lines


def run(path, only):
    import tensorflow as tf

    sys.path.insert(0, os.path.join(ROOT, "tests"))
    tf1 = getattr(getattr(tf, "compat", None), "v1", tf)
    rows = load(path)
    version = "TF {}".format(tf.__version__)
    keras = installed("keras")
    if keras is not None and is_old(keras):
        version += ", Keras {}".format(keras.__version__)
    for source in (of_packages(tf), of_factories(tf), of_keras(tf), of_train(tf, tf1), of_asking(tf, tf1)):
        for origin, name, factory, arguments in source:
            if only and name not in only:
                continue
            if origin == "tf.train" and not tf.__version__.startswith(("1.", "2.10")):
                continue
            if origin == "tests/foreign.py" and not only and tf.__version__ not in ("1.15.5", "2.10.1"):
                if not hasattr(factory, "update_step"):
                    continue
            row = dict(tried(origin, name, factory, arguments, bool(only)), version=version)
            print("{origin} {name}: {result} {why} {dense} {rows} {seconds} s".format(**row))
            sys.stdout.flush()
            rows["{} | {} | {}".format(version, origin, name)] = row
            save(path, rows)


def load(path):
    if not os.path.exists(path):
        return {}
    with io.open(path, encoding="utf-8") as file:
        return json.load(file)


def save(path, rows):
    with io.open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(u"{}\n".format(json.dumps(rows, indent=1, sort_keys=True)))


def table(rows):
    """Returns the text of the page."""
    counts = {}
    for row in rows.values():
        counts[row["result"]] = counts.get(row["result"], 0) + 1
    modes = [row for row in rows.values() if row["result"] == "verified" and row.get("sparse") not in ("other", "none")]
    besides = [row["beside"] for row in rows.values() if row.get("beside")]
    verified = [row for row in rows.values() if row["result"] == "verified"]
    summary = (
        "What `everstep.port` made of {} optimizers: {} verified; {} refused, of which {} are traps; {} read wrongly, "
        "which the comparison found, so that they are errors too; {} not verified, because they ask for something that "
        "is not followed. None that was returned differs. {} of the verified ones take sparse gradients; {} of these "
        "are the same in one of the modes of `sparse`. {} were trained once more beside their originals, for {} steps "
        "on variables of other names and of up to 1,500 rows, on every API that is installed with the original: at "
        "most {:.0e} apart.".format(
            len(rows), len(verified), counts.get("refused", 0),
            len([row for row in rows.values() if row["result"] == "refused" and row["origin"].startswith("tests")]),
            counts.get("caught", 0), counts.get("not verified", 0),
            len([row for row in verified if row["sparse"] != "none"]), len(modes), len(besides),
            BESIDE_STEPS, max([max(each.values()) for each in besides] or [0.0])))
    explained = (
        "Distances are relative to how far the weights moved in 100 steps, or 20 for other shapes, hypers and options: "
        "the largest of all comparisons. Lines are those of the class without its docstring. Seconds are of a busy "
        "machine of two cores. Stock optimizers were ported as if they were foreign. The optimizers of "
        "tests/foreign.py and tests/asking.py are written as authors write them; some are traps. "
        "[port.md](../port.md) says how to port yours."
    )
    lines = ["# Optimizers that were ported", ""]
    for text in (summary, explained):
        lines += textwrap.wrap(text, 118, break_on_hyphens=False) + [""]
    origins = sorted({row["origin"] for row in rows.values()}, key=lambda name: (name.startswith("tests"), name))
    for origin in origins:
        lines += ["## {}".format(origin), "", "| optimizer | API | on | lines | dense | sparse | beside | seconds |",
                  "| --- | --- | --- | ---: | ---: | --- | --- | ---: |"]
        refused = []
        for _key, row in sorted(rows.items()):
            if row["origin"] != origin:
                continue
            target = row.get("target") or ""
            if row["result"] != "verified":
                why = short(row["why"])
                refused.append("* {} ({}) is {}: {}".format(row["name"], row["version"], row["result"], why))
                continue
            sparse = {"none": "takes none", "other": "other than any mode"}.get(row["sparse"])
            sparse = sparse or "{}, {:.0e}".format(row["sparse"], row["rows"])
            beside = row.get("beside") or {}
            apart = "{:.0e} on {} APIs".format(max(beside.values()), len(beside)) if beside else ""
            lines.append("| {} | `{}` | {} | {} | {:.0e} | {} | {} | {:.0f} |".format(
                row["name"], target, row["version"], row["lines"], row["dense"], sparse, apart, row["seconds"]))
        if lines[-1].startswith("| ---"):
            del lines[-2:]
        lines += ([""] if lines[-1] else []) + refused + ([""] if refused else [])
    return "\n".join(lines).rstrip() + "\n"


def short(text):
    text = re.sub(r"/\S*/(\w+\.py)", r"\1", text).replace("|", "/").replace("`", "'").splitlines()[0]
    return text if len(text) < 260 else text[:257] + "..."


def main():
    path, rest = sys.argv[1], sys.argv[2:]
    if rest[:1] == ["--table"]:
        with io.open(PAGE, "w", encoding="utf-8", newline="\n") as file:
            file.write(u"{}".format(table(load(path))))
    else:
        warnings.simplefilter("ignore")
        run(path, rest[1:] if rest[:1] == ["--only"] else [])


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
