"""Planted sweeps over the batch size: it is known by design what a larger batch does, and to which term."""
