"""Ranks of one trial: where they meet, which is blamed, and how long emulated devices exchange gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from whyidle.devices.emulated import EmulatedDevice, VirtualClock
from whyidle.devices.profiles import load
from whyidle.errors import WhyidleError
from whyidle.pipelines.protocol import Batch
from whyidle.record.files import write_json
from whyidle.record.run import create_run
from whyidle.scenarios import ranks
from whyidle.scenarios.convnets.benchmark import EmulatedForward
from whyidle.scenarios.interconnect import gradient_bytes, named, own_link
from whyidle.scenarios.rank import Rank
from whyidle.scenarios.ranks import unmet
from whyidle.scenarios.training import EmulatedTraining
from whyidle.scenarios.trial import TrialSpec
from whyidle.scenarios.variant import Variant


def test_the_meeting_place_is_in_the_run_folder_and_gone_after_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A trial that is killed cannot tidy up: what it leaves must lie with its run, not in the machine's own folder.
    run = tmp_path / "run"
    run.mkdir()
    met: list[Path] = []

    def launch(config: object, entry: object) -> object:
        def start(spec: TrialSpec, folder: str, place: str, train: object) -> None:
            assert Path(place).is_dir()
            met.append(Path(place))

        return start

    monkeypatch.setattr(ranks, "elastic_launch", launch)
    monkeypatch.setattr(ranks, "_stay_on_this_machine", lambda: None)
    spec = TrialSpec(net="x", pipeline="naive", batch_size=1, ranks=2, scenario="x", data="x", folder=str(run))
    ranks.train_ranks(spec, run, lambda *_: None)
    assert [place.parent for place in met] == [run]
    assert not list(run.iterdir())


@pytest.mark.parametrize(
    ("said", "died", "blamed"),
    [
        # The launcher saw rank 1 fail and ended rank 0, on its way to fail for that, before it could say so.
        ({1: ("ValueError: no such number", 1.0)}, {1: 1}, "rank 1: ValueError: no such number"),
        ({0: ("RuntimeError: closed by peer", 1.0)}, {2: -9}, "rank 2 was killed by SIGKILL (so the kernel ends"),
        ({0: ("RuntimeError: closed", 2.0), 1: ("OSError: no file", 1.0)}, {0: 1}, "rank 1: OSError: no file"),
        ({}, {}, "rank 0 ended without a message"),
    ],
    ids=["ended for another", "died", "first of several", "nobody says"],
)
def test_the_rank_to_blame(
    tmp_path: Path, said: dict[int, tuple[str, float]], died: dict[int, int], blamed: str
) -> None:
    for rank, (error, at) in said.items():
        write_json(tmp_path / f"ended-{rank}.json", {"status": "failed", "error": error, "at": at})
    assert str(ranks.what_failed(tmp_path, 3, died)).startswith(blamed)


SSD300_BYTES = 4 * 26_285_486


def test_how_long_gradients_are_exchanged() -> None:
    # A ring moves all but a share of them twice; a server takes in and gives out a copy a device.
    ring = named("ethernet-1g")
    assert [ring.exchange_ns(SSD300_BYTES, ranks) for ranks in (1, 2, 8)] == [0, 841_135_552, 1_471_987_216]
    assert named("ethernet-10g").exchange_ns(SSD300_BYTES, 2) == 84_113_555
    server = named("ethernet-1g+server")
    assert [server.exchange_ns(SSD300_BYTES, ranks) / 841_135_552 for ranks in (2, 5)] == [2, 8]


def test_interconnects_have_names_or_rates_or_are_the_link_of_the_profile() -> None:
    told = named("ethernet-1g+server").describe(SSD300_BYTES, 2)
    assert (told["way"], told["overlap"]) == ("parameter server", 0.0)
    assert "802.3ab" in str(told["origin"])
    assert named("940Mbit/s").gb_per_s.value == pytest.approx(0.1175)
    assert named("25Gbit/s+server").server
    for wrong in ("ethernet", "0Gbit/s", "25Gb", "+server", ""):
        with pytest.raises(WhyidleError, match="unknown interconnect"):
            named(wrong)
    titanx = load("titanx")
    assert own_link(titanx).gb_per_s.value == titanx.link.pinned_gb_per_s.value
    assert "profile" in own_link(titanx).name
    assert gradient_bytes(titanx, "ssd300") == SSD300_BYTES


def test_what_has_no_gradients_waits_for_no_rank(tmp_path: Path) -> None:
    # Without a process group any meeting of ranks would be an error.
    frozen = torch.nn.Linear(2, 2).requires_grad_(False)
    assert Rank(0, 2).wrap(frozen) is frozen
    titanx = load("titanx")
    device = EmulatedDevice(titanx.spec(), VirtualClock(), profile=titanx)
    forward = EmulatedForward(device, titanx, "alexnet-forward", 128)
    Rank(1, 2).connect(forward, device, "alexnet-forward", None, tmp_path)
    forward.step(Batch(torch.empty(128, 1), torch.empty(128), tuple(range(128))))
    assert device.operations() == 1


@pytest.mark.usefixtures("alone")
def test_ranks_exchange_behind_the_backward_pass(tmp_path: Path) -> None:
    create_run(tmp_path / "run", {})
    clock, v100 = VirtualClock(10**9), load("v100")
    device = EmulatedDevice(v100.spec(), clock, profile=v100)
    training = EmulatedTraining(device, v100, "ssd300", 8)
    Rank(0, 2).connect(training, device, "ssd300", "ethernet-1g", tmp_path / "run")
    did: list[tuple[int, int]] = []
    device.sink = lambda _number, _stream, _what, begin, end, _amount: did.append((begin, end))
    training.step(Batch(torch.empty(8, 1), torch.empty(8), tuple(range(8))))
    _, backward, exchange, optimizer = did
    assert exchange == (backward[1], optimizer[0])
    assert exchange[1] - exchange[0] == named("ethernet-1g").exchange_ns(SSD300_BYTES, 2)


def test_ranks_that_this_machine_cannot_run_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(device: str, ranks: int, interconnect: str | None = None) -> str | None:
        asked: Any = {"net": "n", "pipeline": "naive", "batch_size": 8, "interconnect": interconnect}
        return unmet(Variant(**asked, device=device, ranks=ranks))

    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    for fine in (("cpu", 64), ("emulated:k80", 8, "pcie3"), ("cuda", 2), ("cuda:1", 1)):
        assert lacks(*fine) is None  # type: ignore[arg-type]
    assert lacks("cuda", 4) == "4 ranks need as many CUDA devices; this machine has 2"
    assert "cuda:1 is one" in (lacks("cuda:1", 2) or "")
    assert "only be emulated" in (lacks("cpu", 2, "pcie3") or "")
    with pytest.raises(WhyidleError, match="unknown interconnect"):
        lacks("emulated:k80", 2, "token-ring")
