"""What a page holds, as a browser reads it: its words, tables and tags."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

NO_END = frozenset(("meta", "link", "input", "br", "hr", "img"))


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    content: list[str | Element] = field(default_factory=list)

    @property
    def words(self) -> str:
        """All its text in a line; none of scripts and styles."""
        if self.tag in ("script", "style"):
            return ""
        parts = (each if isinstance(each, str) else each.words for each in self.content)
        return " ".join(" ".join(parts).split())

    def all(self, tag: str, class_name: str = "") -> list[Element]:
        """Those within it, in their order."""
        found = []
        for each in self.content:
            if isinstance(each, Element):
                if each.tag == tag and (not class_name or class_name in each.attributes.get("class", "").split()):
                    found.append(each)
                found += each.all(tag, class_name)
        return found

    def by_id(self, name: str) -> Element:
        (found,) = (each for each in self._every() if each.attributes.get("id") == name)
        return found

    def rows(self) -> list[list[Element]]:
        """Of a table: its cells, the head's first."""
        return [[*filter(_is_cell, row.content)] for row in self.all("tr")]  # type: ignore[arg-type]

    def _every(self) -> list[Element]:
        within = [each for each in self.content if isinstance(each, Element)]
        return [found for each in within for found in (each, *each._every())]


def _is_cell(each: str | Element) -> bool:
    return isinstance(each, Element) and each.tag in ("td", "th")


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].content.append(element)
        if tag not in NO_END:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].content.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1].tag == tag, f"</{tag}> ends <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].content.append(data)


def parsed(page: str) -> Element:
    """The page; every element that was opened must be ended, in turn."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader._open == [reader.root], [each.tag for each in reader._open]
    return reader.root
