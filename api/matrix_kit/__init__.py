"""The test matrix, ours and other people's: the table of cells, the files for tox, and the runner.

`everstep matrix` (commands.py) uses the other modules by their full names. The tools in matrix/ take them as they
stand in the checkout, on a machine without everstep and NumPy: matrix/cells.py puts this folder on sys.path. So the
others import the standard library only. One alone imports another: tox_runner has environments by either name.
"""
from __future__ import absolute_import, division, print_function
