"""The kinds of study that there are, by name: what opens, refuses and lists them asks here.

Kinds come from `register`, and from packages outside that have an entry point in the group
`lmexposure.studies`. Nothing of a kind is imported before it is needed.
"""

GROUP = "lmexposure.studies"
_HOMES: dict[str, str] = {}
BEGUN: dict[str, str] = {}  # by kind, the file of a directory whose record is not there yet
PARTS: set[str] = set()  # kinds whose record may lie next to that of another
# By file, in words what a directory is of that is no study: "a training".
OTHERS: dict[str, str] = {}


def register(
    kind: str,
    home: str,
    *,
    begun: str = "",  # the file that says so of a directory before its record is there
    part: bool = False,  # whether its record may lie next to that of another kind
) -> None:
    """Make a kind known: its record is KIND.json, its class is at `home`, "module:Class"."""
    _HOMES[kind] = home
    if begun:
        BEGUN[kind] = begun
    if part:
        PARTS.add(kind)


def own_records() -> list[str]:
    """The records of this package's kinds, in the order of their registration."""
    return [f"{kind}.json" for kind, home in _HOMES.items() if home.startswith("lmexposure.")]


def kinds() -> dict[str, str]:
    """Every kind that there is, those of packages outside too, and where it lives."""
    from importlib.metadata import entry_points  # takes a tenth of a second

    return {point.name: point.value for point in entry_points(group=GROUP)} | _HOMES
