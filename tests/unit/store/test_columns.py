import datetime
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.dialects import sqlite

from interpreter_bot.store import columns

ANY_TEXT = st.text(st.characters())


@given(ANY_TEXT)
def test_a_document_is_exact_and_storable(text):
    document = columns.serialize({"k": text, text: [text]})
    assert json.loads(document) == {"k": text, text: [text]}
    assert columns.make_storable(document) == document


@given(st.text(st.characters(), max_size=300), st.text(st.characters(), max_size=300))
def test_identities_are_short_storable_and_different(one, other):
    first, second = columns.make_name_storable(one), columns.make_name_storable(other)
    assert (first == second) is (one == other)
    assert len(first) <= columns.MAX_NAME_CHARACTERS
    assert columns.make_storable(first) == first


def test_a_real_name_stays_as_it_is():
    assert columns.make_name_storable("C0123ABC") == "C0123ABC"


def test_a_time_without_zone_is_a_fault():
    naive = datetime.datetime(2025, 1, 1)  # noqa: DTZ001
    with pytest.raises(ValueError, match="zone"):
        columns.Moment().process_bind_param(naive, sqlite.dialect())


def test_a_time_of_another_zone_is_turned_to_utc():
    zone = datetime.timezone(datetime.timedelta(hours=9))
    moment = datetime.datetime(2025, 1, 1, 8, tzinfo=zone)
    stored = columns.Moment().process_bind_param(moment, sqlite.dialect())
    assert stored.isoformat() == "2024-12-31T23:00:00+00:00"
