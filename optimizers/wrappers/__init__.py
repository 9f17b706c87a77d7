"""Definitions made of definitions."""
