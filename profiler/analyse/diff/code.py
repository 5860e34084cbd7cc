"""What is known of the code on both sides, and what is not: a revision tells neither changes nor what they do."""

from __future__ import annotations

from collections.abc import Sequence

from ...record.code import CODE
from .settings import VARIES, Setting

_OF_PART = {
    "compute": "the code of the model",
    "input": "the code of the dataset",
    "host": "the code of the training loop",
}


def changed_code(settings: Sequence[Setting]) -> tuple[Setting, ...]:
    """The code, where it surely is another. It can move anything, so it is the last that is named."""
    code = _code(settings)
    varies = code is not None and VARIES in (code.a, code.b)
    return (code,) if code is not None and code.changed and not (varies or code.unseen) else ()


def unseen_changes(settings: Sequence[Setting]) -> str | None:
    """The revision that both sides ran, where they may have run it with changes of which nothing is known."""
    code = _code(settings)
    return _revision(code.a) if code is not None and code.unseen else None


def code_to_look_at(part: str, settings: Sequence[Setting]) -> tuple[str, ...]:
    """What of the code, unless it is known to be the same on both sides; and what is known of it."""
    code = _code(settings)
    what = _OF_PART.get(part, "the code")
    if code is None:
        return (f"{what}, which is not recorded",) if part in _OF_PART else ()
    if not code.known:
        return (f"{what}, which one side did not record",)
    if (revision := unseen_changes(settings)) is not None:
        return (f"{what}: both sides ran revision {revision}, and what was changed in it is not recorded",)
    if not changed_code(settings):
        return ()
    a, b = _revision(code.a), _revision(code.b)
    if a == b:
        return (f"{what}: what was changed in {a} is not recorded",)
    more = "" if (a, b) == (code.a, code.b) else ", and changes that are not recorded"
    return (f"{what}: `git diff {a} {b}`{more}",)


def _code(settings: Sequence[Setting]) -> Setting | None:
    """What both sides recorded of their code; `None` where neither did."""
    return next((each for each in settings if each.name == CODE), None)


def _revision(value: object) -> str:
    """The revision of a code, without what is said of changes in it."""
    return str(value).partition(" ")[0]
