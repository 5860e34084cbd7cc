"""A run for other programs: a trace for timeline viewers, tables for everything else."""
