"""`whyidle compare` as a user runs it: real processes, real loaders, an emulated device.

The scenario of costs is trained, priced, and priced anew by a report.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.fakes.driver import wait_for
from support.runs import WHYIDLE, called, mistaken
from whyidle.analyse.run.analysis import analyse
from whyidle.analyse.run.stall_breakdown import PARTS
from whyidle.commands.main import main
from whyidle.record.run import open_run
from whyidle.record.schema import BATCH, HOST, SPAN, STEP, SpanKind

# Several trainings are started one after the other, each of which imports torch.
pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def table(images: Path, once: Callable[[str, Callable[[Path], object]], Path]) -> tuple[Path, dict[str, Any], str]:
    """One comparison that several tests look at: folder, JSON, what it printed."""

    def compare(folder: Path) -> None:
        out = folder / "out"
        shown = called(
            *("compare", "ssd", "--data", images, "--device", "emulated:h200", "--pipelines", "naive,caffe"),
            *("--batch-sizes", "4,4096", "--iterations", "30", "--repeats", "1", "--workers", "2"),
            *("--out", out, "--json", out / "result.json", "--html", out / "result.html"),
        )
        assert shown.returncode == 0, shown.stderr
        assert "Traceback" not in shown.stderr
        (folder / "shown.txt").write_text(shown.stdout)

    made = once("compare", compare)
    out = made / "out"
    return out, json.loads((out / "result.json").read_text()), (made / "shown.txt").read_text()


def test_every_cell_is_there_and_its_figures_fit_together(table: tuple[Path, dict[str, Any], str]) -> None:
    out, result, shown = table
    status = {(c["pipeline"], c["batch_size"]): c["status"] for c in result["cells"]}
    for name in ("naive", "caffe"):
        assert status[name, 4] == "ok"
    assert {status[name, 4096] for name in ("naive", "caffe")} == {"oom"}
    assert result["device"]["title"].startswith("emulated ")
    assert "emulated" in shown.splitlines()[0]
    assert "emulated samples/s" in shown
    assert (result["format"], result["version"], result["scenario"]) == ("whyidle-compare", 1, "ssd")
    for cell in (c for c in result["cells"] if c["status"] == "ok"):
        rate = cell["samples_per_s"]
        assert 0 < rate["low"] <= rate["median"] <= rate["high"]
        assert sum(cell["breakdown"].values()) == pytest.approx(100)
        assert cell["busy_pct"] == pytest.approx(cell["breakdown"]["compute_pct"])
        assert cell["repeats"] == 1
        assert all(Path(run).parent == out for run in cell["runs"])
        assert cell["verdict"]["title"]
    best = (result["best"]["pipeline"], result["best"]["batch_size"])
    rates = {
        (c["pipeline"], c["batch_size"]): c["samples_per_s"]["median"] for c in result["cells"] if c["status"] == "ok"
    }
    assert rates[best] == max(rates.values())


def test_a_run_holds_steps_batches_samples_and_the_devices_truth(table: tuple[Path, dict[str, Any], str]) -> None:
    out, _, _ = table
    for name in ("naive", "caffe"):
        run = open_run(out / f"{name}-b4-r0")
        steps = run.records(STEP)
        assert len(steps) == 30
        assert (steps["samples"] == 4).all()
        assert len(run.records(BATCH)) == 30
        assert len(run.records(HOST)) > 0
        facts = analyse(run).facts
        assert sum(getattr(facts.parts, f"{p}_ns") for p in PARTS) == facts.parts.wall_ns
        assert facts.parts.unresolved_steps == 0
        # What events say the device computed, against what its engine did.
        spans = run.records(SPAN)
        compute = spans[spans["what"] == SpanKind.COMPUTE]
        truth = sum(
            max(0, min(int(s["end_ns"]), facts.window.end_ns) - max(int(s["begin_ns"]), facts.window.begin_ns))
            for s in compute
        )
        assert facts.parts.compute_ns >= truth
        # Of the same time: how close it comes, `benchmarks/truth.py` measures.
        assert facts.parts.compute_ns - truth < 0.1 * facts.parts.wall_ns
        assert run.info["ended"]["status"] == "ok"


def test_the_report_of_a_comparison_is_what_compare_printed(table: tuple[Path, dict[str, Any], str]) -> None:
    out, _, shown = table
    again = called("report", out)
    assert again.returncode == 0
    assert again.stdout.strip() in shown
    as_json = json.loads(called("report", out, "--json").stdout)
    assert [c["pipeline"] for c in as_json["cells"]] == ["naive", "naive", "caffe", "caffe"]


def test_a_training_that_is_killed_is_a_cell_and_ctrl_c_keeps_what_was_measured_and_prints_it(
    images: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = (
        *(*WHYIDLE, "compare", "ssd", "--data", images, "--device", "emulated:v100", "--batch-sizes", "4"),
        *("--pipelines", "workers,threads", "--iterations", "100000", "--repeats", "3", "--out", out),
    )
    process = subprocess.Popen(
        [str(c) for c in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # In the background of a shell SIGINT is ignored, which is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        os.kill(int(_trained(out / "workers-b4-r0", 0).stem.split("-")[2]), signal.SIGKILL)
        _trained(out / "threads-b4-r0", 40)
        # As a terminal does it: to the whole group.
        os.killpg(process.pid, signal.SIGINT)
        shown, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "samples/s" in shown
    run = open_run(out / "threads-b4-r0")
    assert run.info["ended"]["status"] == "stopped"
    assert len(run.records(STEP)) > 40
    cells = {c["pipeline"]: c for c in json.loads(called("report", out, "--json").stdout)["cells"]}
    assert cells["workers"]["status"] == "failed"
    assert "SIGKILL" in cells["workers"]["error"]
    assert cells["threads"]["status"] == "ok"
    assert cells["threads"]["samples_per_s"]["median"] > 0
    _nothing_goes_on(out)


def _trained(folder: Path, steps: int) -> Path:
    """The file of a training's steps, once it has more than so many."""
    wait_for(
        lambda: any(folder.glob("step-*.rec")) and (not steps or len(open_run(folder).records(STEP)) > steps),
        seconds=250,
    )
    return next(folder.glob("step-*.rec"))


@pytest.mark.slow
def test_nothing_goes_on_when_the_command_itself_is_killed(images: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = (
        *(*WHYIDLE, "compare", "ssd", "--data", images, "--device", "emulated:v100", "--pipelines", "workers"),
        *("--batch-sizes", "4", "--iterations", "100000", "--repeats", "1", "--out", out),
    )
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _trained(out / "workers-b4-r0", 0)
    finally:
        process.kill()
        process.wait()
    _nothing_goes_on(out)
    assert open_run(out / "workers-b4-r0").info["ended"]["status"] == "stopped"


def _nothing_goes_on(folder: Path) -> None:
    """What ends by itself once the command has ended is waited for."""

    def held() -> bool:
        """Whether some process still holds something open in the folder."""
        for link in Path("/proc").glob("[0-9]*/fd/*"):
            with contextlib.suppress(OSError):
                if str(link.readlink()).startswith(str(folder)):
                    return True
        return False

    wait_for(lambda: not held(), f"processes that hold files in {folder}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("compare ssd --device emulated:nosuch", "nosuch"),
        ("compare ssd --device cuda:99", "cuda"),
        ("compare ssd --pipelines naive,nosuch", "unknown loader 'nosuch'"),
        ("compare ssd --net resnet", "has no net 'resnet'"),
        ("compare ssd --batch-sizes 0", "0"),
        ("data nosuch --out x", "nosuch"),
        ("data ssd --check /no/such/folder", "/no/such/folder"),
        ("data ssd --out /proc/nowhere", "/proc/nowhere"),
    ],
)
def test_a_users_mistake_is_one_message_and_nothing_is_made(
    images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    where = ["--data", images, "--out", "out"] if words.startswith("compare") else []
    assert said in mistaken(capsys, *words.split(), *where)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_holds_a_comparison_is_left_alone(
    table: tuple[Path, dict[str, Any], str], images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _, _ = table
    before = (out / "comparison.json").read_bytes()
    assert "already holds a comparison" in mistaken(capsys, "compare", "ssd", "--data", images, "--out", out)
    assert (out / "comparison.json").read_bytes() == before


def test_the_users_own_device_and_data_are_used_as_far_as_they_go(images: Path, tmp_path: Path) -> None:
    """A slow profile under the name of a built-in one, and a set with a corrupt image, an image that is missing and a
    box outside, in this order of the names: the file counts, not the name, and each fault is said once."""
    text = (Path(__file__).parents[2] / "docs" / "accelerators.md").read_text()
    profile = text.split("```toml\n")[1].split("[nets.ssd512]")[0]
    mine = tmp_path / "mine.toml"
    for before, after in (('"mine"', '"v100"'), ("The GPU in our lab", "my card"), ("[190.0, 240.0]", "[20.0, 20.0]")):
        assert before in profile
        profile = profile.replace(before, after)
    mine.write_text(profile)

    shutil.copytree(images, tmp_path / "voc")
    root = tmp_path / "voc" / "VOCdevkit" / "VOC2012"
    names = (root / "ImageSets" / "Main" / "train.txt").read_text().split()
    corrupt, orphan, outside = (n for n in names[:3])
    jpeg = root / "JPEGImages" / f"{corrupt}.jpg"
    jpeg.write_bytes(jpeg.read_bytes()[:2000])
    (root / "JPEGImages" / f"{orphan}.jpg").unlink()
    annotation = root / "Annotations" / f"{outside}.xml"
    text = annotation.read_text()
    box = "<object><name>cat</name><bndbox><xmin>999</xmin><ymin>999</ymin><xmax>1099</xmax><ymax>1099</ymax></bndbox>"
    annotation.write_text(text.replace("</annotation>", f"{box}</object></annotation>"))
    shown = called(
        *("compare", "ssd", "--data", tmp_path / "voc", "--device", f"emulated:{mine}", "--pipelines", "threads"),
        *("--batch-sizes", "4", "--iterations", "8", "--repeats", "1", "--out", tmp_path / "out", "--json", "-"),
    )
    assert shown.returncode == 0, shown.stderr
    result = json.loads(shown.stdout)
    assert result["device"]["title"] == "emulated my card"
    # An emulated device takes no less than its profile says: 20 images a second.
    assert result["cells"][0]["samples_per_s"]["median"] < 25
    told = [line for line in shown.stderr.splitlines() if line.startswith("data: ")]
    assert len(told) == 3
    for name in names[:3]:
        assert any(name in line for line in told)
    assert result["dataset"]["images"] == len(names) - 2


PER_VCPU = 0.063642 / 8


@pytest.mark.slow
def test_a_training_is_priced_by_its_own_times_and_priced_anew_by_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An MLP for two short epochs, tried on held-out images after each, on one thread."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = ["--experiment", "accuracy", "--net", "mnist-mlp", "--threads", "1", "--epochs", "2"]
    sizes = ["--limit", "640", "--batch-sizes", "16", "--target", "0.05", "--no-live"]
    out = ["--out", str(tmp_path / "runs"), "--json", str(tmp_path / "cost.json")]
    assert main(["compare", "cost", *options, *sizes, *out]) == 0
    content: dict[str, Any] = json.loads((tmp_path / "cost.json").read_text())
    [cell] = content["cells"]
    assert content["dataset"]["stand_in"].startswith("MNIST")
    assert cell["status"] == "ok"

    # An epoch costs its time at the study's price of a vCPU.
    assert cell["cost"]["usd_per_hour"] == pytest.approx(PER_VCPU)
    compute, outside = (cell["breakdown"][f"{part}_pct"] / 100 for part in ("compute", "boundary"))
    assert outside > 0  # the evaluation after the first epoch
    usd_per_s = PER_VCPU / 3600
    assert cell["cost_usd"] == pytest.approx(640 / cell["samples_per_s"]["median"] * (1 - outside) * usd_per_s)
    waited = (1 - compute - outside) / (1 - outside)
    assert cell["cost"]["waited_usd_per_epoch"] == pytest.approx(cell["cost_usd"] * waited)

    # The first epoch reached so low a target, and is priced with its evaluation.
    assert cell["cost"]["target_epochs"] == 1
    epochs = json.loads((Path(cell["runs"][0]) / "run.json").read_text())["results"]["epochs"]
    assert cell["cost"]["target_cost_usd"] == pytest.approx(epochs[0]["seconds"] * PER_VCPU / 3600)

    capsys.readouterr()
    assert main(["report", str(tmp_path / "runs"), "--json", "--price", "3.06"]) == 0
    [anew] = json.loads(capsys.readouterr().out)["cells"]
    assert anew["cost_usd"] == pytest.approx(cell["cost_usd"] * 3.06 / PER_VCPU)
    assert main(["report", str(tmp_path / "runs")]) == 0
    text = capsys.readouterr().out
    assert "What it costs" in text
    assert "STAND-IN DATA" in text
