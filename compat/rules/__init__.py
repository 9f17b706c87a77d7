"""What rules do, as values of no framework: operations, expressions, programs, and what computes them."""
