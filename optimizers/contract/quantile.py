"""A quantile of all numbers so far, estimated from nine numbers: the P-square algorithm."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract.declarations import scalar

NONE = 1e30  # the height of a marker that has no number yet; norms in float32 are below 2e19
HEIGHTS = tuple("height_{}".format(marker) for marker in range(1, 6))
PLACES = tuple("place_{}".format(marker) for marker in range(2, 5))


def quantile_scalars(when):
    """Returns `{name: declaration}` of the scalars that hold the state of a quantile.

    Args:
        when: whether they exist, as for `everstep.scalar`.
    """
    starts = [(name, NONE) for name in HEIGHTS] + [("place_{}".format(n), float(n)) for n in range(2, 5)]
    return {name: scalar(start, when=when) for name, start in starts + [("seen", 0.0)]}


def with_number(ops, state, number, share):
    """Returns `{name: scalar}` after one more number, which is left out if it is not finite.

    Jain & Chlamtac 1985, https://doi.org/10.1145/4372.4378: five markers hold the least and the greatest number and, at
    about the right places, three between them.

    Args:
        ops: the operations of a verb.
        state: the scalars before, by name.
        number: the number.
        share: the share of all numbers that the quantile is above, 0 to 1.
    """
    heights, seen = [getattr(state, name) for name in HEIGHTS], state.seen
    sorted_heights, left = [], number
    for height in heights:
        sorted_heights.append(ops.minimum(height, left))
        left = ops.maximum(height, left)
    moved, places = _moved(ops, heights, [getattr(state, name) for name in PLACES], seen, number, share)
    is_few = seen < 5
    new = {name: ops.where(is_few, *pair) for name, pair in zip(HEIGHTS, zip(sorted_heights, moved))}
    new.update((name, ops.where(is_few, getattr(state, name), place)) for name, place in zip(PLACES, places))
    new["seen"] = seen + 1
    is_finite = ops.isfinite(number)
    return {name: ops.where(is_finite, value, getattr(state, name)) for name, value in new.items()}


def _moved(ops, heights, places, seen, number, share):
    """Returns the heights and the places of the inner markers, once there were five numbers."""
    heights = [ops.minimum(heights[0], number)] + heights[1:4] + [ops.maximum(heights[4], number)]
    last = ops.maximum(seen + 1, 5)
    places = [place + ops.where(number < height, 1.0, 0.0) for place, height in zip(places, heights[1:4])]
    places = [1.0] + places + [last]
    for marker, wanted in enumerate((share / 2, share, (1 + share) / 2), 1):
        off = 1 + (last - 1) * wanted - places[marker]
        above, below = (  # at least 1, but for numbers that are not used: before there were five
            ops.maximum(places[place + 1] - places[place], 1.0) for place in (marker, marker - 1)
        )
        rise, fall = heights[marker + 1] - heights[marker], heights[marker] - heights[marker - 1]
        goes_up, goes_down = ops.logical_and(off >= 1, above > 1), ops.logical_and(off <= -1, below > 1)
        step = ops.where(goes_up, 1.0, ops.where(goes_down, -1.0, 0.0))
        curved = (below + step) * rise / above + (above - step) * fall / below
        curved = heights[marker] + step / (above + below) * curved
        straight = heights[marker] + step * ops.where(goes_up, rise / above, fall / below)
        is_between = ops.logical_and(heights[marker - 1] < curved, curved < heights[marker + 1])
        heights[marker] = ops.where(is_between, curved, straight)
        places[marker] = places[marker] + step
    return heights, places[1:4]


def quantile(ops, state, share):
    """Returns the quantile: of up to five numbers as `numpy.percentile` does; `NONE` if there are none.

    Args:
        ops, state, share: see `with_number`.
    """
    heights, seen = [getattr(state, name) for name in HEIGHTS], state.seen
    rank = share * (seen - 1)
    exact = sum(height * ops.maximum(0.0, 1 - ops.abs(rank - place)) for place, height in enumerate(heights))
    return ops.where(seen < 1, NONE, ops.where(seen <= 5, exact, heights[2]))
