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
    CodeChange,
    Document,
    EvidenceTable,
    FittingColumn,
    FittingTable,
    Heading,
    Paragraph,
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
    assert len(text.partition("<details>")[0].splitlines()) < 40
    for tag in ("<img", "<a ", "<em>d", "javascript:b)</a>"):
        assert tag not in shown
    # The notes end where they should.
    assert shown.count("</details>") == 2
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
    broken = Cell("dali-cpu", 8, "failed", "broken | pipe", axes=place())
    setting = {"cpu_budget": 2, "repeats": 1, "scenario": "ssd", "net": "vgg", "device": DEVICE}
    shown = html(markdown(comparison_document(compare([cell, broken]), setting)))
    assert shown.index("Emulated samples/s") < shown.index("<tr>") < shown.index(">naive</td>")
    assert "emulated samples/s</th>" in shown.partition("<details>")[2]
    assert ">compute 25 %, input 75 %</td>" in shown
    assert "dali-cpu, batch 8: failed: broken | pipe" in shown
    cells = [replace(cell, batch_size=8 + n) for n in range(90)]
    text = markdown(comparison_document(compare(cells), setting))
    assert len(text.partition("<details>")[0].splitlines()) < 40
    assert f"And {90 - MOST_ROWS} more rows." in text
    assert "**Which loader is fastest, and why**" in text


def test_all_of_it_is_folded_below_the_short_version() -> None:
    long = (Title("a run"), Heading("Long"), *[Paragraph("x")] * 12)
    text = markdown(Document(long, (Title("a run"), Heading("Short"))))
    assert text.splitlines()[:5] == ["### whyidle: a run", "", "**Short**", "", "<details><summary>All of it</summary>"]
    assert (
        text.index("**Long**") < text.index(f"And {12 - MOST_PARAGRAPHS} more paragraphs.") < text.index("</details>")
    )
    assert "details" not in markdown(Document(long))


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
