"""What honest analysis asks of the system: none of it may be hurt by the walls."""

import pytest
import pytest_asyncio

from interpreter_bot import settings, values
from interpreter_bot.kernels import pools
from tests import machine

pytestmark = [pytest.mark.kernel, pytest.mark.stack, pytest.mark.asyncio(loop_scope="module")]
# What it is: code that prints "good" last.
WORK = {
    "numpy in threads": """
        import concurrent.futures, numpy
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda n: numpy.linalg.inv(numpy.eye(200) * n)[0, 0], [1, 2, 4]))
        print("good" if found == [1, 0.5, 0.25] else found)
    """,
    "pandas with files": """
        import pandas
        frame = pandas.DataFrame({"a": range(1000), "b": ["x", "y"] * 500})
        frame.to_parquet("f.parquet"); frame.to_excel("f.xlsx"); frame.to_csv("f.csv.xz")
        sums = [pandas.read_parquet("f.parquet").a.sum(), pandas.read_excel("f.xlsx").a.sum()]
        sums.append(pandas.read_csv("f.csv.xz").groupby("b").a.sum().sum())
        print("good" if sums == [499500] * 3 else sums)
    """,
    "scikit-learn with processes of joblib": """
        from sklearn.datasets import make_classification
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.model_selection import cross_val_score
        x, y = make_classification(200, random_state=0)
        forest = RandomForestClassifier(10, random_state=0, n_jobs=2)
        scores = cross_val_score(forest, x, y, cv=2, n_jobs=2)
        print("good" if scores.min() > 0.5 else scores)
    """,
    "scikit-learn in threads": """
        import joblib
        from sklearn import datasets, ensemble
        x, y = datasets.make_classification(500, random_state=0)
        with joblib.parallel_backend("threading", n_jobs=4):
            forest = ensemble.RandomForestClassifier(20, random_state=0).fit(x, y)
        boosted = ensemble.HistGradientBoostingClassifier(max_iter=10).fit(x, y)
        scores = forest.score(x, y), boosted.score(x, y)
        print("good" if min(scores) > 0.9 else scores)
    """,
    "scikit-learn's clusters, which OpenMP finds": """
        from sklearn import cluster, datasets
        x, y = datasets.make_blobs(20_000, centers=3, cluster_std=0.1, random_state=0)
        found = cluster.KMeans(3, n_init=2, random_state=0).fit(x)
        print("good" if found.inertia_ / len(x) < 0.1 else found.inertia_)
    """,
    "joblib with a shared array": """
        import joblib, numpy
        array = numpy.ones(2_000_000)
        sums = joblib.Parallel(2)(joblib.delayed(numpy.sum)(array) for _ in range(3))
        print("good" if sums == [2_000_000] * 3 else sums)
    """,
    "pyarrow": """
        import pyarrow, pyarrow.dataset, pyarrow.parquet
        table = pyarrow.table({"a": list(range(10_000))})
        pyarrow.parquet.write_table(table, "a.parquet")
        mapped = pyarrow.parquet.read_table("a.parquet", memory_map=True, use_threads=True)
        rows = pyarrow.dataset.dataset("a.parquet").count_rows()
        print("good" if mapped.num_rows == rows == 10_000 else rows)
    """,
    "duckdb": """
        import duckdb
        with duckdb.connect("d.duckdb") as base:
            base.execute("create table t as select range as a from range(100000)")
            found = base.execute("select sum(a) from t").fetchone()[0]
        with duckdb.connect("d.duckdb", read_only=True) as base:
            again = base.execute("select count(*) from t").fetchone()[0]
        print("good" if (found, again) == (4999950000, 100000) else (found, again))
    """,
    "polars": """
        import polars
        frame = polars.DataFrame({"a": range(10000)})
        frame.write_parquet("p.parquet"); frame.write_csv("p.csv")
        found = polars.scan_parquet("p.parquet").select(polars.col("a").sum()).collect().item()
        print("good" if found == polars.read_csv("p.csv")["a"].sum() else found)
    """,
    "matplotlib": """
        import matplotlib.pyplot as plt
        plt.plot([1, 2]); plt.savefig("m.png"); plt.savefig("m.pdf"); plt.close("all")
        print("good" if open("m.png", "rb").read(4) == b"\\x89PNG" else "bad")
    """,
    "plotly": """
        import plotly.express
        plotly.express.line(x=[1, 2], y=[1, 2]).write_html("p.html")
        print("good" if "plotly" in open("p.html").read() else "bad")
    """,
    "altair's pictures": """
        import altair, pandas
        chart = altair.Chart(pandas.DataFrame({"a": [1, 2]})).mark_bar().encode(x="a:Q")
        chart.save("a.png")
        print("good" if open("a.png", "rb").read(4) == b"\\x89PNG" else "bad")
    """,
    "sqlite with a log and locks": """
        import sqlite3
        base = sqlite3.connect("s.sqlite")
        base.execute("pragma journal_mode = wal")
        base.execute("create table t (a)")
        base.executemany("insert into t values (?)", [(n,) for n in range(1000)])
        base.commit()
        other = sqlite3.connect("s.sqlite", timeout=0.1)
        base.execute("begin immediate")
        try:
            other.execute("begin immediate")
        except sqlite3.OperationalError as error:
            print("good" if "locked" in str(error) else error)
    """,
    "programs": """
        import os, subprocess
        found = subprocess.run("echo a | tr a b | cat > out.txt; cp out.txt copy.txt; ls | wc -l",
            shell=True, capture_output=True, text=True, check=True).stdout
        os.system("tail -n 1 copy.txt > tail.txt")
        print("good" if open("tail.txt").read() == "b\\n" and int(found) >= 2 else found)
    """,
    "sqlite of several processes": """
        import sqlite3, subprocess, sys
        with sqlite3.connect("many.sqlite") as base:
            base.execute("pragma journal_mode = wal")
            base.execute("create table t (a)")
        code = "import sqlite3\\nbase = sqlite3.connect('many.sqlite', timeout=20)\\n" \
            "for n in range(20):\\n with base: base.execute('insert into t values (1)')"
        writers = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
        ended = [writer.wait(30) for writer in writers]
        found = base.execute("select sum(a) from t").fetchone()[0]
        base.execute("pragma wal_checkpoint(truncate)"); base.close()
        print("good" if (ended, found) == ([0] * 3, 60) else (ended, found))
    """,
    "programs in sessions and groups of their own": """
        import os, signal, subprocess, time
        said = subprocess.run(["ps", "-o", "sid="], capture_output=True, start_new_session=True)
        alone = subprocess.Popen("sleep 60 & echo up; wait", shell=True, start_new_session=True,
            stdout=subprocess.PIPE)
        alone.stdout.readline()
        os.killpg(alone.pid, signal.SIGTERM)
        grouped = subprocess.Popen(["sleep", "60"], preexec_fn=lambda: (os.setpgrp(), os.nice(1)))
        is_leader = os.getpgid(grouped.pid) == grouped.pid
        grouped.terminate()
        spawned = os.posix_spawnp("true", ["true"], os.environ, setsid=True)
        ended = [alone.wait(5), grouped.wait(5), os.waitpid(spawned, 0)[1]]
        alone.stdout.close()
        print("good" if is_leader and ended == [-15, -15, 0] else (is_leader, ended, said))
    """,
    "multiprocessing": """
        import math, multiprocessing
        found = []
        for way in ("fork", "spawn", "forkserver"):
            context = multiprocessing.get_context(way)
            with context.Pool(2) as pool:
                found.append(pool.map(math.factorial, [3, 4]))
        with multiprocessing.Manager() as manager:
            shared = manager.dict(a=1)
            found.append([shared["a"]])
        print("good" if found == [[6, 24]] * 3 + [[1]] else found)
    """,
    "what processes share": """
        import multiprocessing, multiprocessing.shared_memory
        memory = multiprocessing.shared_memory.SharedMemory(create=True, size=1000)
        lock, queue = multiprocessing.Lock(), multiprocessing.Queue()
        def work(number):
            with lock:
                memory.buf[number] = number
            queue.put(number)
        children = [multiprocessing.get_context("fork").Process(target=work, args=(n,))
            for n in range(1, 4)]
        [child.start() for child in children]
        found = sorted(queue.get(timeout=30) for _ in children)
        [child.join() for child in children]
        good = found == [1, 2, 3] == list(memory.buf[1:4])
        memory.close(); memory.unlink()
        print("good" if good else found)
    """,
    "executors": """
        import concurrent.futures, math
        with concurrent.futures.ProcessPoolExecutor(3) as pool:
            processes = sum(pool.map(math.isqrt, range(1000), chunksize=50))
        # Limits leave room for about 80, beside what ran before: 128 threads and processes in all,
        # and 8 MiB of the memory for each stack.
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            threads = sum(pool.map(math.isqrt, range(1000)))
        good = processes == threads == sum(map(math.isqrt, range(1000)))
        print("good" if good else (processes, threads))
    """,
    "asyncio": """
        import asyncio, sys
        async def serve(reader, writer):
            writer.write(await reader.readline()); await writer.drain(); writer.close()
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hello\\n")
        line = await reader.readline()
        writer.close(); server.close()
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(5)", stdout=-1)
        said, _ = await child.communicate()
        print("good" if (line, said) == (b"hello\\n", b"5\\n") else (line, said))
    """,
    "asyncio with many connections, and time": """
        import asyncio, os, signal
        async def serve(reader, writer):
            writer.write(await reader.read(5)); writer.close()
        async def ask(connected):
            reader, writer = await connected
            writer.write(b"hello")
            said = await reader.read(5)
            writer.close()
            return said
        beaten, loop = asyncio.Event(), asyncio.get_running_loop()
        async with await asyncio.start_unix_server(serve, "s.socket"), \
                await asyncio.start_server(serve, "localhost", 0) as server:
            port = server.sockets[0].getsockname()[1]
            said = await asyncio.gather(
                *(ask(asyncio.open_unix_connection("s.socket")) for _ in range(30)),
                *(ask(asyncio.open_connection("localhost", port)) for _ in range(30)))
        loop.add_signal_handler(signal.SIGALRM, beaten.set)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        await asyncio.wait_for(beaten.wait(), 30)
        loop.remove_signal_handler(signal.SIGALRM)
        child = await asyncio.create_subprocess_shell("cat", stdin=-1, stdout=-1)
        said.append((await child.communicate(b"hello"))[0])
        said.append(await asyncio.to_thread(lambda: b"hello"))
        if os.path.exists("s.socket"):  # since Python 3.13, whoever served there deletes it
            os.unlink("s.socket")
        print("good" if said == [b"hello"] * 62 else said)
    """,
    "temporary files and maps": """
        import mmap, os, shutil, tempfile
        with tempfile.TemporaryDirectory() as place, tempfile.TemporaryFile() as file:
            file.write(bytes(1 << 20)); file.flush()
            with mmap.mmap(file.fileno(), 0) as shared, mmap.mmap(-1, 1 << 20) as own:
                shared[:5] = own[:5] = b"hello"
            file.seek(0)
            shutil.copy("/etc/passwd", place); shutil.make_archive("z", "zip", place)
            os.sendfile(os.open("sent", os.O_CREAT | os.O_WRONLY), file.fileno(), 0, 5)
            print("good" if open("sent").read() == file.read(5).decode() == "hello" else "bad")
    """,
    "locks of files": """
        import fcntl, os
        with open("lock", "w") as file, open("lock", "w") as again:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(file, fcntl.LOCK_UN)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("good")
    """,
    "maps of files, by the hundred": """
        import mmap, numpy, tempfile
        whole = numpy.lib.format.open_memmap("big.npy", "w+", "f8", (500, 1000))
        whole[:] = 1; whole.flush()
        again = numpy.load("big.npy", mmap_mode="r")
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
            file.truncate(1 << 20)
            maps = [mmap.mmap(file.fileno(), 4096) for _ in range(500)]
            maps[0][:5] = b"hello"
            good = all(one[:5] == b"hello" for one in maps)
            [one.close() for one in maps]
        print("good" if good and again.sum() == 500_000 else again.sum())
    """,
    "descriptors of all usual kinds, watched": """
        import os, select, selectors, signal, threading
        pairs = [os.pipe() for _ in range(100)]
        with selectors.DefaultSelector() as selector:
            for reading, _ in pairs:
                selector.register(reading, selectors.EVENT_READ)
            for _, writing in pairs[::10]:
                os.write(writing, b"x")
            ready = len(selector.select(0))
        event = os.eventfd(1)
        said = os.eventfd_read(event), os.read(pairs[0][0], 9)
        [os.close(one) for pair in pairs for one in pair]
        os.close(event)
        print("good" if (ready, said) == (10, (1, b"x")) else (ready, said))
    """,
    "files watched by looking": """
        import os, pathlib, threading, time
        place = pathlib.Path("watched"); place.mkdir()
        def look():
            return {one.name: one.stat().st_mtime_ns for one in os.scandir(place)}
        before, seen = look(), threading.Event()
        def watch():
            while look() == before:
                time.sleep(0.005)
            seen.set()
        threading.Thread(target=watch).start()
        (place / "new").write_text("x")
        print("good" if seen.wait(5) else look())
    """,
    "locks of files between processes": """
        import fcntl, os, subprocess, sys
        with open("shared.lock", "wb+") as file:
            file.truncate(1000)
            for start in range(0, 1000, 2):
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, start)
            code = "import fcntl; file = open('shared.lock', 'rb+')\\n" \
                "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 1)\\n" \
                "print('free', flush=True); fcntl.lockf(file, fcntl.LOCK_EX, 1, 2)\\n" \
                "fcntl.flock(file, fcntl.LOCK_SH); print('got')"
            child = subprocess.Popen([sys.executable, "-c", code], stdout=-1)
            said = [child.stdout.readline()]
            try:
                child.wait(0.1)
            except subprocess.TimeoutExpired:
                said.append(b"waits\\n")
            fcntl.lockf(file, fcntl.LOCK_UN)
            said.append(child.communicate(timeout=30)[0])
        print("good" if said == [b"free\\n", b"waits\\n", b"got\\n"] else said)
    """,
    "sockets of all usual kinds": """
        import socket
        said = []
        for family, kind in ((1, 1), (1, 2), (1, 5)):
            one, two = socket.socketpair(family, kind)
            one.sendmsg([b"hello"]); said.append(two.recv(5))
        for family in (socket.AF_INET, socket.AF_INET6):
            with socket.socket(family, socket.SOCK_DGRAM) as one:
                one.bind(("localhost", 0))
                one.settimeout(30)
                one.sendto(b"hello", one.getsockname()); said.append(one.recv(5))
        print("good" if said == [b"hello"] * 5 else said)
    """,
    "a look at the machine": """
        import os, platform, psutil, shutil, threading, uuid
        psutil.virtual_memory(), psutil.net_if_addrs(), psutil.Process().as_dict()
        psutil.cpu_percent(), psutil.disk_usage("/"), psutil.disk_partitions()
        shutil.disk_usage("/mnt/data"), platform.platform(), uuid.uuid1(), os.getloadavg()
        threading.Thread(name="named").start()
        print("good")
    """,
    "deep recursion": """
        import sys, threading
        sys.setrecursionlimit(100_000)
        threading.stack_size(64 << 20)
        deep = lambda n: n and 1 + deep(n - 1)
        found = []
        thread = threading.Thread(target=lambda: found.append(deep(50_000)))
        thread.start(); thread.join(); threading.stack_size(0)
        print("good" if found == [50_000] else found)
    """,
}


# What takes a loopback, or connections between processes.
CONNECTED = (
    "multiprocessing",
    "asyncio",
    "asyncio with many connections, and time",
    "sockets of all usual kinds",
    "a look at the machine",
)


IN_EVERY_RUN = {
    "numpy in threads",
    "pandas with files",
    "scikit-learn in threads",
    "matplotlib",
    "sqlite with a log and locks",
    "multiprocessing",
    "asyncio",
    "temporary files and maps",
    "sockets of all usual kinds",
    "deep recursion",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kernel():
    with machine.short_directory() as place:
        bot = settings.Settings(
            kernels=settings.Kernels(
                preload=("pandas", "sklearn.cluster", "sklearn.ensemble", "plotly.express"),
                spares=0,
            ),
            paths=settings.Paths(data=place / "d", runtime=place / "r"),
        )
        async with pools.Pool.open(bot) as pool:
            yield await pool.take("analysis")


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(
            work,
            marks=[pytest.mark.namespaces] * (work in CONNECTED)
            + [pytest.mark.slow] * (work not in IN_EVERY_RUN),
        )
        for work in WORK
    ],
)
async def test_walls_do_not_hurt(kernel, work):
    lines = WORK[work].strip("\n").splitlines()
    margin = len(lines[0]) - len(lines[0].lstrip())
    shown = []
    finished = await kernel.execute(
        "\n".join(line[margin:] for line in lines), show=shown.append, seconds=50
    )

    printed = "".join(one.text for one in shown if isinstance(one, values.Text))
    assert finished.ending is values.Ending.OK, [one.plain for one in shown]
    assert printed.split("\n")[-2:] == ["good", ""], [one.plain for one in shown]


@pytest.mark.namespaces
async def test_what_one_cell_starts_serves_the_next(kernel):
    for code in (
        "import http.server, threading, urllib.request\n"
        "server = http.server.ThreadingHTTPServer(('localhost', 0), "
        "http.server.SimpleHTTPRequestHandler)\n"
        "threading.Thread(target=server.serve_forever, daemon=True).start()",
        "with urllib.request.urlopen(f'http://localhost:{server.server_port}/') as page:\n"
        "    assert page.status == 200\n"
        "server.shutdown(); server.server_close()",
    ):
        finished = await kernel.execute(code, show=lambda _: None, seconds=20)
        assert finished.ending is values.Ending.OK
