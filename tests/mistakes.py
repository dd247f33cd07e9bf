"""The 42 usual mistakes: what was typed, what says what is wrong, and what to do next.

Nothing here imports torch.
"""

import importlib
import io
import json
import shutil
import sys
import time
from contextlib import redirect_stderr, redirect_stdout, suppress
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
    code: int | None = 3  # the exit code; None: a warning of what goes on
    # why it cannot be known before torch, and the test of what is said then; "": it is known
    late: str = ""


MISTAKES = (
    Mistake(
        what="a corpus that is not there",
        typed="run corpsu.txt --out new",
        said="corpsu.txt",
        next="give a text file",
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
        said="the first records have the fields 'question', 'answer'",
        next="--prompt-field with --completion-field",
    ),
    Mistake(
        what="a line that is no JSON",
        typed="insert torn.jsonl --out new",
        said="torn.jsonl: line 2 is not JSON",
        next="give one object a line",
    ),
    Mistake(
        what="an empty corpus, inserted into",
        typed="insert empty.txt --out new",
        said="the corpus empty.txt is empty",
        next="give a file with text in it",
    ),
    Mistake(
        what="an empty corpus, run",
        typed="run empty.txt --model base --out new",
        said="the corpus empty.txt is empty",
        next="give a file with text in it",
    ),
    Mistake(
        what="the base measured in place of its adapter",
        typed="",
        said="",
        next="",
        late="only its weights say that it read nothing: audit/test_witness_seen.py",
    ),
    Mistake(
        what="an empty corpus, looked at",
        typed="verbatim base blank.txt --out new",
        said="blank.txt holds no text",
        next="give files with documents in them",
    ),
    Mistake(
        what="no canaries",
        typed="insert corpus.txt --canaries 0 --out new",
        said="--canaries 0 must be",
        next="a whole number at least 1",
    ),
    Mistake(
        what="a range where a list belongs",
        typed="insert corpus.txt --repetitions 1-16 --out new",
        said="--repetitions 1-16 must be",
        next="such as 1,4,16",
    ),
    Mistake(
        what="a seed that is no number",
        typed="run corpus.txt --seed abc --out new",
        said="Invalid value for '--seed'",
        next="a valid integer",
    ),
    Mistake(
        what="a corpus in place of the manifest",
        typed="measure base corpus.txt --out new",
        said="corpus.txt is a corpus, and a manifest is asked for",
        next="give manifest.json",
    ),
    Mistake(
        what="the directory in place of the manifest",
        typed="verify corpus.txt canaried",
        said="NOT as it was inserted",
        next="missing",
        code=2,
    ),
    Mistake(
        what="model and manifest swapped",
        typed="measure canaried/manifest.json base --out new",
        said="canaried/manifest.json is a manifest",
        next="give the model first, then the manifest",
    ),
    Mistake(
        what="a manifest in place of the model",
        typed="measure canaried/manifest.json canaried --out new",
        said="'canaried/manifest.json' is a manifest",
        next="give the directory of the model",
    ),
    Mistake(
        what="model and corpus swapped",
        typed="verbatim corpus.txt base --out new",
        said="base is a model, and a corpus is asked for",
        next="give files of text there",
    ),
    Mistake(
        what="a manifest in place of the corpus",
        typed="run canaried/manifest.json --out new",
        said="is a manifest, and a corpus is asked for",
        next="give its files, such as 'canaried/corpus/*'",
    ),
    Mistake(
        what="the weights' file in place of the model",
        typed="measure base/model.safetensors canaried/manifest.json --out new",
        said="is a file",
        next="give the directory that holds it",
    ),
    Mistake(
        what="a model that is not there",
        typed="measure ./adaptor canaried/manifest.json --out new",
        said="'./adaptor': no such directory",
        next="did you mean 'adapter'?",
    ),
    Mistake(
        what="a model that is not there, beside one that is",
        typed="run corpus.txt --model models/bsae --out new",
        said="'models/bsae': no such directory",
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
        said="the tokenizer of 'bare' is missing",
        next="save it next to the model",
    ),
    Mistake(
        what="a model without a tokenizer, trained",
        typed="run corpus.txt --model bare --out new",
        said="the tokenizer of 'bare' is missing",
        next="save it next to the model",
    ),
    Mistake(
        what="an adapter whose base has gone",
        typed="measure adapter canaried/manifest.json --out new",
        said="adapter 'adapter' names a base that cannot be used",
        next="put it there again, or set base_model_name_or_path",
    ),
    Mistake(
        what="no GPU, measuring",
        typed="measure base canaried/manifest.json --device cuda --out new",
        said="--device cuda is not available here",
        next="use 'cpu'",
    ),
    Mistake(
        what="chats whose template marks no answers",
        typed="",
        said="",
        next="",
        late="the tokenizer finds the answers by rendering: models/test_published_chats.py",
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
        next="or its directory",
    ),
    Mistake(
        what="a page that is checked, in Python",
        typed='lx.check("page.html")',
        said="page.html holds no study",
        next="or its directory",
    ),
    Mistake(
        what="one run compared",
        typed="compare measured",
        said="1 study to compare",
        next="give two or more",
    ),
    Mistake(
        what="a report as PDF",
        typed="report measured --format pdf",
        said="--format pdf must be",
        next="one of html, md",
    ),
    Mistake(
        what="private training of chats without a template",
        typed="dp-check chats.jsonl --model base --epsilon 8",
        said="the tokenizer of 'base' has no chat template",
        next="give the file chat_template.jinja",
    ),
    Mistake(
        what="more canaries than the corpus bears",
        typed="insert corpus.txt --format pin --canaries 2000 --out new",
        said="% of the corpus' bytes",
        next="--set max_share=1 inserts them all the same",
    ),
    Mistake(
        what="too few models for a sweep's question",
        typed="sweep corpus.txt --models 5 --out swept",
        said="5 models are too few for the worst of 100 canaries",
        next="give --models 27",
        code=None,
    ),
    Mistake(
        what="too few models for a comparison of defences",
        typed="defences corpus.txt --methods relaxloss,hamp --models 5 --out new",
        said="--models 5 with",
        next="it takes 28 models",
    ),
    Mistake(
        what="a keyword of another name, in Python",
        typed='lx.insert(["a", "b"], format="pin")',
        said="'format'",
        next="it has formats",
    ),
    Mistake(
        what="a value of a threshold that is a switch",
        typed="check measured --p-value 0.01",
        said="--p-value takes no value",
        next="leave out 0.01",
    ),
)

MORE = (
    Mistake(
        what="a method of defence mistyped",
        typed="defences corpus.txt --methods relaxlos --models 40 --out new",
        said="'relaxlos' is no defence",
        next="choose from none, early-stop",
    ),
    Mistake(
        what="a tokenizer that is not there",
        typed="insert chats.jsonl --tokenizer models/bsae --out new",
        said="no tokenizer: model 'models/bsae': no such directory",
        next="did you mean 'models/base'?",
    ),
    Mistake(
        what="a tokenizer without files",
        typed="insert chats.jsonl --tokenizer bare --out new",
        said="the tokenizer of 'bare' is missing",
        next="save it next to the model",
    ),
    Mistake(
        what="more canaries than the corpus bears, run",
        typed="run corpus.txt --format pin --canaries 2000 --out new",
        said="% of the corpus' bytes",
        next="--set max_share=1 inserts them all the same",
    ),
    Mistake(
        what="--out of another model's measurement",
        typed="measure models/other canaried/manifest.json --out of_base",
        said="of_base holds the result of another model",
        next="choose another directory",
    ),
    Mistake(
        what="every option, where there are no more",
        typed="verify --help-all",
        said="Count canaries in a corpus",
        next="--tokenizer",
        code=0,
    ),
)
EVERY = MISTAKES + MORE


def prepare(home: Path) -> None:
    """What the mistakes are made with."""
    import lmexposure as lx
    from lmexposure.studies import Result

    lines = sentences(400)
    (home / "corpus.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (home / "empty.txt").write_text("")
    (home / "blank.txt").write_text("\n \n")
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
    shutil.copytree(base, home / "models/other")
    weights = home / "models/other/model.safetensors"
    own = weights.read_bytes()
    header = 8 + int.from_bytes(own[:8], "little")
    weights.write_bytes(own[:header] + bytes(len(own) - header))
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
    (home / "canaried/corpus").mkdir(parents=True)
    manifest.write(home / "canaried/manifest.json")
    (home / "of_base").mkdir()
    result = Result.read_alone(shown / "demo/result.json")
    model = result.model.model_copy(update={"path": "base"})
    of_base = result.model_copy(update={"model": model, "manifest_sha256": manifest.sha256})
    of_base.write(home / "of_base/result.json")


@dataclass(frozen=True)
class Answer:
    """What became of one."""

    code: int | None  # the exit code; None: work that went on was stopped
    said: str  # on standard error and output, as one line
    seconds: float  # of the processor
    torch: bool  # whether it was imported


class _Answered(BaseException):
    """All was said that was waited for."""


class _Heard(io.TextIOWrapper):
    """Standard output and error, until a text is there."""

    def __init__(self, awaited: str) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8")
        self.said, self._awaited = "", awaited

    def write(self, text: str) -> int:
        self.said = " ".join(f"{self.said}{text}".split()) + " " * text[-1:].isspace()
        if self._awaited and self._awaited in self.said:
            raise _Answered
        return len(text)


def answer(mistake: Mistake) -> Answer:
    """Make one in this process, in a directory that was prepared."""
    from lmexposure.cli.entry import main
    from lmexposure.errors import LmexposureError

    heard = _Heard(mistake.next if mistake.code is None else "")
    code, begun = None, time.process_time()
    with redirect_stdout(heard), redirect_stderr(heard), suppress(_Answered):
        try:
            if mistake.typed.startswith("lx."):
                eval(mistake.typed, {"lx": importlib.import_module("lmexposure")})
            else:
                sys.argv = ["lmexposure", *mistake.typed.split()]
                main()
        except LmexposureError as failure:
            code = 3
            heard.write(str(failure))
        except SystemExit as ended:
            code = int(str(ended.code))
    return Answer(code, heard.said, time.process_time() - begun, "torch" in sys.modules)
