"""Recipe: everything that determines a training run, as data; and the runs that made the embedded models."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from tritgold.config import ModelConfig
from tritgold.errors import ConfigError

Objective = Literal["autoregressive", "block diffusion"]
MIN_VOCAB = 260
PACKING_BLOCK = 256  # the block of TQ1_0 and TQ2_0: with it every packing of the project can hold the model


@dataclass(frozen=True)
class Recipe:
    """A training run.

    ternary: False trains the same network with float32 weights and activations in its linears (embedding and gains are
    still rounded to bf16). start: the run from whose master weights this one starts; from_file: instead from masters
    that are drawn anew for its exported model (``masters``), so that the model alone is enough. steps, batch, length:
    number of updates, sequences per update, tokens per sequence. peak: learning rate of the matrices (Muon); small: of
    embedding and gains (Adam). decay: weight decay in the first half. block: tokens per block of diffusion. causal:
    half of the rows of block diffusion see only what is before them inside their block too, as the presets ``greedy``,
    ``iterative`` and ``adaptive`` decode, and learn the next token of the clean text as well. answers: the blocks of
    these rows begin in each answer, where these presets open them, instead of at multiples of the block. data: the
    text, or the questions of ``tritgold.skills``. products: the numbers of which the matrix products of the linears and
    of Muon are made; sums are float32 either way (``bf16_qat``). more: names of tasks, separated by spaces, that come
    more often: one that is named n times comes 1 + 2 n times as often (``tritgold.skills``). passages: the share of the
    sequences that begin with a well-known passage of the text (``corpus.OPENINGS``), drawn by chance.

    Raises ConfigError ``recipe``, or as ModelConfig does, for impossible sizes.
    """

    name: str
    ternary: bool = True
    objective: Objective = "autoregressive"
    start: str | None = None
    from_file: bool = False
    seed: int = 1611
    steps: int = 1100
    batch: int = 8
    length: int = 256
    warmup: int = 60
    peak: float = 0.02
    small: float = 3e-3
    decay: float = 0.1
    vocab: int = 2048
    hidden: int = 256
    inter: int = 768
    layers: int = 6
    heads: int = 4
    kv_heads: int = 2
    context: int = 1024
    norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    block: int = 32
    causal: bool = False
    answers: bool = False
    data: Literal["kjv", "skills"] = "kjv"
    products: Literal["float32", "bfloat16"] = "float32"
    more: str = ""
    passages: float = 0.0

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "length", "block"):
            if getattr(self, name) < 1:
                raise _bad(name, getattr(self, name), "at least 1")
        for name, width in (("hidden", self.hidden), ("inter", self.inter)):
            if width % PACKING_BLOCK:
                raise _bad(name, width, f"a multiple of {PACKING_BLOCK}, the block of TQ1_0 and TQ2_0")
        if self.heads < 1 or self.hidden % self.heads:
            raise _bad("heads", self.heads, f"a divisor of hidden = {self.hidden}")
        if self.length < 2:
            raise _bad("length", self.length, "at least 2")
        if not 0 <= self.warmup <= self.steps // 2:
            raise _bad("warmup", self.warmup, f"0 to half of steps = {self.steps}")
        if self.vocab < MIN_VOCAB:
            raise _bad("vocab", self.vocab, f"at least {MIN_VOCAB}: the bytes and the special tokens")
        if self.length > self.context:
            raise _bad("length", self.length, f"at most the context, {self.context}")
        if self.answers and not (self.objective == "block diffusion" and self.causal and self.data == "skills"):
            raise _bad("answers", self.answers, "False, except for causal block diffusion on skills")
        if not 0 <= self.passages <= (1 if self.data == "kjv" else 0):
            raise _bad("passages", self.passages, "0 to 1, and 0 for questions")
        if self.from_file and self.start is None:
            raise _bad("from_file", self.from_file, "False without a start")
        if self.objective == "block diffusion" and self.length % self.block:
            raise _bad("length", self.length, f"a multiple of the block, {self.block}")
        self.config()  # raises for an impossible model

    def config(self) -> ModelConfig:
        """The configuration of the trained model."""
        return ModelConfig(
            vocab=self.vocab,
            hidden=self.hidden,
            inter=self.inter,
            layers=self.layers,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.hidden // self.heads,
            context=self.context,
            norm_eps=self.norm_eps,
            rope_theta=self.rope_theta,
            activation="relu2",
            sub_norms=True,
            tied_head=True,
            scale_rule="multiply",
        )

    def as_dict(self) -> dict[str, Any]:
        """The fields, for the model card and the checkpoint."""
        return asdict(self)


AR = Recipe("kjv-ar")
LONGER = replace(  # the exported kjv-ar goes on
    AR, name="kjv-ar-longer", start=AR.name, from_file=True, seed=1612, steps=900, peak=0.015, products="bfloat16"
)
LONGEST = replace(LONGER, name="kjv-ar-longest", start=LONGER.name, from_file=False, seed=1613, steps=3000)
AR_2 = replace(
    LONGEST,
    name="kjv-ar-v2",
    start=LONGEST.name,
    seed=1614,
    steps=240,
    warmup=30,
    peak=0.003,
    small=3e-4,
    decay=0.0,
    passages=0.25,
)
DLM = replace(
    AR,
    name="kjv-dlm",
    objective="block diffusion",
    start=AR.name,
    steps=240,
    batch=4,
    warmup=30,
    peak=0.008,
    small=1e-3,
)
LONGER_DLM = replace(
    DLM,
    name="kjv-dlm-longer",
    start=AR_2.name,
    seed=1615,
    steps=2400,
    batch=3,
    peak=0.006,
    small=7e-4,
    products="bfloat16",
    passages=0.1,
)
HARDER = "count lookup add subtract weekday"
HARDEST = "count weekday compare"
HARD_AT_ONCE = "count compare sort"
HARD_FOR_CAUSAL = "count count json weekday"
SKILLS = Recipe(
    "skills-ar-first",
    seed=158,
    steps=2000,
    batch=48,
    length=64,
    vocab=MIN_VOCAB,
    inter=512,
    layers=4,
    context=256,
    data="skills",
    products="bfloat16",
)
DIFFUSION = replace(
    SKILLS,
    name="skills-dlm-first",
    objective="block diffusion",
    start="skills-ar",
    steps=5000,
    batch=24,
    warmup=30,
    peak=0.015,
    small=1.5e-3,
    causal=True,
    more=HARDER,
)
SECOND_DIFFUSION = replace(
    DIFFUSION, name="skills-dlm-second", start=DIFFUSION.name, seed=161, steps=1800, peak=0.01, more=HARD_AT_ONCE
)
RECIPES = {
    recipe.name: recipe
    for recipe in (
        AR,
        replace(AR, name="kjv-ar-float", ternary=False),
        LONGER,
        LONGEST,
        AR_2,
        replace(AR, name="short", steps=30, batch=4, warmup=5),  # takes a minute, to test the setup
        DLM,
        LONGER_DLM,
        replace(
            LONGER_DLM,
            name="kjv-dlm-v2",
            start=LONGER_DLM.name,
            seed=1616,
            steps=400,
            batch=4,
            peak=0.003,
            small=4e-4,
            decay=0.0,
            causal=True,
        ),
        SKILLS,
        # The tasks that were weak before come three times as often.
        replace(SKILLS, name="skills-ar-second", start="skills-ar-first", seed=159, steps=4000, more=HARDER),
        replace(SKILLS, name="skills-ar", start="skills-ar-second", seed=160, steps=2500, peak=0.015, more=HARDEST),
        replace(SKILLS, name="skills-ar-float", ternary=False),
        replace(SKILLS, name="skills-short", steps=30, batch=8, warmup=5),
        DIFFUSION,
        SECOND_DIFFUSION,
        replace(
            SECOND_DIFFUSION,
            name="skills-dlm",
            start=SECOND_DIFFUSION.name,
            from_file=True,
            seed=162,
            steps=1600,
            peak=0.004,
            small=5e-4,
            decay=0.0,
            answers=True,
            more=HARD_FOR_CAUSAL,
        ),
    )
}


def _bad(name: str, got: object, expected: str) -> ConfigError:
    return ConfigError("is not usable", kind="recipe", thing=name, got=got, expected=expected)
