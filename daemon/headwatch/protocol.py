"""What a command or a route may ask for: the requests, and the actions that answer them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from headwatch_indexer.errors import WrongUsage

Answer = dict[str, Any]  # a JSON document of INTERFACES.md
Mode = Literal["hybrid", "lexical", "dense"]


class UnknownWorktree(WrongUsage):
    """The named path is in no registered worktree (HTTP 404, exit 2)."""


class Actions(Protocol):
    """Everything a command or a route does.

    Two implementations: on the database, and over the socket of a running daemon. Answers are JSON-ready
    and shaped as INTERFACES.md says; errors are HeadwatchError. `repo` is a path in a worktree; when it is
    None, `cwd` decides where one is needed. Methods block and may be called from several threads at once.
    """

    def status(self, repo: str | None) -> Answer: ...
    def search(self, request: SearchRequest) -> Answer: ...
    def show(self, symbol: str, repo: str | None, cwd: str) -> Answer: ...
    def add(self, paths: list[str], name: str | None) -> Answer: ...
    def remove(self, path: str, purge: bool) -> Answer: ...
    def list_(self) -> Answer: ...
    def skipped(self, repo: str | None, cwd: str) -> Answer: ...
    def wait(self, repo: str | None, timeout_s: float, vectors: bool, cwd: str) -> Answer: ...
    def reconcile(self, repo: str | None) -> Answer: ...
    def events(self, follow: bool) -> Iterator[Answer]: ...
    def embed(self, texts: list[str], kind: str) -> Answer: ...
    def health(self) -> Answer: ...
    def metrics(self) -> str: ...


class Progress(Protocol):
    """How far a long job has come, for a person who waits."""

    def task(self, name: str, total: int | None) -> None:
        """Begin the next part; `total` is None when its size is not known."""

    def advance(self, n: int = 1) -> None:
        """Count n more units of the current part as done."""

    def note(self, text: str) -> None:
        """Say one line."""


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    return text


Text = Annotated[str, AfterValidator(_not_blank)]
Paths = list[str] | str | None
R = TypeVar("R", bound="Request")


class Request(BaseModel):
    """Base of all bodies: unknown keys are refused, since a misspelt filter would give a wrong answer."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
    example: ClassVar[str] = "{}"

    @classmethod
    def parse(cls, body: object) -> Self:
        """Validate a decoded body.

        Raises WrongUsage that names the key and what it takes.
        """
        try:
            return cls.model_validate(body)
        except ValidationError as exc:
            known = ", ".join(cls.model_fields)
            raise WrongUsage(_first_problem(exc), hint=f"keys: {known}; for example {cls.example}") from None


class SearchRequest(Request):
    example = '{"query": "parse a url", "repo": "/path/to/worktree", "k": 5}'

    query: Text = Field(validation_alias=AliasChoices("query", "text"), max_length=20_000)
    repo: Paths = None
    k: int = Field(default=10, ge=1, le=200)
    path: str | None = None  # glob
    language: str | None = None
    kind: str | None = None
    mode: Mode = "hybrid"
    tests: bool | None = None  # True: not demoted; False: left out; None: demoted
    budget: int | None = Field(default=None, ge=1, le=1_000_000)  # tokens
    explain: bool = False
    tokenizer: str | None = None
    cwd: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _no_tests(cls, body: Any) -> Any:
        """Take the flag --no-tests under its own name too."""
        if isinstance(body, dict) and "no_tests" in body:
            body = dict(body)
            if body.pop("no_tests"):
                body["tests"] = False
        return body

    @property
    def repos(self) -> list[str]:
        """The named worktrees; empty means the one of `cwd`."""
        return _as_list(self.repo)

    @property
    def k_given(self) -> bool:
        """Whether the caller chose k (a packed context holds at most 6 results otherwise)."""
        return "k" in self.model_fields_set


class ShowRequest(Request):
    example = '{"symbol": "src/app.py#Flask.run", "repo": "/path/to/worktree"}'

    symbol: Text
    repo: str | None = None
    cwd: str | None = None


class AddRequest(Request):
    example = '{"repo": ["/path/to/worktree"]}'

    repo: Paths = Field(default=None, validation_alias=AliasChoices("repo", "paths", "path"))
    name: str | None = None

    @property
    def repos(self) -> list[str]:
        return _as_list(self.repo)


class RemoveRequest(Request):
    example = '{"repo": "/path/to/worktree", "purge": false}'

    repo: Text = Field(validation_alias=AliasChoices("repo", "path"))
    purge: bool = False


class WaitRequest(Request):
    example = '{"repo": "/path/to/worktree", "timeout": 60, "vectors": true}'

    repo: str | None = None
    timeout_s: float = Field(
        default=120.0,
        ge=0,
        le=604_800,
        allow_inf_nan=False,
        validation_alias=AliasChoices("timeout", "timeout_s"),
    )
    vectors: bool = False
    cwd: str | None = None


class RepoRequest(Request):
    example = '{"repo": "/path/to/worktree"}'

    repo: str | None = None
    cwd: str | None = None


class EmbedRequest(Request):
    example = '{"texts": ["parse a url"], "kind": "query"}'

    texts: list[str] = Field(min_length=1, max_length=256)
    kind: Literal["query", "document"] = "query"


def _as_list(paths: Paths) -> list[str]:
    if paths is None:
        return []
    return [paths] if isinstance(paths, str) else list(paths)


def _first_problem(exc: ValidationError) -> str:
    """Say what is wrong with a body, in one line."""
    error = exc.errors(include_url=False, include_context=False)[0]
    key = ".".join(str(part) for part in error["loc"]) or "body"
    if error["type"] == "extra_forbidden":
        return f"unknown key {key!r}"
    if error["type"] == "missing":
        return f"{key!r} is missing"
    text = str(error["msg"]).removeprefix("Value error, ")
    shown = repr(error["input"])
    return f"{key}: {text[:1].lower()}{text[1:]}, not {shown if len(shown) <= 60 else shown[:57] + '...'}"
