"""A comparison in words: the table, why the fastest is fastest, what limits each training, what the batch size does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import nan
from typing import Any

from ...analyse.causes.diagnosis import LEAST_STEPS
from ...analyse.causes.finding import Finding
from ...analyse.cells import studies
from ...analyse.cells.comparison import Cell, Comparison, Group, foreign_cpus, label, namer, varying
from ...analyse.statistics import Range
from ..document import (
    MOST_BRIEF,
    Block,
    Caution,
    Document,
    Heading,
    Paragraph,
    Space,
    Sweep,
    TableBlock,
    TableColumn,
    Title,
    Words,
    emulated_device,
    fitting_table,
    line,
    plain_words,
    table,
    toned,
)
from ..words.code import command_line
from ..words.figures import counted, percent
from ..words.sample_time import sentence
from .cells_table import column, head, new_section, place_columns, table_of, value_of
from .cost import cost_blocks
from .roofline import roofline_blocks, three_digits

MOST_ROWS, SCREEN = 10, 36
"""Rows of the table in the short version, and its lines in all."""
MOST_PLACES = 6
"""Cells with the same error that are named; of more only the number is shown."""
SIZES = "What the batch size did"
ONE_SIZE = "No loader ran with two batch sizes: these runs say nothing about the batch size."


def comparison_document(result: Comparison, setting: dict[str, Any]) -> Document:
    """Make all of it, and the short version."""
    return Document(tuple(_blocks(result, setting)), tuple(_blocks(result, setting, brief=True)))


def _blocks(result: Comparison, setting: dict[str, Any], brief: bool = False) -> Iterator[Block]:
    """Say all of it; in brief with the fastest cells alone, and the further sections that one screen has room for."""
    main: list[Block] = [Title(comparison_title(result, setting)), *head_of(result, setting), Space()]
    for notice in notices(result, setting):
        main += [Paragraph(toned(notice, "yellow")), Space()]
    if brief and len(result.cells) > MOST_ROWS:
        main.append(Heading(f"The {MOST_ROWS} fastest of {len(result.cells)} cells (--full has all)"))
    main.append(table_of(result.cells, setting, MOST_ROWS if brief else None))
    if wrong := [Paragraph(toned(words, "yellow")) for words in errors(result)]:
        main += [Space(), *(wrong[:MOST_BRIEF] if brief else wrong)]
    main += winners(result, setting)
    main += sizes_blocks(result, setting, brief)
    yield from main
    yield from _that_fit(studied(result, setting), SCREEN - _height(main)) if brief else findings(result, setting)


def _that_fit(blocks: Iterable[Block], room: int) -> Iterator[Block]:
    """Give the first sections, each from an empty line on, that so many lines have room for."""
    section = list[Block]()
    for block in (*blocks, Space()):
        if isinstance(block, Space):
            if (room := room - _height(section)) < 0:
                return
            yield from section
            section = []
        section.append(block)


def _height(blocks: Iterable[Block]) -> int:
    """Count lines on a terminal of common width."""
    return sum(
        1 + len(plain_words(block.words)) // 95
        if isinstance(block, Paragraph)
        else len(block.columns[0].cells) + 2
        if isinstance(block, TableBlock) and block.fits
        else 1
        for block in blocks
    )


def _emulated(setting: Mapping[str, Any]) -> bool:
    return bool(setting["device"]["kind"] == "emulated")


# What was run.


def comparison_title(result: Comparison, setting: dict[str, Any]) -> str:
    """Say what was compared, on what."""
    if setting["scenario"] is None:
        parts: list[str | None] = [counted(sum(len(cell.rows) for cell in result.cells), "recorded run")]
    else:
        parts = [setting["scenario"], setting.get("experiment"), setting.get("net")]
    stands_in = any(each.get("stand_in") for each in _datasets(result, setting).values())
    device = setting["device"]["title"]
    return f"{' · '.join(part for part in parts if part)} on {device}{', stand-in data' * stands_in}"


def head_of(result: Comparison, setting: dict[str, Any]) -> Iterator[Block]:
    """Give the question, the data and the conditions."""
    if question := setting.get("question"):
        yield Paragraph(question)
    yield from cautions(result, setting)
    if setting["scenario"] is not None:
        yield Paragraph(_conditions(result, setting))
        return
    # Recorded runs, each with its command.
    rows = (
        (row.run, f"batch {cell.batch_size}", command_line(analysis.info.get("command")))
        for cell in result.cells
        for row, analysis in cell.counted
    )
    yield table(rows, TableColumn(folds=True), TableColumn(wraps=False), TableColumn(folds=True))


def notices(result: Comparison, setting: dict[str, Any]) -> Iterator[str]:
    """Say what to know before reading the figures."""
    yield from setting.get("notices", ())
    runs = [facts for cell in result.cells for facts in cell.facts]
    if (used := foreign_cpus(runs)) is not None:
        # Of a machine of known size, where it is one.
        cpus = {facts.machine_cpus for facts in runs}
        many = cpus.pop() if len(cpus) == 1 else None
        of_all = "CPUs" if many is None else f"of {counted(many, 'CPU')}"
        yield f"Other programs used up to {used:.1f} {of_all} while this ran: expect other rates on a quiet machine."


def cautions(result: Comparison, setting: dict[str, Any]) -> Iterator[Caution]:
    """Warn that data or devices are not real, above every figure that they gave."""
    for net, told in _datasets(result, setting).items():
        if stand_in := told.get("stand_in"):
            yield Caution("Stand-in data", f"generated, in place of {stand_in}.", f"({net})" if net else "")
    if any(device_kind(cell, setting) == "emulated" for cell in result.cells):
        yield emulated_device()


def device_kind(cell: Cell, setting: Mapping[str, Any]) -> str:
    """Give the kind of the device a cell ran on; of one that did not run, of the comparison's."""
    told = ((a.info.get("device") or {}).get("kind") for a in cell.analyses)
    return str(next((kind for kind in told if kind), setting["device"]["kind"]))


def _datasets(result: Comparison, setting: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Give the data by net, as the setting or recorded runs tell them; of no net in particular
    where all train on the same."""
    several: dict[str, dict[str, Any]] = setting.get("datasets") or {}
    if several or setting["scenario"] is not None:
        return several or {"": setting.get("dataset") or {}}
    infos = [analysis.info for cell in result.cells for analysis in cell.analyses]
    return {str((info.get("trial") or {}).get("net") or ""): info["dataset"] for info in infos if info.get("dataset")}


def _conditions(result: Comparison, setting: dict[str, Any]) -> str:
    """Say what was run, in one or two lines; the table shows what cells differ in."""

    def only(values: Iterable[Any]) -> list[Any]:
        """Give the value that all have, if they do."""
        found = list(set(values))
        return found if len(found) == 1 else []

    cells, differing = result.cells, varying(result.cells)
    loading = [cell for cell in cells if cell.feed != "synthetic"]
    said = []
    for told in _datasets(result, setting).values():
        number, of_set = told.get("samples", told.get("images")), f" of {told['set']}" if told.get("set") else ""
        said.append("" if number is None else f"{counted(number, told.get('unit') or 'image')}{of_set}")
    said = list(dict.fromkeys(said))
    said += [f"{counted(number, unit[:-1])} a run" for unit, number in (setting.get("stop") or {}).items()]
    plans = list(dict.fromkeys(cell.axes.get("plan") for cell in cells))
    if plans not in ([], [None]) and "plan" not in differing:
        said.append(f"plan {plans[0]}")
    if differing:
        # Where they do not differ, the table leaves them out.
        said += [f"loader {one}" for one in only(cell.pipeline for cell in loading)]
        said += [f"batch {one}" for one in only(cell.batch_size for cell in cells)]
    fewer = "at most " if (setting.get("budget") or {}).get("runs_left_out") else ""
    interleaved = " in interleaved rounds" if setting["repeats"] > 1 else ""
    said.append(f"{fewer}{counted(setting['repeats'], 'run')} a cell{interleaved}")
    said.append(counted(setting["cpu_budget"], "CPU"))
    if setting.get("workers") is not None:
        said.append(counted(setting["workers"], "worker"))
    # Axes on which a plain training stands nowhere.
    for name, among in (("threads", cells), ("ranks", cells), ("interconnect", cells), ("store", loading)):
        for value in only(cell.axes.get(name) for cell in among):
            if value is not None and (name, value) not in (("ranks", 1), ("store", "files")):
                words = {"interconnect": f"over {value}", "store": f"store {value}"}
                said.append(words.get(name) or counted(value, name[:-1]))
    if setting.get("augment") is not None and plans == [None]:
        said.append(f"augmentation {'on' if setting['augment'] else 'off'}")
    feeds = {cell.feed for cell in cells}
    said += ["one cached batch, repeated"] * (feeds == {"synthetic"}) + ["empty steps"] * (feeds == {"loader-only"})
    return ", ".join(word for word in said if word)


def errors(result: Comparison) -> Iterator[str]:
    """Name each error in a line, with the cells that it hit."""
    name, hit = namer(result.cells), dict[tuple[str, str], list[str]]()
    for cell in result.cells:
        if cell.error:
            hit.setdefault((cell.status, cell.error), []).append(name(cell))
    for (status, error), where in hit.items():
        named = "; ".join(where) if len(where) <= MOST_PLACES else f"{len(where)} cells"
        yield f"{named}: {status}: {error}"


# Which is fastest, and what each waits for.

LEAST_RATIO = 1.05
"""The least ratio from which the slowest cell is named beside the fastest."""
MOST_TOLD = 3
"""Groups with a paragraph each; of more, each has a line."""
MOST_NAMED = 4
"""Cells of one verdict that are named; of more only the number is given."""


def winners(result: Comparison, setting: dict[str, Any]) -> Iterator[Block]:
    """Name the fastest cell of each group, and why; of several groups, of those that take several
    loaders, or sizes of batches, to choose among."""
    kind = setting["device"]["kind"]
    groups = result.groups
    if len(groups) > 1:
        ran = [(group, [cell for cell in group.cells if cell.status == "ok"]) for group in groups]
        groups = tuple(group for group, cells in ran if len(cells) > 1 and cells[0].feed != "synthetic")
    if not groups:
        return
    yield from new_section(f"Which {'' if setting['scenario'] is None else 'loader '}is fastest, and why")
    if len(groups) > MOST_TOLD:
        yield fitting_table(_fastest(groups, kind == "emulated"), indent=1)
        return
    device = {"emulated": "the emulated device", "cpu": "the processor"}.get(kind, "the device")
    names = [name for name in varying(result.cells) if all(name in group.axes for group in groups)]
    for group in groups:
        place = label(group.cells[0], names) if len(result.groups) > 1 else ""
        said = _winner(group, device)
        yield Paragraph(line((f"{place}: ", "bold"), said) if place else said, 1)


def _winner(group: Group, device: str) -> str:
    name = namer(group.cells)

    def busy(cell: Cell) -> str:
        return percent(None if cell.typical_row is None else cell.typical_row.figure("busy_pct"), 0)

    best = group.best
    if best is None or best.samples_per_s is None or best.typical is None or best.typical.facts is None:
        return "No run finished, so none is fastest."
    rate, idle = best.samples_per_s.value, best.feed != "loader-only"
    if best.feed == "synthetic":
        return f"{rate:.1f} samples/s at batch {best.batch_size}, with one cached batch."
    said = f"{name(best)} reaches {rate:.1f} samples/s{f', and {device} is busy {busy(best)} of the time' * idle}."
    if group.ties:
        said += f" Equally fast within noise: {', '.join(map(name, group.ties))}."
    slowest, ratio = _slowest(group)
    if slowest is not None and slowest.typical and slowest.typical.facts:
        said += f" The fastest is {ratio:.1f}× as fast as {name(slowest)}{f' (busy {busy(slowest)})' * idle}."
    if len(best.typical.facts.window.steps) < LEAST_STEPS:
        said += " Start-up distorts so short a run: do not rank by it yet."
    verdict = best.verdict
    return said if verdict is None or verdict.cause in (None, "none") else f"{said} {verdict.title}"


def _slowest(group: Group) -> tuple[Cell | None, float]:
    """Find the slowest cell, and by which factor the best is faster; none where it is no slower to speak of."""
    rates = [(rate.value, cell) for cell in group.cells if cell.status == "ok" and (rate := cell.samples_per_s)]
    if group.best is None or group.best.samples_per_s is None or not rates:
        return None, 1.0
    lowest, slowest = min(rates, key=lambda pair: pair[0])
    ratio = group.best.samples_per_s.value / lowest
    tied = any(slowest is each for each in group.ties)
    return (None, 1.0) if ratio < LEAST_RATIO or tied else (slowest, ratio)


def _fastest(groups: Sequence[Group], emulated: bool) -> Iterator[TableColumn]:
    """Give each group a line with its fastest cell."""

    def slower(group: Group) -> str:
        cell, ratio = _slowest(group)
        return "" if cell is None else f"{ratio:.1f}× {namer(group.cells)(cell)}"

    def tied(group: Group) -> str:
        return ", ".join(map(namer(group.cells), group.ties))

    ran = [group for group in groups if group.best is not None]
    best = [group.best for group in ran if group.best is not None]
    yield from place_columns(best, varying([cell for group in groups for cell in group.cells]), whole=True)
    yield column(head("samples/s", emulated), best, lambda cell: value_of(cell.samples_per_s))
    yield column("against the slowest", ran, slower, 2, right=False)
    yield column("equally fast", ran, tied, 1, right=False, folds_to=14)


def _verdicts(result: Comparison) -> Iterator[Paragraph]:
    """Give each cause a paragraph: the trainings that have it, and what it means where it costs most."""
    ran = [cell for group in result.groups for cell in group.cells if cell.status == "ok" and cell.feed == "real"]
    judged = [(cell, verdict) for cell in ran if (verdict := cell.verdict) is not None]
    name = namer([cell for cell, _ in judged])
    causes: dict[str, list[tuple[Cell, Finding]]] = {}
    for cell, verdict in judged:
        causes.setdefault(verdict.cause or "too few steps", []).append((cell, verdict))
    for cause, having in sorted(causes.items(), key=lambda item: (item[0] == "none", -len(item[1]))):
        where = "; ".join(name(cell) for cell, _ in having)
        if len(having) > MOST_NAMED:
            where = f"{'all' if len(having) == len(judged) else f'{len(having)} of'} {len(judged)} cells"
        said = f": {where}."
        worst = max((verdict for _, verdict in having), key=lambda verdict: verdict.share)
        if cause != "none":
            alike = len({verdict.title for _, verdict in having}) == 1
            said += f" {worst.title}" if alike else f" At worst: {worst.title}"
            if worst.next:
                said += f" {worst.next[0].change}."
        yield Paragraph(line((cause, "bold"), said), 1)


def studied(result: Comparison, setting: dict[str, Any]) -> Iterator[Block]:
    """Say what the cells say together, each part below a line in bold."""
    yield from _scaling_blocks(studies.scaling(result.cells))
    yield from _differential_blocks(result.cells, setting)
    yield from _results_blocks(result, setting)
    yield from cost_blocks(result.cells, setting)
    yield from roofline_blocks(studies.rooflines(setting), result.cells)


def findings(result: Comparison, setting: dict[str, Any]) -> Iterator[Block]:
    """Say the same, and what each waits for."""
    yield from studied(result, setting)
    if waits := list(_verdicts(result)):
        yield from new_section("What each training waits for")
        yield from waits


def sizes_blocks(result: Comparison, setting: Mapping[str, Any], brief: bool = False) -> Iterator[Block]:
    """Say what the batch size did to each training with a loader; of recorded runs also that nothing is known."""
    names = set(map(namer(result.cells, sizes=False), (cell for cell in result.cells if cell.feed == "real")))
    told = [(name, verdict) for name, verdict in result.batch_verdicts.items() if name in names]
    if told:
        yield from new_section(SIZES)
    elif setting["scenario"] is None:
        yield from (Space(), Paragraph(ONE_SIZE))
    for number, (name, verdict) in enumerate(told[: MOST_NAMED if brief else None]):
        if brief:
            # The first sentence, and where a part grew the second, which names it.
            said = ". ".join(sentence(verdict).split(". ")[: 1 + (verdict.grew is not None)]).rstrip(".")
            yield Paragraph(line((name, "bold"), f": {said} ", (f"[{verdict.cause}]", "bold")), 1)
            continue
        if number:
            yield Space()
        yield Sweep(name, verdict)


# What more ranks bring.

HELD: dict[studies.Held, str] = {
    "per rank": "Speed-up by ranks, each with the same batch size",
    "total": "Speed-up by ranks, with the same batch size in total",
}
EXCHANGE = (
    "exchange: time of the gradient exchange in a step, computed from the interconnect's nominal figure; none of it is "
    "assumed to hide behind the backward pass."
)
WAIT_GOES, RATES_GO, SPEEDUPS_GO, EXCHANGE_GOES = 4, 3, 2, 1
"""Order in which columns go in a narrow terminal: the highest first."""


def _scaling_blocks(every: Sequence[studies.Curve]) -> Iterator[Block]:
    """Make a table for each way of holding the batch size, with the reasons for missing figures."""
    for held, title in HELD.items():
        for emulated in (False, True):
            curves = [curve for curve in every if curve.held == held and curve.emulated == emulated]
            if not curves:
                continue
            yield from new_section(title, _scaling(curves, emulated))
            points = [point for curve in curves for point in curve.points]
            for reason in dict.fromkeys(point.why for point in points if point.why and point.samples_per_s is not None):
                yield Paragraph(f"n/a: {reason}", 1)
            if any(point.exchange_ms is not None for point in points):
                yield Paragraph(EXCHANGE, 1)


def curve_names(curves: Sequence[studies.Curve]) -> list[str]:
    """Name what tells each from the others beside its batch size; nothing where that is all."""
    parts = [(curve.place, curve.points[0].cell.loader, curve.interconnect or "") for curve in curves]
    differing = [number for number in range(3) if len({each[number] for each in parts}) > 1]
    return [" ".join(word for number in differing if (word := each[number])) for each in parts]


def _scaling(curves: Sequence[studies.Curve], emulated: bool) -> Iterator[TableColumn]:
    points = [point for curve in curves for point in curve.points]

    def rate(point: studies.Point, ranged: bool = False) -> str:
        if point.samples_per_s is None:
            return "OOM" if point.status == "oom" else point.status
        return value_of(point.samples_per_s, ranged=ranged, of_range=".0f")

    def ratio(name: str, form: str, unit: str, scale: float, point: studies.Point, ranged: bool = False) -> str:
        # A cell without a rate has a mark in these columns.
        return "-" if point.samples_per_s is None else value_of(getattr(point, name), form, unit, ranged, scale)

    def other(value: float | None, unit: str, digits: int) -> str:
        return "" if value is None else f"{value:.{digits}f} {unit}"

    told = [
        said if point is curve.points[0] else ""
        for curve, said in zip(curves, curve_names(curves), strict=True)
        for point in curve.points
    ]
    if any(told):
        yield TableColumn("", told, folds_to=10)
    yield column("batch", points, lambda point: str(point.batch_size))
    yield column("ranks", points, lambda point: str(point.ranks))
    speedup, efficiency = partial(ratio, "speedup", ".2f", "", 1.0), partial(ratio, "efficiency", ".0f", " %", 100.0)
    for title, said, goes in (("samples/s", rate, RATES_GO), ("speed-up", speedup, SPEEDUPS_GO)):
        title = head(title, emulated)
        yield column(title, points, partial(said, ranged=True), goes, instead=column(title, points, said))
    yield column(head("efficiency", emulated), points, efficiency)
    if any(point.waiting_pct is not None for point in points):
        yield column("wait", points, lambda point: other(point.waiting_pct, "%", 0), WAIT_GOES)
    if any(point.exchange_ms is not None for point in points):
        yield column("exchange", points, lambda point: other(point.exchange_ms, "ms", 1), EXCHANGE_GOES)


# Net alone, loader alone, both together; and what augmentation costs.

MOST_OFF = 8
"""Trainings named one by one, of those whose time is not the expected one."""
LITTLE_PCT = 0.5
"""Less than this is written as no difference."""


def _differential_blocks(cells: Sequence[Cell], setting: dict[str, Any]) -> Iterator[Block]:
    """Show what there is of both; nothing where the cells allow neither."""
    tested = studies.differentials(cells, setting)
    both = [each for each in tested if each.expected is not None]
    emulated = "emulated " if _emulated(setting) else ""
    if both:
        title = f"Net alone, loader alone, and both: {emulated}samples/s"
        yield from new_section(title, _differential(both))
        agree = sum(bool(each.agrees) for each in both)
        overlaps = {each.overlaps for each in both}
        time = "The slower of the two" if True in overlaps else "The sum of the two"
        rule = time if len(overlaps) == 1 else f"{time}, or without overlap their sum,"
        said = (
            f"{rule} predicts the time of {agree} of {len(both)} trainings within {100 * studies.AGREES_WITHIN:.0f} %."
        )
        for limit in ("loader", "net"):
            if number := sum(each.limit == limit for each in both):
                said += f" The {limit} is the limit in {number} of {len(both)}."
        yield Paragraph(said, 1)
        yield from _unexpected(both)
    if dearer := studies.augmentations(cells, tested, setting):
        title = f"What augmentation costs{f' ({emulated}device)' if emulated else ''}"
        yield from new_section(title, _augmentation(dearer))
        if doubts := [each.doubt or "runs differ by as much" for each in dearer if _cost(each).endswith("?")]:
            why = ", or ".join(dict.fromkeys(doubts))
            said = f"A figure with ? is uncertain: {why}. Repeat with longer runs, several of each."
            yield Paragraph(toned(said, "yellow"), 1)
        contrasts = [
            f"{dear.cell.axes.get('net') or 'The net'}, same code and data: augmentation is free on "
            f"{label(free.cell, ('device',))} and costs {dear.cost_pct:.0f} % on {label(dear.cell, ('device',))}"
            f"{', where the loader is the limit' if dear.limit == 'loader' else ''}."
            for free, dear in studies.free_on_one_device(dearer)
        ]
        if contrasts:
            yield Paragraph(" ".join([*contrasts, "A slow device hides what limits a fast one."]), 1)


def _differential(tested: Sequence[studies.Differential]) -> Iterator[TableColumn]:
    def rate(title: str, of: str, goes: int = 0) -> TableColumn:
        found: list[Range | None] = [getattr(each, of) for each in tested]
        return column(title, found, lambda rate: three_digits(nan if rate is None else rate.value), goes)

    def deviation(each: studies.Differential) -> str:
        return f"{each.deviation_pct:+.0f} %" if abs(each.deviation_pct) >= LITTLE_PCT else "0 %"

    def limit(each: studies.Differential) -> str:
        return (each.limit or "") + " (no overlap)" * (not each.overlaps)

    yield from place_columns([each.cell for each in tested])
    yield rate("net\nalone", "net_alone")
    yield rate("loader\nalone", "loader_alone")
    yield rate("expected", "expected", 1)
    yield rate("measured", "measured")
    yield column("extra\ntime", tested, deviation)
    yield column("limit", tested, limit, right=False)
    yield column("s/epoch expected", tested, lambda each: three_digits(each.epoch_s["expected"]), 3)
    yield column("measured s", tested, lambda each: three_digits(each.epoch_s["measured"]), 2)


def _unexpected(tested: Sequence[studies.Differential]) -> Iterator[Block]:
    """List those whose time is not the expected one, each with the likely reason."""
    off = sorted((each for each in tested if each.agrees is False), key=lambda each: -abs(each.deviation_pct))
    if not off:
        return
    name = namer([each.cell for each in tested])
    # In the way of many alike, and the same advice each time.
    crowded = {reason.text for each in off for reason in each.reasons if reason.code == "foreign_load"}
    others = f" ({max(crowded)})" if crowded else ""
    yield Paragraph(toned(f"Not as expected{others}:", "yellow"), 1)
    for each in off[:MOST_OFF]:
        took = f"{abs(each.deviation_pct):.0f} % {'longer' if each.deviation_pct > 0 else 'shorter'}"
        reasons = "; ".join(reason.text for reason in each.reasons if reason.code != "foreign_load")
        yield Paragraph(f"{name(each.cell)} takes {took}{reasons and f': {reasons}'}.", 2)
    if len(off) > MOST_OFF:
        yield Paragraph(f"And {len(off) - MOST_OFF} more are off by less.", 2)


def _augmentation(found: Sequence[studies.Augmentation]) -> Iterator[TableColumn]:
    yield from place_columns([each.cell for each in found])
    yield column("plain s/epoch", found, lambda each: three_digits(each.plain_epoch_s), 1)
    yield column("augmented", found, lambda each: three_digits(each.augmented_epoch_s), 1)
    yield column("augmentation", found, _cost)
    yield column("limit", found if any(each.limit for each in found) else (), lambda e: e.limit or "", right=False)


def _cost(found: studies.Augmentation) -> str:
    """Write `free`, `+49 %`; with a question mark where repeats differ by as much, or too little was run."""
    if abs(found.cost_pct) < 100 * studies.FREE:
        return "free" if found.doubt is None else "free ?"
    return f"{found.cost_pct:+.0f} %{'' if found.sure else ' ?'}"


# Results of trainings: figures on held-out data and times, each run beside the mean of its cell.

FIRST_METRICS = ("accuracy", "average_precision", "precision", "recall", "loss")
"""The order of the columns; any other figure of an evaluation comes after them."""
METRIC_HEADS = {"average_precision": "AP"}
MOST_METRICS = 4
MOST_CLASSES = 12
"""Classes of a printed confusion matrix."""
MOST_CONFUSED = 3
MORE_WORK = 1.1
"""Ratio of samples processed from which times are not comparable."""


def _results_blocks(result: Comparison, setting: dict[str, Any]) -> Iterator[Block]:
    """Show results; nothing where no training was tried on held-out data or followed a plan."""
    found = [each for each in studies.results(result.cells) if each.shown]
    if not found:
        return
    # The usual figures first.
    told = dict.fromkeys(name for each in found for name in each.metrics)
    metrics = list(dict.fromkeys([*(name for name in FIRST_METRICS if name in told), *told]))[:MOST_METRICS]
    yield from new_section("Results of the trainings", _results(found, metrics, _emulated(setting)))
    work = [mean.value for each in found if (mean := each.mean("samples")) is not None]
    if work and max(work) >= MORE_WORK * min(work):
        said = f"These trainings processed {min(work):.0f} to {max(work):.0f} samples"
        yield Paragraph(toned(f"{said}, so their times are not comparable. Compare samples/s.", "yellow"), 1)
    if _emulated(setting) and not metrics:
        yield Paragraph("An emulated device learns nothing, so there is no accuracy.", 1)
    name = namer([each.cell for each in found], sizes=False)
    for by_size in studies.metrics_by_batch_size(found):
        pairs = zip(by_size.cells, by_size.means, strict=True)
        figures = ", ".join(f"{mean.value:.3f} at {cell.batch_size}" for cell, mean in pairs)
        word = {True: "holds", False: "falls", None: "is undecided, as runs were not repeated"}[by_size.held]
        word = word if by_size.learnt else "says nothing after so little training"
        spread = "" if by_size.spread is None else f"; repeats differ by up to {by_size.spread:.3f}"
        metric = METRIC_HEADS.get(by_size.metric, by_size.metric)
        yield Paragraph(f"{name(by_size.cells[0])}: as the batch grows, {metric} {word} ({figures}{spread}).", 1)
    known = [(each, matrix) for each in found if (matrix := each.confusion) is not None]
    if known:
        yield from _confusion(*max(known, key=lambda pair: accuracy_of(pair[0])), found, setting)


def _results(found: Sequence[studies.CellResult], metrics: Sequence[str], emulated: bool) -> Iterator[TableColumn]:
    def seconds(mean: Range | None) -> str:
        return value_of(mean, ".0f" if mean is not None and mean.value >= 1000 else ".1f", " s")

    yield from place_columns([each.cell for each in found])
    for place, name in enumerate(metrics):
        means = [each.metric(name) for each in found]
        said = partial(value_of, form=".3f", ranged=not place)
        yield column(METRIC_HEADS.get(name, name), means, said, 4 + place if place else 0)
    yield column(head("time", emulated), found, lambda each: seconds(each.mean("train_s")))
    yield column(head("samples/s", emulated), found, lambda each: value_of(each.cell.samples_per_s), 2)
    yield column("samples", found, lambda each: value_of(each.mean("samples"), ".0f"))


def accuracy_of(found: studies.CellResult) -> float:
    """Give the accuracy; 0 where it was not told."""
    return 0.0 if (mean := found.metric("accuracy")) is None else mean.value


def class_names(found: studies.CellResult, setting: dict[str, Any]) -> list[str]:
    """Name classes as the evaluation or the data do, otherwise by number."""
    matrix = found.confusion or []
    data = (setting.get("datasets") or {}).get(found.cell.axes.get("net")) or setting.get("dataset") or {}
    for told in (found.classes, data.get("classes")):
        if isinstance(told, list) and len(told) == len(matrix):
            return [str(name) for name in told]
    return [str(number) for number in range(len(matrix))]


def _confusion(
    best: studies.CellResult,
    matrix: Sequence[Sequence[int]],
    found: Sequence[studies.CellResult],
    setting: dict[str, Any],
) -> Iterator[Block]:
    """Show the confusion of the most accurate cell: classes by name in front of the rows, by number above columns."""
    where, classes = namer([each.cell for each in found])(best.cell), class_names(best, setting)
    runs = f"{len(best.runs)} runs together" if len(best.runs) > 1 else "one run"
    yield Space()
    yield Paragraph(f"Confusion, {where}, {runs}; rows: true class, columns: predicted class", 1)
    if len(matrix) <= MOST_CLASSES:
        numbers = [str(number) for number in range(len(classes))]
        rows: list[Sequence[Words]] = [("", "", *(toned(number, "dim") for number in numbers))]
        for number, (name, row) in enumerate(zip(classes, matrix, strict=True)):
            counts = (toned(str(count), "bold" if number == place else "") for place, count in enumerate(row))
            rows.append((name if numbers != list(classes) else "", str(number), *counts))
        columns = [TableColumn(wraps=False), TableColumn(right=True, tone="dim")]
        yield table(rows, *columns, *[TableColumn(right=True, wraps=False)] * len(classes), gap=1, indent=2)
    wrong = [
        (count / max(1, sum(row)), count, what, taken)
        for what, row in enumerate(matrix)
        for taken, count in enumerate(row)
        if what != taken and count
    ]
    worst = [
        f"{classes[what]} taken for {classes[taken]} ({100 * part:.0f} %)"
        for part, _, what, taken in sorted(wrong, reverse=True)[:MOST_CONFUSED]
    ]
    if worst:
        yield Paragraph(f"Confused most often: {', '.join(worst)}.", 1)
