"""How one project is named the same by every clone of it. Pure."""

from __future__ import annotations

import re

_SCHEME = re.compile(r"^(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<rest>.*)$", re.I | re.S)
_SCP = re.compile(r"^(?:[^@/:]+@)?(?P<host>\[[^\]/]+\]|[^/:]+):(?P<path>(?!:).*)$", re.S)
_NETWORK = frozenset({"ssh", "git", "http", "https", "ftp", "ftps", "git+ssh", "ssh+git", "git+https"})


def normalise(url: str) -> str | None:
    """Reduce a remote's URL to host/path: scheme, user, port, `.git`, slashes and the host's case go.

    None for a URL that means something on this machine only (a path, `file://`, a bundle).
    """
    url = url.strip()
    if match := _SCHEME.match(url):
        if match["scheme"].lower() not in _NETWORK:
            return None
        authority, _, path = match["rest"].partition("/")
        host = _without_port(authority.rpartition("@")[2])
    elif match := _SCP.match(url):
        host, path = match["host"].strip("[]"), match["path"]
    else:
        return None
    path = re.sub(r"/{2,}", "/", path).strip("/")
    path = path[:-4].rstrip("/") if path.lower().endswith(".git") else path
    host = host.lower().rstrip(".")
    return f"{host}/{path}" if host and path else None


def _without_port(authority: str) -> str:
    if authority.startswith("["):  # an IPv6 address: its colons are no port
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0]
