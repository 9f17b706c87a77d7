"""One native optimizer API a file, alike member for member."""
