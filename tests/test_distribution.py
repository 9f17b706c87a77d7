"""Starts the jobs of tests/distributed.py in processes, waits for them, compares their results and stops them.

Two replicas on parts of a batch must equal one replica on the whole batch, and a state must carry over from one
strategy to another.
"""
from __future__ import absolute_import, division, print_function

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from packaging.version import Version

import distributed
import everstep
import test_battery as battery
from conftest import INSTALLED
from harness import FULL, TURN

TENSORFLOW = Version(INSTALLED["tensorflow"]) if INSTALLED.get("tensorflow") else None
JAX = INSTALLED.get("jax") and not TENSORFLOW
TORCH = INSTALLED.get("torch") and os.environ.get("KERAS_BACKEND") == "torch"
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "distributed.py")
SECONDS = 240  # time limit for all processes of one test
BOUND = 1e-6
ABORTED = "terminate called without an active exception"
MANY = 10**6  # more steps than a worker takes before it is stopped
# Every cell trains these, and one more that rotates over the matrix, as does the choice of TensorFlow's API.
ALWAYS = ["Adam", "accumulate(Adam)"]
IN_TURN = ["SGD", "LAMB", "Adam, rows", "Adam, catch_up", "clip(Adam)", "Nadam"]
SHARE = {} if FULL else {"ONLY": "; ".join(ALWAYS + [IN_TURN[TURN % len(IN_TURN)]]), "MODULE": str(TURN)}

eager = pytest.mark.skipif(not TENSORFLOW or TENSORFLOW < Version("2.0"), reason="strategies of eager TensorFlow")
sessions = pytest.mark.skipif(not TENSORFLOW or TENSORFLOW >= Version("2.0"), reason="clusters of TF 1 sessions")


class Process(object):
    """A running job of distributed.py, and the lines that it has printed."""

    def __init__(self, folder, job, **arguments):
        self.name = "{}-{}".format(job, len(os.listdir(folder)))
        self.paths = [os.path.join(folder, self.name + end) for end in (".out", ".err")]
        environment = dict(os.environ, **SHARE)
        environment.update(FOLDER=folder, CUDA_VISIBLE_DEVICES="", GRPC_VERBOSITY="ERROR", TF_CPP_MIN_LOG_LEVEL="3")
        environment.update({name: value for name, value in arguments.items() if name.isupper()})
        command = [sys.executable, SCRIPT, job]
        command += ["{}={}".format(name, value) for name, value in arguments.items() if not name.isupper()]
        with open(self.paths[0], "w") as out, open(self.paths[1], "w") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err, env=environment)

    def lines(self):
        with open(self.paths[0]) as file:
            text = file.read()
        lines = text[: text.rfind("\n") + 1].splitlines()
        return [json.loads(line) for line in lines if not line.startswith("[Gloo]")]

    def until(self, seen, deadline):
        """Waits until `seen(lines)`, and returns the lines."""
        while not seen(self.lines()):
            ended = self.process.poll()
            assert ended is None or seen(self.lines()), "{} ended with {}:\n{}".format(self.name, ended, self.errors())
            assert time.time() < deadline, "{} took too long:\n{}".format(self.name, self.errors())
            time.sleep(0.05)
        return self.lines()

    def result(self, deadline):
        """Waits until the process ends, and returns its last line."""
        while self.process.poll() is None:
            assert time.time() < deadline, "{} took too long:\n{}".format(self.name, self.errors())
            time.sleep(0.05)
        # On a busy machine a thread of TensorFlow can outlive the work of the process, which then aborts as it ends.
        aborted = self.process.returncode == -signal.SIGABRT and self.lines() and ABORTED in self.errors()
        assert self.process.returncode == 0 or aborted, self.errors()
        return self.lines()[-1]

    def errors(self):
        with open(self.paths[1]) as file:
            return file.read()[-3000:]

    def stop(self, how=signal.SIGKILL):
        if self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait()


@contextlib.contextmanager
def processes(folder):
    """Yields (start, deadline), and stops every started process at the end."""
    started, deadline = [], time.time() + SECONDS

    def start(job, **arguments):
        started.append(Process(str(folder), job, **arguments))
        return started[-1]

    try:
        yield start, deadline
    finally:
        for process in started:
            process.stop()


def free_addresses(count):
    """Returns `count` local addresses with free ports."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return ["127.0.0.1:{}".format(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


def assert_close(results):
    """Compares the values of each definition that a job printed with one process on NumPy."""
    assert len(results) > len(ALWAYS)
    for label, values in results.items():
        expected = distributed.by_numpy(label.partition(" ")[2])
        assert distributed.largest_difference(list(map(np.array, values)), expected) <= BOUND, label


@eager
@pytest.mark.shared
def test_two_replicas_are_one_on_the_joined_batch(tmp_path):
    with processes(tmp_path) as (start, deadline):
        differences = start("replicas").result(deadline)
    assert len(differences) >= 2 * (len(ALWAYS) + 1)
    assert {name: value for name, value in differences.items() if not value <= BOUND} == {}


@eager
@pytest.mark.shared
def test_saved_under_one_strategy_and_resumed_under_another(tmp_path):
    with processes(tmp_path) as (start, deadline):
        differences = start("resumed").result(deadline)
    assert differences and {name: value for name, value in differences.items() if not value <= BOUND} == {}


@eager
@pytest.mark.shared
def test_two_processes_of_multi_worker_mirrored(tmp_path):
    workers = free_addresses(2)
    with processes(tmp_path) as (start, deadline):
        tasks = [{"cluster": {"worker": workers}, "task": {"type": "worker", "index": number}} for number in range(2)]
        both = [start("multi_worker", TF_CONFIG=json.dumps(task)) for task in tasks]
        values = [process.result(deadline) for process in both]
    assert_close(values[0])
    assert values[0] == values[1]


@eager
@pytest.mark.shared
@pytest.mark.skipif(bool(TENSORFLOW) and TENSORFLOW < Version("2.4"), reason="the first TensorFlow with a coordinator")
def test_parameter_servers_with_a_coordinator(tmp_path):
    addresses = free_addresses(3)
    cluster = json.dumps({"ps": addresses[:1], "worker": addresses[1:2], "chief": addresses[2:]})
    with processes(tmp_path) as (start, deadline):
        for task in ("ps:0", "worker:0"):
            start("server", task=task, cluster=cluster).until(len, deadline)
        values = start("coordinator", cluster=cluster).result(deadline)
    updates = {name: values.pop(name) for name in list(values) if name.endswith(" updates")}
    assert_close(values)
    assert updates == {name + " updates": 3 if "accumulate" in name else 6 for name in values}


@eager
@pytest.mark.shared
@pytest.mark.skipif(not TENSORFLOW or not Version("2.4") <= TENSORFLOW < Version("2.16"),
                    reason="before TF 2.4 there is no coordinator, and Keras 3 has no tables in shards")
def test_asynchronous_workers_and_tables_in_shards(tmp_path):
    """600 gradients of 1 move as far as they should, or the definition is refused; shards train as a whole table."""
    addresses = free_addresses(5)
    groups = " ".join(map(",".join, (addresses[:2], addresses[2:4], addresses[4:])))
    joined = TENSORFLOW >= Version("2.9")  # older shards do not know their table, and stock saves no slots of them
    labels = ["clip(Adam)", "LAMB"] + ["Adam"] * joined
    if FULL and joined:
        rules = [each.__name__ for each in battery.definition_classes() if each.stages == 1]
        labels = sorted(set(rules).intersection(dir(everstep.optimizers))) + ["clip(Adam)", "centralize(Adam)"]
        labels = labels[TURN % 3 :: 3]  # each cell runs a third of them: together they take three minutes
    whole = {label for label in labels if distributed.definition_named(label).locality == "variable"}
    with processes(tmp_path) as (start, deadline):
        results = start("asynchronous", ADDRESSES=groups, SHARDED="; ".join(labels)).result(deadline)
    assert results.pop("servers") == 4
    shards = {name: results.pop(name) for name in list(results) if name.endswith("sharded")}
    exact = {name: 600 for name in results if name.endswith((" SGD", " moving_average"))}
    assert 7 * len(exact) == 2 * len(results) > 0
    assert results == dict(dict.fromkeys(results, "UnsupportedError"), **exact)
    refused = {name for name in shards if name.split(" ", 1)[1][:-len(", sharded")] in whole or not joined}
    assert {name for name, value in shards.items() if value == "UnsupportedError"} == refused
    assert len(shards) * 7 == len(labels) * len(results)
    assert {name: value for name, value in shards.items() if name not in refused and not value <= BOUND} == {}


@sessions
@pytest.mark.shared
def test_two_workers_in_step(tmp_path):
    """One parameter server, and SyncReplicasOptimizer around ours: each update uses the gradients of both workers."""
    with processes(tmp_path) as (start, deadline):
        train = cluster_of_sessions(start, deadline, sync="yes")
        chief = train("worker:0", 20)
        chief.until(len, deadline)
        train("worker:1", 20).until(len, deadline)
        chief.until(is_done, deadline)
        result = settled(lambda: train("worker:2", 0).until(is_done, deadline)[-1])
    counter, [[updates, weights, table]] = result
    assert updates == counter >= 20
    assert weights == [-0.125 * updates] * 3
    assert table == [[0.0, 0.0], [-0.25 * updates] * 2, [0.0, 0.0], [0.0, 0.0]]


@sessions
@pytest.mark.shared
def test_a_worker_that_is_killed_loses_no_update(tmp_path):
    """Asynchronous: a step that a worker has reported is in the variables and the counters exactly once."""
    with processes(tmp_path) as (start, deadline):
        train = cluster_of_sessions(start, deadline, sync="no")
        chief = train("worker:0", MANY)
        chief.until(len, deadline)
        victim = train("worker:1", MANY)
        victim.until(has_trained, deadline)
        victim.stop()
        again = train("worker:1", MANY)
        again.until(has_trained, deadline)
        tmp_path.joinpath("enough").write_text(u"")
        done = victim.lines()[-1] + sum(worker.until(is_done, deadline)[-2] for worker in (chief, again))
        counter, optimizers = train("worker:2", 0).until(is_done, deadline)[-1]
    taken = [("global step", [counter])]
    for name, row, (updates, weights, table) in zip(["SGD", "Lion"], [-0.25, -0.125], optimizers):
        taken.append((name, [updates] + [value / -0.125 for value in weights] + [value / row for value in table[1]]))
    for name, steps in taken:  # the victim's last step may or may not have arrived
        assert done <= min(steps) <= max(steps) <= done + 1, name


def cluster_of_sessions(start, deadline, sync):
    """Starts a parameter server. Returns a function that starts a worker for some steps."""
    addresses = free_addresses(4)
    cluster = json.dumps({"ps": addresses[:1], "worker": addresses[1:]})
    start("server", task="ps:0", cluster=cluster).until(len, deadline)

    def train(task, steps):
        # The chief stays alive: a worker's session ends when the chief's does.
        stay = {"STAY": "1"} if task == "worker:0" else {}
        return start("train_worker", task=task, cluster=cluster, sync=sync, steps=steps, **stay)

    return train


def has_trained(lines):
    return len(lines) > 100


def is_done(lines):
    return bool(lines) and isinstance(lines[-1], list)


def settled(read):
    """Reads until two reads agree: with synchronous workers the last update may still be running."""
    last, current = None, read()
    while current != last:
        last, current = current, read()
    return current


@pytest.mark.skipif(not TENSORFLOW or not Version("1.4") <= TENSORFLOW < Version("2.16"),
                    reason="TF 2.16 has no tf.estimator any more")
@pytest.mark.shared
@pytest.mark.parametrize("replicas", [1, 2])
def test_estimators(tmp_path, replicas):
    """With a RunConfig: tf.train's API in one process, and OptimizerV2 on two devices."""
    if replicas == 2 and not Version("1.14") <= TENSORFLOW < Version("2.11"):
        pytest.skip("before TF 1.14 no OptimizerV2, from 2.11 on no get_updates under tf.keras")
    with processes(tmp_path) as (start, deadline):
        result = start("estimator", replicas=replicas).result(deadline)
    assert result["Adam"] <= BOUND and result["global_step"] == 6


@eager
def test_horovod_around_ours():
    """`hvd.DistributedOptimizer` in two processes with Gloo, started by Horovod's own launcher."""
    pytest.importorskip("horovod", reason="no wheel of Horovod is published, and it takes half an hour to build")
    command = [sys.executable, "-m", "horovod.runner.launch", "--gloo", "-np", "2", sys.executable, SCRIPT, "horovod"]
    output = subprocess.check_output(command, env=dict(os.environ, **SHARE), timeout=SECONDS)
    results = [json.loads(line[line.index(b"{") :]) for line in output.splitlines() if b'"rank"' in line]
    assert sorted(each["rank"] for each in results) == [0, 1] and {each["size"] for each in results} == {2}
    for each in results:
        assert_close(each["values"])


@pytest.mark.skipif(not JAX, reason="Keras 3 on JAX")
def test_data_parallel_on_two_jax_devices(tmp_path):
    with processes(tmp_path) as (start, deadline):
        differences = start("jax_devices", XLA_FLAGS="--xla_force_host_platform_device_count=2").result(deadline)
    devices = {name: differences.pop(name) for name in list(differences) if name.endswith(" devices")}
    assert set(devices.values()) == {2} and set(ALWAYS) <= set(differences)
    assert {name: value for name, value in differences.items() if not value <= BOUND} == {}


@pytest.mark.skipif(not JAX, reason="Keras 3 on JAX")
def test_slots_lie_in_the_layout_of_their_variables(tmp_path):
    """`ModelParallel`: stock's memory on each device, one device's numbers, and a state moves between layouts."""
    only = {} if FULL else {"only": ["Adafactor; accumulate", "Adafactor; moving_average"][TURN % 2]}
    with processes(tmp_path) as (start, deadline):
        results = start("jax_mesh", XLA_FLAGS="--xla_force_host_platform_device_count=4", **only).result(deadline)
    held = {name: results.pop(name) for name in list(results) if name.endswith(" bytes")}
    assert len(results) == 3 * len(held) >= 6
    assert {name: bytes for name, bytes in held.items() if bytes[0] > bytes[1] and name != "lookahead bytes"} == {}
    assert {name: value for name, value in results.items() if not value <= BOUND} == {}


def differences_of_two(job, tmp_path):
    """Returns {name: largest difference} of two processes of a job to one that has the whole batch."""
    with processes(tmp_path) as (start, deadline):
        address = free_addresses(1)[0]
        ranks = [start(job, rank=rank, address=address) for rank in (0, 1)]
        both = [process.result(deadline) for process in ranks]
        alone = start(job, rank="alone", address="").result(deadline)
    assert both[0] == both[1] and len(both[0]) >= len(alone) == 3
    expected = {name: [values for each, values in alone.items() if name.endswith(each.replace("alone ", ""))][0]
                for name in both[0]}
    return {name: distributed.largest_difference(list(map(np.array, values)), list(map(np.array, expected[name])))
            for name, values in both[0].items()}


LONG = "takes half a minute, so not in quick cells; EVERSTEP_FULL=1 runs it"


@pytest.mark.skipif(not JAX or not FULL, reason="Keras 3 on JAX; " + LONG)
def test_two_processes_of_jax_distributed(tmp_path):
    """`jax.distributed`: halves of a batch, and halves of each kernel with its slots."""
    differences = differences_of_two("jax_process", tmp_path)
    assert len(differences) == 6
    assert {name: value for name, value in differences.items() if not value <= BOUND} == {}


@pytest.mark.skipif(not TORCH or not FULL, reason="Keras 3 on torch; " + LONG)
def test_two_processes_of_torch(tmp_path):
    """torch's DistributedDataParallel around a model of Keras."""
    differences = differences_of_two("torch_process", tmp_path)
    assert {name: value for name, value in differences.items() if not value <= BOUND} == {}
