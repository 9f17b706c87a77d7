"""Damages files of every format, at random: their structure, with right checksums, and their bytes. See fuzz.py.

`mutate(format, seed, folder)` makes one file. Equal arguments make equal files on one major version of Python.
"""
from __future__ import absolute_import, division, print_function

import copy
import io
import json
import os
import pickletools
import random
import shutil
import struct
import zipfile
import zlib
from collections import OrderedDict, namedtuple

import numpy as np

import crafted_files as crafted
import everstep
from crafted_files import BUNDLES, FILES, block, copy_bundle, fixtures, h5py, read_bytes, table, varint, write_bytes

STATES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "states")

# path: for the readers; how: arguments of read_checkpoint; source: path of the whole file, or None;
# what: the changes in words; checked: whether checksums must notice that an array changed.
Mutant = namedtuple("Mutant", "path how source what checked")

NUMBERS = [0, 1, -1, 2, 3, 7, 127, 128, 255, 256, 65535, 65536, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32,
           1 << 53, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, 10**19, -(1 << 31), -(1 << 63), -(1 << 70), 10**400]
TEXTS = [u"", u"a", u"0", u"\0", u"\ud800", u"\u202e\x1b[31m", u"a" * 100000, u"/", u"a/b", u"..", u"%s{}{0}{x}",
         u"Adam", u"everstep>Adam", u"SGD", u"AdamOptimizer", u"nan", u"float32", u"<f4", u"|O", u"array_0.npy",
         u"everstep-state", u"\u6743"]
VALUES = NUMBERS + TEXTS + [
    None, True, False, 0.5, -0.0, 1e-45, 1e308, float("nan"), float("inf"), -float("inf"), [], [0], [[]], [None], {},
    {"a": 1}, {"class_name": "Adam", "config": {}}, {"class_name": "Adam"}, {"class_name": 3, "config": {}},
    {"class_name": "everstep>Adam", "config": {"everstep": {}}}, {"module": "builtins", "class_name": "lambda",
                                                                  "config": {"value": "x"}, "registered_name": None},
    {"class_name": "ExponentialDecay", "config": {"initial_learning_rate": 0.1, "decay_steps": 0, "decay_rate": 2}},
    {"definition": "Adam"}, {"schedule": "PolynomialDecay"}, {"__tuple__": []}, [1] * 1000, crafted.deep(50),
    crafted.deep(300),
]


# JSON


def nodes(tree):
    """Returns [(container, key)] of everything in a JSON tree."""
    result, left = [], [tree]
    while left:
        each = left.pop()
        items = each.items() if isinstance(each, dict) else enumerate(each) if isinstance(each, list) else ()
        for key, value in items:
            result.append((each, key))
            left.append(value)
    return result


def mutate_json(chance, text):
    """Returns (changed JSON, what was changed)."""
    root = [json.loads(text, object_pairs_hook=OrderedDict)]
    what = []
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        places = nodes(root)
        container, key = chance.choice(places)
        action = chance.choice(["value", "value", "value", "delete", "rename", "swap", "edit", "wrap", "add"])
        what.append("{} {}".format(action, repr(key)[:30]))
        value, new = container[key], copy.deepcopy(chance.choice(VALUES))
        if action == "value":
            container[key] = new
        elif action == "delete" and container is not root:
            del container[key]
        elif action == "rename" and isinstance(container, dict):
            container[chance.choice(TEXTS)] = container.pop(key)
        elif action == "swap":
            other, name = chance.choice(places)
            container[key] = copy.deepcopy(other[name])
        elif action == "edit" and isinstance(value, (int, float)):
            as_float = float(value) if abs(value) < 1 << 99 else 0.5  # an int may be too large
            container[key] = chance.choice([value + 1, value - 1, -value, value * 1000, as_float, [value]])
        elif action == "edit" and hasattr(value, "lower"):
            container[key] = chance.choice([value[:-1], value + u"x", value.upper(), value * 2, [value]])
        elif action == "edit" and isinstance(value, list):
            container[key] = chance.choice([value * 2, value[:-1], value[::-1], value + [None], tuple(value)])
        elif action == "wrap":
            container[key] = chance.choice([[value], {"config": value}, {"a": value}])
        elif isinstance(value, dict):
            value[chance.choice(TEXTS)] = new
        elif isinstance(value, list):
            value.append(new)
    text = json.dumps(root[0])
    if chance.random() < 0.1:
        odd = chance.choice(["1" + "0" * 5000, "1e999", "-1e999", "[" * 3000 + "]" * 3000, "\"\\ud800\"", "[" * 100000,
                             "0x1", "{\"a\": 1, \"a\": 2}", "'a'", "\"\t\""])
        text, what = text.replace("1", odd, 1), what + ["JSON " + odd[:20]]
    return text, "JSON: " + ", ".join(what)


# Bytes


def mutate_bytes(chance, data):
    """Returns (changed bytes, what was changed)."""
    data, what = bytearray(data), []
    for _ in range(chance.choice([1, 1, 1, 2, 3, 8])):
        place, length = chance.randrange(max(1, len(data))), chance.choice([1, 2, 4, 8, 16, 100, 512])
        action = chance.choice(["flip", "flip", "byte", "number", "number", "run", "insert", "delete", "cut", "copy"])
        what.append("{} {}+{}".format(action, place, length))
        form, start = chance.choice("<H <I <Q >H >I >Q".split()), chance.randrange(max(1, len(data)))
        number = struct.pack(form, chance.choice(NUMBERS[:20]) % (1 << 8 * struct.calcsize(form)))
        aligned = place - place % len(number)
        old = data[place] if data else 0
        stop, new = {  # what stands from `place` to `stop` is replaced
            "flip": (place + 1, [old ^ 1 << chance.randrange(8)]),
            "byte": (place + 1, [chance.choice([0, 1, 127, 128, 254, 255])]),
            "number": (aligned + len(number), number[place - aligned :]),
            "run": (place + length, [chance.choice([0, 255])] * length),
            "insert": (place, [chance.randrange(256) for _ in range(length)]),
            "delete": (place + length, b""), "cut": (len(data), b""),
            "copy": (place + length, data[start : start + length])}[action]
        data[place:stop] = bytearray(new)
    return bytes(data), "bytes: " + ", ".join(what)


# Protobuf messages


def parsed(data):
    """Returns [[field, kind, value]] of a protobuf message, with messages in it parsed too; None if it is none."""
    data, position, result = bytearray(data), 0, []
    try:
        while position < len(data):
            tag, position = crafted.read_varint(data, position)
            if not 8 <= tag < 1 << 16:
                return None
            if tag & 7 == 0:
                value, position = crafted.read_varint(data, position)
            else:
                length = {1: 8, 5: 4}.get(tag & 7)
                if tag & 7 == 2:
                    length, position = crafted.read_varint(data, position)
                if length is None or length > len(data) - position:
                    return None
                value = bytes(data[position : position + length])
                position += length
                inner = parsed(value) if tag & 7 == 2 and value else None
                value = value if inner is None else inner
            result.append([tag >> 3, tag & 7, value])
    except (IndexError, ValueError):
        return None
    return result


def packed(fields):
    """Returns the bytes of a parsed message."""
    parts = []
    for field, kind, value in fields:
        value = packed(value) if isinstance(value, list) else value if isinstance(value, bytes) else varint(value)
        parts.append(varint(field << 3 | kind) + (varint(len(value)) if kind == 2 else b"") + value)
    return b"".join(parts)


def mutate_message(chance, data):
    """Returns (changed message, what was changed)."""
    root, what = parsed(data), []
    if not root or chance.random() < 0.05:
        return mutate_bytes(chance, data)
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        lists, left = [], [root]
        while left:
            lists.append(left.pop())
            left.extend(value for _, _, value in lists[-1] if isinstance(value, list))
        lists = [each for each in lists if each]
        if not lists:
            break
        holder = chance.choice(lists)
        place, other = chance.randrange(len(holder)), chance.randrange(len(holder))
        field = holder[place]
        action = chance.choice(["value", "value", "value", "value", "number", "kind", "drop", "double", "swap", "nest"])
        what.append("{} of field {}".format(action, field[0]))
        if action == "value" and isinstance(field[2], list):
            field[2] = chance.choice([b"", b"\xff\xff", packed(field[2])[:-1], packed(field[2]) * 2])
        elif action == "value" and field[1] == 0:
            value = field[2] if isinstance(field[2], int) else 0
            field[2] = chance.choice([chance.choice(NUMBERS[:-1]), value + 1, value - 1, value * 2])
        elif action == "value":
            text = bytes(field[2]) if not isinstance(field[2], int) else b""
            field[2] = chance.choice([text[:-1], text + b"x", b"", b"\xff", text.upper(), text * 300, b"\0" + text])
        elif action in ("number", "kind"):
            field[action == "kind"] = chance.choice([1, 2, 3, 4, 5, 6, 7, 8, 15, 100] if action == "number" else
                                                    [0, 1, 2, 3, 5, 7])
        elif action == "drop":
            del holder[place]
        elif action == "swap":
            holder[place][2], holder[other][2] = holder[other][2], holder[place][2]
        else:
            nested = [chance.choice([1, 2, 3, 7]), 2, copy.deepcopy(chance.choice(lists))]
            holder.insert(place, nested if action == "nest" else copy.deepcopy(field))
    return packed(root), "message: " + ", ".join(what)


# .npz of ours, .keras


def mutate_zip(chance, source, path):
    """JSON, HDF5 or any member in it, the zip around it, or bytes. A file of ours keeps right places and checksums."""
    data, ours = read_bytes(source), source.endswith(".npz")
    action = chance.choice(["json", "json", "json", "bytes", "bytes", "zip", "member"] + ["h5", "h5"] * (not ours))
    if action == "bytes":
        data, what = mutate_bytes(chance, data)
        write_bytes(path, data)
        return what, True
    with zipfile.ZipFile(source) as archive:
        members = [[name, archive.read(name)] for name in archive.namelist()]
    ends = {"json": ".json", "h5": ".h5"}.get(action, "")
    member, what = chance.choice([member for member in members if member[0].endswith(ends)]), "zip"
    if action == "json":
        text, what = mutate_json(chance, member[1].decode("utf-8"))
        member[1] = text.encode("ascii")
    elif action == "h5":
        write_bytes(path + ".old", member[1])
        what, _ = mutate_h5(chance, path + ".old", path + ".new")
        member[1] = read_bytes(path + ".new")
        os.remove(path + ".old")
        os.remove(path + ".new")
    elif action == "member":
        member[1], what = mutate_bytes(chance, member[1])
    if action == "zip" or ours and chance.random() < 0.05:
        write_zip_of(chance, path, members)
    elif ours:
        write_bytes(path, crafted.npz_of([contents for _, contents in members]))
    else:
        kind = chance.choice([zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
        with zipfile.ZipFile(path, "w", kind) as archive:
            for name, contents in members:
                archive.writestr(name, contents)
    return "{}: {}".format(member[0], what), False


def write_zip_of(chance, path, members):
    """Writes an ordinary zip, with some members missing, twice, in another order, packed or with odd names."""
    action = chance.choice(["order", "drop", "double", "name", "extra", "packed", "empty"])
    place = chance.randrange(len(members))
    if action == "order":
        chance.shuffle(members)
    elif action == "name":
        members[place][0] = chance.choice([" ", "a/b", "../x", u"\u6743.h5", "x" * 60000, "\\", "config.json"])
    else:
        extra = [chance.choice(["x.json", "x.h5", "x"]), b"\0" * chance.choice([0, 10, 1 << 20])]
        members = {"drop": members[:place] + members[place + 1 :], "double": members + [members[place]],
                   "extra": members + [extra], "empty": []}.get(action, members)
    kinds = [getattr(zipfile, name) for name in ("ZIP_STORED", "ZIP_DEFLATED", "ZIP_BZIP2", "ZIP_LZMA")
             if hasattr(zipfile, name)]
    with zipfile.ZipFile(path, "w", chance.choice(kinds)) as archive:
        for name, contents in members:
            archive.writestr(name, contents)
        archive.comment = chance.choice([b"", b"", b"x" * 1000])


# HDF5


def mutate_h5(chance, source, path):
    shutil.copyfile(source, path)
    what = []
    if chance.random() < 0.7:
        with h5py.File(path, "r+") as file:
            for _ in range(chance.choice([1, 1, 1, 2, 4])):
                what.append(change_h5(chance, file))
    if not what or chance.random() < 0.05:
        data, more = mutate_bytes(chance, read_bytes(path))
        write_bytes(path, data)
        what.append(more)
    return "; ".join(what), False


def change_h5(chance, file):
    """Changes an attribute, an array, a group or a link. Returns what in words."""
    names = []
    file.visit(names.append)
    if not names:
        return "nothing left"
    owners = [file] + [file[name] for name in names]
    with_attributes = [owner for owner in owners if len(owner.attrs)]
    if with_attributes and chance.random() < 0.5:
        owner = chance.choice(with_attributes)
        name = chance.choice(sorted(owner.attrs))
        return u"{}: {}".format(name, change_attribute(chance, owner, name))
    name = chance.choice(names)
    return u"{}: {}".format(name, change_object(chance, file, name, names))


def change_attribute(chance, owner, name):
    try:
        value = owner.attrs[name]
    except Exception:  # h5py cannot read what an earlier change made
        value = b""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    if hasattr(text, "lower") and text[:1] == "{" and chance.random() < 0.8:
        try:
            text, what = mutate_json(chance, text)
        except ValueError:  # changed before
            return "kept"
        del owner.attrs[name]
        try:
            owner.attrs[name] = np.bytes_(text.encode("ascii")) if chance.random() < 0.5 else text
        except Exception:  # some are longer than an attribute can be
            return what + " failed"
        return what
    names = np.asarray(value).ravel()
    actions = OrderedDict([
        ("drop", lambda: None), ("empty", lambda: h5py.Empty("f")), ("number", lambda: np.int64(3)),
        ("float", lambda: 0.5), ("text", lambda: u"x"), ("bad UTF-8", lambda: np.bytes_(b"\xff\xfe")),
        ("no text", lambda: np.bytes_(b"")), ("matrix", lambda: np.ones((2, 3))),
        ("no names", lambda: np.array([], "S1")), ("numbers", lambda: np.arange(3)),
        ("compound", lambda: np.zeros(2, [("a", "i4"), ("b", "f4")])), ("bool", lambda: np.bool_(True)),
        ("shorter", lambda: names[:-1]), ("twice", lambda: np.concatenate([names, names])),
        ("backwards", lambda: names[::-1]), ("two axes", lambda: np.stack([names, names])),
        ("absolute", lambda: np.array([b"/" + np.asarray(each).tobytes().strip(b"\0") for each in names])),
        ("dots", lambda: np.array([b".", b"..", b"/", b"//"])), ("bad names", lambda: np.array([b"\xff", b"a"])),
        ("many names", lambda: np.array([("%d" % number).encode("ascii") for number in range(5000)])),
        ("complex", lambda: np.complex64(1j)), ("void", lambda: np.void(b"abc")),
        ("object names", lambda: np.array([u"\u6743", u"b"], dtype=h5py.special_dtype(vlen=type(u""))))])
    action = chance.choice(list(actions))
    try:
        value = actions[action]()
        del owner.attrs[name]
        if value is not None:
            owner.attrs[name] = value
    except Exception:  # this h5py cannot write that
        return action + " failed"
    return action


def change_object(chance, file, name, names):
    item = file.get(name)
    shape = getattr(item, "shape", None) or ()
    if np.prod(np.maximum(shape, 1), dtype=np.float64) > 1e6 or len(shape) > 30:  # after an earlier change
        shape = ()
    zeros = lambda kind, size=shape: dict(data=np.zeros(size, kind))  # noqa: E731
    arrays = OrderedDict([
        ("f2", zeros("f2")), ("f8", zeros("f8")), (">f4", zeros(">f4")), ("i4", zeros("i4")), ("u1", zeros("u1")),
        ("i8 below 0", dict(data=np.full(shape, -5, "i8"))), ("i8 large", dict(data=np.full(shape, (1 << 63) - 1))),
        ("bool", zeros("?")), ("complex", zeros("c8")), ("void", zeros("V2")), ("void 0", zeros("V7")),
        ("compound", zeros([("a", "f4"), ("b", "f4")])), ("array type", zeros(np.dtype(("f4", (2,))))),
        ("text", dict(data=np.zeros(shape, "S5"))), ("longdouble", zeros(np.longdouble)),
        ("vlen text", dict(data=u"x", dtype=h5py.special_dtype(vlen=type(u"")))),
        ("references", dict(shape=shape, dtype=h5py.special_dtype(ref=h5py.Reference))),
        ("enum", dict(shape=shape, dtype=h5py.special_dtype(enum=("i4", {"a": 1})))),
        ("vlen", dict(shape=shape, dtype=h5py.special_dtype(vlen=np.dtype("f4")))), ("scalar", zeros("f4", ())),
        ("one", zeros("f4", (1,))), ("no rows", zeros("f4", (0,) + shape[1:])),
        ("other shape", zeros("f4", shape[::-1])), ("more axes", zeros("f4", shape + (1,))),
        ("many axes", zeros("f4", (1,) * 32)), ("null", dict(data=h5py.Empty("f4"))),
        ("NaN", dict(data=np.full(shape, np.nan, "f4"))), ("infinite", dict(data=np.full(shape, np.inf, "f4"))),
        ("without data", dict(shape=shape, dtype="f4")), ("huge", dict(shape=(1 << 20, 1 << 20), dtype="f4")),
        ("huge, packed", dict(shape=(1 << 30, 64), dtype="f4", chunks=(1024, 64), compression="gzip")),
        ("overflow", dict(shape=(1 << 40, 1 << 40), dtype="f4", chunks=(64, 64))),
        ("long and empty", dict(shape=(1 << 60, 0), dtype="f4", chunks=(64, 1), maxshape=(None, None))),
        ("gzip", dict(data=np.zeros(shape or (1,), "f4"), compression="gzip")),
        ("lzf", dict(data=np.zeros(shape or (1,), "f4"), compression="lzf")),
        ("shuffle, Fletcher", dict(data=np.zeros(shape or (1,), "f4"), shuffle=True, fletcher32=True)),
        ("scaleoffset", dict(data=np.zeros(shape or (1,), "i4"), scaleoffset=3)),
        ("resizable", dict(data=np.zeros(shape or (1,), "f4"), maxshape=(None,) * max(1, len(shape)))),
        ("external", dict(shape=(3,), dtype="f4", external=[("/etc/hostname", 0, 12)]))])
    others = OrderedDict([
        ("delete", None), ("group", lambda: file.create_group(name)), ("hard link", lambda: file[chance.choice(names)]),
        ("root", lambda: file["/"]), ("soft link", lambda: h5py.SoftLink("/" + chance.choice(names))),
        ("broken link", lambda: h5py.SoftLink("/nothing")), ("type", lambda: np.dtype("f4")),
        ("external link", lambda: h5py.ExternalLink("/etc/hostname", "/")), ("rename", None), ("add", None),
        ("virtual", None)])
    action = chance.choice(list(arrays) + list(others) + ["delete", "rename", "add"])
    try:
        if action == "rename":
            odd = [u"\u6743", "x", "0", "99", "-1", "vars", "a b", "\x1b[31m", "01", "layers", "optimizer", "n" * 5000]
            file.move(name, name.rpartition("/")[0] + "/" + chance.choice(odd))
            return action
        if action == "add":
            parent = item if hasattr(item, "keys") else item.parent
            new = parent.name + "/" + chance.choice(["7", "99", "new", "vars", "vars/0", "inner_optimizer/vars/0"])
            name, action = new, chance.choice(list(arrays))
        replacement = others[action]() if callable(others.get(action)) and action != "group" else None
        if name in file:
            del file[name]
        if action == "group":
            file.create_group(name)
        elif replacement is not None:
            file[name] = replacement
        elif action == "virtual":
            layout = h5py.VirtualLayout(shape=(3,), dtype="f4")
            layout[:] = h5py.VirtualSource("/nothing.h5", "x", shape=(3,))
            file.create_virtual_dataset(name, layout)
        elif action in arrays:
            file.create_dataset(name, **arrays[action])
    except Exception:  # this h5py cannot write that
        return action + " failed"
    return action


# TensorFlow's checkpoints


def mutate_bundle(chance, source, path):
    """Entries of the index, the blocks around them, the object graph, arrays, all with right checksums; or bytes."""
    copy_bundle(source, path)
    files = sorted(name for name in os.listdir(os.path.dirname(path)) if name.startswith(os.path.basename(path)))
    files = [os.path.join(os.path.dirname(path), name) for name in files]
    action = chance.choice(["entries"] * 5 + ["graph"] * 4 + ["block", "bytes", "bytes", "file"])
    index = path + ".index" if os.path.exists(path + ".index") else path
    if action == "file":
        name = chance.choice(files)
        how = chance.choice(["delete", "empty", "folder"])
        os.remove(name)
        if how == "empty":
            write_bytes(name, b"")
        elif how == "folder":
            os.mkdir(name)
        return "{} {}".format(how, os.path.basename(name)), False
    if action == "bytes":
        name = chance.choice(files)
        data, what = mutate_bytes(chance, read_bytes(name))
        write_bytes(name, data)
        return "{} {}".format(os.path.basename(name), what), True
    entries = crafted.index_entries(index)
    graph = next((entry for entry in entries if entry[0] == crafted.GRAPH.encode("ascii")), None)
    if action == "graph" and graph is not None:
        what = mutate_graph(chance, path, graph)
    elif action == "block":
        restarts = [chance.choice(NUMBERS[:15]) % (1 << 32) for _ in range(chance.choice([0, 1, 1, 2, 5]))]
        kind = chance.choice([b"\0", b"\1", b"\2"])
        separator = chance.choice([b"zzz", b"", b"a", entries[0][0]])
        write_bytes(index, table(block(entries, restarts, kind), separator))
        return "block {} {!r} {!r}".format(restarts, kind, separator), False
    else:
        what = mutate_entries(chance, entries)
    write_bytes(index, table(block(entries)))
    return what, False


def mutate_entries(chance, entries):
    """Changes entries in place."""
    what = []
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        if not entries:
            break
        place, other = chance.randrange(len(entries)), chance.randrange(len(entries))
        key, value = entries[place]
        action = change = chance.choice(["message"] * 6 + ["key", "drop", "double", "swap"])
        if action == "message":
            entries[place][1], change = mutate_message(chance, value)
        elif action == "key":
            entries[place][0] = chance.choice([
                key + b"_1", key[:-1], b"", b"\xff", b"\0" + key, b"a/" + key, key.upper(), b"global_step",
                key.replace(b"/", b""), b"a" * 70000, b"\x1b[31m", key + b"/.ATTRIBUTES/VARIABLE_VALUE", b"x/Adam"])
            if chance.random() < 0.8:
                entries.sort()
        elif action == "drop":
            del entries[place]
        elif action == "double":
            entries.insert(place, [key + chance.choice([b"", b"\0", b"_1", b"x"]), value])
        else:
            entries[place][1], entries[other][1] = entries[other][1], value
        what.append(u"{} {}".format(key.decode("ascii", "replace")[:60], change))
    return "; ".join(what)


def mutate_graph(chance, path, entry):
    """Changes the object graph: a text in a data file, in front of which stand its length and the length's checksum."""
    fields = parsed(entry[1])
    place = {field: value for field, _, value in fields}
    shards = [name for name in os.listdir(os.path.dirname(path)) if name.startswith(os.path.basename(path) + ".data")]
    data_file = path + ".data-{:05d}-of-{:05d}".format(place.get(3, 0), len(shards))
    data, offset, size = read_bytes(data_file), place.get(4, 0), place[5]
    length, start = crafted.read_varint(bytearray(data[offset : offset + size]), 0)
    graph, what = mutate_message(chance, data[offset + start + 4 : offset + size])
    lengths = struct.pack("<I", len(graph))
    text = varint(len(graph)) + crafted.checksum(lengths) + graph
    write_bytes(data_file, data + text)
    changed = {4: len(data), 5: len(text)}
    entry[1] = packed([[field, kind, changed.get(field, value)] for field, kind, value in fields if field not in (4, 6)]
                      + [[4, 0, len(data)], [6, 5, crafted.checksum(lengths + crafted.checksum(lengths) + graph)]])
    return "graph: " + what


def mutate_folder(chance, source, path):
    """A SavedModel, or a folder of checkpoints with the file that names the latest one."""
    os.mkdir(path)
    if chance.random() < 0.5:
        os.mkdir(os.path.join(path, "variables"))
        return mutate_bundle(chance, source, os.path.join(path, "variables", "variables"))
    name = os.path.basename(source)
    text = u'model_checkpoint_path: "{0}"\nall_model_checkpoint_paths: "{0}"\n'.format(name).encode("ascii")
    if chance.random() < 0.3:
        what = mutate_bundle(chance, source, os.path.join(path, name))
    else:
        copy_bundle(source, os.path.join(path, name))
        quoted = ["/" + name, "../" + name, "/dev", "\\0", "\\377", "nothing", "*", "", "a" * 5000, ".", "["]
        replaced = text.replace(name.encode("ascii"), chance.choice(quoted).encode("ascii"))
        text, what = chance.choice([(replaced, "other name"), mutate_bytes(chance, text), (b"", "empty")])
        what = "checkpoint: " + what, False
    write_bytes(os.path.join(path, "checkpoint"), text)
    return what


# Pickles, and files of torch

CALLS = ["os mkdir", "posix system", "builtins eval", "__builtin__ getattr", "collections OrderedDict",
         "collections defaultdict", "_codecs encode", "numpy dtype", "numpy.core.multiarray scalar",
         "torch FloatStorage", "torch BFloat16Storage", "torch LongStorage", "torch UntypedStorage", "torch Tensor",
         "torch.storage UntypedStorage", "torch.storage _load_from_bytes", "torch.serialization _get_layout",
         "torch._utils _rebuild_tensor", "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor_v3",
         "torch._utils _rebuild_parameter", "torch Size", "torch device",
         "argparse Namespace", "a b"]
# Values, marks, calls and references, each as a pickle has it.
PIECES = [b"N", b"\x88", b"\x89", b"(", b")", b"]", b"}", b"0", b"1", b"2", b"t", b"l", b"d", b"e", b"a", b"s", b"u",
          b"R", b"b", b"o", b"Q", b".", b"\x81", b"\x85", b"\x86", b"\x87", b"\x8f", b"\x90", b"\x91", b"\x93", b"\x94",
          b"h\0", b"h\x07", b"q\0", b"j\xff\xff\xff\xff", b"r\xff\xff\xff\x7f", b"I1\n", b"S'a'\n", b"P1\n", b"\x82\1",
          b"\x8a\xff", b"\x8b\xff\xff\xff\xff", b"X\xff\xff\xff\x7f", b"\x8e" + b"\xff" * 8, b"\x95" + b"\xff" * 8,
          b"\x96" + struct.pack("<Q", 1 << 40), b"G\x7f\xf0" + b"\0" * 6, b"G\x7f\xf8" + b"\0" * 6, b"]" * 100000,
          b"(" * 100000, b"N" + b"\x85" * 100000, b"]q\0h\0a", b"}q\0U\1ah\0s", b"]q\0" + b"h\0h\0\x86" * 1000]


def pickled_number(number):
    digits = max(1, (number.bit_length() + 8) // 8)
    number %= 1 << 8 * digits
    return b"\x8b" + struct.pack("<I", digits) + bytes(bytearray(number >> 8 * each & 255 for each in range(digits)))


def pickled_text(text):
    text = text.encode("utf-8", "replace")
    return b"X" + struct.pack("<I", len(text)) + text


def pickled_call(name, *arguments):
    return "c{}\n{}\n".format(*name.split()).encode("ascii") + b"(" + b"".join(arguments) + b"tR"


def canary(folder):
    """Returns the path of a folder that appears if a pickle in a mutant is run."""
    return os.path.join(folder, "a pickle was run")


def mutate_pickle(chance, data, folder):
    """Returns (changed pickle, what was changed)."""
    if chance.random() < 0.1:
        return mutate_bytes(chance, data)
    starts = [place for _, _, place in pickletools.genops(data)]
    codes = [data[start:stop] for start, stop in zip(starts, starts[1:] + [len(data)])]
    what = []
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        place, other = chance.randrange(len(codes)), chance.randrange(len(codes))
        action = chance.choice(["number"] * 3 + ["text"] * 2 + ["name", "name", "drop", "double", "swap", "piece",
                                                                "piece", "call", "run", "cut"])
        kinds = {"number": b"KMJ\x8a", "text": b"XU\x8c", "name": b"c"}.get(action)
        if kinds:
            place = chance.choice([number for number, code in enumerate(codes) if code[:1] in kinds] or [place])
        what.append("{} at {}".format(action, place))
        if action == "number":
            codes[place] = pickled_number(chance.choice(NUMBERS))
        elif action == "text":
            codes[place] = pickled_text(chance.choice(
                TEXTS + [u"state", u"param_groups", u"params", u"exp_avg", u"cpu"]))
        elif action == "name":
            codes[place] = "c{}\n{}\n".format(*chance.choice(CALLS).split()).encode("ascii")
        elif action == "drop":
            del codes[place]
        elif action == "double":
            codes.insert(place, codes[place])
        elif action == "swap":
            codes[place], codes[other] = codes[other], codes[place]
        elif action == "piece":
            codes.insert(place, chance.choice(PIECES))
        elif action == "call":
            codes.insert(place, pickled_call(chance.choice(CALLS), *[chance.choice(codes + PIECES) for _ in range(2)]))
        elif action == "run":
            codes.insert(place, pickled_call("os mkdir", pickled_text(u"" + canary(folder))) + b"0")
        else:
            del codes[place + 1 :]
        codes = codes or [b"."]
    return b"".join(codes), "pickle: " + ", ".join(what)


def mutate_torch(chance, source, path):
    """The pickle in a file of torch.save, with a right checksum, other members of the zip, the zip, or bytes."""
    data, folder = read_bytes(source), os.path.dirname(path)
    in_zip = data[:2] == b"PK"
    action = chance.choice(["pickle", "pickle", "pickle", "bytes"] + ["member", "zip"] * in_zip)
    if action == "bytes":
        data, what = mutate_bytes(chance, data)
        write_bytes(path, data)
        return what, in_zip  # the old format has no checksums
    if not in_zip:
        return mutate_old_torch(chance, data, path), False
    with zipfile.ZipFile(source) as archive:
        members = [[name, archive.read(name)] for name in archive.namelist()]
    member, what = chance.choice(members), "zip"
    if action == "pickle":
        member = next(each for each in members if each[0].endswith("data.pkl"))
        member[1], what = mutate_pickle(chance, member[1], folder)
    elif action == "member":
        member[1], what = mutate_bytes(chance, member[1])
    if action == "zip":
        write_zip_of(chance, path, members)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members:
                archive.writestr(name, bytes(content))
    return "{}: {}".format(member[0], what), False


def mutate_old_torch(chance, data, path):
    """One of the five pickles in a file of torch before 1.6."""
    stream, ends = io.BytesIO(data), [0]
    for _ in range(5):
        for _ in pickletools.genops(stream):
            pass
        ends.append(stream.tell())
    number = chance.choice([0, 1, 2, 3, 3, 3, 3, 4])
    start, stop = ends[number : number + 2]
    changed, what = mutate_pickle(chance, data[start:stop], os.path.dirname(path))
    write_bytes(path, data[:start] + changed + data[stop:])
    return "pickle {}: {}".format(number, what)


def mutate_nothing_known(chance, source, path):
    """A file of no format that everstep reads, such as a pickle, or the first bytes of one. All must be refused."""
    run = pickled_call("os mkdir", pickled_text(u"" + canary(os.path.dirname(path)))) + b"."
    noise = bytes(bytearray(chance.randrange(256) for _ in range(chance.choice([0, 1, 8, 100, 5000]))))
    array, arrays = io.BytesIO(), io.BytesIO()
    np.save(array, np.ones(3, np.float32))
    np.savez(arrays, a=np.ones(3, np.float32))
    objects = array.getvalue().replace(b"'<f4'", b"'|O' ") + run  # NumPy unpickles what follows such a header
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr(chance.choice(["a.npy", "array_0.npy", "state.json", "header.json"]), objects)
    contents = OrderedDict([
        ("pickle", b"\x80\x02" + run), ("pickle of Python 2", run), ("array", array.getvalue()),
        ("array of objects", objects), ("arrays", arrays.getvalue()), ("zip of objects", zipped.getvalue()),
        ("msgpack", b"\x82\xa4step\x03\xa6params\x81\xa1w\xc7\x08\x01\x93\x91\x03\xa7float32"),
        ("JSON", b'{"class_name": "Adam", "config": {}}'), ("noise", noise), ("text", b"everstep\n" * 100),
        ("pickle in torch's start", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03." + run),
        ("HDF5's start", b"\x89HDF\r\n\x1a\n" + noise), ("zip's start", b"PK\x03\x04" + noise),
        ("safetensors' start", struct.pack("<Q", len(noise) + 1) + b"{" + noise),
        ("TensorFlow's end", noise + struct.pack("<Q", 0xDB4775248B80FB57))])
    name = chance.choice(list(contents))
    data, what = contents[name], name
    if chance.random() < 0.5:
        data, more = mutate_bytes(chance, data)
        what += ", " + more
    write_bytes(path, data)
    return what, False


def mutate_safetensors(chance, source, path):
    """The header, everstep's header in it, or bytes. There are no checksums."""
    data = read_bytes(source)
    length = struct.unpack("<Q", data[:8])[0]
    header, action = data[8 : 8 + length].decode("ascii"), chance.choice(["header", "ours", "bytes"])
    if action == "bytes":
        data, what = mutate_bytes(chance, data)
        write_bytes(path, data)
        return what, False
    if action == "ours":
        header = json.loads(header, object_pairs_hook=OrderedDict)
        header["__metadata__"]["everstep"], what = mutate_json(chance, header["__metadata__"]["everstep"])
        header = json.dumps(header)
    else:
        header, what = mutate_json(chance, header)
    header = header.encode("utf-8")
    write_bytes(path, struct.pack("<Q", len(header)) + header + data[8 + length :])
    return "{} {}".format(action, what), False


# name: (function, the library that it needs, name of the mutated file)
MUTATORS = OrderedDict([
    ("npz", (mutate_zip, None, "run.npz")), ("torch", (mutate_torch, None, "run.pt")),
    ("safetensors", (mutate_safetensors, None, "run.safetensors")),
    ("none", (mutate_nothing_known, None, "some.file")),
    ("h5", (mutate_h5, "h5py", "model.h5")),
    ("weights.h5", (mutate_h5, "h5py", "model.weights.h5")), ("keras", (mutate_zip, "h5py", "model.keras")),
    ("tf-saver", (mutate_bundle, "tensorflow", "model.ckpt")),
    ("tf-object", (mutate_bundle, "tensorflow", "model.ckpt-1")), ("tf-v1", (mutate_bundle, "tensorflow", "model.v1")),
    ("folder", (mutate_folder, "tensorflow", "folder"))])
_INSTALLED = {None: True, "h5py": h5py is not None, "tensorflow": crafted.tensorflow is not None}
_SOURCES = {}


def formats():
    """Returns the formats that can be read here."""
    return [name for name, (_, library, _) in MUTATORS.items() if _INSTALLED[library]]


def sources(format):
    """Returns [(path, how)] of the whole files of a format."""
    if not _SOURCES:
        for folder, _, names in sorted(os.walk(STATES)):
            for name in sorted(names):
                path = os.path.join(folder, name)
                if name.endswith((".npz", ".h5")):
                    _SOURCES.setdefault(name.rpartition(".")[2], []).append((path, {}))
        _SOURCES["torch"] = [(os.path.join(FILES, "torch2.13", name), {}) for name in (
            "adam.pt", "adamw.bin", "checkpoint.pt", "nadam.pt", "rmsprop.pth")]
        _SOURCES["none"] = [(None, {})]
        _SOURCES["safetensors"] = [(os.path.join(FILES, "safetensors", "nadam.safetensors"), {})]
        kinds = {"keras-h5": "h5", "keras-weights-h5": "weights.h5"}
        for each in fixtures():
            kind = "tf-v1" if "-v1" in os.path.dirname(each.name) else kinds.get(each.format, each.format)
            _SOURCES.setdefault(kind, []).append((each.path, each.how()))
            if each.format in BUNDLES and kind != "tf-v1":
                _SOURCES.setdefault("folder", []).append((each.path, each.how()))
    return _SOURCES[format]


def mutate(format, seed, number, folder):
    """Returns the Mutant of this number, a changed copy of a whole file, in an empty folder."""
    change, _, name = MUTATORS[format]
    chance = random.Random(zlib.crc32("{} {} {}".format(seed, format, number).encode("ascii")))
    source, how = chance.choice(sources(format))
    path = os.path.join(folder, name)
    what, checked = change(chance, source, path)
    return Mutant(path, how, source, what, checked)


def state_of(path, how):
    """Returns (state, {name: array}) of a file, with all its arrays read."""
    state = everstep.read_checkpoint(path, **how)
    return state, crafted.arrays_of(state)
