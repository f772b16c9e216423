"""Package indexes as companies have them: own certificates, a proxy, and what goes wrong there."""

import socket

import pytest
from packaging import requirements

from interpreter_bot import errors, settings
from interpreter_bot.doctor import configured_services
from interpreter_bot.hosts import certificate_authorities, host_addresses
from interpreter_bot.kernels.libraries import kernel_environment
from interpreter_bot.kernels.packages import uv_commands
from interpreter_bot.kernels.provisioning import python_environments
from tests.fakes import package_indexes


@pytest.fixture(autouse=True)
def _plain_network(monkeypatch):
    for name in (*settings.CERTIFICATE_VARIABLES, *settings.PROXY_VARIABLES):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def resolved(tmp_path):
    """Ask an index for a package; gives the version."""

    async def resolve(url, name="greeter"):
        staging = tmp_path / "staging"
        staging.mkdir(exist_ok=True)
        environment = python_environments.inspect_environment(
            kernel_environment.python(settings.Settings())
        )
        uv = uv_commands.Uv(settings.PackageIndex(url=url), environment, tmp_path / "uv")
        (lock,) = await uv.resolve([requirements.Requirement(name)], {}, staging)
        return lock.version

    return resolve


@pytest.fixture
def company(tmp_path):
    """A certificate of a company's own authority for a server on loopback."""
    authority = certificate_authorities.CertificateAuthority(tmp_path / "authority")
    return authority.issue(["127.0.0.1"], is_bot=False, days=1)


def served_by(company):
    files = host_addresses.CERTIFICATE_FILE, host_addresses.KEY_FILE
    return package_indexes.serving([company / name for name in files])


async def test_certificates_of_a_company_are_those_of_ssl_cert_file(resolved, company, monkeypatch):
    with served_by(company) as index:
        index.add("greeter")
        with pytest.raises(errors.PackagesError, match="not trust the certificate"):
            await resolved(index.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(company / host_addresses.AUTHORITY_FILE))
        assert await resolved(index.url) == "1.0"


async def test_a_proxy_is_asked_but_for_what_needs_none(resolved, monkeypatch):
    with package_indexes.serving() as proxy:
        proxy.add("greeter")
        # Without a scheme, as many write it.
        monkeypatch.setenv("HTTP_PROXY", proxy.url.removeprefix("http://").removesuffix("/simple"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert await resolved("http://index.invalid/simple") == "1.0"
        assert proxy.proxy_requests[0].startswith("http://index.invalid/simple/greeter")
        proxy.proxy_requests.clear()
        assert await resolved(proxy.url) == "1.0"
        assert not proxy.proxy_requests


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (401, "refuses the bot"),
        (403, "refuses the bot"),
        (407, "proxy between the bot"),
        (503, "is not working right now"),
    ],
)
async def test_person_is_told_what_is_wrong_with_an_index(resolved, status, sentence):
    with package_indexes.serving() as index:
        index.status = status
        with pytest.raises(errors.PackagesError, match=sentence) as raised:
            await resolved(index.url)
    assert f"{status}" in str(raised.value.__cause__)


async def test_an_index_that_is_not_there_is_said_to_be_so(resolved):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/simple"
        with pytest.raises(errors.PackagesError, match="cannot connect"):
            await resolved(address)
    with pytest.raises(errors.PackagesError, match="name of the package index is unknown"):
        await resolved("http://no-such-host.invalid/simple")


async def test_an_index_leads_to_no_other_port_of_the_machine(resolved):
    with package_indexes.serving() as index, package_indexes.serving() as other:
        other.add("greeter")
        index.status, index.location = 302, f"{other.url}/greeter/"
        with pytest.raises(errors.PackagesError):
            await resolved(index.url)
        assert other.requests == []


def test_the_doctor_says_the_cause(company):
    with served_by(company) as index:
        config = settings.Settings(package_index=settings.PackageIndex(url=index.url))
        [finding, *_] = configured_services.check(config, {}, None)
    assert not finding.is_active
    assert "invalid peer certificate" in finding.detail
    assert "SSL_CERT_FILE" in finding.fix
