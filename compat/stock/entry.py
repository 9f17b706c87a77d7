"""Describes one stock optimizer: an entry of the stock table."""
from __future__ import absolute_import, division, print_function

from collections import namedtuple

from everstep.errors import ConfigError
from everstep.optimizers.contract.declarations import REQUIRED

# Arguments that stock classes spell in another way than definitions do, wherever they have them.
_RENAMED = dict(
    base="power_base", beta1="beta_1", beta2="beta_2", eeta="trust_coefficient", l1_regularization_strength="l1",
    l2_regularization_strength="l2", l2_shrinkage_regularization_strength="l2_shrinkage", use_nesterov="nesterov",
)
HOMES = dict(
    optimizer_v2="OptimizerV2", get_updates="Keras 2.0 to 2.3", update_step="new-style Keras", keras3="Keras 3"
)

# One slot on disk. always: it exists whether or not it is used; rank: "matrix" where only variables of rank 2 or more
# have it, "vector" where only the others do, else "".
Slot = namedtuple("Slot", "name native always rank")
# One number on disk, beside the slots. optional: some versions or settings do not save it.
Counter = namedtuple("Counter", "name native optional")


class Stock(object):
    """A stock optimizer of one API.

    Attributes:
        target: the name of its API, see compat/targets/detect.py.
        native: the class's name; home: where people find it, in words.
        definition: the class of the definition that does the same.
        defaults: `{its argument: its own default}`; REQUIRED where it has none.
        names: `{its argument: ours}`.
        fixed: `{option of the definition: value}` that make the form of this API.
        refused: `{its argument: why}` of those that no definition can follow once they are set.
        op: the end of its slots' names in files of tf.train.Saver, _1, _2, ... behind all but the first.
        blocks: its slots on disk, a list of lists of `Slot`; see table.py.
        head, tail: its `Counter`s before and behind the slots.
        note: what people should know beside that, in words.
        differs: what stock does that no definition should, in words, or None.
    """

    def __init__(self, target, native, definition, arguments, fixed=(), sparse="exact", slots="", counters="",
                 op="", renamed=(), refused=(), home=None, note="", differs=None):
        self.target, self.native, self.definition = target, native, definition
        self.home, self.op, self.note, self.differs = home or HOMES[target], op, note, differs
        self.defaults, self.fixed, self.refused = dict(arguments), dict(fixed), dict(refused)
        renamed = dict(_RENAMED, **dict(renamed))
        self.names = {theirs: renamed.get(theirs, theirs) for theirs in arguments}
        self._sparse = sparse
        self.blocks = [block for block in map(_slots, slots.split("|")) if block]
        self.head, self.tail = (_counters(part) for part in (counters + "|").split("|")[:2])

    @property
    def slots(self):
        """All its slots, in the order in which tf.train makes them."""
        return [slot for block in self.blocks for slot in block]

    @property
    def slot_names(self):
        """`{name on disk: ours}`."""
        return {slot.native: slot.name for slot in self.slots}

    def sparse(self, options):
        """What it does with a sparse gradient, given our options: a value of `sparse=`."""
        return self._sparse(options) if callable(self._sparse) else self._sparse

    def make(self, given, **more):
        """The definition of the stock optimizer with some arguments; the others have its own defaults.

        Args:
            given: `{its argument: value}`.
            more: options of ours that win.

        Raises:
            ConfigError: an argument that it has no default for was not given.
        """
        values = dict(self.defaults, **given)
        lacks = sorted(theirs for theirs, value in values.items() if value is REQUIRED and theirs not in more)
        if lacks:
            raise ConfigError("{} has no default for {}: say what it was".format(self.native, " and ".join(lacks)))
        options = {self.names[theirs]: value for theirs, value in values.items()}
        options.update(self.fixed)
        options.update(more)
        return self.definition(sparse=self.sparse(options), **options)

    def __repr__(self):
        return "<stock {} of {}>".format(self.native, self.target)


def _slots(text):
    parts = []
    for part in text.split():
        ours, _, theirs = part.rstrip("*^").partition("=")
        parts.append(Slot(ours, theirs or ours, part.endswith("*"), "matrix" if part.endswith("^") else ""))
    return parts


def _counters(text):
    parts = []
    for part in text.split():
        ours, _, theirs = part.rstrip("?").partition("=")
        parts.append(Counter(ours, theirs or ours, part.endswith("?")))
    return parts
