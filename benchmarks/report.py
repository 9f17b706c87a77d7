"""Writes the tables and pictures of docs/speed_tables.md from benchmarks/baseline.json: python benchmarks/report.py"""
import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
DOC = os.path.join(os.path.dirname(HERE), "docs", "speed_tables.md")
START, END = "<!-- figures: do not edit; python benchmarks/report.py -->\n", "<!-- end of figures -->\n"
CASES = ("A", "B", "C")
TITLES = {"A": "1 variable of 10M", "B": "100 of 100k", "C": "300 of 1k"}
SPARSE = ("native", "exact", "rows", "catch_up", "LazyAdam")


def main():
    with open(os.path.join(HERE, "baseline.json"), encoding="utf-8") as file:
        results = json.load(file)
    write_tables(results)
    draw(results, os.path.dirname(DOC))


def write_tables(results):
    by_key = {(each["cell"], each["target"], each["kind"], each["case"]): each for each in results}
    with open(DOC, encoding="utf-8") as file:
        head, rest = file.read().split(START)
    lines = [line for part in (_dense, _first, _strategies, _sparse, _flat, _lazy, _peers) for line in part(by_key)]
    with open(DOC, "w", encoding="utf-8") as file:
        file.write(head + START + "\n".join(lines) + "\n" + END + rest.split(END)[1])


def draw(results, folder):
    """Draws ratios.png, by case, and rows.png, the cost by the rows of a table."""
    try:
        import matplotlib
    except ImportError:
        print("no pictures: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    for kind, name, picture in (("dense", "ratios.png", _ratios), ("sparse", "rows.png", _rows)):
        selected = [each for each in results if each["kind"] == kind]
        if selected:
            picture(plt, selected).savefig(os.path.join(folder, name), dpi=90)
            plt.close("all")


def _ratios(plt, results):
    places = sorted({(each["target"], each["cell"]) for each in results}, reverse=True)
    by_key = {(each["target"], each["cell"], each["case"]): each["ratios"] for each in results}
    height = 0.45 * len(places) + 1.5
    figure, axes = plt.subplots(1, 3, figsize=(15, height), sharex=True, sharey=True, constrained_layout=True)
    for axis, case in zip(axes, CASES):
        for shift, label in enumerate(("DiffGrad", "no kernel", "kernel")):
            for place, (target, cell) in enumerate(places):
                ratios = by_key.get((target, cell, case), {})
                ratio = ratios.get(label, ratios.get("everstep") if label == "kernel" else None)
                if ratio is not None:
                    axis.barh(place + 0.27 * shift, ratio, 0.25, color="C{}".format(2 - shift))
        axis.axvline(1, color="0.3", linewidth=1)
        axis.set_yticks([place + 0.27 for place in range(len(places))])
        axis.set_yticklabels(["{}, {}".format(target, cell.split("-", 1)[1]) for target, cell in places])
        axis.set(xscale="log", xlabel="CPU time, relative to the API's own Adam", title=TITLES[case])
        axis.set_xticks([0.1, 0.3, 1, 3, 10])
        axis.set_xticklabels(["0.1", "0.3", "1", "3", "10"])
        axis.minorticks_off()
    colors = [plt.Rectangle((0, 0), 1, 1, color="C{}".format(place)) for place in range(3)]
    axes[0].legend(colors, ("kernel", "no kernel", "DiffGrad"), frameon=False, loc="lower right")
    return figure


def _rows(plt, results):
    places = sorted({(each["target"], each["cell"]) for each in results})
    figure, axes = plt.subplots(
        1, len(places), figsize=(3.2 * len(places), 4), sharey=True, squeeze=False, constrained_layout=True
    )
    for axis, place in zip(axes[0], places):
        selected = [each for each in results if (each["target"], each["cell"]) == place]
        selected = sorted((int(each["case"]), each["seconds"]) for each in selected)
        for color, label in enumerate(SPARSE):
            if label in selected[0][1]:
                milliseconds = [1e3 * seconds[label] for _, seconds in selected]
                name = "stock" if label == "native" else label
                axis.plot([rows for rows, _ in selected], milliseconds, "oC{}-".format(color), label=name)
        axis.set(xscale="log", yscale="log", xlabel="rows of the table", title="{}\n{}".format(*place))
    axes[0][0].set_ylabel("CPU milliseconds a step")
    lines = {line.get_label(): line for axis in axes[0] for line in axis.lines}
    figure.legend(lines.values(), lines, loc="outside lower center", ncols=len(lines), frameon=False)
    return figure


def _dense(by_key):
    labels = ("kernel", "no kernel", "XLA", "DiffGrad", "everstep", "optax", "torch.optim", "torch.optim, fused")
    yield "CPU time of a step, relative to the API's own Adam. A is 1 variable of 10M, B 100 of 100k, C 300 of 1k."
    yield ""
    yield from _table(["environment", "API", "optimizer", "A", "B", "C"])
    for cell, target in _places(by_key, "dense"):
        for label in labels:
            ratios = [by_key.get((cell, target, "dense", case), {}).get("ratios", {}).get(label) for case in CASES]
            if any(ratios):
                yield _row([cell, target, label] + [_number(ratio) for ratio in ratios])
    yield ""


def _first(by_key):
    yield "First step of 300 variables in seconds, with tracing and compiling, and graph nodes per variable."
    yield ""
    yield from _table(["environment", "API", "stock", "kernel", "no kernel", "nodes: stock", "kernel", "no kernel"])
    for cell, target in _places(by_key, "dense"):
        each = by_key.get((cell, target, "dense", "C"))
        if each and "kernel" in each["first"]:
            labels = ("native", "kernel", "no kernel")
            seconds = ["{:.1f}".format(each["first"][label]) for label in labels]
            yield _row([cell, target] + seconds + ["{:.0f}".format(each["nodes"][label]) for label in labels])
    yield ""


def _sparse(by_key):
    yield "Adam on a table of 64 columns, 1,024 Zipf-distributed look-ups, different at each step: CPU milliseconds."
    yield ""
    yield from _table(["environment", "API", "rows of the table", "stock"] + list(SPARSE[1:]) + ["exact / stock"])
    for (cell, target, kind, case), each in sorted(by_key.items(), key=lambda item: (item[0][:2], item[1]["case"])):
        if kind == "sparse":
            times = ["{:.2f}".format(1e3 * each["seconds"][x]) if x in each["seconds"] else "" for x in SPARSE]
            yield _row([cell, target, "{:,}".format(int(case))] + times + [_number(each["ratios"]["exact"])])
    yield ""


def _flat(by_key):
    yield "The same steps on larger tables: CPU time, relative to 10,000 rows."
    yield ""
    yield from _table(["environment", "API", "", "100,000 rows", "1,000,000 rows"])
    for (cell, target, kind, case), each in sorted(by_key.items()):
        if kind == "flat":
            yield _row([cell, target, case] + [_number(each["ratios"][rows]) for rows in ("100000", "1000000")])
    yield ""


def _lazy(by_key):
    yield "everstep in place of stock tf.train optimizers that update only rows with a gradient, on 100,000 rows of 64."
    yield ""
    yield from _table(["environment", "stock", "`rows` / stock", "`exact` / stock"])
    for (cell, _, kind, case), each in sorted(by_key.items()):
        if kind == "lazy":
            yield _row([cell, case, _number(each["ratios"]["rows"]), _number(each["ratios"]["exact"])])
    yield ""


def _peers(by_key):
    yield "The same rules from other libraries and from the API, on B: relative CPU time, and first steps in seconds."
    yield ""
    yield from _table(["environment", "API", "theirs", "ours / theirs", "first: theirs", "ours"])
    for (cell, target, kind, case), each in sorted(by_key.items()):
        if kind == "peers":
            first = ["{:.1f}".format(each["first"][label]) for label in ("native", "everstep")]
            yield _row([cell, target, case, _number(each["ratios"]["everstep"])] + first)


def _strategies(by_key):
    yield "CPU time of a step, relative to the same step with a strategy forbidden, and first steps in seconds."
    yield "`kernel` is Adam on B, the others DiffGrad: `flattened` on C, `chunks` on A, `compiled` and `in_place` on B."
    yield ""
    yield from _table(["environment", "API", "strategy", "with / without", "first: without", "with"])
    for (cell, target, kind, case), each in sorted(by_key.items()):
        if kind == "strategies":
            first = ["{:.1f}".format(each["first"][label]) for label in ("native", case)]
            yield _row([cell, target, "`{}`".format(case), _number(each["ratios"][case])] + first)
    yield ""


def _places(by_key, kind):
    return sorted({key[:2] for key in by_key if key[2] == kind})


def _table(heads):
    yield _row(heads)
    yield "|" + "---|" * len(heads)


def _row(cells):
    return "| {} |".format(" | ".join(cells))


def _number(ratio):
    return "" if ratio is None else "{:.3g}".format(ratio) if ratio < 0.1 else "{:.2f}".format(ratio)


if __name__ == "__main__":
    main()
