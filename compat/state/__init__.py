"""The former name of `everstep.compat.checkpoints`, which pickles of States have in them."""
