"""The engine: one step, from gradients to writes, the same for every target."""
