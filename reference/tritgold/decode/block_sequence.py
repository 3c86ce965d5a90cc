"""One sequence on its way through block diffusion: what is known, and what each pass decides.

Indices count the tokens of prompt and output. The model is given positions; they are the indices, but for two defects
that lose positions (``low``).
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
    """State of one sequence; ``block_diffusion`` says what happens when.

    ids: the tokens, the mask where one is not decided. masked: the indices of those. start: of the current block, of
    which it is number ``block``. limit: index after the last token that is wanted. best: the surest prediction so far
    for a token: how sure, which, in which pass. reason: why it has ended, None before.
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
        """Which block it is at, for those that are decoded together."""
        return self.start // self.sizes.block if self.options.attention == "block" else self.block

    def prefill(self) -> None:
        """Read the prompt, or of it what makes whole blocks; if that is all of it, decide the token after it."""
        n, block = self.prompt, self.sizes.block
        self.start = n // block * block if self.options.attention == "block" else n
        if self.options.attention == "full":
            self._mask(n + -(-(self.limit - n) // block) * block)  # the canvas: every block to come
        elif self._has(Defect.SHORT_PROMPT) and n > 2 * block:
            self.reason = "stuck"  # the logits that it waits for are never computed
        elif self._has(Defect.LOST_BLOCK) and n == block:
            self.low = block
        else:
            step = block if self.options.attention == "block" else n
            logits = np.zeros((0, self.config.vocab))
            for first in range(0, self.start, step):  # block by block; logits of the last token alone
                stop = first + step
                logits = self._read([Span(first, stop, stop)], [n - 1] if stop == n else [])
            if len(logits) and (self.options.shift or self.options.attention == "causal"):
                self._append(logits)
            self.reads.committed_until = self.start
            self.low = int(self._has(Defect.OVERWRITTEN_PROMPT))
        self._end_if_decided()

    def open(self) -> bool:
        """Begin the next block; False where the sequence ends instead because its context is full."""
        if self.options.commit == "merged":
            self.start = len(self.ids)  # after what the prefill said
        room, stop = self.config.context + self.low, self.start + self.sizes.block
        causal = self.options.attention == "causal"
        if causal:  # the last block is cut; the token after all that can be read needs no position of its own
            stop = min(stop, room + (self.options.shift and self.options.commit == "merged"))
        if stop <= self.start or (stop > room and not causal):
            self.reason = "context_full"
            return False
        self._mask(stop)
        self.reads.open(self.start, min(stop, room), min(len(self.ids), room))
        self.best, self.idle, self.first_pass = {}, 0, len(self.passes)
        return True

    def busy(self, sub_block: int) -> bool:
        """Whether a pass for this sub-block has something to do."""
        spent = len(self.passes) - self.first_pass
        left = self.options.max_passes is None or spent < self.options.max_passes
        return self.reason is None and left and not self.masked.isdisjoint(self._indices(sub_block))

    def needs_whole(self, sub_block: int) -> bool:
        """Whether its next pass reads the whole block where a cache of sub-blocks might spare it that."""
        return not self.reads.opened or self._indices(sub_block).start in self.masked

    def decide(self, sub_block: int, whole: bool = False) -> None:
        """One pass for this sub-block. whole: read the whole block in any case."""
        o, number = self.options, len(self.passes)
        block = range(self.start, self.start + self.sizes.block)
        masked = sorted(self.masked.intersection(block))
        spans = self.reads.spans(sub_block, masked, whole or self.needs_whole(sub_block))
        wanted = [at for at in masked if at in self._indices(sub_block)]
        if o.attention == "full" and o.shift and o.cache != "none" and not self.reads.opened:
            wanted = [self.start]  # later passes begin here: only now is the position before it read
        rows = [max(at - o.shift, spans[0].first) for at in wanted]  # max: before a lost block there is nothing
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
            self.reason = "stuck"  # the mask is predicted for ever

    def close(self) -> bool:
        """End the block: fill what is still masked, keep the block. Whether that took a pass."""
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
        """What has been generated up to the end, or to the first token that never was."""
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
        """Masks from the last token on, up to index ``stop``."""
        self.masked.update(range(len(self.ids), stop))
        self.ids += [self.sizes.mask] * (stop - len(self.ids))

    def _decide(self, at: int, token: int, number: int) -> None:
        self.ids[at], self.order[at] = token, number
        self.masked.discard(at)

    def _append(self, logits: np.ndarray) -> None:
        """The token after all others, by the row before it; from the prefill (the first token) it may be drawn."""
        drawn = self.options.noise == "first" and self.options.sampling.temperature > 0
        if drawn and len(self.ids) == self.prompt:
            token = choose(logits[-1], self.options.sampling, self.ids)
        else:
            token = int(likeliest(logits[-1:], self.options.token_ties == "last")[0])
        self.order[len(self.ids)] = len(self.passes) - 1
        self.ids.append(token)

    def _read(self, spans: list[Span], rows: list[int]) -> np.ndarray:
        """float64 [rows, vocab]: logits of the tokens with these indices, which ascend; the mask impossible."""
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
        """Where the output ends and why: after the first end-of-sequence token, or at the limit."""
        limit = max(self.limit, len(self.ids)) if self._has(Defect.WHOLE_BLOCKS) else self.limit
        generated = range(self.prompt, min(len(self.ids), limit))
        at = next((at for at in generated if self.ids[at] in self.config.eos), None)
        if at is None:
            return limit, "length"
        return (generated.stop if self._has(Defect.PAST_STOP) else at + 1), "stop"

    def _end_if_decided(self) -> None:
        """End the sequence once nothing before the end of its output is masked."""
        end, reason = self._end()
        if self.reason is None and len(self.ids) >= end and all(at >= end for at in self.masked):
            self.reason = reason
