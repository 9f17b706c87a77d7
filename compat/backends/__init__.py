"""Backends: the verbs that compute with arrays and variables, one file for each framework."""
