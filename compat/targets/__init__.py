"""The native optimizer APIs that a definition binds to, one a file. `base` lists the members that each has."""
