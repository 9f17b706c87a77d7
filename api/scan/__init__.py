"""`everstep scan`: which optimizers a code base has, where they work, and what to write instead. Needs no framework.

`files` finds and decodes the code, `parsing` parses it, `names` follows imports and aliases, `places` says in which
versions a name exists, `calls`, `classes`, `by_hand` and `states` find what is reported, `meaning` asks the stock table
what it computes, `spelling` writes the line to use instead, `edits` puts it into files, `report`
and `page` print.
"""
from __future__ import absolute_import, division, print_function
