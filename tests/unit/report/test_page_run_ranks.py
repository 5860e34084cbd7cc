"""The page of a job: each rank has its time and the devices of its host, and the one that leads comes first."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.crafted import add
from support.jobs import START as JOB_START
from support.jobs import Rank, record
from support.page_content import parsed
from support.run_pages import CHROMIUM, data_in, page_of, told_by
from whyidle.record.schema import DEVICE
from whyidle.report.page.run_page import MOST_DEVICES, MOST_RANKS, SHARE, unpack
from whyidle.scenarios.planted import MS


def test_of_several_ranks_each_has_its_time_and_the_one_that_leads_comes_first(tmp_path: Path) -> None:
    record(tmp_path / "run", [Rank(), Rank(fetch_ns=9 * MS), Rank()])
    made, analysis, over = page_of(tmp_path / "run")
    data = data_in(made)
    assert [rank["rank"] for rank in data["ranks"]] == [0, 1, 2]
    assert data["lead"] == (analysis.job and analysis.job.lead)
    assert "Ranks" in parsed(made).words
    for rank, timeline in zip(data["ranks"], over, strict=True):
        binned = unpack(rank["bins"]["parts"]["input"]).astype(float) * rank["bins"]["width"] / SHARE
        assert binned.sum() == pytest.approx(timeline.facts.parts.input_ns / 1e6, rel=1e-3)


@pytest.mark.parametrize("apart", [True, False])
def test_ranks_of_several_hosts_stand_on_one_axis_of_time(apart: bool, tmp_path: Path) -> None:
    """Monotonic clocks start with their hosts."""
    ranks = [Rank(), Rank(fetch_ns=9 * MS, host="beta")]
    job = record(tmp_path / "job", ranks, apart=apart, shifts={"beta": 3_600_000 * MS})
    here, there = data_in(page_of(*job.folders)[0])["ranks"]
    assert there["begin"] == pytest.approx(here["begin"], abs=1)
    assert there["bins"]["begin"] == pytest.approx(here["bins"]["begin"], abs=1)
    assert unpack(there["lines"][0]["t"])[0] == pytest.approx(unpack(here["lines"][0]["t"])[0], abs=1)


def test_a_host_whose_name_is_markup_is_text_in_what_the_scripts_read(tmp_path: Path) -> None:
    hostile = "</script><script>alert(1)</script>"
    job = record(tmp_path / "job", [Rank(), Rank(fetch_ns=9 * MS, host=hostile)], apart=True)
    made, _, _ = page_of(*job.folders)
    assert [rank["host"] for rank in data_in(made)["ranks"]][1] == hostile
    assert "<script>alert" not in made


def test_of_very_many_ranks_the_one_that_leads_is_shown(tmp_path: Path) -> None:
    last = MOST_RANKS + 3
    record(tmp_path / "run", [Rank(fetch_ns=(21 if n == last else 1) * MS) for n in range(last + 1)], 40)
    made = page_of(tmp_path / "run")[0]
    data = data_in(made)
    assert data["lead"] == last
    assert [rank["rank"] for rank in data["ranks"]] == [*range(MOST_RANKS - 1), last]
    assert "4 further ranks are left out of the time line" in parsed(made).words


def sampled(folder: Path, devices: int) -> None:
    """What a sampler saw of so many devices of this host, while the job of `jobs.record` ran."""
    looks = [(when, device) for when in range(20) for device in range(devices)]
    add(
        folder,
        DEVICE,
        [
            {
                "t_ns": JOB_START + (when + 1) * 100 * MS,
                "device": device,
                "window_ns": 100 * MS,
                "utilisation_pct": 10.0 * (device + 1) % 100,
                "memory_used_bytes": 10**9 * (device + 1),
            }
            for when, device in looks
        ],
    )


@pytest.fixture
def on_two_hosts(tmp_path: Path) -> tuple[Path, Path]:
    """Rank 0 on a host with one device; rank 1, for which it waits, on one with three."""
    job = record(tmp_path / "job", [Rank(), Rank(fetch_ns=9 * MS, host="beta")], apart=True, device="cuda")
    alpha, beta = job.folders
    sampled(alpha, 1)
    sampled(beta, 3)
    return alpha, beta


def test_each_rank_has_the_devices_of_its_host(on_two_hosts: tuple[Path, Path]) -> None:
    ranks = data_in(page_of(*on_two_hosts)[0])["ranks"]
    assert [(rank["rank"], rank["host"], rank["devices"]) for rank in ranks] == [
        (0, "alpha", [0]),
        (1, "beta", [0, 1, 2]),
    ]
    for rank in ranks:
        of = {line["name"] for line in rank["lines"] if line["name"].startswith("memory:")}
        assert of == {f"memory:{number}" for number in rank["devices"]}
        assert rank["left_out_devices"] == 0


def test_of_many_devices_it_is_said_how_many_are_left_out(tmp_path: Path) -> None:
    record(tmp_path / "run", [Rank(), Rank(fetch_ns=9 * MS)], device="cuda")
    sampled(tmp_path / "run", MOST_DEVICES + 3)
    for rank in data_in(page_of(tmp_path / "run")[0])["ranks"]:
        assert rank["devices"] == list(range(MOST_DEVICES))
        assert rank["left_out_devices"] == 3
        assert not any(line["name"] == f"utilisation:{MOST_DEVICES}" for line in rank["lines"])


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_the_devices_to_choose_from_are_those_of_the_rank_that_is_shown(
    on_two_hosts: tuple[Path, Path], tmp_path: Path
) -> None:
    made, _, _ = page_of(*on_two_hosts)
    clicks = """
        const [ranks, devices] = document.querySelectorAll("#timeline select"), told = [];
        const choose = (select, value) => { select.value = value; select.dispatchEvent(new Event("change")); };
        const tell = () => told.push([devices.hidden, devices.value, [...devices.options].map((o) => o.value)]);
        tell(); choose(devices, "1"); tell(); choose(ranks, "0"); tell(); choose(ranks, "1"); tell();
    """
    told = told_by(made, clicks, tmp_path / "page.html")
    of_beta = ["0", "1", "2"]
    assert told == [
        [False, "0", of_beta],
        [False, "1", of_beta],
        [True, "0", ["0"]],
        [False, "0", of_beta],
    ]
