"""User ids for kernels: one each, where the deployment allows it."""

from __future__ import annotations

import os


class Uids:
    """User ids for kernels, each used again only after all others."""

    def __init__(self, *, count: int, first_uid: int) -> None:
        self._count = count
        self._first_uid = first_uid
        # Ids of kernels that ended a moment ago, perhaps under another bot, are not reused soon.
        self._last = int.from_bytes(os.urandom(4)) % (count - 1)

    def take(self) -> tuple[int, int]:
        """Return an id as (inside the fork server's namespace, on the host)."""
        if os.geteuid() != 0:
            return 0, os.geteuid()
        self._last = self._last % (self._count - 1) + 1
        return self._last, self._first_uid + self._last
