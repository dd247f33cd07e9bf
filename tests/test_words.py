"""Plain English of the field: words that were withdrawn are in no module, template or page of ours.

A word is withdrawn where readers stumbled over it; what to write instead is next to it here.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
READ = (
    *sorted((ROOT / "lmexposure").rglob("*.py")),
    *sorted((ROOT / "lmexposure" / "core" / "templates").iterdir()),
    *sorted(path for path in (ROOT / "docs").rglob("*") if path.suffix in (".md", ".ipynb")),
    *sorted(ROOT.glob("*.md")),
)
# What a thing stands for, and what stands alone, has no better word.
INSTEAD = {
    r"st(?:and|ands|anding|ood)(?! for\b|-alone\b)": "say what it is or does: is, has, goes, lies",
    r"so many": "give the number, or write: as many",
    r"nobody": "say who does not, or write: no one",
    r"besides": "write: also, too, next to",
    r"soundness": "what must hold before a number counts is a precondition",
}
# What went with version 0.1 is told of nowhere: not in a module, a page, a help or a message.
GONE = (
    *("budget_share", "full_at_end", "spent_seconds", "TimeBudget", "PacedScoring"),
    *("multivariate_lira", "token_lira", "bits_against_base", "AgainstBase"),
    *("--candidates", "--coin-seed", "coin_seed", "OLD_SETTING_NAMES"),
    *("older_names", "manifest_upgrades", "result_upgrades", "from_version_", "as_version_"),
    *("remove_from_stream", "first_records", "is_standard_output"),
    *("rare_suffix", "high_temperature", "model_pair", "--kind-base", "kind_base"),
    *("--other-text", "other_text", "kind_named", "texts_apart", "model_texts"),
)
SHOWN = (
    *(path for path in READ if path.name != "CHANGELOG.md"),
    *sorted((ROOT / "tests" / "golden" / "expected" / "command_line").iterdir()),
)
# A variable of such a name does not say what it holds.
NO_NAMES = {"one", "ones"}


def withdrawn_words(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, word and advice, of each withdrawn word."""
    for number, line in enumerate(text.splitlines(), start=1):
        for word, advice in INSTEAD.items():
            for found in re.finditer(rf"\b{word}\b", line, re.IGNORECASE):
                yield number, found[0], advice


def withdrawn_names(text: str) -> Iterator[tuple[int, str, str]]:
    """The same of the variables, arguments and functions of a module."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.FunctionDef(name=name)
            ):
                if name in NO_NAMES:
                    yield node.lineno, name, "name it after what it is: canary, row, text"


def test_no_withdrawn_word_comes_back() -> None:
    lines = []
    for path in READ:
        text = path.read_text(encoding="utf-8")
        found = [*withdrawn_words(text), *(withdrawn_names(text) if path.suffix == ".py" else ())]
        lines += [f"{path.relative_to(ROOT)}:{line}: {word!r}: {say}" for line, word, say in found]
    assert not lines, "\n".join(lines)


def test_nothing_tells_of_what_is_gone() -> None:
    told = [
        (path.name, name)
        for path in SHOWN
        for name in GONE
        if re.search(rf"(?<![\w-]){name}", path.read_text(encoding="utf-8"))
    ]
    assert told == []
    assert re.search(r"(?<![\w-])--candidates", "give --candidates 5")


def test_withdrawn_words_are_found() -> None:
    text = "A canary stands for text.\nThe line stands there, besides nobody reads so many.\n"
    assert [(line, word) for line, word, _ in withdrawn_words(text)] == [
        (2, "stands"),
        (2, "so many"),
        (2, "nobody"),
        (2, "besides"),
    ]
    names = withdrawn_names("def one(ones, canary):\n    return ones\n")
    assert [(line, name) for line, name, _ in names] == [(1, "one"), (1, "ones")]
