"""Parity and time of a step on a GPU, in under ten minutes: python -m benchmarks.device

Runs torch, then JAX, each in a process of its own, on the GPU if there is one, else on the processor. It compares the
weights of each definition, and of some stacks, after some steps with a float64 oracle. Then it times steps beside stock
Keras 3, torch.optim and optax, in turns. On CUDA it also counts launches, waits and copies of one step. Prints tables,
and writes them to device.json in --out.

A machine without a network needs wheels of everstep, keras, namex and optree in a folder: --wheels FOLDER installs them
to a temporary folder first. torch and JAX have to be there, optax may be. --quick takes small sizes, for a try.
"""
import argparse
import collections
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STEPS, ROUNDS = 8, 7
TOO_FAR = 3e-6  # of the largest weight
SECONDS = 240  # for each framework
SHAPES = [(64, 64), (300,), (150, 200), (20000,), (40, 5), (3,)]  # of the comparison with the oracle


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.device", description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("torch", "jax"), help="one framework")
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds")
    parser.add_argument("--wheels", metavar="FOLDER", help="install its wheels first, without a network")
    parser.add_argument("--out", default=".", metavar="FOLDER", help="for device.json (default: here)")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        lines = measure(options.quick)
        path = os.path.join(options.out, "device.json")
        known = json.load(open(path)) if os.path.exists(path) else []
        with open(path, "w") as file:
            json.dump(known + lines, file, indent=1)
        return
    path = [ROOT] + [os.environ["PYTHONPATH"]] * bool(os.environ.get("PYTHONPATH"))
    if options.wheels:
        target = tempfile.mkdtemp()
        install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", target]
        subprocess.check_call(install + glob.glob(os.path.join(options.wheels, "*.whl")))
        path.insert(0, target)
    for framework in [options.only] if options.only else ["torch", "jax"]:
        environment = dict(os.environ, KERAS_BACKEND=framework, PYTHONPATH=os.pathsep.join(path),
                           XLA_PYTHON_CLIENT_PREALLOCATE="false")
        command = [sys.executable, "-m", "benchmarks.device", "--child", "--out", options.out]
        subprocess.run(command + ["--quick"] * options.quick, env=environment, check=False)


class Framework:
    """torch or JAX below Keras 3, on its fastest device."""

    def __init__(self):
        import keras

        self.keras, self.name = keras, keras.backend.backend()
        if self.name == "torch":
            import torch

            self.torch, self.device = torch, "cuda" if torch.cuda.is_available() else "cpu"
            self.card = torch.cuda.get_device_name() if self.device == "cuda" else "processor"
            version = torch.__version__
        else:
            import jax

            self.jax, self.device, self.card = jax, jax.default_backend(), str(jax.devices()[0].device_kind)
            version = jax.__version__
        self.title = "{} {}, Keras {}, {}".format(self.name, version, keras.__version__, self.card)

    def array(self, value):
        if self.name == "torch":
            return self.torch.tensor(value, device=self.device)
        return self.jax.numpy.asarray(value)

    def wait(self, state=None):
        if self.name == "jax":
            self.jax.block_until_ready(state)
        elif self.device == "cuda":
            self.torch.cuda.synchronize()


class KerasSteps:
    """A Keras 3 optimizer, ours or stock."""

    def __init__(self, framework, optimizer, arrays):
        self.framework, keras = framework, framework.keras
        self.optimizer = optimizer.bind(keras) if hasattr(optimizer, "bind") else optimizer
        self.variables = [keras.Variable(array, name="v{}".format(place)) for place, array in enumerate(arrays)]
        self.optimizer.build(self.variables)
        if framework.name == "jax":
            self.state = [each.value for each in self.variables], [each.value for each in self.optimizer.variables]
            self.jitted = framework.jax.jit(
                lambda state, grads: self.optimizer.stateless_apply(state[1], grads, state[0]), donate_argnums=0)

    def step(self, grads):
        if self.framework.name == "torch":
            with self.framework.torch.no_grad():
                self.optimizer.apply(list(grads), self.variables)
        else:
            self.state = self.jitted(self.state, grads)

    def wait(self):
        self.framework.wait(getattr(self, "state", None))

    def weights(self):
        values = self.variables if self.framework.name == "torch" else self.state[0]
        return [np.asarray(self.framework.keras.ops.convert_to_numpy(value)) for value in values]


class TorchSteps:
    """An optimizer of torch.optim. clips: whether the global norm is clipped to 1 before."""

    def __init__(self, framework, make, arrays, clips=False):
        self.framework, self.clips = framework, clips
        self.parameters = [framework.torch.nn.Parameter(framework.array(array)) for array in arrays]
        self.optimizer = make(self.parameters)

    def step(self, grads):
        for parameter, grad in zip(self.parameters, grads):
            parameter.grad = grad
        if self.clips:
            self.framework.torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()

    def wait(self):
        self.framework.wait()


class OptaxSteps(KerasSteps):
    """A transformation of optax, with its application to the weights."""

    def __init__(self, framework, transformation, arrays):
        import optax

        self.framework, weights = framework, [framework.array(array) for array in arrays]
        self.state = weights, transformation.init(weights)

        def apply(state, grads):
            updates, inner = transformation.update(grads, state[1], state[0])
            return optax.apply_updates(state[0], updates), inner

        self.jitted = framework.jax.jit(apply, donate_argnums=0)


def rules():
    """Returns {name: definition} of the catalogue with its defaults, and of stacks that people use."""
    import everstep
    from everstep import optimizers

    made, adam = collections.OrderedDict(), optimizers.Adam(1e-3)
    for name in everstep.names():
        try:
            made[name] = everstep.get(name)
        except everstep.errors.EverstepError:
            continue  # it has arguments without a default
    made["SGD, momentum"] = optimizers.SGD(1e-2, momentum=0.9)
    made["clip(global_norm)"] = everstep.clip(adam, global_norm=1.0)
    made["accumulate"] = everstep.accumulate(adam, 2)
    made["moving_average"] = everstep.moving_average(adam)
    made["decoupled_weight_decay"] = everstep.decoupled_weight_decay(adam, 0.01)
    made["master_copies"] = everstep.master_copies(adam)
    return made


def differences(framework, until):
    """Yields a line for each rule: how far its weights are from the oracle's."""
    random = np.random.RandomState(0)
    start = [random.randn(*shape).astype("float32") for shape in SHAPES]
    grads = [[random.randn(*shape).astype("float32") for shape in SHAPES] for _ in range(6)]
    for name, rule in rules().items():
        if time.time() > until:
            return
        line = dict(kind="parity", case=name)
        try:
            expected = [array.astype("float64") for array in start]
            oracle, run = rule.bind(np), KerasSteps(framework, rule, start)
            for batch in grads:
                oracle.apply_gradients([(grad.astype("float64"), weight) for grad, weight in zip(batch, expected)])
                run.step([framework.array(grad) for grad in batch])
            largest = max(np.abs(weight).max() for weight in expected)
            line["difference"] = float(max(
                np.abs(ours - right).max() for ours, right in zip(run.weights(), expected)) / largest)
            line["plan"] = sorted({each.strategy for each in run.optimizer.everstep_plan()})
        except Exception as error:  # a rule that fails here is what this looks for
            line["failed"] = "{}: {}".format(type(error).__name__, " ".join(str(error).split())[:160])
        yield line


def sizes(quick):
    width, inner, layers = (64, 256, 2) if quick else (512, 2048, 9)
    transformer = [(32 * width, width), (128, width)]
    layer = [(width, width), (width,)] * 4 + [(width, inner), (inner,), (inner, width)] + [(width,)] * 5
    transformer += layer * layers
    return collections.OrderedDict([
        ("10 of 1M", [(1000, 100 if quick else 1000)] * 10), ("300 of 1,000", [(1000,)] * (30 if quick else 300)),
        ("a transformer", transformer)])


def cases(framework):
    """Yields (name, {who: function of arrays that returns its steps})."""
    import everstep
    from everstep import optimizers

    stock = framework.keras.optimizers
    pairs = [
        ("Adam", optimizers.Adam(1e-3), lambda: stock.Adam(1e-3)),
        ("AdamW", optimizers.AdamW(1e-3, weight_decay=0.01), lambda: stock.AdamW(1e-3, weight_decay=0.01)),
        ("SGD, momentum", optimizers.SGD(1e-2, momentum=0.9), lambda: stock.SGD(1e-2, momentum=0.9)),
        ("Lion", optimizers.Lion(1e-4), lambda: stock.Lion(1e-4)),
        ("clip, AdamW", everstep.clip(optimizers.AdamW(1e-3, weight_decay=0.01), global_norm=1.0),
         lambda: stock.AdamW(1e-3, weight_decay=0.01, global_clipnorm=1.0)),
        ("accumulate of 4", everstep.accumulate(optimizers.Adam(1e-3), 4),
         lambda: stock.Adam(1e-3, gradient_accumulation_steps=4)),
        ("Adafactor", optimizers.Adafactor(1e-3), lambda: stock.Adafactor(1e-3)),
    ]
    peers = _of_torch(framework) if framework.name == "torch" else _of_optax(framework)
    for name, ours, native in pairs:
        makers = collections.OrderedDict([
            ("everstep", lambda arrays, ours=ours: KerasSteps(framework, ours, arrays)),
            ("Keras", lambda arrays, native=native: KerasSteps(framework, native(), arrays))])
        makers.update(peers.get(name, {}))
        yield name, makers


def _of_torch(framework):
    optim = framework.torch.optim

    def each(cls, rate, clips=False, **settings):
        return collections.OrderedDict(("torch.optim, " + how, lambda arrays, how=how: TorchSteps(
            framework, lambda parameters: cls(parameters, rate, **settings, **{how: True}), arrays, clips))
            for how in ("foreach", "fused"))

    return {"Adam": each(optim.Adam, 1e-3), "AdamW": each(optim.AdamW, 1e-3),
            "SGD, momentum": each(optim.SGD, 1e-2, momentum=0.9), "clip, AdamW": each(optim.AdamW, 1e-3, clips=True)}


def _of_optax(framework):
    try:
        import optax
    except ImportError:
        return {}
    made = {
        "Adam": optax.adam(1e-3), "AdamW": optax.adamw(1e-3, weight_decay=0.01), "Lion": optax.lion(1e-4),
        "SGD, momentum": optax.sgd(1e-2, momentum=0.9),
        "clip, AdamW": optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, weight_decay=0.01)),
        "accumulate of 4": optax.MultiSteps(optax.adam(1e-3), 4)}
    return {name: {"optax": lambda arrays, each=each: OptaxSteps(framework, each, arrays)}
            for name, each in made.items()}


def facts(framework, run, grads):
    """Returns {what: number} of one step: launches, waits and copies on CUDA, temporary bytes with JAX."""
    if framework.name == "jax":
        memory = run.jitted.lower(run.state, grads).compile().memory_analysis()
        return {"temporary MB": memory.temp_size_in_bytes / 1e6} if memory else {}
    if framework.device != "cuda":
        return {}
    torch = framework.torch
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run.step(grads)
    torch.cuda.set_sync_debug_mode("default")
    run.wait()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        run.step(grads)
        run.wait()
    events = profiled.key_averages()
    launches = sum(each.count for each in events if "LaunchKernel" in each.key)
    return {"launches": launches, "waits": sum("synchroniz" in str(each.message) for each in caught),
            "copies": sum(each.count for each in events if each.key.startswith("cudaMemcpy"))}


def times(framework, quick, until):
    """Yields a line for each size, case and optimizer: ms of a step and of the host, and everstep's share."""
    random = np.random.RandomState(0)
    for size, shapes in sizes(quick).items():
        arrays = [np.ones(shape, "float32") for shape in shapes]
        grads = [framework.array((random.randn(*shape) * 0.1).astype("float32")) for shape in shapes]
        for name, makers in cases(framework):
            if time.time() > until:
                return
            runs = collections.OrderedDict((who, make(arrays)) for who, make in makers.items())
            for run in runs.values():
                for _ in range(8):  # a period of accumulate ends here
                    run.step(grads)
                run.wait()
            whole, host = collections.defaultdict(list), collections.defaultdict(list)
            for _ in range(2 if quick else ROUNDS):
                for who, run in runs.items():
                    start = time.perf_counter()
                    for _ in range(STEPS):
                        run.step(grads)
                    host[who].append((time.perf_counter() - start) / STEPS * 1e3)
                    run.wait()
                    whole[who].append((time.perf_counter() - start) / STEPS * 1e3)
            for who, run in runs.items():
                ratio = statistics.median(ours / other for ours, other in zip(whole["everstep"], whole[who]))
                yield dict(kind="time", variables=size, case=name, who=who, ms=statistics.median(whole[who]),
                           host_ms=statistics.median(host[who]), ratio=ratio, **facts(framework, run, grads))


def measure(quick):
    """Prints both tables of this process's framework. Returns their lines."""
    framework, begin, lines = Framework(), time.time(), []
    print("== {}\n\n{:<28} {:>10}  strategies".format(framework.title, "6 steps", "difference"), flush=True)
    for line in differences(framework, begin + SECONDS / 2):
        lines.append(dict(line, on=framework.title))
        shown = line.get("failed") or "{:>10.1e}  {}{}".format(
            line["difference"], ", ".join(line["plan"]), "" if line["difference"] < TOO_FAR else "  <- look")
        print("{:<28} {}".format(line["case"], shown), flush=True)
    print("\n{:<14} {:<16} {:<20} {:>9} {:>9} {:>6}  one step".format(
        "variables", "case", "who", "ms", "host ms", "ratio"), flush=True)
    for line in times(framework, quick, begin + SECONDS):
        lines.append(dict(line, on=framework.title))
        known = ("kind", "variables", "case", "who", "ms", "host_ms", "ratio")
        more = ", ".join("{:g} {}".format(value, name) for name, value in line.items() if name not in known)
        print("{variables:<14} {case:<16} {who:<20} {ms:>9.3f} {host_ms:>9.3f} {ratio:>6.2f}  ".format(**line) + more,
              flush=True)
    return lines


if __name__ == "__main__":
    main()
