"""Where settings come from: defaults < file < environment < flags. The only reader of the environment."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal
from uuid import UUID

import platformdirs
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from headwatch_indexer.errors import HeadwatchError

LOCAL_TENANT = UUID("6c6f6361-6c00-4000-8000-000000000000")
_SOCKET_LIMIT_BYTES = 100  # the kernel's is 108 on Linux and 104 on macOS, with the closing zero
_ENVIRONMENT = {
    "HEADWATCH_HOME": "home",
    "HEADWATCH_DATABASE_URL": "database_url",
    "HEADWATCH_SOCKET": "socket",
    "HEADWATCH_MODEL": "model",
}


def _as_uuid(value: object) -> object:
    return UUID(value) if isinstance(value, str) else value


class ConfigError(HeadwatchError):
    """A setting cannot be read; the message names the file and the line, or the variable, or the flag."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class FreshnessSettings(_Section):
    policy: Literal["content", "ancestry"] = "content"
    interval_s: float = Field(default=300.0, gt=0)
    batch: int = Field(default=200, ge=1)  # facts a pass


class MemorySettings(_Section):
    stale_weight: float = Field(default=1.0, ge=0)
    unresolved_weight: float = Field(default=1.0, ge=0)
    retention_days: float = Field(default=90.0, gt=0)
    distance_weight: float = Field(default=0.0, ge=0)


class EmbeddingSettings(_Section):
    idle_exit_s: float = Field(default=300.0, ge=0)
    device: str = "auto"  # auto, cpu, cuda, mps


class HistorySettings(_Section):
    max_commits: int = Field(default=5000, ge=0)


class WatchSettings(_Section):
    token_s: float = Field(default=5.0, gt=0)  # git's own state is compared
    stat_s: float = Field(default=60.0, gt=0)  # every file's stat is compared
    hash_s: float = Field(default=86_400.0, gt=0)  # every file's content is compared
    polling: bool = False  # never use the system's watches
    drop: Literal["none", "half", "all"] = "none"  # lose events on purpose: a test of the safety net


class LogSettings(_Section):
    level: Literal["debug", "info", "warning", "error"] = "info"


class _Settings(_Section):
    """What the file, the environment and the flags may set, but for the two places."""

    database_url: str | None = Field(default=None, repr=False)  # may hold a password: show dsn.redact of it
    model: str | None = None  # None: the packaged all-MiniLM-L6-v2
    tenant: Annotated[UUID, BeforeValidator(_as_uuid)] = LOCAL_TENANT
    freshness: FreshnessSettings = FreshnessSettings()
    memory: MemorySettings = MemorySettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    history: HistorySettings = HistorySettings()
    watch: WatchSettings = WatchSettings()
    log: LogSettings = LogSettings()


class _File(_Settings):
    """What a configuration file may say."""

    home: str = ""
    socket: str = ""


class Config(_Settings):
    """Every setting, resolved. Paths are absolute."""

    home: str
    socket: str
    file: str  # the TOML file, read when it exists
    user_home: str  # $HOME, which is refused as a root
    debug: bool  # show tracebacks

    def settings(self) -> dict[str, object]:
        """List dotted keys with their values: what the table `setting` holds for SQL."""
        sections = ("freshness", "memory", "embedding", "history")
        return {
            f"{section}.{key}": value
            for section in sections
            for key, value in getattr(self, section).model_dump().items()
        }


def load(flags: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None) -> Config:
    """Resolve the configuration.

    `flags` maps dotted keys ("home", "freshness.batch") to values; None values are skipped. The key "config"
    names the TOML file. Raises ConfigError for a file that cannot be read, an unknown key or a wrong type.
    """
    env = dict(os.environ if environ is None else environ)
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    named = given.pop("config", None) or env.get("HEADWATCH_CONFIG") or None
    user_home = env.get("HOME") or os.path.expanduser("~")
    file = _absolute(str(named), user_home) if named else _default_file(env)
    values = _read_file(file, required=named is not None)
    for variable, key in _ENVIRONMENT.items():
        if env.get(variable):
            values[key] = env[variable]
    for key, value in given.items():
        _put(values, key, value)
    values["home"], values["socket"] = _places(values, env, user_home)
    values |= {"file": file, "user_home": user_home, "debug": bool(env.get("HEADWATCH_DEBUG"))}
    try:
        return Config.model_validate(values)
    except ValidationError as exc:
        key, what = _problem(exc)
        raise ConfigError(f"cannot use the setting {key}: {what}", hint=_known_keys(key)) from None


def _places(values: Mapping[str, Any], env: Mapping[str, str], user_home: str) -> tuple[str, str]:
    """Find the data directory and the socket; a home named by the user has a socket of its own."""
    home = _absolute(str(values["home"]), user_home) if values.get("home") else _default_home(env)
    if values.get("socket"):
        socket = _absolute(str(values["socket"]), user_home)
    elif not values.get("home") and env.get("XDG_RUNTIME_DIR"):
        socket = os.path.join(env["XDG_RUNTIME_DIR"], "headwatch", "headwatch.sock")
    else:
        socket = os.path.join(home, "run", "headwatch.sock")
    return home, _short(socket)


def _short(socket: str) -> str:
    """Give a path that can be bound: `socket`, or where that is too long one named by its hash."""
    if len(os.fsencode(socket)) <= _SOCKET_LIMIT_BYTES:
        return socket
    name = hashlib.sha256(os.fsencode(socket)).hexdigest()[:16] + ".sock"
    for folder in (tempfile.gettempdir(), "/tmp"):  # noqa: S108 - endpoint.claim sees that the folder is ours alone
        short = os.path.join(folder, f"headwatch-{os.getuid()}", name)
        if len(os.fsencode(short)) <= _SOCKET_LIMIT_BYTES:
            return short
    return socket


def _default_home(env: Mapping[str, str]) -> str:
    if env.get("XDG_DATA_HOME"):
        return os.path.join(env["XDG_DATA_HOME"], "headwatch")
    return platformdirs.user_data_dir("headwatch", appauthor=False)


def _default_file(env: Mapping[str, str]) -> str:
    if env.get("XDG_CONFIG_HOME"):
        return os.path.join(env["XDG_CONFIG_HOME"], "headwatch", "config.toml")
    return os.path.join(platformdirs.user_config_dir("headwatch", appauthor=False), "config.toml")


def _absolute(path: str, user_home: str) -> str:
    if path == "~" or path.startswith("~/"):
        path = user_home + path[1:]
    return os.path.abspath(path)


def _read_file(path: str, required: bool) -> dict[str, Any]:
    """Parse and check one TOML file; every complaint names its line."""
    try:
        with open(path, "rb") as stream:
            text = stream.read().decode()
    except FileNotFoundError:
        if required:
            raise ConfigError(
                f"cannot read the configuration {path}: there is no such file",
                hint="create it, or unset HEADWATCH_CONFIG",
            ) from None
        return {}
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(
            f"cannot read the configuration {path}: {exc}", hint="it must be a readable TOML file"
        ) from exc
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        line, what = _toml_problem(exc, text)
        raise ConfigError(
            f"cannot read the configuration {path}:{line}: {what}", hint="fix this line; the file is TOML"
        ) from None
    try:
        _File.model_validate(values, strict=True)
    except ValidationError as exc:
        key, what = _problem(exc)
        raise ConfigError(
            f"cannot use the configuration {path}:{_line_of(text, key)}: {key}: {what}", hint=_known_keys(key)
        ) from None
    return values


def _toml_problem(exc: tomllib.TOMLDecodeError, text: str) -> tuple[int, str]:
    """Split tomllib's message into line and words."""
    message = str(exc)
    found = re.search(r" \(at line (\d+), column \d+\)$", message)
    if found:
        return int(found[1]), message[: found.start()]
    return text.count("\n") + 1, re.sub(r" \(at end of document\)$", "", message)


def _problem(exc: ValidationError) -> tuple[str, str]:
    """Give the dotted key of the first complaint, and the complaint."""
    error = exc.errors(include_url=False, include_context=False, include_input=False)[0]
    key = ".".join(str(part) for part in error["loc"])
    what = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        what = "there is no such key"
    return key, what[:1].lower() + what[1:]


def _line_of(text: str, key: str) -> int:
    """Find the line that sets a dotted key, or of its table where the key is written in another way."""
    best, table, wanted = 1, "", key.split(".")
    for number, line in enumerate(text.splitlines(), start=1):
        bare = line.strip()
        if bare.startswith("["):
            table = re.sub(r"[\s\"']", "", bare.strip("[]").split("#")[0]).rstrip("]")
            if table == wanted[0]:
                best = number
        elif "=" in bare and not bare.startswith("#"):
            left = re.sub(r"[\s\"']", "", bare.split("=")[0])
            full = f"{table}.{left}" if table else left
            if full == key:
                return number
            if full == wanted[0]:
                best = number
    return best


def _put(values: dict[str, Any], key: str, value: object) -> None:
    """Set a dotted key in nested tables."""
    *tables, last = key.split(".")
    for table in tables:
        inner = values.get(table, {})
        values[table] = dict(inner) if isinstance(inner, Mapping) else {}
        values = values[table]
    values[last] = value


def _known_keys(key: str) -> str:
    """List the keys that stand beside a wrong one."""
    section = key.split(".")[0] if "." in key else ""
    known = [k for k in _all_keys() if k.startswith(section + ".")] or list(_all_keys())
    return "known keys: " + ", ".join(known)


def _all_keys() -> Iterator[str]:
    for name, field in _File.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, _Section):
            yield from (f"{name}.{inner}" for inner in field.annotation.model_fields)
        else:
            yield name
