"""Finds calls and strings that make an optimizer, a schedule or a wrapper, and names of optimizers without a call."""
from __future__ import absolute_import, division, print_function

from everstep.compat.stock.lookup import entries_of
from everstep.scan.finder import Finder
from everstep.scan.names import OwnClass
from everstep.scan.parsing import Arguments, Chunk, bare, literal, one_line, text_of
from everstep.scan.places import is_optimizer_module, place_of, shown
from everstep.scan.schedules import schedule

# tf.contrib.layers and tf_slim: https://github.com/google-research/tf-slim/blob/master/tf_slim/optimizers.py (contrib)
_OPTIMIZE_LOSS = {
    "Adagrad": "AdagradOptimizer", "Adam": "AdamOptimizer", "Ftrl": "FtrlOptimizer", "Momentum": "MomentumOptimizer",
    "RMSProp": "RMSPropOptimizer", "SGD": "GradientDescentOptimizer",
}
_OPTIMIZE_LOSS_ORDER = ("loss", "global_step", "learning_rate", "optimizer", "gradient_noise_scale",
                        "gradient_multipliers", "clip_gradients", "learning_rate_decay_fn")
_KERAS_NAMES = {
    entry.native.lower(): entry.native for target in ("get_updates", "optimizer_v2", "update_step", "keras3")
    for entry in entries_of(target)
}
_WRAPPER_NOTES = {
    "averages": "if it averages the trained variables: everstep.moving_average around the definition",
    "lookahead": "everstep.lookahead around the definition does the same on every API",
    "SWA": "everstep.stochastic_weight_averaging around the definition does the same on every API",
    "loss scale": "everstep.loss_scale around the definition does the same on every API",
    "Horovod": "it takes a bound definition, see docs/distribution.md",
    "replicas": "it takes a bound definition, see docs/distribution.md",
    "weight decay": "everstep.decoupled_weight_decay around the definition, with times_rate=False",
    "clipping": "everstep.clip around the definition does the same on every API",
    "workers": "it takes a bound definition, see docs/wrappers.md",
    "several optimizers": "everstep.partition of the definitions does the same",
}
IS_INSTANCE = "an optimizer of everstep is no instance of it"
_LITERALS = ("string", "concatenated_string")


class Calls(Finder):
    """Visits the calls and names of a file."""

    def visit(self, node):
        """Looks at a node of the tree."""
        if node.type == "call":
            self._call(node)
        elif node.type in ("attribute", "identifier"):
            self._name(node)

    def _call(self, node):
        function = bare(node.child_by_field_name("function"))
        if text_of(function) == "getattr":
            self._computed_name(node)
        if function.type not in ("identifier", "attribute", "call", "conditional_expression", "boolean_operator"):
            return
        stands_for = self.module.resolved(function)
        if stands_for == [None] and function.type == "attribute" and self.may_be_stock(function):
            self.not_understood(node, "{}: what it is of is not known".format(one_line(function)))
        for each in stands_for:
            place = None if each is None or isinstance(each, OwnClass) else place_of(each)
            if place is not None:
                _CALLED[place.kind](self, node, function, place, Arguments(node))
            elif self.may_be_stock(function) and isinstance(each, str) and _looks_like_stock(each):
                self.not_understood(node, "{}: {} is not among the scanned files".format(one_line(function), each))
        if function.type == "attribute" and text_of(function.child_by_field_name("attribute")) == "compile":
            self._compile(node, function, Arguments(node))

    def _construction(self, node, function, place, arguments):
        self.add_stock(node, "construction", shown(place.module, place.name), place, arguments, node)

    def _unsupported(self, node, function, place, arguments):
        self.add(node, "construction", shown(place.module, place.name), spans=place.spans,
                 notes=["no definition: " + place.detail])

    def _base(self, node, function, place, arguments):
        pass  # nobody makes one

    def _schedule(self, node, function, place, arguments):
        text, why = schedule(place.name, arguments)
        self.add(node, "schedule", shown(place.module, place.name), definition=text, spans=place.spans, write=text,
                 notes=[why] if why else [])

    def _wrapper(self, node, function, place, arguments):
        definition, notes = None, [_WRAPPER_NOTES[place.detail]]
        if place.name == "clip_by_global_norm":
            bound = arguments.get("clip_norm", 1)
            if bound is not None:
                definition = "everstep.clip(definition, global_norm={})".format(one_line(bound))
            notes = ["if these are the gradients that are applied; definition is that of the optimizer"]
        self.add(node, "wrapper", shown(place.module, place.name), definition=definition, spans=place.spans,
                 notes=notes)

    def _get(self, node, function, place, arguments):
        given = arguments.get("identifier", 0)
        known, name = literal(given) if given is not None else (False, None)
        if known and _KERAS_NAMES.get(str(name).lower()):
            self._named(given, "optimizers.get({!r})".format(str(name)), name, place.module, node)
        else:
            what = one_line(given) if given is not None else "nothing"
            self.not_understood(node, "{} gets {}, which may be any optimizer".format(one_line(function), what))

    def _named(self, node, what, name, module, replaced):
        """Adds a text that stands for a Keras class with its defaults. replaced: see `add_stock`."""
        place = place_of("{}.{}".format(module, _KERAS_NAMES[str(name).lower()]))
        if place is None:
            self.not_understood(node, "{} has no optimizer {!r}".format(shown(module), str(name)))
        else:
            self.add_stock(node, "string", "{}: {}".format(what, shown(module, place.name)), place,
                           Arguments(Chunk("f()").root.named_children[0].named_children[0]), replaced)

    def _compile(self, node, function, arguments):
        """`model.compile(optimizer="adam")`."""
        receiver = self.module.resolved(function.child_by_field_name("object"))
        if any(each is not None and not isinstance(each, OwnClass) for each in receiver):
            return  # re.compile
        named = "optimizer" in arguments.named
        given = arguments.get("optimizer", 0)
        if given is None:
            return
        texts = self._texts(given)
        if texts is None:
            if named and not self._is_made_here(given):
                self.not_understood(given, "the optimizer that compile gets is not known: {}".format(one_line(given)))
            return
        for node_of_text, name in texts:
            if name.lower() in _KERAS_NAMES:
                self._in_compile(node_of_text, name)
            elif named:
                self.not_understood(node_of_text, "compile gets the optimizer {!r}, which no Keras has".format(name))

    def _in_compile(self, node, name):
        kinds = self.keras_kinds()
        if len(kinds) != 1:
            self.not_understood(node, "compile gets {!r}: {}".format(
                name, "the file uses {}".format(" and ".join(map(shown, kinds))) if kinds else
                "which Keras the model is of does not stand in this file"))
        for kind in kinds if len(kinds) == 1 else ():
            is_argument = node.parent.type in ("argument_list", "keyword_argument")
            self._named(node, "compile({!r})".format(name), name, kind + ".optimizers", node if is_argument else None)

    def _texts(self, node):
        """Returns [(node, text)] of an expression that is a text, or a name of texts; None if it may be more."""
        node = bare(node)
        if node.type in _LITERALS:
            known, value = literal(node)
            return [(node, value)] if known and isinstance(value, str) else None
        if node.type == "identifier":
            values = self.module.values(node)
            found = [self._texts(value) for value, _ in values if value.type in _LITERALS]
            if values and len(found) == len(values) and None not in found:
                return [pair for pairs in found for pair in pairs]
        return None

    def _is_made_here(self, node):
        """Returns whether an expression is a call that is found elsewhere, or a name of such calls."""
        node = bare(node)
        if node.type == "call":
            function = node.child_by_field_name("function")
            is_ours = text_of(function.child_by_field_name("attribute") or function) == "bind"
            return is_ours or any(self.is_optimizer(each) for each in self.module.resolved(function))
        values = self.module.values(node) if node.type in ("identifier", "attribute") else []
        return bool(values) and all(value.type == "call" and self._is_made_here(value) for value, _ in values)

    def _optimize_loss(self, node, function, place, arguments):
        given = {name: arguments.get(name, number) for number, name in enumerate(_OPTIMIZE_LOSS_ORDER)}
        known, name = literal(given["optimizer"]) if given["optimizer"] is not None else (False, None)
        if not known:
            if given["optimizer"] is not None and not self._is_made_here(given["optimizer"]):
                self.not_understood(node, "the optimizer that optimize_loss gets is not known: {}".format(
                    one_line(given["optimizer"])))
            return
        if name not in _OPTIMIZE_LOSS or given["learning_rate"] is None:
            self.not_understood(node, "optimize_loss gets {!r} and {} learning rate".format(
                name, "no" if given["learning_rate"] is None else "a"))
            return
        made = Arguments(Chunk("f()").root.named_children[0].named_children[0])
        made.named = {"learning_rate": given["learning_rate"]}
        if name == "Momentum":
            made.named["momentum"] = Chunk("0.9").root.named_children[0].named_children[0]
        beside = [each for each in _OPTIMIZE_LOSS_ORDER[4:] if given[each] is not None]
        around = ""
        if beside == ["clip_gradients"] and literal(given["clip_gradients"])[0]:
            around, beside = one_line(given["clip_gradients"]), []
        train = "tensorflow.compat.v1.train." if place.module == "tf_slim" else "tensorflow.train."
        stock = place_of(train + _OPTIMIZE_LOSS[name])
        self.add_stock(node, "string", "optimize_loss({!r}): {}".format(name, shown(stock.module, stock.name)), stock,
                       made, None, global_norm=around, extra=["optimize_loss also gets {}, which is not in the "
                                                              "definition".format(", ".join(beside))] if beside else [])

    def _computed_name(self, node):
        """`getattr(tf.train, name)`."""
        arguments = Arguments(node)
        if len(arguments.positional) < 2 or literal(arguments.positional[1])[0]:
            return
        for each in self.module.resolved(arguments.positional[0]):
            if each is not None and not isinstance(each, OwnClass) and is_optimizer_module(each):
                self.not_understood(node, "{} may be any optimizer of {}".format(one_line(node), shown(each)))

    def _name(self, node):
        """A stock class that is named without a call: in a table, as an argument, for isinstance."""
        parent = node.parent
        if parent is None or not self.may_be_stock(node) or _is_part_of_name(node, parent) or _is_called(node):
            return
        for each in self.module.resolved(node):
            place = None if each is None or isinstance(each, OwnClass) else place_of(each)
            if place is not None and place.kind in ("optimizer", "unsupported"):
                is_private = place.detail == "private"
                notes = ["named without a call: its arguments are not known" if place.kind == "optimizer" else
                         "no definition: " + place.detail]
                self.add(node, "name", shown(place.module, place.name), spans=() if is_private else place.spans,
                         notes=notes + [IS_INSTANCE] * _is_asked_for(node))


def _looks_like_stock(dotted):
    """Returns whether a name is what a module of the code may have from TensorFlow or Keras."""
    parts = dotted.split(".")
    return "keras" in parts[:-1] or parts[-2:-1] == ["train"] and parts[-1].endswith("Optimizer")


def _is_part_of_name(node, parent):
    """Returns whether a name is looked at as a part of something else: of a call, an import, a longer name, a class."""
    is_base = parent.type == "argument_list" and (parent.parent.type == "class_definition" or text_of(
        parent.parent.child_by_field_name("function")) == "super")
    if parent.type in ("attribute", "ERROR") or is_base:
        return True
    while parent is not None and parent.type in ("dotted_name", "aliased_import"):
        parent = parent.parent
    named = ("import_statement", "import_from_statement", "function_definition", "class_definition", "parameters",
             "global_statement", "future_import_statement")
    if parent is not None and parent.type in named:
        return True
    left = parent.child_by_field_name("left") or parent.child_by_field_name("name") if parent is not None else None
    return left == node and parent.type in ("assignment", "keyword_argument", "named_expression", "default_parameter")


def _is_asked_for(node):
    """Returns whether a name stands in a call such as isinstance(optimizer, (A, B))."""
    while node.parent is not None and node.parent.type in ("tuple", "argument_list"):
        node = node.parent
    return node.parent is not None and node.parent.type == "call" and text_of(
        node.parent.child_by_field_name("function")).lower().endswith(("isinstance", "issubclass"))


def _is_called(node):
    """Returns whether a name is called, alone or as one of several: `(A if x else B)(0.1)`."""
    while node.parent is not None and node.parent.type in ("parenthesized_expression", "conditional_expression",
                                                           "boolean_operator"):
        node = node.parent
    return node.parent is not None and node.parent.type == "call" and \
        node.parent.child_by_field_name("function") == node


_CALLED = {
    "optimizer": Calls._construction, "unsupported": Calls._unsupported, "base": Calls._base,
    "schedule": Calls._schedule, "wrapper": Calls._wrapper, "get": Calls._get,
    "optimize_loss": Calls._optimize_loss,
}
