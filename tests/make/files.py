"""Writes tests/files: checkpoints and model files of the real frameworks, each with the live optimizer's values.

    python tests/make/files.py [FOLDER]    # in a cell; writes its frameworks' folders, below tests/files or FOLDER

Each file has a JSON file beside it. That tells which versions wrote it and how, the variables and slots as the
framework's own API returned them before saving, and one more step: its gradients, and the variables after it. With this
a test can check that a reader understood the file. Runs on Python 2.7 and newer.
"""
from __future__ import absolute_import, division, print_function

import json
import os
import platform
import shutil
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
for folder in (os.path.join(os.path.dirname(TESTS), ".dev"), TESTS):
    sys.path.insert(0, folder)

from small_model import EMBEDDINGS, IDS, KERNEL, TARGETS, api_of, build, gradients, stock_optimizer  # noqa: E402

FILES = os.path.abspath(sys.argv[1]) if sys.argv[1:] else os.path.join(TESTS, "files")
STEPS = 3

# The names of slots: {class, without Optimizer: {role in everstep: names and attributes in the frameworks}}. Keras
# before tf.keras has only a list; its roles are in that order.
SLOTS = {
    "SGD": [("velocity", "momentum momentums"), ("accumulate/sum", "_accumulated_gradients")],
    "Momentum": [("velocity", "momentum")],
    "RMSprop": [("mean_square", "rms _velocities"), ("mean_grad", "mg _average_gradients"),
                ("velocity", "momentum _momentums")],
    "Adagrad": [("accumulator", "accumulator _accumulators")],
    "Adadelta": [("mean_square", "accum accum_grad _accumulated_grads"),
                 ("mean_square_step", "accum_update accum_var _accumulated_delta_vars")],
    "Adam": [("m", "m _momentums"), ("v", "v _velocities"), ("v_hat", "vhat _velocity_hats")],
    "Adamax": [("m", "m _m"), ("u", "v _u")],
    "Nadam": [("m", "m _momentums"), ("v", "v _velocities")],
    "Ftrl": [("accumulator", "accum accumulator _accumulators"), ("linear", "linear _linears")],
}
SLOTS["RMSProp"] = SLOTS["RMSprop"]
SLOTS["AdamW"] = SLOTS["Adam"]

TRAIN = [
    ("momentum", "MomentumOptimizer", dict(learning_rate=0.1, momentum=0.9)),
    ("rmsprop", "RMSPropOptimizer", dict(learning_rate=0.1, momentum=0.9)),
    ("rmsprop_centered", "RMSPropOptimizer", dict(learning_rate=0.1, momentum=0.9, centered=True)),
    ("adam", "AdamOptimizer", dict(learning_rate=0.1)),
    ("adam_beta", "AdamOptimizer", dict(learning_rate=0.1, beta1=0.8, beta2=0.99)),
    ("adagrad", "AdagradOptimizer", dict(learning_rate=0.5)),
    ("adadelta", "AdadeltaOptimizer", dict(learning_rate=1.0, epsilon=1e-3)),
    ("ftrl", "FtrlOptimizer", dict(learning_rate=0.5, l1_regularization_strength=0.001)),
]
KERAS = [
    ("momentum", "SGD", dict(learning_rate=0.1, momentum=0.9)),
    ("sgd", "SGD", dict(learning_rate=0.1)),
    ("rmsprop", "RMSprop", dict(learning_rate=0.1, momentum=0.9, centered=True)),
    ("amsgrad", "Adam", dict(learning_rate=0.1, amsgrad=True)),
    ("adam", "Adam", dict(learning_rate=0.1)),
    ("ftrl", "Ftrl", dict(learning_rate=0.5)),
    ("nadam", "Nadam", dict(learning_rate=0.1)),
    ("adadelta", "Adadelta", dict(learning_rate=1.0)),
    ("adagrad", "Adagrad", dict(learning_rate=0.5)),
    ("adamax", "Adamax", dict(learning_rate=0.1)),
]
NEW = [("accumulated", "SGD", dict(learning_rate=0.1, momentum=0.9, gradient_accumulation_steps=2))]  # Keras 3.1
OLD = dict(rmsprop=dict(learning_rate=0.1))  # RMSprop before tf.keras has neither momentum nor a mean gradient


def ours():
    import everstep

    return [
        ("our_adam", everstep.optimizers.Adam(0.1, amsgrad=True)),
        ("our_accumulated", everstep.accumulate(everstep.optimizers.SGD(0.1, momentum=0.9), 2)),
    ]


def plain(value):
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, bytes) and not isinstance(value, str):
        return value.decode()
    return np.asarray(value, value.dtype).tolist() if isinstance(value, (np.ndarray, np.generic)) else value


class Fixtures(object):
    """A folder of fixtures.

    Args:
        folder: its name, below FILES.
        versions: {package: version} of the writers.
    """

    def __init__(self, folder, **versions):
        self.folder = os.path.join(FILES, folder)
        if os.path.isdir(self.folder):
            shutil.rmtree(self.folder)
        os.makedirs(self.folder)
        self.versions = dict(versions, python=platform.python_version())

    def path(self, name):
        return os.path.join(self.folder, name)

    def tell(self, name, **facts):
        with open(self.path(name) + ".json", "w") as file:
            text = json.dumps(plain(dict(facts, versions=self.versions)), indent=0, sort_keys=True)
            file.write("".join(line.strip() + ("\n" if line.endswith(("{", "},")) else " ")
                               for line in text.splitlines()).strip() + "\n")
        print(name)


# tf.train


def wholes(session, variables):
    """Returns {name: value}, with parts joined."""
    values = {name: session.run(variable_parts) for name, variable_parts in variables.items()}
    return {name: np.concatenate(parts) if len(parts) > 1 else parts[0] for name, parts in values.items()}


def write_train(fixtures, tf, cases, version="V2", object_based=False):
    mine = dict(ours())
    v2 = getattr(tf.train.SaverDef, version)
    for case in cases:
        parts, scope = case.endswith("partitioned"), "net" if case.endswith("scopes") else None
        options = {name: (stock, arguments) for name, stock, arguments in TRAIN}.get(case.split("-")[0])
        with tf.Graph().as_default():
            with tf.variable_scope(scope or tf.get_variable_scope()):
                cut = tf.fixed_size_partitioner(2) if parts else None
                start = tf.constant_initializer
                if parts:
                    embeddings = tf.get_variable("embeddings", (5, 3), initializer=start(0.0), partitioner=cut)
                else:
                    embeddings = tf.get_variable("embeddings", initializer=tf.constant(EMBEDDINGS))
                kernel = tf.get_variable("kernel", initializer=tf.constant(KERNEL))
            embedding_parts = list(embeddings) if parts else [embeddings]
            rows = tf.nn.embedding_lookup(embedding_parts if parts else embeddings, IDS[:, 0], partition_strategy="div")
            loss = tf.reduce_mean(tf.square(tf.matmul(rows, kernel) - TARGETS))
            counter = tf.train.get_or_create_global_step() if "global_step" in case else None
            with tf.variable_scope("train" if scope else tf.get_variable_scope()):
                if options:
                    optimizer = getattr(tf.train, options[0])(**options[1])
                else:
                    optimizer = mine[case].bind(tf.train)
                train = optimizer.minimize(loss, global_step=counter)
            session = tf.Session()
            session.run(tf.global_variables_initializer())
            if parts:
                for part, value in zip(embedding_parts, (EMBEDDINGS[:3], EMBEDDINGS[3:])):
                    part.load(value, session)

            variables = {embedding_parts[0].op.name.replace("/part_0", ""): embedding_parts, kernel.op.name: [kernel]}
            for _ in range(STEPS):
                session.run(train)
            before, slots = wholes(session, variables), {}
            for name, var_parts in variables.items():
                if options:
                    spelled = [(role, [n for n in names.split() if n in optimizer.get_slot_names()])
                               for role, names in SLOTS[options[0].replace("Optimizer", "")]]
                    spelled = [(role, names[0]) for role, names in spelled if names]
                else:
                    spelled = [(n, n) for n in optimizer._bound.slot_names(var_parts[0])]
                values = {role: [optimizer.get_slot(part, n) for part in var_parts] for role, n in spelled}
                slots[name] = wholes(session, values)
            path = fixtures.path(case + ".ckpt") + ("-1" if object_based else "")
            if object_based:
                checkpoint = tf.train.Checkpoint(optimizer=optimizer, embeddings=embeddings, kernel=kernel)
                path = checkpoint.save(fixtures.path(case + ".ckpt"), session)
            else:
                tf.train.Saver(write_version=v2).save(session, path, write_meta_graph=False, write_state=False)
            grads = dict(zip(sorted(before), gradients(*[before[name] for name in sorted(before)])))
            session.run(train)
            fixtures.tell(
                os.path.basename(path),
                format="tf-object" if object_based else "tf-saver",
                api="tf_train",
                optimizer=options and options[0],
                arguments=options and options[1],
                definition=None if options else mine[case].get_config(),
                updates=STEPS if options else STEPS // 2 if "accumulated" in case else STEPS,
                variables=before,
                slots=slots,
                gradients=grads,
                next=wholes(session, variables),
            )
            session.close()
    leftover = fixtures.path("checkpoint")
    if os.path.exists(leftover):
        os.remove(leftover)


# Keras


def roles_of(optimizer, stock, api, variables, value):
    """Returns [{role: slot}], in the order of the variables."""
    if stock is None:
        return [{name: value(optimizer.get_slot(v, name)) for name in optimizer._bound.slot_names(v)}
                for v in variables]
    roles = [{} for _ in variables]
    if api == "get_updates":
        arrays = [value(weight) for weight in optimizer.weights]
        arrays = [array for array in arrays if array.ndim == 2]
        for place, array in enumerate(arrays):
            role = SLOTS[stock][place // len(variables)][0]
            roles[place % len(variables)][role] = array
        return roles
    for role, spellings in SLOTS[stock]:
        for name in spellings.split():
            for place, variable in enumerate(variables):
                if api == "optimizer_v2" and name in optimizer.get_slot_names():
                    roles[place][role] = value(optimizer.get_slot(variable, name))
                elif api in ("update_step", "keras3") and getattr(optimizer, name, None):
                    slots = getattr(optimizer, name)
                    if isinstance(slots, list):
                        roles[place][role] = value(slots[place])
    return roles


def write_keras(fixtures, keras, cases, extensions, optimizers=None, checkpoint=None, named="", eager=False):
    """Trains and saves models of Keras.

    Args:
        cases: names of cases.
        extensions: the files to write of each case.
        checkpoint: tf.train.Checkpoint, for the extension .ckpt.
    """
    optimizers, mine = optimizers or keras.optimizers, dict(ours())
    for case in cases:
        _, stock, arguments = ([each for each in KERAS + NEW if each[0] == case] or [(case, None, None)])[0]
        if hasattr(keras.backend, "clear_session"):
            keras.backend.clear_session()
        if stock:
            arguments = OLD.get(case, arguments) if fixtures.old else arguments
            optimizer = stock_optimizer(optimizers, stock, arguments)
        else:
            optimizer = mine[case].bind(optimizers if optimizers is not keras.optimizers else keras)
        api = api_of(optimizer)
        model = build(keras, optimizer, eager=eager or api == "update_step" and case == "nadam")

        def value(variable):
            return keras.ops.convert_to_numpy(variable) if hasattr(keras, "ops") else keras.backend.get_value(variable)

        for _ in range(STEPS):
            model.train_on_batch(IDS, TARGETS)
        optimizer = model.optimizer
        trained = list(model.trainable_weights)
        names = [getattr(v, "path", v.name).split(":")[0] for v in trained]
        before = model.get_weights()
        slots = dict(zip(names, roles_of(optimizer, stock, api, trained, value)))
        iterations = int(value(optimizer.iterations))
        variables = optimizer.variables if api in ("update_step", "keras3") else optimizer.weights
        listed = [getattr(v, "path", v.name) for v in (variables() if callable(variables) else variables)]
        config = optimizer.get_config()
        written = []
        for extension in extensions:
            name = named + case + extension
            if extension == ".weights.h5":
                model.save_weights(fixtures.path(name))
            elif extension == ".ckpt":
                path = checkpoint(model=model, optimizer=optimizer).save(fixtures.path(name))
                name = os.path.basename(path)
            else:
                model.save(fixtures.path(name))
            written.append((extension, name))
        grads = dict(zip(names, gradients(*before)))
        model.train_on_batch(IDS, TARGETS)
        formats = {".h5": "keras-h5", ".hdf5": "keras-h5", ".keras": "keras", ".weights.h5": "keras-weights-h5",
                   ".ckpt": "tf-object"}
        for extension, name in written:
            fixtures.tell(
                name,
                format=formats[extension],
                api=api,
                optimizer=stock,
                arguments=arguments,
                config=json.loads(json.dumps(config, default=lambda number: np.asarray(number).tolist())),
                updates=iterations,
                variables=dict(zip(names, before)),
                order=names,
                slots=slots,
                weights=listed,
                gradients=grads,
                next=dict(zip(names, model.get_weights())),
                definition=None if stock else mine[case].get_config(),
            )
    leftover = fixtures.path("checkpoint")
    if os.path.exists(leftover):
        os.remove(leftover)


EVERY = "sgd momentum rmsprop amsgrad ftrl nadam adadelta".split()
MAIN = "momentum rmsprop amsgrad ftrl nadam".split()
OURS = ["our_adam", "our_accumulated"]
WEIGHTS = ["sgd", "momentum", "amsgrad", "nadam", "our_adam"]
SCOPED = ["adam-partitioned", "adam-scopes", "adam-global_step", "momentum-global_step"]


def main():
    try:
        import tensorflow
    except ImportError:
        tensorflow = None
    try:
        import keras
    except ImportError:
        keras = None
    version = ".".join(tensorflow.__version__.split(".")[:2]) if tensorflow else None
    standalone = keras.__version__ if keras else ""

    def fixtures(folder, old=False, **versions):
        output = Fixtures(folder, **versions)
        output.old = old
        return output

    def tf_version():
        return tensorflow.__version__

    if version == "1.4":
        output = fixtures("tf1.4", tensorflow=tf_version())
        write_train(output, tensorflow, [case for case, _, _ in TRAIN] + SCOPED + OURS)
        output = fixtures("tf1.4-v1", tensorflow=tf_version())
        write_train(output, tensorflow, ["adam", "momentum"], version="V1")
    if version == "1.15" and sys.version_info[0] == 3:
        output = fixtures("tf1.15", tensorflow=tf_version())
        write_train(output, tensorflow, [case for case, _, _ in TRAIN] + SCOPED + OURS)
        output = fixtures("tf1.15-objects", tensorflow=tf_version())
        write_train(output, tensorflow, ["adam", "momentum", "rmsprop_centered", "our_adam"], object_based=True)
        output = fixtures("tfkeras1.15", tensorflow=tf_version())
        write_keras(output, tensorflow.keras, ["momentum", "rmsprop", "amsgrad", "nadam"] + OURS, [".h5"])
    if version == "2.10":
        v1 = tensorflow.compat.v1
        output = fixtures("tf2.10", tensorflow=tf_version())
        write_train(output, v1, ["momentum", "rmsprop_centered", "adam", "ftrl"] + OURS)
        output = fixtures("tfkeras2.10", tensorflow=tf_version())
        write_keras(output, tensorflow.keras, EVERY + ["adagrad", "adamax"] + OURS, [".ckpt"],
                    checkpoint=tensorflow.train.Checkpoint)
        write_keras(output, tensorflow.keras, EVERY + OURS, [".h5"])
    if version == "2.15":
        output = fixtures("tfkeras2.15", tensorflow=tf_version())
        write_keras(output, tensorflow.keras, EVERY + ["adagrad", "adamax"] + OURS, [".ckpt"],
                    checkpoint=tensorflow.train.Checkpoint)
        write_keras(output, tensorflow.keras, ["momentum", "rmsprop", "amsgrad", "nadam"] + OURS, [".h5"])
        write_keras(output, tensorflow.keras, MAIN + OURS, [".keras"])
        write_keras(output, tensorflow.keras, WEIGHTS, [".weights.h5"])
        output = fixtures("legacy2.15", tensorflow=tf_version())
        write_keras(output, tensorflow.keras, ["amsgrad", "momentum"] + OURS, [".h5"],
                    optimizers=tensorflow.keras.optimizers.legacy)
    if version == "2.21":
        import tf_keras

        output = fixtures("tf_keras2.21", tensorflow=tf_version(), tf_keras=tf_keras.__version__)
        write_keras(output, tf_keras, ["amsgrad", "our_adam"], [".h5", ".keras"])
        write_train(output, tensorflow.compat.v1, ["adam"])
        output = fixtures("keras3.15-tf", tensorflow=tf_version(), keras=standalone)
        write_keras(output, keras, EVERY + ["adagrad", "adamax"] + OURS, [".ckpt"],
                    checkpoint=tensorflow.train.Checkpoint)
        write_keras(output, keras, MAIN + ["accumulated"] + OURS, [".keras"])
        write_keras(output, keras, WEIGHTS, [".weights.h5"])
        write_keras(output, keras, ["amsgrad", "our_adam"], [".h5"])
    if version == "2.16":
        output = fixtures("keras3.0-tf", tensorflow=tf_version(), keras=standalone)
        write_keras(output, keras, ["momentum", "amsgrad", "nadam"] + OURS, [".keras"])
        write_keras(output, keras, ["nadam", "our_adam"], [".weights.h5"])
        write_keras(output, keras, ["amsgrad"], [".h5"])  # its optimizers are not trackable by checkpoints
    if not tensorflow and standalone == "3.15.1":
        backend = keras.backend.backend()
        output = fixtures("keras3.15-" + backend, keras=standalone, **{backend: __import__(backend).__version__})
        every = MAIN + ["accumulated"] + OURS
        write_keras(output, keras, every if backend == "jax" else ["amsgrad", "our_adam"], [".keras"])
        write_keras(output, keras, ["amsgrad", "our_adam"], [".weights.h5"])
    if standalone.startswith("2.") and version in ("1.4", "1.13", "1.15", "2.1"):
        short = ".".join(standalone.split(".")[:2])
        if version != "1.15" or sys.version_info[0] == 3:
            output = fixtures("keras{}-tf{}".format(short, version), True, keras=standalone, tensorflow=tf_version())
            every = ["sgd", "momentum", "rmsprop", "amsgrad", "nadam", "adadelta"]
            write_keras(output, keras, (every if version != "2.1" else ["amsgrad", "nadam"]) + OURS, [".h5"])


if __name__ == "__main__":
    scratch = tempfile.mkdtemp()  # some frameworks write files to the working directory
    os.chdir(scratch)
    try:
        main()
    finally:
        os.chdir(TESTS)
        shutil.rmtree(scratch)
