"""What build servers and code hosts read is valid under the schemas that they publish."""

from functools import cache
from pathlib import Path

import pytest
import xmlschema
from gate.outputs.test_outputs import KNOWN, UNDATED, verdicts

from lmexposure.gate import Verdict, verdict_junit
from lmexposure.records import Provenance, Result

SCHEMAS = Path(__file__).parents[2] / "data" / "junit_schemas"
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


@pytest.mark.parametrize("provenance", [KNOWN, UNDATED])
@pytest.mark.parametrize(("result", "verdict"), verdicts())
def test_junit_is_valid_for_jenkins_and_for_ant(
    result: Result, verdict: Verdict, provenance: Provenance
) -> None:
    text = verdict_junit(verdict, provenance)
    jenkins().validate(text)
    ant().validate(text)


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
