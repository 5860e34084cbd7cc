"""Time outside the steps: what most of it is, and what a validation that waits for data lacks."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

import pytest

from support.crafted import add, add_events, evidence, facts_of_run, found
from whyidle.analyse.causes.diagnosis import findings_of
from whyidle.analyse.speedup import SCATTER_SD
from whyidle.record.run import open_run
from whyidle.record.schema import BATCH, EVENT, HOST, NOT_MEASURED, EventKind, LoaderFlag
from whyidle.scenarios.planted import MS, START, Step, train

SEVERITIES = [0.12, 0.3, 0.6]
PASSES = 4


def bounded(folder: Path, share: float) -> list[tuple[int, int]]:
    """So much of the time outside the steps, after every 40th; when that was."""
    each = round(400 * MS * share / (1 - share))
    train(folder, [([Step(fetch_ns=0)] * 39 + [Step(fetch_ns=0, sync=True, boundary_ns=each)]) * PASSES])
    events = open_run(folder).records(EVENT)
    spans = events[events["what"] == EventKind.BOUNDARY]
    return list(zip(spans["t_ns"].tolist(), spans["end_ns"].tolist(), strict=True))


def evaluated(folder: Path, spans: list[tuple[int, int]], waited: float, workers: int | None = None) -> None:
    """Validation all that time, waiting for data for such a part of it."""
    rows = []
    for begin, end in spans:
        rows.append((begin, EventKind.EVALUATION, round(waited * (end - begin)), end))
        if workers is not None:
            rows.append((end, EventKind.EVALUATION_WORKERS, workers, NOT_MEASURED))
    add_events(folder, rows)


def made(
    folder: Path,
    spans: list[tuple[int, int]],
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
        each = (end - begin) // 10
        for batch in range(10 // first):
            length = each * first
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
                for worker in range(workers)
            ]
    add(folder, BATCH, rows)


@pytest.mark.parametrize("share", SEVERITIES)
def test_time_outside_the_steps_has_its_share(tmp_path: Path, share: float) -> None:
    bounded(tmp_path / "run", share)
    finding = found(tmp_path / "run")["host.boundary"]
    assert finding.share == pytest.approx(share, abs=0.02)
    assert "validation, checkpoints, hooks" in finding.title
    assert facts_of_run(tmp_path / "run").outside is not None


def test_light_validation_is_no_finding(tmp_path: Path) -> None:
    spans = bounded(tmp_path / "run", 0.02)
    evaluated(tmp_path / "run", spans, waited=0.9, workers=0)
    assert found(tmp_path / "run") == {}


@pytest.mark.parametrize("share", SEVERITIES)
def test_validation_that_waits_for_a_loader_without_workers_says_so(tmp_path: Path, share: float) -> None:
    spans = bounded(tmp_path / "run", share)
    evaluated(tmp_path / "run", spans, waited=0.8, workers=0)
    finding = found(tmp_path / "run")["host.boundary"]
    assert finding.share == pytest.approx(share, abs=0.02)
    assert finding.title.endswith(
        "spent outside the steps, most of it validation that waits for data: its loader has no workers."
    )
    seen = evidence(finding)
    assert seen["cause of its waiting"] == "input.serial"
    assert seen["validation that waits for data"] == pytest.approx(80 * share, abs=2)
    assert finding.next[0].change.startswith("num_workers=")
    # At most the waiting can go, not the validation.
    facts = facts_of_run(tmp_path / "run")
    most = facts.samples_per_s_without(0.8 * facts.parts.boundary_ns)
    change = finding.next[0]
    assert most is not None
    assert change.predicted_samples_per_s is not None
    assert change.high is not None
    assert change.predicted_samples_per_s <= most
    assert most < change.high < most * math.exp(1.645 * SCATTER_SD) * 1.1


def test_busy_workers_of_a_validation_are_too_few(tmp_path: Path) -> None:
    spans = bounded(tmp_path / "run", 0.3)
    evaluated(tmp_path / "run", spans, waited=0.8, workers=2)
    made(tmp_path / "run", spans, workers=2, starting=0.02, busy=0.95)
    finding = found(tmp_path / "run")["host.boundary"]
    assert evidence(finding)["cause of its waiting"] == "input.too_few_workers"
    assert evidence(finding)["its workers busy"] == pytest.approx(95, abs=2)
    assert "now 2" in finding.next[0].change


def budget(folder: Path, cpus: int) -> None:
    add(folder, HOST, [{"t_ns": START + n * 100 * MS, "cpus": 1000 * cpus} for n in range(20)])


def proposed(folder: Path) -> int:
    change = found(folder)["host.boundary"].next[0].change
    told = re.match(r"num_workers=(\d+) for the validation loader", change)
    assert told is not None, change
    return int(told[1])


@pytest.mark.parametrize(("waited", "wanted"), [(0.6, 2), (0.79, 5), (0.89, 11)])
def test_validation_is_given_the_workers_that_keep_up_with_it(tmp_path: Path, waited: float, wanted: int) -> None:
    """Little's law: the time its batches take over the time it needs for them, the workers busy 80 %."""
    spans = bounded(tmp_path / "run", 0.3)
    evaluated(tmp_path / "run", spans, waited=waited, workers=0)
    budget(tmp_path / "run", 192)
    assert proposed(tmp_path / "run") == wanted


def test_workers_for_validation_have_a_limit(tmp_path: Path) -> None:
    serial = tmp_path / "serial"
    evaluated(serial, bounded(serial, 0.3), waited=0.999, workers=0)
    budget(serial, 192)
    assert proposed(serial) == 64
    few_cpus = tmp_path / "few_cpus"
    evaluated(few_cpus, bounded(few_cpus, 0.3), waited=0.999, workers=0)
    budget(few_cpus, 4)
    assert proposed(few_cpus) == 4
    # Two workers make 20 batches in a pass.
    batches = tmp_path / "batches"
    spans = bounded(batches, 0.3)
    evaluated(batches, spans, waited=0.99, workers=2)
    made(batches, spans, workers=2, starting=0.02, busy=0.95)
    budget(batches, 192)
    assert proposed(batches) == 20


@pytest.mark.parametrize(("cpu", "wanted"), [(0.9, 4), (0.1, 20)])
def test_workers_that_mostly_wait_may_be_more_than_the_cpus(tmp_path: Path, cpu: float, wanted: int) -> None:
    spans = bounded(tmp_path / "run", 0.3)
    evaluated(tmp_path / "run", spans, waited=0.99, workers=2)
    made(tmp_path / "run", spans, workers=2, starting=0.02, busy=0.95, cpu=cpu)
    budget(tmp_path / "run", 4)
    assert proposed(tmp_path / "run") == wanted


def test_where_more_workers_are_of_no_use_samples_have_to_be_cheaper(tmp_path: Path) -> None:
    spans = bounded(tmp_path / "run", 0.3)
    evaluated(tmp_path / "run", spans, waited=0.8, workers=4)
    made(tmp_path / "run", spans, workers=4, starting=0.02, busy=0.95)
    budget(tmp_path / "run", 2)
    change = found(tmp_path / "run")["host.boundary"].next[0]
    assert "num_workers" not in change.change
    assert "cheaper samples" in change.change


def test_workers_that_start_for_each_pass_are_named(tmp_path: Path) -> None:
    spans = bounded(tmp_path / "run", 0.3)
    evaluated(tmp_path / "run", spans, waited=0.8, workers=2)
    made(tmp_path / "run", spans, workers=2, starting=0.7, busy=0.5)
    finding = found(tmp_path / "run")["host.boundary"]
    assert evidence(finding)["cause of its waiting"] == "input.worker_restart"
    assert "persistent_workers=True" in finding.next[0].change


def test_a_start_that_is_waited_for_longest_is_named_though_the_first_batch_takes_its_part(tmp_path: Path) -> None:
    """Neither alone is half of the waiting, both together are, and workers that have time to spare are not too few."""
    spans = bounded(tmp_path / "run", 0.3)
    evaluated(tmp_path / "run", spans, waited=0.6, workers=2)
    made(tmp_path / "run", spans, workers=2, starting=0.27, busy=0.5)
    finding = found(tmp_path / "run")["host.boundary"]
    assert finding.title.endswith("its loader's workers are started for each pass.")
    assert "persistent_workers=True" in finding.next[0].change


def test_what_busy_workers_make_later_is_not_blamed_on_their_start(tmp_path: Path) -> None:
    spans = bounded(tmp_path / "run", 0.3)
    evaluated(tmp_path / "run", spans, waited=0.6, workers=2)
    made(tmp_path / "run", spans, workers=2, starting=0.27, busy=0.95)
    assert evidence(found(tmp_path / "run")["host.boundary"])["cause of its waiting"] == "input.too_few_workers"


@pytest.mark.parametrize(("of_training", "advised"), [(2, False), (4, True)])
def test_validation_is_not_told_to_take_what_it_has(tmp_path: Path, of_training: int, advised: bool) -> None:
    """Its two workers have time to spare, and what it waits for is not known."""
    spans = bounded(tmp_path / "run", 0.3)
    loader_of(tmp_path / "run", of_training, 0)
    evaluated(tmp_path / "run", spans, waited=0.6, workers=2)
    made(tmp_path / "run", spans, workers=2, starting=0.02, busy=0.5)
    changes = [change.change for change in found(tmp_path / "run")["host.boundary"].next]
    assert any(change.startswith("give the validation loader") for change in changes) is advised
    assert [change.startswith("validate less often") for change in changes].count(True) == 1


def test_workers_that_start_once_are_not_told_to_be_persistent(tmp_path: Path) -> None:
    """They are: only the first pass waits for them to start."""
    spans = bounded(tmp_path / "run", 0.3)
    rows = [
        (begin, EventKind.EVALUATION, round((0.02 if number else 0.8) * (end - begin)), end)
        for number, (begin, end) in enumerate(spans)
    ]
    add_events(tmp_path / "run", [*rows, (spans[-1][1], EventKind.EVALUATION_WORKERS, 2, NOT_MEASURED)])
    made(tmp_path / "run", spans, workers=2, starting=0.7, busy=0.5, persistent=True)
    seen = facts_of_run(tmp_path / "run").outside
    assert seen is not None
    assert seen.evaluation is not None
    assert seen.evaluation.started_once
    assert seen.evaluation.cause is None
    finding = found(tmp_path / "run")["host.boundary"]
    assert not any("persistent_workers" in change.change for change in finding.next)


def test_where_validation_waited_only_for_its_workers_to_start_once_it_says_so(tmp_path: Path) -> None:
    spans = bounded(tmp_path / "run", 0.3)
    first = [(spans[0][0], spans[-1][1])]
    evaluated(tmp_path / "run", first, waited=0.1, workers=2)
    made(tmp_path / "run", first, workers=2, starting=0.08, busy=0.5)
    seen = facts_of_run(tmp_path / "run").outside
    assert seen is not None
    assert seen.evaluation is not None
    assert seen.evaluation.started_once


@pytest.mark.parametrize(("workers", "left"), [(2, 0.5), (4, 0.25)])
def test_so_many_workers_divide_the_wait_of_a_validation_at_best(tmp_path: Path, workers: int, left: float) -> None:
    spans = bounded(tmp_path / "run", 0.3)
    evaluated(tmp_path / "run", spans, waited=0.999, workers=0)
    budget(tmp_path / "run", workers)
    facts = facts_of_run(tmp_path / "run")
    change = found(tmp_path / "run")["host.boundary"].next[0]
    assert change.change.startswith(f"num_workers={workers} ")
    most = facts.samples_per_s_without((1 - left) * facts.parts.boundary_ns)
    assert most is not None
    assert change.high is not None
    assert change.predicted_samples_per_s is not None
    assert change.predicted_samples_per_s < most < change.high < most * math.exp(1.645 * SCATTER_SD) * 1.1


def test_a_first_batch_that_takes_most_of_the_pass_is_named(tmp_path: Path) -> None:
    spans = bounded(tmp_path / "run", 0.3)
    evaluated(tmp_path / "run", spans, waited=0.7, workers=2)
    made(tmp_path / "run", spans, workers=2, starting=0.05, busy=0.9, first=5)
    assert evidence(found(tmp_path / "run")["host.boundary"])["cause of its waiting"] == "input.pipeline_fill"


def test_a_loader_of_which_nothing_is_known_has_no_cause(tmp_path: Path) -> None:
    spans = bounded(tmp_path / "run", 0.3)
    evaluated(tmp_path / "run", spans, waited=0.8)
    finding = found(tmp_path / "run")["host.boundary"]
    assert finding.title.endswith("most of it validation that waits for data.")
    assert "cause of its waiting" not in evidence(finding)
    assert evidence(finding)["workers of its loader"] is None


def test_validation_that_computes_is_told_from_one_that_waits(tmp_path: Path) -> None:
    spans = bounded(tmp_path / "run", 0.3)
    evaluated(tmp_path / "run", spans, waited=0.05, workers=2)
    finding = found(tmp_path / "run")["host.boundary"]
    assert finding.title.endswith("most of it validation that computes.")
    assert "validate less often" in finding.next[0].change


@pytest.mark.parametrize("share", SEVERITIES)
def test_checkpoints_are_named(tmp_path: Path, share: float) -> None:
    spans = bounded(tmp_path / "run", share)
    add_events(tmp_path / "run", [(begin, EventKind.SAVE, 0, begin + 9 * (end - begin) // 10) for begin, end in spans])
    finding = found(tmp_path / "run")["host.boundary"]
    assert finding.title.endswith("most of it saving checkpoints.")
    assert evidence(finding)["saving checkpoints"] == pytest.approx(90 * share, abs=2)
    assert evidence(finding)["checkpoints saved"] == PASSES
    assert "async_save" in finding.next[0].change


def test_validation_and_a_checkpoint_are_counted_apart(tmp_path: Path) -> None:
    """The checkpoint is written within the pass, as a callback does it."""
    spans = bounded(tmp_path / "run", 0.4)
    evaluated(tmp_path / "run", spans, waited=0.0, workers=1)
    add_events(tmp_path / "run", [((begin + end) // 2, EventKind.SAVE, 0, end) for begin, end in spans])
    seen = evidence(found(tmp_path / "run")["host.boundary"])
    assert seen["validation that computes"] == pytest.approx(20, abs=2)
    assert seen["saving checkpoints"] == pytest.approx(20, abs=2)


def between_epochs(folder: Path, share: float) -> list[tuple[int, int]]:
    """So much of the time outside the steps, after the last one of each epoch; when that was."""
    each = round(400 * MS * share / (1 - share))
    train(folder, [[Step(fetch_ns=0)] * 39 + [Step(fetch_ns=0, sync=True, boundary_ns=each)]] * PASSES)
    events = open_run(folder).records(EVENT)
    spans = events[events["what"] == EventKind.BOUNDARY]
    return list(zip(spans["t_ns"].tolist(), spans["end_ns"].tolist(), strict=True))


def loader_of(folder: Path, workers: int, flags: int) -> None:
    told = [(EventKind.LOADER_WORKERS, workers), (EventKind.LOADER_FLAGS, flags)]
    add_events(folder, [(START, what, value, NOT_MEASURED) for what, value in told])


@pytest.mark.parametrize("share", SEVERITIES)
def test_ends_of_epochs_are_those_of_workers_that_live_for_one(tmp_path: Path, share: float) -> None:
    spans = between_epochs(tmp_path / "run", share)
    loader_of(tmp_path / "run", 3, 0)
    outside = facts_of_run(tmp_path / "run").outside
    assert outside is not None
    # Nothing follows the last pass, so its end is no such one.
    assert outside.epochs_ended == PASSES - 1
    assert outside.epochs_ending_ns == pytest.approx(sum(end - begin for begin, end in spans[:-1]), rel=0.02)
    finding = found(tmp_path / "run")["host.boundary"]
    assert finding.share == pytest.approx(share, abs=0.02)
    assert finding.title.endswith("most of it at the ends of epochs, where workers that live for one epoch are ended.")
    seen = evidence(finding)
    assert seen["ends of epochs that nothing but ending workers explains"] == pytest.approx(75 * share, abs=2)
    assert seen["workers that are ended at each"] == 3
    assert seen["persistent_workers"] == "off"
    assert finding.next[0].change.startswith("persistent_workers=True in a DataLoader that is made once")


def test_workers_that_live_on_are_offered_before_what_validation_lacks(tmp_path: Path) -> None:
    spans = between_epochs(tmp_path / "run", 0.2)
    loader_of(tmp_path / "run", 3, 0)
    evaluated(tmp_path / "run", [(at, end - (end - at) // 7) for at, end in spans], waited=0.9, workers=2)
    finding = found(tmp_path / "run")["host.boundary"]
    assert evidence(finding)["persistent_workers"] == "off"
    assert finding.next[0].change.startswith("persistent_workers=True in a DataLoader")
    assert "validation" in finding.next[1].change


@pytest.mark.parametrize("flags", [LoaderFlag.PERSISTENT_WORKERS, None])
def test_workers_that_live_on_do_not_explain_the_ends_of_epochs(tmp_path: Path, flags: int | None) -> None:
    between_epochs(tmp_path / "run", 0.3)
    if flags is not None:
        loader_of(tmp_path / "run", 3, flags)
    finding = found(tmp_path / "run")["host.boundary"]
    assert finding.title.endswith("outside the steps: validation, checkpoints, hooks.")
    assert finding.next[0].change.startswith("look at what runs between the steps")


def test_a_loader_without_workers_ends_none(tmp_path: Path) -> None:
    between_epochs(tmp_path / "run", 0.3)
    loader_of(tmp_path / "run", 0, 0)
    assert found(tmp_path / "run")["host.boundary"].next[0].change.startswith("look at what runs")


@pytest.mark.parametrize("what", [EventKind.EVALUATION, EventKind.SAVE, EventKind.PHASE])
def test_what_is_known_of_the_ends_of_epochs_is_not_blamed_on_workers(tmp_path: Path, what: int) -> None:
    spans = between_epochs(tmp_path / "run", 0.3)
    loader_of(tmp_path / "run", 3, 0)
    add_events(tmp_path / "run", [(begin, what, 0, end) for begin, end in spans])
    outside = facts_of_run(tmp_path / "run").outside
    assert outside is not None
    assert outside.epochs_ending_ns < 0.01 * sum(end - begin for begin, end in spans)
    finding = found(tmp_path / "run")["host.boundary"]
    assert not any("persistent_workers" in change.change for change in finding.next)


def test_ends_of_epochs_that_take_longer_than_ending_workers_are_the_programs_own(tmp_path: Path) -> None:
    between_epochs(tmp_path / "run", 0.8)
    loader_of(tmp_path / "run", 3, 0)
    finding = found(tmp_path / "run")["host.boundary"]
    assert finding.next[0].change.startswith("look at what runs")


def test_what_happens_within_epochs_is_not_ending_workers(tmp_path: Path) -> None:
    bounded(tmp_path / "run", 0.3)
    loader_of(tmp_path / "run", 3, 0)
    assert found(tmp_path / "run")["host.boundary"].next[0].change.startswith("look at what runs")


def test_workers_that_live_on_are_not_ended_where_the_loader_is_made_anew(tmp_path: Path) -> None:
    between_epochs(tmp_path / "run", 0.3)
    loader_of(tmp_path / "run", 3, LoaderFlag.PERSISTENT_WORKERS)
    facts = facts_of_run(tmp_path / "run")
    anew = dataclasses.replace(facts, waits=dataclasses.replace(facts.waits, iterators=PASSES))
    (one,) = (each for each in findings_of(anew) if each.cause == "host.boundary")
    assert not any("persistent_workers" in change.change for change in one.next)
