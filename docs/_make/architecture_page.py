"""docs/architectures.md: which architectures there are, made of the table that reads them."""

from docstrings import joined
from markdown_tables import MADE, table

from tritgold.architectures import ARCHITECTURES, Architecture

OPENING = """\
What differs between ternary models is data: one table (`tritgold.architectures`) says which parts the graph of each
has and what it is called in files. The golden model, the JAX engine, [trace names](traces.md), inspection and
conversion are driven by it. What a file asks for beyond it is refused by name, before anything is computed."""

READ = """\
## In every architecture

- **RoPE** plain, `linear`, `llama3`, `yarn` with its attention factor, and `longrope` and `dynamic` within the original
  context. Whatever the formula, it becomes a divisor for each frequency and one factor of sines and cosines. Refused:
  longer contexts of the last two, whose frequencies change with the length of the text; partial rotation.
- **`head_dim`** of its own; heads shared by any number of query heads; tied and untied heads.
- **Windows** of Qwen2, Qwen3 and Gemma 3, layer by layer (`layer_types`, `max_window_layers`). GGUF has a place for
  Gemma's alone, so converting another is refused. Attention sparsity has no rule for them.
- **Factors of the scores** other than 1 / sqrt(head_dim), of Granite and Gemma 3 27B. GGUF has a place for Granite's.
- **Biases** of q, k and v. Beside packed weights whose scales multiply they are multiplied too, as transformers'
  `AutoBitLinear` does; converted to GGUF they are what they add. Back to such a folder they are refused: no stored bias
  gives every float32 again.
- **Refused by name**: `use_rms_norm` (a norm inside each linear, so that q, k and v have codes of their own), biases of
  o and of the FFN, soft caps of scores and logits, dense linears in layers, experts."""

ADDING = """\
## A new one

Where its parts are all there: an entry in `reference/tritgold/architectures.py`, keys of its own in
`reference/tritgold/formats/hf_families.py` and `gguf_config.py`, and a case in `tests/peers/make_fixtures.py`,
which makes a small checkpoint of transformers' own class, runs it, and is judged from then on at every position by
both engines. This page makes itself (`make lookup`)."""


def architecture_page() -> str:
    """The page."""
    head = ("architecture", "`architectures` in config.json", "in GGUF", "parts", "q, k in GGUF", "models")
    return joined("# Architectures", MADE, OPENING, table(head, map(row, ARCHITECTURES)), READ, ADDING)


def row(entry: Architecture) -> tuple[str, ...]:
    """One entry."""
    parts = {
        "sub-norms": entry.sub_norms,
        "q, k, v biases": entry.qkv_bias,
        "q and k norms": entry.qk_norms,
        "norms before the residuals": entry.post_norms,
        "windows": entry.windows,
        "constant factors": entry.scales,
    }
    return (
        entry.name,
        ", ".join(f"`{name}`" for name in entry.classes),
        ", ".join(f"`{name}` ({activation})" for name, activation in entry.gguf.items()),
        ", ".join(name for name, there in parts.items() if there) or "none",
        "interleaved" if entry.permuted else "as in the model",
        entry.note,
    )
