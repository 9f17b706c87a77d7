"""Reads what one step of an original does: builds its graph, finds the part of each variable, and runs it."""
from __future__ import absolute_import, division, print_function

from collections import Counter, OrderedDict, namedtuple

from everstep.compat.port.algebra import ops
from everstep.compat.port.machine import Array, Machine, Reference, Unknown, in_order_of_need
from everstep.compat.port.originals import Original
from everstep.compat.port.rules import RULES
from everstep.compat.port.spelling import declared_name
from everstep.errors import PortError

# The part of a variable. kind: "variable", "counter", "hyper", "slot", "number" (of the optimizer), or "other": of
# another variable than the first. name: in the definition. native: the variable itself. saved: its name in a
# checkpoint of tf.train.Saver, with {var}; None if it does not say.
Role = namedtuple("Role", "kind name native saved")
_VARIABLES = ("var", "variable", "param", "p", "v_", "w", "x", "model_variable")


class Reading(object):
    """What one step of an original does to its first variable.

    Attributes:
        setting: a `Setting`.
        original: the `Original`, ready to run.
        roles: {key: Role}.
        machine: the `Machine` that ran.
        outputs: {name: expression}: "var", "slots.NAME" and "number.NAME" after the step, in terms of those before.
        slots: the names of slots, before they are made distinct. Those given tell slots of a scalar from numbers.
    """

    def __init__(self, kind, setting, arguments=(), slots=()):
        self.kind, self.setting, self.slots = kind, setting, set(slots)
        self.original = built(kind, setting)
        self.arguments = set(arguments)
        self.roles = self._roles()
        self.running = False

    def run(self, patches=(), axes="trailing"):
        original = self.original
        needed = in_order_of_need(original.fetches, original.graph)
        if original.in_order:
            number = {op: place for place, op in enumerate(original.graph.get_operations())}
            needed.sort(key=number.__getitem__)
        names = original.local_names.tensors
        self.machine = machine = Machine(original.graph, self._leaf, original.in_order, RULES, patches, names, axes)
        frame = machine.frames[0]
        for name, place in original.inputs.items():
            frame[name] = ops.leaf("grad" if place == 0 else "other.grad")
        if original.in_order:
            self._bind_captures(frame)
        machine.run(needed)
        self.outputs = OrderedDict()
        for key, role in self.roles.items():
            if role.kind in ("variable", "slot", "number"):
                name = {"variable": "var", "slot": "slots." + role.name, "number": "number." + role.name}[role.kind]
                self.outputs[name] = machine.last(key)
        return self

    def _bind_captures(self, frame):
        for _, internal in self.original.graph.captures:
            key = internal.name
            if key in self.original.constants:
                value = self.original.constants[key]
                frame[key] = ops.constant(value.item()) if value.ndim == 0 else Array(value)
            elif key in self.roles:
                frame[key] = Reference(key)
            else:
                frame[key] = Unknown("a variable that the optimizer does not hold")

    def _leaf(self, key):
        role = self.roles.get(key)
        if role is None:
            raise PortError("it uses {}, a variable that is not the optimizer's".format(key))
        if role.kind == "variable":
            return ops.leaf("var")
        if role.kind == "counter":
            return ops.leaf("t") - 1
        given = self.setting.arguments.get(role.name)
        if role.kind == "hyper" and isinstance(given, bool):  # a flag that is kept as a hyper
            return ops.constant(given)
        prefix = {"hyper": "hyper.", "slot": "slots.", "number": "number.", "other": "other."}[role.kind]
        return ops.leaf(prefix + role.name)

    # Parts of variables.

    def _roles(self):
        original, roles = self.original, OrderedDict()
        counters = [getattr(each, "_value", each) for each in original.counters]
        shapes = [tuple(shape) for shape in self.setting.shapes]
        for key, places in original.found.items():
            native = getattr(places[-1][1], "_value", places[-1][1])
            paths = [path for path, _ in places]
            if "variable 0" in paths:
                roles[key] = Role("variable", "var", native, None)
            elif any(path.startswith("variable ") for path in paths):
                roles[key] = Role("other", "var", native, None)
            elif any(native is each for each in counters):
                roles[key] = Role("counter", "t", native, None)
            else:
                shape = tuple(int(size) for size in native.shape.as_list())
                name = self._name(key, paths, places)
                is_slot = any("._slots." in path for path in paths) or shape != () or name in self.slots
                kind = "slot" if is_slot else "number"
                if any("._hyper." in path for path in paths):
                    kind = "hyper"
                elif shape in shapes[1:] and shape != shapes[0] or self._is_others(key, places):
                    kind = "other"
                self.slots.update([name] if kind == "slot" else ())
                own = [ours for ours, theirs in self.kind.renamed.items() if kind == "hyper" and theirs == name]
                roles[key] = Role(kind, (own or [name])[0], native, self._saved(key))
        return self._distinct(roles)

    def _is_others(self, key, places):
        """Returns whether a variable belongs to another one than the first, by its name."""
        texts = [key] + [path for path, _ in places] + [str(native.name) for _, native in places]
        return any(name in text for name in self.setting.names[1:] for text in texts)

    def _name(self, key, paths, places):
        """Returns the name of a variable in the definition, from where the optimizer has it or its code calls it."""
        slot = [path.split(".") for path in paths if "._slots." in path]
        if slot:
            parts = slot[0]  # _slots.NAME.VARIABLE of tf.train, _slots.VARIABLE.NAME of OptimizerV2
            return parts[-1] if self.kind.target == "optimizer_v2" else parts[parts.index("_slots") + 1]
        plain = [path for path in paths if path and "#" not in path and "._weights" not in path]
        if plain:
            return plain[0].split(".")[-1]
        local = [name for _, native in places for name in self.original.local_names.variables.get(id(native), ())]
        local = [name for name in local if name not in _VARIABLES]
        if local:
            return local[0]
        lists = [path.split(".")[-2].strip("_") for path in paths if path.endswith(".#")]
        lists = [name for name in lists if "weight" not in name and "ariable" not in name and name != "updates"]
        if lists:
            return lists[0][:-1] if lists[0].endswith("s") else lists[0]
        return str(places[-1][1].name).split("/")[-1].split(":")[0]

    def _saved(self, key):
        name = key.replace("/.ATTRIBUTES", "")
        variable = self.setting.names[0]
        if self.original.in_order or name.count(variable) != 1:
            return None
        return name.replace(variable, "{var}")

    def _distinct(self, roles):
        """Returns roles with names that a definition may declare, each once."""
        taken, used = set(self.arguments), Counter()
        taken |= {declared_name(role.name) for role in roles.values() if role.kind == "hyper"}
        for key, role in list(roles.items()):
            if role.kind not in ("hyper", "slot", "number"):
                continue
            name = declared_name(role.name)
            if role.kind == "slot" and name in taken:
                name = {"momentum": "velocity"}.get(name, name + "_slot")
            used[name] += 1
            roles[key] = role._replace(name=name if used[name] == 1 else "{}_{}".format(name, used[name]))
        return roles

    # The live original.

    def start(self):
        """Makes the original ready to run."""
        if not self.running:
            moves = any(self.roles[key].kind == "counter" for key in self.machine.written)
            self.original.start_running(moves)
            self.initial = {
                (role.kind, role.name): self.original.number(role.native)
                for role in self.roles.values() if role.kind in ("slot", "number", "hyper")
            }
            self.running = True
        return self

    def values(self, kind):
        """Returns {name: present value} of all variables of a kind."""
        return {role.name: self.original.number(role.native) for role in self.roles.values() if role.kind == kind}

    def close(self):
        self.original.close()


def built(kind, setting):
    """Returns an Original, or raises PortError if it cannot be built."""
    try:
        return Original.of(kind, setting)
    except PortError:
        raise
    except Exception as error:
        raise PortError("{} fails on variables of shapes {}{}: {}: {}".format(
            kind.cls.__name__, ", ".join(map(str, setting.shapes)),
            " with sparse gradients" if setting.sparse else "", type(error).__name__, _first_line(error)))


def _first_line(error):
    lines = str(error).strip().splitlines() or [""]
    return lines[0][:300]
