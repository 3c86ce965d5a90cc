"""The values of ``--peer``: ``NAME[+HEAD][=PROGRAM]``.

``llama.cpp`` without a path is the package xllamacpp; ``transformers`` runs in another Python. A path names a built
``llama-server`` or ``llama-bench`` of one of three engines, each with the same trits in the format that is fastest
there. HEAD is the type of embedding and head, float16 by default.
"""

import os
from pathlib import Path
from typing import NamedTuple

TRANSFORMERS = "transformers"
# llama.cpp and its forks -> the format with their fastest ternary products, and its bits per weight.
FORMATS = {"llama.cpp": ("tq2_0", 66 * 8 / 256), "ik_llama.cpp": ("iq2_bn", 2.0), "bitnet.cpp": ("i2_s", 2.0)}
# Type of a head -> bits per number. Blocks of 32 as in llama.cpp.
HEADS = {"f16": 16.0, "q8_0": 8.5, "q5_0": 5.5, "q4_0": 4.5}
NAMES = ("llama.cpp", TRANSFORMERS)  # without a path
FORM = "llama.cpp, transformers, or NAME[+HEAD]=PROGRAM with a built llama-server or llama-bench"


class Peer(NamedTuple):
    """name: of the engine. head: one of HEADS. program: a path; None for an installed Python package."""

    name: str
    head: str = "f16"
    program: Path | None = None

    @property
    def label(self) -> str:
        """The name in reports.

        >>> Peer("ik_llama.cpp", "q8_0").label, Peer("llama.cpp").label
        ('ik_llama.cpp+q8_0', 'llama.cpp')
        """
        return self.name if self.head == "f16" else f"{self.name}+{self.head}"

    @property
    def benches(self) -> bool:
        """Whether the program is a llama-bench, which shows no logits."""
        return self.program is not None and "bench" in self.program.name

    @property
    def server(self) -> Path | None:
        """The llama-server by which it is judged: the program itself, or the one in the same folder."""
        if self.program is None or not self.benches:
            return self.program
        return self.program.with_name(self.program.name.replace("llama-bench", "llama-server"))


def peer(text: str) -> Peer:
    """The peer that a text names. Raises ValueError, with a message, for an unknown one.

    >>> peer("ik_llama.cpp+q8_0=/bin/sh")
    Peer(name='ik_llama.cpp', head='q8_0', program=PosixPath('/bin/sh'))
    """
    label, equals, path = text.partition("=")
    name, plus, head = label.partition("+")
    if name not in (*FORMATS, TRANSFORMERS) or (name not in NAMES and not equals) or (name == TRANSFORMERS and equals):
        raise ValueError(f"{text!r} is not one of {FORM}; NAME is one of {', '.join(FORMATS)}")
    if plus and (head not in HEADS or name == TRANSFORMERS):
        raise ValueError(f"{text!r}: the head {head!r} is not one of {', '.join(HEADS)}, of {', '.join(FORMATS)}")
    found = Peer(name, head or "f16", Path(path).absolute() if equals else None)
    programs = [found.program] + [found.server] * found.benches
    for program in programs if equals else []:
        if program is None or not (program.is_file() and os.access(program, os.X_OK)):
            why = " (llama-bench shows no logits; the llama-server of its folder is judged)" if found.benches else ""
            raise ValueError(f"{text!r}: {program} is not a program{why}; build it first, or name another")
    return found


def of_label(label: str) -> Peer:
    """The peer of a name in reports, without its program."""
    name, _, head = label.partition("+")
    return Peer(name, head or "f16")
