"""`pytest tests/gpu`: what is true by construction is a test; each is a row here."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from ..checks import REPORTS, Seen, Stage
from ..rig import ROOT, Rig

stage = Stage("tests", "pytest tests/gpu -m gpu", 300)


@stage.check("it passes")
def tests_on_a_GPU(rig: Rig) -> Iterator[Seen]:  # noqa: N802
    reports = rig.place("reports")
    rig.environment[REPORTS] = str(reports)
    late = ""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", str(ROOT / "tests" / "gpu")]
    try:
        done = rig.command(command, stage.limit_s - 30)
        ended = f"pytest ended with exit code {done.code}: {done.last}"
    except TimeoutError as error:
        late = ended = str(error)
    rows = [json.loads(line) for line in reports.read_text().splitlines()] if reports.exists() else []
    for row in rows:
        yield Seen(row["right"], row["seen"], check=row["test"])
    if not rows or late:
        yield Seen(False, ended)
