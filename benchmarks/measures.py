"""Every measure, and its targets: `MEASURES` is the one place that lists them. It needs no framework."""
import collections
import fnmatch
import importlib

# base: the label that ratios are relative to. unit: "ms" or "s" to show CPU time, "" to show ratios. across: what the
# columns of the table are, "case" or "label". extra: further columns, "first" (seconds of the first step) or "nodes"
# (graph nodes for each variable).
Measure = collections.namedtuple("Measure", "module title targets base unit across extra")
# At most `limit`, for the label of results that match the patterns of environment, API and case: relative to the base,
# or to the label `of`; with of="seconds", in seconds.
Target = collections.namedtuple("Target", "environment api case label limit of")


def target(environment, api, case, limit, label="everstep", of=None):
    return Target(environment, api, case, label, limit, of)


def measure(module, title, targets=(), base="stock", unit="", across="label", extra=()):
    return Measure(module, title, tuple(targets), base, unit, across, extra)


TF_1, TF_2, NEW = "*-tf1.15-*", "*-tf2.1[05]", ("update_step", "keras3")
WITHOUT_KERNEL = "[!SN]*, B"  # Lion, AdaBelief, LAMB

MEASURES = collections.OrderedDict(
    wrappers=measure(
        "wrappers",
        "Adam inside wrappers on 10 variables of 1M, relative to the best stock parts for the same.",
        [target(TF_1, "tf_train*", "BERT's own class", 0.4), target(TF_1, "tf_train*", "*", 1.1)]
        + [target(TF_2, api, "*", 1.05) for api in ("optimizer_v2", "update_step")]
        + [target("*", "keras3", "*", 0.4)],
    ),
    rules=measure(
        "dense",
        "Momentum and rules without a kernel, relative to the API's own class, or else to its Adam. "
        "B is 100 variables of 100k, C 300 of 1k.",
        [target(TF_1, "tf_train", "SGD momentum, B", 1.6), target(TF_1, "tf_train", "Nesterov momentum, B", 1.8)]
        + [target(TF_1, "tf_train*", WITHOUT_KERNEL, 1.3), target("*", "keras3, torch", WITHOUT_KERNEL, 1.0)]
        + [target("*", "keras3, torch", "SGD momentum, [BC]", 1.0)],
    ),
    eager=measure(
        "eager",
        "Eager steps on variables of 1k, relative to the API's own Adam.",
        [target("*", "optimizer_v2", "100 variables", 0.5), target("*", "optimizer_v2", "10 variables", 0.7)],
    ),
    accumulate=measure(
        "accumulate",
        "Steps of `accumulate(Adam(), 4)` on 10 variables of 1M, relative to a plain step of the same rule.",
        [target("*", "*", "pending*", 0.35), target("*", "*", "mean of four", 0.7)],
        base="plain",
    ),
    first_step=measure(
        "first_step",
        "First steps in CPU seconds, with building, tracing and compiling, and graph nodes for each variable.",
        [target("*", "*", "*, 300 variables", 1.5, of="seconds"), target("*", "*", "accumulate*", 1.5, of="plain")],
        unit="s",
        extra=("nodes",),
    ),
    models=measure(
        "models",
        "Whole training steps, forward and backward included: an LSTM with Adam, a transformer with BERT's stack.",
    ),
    dense=measure(
        "dense",
        "Adam and DiffGrad, relative to the API's own Adam. A is 1 variable of 10M, B 100 of 100k, C 300 of 1k.",
        [target("*", "tf_train*", "*", 1.05), target("*", "optimizer_v2", "*", 1.05)]
        + [target("*", "get_updates", "A", 0.15), target("*", "get_updates", "B", 0.4)]
        + [target("*", api, case, limit) for api in NEW for case, limit in (("A", 0.35), ("B", 0.4), ("C", 0.9))]
        + [target("*", "keras3, torch", "[AB]", 0.15), target("*", "keras3, torch", "C", 0.8)]
        + [target("*", "keras3, torch", "B", 1.0, "DiffGrad"), target("*", "keras3, jax", "B", 1.6, "DiffGrad")]
        + [target(TF_1, "tf_train*", "B", 1.3, label) for label in ("XLA", "no kernel", "DiffGrad")]
        + [target("*", "tf_train*", "B", 2.7, "no kernel"), target("*", "tf_train*", "C", 0.7, "no kernel")]
        + [target("*-tf2*", "optimizer_v2", "[AB]", 1.1, "no kernel")]
        + [target("*-tf2*", "optimizer_v2", "C", 1.2, "no kernel"), target("*", "get_updates", "*", 1.0, "no kernel")]
        + [target("*", api, "[AB]", 0.5, "no kernel") for api in NEW],
        across="case",
    ),
    strategies=measure(
        "strategies",
        "A step with a strategy, relative to the same step with that strategy forbidden, and first steps in seconds. "
        "`kernel` is Adam on B, the others DiffGrad: `flattened` on C, `chunks` on A, `compiled` and `in_place` on B.",
        base="without",
        extra=("first",),
    ),
    sparse=measure(
        "sparse",
        "Adam on a table of 64 columns, 1,024 Zipf-distributed look-ups, different at each step, by rows of the table: "
        "CPU milliseconds.",
        [target(TF_1, "*", "*", 0.6, "exact", of="stock"), target("*-tf2*", "*", "*", 0.45, "exact", of="stock")]
        + [target("*", "*", "*", 1.1, "rows", of="LazyAdam"), target("*", "*", "*", 2.0, "catch_up", of="rows")],
        unit="ms",
    ),
    forms=measure(
        "sparse",
        "Every rule with a closed form for missed steps, on 100,000 rows of 64 with 1,024 look-ups, beside the API's "
        "own Adam and LazyAdam: CPU milliseconds.",
        [target("*", "*", "*", 2.0, "catch_up", of="rows")],
        unit="ms",
    ),
    flat=measure(
        "sparse",
        "The same steps on larger tables, relative to 10,000 rows.",
        [target("*", "*", "*", 1.25, rows) for rows in ("100000", "1000000", "5000000")],
        base="10000",
    ),
    state=measure(
        "state",
        "Checkpoints of 100 variables and Adam's two slots of each, 500 MB: capture and save, load and restore, with "
        "checksums, relative to the API's own.",
        [target("*", "*", "*", 1.5)],
    ),
    lazy=measure(
        "sparse",
        "everstep in place of stock tf.train optimizers that update only rows with a gradient, on 100,000 rows of 64.",
        [target("*", "*", "*", 1.1, "rows")],
    ),
    peers=measure(
        "peers",
        "The same rules from other libraries and from the API, on B: relative CPU time, and first steps in seconds.",
        extra=("first",),
    ),
)


def cases(name, api):
    """Yields the cases of a measure on an API."""
    return getattr(importlib.import_module(MEASURES[name].module), name)(api)


def limits(result):
    """Returns {label: (target, measured figure)} of a result. A label has the first target that fits."""
    figures = {}
    for each in MEASURES[result["kind"]].targets:
        places = (result["cell"], each.environment), (result["target"], each.api), (result["case"], each.case)
        seconds = result["seconds"].get(each.label)
        if seconds is None or not all(fnmatch.fnmatchcase(value, pattern) for value, pattern in places):
            continue
        if not each.of:
            figures.setdefault(each.label, (each, result["ratios"][each.label]))
        elif each.of == "seconds" or each.of in result["seconds"]:
            other = 1.0 if each.of == "seconds" else result["seconds"][each.of]
            figures.setdefault(each.label, (each, seconds / other))
    return figures


def selected(only, *parts):
    """Returns whether the user asked for a measure. A name is some of its parts: dense/tf_train/A, sparse/keras3."""
    return not only or any(all(part in parts for part in name.split("/")) for name in only)
