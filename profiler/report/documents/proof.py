"""An advice that was tried: promised and measured speed side by side."""

from __future__ import annotations

from collections.abc import Iterator

from ...analyse.speedup import Speedup
from ...analyse.statistics import Estimate
from ...tune.prove import Proof
from ...tune.search.candidates import describe
from ..document import Block, Document, Heading, Paragraph, Space, TableColumn, Title, table
from ..words.figures import KEPT, factor
from .tuning import patched


def proof_document(what: str, told: Proof) -> Document:
    return Document(tuple(_blocks(what, told)))


def _blocks(what: str, told: Proof) -> Iterator[Block]:
    yield Title(f"{what}: {_verdict(told)}")
    yield Space()
    first = "The first advice" if told.advised.first else "The first advice that changes a loader setting"
    yield Heading(f"{first}, for {told.advised.cause}")
    yield Paragraph(told.advised.change.change, 1)
    yield Space()
    yield Heading("Tried")
    rows = [("promised", *_cells(told.promised), "90 %"), ("measured", *_cells(told.measured), "95 %")]
    columns = (
        TableColumn(""),
        TableColumn("speed-up", right=True),
        TableColumn("interval"),
        TableColumn("level", right=True),
    )
    yield table(rows, *columns, indent=1)
    settings = describe(told.advised.settings, told.baseline)
    rounds = f"{told.rounds} round{'s' * (told.rounds != 1)}"
    yield Paragraph(f"Measured in turns, {rounds}: {settings} against {describe(told.baseline)}.", 1)
    if told.why_not:
        yield Paragraph(f"Not measured: {told.why_not}.", 1)
    if told.patch is not None:
        yield Space()
        yield Heading("Change")
        yield from patched(told.patch)


def _verdict(told: Proof) -> str:
    if told.measured is None:
        return "the advice could not be tried"
    if told.promised is None:
        return f"{factor(told.measured.value)}× as fast; nothing was promised"
    return f"the promise was {KEPT[told.kept]}"


def _cells(times: Speedup | Estimate | None) -> tuple[str, str]:
    if times is None:
        return "n/a", ""
    return f"{factor(times.value)}×", f"{factor(times.low)}–{factor(times.high)}"
