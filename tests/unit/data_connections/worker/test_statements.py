"""Statements taken apart: what is a parameter, what only looks like one, and where one ends."""

import pytest

from interpreter_bot.data_connections.worker import statements


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("select :a", "select <a>"),
        (
            "select ':a', \":a\", `:a` /* :a /* :a */ :a */, :a",
            "select ':a', \":a\", `:a` /* :a /* :a */ :a */, <a>",
        ),
        ("select 'it''s :a' || :a", "select 'it''s :a' || <a>"),
        (r"select e'\' :a', :a", r"select e'\' :a', <a>"),
        ("select $$ :a $$, $x$ :a $$ $x$, :a", "select $$ :a $$, $x$ :a $$ $x$, <a>"),
        ("select x::a from t -- :a\n where b=:a", "select x::a from t -- :a\n where b=<a>"),
        ("select :a::int ; -- the end", "select <a>::int"),
        ("select :ab, :a", "select :ab, <a>"),
    ],
)
def test_parameters_are_found_where_they_are(text, rendered):
    found = statements.Statement(text, {"a": 1}).rendered(lambda name: f"<{name}>")
    assert found == rendered


@pytest.mark.parametrize(
    "text",
    ["", " -- nothing", ";", "select 1; select 2", "select 1 /* ", "select $$ 1", "select 1;;x"],
)
def test_what_is_not_one_statement_is_refused(text):
    with pytest.raises(statements.StatementError):
        statements.Statement(text, {})


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("SELECT 1", "select"),
        ("/* x */ (select 1)", "select"),
        ("-- select\ndelete from t", "delete"),
        ("( (with x as (select 1) select * from x))", "with"),
    ],
)
def test_the_first_word_is_the_first(text, word):
    assert statements.Statement(text, {}).first_word == word


def test_backslashes_escape_where_the_database_says_so():
    statement = statements.Statement(r"select 'it\'s; :a', :a", {"a": 1}, is_mysql=True)
    assert statement.rendered(lambda _: "?") == r"select 'it\'s; :a', ?"


@pytest.mark.parametrize(
    "text",
    [
        "select 1 # '\n; commit; delete from t # '",
        "select 5--1; delete from t",
        "select 5--\N{NO-BREAK SPACE}1; delete from t",
        "select 1 /* /* */; delete from t -- */ */",
        "select 1 as $$; delete from t where $$ = 1",
        "select 1 /*! ; delete from t */",
        "select 1 /*M! + 1 */",
    ],
)
def test_what_mysql_takes_for_more_than_one_statement_is_refused(text):
    with pytest.raises(statements.StatementError):
        statements.Statement(text, {}, is_mysql=True)


def test_comments_of_mysql_are_left_alone():
    text = "select 5--1, :a # :a; '\n, :a -- :a; '\n, :a /* :a /* */ + :a --\n+ 1"
    found = statements.Statement(text, {"a": 1}, is_mysql=True).rendered(lambda _: "?")
    assert found == "select 5--1, ? # :a; '\n, ? -- :a; '\n, ? /* :a /* */ + ? --\n+ 1"


def test_a_comment_that_ends_elsewhere_for_postgresql_is_refused():
    assert statements.Statement("select 1 -- a\r\n", {}).reads
    with pytest.raises(statements.StatementError):
        statements.Statement("select 1 -- \r; delete from t", {})


@pytest.mark.parametrize(
    "text",
    [
        "explain analyze delete from t",
        "with p as procedure () returns int as 'begin return 1; end' call p()",
        "with x as (select 1) DELETE from t",
        "select 1 as ['] drop table t --']",
    ],
)
def test_what_could_change_an_unguarded_database_is_refused(text):
    with pytest.raises(statements.StatementError, match="Texts can be given as parameters"):
        statements.Statement(text, {}).check_words()
    statements.Statement("select deleted, created_at from updates", {}).check_words()


def test_a_value_without_a_parameter_is_refused():
    with pytest.raises(statements.StatementError, match=":b"):
        statements.Statement("select ':b', :a", {"a": 1, "b": 2})


@pytest.mark.parametrize("told", [{"date": "x"}, {"date": 1}, {"what": "x"}, {}, {"a": 1, "b": 2}])
def test_a_value_that_is_none_is_refused(told):
    with pytest.raises(statements.StatementError):
        statements.value(told)
