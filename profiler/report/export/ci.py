"""Checks for CI servers: JUnit XML, a test case a check, and the workflow commands that GitHub shows beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from xml.etree import ElementTree

from ...analyse.diff.limits import LimitCheck
from ..documents.check import measured, outcome, wanted


def workflow_commands(run: str, found: Sequence[LimitCheck]) -> Iterator[str]:
    """Make an error for each failed check, a warning for what was not measured and is allowed, a notice for a note."""
    for each in found:
        word = outcome(each)
        if word == "PASS" and not (each.note and each.name == "max-regression"):
            continue
        level = {"PASS": "notice", "SKIP": "warning"}.get(word, "error")
        said = f"{run}: {each.what}: {measured(each)}, {wanted(each)}"
        message = f"{said} ({each.note})" if each.note else said
        yield f"::{level} title={_property(f'whyidle check {each.name}')}::{_data(message)}"


def _data(text: str) -> str:
    """As GitHub's own toolkit escapes it: a line of a message must not become a command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


JUNITS = ("JUnit of an earlier check", rb'<\?xml version="1.0" encoding="utf-8"\?>\n<testsuites name="whyidle"')
"""What `junit_xml` makes, in words, and how every such file begins, as a pattern."""
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no way to hold, escaped or not."""


def junit_xml(run: str, found: Sequence[LimitCheck], properties: Mapping[str, str]) -> str:
    """Make the whole file. What was not measured fails, unless it is allowed: then it is skipped."""
    failed = sum(not each.holds for each in found)
    skipped = sum(outcome(each) == "SKIP" for each in found)
    counts = {"tests": str(len(found)), "failures": str(failed), "errors": "0", "skipped": str(skipped)}
    suites = ElementTree.Element("testsuites", {"name": "whyidle", **counts})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "whyidle check", **counts})
    of_suite = ElementTree.SubElement(suite, "properties")
    for name, value in ({"run": run} | dict(properties)).items():
        ElementTree.SubElement(of_suite, "property", {"name": _plain(name), "value": _plain(value)})
    for each in found:
        names = {"classname": "whyidle.check", "name": _plain(each.name)}
        case = ElementTree.SubElement(suite, "testcase", names)
        said = f"{each.what}: {measured(each)}, {wanted(each)}"
        message = _plain(f"{said} ({each.note})" if each.note else said)
        word = outcome(each)
        if word == "SKIP":
            ElementTree.SubElement(case, "skipped", {"message": message})
        elif word != "PASS":
            ElementTree.SubElement(case, "failure", {"message": message, "type": each.status}).text = message
        else:
            ElementTree.SubElement(case, "system-out").text = message
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _plain(text: str) -> str:
    return _FORBIDDEN.sub("?", text)
