"""Everything is in setup.cfg; this is for tools older than PEP 517 (pip < 19) and old editable installs."""
from setuptools import setup

setup()
