"""The stock table: what stock optimizers compute and store."""
