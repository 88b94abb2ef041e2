"""The command line: parses, calls one action, prints, and turns errors into words and exit codes."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated, Any

import typer

from headwatch import __version__
from headwatch.commands import database, reading, repositories
from headwatch.commands.context import flags
from headwatch_indexer.errors import HeadwatchError

app = typer.Typer(
    name="headwatch",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: headwatch run --once PATH, then headwatch search QUERY. Settings: headwatch --set KEY=VALUE …",
)
repositories.register(app)
reading.register(app)
database.register(app)


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    home: Annotated[str | None, typer.Option(help="Data directory.", metavar="DIR")] = None,
    socket: Annotated[str | None, typer.Option(help="Path of the Unix socket.", metavar="PATH")] = None,
    config: Annotated[str | None, typer.Option(help="TOML file with settings.", metavar="FILE")] = None,
    database_url: Annotated[
        str | None, typer.Option(help="A Postgres with pgvector instead of the embedded one.", metavar="URL")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A sentence-transformers name or folder.", metavar="NAME")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting, e.g. freshness.batch=100.", metavar="KEY=VALUE"),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Keep a searchable picture of git worktrees in Postgres, and keep it true."""
    flags.update(home=home, socket=socket, config=config, database_url=database_url, model=model)
    if verbose:
        flags["log.level"] = "debug"
    for pair in set_ or []:
        key, equals, value = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="--set")
        flags[key] = value
    if version:
        print(f"headwatch {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(2)


def main() -> None:
    """Run the command line of this process and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; gives its exit code and never raises."""
    flags.clear()
    try:
        code = app(arguments, prog_name="headwatch", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return _nobody_reads()
    except SystemExit as exc:  # what typer makes of a closed pipe
        return _nobody_reads() if isinstance(exc.__context__, BrokenPipeError) else int(exc.code or 0)
    except HeadwatchError as exc:
        return _fail(exc.message, exc.hint, exc.exit_code)
    except Exception as exc:
        return _usage_error(exc) or _unexpected(exc)
    return code if isinstance(code, int) else 0


def _nobody_reads() -> int:
    """End quietly when the reader of stdout has gone, as `head` does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def _usage_error(exc: Exception) -> int | None:
    """Print what typer says of a wrong flag or argument; None when the error is another one.

    Typer's class for them has no public name in the versions that bring their own click.
    """
    describe: Any = getattr(exc, "format_message", None)
    if describe is None:
        return None
    context: Any = getattr(exc, "ctx", None)
    command = context.command_path if context is not None else "headwatch"
    return _fail(describe(), f"see {command} --help", int(getattr(exc, "exit_code", 2)))


def _unexpected(exc: Exception) -> int:
    if os.environ.get("HEADWATCH_DEBUG"):
        import traceback

        traceback.print_exception(exc)
    from headwatch.log import without_password

    what = without_password(" ".join(str(exc).split()))[:500]
    return _fail(f"{type(exc).__name__}: {what}", "run again with HEADWATCH_DEBUG=1 for the traceback", 1)


def _fail(message: str, hint: str, code: int) -> int:
    print(f"headwatch: {message}\nhint: {hint}", file=sys.stderr)
    return code
