"""Fresh randomness after a fork, so that no two kernels draw the same numbers."""

from __future__ import annotations

import multiprocessing
import os
import random
import ssl
import sys
import tempfile
import uuid

_SEED_BYTES = 32


def renew() -> None:
    """Reseed every generator that lives at module level and was copied by the fork."""
    random.seed(os.urandom(_SEED_BYTES))
    ssl.RAND_add(os.urandom(_SEED_BYTES), 0.0)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    multiprocessing.current_process().authkey = os.urandom(_SEED_BYTES)
    # Forked kernels all have the same pid, by which these two tell processes apart.
    tempfile._name_sequence = None  # type: ignore[attr-defined]
    uuid._last_timestamp = None  # type: ignore[attr-defined]
    uuid._node = uuid._random_getnode() if hasattr(uuid, "_random_getnode") else None  # type: ignore[attr-defined]
