"""Block diffusion: a block of masked tokens is filled in several forward passes, then cached; one engine for all modes.

For each block, with the options of ``diffusion_options`` (by name: ``diffusion_presets``):

    open      append masks after the known tokens
    decide    for each sub-block, pass by pass: ``block_reads`` determines the tokens to read, ``predictions`` predicts
              a token for each mask, ``unmasking`` selects which predictions are kept
    close     store the finished block in the cache

The cache is exact with every preset: keys and values that were computed from a mask, or from a token that saw masks,
are never left where a later block reads them. There are two exceptions, approximations that one must choose by name:
cache ``dual`` with block attention, and any cache with full attention. The mask is never predicted, so never emitted.
Output ends after the first end-of-sequence token and at max_tokens, and no pass is made whose result is not needed.

Sources: arXiv 2509.26328 and the released model's ``generate`` (block attention); arXiv 2505.22618 (full attention).
The released program loses a prompt of exactly one block, and may predict the mask forever: see ``Defect``.
"""

from collections.abc import Generator, Sequence

from tritgold.config import ModelConfig, check_tokens
from tritgold.decode.autoregressive import check_budget
from tritgold.decode.block_model import BlockModel
from tritgold.decode.block_sequence import BlockSequence
from tritgold.decode.diffusion_options import Defect, Diffusion, resolve
from tritgold.decode.diffusion_presets import preset
from tritgold.decode.diffusion_record import Diffused, DiffusedBatch
from tritgold.errors import ContextError
from tritgold.options import Sizes


def block_diffusion(
    prompt: list[int], config: ModelConfig, model: BlockModel, max_tokens: int, options: Diffusion | None = None
) -> Diffused:
    """Generate up to ``max_tokens`` tokens.

    model: a new one with an empty cache and the attention of ``options``. options: None is preset fast-dllm-v2.

    Raises, before any compute, ConfigError as ``resolve`` does; ContextError for a prompt that cannot be read
    (``check_tokens``), contains the mask (``mask-in-prompt``) or leaves no room for the blocks that must follow it
    (``context-length``), and for max_tokens below 1 (``max-tokens``).
    """
    return block_diffusion_batch([prompt], config, [model], max_tokens, options).results[0]


def block_by_block(
    prompt: list[int], config: ModelConfig, model: BlockModel, max_tokens: int, options: Diffusion | None = None
) -> Generator[list[int], None, Diffused]:
    """As ``block_diffusion``, a block at a time: yields all tokens so far, none of which changes any more.

    The first come with the prompt, those of each block when it is kept. Raises as ``block_diffusion``, when the first
    are asked for.
    """
    options = preset("fast-dllm-v2") if options is None else options
    sizes = resolve(options, config)
    prompt = _checked(prompt, config, sizes, options, max_tokens)
    sequence = BlockSequence(prompt, max_tokens, config, model, options, sizes)
    sequence.prefill()
    while sequence.reason is None:
        yield sequence.result().tokens
        _fill_block([sequence], options, sizes)
    return sequence.result()


def block_diffusion_batch(
    prompts: Sequence[list[int]],
    config: ModelConfig,
    models: Sequence[BlockModel],
    max_tokens: int,
    options: Diffusion | None = None,
) -> DiffusedBatch:
    """Generate for several prompts together, each with its own model; the tokens are those of each prompt alone.

    The sequences at the earliest block share their passes, sub-block by sub-block. Sharing changes only the number of
    forwards. Raises as ``block_diffusion`` does, and ContextError ``models`` for a wrong number of models.
    """
    options = preset("fast-dllm-v2") if options is None else options
    sizes = resolve(options, config)
    checked = [_checked(prompt, config, sizes, options, max_tokens) for prompt in prompts]
    if len(models) != len(checked):
        raise ContextError(
            "are not one a prompt", kind="models", thing="models", got=len(models), expected=len(checked)
        )
    sequences = [
        BlockSequence(prompt, max_tokens, config, model, options, sizes)
        for prompt, model in zip(checked, models, strict=True)
    ]
    for sequence in sequences:
        sequence.prefill()
    forwards = 0
    while waiting := [sequence for sequence in sequences if sequence.reason is None]:
        turn = min(sequence.turn for sequence in waiting)
        forwards += _fill_block([sequence for sequence in waiting if sequence.turn == turn], options, sizes)
    return DiffusedBatch([sequence.result() for sequence in sequences], forwards)


def _fill_block(sequences: list[BlockSequence], options: Diffusion, sizes: Sizes) -> int:
    """Fill the next block of each. Returns the number of passes; a pass shared by several sequences counts once."""
    passes = 0
    opened = [sequence for sequence in sequences if sequence.open()]
    if not opened:
        return 0
    for sub_block in range(sizes.block // sizes.sub_block):
        while busy := [sequence for sequence in opened if sequence.busy(sub_block)]:
            shared = Defect.SHARED_REFRESH in options.defects and any(s.needs_whole(sub_block) for s in busy)
            for sequence in busy:
                sequence.decide(sub_block, whole=shared)
            passes += 1
    committed = [sequence.close() for sequence in opened]  # a list, because any() would stop at the first True
    return passes + any(committed)


def _checked(
    prompt: Sequence[int], config: ModelConfig, sizes: Sizes, options: Diffusion, max_tokens: int
) -> list[int]:
    """The prompt's ids. Refuses a prompt with the mask, or one after which the first block does not fit."""
    ids: list[int] = check_tokens(prompt, config).tolist()
    n, block = len(ids), sizes.block
    if sizes.mask in ids:
        raise ContextError(
            "holds the mask",
            kind="mask-in-prompt",
            thing=f"token {ids.index(sizes.mask)} of the prompt",
            got=sizes.mask,
            hint="block diffusion continues a prompt; filling in masks of the prompt is another task",
        )
    check_budget(max_tokens)
    if options.attention == "block" and n % block and n // block * block + block > config.context:
        raise ContextError(
            "the prompt's last block does not fit the context",
            kind="context-length",
            got=n,
            expected=f"blocks of {block} in {config.context}",
        )
    canvas = -(-max_tokens // block) * block
    if options.attention == "full" and n + canvas > config.context:
        raise ContextError(
            "prompt and output, in whole blocks, do not fit the context",
            kind="context-length",
            got=f"{n} + {canvas} tokens",
            expected=f"at most {config.context}",
        )
    return ids
