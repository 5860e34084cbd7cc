"""Where a program's cursor is, by what it wrote: whether its row is full, and whether it goes on in it."""

from __future__ import annotations

import pytest

from whyidle.terminal.shared.program_output import ProgramOutput, goes_on_in_the_row

COLUMNS = 40


@pytest.mark.parametrize(
    ("written", "fills"),
    [
        (["x" * COLUMNS], True),
        (["x" * (COLUMNS - 1)], False),
        (["x" * (COLUMNS + 1)], False),
        (["x" * 2 * COLUMNS], True),
        (["before\r\n", "x" * 10, "\x1b[1;32m", "x" * (COLUMNS - 10), "\x1b[0m"], True),
        (["x" * COLUMNS, "\r"], False),
        (["x" * COLUMNS, "\r\n"], False),
        (["\u6f22" * (COLUMNS // 2)], True),
        # A wide sign leaves the last column blank where it does not fit.
        (["x", "\u6f22" * (COLUMNS // 2)], False),
        (["x" * (COLUMNS - 1) + "e\u0301"], True),
        # Where the cursor is moved, nobody knows.
        (["x" * COLUMNS, "\x1b[5D"], False),
        (["\x1b[5C", "x" * COLUMNS], False),
        (["\x1b[?7l", "x" * COLUMNS], False),
        (["\x1b[?7l\x1b[?7h\r", "x" * COLUMNS], True),
        (["x" * COLUMNS * 200], False),
    ],
)
def test_a_full_row_is_known_where_the_cursor_is(written: list[str], fills: bool) -> None:
    output = ProgramOutput()
    for piece in written:
        output.follow(piece.encode())
    assert output.fills_its_row(COLUMNS) is fills


@pytest.mark.parametrize(
    ("written", "goes_on"),
    [
        (b"yz", True),
        ("\u00e4".encode(), True),
        (b"\x1b[0m\x1b[31myz", True),
        (b"\x1b[0m", None),
        (b"\r", False),
        (b"\r\n", False),
        (b"\x1b[2Kx", False),
        (b"\x1b[3", False),
    ],
)
def test_what_goes_on_in_a_row_is_signs(written: bytes, goes_on: bool | None) -> None:
    assert goes_on_in_the_row(written) is goes_on
