"""How the live view is to be drawn, as far as the run does not say."""

from __future__ import annotations

from dataclasses import dataclass

WORKER_ORDERS = ("number", "busy", "ms a batch", "quiet")
RANK_ORDERS = ("rank", "samples/s", "input")
LISTS = ("ranks", "devices", "workers")
"""What the arrows can move in."""


@dataclass(frozen=True)
class Options:
    ascii_only: bool = False
    paused: bool = False
    keys: bool = False
    """Whether keys are read: then the last row names them."""
    help: bool = False
    focus: str = ""
    """The list that the arrows move in; empty: none."""
    chosen: int = 0
    """Which of its entries, by their order on the screen."""
    order: int = 0
    """Sort order of the list in focus (or of the workers), a number into its orders."""
    reverse: bool = False
    note: str = ""
    """Said beside the state: that the run ended and the next is waited for."""

    def sign(self, drawn: str, ascii_sign: str) -> str:
        return ascii_sign if self.ascii_only else drawn

    def order_of(self, names: tuple[str, ...]) -> int:
        return self.order % len(names)
