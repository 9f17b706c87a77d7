"""Reads several optimizers of a file as the branches of a partition, each with its own count of updates."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import numpy as np

from everstep.compat.checkpoints.by_pattern import count_in
from everstep.compat.checkpoints.conversions import count_of_powers, first_few, other_form
from everstep.compat.checkpoints.layouts import record_of
from everstep.compat.files.contents import chunks
from everstep.errors import FileError, StateError


def by_branch(claim, definition, claims_of):
    """Returns the claim of a partition, each branch of which was trained by an optimizer of its own in the file.

    Args:
        claim: the Claim to begin with.
        definition: the partition.
        claims_of: a function that returns [Claim] for the rule of a branch.

    Raises:
        FileError: a branch takes no variable that has such slots, or two optimizers trained one of its variables.
    """
    partition, slots, variables, branches = definition.base, OrderedDict(), OrderedDict(), OrderedDict()
    for branch, rule in partition.children().items():
        taken, owners, claims = OrderedDict(), [], claims_of(rule)
        entry, form = claims[0].entry, other_form(rule, claims[0].entry)
        if form is not None:
            raise StateError("in {}, the velocity of the branch {} is {}multiplied by the rate: give that branch "
                             "rate_in_velocity={}".format(entry.native, branch, "" if form else "not ", form))
        for each in claims:
            shapes = {name: tuple(handle.shape) for name, handle in each.variables.items()}
            mine = OrderedDict((name, handles) for name, handles in each.slots.items()
                               if branch == partition.branch_of(record_of(name, shapes.get(name, (2,)))))
            owners += [each] if mine else []
            twice = sorted(set(taken).intersection(mine))
            if twice:
                raise FileError("{}: several optimizers trained {}: {}. In {} it belongs to one branch, {}".format(
                    claim.path, first_few(twice), " and ".join(owner.describe() for owner in owners),
                    definition._short(), branch))
            taken.update(mine)
            variables.update(each.variables)
        if not taken:
            raise FileError("{}: the branch {} of {} takes no variable with slots of {}; those are {}".format(
                claim.path, branch, definition._short(), claims[0].describe(),
                first_few(name for each in claims for name in each.slots)))
        slots.update((name, OrderedDict(("{}/{}".format(branch, slot), handle) for slot, handle in each.items()))
                     for name, each in taken.items())
        powers = OrderedDict(item for owner in owners for item in owner.powers.items())
        branches[branch] = owners[0]._replace(slots=taken, powers=powers)
    return claim._replace(definition=definition, slots=OrderedDict(sorted(slots.items())), branches=branches,
                          variables=OrderedDict(sorted(variables.items())))


def counts_of_powers(claim):
    """Returns {name of powers in the file: (count, note or None)} of those that may be a claim's."""
    counts = OrderedDict((name, count_of_powers(claim.path, claim.definition, powers))
                         for name, powers in claim.powers.items())
    return OrderedDict((name, count) for name, count in counts.items() if count[0] is not None)


def described(counts):
    """Returns what `counts_of_powers` returned as text."""
    return first_few("{} by {}".format(count, name) for name, (count, _) in counts.items())


def branch_counts(claim, given=None):
    """Returns {branch: (count, note or None)} of the branches whose optimizers keep a count or beta powers.

    Where a file does not say which powers are a branch's, they are those of no other branch; slots that are all 0 are
    of an optimizer that has made no update.

    Args:
        claim: the Claim of a partition.
        given: {branch: count, or the name of an array that holds or implies it}, as far as the user says.

    Raises:
        FileError: more than one way is left.
    """
    unknown = sorted(set(given or ()) - set(claim.branches))
    if unknown:
        raise StateError("updates= has the branch {}; those of {} are {}".format(
            unknown[0], claim.definition._short(), ", ".join(claim.branches)))
    choices = OrderedDict()
    for branch, each in claim.branches.items():
        if branch in (given or ()):
            choices[branch] = {given[branch]: count_in(each, each.definition, given[branch])}
        elif "updates" in each.values:
            choices[branch] = {each.scope: (int(np.asarray(each.values["updates"])), None)}
        else:
            choices[branch] = counts_of_powers(each)
    possible = OrderedDict(choices)
    open_branches = [branch for branch, counts in choices.items() if len(set(counts.values())) > 1]
    for branch in open_branches:
        rests = _is_zero(claim.branches[branch])
        left = OrderedDict((name, count) for name, count in choices[branch].items() if (count[0] == 0) == rests)
        choices[branch] = left or choices[branch]
    for _ in open_branches:  # each settled branch leaves fewer choices to the others
        for branch in open_branches:
            others = {next(iter(counts)) for other, counts in choices.items() if other != branch and len(counts) == 1}
            left = OrderedDict((name, count) for name, count in choices[branch].items() if name not in others)
            choices[branch] = left or choices[branch]
    taken = [next(iter(counts)) for counts in choices.values() if len(counts) == 1]
    left_over = set(name for counts in possible.values() for name in counts).difference(
        name for counts in choices.values() for name in counts)
    for branch in open_branches:
        counts = choices[branch]
        # two branches take the same optimizer, and another one is left over
        if left_over and taken.count(next(iter(counts))) > 1:
            counts = possible[branch]
        if len(set(counts.values())) > 1:
            raise FileError(
                "{} does not say how many updates the branch {} has made: {}. Give updates={{{!r}: ...}}, the number "
                "or one of these names".format(
                    claim.path, branch, described(counts), branch))
    return OrderedDict((branch, next(iter(counts.values()))) for branch, counts in choices.items() if counts)


def _is_zero(claim):
    return not any(np.any(values) for slots in claim.slots.values() for handle in slots.values()
                   for _, values in chunks(handle))
