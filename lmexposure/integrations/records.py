"""Canaries among training records: texts, or chats in which a canary is one turn."""

from collections.abc import Mapping, Sequence
from typing import Any

from lmexposure.canaries import CorpusRecord, Manifest, Plan
from lmexposure.canaries.insertion import Existing, draw, survey_texts
from lmexposure.canaries.placing import Placement
from lmexposure.canaries.verify import check_inserted
from lmexposure.errors import CorpusError
from lmexposure.integrations.documents import record_text
from lmexposure.integrations.wrapping import Wrapping

_CHANGING = ("tools", "chat_template_kwargs")


def insert_into_records(
    records: Sequence[Mapping[str, Any]],
    plan: Plan,
    wrapping: Wrapping,
    *,
    existing: Existing = "refuse",
) -> tuple[list[dict[str, Any]], Manifest]:
    """Insert the plan's canaries among training records, each as a record in its wrapping.

    Args:
        records: each with the fields of `wrapping.record`: "messages", "prompt" and "completion",
            or "text". Other fields of an inserted record are those of the record that follows.
        plan: what to insert.
        wrapping: keep it: `wrapped_exposures` needs the same one.
        existing: fills that stand in a record already: "refuse", or "set_aside".

    Returns:
        (the records with the canaries among them, the manifest). Hashes and fills are those of all
        the strings of a record together.

    Raises:
        CorpusError: no records, one without the fields or with one that changes how chats are
            rendered (tools, chat_template_kwargs), or fills already there.
        PlanError: more repetitions than records, or more secrets than a format has.
    """
    given, fields = [], wrapping.record("")
    for number, one in enumerate(records, 1):
        if not isinstance(one, Mapping):
            raise CorpusError(
                f"record {number} is of type {type(one).__name__}, and must be fields by name"
            )
        given.append(dict(one))
        missing = sorted(set(fields) - set(one))
        if missing:
            raise CorpusError(
                f"record {number} has no field {missing[0]!r}, which this wrapping writes; it has "
                f"{', '.join(map(str, one)) or 'none'}: choose another wrapping, or rename fields"
            )
        changing = [] if wrapping.turn == "plain" else [n for n in _CHANGING if one.get(n)]
        if changing:
            raise CorpusError(
                f"record {number} has {changing[0]!r}, by which its chat is rendered otherwise; an "
                "inserted record would copy it, and be trained in another wrapping than it is "
                "scored in: insert into the records without it, and add the others then"
            )
    survey = survey_texts(map(record_text, given), plan.formats)
    canaries, set_aside = draw(plan, survey, existing)
    placed, inserted = Placement(canaries), []
    for number, one in enumerate(given):
        for canary in placed.before(number):
            inserted.append({**one, **wrapping.record(canary.text)})
        inserted.append(one)
    after = survey_texts(map(record_text, inserted), plan.formats)
    check_inserted(canaries, after.fills, set_aside)
    record = CorpusRecord(
        name="",
        # A plain score of a canary that stands in a chat would look like privacy.
        layout="dataset" if wrapping.turn == "plain" else "chat",
        text_field=wrapping.place,
        constant_fields=(),
        separator=None,
        documents=survey.documents,
        sha256=survey.sha256,
        sha256_inserted=after.sha256,
        verified=True,
    )
    manifest = Manifest(plan=plan, corpus=record, entries=canaries, set_aside=set_aside)
    return inserted, manifest
