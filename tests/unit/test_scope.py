"""What is indexed, by path and by size."""

from __future__ import annotations

import pytest

from headwatch_indexer.records import RepositoryRules
from headwatch_indexer.scope import SIZE_LIMIT, path_reason, skip_reason

FILE = 0o100644


def reason(
    path: bytes,
    mode: int = FILE,
    size: int | None = 10,
    attributes: tuple[str, ...] = (),
    rules: RepositoryRules | None = None,
) -> str | None:
    return skip_reason(
        path, mode=mode, size=size, is_link=False, attributes=attributes, rules=rules or RepositoryRules()
    )


@pytest.mark.parametrize(
    "path",
    [
        b".env", b".env.local", b"api/.env.production", b".ENV", b".envrc", b"prod.env", b".env~", b"..env.swp",
        b"id_rsa", b".ssh/id_ed25519", b"keys/id_ecdsa_sk", b"id_rsa_work", b"id_rsa.bak", b"server.pem", b"tls/a.KEY",
        b"#server.pem#", b".env___jb_tmp___", b"a.p12", b"a.pfx", b"release.keystore", b"a.jks", b"db.kdbx", b".netrc",
        b"_netrc", b".pgpass", b".git-credentials", b".aws/credentials", b"home/.docker/config.json", b".kube/config",
        b"credentials.json", b"client_secret_123.json", b".ssh/deploy", b".gnupg/private.gpg", b"terraform.tfstate",
        b".npmrc", b"putty.ppk",
    ],
)  # fmt: skip
def test_secrets_are_never_indexed(path: bytes) -> None:
    """Keys and credentials are known by their names, also as an editor's copy."""
    assert reason(path) == "secret"


@pytest.mark.parametrize(
    "path",
    [
        b"secret_santa.py", b"secrets.py", b"src/credentials.py", b".env.example", b".env.sample", b".env.template",
        b".env.local.example", b"example.env", b"env.py", b"environment.ts", b"id_rsa.pub", b"id_rsa_utils.py",
        b"pem.py", b"keyboard.key.ts", b"src/key.rs", b"config", b"docker/config.json", b".ssh/config", b"monkey",
        b"aws/credentials.md", b"package-lock.json", b"uv.lock", b"data.csv", b"tokens.py", b"password_reset.html",
    ],
)  # fmt: skip
def test_code_about_secrets_is_indexed(path: bytes) -> None:
    """A word in a name is no secret; examples, lock files and data are text."""
    assert reason(path) is None


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (0o120000, "symlink"), (0o120777, "symlink"), (0o160000, "submodule"), (0o010644, "not a regular file"),
        (0o140755, "not a regular file"), (0o040755, "not a regular file"), (0o100755, None),
    ],
)  # fmt: skip
def test_only_regular_files_are_indexed(mode: int, expected: str | None) -> None:
    """Links are not followed, submodules are worktrees of their own, a fifo has no content."""
    assert reason(b"x", mode=mode) == expected


def test_size_limit_is_exact_and_unknown_sizes_pass() -> None:
    """1 MiB is in, one byte more is out."""
    assert reason(b"x", size=SIZE_LIMIT) is None
    assert reason(b"x", size=SIZE_LIMIT + 1) == "too large"
    assert reason(b"x", size=None) is None


def test_declared_attributes_skip() -> None:
    """What the repository declares generated or vendored is not indexed."""
    assert reason(b"x", attributes=("linguist-generated",)) == "generated"
    assert reason(b"x", attributes=("linguist-vendored",)) == "vendored"


def test_rules_exclude_and_include() -> None:
    """exclude wins over include; with an include, the rest is out; secrets stay secret."""
    rules = RepositoryRules(include=("src/**", "*.md"), exclude=("src/old/", "*.min.js"))
    assert reason(b"src/a.py", rules=rules) is None
    assert reason(b"docs/a.md", rules=rules) is None
    assert reason(b"src/old/a.py", rules=rules) == "excluded"
    assert reason(b"src/x/a.min.js", rules=rules) == "excluded"
    assert reason(b"tests/a.py", rules=rules) == "excluded"
    assert path_reason(b"src/.env", rules) == "secret"


def test_only_listed_languages_are_in_scope() -> None:
    """A list of languages leaves the others out."""
    rules = RepositoryRules(only_languages=("python", "markdown"))
    assert reason(b"a.py", rules=rules) is None
    assert reason(b"README.md", rules=rules) is None
    assert reason(b"a.go", rules=rules) == "excluded"
    assert reason(b"notes", rules=rules) == "excluded"
