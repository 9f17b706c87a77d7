"""What all that finds places in a file needs: the file, its names, and where to put what is found."""
from __future__ import absolute_import, division, print_function

from everstep.compat.stock.table import STOCK, UNSUPPORTED
from everstep.compat.stock.third_party import OTHERS
from everstep.scan.findings import Edit, Finding, NotUnderstood
from everstep.scan.meaning import meaning
from everstep.scan.names import OwnClass
from everstep.scan.parsing import one_line, text_of
from everstep.scan.places import canonical, place_of
from everstep.scan.spelling import Line, begins
from everstep.scan.versions import newest, ranges

_CLASSES = frozenset([entry.native for entry in STOCK + tuple(OTHERS.values())] + list(UNSUPPORTED) +
                     ["AdamWeightDecay", "ScipyOptimizerInterface", "ExternalOptimizerInterface"])
_KERAS_ROOTS = ("tensorflow.keras", "keras", "tf_keras")


class Finder(object):
    """Finds places of one kind in a file.

    Args:
        module: the `Module` of names.
        found: a list for `Finding`s.
        unknown: a list for `NotUnderstood`s.
        edits: a list for `Edit`s.
        on: `{product: version}` that the code runs on now; None if that is not known.
        to: the module to write lines for, a key of `spelling.TO`; None for the one that the code uses.
    """

    def __init__(self, module, found, unknown, edits, on=None, to=None):
        self.module, self._found, self._unknown, self._edits, self._on, self._to = module, found, unknown, edits, on, to
        self.chunk = None
        self._kinds, self._line = None, Line(module, to)

    def add(self, node, kind, what, definition=None, definitions=(), spans=(), works_on=None, changes=(), write=None,
            imports=(), notes=()):
        line, column = self.chunk.place(node)
        notes = list(notes)
        if under_error(node):
            notes.append("the code around it does not parse")
        needs = ["import everstep"] * bool(write and write.startswith("everstep.")) + list(imports)
        finding = Finding(
            self.module.path, line, column, kind, what, definition, [list(each) for each in definitions],
            ranges(spans) if works_on is None else works_on, list(changes), write, needs, notes, _broken(spans))
        self._found.append(finding)
        return finding

    def not_understood(self, node, why):
        line, column = self.chunk.place(node)
        self._unknown.append(NotUnderstood(self.module.path, line, column, why))

    def add_stock(self, node, kind, what, place, arguments, replaced, global_norm="", extra=()):
        """Adds what stands for a stock class with arguments.

        Args:
            replaced: the node that the new line replaces; None if an edit of one place is not enough.
            global_norm: text of a bound that clips around it; "" if none does.
        """
        means = meaning(place, arguments, self._on)
        definition, definitions, notes = means.definition, means.definitions, means.notes + list(extra)
        if global_norm:
            around = "everstep.clip({}, global_norm=%s)" % global_norm.replace("{", "{{").replace("}", "}}")
            definition = definition and around.format(definition)
            definitions = [(versions, around.format(text)) for versions, text in definitions if text]
        write, imports, why = None, [], "there is no definition for it"
        if definition is not None:
            write, imports, why = self._line.written(definition, place, means, arguments, node)
            if self._to and self._line.moves_rate(arguments):
                notes.append("its learning rate is an expression: on another API give a number or an everstep schedule")
        elif definitions:
            why = "what it computes depends on the version: say which one the code runs on, with --on"
            notes.append(why)
        found = self.add(node, kind, what, definition, definitions, means.spans, means.works_on, means.changes, write,
                         imports, notes)
        if why is None and replaced is None:
            why = "it takes more than a new line: {}".format(one_line(node))
        self._edits.append(Edit(found, self.chunk, replaced if replaced is not None else node, why))

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
            self._kinds = [root for root in _KERAS_ROOTS if any(begins(each, root) for each in followed)]
        return self._kinds

    def may_be_stock(self, node):
        """Returns whether a name can be a stock class: so that few names have to be followed."""
        if node.type == "attribute":
            return text_of(node.child_by_field_name("attribute")) in _CLASSES
        return text_of(node) in _CLASSES

    def is_optimizer(self, each):
        """Returns whether something that a name stands for is an optimizer class, stock or the code's own."""
        return bool(self.places_behind(each))

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


def _broken(spans):
    """Returns whether the newest version of a package does not have something. Not where nothing is known."""
    products = set(span.product for span in spans)
    return bool(spans) and not any(span.holds(newest(span.product)) for span in spans if span.product in products)


def in_broken_statement(node):
    """Returns whether the statement that a node stands in has an error, or an error is around it."""
    statement = node
    while statement.parent is not None and not statement.type.endswith("_statement"):
        statement = statement.parent
    return under_error(node) or statement.type.endswith("_statement") and statement.has_error


def under_error(node):
    """Returns whether a node stands in code that does not parse."""
    while node is not None:
        if node.type == "ERROR":
            return True
        node = node.parent
    return False
