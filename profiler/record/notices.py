"""What a recording has to say about itself: short sentences in files of the run folder, each once.

How far the hooks of `whyidle run` and `tune` got into a command: empty files that they leave in the run folder.
"""

from __future__ import annotations

from pathlib import Path

from .files import add_lines, plain, read_lines

SAMPLER_NOTICES = "sampler-notices.txt"
TRAINING_NOTICES = "training-notices.txt"
MOST_BYTES = 1 << 20
"""Nothing is added to a file this large."""
LOADED = "bootstrap-loaded"
"""A Python of the command read its environment."""
ARMED = "bootstrap-armed"
"""A Python of the command imported a torch that the hooks take, and waits for a training to begin."""


def why_unseen(folder: Path, within: str = "") -> str | None:
    """Say in a sentence why no process of a command that has ended was seen to train; `None` where the notices of the
    training have said it: a Python or torch that is too old, say.

    Args:
        within: what else may have kept the hooks out, in brackets.
    """
    if not (folder / LOADED).exists():
        return (
            "The hooks were not loaded: the command started no Python that reads its environment "
            f"(python -I, -E and -S do not){within}."
        )
    if (folder / TRAINING_NOTICES).exists():
        return None
    if (folder / ARMED).exists():
        return (
            "whyidle saw no training: no process made an optimizer, ran a backward pass or iterated over a torch "
            "DataLoader."
        )
    return "whyidle saw no torch: no Python that the command started imported it, so there were no steps to record."


class Notices:
    """Appends sentences to a file, one a line. Never raises: a full disk has no room for them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._said: set[str] = set()

    def __call__(self, sentence: str) -> None:
        if sentence in self._said:
            return
        self._said.add(sentence)
        # Another process, a worker before this one say, may have said it.
        add_lines(self._path.parent, self._path.name, " ".join(sentence.split()) + "\n", MOST_BYTES, once=True)


def read_notices(folder: Path) -> list[str]:
    """Read all sentences of a run folder, by file and in the order they were said. Raises as `open_recorded` does."""
    lines = [line for name in (SAMPLER_NOTICES, TRAINING_NOTICES) for line in read_lines(folder / name) if line]
    return list(dict.fromkeys(plain(line.decode(errors="replace")) for line in lines))
