"""The frame of all pages: one file with everything in it, which asks nothing of any network.

A page is a template of `templates/` that extends `base.html.j2`. Texts are escaped, control characters in them are
replaced, and what was not measured (`None`) reads n/a, wherever a template puts a value.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from ...record.files import plain
from ..document import code_rows, evidence_rows
from ..words.figures import NO_CAUSE, NOT_MEASURED, evidence_value, part_name, share, shown_parts

LEAST_LABELLED = 0.09
"""Shares of a bar below this have no room for their figure."""


def render(
    template: str,
    *,
    title: str,
    data: Any = None,
    scripts: Sequence[str] = (),
    styles: Sequence[str] = (),
    **context: Any,
) -> str:
    """A whole page.

    Args:
        template: file of `templates/`, which extends `base.html.j2`.
        data: what the scripts read, as JSON in `#data`; NaN is no JSON: what was not measured is `None`.
        scripts: files of `static/`, in this order, in one closure with that of the frame before them.
        styles: further files of `static/`.

    Raises:
        ValueError: `data` holds NaN or infinity.
    """
    # Vendored code stands in a script of its own, as it came.
    libraries = [name for name in scripts if name.endswith(".iife.min.js")]
    own = "\n".join(_static(name) for name in ("theme.js", *scripts) if name not in libraries)
    closed = [*map(_static, libraries), f'"use strict";(()=>{{\n{own}\n}})();']
    return (
        _environment()
        .get_template(template)
        .render(
            title=title,
            data=None if data is None else Markup(as_json(data)),
            scripts=[Markup(script) for script in closed],
            styles=Markup("\n".join(_static(name) for name in ("page.css", *styles))),
            policy=_policy(closed),
            **context,
        )
    )


def as_json(data: Any) -> str:
    """JSON that may stand in a script element: it has no `<`, `>`, `&`, and nothing beyond ASCII."""
    written = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def shown_shares(shares: dict[str, float]) -> list[tuple[str, str, float]]:
    """(part, its name, share 0..1) of the parts that are worth showing, in their order."""
    return [(part, part_name(part), shares[part]) for part in shown_parts(shares)]


@cache
def _static(name: str) -> str:
    return (files(__package__) / "static" / name).read_text(encoding="utf-8")


def _policy(scripts: Iterable[str]) -> str:
    """Nothing is loaded from anywhere, and no other script than ours runs, whatever a recorded run may hold."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{h}'" for h in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(lambda name: (files(__package__) / "templates" / name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"LEAST_LABELLED": LEAST_LABELLED, "NO_CAUSE": NO_CAUSE}
    environment.globals |= {each.__name__: each for each in (shown_shares, part_name, evidence_rows, code_rows)}
    environment.filters |= {"figure": evidence_value, "percent": share, "ticks": _with_code}
    return environment


def _with_code(text: str) -> Markup:
    """Escaped, with what stands between backquotes as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(plain(text)))))


def _shown(value: Any) -> Any:
    if value is None:
        return NOT_MEASURED
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value
