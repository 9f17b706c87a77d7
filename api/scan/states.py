"""Finds what saves and loads the state of optimizers: its files are read otherwise once the optimizer is another."""
from __future__ import absolute_import, division, print_function

from everstep.scan.finder import Finder
from everstep.scan.names import OwnClass
from everstep.scan.parsing import bare, text_of
from everstep.scan.places import canonical, shown

_SAVER = "its files find slots by names, such as W/Adam: everstep.read_checkpoint and everstep.warm_start read them"
_OBJECTS = "its files find slots by objects: everstep.read_checkpoint reads them"
_WHOLE = "it stores the optimizer too: everstep.custom_objects for load_model, everstep.read_checkpoint for the state"
_NO_OPTIMIZER = "weights alone, or slots too, by the format: see docs/loaders.md"
_TRAIN = {
    "Saver": _SAVER, "Checkpoint": _OBJECTS, "CheckpointManager": _OBJECTS, "MonitoredTrainingSession": _SAVER,
    "Supervisor": _SAVER, "CheckpointSaverHook": _SAVER, "NewCheckpointReader": _SAVER, "load_checkpoint": _SAVER,
    "load_variable": _SAVER, "list_variables": _SAVER, "init_from_checkpoint": _SAVER, "import_meta_graph": _SAVER,
    "Scaffold": _SAVER, "SingularMonitoredSession": _SAVER, "warm_start": _SAVER,
}
# {beginning of a name: {name below it: note}}
_NAMES = {
    "tensorflow.train.": _TRAIN,
    "tensorflow.compat.v1.train.": _TRAIN,
    "tensorflow.contrib.framework.": dict.fromkeys((
        "init_from_checkpoint", "assign_from_checkpoint", "assign_from_checkpoint_fn", "load_checkpoint",
        "load_variable", "list_variables"), _SAVER),
    "tensorflow.contrib.slim.": dict.fromkeys(("assign_from_checkpoint", "assign_from_checkpoint_fn"), _SAVER),
    "tf_slim.": dict.fromkeys(("assign_from_checkpoint", "assign_from_checkpoint_fn"), _SAVER),
    "tensorflow.contrib.eager.": {"Saver": _SAVER, "Checkpoint": _OBJECTS},
    "tensorflow.contrib.checkpoint.": {"CheckpointManager": _OBJECTS},
    "tensorflow.estimator.": {"WarmStartSettings": _SAVER},
}
_PRIVATE_TRAIN = "tensorflow.python.training."
_KERAS = {
    "models.load_model": _WHOLE, "models.save_model": _WHOLE, "saving.load_model": _WHOLE, "saving.save_model": _WHOLE,
    "callbacks.ModelCheckpoint": _WHOLE, "callbacks.BackupAndRestore": _OBJECTS,
    "callbacks.experimental.BackupAndRestore": _OBJECTS,
}
for _root in ("horovod.keras.", "horovod.tensorflow.keras."):
    _NAMES[_root] = {"load_model": _WHOLE}
for _root in ("tensorflow.python.", "tensorflow."):
    _NAMES[_root + "pywrap_tensorflow."] = {"NewCheckpointReader": _SAVER}
for _root in ("tensorflow.keras.", "tensorflow.python.keras.", "keras.", "tf_keras.", "tensorflow.compat.v1.keras.",
              "tensorflow.contrib.keras."):
    _NAMES[_root] = _KERAS
_MODELS = ("Sequential", "Model", "load_model", "clone_model", "model_from_json")
_OF_MODELS = {"save": _WHOLE, "save_weights": _NO_OPTIMIZER, "load_weights": _NO_OPTIMIZER}
_OF_OPTIMIZERS = ("get_weights", "set_weights", "save_own_variables", "load_own_variables", "weights", "variables")
_LIST = "a list in stock's order: everstep.capture and everstep.restore carry it to another optimizer"


class States(Finder):
    """Visits the calls of a file."""

    def visit(self, node):
        """Looks at a node of the tree."""
        if node.type != "call":
            return
        function = bare(node.child_by_field_name("function"))
        if function.type not in ("identifier", "attribute"):
            return
        for each in self.module.resolved(function):
            name = None if each is None or isinstance(each, OwnClass) else canonical(each)
            note = name and note_of(name)
            if note:
                module, _, last = name.rpartition(".")
                self.add(node, "state", shown(module, last), notes=[note])
                return
        if function.type == "attribute":
            self._method(node, function.child_by_field_name("object"),
                         text_of(function.child_by_field_name("attribute")))

    def _method(self, node, holder, verb):
        if verb in _OF_MODELS and self._is_model(holder):
            self.add(node, "state", "{} of a model".format(verb), notes=[_OF_MODELS[verb]])
        elif verb in _OF_OPTIMIZERS and self._is_optimizer(holder):
            self.add(node, "state", "{} of an optimizer".format(verb), notes=[_LIST])

    def _is_model(self, holder):
        """Returns whether a name was assigned a Keras model in this file, and nothing else that is a call."""
        return self._made_by(holder, lambda each: not isinstance(each, OwnClass) and "keras" in each.split(".")[:3]
                             and each.rpartition(".")[2] in _MODELS)

    def _is_optimizer(self, holder):
        if holder.type == "attribute" and text_of(holder.child_by_field_name("attribute")) == "optimizer" and \
                self._is_model(holder.child_by_field_name("object")):
            return True
        return self._made_by(holder, lambda each: any(place.kind == "optimizer" for place in self.places_behind(each)))

    def _made_by(self, holder, is_right):
        if holder.type not in ("identifier", "attribute"):
            return False
        values = self.module.values(holder)
        made = [each for value, scope in values if value.type == "call"
                for each in self.module.resolved(value.child_by_field_name("function"), scope)]
        return bool(made) and all(each is not None and is_right(each) for each in made)


def note_of(name):
    """Returns what is said of a dotted name that saves or loads the state of optimizers; None for others."""
    if name.startswith(_PRIVATE_TRAIN):  # in one of its modules, such as saver
        return _TRAIN.get(name[len(_PRIVATE_TRAIN):].partition(".")[2])
    for beginning, names in _NAMES.items():
        if name.startswith(beginning) and name[len(beginning):] in names:
            return names[name[len(beginning):]]
    return None
