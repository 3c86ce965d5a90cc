"""Files and folders that are not what they were given for: each refusal says what they are, and what to do."""

import gzip
from pathlib import Path

import pytest
from refusals import refusal
from small_models import as_gguf, seeded

from tritgold.checkpoint import open_checkpoint
from tritgold.formats.other_files import hint_of

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 1187801280\n"


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (POINTER.encode(), "git lfs pull"),
        (b"<!doctype html><html>404</html>", "download it again"),
        (b"PK\x03\x04" + bytes(64), "save_pretrained"),
        (b"\x80\x02" + bytes(64), "save_pretrained"),
        (gzip.compress(bytes(64), mtime=0), "gunzip"),
        (b'{"architectures": []}', "give the folder"),
        (b"tjgg" + bytes(64), "before GGUF"),
    ],
)
def test_what_is_no_gguf_is_called_what_it_is(tmp_path: Path, data: bytes, hint: str) -> None:
    (tmp_path / "m.gguf").write_bytes(data)
    error = refusal(lambda: open_checkpoint(tmp_path / "m.gguf"))
    assert error.kind == "not-gguf"
    assert hint in str(error.hint)


def test_bytes_that_say_nothing_have_no_hint() -> None:
    assert hint_of(b"\x00\x01") is None
    assert hint_of(b"") is None


def test_a_pointer_of_git_lfs_in_a_folder(tmp_path: Path) -> None:
    path = seeded(tmp_path).write(tmp_path / "m")
    (path / "model.safetensors").write_text(POINTER)
    error = refusal(lambda: open_checkpoint(path))
    assert (error.kind, "git lfs pull" in str(error.hint)) == ("header-length", True)


def test_the_cache_of_hugging_face_says_where_the_model_lies(tmp_path: Path) -> None:
    """Its snapshots are links to blobs; the folder that the hint names opens."""
    path, snapshot = seeded(tmp_path).write(tmp_path / "m"), tmp_path / "cache" / "snapshots" / "5e1f"
    snapshot.mkdir(parents=True)
    for file in path.iterdir():
        (snapshot / file.name).symlink_to(file)
    error = refusal(lambda: open_checkpoint(tmp_path / "cache"))
    assert error.kind == "no-config"
    named = str(error.hint).rpartition("give ")[2]
    assert open_checkpoint(Path(named)).model_hash() == open_checkpoint(path).model_hash()


def test_a_folder_of_one_gguf_file_names_it(tmp_path: Path) -> None:
    made = as_gguf(seeded(tmp_path).write(tmp_path / "m"), "bitnet-b1.58")
    (tmp_path / "f").mkdir()
    made.write(tmp_path / "f" / "model.gguf")
    error = refusal(lambda: open_checkpoint(tmp_path / "f"))
    open_checkpoint(Path(str(error.hint).rpartition("give ")[2]))


@pytest.mark.parametrize(
    ("name", "there", "hint"),
    [
        ("pytorch_model-00001-of-00002.bin", "config.json", "save_pretrained"),
        ("adapter_config.json", "adapter_model.safetensors", "merge_and_unload"),
    ],
)
def test_what_lies_there_instead_of_weights(tmp_path: Path, name: str, there: str, hint: str) -> None:
    path = seeded(tmp_path).write(tmp_path / "m")
    (path / "model.safetensors").rename(path / name)
    if there != "config.json":
        (path / "config.json").rename(path / there)
    assert hint in str(refusal(lambda: open_checkpoint(path)).hint)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "language_model."])
def test_names_with_a_prefix_of_what_wrapped_the_model(tmp_path: Path, prefix: str) -> None:
    model = seeded(tmp_path)
    model.entries = {f"{prefix}{name}": entry for name, entry in model.entries.items()}
    error = refusal(lambda: open_checkpoint(model.write(tmp_path / "m")))
    assert error.kind == "missing-tensor"
    assert str(error.hint).startswith(f"names in the file begin with {prefix!r}")


def test_names_without_the_prefix_of_the_class(tmp_path: Path) -> None:
    model = seeded(tmp_path)
    model.entries = {name.removeprefix("model."): entry for name, entry in model.entries.items()}
    error = refusal(lambda: open_checkpoint(model.write(tmp_path / "m")))
    assert str(error.hint).startswith("expected names begin with 'model.'")
