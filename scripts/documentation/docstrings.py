"""Our docstrings as the site's generator reads them."""

import ast
import re
import sys
from pathlib import Path

import griffe

sys.path.insert(0, str(Path(__file__).parent))
from fields import meanings

# In plain Markdown `>>>` would be quotes in quotes of quotes.
_SESSION = re.compile(r"(?:^ *>>> .*\n?(?:^ *(?!>>> )\S.*\n?)*)+", re.MULTILINE)
# One entry of a section may be of several names: "low, high: the ends."
_SEVERAL = re.compile(r"^( {4})(\w+(?:, \w+)+): (.*(?:\n {5,}\S.*)*)", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Fences sessions, splits entries of several names, gives fields what comments say of them."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: object) -> None:
        if attr.docstring is None and isinstance(attr.parent, griffe.Class):
            classes = meanings(Path(str(attr.filepath)))
            said = classes.get(attr.parent.name, {}).get(attr.name) or _help(attr)
            if said:
                attr.docstring = griffe.Docstring(said, parent=attr)

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            text = _SEVERAL.sub(_entries, obj.docstring.value)
            obj.docstring.value = _SESSION.sub(_fenced, text)


def _help(attr: griffe.Attribute) -> str:
    """What a setting decides, as its declaration says it."""
    match ast.parse(str(attr.value), mode="eval").body if attr.value else None:
        case ast.Call(func=ast.Name(id="setting"), args=[_, said, *_]):
            return "".join(
                part.value if isinstance(part, ast.Constant) else ast.unparse(part)
                for part in (said.values if isinstance(said, ast.JoinedStr) else [said])
            )
    return ""


def _entries(found: re.Match[str]) -> str:
    indent, names, text = found.groups()
    return "\n".join(f"{indent}{name}: {text}" for name in names.split(", "))


def _fenced(session: re.Match[str]) -> str:
    return f"\n```pycon\n{session[0].rstrip()}\n```\n"
