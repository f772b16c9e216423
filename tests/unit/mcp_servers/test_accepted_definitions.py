import pytest

from interpreter_bot import errors
from interpreter_bot.mcp_servers import accepted_definitions, definitions

OLD = definitions.read_listing("Kind.", [{"name": "a"}, {"name": "b"}, {"name": "c"}])
NEW = definitions.read_listing("Rude.", [{"name": "a"}, {"name": "b", "title": "B"}, {"name": "d"}])


@pytest.fixture
def known(tmp_path):
    return accepted_definitions.AcceptedDefinitions(tmp_path)


def test_nothing_is_used_before_it_was_accepted_as_it_was_read(known):
    with pytest.raises(errors.BotError, match="has not listed its tools"):
        known.accept("jira", OLD.digest)
    known.record_latest("jira", OLD)
    assert known.usable("jira").tools == ()
    for digest, sentence in (
        ("", "Name the version"),
        (OLD.digest[:31], "Name the version"),
        (NEW.digest[:32], "read what has changed"),
    ):
        with pytest.raises(errors.BotError, match=sentence):
            known.accept("jira", digest)
    known.accept("jira", OLD.digest[:32])
    assert [tool.name for tool in known.usable("jira").tools] == ["a", "b", "c"]
    assert known.usable("jira").instructions == "Kind."


def test_what_has_changed_is_off_and_the_rest_stays(known):
    known.record_latest("jira", OLD)
    known.accept("jira", OLD.digest)
    known.record_latest("jira", NEW)
    usable = known.usable("jira")
    assert [tool.name for tool in usable.tools] == ["a"]
    assert usable.instructions == ""
    assert usable.standings == {"a": "on", "b": "changed", "d": "new", "c": "gone", "": "changed"}


def test_another_process_sees_what_was_accepted_and_refused(known, tmp_path):
    known.record_latest("jira", OLD)
    assert known.usable("jira").tools == ()
    other = accepted_definitions.AcceptedDefinitions(tmp_path)
    other.accept("jira", OLD.digest)
    assert len(known.usable("jira").tools) == 3
    other.refuse("jira")
    assert known.usable("jira").tools == ()


def test_a_file_that_is_broken_turns_all_off(known, tmp_path):
    known.record_latest("jira", OLD)
    known.accept("jira", OLD.digest)
    (tmp_path / "acceptance/tools/jira.json").write_text('{"tools": 3}')
    assert known.usable("jira").tools == ()


def test_what_may_be_used_is_found_out_once_for_each_version_of_the_files(known):
    known.record_latest("jira", OLD)
    new = known.usable("jira")
    assert known.usable("jira") is new
    known.accept("jira", OLD.digest)
    accepted = known.usable("jira")
    assert accepted is not new
    assert known.usable("jira") is accepted
