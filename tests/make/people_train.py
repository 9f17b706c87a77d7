"""Kinds of files of tf.train: Saver, tf.train.Checkpoint, Estimator. See people_files.py."""
from __future__ import absolute_import, division, print_function

import os
import shutil
import tempfile

import numpy as np

from people_truth import TrainWatch

INPUTS = np.array([[0.5, -1.0], [0.2, 0.4], [-0.7, 0.1], [1.0, 0.8]], np.float32)
TARGETS = np.array([[1.0, -1.0], [0.5, 0.3], [-0.5, 0.25], [0.75, -0.5]], np.float32)
STEPS = 3
ADAM = dict(learning_rate=0.01)
ARGUMENTS = {
    "Adam": ADAM, "Momentum": dict(learning_rate=0.1, momentum=0.9), "GradientDescent": dict(learning_rate=0.1),
    "RMSProp": dict(learning_rate=0.01, decay=0.9, momentum=0.5, epsilon=1e-6), "Adagrad": dict(learning_rate=0.1),
    "Adadelta": dict(learning_rate=1.0, rho=0.9, epsilon=1e-4), "Ftrl": dict(learning_rate=0.1),
}


def v1(tensorflow):
    return tensorflow.compat.v1 if tensorflow.__version__.startswith("2.") else tensorflow


def spelled(name, arguments):
    """Returns an optimizer as `read_checkpoint(optimizer=)` takes it."""
    return "{}({})".format(name, ", ".join("{}={!r}".format(key, arguments[key]) for key in sorted(arguments)))


class Net(object):
    """A layer of 2 to 3 and one of 3 to 2 numbers.

    Args:
        tf: TensorFlow 1.
        seed: of its weights.
        cut: a partitioner.
        devices: where the parts of the net are, in turn.
    """

    def __init__(self, tf, seed=0, cut=None, devices=()):
        rng, self.tf = np.random.RandomState(seed), tf

        def make(name, *shape):
            start = np.float32(rng.uniform(0.2, 0.9, shape) * rng.choice([-1, 1], shape))
            with tf.device(devices[len(made) % len(devices)] if devices else None):
                if cut is None:
                    made.append(tf.get_variable(name, initializer=tf.constant(start)))
                else:
                    def part(shape, dtype=None, partition_info=None):
                        rows = partition_info.var_offset[0] if partition_info is not None else 0
                        return tf.constant(start[rows : rows + int(shape[0])])

                    made.append(tf.get_variable(name, shape, tf.float32, part, partitioner=cut))
            return tf.convert_to_tensor(made[-1])

        made = []
        kernel, bias, last, shift = make("w1", 2, 3), make("b1", 3), make("w2", 3, 2), make("b2", 2)
        self.variables = []
        for each in made:
            self.variables += list(each) if cut is not None else [each]
        self.output = tf.matmul(tf.tanh(tf.matmul(tf.constant(INPUTS), kernel) + bias), last) + shift
        self.loss = tf.reduce_mean(tf.square(self.output - TARGETS))


class Training(object):
    """An optimizer of tf.train for a loss: `watch` and `train`."""

    watch, counted = None, True

    def __init__(self, tf, kind, loss, variables, arguments=None, step=None, **more):
        self.arguments = dict(ARGUMENTS[kind] if arguments is None else arguments)
        self.class_name = kind + "Optimizer"
        self.optimizer = getattr(tf.train, self.class_name)(**dict(self.arguments, **more))
        self.pairs = [pair for pair in self.optimizer.compute_gradients(loss, variables) if pair[0] is not None]
        self.train = self.optimizer.apply_gradients(self.pairs, global_step=step)
        self.counted = step is not None

    def start(self, session):
        self.watch = TrainWatch(session, self.optimizer, self.pairs, self.arguments, self.class_name, self.counted)
        return self

    def step(self, also=()):
        self.watch.step([self.train] + list(also))

    @property
    def how(self):
        return {"optimizer": spelled(self.class_name, self.arguments)}


def session_of(tf, devices=1):
    session = tf.Session(config=tf.ConfigProto(device_count={"CPU": devices}, intra_op_parallelism_threads=1))
    session.run(tf.global_variables_initializer())
    return session


def saved(case, tf, trainings, session, counts, name="m.ckpt", saver=None, how=None, also=(), path=None, **facts):
    """Trains each optimizer so often, saves, and makes one more step of each."""
    for training, count in zip(trainings, counts):
        if training.watch is None:
            training.start(session)
        for _ in range(count):
            training.step(also)
    saver = saver or tf.train.Saver()

    def step():
        for training in trainings:
            training.step(also)

    hows = [dict(training.how, **(each or {})) for training, each in zip(trainings, how or [{}] * len(trainings))]
    case.write(path or name, [training.watch for training in trainings],
               lambda: saver.save(session, case.path(name), write_meta_graph=False, write_state=False), step, how=hows,
               **facts)
    session.close()


def plain(optimizer, global_step=False, counter=None, arguments=None, v1_format=False, colon=False, scope=None,
          notes="", variables_alone=False, **facts):
    """Returns a kind: one optimizer and a Saver.

    Args:
        counter: the name of a counter of the user's own, int64, which moves by 2 a step.
        colon: Saver({v.name: v}).
        scope: (variable scope of the net, name scope of the optimizer).
        variables_alone: Saver(tf.trainable_variables()).
    """
    def make(case, tensorflow):
        tf = v1(tensorflow)
        with tf.Graph().as_default():
            also, own = [], None
            if counter:
                place, _, own = counter.rpartition("/")
                with tf.variable_scope(place):
                    own = tf.get_variable(own, initializer=tf.constant(0, tf.int64), trainable=False)
                also = [tf.assign_add(own, tf.constant(2, tf.int64))]
            step = tf.train.get_or_create_global_step() if global_step else None
            if scope:
                with tf.variable_scope(scope[0]):
                    net = Net(tf)
                with tf.variable_scope(scope[1]):
                    training = Training(tf, optimizer, net.loss, net.variables, arguments, step)
            else:
                net = Net(tf)
                training = Training(tf, optimizer, net.loss, net.variables, arguments, step)
            options = {"write_version": tf.train.SaverDef.V1 if v1_format else tf.train.SaverDef.V2}
            if colon:
                options["var_list"] = {each.name: each for each in tf.global_variables()}
            if variables_alone:
                options["var_list"] = tf.trainable_variables()
            saved(case, tf, [training], session_of(tf), [STEPS], saver=tf.train.Saver(**options), also=also,
                  notes=notes or (counter or ""), **facts)

    return make


def without_powers(case, tensorflow):
    """People leave beta powers out: `var_list` of all variables with "Adam" or a layer's name in theirs."""
    tf = v1(tensorflow)
    with tf.Graph().as_default():
        net = Net(tf)
        training = Training(tf, "Adam", net.loss, net.variables)
        training.counted = None
        saver = tf.train.Saver([each for each in tf.global_variables() if "power" not in each.name])
        saved(case, tf, [training], session_of(tf), [STEPS], saver=saver, how=[{"updates": STEPS}],
              notes="no beta powers")


def named(names, counts, scoped=False):
    """A GAN's two optimizers, with names of their own and different numbers of steps.

    Args:
        names: of the optimizers; None for the class's own.
        scoped: whether each is made in a variable scope.
    """
    def make(case, tensorflow):
        tf = v1(tensorflow)
        with tf.Graph().as_default():
            trainings = []
            for number, (part, name) in enumerate(zip(("discriminator", "generator", "encoder"), names)):
                with tf.variable_scope(part):
                    net = Net(tf, number)
                more = {} if name is None else {"name": name}
                if scoped:
                    with tf.variable_scope("train_" + part):
                        trainings.append(Training(tf, "Adam", net.loss, net.variables, **more))
                else:
                    trainings.append(Training(tf, "Adam", net.loss, net.variables, **more))
            saved(case, tf, trainings, session_of(tf), counts,
                  notes="{} with {} steps".format(", ".join(map(str, names)), ", ".join(map(str, counts))))

    return make


def mixed_pair(case, tensorflow):
    """Wide and deep: Ftrl for one part, Adagrad for the other."""
    tf = v1(tensorflow)
    with tf.Graph().as_default():
        trainings, step = [], tf.train.get_or_create_global_step()
        for number, (part, name) in enumerate((("linear", "Ftrl"), ("dnn", "Adagrad"))):
            with tf.variable_scope(part):
                net = Net(tf, number)
            trainings.append(Training(tf, name, net.loss, net.variables, step=None if number else step))
            trainings[-1].counted = True  # global_step is of both
        saved(case, tf, trainings, session_of(tf), [3, 3], notes="Ftrl and Adagrad")


def with_average(optimizer):
    def make(case, tensorflow):
        tf = v1(tensorflow)
        with tf.Graph().as_default():
            net = Net(tf)
            training = Training(tf, optimizer, net.loss, net.variables)
            averages = tf.train.ExponentialMovingAverage(0.9)
            with tf.control_dependencies([training.train]):
                training.train = averages.apply(net.variables)
            saved(case, tf, [training], session_of(tf), [STEPS], notes="an ExponentialMovingAverage beside")

    return make


def partitioned(optimizer):
    def make(case, tensorflow):
        tf = v1(tensorflow)
        with tf.Graph().as_default():
            with tf.variable_scope("net"):
                net = Net(tf, cut=tf.fixed_size_partitioner(2))
            training = Training(tf, optimizer, net.loss, net.variables)
            saved(case, tf, [training], session_of(tf), [STEPS], notes="each variable is cut in two")

    return make


def sharded(optimizer, v1_format, shards=3):
    def make(case, tensorflow):
        tf = v1(tensorflow)
        with tf.Graph().as_default():
            net = Net(tf, devices=["/cpu:{}".format(number) for number in range(shards)])
            training = Training(tf, optimizer, net.loss, net.variables)
            saver = tf.train.Saver(sharded=True, write_version=tf.train.SaverDef.V1 if v1_format
                                   else tf.train.SaverDef.V2)
            path = "m.ckpt-?????-of-{:05d}".format(shards) if v1_format else "m.ckpt"
            saved(case, tf, [training], session_of(tf, shards), [STEPS], saver=saver, path=path,
                  notes="variables on {} devices; the path as save returned it".format(shards))

    return make


def long_trained(steps, v1_format=False, **betas):
    """An Adam whose beta powers underflow."""
    def make(case, tensorflow):
        tf = v1(tensorflow)
        with tf.Graph().as_default():
            net, noise = Net(tf), tf.random_normal((4, 2), seed=3)
            loss = tf.reduce_mean(tf.square(net.output + noise - TARGETS))
            training = Training(tf, "Adam", loss, net.variables, dict(ADAM, **betas))
            saver = tf.train.Saver(write_version=tf.train.SaverDef.V1 if v1_format else tf.train.SaverDef.V2)
            session = session_of(tf)
            training.start(session)
            for _ in range(steps - 1):
                session.run(training.train)
            training.watch.count = steps - 1
            powers = session.run(list(training.optimizer._get_beta_accumulators()))
            saved(case, tf, [training], session, [0], saver=saver, notes="powers {}".format(powers),
                  powers=[float(each) for each in powers])

    return make


def optimize_loss(case, tensorflow):
    """tf.contrib.layers.optimize_loss: everything of the optimizer is below OptimizeLoss."""
    tf = v1(tensorflow)
    from tensorflow.contrib import layers

    with tf.Graph().as_default():
        step, net = tf.train.get_or_create_global_step(), Net(tf)
        optimizer, pairs = tf.train.AdamOptimizer(**ADAM), []
        apply_gradients = optimizer.apply_gradients

        def apply(given, *args, **kwargs):
            pairs[:] = list(given)
            return apply_gradients(pairs, *args, **kwargs)

        optimizer.apply_gradients = apply
        training = Training.__new__(Training)
        training.arguments, training.class_name, training.optimizer = ADAM, "AdamOptimizer", optimizer
        training.train = layers.optimize_loss(net.loss, step, learning_rate=0.01, optimizer=optimizer, summaries=[])
        training.pairs = pairs
        saved(case, tf, [training], session_of(tf), [STEPS], notes="tf.contrib.layers.optimize_loss")


def slim(case, tensorflow):
    """tf.contrib.slim's train_op with RMSProp, in the scopes of slim's models."""
    tf = v1(tensorflow)
    from tensorflow.contrib import slim as contrib

    with tf.Graph().as_default():
        step = tf.train.get_or_create_global_step()
        with tf.variable_scope("Net/Logits"):
            net = Net(tf)
        arguments, pairs = ARGUMENTS["RMSProp"], []
        optimizer = tf.train.RMSPropOptimizer(**arguments)
        apply_gradients = optimizer.apply_gradients

        def apply(given, *args, **kwargs):
            pairs[:] = list(given)
            return apply_gradients(pairs, *args, **kwargs)

        optimizer.apply_gradients = apply
        training = Training.__new__(Training)
        training.arguments, training.class_name, training.optimizer = arguments, "RMSPropOptimizer", optimizer
        training.train = contrib.learning.create_train_op(net.loss, optimizer, global_step=step)
        training.pairs = pairs
        saved(case, tf, [training], session_of(tf), [STEPS], notes="tf.contrib.slim")


class Kept(object):
    """What hooks saw of an optimizer in an Estimator's own sessions, as a watch."""

    def __init__(self, made):
        self.made, self.seen = made, []

    def hook(self):
        kept, tf = self, self.made["tf"]

        class Look(tf.train.SessionRunHook):
            def before_run(self, run_context):
                return tf.train.SessionRunArgs([grad for grad, _ in kept.made["training"].pairs])

            def after_run(self, run_context, run_values):
                self.gradients = run_values.results

            def end(self, session):
                watch = kept.made["training"].start(session).watch
                watch.count = int(session.run(tf.train.get_global_step()))
                watch.gradients = self.gradients
                kept.seen.append((watch.updates(), watch.values(), watch.slots(), watch.last_gradients()))

        return Look()

    @property
    def api(self):
        return "optimizer_v2" if hasattr(self.made["training"].optimizer, "get_updates") else "tf_train"

    @property
    def variables(self):
        return [variable.op.name for _, variable in self.made["training"].pairs]

    def class_name(self):
        return self.made["training"].class_name

    def arguments(self):
        return self.made["training"].arguments

    def is_counted(self):
        return True  # by global_step, or by its own counter

    def name(self, variable):
        return variable

    def updates(self):
        return self.seen[-1][0]

    def values(self):
        return self.seen[-1][1]

    def slots(self):
        return self.seen[-1][2]

    def last_gradients(self):
        return self.seen[-1][3]


def estimated(case, made, runner, folder, features, how, **facts):
    """Trains an Estimator, keeps the files of its checkpoint, and trains it for one more step."""
    tf = made["tf"]

    def data():
        return tf.data.Dataset.from_tensors(features).repeat()

    def save():
        for name in os.listdir(folder):
            if name.startswith("model.ckpt-{}.".format(STEPS)) and not name.endswith(".meta"):
                shutil.copy(os.path.join(folder, name), case.path(name))

    watch = Kept(made)
    runner.train(data, hooks=[watch.hook()], steps=STEPS)
    case.write("model.ckpt-{}".format(STEPS), [watch], save,
               lambda: runner.train(data, hooks=[watch.hook()], steps=1), how=how, **facts)


def estimator(case, tensorflow):
    """The checkpoint of an Estimator."""
    tf, folder = v1(tensorflow), tempfile.mkdtemp()
    made = {"tf": tf}

    def model_fn(features, labels, mode):
        with tf.variable_scope("model"):
            net = Net(tf)
        loss = net.loss + 0.0 * tf.reduce_sum(features["x"])
        made["training"] = Training(tf, "Adagrad", loss, net.variables, step=tf.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=made["training"].train)

    try:
        estimated(case, made, tf.estimator.Estimator(model_fn, folder), folder,
                  ({"x": np.float32([1])}, np.float32([1])), notes="an Estimator's",
                  how={"optimizer": spelled("AdagradOptimizer", ARGUMENTS["Adagrad"])})
    finally:
        shutil.rmtree(folder)


def model_to_estimator(case, tensorflow):
    """A model of tf.keras that became an Estimator: a Saver's file of a Keras optimizer."""
    tf, folder = v1(tensorflow), tempfile.mkdtemp()
    made, rng, optimizers = {"tf": tf}, np.random.RandomState(2), tf.keras.optimizers
    model = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(2,), activation="tanh", name="hidden"),
                                 tf.keras.layers.Dense(2, name="answer")])
    model.set_weights([rng.uniform(0.2, 0.9, value.shape) for value in model.get_weights()])
    model.compile(optimizers.Adam(0.01), "mse")
    get_gradients = optimizers.Adam.get_gradients

    def gradients(self, loss, params):
        training, grads = Training.__new__(Training), get_gradients(self, loss, params)
        training.class_name, training.optimizer, training.pairs = "Adam", self, list(zip(grads, params))
        training.arguments, made["training"] = dict(ADAM), training
        return grads

    optimizers.Adam.get_gradients = gradients
    try:
        runner = tf.keras.estimator.model_to_estimator(model, model_dir=folder, checkpoint_format="saver")
        estimated(case, made, runner, folder, ({"hidden_input": INPUTS}, TARGETS), notes="model_to_estimator",
                  how={"optimizer": spelled("Adam", ADAM)})
    finally:
        optimizers.Adam.get_gradients = get_gradients
        shutil.rmtree(folder)


def object_checkpoint(case, tensorflow):
    """tf.train.Checkpoint of a graph with an optimizer of tf.train."""
    tf = v1(tensorflow)
    with tf.Graph().as_default():
        with tf.variable_scope("net", use_resource=True):
            net = Net(tf)
        training = Training(tf, "Adam", net.loss, net.variables)
        session = session_of(tf)
        training.start(session)
        for _ in range(STEPS):
            training.step()
        parts = dict(zip(("kernel", "bias", "last", "shift"), net.variables))
        checkpoint = tf.train.Checkpoint(opt=training.optimizer, **parts)
        with session.as_default():
            session.run(checkpoint.save_counter.initializer) if checkpoint.save_counter is not None else None
            case.write("m-1", [training.watch], lambda: checkpoint.save(case.path("m"), session), training.step,
                       how=training.how, notes="tf.train.Checkpoint in a graph")
        session.close()
