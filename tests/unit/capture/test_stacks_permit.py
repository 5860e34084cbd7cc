"""Who may look into a training where processes may look into their children alone: a stand-in for the kernel's call."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from whyidle.capture.stacks import permit as module
from whyidle.capture.stacks.permit import permit, tracer


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """What the kernel was asked for, by this process."""
    calls: list[tuple[int, ...]] = []

    class Library:
        @staticmethod
        def prctl(what: int, *given: object) -> int:
            calls.append((what, *(number.value for number in given)))  # type: ignore[attr-defined]
            return 0

    monkeypatch.setattr(module.ctypes, "CDLL", lambda _name: Library)
    monkeypatch.setattr(module, "_permitted", False)
    monkeypatch.setattr(module.os, "register_at_fork", lambda after_in_child: calls.append((after_in_child,)))
    return calls


@pytest.fixture
def scope(tmp_path: Path) -> Path:
    path = tmp_path / "ptrace_scope"
    path.write_text("1\n")
    return path


def test_the_process_that_started_both_is_let_in_and_into_every_fork(asked: list[tuple[int, ...]], scope: Path) -> None:
    permit(tracer(), scope)
    (in_fork,), now = asked
    assert now == (0x59616D61, os.getpid(), 0, 0, 0)
    in_fork()  # type: ignore[operator]
    assert asked[-1] == now
    # It is asked for once.
    permit(tracer(), scope)
    assert len(asked) == 3


@pytest.mark.parametrize("rule", ["0\n", "2\n", "3\n", "", None])
def test_where_the_rule_is_another_one_the_kernel_is_not_asked(
    asked: list[tuple[int, ...]], scope: Path, rule: str | None
) -> None:
    if rule is None:
        scope.unlink()
    else:
        scope.write_text(rule)
    permit(tracer(), scope)
    assert asked == []


@pytest.mark.parametrize("told", [f"{os.getpid()} pid:[1]", None, "nonsense"], ids=["elsewhere", "unseen", "nonsense"])
def test_a_number_of_another_namespace_means_another_process(
    asked: list[tuple[int, ...]], scope: Path, told: str | None
) -> None:
    permit(told, scope)
    assert asked == []
