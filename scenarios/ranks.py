"""A trial of several ranks, each a process with a device of its own, on this machine.

They are started by what `torchrun` calls itself (`torch.distributed.launcher`), which ends them all when one fails. No
port is opened to other machines: ranks find each other through files, and talk over the loopback interface.
"""

from __future__ import annotations

import _thread
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from whyidle.errors import DeviceOutOfMemory, WhyidleError
from whyidle.record.files import read_json, write_json

from .interconnect import named
from .rank import Rank

if TYPE_CHECKING:
    from .trial import TrialSpec
    from .variant import Variant

LAST_WORDS_SECONDS = 5.0
"""How long a rank that is told to end may take for it; one that waits for another in a collective never does."""
SECOND_SECONDS = 0.5
"""A rank that fails waits so long before it ends: it may have failed because another is gone, which is then seen
first."""
STOPS = {signal.SIGTERM, signal.SIGINT}


def unmet(variant: Variant) -> str | None:
    """Why a training cannot run on this machine because of its ranks; `None` if it can.

    Raises:
        WhyidleError: there is no interconnect of this name.
    """
    if variant.interconnect is not None:
        named(variant.interconnect)
        if not variant.device.startswith("emulated:"):
            return f"{variant.interconnect} can only be emulated: ranks on real devices use the machine's own link"
    if variant.ranks == 1 or not variant.device.startswith("cuda"):
        return None
    if variant.device != "cuda":
        return f"{variant.ranks} ranks need one CUDA device each; {variant.device} is one. Use --device cuda"
    there = torch.cuda.device_count()
    if variant.ranks <= there:
        return None
    return f"{variant.ranks} ranks need as many CUDA devices; this machine has {there}"


def train_ranks(spec: TrialSpec, folder: Path, train: Callable[[TrialSpec, Path, Rank], None]) -> None:
    """Train with `spec.ranks` processes that each call `train`, to the end of all of them.

    Raises:
        DeviceOutOfMemory: one of them ran out of memory.
        WhyidleError: one of them failed or was killed.
        KeyboardInterrupt: this process was told to stop.
    """
    # In the run folder: if this process is killed, what stays lies with the run and goes with it.
    with tempfile.TemporaryDirectory(prefix=".ranks-", dir=folder.resolve()) as place:
        meeting = Path(place)
        _stay_on_this_machine()
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=spec.ranks,
            run_id=folder.name,
            max_restarts=0,
            monitor_interval=0.1,
            # A fork knows torch already, but not how to begin with a GPU.
            start_method="spawn" if spec.device == "cuda" else "fork",
            rdzv_backend="c10d",
            rdzv_endpoint=str(meeting / "launcher"),
            rdzv_configs={"store_type": "file"},
            local_addr="127.0.0.1",
            logs_specs=DefaultLogsSpecs(log_dir=place),
        )
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            elastic_launch(config, _rank)(spec, str(folder), place, train)
        except SignalException as stop:
            raise KeyboardInterrupt from stop
        except ChildFailedError as failed:
            exit_codes = {rank: each.exitcode for rank, each in failed.failures.items()}
            raise what_failed(meeting, spec.ranks, exit_codes) from failed


def _stay_on_this_machine() -> None:
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = loopback
    # The launcher's store is a file; it need not serve it to ranks of other machines.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"


def what_failed(meeting: Path, ranks: int, exit_codes: dict[int, int]) -> WhyidleError:
    """What to tell of a failed training: what failed first, for the others fail because of it.

    Args:
        meeting: where ranks leave their last words.
        ranks: how many there were.
        exit_codes: of those that the launcher saw fail, by rank. It then ends the others, which may fail on their way
            and never come to say it.
    """
    told = {n: read_json(_last_words(meeting, n)) for n in range(ranks) if _last_words(meeting, n).is_file()}
    for number, words in told.items():
        if words["status"] == "oom":
            return DeviceOutOfMemory(f"rank {number}: {words['error']}")
    failed = [(words["at"], number, words["error"]) for number, words in told.items() if words["status"] == "failed"]
    silent = [n for n in range(ranks) if n not in told]
    for number in [n for n in silent if n in exit_codes] or ([] if failed else silent):
        return WhyidleError(f"rank {number} {_death(exit_codes.get(number))}; its output is in output.txt")
    if not failed:
        return WhyidleError("something outside told the ranks to stop")
    _, number, error = min(failed)
    return WhyidleError(f"rank {number}: {error}")


def _death(exit_code: int | None) -> str:
    if exit_code is None:
        return "ended without a message"
    if exit_code < 0:
        hint = " (so the kernel ends a process when memory runs out)" if exit_code == -signal.SIGKILL else ""
        return f"was killed by {signal.Signals(-exit_code).name}{hint}"
    return f"ended with exit code {exit_code} and gave no reason"


def _rank(spec: TrialSpec, folder: str, place: str, train: Callable[[TrialSpec, Path, Rank], None]) -> None:
    """One rank, in a process of its own."""
    rank = Rank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    words = Path(place)
    _obey_stops(words, rank.number)
    try:
        if spec.threads is None and not spec.device.startswith("cuda"):
            torch.set_num_threads(max(1, torch.get_num_threads() // rank.size))
        dist.init_process_group(
            "nccl" if spec.device == "cuda" else "gloo",
            # No file:// URL, in which some signs of a path mean something.
            store=FileStore(f"{place}/ranks", rank.size),
            rank=rank.number,
            world_size=rank.size,
        )
        train(spec, Path(folder), rank)
        dist.destroy_process_group()
        _tell(words, rank.number, "ok", None)
        return
    except KeyboardInterrupt:
        _tell(words, rank.number, "stopped", None)
    except (DeviceOutOfMemory, torch.OutOfMemoryError) as problem:
        _tell(words, rank.number, "oom", str(problem).splitlines()[0])
    except WhyidleError as problem:
        _tell(words, rank.number, "failed", str(problem))
    except Exception as problem:
        traceback.print_exc()
        _tell(words, rank.number, "failed", f"{type(problem).__name__}: {problem}".splitlines()[0])
        time.sleep(SECOND_SECONDS)
    sys.stdout.flush()
    sys.stderr.flush()
    # Loaders with native threads (DALI) may hang or crash in interpreter exit after an error.
    os._exit(1)


def _obey_stops(place: Path, number: int) -> None:
    """Let a thread wait for signals: the training's own may be in a collective, and never come back to Python."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    # Loader workers end as they always do.
    os.register_at_fork(after_in_child=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS) and None)

    def wait() -> None:
        signal.sigwait(STOPS)
        _thread.interrupt_main()
        time.sleep(LAST_WORDS_SECONDS)
        _tell(place, number, "stopped", None)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="whyidle-stops", daemon=True).start()


def _tell(place: Path, number: int, status: str, error: str | None) -> None:
    """How a rank ended; the first word counts."""
    path = _last_words(place, number)
    if not path.exists():
        content: dict[str, Any] = {"status": status, "error": error, "at": time.monotonic()}
        write_json(path, content)


def _last_words(place: Path, number: int) -> Path:
    return place / f"ended-{number}.json"
