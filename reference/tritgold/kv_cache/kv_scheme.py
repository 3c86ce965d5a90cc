"""The registry of KV-cache schemes: ``kv_scheme(name, **options)`` makes one."""

from dataclasses import fields
from typing import Any

from tritgold.errors import ConfigError
from tritgold.kv_cache.a4_8 import A48
from tritgold.kv_cache.affine import Affine
from tritgold.kv_cache.base import KvScheme
from tritgold.kv_cache.bfloat16 import BF16
from tritgold.kv_cache.fake_fp8 import FakeFp8
from tritgold.kv_cache.float16 import F16
from tritgold.kv_cache.float32 import F32
from tritgold.kv_cache.fp8 import Fp8E4M3, Fp8E5M2
from tritgold.kv_cache.hadamard import Hadamard
from tritgold.kv_cache.int8 import Int8
from tritgold.kv_cache.kivi import Kivi2, Kivi4
from tritgold.kv_cache.q4_0 import Q40
from tritgold.kv_cache.q4_1 import Q41
from tritgold.kv_cache.q5_0 import Q50
from tritgold.kv_cache.q8_0 import Q80
from tritgold.kv_cache.split import Split
from tritgold.kv_cache.turboquant import TurboQuant

_ALL: tuple[type[KvScheme], ...] = (
    F32, F16, BF16, Fp8E4M3, Fp8E5M2, Int8, FakeFp8, Q80, Q50, Q41, Q40, Kivi2, Kivi4, Affine, Hadamard, TurboQuant,
    A48, Split,
)  # fmt: skip
SCHEMES: dict[str, type[KvScheme]] = {scheme.name: scheme for scheme in _ALL}
_SCHEMES_INSIDE = ("inner", "k", "v")  # options whose value is a scheme, or the name of one


def kv_scheme(name: str, **options: Any) -> KvScheme:
    """The scheme called ``name``, one of SCHEMES. options: the arguments of its constructor.

    Options that are schemes themselves may be given by name: ``kv_scheme("hadamard", inner="q4_0")``.

    Raises ConfigError for an unknown name (``unknown-kv-scheme``), and for an unknown option or an impossible value
    (``kv-option``).

    >>> from tritgold.kv_cache.base import Sizes
    >>> kv_scheme("q8_0").bits_per_value(Sizes(layers=1, kv_heads=5, head_dim=128))
    8.5
    >>> kv_scheme("hadamard", inner="q4_0").id
    'hadamard-inner-q4_0'
    """
    if not isinstance(name, str) or name not in SCHEMES:
        raise ConfigError(
            "no such KV-cache scheme", kind="unknown-kv-scheme", got=repr(name), expected=", ".join(SCHEMES)
        )
    scheme = SCHEMES[name]
    known = [f.name for f in fields(scheme)]
    switches = {f.name for f in fields(scheme) if isinstance(f.default, bool)}
    if unknown := [option for option in options if option not in known]:
        raise ConfigError(
            f"{name} has no such option",
            kind="kv-option",
            got=", ".join(unknown),
            expected=", ".join(known) or "none",
        )
    for option in switches & options.keys():  # otherwise any text, "false" too, would count as true
        if not isinstance(options[option], bool):
            thing, got = f"{name} {option}", repr(options[option])
            raise ConfigError("is not usable", kind="kv-option", thing=thing, got=got, expected="true or false")
    inside = {o: kv_scheme(options[o]) for o in _SCHEMES_INSIDE if isinstance(options.get(o), str)}
    return scheme(**{**options, **inside})
