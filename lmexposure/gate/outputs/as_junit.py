"""The verdict as JUnit XML: one test case a check, for build servers that show tests."""

from xml.etree import ElementTree

from lmexposure.gate.verdict import Check, Outcome, Verdict
from lmexposure.gate.wording import visible

__all__ = ["verdict_junit"]


def verdict_junit(verdict: Verdict) -> str:
    """A leak is a failure, what is inconclusive an error, what was not tested is skipped.

    Characters that XML 1.0 forbids are spelled out.
    """
    counts = dict.fromkeys(Outcome, 0)
    for check in verdict.checks:
        counts[check.outcome] += 1
    totals = {
        "tests": str(len(verdict.checks)),
        "failures": str(counts[Outcome.LEAK]),
        "errors": str(counts[Outcome.INCONCLUSIVE]),
        "skipped": str(counts[Outcome.NOT_TESTED]),
        "time": "0",
    }
    suites = ElementTree.Element("testsuites", {"name": "lmexposure"} | totals)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "lmexposure check"} | totals)
    for check in verdict.checks:
        suite.append(_case(check))
    ElementTree.SubElement(suite, "system-out").text = visible(verdict.sentence)
    ElementTree.indent(suites)
    body = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _case(check: Check) -> ElementTree.Element:
    name = f"{check.name} ({check.scope})" if check.scope else check.name
    case = ElementTree.Element(
        "testcase", classname=f"lmexposure.{visible(check.key)}", name=visible(name), time="0"
    )
    reason = visible(check.reason)
    if check.outcome is Outcome.LEAK:
        ElementTree.SubElement(case, "failure", type="leak", message=reason).text = reason
    elif check.outcome is Outcome.INCONCLUSIVE:
        ElementTree.SubElement(case, "error", type="inconclusive", message=reason).text = reason
    elif check.outcome is Outcome.NOT_TESTED:
        ElementTree.SubElement(case, "skipped", message=reason)
    else:
        ElementTree.SubElement(case, "system-out").text = reason
    return case
