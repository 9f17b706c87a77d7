"""Wrappers: definitions that change what an inner definition does, and the functions that make them.

The package above finds them in the modules here.

>>> from everstep.optimizers import SGD
>>> from everstep.optimizers.wrappers import accumulate
>>> accumulate(SGD(0.1), steps=4).steps
4
"""
