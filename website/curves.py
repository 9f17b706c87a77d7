"""Draws how each definition descends: on NumPy, from one start, on Rosenbrock's valley, as SVG without a script."""
import math

from everstep import optimizers
from everstep.plots import LEVELS as LEVEL_VALUES
from everstep.plots import RATES, START, STEPS, X, Y, best, loss

LEAST = 1e-6
LEVEL_POINTS = 24
WIDTH, HEIGHT, LOSSES = 280, 240, 260  # of the valley, and the width of the curve of losses


def picture(name):
    """Returns (SVG, caption) of a definition."""
    rate, points = best(lambda rate: getattr(optimizers, name)(learning_rate=rate))
    caption = "{} steps of {} with learning_rate={:g} and otherwise its defaults, from ({:g}, {:g}). The loss falls " \
        "from {:.3g} to {:.2g}; the minimum is at the cross. The rate is the one of {} that ends lowest.".format(
            STEPS, name, rate, START[0], START[1], loss(START), loss(points[-1]), ", ".join("%g" % r for r in RATES))
    parts = ['<svg class="descent" viewBox="0 0 {} {}" role="img" aria-label="{}">'.format(
        WIDTH + 20 + LOSSES, HEIGHT + 22, "Path and loss of " + name)]
    parts += ['<clipPath id="valley"><rect width="{}" height="{}"/></clipPath>'.format(WIDTH, HEIGHT),
              '<g clip-path="url(#valley)"><rect class="ground" width="{}" height="{}"/>'.format(WIDTH, HEIGHT)]
    parts.append(LEVELS)
    parts.append('<path class="path" d="{}"/>'.format(_line([_place(point) for point in points])))
    parts += ['<circle class="point" cx="{:.1f}" cy="{:.1f}" r="1.6"/>'.format(*_place(point)) for point in points[:24]]
    x, y = _place((1, 1))
    parts.append('<path class="minimum" d="M{0:.1f} {1:.1f}l8 8m0 -8l-8 8"/></g>'.format(x - 4, y - 4))
    parts += list(_losses([loss(point) for point in points])) + ["</svg>"]
    return "".join(parts), caption


def _place(point):
    return ((point[0] - X[0]) / (X[1] - X[0]) * WIDTH, HEIGHT - (point[1] - Y[0]) / (Y[1] - Y[0]) * HEIGHT)


def _line(places):
    return "M" + "L".join("{:.4g} {:.4g}".format(*place) for place in places)


def _level(value):
    """Returns the path of the points with one loss: (1 - x)^2 + 20 (y - x^2)^2 = value, both sides of the valley."""
    sides = ([], [])
    for step in range(LEVEL_POINTS + 1):
        x = 1 - math.sqrt(value) * math.cos(math.pi * step / LEVEL_POINTS)
        aside = math.sqrt(max(0.0, value - (1 - x) ** 2) / 20)
        for side, sign in zip(sides, (1, -1)):
            side.append(_place((x, x * x + sign * aside)))
    return _line(sides[0] + sides[1][::-1]) + "Z"


LEVELS = '<g id="levels">{}</g>'.format("".join(
    '<path class="level" d="{}"/>'.format(_level(value)) for value in LEVEL_VALUES))


def _losses(values):
    """Yields the picture of losses over steps, on a scale of powers of ten."""
    left, high, low = WIDTH + 44, 2, int(math.log10(LEAST))
    right = WIDTH + 20 + LOSSES - 4

    def place(step, value):
        share = (high - math.log10(max(value, LEAST))) / (high - low)
        return left + step * (right - left) / float(STEPS), share * HEIGHT

    for power in range(low, high + 1, 2):
        y = place(0, 10.0 ** power)[1]
        yield '<path class="grid" d="M{} {:.1f}H{}"/>'.format(left, y, right)
        yield '<text x="{}" y="{:.1f}" text-anchor="end">1e{}</text>'.format(
            left - 5, min(max(y + 4, 10), HEIGHT), power)
    yield '<path class="path" d="{}"/>'.format(_line([place(*pair) for pair in list(enumerate(values))[::2]]))
    yield '<text x="{}" y="{}">loss over {} steps</text>'.format(left, HEIGHT + 16, STEPS)
    yield '<text x="0" y="{}">path in the valley</text>'.format(HEIGHT + 16)
