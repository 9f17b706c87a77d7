"""Writes the table of docs/stock_slots.md from the stock table.

    PYTHONPATH=.dev python tests/make/slot_table.py    # `--check` only says whether the page is current
"""
import sys

from everstep.compat.stock.table import STOCK
from regions import renew

APIS = "tf_train", "optimizer_v2"  # those with get_slot


def rows():
    """Yields (stock class, its API, definition, slot pairs) of each stock optimizer that has slots."""
    for entry in sorted(STOCK, key=lambda each: (each.definition.__name__.lower(), APIS.index(each.target)
                                                 if each.target in APIS else 9, each.native)):
        if entry.target in APIS and entry.slots:
            pairs = ["`{}`{}".format(slot.native, "" if slot.native == slot.name else " is `{}`".format(slot.name))
                     for slot in entry.slots]
            yield entry.native, entry.home, entry.definition.__name__, ", ".join(pairs)


def page():
    lines = ["| stock optimizer | of | definition | `get_slot` name there, and here if it differs |"]
    lines += ["| --- | --- | --- | --- |"]
    lines += ["| {} |".format(" | ".join(row)) for row in rows()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(renew("stock_slots.md", "slots", "slot_table.py", page()))
