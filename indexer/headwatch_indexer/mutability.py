"""How fast events and notes about a symbol decay: by rule, from its path."""

from __future__ import annotations

from headwatch_indexer.records import RepositoryRules
from headwatch_indexer.rules import matches


def classify(path: str, rules: RepositoryRules) -> str:
    """Name the mutability class of a path: immutable_core, standard or transient_diff.

    The repository's own globs decide; a file that matches both lists is immutable_core.
    """
    for name, globs in (("immutable_core", rules.immutable_core), ("transient_diff", rules.transient_diff)):
        if matches(globs, path):
            return name
    return "standard"
