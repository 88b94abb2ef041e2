"""Encoders for tests: one that is quick and fails on demand, and the real one, telling what it embeds."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headwatch_indexer.embed import Encoder, ModelUnavailable, load

DIM = 8


@dataclass
class FakeEncoder:
    """Derives vectors from a hash.

    A text with POISON in it raises, one with NAN or ZERO gives that vector, one with KILL kills the process.
    """

    broken: bool = False  # fails on everything
    name: str = "fake"
    revision: str = "0"
    dim: int = DIM
    device: str = "cpu"
    max_tokens: int = 64

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self.broken:
            raise RuntimeError("the device is lost")
        if any("POISON" in text for text in texts):
            raise ValueError("cannot tokenize this")
        if any("KILL" in text for text in texts):
            os.kill(os.getpid(), signal.SIGKILL)
        rows = [_vector(text) for text in texts]
        return np.array(rows, dtype=np.float32).reshape(len(texts), self.dim)

    def encode_query(self, text: str) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = self.encode([text])[0]
        return vector


class GrowingEncoder(FakeEncoder):
    """A FakeEncoder that leaks."""

    leak = b""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.leak = self.leak or b"x" * int(os.environ["HW_TEST_GROW_BYTES"])
        return super().encode(texts)


@dataclass
class RecordingEncoder:
    """A real encoder that appends every text it embeds to a file, one line each."""

    real: Encoder
    file: Path

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        with self.file.open("a") as out:
            out.writelines(f"{text!r}\n" for text in texts)
        return self.real.encode(texts)


def load_fake(model: str | None, *, device: str | None, threads: int | None) -> Encoder:
    """Make a FakeEncoder; the model "missing" is not there."""
    if model == "missing":
        raise ModelUnavailable("cannot load model missing", hint="name another one")
    return FakeEncoder(broken=model == "broken")


def load_growing(model: str | None, *, device: str | None, threads: int | None) -> Encoder:
    """Make an encoder that keeps as many bytes with its first batch as HW_TEST_GROW_BYTES says."""
    return GrowingEncoder()


def load_recording(model: str | None, *, device: str | None, threads: int | None) -> Encoder:
    """Load the packaged model; `model` is the file to record to."""
    assert model is not None
    return RecordingEncoder(load(device=device, threads=threads), Path(model))  # type: ignore[return-value]


def _vector(text: str) -> list[float]:
    if "NAN" in text:
        return [float("nan")] * DIM
    if "ZERO" in text:
        return [0.0] * DIM
    digest = hashlib.sha256(text.encode()).digest()
    return [byte - 127.5 for byte in digest[:DIM]]
