"""Draws the pictures of docs/speed.md and docs/records/speed_tables.md."""
import os
import re

TITLES = {"A": "1 variable of 10M", "B": "100 of 100k", "C": "300 of 1k"}
TRAINED = ("wrappers", "rules", "accumulate", "eager", "models")  # as people train
SPARSE = ("stock", "exact", "rows", "catch_up", "LazyAdam")


def draw(results, docs, records):
    """Draws each picture that the results have figures for."""
    try:
        import matplotlib
    except ImportError:
        print("no pictures: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    for folder, name, kinds, picture in (
        (docs, "trained.png", TRAINED, _trained),
        (records, "ratios.png", ("dense",), _ratios),
        (records, "rows.png", ("sparse",), _rows),
    ):
        selected = [each for each in results if each["kind"] in kinds]
        if selected:
            picture(plt, selected).savefig(os.path.join(folder, name), dpi=90)
            plt.close("all")


def title(target, cell):
    """Returns what people call the API of a result."""
    api, _, rest = target.partition(", ")
    if api == "keras3":
        return "Keras 3 on {}".format({"jax": "JAX", "torch": "torch"}.get(rest, "TensorFlow"))
    tensorflow = re.search(r"tf([\d.]+)", cell).group(1)
    keras = "tf_keras" if cell.endswith("-tfk") else "tf.keras"
    has_legacy = tuple(map(int, tensorflow.split("."))) >= (2, 11)
    name = {"tf_train": "tf.train", "update_step": keras, "optimizer_v2": keras + ".optimizers.legacy" * has_legacy,
            "get_updates": "Keras {}".format(cell.rpartition("-k")[2])}[api]
    return "{}{}, TF {}".format(name, " with resource variables" if rest else "", tensorflow)


def _trained(plt, results):
    """A point for each API, a line for each case: everstep relative to the best stock parts."""
    cases = list(dict.fromkeys((kind, each["case"]) for kind in TRAINED for each in results if each["kind"] == kind))
    places = sorted({(each["cell"], each["target"]) for each in results}, key=lambda place: title(*place[::-1]).lower())
    figure, axis = plt.subplots(figsize=(11, 0.28 * len(cases) + 2), constrained_layout=True)
    for number, place in enumerate(places):
        points = [
            (each["ratios"]["everstep"], cases.index((each["kind"], each["case"])))
            for each in results
            if (each["cell"], each["target"]) == place
        ]
        form = "ov^sDP*X"[number // 10] + "C{}".format(number % 10)
        axis.plot(*zip(*points), form, label=title(*place[::-1]))
    axis.axvline(1, color="0.3", linewidth=1)
    axis.set_yticks(range(len(cases)))
    axis.set_yticklabels(["{}: {}".format(kind, re.sub(r", ([A-C])$", lambda size: ", " + TITLES[size.group(1)], case))
                          for kind, case in cases])
    axis.invert_yaxis()
    axis.grid(axis="y", color="0.9")
    axis.set(xlabel="CPU time, relative to the best stock parts; accumulate: to a plain step")
    _log_scale(axis)
    figure.legend(loc="outside right upper", frameon=False)
    return figure


def _ratios(plt, results):
    places = sorted({(each["target"], each["cell"]) for each in results}, reverse=True)
    by_key = {(each["target"], each["cell"], each["case"]): each["ratios"] for each in results}
    height = 0.45 * len(places) + 1.5
    figure, axes = plt.subplots(1, 3, figsize=(15, height), sharex=True, sharey=True, constrained_layout=True)
    labels = ("everstep", "no kernel", "DiffGrad")
    for axis, case in zip(axes, TITLES):
        for shift, label in enumerate(reversed(labels)):
            for place, (target, cell) in enumerate(places):
                ratio = by_key.get((target, cell, case), {}).get(label)
                if ratio is not None:
                    axis.barh(place + 0.27 * shift, ratio, 0.25, color="C{}".format(2 - shift))
        axis.axvline(1, color="0.3", linewidth=1)
        axis.set_yticks([place + 0.27 for place in range(len(places))])
        axis.set_yticklabels(["{}, {}".format(target, cell.split("-", 1)[1]) for target, cell in places])
        axis.set(xlabel="CPU time, relative to the API's own Adam", title=TITLES[case])
        _log_scale(axis)
    colors = [plt.Rectangle((0, 0), 1, 1, color="C{}".format(place)) for place in range(3)]
    axes[0].legend(colors, ("Adam",) + labels[1:], frameon=False, loc="lower right")
    return figure


def _log_scale(axis):
    axis.set(xscale="log")
    axis.set_xticks([0.1, 0.3, 1, 3, 10])
    axis.set_xticklabels(["0.1", "0.3", "1", "3", "10"])
    axis.minorticks_off()


def _rows(plt, results):
    places = sorted({(each["target"], each["cell"]) for each in results})
    figure, axes = plt.subplots(
        1, len(places), figsize=(3.2 * len(places), 4), sharey=True, squeeze=False, constrained_layout=True
    )
    for axis, place in zip(axes[0], places):
        selected = [each for each in results if (each["target"], each["cell"]) == place and each["case"].isdigit()]
        selected = sorted((int(each["case"]), each["seconds"]) for each in selected)
        for color, label in enumerate(SPARSE):
            if label in selected[0][1]:
                milliseconds = [1e3 * seconds[label] for _, seconds in selected]
                axis.plot([rows for rows, _ in selected], milliseconds, "oC{}-".format(color), label=label)
        axis.set(xscale="log", yscale="log", xlabel="rows of the table", title="{}\n{}".format(*place))
    axes[0][0].set_ylabel("CPU milliseconds a step")
    lines = {line.get_label(): line for axis in axes[0] for line in axis.lines}
    figure.legend(lines.values(), lines, loc="outside lower center", ncols=len(lines), frameon=False)
    return figure
