"""What is saved, where, and where never."""

import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interpreter_bot import errors, values
from interpreter_bot.platforms.console import saved_files


def png(data=b"1", **fields):
    return values.Image(mime="image/png", data=data, **fields)


def save(keeper, name, data):
    copy = keeper.directory / ".copy"
    copy.write_bytes(data)
    return keeper.save_file(name, copy)


def files_in(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def keeper(tmp_path):
    return saved_files.SavedFiles(tmp_path / "kept")


def test_displays_are_numbered_within_the_run(keeper, tmp_path):
    paths = [
        keeper.save_display(0, png(b"1")),
        keeper.save_display(3, values.Html(html="<b>é".encode())),
    ]
    assert [path.name for path in paths] == ["cell-0-1.png", "cell-3-2.html"]
    assert files_in(tmp_path / "kept") == {
        "cell-0-1.png": b"1",
        "cell-3-2.html": "<b>é".encode(),
    }


def test_an_update_takes_the_place_of_what_it_updates(keeper):
    first = keeper.save_display(0, png(b"1", display_id="d"))
    assert keeper.save_display(1, png(b"2", display_id="d", is_update=True)) == first
    assert first.read_bytes() == b"2"
    assert keeper.save_display(1, png(b"3", display_id="d")) != first
    assert keeper.save_display(1, png(b"4", display_id="other", is_update=True)) != first


def test_files_keep_their_names_below_a_directory_of_their_own(keeper, tmp_path):
    path = save(keeper, "a/b/ä.csv", b"x")
    assert path == tmp_path / "kept/files/a/b/ä.csv"
    assert path.read_bytes() == b"x"


def test_a_later_copy_replaces_the_earlier_one(keeper):
    save(keeper, "f", b"long content")
    assert save(keeper, "f", b"short").read_bytes() == b"short"


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "a/../../../x", "..", ".", "", "//", "a\0/x", "\ud800"]
)
def test_no_name_leads_out(keeper, tmp_path, name):
    path = save(keeper, name, b"x")
    assert path.is_relative_to(tmp_path / "kept/files")
    assert list(files_in(tmp_path).values()) == [b"x"]
    assert set(tmp_path.iterdir()) == {tmp_path / "kept"}


@given(name=st.text(max_size=600))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_name_has_a_path_below(keeper, name):
    path = save(keeper, name, b"x")
    assert path.is_relative_to(keeper.directory / "files")
    assert ".." not in path.parts
    shutil.rmtree(keeper.directory / "files")


def test_long_names_are_shortened_and_stay_apart(keeper):
    names = [f"{'x' * 300}{end}.csv" for end in "ab"]
    paths = [save(keeper, name, name.encode()) for name in names]
    assert paths[0] != paths[1]
    assert {path.suffix for path in paths} == {".csv"}
    assert [path.read_bytes() for path in paths] == [name.encode() for name in names]


def test_links_in_the_directory_are_not_followed(keeper, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_bytes(b"precious")
    files = tmp_path / "kept/files"
    files.mkdir()
    (files / "below").symlink_to(outside)
    (files / "f").symlink_to(outside / "f")
    for name in ("below/f", "below/deeper/f"):
        with pytest.raises(saved_files.SavingError, match="Not a directory"):
            save(keeper, name, b"x")
    assert save(keeper, "f", b"x").read_bytes() == b"x"
    (tmp_path / "kept/cell-0-1.png").symlink_to(outside / "f")
    keeper.save_display(0, png())
    assert files_in(outside) == {"f": b"precious"}


def test_the_directory_itself_may_be_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    save(saved_files.SavedFiles(tmp_path / "link"), "f", b"x")
    assert files_in(tmp_path / "real") == {"files/f": b"x"}


def test_a_directory_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(errors.SettingsError, match="saved"):
        saved_files.SavedFiles(tmp_path / "file/below")


def test_a_display_that_cannot_be_saved_says_so_in_words(keeper, tmp_path):
    (tmp_path / "kept/cell-0-1.png").mkdir()
    with pytest.raises(saved_files.SavingError, match="could not be saved"):
        keeper.save_display(0, png())
    assert files_in(tmp_path) == {}


def test_what_could_not_be_kept_is_remembered(tmp_path):
    keeper = saved_files.SavedFiles(tmp_path / "kept")
    keeper.save_display(0, png())
    save(keeper, "f", b"x")
    assert not keeper.has_failed
    (tmp_path / "kept/cell-0-2.png").mkdir()
    with pytest.raises(saved_files.SavingError):
        keeper.save_display(0, png())
    assert keeper.has_failed


def test_a_place_that_is_taken_by_something_else_is_a_failure(keeper):
    save(keeper, "f", b"x")
    with pytest.raises(saved_files.SavingError, match="exists"):
        save(keeper, "f/below", b"y")
    assert keeper.has_failed
    assert files_in(keeper.directory) == {"files/f": b"x"}
