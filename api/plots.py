"""Draws schedules, and how definitions descend: `everstep show NAME --plot`, and the pictures of the site."""
from __future__ import absolute_import, division, print_function

import ast

import numpy as np

import everstep
from everstep.compat.stock.registry import spelled
from everstep.errors import ConfigError, UnsupportedError
from everstep.show import schedules

START, STEPS = (-1.2, 1.0), 200
RATES = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
X, Y = (-1.75, 1.75), (-0.75, 2.25)  # the part of the valley that pictures show
LEVELS = (0.2, 1, 4, 12, 40)
EXAMPLE = '"CosineDecay(0.1, decay_steps=1000)"'


def loss(point):
    """Returns Rosenbrock's function, with walls of height 20 in place of 100."""
    x, y = point
    return (1 - x) ** 2 + 20 * (y - x * x) ** 2


def gradient(point):
    """Returns the gradient of `loss`."""
    x, y = point
    return np.array([2 * (x - 1) - 80 * x * (y - x * x), 40 * (y - x * x)])


def descent(definition):
    """Returns the points of a run, which ends early if it diverges."""
    optimizer = definition.bind(np)
    if definition.stages > 1:
        everstep.enable_multistage(optimizer)
    weights = np.array(START)
    points = [tuple(weights)]
    for _ in range(STEPS):
        for _ in range(definition.stages):
            optimizer.apply_gradients([(gradient(weights), weights)])
        if not np.all(np.abs(weights) < 1e3):
            break
        points.append(tuple(weights))
    return points


def best(make, rates=RATES):
    """Returns (rate, points) of the rate that ends lowest.

    Args:
        make: a function of a rate that returns a definition.

    Raises:
        UnsupportedError: it diverges with every rate.
    """
    runs = [(rate, descent(make(rate))) for rate in rates]
    whole = [run for run in runs if len(run[1]) == STEPS + 1]
    if not whole:
        raise UnsupportedError("the run diverges with every learning rate of {}".format(list(rates)))
    return min(whole, key=lambda run: loss(run[1][-1]))


def plot(text, path=None):
    """Draws a schedule or the descent of a definition with matplotlib, and returns a line about it.

    Args:
        text: a name, or a call such as `CosineDecay(0.1, decay_steps=1000)`, whose arguments are literals or schedules.
        path: the file to write, in the format of its end. Default: `NAME.png`.

    Raises:
        ConfigError: the text is neither, or a schedule without arguments.
        UnsupportedError: matplotlib is not installed, or the name is of a wrapper.
    """
    name, arguments, keywords = _parsed(text)
    schedule = _schedule_named(name)
    figure = _figure()
    if schedule is not None:
        if not arguments and not keywords:
            raise ConfigError("a schedule is drawn with its arguments, such as {}".format(EXAMPLE))
        value = schedule(*arguments, **keywords)
        updates = int(max([1000] + [1.25 * part for part in _lengths(value)]))
        value.plot(updates, figure.add_subplot(1, 1, 1)).set_title(repr(value), fontsize=9)
        line = "{} from 0 to {} updates".format(schedule.__name__, updates)
    else:
        if arguments:
            raise ConfigError("give arguments by name, such as \"Adam(beta_1=0.5)\"; got {!r}".format(str(text)))
        rates = (keywords.pop("learning_rate"),) if "learning_rate" in keywords else RATES
        rate, points = best(lambda rate: everstep.get(name, learning_rate=rate, **keywords), rates)
        _draw_descent(figure, points)
        line = "{} steps of {} with learning_rate={:g}{} in Rosenbrock's valley: the loss falls from {:.3g} to {:.2g}" \
            .format(STEPS, text, rate, ", the best of {},".format(len(rates)) if len(rates) > 1 else "",
                    loss(START), loss(points[-1]))
        figure.suptitle(line, fontsize=9)
    path = "{}.png".format(name) if not path else path
    figure.savefig(path)
    return "{} is written: {}".format(path, line)


def _figure():
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnsupportedError("--plot draws with matplotlib, which cannot be imported ({}): python -m pip install "
                               "matplotlib".format(error))
    figure = Figure(figsize=(9, 4))
    FigureCanvasAgg(figure)  # of the figure alone: no window, no global state
    return figure


def _draw_descent(figure, points):
    valley, losses = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    grid = np.meshgrid(np.linspace(X[0], X[1], 200), np.linspace(Y[0], Y[1], 200))
    valley.contour(grid[0], grid[1], loss(grid), levels=LEVELS, colors="0.7")
    valley.plot([x for x, _ in points], [y for _, y in points], ".-", markersize=4, linewidth=1)
    valley.plot(1, 1, "x", color="black")
    valley.set_xlim(*X)
    valley.set_ylim(*Y)
    valley.set_title("path; the cross is the minimum", fontsize=9)
    losses.semilogy([max(loss(point), 1e-12) for point in points])
    losses.set_title("loss", fontsize=9)
    losses.set_xlabel("steps")


def _parsed(text):
    """Returns (name, arguments, keywords) of `Name` or of `Name(...)`."""
    try:
        node = ast.parse(str(text).strip(), mode="eval").body
        call = node if isinstance(node, ast.Call) else None
        function = call.func if call else node
        name = function.id  # type: ignore[attr-defined]  # anything without an id is refused below
        keywords = {str(keyword.arg): _value(keyword.value) for keyword in call.keywords} if call else {}
        return name, [_value(argument) for argument in call.args] if call else [], keywords
    except (AttributeError, SyntaxError, ValueError, TypeError):
        raise ConfigError("--plot takes a name, or a call such as {}; got {!r}".format(EXAMPLE, str(text)))


def _value(node):
    """Returns a literal, or the schedule that a call makes."""
    if not isinstance(node, ast.Call):
        return ast.literal_eval(node)
    schedule = _schedule_named(node.func.id)  # type: ignore[attr-defined]
    if schedule is None:
        raise ValueError
    return schedule(*[_value(argument) for argument in node.args],
                    **{str(keyword.arg): _value(keyword.value) for keyword in node.keywords})


def _schedule_named(name):
    return {spelled(known): value for known, value in schedules().items()}.get(spelled(name))


def _lengths(schedule):
    """Yields the numbers of updates that the arguments of a schedule name."""
    for name in schedule.argument_names():
        value = getattr(schedule, name)
        if hasattr(value, "argument_names"):
            for length in _lengths(value):
                yield length
        elif name == "boundaries":
            yield max(value) if value else 0
        elif name == "steps" or name.endswith("_steps"):
            yield value or 0
