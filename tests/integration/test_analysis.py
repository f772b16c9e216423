"""What honest analysis asks of the system: none of it may be hurt by the walls."""

import pathlib
import tempfile

import pytest
import pytest_asyncio

from interpreter_bot import settings, values
from interpreter_bot.kernels import pools

pytestmark = [pytest.mark.kernel, pytest.mark.asyncio(loop_scope="module")]
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
        found = sorted(queue.get(timeout=5) for _ in children)
        [child.join() for child in children]
        good = found == [1, 2, 3] == list(memory.buf[1:4])
        memory.close(); memory.unlink()
        print("good" if good else found)
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
    "sockets of all usual kinds": """
        import socket
        said = []
        for family, kind in ((1, 1), (1, 2), (1, 5)):
            one, two = socket.socketpair(family, kind)
            one.sendmsg([b"hello"]); said.append(two.recv(5))
        for family in (socket.AF_INET, socket.AF_INET6):
            with socket.socket(family, socket.SOCK_DGRAM) as one:
                one.bind(("localhost", 0))
                one.settimeout(5)
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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kernel():
    with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as place:
        bot = settings.Settings(
            kernels=settings.Kernels(preload=("numpy", "pandas", "sklearn.ensemble"), spares=0),
            paths=settings.Paths(data=pathlib.Path(place, "d"), runtime=pathlib.Path(place, "r")),
        )
        async with pools.Pool.open(bot) as pool:
            yield await pool.take("analysis")


@pytest.mark.parametrize("work", WORK)
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
