"""The systemd unit: read by systemd everywhere, and booted where Debian's packages are there."""

import pathlib
import subprocess

import pytest

from tests.deploy import conftest as systems

UNIT = systems.REPOSITORY / "deploy/interpreter-bot.service"
PROBE = """#!/bin/sh
systemctl start interpreter-bot
pid=$(systemctl show -P MainPID interpreter-bot)
for n in $(seq 900); do [ -e /var/lib/interpreter-bot/web-token ] && break; sleep 0.1; done
echo "state: $(systemctl show -P SubState interpreter-bot)"
echo "words: $(readlink /proc/$pid/fd/1)"
echo "log: $(readlink /proc/$pid/fd/2)"
systemctl stop interpreter-bot
echo "result: $(systemctl show -P Result interpreter-bot)"
echo "token: $(cat /var/lib/interpreter-bot/web-token)"
journalctl --unit interpreter-bot --output cat --no-pager
"""
ONCE = """
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c '/probe > /told 2>&1'
ExecStopPost=systemctl poweroff --no-block
"""


def test_systemd_can_read_the_unit_and_calls_it_well_confined(tmp_path):
    systems.need("systemd-analyze")
    unit = tmp_path / UNIT.name
    # Programs that are there: others would be complained about.
    text = UNIT.read_text().replace("/opt/interpreter-bot/.venv/bin/interpreter-bot", "/bin/true")
    unit.write_text(text)
    for words in (("verify",), ("security", "--offline=yes", "--threshold=60")):
        command = ["systemd-analyze", *words, str(unit)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert UNIT.name not in done.stderr


@pytest.mark.deploy
@pytest.mark.timeout(900)
def test_the_unit_starts_logs_and_stops_under_systemd(system):
    systems.need("systemd-nspawn")
    told = _booted(system)
    lines = told.splitlines()
    facts = dict(line.split(": ", 1) for line in lines if ": " in line)
    assert (facts["state"], facts["result"]) == ("running", "success"), told
    assert facts["words"] == "/dev/null"
    assert facts["log"].startswith("socket:"), "the journal's"
    assert "level: standard" in lines, told
    # The page's address, with its token, is nothing for a journal.
    assert told.count(facts["token"]) == 1


def _booted(system: pathlib.Path) -> str:
    units = system / "etc/systemd/system"
    (units / UNIT.name).write_text(UNIT.read_text())
    (units / "probe.service").write_text(ONCE)
    wanted = units / "multi-user.target.wants"
    wanted.mkdir(exist_ok=True)
    (wanted / "probe.service").symlink_to("../probe.service")
    (system / "probe").write_text(PROBE)
    (system / "probe").chmod(0o755)
    home = ["--system", "--home-dir", "/var/lib/interpreter-bot", "--shell", "/usr/sbin/nologin"]
    subprocess.run(["chroot", system, "useradd", *home, systems.USER], check=True)
    settings = system / "etc/interpreter-bot/environment"
    settings.parent.mkdir()
    # No model: what is not there would be downloaded.
    settings.write_text("INTERPRETER_BOT_LOCAL__ENABLED=false\n")
    options = "--register=no --keep-unit --private-network --resolv-conf=off --console=pipe --boot"
    done = systems.apart(
        *("systemd-nspawn", "-D", str(system), *options.split()),
        SYSTEMD_NSPAWN_UNIFIED_HIERARCHY="1",
    )
    assert (system / "told").exists(), done.stdout
    return (system / "told").read_text()
