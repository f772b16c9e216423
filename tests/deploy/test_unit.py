"""The systemd unit: read by systemd everywhere, and booted where Debian's packages are there."""

import pathlib
import subprocess

import pytest

from tests.deploy import conftest as systems

UNIT = systems.REPOSITORY / "deploy/interpreter-bot.service"
IDS = systems.REPOSITORY / "deploy/subordinate-ids.conf"
HOST_UNIT = systems.REPOSITORY / "deploy/interpreter-bot-host.service"
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
mkdir -p /etc/systemd/system/interpreter-bot.service.d
cp /ids.conf /etc/systemd/system/interpreter-bot.service.d/
extra=/etc/systemd/system/interpreter-bot.service.d/z.conf
for more in '' 'LockPersonality=yes'; do
    cat >$extra <<END
[Service]
ExecStartPre=
ExecStart=
ExecStart=/bin/sh -c "cat /proc/self/status"
StandardOutput=truncate:/ids-told
$more
END
    systemctl daemon-reload; systemctl start interpreter-bot; sleep 1
    echo "${more:-as it is}: $(grep -E 'NoNewPrivs|CapBnd' /ids-told | tr -s '\t\n' '  ')"
done
"""
ONCE = """
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c '/probe > /told 2>&1'
ExecStopPost=systemctl poweroff --no-block
"""


@pytest.mark.parametrize("given", [UNIT, HOST_UNIT], ids=["bot", "host"])
def test_systemd_can_read_the_unit_and_calls_it_well_confined(given, tmp_path):
    systems.require_programs("systemd-analyze")
    unit = tmp_path / given.name
    # Programs that are there: others would be complained about.
    text = given.read_text().replace("/opt/interpreter-bot/.venv/bin/interpreter-bot", "/bin/true")
    unit.write_text(text)
    for arguments in (("verify",), ("security", "--offline=yes", "--threshold=60")):
        command = ["systemd-analyze", *arguments, str(unit)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
        assert given.name not in result.stderr


@pytest.mark.deploy
@pytest.mark.timeout(900)
def test_the_unit_starts_logs_and_stops_under_systemd(system):
    systems.require_programs("systemd-nspawn")
    report = _boot(system)
    lines = report.splitlines()
    facts = dict(line.split(": ", 1) for line in lines if ": " in line)
    assert (facts["state"], facts["result"]) == ("running", "success"), report
    assert facts["words"] == "/dev/null"
    assert facts["log"].startswith("socket:"), "the journal's"
    assert "level: standard" in lines, report
    # The page's address, with its token, is nothing for a journal.
    assert report.count(facts["token"]) == 1
    # CAP_DAC_OVERRIDE, CAP_SETGID, CAP_SETUID and CAP_SYS_ADMIN.
    assert facts["as it is"].split() == ["CapBnd:", "00000000002000c2", "NoNewPrivs:", "0"], report
    assert facts["LockPersonality=yes"].endswith("NoNewPrivs: 1 "), "what makes it be left out"


def _boot(system: pathlib.Path) -> str:
    units = system / "etc/systemd/system"
    (units / UNIT.name).write_text(UNIT.read_text())
    (units / "probe.service").write_text(ONCE)
    (system / "ids.conf").write_text(IDS.read_text())
    wants = units / "multi-user.target.wants"
    wants.mkdir(exist_ok=True)
    (wants / "probe.service").symlink_to("../probe.service")
    (system / "probe").write_text(PROBE)
    (system / "probe").chmod(0o755)
    home = ["--system", "--home-dir", "/var/lib/interpreter-bot", "--shell", "/usr/sbin/nologin"]
    subprocess.run(["chroot", system, "useradd", *home, systems.USER], check=True)
    settings = system / "etc/interpreter-bot/environment"
    settings.parent.mkdir()
    # No model: what is not there would be downloaded.
    settings.write_text("INTERPRETER_BOT_LOCAL__ENABLED=false\n")
    options = "--register=no --keep-unit --private-network --resolv-conf=off --console=pipe --boot"
    result = systems.run_in_namespaces(
        *("systemd-nspawn", "-D", str(system), *options.split()),
        SYSTEMD_NSPAWN_UNIFIED_HIERARCHY="1",
    )
    assert (system / "told").exists(), result.stdout
    return (system / "told").read_text()
