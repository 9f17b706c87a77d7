"""The state of an optimizer, independent of any framework, and the files that hold it."""
