"""Runs and comparisons for a pull request: short, complete, and nothing but text comes of what was recorded."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from support.cells import Planned, place
from support.crafted import facts_of_run
from support.jobs import Rank, record
from support.stacks import record_threads
from whyidle.analyse.attached.seen import SeenThread
from whyidle.analyse.causes.finding import Evidence
from whyidle.analyse.cells.comparison import Cell, compare
from whyidle.analyse.run.analysis import Analysis, analyse
from whyidle.commands.main import main
from whyidle.record.attached import ProcessStates, write_states
from whyidle.record.notices import TRAINING_NOTICES, Notices
from whyidle.record.run import create_run, open_run, update_run
from whyidle.record.stacks import Call
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
from whyidle.report.documents.run import headline, run_document
from whyidle.report.phrase import Bar, line
from whyidle.report.render.markdown import LONGEST, MOST_EVIDENCE, MOST_PARAGRAPHS, MOST_ROWS, code, escaped, markdown
from whyidle.scenarios.planted import MS, Step, train

HOSTILE = "</details><img src=x onerror=alert(1)> [a](javascript:b) `c` | *d* @team #12 http://evil www.evil"


SETTING = {"cpu_budget": 2, "repeats": 1}


def html(text: str) -> str:
    """As GitHub's dialect of Markdown renders it."""
    return str(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text))


def markdown_of(analysis: Analysis) -> str:
    return markdown(run_document(analysis))


def test_a_run_has_its_verdict_parts_next_figures_and_quality(starved: Path) -> None:
    analysis = analyse(open_run(starved))
    text = markdown_of(analysis)
    shown, verdict = html(text), analysis.verdict
    assert len(text.splitlines()) < 60
    assert f"<h3>whyidle: {headline(analysis)}</h3>" in shown
    assert f"<p><strong>Verdict:</strong> <code>{verdict.cause}</code> (critical)</p>" in shown
    assert f"<p>{verdict.title}</p>" in shown
    order = [shown.index(word) for word in ("Verdict", "Why: where the time went", "Next", "Evidence", "overhead")]
    assert order == sorted(order)
    facts = facts_of_run(starved)
    assert f"{100 * facts.shares['input']:.1f} %" in text
    assert "**Next**" in text
    assert "steps after" in text
    assert "overhead" in text


def test_an_emulated_device_is_called_so(starved: Path) -> None:
    update_run(starved, {"device": {"kind": "emulated", "title": "emulated Test"}})
    assert "**Emulated device:** its times are computed from a profile" in markdown_of(analyse(open_run(starved)))


def test_stand_in_data_are_called_so(starved: Path) -> None:
    update_run(starved, {"dataset": {"stand_in": "ImageNet"}})
    assert "**Stand-in data:** generated, in place of ImageNet." in markdown_of(analyse(open_run(starved)))


def test_nothing_that_was_recorded_becomes_markup(starved: Path) -> None:
    update_run(starved, {"command": ["python", HOSTILE], "dataset": {"stand_in": HOSTILE}, "trial": None})
    for number in range(40):
        Notices(starved / TRAINING_NOTICES)(f"{number} {HOSTILE}")
    text = markdown_of(analyse(open_run(starved)))
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
    """It looks for them in the text that is shown, so that escaping with a backslash does not help."""
    text = html(escaped("see #12, gh-3, @team and https://evil.example"))
    for link in ("#12", "gh-3", "@team", "https://"):
        assert link not in text
    assert text.replace("\u200b", "") == "<p>see #12, gh-3, @team and https://evil.example</p>\n"


def test_a_text_of_any_length_is_a_short_one() -> None:
    for written in (escaped("x" * 10_000), code("x" * 10_000)):
        assert len(written) < 1.1 * LONGEST


def test_few_steps_have_no_verdict_and_no_figures(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 3])
    assert "**Verdict:** `none possible`" in markdown_of(analyse(open_run(tmp_path / "run")))


def test_of_several_ranks_it_is_the_job(tmp_path: Path) -> None:
    record(tmp_path / "job", [Rank() for _ in range(2)])
    analysis = analyse(open_run(tmp_path / "job"))
    assert analysis.job is not None
    assert f"{100 * analysis.job.shares['compute']:.1f} %" in markdown_of(analysis)


def test_a_process_watched_from_outside_is_called_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outer = Call("main", "/home/me/train.py", 7)
    fetch = Call("_BaseDataLoaderIter.__next__", "/x/site-packages/torch/utils/data/dataloader.py", 7)
    take = Call("Queue.get", "/usr/lib/python3.12/queue.py", 7)
    told = {"attach": {"pid": 7, "seconds": 9.0}, "command": ["python", HOSTILE], "device": {"kind": "cpu"}}
    folder = create_run(tmp_path / "watched", told)
    record_threads(folder, [SeenThread(7, 7, Counter({(outer, fetch, take): 90}))])
    write_states(folder, [ProcessStates(7, 1, "python", "python train.py", seconds=9.0, looks=90, states={"S": 90})])
    assert main(["report", str(folder), "--format", "markdown"]) == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) < 60
    assert "observed from outside for 9 s" in text
    assert "<img" not in html(text)
    assert main(["report", str(folder), "--format", "csv"]) == 2
    assert "watched from outside" in capsys.readouterr().err


def test_a_comparison_is_its_table(tmp_path: Path) -> None:
    planned = Planned(tmp_path)
    cells = [
        planned.cell(20, 5, pipeline="naive"),
        planned.cell(1, 5, pipeline="workers"),
        Cell("dali-cpu", 8, "failed", "broken | pipe", (), (), (), place()),
    ]
    setting = {"scenario": "ssd", "net": "vgg", "device": {"kind": "emulated", "title": "emulated Test"}}
    text = markdown(comparison_document(compare(cells), SETTING | setting))
    shown = html(text)
    assert shown.index("<tr>") < shown.index("emulated samples/s</th>") < shown.index(">naive</td>")
    assert "**Emulated device:**" in text
    assert ">compute 25 %, input 75 %</td>" in shown
    assert ">failed</td>" in shown
    assert "<p>dali-cpu, batch 8: failed: broken | pipe</p>" in shown
    assert text.split("**Which loader wins, and why**\n\n- ")[1].startswith("workers at batch 8")


def test_many_cells_are_cut_and_counted(tmp_path: Path) -> None:
    cell = Planned(tmp_path).cell(1, 5)
    cells = [Cell("workers", 8 + n, "ok", None, cell.runs, cell.analyses, (), cell.axes) for n in range(90)]
    setting = {"scenario": "ssd", "net": "vgg", "device": {"kind": "cpu", "title": "a processor"}}
    text = markdown(comparison_document(compare(cells), SETTING | setting))
    assert len(text.splitlines()) < 60
    assert f"And {90 - MOST_ROWS} more rows." in text
    assert "**Which loader wins, and why**" in text


def test_the_report_command_writes_it(starved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(starved), "--format", "markdown"]) == 0
    shown = capsys.readouterr().out
    assert shown == markdown_of(analyse(open_run(starved)))
    target = tmp_path / "summary.md"
    assert main(["report", str(starved), "--format", "markdown", "-o", str(target)]) == 0
    assert target.read_text() == shown
    assert main(["report", str(starved), "--format", "markdown", "-o", str(tmp_path / "no" / "f.md")]) == 2
    assert "cannot write" in capsys.readouterr().err


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


def test_pictures_leave_no_empty_column() -> None:
    text = markdown(Document((table([["a", "", "b"], ["c", "", "d"]]),)))
    assert "| a | b |" in text


def test_what_stands_below_something_is_a_list() -> None:
    blocks = (Paragraph("first"), Paragraph("second", 1), Paragraph("- third", 1), Paragraph("fourth"))
    assert markdown(Document((Title("It"), *blocks))) == "### whyidle: It\n\nfirst\n\n- second\n- third\n\nfourth\n"


def test_a_change_of_code_is_a_diff() -> None:
    text = markdown(Document((CodeChange(("- a = `1`", "+ a = 2")),)))
    assert '<pre><code class="language-diff">- a = `1`\n+ a = 2\n</code></pre>' in html(text)


def test_what_is_in_a_cell_stays_in_it() -> None:
    shown = html(markdown(Document((table([["a | b", "c"]]),))))
    assert shown.count("<td") == 2
    assert ">a | b</td>" in shown


def test_only_so_many_of_a_kind_are_told_and_the_others_counted() -> None:
    evidence = EvidenceTable(tuple(Evidence(f"figure {number}", number) for number in range(MOST_EVIDENCE + 3)))
    paragraphs = [Paragraph(f"sentence {number}") for number in range(MOST_PARAGRAPHS + 1)]
    text = markdown(Document((evidence, *paragraphs)))
    assert f"| figure {MOST_EVIDENCE - 1} |" in text
    assert f"figure {MOST_EVIDENCE} " not in text
    assert f"sentence {MOST_PARAGRAPHS - 1}" in text
    assert "And 1 more paragraph." in text
