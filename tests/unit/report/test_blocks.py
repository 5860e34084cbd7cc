"""Every kind of block is said in every form that results are read in, in the same words."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from markdown_it import MarkdownIt

from support.rendered import rendered
from whyidle.analyse.causes.finding import Evidence, Finding, Next
from whyidle.analyse.cells.batch_size import BatchVerdict
from whyidle.analyse.run.stall_breakdown import TOTAL
from whyidle.analyse.statistics import Estimate
from whyidle.analyse.where.places import Where
from whyidle.analyse.where.stage_shares import Stages, StageShare
from whyidle.report.document import (
    Block,
    Caution,
    Changes,
    CodeChange,
    Document,
    EvidenceTable,
    FittingColumn,
    FittingTable,
    Heading,
    LimitRow,
    LimitTable,
    LinesOfCode,
    OtherFindings,
    Paragraph,
    Quality,
    SharesOfTime,
    SizesOfBatch,
    Space,
    TableBlock,
    TimeRow,
    Title,
    Verdict,
)
from whyidle.report.phrase import line
from whyidle.report.render.html import PageHeading, PageParagraph, page_parts
from whyidle.report.render.markdown import markdown

LINE = Where("/home/me/data.py", 27, "Shards.__getitem__", "open(x)", 0.84, 412, "ZipFile.open", "the time")
STAGES = Stages("the time", 100, (StageShare("decode", "", Estimate(0.61, 0.5, 0.7), 61),))
FOUND = Finding("input.serial", "It waits.", 0.15, 0.9, (), (Next("make it wait less"),))
A_SAMPLE = {size: {TOTAL: Estimate(1.0, 0.9, 1.1)} for size in (8, 16)}
SATURATED = BatchVerdict("saturated", None, "no gain", 8, 16, A_SAMPLE, {}, {}, {}, {8: 1, 16: 1}, 0.02)
EXAMPLES: dict[type[Block], tuple[Block, tuple[str, ...]]] = {
    Title: (Title(line("It ", ("trained.", "bold"))), ("It trained.",)),
    Heading: (Heading("Device"), ("Device",)),
    Paragraph: (Paragraph("It trained."), ("It trained.",)),
    Space: (Space(), ()),
    TableBlock: (TableBlock((("workers", "2"),)), ("workers", "2")),
    FittingTable: (FittingTable((FittingColumn("loader", ["naive"]),)), ("loader", "naive")),
    SizesOfBatch: (
        SizesOfBatch("naive", SATURATED),
        ("naive", "No gain.", "saturated"),
    ),
    Verdict: (Verdict(FOUND), ("Verdict", "input.serial", "major, confidence 0.9", "It waits.")),
    LinesOfCode: (
        LinesOfCode((LINE,)),
        ("Lines of code", "me/data.py:27 in Shards.__getitem__", "open(x)", "84 % of the time, in ZipFile.open; 412"),
    ),
    SharesOfTime: (
        SharesOfTime("Why", (TimeRow("input", 0.5, 4.0, "waiting"),), 8.0, bar=False, remarks=("Mostly.",)),
        ("Why", "input", "50.0 %", "4.00 ms", "waiting", "a step", "8.00 ms", "Mostly."),
    ),
    Changes: (Changes(FOUND.next, None), ("What to change", "make it wait less")),
    CodeChange: (CodeChange(("- f(1)", "+ f(2)")), ("- f(1)", "+ f(2)")),
    EvidenceTable: (EvidenceTable((Evidence("num_workers", 2, "", "4"),)), ("Evidence", "num_workers", "2", "4")),
    OtherFindings: (OtherFindings((FOUND,), None), ("Also", "input.serial (major): It waits.")),
    Caution: (Caution("Stand-in data", "generated.", "(vgg)"), ("generated.",)),
    LimitTable: (
        LimitTable((LimitRow("FAIL", "red", "device busy", "40 %", "at least 50 %", "a note"),)),
        ("FAIL", "device busy", "40 %", "at least 50 %", "a note"),
    ),
    Quality: (Quality(("a note",), brief=()), ("a note",)),
}
"""Of each kind one, and what it says."""
DRAWN_BY_PAGES = (Title, Verdict, SharesOfTime, SizesOfBatch, Caution)


def test_there_is_an_example_of_every_kind() -> None:
    assert EXAMPLES.keys() == set(get_args(Block))


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_block_says_the_same_in_every_form(kind: type[Block]) -> None:
    block, said = EXAMPLES[kind]
    document = Document((block,))
    printed = rendered(document, 100)
    page = " ".join(
        part.words
        if isinstance(part, PageHeading | PageParagraph)
        else " ".join((*part.head, *(cell for row in part.rows for cell in row)))
        for part in page_parts([block])
    )
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown(document))
    shown = " ".join(
        "".join(each.content for each in token.children or ()) if token.type == "inline" else token.content
        for token in tokens
    )
    for words in said:
        assert words in printed
        assert words in shown
        if kind not in DRAWN_BY_PAGES:
            assert words in page


def test_what_else_was_found_says_its_lines_and_its_stages_in_a_line_each() -> None:
    found = replace(FOUND, where=(LINE,), stages=STAGES)
    ((said, lines),) = OtherFindings((found,), None).said
    assert said == "input.serial (major): It waits."
    assert lines[-2:] == [
        "at me/data.py:27 in Shards.__getitem__: open(x) (84 % of the time, in ZipFile.open; 412 stack samples)",
        "of the time: decoding 61 %",
    ]
