"""The page of a run, a job, or a process that was observed from outside: what it lets in and out, and what a browser
makes of it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from support.crafted import add, amend, analysis_of_run, train_on_cpu
from support.jobs import START as JOB_START
from support.jobs import Rank, record
from support.page_content import Element, parsed
from support.planted_runs import PlantedWorkers, Step, pooled, until
from support.planted_stacks import MAIN, look, plant_stacks
from support.stacks import BACKWARD, TORCH, record_threads, stack
from whyidle.analyse.attached.attached import attached
from whyidle.analyse.attached.causes import findings_of, verdict_of
from whyidle.analyse.attached.trainers import SeenThread
from whyidle.analyse.run.analysis import Analysis, analyse
from whyidle.analyse.timeline.timeline import Timeline, timelines
from whyidle.commands.main import main
from whyidle.record.notices import SAMPLER_NOTICES, Notices
from whyidle.record.run import (
    ProcessStates,
    Run,
    create_run,
    note_devices,
    open_run,
    update_run,
    write_states,
)
from whyidle.record.schema import DEVICE, HOST, NOT_MEASURED
from whyidle.record.stacks import Call
from whyidle.report.page import attach_page, frame
from whyidle.report.page.flame import MOST_BOXES, MOST_DEEP, Box, Icicle, stacks_of
from whyidle.report.page.run_page import MOST_DEVICES, MOST_RANKS, SHARE, TYPES, environment_of, page, settings_of
from whyidle.scenarios.planted import MS, START, train

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def page_of(*folders: Path) -> tuple[str, Analysis, list[Timeline]]:
    """The page of a run or a job, and what it was made of."""
    runs = [open_run(folder) for folder in folders]
    analysis = analyse(*runs)
    return page(analysis, runs), analysis, timelines(analysis, runs)


def unpack(packed: dict[str, str]) -> npt.NDArray[Any]:
    """As `static/unpack.js` does."""
    return np.frombuffer(base64.b64decode(packed["base64"]), dtype=TYPES[packed["type"]])


def data_in(made: str) -> Any:
    """What its scripts read."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', made, re.DOTALL)
    return json.loads(found)


def opened(file: Path) -> tuple[str, str]:
    """(the document as Chromium has it once loaded, what went to its console)."""
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    done = subprocess.run(
        [*command, "--virtual-time-budget=5000", "--dump-dom", file.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def told_by(made: str, script: str, file: Path) -> Any:
    """The list `told` of a script of ours, which clicks as a reader would; the page itself lets in none but its own."""
    made = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", made)
    script = f"(async () => {{ {script} document.body.dataset.told = JSON.stringify(told); }})();"
    file.write_text(made.replace("</body>", f"<script>{script}</script></body>"))
    document, console = opened(file)
    assert console == ""
    (told,) = re.findall(r'data-told="([^"]*)"', document)
    return json.loads(html.unescape(told))


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x1b[31m\u2028"
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")


def test_nothing_that_a_run_holds_becomes_markup_or_code(starved: Path) -> None:
    told = {"command": ["python", HOSTILE], "notices": [HOSTILE], "dataset": {"stand_in": HOSTILE}, "trial": {}}
    code = {"revision": "0123456789" * 4, "branch": HOSTILE, "changed": True}
    device = open_run(starved).info["device"] | {"kind": "cuda"}
    told |= {HOSTILE: {HOSTILE: HOSTILE}, "host": {"name": HOSTILE}, "code": code, "device": device}
    update_run(starved, told)
    note_devices(starved, [], "580.95.05")
    Notices(starved / SAMPLER_NOTICES)(HOSTILE)
    call = HOSTILE.replace("onerror", "")
    hostile = (Call(f"f{call}", f"/home/me/{call}.py", 1, f"x = {call}"),)
    look(starved, range(START, START + 5000 * MS, 10 * MS), lambda *_: hostile)
    made, analysis, _ = page_of(starved)
    assert not re.search(r"<script>alert|<img|[\x00-\x08\x0b-\x1f\x7f]", made)
    assert html.escape("<script>alert(1)</script>") in made.partition('id="stacks"')[2]
    outside = re.sub(r"<(script|style)\b.*?</\1>", "", made, flags=re.DOTALL)
    assert not re.search(r"<[^>]*\son\w+\s*=", outside)
    rows, words = dict(environment_of(analysis)), parsed(made).words
    assert rows["driver"] == "580.95.05"
    assert rows["code"].startswith("0123456789 + changes, branch </script>")
    assert not {"code", "code.revision"} & {what for what, _ in settings_of(analysis)}
    assert "code 0123456789 + changes, branch </script>" in words
    # Of the data that scripts read nothing ends them, and what is no JSON is refused.
    assert json.loads(frame.as_json({"a": HOSTILE})) == {"a": HOSTILE}
    assert not set("<>&\u2028\x1b") & set(frame.as_json({"a": HOSTILE}))
    with pytest.raises(ValueError):
        frame.as_json(float("nan"))


def test_a_page_asks_nothing_of_any_network_and_runs_no_script_but_its_own(starved: Path) -> None:
    made, _, _ = page_of(starved)
    outside = re.sub(r"<script.*?</script>", "", made, flags=re.DOTALL)
    linked = re.findall(r'(?:src|href|action|srcset|poster)="([^"]*)"', outside)
    assert len(linked) > 3
    assert {each for each in linked if not each.startswith("#")} == {"data:,"}
    assert not re.findall(r"@import|url\(", made)
    assert not re.findall(r"\b(?:fetch|XMLHttpRequest|WebSocket|EventSource|sendBeacon|importScripts)\s*\(", made)
    assert set(re.findall(r"https?://[^\s\"'<)]+", made)) == {"https://github.com/leeoniya/uPlot"}
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', made)
    scripts = re.findall(r"<script>(.*?)</script>", made, re.DOTALL)
    hashes = {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts}
    assert set(re.findall(r"sha256-([\w+/=]+)", html.unescape(policy))) == hashes
    assert html.unescape(policy).startswith("default-src 'none';")


def test_a_run_without_steps_has_a_page_without_a_time_line(tmp_path: Path) -> None:
    train(tmp_path / "run", [])
    made, _, _ = page_of(tmp_path / "run")
    words = parsed(made).words
    assert "No verdict: no training step was recorded." in words
    assert not [said for said in ("Over time", "Evidence") if said in words]
    assert not re.search('id="(data|stacks)"', made)
    # No verdict is no good verdict, and nothing is linked that is not there.
    assert 'class="card verdict"' in made
    assert set(re.findall(r'href="#(\w+)"', made)) - {"main"} <= set(re.findall(r'id="(\w+)"', made))


def test_what_was_not_measured_is_not_zero(tmp_path: Path) -> None:
    train_on_cpu(tmp_path / "run", [{}] * 60)
    amend(tmp_path / "run", lambda steps: steps["fetch_end_ns"].fill(NOT_MEASURED))
    made, _, _ = page_of(tmp_path / "run")
    unsaid = ("not told apart 100.0 %", "busy n/a", "waiting for data n/a")
    assert [said for said in unsaid if said not in parsed(made).words] == []
    assert "untold" in data_in(made)["ranks"][0]["bins"]["parts"]


# Jobs.


def test_of_very_many_ranks_the_one_that_leads_is_shown(tmp_path: Path) -> None:
    last = MOST_RANKS + 3
    record(tmp_path / "run", [Rank(fetch_ns=(21 if n == last else 1) * MS) for n in range(last + 1)], 40)
    made, _, over = page_of(tmp_path / "run")
    data = data_in(made)
    assert data["lead"] == last
    assert [rank["rank"] for rank in data["ranks"]] == [*range(MOST_RANKS - 1), last]
    assert "4 further ranks are left out of the timeline" in parsed(made).words
    for rank in data["ranks"]:
        binned = unpack(rank["bins"]["parts"]["input"]).astype(float) * rank["bins"]["width"] / SHARE
        assert binned.sum() == pytest.approx(over[rank["rank"]].facts.parts.input_ns / 1e6, rel=1e-3)


def on_two_hosts(folder: Path, host: str = "beta", apart: bool = True) -> list[Path]:
    """Rank 0 on a host with one device; rank 1 on one with more than are shown."""
    ranks = [Rank(), Rank(fetch_ns=9 * MS, host=host)]
    folders = record(folder, ranks, apart=apart, shifts={host: 3_600_000 * MS}, device="cuda").folders
    for at, devices, begin in zip(
        folders, (1, MOST_DEVICES + 3), (JOB_START, JOB_START + 3_600_000 * MS), strict=False
    ):
        looks = [(begin + (when + 1) * 100 * MS, device) for when in range(20) for device in range(devices)]
        seen = {"window_ns": 100 * MS, "utilisation_pct": 10.0, "memory_used_bytes": 10**9}
        add(at, DEVICE, [{"t_ns": when, "device": device} | seen for when, device in looks])
    return folders


@pytest.mark.parametrize("apart", [True, False])
def test_ranks_of_several_hosts_stand_on_one_axis_of_time_with_the_devices_of_their_host(
    apart: bool, tmp_path: Path
) -> None:
    host = "</script><script>alert(1)</script>"
    made, _, _ = page_of(*on_two_hosts(tmp_path / "job", host, apart))
    assert "<script>alert" not in made
    here, there = data_in(made)["ranks"]
    assert there["host"] == host
    for each in (
        lambda rank: rank["begin"],
        lambda rank: rank["bins"]["begin"],
        lambda rank: unpack(rank["lines"][0]["t"])[0],
    ):
        assert each(there) == pytest.approx(each(here), abs=1)
    if apart:
        assert (here["devices"], there["devices"]) == ([0], list(range(MOST_DEVICES)))
        assert (here["left_out_devices"], there["left_out_devices"]) == (0, 3)
        for rank in (here, there):
            of = {line["name"] for line in rank["lines"] if line["name"].startswith("memory:")}
            assert of == {f"memory:{number}" for number in rank["devices"]}


# Stacks.


@pytest.fixture
def cpu_run(tmp_path: Path) -> Path:
    """50 steps of 100 ms, 40 of them in the fetch."""
    return train_on_cpu(tmp_path / "run", [{"fetch": 40, "gap": 5}] * 50)


def icicles(folder: Path) -> dict[str, Icicle]:
    run = open_run(folder)
    writer = run.leading_writer()
    assert writer is not None
    facts = analysis_of_run(folder).facts
    assert facts is not None
    found = stacks_of(run, writer, facts.parts)
    assert found is not None
    return {each.name: each for each in found.icicles} | {
        f"{found.looks} looks, {found.failed} failed": found.icicles[0]
    }


def test_very_many_calls_are_cut_to_those_seen_most(cpu_run: Path) -> None:
    def wide(number: int, _: int) -> tuple[Call, ...]:
        rare = (Call(f"rare_{number}", "/home/me/rare.py", number),)
        return (
            MAIN,
            *rare * (number % 2),
            *(Call(f"f{depth}", f"/home/me/{number % 60}.py", depth) for depth in range(150)),
        )

    def boxes(of: tuple[Box, ...]) -> list[Box]:
        return [each for box in of for each in (box, *boxes(box.below))]

    look(cpu_run, range(START, START + 5000 * MS, 2 * MS), wide)
    found = boxes(icicles(cpu_run)["The training thread"].boxes)
    assert 1 < len(found) <= MOST_BOXES + 9
    assert not [box.name for box in found if box.name[:4] in ("rare", f"f{MOST_DEEP}")]
    assert len(page_of(cpu_run)[0]) < 400_000


# Observed from outside.


WAIT = stack(f"{TORCH}/utils/data/dataloader.py:_BaseDataLoaderIter.__next__", "/usr/lib/python3.12/queue.py:Queue.get")


def attached_to(folder: Path, threads: list[SeenThread], **info: Any) -> Run:
    told = {"attach": {"pid": 7, "seconds": 9.0}, "command": ["python", "train.py"], "device": {"kind": "cpu"}}
    made = create_run(folder, told | info)
    record_threads(made, threads, {8: 7})
    states = ProcessStates(7, 1, "python", "python train.py", seconds=9.0, looks=90, states={"R": 40, "S": 50})
    worker = ProcessStates(8, 7, "pt_data_worker", seconds=9.0, looks=90, states={"S": 90})
    write_states(made, [states, worker])
    return open_run(made)


def attach_shown(run: Run) -> Element:
    seen = attached(run)
    findings = findings_of(seen)
    return parsed(attach_page.page(run, seen, verdict_of(seen, findings), findings))


@pytest.mark.parametrize("looks", [200, 20_000])
def test_cpus_are_the_counters_slopes_and_time_without_looks_is_a_gap_in_the_curve(tmp_path: Path, looks: int) -> None:
    run = attached_to(tmp_path / "run", [])
    at = 200_000_000 * np.arange(looks)
    at[looks // 2 :] += 3_000_000_000
    used = np.cumsum(200_000_000 * np.where(np.arange(looks) < looks // 2, 0.5, 2.0)).astype(np.int64)
    rows = zip(at.tolist(), used.tolist(), strict=True)
    add(run.folder, HOST, [{"t_ns": t_ns, "tree_cpu_ns": cpu_ns} for t_ns, cpu_ns in rows])
    add(run.folder, DEVICE, [{"t_ns": t_ns, "device": 1, "utilisation_pct": 50.0} for t_ns in at.tolist()])
    cpus, used_pct = attach_page.series_of(run)
    assert (used_pct.name, used_pct.unit, used_pct.mean) == ("GPU 1: utilisation (NVML)", "%", 50.0)
    assert used_pct.path.startswith("M0.0 50.0h1L")
    assert (cpus.name, cpus.unit) == ("CPUs this job uses", "CPUs")
    assert (cpus.mean, cpus.highest) == (pytest.approx(1.25, abs=0.02), 2.0)
    assert cpus.seconds == pytest.approx(0.2 * (looks - 2) + 3)
    assert cpus.path.count("M") == 2
    assert cpus.path.count("L") < attach_page.MOST_VALUES
    assert not any(math.isnan(float(number)) for number in re.findall(r"[\d.]+", cpus.path))


def test_without_stacks_and_samples_the_page_says_what_is_known(tmp_path: Path) -> None:
    page = attach_shown(attached_to(tmp_path / "run", []))
    assert page.all("h1")[0].words.startswith("process 7 (python train.py)")
    assert not {"Stacks", "Over time"} & {h2.words for h2 in page.all("h2")}
    assert "No verdict: the training's stacks were not read." in page.words


def test_whatever_another_process_calls_its_functions_stays_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = (*WAIT, Call(HOSTILE, f"/x/{HOSTILE}", 3, HOSTILE))
    threads = [SeenThread(7, 7, Counter({named: 30, BACKWARD: 30})), SeenThread(7, 9, Counter({WAIT: 9}))]
    run = attached_to(tmp_path / "run", threads, command=["python", HOSTILE], notices=[HOSTILE])
    assert main(["report", str(run.folder), "--format", "html"]) == 0
    assert capsys.readouterr().out.strip() == str(run.folder / "report.html")
    page = parsed((run.folder / "report.html").read_text())
    assert not page.all("img")
    assert page.words.count("<img src=x onerror=alert(2)>") >= 3
    assert "\x1b" not in page.words


# In a browser.


@in_a_browser
def test_a_reader_zooms_into_a_box_and_finds_one(tmp_path: Path) -> None:
    steps = [[Step(fetch_ns=40 * MS, host_ns=3 * MS)] * 30]
    run = pooled(tmp_path / "run", steps, PlantedWorkers(2, 2))
    plant_stacks(run, end_ns=until(run))
    script = """
    const told = [];
    const flames = [...document.querySelectorAll("details.flame")];
    const making = flames.find((each) => each.innerText.includes("Workers that prepare"));
    const boxes = [...making.querySelectorAll("li")];
    const box = boxes.find((each) => each.firstElementChild.innerText.includes("data.py:29"));
    const shown = () => [box.style.width, boxes.filter((each) => each.hidden).length];
    told.push(making.querySelector("pre").textContent);
    box.firstElementChild.click();
    told.push(...shown(), making.querySelector("pre").textContent);
    box.firstElementChild.click();
    told.push(shown()[1], box.style.width !== "100%");
    const search = document.querySelector("input[type=search]");
    search.value = "ZipFile";
    search.dispatchEvent(new Event("input"));
    told.push(making.querySelector(".found").textContent, making.querySelectorAll(".hit").length);
    """
    before, width, hidden, about, *after = told_by(page_of(run)[0], script, tmp_path / "page.html")
    assert before.startswith("Point at a box")
    assert (width, hidden) == ("100%", 1)
    assert "return to_tensor(Image.open(file))" in about
    opening = icicles(run)["Workers that prepare batches"].boxes[0].below[0]
    assert after == [0, True, f"· in {opening.width:.1f} % of them", 2]


@pytest.mark.slow
@in_a_browser
def test_a_stretch_that_is_dragged_out_in_one_chart_is_shown_in_all_and_paper_is_white(
    starved: Path, tmp_path: Path
) -> None:
    clicks = """
        const told = [], charts = [...document.querySelectorAll(".u-over")];
        const mouse = (type, share) => { const { left, top, width } = charts[0].getBoundingClientRect();
          const at = { bubbles: true, button: 0, clientX: left + share * width, clientY: top + 9, movementX: 9 };
          (type === "mouseup" ? document : charts[0]).dispatchEvent(new MouseEvent(type, at)); };
        const pictures = () => [...document.querySelectorAll("#timeline canvas")].map((each) => each.toDataURL());
        const whole = pictures();
        mouse("mouseenter", 0.2); mouse("mousemove", 0.2); mouse("mousedown", 0.2);
        mouse("mousemove", 0.6); mouse("mouseup", 0.6);
        await new Promise((done) => setTimeout(done, 200));
        const part = pictures();
        told.push(part.every((each, i) => each !== whole[i]));
        document.querySelector("#timeline button").click();
        await new Promise((done) => setTimeout(done, 200));
        told.push(pictures().every((each, i) => each === whole[i]));
        const button = document.getElementById("theme"), folded = document.createElement("details");
        document.body.append(folded);
        button.click(); button.click();
        const tell = () => told.push([document.documentElement.dataset.theme, button.dataset.name, folded.open]);
        tell();
        for (const each of ["beforeprint", "afterprint"]) { dispatchEvent(new Event(each)); tell(); }
    """
    told = told_by(page_of(starved)[0], clicks, tmp_path / "page.html")
    assert told == [True, True, ["dark", "dark", False], ["light", "dark", True], ["dark", "dark", False]]
