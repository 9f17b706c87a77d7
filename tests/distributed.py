"""Runs one distributed training job in its own process: `python distributed.py JOB [KEY=VALUE ...]`.

Prints one line of JSON. tests/test_distribution.py starts these processes, compares their results and stops them.
"""
from __future__ import absolute_import, division, print_function

import functools
import json
import os
import sys
import time

import numpy as np

import everstep

WORDS, WIDTH, OUTPUTS, BATCH, STEPS = 6, 3, 2, 8, 6
random = np.random.RandomState(0)
TABLE = random.normal(size=(WORDS, WIDTH)).astype("float32")
WEIGHTS = random.normal(size=(WIDTH, OUTPUTS)).astype("float32")


def definitions():
    """Returns {name: definition} to train; ONLY selects some. A large epsilon keeps rounding from deciding signs."""
    chosen = os.environ.get("ONLY")
    return {name: definition for name, definition in _definitions().items() if not chosen or name in chosen.split("; ")}


def _definitions():
    adam = everstep.optimizers.Adam(0.1, epsilon=1e-3)
    return {"SGD": everstep.optimizers.SGD(0.1), "Adam": adam, "LAMB": everstep.optimizers.LAMB(0.1, epsilon=1e-3),
            "accumulate(Adam)": everstep.accumulate(adam, 2), "Adam, rows": adam.replace(sparse="rows"),
            "Adam, catch_up": adam.replace(sparse="catch_up"), "clip(Adam)": everstep.clip(adam, global_norm=0.5),
            "Nadam": everstep.optimizers.Nadam(0.1, epsilon=1e-3),
            "moving_average(SGD)": everstep.moving_average(everstep.optimizers.SGD(0.1))}


def batch(step):
    """Returns (word ids, targets). There are few words, so that replicas share some."""
    random = np.random.RandomState(step + 10)
    return random.randint(0, WORDS, BATCH).astype("int64"), random.normal(size=(BATCH, OUTPUTS)).astype("float32")


def two_devices(tf):
    """Splits this machine's CPU into two virtual devices."""
    config = tf.config if hasattr(tf.config, "set_logical_device_configuration") else tf.config.experimental
    one = getattr(config, "LogicalDeviceConfiguration", None) or config.VirtualDeviceConfiguration
    split = getattr(config, "set_logical_device_configuration", None) or config.set_virtual_device_configuration
    split(config.list_physical_devices("CPU")[0], [one(), one()])


def modules(tf):
    """Returns [(name, module)] of the Keras APIs in this TensorFlow: one or two."""
    apis = [("keras", tf.keras)]
    try:
        from tf_keras.optimizers import legacy
    except ImportError:
        legacy = getattr(tf.keras.optimizers, "legacy", None)
    if hasattr(getattr(legacy, "Adam", None), "add_slot"):  # in Keras 3 the class only warns
        apis.append(("legacy", legacy))
    chosen = os.environ.get("MODULE")
    return [apis[int(chosen) % len(apis)]] if chosen else apis


def cases(tf):
    """Returns (label, module, definition) of each Keras and definition."""
    return [("{} {}".format(target, name), module, definition)
            for target, module in modules(tf) for name, definition in sorted(definitions().items())]


def halving(native_class):
    """Returns a subclass that replaces the hooks of a variable: they halve the gradient."""

    class Halving(native_class):
        pass

    def half(name):
        def hook(self, gradient, variable, *others):
            if hasattr(gradient, "values"):
                gradient = type(gradient)(gradient.values * 0.5, gradient.indices, gradient.dense_shape)
            else:
                gradient = gradient * 0.5
            return getattr(super(Halving, self), name)(gradient, variable, *others)

        return hook

    for name in ("_resource_apply_dense", "_resource_apply_sparse", "update_step"):
        if hasattr(native_class, name):
            setattr(Halving, name, half(name))
    return Halving


class Model(object):
    """An embedding and a dense layer. Each replica trains on its part of a batch."""

    def __init__(self, tf, module, definition, strategy=None, is_eager=False, hooked=False):
        self.tf, self.strategy = tf, strategy or tf.distribute.get_strategy()
        self.keras3 = hasattr(module, "ops")
        with self.strategy.scope():
            make = module.Variable if self.keras3 else tf.Variable
            self.table, self.weights = make(TABLE, name="table"), make(WEIGHTS, name="weights")
            self.optimizer = definition.bind(module)
            if hooked:
                self.optimizer = halving(type(self.optimizer)).from_definition(definition)
            if hasattr(self.optimizer, "build"):
                self.optimizer.build([self.table, self.weights])
        self.share = None  # (batch size of this process, its index); by default each replica takes its share
        run = getattr(self.strategy, "run", None) or self.strategy.experimental_run_v2
        whole = lambda words, targets: run(self.step, args=(words, targets))  # noqa: E731  # a step of all replicas
        self.function = whole if is_eager else tf.function(whole)

    def step(self, words, targets):
        tf, context = self.tf, self.tf.distribute.get_replica_context()
        share = BATCH // self.strategy.num_replicas_in_sync
        task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task")  # early versions count within a process
        first = share * (task["index"] if task else tf.cast(context.replica_id_in_sync_group, "int32"))
        if self.share:
            share, first = self.share[0], self.share[0] * self.share[1]
        words, targets = words[first : first + share], targets[first : first + share]
        native = [v.value if self.keras3 else v for v in (self.table, self.weights)]

        def loss():
            outputs = tf.matmul(tf.nn.embedding_lookup(native[0], words), native[1])
            return tf.reduce_sum(tf.square(outputs - targets)) / BATCH

        if self.share:  # Horovod sums gradients only where it computes them itself
            self.optimizer.minimize(loss, native)
            return
        with tf.GradientTape() as tape:
            value = loss()
        grads = tape.gradient(value, native)
        self.optimizer.apply_gradients(list(zip(grads, [self.table, self.weights])))

    def train(self, steps):
        for step in steps:
            self.function(*map(self.tf.constant, batch(step)))
        return self

    def values(self):
        native = [v.value if self.keras3 else v for v in (self.table, self.weights)]
        return [each.numpy() for v in native for each in self.strategy.experimental_local_results(v)]

    def lists(self):
        return [value.tolist() for value in self.values()]


def largest_difference(values, expected):
    """Returns the largest difference. `values` may hold each variable several times, once for each replica."""
    each = len(values) // len(expected)
    return max(float(np.abs(value - expected[place // each]).max()) for place, value in enumerate(values))


def replicas():
    """Compares MirroredStrategy and CentralStorageStrategy on two devices with one replica on the whole batches."""
    import tensorflow as tf

    two_devices(tf)
    devices = ["CPU:0", "CPU:1"]
    mirrored = lambda: tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())  # noqa: E731
    central = lambda: tf.distribute.experimental.CentralStorageStrategy(devices, parameter_device="CPU:0")  # noqa: E731
    differences = {"replicas not waited for": 2 - waited_for(tf, mirrored()),
                   "sum in a replica": 2 - sum_in_a_replica(tf, mirrored())}
    for name, module in modules(tf):
        differences[name + ", slots on another device"] = slots_elsewhere(tf, module)
    for label, module, definition in cases(tf):
        kinds = {"mirrored": (mirrored, False, False), "central": (central, False, False)}
        if label.endswith(" Adam"):
            kinds["mirrored, eager"] = mirrored, True, False
        if label.endswith((" Adam", " accumulate(Adam)")):
            kinds["mirrored, hooks"] = mirrored, False, True
        singles = {}  # {whether hooks are replaced: values}
        for kind, (strategy, is_eager, hooked) in kinds.items():
            if hooked not in singles:
                singles[hooked] = Model(tf, module, definition, hooked=hooked).train(range(STEPS)).values()
            both = Model(tf, module, definition, strategy(), is_eager, hooked).train(range(STEPS)).values()
            differences["{}, {}".format(label, kind)] = largest_difference(both, singles[hooked])
    return differences


def waited_for(tf, strategy):
    """Returns how many of the operations of replicas run before what the backend puts after them."""
    backend, found = everstep.optimizers.SGD().bind(tf.compat.v1.train)._bound.backend, []
    run = getattr(strategy, "run", None) or strategy.experimental_run_v2

    @tf.function
    def function():
        parts = run(lambda: tf.random.uniform([]))
        with backend.after([parts]):
            found.extend(tf.compat.v1.no_op().control_inputs)

    with strategy.scope():
        function.get_concrete_function()
    return len(found)


def slots_elsewhere(tf, module):
    """Returns how many slots of a variable on the second device are on the first one."""
    keras3 = hasattr(module, "ops")
    with tf.device("CPU:1"):
        variable = (module.Variable if keras3 else tf.Variable)(WEIGHTS, name="weights")
    optimizer = definitions()["Adam"].bind(module)
    optimizer.apply_gradients([(tf.ones_like(WEIGHTS), variable)])
    slots = [optimizer.get_slot(variable, name) for name in ("m", "v")]
    return sum("CPU:1" not in (slot.value if keras3 else slot).device for slot in slots)


def sum_in_a_replica(tf, strategy):
    """Returns the sum of 1 over two replicas. Strategies that compile for several GPUs never leave their replicas."""
    backend = everstep.optimizers.SGD().bind(tf.compat.v1.train)._bound.backend
    run = getattr(strategy, "run", None) or strategy.experimental_run_v2
    sums = tf.function(lambda: run(lambda: backend.added_up(strategy, [(tf.ones([]), None)])[0][0]))()
    return float(min(map(float, strategy.experimental_local_results(sums))))


def resumed():
    """Saves halfway under one strategy and resumes under another, by capture and by checkpoint."""
    import tensorflow as tf

    two_devices(tf)
    devices, differences = ["CPU:0", "CPU:1"], {}
    mirrored = lambda: tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())  # noqa: E731
    definition = definitions()["accumulate(Adam)"]
    for target, module in modules(tf):
        whole = Model(tf, module, definition).train(range(STEPS)).values()
        for before, after in ((mirrored, None), (None, mirrored)):
            first = Model(tf, module, definition, before and before()).train(range(3))
            second = Model(tf, module, definition, after and after())
            variables = [[model.table, model.weights] for model in (first, second)]
            everstep.restore(second.optimizer, everstep.capture(first.optimizer, variables[0]), variables[1])
            for old, new in zip(*variables):
                new.assign(old.numpy() if hasattr(old, "numpy") else old.value.numpy())
            label = "{} {}".format(target, "out of mirrored" if before else "into mirrored")
            differences[label + " by capture"] = largest_difference(second.train(range(3, STEPS)).values(), whole)
            if target == "keras" and first.keras3:
                continue  # its optimizers cannot be in a tf.train.Checkpoint
            third = Model(tf, module, definition, after and after())
            path = os.path.join(os.environ["FOLDER"], label.replace(" ", "_"))
            first = Model(tf, module, definition, before and before()).train(range(3))
            saved, read = (
                tf.train.Checkpoint(table=model.table, weights=model.weights, optimizer=model.optimizer)
                for model in (first, third)
            )
            read.restore(saved.save(path))
            differences[label + " by checkpoint"] = largest_difference(third.train(range(3, STEPS)).values(), whole)
    return differences


def multi_worker():
    """Runs one process of a MultiWorkerMirroredStrategy; TF_CONFIG says which."""
    import tensorflow as tf

    kind = getattr(tf.distribute, "MultiWorkerMirroredStrategy", None)
    strategy = (kind or tf.distribute.experimental.MultiWorkerMirroredStrategy)()
    return {label: Model(tf, module, definition, strategy).train(range(STEPS)).lists()
            for label, module, definition in cases(tf)}


def server(task, cluster):
    """Serves a cluster's requests until the process is stopped."""
    import tensorflow as tf

    kind, number = task.split(":")
    make = getattr(tf.train, "Server", None) or tf.distribute.Server
    tf_server = make(tf.train.ClusterSpec(json.loads(cluster)), job_name=kind, task_index=int(number), protocol="grpc")
    print(json.dumps("ready"))
    sys.stdout.flush()
    tf_server.join()


def coordinator(cluster):
    """Dispatches steps to the workers of a ParameterServerStrategy."""
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(json.loads(cluster)), rpc_layer="grpc"
    )
    kind = getattr(tf.distribute, "ParameterServerStrategy", None)
    strategy = (kind or tf.distribute.experimental.ParameterServerStrategy)(resolver)
    places = getattr(tf.distribute, "coordinator", None) or tf.distribute.experimental.coordinator
    results = {}
    for label, module, definition in cases(tf):
        model = Model(tf, module, definition, strategy)
        dispatch = places.ClusterCoordinator(strategy)
        for step in range(STEPS):
            dispatch.schedule(model.function, args=tuple(map(tf.constant, batch(step))))
            dispatch.join()  # one step at a time, so that the result is that of one process
        results[label] = model.lists()
        results[label + " updates"] = int(model.optimizer.iterations.numpy())
    return results


def asynchronous():
    """Two parameter servers and two workers, all in this process: tables in shards, and gradients of both workers."""
    import tensorflow as tf

    addresses = [address.split(",") for address in os.environ["ADDRESSES"].split(" ")]
    spec = tf.train.ClusterSpec(dict(zip(("ps", "worker", "chief"), addresses)))
    # otherwise workers would wait for each other's threads
    threads = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=8)
    servers = [tf.distribute.Server(spec, job_name=job, task_index=index, protocol="grpc", config=threads)
               for job in ("ps", "worker") for index in range(2)]
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
    partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    strategy = tf.distribute.experimental.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
    cluster = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy)
    results = {"servers": len(servers)}
    for name, module in modules(tf):
        for label, definition in async_definitions().items():
            results["{} {}".format(name, label)] = many_gradients(tf, strategy, cluster, definition.bind(module))
        for label in os.environ["SHARDED"].split("; "):
            results["{} {}, sharded".format(name, label)] = sharded(tf, strategy, cluster, module, label)
    return results


def async_definitions():
    sgd = everstep.optimizers.SGD(1.0)
    return {"SGD": sgd, "moving_average": everstep.moving_average(sgd), "accumulate 2": everstep.accumulate(sgd, 2),
            "accumulate 4": everstep.accumulate(sgd, 4), "lookahead": everstep.lookahead(sgd, 2),
            "swa": everstep.stochastic_weight_averaging(sgd), "loss_scale": everstep.loss_scale(sgd)}


def many_gradients(tf, strategy, cluster, optimizer):
    """Returns how far 600 gradients of 1, of whichever worker is free, move a variable; or the error's name."""
    with strategy.scope():
        variable = tf.Variable([0.0])
        if hasattr(optimizer, "build"):
            optimizer.build([variable])

    def step():
        loss = optimizer.scale_loss(tf.ones([1]))
        optimizer.apply_gradients([(loss, variable)])

    function = tf.function(lambda: strategy.run(step))
    try:
        for _ in range(600):
            cluster.schedule(function)
    except everstep.errors.EverstepError as error:
        assert "2 workers do not wait for one another" in str(error) and float(variable[0]) == 0
        return type(error).__name__
    cluster.join()
    return -float(variable[0])


def sharded(tf, strategy, cluster, module, label):
    """Returns how far a table in shards is from a whole one, trained and saved in between; or the error's name."""
    definition = definition_named(label)

    def make():
        with strategy.scope():
            table = tf.Variable(TABLE, name="table")
            optimizer = definition.bind(module)
            if hasattr(optimizer, "build"):
                optimizer.build(table.variables)
        return table, optimizer, tf.train.Checkpoint(table=table, optimizer=optimizer)

    def train(table, optimizer, steps):
        def step(words, targets):
            with tf.GradientTape() as tape:
                off = tf.nn.embedding_lookup(table, words) - targets[:, :1]
                loss = tf.reduce_sum(tf.square(off)) / BATCH
            optimizer.apply_gradients(list(zip(tape.gradient(loss, table.variables), table.variables)))

        function = tf.function(lambda *arguments: strategy.run(step, args=arguments))
        for step_number in steps:
            cluster.schedule(function, args=tuple(map(tf.constant, batch(step_number))))
            cluster.join()  # one step at a time, so that the result is that of one process

    first, second = make(), make()
    try:
        train(first[0], first[1], range(3))
    except everstep.errors.UnsupportedError as error:
        assert "whole, but it is partitioned" in str(error)
        return "UnsupportedError"
    second[2].restore(first[2].save(os.path.join(os.environ["FOLDER"], "sharded")))
    train(second[0], second[1], range(3, STEPS))
    whole, optimizer = TABLE.copy(), definition.bind(np)
    for words, targets in map(batch, range(STEPS)):
        rows = everstep.IndexedSlices(2 * (whole[words] - targets[:, :1]) / BATCH, words)
        optimizer.apply_gradients([(rows, whole)])
    assert not np.array_equal(whole, TABLE)
    parts = [part.numpy() for part in second[0].variables]  # a table in shards has no numpy() before TF 2.10
    return largest_difference([np.concatenate(parts)], [whole])


def definition_named(label):
    adam = everstep.optimizers.Adam(0.1, epsilon=1e-3)
    wrapped = {"clip(Adam)": everstep.clip(adam, norm=0.1), "centralize(Adam)": everstep.centralize(adam)}
    if label in wrapped:
        return wrapped[label]
    definition = getattr(everstep.optimizers, label)
    return definition(0.1, epsilon=1e-3) if definition.takes("epsilon") else definition(0.1)


def train_worker(task, cluster, sync, steps):
    """Runs a worker of a TF 1 cluster: gradients of 1, twice on one row of a table. Prints each step that is done.

    It stops after `steps` steps (with `sync`, after `steps` updates of both workers together), or once a file `enough`
    exists. SGD has a kernel, except for `sparse="rows"`. Lion has none, and its update does not depend on the order in
    which workers write its slot.
    """
    import tensorflow as tf

    tf, number = getattr(tf.compat, "v1", tf), int(task.split(":")[1])
    spec = tf.train.ClusterSpec(json.loads(cluster))
    tf_server = tf.train.Server(spec, job_name="worker", task_index=number)
    # Plain SGD counts no updates on tf.train; one with a schedule does.
    definitions = [everstep.optimizers.SGD(everstep.PiecewiseConstantDecay([10**6], [0.125, 0.125]))]
    definitions += [everstep.optimizers.Lion(0.125, sparse="rows")] if sync == "no" else []
    operations, states, hooks = [], [], []
    with tf.device(tf.train.replica_device_setter(worker_device="/job:worker/task:{}".format(number), cluster=spec)):
        counter = tf.train.get_or_create_global_step()
        rows = tf.IndexedSlices(tf.ones((2, 2)), tf.constant([1, 1], tf.int64), tf.constant([4, 2], tf.int64))
        for definition in definitions:
            name = type(definition).__name__
            table = tf.get_variable("table_" + name, (4, 2), initializer=tf.zeros_initializer())
            weights = tf.get_variable("weights_" + name, (3,), initializer=tf.zeros_initializer())
            optimizer = bound = definition.bind(tf.train, use_locking=True)
            if sync == "yes":
                optimizer = tf.train.SyncReplicasOptimizer(bound, 2, total_num_replicas=2)
                hooks.append(optimizer.make_session_run_hook(number == 0))
            count = None if operations else counter
            operations.append(optimizer.apply_gradients([(tf.ones(3), weights), (rows, table)], global_step=count))
            states.append([bound._bound.adapter.counter("updates"), weights, table])
    config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:{}".format(number)])
    with tf.train.MonitoredTrainingSession(tf_server.target, number == 0, hooks=hooks, config=config) as session:
        print(json.dumps("ready"))
        sys.stdout.flush()
        done, enough = 0, os.path.join(os.environ["FOLDER"], "enough")
        # With `sync`, one worker's step may complete the last update. The other would then wait forever.
        while (session.run(counter) if sync == "yes" else done) < int(steps) and not os.path.exists(enough):
            session.run(operations)
            done += 1
            print(json.dumps(done))
            sys.stdout.flush()
        results = session.run([counter, states])
        print(json.dumps([results[0].tolist(), [[value.tolist() for value in each] for each in results[1]]]))
        sys.stdout.flush()
        if os.environ.get("STAY"):
            time.sleep(600)  # stays alive: the other workers stop when the chief does


def estimator(replicas):
    """Trains a tf.estimator with a RunConfig: tf.train's API in one process, or OptimizerV2 on two devices."""
    import tensorflow

    tf, folder = getattr(tensorflow.compat, "v1", tensorflow), os.path.join(os.environ["FOLDER"], "estimator")
    tf.logging.set_verbosity(tf.logging.ERROR)
    several, share = int(replicas) > 1, BATCH // int(replicas)
    settings = {}
    if several:
        two_devices(tensorflow)
        settings["train_distribute"] = tensorflow.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def inputs():
        batches = [batch(step) for step in range(STEPS)]
        words, targets = (np.concatenate(each) for each in zip(*batches))
        return tf.data.Dataset.from_tensor_slices((words, targets)).batch(share)

    def model(features, labels, mode):
        table = tf.get_variable("table", initializer=TABLE, use_resource=several)
        weights = tf.get_variable("weights", initializer=WEIGHTS, use_resource=several)
        outputs = tf.matmul(tf.nn.embedding_lookup(table, features), weights)
        loss = tf.reduce_sum(tf.square(outputs - labels)) / BATCH
        definition = definitions()["Adam"]
        if several:
            optimizer = definition.bind(getattr(tensorflow.keras.optimizers, "legacy", tensorflow.keras))
            optimizer.iterations = tf.train.get_or_create_global_step()
            train = tf.group(*optimizer.get_updates(loss, [table, weights]))
        else:
            train = definition.bind(tf.train).minimize(loss, tf.train.get_or_create_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

    config = tf.estimator.RunConfig(model_dir=folder, save_checkpoints_steps=3, **settings)
    trained = tf.estimator.Estimator(model, config=config)
    trained.train(lambda: inputs() if several else inputs().make_one_shot_iterator().get_next(), max_steps=STEPS)
    values = [trained.get_variable_value(name) for name in ("table", "weights")]
    steps = int(trained.get_variable_value("global_step"))
    return {"Adam": largest_difference(values, by_numpy("Adam")), "global_step": steps}


def by_numpy(name):
    """Returns the table and the weights after training with a definition on NumPy arrays."""
    definition = definitions()[name]
    table, weights, optimizer = TABLE.copy(), WEIGHTS.copy(), definition.bind(np)
    for words, targets in map(batch, range(STEPS)):
        off = 2 * (table[words].dot(weights) - targets) / BATCH
        rows = everstep.IndexedSlices(off.dot(weights.T).astype("float32"), words)
        optimizer.apply_gradients([(rows, table), (table[words].T.dot(off).astype("float32"), weights)])
    return [table, weights]


def horovod():
    """Runs one process of Horovod, which wraps our optimizer. Horovod's launcher sets the rank."""
    import horovod.tensorflow.keras as hvd
    import tensorflow as tf

    hvd.init()
    values = {}
    for label, module, definition in cases(tf):
        model = Model(tf, module, definition)
        model.optimizer = hvd.DistributedOptimizer(model.optimizer, op=hvd.Sum)
        model.share = BATCH // hvd.size(), hvd.rank()
        values[label] = model.train(range(STEPS)).lists()
    print(json.dumps({"rank": hvd.rank(), "size": hvd.size(), "values": values}))


def jax_devices():
    """Compares Keras 3 on JAX, data parallel on two virtual devices, with one device."""
    import keras

    differences = {}
    for name, definition in sorted(definitions().items()):
        if definition.sparse != "exact":
            continue  # gradients are dense there
        values = []
        for parallel in (False, True):
            distribution = keras.distribution
            devices = distribution.list_devices("cpu")
            distribution.set_distribution(distribution.DataParallel(devices=devices) if parallel else None)
            keras.utils.set_random_seed(1)
            model = keras.Sequential([keras.layers.Embedding(WORDS, WIDTH), keras.layers.Dense(OUTPUTS)])
            model.compile(definition.bind(keras), "mse")
            model.build((None,))
            model.set_weights([TABLE, WEIGHTS, np.zeros(OUTPUTS, "float32")])
            for step in range(STEPS):
                words, targets = batch(step)
                model.fit(words, targets, batch_size=BATCH, shuffle=False, verbose=0)  # 3.0's train_on_batch fails
            values.append(model.get_weights())
            where = len(model.weights[0].value.sharding.device_set)
        differences[name] = largest_difference(values[1], values[0])
        differences[name + " devices"] = where
    return differences


def mesh_pairs(keras):
    """Returns {name: (what makes a stock optimizer, or None; definition)}. A large epsilon: see `definitions`."""
    stock, ours, rate = keras.optimizers, everstep.optimizers, dict(learning_rate=0.01)
    adam, of_stock = ours.Adam(0.01, epsilon=1e-3), functools.partial(stock.Adam, epsilon=1e-3, **rate)
    pairs = {"Adam": (of_stock, adam),
             "moving_average": (functools.partial(of_stock, use_ema=True), everstep.moving_average(adam)),
             "accumulate": (functools.partial(of_stock, gradient_accumulation_steps=2), everstep.accumulate(adam, 2)),
             "lookahead": (None, everstep.lookahead(adam, 2))}
    for name in ("Adafactor", "Lamb", "Muon"):  # Keras has Muon from 3.10 on
        if hasattr(stock, name):
            make = functools.partial(getattr(stock, name), **rate)
            pairs[name] = make, everstep.from_native(make())
    return pairs


class MeshModel(object):
    """Two layers, whose kernels are split over the devices along an axis, 0 or 1; over one device if it is None."""

    random = np.random.RandomState(0)
    INPUTS, TARGETS = (random.normal(size=(BATCH, 64)).astype("float32") for _ in range(2))

    def __init__(self, keras, make_optimizer, axis):
        parallel = keras.distribution
        if axis is not None:
            mesh = parallel.DeviceMesh((1, 4), ["batch", "model"], parallel.list_devices("cpu"))
            layouts = parallel.LayoutMap(mesh)
            layouts[".*dense.*kernel"] = ("model", None) if axis == 0 else (None, "model")
            takes_mesh = "device_mesh" in parallel.ModelParallel.__init__.__code__.co_varnames  # in old Keras 3
            given = {"device_mesh": mesh} if takes_mesh else {}
            parallel.set_distribution(parallel.ModelParallel(layout_map=layouts, batch_dim_name="batch", **given))
        else:
            parallel.set_distribution(None)
        keras.utils.set_random_seed(1)
        self.distribution = parallel.distribution()
        self.set_distribution = parallel.set_distribution
        self.optimizer = make_optimizer()
        self.model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(128), keras.layers.Dense(64)])
        self.model.compile(self.optimizer, "mse")
        self.optimizer.build(self.model.trainable_variables)

    def train(self, steps):
        self.set_distribution(self.distribution)
        for _ in range(steps):
            self.model.fit(self.INPUTS, self.TARGETS, batch_size=BATCH, shuffle=False, verbose=0)
        return self

    def difference(self, expected):
        return largest_difference(self.model.get_weights(), expected.model.get_weights())

    def bytes(self):
        """Returns the bytes of its slots on the first device."""
        slots = [each.value for each in self.optimizer.variables if each.shape]
        return sum(slot.addressable_shards[0].data.nbytes for slot in slots)


def jax_mesh(only=""):
    """Compares Keras 3 on JAX, kernels split over four virtual devices, with one device and with stock's memory."""
    import keras

    results = {}
    for name, (stock, definition) in mesh_pairs(keras).items():
        if only and name not in only.split("; "):
            continue
        make = functools.partial(definition.bind, keras)
        one, split = MeshModel(keras, make, None).train(STEPS), MeshModel(keras, make, 1).train(3)
        results[name + " bytes"] = split.bytes(), MeshModel(keras, stock, 1).bytes() if stock else 0
        path = os.path.join(os.environ["FOLDER"], name + ".weights.h5")
        split.model.save_weights(path)
        weights, state = split.model.get_weights(), everstep.capture(split.optimizer, split.model.trainable_variables)
        results[name] = split.train(STEPS - 3).difference(one)
        loaded, restored = (MeshModel(keras, make, 0) for _ in range(2))
        loaded.model.load_weights(path)
        restored.model.set_weights(weights)
        everstep.restore(restored.optimizer, state, restored.model.trainable_variables)
        for label, resumed in (("loaded", loaded), ("restored", restored)):
            results["{}, {}".format(name, label)] = resumed.train(STEPS - 3).difference(one)
            assert resumed.bytes() <= results[name + " bytes"][0] + 1024  # of other dimensions of factored slots
    large = keras.Variable(np.zeros((4096, 4096), "float32"), name="dense_kernel")  # Keras compiles the start of slots
    optimizer = everstep.lookahead(everstep.optimizers.SGD(0.1, momentum=0.9)).bind(keras)
    optimizer.build([large])
    shards = {name: optimizer.get_slot(large, name).value.addressable_shards[0].data.shape
              for name in optimizer._bound.slot_names(large)}
    assert len(shards) == 2 and set(shards.values()) == {(1024, 4096)}, shards
    return results


def small_model(keras, name):
    """Returns a model of two layers that a definition trains, and its whole batch."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(16), keras.layers.Dense(8)])
    model.compile(_definitions()[name].bind(keras), "mse")
    model.optimizer.build(model.trainable_variables)
    random = np.random.RandomState(0)
    return model, random.normal(size=(BATCH, 16)).astype("float32"), random.normal(size=(BATCH, 8)).astype("float32")


def jax_process(rank, address):
    """Runs one of two processes of `jax.distributed`, by data and by model; with rank "alone", the only one."""
    import keras
    from jax.experimental import multihost_utils

    parallel, results = keras.distribution, {}
    if rank == "alone":
        kinds = ("alone",)
    else:
        parallel.initialize(address, 2, int(rank))
        kinds = ("data", "model")
    for kind in kinds:
        share = slice(None)
        if kind == "data":
            parallel.set_distribution(parallel.DataParallel(devices=parallel.list_devices(), auto_shard_dataset=False))
            share = slice(int(rank) * BATCH // 2, (int(rank) + 1) * BATCH // 2)
        elif kind == "model":
            layouts = parallel.LayoutMap(parallel.DeviceMesh((1, 2), ["batch", "model"], parallel.list_devices()))
            layouts[".*dense.*kernel"] = (None, "model")
            parallel.set_distribution(
                parallel.ModelParallel(layout_map=layouts, batch_dim_name="batch", auto_shard_dataset=False))
        for name in ("Adam", "accumulate(Adam)", "moving_average(SGD)"):
            model, inputs, targets = small_model(keras, name)
            for _ in range(STEPS):
                model.fit(inputs[share], targets[share], batch_size=BATCH, shuffle=False, verbose=0)
            whole = [each.value if each.value.is_fully_replicated else
                     multihost_utils.process_allgather(each.value, tiled=True) for each in model.trainable_variables]
            results["{} {}".format(kind, name)] = [np.array(each).tolist() for each in whole]
    return results


def torch_process(rank, address):
    """Runs one of two processes of torch's DistributedDataParallel; with rank "alone", the only one."""
    import keras
    import torch

    results, share = {}, slice(None)
    if rank != "alone":
        torch.distributed.init_process_group("gloo", "tcp://" + address, world_size=2, rank=int(rank))
        share = slice(int(rank) * BATCH // 2, (int(rank) + 1) * BATCH // 2)
    for name in ("Adam", "accumulate(Adam)", "moving_average(SGD)"):
        model, inputs, targets = small_model(keras, name)
        network = model if rank == "alone" else torch.nn.parallel.DistributedDataParallel(model)
        for _ in range(STEPS):
            network.zero_grad()
            outputs = network(torch.from_numpy(inputs[share]))
            torch.mean((outputs - torch.from_numpy(targets[share])) ** 2).backward()
            with torch.no_grad():
                model.optimizer.apply([each.value.grad for each in model.trainable_variables],
                                      model.trainable_variables)
        results[name] = [each.value.detach().numpy().tolist() for each in model.trainable_variables]
    return results


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    result = globals()[sys.argv[1]](**dict(argument.split("=", 1) for argument in sys.argv[2:]))
    if result is not None:
        print(json.dumps(result))
