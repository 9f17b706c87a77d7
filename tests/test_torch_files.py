"""Files of torch.save: what real torch wrote is read without it, and no file does harm."""
from __future__ import absolute_import, division, print_function

import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from random import Random

import numpy as np
import pytest

import everstep
from crafted_files import optional, read_bytes, write_bytes
from everstep import cli, file_facts
from everstep.compat.files import pickled
from everstep.errors import EverstepError, FileError, StateError, UnsupportedError
from everstep.optimizers import SGD, Adam, Adamax, AdamW, Nadam, RMSprop
from mutations import mutate_bytes

torch = optional("torch")
FILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "files", "torch2.13")
TRUTH = np.load(os.path.join(FILES, "truth.npz"))
PARAMETERS = ["0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"]
SLOTS = {"exp_avg": "m", "exp_avg_sq": "v", "max_exp_avg_sq": "v_hat", "exp_inf": "u", "square_avg": "mean_square",
         "grad_avg": "mean_grad", "momentum_buffer": "velocity"}
CASES = OrderedDict([
    ("adam.pt", Adam(amsgrad=True)), ("adamw.bin", AdamW()), ("sgd.pt", SGD(momentum=0.9, rate_in_velocity=False)),
    ("rmsprop.pth", RMSprop(momentum=0.5, centered=True)), ("nadam.pt", Nadam()), ("bfloat16.pt", Adam()),
    ("checkpoint.pt", Adamax())])


def read(name, definition=None, **how):
    return everstep.read_checkpoint(os.path.join(FILES, name), definition or CASES[name], **how)


def arrays(state):
    return {(name, slot): np.asarray(each) for name, slots in state.slots.items() for slot, each in slots.items()}


@pytest.mark.parametrize("name", CASES)
def test_what_torch_wrote(name):
    has_names = name != "adamw.bin"
    state = read(name, updates=3 if name == "sgd.pt" else None, variables=None if has_names else PARAMETERS)
    expected = {}
    for key in TRUTH.files:
        file, parameter, slot = (key.split("/") + [""])[:3]
        if file == name and slot in SLOTS:
            scale = 0.5 if name == "rmsprop.pth" and slot == "momentum_buffer" else 1  # ours has the rate in it
            expected[parameter, SLOTS[slot]] = scale * TRUTH[key]
    found = arrays(state)
    assert state.updates == 3 and list(state.slots) == PARAMETERS and set(found) == set(expected)
    for key, value in expected.items():
        assert np.array_equal(found[key], value) and found[key].dtype == np.float32, key
    assert np.array_equal(state.slots["0.weight"][key[1]][1:3], expected["0.weight", key[1]][1:3])


def test_hypers_of_the_file():
    assert [read("adam.pt").definition[name] for name in ("learning_rate", "beta_1", "beta_2", "epsilon")] == [
        0.25, 0.8, 0.9, 1e-3]
    assert read("checkpoint.pt").definition["learning_rate"] == 0.25  # a tensor
    assert abs(read("nadam.pt").scalars["momentum_product"] - TRUTH["nadam.pt/0.bias/mu_product"]) < 1e-7
    facts = file_facts.inspect(os.path.join(FILES, "bfloat16.pt"), AdamW())
    assert facts["notes"] == ["weight_decay differs between the groups of parameters: the definition's is kept"]
    assert facts["optimizer"] == "Adam" and facts["definition"]["weight_decay"] == 0.004


@pytest.mark.parametrize("name", CASES)
def test_the_definition_that_the_groups_say(name):
    if name == "bfloat16.pt":  # its groups differ
        how = {"optimizer": "Adam(weight_decay=0.125)"}
    else:
        how = {"updates": 3} if name == "sgd.pt" else {}
    path = os.path.join(FILES, name)
    state, given = everstep.read_checkpoint(path, **how), read(name, updates=3)
    rule = everstep.Definition.from_config(state.definition)
    assert type(rule.base) is type(CASES[name]) and list(arrays(state)) == list(arrays(given))
    config = rule.base.get_config()
    assert {"Adam": ("corrected_root", True), "AdamW": ("weight_decay", 0.01), "SGD": ("momentum", 0.9),
            "RMSprop": ("rho", 0.75), "Nadam": ("momentum_decay", 0.004), "Adamax": ("epsilon_in_norm", True)}[
                type(rule.base).__name__] in config.items()
    if name == "rmsprop.pth":  # this form has the rate outside
        assert np.array_equal(arrays(state)["0.bias", "velocity"], TRUTH[name + "/0.bias/momentum_buffer"])


@pytest.mark.skipif(torch is None, reason="torch is not installed here")
def test_training_goes_on_in_a_bound_optimizer(tmp_path):
    """A file of torch's own Adam, read and restored into ours, makes its next step."""
    path = str(tmp_path / "run.pt")
    ours, theirs = [[torch.nn.Parameter(torch.arange(6.0).view(3, 2)), torch.nn.Parameter(torch.ones(2))]
                    for _ in range(2)]
    stock = torch.optim.Adam([("weight", theirs[0]), ("bias", theirs[1])], lr=0.125, betas=(0.875, 0.96875))

    def step(optimizer, parameters, number):
        for parameter in parameters:
            parameter.grad = torch.cos(parameter.detach() * number)
        optimizer.step()

    for number in range(1, 4):
        step(stock, theirs, number)
    torch.save(stock.state_dict(), path)
    state = everstep.read_checkpoint(path)
    with torch.no_grad():
        for one, other in zip(ours, theirs):
            one.copy_(other)
    definition = everstep.Definition.from_config(state.definition)
    bound = definition.bind(torch.optim, params=[("weight", ours[0]), ("bias", ours[1])])
    everstep.restore(bound, state, {"weight": ours[0], "bias": ours[1]})
    for number in range(4, 9):
        step(stock, theirs, number)
        step(bound, ours, number)
    for one, other in zip(ours, theirs):
        assert float((one - other).detach().abs().max()) < 1e-6


def test_momentum_with_the_rate_in_it():
    plain = arrays(read("sgd.pt", updates=3))
    scaled = arrays(read("sgd.pt", SGD(momentum=0.9), updates=3))
    assert all(np.array_equal(scaled[key], plain[key] * np.float32(-0.5)) for key in plain)
    other = arrays(read("sgd.pt", SGD(momentum=0.9), updates=3, learning_rate=0.25))
    assert np.array_equal(other["0.bias", "velocity"], plain["0.bias", "velocity"] * np.float32(-0.25))


def test_weights_beside_the_optimizer():
    state = read("checkpoint.pt")
    for name in PARAMETERS:
        assert np.array_equal(np.asarray(state.variables[name]), TRUTH["checkpoint.pt/" + name])
    assert list(read("adamw.bin").slots) == list("012345")  # the file says no names
    named = OrderedDict([("0.weight", 0), ("0.bias", 0), ("1.weight", 0), ("1.bias", 0), ("1.running_mean", 0),
                         ("1.num_batches_tracked", 0), ("2.weight", 0), ("2.bias", 0)])  # as a model's state_dict
    assert list(read("adamw.bin", variables=named).slots) == PARAMETERS


@pytest.mark.parametrize("name, definition, how, message", [
    ("adam.pt", Adam(), {}, "was trained with amsgrad=True, Adam"),
    ("sgd.pt", SGD(momentum=0.9, nesterov=True), {}, "nesterov=False"),
    ("sgd.pt", SGD(momentum=0.9), {}, "Give updates="),
    ("adam.pt", SGD(momentum=0.9), {}, "0.weight has no velocity"),
    ("adamw.bin", AdamW(), {"variables": ["a", "b"]}, "has slots of 6 variables"),
    ("adamw.bin", AdamW(), {"variables": ["a"] * 6}, "equal names"),
    ("bfloat16.pt", None, {}, "its parameter groups differ in weight_decay"),
    ("adam.pt", None, {"optimizer": "Adam(bet=1)"}, "has no argument bet; its groups have amsgrad, betas"),
    ("adam.pt", None, {"optimizer": "LBFGS"}, "it searches along a line"),
    ("checkpoint.pt", Adamax(), {"scope": "other"}, "has no optimizer in 'other'"),
])
def test_what_does_not_fit(name, definition, how, message):
    with pytest.raises(EverstepError) as info:
        everstep.read_checkpoint(os.path.join(FILES, name), definition, **how)
    assert message in str(info.value)


def test_the_command_line(tmp_path, capsys):
    path, out = os.path.join(FILES, "adam.pt"), str(tmp_path / "run.npz")
    assert cli.main(["verify", path]) == 0
    assert "CRC-32" in capsys.readouterr()[0]
    with pytest.raises(UnsupportedError, match="torch.save"):
        everstep.write_checkpoint(everstep.State(), out, "torch")
    read("adam.pt").save(out)
    assert np.array_equal(arrays(everstep.State.load(out))["0.bias", "m"], TRUTH["adam.pt/0.bias/exp_avg"])


@pytest.mark.skipif(torch is None, reason="torch is not installed here")
@pytest.mark.parametrize("name", ["PK.pt", "aPKb.bin", "data.pkl.pt", "n" * 200])
def test_names_of_files(name, tmp_path):
    """torch names the folder in a file after the file; PK also begins each entry of a zip."""
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(2))], lr=0.5)
    optimizer.step()
    optimizer.param_groups[0]["params"][0].sum().backward()
    optimizer.step()
    torch.save(optimizer.state_dict(), str(tmp_path / name))
    assert everstep.read_checkpoint(str(tmp_path / name), everstep.optimizers.Adam(0.5)).updates == 1


@pytest.mark.skipif(torch is None, reason="torch is not installed here")
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_what_torch_writes_today(protocol, tmp_path):
    path = str(tmp_path / "run.pt")
    weight, bias, idle = [torch.nn.Parameter(torch.randn(shape)) for shape in ((3, 2), (2,), (1,))]
    optimizer = torch.optim.Adagrad([("weight", weight), ("idle", idle), ("bias", bias)], lr=0.5)
    optimizer.state[idle].clear()
    for _ in range(2):
        (weight.sum() * bias.sum()).backward()
        optimizer.step()
    views = {"every other": torch.arange(12.0)[1::2], "turned": torch.arange(6, dtype=torch.float64).view(2, 3).t()}
    others = [torch.tensor(kind, dtype=getattr(torch, name)) for name, kind in (
        ("bool", True), ("uint8", 3), ("int16", -3), ("float16", 0.5), ("uint16", 60000), ("complex64", 1j))]
    whole = {"generator": {"optimizer": optimizer.state_dict()}, "views": views, "others": others[:4],
             "device": torch.device("cpu"), "size": torch.Size([2, 3]), "numpy": np.float32(0.5), "big": -(1 << 70)}
    torch.save(whole, path, pickle_protocol=protocol)
    definition = everstep.optimizers.Adagrad(initial_accumulator_value=0.0)
    state = everstep.read_checkpoint(path, definition, scope="generator/optimizer")
    assert list(state.slots) == ["weight", "bias"] and state.updates == 2
    assert np.array_equal(np.asarray(state.slots["weight"]["accumulator"]), optimizer.state[weight]["sum"].numpy())
    notes = file_facts.inspect(path, definition)["notes"]
    assert notes == ["no state of 1 parameters that never had a gradient: 1"]
    from everstep.compat.files import torch_file
    tree = torch_file._opened(path)[0]
    for name, view in views.items():
        assert np.array_equal(np.asarray(tree["views"][name]), view.numpy()) and tree["size"] == (2, 3)
        assert np.array_equal(tree["views"][name][1:2], view.numpy()[1:2])
    for array, tensor in zip(tree["others"], others):
        assert np.asarray(array) == tensor.numpy() and np.asarray(array).dtype == tensor.numpy().dtype
    assert tree["big"] == -(1 << 70) and tree["numpy"] is None
    other = torch.optim.Adagrad([bias], lr=0.5)
    other.step()
    torch.save({"one": optimizer.state_dict(), "two": other.state_dict()}, path)
    with pytest.raises(StateError, match="more than one optimizer.*in one.*in two.*Give scope="):
        everstep.read_checkpoint(path, definition)
    optimizer.state[bias]["step"] += 1
    torch.save(optimizer.state_dict(), path)
    with pytest.raises(FileError, match="the parameter 0 has made step 2, and 2 3"):
        everstep.read_checkpoint(path, definition)


# Hostile contents


class Evil(object):
    """What a pickle may have in it: a call of any function."""

    def __init__(self, function, *arguments):
        self._call = function, arguments

    def __reduce__(self):
        return self._call


def zipped(path, data, **members):
    """Writes a file as torch.save does, with a pickle of any kind."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("run/data.pkl", data)
        for name, content in members.items():
            archive.writestr("run/" + name, content)
    return path


def old(path, data):
    """The same in the format before torch 1.6."""
    start = [pickle.dumps(each, 2) for each in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})]
    write_bytes(path, b"".join(start) + data + pickle.dumps([], 2))
    return path


def opens(path):
    return everstep.read_checkpoint(path, Adam())


@pytest.mark.parametrize("write", [zipped, old], ids=["zip", "old"])
@pytest.mark.parametrize("protocol", [2] if str is bytes else [2, 4])
def test_nothing_is_run(write, protocol, tmp_path):
    done, path = str(tmp_path / "done"), str(tmp_path / "run.pt")
    for function, name in ((os.system, "system"), (eval, "eval")):
        command = "touch {}".format(done) if function is os.system else "__import__('os').mkdir({!r})".format(done)
        data = pickle.dumps({"state": {0: {"m": Evil(function, command)}}, "param_groups": []}, protocol)
        with pytest.raises(FileError, match="wants to call .*{}, which is no part of a state_dict. Nothing was "
                                            "run".format(name)):
            opens(write(path, data))
        assert cli.main(["inspect", path]) == 2 and not os.path.exists(done)
    pickle.loads(data)  # it would have run
    assert os.path.exists(done)


def tensor(count, start=0, shape=(2,), strides=(1,), kind=b"FloatStorage", key=b"0"):
    """Returns the pickle of a state_dict with one tensor, and numbers as a file gives them."""
    def number(value):
        return b"\x8a\x09" + struct.pack("<q", value) + (b"\xff" if value < 0 else b"\0")

    def numbers(values):
        return b"(" + b"".join(map(number, values)) + b"t"

    return (b"\x80\x02}X\x01\0\0\0mctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\n" + kind +
            b"\nX\x01\0\0\0" + key + b"X\x03\0\0\0cpu" + number(count) + b"tQ" + number(start) + numbers(shape) +
            numbers(strides) + b"\x89}tRs.")


PICKLES = [
    (tensor(2), "1 arrays of a model"), (tensor(1 << 40), "more bytes than the file"),
    (tensor(-1), "an array of a kind|the type"), (tensor(4), "are missing"), (tensor(2, 1), "0 has no numbers"),
    (tensor(2, -1), "a tensor of no shape"), (tensor(2, 0, (3,)), "no numbers"), (tensor(2, 0, (2, 3)), "of no shape"),
    (tensor(2, 0, (1 << 40,), (0,)), "no numbers"), (tensor(2, 0, (1 << 60, 0), (1, 1)), "1 arrays of a model"),
    (tensor(2, 0, (1 << 61, 1 << 61, 0), (1, 1, 1)), "no numbers"), (tensor(2, 0, (2,), (-1,)), "of no shape"),
    (tensor(2, 0, (1,) * 40, (1,) * 40), "of no shape"), (tensor(2, kind=b"QInt8Storage"), "the type QInt8Storage"),
    (tensor(2, key=b"9"), "are missing"), (b"", "ends in the middle"), (b"\x80\x02}", "ends in the middle"),
    (b"\x80\x02.", "takes a value"), (b"\x80\x02(.", "takes a value"), (b"\x80\x02}}s.", "takes a value"),
    (b"\x80\x02N}s.", "takes a value"), (b"\x80\x02]NNs.", "sets items of list"), (b"\x80\x02}Na.", "appends to"),
    (b"\x80\x02}]Ns.", "a key of a dictionary in it is list"), (b"\x80\x02}G\0\0\0\0\0\0\0\0Ns.", "is float"),
    (b"\x80\x02}(\x8a\x09\0\0\0\0\0\0\0\0\1Nu.", "a key of a dictionary"), (b"\x80\x02u.", "no mark"),
    (b"\x80\x02}(Nu.", "sets items"), (b"\x80\x02h\0.", "refers to a value"), (b"\x80\x02NNR.", "calls"),
    (b"\x80\x02cos\nsystem", "has no end"), (b"\x80\x02cos\nsystem\n.", "no state_dict of an optimizer"),
    (b"\x80\x02NN\x93.", "names"), (b"\x80\x02i.", "the opcode b?'i'"),
    (b"\x80\x02\x8b\xff\xff\xff\xff.", "an integer"),
    (b"\x80\x02X\xff\xff\xff\xff.", "more than"), (b"\x80\x02X\1\0\0\0\xff.", "not UTF-8"),
    (b"\x80\x02\x8d" + b"\xff" * 8 + b".", "more than"),
    (b"\x80\x02Nr\xff\xff\xff\xffj\xff\xff\xff\xff.", "no state_dict"),
    (b"\x80\x02" + b"]" * 5000 + b"a" * 4999 + b".", "nests more values"), (b"\x80\x02NQ.", "an array of a kind"),
    (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.", "a tensor without an array"),
    (b"\x80\x02" + b"(lq\0" + b"".join(b"(h\0h\0lq\0" for _ in range(40)) + b".", "nests more values"),
    (pickle.dumps({"state": {}, "param_groups": [3]}, 2), "without their list"),
    (pickle.dumps({"state": {}, "param_groups": [{"params": [[]]}]}, 2), "without their list"),
    (pickle.dumps({"state": {0: 3}, "param_groups": []}, 2), "no dictionary of state"),
    (pickle.dumps({"state": {0: {"m": [1]}}, "param_groups": []}, 2), "list as m"),
    (pickle.dumps({"state": {}, "param_groups": []}, 2), "never trained"),
    (pickle.dumps({"state": {0: {"step": -1, "exp_avg": 2.0}}, "param_groups": [{"params": [0]}]}, 2), "not one int"),
    (pickle.dumps({"state": {0: {"step": 1.5, "exp_avg": 2.0}}, "param_groups": [{"params": [0]}]}, 2), "not one int"),
]


@pytest.mark.shared
@pytest.mark.parametrize("data, message", PICKLES, ids=list(map(str, range(len(PICKLES)))))
def test_pickles_that_say_something_else(data, message, tmp_path):
    members = {"data/0": np.zeros(2, np.float32).tobytes()} if b"_rebuild" in data else {}
    with pytest.raises(FileError, match=message):
        opens(zipped(str(tmp_path / "run.pt"), data, **members))


def test_bounds_of_a_pickle(monkeypatch, tmp_path):
    monkeypatch.setattr(pickled, "MAX_OPCODES", 100)
    with pytest.raises(FileError, match="more than 100 values"):
        opens(zipped(str(tmp_path / "run.pt"), b"\x80\x02" + b"N0" * 60 + b"N."))
    monkeypatch.setattr(pickled, "MAX_BYTES", 50)
    with pytest.raises(FileError, match="has more than 50 bytes"):
        opens(zipped(str(tmp_path / "run.pt"), b"\x80\x02" + b"N0" * 60 + b"N."))
    with pytest.raises(FileError, match="it has more than 50 bytes"):
        opens(old(str(tmp_path / "old.pt"), pickle.dumps("x" * 100, 2)))


def test_files_of_other_kinds(tmp_path):
    path = zipped(str(tmp_path / "run.pt"), b"\x80\x02}.", **{"constants.pkl": b"\x80\x02)."})
    with pytest.raises(FileError, match="is a TorchScript model"):
        opens(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run/data.pkl", b"\x80\x02}" + b"N0" * 100 + b".")
    with pytest.raises(FileError, match="not stored as torch.save stores it"):
        opens(path)
    big = tensor(2).replace(b"FloatStorage", b"LongStorage")
    zipped(path, big, **{"data/0": struct.pack(">2q", 1, -2), "byteorder": b"big"})
    from everstep.compat.files import torch_file
    assert np.asarray(torch_file._opened(path)[0]["m"]).tolist() == [1, -2]
    with pytest.raises(FileError, match="another version of the old format"):
        write_bytes(path, b"".join(pickle.dumps(each, 2) for each in (0x1950A86A20F9469CFC6C, 1000, {}, {}, [])))
        opens(path)


@pytest.mark.parametrize("name", ["adam.pt", "adamw.bin", "checkpoint.pt"])
def test_damaged_files(name, tmp_path):
    """A cut or changed file gives our own error, or what it has; a checksum tells changed numbers."""
    path, whole, chance = str(tmp_path / name), read_bytes(os.path.join(FILES, name)), Random(7)
    expected = {key: value.tolist() for key, value in arrays(read(name)).items()}
    for size in list(range(0, 120, 7)) + [chance.randrange(len(whole)) for _ in range(20)]:
        write_bytes(path, whole[:size])
        with pytest.raises(FileError):
            opens(path)
    refused = 0
    for _ in range(150):
        write_bytes(path, bytes(mutate_bytes(chance, whole)[0]))
        try:
            found = arrays(everstep.read_checkpoint(path, CASES[name]))
        except StateError:
            refused += 1
        else:
            if name != "adamw.bin":  # the old format has no checksums
                assert {key: value.tolist() for key, value in found.items()} == expected
    assert 10 < refused


def test_a_changed_pickle_with_a_right_checksum(tmp_path):
    """What a checksum does not see: each byte of the pickle may be anything."""
    path, chance = str(tmp_path / "run.pt"), Random(11)
    with zipfile.ZipFile(os.path.join(FILES, "adam.pt")) as archive:
        members = OrderedDict((name, archive.read(name)) for name in archive.namelist())
    pickle_name = next(name for name in members if name.endswith("data.pkl"))
    for _ in range(300):
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, bytes(mutate_bytes(chance, content)[0]) if name == pickle_name else content)
        try:
            arrays(everstep.read_checkpoint(path, CASES["adam.pt"]))
        except StateError:
            pass
