"""One project, one name, whatever the URL looks like."""

from __future__ import annotations

import pytest

from headwatch_indexer.identity import normalise


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/owner/name", "https://github.com/owner/name.git", "https://github.com/owner/name.git/",
        "http://github.com/owner/name/", "https://user:token@github.com/owner/name", "https://GitHub.com:443/owner/name",
        "git@github.com:owner/name.git", "git@github.com:/owner/name", "github.com:owner/name",
        "ssh://git@github.com/owner/name.git", "ssh://git@github.com:22/owner/name", "git://github.com/owner/name.git",
        "git+ssh://git@github.com/owner//name", "ssh://github.com./owner/name\n",
    ],
)  # fmt: skip
def test_all_spellings_of_a_remote_are_one_identity(url: str) -> None:
    """Scheme, user, port, case of the host, slashes and .git do not matter."""
    assert normalise(url) == "github.com/owner/name"


@pytest.mark.parametrize(
    "url",
    ["/srv/git/x.git", "../x", "file:///srv/x", "./a:b", "", "https://", "host:", "https://host/", "ext::sh"],
)
def test_what_names_no_place_elsewhere_is_no_identity(url: str) -> None:
    """Paths mean something on this machine only."""
    assert normalise(url) is None


def test_case_of_the_path_and_depth_are_kept() -> None:
    """Hosts fold case, paths may not; groups nest; IPv6 hosts have colons."""
    assert normalise("git@gitlab.com:Group/Sub/Name.git") == "gitlab.com/Group/Sub/Name"
    assert normalise("ssh://git@[::1]:2222/x.git") == "::1/x"
