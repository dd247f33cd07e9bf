"""The verdict as SARIF 2.1.0: leaks and doubts, as code hosts show findings."""

import json
from pathlib import Path
from urllib.parse import quote

from lmexposure import __version__
from lmexposure._files import sha256_bytes
from lmexposure._record import JsonTable
from lmexposure._text import visible
from lmexposure.gate.verdict import Check, Outcome, Verdict
from lmexposure.records import Provenance

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
# What each kind of check means, for a reader who meets it in a list of findings.
HELP = {
    "p_value": "A permutation test of a class of canaries against fills that the model never saw. "
    "A small p-value means that chance hardly explains how familiar the canaries look to the "
    "model: it has memorised some of what it was trained on.",
    "max_exposure": "The exposure of a canary says, in bits, how far it moved up among all fills "
    "of its format by being in the training data; higher = more memorised. Chance alone passes t "
    "bits with probability 2^-t at most.",
    "median_exposure": "The median exposure of a class of canaries in bits, with an "
    "interval; higher = more memorised. Guessing gives 1 bit.",
    "quantile_exposure": "A quantile of the exposures of a class of canaries in bits, with an "
    "interval; higher = more memorised.",
    "max_guesses": "A secret that stood in the training data is among the fills that an attacker "
    "tries first who has the model and knows the format. Where secrets are drawn at random from a "
    "large space, finding one is proof of memorisation.",
    "max_epsilon": "A lower bound on the epsilon of differential privacy that the training can "
    "have had, in nats; higher = less private. It holds under the conditions that stand beside it.",
    "claimed_epsilon": "The epsilon that was claimed of the training, held against the lower bound "
    "that an audit found.",
    "min_canaries": "So few canaries cannot show that secrets do not leak: a leak of some of them "
    "would go unseen. Insert more.",
    "scores": "A canary without a score or an exposure was not tested. Measure again.",
    "controls": "Controls were drawn like the canaries and never inserted. Where they do not look "
    "like chance, no other number can be trusted.",
    "validation": "A model that did not learn has memorised nothing, which says nothing of one "
    "that does. Train longer or with another learning rate.",
    "classes": "There was nothing that a check could judge.",
}
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


def _rule(key: str, verdict: Verdict) -> JsonTable:
    name = next(check.name for check in verdict.checks if check.key == key)
    return {
        "id": f"lmexposure/{key}",
        "name": "".join(word.capitalize() for word in key.split("_")),
        "shortDescription": {"text": visible(name)},
        "fullDescription": {"text": HELP[key]},
        "help": {"text": HELP[key]},
        "defaultConfiguration": {"level": "error"},
    }


def _result(check: Check, rule: int, uri: str) -> JsonTable:
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
