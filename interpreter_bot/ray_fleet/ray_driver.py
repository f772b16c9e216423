"""The driver of a Ray cluster: one actor for each node, what they tell, and more nodes.

Ray ends the process of a driver whose cluster is gone for a minute; what started it starts it
again, and it finds its node actors as they were.
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
# Where some nodes offer one of these, only they have a host; where Ray makes nodes, it makes such.
RESOURCE: Final = "interpreter_bot_host"
_AUTO: Final = "auto"
_CONNECT_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 5.0
_LEAST_ROOM: Final = 0.2


class RayDriver:
    """What this process knows of the cluster. Use `drive`; there is one in a process."""

    def __init__(self, address: str) -> None:
        """Connect; blocks for some seconds.

        Args:
            address: of the cluster's head, as `ray start` prints it, or `auto`.

        Raises:
            SettingsError: there is no cluster, or the address is none.
        """
        try:
            if address != _AUTO:
                # Ray itself would try for minutes, and say nothing that a person could use.
                host_and_port = host_addresses.parse(address)
                socket.create_connection(host_and_port, timeout=_CONNECT_SECONDS).close()
            ray.init(address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
        except (OSError, ValueError, RuntimeError) as error:
            sentence = host_words.no_ray_cluster(address, str(error).splitlines()[0])
            raise errors.SettingsError(sentence) from error
        # What each actor was asked, and has not answered: one that starts a host takes longer.
        self._asked: dict[str, Any] = {}
        self._known: dict[str, host_reports.HostReport] = {}

    async def drive(self, listed: host_reports.HostTable) -> None:
        """List the hosts of all nodes, and ask for more where they are full, for ever.

        Args:
            listed: what bots read.
        """
        max_asked = 0
        while True:
            reports = await asyncio.to_thread(self._reports)
            try:
                await listed.put(reports)
            except errors.StoreError:
                _log.warning("the list of hosts cannot be written now", exc_info=True)
            wanted_hosts = host_reports.wanted_hosts(reports, least_room=_LEAST_ROOM)
            if wanted_hosts > max(max_asked, len(reports)):
                _log.warning("%d hosts are full; Ray is asked for %d", len(reports), wanted_hosts)
                await asyncio.to_thread(
                    ray.autoscaler.sdk.request_resources, bundles=[{RESOURCE: 1}] * wanted_hosts
                )
            max_asked = max(max_asked, wanted_hosts)
            await asyncio.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        """Leave the cluster; node actors and hosts stay."""
        ray.shutdown()

    def _reports(self) -> list[host_reports.HostReport]:
        """Ask the node actors of all nodes, and return what those say that answered."""
        alive = [node for node in ray.nodes() if node["Alive"]]
        nodes = {
            node["NodeID"]: node["NodeManagerAddress"]
            for node in [node for node in alive if RESOURCE in node["Resources"]] or alive
        }
        for node in (self._asked.keys() | self._known.keys()) - nodes.keys():
            self._asked.pop(node, None)
            self._known.pop(node, None)
        self._dismiss_others({_name(node) for node in nodes})
        for node, address in nodes.items():
            if node not in self._asked:
                self._asked[node] = self._node_actor(node, address).report.remote()
        ready, _ = ray.wait(
            list(self._asked.values()), num_returns=len(self._asked), timeout=_LOOK_SECONDS
        )
        for node in [node for node, reference in self._asked.items() if reference in ready]:
            try:
                self._known[node] = ray.get(self._asked.pop(node))
            except ray.exceptions.RayError as error:
                self._known.pop(node, None)
                _log.warning("no host on the node %s: %s", nodes[node], _reason(error))
        return list(self._known.values())

    def _node_actor(self, node: str, address: str) -> ray.actor.ActorHandle:
        """Return a node's actor, made where there is none."""
        strategy = scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        actor_class = ray.remote(node_actors.NodeActor).options(
            name=_name(node),
            get_if_exists=True,
            lifetime="detached",
            num_cpus=0,
            max_restarts=-1,
            scheduling_strategy=strategy,
        )
        return actor_class.remote(address)

    def _dismiss_others(self, names: Set[str]) -> None:
        """Let Ray forget the actors of nodes that are gone, for which it would wait, or are to have
        none, and those of other releases."""
        for name in set(ray.util.list_named_actors()) - names:
            try:
                ray.kill(ray.get_actor(name))
            except ValueError:
                _log.info("%s is gone already", name)


def _name(node: str) -> str:
    return f"node-actor-{metadata.version('interpreter-bot')}-{node}"


def _reason(error: Exception) -> str:
    """Return one line of an error that came from another node."""
    return str(getattr(error, "cause", None) or error).strip().splitlines()[-1]
