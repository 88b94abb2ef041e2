"""HTTP over the Unix socket: each route is one action, run in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from headwatch import __version__, log, protocol
from headwatch.calls import Calls, Refused
from headwatch.protocol import Actions, Answer, UnknownWorktree
from headwatch_indexer.errors import HeadwatchError, NotFresh, Unreachable, WrongUsage

_BODY_LIMIT_BYTES = 1 << 20
_BODY_TIMEOUT_S = 30.0
_STATUS = (
    (UnknownWorktree, 404),
    (WrongUsage, 400),
    (NotFresh, 504),
    (Unreachable, 503),
    (HeadwatchError, 422),
)
_log = log.get("api")
Endpoint = Callable[[Request], Awaitable[Response]]
B = TypeVar("B", bound=protocol.Request)


def application(actions: Actions, calls: Calls, home: str) -> Starlette:
    """Build the routes over `actions`."""

    async def status(request: Request) -> Response:
        return JSONResponse(await calls.run(lambda: actions.status(request.query_params.get("repo"))))

    async def health(_request: Request) -> Response:
        told = await calls.run(actions.health)
        return JSONResponse({"ok": True, "pid": os.getpid(), "home": home, "version": __version__} | told)

    async def metrics(_request: Request) -> Response:
        return PlainTextResponse(await calls.run(actions.metrics), media_type="text/plain; version=0.0.4")

    async def repositories(_request: Request) -> Response:
        return JSONResponse(await calls.run(actions.list_))

    async def events(request: Request) -> Response:
        follow = request.query_params.get("follow", "true").lower() not in ("false", "0", "no")
        lines = calls.stream(lambda: actions.events(follow))
        return StreamingResponse(
            lines, media_type="application/x-ndjson", headers={"cache-control": "no-store"}
        )

    def post(kind: type[B], act: Callable[[B], Answer]) -> Endpoint:
        async def answer(request: Request) -> Response:
            body = kind.parse(await _body(request))
            return JSONResponse(await calls.run(lambda: act(body)))

        return answer

    def cwd(given: str | None) -> str:
        return given or "/"  # the daemon's own folder says nothing about the caller

    def add(body: protocol.AddRequest) -> Answer:
        if not body.repos:
            raise WrongUsage("no path was given", hint=f"for example {body.example}")
        return actions.add([_absolute(path) for path in body.repos], body.name)

    gets = {
        "/status": status,
        "/health": health,
        "/metrics": metrics,
        "/events": events,
        "/repositories": repositories,
    }
    posts = {
        "/repositories": post(protocol.AddRequest, add),
        "/search": post(protocol.SearchRequest, actions.search),
        "/show": post(protocol.ShowRequest, lambda b: actions.show(b.symbol, b.repo, cwd(b.cwd))),
        "/skipped": post(protocol.RepoRequest, lambda b: actions.skipped(b.repo, cwd(b.cwd))),
        "/wait": post(
            protocol.WaitRequest, lambda b: actions.wait(b.repo, b.timeout_s, b.vectors, cwd(b.cwd))
        ),
        "/reconcile": post(protocol.RepoRequest, lambda b: actions.reconcile(b.repo)),
        "/remove": post(protocol.RemoveRequest, lambda b: actions.remove(_absolute(b.repo), b.purge)),
        "/embed": post(protocol.EmbedRequest, lambda b: actions.embed(b.texts, b.kind)),
    }
    routes = [Route(path, _guarded(endpoint), methods=["GET"]) for path, endpoint in gets.items()]
    routes += [Route(path, _guarded(endpoint), methods=["POST"]) for path, endpoint in posts.items()]
    return Starlette(routes=routes, exception_handlers={HTTPException: _http_error})


def _guarded(endpoint: Endpoint) -> Endpoint:
    """Answer every error in the one shape that clients know."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Refused as exc:
            return _answer(exc.status, exc.message, exc.hint, exc.exit_code)
        except HeadwatchError as exc:
            fitting = next(status for kind, status in _STATUS if isinstance(exc, kind))
            return _answer(fitting, exc.message, exc.hint, exc.exit_code)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it
        except Exception as exc:
            return _unexpected(request, exc)

    return answer


async def _body(request: Request) -> object:
    """Read and decode a JSON body of bounded size in bounded time; an empty one is an empty object."""
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            data = await _bounded(request)
    except TimeoutError:
        raise Refused(408, "the body did not arrive in time", hint="send it at once") from None
    if not data.strip():
        return {}
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise WrongUsage(f"the body is not JSON: {exc}", hint="send one JSON object") from None


async def _bounded(request: Request) -> bytes:
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > _BODY_LIMIT_BYTES:
            raise Refused(
                413, f"the body is larger than {_BODY_LIMIT_BYTES} bytes", hint="send less at a time"
            )
    return bytes(data)


def _absolute(path: str) -> str:
    """Refuse a path that would be read against the daemon's own folder."""
    if not os.path.isabs(path):
        raise WrongUsage(f"the path {path!r} is not absolute", hint="send the whole path")
    return path


def _answer(status: int, message: str, hint: str, exit_code: int) -> Response:
    headers = {"connection": "close"} if status in (408, 413) else None
    error = {"message": message, "hint": hint, "exit_code": exit_code}
    return JSONResponse({"error": error}, status_code=status, headers=headers)


async def _http_error(request: Request, exc: Exception) -> Response:
    if not isinstance(exc, HTTPException):
        raise exc
    known = sorted({route.path for route in request.app.routes if isinstance(route, Route)})
    if exc.status_code == 404:
        return _answer(404, f"there is no route {request.url.path}", f"routes: {' '.join(known)}", 2)
    message = f"{request.method} {request.url.path}: {exc.detail}"
    return _answer(exc.status_code, message, "GET reads, POST with a JSON body asks or changes", 2)


def _unexpected(request: Request, exc: Exception) -> Response:
    _log.error("request failed", route=request.url.path, exc_info=exc)
    message = f"{request.url.path} failed: {type(exc).__name__}: {log.without_password(str(exc))}"
    return _answer(500, message, "the daemon's log has the details", 1)
