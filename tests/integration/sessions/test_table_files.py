"""Files that a kernel reads as tables, beside its variables, for people who look into them."""

import pytest

from interpreter_bot import errors
from interpreter_bot.sessions import live_data_views
from tests.integration.sessions.conftest import ANNA, KEY

pytestmark = pytest.mark.kernel

GIVEN = """
import pandas, pyarrow, pyarrow.parquet, resource, zipfile
kept = {"answer": 42}
words = ["x" * 100_000]
pandas.DataFrame({"n": range(150_000), "w": "x"}).to_csv("long.csv", index=False)
with open("cut.csv", "w") as file:
    file.write("a,b\\n")
    file.writelines("1,2\\n" for _ in range(10))
    file.write("3," + "x" * 64_000_000)
with open("line.csv", "w") as file:
    file.writelines("a," * 500_000 for _ in range(80))
with open("wide.csv", "w") as file:
    file.writelines("a," * 500_000 for _ in range(50))
with open("quoted.csv", "w") as file:
    file.writelines(['a,b\\n1,"', "never closed " * 4_000_000])
rows = pyarrow.array([0] * 200_000, pyarrow.int32())
bomb = pyarrow.table({"w": pyarrow.DictionaryArray.from_arrays(rows, words)})
# Read without its own schema, each row has a text of its own.
pyarrow.parquet.write_table(bomb, "bomb.parquet", store_schema=False)
few = pyarrow.table({"w": ["y" * 10_000] * 9_000, "u": pyarrow.array([b"0" * 16] * 9_000)})
pyarrow.parquet.write_table(few, "few.parquet")
open("none.parquet", "wb").write(b"PAR1 no more PAR1")
pandas.DataFrame({"n": [1, 2]}).to_excel("book.xlsx", index=False)
def bomb(name, part, data):
    with zipfile.ZipFile("book.xlsx") as book, zipfile.ZipFile(name, "w", 8) as made:
        for one in book.namelist():
            if one != part:
                made.writestr(one, book.read(one))
        with made.open(part, "w") as file:
            for piece in data:
                file.write(piece)
sheet = b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
bomb("large.xlsx", "xl/worksheets/sheet1.xml", [sheet, *[b" " * 1_000_000] * 101])
bomb("cells.xlsx", "xl/worksheets/sheet1.xml", [sheet, b"<row>", *[b"<c/>" * 250_000] * 90])
del few, rows, words
"""
GROWN = """
before = {before}
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(kept, most, most - before < 120_000)
"""
TOO_MUCH = "too much memory or time"


async def _open_table(bot, name):
    return await bot.service.files.open_table(KEY, name, ANNA)


async def _read_page(bot, table_file):
    request = live_data_views.parse_request({"rows": [0, 3], "columns": [0, 2]})
    return await bot.service.queries.read_table(KEY, table_file.handle, request, ANNA)


@pytest.mark.slow
async def test_a_hostile_file_takes_neither_the_kernel_nor_its_memory(open_bot):
    async with open_bot() as bot:
        ended = await bot.run(GIVEN)
        assert ended.contents("output") == []
        long = await _open_table(bot, "long.csv")
        assert (long.is_cut, (await _read_page(bot, long)).row_count) == (True, 100_000)
        cut = await _read_page(bot, await _open_table(bot, "cut.csv"))
        assert (cut.row_count, cut.rows[0]) == (10, ("0", "1"))
        few = await _open_table(bot, "few.parquet")
        assert few.is_cut
        assert (await _read_page(bot, few)).row_count < 9_000
        book = await _read_page(bot, await _open_table(bot, "book.xlsx"))
        assert book.rows == (("0", "1"), ("1", "2"))
        reply = await bot.run(GROWN.format(before=0))
        before = reply.contents("output")[0].text.split()[2]
        quoted = await _open_table(bot, "quoted.csv")
        assert quoted.notes == ("Line 2 of this file cannot be read: the table ends before it.",)
        for name, why in (
            ("line.csv", "line of this file is too long"),
            ("wide.csv", "line of this file is too long"),
            ("bomb.parquet", TOO_MUCH),
            ("none.parquet", "could not be read"),
            ("large.xlsx", "workbook is too large"),
            ("cells.xlsx", "could not be read"),
        ):
            with pytest.raises(errors.BotError, match=why):
                await _open_table(bot, name)
        reply = await bot.run(GROWN.format(before=before))
        output_text = reply.contents("output")[0].text
        assert output_text.startswith("{'answer': 42}")
        assert output_text.endswith("True\n"), output_text
