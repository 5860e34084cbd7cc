"""What a machine could make of samples, part by part, and how near loaders come to it."""

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
from ...record.image_files import ImageDecoding
from ..document import Block, Caution, Document, FittingColumn, FittingTable, Heading, Paragraph, Space, Title, under
from ..phrase import Length, line
from ..words.figures import counted, share

TITLE = "What this machine could do with these samples"
MOST_NOTICES = 3
BAR = 24
"""Signs of the longest bar."""
_KINDS = {MAKING: "", BESIDE: "beside", STORED: "in place of read", ASIDE: "not needed"}


def roofline_blocks(found: Sequence[PlacedRoofline], cells: Sequence[Cell] = ()) -> Iterator[Block]:
    """A table for each kind of samples, and how near the nearest of these cells comes."""
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
    """What `whyidle roofline` says. `facts`: of the data: `dataset` as they describe themselves, and `notices`."""
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
    """Of what it is said; where there are several, of which samples."""
    where = _place(each, among)
    return f"{TITLE}: {where}" if where else TITLE


def table(found: Roofline) -> FittingTable:
    """Its parts in the order in which they are done, those that are not needed last."""
    parts = sorted(found.parts, key=lambda part: list(_KINDS).index(part.kind))
    longest = max(1 / part.all.value for part in parts)
    return FittingTable(
        (
            FittingColumn("part", [part.name for part in parts]),
            FittingColumn("one core", [rate(part.one) for part in parts], right=True),
            FittingColumn(counted(found.cores, "core"), [rate(part.all) for part in parts], right=True),
            FittingColumn("ms of a core", [f"{_core_ms(part, found):.3f}" for part in parts], right=True),
            FittingColumn("", [line(Length(round(BAR / part.all.value / longest))) for part in parts], goes=2),
            FittingColumn("", [_KINDS[part.kind] for part in parts], goes=1),
        )
    )


def limit_words(found: Roofline) -> str:
    """The limit in a sentence."""
    said = f"Limit: {_number(found.all)} samples/s on {counted(found.cores, 'core')}, {_number(found.one)} on one"
    if found.bound_by != MAKING:
        return f"{said}; {found.bound_by} bounds it."
    making = found.making
    most = max(making, key=lambda part: 1 / part.all.value)
    return f"{said}; {share(found.all / most.all.value, 0)} of that time is {most.name}."


def _stored(found: Roofline) -> Iterator[str]:
    """Where the storage would be the limit."""
    for part in found.parts:
        if part.kind == STORED and part.all.value < found.all:
            yield f"Of files that are not in memory the storage gives {rate(part.all)} a second, and bounds it."


def of_limit(cell: Cell, among: Sequence[PlacedRoofline]) -> str:
    """`88 %`; nothing of a cell that has no limit, or did not run."""
    found = limit_of(cell, among)
    reached = None if found is None else found.share(cell)
    return "" if reached is None else share(reached, 0)


def decoding_words(
    found: ImageDecoding, samples_per_s: float | None, stages: Stages | None, timed: Timed | None
) -> str:
    """How fast a training's images could be decoded, how many it takes, and what of making them takes most, as looks
    at stacks or, without those, timed calls of transforms tell."""
    on = counted(found.cores, "core")
    said = f"This machine could decode {_number(found.all_cores)} of these images a second ({on}, {found.decoder})."
    if samples_per_s is None:
        return said
    taken = samples_per_s / found.all_cores
    said = f"{said} The training takes {_number(samples_per_s)}, {share(taken, 0)} of that"
    if taken >= NEAR:
        return f"{said}."
    if stages is not None and (most := stages.costliest) is not None:
        return f"{said}; of {stages.time} {share(most[1], 0)} is {(STAGES | HANDING_STAGES)[most[0]]}."
    if timed is not None and timed.transforms_ms_per_sample > 0:
        part = min(1.0, timed.transforms_ms_per_sample / timed.ms_per_sample)
        return f"{said}; of the time that making a sample takes {share(part, 0)} is transforming."
    return f"{said}."


def rate(found: Range) -> str:
    """Samples/s."""
    return _number(found.value)


def _nearest(each: PlacedRoofline, cells: Sequence[Cell]) -> str:
    reached = [(part, cell) for cell in cells if each.is_of(cell) and (part := each.share(cell)) is not None]
    if not reached:
        return ""
    best, cell = max(reached, key=lambda pair: pair[0])
    said = f"{cell.pipeline} at batch {cell.batch_size} comes nearest: {share(best, 0)} of the limit."
    return f"{said} Another loader would hardly be faster." if best >= NEAR else said


def _place(each: PlacedRoofline, among: Sequence[PlacedRoofline]) -> str:
    """Where it differs from the others."""
    differing = [name for name in each.place if len({other.place[name] for other in among}) > 1]
    return ", ".join(said for name in differing if (said := place(name, each.place[name])))


def _core_ms(part: LoadingPart, found: Roofline) -> float:
    return found.cores * 1e3 / part.all.value


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
