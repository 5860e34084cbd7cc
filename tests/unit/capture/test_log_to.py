"""`log_to`: figures reach a training's own logger at its steps, and nothing that a logger does reaches the training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import whyidle
from support.hooked import Net, data
from whyidle.analyse.run.analysis import analyse
from whyidle.capture import scalars
from whyidle.capture.recording import recording
from whyidle.capture.scalars import ScalarLog, is_closed, sender
from whyidle.errors import RecordError, WhyidleError
from whyidle.record.notices import read_notices
from whyidle.record.run import open_run, update_run
from whyidle.record.scalars import SCALARS, WANTED, Told, tell, told, wanted
from whyidle.scenarios.planted import MS, Step, train

Call = tuple[dict[str, float], int]
"""Figures by name, and the step."""


class Kept:
    """A logger that is a function."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def __call__(self, figures: dict[str, float], step: int) -> None:
        self.calls.append((figures, step))


class Writer:
    """As a SummaryWriter."""

    def __init__(self) -> None:
        self.scalars: list[tuple[str, float, int]] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
        assert global_step is not None
        self.scalars.append((tag, scalar_value, global_step))


class Mlflow:
    """As the mlflow module: outside a run of the user's, `log_metrics` would begin one."""

    def __init__(self) -> None:
        self.run: object | None = None
        self.logged: list[Call] = []

    def active_run(self) -> object | None:
        return self.run

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        assert step is not None
        self.logged.append((metrics, step))


class WandbRun:
    """As a Weights & Biases run."""

    def __init__(self) -> None:
        self.defined: list[str] = []
        self.rows: list[tuple[dict[str, float], bool | None]] = []

    def define_metric(self, name: str, step_metric: str | None = None, hidden: bool | None = None) -> None:
        self.defined.append(name)

    def log(self, data: dict[str, float], step: int | None = None, commit: bool | None = None) -> None:
        assert step is None
        self.rows.append((data, commit))


FIGURES = {"input_pct": 31.5, "samples_per_s": 99.0}
SECOND = 1_000_000_000


def unheard(sentence: str) -> None:
    raise AssertionError(sentence)


@pytest.fixture(autouse=True)
def nobody_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalars, "logs", [])
    monkeypatch.setattr(scalars, "due_ns", scalars.NEVER)
    monkeypatch.delenv("WHYIDLE_RUN", raising=False)


def test_what_is_no_figure_is_left_out(tmp_path: Path) -> None:
    content = {"step": 1, "values": {"a": 1, "b": "x", "c": None, "d": float("nan")}, "ranks": {}}
    (tmp_path / SCALARS).write_text(json.dumps(content))
    assert told(tmp_path) == Told(1, {"a": 1.0}, {})
    for broken in ("", "{}", "[]", '{"step": 1, "values": [], "ranks": {}}', '{"step": 1, "values": {}, "ranks": []}'):
        (tmp_path / SCALARS).write_text(broken)
        assert told(tmp_path) is None


def test_who_asks_says_how_often(tmp_path: Path) -> None:
    assert wanted(tmp_path) is None
    log = ScalarLog(tmp_path, Kept(), 2.5, False)
    assert not log(0, SECOND, 0, unheard)
    assert wanted(tmp_path) == 2.5
    for broken in ("", "3", '{"every_s": -1}', '{"every_s": "x"}', f'{{"every_s": 1{"0" * 400}}}'):
        (tmp_path / WANTED).write_text(broken)
        assert wanted(tmp_path) is None


def test_new_figures_are_sent_once_with_the_trainings_own_step(tmp_path: Path) -> None:
    kept = Kept()
    log = ScalarLog(tmp_path, kept, 10.0, False)
    assert not log(0, 0, 0, unheard)
    tell(tmp_path, Told(5, FIGURES, {}))
    # Not looked for again within a second.
    assert not log(1, SECOND // 2, 0, unheard)
    assert log(6, SECOND, 0, unheard)
    assert kept.calls == [({"whyidle/input_pct": 31.5, "whyidle/samples_per_s": 99.0}, 6)]
    # No sooner than ten seconds later, and not the same figures again.
    tell(tmp_path, Told(8, {"input_pct": 1.0}, {}))
    assert not log(9, 10 * SECOND, 0, unheard)
    assert log(10, 11 * SECOND, 0, unheard)
    assert not log(11, 40 * SECOND, 0, unheard)
    assert [step for _, step in kept.calls] == [6, 10]


def test_rank_0_logs_alone_unless_told(tmp_path: Path) -> None:
    alone, kept, every = Kept(), Kept(), Kept()
    others = ScalarLog(tmp_path, alone, 1.0, False)
    assert not others(0, 0, 1, unheard)
    assert wanted(tmp_path) is None
    zero, one = ScalarLog(tmp_path, kept, 1.0, False), ScalarLog(tmp_path, every, 1.0, True)
    zero(0, 0, 0, unheard)
    one(0, 0, 1, unheard)
    tell(tmp_path, Told(5, FIGURES, {0: {"input_pct": 10.0}, 1: {"input_pct": 2.0}}))
    zero(3, 2 * SECOND, 0, unheard)
    one(3, 2 * SECOND, 1, unheard)
    others(3, 2 * SECOND, 1, unheard)
    assert alone.calls == []
    assert kept.calls[0][0]["whyidle/input_pct"] == 31.5
    assert every.calls == [({"whyidle/input_pct": 2.0}, 3)]


def test_a_logger_that_fails_is_left_alone_with_one_notice_and_ctrl_c_is_the_trainings(tmp_path: Path) -> None:
    calls: list[int] = []
    said: list[str] = []

    def fails(figures: dict[str, float], step: int) -> None:
        calls.append(step)
        raise ConnectionError("the server is away") if step else KeyboardInterrupt

    log = ScalarLog(tmp_path, fails, 1.0, False)
    log(0, 0, 0, unheard)
    tell(tmp_path, Told(0, FIGURES, {}))
    with pytest.raises(KeyboardInterrupt):
        log(0, 2 * SECOND, 0, unheard)
    for number in range(1, 5):
        tell(tmp_path, Told(number, FIGURES, {}))
        log(number, 5 * number * SECOND, 0, said.append)
    assert calls == [0, 1]
    (sentence,) = said
    assert "ConnectionError: the server is away" in sentence


def test_what_is_no_logger_is_refused_everywhere_alike() -> None:
    with pytest.raises(TypeError, match="int is not a known logger"):
        whyidle.log_to(3)
    for every_s in (0, -1.0, float("nan"), float("inf"), 10**400):
        with pytest.raises(ValueError, match="seconds above 0 and up to 1e"):
            whyidle.log_to(Kept(), every_s=every_s)


class Closable(Writer):
    """As a SummaryWriter: what is added after its end opens a file again."""

    def __init__(self) -> None:
        super().__init__()
        self.all_writers: dict[str, object] | None = {}

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
        self.all_writers = {}
        super().add_scalar(tag, scalar_value, global_step)

    def close(self) -> None:
        self.all_writers = None


class Lightning:
    """As its logger for TensorBoard."""

    def __init__(self) -> None:
        self._experiment: Closable | None = None

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self._experiment = self._experiment or Closable()
        for name, value in metrics.items():
            self._experiment.add_scalar(name, value, step)


def test_a_closed_writer_stays_closed_and_what_the_program_opens_again_is_logged_to(tmp_path: Path) -> None:
    writer, logger = Closable(), Lightning()
    both = [ScalarLog(tmp_path, target, 1.0, False) for target in (writer, logger)]
    for number in range(5):
        if number == 2:
            assert logger._experiment is not None
            writer.close()
            logger._experiment.close()
        if number == 4:
            writer.add_scalar("loss", 1.0, 4)
            logger.log_metrics({"loss": 1.0}, 4)
        tell(tmp_path, Told(number, {"input_pct": float(number)}, {}))
        for log in both:
            log(number, 2 * number * SECOND, 0, unheard)
    assert logger._experiment is not None
    for each in (writer, logger._experiment):
        assert [step for tag, _, step in each.scalars if tag == "whyidle/input_pct"] == [0, 1, 4]


def test_trials_one_after_another_leave_no_logger_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHYIDLE_RUN", str(tmp_path))
    for _ in range(3):
        writer = Closable()
        whyidle.log_to(writer)
        writer.close()
    assert [each.target for each in scalars.logs] == [writer]
    kept: list[Kept] = []
    for _ in range(1200):
        kept.append(Kept())
        whyidle.log_to(kept[-1], every_s=1.0)
    assert [each.target for each in scalars.logs] == kept[-scalars.MOST_LOGS :]
    scalars.log(0, 0, 0, unheard)
    tell(tmp_path, Told(1, FIGURES, {}))
    assert scalars.log(1, 2 * SECOND, 0, unheard)
    assert len(kept[-1].calls) == 1
    assert kept[0].calls == []
    # The next are due a second later, and steps before that ask none of them.
    assert scalars.due_ns == 3 * SECOND


def test_the_same_logger_again_is_logged_to_as_said_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHYIDLE_RUN", str(tmp_path))
    kept, other = Kept(), Kept()
    for every_s in (1.0, 2.0):
        whyidle.log_to(kept, every_s)
        # Another object each time it is named.
        whyidle.log_to(other.__call__, every_s)
    assert len(scalars.logs) == 2
    for number in range(4):
        tell(tmp_path, Told(number, FIGURES, {}))
        scalars.log(number, number * SECOND, 0, unheard)
    assert [step for _, step in kept.calls] == [step for _, step in other.calls] == [0, 2]


def test_a_forked_training_gets_one_notice_and_no_call_of_its_parents_logger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHYIDLE_RUN", str(tmp_path))
    inherited, own = Kept(), Kept()
    said: list[str] = []
    whyidle.log_to(inherited, every_s=1.0)
    # As in a child, where the threads that empty a writer's queue are not.
    monkeypatch.setattr(scalars.os, "getpid", lambda: 1)
    for number in range(4):
        tell(tmp_path, Told(number, FIGURES, {}))
        scalars.log(number, 2 * number * SECOND, 0, said.append)
    (sentence,) = said
    assert "forked after the call" in sentence
    whyidle.log_to(own, every_s=1.0)
    for number in range(4, 8):
        tell(tmp_path, Told(number, FIGURES, {}))
        scalars.log(number, 2 * number * SECOND, 0, unheard)
    assert [step for _, step in own.calls] == [4, 5, 6, 7]
    assert inherited.calls == []


@pytest.mark.usefixtures("either_path")
def test_a_training_logs_at_its_steps_to_every_logger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, kept, also, net = tmp_path / "run", Kept(), Kept(), Net()
    with recording(folder, "cpu", sampler=False) as session:
        monkeypatch.setenv("WHYIDLE_RUN", str(folder))
        for target in (kept, also):
            whyidle.log_to(target, every_s=1e-6)
        monkeypatch.delenv("WHYIDLE_RUN")
        for number, batch in enumerate(data(64, 8)):
            if number == 3:
                assert wanted(folder) == 1e-6
                tell(folder, Told(3, FIGURES, {}))
            net.learn(batch)
        assert session.steps.count == 8
    assert [step for _, step in kept.calls] == [4]
    assert also.calls == kept.calls
    assert [note for note in read_notices(folder) if "log_to" in note] == []


@pytest.fixture
def starved(tmp_path: Path) -> Path:
    train(tmp_path / "starved", [[Step(fetch_ns=20 * MS)] * 100])
    return tmp_path / "starved"


def test_a_run_that_has_ended_is_logged_as_it_went_and_as_a_whole(starved: Path) -> None:
    kept = Kept()
    whyidle.log_to(kept, 0.5, run=starved)
    facts = analyse(open_run(starved)).facts
    assert facts is not None
    *stretches, (whole, last) = kept.calls
    assert len(stretches) == -(-facts.parts.wall_ns // (SECOND // 2))
    steps = [step for _, step in stretches]
    assert steps == sorted(set(steps))
    assert steps[-1] == last == 99
    prefix = next(iter(whole)).partition("/")[0]
    for figures, _ in stretches[1:-1]:
        shares = [value for name, value in figures.items() if name.endswith("_pct") and "utilisation" not in name]
        assert sum(shares) == pytest.approx(100)
        assert figures[f"{prefix}/input_pct"] == pytest.approx(100 * facts.shares["input"], abs=5)
    rates = [figures[f"{prefix}/samples_per_s"] for figures, _ in stretches[1:-1]]
    assert sum(rates) / len(rates) == pytest.approx(facts.samples_per_s, rel=0.1)
    assert whole[f"{prefix}/whole_run/input_pct"] == 100 * facts.shares["input"]
    assert whole[f"{prefix}/whole_run/samples_per_s"] == facts.samples_per_s


def test_figures_of_an_emulated_device_have_names_of_their_own(starved: Path) -> None:
    for kind, prefix in (("emulated", "whyidle-emulated/"), ("cuda", "whyidle/")):
        update_run(starved, {"device": {"kind": kind, "title": "X"}})
        kept = Kept()
        whyidle.log_to(kept, run=starved)
        names = {name for figures, _ in kept.calls for name in figures}
        assert names
        assert all(name.startswith(prefix) for name in names)


def test_a_folder_without_steps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="does not exist"):
        whyidle.log_to(Kept(), run=tmp_path / "nowhere")
    train(tmp_path / "empty", [[]])
    with pytest.raises(WhyidleError, match="no training step"):
        whyidle.log_to(Kept(), run=tmp_path / "empty")


def test_each_logger_is_called_its_own_way() -> None:
    writer, mlflow, run = Writer(), Mlflow(), WandbRun()
    sender(writer)({"whyidle/a": 1.0, "whyidle/b": 2.0}, 7)
    assert writer.scalars == [("whyidle/a", 1.0, 7), ("whyidle/b", 2.0, 7)]
    send = sender(mlflow)
    send({"whyidle/a": 1.0}, 7)
    assert mlflow.logged == []
    mlflow.run = object()
    send({"whyidle/a": 1.0}, 8)
    assert mlflow.logged == [({"whyidle/a": 1.0}, 8)]
    send = sender(run)
    send({"whyidle/a": 1.0}, 7)
    send({"whyidle/a": 2.0}, 9)
    assert run.rows == [
        ({"whyidle/a": 1.0, "whyidle/step": 7}, False),
        ({"whyidle/a": 2.0, "whyidle/step": 9}, False),
    ]
    assert run.defined == ["whyidle/step", "whyidle/*"]
    sender(run, alone=True)({"whyidle/a": 3.0}, 1)
    assert run.rows[-1][1] is True


def test_tensorboard_reads_what_was_logged(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        sender(writer)({"whyidle/input_pct": 31.5}, 7)
        assert not is_closed(writer)
    assert is_closed(writer)
    read = EventAccumulator(str(tmp_path)).Reload()
    assert [(each.step, each.value) for each in read.Scalars("whyidle/input_pct")] == [(7, 31.5)]
