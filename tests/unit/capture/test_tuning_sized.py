from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

STEPS = """
import sys
from pathlib import Path
from whyidle.capture.tuning.sized import Probing
for tuner, pid in zip(("lives", "ended"), map(int, sys.argv[2:])):
    asked = {"batch_size": 8, "was": 4, "steps": 5, "seconds": 60, "tuner": pid}
    probing = Probing(Path(sys.argv[1]), asked)
    for step in range(4):
        probing.stepped()
        print(tuner, step)
"""


def test_a_probe_goes_on_only_while_its_tuner_lives(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    command = [sys.executable, "-u", "-c", STEPS, str(tmp_path), str(os.getpid()), str(ended.pid)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["lives 0", "lives 1", "lives 2", "lives 3"]
