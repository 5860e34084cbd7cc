"""How far the hooks of `whyidle run` and `tune` got into a command: empty files that they leave in the run folder."""

from __future__ import annotations

from pathlib import Path

from .notices import TRAINING_NOTICES

LOADED = "bootstrap-loaded"
"""A Python of the command read its environment."""
ARMED = "bootstrap-armed"
"""A Python of the command imported a torch that the hooks take, and waits for a training to begin."""


def why_unseen(folder: Path, within: str = "") -> str | None:
    """Why no process of a command that has ended was seen to train, in a sentence; `None` where the notices of the
    training have said it: a Python or torch that is too old, say.

    Args:
        within: what else may have kept the hooks out, in brackets.
    """
    if not (folder / LOADED).exists():
        return (
            "The hooks never loaded: the command started no Python that reads its environment "
            f"(python -I, -E and -S do not){within}."
        )
    if (folder / TRAINING_NOTICES).exists():
        return None
    if (folder / ARMED).exists():
        return (
            "No training was seen: no process made an optimizer, ran a backward pass or iterated over a torch "
            "DataLoader."
        )
    return "No torch was seen: no Python that the command started imported it, so there were no steps to record."
