"""Memory that `everstep.capture` takes beside the optimizer: python benchmarks/large_capture.py [DIRECTORY]

Each line is a process with an Adam of 1 GiB of slots, on each framework that is installed here: in memory and then
saved, and with `path=`. The peak is what the process had at most beside what it had before. Needs Linux, 3 GB of memory
and 2 GB of disk.
"""
from __future__ import print_function

import hashlib
import os
import subprocess
import sys
import tempfile
import time

VARIABLES, ROWS, COLUMNS = 8, 1 << 20, 16  # 64 MiB each, and two slots


def trained(name):
    """Returns (optimizer, variables)."""
    import numpy

    import everstep

    definition, shape = everstep.optimizers.Adam(1e-3), (ROWS, COLUMNS)
    if name == "numpy":
        variables, optimizer = [numpy.ones(shape, "float32") for _ in range(VARIABLES)], definition.bind(numpy)
        grad = numpy.ones(shape, "float32")
        optimizer.apply_gradients([(grad, variable) for variable in variables])
        return optimizer, variables
    import keras

    variables = [keras.Variable(numpy.ones(shape, "float32"), name="v%d" % place) for place in range(VARIABLES)]
    optimizer = definition.bind(keras)
    optimizer.build(variables)
    return optimizer, variables


def memory(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) / 1024.0


def measure(name, how, path):
    import everstep

    optimizer, variables = trained(name)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak begins anew
    before, start = memory("VmRSS"), time.time()
    if how == "path=":
        everstep.capture(optimizer, variables, path=path)
    else:
        everstep.capture(optimizer, variables).save(path)
    print("MEASURED", memory("VmHWM") - before, os.path.getsize(path) / 2.0**20, time.time() - start)


def digest(path):
    found = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            found.update(block)
    return found.hexdigest()


def main(folder):
    try:
        import keras

        names = ["numpy", keras.backend.backend()]
    except ImportError:
        names = ["numpy"]
    print("{:12} {:10} {:>10} {:>10} {:>8}".format("", "", "file MiB", "peak MiB", "seconds"))
    for name in names:
        digests = set()
        for how in ("save", "path="):
            path = os.path.join(folder, how.strip("="))
            run = [sys.executable, __file__, name, how, path]
            printed = subprocess.check_output(run, stderr=subprocess.DEVNULL, universal_newlines=True)
            peak, size, seconds = map(float, printed.split("MEASURED")[1].split())
            print("{:12} {:10} {:10.0f} {:10.0f} {:8.1f}".format(name, how, size, peak, seconds))
            digests.add(digest(path))
            os.remove(path)
        assert len(digests) == 1, "the files differ"


if __name__ == "__main__":
    if len(sys.argv) == 4:
        measure(*sys.argv[1:])
        sys.exit()
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as scratch:
        main(scratch)
