"""What differs between recorded runs, why, and whether a run keeps what was asked of it."""
