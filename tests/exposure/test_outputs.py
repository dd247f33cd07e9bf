"""One verdict in five forms, with names that would break each, and under the published schemas."""

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest
import xmlschema
from made_results import HOSTILE, canary, clean, exact, made

import lmexposure as lx
from lmexposure._style import visible
from lmexposure.core import (
    Outcome,
    Provenance,
    Thresholds,
    Verdict,
    verdict_json,
    verdict_junit,
    verdict_sarif,
    verdict_summary,
    verdict_text,
)
from lmexposure.studies import Result
from lmexposure.studies.exposure.check_classes import EXPOSURE_CHECKS

NAME = HOSTILE + "\x00\x1b[31m\x85\u202e|</testcase>]]>@all\r\n## Passed"
NASTY = NAME + "\ud800"  # no file holds half a character
KNOWN = Provenance(
    lmexposure="0.0.9",
    measured="2026-11-22T06:30:00Z",
    model="runs/a b" + NASTY,
    hashes={"weights_sha256": "ab" * 32},
)
UNDATED = Provenance(
    lmexposure="0.0.9", measured=None, model="m", hashes={"weights_sha256": "ab" * 32}
)


SCHEMAS = Path(__file__).parents[1] / "junit_schemas"
# The schema of Ant's task as of 2011 and what it has taken in since (README.md beside it).
SKIPPED = """<xs:element name="skipped" minOccurs="0"><xs:complexType><xs:simpleContent>
<xs:extension base="pre-string"><xs:attribute name="message" type="xs:string"/></xs:extension>
</xs:simpleContent></xs:complexType></xs:element>"""
ERRORS = '<xs:attribute name="errors"'
COUNT = '<xs:attribute name="skipped" type="xs:int" use="optional"/>'


@cache
def jenkins() -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd")


@cache
def ant() -> xmlschema.XMLSchema:
    text = (SCHEMAS / "JUnit.xsd").read_text(encoding="utf-8").partition("?>")[2]
    for before, added in (('<xs:element name="error">', SKIPPED), (ERRORS, COUNT)):
        assert text.count(before) == 1
        text = text.replace(before, added + before)
    return xmlschema.XMLSchema(text)


def leaking(name: str = "random_number") -> Result:
    return made([canary(i, exact(28.0), place=i + 1, name=name) for i in range(12)], name=name)


def verdicts() -> list[tuple[Result, Verdict]]:
    few = made([canary(i, exact(1.0)) for i in range(3)])
    results = [clean(), leaking(), few, made([]), leaking(NAME)]
    asked = Thresholds(max_epsilon=3, median_exposure=2, max_exposure=5, quantile_exposure=(0.9, 9))
    return [(r, lx.check(r, t)) for r in results for t in (Thresholds(), asked)]


OF_EACH = pytest.mark.parametrize(("result", "verdict"), verdicts())


@OF_EACH
def test_every_form_says_the_same(result: Result, verdict: Verdict) -> None:
    record = json.loads(verdict_json(verdict, result.hashes, KNOWN))
    assert record["schema"] == "lmexposure.verdict/1"
    assert record["outcome"] == str(verdict.outcome)
    assert record["exit_code"] == verdict.exit_code
    assert record["manifest_sha256"] == result.manifest_sha256
    assert len(record["checks"]) == len(verdict.checks)
    assert {check.key for check in verdict.checks} <= set(EXPOSURE_CHECKS)
    assert verdict_text(verdict, KNOWN).splitlines()[0] == verdict.sentence
    summary = verdict_summary(verdict, KNOWN)
    assert summary.startswith("## lmexposure: ")
    summary.encode()


@OF_EACH
def test_junit_has_a_case_for_each_check(result: Result, verdict: Verdict) -> None:
    root = ElementTree.fromstring(verdict_junit(verdict, KNOWN))
    cases = root.findall("./testsuite/testcase")
    made, left_out = len(verdict.checks), len(verdict.left_out)
    assert [root.tag, len(cases)] == ["testsuites", made + left_out]
    assert root[0].get("tests") == str(len(cases))
    tags = {
        Outcome.LEAK: ("failure", "failures"),
        Outcome.INCONCLUSIVE: ("error", "errors"),
        Outcome.NOT_TESTED: ("skipped", "skipped"),
    }
    for outcome, (tag, total) in tags.items():
        count = sum(check.outcome is outcome for check in verdict.checks)
        count += left_out * (outcome is Outcome.NOT_TESTED)
        assert len(root.findall(f".//{tag}")) == count
        assert root[0].get(total) == str(count)
    assert all(case.get("name") and case.get("classname") and case.get("time") for case in cases)
    for provenance in (KNOWN, UNDATED):
        jenkins().validate(verdict_junit(verdict, provenance))
        ant().validate(verdict_junit(verdict, provenance))


@OF_EACH
def test_sarif_has_what_its_schema_requires(result: Result, verdict: Verdict) -> None:
    """Required by SARIF 2.1.0: version, runs; tool.driver.name; rule id; message.text."""
    log = json.loads(verdict_sarif(verdict, "runs/a b/résult#1.json", KNOWN))
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"] == "lmexposure"
    assert all(rule["id"] and rule["help"]["text"] for rule in rules)
    findings = [c for c in verdict.checks if c.outcome in (Outcome.LEAK, Outcome.INCONCLUSIVE)]
    assert len(run["results"]) == len(findings)
    for found, check in zip(run["results"], findings, strict=True):
        assert found["level"] == ("error" if check.outcome is Outcome.LEAK else "warning")
        assert rules[found["ruleIndex"]]["id"] == found["ruleId"] == f"lmexposure/{check.key}"
        place = found["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "runs/a%20b/r%C3%A9sult%231.json"
        assert place["region"]["startLine"] == 1
        assert found["message"]["text"]
    prints = [json.dumps(found["partialFingerprints"]) for found in run["results"]]
    assert len(set(prints)) == len(prints)
    assert run["invocations"][0]["executionSuccessful"] is True


@OF_EACH
def test_every_file_lists_what_was_not_tested_and_why(result: Result, verdict: Verdict) -> None:
    """Each phrase once, as "what: why"."""
    assert verdict.untested
    assert len(set(verdict.untested)) == len(verdict.untested)
    skipped = {
        f"{case.get('name')}: {reason.get('message')}"
        for case in ElementTree.fromstring(verdict_junit(verdict, KNOWN)).iter("testcase")
        if (reason := case.find("skipped")) is not None
    }
    assert skipped >= {visible(phrase) for phrase in verdict.left_out}
    assert len(skipped) == len(verdict.left_out) + sum(
        check.outcome is Outcome.NOT_TESTED for check in verdict.checks
    )
    (run,) = json.loads(verdict_sarif(verdict, "r", KNOWN))["runs"]
    notes = run["invocations"][0]["toolExecutionNotifications"]
    assert [note["message"]["text"] for note in notes] == [
        f"not tested: {visible(phrase)}" for phrase in verdict.untested
    ]
    assert {note["level"] for note in notes} == {"note"}
    assert json.loads(verdict_json(verdict, result.hashes, KNOWN))["untested"] == [
        *verdict.untested
    ]


@pytest.mark.parametrize("provenance", [KNOWN, UNDATED])
def test_every_form_says_where_its_numbers_come_from(provenance: Provenance) -> None:
    result, verdict = verdicts()[2]
    said, unknown = provenance.to_dict(), provenance == UNDATED
    start = "lmexposure 0.0.9, date unknown; m, weights "
    if not unknown:
        start = "lmexposure 0.0.9, measured 2026-11-22T06:30:00Z; runs/a b"
    assert provenance.line.endswith("weights abababababab")
    assert provenance.line.startswith(start)
    assert verdict_text(verdict, provenance).splitlines()[1] == provenance.line
    assert f"\n{start.partition(';')[0]};" in verdict_summary(verdict, provenance)
    assert json.loads(verdict_json(verdict, result.hashes, provenance))["provenance"] == said
    (run,) = json.loads(verdict_sarif(verdict, "r", provenance))["runs"]
    assert run["properties"]["provenance"]["measured"] == provenance.measured
    suite = ElementTree.fromstring(verdict_junit(verdict, provenance))[0]
    found = {one.get("name"): one.get("value") for one in suite.iter("property")}
    assert found["lmexposure"] == "0.0.9"
    assert found["weights_sha256"] == "ab" * 32
    assert found["measured"] == ("date unknown" if unknown else provenance.measured)
    # The clock of who renders is not looked at: what is not known is the beginning of 1970.
    assert suite.get("timestamp") == ("1970-01-01" if unknown else "2026-11-22") + (
        "T00:00:00" if unknown else "T06:30:00"
    )


def of_three_classes() -> Verdict:
    """Two leak, of the third there are too few canaries."""
    canaries = [
        canary(i, exact(bits), repetitions=repetitions, place=None if repetitions == 1 else i + 1)
        for repetitions, bits, n in ((1, 1.0, 3), (4, 27.0, 12), (16, 28.0, 12))
        for i in range(n)
    ]
    return lx.check(made(canaries))


def test_the_text_has_a_line_for_each_kind_that_did_not_pass_and_one_for_those_that_did() -> None:
    """A leak has its worst number, a doubt the first clause of its reason."""
    verdict = of_three_classes()
    sentence, origin, blank, *lines = verdict_text(verdict, KNOWN).splitlines()
    assert (sentence, origin, blank) == (verdict.sentence, KNOWN.line, "")
    assert [line.rsplit("random_number, ")[-1] for line in lines] == [
        "repetitions 4: 1 guess, limit 1,000 guesses)",
        "repetitions 4: 0.0001, limit 0.0015)",
        "repetitions 16: 28.00 bits, limit 12.97 bits)",
        "repetitions 1: 3 secrets inserted once are too few: 10 are needed)",
        "pass          controls at chance, model learned, model saw the canaries, all canaries "
        "scored",
        "not tested    median and quantiles of exposure: no threshold was given",
        "not tested    epsilon: no threshold was given, and the result holds no claim",
    ]
    full = verdict_text(verdict, KNOWN, full=True)
    assert all(check.reason in full for check in verdict.findings)
    assert not any(check.reason in line for check in verdict.findings for line in lines)


def test_what_decides_and_why_a_pass_is_doubted_are_said_once_and_short() -> None:
    few = lx.check(made([canary(i, exact(1.0)) for i in range(3)]))
    lines = verdict_text(few, KNOWN).splitlines()
    assert "inconclusive  enough canaries: not met in 1 class" in lines  # why is the first line
    assert (
        "inconclusive  largest exposure: undecided in 1 class (random_number, repetitions 1: the "
        "canaries are too few or not all scored, so this is no pass)"
    ) in lines


def test_notes_are_at_most_three_and_in_full_all() -> None:
    notes = [f"what to know, {n}" for n in range(5)]
    said = verdict_text(of_three_classes(), KNOWN, notes=notes).splitlines()
    assert said[-4:] == [
        *(f"note          {note}" for note in notes[:3]),
        "note          2 more notes in the report",
    ]
    full = verdict_text(of_three_classes(), KNOWN, notes=notes, full=True).splitlines()
    assert full[-5:] == [f"note          {note}" for note in notes]
    assert verdict_text(of_three_classes(), KNOWN, notes=notes[:3]).endswith(notes[2])


def test_an_absolute_place_is_a_file_uri(tmp_path: Path) -> None:
    log = json.loads(verdict_sarif(lx.check(leaking()), tmp_path / "a b.json", KNOWN))
    place = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place["uri"].startswith("file:///")
    assert place["uri"].endswith("/a%20b.json")


def test_a_hostile_name_stays_a_name_in_every_form() -> None:
    result = leaking(NAME)
    verdict = lx.check(result, Thresholds(max_epsilon=3))
    assert verdict.outcome is Outcome.LEAK
    text = verdict_text(verdict, KNOWN)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800]", text)
    assert "## Passed" not in text.splitlines()
    names = [
        c.get("name")
        for c in ElementTree.fromstring(verdict_junit(verdict, KNOWN)).iter("testcase")
    ]
    assert any(name and "<script>" in name and "</testcase>" in name for name in names)
    assert "<script" not in verdict_junit(verdict, KNOWN)
    assert (
        "\\u202e" in json.loads(verdict_json(verdict, result.hashes, KNOWN))["checks"][0]["scope"]
    )
    summary = verdict_summary(verdict, KNOWN)
    rows = [line for line in summary.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + len(verdict.checks)
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 5 for row in rows)
    assert not re.search(r"<|@|://|(?<!\\)`", summary)


def test_a_verdict_of_any_words_is_safe() -> None:
    """Also one that `lx.check` did not write."""
    verdict = lx.check(clean())
    check = replace(verdict.checks[0], reason=NASTY, scope=NASTY, name=NASTY)
    other = replace(verdict, checks=(check,), sentence=NASTY, untested=(NASTY,), tested=(NASTY,))
    ElementTree.fromstring(verdict_junit(other, KNOWN))
    json.loads(verdict_sarif(other, "r.json", KNOWN))
    json.loads(verdict_json(other, clean().hashes, KNOWN))
    for text in (verdict_text(other, KNOWN), verdict_summary(other, KNOWN)):
        assert "\x1b" not in text
        text.encode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('timestamp="2026-11-22T06:30:00"', 'timestamp="2026-11-22T06:30:00Z"'),
        (' hostname="localhost"', ""),
        ("<properties>", "<properties><measured/>"),
    ],
)
def test_the_schemas_refuse_what_is_wrong(before: str, after: str) -> None:
    _, verdict = verdicts()[0]
    text = verdict_junit(verdict, KNOWN)
    assert before in text
    assert not ant().is_valid(text.replace(before, after, 1))
    assert not jenkins().is_valid(text.replace("<testcase ", "<test ", 1))
