"""Scores by block diffusion, of the golden model and of the JAX engine, whose tokens and passes are equal."""

from collections.abc import Callable, Sequence
from typing import Any

from tritgold.checkpoint import Checkpoint
from tritgold.decode.block_diffusion import block_diffusion
from tritgold.decode.block_model import reference_block_model
from tritgold.decode.diffusion_options import resolve
from tritgold.decode.diffusion_presets import preset
from tritgold.errors import EngineError
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.engines import xla
from tritgold_conformance.questions.exam import SPARE, Answered, Item, by_ids, ends
from tritgold_conformance.scoring.greedy import OnProgress, counted

ENGINES = ("reference", "xla")
Decoder = Callable[[list[int], int], Any]


def score(
    engine: str,
    checkpoint: Checkpoint,
    asked: Sequence[Item],
    tokenizer: Tokenizer,
    decode: str,
    threshold: float,
    on_progress: OnProgress = lambda _: None,
) -> list[Answered]:
    """An answer for each item, with its passes, including those that commit a finished block.

    Raises EngineError for another engine, ConfigError for a model without block diffusion or an invalid threshold.
    """
    if engine not in ENGINES:
        expected = " or ".join(ENGINES)
        raise EngineError("cannot be scored by block diffusion", kind="engine-unknown", got=engine, expected=expected)
    longest = max((len(item.prompt) + len(item.answer) for item in asked), default=1) + SPARE
    make = _reference if engine == "reference" else _xla
    decoder, over = make(checkpoint, decode, threshold, longest), ends(tokenizer, checkpoint.config)

    def answered(item: Item) -> Answered:
        done = decoder(item.prompt, len(item.answer) + SPARE)
        return by_ids(list(done.tokens), item, over, tokenizer, done.forwards)

    return counted(map(answered, asked), on_progress)


def _reference(checkpoint: Checkpoint, decode: str, threshold: float, longest: int) -> Decoder:
    config, options = checkpoint.config, preset(decode, threshold)
    resolve(options, config)

    def decoded(prompt: list[int], tokens: int) -> Any:
        model = reference_block_model(checkpoint.weights, config, options, len(prompt) + tokens)
        return block_diffusion(prompt, config, model, tokens, options)

    return decoded


def _xla(checkpoint: Checkpoint, decode: str, threshold: float, longest: int) -> Decoder:
    block = resolve(preset(decode, threshold), checkpoint.config).block
    engine = xla.open_engine(checkpoint, longest + block)
    return lambda prompt, tokens: xla.decode_blocks(engine, prompt, tokens, decode, threshold)
