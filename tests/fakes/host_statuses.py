"""The status of a host that does nothing."""

from interpreter_bot import values
from interpreter_bot.hosts import messages

STATUS = messages.HostStatus(
    id="1",
    data_id="1",
    data_copy_id="",
    protocol_version=messages.PROTOCOL_VERSION,
    release="1",
    pid=1,
    fingerprint="",
    private_paths=(),
    sandbox_level=values.SandboxLevel.STANDARD,
    has_doors=False,
    keeps_variables=True,
    packages={},
    is_draining=False,
    is_lingering=False,
    has_store=False,
    free_bytes=0,
    memory_bytes=0,
    bots=0,
    kernels=0,
    executions=0,
)
