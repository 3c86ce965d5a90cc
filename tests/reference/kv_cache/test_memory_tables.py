"""What caches cost, as arithmetic: the tables of the WrinkleFree notebook and of llama.cpp, and the bits a value."""

import pytest
from kv_cases import ALL, SHAPE, random_kv, scheme_id

from tritgold.kv_cache.base import KvScheme, Sizes
from tritgold.kv_cache.kv_scheme import SCHEMES, kv_scheme
from tritgold.kv_cache.token_rows import ContiguousCache

MIB = 1 << 20
NOTEBOOK = Sizes(layers=32, kv_heads=32, head_dim=128)
BITNET_2B = Sizes(layers=30, kv_heads=5, head_dim=128)


@pytest.mark.parametrize(
    ("name", "mib"), [("bf16", 4096), ("f16", 4096), ("f32", 8192), ("fp8_e4m3", 2048), ("fp8_e5m2", 2048)]
)
def test_the_notebook_s_table_for_8192_tokens(name: str, mib: int) -> None:
    """tokens * layers * 2 * heads * head_dim * bytes of a value."""
    scheme = kv_scheme(name)
    assert scheme.cache_bytes(NOTEBOOK, 8192) == mib * MIB == 8192 * 32 * 2 * 32 * 128 * mib // 2048
    for tokens in (1024, 2048, 4096, 16384):
        assert scheme.cache_bytes(NOTEBOOK, tokens) == mib * MIB * tokens // 8192


def test_what_its_table_leaves_out_are_scales() -> None:
    """A scale a layer and side is nothing; those that int8 needs for each token and head are 3 %."""
    assert kv_scheme("fake_fp8").cache_bytes(NOTEBOOK, 8192) == 2048 * MIB + 32 * 2 * 4
    assert kv_scheme("int8").cache_bytes(NOTEBOOK, 8192) == 2112 * MIB
    assert kv_scheme("fake_fp8", overwrite=False).cache_bytes(NOTEBOOK, 8192) == 2048 * MIB + 8192 * 32 * 2 * 4


def test_a_row_of_bitnet_2b_as_llama_cpp_has_it() -> None:
    rows = {
        name: kv_scheme(name).bytes_per_token(BITNET_2B) / 2 for name in ("f32", "f16", "q8_0", "q5_0", "q4_1", "q4_0")
    }
    assert rows == {"f32": 2560, "f16": 1280, "q8_0": 680, "q5_0": 440, "q4_1": 400, "q4_0": 360}
    assert kv_scheme("f16").cache_bytes(BITNET_2B, 4096) == 300 * MIB


def test_bits_a_value() -> None:
    bits = {name: kv_scheme(name).bits_per_value(Sizes(1, 1, 128)) for name in SCHEMES}
    assert bits == {
        "f32": 32, "f16": 16, "bf16": 16, "fp8_e4m3": 8, "fp8_e5m2": 8, "int8": 8.25, "fake_fp8": 8, "q8_0": 8.5,
        "q5_0": 5.5, "q4_1": 5, "q4_0": 4.5, "kivi2": 3, "kivi4": 5, "affine": 4.1875, "hadamard": 4.1875,
        "turboquant": 4.125, "a4_8": 3.1875, "split": 12.25,
    }  # fmt: skip


@pytest.mark.parametrize("scheme", ALL, ids=scheme_id)
def test_what_is_said_is_what_is_held(scheme: KvScheme) -> None:
    """Bytes of the arrays of a full cache, its KIVI windows settled."""
    k, v = random_kv(70)
    cache = scheme.cache(SHAPE, 70)
    for layer in range(2):
        cache.append(layer, k, v)
    cache.advance(70)
    for layer in range(2):
        cache.append(layer, k[:0], v[:0])
    held = vars(cache)
    match scheme.name:
        case "f32":
            size = held["_keys"].nbytes + held["_values"].nbytes
        case "fake_fp8":
            size = held["_codes"].nbytes + (held["_scales"].nbytes if "overwrite" in scheme.id else 2 * 2 * 4)
        case "kivi2" | "kivi4":
            size = sum(tail.nbytes for tails in held["_tails"].values() for tail in tails)
            for side, groups in held["_groups"].items():
                done = held["_done"][side][0] // (32 if side == "k" else 1)
                size += sum(a[:, :done].nbytes for a in vars(groups).values() if not isinstance(a, int))
        case _:
            assert isinstance(cache, ContiguousCache)
            size = sum(rows.nbytes for rows in held["_rows"].values())
            replaced = 0 if scheme.name != "a4_8" else 2 * scheme.bytes_per_token(SHAPE)
            size += sum(row.nbytes for row in held["_first"].values()) - replaced
    assert size == scheme.cache_bytes(SHAPE, 70)
