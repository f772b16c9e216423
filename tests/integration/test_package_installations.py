"""Packages installed into running kernels, from an index on loopback."""

import asyncio
import datetime
import os
import secrets

import pytest

from interpreter_bot import errors, settings, values
from interpreter_bot.kernels import pools
from interpreter_bot.text import output_screens
from tests.attacks import harness
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
    index.add(
        "greeter", requirements=["letters>=1"], files={"greeter.py": "import letters\nword = 'hi'"}
    )
    index.add("letters", files={"letters.py": ""})
    async with pools.Pool.open(bot()) as pool, pool.lease("slack/T/C/1") as lease:
        kernel = await lease.kernel()
        assert (await _run(kernel, "kept = [1]; import greeter"))[0] is values.Ending.ERROR
        _, said = await _run(kernel, "%pip install -q greeter")
        assert "Installed greeter 1.0 and 1 package more" in said
        _, said = await _run(kernel, "import greeter; print(greeter.word, kept)")
        assert said == "hi [1]\n"


async def test_two_hosts_that_install_the_same_at_once_take_nothing_from_each_other(bot, index):
    index.add("greeter", files={"greeter.py": "word = 'hi'"})
    config = bot()
    other_config = config.model_copy(
        update={"paths": config.paths.model_copy(update={"runtime": config.paths.runtime / "2"})}
    )
    other_config.paths.runtime.mkdir()

    async def install(pool, session):
        async with pool.lease(session) as lease:
            kernel = await lease.kernel()
            assert "Installed greeter" in (await _run(kernel, "%pip install greeter"))[1]
            look = "import greeter, os; print(os.stat(greeter.__file__).st_ino)"
            first_file = await _run(kernel, look)
            await both_installed.wait()
            assert await _run(kernel, look) == first_file

    both_installed = asyncio.Barrier(2)
    async with pools.Pool.open(config) as pool, pools.Pool.open(other_config) as other_pool:
        await asyncio.gather(install(pool, "slack/T/C/1"), install(other_pool, "slack/T/C/2"))


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
        file_modes={"tricks.py": 0o104755},
    )
    async with pools.Pool.open(bot()) as pool, pool.lease("slack/T/C/1") as lease:
        kernel = await lease.kernel()
        assert "Installed tricks 1.0" in (await _run(kernel, "!pip install tricks | tail -1"))[1]
        ending, said = await _run(kernel, LOOKS)
        assert ending is values.Ending.OK
        assert said.startswith("0o755\nread-only\n")
        # Where all sessions have the bot's user id, Landlock alone keeps them apart, and lists.
        assert said.endswith("not listed\n") is not harness.SHARE_ONE_ID


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
    print(os.listdir(os.path.dirname(os.path.dirname(tricks.__file__))))
except PermissionError:
    print("not listed")
"""


@pytest.mark.slow
async def test_refusals_are_one_sentence_that_says_who_can_change_it(bot, index):
    young = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    index.add("young", uploaded=young)
    index.add("unwanted")
    index.add("typo-squat")
    index.add("needs-unwanted", requirements=["unwanted"])
    index.add("old-pandas", requirements=["pandas<1"])
    index.add("pandas", "0.9")
    index.add("changed", overrides={"hashes": {"sha256": "0" * 64}})
    index.add("huge", overrides={"size": 10**12})
    index.add("bomb", files={"bomb.py": b"#" * 40_000_000})
    index.add("pieces", files={f"pieces/{n}.py": b"#" * 1_000_000 for n in range(40)})
    config = bot(deny=["unwanted"], allow=["*a*", "*o*", "huge", "pieces"], cache_bytes=100_000_000)
    told = {
        "young": "Because ",
        "unwanted": "package_index.deny",
        "needs-unwanted": "package_index.deny",
        "old-pandas": "unsatisfiable",
        "pandas<1": "cannot be replaced",
        "changed": "ash mismatch",
        "huge": "can be downloaded together",
        "bomb": "package_index.cache_bytes",
        "pieces": "package_index.cache_bytes",
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


@pytest.mark.slow
async def test_a_person_has_a_part_of_the_room_and_what_is_used_is_not_deleted(bot, index):
    for name in ("first", "second", "third"):
        index.add(name, files={f"{name}.py": os.urandom(1_000_000).hex().encode()})
    config = bot(cache_bytes=9_000_000)
    kept = config.paths.data / "packages" / "layers"
    async with (
        pools.Pool.open(config) as pool,
        pool.lease("slack/T/C/1", person="one") as lease,
        pool.lease("slack/T/C/2", person="one") as again,
        pool.lease("slack/T/C/3", person="other") as others,
    ):
        kernel = await lease.kernel()
        assert "Installed first" in (await _run(kernel, "%pip install first"))[1]
        assert "Installed second" in (await _run(kernel, "%pip install second"))[1]
        told = await _run(await again.kernel(), "%pip install third")
        assert "as many packages as one person may have" in told[1]
        assert "Installed third" in (await _run(await others.kernel(), "%pip install third"))[1]
        assert len(list(kept.iterdir())) == 3


async def test_packages_are_shared_and_come_back_with_the_next_kernel(bot, index):
    index.add("first")
    index.add("second", requirements=["first"])
    index.add("of-channel")
    declared = settings.ChannelPackages(places=("slack/T/C",), names=("of-channel",))
    config = bot().model_copy(update={"packages": (declared,)})
    kept = config.paths.data / "packages" / "layers"
    async with pools.Pool.open(config) as pool:
        async with pool.lease("slack/T/C/1") as lease:
            kernel = await lease.kernel()
            assert await _run(kernel, "import of_channel") == (values.Ending.OK, "")
            assert "Installed first" in (await _run(kernel, "%pip install first"))[1]
            assert "Installed second 1.0 (" in (await _run(kernel, "%pip install second"))[1]
            built = {path: path.stat().st_ino for path in kept.iterdir()}
            assert len(built) == 3
            assert "Already installed" in (await _run(kernel, "!uv pip install pandas"))[1]
            kernel.kill_with_reason(values.Ending.CRASHED, "gone")
            await kernel.provisioner.ended.wait()
            kernel = await lease.kernel()
            assert await _run(kernel, "import first, second, of_channel") == (values.Ending.OK, "")
        async with pool.lease("slack/T/D/1") as lease:
            kernel = await lease.kernel()
            assert (await _run(kernel, "import of_channel"))[0] is values.Ending.ERROR
            assert "Installed first" in (await _run(kernel, "!uv pip install first"))[1]
            assert {path: path.stat().st_ino for path in kept.iterdir()} == built
            await pool.release("slack/T/D/1")
            assert (await _run(await lease.kernel(), "import first"))[0] is values.Ending.ERROR


@pytest.mark.slow
async def test_layers_used_longest_ago_make_room_and_those_in_use_stay(bot, index):
    for name in ("a1", "a2", "a3"):
        index.add(name, files={f"{name}.py": f"text = {secrets.token_hex(500_000)!r}"})
    config = bot(cache_bytes=2_500_000)
    kept = config.paths.data / "packages" / "layers"
    async with pools.Pool.open(config) as pool, pool.lease("slack/T/C/1") as lease:
        assert "Installed" in (await _run(await lease.kernel(), "%pip install a1"))[1]
        await pool.release("slack/T/C/1")
        async with pool.lease("slack/T/C/2") as second, pool.lease("slack/T/C/3") as third:
            used = {"a2": await lease.kernel(), "a3": await second.kernel()}
            for name, kernel in used.items():
                assert "Installed" in (await _run(kernel, f"%pip install {name}"))[1]
            assert len(list(kept.iterdir())) == 2
            said = (await _run(await third.kernel(), "%pip install a1"))[1]
            assert "fill the space" in said
            for name, kernel in used.items():
                assert await _run(kernel, f"import {name}") == (values.Ending.OK, "")


async def test_a_wheel_that_leaves_its_directory_writes_nothing(bot, index, tmp_path):
    index.add("slip", files={"slip.py": "", "../../../../slipped": "x", "/tmp/ib-slipped": "x"})
    index.add(
        "linked",
        files={"linked/__init__.py": "", "linked/out": "/etc/passwd", "linked/far": "../../../.."},
        file_modes={"linked/out": 0o120777, "linked/far": 0o120777},
    )
    async with pools.Pool.open(bot()) as pool, pool.lease("slack/T/C/1") as lease:
        kernel = await lease.kernel()
        for name in ("slip", "linked"):
            await _run(kernel, f"%pip install {name}")
        _, said = await _run(
            kernel, "import linked; print(open(linked.__path__[0] + '/out').read())"
        )
        assert "root:" not in said
        assert not list(tmp_path.rglob("slipped"))
        assert "ib-slipped" not in os.listdir("/tmp")


@pytest.mark.slow
async def test_stop_ends_an_installation_and_the_kernel_goes_on(bot, index):
    index.add("slow")
    index.hold.clear()
    async with pools.Pool.open(bot()) as pool, pool.lease("slack/T/C/1") as lease:
        kernel = await lease.kernel()
        running = asyncio.create_task(_run(kernel, "%pip install slow"))
        assert await asyncio.to_thread(index.has_request.wait, 60)
        await kernel.stop()
        assert (await running)[0] is values.Ending.STOPPED
        index.hold.set()
        assert "Installed slow" in (await _run(kernel, "%pip install slow"))[1]


async def test_a_person_is_asked_where_they_are_asked_for_code(bot, index):
    index.add("asked")
    questions, answers = [], ["no", "yes"]

    async def ask(request):
        questions.append(request)
        return answers.pop(0)

    async with pools.Pool.open(bot()) as pool, pool.lease("slack/T/C/1") as lease:
        kernel = await lease.kernel()
        assert "it was not approved" in (await _run(kernel, "%pip install asked", ask))[1]
        assert "Installed asked" in (await _run(kernel, "%pip install asked", ask))[1]
    assert questions[0].subject == "packages"
    assert questions[0].prompt.startswith("asked 1.0 (")


async def test_a_missing_import_is_offered_and_its_code_runs_again_with_the_package(bot, index):
    for name in ("greeter", "beautifulsoup4", "others"):
        module = {"beautifulsoup4": "bs4"}.get(name, name)
        index.add(name, files={f"{module}.py": "word = 'hi'"})
    questions, answers = [], []

    async def ask(request):
        questions.append(request)
        if not answers:
            raise errors.BotError("Nobody is here.")
        return answers.pop(0)

    code = "print('once'); import greeter; print(greeter.word)"
    hint = "%pip install greeter"
    async with pools.Pool.open(bot()) as pool, pool.lease("slack/T/C/1") as lease:
        kernel = await lease.kernel()
        ending, said = await _run(kernel, code)
        assert (ending, hint in said, questions) == (values.Ending.ERROR, True, [])
        assert hint in (await _run(kernel, code, ask))[1]  # nobody answers
        answers.append("no")
        assert "it was not approved" in (await _run(kernel, code, ask))[1]
        assert index.requests == [], "nobody let it hear what may be a name of their own"
        answers.append("yes")
        shown = output_screens.Screen()
        finished = await kernel.execute(code, show=shown.show, ask=ask)
        assert finished.ending is values.Ending.OK
        text = "".join(one.plain for one in shown.outputs)
        assert text.startswith("Installed greeter 1.0 ("), text
        assert text.endswith("Variables are kept.\nonce\nhi\n"), text
        assert len(questions) == 3
        offer = "greeter is not installed. The package greeter has it."
        assert (questions[-1].prompt, questions[-1].subject) == (offer, "import")
        ending, said = await _run(kernel, "import pandsa", ask)
        assert (ending, "pandas is installed" in said) == (values.Ending.ERROR, True)
        answers.append("yes")
        assert (await _run(kernel, "import unheard_of", ask))[0] is values.Ending.ERROR
        assert (await _run(kernel, "raise ModuleNotFoundError(name='json')", ask))[1]
        assert len(questions) == 4
    async with pools.Pool.open(bot(missing="install")) as pool, pool.lease("slack/T/C/2") as lease:
        kernel = await lease.kernel()
        assert (await _run(kernel, "import bs4", ask))[0] is values.Ending.OK  # it is well known
        assert len(questions) == 4
        assert (await _run(kernel, "import others", ask))[0] is values.Ending.ERROR
        assert len(questions) == 5


async def test_names_of_ones_own_modules_are_told_nobody(bot, index):
    for name in ("private-pricing", "greeter"):
        index.add(name)
    questions = []

    async def ask(request):
        questions.append(request)
        return "no"

    async with pools.Pool.open(bot()) as pool, pool.lease("slack/T/C/1") as lease:
        kernel = await lease.kernel()
        made = "import os; os.makedirs('src/deep'); open('src/deep/private_pricing.py', 'w')"
        assert (await _run(kernel, made))[0] is values.Ending.OK
        ending, said = await _run(kernel, "import private_pricing", ask)
        assert (ending, "%pip" in said) == (values.Ending.ERROR, False)
    assert questions == []
    async with pools.Pool.open(bot(missing="say")) as pool, pool.lease("slack/T/C/2") as lease:
        kernel = await lease.kernel()
        assert "%pip install greeter" in (await _run(kernel, "import greeter", ask))[1]
    assert (questions, index.requests) == ([], [])
