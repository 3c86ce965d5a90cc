"""The base engine with loops and text: generate, serve, diffuse, encode, chat, stream."""

import codecs
import json

import numpy as np
from base_engine import Engine
from tokenizers import Tokenizer

Options = dict[str, object]


def splitmix(seed: int, index: int) -> float:
    """The random number of a position as docs/decoding.md's loop draws it: SplitMix64, its upper 53 bits."""
    m = 2**64 - 1
    z = (seed * 0xD1342543DE82EF95 + index * 0x9E3779B97F4A7C15) & m
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & m
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & m
    return ((z ^ (z >> 31)) >> 11) * 2.0**-53


class Generating(Engine):
    """generate and serve, one token a pass."""

    def stops(self, options: Options) -> set[int]:
        eos = self.config["eos_token_id"]
        given = options.get("stop")
        return set(given) if given is not None else set(eos if isinstance(eos, list) else [eos])

    def biased(self, logits: np.ndarray, options: Options) -> np.ndarray:
        found = np.array(logits, np.float64)
        for name, added in dict(options.get("logit_bias") or {}).items():
            found[... if name == "all" else int(name)] += added
        if "mask_token_id" in self.config:
            found[self.config["mask_token_id"]] = -np.inf
        return found

    def penalised(self, logits: np.ndarray, text: list[int], options: Options) -> np.ndarray:
        penalty, seen = float(options.get("repetition_penalty") or 1), np.unique(text)
        was = logits[seen]
        logits[seen] = np.where(was > 0, was / penalty, was * penalty)
        return logits

    def choose(self, logits: np.ndarray, text: list[int], options: Options) -> int:
        scores = self.penalised(self.biased(logits, options), text, options)
        temperature = float(options.get("temperature") or 0)
        if temperature == 0:
            return int(np.argmax(scores))
        order = np.argsort(-scores, kind="stable")[: int(options.get("top_k") or 0) or None]
        weights = np.exp((scores[order] - scores[order[0]]) / temperature)
        p = options.get("top_p")
        before = np.concatenate([[0.0], np.cumsum(weights)])
        kept = before[:-1] < (1.0 if p is None else float(p)) * before[-1]
        kept[0] = True
        shares = np.cumsum(weights[kept])
        u = self.drawn(int(options.get("seed") or 0), len(text)) * shares[-1]
        return int(order[kept][np.searchsorted(shares, u, side="right")])

    def drawn(self, seed: int, index: int) -> float:
        return splitmix(seed, index)

    def ended(self, token: int, count: int, most: int, options: Options) -> bool:
        return token in self.stops(options) or count >= most or self.length >= self.context

    def generate(self, prompt: list[int], max_tokens: int, options: Options) -> list[int]:
        self.reset()
        return self.continued(self.prefill(prompt)[-1], list(prompt), max_tokens, options)

    def continued(self, logits: np.ndarray, text: list[int], most: int, options: Options) -> list[int]:
        found: list[int] = []
        while True:
            token = self.choose(logits, text, options)
            found.append(token)
            text.append(token)
            if self.ended(token, len(found), most, options):
                return found
            logits = self.step(token)

    def serve(self, prompt: list[int], max_tokens: int, options: Options) -> list[int]:
        self.reset()
        cached, chunk = int(options.get("cached") or 0), int(options.get("chunk") or 0) or len(prompt)
        first = min(cached, len(prompt) - 1)
        logits = self.prefill(prompt[:first]) if first else None
        for at in range(first, len(prompt), chunk):
            logits = self.prefill(prompt[at : at + chunk])
        return self.continued(logits[-1], list(prompt), max_tokens, {})


class Diffusing(Generating):
    """diffuse by fast-dllm-v2: blocks at multiples of bd_size, sub-blocks, a threshold; the whole text in each pass."""

    span = 1  # tokens see one another inside blocks of so many positions

    def visible(self, n: int, rows: int, columns: int) -> np.ndarray:
        at = columns - rows + np.arange(rows)
        return np.arange(columns) // self.span <= (at // self.span)[:, None]

    def text_logits(self, text: list[int]) -> np.ndarray:
        self.reset()
        self.span = int(self.config["bd_size"])
        try:
            return self.prefill(text)
        finally:
            self.span = 1

    def threshold(self, options: Options) -> float:
        given = options.get("threshold")
        return 0.9 if given is None else float(given)

    def decided(self, logits: np.ndarray, threshold: float, options: Options) -> tuple[np.ndarray, np.ndarray]:
        """Of each row the likeliest token, and whether it is decided in this pass."""
        scores = np.stack([self.biased(row, options) for row in logits])
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        sure = powers.max(-1) / powers.sum(-1)
        chosen = sure > threshold
        chosen[np.argmax(sure)] = True
        return scores.argmax(-1), chosen

    def finished(self, text: list[int], prompt: int, most: int, options: Options) -> list[int] | None:
        """The output where it is complete: up to a stop, or as long as was asked for."""
        mask, stops = self.config["mask_token_id"], self.stops(options)
        for i, token in enumerate(text[prompt : prompt + most]):
            if token == mask:
                return None
            if token in stops:
                return text[prompt : prompt + i + 1]
        return text[prompt : prompt + most] if len(text) >= prompt + most else None

    def diffuse(self, prompt: list[int], max_tokens: int, options: Options) -> list[int] | None:
        if options.get("decode", "fast-dllm-v2") != "fast-dllm-v2" or "bd_size" not in self.config:
            return None
        block, sub = int(self.config["bd_size"]), int(options.get("sub_block") or 8)
        text = list(prompt)
        if len(text) % block == 0:
            text.append(int(np.argmax(self.biased(self.text_logits(text)[-1], options))))
        while (done := self.finished(text, len(prompt), max_tokens, options)) is None:
            start = len(text) // block * block
            if start + block > self.context:
                return text[len(prompt) :]
            text += [self.config["mask_token_id"]] * (start + block - len(text))
            for at in range(start, start + block, sub):
                self.fill(text, at, sub, len(prompt), max_tokens, options)
            if self.finished(text, len(prompt), max_tokens, options) is None:
                text.append(int(np.argmax(self.biased(self.text_logits(text)[-1], options))))
        return done

    def fill(self, text: list[int], at: int, sub: int, prompt: int, most: int, options: Options) -> None:
        """Pass by pass, until nothing of the sub-block is masked or the output is complete."""
        mask = self.config["mask_token_id"]
        while self.finished(text, prompt, most, options) is None:
            open_ = [i for i in range(at, at + sub) if text[i] == mask]
            if not open_:
                return
            logits = self.text_logits(text)[[i - 1 for i in open_]]
            tokens, chosen = self.decided(logits, self.threshold(options), options)
            for i, token, take in zip(open_, tokens.tolist(), chosen.tolist(), strict=True):
                if take:
                    text[i] = token


def byte_of_letter() -> dict[str, int]:
    """The byte-level alphabet of GPT-2: printable bytes are themselves, the rest letters from 256 on."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(rest)}


class Speaking(Engine):
    """encode, chat and stream by the checkpoint's own tokenizer.json."""

    def prepare(self) -> None:
        self.tokenizer = Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        self.letters = byte_of_letter()

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text).ids

    def chat(self, message: str) -> list[int]:
        return self.chat_as("User: {}<eot>Assistant: ", message)

    def chat_as(self, template: str, message: str) -> list[int]:
        """As kjv-ar and kjv-dlm have it; without a template a line feed, and BOS, as the protocol says."""
        config = self.folder / "tokenizer_config.json"
        if not config.exists() or "chat_template" not in json.loads(config.read_text()):
            return self.encode(template.replace("<eot>", "\n").format(message))
        return list(self.tokenizer.encode(template.format(message), add_special_tokens=False).ids)

    def bytes_of(self, token: int) -> bytes:
        return bytes(
            self.letters[letter] for letter in self.tokenizer.id_to_token(token) or "" if letter in self.letters
        )

    def stream(self, ids: list[int]) -> list[str]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        pieces = [decoder.decode(self.bytes_of(int(i))) for i in ids]
        return [piece for piece in [*pieces, decoder.decode(b"", final=True)] if piece]


class TextEngine(Diffusing, Speaking):
    """Logits, loops and text."""
