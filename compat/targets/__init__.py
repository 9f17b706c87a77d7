"""One file for each native optimizer API that a definition binds to. `adapter` documents the members of an adapter."""
