"""The files that wrong calls are given: corpora, formats, settings, records, models, score files.

Each is always the same. Records are those of `tests/data/result_1`, damaged one by one: an edited
one keeps its hash, a forged one has its hash made again, so that what is below the hash is read.
"""

import gzip
import json
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from corpora import write_corpus

from lmexposure._files import canonical_json, sha256_bytes
from lmexposure._integrity import CONTENT
from lmexposure.canaries import Plan, insert_into_files, load_format, shape_named

__all__ = ["make_files"]

_DATA = Path(__file__).parents[1] / "data" / "result_1"
_NESTED = 100_000  # brackets
Record = dict[str, Any]
Change = Callable[[Record], object]


def make_files(home: Path) -> Path:
    """Make all of them in a new directory; returns it."""
    home.mkdir()
    for make in (_plain, _corpora, _formats, _settings, _manifests, _runs, _models, _scores):
        make(home)
    return home


def _write(files: Mapping[str, str | bytes | Record], home: Path) -> None:
    """Each content under its name: text as UTF-8, a table as JSON, bytes as they are."""
    for name, content in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(content) if isinstance(content, dict) else content
        path.write_bytes(text.encode() if isinstance(text, str) else text)


def _plain(home: Path) -> None:
    """What is wrong wherever it is given."""
    (home / "empty_directory").mkdir()
    (home / "dangling").symlink_to("missing")
    (home / "circle").symlink_to("circle")
    _write(
        {
            "empty": b"",
            "latin1": "Übung\n".encode("latin-1"),
            "utf16": "a line\n".encode("utf-16"),
            "nested": "[" * _NESTED,
            "list.json": "[1, 2]",
            "null.json": "null",
            "cut.json": '{"schema": "lmexposure.',
            "long_number.json": '{"schema": ' + "9" * 5000 + "}",
            "of_another_tool.json": {"schema": "pytest.report/1", "tests": []},
            "notes/README.md": "notes\n",
        },
        home,
    )


def _corpora(home: Path) -> None:
    write_corpus(home / "corpus.txt", 300)
    text = (home / "corpus.txt").read_text(encoding="utf-8")
    record = json.dumps({"text": "a text"}) + "\n"
    _write(
        {
            "empty.txt": "",
            "blank.txt": "\n \n\t\n",
            "two_lines.txt": "one\ntwo\n",
            "crlf.txt": text.replace("\n", "\r\n"),
            "ünïcode.txt": "Grüße, 你好 🙂\n" * 3,
            "no_last_line_end.txt": text + "the end",
            "latin1.txt": "a line\nÜbung\n".encode("latin-1"),
            "utf16.txt": text.encode("utf-16"),
            "nul.txt": "a line\nwith a \0 in it\n",
            "with_fills.txt": text + "My PIN is 0042\nMy PIN is 0042\nMy PIN is 1234\n",
            "good.jsonl": record * 40,
            "cut.jsonl": record * 2 + '{"text": "a te',
            "list.jsonl": record + "[1]\n",
            "nested.jsonl": record + "[" * _NESTED + "\n",
            "no_field.jsonl": record + '{"body": "a", "id": 3}\n',
            "no_string.jsonl": record + '{"text": 3}\n',
            "half.jsonl": record + '{"text": "\\ud800"}\n',
            "with_bom.jsonl": "\ufeff" + record,
            "cut.txt.gz": gzip.compress(text.encode(), mtime=0)[:-200],
            "no_gzip.txt.gz": text,
            "no_zstandard.txt.zst": text,
            "no_parquet.parquet": text,
        },
        home,
    )
    pq.write_table(pa.table({"text": ["a"] * 30}), home / "good.parquet")
    pq.write_table(pa.table({"body": ["a", "b"]}), home / "no_text.parquet")
    pq.write_table(pa.table({"text": ["a", None]}), home / "null.parquet")
    pq.write_table(pa.table({"text": [1, 2]}), home / "numbers.parquet")
    _inserted_files(home)


def _inserted_files(home: Path) -> None:
    """Three files with canaries in them, and copies with a note that is wrong."""
    for number in range(3):
        (home / "parts").mkdir(exist_ok=True)
        write_corpus(home / "parts" / f"{number}.txt", 40 + number)
    plan = Plan(formats=(load_format("pin"),), canaries=2, repetitions=(1, 2), controls=2, seed=1)
    out, lines = home / "inserted", shape_named("lines", text_field="text")
    manifest = insert_into_files([home / "parts" / "*.txt"], plan, out / "corpus", shape=lines)
    manifest.write(out / "manifest.json")
    note = json.loads((out / "corpus" / "0.txt.canaries.json").read_bytes())
    wrong: dict[str, Record] = {
        "no_schema": {**note, "schema": None},
        "shard_0": {**note, "shard": 0},
        "more": {**note, "more": 1},
        "other_manifest": {**note, "manifest_sha256": "0" * 64},
    }
    for name, changed in wrong.items():
        _write({f"notes/{name}/0.txt.canaries.json": changed}, home)
        shutil.copy(out / "corpus" / "0.txt", home / "notes" / name)
    shutil.copytree(out / "corpus", home / "changed")
    longer = home / "changed" / "1.txt"
    longer.write_text(longer.read_text(encoding="utf-8") + "one more\n", encoding="utf-8")


def _format(template: str, **more: object) -> str:
    """A format file; a name that is given replaces the usual one."""
    values = {"name": "mine", "template": template, **more}
    lists = values.pop("lists", None)
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    if isinstance(lists, dict):
        lines += ["[lists]", *(f"{name} = {json.dumps(value)}" for name, value in lists.items())]
    return "".join(f"{line}\n" for line in lines)


def _formats(home: Path) -> None:
    names: Mapping[str, object] = {"name": ["Ann", "Anna"]}
    made = {
        "sound": _format("Badge {upper:2}-{digits:6}"),
        "advised": _format("{digits:2} is my PIN"),
        "no_hole": _format("no hole"),
        "no_template": 'name = "mine"\n',
        "unknown_key": _format("a {digits:3}", colour="red"),
        "bad_name": _format("a {digits:3}", name="My Format"),
        "number_for_name": _format("a {digits:3}", name=3),
        "number_for_template": "name = 'mine'\ntemplate = 3\n",
        "number_for_source": _format("a {digits:3}", source=3),
        "unknown_hole": _format("a {vowels:3}"),
        "no_width": _format("a {digits}"),
        "width_0": _format("a {digits:0}"),
        "width_1001": _format("a {digits:1001}"),
        "width_text": _format("a {digits:x}"),
        "conversion": _format("a {digits!r:3}"),
        "open_brace": _format("a {digits:3"),
        "too_few": _format("a {choice:name}", lists={"name": ["Ann"]}),
        "too_many": _format("a " + "{alnum:1000}" * 3),
        "luhn_first": _format("a {luhn}"),
        "luhn_early": _format("a {digits:3}{luhn}{digits:3}"),
        "luhn_detail": _format("a {digits:3}{luhn:2}"),
        "line_break": _format("a\n{digits:3}"),
        "blank": _format("{choice:name}", lists={"name": [" ", "  "]}),
        "no_list": _format("a {choice:name}"),
        "unused_list": _format("a {digits:3}", lists=names),
        "empty_list": _format("a {choice:name}", lists={"name": []}),
        "twice_in_list": _format("a {choice:name}", lists={"name": ["x", "y", "x"]}),
        "number_in_list": _format("a {choice:name}", lists={"name": ["x", 3]}),
        "text_for_list": _format("a {choice:name}", lists={"name": "xyz"}),
        "text_for_lists": _format("a {digits:3}") + 'lists = "xyz"\n',
        "ambiguous": _format("a {choice:name}{choice:name}", lists={"name": ["a", "aa"]}),
        "nesting": _format("{choice:name}", lists={"name": ["Ann", "Ann and Ann", "Bob"]}),
        "no_toml": "name = \n",
        "key_twice": "name = 'a'\nname = 'b'\n",
        "nested": "name = " + "[" * 5000 + "]" * 5000,
        "long_key": ".".join(["a"] * 5000) + " = 1",
        "long_number": "name = " + "9" * 5000,
        "crlf": _format("a {digits:5}").replace("\n", "\r\n"),
        "with_bom": "\ufeff" + _format("a {digits:5}"),
        "like_pin": _format("My PIN is {digits:4}", name="pin"),
        "around_pin": _format("Code {digits:2}. My PIN is {digits:4}", name="around_pin"),
    }
    _write({f"formats/{name}.toml": text for name, text in made.items()}, home)
    _write({"formats/latin1.toml": "name = 'Ü'\n".encode("latin-1")}, home)


def _settings(home: Path) -> None:
    made = {
        "unknown": "colour = 'red'\n",
        "text_for_number": "canaries = 'ten'\n",
        "number_for_text": "model = 3\n",
        "yes_for_number": "controls = true\n",
        "text_for_yes": "offline = 'yes'\n",
        "number_for_list": "repetitions = 4\n",
        "empty_list": "formats = []\n",
        "text_in_list": "repetitions = [1, 'x']\n",
        "list_for_training": "training = [1]\n",
        "unknown_training": "[training]\ncolour = 'red'\n",
        "wrong_training": "[training]\nepochs = 0\n",
        "float_training": "[training]\nepochs = 1.5\n",
        "level_2": "level = 2\n",
        "bootstraps_3": "bootstraps = 3\n",
        "permutations_3": "permutations = 3\n",
        "both": "coins = 0.5\ncandidates = 4\ncanaries = 4\n",
        "nul": 'formats = ["a\\u0000.toml"]\n',
        "unknown_check": "[check]\ncolour = 'red'\n",
        "wrong_check": "[check]\nsignificance = 7\n",
        "no_table_check": "check = 3\n",
        "quantile_check": "[check]\nquantile_exposure = [0.9]\n",
        "fine": "canaries = 2\nrepetitions = [1, 2]\ncontrols = 2\nformats = ['pin']\n",
        "no_toml": "canaries = \n",
        "nested": "seed = " + "[" * 5000 + "]" * 5000,
    }
    _write({f"settings/{name}.toml": text for name, text in made.items()}, home)
    _write({"settings/latin1.toml": "model = 'Ü'\n".encode("latin-1")}, home)


def _manifests(home: Path) -> None:
    """`stopped_inserted/manifest.json`, wrong in each way."""
    whole = (_DATA / "stopped_inserted" / "manifest.json").read_bytes()
    _write({"manifests/whole.json": whole, "manifests/cut.json": whole[:3000]}, home)
    edited: dict[str, Change] = {
        "edited": lambda one: one["plan"].update(controls=4),
        "newer": lambda one: one.update(schema="lmexposure.manifest/3"),
        "older": lambda one: one.update(schema="lmexposure.manifest/0"),
        "other_family": lambda one: one.update(schema="lmexposure.result/1"),
        "no_schema": lambda one: one.pop("schema"),
        "no_checksum": lambda one: one.pop("checksum"),
        "number_for_schema": lambda one: one.update(schema=1),
    }
    forged: dict[str, Change] = {
        "no_plan": lambda one: one.pop("plan"),
        "no_canaries": lambda one: one.pop("canaries"),
        "unknown_in_plan": lambda one: one["plan"].update(colour="red"),
        "text_for_controls": lambda one: one["plan"].update(controls="3"),
        "negative_controls": lambda one: one["plan"].update(controls=-1),
        "no_formats": lambda one: one["plan"].update(formats=[]),
        "wrong_format": lambda one: one["plan"]["formats"][0].update(template="no hole"),
        "coins_in_1": lambda one: one["plan"].update(coins=0.5, coin_seed="3"),
        "other_text": lambda one: one["canaries"][0].update(text="My PIN is 0000"),
        "other_role": lambda one: one["canaries"][0].update(role="control"),
        "other_format": lambda one: one["canaries"][0].update(format="random_number"),
        "unknown_id": lambda one: one["canaries"][0].update(id="pin/x1/0007"),
        "canary_gone": lambda one: one["canaries"].pop(0),
        "canary_twice": lambda one: one["canaries"].append(one["canaries"][0]),
        "secret_twice": _share_secret,
        "position_outside": lambda one: one["canaries"][0].update(positions=[300]),
        "positions_missing": lambda one: one["canaries"][2].update(positions=[1]),
        "text_for_index": lambda one: one["canaries"][0].update(index="x"),
        "in_chats": lambda one: one["corpus"].update(layout="chat"),
        "set_aside_list": lambda one: one.update(set_aside=[]),
    }
    for name, change in {**edited, **forged}.items():
        record = json.loads(whole)
        change(record)
        if name in forged:
            rest = {key: value for key, value in record.items() if key != "checksum"}
            record["checksum"] = sha256_bytes(canonical_json(rest))
        _write({f"manifests/{name}.json": record}, home)


def _share_secret(record: Record) -> None:
    first, second = record["canaries"][:2]
    second.update(index=first["index"], text=first["text"])


def _runs(home: Path) -> None:
    """`coins`, wrong in each way; a finished one and a stopped one as they are."""
    for name in ("coins", "stopped_trained"):
        shutil.copytree(_DATA / name, home / name)
    result = json.loads((_DATA / "coins" / "result.json").read_bytes())
    _run_files(home, result)
    for canary in result["canaries"]:
        canary["estimates"] = {}  # in good part the same as its exposure, and long
    other = json.dumps(result).replace('"pin', '"nip')
    _write({"runs/other_formats/result.json": other}, home)
    _write({"runs/cut/result.json": json.dumps(result)[:5000]}, home)
    _write({"runs/edited/result.json": {**result, CONTENT: "0" * 64}}, home)
    for name, change in _RESULTS.items():
        record = json.loads(json.dumps(result))
        change(record)
        _write({f"runs/{name}/result.json": record}, home)


_RESULTS: dict[str, Change] = {
    "newer": lambda one: one.update(schema="lmexposure.result/2"),
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
    "other_bits": lambda one: one["formats"][0].update(bits=20.0),
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
    "text_for_interrupted": lambda one: one["formats"][0].update(search={"interrupted": "no"}),
    "text_for_epsilon": lambda one: one["privacy"]["primary"].update(value="much"),
    "negative_epsilon": lambda one: one["privacy"]["primary"].update(value=-3.0),
    "no_significance": lambda one: one["privacy"]["primary"].pop("significance"),
    "claim_contradicted": lambda one: one["privacy"]["claim"].update(verdict="contradicted"),
    "unknown_verdict": lambda one: one["privacy"]["claim"].update(verdict="maybe"),
    "other_claim": lambda one: one["settings"].update(claimed_epsilon=3.0),
    "no_classes": lambda one: one["privacy"].pop("classes"),
    "no_summary": lambda one: one.update(summary=[]),
    "summary_twice": lambda one: one["summary"].append(one["summary"][0]),
    "summary_of_other": lambda one: one["summary"][0].update(repetitions=7),
    "summary_of_nothing": lambda one: one["summary"][0].update(format=None),
    "other_count": lambda one: one["summary"][1].update(n=26),
    "p_value_2": lambda one: one["summary"][1]["guessing_test"].update(p_value=2.0),
    "not_learned": lambda one: one["model"]["validation"].update(validation_bits=9.0),
    "no_improved": lambda one: one["model"]["validation"].pop("improved"),
    "set_aside_10000": lambda one: one["formats"][0].update(set_aside=10_000),
    "other_size": lambda one: one["formats"][0].update(space_size="16384", bits=14.0),
}


def _run_files(home: Path, result: Record) -> None:
    """Runs whose result is whole, and another file is not."""
    source = _DATA / "coins"
    files: dict[str, tuple[str, str | bytes | Record]] = {
        "bad_record": ("run.json", '{"settings": '),
        "list_record": ("run.json", "[]"),
        "nested_record": ("run.json", "[" * _NESTED),
        "edited_record": ("run.json", {"settings": {}, CONTENT: "0" * 64}),
        "half_record": ("run.json", '{"settings": {"a": "\\ud800"}}'),
        "cut_scores": ("scores.parquet", (source / "scores.parquet").read_bytes()[:900]),
        "text_scores": ("scores.parquet", "id,format\n"),
        "cut_manifest": ("manifest.json", '{"schema": "lmex'),
        "other_manifest": ("manifest.json", (_DATA / "demo" / "manifest.json").read_bytes()),
        "bad_metrics": ("metrics.jsonl", '{"step": 0}\n{"st\n[1]\n{"step": 2}\n'),
        "bad_exposure": ("exposure.jsonl", '{"step": 0, "ep\n{"step": 1}\n'),
    }
    for name, (file, content) in files.items():
        run = home / "runs" / name
        shutil.copytree(source, run)
        if name == "bad_exposure":
            (run / "metrics.jsonl").unlink()
        _write({file: content}, run)
    shutil.copytree(source, home / "runs" / "no_manifest")
    (home / "runs" / "no_manifest" / "manifest.json").unlink()
    shutil.copytree(_DATA / "stopped_inserted", home / "runs" / "unfinished")
    (home / "runs" / "directory" / "result.json").mkdir(parents=True)
    _other_scores(home, result)


def _other_scores(home: Path, result: Record) -> None:
    """Scores that are whole and do not fit their result."""
    columns = pq.ParquetFile(_DATA / "coins" / "scores.parquet").read().to_pydict()
    bits = columns["log_perplexity_bits"]
    changed: dict[str, Record] = {
        "other_bits_scores": {"log_perplexity_bits": [one + 1 for one in bits]},
        "negative_scores": {"log_perplexity_bits": [-1.0, *bits[1:]]},
        "nan_scores": {"log_perplexity_bits": [float("nan"), *bits[1:]]},
        "other_roles_scores": {"role": ["guest", *columns["role"][1:]]},
        "other_ids_scores": {"id": ["pin/x2/0099", *columns["id"][1:]]},
    }
    for name, columns_changed in changed.items():
        _write({f"runs/{name}/result.json": result}, home)
        table = pa.table({**columns, **columns_changed})
        pq.write_table(table, home / "runs" / name / "scores.parquet")
    _write({"runs/short_scores/result.json": result}, home)
    short = pa.table({name: cells[:-5] for name, cells in columns.items()})
    pq.write_table(short, home / "runs" / "short_scores" / "scores.parquet")


def _models(home: Path) -> None:
    """The model of `stopped_trained`, wrong in each way."""
    source = _DATA / "stopped_trained" / "model"
    config = json.loads((source / "config.json").read_bytes())
    weights = (source / "model.safetensors").read_bytes()
    remote = {"AutoModelForCausalLM": "modeling_mine.MyModel", "AutoConfig": "mine.MyConfig"}
    files: dict[str, dict[str, str | bytes | Record]] = {
        "pickled": {"pytorch_model.bin": b"\x80\x02K\x01."},
        "cut_weights": {"model.safetensors": weights[:500]},
        "cut_config": {"config.json": '{"model_type": '},
        "unknown_type": {"config.json": {**config, "model_type": "mine"}},
        "remote_code": {"config.json": {**config, "model_type": "mine", "auto_map": remote}},
        "other_shape": {"config.json": {**config, "hidden_size": 8}},
        "more_layers": {"config.json": {**config, "num_hidden_layers": 2}},
        "no_tokenizer": {},
        "no_config": {},
        "adapter_cut": {"adapter_config.json": "{", "adapter_model.safetensors": b""},
        "adapter_alone": {"adapter_config.json": "{}"},
    }
    without = {
        "pickled": ("model.safetensors",),
        "no_tokenizer": ("tokenizer.json", "tokenizer_config.json"),
        "no_config": ("config.json",),
        "adapter_cut": ("config.json", "model.safetensors"),
        "adapter_alone": ("config.json", "model.safetensors"),
    }
    for name, content in files.items():
        shutil.copytree(source, home / "models" / name)
        for file in without.get(name, ()):
            (home / "models" / name / file).unlink()
        _write(content, home / "models" / name)


def _scores(home: Path) -> None:
    """Score files of other tools."""
    draw = random.Random(3)
    rows = [f"{draw.gauss(i % 2, 1):.6f},{i % 2}" for i in range(60)]
    few = "score,included\n1.5,1\n0.5,0\n"
    made: dict[str, str | bytes] = {
        "good": "\n".join(["score,included", *rows]) + "\n",
        "few": few,
        "crlf": few.replace("\n", "\r\n"),
        "with_bom": "\ufeff" + few,
        "only_header": "score,included\n",
        "empty": "",
        "other_columns": "loss,member\n1.5,1\n",
        "capitals": few.replace("score", "Score"),
        "twice": "score,score,included\n1,2,1\n",
        "semicolons": few.replace(",", ";"),
        "short_row": "score,included\n1.5,1\n0.5\n",
        "text_score": "score,included\n1.5,1\nhigh,0\n",
        "nan_score": "score,included\n1.5,1\nnan,0\n",
        "empty_cell": "score,included\n1.5,1\n,0\n",
        "maybe": "score,included\n1.5,1\n0.5,maybe\n",
        "all_in": "score,included\n1.5,1\n0.5,1\n",
        "all_out": "score,included\n1.5,0\n0.5,0\n",
        "copies": "score,included,repetitions\n1.5,1,4\n0.5,0,4\n",
        "half_copies": "score,included,repetitions\n1.5,1,1.5\n0.5,0,1\n",
        "unknown_role": "score,role\n1.5,canary\n0.5,guest\n",
        "open_quote": 'score,included\n"1.5,1\n0.5,0\n',
        "latin1": "score,included,Ü\n1,1,1\n".encode("latin-1"),
        "utf16": few.encode("utf-16"),
    }
    _write({f"scores/{name}.csv": text for name, text in made.items()}, home)
    _write({"scores/no_parquet.parquet": few, "scores/good.tsv": few.replace(",", "\t")}, home)
    lists = pa.table({"score": [[1.0], [2.0]], "included": [True, False]})
    pq.write_table(lists, home / "scores" / "lists.parquet")
    nulls = pa.table({"score": [1.0, None], "included": [True, False]})
    pq.write_table(nulls, home / "scores" / "null.parquet")
