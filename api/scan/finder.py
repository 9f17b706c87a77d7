"""What all that finds places in a file needs: the file, its names, and where to put what is found."""
from __future__ import absolute_import, division, print_function

from everstep.compat.stock.table import STOCK, UNSUPPORTED
from everstep.compat.stock.third_party import OTHERS
from everstep.scan.findings import Finding, NotUnderstood
from everstep.scan.meaning import meaning
from everstep.scan.names import OwnClass
from everstep.scan.parsing import literal, text_of
from everstep.scan.places import canonical, place_of
from everstep.scan.versions import newest, ranges

_CLASSES = frozenset([entry.native for entry in STOCK + tuple(OTHERS.values())] + list(UNSUPPORTED) +
                     ["AdamWeightDecay", "ScipyOptimizerInterface", "ExternalOptimizerInterface"])
_KERAS_ROOTS = ("tensorflow.keras", "keras", "tf_keras")
# {module of a stock class: the module to bind to}
_BOUND_TO = {
    "tensorflow.contrib.opt": "tensorflow.train", "tensorflow.keras.optimizers": "tensorflow.keras",
    "tensorflow.compat.v1.keras.optimizers": "tensorflow.compat.v1.keras", "tensorflow.optimizers": "tensorflow.keras",
    "tensorflow.contrib.keras.optimizers": "tensorflow.contrib.keras", "keras.optimizers": "keras",
    "tensorflow.optimizers.legacy": "tensorflow.keras.optimizers.legacy", "tf_keras.optimizers": "tf_keras",
    "tensorflow.keras.optimizers.experimental": "tensorflow.keras", "tensorflow_addons.optimizers": "tensorflow.keras",
    "transformers": "tensorflow.keras",
}
TO = {"tf.train": "tensorflow.train", "tf.compat.v1.train": "tensorflow.compat.v1.train",
      "tf.keras": "tensorflow.keras", "keras": "keras", "tf_keras": "tf_keras"}
_IMPORTS = {"tensorflow": "import tensorflow as tf", "keras": "import keras", "tf_keras": "import tf_keras"}


class Finder(object):
    """Finds places of one kind in a file.

    Args:
        module: the `Module` of names.
        found: a list for `Finding`s.
        unknown: a list for `NotUnderstood`s.
        on: `{product: version}` that the code runs on now; None if that is not known.
        to: the module to write lines for, a key of `TO`; None for the one that the code uses.
    """

    def __init__(self, module, found, unknown, on=None, to=None):
        self.module, self._found, self._unknown, self._on, self._to = module, found, unknown, on, to
        self.chunk = None
        self._kinds = None
        self._aliases = None

    def add(self, node, kind, what, definition=None, definitions=(), spans=(), works_on=None, changes=(), write=None,
            imports=(), notes=()):
        line, column = self.chunk.place(node)
        notes = list(notes)
        if _under_error(node):
            notes.append("the code around it does not parse")
        needs = ["import everstep"] * bool(write and write.startswith("everstep.")) + list(imports)
        self._found.append(Finding(
            self.module.path, line, column, kind, what, definition, [list(each) for each in definitions],
            ranges(spans) if works_on is None else works_on, list(changes), write, needs, notes, _broken(spans)))

    def not_understood(self, node, why):
        line, column = self.chunk.place(node)
        self._unknown.append(NotUnderstood(self.module.path, line, column, why))

    def add_stock(self, node, kind, what, place, arguments, function, global_norm="", extra=()):
        """Adds what stands for a stock class with arguments.

        Args:
            function: the node of the class's name in a call; None if there is none.
            global_norm: text of a bound that clips around it; "" if none does.
        """
        means = meaning(place, arguments, self._on)
        definition, definitions, notes = means.definition, means.definitions, means.notes + list(extra)
        if global_norm:
            around = "everstep.clip({}, global_norm=%s)" % global_norm.replace("{", "{{").replace("}", "}}")
            definition = definition and around.format(definition)
            definitions = [(versions, around.format(text)) for versions, text in definitions if text]
        write, imports = None, []
        if definition is not None:
            write, imports = self._line(definition, place, means.sparse)
            rate = arguments.get("learning_rate", 0)
            if self._to and rate is not None and not literal(rate)[0]:
                notes.append("its learning rate is an expression: on another API give a number or an everstep schedule")
        elif definitions:
            notes.append("what it computes depends on the version: say which one the code runs on, with --on")
        self.add(node, kind, what, definition, definitions, means.spans, means.works_on, means.changes, write, imports,
                 notes)

    def _line(self, definition, place, sparse):
        """Returns (the line that makes the optimizer, the imports that it needs)."""
        target = TO[self._to] if self._to else _BOUND_TO.get(_public(place), _public(place))
        name, imports = self._spelled(target)
        dense = ".replace(dense_ok=True)" if self._to == "keras" and sparse not in (None, "exact") else ""
        return "{}{}.bind({})".format(definition, dense, name), imports

    def _spelled(self, dotted):
        """Returns (a module as this file can write it, the imports that it lacks)."""
        best = max((each for each in self._imported().items() if _begins(dotted, each[1])),
                   key=lambda each: len(each[1]), default=None)
        if best is not None:
            return best[0] + dotted[len(best[1]):], []
        root = dotted.split(".")[0]
        return ("tf" + dotted[len(root):] if root == "tensorflow" else dotted), [_IMPORTS[root]]

    def _imported(self):
        """Returns `{name: module}` of the file's imports of frameworks."""
        if self._aliases is None:
            self._aliases = {}
            for name, bounds in self.module.scope.bound.items():
                followed = self.module.followed(bounds[0].value) if bounds[0].kind == "import" else []
                if len(bounds) == len(followed) == 1 and followed[0] and not isinstance(followed[0], OwnClass):
                    self._aliases[name] = canonical(followed[0])
        return self._aliases

    def keras_kinds(self):
        """Returns the Keras modules that this file uses: `tensorflow.keras`, `keras`, `tf_keras`."""
        if self._kinds is None:
            names = set()
            for scope in [self.module.scope] + list(self.module.scopes.values()):
                for bounds in scope.bound.values():
                    names.update(bound.value for bound in bounds if bound.kind == "import")
                names.update(scope.stars)
            followed = set()
            for name in names:
                followed.update(each for each in self.module.followed(name) if isinstance(each, str))
            followed.update(self.module.attributes_named("keras"))
            followed = set(canonical(each).replace("tensorflow.python.keras", "tensorflow.keras") for each in followed)
            self._kinds = [root for root in _KERAS_ROOTS if any(_begins(each, root) for each in followed)]
        return self._kinds

    def may_be_stock(self, node):
        """Returns whether a name can be a stock class: so that few names have to be followed."""
        if node.type == "attribute":
            return text_of(node.child_by_field_name("attribute")) in _CLASSES
        return text_of(node) in _CLASSES

    def is_optimizer(self, each, depth=0):
        """Returns whether something that a name stands for is an optimizer class, stock or the code's own."""
        return bool(self.places_behind(each, depth))

    def places_behind(self, each, depth=0):
        """Returns the `Place`s of a stock class, or of those that an own class extends: several, after a `try`."""
        if each is None or depth > 8:
            return []
        if not isinstance(each, OwnClass):
            place = place_of(each)
            kinds = ("optimizer", "unsupported", "base", "wrapper")
            return [place] if place is not None and place.kind in kinds else []
        found = []
        for base in bases(each.node):
            for other in each.module.resolved(base, each.scope):
                if not (isinstance(other, OwnClass) and other.node == each.node):
                    found += [place for place in self.places_behind(other, depth + 1) if place not in found]
        return found


def bases(node):
    """Returns the nodes of the classes that a class extends."""
    listed = node.child_by_field_name("superclasses")
    return [each for each in listed.named_children if each.type != "keyword_argument"] if listed is not None else []


def _public(place):
    if place.detail != "private":
        return place.module
    if place.module.startswith("tensorflow.python.training."):
        return "tensorflow.train"
    if place.module.startswith("tensorflow.contrib.opt."):
        return "tensorflow.contrib.opt"
    return ("tensorflow.keras" if place.module.startswith("tensorflow") else place.module.partition(".")[0]) + \
        ".optimizers"


def _begins(dotted, module):
    return dotted == module or dotted.startswith(module + ".")


def _broken(spans):
    """Returns whether the newest version of a package does not have something. Not where nothing is known."""
    products = set(span.product for span in spans)
    return bool(spans) and not any(span.holds(newest(span.product)) for span in spans if span.product in products)


def _under_error(node):
    while node is not None:
        if node.type == "ERROR":
            return True
        node = node.parent
    return False
