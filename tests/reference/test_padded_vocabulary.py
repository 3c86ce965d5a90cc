"""A vocabulary that is padded beyond the tokenizer: such ids never come, and that is said."""

import numpy as np
import pytest

from tritgold.decode.sampling import Sampling, candidates, choose
from tritgold.errors import ConfigError, NonFiniteError


def test_ids_without_text_never_come() -> None:
    logits = np.array([0.0, 1.0, 3.0, 2.0])
    assert choose(logits, Sampling(), []) == 2
    assert choose(logits, Sampling(text_ids=2), []) == 1
    ids, shares = candidates(logits, Sampling(temperature=1, text_ids=2), [])
    assert ids.tolist() == [1, 0]
    assert shares.sum() == pytest.approx(1)
    assert choose(logits, Sampling(text_ids=9), []) == 2


def test_only_ids_without_text_are_possible() -> None:
    with pytest.raises(NonFiniteError, match="rule out every token"):
        choose(np.array([-np.inf, 1.0]), Sampling(text_ids=1), [])
    with pytest.raises(ConfigError):
        Sampling(text_ids=-1)
