"""A recipe that no model or no packing can follow is refused by the name of its field, before any work is done."""

from dataclasses import fields, replace

import pytest
from refusals import refusal
from tiny_training import DIFFUSION, TINY

from tritgold.errors import ConfigError
from tritgold_xla.training.recipe import RECIPES, Recipe


@pytest.mark.parametrize(
    ("recipe", "field", "value"),
    [
        (TINY, "hidden", 200),
        (TINY, "inter", 700),
        (TINY, "length", TINY.context + 1),
        (DIFFUSION, "length", DIFFUSION.block * 2 + 1),
        (TINY, "steps", 0),
        (TINY, "batch", 0),
        (TINY, "length", -1),
        (DIFFUSION, "block", 0),
        (TINY, "heads", 3),
        (TINY, "heads", 0),
        (TINY, "length", 1),
        (TINY, "warmup", TINY.steps // 2 + 1),
        (TINY, "warmup", -1),
        (TINY, "vocab", 259),
        (TINY, "answers", True),
        (replace(DIFFUSION, causal=True), "answers", True),
        (replace(TINY, causal=True, data="skills"), "answers", True),
        (TINY, "from_file", True),
        (TINY, "passages", 1.5),
        (TINY, "passages", -0.1),
        (replace(TINY, data="skills"), "passages", 0.5),
    ],
)
def test_an_impossible_field_is_named_with_its_value(recipe, field, value):
    error = refusal(lambda: replace(recipe, **{field: value}))
    assert (type(error), error.kind, error.thing, error.got) == (ConfigError, "recipe", field, value)
    assert error.expected


def test_what_the_model_cannot_be_is_refused_too():
    assert refusal(lambda: replace(TINY, kv_heads=3)).thing == "kv_heads"


def test_reading_left_to_right_needs_no_whole_blocks():
    assert replace(TINY, length=DIFFUSION.block * 2 + 1).length == 17


def test_the_recorded_runs_have_their_own_names_and_continue_what_fits():
    for name, recipe in RECIPES.items():
        assert recipe.name == name
        if recipe.start is not None:
            start = RECIPES[recipe.start]
            order = list(RECIPES)
            assert order.index(recipe.start) < order.index(name)  # the commands train them in this order
            assert start.config() == recipe.config()


def test_every_field_comes_back_from_the_dictionary():
    assert set(TINY.as_dict()) == {field.name for field in fields(Recipe)}
    assert Recipe(**TINY.as_dict()) == TINY
