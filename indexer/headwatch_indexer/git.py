"""Ask the git command, without taking its locks, touching the network or writing anything."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress

from headwatch_indexer import gitdir
from headwatch_indexer.errors import HeadwatchError, WrongUsage
from headwatch_indexer.gitdir import locks, operation
from headwatch_indexer.identity import normalise
from headwatch_indexer.records import Location

__all__ = [
    "GitFailed",
    "NotARepository",
    "RootMissing",
    "RootRefused",
    "TimedOut",
    "environment",
    "finish",
    "head",
    "identity",
    "ignored",
    "locate",
    "locks",
    "operation",
    "run",
    "start",
    "token",
    "worktrees",
]

TIMEOUT_S = 120.0

processes = 0  # git processes started since this process began

_OPTIONS = (
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.untrackedCache=false"),
    *("-c", "core.trustctime=true"),
    *("-c", "core.checkStat=default"),
    *("-c", "core.quotePath=false"),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=0"),
    *("-c", "submodule.recurse=false"),
    "--no-pager",
)
_LITERAL = "--literal-pathspecs"
_NOT_JUDGED = ("beyond a symbolic link", "is in submodule", "is outside repository")
_DUBIOUS = re.compile(r"git config --global --add safe\.directory .+")
_PATHS_A_CALL = 500


class GitFailed(HeadwatchError):
    """The git command gave no answer: nothing may be concluded from it."""

    def __init__(self, root: str, arguments: Sequence[str], returncode: int, stderr: str) -> None:
        lines = [line for line in stderr.splitlines() if line.strip()]
        said = next(
            (line for line in lines if line.startswith("fatal:")), lines[0] if lines else "no message"
        )
        super().__init__(
            f"git {' '.join(arguments[:3])} failed in {root} (exit {returncode}): {said}",
            hint=_hint(root, stderr),
        )
        self.arguments = tuple(arguments)
        self.returncode = returncode
        self.stderr = stderr


class TimedOut(GitFailed):
    """The git command was still running at its time limit and was ended."""


class NotARepository(HeadwatchError):
    """The path lies in no git repository."""


class RootMissing(HeadwatchError):
    """The worktree is not there (any more), or cannot be entered: its rows stay."""


class RootRefused(WrongUsage):
    """A root that holds far more than one project."""


def environment(ceiling: str | None = None) -> dict[str, str]:
    """Build git's environment: no inherited GIT_*, no locks, no network, no questions, C messages.

    `ceiling` is the folder above which no repository is looked for.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",  # git before 2.45 knows no GIT_NO_LAZY_FETCH and would fetch
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }
    if ceiling is not None:
        env["GIT_CEILING_DIRECTORIES"] = ceiling
    return env


def run(
    root: str,
    *args: str,
    input: bytes | None = None,
    timeout_s: float = TIMEOUT_S,
    ok: Sequence[int] = (0,),
    discover: bool = False,
) -> bytes:
    """Run git in `root` and return what it printed.

    `root` must be a repository itself unless `discover` allows the search to go up: a repository that
    vanished must never be answered for by one around it. Raises GitFailed on an exit code outside `ok`.
    """
    process = start(
        root, *args, stdin=subprocess.DEVNULL if input is None else subprocess.PIPE, discover=discover
    )
    return finish(process, root, args, input=input, timeout_s=timeout_s, ok=ok)[0]


def start(
    root: str,
    *args: str,
    stdin: int = subprocess.DEVNULL,
    discover: bool = False,
    options: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start git in `root` in a process group of its own, all output piped."""
    global processes
    literal = () if args[0] == "check-ignore" else (_LITERAL,)  # which takes paths, and refuses the option
    command = ["git", *_OPTIONS, *literal, *options, "-C", root, *args]
    ceiling = None if discover else os.path.dirname(os.path.realpath(root))
    try:
        process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(ceiling),
            process_group=0,
        )
    except OSError as exc:  # git is not installed, or no process or descriptor is left
        raise GitFailed(root, args, -1, f"cannot start git: {exc}") from exc
    processes += 1
    return process


def finish(
    process: subprocess.Popen[bytes],
    root: str,
    args: Sequence[str],
    *,
    input: bytes | None = None,
    timeout_s: float = TIMEOUT_S,
    ok: Sequence[int] = (0,),
) -> tuple[bytes, str]:
    """Wait for a started git and return its output and its messages; end it whatever happens."""
    try:
        out, err = process.communicate(input, timeout=timeout_s)
    except subprocess.TimeoutExpired as exc:
        raise TimedOut(root, args, -1, f"still running after {timeout_s:g} s") from exc
    finally:
        if process.returncode is None:
            end(process)
    messages = os.fsdecode(err)
    code = process.wait()
    if code not in ok:
        raise GitFailed(root, args, code, messages)
    return out, messages


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a started git with what it started, and let go of its pipes."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def locate(path: str, *, home: str | None = None) -> Location:
    """Find the worktree that holds `path`, or the bare repository that it is.

    `home` is the user's home folder, refused as a root like `/`. Raises RootMissing, NotARepository,
    RootRefused, and GitFailed (a foreign owner among others).
    """
    given = os.path.realpath(path)
    _refuse(given, home)
    if not os.path.lexists(given):
        raise RootMissing(f"no such path: {path}", hint="check the spelling, or clone the repository first")
    folder = given if os.path.isdir(given) else os.path.dirname(given)
    if not os.access(folder, os.R_OK | os.X_OK):
        raise RootMissing(f"cannot read {folder}", hint="run as the user who owns it, or grant read access")
    git_dir = os.path.realpath(_rev_parse(folder, "--absolute-git-dir"))
    flags = _rev_parse(
        folder, *("--is-bare-repository", "--is-inside-work-tree", "--show-object-format"), "--git-common-dir"
    )
    bare, inside, object_format, common = flags.split("\n", 3)
    common_dir = os.path.realpath(os.path.join(folder, common))
    if bare == "true":
        _refuse(git_dir, home)
        return Location(git_dir, git_dir, common_dir, object_format, bare=True)
    if inside != "true":
        raise NotARepository(
            f"{path} lies inside a git dir, not in a worktree", hint="name the folder that holds the files"
        )
    root = os.path.realpath(_rev_parse(folder, "--show-toplevel"))
    _refuse(root, home)
    return Location(root, git_dir, common_dir, object_format)


def identity(location: Location) -> str:
    """Name the project: its origin's host and path, else its root commits, else where it lies.

    A remote that is a path on this machine tells nothing to other machines and counts as none.
    """
    url = run(location.root, "remote", "get-url", "origin", ok=(0, 1, 2, 128))
    if name := normalise(os.fsdecode(url.partition(b"\n")[0])):
        return name
    if not os.path.exists(f"{location.common_dir}/shallow"):  # a cut history has no true roots
        # The main worktree's HEAD, so that linked ones agree; every ref where it is unborn.
        born = run(location.common_dir, "rev-parse", "-q", "--verify", "HEAD", ok=(0, 1))
        out = run(location.common_dir, "rev-list", "--max-parents=0", "HEAD" if born else "--all")
        if roots := sorted(out.decode().split()):
            return "root:" + "".join(oid[:12] for oid in roots)
    return f"path:{location.common_dir}"


def worktrees(common_dir: str) -> list[Location]:
    """List the checked-out worktrees of a clone, the main one first.

    Takes the common dir or any of its roots. Bare, prunable and missing ones are left out.
    """
    common = os.path.realpath(os.path.join(common_dir, _rev_parse(common_dir, "--git-common-dir")))
    object_format = _rev_parse(common, "--show-object-format")
    found: list[Location] = []
    listing = run(common, "worktree", "list", "--porcelain", "-z")
    for number, record in enumerate(listing.split(b"\0\0")):
        fields = record.split(b"\0")
        if not fields[0].startswith(b"worktree "):
            continue
        attributes = {field.partition(b" ")[0] for field in fields[1:]}
        if attributes & {b"bare", b"prunable"}:
            continue
        root = os.path.realpath(os.fsdecode(fields[0][9:]))
        git_dir = gitdir.gitfile(f"{root}/.git")
        if number == 0 and git_dir != common:  # git names a submodule's main worktree by its git dir
            with suppress(GitFailed, NotARepository):
                root = os.path.realpath(_rev_parse(common, "--show-toplevel"))
                git_dir = gitdir.gitfile(f"{root}/.git")
        if git_dir is None or git_dir not in (common, f"{common}/worktrees/{os.path.basename(git_dir)}"):
            continue
        found.append(Location(root, git_dir, common, object_format))
    return found


def head(location: Location) -> tuple[str | None, str | None]:
    """Resolve HEAD to (commit id, branch): no id on an unborn branch, no branch when detached."""
    try:
        return gitdir.head(location.git_dir, location.common_dir)
    except gitdir.AskGit:
        pass
    target = os.fsdecode(run(location.root, "symbolic-ref", "-q", "HEAD", ok=(0, 1)).strip())
    oid = run(location.root, "rev-parse", "-q", "--verify", "HEAD^{commit}", ok=(0, 1)).decode().strip()
    return oid or None, target[11:] if target.startswith("refs/heads/") else None


def token(location: Location) -> tuple[object, ...]:
    """Sum up git's state: two equal tokens mean that git moved nothing in between.

    About 0.1 ms and no process, but for refs that files do not tell.
    """
    own, common = location.git_dir, location.common_dir
    if gitdir.has_reftable(common):  # every move of a ref is a new list of tables
        refs: tuple[object, ...] = tuple(
            gitdir.content(f"{base}/reftable/tables.list") for base in (own, common)
        )
    else:
        refs = head(location)
    paths = (
        *(f"{own}/{name}" for name in ("HEAD", "index", "config.worktree", "info/sparse-checkout")),
        *(f"{common}/{name}" for name in ("packed-refs", "shallow", "config")),
        *(f"{common}/info/{name}" for name in ("exclude", "attributes")),
    )
    entrance = gitdir.signature(location.root if location.bare else f"{location.root}/.git")[0]
    return (entrance, refs, gitdir.tail(f"{own}/index"), *(gitdir.signature(path) for path in paths))


def ignored(location: Location, paths: Sequence[bytes], directories: bool) -> set[bytes]:
    """Tell which of these paths git ignores; one that is tracked, or holds a tracked file, is not.

    `directories`: all paths are directories, which may be gone by now. A path that git will not judge
    (behind a symlink, inside a submodule) is not ignored.
    """
    slash = b"/" if directories else b""
    found = {path.rstrip(b"/") for path in _check_ignore(location, [p.rstrip(b"/") + slash for p in paths])}
    result = {path for path in paths if path.rstrip(b"/") in found}
    if directories and result:
        result -= _holding_tracked(location, result)
    return result


def _check_ignore(location: Location, paths: Sequence[bytes]) -> list[bytes]:
    if not paths:
        return []
    # A path, but a leading colon would be taken for pathspec magic.
    feed = b"".join((b"./" + path if path.startswith(b":") else path) + b"\0" for path in paths)
    try:
        out = run(location.root, "check-ignore", "-z", "--stdin", input=feed, ok=(0, 1))
    except GitFailed as exc:
        if not any(reason in exc.stderr for reason in _NOT_JUDGED):
            raise
        if len(paths) == 1:
            return []
        half = len(paths) // 2  # one path that git dies on must not speak for the others
        return _check_ignore(location, paths[:half]) + _check_ignore(location, paths[half:])
    return [path.removeprefix(b"./") for path in out.split(b"\0")[:-1]]


def _holding_tracked(location: Location, directories: Iterable[bytes]) -> set[bytes]:
    names = sorted(directories)
    parents: set[bytes] = set()
    for i in range(0, len(names), _PATHS_A_CALL):
        some = [os.fsdecode(name.rstrip(b"/")) for name in names[i : i + _PATHS_A_CALL]]
        for path in run(location.root, "ls-files", "-z", "--", *some).split(b"\0")[:-1]:
            while path and path not in parents:
                parents.add(path)
                path = path.rpartition(b"/")[0]
    return {name for name in names if name.rstrip(b"/") in parents}


def _rev_parse(folder: str, *flags: str) -> str:
    """Run rev-parse in a folder of any depth; of several flags only the last may print a path."""
    try:
        out = run(folder, "rev-parse", "--path-format=absolute", *flags, discover=True)
    except GitFailed as exc:
        if "not a git repository" in exc.stderr:
            raise NotARepository(
                f"{folder} is not in a git repository",
                hint="name a folder that git knows, or run git init there",
            ) from exc
        raise
    return os.fsdecode(out.removesuffix(b"\n"))


def _refuse(root: str, home: str | None) -> None:
    if root == os.sep or (home is not None and root == os.path.realpath(home)):
        raise RootRefused(
            f"refused to follow {root}: it holds far more than one project",
            hint="name the folder of one repository",
        )


def _hint(root: str, stderr: str) -> str:
    if "dubious ownership" in stderr or "safe.directory" in stderr:
        match = _DUBIOUS.search(stderr)
        command = match[0] if match else f"git config --global --add safe.directory {root}"
        return f"the folder belongs to another user; if you trust it: {command}"
    if "cannot start git" in stderr:
        return "is git installed and on PATH?"
    if ".lock" in stderr:
        return "another git process may be running there; try again when it is done"
    return f"try the same by hand: git -C {root} status"
