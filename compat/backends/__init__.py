"""Arrays: every verb with which the engine moves data, then one backend a file."""
