"""Writes files of events, which TensorBoard shows: scalars alone, with NumPy alone, on every API.

A file is a row of records: length (uint64), its checksum, an `Event` in protobuf, its checksum. See
`record_writer.h` and `event.proto` of TensorFlow.
"""
from __future__ import absolute_import, division, print_function

import io
import itertools
import os
import socket
import struct
import time

_POLYNOMIAL = 0x82F63B78  # of CRC-32C, reversed
_numbers = itertools.count()  # of files, so that two of one second have two names


class EventFile(object):
    """A new file of events in a folder, which is made if it is missing."""

    def __init__(self, folder):
        if not os.path.isdir(folder):
            os.makedirs(folder)
        name = "events.out.tfevents.{:010d}.{}.{}.{}".format(
            int(time.time()), socket.gethostname(), os.getpid(), next(_numbers))
        self.path = os.path.join(folder, name)
        self._file = io.open(self.path, "ab")
        self._write(_bytes(3, b"brain.Event:2"))

    def add(self, step, scalars):
        """Writes {tag: number} of a step."""
        values = [_bytes(1, _bytes(1, tag.encode("utf-8")) + _key(2, 5) + struct.pack("<f", value))
                  for tag, value in sorted(scalars.items())]
        self._write(_key(2, 0) + _varint(step) + _bytes(5, b"".join(values)))

    def close(self):
        self._file.close()

    def _write(self, message):
        event = _key(1, 1) + struct.pack("<d", time.time()) + message
        length = struct.pack("<Q", len(event))
        self._file.write(length + _checksum(length) + event + _checksum(event))
        self._file.flush()


def _key(number, kind):
    return _varint(number << 3 | kind)


def _bytes(number, value):
    return _key(number, 2) + _varint(len(value)) + value


def _varint(number):
    groups = bytearray()
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    return bytes(groups + bytearray([number]))


def _table_row(byte):
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = [_table_row(byte) for byte in range(256)]


def _checksum(data):
    """Returns the masked CRC-32C of bytes, as records have it."""
    crc = 0xFFFFFFFF
    for byte in bytearray(data):
        crc = _TABLE[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
