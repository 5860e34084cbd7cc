"""Accelerator profiles from TOML: those that come with whyidle, and a user's own.

Reading is strict, since a typo in a profile would silently become a wrong device: unknown keys, missing
origins, and derived throughputs that their stated inputs do not give are errors that name file and key.
"""

from __future__ import annotations

import math
import tomllib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from ...errors import WhyidleError
from . import Accelerator, Figure, Kernels, Link, NetOnAccelerator, NetProfile, Nets, Origin, OriginKind

NETS_FILE = "nets.toml"
DERIVED_TOLERANCE = 0.005
"""How far a stated derived throughput may be from its inputs: room for rounding only."""

Rates = tuple[tuple[float, ...], tuple[float, ...]]
"""Batch sizes and samples/s at each."""

ORIGIN_KEYS: dict[str, OriginKind] = {"source": "published", "derived": "derived", "recorded": "recorded"}


def names() -> list[str]:
    """The accelerators that come with whyidle."""
    files = resources.files(__package__).iterdir()
    return sorted(
        file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml") and file.name != NETS_FILE
    )


def load(name_or_path: str) -> Accelerator:
    """The profile of an accelerator, by its name or by the path of a user's own TOML file.

    Raises:
        WhyidleError: no such profile, or a file that says something else than a profile.
    """
    if name_or_path in names():
        return _accelerator(_Table(_builtin(f"{name_or_path}.toml"), f"{name_or_path}.toml"))
    path = Path(name_or_path)
    if path.suffix != ".toml" and not path.is_file():
        raise WhyidleError(
            f"unknown accelerator {name_or_path!r}. Choose one of {', '.join(names())}, "
            "or give the path of a profile (.toml)."
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise WhyidleError(f"cannot read the accelerator profile {name_or_path}: {why}.") from error
    return _accelerator(_Table(_parse(text, name_or_path), name_or_path))


@cache
def nets() -> Nets:
    """What belongs to the nets, whatever they run on."""
    table = _Table(_builtin(NETS_FILE), NETS_FILE)
    common = table.table("common")
    result = Nets(
        context_bytes=common.figure("context_bytes"),
        workspace_bytes=common.figure("workspace_bytes"),
        bytes_per_parameter=common.figure("bytes_per_parameter"),
        nets={name: _net(name, part) for name, part in table.tables("nets").items()},
    )
    common.close()
    table.close()
    return result


class _Table:
    """One table of a profile: typed access that names file and key where it fails."""

    def __init__(self, raw: dict[str, Any], file: str, key: str = "") -> None:
        self._raw = raw
        self._file = file
        self._key = key
        self._read: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._raw

    def path(self, key: str) -> str:
        return f"{self._key}.{key}" if self._key else key

    def wrong(self, key: str, fact: str) -> WhyidleError:
        return WhyidleError(f"accelerator profile {self._file}: {self.path(key)}: {fact} (see docs/accelerators.md).")

    def raw(self, key: str) -> Any:
        if key not in self._raw:
            raise self.wrong(key, "missing")
        self._read.add(key)
        return self._raw[key]

    def text(self, key: str) -> str:
        value = self.raw(key)
        if not isinstance(value, str) or not value.strip() or "\n" in value:
            raise self.wrong(key, f"expected one line of text, found {value!r}")
        return value

    def number(self, key: str) -> float:
        return self._positive(key, self.raw(key))

    def whole(self, key: str, least: int = 1) -> int:
        value = self.raw(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.wrong(key, f"expected a whole number above {least - 1}, found {value!r}")
        return value

    def numbers(self, key: str) -> tuple[float, ...]:
        return tuple(self._positive(key, value) for value in self._list(key))

    def table(self, key: str) -> _Table:
        value = self.raw(key)
        if not isinstance(value, dict):
            raise self.wrong(key, f"expected a table, found {value!r}")
        return _Table(value, self._file, self.path(key))

    def tables(self, key: str) -> dict[str, _Table]:
        part = self.table(key)
        return {name: part.table(name) for name in part._raw}

    def list_of_tables(self, key: str) -> list[_Table]:
        items = self._list(key)
        for item in items:
            if not isinstance(item, dict):
                raise self.wrong(key, f"expected tables, found {item!r}")
        return [_Table(item, self._file, f"{self.path(key)}[{i}]") for i, item in enumerate(items)]

    def origin(self) -> Origin:
        given = [key for key in ORIGIN_KEYS if key in self]
        if len(given) != 1:
            choices = ", ".join(ORIGIN_KEYS)
            raise self.wrong(given[1] if given else "source", f"name its origin with exactly one of {choices}")
        doubt = self.text("doubt") if "doubt" in self else None
        return Origin(ORIGIN_KEYS[given[0]], self.text(given[0]), doubt)

    def figure(self, key: str) -> Figure:
        part = self.table(key)
        figure = Figure(part.number("value"), part.origin())
        part.close()
        return figure

    def close(self) -> None:
        """Every key has been used."""
        for key in self._raw:
            if key not in self._read:
                raise self.wrong(key, "unknown key")

    def _list(self, key: str) -> list[Any]:
        value = self.raw(key)
        if not isinstance(value, list) or not value:
            raise self.wrong(key, f"expected a list that is not empty, found {value!r}")
        return value

    def _positive(self, key: str, value: Any) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or value <= 0:
            raise self.wrong(key, f"expected a number above 0, found {value!r}")
        return float(value)


def _parse(text: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise WhyidleError(f"accelerator profile {file} is not TOML: {error}.") from error


@cache
def _builtin(file: str) -> dict[str, Any]:
    return _parse((resources.files(__package__) / file).read_text(encoding="utf-8"), file)


def _net(name: str, table: _Table) -> NetProfile:
    counts = table.table("kernels")
    kernels = Kernels(
        counts.whole("forward"), counts.whole("backward", 0), counts.whole("optimizer", 0), counts.origin()
    )
    net = NetProfile(
        name=name,
        title=table.text("title"),
        input_size=table.whole("input_size"),
        forward_macs=table.figure("forward_macs"),
        parameters=table.figure("parameters"),
        activation_bytes=table.figure("activation_bytes"),
        kernels=kernels,
    )
    counts.close()
    table.close()
    return net


def _accelerator(table: _Table) -> Accelerator:
    name = table.text("name")
    memory, link, peak = table.table("memory"), table.table("link"), table.table("peak")
    result = Accelerator(
        name=name,
        title=table.text("title"),
        memory_bytes=memory.figure("bytes"),
        memory_gb_per_s=memory.figure("gb_per_s"),
        peak_fp32_tflops=peak.figure("fp32_tflops"),
        peak_tf32_tflops=peak.figure("tf32_tflops") if "tf32_tflops" in peak else None,
        link=Link(
            generation=link.figure("generation"),
            width=link.figure("width"),
            pinned_gb_per_s=link.figure("pinned_gb_per_s"),
            pageable_gb_per_s=link.figure("pageable_gb_per_s"),
            latency_us=link.figure("latency_us"),
        ),
        kernel_us=table.figure("kernel_us"),
        forward_share=table.figure("forward_share"),
        nets={net: _throughput(net, part, name, table) for net, part in table.tables("nets").items()},
        common=nets(),
    )
    if result.forward_share.value >= 1:
        raise table.wrong("forward_share.value", "expected a share below 1")
    for part in (memory, link, peak, table):
        part.close()
    return result


def _throughput(net: str, table: _Table, accelerator: str, profile: _Table) -> NetOnAccelerator:
    known = nets().nets
    if net not in known:
        raise profile.wrong(f"nets.{net}", f"unknown net; the nets are {', '.join(known)}")
    sizes, rates = _rates(table)
    result = NetOnAccelerator(known[net], sizes, rates, table.text("precision"), table.origin())
    if "from" in table:
        _check_derivation(table, result, accelerator, profile)
    table.close()
    return result


def _rates(table: _Table) -> Rates:
    sizes, rates = table.numbers("batch_sizes"), table.numbers("samples_per_s")
    if len(sizes) != len(rates):
        raise table.wrong("samples_per_s", f"{len(rates)} values for {len(sizes)} batch sizes")
    steps = [size / rate for size, rate in zip(sizes, rates, strict=True)]
    if list(sizes) != sorted(set(sizes)) or steps != sorted(steps):
        raise table.wrong("samples_per_s", "batch sizes must ascend, and a larger batch cannot take less time")
    return sizes, rates


def _check_derivation(table: _Table, stated: NetOnAccelerator, accelerator: str, profile: _Table) -> None:
    """What is stated is what `from` and `factors` give, at some or all batch sizes of `from`.

    A quotient of throughputs multiplies the rate. Another net of the same kind computes at the same pace, so
    that a step of the same work takes the same time: the ratio of MACs multiplies both rate and batch size.
    """
    rate_factor = work_factor = 1.0
    for part in table.list_of_tables("factors"):
        factor, is_work = _factor(part)
        rate_factor *= factor
        work_factor *= factor if is_work else 1.0
    sizes, rates = _base(table, accelerator, profile)
    derived = [(s * work_factor, r * rate_factor) for s, r in zip(sizes, rates, strict=True)]
    for size, rate in zip(stated.batch_sizes, stated.samples_per_s, strict=True):
        at = [r for s, r in derived if math.isclose(s, size, rel_tol=DERIVED_TOLERANCE)]
        if not at:
            given = ", ".join(f"{s:.3f}" for s, _ in derived)
            raise table.wrong("batch_sizes", f"states {size:g}, but its derivation gives {given}")
        if not math.isclose(at[0], rate, rel_tol=DERIVED_TOLERANCE):
            raise table.wrong("samples_per_s", f"states {rate:g}, but its derivation gives {at[0]:.2f}")


def _base(table: _Table, accelerator: str, profile: _Table) -> Rates:
    """What a throughput is derived from: `ACCELERATOR/NET` of a profile, or a figure given in place."""
    if isinstance(table.raw("from"), dict):
        given = table.table("from")
        result = _rates(given)
        given.origin()
        given.close()
        return result
    other, _, net = table.text("from").partition("/")
    if other == accelerator:
        where = profile.tables("nets")
    elif other in names():
        where = _Table(_builtin(f"{other}.toml"), f"{other}.toml").tables("nets")
    else:
        raise table.wrong("from", f"unknown accelerator {other!r}")
    if net not in where:
        raise table.wrong("from", f"{other} has no net {net!r}")
    return _rates(where[net])


def _factor(part: _Table) -> tuple[float, bool]:
    """A factor, and whether it is one of work.

    `forward_macs = [A, B]` is the MACs of net A over those of net B; else it is a quotient of two figures.
    """
    is_work = "forward_macs" in part
    if is_work:
        pair, known = part.raw("forward_macs"), nets().nets
        names_nets = isinstance(pair, list) and all(isinstance(net, str) and net in known for net in pair)
        if not names_nets or len(pair) != 2:
            raise part.wrong("forward_macs", f"expected two of {', '.join(known)}, found {pair!r}")
        factor = known[pair[0]].forward_macs.value / known[pair[1]].forward_macs.value
    else:
        factor = part.number("numerator") / part.number("denominator")
        part.origin()
    part.close()
    return factor, is_work
