"""What the tensors of one file have in common: one program wrote them, so a layout is possible for all or for none."""

from collections.abc import Iterable, Mapping, Sequence

from tritgold.formats.container import StoredTensor
from tritgold.formats.fingerprint import Hypothesis
from tritgold.formats.packings.scale_fields import TRAILER

_WITH_TRAILER = ("I2_S", "TL1", "TL2")


def merged(by_tensor: Mapping[str, Sequence[Hypothesis]]) -> list[Hypothesis]:
    """One list for tensors written by one program: a layout that is ruled out for one tensor is ruled out for all.

    The shape of each result is that of the first tensor.
    """
    found: dict[str, list[tuple[str, Hypothesis]]] = {}
    for name, hypotheses in by_tensor.items():
        for hypothesis in hypotheses:
            found.setdefault(hypothesis.label, []).append((name, hypothesis))
    return [_merged(judged, len(by_tensor)) for judged in found.values()]


def padding_is_zero(tensors: Iterable[StoredTensor]) -> bool | None:
    """Whether in every trailer the 28 bytes after the scale are 0; None if no tensor has a trailer.

    Python converters write zeros (and write only I2_S in blocks of 128), llama-quantize leaves old memory there.
    """
    trailers = [tensor.data[4 - TRAILER :] for tensor in tensors if tensor.dtype in _WITH_TRAILER]
    return not any(trailer.any() for trailer in trailers) if trailers else None


def _merged(judged: list[tuple[str, Hypothesis]], tensors: int) -> Hypothesis:
    against = [(name, h) for name, h in judged if not h.fits]
    first_name, first = against[0] if against else judged[0]
    if tensors == 1:
        return first
    if not against:
        return Hypothesis(first.label, first.layout, judged[0][1].shape, True, f"{first.reason}, in all {tensors}")
    if len(against) == tensors and {h.reason for _, h in against} == {first.reason}:
        where = f", in all {tensors}"
    else:
        where = f" ({first_name}, and {len(against) - 1} more)" if len(against) > 1 else f" ({first_name})"
    reason = first.reason + where
    return Hypothesis(first.label, first.layout, judged[0][1].shape, False, reason)
