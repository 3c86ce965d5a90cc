"""BitNet a4.8's KV cache: 3 bits per value, 4 bits for the first token.

Source: BitNet a4.8 (arXiv 2411.04965): keys (after RoPE) and values become unsigned integers by absmax for each head,
and the bos token keeps 4 bits. The paper does not say how a signed value becomes an unsigned code, nor what else is
stored: the zero point and the float16 scale, those of ``Affine``, are our interpretation.
"""

from dataclasses import dataclass
from typing import ClassVar

from tritgold.kv_cache.affine import Affine
from tritgold.kv_cache.token_rows import TokenScheme


@dataclass(frozen=True)
class A48(Affine):
    """``Affine`` with 3 bits; with 4 bits for position 0, where a prompt has its bos token.

    >>> A48().bits, A48().first.bits
    (3, 4)
    """

    name: ClassVar[str] = "a4_8"
    first: ClassVar[TokenScheme | None] = Affine(bits=4)
    bits: int = 3
