"""A verdict in the forms that people, build servers and code hosts read.

Text for a terminal, JSON with what it was made from, Markdown for a step summary or a pull request,
JUnit XML for build servers that show tests, SARIF 2.1.0 for code hosts that show findings.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

from lmexposure import __version__
from lmexposure._files import sha256_bytes
from lmexposure._record import JsonTable, plain
from lmexposure._style import count, outcome_word, reading, visible
from lmexposure.core.check import Check, Outcome, Verdict
from lmexposure.core.document import CheckLine, check_lines, clause_of
from lmexposure.core.study import Provenance

VERDICT_SCHEMA = "lmexposure.verdict/1"
# What decides is read first.
_READING_ORDER = (Outcome.LEAK, Outcome.INCONCLUSIVE, Outcome.PASS, Outcome.NOT_TESTED)
# Whatever could begin a link, an image, a cell, a formula or emphasis.
_MARKUP = re.compile(r"([\\`*_\[\]#|~$])")
# Ant's schema wants a time and a machine also where there is none to tell.
_NO_DATE, _NO_HOST = "1970-01-01T00:00:00", "localhost"
_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_MOST_NOTES = 3  # on a terminal
_LEVELS = {Outcome.LEAK: "error", Outcome.INCONCLUSIVE: "warning"}


def verdict_text(
    verdict: Verdict, provenance: Provenance, *, notes: Sequence[str] = (), full: bool = False
) -> str:
    """The sentence, where it comes from, a line for each kind of check that did not pass, notes."""
    lines = [verdict.sentence, provenance.line, ""]
    lines += _of_each_check(verdict) if full else _of_each_kind(verdict)
    shown = notes if full else notes[:_MOST_NOTES]
    lines += [f"{'note':<12}  {note}" for note in shown]
    if more := len(notes) - len(shown):
        lines.append(f"{'note':<12}  {count(more, 'more note')} in the report")
    return "\n".join(map(visible, lines))


def _of_each_kind(verdict: Verdict) -> Iterator[str]:
    """What failed or was not made a line each, then what passed, then what was left out."""
    lines = check_lines(verdict)
    for line in lines:
        if line.outcome in _LEVELS:
            yield f"{line.outcome:<12}  {line.what}: {line.said}{_why(line, verdict)}"
    passed = [line for line in lines if line.outcome is Outcome.PASS]
    if whole := [line.what for line in passed if not line.untested]:
        yield f"{Outcome.PASS:<12}  {', '.join(whole)}"
    for line in passed:
        if line.untested:
            yield f"{Outcome.PASS:<12}  {line.what}: {line.said}"
    unmade = [line for line in lines if line.outcome is Outcome.NOT_TESTED]
    phrases = [f"{line.what}: {clause_of(line.checks[0])}" for line in unmade]
    yield from (f"{Outcome.NOT_TESTED:<12}  {line}" for line in (*phrases, *verdict.left_out))


def _why(line: CheckLine, verdict: Verdict) -> str:
    """The worst number beside what is allowed, or why nothing is known; not what is said yet."""
    worst = line.checks[0]
    where = f"{worst.scope}: " if worst.scope else ""
    if worst.outcome is Outcome.LEAK and None not in (worst.value, worst.threshold):
        found, limit = reading(worst.value, worst.unit), reading(worst.threshold, worst.unit)
        return f" ({where}{found}, limit {limit})"
    return "" if worst == verdict.deciding else f" ({where}{clause_of(worst)})"


def _of_each_check(verdict: Verdict) -> Iterator[str]:
    for outcome in _READING_ORDER[:-1]:
        for check in verdict.checks:
            # Of what only had to be in order, a class that is so has no line of its own.
            in_order = outcome is Outcome.PASS and check.key in ("min_canaries", "scores")
            if check.outcome is outcome and not in_order:
                where = f" ({check.scope})" if check.scope else ""
                yield f"{check.outcome:<12}  {check.name}{where}: {check.reason}"
    for title, phrases in (("Tested:", verdict.tested), ("Not tested:", verdict.untested)):
        if phrases:
            yield from ("", title, *(f"  {phrase}" for phrase in phrases))
    yield ""


def verdict_json(verdict: Verdict, hashes: Mapping[str, str], provenance: Provenance) -> str:
    """Schema, version of the gate, where the result comes from, its hashes, then the verdict."""
    record: JsonTable = {
        "schema": VERDICT_SCHEMA,
        "lmexposure": __version__,
        "provenance": plain(provenance.to_dict()),
        **hashes,
    }
    record |= {name: plain(value) for name, value in verdict.to_dict().items()}
    return json.dumps(record, indent=1, allow_nan=False) + "\n"


def verdict_summary(verdict: Verdict, provenance: Provenance) -> str:
    """A heading, the sentence, where it comes from, a table of checks, what was not tested."""
    lines = [
        f"## lmexposure: {outcome_word(verdict.outcome)}",
        "",
        _escaped(verdict.sentence),
        "",
        _escaped(provenance.line),
        "",
        "| outcome | check | of | why |",
        "| --- | --- | --- | --- |",
    ]
    for outcome in _READING_ORDER:
        lines += [_summary_row(check) for check in verdict.checks if check.outcome is outcome]
    if verdict.untested:
        lines += ["", "Not tested:", "", *(f"- {_escaped(phrase)}" for phrase in verdict.untested)]
    return "\n".join(lines) + "\n"


def _summary_row(check: Check) -> str:
    alarming = check.outcome in (Outcome.LEAK, Outcome.INCONCLUSIVE)
    shown = f"**{check.outcome}**" if alarming else str(check.outcome)
    cells = [shown, *(_escaped(text) for text in (check.name, check.scope, check.reason))]
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is; names of people are not called."""
    plain = visible(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKUP.sub(r"\\\1", plain).replace("@", "&#64;").replace("://", "&#58;//")


def verdict_junit(verdict: Verdict, provenance: Provenance) -> str:
    """A leak is a failure, what is inconclusive an error, what was not tested is skipped."""
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
        tests=str(len(verdict.checks) + len(verdict.left_out)),
        failures=str(counts[Outcome.LEAK]),
        errors=str(counts[Outcome.INCONCLUSIVE]),
        skipped=str(counts[Outcome.NOT_TESTED] + len(verdict.left_out)),
        time="0",
    )
    suite.append(_junit_properties(provenance))
    for check in verdict.checks:
        suite.append(_junit_case(check))
    for phrase in verdict.left_out:
        suite.append(_junit_left_out(phrase))
    ElementTree.SubElement(suite, "system-out").text = _junit_output(verdict, provenance)
    ElementTree.SubElement(suite, "system-err")
    ElementTree.indent(suites)
    body = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _junit_properties(provenance: Provenance) -> ElementTree.Element:
    """Where the numbers come from, the hash in full."""
    known = {**provenance.to_dict(), "measured": provenance.measured or provenance.date}
    properties = ElementTree.Element("properties")
    for name, value in known.items():
        shown = visible(value) if value else "unknown"
        ElementTree.SubElement(properties, "property", name=name, value=shown)
    return properties


def _junit_output(verdict: Verdict, provenance: Provenance) -> str:
    lines = [
        f"{check.outcome}: {_case_name(check)}: {visible(check.reason)}" for check in verdict.checks
    ]
    lines += [f"{Outcome.NOT_TESTED}: {visible(phrase)}" for phrase in verdict.left_out]
    return "\n".join([visible(verdict.sentence), visible(provenance.line), *lines])


def _case_name(check: Check) -> str:
    return visible(f"{check.name} ({check.scope})" if check.scope else check.name)


def _junit_case(check: Check) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase", classname=f"lmexposure.{visible(check.key)}", name=_case_name(check), time="0"
    )
    reason = visible(check.reason)
    if check.outcome is Outcome.LEAK:
        ElementTree.SubElement(case, "failure", type="leak", message=reason).text = reason
    elif check.outcome is Outcome.INCONCLUSIVE:
        ElementTree.SubElement(case, "error", type="inconclusive", message=reason).text = reason
    elif check.outcome is Outcome.NOT_TESTED:
        ElementTree.SubElement(case, "skipped", message=reason)
    return case


def _junit_left_out(phrase: str) -> ElementTree.Element:
    """What no check is of, as "what: why"."""
    what, _, why = visible(phrase).partition(": ")
    case = ElementTree.Element("testcase", classname="lmexposure.untested", name=what, time="0")
    ElementTree.SubElement(case, "skipped", message=why or what)
    return case


def verdict_sarif(verdict: Verdict, source: str | Path, provenance: Provenance) -> str:
    """One run, a rule for each kind of check, a result for each leak and each doubt."""
    path = Path(source)
    # A relative path stays relative: it is a place in the repository.
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
    log = {
        "$schema": _SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [_sarif_run(verdict, uri, provenance)],
    }
    return json.dumps(log, indent=1) + "\n"


def _sarif_run(verdict: Verdict, uri: str, provenance: Provenance) -> dict[str, object]:
    keys = list(dict.fromkeys(check.key for check in verdict.checks))
    driver = {
        "name": "lmexposure",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_sarif_rule(key, verdict) for key in keys],
    }
    return {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "artifacts": [{"location": {"uri": uri}}],
        "invocations": [
            {
                "executionSuccessful": True,
                "exitCode": verdict.exit_code,
                "toolExecutionNotifications": [
                    {"level": "note", "message": {"text": visible(f"not tested: {phrase}")}}
                    for phrase in verdict.untested
                ],
            }
        ],
        "results": [
            _sarif_result(check, keys.index(check.key), uri)
            for check in verdict.checks
            if check.outcome in _LEVELS
        ],
        "properties": {
            "outcome": str(verdict.outcome),
            "sentence": visible(verdict.sentence),
            "untested": [visible(line) for line in verdict.untested],
            "provenance": {
                name: None if value is None else visible(value)
                for name, value in provenance.to_dict().items()
            },
        },
    }


def _sarif_rule(key: str, verdict: Verdict) -> JsonTable:
    name = next(check.name for check in verdict.checks if check.key == key)
    return {
        "id": f"lmexposure/{key}",
        "name": "".join(word.capitalize() for word in key.split("_")),
        "shortDescription": {"text": visible(name)},
        "fullDescription": {"text": verdict.kinds[key].help},
        "help": {"text": verdict.kinds[key].help},
        "defaultConfiguration": {"level": "error"},
    }


def _sarif_result(check: Check, rule: int, uri: str) -> JsonTable:
    message = f"{check.outcome}: {check.reason}"
    if check.scope:
        message = f"{check.outcome} ({check.scope}): {check.reason}"
    return {
        "ruleId": f"lmexposure/{check.key}",
        "ruleIndex": rule,
        "level": _LEVELS[check.outcome],
        "message": {"text": visible(message)},
        "locations": [
            {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": 1}}}
        ],
        # The same finding of the next release is the same alert.
        "partialFingerprints": {
            "lmexposureCheck/v1": sha256_bytes(visible(f"{check.key} {check.scope}").encode())
        },
    }
