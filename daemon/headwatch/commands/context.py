"""What every command starts from: the configuration, and actions on a daemon or on the database."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwatch import __version__
from headwatch.client import Client, NoDaemon, find
from headwatch_indexer.errors import Unreachable

if TYPE_CHECKING:
    from rich.text import Text

    from headwatch.config import Config
    from headwatch.protocol import Actions

flags: dict[str, object] = {}  # dotted setting → value, as the global flags of this process give it

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Repo = Annotated[
    str | None, typer.Option("--repo", help="A path in the worktree; default: here.", metavar="PATH")
]


def example(*lines: str) -> str:
    """Write the examples that end a command's help."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def configuration() -> Config:
    """Resolve the settings of this call."""
    from headwatch import config

    return config.load(flags)


def daemon(config: Config) -> Client:
    """Give the running daemon.

    Raises NoDaemon (exit 4) when none runs.
    """
    client = find(config.socket, config.home)
    if client is None:
        raise NoDaemon(config.socket)
    if not client.answers():
        raise Unreachable(
            f"the headwatch daemon on {client.socket_path} does not answer",
            hint="is it stopped or stuck? see its log, or restart it",
        )
    return client


@contextmanager
def actions(config: Config) -> Iterator[Actions]:
    """Give the daemon's actions when one answers, else the same straight on the database."""
    client = find(config.socket, config.home)
    if client is not None and client.answers():
        try:
            yield client
        finally:  # an error may be due to it
            warn_of_version(client)
        return
    what = "no daemon runs" if client is None else "the daemon does not answer (stopped or stuck?)"
    print(f"headwatch: {what}; working on the database itself", file=sys.stderr)
    from headwatch import log
    from headwatch.actions import open_local

    log.setup("warning" if config.log.level == "info" else config.log.level)
    with open_local(config) as local:
        yield local


def warn_of_version(client: Client) -> None:
    """Say when daemon and command are of different versions."""
    if client.server_version not in (None, __version__):
        print(
            f"headwatch: the daemon is version {client.server_version}, this command {__version__}; "
            "restart the daemon after an upgrade",
            file=sys.stderr,
        )


def put(answer: dict[str, Any], as_json: bool, text: Callable[[dict[str, Any]], Iterable[Text]]) -> None:
    """Print an answer as one JSON document or as text."""
    if as_json:
        print(json.dumps(answer, indent=2, ensure_ascii=False))
        return
    from headwatch import render

    render.show(text(answer))


def here() -> str:
    """Give the current folder; a deleted one is named by nothing."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"


def absolute(path: str | None) -> str | None:
    """Make a path mean the same to the daemon, whose current folder is another."""
    if path is None:
        return None
    return os.path.normpath(os.path.join(here(), os.path.expanduser(path)))
