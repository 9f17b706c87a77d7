"""Trains any bound or stock optimizer of any API in a uniform way, on gradients that are passed in."""
