from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STEPS = """
import sys
from pathlib import Path
from stallscope.capture.tuning.sized import Probing
asked = {"batch_size": 8, "was": 4, "steps": 5, "seconds": 60, "tuner": int(sys.argv[2])}
probing = Probing(Path(sys.argv[1]), asked)
for step in range(4):
    probing.stepped()
    print(step)
"""


@pytest.mark.parametrize("lives", [True, False])
def test_a_probe_goes_on_only_while_its_tuner_lives(tmp_path: Path, lives: bool) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    tuner = os.getpid() if lives else ended.pid
    done = subprocess.run(
        [sys.executable, "-u", "-c", STEPS, str(tmp_path), str(tuner)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == (["0", "1", "2", "3"] if lives else [])
