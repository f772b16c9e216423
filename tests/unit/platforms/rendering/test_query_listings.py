"""Queries in words."""

from interpreter_bot import code_activity
from interpreter_bot.platforms.rendering import query_listings


def query(statement="select 1", **more):
    return code_activity.ShownQuery("sales", statement, **more)


def test_each_statement_stands_below_where_it_went_and_what_came_of_it():
    asked = (
        query("select *\nfrom orders", rows=1234, seconds=0.25),
        query("drop table orders", reason="It does not only\nread."),
        query("select 2", rows=5, seconds=1.0, reason="cut after 5 rows"),
        code_activity.ShownQuery("", "… and more"),
    )
    assert query_listings.write_script(asked) == (
        "-- sales: 1,234 rows in 0.25 s\nselect *\nfrom orders\n\n"
        "-- sales: It does not only read.\ndrop table orders\n\n"
        "-- sales: 5 rows in 1 s: cut after 5 rows\nselect 2\n\n"
        "-- … and more"
    )


def test_many_long_ones_are_bounded_and_it_is_said_how_many_are_left_out():
    shown = query_listings.write_script([query("x" * 2000)] * 50)
    assert len(shown) < 10_000
    assert shown.endswith("-- … and 46 more")
