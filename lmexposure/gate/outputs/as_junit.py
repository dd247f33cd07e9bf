"""The verdict as JUnit XML: one test case a check, for build servers that show tests.

Valid under the schema of Jenkins' xunit plugin and under that of Apache Ant's JUnit task, which
allow little in common: no count of the whole, no output of a single test, a time without its zone.
"""

from xml.etree import ElementTree

from lmexposure._text import visible
from lmexposure.gate.verdict import Check, Outcome, Verdict
from lmexposure.records import Provenance

# Ant's schema wants a time and a machine also where there is none to tell.
_NO_DATE, _NO_HOST = "1970-01-01T00:00:00", "localhost"


def verdict_junit(verdict: Verdict, provenance: Provenance) -> str:
    """A leak is a failure, what is inconclusive an error, what was not tested is skipped.

    The timestamp is that of the measuring, in UTC; where it is not known, it is the beginning of
    1970, and the property `measured` says "date unknown". The output holds the verdict and the
    reason of every check. Characters that XML 1.0 forbids are spelled out.

    Args:
        verdict: the verdict.
        provenance: which version measured which model, and when.
    """
    counts = dict.fromkeys(Outcome, 0)
    for check in verdict.checks:
        counts[check.outcome] += 1
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(
        suites,
        "testsuite",
        id="0",
        name="lmexposure check",
        package="lmexposure",
        timestamp=(provenance.measured or _NO_DATE).removesuffix("Z"),
        hostname=_NO_HOST,
        tests=str(len(verdict.checks)),
        failures=str(counts[Outcome.LEAK]),
        errors=str(counts[Outcome.INCONCLUSIVE]),
        skipped=str(counts[Outcome.NOT_TESTED]),
        time="0",
    )
    suite.append(_properties(provenance))
    for check in verdict.checks:
        suite.append(_case(check))
    ElementTree.SubElement(suite, "system-out").text = _output(verdict, provenance)
    ElementTree.SubElement(suite, "system-err")
    ElementTree.indent(suites)
    body = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _properties(provenance: Provenance) -> ElementTree.Element:
    """Where the numbers come from, the hash in full."""
    known = provenance.to_dict() | {"measured": provenance.measured or provenance.date}
    properties = ElementTree.Element("properties")
    for name, value in known.items():
        shown = visible(value) if value else "unknown"
        ElementTree.SubElement(properties, "property", name=name, value=shown)
    return properties


def _output(verdict: Verdict, provenance: Provenance) -> str:
    lines = [
        f"{check.outcome}: {_name(check)}: {visible(check.reason)}" for check in verdict.checks
    ]
    return "\n".join([visible(verdict.sentence), provenance.line, *lines])


def _name(check: Check) -> str:
    return visible(f"{check.name} ({check.scope})" if check.scope else check.name)


def _case(check: Check) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase", classname=f"lmexposure.{visible(check.key)}", name=_name(check), time="0"
    )
    reason = visible(check.reason)
    if check.outcome is Outcome.LEAK:
        ElementTree.SubElement(case, "failure", type="leak", message=reason).text = reason
    elif check.outcome is Outcome.INCONCLUSIVE:
        ElementTree.SubElement(case, "error", type="inconclusive", message=reason).text = reason
    elif check.outcome is Outcome.NOT_TESTED:
        ElementTree.SubElement(case, "skipped", message=reason)
    return case
