"""Every way to multiply gives the golden integers, and one that does not is found."""

import numpy as np
import pytest

from tritgold.layers.bit_linear import accumulate
from tritgold_conformance.bench import matrices
from tritgold_conformance.bench.roofline import COLUMNS, Buffer


@pytest.mark.parametrize("size", [(8, 8), (300, 256), (5, 7), (64, 2560)])
@pytest.mark.parametrize("tokens", [1, 3])
def test_numpy_s_ways_are_exact(size: tuple[int, int], tokens: int) -> None:
    weights, codes = matrices.matrix(*size), matrices.codes_of(tokens, size[1])
    ways = matrices.numpy_kernels(weights)
    tables = ["look-up table", "TL1", "TL2"] if size[1] % 4 == 0 else []
    assert {way.name for way in ways} == {"naive", "cached f32", "f16", "w + 1, rows", "w + 1, columns", *tables}
    for way in ways:
        assert matrices.wrong(way, codes, weights) == "", way.name
        assert np.array_equal(way.run(codes), accumulate(codes, weights)[:, : way.rows])
        assert matrices.seconds_of(way, codes, size[0]) > 0


@pytest.mark.parametrize(("size", "tokens"), [((8, 128), 1), ((96, 640), 2), ((96, 640), 33)])
def test_the_engine_s_ways_are_exact(size: tuple[int, int], tokens: int) -> None:
    pytest.importorskip("jax")
    from tritgold_conformance.engines.xla_products import products

    weights, codes = matrices.matrix(*size), matrices.codes_of(tokens, size[1])
    found = products(weights)
    assert {"bf16", "f16", "TL1", "TL2", "w + 1, rows", "w + 1, columns"} < {product.name for product in found}
    for product in found:
        rows = product.rows or size[0]
        assert np.array_equal(np.asarray(product.run(codes)), accumulate(codes, weights[:rows])), product.name
        assert product.moved >= weights.size * 1.6 / 8
        assert product.why


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda sums: sums + (np.arange(sums.size).reshape(sums.shape) == 3), "1 of 16 products differ"),
        (lambda sums: np.where(sums == sums.max(), np.nan, sums), "products differ"),
        (lambda sums: sums[:, :-1], "expected"),
    ],
)
def test_a_wrong_product_is_found(spoil: object, said: str) -> None:
    weights, codes = matrices.matrix(8, 16), matrices.codes_of(2, 16)
    right = matrices.numpy_kernels(weights)[0]
    assert matrices.wrong(right, codes, weights) == ""
    assert callable(spoil)
    assert said in matrices.wrong(right._replace(run=lambda c: spoil(right.run(c))), codes, weights)


def test_a_part_of_the_rows_counts_for_all() -> None:
    way = matrices.Kernel("slow", "", 0, 4, lambda codes: sum(range(200_000)))
    part, whole = (min(matrices.seconds_of(way, np.zeros((1, 4), np.int8), out) for _ in range(5)) for out in (4, 400))
    assert whole > 20 * part


def test_the_bandwidth_is_that_of_the_whole_buffer() -> None:
    seen = []

    def reader(buffer: np.ndarray) -> object:
        assert buffer.dtype == np.int32
        assert buffer.shape[1] == COLUMNS
        return lambda: seen.append(buffer.nbytes)

    size = 1 << 20
    found = Buffer(2, reader, size=size).bandwidth(runs=3)  # type: ignore[arg-type]
    assert list(found) == ["numpy maximum", "compiled column sums"]
    assert seen == [size] * 4
    assert all(speed > 0 for speed in found.values())
    assert list(Buffer(1, None, size=size).bandwidth(runs=1)) == ["numpy maximum"]
