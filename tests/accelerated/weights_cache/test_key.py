"""What prepared weights are kept under: the contents and how they are read, not names and not ages alone."""

import hashlib
import os
import time
from dataclasses import replace

import numpy as np
import pytest
from engine_cases import LLAMA, make_weights

from tritgold.checkpoint import open_checkpoint
from tritgold.convert import Options, convert
from tritgold.formats.packings import packing
from tritgold.golden import embedded_model
from tritgold_xla.weights_cache.key import content_of, key_of


@pytest.fixture(scope="module")
def gguf(tmp_path_factory):
    path = tmp_path_factory.mktemp("key") / "model.gguf"
    with embedded_model("seeded") as model:
        convert(open_checkpoint(model), path, "i2_s", Options())
    return path


def key(path, memory, **changed):
    checkpoint = open_checkpoint(path)
    return key_of(replace(checkpoint.config, **changed), checkpoint.weights, memory)


def test_a_copy_has_the_same_key_and_one_other_bit_another(gguf, tmp_path):
    first = key(gguf, tmp_path)
    assert len(first) == 64
    copy = tmp_path / "copy.gguf"
    data = bytearray(gguf.read_bytes())
    copy.write_bytes(data)
    assert key(copy, tmp_path) == first
    tensor = open_checkpoint(gguf).container.tensors["token_embd.weight"]
    data[tensor.offset] ^= 1
    copy.write_bytes(data)
    assert key(copy, tmp_path) != first


def test_how_the_bytes_are_read_counts(gguf, tmp_path):
    checkpoint = open_checkpoint(gguf)
    first, weights = key_of(checkpoint.config, checkpoint.weights, tmp_path), checkpoint.weights
    assert key(gguf, tmp_path, norm_eps=1e-3) != first
    layer = weights.layers[0]
    others = [
        replace(layer, q=replace(layer.q, layout=packing("i2_s", block=64))),
        replace(layer, q=replace(layer.q, scale=np.float32(2))),
        replace(layer, q=replace(layer.q, rows=np.arange(layer.q.shape[0])[::-1])),
        replace(layer, q=replace(layer.q, code3_as_zero=True)),
        replace(layer, k=layer.v),
        replace(layer, attn_norm=layer.attn_norm + np.float32(1)),
    ]
    found = {key_of(checkpoint.config, replace(weights, layers=(o, *weights.layers[1:])), tmp_path) for o in others}
    assert len(found - {first, None}) == len(others)


def test_weights_that_are_not_those_of_files_have_none(gguf, tmp_path):
    assert key_of(LLAMA, make_weights(LLAMA), tmp_path) is None
    checkpoint = open_checkpoint(gguf)
    layer = checkpoint.weights.layers[0]
    stored = replace(layer.q.stored, data=layer.q.stored.data.copy())
    for q in (replace(layer.q, stored=stored), make_weights(LLAMA).layers[0].q):
        changed = replace(checkpoint.weights, layers=(replace(layer, q=q), *checkpoint.weights.layers[1:]))
        assert key_of(checkpoint.config, changed, tmp_path) is None


def settled(file, data):
    file.write_bytes(data)
    old = time.time() - 3600
    os.utime(file, (old, old))


def test_a_file_is_hashed_once_and_again_when_it_has_changed(tmp_path, monkeypatch):
    file, memory = tmp_path / "a", tmp_path / "memory"
    settled(file, b"one")
    monkeypatch.setattr("tritgold_xla.weights_cache.key._SETTLED", -1.0)  # ctime is of now
    assert content_of(file, memory) == hashlib.sha256(b"one").hexdigest()
    (note,) = memory.iterdir()
    note.write_text(note.read_text().replace(hashlib.sha256(b"one").hexdigest(), "remembered"))
    assert content_of(file, memory) == "remembered"
    settled(file, b"two")
    assert content_of(file, memory) == hashlib.sha256(b"two").hexdigest()
    note.write_text("{")
    assert content_of(file, memory) == hashlib.sha256(b"two").hexdigest()
    assert list(memory.iterdir()) == [note]


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path, monkeypatch):
    file = tmp_path / "a"
    settled(file, b"one")
    monkeypatch.setattr("tritgold_xla.weights_cache.key._SETTLED", -1.0)
    assert content_of(file, file / "memory") == hashlib.sha256(b"one").hexdigest()


def test_what_was_changed_a_moment_ago_is_not_remembered(tmp_path):
    file, memory = tmp_path / "a", tmp_path / "memory"
    settled(file, b"one")
    assert content_of(file, memory) == hashlib.sha256(b"one").hexdigest()
    assert not memory.exists()


def test_a_file_that_changes_while_it_is_hashed_has_none(tmp_path, monkeypatch):
    file = tmp_path / "a"
    settled(file, b"one")
    right, told = hashlib.sha256, []

    def hashing(*data):
        if not told and not data:
            told.append(True)
            settled(file, b"another")
        return right(*data)

    monkeypatch.setattr("tritgold_xla.weights_cache.key.hashlib.sha256", hashing)
    assert content_of(file, tmp_path / "memory") is None
