"""A terminal that a program and whyidle share, and the live view on it."""
