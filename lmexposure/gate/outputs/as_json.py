"""The verdict as JSON, with what it was made from."""

import json

from lmexposure import __version__
from lmexposure._record import JsonTable, plain
from lmexposure.gate.verdict import Verdict
from lmexposure.records import Provenance, Result

VERDICT_SCHEMA = "lmexposure.verdict/1"


def verdict_json(verdict: Verdict, result: Result, provenance: Provenance) -> str:
    """Schema, version of the gate, where the result comes from, its hashes, then the verdict.

    ASCII only.

    Args:
        verdict: of `result`.
        result: what was judged.
        provenance: which version measured which model, and when.
    """
    record: JsonTable = {
        "schema": VERDICT_SCHEMA,
        "lmexposure": __version__,
        "provenance": plain(provenance.to_dict()),
        "inputs_sha256": result.inputs_sha256,
        "manifest_sha256": result.manifest_sha256,
        "weights_sha256": result.model.weights_sha256,
    }
    record |= {name: plain(value) for name, value in verdict.to_dict().items()}
    return json.dumps(record, indent=1, allow_nan=False) + "\n"
