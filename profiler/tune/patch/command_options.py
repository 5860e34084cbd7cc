"""Options of a program's command line: what declares them, and a command that sets them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from ...analyse.where.source import Function, name_of


@dataclass(frozen=True)
class Option:
    """An option of the command line."""

    file: str
    """That declares it."""
    flags: tuple[str, ...]
    """`-j`, `--workers`."""
    action: str = "store"
    """argparse's, `store_true` and its kin; an option with a value is `store`."""


def declared(call: ast.Call, file: str) -> tuple[str, Option] | None:
    """(name of the value, option) of a call of argparse's `add_argument`."""
    if name_of(call.func) != "add_argument":
        return None
    flags = _flags(call)
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    named = keywords.get("dest")
    action = keywords.get("action")
    if not flags:
        return None
    dest = named.value if isinstance(named, ast.Constant) else _destination(flags)
    said = "store" if action is None else action.value if isinstance(action, ast.Constant) else name_of(action)
    return str(dest), Option(file, flags, str(said))


def _flags(call: ast.Call) -> tuple[str, ...]:
    constants = [each.value for each in call.args if isinstance(each, ast.Constant)]
    return tuple(value for value in constants if isinstance(value, str) and value.startswith("-"))


def _destination(flags: Sequence[str]) -> str:
    long = next((flag for flag in flags if flag.startswith("--")), flags[0])
    return long.lstrip("-").replace("-", "_")


def command_option(function: Function, parameter: str) -> tuple[str, ...] | None:
    """Flags of an option that a decorator gives to a parameter, as click's `option` does."""
    for each in function.decorator_list:
        if isinstance(each, ast.Call) and name_of(each.func) == "option":
            flags = _flags(each)
            named = [value.value for value in each.args if isinstance(value, ast.Constant) and value.value == parameter]
            if flags and (named or _destination(flags) == parameter):
                return flags
    return None


def with_option(command: Sequence[str], option: Option, value: str | bool) -> list[str] | None:
    """The command that sets an option so; `None` where the option cannot say it.

    Args:
        value: `True` and `False` of a flag without a value.
    """
    words = list(command)
    if isinstance(value, bool):
        return _with_flag(words, option, value)
    flag = _long(option)
    for at, word in enumerate(words):
        name, equals, _ = word.partition("=")
        if name in option.flags and equals:
            return [*words[:at], f"{name}={value}", *words[at + 1 :]]
        if name in option.flags and at + 1 < len(words):
            return [*words[:at], name, value, *words[at + 2 :]]
        short = next((each for each in option.flags if not each.startswith("--") and word.startswith(each)), None)
        if short is not None and word[len(short) :].isdigit():
            return [*words[:at], f"{short}{value}", *words[at + 1 :]]
    return [*words, flag, value]


def _with_flag(words: list[str], option: Option, value: bool) -> list[str] | None:
    if option.action == "BooleanOptionalAction":
        names = [flag for flag in option.flags if flag.startswith("--")]
        negated = [f"--no-{flag[2:]}" for flag in names]
        left = [word for word in words if word not in (*names, *negated)]
        return [*left, names[0] if value else negated[0]] if names else None
    if option.action not in ("store_true", "store_false"):
        return None
    left = [word for word in words if word not in option.flags]
    return [*left, _long(option)] if value == (option.action == "store_true") else left


def _long(option: Option) -> str:
    return next((flag for flag in option.flags if flag.startswith("--")), option.flags[0])
