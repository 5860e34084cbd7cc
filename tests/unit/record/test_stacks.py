"""Stacks and names of a run: what is named comes back, whoever names it, and damaged lines are left out."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from whyidle.record import stacks
from whyidle.record.schema import NOT_MEASURED
from whyidle.record.stacks import LONGEST_NAME, NAMES, STACKS, Call, Names, StackNames, read_names, read_stacks

MAIN = Call("<module>", "/home/u/train.py", 40, "main()")
LOOP = Call("main", "/home/u/train.py", 31, "for x, y in loader:")
ITEM = Call("Shards.__getitem__", "/home/u/data.py", 27, "with zipfile.ZipFile(self.path) as z:")

calls = st.builds(
    Call,
    function=st.text(st.characters(exclude_categories=("C", "Z")), max_size=20),
    file=st.text(st.characters(exclude_categories=("C", "Z")), max_size=20),
    line=st.integers(0, 2**31 - 1),
)


@given(told=st.lists(st.lists(calls, min_size=1, max_size=8), min_size=1, max_size=20))
def test_every_stack_comes_back_by_its_number(tmp_path_factory: object, told: list[list[Call]]) -> None:
    folder = tmp_path_factory.mktemp("run")
    names = StackNames(folder)
    numbers = [names.number(stack) for stack in told]
    # Processes that never meet give a stack the same number.
    assert [StackNames(folder).number(stack) for stack in told] == numbers
    table = read_stacks(folder)
    assert [table.stack(number) for number in numbers] == [tuple(stack) for stack in told]


def test_the_line_of_source_is_looked_up_once_and_kept(tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []

    def source(file: str, line: int) -> str:
        asked.append((file, line))
        return f"line {line}"

    names = StackNames(tmp_path, source)
    bare = Call("main", "/home/u/train.py", 31)
    numbers = [names.number([bare]) for _ in range(3)]
    assert asked == [("/home/u/train.py", 31)]
    assert read_stacks(tmp_path).stack(numbers[-1])[0].text == "line 31"
    assert len((tmp_path / STACKS).read_text().splitlines()) == 1
    number = names.number([Call("f\x1b[31m", "/home/\x07u.py", 3, "x = '\x1b[0m'")])
    (call,) = read_stacks(tmp_path).stack(number)
    assert not {"\x1b", "\x07"} & set(call.function + call.text + call.file)


@given(cut=st.integers(0, 2000), noise=st.binary(max_size=60))
def test_of_a_torn_file_the_whole_lines_are_read(tmp_path_factory: object, cut: int, noise: bytes) -> None:
    folder = tmp_path_factory.mktemp("run")
    names = StackNames(folder)
    numbers = [names.number([MAIN, Call("f", "/home/u/f.py", line)]) for line in range(10)]
    path = folder / STACKS
    whole = path.read_bytes()
    path.write_bytes(whole[:cut] + noise)
    table = read_stacks(folder)
    kept = whole[:cut].count(b"\n")
    for place, number in enumerate(numbers):
        if place + 2 <= kept:
            assert table.stack(number) == (MAIN, Call("f", "/home/u/f.py", place))


def test_a_damaged_table_that_goes_in_circles_ends(tmp_path: Path) -> None:
    (tmp_path / STACKS).write_text('{"call": 7, "from": 7, "function": "f", "file": "/f.py", "line": 1}\n')
    assert len(read_stacks(tmp_path).stack(7)) == stacks.MOST_DEPTH


def test_where_nothing_can_be_written_or_too_much_was_a_stack_has_no_number(tmp_path: Path) -> None:
    names = StackNames(tmp_path / "gone")
    assert names.number([MAIN]) == NOT_MEASURED
    assert read_stacks(tmp_path / "gone").stack(NOT_MEASURED) == ()
    (tmp_path / STACKS).write_bytes(b"\n" * stacks.MOST_BYTES)
    assert StackNames(tmp_path).number([MAIN]) == NOT_MEASURED


def test_names_are_the_same_for_all_writers_and_written_once(tmp_path: Path) -> None:
    one, two = Names(tmp_path), Names(tmp_path)
    number = one.number("Resize")
    assert [two.number("Resize"), one.number("Resize")] == [number] * 2
    other = two.number("Normalise")
    assert read_names(tmp_path) == {number: "Resize", other: "Normalise"}
    assert len((tmp_path / NAMES).read_text().splitlines()) == 2
    assert Names(tmp_path / "missing").number("Resize") == NOT_MEASURED


def test_names_cannot_harm_whoever_reads_them(tmp_path: Path) -> None:
    number = Names(tmp_path).number("a\tb\n\x1b[2Jc" + "x" * 1000 + "end")
    read = read_names(tmp_path)[number]
    assert len(read) == LONGEST_NAME
    assert read.endswith("end")
    assert "\x1b" not in (tmp_path / NAMES).read_text()
    (tmp_path / NAMES).write_text("1 one\n-2\ttwo\n\u0663\tthree\n9999999999999999999999\tfour\n\n5\tf\x1bve\n")
    assert read_names(tmp_path) == {5: "f?ve"}
