"""Cost of an embedding on a parameter server: python benchmarks/cluster.py (TF 1.4 to 1.15)

Runs one parameter server and one worker, two processes on this machine, with `tf.train.Server`. A step looks up rows of
a table, takes their gradients and updates. Prints, for each definition, CPU time of the server and of the worker, bytes
sent between them, and the time to write and to read a checkpoint: the unit costs of docs/scale.md.
"""
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import numpy as np

ROWS, COLUMNS, LOOKED_UP = 2000000, 64, 26 * 1024  # 26 features of 1,024 examples, as in the Criteo data sets
STEPS = 100
TICK = 1.0 / os.sysconf("SC_CLK_TCK")


def main():
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("localhost", 0))
        ports = [each.getsockname()[1] for each in (one, other)]
    cluster = {"ps": ["localhost:%d" % ports[0]], "worker": ["localhost:%d" % ports[1]]}
    command = [sys.executable, os.path.abspath(__file__), "serve", json.dumps(cluster)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        server.stdout.readline()
        _measure(cluster, server.pid)
    finally:
        server.kill()
        server.wait()


def serve(cluster):
    import tensorflow as tf

    server = tf.train.Server(tf.train.ClusterSpec(json.loads(cluster)), job_name="ps", task_index=0)
    print("ready")
    sys.stdout.flush()
    server.join()


def _measure(cluster, server):
    import tensorflow as tf

    import everstep

    tf = getattr(getattr(tf, "compat", None), "v1", None) or tf
    tf.logging.set_verbosity(tf.logging.ERROR)
    spec = tf.train.ClusterSpec(cluster)
    worker = tf.train.Server(spec, job_name="worker", task_index=0)
    rules = everstep.optimizers
    definitions = [
        ("SGD, rows", rules.SGD(sparse="rows")),
        ("Adagrad, rows", rules.Adagrad(sparse="rows")),
        ("Adam, rows", rules.Adam(sparse="rows")),
        ("the same, once", rules.Adam(sparse="rows")),  # each row of a batch is looked up once
        ("Adam, catch_up", rules.Adam(sparse="catch_up")),
        ("Adam, exact", rules.Adam(sparse="exact")),
    ]
    form = "{:16} {:>9} {:>12} {:>12} {:>12} {:>14} {:>9} {:>8} {:>8}"
    heads = "definition", "ms a step", "server CPU", "worker CPU", "unique rows", "bytes/look-up", "saved MiB", "MiB/s"
    print(form.format(*heads + ("read",)))
    for name, definition in definitions:
        with tf.Graph().as_default():
            print(form.format(name, *_one(tf, spec, worker, server, definition, once="once" in name)))
            sys.stdout.flush()


def _one(tf, spec, worker, server, definition, once):
    placed = tf.device(tf.train.replica_device_setter(worker_device="/job:worker/task:0", cluster=spec))
    with placed:
        table = tf.get_variable("table", (ROWS, COLUMNS), initializer=tf.zeros_initializer())
        rows = tf.placeholder(tf.int64, (LOOKED_UP,))
        different, places = tf.unique(rows) if once else (rows, tf.range(LOOKED_UP))
        values = tf.gather(tf.nn.embedding_lookup(table, different), places)
        step = definition.bind(tf.train).minimize(tf.reduce_sum(values * values + values), var_list=[table])
        saver = tf.train.Saver(sharded=True)
    random, folder = np.random.RandomState(0), tempfile.mkdtemp()
    batches = [random.zipf(1.2, LOOKED_UP) % ROWS for _ in range(STEPS)]
    try:
        with tf.Session(worker.target) as session:
            session.run(tf.global_variables_initializer())
            for batch in batches[:3]:
                session.run(step, {rows: batch})
            start, sent, busy = time.time(), _sent(), (_cpu(server), _cpu("self"))
            for batch in batches:
                session.run(step, {rows: batch})
            took = (time.time() - start) / STEPS
            sent = (_sent() - sent) / (STEPS * LOOKED_UP)
            busy = [(now - before) / STEPS for now, before in zip((_cpu(server), _cpu("self")), busy)]
            start = time.time()
            path = saver.save(session, os.path.join(folder, "model"), write_meta_graph=False)
            saved = time.time() - start
            size = sum(os.path.getsize(os.path.join(folder, file)) for file in os.listdir(folder)) / 2.0**20
            start = time.time()
            saver.restore(session, path)
            read = time.time() - start
    finally:
        shutil.rmtree(folder)
    unique = np.mean([len(set(batch)) for batch in batches])
    return [
        "{:.1f}".format(1e3 * took),
        "{:.1f} ms".format(1e3 * busy[0]),
        "{:.1f} ms".format(1e3 * busy[1]),
        "{:.0f}".format(unique),
        "{:.0f}".format(sent),
        "{:.0f}".format(size),
        "{:.0f}".format(size / saved),
        "{:.0f}".format(size / read),
    ]


def _cpu(process):
    """Returns the seconds of user and system time of a process, all threads."""
    with open("/proc/{}/stat".format(process)) as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return TICK * (int(fields[11]) + int(fields[12]))


def _sent():
    """Returns the bytes sent over the loopback device."""
    with open("/proc/net/dev") as file:
        return next(int(line.split(":")[1].split()[0]) for line in file if line.strip().startswith("lo:"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
    else:
        main()
