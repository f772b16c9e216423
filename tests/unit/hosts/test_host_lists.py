"""Lists of hosts: addresses, directories of sockets, and names that are looked up."""

import pathlib

import pytest

from interpreter_bot import errors
from interpreter_bot.hosts import certificate_authorities, host_lists


@pytest.fixture
def tls(tmp_path):
    authority = certificate_authorities.CertificateAuthority(tmp_path)
    return authority.issue(["bot"], is_bot=True, days=1)


async def test_a_list_may_hold_addresses_and_directories(tls):
    fleet = host_lists.Fleet(["host-1.test:7443", "/run/hosts", "[::1]:7443"], tls)
    found = await fleet.addresses()
    assert pathlib.Path("/run/hosts/host.sock") in found
    assert sorted(map(str, found)) == ["/run/hosts/host.sock", "[::1]:7443", "host-1.test:7443"]


async def test_a_name_leads_to_a_host_for_each_of_its_addresses(tls):
    found = await host_lists.Fleet(["dns:localhost:7443"], tls).addresses()
    assert {(one.name, one.port) for one in found} == {("localhost", 7443)}
    assert {one.ip for one in found} <= {"127.0.0.1", "::1"}


async def test_a_name_without_addresses_does_not_affect_other_entries(tls):
    names = ["dns:nowhere.invalid:1", "dns:a..b:1", "dns:localhost:2"]
    found = await host_lists.Fleet(names, tls).addresses()
    assert {one.name for one in found} == {"localhost"}


def test_addresses_need_certificates():
    host_lists.Fleet(["/run/hosts"], None)
    with pytest.raises(errors.SettingsError, match=r"host\.fleet needs host\.tls"):
        host_lists.Fleet(["host-1.test:7443"], None)


def test_an_invalid_entry_is_refused(tls):
    with pytest.raises(errors.SettingsError, match="is not an address"):
        host_lists.Fleet(["host-1.test"], tls)


class Listed:
    def __init__(self, *answers):
        self.answers = list(answers)

    async def list_addresses(self):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_hosts_of_ray_come_from_the_list_and_stay_while_it_is_unreadable(tls):
    listed = Listed(["10.0.0.5:7443"], errors.StoreError("away"), [])
    fleet = host_lists.Fleet(["ray", "host-1.test:7443"], tls, listed)
    both = {"10.0.0.5:7443", "host-1.test:7443"}
    assert set(map(str, await fleet.addresses())) == both
    assert set(map(str, await fleet.addresses())) == both
    assert set(map(str, await fleet.addresses())) == {"host-1.test:7443"}
    with pytest.raises(errors.SettingsError, match=r"host\.fleet needs host\.tls"):
        host_lists.Fleet(["ray"], None, listed)
