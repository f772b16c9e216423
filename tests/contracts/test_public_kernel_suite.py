"""Jupyter's own suite for kernels, over its own client, against a kernel behind walls."""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import jupyter_kernel_test
import pytest
from anyio import from_thread
from jupyter_client import blocking

from interpreter_bot import settings
from interpreter_bot.kernels import pools
from interpreter_bot.kernels.provisioning import provisioners, start_parameters

pytestmark = pytest.mark.kernel


@contextlib.asynccontextmanager
async def _started_kernel() -> AsyncIterator[dict[str, object]]:
    """Start a kernel; yields what jupyter_client calls its connection information."""
    kernels = settings.Kernels(preload=(), spares=0)
    with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as name:
        os.chmod(name, 0o755)
        paths = settings.Paths(data=Path(name, "d"), runtime=Path(name, "r"))
        async with pools.Pool.open(settings.Settings(kernels=kernels, paths=paths)) as pool:
            context = (await pool.take("any")).provisioner.host_context
            provisioner = provisioners.ForkProvisioner(uuid.uuid4().hex, context)
            key = await provisioner.launch()
            workspace = await pool.workspace("suite")
            await provisioner.attach(workspace.directory, workspace.variables, workspace.temporary)
            numbers = {
                f"{channel}_port": number
                for number, channel in enumerate(start_parameters.CHANNELS, start=1)
            }
            prefix = context.runtime / provisioner.kernel_id[:8] / "k"
            # There is no heartbeat and no control channel; the client wants numbers for them.
            numbers |= {"control_port": 8, "hb_port": 9}
            yield {"transport": "ipc", "ip": str(prefix), "key": key.encode(), **numbers}
            await provisioner.kill()
            await provisioner.wait()
            await provisioner.cleanup()


class TestKernel(jupyter_kernel_test.KernelTests):
    """Everything that the suite tries but history, which the bot keeps, not the kernel."""

    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    code_generate_error = "raise ValueError('no')"
    code_page_something = "zip?"
    code_clear_output = "from IPython.display import clear_output; clear_output()"
    code_inspect_sample = "zip"
    completion_samples = ({"text": "zi", "matches": {"zip"}},)
    complete_code_samples = ("1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n")
    incomplete_code_samples = ("print('''hello", "def f(x):\n  x*2")
    invalid_code_samples = ("import = 7q",)
    code_execute_result = (
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
    )
    code_display_data = (
        {
            "code": "from IPython.display import HTML; display(HTML('<b>x</b>'))",
            "mime": "text/html",
        },
        {
            "code": "from IPython.display import Image; display(Image(b'\\x89PNG\\r\\n\\x1a\\n'))",
            "mime": "image/png",
        },
    )

    @classmethod
    def setUpClass(cls) -> None:
        with contextlib.ExitStack() as opened:
            portal = opened.enter_context(from_thread.start_blocking_portal())
            kernel = portal.wrap_async_context_manager(_started_kernel())
            connection = opened.enter_context(kernel)
            cls._opened = opened.pop_all()
        cls.kc = blocking.BlockingKernelClient()
        cls.kc.load_connection_info(connection)
        cls.kc.start_channels(hb=False, control=False)
        # Messages from here on are received.
        while cls.kc.get_iopub_msg(timeout=30)["msg_type"] != "iopub_welcome":
            pass

    @classmethod
    def tearDownClass(cls) -> None:
        cls.kc.stop_channels()
        cls._opened.close()
