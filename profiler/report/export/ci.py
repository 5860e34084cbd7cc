"""Checks for CI servers: JUnit XML, a test case a check, and the workflow commands that GitHub shows beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from xml.etree import ElementTree

from ...analyse.diff.check import REGRESSION, LimitCheck
from ..documents.checks import limit_row


def _told(found: Sequence[LimitCheck]) -> Iterator[tuple[LimitCheck, str, str]]:
    """(check, its outcome in a word, all that is said of it)"""
    for each in found:
        row = limit_row(each)
        yield each, row.outcome, f"{row.what}: {row.measured}, {row.wanted}{f' ({row.note})' if row.note else ''}"


def workflow_commands(run: str, found: Sequence[LimitCheck]) -> Iterator[str]:
    """Make an error for each failed check, a warning for what was not measured and is allowed, a notice for a note."""
    for each, outcome, said in _told(found):
        if outcome != "PASS" or (each.note and each.name == REGRESSION):
            level = {"PASS": "notice", "SKIP": "warning"}.get(outcome, "error")
            # What ends a property of a command has a code of its own there.
            title = _data(f"whyidle check {each.name}").replace(":", "%3A").replace(",", "%2C")
            yield f"::{level} title={title}::{_data(f'{run}: {said}')}"


def _data(text: str) -> str:
    """As GitHub's own toolkit escapes it: a line of a message must not become a command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


JUNITS = ("JUnit of an earlier check", rb'<\?xml version="1.0" encoding="utf-8"\?>\n<testsuites name="whyidle"')
"""What `junit_xml` makes, in words, and how every such file begins, as a pattern."""
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no way to hold, escaped or not."""


def junit_xml(run: str, found: Sequence[LimitCheck], properties: Mapping[str, str]) -> str:
    """Make the whole file. What was not measured fails, unless it is allowed: then it is skipped."""
    told = list(_told(found))
    failed, skipped = sum(not each.holds for each in found), sum(outcome == "SKIP" for _, outcome, _ in told)
    counts = {"tests": str(len(found)), "failures": str(failed), "errors": "0", "skipped": str(skipped)}
    suites = ElementTree.Element("testsuites", {"name": "whyidle", **counts})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "whyidle check", **counts})
    of_suite = ElementTree.SubElement(suite, "properties")
    for name, value in ({"run": run} | dict(properties)).items():
        ElementTree.SubElement(of_suite, "property", {"name": _plain(name), "value": _plain(value)})
    for each, outcome, said in told:
        names = {"classname": "whyidle.check", "name": _plain(each.name)}
        case, message = ElementTree.SubElement(suite, "testcase", names), _plain(said)
        if outcome == "SKIP":
            ElementTree.SubElement(case, "skipped", {"message": message})
        elif outcome != "PASS":
            ElementTree.SubElement(case, "failure", {"message": message, "type": each.status}).text = message
        else:
            ElementTree.SubElement(case, "system-out").text = message
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _plain(text: str) -> str:
    return _FORBIDDEN.sub("?", text)
