"""A user's message as ids: the model's own chat template, rendered within limits, then its tokenizer."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tritgold.checkpoint import Checkpoint
from tritgold.errors import FormatError
from tritgold.formats.texts.side_texts import TOKENIZER_CONFIG
from tritgold.formats.untrusted_text import parse_json, printable
from tritgold.tokenizer import Tokenizer

SECONDS = 10  # of a template
PROGRAM = Path(__file__).with_name("chat_render.py")
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def chat_ids(checkpoint: Checkpoint, tokenizer: Tokenizer, message: str, system: str | None) -> list[int]:
    """Ids of a chat of one message, with what opens the answer; special tokens are those that the template writes.

    Raises FormatError: ``no-chat-template``, ``chat-template`` for one that fails, takes longer than SECONDS or writes
    endlessly.
    """
    messages = [{"role": "system", "content": system}] if system is not None else []
    messages.append({"role": "user", "content": message})
    return tokenizer.encode(chat_text(checkpoint, tokenizer, messages), special=False)


def chat_text(checkpoint: Checkpoint, tokenizer: Tokenizer, messages: list[dict[str, str]]) -> str:
    """The text of messages, each with ``role`` and ``content``."""
    template = checkpoint.chat_template()
    if template is None:
        hint = "without --chat the prompt is read as it is"
        raise FormatError("has no chat template", kind="no-chat-template", file=checkpoint.path, hint=hint)
    variables = {
        **special_tokens(checkpoint, tokenizer),
        "messages": messages,
        "tools": None,
        "documents": None,
        "add_generation_prompt": True,
    }
    return _rendered(checkpoint.path, {"template": template, "variables": variables})


def special_tokens(checkpoint: Checkpoint, tokenizer: Tokenizer) -> dict[str, str]:
    """The texts of the special tokens, by their names in templates: of tokenizer_config.json, or else of the ids."""
    model = checkpoint.config
    found = {"bos_token": model.bos, "eos_token": next(iter(model.eos), None)}
    texts = {
        name: text for name, id_ in found.items() if id_ is not None and (text := tokenizer.token(id_)) is not None
    }
    try:
        config = parse_json(checkpoint.texts().get(TOKENIZER_CONFIG, "{}"))
    except ValueError:
        config = {}  # transformers' file; the ids do without it
    for name in _SPECIAL if isinstance(config, dict) else ():
        value = config.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            texts[name] = value
    return texts


def _rendered(file: Path, asked: dict[str, Any]) -> str:
    question = json.dumps(asked).encode()
    command = [sys.executable, "-I", str(PROGRAM)]
    try:
        done = subprocess.run(command, input=question, capture_output=True, timeout=SECONDS, check=False)
        answer = json.loads(done.stdout) if done.returncode == 0 else {"error": f"it ended with {done.returncode}"}
    except subprocess.TimeoutExpired:
        answer = {"error": f"it takes more than {SECONDS} seconds"}
    if "text" in answer:
        return str(answer["text"])
    hint = "--prompt without --chat reads a text that you have put into the template yourself"
    what = f"cannot be rendered: {printable(answer['error'])}"
    raise FormatError(what, kind="chat-template", file=file, thing="the chat template", hint=hint)
