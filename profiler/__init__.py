"""Whyidle: says what a PyTorch training waits for, with evidence.

Importing this package costs no torch; the layers below import what they need.
"""

from .api import MadeBatch, log_to, phase, step, watch

__all__ = ["MadeBatch", "log_to", "phase", "step", "watch"]
__version__ = "0.1.0"
