"""Finds optimizers that the code defines itself, and private attributes of optimizers that it uses."""
from __future__ import absolute_import, division, print_function

import os

from everstep.scan.finder import Finder, bases
from everstep.scan.parsing import one_line, text_of
from everstep.scan.places import schedule_base, shown

# {hook: the APIs that call it}
_HOOKS = {
    "_apply_dense": ("tf_train",), "_apply_sparse": ("tf_train",),
    "_resource_apply_dense": ("tf_train", "optimizer_v2"),
    "_resource_apply_sparse": ("tf_train", "optimizer_v2"), "_apply_sparse_duplicate_indices": ("tf_train",),
    "_resource_apply_sparse_duplicate_indices": ("tf_train", "optimizer_v2"), "_prepare": ("tf_train", "optimizer_v2"),
    "_finish": ("tf_train",), "_create_slots": ("tf_train", "optimizer_v2"), "_prepare_local": ("optimizer_v2",),
    "_create_hypers": ("optimizer_v2",), "_create_all_weights": ("optimizer_v2",), "get_updates": ("get_updates",),
    "update_step": ("update_step", "keras3"), "compute_gradients": ("tf_train",), "get_gradients": (
        "get_updates", "optimizer_v2"), "apply_gradients": ("tf_train", "optimizer_v2", "update_step", "keras3"),
    "minimize": ("tf_train", "optimizer_v2", "update_step"), "_transform_gradients": ("optimizer_v2",),
    "_aggregate_gradients": ("optimizer_v2",), "build": ("update_step", "keras3"), "apply": ("keras3",),
}
# Those of them that decide which API a class is of. For the others it does not matter if nothing calls them.
_DECIDE = ("_apply_dense", "_resource_apply_dense", "get_updates", "update_step")
_PUBLIC = {"get_updates": ("get_updates", "optimizer_v2"), "get_gradients": ("get_updates", "optimizer_v2")}
_OWN_SCHEDULE = "a schedule of one API: bind takes it there, elsewhere write it as an everstep.Schedule"
_APIS = {"tensorflow": "tf.keras", "keras": "keras", "tf_keras": "tf_keras"}


class Classes(Finder):
    """Visits the classes and attributes of a file."""

    def visit(self, node):
        """Looks at a node of the tree."""
        if node.type == "class_definition":
            self._class(node)
        elif node.type == "attribute":
            self._attribute(node)

    def _class(self, node):
        scope = self.module.scope_of(node)
        places = [place for base in bases(node) for each in self.module.resolved(base, scope)
                  for place in self.places_behind(each)]
        if not places:
            self._schedule(node, scope)
            is_named = any(text_of(base).endswith("Optimizer") and None in self.module.resolved(base, scope)
                           for base in bases(node))  # keras.optimizers.Optimizer of an argument keras
            methods = [name for name, _ in _methods(node)]
            decide = [name for name in methods if name in _DECIDE]
            decide += [name for name in methods if name in _HOOKS and is_named]
            if decide and bases(node):
                self.not_understood(node, "class {} has {} of an optimizer, but what it extends is not known".format(
                    text_of(node.child_by_field_name("name")), decide[0]))
            return
        place = places[0]
        hooks, steps = [], 2
        for name, parameters in _methods(node):
            if name in _HOOKS:
                hooks.append(name)
            if name == "update_step":
                steps = parameters
        spans = [span for each in places if each.detail != "private" for span in _spans(each, hooks, steps)]
        name = text_of(node.child_by_field_name("name"))
        overrides = "it overrides {}".format(", ".join(hooks)) if hooks else "it overrides no hook"
        notes = [overrides] + ["a private base: which versions have it is not known"] * (place.detail == "private")
        command = "everstep port {}:{} --api {}".format(self._importable(), name, _api(place))
        nested = scope.kind != "module"
        if nested:
            notes.append("it stands inside a function or class: everstep port takes a class of a module")
        self.add(node, "class", "class {}({})".format(name, ", ".join(one_line(base) for base in bases(node))),
                 spans=spans, notes=notes, write=None if nested else command)

    def _schedule(self, node, scope):
        """A class that extends the schedules of an API."""
        followed = [each for base in bases(node) for each in self.module.resolved(base, scope)]
        spans = [span for each in followed if isinstance(each, str) for span in schedule_base(each)]
        if spans:
            self.add(node, "schedule", "class {}({})".format(
                text_of(node.child_by_field_name("name")), ", ".join(one_line(base) for base in bases(node))),
                spans=spans, notes=[_OWN_SCHEDULE])

    def _importable(self):
        """Returns the dotted name by which this file is imported."""
        stem = os.path.splitext(os.path.basename(self.module.path))[0]
        return ".".join(filter(None, [self.module.package, "" if stem == "__init__" else stem])) or stem

    def _attribute(self, node):
        name = text_of(node.child_by_field_name("attribute"))
        is_private = name.startswith("_") and not name.endswith("__")
        if not is_private and name not in _PUBLIC:
            return
        holder = node.child_by_field_name("object")
        if holder.type not in ("identifier", "attribute", "call"):
            return
        place = self._made(holder)
        if place is None or _is_assigned(node):
            return
        what = "{} of {}".format(name, shown(place.module, place.name))
        if is_private:
            self.add(node, "private", what, notes=["private: other optimizers may not have it, see docs/hooks.md"])
        else:
            spans = [span for span in place.spans if span.target in _PUBLIC[name]]
            self.add(node, "call", what, spans=spans, notes=["newer APIs have no {}".format(name)])

    def _made(self, holder):
        """Returns the `Place` of the optimizer that a name was assigned; None if it may be something else."""
        places = []
        made = [(holder, None)] if holder.type == "call" else self.module.values(holder)
        for value, scope in made:
            if value.type != "call":
                return None
            for each in self.module.resolved(value.child_by_field_name("function"), scope):
                places += self.places_behind(each)[:1] or [None]
        known = [place for place in places if place is not None and place.kind != "wrapper"]
        return known[0] if known and len(known) == len(places) else None


def _methods(node):
    """Yields (name, number of parameters without self) of a class's methods."""
    body = node.child_by_field_name("body")
    for child in body.named_children if body is not None else ():
        child = child.child_by_field_name("definition") or child if child.type == "decorated_definition" else child
        if child.type == "function_definition":
            parameters = child.child_by_field_name("parameters").named_children
            yield text_of(child.child_by_field_name("name")), len([
                each for each in parameters if each.type != "comment"]) - 1


def _spans(place, hooks, steps):
    """Returns the versions in which a class with some hooks is an optimizer."""
    decide = [hook for hook in hooks if hook in _DECIDE]
    if not decide:
        return list(place.spans)
    targets = set(target for hook in decide for target in _HOOKS[hook])
    if "update_step" in decide:  # Keras 3 gives it the learning rate too
        targets.discard("update_step" if steps >= 3 else "keras3")
    return [span for span in place.spans if span.target in targets]


def _api(place):
    root = place.module.split(".")[0]
    is_train = any(span.target == "tf_train" for span in place.spans)
    return "tf.train" if is_train else _APIS.get(root, "tf.keras")


def _is_assigned(node):
    parent = node.parent
    return parent is not None and parent.type == "assignment" and parent.child_by_field_name("left") == node
