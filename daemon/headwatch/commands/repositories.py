"""Commands that change what is watched: run, add, remove, list."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwatch.commands.context import Json, absolute, actions, configuration, example, here, put
from headwatch_indexer.errors import WrongUsage

if TYPE_CHECKING:
    from headwatch.client import Client

_ONCE_TIMEOUT_S = 86_400.0  # first indexing and embedding of a huge repository


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command(epilog=example("headwatch run .", "headwatch run --once ~/src/project"))(run)
    app.command(epilog=example("headwatch add . ~/src/other"))(add)
    app.command(epilog=example("headwatch remove ~/src/other --purge"))(remove)
    app.command("list", epilog=example("headwatch list"))(list_)


def run(
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="Worktrees to register; default: those registered.", metavar="[PATH]…"),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Bring everything up to date, report, exit.")] = False,
    no_vectors: Annotated[
        bool, typer.Option("--no-vectors", help="Rows and words only, no embedding.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --once: print the report as JSON.")] = False,
) -> int:
    """Run the daemon in the foreground, or with --once one pass."""
    from headwatch import log, render
    from headwatch.client import find

    config = configuration()
    roots = _folders(paths or [])
    log.setup(config.log.level if not once or config.log.level != "info" else "warning")
    if not once:
        if as_json:
            raise WrongUsage("--json needs --once", hint="a daemon is asked with: headwatch status --json")
        from headwatch.app import run_daemon

        return run_daemon(config, roots, not no_vectors)
    from headwatch.progress import shown

    with shown() as progress:
        client = find(config.socket, config.home)
        if client is not None:
            progress.note("headwatch: a daemon runs; it does the work")
            report = _hand_over(client, roots, not no_vectors)
        else:
            from headwatch.app import run_once

            report = run_once(config, roots, not no_vectors, progress)
    put(report, as_json, render.report)
    return 0


def add(
    paths: Annotated[list[str], typer.Argument(help="Repositories or worktrees.", metavar="PATH…")],
    name: Annotated[str | None, typer.Option(help="A name for the repository.", metavar="N")] = None,
    as_json: Json = False,
) -> None:
    """Register repositories or worktrees; linked worktrees are found by themselves."""
    from headwatch import render

    roots = _folders(paths)
    with actions(configuration()) as act:
        put(act.add(roots, name), as_json, render.listing)


def remove(
    path: Annotated[str, typer.Argument(help="A registered worktree.")],
    purge: Annotated[bool, typer.Option("--purge", help="Delete its rows at once.")] = False,
    as_json: Json = False,
) -> None:
    """Stop watching a worktree."""
    from headwatch import render

    with actions(configuration()) as act:
        put(act.remove(str(absolute(path)), purge), as_json, render.removed)


def list_(as_json: Json = False) -> None:
    """List the registered repositories and their worktrees."""
    from headwatch import render

    with actions(configuration()) as act:
        put(act.list_(), as_json, render.listing)


def _folders(paths: list[str]) -> list[str]:
    """Make paths absolute; say at once which one is missing."""
    found = [str(absolute(path)) for path in paths]
    for path in found:
        if not os.path.exists(path):
            raise WrongUsage(
                f"cannot register {path}: there is no such folder", hint="give the path of a git worktree"
            )
    return found


def _hand_over(client: Client, roots: list[str], vectors: bool) -> dict[str, Any]:
    """Let the running daemon do what `run --once` does, and wait for it."""
    before = client.status()["counters"]
    if roots:
        client.add(roots)
    known = roots or [
        tree["root"] for repository in client.list_()["repositories"] for tree in repository["worktrees"]
    ]
    for root in known:
        client.reconcile(root)
        client.wait(root, _ONCE_TIMEOUT_S, vectors, here())
    after = client.status()
    counters = {name: value - before.get(name, 0) for name, value in after["counters"].items()}
    return {"repositories": after["repositories"], "counters": counters}
