"""What people's code does at the level `container`, where nothing is mounted and no network is."""

import asyncio

import pytest

from interpreter_bot import settings, values
from interpreter_bot.kernels import pools
from tests import machine

# Elsewhere, root's bot would make links in the machine's own root directory.
pytestmark = pytest.mark.skipif(
    machine.offers_namespaces(), reason="tried by `make test-in-container`"
)

USES = {
    "files by their name": "import os; open('/mnt/data/a', 'w').write('x')\n"
    "os.listdir('/mnt/data')",
    "the working directory": "import os; os.getcwd()",
    "temporary files": "import tempfile; tempfile.NamedTemporaryFile('w').write('four')",
    "a shell": "!cd / && cat /mnt/data/a",
    "a program": "import subprocess\n"
    "subprocess.run(['cat', '/mnt/data/a'], text=True, stdout=-1).stdout",
    "another Python": "import subprocess, sys\n"
    "subprocess.run([sys.executable, '-c', 'import numpy; print(1)'], text=True, stdout=-1).stdout",
    "asyncio's programs": "import asyncio\n"
    "p = await asyncio.create_subprocess_exec('echo', 'x', stdout=-1); (await p.communicate())[0]",
    "forked processes": "import multiprocessing\n"
    "with multiprocessing.get_context('fork').Pool(2) as pool: made = pool.map(abs, [-1])\nmade",
    "loky, which measures itself": "import joblib\n"
    "joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(-number) for number in range(3))",
    "shared memory": "from multiprocessing import shared_memory\n"
    "one = shared_memory.SharedMemory(create=True, size=9); one.close(); one.unlink(); 'shared'",
    "a database": "import sqlite3; database = sqlite3.connect('/mnt/data/x.db')\n"
    "database.execute('pragma journal_mode=wal').fetchall()",
    "its own figures": "import psutil; psutil.Process().memory_info().rss > 0",
}
SHOWN = {
    "files by their name": "['a']",
    "the working directory": "'/mnt/data'",
    "temporary files": "4",
    "a shell": "x",
    "a program": "'x'",
    "another Python": r"'1\n'",
    "asyncio's programs": r"b'x\n'",
    "forked processes": "[1]",
    "loky, which measures itself": "[0, 1, 2]",
    "shared memory": "'shared'",
    "a database": "[('wal',)]",
    "its own figures": "True",
}


@pytest.fixture
async def pool(short_path):
    # As a session of its own user id finds it.
    short_path.chmod(0o711)
    config = settings.Settings(
        sandbox=settings.Sandbox(level="container"),
        kernels=settings.Kernels(preload=("pandas",), spares=1),
        paths=settings.Paths(data=short_path / "data", runtime=short_path / "r"),
    )
    async with pools.Pool.open(config) as pool:
        yield pool


async def test_what_people_use_works(pool):
    kernel = await pool.take("a")
    seen = {}
    for what, code in USES.items():
        shown: list[values.Output] = []
        await kernel.execute(code, show=shown.append)
        seen[what] = "".join(output.plain for output in shown)
    assert seen == SHOWN


async def test_temporary_files_end_with_the_kernel(pool):
    kernel = await pool.take("a")
    await kernel.execute("import tempfile; tempfile.mkstemp()", show=lambda _: None)
    directory = pool.kernels["a"].workspace.temporary
    assert list(directory.iterdir())
    await pool.release("a")
    assert not directory.exists()


async def test_modules_are_preloaded_in_spares(pool):
    async with asyncio.timeout(60):
        while not pool.spare_count:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.05)
    shown: list[values.Output] = []
    kernel = await pool.take("a")
    await kernel.execute("import sys; 'pandas' in sys.modules", show=shown.append)
    assert "".join(output.plain for output in shown) == "True"
