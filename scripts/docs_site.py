"""What the site does with links that leave docs/ (a hook of mkdocs, named in mkdocs.yml).

Pages link as the repository needs it: `../README.md`, `../../benchmarks/truth.py`. On the site README.md is the home
page, and other files that are linked are copied to `source/`, as text that a browser shows. A link to a folder stays as
it is, and `mkdocs build --strict` refuses it: name a file. The pages of causes are completed from their rules, and
stand in the menu, by `cause_pages.py`.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from cause_pages import as_on_the_site, navigation
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
HOME = "index.md"
DOCS = "docs"
LINK = re.compile(r"""(\]\(|\b(?:src|srcset|href)=")(?![a-z]+:|#)([^)\s#"]+)""")
"""The target of a link or picture, without its anchor; web addresses and anchors of the same page are not meant."""


def on_config(config: Any) -> Any:
    """Put the causes into the menu, where it says `Causes`."""
    guides = next(part["Guides"] for part in config.nav if "Guides" in part)
    next(part for part in guides if isinstance(part, dict) and "Causes" in part)["Causes"] = navigation()
    return config


def on_files(files: Files, config: Any) -> Files:
    """Put the README and all that pages link outside docs/ among the site's files."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    text, linked = rewritten(readme, "README.md", HOME)
    files.append(File.generated(config, HOME, content=text))
    for page in list(files.documentation_pages()):
        if page.src_uri == HOME:
            continue
        text = as_on_the_site(page.src_uri, page.content_string)
        page.content_string, more = rewritten(text, f"{DOCS}/{page.src_uri}", page.src_uri)
        linked |= more
    for path in sorted(linked):
        files.append(File.generated(config, _copy_of(path), content=(ROOT / path).read_bytes()))
    return files


def rewritten(text: str, path: str, uri: str) -> tuple[str, set[str]]:
    """A page's text with links as the site needs them, and the files outside docs/ that it links.

    `path` is the page's in the repository, `uri` its place on the site.

    Raises:
        PluginError: a link leads to nothing, which ends the build.
    """
    linked: set[str] = set()

    def target(match: re.Match[str]) -> str:
        there = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[2]))
        if not (ROOT / there).exists():
            # mkdocs looks at Markdown's links alone, and not at those of HTML.
            raise PluginError(f"{path} links {match[2]}: there is no {there}. Mend the link, or make the file.")
        if there == "README.md":
            place = HOME
        elif there.startswith(f"{DOCS}/"):
            place = there.removeprefix(f"{DOCS}/")
        elif not there.startswith("..") and (ROOT / there).is_file():
            linked.add(there)
            place = _copy_of(there)
        else:
            return match[0]
        return match[1] + posixpath.relpath(place, posixpath.dirname(uri) or ".")

    return LINK.sub(target, text), linked


def _copy_of(path: str) -> str:
    """Where a source file lies on the site; the ending makes browsers show it."""
    return f"source/{path}.txt"
