"""A tuning in words: what is gained, the change to make and its costs, what was tried, what sets
the pace, how sure it is. And an advice that was tried: promised and measured speed side by side."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from math import isnan
from typing import Any

from ...record.tuning import DEFAULT_PREFETCH, LoaderSettings
from ...tune.patch import Patch
from ...tune.prove import Proof
from ...tune.result import BatchAdvice, SearchEnd, Trial, Tuning, WorkersCost, describe
from ..document import (
    Block,
    CodeChange,
    Document,
    Heading,
    Paragraph,
    Phrase,
    Space,
    TableBlock,
    TableColumn,
    Title,
    Words,
    brief_quality,
    emulated_device,
    section,
    table,
    toned,
    under,
)
from ..words.figures import KEPT, NOT_MEASURED, counted, factor


def patched(patch: Patch) -> Iterator[Block]:
    """Indented as the parts under a heading are."""
    if patch.diff:
        yield CodeChange(tuple(patch.diff.splitlines()))
        yield Paragraph(f"No file was changed. Apply this with `patch -p1` in {patch.folder}.", 1)
    if patch.command:
        said = "Then run" if patch.diff else "No source changes; run"
        yield Paragraph(f"{said}: {shlex.join(patch.command)}", 1)
    for sentence in patch.by_hand:
        yield Paragraph(f"By hand: {sentence}", 1)


MOST_TRIALS = 8
"""Rows of the short version."""

_BINDS = {
    "training": (
        "The training itself. The loader keeps up, and no other loader would make it faster.",
        "`whyidle run` shows what a step spends its time on.",
    ),
    "workers": (
        "The number of workers. They are always busy, and free CPUs are left for more of them.",
        "more workers than were tried, if memory allows.",
    ),
    "cpu": (
        "The CPUs. All are in use, and more workers would share the same ones.",
        "samples that cost the CPU less (smaller images, transforms on the device, prepared data), or more CPUs.",
    ),
    "storage": (
        "Storage. Reads slow each other down.",
        "fewer and larger files, a faster or nearer disk, or a data set that fits into memory.",
    ),
    "order": (
        "Straggler batches. Finished ones wait behind them, because batches are handed over in order.",
        "make these samples cheaper; in_order=False where the order does not matter; a larger prefetch_factor.",
    ),
    "handoff": (
        "Handing over batches. The training process spends its time taking them from the workers.",
        "fewer and larger tensors in a batch, smaller types (uint8 instead of float32), pin_memory=True.",
    ),
    "sampler": (
        "Drawing the indices of batches. The sampler works in the training process, however many workers there are.",
        "a sampler that computes its weights once, or index batches prepared beforehand.",
    ),
    "start": (
        "The beginnings of epochs. Workers start anew, or have nothing ready yet.",
        "persistent_workers=True, unless it was tried; longer epochs.",
    ),
    "serial": (
        "Preparing batches in the training process, which never prepares and trains at the same time.",
        "workers (num_workers=1 or more), unless they were tried, or cannot be used here; they pay off where a batch "
        "takes longer to prepare than to hand over.",
    ),
}


def tuning_document(result: Tuning, notices: Sequence[str] = ()) -> Document:
    """Tell all of it, and on one screen. `notices`: of its data, where nobody has read them just before."""
    of_data = tuple(Paragraph(toned(f"data: {notice}", "yellow")) for notice in notices)
    return Document((*of_data, *_blocks(result, True)), (*of_data, *_blocks(result, False)))


def _blocks(result: Tuning, full: bool) -> Iterator[Block]:
    yield Title(f"{result.what} on {result.device.get('title') or 'unknown device'}: {_gain(result)}")
    if result.device.get("kind") == "emulated":
        yield emulated_device()
    yield Paragraph(_because(result))
    yield Space()
    if result.changed:
        yield from section("Change", *_change(result))
    if full:
        yield Heading("What was tried")
        yield _trials(result, result.trials)
        yield from under(_remarks(result))
    else:
        yield Heading("What was tried, fastest first")
        trials = sorted(result.trials, key=lambda each: 0.0 if each.rate is None else -each.rate.value)
        yield _trials(result, trials[:MOST_TRIALS])
    yield Space()
    if (binding := result.binding_constraint) is not None:
        meaning, following = _BINDS.get(binding, (_sentence(binding), ""))
        next_to_try = [Paragraph(f"Next to try: {following}", 1)] if following else []
        title = f"What sets the pace {'then' if result.changed else 'now'}"
        yield from section(title, Paragraph(meaning, 1), *next_to_try)
    if not full:
        if (sizes := result.batch) is not None:
            largest, enough = _size(sizes.b_max), _size(sizes.b_95)
            yield Paragraph(f"Batch size: largest that fits {largest}, smallest within 5 % of the best {enough}.")
        yield from brief_quality(list(_quality(result))[:1], (*result.notes, *result.not_tested))
        return
    if result.batch is not None:
        yield from section("Batch size", *under(_batch(result.batch)))
    yield Heading("Cost and precision of this search")
    yield from (Paragraph(words, 1) for words in _quality(result))
    if result.not_tested:
        yield Space()
        yield Heading("Not tested")
        yield from (Paragraph(_one_line(words), 1) for words in result.not_tested)


def _costs_of(result: Tuning) -> str:
    """Name what the workers of the best settings cost, beside those of the program's own; empty
    where nothing of it was measured."""
    now, then = result.baseline.cost or WorkersCost(), result.best.cost or WorkersCost()

    def figure(value: float) -> str:
        return f"{value:.0f}" if value >= 100 else f"{value:.2g}"

    told = []
    for name, field, scale, unit in _COSTS:
        before, after = (getattr(cost, field) for cost in (now, then))
        if after is not None:
            beside = "" if before is None else f" ({figure(scale * before)} now)"
            told.append(f"{name} {figure(scale * after)}{unit}{beside}")
    workers = counted(result.best.settings.num_workers, "worker")
    return f"Cost of {workers} ({result.baseline.settings.num_workers} now): {', '.join(told)}." if told else ""


_COSTS = (
    ("memory", "memory_bytes", 1e-6, " MB"),
    ("CPUs in use", "cpus", 1.0, ""),
    ("time to start", "start_s", 1.0, " s"),
)
"""Name, field of `WorkersCost`, what it is multiplied by, and unit."""


def _gain(result: Tuning) -> str:
    if result.ended == SearchEnd.NOTHING_TO_GAIN:
        return "nothing to gain from the loader"
    if result.ended == SearchEnd.TOO_NOISY:
        return "undecided, this machine is too noisy"
    if result.ended == SearchEnd.FAILED:
        return "undecided, the training ended too early"
    cut_short = result.ended in (SearchEnd.BUDGET, SearchEnd.STOPPED)
    if not result.changed:
        return "nothing proven to be faster yet" if cut_short else "nothing faster found"
    times = result.gain
    interval = "interval unknown" if isnan(times.low) else f"95 % interval {times.low:.2f}–{times.high:.2f}"
    if times.low <= 1:
        return f"as fast with less ({times.value:.2f}×, {interval})"
    found = f"{times.value:.2f}× faster ({interval})"
    return f"{found}, so far" if cut_short else found


def _because(result: Tuning) -> str:
    """The rates that it comes to, and the reason it ended, where that is not the same."""
    now, then = result.baseline.samples_per_s, result.best.samples_per_s
    said = []
    if now is not None and result.changed and then is not None:
        own = describe(result.baseline.settings, result.best.settings)
        best = describe(result.best.settings, result.baseline.settings)
        said.append(f"{_said_rate(then)} samples/s with {best}; {_said_rate(now)} now ({own}).")
    elif now is not None:
        said.append(f"{_said_rate(now)} samples/s now ({describe(result.baseline.settings)}).")
    if result.ceiling is not None:
        said.append(f"An infinitely fast loader would give {_said_rate(result.ceiling)}.")
    if result.ended != SearchEnd.DECIDED or not result.changed:
        # Without the finding that the headline has.
        said.append(_sentence(result.because.partition("; so far ")[0]))
    return " ".join(said)


_USUAL = vars(LoaderSettings(1, DEFAULT_PREFETCH)) | {"num_workers": None}
"""Arguments of torch's DataLoader, and what they are where they are not given; `None`: what that is is always said."""


def _change(result: Tuning) -> Iterator[Block]:
    """Show the patch of the program, or what changes, before and after, and what the workers cost."""
    patch, before, after = result.patch, result.baseline.settings, result.best.settings
    old, new = (vars(settings) for settings in (before, after))
    differ = [name for name in _USUAL if old[name] != new[name]]

    def call(values: dict[str, Any]) -> str:
        given = (f"{name}={values[name]}" for name in differ if values[name] not in (None, _USUAL[name]))
        return ", ".join(("DataLoader(…", *given)) + ")"

    if result.scenario is not None:
        yield CodeChange((f"- {describe(before, after)}", f"+ {describe(after, before)}"))
    elif patch is None or not (patch.diff or patch.command):
        yield CodeChange((f"- {call(old)}", f"+ {call(new)}"))
    if patch is not None:
        yield from patched(patch)
    if costs := _costs_of(result):
        yield Paragraph(costs, 1)


_COLUMNS: dict[str, Callable[[LoaderSettings], str]] = {
    "loader": lambda s: s.pipeline or "its own",
    "workers": lambda s: str(s.num_workers),
    "prefetch": lambda s: "-" if s.prefetch_factor is None else str(s.prefetch_factor),
    "pinned": lambda s: "yes" if s.pin_memory else "no",
    "order": lambda s: "any" if not s.in_order else "kept",
    "persist": lambda s: "yes" if s.persistent_workers else "no",
    "batch": lambda s: "" if s.batch_size is None else str(s.batch_size),
}
"""A setting is shown by what differs between those tried, workers always."""


def _trials(result: Tuning, trials: Sequence[Trial]) -> TableBlock:
    """Show one row a setting; fits 80 columns."""
    differ = {head: cell for head, cell in _COLUMNS.items() if len({cell(t.settings) for t in trials}) > 1}
    told = {head: cell for head, cell in _COLUMNS.items() if head in differ or head == "workers"}
    columns = [
        *(TableColumn(head, right=head != "loader", wraps=False) for head in told),
        TableColumn("samples/s (95 %)", wraps=False),
        *(TableColumn(head, right=True, wraps=False) for head in ("predicted", "blocks")),
        TableColumn(wraps=False),
    ]
    rows: list[tuple[Words, ...]] = []
    for trial in trials:
        mark = _mark_of(result, trial)
        tone = "bold green" if "best" in mark else "bold" if "now" in mark else ""
        cells = (cell(trial.settings) for cell in told.values())
        rows.append((*cells, _measured(trial), _said_rate(trial.predicted), str(trial.blocks), toned(mark, tone)))
    return table(rows, *columns, indent=1)


def _mark_of(result: Tuning, trial: Trial) -> str:
    """Give `now` for the program's own settings, `best` for those found, `out` for what was given up."""
    marked = (("now", result.baseline), ("best", result.best))
    of = [word for word, each in marked if trial.settings == each.settings]
    return "now" if not result.changed and of else ", ".join(of) or ("out" if trial.dropped else "")


def _remarks(result: Tuning) -> Iterator[Paragraph]:
    """Why a setting was not tried further, a line each."""
    for trial in result.trials:
        note = trial.error if trial.status != "ok" else trial.dropped
        if note:
            said = f"{describe(trial.settings, result.baseline.settings)}: {_one_line(note)}"
            yield Paragraph(toned(said, "yellow" if trial.status != "ok" else "dim"))


def _measured(trial: Trial) -> Phrase:
    """Samples a second with their interval."""
    if trial.rate is None:
        words = {"oom": "out of memory", "failed": "failed"}
        return toned(words.get(trial.status, NOT_MEASURED), "yellow")
    low, high = _said_rate(trial.rate.low), _said_rate(trial.rate.high)
    return toned(f"{_said_rate(trial.rate.value):>6} ({low}–{high})", "")


def _quality(result: Tuning) -> Iterator[str]:
    again = "" if result.starts <= 1 else f" in {result.starts} starts"
    yield f"The search took {result.wall_s:.0f} s and {result.steps} training steps{again}; weights are discarded."
    if result.noise is not None:
        yield f"Blocks of one setting differ by {100 * result.noise:.1f} % (standard deviation, drift removed)."
    yield from (f"note: {note}" for note in result.notes)


def _batch(advice: BatchAdvice) -> Iterator[Block]:
    bounded = advice.b_max is None or any(size > advice.b_max for size in advice.failed)
    little = "the loader sets the pace" if advice.loader_bound else "larger ones gain little"
    largest = "largest that fits" if bounded else "largest tried that fits"
    fits = largest, _size(advice.b_max), "with a memory margin"
    yield table([fits, ("smallest within 5 % of the best samples/s", _size(advice.b_95), little)])
    sizes = sorted({*advice.rates, *advice.memory_bytes, *advice.failed})
    if sizes:
        alone = ("loader aside",) if advice.alone else ()
        heads = (TableColumn(head, right=True, wraps=False) for head in ("batch", "samples/s", *alone, "memory, most"))
        rows = (
            (
                str(size),
                NOT_MEASURED if (rate := advice.rates.get(size)) is None else _said_rate(rate.value),
                *([_said_rate(advice.alone.get(size))] if advice.alone else []),
                NOT_MEASURED if (used := advice.memory_bytes.get(size)) is None else f"{used / 1e6:.0f} MB",
                advice.failed.get(size, ""),
            )
            for size in sizes
        )
        yield table(rows, *heads, TableColumn(folds=True))
    for note in advice.notes:
        yield Paragraph(_sentence(note))


def _size(size: int | None) -> str:
    return NOT_MEASURED if size is None else str(size)


def _said_rate(rate: float | None) -> str:
    """Samples a second, without the unit."""
    if rate is None:
        return NOT_MEASURED
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.1f}"


def _sentence(text: str) -> str:
    """With a capital and a full stop."""
    text = _one_line(text)
    text = text[:1].upper() + text[1:]
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


def _one_line(text: str) -> str:
    return " ".join(text.split())


def proof_document(what: str, told: Proof) -> Document:
    """Hold what was promised against what came."""
    advised = told.advised
    if advised is None:
        return Document((Paragraph(told.why_not),))

    def blocks() -> Iterator[Block]:
        verdict = f"the promise was {KEPT[told.kept]}"
        if told.measured is None:
            verdict = "the advice could not be tried"
        elif told.promised is None:
            verdict = f"{factor(told.measured.value)}× as fast; nothing was promised"
        yield Title(f"{what}: {verdict}")
        yield Space()
        first = "The first advice" if advised.first else "The first advice that changes a loader setting"
        yield from section(f"{first}, for {advised.cause}", Paragraph(advised.change.change, 1))
        yield Heading("Tried")
        figures = (("promised", told.promised, "90 %"), ("measured", told.measured, "95 %"))
        rows = [
            (name, NOT_MEASURED, "", level)
            if times is None
            else (name, f"{factor(times.value)}×", f"{factor(times.low)}–{factor(times.high)}", level)
            for name, times, level in figures
        ]
        heads = (TableColumn(""), TableColumn("speed-up", right=True), TableColumn("interval"))
        yield table(rows, *heads, TableColumn("level", right=True), indent=1)
        settings = describe(advised.settings, told.baseline)
        rounds = counted(told.rounds, "round")
        yield Paragraph(f"Measured in turns, {rounds}: {settings} against {describe(told.baseline)}.", 1)
        if told.why_not:
            yield Paragraph(f"Not measured: {told.why_not}.", 1)
        if told.patch is not None:
            yield Space()
            yield Heading("Change")
            yield from patched(told.patch)

    return Document(tuple(blocks()))
