"""One file for each native optimizer API that a definition binds to. `base` documents the members of a target."""
