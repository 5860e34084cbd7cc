"""What a difference says of the code and the driver that the two sides ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.pairs import SOME, compare, noisy
from whyidle.analyse.diff import because
from whyidle.analyse.diff.difference import Difference
from whyidle.record.run import SampledDevice, note_devices, open_run, sampled_devices, update_run
from whyidle.report.contract import diff as diff_json
from whyidle.report.documents.diff import headline
from whyidle.scenarios.planted import MS, Step, train

ONE, OTHER = "1" * 40, "2" * 40


def code(revision: str, changed: bool | None = False) -> dict[str, Any]:
    return {"revision": revision, "branch": "main", "changed": changed}


def differ(tmp_path: Path, a: object, b: object, **of_b: Any) -> Difference:
    """B computes for longer."""
    noisy(tmp_path / "a", SOME(1), workers=1, code=a)
    noisy(tmp_path / "b", SOME(2), **{"workers": 1, "compute_ms": 40, "code": b} | of_b)
    return compare(tmp_path / "a", tmp_path / "b")


def environment(found: Difference) -> dict[str, tuple[object, object]]:
    return {each.name: (each.a, each.b) for each in found.environment if each.told}


def looks(found: Difference) -> str:
    return " / ".join(found.because.look_at)


def test_another_revision_may_explain_what_nothing_else_does(tmp_path: Path) -> None:
    found = differ(tmp_path, code(ONE), code(OTHER))
    assert environment(found)["code"] == ("1111111111", "2222222222")
    assert found.because.kind == because.CODE
    assert [each.name for each in found.because.by] == ["code"]
    assert "the code of the model: `git diff 1111111111 2222222222`" in found.because.look_at
    said = headline(found)
    assert said.endswith("which the changed code 1111111111 → 2222222222 may explain; no recorded setting does.")
    assert diff_json.difference(found).because.kind == "code"


def test_a_setting_that_can_explain_it_is_named_and_the_code_is_a_doubt(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), workers=1, fetch_ms=15, code=code(ONE))
    b = noisy(tmp_path / "b", SOME(2), workers=4, fetch_ms=2, code=code(OTHER))
    found = compare(a, b)
    assert found.because.kind == because.SETTING
    assert [each.name for each in found.because.by] == ["num_workers"]
    assert headline(found).endswith("because num_workers 1 → 4.")
    (doubt,) = [note for note in found.notes if "code" in note]
    assert doubt.startswith("The code differs too (1111111111 → 2222222222)")


def test_another_version_of_torch_comes_before_the_code(tmp_path: Path) -> None:
    noisy(tmp_path / "a", SOME(1), code=code(ONE), torch="2.6.0")
    noisy(tmp_path / "b", SOME(2), compute_ms=40, code=code(OTHER), torch="2.7.0")
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.because.kind == because.ENVIRONMENT
    assert [each.name for each in found.because.by] == ["torch"]
    assert any(note.startswith("The code differs too") for note in found.notes)


def test_words_of_the_command_are_named_beside_the_code(tmp_path: Path) -> None:
    found = differ(tmp_path, code(ONE), code(OTHER), command=["python", "train.py", "--width", "64"])
    assert found.because.kind == because.COMMAND
    assert [each.name for each in found.because.by] == ["word --width", "code"]
    assert "the command or the code may explain (word --width not given → 64 and code 1" in headline(found)
    same = differ(tmp_path / "same", code(ONE), code(ONE), command=["python", "train.py", "--width", "64"])
    assert "which the command may explain (word --width" in headline(same)


def test_changes_on_one_side_are_a_change_of_the_code(tmp_path: Path) -> None:
    found = differ(tmp_path, code(ONE), code(ONE, True))
    assert environment(found)["code"] == ("1111111111", "1111111111 + changes")
    assert found.because.kind == because.CODE
    assert "what was changed in 1111111111 is not recorded" in looks(found)
    more = differ(tmp_path / "more", code(ONE), code(OTHER, True))
    assert "`git diff 1111111111 2222222222`, and changes that are not recorded" in looks(more)


@pytest.mark.parametrize(
    ("a", "b"), [(True, True), (None, None), (None, False), (True, None)], ids=lambda changed: str(changed)
)
def test_one_revision_with_changes_is_neither_called_the_same_code_nor_another(
    tmp_path: Path, a: bool | None, b: bool | None
) -> None:
    found = differ(tmp_path, code(ONE, a), code(ONE, b))
    assert "code" in environment(found)
    assert found.because.kind == because.UNEXPLAINED
    assert "both sides ran revision 1111111111, and what was changed in it is not recorded" in looks(found)
    (note,) = [note for note in found.notes if "their code may differ" in note]
    assert note.startswith("Both sides ran revision 1111111111 of the code")
    assert [each.name for each in diff_json.difference(found).environment] == ["code"]


def test_one_revision_without_changes_explains_nothing_and_need_not_be_looked_at(tmp_path: Path) -> None:
    found = differ(tmp_path, code(ONE), code(ONE))
    assert environment(found) == {}
    assert found.because.kind == because.UNEXPLAINED
    assert "code" not in looks(found)
    assert not any("code" in note for note in found.notes)


@pytest.mark.parametrize("told", [None, "1" * 40, {"revision": "; rm -rf /"}, {"revision": None}, {}])
def test_code_that_one_side_does_not_tell_is_no_change(tmp_path: Path, told: object) -> None:
    found = differ(tmp_path, told, code(ONE))
    assert environment(found)["code"] == (None, "1111111111")
    assert found.because.kind == because.UNEXPLAINED
    assert "the code of the model, which one side did not record" in looks(found)
    assert "which is not recorded" in looks(differ(tmp_path / "neither", told, told))


def test_repeats_of_different_code_explain_nothing(tmp_path: Path) -> None:
    runs = [noisy(tmp_path / str(n), SOME(n), code=code(of)) for n, of in enumerate((ONE, OTHER))]
    found = compare(runs, noisy(tmp_path / "b", SOME(5), compute_ms=60, code=code(ONE)))
    assert environment(found)["code"] == ("varies", "1111111111")
    assert found.because.kind == because.UNEXPLAINED
    assert any(note.startswith("Runs of one side differ in code") for note in found.notes)


def test_another_driver_may_explain_what_the_device_takes(tmp_path: Path) -> None:
    for number, name in enumerate("ab"):
        folder = tmp_path / name
        train(folder, [[Step(fetch_ns=MS, compute_ns=(20 + 20 * number) * MS)] * 60])
        update_run(folder, {"device": {"kind": "cuda", "title": "NVIDIA H200"}, "code": code(ONE)})
        note_devices(folder, [SampledDevice(0, "NVIDIA H200")], f"5{number}0.1")
        assert sampled_devices(folder) == (SampledDevice(0, "NVIDIA H200"),)
    found = compare(tmp_path / "a", tmp_path / "b")
    assert environment(found) == {"driver": ("500.1", "510.1")}
    assert (found.because.kind, found.because.part) == (because.ENVIRONMENT, "compute")
    assert [each.name for each in found.because.by] == ["driver"]


def test_a_training_on_the_processor_has_no_driver(tmp_path: Path) -> None:
    folder = noisy(tmp_path / "a", SOME(1), device={"kind": "cpu"})
    note_devices(folder, [], "500.1")
    assert open_run(folder).info["device"] == {"kind": "cpu"}
