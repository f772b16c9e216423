"""Certificates of both ends: what a bot is told of each way in which they can be wrong."""

import asyncio
import contextlib
import os
import shutil
import socket
import ssl

import pytest
from aiohttp import web

from interpreter_bot import errors
from interpreter_bot.hosts import (
    certificate_authorities,
    host_addresses,
    http_sessions,
    messages,
)
from interpreter_bot.wording import host_words
from tests.fakes import host_statuses


@pytest.fixture
def authority(tmp_path):
    return certificate_authorities.CertificateAuthority(tmp_path / "ours")


@pytest.fixture
def stranger(tmp_path):
    return certificate_authorities.CertificateAuthority(tmp_path / "theirs")


@pytest.fixture
def host_files(authority):
    return authority.issue(["127.0.0.1", "hosts.test"], is_bot=False, days=1)


@pytest.fixture
def bot_files(authority):
    return authority.issue(["bot"], is_bot=True, days=1)


@contextlib.asynccontextmanager
async def listening(directory):
    """A host that says no more than what it is; without a directory it speaks no TLS."""

    async def status(_):
        return web.Response(
            content_type="application/json", body=messages.encode_json(host_statuses.STATUS)
        )

    application = web.Application()
    application.router.add_get("/v1/host", status)
    runner = web.AppRunner(application, shutdown_timeout=0)
    await runner.setup()
    try:
        credentials = directory and host_addresses.Credentials(directory, is_host=True)
        context = credentials.context() if credentials else None
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def answer(port, directory, *, name="127.0.0.1", ip=""):
    """What a bot hears there: nothing, where all is well, or a sentence."""
    credentials = host_addresses.Credentials(directory, is_host=False)
    return await heard(host_addresses.TlsAddress(name, port, ip, credentials))


async def heard(address):
    async with http_sessions.HostSession(address) as session:
        try:
            status = await http_sessions.read_status(session, address)
        except errors.KernelError as error:
            return str(error)
    assert status.id == "1"
    return ""


async def test_bot_and_host_accept_each_others_certificates(host_files, bot_files):
    async with listening(host_files) as port:
        assert await answer(port, bot_files) == ""
        # As one of several hosts of one name, which may have any address.
        assert await answer(port, bot_files, name="hosts.test", ip="127.0.0.1") == ""


async def test_a_host_of_another_name_is_refused(host_files, bot_files):
    async with listening(host_files) as port:
        said = await answer(port, bot_files, name="other.test", ip="127.0.0.1")
        assert said.endswith("is for another name.")


async def test_a_host_of_another_address_is_refused(authority, bot_files):
    async with listening(authority.issue(["127.0.0.2"], is_bot=False, days=1)) as port:
        assert (await answer(port, bot_files)).endswith("is for another address.")


async def test_a_host_with_an_expired_certificate_is_refused(authority, bot_files):
    async with listening(authority.issue(["127.0.0.1"], is_bot=False, days=0)) as port:
        assert (await answer(port, bot_files)).endswith("has expired.")


async def test_a_host_of_another_authority_is_refused(stranger, bot_files):
    async with listening(stranger.issue(["127.0.0.1"], is_bot=False, days=1)) as port:
        said = await answer(port, bot_files)
        assert said.endswith("was not issued by the authority that this bot trusts.")


async def test_a_bot_cannot_pass_for_a_host(authority, bot_files):
    async with listening(authority.issue(["127.0.0.1"], is_bot=True, days=1)) as port:
        assert (await answer(port, bot_files)).endswith("is not one for a host.")


async def test_a_host_cannot_pass_for_a_bot(host_files):
    async with listening(host_files) as port:
        assert (await answer(port, host_files)).endswith("is not one for a bot.")


async def test_a_bot_with_an_expired_certificate_learns_the_reason(host_files, authority):
    async with listening(host_files) as port:
        said = await answer(port, authority.issue(["bot"], is_bot=True, days=0))
        assert said.endswith("this bot's certificate has expired.")


async def test_a_bot_of_another_authority_learns_the_reason(host_files, stranger):
    files = stranger.issue(["bot"], is_bot=True, days=1)
    shutil.copy(host_files / "ca.crt", files / "ca.crt")
    async with listening(host_files) as port:
        assert (await answer(port, files)).endswith("was not issued by the authority beside it.")


async def test_a_bot_that_only_the_host_refuses_learns_the_possible_reasons(host_files, stranger):
    files = stranger.issue(["bot"], is_bot=True, days=1)
    async with listening(host_files) as port:
        trusting = host_addresses.Credentials(files, is_host=False)
        trusting.context().load_verify_locations(host_files / "ca.crt")
        said = await heard(host_addresses.TlsAddress("127.0.0.1", port, "", trusting))
        assert said.endswith("it does not trust this bot's certificate, or it is ending.")


async def test_a_server_without_tls_is_refused(bot_files):
    async with listening(None) as port:
        assert (await answer(port, bot_files)).endswith("does not speak TLS as a host does.")


async def test_a_client_without_tls_gets_no_answer(host_files):
    async with listening(host_files) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /v1/host HTTP/1.1\r\nHost: host\r\n\r\n")
        said = b""
        with contextlib.suppress(ConnectionResetError):
            said = await reader.read()
        assert b"HTTP" not in said
        writer.close()


async def test_a_missing_host_is_not_reported_as_an_error_of_tls(bot_files):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        said = await answer(unused.getsockname()[1], bot_files)
    assert said == host_words.UNREACHABLE


async def test_the_next_connection_uses_new_certificate_files(host_files, bot_files, stranger):
    async with listening(host_files) as port:
        credentials = host_addresses.Credentials(bot_files, is_host=False)
        address = host_addresses.TlsAddress("127.0.0.1", port, "", credentials)
        assert await heard(address) == ""
        for place, names, is_bot in ((host_files, ["127.0.0.1"], False), (bot_files, ["b"], True)):
            made = stranger.issue(names, is_bot=is_bot, days=1)
            for file in made.iterdir():
                file.replace(place / file.name)
            # Only when both ends have theirs they know each other again.
            assert (await heard(address) == "") is is_bot


async def test_a_session_of_a_former_authority_cannot_be_resumed(host_files, bot_files, stranger):
    context = host_addresses.Credentials(bot_files, is_host=False).context()
    context.check_hostname = False

    def said(port, session):
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            context.wrap_socket(plain, session=session) as connection,
        ):
            connection.sendall(b"GET /v1/host HTTP/1.0\r\n\r\n")
            return connection.recv(100), connection.session

    async with listening(host_files) as port:
        first, session = await asyncio.to_thread(said, port, None)
        assert b" 200 OK" in first
        for file in stranger.issue(["127.0.0.1"], is_bot=False, days=1).iterdir():
            file.replace(host_files / file.name)
        # It is refused by whom it does not even look at.
        context.verify_mode = ssl.CERT_NONE
        try:
            again, _ = await asyncio.to_thread(said, port, session)
        except OSError:
            again = b""
        assert again == b""


async def test_the_loss_of_a_machine_is_noticed_by_keepalive(host_files, bot_files):
    async with listening(host_files) as port:
        credentials = host_addresses.Credentials(bot_files, is_host=False)
        address = host_addresses.TlsAddress("127.0.0.1", port, "", credentials)
        async with http_sessions.HostSession(address) as session:
            await http_sessions.read_status(session, address)
            # The one that is kept for the next request.
            (((protocol, _),),) = session._session.connector._conns.values()
            link = protocol.transport.get_extra_info("socket")
            assert link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            idle, interval, count = (
                link.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
            assert idle + interval * count <= 30


async def test_certificate_files_that_do_not_match_are_not_used(host_files, bot_files, stranger):
    async with listening(host_files) as port:
        made = stranger.issue(["127.0.0.1"], is_bot=False, days=1)
        shutil.copy(made / "tls.key", host_files / "tls.key")
        assert await answer(port, bot_files) == ""


def test_a_missing_file_is_named(bot_files):
    (bot_files / "tls.key").unlink()
    with pytest.raises(errors.SettingsError, match=r"tls\.key cannot be read: No such file"):
        host_addresses.Credentials(bot_files, is_host=False)


def test_a_key_of_another_certificate_is_refused(bot_files, host_files):
    shutil.copy(host_files / "tls.key", bot_files / "tls.key")
    with pytest.raises(
        errors.SettingsError, match=r"does not belong to the certificate in tls\.crt"
    ):
        host_addresses.Credentials(bot_files, is_host=False)


@pytest.mark.parametrize("name", ["tls.crt", "ca.crt"])
def test_an_invalid_certificate_file_is_refused(bot_files, name):
    (bot_files / name).write_text("nothing of that kind")
    with pytest.raises(errors.SettingsError, match="other files than a certificate"):
        host_addresses.Credentials(bot_files, is_host=False)


def test_key_files_are_readable_by_their_owner_only(host_files, tmp_path):
    for key in (tmp_path / "ours" / "ca.key", host_files / "tls.key"):
        assert os.stat(key).st_mode & 0o077 == 0


@pytest.mark.parametrize("text", ["host", "host:", ":1", "host:70000", "host:0", "a b:1", "::1:2"])
def test_an_invalid_address_is_refused(text):
    with pytest.raises(errors.SettingsError, match="is not an address"):
        host_addresses.parse(text)


def test_addresses_have_a_name_and_a_port():
    assert host_addresses.parse("host-1.example:7443") == ("host-1.example", 7443)
    assert host_addresses.parse("[::1]:7443") == ("::1", 7443)
