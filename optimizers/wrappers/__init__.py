"""Wrappers: definitions that change what an inner definition does."""
