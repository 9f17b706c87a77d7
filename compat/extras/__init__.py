"""What is built on all rooms below and needed by none of them: averages, training logs, the rate, warm starts."""
