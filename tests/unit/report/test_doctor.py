"""The checks of a machine, as people and programs read them."""

from __future__ import annotations

from support.rendered import rendered
from whyidle.record.check import Check
from whyidle.report.documents.checks import doctor_document

CHECKS = [
    Check("Accelerator", "NVIDIA driver", "ok", "Driver 550, it shows 1 GPU.", values={"gpus": 1}),
    Check("Accelerator", "GPU 0: SM activity", "missing", "Refused.", "How busy it is.", "Run as root."),
    Check("Accelerator", "GPU 0: link", "not applicable", "Undivided.", "not shown", "nor this"),
    Check("CPU", "Steal", "limited", "30.0 % over the last 2.0 s.", "Times vary.", values={"steal_pct": None}),
]


def printed(checks: list[Check], width: int = 80, encoding: str = "utf-8") -> str:
    return rendered(doctor_document(checks), width, encoding)


def test_only_what_is_not_well_costs_further_lines() -> None:
    lines = [line.rstrip() for line in printed(CHECKS).splitlines()]
    assert lines[0] == "What can be measured here: ✓ 1 ok, ! 1 limited, ✗ 1 missing, - 1 not applicable"
    # Of the last no way out is known, so none is told.
    told = ["", "Accelerator", "✓ NVIDIA", "✗ GPU", "lost How", "fix Run", "- GPU", ""]
    told += ["CPU", "! Steal", "lost Times"]
    assert [" ".join(line.split()[:2]) for line in lines[1:]] == told


def test_it_fits_eighty_columns_and_plain_letters() -> None:
    long = [Check("A group", "A middling name", "missing", "word " * 60, "loss " * 40, "fix/" * 60)]
    text = printed(CHECKS + long, 80, "ascii")
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "?" not in text
    assert text.startswith("What can be measured here: + 1 ok, ! 1 limited, x 2 missing")


def test_gpus_of_which_the_same_is_said_share_a_line() -> None:
    checks = [Check("A", f"GPU {n}: PCIe link", "ok", "Wide." if n != 2 else "Narrow.") for n in range(4)]
    text = printed(checks)
    assert "✓ GPU 0,1,3: PCIe link" in text
    assert "✓ GPU 2: PCIe link" in text
    assert text.startswith("What can be measured here: ✓ 4 ok")


def test_nothing_found_acts_on_the_terminal_or_is_taken_for_markup() -> None:
    text = printed([Check("G", "N\x1b[31m", "limited", "a [bold]b[/bold]\x07", "c\x1b]0;x\x07", "[link=http://x]d")])
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "a [bold]b[/bold]?" in text
    assert "[link=http://x]d" in text
