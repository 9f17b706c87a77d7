"""All that knows a framework or a version."""
