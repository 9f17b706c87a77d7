"""What a scan returns."""
from __future__ import absolute_import, division, print_function

from collections import namedtuple

_Fields = namedtuple("_Fields", "file line column kind what definition definitions works_on changes write imports "
                     "notes broken")


class Finding(_Fields):
    """A place in the code.

    Attributes:
        file, line, column: where; columns are characters from 1.
        kind: construction, name, string, schedule, wrapper, class, private, call, by hand
            or state.
        what: the name of it.
        definition: text of the definition that computes the same; None if there is none, or several.
        definitions: [[versions, definition]] where it depends on the version.
        works_on: texts of ranges of versions; [] if there is none, or if that is not known.
        changes: texts of what differs in silence on newer APIs.
        write: the line or command to write instead; None if there is none.
        imports: the imports that it needs.
        notes: other texts.
        broken: whether the newest TensorFlow or Keras that it could be of does not take it as it stands.
    """


# What could not be followed. why: a text.
NotUnderstood = namedtuple("NotUnderstood", "file line column why")
# A new line in the place of a node. finding: the Finding, which has the line; chunk: the Chunk; why: why it cannot be
# written, None if it can.
Edit = namedtuple("Edit", "finding chunk node why")
# files: how many were read. findings: [Finding]. not_understood: [NotUnderstood]. edits: [Edit]. modules: [Module].
Report = namedtuple("Report", "files findings not_understood edits modules")
