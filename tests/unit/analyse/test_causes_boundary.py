"""Time outside the steps: what most of it is, and what a validation that waits for data lacks."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import pytest

from support.crafted import add, add_events, evidence, facts_of_run, found
from whyidle.analyse.causes.diagnosis import findings_of
from whyidle.analyse.causes.finding import Finding
from whyidle.analyse.speedup import SCATTER_SD
from whyidle.record.run import open_run
from whyidle.record.schema import BATCH, EVENT, HOST, NOT_MEASURED, EventKind, LoaderFlag
from whyidle.scenarios.planted import MS, START, Step, train

SEVERITIES = [0.12, 0.3, 0.6]
PASSES = 4
BUSY = {"starting": 0.02, "busy": 0.95}
Spans = list[tuple[int, int]]


def bounded(folder: Path, share: float, epochs: bool = False) -> Spans:
    """So much of the time outside the steps, after every 40th, each of which ends an epoch or none; when that was."""
    each = round(400 * MS * share / (1 - share))
    plan = [Step(fetch_ns=0)] * 39 + [Step(fetch_ns=0, sync=True, boundary_ns=each)]
    train(folder, [plan] * PASSES if epochs else [plan * PASSES])
    events = open_run(folder).records(EVENT)
    spans = events[events["what"] == EventKind.BOUNDARY]
    return list(zip(spans["t_ns"].tolist(), spans["end_ns"].tolist(), strict=True))


def evaluated(folder: Path, spans: Spans, waited: float, workers: int | None = None) -> None:
    """Validation all that time, waiting for data for such a part of it."""
    rows = [(begin, EventKind.EVALUATION, round(waited * (end - begin)), end) for begin, end in spans]
    if workers is not None:
        rows += [(end, EventKind.EVALUATION_WORKERS, workers, NOT_MEASURED) for _, end in spans]
    add_events(folder, sorted(rows))


def made(
    folder: Path,
    spans: Spans,
    workers: int,
    starting: float,
    busy: float,
    first: int = 1,
    cpu: float | None = None,
    persistent: bool = False,
) -> None:
    """Batches of the validation's loader: taken up after a share of each pass (of the first, where the workers are
    persistent), each worker busy a share of the rest, and on a CPU for a part of that."""
    rows = []
    for number, (begin, end) in enumerate(spans):
        if not persistent or number == 0:
            begin += round(starting * (end - begin))
        length = (end - begin) // 10 * first
        rows += [
            {
                "worker": worker,
                "begin_ns": begin + batch * length,
                "end_ns": begin + batch * length + round(busy * length),
                "samples": 8,
                "loader": 90 if persistent else 90 + number,
                "batch": batch * workers + worker,
                "threads": 1,
                "cpu_ns": NOT_MEASURED if cpu is None else round(cpu * round(busy * length)),
            }
            for batch in range(10 // first)
            for worker in range(workers)
        ]
    add(folder, BATCH, rows)


def validated(
    folder: Path, waited: float, workers: int | None, batches: dict[str, Any], cpus: int | None = None
) -> Finding:
    spans = bounded(folder, 0.3)
    evaluated(folder, spans, waited, workers)
    if batches:
        made(folder, spans, workers or 0, **batches)
    if cpus:
        add(folder, HOST, [{"t_ns": START + n * 100 * MS, "cpus": 1000 * cpus} for n in range(20)])
    return found(folder)["host.boundary"]


def outside_of(folder: Path) -> Any:
    seen = facts_of_run(folder).outside
    assert seen is not None
    return seen


@pytest.mark.parametrize("share", SEVERITIES)
def test_time_outside_the_steps_has_its_share(tmp_path: Path, share: float) -> None:
    bounded(tmp_path / "run", share)
    finding = found(tmp_path / "run")["host.boundary"]
    assert finding.share == pytest.approx(share, abs=0.02)
    assert "validation, checkpoints, hooks" in finding.title
    assert outside_of(tmp_path / "run")


def test_light_validation_is_no_finding(tmp_path: Path) -> None:
    spans = bounded(tmp_path / "run", 0.02)
    evaluated(tmp_path / "run", spans, waited=0.9, workers=0)
    assert found(tmp_path / "run") == {}


@pytest.mark.parametrize("share", SEVERITIES)
def test_validation_that_waits_for_data_has_its_share(tmp_path: Path, share: float) -> None:
    evaluated(tmp_path / "run", bounded(tmp_path / "run", share), waited=0.8, workers=0)
    finding = found(tmp_path / "run")["host.boundary"]
    assert finding.share == pytest.approx(share, abs=0.02)
    assert evidence(finding)["Validation that waits for data"] == pytest.approx(80 * share, abs=2)


@pytest.mark.parametrize(
    ("waited", "workers", "batches", "cpus", "cause", "title", "change"),
    [
        (0.8, 0, {}, None, "input.serial", "waits for data: its loader has no workers.", "num_workers="),
        (0.8, 2, BUSY, None, "input.too_few_workers", "", "now 2"),
        # Where more workers are of no use samples have to be cheaper.
        (0.8, 4, BUSY, 2, "input.too_few_workers", "", "samples cheaper"),
        (0.8, 2, {"starting": 0.7, "busy": 0.5}, None, "input.worker_restart", "", "persistent_workers=True"),
        # The first batch takes its part; both together are half of the waiting, and workers that idle not too few.
        (
            0.6,
            2,
            {"starting": 0.27, "busy": 0.5},
            None,
            "input.worker_restart",
            "each pass starts its workers anew.",
            "persistent_workers=True",
        ),
        (0.6, 2, {"starting": 0.27, "busy": 0.95}, None, "input.too_few_workers", "", ""),
        (0.7, 2, {"starting": 0.05, "busy": 0.9, "first": 5}, None, "input.pipeline_fill", "", ""),
        (0.8, None, {}, None, None, "most of it on validation that waits for data.", ""),
        (0.05, 2, {}, None, None, "most of it on validation that computes.", "Validate less often"),
    ],
)
def test_what_validation_lacks_is_told_by_its_waits_and_workers(
    tmp_path: Path,
    waited: float,
    workers: int | None,
    batches: dict[str, Any],
    cpus: int | None,
    cause: str | None,
    title: str,
    change: str,
) -> None:
    finding = validated(tmp_path / "run", waited, workers, batches, cpus)
    seen = evidence(finding)
    assert seen.get("Cause of the validation's wait") == cause
    assert seen["Workers of the validation loader"] == workers
    assert finding.title.endswith(title)
    assert change in finding.next[0].change
    if cause == "input.too_few_workers":
        assert seen["Validation workers busy"] == pytest.approx(95, abs=2)


@pytest.mark.parametrize(
    ("waited", "workers", "batches", "cpus", "wanted"),
    [
        # Little's law: the time its batches take over the time it needs for them, the workers busy 80 %.
        (0.6, 0, {}, 192, 2),
        (0.79, 0, {}, 192, 5),
        (0.89, 0, {}, 192, 11),
        # As many as there are batches in a pass, and no more than that.
        (0.999, 0, {}, 192, 64),
        (0.999, 0, {}, 4, 4),
        (0.99, 2, BUSY, 192, 20),
        # Those that mostly wait may be more than the CPUs.
        (0.99, 2, BUSY | {"cpu": 0.9}, 4, 4),
        (0.99, 2, BUSY | {"cpu": 0.1}, 4, 20),
    ],
)
def test_validation_is_given_the_workers_that_keep_up_with_it(
    tmp_path: Path, waited: float, workers: int, batches: dict[str, Any], cpus: int, wanted: int
) -> None:
    change = validated(tmp_path / "run", waited, workers, batches, cpus).next[0].change
    told = re.match(r"Set `num_workers=(\d+)` for the validation loader", change)
    assert told is not None, change
    assert int(told[1]) == wanted


@pytest.mark.parametrize(("waited", "cpus", "goes"), [(0.8, None, 0.8), (0.999, 2, 0.5), (0.999, 4, 0.75)])
def test_no_more_is_promised_than_the_waiting_that_so_many_workers_remove(
    tmp_path: Path, waited: float, cpus: int | None, goes: float
) -> None:
    change = validated(tmp_path / "run", waited, 0, {}, cpus).next[0]
    facts = facts_of_run(tmp_path / "run")
    most = facts.samples_per_s_without(goes * facts.parts.boundary_ns)
    assert most is not None
    assert change.high is not None
    assert change.predicted_samples_per_s is not None
    assert change.predicted_samples_per_s <= most < change.high < most * math.exp(1.645 * SCATTER_SD) * 1.1


@pytest.mark.parametrize(("of_training", "advised"), [(2, False), (4, True)])
def test_validation_is_not_told_to_take_what_it_has(tmp_path: Path, of_training: int, advised: bool) -> None:
    """Its two workers have time to spare, and what it waits for is not known."""
    validated(tmp_path / "run", 0.6, 2, {"starting": 0.02, "busy": 0.5})
    loader_of(tmp_path / "run", of_training, 0)
    changes = [change.change for change in found(tmp_path / "run")["host.boundary"].next]
    assert any(change.startswith("Give the validation loader") for change in changes) is advised
    assert [change.startswith("Validate less often") for change in changes].count(True) == 1


def test_workers_that_start_once_are_not_told_to_be_persistent(tmp_path: Path) -> None:
    """They are: only the first pass waits for them to start."""
    spans = bounded(tmp_path / "run", 0.3)
    evaluated(tmp_path / "run", spans[:1], waited=0.8)
    evaluated(tmp_path / "run", spans[1:], waited=0.02, workers=2)
    made(tmp_path / "run", spans, workers=2, starting=0.7, busy=0.5, persistent=True)
    seen = outside_of(tmp_path / "run").evaluation
    assert seen.started_once
    assert seen.cause is None
    finding = found(tmp_path / "run")["host.boundary"]
    assert not any("persistent_workers" in change.change for change in finding.next)


def test_validation_and_a_checkpoint_within_it_are_counted_apart(tmp_path: Path) -> None:
    spans = bounded(tmp_path / "run", 0.4)
    evaluated(tmp_path / "run", spans, waited=0.0, workers=1)
    add_events(tmp_path / "run", [((begin + end) // 2, EventKind.SAVE, 0, end) for begin, end in spans])
    seen = evidence(found(tmp_path / "run")["host.boundary"])
    assert seen["Validation that computes"] == pytest.approx(20, abs=2)
    assert seen["Saving checkpoints"] == pytest.approx(20, abs=2)


def loader_of(folder: Path, workers: int, flags: int) -> None:
    told = [(EventKind.LOADER_WORKERS, workers), (EventKind.LOADER_FLAGS, flags)]
    add_events(folder, [(START, what, value, NOT_MEASURED) for what, value in told])


@pytest.mark.parametrize("share", SEVERITIES)
def test_ends_of_epochs_are_those_of_workers_that_live_for_one(tmp_path: Path, share: float) -> None:
    spans = bounded(tmp_path / "run", share, epochs=True)
    loader_of(tmp_path / "run", 3, 0)
    outside = outside_of(tmp_path / "run")
    # Nothing follows the last pass, so its end is no such one.
    assert outside.epochs_ended == PASSES - 1
    assert outside.epochs_ending_ns == pytest.approx(sum(end - begin for begin, end in spans[:-1]), rel=0.02)
    finding = found(tmp_path / "run")["host.boundary"]
    assert finding.share == pytest.approx(share, abs=0.02)
    assert finding.title.endswith("at the ends of epochs, where workers that live for one epoch are stopped.")
    seen = evidence(finding)
    assert seen["Ends of epochs explained by stopping workers"] == pytest.approx(75 * share, abs=2)
    assert seen["Workers stopped at each end"] == 3
    assert seen["persistent_workers"] == "off"
    assert finding.next[0].change.startswith("Set `persistent_workers=True` in a DataLoader that is created once")


def test_workers_that_live_on_are_offered_before_what_validation_lacks(tmp_path: Path) -> None:
    spans = bounded(tmp_path / "run", 0.2, epochs=True)
    loader_of(tmp_path / "run", 3, 0)
    evaluated(tmp_path / "run", [(at, end - (end - at) // 7) for at, end in spans], waited=0.9, workers=2)
    finding = found(tmp_path / "run")["host.boundary"]
    assert evidence(finding)["persistent_workers"] == "off"
    assert finding.next[0].change.startswith("Set `persistent_workers=True` in a DataLoader")
    assert "validation" in finding.next[1].change


@pytest.mark.parametrize(
    ("share", "epochs", "loader"),
    [
        (0.3, True, (3, LoaderFlag.PERSISTENT_WORKERS)),
        (0.3, True, None),
        (0.3, True, (0, 0)),
        (0.3, False, (3, 0)),  # within epochs
        (0.8, True, (3, 0)),  # longer than ending workers takes
    ],
)
def test_where_ending_workers_does_not_explain_it_the_programs_own_is_looked_at(
    tmp_path: Path, share: float, epochs: bool, loader: tuple[int, int] | None
) -> None:
    bounded(tmp_path / "run", share, epochs)
    if loader:
        loader_of(tmp_path / "run", *loader)
    finding = found(tmp_path / "run")["host.boundary"]
    assert finding.title.endswith("outside the steps: validation, checkpoints, hooks.")
    assert finding.next[0].change.startswith("Look at what runs between the steps")


@pytest.mark.parametrize("what", [EventKind.EVALUATION, EventKind.SAVE, EventKind.PHASE])
def test_what_is_known_of_the_ends_of_epochs_is_not_blamed_on_workers(tmp_path: Path, what: int) -> None:
    spans = bounded(tmp_path / "run", 0.3, epochs=True)
    loader_of(tmp_path / "run", 3, 0)
    add_events(tmp_path / "run", [(begin, what, 0, end) for begin, end in spans])
    assert outside_of(tmp_path / "run").epochs_ending_ns < 0.01 * sum(end - begin for begin, end in spans)
    finding = found(tmp_path / "run")["host.boundary"]
    assert not any("persistent_workers" in change.change for change in finding.next)


def test_workers_that_live_on_are_not_ended_where_the_loader_is_made_anew(tmp_path: Path) -> None:
    bounded(tmp_path / "run", 0.3, epochs=True)
    loader_of(tmp_path / "run", 3, LoaderFlag.PERSISTENT_WORKERS)
    facts = facts_of_run(tmp_path / "run")
    anew = dataclasses.replace(facts, waits=dataclasses.replace(facts.waits, iterators=PASSES))
    (one,) = (each for each in findings_of(anew) if each.cause == "host.boundary")
    assert not any("persistent_workers" in change.change for change in one.next)
