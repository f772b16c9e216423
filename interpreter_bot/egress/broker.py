"""The broker: it serves the doors of all kernels according to their conversations' policies."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import hmac
import itertools
import logging
import secrets
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

import cachetools

from interpreter_bot import code_activity, kernel_calls, logs, settings, values
from interpreter_bot.egress import (
    approvals,
    certificates,
    echoed_secrets,
    outbound_connections,
    policies,
    proxies,
    services_door,
    traffic_limits,
)
from interpreter_bot.hosts import kernel_doors

_log = logging.getLogger(__name__)

_MAX_ENTRIES: Final = 10_000
_SEED_BYTES: Final = 32


class Broker:
    """Opens the doors of kernels; implements `kernel_doors.Doorkeeper`. Use `open_broker`."""

    def __init__(
        self,
        config: settings.Settings,
        environment: Mapping[str, str],
        *,
        services: Sequence[services_door.DoorService] = (),
        seed: bytes = b"",
        resolve: outbound_connections.Resolve | None = None,
    ) -> None:
        """Compile the rules; no door is opened yet.

        Args:
            config: the settings in effect.
            environment: has the secrets that the settings name.
            services: offered to code besides outside hosts.
            seed: from which the keys of kernels' authorities are derived, so that the next process
                derives the same ones; random by default.
            resolve: looks up hosts; by default the system does.

        Raises:
            SettingsError: a rule cannot be used.
        """
        self._rules = policies.compile_rules(config.egress, environment)
        for rule in self._rules:
            logs.add_secrets(echoed_secrets.find_secrets(rule.headers))
        self._limits = config.egress_limits
        self.services = services
        """Services offered to code besides outside hosts."""
        self._seed = seed or secrets.token_bytes(_SEED_BYTES)
        self.on_contact: Callable[[code_activity.Contact], None] | None = None
        """Called with each finished attempt of code to reach a host."""
        self.find_grants: approvals.FindGrants | None = None
        """Finds approvals that people gave before this process began."""
        self._lookups = outbound_connections.NameLookups()
        self._resolve = resolve
        self._outside_tls = ssl.create_default_context()
        self._outside_tls.set_alpn_protocols(["http/1.1"])
        self._refusal = ""
        self._informed_kernels = cachetools.LRUCache[str, bool](_MAX_ENTRIES)
        """Kernels in which the setup that explains the refusal has run."""
        self._opening_kernels: set[str] = set()
        self.door_tasks: dict[str, asyncio.Task[None]] = {}
        """Tasks that serve the open doors, by kernel."""
        # Kept until they ran in their kernels, because a caller may be cancelled.
        self._pending_setups: dict[str, kernel_doors.DoorSetup] = {}
        self._open_approvals: dict[str, tuple[str, approvals.Approvals]] = {}
        self._approvals_by_kernel = cachetools.LRUCache[tuple[str, str], approvals.Approvals](
            _MAX_ENTRIES
        )
        self._traffic = cachetools.LRUCache[str, traffic_limits.Traffic](_MAX_ENTRIES)

    def refuse(self, reason: str) -> None:
        """Refuse all connections; see `kernel_doors.Doorkeeper.refuse`."""
        _log.warning("%s", reason)
        self._refusal = reason

    def policy(self, key: str) -> policies.Policy:
        """Return the rules that apply to a session."""
        return policies.choose_policy(self._rules, values.parse_key(key))

    def reach(self, key: str) -> code_activity.Reach:
        """Return the hosts and services that a session may reach, and its traffic today."""
        if self._refusal:
            return code_activity.Reach(refusal=self._refusal)
        hosts = tuple(
            code_activity.ReachableHost(
                rule.pattern,
                tuple(sorted(rule.ports)),
                tuple(sorted(rule.methods)),
                rule.paths,
                has_secret=bool(rule.headers),
                needs_approval=rule.needs_approval,
            )
            for rule in self.policy(key).rules
        )
        session_traffic = self._traffic.get(key)
        used_bytes = 0 if session_traffic is None else session_traffic.today_bytes
        grants = (
            kernel_approvals.list_grants()
            for session, kernel_approvals in self._open_approvals.values()
            if session == key
        )
        return code_activity.Reach(
            hosts,
            used_bytes,
            self._limits.daily_bytes,
            tuple(self._offers(key)),
            tuple(itertools.chain.from_iterable(grants)),
        )

    def _offers(self, key: str) -> list[code_activity.Offer]:
        return [offer for service in self.services for offer in service.offers(key)]

    async def open(
        self,
        key: str,
        kernel_id: str,
        obtain_doors: Callable[[], Awaitable[kernel_doors.Doors | None]],
    ) -> kernel_doors.DoorSetup | None:
        """Open the doors of a kernel unless they are open; see `kernel_doors.Doorkeeper.open`."""
        if kernel_id in self.door_tasks:
            return self._pending_setups.get(kernel_id)
        if kernel_id in self._opening_kernels:
            return None
        if not (self.policy(key) or self._offers(key)):
            return None
        if self._refusal:
            if kernel_id in self._informed_kernels:
                return None
            code = kernel_calls.refuse_doors(self._refusal)
            return kernel_doors.DoorSetup(code, self._refusal)
        self._opening_kernels.add(kernel_id)
        try:
            if (doors := await obtain_doors()) is not None:
                self._pending_setups[kernel_id] = self._open_doors(key, kernel_id, doors)
        finally:
            self._opening_kernels.discard(kernel_id)
        return self._pending_setups.get(kernel_id)

    def note_setup_done(self, kernel_id: str) -> None:
        """Record that the setup ran in a kernel."""
        self._pending_setups.pop(kernel_id, None)
        if self._refusal:
            self._informed_kernels[kernel_id] = True

    def _open_doors(
        self, key: str, kernel_id: str, doors: kernel_doors.Doors
    ) -> kernel_doors.DoorSetup:
        for service in self.services:
            service.note_opened(key)
        authority = certificates.Authority(hmac.digest(self._seed, kernel_id.encode(), "sha256"))
        # Approvals outlive doors, which are opened again if the kernel's host reconnects.
        session_approvals = self._approvals_by_kernel.setdefault(
            (key, kernel_id), approvals.Approvals(find_grants=self._find_grants)
        )
        session_approvals.ask = doors.ask
        context = proxies.ProxyContext(
            key=key,
            kernel_id=kernel_id,
            find_policy=functools.partial(self.policy, key),
            traffic=self._traffic.setdefault(key, traffic_limits.Traffic(self._limits)),
            dialler=outbound_connections.Dialler(
                self._resolve or self._lookups.make_session_resolver()
            ),
            authority=authority,
            approvals=session_approvals,
            outside_tls=self._outside_tls,
            record_contact=self._report_contact,
        )
        self._open_approvals[kernel_id] = key, session_approvals
        task = asyncio.create_task(self._serve(doors, context), name=f"doors of {kernel_id}")
        self.door_tasks[kernel_id] = task
        task.add_done_callback(functools.partial(self._close_doors, kernel_id, doors))
        proxy_port, services_port = doors.ports
        if not self.policy(key):
            # If there is no proxy, programs fail sooner.
            proxy_port = 0
        service_names = sorted({offer.service for offer in self._offers(key)})
        # From the key, because the certificate itself differs each time.
        version = hashlib.sha256(
            repr((authority.key_identifier, service_names, proxy_port, services_port)).encode()
        ).hexdigest()
        code = kernel_calls.open_doors(
            proxy_port=proxy_port,
            services_port=services_port,
            authority=authority.certificate,
            service_kinds=service_names,
        )
        return kernel_doors.DoorSetup(code, version)

    async def _find_grants(self, key: str, kernel_id: str) -> Collection[str]:
        # Doors open before the database, so there may be no function yet.
        return await self.find_grants(key, kernel_id) if self.find_grants is not None else ()

    async def close(self) -> None:
        """Shut all doors."""
        tasks = list(self.door_tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._lookups.close()

    async def _serve(self, doors: kernel_doors.Doors, context: proxies.ProxyContext) -> None:
        """Serve the doors of a kernel until it ends or its host disconnects."""
        servers = {
            kernel_doors.PROXY: proxies.Proxy(context),
            kernel_doors.SERVICES: services_door.ServicesDoor(context, self.services),
        }
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    server.serve(functools.partial(doors.accept, door)), name="door of a kernel"
                )
                for door, server in servers.items()
            ]
            await doors.wait_closed()
            for task in tasks:
                task.cancel()

    def _close_doors(
        self, kernel_id: str, doors: kernel_doors.Doors, task: asyncio.Task[None]
    ) -> None:
        """Close doors and forget their state, even if their task never ran."""
        doors.close()
        del self.door_tasks[kernel_id], self._open_approvals[kernel_id]
        self._pending_setups.pop(kernel_id, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("serving the doors of %s failed", kernel_id, exc_info=error)

    def _report_contact(self, contact: code_activity.Contact) -> None:
        """Log and report an attempt of code to reach a host."""
        if self.on_contact is not None:
            self.on_contact(contact)
        _log.info(
            "%s %s:%d%s: %d %s(%d bytes sent, %d received, %.1f s, kernel %s)",
            *(contact.method, contact.host, contact.port, contact.path, contact.status),
            f"{contact.reason} " if contact.reason else "",
            *(contact.sent_bytes, contact.received_bytes, contact.seconds, contact.kernel_id),
        )


@contextlib.asynccontextmanager
async def open_broker(
    config: settings.Settings,
    environment: Mapping[str, str],
    *,
    services: Sequence[services_door.DoorService] = (),
    seed: bytes = b"",
    resolve: outbound_connections.Resolve | None = None,
) -> AsyncIterator[Broker]:
    """Open a broker, see `Broker.__init__`; at the end all doors are closed.

    Raises:
        SettingsError: a rule cannot be used.
    """
    broker = Broker(config, environment, services=services, seed=seed, resolve=resolve)
    try:
        yield broker
    finally:
        await broker.close()
