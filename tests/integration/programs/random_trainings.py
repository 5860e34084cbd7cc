"""Random small trainings, each played without hooks and with them: `random_trainings.py FOLDER FIRST COUNT [models]`.

Prints a line of JSON for each that was not the same, then how many programs and steps there were. What a program does
follows from its number alone. With `models`, whole models are saved too, and copies of them looked into.
"""

from __future__ import annotations

import copy
import gc
import hashlib
import io
import itertools
import json
import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    get_worker_info,
)

from whyidle.capture.hooks import install
from whyidle.capture.session import Session
from whyidle.capture.steps import Thinning
from whyidle.devices.cpu import CpuDevice
from whyidle.record.run import create_run

WHOLE_MODELS = "models" in sys.argv


class Planned(Exception):
    """What a program raises itself."""


class Interrupt(BaseException):
    """The same of what few catch."""


class Numbers(Dataset[Any]):
    """Samples of a kind; some cannot be had, and all know when they are gone."""

    def __init__(self, size: int, kind: int, fails: int | None, log: list[str], random_too: bool) -> None:
        self.size, self.kind, self.fails, self.log, self.random_too = size, kind, fails, log, random_too

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        if index == self.fails:
            # What ends a worker tells of it by its number.
            kinds = (
                (Planned, Interrupt, ValueError, StopIteration) if get_worker_info() is None else (Planned, ValueError)
            )
            raise kinds[self.kind % len(kinds)](f"sample {index}")
        x = torch.full((6,), float(index)) / 10
        if self.random_too:
            x = x + torch.rand(6) * random.random() + float(np.random.rand())
        return {"x": x, "n": index} if self.kind == 5 else (x, index, "text") if self.kind == 4 else (x, float(index))

    def __del__(self) -> None:
        self.log.append("data set gone")


class Stream(IterableDataset[Any]):
    def __init__(self, size: int, fails: int | None) -> None:
        self.size, self.fails = size, fails

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(self.size):
            if number == self.fails:
                raise Planned(f"stream {number}")
            yield torch.full((6,), number / 10)


class Net(nn.Module):
    def __init__(self, wide: int, drops: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, wide), nn.Dropout(drops), nn.ReLU(), nn.Linear(wide, 1))
        self.fails = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fails:
            raise Planned("forward")
        return self.layers(x)  # type: ignore[no-any-return]


def features(batch: Any) -> torch.Tensor:
    if isinstance(batch, dict):
        batch = batch["x"]
    elif isinstance(batch, (list, tuple)):
        batch = batch[0]
    return batch.float()  # type: ignore[no-any-return]


def odd_collate(samples: list[Any]) -> Any:
    parts = [features(sample) for sample in samples]
    return (torch.stack(parts), *parts)


class Program:
    """One training. What it chooses comes from `chance`, what can be seen of it goes to `log` or is returned."""

    def __init__(self, number: int, folder: Path) -> None:
        self.chance = random.Random(number)
        self.folder = folder
        self.log: list[str] = []
        self.steps = 0
        self.signals = 0
        chance = self.chance
        self.workers = chance.choice((1, 2)) if number % 40 == 7 else 0
        self.method = "spawn" if number % 400 == 7 else "fork"
        torch.manual_seed(number)
        random.seed(number)
        np.random.seed(number % 2**32)
        self.loaders = [self.make_loader() for _ in range(chance.randint(1, 3))]
        self.model = Net(chance.choice((3, 8)), chance.choice((0.0, 0.4)))
        self.optimizers = [self.make_optimizer() for _ in range(chance.choice((1, 1, 1, 2)))]
        if chance.random() < 0.2:
            self.model.layers[0].register_forward_hook(lambda *_: self.log.append("forward hook"))
        if chance.random() < 0.2:
            self.model.register_forward_pre_hook(lambda *_: self.log.append("pre-hook"))
        if chance.random() < 0.2:
            next(self.model.parameters()).register_hook(lambda grad: self.log.append(str(grad.sum().item().hex())))
        self.acts: list[Callable[[Any], object]] = chance.sample(
            [
                *(self.evaluates, self.another_loader, self.fails_in_forward, self.abandons, self.copies, self.saves),
                *(self.collects, self.in_a_thread, self.signalled, self.draws, self.interrupts, self.fails_in_backward),
                *(self.steps_with_closure, self.looks_at_state, self.generator, self.gradients, self.nested_modules),
                *(self.changes_loader, self.holds_cycles, self.catches_outside),
            ],
            chance.randint(2, 9),
        )

    def make_loader(self) -> DataLoader[Any]:
        chance = self.chance
        size, batch = chance.randint(3, 24), chance.choice((1, 2, 4, 5))
        fails = chance.randrange(size) if chance.random() < 0.15 else None
        common: dict[str, Any] = {"num_workers": self.workers}
        if self.workers:
            common |= {"multiprocessing_context": self.method, "persistent_workers": chance.random() < 0.4}
            common["prefetch_factor"] = chance.choice((1, 2))
        kind = chance.randrange(7)
        if kind == 0:
            return DataLoader(Stream(size, fails), batch_size=chance.choice((None, batch)), **common)
        if kind == 1:
            return DataLoader(TensorDataset(torch.randn(size, 6)), batch_size=batch, drop_last=True, **common)
        log = self.log if not self.workers else []
        data = Numbers(size, chance.randrange(6), fails, log, random_too=chance.random() < 0.3)
        if kind == 2:
            sampler = BatchSampler(RandomSampler(data), batch, drop_last=False)
            return DataLoader(data, batch_sampler=sampler, **common)
        if kind == 3:
            return DataLoader(data, batch_size=batch, collate_fn=odd_collate, **common)
        return DataLoader(data, batch_size=batch, shuffle=chance.random() < 0.5, **common)

    def make_optimizer(self) -> torch.optim.Optimizer:
        return self.chance.choice((torch.optim.SGD, torch.optim.AdamW))(self.model.parameters(), lr=0.01)

    def play(self) -> dict[str, Any]:
        chance = self.chance
        before = signal.signal(signal.SIGUSR1, self.on_signal)
        try:
            for epoch in range(chance.randint(1, 3)):
                self.log.append(f"epoch {epoch}")
                try:
                    self.epoch(chance.choice((1, 1, 2, 3)), chance.choice((None, None, 3)))
                except (Planned, Interrupt, ValueError, RuntimeError):
                    self.told()
        finally:
            signal.signal(signal.SIGUSR1, before)
        self.loaders.clear()
        gc.collect()
        return {
            "log": self.log,
            "weights": {name: digest(value) for name, value in self.model.state_dict().items()},
            "random": [digest(torch.get_rng_state()), repr(random.getstate()), repr(np.random.get_state())],
            "optimizers": [states(each) for each in self.optimizers],
        }

    def epoch(self, accumulated: int, most: int | None) -> None:
        loader = self.chance.choice(self.loaders)
        for number, batch in enumerate(loader):
            if number == most:
                break
            self.steps += 1
            x = features(batch)
            self.log.append(digest(x))
            early = self.chance.random() < 0.5
            if early and self.chance.random() < 0.4:
                self.act(x)
            if number % accumulated == 0:
                for optimizer in self.optimizers:
                    optimizer.zero_grad(set_to_none=self.chance.random() < 0.5)
            loss = self.model(x).square().mean()
            if not early and self.chance.random() < 0.4:
                self.act(x)
            if self.chance.random() < 0.1:
                continue
            loss.backward()
            if number % accumulated == accumulated - 1:
                for optimizer in self.optimizers:
                    optimizer.step()
            self.log.append(loss.item().hex())
            if self.chance.random() < 0.3:
                self.act(x)

    def act(self, x: torch.Tensor) -> None:
        act = self.chance.choice(self.acts)
        self.log.append(act.__name__)
        act(x)

    def told(self) -> None:
        lines = traceback.format_exc().splitlines()
        # The mark on a model is a frame of its own so far.
        marks = [] if WHOLE_MODELS else [at for at, line in enumerate(lines) if "hooks/forward.py" in line]
        self.log.append("\n".join(line for at, line in enumerate(lines) if not {at, at - 1, at - 2} & {*marks}))

    def on_signal(self, *_: Any) -> None:
        self.signals += 1
        if self.signals % 3 == 0:
            raise Planned("a signal")

    # What a program may do at any place.

    def evaluates(self, _x: torch.Tensor) -> None:
        self.model.eval()
        with torch.no_grad():
            for batch in itertools.islice(self.chance.choice(self.loaders), 4):
                self.log.append(digest(self.model(features(batch))))
        self.model.train()

    def another_loader(self, _x: torch.Tensor) -> None:
        batch = next(iter(self.chance.choice(self.loaders)), None)
        if batch is not None:
            self.model(features(batch)).sum().backward()

    def fails_in_forward(self, x: torch.Tensor) -> None:
        self.model.fails = True
        try:
            self.model(x)
        except Planned:
            self.told()
        finally:
            self.model.fails = False

    def catches_outside(self, x: torch.Tensor) -> None:
        self.model.fails = True
        try:
            self.model(x)
        finally:
            self.model.fails = False

    def fails_in_backward(self, x: torch.Tensor) -> None:
        def fails(_grad: torch.Tensor) -> None:
            raise Planned("backward")

        out = self.model(x)
        out.register_hook(fails)
        try:
            out.sum().backward()
        except Planned:
            self.told()

    def abandons(self, _x: torch.Tensor) -> None:
        batches = iter(self.chance.choice(self.loaders))
        self.log.append(str(next(batches, None)))
        del batches

    def copies(self, x: torch.Tensor) -> None:
        twin = copy.deepcopy(self.model)
        twin(x).sum().backward()
        copy.copy(self.model)(x)
        self.log.append(digest(twin.layers[0].weight.grad))
        if WHOLE_MODELS:
            self.log.append(f"{sorted(vars(twin))} {sorted(vars(self.model))}")

    def saves(self, _x: torch.Tensor) -> None:
        path = self.folder / "saved.pt"
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizers[0].state_dict()}, path)
        self.log.append(hashlib.sha256(path.read_bytes()).hexdigest())
        into = io.BytesIO()
        torch.save(list(self.model.parameters()), into)
        self.log.append(hashlib.sha256(into.getvalue()).hexdigest())
        if WHOLE_MODELS and not self.model._forward_pre_hooks and not self.model.layers[0]._forward_hooks:
            torch.save(self.model, path)
            self.log.append(hashlib.sha256(path.read_bytes()).hexdigest())
            with torch.serialization.safe_globals([Net, nn.Sequential, nn.Linear, nn.Dropout, nn.ReLU, set]):
                self.log.append(str(torch.load(path, weights_only=True)))

    def collects(self, _x: torch.Tensor) -> None:
        gc.collect()

    def holds_cycles(self, x: torch.Tensor) -> None:
        cycle: list[Any] = [x, Numbers(2, 0, None, self.log, random_too=False)]
        cycle.append(cycle)

    def in_a_thread(self, x: torch.Tensor) -> None:
        def works() -> None:
            for batch in itertools.islice(self.loaders[-1], 2):
                self.log.append(digest(features(batch)))
            self.model(x).sum().backward()

        def guarded() -> None:
            try:
                works()
            except (Planned, Interrupt, ValueError, RuntimeError):
                self.told()

        thread = threading.Thread(target=guarded)
        thread.start()
        thread.join()

    def signalled(self, _x: torch.Tensor) -> None:
        try:
            signal.raise_signal(signal.SIGUSR1)
        except Planned:
            self.told()

    def draws(self, _x: torch.Tensor) -> None:
        self.log.append(f"{torch.rand(1).item()} {random.random()} {np.random.rand()}")

    def interrupts(self, x: torch.Tensor) -> None:
        raise Interrupt(f"{x.sum().item()}")

    def steps_with_closure(self, x: torch.Tensor) -> None:
        optimizer = torch.optim.LBFGS(self.model.parameters(), lr=0.01, max_iter=2)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = self.model(x).square().mean()
            loss.backward()
            return loss  # type: ignore[no-any-return]

        self.log.append(str(optimizer.step(closure)))

    def looks_at_state(self, _x: torch.Tensor) -> None:
        self.log.append(str([(name, tuple(value.shape)) for name, value in self.model.state_dict().items()]))
        self.model.load_state_dict(copy.deepcopy(self.model.state_dict()))

    def generator(self, _x: torch.Tensor) -> None:
        def batches() -> Iterator[Any]:
            try:
                yield from self.chance.choice(self.loaders)
            finally:
                self.log.append("closed")

        self.log.append(str(next(batches(), None)))

    def gradients(self, x: torch.Tensor) -> None:
        given = torch.autograd.grad(self.model(x).sum(), list(self.model.parameters()), retain_graph=True)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.log.append(digest(given[0]))

    def nested_modules(self, x: torch.Tensor) -> None:
        out = nn.Sequential(nn.Linear(6, 6), self.model)(x)
        torch.autograd.backward([out.sum(), out.square().sum()], retain_graph=True)

    def changes_loader(self, _x: torch.Tensor) -> None:
        self.loaders[self.chance.randrange(len(self.loaders))] = self.make_loader()


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.detach().contiguous().numpy().tobytes()).hexdigest()[:16]


def states(optimizer: torch.optim.Optimizer) -> list[str]:
    found = [value for state in optimizer.state.values() for value in state.values()]
    return [digest(value) if isinstance(value, torch.Tensor) else str(value) for value in found]


class SomePass(Thinning):
    """Looks at three steps, lets two pass, and so on."""

    def first(self) -> int:
        return 3

    def plan(self, first_of_epoch: bool, left: int) -> tuple[int, int]:
        return 3, 2


def with_hooks(number: int, folder: Path) -> tuple[dict[str, Any], int]:
    """As it was with them, and its steps."""
    run = create_run(folder / "run", {"device": {"kind": "cpu"}})
    session = Session(run, CpuDevice(), thinning=SomePass(1) if number % 2 else None)
    steady = install.steady_of
    if number % 3 == 0:
        install.steady_of = lambda *_: None
    hooks = install.install(session)
    try:
        program = Program(number, folder)
        seen = program.play()
        seen["off"] = hooks.off
        return seen, program.steps
    finally:
        hooks.remove()
        session.finish()
        install.steady_of = steady


def main() -> None:
    folder, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    gc.disable()  # when a cycle is found depends on all that is made
    gc.freeze()
    steps = 0
    for number in range(first, first + count):
        mine = folder / str(number)
        mine.mkdir(parents=True)
        bare = Program(number, mine).play() | {"off": []}
        hooked, made = with_hooks(number, mine)
        steps += made
        for what, value in bare.items():
            if value != hooked[what]:
                pairs: Any = zip(value, hooked[what], strict=False)
                where = next((pair for pair in pairs if pair[0] != pair[1]), (value, hooked[what]))
                print(json.dumps({"program": number, "what": what, "without": where[0], "with": where[1]}), flush=True)
    print(json.dumps({"programs": count, "steps": steps}), flush=True)


if __name__ == "__main__":
    main()
