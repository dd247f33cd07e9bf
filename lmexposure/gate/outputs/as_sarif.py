"""The verdict as SARIF 2.1.0: leaks and doubts, as code hosts show findings."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lmexposure import __version__
from lmexposure._files import sha256_bytes
from lmexposure.gate.outputs.help_texts import HELP
from lmexposure.gate.verdict import Check, Outcome, Verdict
from lmexposure.gate.wording import visible
from lmexposure.records import Provenance

__all__ = ["verdict_sarif"]

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Outcome.LEAK: "error", Outcome.INCONCLUSIVE: "warning"}


def verdict_sarif(verdict: Verdict, source: str | Path, provenance: Provenance) -> str:
    """One run, a rule for each kind of check, a result for each leak and each doubt.

    What passed or was not tested is no finding; the sentence stands in the run's properties.

    Args:
        verdict: the verdict.
        source: the file that a reader is led to: the result, or the manifest that was measured.
        provenance: which version measured which model, and when.
    """
    uri = _uri(Path(source))
    keys = list(dict.fromkeys(check.key for check in verdict.checks))
    results = [
        _result(check, keys.index(check.key), uri)
        for check in verdict.checks
        if check.outcome in _LEVELS
    ]
    driver = {
        "name": "lmexposure",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(key, verdict) for key in keys],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "artifacts": [{"location": {"uri": uri}}],
        "invocations": [{"executionSuccessful": True, "exitCode": verdict.exit_code}],
        "results": results,
        "properties": {
            "outcome": str(verdict.outcome),
            "sentence": visible(verdict.sentence),
            "untested": [visible(one) for one in verdict.untested],
            "provenance": {
                name: None if value is None else visible(value)
                for name, value in provenance.to_dict().items()
            },
        },
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _rule(key: str, verdict: Verdict) -> dict[str, Any]:
    name = next(check.name for check in verdict.checks if check.key == key)
    return {
        "id": f"lmexposure/{key}",
        "name": "".join(word.capitalize() for word in key.split("_")),
        "shortDescription": {"text": visible(name)},
        "fullDescription": {"text": HELP[key]},
        "help": {"text": HELP[key]},
        "defaultConfiguration": {"level": "error"},
    }


def _result(check: Check, rule: int, uri: str) -> dict[str, Any]:
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


def _uri(source: Path) -> str:
    """A relative path stays one: it is a place in the repository."""
    return source.as_uri() if source.is_absolute() else quote(source.as_posix())
