"""What is indexed follows scope, kind of file and encoding as they change under the index."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from support.indexed import Index
from support.worktree import Worktree

Make = Callable[..., Worktree]
ONE = "class A:\n    def run(self) -> int:\n        return 1\n"
TWO = "def two() -> int:\n    return 2\n"


@pytest.fixture
def tree(git_repo: Make, index: Index) -> Worktree:
    """A repository of two files that is indexed and right."""
    worktree = git_repo()
    worktree.write("one.py", ONE)
    worktree.write("pkg/two.py", TWO)
    worktree.commit("one")
    index.add(worktree)
    index.update(worktree)
    return worktree


def contents(index: Index, tree: Worktree, path: str) -> list[str]:
    """Texts of a file's live symbols, by line."""
    query = "select content from headwatch.live_symbol where worktree_id = %s and path = %s order by ordinal"
    return [text for (text,) in index.conn.execute(query, (index.row(tree).id, path)).fetchall()]


def settle(tree: Worktree, path: str) -> None:
    """Write the index again until its file is clearly younger than the one at `path`."""
    changed_ns = os.stat(tree.root / path).st_ctime_ns
    while os.stat(tree.root / ".git/index").st_mtime_ns < changed_ns + 50_000_000:
        tree.git("update-index", "--force-write-index")


@pytest.mark.parametrize("committed", [False, True])
def test_file_and_folder_swap(index: Index, tree: Worktree, committed: bool) -> None:
    """A file becomes a folder, a folder a file; then back."""

    def settle() -> None:
        if committed:
            tree.commit("swap")
        index.update(tree)

    tree.delete("one.py")
    tree.write("one.py/inner.py", ONE)
    tree.delete("pkg/two.py")
    os.rmdir(tree.root / "pkg")
    tree.write("pkg", TWO)
    settle()
    assert index.paths(tree) == {"one.py/inner.py", "pkg"}
    tree.delete("one.py/inner.py")
    os.rmdir(tree.root / "one.py")
    tree.write("one.py", ONE)
    tree.delete("pkg")
    tree.write("pkg/two.py", TWO)
    settle()
    assert index.paths(tree) == {"one.py", "pkg/two.py"}


def test_symlinks_are_never_followed(index: Index, tree: Worktree) -> None:
    """To a file, to a folder, to nothing, out of the tree; and a file or folder that becomes one."""
    outside = tree.root.parent / "outside"
    os.mkdir(outside)
    Worktree(outside).write("two.py", TWO)
    for name, target in (("link.py", "one.py"), ("folder", "pkg"), ("dangling", "nowhere"), ("out", outside)):
        os.symlink(target, tree.root / name)
    index.update(tree)
    assert index.skipped(tree) == dict.fromkeys(("link.py", "folder", "dangling", "out"), "symlink")
    tree.delete("one.py")
    os.symlink("pkg/two.py", tree.root / "one.py")
    tree.delete("pkg/two.py")
    os.rmdir(tree.root / "pkg")
    os.symlink(outside, tree.root / "pkg")
    index.update(tree)
    assert index.paths(tree) == set()
    tree.commit("links")
    index.update(tree)
    tree.delete("one.py")
    tree.write("one.py", ONE)
    index.update(tree)
    assert index.paths(tree) == {"one.py"}
    assert "one.py" not in index.skipped(tree)


def test_submodule_and_nested_repository(index: Index, tree: Worktree, git_repo: Make) -> None:
    """Each is an entry of its own; what is in them is theirs."""
    other = git_repo("other")
    other.write("three.py", TWO)
    other.commit("three")
    tree.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "--", other.root, "sub")
    index.update(tree)
    tree.git("commit", "-q", "-m", "submodule")
    nested = Worktree.init(tree.root / "vendor/nested")
    nested.write("four.py", TWO)
    nested.commit("four")
    Worktree.init(tree.root / "empty").write("five.py", TWO)
    Worktree(tree.root / "sub").write("three.py", ONE)
    index.update(tree)
    assert index.paths(tree) == {"one.py", "pkg/two.py", ".gitmodules"}
    assert index.skipped(tree) == {
        "sub": "submodule",
        "vendor/nested/": "nested repository",
        "empty/": "nested repository",
    }
    tree.git("submodule", "--quiet", "deinit", "--force", "sub")
    index.update(tree)


def test_folder_that_becomes_a_repository(index: Index, tree: Worktree) -> None:
    """Untracked files leave the index when a repository is made around them, and come back."""
    tree.write("lib/three.py", TWO)
    index.update(tree)
    Worktree.init(tree.root / "lib")
    assert index.update(tree).removed == 1
    os.rename(tree.root / "lib/.git", tree.root.parent / "gone")
    index.update(tree)
    assert "lib/three.py" in index.paths(tree)


@pytest.mark.parametrize("cone", [True, False])
def test_sparse_checkout(index: Index, tree: Worktree, cone: bool) -> None:
    """Absent files are not live, and cost nothing when they come back."""
    tree.git("sparse-checkout", "set", "--cone" if cone else "--no-cone", *([] if cone else ["/one.py"]))
    report = index.update(tree)
    assert (report.removed, index.paths(tree)) == (1, {"one.py"})
    assert index.row(tree).dirty_digest == ""
    tree.write("pkg/two.py", TWO + "# here all the same\n")
    index.update(tree)
    tree.delete("pkg/two.py")
    index.update(tree)
    tree.git("sparse-checkout", "disable")
    report = index.update(tree)
    assert (report.files, report.symbols_parsed) == (1, 0)


def test_gitignore_edits(index: Index, tree: Worktree) -> None:
    """Ignored means gone, unless it is tracked; rules in folders, negations and info/exclude count."""
    tree.write("build/out.py", TWO)
    tree.write("build/keep.py", TWO)
    index.update(tree)
    assert {"build/out.py", "build/keep.py"} < index.paths(tree)
    tree.write(".gitignore", "build/*\n!build/keep.py\none.py\n")
    index.update(tree)
    assert "build/out.py" not in index.paths(tree)
    assert {"build/keep.py", "one.py"} < index.paths(tree)
    tree.write("pkg/.gitignore", "three.py\n")
    tree.write("pkg/three.py", TWO)
    index.update(tree)
    assert "pkg/three.py" not in index.paths(tree)
    tree.delete("pkg/.gitignore")
    index.update(tree)
    assert "pkg/three.py" in index.paths(tree)
    exclude = tree.root / ".git/info/exclude"
    exclude.write_text("three.py\n")
    index.update(tree)
    assert "pkg/three.py" not in index.paths(tree)
    tree.write(".gitignore", "")
    exclude.write_text("")
    index.update(tree)
    assert {"build/out.py", "pkg/three.py"} < index.paths(tree)


def test_global_ignore(index: Index, tree: Worktree) -> None:
    """core.excludesFile of the user."""
    tree.write("scratch.py", TWO)
    index.update(tree)
    (index.home / "ignored").write_text("scratch.py\n")
    (index.home / ".gitconfig").write_text(f"[core]\n\texcludesFile = {index.home}/ignored\n")
    index.update(tree)
    assert "scratch.py" not in index.paths(tree)


def test_kinds_of_content(index: Index, tree: Worktree) -> None:
    """Empty is a file without symbols; binary, minified, generated, LFS pointers and huge files are skipped."""
    tree.write("empty.py", "")
    tree.write("blank.py", "\n\n")
    tree.write("data.bin", b"a\0b")
    tree.write("late.bin", b"a" * 9_000 + b"\0")
    tree.write("app.min.js", "var a=1;" * 2_000)
    tree.write("pb.py", "# Code generated by protoc. DO NOT EDIT.\n" + ONE)
    tree.write(
        "model.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 1\n"
    )
    with open(tree.root / "huge.py", "wb") as file:
        file.truncate(50 << 20)
    tree.write("full.md", ("words " * 1365 + "x\n") * 128)  # 1 MiB to the byte
    tree.write("over.md", ("words " * 1365 + "x\n") * 128 + "\n")
    index.update(tree)
    assert index.skipped(tree) == {
        "data.bin": "binary",
        "late.bin": "binary",
        "app.min.js": "minified",
        "pb.py": "generated",
        "model.bin": "lfs pointer",
        "huge.py": "too large",
        "over.md": "too large",
    }
    row = index.row(tree)
    assert (row.files, row.skipped) == (5, 7)
    for path in index.skipped(tree):
        tree.write(path, TWO)
    index.update(tree)
    assert index.skipped(tree) == {}
    tree.write("one.py", b"\0")
    tree.write("empty.py", ONE)
    report = index.update(tree)
    assert (report.files, report.removed, index.skipped(tree)) == (1, 1, {"one.py": "binary"})
    tree.delete("one.py")
    index.update(tree)
    assert index.skipped(tree) == {}


def test_encodings(index: Index, tree: Worktree) -> None:
    """UTF-8 with BOM, UTF-16, Latin-1: lines and text are those of the decoded file."""
    source = "# é ü 漢\ndef naïve():\n    return '…'\n"
    latin = "# é ü\ndef naïve():\n    return 'ö'\n"
    tree.write("utf8.py", source)
    tree.write("bom.py", b"\xef\xbb\xbf" + source.encode())
    tree.write("le.py", b"\xff\xfe" + source.encode("utf-16-le"))
    tree.write("be.py", b"\xfe\xff" + source.encode("utf-16-be"))
    tree.write("latin.py", latin.encode("latin-1"))
    tree.write("astral.py", "x = '😀😀'\n\n\ndef after():\n    return '😀'\n")
    index.update(tree)
    for name in ("utf8.py", "bom.py", "le.py", "be.py"):
        assert "def naïve():\n    return '…'" in contents(index, tree, name), name
    assert "def naïve():\n    return 'ö'" in contents(index, tree, "latin.py")
    assert "def after():\n    return '😀'" in contents(index, tree, "astral.py")


def test_line_ends(index: Index, tree: Worktree) -> None:
    """CRLF that git keeps is kept, a lone CR ends no line."""
    tree.git("config", "core.autocrlf", "false")
    tree.write("dos.py", TWO.replace("\n", "\r\n"))
    tree.write("mac.txt", "one\rtwo\rthree\n")
    tree.write("form.py", "a = 1\n\x0c\n\ndef two():\n    return 2\u2028\n")
    index.update(tree)
    assert contents(index, tree, "dos.py") == ["def two() -> int:\r\n    return 2\r"]


def test_autocrlf_checkout(index: Index, tree: Worktree) -> None:
    """Line ends that git converts make no file dirty; an edit has the id that git would give it."""
    tree.git("config", "core.autocrlf", "true")
    tree.git("rm", "-q", "-r", "--cached", ".")
    tree.git("reset", "-q", "--hard")
    tree.delete("one.py")
    tree.git("checkout", "-q", "one.py")
    assert b"\r\n" in (tree.root / "one.py").read_bytes()
    report = index.update(tree)
    assert (report.files, index.row(tree).dirty_digest) == (0, "")
    tree.write("one.py", ONE.replace("1", "2").replace("\n", "\r\n"))
    assert index.update(tree).files == 1
    tree.commit("edit")
    report = index.update(tree)
    assert (report.files, report.symbols_parsed) == (0, 0)


@pytest.mark.parametrize("young", [False, True])
def test_clean_filter(index: Index, tree: Worktree, young: bool) -> None:
    """A file that a filter rewrites is what git stores, as long as it is unchanged; settled or just written."""
    tree.git("config", "filter.upper.clean", "tr a-z A-Z")
    tree.git("config", "filter.upper.smudge", "tr A-Z a-z")
    tree.write(".gitattributes", "*.txt filter=upper\n")
    tree.write("words.txt", "some words\n")
    tree.commit("words")
    if not young:
        settle(tree, "words.txt")
    index.update(tree)
    assert contents(index, tree, "words.txt") == ["SOME WORDS"]
    assert index.row(tree).dirty_digest == ""
    assert not index.reconcile(tree).changed
    tree.write("words.txt", "other words\n")
    index.update(tree)
    tree.git("checkout", "-q", "words.txt")
    index.update(tree)
    assert contents(index, tree, "words.txt") == ["SOME WORDS"]


@pytest.mark.parametrize("committed", [False, True])
def test_file_names(index: Index, tree: Worktree, committed: bool) -> None:
    """Newline, tab, quote, backslash, blanks, a leading dash, glob signs, bytes that are not UTF-8."""
    names: list[bytes] = [
        b"new\nline.py",
        b"tab\t.py",
        b'qu"ote.py',
        b"back\\slash.py",
        b" blank .py",
        b"-dash.py",
        b"[a]*?.py",
        b"%s.py",
        "é漢.py".encode(),
        b"latin-\xe9.py",
        b"latin-\xe8.py",
        b"d\xff/in\xfe.py",
        rb"latin-\xe9.py",
        b":(glob)x.py",
    ]
    for name in names:
        tree.write(name, TWO)
    if committed:
        tree.commit("names")
    report = index.update(tree)
    assert (report.files, report.symbols_parsed) == (len(names), 0)
    assert not index.update(tree).changed
    for n, name in enumerate(names):
        tree.write(name, TWO + f"# {n}\n")
    assert index.update(tree).files == len(names)
    for name in names:
        tree.delete(name)
    assert index.update(tree).removed == len(names)
    assert index.paths(tree) == {"one.py", "pkg/two.py"}


def test_secrets(index: Index, tree: Worktree) -> None:
    """Keys and credentials are never read into rows, committed or not; what only sounds like one is."""
    secrets = (".env", ".env.local", "deploy/id_rsa", "tls/server.pem", "a.key", ".aws/credentials", ".netrc")
    for path in secrets:
        tree.write(path, "password = hunter2\n")
    for path in (".env.example", "secret_santa.py", "keys.py", "id_rsa.pub"):
        tree.write(path, "hello = 1\n")
    index.update(tree)
    tree.commit("secrets")
    index.update(tree)
    assert index.skipped(tree) == dict.fromkeys(secrets, "secret")
    found = index.conn.execute(
        "select count(*) from headwatch.blob where convert_from(source, 'utf8') like '%hunter2%'"
    ).fetchone()
    assert found == (0,)
    tree.git("mv", "a.key", "a.txt")
    index.update(tree)
    assert "a.txt" in index.paths(tree)
    tree.git("mv", "a.txt", "a.key")
    index.update(tree)
    assert "a.txt" not in index.paths(tree)


def test_linguist_attributes(index: Index, tree: Worktree) -> None:
    """Generated and vendored by the repository's own word, and taken back."""
    tree.write(".gitattributes", "pkg/* linguist-vendored\none.py linguist-generated=true\n")
    index.update(tree)
    assert index.paths(tree) == {".gitattributes"}
    assert index.skipped(tree) == {"one.py": "generated", "pkg/two.py": "vendored"}
    tree.write(".gitattributes", "pkg/* -linguist-vendored\n")
    report = index.update(tree)
    assert (index.skipped(tree), report.symbols_parsed) == ({}, 1)


def test_rules_of_the_repository(index: Index, tree: Worktree) -> None:
    """.headwatch.toml includes, excludes and names languages; each edit of it is followed."""
    tree.write("docs/a.md", "# A\n\nWords.\n")
    index.update(tree)
    tree.write(".headwatch.toml", 'exclude = ["pkg", "*.md"]\n')
    index.update(tree)
    assert index.paths(tree) == {".headwatch.toml", "one.py"}
    assert index.skipped(tree) == {"pkg/two.py": "excluded", "docs/a.md": "excluded"}
    tree.write(".headwatch.toml", 'include = ["/pkg/**", "*.md"]\n')
    index.update(tree)
    assert index.paths(tree) == {"pkg/two.py", "docs/a.md"}
    tree.delete(".headwatch.toml")
    index.update(tree)
    assert index.paths(tree) == {"one.py", "pkg/two.py", "docs/a.md"}


@pytest.mark.parametrize("committed", [False, True])
def test_language_by_rule(index: Index, tree: Worktree, committed: bool) -> None:
    """The same blob under another language is another parse; going back is known."""
    tree.write("script.in", TWO)
    if committed:
        tree.commit("script")
    index.update(tree)
    assert contents(index, tree, "script.in") == [TWO.rstrip("\n")]
    kind = "select kind, language from headwatch.live_symbol where path = 'script.in' and worktree_id = %s"
    worktree = (index.row(tree).id,)
    assert index.conn.execute(kind, worktree).fetchall() == [("section", "text")]
    tree.write(".headwatch.toml", '[languages]\n"*.in" = "python"\n')
    index.update(tree)
    assert index.conn.execute(kind, worktree).fetchall() == [("function", "python")]
    tree.delete(".headwatch.toml")
    report = index.update(tree)
    assert (report.files, report.removed, report.symbols_parsed) == (1, 1, 0)
    assert index.conn.execute(kind, worktree).fetchall() == [("section", "text")]


def test_malformed_rules(index: Index, tree: Worktree) -> None:
    """The worktree is indexed with the defaults, and the pass says where the file is wrong."""
    tree.write(".headwatch.toml", 'include = ["pkg"]\nexclude = [\n')
    report = index.update(tree)
    assert report.problem is not None
    assert f"{tree.root}/.headwatch.toml:" in report.problem
    assert index.paths(tree) == {".headwatch.toml", "one.py", "pkg/two.py"}
    assert index.reconcile(tree).problem == report.problem
    tree.write(".headwatch.toml", 'include = ["pkg"]\n')
    report = index.update(tree)
    assert (report.problem, index.paths(tree)) == (None, {"pkg/two.py"})
