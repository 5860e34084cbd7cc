"""Each kind of logger is called its own way, and reads back what it was given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.loggers import Mlflow, WandbRun, Writer
from whyidle.capture.scalars import is_closed, sender


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


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    # The light mlflow has no data base.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    module = pytest.importorskip("mlflow")
    before = module.get_tracking_uri()
    module.set_tracking_uri((tmp_path / "mlruns").as_uri())
    yield module
    module.set_tracking_uri(before)


def test_mlflow_reads_what_was_logged_and_gets_no_run_that_the_user_did_not_begin(mlflow: Any) -> None:
    send = sender(mlflow)
    send({"whyidle/input_pct": 1.0}, 1)
    assert mlflow.active_run() is None
    with mlflow.start_run() as run:
        send({"whyidle/input_pct": 31.5}, 7)
    send({"whyidle/input_pct": 2.0}, 9)
    assert mlflow.active_run() is None
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "whyidle/input_pct")
    assert [(each.step, each.value) for each in history] == [(7, 31.5)]


def test_weights_and_biases_keeps_the_trainings_own_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    for name, value in {"WANDB_SILENT": "true", "WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    run = wandb.init(project="p", dir=str(tmp_path), mode="offline")
    send = sender(run)
    run.log({"loss": 1.0}, step=5)
    send({"whyidle/input_pct": 31.5}, 700)
    assert run.step == 5
    run.log({"loss": 2.0}, step=10)
    # Merged into the training's row: neither refused nor a row of its own.
    assert run.step == 10
    send({"whyidle/input_pct": 41.5}, 900)
    run.log({"loss": 3.0}, step=11)
    # What joined row 10 was committed with it.
    assert run.summary.get("whyidle/input_pct") == 41.5
    assert run.summary.get("whyidle/step") == 900
    run.finish()
    # After its end nothing is sent, and nothing raised.
    sender(wandb)({"whyidle/input_pct": 1.0}, 901)
