"""The golden forward pass: tokens in, logits out, every activation on the way in the trace.

Read this file beside ``graph.py``, which states the same graph as data. One layer at a time is unpacked, so a
model costs its packed bytes plus the float32 image of its largest matrix.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from tritgold.config import ModelConfig, check_tokens
from tritgold.errors import ContextError, NonFiniteError
from tritgold.kv_cache.base import EXACT, KvCache
from tritgold.kv_cache.float32 import Float32Cache
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Arithmetic, mode_id
from tritgold.layers.rms_norm import normed_by
from tritgold.layers.scaled import added, divided, scaled
from tritgold.trace import Trace
from tritgold.weights import LayerWeights, ModelWeights


def forward(
    tokens: Sequence[int] | np.ndarray,
    weights: ModelWeights,
    config: ModelConfig,
    cache: KvCache | None = None,
    trace: Trace | None = None,
    last_only: bool = False,
    arithmetic: Arithmetic = GOLDEN_ARITHMETIC,
    block: int = 1,
    rows: Sequence[int] | None = None,
) -> np.ndarray:
    """Run ``tokens`` after whatever the cache holds. Returns float32 logits [tokens, vocab].

    cache: extended by the tokens; without one they start at position 0 and nothing is kept. Prefill, chunks and
    single steps give the same bits; with the cache of a scheme other than f32 they are those of that scheme, and some
    (KIVI) depend on the cuts. trace: every activation is appended to it. last_only: logits of the last
    token alone, [1, vocab]; the rest of the head's work is saved. arithmetic: another than the golden one.
    block: tokens see one another inside blocks of as many positions, as block-diffusion models are trained to; 1 is
    causal. With more than 1, chunks must end where blocks do to give the bits of the whole. rows: the tokens, counted
    from the first of the pass, whose logits are wanted, [len(rows), vocab]; instead of last_only.

    Raises ContextError, before any arithmetic, for no tokens, an id outside the vocabulary, more positions than the
    model or the cache has, or a block below 1; NonFiniteError when an activation is infinite or NaN.
    """
    if block < 1:
        raise ContextError("is not usable", kind="attention-block", thing="block", got=block, expected="at least 1")
    cache = Float32Cache(config, len(tokens)) if cache is None else cache
    ids = check_tokens(tokens, config, cache.length)
    cache.check_room(len(ids))
    run = _Pass(config, cache, trace, ids, arithmetic, block)
    embedded = arithmetic.at("embedding").embed(ids, weights.embedding)
    x = run.record("embedding", scaled(embedded, config.embedding_scale))
    with np.errstate(over="ignore", invalid="ignore"):  # inf and NaN are refused by name where they are quantised
        for index, layer in enumerate(weights.layers):
            x = run.layer(index, layer, x)
        x = run.norm("final_norm", x, weights.final_norm)
        wanted = np.array([-1] if last_only else range(len(ids)) if rows is None else rows, np.int64)
        head = arithmetic.at("logits").logits
        logits = head(divided(x[wanted], config.logit_divisor), weights.head_or_embedding)
    if not np.isfinite(logits).all():
        hint = "is the head or the embedding damaged?"
        raise NonFiniteError("are not finite", kind="logits-non-finite", thing="logits", hint=hint)
    cache.advance(len(ids))
    return run.record("logits", logits)


class _Pass:
    """What one forward pass carries along: configuration, cache, trace, arithmetic, positions."""

    def __init__(
        self,
        config: ModelConfig,
        cache: KvCache,
        trace: Trace | None,
        ids: np.ndarray,
        arithmetic: Arithmetic,
        block: int,
    ) -> None:
        self.config, self.cache, self.trace, self.op = config, cache, trace, arithmetic
        self.seen: dict[str, np.ndarray] = {}
        # Said where it is not causal: a replacement of the softmax that knows causal attention stays usable for it.
        self.blocks = {} if block == 1 else {"block": block}
        positions = cache.length + np.arange(len(ids))
        kinds = {config.rope_of(layer) for layer in range(config.layers)}
        self.rotations = {kind: arithmetic.rotation_table(positions, config.head_dim, *kind) for kind in kinds}
        if trace is not None:
            trace.tokens += ids.tolist()
            mode = mode_id(arithmetic) if cache.scheme == EXACT else f"kv-{cache.scheme}-{mode_id(arithmetic)}"
            trace.mode = mode if block == 1 else f"blocks-of-{block}-{mode}"
            trace.engine = trace.engine or "tritgold"

    def record(self, name: str, array: np.ndarray) -> np.ndarray:
        if self.op.alter is not None:
            array = self.seen[name] = self.op.alter(name, array, self.seen)
        if self.trace is not None:
            self.trace.record(name, array)
        return array

    def layer(self, index: int, w: LayerWeights, x: np.ndarray) -> np.ndarray:
        """One decoder layer: attention, then the gated FFN, each added to the residual stream x [tokens, hidden]."""
        c, at, tokens = self.config, f"layers.{index}", x.shape[0]

        n = self.norm(f"{at}.attn_norm", x, w.attn_norm)
        q, k, v = self.linears(at, "attn_in", n, w, "q", "k", "v")
        q, k = q.reshape(tokens, c.heads, c.head_dim), k.reshape(tokens, c.kv_heads, c.head_dim)
        if w.q_norm is not None and w.k_norm is not None:
            q, k = self.norm(f"{at}.q_norm", q, w.q_norm), self.norm(f"{at}.k_norm", k, w.k_norm)
        rotation, rotate = self.rotations[c.rope_of(index)], self.op.at(f"{at}.rope").rotate
        q, k = self.record(f"{at}.q_rope", rotate(q, rotation)), self.record(f"{at}.k_rope", rotate(k, rotation))
        keys, values = self.cache.append(index, k, v.reshape(tokens, c.kv_heads, c.head_dim))
        window = {} if (size := c.window_of(index)) is None else {"window": size}
        softmax = self.op.at(f"{at}.probs").softmax_weights
        q = scaled(q, c.query_scale)
        probs = self.record(f"{at}.probs", softmax(q, keys, self.cache.length, **self.blocks, **window))
        a = self.record(f"{at}.attn_mix", self.op.at(f"{at}.attn_mix").mix_values(probs, values))
        if w.attn_sub_norm is not None:
            a = self.norm(f"{at}.attn_sub_norm", a, w.attn_sub_norm)
        (o,) = self.linears(at, "o_in", a, w, "o")
        if w.attn_post_norm is not None:
            o = self.norm(f"{at}.attn_post_norm", o, w.attn_post_norm)
        x = self.record(f"{at}.attn_residual", added(x, o, c.residual_scale))

        n = self.norm(f"{at}.ffn_norm", x, w.ffn_norm)
        gate, up = self.linears(at, "ffn_in", n, w, "gate", "up")
        f = self.record(f"{at}.ffn_act", self.op.at(f"{at}.ffn_act").gated_activation(gate, up, c.activation))
        if w.ffn_sub_norm is not None:
            f = self.norm(f"{at}.ffn_sub_norm", f, w.ffn_sub_norm)
        (down,) = self.linears(at, "down_in", f, w, "down")
        if w.ffn_post_norm is not None:
            down = self.norm(f"{at}.ffn_post_norm", down, w.ffn_post_norm)
        return self.record(f"{at}.ffn_residual", added(x, down, c.residual_scale))

    def norm(self, name: str, x: np.ndarray, gain: np.ndarray) -> np.ndarray:
        return self.record(name, normed_by(self.op.at(name).rms_norm, x, gain, self.config.norm_eps))

    def linears(self, at: str, source: str, x: np.ndarray, layer: LayerWeights, *names: str) -> Iterator[np.ndarray]:
        """Quantise x once, then run each linear on the same codes, and add its bias where it has one."""
        try:
            codes, scale = self.op.at(f"{at}.{source}").quantize(x)
        except NonFiniteError as error:
            raise error.located(thing=f"{at}.{source}") from None
        codes = self.record(f"{at}.{source}.codes", codes)
        scale = self.record(f"{at}.{source}.scale", scale)
        for name in names:
            w, bias, op = layer.linear(name).ternary(), layer.bias(name), self.op.at(f"{at}.{name}")
            acc = self.record(f"{at}.{name}.acc", op.accumulate(codes, w.trits))
            out = op.apply_scales(acc, scale, w.scale, self.config.scale_rule)
            yield self.record(f"{at}.{name}.out", out if bias is None else out + bias)
