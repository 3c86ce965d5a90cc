"""A known fault at one place only: a layer, a matrix, a head, a channel."""

from collections.abc import Callable

import numpy as np
from base_engine import Engine, F
from full_engine import FullEngine
from registry import faulty, made

KIND = "one_place"


def _norm_eps(place: str, eps: float) -> Callable[[Engine, str, np.ndarray], np.ndarray]:
    def norm(self: Engine, name: str, x: np.ndarray) -> np.ndarray:
        kept, self.eps = self.eps, F(eps) if name == place else self.eps
        found = Engine.norm(self, name, x)
        self.eps = kept
        return found

    return norm


def _gain_plus_one(self: Engine) -> None:
    self.floats["final_norm"] = self.floats["final_norm"] + 1


def _scale_one(*names: str) -> Callable[[Engine], None]:
    def prepare(self: Engine) -> None:
        for name in names:
            self.scales[name] = F(1)

    return prepare


def _one_trit(self: Engine) -> None:
    w = self.trits["layers.2.up"]
    w[5, 9] = 1 if w[5, 9] != 1 else -1


def _fused_largest(*parts: str) -> Callable[[Engine], None]:
    def prepare(self: Engine) -> None:
        for n in range(self.layers):
            largest = max(self.scales[f"layers.{n}.{p}"] for p in parts)
            for p in parts:
                self.scales[f"layers.{n}.{p}"] = largest

    return prepare


for _name, _what, _methods in [
    (
        "EpsInOneSubNorm",
        "eps 1e-2 in layer 1's attention sub-norm",
        {"norm": _norm_eps("layers.1.attn_sub_norm", 1e-2)},
    ),
    ("GainPlusOne", "gain + 1 in the final norm", {"prepare": _gain_plus_one}),
    ("NoScaleOnO", "no weight scale on layer 1's o", {"prepare": _scale_one("layers.1.o")}),
    ("NoScaleOnLastDown", "no weight scale on the last layer's down", {"prepare": _scale_one("layers.3.down")}),
    ("FusedLargestQkv", "q, k and v all get the largest of their scales", {"prepare": _fused_largest("q", "k", "v")}),
    ("OneTrit", "one trit of layer 2's up is another", {"prepare": _one_trit}),
]:
    faulty(KIND, _what)(made(_name, Engine, **_methods))
SHOWN = [
    ("EpsInFinalNorm", "eps 1e-3 in the final norm alone", {"norm": _norm_eps("final_norm", 1e-3)}),
    ("FusedLargestGateUp", "gate and up get the larger of their scales", {"prepare": _fused_largest("gate", "up")}),
]
BELOW = "logits move by less than the noise that right engines are allowed: 1.6e-5 of the largest, and 4e-7"
for _name, _what, _methods in SHOWN:
    faulty(KIND, _what + ", logits alone", unseen=BELOW)(made(_name, Engine, **_methods))
    faulty(KIND, _what + ", with operations")(made(_name + "Shown", FullEngine, **_methods))
faulty(KIND, "gain + 1 in the final norm, with operations and trace")(
    made("GainPlusOneShown", FullEngine, prepare=_gain_plus_one)
)
faulty(KIND, "no weight scale on the last layer's v, with operations and trace")(
    made("NoScaleOnVShown", FullEngine, prepare=_scale_one("layers.3.v"))
)
faulty(
    KIND,
    "no weight scale on v, logits alone",
    unseen="the sub-norm takes the scale out again; what its eps leaves of it is below the noise of right engines",
)(made("NoScaleOnV", Engine, prepare=_scale_one("layers.3.v")))


@faulty(KIND, "h % kv_heads instead of h // group, in the last layer only")
class InterleavedGroupsLast(Engine):
    def kv_head(self, n: int, head: int) -> int:
        return head % self.kv if n == self.layers - 1 else Engine.kv_head(self, n, head)


@faulty(KIND, "head 2 of layer 1 sees no mask")
class OneHeadNoMask(Engine):
    def softmax(self, n: int, scores: np.ndarray) -> np.ndarray:
        if n == 1:
            scores[2] = np.where(np.isinf(scores[2]), 0, scores[2])
        return Engine.softmax(self, n, scores)


@faulty(KIND, "channel 17 of the residual after layer 2 is dropped")
class OneChannel(Engine):
    def add(self, name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        total = Engine.add(self, name, a, b)
        if name == "layers.2.ffn_residual":
            total[:, 17] = a[:, 17]
        return total


@faulty(KIND, "layer 3's gate has SiLU instead of the squared ReLU")
class OneLayerSilu(Engine):
    def gated(self, n: int, gate: np.ndarray, up: np.ndarray) -> np.ndarray:
        return gate / (1 + np.exp(-gate)) * up if n == 3 else Engine.gated(self, n, gate, up)


@faulty(
    KIND,
    "position 0 of layer 0's queries is rotated by one position, logits alone",
    unseen="position 0 sees itself alone, with probability 1 whatever its query is: no logit ever differs",
)
class FirstPositionOfOneLayer(Engine):
    def rotate(self, name: str, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        at = np.where((positions == 0) & (name == "layers.0.q"), 1, positions)
        return Engine.rotate(self, name, x, at)
