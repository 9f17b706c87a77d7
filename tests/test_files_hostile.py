"""Files that are read by many, written to full disks and odd places, or made to do harm."""
from __future__ import absolute_import, division, print_function

import io
import json
import os
import random
import shutil
import stat
import struct
import threading
import warnings
import zipfile
from collections import OrderedDict

import numpy as np
import pytest

import crafted_files as crafted
import everstep
from crafted_files import ARRAYS, FILES, HDF5, LENGTH, TENSORFLOW, check_index, entry, h5py, message, values, varint
from everstep import cli
from everstep.errors import FileError, StateError

resource = crafted.optional("resource")  # not on Windows
KINDS = ["npz", pytest.param("h5", marks=HDF5), pytest.param("keras", marks=HDF5), pytest.param("tf", marks=TENSORFLOW)]
kinds = pytest.mark.parametrize("kind", KINDS)
POSIX = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork, modes or FIFOs")


def cpu_seconds():
    """Returns the time that this process has computed, which does not depend on what else runs."""
    return sum(os.times()[:2])


# Reading


def wrong_reads(handles, count, seed):
    chance, wrong = random.Random(seed), 0
    for _ in range(count):
        number, start = chance.randrange(ARRAYS), chance.randrange(LENGTH - 500)
        rows = slice(start, start + 500)
        wrong += not np.array_equal(np.asarray(handles[number][rows]), values(number)[rows])
    return wrong


@POSIX
@kinds
def test_threads_and_forked_processes_read_one_file(kind, tmp_path):
    handles, wrong = crafted.write(kind, str(tmp_path / "file"), list(map(values, range(ARRAYS))))(), []
    count = 1250 if os.environ.get("EVERSTEP_FULL") else 100

    def work(seed):
        try:
            wrong.append(wrong_reads(handles, count, seed))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    children = []
    for seed in range(4):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 3.12 and JAX warn of any fork of a process with threads
            children.append(os.fork())
        if not children[-1]:
            code = 3
            try:
                code = min(2, wrong_reads(handles, count, seed))
            finally:
                os._exit(code)
    for thread in threads:
        thread.join()
    assert wrong == [0] * 4
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4


@kinds
def test_a_loaded_file_survives_its_deletion_and_another_folder(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    handles = crafted.write(kind, "file", list(map(values, range(ARRAYS))))()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    if os.name != "nt":
        for name in os.listdir(str(tmp_path)):
            if name != "other":
                os.remove(str(tmp_path / name))
    assert wrong_reads(handles, 10, 1) == 0


@pytest.mark.parametrize("kind", KINDS[:3])
def test_a_file_that_is_overwritten_in_place(kind, tmp_path):
    """Keras's `model.save` overwrites files. A reader must not read the new contents at the old positions."""
    path = str(tmp_path / "file")
    handles = crafted.write(kind, path, list(map(values, range(ARRAYS))))()
    content = crafted.read_bytes(path)
    with io.open(path, "r+b") as file:
        file.seek(len(content) // 2)
        file.write(b"\1" * 1000)
    os.utime(path, (1, 1))
    with pytest.raises(FileError, match="was changed after it was opened"):
        np.asarray(handles[0])


@pytest.mark.parametrize("make", [
    lambda path: path, lambda path: path.encode("utf-8"), lambda path: path.encode("utf-8").decode("utf-8"),
    lambda path: PathLike(path)], ids=["str", "bytes", "text", "PathLike"])
def test_paths_of_every_type(make, tmp_path):
    name = b"w\xc3\xa4\xe6\x9d\x83.npz"
    text = os.path.join(str(tmp_path), name if str is bytes else name.decode("utf-8"))
    path = make(text) if str is not bytes else {bytes: text}.get(type(make), make(text.decode("utf-8")))
    state = everstep.State({"definition": "Adam"}, 3, slots={"w": {"m": np.ones(3)}})
    state.save(path)
    assert everstep.State.load(path).updates == 3 and everstep.read_checkpoint(path).updates == 3
    assert os.listdir(str(tmp_path)) == [os.path.basename(text)]


class PathLike(object):
    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return self.path


@pytest.mark.parametrize("path", [3, True, None, 0.5, ["a"]], ids=repr)
def test_what_is_no_path(path):
    for call in (everstep.State.load, everstep.read_checkpoint, everstep.State().save):
        with pytest.raises(StateError, match="a path is text"):
            call(path)


# Writing


def test_contents_are_on_disk_before_their_names(tmp_path, monkeypatch):
    events, sync = [], os.fsync
    rename_name = "replace" if hasattr(os, "replace") else "rename"
    rename = getattr(os, rename_name)
    monkeypatch.setattr(os, "fsync", lambda file: (events.append(os.fstat(file).st_ino), sync(file))[1])
    monkeypatch.setattr(os, rename_name, lambda old, new: (
        events.append(("rename", os.stat(old).st_ino, os.path.basename(new))), rename(old, new))[1])
    for name, path, save in list(crafted.writers(tmp_path)):
        del events[:]
        save(path)
        renames = [event for event in events if isinstance(event, tuple)]
        folder = os.stat(str(tmp_path)).st_ino
        for event in renames:
            assert event[1] in events[: events.index(event)], (name, events)
        assert events[-1] == folder and renames, (name, events)
        if name == "tf-saver":
            assert [event[2].partition(".ckpt.")[2][:4] for event in renames] == ["data", "inde"]
            assert events[events.index(renames[-1]) - 1] == folder


@POSIX
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_the_mode_of_a_file_stays(mode, tmp_path):
    for _, path, save in crafted.writers(tmp_path):
        if "ckpt" not in path:
            save(path)
            os.chmod(path, mode)
            save(path)
            assert stat.S_IMODE(os.stat(path).st_mode) == mode


@POSIX
def test_only_regular_files_are_replaced(tmp_path):
    state, fifo, folder = everstep.State(), str(tmp_path / "fifo"), str(tmp_path / "folder")
    os.mkfifo(fifo)
    os.mkdir(folder)
    for path, word in ((fifo, "not a regular file"), (folder, "a folder"), (os.devnull, "not a regular file")):
        before = os.lstat(path)
        with pytest.raises(StateError, match=word):
            state.save(path)
        assert os.path.samestat(os.lstat(path), before) and os.lstat(path).st_mode == before.st_mode
    with pytest.raises(FileError, match="not a regular file"):  # and opening it does not wait for a writer
        everstep.State.load(fifo)
    with pytest.raises(StateError, match="cannot be written"):
        state.save("/proc/run.npz")
    assert sorted(os.listdir(str(tmp_path))) == ["fifo", "folder"]


@POSIX
def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    real, link, dangling = [str(tmp_path / name) for name in ("real.npz", "link.npz", "dangling.npz")]
    everstep.State(updates=1).save(real)
    os.symlink(real, link)
    os.symlink(str(tmp_path / "new.npz"), dangling)
    everstep.State(updates=2).save(link)
    everstep.State(updates=3).save(dangling)
    assert os.path.islink(link) and os.path.islink(dangling)
    assert (everstep.State.load(real).updates, everstep.State.load(str(tmp_path / "new.npz")).updates) == (2, 3)


def test_what_killed_processes_left_is_deleted(tmp_path):
    for _, path, save in list(crafted.writers(tmp_path)):
        left = str(tmp_path / ".{}.0123abcd.tmp".format(os.path.basename(path)))
        os.mkdir(left)
        crafted.write_bytes(os.path.join(left, "new"), b"half")
        os.utime(left, (1, 1))
        save(path)
        assert not os.path.exists(left)
    assert not [name for name in os.listdir(str(tmp_path)) if name.endswith(".tmp")]


@TENSORFLOW
def test_data_files_without_an_index_are_deleted(tmp_path):
    left, other = tmp_path / "run.ckpt.data-00001-of-00002", tmp_path / "run.ckpt-2.data-00000-of-00001"
    for path in (left, other):
        path.write_bytes(b"killed before its index was written")
    crafted.write_tensors(str(tmp_path / "run.ckpt"), {"w": np.ones(3, np.float32)})
    assert not left.exists() and other.exists()


@POSIX
def test_what_a_live_process_writes_is_not_deleted(tmp_path):
    path, seen = str(tmp_path / "run.npz"), []

    class Slow(object):
        shape, dtype = (3,), np.dtype("float32")

        def __getitem__(self, rows):
            everstep.State(updates=1).save(path)  # another writer of the same file
            seen.extend(name for name in os.listdir(str(tmp_path)) if name.endswith(".tmp"))
            return np.ones(3, np.float32)

    everstep.State(updates=2, slots={"w": {"m": Slow()}}).save(path)
    assert len(seen) == 1 and everstep.State.load(path).updates == 2


@pytest.mark.parametrize("length", [241, 245, 255])
def test_long_names(length, tmp_path):
    path = str(tmp_path / ("n" * length))
    everstep.State(updates=5).save(path)
    everstep.State(updates=6).save(path)
    assert everstep.State.load(path).updates == 6 and os.listdir(str(tmp_path)) == ["n" * length]
    with pytest.raises(StateError, match="cannot be written"):
        everstep.State().save(path + "n" * 20)


@HDF5
@pytest.mark.skipif(resource is None, reason="this system has no limits on file sizes")
@pytest.mark.parametrize("kind, name", [("keras", "keras3.15-jax/amsgrad.keras"),
                                        ("keras-h5", "keras2.1-tf1.4/amsgrad.h5")])
def test_a_full_disk_is_not_the_templates_fault(kind, name, tmp_path):
    template, path = os.path.join(FILES, name), str(tmp_path / "new")
    state, limits = everstep.read_checkpoint(template), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(StateError, match="cannot be written") as info:
            everstep.write_checkpoint(state, path, kind, template=template)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not isinstance(info.value, FileError) and "damaged" not in str(info.value)
    assert os.listdir(str(tmp_path)) == []


# Hostile contents


@HDF5
@pytest.mark.parametrize("how", ["compressed", "one array under many names"])
def test_a_file_that_unpacks_to_far_more(how, tmp_path, capsys):
    path = crafted.bomb(tmp_path, how)
    momentum = everstep.optimizers.SGD(0.1, momentum=0.9)
    with pytest.raises(FileError, match="--max-bytes"):
        everstep.read_checkpoint(path, momentum)
    arguments = ["convert", path, str(tmp_path / "out.npz"), "--to", "everstep", "--optimizer", "SGD(momentum=0.9)"]
    assert cli.main(arguments) == 2 and "--max-bytes" in capsys.readouterr()[1]
    assert not os.path.exists(str(tmp_path / "out.npz"))
    with pytest.raises(StateError) as info:  # nothing but handles was read
        everstep.read_checkpoint(path, momentum, max_bytes=1 << 31)
    assert "--max-bytes" not in str(info.value)


@HDF5
@pytest.mark.parametrize("make, place", [
    (lambda other: h5py.ExternalLink(other, "/layers"), "layers"),
    (lambda other: h5py.ExternalLink(other, "/optimizer/vars"), "optimizer/vars"),
    (lambda other: h5py.ExternalLink(other, "/optimizer/vars/0"), "optimizer/vars/0"),
    (lambda other: h5py.SoftLink("/layers/dense"), "optimizer"),
    (lambda other: h5py.SoftLink("/layers/dense/vars/0"), "optimizer/vars/0"),
], ids=["external layers", "external group", "external array", "soft group", "soft array"])
def test_links_are_refused(make, place, tmp_path):
    path, other = str(tmp_path / "x.weights.h5"), str(tmp_path / "other.h5")
    crafted.write_hdf5(path, [values(0)])
    crafted.write_hdf5(other, [values(0)])
    with h5py.File(path, "r+") as file:
        del file[place]
        file[place] = make(other)
    with pytest.raises(FileError, match="is a link"):
        everstep.read_checkpoint(path, optimizer="Adam")


@HDF5
def test_a_group_that_contains_itself(tmp_path):
    path, start = str(tmp_path / "x.weights.h5"), cpu_seconds()
    crafted.write_hdf5(path, [values(0)])
    with h5py.File(path, "r+") as file:
        for name in "abcd":
            file["layers/" + name] = file["layers"]
    with pytest.raises(FileError, match="than a model can have"):
        everstep.read_checkpoint(path, optimizer="Adam")
    assert cpu_seconds() - start < 60


class Empty(object):
    dtype = np.dtype("float32")

    def __init__(self, *shape):
        self.shape = shape


def test_very_long_empty_arrays_take_no_time(tmp_path):
    start, path, copy = cpu_seconds(), str(tmp_path / "run.npz"), str(tmp_path / "copy.npz")
    everstep.State(slots={"w": OrderedDict([("a", Empty(1 << 60, 0)), ("b", Empty(0, 1 << 60))])}).save(path)
    everstep.State.load(path).save(copy)
    assert [slot.shape for slot in everstep.State.load(copy).slots["w"].values()] == [(1 << 60, 0), (0, 1 << 60)]
    assert cli.main(["verify", copy]) == 0
    assert cpu_seconds() - start < 5
    with pytest.raises(StateError, match="no array can have"):
        everstep.State(slots={"w": {"m": Empty(1 << 63, 1 << 63)}}).save(path)


@pytest.mark.shared
def test_more_than_32768_arrays(tmp_path):
    path, one = str(tmp_path / "run.npz"), np.ones((), np.uint8)
    everstep.State(slots={"w": OrderedDict((str(number), one) for number in range(33000))}).save(path)
    slots = everstep.State.load(path).slots["w"]
    assert len(slots) == 33000 and np.asarray(slots["32999"]) == 1
    with zipfile.ZipFile(path) as archive:
        assert len(archive.namelist()) == 33001


@pytest.mark.shared
def test_more_arrays_than_a_file_holds(tmp_path):
    with pytest.raises(StateError, match="the state has 65537 arrays.*holds at most 65536"):
        slots = dict.fromkeys(map(str, range(65537)), np.ones(()))
        everstep.State(slots={"w": slots}).save(str(tmp_path / "run.npz"))


@HDF5
def test_equal_names_take_no_time(tmp_path):
    start, path = cpu_seconds(), str(tmp_path / "x.h5")
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [b"layer"]
        file["layer/w"] = np.ones(3)
        for part in range(10):
            file["layer"].attrs["weight_names%d" % part] = np.array([b"w"] * 4000)
    with pytest.raises(FileError, match="a name twice"):
        everstep.read_checkpoint(path)
    assert cpu_seconds() - start < 5


@HDF5
@pytest.mark.shared
@pytest.mark.parametrize("places", [[0, 39999], range(1, 800)], ids=["few arrays", "many arrays"])
def test_very_many_layers_take_no_time(places, tmp_path):
    path, hdf5 = str(tmp_path / "x.keras"), str(tmp_path / "x.h5")
    with h5py.File(hdf5, "w") as file:
        for place in places:
            file["layers/dense{}/vars/0".format("_%d" % place if place else "")] = np.float32(1)
    layers = [{"class_name": "Dense", "config": {"name": "layer%d" % place}} for place in range(40000)]
    crafted.write_zip(path, hdf5, config=json.dumps({"config": {"layers": layers}}))
    start = cpu_seconds()
    assert crafted.inspect(path)["variables"] == ["layer%d/kernel" % place for place in places]
    assert cpu_seconds() - start < 5


@HDF5
@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "average"])
def test_many_vectors_of_a_factored_rule_take_no_time(wrapped, tmp_path):
    """Keras saves two scalars before a vector's slot. If each could be a variable, there were 2**60 ways to read."""
    path, definition = str(tmp_path / "x.weights.h5"), everstep.optimizers.Adafactor(0.1)
    shapes = [shape for size in range(2, 62) for shape in ((5, size), (size,))]
    saved = shapes if wrapped else []
    for shape in shapes:
        saved = saved + ([shape[:-1], shape[1:], shape] if len(shape) == 2 else [(), (), shape])
    with h5py.File(path, "w") as file:
        file["optimizer/vars/0"], file["optimizer/vars/1"] = np.int64(1), np.float32(0.1)
        for group, offset, each in ("layers/dense", 0, shapes), ("optimizer", 2, saved):
            for place, shape in enumerate(each, offset):
                file["{}/vars/{}".format(group, place)] = np.zeros(shape, np.float32)
    start = cpu_seconds()
    state = everstep.read_checkpoint(path, everstep.moving_average(definition) if wrapped else definition)
    assert list(state.slots) == ["dense/%d" % place for place in range(120)] and cpu_seconds() - start < 10
    average = {"moving_average/average"} if wrapped else set()
    assert [set(each) for each in state.slots.values()] == [average | {"rows", "columns"}, average | {"v"}] * 60


@pytest.mark.parametrize("text, word", [
    ("[" + "[]," * (1 << 22) + "[]]", "values"), ("[1" + "0" * 1000000 + "]", "digits"), ("[" * 100000, "damaged"),
], ids=["values", "digits", "levels"])
@HDF5
def test_json_that_takes_long(text, word, tmp_path):
    path, hdf5, start = str(tmp_path / "x.keras"), str(tmp_path / "x.h5"), cpu_seconds()
    crafted.write_hdf5(hdf5, [values(0)])
    crafted.write_zip(path, hdf5, zipfile.ZIP_DEFLATED, text)
    with pytest.raises(FileError, match=word):
        everstep.read_checkpoint(path)
    assert cpu_seconds() - start < 10


def test_messages_are_harmless(tmp_path, capsys):
    path = str(tmp_path / "state.npz")
    everstep.State(None, 1, slots={u"\x1b]0;x\x07\nw\u202e": {"m": np.ones(3)}}).save(path)
    for command in ("inspect", "verify"):
        assert cli.main([command, path]) == 0
        output = capsys.readouterr()[0]
        assert "\\x1b]0;x\\x07\\x0aw\\x202e" in output and "\x1b" not in output
    assert cli.main(["inspect", path + "\x1b[31m"]) == 2
    assert "\\x1b[31m" in capsys.readouterr()[1]


# TensorFlow's index


ENTRIES = OrderedDict([
    ("dtype", (entry(dtype=99), "type number 99")),
    ("reference", (entry(dtype=101), "type number 101")),
    ("negative size", (entry(sizes=(-2, -3)), "no tensor can have")),
    ("overflow", (entry(sizes=(1 << 40, 1 << 40)), "no tensor can have")),
    ("beyond 64 bits", (entry(sizes=(1 << 62, 1 << 62, 0), size=0), "no tensor can have")),
    ("too many axes", (entry(sizes=(1,) * 300, size=4), "no tensor can have")),
    ("more elements", (entry(sizes=(2, 300)), "600 elements")),
    ("name of an axis", (entry(sizes=()).replace(message((2, b"")), message((2, message((2, message(
        (1, 6), (2, b"\xff")))))), 1), "damaged")),
    ("several shapes", (entry() + message((2, b"")), "several shapes")),
    ("shard", (entry(shard=7), "data file 7 of 1")),
    ("offset", (entry(offset=1 << 40), "has 24 bytes at")),
    ("negative offset", (entry(offset=-8), "has 24 bytes at")),
    ("strings", (entry(dtype=7, sizes=(1 << 30,)), "texts in 24 bytes")),
    ("long strings", (entry(dtype=7, sizes=(1,), size=20), "texts of")),
    ("parts", (entry(size=0, more=[(7, message((1, message((1, 5), (2, 9)))))]), "parts outside")),
    ("no parts", (entry(size=0, more=[(7, message((1, message((2, 2))), (1, message((2, 3)))))]), "parts of other")),
    ("no message", (b"\xff\xff\xff", "damaged")),
    ("half a message", (entry()[:-2], "longer than its message")),
    ("a field 0", (entry() + b"\0\1", "number 0")),
    ("fields of other types", (message((1, b"x"), (2, 5)), "of another type")),
])


@TENSORFLOW
def test_an_index_by_hand_is_read(tmp_path):
    path = str(tmp_path / "x.ckpt")
    crafted.write_index(path, [(b"", crafted.HEADER), (b"w", entry())])
    np.testing.assert_array_equal(np.asarray(crafted.read_tensors(path)["w"]), np.zeros((2, 3), np.float32))
    assert cli.main(["verify", path]) == 0


@TENSORFLOW
@pytest.mark.parametrize("name", ENTRIES)
def test_wrong_entries_of_an_index(name, tmp_path):
    """Checksums are right. Most of these end the process inside TensorFlow."""
    path, (value, word) = str(tmp_path / "x.ckpt"), ENTRIES[name]
    crafted.write_index(path, [(b"", crafted.HEADER), (b"w", value)])
    with pytest.raises(FileError, match=word):
        everstep.read_checkpoint(path)


def repeating(count):
    """Returns entries with names of 60,000 characters, as a block that repeats the start of the name before."""
    heads = [varint(0) + varint(60004) + varint(0) + b"a" * 60000]
    heads += [varint(60000) + varint(4) + varint(0)] * (count - 1)
    return b"".join(head + struct.pack(">I", place) for place, head in enumerate(heads))


def test_an_index_that_unpacks_to_far_more(tmp_path):
    path, start = str(tmp_path / "x.ckpt"), cpu_seconds()
    data = repeating(10000) + struct.pack("<II", 0, 1)
    crafted.write_bytes(path + ".index", crafted.table(data + b"\0" + crafted.checksum(data + b"\0")))
    with pytest.raises(FileError, match="100 times as long"):
        check_index(path)
    assert cpu_seconds() - start < 10


@pytest.mark.shared
def test_a_shape_of_very_many_axes(tmp_path):
    path, start = str(tmp_path / "x.ckpt"), cpu_seconds()
    crafted.write_index(path, [(b"", crafted.HEADER), (b"w", entry(sizes=(1 << 40,) * 100000, size=4))])
    with pytest.raises(FileError, match="no tensor can have"):
        check_index(path)
    assert cpu_seconds() - start < 10


def test_texts_that_share_bytes_are_read_once(tmp_path):
    path, start = str(tmp_path / "x.ckpt"), cpu_seconds()
    text = entry(dtype=7, sizes=(1,), size=1 << 22)
    crafted.write_index(path, [(b"", crafted.HEADER)] + [(b"w%05d" % place, text) for place in range(2000)])
    crafted.write_bytes(path + ".data-00000-of-00001", varint((1 << 22) - 8) + b"\0" * ((1 << 22) - 4))
    with pytest.raises(FileError, match="share bytes"):
        check_index(path)
    assert cpu_seconds() - start < 10


@TENSORFLOW
@pytest.mark.parametrize("entries, restart, word", [
    ([(b"w", entry())], 0, "no header"),
    ([(b"", message((1, 0)))], 0, "0 data files"),
    ([(b"", message((1, 1), (2, 1)))], 0, "big-endian"),
    ([(b"", crafted.HEADER), (b"w", entry()), (b"a", entry())], 0, "not in order"),
    ([(b"", crafted.HEADER), (b"w", entry()), (b"x", entry())], 0, "share bytes"),
    ([(b"", crafted.HEADER), (b"w", entry())], 3, "a search in it"),
], ids=["no header", "no files", "big-endian", "order", "shared", "restart"])
def test_wrong_indices(entries, restart, word, tmp_path):
    path = str(tmp_path / "x.ckpt")
    crafted.write_index(path, entries, restart)
    with pytest.raises(FileError, match=word):
        everstep.read_checkpoint(path)


def test_values_of_another_variable_in_a_checkpoint_of_version_1(tmp_path):
    """TensorFlow reads past their end if they are fewer than the variable has."""
    path = str(tmp_path / "model.v1")
    entries = crafted.index_entries(os.path.join(FILES, "tf1.4-v1", "adam.ckpt"))
    keys, turned = [key for key, _ in entries[2:]], [value for _, value in entries[:1:-1]]
    crafted.write_bytes(path, crafted.table(crafted.block(entries[:2] + list(zip(keys, turned)))))
    with pytest.raises(FileError, match="the values of .* stand in place of those of "):
        check_index(path)


@TENSORFLOW
@pytest.mark.parametrize("version", [1, 2])
def test_parts_of_variables(version, tmp_path):
    """Each has a key of its own form, in which small and large numbers take different numbers of bytes."""
    tf, path = crafted.tf1, str(tmp_path / "model.v1")
    with tf.Graph().as_default(), tf.Session() as session:
        for name, shape, axis in ("rows", (20000, 2), 0), ("few", (130, 3), 0), ("columns", (2, 700), 1):
            tf.get_variable(name, shape, partitioner=tf.fixed_size_partitioner(3, axis=axis))
        tf.get_variable("scalar", ())
        session.run(tf.global_variables_initializer())
        tf.train.Saver(write_version=version).save(session, path, write_meta_graph=False)
    check_index(path)
    read = crafted.read_tensors(path)
    assert [read[name].shape for name in sorted(read)] == [(2, 700), (130, 3), (20000, 2), ()]
    for name in read if version == 2 else ["scalar"]:  # TensorFlow's reader does not join parts of version 1
        assert np.isfinite(np.asarray(read[name])).all()


PARTITIONED = os.path.join(FILES, "tf1.15", "adam-partitioned.ckpt")


def test_parts_of_another_type(tmp_path):
    """TensorFlow ends the process."""
    path = str(tmp_path / "model.ckpt")
    crafted.copy_bundle(PARTITIONED, path)
    entries = crafted.index_entries(path + ".index")

    def write_with(dtype):
        changed = [(key, message((1, dtype)) + value[2:] if key == b"embeddings/Adam" else value)
                   for key, value in entries]
        crafted.write_bytes(path + ".index", crafted.table(crafted.block(changed)))

    write_with(1)
    assert check_index(path)
    write_with(9)
    with pytest.raises(FileError, match="parts of other places, sizes or types"):
        check_index(path)


@TENSORFLOW
def test_damaged_parts_of_a_variable(tmp_path):
    """TensorFlow's reader keeps the error, and ends the process if it is used again."""
    path = str(tmp_path / "model.ckpt")
    crafted.copy_bundle(PARTITIONED, path)
    data, damaged = bytearray(crafted.read_bytes(path + ".data-00000-of-00001")), []
    data[68:188] = bytearray(byte ^ 1 for byte in data[68:188])
    crafted.write_bytes(path + ".data-00000-of-00001", bytes(data))
    for name, handle in list(crafted.read_tensors(path).items()) * 2:
        try:
            assert np.isfinite(np.asarray(handle)).all()
        except FileError as error:
            assert "hecksum" in str(error)
            damaged.append(name)
    assert damaged == ["embeddings/Adam", "embeddings/Adam_1"] * 2


@TENSORFLOW
def test_inspect_has_the_guard_of_read_checkpoint(tmp_path, capsys):
    path, momentum = str(tmp_path / "x.ckpt"), "Momentum(learning_rate=0.1, momentum=0.9)"
    tensors = crafted.read_tensors(os.path.join(FILES, "tf1.4", "momentum.ckpt"))
    crafted.write_tensors(path, OrderedDict(tensors, **{"global_step": np.array(np.nan)}))
    with pytest.raises(FileError, match="NaN"):
        everstep.read_checkpoint(path, optimizer=momentum)
    for arguments in ([], ["--optimizer", momentum]):
        assert cli.main(["inspect", path] + arguments) in (0, 2)
        assert "Traceback" not in "".join(capsys.readouterr())
    assert crafted.inspect(path, optimizer=momentum)["missing"]


@HDF5
def test_integers_are_no_slots(tmp_path):
    path = str(tmp_path / "x.h5")
    shutil.copy(os.path.join(FILES, "keras2.3-tf1.15", "amsgrad.h5"), path)
    with h5py.File(path, "r+") as file:
        group = file["optimizer_weights"]
        name = next(name for name in group.attrs["weight_names"] if b"iterations" not in np.asarray(name).tobytes())
        shape = group[name].shape
        del group[name]
        group.create_dataset(name, data=np.ones(shape, np.int64))
    with pytest.raises(FileError, match="holds int64"):
        everstep.read_checkpoint(path)


# everstep verify


@kinds
def test_verify(kind, tmp_path, command):
    path, arrays = str(tmp_path / "file"), list(map(values, range(ARRAYS)))
    arrays[1][0, 0] = np.nan
    crafted.write(kind, path, arrays)
    code, output, _ = command("verify", path)
    count = ARRAYS * (2 if kind in ("h5", "keras") else 1)
    assert code == 0 and "was read, without an error: {} arrays, {} bytes".format(count, count * LENGTH * 16) in output
    assert "1 of 12000 are NaN" in output and ("HDF5 keeps no checksum" in output) == (kind == "h5")
    code, output, _ = command("verify", path, "--json")
    facts = json.loads(output)
    assert code == 0 and len(facts["arrays"]) == count and facts["damaged"] == 0
    damaged = path + (".data-00000-of-00001" if kind == "tf" else "")
    content = crafted.read_bytes(damaged)
    place = content.index(np.float32(100000 * 2 + 8).tobytes())
    crafted.write_bytes(damaged, content[:place] + b"\xff" + content[place + 1 :])
    code, output, complaint = command("verify", path)
    assert code == (0 if kind == "h5" else 1)  # HDF5 cannot know
    if kind in ("npz", "tf"):
        assert "is damaged: 1 of {} arrays".format(ARRAYS) in output
    elif kind == "keras":
        assert "is damaged" in complaint
    crafted.write_bytes(damaged, content[: len(content) // 2])
    assert command("verify", path)[0] == 1


def test_verify_what_is_no_file(tmp_path, command):
    (tmp_path / "empty").write_bytes(b"")
    code, _, complaint = command("verify", str(tmp_path / "empty"))
    assert code == 1 and "of no format" in complaint
    code, output, _ = command("verify", str(tmp_path / "none"), "--json")
    assert code == 2 and "there is no file" in json.loads(output)["error"]
