"""Fast-dLLM v2 on a scripted model: which row decides which token and when, and every end of the text."""

from collections.abc import Generator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from refusals import refusal
from scripted_model import CONFIG, EOS, MASK, M, Scripted

from tritgold.config import ModelConfig
from tritgold.decode.block_diffusion import block_by_block, block_diffusion
from tritgold.decode.diffusion_presets import preset
from tritgold.decode.diffusion_record import Diffused


class Outcome(NamedTuple):
    """What matters of a Diffused here."""

    tokens: list[int]
    forwards: int
    order: list[int]
    reason: str


def diffuse(
    model: Scripted,
    prompt: list[int],
    max_tokens: int,
    threshold: float = 0.9,
    sub_block: int = 4,
    config: ModelConfig = CONFIG,
) -> Outcome:
    """Decode, and check what holds of every run."""
    done = block_diffusion(prompt, config, model, max_tokens, preset("fast-dllm-v2", threshold, sub_block=sub_block))
    check_record(done)
    passes = model.calls[len(prompt) // 4 :]  # without the prefill
    assert done.forwards == len(passes)
    assert len(done.order) == len(done.tokens) <= max_tokens
    assert all(-1 <= number < done.forwards for number in done.order)
    assert MASK not in done.tokens
    text = prompt + done.tokens
    for call in passes:
        assert (call.start % 4, len(call.tokens)) == (0, 4)
        assert all(given in (MASK, final) for given, final in zip(call.tokens, text[call.start :], strict=False))
    assert [token for call in model.calls if call.keep for token in call.tokens] == text[: model.kept]
    return Outcome(done.tokens, done.forwards, done.order, done.reason)


def check_record(done: Diffused) -> None:
    assert done.forwards == len(done.passes) == sum(done.forwards_per_block)
    assert done.commits == sum(p.commit for p in done.passes)
    assert [p.decided > 0 for p in done.passes] == [not p.commit for p in done.passes]
    assert all(p.fed == 4 for p in done.passes)
    assert sum(p.decided for p in done.passes) >= sum(number >= 0 for number in done.order) - done.commits


@pytest.mark.parametrize("prompt", [[1, 2], [1, 2, 3, 4]])
def test_block_by_block_each_says_more_of_the_same_text(prompt: list[int]) -> None:
    options = preset("fast-dllm-v2", 0.9, sub_block=4)
    whole = block_diffusion(prompt, CONFIG, Scripted(), 11, options)
    ended, said = list[Diffused](), list[list[int]]()

    def reading() -> Generator[list[int], None, None]:
        ended.append((yield from block_by_block(prompt, CONFIG, Scripted(), 11, options)))

    said += reading()
    assert ended == [whole]
    assert said[0] == whole.tokens[: len(prompt) == 4], "what the prefill decides"
    assert [whole.tokens[: len(so_far)] for so_far in said] == said
    assert sorted({len(so_far) for so_far in said}) == [len(so_far) for so_far in said]
    assert len(said) >= 3


# ---- rows and passes ---------------------------------------------------------------------------------------------


def test_a_token_comes_from_the_row_before_it_and_the_first_of_a_block_from_the_keeping_pass() -> None:
    model = Scripted()
    done = diffuse(model, [1, 2], 8, threshold=0, sub_block=2)
    assert done == Outcome([12, 13, 44, 15, 16, 17, 48, 19], 6, [0, 0, 1, 2, 3, 3, 4, 5], "length")
    assert model.calls == [
        (0, [1, 2, M, M], False),
        (0, [1, 2, 12, 13], True),
        (4, [44, M, M, M], False),
        (4, [44, 15, M, M], False),
        (4, [44, 15, 16, 17], True),
        (8, [48, M, M, M], False),
    ]


@pytest.mark.parametrize(
    ("prompt", "first"),
    [
        (1, [(0, [1, M, M, M], False)]),
        (3, [(0, [1, 1, 1, M], False)]),
        (4, [(0, [1, 1, 1, 1], True), (4, [44, M, M, M], False)]),  # the released program loses this prompt
        (5, [(0, [1, 1, 1, 1], True), (4, [1, M, M, M], False)]),
        (8, [(0, [1] * 4, True), (4, [1] * 4, True), (8, [48, M, M, M], False)]),
        (10, [(0, [1] * 4, True), (4, [1] * 4, True), (8, [1, 1, M, M], False)]),
    ],
)
def test_whole_blocks_of_the_prompt_are_kept_and_its_tail_heads_a_block(
    prompt: int, first: list[tuple[int, list[int], bool]]
) -> None:
    model = Scripted()
    diffuse(model, [1] * prompt, 3)
    assert model.calls[: len(first)] == first


@pytest.mark.parametrize("sub_block", [1, 2, 4])
@pytest.mark.parametrize("prompt", range(1, 13))
def test_every_length_within_the_context(prompt: int, sub_block: int) -> None:
    """At threshold 0 a pass fills a sub-block and one more ends the block; at 1 a pass decides one token."""
    for end in range(prompt + 1, 17):
        new = range(prompt, end)
        tokens = [at + (10 if at % 4 else 40) for at in new]
        masked, kept = [at for at in new if at % 4], [at for at in new if at % 4 == 0 and at > prompt]

        done = diffuse(Scripted(), [1] * prompt, end - prompt, 0, sub_block)
        assert (done.tokens, done.reason) == (tokens, "length")
        assert done.forwards == len({at // sub_block for at in masked}) + len(kept)

        done = diffuse(Scripted(), [1] * prompt, end - prompt, 1, sub_block)
        assert (done.tokens, done.reason) == (tokens, "length")
        assert done.forwards == len(masked) + len(kept)
        assert done.order == [at - prompt - (prompt % 4 == 0) for at in new]


def test_no_pass_is_made_for_what_nobody_reads() -> None:
    """Neither the rest of a block after max_tokens, nor its keeping when the text ends with it."""
    assert diffuse(Scripted(), [1], 1, threshold=1).forwards == 1
    assert diffuse(Scripted(), [1] * 4, 1) == Outcome([44], 0, [-1], "length")
    model = Scripted()
    diffuse(model, [1], 3)
    assert [call.keep for call in model.calls] == [False]


# ---- which tokens a pass decides ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threshold", "order"),
    [
        (0.5, [0, 1, 2]),  # exactly the threshold is not above it
        (np.nextafter(0.5, 0), [0, 0, 0]),
        (0, [0, 0, 0]),
        (1, [0, 1, 2]),
    ],
)
def test_the_threshold_is_strict_and_ties_go_to_the_lowest_id_and_the_first_position(
    threshold: float, order: list[int]
) -> None:
    done = diffuse(Scripted({1: (20, 2), 2: (30, 2), 3: (20, 2)}), [1], 3, threshold)
    assert (done.tokens, done.order) == ([20, 30, 20], order)


@pytest.mark.parametrize(
    ("threshold", "order"), [(0.9, [2, 1, 0]), (0.5, [2, 1, 0]), (0.4, [1, 0, 0]), (0.25, [1, 0, 0]), (0.2, [0, 0, 0])]
)
def test_the_likeliest_is_decided_whatever_its_probability(threshold: float, order: list[int]) -> None:
    done = diffuse(Scripted({1: (20, 4), 2: (30, 2)}), [1], 3, threshold)
    assert (done.tokens, done.order) == ([20, 30, 13], order)


def test_certainty_itself_is_not_above_1() -> None:
    """The ids beside the best have a probability of exactly 0 here: 1 > 1 is false."""
    assert diffuse(Scripted(), [1], 3, threshold=1).forwards == 3
    assert diffuse(Scripted(), [1], 3, threshold=np.nextafter(1, 0)).forwards == 1


@pytest.mark.parametrize(("sub_block", "order"), [(4, [1, 0, 0]), (2, [0, 1, 1]), (1, [0, 1, 2])])
def test_sub_blocks_are_filled_left_to_right(sub_block: int, order: list[int]) -> None:
    """Position 1 is the least certain, and waits only for those of its own sub-block."""
    model = Scripted({1: (20, 4)})
    assert diffuse(model, [1], 3, sub_block=sub_block).order == order


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_mask_is_never_predicted_and_the_models_array_is_left_alone(kind: type) -> None:
    given = []

    def only_the_mask(tokens: list[int], start: int, end: int, rows: list[int]) -> np.ndarray:
        given.append(np.zeros((len(rows), 64), kind))
        given[-1][:, MASK] = 1000
        return given[-1]

    done = block_diffusion([1], CONFIG, only_the_mask, 6, preset("fast-dllm-v2", 0.01, sub_block=4))
    assert done.tokens == [0] * 6
    assert done.forwards == 3, "1 in 63, not e**-1000, is the probability of the others"
    assert all((logits[:, MASK] == 1000).all() for logits in given)


# ---- where the text ends -----------------------------------------------------------------------------------------


def test_end_of_sequence_waits_for_the_masks_before_it_and_not_for_those_behind() -> None:
    done = diffuse(Scripted({1: (20, 4), 2: (EOS, 1), 3: (30, 2)}), [1], 9)
    assert done == Outcome([20, EOS], 3, [2, 0], "stop")  # pass 1 decided position 3, which is cut off
    model = Scripted({1: (EOS, 1), 2: (20, 4), 3: (30, 4)})
    assert diffuse(model, [1], 9) == Outcome([EOS], 1, [0], "stop")
    assert model.calls == [(0, [1, M, M, M], False)]


def test_the_first_of_several_ends_counts_also_when_it_is_decided_last() -> None:
    assert diffuse(Scripted({1: (EOS, 1), 2: (EOS, 1)}), [1], 9).tokens == [EOS]
    config = replace(CONFIG, eos=(EOS, 20))
    done = diffuse(Scripted({1: (20, 4), 3: (EOS, 1)}), [1], 9, config=config)
    assert done == Outcome([20], 2, [1], "stop")


@pytest.mark.parametrize(("prompt", "forwards"), [([1, 1, 1, 1], 0), ([1, 1, 1], 2)])
def test_end_of_sequence_from_a_keeping_pass(prompt: list[int], forwards: int) -> None:
    done = diffuse(Scripted({4: (EOS, 1)}), prompt, 9)
    assert (done.tokens[-1], done.forwards, done.reason) == (EOS, forwards, "stop")
    assert len(prompt + done.tokens) == 5


def test_end_of_sequence_in_the_prompt_does_not_stop() -> None:
    assert diffuse(Scripted(), [EOS, 1], 3).tokens == [12, 13, 44]
    assert diffuse(Scripted(), [1, 1, 1, EOS], 3).tokens == [44, 15, 16]


def test_at_the_limit_the_end_of_sequence_is_a_stop_and_behind_it_nothing() -> None:
    script = {2: (EOS, 1)}
    assert diffuse(Scripted(script), [1], 2) == Outcome([11, EOS], 1, [0, 0], "stop")
    assert diffuse(Scripted(script), [1], 1) == Outcome([11], 1, [0], "length")


@pytest.mark.parametrize(
    ("context", "prompt", "tokens"),
    [
        (8, 5, [15, 16, 17, 48]),  # the keeping pass says one more, as the last step of greedy decoding does
        (8, 7, [17, 48]),
        (8, 8, [48]),
        (10, 5, [15, 16, 17, 48]),
        (10, 8, [48]),
    ],
)
def test_context_full_when_there_is_no_room_for_a_block(context: int, prompt: int, tokens: list[int]) -> None:
    config = replace(CONFIG, context=context)
    done = diffuse(Scripted(), [1] * prompt, 100, config=config)
    assert (done.tokens, done.reason) == (tokens, "context_full")
    assert diffuse(Scripted(), [1] * prompt, len(tokens), config=config).reason == "length"
    model = Scripted({prompt + len(tokens) - 1: (EOS, 1)})
    assert diffuse(model, [1] * prompt, 100, config=config).reason == "stop"


@pytest.mark.parametrize(
    ("kind", "changed", "prompt", "options"),
    [
        ("no-diffusion", {"mask": None, "block": None}, [1], {}),
        ("sub-block", {}, [1], {"sub_block": 3}),
        ("mask-in-prompt", {}, [1, MASK], {}),
        ("no-tokens", {}, [], {}),
        ("token-id", {}, [64], {}),
        ("context-length", {}, [1] * 17, {}),
        ("context-length", {"context": 10}, [1] * 9, {}),  # no room for the block that the prompt's tail begins
        ("block", {"context": 3}, [1] * 2, {}),
    ],
)
def test_refusals_come_before_any_call(
    kind: str, changed: dict[str, Any], prompt: list[int], options: dict[str, Any]
) -> None:
    model, how = Scripted(), preset("fast-dllm-v2", **{"sub_block": 4, **options})
    error = refusal(lambda: block_diffusion(prompt, replace(CONFIG, **changed), model, 5, how))
    assert error.kind == kind
    assert model.calls == []


@pytest.mark.parametrize(("prompt", "tokens", "fits"), [(8, 8, True), (8, 9, False), (9, 5, False), (9, 4, True)])
def test_with_full_attention_prompt_and_whole_blocks_must_fit(prompt: int, tokens: int, fits: bool) -> None:
    def run() -> Diffused:
        return block_diffusion([1] * prompt, CONFIG, Scripted(), tokens, preset("llada", shift=True, cache="none"))

    if fits:
        assert len(run().tokens) == tokens
    else:
        assert refusal(run).kind == "context-length"


# ---- what the record says ----------------------------------------------------------------------------------------


def test_the_record_counts_passes_tokens_and_logits() -> None:
    """Two blocks from a prompt of 2: two masked tokens, then three and the one of the commit pass."""
    done = block_diffusion([1, 2], CONFIG, Scripted(), 6, preset("fast-dllm-v2", 0, sub_block=2))
    assert [(p.block, p.fed, p.rows, p.decided, p.commit) for p in done.passes] == [
        (0, 4, 2, 2, False),
        (0, 4, 1, 0, True),
        (1, 4, 1, 1, False),
        (1, 4, 2, 2, False),
    ]
    assert (done.forwards, done.commits, done.forwards_per_block) == (4, 1, (2, 2))
    assert done.tokens_per_forward == 6 / 4
    nothing = block_diffusion([1] * 4, CONFIG, Scripted(), 1, preset("fast-dllm-v2", sub_block=4))
    assert (nothing.tokens_per_forward, nothing.forwards_per_block) == (0.0, ())
