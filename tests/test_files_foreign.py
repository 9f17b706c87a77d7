"""What people give as a file: the error says what it is, and what to give instead. What can be read is read."""
from __future__ import absolute_import, division, print_function

import io
import os
import shutil
import zipfile

import numpy as np
import pytest

import everstep
from crafted_files import TENSORFLOW, read_bytes, tensorflow, write_bytes
from everstep.errors import FileError, StateError, UnsupportedError
from everstep.optimizers import AdaBelief
from harness import assert_same_arrays

h5py = pytest.importorskip("h5py", reason="most of the files are HDF5")

FILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "files")
H5, ZIP = [os.path.join(FILES, *name) for name in (("tfkeras2.10", "amsgrad.h5"), ("keras3.15-jax", "amsgrad.keras"))]


def refused(path, *words, **how):
    with pytest.raises(StateError) as info:
        everstep.read_checkpoint(path, **how)
    assert [word for word in words if word not in str(info.value)] == [], info.value


def copied(tmp_path, change, source=H5):
    """Returns the path of a changed copy of an HDF5 file."""
    path = str(tmp_path / "copy.h5")
    shutil.copy(source, path)
    with h5py.File(path, "r+") as file:
        change(file)
    return path


@pytest.mark.parametrize("size", [512, 2048])
def test_hdf5_after_a_user_block(size, tmp_path):
    path = str(tmp_path / "model.h5")
    with h5py.File(H5, "r") as source, h5py.File(path, "w", userblock_size=size) as target:
        for name in source:
            source.copy(name, target)
        for name, value in source.attrs.items():
            target.attrs[name] = value
    with io.open(path, "r+b") as file:
        file.write(b"what a user put before it")
    assert_same_arrays(everstep.read_checkpoint(path), everstep.read_checkpoint(H5))


def test_open_files_and_numbers(tmp_path):
    refused(io.BytesIO(read_bytes(H5)), "BytesIO", "write what is in it to a file")
    with h5py.File(H5, "r") as file, io.open(H5, "rb") as same:
        refused(file, "give its path", H5)
        refused(same, "give its path", H5)
    refused(5, "a path is text", "got 5")


@pytest.mark.parametrize("kept", [0.01, 0.5, 0.99])
def test_a_keras_file_that_was_cut_short(kept, tmp_path):
    path, whole = str(tmp_path / "model.keras"), read_bytes(ZIP)
    write_bytes(path, whole[: int(len(whole) * kept)])
    refused(path, "not a complete .keras file", "cut short", "copy it again")


def test_the_folder_of_an_unpacked_keras_file(tmp_path):
    folder = str(tmp_path / "model.keras")
    with zipfile.ZipFile(ZIP) as archive:
        archive.extractall(folder)
    inside = os.path.join(folder, "model.weights.h5")
    refused(folder, "unpacked .keras", inside)
    assert everstep.read_checkpoint(inside, optimizer="Adam(amsgrad=True)").slots


@TENSORFLOW
def test_parts_of_a_saved_model(tmp_path):
    """Also in a folder that is called .keras, as TensorFlow 2 writes it if it is told save_format="tf"."""
    folder = str(tmp_path / "model.keras")
    with tensorflow.Graph().as_default():
        variable = tensorflow.compat.v1.get_variable("w", (2,)) if hasattr(
            tensorflow.compat, "v1") else tensorflow.get_variable("w", (2,))
        v1 = getattr(tensorflow.compat, "v1", tensorflow)
        train = v1.train.AdamOptimizer(0.1).minimize(v1.reduce_sum(variable * variable))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(train)
            builder = v1.saved_model.builder.SavedModelBuilder(folder)
            builder.add_meta_graph_and_variables(session, ["serve"])
            builder.save()
    refused(os.path.join(folder, "saved_model.pb"), "part of a SavedModel", "give the folder, " + folder)
    write_bytes(os.path.join(folder, "keras_metadata.pb"), b"\n")
    refused(os.path.join(folder, "keras_metadata.pb"), "part of a SavedModel", folder)
    assert everstep.read_checkpoint(folder, optimizer="AdamOptimizer(learning_rate=0.1)").updates == 1


# Names in a file


def test_names_of_slots_that_are_of_no_weight(tmp_path):
    """They are not matched by shapes, although those would leave one way."""
    def renamed(file):
        group = file["optimizer_weights"]
        names = [name.decode() if isinstance(name, bytes) else name for name in group.attrs["weight_names"]]
        changed = [name.replace("output/", "other/") for name in names]
        for old, new in zip(names, changed):
            if old != new:
                group.move(old, new)
        group.attrs["weight_names"] = [name.encode() for name in changed]

    refused(copied(tmp_path, renamed), "other/kernel", "after none of the model's weights", "output/kernel")


def test_an_old_count_that_is_not_whole(tmp_path):
    """Keras before 2.0.8 counts in float32."""
    path = os.path.join(FILES, "keras2.1-tf1.4", "amsgrad.h5")

    def older(value):
        def change(file):
            group = file["optimizer_weights"]
            name = group.attrs["weight_names"][0]
            del group[name]
            group.create_dataset(name, data=np.float32(value))
            file.attrs["keras_version"] = file["model_weights"].attrs["keras_version"] = b"2.0.7"

        return change

    assert everstep.read_checkpoint(copied(tmp_path, older(7), path)).updates == 7
    with pytest.raises(FileError, match="not whole: 2.5"):
        everstep.read_checkpoint(copied(tmp_path, older(2.5), path))
    with pytest.raises(FileError, match="not whole: nan"):
        everstep.read_checkpoint(copied(tmp_path, older(np.nan), path))


def test_a_rule_that_stock_has_not():
    """A file with a config says that it is of a stock optimizer; weights alone may be of one that everstep bound."""
    rule, folder = AdaBelief(0.1), os.path.join(FILES, "tfkeras2.15")
    with pytest.raises(UnsupportedError, match="update_step has no stock optimizer with the slots of AdaBelief"):
        everstep.read_checkpoint(os.path.join(folder, "nadam.h5"), rule)
    refused(os.path.join(folder, "sgd.weights.h5"), "are not the state of AdaBelief", definition=rule)
