"""A request's messages as the text of the server's chat template."""

import asyncio
from typing import Any

from tritgold.errors import FormatError
from tritgold_conformance.serving.api_errors import bad
from tritgold_conformance.serving.request_fields import Message
from tritgold_conformance.serving.service import Service


async def chat_text(service: Service, messages: list[Message], add_generation_prompt: bool) -> str:
    """The text. Raises ApiError for messages that the template refuses, and for parts that are not text."""
    if service.template is None:
        what = "the model has no chat template; --chat-template FILE gives the server one"
        raise bad("messages", what, "no_template")
    plain = [_plain(n, message) for n, message in enumerate(messages)]
    try:
        return await asyncio.to_thread(service.template.text, plain, add_generation_prompt)
    except FormatError as error:
        what = error.message.removeprefix("cannot be rendered: ")
        raise bad("messages", f"the model's chat template refuses them: {what[:200]}") from None


def _plain(n: int, message: Message) -> dict[str, Any]:
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
