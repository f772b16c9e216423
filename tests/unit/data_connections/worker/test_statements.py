"""Statements taken apart: what is a parameter, what only looks like one, and where one ends."""

import pytest

from interpreter_bot.data_connections.worker import statements


def statement(text, values=None, dialect="postgresql"):
    return statements.Statement(text, values or {}, dialect=dialect)


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("select :a", "select <a>"),
        ("select ':a', \":a\" /* :a /* :a */ :a */, :a", "select ':a', \":a\" , <a>"),
        ("select 'it''s :a' || :a", "select 'it''s :a' || <a>"),
        (r"select e'\' :a', :a", r"select e'\' :a', <a>"),
        ("select $$ :a $$, $x$ :a $$ $x$, :a", "select $$ :a $$, $x$ :a $$ $x$, <a>"),
        ("select x::a from t -- :a\n where b=:a", "select x::a from t\nwhere b=<a>"),
        ("select :a::int ; -- the end", "select <a>::int"),
        ("select :ab, :a, x[1:2]", "select :ab, <a>, x[1:2]"),
        (
            "select U&'d\\0061t', x->>'a' from t where y@>array[:a]",
            "select U&'d\\0061t', x->>'a' from t where y@>array[<a>]",
        ),
    ],
)
def test_parameters_are_found_where_they_are(text, rendered):
    assert statement(text, {"a": 1}).render(lambda name: f"<{name}>") == rendered


@pytest.mark.parametrize(
    "text",
    ["", " -- nothing", ";", "select 1; select 2", "select 1 /* ", "select $$ 1", "select 1;;x"],
)
def test_text_that_is_not_one_statement_is_refused(text):
    with pytest.raises(statements.StatementError):
        statement(text)


def test_comments_never_reach_a_database():
    text = "select 5--1, :a # :a; '\n, :a -- :a; '\n, :a /* :a /* */ + :a --\n+ 1"
    rendered = statement(text, {"a": 1}, "mysql").render(lambda _: "?")
    assert rendered == "select 5--1, ?\n, ?\n, ? + ?\n+ 1"
    with pytest.raises(statements.StatementError):
        statement("select 1 -- \r; delete from t")
    rendered = statement(r"select 'it\'s; :a', :a", {"a": 1}, "mysql").render(lambda _: "?")
    assert rendered == r"select 'it\'s; :a', ?"
    hint = statement("select /*+ MAX_EXECUTION_TIME(0) */ 1", dialect="mysql")
    assert hint.render(str) == "select 1"


@pytest.mark.parametrize(
    "text",
    [
        "select 1 # '\n; commit; delete from t # '",
        "select 1 /* /* */; delete from t -- */ */",
        "select 1 as $$; delete from t where $$ = 1",
        "select 1 /*! ; delete from t */",
        "select 1 /*M! + 1 */",
    ],
)
def test_several_statements_in_mysqls_syntax_are_refused(text):
    with pytest.raises(statements.StatementError):
        statement(text, dialect="mysql")


READING = [
    ("postgresql", "select count(*) filter (where x) over (partition by y) from t limit 5"),
    ("postgresql", "with recursive a as (select 1 union all select n + 1 from a) select * from a"),
    ("postgresql", "( (with x as (select 1) select * from x))"),
    ("postgresql", "values (1), (2)"),
    ("postgresql", "table t"),
    ("postgresql", "/* x */ explain (analyze, format json) (select 1)"),
    ("postgresql", "explain select * from t"),
    ("postgresql", "show work_mem"),
    ("postgresql", "select deleted, created_at, 'drop; pg_sleep(1)' from updates"),
    ("postgresql", "select pg_sleep(1), pg_terminate_backend from pg_stat_activity"),
    ("postgresql", "select d::date, x #>> '{a,b}', array_agg(y order by z) from s.t group by 1, 2"),
    ("mysql", "select `a b`, if(a, 1, 2) from t where b regexp 'x' limit 1, 2"),
    ("mysql", "show create table t"),
    ("mariadb", "describe t"),
    ("mysql", "explain select 1"),
    ("oracle", "select q'[it's]' from dual where a = :b"),
    ("mssql", "select top 5 [x y], [delete] from [t] with (nolock) where a = N'kill'"),
    ("snowflake", "select a:b.c::string, $1 from t qualify row_number() over (order by d) = 1"),
    ("bigquery", "select * except (a) from `p.d.t` where _PARTITIONTIME > timestamp('2024-01-01')"),
    ("duckdb", "from t select a"),
    ("nobodys", "select 1 from t"),
]


@pytest.mark.parametrize(("dialect", "text"), READING)
def test_a_statement_that_only_reads_is_accepted(dialect, text):
    statement(text, dialect=dialect).check_reading()


CHANGING = [
    ("postgresql", "delete from t"),
    ("postgresql", "with a as (delete from t returning *) select * from a"),
    ("postgresql", "select * into x from t"),
    ("postgresql", "select * from t for update"),
    ("postgresql", "explain analyze delete from t"),
    ("postgresql", "explain (analyze) with a as (delete from t returning *) select 1"),
    ("postgresql", "copy (select 1) to program 'x'"),
    ("postgresql", "do $$ begin end $$"),
    ("postgresql", "call p()"),
    ("postgresql", "listen x"),
    ("postgresql", "set work_mem = '1GB'"),
    ("postgresql", "explain execute p(1)"),
    *(
        ("postgresql", f"select {call}")
        for call in (
            *("pg_logical_emit_message(false, 'x', repeat('x', 1000))", "pg_cancel_backend(1)"),
            *("pg_catalog.pg_terminate_backend /* */ (1)", '"pg_terminate_backend"(1)'),
            *("PG_TERMINATE_BACKEND(1)", "pg_advisory_lock(1)", "pg_try_advisory_xact_lock(1)"),
            *("dblink_exec('x', 'y')", "lo_import('/etc/passwd')", "pg_read_file('x')"),
            *(
                "query_to_xml('select pg_cancel_backend(1)', true, true, '')",
                "set_config('a', 'b', false)",
            ),
            *("nextval('s')", "setval('s', 1)", "pg_reload_conf()", "pg_switch_wal()"),
            *("pg_create_physical_replication_slot('x')", "pg_notify('a', 'b')", "pg_ls_dir('.')"),
            *("pg_stat_reset()", "pg_stat_statements_reset()", "ts_stat('select 1')"),
            *("pg_export_snapshot()", "pg_drop_replication_slot('x')", "pg_promote()"),
            'U&"pg_terminate_b\\0061ckend"(1)',
        )
    ),
    ("postgresql", "select * from t where exists (select pg_advisory_lock(id))"),
    ("mysql", "select 1 into outfile '/tmp/x'"),
    ("mysql", "select * from t into dumpfile '/tmp/x'"),
    ("mysql", "select 1 into @a"),
    ("mysql", "select load_file('/etc/passwd')"),
    ("mysql", "select get_lock('x', 1)"),
    ("mysql", "select * from t lock in share mode"),
    ("mysql", "kill 1"),
    ("mysql", "explain analyze delete from t"),
    ("mysql", "load data infile 'x' into table t"),
    ("oracle", "select utl_http.request('http://x') from dual"),
    ("oracle", "select s.nextval from dual"),
    ("mssql", "SELECT 1 SHUTDOWN"),
    ("mssql", "SELECT 1 DELETE FROM t"),
    ("mssql", "SELECT 1 KILL 53"),
    ("mssql", "SELECT 1 FROM t CHECKPOINT"),
    ("mssql", "SELECT 1 RECONFIGURE"),
    ("mssql", "SELECT * FROM t BACKUP DATABASE x TO DISK = 'y'"),
    ("mssql", "SELECT 1 DENY SELECT ON t TO x"),
    ("mssql", "SELECT 1 DBCC SHRINKDATABASE (x)"),
    ("mssql", "SELECT 1 EXEC xp_cmdshell 'x'"),
    ("mssql", "DECLARE @a int SELECT 1"),
    ("mssql", "SELECT * FROM OPENROWSET('SQLNCLI', 'x', 'select 1')"),
    ("duckdb", "copy t to 'x'"),
    ("duckdb", "attach 'x'"),
    ("duckdb", "install httpfs"),
    ("duckdb", "pragma database_list"),
    ("duckdb", "select * from read_csv('/etc/passwd')"),
    ("snowflake", "select system$cancel_query('x')"),
    ("snowflake", "with p as procedure () returns int as 'begin return 1; end' call p()"),
    ("snowflake", "put file://x @y"),
    ("bigquery", "select * from external_query('a', 'b')"),
    ("bigquery", "export data options (uri = 'x') as select 1"),
    ("clickhouse", "select * from url('http://x', 'CSV')"),
    ("clickhouse", "select 1 into outfile 'x'"),
    ("nobodys", "delete from t"),
    ("nobodys", "with x as (select 1) delete from t"),
]


@pytest.mark.parametrize(("dialect", "text"), CHANGING)
def test_a_statement_that_does_more_than_read_is_refused(dialect, text):
    with pytest.raises(statements.StatementError):
        statement(text, dialect=dialect).check_reading()


@pytest.mark.parametrize(
    "text", ["(" * 20_000 + "select 1" + ")" * 20_000, "select " + "-1" * 9000]
)
def test_deep_statements_are_refused_like_others(text):
    with pytest.raises(statements.StatementError):
        statement(text + " from (").check_reading()


def test_a_statement_that_takes_long_to_parse_is_refused():
    with pytest.raises(statements.StatementError, match="too long"):
        statement(f"select {'a, ' * 50_000}a").check_reading()


def test_a_value_without_a_parameter_is_refused():
    with pytest.raises(statements.StatementError, match=":b"):
        statement("select ':b', :a", {"a": 1, "b": 2})


@pytest.mark.parametrize("told", [{"date": "x"}, {"date": 1}, {"what": "x"}, {}, {"a": 1, "b": 2}])
def test_an_invalid_value_is_refused(told):
    with pytest.raises(statements.StatementError):
        statements.parse_parameter(told)


def test_offset_and_fetch_of_sql_server_and_bracketed_names_are_accepted():
    paged = "SELECT a FROM t ORDER BY a OFFSET 0 ROWS FETCH NEXT 10 ROWS ONLY"
    statement(paged, dialect="mssql").check_reading()
    statement("SELECT [open] FROM prices", dialect="mssql").check_reading()
    with pytest.raises(statements.StatementError, match=r"write it in brackets: \[open\]"):
        statement("SELECT open FROM prices", dialect="mssql").check_reading()
