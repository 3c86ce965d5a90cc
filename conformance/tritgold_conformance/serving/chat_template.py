"""A model's own chat template: Jinja in a sandbox, with what transformers gives such templates.

Only the checkpoint's template is ever run, and no request can bring another. It reads no file and changes nothing:
attributes with an underscore, and methods that change their object, are refused by the sandbox.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tritgold.checkpoint import Checkpoint
from tritgold.formats.texts.side_texts import TOKENIZER_CONFIG
from tritgold.formats.untrusted_text import parse_json
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.serving.api_errors import ApiError, bad
from tritgold_conformance.serving.request_fields import Message

LONGEST = 1 << 22  # characters of what a template makes


class ChatTemplate:
    """Messages to text. Raises ApiError for messages that the template refuses, and for parts that are no text."""

    def __init__(self, source: str, special: dict[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"], loader=None
        )
        environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self.source, self._special = source, special
        try:
            self._template: jinja2.Template | None = environment.from_string(source)
        except jinja2.TemplateError:
            self._template = None

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """The text of a conversation."""
        if self._template is None:
            raise ApiError(500, "the model's chat template is not Jinja", code="chat_template")
        said = [self._plain(n, message) for n, message in enumerate(messages)]
        given = {"messages": said, "add_generation_prompt": add_generation_prompt, **self._special}
        text = ""
        try:
            for piece in self._template.generate(**given):
                text += piece
                if len(text) > LONGEST:
                    raise bad("messages", "become too long a text", "context_length_exceeded")
        except jinja2.TemplateError as error:
            raise bad("messages", f"the model's chat template refuses them: {str(error)[:200]}") from None
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError):
            raise bad("messages", "the model's chat template cannot read them") from None
        return text

    def _plain(self, n: int, message: Message) -> dict[str, Any]:
        content = message.content
        if isinstance(content, list):
            texts = []
            for m, part in enumerate(content):
                if part.get("type") != "text" or not isinstance(part.get("text"), str):
                    raise bad(f"messages[{n}].content[{m}]", "only parts of type text are supported")
                texts.append(part["text"])
            content = "".join(texts)
        if content is None:
            raise bad(f"messages[{n}].content", "is missing", "missing_parameter")
        name = {} if message.name is None else {"name": message.name}
        return {"role": message.role, "content": content, **name}


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


def template_of(checkpoint: Checkpoint, tokenizer: Tokenizer | None, own: str | None = None) -> ChatTemplate | None:
    """The checkpoint's template, or the server's own, with the model's special tokens by name; None without one."""
    source = checkpoint.chat_template() if own is None else own
    if source is None:
        return None
    special: dict[str, str] = {}
    if tokenizer is not None:
        eos = checkpoint.config.eos[0] if checkpoint.config.eos else None
        ids = {"bos_token": checkpoint.config.bos, "eos_token": eos}
        special = {name: text for name, token in ids.items() if token is not None and (text := tokenizer.token(token))}
    try:
        said = parse_json(checkpoint.texts().get(TOKENIZER_CONFIG, "{}"))
    except ValueError:
        said = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = said.get(name) if isinstance(said, dict) else None
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            special[name] = value
    return ChatTemplate(source, special)
