"""Native classes under the names that pickles of classes have, such as everstep.native.torch.torch_optim.Adam.

Programs that take an optimizer as a class, such as skorch and Stable-Baselines3, pickle it, and load it in another
process. compat/targets/native_classes.py makes the classes.
"""
from __future__ import absolute_import, division, print_function

from everstep.compat.targets.native_classes import make_modules

make_modules()
