"""What lies in a folder is found, whichever kind it is, and is made into every format or refused in a sentence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from golden.recordings import RECORDINGS
from whyidle.commands.main import main
from whyidle.commands.report import FORMATS
from whyidle.report.plot import PICTURES
from whyidle.results.comparisons import ComparisonResult
from whyidle.results.opening import kinds, open_result
from whyidle.results.recordings import AttachedResult, RunResult
from whyidle.results.result import Result
from whyidle.results.tunings import TuningResult

EXAMPLES: dict[type[Result], tuple[str, str]] = {
    RunResult: ("with-stacks", "run"),
    AttachedResult: ("attached-syncs", "run"),
    TuningResult: ("tuned-by-a-search", "tuned"),
    ComparisonResult: ("compare-sizes", "table"),
}
"""Of each kind a recording, and where in it the result lies."""
NO_STEPS = ("trace", "csv", "parquet")
LACKS = {
    RunResult: (),
    AttachedResult: NO_STEPS,
    TuningResult: NO_STEPS,
    ComparisonResult: ("trace",),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[type[Result], Path]:
    folders = {}
    for kind, (name, within) in EXAMPLES.items():
        at = tmp_path_factory.mktemp(name)
        RECORDINGS[name].build(at)
        folders[kind] = at / within
    return folders


def test_there_is_an_example_of_every_kind() -> None:
    assert EXAMPLES.keys() == LACKS.keys() == set(kinds())


@pytest.mark.parametrize("kind", list(kinds()))
def test_a_folder_holds_the_kind_that_was_put_there_and_draws_it_or_says_why_not(
    kind: type[Result], made: dict[type[Result], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert type(open_result([made[kind]])) is kind
    for picture in PICTURES:
        if picture not in kind.pictures:
            assert main(["report", str(made[kind]), picture.option, str(tmp_path / "it.svg")]) == 2
            told = capsys.readouterr()
            assert told.out == ""
            assert told.err.startswith(f"whyidle: {picture.option} draws {picture.shows}; {made[kind]} ")


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("kind", list(kinds()))
def test_every_kind_has_a_format_or_says_that_it_has_not(
    kind: type[Result], format_: str, made: dict[type[Result], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / f"it.{format_}"
    code = main(["report", str(made[kind]), "--format", format_, "-o", str(target)])
    told = capsys.readouterr()
    if format_ in LACKS[kind]:
        assert code == 2
        assert told.err.startswith(f"whyidle: {made[kind]} ")
        assert told.err.count("\n") == 1
        has = [each for each in FORMATS if each not in LACKS[kind]]
        assert [each for each in has if "has no" in told.err and each not in told.err] == []
        assert not target.exists()
    else:
        assert code == 0, told.err
        assert target.stat().st_size > 0


def test_the_one_run_in_a_folder_is_meant_by_it_and_a_run_comes_before_another_thing_in_its_folder(
    made: dict[type[Result], Path], tmp_path: Path
) -> None:
    shutil.copytree(made[AttachedResult], tmp_path / "around" / "run")
    found = open_result([tmp_path / "around"])
    assert type(found) is AttachedResult
    assert found.folder == tmp_path / "around" / "run"
    both = shutil.copytree(made[RunResult], tmp_path / "both")
    shutil.copy(made[ComparisonResult] / "comparison.json", both)
    assert type(open_result([both])) is RunResult
