"""Runs whole matrices of planted faults and sweeps, and prints the tables of docs/measurements, in Markdown."""
