"""What is never recorded: passwords and keys, in commands and in lines of source. The one rule for both."""

from __future__ import annotations

import re
from collections.abc import Sequence

LEFT_OUT = "<left out>"
"""Stands where a value stood."""
_NAME = (
    r"(?:(?<![A-Za-z0-9])(?i:token|api[-_]?key|(?:access|secret|private)[-_]key|password|secret)"
    r"|(?<=[a-z0-9])(?:Token|A[Pp][Ii][Kk]ey|Password|Secret))(?![\w-])"
)
"""The last word of an option's name."""
_OPTION = re.compile(rf"--?[\w.-]*{_NAME}(?:=(.+))?", re.DOTALL)
_BARE = re.compile(rf"((?<!\S)--?[\w.-]*{_NAME}[=\s]\s*|{_NAME}=)(?!{LEFT_OUT})([^-\s\"';&|)][^\s\"';&|)]*)")
_LITERAL = re.compile(
    rf"""((?:["'](?=[-A-Z])[\w-]*?{_NAME}["']\s*,[^"'#]{{0,80}}|{_NAME}["']\s*:\s*"""
    rf"""|{_NAME}["']?\]?\s*(?::[^="'(]{{0,80}})?==?\s*)[rRbBfFuU]{{0,2}}(?P<quote>"{{3}}|'{{3}}|["']))"""
    r"""((?:\\.|(?!(?P=quote)).)+)"""
)
_IN_ADDRESS = re.compile(r"(://[^\s/:@\"']*:)([^\s/@\"']+)(?=@)")
_NO_SECRET = re.compile(r"[-+]?[\d._]+(?:e[-+]?\d+)?|true|false|none|null|<.*>|\[.*\]|--.*|", re.IGNORECASE)
"""Numbers, yes and no, special tokens of texts, other options."""
_KEY = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-|hf_(?=[A-Za-z0-9]{10})|gh[opsur]_|github_pat_|glpat-|xox[a-z]-|AKIA|ASIA|AIza|eyJ|npm_|gsk_|nvapi-|r8_)"
    r"(?:(?=[\w-]{0,200}[0-9A-Z])[\w-]{10,}|[A-Za-z0-9]{16,})(?:\.[\w-]+)*"
)
_LEAST_SIGNS = 20
_RUN = re.compile(rf"(?P<before>[./~]?)(?P<run>[A-Za-z0-9+/_=-]{{{_LEAST_SIGNS},}})(?P<after>[./]?)")
_PIECE = re.compile(r"[A-Za-z0-9]+")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def without_secrets(command: Sequence[str]) -> list[str]:
    """Write a command's words with `LEFT_OUT` in place of what is, or looks like, a secret: values of options whose
    name ends in `token`, `api-key`, `password` or `secret`, but for numbers; and what `line_without_secrets` finds."""
    said, named = [], False
    for word in command:
        option = _OPTION.fullmatch(word)
        if named and not word.startswith("-"):
            word = word if _NO_SECRET.fullmatch(word) else LEFT_OUT
        elif option is not None and option[1]:
            word = word if _NO_SECRET.fullmatch(option[1]) else word[: option.start(1)] + LEFT_OUT
        else:
            word = line_without_secrets(_BARE.sub(_value, word))
        said.append(word)
        named = option is not None and option[1] is None
    return said


def line_without_secrets(line: str) -> str:
    """Write a line of source, or another text, with `LEFT_OUT` in place of literals that are given to such a name, of
    passwords in addresses, and of what looks like a key: it begins as keys do, or is 20 random signs or more."""
    for pattern in (_LITERAL, _IN_ADDRESS):
        line = pattern.sub(_value, line)
    return _RUN.sub(_random, _KEY.sub(LEFT_OUT, line))


def left_out_note(count: int) -> list[str]:
    """Say how many values were left out, where any were."""
    what = "1 value was" if count == 1 else f"{count} values were"
    return [f"{what} not recorded, as possible secrets: `{LEFT_OUT}` stands there instead."] if count else []


def _value(found: re.Match[str]) -> str:
    return found[0] if _NO_SECRET.fullmatch(found[found.re.groups]) else f"{found[1]}{LEFT_OUT}"


def _random(found: re.Match[str]) -> str:
    """Signs in a row, with those left out that nobody named anything by. A hash in a path stays."""
    run, in_path = found["run"], bool(found["before"] or found["after"])
    signs = "".join(pieces := _PIECE.findall(run))
    # Several pieces: base64, whose signs + / - _ are rare.
    joined = len(pieces) > 1 and 7 * len(pieces) <= len(signs) and _is_random(signs, 1)
    if joined and not in_path and re.search("[a-z]", signs) and re.search("[A-Z]", signs):
        return LEFT_OUT
    in_path |= "/" in run

    def kept(piece: re.Match[str]) -> str:
        of_hash = re.fullmatch("[0-9a-f]+", piece[0])
        # Weights & Biases' keys have 40 such signs.
        secret = not in_path if of_hash and len(piece[0]) == 40 else _is_random(piece[0]) and not (of_hash and in_path)
        return LEFT_OUT if secret else piece[0]

    return found["before"] + _PIECE.sub(kept, run) + found["after"]


def _is_random(signs: str, most: float = 2.5) -> bool:
    """Whether letters and numbers alternate as in no name: words of people's are longer than `most` on average."""
    numbers = len(re.findall(r"\d+", signs))
    words = len(_WORD.findall(signs))
    return len(signs) >= _LEAST_SIGNS and 0 < numbers < words and len(signs) <= words * (most + 1.5 * (numbers > 2))
