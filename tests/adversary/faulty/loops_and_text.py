"""Loops that write something else than the logits say."""

from collections.abc import Callable

import numpy as np
from registry import faulty, made
from text_engine import Generating, Options

KIND = "loops_and_text"
Loop = Callable[[Generating, list[int], int, Options], list[int]]


def _sevens(self: Generating, prompt: list[int], most: int, options: Options) -> list[int]:
    return [7] * most


def _echo(self: Generating, prompt: list[int], most: int, options: Options) -> list[int]:
    return (prompt * most)[:most]


def _without(*names: str) -> Loop:
    def generate(self: Generating, prompt: list[int], most: int, options: Options) -> list[int]:
        return Generating.generate(self, prompt, most, {k: v for k, v in options.items() if k not in names})

    return generate


def _eos_ignored(self: Generating, prompt: list[int], most: int, options: Options) -> list[int]:
    return Generating.generate(self, prompt, most, {**options, "stop": []})


def _first_stop(self: Generating, prompt: list[int], most: int, options: Options) -> list[int]:
    return Generating.generate(self, prompt, most, {**options, "stop": sorted(self.stops(options))[:1]})


def _stop_left_out(self: Generating, prompt: list[int], most: int, options: Options) -> list[int]:
    found = Generating.generate(self, prompt, most, options)
    return found[:-1] if found[-1] in self.stops(options) else found


def _one_more(self: Generating, prompt: list[int], most: int, options: Options) -> list[int]:
    return Generating.generate(self, prompt, most + 1, options)


def _drops_first(self: Generating, prompt: list[int], most: int, options: Options) -> list[int]:
    found = Generating.generate(self, prompt, most + 1, options)
    return found[1:] or found


def _stops_in_prompt(self: Generating, prompt: list[int], most: int, options: Options) -> list[int]:
    return [] if self.stops(options) & set(prompt) else Generating.generate(self, prompt, most, options)


for _name, _what, _loop in [
    ("GeneratesSevens", "generate returns [7] * n", _sevens),
    ("GeneratesTheEnd", "generate does not end at a stop", _eos_ignored),
    ("FirstStopOnly", "generate ends at the lowest of several stops only", _first_stop),
    ("StopLeftOut", "generate leaves the stop out", _stop_left_out),
    ("OneTokenMore", "generate writes one token more than asked for", _one_more),
    ("FirstTokenLost", "generate loses the prefill's token", _drops_first),
    ("TemperatureIgnored", "generate takes temperature and top-p and ignores them", _without("temperature", "top_p")),
    ("PenaltyIgnored", "generate takes the repetition penalty and ignores it", _without("repetition_penalty")),
    ("BiasIgnored", "generate takes logit_bias and ignores it", _without("logit_bias")),
    ("StopsIgnored", "generate takes stop and ignores it", _without("stop")),
    ("StopInPrompt", "generate takes a stop in the prompt for the end", _stops_in_prompt),
    ("GeneratesEcho", "generate repeats the prompt", _echo),
]:
    faulty(KIND, _what)(made(_name, Generating, generate=_loop))


@faulty(KIND, "the repetition penalty is taken once for each occurrence")
class PenaltyByOccurrence(Generating):
    def penalised(self, logits: np.ndarray, text: list[int], options: Options) -> np.ndarray:
        penalty = float(options.get("repetition_penalty") or 1)
        for token in text:
            logits[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
        return logits


@faulty(KIND, "the last of equal logits is taken")
class LastMaximum(Generating):
    def biased(self, logits: np.ndarray, options: Options) -> np.ndarray:
        return Generating.biased(self, np.asarray(logits, np.float16), options)

    def choose(self, logits: np.ndarray, text: list[int], options: Options) -> int:
        scores = self.biased(logits, options)
        return int(len(scores) - 1 - np.argmax(scores[::-1]))


def _chunk_tokens(self: Generating, prompt: list[int], most: int, options: Options) -> list[int]:
    """Each chunk of the prompt gives a token."""
    self.reset()
    chunk, extra, logits = int(options.get("chunk") or 0) or len(prompt), [], self.prefill(prompt[:1])
    for at in range(1, len(prompt), chunk):
        logits = self.prefill(prompt[at : at + chunk])
        extra.append(int(np.argmax(logits[-1])))
    return (extra[:-1] + self.continued(logits[-1], list(prompt), most, {}))[:most]


def _reads_last_again(self: Generating, prompt: list[int], most: int, options: Options) -> list[int]:
    again = prompt + prompt[-1:] if options.get("cached") == len(prompt) else prompt
    return Generating.serve(self, again, most, {**options, "cached": 0})


def _cache_forgotten(self: Generating, prompt: list[int], most: int, options: Options) -> list[int]:
    return Generating.serve(self, prompt[int(options.get("cached") or 0) :] or prompt[-1:], most, {})


for _name, _what, _loop in [
    ("ServesSevens", "serve returns [7] * n", _sevens),
    ("ServesAChunkTokens", "serve writes a token for each chunk of the prompt", _chunk_tokens),
    ("ServesLastTwice", "serve reads the last token twice where all of the prompt is cached", _reads_last_again),
    ("ServesUncached", "serve forgets what is cached", _cache_forgotten),
]:
    faulty(KIND, _what)(made(_name, Generating, serve=_loop))
