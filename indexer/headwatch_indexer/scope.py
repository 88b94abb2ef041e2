"""What is indexed, by path and by size. Pure; what only the content tells is the parser's to judge."""

from __future__ import annotations

import re
import stat
from collections.abc import Collection
from functools import lru_cache

from headwatch_indexer.languages import language_of
from headwatch_indexer.records import RepositoryRules
from headwatch_indexer.rules import matches

SIZE_LIMIT = 1 << 20  # bytes
ATTRIBUTES = ("linguist-generated", "linguist-vendored")

_GITLINK = 0o160000

_EXAMPLE = re.compile(r"(?:example|sample|template|dist|defaults)$")
_ENV = re.compile(r"\.env(?:rc)?(?:[._-].*)?$|[^.].*\.env$")
_KEY_NAME = re.compile(
    r"id_(?:rsa|dsa|ecdsa|ed25519|xmss)(?:_sk)?(?:[_-][\w-]*)?(?:\.(?:bak|old|orig|key|ppk))?$"
)
_KEY_ENDING = re.compile(
    r"\.(?:pem|key|p8|p12|pfx|pkcs12|keystore|jks|jceks|bks|ppk|kdb|kdbx|agekey|ovpn|tfstate|tfstate\.backup)$"
)
_CREDENTIALS = re.compile(
    r"[._]netrc|\.pgpass|\.git-credentials|\.htpasswd|\.pypirc|\.npmrc|\.dockercfg|\.dockerconfigjson|\.my\.cnf"
    r"|\.s3cfg|\.boto|\.vault-token|\.terraformrc|\.credentials|credentials(?:\.tfrc)?\.json"
    r"|client_secret.*\.json|service-account\.json"
)
_CREDENTIALS_IN: dict[str, set[str] | None] = {  # folder: names in it; None for all
    ".aws": {"credentials"},
    ".docker": {"config.json"},
    ".kube": {"config"},
    ".gnupg": None,
    ".ssh": None,
}
_NOT_SECRET_IN_SSH = re.compile(
    r"config$|known_hosts|authorized_keys|.*\.(?:pub|md|py|sh|txt|ya?ml|go|rs|ts|js|c|h|java|rb)$"
)
# Copies that editors make while they save: vim, emacs, JetBrains.
_EDITOR_COPY = re.compile(
    r"^#(?P<emacs>.+)#$|^\.(?P<vim>.+)\.sw[a-p]$|^(?P<name>.+?)(?:~|___jb_(?:tmp|old)___)$"
)


def skip_reason(
    path: bytes,
    *,
    mode: int,
    size: int | None,
    is_link: bool,
    attributes: Collection[str],
    rules: RepositoryRules,
) -> str | None:
    """Say why the file at `path` is not indexed; None when it is.

    `mode` as git or lstat has it; `size` in bytes, None where it is not known; `attributes`: which of
    ATTRIBUTES are set.
    """
    if is_link or stat.S_ISLNK(mode):
        return "symlink"
    if stat.S_IFMT(mode) == _GITLINK:
        return "submodule"
    if not stat.S_ISREG(mode):
        return "not a regular file"
    if reason := path_reason(path, rules):
        return reason
    if "linguist-generated" in attributes:
        return "generated"
    if "linguist-vendored" in attributes:
        return "vendored"
    if size is not None and size > SIZE_LIMIT:
        return "too large"
    return None


def path_reason(path: bytes, rules: RepositoryRules) -> str | None:
    """Say why a regular file of this path is never indexed ("secret", "excluded"); None when it may be."""
    if is_secret(path):
        return "secret"
    if rules.exclude and matches(rules.exclude, path):
        return "excluded"
    if rules.include and not matches(rules.include, path):
        return "excluded"
    if rules.only_languages and language_of(path, rules) not in rules.only_languages:
        return "excluded"
    return None


@lru_cache(maxsize=1 << 16)
def is_secret(path: bytes) -> bool:
    """Tell by its name whether a file holds keys or credentials."""
    folders, _, name = path.decode("utf-8", "replace").lower().rpartition("/")
    while copy := _EDITOR_COPY.match(name):
        name = copy["emacs"] or copy["vim"] or copy["name"]
    folder = folders.rpartition("/")[2]
    return (
        (_ENV.match(name) is not None and not _is_example(name))
        or _KEY_NAME.match(name) is not None
        or _KEY_ENDING.search(name) is not None
        or _CREDENTIALS.fullmatch(name) is not None
        or (folder in _CREDENTIALS_IN and _kept_in(folder, name))
    )


def _is_example(name: str) -> bool:
    return any(_EXAMPLE.match(part) for part in re.split(r"[._-]", name))


def _kept_in(folder: str, name: str) -> bool:
    names = _CREDENTIALS_IN[folder]
    if names is not None:
        return name in names
    return folder != ".ssh" or _NOT_SECRET_IN_SSH.match(name) is None
