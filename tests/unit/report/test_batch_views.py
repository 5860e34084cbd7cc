"""What the batch size did, as text, as a picture and as JSON."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from support.rendered import rendered
from whyidle.analyse.causes.finding import Evidence
from whyidle.analyse.cells.batch_size.result import BatchVerdict, Work
from whyidle.analyse.run.stall_breakdown import PARTS, TERMS, TOTAL
from whyidle.analyse.statistics import Estimate
from whyidle.errors import MissingExtra, WhyidleError
from whyidle.report.document import Document
from whyidle.report.documents.comparison import batch_size_blocks
from whyidle.report.plot.batch_size import check_picture, write_batch_sizes
from whyidle.report.words import sample_time

SVG = "{http://www.w3.org/2000/svg}"
GROWING = {8: (4000, 300, 20, 0, 90, 40), 16: (4000, 1500, 22, 0, 60, 40), 32: (3900, 2900, 25, 0, 40, 40)}
"""µs a sample of each part."""


def around(mean: float, half: float) -> Estimate:
    return Estimate(mean, mean - half, mean + half)


def verdict(
    rows: dict[int, tuple[float, ...]] = GROWING,
    cause: str = "loader_floor",
    grew: str | None = "input",
    runs: int = 3,
    times: float = 1.0,
) -> BatchVerdict:
    """A sweep whose terms are known to 1 % and their changes to 2 % of the time per sample."""
    terms = {}
    for size, parts in rows.items():
        known = {part: around(us * times, us * times / 100) for part, us in zip(PARTS, parts, strict=True)}
        terms[size] = known | {TOTAL: around(sum(parts) * times, sum(parts) * times / 100)}
    smaller, larger = min(rows), max(rows)
    half = 0.02 * terms[smaller][TOTAL].value
    return BatchVerdict(
        cause,
        grew,
        "input grew from 0.30 to 2.90 ms a sample: the loader cannot feed the larger batch",
        smaller,
        larger,
        terms,
        {size: {term: estimate.value for term, estimate in of.items()} for size, of in terms.items()},
        {term: around(terms[larger][term].value - terms[smaller][term].value, half) for term in TERMS},
        {size: Work(2400, 2400 * terms[size][TOTAL].value / 1e6) for size in rows},
        dict.fromkeys(rows, runs),
        0.013,
        (Evidence("workers busy", 98.0, "%", "below 80"), Evidence("making a sample", None, "ms")),
    )


def shown(found: BatchVerdict, width: int = 80, encoding: str = "utf-8") -> str:
    return rendered(Document(tuple(batch_size_blocks({"caffe": found}))), width, encoding)


def rows_of(text: str) -> dict[str, list[str]]:
    """The words of each line behind its name: `batch 8` or a term."""
    rows = {}
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["batch"]:
            rows[f"batch {words[1]}"] = words[2:]
        elif len(words) > 2 and words[1] in PARTS:
            rows[words[1]] = words[2:]
        elif words and words[0] in (TOTAL, "samples", "seconds"):
            rows[words[0]] = words[1:]
    return rows


def test_each_size_is_a_row_whose_bar_is_as_long_as_its_time_and_terms_stand_with_their_change() -> None:
    rows = rows_of(shown(verdict()))
    lengths = {size: len(rows[f"batch {size}"][2]) for size in GROWING}
    for size in GROWING:
        assert lengths[size] / lengths[32] == pytest.approx(sum(GROWING[size]) / sum(GROWING[32]), abs=1 / lengths[32])
    assert rows["input"] == ["0.30", "1.50", "2.90", "+2.60", "±0.09", "▲"]
    assert rows["compute"] == ["4.00", "4.00", "3.90", "-0.10", "±0.09"]
    # Below 1 % everywhere; sync is 0.
    assert not {"copy", "sync"} & rows.keys()


def test_runs_of_each_size_are_counted_and_one_has_no_interval() -> None:
    said = " ".join(shown(verdict(runs=1)).split())
    assert "One run of each size: it has no interval of its own, runs are taken to differ by 1.3 %." in said
    unlike = replace(verdict(), runs={8: 3, 16: 3, 32: 1})
    assert "Runs: 3 of batch 8, 3 of batch 16, 1 of batch 32;" in " ".join(shown(unlike).split())


@pytest.mark.parametrize(
    ("times", "unit", "figure"),
    [(0.005, "µs", "22.2"), (0.1, "µs", "445"), (1, "ms", "4.45"), (20, "ms", "89"), (450, "s", "2.00")],
)
def test_units_suit_the_time_per_sample(times: float, unit: str, figure: str) -> None:
    text = shown(verdict(times=times))
    assert f"caffe: {unit} a sample" in text
    assert rows_of(text)["batch 8"][0] == figure


def test_an_interval_below_the_last_digit_is_not_written_as_none() -> None:
    found = verdict()
    narrow = replace(found, terms=found.terms | {8: found.terms[8] | {TOTAL: around(4450, 1.0)}})
    assert rows_of(shown(narrow))["batch 8"][:2] == ["4.45", "±<0.01"]


def test_what_is_not_known_is_not_a_zero() -> None:
    found = verdict()
    nothing = around(float("nan"), 0.0)
    partly = {term: each for term, each in found.terms[8].items() if term != "compute"}
    lost = replace(
        found,
        terms={8: partly, 16: dict.fromkeys(TERMS, nothing), 32: found.terms[32]},
        changes=found.changes | {"compute": nothing},
        work={8: found.work[8]},
    )
    rows = rows_of(shown(lost))
    assert rows["compute"] == ["n/a", "n/a", "3.90", "n/a"]
    assert rows["batch 16"] == ["n/a"]
    assert rows["batch 8"][2].count("?") > 10  # time that no known part explains
    assert rows["samples"] == ["measured", "2400", "n/a", "n/a"]


@pytest.mark.parametrize("width", [60, 80, 160])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_it_fits_the_width_with_and_without_block_characters(width: int, encoding: str) -> None:
    many = {2**n: (20.0, n, 1.0, 1.0, 3.0, 1.0) for n in range(3, 11)}
    text = shown(replace(verdict(many), text="input rises by 7 ± 1 µs [x]"), width, encoding)
    assert ("Input rises by 7 +- 1 us [x]." in text) == (encoding == "ascii")
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    rows = rows_of(text)
    assert {f"batch {size}" for size in many} <= set(rows)
    # All sizes where there is room; the two that are compared, and what lies between them, everywhere.
    figures = rows["input"][: rows["input"].index("+7.0")]
    assert (figures[0], figures[-1]) == ("3.0", "10.0")
    assert (len(figures) == 8) == (width == 160)
    if encoding == "ascii":
        assert "?" not in text
        assert not set(text) & set("█░▒▓▚▲→±µ")


@pytest.fixture
def picture(tmp_path: Path) -> ElementTree.Element:
    flat = {8: (4000, 30, 0, 0, 60, 0), 32: (4000, 30, 0, 0, 60, 0)}
    loaders = {"caffe": verdict(), "a $1 & <2> loader": verdict(flat, "saturated", None)}
    write_batch_sizes(loaders, "ssd on emulated V100", tmp_path / "batch.svg")
    return ElementTree.parse(tmp_path / "batch.svg").getroot()


def test_the_picture_names_loaders_causes_sizes_terms_and_what_grew(picture: ElementTree.Element) -> None:
    words = ["".join(text.itertext()) for text in picture.iter(f"{SVG}text")]
    named = {"ssd on emulated V100", "caffe", "loader_floor", "a $1 & <2> loader", "saturated", "time per sample (ms)"}
    assert named | {"batch size", "8", "16", "32", "compute", "host", "+2.60 ms", "±0.09", "6.91"} <= set(words)
    assert words.count("input") == 2  # in the legend, and where it grew
    assert "copy" not in words


def test_bars_are_as_high_as_the_terms(picture: ElementTree.Element) -> None:
    boxes = []
    for path in picture.iter(f"{SVG}path"):
        points = [(float(x), float(y)) for x, y in re.findall(r"[ML] ([-\d.]+) ([-\d.]+)", path.get("d", ""))]
        if len(points) == 4 and path.get("d", "").rstrip().endswith("z"):
            xs, ys = [x for x, _ in points], [y for _, y in points]
            boxes.append((min(xs), round(max(xs) - min(xs), 1), max(ys) - min(ys)))
    width = Counter(box[1] for box in boxes).most_common(1)[0][0]
    stacks: dict[float, list[float]] = {}
    for left, wide, high in boxes:
        if wide == width:
            stacks.setdefault(round(left), []).append(high)
    drawn = [stacks[left] for left in sorted(stacks)]
    assert len(drawn) == 5
    flat = (4000, 30, 60)
    tall = [tuple(GROWING[size][PARTS.index(part)] for part in ("compute", "input", "host")) for size in GROWING]
    unit = drawn[0][0] / 4000
    for stack, planned in zip(drawn, [*tall, flat, flat], strict=True):
        # Parts below 1 % everywhere are left out of the bar, and one of 0 has no height.
        assert stack[:3] == pytest.approx([us * unit for us in planned], abs=0.5)


def test_the_same_figures_give_the_same_svg_whatever_the_users_style(tmp_path: Path) -> None:
    import matplotlib

    write_batch_sizes({"caffe": verdict()}, "x", tmp_path / "a.svg")
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": None, "axes.facecolor": "black"}):
        write_batch_sizes({"caffe": verdict()}, "x", tmp_path / "b.svg")
        assert matplotlib.rcParams["font.size"] == 30
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize("loaders", [1, pytest.param(7, marks=pytest.mark.slow)])
def test_pictures_open_and_grow_with_what_they_show(tmp_path: Path, loaders: int) -> None:
    many = {2**n: (20.0, n, 1.0, 1.0, 3.0, 1.0) for n in range(3, 9)}
    write_batch_sizes({f"loader {n}": verdict(many) for n in range(loaders)}, "x" * 200, tmp_path / "batch.png")
    with Image.open(tmp_path / "batch.png") as image:
        assert image.width > 500 * min(loaders, 4)
        assert image.height > 500 * (1 + (loaders > 4))
        assert len(image.convert("RGB").getcolors(10**6)) > 50
    write_batch_sizes({"caffe": verdict()}, "x", tmp_path / "batch.pdf")
    assert (tmp_path / "batch.pdf").read_bytes().startswith(b"%PDF")


def test_where_no_picture_can_be_is_said_before_any_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_picture(tmp_path / "a.SVG")
    check_picture(tmp_path / "new" / "a.svg", tmp_path / "new")
    (tmp_path / "b.svg").mkdir()
    for path, said in (
        (tmp_path / "a.bmp", "ends in .svg, .png or .pdf"),
        (tmp_path / "no" / "a.svg", "there is no folder"),
        (tmp_path / "b.svg", "is a folder"),
    ):
        with pytest.raises(WhyidleError, match=said):
            check_picture(path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'whyidle\[plot\]'"):
        check_picture(tmp_path / "a.svg")


def test_matplotlib_is_imported_only_to_draw_and_its_pyplot_never(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from whyidle.commands import main\n"
        "assert 'matplotlib' not in sys.modules\n"
        "from whyidle.analyse.cells.batch_size.result import BatchVerdict\n"
        "from whyidle.analyse.run.stall_breakdown import TERMS\n"
        "from whyidle.analyse.statistics import Estimate\n"
        "from whyidle.report.plot.batch_size import write_batch_sizes\n"
        "e = dict.fromkeys(TERMS, Estimate(1.0, 0.9, 1.1))\n"
        "v = BatchVerdict('none', None, '', 8, 16, {8: e, 16: e}, {}, e, {}, {8: 1, 16: 1}, 0.02)\n"
        f"write_batch_sizes({{'a': v}}, 'x', Path({str(tmp_path / 'a.png')!r}))\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_part_that_grew_is_shown_however_small() -> None:
    small = {8: (4000, 1, 0, 0, 0, 0), 32: (4000, 30, 0, 0, 0, 0)}
    assert sample_time.shown_parts([verdict(small)]) == ["compute", "input"]
    assert sample_time.shown_parts([verdict(small, grew=None)]) == ["compute"]
