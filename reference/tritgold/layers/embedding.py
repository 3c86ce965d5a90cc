"""Token embedding: a look-up without scaling."""

import numpy as np
from jaxtyping import Float32, Int64

from tritgold.ternary import DenseMatrix


def embed(tokens: Int64[np.ndarray, " tokens"], embedding: DenseMatrix) -> Float32[np.ndarray, "tokens hidden"]:
    """The embedding rows of the tokens, widened to float32. Ids must be below vocab; ``model.forward`` checks."""
    return embedding.rows(tokens)
