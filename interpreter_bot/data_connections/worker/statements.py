"""SQL statements: checks that a text is one statement which only reads, and its parameters.

`sqlglot` parses it in the dialect of the database. Comments are removed, because the database may
run a text that `sqlglot` takes for a comment. The main protection is a read-only transaction of the
database. Functions with effects even in such transactions are refused by name.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import sqlglot
from sqlglot import Dialect, Token, Tokenizer, TokenType, exp

from interpreter_bot.wording import data_words

# sqlglot logs whole statements if it parses them as commands, which are refused anyway.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

# Parsing a token takes about a tenth of a millisecond.
_MAX_TOKENS: Final = 50_000
# Names of dialects in sqlglot, by their names in SQLAlchemy and the settings.
_DIALECTS: Final = {"postgresql": "postgres", "mariadb": "mysql", "mssql": "tsql"}
_DIALECT_TITLES: Final = {
    "postgresql": "PostgreSQL",
    "mysql": "MySQL",
    "mariadb": "MariaDB",
    "oracle": "Oracle's SQL",
    "mssql": "T-SQL",
    "snowflake": "Snowflake's SQL",
}
_EXECUTABLE_COMMENT: Final = re.compile(r"/\*M?!", re.IGNORECASE)
_NAME_PATTERN: Final = re.compile(r"[A-Za-z_]\w*")
_SHOWING_WORDS: Final = frozenset(("show", "describe", "desc", "explain"))
_STATEMENT_BEGINNINGS: Final = frozenset(
    (
        *(TokenType.SELECT, TokenType.WITH, TokenType.VALUES),
        *(TokenType.INSERT, TokenType.UPDATE, TokenType.DELETE),
        *(TokenType.MERGE, TokenType.CREATE, TokenType.EXECUTE),
    )
)
# Expressions that do more than read; a lock keeps others from writing.
_EXPRESSIONS_WITH_EFFECTS: Final = (
    exp.DML,
    exp.DDL,
    exp.Into,
    exp.Command,
    exp.Copy,
    exp.Set,
    exp.Lock,
)
# In T-SQL, a statement can follow another without a semicolon, so words that begin a statement are
# refused. As names of columns or tables, they have to be written in brackets.
_TSQL_STATEMENT_WORDS: Final = frozenset(
    (
        *("alter", "backup", "begin", "break", "bulk", "checkpoint", "close", "commit", "continue"),
        *("create", "dbcc", "deallocate", "declare", "delete", "deny", "drop", "dump"),
        *("exec", "execute", "goto", "grant", "if", "insert", "kill", "load"),
        *("merge", "open", "print", "raiserror", "readtext", "reconfigure", "restore", "return"),
        *("revert", "revoke", "rollback", "save", "set", "setuser", "shutdown"),
        *("truncate", "update", "updatetext", "use", "waitfor", "while", "writetext"),
    )
)
_REFUSED_FUNCTIONS: Final = {
    "postgres": re.compile(
        r"pg_(?:(?:try_)?advisory_\w+|terminate_backend|cancel_backend|reload_conf|switch_\w+|"
        r"logical_\w+|replication_\w+|create_\w+|drop_\w+|copy_\w+|promote|notify|rotate_logfile\w*|"
        r"wal_replay_\w+|xlog_replay_\w+|backup_\w+|start_backup|stop_backup|export_snapshot|"
        r"read_\w+|ls_\w+|stat_file|file_\w+|logdir_ls|stat_reset\w*|stat_\w+_reset|"
        r"log_backend_\w+|log_standby_snapshot|prewarm|autoprewarm_\w+|buffercache_evict\w*|"
        r"import_system_collations|sync_replication_slots|set_\w+|clear_\w+|restore_\w+|"
        r"extension_config_dump|truncate_\w+|current_xact_id|execute_server_program)|"
        r"txid_current|set_config|nextval|setval|lo_\w+|loread|lowrite|dblink\w*|"
        r"(?:query|table|cursor|schema|database)_to_xml\w*|xpath_table|ts_stat|ts_rewrite|crosstab\w*|"
        r"connectby|brin_\w+|gin_clean_pending_list|http(?:_\w+)?|postgres_fdw_\w+|heap_force_\w+|query_export_to_s3|invoke"
    ),
    "mysql": re.compile(
        r"load_file|get_lock|release_lock|release_all_locks|sys_\w+|nextval|setval|lastval|"
        r"(?:master|source)_(?:pos|gtid)_wait|wait_\w+|service_\w+_locks|asynchronous_\w+|"
        r"group_replication_\w+|keyring_\w+"
    ),
    "oracle": re.compile(
        r"(?:dbms|utl|ctx|ctxsys|owa|htp|apex|sys)_?\w*|httpuritype|nextval|dburitype|xdburitype"
    ),
    "tsql": re.compile(r"openrowset|opendatasource|openquery|openxml|[xs]p_\w+|fn_trace\w*"),
    "duckdb": re.compile(
        r"read_\w+|\w+_scan|glob|sniff_csv|parquet_\w+|query|query_table|getenv|nextval|which_secret"
    ),
    "snowflake": re.compile(r"system\$\w+|nextval"),
    "bigquery": re.compile(r"external_query"),
    "clickhouse": re.compile(
        r"file\w*|url\w*|s3\w*|gcs|azure\w*|hdfs\w*|remote\w*|cluster\w*|mysql|postgresql|mongodb|"
        r"redis|sqlite|jdbc|odbc|executable|input|hive|iceberg\w*|deltalake\w*|hudi\w*|sleep\w*"
    ),
}


class StatementError(Exception):
    """A statement is refused; the message is a sentence for people."""


class Statement:
    """One statement and the values of its parameters.

    Attributes:
        values: of its parameters, by name.
        first_word: in lower case.
    """

    def __init__(self, text: str, values: Mapping[str, Any], *, dialect: str = "") -> None:
        """Parse a statement.

        Args:
            text: the SQL.
            values: its parameters.
            dialect: its name in SQLAlchemy; an unknown dialect is parsed as standard SQL.

        Raises:
            StatementError: it is empty, incomplete, or more than one statement.
        """
        self.values = values
        self._dialect_title = _DIALECT_TITLES.get(dialect, "this database's SQL")
        name = _DIALECTS.get(dialect, dialect)
        self._dialect_name = name if Dialect.get(name) else ""
        self._dialect = Dialect.get_or_raise(self._dialect_name)
        self._text = text
        self._tokens = self._tokenize(text)
        self.first_word = next(
            (token.text.lower() for token in self._tokens if token.text != "("), ""
        )
        names = {text[start + 1 : end] for start, end in self._parameter_spans()}
        if unknown := sorted(self.values.keys() - names):
            raise StatementError(data_words.unknown_parameter(unknown[0]))

    def render(self, parameter: Callable[[str], str], *, colon: str = ":") -> str:
        """Return the statement for a driver, without comments.

        `parameter` writes a parameter by its name, and `colon` replaces all other colons.
        """
        parts = []
        parameter_ends = dict(self._parameter_spans())
        last_end = self._tokens[0].start
        for token in self._tokens:
            if token.start < last_end:
                # This token is the name of the parameter that begins before it.
                continue
            gap = self._text[last_end : token.start]
            parts.append("\n" if "\n" in gap else " " if gap else "")
            last_end = parameter_ends.get(token.start, token.end + 1)
            piece = self._text[token.start : last_end]
            is_parameter = token.start in parameter_ends and piece[1:] in self.values
            parts.append(parameter(piece[1:]) if is_parameter else piece.replace(":", colon))
        return "".join(parts)

    def check_reading(self, *, is_guarded: bool = False) -> None:
        """Check that the statement only reads.

        With `is_guarded`, a statement that cannot be parsed is accepted, because the database
        itself refuses to change data.

        Raises:
            StatementError: it may do more, or calls a function with effects.
        """
        if len(self._tokens) > _MAX_TOKENS:
            raise StatementError(data_words.STATEMENT_TOO_LONG)
        try:
            expressions = self._parse()
        except (sqlglot.ParseError, RecursionError) as error:
            if is_guarded or not self._dialect_name:
                return
            raise StatementError(data_words.not_parsed(self._dialect_title)) from error
        if len(expressions) > 1 or not all(map(_only_reads, expressions)):
            raise StatementError(data_words.NOT_READING)
        self._check_functions()

    def _tokenize(self, text: str) -> list[Token]:
        try:
            tokens = _tokenizer(self._dialect).tokenize(text)
        except sqlglot.TokenError as error:
            raise StatementError(data_words.UNCLOSED_STATEMENT) from error
        while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
            tokens.pop()
        if self._dialect_name == "mysql":
            # Hints override limits.
            tokens = [token for token in tokens if token.token_type is not TokenType.HINT]
        if not tokens:
            raise StatementError(data_words.NO_STATEMENT)
        if any(token.token_type is TokenType.SEMICOLON for token in tokens):
            raise StatementError(data_words.SEVERAL_STATEMENTS)
        gaps = _gaps(text, tokens)
        if self._dialect_name == "mysql" and any(_EXECUTABLE_COMMENT.search(gap) for gap in gaps):
            raise StatementError(data_words.RUNNING_COMMENTS)
        return tokens

    def _parse(self) -> Sequence[exp.Expr]:
        """Return the parsed queries; for EXPLAIN and similar statements, the explained query."""
        tokens = self._tokens
        if self.first_word in _SHOWING_WORDS:
            first_index = next(
                (
                    index
                    for index, token in enumerate(tokens)
                    if token.token_type in _STATEMENT_BEGINNINGS
                ),
                None,
            )
            if first_index is None or self.first_word == "show":
                if any(token.token_type is TokenType.L_PAREN for token in tokens):
                    raise StatementError(data_words.NOT_READING)
                return ()
            while tokens[first_index - 1].token_type is TokenType.L_PAREN:
                first_index -= 1
            tokens = tokens[first_index:]
        expressions = self._dialect.parser().parse(tokens, self._text)
        return [expression for expression in expressions if expression is not None]

    def _check_functions(self) -> None:
        refused_functions = _REFUSED_FUNCTIONS.get(self._dialect_name)
        for token, next_token in zip(self._tokens, [*self._tokens[1:], None], strict=True):
            word = token.text.lower()
            text = self._text[token.start : token.end + 1].lower()
            if self._dialect_name == "tsql" and text in _TSQL_STATEMENT_WORDS:
                raise StatementError(data_words.begins_statement(text))
            if next_token is None:
                continue
            is_call = next_token.token_type is TokenType.L_PAREN
            if self._dialect_name == "oracle":
                # A dot may call a function of a package; `nextval` changes a sequence.
                is_call |= next_token.token_type is TokenType.DOT or text == "nextval"
            if is_call and refused_functions is not None and refused_functions.fullmatch(word):
                raise StatementError(data_words.function_refused(word))
            if (
                self._dialect_name == "postgres"
                and word == "u"
                and self._text[next_token.start : next_token.end + 1] == "&"
                and self._text[next_token.end + 1 : next_token.end + 2] == '"'
            ):
                raise StatementError(data_words.UNICODE_ESCAPES)

    def _parameter_spans(self) -> Iterator[tuple[int, int]]:
        """Yield start and end of each parameter, from its colon."""
        for token, next_token in zip(self._tokens, self._tokens[1:], strict=False):
            is_colon = token.token_type is TokenType.COLON
            if is_colon and next_token.start == token.end + 1:
                name = _NAME_PATTERN.match(self._text, next_token.start, next_token.end + 1)
                if name is not None:
                    yield token.start, name.end()


def _only_reads(expression: exp.Expr) -> bool:
    is_query = isinstance(expression, (exp.Query, exp.Values))
    return is_query and not any(
        isinstance(part, _EXPRESSIONS_WITH_EFFECTS) for part in expression.walk()
    )


def _gaps(text: str, tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the text between tokens: space and comments."""
    position = 0
    for token in tokens:
        yield text[position : token.start]
        position = token.end + 1
    yield text[position:]


def _tokenizer(dialect: Dialect) -> Tokenizer:
    """Return a tokenizer that splits commands, which sqlglot otherwise takes as one token each."""
    kind = type("_Tokenizer", (dialect.tokenizer_class,), {"COMMANDS": frozenset()})
    tokenizer: Tokenizer = kind(dialect=dialect)
    return tokenizer


def parse_parameter(parameter: Any) -> Any:  # noqa: ANN401 - of JSON.
    """Return the value of a parameter from JSON, in which a kernel encodes some types as objects.

    Raises:
        StatementError: it is not a valid value.
    """
    if isinstance(parameter, list):
        return [parse_parameter(item) for item in parameter]
    if not isinstance(parameter, dict):
        return parameter
    kinds: dict[str, Callable[[str], Any]] = {
        "date": datetime.date.fromisoformat,
        "datetime": datetime.datetime.fromisoformat,
        "time": datetime.time.fromisoformat,
        "decimal": decimal.Decimal,
        "bytes": base64.b64decode,
    }
    try:
        ((kind, text),) = parameter.items()
        return kinds[kind](text)
    except (ValueError, KeyError, TypeError, ArithmeticError) as error:
        raise StatementError(data_words.BAD_PARAMETER) from error
