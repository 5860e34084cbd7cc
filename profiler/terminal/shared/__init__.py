"""A terminal shared by a program and a few rows of ours below it: `divisible()` and `SharedTerminal`.

The program gets a terminal of its own, by our rows shorter. A relay (`relay.py`) passes on what it writes and what is
typed, and draws our rows in between, where that spoils nothing (`program_output.py`).
"""

from .own_terminal import divisible
from .relay import SharedTerminal

__all__ = ["SharedTerminal", "divisible"]
