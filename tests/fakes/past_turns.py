"""Past turns as the store returns them."""

import datetime

from interpreter_bot import values
from interpreter_bot.sessions import past_turns
from interpreter_bot.store import records

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def make_past_turn(*turn_events, **fields):
    """Make a past turn with some events; `fields` replace those of its record."""
    columns = {"id": 1, "session_id": 1, "request_id": "", "person": "p", "request": "go"}
    columns |= {"attachments": (), "status": values.TurnStatus.DONE, "answer": "", "owner": ""}
    columns |= {"progress": None, "original": None, "instead_of": None, "schedule_run_id": None}
    columns |= {"started": START, "ended": None}
    return past_turns.PastTurn(record=records.Turn(**columns | fields), events=turn_events)
