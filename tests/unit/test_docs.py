"""The pages in docs/: up to date with parser and rules, whole, and the same on the site as in the repository."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
from markdown_it import MarkdownIt
from mkdocs.exceptions import PluginError

from support.page_content import Element, parsed
from whyidle.analyse.causes.diagnosis import CODES
from whyidle.analyse.run.metrics import METRICS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CAUSES = DOCS / "causes"
PAGES = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
LARGEST_PICTURE, ALL_PICTURES = 200_000, 3_000_000
"""Bytes; a clone brings all of them."""


def script(name: str) -> ModuleType:
    """A file of scripts/, with its neighbours in reach as when it is run."""
    if str(ROOT / "scripts") not in sys.path:
        sys.path.append(str(ROOT / "scripts"))
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


COMMANDS, CAUSE_PAGES = script("docs"), script("cause_pages")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: each page is in the menu, and each link and anchor leads somewhere."""
    pytest.importorskip("material")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.parametrize("verb", COMMANDS.verbs())
def test_the_page_of_a_command_has_its_options_as_the_parser_takes_them(verb: str) -> None:
    page = DOCS / "commands" / f"{verb}.md"
    text = page.read_text(encoding="utf-8")
    assert COMMANDS.placed(text, COMMANDS.options(verb, COMMANDS.verbs()[verb])) == text, "run `python scripts/docs.py`"


@pytest.mark.parametrize("page", COMMANDS.TABLES, ids=lambda page: page.name)
def test_pages_have_metrics_and_causes_as_they_are_registered(page: Path) -> None:
    begin, made, end = COMMANDS.TABLES[page]
    text = page.read_text(encoding="utf-8")
    assert COMMANDS.tabled(text, begin, made(), end) == text, "run `python scripts/docs.py`"


def test_every_figure_for_loggers_is_told() -> None:
    page = (DOCS / "log-to.md").read_text(encoding="utf-8")
    assert [metric.logged for metric in METRICS.values() if metric.logged and f"`{metric.logged}`" not in page] == []


def test_options_that_changed_are_put_between_the_markers() -> None:
    page = f"# A\n\nbefore\n\n{COMMANDS.BEGIN}\n\nold\n\n{COMMANDS.END}\n\nafter\n"
    assert COMMANDS.placed(page, "new") == page.replace("old", "new")
    assert COMMANDS.placed("# A\n", "new").startswith("# A\n\n## Options\n\n")


def test_every_cause_has_a_page_and_every_page_a_cause() -> None:
    pages = {page.name for page in CAUSES.glob("*.md")} - {"index.md"}
    assert pages == {CAUSE_PAGES.page_of(code) for code in {*CODES, "none"}}


@pytest.mark.parametrize("code", [*CODES, "none"])
def test_a_page_of_a_cause_holds_little_and_is_completed_from_its_rule_and_a_recording(code: str) -> None:
    text = (CAUSES / CAUSE_PAGES.page_of(code)).read_text(encoding="utf-8")
    assert sum(bool(line.strip()) for line in text.splitlines()) <= CAUSE_PAGES.MOST_LINES
    page = CAUSE_PAGES.cause_page(text)
    assert page.startswith(f"# `{code}`\n\n")
    assert f"\nVerdict  {code}" in page
    assert all(part in page for part in CAUSE_PAGES.meaning(code))
    assert bool(CAUSE_PAGES.meaning(code)) is (code != "none")
    if code not in ("none", "rank.straggler", "rank.exchange"):
        assert page.count("\n| ") > 3


TAGS = {*("h1", "h2", "h3", "h4", "ul", "ol", "li", "table", "tr", "td", "th"), *("pre", "p", "img", "code", "a")}
TAGS |= {"strong", "em"}


def counted(element: Element) -> Counter[str]:
    """How many elements of each kind a page has; what colours code is left out."""
    here = element.tag in TAGS and "headerlink" not in element.attributes.get("class", "")
    within = [each for each in element.content if isinstance(each, Element) and element.tag != "pre"]
    return sum(map(counted, within), Counter([element.tag] if here else []))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_made_of_the_same_on_the_site_as_in_the_repository(page: str, site: Path) -> None:
    built = site / re.sub(r"(README)?\.md$", lambda match: "index.html" if match[1] else ".html", page)
    text = built.read_text(encoding="utf-8")
    article = re.sub(r"(?s)<aside.*?</aside>", "", text[text.index("<article") : text.index("</article>") + 10])
    completed = CAUSE_PAGES.as_on_the_site(page, (DOCS / page).read_text(encoding="utf-8"))
    in_repository = MarkdownIt("gfm-like", {"linkify": False}).render(completed)
    assert counted(parsed(article)) == counted(parsed(in_repository))


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    loads = re.compile(
        r"<(?:script|img|iframe|source)[^>]+src=\"?(?:https?:)?//|<link[^>]+stylesheet[^>]+href=\"?https?:"
    )
    for page in site.rglob("*.html"):
        assert not loads.findall(page.read_text(encoding="utf-8")), page.name


def test_links_to_files_outside_docs_lead_to_copies_and_to_the_readme_home(site: Path) -> None:
    assert (site / "index.html").exists()
    copies = list((site / "source").rglob("*.txt"))
    assert copies
    for copy in copies:
        original = ROOT / copy.relative_to(site / "source").as_posix().removesuffix(".txt")
        assert copy.read_bytes() == original.read_bytes()


def test_links_are_mapped_by_where_they_lead() -> None:
    hook = script("docs_site")
    text = "[a](../../README.md#try-it) [b](../../scripts/docs.py) [c](../hooks.md) [d](https://x.org/y)"
    changed, linked = hook.rewritten(text, "docs/commands/run.md", "commands/run.md")
    assert changed == text.replace("../../README.md", "../index.md").replace(
        "../../scripts/docs.py", "../source/scripts/docs.py.txt"
    )
    assert linked == {"scripts/docs.py"}
    picture = '<img src="docs/img/live.png">'
    assert hook.rewritten(picture, "README.md", "index.md") == ('<img src="img/live.png">', set())


@pytest.mark.parametrize("dead", ["[a](../causes/no-such.md)", '<a href="../causes/no-such.md">a</a>', "[a](../../no)"])
def test_a_link_that_leads_to_nothing_ends_the_build(dead: str) -> None:
    with pytest.raises(PluginError, match=r"docs/commands/run\.md links \S+no\S*: there is no"):
        script("docs_site").rewritten(f"text {dead}", "docs/commands/run.md", "commands/run.md")


def test_pictures_are_small() -> None:
    sizes = {picture.name: picture.stat().st_size for picture in (DOCS / "img").iterdir()}
    assert {name: size for name, size in sizes.items() if size > LARGEST_PICTURE} == {}
    assert sum(sizes.values()) <= ALL_PICTURES
