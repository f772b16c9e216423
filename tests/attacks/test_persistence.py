"""Things left in a workspace that wait for the next kernel to trip over them."""

import pathlib
import re

import pytest

import interpreter_bot
from tests.attacks import harness

pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="session")]
TRIGGER = "open('/mnt/data/triggered', 'a').write(__name__)\n"
STARTUP = ".ipython/profile_default/startup/00.py"
# Path in the workspace: what it holds.
PLANTED = {
    "sitecustomize.py": TRIGGER,
    "usercustomize.py": TRIGGER,
    "planted.pth": f"import os; {TRIGGER}",
    "site.py": TRIGGER,
    "json.py": TRIGGER,
    "numpy.py": TRIGGER,
    "pandas/__init__.py": TRIGGER,
    "encodings/__init__.py": TRIGGER,
    "guest/kernelapps.py": TRIGGER,
    "interpreter_bot/__init__.py": TRIGGER,
    STARTUP: TRIGGER,
    ".ipython/profile_default/ipython_config.py": TRIGGER,
    "ipython_config.py": TRIGGER,
    "ipython_kernel_config.py": TRIGGER,
    ".jupyter/jupyter_config.py": TRIGGER,
    ".pythonrc.py": TRIGGER,
    ".python_history": TRIGGER,
    ".local/lib/python3/site-packages/usercustomize.py": TRIGGER,
    "lib/python3/site-packages/planted.pth": f"import os; {TRIGGER}",
    "pyvenv.cfg": "home = /mnt/data",
    "matplotlibrc": "figure.figsize: 50, 50\nbackend: module://planted",
    "planted.py": TRIGGER,
    ".bashrc": "echo x > /mnt/data/triggered",
    ".profile": "echo x > /mnt/data/triggered",
    "python": "#!/bin/sh\necho x > /mnt/data/triggered",
    "libc.so.6": "",
    "__main__.py": TRIGGER,
    "conftest.py": TRIGGER,
}
PLANT = f"""
import pathlib, sys
version = f"python{{sys.version_info.major}}.{{sys.version_info.minor}}"
for name, text in {PLANTED!r}.items():
    path = pathlib.Path("/mnt/data", name.replace("python3/", version + "/"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
"""
USE = {
    "nothing": "1",
    "the stack": "import json, encodings, numpy, pandas, matplotlib.pyplot as plt\n"
    "plt.plot([1]); plt.show()",
    "another interpreter": "import subprocess, sys\n"
    "subprocess.run([sys.executable, '-c', 'import json, numpy'], check=True)",
    "an interpreter by name": "import subprocess\n"
    "subprocess.run(['python', '-c', 'import json'], check=True)",
    "a shell": "!true",
    "a login shell": "import subprocess\nsubprocess.run(['/bin/sh', '-lc', 'true'], check=True)",
    "processes": "import concurrent.futures as f, os\n"
    "with f.ProcessPoolExecutor(1) as pool: print(pool.submit(os.getpid).result())",
}


@pytest.mark.parametrize("use", USE)
async def test_planted_files_are_not_run_by_the_next_kernel(bot, run, session_key, use):
    planted = await run(PLANT)
    assert not planted.errors
    await bot.pool.release(session_key())

    ran = await run(USE[use])

    assert not ran.errors
    workspace = await bot.pool.workspace(session_key())
    assert "triggered" not in {file.name for file in await workspace.list()}
    assert (await run("1 + 1")).plain == "2"


async def test_planted_style_does_not_change_plots(bot, run, session_key):
    size = "import matplotlib.pyplot as plt; print(*plt.rcParams['figure.figsize'])"
    before = await run(size)
    await run(PLANT)
    await bot.pool.release(session_key())

    after = await run(size)

    assert after.word == before.word


@pytest.mark.namespaces
async def test_module_of_the_bot_cannot_be_imported(run):
    root = pathlib.Path(interpreter_bot.__file__).parent
    modules = [path.relative_to(root.parent) for path in root.rglob("*.py")]
    names = sorted(".".join(path.with_suffix("").parts) for path in modules)
    names = [name for name in names if not name.endswith(("__init__", "__main__"))]
    assert len(names) > 50

    ran = await run(
        "import importlib, importlib.metadata, os\n"
        f"for name in {names!r}:\n"
        "    try: importlib.import_module(name)\n"
        "    except ModuleNotFoundError as error: assert str(error).startswith('No module')\n"
        "    else: print('imported', name)\n"
        "try: import interpreter_bot as module\n"
        "except ModuleNotFoundError: print('missing')\n"
        "else: print(getattr(module, '__file__', None), [os.listdir(p) for p in module.__path__])"
    )

    assert not ran.errors
    # Where an installation left directories of that name, they are hidden behind empty ones.
    assert re.fullmatch(r"missing|None \[\[\](, \[\])*\]", ran.word), ran.word


async def test_home_does_not_outlive_the_kernel(bot, run, session_key):
    home = "__import__('pathlib').Path.home()"
    await run(
        f"p = {home} / '{STARTUP}'\np.parent.mkdir(parents=True, exist_ok=True)\n"
        f"p.write_text({TRIGGER!r})"
    )
    await bot.pool.release(session_key())

    ran = await run(f"print(({home} / '{STARTUP}').exists())")

    assert ran.word == "False"


async def test_workspace_is_searched_for_modules_after_all_other_places(run):
    ran = await run(
        harness.code(
            "print([path for path in sys.path[:-1] if not path.startswith((sys.prefix,"
            " sys.base_prefix, '/usr'))], sys.path[-1])"
        )
    )

    # The bot's own place may be named by an editable installation; nothing of it is there.
    others, last = ran.text.rsplit(maxsplit=1)
    assert last == "/mnt/data"
    assert "/mnt/data" not in others
    assert "''" not in others
