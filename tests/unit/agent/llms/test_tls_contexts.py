"""What models' clients verify servers by."""

import ssl

import httpcore2

from interpreter_bot import settings
from interpreter_bot.agent.llms import anthropic_messages, openai_clients, retries, tls_contexts


async def test_authorities_are_read_once_for_all_clients_and_proxies(monkeypatch):
    read, reading = [], httpcore2.default_ssl_context

    def counted(**options):
        read.append(reading(**options))
        return read[-1]

    tls_contexts.shared_context.cache_clear()
    monkeypatch.setattr(httpcore2, "default_ssl_context", counted)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    url, patience = "https://models.invalid/v1", settings.Patience()
    async with (
        openai_clients.open_client(url, "key", patience),
        openai_clients.open_client(url, "key", patience),
        anthropic_messages.open_client(url, "key", 1.0),
    ):
        (shared,) = read
    assert (shared.verify_mode, shared.check_hostname) == (ssl.CERT_REQUIRED, True)


async def test_a_server_of_this_machine_needs_no_authorities(monkeypatch):
    tls_contexts.shared_context.cache_clear()
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent")
    local = retries.ServerAddress("http://127.0.0.1:9/v1", "key")
    async with openai_clients.open_local_client(local, settings.Patience()):
        pass
