"""Each known defect as a switch: what the engine that has it puts out, and how that differs from what is right."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_diffusion import BLOCK, MASK, engine, prompt_of, server, small_model

from tritgold.decode.block_diffusion import block_diffusion, block_diffusion_batch
from tritgold.decode.block_model import reference_block_model
from tritgold.decode.diffusion_options import Defect, Diffusion
from tritgold.decode.diffusion_presets import preset
from tritgold.decode.diffusion_record import Diffused
from tritgold.decode.unmasking import Leftmost, Thresholds
from tritgold.options import PRESETS

examples = settings(deadline=None, derandomize=True, max_examples=8)
D1, D2, D3, D4 = Defect.NO_COMMIT, Defect.STALE_PREFIX, Defect.OVERWRITTEN_PROMPT, Defect.WHOLE_BLOCKS


def with_defects(options: Diffusion, *defects: Defect) -> Diffusion:
    return replace(options, defects=frozenset(defects))


def tokens(seed: int, length: int, options: Diffusion, *defects: Defect, count: int = 3 * BLOCK) -> list[int]:
    return engine(small_model(seed), prompt_of(seed, length), count, with_defects(options, *defects)).tokens


# ---- the causal server: all of it, then one by one -----------------------------------------------------------------


@pytest.mark.parametrize("mode", ["greedy", "iterative", "adaptive"])
@examples
@given(
    seed=st.integers(0, 5),
    length=st.sampled_from([1, 7, 8, 13]),
    threshold=st.sampled_from([0.02, 0.1, 0.3, 0.9]),
    passes=st.integers(1, 10),
)
def test_with_its_defects_the_server_is_what_it_is(
    mode: str, seed: int, length: int, threshold: float, passes: int
) -> None:
    rule = Thresholds(PRESETS[mode].thresholds(threshold))
    passes = 1 if mode == "greedy" else passes
    known = server(small_model(seed), prompt_of(seed, length), 3, list(rule.values), passes)
    options = with_defects(preset("iterative", rule=rule, max_passes=passes), D1, D2, D3, D4)
    assert engine(small_model(seed), prompt_of(seed, length), 2 * BLOCK + 2, options).tokens == known


def test_d1_without_a_commit_the_blocks_behind_the_first_are_others() -> None:
    right, wrong = (tokens(2, 5, preset("greedy"), *defects) for defects in ((), (D1,)))
    assert right[: BLOCK + 1] == wrong[: BLOCK + 1]
    assert right != wrong


def test_d2_a_stale_prefix_shows_where_several_tokens_are_known_that_were_read_as_masks() -> None:
    """One a pass, in this order: the fifth token follows three that the first passes decided out of order."""
    opened, prompt = small_model(1), prompt_of(1, 5)
    right, wrong = (
        engine(opened, prompt, BLOCK + 1, with_defects(preset("iterative", 1.0, max_passes=None), *defects))
        for defects in ((), (D2,))
    )
    assert right.order == [-1, 4, 6, 5, 2, 0, 1, 3, 7]
    assert [p.fed for p in right.passes] == [9, 9, 9, 9, 9, 8, 8, 7]
    assert [p.fed for p in wrong.passes] == [9, 9, 9, 9, 9, 8, 8, 2], "what it leaves out, the last pass needed"
    assert right.tokens[:8] == wrong.tokens[:8]
    assert right.tokens != wrong.tokens


def test_d2_does_no_harm_to_a_sequence_that_is_decided_from_the_left() -> None:
    options = preset("iterative", rule=Leftmost(), max_passes=None)
    assert tokens(3, 5, options, count=BLOCK + 1) == tokens(3, 5, options, D2, count=BLOCK + 1)


def test_d3_the_prompts_last_token_is_overwritten_after_the_first_is_decided() -> None:
    calls = []
    opened, prompt = small_model(1), prompt_of(1, 5)
    options = with_defects(preset("greedy"), D3)
    model = reference_block_model(opened.weights, opened.config, options, 40)

    def watched(fed: list[int], start: int, end: int, rows: list[int]) -> np.ndarray:
        calls.append((start, len(fed), end))
        return model(fed, start, end, rows)

    wrong = block_diffusion(prompt, opened.config, watched, 12, options).tokens
    assert calls == [(0, 5, 5), (4, 9, 13), (5, 16, 21)], "positions 5 and 6 are right for the second and third"
    right = tokens(1, 5, preset("greedy"), count=12)
    assert right[0] == wrong[0]
    assert right != wrong


@pytest.mark.parametrize(("wanted", "got"), [(1, 1), (2, 9), (9, 9), (10, 17), (16, 17)])
def test_d4_a_budget_is_counted_in_blocks(wanted: int, got: int) -> None:
    """64 requested are 65 put out, with blocks of 32."""
    assert len(tokens(2, 5, preset("iterative"), D4, count=wanted)) == got
    assert (
        tokens(2, 5, preset("iterative"), count=wanted) == tokens(2, 5, preset("iterative"), D4, count=wanted)[:wanted]
    )


def test_d5_what_is_behind_an_end_of_sequence_is_put_out() -> None:
    opened, prompt = small_model(2), prompt_of(2, 5)
    whole = tokens(2, 5, preset("iterative"))
    stop = whole[4]
    opened = replace(opened, config=replace(opened.config, eos=(stop,)))
    right = engine(opened, prompt, 20, preset("iterative"))
    wrong = engine(opened, prompt, 20, with_defects(preset("iterative"), Defect.PAST_STOP))
    assert (right.tokens, right.reason) == (whole[: whole.index(stop) + 1], "stop")
    assert (wrong.tokens, wrong.reason) == (whole[: BLOCK + 1], "stop")


@pytest.mark.parametrize(("length", "stuck"), [(16, False), (17, True)])
def test_d6_a_prompt_of_more_than_two_blocks_gets_no_answer(length: int, stuck: bool) -> None:
    options = with_defects(preset("greedy"), Defect.SHORT_PROMPT)
    done = engine(small_model(2), prompt_of(2, length), 5, options)
    assert done == Diffused([], [], "stuck", ()) if stuck else len(done.tokens) == 5
    assert len(tokens(2, length, preset("greedy"), count=5)) == 5


def only_the_mask(fed: list[int], start: int, end: int, rows: list[int]) -> np.ndarray:
    return np.where(np.arange(259) == MASK, 5.0, 0.0)[None].repeat(len(rows), axis=0)


def test_d7_a_mask_that_is_predicted_is_put_out_or_never_goes_away() -> None:
    config = replace(small_model(2).config)
    for name in ("iterative", "fast-dllm-v2"):
        right = block_diffusion([1, 2], config, only_the_mask, 8, preset(name))
        assert right.tokens == [0] * 8
    options = with_defects(preset("iterative"), Defect.MASK_PREDICTED)
    assert block_diffusion([1, 2], config, only_the_mask, 8, options).tokens == [MASK] * 8
    options = with_defects(preset("fast-dllm-v2"), Defect.MASK_PREDICTED)
    done = block_diffusion([1, 2], config, only_the_mask, 8, options)
    assert (done.tokens, done.reason) == ([], "stuck")


def test_compact_feed_reads_nothing_again_that_is_decided() -> None:
    """The first pass decides all but the third token; the second reads the one before that and no other."""
    calls = []

    def model(fed: list[int], start: int, end: int, rows: list[int]) -> np.ndarray:
        calls.append((start, list(fed), [start + row for row in rows]))
        logits = np.zeros((len(rows), 259))
        for n, row in enumerate(rows):
            logits[n, start + row + 1] = 20 if start + row + 1 not in (5, 7) or fed[0] != 102 else 30
            if start + row + 1 in (5, 7) and MASK in fed[1:3]:
                logits[n, start + row + 1] = 0.1
        return logits

    config = small_model(2).config
    options = with_defects(preset("small-block", sub_block=8), Defect.COMPACT_FEED)
    done = block_diffusion([1, 2], config, model, 9, options)
    assert done.tokens == [2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert calls == [
        (0, [1, 2], [1]),
        (2, [2, *[MASK] * 8], [2, 3, 4, 5, 6, 7, 8, 9]),
        (4, [4], [4]),
        (6, [6], [6]),
    ]
    assert [p.fed for p in done.passes] == [9, 2]


def test_compact_feed_writes_another_text() -> None:
    options = preset("small-block", 0.05, sub_block=4)
    assert any(tokens(seed, 5, options) != tokens(seed, 5, options, Defect.COMPACT_FEED) for seed in range(4))


# ---- the released program of Fast-dLLM v2 --------------------------------------------------------------------------


def test_a_lost_block_is_a_prompt_that_changes_nothing() -> None:
    options = with_defects(preset("fast-dllm-v2", sub_block=4), Defect.LOST_BLOCK)

    def found(prompt: list[int], how: Diffusion) -> list[int]:
        return engine(small_model(2), prompt, 20, how).tokens

    one, other = prompt_of(1, BLOCK), prompt_of(2, BLOCK)
    assert found(one, options) == found(other, options)
    assert found(one, replace(options, defects=frozenset())) != found(other, replace(options, defects=frozenset()))
    assert found(one[1:], options) == found(one[1:], replace(options, defects=frozenset())), "shorter ones are read"


def test_a_shared_refresh_makes_a_sequence_depend_on_its_neighbour() -> None:
    opened = small_model(2)
    prompts = [prompt_of(seed, 9) for seed in range(4)]
    right = preset("fast-dllm-v2-dual", 1.0, sub_block=4)

    def together(options: Diffusion) -> list[list[int]]:
        models = [reference_block_model(opened.weights, opened.config, options, 40) for _ in prompts]
        done = block_diffusion_batch(prompts, opened.config, models, 20, options)
        return [result.tokens for result in done.results]

    alone = [engine(opened, prompt, 20, right).tokens for prompt in prompts]
    assert together(right) == alone
    assert together(with_defects(right, Defect.SHARED_REFRESH)) != alone
