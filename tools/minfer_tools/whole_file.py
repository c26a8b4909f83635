# SPDX-License-Identifier: MIT
"""Files that are written wholly or not at all, whatever a disk or a limit (`ulimit -f`) allows."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import BinaryIO, Iterator

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def writing(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """A new file, which is removed if what writes it fails. An OSError for want of room names it."""
    file = open(path, "wb")
    try:
        with file:
            yield file
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(path)
        if isinstance(error, OSError) and error.errno in NO_ROOM and error.filename is None:
            error.filename = os.fspath(path)
        raise


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` in one step, once it is complete: until then, and if what
    writes it fails, there is what there was."""
    partial = f"{os.fspath(path)}.partial"
    with writing(partial) as file:
        yield file
        file.flush()
        os.replace(partial, path)


def replace_text(path: str | os.PathLike, text: str) -> None:
    """The text in place of what `path` holds."""
    with replacing(path) as file:
        file.write(text.encode())
