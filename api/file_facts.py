"""`everstep inspect`: what optimizer state a file holds, which others it may have, and why it cannot be read if so."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.compat.checkpoints import identify, reading
from everstep.compat.checkpoints.claims import Request
from everstep.compat.files import formats
from everstep.compat.files.contents import as_file_errors
from everstep.compat.files.open_file import as_path
from everstep.errors import EverstepError
from everstep.optimizers.contract import REQUIRED


def inspect(
    path, definition=None, optimizer=None, updates=None, learning_rate=None, variables=None, slots=None, scope=None,
    max_bytes=None,
):
    """Returns the contents of a file as a dictionary of plain values; `everstep inspect` prints them.

    Keys: path, format, writer, api, optimizer, definition (None if the file does not say), updates, steps, pending,
    scalars, slots ([variable, slot, shape, dtype]), variables, rivals (other optimizers that the file may be of),
    missing (why no state can be read) and notes (what the file lacks that a state can do without). If the file does not
    name its optimizer, but a stock optimizer has such slots, they are listed as that optimizer's.
    """
    contents = formats.read(path, max_bytes)
    facts = dict(path=as_path(path), format=contents.format, writer=contents.writer, api=None, optimizer=None,
                 rivals=[], missing=list(contents.missing), notes=[])  # type: dict
    request, state = Request(definition, optimizer, updates, learning_rate, variables, slots, scope), None
    with as_file_errors(path):
        claims = [] if contents.state is not None else reading.found(contents)
        claim = claims[0] if claims else None
        candidates = sorted({name for each in claims for name in identify.candidates(each)})
        facts["optimizer"] = " or ".join(candidates) or None
        if claim is not None and not facts["missing"]:
            facts["missing"] = list(claim.missing)
    try:
        with as_file_errors(path):
            state, claim = reading.to_state(contents, request)
    except EverstepError as error:
        facts["missing"] = facts["missing"] or [str(error)]
        if definition is None and optimizer is None and claim.config is None:
            state, claim = _guess_state(contents, claims, request) or (None, claim)
    if claim is not None:
        facts.update(api=claim.target, notes=list(claim.notes), rivals=_rivals(contents, claim, request))
    if state is not None:
        slots = [[name, slot] + _shape_and_dtype(handle)
                 for name, variable_slots in state.slots.items() for slot, handle in variable_slots.items()]
        facts.update(
            definition=None if facts["missing"] else state.definition, slots=slots, variables=list(state.slots),
            updates=state.updates if claim is None or claim.counted else None,
            steps=state.steps, pending=state.pending, scalars=dict(state.scalars),
        )
        facts["optimizer"] = facts["optimizer"] or (state.definition or {}).get("definition")
    else:
        named = [("{}/{}".format(name, slot), handle)
                 for name, variable_slots in claim.slots.items() for slot, handle in variable_slots.items()]
        entries = list(claim.entries) or list(contents.arrays.items()) or named
        slots = [[None, name or str(place)] + _shape_and_dtype(handle) for place, (name, handle) in enumerate(entries)]
        facts.update(dict.fromkeys(("definition", "updates", "steps", "pending")), scalars={}, slots=slots)
        facts["variables"] = [] if contents.arrays else list(claim.variables)
    return facts


def _shape_and_dtype(handle):
    return [list(handle.shape), str(np.dtype(handle.dtype))]


def _rivals(contents, claim, request):
    """Returns phrases on the optimizers that the file may be of besides that of a claim."""
    try:
        with as_file_errors(contents.path):
            request = request._replace(definition=claim.definition, optimizer=None)
            others = reading.fits(contents, request) if claim.definition is not None else []
    except EverstepError:
        return []
    return [other.describe() for other in others if other.explained() != claim.explained()]


def _guess_state(contents, claims, request):
    """Returns (state, claim) as of the first stock optimizer that can be read, with its default settings; or None."""
    for claim in claims:
        for candidate in identify.candidates(claim):
            for momentum in (False, True):
                try:
                    with as_file_errors(contents.path):
                        guess = _guessed_definition(claim, candidate, momentum)
                        return reading.to_state(contents, request._replace(definition=guess))
                except EverstepError:
                    continue
    return None


def _guessed_definition(claim, name, momentum):
    """Returns the definition of a stock optimizer of the file's API, with defaults for unknown settings."""
    entry = next(entry for entry in identify.entries_of_file(claim) if entry.native == name)
    required = [argument for argument, value in entry.defaults.items()
                if value is REQUIRED and argument not in claim.values]
    arguments = {argument: entry.definition.declarations[entry.names[argument]].default for argument in required}
    arguments.update({"momentum": 0.9} if momentum and "momentum" in entry.names else {})
    return identify.definition_of_entry(claim, entry, arguments)
