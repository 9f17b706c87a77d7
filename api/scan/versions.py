"""Ranges of versions of TensorFlow, Keras and other packages."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict, namedtuple

# Every version that a range can begin or end with.
VERSIONS = OrderedDict([
    ("TF", ["1.{}".format(minor) for minor in range(4, 16)] + ["2.{}".format(minor) for minor in range(22)]),
    ("Keras", ["2.{}".format(minor) for minor in range(16)] + ["3.{}".format(minor) for minor in range(16)]),
    ("tf_keras", ["2.{}".format(minor) for minor in range(16, 22)]),
    ("TensorFlow Addons", ["0.{}".format(minor) for minor in range(19, 24)]),
    ("Transformers", ["4"]),
])


class Span(namedtuple("Span", "product first last target")):
    """Versions of a package in which a name exists, and the optimizer API that it is of: see compat/targets/."""

    def cut(self, first=None, last=None):
        """Returns the part from and up to some versions; None if there is none."""
        order = VERSIONS[self.product].index
        begin = max(order(self.first), order(first)) if first else order(self.first)
        end = min(order(self.last), order(last)) if last else order(self.last)
        return self._replace(first=VERSIONS[self.product][begin], last=VERSIONS[self.product][end]) \
            if begin <= end else None

    def holds(self, version):
        """Returns whether a version, such as "2.10", is one of these."""
        order = VERSIONS[self.product]
        return version in order and order.index(self.first) <= order.index(version) <= order.index(self.last)

    @property
    def text(self):
        return written(self.product, self.first, self.last)


def written(product, first, last):
    """Returns a range as text, such as "TF 1.14 to 2.10"."""
    return "{} {}{}".format(product, first, "" if first == last else " to " + last)


def ranges(spans):
    """Returns spans as texts. Those that overlap or follow each other become one."""
    joined = []  # type: list[tuple[str, str, str]]
    products = list(VERSIONS)
    for span in sorted(spans, key=lambda each: (products.index(each.product),
                                                VERSIONS[each.product].index(each.first))):
        order = VERSIONS[span.product].index
        if joined and joined[-1][0] == span.product and order(joined[-1][2]) + 1 >= order(span.first):
            joined[-1] = span.product, joined[-1][1], max(joined[-1][2], span.last, key=order)
        else:
            joined.append((span.product, span.first, span.last))
    return [written(*each) for each in joined]


def newest(product):
    return VERSIONS[product][-1]
