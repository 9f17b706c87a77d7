"""The command `everstep new`: writes a package with one definition, which tests itself on every API."""
from __future__ import absolute_import, division, print_function

import io
import os
import re

from everstep import optimizers
from everstep.errors import ConfigError
from everstep.matrix_kit import project

TEMPLATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "template")
# {file of the template, without its .txt: where it goes}; the names of the package are replaced in both.
PLACES = {
    "README.md": "README.md",
    "gitignore": ".gitignore",
    "my_optimizer.py": "src/my_optimizer.py",
    "setup.cfg": "setup.cfg",
    "setup.py": "setup.py",
    "test_my_optimizer.py": "tests/test_my_optimizer.py",
    "tests.yml": ".github/workflows/tests.yml",
}
CELLS = ("py27-tf1.15-k2.3", "py37-tf1.15-k2.3", "py39-tf2.10", "py313-tf2.21")  # those of its workflow too


def new(name, folder="."):
    """Writes the package into a new folder of its name.

    Args:
        name: of the package, such as my-optimizer: its module is my_optimizer, its class MyOptimizer.
        folder: where the new folder goes.

    Returns:
        The paths of the files, in `folder`.

    Raises:
        ConfigError: the name is no such name, is taken by everstep, or the new folder exists.
    """
    if not re.match(r"[a-z][a-z0-9]*(-[a-z][a-z0-9]*)*\Z", name):
        raise ConfigError("a name has lower case letters, digits and -, such as my-optimizer; got {!r}".format(name))
    class_name = "".join(part.capitalize() for part in name.split("-"))
    namesakes = [each for each in optimizers.__all__ if each.lower() == class_name.lower()]
    if namesakes or name == "everstep":
        raise ConfigError("{} is a name of everstep's; give another one, such as my-{}".format(
            (namesakes or [name])[0], name))
    if os.path.exists(os.path.join(folder, name)):
        raise ConfigError("{} exists; remove it, or give another name".format(os.path.join(folder, name)))
    paths = []
    for source, place in sorted(PLACES.items()):
        with io.open(os.path.join(TEMPLATE, source + ".txt"), encoding="utf-8") as file:
            text = file.read()
        path = os.path.join(name, *_named(place, name, class_name).split("/"))
        paths.append(path)
        path = os.path.join(folder, path)
        if not os.path.isdir(os.path.dirname(path)):
            os.makedirs(os.path.dirname(path))
        with io.open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(_named(text, name, class_name))
    words = ["--folder", os.path.join(folder, name), "--package", name.replace("-", "_"), "--cells"] + list(CELLS)
    tox_files = project.Project(project.parsed(words))
    tox_files.write(False, lambda what, path: paths.append(os.path.join(name, path)))
    return paths


def _named(text, name, class_name):
    module = name.replace("-", "_")
    return text.replace("MyOptimizer", class_name).replace("my_optimizer", module).replace("my-optimizer", name)
