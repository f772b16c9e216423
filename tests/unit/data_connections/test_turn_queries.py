"""What is noted of one turn's queries."""

from interpreter_bot import code_activity
from interpreter_bot.data_connections import turn_queries


def query(statement="select 1", *, key="web/1"):
    return code_activity.Query(key, "k", "anna", "sales", statement, "It was stopped.")


def test_the_queries_of_a_turn_include_one_that_never_ended():
    turns = turn_queries.TurnQueryLog()
    before, during = query("before"), query("during")
    turns.add_query(before)
    turns.begin("web/1")
    turns.add_query(during)
    turns.add_query(query("elsewhere", key="web/2"))
    running = query("running")
    turns.add_query(running)
    during.rows, during.reason = 3, ""
    asked = turns.end("web/1")
    running.reason = "it is over now"
    assert [(one.statement, one.rows, one.reason) for one in asked] == [
        ("during", 3, ""),
        ("running", 0, "It was stopped."),
    ]
    assert turns.end("web/1") == ()


def test_shown_statements_are_harmless_and_bounded():
    turns = turn_queries.TurnQueryLog()
    turns.begin("web/1")
    for statement in ("select \x1b[2J'\u202e'", "x" * 10_000, *["select 1"] * 100):
        turns.add_query(query(statement))
    hostile, long, *rest, more = turns.end("web/1")
    assert hostile.statement == "select '⟨U+202E⟩'"
    assert len(long.statement) == 2000
    assert len(rest) == 48
    assert more.connection == ""


def test_an_approval_is_valid_once_and_not_after_its_turn():
    turns = turn_queries.TurnQueryLog()
    statement = ("web/1", "till", "delete from orders", {"a": 1})
    turns.allow(*statement)
    assert not turns.consume_approval(*statement[:3], {"a": 2})
    assert turns.consume_approval(*statement)
    assert not turns.consume_approval(*statement)
    turns.allow(*statement)
    turns.end("web/1")
    assert not turns.consume_approval(*statement)


def test_a_job_and_a_turn_beside_it_have_queries_until_both_have_ended():
    turns = turn_queries.TurnQueryLog()
    turns.begin("web/1", 1)
    turns.begin("web/1", 2)
    turns.end("web/1", 1)
    assert turns.is_running("web/1")
    turns.begin("web/1", 2)
    turns.end("web/1", 2)
    assert not turns.is_running("web/1")
