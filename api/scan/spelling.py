"""Writes the line that makes an optimizer of everstep, in the words of the file: its names of modules, its imports."""
from __future__ import absolute_import, division, print_function

import re

from everstep.scan.names import OwnClass
from everstep.scan.parsing import bare, literal, one_line, text_of, walk
from everstep.scan.places import canonical, place_of
from everstep.scan.signatures import order

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
      "tf.keras": "tensorflow.keras", "keras": "keras", "tf_keras": "tf_keras", "torch": "torch.optim",
      "optax": "optax"}
# {key of TO: (argument that the line needs, why no edit may write it)}: the code around it is another one there
_OTHER_CODE = {
    "torch": ("params=model.named_parameters()", "torch needs the model's parameters here, and other code around it"),
    "optax": ("", "optax needs other code around it"),
}
_DENSE = ("keras", "optax")  # whose gradients are dense
# {package: [(name, import)]}, the first whose name is free
_IMPORTS = {
    "tensorflow": [("tf", "import tensorflow as tf"), ("tensorflow", "import tensorflow"),
                   ("tf_module", "import tensorflow as tf_module")],
    "keras": [("keras", "import keras"), ("keras_module", "import keras as keras_module")],
    "torch": [("torch", "import torch"), ("torch_module", "import torch as torch_module")],
    "optax": [("optax", "import optax"), ("optax_module", "import optax as optax_module")],
    "tf_keras": [("tf_keras", "import tf_keras"), ("tf_keras_module", "import tf_keras as tf_keras_module")],
}
# Arguments of stock that are no part of a definition. {argument: whether another module takes it too}
_NATIVE = {"name": True, "use_locking": False, "jit_compile": False}
_SPARSE = re.compile(r"(\bsparse='\w+')(?=[,)])")
_LOST = ("accum_name", "linear_name", "skip_list", "sign_decay_fn")
_TENSORS = ("placeholder", "placeholder_with_default", "constant", "Variable", "get_variable", "convert_to_tensor")


class Line(object):
    """Writes lines for one file.

    Args:
        module: the `Module` of its names.
        to: a key of `TO`; None for the module that the code uses.
    """

    def __init__(self, module, to=None):
        self._module, self._to, self._bound = module, to, None

    def written(self, definition, place, means, arguments, node):
        """Returns (the line, the imports that it needs, why no edit may write it: None if one may).

        Args:
            definition: its text.
            place: the `Place` of the stock class.
            means: the `Meaning` of the call.
            arguments: its `Arguments`.
            node: what is replaced.
        """
        target = TO[self._to] if self._to else self._target(place)
        there = _as_it_stands(node, place, target)
        name, imports, is_free = (there, [], True) if there else self._spelled(target, self._module.scope_of(node))
        if self._to in _DENSE:  # at the rule: wrappers do not hand it down
            definition = _SPARSE.sub(r"\1, dense_ok=True", definition)
        given = self._given(means, place, arguments)
        needs, why = _OTHER_CODE.get(self._to, ("", None))
        native = [needs] * bool(needs) if why else [
            "{}={}".format(each, one_line(given[each])) for each in sorted(_NATIVE)
            if each in given and (_NATIVE[each] or not self._to)]
        line = "{}.bind({})".format(definition, ", ".join([name] + native))
        if not is_free:
            why = "{} is another name here".format(name.split(".")[0])
        if self._taken("everstep", self._module.scope_of(node)):
            why = "everstep is another name here"
        lost = [each for each in _LOST if each in given]
        if lost:
            why = "its {} is no part of the line".format(lost[0])
        return line, imports, why or _unsafe(node) or self._moved(arguments)

    def _target(self, place):
        """Returns the module to bind to. A private one of tf.train is that of compat.v1 if the file imports that."""
        target = _BOUND_TO.get(_public(place), _public(place))
        imported = self._imported(self._module.scope).values() if place.detail == "private" else ()
        is_v1 = target == "tensorflow.train" and any(begins(each, "tensorflow.compat.v1") for each in imported)
        return "tensorflow.compat.v1.train" if is_v1 else target

    def moves_rate(self, arguments):
        """Returns whether the learning rate is an expression, which another API may not take."""
        rate = arguments.get("learning_rate", 0)
        return rate is not None and not literal(rate)[0]

    def _moved(self, arguments):
        """Returns why a rate cannot go to another API: it is a tensor or a schedule of this one."""
        rate = arguments.get("learning_rate", 0)
        if not self._to or rate is None:
            return None
        values = [bare(rate)] + [value for value, _ in self._module.values(rate)]
        for value in values:
            if value.type == "call":
                function = value.child_by_field_name("function")
                places = [place_of(each) for each in self._module.resolved(function) if isinstance(each, str)]
                last = text_of(function.child_by_field_name("attribute") or function)
                if last in _TENSORS or any(place is not None and place.kind == "schedule" for place in places):
                    return "its learning rate is a tensor or schedule of one API: {}".format(one_line(value))
        return None

    def _given(self, means, place, arguments):
        names = order(means.spans[0], place.name) if means.spans else ()
        return dict(zip(names, arguments.positional), **arguments.named)

    def _spelled(self, dotted, scope):
        """Returns (a module as this place can write it, the imports that it lacks, whether the name is its)."""
        imported = self._imported(scope)
        best = max((each for each in imported.items() if begins(dotted, each[1])),
                   key=lambda each: len(each[1]), default=None)
        if best is not None:
            return best[0] + dotted[len(best[1]):], [], True
        root = dotted.split(".")[0]
        for name, line in _IMPORTS[root]:
            if not self._taken(name, scope):
                return name + dotted[len(root):], [line], True
        return dotted, [], False

    def _imported(self, scope):
        """Returns `{name: module}` of the imports that a scope sees, where they are the only thing of that name."""
        aliases, hidden, start = {}, set(), scope
        while scope is not None:
            if scope.kind != "class_definition" or scope is start:
                for name, bounds in scope.bound.items():
                    if name in hidden:
                        continue
                    hidden.add(name)
                    followed = self._module.followed(bounds[0].value) if bounds[0].kind == "import" else []
                    if len(bounds) == len(followed) == 1 and followed[0] and not isinstance(followed[0], OwnClass):
                        aliases[name] = canonical(followed[0])
            scope = scope.parent
        return aliases

    def _taken(self, name, scope):
        """Returns whether a name is bound anywhere in the file to something else than a module of that name."""
        if self._bound is None:
            self._bound = {}
            for each in [self._module.scope] + list(self._module.scopes.values()):
                for bound, bounds in each.bound.items():
                    self._bound.setdefault(bound, []).extend(bounds)
        return any(bound.kind != "import" or bound.value != name for bound in self._bound.get(name, []))


def begins(dotted, module):
    """Returns whether a dotted name is a module or in it."""
    return dotted == module or dotted.startswith(module + ".")


def _as_it_stands(node, place, target):
    """Returns the module in the words of a call, such as `tf.train` of `tf.train.AdamOptimizer()`; None if it has none.

    So the line is right for each module that `tf` may be.
    """
    function = bare(node.child_by_field_name("function")) if node.type == "call" else node
    holder = function.child_by_field_name("object") if function.type == "attribute" else None
    if holder is None or any(each.type not in ("attribute", "identifier") for each in walk(holder)):
        return None
    text = one_line(holder)
    if target == place.module and text.endswith(".train"):
        return text
    if target + ".optimizers" == place.module and text.endswith(".optimizers"):
        return text[:-len(".optimizers")]
    return None


def _public(place):
    if place.detail != "private":
        return place.module
    if place.module.startswith("tensorflow.python.training."):
        return "tensorflow.train"
    if place.module.startswith("tensorflow.contrib.opt."):
        return "tensorflow.contrib.opt"
    return ("tensorflow.keras" if place.module.startswith("tensorflow") else place.module.partition(".")[0]) + \
        ".optimizers"


def _unsafe(node):
    """Returns why the text of an expression cannot be written in one line; None if it can."""
    for each in walk(node):
        if each.type == "comment":
            return "there is a comment in it"
        text = text_of(each)
        if each.type == "string" and ("\n" in text or "  " in text or "\t" in text):
            return "there is a text of several lines or spaces in it"
    return None
