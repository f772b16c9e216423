import pathlib

import pytest

from interpreter_bot import errors
from interpreter_bot.store import engines


def test_without_a_url_the_database_is_a_file_among_the_data():
    url = engines.parse(engines.default_url(pathlib.Path("/data/ü ?#%41")))
    assert engines.is_sqlite(url)
    assert engines.database_file(url) == pathlib.Path("/data/ü ?#%41/interpreter-bot.db")


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg"])
def test_postgresql_is_known_by_all_its_names(scheme):
    url = engines.parse(f"{scheme}://u:p@h/d?sslmode=require")
    assert url.drivername == "postgresql+asyncpg"
    assert dict(url.query) == {"ssl": "require"}


@pytest.mark.parametrize(
    "url",
    ["", "bot.db", "mysql://u:hunter2@h/d", "postgresql://u:hunter2@h:port/d", "sqlite://",
     "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true", "sqlite:///", "postgresql://u:hunter2@h/d?foo=1"],
)  # fmt: skip
def test_other_urls_are_refused_without_repeating_a_password(url):
    with pytest.raises(errors.SettingsError) as caught:
        engines.parse(url)
    assert "hunter2" not in str(caught.value)
