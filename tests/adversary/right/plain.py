"""The engines that the faulty ones are made of: were one of these wrong, nothing below would mean anything."""

from base_engine import Engine
from full_engine import FullEngine
from registry import right


@right("float32 with float64 inside norms, RoPE and softmax; logits alone")
class PlainLogits(Engine):
    pass


@right("the same with operations, trace, statistics, greedy tokens and files")
class PlainEverything(FullEngine):
    pass


@right("the trained model instead of the seeded one", model="kjv-ar")
class PlainTrained(FullEngine):
    pass
