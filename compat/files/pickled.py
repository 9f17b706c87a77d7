"""Reads pickles of plain values without running anything that they name.

`pickle` builds whatever a file asks for: it imports modules, calls functions, and reserves memory of any size. Here a
pickle is only data. Dictionaries, lists, tuples, texts and numbers become themselves; anything else that it names goes
to a function of the caller, which knows the few names that its format needs and refuses the others.

The opcodes are those of https://github.com/python/cpython/blob/3.13/Lib/pickletools.py, protocols 2 to 5.
"""
from __future__ import absolute_import, division, print_function

import struct
from collections import OrderedDict, namedtuple

from everstep.compat.files.npz import native_str
from everstep.optimizers.contract.checks import TEXT

MAX_BYTES, MAX_OPCODES, MAX_DIGITS = 1 << 26, 1 << 23, 64
_LARGEST_KEY = 1 << 60  # larger integers can have equal hashes, which make a dictionary very slow
_WHOLE = (int, type(1 << 64))  # Python 2 has two types

Global = namedtuple("Global", "module name")  # a class or a function that a pickle names
_Mark = namedtuple("_Mark", "")


class Damaged(ValueError):
    """A pickle that cannot be read, or that is not plain data. The text says why."""


def load(data, start, call, persistent):
    """Returns (the value of the pickle that begins at `start`, where it ends).

    Args:
        data: bytes.
        call: call(Global, arguments) returns what stands for the object that the pickle makes so.
        persistent: persistent(value) returns what stands for an object that is not in the pickle.

    Raises:
        Damaged: the pickle is no whole one, or has something else than plain data.
    """
    return _Machine(data, start, call, persistent).run()


class _Machine(object):
    def __init__(self, data, start, call, persistent):
        self._data, self._at, self._call, self._persistent = data, start, call, persistent
        self._stack, self._memo = [], {}  # type: list, dict

    def run(self):
        count = 0
        while count < MAX_OPCODES:  # Python 2 would make a list of such a range
            count += 1
            code = self._take(1)
            if code == b".":
                return self.pop(), self._at
            handler = _OPCODES.get(code)
            if handler is None:
                raise Damaged("the opcode {!r} is none that plain data needs".format(code))
            handler(self)
        raise Damaged("it has more than {} values".format(MAX_OPCODES))

    def _take(self, size):
        end = self._at + size
        if end > len(self._data) or end > MAX_BYTES:
            raise Damaged("it ends in the middle of a value" if end <= MAX_BYTES else
                          "it has more than {} bytes".format(MAX_BYTES))
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def number(self, form):
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def sized(self, form):
        return self._take(self.number(form))

    def text(self, form):
        try:
            return native_str(self.sized(form).decode("utf-8", "strict"))
        except UnicodeError:
            raise Damaged("a text in it is not UTF-8")

    def line(self):
        end = self._data.find(b"\n", self._at, self._at + 1000)
        if end < 0:
            raise Damaged("a name in it has no end")
        name = self._take(end - self._at)
        self._take(1)
        return native_str(name.decode("latin-1"))

    def push(self, value):
        self._stack.append(value)

    def pop(self):
        if not self._stack or isinstance(self._stack[-1], _Mark):
            raise Damaged("it takes a value that it did not give")
        return self._stack.pop()

    def popped(self, count):
        return [self.pop() for _ in range(count)][::-1]

    def to_mark(self):
        """Returns the values above the last mark, and takes them and it away."""
        values = []
        while self._stack and not isinstance(self._stack[-1], _Mark):
            values.append(self._stack.pop())
        if not self._stack:
            raise Damaged("it has no mark where one is needed")
        self._stack.pop()
        return values[::-1]

    def long(self, size):
        if size > MAX_DIGITS:
            raise Damaged("an integer in it has {} bytes".format(size))
        digits = bytearray(self._take(size))
        value = sum(digit << 8 * index for index, digit in enumerate(digits))
        self.push(value - (1 << 8 * size) if digits and digits[-1] & 128 else value)

    def remember(self, index):
        self._memo[index] = self.pop()
        self.push(self._memo[index])

    def memoize(self):
        self.remember(len(self._memo))

    def recall(self, index):
        if index not in self._memo:
            raise Damaged("it refers to a value that it does not have")
        self.push(self._memo[index])

    def append(self, values):
        target = self.pop()
        if not isinstance(target, list):
            raise Damaged("it appends to {}".format(_kind(target)))
        target.extend(values)
        self.push(target)

    def set_items(self, values):
        target = self.pop()
        if not isinstance(target, OrderedDict) or len(values) % 2:
            raise Damaged("it sets items of {}".format(_kind(target)))
        for key, value in zip(values[::2], values[1::2]):
            is_small = isinstance(key, _WHOLE) and abs(key) < _LARGEST_KEY
            if not (is_small or key is None or isinstance(key, TEXT)):
                raise Damaged("a key of a dictionary in it is {}".format(_kind(key)))
            target[key] = value
        self.push(target)

    def dictionary(self, values):
        self.push(OrderedDict())
        self.set_items(values)

    def named(self, module, name):
        if not isinstance(module, TEXT) or not isinstance(name, TEXT):
            raise Damaged("it names {} of {}".format(_kind(name), _kind(module)))
        self.push(Global(module, name))

    def reduce(self):
        function, arguments = self.popped(2)
        if not isinstance(function, Global) or not isinstance(arguments, tuple):
            raise Damaged("it calls {}".format(_kind(function)))
        self.push(self._call(function, arguments))

    def persistent(self):
        self.push(self._persistent(self.pop()))


def _kind(value):
    """Returns the name of a value's class: the value itself may be very large, or deep."""
    return type(value).__name__.lstrip("_")


_OPCODES = {
    b"\x80": lambda machine: machine.number("<B"),  # the protocol
    b"\x95": lambda machine: machine.number("<Q"),  # a frame, which only says how much may be read at once
    b"(": lambda machine: machine.push(_Mark()),
    b"0": lambda machine: machine.pop(),
    b"1": lambda machine: machine.to_mark(),
    b"N": lambda machine: machine.push(None),
    b"\x88": lambda machine: machine.push(True),
    b"\x89": lambda machine: machine.push(False),
    b"J": lambda machine: machine.push(machine.number("<i")),
    b"K": lambda machine: machine.push(machine.number("<B")),
    b"M": lambda machine: machine.push(machine.number("<H")),
    b"\x8a": lambda machine: machine.long(machine.number("<B")),
    b"\x8b": lambda machine: machine.long(machine.number("<I")),
    b"G": lambda machine: machine.push(machine.number(">d")),
    b"X": lambda machine: machine.push(machine.text("<I")),
    b"\x8c": lambda machine: machine.push(machine.text("<B")),
    b"\x8d": lambda machine: machine.push(machine.text("<Q")),
    b"U": lambda machine: machine.push(machine.text("<B")),  # texts that Python 2 wrote
    b"T": lambda machine: machine.push(machine.text("<I")),
    b"C": lambda machine: machine.push(machine.sized("<B")),
    b"B": lambda machine: machine.push(machine.sized("<I")),
    b"\x8e": lambda machine: machine.push(machine.sized("<Q")),
    b"\x96": lambda machine: machine.push(machine.sized("<Q")),
    b"]": lambda machine: machine.push([]),
    b"l": lambda machine: machine.push(machine.to_mark()),
    b"a": lambda machine: machine.append(machine.popped(1)),
    b"e": lambda machine: machine.append(machine.to_mark()),
    b")": lambda machine: machine.push(()),
    b"t": lambda machine: machine.push(tuple(machine.to_mark())),
    b"\x85": lambda machine: machine.push(tuple(machine.popped(1))),
    b"\x86": lambda machine: machine.push(tuple(machine.popped(2))),
    b"\x87": lambda machine: machine.push(tuple(machine.popped(3))),
    b"}": lambda machine: machine.push(OrderedDict()),
    b"d": lambda machine: machine.dictionary(machine.to_mark()),
    b"s": lambda machine: machine.set_items(machine.popped(2)),
    b"u": lambda machine: machine.set_items(machine.to_mark()),
    b"\x8f": lambda machine: machine.push([]),  # sets become lists, which need no hashes
    b"\x90": lambda machine: machine.append(machine.to_mark()),
    b"\x91": lambda machine: machine.push(machine.to_mark()),
    b"c": lambda machine: machine.named(machine.line(), machine.line()),
    b"\x93": lambda machine: machine.named(*machine.popped(2)),
    b"R": lambda machine: machine.reduce(),
    b"\x81": lambda machine: machine.reduce(),
    b"b": lambda machine: machine.popped(1),  # attributes, such as the _metadata of a model's state_dict
    b"Q": lambda machine: machine.persistent(),
    b"q": lambda machine: machine.remember(machine.number("<B")),
    b"r": lambda machine: machine.remember(machine.number("<I")),
    b"\x94": lambda machine: machine.memoize(),
    b"h": lambda machine: machine.recall(machine.number("<B")),
    b"j": lambda machine: machine.recall(machine.number("<I")),
}
