# SPDX-License-Identifier: MIT
"""The folders that belong to this checkout: where they lie, and whose turn it is in them."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from cli import ROOT
from cli.console import say
from minfer_tools.cache import locked, minfer_cache, user_cache
from minfer_tools.errors import Failure


def folder(name: str) -> Path:
    """The folder `name` of the checkout; where that can't be written, or nothing in it run, one in the cache."""
    if os.access(ROOT, os.W_OK) and not forbids_programs(ROOT):
        return ROOT / name
    return minfer_cache() / f"{name.lstrip('.')}-{hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]}"


def forbids_programs(place: Path) -> bool:
    return bool(os.statvfs(place).f_flag & os.ST_NOEXEC)


def remedy(place: Path) -> str:
    """What to do about a place that is no good: the variable that puts it elsewhere."""
    return f"{'XDG_CACHE_HOME' if user_cache() in place.parents else 'MINFER_BUILD_DIR'} can name another place"


def make(place: Path) -> Path:
    """Makes the folder where it is not there. @throws Failure where it can't be"""
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"{error.filename}: {error.strerror}; {remedy(place)}") from None
    return place


@contextlib.contextmanager
def turn(lock: Path, doing: str) -> Iterator[None]:
    """One minfer at a time is inside for a lock; the others wait, saying for what.
    @throws Failure where no program could run beside it"""
    if forbids_programs(make(lock.parent)):
        raise Failure(f"{lock.parent}: is mounted noexec, so that nothing can run there; {remedy(lock)}")
    with locked(lock, say, doing):
        yield
