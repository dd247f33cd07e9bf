"""The 42 usual mistakes: what was typed, what says what is wrong, and what to do next.

Nothing here imports torch.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from corpora import sentences

_DATA = Path(__file__).parent / "golden" / "data"


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """One of them, with what is said of it."""

    what: str
    typed: str  # behind "lmexposure", or a call of lx
    said: str  # what is wrong
    next: str  # and what to do
    # why it takes torch, or is not known before; "" where it is answered before torch
    late: str = ""
    code: int = 3


MISTAKES = (
    Mistake(
        what="a corpus that is not there",
        typed="run corpsu.txt --out new",
        said="corpsu.txt",
        next="check the path",
    ),
    Mistake(
        what="a format's name mistyped",
        typed="insert corpus.txt --format sn --out new",
        said="'sn'",
        next="did you mean 'ssn'?",
    ),
    Mistake(
        what="a flag mistyped",
        typed="insert corpus.txt --formt pin --out new",
        said="No such option: --formt",
        next="--format",
    ),
    Mistake(
        what="a command mistyped",
        typed="measur base canaried/manifest.json --out new",
        said="No such command 'measur'",
        next="measure",
    ),
    Mistake(
        what="records with other fields",
        typed="insert qa.jsonl --out new",
        said="field 'text' is missing",
        next="prompt",
    ),
    Mistake(
        what="a line that is no JSON",
        typed="insert torn.jsonl --out new",
        said="torn.jsonl, line 2",
        next="",
    ),
    Mistake(
        what="an empty corpus, inserted into",
        typed="insert empty.txt --out new",
        said="empty.txt",
        next="",
    ),
    Mistake(
        what="an empty corpus, run",
        typed="run empty.txt --model base --out new",
        said="empty.txt",
        next="",
    ),
    Mistake(
        what="an empty corpus, swept",
        typed="sweep empty.txt --out new",
        said="empty.txt",
        next="",
    ),
    Mistake(
        what="an empty corpus, looked at",
        typed="verbatim base empty.txt --out new",
        said="empty.txt",
        next="",
    ),
    Mistake(
        what="no canaries",
        typed="insert corpus.txt --canaries 0 --out new",
        said="--canaries 0 must be",
        next="from 1",
    ),
    Mistake(
        what="a range where a list belongs",
        typed="insert corpus.txt --repetitions 1-16 --out new",
        said="1-16",
        next="such as",
    ),
    Mistake(
        what="a seed that is no number",
        typed="run corpus.txt --seed abc --out new",
        said="--seed",
        next="integer",
    ),
    Mistake(
        what="a corpus in place of the manifest",
        typed="measure base corpus.txt --out new",
        said="corpus.txt is a corpus",
        next="manifest.json",
    ),
    Mistake(
        what="the directory in place of the manifest",
        typed="measure base canaried --out new --help-manifest",
        said="",
        next="",
    ),
    Mistake(
        what="model and manifest swapped",
        typed="measure canaried/manifest.json base --out new",
        said="canaried/manifest.json is a manifest",
        next="give the model first, then the manifest",
    ),
    Mistake(
        what="a manifest in place of the model",
        typed="measure canaried/manifest.json canaried/manifest.json --out new",
        said="canaried/manifest.json is a manifest",
        next="give the directory",
    ),
    Mistake(
        what="model and corpus swapped",
        typed="verbatim corpus.txt base --out new",
        said="corpus.txt is a file",
        next="give the model first, then the corpus",
    ),
    Mistake(
        what="a manifest in place of the corpus",
        typed="run canaried/manifest.json --out new",
        said="is a manifest",
        next="",
    ),
    Mistake(
        what="the weights' file in place of the model",
        typed="measure base/model.safetensors canaried/manifest.json --out new",
        said="is a file",
        next="give the directory that holds it",
    ),
    Mistake(
        what="a model that is not there",
        typed="measure ./adapter-nope canaried/manifest.json --out new",
        said="no such directory",
        next="check the path",
    ),
    Mistake(
        what="a model that is not there, beside one that is",
        typed="run corpus.txt --model models/bsae --out new",
        said="no such directory",
        next="did you mean 'models/base'?",
    ),
    Mistake(
        what="a hub name where there is no network",
        typed="run corpus.txt --model meta-llama/Llama-3.2-1B --out new",
        said="could not be found on the hub",
        next="check the path or the hub name",
    ),
    Mistake(
        what="a model without a tokenizer, measured",
        typed="measure bare canaried/manifest.json --out new",
        said="'bare' has no tokenizer",
        next="save it next to the model",
    ),
    Mistake(
        what="a model without a tokenizer, trained",
        typed="run corpus.txt --model bare --out new",
        said="'bare' has no tokenizer",
        next="save it next to the model",
    ),
    Mistake(
        what="an adapter whose base has gone",
        typed="measure adapter canaried/manifest.json --out new",
        said="adapter 'adapter' names a base",
        next="set base_model_name_or_path",
    ),
    Mistake(
        what="no GPU, measuring",
        typed="measure base canaried/manifest.json --device cuda --out new",
        said="--device cuda is not available here",
        next="cpu",
    ),
    Mistake(
        what="no GPU, training",
        typed="run corpus.txt --device cuda --out new",
        said="--device cuda is not available here",
        next="cpu",
    ),
    Mistake(
        what="--out of another insertion",
        typed="insert corpus.txt --format ssn --out canaried",
        said="canaried holds a manifest of another plan",
        next="choose another directory",
    ),
    Mistake(
        what="--out of another run",
        typed="run corpus.txt --format ssn --epochs 3 --out trained",
        said="trained holds another",
        next="choose another directory",
    ),
    Mistake(
        what="--out of another manifest's measurement",
        typed="measure base canaried/manifest.json --out measured",
        said="measured holds the result of another",
        next="choose another directory",
    ),
    Mistake(
        what="--out with files of one's own",
        typed="run corpus.txt --out mine",
        said="mine holds 'photo.jpg' and no run.json",
        next="choose a new one",
    ),
    Mistake(
        what="a text that is checked",
        typed="check corpus.txt",
        said="corpus.txt holds no study",
        next="give one of result.json",
    ),
    Mistake(
        what="a page that is checked, in Python",
        typed='lx.check("page.html")',
        said="page.html holds no study",
        next="give one of result.json",
    ),
    Mistake(
        what="one run compared",
        typed="compare measured",
        said="two",
        next="",
    ),
    Mistake(
        what="a report as PDF",
        typed="report measured --format pdf",
        said="pdf",
        next="html",
    ),
    Mistake(
        what="private training of chats without a template",
        typed="dp-check chats.jsonl --model base --epsilon 8",
        said="template",
        next="",
    ),
    Mistake(
        what="more canaries than the corpus bears",
        typed="insert corpus.txt --format pin --canaries 2000 --out new",
        said="",
        next="",
    ),
    Mistake(
        what="too few models for a sweep's question",
        typed="sweep corpus.txt --models 5 --out new",
        said="5 models are too few",
        next="--models",
    ),
    Mistake(
        what="too few models for a comparison of defences",
        typed="defences corpus.txt --methods relaxloss,hamp --models 5 --out new",
        said="5 models are too few",
        next="--models",
    ),
    Mistake(
        what="a keyword of another name, in Python",
        typed='lx.insert(["a", "b"], format="pin")',
        said="'format'",
        next="did you mean 'formats'?",
    ),
    Mistake(
        what="a value of a threshold that is a switch",
        typed="check measured --p-value 0.01",
        said="0.01",
        next="",
    ),
)


def prepare(home: Path) -> None:
    """What the mistakes are made with."""
    import lmexposure as lx

    lines = sentences(400)
    (home / "corpus.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (home / "empty.txt").write_text("")
    (home / "page.html").write_text("<html></html>")
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    for name, record in {
        "qa": {"question": "a", "answer": "b"},
        "chats": {"messages": turns},
    }.items():
        (home / f"{name}.jsonl").write_text((json.dumps(record) + "\n") * 60)
    (home / "torn.jsonl").write_text('{"text": "a"}\n{"text": \n')
    base, shown = _DATA / "measured" / "gpt2" / "model", _DATA / "shown"
    for name in ("base", "models/base", "bare"):
        shutil.copytree(base, home / name)
    for path in (home / "bare").glob("*token*"):
        path.unlink()
    (home / "adapter").mkdir()
    named = {"base_model_name_or_path": "/gone/base", "peft_type": "LORA"}
    (home / "adapter/adapter_config.json").write_text(json.dumps(named))
    (home / "adapter/adapter_model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    shutil.copytree(shown / "demo", home / "measured")
    shutil.copytree(shown / "demo", home / "trained")
    (home / "mine").mkdir()
    (home / "mine/photo.jpg").write_bytes(b"")
    _, manifest = lx.insert(lines, formats=["pin"], canaries=4, repetitions=[1, 4], controls=4)
    (home / "canaried").mkdir()
    manifest.write(home / "canaried/manifest.json")
