"""Model configurations at random."""

from hypothesis import strategies as st

from tritgold.config import ModelConfig


@st.composite
def configs(draw: st.DrawFn) -> ModelConfig:
    """Any configuration whose scales multiply."""
    vocab, kv_heads = draw(st.integers(1, 200_000)), draw(st.integers(1, 4))
    token = st.integers(0, vocab - 1)
    eos = tuple(draw(st.lists(token, max_size=5)))
    mask = draw(st.none() | token.filter(lambda t: t not in eos))
    return ModelConfig(
        vocab=vocab,
        hidden=draw(st.integers(1, 9000)),
        inter=draw(st.integers(1, 30_000)),
        layers=draw(st.integers(1, 80)),
        heads=kv_heads * draw(st.integers(1, 8)),
        kv_heads=kv_heads,
        head_dim=2 * draw(st.integers(1, 128)),
        context=draw(st.integers(1, 1 << 20)),
        norm_eps=draw(st.floats(1e-12, 0.5)),
        rope_theta=draw(st.floats(1, 1e11)),
        activation=draw(st.sampled_from(["relu2", "silu"])),
        sub_norms=draw(st.booleans()),
        tied_head=draw(st.booleans()),
        scale_rule="multiply",
        bos=draw(st.none() | token),
        eos=eos,
        mask=mask,
        block=None if mask is None else draw(st.integers(1, 256)),
    )
