"""What kernels have installed: what the model is told of it, and that it works behind the walls."""

import pytest

from interpreter_bot import settings, values
from interpreter_bot.kernels import pools

pytestmark = pytest.mark.kernel

# A film as a camera writes it, and as the networks that people post to want it.
FILM = """
import subprocess
def ffmpeg(*arguments):
    subprocess.run(["ffmpeg", "-hide_banner", "-loglevel", "error", *arguments], check=True)
ffmpeg("-f", "lavfi", "-i", "testsrc=size=320x180:rate=30:duration=1",
       "-f", "lavfi", "-i", "sine=duration=1", "-c:v", "mpeg4", "-c:a", "mp3", "film.avi")
ffmpeg("-i", "film.avi", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-c:a", "aac",
       "-movflags", "+faststart", "film.mp4")
print(open("film.mp4", "rb").read(8)[4:])
"""
OFFICE = """
import openpyxl, pptx, polars
from openpyxl import chart
from tqdm import tqdm
book = openpyxl.Workbook()
for row in [("a", 1), ("b", 2)]:
    book.active.append(row)
bars = chart.BarChart()
bars.add_data(chart.Reference(book.active, min_col=2, min_row=1, max_row=2))
book.active.add_chart(bars, "D2")
book.save("bars.xlsx")
print(len(openpyxl.load_workbook("bars.xlsx").active._charts))
slides = pptx.Presentation()
slides.slides.add_slide(slides.slide_layouts[5]).shapes.title.text = "Sales"
slides.save("slides.pptx")
print(pptx.Presentation("slides.pptx").slides[0].shapes.title.text)
print(polars.DataFrame({"a": [1, 1, 2]}).group_by("a").len().sort("a").rows())
print(sum(tqdm(range(3), disable=True)))
"""
VERSIONS = """
from importlib import metadata
from packaging.version import Version
print([name for name in NAMES if Version(metadata.version(name)) != Version(NAMES[name])])
"""

# Modules of what only the bot has, and ours.
OF_THE_BOT = """
import importlib.util
names = ["aiohttp", "alembic", "anthropic", "apscheduler", "cryptography", "discord", "mcp",
         "openai", "pydantic", "slack_bolt", "slack_sdk", "sqlalchemy", "uv", "interpreter_bot"]
print([name for name in names if importlib.util.find_spec(name)])
"""


async def _printed(kernel, code):
    shown = []
    finished = await kernel.execute(code, show=shown.append)
    text = "".join(output.text for output in shown if isinstance(output, values.Text))
    assert finished.ending is values.Ending.OK, shown
    return text


async def test_what_is_promised_is_there_and_works(tmp_path, short_path):
    bot = settings.Settings(
        kernels=settings.Kernels(preload=(), spares=0),
        paths=settings.Paths(data=tmp_path / "data", runtime=short_path),
    )
    async with pools.Pool.open(bot) as pool, pool.lease("a") as lease:
        assert {"pandas", "polars", "scikit-learn"} < pool.packages.keys()
        assert "slack-bolt" not in pool.packages
        kernel = await lease.kernel()
        versions = f"NAMES = {dict(pool.packages)!r}\n{VERSIONS}"
        assert await _printed(kernel, versions) == "[]\n"
        assert await _printed(kernel, OF_THE_BOT) == "[]\n"
        assert await _printed(kernel, FILM) == "b'ftyp'\n"
        assert await _printed(kernel, OFFICE) == "1\nSales\n[(1, 2), (2, 1)]\n3\n"
