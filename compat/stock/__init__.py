"""What stock optimizers compute and store, as one table."""
