"""How a Postgres connection string is changed and shown: as a URL that any libpq program takes."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from headwatch_indexer.errors import WrongUsage

_MASK = "***"
_SECRET_KEYS = ("password", "sslpassword")
_TENANT = "app.current_tenant_id"
_URL = re.compile(r"^postgres(?:ql)?://")
_URL_LOGIN = re.compile(
    r"^(\w+://[^:@/?]*):.*@", re.S
)  # up to the last @: a raw @ or / in a password hides too
_URL_PARAMETER = re.compile(rf"([?&](?:{'|'.join(_SECRET_KEYS)})=)[^&]*")
_KEYWORD = re.compile(
    rf"(\b(?:{'|'.join(_SECRET_KEYS)})\s*=\s*)(?:'(?:[^'\\]|\\.)*(?:'|\\?$)|(?:\\.|[^\s\\])+)", re.S
)
_PLAIN_HOST = re.compile(r"^[A-Za-z0-9._-]+$")
_OLD_TENANT = re.compile(rf"(?:^|(?<=\s))(?:-c\s*|--){re.escape(_TENANT)}=(?:\\.|\S)*\s*")


def parse(dsn: str) -> dict[str, str]:
    """Read a URL or keyword DSN; raises WrongUsage without repeating any part of it."""
    try:
        found = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        raise WrongUsage(
            "cannot read the database URL",
            hint="write it as postgresql://user:password@host:5432/database, "
            "with special characters of the password percent-encoded",
        ) from None  # libpq's message may quote a piece of the password
    return {key: str(value) for key, value in found.items() if value is not None}


def url(parameters: Mapping[str, str]) -> str:
    """Write parameters as postgresql://… for any libpq program; a socket or several hosts go to the query."""
    rest = dict(parameters)
    login = quote(rest.pop("user", ""), safe="")
    if "password" in rest:
        login += ":" + quote(rest.pop("password"), safe="")
    address = ""
    if _PLAIN_HOST.match(rest.get("host", "")):
        address = rest.pop("host")
        if rest.get("port", "").isdigit():
            address += ":" + rest.pop("port")
    database = quote(rest.pop("dbname", ""), safe="")
    query = "&".join(f"{key}={quote(value, safe='/')}" for key, value in rest.items())
    return f"postgresql://{login}{'@' if login else ''}{address}/{database}{'?' if query else ''}{query}"


def with_tenant(dsn: str, tenant: str) -> str:
    """Return the DSN as a URL whose sessions see this tenant; other `options` stay, an older tenant goes."""
    try:
        tenant = str(uuid.UUID(tenant))
    except ValueError:
        raise WrongUsage(f"not a tenant: {tenant!r}", hint="a tenant is named by its UUID") from None
    parameters = parse(dsn)
    options = _OLD_TENANT.sub("", parameters.get("options", "")).strip()
    parameters["options"] = f"{options} -c {_TENANT}={tenant}".strip()
    return url(parameters)


def redact(dsn: str) -> str:
    """Return the DSN with every password in it masked; a malformed one rather loses too much."""
    if not _URL.match(dsn):
        return _KEYWORD.sub(rf"\g<1>{_MASK}", dsn)
    if _without_secret(dsn):
        return dsn
    return _URL_PARAMETER.sub(rf"\g<1>{_MASK}", _URL_LOGIN.sub(rf"\g<1>:{_MASK}@", dsn))


def _without_secret(dsn: str) -> bool:
    try:
        parameters = parse(dsn)
    except WrongUsage:
        return False
    ports = parameters.get("port", "").replace(",", "")
    # A password with a raw slash reads as host and port: a port that is no number is taken for one.
    return not any(key in parameters for key in _SECRET_KEYS) and (not ports or ports.isdigit())
