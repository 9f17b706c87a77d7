"""Parses Python of every version with tree-sitter, which reads Python 2 too and goes on after errors."""
from __future__ import absolute_import, division, print_function

import ast

from everstep.errors import UnsupportedError

try:
    import tree_sitter
    import tree_sitter_python
except ImportError:
    tree_sitter = None  # type: ignore[assignment]

_DEEPEST = 5000  # bytes of a literal that is evaluated


def check_parser():
    """Raises UnsupportedError if the parser is not installed."""
    if tree_sitter is None:
        raise UnsupportedError(
            "everstep scan reads code with tree-sitter, which is not installed here. Run: python -m pip install "
            "'everstep[scan]' with Python 3.8 or newer. It needs no framework, so that any environment will do"
        )


def _parser():
    try:
        return tree_sitter.Parser(tree_sitter.Language(tree_sitter_python.language()))
    except TypeError:  # tree-sitter 0.21, the last one for Python 3.8
        parser = tree_sitter.Parser()
        parser.set_language(tree_sitter.Language(tree_sitter_python.language(), "python"))
        return parser


class Chunk(object):
    """A parsed piece of code: a Python file, or a cell of a notebook.

    Attributes:
        root: the node of the whole. Nodes know their own text.
        text: the code.
    """

    def __init__(self, text, first_line=1):
        self.text, self._content, self._first_line = text, text.encode("utf-8", "replace"), first_line
        self._characters = []  # type: list[int]
        self._tree = _parser().parse(self._content)
        self.root = self._tree.root_node

    def span(self, node):
        """Returns (first, end) of a node: how many characters of the text are before it, and before its end."""
        if len(self.text) == len(self._content):
            return node.start_byte, node.end_byte
        if not self._characters:
            for number, character in enumerate(self.text):
                self._characters += [number] * len(character.encode("utf-8", "replace"))
            self._characters.append(len(self.text))
        return self._characters[node.start_byte], self._characters[node.end_byte]

    def place(self, node):
        """Returns (line, column) of a node, in characters from 1. tree-sitter counts bytes."""
        row, column = node.start_point[0], node.start_point[1]
        before = self._content[node.start_byte - column:node.start_byte]
        return self._first_line + row, len(before.decode("utf-8", "replace")) + 1

    def errors(self):
        """Returns the outermost nodes that could not be parsed, and those that are missing."""
        if not self.root.has_error:
            return []
        errors, waiting = [], [self.root]
        while waiting:
            node = waiting.pop()
            if node.type == "ERROR" or node.is_missing:
                errors.append(node)
            elif node.has_error:
                waiting += node.children
        return sorted(errors, key=lambda node: node.start_byte)


def walk(node, into=lambda node: True):
    """Yields a node and all below it, in order. Nodes below one that `into` is False for are left out."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        if into(node):
            waiting += reversed(node.named_children)


def text_of(node):
    """Returns the source text of a node."""
    return node.text.decode("utf-8", "replace")


def one_line(node):
    """Returns the source text of a node in one line."""
    return " ".join(text_of(node).split())


def literal(node):
    """Returns (True, value) of a literal: a number, text, None, a bool, tuples and lists of them; else (False, None).

    An expression of numbers, such as 1e-4 * 10 or 10 ** -3, counts too.
    """
    kinds = ("call", "attribute", "identifier", "lambda", "conditional_expression", "comparison_operator")
    if node.end_byte - node.start_byte > _DEEPEST or any(each.type in kinds for each in walk(node)):
        return False, None
    source = text_of(node).strip()
    try:
        return True, ast.literal_eval(source.rstrip("lL") if node.type == "integer" else source)
    except (ValueError, SyntaxError, TypeError, MemoryError):
        return _number(node)


_OPERATIONS = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b,
    "**": lambda a, b: a ** b,
}


def _number(node):
    """Returns (True, value) of arithmetic of decimal numbers; of whole ones `/` differs between Python 2 and 3."""
    node = bare(node)
    if node.type != "binary_operator":
        return False, None
    sides = [literal(bare(node.child_by_field_name(side))) for side in ("left", "right")]
    operation = _OPERATIONS.get(text_of(node.child_by_field_name("operator")))
    if operation is None or not all(known and type(value) in (int, float) for known, value in sides):
        return False, None
    (_, left), (_, right) = sides
    whole = type(left) is int and type(right) is int
    if whole and operation in (_OPERATIONS["/"], _OPERATIONS["**"]) and (operation is _OPERATIONS["/"] or right > 64):
        return False, None
    try:
        return True, operation(left, right)
    except (ArithmeticError, ValueError):
        return False, None


def bare(node):
    """Returns what is inside parentheses."""
    while node.type == "parenthesized_expression" and len(node.named_children) == 1:
        node = node.named_children[0]
    return node


class Arguments(object):
    """The arguments of a call.

    Attributes:
        positional: the nodes of those without a name.
        named: `{name: node}`.
        starred: whether there are `*args` or `**kwargs`, so that others can follow.
    """

    def __init__(self, call):
        self.positional, self.named, self.starred = [], {}, False
        listed = call.child_by_field_name("arguments")
        if listed is None or listed.type != "argument_list":  # a generator expression
            self.positional = [listed] if listed is not None else []
            return
        for node in listed.named_children:
            if node.type == "keyword_argument":
                self.named[text_of(node.child_by_field_name("name"))] = node.child_by_field_name("value")
            elif node.type in ("list_splat", "dictionary_splat"):
                self.starred = True
            elif node.type != "comment":
                self.positional.append(node)

    def get(self, name, place=None):
        """Returns the node of an argument by its name or place; None if it is not given."""
        if name in self.named:
            return self.named[name]
        return self.positional[place] if place is not None and place < len(self.positional) else None
