# Generated: do not edit. Edit api/matrix_kit/toxfile.py, then run python matrix/generate.py
"""Puts the Pythons of pyenv and uv on PATH. tox loads this file beside tox.ini, before it looks for a Python.

tox looks only on PATH. pyenv puts only shims there, which fail for every version that is not the global one, so a
matrix of twenty cells would skip nineteen; uv puts nothing there. Their Pythons go to the end of PATH.
"""
from __future__ import absolute_import, division, print_function

import glob
import os


def installed_pythons():
    """Returns the folders of the Pythons that pyenv and uv have installed."""
    roots = [os.path.join(os.environ.get("PYENV_ROOT", "~/.pyenv"), "versions", "*", "bin"),
             os.path.join(os.environ.get("UV_PYTHON_INSTALL_DIR", "~/.local/share/uv/python"), "*", "bin")]
    return [path for root in roots for path in sorted(glob.glob(os.path.expanduser(root)), reverse=True)]


os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath)] + installed_pythons())
