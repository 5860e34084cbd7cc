"""Replays are pure functions of what they are asked, and most of what a report takes: here each is answered once."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from whyidle.analyse.predict import predict


def _once(replays: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[bytes, Any] = {}

    def answer(*asked: Any) -> Any:
        question = pickle.dumps(asked)
        if question not in known:
            known[question] = replays(*asked)
        return known[question]

    return answer


@pytest.fixture(scope="module", autouse=True)
def replays_are_answered_once() -> Iterator[None]:
    """For tests that print one recording in many forms. Import it where it is to be so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predict, "predict", _once(predict.predict))
        yield
