"""The driver of a Ray cluster: it keeps an actor on each node, lists hosts, and requests nodes.

Ray ends the driver's process after a minute without the cluster. A supervisor, such as systemd,
then restarts the process, which finds its node actors by their names.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Set
from importlib import metadata
from typing import Any, Final

import ray
import ray.autoscaler.sdk
from ray.util import scheduling_strategies

from interpreter_bot import errors
from interpreter_bot.hosts import host_addresses
from interpreter_bot.ray_fleet import host_reports, node_actors
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)

NAMESPACE: Final = "interpreter-bot"
# If any node has this resource, only nodes with this resource get a host. Requested nodes have it.
RESOURCE: Final = "interpreter_bot_host"
_AUTO_ADDRESS: Final = "auto"
_MAX_CONNECTING_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 5.0
_MIN_FREE_RATIO: Final = 0.2


class RayDriver:
    """Connection to the cluster; a process has only one. Use `drive`."""

    def __init__(self, address: str) -> None:
        """Connect; blocks for some seconds.

        Args:
            address: of the cluster's head, as `ray start` prints it, or `auto`.

        Raises:
            SettingsError: there is no cluster, or the address is invalid.
        """
        try:
            if address != _AUTO_ADDRESS:
                # Ray itself would try for minutes, and its error would not help people.
                host_and_port = host_addresses.parse(address)
                socket.create_connection(host_and_port, timeout=_MAX_CONNECTING_SECONDS).close()
            ray.init(address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
        except (OSError, ValueError, RuntimeError) as error:
            sentence = host_words.no_ray_cluster(address, str(error).splitlines()[0])
            raise errors.SettingsError(sentence) from error
        # Unanswered calls by node: an actor that starts a host answers late.
        self._pending_reports: dict[str, Any] = {}
        self._latest_reports: dict[str, host_reports.HostReport] = {}

    async def drive(self, table: host_reports.HostTable) -> None:
        """Keep all nodes' hosts listed in `table`, and request nodes if they are full, for ever."""
        max_requested = 0
        while True:
            reports = await asyncio.to_thread(self._collect_reports)
            try:
                await table.put(reports)
            except errors.StoreError:
                _log.warning("the list of hosts cannot be written now", exc_info=True)
            target_count = host_reports.target_host_count(reports, min_free_ratio=_MIN_FREE_RATIO)
            if target_count > max(max_requested, len(reports)):
                _log.warning(
                    "%d hosts are full; %d are requested of Ray", len(reports), target_count
                )
                await asyncio.to_thread(
                    ray.autoscaler.sdk.request_resources, bundles=[{RESOURCE: 1}] * target_count
                )
            max_requested = max(max_requested, target_count)
            await asyncio.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Leave the cluster; node actors and hosts stay."""
        ray.shutdown()

    def _collect_reports(self) -> list[host_reports.HostReport]:
        """Ask the actors of all nodes for reports, and return the latest report of each."""
        live_nodes = [node for node in ray.nodes() if node["Alive"]]
        addresses = {
            node["NodeID"]: node["NodeManagerAddress"]
            for node in [node for node in live_nodes if RESOURCE in node["Resources"]] or live_nodes
        }
        known_ids = self._pending_reports.keys() | self._latest_reports.keys()
        for node_id in known_ids - addresses.keys():
            self._pending_reports.pop(node_id, None)
            self._latest_reports.pop(node_id, None)
        self._kill_other_actors({_actor_name(node_id) for node_id in addresses})
        for node_id, address in addresses.items():
            if node_id not in self._pending_reports:
                actor = self._ensure_node_actor(node_id, address)
                self._pending_reports[node_id] = actor.report.remote()
        ready_calls, _ = ray.wait(
            list(self._pending_reports.values()),
            num_returns=len(self._pending_reports),
            timeout=_POLL_SECONDS,
        )
        answered_node_ids = [
            node_id for node_id, call in self._pending_reports.items() if call in ready_calls
        ]
        for node_id in answered_node_ids:
            try:
                self._latest_reports[node_id] = ray.get(self._pending_reports.pop(node_id))
            except ray.exceptions.RayError as error:
                self._latest_reports.pop(node_id, None)
                _log.warning("no host on the node %s: %s", addresses[node_id], _last_line(error))
        return list(self._latest_reports.values())

    def _ensure_node_actor(self, node_id: str, address: str) -> ray.actor.ActorHandle:
        """Return a node's actor, created if missing."""
        strategy = scheduling_strategies.NodeAffinitySchedulingStrategy(node_id, soft=False)
        actor_class = ray.remote(node_actors.NodeActor).options(
            name=_actor_name(node_id),
            get_if_exists=True,
            lifetime="detached",
            num_cpus=0,
            max_restarts=-1,
            scheduling_strategy=strategy,
        )
        return actor_class.remote(address)

    def _kill_other_actors(self, names: Set[str]) -> None:
        """Kill all actors but those named: of lost nodes, which Ray would wait for, of nodes that
        get no host, and of other releases.
        """
        for name in set(ray.util.list_named_actors()) - names:
            try:
                ray.kill(ray.get_actor(name))
            except ValueError:
                _log.info("%s is gone already", name)


def _actor_name(node_id: str) -> str:
    return f"node-actor-{metadata.version('interpreter-bot')}-{node_id}"


def _last_line(error: Exception) -> str:
    """Return the last line of an error from another node, which names the cause."""
    return str(getattr(error, "cause", None) or error).strip().splitlines()[-1]
