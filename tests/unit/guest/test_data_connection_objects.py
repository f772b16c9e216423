"""Data connections as objects of the kernel, as far as they need no bot."""

import io
import traceback

import pytest

from interpreter_bot.guest import data_connection_objects


def test_a_refused_request_can_be_closed(monkeypatch):
    monkeypatch.setattr(data_connection_objects, "_refusal", "No bot is running.")
    with pytest.raises(data_connection_objects.QueryError, match="No bot is running") as raised:
        list(data_connection_objects.Connections())
    owners = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(raised.tb)]
    (answer,) = (owner for owner in owners if isinstance(owner, io.IOBase))
    # Python does this when it frees the answer, and since 3.13 it prints an error of it.
    answer.close()
    assert answer.closed
