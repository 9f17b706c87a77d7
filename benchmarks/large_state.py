"""Memory use when converting a large file: python benchmarks/large_state.py [DIRECTORY]

Trains a model of embeddings, 128 MiB each, for one step of Adam and saves it: 1.9 GB. Each line is a process of
`everstep convert` between formats, with its peak memory. Needs Keras 3, h5py and 6 GB of disk.
"""
import os
import subprocess
import sys
import tempfile
import time

TABLES, ROWS, COLUMNS = 5, 1 << 21, 16
MEASURED = """
import resource, sys
from everstep import cli
empty = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
code = cli.main(sys.argv[1:])
print("PEAK", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, empty)
sys.exit(code)
"""


def save_model(path):
    import keras
    import numpy

    inputs = keras.Input((1,), dtype="int32")
    read = [keras.layers.Embedding(ROWS, COLUMNS, name="table_%d" % each)(inputs) for each in range(TABLES)]
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(keras.layers.Concatenate()(read))))
    model.compile("adam", "mse", jit_compile=False)
    model.train_on_batch(numpy.zeros((2, 1), "int32"), numpy.zeros((2, 1), "float32"))
    model.save(path)


def convert(source, target, *options):
    start = time.time()
    run = [sys.executable, "-c", MEASURED, "convert", source, target] + list(options)
    printed = subprocess.run(run, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True).stdout
    peak, empty = (int(number) / 1024 for number in printed.split("PEAK")[1].split())
    names = "{} -> {}".format(*(os.path.basename(path) for path in (source, target)))
    sizes = os.path.getsize(source) / 1e6, os.path.getsize(target) / 1e6
    print("{:24} {:8.0f} {:8.0f} {:8.0f} {:8.0f} {:8.0f}".format(names, *sizes, peak, empty, time.time() - start))


def main(folder):
    saved, state, again = (os.path.join(folder, name) for name in ("saved.keras", "run.npz", "again.keras"))
    # Run it in a child process: a child's peak memory starts at its parent's.
    subprocess.run([sys.executable, __file__, "save", saved], stderr=subprocess.DEVNULL, check=True)
    print("{:24} {:>8} {:>8} {:>8} {:>8} {:>8}".format("", "MB read", "written", "peak MiB", "at start", "seconds"))
    convert(saved, state, "--to", "everstep")
    convert(state, again, "--to", "keras", "--template", saved)


if __name__ == "__main__":
    if sys.argv[1:2] == ["save"]:
        save_model(sys.argv[2])
        sys.exit()
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as scratch:
        main(scratch)
