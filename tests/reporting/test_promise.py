"""What a private training promised, in every rendering; no id of a page is there twice."""

import re
from collections import Counter
from dataclasses import replace

from page_data import page_data

from lmexposure.reporting import render_report
from lmexposure.reporting.markdown import report_markdown
from lmexposure.reporting.promise import promise_section
from lmexposure.studies import NOT_COVERED, DpClaim

CLAIM = DpClaim(
    method="dp-sgd",
    sampler="poisson",
    accountant="prv",
    unit="document",
    adjacency="add or remove one",
    epsilon=3.9979,
    epsilon_rdp=4.56,
    delta=1e-5,
    noise_multiplier=1.07,
    clip=0.3,
    sample_rate=0.0626,
    steps=160,
    units=1565,
    largest_group=1,
    noise_is_given=False,
    not_covered=NOT_COVERED,
)
OF_USERS = CLAIM.model_copy(update={"unit": "user", "largest_group": 7, "noise_is_given": True})


def test_nothing_is_said_where_nothing_was_promised() -> None:
    assert promise_section(None) is None


def test_all_that_was_promised_is_said_and_what_was_not() -> None:
    section = promise_section(CLAIM)
    assert section is not None
    said = {row[0]: row[1] for row in section.rows}
    assert said["promised epsilon"] == "3.998 nats at delta 1e-05 (PRV accountant)"
    assert said["unit"] == "one document; add or remove one"
    assert said["units"] == "1,565"
    assert [f"not covered: {line}" for line in NOT_COVERED] == list(section.notes[1:])
    of_users = promise_section(OF_USERS)
    assert of_users is not None
    assert {row[0]: row[1] for row in of_users.rows}[
        "unit"
    ] == "all documents of one value of 'user'; add or remove one"
    assert "does not hold against those who know it" in of_users.notes[-1]
    assert str(CLAIM).startswith("epsilon 3.998 at delta 1e-05 for each of 1,565 documents after")


def test_pages_and_markdown_have_it_and_no_id_twice() -> None:
    data = replace(page_data(), promise=CLAIM)
    html = render_report(data)
    twice = [name for name, n in Counter(re.findall(r'\bid="([^"]+)"', html)).items() if n > 1]
    assert twice == []
    assert "3.998 nats at delta 1e-05 (PRV accountant)" in html
    assert "## Promise of the training" in report_markdown(data)
