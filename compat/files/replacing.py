"""Writes files so that they replace old ones only once they are complete and on disk."""
from __future__ import absolute_import, division, print_function

import binascii
import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
import time

from everstep.compat.files.open_file import LIBRARY_ERRORS, as_path
from everstep.errors import EverstepError, StateError

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

_LONGEST_NAME, _ONE_DAY = 255, 86400.0


@contextlib.contextmanager
def replacing(path):
    """Yields a temporary path, which is renamed to `path` if the body succeeds, and deleted if it fails.

    A symbolic link stays, and the file that it points to is replaced. The new file has the old one's mode and owner.

    Raises:
        StateError: the body or the system cannot write there.
    """
    with write_errors(path):
        target = os.path.realpath(as_path(path))
        old = _status_of_target(target)
        with scratch_folder(target) as folder:
            temporary = os.path.join(folder, "new")
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            yield temporary
            if old is not None:
                _keep_owner_and_mode(temporary, old)
            publish([(temporary, target)])


@contextlib.contextmanager
def write_errors(path):
    """Turns the errors of the system and of libraries into a StateError that says that a file cannot be written."""
    try:
        yield
    except EverstepError:
        raise
    except LIBRARY_ERRORS as error:
        kind = "" if isinstance(error, EnvironmentError) else type(error).__name__ + ": "
        raise StateError("{!r} cannot be written: {}{}".format(path, kind, error))


def publish(pairs):
    """Renames [(temporary path, path)] in this order, after all contents are on disk.

    The last file is renamed only once the other names are on disk, so that it can vouch for them.
    """
    for temporary, _ in pairs:
        _sync(temporary, os.O_RDWR)
    for number, (temporary, path) in enumerate(pairs):
        if number and number == len(pairs) - 1:
            _sync_folder(os.path.dirname(path))
        getattr(os, "replace", os.rename)(temporary, path)
    _sync_folder(os.path.dirname(pairs[-1][1]))


@contextlib.contextmanager
def scratch_folder(path):
    """Yields a new folder beside a path, only for this user, and deletes it at the end.

    Folders that killed processes left are deleted first. A live process holds a lock on its folder.
    """
    parent, name = os.path.split(path)
    prefix = _prefix(name)
    for left in os.listdir(parent):
        if left.startswith(prefix) and re.match(r"[0-9a-f]{8}\.tmp\Z", left[len(prefix) :]):
            _delete_if_abandoned(os.path.join(parent, left))
    folder, lock = _make_folder(os.path.join(parent, prefix))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _prefix(name):
    """Returns the start of the names of a file's scratch folders. It is short if the file's name is long."""
    encoded = name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")
    if len(encoded) + len(".") + len(".12345678.tmp") > _LONGEST_NAME:
        name = hashlib.sha256(encoded).hexdigest()[:32]
    return ".{}.".format(name)


def _make_folder(prefix):
    """Returns (path, descriptor with the lock, or None if the system has no locks) of a new folder."""
    while True:
        folder = "{}{}.tmp".format(prefix, binascii.hexlify(os.urandom(4)).decode("ascii"))
        os.mkdir(folder, 0o700)
        lock = _locked(folder)
        if lock is not False and os.path.isdir(folder):  # else another process deleted it before it was locked
            return folder, lock


def _locked(folder):
    """Returns a descriptor that holds the folder's lock; False if another one holds it, None if there are no locks."""
    if fcntl is None:
        return None
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (OSError, IOError) as error:
        os.close(descriptor)
        return False if error.errno in (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES) else None
    return descriptor


def _delete_if_abandoned(folder):
    """Deletes a scratch folder if its process has ended; where the system has no locks, if it is a day old."""
    try:
        if os.path.islink(folder) or not os.path.isdir(folder):
            return
        lock = _locked(folder)
        if lock is None and time.time() - os.stat(folder).st_mtime < _ONE_DAY:
            return
    except (OSError, IOError):  # it is gone, or another user's
        return
    if lock is not False:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _status_of_target(path):
    """Returns the status of the file to replace, None if there is none, or raises StateError if it must stay."""
    if not os.path.exists(path):
        return None
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise StateError("{!r} cannot be written: it is {}".format(path, kind))
    if not os.access(path, os.W_OK):
        raise StateError("{!r} cannot be written: it is read-only".format(path))
    return status


def _keep_owner_and_mode(path, old):
    """Gives a new file the owner and mode of the old one. Only root can give a file away."""
    new = os.stat(path)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.chown(path, old.st_uid, old.st_gid)
        except (OSError, IOError):
            pass
    os.chmod(path, stat.S_IMODE(old.st_mode))


def _sync(path, flags):
    """Flushes a file to disk (fsync)."""
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder):
    """Flushes the names in a folder to disk, if the system can."""
    try:
        _sync(folder or os.curdir, os.O_RDONLY)
    except (OSError, IOError):
        pass
