"""The manifest: the SHA-256 of every file of the folder, and the check of a folder against it."""

import hashlib
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import NoReturn

import msgspec

from tritgold.errors import FormatError
from tritgold.formats.untrusted_text import printable, read_text
from tritgold.modes import GOLDEN
from tritgold_conformance.case_vectors.case import MANIFEST, SCHEMA, Flag, Hash, Manifest, Provenance
from tritgold_conformance.engines.exchange import PROTOCOL
from tritgold_conformance.faults import FAULTS

LARGEST = 16 << 20  # largest file that is read, bytes


def recorded() -> Manifest:
    """The manifest that is part of the package: of the folder that this version writes."""
    return msgspec.json.decode(
        files("tritgold_conformance.case_vectors").joinpath(MANIFEST).read_bytes(), type=Manifest
    )


def flags(faults: dict[str, list[str]]) -> dict[str, Flag]:
    """Fault -> its description from the fault library, and the cases that test for it."""
    return {
        name: Flag(area=f.area, summary=f.summary, effect=f.looks_like, links=list(f.seen_in), cases=faults[name])
        for name, f in FAULTS.items()
        if faults.get(name)
    }


def provenance() -> Provenance:
    """The version of tritgold, of its arithmetic and of the protocol with which the folder is written."""
    command = "tritgold vectors DIR"
    return Provenance(command=command, tritgold=version("tritgold"), mode=GOLDEN.id, protocol=PROTOCOL)


def hashes(folder: Path) -> dict[str, Hash]:
    """Hashes of every file of the folder except the manifest. Raises FormatError for links, as ``check`` does."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            _refuse("is a link or a device, not a file", "vectors-extra", folder, name)
        if path.is_file() and name != MANIFEST:
            raw = path.read_bytes()
            found[name] = Hash(bytes=len(raw), sha256=hashlib.sha256(raw).hexdigest())
    return found


def read(folder: Path) -> Manifest:
    """The manifest of a folder. Raises FormatError: ``vectors-missing``, ``vectors-manifest``, ``vectors-version``."""
    path = folder / MANIFEST
    if not path.is_file():
        _refuse("has no manifest", "vectors-missing", folder, MANIFEST, hint="tritgold vectors DIR writes a folder")
    try:
        found = msgspec.json.decode(read_text(path, LARGEST), type=Manifest)
    except (msgspec.MsgspecError, ValueError, OSError, RecursionError) as error:
        _refuse(f"cannot be read: {printable(error)}", "vectors-manifest", folder, MANIFEST)
    if found.schema != SCHEMA:
        _refuse("is of another schema", "vectors-version", folder, MANIFEST, printable(found.schema), SCHEMA)
    return found


def check(folder: Path) -> Manifest:
    """Check every file of a folder against its manifest, and the manifest against that of this version.

    Raises FormatError for the first file that is missing (``vectors-missing``), changed (``vectors-altered``) or in no
    manifest (``vectors-extra``), and for a manifest of another version of tritgold (``vectors-version``).
    """
    manifest = read(folder)
    there = hashes(folder)
    for name, right in manifest.files.items():
        if name not in there:
            _refuse("is missing", "vectors-missing", folder, name, expected=f"{right.bytes} bytes")
        if there[name] != right:
            got, expected = there[name].sha256[:16], right.sha256[:16]
            _refuse("was changed: its SHA-256 differs", "vectors-altered", folder, name, got, expected)
    if extra := sorted(there.keys() - manifest.files.keys()):
        _refuse("is not in the manifest", "vectors-extra", folder, extra[0])
    if manifest != recorded():
        hint = "it is complete, but this version writes other files: use the version of tritgold that wrote it"
        got, expected = printable(manifest.provenance.tritgold), version("tritgold")
        _refuse("is of another version", "vectors-version", folder, MANIFEST, got, expected, hint)
    return manifest


def _refuse(
    message: str,
    kind: str,
    folder: Path,
    name: str,
    got: object = None,
    expected: object = None,
    hint: str | None = "write the folder again: tritgold vectors DIR",
) -> NoReturn:
    thing = printable(name)
    raise FormatError(message, kind=kind, file=folder, thing=thing, got=got, expected=expected, hint=hint)
