"""Memory traffic of each definition, in bytes per parameter: python benchmarks/traffic.py [--check]

Writes the table in docs/memory.md from the definitions themselves; --check only tells if it is current. A fused update
(a kernel, a compiled function) reads the gradient once, and reads and writes the variable and each slot once. Operation
by operation, each one reads its arguments and writes its result. Cached values are not subtracted, so that figure is an
upper bound. Needs only NumPy.
"""
import os
import sys

import numpy as np

import everstep
from everstep.compat.engine.fused import KERNELS
from everstep.compat.engine.step import Step
from everstep.compat.engine.variable_view import VariableView
from everstep.compat.targets import dry_run
from everstep.optimizers.contract.composite import Composite
from everstep.optimizers.contract.kernel_names import kernel_of
from everstep.optimizers.contract.trees import flat

DOC = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs", "memory.md")
START, END = "<!-- traffic: do not edit; python benchmarks/traffic.py -->\n", "<!-- end of traffic -->\n"
FLOAT = 4


def rows():
    for name in everstep.optimizers.__all__:
        definition_class = getattr(everstep.optimizers, name)
        if issubclass(definition_class, Composite):
            continue
        for label, settings in [(name, {})] + ([(name + ", momentum", {"momentum": 0.9})] if name == "SGD" else []):
            definition = definition_class(**settings)
            slots = list(flat(definition, "slot").values())
            whole = [slot for _, slot in slots if slot.shape is None]
            fused = FLOAT * (1 + 2 * (1 + len(whole)))
            declared = kernel_of(definition)
            kernel = "kernel" if declared and KERNELS[declared.name](definition, lambda _: None) else "compiled"
            yield label, FLOAT * len(whole), len(slots) - len(whole), fused, one_by_one(definition), kernel


def one_by_one(definition):
    """Returns the bytes per parameter if every operation goes to memory."""
    variable, grad = np.ones((64, 64), np.float32), np.ones((64, 64), np.float32)
    bound = dry_run._bound(definition, (float,))
    bound.learn(variable, bound.definition)
    bound.adapter.make_state([variable])
    step = Step(bound, [(grad, variable)])
    work = VariableView.of_gradient(step, variable, grad)
    with np.errstate(all="ignore"):  # some rules divide by values that a step would measure first
        program = work.program(step.trace(work))
    wide = {}  # {node: True if it has the variable's size}
    moved = 0
    for place, node in enumerate(program.nodes):
        if node[0] in ("input", "constant", "outside"):
            wide[place] = node[0] == "input"
            continue
        wide[place] = any(wide[arg] for arg in node[1])
        moved += sum(wide[arg] for arg in node[1]) + wide[place] if wide[place] else 0
    return FLOAT * (moved + 2 * len(program.results) + 1)  # each result is written; the variable is read and written


def table():
    lines = [
        "| definition | state, bytes a parameter | slots of other shapes | fused | op by op, at most | fused by |",
        "|---|---|---|---|---|---|",
    ]
    for name, state, others, fused, plain, by in rows():
        lines.append("| {} | {} | {} | {} | {} | {} |".format(name, state, others or "", fused, plain, by))
    return "\n".join(lines) + "\n"


def main():
    with open(DOC, encoding="utf-8") as file:
        text = file.read()
    head, rest = text.split(START)
    new = head + START + table() + END + rest.split(END)[1]
    if "--check" in sys.argv:
        return 0 if new == text else "the table in docs/memory.md is old; run python benchmarks/traffic.py"
    with open(DOC, "w", encoding="utf-8") as file:
        file.write(new)


if __name__ == "__main__":
    sys.exit(main())
