"""Planes made a piece at a time are those of the whole matrix, and of a part only its own rows are unpacked."""

from contextlib import nullcontext
from dataclasses import dataclass, field

import jax
import numpy as np
import pytest

from tritgold.errors import EngineError
from tritgold.ternary import TernaryRows, TernaryTensor
from tritgold_xla import stacked_linear as module
from tritgold_xla.place import Part, Place
from tritgold_xla.stacked_linear import stacked_linear
from tritgold_xla.ternary_matmul import planes

OUT, IN, LAYERS = 23, 150, 2


@dataclass
class Weight:
    """A weight that may be read by rows, and writes down which were."""

    tensor: TernaryTensor
    whole: bool = False
    asked: list[slice] = field(default_factory=list)
    master = None

    @property
    def shape(self):
        return self.tensor.shape

    def ternary(self):
        assert self.whole, "the whole matrix was unpacked"
        return self.tensor

    def by_rows(self):
        return None if self.whole else TernaryRows(self.tensor.scale, self._rows)

    def _rows(self, rows):
        self.asked.append(rows)
        return self.tensor.trits[rows]


class Parts(Place):
    """Some parts of a matrix: what is put is a list of them."""

    def __init__(self, parts):
        super().__init__(jax.devices("cpu")[0])
        self._parts = parts

    def parts(self, role, shape, cut=True):
        return self._parts

    def put(self, role, parts, out, in_, cut=True):
        return parts


def weights(whole=False, scales=False):
    rng = np.random.default_rng(2)

    def one():
        scale = rng.random((OUT, 1), np.float32) if scales else np.asarray(rng.random(), np.float32)
        return Weight(TernaryTensor(rng.integers(-1, 2, (OUT, IN), np.int8), scale), whole)

    return [one() for _ in range(LAYERS)]


def check(part, bits, negatives, scales, layer, tensor):
    """The part's arrays of a layer are those of its own trits, with zeros where the part is padded."""
    own = np.zeros(part.shape, np.int8)
    trits = tensor.trits[part.rows, part.columns]
    own[: trits.shape[0], : trits.shape[1]] = trits
    expected, count = planes.packed(own)
    np.testing.assert_array_equal(bits[layer], expected)
    np.testing.assert_array_equal(negatives[layer], count)
    rows = np.broadcast_to(tensor.scale.reshape(-1), tensor.trits.shape[:1])[part.rows]
    np.testing.assert_array_equal(scales[layer, : rows.size], rows)


CUTS = {
    "whole": [Part(slice(0, OUT), slice(0, IN), (OUT, IN))],
    "rows": [Part(slice(8, 16), slice(0, IN), (8, IN)), Part(slice(16, OUT), slice(0, IN), (8, IN))],
    "nothing": [Part(slice(OUT, OUT), slice(0, IN), (8, IN))],
    "columns": [Part(slice(0, OUT), slice(0, 80), (OUT, 80)), Part(slice(0, OUT), slice(80, IN), (OUT, 80))],
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("piece", [4 * IN, 1 << 22])
def test_pieces_are_the_whole(monkeypatch, cut, whole, piece):
    monkeypatch.setattr(module, "_PIECE", piece)
    parts, called = CUTS[cut], []
    given = weights(whole, scales=True)
    made = stacked_linear("q", given, (OUT, IN), Parts(parts), lambda: called.append(1))
    assert len(called) == LAYERS
    for layer, weight in enumerate(given):
        for number, part in enumerate(parts):
            check(
                part, made.planes.bits[number], made.planes.negatives[number], made.scale[number], layer, weight.tensor
            )


@pytest.mark.parametrize("cut", CUTS)
def test_only_the_rows_of_the_parts_are_read_and_each_once(monkeypatch, cut):
    monkeypatch.setattr(module, "_PIECE", 4 * IN)
    stacked_linear("q", given := weights(), (OUT, IN), Parts(CUTS[cut]), lambda: None)
    wanted = sorted({row for part in CUTS[cut] for row in range(part.rows.start, part.rows.stop)})
    for weight in given:
        assert [row for rows in weight.asked for row in range(rows.start, rows.stop)] == wanted
        assert all(rows.stop - rows.start <= 4 for rows in weight.asked)


@pytest.mark.parametrize("scales", [False, True])
@pytest.mark.parametrize(("value", "refused"), [(1e-39, True), (-1e-45, True), (0, False), (1.1755e-38, False)])
def test_a_scale_that_would_be_flushed_to_zero_is_refused(scales, value, refused):
    given = weights(whole=True, scales=scales)
    given[1].tensor.scale.flat[-1] = value
    with pytest.raises(EngineError, match=r"layers\.1\.q: .* subnormal") if refused else nullcontext():
        stacked_linear("q", given, (OUT, IN), Parts(CUTS["whole"]), lambda: None)
