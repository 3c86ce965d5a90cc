"""JSON of another content that is still JSON: values, keys, lists, names given twice."""

import json
import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any

JSON_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 3, 16, 2**31, 2**63, 2**64, 10**400, 0.5, -0.0, 1e999, float("nan")),
    *(
        "",
        "x",
        "\ud800",
        "\x1b[2J",
        "F32",
        "U8",
        "BF16",
        "F8_E4M3",
        "../x.safetensors",
        [],
        {},
        [[]],
        [{}],
        [1, 2],
        {"a": 1},
    ),
]


def rewrite(text: str, rng: random.Random) -> str:
    """JSON of another content: values replaced, keys dropped, renamed, doubled or added, lists changed."""
    value = json.loads(text)
    for _ in range(rng.choice([1, 1, 2])):
        _edit(value, rng)
    out = json.dumps(value)
    if rng.random() < 0.1 and value:  # a name given twice
        out = out.replace("{", f"{{{json.dumps(rng.choice(list(value)))}: {json.dumps(rng.choice(JSON_VALUES))}, ", 1)
    return out


def _edit(value: Any, rng: random.Random) -> None:
    """One edit somewhere inside; the deeper places are the more numerous ones."""
    inner = [v for v in (value.values() if isinstance(value, dict) else value) if isinstance(v, (dict, list)) and v]
    if inner and rng.random() < 0.7:
        _edit(rng.choice(inner), rng)
        return
    if not value:
        return
    key: Any = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
    how: Callable[[], None] = rng.choice(
        [
            lambda: value.__setitem__(key, deepcopy(rng.choice(JSON_VALUES))),
            lambda: value.__setitem__(key, _near(value[key], rng)),
            lambda: value.pop(key),
            lambda: _add(value, key, rng),
            lambda: _swap(value, key, rng),
        ]
    )
    how()


def _near(old: Any, rng: random.Random) -> Any:
    """Another value of the same type where there is one."""
    if isinstance(old, bool) or old is None:
        return not old
    if isinstance(old, (int, float)):
        old = old if abs(old) < 1e300 else 1  # beyond it, the steps below overflow
        return rng.choice([old + 1, old - 1, old * 2, -old, old // 2, float(old), str(old), old + 2**32])
    if isinstance(old, str):
        return rng.choice([old.upper(), old + "x", old[:-1], old + "\0", old * 50])
    return [old] if isinstance(old, dict) else {"a": old}


def _add(value: Any, key: Any, rng: random.Random) -> None:
    if isinstance(value, list):
        value.insert(key, deepcopy(rng.choice(JSON_VALUES)))
    else:
        value[rng.choice([f"{key}x", f"{key}_scale", "", "__metadata__", "lm_head.weight"])] = deepcopy(value[key])


def _swap(value: Any, key: Any, rng: random.Random) -> None:
    other: Any = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
    value[key], value[other] = value[other], value[key]
