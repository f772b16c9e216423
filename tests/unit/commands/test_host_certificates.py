"""`interpreter-bot host certificate`: files for both ends of TLS."""

import pytest

from interpreter_bot import cli
from interpreter_bot.hosts import certificate_authorities, host_addresses


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "certificates"


def test_it_makes_those_of_a_host_and_of_a_bot(directory, capsys):
    options = ["--days", "90"]
    assert cli.main(["host", "certificate", *options, "127.0.0.1", "host-1.example"]) == 0
    assert cli.main(["host", "certificate", "--bot", "bot-1"]) == 0
    assert capsys.readouterr().out.split() == ["certificates/127.0.0.1", "certificates/bot-1"]
    host_addresses.Credentials(directory / "127.0.0.1", is_host=True)
    assert certificate_authorities.check_certificate(directory / "bot-1") == ""
    assert "not one for a bot" in certificate_authorities.check_certificate(directory / "127.0.0.1")


@pytest.mark.parametrize("names", [[], ["host-1", "--bot", "bot-1"]])
def test_it_makes_one_thing_at_a_time(names, directory, capsys):
    assert cli.main(["host", "certificate", *names]) != 0
    assert "Name the host as bots address it" in capsys.readouterr().err
    assert not directory.exists()


@pytest.mark.parametrize("days", ["-1", "0", "1000000000"])
def test_a_number_of_days_that_is_none_is_refused(days, directory, capsys):
    assert cli.main(["host", "certificate", "host-1", "--days", days]) != 0
    assert "is valid for 1 to 36500 days" in capsys.readouterr().err
    assert not directory.exists()
