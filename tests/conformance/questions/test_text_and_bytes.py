"""Questions of text by a model's own tokenizer and chat template."""

from pathlib import Path

import pytest

from tritgold.checkpoint import open_checkpoint
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.faults import FAULTS
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.questions.text_and_bytes import Question, answer_of, questions, same

TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ eos_token }}{% endfor %}<|assistant|> "


def asked(folder: Path, template: str) -> tuple[Mutant, list[Question]]:
    write_seeded_model(folder, Shape(hidden=64, inter=96, layers=1, heads=2, kv_heads=1, context=32))
    (folder / "chat_template.jinja").write_text(template)
    golden = Mutant(open_checkpoint(folder))
    return golden, [question for question in questions(golden, [1, 2]) if question.method == "chat"]


def test_a_chat_is_the_model_s_own_template(tmp_path: Path) -> None:
    golden, [chat] = asked(tmp_path, TEMPLATE)
    text = "<|user|>the 12<eos><|assistant|> "
    ids = Tokenizer(tmp_path / "tokenizer.json").encode(text, special=False)
    assert same(answer_of(golden, chat), ids)
    wrong = FAULTS["template-space-missing"].apply(golden)
    assert wrong is not None
    assert not same(answer_of(wrong, chat), ids)


@pytest.mark.parametrize("template", ["{{ raise_exception('no') }}", "{% for %}"])
def test_a_template_that_fails_is_not_asked_about(tmp_path: Path, template: str) -> None:
    assert asked(tmp_path, template)[1] == []
