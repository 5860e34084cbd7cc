"""Checks as GitHub's workflow commands, which it shows beside a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...analyse.diff.limits import LimitCheck
from ..documents import check as check_text


def lines(run: str, found: Sequence[LimitCheck]) -> Iterator[str]:
    """An error for each check that fails, a warning for what was not measured and is let pass, a notice for a note."""
    for each in found:
        word = check_text.verdict(each)
        if word == "PASS" and not (each.note and each.name == "max-regression"):
            continue
        level = {"PASS": "notice", "SKIP": "warning"}.get(word, "error")
        said = f"{run}: {each.what}: {check_text.measured(each)}, {check_text.wanted(each)}"
        message = f"{said} ({each.note})" if each.note else said
        yield f"::{level} title={_property(f'whyidle check {each.name}')}::{_data(message)}"


def _data(text: str) -> str:
    """As GitHub's own toolkit escapes it: a line of a message must not become a command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
