"""Finds the size of a variable from which on an original has another rule."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict, namedtuple

from everstep.compat.port.shapes import BASE, Shapes

MOST_ELEMENTS, MOST_SIZES = 4000000, 6
SMALL = 4  # sizes below are those of the shapes that every rule is read for
HUGE = 10 ** 9  # what is larger is no size
# Shapes that are tried whatever the numbers in the code are: a size may be computed.
THIN, WIDE = ((1, 5), (5, 1)), ((600000, 2), (2, 600000), (1400, 1400))
LONG = 300000


def _product(shape):
    count = 1
    for size in shape:
        count *= size
    return count


def _factors(count):
    """Returns two numbers, as near to each other as can be, whose product is a count."""
    first = next(each for each in range(int(count ** 0.5), 0, -1) if count % each == 0)
    return first, count // first


# What is measured of a shape. text: Python; of: a function of a shape; shape: one of (size, rank) that returns a shape
# of that measure, or of the largest below if there is none.
Measure = namedtuple("Measure", "text of shape")
_MEASURES = (
    Measure("max(variable.shape)", max, lambda size, rank: (3, 2, 2, 2, 2)[:rank - 1] + (size,)),
    Measure("min(variable.shape)", min, lambda size, rank: (size,) + (size + 1,) * (rank - 1)),
    Measure("variable.shape[0]", lambda shape: shape[0], lambda size, rank: (size,) + (3, 2, 2, 2)[:rank - 1]),
    Measure("variable.shape[-1]", lambda shape: shape[-1], lambda size, rank: (3, 2, 2, 2)[:rank - 1] + (size,)),
    Measure("np.prod(variable.shape)", _product, lambda size, rank: (
        (size,) if rank == 1 else _factors(size) if rank == 2 else (2,) * (rank - 1) + (size // 2 ** (rank - 1),))),
)


class Threshold(namedtuple("Threshold", "measure size")):
    """A size from which on the rule is another one."""

    def holds(self, shape):
        return self.measure.of(shape) >= self.size

    @property
    def test(self):
        """The Python text of whether a variable is that large."""
        text = "{} >= {}".format(self.measure.text, self.size)
        return "bool({})".format(text) if "np." in text else "variable.shape != () and " + text

    def shapes(self):
        """Returns the `Shapes` for which the rule of large variables is read; None if they are too large."""
        def shape(more, rank):
            return next(each for each in (self.measure.shape(self.size + extra, rank) for extra in range(more, 999))
                        if rank != 2 or min(each) > 2)

        shapes = Shapes(shape(0, 2), shape(5, 2), shape(5, 3), shape(2, 1), (shape(9, 4), shape(17, 5)))
        few = tuple(each for each in shapes.more if _product(each) <= MOST_ELEMENTS)
        return shapes._replace(more=few) if all(_product(each) <= MOST_ELEMENTS for each in shapes[:4]) else None

    def below(self):
        """Returns the largest shapes of 1 and 3 dimensions that are not that large."""
        return [self.measure.shape(self.size - 1, rank) for rank in (1, 3)]


def thresholds(numbers):
    """Returns a Threshold for each measure at numbers, and above them."""
    sizes = sorted(set(each + more for each in numbers for more in (0, 1)))
    return [Threshold(measure, size) for size in sizes for measure in _MEASURES]


def shapes_around(number):
    """Returns shapes that have a number as either size, and one in which both are larger."""
    larger = (number + 1, number + 1)
    is_small = larger[0] * larger[1] <= MOST_ELEMENTS
    return [(number, 2), (2, number), larger if is_small else (number + 1, 2)]


def found(candidates, differs, probed):
    """Returns the Threshold that explains for which shapes the rule differs; None if there is none.

    Args:
        candidates: [Threshold].
        differs: a function of a shape that traces the original, and returns whether its rule differs.
        probed: {shape: what `differs` returned}. It is added to.
    """
    pool = [each.measure.shape(each.size - less, 2) for each in candidates for less in (0, 1)]
    pool = [shape for shape in OrderedDict.fromkeys(pool) if _product(shape) <= MOST_ELEMENTS]
    left = [each for each in candidates if not each.holds(BASE)]
    while True:
        left = [each for each in left if all(each.holds(shape) == known for shape, known in probed.items())]
        splits = [(abs(2 * sum(each.holds(shape) for each in left) - len(left)), shape) for shape in pool
                  if shape not in probed]
        balance, shape = min(splits) if splits else (len(left), None)
        if shape is not None and balance < len(left):  # it tells some apart
            probed[shape] = differs(shape)
            continue
        edges = [each.measure.shape(each.size - less, 2) for each in left[:1] for less in (0, 1)]
        edges = [shape for shape in edges if shape not in probed]
        if not edges:
            return left[0] if left and left[0].shapes() else None
        probed.update((shape, differs(shape)) for shape in edges)
