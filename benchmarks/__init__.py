"""What claims in docs/measurements are measured with: `python -m benchmarks.NAME` in a checkout."""

import os
import platform


def machine() -> str:
    """What figures were measured on."""
    return f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
