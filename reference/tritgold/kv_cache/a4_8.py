"""BitNet a4.8's KV cache: 3 bits a value, 4 bits for the first token.

Source: BitNet a4.8 (arXiv 2411.04965): keys (after RoPE) and values become unsigned integers by absmax for each head,
and the bos token keeps 4 bits. That leaves open how a signed value becomes an unsigned code and what is stored beside
it: the zero point and the float16 scale, those of ``Affine``, are our reading.
"""

from dataclasses import dataclass
from typing import ClassVar

from tritgold.kv_cache.affine import Affine
from tritgold.kv_cache.token_rows import TokenScheme


@dataclass(frozen=True)
class A48(Affine):
    """``Affine`` of 3 bits; position 0, where a prompt has its bos token, of 4.

    >>> A48().bits, A48().first.bits
    (3, 4)
    """

    name: ClassVar[str] = "a4_8"
    first: ClassVar[TokenScheme | None] = Affine(bits=4)
    bits: int = 3
