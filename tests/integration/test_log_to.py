"""`whyidle.log_to` and `run --prometheus` with the command that computes their figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import support.runs as runs
import support.warm as warm
from whyidle.record.notices import read_notices

PROGRAM = Path(__file__).with_name("programs") / "logs_to.py"


def test_a_training_gets_the_figures_that_the_command_computes(tmp_path: Path) -> None:
    textfile, program = tmp_path / "whyidle.prom", tmp_path / "train.py"
    _, _, rest = PROGRAM.read_text().partition("from __future__ import annotations\n")
    program.write_text(f"from __future__ import annotations\n{runs.WITHOUT_COMPILER}{rest}")
    options = ("--no-live", "--prometheus", str(textfile))
    done = warm.run(tmp_path / "run", sys.executable, program, tmp_path / "said", options=options)

    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    said = json.loads((tmp_path / "said").read_text())
    (_, first), (figures, step), *_ = said["calls"]
    # The second may come at the last step of all.
    assert 0 < first < step <= said["steps"]
    told = runs.report(tmp_path / "run")
    assert 0 < figures["whyidle/input_pct"] < 100
    assert 0 < told["breakdown"]["input_pct"] < 100
    assert figures["whyidle/samples_per_s"] > 0
    text = textfile.read_text()
    assert 'of="recent"' in text
    assert "whyidle_time_share_ratio{" in text
    # The logger that failed was called once, which only a notice tells.
    assert said["failures"] == [first]
    assert "Traceback" not in done.stderr
    (note,) = (note for note in read_notices(tmp_path / "run") if "log_to" in note)
    assert "ConnectionError: the server is away" in note
