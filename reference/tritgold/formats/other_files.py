"""What a file or a folder is that is not what it was given for: the remedy that an error names."""

from pathlib import Path

from tritgold.formats.untrusted_text import printable

_BEGINNINGS = {
    b"version https://git-lfs": "it is a pointer of Git LFS, not the file itself: git lfs pull fetches it",
    b"<": "it is a web page, not the file itself: download it again",
    b"PK\x03\x04": "it is a zip archive, as PyTorch's .bin files are: save the model as safetensors (save_pretrained)",
    b"\x80\x02": "it is a pickle, as PyTorch's .bin files are: save the model as safetensors (save_pretrained)",
    b"\x1f\x8b": "it is compressed: gunzip it",
    b"{": "it is JSON: give the folder that it lies in",
    b"GGUF": "it is a GGUF file: give it alone, under a name that does not end in .safetensors",
    **dict.fromkeys((b"tjgg", b"lmgg", b"fmgg"), "it is of ggml's formats before GGUF: convert the model again"),
}
LONGEST = max(map(len, _BEGINNINGS))


def hint_of(beginning: bytes) -> str | None:
    """The remedy for a file that begins so; None for bytes that say nothing.

    >>> hint_of(b"<!doctype html>")
    'it is a web page, not the file itself: download it again'
    """
    return next((hint for start, hint in _BEGINNINGS.items() if beginning.startswith(start)), None)


def hint_of_folder(folder: Path) -> str | None:
    """The remedy for a folder that lacks config.json or weights: where they lie, or what they are instead."""
    if snapshots := sorted(folder.glob("snapshots/*/config.json")):
        return f"it is a folder of Hugging Face's cache: give {printable(str(snapshots[-1].parent), 4096)}"
    if (folder / "adapter_config.json").is_file():
        return "it is an adapter of PEFT: merge it into its base model first (merge_and_unload)"
    if files := sorted(folder.glob("*.gguf")):
        return f"a GGUF file is opened by its own name: give {printable(str(files[0]), 4096)}"
    if any(folder.glob("pytorch_model*.bin")):
        return "pytorch_model.bin is a pickle: save the model as safetensors (save_pretrained)"
    return None
