"""Programs whose ways with a GPU have led profilers astray, each with waits and work of known length.

Not yet run on a GPU. Batches take the host 20 ms and a step computes for 10, so half of the time is spent waiting for
data, whatever else a program does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.gpu_check.spinning import cycles_per_ms
from whyidle.analyse.run.facts import Facts, facts_of
from whyidle.capture.recording import recording
from whyidle.record.notices import read_notices
from whyidle.record.run import open_run
from whyidle.record.schema import PAUSE, STEP, PauseKind, StepFlag

pytestmark = pytest.mark.gpu

LOAD_S, COMPUTE_MS, STEPS, WIDTH = 0.02, 10, 60, 16
INPUT = 1 - COMPUTE_MS / (1000 * LOAD_S)
NEAR = 0.05

Program = Callable[[], object]
Record = Callable[[str, Program], Facts]


class Slow(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(LOAD_S)
        return torch.full((WIDTH,), float(index % 5))


class Training:
    """A net, its optimizer, and a loader, on a device."""

    def __init__(self, device: str = "cuda", pinned: bool = False) -> None:
        self.device, self.pinned = device, pinned
        self.net = torch.nn.Linear(WIDTH, 1).to(device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-6)
        self.loader = DataLoader(Slow(), batch_size=1, pin_memory=pinned)
        self.spin = int(COMPUTE_MS * cycles_per_ms())

    def moved(self, batch: torch.Tensor) -> torch.Tensor:
        return batch.to(self.device, non_blocking=self.pinned)

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        loss = self.net(x).square().mean()
        torch.cuda._sleep(self.spin)
        return loss

    def step(self, x: torch.Tensor) -> None:
        loss = self.loss(x)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def train(self) -> None:
        for batch in self.loader:
            self.step(self.moved(batch))


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Records a program as the API does that is told a device, or finds it; no hook may have failed."""

    def record(device: str, program: Program) -> Facts:
        with recording(tmp_path / "run", device, sampler=False):
            program()
        assert read_notices(tmp_path / "run") == []
        facts = facts_of(open_run(tmp_path / "run"))
        assert facts is not None
        return facts

    return record


def flags(tmp_path: Path) -> np.ndarray:
    found: np.ndarray = open_run(tmp_path / "run").records(STEP)["flags"][5:]
    return found


@pytest.mark.parametrize("told", ["cuda", "auto"])
def test_a_batch_is_looked_at_before_the_training(record: Record, told: str) -> None:
    def program() -> None:
        training = Training()
        next(iter(training.loader))
        training.train()

    assert record(told, program).parts.share("input") == pytest.approx(INPUT, abs=NEAR)


def test_the_computation_is_on_another_stream_than_the_fetch(record: Record) -> None:
    def program() -> None:
        training, own = Training(), torch.cuda.Stream()
        own.wait_stream(torch.cuda.current_stream())
        for batch in training.loader:
            with torch.cuda.stream(own):
                training.step(training.moved(batch))

    facts = record("auto", program)
    assert facts.parts.share("input") == pytest.approx(INPUT, abs=NEAR)
    assert facts.parts.unresolved_steps == 0


def test_all_of_it_is_on_a_stream_of_the_programs(record: Record) -> None:
    def program() -> None:
        training, own = Training(pinned=True), torch.cuda.Stream()
        own.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(own):
            training.train()

    assert record("auto", program).parts.share("input") == pytest.approx(INPUT, abs=NEAR)


def test_the_model_is_on_the_second_gpu_and_the_current_device_stays(record: Record, tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")

    def program() -> None:
        training = Training("cuda:1")
        with torch.cuda.device(1):  # where the spin goes; the program's own calls name the device
            training.spin = int(COMPUTE_MS * cycles_per_ms())
        loss = training.loss

        def on_second(x: torch.Tensor) -> torch.Tensor:
            with torch.cuda.device(1):
                return loss(x)

        training.loss = on_second  # type: ignore[method-assign]
        training.train()

    before = torch.cuda.current_device()
    facts = record("auto", program)
    assert torch.cuda.current_device() == before
    assert facts.parts.share("input") == pytest.approx(INPUT, abs=NEAR)
    (process,) = (tmp_path / "run").glob("process-*.json")
    assert '"cuda:1"' in process.read_text()


def test_mixed_precision_with_a_scaler(record: Record) -> None:
    def program() -> None:
        training, scaler = Training(), torch.amp.GradScaler("cuda")
        for batch in training.loader:
            training.optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = training.loss(training.moved(batch))
            scaler.scale(loss).backward()
            scaler.step(training.optimizer)  # reads whether a gradient overflowed: waits for the device
            scaler.update()

    facts = record("auto", program)
    assert facts.parts.share("input") == pytest.approx(1000 * LOAD_S / (1000 * LOAD_S + COMPUTE_MS), abs=NEAR)
    assert facts.parts.share("sync") < 0.02


def test_steps_with_a_capture_among_them(record: Record) -> None:
    """A graph is captured in the midst of a training and replayed from then on: the capture is not spoilt."""

    def program() -> None:
        training = Training()
        still, graph = torch.ones(1, WIDTH, device="cuda"), torch.cuda.CUDAGraph()
        for number, batch in enumerate(training.loader):
            training.step(training.moved(batch))
            if number == 20:
                torch.cuda.synchronize()
                with torch.cuda.graph(graph):
                    training.net(still).square().mean().backward()
            if number > 20:
                graph.replay()

    assert record("auto", program).parts.share("input") == pytest.approx(INPUT, abs=NEAR)


def test_a_whole_step_is_a_graph(record: Record) -> None:
    def program() -> None:
        training = Training(pinned=True)
        still, side = next(iter(training.loader)).to("cuda"), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                training.step(still)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        training.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            training.loss(still).backward()  # type: ignore[no-untyped-call]
            training.optimizer.step()
        for batch in training.loader:
            still.copy_(batch, non_blocking=True)
            graph.replay()

    facts = record("auto", program)
    assert facts.window.count >= STEPS - 10
    assert facts.parts.share("input") == pytest.approx(INPUT, abs=NEAR)


def test_tensors_of_a_class_of_their_own_keep_it(record: Record) -> None:
    tv_tensors = pytest.importorskip("torchvision.tv_tensors")
    kinds = set()

    def program() -> None:
        training = Training()
        for batch in training.loader:
            image = tv_tensors.Image(batch.reshape(1, 4, 4))
            kinds.add(type(image.to("cuda")))
            boxes = tv_tensors.BoundingBoxes(torch.ones(1, 4), format="XYXY", canvas_size=(4, 4))
            kinds.add(type(boxes.to("cuda", non_blocking=True)))
            training.step(training.moved(batch))

    record("auto", program)
    assert kinds == {tv_tensors.Image, tv_tensors.BoundingBoxes}


@pytest.mark.parametrize(
    "wait",
    [lambda _loss: torch.accelerator.synchronize(), lambda _loss: torch.cuda.synchronize(), lambda loss: loss.tolist()],
    ids=["accelerator", "cuda", "tolist"],
)
def test_calls_that_wait_for_the_device_are_told(
    record: Record, tmp_path: Path, wait: Callable[[torch.Tensor], object]
) -> None:
    def program() -> None:
        training = Training()
        for batch in training.loader:
            loss = training.loss(training.moved(batch))
            loss.backward()  # type: ignore[no-untyped-call]
            wait(loss.detach())
            training.optimizer.step()

    record("auto", program)
    pauses = open_run(tmp_path / "run").records(PAUSE)
    waits = pauses[pauses["what"] == PauseKind.SYNC][5:]
    assert len(waits) == pytest.approx(STEPS - 5, abs=3)
    assert np.median(waits["end_ns"] - waits["begin_ns"]) > 0.8e6 * COMPUTE_MS


def test_an_idle_device_is_seen_to_be_idle_when_a_batch_is_asked_for(record: Record, tmp_path: Path) -> None:
    def program() -> None:
        training = Training()
        for batch in training.loader:
            training.step(training.moved(batch))
            torch.cuda.synchronize()
            time.sleep(0.002)

    record("auto", program)
    found = flags(tmp_path)
    assert ((found & StepFlag.DRAINED_KNOWN) != 0).mean() > 0.9
    assert ((found & StepFlag.DRAINED_AT_ENTRY) != 0).mean() > 0.9


def test_gradients_of_four_batches_are_a_step(record: Record) -> None:
    def program() -> None:
        training = Training()
        for number, batch in enumerate(training.loader):
            training.loss(training.moved(batch)).backward()  # type: ignore[no-untyped-call]
            if number % 4 == 3:
                training.optimizer.step()
                training.optimizer.zero_grad()

    assert record("auto", program).parts.share("input") == pytest.approx(INPUT, abs=NEAR)


def test_work_of_the_host_between_the_batch_and_the_forward_pass_is_the_hosts(record: Record) -> None:
    """Augmenting or packing behind the loader: 10 ms in which the device idles, and nothing is fetched."""

    def program() -> None:
        training = Training()
        for batch in training.loader:
            time.sleep(0.01)
            training.step(training.moved(batch))
            torch.cuda.synchronize()

    facts = record("auto", program)
    whole = 1000 * LOAD_S + 10 + COMPUTE_MS
    assert facts.parts.share("compute") == pytest.approx(COMPUTE_MS / whole, abs=NEAR)
    assert facts.parts.share("host") == pytest.approx(10 / whole, abs=NEAR)


def test_memory_runs_out_in_the_midst_of_a_step_and_the_training_goes_on(record: Record) -> None:
    def program() -> None:
        training = Training()
        for number, batch in enumerate(training.loader):
            if number == 20:
                with pytest.raises(torch.OutOfMemoryError):
                    free = torch.cuda.get_device_properties(0).total_memory
                    torch.empty(free + 2**30, dtype=torch.uint8, device="cuda")
            training.step(training.moved(batch))

    assert record("auto", program).parts.share("input") == pytest.approx(INPUT, abs=NEAR)
