# -*- coding: utf-8 -*-
# not run: it installs many environments; tests/test_examples.py runs what they train
"""Trains one optimizer definition on every optimizer API of every Python on this machine.

    python3 examples/demo.py               all Pythons
    python3 examples/demo.py 3.7 3.13      only these

Needs only a Python >= 3.8 with venv. Each Python gets an environment of about 1 GB in .demo/, which later runs use
again. You can delete the folder at any time. The results of the last run stay until a new run has its own. Exits
with 0 if every API agrees with the oracle.
"""
import argparse
import contextlib
import errno
import glob
import hashlib
import json
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import threading
import time

if sys.version_info < (3, 8):
    sys.exit("This demo is driven by Python 3.8 or newer; it finds the older ones by itself.")
sys.dont_write_bytecode = True

EXAMPLES = pathlib.Path(__file__).resolve().parent
ROOT = EXAMPLES.parent
DEMO = ROOT / ".demo"
sys.path.insert(0, str(ROOT / "matrix"))
import cells  # noqa: E402  # the pinned versions; the tests use the same table
import environments  # noqa: E402  # in api/matrix_kit, as cells has it

# One or two cells of the table for each Python, the most interesting first. Together they have every API.
CELLS = [cells.read()[name] for name in (
    "py37-tf1.15-k2.3", "py313-tf2.21-tfk", "py27-tf1.4-k2.1", "py313-k3jax", "py311-tf2.15", "py36-tf1.13-k2.2",
    "py39-tf2.10", "py38-tf2.4", "py310-tf2.11", "py312-tf2.16-tfk", "py311-k3torch")]
TOOLS = ["matplotlib", "numpy", "packaging", "virtualenv==20.21.1"]  # the last virtualenv that makes a Python 2.7

AGREE, STRAYED = 0, 1  # exit codes of report.py with a verdict
GIGABYTE = 10**9
NEEDED = 1.2 * GIGABYTE  # of disk for a new environment
SPARE = 0.1 * GIGABYTE  # for results and a picture; with less, whatever failed has most likely failed for that

# Variables of the user's environment must not change the installed packages or the backend of Keras.
CLEAN = {name: value for name, value in os.environ.items()
         if not name.startswith(("PYTHON", "KERAS_", "TF_", "VIRTUALENV_", "XLA_"))}
CLEAN.update(
    CUDA_VISIBLE_DEVICES="-1", KERAS_HOME=str(DEMO / "keras"), TF_CPP_MIN_LOG_LEVEL="3",
    PYTHONDONTWRITEBYTECODE="1", PYTHONNOUSERSITE="1", PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_PREFER_BINARY="1",
    VIRTUALENV_PIP="embed", VIRTUALENV_SETUPTOOLS="embed", VIRTUALENV_WHEEL="embed", VIRTUALENV_NO_PERIODIC_UPDATE="1")
# An old pip would take packages that are too new from an extra index that does not declare the Pythons they need.
OLD = dict(CLEAN, PIP_CONFIG_FILE=os.devnull)


class Screen:
    """Printed lines, and below them, on a terminal, one line that shows the current activity."""

    def __init__(self):
        self.lock, self.started, self.now = threading.Lock(), time.time(), {"train": None, "install": None}
        self.live = sys.stdout.isatty()

    def say(self, line=""):
        with self.lock:
            print(("\r\033[K" if self.live else "") + line, flush=True)
        self.show()

    def show(self, **now):
        """Shows the state of each named activity; None ends it."""
        with self.lock:
            self.now.update(now)
            if self.live:
                line = "   ".join(text for text in self.now.values() if text)
                width = shutil.get_terminal_size().columns - 1
                sys.stdout.write("\r\033[K" + "{:3.0f} s  {}".format(time.time() - self.started, line)[:width])
                sys.stdout.flush()

    def tick(self):
        """Moves the clock, also while nothing else happens. Runs in a thread."""
        while self.live:
            self.show()
            time.sleep(0.5)

    def end(self):
        """Switches to plain printing."""
        with self.lock:
            if self.live:
                sys.stdout.write("\r\033[K")
            self.live = False


screen = Screen()
children = []  # processes that run; none of them may outlive this one


class Hopeless(RuntimeError):
    """Whatever is tried next will fail for the same reason."""


def start(command, **keywords):
    children.append(subprocess.Popen([str(part) for part in command], **keywords))
    return children[-1]


def stop_children():
    for child in children:
        if child.poll() is None:
            child.terminate()


def run(log, *command, env=CLEAN):
    """Runs a command with its output in the log. Raises a RuntimeError that says why if it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        before = output.tell()
        failed = start(command, stdout=output, stderr=output, env=env).wait()
    if failed:
        known = known_cause(log.read_bytes()[before:].decode(errors="replace"), shutil.disk_usage(str(DEMO)).free)
        if known:
            raise Hopeless("{} The log is {}.".format(known, log))
        raise RuntimeError("{} failed; see {}\n    {}".format(" ".join(map(str, command[:4])), log, last_lines(log, 8)))


# What pip and uv print without a network.
OFFLINE = ("Temporary failure in name resolution", "Name or service not known", "Failed to establish a new connection",
           "nodename nor servname", "Network is unreachable", "dns error", "ProxyError", "Connection refused",
           "client error (Connect)", "Read timed out", "ConnectTimeoutError")


def known_cause(output, free):
    """Returns a sentence for a cause that no log has to be read for, or None.

    Args:
        output: What the failed command printed.
        free: Bytes free on the disk of .demo/. A full disk also cuts off what commands print.
    """
    if "No space left on device" in output or free < SPARE:
        return full_disk(free)
    if any(sign in output for sign in OFFLINE):
        return ("The package index cannot be reached, so nothing new can be installed. Connect to a network, and run "
                "this again; environments that are installed train without one.")
    return None


def full_disk(free):
    return ("The disk of {} is full: {:.1f} GB are free, and each new environment takes {:.1f} GB. Make room, or name "
            "fewer Pythons.".format(DEMO, free / GIGABYTE, NEEDED / GIGABYTE))


def last_lines(log, count):
    return "\n    ".join(log.read_text(errors="replace").strip().splitlines()[-count:])


# Pythons and their environments.

def pythons():
    """Returns {"3.7": path} of every CPython on PATH and of those that pyenv and uv keep elsewhere."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    for kept in (os.environ.get("PYENV_ROOT", "~/.pyenv") + "/versions/*/bin",
                 os.environ.get("UV_PYTHON_INSTALL_DIR", "~/.local/share/uv/python") + "/*/bin"):
        folders += sorted(glob.glob(os.path.expanduser(kept)), reverse=True)
    found = {"{}.{}".format(*sys.version_info): sys.executable}
    for version in {cell.python for cell in CELLS} - set(found):
        for path in (os.path.join(folder, "python" + version) for folder in folders):
            if version not in found and os.path.exists(path) and is_cpython(path, version):
                found[version] = path
    return found


def is_cpython(path, version):
    # pyenv has a shim for every version, and most of them fail: a Python counts only if it runs.
    code = "import platform, sys; sys.stdout.write(platform.python_implementation() + ' %d.%d' % sys.version_info[:2])"
    answer = subprocess.run([path, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=CLEAN).stdout
    return answer.decode() == "CPython " + version


def make_tools(log):
    """Returns the Python that creates the other environments, trains the oracle and draws; and everstep's wheel."""
    folder = DEMO / "tools"
    python = folder / "bin" / "python"
    has = installed(folder)
    if has.get("packages") != TOOLS:
        shutil.rmtree(folder, ignore_errors=True)
        run(log, sys.executable, "-m", "venv", folder)
        run(log, python, "-m", "pip", "install", *TOOLS)
        with contextlib.suppress(RuntimeError):  # without uv, pip installs
            run(log, python, "-m", "pip", *environments.GET_UV)
        has = installed(folder, packages=TOOLS)
    wheel = make_wheel(python, log)
    if has.get("wheel") != str(wheel):
        run(log, python, "-m", "pip", "install", "--force-reinstall", "--no-deps", wheel)
        installed(folder, packages=TOOLS, wheel=str(wheel))
    return python, wheel


def make_wheel(python, log):
    """Returns the wheel of this checkout. Builds it only after a change."""
    # Built from a copy, because a build leaves files beside the source, and old ones would get into the wheel.
    source = DEMO / "source"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir()
    for path in ROOT.iterdir():
        if path.name in ("api", "compat", "optimizers"):
            shutil.copytree(path, source / path.name, ignore=shutil.ignore_patterns("*.pyc", "__pycache__"))
        elif path.is_file():
            shutil.copy(path, source)
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*")):
        if path.is_file():
            digest.update(path.relative_to(source).as_posix().encode() + path.read_bytes())
    wheels = DEMO / "wheel" / digest.hexdigest()[:12]
    if not list(wheels.glob("*.whl")):
        shutil.rmtree(wheels.parent, ignore_errors=True)
        run(log, python, "-m", "pip", "wheel", "--no-deps", "-w", wheels, source)
    return next(wheels.glob("*.whl"))


def make_environment(cell, python, tools, wheel):
    """Returns the Python of a cell's environment. Creates the environment if it does not exist or is outdated."""
    folder, log, env = DEMO / cell.name, log_of(cell), OLD if cell.python in ("2.7", "3.6") else CLEAN
    installer = environments.Installer(str(tools), str(DEMO / "uv.json"))
    install = folder / "bin" / "python", *installer.arguments, "install"
    packages = [package for package in cell.packages if not package.startswith("pytest")]
    has = installed(folder)
    if has.get("packages") != packages + cell.no_deps:
        shutil.rmtree(folder, ignore_errors=True)
        run(log, tools, "-m", "virtualenv", "-p", python, folder, env=env)
        run(log, *install, *packages, wheel, env=env)
        if cell.no_deps:
            run(log, *install, *cell.no_deps_arguments, env=env)
    elif has["wheel"] != str(wheel):
        run(log, *install, "--force-reinstall", "--no-deps", wheel, env=env)
    installed(folder, packages=packages + cell.no_deps, wheel=str(wheel))
    return folder / "bin" / "python"


def installed(folder, **now):
    """Returns the packages of an environment. They are written last, so an interrupted installation is repeated."""
    path = folder / "everstep-demo.json"
    if now:
        path.write_text(json.dumps(now))
    return json.loads(path.read_text()) if path.exists() else {}


def log_of(cell):
    return DEMO / "logs" / (cell.name + ".log")


def contents(cell):
    pins = cell.pins
    names = "tensorflow", "jax", "torch", "keras", "tf_keras"
    return ", ".join("{} {}".format(name, pins[name]) for name in names if name in pins)


# Training.

def install_all(todo, found, tools, wheel, ready):
    """Installs environments in a thread, while the previous one trains."""
    hopeless = None
    for cell in todo:
        if hopeless and not installed(DEMO / cell.name):
            ready.put((cell, None, "for the same reason"))
            continue
        started = time.time()
        screen.show(install="installing Python {}, {}".format(cell.python, contents(cell)))
        try:
            python = make_environment(cell, found[cell.python], tools, wheel)
        except Exception as error:  # the others can still run
            hopeless = hopeless or isinstance(error, Hopeless)
            ready.put((cell, None, sentence(error)))
        else:
            ready.put((cell, python, time.time() - started))
    screen.show(install=None)
    ready.put(None)


def work(python, log, *arguments, **env):
    """Runs worker.py, shows its progress, and yields the events that stay on screen."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as errors:
        process = start((python, EXAMPLES / "worker.py") + arguments,
                        stdout=subprocess.PIPE, stderr=errors, env=dict(CLEAN, **env))
        for line in process.stdout:
            if not line.startswith(b"@"):
                errors.write(line)
                continue
            event = json.loads(line[1:].decode())
            if event["event"] == "step":
                bar = ("#" * int(20 * event["done"])).ljust(20, ".")
                screen.show(train="{api}  {run}  {bar}  loss {loss:.3f}".format(bar=bar, **event))
            else:
                yield event
    screen.show(train=None)
    if process.wait():
        yield dict(event="failed", api="worker.py", run=arguments[0], why="{}; see {}".format(last_lines(log, 1), log))


def main(wanted):
    """Trains, prints the table, and keeps the results. Returns the exit code."""
    found = pythons()
    todo = [cell for cell in CELLS if cell.python in found and (not wanted or cell.python in wanted)]
    absent = [cell for cell in CELLS if cell.python not in found and (not wanted or cell.python in wanted)]
    if not todo:
        screen.say("No: nothing was trained, because this machine has no Python {}. Install one (pyenv install 3.7, "
                   "for example), and run this again.".format(versions(absent)))
        return 1
    DEMO.mkdir(exist_ok=True)
    (DEMO / ".gitignore").write_text("*\n")
    new = [cell for cell in todo if not installed(DEMO / cell.name)]
    free = shutil.disk_usage(str(DEMO)).free
    if free < NEEDED * len(new) + SPARE:
        raise Hopeless(full_disk(free))
    screen.say("Trains on Python {}.".format(versions(todo)))
    if new:
        screen.say("Installs environments for {} in {}: about 1 GB and a minute each.".format(versions(new), DEMO))
    tell_absent(absent)
    threading.Thread(target=screen.tick, daemon=True).start()

    folder = DEMO / "new"  # what stands from the last run is replaced at the end
    shutil.rmtree(str(folder), ignore_errors=True)
    (folder / "results").mkdir(parents=True)
    for old in DEMO.glob("logs/*.log"):
        old.unlink()
    log = DEMO / "logs" / "tools.log"
    screen.show(install="installing tools")
    tools, wheel = make_tools(log)
    for command in ("prepare", "oracle"):
        screen.show(install=command)
        for event in work(tools, log, command, folder):
            if event["event"] == "failed":
                raise RuntimeError("{run}: {why}".format(**event))
    screen.say("The oracle, NumPy in float64, has trained.")
    failed = train_all(todo, found, tools, wheel, folder)
    screen.say("All done in {:.0f} s.\n".format(time.time() - screen.started))
    screen.end()
    return report(tools, folder, failed)


def train_all(todo, found, tools, wheel, folder):
    """Trains in each environment as soon as it is installed. Returns the cells that failed in part or whole."""
    failed, ready = [], queue.Queue()
    threading.Thread(target=install_all, args=(todo, found, tools, wheel, ready), daemon=True).start()
    for cell, python, outcome in iter(ready.get, None):
        screen.say("Python {}: {}{}".format(
            cell.python, contents(cell), "; installed in {:.0f} s".format(outcome) if python and outcome > 5 else ""))
        if python is None:
            failed.append(cell)
            screen.say("    not installed: {}".format(outcome))
            continue
        for event in work(python, log_of(cell), "train", folder, cell.name, **cell.env):
            if event["event"] == "done":
                screen.say("    {api}: trained in {seconds:.0f} s".format(**event))
            else:
                failed.append(cell)
                screen.say("    {api}: {run} failed: {why}".format(**event))
    return failed


def report(tools, folder, failed):
    """Prints the table and the verdict, and draws the picture. Then the folder takes the place of the last run's."""
    names = sorted({cell.name for cell in failed})
    command = (tools, EXAMPLES / "report.py", folder, DEMO / "curves.png") + tuple(names)
    code = start(command, env=CLEAN).wait()
    if list(folder.glob("results/py*.npz")) and code in (AGREE, STRAYED):
        shutil.rmtree(str(DEMO / "last"), ignore_errors=True)
        folder.replace(DEMO / "last")
    return code


def tell_absent(absent):
    if absent:
        screen.say("To train on more, install other Pythons (pyenv install 3.7, for example), and run this again:")
    for cell in sorted(absent, key=age):
        screen.say("    Python {:5} {}".format(cell.python, contents(cell)))


def versions(some):
    return ", ".join(dict.fromkeys(cell.python for cell in sorted(some, key=age)))


def age(cell):
    return [int(part) for part in cell.python.split(".")]


def sentence(error):
    """Returns what an error means for the user."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return full_disk(0)
    return str(error) or type(error).__name__


def wanted_python(text):
    """Returns a version of a Python that the demo has a cell for."""
    known = versions(CELLS)
    if text not in known.split(", "):
        raise argparse.ArgumentTypeError("{!r} is not a Python of this demo; it has {}".format(text, known))
    return text


def arguments(given=None):
    """Returns the Pythons that the user names, an empty list for all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage="demo.py [-h] [PYTHON ...]")
    parser.add_argument("python", metavar="PYTHON", nargs="*", type=wanted_python, help=versions(CELLS))
    return parser.parse_args(given).python


def command(wanted):
    """Runs the demo. However it ends, it says so in a sentence. Returns the exit code."""
    try:
        return main(wanted)
    except (RuntimeError, OSError) as error:
        screen.end()
        print("\n" + sentence(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        screen.end()
        print("\nStopped. What was installed and the results of the last run are kept. An installation that was not "
              "finished starts again next time.", file=sys.stderr)
        return 130
    finally:
        stop_children()


if __name__ == "__main__":
    sys.exit(command(arguments()))
