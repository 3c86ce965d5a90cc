"""The chat template of a model: messages as text, rendered with limits by ``render``, in a separate process.

The process is kept for as long as the template is: to start it takes longer than to render a chat.
"""

import json
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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


class Renderer:
    """The process: one rendering at a time, each at most SECONDS long; after one without an answer a new process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def ask(self, question: bytes) -> dict[str, str]:
        """The answer to a line of JSON: ``text`` or ``error``."""
        with self._lock:
            kept = self._child is not None
            answer = self._once(question)
            if answer is None and kept:  # it was ended since the last rendering
                answer = self._once(question)
        return {"error": "its process ended"} if answer is None else answer

    def _once(self, question: bytes) -> dict[str, str] | None:
        """None if the process ended without an answer."""
        if self._child is None:
            command = [sys.executable, "-I", str(PROGRAM)]
            self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._end = weakref.finalize(self, _end, self._child)
        child, late, line = self._child, threading.Event(), b""
        timer = threading.Timer(SECONDS, lambda: late.set() or child.kill())
        timer.start()
        assert child.stdin is not None
        assert child.stdout is not None
        with suppress(OSError):  # it has ended
            child.stdin.write(question + b"\n")
            child.stdin.flush()
            line = child.stdout.readline()
        timer.cancel()
        timer.join()
        if late.is_set() or not line.endswith(b"\n"):
            self._end()
            self._child = None
            return {"error": f"it takes more than {SECONDS} seconds"} if late.is_set() else None
        answer: dict[str, str] = json.loads(line)
        return answer


def _end(child: "subprocess.Popen[bytes]") -> None:
    child.kill()
    child.wait()
    for stream in (child.stdin, child.stdout):
        with suppress(OSError):  # what could not be written
            if stream is not None:
                stream.close()


@dataclass(frozen=True)
class ChatTemplate:
    """file: where it comes from. source: Jinja. special: texts of the special tokens, by their names in templates."""

    file: Path
    source: str
    special: dict[str, str]
    renderer: Renderer = field(default_factory=Renderer, compare=False, repr=False)

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
        answer = self.renderer.ask(json.dumps({"template": self.source, "variables": variables}).encode())
        if "text" in answer:
            return answer["text"]
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
