"""Writes files as people make them, with stock optimizers of whatever TensorFlow and Keras is installed.

    python tests/make/people_files.py OUT_FOLDER [NAME...]   # every kind, or those named, that this environment can make
    python tests/make/people_files.py --pack OUT_FOLDER      # the folders as tests/files/people.zip

Each file has a folder of its name with the truth about it: people_truth.py. No program here imports everstep.
"""
from __future__ import absolute_import, division, print_function

import importlib
import os
import shutil
import sys
import tempfile
import traceback
import zipfile
from collections import OrderedDict

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import numpy as np  # noqa: E402

import people_keras as kinds  # noqa: E402
from people_truth import Case  # noqa: E402

ZIP = os.path.join(os.path.dirname(HERE), "files", "people.zip")

# {writer: [(kind, rows of faults.md, the function)]}
R1 = "R1"


def old(*names):
    return [(name, R1, kinds.OLD[name]) for name in names]


PLAN = OrderedDict([
    ("keras1.0.8-theano", old("adam-deep", "rmsprop-named")),
    ("keras1.1.2-theano", old("adagrad-functional")),
    ("keras1.2.0-theano", old("adadelta-lstm")),
    ("keras1.2.2", old("rmsprop-deep", "adagrad-functional", "adadelta-lstm", "adam-deep", "adam-named", "adamax-deep",
                       "nadam-named", "sgd-nesterov-decay", "sgd-plain", "rmsprop-decay", "rmsprop-shared")
     + [("gan-discriminator", "R1 R2", kinds.gan_of("discriminator"))]),
    ("keras1.2.2-theano", old("rmsprop-deep", "adam-named")),
    ("keras2.0.0", old("adam-deep", "rmsprop-named")),
    ("keras2.0.1", old("sgd-nesterov-decay")),
    ("keras2.0.4", old("adagrad-named")),
    ("keras2.0.5", old("adam-deep", "rmsprop-deep", "adadelta-deep", "nadam-named", "adam-frozen", "adam-lstm")
     + [("gan-combined", "R1 R2", kinds.gan_of("combined"))]),
    ("keras2.0.6", old("adam-deep", "rmsprop-deep")),
    ("keras2.0.7", old("adam-named", "adagrad-functional")),
    ("keras2.0.8", old("adam-deep", "rmsprop-decay")),
    ("keras2.1.0", old("adamax-deep")),
    ("keras2.1.3", old("adam-deep")),
    ("keras2.1.6", old("rmsprop-deep", "amsgrad-deep")
     + [("gan-discriminator", "R2", kinds.gan_of("discriminator"))]),
    ("keras2.2.0", old("adagrad-named")),
    ("keras2.2.4", [("multi-gpu", "R12", kinds.multi_gpu), ("nested", "R12", kinds.nested)]),
    ("keras2.3.1", old("nadam-named", "rmsprop-decay")
     + [("gan-discriminator", "R2", kinds.gan_of("discriminator")), ("thawed", "R2", kinds.flags_of(True)),
        ("refrozen", "R2", kinds.flags_of(False)), ("nested", "R12", kinds.nested),
        ("multi-gpu", "R12", kinds.multi_gpu), ("bidirectional", "R12", kinds.bidirectional("LSTM"))]),
])


def optional(name):
    """Returns a module, or None if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if getattr(error, "name", name) != name:
            raise
        return None


def installed():
    """Returns ({writer: (keras, optimizers)}, {package: version}) of this environment."""
    writers, versions = OrderedDict(), {}
    tensorflow, keras = optional("tensorflow"), optional("keras")
    if tensorflow is not None:
        versions["tensorflow"] = tensorflow.__version__
    short = ".".join(versions.get("tensorflow", "").split(".")[:2])
    if keras is not None and hasattr(keras, "__version__"):
        own = keras.__version__
        versions["keras"] = own
        backend = keras.backend.backend()
        if own.startswith("3."):
            if backend != "tensorflow":
                versions[backend] = __import__(backend).__version__
            writers["keras{}-{}".format(".".join(own.split(".")[:2]), backend)] = keras
        elif tensorflow is None or short in ("1.3", "1.4", "1.8", "1.13", "1.14", "1.15", "2.1"):
            writers["keras" + own + ("-theano" if backend == "theano" else "")] = keras
    if tensorflow is not None and hasattr(tensorflow, "keras") and not versions.get("keras", "").startswith("3."):
        writers["tf.keras" + short] = tensorflow.keras
    if short:
        writers["tf" + short] = tensorflow
    return writers, versions


def write_all(out, names):
    writers, versions = installed()
    failed = []
    for writer, keras in writers.items():
        for kind, rows, make in PLAN.get(writer, ()):
            name = "{}-{}".format(writer, kind)
            if names and name not in names:
                continue
            case = Case(out, name, versions, rows)
            try:
                if writer.startswith("tf") and not writer.startswith("tf.keras"):
                    make(case, keras)
                else:
                    modern = writer.startswith("keras3") or writer.startswith("tf.keras2")
                    make(case, kinds.Keras(keras, eager=modern))
                print(name)
            except Exception:
                failed.append(name)
                traceback.print_exc()
                shutil.rmtree(case.folder)
    if failed:
        sys.exit("failed: " + ", ".join(failed))


def pack(out, path):
    """Packs the folders. A file in a zip has a fixed date, so that the same files make the same zip."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder, folders, names in os.walk(out):
            folders.sort()
            for name in sorted(names):
                full = os.path.join(folder, name)
                info = zipfile.ZipInfo(os.path.relpath(full, out).replace(os.sep, "/"), (2020, 1, 1, 0, 0, 0))
                info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                with open(full, "rb") as file:
                    archive.writestr(info, file.read())
    print("{}: {} bytes".format(path, os.path.getsize(path)))


def main(arguments):
    if arguments[:1] == ["--pack"]:
        pack(arguments[1], ZIP)
        return
    out, start = os.path.abspath(arguments[0]), os.getcwd()
    if not os.path.isdir(out):
        os.makedirs(out)
    scratch = tempfile.mkdtemp()  # some frameworks write files to the working directory
    os.chdir(scratch)
    np.random.seed(1)
    try:
        write_all(out, arguments[1:])
    finally:
        os.chdir(start)
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main(sys.argv[1:])
