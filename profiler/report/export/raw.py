"""Records as they were recorded: a table for each kind, with the fields of the record format, in constant memory.

Beside the fields stand the rank and the process that wrote the record, and in words what a number stands for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...record.names import read_names
from ...record.reader import Records
from ...record.run import Run
from ...record.schema import (
    BATCH,
    CONTENT,
    DEVICE,
    EVENT,
    HOST,
    PAUSE,
    SPAN,
    STEP,
    TRANSFORM,
    EventKind,
    Field,
    Kind,
    PauseKind,
    SpanKind,
)
from .table import Chunk, Column, Table

KINDS_OF_TABLES: dict[str, Kind] = {
    "batches": BATCH,
    "device": DEVICE,
    "host": HOST,
    "events": EVENT,
    "pauses": PAUSE,
    "transforms": TRANSFORM,
    "contents": CONTENT,
    "spans": SPAN,
    "step_records": STEP,
}
"""By the name of a table, the kind of record it holds."""

_WRITER = (
    Column("rank", "int", "count", "rank of the process that wrote the record"),
    Column("pid", "int", "count", "id of that process"),
)
_WHATS = {EVENT.name: EventKind, PAUSE.name: PauseKind, SPAN.name: SpanKind}
_NAMED = {TRANSFORM.name: "name", BATCH.name: "slowest_name"}
"""Fields that hold the number of a name."""


def words_of(kind: Kind) -> dict[int, str]:
    """Name what the numbers of the field `what` stand for; empty for kinds without one."""
    told = vars(_WHATS[kind.name]) if kind.name in _WHATS else {}
    return {value: name.lower() for name, value in told.items() if isinstance(value, int)}


def raw_table(name: str, runs: Sequence[Run]) -> Table:
    """The table of that name of `KINDS_OF_TABLES`, of all processes of these runs."""
    kind = KINDS_OF_TABLES[name]
    columns = [*_WRITER, *(_column(field) for field in kind.fields)]
    if words_of(kind):
        columns.append(Column("what_text", "text", "", "`what` in words"))
    if kind is EVENT:
        columns.append(Column("value_text", "text", "", "the phase's name, where the event is a phase"))
    if named := _NAMED.get(kind.name):
        columns.append(Column(f"{named}_text", "text", "", f"name for the number `{named}`"))
    return Table(name, tuple(columns), partial(_chunks, kind, tuple(runs)), about_of(runs[0].info))


def about_of(info: Mapping[str, Any]) -> dict[str, str]:
    """What a table of a run says of itself; `info`: run.json."""
    device, data = info.get("device") or {}, info.get("dataset")
    told = {
        "device_kind": device.get("kind"),
        "stand_in_data": data.get("stand_in") if isinstance(data, dict) else None,
    }
    return {name: str(value) for name, value in told.items() if value}


def _column(field: Field) -> Column:
    return Column(field.name, "float" if field.type == "f8" else "int", field.unit, field.meaning)


def _chunks(kind: Kind, runs: Sequence[Run]) -> Iterator[Chunk]:
    words = words_of(kind)
    for run in runs:
        names = read_names(run.folder) if kind is EVENT or kind.name in _NAMED else {}
        for header, records in run.chunks(kind):
            yield {
                "rank": np.full(len(records), header.rank, dtype=np.int64),
                "pid": np.full(len(records), header.pid, dtype=np.int64),
                **{field.name: records[field.name] for field in kind.fields},
                **_texts(kind, records, words, names),
            }


def _texts(
    kind: Kind, records: Records, words: Mapping[int, str], names: Mapping[int, str]
) -> dict[str, list[str | None]]:
    texts = {}
    if words:
        texts["what_text"] = [words.get(what) for what in records["what"].tolist()]
    if kind is EVENT:
        phase = (records["what"] == EventKind.PHASE).tolist()
        values = zip(phase, records["value"].tolist(), strict=True)
        texts["value_text"] = [names.get(value) if is_phase else None for is_phase, value in values]
    if named := _NAMED.get(kind.name):
        texts[f"{named}_text"] = [names.get(number) for number in records[named].tolist()]
    return texts
