"""`interpreter-bot exec` as a person runs it: the real command, real kernels, real files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import pathlib
import resource
import signal
import sqlite3
import subprocess
import sys
import time

import nbformat
import pytest

from tests.fakes import package_indexes

pytestmark = pytest.mark.kernel

COMMAND = pathlib.Path(sys.executable).with_name("interpreter-bot")


class Ran:
    """What one run of the command left."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.status = done.returncode
        self.stdout = done.stdout
        self.stderr = done.stderr

    @property
    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.stdout.splitlines()]

    def contents(self, kind: str, cell: int | None = None) -> list[dict[str, object]]:
        found = [line for line in self.lines if line["type"] == kind]
        return [line for line in found if cell is None or line["cell"] == cell]


@pytest.fixture
def interpreter_bot(tmp_path, short_path):
    """Run the command with directories of its own."""

    def run(*arguments: str, text: str = "", **limits: str) -> Ran:
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "INTERPRETER_BOT_PATHS__DATA": str(tmp_path / "data"),
            "INTERPRETER_BOT_PATHS__RUNTIME": str(short_path),
            # Nearly all of these need nothing of the stack, and start sooner without it.
            "INTERPRETER_BOT_KERNELS__PRELOAD": "[]",
            "CANARY_TOKEN": "canary-of-the-bot",
        }
        environment |= {f"INTERPRETER_BOT_LIMITS__{k.upper()}": v for k, v in limits.items()}
        return Ran(
            subprocess.run(
                [COMMAND, *arguments],
                input=text,
                env=environment,
                capture_output=True,
                text=True,
                timeout=90,
                check=False,
            )
        )

    return run


@pytest.mark.gate
def test_every_kind_of_output_has_its_line(interpreter_bot, tmp_path):
    kept = tmp_path / "kept"
    ran = interpreter_bot(
        "exec",
        "--json",
        f"--keep={kept}",
        "--cell=import sys; print('out'); print('err', file=sys.stderr); 6 * 7",
        "--cell=import pandas as pd; pd.DataFrame({'a': range(50), 'b': 1.5})",
        "--cell=import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.figure(); plt.plot([2, 1]);",
        "--cell=from IPython.display import HTML; HTML('<b>x</b>')",
        "--cell=open('made.bin', 'wb').write(bytes(range(256)));",
        "--cell=int('x')",
    )
    assert ran.status == 1
    assert [line["text"] for line in ran.contents("stdout", 0)] == ["out\n"]
    assert [line["text"] for line in ran.contents("result", 0)] == ["42"]
    assert [line["text"] for line in ran.contents("stderr", 0)] == ["err\n"]
    (table,) = ran.contents("table", 1)
    assert (table["row_count"], table["column_count"]) == (50, 2)
    assert table["columns"] == ["", "a", "b"]
    assert table["rows"][1] == ["1", "1", "1.5"]
    assert "49" in table["text"]
    images = ran.contents("image", 2)
    assert len(images) == 2
    for image in images:
        data = pathlib.Path(image["path"]).read_bytes()
        assert data.startswith(b"\x89PNG")
        assert len(data) == image["size_bytes"]
    (html,) = ran.contents("html", 3)
    assert html["html"] == "<b>x</b>"
    assert pathlib.Path(html["path"]).read_text() == "<b>x</b>"
    (artifact,) = ran.contents("artifact", 4)
    content = pathlib.Path(artifact["path"]).read_bytes()
    assert content == bytes(range(256))
    assert artifact["size_bytes"] == 256
    assert artifact["sha256"] == hashlib.sha256(content).hexdigest()
    (error,) = ran.contents("error", 5)
    assert error["name"] == "ValueError"
    assert "invalid literal" in error["message"]
    assert "Cell 6, line 1" in error["traceback"]
    assert [line["status"] for line in ran.contents("finished")] == ["ok"] * 5 + ["error"]
    assert all(line["seconds"] >= 0 for line in ran.contents("finished"))


@pytest.mark.gate
def test_every_cell_is_finished_also_after_its_kernel_died(interpreter_bot):
    ran = interpreter_bot(
        "exec",
        "--json",
        "--cell=x = 1; open('kept.txt', 'w').write('k');",
        "--cell=import os; os._exit(7)",
        "--cell=print('x' in dir(), open('kept.txt').read())",
        "--cell=1 / 0",
        "--cell=print('last')",
    )
    assert ran.status == 1
    statuses = [line["status"] for line in ran.contents("finished")]
    assert statuses == ["ok", "crashed", "ok", "error", "ok"]
    assert [line["cell"] for line in ran.contents("finished")] == [0, 1, 2, 3, 4]
    assert "exit code 7" in ran.contents("finished", 1)[0]["reason"]
    (announcement,) = ran.contents("announcement")
    assert announcement["cell"] == 2
    assert "exit code 7" in announcement["text"]
    assert ran.contents("stdout", 2)[0]["text"] == "False k\n"


def test_state_is_kept_from_script_to_cells_and_files_arrive_whole(interpreter_bot, tmp_path):
    data = tmp_path / "päth with space.csv"
    data.write_bytes(b"a,b\n" + b"1,2\n" * 300_000)
    script = tmp_path / "script.py"
    script.write_text("import pandas as pd\n# %%\nframe = pd.read_csv('päth with space.csv')\n")
    ran = interpreter_bot(
        "exec", "--json", f"--file={data}", "--cell=print(len(frame))", str(script)
    )
    assert ran.status == 0, ran.stderr
    assert ran.contents("stdout", 2)[0]["text"] == "300000\n"
    assert not ran.contents("artifact")


@pytest.mark.gate
def test_a_notebook_runs_its_code_cells(interpreter_bot, tmp_path):
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [
        nbformat.v4.new_markdown_cell("# words"),
        nbformat.v4.new_code_cell("x = 2"),
        nbformat.v4.new_code_cell("x ** 10"),
    ]
    path = tmp_path / "n.ipynb"
    nbformat.write(notebook, path)
    ran = interpreter_bot("exec", "--json", str(path))
    assert ran.status == 0
    assert ran.contents("result", 1)[0]["text"] == "1024"


def test_a_script_comes_from_standard_input(interpreter_bot):
    ran = interpreter_bot("exec", "-", text="print('from', 'stdin')")
    assert ran.status == 0
    assert ran.stdout == "from stdin\n"


@pytest.mark.gate
def test_input_reads_the_next_line(interpreter_bot):
    ran = interpreter_bot("exec", "--cell=print('hello', input('who? '))", text="Ada\n")
    assert (ran.status, ran.stdout) == (0, "who? hello Ada\n")


def test_a_program_answers_input_by_its_id(interpreter_bot):
    cell = "--cell=print('hello', input('who? '))"
    ran = interpreter_bot("exec", "--json", cell, text='{"id": 1, "answer": "Ada"}\n')
    assert ran.status == 0
    assert (ran.contents("input")[0]["id"], ran.contents("input")[0]["text"]) == (1, "who? ")
    assert ran.contents("stdout")[0]["text"] == "hello Ada\n"


def test_data_that_comes_through_a_pipe_is_a_file_if_that_is_said(interpreter_bot):
    cell = "--cell=print(open('/mnt/data/stdin.csv').read())"
    ran = interpreter_bot("exec", "--json", "--file", "-", cell, text="a,b\n1,2\n")
    assert ran.contents("stdout")[0]["text"] == "a,b\n1,2\n\n"


@pytest.mark.parametrize("form", [["--json"], []])
def test_input_at_the_end_of_standard_input_is_an_error_that_code_can_catch(interpreter_bot, form):
    code = "try: input()\nexcept EOFError as error: print('caught', error)"
    ran = interpreter_bot("exec", *form, f"--cell={code}")
    assert ran.status == 0
    assert "caught There is no more input." in ran.stdout
    ran = interpreter_bot("exec", "--json", "--cell=input()")
    assert ran.status == 1
    assert ran.contents("finished")[0]["status"] == "error"
    assert ran.contents("error")[0]["name"] == "EOFError"


@pytest.mark.gate
def test_wall_time_ends_a_printing_loop_and_keeps_variables(interpreter_bot):
    ran = interpreter_bot(
        "exec",
        "--json",
        "--cell=import time\nfor n in range(100): print(n); time.sleep(0.2)",
        "--cell=print('n is', n)",
        execution_seconds="1",
    )
    first, second = ran.contents("finished")
    assert (first["status"], second["status"]) == ("timed out", "ok")
    assert 1 <= first["seconds"] < 19
    assert ran.contents("stdout", 1)[0]["text"].startswith("n is ")
    assert not ran.contents("announcement")


def test_printing_is_cut_in_the_middle_and_says_where_and_how_much(interpreter_bot):
    ran = interpreter_bot(
        "exec", "--json", "--cell=for _ in range(9999): print('é' * 50)", output_bytes="10000"
    )
    printed = ran.contents("stdout")
    assert 7_000 < sum(len(line["text"].encode()) for line in printed) <= 10_000
    assert printed[-1]["text"].endswith("é\n")
    notices = [line["text"] for line in ran.contents("notice")]
    assert (
        notices[0] == "This is too much output to show all of it. Its end comes when the code ends."
    )
    assert notices[1].endswith("characters are left out here.")
    assert len(notices) == 2
    assert ran.contents("finished")[0]["status"] == "ok"


@pytest.mark.gate
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["exec"], "no code to run"),
        (["exec", "missing.py"], "missing.py cannot be read: No such file or directory."),
        (["exec", "--cell=1", "--file=missing.csv"], "not a file"),
        (["exec", "--cell=1", "--keep=/dev/null/x"], "Nothing can be saved"),
        (["--config=missing.toml", "limits"], "settings file"),
    ],
)
def test_a_refusal_is_one_sentence_and_status_2(interpreter_bot, arguments, sentence):
    ran = interpreter_bot(*arguments)
    assert ran.status == 2
    assert sentence in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_a_broken_notebook_is_refused(interpreter_bot, tmp_path):
    path = tmp_path / "broken.ipynb"
    path.write_text('{"cells": 3}')
    ran = interpreter_bot("exec", str(path))
    assert ran.status == 2
    assert "not a notebook" in ran.stderr


@pytest.mark.gate
def test_a_wrong_setting_is_named(interpreter_bot):
    ran = interpreter_bot("limits", execution_seconds="soon")
    assert ran.status == 2
    assert "limits.execution_seconds" in ran.stderr


@pytest.mark.gate
def test_only_the_flag_turns_the_sandbox_off(interpreter_bot, tmp_path):
    config = tmp_path / "c.toml"
    config.write_text("[sandbox]\nenabled = false\n")
    refused = interpreter_bot(f"--config={config}", "exec", "--cell=1")
    assert refused.status == 2
    assert "There is no setting sandbox.enabled." in refused.stderr
    ran = interpreter_bot("exec", "--json", "--unsafe-no-sandbox", "--cell=print(1)", "--cell=2")
    assert ran.status == 0
    for cell in (0, 1):
        assert ran.contents("announcement", cell)[0]["text"].startswith("UNSANDBOXED")


def test_nothing_of_the_bot_is_left_in_its_directories(interpreter_bot, tmp_path, short_path):
    ran = interpreter_bot("exec", "--cell=open('f', 'w').write('x');")
    assert ran.status == 0
    assert list(short_path.iterdir()) == []
    assert list((tmp_path / "data" / "ephemeral").iterdir()) == []


def test_what_is_installed_is_in_the_database_also_of_a_kernel_that_died(interpreter_bot, tmp_path):
    config = tmp_path / "c.toml"
    with package_indexes.serving() as index:
        index.add("letters")
        config.write_text(f"[package_index]\nurl = {index.url!r}\n")
        cell = "--cell=%pip install letters\nimport os, letters; os._exit(1)"
        ran = interpreter_bot(
            f"--config={config}", "exec", "--json", cell, "--cell=import letters; letters.version"
        )
    assert [one["status"] for one in ran.contents("finished")] == ["crashed", "ok"], ran.stdout
    (file,) = (tmp_path / "data").glob("*.db")
    with contextlib.closing(sqlite3.connect(file)) as database:
        rows = database.execute("SELECT platform, person, content FROM activities").fetchall()
    ((platform, person, content),) = rows
    packages = json.loads(content)["packages"]
    assert (platform, person) == ("exec", "exec")
    assert packages.startswith("letters==1.0 --hash=sha256:")


def test_limits_are_those_of_the_settings(interpreter_bot):
    ran = interpreter_bot("limits", "--json", memory_bytes="536870912")
    assert json.loads(ran.stdout)["memory_bytes"] == 536870912
    assert json.loads(ran.stdout)["address_space_bytes"] == 536870912 + (128 << 30)
    assert "512 MiB" in interpreter_bot("limits", memory_bytes="536870912").stdout


@pytest.fixture
def started(tmp_path, short_path):
    """Start the command and leave it running; it is killed in the end."""
    processes = []

    def start(*arguments: str, **options) -> subprocess.Popen[str]:
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "INTERPRETER_BOT_PATHS__DATA": str(tmp_path / "data"),
            "INTERPRETER_BOT_PATHS__RUNTIME": str(short_path),
            # Nearly all of these need nothing of the stack, and start sooner without it.
            "INTERPRETER_BOT_KERNELS__PRELOAD": "[]",
        }
        process = subprocess.Popen(
            [COMMAND, *arguments],
            env=environment | options.pop("limits", {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        with process:
            process.kill()


def test_a_reader_that_has_enough_ends_the_run_quietly_and_soon(started, short_path, tmp_path):
    process = started("exec", "--cell=while True: print('x' * 100)")
    assert process.stdout.readline() == "x" * 100 + "\n"
    process.stdout.close()
    assert process.wait(timeout=30) == 1
    assert process.stderr.read() == ""
    assert list(short_path.iterdir()) == []
    assert list((tmp_path / "data" / "ephemeral").iterdir()) == []


def test_a_paused_reader_does_not_stop_the_clock(started, tmp_path):
    """As `| less` does, which reads no more than its first page."""
    kept = tmp_path / "kept"
    process = started(
        "exec",
        "--json",
        f"--keep={kept}",
        "--cell=while True: print('x' * 1000)",
        "--cell=open('after', 'w').write('x');",
        limits={"INTERPRETER_BOT_LIMITS__EXECUTION_SECONDS": "1"},
    )
    deadline = time.monotonic() + 30
    while not (kept / "files" / "after").exists():
        assert time.monotonic() < deadline, "nothing goes on before somebody reads"
        time.sleep(0.05)
    assert process.poll() is None, "what was shown is still to be read"
    lines = [json.loads(line) for line in process.stdout]
    assert process.wait(timeout=30) == 1
    ends = [line for line in lines if line["type"] == "finished"]
    assert [end["status"] for end in ends] == ["timed out", "ok"]
    assert ends[0]["seconds"] < 20
    printed = sum(len(line["text"]) for line in lines if line["type"] == "stdout")
    assert printed > 500_000


def test_a_signal_ends_the_wait_for_a_paused_reader(started, tmp_path):
    process = started(
        "exec", f"--keep={tmp_path}", "--cell=open('f', 'w').write('x'); print('x' * 500_000)"
    )
    deadline = time.monotonic() + 30
    while not (tmp_path / "files" / "f").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 1


def test_what_cannot_be_kept_changes_the_status(started, tmp_path):
    def forbid_large_files():
        # Of the command alone: kernels set limits of their own.
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))

    process = started(
        "exec",
        "--json",
        f"--keep={tmp_path / 'kept'}",
        "--cell=open('f', 'wb').write(bytes(200_000));",
        preexec_fn=forbid_large_files,
    )
    lines = [json.loads(line) for line in process.stdout]
    assert process.wait(timeout=30) == 1
    assert [line["status"] for line in lines if line["type"] == "finished"] == ["ok"]
    (told,) = [line["text"] for line in lines if line["type"] == "announcement"]
    assert "it cannot be saved (File too large)" in told
    assert not list((tmp_path / "kept").rglob("*.part"))


def test_the_help_says_what_the_status_means(interpreter_bot):
    assert "all files of --keep were saved" in " ".join(
        interpreter_bot("exec", "--help").stdout.split()
    )


def test_input_that_never_comes_does_not_keep_the_command_from_ending(started):
    limits = {"INTERPRETER_BOT_LIMITS__INPUT_SECONDS": "0.5"}
    process = started("exec", "--json", "--cell=input()", limits=limits, stdin=subprocess.PIPE)
    assert process.wait(timeout=20) == 1
    assert "nobody answered" in process.stdout.read()


@pytest.mark.gate
def test_ctrl_c_stops_a_cell_and_twice_the_run_but_every_cell_has_its_end(started):
    cells = [f"--cell=import time; print('in {n}', flush=True); time.sleep(60)" for n in range(3)]
    process = started("exec", "--json", *cells)
    lines = []
    for line in map(json.loads, process.stdout):
        lines.append(line)
        if line["type"] == "stdout":
            process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) != 0
    ends = {line["cell"]: line["status"] for line in lines if line["type"] == "finished"}
    assert ends == {0: "stopped", 1: "stopped", 2: "refused"}


def test_files_of_any_name_are_kept_or_announced_and_end_nothing(interpreter_bot, tmp_path):
    ran = interpreter_bot(
        "exec",
        "--json",
        f"--keep={tmp_path / 'kept'}",
        r"--cell=open(b'\xff' * 100, 'w').write('long'); open('a', 'w').write('file');",
        "--cell=import os; os.remove('a'); os.mkdir('a'); open('a/b', 'w').write('below');",
        "--cell=print('on')",
    )
    assert ran.status == 1, "a/b is missing"
    kept = [pathlib.Path(line["path"]).read_text() for line in ran.contents("artifact", 0)]
    assert "path" not in ran.contents("artifact", 1)[0]
    assert sorted(kept) == ["file", "long"]
    assert "a/b could not be saved" in ran.contents("announcement", 1)[0]["text"]
    assert ran.contents("stdout", 2)[0]["text"] == "on\n"


def test_people_see_progress_as_it_ended_and_values_on_lines_of_their_own(interpreter_bot):
    ran = interpreter_bot(
        "exec", "--cell=for n in range(3): print(n, end='\\r')", "--cell=print('a', end=''); 6 * 7"
    )
    assert ran.stdout == "2a\n42\n"


def test_a_value_of_many_megabytes_is_shown_in_part(interpreter_bot):
    ran = interpreter_bot("exec", "--json", "--cell='x' * 30_000_000", "--cell=1 + 1")
    assert ran.status == 0
    shown = ran.contents("result", 0)[0]["text"]
    assert shown.startswith("'xxx")
    assert len(shown) < 300_000
    assert ran.contents("result", 1)[0]["text"] == "2"
