"""One sequence in block diffusion: its known tokens, and what each pass decides.

Indices count the tokens of prompt and output. The model receives positions; they equal the indices, except with two
defects that lose positions (``low``).
"""

import numpy as np

from tritgold.config import ModelConfig
from tritgold.decode.autoregressive import StopReason
from tritgold.decode.block_model import BlockModel
from tritgold.decode.block_reads import BlockReads, Span
from tritgold.decode.diffusion_options import Defect, Diffusion
from tritgold.decode.diffusion_record import Diffused, Ending, Pass
from tritgold.decode.predictions import likeliest, predict
from tritgold.decode.sampling import choose, usable_logits
from tritgold.options import Sizes


class BlockSequence:
    """State of one sequence; ``block_diffusion`` calls its methods in order.

    ids: the tokens, with the mask id for those not decided yet. masked: the indices of these. start: index of the
    current block's first token. block: its number. limit: index after the last requested token. best: for each index
    the most confident prediction so far: probability, token, number of the pass. reason: why it has ended, else None.
    """

    def __init__(
        self,
        prompt: list[int],
        max_tokens: int,
        config: ModelConfig,
        model: BlockModel,
        options: Diffusion,
        sizes: Sizes,
    ) -> None:
        self.options, self.sizes, self.config, self.model = options, sizes, config, model
        self.ids, self.prompt, self.limit = list(prompt), len(prompt), len(prompt) + max_tokens
        self.masked, self.order = set[int](), dict[int, int]()
        self.best = dict[int, tuple[float, int, int]]()
        self.reads = BlockReads(options, sizes)
        self.start = self.low = self.block = self.idle = 0
        self.passes, self.first_pass = list[Pass](), 0
        self.reason: Ending | None = None

    @property
    def turn(self) -> int:
        """The number of its current block, by which the sequences of a batch are ordered."""
        return self.start // self.sizes.block if self.options.attention == "block" else self.block

    def prefill(self) -> None:
        """Read the prompt, with block attention only its whole blocks; if all was read, decide the next token."""
        n, block = self.prompt, self.sizes.block
        self.start = n // block * block if self.options.attention == "block" else n
        if self.options.attention == "full":
            self._mask(n + -(-(self.limit - n) // block) * block)  # the canvas: every block to come
        elif self._has(Defect.SHORT_PROMPT) and n > 2 * block:
            self.reason = "stuck"  # the engine waits for logits that are never computed
        elif self._has(Defect.LOST_BLOCK) and n == block:
            self.low = block
        else:
            step = block if self.options.attention == "block" else n
            logits = np.zeros((0, self.config.vocab))
            for first in range(0, self.start, step):  # block by block; only the last token's logits
                stop = first + step
                logits = self._read([Span(first, stop, stop)], [n - 1] if stop == n else [])
            if len(logits) and (self.options.shift or self.options.attention == "causal"):
                self._append(logits)
            self.reads.committed_until = self.start
            self.low = int(self._has(Defect.OVERWRITTEN_PROMPT))
        self._end_if_decided()

    def open(self) -> bool:
        """Begin the next block. False if the sequence ends instead because its context is full."""
        if self.options.commit == "merged":
            self.start = len(self.ids)  # after the token that the prefill decided
        room, stop = self.config.context + self.low, self.start + self.sizes.block
        causal = self.options.attention == "causal"
        if causal:  # the last block is shortened; a token that is only predicted, never read, needs no position
            stop = min(stop, room + (self.options.shift and self.options.commit == "merged"))
        if stop <= self.start or (stop > room and not causal):
            self.reason = "context_full"
            return False
        self._mask(stop)
        self.reads.open(self.start, min(stop, room), min(len(self.ids), room))
        self.best, self.idle, self.first_pass = {}, 0, len(self.passes)
        return True

    def busy(self, sub_block: int) -> bool:
        """Whether this sub-block needs another pass."""
        spent = len(self.passes) - self.first_pass
        left = self.options.max_passes is None or spent < self.options.max_passes
        return self.reason is None and left and not self.masked.isdisjoint(self._indices(sub_block))

    def needs_whole(self, sub_block: int) -> bool:
        """Whether the next pass must read the whole block although the cache policy would allow the sub-block only."""
        return not self.reads.opened or self._indices(sub_block).start in self.masked

    def decide(self, sub_block: int, whole: bool = False) -> None:
        """Make one pass for this sub-block. whole: read the whole block in any case."""
        o, number = self.options, len(self.passes)
        block = range(self.start, self.start + self.sizes.block)
        masked = sorted(self.masked.intersection(block))
        spans = self.reads.spans(sub_block, masked, whole or self.needs_whole(sub_block))
        wanted = [at for at in masked if at in self._indices(sub_block)]
        if o.attention == "full" and o.shift and o.cache != "none" and not self.reads.opened:
            wanted = [self.start]  # later passes begin here, so only this pass reads the position before it
        rows = [max(at - o.shift, spans[0].first) for at in wanted]  # max: nothing is stored before a lost block
        logits = self._read(spans, rows)
        tokens, sure = predict(logits, wanted, number, o.noise, o.sampling, o.confidence, o.token_ties == "last")
        chosen = o.rule.decided(sure, self.reads.steps[sub_block], o.position_ties == "last")
        self.reads.has_read(sub_block, masked)
        before = len(self.masked)
        for at, token, s, take in zip(wanted, tokens.tolist(), sure.tolist(), chosen.tolist(), strict=True):
            if at not in self.best or s > self.best[at][0]:
                self.best[at] = (s, token, number)
            if take and token != self.sizes.mask:
                self._decide(at, token, number)
        decided = before - len(self.masked)
        self.passes.append(Pass(self.block, sum(span.stop - span.first for span in spans), len(rows), decided))
        self.idle = 0 if decided else self.idle + 1
        self._end_if_decided()
        if self.reason is None and self.idle > self.sizes.block and o.max_passes is None:
            self.reason = "stuck"  # the mask is predicted forever

    def close(self) -> bool:
        """End the block: fill the remaining masks and store the block. Returns whether that took a pass."""
        if self.reason is not None:
            return False
        for at in self.masked.intersection(range(self.start, self.start + self.sizes.block)):
            _, token, number = self.best[at]
            self._decide(at, token, number)
        self._end_if_decided()
        commits = self.reason is None and self.options.commit == "pass"
        if commits:
            span = self.reads.commit()
            logits = self._read([span], [span.stop - 1])
            self.passes.append(Pass(self.block, span.stop - span.first, 1, 0, commit=True))
            if self.options.shift:
                self._append(logits)
            self._end_if_decided()
        self.start += self.sizes.block
        self.block += 1
        return commits

    def result(self) -> Diffused:
        """The generated tokens up to the end of the output, or up to the first token that was never decided."""
        end, _ = self._end()
        new = range(self.prompt, min([end, len(self.ids), *self.masked]))
        order = [self.order[at] for at in new]
        return Diffused([self.ids[at] for at in new], order, self.reason or "stuck", tuple(self.passes))

    def _has(self, defect: Defect) -> bool:
        return defect in self.options.defects

    def _indices(self, sub_block: int) -> range:
        first = self.start + sub_block * self.sizes.sub_block
        return range(first, first + self.sizes.sub_block)

    def _mask(self, stop: int) -> None:
        """Append masks up to index ``stop``."""
        self.masked.update(range(len(self.ids), stop))
        self.ids += [self.sizes.mask] * (stop - len(self.ids))

    def _decide(self, at: int, token: int, number: int) -> None:
        self.ids[at], self.order[at] = token, number
        self.masked.discard(at)

    def _append(self, logits: np.ndarray) -> None:
        """Append the token predicted by the last row of logits; the first token (from the prefill) may be sampled."""
        drawn = self.options.noise == "first" and self.options.sampling.temperature > 0
        if drawn and len(self.ids) == self.prompt:
            token = choose(logits[-1], self.options.sampling, self.ids)
        else:
            token = int(likeliest(logits[-1:], self.options.token_ties == "last")[0])
        self.order[len(self.ids)] = len(self.passes) - 1
        self.ids.append(token)

    def _read(self, spans: list[Span], rows: list[int]) -> np.ndarray:
        """float64 [rows, vocab]: logits of the tokens with these ascending indices; the mask's logit is -inf."""
        found = [np.zeros((0, self.config.vocab))]
        for first, stop, end in spans:
            wanted = [at - first for at in rows if first <= at < stop]
            logits = self.model(self.ids[first:stop], first - self.low, end - self.low, wanted)
            found.append(usable_logits(logits, self.config.vocab, len(wanted)))
        logits = np.concatenate(found)
        if not self._has(Defect.MASK_PREDICTED):
            logits[:, self.sizes.mask] = -np.inf
        return logits

    def _end(self) -> tuple[int, StopReason]:
        """The index where the output ends, and why: after the first end-of-sequence token, or at the limit."""
        limit = max(self.limit, len(self.ids)) if self._has(Defect.WHOLE_BLOCKS) else self.limit
        generated = range(self.prompt, min(len(self.ids), limit))
        at = next((at for at in generated if self.ids[at] in self.config.eos), None)
        if at is None:
            return limit, "length"
        return (generated.stop if self._has(Defect.PAST_STOP) else at + 1), "stop"

    def _end_if_decided(self) -> None:
        """End the sequence if no token before the end of its output is masked."""
        end, reason = self._end()
        if self.reason is None and len(self.ids) >= end and all(at >= end for at in self.masked):
            self.reason = reason
