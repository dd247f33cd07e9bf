"""Records of the product that are wrong: manifests, results, and the other files of a run.

They are those of `data/shown`, damaged one by one: an edited one keeps its hash, a forged one has
its hash made again, so that what is below it is read.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lmexposure._files import canonical_json, sha256_bytes, sha256_file
from lmexposure._integrity import CONTENT

__all__ = ["DATA", "Record", "make_manifests", "make_runs", "write_files"]

DATA = Path(__file__).parent / "data" / "shown"
_NESTED = 100_000  # brackets
Record = dict[str, Any]
Change = Callable[[Record], object]


def write_files(files: Mapping[str, str | bytes | Record], home: Path) -> None:
    """Each content under its name: text as UTF-8, a table as JSON, bytes as they are."""
    for name, content in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(content) if isinstance(content, dict) else content
        path.write_bytes(text.encode() if isinstance(text, str) else text)


def make_manifests(home: Path) -> None:
    """`stopped_trained/manifest.json`, wrong in each way."""
    whole = (DATA / "stopped_trained" / "manifest.json").read_bytes()
    write_files({"manifests/whole.json": whole, "manifests/cut.json": whole[:3000]}, home)
    edited: dict[str, Change] = {
        "edited": lambda one: one["plan"].update(controls=4),
        "newer": lambda one: one.update(schema="lmexposure.manifest/6"),
        "older": lambda one: one.update(schema="lmexposure.manifest/4"),
        "other_family": lambda one: one.update(schema="lmexposure.result/1"),
        "no_schema": lambda one: one.pop("schema"),
        "no_checksum": lambda one: one.pop(CONTENT),
        "number_for_schema": lambda one: one.update(schema=1),
    }
    forged: dict[str, Change] = {
        "no_plan": lambda one: one.pop("plan"),
        "no_canaries": lambda one: one.pop("entries"),
        "unknown_in_plan": lambda one: one["plan"].update(colour="red"),
        "text_for_controls": lambda one: one["plan"].update(controls="3"),
        "negative_controls": lambda one: one["plan"].update(controls=-1),
        "no_formats": lambda one: one["plan"].update(formats=[]),
        "wrong_format": lambda one: one["plan"]["formats"][0].update(template="no hole"),
        "no_inclusion_seed": lambda one: one["plan"].update(inclusion_probability=0.5),
        "another_text": lambda one: one["entries"][0].update(text="My PIN is 0000"),
        "other_role": lambda one: one["entries"][0].update(role="control"),
        "other_format": lambda one: one["entries"][0].update(format="random_number"),
        "unknown_id": lambda one: one["entries"][0].update(id="pin/x1/0007"),
        "canary_gone": lambda one: one["entries"].pop(0),
        "canary_twice": lambda one: one["entries"].append(one["entries"][0]),
        "secret_twice": _share_secret,
        "position_outside": lambda one: one["entries"][0].update(positions=[300]),
        "positions_missing": lambda one: one["entries"][2].update(positions=[1]),
        "text_for_index": lambda one: one["entries"][0].update(index="x"),
        "set_aside_list": lambda one: one.update(set_aside=[]),
    }
    for name, change in {**edited, **forged}.items():
        record = json.loads(whole)
        change(record)
        made = _signed(record) if name in forged else record
        write_files({f"manifests/{name}.json": made}, home)


def _signed(record: Record) -> Record:
    """With the hash of what it says now."""
    contents = {key: value for key, value in record.items() if key != CONTENT}
    return {**contents, CONTENT: sha256_bytes(canonical_json(contents))}


def _share_secret(record: Record) -> None:
    first, second = record["entries"][:2]
    second.update(index=first["index"], text=first["text"])


def make_runs(home: Path) -> None:
    """`coins`, wrong in each way; a finished one and a stopped one as they are."""
    for name in ("coins", "stopped_trained"):
        shutil.copytree(DATA / name, home / name)
    result = json.loads((DATA / "coins" / "result.json").read_bytes())
    _run_files(home, result)
    for canary in result["canaries"]:
        canary["estimates"] = {}  # in good part the same as its exposure, and long
    other = json.loads(json.dumps(result).replace('"pin', '"nip'))
    write_files({"runs/other_formats/result.json": _signed(other)}, home)
    write_files({"runs/cut/result.json": json.dumps(result)[:5000]}, home)
    write_files({"runs/edited/result.json": {**result, CONTENT: "0" * 64}}, home)
    for name, change in _RESULTS.items():
        record = json.loads(json.dumps(result))
        change(record)
        if name != "half_a_character":  # of which no hash can be made
            record = _signed(record)
        write_files({f"runs/{name}/result.json": record}, home)


_RESULTS: dict[str, Change] = {
    "newer": lambda one: one.update(schema="lmexposure.result/5"),
    "newest": lambda one: one.update(schema="lmexposure.result/" + "9" * 5000),
    "manifest_schema": lambda one: one.update(schema="lmexposure.manifest/1"),
    "no_schema": lambda one: one.pop("schema"),
    "no_canaries": lambda one: one.pop("canaries"),
    "more": lambda one: one.update(colour="red"),
    "more_of_canary": lambda one: one["canaries"][0].update(colour="red"),
    "text_for_model": lambda one: one.update(model="lstm"),
    "table_for_formats": lambda one: one.update(formats={}),
    "number_for_hash": lambda one: one.update(manifest_sha256=3),
    "number_for_warnings": lambda one: one.update(warnings=3),
    "number_for_canaries": lambda one: one.update(canaries=3),
    "list_for_privacy": lambda one: one.update(privacy=[]),
    "number_for_format": lambda one: one["formats"][0].update(name=3),
    "no_size": lambda one: one["formats"][0].pop("space_size"),
    "references_10001": lambda one: one["formats"][0].update(references=10_001),
    "no_references": lambda one: one["formats"][0].update(references=None),
    "quantiles": lambda one: one["formats"][0].update(reference_bits_quantiles=[2.0, 1.0]),
    "format_twice": lambda one: one["formats"].append(one["formats"][0]),
    "other_format": lambda one: one["canaries"][0].update(format="ssn"),
    "other_role": lambda one: one["canaries"][0].update(role="guest"),
    "canary_twice": lambda one: one["canaries"].append(one["canaries"][0]),
    "text_for_bits": lambda one: one["canaries"][0].update(log_perplexity_bits="85"),
    "negative_bits": lambda one: one["canaries"][0].update(log_perplexity_bits=-3.0),
    "huge_number": lambda one: one["canaries"][0].update(log_perplexity_bits=10**400),
    "half_a_character": lambda one: one["warnings"].append("\ud800"),
    "number_for_exposure": lambda one: one["canaries"][0].update(exposure=3),
    "unknown_method": lambda one: one["canaries"][0]["exposure"].update(method="guess"),
    "exposure_99": lambda one: one["canaries"][0]["exposure"].update(value=99.0),
    "text_for_capped": lambda one: one["canaries"][0]["exposure"].update(capped="no"),
    "low_above_high": lambda one: one["canaries"][0]["exposure"].update(low=9.0, high=1.0),
    "text_for_level": lambda one: one["canaries"][0]["exposure"].update(level="high"),
    "place_0": lambda one: one["canaries"][0]["extraction"][0].update(place=0, found=True),
    "unknown_search": lambda one: one["canaries"][0]["extraction"][0].update(method="luck"),
    "text_for_found": lambda one: one["canaries"][0]["extraction"][0].update(found="no"),
    "text_for_interrupted": lambda one: one["formats"][0].update(interrupted="no"),
    "text_for_epsilon": lambda one: one["privacy"]["primary"].update(value="much"),
    "negative_epsilon": lambda one: one["privacy"]["primary"].update(value=-3.0),
    "no_significance": lambda one: one["privacy"]["primary"].pop("significance"),
    "unknown_verdict": lambda one: one["privacy"]["claim"].update(verdict="maybe"),
    "no_classes": lambda one: one["privacy"].pop("classes"),
    "no_summary": lambda one: one.update(summary=[]),
    "summary_twice": lambda one: one["summary"].append(one["summary"][0]),
    "summary_of_other": lambda one: one["summary"][0].update(repetitions=7),
    "summary_of_nothing": lambda one: one["summary"][0].update(format=None),
    "p_value_2": lambda one: one["summary"][1]["guessing_test"].update(p_value=2.0),
    "no_improved": lambda one: one["model"]["validation"].pop("improved"),
    "set_aside_10000": lambda one: one["formats"][0].update(set_aside=10_000),
    "other_size": lambda one: _resize(one),
}


def _resize(one: Record) -> None:
    """Another space, whose ranks nobody counted."""
    one["formats"][0].update(space_size="16384", bits=14.0)
    for canary in one["canaries"]:
        for estimate in (canary["exposure"], *canary["estimates"].values()):
            estimate["rank"] = None


def _run_files(home: Path, result: Record) -> None:
    """Runs whose result is whole, and another file is not."""
    source = DATA / "coins"
    files: dict[str, tuple[str, str | bytes | Record]] = {
        "bad_record": ("run.json", '{"settings": '),
        "list_record": ("run.json", "[]"),
        "nested_record": ("run.json", "[" * _NESTED),
        "edited_record": ("run.json", {"settings": {}, CONTENT: "0" * 64}),
        "half_record": ("run.json", '{"settings": {"a": "\\ud800"}}'),
        "cut_scores": ("scores.parquet", (source / "scores.parquet").read_bytes()[:900]),
        "text_scores": ("scores.parquet", "id,format\n"),
        "cut_manifest": ("manifest.json", '{"schema": "lmex'),
        "other_manifest": ("manifest.json", (DATA / "demo" / "manifest.json").read_bytes()),
        "bad_metrics": ("metrics.jsonl", '{"step": 0}\n{"st\n[1]\n{"step": 2}\n'),
        "bad_exposure": ("exposure.jsonl", '{"step": 0, "ep\n{"step": 1}\n'),
    }
    for name, (file, content) in files.items():
        run = home / "runs" / name
        shutil.copytree(source, run)
        if name == "bad_exposure":
            (run / "metrics.jsonl").unlink()
        write_files({file: content}, run)
    shutil.copytree(source, home / "runs" / "no_manifest")
    (home / "runs" / "no_manifest" / "manifest.json").unlink()
    unfinished = shutil.copytree(DATA / "stopped_trained", home / "runs" / "unfinished")
    shutil.rmtree(unfinished / "model")
    (home / "runs" / "directory" / "result.json").mkdir(parents=True)
    _other_scores(home, result)


def _other_scores(home: Path, result: Record) -> None:
    """Scores that are what their result was made with, and cannot be."""
    columns = pq.ParquetFile(DATA / "coins" / "scores.parquet").read().to_pydict()
    bits = columns["log_perplexity_bits"]
    changed: dict[str, Record] = {
        "negative_scores": {"log_perplexity_bits": [-1.0, *bits[1:]]},
        "nan_scores": {"log_perplexity_bits": [float("nan"), *bits[1:]]},
        "other_roles_scores": {"role": ["guest", *columns["role"][1:]]},
    }
    for name, columns_changed in changed.items():
        table = pa.table({**columns, **columns_changed})
        _write_scores(home / "runs" / name, table, result)


def _write_scores(run: Path, table: pa.Table, result: Record) -> None:
    """With a result that has their hash."""
    run.mkdir()
    pq.write_table(table, run / "scores.parquet")
    scores_sha256 = sha256_file(run / "scores.parquet")
    write_files({"result.json": _signed({**result, "scores_sha256": scores_sha256})}, run)
