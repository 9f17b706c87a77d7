"""The formats of files: bytes to contents, and back. One module a format, which knows no optimizer."""
