"""The chat template of a model: messages as text, rendered with limits by ``render``, in a separate process."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritgold.checkpoint import Checkpoint
from tritgold.errors import FormatError
from tritgold.formats.texts.side_texts import TOKENIZER_CONFIG
from tritgold.formats.untrusted_text import parse_json, printable
from tritgold.tokenizer import Tokenizer

SECONDS = 10  # limit for one rendering
PROGRAM = Path(__file__).with_name("render.py")
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True)
class ChatTemplate:
    """file: where it comes from. source: Jinja. special: texts of the special tokens, by their names in templates."""

    file: Path
    source: str
    special: dict[str, str]

    def text(self, messages: Sequence[dict[str, Any]], add_generation_prompt: bool = True) -> str:
        """The text of messages, each with ``role`` and ``content``; add_generation_prompt: with the answer's opening.

        Raises FormatError ``chat-template`` for a template that refuses the messages, fails, takes longer than SECONDS
        or writes too much.
        """
        variables = {
            **self.special,
            "messages": list(messages),
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        command = [sys.executable, "-I", str(PROGRAM)]
        question = json.dumps({"template": self.source, "variables": variables}).encode()
        try:
            done = subprocess.run(command, input=question, capture_output=True, timeout=SECONDS, check=False)
            answer = json.loads(done.stdout) if done.returncode == 0 else {"error": f"it ended with {done.returncode}"}
        except subprocess.TimeoutExpired:
            answer = {"error": f"it takes more than {SECONDS} seconds"}
        if "text" in answer:
            return str(answer["text"])
        hint = "--prompt without --chat reads a text that you have put into the template yourself"
        what = f"cannot be rendered: {printable(answer['error'])}"
        raise FormatError(what, kind="chat-template", file=self.file, thing="the chat template", hint=hint)


def chat_template(checkpoint: Checkpoint, tokenizer: Tokenizer | None, own: Path | None = None) -> ChatTemplate | None:
    """The checkpoint's template, or that in the file ``own``; None for a model without one."""
    source = checkpoint.chat_template() if own is None else own.read_text(encoding="utf-8")
    if source is None:
        return None
    return ChatTemplate(own or checkpoint.path, source, special_tokens(checkpoint, tokenizer))


def chat_ids(checkpoint: Checkpoint, tokenizer: Tokenizer, message: str, system: str | None) -> list[int]:
    """Ids of a chat with one message, with the answer's opening; special tokens are only those of the template.

    Raises FormatError ``no-chat-template``, and the errors of ``ChatTemplate.text``.
    """
    template = chat_template(checkpoint, tokenizer)
    if template is None:
        hint = "without --chat the prompt is read as it is"
        raise FormatError("has no chat template", kind="no-chat-template", file=checkpoint.path, hint=hint)
    messages = [{"role": "system", "content": system}] if system is not None else []
    return tokenizer.encode(template.text([*messages, {"role": "user", "content": message}]), special=False)


def special_tokens(checkpoint: Checkpoint, tokenizer: Tokenizer | None) -> dict[str, str]:
    """Texts of the special tokens, by their names in templates: from tokenizer_config.json, otherwise by their ids."""
    model = checkpoint.config
    texts: dict[str, str] = {}
    for name, number in {"bos_token": model.bos, "eos_token": next(iter(model.eos), None)}.items():
        if tokenizer is not None and number is not None and (text := tokenizer.token(number)) is not None:
            texts[name] = text
    try:
        config = parse_json(checkpoint.texts().get(TOKENIZER_CONFIG, "{}"))
    except ValueError:
        config = {}  # a broken tokenizer_config.json: the ids are enough
    for name in _SPECIAL if isinstance(config, dict) else ():
        value = config.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            texts[name] = value
    return texts
