"""An entry of the stock table, which describes one stock optimizer."""
from __future__ import absolute_import, division, print_function

from collections import namedtuple

from everstep.errors import ConfigError
from everstep.optimizers.contract.declarations import REQUIRED

# {argument of stock classes: argument of definitions}, for arguments that all stock classes spell differently.
_RENAMED = dict(
    base="power_base", beta1="beta_1", beta2="beta_2", eeta="trust_coefficient", l1_regularization_strength="l1",
    l2_regularization_strength="l2", l2_shrinkage_regularization_strength="l2_shrinkage", use_nesterov="nesterov",
)
HOMES = dict(
    optimizer_v2="OptimizerV2", get_updates="Keras 2.0 to 2.3", update_step="new-style Keras", keras3="Keras 3"
)


def own_count(name):
    """Returns what is wrong with updates= of the optimizer `name`."""
    return "{} counts its updates itself; leave out updates=, which is for a stock optimizer that does not".format(name)


# A slot on disk. name: in the definition; native: on disk; always: whether it exists even if it is unused; rank:
# "matrix" if only variables of rank 2 or more have it, "vector" if only the others have it, and those that the
# definition tells from them by name, "own" if its shape is not the variable's, but one that the definition declares;
# else "".
Slot = namedtuple("Slot", "name native always rank")
# A number on disk beside the slots. name: in the definition; native: on disk; optional: whether some versions or
# settings do not save it.
Counter = namedtuple("Counter", "name native optional")
# {name in the definition: name on disk} of the slots of wrappers: gradient_accumulation_steps and use_ema of Keras, and
# Lookahead, MovingAverage and SWA of TensorFlow Addons.
AROUND = {
    "accumulate/sum": "", "moving_average/average": "average", "lookahead/slow": "slow", "swa/average": "average",
}
# The same in files of tf.train.Saver: the average that tf.train.ExponentialMovingAverage keeps beside a variable.
AROUND_SAVED = {"moving_average/average": "ExponentialMovingAverage"}


class Stock(object):
    """A stock optimizer of one API.

    Attributes:
        target: the name of the API, see compat/targets/detect.py.
        native: the name of the stock class.
        home: the API's name for docs.
        definition: the class of the definition that computes the same.
        defaults: `{stock argument: its default}`; REQUIRED if it has none.
        names: `{stock argument: argument of the definition}`.
        fixed: `{option of the definition: value}`, the options that make the definition compute this API's form.
        refused: `{stock argument: why}` for arguments that no definition supports if they are set.
        needed: `{stock argument: why}` for arguments without which a class or a config is an older one, which computes
            something else.
        none: `{stock argument: value of the definition}` for arguments that are None if they are off.
        op: the end of the slots' names in files of tf.train.Saver, followed by _1, _2, ... for all but the first slot.
        blocks: the slots on disk, a list of lists of `Slot`; see table.py.
        slots: all slots, in the order in which tf.train creates them.
        head, tail: the `Counter`s before and after the slots.
        note: a remark for docs.
        differs: what stock computes and no definition should, for docs and warnings; or None.
    """

    def __init__(self, target, native, definition, arguments, fixed=(), sparse="exact", slots="", counters="",
                 op="", renamed=(), refused=(), needed=(), none=(), home=None, note="", differs=None):
        self.target, self.native, self.definition = target, native, definition
        self.home, self.op, self.note, self.differs = home or HOMES[target], op, note, differs
        self.defaults, self.fixed, self.none = dict(arguments), dict(fixed), dict(none)
        self.refused, self.needed = dict(refused), dict(needed)
        renamed = dict(_RENAMED, **dict(renamed))
        self.names = {theirs: renamed.get(theirs, theirs) for theirs in arguments}
        self._sparse = sparse
        self.blocks = [block for block in map(_slots, slots.split("|")) if block]
        self.slots = [slot for block in self.blocks for slot in block]
        self.head, self.tail = (_counters(part) for part in (counters + "|").split("|")[:2])

    @property
    def slot_names(self):
        """`{name on disk: name in the definition}` of the slots."""
        return {slot.native: slot.name for slot in self.slots}

    def sparse(self, options):
        """Returns the value of `sparse=` that treats sparse gradients as stock does, for the definition's options."""
        return self._sparse(options) if callable(self._sparse) else self._sparse

    def class_in(self, module):
        """Returns the stock class in a module, or in its `optimizers`; None if there is none."""
        return getattr(getattr(module, "optimizers", module), self.native, None)

    def make(self, arguments, **overrides):
        """Returns the definition that computes what the stock optimizer does with these arguments.

        Args:
            arguments: `{stock argument: value}`; the others get the stock defaults.
            overrides: options of the definition, which override all others.

        Raises:
            ConfigError: an argument without a default is missing.
        """
        values = dict(self.defaults, **arguments)
        missing = sorted(theirs for theirs, value in values.items() if value is REQUIRED and theirs not in overrides)
        if missing:
            raise ConfigError("{} has no default for {}: say what it was".format(self.native, " and ".join(missing)))
        options = {self.names[theirs]: value for theirs, value in values.items()}
        options.update(self.fixed)
        options.update(overrides)
        return self.definition(sparse=self.sparse(options), **options)

    def __repr__(self):
        return "<stock {} of {}>".format(self.native, self.target)


_RANKS = {"^": "matrix", "-": "vector", ".": "own"}


def _slots(text):
    """Parses slots in the notation of table.py, such as "m v_hat=vhat velocity* rows=r^ v=velocity-"."""
    slots = []
    for part in text.split():
        ours, _, theirs = part.rstrip("*^-.").partition("=")
        slots.append(Slot(ours, theirs or ours, part.endswith("*"), _RANKS.get(part[-1], "")))
    return slots


def _counters(text):
    """Parses counters, such as "updates=iterations momentum_product=m_schedule?"; `?` marks an optional one."""
    counters = []
    for part in text.split():
        ours, _, theirs = part.rstrip("?").partition("=")
        counters.append(Counter(ours, theirs or ours, part.endswith("?")))
    return counters
