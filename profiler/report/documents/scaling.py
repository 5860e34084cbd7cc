"""What more ranks bring, as tables: samples/s of the whole job, speed-up and efficiency."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...analyse.cells.axes import feed_of
from ...analyse.cells.scaling import Curve, Held, Point, Scaling
from ...analyse.statistics import Range
from ..document import Block, FittingColumn, FittingTable, Heading, Paragraph, Space, under
from ..words.figures import NOT_MEASURED, share
from .cells_table import figures, head

HELD: dict[Held, str] = {
    "per rank": "Speed-up by ranks, each with the same batch size",
    "total": "Speed-up by ranks, with the same batch size in total",
}
EXCHANGE = (
    "exchange: time of the gradient exchange in a step, computed from the interconnect's nominal figure; none of it is "
    "assumed to hide behind the backward pass."
)
WAIT_GOES, RATES_GO, SPEEDUPS_GO, EXCHANGE_GOES = 4, 3, 2, 1
"""Order in which columns go in a narrow terminal: the highest first."""


def scaling_blocks(scaling: Scaling) -> Iterator[Block]:
    """Make a table for each way of holding the batch size, with the reasons for missing figures."""
    for held, title in HELD.items():
        for emulated in (False, True):
            curves = [curve for curve in scaling.of(held) if curve.emulated == emulated]
            if not curves:
                continue
            yield Space()
            yield Heading(title)
            yield from under([_table(curves, emulated)])
            for reason in dict.fromkeys(_reasons(curves)):
                yield Paragraph(f"n/a: {reason}", 1)
            if any(point.exchange_ms is not None for curve in curves for point in curve.points):
                yield Paragraph(EXCHANGE, 1)


def names(curves: Sequence[Curve]) -> list[str]:
    """Name what tells each from the others beside its batch size; nothing where that is all."""
    parts = [(curve.place, _loader(curve), curve.interconnect or "") for curve in curves]
    differing = [number for number in range(3) if len({each[number] for each in parts}) > 1]
    return [" ".join(word for number in differing if (word := each[number])) for each in parts]


def _loader(curve: Curve) -> str:
    return "" if feed_of(curve.points[0].cell) == "synthetic" else curve.pipeline


def ranged(ratio: Range | None, scale: float = 1.0, digits: int = 2, unit: str = "", wide: bool = True) -> str:
    """`1.92 (1.85-1.99)`."""
    if ratio is None:
        return NOT_MEASURED
    said = f"{scale * ratio.value:.{digits}f}{unit}"
    if not wide or not ratio.repeated:
        return said
    return f"{said} ({scale * ratio.low:.{digits}f}-{scale * ratio.high:.{digits}f})"


def _table(curves: Sequence[Curve], emulated: bool) -> FittingTable:
    points = [point for curve in curves for point in curve.points]
    told = [
        said if point is curve.points[0] else ""
        for curve, said in zip(curves, names(curves), strict=True)
        for point in curve.points
    ]
    columns = [
        figures("batch", points, lambda p: str(p.batch_size)),
        figures("ranks", points, lambda p: str(p.ranks)),
        FittingColumn(
            head("samples/s", emulated),
            [_rate(point, wide=True) for point in points],
            right=True,
            goes=RATES_GO,
            instead=figures(head("samples/s", emulated), points, _rate),
        ),
        FittingColumn(
            head("speed-up", emulated),
            [_speedup(point, wide=True) for point in points],
            right=True,
            goes=SPEEDUPS_GO,
            instead=figures(head("speed-up", emulated), points, _speedup),
        ),
        figures(head("efficiency", emulated), points, lambda p: _blank(p) or ranged(p.efficiency, 100, 0, " %", False)),
    ]
    if any(point.waiting_share is not None for point in points):
        columns.append(figures("wait", points, _wait, WAIT_GOES))
    if any(point.exchange_ms is not None for point in points):
        columns.append(figures("exchange", points, _exchange, EXCHANGE_GOES))
    if any(told):
        columns.insert(0, FittingColumn("", told, folds_to=10))
    return FittingTable(tuple(columns))


def _rate(point: Point, wide: bool = False) -> str:
    if point.rate is None:
        return "OOM" if point.cell.status == "oom" else point.cell.status
    rate = point.rate
    ranged = f" ({rate.low:.0f}-{rate.high:.0f})" if wide and len(point.cell.analyses) > 1 else ""
    return f"{rate.value:.1f}{ranged}"


def _blank(point: Point) -> str:
    """Mark the columns of a cell without a rate."""
    return "-" if point.rate is None else ""


def _speedup(point: Point, wide: bool = False) -> str:
    return _blank(point) or ranged(point.speedup, wide=wide)


def _wait(point: Point) -> str:
    return "" if point.waiting_share is None else share(point.waiting_share, 0)


def _exchange(point: Point) -> str:
    return "" if point.exchange_ms is None else f"{point.exchange_ms:.1f} ms"


def _reasons(curves: Sequence[Curve]) -> Iterator[str]:
    for curve in curves:
        yield from (point.why for point in curve.points if point.why and point.rate is not None)
