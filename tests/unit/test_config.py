"""Configuration: precedence, places, and complaints that name file and line."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwatch.config import LOCAL_TENANT, ConfigError, load


def write(folder: Path, text: str) -> str:
    path = folder / "config.toml"
    path.write_text(text)
    return str(path)


def test_precedence(tmp_path: Path) -> None:
    """Defaults < file < environment < flags, key by key."""
    file = write(tmp_path, "model = 'from-file'\n[freshness]\nbatch = 7\ninterval_s = 9\n")
    config = load(
        {"freshness.batch": 8, "model": None}, {"HEADWATCH_CONFIG": file, "HEADWATCH_MODEL": "from-env"}
    )
    assert config.model == "from-env"
    assert config.freshness.batch == 8
    assert config.freshness.interval_s == 9
    assert config.freshness.policy == "content"
    assert load({"model": "flag"}, {"HEADWATCH_MODEL": "from-env"}).model == "flag"


def test_defaults() -> None:
    """The documented defaults hold when nothing is set, and an empty variable counts as not set."""
    config = load(
        {}, {"HOME": "/u", "HEADWATCH_MODEL": "", "HEADWATCH_HOME": "", "XDG_CONFIG_HOME": "/nowhere"}
    )
    assert config.model is None
    assert config.tenant == LOCAL_TENANT
    assert (config.memory.stale_weight, config.memory.unresolved_weight, config.memory.retention_days) == (
        1.0,
        1.0,
        90,
    )
    assert config.embedding.idle_exit_s == 300
    assert config.user_home == "/u"
    assert config.file == "/nowhere/headwatch/config.toml"


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("[model\nname = \n", 1, "Expected ']'"),
        ("model = 'x'\n\nhome = \n", 3, "Invalid value"),
        ("a = '''\n", 2, "Expected"),
        ("[freshness]\n# note\nbatch = 'many'\n", 3, "freshness.batch"),
        ("[freshness]\nbatch = '5'\n", 2, "freshness.batch"),
        ("[freshness]\nbatch = true\n", 2, "freshness.batch"),
        ("model = 'x'\nfreshness.polcy = 'content'\n", 2, "freshness.polcy: there is no such key"),
        ("[memory]\n[freshness]\npolicy = 'guess'\n", 3, "'content' or 'ancestry'"),
        ("[fresh]\nbatch = 1\n", 1, "fresh: there is no such key"),
        ("\ntenant = 'me'\n", 2, "tenant"),
        ("freshness = 3\n", 1, "freshness"),
        ("[history]\nmax_commits = -1\n", 2, "history.max_commits"),
        ("debug = true\n", 1, "debug: there is no such key"),
    ],
)
def test_bad_file_is_named_with_its_line(tmp_path: Path, text: str, line: int, what: str) -> None:
    """Malformed TOML, an unknown key or a wrong type is reported with file and line, and with a hint."""
    file = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load({"config": file}, {})
    assert f"{file}:{line}:" in caught.value.message
    assert what in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_code == 1


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    """A configuration that was asked for by name and is not there is an error; the default one may be absent."""
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        load({}, {"HEADWATCH_CONFIG": str(tmp_path / "nowhere.toml")})
    load({}, {"XDG_CONFIG_HOME": str(tmp_path)})


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    """Bytes that are not UTF-8, or a folder in the file's place, are reported by name."""
    (tmp_path / "bad.toml").write_bytes(b"model = '\xff'\n")
    for path in (tmp_path / "bad.toml", tmp_path):
        with pytest.raises(ConfigError) as caught:
            load({"config": str(path)}, {})
        assert str(path) in caught.value.message


def test_wrong_flag_names_its_key() -> None:
    """A wrong value from a flag is reported by the setting's name."""
    with pytest.raises(ConfigError, match=r"freshness\.batch"):
        load({"freshness.batch": "many"}, {})
    with pytest.raises(ConfigError, match="no such key"):
        load({"freshness.batches": "1"}, {})
    with pytest.raises(ConfigError):
        load({"model.name": "1"}, {"HEADWATCH_MODEL": "x"})


def test_flags_are_text_and_become_values() -> None:
    """`--set` gives text; numbers, booleans and ids come out typed."""
    tenant = "11111111-2222-3333-4444-555555555555"
    config = load({"freshness.batch": "5", "watch.polling": "true", "tenant": tenant}, {})
    assert (config.freshness.batch, config.watch.polling, config.tenant) == (5, True, UUID(tenant))


def test_a_named_home_has_a_socket_of_its_own(tmp_path: Path) -> None:
    """Two homes never share a socket: the runtime folder serves the default home alone."""
    runtime = {"XDG_RUNTIME_DIR": "/run/user/1", "HOME": "/u"}
    assert load({}, runtime).socket == "/run/user/1/headwatch/headwatch.sock"
    sockets = {load({}, runtime | {"HEADWATCH_HOME": f"/{name}"}).socket for name in ("a", "b")}
    assert sockets == {"/a/run/headwatch.sock", "/b/run/headwatch.sock"}
    assert load({}, runtime | {"HEADWATCH_HOME": "/a", "HEADWATCH_SOCKET": "/s/x.sock"}).socket == "/s/x.sock"
    file = write(tmp_path, "home = '~/data'\n")
    assert load({"config": file}, runtime).socket == "/u/data/run/headwatch.sock"


@given(st.text("abcé/", min_size=1, max_size=150))
def test_socket_is_short_enough_to_bind(tail: str) -> None:
    """Whatever the home, the socket's path fits the kernel's limit, and different homes have different sockets."""
    one, other = (load({}, {"HEADWATCH_HOME": f"/h/{tail}{end}"}) for end in ("1", "2"))
    assert len(os.fsencode(one.socket)) <= 100
    assert one.socket != other.socket


def test_relative_places_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative home means the caller's folder, also after a change of folder."""
    monkeypatch.chdir(tmp_path)
    assert load({"home": "data"}, {}).home == str(tmp_path / "data")


def test_password_is_not_shown() -> None:
    """Neither the configuration's repr nor an error about it shows the database URL."""
    url = "postgresql://u:secret@h/d"
    assert "secret" not in repr(load({}, {"HEADWATCH_DATABASE_URL": url}))
    with pytest.raises(ConfigError) as caught:
        load({"freshness.batch": "x"}, {"HEADWATCH_DATABASE_URL": url})
    assert "secret" not in str(caught.value)


def test_settings_for_sql() -> None:
    """The table `setting` gets every key that SQL functions may read, under its dotted name."""
    settings = load({"memory.stale_weight": 0.5}, {}).settings()
    assert settings["memory.stale_weight"] == 0.5
    assert {"freshness.policy", "memory.retention_days", "history.max_commits"} <= settings.keys()
