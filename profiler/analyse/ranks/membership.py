"""The ranks of a job: which process recorded each of them, in one run folder or in several of different hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from ...errors import RecordError
from ...record.reader import RecordFile
from ...record.run import Run, Writer, processes
from ...record.schema import STEP
from ..run.window import or_nan

SAME_CLOCK_NS = 1_000_000_000
"""Difference of two ranks' starts of the monotonic clock, by the wall clock, up to which they share that clock: it
starts with its machine."""
MOST_APART_NS = 600 * 10**9
"""Time between the end of one part of a job and the begin of another, by their hosts' wall clocks, up to which they may
be of one job: such clocks may be set badly."""
LISTED = 12
"""Ranks that a sentence names one by one, at most."""
LEAST_MORE_STEPS = 5
"""Steps by which a rank may be behind another without having run fewer: the hooks may miss one, or leave some out."""


@dataclass(frozen=True)
class RankProcess:
    """One rank, and the process that ran most of its steps."""

    rank: int
    host: str
    run: Run
    writer: Writer
    """Of a rank without any step, one that wrote nothing."""
    info: dict[str, Any]
    """run.json, with what the process itself said of its device."""
    world_size: int | None
    wall_ns: int | None
    """Wall clock minus monotonic clock, as its process read them."""
    clock: int
    """Ranks with the same number share a monotonic clock."""
    killed: bool
    """Whether it did not end its recording, though the run has ended, and nothing says that it came to its end all the
    same."""
    argv: Any = None
    """The process's own command."""
    launched: bool = False
    """Whether its launcher told it its place on its host, so that it is one of several for sure."""

    @property
    def steps(self) -> int:
        """Count the steps that it recorded, without reading them."""
        return sum(file.count() for file in self.run.files(STEP, self.writer))


def ranks_of(runs: Sequence[Run]) -> list[RankProcess]:
    """All ranks that recorded, by number.

    Raises:
        RecordError: the folders are not parts of one job.
    """
    found = [rank for run in runs for rank in _of_folder(run)]
    if len(runs) > 1:
        _check(runs, found)
    found.sort(key=lambda rank: rank.rank)
    return _with_clocks(_without_those_that_left(found))


def missing(ranks: Sequence[RankProcess]) -> list[int]:
    """Ranks of the job that recorded nothing, as far as it is known how many there are."""
    size = max((rank.world_size or 0 for rank in ranks), default=0)
    return sorted(set(range(size)) - {rank.rank for rank in ranks})


def surely_missing(ranks: Sequence[RankProcess]) -> list[int]:
    """Those of `missing` that really ran: of a single process the environment may tell of a job that it is no part of,
    as a shell does within an allocation of a cluster."""
    return missing(ranks) if len(ranks) > 1 or any(rank.launched for rank in ranks) else []


def listed(numbers: Sequence[int]) -> str:
    """`rank 3`, `ranks 1 and 2`, `ranks 0, 1, 2 … (40 in all)`."""
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if len(numbers) > LISTED:
        return f"ranks {', '.join(map(str, numbers[:LISTED]))} … ({len(numbers)} in all)"
    return f"ranks {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def unended(ranks: Sequence[int]) -> str:
    """A clause that says that these ranks were killed, as far as it is known."""
    return f"{listed(ranks)} did not end the recording: killed, or left by os._exit; the last steps may be missing"


def _of_folder(run: Run) -> Iterator[RankProcess]:
    told = {(process.rank, process.pid): process for process in processes(run.folder)}
    files = {(file.header.rank, file.header.pid): file for file in run.files(STEP)}
    host = run.info.get("host") or {}
    for writer in _chosen(sorted(told.keys() | files.keys()), files):
        process, file = told.get(writer), files.get(writer)
        said = process.info if process is not None else {}
        yield RankProcess(
            writer[0],
            (process.host if process is not None else "") or str(host.get("name", "")),
            run,
            writer,
            run.info | {key: said[key] for key in ("device", "torch", "python") if said.get(key)},
            process.world_size if process is not None else None,
            wall_ns(said.get("clock")) or wall_ns(run.info.get("clock")),
            0,
            file is not None and not file.header.closed and bool(run.info.get("ended")),
            said.get("command"),
            isinstance(said.get("local_rank"), int),
        )


def _chosen(writers: Sequence[Writer], files: Mapping[Writer, RecordFile]) -> list[Writer]:
    """Of each rank the process with most steps, among those that trained while the job's longest one did."""
    by_rank: dict[int, list[Writer]] = {}
    for writer in writers:
        by_rank.setdefault(writer[0], []).append(writer)
    counts = {writer: files[writer].count() if writer in files else 0 for writer in writers}
    if len(by_rank) in (1, len(writers)):
        return [max(of_rank, key=lambda writer: counts[writer]) for of_rank in by_rank.values()]
    longest = max(writers, key=lambda writer: counts[writer])
    begin, end = _span(files.get(longest))

    def fits(writer: Writer) -> tuple[bool, bool, int]:
        first, last = _span(files.get(writer))
        return writer == longest, first < end and last > begin, counts[writer]

    return [max(of_rank, key=fits) for of_rank in by_rank.values()]


def _span(steps: RecordFile | None) -> tuple[int, int]:
    """When steps began and ended, by the monotonic clock, from the first and the last alone; zeros of none."""
    if steps is None or not (count := steps.count()):
        return 0, 0
    return int(steps.read(0, 1)["fetch_begin_ns"][0]), int(steps.read(count - 1, 1)["step_end_ns"][0])


def _without_those_that_left(ranks: list[RankProcess]) -> list[RankProcess]:
    """With `killed` taken back of ranks that came to their end, and left by `os._exit(0)`, which ends no recording.

    The command of the run ended with 0, and hands on how its trainings ended: it is Python, or a launcher.
    Anything else, such as a script of a shell, may have ended well though its training was killed; and a rank that ran
    fewer steps than the others did not end with them.
    """
    if not any(rank.killed for rank in ranks):
        return ranks
    most = max(rank.steps for rank in ranks)

    def left(rank: RankProcess) -> bool:
        if (rank.run.info.get("ended") or {}).get("exit_code") != 0 or most - rank.steps > LEAST_MORE_STEPS:
            return False
        command = rank.run.info.get("command")
        itself = (
            isinstance(command, list)
            and command
            and (command == rank.argv or Path(str(command[0])).name.startswith("python"))
        )
        return len(ranks) > 1 or rank.launched or bool(itself)

    return [replace(rank, killed=rank.killed and not left(rank)) for rank in ranks]


def wall_ns(pair: Any) -> int | None:
    """Unix time minus CLOCK_MONOTONIC of a pair as run.json holds it; `None` where it holds none."""
    if not isinstance(pair, dict):
        return None
    wall, monotonic = pair.get("time_ns"), pair.get("monotonic_ns")
    return wall - monotonic if isinstance(wall, int) and isinstance(monotonic, int) else None


def _with_clocks(ranks: list[RankProcess]) -> list[RankProcess]:
    """Number the monotonic clocks: one for each host, more where hosts of one name have started at different times."""
    numbered: list[RankProcess] = []
    for rank in ranks:
        clocks = max((other.clock + 1 for other in numbered), default=0)
        shared = (
            other.clock
            for other in numbered
            if other.host == rank.host and not abs(or_nan(other.wall_ns) - or_nan(rank.wall_ns)) >= SAME_CLOCK_NS
        )
        numbered.append(replace(rank, clock=next(shared, clocks)))
    return numbered


def _check(runs: Sequence[Run], ranks: Sequence[RankProcess]) -> None:
    """Whether the folders can be parts of one job."""
    way_out = "Name the folders of one job only, one for each host."
    seen: dict[int, RankProcess] = {}
    for rank in ranks:
        if (twin := seen.setdefault(rank.rank, rank)) is not rank:
            raise RecordError(
                f"rank {rank.rank} is both in {twin.run.folder} and in {rank.run.folder}: these are different jobs. "
                f"{way_out}"
            )
    sizes = sorted({rank.world_size for rank in ranks if rank.world_size is not None})
    if len(sizes) > 1:
        raise RecordError(f"the folders are of jobs with {' and with '.join(map(str, sizes))} ranks. {way_out}")
    spans = []
    for run in runs:
        # When its trainings ran, by the wall clock of their host.
        steps = [(rank.wall_ns, file) for rank in ranks if rank.run is run for file in run.files(STEP, rank.writer)]
        ran = [(ahead, *_span(file)) for ahead, file in steps if ahead is not None and file.count()]
        if ran:
            spans.append((min(f + ahead for ahead, f, _ in ran), max(e + ahead for ahead, _, e in ran), run.folder))
    for (_, ended, before), (began, _, folder) in pairwise(sorted(spans)):
        if began > ended + MOST_APART_NS:
            raise RecordError(
                f"{folder} began {(began - ended) / 60e9:.0f} minutes after {before} had ended: these are different "
                f"jobs. {way_out}"
            )
