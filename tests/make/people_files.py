"""Writes files as people make them, with stock optimizers of whatever TensorFlow and Keras is installed.

    python tests/make/people_files.py OUT_FOLDER [NAME...]   # every kind that this environment can make, or these
    python tests/make/people_files.py --pack OUT_FOLDER      # the folders as tests/files/people.zip

Each file has a folder of its name with the truth about it: people_truth.py. No program here imports everstep.

Environments. A name in PLAN says which Keras or TensorFlow writes it:

    keras1.0.8 to 1.2.2, each -theano         Python 3.6, keras==..., theano<1.1, h5py<3, KERAS_BACKEND=theano (up to
                                              1.2.0 they use functions that TensorFlow 1.0 renamed)
    keras1.2.2, keras2.0.0 to 2.2.0, tf1.4    Python 3.6, keras==..., tensorflow==1.4.1, h5py<3, protobuf<3.20,
                                              setuptools<58; keras2.0.7 needs tensorflow==1.3.0
    keras2.2.4, tf.keras1.13                  the cell py36-tf1.13-k2.2
    keras2.3.1, tf.keras1.15, tf1.15          py37-tf1.15-k2.3
    keras2.3.1-tf2.1, tf.keras2.1             py37-tf2.1-k2.3
    tf.keras2.4 to 2.15, tf2.10               py38-tf2.4, py39-tf2.7, py39-tf2.10, py310-tf2.12, py311-tf2.15
    keras3.0-tensorflow                       py312-tf2.16
    keras3.4-jax, 3.5, 3.9                    Python 3.11, keras==3.4.1, 3.5.0 and 3.9.2, jax<0.5, KERAS_BACKEND=jax
    keras3.15-tensorflow, tf2.21              py313-tf2.21
    keras3.15-jax, keras3.15-torch            py313-k3jax, py311-k3torch

What old Kerases save differently. Seen in the files, and in the sources of the packages (file:line):

    order      up to 2.0.5, slots are in the order of the names of the trainable weights, sorted with their ":0" (Theano
               has none): 1.0.8 engine/training.py:258, 1.1.2 :682, 1.2.0 :699, 1.2.2 :746, 2.0.0 :987, 2.0.5 :1000. So
               dense_10 and dense_11 come before dense_2 (in 1.x even before dense_1: "dense_10_W" < "dense_1_W"), a
               bias before its kernel (2.0.x), an LSTM's U_c before W_c. From 2.0.6 on the model's order: :922
    flags      the weights that train are those at compile; 1.0.8 takes them when it first trains (training.py:693)
    counter    float32 up to 2.0.7 (optimizers.py:147), int64 from 2.0.8 on (:147)
    counting   1.1.2 to 2.0.7: SGD, RMSprop, Adagrad and Adadelta count only if they decay (2.0.7 optimizers.py:160),
               so SGD's counter is 0.0 in most files. 1.0.8: SGD always counts (:142); RMSprop, Adagrad, Adadelta have
               no counter, and only SGD has `decay`. From 2.0.8 on all count (:157)
    stored     RMSprop, Adagrad, Adadelta store slots alone up to 2.2.5 (:255, `self.weights = accumulators`), so a
               rate that decays needs the count from a person. In 2.3.1 the counter comes first (:264)
    Nadam      m_schedule is not stored up to 2.2.5 (:660), and is the second array in 2.3.1 (:701)
    Adam       vhats from 2.1.3 on, of shape (1,) without amsgrad (:452); none before (2.1.2 :429)
    SGD        stores velocities without momentum, too, in all versions
    epsilon    1e-8 by default up to 2.1.2, K.epsilon() (1e-7) from 2.1.3 on; all versions write the number they used
    names      TensorFlow: "Variable_5:0" up to 2.0.6, with "iterations:0" from 2.0.0 on; "Adam/iterations:0" and
               "training/Adam/Variable_1:0" from 2.0.7 on (training.py:956); "training/Adam/m_0_1:0" in 2.3.1, "m_0:0"
               on TensorFlow 2.1. Theano: "param_0", ... (1.2.2 models.py:92). None of them names the weight
    weights    "dense_1_W:0" in 1.x (Theano: "dense_1_W"), "dense_1/kernel:0" from 2.0.0 on; in 1.x the statistics of a
               BatchNormalization are called running_mean and running_std
    version    `keras_version` is an attribute of the file in all (1.0.8 models.py), of `model_weights` from 2.0.0 on
               (topology.py:2692), `backend` of both from 2.0.0 on
    config     of a Sequential: a list up to 2.2.2, a dictionary with "layers" in 2.2.4
    race       on TensorFlow a step reads its counter before or after it moves it, and Adam with `decay` reads it twice,
               perhaps once so and once so; Theano reads all before it moves any
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
import people_train as train  # noqa: E402
from people_truth import Case  # noqa: E402

ZIP = os.path.join(os.path.dirname(HERE), "files", "people.zip")

# {writer: [(kind, rows of faults.md, the function)]}
R1 = "R1"


def keras(name, rows, make, end="h5"):
    return "{}-{}".format(name, end) if end != "h5" else name, rows, kinds.to("model." + end, make)


def old(*names):
    return [(name, R1, kinds.OLD[name]) for name in names]


DISCRIMINATOR = kinds.gan_of("discriminator")
PLAN = OrderedDict([
    ("keras1.0.8-theano", old("adam-deep", "rmsprop-named", "sgd-plain")),
    ("keras1.1.2-theano", old("adagrad-functional")),
    ("keras1.2.0-theano", old("adadelta-lstm")),
    ("keras1.2.2", old("rmsprop-deep", "adagrad-functional", "adadelta-lstm", "adam-deep", "adam-named", "adamax-deep",
                       "nadam-named", "sgd-nesterov-decay", "sgd-plain", "rmsprop-decay", "rmsprop-shared")
     + [("gan-discriminator", "R1 R2", kinds.gan_of("discriminator"))]),
    ("keras1.2.2-theano", old("rmsprop-deep", "adam-decay")),
    ("keras2.0.0", old("adam-deep", "rmsprop-named")),
    ("keras2.0.1", old("sgd-nesterov-decay")),
    ("keras2.0.4", old("adagrad-named")),
    ("keras2.0.5", old("adam-deep", "rmsprop-deep", "adadelta-deep", "nadam-named", "adam-frozen", "adam-lstm")
     + [("gan-combined", "R1 R2", kinds.gan_of("combined"))]),
    ("keras2.0.6", old("adam-deep", "rmsprop-deep")),
    ("keras2.0.7", old("adam-named", "adagrad-functional")),
    ("keras2.0.8", old("adam-deep", "rmsprop-decay")),
    ("keras2.1.0", old("adamax-deep")),
    ("keras2.1.3", old("adam-named")),
    ("keras2.1.6", old("rmsprop-deep", "amsgrad-deep")
     + [("gan-discriminator", "R2", kinds.gan_of("discriminator"))]),
    ("keras2.2.0", old("adagrad-named")),
    ("keras2.2.4", [("multi-gpu", "R12", kinds.multi_gpu), ("nested", "R12", kinds.nested)]),
    ("keras2.3.1", old("nadam-named", "rmsprop-decay")
     + [("gan-discriminator", "R2", kinds.gan_of("discriminator")), ("thawed", "R2", kinds.flags_of(True)),
        ("refrozen", "R2", kinds.flags_of(False)), ("nested", "R12", kinds.nested),
        ("multi-gpu", "R12", kinds.multi_gpu), ("bidirectional", "R12", kinds.bidirectional("LSTM"))]),
    ("keras2.3.1-tf2.1", old("adam-named") + [keras("gan-combined", "R2 R12", kinds.gan_of("combined"))]),
    ("tf1.4", [
        ("adam-v1", "R3", train.plain("Adam", v1_format=True)),
        ("adam-v1-sharded", "R9", train.sharded("Adam", True)),
        ("momentum-v1-sharded", "R3 R9", train.sharded("Momentum", True, 2)),
        ("momentum-counter", "R3 R4", train.plain("Momentum", counter="agent/updates")),
        ("rmsprop-counter", "R4", train.plain("RMSProp", counter="x/iter")),
        ("adam-long", "R5", train.long_trained(1500)),
        ("adam-named", "R6", train.named(["D_opt"], [4])),
        ("gan-named", "R6 R8", train.named(["D_opt", "G_opt"], [6, 3])),
        ("adam-colon", "R7", train.plain("Adam", colon=True, global_step=True)),
        ("average", "R3", train.with_average("Momentum")),
        ("partitioned", "R3", train.partitioned("Adam")),
        ("optimize-loss", "R3", train.optimize_loss), ("slim", "R3", train.slim),
    ]),
    ("tf1.15", [
        ("sgd-counter", "R3 R4", train.plain("GradientDescent", counter="agent/updates")),
        ("sgd-global-step", "R3", train.plain("GradientDescent", global_step=True)),
        ("adagrad-counter", "R4", train.plain("Adagrad", counter="train/iterations", global_step=True)),
        ("ftrl-scopes", "R3", train.plain("Ftrl", scope=("agent/net", "agent/train"))),
        ("adam-scopes", "R4", train.plain("Adam", counter="agent/updates", scope=("agent/net", "agent/train"))),
        ("adadelta", "R3", train.plain("Adadelta")),
        ("adam-very-long", "R5", train.long_trained(6000, beta2=0.98)),
        ("adam-very-long-v1", "R5", train.long_trained(6000, True, beta2=0.98)),
        ("gan-unnamed", "R8", train.named([None, None], [4, 2])),
        ("gan-scopes", "R8", train.named([None, None], [4, 2], True)),
        ("three-adams", "R8", train.named([None, None, None], [0, 0, 5])),
        ("wide-and-deep", "R3 R8", train.mixed_pair),
        ("adam-colon-v1", "R7", train.plain("Adam", colon=True, v1_format=True)),
        ("adam-v2-sharded", "R9", train.sharded("Adam", False)),
        ("partitioned-ftrl", "R3", train.partitioned("Ftrl")),
        ("estimator", "R3", train.estimator), ("model-to-estimator", "R3", train.model_to_estimator),
        ("object", "R3", train.object_checkpoint),
        ("adam-without-powers", "R5", train.without_powers),
        ("weights", "R13", train.plain("Adam", variables_alone=True, refused=["weights alone"])),
    ]),
    ("tf2.10", [
        ("adam-counter", "R4", train.plain("Adam", counter="agent/updates", global_step=True)),
        ("gan-named-scopes", "R6 R8", train.named(["D_opt", "G_opt"], [6, 3], True)),
        ("rmsprop-v1-sharded", "R9", train.sharded("RMSProp", True)),
    ]),
    ("tf.keras1.13", [keras("gan-combined", "R2 R12", kinds.gan_of("combined")),
                      keras("multi-gpu", "R12", kinds.multi_gpu)]),
    ("tf.keras1.15", [keras("gan-discriminator", "R2", DISCRIMINATOR), keras("thawed", "R2", kinds.flags_of(True)),
                      keras("refrozen", "R2", kinds.flags_of(False)), keras("multi-gpu", "R12", kinds.multi_gpu),
                      ("tf-weights", "R2", kinds.tf_weights)]),
    ("tf.keras2.1", [keras("refrozen", "R2", kinds.flags_of(False)), keras("gan-discriminator", "R2", DISCRIMINATOR)]),
    ("tf.keras2.4", [keras("gan-discriminator", "R2", DISCRIMINATOR), keras("thawed", "R2", kinds.flags_of(True)),
                     ("tf-weights", "R2", kinds.tf_weights)]),
    ("tf.keras2.7", [keras("nested", "R12", kinds.nested)]),
    ("tf.keras2.10", [keras("gan-combined", "R2 R12", kinds.gan_of("combined")),
                      keras("refrozen", "R2", kinds.flags_of(False)), keras("mixed", "R12", kinds.mixed),
                      ("saved-model", "R2", kinds.saved_model), ("two-objects", "R8", kinds.object_checkpoint)]),
    ("tf.keras2.12", [keras("windows", "R11", kinds.windows(kinds.named), "keras"),
                      keras("gan-class", "R10", kinds.gan_class, "keras"),
                      keras("mixed", "R12", kinds.mixed, "keras")]),
    ("tf.keras2.15", [
        keras("gan-discriminator", "R2 R10", DISCRIMINATOR, "keras"),
        keras("refrozen", "R2", kinds.flags_of(False)), keras("thawed", "R2", kinds.flags_of(True), "keras"),
        keras("gan-class", "R10", kinds.gan_class, "keras"),
        keras("compiled-base", "R10", kinds.compiled_base, "keras"),
        keras("bidirectional", "R12", kinds.bidirectional("LSTM"), "keras"),
        keras("bidirectional", "R12", kinds.bidirectional("GRU"), "weights.h5"),
        keras("windows", "R11", kinds.windows(kinds.named), "keras"),
        keras("windows-bidirectional", "R11 R12", kinds.windows(kinds.two_ways), "keras"),
        keras("equal-biases", "R12", kinds.equal_biases, "weights.h5"), keras("mixed", "R12", kinds.mixed, "keras"),
    ]),
    ("keras3.0-tensorflow", [
        keras("gan-class", "R10", kinds.gan_class, "keras"), keras("thawed", "R2", kinds.flags_of(True), "keras"),
        keras("bidirectional", "R12", kinds.bidirectional("LSTM"), "keras"),
        keras("equal-biases", "R12", kinds.equal_biases, "weights.h5"),
        keras("nested", "R12", kinds.nested, "weights.h5"),
    ]),
    ("keras3.4-jax", [keras("compiled-base", "R10", kinds.compiled_base, "keras"),
                      keras("refrozen", "R2", kinds.flags_of(False))]),
    ("keras3.5-jax", [keras("gan-class", "R10", kinds.gan_class, "keras"),
                      keras("bidirectional", "R12", kinds.bidirectional("GRU"), "weights.h5")]),
    ("keras3.9-jax", [keras("gan-discriminator", "R2 R10", DISCRIMINATOR, "keras"),
                      keras("nested", "R12", kinds.nested), keras("shared", "R12", kinds.SHARED, "keras"),
                      keras("shared", "R12", kinds.SHARED, "weights.h5")]),
    ("keras3.15-tensorflow", [
        keras("gan-class", "R10", kinds.gan_class, "keras"), keras("mixed", "R12", kinds.mixed, "keras"),
        keras("bidirectional", "R12", kinds.bidirectional("LSTM"), "keras"),
        keras("refrozen", "R2", kinds.flags_of(False)),
    ]),
    ("keras3.15-jax", [keras("gan-combined", "R2 R12", kinds.gan_of("combined")),
                       keras("attention", "R12", kinds.attention, "weights.h5")]),
    ("keras3.15-torch", [keras("compiled-base", "R10", kinds.compiled_base, "keras"),
                         keras("equal-biases", "R12", kinds.equal_biases, "weights.h5")]),
    ("tf2.21", [
        ("adam-named", "R6", train.named(["Adam_optimizer"], [5])),
        ("momentum-colon", "R3 R7", train.plain("Momentum", colon=True)),
        ("average-adam", "R3", train.with_average("Adam")),
    ]),
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
            writers["keras" + own + {"theano": "-theano"}.get(backend, "-tf2.1" if short == "2.1" else "")] = keras
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
