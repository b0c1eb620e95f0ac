"""Output of a program whose reader may go away: work goes on without it."""

from __future__ import annotations

import errno
import io
import sys
from typing import Any, TextIO

_NO_READER = (errno.EPIPE, errno.EIO)


def outlive_readers() -> None:
    """Drop what this process prints once nobody can read it: a pipe closed, a terminal was lost.

    Otherwise a lost connection would end a run at its next line, before it is saved.
    """
    sys.stdout, sys.stderr = _outliving(sys.stdout), _outliving(sys.stderr)


def _outliving(stream: TextIO | None) -> TextIO:
    if stream is None:  # the program was started with a closed one
        return io.StringIO()
    stream.flush()
    buffered = io.BufferedWriter(_Unread(stream.fileno(), "w", closefd=False))
    return io.TextIOWrapper(
        buffered,
        encoding=stream.encoding,
        # A name of a file that is no text is printed as the bytes it was given as.
        errors="surrogateescape" if stream.errors == "strict" else stream.errors,
        line_buffering=stream.isatty() or stream is sys.stderr,
    )


class _Unread(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            if error.errno not in _NO_READER:
                raise
            return memoryview(data).nbytes
