"""Says what is missing of a requirement such as tensorflow>=2.11."""
from __future__ import absolute_import, division, print_function

import importlib

from packaging.requirements import Requirement


def missing(text):
    """Returns what is missing of a requirement, for a message; None if nothing is. Imports the package."""
    requirement = Requirement(text)
    try:
        version = importlib.import_module(requirement.name.replace("-", "_")).__version__
    except ImportError:
        return "{}, which is not installed".format(text)
    return None if requirement.specifier.contains(version, prereleases=True) else "{}; here is {}".format(text, version)
