"""The program of a peer, with a fake llama.cpp: it is found beside its main file, and answers by the protocol."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from tritgold_conformance.engines.peers import PROGRAM

FAKE = '''
class Params:
    def __getattr__(self, name):
        self.__dict__[name] = Params()
        return self.__dict__[name]

ggml_type = llama_flash_attn_type = CommonParams = Params
ggml_type.GGML_TYPE_F32 = llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED = 0

class Server:
    def __init__(self, params):
        if params.model.path == "refused":
            raise RuntimeError("not a GGUF")

    def handle_completions(self, body):
        """The next token is the number of tokens, of a vocabulary of five; a part of a character after two."""
        last = len(body["prompt"])
        top = [{"id": i, "logprob": -0.5 if i == last else -2.0} for i in (4, 3, 2, 1, 0)]
        return {"choices": [{"logprobs": None if last == 2 else {"content": [{"top_logprobs": top}]}}]}
'''


def answered(folder: Path, checkpoint: str, requests: dict[str, object]) -> subprocess.CompletedProcess[str]:
    (folder / "xllamacpp.py").write_text(FAKE)
    (folder / "xllamacpp-1.2.dist-info").mkdir()
    (folder / "xllamacpp-1.2.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: xllamacpp\nVersion: 1.2\n"
    )
    (folder / "config.json").write_text(json.dumps({"checkpoint": checkpoint}))
    (folder / "requests.json").write_text(json.dumps(requests))
    save_file({}, folder / "inputs.safetensors")
    words = [sys.executable, str(PROGRAM), "llama.cpp:float32", str(folder), str(folder)]
    return subprocess.run(words, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False)


def test_llama_cpp_gives_the_next_token_after_each_prefix(tmp_path: Path) -> None:
    done = answered(tmp_path, "model.gguf", {"text": {"tokens": [4, 4, 4]}})
    assert done.returncode == 0, done.stderr
    header, arrays = json.loads((tmp_path / "answer.json").read_text()), load_file(tmp_path / "outputs.safetensors")
    assert (header["protocol"], header["name"], header["versions"]) == (
        "tritgold.command/1", "llama.cpp", {"xllamacpp": "1.2"},
    )  # fmt: skip
    assert header["seconds"]["prefill"] >= 0
    np.testing.assert_array_equal(arrays["text/token"], [1, -1, 3])
    np.testing.assert_array_equal(arrays["text/ids"], np.tile(np.arange(5), (3, 1)))
    np.testing.assert_array_equal(arrays["text/logprobs"][2], [-2.0, -2.0, -2.0, -0.5, -2.0])


def test_a_file_that_llama_cpp_refuses_ends_the_program(tmp_path: Path) -> None:
    done = answered(tmp_path, "refused", {"text": {"tokens": [4]}})
    assert done.returncode == 1
    assert done.stderr == "llama.cpp refuses the file: not a GGUF\n"
