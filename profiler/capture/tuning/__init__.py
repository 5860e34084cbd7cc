"""A training that a tuner tells with which loader settings to go on: the part that runs in its process."""
