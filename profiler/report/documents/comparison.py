"""A comparison in words: the table, why the fastest is fastest, what limits each training, what the batch size does.

The differential test in words: net alone, loader alone, both together; and what augmentation costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...analyse.cells.augmentation import FREE, Augmentation, augmentations, free_on_one_device
from ...analyse.cells.axes import feed_of, label, varying
from ...analyse.cells.batch_size.result import BatchVerdict
from ...analyse.cells.cell_costs import samples_of
from ...analyse.cells.comparison import Cell, Comparison
from ...analyse.cells.differential import AGREES_WITHIN, Differential, differentials, foreign_cpus, machine_cpus
from ...analyse.cells.roofline import rooflines
from ...analyse.cells.scaling import scaling
from ...analyse.statistics import Range
from ..document import (
    Block,
    Caution,
    Document,
    FittingColumn,
    FittingTable,
    Heading,
    Paragraph,
    SizesOfBatch,
    Space,
    TableBlock,
    TableColumn,
    Title,
    emulated_device,
    table,
    under,
)
from ..phrase import line, plain_words, toned
from ..words.code import command_line
from ..words.figures import NOT_MEASURED, counted
from ..words.sample_time import sentence
from . import brief
from .cells_table import axes_shown, by_batch_size, figures, in_words, namer, place_columns, table_of
from .cost import cost_blocks
from .roofline import roofline_blocks
from .scaling import scaling_blocks
from .training_results import training_results_blocks
from .winners import group_verdicts, group_winners

LIMITS = {"net": "net", "loader": "loader", "both": "both", None: ""}
FOREIGN = "foreign_load"
MOST_OFF = 8
"""Trainings named one by one, of those whose time is not the expected one."""
LITTLE = 0.005
"""Less than this is written as no difference."""


def differential_blocks(cells: Sequence[Cell], setting: dict[str, Any]) -> Iterator[Block]:
    """What there is of both; nothing where the cells allow neither."""
    tested = differentials(cells)
    both = [each for each in tested if each.expected is not None]
    emulated = "emulated " if setting["device"]["kind"] == "emulated" else ""
    if both:
        yield Space()
        yield Heading(f"Net alone, loader alone, and both: {emulated}samples/s")
        yield from under([_table(both, setting)])
        yield Paragraph(summary(both), 1)
        yield from _unexpected(both)
    dearer = augmentations(cells, tested, setting)
    if dearer:
        yield Space()
        yield Heading(f"What augmentation costs{f' ({emulated}device)' if emulated else ''}")
        yield from under([_augmented(dearer)])
        if (why := unsure(dearer)) is not None:
            yield Paragraph(toned(why, "yellow"), 1)
        if (said := contrast(dearer)) is not None:
            yield Paragraph(said, 1)


def _table(tested: Sequence[Differential], setting: dict[str, Any]) -> FittingTable:
    cells = [each.cell for each in tested]
    epochs = [samples_of(cell, setting) for cell in cells]
    return FittingTable(
        (
            *place_columns(cells),
            figures("net\nalone", tested, lambda each: _rate(each.net)),
            figures("loader\nalone", tested, lambda each: _rate(each.loader)),
            figures("expected", tested, lambda each: _rate(each.expected), goes=1),
            figures("measured", tested, lambda each: _rate(each.measured)),
            figures("extra\ntime", tested, lambda each: _deviation(each.deviation)),
            FittingColumn("limit", [_limit(each) for each in tested]),
            FittingColumn(
                "s/epoch expected",
                [_seconds(number, each.expected) for number, each in zip(epochs, tested, strict=True)],
                right=True,
                goes=3,
            ),
            FittingColumn(
                "measured s",
                [_seconds(number, each.measured) for number, each in zip(epochs, tested, strict=True)],
                right=True,
                goes=2,
            ),
        )
    )


def summary(tested: Sequence[Differential]) -> str:
    """Say how well the two limits explain the trainings, and which of them limits how many."""
    agree = sum(bool(each.agrees) for each in tested)
    overlapping = {each.overlaps for each in tested}
    time = {True: "The slower of the two", False: "The sum of the two"}
    rule = time[overlapping.pop()] if len(overlapping) == 1 else "The slower of the two, or without overlap their sum,"
    said = f"{rule} predicts the time of {agree} of {len(tested)} trainings within {100 * AGREES_WITHIN:.0f} %."
    for limit, words in (("loader", "The loader is the limit"), ("net", "The net is the limit")):
        if number := sum(each.limit == limit for each in tested):
            said += f" {words} in {number} of {len(tested)}."
    return said


def _unexpected(tested: Sequence[Differential]) -> Iterator[Block]:
    """List those whose time is not the expected one, each with the likely reason."""
    off = [each for each in tested if each.agrees is False]
    if not off:
        return
    name = namer([each.cell for each in tested])
    # In the way of many alike, and the same advice each time.
    crowded = {reason.text for each in off for reason in each.reasons if reason.code == FOREIGN}
    others = f" ({max(crowded)})" if crowded else ""
    yield Paragraph(toned(f"Not as expected{others}:", "yellow"), 1)
    worst = sorted(off, key=lambda each: -abs(each.deviation or 0.0))
    for each in worst[:MOST_OFF]:
        deviation = each.deviation or 0.0
        took = "longer" if deviation > 0 else "shorter"
        reasons = "; ".join(reason.text for reason in each.reasons if reason.code != FOREIGN)
        said = f"{name(each.cell)} takes {abs(100 * deviation):.0f} % {took}{f': {reasons}' if reasons else ''}."
        yield Paragraph(said, 2)
    if len(worst) > MOST_OFF:
        yield Paragraph(f"And {len(worst) - MOST_OFF} more are off by less.", 2)


def _augmented(found: Sequence[Augmentation]) -> FittingTable:
    cells = [each.cell for each in found]
    return FittingTable(
        (
            *place_columns(cells),
            figures("plain s/epoch", found, lambda each: _number(each.plain_s), goes=1),
            figures("augmented", found, lambda each: _number(each.augmented_s), goes=1),
            figures("augmentation", found, cost_in_words),
            FittingColumn("limit", [LIMITS[each.limit] for each in found] if any(each.limit for each in found) else ()),
        )
    )


def cost_in_words(found: Augmentation) -> str:
    """`free`, `+49 %`; with a question mark where repeats differ by as much, or too little was run."""
    if abs(found.cost) < FREE:
        return "free" if found.doubt is None else "free ?"
    return f"{100 * found.cost:+.0f} %{'' if found.sure else ' ?'}"


def unsure(found: Sequence[Augmentation]) -> str | None:
    """Say why figures have a question mark; `None` where none has."""
    doubts = [each.doubt or "runs differ by as much" for each in found if cost_in_words(each).endswith("?")]
    said = ", or ".join(dict.fromkeys(doubts))
    return f"A figure with ? is uncertain: {said}. Repeat with longer runs, several of each." if doubts else None


def contrast(found: Sequence[Augmentation]) -> str | None:
    """Say that augmentation is free on one device and not on another; `None` where no training shows it."""
    said = []
    for free, dear in free_on_one_device(found):
        because = ", where the loader is the limit" if dear.limit == "loader" else ""
        said.append(
            f"{dear.cell.axes.get('net') or 'The net'}, same code and data: augmentation is free on "
            f"{label(free.cell, ('device',))} and costs {100 * dear.cost:.0f} % on {label(dear.cell, ('device',))}"
            f"{because}."
        )
    return " ".join([*said, "A slow device hides what limits a fast one."]) if said else None


def _limit(found: Differential) -> str:
    return LIMITS[found.limit] + (" (no overlap)" if found.limit is not None and not found.overlaps else "")


def _deviation(share: float | None) -> str:
    if share is None:
        return NOT_MEASURED
    return f"{100 * share:+.0f} %" if abs(share) >= LITTLE else "0 %"


def _rate(rate: Range | None) -> str:
    return NOT_MEASURED if rate is None else _number(rate.value)


def _seconds(samples: int | None, rate: Range | None) -> str:
    return NOT_MEASURED if samples is None or rate is None else _number(samples / rate.value)


def _number(value: float | None) -> str:
    """Three digits or more."""
    if value is None:
        return NOT_MEASURED
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def batch_size_blocks(verdicts: Mapping[str, BatchVerdict]) -> Iterator[Block]:
    """One block a loader."""
    for number, (name, verdict) in enumerate(verdicts.items()):
        if number:
            yield Space()
        yield SizesOfBatch(name, verdict)


MOST_ROWS, SCREEN = 12, 36
"""Of the short version: rows of its table, and lines in all."""
MOST_PLACES = 6
"""Of more cells with the same error only the number is shown."""
SIZES = "What the batch size did"
ONE_SIZE = "No loader ran with two batch sizes: these runs say nothing about the batch size."


def comparison_document(result: Comparison, setting: dict[str, Any]) -> Document:
    """All of it."""
    return Document(tuple(_blocks(result, setting)), tuple(_brief(result, setting)))


def _head(result: Comparison, setting: dict[str, Any]) -> Iterator[Block]:
    yield Title(comparison_title(result, setting))
    yield from head(result, setting)
    yield Space()
    for notice in notices(result, setting):
        yield Paragraph(toned(notice, "yellow"))
        yield Space()


def _brief(result: Comparison, setting: dict[str, Any]) -> Iterator[Block]:
    """One screen: the question, the table, the answer."""
    main = list(_main(result, setting))
    yield from main
    yield from _while_room(studied(result, setting), SCREEN - sum(map(_height, main)))


def _main(result: Comparison, setting: dict[str, Any]) -> Iterator[Block]:
    yield from _head(result, setting)
    of = "Emulated samples/s" if setting["device"]["kind"] == "emulated" else "Samples/s"
    yield Heading(f"{of} (range), and the share of time that the device is busy")
    yield by_batch_size(result.cells, MOST_ROWS)
    yield from (Paragraph(toned(words, "yellow"), 1) for words in list(errors(result))[: brief.MOST])
    yield from winners(result, setting)
    if told := list(sweeps(result).items()):
        yield Space()
        yield Heading(SIZES)
        for name, verdict in told[:MOST_PLACES]:
            said = ". ".join(sentence(verdict).split(". ")[: 1 + (verdict.grew is not None)]).rstrip(".")
            yield Paragraph(line((name, "bold"), f": {said} ", (f"[{verdict.cause}]", "bold")), 1)
    elif setting["scenario"] is None:
        yield Space()
        yield Paragraph(ONE_SIZE)


def _while_room(blocks: Iterable[Block], room: int) -> Iterator[Block]:
    """The first sections that fit into so many lines, as they are on a terminal of common width."""
    section: list[Block] = []
    for block in (*blocks, Space()):
        if isinstance(block, Space):
            if (room := room - sum(map(_height, section))) < 0:
                return
            yield from section
            section = []
        section.append(block)


def _height(block: Block) -> int:
    if isinstance(block, Paragraph):
        return 1 + len(plain_words(block.words)) // 95
    return len(block.columns[0].cells) + 2 if isinstance(block, FittingTable) else 1


def _blocks(result: Comparison, setting: dict[str, Any]) -> Iterator[Block]:
    emulated = setting["device"]["kind"] == "emulated"
    yield from _head(result, setting)
    yield table_of(result.cells, emulated, runs="budget" in setting, legend=True, limits=rooflines(setting))
    if wrong := list(errors(result)):
        yield Space()
        yield from (Paragraph(toned(words, "yellow")) for words in wrong)
    yield from winners(result, setting)
    yield from findings(result, setting)
    if told := sweeps(result):
        yield Space()
        yield Heading(SIZES)
        yield from batch_size_blocks(told)
    elif setting["scenario"] is None:
        yield Space()
        yield Paragraph(ONE_SIZE)


def head(result: Comparison, setting: dict[str, Any]) -> Iterator[Block]:
    """Give the question, the data and the conditions."""
    if question := setting.get("question"):
        yield Paragraph(question)
    yield from cautions(result, setting)
    yield _runs(result.cells) if setting["scenario"] is None else Paragraph(_conditions(result, setting))


def notices(result: Comparison, setting: dict[str, Any]) -> Iterator[str]:
    """What to know before reading the figures."""
    yield from setting.get("notices", ())
    runs = [facts for cell in result.cells for facts in cell.facts]
    if (used := foreign_cpus(runs)) is not None:
        cpus = machine_cpus(runs)
        of_all = "CPUs" if cpus is None else f"of {counted(cpus, 'CPU')}"
        yield (f"Other programs used up to {used:.1f} {of_all} while this ran: expect other rates on a quiet machine.")


def winners(result: Comparison, setting: dict[str, Any]) -> Iterator[Block]:
    """Which cells are fastest, and why."""
    if wins := list(group_winners(result, setting["device"]["kind"])):
        yield Space()
        recorded = setting["scenario"] is None
        yield Heading("Which is fastest, and why" if recorded else "Which loader is fastest, and why")
        yield from wins


def studied(result: Comparison, setting: dict[str, Any]) -> Iterator[Block]:
    """What the cells say together, each part below a line in bold."""
    if (found := scaling(result.cells)) is not None:
        yield from scaling_blocks(found)
    yield from differential_blocks(result.cells, setting)
    yield from training_results_blocks(result, setting)
    yield from cost_blocks(result.cells, setting)
    yield from roofline_blocks(rooflines(setting), result.cells)


def findings(result: Comparison, setting: dict[str, Any]) -> Iterator[Block]:
    """The same, and what each waits for."""
    yield from studied(result, setting)
    if waits := list(group_verdicts(result)):
        yield Space()
        yield Heading("What each training waits for")
        yield from waits


def comparison_title(result: Comparison, setting: dict[str, Any]) -> str:
    """What was compared, on what."""
    device = setting["device"]["title"]
    if setting["scenario"] is None:
        told = _of_runs(result)
        parts: list[str | None] = [counted(sum(len(cell.runs) for cell in result.cells), "recorded run")]
    else:
        told = _datasets(setting)
        parts = [setting["scenario"], setting.get("experiment"), setting.get("net")]
    stands_in = any(each.get("stand_in") for each in told.values())
    return f"{' · '.join(part for part in parts if part)} on {device}{', stand-in data' * stands_in}"


def device_kind(cell: Cell, setting: Mapping[str, Any]) -> str:
    """Of the device a cell ran on; of one that did not run, of the comparison's."""
    told = ((a.info.get("device") or {}).get("kind") for a in cell.analyses)
    return str(next((kind for kind in told if kind), setting["device"]["kind"]))


def cautions(result: Comparison, setting: dict[str, Any]) -> Iterator[Caution]:
    """Warn that data or devices are not real, above every figure that they gave."""
    for net, told in (_datasets(setting) or _of_runs(result)).items():
        if stand_in := told.get("stand_in"):
            yield Caution("Stand-in data", f"generated, in place of {stand_in}.", f"({net})" if net else "")
    if any(device_kind(cell, setting) == "emulated" for cell in result.cells):
        yield emulated_device()


def _datasets(setting: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The data by net; of no net in particular where all train on the same."""
    several: dict[str, dict[str, Any]] = setting.get("datasets") or {}
    if several or setting["scenario"] is not None:
        return several or {"": setting.get("dataset") or {}}
    return {}


def _of_runs(result: Comparison) -> dict[str, dict[str, Any]]:
    """The data by net, as recorded runs tell them."""
    infos = [analysis.info for cell in result.cells for analysis in cell.analyses]
    return {str((info.get("trial") or {}).get("net") or ""): info["dataset"] for info in infos if info.get("dataset")}


def _runs(cells: tuple[Cell, ...]) -> TableBlock:
    """The recorded runs, each with its command."""
    rows = (
        (folder, f"batch {cell.batch_size}", command_line(analysis.info.get("command")))
        for cell in cells
        for folder, analysis in zip(cell.runs, cell.analyses, strict=True)
    )
    return table(rows, TableColumn(folds=True), TableColumn(wraps=False), TableColumn(folds=True))


def _conditions(result: Comparison, setting: dict[str, Any]) -> str:
    """Say what was run, in one or two lines; the table shows what cells differ in."""
    differing = varying(result.cells)
    interleaved = " in interleaved rounds" if setting["repeats"] > 1 else ""
    said = list(dict.fromkeys(_samples(told) for told in _datasets(setting).values()))
    said += [f"{counted(number, unit[:-1])} a run" for unit, number in (setting.get("stop") or {}).items()]
    plans = list(dict.fromkeys(cell.axes.get("plan") for cell in result.cells))
    if plans not in ([], [None]) and "plan" not in differing:
        said.append(f"plan {plans[0]}")
    if differing:
        # Where they do not differ, the table leaves them out.
        said += [
            f"loader {one}" for one in _only(cell.pipeline for cell in result.cells if feed_of(cell) != "synthetic")
        ]
        said += [f"batch {one}" for one in _only(cell.batch_size for cell in result.cells)]
    fewer = "at most " if (setting.get("budget") or {}).get("runs_left_out") else ""
    said.append(f"{fewer}{counted(setting['repeats'], 'run')} a cell{interleaved}")
    said.append(counted(setting["cpu_budget"], "CPU"))
    if setting.get("workers") is not None:
        said.append(counted(setting["workers"], "worker"))
    said += _uniform(result.cells)
    if setting.get("augment") is not None and plans == [None]:
        said.append(f"augmentation {'on' if setting['augment'] else 'off'}")
    feeds = {feed_of(cell) for cell in result.cells}
    if feeds == {"synthetic"}:
        said.append("one cached batch, repeated")
    if feeds == {"loader-only"}:
        said.append("empty steps")
    return ", ".join(word for word in said if word)


def _only(values: Iterable[Any]) -> list[Any]:
    """The value that all have, if they do."""
    found = list(set(values))
    return found if len(found) == 1 else []


def _uniform(cells: Sequence[Cell]) -> Iterator[str]:
    """Where all cells stand on axes on which a plain training stands nowhere."""
    loading = [cell for cell in cells if feed_of(cell) != "synthetic"]
    for name, among in (("threads", cells), ("ranks", cells), ("interconnect", cells), ("store", loading)):
        for value in _only(cell.axes.get(name) for cell in among):
            if value is None or (name, value) in (("ranks", 1), ("store", "files")):
                continue
            if name in ("threads", "ranks"):
                yield counted(value, name[:-1])
            else:
                yield f"over {value}" if name == "interconnect" else f"store {value}"


def _samples(told: dict[str, Any]) -> str:
    number = told.get("samples", told.get("images"))
    of_set = f" of {told['set']}" if told.get("set") else ""
    return "" if number is None else f"{counted(number, told.get('unit') or 'image')}{of_set}"


def errors(result: Comparison) -> Iterator[str]:
    """Name each error in a line, with the cells that it hit."""
    names = axes_shown(result.cells)
    hit: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for cell in result.cells:
        if cell.error:
            places = hit.setdefault((cell.pipeline, cell.status, cell.error), {})
            places.setdefault(in_words(cell, names), []).append(str(cell.batch_size))
    for (pipeline, status, error), places in hit.items():
        where = "; ".join(f"{place} batch {', '.join(sizes)}".strip() for place, sizes in places.items())
        if len(places) > MOST_PLACES:
            where = f"{sum(map(len, places.values()))} cells"
        yield f"{pipeline}, {where}: {status}: {error}"


def sweeps(result: Comparison) -> dict[str, BatchVerdict]:
    """What the batch size did to trainings with a loader."""
    cells = [cell for cell in result.cells if feed_of(cell) == "real"]
    names, shown = varying(result.cells), axes_shown(cells)
    real = {_name(cell, names): _name(cell, shown) for cell in cells}
    return {real[name]: verdict for name, verdict in result.batch_verdicts.items() if name in real}


def _name(cell: Cell, names: Sequence[str]) -> str:
    """As sweeps over the batch size go by."""
    return f"{label(cell, names)} {cell.pipeline}".strip()
