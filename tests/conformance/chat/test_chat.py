"""Chat templates: what transformers makes of the common ones, and what a hostile one comes to."""

import json
import sys
from pathlib import Path

import jinja2
import pytest
from click.testing import CliRunner, Result
from conversions import bitnet, converted
from refusals import refusal

from tritgold.checkpoint import open_checkpoint
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.chat import template as chat
from tritgold_conformance.chat.render import MOST_CHARACTERS, render
from tritgold_conformance.chat.template import Renderer, chat_ids
from tritgold_conformance.cli import main

SYSTEM = {"role": "system", "content": " Be brief. "}
USER = {"role": "user", "content": 'Hi <there> & "you"\nnew line '}
ANSWER = {"role": "assistant", "content": "Hello"}
WORDS = {"bos_token": "<s>", "eos_token": "</s>"}

# The templates of public models, in our own words where they say the same; each with the text that
# transformers 5.24 renders of SYSTEM, USER, ANSWER, USER (or without SYSTEM), add_generation_prompt set.
LLAMA_3 = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim"
    " + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
CHATML = (
    "{%- for message in messages %}\n"
    "    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n"
)
BITNET_2B = (
    "{% for message in messages %}{% if loop.first %}{{ bos_token }}{% endif %}"
    "{{ message['role'] | capitalize }}: {{ message['content'] | trim }}{{ '<|eot_id|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant: ' }}{% endif %}"
)
FALCON = (
    "{% for message in messages %}{% if not loop.first %}{{ '\n' }}{% endif %}"
    "{% if message['role'] == 'system' %}{{ '<|system|>\n' + message['content'] }}"
    "{% elif message['role'] == 'user' %}{{ '<|user|>\n' + message['content'] }}"
    "{% elif message['role'] == 'assistant' %}{{ '<|assistant|>\n' + message['content'] + eos_token }}{% endif %}"
    "{% if loop.last and add_generation_prompt %}{{ '\n<|assistant|>\n' }}{% endif %}{% endfor %}"
)
USED = {"llama-3": LLAMA_3, "chatml": CHATML, "bitnet-2b-4t": BITNET_2B, "falcon": FALCON}
HI = 'Hi <there> & "you"\nnew line '
EXPECTED = {
    "llama-3": "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
    f"<|start_header_id|>user<|end_header_id|>\n\n{HI.strip()}<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>"
    f"<|start_header_id|>user<|end_header_id|>\n\n{HI.strip()}<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "chatml": "<|im_start|>system\n Be brief. <|im_end|>\n"
    f"<|im_start|>user\n{HI}<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
    f"<|im_start|>user\n{HI}<|im_end|>\n<|im_start|>assistant\n",
    "bitnet-2b-4t": f"<s>System: Be brief.<|eot_id|>User: {HI.strip()}<|eot_id|>Assistant: Hello<|eot_id|>"
    f"User: {HI.strip()}<|eot_id|>Assistant: ",
    "falcon": f"<|system|>\n Be brief. \n<|user|>\n{HI}\n<|assistant|>\nHello</s>\n<|user|>\n{HI}\n<|assistant|>\n",
}


def rendered(template: str, **more: object) -> str:
    variables = {**WORDS, "messages": [SYSTEM, USER, ANSWER, USER], "add_generation_prompt": True, "tools": None}
    return render(template, {**variables, **more})


@pytest.mark.parametrize("name", USED)
def test_common_templates_give_what_transformers_gives(name: str) -> None:
    assert rendered(USED[name]) == EXPECTED[name]


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ messages[1] | tojson }}", json.dumps(USER, ensure_ascii=False)),  # not escaped for HTML
        ("{%- set ns = namespace(n=0) -%}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "4"),
        (
            "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}{{ m.role }} {% endfor %}",
            "system user ",
        ),
        ("{% generation %}a{% endgeneration %}{{ tools is none }}", "aTrue"),
        ("    {% if true %}\nx\n    {% endif %}\ny", "x\ny"),  # trim_blocks, lstrip_blocks
        ("{{ messages[0].content.strip().split(' ')[0] }}", "Be"),
        ("{{ messages[0].get('name', 'none') }}", "none"),
        ("{{ missing }}|{{ missing is defined }}", "|False"),
        ("{{ range(3) | list }}{{ dict(a=1) }}", "[0, 1, 2]{'a': 1}"),
        ("{{ strftime_now('%Y')[:2] }}", "20"),
    ],
)
def test_what_templates_use_of_jinja(template: str, text: str) -> None:
    assert rendered(template) == text


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__ }}",
        "{{ (messages | attr('__class__')) }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(a=1) }}",
        "{{ '{0.__class__.__mro__}'.format(1) }}",
        "{{ raise_exception.__globals__ }}",
        "{{ namespace.__init__ }}",
        "{{ self.__init__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ range(10000000000) }}",
        "{% include 'x' %}",
        "{{ raise_exception('no system role') }}",
        "{% for %}",
        f"{{% for i in range(99999) %}}{{{{ 'x' * {MOST_CHARACTERS // 1000} }}}}{{% endfor %}}",
    ],
)
def test_what_no_template_may(template: str) -> None:
    try:
        text = rendered(template)
    except (jinja2.TemplateError, ValueError, OverflowError, TypeError):
        return
    assert text == ""  # an attribute that is not there for templates


# ---- with a model --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = bitnet(tmp_path_factory.mktemp("chat"))
    (source / "chat_template.jinja").write_text(FALCON)
    config = json.loads((source / "config.json").read_text()) | {"max_position_embeddings": 256}
    (source / "config.json").write_text(json.dumps(config))
    return source


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.mark.parametrize("to", ["hf", "i2_s", "sglbitnt"])
def test_ids_of_a_chat_are_the_same_in_every_container(folder: Path, tmp_path: Path, to: str) -> None:
    opened = converted(folder, tmp_path, to)
    tokenizer = Tokenizer.from_text(opened.tokenizer_json() or "")
    text = "<|system|>\nBe brief\n<|user|>\nHi\n<|assistant|>\n"
    assert chat_ids(opened, tokenizer, "Hi", "Be brief") == tokenizer.encode(text, special=False)


def test_run_puts_the_prompt_into_the_template(folder: Path) -> None:
    done = run("run", folder, "--chat", "--prompt", "Hi", "--system", "Be", "--max-tokens", "1", "--json")
    assert done.exit_code == 0, done.output
    tokenizer = Tokenizer(folder / "tokenizer.json")
    expected = tokenizer.encode("<|system|>\nBe\n<|user|>\nHi\n<|assistant|>\n", special=False)
    assert json.loads(done.stdout)["prompt_ids"] == expected


@pytest.mark.parametrize("words", [("--ids", "1", "--chat"), ("--prompt", "a", "--system", "b")])
def test_options_that_do_not_go_together(folder: Path, words: tuple[str, ...]) -> None:
    assert run("run", folder, *words).exit_code == 2


def test_a_model_without_a_template(tmp_path: Path) -> None:
    source = bitnet(tmp_path)
    for name in ("chat_template.jinja", "tokenizer_config.json"):
        (source / name).unlink(missing_ok=True)
    done = run("run", source, "--chat", "--prompt", "Hi")
    assert done.exit_code == 3
    assert "has no chat template" in done.output


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{ raise_exception('only users here') }}", "only users here"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "more than 1 seconds"),
        ("{{ 'x' * 10 ** 10 }}", "MemoryError"),
    ],
)
def test_a_template_that_cannot_be_rendered_is_a_typed_error(
    tmp_path: Path, template: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if says == "MemoryError" and sys.platform != "linux":
        pytest.skip("memory is limited on Linux")
    monkeypatch.setattr(chat, "SECONDS", 1)
    source = bitnet(tmp_path)
    (source / "chat_template.jinja").write_text(template)
    opened = open_checkpoint(source)
    tokenizer = Tokenizer(source / "tokenizer.json")
    error = refusal(lambda: chat_ids(opened, tokenizer, "Hi", None))
    assert error.kind == "chat-template"
    assert says in str(error)


def test_the_process_is_kept_and_made_again_after_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    renderer = Renderer()

    def asked(template: str) -> dict[str, str]:
        return renderer.ask(json.dumps({"template": template, "variables": {}}).encode())

    assert asked("a\n") == {"text": "a"}
    kept = renderer._child
    assert kept is not None
    assert asked("{{ raise_exception('no') }}") == {"error": "TemplateError: no"}
    assert asked("b" * 100_000) == {"text": "b" * 100_000}
    assert renderer._child is kept
    kept.kill()
    assert asked("c") == {"text": "c"}
    monkeypatch.setattr(chat, "SECONDS", 0.3)
    assert asked(slow) == {"error": "it takes more than 0.3 seconds"}
    monkeypatch.undo()
    assert asked("d") == {"text": "d"}
    last = renderer._child
    assert last is not None
    del renderer
    assert last.returncode is not None, "it ends with the template"
