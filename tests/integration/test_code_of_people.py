"""What code that people bring expects of a script's surroundings, in a real kernel."""

from __future__ import annotations

import dataclasses
import itertools
import textwrap

import pytest
import pytest_asyncio

from interpreter_bot import errors, settings, values
from interpreter_bot.kernels import pools
from tests import machine

pytestmark = [pytest.mark.kernel, pytest.mark.asyncio(loop_scope="module")]


@dataclasses.dataclass
class Ran:
    """What an execution showed, and how it ended."""

    outputs: list[values.Output]
    finished: values.Finished

    @property
    def ending(self):
        return self.finished.ending

    @property
    def pictures(self):
        return self.select(values.Image)

    @property
    def error(self):
        (error,) = self.select(values.Error)
        return error

    def select(self, kind):
        return [output for output in self.outputs if isinstance(output, kind)]

    def printed(self, stream):
        return "".join(text.text for text in self.select(values.Text) if text.stream == stream)

    @property
    def stdout(self):
        return self.printed("stdout")

    @property
    def stderr(self):
        return self.printed("stderr")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool():
    with machine.short_directory() as path:
        config = settings.Settings(
            kernels=settings.Kernels(spares=0),
            limits=settings.Limits(output_bytes=100_000, execution_seconds=50),
            paths=settings.Paths(data=path / "data", runtime=path / "run"),
        )
        async with pools.Pool.open(config) as opened:
            yield opened


@pytest.fixture
def run(pool, request):
    """Run cells of one session; returns what the last of them did."""

    async def run_cells(*cells, ask=None, seconds=None):
        for cell in cells:
            outputs: list[values.Output] = []
            kernel = await pool.take(request.node.nodeid)
            finished = await kernel.execute(
                textwrap.dedent(cell).strip(), show=outputs.append, ask=ask, seconds=seconds
            )
            ran = Ran(outputs, finished)
        return ran

    return run_cells


# Code, and what is printed of it.
NO_UTF8 = {
    "print": (r"print('a\ud83d', flush=True)", "a\ufffd\n"),
    "a pair of halves": (r"print('\ud83d\ude00')", "\U0001f600\n"),
    "bytes of stdout": (r"import sys; sys.stdout.buffer.write(b'a\xff\n');", "a\ufffd\n"),
    "a descriptor": (r"import os; os.write(1, b'a\xff\n');", "a\ufffd\n"),
    "a program": (r"import subprocess; subprocess.run(['printf', r'a\377\n']);", "a\ufffd\n"),
    "a character in two pieces": (
        "import os, time\nos.write(1, b'\\xc3'); time.sleep(0.2); os.write(1, b'\\xa9\\n');",
        "\u00e9\n",
    ),
    "names of files": (
        "import os\nopen(b'f\\xff.txt', 'w').close()\nprint(*os.listdir('.'))",
        "f\ufffd.txt\n",
    ),
}


@pytest.mark.first_case
@pytest.mark.parametrize("what", NO_UTF8)
async def test_printed_text_that_is_no_utf8_has_a_substitute(run, what):
    code, shown = NO_UTF8[what]
    ran = await run(f"{code}\nprint('after')")
    assert (ran.ending, ran.stdout) == (values.Ending.OK, f"{shown}after\n")


async def test_displays_and_errors_that_are_no_utf8_lose_nothing_else(run):
    ran = await run(r"""
        display({"text/plain": "p", "text/html": "<b>a\ud83d</b>"}, raw=True)
        display({"application/json": {"a\ud83d": ["\udcff"]}}, raw=True, metadata={"\ud83d": 1})
        globals()["name\ud83d"] = 1
        error = ValueError("m\ud83d")
        error.add_note("note \ud83d")
        raise error
    """)
    (html,), (data,) = ran.select(values.Html), ran.select(values.Json)
    assert html.html == "<b>a\ufffd</b>".encode()
    assert data.json.split() == ["{", '"a\ufffd":', "[", '"\ufffd"', "]", "}"]
    assert ran.error.message == "m\ufffd\nnote \ufffd"
    assert ran.error.traceback.endswith("\nValueError: m\ufffd\nnote \ufffd")


async def test_prompts_that_are_no_utf8_are_asked(run):
    prompts = []

    async def ask(request):
        prompts.append(request.prompt)
        return "x"

    await run(r"import getpass; input('a\ud83d'); getpass.getpass('b\udcff')", ask=ask)
    assert prompts == ["a\ufffd", "b\ufffd"]


async def test_both_streams_keep_the_order_of_the_code(run):
    ran = await run("""
        import os, subprocess, sys
        for number in range(50):
            print("o", number)
            print("e", number, file=sys.stderr)
        sys.stdout.buffer.write(b"bytes\\n")
        os.write(2, b"descriptor\\n")
        print("between")
        subprocess.run("echo program; echo its error >&2", shell=True)
        print("end")
    """)
    # A program that takes longer than text waits for more cuts the text around it in two.
    texts = [
        (stream, "".join(text.text for text in group))
        for stream, group in itertools.groupby(ran.select(values.Text), lambda text: text.stream)
    ]
    expected = []
    for number in range(50):
        expected += [("stdout", f"o {number}\n"), ("stderr", f"e {number}\n")]
    assert texts[:100] == expected
    assert texts[100:] == [
        ("stdout", "bytes\n"),
        ("stderr", "descriptor\n"),
        ("stdout", "between\nprogram\n"),
        ("stderr", "its error\n"),
        ("stdout", "end\n"),
    ]


async def test_a_progress_bar_is_over_before_the_next_line(run):
    ran = await run("""
        from tqdm.auto import tqdm
        for _ in tqdm(range(3)):
            pass
        print("done")
    """)
    assert ran.outputs[-1] == values.Text("stdout", "done\n")
    assert "100%" in ran.stderr
    assert "Warning" not in ran.stderr


@pytest.mark.first_case
@pytest.mark.parametrize("module", ["tqdm.notebook", "tqdm.autonotebook", "tqdm.auto"])
async def test_bars_for_notebooks_are_text(run, module):
    ran = await run(f"from {module} import tqdm, trange\nfor _ in tqdm(trange(3)): pass")
    assert ran.ending is values.Ending.OK
    assert "100%" in ran.stderr
    assert "Warning" not in ran.stderr


@pytest.mark.first_case
@pytest.mark.parametrize("flooded", ["stdout", "stderr"])
async def test_a_flood_of_one_stream_leaves_the_other_and_its_own_end(run, flooded):
    other = {"stdout": "stderr", "stderr": "stdout"}[flooded]
    ran = await run(f"""
        import sys
        print("first", file=sys.{other})
        for number in range(30_000):
            print("line", number, file=sys.{flooded})
            if number == 15_000:
                print("middle", file=sys.{other})
        print("answer 42", file=sys.{other})
    """)
    assert ran.printed(other) == "first\nmiddle\nanswer 42\n"
    lines = ran.printed(flooded).splitlines()
    assert (lines[0], lines[-1]) == ("line 0", "line 29999")
    assert "line 15000" in lines
    assert len(ran.printed(flooded)) <= 100_000
    assert any("left out here" in notice.text for notice in ran.select(values.Notice))
    assert ran.outputs[-1] == values.Text(other, "answer 42\n")


async def test_errors_of_threads_and_tasks_are_shown_by_the_cell_that_runs(run):
    first = """
        import asyncio, threading, time
        def work():
            time.sleep(0.2)
            raise ValueError("of a thread")
        async def job():
            await asyncio.sleep(0.2)
            raise KeyError("of a task")
        thread = threading.Thread(target=work)
        thread.start()
        kept = asyncio.create_task(job())
        asyncio.create_task(job())
        asyncio.get_running_loop().call_later(0.2, lambda: 1 / 0)
        del work
    """
    ran = await run(first, "await asyncio.sleep(0.5)")
    assert ran.ending is values.Ending.OK
    assert "Cell 1, line 4, in work" in ran.stderr
    assert ran.stderr.count("ValueError: of a thread\n") == 1
    assert ran.stderr.count("KeyError: 'of a task'\n") == 2
    assert ran.stderr.count("ZeroDivisionError") == 1


async def test_an_error_of_a_task_without_a_name_is_shown(run):
    ran = await run("""
        import asyncio, collections.abc
        class Request(collections.abc.Coroutine):
            def send(self, value): raise KeyError("of a request")
            def throw(self, *error): raise error[0]
            def __await__(self): return self
        task = asyncio.create_task(Request())
        await asyncio.sleep(0.5)
    """)
    assert ran.stderr.startswith("Exception in the task Request:\n")
    assert "AttributeError" not in ran.stderr
    assert ran.stderr.count("KeyError: 'of a request'\n") == 1


async def test_a_task_that_exits_ends_itself_alone(run):
    ran = await run("""
        import asyncio, sys
        async def leave(): sys.exit(3)
        asyncio.create_task(leave())
        await asyncio.sleep(0.1)
        print("alive")
    """)
    assert (ran.ending, ran.stdout) == (values.Ending.OK, "alive\n")
    assert not ran.finished.kernel_lost


EXITS = ["sys.exit()", "sys.exit(0)", "exit()", "quit()", "raise SystemExit", "sys.exit(False)"]


@pytest.mark.first_case
@pytest.mark.parametrize("code", EXITS)
async def test_an_exit_without_an_error_is_none(run, code):
    ran = await run(f"import sys\nprint('worked')\n{code}\nprint('never')")
    assert (ran.ending, ran.outputs) == (values.Ending.OK, [values.Text("stdout", "worked\n")])


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("sys.exit(3)", "exit code 3"),
        ("exit(2)", "exit code 2"),
        ("raise SystemExit('no such file')", "no such file"),
        ("import argparse; argparse.ArgumentParser().parse_args(['-x'])", "exit code 2"),
    ],
)
async def test_an_exit_with_an_error_says_its_code(run, code, message):
    ran = await run(f"import sys\n{code}")
    assert (ran.ending, ran.error.message) == (values.Ending.ERROR, message)
    assert ran.error.traceback.endswith(f"SystemExit: {message}")
    assert "To exit" not in ran.stderr


async def test_help_of_a_pager_is_printed(run):
    ran = await run("def double(n):\n    'Twice as much.'\n    return 2 * n\ndouble?")
    assert "Twice as much." in ran.stdout
    assert "\x1b" not in ran.stdout
    assert "return 2 * n" in (await run("double??")).stdout


async def test_arguments_are_those_of_a_script(run):
    ran = await run("""
        import argparse, sys
        parser = argparse.ArgumentParser()
        parser.add_argument("--n", type=int, default=3)
        print(parser.parse_args().n, len(sys.argv), len(sys.orig_argv))
    """)
    assert ran.stdout == "3 1 1\n"


async def test_modules_of_the_workspace_are_found_last(run):
    ran = await run(
        "open('helper.py', 'w').write('value = 7')\nopen('random.py', 'w').write('broken(')",
        "import helper, random\nprint(helper.value, random.random() < 1)",
    )
    assert ran.stdout == "7 True\n"


LOOPS = {
    "run": "print(asyncio.run(main()))",
    "a runner": "with asyncio.Runner() as runner: print(runner.run(main()))",
    "the loop of the cell": "print(asyncio.get_event_loop().run_until_complete(main()))",
    "what waits in it": "loop = asyncio.get_event_loop()\n"
    "print(loop.run_until_complete(asyncio.gather(main()))[0])",
    "a new loop": "loop = asyncio.new_event_loop()\nasyncio.set_event_loop(loop)\n"
    "print(loop.run_until_complete(main()))\nloop.close()",
    "by a library": "import nest_asyncio\nnest_asyncio.apply()\nprint(asyncio.run(main()))",
    "within a coroutine": "async def outer(): return asyncio.run(main())\nprint(await outer())",
}


@pytest.mark.first_case
@pytest.mark.parametrize("how", LOOPS)
async def test_scripts_run_coroutines(run, how):
    ran = await run(f"""
import asyncio
async def main():
    await asyncio.sleep(0.01)
    return 7
{LOOPS[how]}
""")
    after = await run("print(await main())")
    assert (ran.ending, ran.stdout, after.stdout) == (values.Ending.OK, "7\n", "7\n")


@pytest.mark.first_case
@pytest.mark.parametrize("what", ["None", "io.StringIO()", "open('/dev/null', 'w')"])
async def test_replaced_streams_are_back_in_the_next_cell(run, what):
    ran = await run(
        f"import io, os, sys\nsys.stdout = sys.stderr = {what}",
        "print('out')\nprint('err', file=sys.stderr)\nsys.stdout.close()\nos.close(1)",
        "sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\nprint('wrapped')",
        "os.system('echo program')\nsys.stdout.reconfigure(encoding='utf-8')\n"
        "print('out')\nprint('err', file=sys.stderr)",
    )
    assert (ran.stdout, ran.stderr) == ("program\nout\n", "err\n")


async def test_input_comes_from_what_code_puts_in_its_place(run):
    ran = await run("""
        import io, sys
        sys.stdin = io.StringIO("2\\n3\\n")
        print(int(input()) + int(input()))
    """)
    assert ran.stdout == "5\n"


async def test_standard_input_is_a_persons_answer(run):
    async def ask(request):
        return "1 2\n3"

    ran = await run("import sys\nprint(sys.stdin.read().split())", ask=ask)
    assert ran.stdout == "['1', '2', '3']\n"
    ran = await run("print([line for line in sys.stdin])", ask=ask)
    assert ran.stdout == "['1 2\\n', '3\\n']\n"


async def test_input_without_anybody_or_at_its_end_says_so(run):
    async def ask(request):
        return values.END_OF_INPUT

    for asked in (None, ask):
        ran = await run("input('x')", ask=asked)
        assert (ran.ending, ran.error.name) == (values.Ending.ERROR, "EOFError")
        assert ran.error.message.endswith(".")
    ran = await run("try: input()\nexcept EOFError: print('end')", ask=ask)
    assert ran.stdout == "end\n"


async def test_too_large_a_call_is_an_error_and_no_question(run):
    asked = []

    async def ask(request):
        asked.append(request)
        raise errors.UnansweredError

    ran = await run(
        "get_ipython().kernel.ask_bot({'tools': 'x' * 300_000})",
        ask=ask,
    )
    assert (ran.ending, asked) == (values.Ending.OK, [])
    assert "too large" in ran.select(values.Result)[0].plain


async def test_unclosed_files_are_written_and_what_is_not_whole_is_said(run, pool, request):
    ran = await run("""
        import csv, gzip, zipfile
        table = open("table.csv", "w", newline="")
        writer = csv.writer(table)
        writer.writerow(["a", "b"])
        packed = gzip.open("text.gz", "wt")
        packed.write("text")
        archive = zipfile.ZipFile("all.zip", "w")
        archive.writestr("a", "b")
    """)
    workspace = await pool.workspace(request.node.nodeid)
    sizes = {info.name: info.size_bytes for info in await workspace.list()}
    assert sizes["table.csv"] == 5
    assert sizes["text.gz"] > 0
    assert [line.split()[0] for line in ran.stderr.splitlines()] == ["all.zip", "text.gz"]
    assert (await run("print(1)")).stderr == ""


async def test_code_that_leaves_no_descriptor_has_a_reply(run):
    ran = await run(
        """
        files = []
        while True: files.append(open("/dev/null"))
        """,
        "print(len(files) > 500); del files",
    )
    assert (ran.ending, ran.stdout) == (values.Ending.OK, "True\n")


async def test_files_that_are_not_given_back_are_said_once(run):
    ran = await run("""
        import os, tempfile
        place = tempfile.gettempdir() + "/elsewhere"
        os.makedirs(place, exist_ok=True)
        os.chdir(place)
        open("made.txt", "w").write("x")
        print(place)
    """)
    assert ran.stderr.splitlines()[-1].endswith(f"not: {ran.stdout.strip()}/made.txt")
    assert (await run("print(1)")).stderr == ""


TRACEBACKS = {
    "a library": (
        "import json\njson.loads('x')",
        "Cell 1, line 2\n    json.loads('x')\n  … in json\n"
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    ),
    "a network": (
        "import urllib.request\nurllib.request.urlopen('http://a.invalid')",
        "Cell 1, line 2\n    urllib.request.urlopen('http://a.invalid')\n  … in urllib\n",
    ),
    "syntax": ("x = 1 +", "Cell 1, line 1\n    x = 1 +\n           ^\nSyntaxError: invalid syntax"),
    "quotes": (
        "print(“x”)",
        "Cell 1, line 1\n    print(“x”)\n          ^\nSyntaxError: invalid character '“' (U+201C). "
        "Use straight quotes instead of typographic ones.",
    ),
    "a cause": (
        "try: int('x')\nexcept ValueError as error: raise KeyError('why') from error",
        "Cell 1, line 1\n    try: int('x')\n"
        "ValueError: invalid literal for int() with base 10: 'x'\n\nThis led to:\n\n"
        "Cell 1, line 2\n    except ValueError as error: raise KeyError('why') from error\n"
        "KeyError: 'why'",
    ),
    "recursion": (
        "def f(): f()\nf()",
        "Cell 1, line 2\n    f()\nCell 1, line 1, in f\n    def f(): f()\n  … more frames …\n"
        "RecursionError: maximum recursion depth exceeded",
    ),
    "a module": (
        "open('own.py', 'w').write('def f():\\n    1 / 0')\nimport own\nown.f()",
        "Cell 1, line 3\n    own.f()\nown.py, line 2, in f\n    1 / 0\n"
        "ZeroDivisionError: division by zero",
    ),
    "a group": (
        "raise ExceptionGroup('several', [ValueError('a'), TypeError('b')])",
        "  | ValueError: a\n  |\n  | TypeError: b\n  |\nExceptionGroup: several (2 sub-exceptions)",
    ),
}


@pytest.mark.first_case
@pytest.mark.parametrize("what", TRACEBACKS)
async def test_tracebacks_are_the_persons_own_frames_and_the_last_line(run, what):
    code, traceback = TRACEBACKS[what]
    ran = await run(code)
    assert traceback in ran.error.traceback
    assert ran.error.traceback.splitlines().count(traceback.splitlines()[-1]) == 1
    assert "/" not in ran.error.traceback.replace("1 / 0", "").replace("http://", "")


async def test_a_timeout_is_a_sentence_and_no_interrupt(run):
    ran = await run("while True: pass", seconds=0.5)
    assert (ran.ending, ran.outputs) == (values.Ending.TIMED_OUT, [])
    assert ran.finished.reason


async def test_warnings_and_printed_tracebacks_show_no_path_of_the_host(run):
    ran = await run("""
        import json, logging, traceback, warnings
        warnings.warn("careful")
        try:
            json.loads("x")
        except ValueError:
            traceback.print_exc()
            logging.exception("failed")
    """)
    assert "Cell 1, line 2: UserWarning: careful\n" in ran.stderr
    assert 'File "json/decoder.py"' in ran.stderr
    assert 'File "/' not in ran.stderr


FIGURES = {
    "Agg": "import matplotlib\nmatplotlib.use('Agg')\n",
    "TkAgg": "import matplotlib\nmatplotlib.use('TkAgg')\n",
    "a switch": "plt.switch_backend('agg')\n",
    "a parameter": "import matplotlib\nmatplotlib.rcParams['backend'] = 'Qt5Agg'\n",
    "a variable": "import os\nos.environ['MPLBACKEND'] = 'Agg'\n",
    "notebook": "%matplotlib notebook\n",
    "widget": "%matplotlib widget\n",
    "agg": "%matplotlib agg\n",
}


@pytest.mark.slow
@pytest.mark.stack
@pytest.mark.first_case
@pytest.mark.parametrize("backend", FIGURES)
async def test_figures_are_shown_whatever_backend_code_asks_for(run, backend):
    asking = FIGURES[backend]
    for showing in ("plt.show()", "fig.show()", "pass", "fig"):
        ran = await run(
            f"import matplotlib.pyplot as plt\n{asking}fig, ax = plt.subplots()\n"
            f"ax.plot([1, 2])\nax.set_title('T')\n{showing}"
        )
        assert [picture.plain for picture in ran.pictures] == ["Figure: T"], showing
    ran = await run("plt.plot([1, 2])\nplt.show()")
    assert len(ran.pictures) == 1, "in a later cell"


SHOWN = {
    "Pillow": ("from PIL import Image\nImage.new('CMYK', (3, 2)).show()", values.Image),
    "plotly": (
        "import plotly.express as px\npx.bar(x=[1], y=[1]).show(renderer='browser')",
        values.Html,
    ),
    "plotly offline": (
        "import plotly.express as px, plotly.offline as offline\n"
        "offline.init_notebook_mode()\noffline.iplot(px.bar(x=[1], y=[1]))",
        values.Html,
    ),
    "folium": ("import folium\nfolium.Map(tiles=None).show_in_browser()", values.Html),
    "a page": (
        "import webbrowser\nopen('p.html', 'w').write('<p>x</p>')\n"
        "webbrowser.open('file:///mnt/data/p.html');",
        values.Html,
    ),
    "pandas": ("import pandas\npandas.Series([1, 2]).plot();", values.Image),
}


@pytest.mark.stack
@pytest.mark.first_case
@pytest.mark.parametrize("library", SHOWN)
async def test_libraries_show_here_what_would_open_a_window(run, library):
    code, kind = SHOWN[library]
    ran = await run(code)
    assert ran.ending is values.Ending.OK
    assert len(ran.select(kind)) == 1


async def test_what_cannot_be_shown_is_said(run):
    ran = await run("import webbrowser\nwebbrowser.open('https://example.com/x');")
    assert ran.stderr == "No browser can be opened here. The address is https://example.com/x\n"


@pytest.mark.stack
async def test_missing_fonts_are_replaced_in_silence(run):
    ran = await run("""
        import matplotlib.pyplot as plt
        plt.rcParams["font.family"] = "Arial"
        plt.plot([1, 2])
        plt.show()
    """)
    assert (len(ran.pictures), ran.stderr) == (1, "")


@pytest.mark.slow
@pytest.mark.stack
async def test_a_saved_figure_is_shown_as_its_file_has_it(run, pool, request):
    ran = await run("""
        import matplotlib.pyplot as plt
        plt.plot([1, 2])
        plt.savefig("saved.png", dpi=50)
        plt.show()
        fig, ax = plt.subplots()
        fig.savefig("before.png")
        ax.set_title("T")
        plt.show()
    """)
    workspace = await pool.workspace(request.node.nodeid)
    contents = []
    for name in ("saved.png", "before.png"):
        async with workspace.read(name) as content:
            contents.append(b"".join([chunk async for chunk in content]))
    assert ran.pictures[0].data == contents[0]
    assert ran.pictures[1].data != contents[1]
    assert len(ran.pictures) == 2


async def test_files_that_are_not_given_back_are_named_once(run):
    first = """
        import os
        open(f"{os.environ.get('TMPDIR', '/tmp')}/elsewhere.csv", "w").write("1")
        unfinished = open("open.zip", "wb")
    """
    ran = await run(first)
    assert "/elsewhere.csv\n" in ran.stderr
    assert "open.zip is still open" in ran.stderr
    ran = await run("1")
    assert "elsewhere" not in ran.stderr


async def test_cores_are_the_sessions(run):
    ran = await run("import os; print(os.cpu_count())")
    assert ran.stdout == "1\n"


@pytest.mark.stack
async def test_widgets_are_said_not_to_be_shown(run):
    mime = "application/vnd.jupyter.widget-view+json"
    ran = await run(f"display({{{mime!r}: {{}}, 'text/plain': 'IntSlider()'}}, raw=True)")
    assert ran.stderr == "Widgets cannot be shown here.\n"
    assert ran.select(values.Result)[0].plain == "IntSlider()"


@pytest.mark.slow
@pytest.mark.stack
async def test_plots_show_the_scripts_of_the_world(run):
    ran = await run("""
        import matplotlib.pyplot as plt
        plt.plot([1, 2])
        plt.title("हिन्दी ไทย العربية தமிழ் తెలుగు 日本語 한국어 ελληνικά עברית 😀")
        plt.show()
    """)
    assert (len(ran.pictures), ran.stderr) == (1, "")


@pytest.mark.stack
async def test_a_figure_with_half_a_character_is_drawn(run):
    ran = await run(r"""
        import matplotlib.pyplot as plt
        plt.plot([1, 2], label="b\udcff")
        plt.title("a\ud83d")
        plt.legend()
        plt.show()
    """)
    assert (ran.ending, len(ran.pictures), ran.select(values.Error)) == (values.Ending.OK, 1, [])


@pytest.mark.slow
async def test_replaced_functions_of_os_can_be_saved(run):
    ran = await run("""
        import os, pickle
        print([pickle.loads(pickle.dumps(one)) is one for one in (os.cpu_count, os.system)])
    """)
    assert ran.stdout == "[True, True]\n"
