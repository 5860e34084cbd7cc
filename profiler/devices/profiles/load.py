"""Accelerator profiles from TOML: those that come with whyidle, and a user's own.

Reading is strict, since a typo in a profile would silently become a wrong device: unknown keys, missing
origins, and derived throughputs that their stated inputs do not give are errors that name file and key.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...errors import WhyidleError
from . import Accelerator, NetOnAccelerator, Nets, Positive, ProfileTable, Sourced, Throughput

NETS_FILE = "nets.toml"
DERIVED_TOLERANCE = 0.005
"""How far a stated derived throughput may be from its inputs: room for rounding only."""
T = TypeVar("T")


class Quotient(Sourced, frozen=True, kw_only=True):
    """A factor that is a quotient of two throughputs."""

    numerator: Positive
    denominator: Positive


class OfWork(ProfileTable, frozen=True, kw_only=True):
    """A factor that is the MACs of one net over those of another: it multiplies rate and batch size."""

    forward_macs: tuple[str, str]


def names() -> list[str]:
    """The accelerators that come with whyidle."""
    files = (file.name for file in resources.files(__package__).iterdir())
    return sorted(file.removesuffix(".toml") for file in files if file.endswith(".toml") and file != NETS_FILE)


def load(name_or_path: str) -> Accelerator:
    """The profile of an accelerator, by its name or by the path of a user's own TOML file.

    Raises:
        WhyidleError: no such profile, or a file that says something else than a profile.
    """
    if name_or_path in names():
        return _builtin(name_or_path)
    path = Path(name_or_path)
    if path.suffix != ".toml" and not path.is_file():
        raise WhyidleError(
            f"unknown accelerator {name_or_path!r}. Choose one of {', '.join(names())}, "
            "or give the path of a profile (.toml)."
        )
    try:
        return _accelerator(tomllib.loads(path.read_text(encoding="utf-8")), name_or_path)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise WhyidleError(f"cannot read the accelerator profile {name_or_path}: {why}.") from error
    except tomllib.TOMLDecodeError as error:
        raise WhyidleError(f"accelerator profile {name_or_path} is not TOML: {error}.") from error


@cache
def nets() -> Nets:
    """What belongs to the nets, whatever they run on."""
    table = _shipped(NETS_FILE)
    parts = {name: part | {"name": name} for name, part in table["nets"].items()}
    return _as(Nets, table | {"nets": parts}, NETS_FILE)


@cache
def _builtin(name: str) -> Accelerator:
    return _accelerator(_shipped(f"{name}.toml"), f"{name}.toml")


def _shipped(file: str) -> dict[str, Any]:
    return tomllib.loads((resources.files(__package__) / file).read_text(encoding="utf-8"))


def _accelerator(table: dict[str, Any], file: str) -> Accelerator:
    known = nets()
    parts = _as(dict[str, dict[str, Any]], table.get("nets", {}), file, "nets")
    for net in parts:
        if net not in known.nets:
            raise _wrong(file, f"nets.{net}", f"unknown net; the nets are {', '.join(known.nets)}")
    on = {n: _as(NetOnAccelerator, {"net": known.nets[n]} | part, file, f"nets.{n}") for n, part in parts.items()}
    result = _as(Accelerator, {"common": known.common} | table | {"nets": on}, file)
    for net, stated in on.items():
        if stated.based_on is not None:
            _check_derivation(stated, result, file, f"nets.{net}")
    return result


def _check_derivation(stated: NetOnAccelerator, accelerator: Accelerator, file: str, key: str) -> None:
    """Check that what is stated is what `from` and `factors` give, at some or all batch sizes of `from`.

    A quotient of throughputs multiplies the rate. Another net of the same kind computes at the same pace, so
    that a step of the same work takes the same time: the ratio of MACs multiplies both rate and batch size.
    """
    base = stated.based_on
    if isinstance(base, str):
        other, _, net = base.partition("/")
        if other != accelerator.name and other not in names():
            raise _wrong(file, f"{key}.from", f"unknown accelerator {other!r}")
        bases: Mapping[str, Throughput] = (accelerator if other == accelerator.name else _builtin(other)).nets
        if net not in bases:
            raise _wrong(file, f"{key}.from", f"{other} has no net {net!r}")
        base = bases[net]
    assert base is not None
    rate_factor = work_factor = 1.0
    for place, part in enumerate(stated.factors):
        at = f"{key}.factors[{place}]"
        if "forward_macs" in part:
            macs = {name: net.forward_macs.value for name, net in nets().nets.items()}
            pair = _as(OfWork, part, file, at).forward_macs
            if not macs.keys() >= set(pair):
                raise _wrong(file, f"{at}.forward_macs", f"expected two of {', '.join(macs)}, found {pair!r}")
            factor = macs[pair[0]] / macs[pair[1]]
            work_factor *= factor
        else:
            quotient = _as(Quotient, part, file, at)
            factor = quotient.numerator / quotient.denominator
        rate_factor *= factor
    pairs = zip(base.batch_sizes, base.samples_per_s, strict=True)
    derived = [(size * work_factor, rate * rate_factor) for size, rate in pairs]
    for size, rate in zip(stated.batch_sizes, stated.samples_per_s, strict=True):
        given = [r for s, r in derived if math.isclose(s, size, rel_tol=DERIVED_TOLERANCE)]
        if not given:
            sizes = ", ".join(f"{s:.3f}" for s, _ in derived)
            raise _wrong(file, f"{key}.batch_sizes", f"states {size:g}, but its derivation gives {sizes}")
        if not math.isclose(given[0], rate, rel_tol=DERIVED_TOLERANCE):
            raise _wrong(file, f"{key}.samples_per_s", f"states {rate:g}, but its derivation gives {given[0]:.2f}")


def _as(kind: type[T], table: Any, file: str, key: str = "") -> T:
    """Read one table of a profile, strictly.

    Raises:
        WhyidleError: it says something else; with file and key.
    """
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        fact, _, at = str(error).partition(" - at `$")
        raise _wrong(file, f"{key}{at.rstrip('`')}".lstrip("."), fact) from error


def _wrong(file: str, key: str, fact: str) -> WhyidleError:
    return WhyidleError(f"accelerator profile {file}: {f'{key}: ' if key else ''}{fact} (see docs/accelerators.md).")
