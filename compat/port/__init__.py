"""Foreign optimizers, traced and written down as definitions."""
