"""A page as the text that a reader meets: headings, tables, labels, names of charts; no drawing."""

from html.parser import HTMLParser

__all__ = ["page_text"]

_LEFT_OUT = {"style", "script", "meta", "link"}  # their own tests hold these
_INLINE = {"a", "span", "strong", "em", "code", "b", "i", "input", "label"}
_CELLS = {"td", "th", "dd"}
_KEPT = {"id", "href", "title", "alt", "role", "for", "name", "value", "placeholder", "hidden"}
_VOID = {"meta", "link", "input", "br", "hr", "img"}


def page_text(page: str) -> str:
    """One line per block of a page, table rows with bars between cells.

    Of attributes those that are read, linked to or labelled by are kept; of a drawing only its
    labels, its title and its description.
    """
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert not reader.open, f"never closed: {reader.open}"
    lines = (" ".join(line.split()) for line in "".join(reader.parts).split("\n"))
    return "".join(f"{line}\n" for line in lines if line)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.open.append(tag)
        if tag in _LEFT_OUT or ("svg" in self.open[:-1] and tag not in ("title", "desc")):
            return
        kept = [_attribute(name, value) for name, value in attrs if _is_kept(name)]
        self.parts.append(" | " if tag in _CELLS else "" if tag in _INLINE else "\n")
        if kept:
            self.parts.append(f"<{tag} {' '.join(kept)}> ")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Parts of a drawing."""
        assert "svg" in self.open, tag

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag not in _INLINE | _CELLS and "svg" not in self.open:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if _LEFT_OUT & set(self.open):
            return
        if "svg" not in self.open or self.open[-1] in ("title", "desc"):
            # In a pre-formatted block each line is one.
            self.parts.append(data if "pre" in self.open else data.replace("\n", " "))


def _is_kept(name: str) -> bool:
    return name in _KEPT or name.startswith("aria-")


def _attribute(name: str, value: str | None) -> str:
    return name if value is None else f"{name}={value!r}"
