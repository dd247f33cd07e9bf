"""The files that wrong calls are given: corpora, formats, settings, records, models, score files.

Each is always the same.
"""

import gzip
import json
import random
import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from corpora import write_corpus
from golden.wrong_records import DATA, Record, make_manifests, make_runs, write_files

from lmexposure.canaries import Plan, insert_files, load_format

__all__ = ["make_files"]

_NESTED = 100_000  # brackets


def make_files(home: Path) -> Path:
    """Make all of them in a new directory; returns it."""
    home.mkdir()
    for make in (
        _plain,
        _corpora,
        _formats,
        _settings,
        make_manifests,
        make_runs,
        _models,
        _scores,
    ):
        make(home)
    return home


def _plain(home: Path) -> None:
    """What is wrong wherever it is given."""
    (home / "empty_directory").mkdir()
    (home / "dangling").symlink_to("missing")
    (home / "circle").symlink_to("circle")
    write_files(
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
    write_files(
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
    out = home / "inserted"
    insert_files([home / "parts" / "*.txt"], out, plan)
    note = json.loads((out / "corpus" / ".sidecars" / "0.txt.canaries.json").read_bytes())
    wrong: dict[str, Record] = {
        "no_schema": {**note, "schema": None},
        "shard_0": {**note, "shard": 0},
        "more": {**note, "more": 1},
        "other_manifest": {**note, "manifest_sha256": "0" * 64},
    }
    for name, changed in wrong.items():
        write_files({f"notes/{name}/.sidecars/0.txt.canaries.json": changed}, home)
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
    write_files({f"formats/{name}.toml": text for name, text in made.items()}, home)
    write_files({"formats/latin1.toml": "name = 'Ü'\n".encode("latin-1")}, home)


def _settings(home: Path) -> None:
    made = {
        "unknown": "colour = 'red'\n",
        "text_for_number": "canaries = 'ten'\n",
        "number_for_text": "model = 3\n",
        "yes_for_number": "controls = true\n",
        "text_for_yes": "offline = 'yes'\n",
        "number_for_list": "formats = 4\n",
        "empty_list": "formats = []\n",
        "text_in_list": "repetitions = [1, 'x']\n",
        "list_for_training": "training = [1]\n",
        "unknown_training": "colour = 'red'\n",
        "wrong_training": "epochs = 0\n",
        "float_training": "epochs = 1.5\n",
        "level_2": "level = 2\n",
        "bootstraps_3": "bootstraps = 3\n",
        "permutations_3": "permutations = 3\n",
        "both": "inclusion_probability = 0.5\n",
        "nul": 'formats = ["a\\u0000.toml"]\n',
        "unknown_check": "[check]\ncolour = 'red'\n",
        "wrong_check": "[check]\nsignificance = 7\n",
        "no_table_check": "check = 3\n",
        "quantile_check": "[check]\nquantile_exposure = [0.9]\n",
        "fine": "canaries = 2\nrepetitions = [1, 2]\ncontrols = 2\nformats = ['pin']\n",
        "no_toml": "canaries = \n",
        "nested": "seed = " + "[" * 5000 + "]" * 5000,
    }
    write_files({f"settings/{name}.toml": text for name, text in made.items()}, home)
    write_files({"settings/latin1.toml": "model = 'Ü'\n".encode("latin-1")}, home)


def _models(home: Path) -> None:
    """The model of `stopped_trained`, wrong in each way."""
    source = DATA / "stopped_trained" / "model"
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
        write_files(content, home / "models" / name)


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
    write_files({f"scores/{name}.csv": text for name, text in made.items()}, home)
    write_files({"scores/no_parquet.parquet": few, "scores/good.tsv": few.replace(",", "\t")}, home)
    lists = pa.table({"score": [[1.0], [2.0]], "included": [True, False]})
    pq.write_table(lists, home / "scores" / "lists.parquet")
    nulls = pa.table({"score": [1.0, None], "included": [True, False]})
    pq.write_table(nulls, home / "scores" / "null.parquet")
