"""The state of an optimizer, independent of any framework: captured, restored, and read from what files hold."""
