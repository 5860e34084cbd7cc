"""What the batch size did, as text and as a picture, of sweeps made by hand."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from support.rendered import rendered
from whyidle.analyse.cells.batch_size import BatchVerdict, Work
from whyidle.analyse.cells.comparison import Comparison
from whyidle.analyse.run.stall_breakdown import PARTS, TERMS, TOTAL
from whyidle.analyse.statistics import Estimate
from whyidle.report.document import Document, Sweep
from whyidle.report.plot import SIZES, check_picture, save_picture

SVG = "{http://www.w3.org/2000/svg}"
GROWING = {8: (4000, 300, 20, 0, 90, 40), 16: (4000, 1500, 22, 0, 60, 40), 32: (3900, 2900, 25, 0, 40, 40)}
"""µs a sample of each part."""
MANY = {2**n: (20.0, n, 1.0, 1.0, 3.0, 1.0) for n in range(3, 11)}


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
        us = dict(zip((*PARTS, TOTAL), (*parts, sum(parts)), strict=True))
        terms[size] = {term: around(mean * times, mean * times / 100) for term, mean in us.items()}
    smaller, larger = min(rows), max(rows)
    half = 0.02 * terms[smaller][TOTAL].value
    changes = {term: around(terms[larger][term].value - terms[smaller][term].value, half) for term in TERMS}
    medians = {size: {term: estimate.value for term, estimate in of.items()} for size, of in terms.items()}
    work = {size: Work(2400, 2400 * terms[size][TOTAL].value / 1e6) for size in rows}
    counts = dict.fromkeys(rows, runs)
    return BatchVerdict(cause, grew, "input grew", smaller, larger, terms, medians, changes, work, counts, 0.013)


def drawn(loaders: dict[str, BatchVerdict], title: str, path: Path) -> None:
    save_picture(lambda: SIZES.draw(Comparison((), loaders, ()), {}, title), path)


def shown(found: BatchVerdict, width: int = 80, encoding: str = "utf-8") -> str:
    return rendered(Document((Sweep("caffe", found),)), width, encoding)


def rows_of(text: str) -> dict[str, list[str]]:
    """The words of each line behind its name: a term, or of the head `a`."""
    rows = {}
    for line in text.splitlines():
        words = line.split()
        if words[1:3] == ["a", "sample"]:
            rows["a"] = [words[0], *words[3:]]
        elif len(words) > 2 and words[1] in PARTS:
            rows[words[1]] = words[2:]
        elif words and words[0] in (TOTAL, "samples", "seconds"):
            rows[words[0]] = words[1:]
    return rows


@pytest.mark.parametrize(
    ("times", "unit", "figure"),
    [(0.005, "µs", "22.2"), (0.1, "µs", "445"), (1, "ms", "4.45"), (20, "ms", "89"), (450, "s", "2.00")],
)
def test_units_suit_the_time_per_sample(times: float, unit: str, figure: str) -> None:
    rows = rows_of(shown(verdict(times=times)))
    assert (rows["a"][0], rows[TOTAL][0]) == (unit, figure)


def test_what_is_not_known_is_not_a_zero_and_what_is_little_not_nothing() -> None:
    found = verdict()
    nothing = around(float("nan"), 0.0)
    terms = found.terms | {8: {term: each for term, each in found.terms[8].items() if term != "compute"}}
    terms |= {16: dict.fromkeys(TERMS, nothing)}
    lost = replace(found, terms=terms, changes=found.changes | {"compute": nothing}, work={8: found.work[8]})
    rows = rows_of(shown(lost))
    assert rows["compute"] == ["n/a", "n/a", "3.90", "n/a"]
    assert rows[TOTAL][1] == "n/a"
    assert rows["samples"] == ["measured", "2400", "n/a", "n/a"]
    narrow = replace(found, changes=found.changes | {TOTAL: around(2460, 1.0)})
    assert rows_of(shown(narrow))[TOTAL][3:] == ["+2.46", "±<0.01"]


@pytest.mark.parametrize("width", [60, 80, 160])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_it_fits_the_width_with_and_without_block_characters(width: int, encoding: str) -> None:
    text = shown(replace(verdict(MANY), text="input rises by 7 ± 1 µs [x]"), width, encoding)
    assert ("Input rises by 7 +- 1 us [x]." in text) == (encoding == "ascii")
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    rows = rows_of(text)
    # All sizes where there is room; the two that are compared, and what lies between them, everywhere.
    figures = rows["input"][: rows["input"].index("+7.0")]
    assert (figures[0], figures[-1]) == ("3.0", "10.0")
    assert (len(figures) == 8) == (width == 160)
    assert encoding != "ascii" or not set(text) & set("?█░▒▓▚▲→±µ")


def test_a_picture_names_what_it_shows_and_is_the_same_whatever_the_style(tmp_path: Path) -> None:
    import matplotlib

    flat = {8: (4000, 30, 0, 0, 60, 0), 32: (4000, 30, 0, 0, 60, 0)}
    loaders = {"caffe": verdict(), "a $1 & <2> loader": verdict(flat, "saturated", None)}
    drawn(loaders, "ssd on emulated V100", tmp_path / "batch.svg")
    words = ["".join(text.itertext()) for text in ElementTree.parse(tmp_path / "batch.svg").iter(f"{SVG}text")]
    named = {"ssd on emulated V100", "caffe", "loader_floor", "a $1 & <2> loader", "saturated", "time per sample (ms)"}
    assert named | {"batch size", "8", "16", "32", "compute", "host", "6.91"} <= set(words)
    assert words.count("input") == 1
    assert "copy" not in words
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": None, "axes.facecolor": "black"}):
        drawn(loaders, "ssd on emulated V100", tmp_path / "b.svg")
        assert matplotlib.rcParams["font.size"] == 30
    assert (tmp_path / "batch.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    check_picture(tmp_path / "a.SVG")


@pytest.mark.parametrize("loaders", [1, pytest.param(7, marks=pytest.mark.slow)])
def test_pictures_open_and_grow_with_what_they_show(tmp_path: Path, loaders: int) -> None:
    drawn({f"loader {n}": verdict(MANY) for n in range(loaders)}, "x" * 200, tmp_path / "batch.png")
    with Image.open(tmp_path / "batch.png") as image:
        assert image.width > 500 * min(loaders, 4)
        assert image.height > 500 * (1 + (loaders > 4))
        assert len(image.convert("RGB").getcolors(10**6)) > 50


def test_matplotlib_is_imported_only_to_draw_and_its_pyplot_never(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from whyidle.commands import main\n"
        "from whyidle.report import plot\n"
        "assert 'matplotlib' not in sys.modules\n"
        "trace = plot.UtilisationPanel('a', (50.0,) * 9, (), '')\n"
        f"plot.save_picture(lambda: plot.utilisation([trace], 'x'), Path({str(tmp_path / 'a.png')!r}))\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
