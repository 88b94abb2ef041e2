"""Turn texts into unit vectors: the Encoder protocol and its sentence-transformers implementation."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headwatch_indexer.devices import batch_tokens, best_device, fastest_dtype
from headwatch_indexer.errors import HeadwatchError
from headwatch_indexer.models import (
    ModelInfo,
    ModelRefused,
    ModelUnavailable,
    folder_revision,
    locate,
    missing,
    model_info,
    packaged_model_info,
    verify_packaged,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "BadVector",
    "Encoder",
    "ModelInfo",
    "ModelRefused",
    "ModelUnavailable",
    "batches",
    "load",
    "model_info",
    "packaged_model_info",
    "unit_rows",
]

PACKAGED_MAX_TOKENS = 128  # 256 halves the rate; queries of the code-search set did not need more
OTHER_MAX_TOKENS = 512
MAX_BATCH = 512  # texts
CHARACTERS_PER_TOKEN = 32  # more are cut off before the tokenizer sees them: its time is bounded
_PAD_TO = 8  # few distinct shapes: oneDNN keeps a compiled kernel for each


class BadVector(HeadwatchError):
    """A model gave what must not be stored: NaN, zero length or another dimension."""


class Encoder(Protocol):
    """A model that embeds texts. Safe to call from several threads at once."""

    @property
    def name(self) -> str: ...
    @property
    def revision(self) -> str: ...
    @property
    def dim(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def max_tokens(self) -> int: ...  # of a text; more are cut off

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts in order.

        Returns an array of shape (len(texts), self.dim), rows of unit length.
        Raises BadVector if the model gives anything else.
        """
        ...

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """Embed one query, with the model's own prompt for queries, to shape (self.dim,)."""
        ...


def load(
    model: str | None = None,
    *,
    device: str | None = None,
    dtype: str | None = None,
    max_tokens: int | None = None,
    threads: int | None = None,
) -> Encoder:
    """Load a model (None: the packaged one) onto the best device there is.

    `model` is a sentence-transformers name or folder; `dtype` one of float32, bfloat16, float16, by
    default the fastest that this device computes natively. Raises ModelUnavailable or ModelRefused.
    """
    located = locate(model)
    if located.packaged and located.folder is not None:
        verify_packaged(located.folder)
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    device = device or best_device()
    transformer = _open(located.name, str(located.folder or located.name), device)
    transformer = transformer.to(dtype=getattr(torch, dtype or fastest_dtype(device))).eval()
    if max_tokens is None:
        max_tokens = PACKAGED_MAX_TOKENS if located.packaged else OTHER_MAX_TOKENS
    own_limit = transformer.max_seq_length
    transformer.max_seq_length = min(max_tokens, own_limit) if own_limit else max_tokens
    if located.packaged:
        info = packaged_model_info()
    else:
        folder = locate(model).folder  # again: the first load may have downloaded it
        dim = transformer.get_sentence_embedding_dimension()
        info = ModelInfo(located.name, folder_revision(folder) if folder else "unknown", int(dim or 0))
    return SentenceEncoder(transformer, info)


def batches(lengths: Sequence[int], max_batch: int, max_tokens_per_batch: int) -> list[list[int]]:
    """Split texts, given by their lengths, into batches of similar length, longest first.

    Returns index lists that hold every index once. A batch's padded size, its longest length times its
    count, stays within `max_tokens_per_batch`; a longer text is a batch of its own.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    planned: list[list[int]] = []
    for index in order:
        batch = planned[-1] if planned else None
        if (
            batch is None
            or len(batch) >= max_batch
            or (len(batch) + 1) * lengths[batch[0]] > max_tokens_per_batch
        ):
            planned.append([index])
        else:
            batch.append(index)
    return planned


def unit_rows(vectors: NDArray[Any], count: int, dim: int) -> NDArray[np.float32]:
    """Check that `vectors` are `count` usable vectors of `dim` numbers; return them at unit length.

    Raises BadVector for another shape, NaN or infinity, and rows of zero length.
    """
    import numpy as np

    hint = "another model is loaded than the one configured; see: headwatch doctor"
    if vectors.shape != (count, dim):
        raise BadVector(f"the model gave vectors of shape {vectors.shape}, not ({count}, {dim})", hint=hint)
    rows = np.asarray(vectors, dtype=np.float32)
    norms = np.linalg.norm(rows, axis=1)
    wrong = np.flatnonzero(~(np.isfinite(norms) & (norms > 1e-6)))
    if wrong.size:
        what = "of zero length" if np.isfinite(norms[wrong[0]]) else "that is not finite"
        raise BadVector(f"the model gave a vector {what} for text {int(wrong[0])} of {count}", hint=hint)
    return np.asarray(rows / norms[:, None], dtype=np.float32)


class SentenceEncoder:
    """A loaded sentence-transformers model. Tokenizes once, packs batches by tokens, checks each vector."""

    def __init__(self, model: Any, info: ModelInfo) -> None:
        self.name, self.revision, self.dim = info
        self.device = str(model.device)
        self.max_tokens: int = model.max_seq_length
        self._model = model
        self._batch_tokens = batch_tokens(self.device, self.dim)
        prompts: dict[str, str] = getattr(model, "prompts", None) or {}
        usual = prompts.get(getattr(model, "default_prompt_name", None) or "", "")
        self._query_prompt = prompts.get("query") or usual
        self._text_prompt = prompts.get("document") or prompts.get("passage") or usual
        self._packs = _takes_tokens(model)
        # A tokenizer is not to be called by two threads at once.
        self._tokenizer = model.tokenizer
        self._query_tokenizer = copy.deepcopy(model.tokenizer) if self._packs else None

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts in order; see Encoder."""
        if not self._packs:
            return self._encode_whole(list(texts), "encode_document")
        return self._encode_packed([self._text_prompt + text for text in texts], self._tokenizer)

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """Embed one query; see Encoder."""
        if self._packs:
            rows = self._encode_packed([self._query_prompt + text], self._query_tokenizer)
        else:
            rows = self._encode_whole([text], "encode_query")
        vector: NDArray[np.float32] = rows[0]
        return vector

    def _encode_packed(self, texts: list[str], tokenizer: Any) -> NDArray[np.float32]:
        import numpy as np
        import torch

        if not texts:
            return np.empty((0, self.dim), dtype=np.float32)
        limit = self.max_tokens
        tokens = tokenizer(
            [_readable(text, limit * CHARACTERS_PER_TOKEN) for text in texts],
            truncation=True,
            max_length=limit,
            padding=False,
            return_attention_mask=True,
        )
        lengths = [len(ids) for ids in tokens["input_ids"]]
        waiting = batches(lengths, MAX_BATCH, self._batch_tokens)
        done: list[tuple[list[int], Any]] = []
        while waiting:
            batch = waiting.pop()
            try:
                done.append((batch, self._forward(batch, tokens, tokenizer)))
            except torch.OutOfMemoryError:
                if len(batch) == 1:
                    raise
                torch.cuda.empty_cache()
                self._batch_tokens = max(self._batch_tokens // 2, limit)
                waiting += [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
        vectors = np.empty((len(texts), done[0][1].shape[-1]), dtype=np.float32)
        for batch, rows in done:
            vectors[batch] = rows.cpu().numpy()
        return unit_rows(vectors, len(texts), self.dim)

    def _forward(self, batch: list[int], tokens: Any, tokenizer: Any) -> Any:
        """Run one batch; returns a float32 tensor on the device, rows in the batch's order."""
        import torch

        features = tokenizer.pad(
            {name: [rows[index] for index in batch] for name, rows in tokens.items()},
            padding=True,
            pad_to_multiple_of=_PAD_TO,
            return_tensors="pt",
        )
        with torch.inference_mode():
            output = self._model({name: tensor.to(self.device) for name, tensor in features.items()})
            return output["sentence_embedding"].float()

    def _encode_whole(self, texts: list[str], method: str) -> NDArray[np.float32]:
        """Leave everything to the library: for models that do not start with a plain text transformer."""
        import numpy as np

        if not texts:
            return np.empty((0, self.dim), dtype=np.float32)
        limit = self.max_tokens * CHARACTERS_PER_TOKEN
        encode = getattr(self._model, method, self._model.encode)
        vectors = encode([_readable(text, limit) for text in texts], batch_size=16, show_progress_bar=False)
        return unit_rows(np.asarray(vectors), len(texts), self.dim)


def _open(name: str, where: str, device: str) -> Any:
    """Load with sentence-transformers, silently; whatever it raises becomes ModelUnavailable."""
    from huggingface_hub.utils.tqdm import disable_progress_bars
    from transformers.utils import logging as transformers_logging

    disable_progress_bars()
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # the library has no types
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    from sentence_transformers import SentenceTransformer

    try:
        return SentenceTransformer(where, device=device)
    except Exception as exc:  # the libraries below raise OSError, ValueError, RuntimeError, KeyError, …
        if where == name:
            raise missing(name) from exc
        reason = str(exc).strip().partition("\n")[0] or type(exc).__name__
        raise ModelUnavailable(
            f"cannot load model {name} from {where}: {reason}",
            hint="is it a whole sentence-transformers folder, and does it fit this device?",
        ) from exc


def _takes_tokens(model: Any) -> bool:
    """Whether the model starts with a text transformer whose padded tokens can be given directly."""
    plain = type(model[0]).__name__ == "Transformer" and getattr(model.tokenizer, "is_fast", False)
    return plain and all(getattr(module, "include_prompt", True) for module in model)


def _readable(text: str, length: int) -> str:
    """Cut a text, and replace lone surrogates, which no tokenizer takes."""
    text = text[:length]
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
