"""Connection strings are changed and shown without breaking or leaking."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from headwatch.dsn import parse, redact, url, with_tenant
from headwatch_indexer.errors import WrongUsage

TENANT = "6c84fb90-12c4-11e1-840d-7b25c5ee775a"
OPTION = f"-c app.current_tenant_id={TENANT}"
values = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1)


@given(user=values, password=values, dbname=values, options=values)
def test_url_says_what_it_was_given(user: str, password: str, dbname: str, options: str) -> None:
    """What goes into a URL comes out of libpq's own parser."""
    given_ = {"user": user, "password": password, "dbname": dbname, "options": options, "host": "/tmp/a b,c"}
    assert parse(url(given_)) == given_


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://u@h:5433/d?sslmode=require", "postgresql://u@h:5433/d?sslmode=require"),
        ("host=h user=u dbname='my d'", "postgresql://u@h/my%20d"),
        ("postgresql://u@/d?host=/run/pg", "postgresql://u@/d?host=/run/pg"),
        ("postgresql://a:1,b:2/d", "postgresql:///d?host=a%2Cb&port=1%2C2"),
        ("postgresql://[::1]:5432/d", "postgresql:///d?host=%3A%3A1&port=5432"),
    ],
)
def test_both_forms_become_a_url(dsn: str, shown: str) -> None:
    """A DSN of any form is written as a URL that means the same."""
    assert url(parse(dsn)) == shown
    assert parse(shown) == parse(dsn)


def test_tenant_joins_other_options() -> None:
    """Options that are there stay, with their escaped spaces; an older tenant is replaced."""
    for dsn in (
        "postgresql://u@h/d?options=-c%20a.b%3Dx%5C%20y",
        r"host=h user=u dbname=d options='-c a.b=x\\ y'",
        f"postgresql://u@h/d?options=-c%20app.current_tenant_id%3D{TENANT}%20-c%20a.b%3Dx%5C%20y",
    ):
        assert parse(with_tenant(dsn, TENANT.upper()))["options"] == rf"-c a.b=x\ y {OPTION}"
    assert parse(with_tenant("postgresql:///d", TENANT))["options"] == OPTION


def test_tenant_is_a_uuid() -> None:
    """Nothing but a UUID gets into the options."""
    with pytest.raises(WrongUsage):
        with_tenant("postgresql:///d", "x -c log_statement=all")


def test_unreadable_dsn_is_not_repeated() -> None:
    """A DSN that cannot be read is refused without quoting a piece of it."""
    with pytest.raises(WrongUsage) as caught:
        parse("host=h pass word")
    assert "word" not in caught.value.message + caught.value.hint.replace("password", "")


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://u:secret@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:se@cr/et?x@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:se/cret@h/d", "postgresql://u:***@h/d"),
        (
            "postgresql://u@h/d?password=secret&sslmode=require",
            "postgresql://u@h/d?password=***&sslmode=require",
        ),
        ("postgresql://h:5432/d?user=me@corp", "postgresql://h:5432/d?user=me@corp"),
        ("host=h password=secret user=u", "host=h password=*** user=u"),
        (r"password = 'se \' cret' host=h", "password = *** host=h"),
        ("host=h password='never closed", "host=h password=***"),
        ("host=h sslpassword=secret", "host=h sslpassword=***"),
    ],
)
def test_password_is_masked(dsn: str, shown: str) -> None:
    """Whatever the form, quoting or mistake, the password is not shown and the rest is."""
    assert redact(dsn) == shown


@given(password=st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1))
def test_no_password_survives(password: str) -> None:
    """Any password, written in either form, is gone."""
    expected = {"user": "u", "host": "h", "dbname": "d"}
    assert redact(url(expected | {"password": password})) == "postgresql://u:***@h/d"
    assert redact(make_conninfo(user="u", password=password, host="h")) == "user=u password=*** host=h"
