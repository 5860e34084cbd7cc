"""The loops people write, recorded by the hooks: which fetches become steps, and what is a boundary."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from whyidle.capture.hooks.install import Hooks, install
from whyidle.capture.loop_detector import state as loop_state
from whyidle.capture.workers import hook as workers_module
from whyidle.devices.cpu import CpuDevice
from whyidle.record.schema import EventKind, LoaderFlag


class Steps:
    """Keeps what the hooks say of each step."""

    def __init__(self) -> None:
        self.recording = self.passing = False
        self.skip_left = 0
        self.stored: list[dict[str, Any]] = []
        self.open: dict[str, Any] | None = None

    def fetch_begin(self, epoch: int, first: bool, queue: Any, begin_ns: int) -> None:
        self.end_step()
        self.recording = True
        capacity = None if queue is None else queue.capacity
        self.open = {"epoch": epoch, "first": first, "capacity": capacity, "calls": []}

    def fetch_end(self, samples: int, end_ns: int = 0, begins: bool = False, *which: int, flags: int = 0) -> None:
        if self.open is not None:
            self.open["samples"] = samples
            if begins:
                self.open["calls"].append("begins")

    def abandon_fetch(self) -> None:
        self.open, self.recording = None, False

    def end_step(self, at_last_hook: bool = False, end_ns: int = 0) -> None:
        if self.open is not None:
            self.stored.append(self.open)
        self.open, self.recording = None, False

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(*args: Any) -> None:
            if self.open is not None:
                self.open["calls"].append(name)

        return call

    def count(self, name: str) -> list[int]:
        return [step["calls"].count(name) for step in self.stored]


class Recording:
    writer = 0
    rank = 0
    folder = Path(tempfile.gettempdir()) / "whyidle-records-nothing-here"

    def __init__(self) -> None:
        self.steps = Steps()
        self.notices: list[str] = []
        self.events: list[tuple[int, int, int]] = []
        self.loaders: list[tuple[int, int | None, int]] = []
        self.hooks: Hooks | None = None

    def event(self, kind: int, value: int = 0, end_ns: int = 0, t_ns: int = 0) -> None:
        self.events.append((kind, value, end_ns - t_ns if end_ns else 0))

    def lasted(self, kind: int, begin_ns: int, end_ns: int) -> None:
        self.event(kind, end_ns=end_ns, t_ns=begin_ns)

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def loader(self, *settings: Any) -> None:
        self.loaders.append(settings)

    @property
    def boundaries(self) -> int:
        return sum(kind == EventKind.BOUNDARY for kind, _, _ in self.events)

    @property
    def epochs(self) -> list[int]:
        return [value for kind, value, _ in self.events if kind == EventKind.EPOCH_BEGIN]

    @property
    def samples(self) -> list[int]:
        return [step["samples"] for step in self.steps.stored]

    def install(self) -> Hooks:
        self.hooks = install(self, CpuDevice())  # type: ignore[arg-type]
        return self.hooks

    def done(self) -> list[dict[str, Any]]:
        assert self.hooks is not None
        self.hooks.remove()
        return self.steps.stored


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    # However slow the machine is, what a test does in a row is close together.
    monkeypatch.setattr(loop_state, "ADJACENT_NS", 10**12)
    # What making a batch costs is another matter.
    monkeypatch.setattr(workers_module, "TrainingFetchTimer", lambda *_: None)
    # As in most programs, whatever other tests have imported.
    monkeypatch.delitem(sys.modules, "torch.distributed.checkpoint", raising=False)
    made = Recording()
    made.install()
    yield made
    made.done()


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch, recording: Recording) -> Recording:
    """Nothing is close together: as if every batch took long."""
    monkeypatch.setattr(loop_state, "ADJACENT_NS", 0)
    return recording


def data(samples: int = 10, batch: int = 4, **kwargs: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(samples * 3.0).reshape(samples, 3)), batch_size=batch, **kwargs)


class Net:
    def __init__(self) -> None:
        self.model = torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)

    def loss(self, batch: Any) -> torch.Tensor:
        return self.model(batch[0]).square().mean()

    def learn(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        self.loss(batch).backward()
        self.optimizer.step()


def test_a_plain_loop_has_a_step_a_batch(recording: Recording) -> None:
    net, loader = Net(), data()
    for _ in range(2):
        for batch in loader:
            net.learn(batch)
    steps = recording.done()
    assert [(step["epoch"], step["first"], step["samples"]) for step in steps] == [
        (0, True, 4), (0, False, 4), (0, False, 2), (1, True, 4), (1, False, 4), (1, False, 2)
    ]  # fmt: skip
    assert steps[0]["calls"] == [
        "begins", "backward_begin", "backward_end", "optimizer_begin", "optimizer_end"
    ]  # fmt: skip
    assert all(step["calls"] == steps[0]["calls"] for step in steps)
    assert recording.epochs == [0, 1]
    assert recording.loaders == [(0, None, 0)]
    assert not recording.notices
    assert not recording.boundaries


def test_enumerate_and_a_loader_made_anew_each_epoch_change_nothing(recording: Recording) -> None:
    net = Net()
    for _ in range(2):
        for number, batch in enumerate(data()):
            assert number < 3
            net.learn(batch)
    assert [step["first"] for step in recording.done()] == [True, False, False] * 2
    assert recording.epochs == [0, 1]


def test_a_manual_iterator_is_followed_across_its_ends(recording: Recording) -> None:
    net, loader = Net(), data()
    iterator = iter(loader)
    for _ in range(7):
        try:
            batch = next(iterator)
        except StopIteration:
            iterator = iter(loader)
            batch = next(iterator)
        net.learn(batch)
    recording.done()
    assert recording.samples == [4, 4, 2, 4, 4, 2, 4]
    assert recording.epochs == [0, 1, 2]


def test_an_epoch_left_early_is_followed_by_the_next(recording: Recording) -> None:
    net, loader = Net(), data()
    for _ in range(2):
        for batch in loader:
            net.learn(batch)
            break
    assert [(step["epoch"], step["first"]) for step in recording.done()] == [(0, True), (1, True)]


def test_accumulated_batches_are_steps_of_their_own(recording: Recording) -> None:
    net = Net()
    for number, batch in enumerate(data(16, 2)):
        net.loss(batch).backward()
        if number % 4 == 3:
            net.optimizer.step()
    recording.done()
    assert recording.steps.count("backward_end") == [1] * 8
    assert recording.steps.count("optimizer_end") == [0, 0, 0, 1] * 2


def test_backward_passes_of_one_batch_all_count(recording: Recording) -> None:
    net = Net()
    for batch in data(8, 4):
        for _ in range(4):
            net.loss(batch).backward()
        net.optimizer.step()
    recording.done()
    assert recording.steps.count("backward_end") == [4, 4]
    assert recording.steps.count("optimizer_end") == [1, 1]


def test_a_step_that_the_scaler_skips_has_no_optimizer_step(recording: Recording) -> None:
    net, scaler = Net(), torch.amp.GradScaler("cpu", init_scale=2.0)
    for number, batch in enumerate(data()):
        net.optimizer.zero_grad()
        scaler.scale(net.loss(batch)).backward()
        if number == 1:
            net.model.weight.grad.fill_(float("inf"))  # type: ignore[union-attr]
        scaler.step(net.optimizer)
        scaler.update()
    recording.done()
    assert recording.steps.count("optimizer_end") == [1, 0, 1]


def test_two_optimizers_are_one_step(recording: Recording) -> None:
    generator, discriminator = Net(), Net()
    for batch in data():
        discriminator.learn(batch)
        generator.learn(batch)
    recording.done()
    assert recording.steps.count("optimizer_end") == [2, 2, 2]


def test_an_optimizer_that_calls_back_is_one_optimizer_step(recording: Recording) -> None:
    net = Net()
    optimizer = torch.optim.LBFGS(net.model.parameters(), max_iter=2)

    for batch in data():

        def closure(batch: Any = batch) -> torch.Tensor:
            optimizer.zero_grad()
            loss = net.loss(batch)
            loss.backward()
            return loss

        optimizer.step(closure)  # type: ignore[arg-type]
    recording.done()
    assert recording.steps.count("optimizer_end") == [1, 1, 1]


def test_a_backward_pass_within_one_counts_once(recording: Recording) -> None:
    class Nested(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                torch.ones(1, requires_grad=True).sum().backward()
            return grad

    net = Net()
    for batch in data():
        Nested.apply(net.loss(batch)).backward()
    recording.done()
    assert recording.steps.count("backward_begin") == [1, 1, 1]


@pytest.mark.parametrize("without_grad", [True, False])
def test_validation_between_epochs_is_one_boundary_each(recording: Recording, without_grad: bool) -> None:
    net, loader, held_out = Net(), data(), data(20, 4)
    for _ in range(2):
        for batch in loader:
            net.learn(batch)
        with torch.set_grad_enabled(not without_grad):
            for batch in held_out:
                net.loss(batch)
    recording.done()
    assert recording.samples == [4, 4, 2] * 2
    assert recording.boundaries == 2
    assert recording.epochs == [0, 1]


@pytest.mark.parametrize("without_grad", [True, False])
def test_validation_before_training_leaves_no_steps(recording: Recording, without_grad: bool) -> None:
    net, loader, held_out = Net(), data(), data(20, 4)
    for _ in range(2):
        with torch.set_grad_enabled(not without_grad):
            for batch in held_out:
                net.loss(batch)
        for batch in loader:
            net.learn(batch)
    recording.done()
    assert recording.samples == [4, 4, 2] * 2
    assert recording.boundaries == 2


def test_slow_validation_before_training_leaves_no_steps(unhurried: Recording) -> None:
    net, loader, held_out = Net(), data(), data(20, 4)
    for batch in held_out:
        net.loss(batch)
    for batch in loader:
        net.learn(batch)
    unhurried.done()
    assert unhurried.samples == [4, 4, 2]
    assert unhurried.boundaries == 1


def test_validation_left_early_ends_with_the_next_training_batch(recording: Recording) -> None:
    net, loader, held_out = Net(), data(), data(20, 4)
    for batch in loader:
        net.learn(batch)
        with torch.no_grad():
            for number, other in enumerate(held_out):
                net.loss(other)
                if number == 1:
                    break
    recording.done()
    assert recording.samples == [4, 4, 2]
    assert recording.boundaries == 3


def test_validation_between_fetch_and_training_keeps_the_step(recording: Recording) -> None:
    net, loader, held_out = Net(), data(), data(20, 4)
    for number, batch in enumerate(loader):
        if number == 1:
            with torch.no_grad():
                for other in held_out:
                    net.loss(other)
        net.learn(batch)
    recording.done()
    assert recording.samples == [4, 4, 2]
    assert recording.boundaries == 1
    assert recording.steps.count("backward_end") == [1, 1, 1]
    # The computation begins after the validation.
    assert recording.steps.count("begins") == [1, 1, 1]
    assert recording.steps.count("compute_begin") == [0, 1, 0]


def test_a_pass_over_the_training_data_before_training_does_not_cost_the_first_epoch(recording: Recording) -> None:
    net, loader = Net(), data()
    total = sum(float(batch[0].sum()) for batch in loader)
    for batch in loader:
        net.learn(batch)
    assert [step["first"] for step in recording.done()] == [True, False, False]
    assert total > 0


def test_two_loaders_of_one_step_are_one_fetch(recording: Recording) -> None:
    net = Net()
    for _ in range(2):
        for labelled, other in zip(data(8, 4), data(6, 3), strict=True):
            net.learn(labelled)
            assert len(other[0]) == 3
    recording.done()
    assert recording.samples == [4, 4] * 2
    assert recording.epochs == [0, 1]


def test_a_batch_held_back_keeps_steps_and_samples_together(recording: Recording) -> None:
    """As accelerate and Lightning do: the next batch is fetched before this one is trained."""

    def ahead(loader: DataLoader[Any]) -> Iterator[Any]:
        iterator = iter(loader)
        held = next(iterator)
        while True:
            try:
                following = next(iterator)
            except StopIteration:
                yield held
                return
            yield held
            held = following

    net, loader = Net(), data()
    for _ in range(2):
        for batch in ahead(loader):
            net.learn(batch)
    recording.done()
    assert recording.samples == [4, 4, 2] * 2
    assert recording.steps.count("optimizer_end") == [1] * 6


def test_losses_summed_over_batches_before_one_backward_pass_lose_no_later_steps(unhurried: Recording) -> None:
    net, loader = Net(), data(16, 2)
    for _ in range(2):
        loss = torch.zeros(())
        for number, batch in enumerate(loader):
            loss = loss + net.loss(batch)
            if number % 2 == 1:
                loss.backward()
                loss = torch.zeros(())
    steps = unhurried.done()
    assert [step["epoch"] for step in steps].count(1) == 8


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_tell_their_queue_and_their_settings(recording: Recording, persistent: bool) -> None:
    net, loader = Net(), data(num_workers=2, prefetch_factor=3, persistent_workers=persistent)
    for _ in range(2):
        for batch in loader:
            net.learn(batch)
    steps = recording.done()
    assert recording.samples == [4, 4, 2] * 2
    assert [step["capacity"] for step in steps] == [None, 6, 6] * 2
    assert recording.loaders == [(2, 3, LoaderFlag.PERSISTENT_WORKERS * persistent)]


def test_persistent_workers_left_early_keep_the_samples_right(recording: Recording) -> None:
    net, loader = Net(), data(num_workers=1, persistent_workers=True)
    for _ in range(2):
        for number, batch in enumerate(loader):
            net.learn(batch)
            if number == 0:
                break
    for batch in loader:
        net.learn(batch)
    recording.done()
    assert recording.samples == [4, 4, 4, 4, 2]


class Broken(Dataset[Any]):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 1:
            raise KeyError("sample 1")
        return torch.ones(3)

    def __len__(self) -> int:
        return 4


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_the_dataset_reaches_the_training_and_is_no_step(recording: Recording, workers: int) -> None:
    net = Net()
    iterator = iter(DataLoader(Broken(), batch_size=1, num_workers=workers))
    net.learn([next(iterator)])
    with pytest.raises(KeyError, match="sample 1"):
        next(iterator)
    for batch in iterator:
        net.learn([batch])
    recording.done()
    assert recording.samples == [1, 1, 1]
    assert not recording.notices


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(5):
            yield torch.ones(3)


def test_an_iterable_dataset_is_counted_by_its_tensors(recording: Recording) -> None:
    net = Net()
    for batch in DataLoader(Endless(), batch_size=2):
        net.learn([batch])
    recording.done()
    assert recording.samples == [2, 2, 1]


def test_without_a_batch_size_the_batch_is_what_the_dataset_gives(recording: Recording) -> None:
    net = Net()
    for batch in DataLoader([torch.ones(7, 3), torch.ones(5, 3)], batch_size=None):  # type: ignore[arg-type]
        net.learn([batch])
    recording.done()
    assert recording.samples == [7, 5]


def test_samples_of_a_ragged_batch_are_its_indices(recording: Recording) -> None:
    net = Net()
    for images in data(6, 3, collate_fn=lambda samples: [x for (x,) in samples]):
        net.learn([images[0]])
    recording.done()
    assert recording.samples == [3, 3]


def test_a_loader_within_a_loader_counts_once(recording: Recording) -> None:
    class Outer(Dataset[Any]):
        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.cat([batch[0] for batch in data(4, 2)])

        def __len__(self) -> int:
            return 4

    net = Net()
    for batch in DataLoader(Outer(), batch_size=2):
        net.learn([batch])
    recording.done()
    assert recording.samples == [2, 2]


def test_a_checkpoint_is_a_boundary(recording: Recording, tmp_path: Any) -> None:
    net = Net()
    for batch in data():
        net.learn(batch)
        torch.save(net.model.state_dict(), tmp_path / "model.pt")
    recording.done()
    assert recording.boundaries == 3
    assert recording.samples == [4, 4, 2]
    assert torch.load(tmp_path / "model.pt").keys() == {"weight", "bias"}


def test_distributed_checkpoints_are_boundaries_once_they_are_imported(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[Any] = []
    late = SimpleNamespace(__name__="torch.distributed.checkpoint", save=saved.append)
    monkeypatch.setitem(sys.modules, "torch.distributed.checkpoint", late)
    net = Net()
    for batch in data():
        net.learn(batch)
        late.save(net)
    recording.done()
    assert len(saved) == 3
    assert recording.boundaries == 3
    assert late.save == saved.append


def test_a_prefetching_thread_is_said_to_hide_the_waits(recording: Recording) -> None:
    net, batches = Net(), []
    thread = threading.Thread(target=lambda: batches.extend(data()), name="prefetcher")
    thread.start()
    thread.join()
    for batch in batches:
        net.learn(batch)
    assert not recording.done()
    assert len(recording.notices) == 1
    assert "prefetcher" in recording.notices[0]


def test_a_training_in_another_thread_is_found(recording: Recording) -> None:
    def training() -> None:
        net = Net()
        for batch in data():
            net.learn(batch)

    thread = threading.Thread(target=training, name="fit")
    thread.start()
    thread.join()
    recording.done()
    assert recording.samples == [4, 2]
    assert "fit" in recording.notices[0]


def test_a_program_that_never_trains_says_so(recording: Recording) -> None:
    net = Net()
    for batch in data():
        net.loss(batch)
    assert not recording.done()
    assert any("No backward pass" in text for text in recording.notices)


def test_distributed_training_with_one_process_is_a_plain_loop(recording: Recording, tmp_path: Any) -> None:
    torch.distributed.init_process_group("gloo", f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        net = Net()
        net.model = torch.nn.parallel.DistributedDataParallel(net.model)  # type: ignore[assignment]
        for batch in data():
            net.learn(batch)
    finally:
        torch.distributed.destroy_process_group()
    recording.done()
    assert recording.samples == [4, 4, 2]
    assert recording.steps.count("backward_end") == [1, 1, 1]


def test_a_compiled_model_and_optimizer_compile_as_without_hooks() -> None:
    from torch._dynamo.utils import counters

    def compiled() -> tuple[list[list[tuple[str, str]]], dict[str, int]]:
        """What each graph consists of, and how often a graph was left, by why."""
        graphs: list[list[tuple[str, str]]] = []

        def keep(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
            graphs.append([(node.op, str(node.target)) for node in module.graph.nodes])
            return module.forward

        torch._dynamo.reset()
        counters.clear()
        net = Net()
        net.model = torch.compile(net.model, backend=keep)  # type: ignore[assignment]

        @torch.compile(backend=keep)
        def move(x: torch.Tensor) -> torch.Tensor:
            return x.to("cpu", torch.float64) * 2

        step = torch.compile(net.optimizer.step, backend=keep)
        for batch in data(12, 4):
            net.optimizer.zero_grad()
            net.loss(batch).backward()
            step()
            move(batch[0])
        return graphs, dict(counters["graph_break"])

    bare, left = compiled()
    recording = Recording()
    recording.install()
    try:
        hooked, left_hooked = compiled()
    finally:
        recording.done()
    assert len(bare) == 3
    assert hooked == bare
    # Fewer are fine: on 3.13 hooked optimizers make Dynamo give up torch's function around the step, which has nothing
    # to compile, where otherwise it splits it; the step itself becomes the same graph.
    assert all(times <= left.get(why, 0) for why, times in left_hooked.items())
    assert recording.samples == [4, 4, 4]
    assert recording.steps.count("backward_end") == [1, 1, 1]


@pytest.mark.parametrize("workers", [0, 2])
def test_results_are_the_same_to_the_bit(workers: int) -> None:
    def training() -> tuple[list[float], dict[str, torch.Tensor]]:
        torch.manual_seed(7)
        net = Net()
        net.optimizer = torch.optim.Adam(net.model.parameters())  # type: ignore[assignment]
        losses: list[float] = []
        for batch in data(80, 4, shuffle=True, num_workers=workers):
            net.optimizer.zero_grad()
            loss = net.loss(batch) + torch.rand(())
            loss.backward()
            net.optimizer.step()
            losses.append(loss.item())
        return losses, net.model.state_dict()

    losses, weights = training()
    recording = Recording()
    recording.install()
    try:
        hooked_losses, hooked_weights = training()
    finally:
        recording.done()
    assert len(recording.steps.stored) == 20
    assert hooked_losses == losses
    assert all(torch.equal(weights[name], hooked_weights[name]) for name in weights)


def test_forked_children_do_not_write_into_the_recording(recording: Recording) -> None:
    net = Net()
    iterator = iter(data())
    net.learn(next(iterator))
    child = os.fork()
    if child == 0:
        before = SimpleNamespace(stored=len(recording.steps.stored), calls=len(recording.steps.open["calls"]))  # type: ignore[index]
        for batch in iterator:
            net.loss(batch)
        recording.done()
        same = len(recording.steps.stored) == before.stored and recording.steps.open is not None
        os._exit(0 if same and len(recording.steps.open["calls"]) == before.calls else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class Thinned(Steps):
    """Looks at the first two steps of a recording and at first fetches; lets `passes` after those pass."""

    def __init__(self, passes: int) -> None:
        super().__init__()
        self.passing = False
        self.skip_left = 0
        self.passes = passes
        self.let: list[int] = []
        self._looks = 2

    def fetch_begin(self, epoch: int, first: bool, queue: Any, begin_ns: int) -> None:
        if self.skip_left and not first:
            self.end_step()
            self.skip_left -= 1
            self.passing = True
            return
        super().fetch_begin(epoch, first, queue, begin_ns)
        self.passing = False
        self._looks -= 1
        if self._looks == 0:
            self.skip_left = self.passes

    def let_pass(self, now: int) -> None:
        assert self.passing
        assert self.skip_left > 0
        self.skip_left -= 1

    def passes_with(self, samples: int) -> None:
        self.let.append(samples)

    def fetch_end(self, samples: int, end_ns: int = 0, begins: bool = False, *which: int, flags: int = 0) -> None:
        if self.passing:
            self.passes_with(samples)
        super().fetch_end(samples, end_ns, begins, *which)

    def abandon_fetch(self) -> None:
        super().abandon_fetch()
        self.passing = False

    def end_step(self, at_last_hook: bool = False, end_ns: int = 0) -> None:
        super().end_step(at_last_hook)
        self.passing = False


@pytest.fixture
def thinned(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    monkeypatch.setattr(loop_state, "ADJACENT_NS", 10**12)
    # What making a batch costs is another matter.
    monkeypatch.setattr(workers_module, "TrainingFetchTimer", lambda *_: None)
    made = Recording()
    made.steps = Thinned(passes=5)
    made.install()
    yield made
    made.done()


@pytest.mark.parametrize("workers", [0, 1])
def test_steps_that_are_let_pass_are_counted_with_their_samples(thinned: Recording, workers: int) -> None:
    net = Net()
    for _ in range(2):
        for batch in data(22, 2, num_workers=workers):
            net.learn(batch)
    thinned.done()
    steps = thinned.steps
    assert isinstance(steps, Thinned)
    assert steps.let == [2] * 5
    assert thinned.samples == [2] * 17
    assert thinned.epochs == [0, 1]
    assert not thinned.boundaries


def test_an_epoch_can_end_among_steps_that_are_let_pass(thinned: Recording) -> None:
    net, loader, held_out = Net(), data(10, 2), data(6, 2)
    for _ in range(2):
        for batch in loader:
            net.learn(batch)
        with torch.no_grad():
            for batch in held_out:
                net.loss(batch)
    assert isinstance(thinned.steps, Thinned)
    assert len(thinned.steps.let) + len(thinned.done()) == 10
    assert thinned.boundaries == 2
    assert thinned.epochs == [0, 1]


def test_loaders_that_train_in_turns_keep_a_step_each_when_steps_are_let_pass(thinned: Recording) -> None:
    net = Net()
    ones, others = iter(data(16, 2)), iter(data(16, 2))
    for _ in range(8):
        net.learn(next(ones))
        net.learn(next(others))
    assert isinstance(thinned.steps, Thinned)
    assert len(thinned.steps.let) + len(thinned.done()) == 16
    assert thinned.steps.let


def test_an_error_among_steps_that_are_let_pass_reaches_the_training(thinned: Recording) -> None:
    net, fails = Net(), {5}

    class Failing(Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 9

        def __getitem__(self, index: int) -> list[torch.Tensor]:
            if index in fails:
                raise ValueError("theirs")
            return [torch.ones(3)]

    iterator = iter(DataLoader(Failing(), batch_size=1))
    trained = 0
    while True:
        try:
            batch = next(iterator)
        except ValueError:
            continue
        except StopIteration:
            break
        net.learn(batch)
        trained += 1
    assert trained == 8
    assert isinstance(thinned.steps, Thinned)
    assert len(thinned.steps.let) + len(thinned.done()) == 8
    assert thinned.hooks is not None
    assert not thinned.notices


def test_loaders_are_told_apart_without_their_hash(recording: Recording) -> None:
    class Alike(DataLoader[Any]):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    net = Net()
    dataset = TensorDataset(torch.ones(8, 3))
    trains, evaluates = Alike(dataset, batch_size=4), Alike(dataset, batch_size=4)
    for _ in range(2):
        for batch in trains:
            net.learn(batch)
        for batch in evaluates:
            net.loss(batch)
    recording.done()
    assert recording.samples == [4] * 4
    assert recording.boundaries == 2
    assert not recording.notices


def test_a_batch_fetched_only_to_leave_the_epoch_is_no_step(recording: Recording) -> None:
    net, loader, held_out = Net(), data(), data(4, 2)
    for _ in range(3):
        for number, batch in enumerate(loader):
            if number == 2:
                break
            net.learn(batch)
        with torch.no_grad():
            for batch in held_out:
                net.loss(batch)
    recording.done()
    assert recording.samples == [4, 4] * 3
    assert recording.boundaries == 3


def test_a_wrapper_that_holds_a_batch_back_is_known_from_the_second_epoch_on(unhurried: Recording) -> None:
    def ahead(loader: DataLoader[Any]) -> Iterator[Any]:
        iterator = iter(loader)
        held = next(iterator)
        for following in iterator:
            yield held
            held = following
        yield held

    net, loader = Net(), data(18, 4)
    for _ in range(3):
        for batch in ahead(loader):
            net.learn(batch)
    steps = unhurried.done()
    assert [step["samples"] for step in steps if step["epoch"]] == [4, 4, 4, 4, 2] * 2


def test_a_training_on_one_batch_has_a_step_per_update(recording: Recording) -> None:
    net, batch = Net(), next(iter(data()))
    for _ in range(100):
        net.learn(batch)
    assert len(recording.done()) > 60
    assert len(recording.notices) == 1


def test_an_evaluation_on_the_training_loader_is_no_training(recording: Recording) -> None:
    net, loader = Net(), data(40, 4)
    for _ in range(5):
        net.learn(next(iter(loader)))
    for batch in loader:
        net.loss(batch)
    net.learn(next(iter(loader)))
    assert len(recording.done()) == 6
    assert recording.boundaries == 1


def test_a_thread_trains_though_the_main_thread_tried_the_model(recording: Recording) -> None:
    net, loader = Net(), data(40, 4)
    net.loss(next(iter([[torch.ones(4, 3)]]))).backward()

    def train() -> None:
        for batch in loader:
            net.learn(batch)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert len(recording.done()) >= 8


def test_a_thread_that_learns_in_the_midst_of_a_hook_of_another_waits_for_its_turn(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The main thread goes through a loader, and is interrupted while its fetch is told; another thread trains."""
    assert recording.hooks is not None
    net, loader, order = Net(), data(40, 4), []
    inner = recording.steps.fetch_begin

    def trains(times: int) -> None:
        def learn() -> None:
            for _ in range(times):
                net.loss(torch.ones(4, 3)).backward()

        thread = threading.Thread(target=learn)
        thread.start()
        thread.join()

    def interrupted(*args: Any) -> None:
        order.append("fetch begins")
        trains(4)
        inner(*args)
        order.append("fetch begun")

    taken_back = recording.steps.abandon_fetch
    monkeypatch.setattr(recording.steps, "abandon_fetch", lambda: order.append("taken back") or taken_back())
    monkeypatch.setattr(recording.steps, "fetch_begin", interrupted)
    recording.hooks.remove()
    recording.install()
    batches = iter(loader)
    next(batches)
    assert order == ["fetch begins", "fetch begun"]
    trains(4)
    assert order == ["fetch begins", "fetch begun", "taken back"]
    assert recording.hooks.off == []


def test_a_fetch_that_timed_out_leaves_the_samples_right(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    loader = data(batch_sampler=[[0, 1, 2], [3], [4, 5], [6]], batch=1, num_workers=1)
    iterator = iter(loader)
    net.learn(next(iterator))
    with monkeypatch.context() as patched:
        patched.setattr(iterator, "_get_data", lambda: (_ for _ in ()).throw(RuntimeError("timed out")))
        with pytest.raises(RuntimeError, match="timed out"):
            next(iterator)
    for batch in iterator:
        net.learn(batch)
    recording.done()
    assert recording.samples == [3, 1, 2, 1]


def test_a_marked_wait_within_a_marked_wait_is_part_of_it(recording: Recording) -> None:
    assert recording.hooks is not None
    net, tell = Net(), recording.hooks.tell
    for _ in range(5):
        assert tell(lambda loop: loop.wait_begins())
        for _ in range(3):
            assert not tell(lambda loop: loop.wait_begins())
        tell(lambda loop: loop.wait_ends(failed=False))
        net.learn([torch.ones(4, 3)])
    assert len(recording.done()) == 5


def test_marked_waits_with_nothing_learnt_between_are_no_steps_and_cost_no_later_ones(unhurried: Recording) -> None:
    assert unhurried.hooks is not None
    net, tell = Net(), unhurried.hooks.tell

    def wait() -> None:
        assert tell(lambda loop: loop.wait_begins())
        tell(lambda loop: loop.wait_ends(failed=False))

    for _ in range(2):
        wait()
    for _ in range(5):
        wait()
        net.learn([torch.ones(4, 3)])
    assert not unhurried.notices
    # That the waits feed a training is known from the first backward pass behind one.
    assert len(unhurried.done()) == 4
    assert unhurried.steps.count("optimizer_end") == [1] * 4
    assert unhurried.boundaries == 1


def test_a_marked_wait_after_a_checkpoint_costs_no_marked_step(recording: Recording) -> None:
    assert recording.hooks is not None
    net, tell = Net(), recording.hooks.tell
    for _ in range(3):
        tell(lambda loop: loop.step_begins())
        net.learn([torch.ones(4, 3)])
        tell(lambda loop: loop.boundary_begins())
        tell(lambda loop: loop.boundary_ends())
        assert tell(lambda loop: loop.wait_begins())
        tell(lambda loop: loop.wait_ends(failed=False))
    assert not recording.notices
    assert len(recording.done()) == 3


@pytest.mark.parametrize("updates", [16, 31])
def test_many_optimizer_steps_on_each_batch_are_one_step_a_batch_in_every_epoch(
    recording: Recording, updates: int
) -> None:
    net, loader = Net(), data()
    for _ in range(3):
        for batch in loader:
            for _ in range(updates):
                net.learn(batch)
    recording.done()
    assert recording.steps.count("optimizer_end") == [updates] * 9
    assert recording.samples == [4, 4, 2] * 3
    assert not recording.notices


def test_many_optimizer_steps_on_the_one_batch_of_each_iteration_are_one_step(recording: Recording) -> None:
    net = Net()
    for _ in range(6):
        for batch in data(4, 4):
            for _ in range(20):
                net.learn(batch)
    recording.done()
    assert recording.steps.count("optimizer_end") == [20] * 6
    assert not recording.notices
