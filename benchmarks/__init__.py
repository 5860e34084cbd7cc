"""What claims in docs/measurements are measured with: `python -m benchmarks.NAME` in a checkout."""
