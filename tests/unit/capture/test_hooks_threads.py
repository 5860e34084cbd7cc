"""Where a training runs: other threads, forked children, torch.distributed and its compiler."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace
from typing import Any

import torch

from support.loops import Net, Recording, data


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
