"""Packages installed into running kernels, from an index on loopback."""

import datetime

import pytest

from interpreter_bot import settings, values
from interpreter_bot.kernels import pools
from tests.fakes import package_indexes

pytestmark = pytest.mark.kernel


@pytest.fixture
def index():
    with package_indexes.serving() as index:
        yield index


@pytest.fixture
def bot(tmp_path, short_path, index):
    def make(**options):
        return settings.Settings(
            kernels=settings.Kernels(preload=(), spares=0),
            paths=settings.Paths(data=tmp_path / "data", runtime=short_path),
            package_index=settings.PackageIndex(url=index.url, **options),
        )

    return make


async def _run(kernel, code, ask=None):
    shown = []
    finished = await kernel.execute(code, show=shown.append, ask=ask)
    text = "".join(output.plain for output in shown)
    return finished.ending, text


async def test_a_running_kernel_gets_a_package_and_keeps_its_variables(bot, index):
    index.add("greeter", needs=["letters>=1"], files={"greeter.py": "import letters\nword = 'hi'"})
    index.add("letters", files={"letters.py": ""})
    async with pools.Pool.open(bot()) as pool, pool.lease("slack/T/C/1") as lease:
        kernel = await lease.kernel()
        assert (await _run(kernel, "kept = [1]; import greeter"))[0] is values.Ending.ERROR
        _, said = await _run(kernel, "%pip install -q greeter")
        assert "Installed greeter 1.0 and 1 package more" in said
        _, said = await _run(kernel, "import greeter; print(greeter.word, kept)")
        assert said == "hi [1]\n"


async def test_what_is_there_wins_and_code_of_no_layer_runs_by_itself(bot, index):
    bad = "raise SystemExit('shadowed')"
    index.add(
        "tricks",
        files={
            "tricks.py": "value = 1",
            "numpy/__init__.py": bad,
            "json.py": bad,
            "sitecustomize.py": bad,
            "IPython/__init__.py": bad,
            "tricks.pth": "import os; os.environ['TRICKED'] = '1'\n",
        },
        attributes={"tricks.py": 0o104755},
    )
    async with pools.Pool.open(bot()) as pool, pool.lease("slack/T/C/1") as lease:
        kernel = await lease.kernel()
        assert "Installed tricks 1.0" in (await _run(kernel, "!pip install tricks | tail -1"))[1]
        ending, said = await _run(kernel, LOOKS)
        assert (ending, said) == (values.Ending.OK, "0o755\nread-only\nnot listed\n"), said


LOOKS = """
import json, os, subprocess, sys
import numpy, tricks
assert json.dumps(numpy.arange(2).tolist()) == "[0, 1]" and "TRICKED" not in os.environ
subprocess.run([sys.executable, "-c", "import json, numpy"], check=True)
print(oct(os.stat(tricks.__file__).st_mode & 0o7777))
try:
    open(os.path.dirname(tricks.__file__) + "/new", "w")
except OSError:
    print("read-only")
try:
    print(os.listdir("/opt/packages"))
except PermissionError:
    print("not listed")
"""


async def test_refusals_are_one_sentence_that_says_who_can_change_it(bot, index):
    young = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    index.add("young", uploaded=young)
    index.add("unwanted")
    index.add("typo-squat")
    index.add("needs-unwanted", needs=["unwanted"])
    index.add("old-pandas", needs=["pandas<1"])
    index.add("pandas", "0.9")
    index.add("changed", told={"hashes": {"sha256": "0" * 64}})
    index.add("huge", told={"size": 10**12})
    index.add("bomb", files={"bomb.py": b"#" * 40_000_000})
    index.add("pieces", files={f"pieces/{n}.py": b"#" * 1_000_000 for n in range(40)})
    config = bot(
        deny=["unwanted"], allow=["*a*", "*o*", "huge", "pieces"], unpacked_bytes=20_000_000
    )
    told = {
        "young": "Because ",
        "unwanted": "package_index.deny",
        "needs-unwanted": "package_index.deny",
        "old-pandas": "unsatisfiable",
        "changed": "ash mismatch",
        "huge": "package_index.download_bytes",
        "bomb": "package_index.unpacked_bytes",
        "pieces": "package_index.unpacked_bytes",
        "zzz": "package_index.allow",
        "not-there-at-all": "Because not-there",
        "git+https://example.org/x": "package_index.url",
        "--index-url=http://127.0.0.1/": "option",
        "./x.whl": "package_index.url",
    }
    async with pools.Pool.open(config) as pool, pool.lease("slack/T/C/1") as lease:
        kernel = await lease.kernel()
        for package, expected in told.items():
            _, said = await _run(kernel, f"%pip install {package}")
            assert expected in said, (package, said)
            assert "Installed" not in said, (package, said)
        left = config.paths.data / "packages"
        assert not list((left / "layers").iterdir())
        assert not [one for one in (left / "staging").rglob("*") if one.parent.parent != left]
