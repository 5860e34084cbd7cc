"""The stand-in's graphs: what may not happen while one is captured, and what a replay does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from support.cuda import MS, GpuSpec, Machine

REFUSED: dict[str, Callable[[torch.Tensor], object]] = {
    "item": lambda tensor: tensor.sum().item(),
    "synchronize": lambda tensor: torch.cuda.synchronize(),
    "stream.synchronize": lambda tensor: torch.cuda.default_stream().synchronize(),
    "pageable copy": lambda tensor: torch.ones(3).to("cuda"),
    "copy back": lambda tensor: tensor.cpu(),
}


def recorded(stream: torch.cuda.Stream | None = None) -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record(stream)
    return event


def refuses(call: Callable[[], object], match: str = "not permitted when stream is capturing") -> None:
    """The call raises in a capture, and spoils it."""
    with (
        pytest.raises(torch.AcceleratorError, match="previous error during capture"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        with pytest.raises(torch.AcceleratorError, match=match):
            call()
        assert torch.cuda.is_current_stream_capturing()
    assert not torch.cuda.is_current_stream_capturing()


def test_captured_work_does_not_run_until_it_is_replayed(machine: Machine) -> None:
    machine.durations["mul"] = 10 * MS
    given, graph = torch.ones(3, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        doubled = given * 2
        result = doubled * 2
    assert not torch.cuda.is_current_stream_capturing()
    machine.gpu.works.clear()
    for value in (3.0, 5.0):
        given.copy_(torch.full((3,), value))
        began = machine.now_ns
        graph.replay()
        assert machine.now_ns - began < MS
        assert result.tolist() == [4 * value] * 3
        assert machine.now_ns - began == pytest.approx(20 * MS, abs=MS / 10)
    assert [work.name for work in machine.gpu.works].count("mul") == 4


def test_a_whole_step_can_be_captured_and_trains_when_replayed(machine: Machine) -> None:
    model = torch.nn.Linear(4, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    given = torch.ones(3, 4, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model(given).square().mean().backward()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = model(given).square().mean()
        loss.backward()
        optimizer.step()
    losses = []
    for _ in range(10):
        graph.replay()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("what", REFUSED)
def test_in_a_capture_waiting_is_an_error_that_spoils_it(machine: Machine, what: str) -> None:
    tensor = torch.ones(3, device="cuda")
    refuses(lambda: REFUSED[what](tensor))


def test_in_a_capture_an_event_of_before_cannot_be_queried(machine: Machine) -> None:
    event = recorded()
    refuses(event.query)


def test_in_a_capture_an_event_cannot_be_recorded_into_another_stream(machine: Machine) -> None:
    other = torch.cuda.Stream()
    refuses(lambda: recorded(other))


def test_or_it_can_where_the_device_is_lenient(machine_of: Callable[..., Machine]) -> None:
    machine_of(GpuSpec(capture_forbids_other_streams=False))
    other = torch.cuda.Stream()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        event = recorded(other)
    torch.cuda.synchronize()
    assert event.query()


def test_a_captured_event_cannot_be_queried_or_waited_for_by_the_host_then_or_later(machine: Machine) -> None:
    refuses(lambda: recorded().query(), "last recorded in a capturing stream")
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        event = recorded()
    for call in (event.query, event.synchronize):
        with pytest.raises(torch.AcceleratorError, match="last recorded in a capturing stream"):
            call()
    event.record()
    event.synchronize()


def test_a_stream_that_waits_for_a_captured_event_is_captured_too(machine: Machine) -> None:
    tensor, side, graph = torch.ones(3, device="cuda"), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    machine.gpu.works.clear()
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            assert torch.cuda.is_current_stream_capturing()
            tensor * 2
        torch.cuda.current_stream().wait_stream(side)
    assert machine.gpu.works == []


def test_a_stream_that_was_taken_in_has_to_be_waited_for(machine: Machine) -> None:
    tensor, side = torch.ones(3, device="cuda"), torch.cuda.Stream()
    with (
        pytest.raises(torch.AcceleratorError, match="unjoined work"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            tensor * 2
    assert not side.is_capturing()


def test_a_relaxed_capture_lets_events_be_queried(machine: Machine) -> None:
    event = recorded()
    with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="relaxed"):
        event.query()


def test_captured_work_cannot_wait_for_work_outside_the_capture(machine: Machine) -> None:
    event = recorded()
    refuses(lambda: torch.cuda.current_stream().wait_event(event), "uncaptured work in another stream")


def test_the_default_stream_is_not_captured(machine: Machine) -> None:
    with pytest.raises(RuntimeError, match="non-default stream"):
        torch.cuda.CUDAGraph().capture_begin()


def test_a_graph_that_was_not_captured_is_not_replayed(machine: Machine) -> None:
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        torch.cuda.CUDAGraph().replay()
