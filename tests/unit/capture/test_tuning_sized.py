from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from whyidle.capture.tuning import sized
from whyidle.capture.tuning.sized import Probing


class Ended(BaseException):
    """In place of the end of the process."""


def test_a_probe_goes_on_only_while_its_tuner_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(code: int) -> None:
        raise Ended(code)

    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()
    calls: list[str] = []
    monkeypatch.setattr(sized, "goes_first", lambda: calls.append("goes first"))
    monkeypatch.setattr(sized, "kill_descendants", lambda: calls.append("killed its workers"))
    monkeypatch.setattr(os, "_exit", ends)

    def probing(tuner: int) -> Probing:
        return Probing(tmp_path, {"batch_size": 8, "was": 4, "steps": 5, "seconds": 10**6, "tuner": tuner})

    alive = probing(os.getpid())
    for _ in range(4):
        alive.stepped()
    assert calls == ["goes first"]
    with pytest.raises(Ended):
        probing(ended.pid).stepped()
    assert calls == ["goes first", "goes first", "killed its workers"]
