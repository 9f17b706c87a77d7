# -*- coding: utf-8 -*-
"""State, its file format and name matching, on NumPy arrays. Needs no framework."""

from __future__ import absolute_import, division, print_function

import io
import json
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from random import Random

import numpy as np
import pytest

import everstep
import harness
from crafted_files import deep, npz_of, optional
from everstep import errors
from everstep.optimizers import SGD, Adam, AdamW, Nadam
from harness import arrays_of
from mutations import mutate_bytes

resource = optional("resource")  # not on Windows
BETA = u"\u03b2/\u6743\u91cd 1".encode("utf-8") if str is bytes else u"\u03b2/\u6743\u91cd 1"
SHAPES = OrderedDict([(BETA, (5, 3)), ("bias", (3,)), ("single", ())])


class Training(object):
    """Training on arrays with a definition that has counters, a scalar and, for one variable, rows to remember."""

    def __init__(self, definition=None, seed=0, shapes=SHAPES):
        random = np.random.RandomState(seed)
        self.variables = OrderedDict((name, np.array(random.randn(*shape))) for name, shape in shapes.items())
        self.optimizer = (definition or everstep.accumulate(Nadam(0.1), 2)).bind(np)
        for _ in range(3 + seed):
            self.step(random)

    def step(self, random):
        pairs = [(np.asarray(random.randn(*array.shape)), array) for array in self.variables.values()]
        self.optimizer.apply_gradients(pairs)

    def capture(self, **more):
        return everstep.capture(self.optimizer, self.variables, **more)

    def restore(self, state, **more):
        return everstep.restore(self.optimizer, state, self.variables, **more)


def numbers(state):
    """Returns everything that a state holds, for comparison."""
    arrays = [(key, array.dtype.str, array.tolist()) for key, array in arrays_of(state).items()]
    return arrays, state.updates, state.steps, state.pending, dict(state.scalars)


# The file


def test_a_file_gives_back_all_that_a_state_holds(tmpdir):
    path = str(tmpdir.join("run.npz"))
    state = Training().capture(weights=True)
    state.save(path)
    loaded = everstep.State.load(path)
    assert numbers(loaded) == numbers(state)
    assert loaded.definition == state.definition
    assert everstep.Definition.from_config(loaded.definition) == everstep.accumulate(Nadam(0.1), 2)
    assert list(loaded.slots) == list(SHAPES) and list(loaded.slots["bias"]) == list(state.slots["bias"])
    assert repr(loaded) == "<everstep state of Accumulate: 1 updates, 3 variables>"
    content = loaded.to_dict()
    assert isinstance(content["slots"][BETA]["m"], np.ndarray) and content["updates"] == 1
    assert sorted(content) == "definition loss_scale ordered pending scalars slots steps updates variables".split()
    loaded.save(path)  # overwrites the file that it reads from
    assert numbers(everstep.State.load(path)) == numbers(state)
    assert tmpdir.listdir() == [path]


def test_a_file_is_a_npz(tmpdir):
    path = str(tmpdir.join("run.npz"))
    state = Training().capture(weights=True)
    state.save(path)
    with np.load(path) as arrays:
        header = json.loads(arrays["everstep.json"].decode("utf-8"))
        for (name, slot), array in arrays_of(state.replace(variables={})).items():
            entry = header["slots"][name if str is not bytes else name.decode("utf-8")][slot]
            stored = arrays[entry["member"].replace(".npy", "")]
            assert stored.dtype.str == entry["dtype"] and (stored == array).all()
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.namelist()[0] == "everstep.json" and len(archive.namelist()) == 1 + 3 * 4
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}


def test_equal_states_are_equal_files(tmpdir):
    for name in ("one", "two"):
        Training().capture().save(str(tmpdir.join(name)))
    assert tmpdir.join("one").read_binary() == tmpdir.join("two").read_binary()


@pytest.mark.parametrize("dtype", "float16 float32 float64 int32 int64 uint8 >f4 >i8".split())
def test_every_dtype_and_layout_comes_back(dtype, tmpdir):
    whole = np.arange(24).reshape(4, 3, 2).astype(dtype)
    arrays = {"whole": whole, "other way": np.asfortranarray(whole), "parts": whole[::2, 1:], "none": whole[:0]}
    everstep.State(slots={"w": arrays}).save(str(tmpdir.join("state")))
    state = everstep.State.load(str(tmpdir.join("state")))
    assert (state.definition, state.updates, state.steps, state.pending) == (None, 0, None, 0)
    assert repr(state) == "<everstep state of an unknown definition: 0 updates, 1 variables>"
    for name, array in arrays.items():
        stored = state.slots["w"][name]
        assert stored.shape == array.shape and stored.dtype == array.dtype.newbyteorder("<")
        assert (np.asarray(stored) == array).all()
        assert (stored[1:3] == array[1:3]).all() and (stored[1:3, 1:] == array[1:3, 1:]).all()
        assert stored[3:1].shape == array[3:1].shape and (stored[::2] == array[::2]).all()


def test_numbers_that_are_none_come_back(tmpdir):
    path = str(tmpdir.join("state"))
    scalars = {"a": float("nan"), "b": float("inf"), "c": float(np.float32(0.1))}
    everstep.State({"definition": "Adam"}, None, scalars=scalars, slots={"w": {"m": np.array([np.nan])}}).save(path)
    state = everstep.State.load(path)
    assert np.isnan(state.scalars["a"]) and state.scalars["b"] == float("inf") and state.scalars["c"] == scalars["c"]
    assert state.updates is None and np.isnan(state.slots["w"]["m"][0])


def test_a_schedule_comes_back(tmpdir):
    definition = Adam(everstep.PiecewiseConstantDecay(boundaries=(3, 5), values=(0.1, 0.01, 0.001)))
    Training(definition).capture().save(str(tmpdir.join("state")))
    state = everstep.State.load(str(tmpdir.join("state")))
    assert everstep.Definition.from_config(state.definition) == definition
    Training(definition).restore(state, hypers=True)


class Generated(object):
    """A handle of 40 MB that records the largest piece that is read."""

    shape, dtype, most = (10000, 1000), np.dtype("float32"), 0

    def __getitem__(self, rows):
        assert isinstance(rows, slice)
        rows = np.arange(*rows.indices(len(range(self.shape[0]))), dtype="float32")
        self.most = max(self.most, len(rows) * 4000)
        return np.repeat(rows[:, None], 1000, 1)

    def __array__(self, dtype=None, copy=None):
        raise AssertionError("asked for the whole")


def test_large_arrays_are_written_and_read_in_chunks(tmpdir):
    path, handle = str(tmpdir.join("state")), Generated()
    everstep.State(slots={"w": {"m": handle}}).save(path)
    assert 0 < handle.most <= 1 << 24
    stored = everstep.State.load(path).slots["w"]["m"]
    assert (stored[9998:] == handle[9998:]).all()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss if resource else 0
    everstep.State(slots={"w": {"m": stored}}).save(str(tmpdir.join("copy")))
    if resource:  # in kB; the array has 40 MB, a chunk 16
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 39000
    assert tmpdir.join("copy").read_binary() == tmpdir.join("state").read_binary()


BAD_STATES = {
    "an array of objects": (lambda state: state.slots["bias"].update(m=np.array([{}] * 3)), "is of object"),
    "text": (lambda state: state.slots["bias"].update(m=np.array(["a"])), "which a file does not hold"),
    "truth": (lambda state: state.slots["bias"].update(m=np.array([True])), "is of bool"),
    "half a count": (lambda state: vars(state).update(steps=1.5), "steps = 1.5; needed is a count"),
    "a negative count": (lambda state: vars(state).update(pending=-1), "pending = -1"),
    "a config of arrays": (lambda state: state.definition.update(rate=np.ones(1)), "something that JSON cannot hold"),
    "a number as a name": (lambda state: state.slots.update({3: {}}), "cannot be written"),
    "a name that is no Unicode": (
        lambda state: state.slots.update({b"\xff" if str is bytes else "\udcff": {}}), "cannot be written"),
    "a slot that is none": (lambda state: state.slots.update(bias=3), "cannot be written"),
    "a scalar of text": (lambda state: state.scalars.update(momentum_product="one"), "cannot be written"),
}


@pytest.mark.parametrize("name", sorted(BAD_STATES))
def test_what_a_file_cannot_hold_leaves_the_old_one(name, tmpdir):
    path = str(tmpdir.join("run.npz"))
    state = Training().capture()
    state.save(path)
    before = tmpdir.join("run.npz").read_binary()
    breaks, needle = BAD_STATES[name]
    breaks(state)
    with pytest.raises(errors.StateError, match=needle):
        state.save(path)
    assert tmpdir.join("run.npz").read_binary() == before and tmpdir.listdir() == [path]


class Breaking(object):
    shape, dtype = (10,), np.dtype("float32")

    def __getitem__(self, rows):
        raise errors.FileError("the other file is damaged")


@pytest.mark.parametrize("where", ["in the middle", "no folder", "a folder", "no name", "half a name"])
def test_a_save_that_fails_leaves_nothing(where, tmpdir):
    slots = {"w": {"a": np.ones(1000), "b": Breaking() if where == "in the middle" else np.ones(10)}}
    path = {"in the middle": str(tmpdir.join("state")), "no folder": str(tmpdir.join("no", "state")),
            "a folder": str(tmpdir), "no name": None, "half a name": "a\0b"}[where]
    with pytest.raises(errors.StateError, match="damaged" if where == "in the middle" else "cannot be written"):
        everstep.State(slots=slots).save(path)
    assert tmpdir.listdir() == []


# Damage. Each case writes a file. Loading it, or restoring the loaded state, must raise a StateError.

HEADERS = {
    "a newer version": (lambda h: h.update(version=2), "newer everstep"),
    "no version": (lambda h: h.pop("version"), "no version"),
    "a version of text": (lambda h: h.update(version="1"), "no version"),
    "version 0": (lambda h: h.update(version=0), "no version"),
    "another format": (lambda h: h.update(format="npz"), "does not say"),
    "no scalars": (lambda h: h.pop("scalars"), "needed are"),
    "a key more": (lambda h: h.update(more=1), "the header has"),
    "slots in a list": (lambda h: h.update(slots=[]), "needed is an object"),
    "scalars in a list": (lambda h: h.update(scalars=[1]), "needed is an object"),
    "no object of slots": (lambda h: h["slots"].update(bias=3), "needed is an object"),
    "a scalar of text": (lambda h: h["scalars"].update(a="1"), "needed is a number"),
    "a scalar that is true": (lambda h: h["scalars"].update(a=True), "needed is a number"),
    "a definition of text": (lambda h: h.update(definition="Adam"), "not a config"),
    "half an update": (lambda h: h.update(updates=0.5), "needed is a count"),
    "updates below none": (lambda h: h.update(updates=-1), "needed is a count"),
    "too many updates": (lambda h: h.update(updates=1 << 63), "needed is a count"),
    "updates that are true": (lambda h: h.update(updates=True), "needed is a count"),
    "a scalar with no end": (lambda h: h["scalars"].update(a=int("9" * 4000)), "digits"),
    "an array too few": (lambda h: h["slots"].pop("single"), "is in"),
    "a variable too few": (lambda h: h["variables"].popitem(), "bytes; needed are"),
    "an entry of text": (lambda h: h["slots"]["bias"].update(m="array_4.npy"), "needed is member"),
    "an entry without a shape": (lambda h: h["slots"]["bias"]["m"].pop("shape"), "needed is member"),
    "an entry with more": (lambda h: h["slots"]["bias"]["m"].update(order="F"), "needed is member"),
    "a member by path": (lambda h: h["slots"]["bias"]["m"].update(member="../../x.npy"), "is in"),
    "a member twice": (lambda h: h["slots"]["bias"]["m"].update(member="array_0.npy"), "is in"),
    "another member": (lambda h: h["slots"]["bias"]["m"].update(member="array_99.npy"), "is in"),
    "a shape of text": (lambda h: h["slots"]["bias"]["m"].update(shape="3"), "has the shape"),
    "a shape of halves": (lambda h: h["slots"]["bias"]["m"].update(shape=[1.5, 2]), "has the shape"),
    "a negative shape": (lambda h: h["slots"]["bias"]["m"].update(shape=[-3]), "has the shape"),
    "two negative sizes": (lambda h: h["slots"]["bias"]["m"].update(shape=[-3, -1]), "has the shape"),
    "a shape of truth": (lambda h: h["slots"]["bias"]["m"].update(shape=[True, 3]), "has the shape"),
    "a shape of 99 axes": (lambda h: h["slots"]["bias"]["m"].update(shape=[1] * 99), "has the shape"),
    "a shape turned": (lambda h: h["slots"][u"\u03b2/\u6743\u91cd 1"]["m"].update(shape=[3, 5]), "another shape or"),
    "one axis more": (lambda h: h["slots"]["bias"]["m"].update(shape=[1, 3]), "another shape or dtype"),
    "less rows": (lambda h: h["slots"]["bias"]["m"].update(shape=[2]), "bytes; needed are"),
    "a bomb of rows": (lambda h: h["slots"]["bias"]["m"].update(shape=[1 << 40]), "more than the file"),
    "a bomb of axes": (lambda h: h["slots"]["bias"]["m"].update(shape=[1 << 62, 1 << 62]), "more than the file"),
    "a bomb around zero": (lambda h: h["slots"]["bias"]["m"].update(shape=[0, 1 << 62]), "no array can have"),
    "a pickle's dtype": (lambda h: h["slots"]["bias"]["m"].update(dtype="|O"), "a file holds"),
    "a dtype of text": (lambda h: h["slots"]["bias"]["m"].update(dtype="<U3"), "a file holds"),
    "a dtype of fields": (lambda h: h["slots"]["bias"]["m"].update(dtype=[["a", "<f4"]]), "a file holds"),
    "another dtype": (lambda h: h["slots"]["bias"]["m"].update(dtype="<i8"), "another shape or dtype"),
    "a narrower dtype": (lambda h: h["slots"]["bias"]["m"].update(dtype="<f4"), "bytes; needed are"),
    "the wrong byte order": (lambda h: h["slots"]["bias"]["m"].update(dtype=">f8"), "a file holds"),
    "a very long name": (lambda h: h.update({u"a\x1b[31m" + u"b" * 7000000: 1}), "the header has"),
    "half a pair at the top": (lambda h: h.update({u"\ud800": 1}), "not text|needed are"),
    "half a pair in a config": (lambda h: h["definition"].update({u"a\ud800": 1, "definition": ""}), "not text|is of"),
    "half a pair in a value": (lambda h: h["definition"].update(steps=u"\udfff"), "not text|is of"),
    "a deep config": (lambda h: h.update(definition=deep(500)), "levels"),
    "long and empty": (lambda h: h["slots"]["bias"]["m"].update(shape=[0, 10**19]), "no array can have"),
    "wide and empty": (lambda h: h["slots"]["bias"]["m"].update(shape=[10**19, 0]), "no array can have"),
    "long, empty, wide": (lambda h: h["slots"]["bias"]["m"].update(shape=[1 << 40, 0, 1 << 40]), "no array can have"),
    "half a surrogate pair": (lambda h: h["slots"].update({u"\ud800": h["slots"].pop("bias")}), "not text|is in")}

TEXTS = {
    "no JSON": (b"{", "JSON"),
    "a list": (b"[]", "does not say"),
    "null": (b"null", "does not say"),
    "nothing": (b"", "JSON"),
    "Latin names": (b'{"format": "everstep-state", "version": 1, "slots": {"caf\xe9": {}}}', "UTF-8"),
    "UTF-16": (u'{"format": "everstep-state"}'.encode("utf-16"), "UTF-8"),
    "a name twice": (b'{"format": "everstep-state", "format": "everstep-state", "version": 1}', "twice"),
    "a depth without end": (b"[" * 1000000, "JSON"),
    "a number without end": (b"9" * 2000000, "digits"),
    "arrays without end": (
        '{{"format": "everstep-state", "version": 1, "definition": null, "updates": 0, "steps": 0, "pending": 0, '
        '"scalars": {{}}, "variables": {{}}, "slots": {{"w": {{{}}}}}}}'.format(", ".join(
            '"%d": {"member": "array_%d.npy", "shape": [], "dtype": "|u1"}' % (n, n)
            for n in range((1 << 16) + 1)
        )).encode("ascii"),
        "more than 65536 arrays",
    ),
}  # fmt: skip


def contents_of(content):
    """Returns [(name, contents)] of the members of a zip."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def forged(content, text):
    """Returns a file with another header, and with sizes, positions and checksums to match."""
    return npz_of([text] + [member for _, member in contents_of(content)[1:]])


def forged_by(breaks):
    def make(content, random):
        header = json.loads(contents_of(content)[0][1].decode("utf-8"), object_pairs_hook=OrderedDict)
        breaks(header)
        return forged(content, json.dumps(header).encode("ascii"))

    return make


def damaged(content, random):
    changed, chance = content, Random(random.randint(1 << 30))
    while changed == content:
        changed = mutate_bytes(chance, content)[0]
    return changed


def exchanged(content, random):
    """Swaps two members in an otherwise valid archive."""
    place, members = 1 + random.randint(5), contents_of(content)
    names, data = map(list, zip(*members))
    data[place], data[place + 6] = data[place + 6], data[place]
    return archived(zip(names, data))


def archived(members, how=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return file.getvalue()


sprung = []  # filled if a file's pickle is executed


def spring(value):  # Python 2 pickles no method of a list
    sprung.append(value)


class Trap(object):
    def __reduce__(self):
        return spring, (1,)


def saved_by_numpy(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


WHOLE_FILES = {
    "nothing": lambda content, _: b"",
    "text": lambda content, _: b"PK is not what this begins with",
    "noise": lambda content, random: random.randint(0, 256, 5000).astype("uint8").tobytes(),
    "noise after PK": lambda content, random: b"PK\3\4" + random.randint(0, 256, 5000).astype("uint8").tobytes(),
    "a pickle": lambda content, _: pickle.dumps(Trap(), 2),
    "NumPy's own": lambda content, _: saved_by_numpy(m=np.ones(3)),
    "objects of NumPy": lambda content, _: saved_by_numpy(m=np.array([Trap(), Trap()])),
    "objects under our names": lambda content, _: archived(
        [contents_of(content)[0], ("array_0.npy", pickle.dumps(Trap(), 2))]),
    "compressed": lambda content, _: archived(contents_of(content), zipfile.ZIP_DEFLATED),
    "stored by others": lambda content, _: archived(contents_of(content)),
    "a bomb of zeros": lambda content, _: archived([("everstep.json", b"\0" * 50000000)], zipfile.ZIP_DEFLATED),
    # The sizes of the first member stand after its name, in a field of ZIP64.
    "a header of 2**60 bytes": lambda content, _: content[:47] + struct.pack("<2Q", 1 << 60, 1 << 60) + content[63:],
    "a header larger than what is read": lambda content, _: forged(content, b" " * (1 + (1 << 24))),
    "two in one file": lambda content, _: content + content,
    "something behind": lambda content, _: content + b"\0",
    "something before": lambda content, _: b"#!/bin/sh\n" + content,
}


def rename_all(state):
    state.slots = OrderedDict(("model_" + name, slots) for name, slots in state.slots.items())


STATES = {
    "a variable less": (lambda state: state.slots.pop("bias"), "left unmatched: bias"),
    "a variable more": (lambda state: state.slots.update(more=state.slots["bias"]), "left unmatched: more"),
    "all renamed": (rename_all, "Give rename="),
    "one renamed": (lambda state: state.slots.update(b=state.slots.pop("bias")), "Not matched: b with bias"),
    "no variables": (lambda state: state.slots.clear(), "variables none"),
    "a role less": (lambda state: state.slots["bias"].pop("v"), "needs accumulate/sum, m, v"),
    "a role more": (lambda state: state.slots["bias"].update(u=np.ones(3)), "slots of bias accumulate/sum, m, u, v"),
    "another role": (lambda state: state.slots["bias"].update(vv=state.slots["bias"].pop("v")), "slots of bias"),
    "no roles": (lambda state: state.slots["bias"].clear(), "slots of bias none"),
    "another shape": (lambda state: state.slots["bias"].update(v=np.ones(4)), r"bias/v: .*\(4,\); needed is \(3,\)"),
    "an axis more": (lambda state: state.slots["bias"].update(v=np.ones((1, 3))), r"\(1, 3\); needed is \(3,\)"),
    "one for all": (lambda state: state.slots["bias"].update(v=np.ones(())), r"shape \(\); needed"),
    "variables exchanged": (
        lambda state: state.slots.update(bias=state.slots["single"], single=state.slots["bias"]), "needed is"),
    "no steps": (lambda state: vars(state).update(steps=None), "needs a count"),
    "no updates": (lambda state: vars(state).update(updates=None), "needs a count"),
    "no scalar": (lambda state: state.scalars.clear(), "scalars none"),
    "a scalar more": (lambda state: state.scalars.update(more=1.0), "scalars .*more; "),
    "another definition": (lambda state: state.definition.update(definition="Lookahead"), "is of Lookahead"),
    "another definition inside": (lambda state: state.definition["inner"].update(definition="Adam"),
                                  "the state is of Adam, this optimizer is Nadam"),
    "another option": (lambda state: state.definition.update(steps=5), "Accumulate with steps=5"),
    "another option inside": (
        lambda state: state.definition["inner"].update(momentum_schedule=False), "Nadam with momentum_schedule=False"),
    "no definition inside": (lambda state: state.definition.pop("inner"), "this optimizer is Nadam"),
    "a definition without a name": (lambda state: state.definition.pop("definition"), "this optimizer is Accumulate"),
    "of another optimizer": (lambda state: vars(state).update(vars(Training(AdamW()).capture())), "is of AdamW"),
    "no weights": (lambda state: state.variables.clear(), "no value of"),
    "weights of another shape": (lambda state: state.variables.update(bias=np.ones(2)), "bias: .*shape"),
}

CASES = [("damaged %d" % number, damaged, None) for number in range(150)]
CASES += [("truncated %d" % number, lambda content, random: content[: random.randint(len(content))], None)
          for number in range(40)]
CASES += [("exchanged %d" % number, exchanged, None) for number in range(5)]
CASES += [("header: " + name, forged_by(breaks), needle) for name, (breaks, needle) in sorted(HEADERS.items())]
CASES += [("text: " + name, lambda content, _, text=text: forged(content, text), needle)
          for name, (text, needle) in sorted(TEXTS.items())]
CASES += [("file: " + name, make, None) for name, make in sorted(WHOLE_FILES.items())]
CASES += [("state: " + name, lambda content, _, breaks=breaks: breaks, needle)
          for name, (breaks, needle) in sorted(STATES.items())]


@pytest.fixture(scope="module")
def whole(tmpdir_factory):
    path = tmpdir_factory.mktemp("state").join("run.npz")
    Training().capture(weights=True).save(str(path))
    return path.read_binary()


@pytest.fixture(scope="module")
def other():
    return Training(seed=1)


def test_there_are_more_than_two_hundred_cases():
    assert len(CASES) > 200


@pytest.mark.shared
@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: CASES[number][0])
def test_damage_is_an_error_that_changes_nothing(number, whole, other, tmpdir):
    _, make, needle = CASES[number]
    path = tmpdir.join("run.npz")
    damage = make(whole, np.random.RandomState(number))
    if callable(damage):
        state = Training().capture(weights=True)
        damage(state)
        state.save(str(path))
    else:
        path.write_binary(damage)
    content, before = path.read_binary(), numbers(other.capture(weights=True))
    start, memory = os.times()[0], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss if resource else 0
    with pytest.raises(errors.StateError, match=needle) as raised:
        other.restore(everstep.State.load(str(path)), weights=True)
    assert os.times()[0] - start < 20  # CPU seconds, so that other processes do not count
    if resource:
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 300000  # kB
    assert type(raised.value) in (errors.StateError, errors.FileError) and 0 < len(str(raised.value)) < 21000
    assert not sprung
    assert numbers(other.capture(weights=True)) == before
    assert path.read_binary() == content and tmpdir.listdir() == [path]


def test_what_was_not_damaged_is_restored(whole, other, tmpdir):
    """The undamaged file loads: the cases above fail for their damage, not for something that they share."""
    path, training = tmpdir.join("run.npz"), Training(seed=1)
    path.write_binary(forged(whole, contents_of(whole)[0][1]))
    training.restore(everstep.State.load(str(path)), weights=True)
    assert numbers(training.capture(weights=True)) == numbers(Training().capture(weights=True))


@pytest.mark.parametrize("path", ["no file", "", "a\0b", None, 3.5], ids=repr)
def test_no_file(path, tmpdir):
    with tmpdir.as_cwd(), pytest.raises(errors.StateError, match="cannot be read"):
        everstep.State.load(path)
    with pytest.raises(errors.StateError, match="cannot be read"):
        everstep.State.load(str(tmpdir))


def test_a_state_keeps_its_file_when_another_takes_its_place(tmpdir):
    path = str(tmpdir.join("run.npz"))
    first, second = Training().capture(), Training(seed=1).capture()
    first.save(path)
    loaded = everstep.State.load(path)
    second.save(path)
    assert numbers(loaded) == numbers(first)
    assert numbers(everstep.State.load(path)) == numbers(second)


# Names


def ones(names):
    """Returns {name: array} of names, or of (name, shape)."""
    return OrderedDict((each, np.ones(())) if hasattr(each, "lower") else (each[0], np.ones(each[1])) for each in names)


def match(saved, given, rename=(), by_order=False, ordered=True, partial=False):
    """Restores a state with these variables into an optimizer with those, each a name or (name, shape)."""
    rule = SGD(0.1, momentum=0.9)
    slots = OrderedDict((name, {"velocity": value}) for name, value in ones(saved).items())
    state = everstep.State(rule.get_config(), 1, slots=slots, ordered=ordered)
    return everstep.restore(rule.bind(np), state, ones(given), rename=rename, by_order=by_order, partial=partial)


def test_matches_by_name_pattern_and_order():
    trained = [("x", (4,)), ("new/2", (3,)), ("a", (1,)), ("new/1", (2,))]
    saved = [("a", (1,)), ("old/k1", (2,)), ("old/k2", (3,)), ("rest", (4,))]
    matching = match(saved, trained, [r"old/k(\d)=new/\1"], by_order=True)
    assert matching.names == {"a": "a", "new/1": "old/k1", "new/2": "old/k2", "x": "rest"}
    assert list(matching.names) == [name for name, _ in trained]
    assert repr(matching).splitlines() == ["VARIABLE  IN THE STATE  MATCHED BY", "x         rest          order",
                                           r"new/2     old/k2        old/k(\d)=new/\1", "a         a             name",
                                           r"new/1     old/k1        old/k(\d)=new/\1"]
    assert matching.to_dict()[0] == {"wanted": "x", "found": "rest", "how": "order"}


@pytest.mark.parametrize("rename", [["model/(.*)=\\1"], [("model/(?P<rest>.*)", "\\g<rest>")],
                                    ["model/w=w", "model/b=b"], ["model/(?=w)(.*)=\\1", "model/b=b"]])
def test_patterns(rename):
    assert match(["model/w", "model/b"], ["b", "w"], rename).names == {"w": "model/w", "b": "model/b"}


def test_a_name_that_both_have_is_not_renamed():
    assert match(["a", "b"], ["a", "c"], ["(.)=c"]).names == {"a": "a", "c": "b"}


BAD_MATCHES = {
    "nothing fits": ((["a"], ["b"]), "rename=.*or by_order=True"),
    "one more": ((["a", "b"], ["a"]), "left unmatched: b"),
    "one less": ((["a"], ["a", "b"]), "left unmatched: b"),
    "one more by order": ((["a", "b"], ["c"], (), True), "left unmatched"),
    "two to one": ((["a1", "a2"], ["b", "c"], ["a.=b"]), "one name, b, to several variables: a1 and a2"),
    "a part of a name": ((["w1"], ["v1"], ["w=v"]), "no variable of the state .* is called 'w'"),
    "to nobody": ((["a"], ["b"], ["a=c"]), "renames a to c, .* are b"),
    "no such group": ((["a"], ["b"], ["a=\\2"]), "does not fit"),
    "no pattern": ((["a"], ["b"], ["(=b"]), "no regular expression"),
    "no equals sign": ((["a"], ["b"], ["a"]), "OLD=NEW"),
    "a number": ((["a"], ["b"], [3]), "OLD=NEW"),
    "other shapes by order": (([("a", (1,))], [("b", (2,))], (), True), r"velocity \(1,\), the other velocity \(2,\)"),
    "equal names of one": ((["w#0", "w#1"], ["w"]), "Several are called w"),
    "equal names of the other": ((["w"], ["w#0", "w#1"]), "Several are called w"),
    "ten": ((["abcdefghi"[:place] for place in range(1, 10)], ["x"]), r"abcdefgh, \.\.\. \(10 in all\)"),
    "another number of equal names": ((["w#0", "w#1"], ["w#0", "w#1", "w#2"]), "Several are called w")}


@pytest.mark.parametrize("name", sorted(BAD_MATCHES))
def test_what_cannot_be_matched(name):
    arguments, needle = BAD_MATCHES[name]
    with pytest.raises(errors.StateError, match=needle):
        match(*arguments)


def test_equal_names():
    assert "order among equal" in repr(match(["w#0", "w#1"], ["w#0", "w#1"]))


# restore on arrays


def test_restore_by_pattern_and_by_order():
    state, first, second = Training().capture(weights=True), Training(seed=1), Training(seed=1)
    first.variables = OrderedDict(("model/" + name, array) for name, array in first.variables.items())
    assert "(.*)=model/\\1" in repr(first.restore(state, rename=["(.*)=model/\\1"], weights=True))
    second.variables = list(second.variables.values())
    assert repr(second.restore(state, by_order=True, weights=True)).count("order") == 3
    for training in (first, second):
        again = numbers(training.capture(weights=True))
        assert [array[1:] for array in again[0]] == [array[1:] for array in numbers(state)[0]]
        assert again[1:] == numbers(state)[1:]


@pytest.mark.filterwarnings("ignore:Creating an ndarray from ragged")  # NumPy 1.19 to 1.23 warns
@pytest.mark.parametrize(
    "breaks",
    [lambda state: state.slots.update(bias=3), lambda state: state.slots.update({3: {}}),
     lambda state: vars(state).update(definition="Adam"),
     lambda state: state.slots["bias"].update(m=[[1.0], [2.0, 3.0]]), lambda state: state.slots["bias"].update(m=None),
     lambda state: state.slots["bias"].update(m=Breaking()),
     lambda state: state.scalars.update({name: None for name in state.scalars})],
)
def test_a_state_that_was_broken_by_hand(breaks):
    training, state = Training(seed=1), Training().capture()
    breaks(state)
    before = numbers(training.capture())
    with pytest.raises(errors.StateError):
        training.restore(state)
    assert numbers(training.capture()) == before


def test_a_state_of_another_definition():
    state = Training(Adam(0.1)).capture()
    training = Training(AdamW(0.1), seed=1)
    with pytest.raises(errors.StateError, match="state is of Adam, this optimizer is AdamW.*other_definition=True"):
        training.restore(state)
    training.restore(state, other_definition=True)
    assert numbers(training.capture()) == numbers(state)
    state.definition = None  # as in a file without one
    training.restore(state)


def test_an_option_that_gives_slots_another_meaning():
    state = Training(SGD(0.1, momentum=0.9, rate_in_velocity=False)).capture()
    with pytest.raises(errors.StateError, match="SGD with rate_in_velocity=False, this optimizer is SGD with"):
        Training(SGD(0.1, momentum=0.9)).restore(state)


def test_how_rows_are_updated_gives_slots_no_other_meaning():
    Training(Adam(0.1, sparse="rows")).restore(Training(Adam(0.1)).capture())


def test_hypers_stay_unless_they_are_asked_for():
    training = Training(everstep.accumulate(Adam(0.1), 2))
    training.optimizer.learning_rate = 0.5
    state = training.capture()
    other = Training(everstep.accumulate(Adam(0.2, beta_1=0.8), 2))
    other.restore(state)
    assert (other.optimizer.learning_rate, other.optimizer.beta_1) == (0.2, 0.8)
    other.restore(state, hypers=True)
    assert (other.optimizer.learning_rate, other.optimizer.beta_1) == (0.5, 0.9)


BAD_HYPERS = {
    "none known": (lambda state: vars(state).update(definition=None), "has no hypers"),
    "one left out": (lambda state: state.definition.pop("beta_1"), "beta_1 of the state cannot be set"),
    "out of range": (lambda state: state.definition.update(beta_1=2.0), "beta_1 of the state cannot be set"),
    "text": (lambda state: state.definition.update(learning_rate="1"), "learning_rate of the state cannot be set"),
    "a schedule": (lambda state: state.definition.update(learning_rate=everstep.ExponentialDecay().get_config()),
                   "learning_rate of the state cannot be set"),
}


@pytest.mark.parametrize("name", sorted(BAD_HYPERS))
def test_hypers_that_cannot_be_set_change_nothing(name):
    training = Training(Adam(0.1))
    state = Training(Adam(0.3), seed=1).capture()
    breaks, needle = BAD_HYPERS[name]
    breaks(state)
    before = numbers(training.capture()), training.capture().definition
    with pytest.raises(errors.StateError, match=needle):
        training.restore(state, hypers=True)
    assert (numbers(training.capture()), training.capture().definition) == before


def test_weights_are_taken_and_given_when_asked():
    training, other = Training(), Training(seed=1)
    assert not training.capture().variables
    before = {name: array.copy() for name, array in other.variables.items()}
    other.restore(training.capture(weights=True))
    assert all((array == before[name]).all() for name, array in other.variables.items())
    other.restore(training.capture(weights=True), weights=True)
    assert all((array == training.variables[name]).all() for name, array in other.variables.items())


def test_an_optimizer_that_has_not_trained(tmpdir):
    weights = np.full(3, 0.5)
    fresh = Adam(0.1).bind(np)
    state = everstep.capture(fresh, [weights])
    assert numbers(state)[0] == [(("0", slot), "<f8", [0.0] * 3) for slot in "mv"] and state.updates == 0
    assert not harness.bound(fresh).adapter.slots  # capture created no slots
    trained = Training(Adam(0.1))
    everstep.restore(fresh, trained.capture(), {name: array.copy() for name, array in trained.variables.items()})
    assert fresh.iterations == trained.optimizer.iterations


def test_numbers_that_do_not_fit_a_dtype():
    wide, narrow = np.ones(3), np.ones(3, "float32")
    first, second = Adam(0.1).bind(np), Adam(0.1).bind(np)
    first.apply_gradients([(np.full(3, 0.1), wide)])
    with pytest.raises(errors.StateError, match="0/m: the state has float64 values that float32 does not hold"):
        everstep.restore(second, everstep.capture(first, [wide]), [narrow])
    second.apply_gradients([(np.full(3, 0.1, "float32"), narrow)])
    everstep.restore(first, everstep.capture(second, [narrow]), [wide])


def test_some_of_the_variables_are_not_enough():
    training = Training()
    names = list(training.variables)
    for call in (training.capture, lambda: training.restore(Training().capture())):
        training.variables = OrderedDict([(names[0], training.variables[names[0]])])
        with pytest.raises(errors.StateError, match="has slots of .* too; give all variables"):
            call()


BAD_VARIABLES = {
    "one array": (lambda array: array, "a list of arrays or variables"),
    "no array": (lambda array: [3], "NumPy arrays"), "a number as a name": (lambda array: {3: array}, "called by text"),
    "an array twice": (lambda array: [array, array[:]], "given twice"),
    "read-only": (lambda array: [np.broadcast_to(array, (2, 3))], "writable")}


@pytest.mark.parametrize("name", sorted(BAD_VARIABLES))
def test_variables_that_are_none(name):
    given, needle = BAD_VARIABLES[name]
    with pytest.raises(errors.VariableError, match=needle):
        everstep.capture(Adam().bind(np), given(np.ones(3)))


def test_what_is_no_bound_optimizer():
    for given in (Adam(), None, "Adam"):
        with pytest.raises(errors.UnsupportedError, match=r"bind\(module\) made \(capture takes stock optimizers too"):
            everstep.capture(given, [np.ones(1)])
