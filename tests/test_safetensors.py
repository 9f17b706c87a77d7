"""States in files of safetensors."""
from __future__ import absolute_import, division, print_function

import json
import os
import struct
from collections import OrderedDict
from random import Random

import numpy as np
import pytest

import everstep
import harness
from crafted_files import optional, read_bytes, write_bytes
from everstep import cli
from everstep.errors import FileError, StateError
from mutations import mutate_bytes

ml_dtypes = optional("ml_dtypes")
PAIRS = [(np.ones((5, 3)), np.ones((5, 3))), (np.float32([1]), np.float32([3]))]
VARIABLES = OrderedDict(zip(["dense.weight", "dense.bias"], [variable for _, variable in PAIRS]))


def trained():
    optimizer = everstep.accumulate(everstep.optimizers.Nadam(0.1), 2).bind(np)
    for _ in range(3):
        optimizer.apply_gradients(PAIRS)
    return everstep.capture(optimizer, VARIABLES, weights=True)


def plain(state):
    """Returns all that a state has as plain values."""
    parts = state.to_dict()
    return json.loads(json.dumps(parts, default=lambda array: [array.dtype.str, array.tolist()])), list(parts["slots"])


def test_nothing_is_lost(tmp_path):
    state, path, again = trained(), str(tmp_path / "run.safetensors"), str(tmp_path / "again.safetensors")
    state.save(path)
    loaded = everstep.State.load(path)
    assert plain(loaded) == plain(state) and plain(everstep.read_checkpoint(path)) == plain(state)
    loaded.replace(loss_scale={"scale": 2.0, "good_steps": 1.0}, ordered=False).save(again)
    assert everstep.State.load(again).loss_scale["scale"] == 2 and not everstep.State.load(again).ordered
    handle = loaded.slots["dense.weight"]["m"]
    assert np.array_equal(handle[1:3], np.asarray(handle)[1:3])
    os.remove(path)
    assert plain(loaded) == plain(state)
    everstep.restore(everstep.accumulate(everstep.optimizers.Nadam(0.1), 2).bind(np), loaded, VARIABLES)


def test_the_layout_of_the_file(tmp_path):
    path = str(tmp_path / "run.safetensors")
    state = everstep.State({"definition": "Adam"}, 3, slots=OrderedDict([
        ("w", OrderedDict([("a", np.int8([1, 2, 3])), ("b", np.arange(6.0).reshape(2, 3))])),
        ("e", {"m": np.zeros((0, 4), np.float32)})]), variables={"w": np.float32(7), "w/a": np.float16([1])})
    state.save(path)
    data = read_bytes(path)
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length].decode("ascii"))
    assert length % 8 == 0 and json.loads(header.pop("__metadata__")["everstep"])["updates"] == 3
    assert header == {
        "w/b": {"dtype": "F64", "shape": [2, 3], "data_offsets": [0, 48]},
        "e/m": {"dtype": "F32", "shape": [0, 4], "data_offsets": [48, 48]},
        "w": {"dtype": "F32", "shape": [], "data_offsets": [48, 52]},
        "w/a#1": {"dtype": "F16", "shape": [1], "data_offsets": [52, 54]},
        "w/a#0": {"dtype": "I8", "shape": [3], "data_offsets": [54, 57]}}
    assert data[8 + length :][:48] == np.arange(6.0).tobytes() and data[-3:] == b"\1\2\3"
    assert plain(everstep.State.load(path)) == plain(state)


@pytest.mark.skipif(ml_dtypes is None, reason="NumPy has no bfloat16 without ml_dtypes")
def test_bfloat16_stays(tmp_path):
    path = str(tmp_path / "run.safetensors")
    values = np.float32([1.5, -2.25, 1e-30, 3e38, np.inf]).astype(ml_dtypes.bfloat16)
    everstep.State(slots={"w": {"m": values}}, variables={"w": values[0]}).save(path)
    loaded = everstep.State.load(path)
    assert b'"BF16"' in read_bytes(path) and loaded.slots["w"]["m"].dtype == np.float32
    assert np.array_equal(np.asarray(loaded.slots["w"]["m"]), values.astype(np.float32))
    assert np.array_equal(loaded.slots["w"]["m"][1:2], values.astype(np.float32)[1:2])
    assert np.asarray(loaded.variables["w"]) == 1.5


def test_from_one_format_to_the_other(tmp_path, capsys):
    first, second, third = [str(tmp_path / name) for name in ("a.npz", "b.safetensors", "c.npz")]
    trained().save(first)
    assert cli.main(["convert", first, second, "--to", "safetensors"]) == 0
    assert cli.main(["verify", second]) == 0 and "safetensors" in capsys.readouterr()[0]
    assert cli.main(["inspect", second]) == 0
    assert cli.main(["convert", second, third, "--to", "everstep"]) == 0
    before, after = everstep.State.load(first), everstep.State.load(third)
    harness.assert_same_arrays(before, after)
    for name in ("definition", "updates", "steps", "pending", "scalars", "ordered"):
        assert getattr(before, name) == getattr(after, name), name
    assert everstep.write_checkpoint(trained(), str(tmp_path / "no"), "safetensors", dry_run=True).notes == []
    assert not os.path.exists(str(tmp_path / "no"))


def test_a_file_that_another_program_wrote(tmp_path):
    path = str(tmp_path / "model.safetensors")
    text = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    write_bytes(path, struct.pack("<Q", len(text)) + text + np.float32([1, 2]).tobytes())
    with pytest.raises(FileError, match="has 1 arrays, and no state that everstep wrote"):
        everstep.State.load(path)
    with pytest.raises(FileError, match="no state that everstep wrote"):
        everstep.read_checkpoint(path, everstep.optimizers.Adam())
    assert cli.main(["verify", path]) == 0


def changed(tmp_path, change):
    """Returns the path of a file whose header a function changed, in place or by what it returns."""
    path = str(tmp_path / "changed.safetensors")
    trained().save(path)
    data = read_bytes(path)
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length].decode("ascii"), object_pairs_hook=OrderedDict)
    text = change(header)
    text = (json.dumps(header) if text is None else text).encode("utf-8")
    write_bytes(path, struct.pack("<Q", len(text)) + text + data[8 + length :])
    return path


def entry(**values):
    return lambda header: header["dense.weight/m"].update(values)


@pytest.mark.parametrize("change, message", [
    (lambda header: header.pop("dense.bias/v") and None, "does not begin where the array before it ends"),
    (lambda header: header.update(more={"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}), "does not name"),
    (entry(shape=[5, 4]), "are not its bytes"), (entry(shape=[5, 3.0]), "no lists of counts"),
    (entry(shape=3), "no lists of counts"),
    (entry(shape=[1] * 40), "no lists of counts"), (entry(shape=[-5, -3]), "no lists of counts"),
    (entry(shape=[1 << 62, 1 << 62]), "are not its bytes"), (entry(data_offsets=[0]), "no lists of counts"),
    (entry(data_offsets=[1 << 62, (1 << 62) + 120]), "does not begin"), (entry(dtype="F4"), "is of no type"),
    (entry(dtype=[]), "is of no type"), (entry(dtype="I64"), "no such array"), (entry(shape=[3, 5]), "no such array"),
    (entry(other=1), "has not the keys"), (lambda header: "[]", "needed is an object"),
    (lambda header: "{" * 9, "is not JSON"), (lambda header: '{"a":1,"a":2}', "a name stands twice"),
    (lambda header: '{"w":' * 2000 + "1" + "}" * 2000, "is not JSON|has not the keys"),
    (lambda header: header["__metadata__"].update(everstep=3), "is no text"),
    (lambda header: header["__metadata__"].update(everstep="{}"), "does not say that this is"),
    (lambda header: header.update(__metadata__=[]), "needed is an object"),
])
def test_headers_that_say_something_else(change, message, tmp_path):
    with pytest.raises(FileError, match=message):
        everstep.State.load(changed(tmp_path, change))


def test_damaged_files(tmp_path):
    """No file does harm, whatever its bytes are. There is no checksum, so that numbers may be others."""
    path, damaged = str(tmp_path / "run.safetensors"), str(tmp_path / "damaged.safetensors")
    trained().save(path)
    whole, chance = read_bytes(path), Random(5)
    for size in [0, 7, 8, 9, 100, len(whole) - 1]:
        write_bytes(damaged, whole[:size])
        with pytest.raises(FileError):
            everstep.State.load(damaged)
    write_bytes(damaged, struct.pack("<Q", 1 << 39) + b"{")
    with pytest.raises(FileError, match="more than 16777216 are not read"):
        everstep.State.load(damaged)
    for _ in range(400):
        write_bytes(damaged, bytes(mutate_bytes(chance, whole)[0]))
        try:
            everstep.State.load(damaged).to_dict()
        except FileError:
            pass


def test_what_a_file_cannot_hold(tmp_path):
    path = str(tmp_path / "run.safetensors")
    for state in (everstep.State({"definition": object()}), everstep.State(slots={"w": {"m": np.array(["a"])}})):
        with pytest.raises(StateError):
            state.save(path)
    assert os.listdir(str(tmp_path)) == []
