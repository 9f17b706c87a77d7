"""Writes a file so that it replaces an old one only once it is complete."""
from __future__ import absolute_import, division, print_function

import binascii
import contextlib
import os

from everstep.errors import StateError


@contextlib.contextmanager
def replacing(path):
    """Yields a temporary path beside `path`, which is renamed to `path` if the body succeeds, and deleted if it fails.

    Raises:
        StateError: the body or the system cannot write there.
    """
    try:
        path = os.path.realpath(path)
    except (AttributeError, TypeError, ValueError) as error:
        raise StateError("{!r} cannot be written: {}".format(path, error))
    temporary = None
    try:
        suffix = binascii.hexlify(os.urandom(4)).decode("ascii")
        temporary = os.path.join(os.path.dirname(path), ".{}.{}.tmp".format(os.path.basename(path), suffix))
        yield temporary
        getattr(os, "replace", os.rename)(temporary, path)
        _sync(os.path.dirname(path))
    except (OSError, IOError, ValueError) as error:  # ValueError: a null character
        if isinstance(error, StateError):
            raise
        raise StateError("{!r} cannot be written: {}".format(path, error))
    finally:
        if temporary and os.path.exists(temporary):
            os.remove(temporary)


def _sync(folder):
    """Flushes the folder's entry for the new name to disk (fsync), if the system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
