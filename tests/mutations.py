"""Damage to a JSON file: one random change of a value, type, key, order, depth, size or byte."""

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from lmexposure._files import canonical_json, sha256_bytes

__all__ = ["Mutation", "mutations"]

_CONTENT = "content_sha256"
_MARK = "@@here@@"
_OTHERS: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    7,
    2.5,
    10**400,
    "x",
    "",
    "7",
    [],
    {},
    [[]],
    {"a": 1},
)


class Mutation(NamedTuple):
    """One damaged file."""

    what: str  # kind and place
    content: bytes
    hashed: bool  # whether its hash was made anew, and does not show the change


def mutations(values: dict[str, Any], number: int, *, seed: int) -> Iterator[Mutation]:
    """Random changes of a sound file, every second with a hash that fits where there is one."""
    rng = random.Random(seed)
    kinds = (_value, _type, _key, _order, _twice, _depth, _size, _bytes)
    text = json.dumps(values)
    for count in range(number):
        kind = kinds[count % len(kinds)]
        changed = json.loads(text)
        what, content = kind(rng, changed)
        hashed = False
        if rng.random() < 0.5 and content is None:
            changed.pop(_CONTENT, None)
            try:
                changed[_CONTENT] = sha256_bytes(canonical_json(changed))
                hashed = True
            except ValueError:
                pass
        if content is None:
            content = json.dumps(changed).encode()
        yield Mutation(f"{kind.__name__.strip('_')}: {what}", content, hashed)


Made = tuple[str, bytes | None]  # where, and the file if it is no JSON of the changed values


def _place(rng: random.Random, values: Any, *, inner: type | None = None) -> tuple[Any, Any, str]:
    """(parent, key, path) of a random part; of a kind, where one is asked for."""
    while True:
        parent, key, path = None, None, ""
        node = values
        while isinstance(node, dict | list) and node:
            parent = node
            key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
            path += f"/{key}"
            node = node[key]
            if isinstance(node, dict | list) and rng.random() < 0.15:
                break
        if parent is not None and (inner is None or (isinstance(node, inner) and node)):
            return parent, key, path


def _value(rng: random.Random, values: Any) -> Made:
    parent, key, path = _place(rng, values)
    old = parent[key]
    if isinstance(old, bool):
        parent[key] = not old
    elif isinstance(old, int | float):
        parent[key] = rng.choice([old + 1, old * 2 + 0.5, -old - 1, old + 1e-3, 0, 1e308])
    elif isinstance(old, str):
        numeric = str(int(old) + 1) if old.isdecimal() and len(old) < 50 else old[::-1]
        parent[key] = rng.choice([numeric, old + "x", "sampled", "canary"])
    else:
        parent[key] = rng.choice([1, 0.5, "text"])
    return path, None


def _type(rng: random.Random, values: Any) -> Made:
    parent, key, path = _place(rng, values)
    parent[key] = rng.choice(_OTHERS)
    return path, None


def _key(rng: random.Random, values: Any) -> Made:
    parent, key, path = _place(rng, values, inner=dict)
    table = parent[key]
    name = rng.choice(list(table))
    change = rng.choice(["gone", "renamed", "added"])
    if change == "added":
        table["surprise"] = rng.choice(_OTHERS)
    else:
        inner = table.pop(name)
        if change == "renamed":
            table[name + "s"] = inner
    return f"{path}/{name} {change}", None


def _order(rng: random.Random, values: Any) -> Made:
    parent, key, path = _place(rng, values, inner=rng.choice([dict, list]))
    if isinstance(parent[key], list):
        parent[key] = parent[key][::-1]
    else:
        names = list(parent[key])
        rng.shuffle(names)
        parent[key] = {name: parent[key][name] for name in names}
    return path, None


def _twice(rng: random.Random, values: Any) -> Made:
    """A key that is there twice: which one counts is up to the reader."""
    parent, key, path = _place(rng, values, inner=dict)
    name = rng.choice(list(parent[key]))
    spelled = json.dumps(parent[key][name])
    parent[key][name] = _MARK
    other = rng.choice([spelled, "0", '"x"', "null"])
    pair = f"{other}, {json.dumps(name)}: {spelled}"
    return f"{path}/{name}", json.dumps(values).replace(json.dumps(_MARK), pair).encode()


def _depth(rng: random.Random, values: Any) -> Made:
    parent, key, path = _place(rng, values)
    spelled, depth = json.dumps(parent[key]), rng.choice([1, 3, 200, 100_000])
    parent[key] = _MARK
    nested = "[" * depth + spelled + "]" * depth
    return f"{path} {depth} deep", json.dumps(values).replace(json.dumps(_MARK), nested).encode()


def _size(rng: random.Random, values: Any) -> Made:
    parent, key, path = _place(rng, values)
    old = parent[key]
    if isinstance(old, list):
        parent[key] = old * 50
    elif isinstance(old, str):
        parent[key] = old * 2_000
    elif isinstance(old, dict):
        parent[key] = old | {f"n{i}": 1 for i in range(200)}
    else:
        parent[key] = _MARK
        digits = "9" * rng.choice([20, 400, 5_000])
        return path, json.dumps(values).replace(json.dumps(_MARK), digits).encode()
    return path, None


def _bytes(rng: random.Random, values: Any) -> Made:
    content = bytearray(json.dumps(values, ensure_ascii=False).encode())
    place = rng.randrange(len(content))
    change = rng.choice(["cut", "flipped", "nan", "bom", "halves"])
    if change == "cut":
        del content[place:]
    elif change == "flipped":
        content[place] ^= 1 << rng.randrange(8)
    elif change == "nan":
        parent, key, _ = _place(rng, values)
        parent[key] = float("nan")
        content = bytearray(json.dumps(values).encode())
    elif change == "bom":
        content[:0] = b"\xef\xbb\xbf"
    else:
        parent, key, _ = _place(rng, values)
        parent[key] = "\ud800"
        content = bytearray(json.dumps(values).encode())
    return f"{change} at {place}", bytes(content)
