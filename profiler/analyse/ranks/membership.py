"""The ranks of a job: which process recorded each of them, in one run folder or in several of different hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from ...errors import RecordError
from ...record.reader import RecordFile
from ...record.run import Run, TrainingProcess, Writer, processes
from ...record.schema import STEP

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


def listed(numbers: Sequence[int], one: str = "rank", several: str = "ranks") -> str:
    """`rank 3`, `ranks 1 and 2`, `ranks 0, 1, 2 … (40 in all)`."""
    if len(numbers) == 1:
        return f"{one} {numbers[0]}"
    if len(numbers) > LISTED:
        return f"{several} {', '.join(map(str, numbers[:LISTED]))} … ({len(numbers)} in all)"
    return f"{several} {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def unended(ranks: Sequence[int]) -> str:
    """A clause that says that these ranks were killed, as far as it is known."""
    return f"{listed(ranks)} did not end the recording: killed, or left by os._exit; the last steps may be missing"


@dataclass(frozen=True)
class _Candidate:
    """A process that may be the one of its rank."""

    rank: int
    writer: Writer
    count: int
    file: RecordFile | None
    process: TrainingProcess | None


def _of_folder(run: Run) -> Iterator[RankProcess]:
    told = {(process.rank, process.pid): process for process in processes(run.folder)}
    files = {(file.header.rank, file.header.pid): file for file in run.files(STEP)}
    by_rank: dict[int, list[_Candidate]] = {}
    for writer in sorted(told.keys() | files.keys()):
        file = files.get(writer)
        count = file.count() if file is not None else 0
        candidate = _Candidate(writer[0], writer, count, file, told.get(writer))
        by_rank.setdefault(writer[0], []).append(candidate)
    for chosen in _chosen(by_rank):
        process, host = chosen.process, run.info.get("host") or {}
        said = process.info if process is not None else {}
        own = {key: said[key] for key in ("device", "torch", "python") if said.get(key)}
        yield RankProcess(
            chosen.rank,
            (process.host if process is not None else "") or str(host.get("name", "")),
            run,
            chosen.writer,
            run.info | own,
            process.world_size if process is not None else None,
            wall_ns(said.get("clock")) or wall_ns(run.info.get("clock")),
            0,
            chosen.file is not None and not chosen.file.header.closed and bool(run.info.get("ended")),
            said.get("command"),
            isinstance(said.get("local_rank"), int),
        )


def _without_those_that_left(ranks: list[RankProcess]) -> list[RankProcess]:
    """With `killed` taken back of ranks that came to their end, and left by `os._exit(0)`, which ends no recording.

    The command of the run ended with 0, and hands on how its trainings ended: it is the training itself, or a launcher.
    Anything else, such as a script of a shell, may have ended well though its training was killed; and a rank that ran
    fewer steps than the others did not end with them.
    """
    if not any(rank.killed for rank in ranks):
        return ranks
    counts = [len(rank.run.records(STEP, rank.writer)) for rank in ranks]

    def left(rank: RankProcess, count: int) -> bool:
        if (rank.run.info.get("ended") or {}).get("exit_code") != 0 or max(counts) - count > LEAST_MORE_STEPS:
            return False
        return len(ranks) > 1 or rank.launched or _is_command_itself(rank)

    return [
        replace(rank, killed=rank.killed and not left(rank, count)) for rank, count in zip(ranks, counts, strict=True)
    ]


def _is_command_itself(rank: RankProcess) -> bool:
    """Whether the run's command is this process: `python [options] SCRIPT …`, `python -m MODULE …`, or a script."""
    command, argv = rank.run.info.get("command"), rank.argv
    if not isinstance(command, list) or not isinstance(argv, list) or not argv:
        return False
    command, argv = [str(word) for word in command], [str(word) for word in argv]
    if command == argv:
        return True
    before = len(command) - len(argv)
    if before < 1 or command[before + 1 :] != argv[1:] or not Path(command[0]).name.startswith("python"):
        return False
    options = command[1:before]
    # Of a module Python itself puts the path of its file in place of the name.
    if options and options[-1] == "-m":
        options = options[:-1]
    elif command[before] != argv[0]:
        return False
    return all(option.startswith("-") and option != "-m" for option in options)


def _chosen(by_rank: dict[int, list[_Candidate]]) -> Iterator[_Candidate]:
    """Of each rank the process with most steps, among those that trained while the job's longest one did."""
    several = any(len(candidates) > 1 for candidates in by_rank.values())
    if not several or len(by_rank) == 1:
        yield from (max(candidates, key=lambda c: c.count) for candidates in by_rank.values())
        return
    longest = max((c for candidates in by_rank.values() for c in candidates), key=lambda c: c.count)
    begin, end = _span(longest)

    def fits(candidate: _Candidate) -> tuple[bool, int]:
        first, last = _span(candidate)
        return first < end and last > begin, candidate.count

    for candidates in by_rank.values():
        yield longest if longest in candidates else max(candidates, key=fits)


def _span(candidate: _Candidate) -> tuple[int, int]:
    if candidate.file is None or candidate.count == 0:
        return 0, 0
    steps = candidate.file.all()
    return int(steps["fetch_begin_ns"][0]), int(steps["step_end_ns"][-1])


def wall_ns(pair: Any) -> int | None:
    """Unix time minus CLOCK_MONOTONIC of a pair as run.json holds it; `None` where it holds none."""
    if not isinstance(pair, dict):
        return None
    wall, monotonic = pair.get("time_ns"), pair.get("monotonic_ns")
    return wall - monotonic if isinstance(wall, int) and isinstance(monotonic, int) else None


def _with_clocks(ranks: list[RankProcess]) -> list[RankProcess]:
    """Number the monotonic clocks: one for each host, more where hosts of one name have started at different times."""
    numbered: list[RankProcess] = []
    on_host: dict[str, list[RankProcess]] = {}
    clocks = 0
    for rank in ranks:
        beside = on_host.setdefault(rank.host, [])
        clock = next((other.clock for other in beside if _one_clock(other, rank)), clocks)
        clocks = max(clocks, clock + 1)
        beside.append(replace(rank, clock=clock))
        numbered.append(beside[-1])
    return numbered


def _one_clock(one: RankProcess, other: RankProcess) -> bool:
    """Whether two ranks on hosts of one name share a monotonic clock."""
    return one.wall_ns is None or other.wall_ns is None or abs(one.wall_ns - other.wall_ns) < SAME_CLOCK_NS


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
    spans = [(*span, run.folder) for run in runs if (span := _wall_span(run, ranks)) is not None]
    for (_, ended, before), (began, _, folder) in pairwise(sorted(spans)):
        if began > ended + MOST_APART_NS:
            raise RecordError(
                f"{folder} began {(began - ended) / 60e9:.0f} minutes after {before} had ended: these are different "
                f"jobs. {way_out}"
            )


def _wall_span(run: Run, ranks: Sequence[RankProcess]) -> tuple[int, int] | None:
    """When its trainings ran, by the wall clock of their host."""
    spans = [
        (first + rank.wall_ns, last + rank.wall_ns)
        for rank in ranks
        if rank.run is run and rank.wall_ns is not None
        for first, last in _recorded(run, rank.writer)
    ]
    return (min(s[0] for s in spans), max(s[1] for s in spans)) if spans else None


def _recorded(run: Run, writer: Writer) -> list[tuple[int, int]]:
    steps = run.records(STEP, writer)
    return [(int(steps["fetch_begin_ns"][0]), int(steps["step_end_ns"][-1]))] if len(steps) else []
