"""A plugin of pytest: tells coverage which test executes a line, and of fixtures, which others use too, which file."""

from __future__ import annotations

from collections.abc import Iterator

import coverage
import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    yield from _within(item.nodeid.split("::")[0])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    yield from _within(item.nodeid)


def _within(context: str) -> Iterator[None]:
    measuring = coverage.Coverage.current()
    assert measuring is not None
    measuring.switch_context(context)
    yield
    measuring.switch_context("")
