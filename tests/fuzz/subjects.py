"""What is damaged: one small sound checkpoint for each thing that a container can hold."""

from pathlib import Path

from folder_subjects import folder_subjects
from gguf_subjects import gguf_subjects
from sglbitnt_subjects import sglbitnt_subject
from subject import Subject


def subjects(folder: Path) -> list[Subject]:
    """All of them, made in an empty folder."""
    containers = gguf_subjects(folder), folder_subjects(folder)
    return [*containers[0], *containers[1], sglbitnt_subject(always=False), sglbitnt_subject(always=True)]
