"""How many samples a machine can prepare, part by part, and how close loaders come to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...analyse.cells.axes import place
from ...analyse.cells.comparison import Cell
from ...analyse.cells.roofline import (
    ASIDE,
    BESIDE,
    MAKING,
    NEAR,
    STORED,
    LoadingPart,
    PlacedRoofline,
    Roofline,
    limit_of,
)
from ...analyse.run.loader_stats import Timed
from ...analyse.statistics import Range
from ...analyse.where.stage_shares import Stages
from ...analyse.where.stages import HANDING_STAGES, STAGES
from ...record.run import ImageDecoding
from ..document import Block, Caution, Document, FittingColumn, FittingTable, Heading, Paragraph, Space, Title, under
from ..phrase import Length, line
from ..words.figures import counted, share

TITLE = "How fast this machine can prepare these samples"
MOST_NOTICES = 3
BAR = 24
"""Signs of the longest bar."""
_KINDS = {MAKING: "", BESIDE: "in parallel", STORED: "instead of read", ASIDE: "not needed"}


def roofline_blocks(found: Sequence[PlacedRoofline], cells: Sequence[Cell] = ()) -> Iterator[Block]:
    """Make a table for each kind of samples, and say how close the closest of these cells comes."""
    for each in found:
        yield Space()
        yield Heading(heading(each, found))
        yield from under([table(each.roofline)])
        yield Paragraph(limit_words(each.roofline), 1)
        yield from (Paragraph(said, 1) for said in _stored(each.roofline))
        yield Paragraph(f"Decoded by {each.decoder}, resized and coloured by {each.transformer}.", 1)
        if said := _nearest(each, cells):
            yield Paragraph(said, 1)


def roofline_document(found: PlacedRoofline, what: str, facts: Mapping[str, Any]) -> Document:
    """Make the output of `whyidle roofline`. `facts`: `dataset` as the data describe themselves, and `notices`."""
    data = facts["dataset"]
    said = f"{what}: {counted(data['samples'], data['unit'])}"
    if data.get("mean_bytes"):
        said += f", {data['mean_bytes'] / 1e3:.0f} kB on average"
    blocks: list[Block] = [Title(said)]
    if data.get("stand_in"):
        blocks.append(Caution("Stand-in data", f"generated, in place of {data['stand_in']}."))
    blocks += [Caution("Data", notice) for notice in facts["notices"][:MOST_NOTICES]]
    return Document((*blocks, *roofline_blocks([found])))


def heading(each: PlacedRoofline, among: Sequence[PlacedRoofline]) -> str:
    """Name the table, and of several the samples that it is about."""
    where = _place(each, among)
    return f"{TITLE}: {where}" if where else TITLE


def table(found: Roofline) -> FittingTable:
    """List its parts in the order in which they happen, those that are not needed last."""
    parts = sorted(found.parts, key=lambda part: list(_KINDS).index(part.kind))
    longest = max(1 / part.all.value for part in parts)
    return FittingTable(
        (
            FittingColumn("part", [part.name for part in parts]),
            FittingColumn("one core", [rate(part.one) for part in parts], right=True),
            FittingColumn(counted(found.cores, "core"), [rate(part.all) for part in parts], right=True),
            FittingColumn("core ms", [f"{_core_ms(part, found):.3f}" for part in parts], right=True),
            FittingColumn("", [line(Length(round(BAR / part.all.value / longest))) for part in parts], goes=2),
            FittingColumn("", [_KINDS[part.kind] for part in parts], goes=1),
        )
    )


def limit_words(found: Roofline) -> str:
    """Say the limit in a sentence."""
    said = f"Limit: {_number(found.all)} samples/s on {counted(found.cores, 'core')}, {_number(found.one)} on one"
    if found.bound_by != MAKING:
        return f"{said}; {found.bound_by} sets it."
    making = found.making
    most = max(making, key=lambda part: 1 / part.all.value)
    return f"{said}; {most.name} takes {share(found.all / most.all.value, 0)} of that time."


def _stored(found: Roofline) -> Iterator[str]:
    """Say where the storage is the limit."""
    for part in found.parts:
        if part.kind == STORED and part.all.value < found.all:
            yield f"For files that are not in memory the storage sets the limit: {rate(part.all)} samples/s."


def of_limit(cell: Cell, among: Sequence[PlacedRoofline]) -> str:
    """Write `88 %`; nothing for a cell that has no limit, or did not run."""
    found = limit_of(cell, among)
    reached = None if found is None else found.share(cell)
    return "" if reached is None else share(reached, 0)


def decoding_words(
    found: ImageDecoding, samples_per_s: float | None, stages: Stages | None, timed: Timed | None
) -> str:
    """Say how fast a training's images can be decoded, how many it uses, and what takes most of preparing them, by
    stack samples or, without those, by timed calls of transforms."""
    on = counted(found.cores, "core")
    can = f"can decode {_number(found.all_cores)} of these images per second ({on}, {found.decoder})"
    if samples_per_s is None:
        return f"This machine {can}."
    taken = samples_per_s / found.all_cores
    limit = "nearly the limit" if taken >= NEAR else "not the limit"
    uses = f"the training uses {_number(samples_per_s)} ({share(taken, 0)})"
    said = f"This machine's decoding speed is {limit}: it {can}; {uses}."
    if taken < NEAR and stages is not None and (most := stages.costliest) is not None:
        return f"{said} {(STAGES | HANDING_STAGES)[most[0]].capitalize()} takes {share(most[1], 0)} of {stages.time}."
    if taken < NEAR and timed is not None and timed.transforms_ms_per_sample > 0:
        part = min(1.0, timed.transforms_ms_per_sample / timed.ms_per_sample)
        return f"{said} Transforms take {share(part, 0)} of preparing a sample."
    return said


def rate(found: Range) -> str:
    """Samples/s."""
    return _number(found.value)


def _nearest(each: PlacedRoofline, cells: Sequence[Cell]) -> str:
    reached = [(part, cell) for cell in cells if each.is_of(cell) and (part := each.share(cell)) is not None]
    if not reached:
        return ""
    best, cell = max(reached, key=lambda pair: pair[0])
    said = f"{cell.pipeline} at batch {cell.batch_size} comes closest: {share(best, 0)} of the limit."
    return f"{said} No other loader would be much faster." if best >= NEAR else said


def _place(each: PlacedRoofline, among: Sequence[PlacedRoofline]) -> str:
    """Say where it differs from the others."""
    differing = [name for name in each.place if len({other.place[name] for other in among}) > 1]
    return ", ".join(said for name in differing if (said := place(name, each.place[name])))


def _core_ms(part: LoadingPart, found: Roofline) -> float:
    return found.cores * 1e3 / part.all.value


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
