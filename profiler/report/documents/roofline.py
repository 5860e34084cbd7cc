"""How many samples a machine can prepare, part by part, and how close loaders come to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from typing import Any

from ...analyse.cells.comparison import Cell, place
from ...analyse.cells.studies import ASIDE, BESIDE, MAKING, NEAR, STORED, Roofline
from ...analyse.run.loader_stats import Timed
from ...analyse.where.stages import STAGES, Stages
from ...record.run import ImageDecoding
from ..document import Block, Caution, Document, Length, Paragraph, TableColumn, Title, line
from ..words.figures import NOT_MEASURED, counted, share
from .cells_table import column, new_section

TITLE = "How fast this machine can prepare these samples"
MOST_NOTICES = 3
BAR = 24
"""Signs of the longest bar."""
_KINDS = {MAKING: "", BESIDE: "in parallel", STORED: "instead of read", ASIDE: "not needed"}


def roofline_blocks(found: Sequence[Roofline], cells: Sequence[Cell] = ()) -> Iterator[Block]:
    """Make a table for each kind of samples, and say how close the closest of these cells comes."""
    differing = [name for name in found[0].place if len({each.place[name] for each in found}) > 1] if found else []
    for each in found:
        samples = ", ".join(said for name in differing if (said := place(name, each.place[name])))
        yield from new_section(f"{TITLE}: {samples}" if samples else TITLE, _columns(each))
        one, every = three_digits(each.one_core), three_digits(each.limit)
        why = f"{each.bound_by} sets it"
        if each.bound_by == MAKING:
            most = min((p for p in each.parts if p.kind == MAKING), key=lambda part: part.all_cores.value)
            why = f"{most.name} takes {share(each.limit / most.all_cores.value, 0)} of that time"
        yield Paragraph(f"Limit: {every} samples/s on {counted(each.cores, 'core')}, {one} on one; {why}.", 1)
        for stored in each.parts:
            if stored.kind == STORED and stored.all_cores.value < each.limit:
                rate = three_digits(stored.all_cores.value)
                yield Paragraph(f"For files that are not in memory the storage sets the limit: {rate} samples/s.", 1)
        yield Paragraph(f"Decoded by {each.decoder}, resized and coloured by {each.transformer}.", 1)
        for best, cell in each.reached(cells)[:1]:
            said = f"{cell.pipeline} at batch {cell.batch_size} comes closest: {share(best, 0)} of the limit."
            yield Paragraph(f"{said} No other loader would be much faster." if best >= NEAR else said, 1)


def roofline_document(found: Roofline, setting: Mapping[str, Any]) -> Document:
    """Make the output of `whyidle roofline`. `setting`: as its JSON has it."""
    data = setting["dataset"]
    said = f"{setting['what']}: {counted(data['samples'], data['unit'])}"
    if data.get("mean_bytes"):
        said += f", {data['mean_bytes'] / 1e3:.0f} kB on average"
    blocks: list[Block] = [Title(said)]
    if data.get("stand_in"):
        blocks.append(Caution("Stand-in data", f"generated, in place of {data['stand_in']}."))
    blocks += [Caution("Data", notice) for notice in setting["notices"][:MOST_NOTICES]]
    return Document((*blocks, *roofline_blocks([found])))


def _columns(found: Roofline) -> Iterator[TableColumn]:
    """List its parts in the order in which they happen, those that are not needed last."""
    parts = sorted(found.parts, key=lambda part: list(_KINDS).index(part.kind))
    longest = max(1 / part.all_cores.value for part in parts)
    yield TableColumn("part", [part.name for part in parts])
    yield column("one core", parts, lambda part: three_digits(part.one_core.value))
    yield column(counted(found.cores, "core"), parts, lambda part: three_digits(part.all_cores.value))
    yield column("core ms", parts, lambda part: f"{found.cores * 1e3 / part.all_cores.value:.3f}")
    yield TableColumn("", [line(Length(round(BAR / part.all_cores.value / longest))) for part in parts], goes=2)
    yield TableColumn("", [_KINDS[part.kind] for part in parts], goes=1)


def decoding_words(
    found: ImageDecoding, samples_per_s: float | None, stages: Stages | None, timed: Timed | None
) -> str:
    """Say how fast a training's images can be decoded, how many it uses, and what takes most of
    preparing them, by stack samples or, without those, by timed calls of transforms."""
    on = counted(found.cores, "core")
    can = f"can decode {three_digits(found.all_cores)} of these images per second ({on}, {found.decoder})"
    if samples_per_s is None:
        return f"This machine {can}."
    taken = samples_per_s / found.all_cores
    limit = "nearly the limit" if taken >= NEAR else "not the limit"
    uses = f"the training uses {three_digits(samples_per_s)} ({share(taken, 0)})"
    said = f"This machine's decoding speed is {limit}: it {can}; {uses}."
    if taken < NEAR and stages is not None and (most := stages.costliest) is not None:
        return f"{said} {STAGES[most[0]].capitalize()} takes {share(most[1], 0)} of {stages.time}."
    if taken < NEAR and timed is not None and timed.transforms_ms_per_sample > 0:
        part = min(1.0, timed.transforms_ms_per_sample / timed.ms_per_sample)
        return f"{said} Transforms take {share(part, 0)} of preparing a sample."
    return said


def three_digits(value: float) -> str:
    """Write three digits or more."""
    return NOT_MEASURED if isnan(value) else f"{value:.0f}" if value >= 100 else f"{value:.3g}"
