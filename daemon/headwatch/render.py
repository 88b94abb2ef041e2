"""How answers read for people. Everything comes from a JSON document of INTERFACES.md."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_STATES = {"fresh": "green", "pending": "yellow", "held": "yellow", "degraded": "yellow"}
_LINES = 12  # of a result's code


def console() -> Console:
    """Give the console of stdout; outside of a terminal nothing is wrapped or coloured."""
    from rich.console import Console

    out = sys.stdout
    return Console(file=out, highlight=False, soft_wrap=True, width=None if out.isatty() else 10_000)


def show(parts: Iterable[Text]) -> None:
    """Print lines to stdout."""
    out = console()
    for part in parts:
        out.print(part)


def follow(frames: Iterable[Iterable[Text]]) -> None:
    """Show frame after frame in place at a terminal, one below the other elsewhere."""
    out = console()
    if not out.is_terminal:
        for frame in frames:
            show(frame)
            out.file.flush()
        return
    from rich.console import Group
    from rich.live import Live

    with Live(console=out, auto_refresh=False) as live:
        for frame in frames:
            live.update(Group(*frame), refresh=True)


def search(answer: dict[str, Any]) -> Iterator[Text]:
    """The state when it matters, then each result under its heading."""
    for proof in answer.get("worktrees") or [answer["worktree"]]:
        yield from _state(proof)
    if answer.get("note"):
        yield _text(answer["note"], "yellow")
    if answer.get("context"):
        yield _text(answer["context"]["text"])
        return
    for result in answer["results"]:
        yield from _result(result)
    if not answer["results"]:
        yield _text("nothing found")


def symbol(result: dict[str, Any]) -> Iterator[Text]:
    """One symbol, whole."""
    tree = result.get("worktree")
    yield from _state(tree and {**tree, "pending_vectors": 0})  # one symbol is shown whatever its vector
    yield from _result(result, limit=None)


def status(answer: dict[str, Any]) -> Iterator[Text]:
    """The daemon, the database and the model in a line each, then a block a repository."""
    daemon = answer["daemon"]
    if daemon.get("running"):
        size = _size(daemon.get("rss_bytes"))
        yield _pair(
            "daemon",
            f"running, pid {daemon['pid']}, since {daemon['started_at']}, {size}, {daemon['cpu_s']:.1f} s CPU",
        )
    else:
        yield _pair("daemon", "not running (start it: headwatch run)", "yellow")
    base = answer["database"]
    kind = "embedded" if base.get("embedded") else "external"
    yield _pair(
        "database",
        f"{kind} PostgreSQL {base.get('server_version')}, vector {base.get('vector_version')}, "
        f"schema {base.get('schema_version')}, {_size(base.get('size_bytes'))}",
    )
    model = answer["model"]
    loaded = "loaded" if model.get("loaded") else "not loaded"
    yield _pair("model", f"{model.get('name')} ({model.get('dim')}), {model.get('device')}, {loaded}")
    queues = " ".join(f"{name}={count}" for name, count in answer["queues"].items())
    yield _pair("queues", queues, "yellow" if answer["queues"].get("dead_letters") else "")
    if not answer["repositories"]:
        yield _text("no repository is registered (headwatch add PATH)")
    for repository in answer["repositories"]:
        yield _text("")
        yield _text(f"{repository['name']}  {repository['identity']}", "bold")
        for tree in repository["worktrees"]:
            yield from _worktree(tree)


def waited(tree: dict[str, Any]) -> Iterator[Text]:
    """One worktree after a wait, in one line."""
    proof = tree.get("worktree") or tree
    head = _short(proof.get("indexed_head"))
    yield _text(f"{proof.get('state')}: {proof.get('root')} at {head}, generation {proof.get('generation')}")


def removed(answer: dict[str, Any]) -> Iterator[Text]:
    """What is no longer watched."""
    gone = answer.get("removed") or answer.get("root") or ""
    yield _text(f"removed {', '.join(gone) if isinstance(gone, list) else gone}".rstrip())


def tables(answer: dict[str, Any]) -> Iterator[Text]:
    """The database's size, then a table a line, the largest first."""
    yield _text(f"database {_size(answer['size_bytes'])}")
    width = max((len(table["name"]) for table in answer["tables"]), default=0)
    for table in answer["tables"]:
        sizes = f"{_size(table['table_bytes']):>10} + {_size(table['index_bytes']):>10} of indexes"
        yield _text(f"  {table['name']:<{width}}  {table['rows']:>10} rows  {sizes}")


def listing(answer: dict[str, Any]) -> Iterator[Text]:
    """Repositories with their worktrees."""
    for repository in answer["repositories"]:
        yield _text(f"{repository['name']}  {repository['identity']}", "bold")
        for tree in repository["worktrees"]:
            yield _text(f"  {tree['root']}  {tree.get('branch') or '(detached)'}")
    if not answer["repositories"]:
        yield _text("no repository is registered (headwatch add PATH)")


def skipped(answer: dict[str, Any]) -> Iterator[Text]:
    """One file a line: reason, size, path."""
    for item in answer["skipped"]:
        size = "" if item.get("size") is None else _size(item["size"])
        yield _text(f"{item['reason']:<14} {size:>9}  {item['path']}")
    if not answer["skipped"]:
        yield _text("nothing is skipped")


def checks(answer: dict[str, Any]) -> Iterator[Text]:
    """One check a line, its fix below when it is broken."""
    width = max((len(check["name"]) for check in answer["checks"]), default=0)
    for check in answer["checks"]:
        mark, style = ("ok ", "green") if check["ok"] else ("BAD", "red")
        yield _text(f"{mark} {check['name']:<{width}}  {check['detail']}", style if not check["ok"] else "")
        if check["fix"]:
            yield _text(f"    {'':<{width}}  → {check['fix']}")


def report(answer: dict[str, Any]) -> Iterator[Text]:
    """What `run --once` did: the worktrees, then its numbers."""
    for repository in answer.get("repositories", []):
        for tree in repository["worktrees"]:
            yield from _worktree(tree)
    numbers = {key: value for key, value in answer.items() if isinstance(value, int | float)}
    numbers |= answer.get("counters", {})
    yield _text("  ".join(f"{key.replace('_', ' ')} {value:g}" for key, value in numbers.items() if value))


def _worktree(tree: dict[str, Any]) -> Iterator[Text]:
    head = f"  {tree['root']}  {tree.get('branch') or '(detached)'}  "
    line = _text(head)
    state = tree["state"] + (f" ({tree['reason']})" if tree.get("reason") else "")
    line.append(_clean(state), _STATES.get(tree["state"], "red"))
    yield line
    live, indexed = tree.get("live_head"), tree.get("indexed_head")
    heads = f"indexed {_short(indexed)}" + ("" if live == indexed else f", live {_short(live)}")
    yield _text(
        f"    {heads}, {tree.get('dirty_files', 0)} dirty, {tree.get('files', 0)} files, "
        f"{tree.get('symbols', 0)} symbols, {tree.get('skipped', 0)} skipped, generation {tree.get('generation')}"
    )
    if tree.get("pending_vectors"):
        yield _text(f"    {tree['pending_vectors']} vectors missing", "yellow")
    if tree.get("behind_default"):
        yield _text(f"    {tree['behind_default']} commits behind the default branch", "yellow")
    if last := tree.get("last_transition"):
        yield _text(
            f"    last move: {last['action']} {_short(last['old'])} → {_short(last['new'])}, {last['at']}"
        )


def _state(tree: dict[str, Any] | None) -> Iterator[Text]:
    """Say what a reader must know before he believes the results."""
    if tree is None:
        return
    if tree["state"] != "fresh":
        reason = f" ({tree['reason']})" if tree.get("reason") else ""
        heads = f"indexed {_short(tree.get('indexed_head'))}, live {_short(tree.get('live_head'))}"
        yield _text(f"{tree['state']}{reason}: {tree['root']}, {heads}", "yellow")
    if tree.get("pending_vectors"):
        yield _text(f"{tree['pending_vectors']} vectors missing: meaning is searched in part only", "yellow")


def _result(result: dict[str, Any], limit: int | None = _LINES) -> Iterator[Text]:
    line = _text(f"{result.get('rank', 1)}  ")
    line.append(_clean(f"{result['path']}:{result['start_line']}-{result['end_line']}"), "cyan")
    line.append(_clean(f"  {result['kind']} {result['qualname']}"), "bold")
    if result.get("score") is not None:
        line.append(f"  {result['score']:.4f}", "dim")
    yield line
    for warning in _warnings(result):
        yield _text(f"   {warning}", "yellow")
    lines = textwrap.dedent(result["content"].expandtabs(4)).strip("\n").splitlines()
    shown = lines if limit is None or len(lines) <= limit + 1 else lines[:limit]
    for code in shown:
        yield _text(f"   {code}")
    if len(shown) < len(lines):
        yield _text(f"   … {len(lines) - len(shown)} more lines", "dim")
    if explain := result.get("explain"):
        parts = ", ".join(f"{name}={value:.6g}" for name, value in explain["parts"].items())
        yield _text(f"   score = {explain['formula']}  [{parts}]", "dim")
    yield _text("")


def _warnings(result: dict[str, Any]) -> Iterator[str]:
    if result.get("commit_distance"):
        yield f"{result['commit_distance']} commits behind, verify before use"
    if result.get("freshness") not in (None, "current"):
        yield f"{result['freshness']}, verify before use"
    elif result.get("verified") is False:
        yield "differs from the disk, verify before use"


def _pair(name: str, value: str, style: str = "") -> Text:
    line = _text(f"{name:<9} ")
    line.append(_clean(value), style)
    return line


def _text(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(_clean(text), style=style)


def _clean(text: str) -> str:
    """Show control characters instead of obeying them: code and file names are other people's."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _short(commit: str | None) -> str:
    return commit[:7] if commit else "nothing"


def _size(size_bytes: float | None) -> str:
    if size_bytes is None:
        return "unknown size"
    for unit in ("B", "KiB", "MiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} GiB"
