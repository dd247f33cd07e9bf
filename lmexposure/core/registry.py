"""The kinds of study that there are, by name: what opens, refuses and lists them asks here.

Kinds come from `register`, and from packages outside that have an entry point in the group
`lmexposure.studies`. Nothing of a kind is imported before it is needed.
"""

GROUP = "lmexposure.studies"
_HOMES: dict[str, str] = {}
_BEGUN: dict[str, str] = {}  # by kind, the file of a directory whose record is not there yet


def register(kind: str, home: str, *, begun: str = "") -> None:
    """Make a kind known.

    Args:
        kind: its name; its record is KIND.json.
        home: its "module:Class".
        begun: a file that says that a directory is of this kind before its record is there.
    """
    _HOMES[kind] = home
    if begun:
        _BEGUN[kind] = begun


def own_records() -> list[str]:
    """The records of this package's kinds, in the order of their registration."""
    return [f"{kind}.json" for kind, home in _HOMES.items() if home.startswith("lmexposure.")]


def kinds() -> dict[str, str]:
    """Every kind that there is, and where it lives."""
    return {**_outside(), **_HOMES}


def _outside() -> dict[str, str]:
    """Those of packages that have an entry point for them."""
    from importlib.metadata import entry_points  # takes a tenth of a second

    return {point.name: point.value for point in entry_points(group=GROUP)}


def begun_by() -> dict[str, str]:
    """Kinds that have a file before their record, and its name."""
    return dict(_BEGUN)
