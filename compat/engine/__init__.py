"""One step: from gradients to what is written, the same for every target."""
