"""Documents in every form that results are read in: the same words, and nothing but text of what was recorded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from markdown_it import MarkdownIt

from support.cells import Planned, place
from support.rendered import rendered
from whyidle.analyse.causes.finding import Evidence, Finding, Next
from whyidle.analyse.cells.batch_size import BatchVerdict
from whyidle.analyse.cells.comparison import Cell, compare
from whyidle.analyse.run.analysis import analyse
from whyidle.analyse.run.stall_breakdown import TOTAL
from whyidle.analyse.statistics import Estimate
from whyidle.analyse.where.places import Where
from whyidle.analyse.where.stages import Stages, StageShare
from whyidle.record.notices import TRAINING_NOTICES, Notices
from whyidle.record.run import open_run, update_run
from whyidle.report import document as d
from whyidle.report.document import Bar, line
from whyidle.report.documents.comparison import comparison_document
from whyidle.report.documents.run import run_document
from whyidle.report.render import FORMS, LONGEST, MOST_PARAGRAPHS, MOST_ROWS, code, escaped, markdown, page_parts

LINE = Where("/home/me/data.py", 27, "Shards.__getitem__", "open(x)", 0.84, 412, "ZipFile.open", "the time")
SPENT = ("me/data.py:27 in Shards.__getitem__", "open(x)", "84 % of the time, in ZipFile.open; 412 stack samples")
STAGES = Stages("the time", 100, (StageShare("decode", "", Estimate(0.61, 0.5, 0.7), 61),))
FOUND = Finding("input.serial", "It waits.", 0.15, 0.9, (), (Next("make it wait less"),))
BARE = replace(FOUND, next=())
A_SAMPLE = {size: {TOTAL: Estimate(1.0, 0.9, 1.1)} for size in (8, 16)}
SATURATED = BatchVerdict("saturated", None, "no gain", 8, 16, A_SAMPLE, {}, {}, {}, {8: 1, 16: 1}, 0.02)
LIMIT = d.LimitRow("FAIL", "red", "device busy", "40 %", "at least 50 %", "a note")
EXAMPLES: dict[str, tuple[tuple[d.Block, ...], tuple[str, ...]]] = {
    "title": ((d.Title(line("It ", ("trained.", "bold"))),), ("It trained.",)),
    "table": ((d.table([("workers", "2")]),), ("workers", "2")),
    "fitting table": ((d.fitting_table([d.TableColumn("loader", ["naive"])]),), ("loader", "naive")),
    "change of code": ((d.CodeChange(("- f(1)", "+ f(2)")),), ("- f(1)", "+ f(2)")),
    "caution": ((d.Caution("Stand-in data", "generated.", "(vgg)"),), ("generated.",)),
    "verdict": (tuple(d.verdict_blocks(FOUND)), ("Verdict", "input.serial", "(major, confidence 0.9)", "It waits.")),
    "time": (
        tuple(d.time_section("Why", [("input", 0.5, "waiting")], 8.0, False, ("Mostly.",))),
        ("Why", "input", "50.0 %", "4.00 ms", "waiting", "a step", "8.00 ms", "Mostly."),
    ),
    "lines of code": (tuple(d.code_section([LINE])), ("Lines of code", *SPENT)),
    "changes": (tuple(d.changes_section(FOUND.next, None)), ("What to change", "make it wait less")),
    "evidence": (
        tuple(d.finding_sections(replace(BARE, evidence=(Evidence("num_workers", 2, "", "4"),)), (), None)),
        ("Evidence", "num_workers", "2", "4"),
    ),
    "others": (tuple(d.finding_sections(BARE, [FOUND], None)), ("Also found", "input.serial (major): It waits.")),
    "quality": (tuple(d.quality_section(["a note"])), ("a note",)),
    "limits": ((d.Limits((LIMIT,)),), ("FAIL", "device busy", "40 %", "at least 50 %", "a note")),
    "sweep": ((d.Sweep("naive", SATURATED),), ("naive", "No gain.", "saturated")),
}
"""What documents are made of, and what it says."""
DRAWN_BY_PAGES = ("title", "sweep", "caution")
HOSTILE = "</details><img src=x onerror=alert(1)> [a](javascript:b) `c` | *d* @team #12 http://evil www.evil \x1b[31m"
DEVICE = {"kind": "emulated", "title": "emulated Test"}


def html(text: str) -> str:
    """As GitHub's dialect of Markdown renders it."""
    return str(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text))


def on_page(*blocks: d.Block) -> str:
    def words() -> Iterator[str]:
        for part in page_parts(blocks):
            yield from (part.words, *part.head, *sum(part.rows, ()))

    return " ".join(words())


def test_every_kind_of_block_has_a_row_in_every_renderers_table() -> None:
    kinds = set(get_args(d.Block))
    assert set(FORMS) == kinds
    assert {type(block) for blocks, _ in EXAMPLES.values() for block in blocks} == kinds


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_block_says_the_same_in_every_form_and_keeps_to_its_columns(name: str) -> None:
    blocks, said = EXAMPLES[name]
    document = d.Document(blocks)
    text, page = html(markdown(document)), [] if name in DRAWN_BY_PAGES else [on_page(*blocks)]
    forms = [rendered(document, 100), re.sub("</?(code|strong)>", "", text), *page]
    assert [(form, words) for form in forms for words in said if words not in form] == []
    for width in (40, 80, 200):
        lines = rendered(document, width, "ascii").splitlines()
        assert name == "limits" or all(len(each) <= width for each in lines)
        assert "?" not in "".join(lines).replace("? not told", "")


@pytest.mark.parametrize(
    "blocks",
    [
        [d.Title(HOSTILE)],
        [d.Paragraph(HOSTILE)],
        [d.Paragraph(line((HOSTILE, "bold"), d.Span(HOSTILE, code=True)), 2)],
        [d.Caution(HOSTILE, HOSTILE, HOSTILE)],
        [d.table([[HOSTILE]])],
        [d.fitting_table([d.TableColumn(HOSTILE, [HOSTILE])])],
        [d.CodeChange((f"- {HOSTILE}",))],
        d.verdict_blocks(replace(FOUND, title=HOSTILE)),
        d.code_section([replace(LINE, file=HOSTILE, function=HOSTILE, code=HOSTILE, calls=HOSTILE)]),
        d.changes_section([Next(HOSTILE)], None),
        d.finding_sections(
            replace(BARE, evidence=(Evidence(HOSTILE, HOSTILE, "", HOSTILE),)), [replace(FOUND, title=HOSTILE)], None
        ),
        d.quality_section([HOSTILE] * 9, HOSTILE),
        [d.Limits((replace(LIMIT, what=HOSTILE, note=HOSTILE),))],
        [d.Sweep(HOSTILE, SATURATED)],
    ],
)
def test_hostile_words_stay_words(blocks: Iterable[d.Block]) -> None:
    document = d.Document(tuple(blocks))
    told = markdown(document)
    shown = html(told)
    assert [tag for tag in ("<img", "<a ", "<em>d", "\x1b") if tag in shown] == []
    # A diff shows its lines as they are: GitHub links nothing in them.
    outside = re.sub("(?s)(`+)[^`].*?\\1", "", told)
    assert [each for each in ("@team", "http://") if each in outside] == []
    assert shown.count("</details>") == shown.count("<details>")
    assert "\x1b" not in rendered(document, 100)


def test_nothing_that_was_recorded_becomes_markup(starved: Path) -> None:
    update_run(starved, {"command": ["python", HOSTILE], "dataset": {"stand_in": HOSTILE}, "trial": None})
    for number in range(40):
        Notices(starved / TRAINING_NOTICES)(f"{number} {HOSTILE}")
    text = markdown(run_document(analyse(open_run(starved))))
    assert len(text.partition("<details>")[0].splitlines()) < 40
    assert [tag for tag in ("<img", "<a ", "<em>d", "javascript:b)</a>") if tag in html(text)] == []
    # The notes end where they should.
    assert html(text).count("</details>") == 1
    assert [told for told in ("@team", "http://") if told in text] == []


@pytest.mark.parametrize(
    "text", ["- no list", "1. no list", "+ no list", "a_b_c ~~d~~ $x$", "1.5 CPUs", "dali-cpu", "a\nb | c \\ d"]
)
def test_texts_survive_as_they_were(text: str) -> None:
    assert html(escaped(text)) == f"<p>{text}</p>\n".replace("\n", " ", text.count("\n"))


def test_github_makes_no_link_of_what_was_recorded_and_code_is_code() -> None:
    text = html(escaped("see #12, gh-3, @team and https://evil.example"))
    assert [link for link in ("#12", "gh-3", "@team", "https://") if link in text] == []
    assert text.replace("\u200b", "") == "<p>see #12, gh-3, @team and https://evil.example</p>\n"
    assert html(escaped("set `a_b=<1>` or `c")) == "<p>set <code>a_b=&lt;1&gt;</code> or `c</p>\n"
    assert html(code("a `` b | c")) == "<p><code>a `` b | c</code></p>\n"
    assert max(len(written) for written in (escaped("x" * 10_000), code("x" * 10_000))) < 1.1 * LONGEST


def test_what_else_was_found_says_its_lines_and_its_stages_in_a_line_each() -> None:
    shown = on_page(*d.finding_sections(BARE, [replace(FOUND, where=(LINE,), stages=STAGES)], None))
    place, source, spent = SPENT
    assert shown.endswith(f"It waits. make it wait less at {place}: {source} ({spent}) of the time: decoding 61 %")


def test_a_comparison_is_its_table_and_many_cells_are_cut_and_counted(tmp_path: Path) -> None:
    cell = Planned(tmp_path).cell(20, 5, pipeline="naive")
    broken = Cell("dali-cpu", 8, "failed", "broken | pipe", axes=place())
    setting = {"cpu_budget": 2, "repeats": 1, "scenario": "ssd", "net": "vgg", "device": DEVICE}
    shown = html(markdown(comparison_document(compare([cell, broken]), setting)))
    assert shown.index("<tr>") < shown.index(">naive</td>")
    assert "emulated samples/s</th>" in shown.partition("<details>")[2]
    assert ">compute 25 %, input 75 %</td>" in shown
    assert "dali-cpu at batch 8: failed: broken | pipe" in shown
    cells = [replace(cell, batch_size=8 + n) for n in range(90)]
    text = markdown(comparison_document(compare(cells), setting))
    assert len(text.partition("<details>")[0].splitlines()) < 40
    assert f"And {90 - MOST_ROWS} more rows." in text
    assert "**Which loader is fastest, and why**" in text


def told(*blocks: d.Block, brief: Iterable[d.Block] = ()) -> str:
    """Below the title."""
    return markdown(d.Document((d.Title("It"), *blocks), tuple(brief))).removeprefix("### whyidle: It\n")


def test_all_of_it_is_folded_below_the_short_version() -> None:
    text = told(d.Heading("Long"), *[d.Paragraph("x")] * 20, brief=(d.Title("It"), d.Heading("Short")))
    assert text.splitlines()[:4] == ["", "**Short**", "", "<details><summary>All of it</summary>"]
    more = f"And {20 - MOST_PARAGRAPHS} more paragraphs."
    assert text.index("**Long**") < text.index(more) < text.index("</details>")
    assert "details" not in told(d.Heading("Long"))


def test_columns_go_by_their_own_rank_bars_are_words_and_pictures_leave_no_empty_column() -> None:
    columns = (
        d.TableColumn("stays", ["s" * 50]),
        d.TableColumn("goes later", ["l" * 50], goes=1),
        d.TableColumn("goes first", ["f" * 50], goes=2),
        d.TableColumn("bar", [line(Bar({"compute": 0.75, "input": 0.25, "copy": 0.001}, 8))]),
    )
    text = told(d.fitting_table(columns))
    assert "| stays | goes later | bar |" in text
    assert "compute 75 %, input 25 % |" in text
    assert "| a | b |" in told(d.table([["a", "", "b"], ["c", "", "d"]]))
    shown = html(told(d.table([["a | b", "c"]])))
    assert shown.count("<td") == 2
    assert ">a | b</td>" in shown


def test_what_stands_below_something_is_a_list_and_a_change_of_code_a_diff() -> None:
    blocks = (d.Paragraph("first"), d.Paragraph("`second`", 1), d.Paragraph("- third", 2), d.Paragraph("fourth"))
    assert told(*blocks) == "\nfirst\n\n- `second`\n  - third\n\nfourth\n"
    shown = html(told(d.CodeChange(("- a = `1`", "+ a = 2"))))
    assert '<pre><code class="language-diff">- a = `1`\n+ a = 2\n</code></pre>' in shown
