"""Markdown: short, complete, and nothing but text comes of what was recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from markdown_it import MarkdownIt

from support.cells import Planned, place
from whyidle.analyse.causes.finding import Evidence
from whyidle.analyse.cells.comparison import Cell, compare
from whyidle.analyse.run.analysis import analyse
from whyidle.record.notices import TRAINING_NOTICES, Notices
from whyidle.record.run import open_run, update_run
from whyidle.report.document import (
    Block,
    Changes,
    CodeChange,
    Document,
    EvidenceTable,
    FittingColumn,
    FittingTable,
    Heading,
    Paragraph,
    Quality,
    Title,
    table,
)
from whyidle.report.documents.comparison import comparison_document
from whyidle.report.documents.run import run_document
from whyidle.report.phrase import Bar, line
from whyidle.report.render.markdown import LONGEST, MOST_EVIDENCE, MOST_PARAGRAPHS, MOST_ROWS, code, escaped, markdown

HOSTILE = "</details><img src=x onerror=alert(1)> [a](javascript:b) `c` | *d* @team #12 http://evil www.evil"


DEVICE = {"kind": "emulated", "title": "emulated Test"}


def html(text: str) -> str:
    """As GitHub's dialect of Markdown renders it."""
    return str(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text))


def test_nothing_that_was_recorded_becomes_markup(starved: Path) -> None:
    update_run(starved, {"command": ["python", HOSTILE], "dataset": {"stand_in": HOSTILE}, "trial": None})
    for number in range(40):
        Notices(starved / TRAINING_NOTICES)(f"{number} {HOSTILE}")
    text = markdown(run_document(analyse(open_run(starved))))
    shown = html(text)
    assert len(text.splitlines()) < 60
    for tag in ("<img", "<a ", "<em>d", "javascript:b)</a>"):
        assert tag not in shown
    # The notes end where they should.
    assert shown.count("</details>") == 1
    assert "@team" not in text
    assert "http://" not in text


def test_texts_survive_as_they_were() -> None:
    for text in ("- no list", "1. no list", "+ no list", "a_b_c ~~d~~ $x$", "1.5 CPUs", "dali-cpu", "a\nb | c \\ d"):
        shown = html(escaped(text)).removeprefix("<p>").removesuffix("</p>\n")
        assert shown == text.replace("\n", " ")
    assert html(code("a `` b | c")) == "<p><code>a `` b | c</code></p>\n"


def test_github_makes_no_link_of_what_was_recorded() -> None:
    text = html(escaped("see #12, gh-3, @team and https://evil.example"))
    for link in ("#12", "gh-3", "@team", "https://"):
        assert link not in text
    assert text.replace("\u200b", "") == "<p>see #12, gh-3, @team and https://evil.example</p>\n"


def test_a_text_of_any_length_is_a_short_one() -> None:
    for written in (escaped("x" * 10_000), code("x" * 10_000)):
        assert len(written) < 1.1 * LONGEST


def test_a_comparison_is_its_table_and_many_cells_are_cut_and_counted(tmp_path: Path) -> None:
    planned = Planned(tmp_path)
    cell = planned.cell(20, 5, pipeline="naive")
    broken = Cell("dali-cpu", 8, "failed", "broken | pipe", (), (), (), place())
    setting = {"cpu_budget": 2, "repeats": 1, "scenario": "ssd", "net": "vgg", "device": DEVICE}
    shown = html(markdown(comparison_document(compare([cell, broken]), setting)))
    assert shown.index("<tr>") < shown.index("emulated samples/s</th>") < shown.index(">naive</td>")
    assert ">compute 25 %, input 75 %</td>" in shown
    assert "<p>dali-cpu, batch 8: failed: broken | pipe</p>" in shown
    cells = [replace(cell, batch_size=8 + n) for n in range(90)]
    text = markdown(comparison_document(compare(cells), setting))
    assert len(text.splitlines()) < 60
    assert f"And {90 - MOST_ROWS} more rows." in text
    assert "**Which loader wins, and why**" in text


LONG = [Paragraph("x")] * 4 + [table([["a"]] * 20)]


def test_what_is_too_long_goes_from_the_end_and_is_named() -> None:
    blocks: list[Block] = []
    for number in range(4):
        blocks += [Heading(f"Section {number}"), *LONG]
    notes = [Changes((), None), Quality(("a note",))]
    text = markdown(Document((*blocks, Heading("Announced"), Heading("Last"), *LONG, *notes)))
    assert len(text.splitlines()) < 60
    assert "**Section 0**" in text
    assert "**Next**" in text
    assert "- a note" in text
    gone = [title for title in ("Section 1", "Section 2", "Section 3", "Last") if f"**{title}**" not in text]
    assert gone
    assert f"<sub>Left out: {', '.join(gone)}.</sub>" in text
    assert "Announced" not in text


def test_columns_go_by_their_own_rank_and_bars_are_words() -> None:
    columns = (
        FittingColumn("stays", ["s" * 50]),
        FittingColumn("goes later", ["l" * 50], goes=1),
        FittingColumn("goes first", ["f" * 50], goes=2),
        FittingColumn("bar", [line(Bar({"compute": 0.75, "input": 0.25, "copy": 0.001}, 8))]),
    )
    text = markdown(Document((FittingTable(columns),)))
    assert "| stays | goes later | bar |" in text
    assert "compute 75 %, input 25 % |" in text


def test_pictures_leave_no_empty_column_and_what_is_in_a_cell_stays_in_it() -> None:
    assert "| a | b |" in markdown(Document((table([["a", "", "b"], ["c", "", "d"]]),)))
    shown = html(markdown(Document((table([["a | b", "c"]]),))))
    assert shown.count("<td") == 2
    assert ">a | b</td>" in shown


def test_what_stands_below_something_is_a_list_and_a_change_of_code_a_diff() -> None:
    blocks = (Paragraph("first"), Paragraph("second", 1), Paragraph("- third", 1), Paragraph("fourth"))
    assert markdown(Document((Title("It"), *blocks))) == "### whyidle: It\n\nfirst\n\n- second\n- third\n\nfourth\n"
    text = markdown(Document((CodeChange(("- a = `1`", "+ a = 2")),)))
    assert '<pre><code class="language-diff">- a = `1`\n+ a = 2\n</code></pre>' in html(text)


def test_only_so_many_of_a_kind_are_told_and_the_others_counted() -> None:
    evidence = EvidenceTable(tuple(Evidence(f"figure {number}", number) for number in range(MOST_EVIDENCE + 3)))
    paragraphs = [Paragraph(f"sentence {number}") for number in range(MOST_PARAGRAPHS + 1)]
    text = markdown(Document((evidence, *paragraphs)))
    assert f"| figure {MOST_EVIDENCE - 1} |" in text
    assert f"figure {MOST_EVIDENCE} " not in text
    assert f"sentence {MOST_PARAGRAPHS - 1}" in text
    assert "And 1 more paragraph." in text
