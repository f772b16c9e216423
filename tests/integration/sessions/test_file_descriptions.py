"""Files as people send them: what a model is told of them, and what the page shows of the same."""

import codecs
import io
import zipfile

import openpyxl
import pytest

from interpreter_bot import errors, settings
from interpreter_bot.sessions import live_data_views
from tests.fakes import openai_server
from tests.integration.sessions.conftest import ANNA, KEY, attachment

pytestmark = pytest.mark.kernel

OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def make_workbook(*sheets):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for number, rows in enumerate(sheets):
        sheet = book.create_sheet(f"S{number}")
        for row in rows:
            sheet.append(row)
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def make_spreadsheet(cells):
    rows = "".join(
        "<table:table-row>"
        + "".join(
            '<table:table-cell office:value-type="string">'
            f"<text:p>{cell}</text:p></table:table-cell>"
            for cell in row
        )
        + "</table:table-row>"
        for row in cells
    )
    names = " ".join(
        f'xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{short}:1.0"'
        for short in ("office", "table", "text")
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("META-INF/manifest.xml", "<m:manifest xmlns:m='urn:x'/>")
        archive.writestr(
            "content.xml",
            f"<office:document-content {names}><office:body><office:spreadsheet>"
            f'<table:table table:name="T">{rows}</table:table>'
            "</office:spreadsheet></office:body></office:document-content>",
        )
    return buffer.getvalue()


# Each with what the model has to read, and how the page's table begins.
TABLES = {
    "gb18030.csv": (
        "姓名,城市,金额\n张三,北京,100\n李四,上海,200\n".encode("gb18030"),
        ["姓名 (text)", "gb18030 is a guess", "张三,北京,100", "encoding='gb18030'"],
        (["姓名", "城市"], ("张三", "北京")),
    ),
    "sjis.csv": (
        "名前,都市\n山田,東京\n佐藤,大阪\n".encode("cp932"),
        ["名前 (text)", "cp932 is a guess", "山田,東京"],
        (["名前", "都市"], ("山田", "東京")),
    ),
    "korean.csv": (
        "이름,도시,금액\n김철수,서울,100\n이영희,부산,200\n".encode("cp949"),
        ["이름 (text)", "cp949 is a guess"],
        (["이름", "도시"], ("김철수", "서울")),
    ),
    "russian.csv": (
        "имя;год\nИван;Москва\nДмитрий;Казань\n".encode("cp1251"),  # noqa: RUF001
        ["имя (text)", "cp1251 is a guess", "sep=';'"],
        (["имя", "год"], ("Иван", "Москва")),
    ),
    "western.csv": (
        "name,city\nJosé,Köln\nZoë,São Paulo\n".encode("cp1252"),
        ["cp1252 is a guess, it may be cp1250", "José,Köln"],
        (["name", "city"], ("José", "Köln")),
    ),
    "utf16.csv": (
        "name\tcity\nAna\tLyon\nBo\tKøln\n".encode("utf-16"),
        ["city (text)", "Bo,Køln", r"sep='\t', encoding='utf-16'"],
        (["name", "city"], ("Ana", "Lyon")),
    ),
    "bom.csv": (
        codecs.BOM_UTF8 + b"a,b\n1,2\n",
        ["Columns: a (integer)", "encoding='utf-8-sig'"],
        (["a", "b"], ("1", "2")),
    ),
    "sepline.csv": (
        b"sep=;\nA;B\n1;2\n4;5\n",
        ["A (integer)", "A,B\n1,2\n4,5", "sep=';', skiprows=1"],
        (["A", "B"], ("1", "2")),
    ),
    "preamble.csv": (
        b"Report generated 2024-05-01\nBy: system\n\nmonth,units\nJan,10\nFeb,12\n\nTotal,22\n",
        ["3 lines stand above the table", "month (text)", "By: system", "skiprows=3"],
        (["month", "units"], ("Jan", "10")),
    ),
    "titled.csv": (
        b"Sales\nEurope, all of it\n\nmonth,units\nJan,10\nFeb,12\nMar,9\n\nTotal,31\n",
        ["3 lines stand above the table", "month (text)", "skiprows=3"],
        (["month", "units"], ("Jan", "10")),
    ),
    "remarks.csv": (
        b"# exported by x\n# on 2024-01-01, at noon\nid,name\n1,a\n2,b\n",
        ["2 lines stand above the table", "id (integer)", "skiprows=2"],
        (["id", "name"], ("1", "a")),
    ),
    "european.csv": (
        b"Datum;Betrag\n01.02.2024;1.234,56\n02.02.2024;12,00\n",
        ["Betrag (number)", "decimal=',', thousands='.', dtype={'Datum': str}"],
        (["Datum", "Betrag"], ("01.02.2024", "1234.56")),
    ),
    "words.csv": (
        b"country,phone\nNA,+491\nDE,+492\n",
        ["NA,+491", "keep_default_na=False", "'phone': str"],
        (["country", "phone"], ("NA", "+491")),
    ),
    "headless.csv": (
        b"2024-01-01,start\n2024-01-02,stop\n",
        ["no row of headings", "2 rows", "header=None"],
        (["0", "1"], ("2024-01-01", "start")),
    ),
    "ragged.csv": (
        b"a,b\n1,2\n3,4,5\n6\n7,8\n",
        ["more or fewer values in lines 3, 4", "3,4,5", "names=['a', 'b', 'Unnamed: 2']"],
        (["a", "b"], ("1", "2")),
    ),
    "bigint.csv": (
        b"id,zip,parent\n9223372036854775808,01234,9007199254740993\n12345678901234567890,00501,\n",
        ["9223372036854775808,01234,9007199254740993", "'zip': str", "'parent': str"],
        (["id", "zip"], ("9223372036854775808", "01234")),
    ),
    "fake.xls": (
        b"a\tb\n1\t2\n3\t4\n",
        ["It is a text with a table of lines", "a (integer)", "read_csv"],
        (["a", "b"], ("1", "2")),
    ),
    "book.xlsx": (
        make_workbook([["Report"], [], ["id", "zip"], [1, "01234"], [2, "00501"]], [["x"]]),
        ["Sheet 'S0': 2 rows. 2 above the table. Columns: id, zip", "1,01234", "engine='calamine'"],
        (["id", "zip"], ("1", "01234")),
    ),
    "sheet.ods": (
        make_spreadsheet([["a", "b"], ["01", "x"]]),
        ["Sheet 'T': 1 rows. Columns: a, b", "01,x"],
        (["a", "b"], ("01", "x")),
    ),
}


async def test_tables_are_read_alike_for_the_model_and_the_page(open_bot):
    answers = [openai_server.text("Yes.")] * len(TABLES)
    untitled = settings.Sessions(model_titles=False)
    async with open_bot(*answers, sessions=untitled) as bot:
        for name, (data, told, (columns, first)) in TABLES.items():
            await bot.ask("What is it?", attachments=(attachment(name, data),))
            message = bot.server.requests[-1].messages[-1]["content"]
            table = await bot.service.files.open_table(KEY, name, ANNA)
            wanted = live_data_views.parse_request({"rows": [0, 3], "columns": [0, 3]})
            page = await bot.service.queries.read_table(KEY, table.handle, wanted, ANNA)
            call = message[message.index("pandas.read_") :].splitlines()[0]
            ran = await bot.run(f"import os; os.chdir('/mnt/data'); import pandas; print({call})")
            assert [words for words in told if words not in message] == [], name
            assert [column.name for column in page.columns[1:3]] == columns, name
            assert page.rows[0][1:3] == first, name
            assert all(note in message for note in table.notes if "stand above" not in note), name
            assert ran.end.status.value == "done", name


OTHERS = {
    "closed.xlsx": (OLE + b"\0" * 999 + "EncryptedPackage".encode("utf-16-le"), "by a password"),
    "page.xls": (b"<html><body><table><tr><td>1</td></tr></table></body></html>", "page of HTML"),
    "photo.heic": (b"\0\0\0\x18ftypheic" + b"\0" * 99, "a HEIC picture"),
    "photo.jpg": (b"\0\0\0\x18ftypheic" + b"\0" * 99, "a HEIC picture"),
    "data.7z": (b"7z\xbc\xaf\x27\x1c" + b"\0" * 99, "a 7-Zip archive. Nothing here reads it."),
    "data.sav": (b"$FL2@(#) SPSS DATA FILE" + b"\0" * 99, "data of SPSS"),
    "data.rds": (b"X\n\0\0\0\3" + b"\0" * 99, "data of R"),
    "data.dta": (b"<stata_dta><header>" + b"\0" * 99, "data of Stata. Read it with"),
    "broken.xlsx": (b"PK\x03\x04 and no more", "a damaged or incomplete zip archive"),
    "bytes.csv": (bytes(range(256)) * 9, "a binary file of an unknown kind"),
}


async def test_what_a_file_really_is_is_said_to_the_model_and_on_the_page(open_bot):
    attachments = [attachment(name, data) for name, (data, _) in OTHERS.items()]
    async with open_bot(openai_server.text("Yes.")) as bot:
        await bot.ask("What is it?", attachments=attachments)
        message = bot.server.requests[0].messages[-1]["content"]
        for name, (_, words) in OTHERS.items():
            assert words in message.split(f"'{name}'")[1].split("[The person sent")[0]
            if name.endswith(("csv", "xls", "xlsx")):
                with pytest.raises(errors.BotError, match=words):
                    await bot.service.files.open_table(KEY, name, ANNA)


@pytest.mark.slow
async def test_what_is_left_out_of_a_table_is_said(open_bot):
    async with open_bot() as bot:
        await bot.run(
            "open('r.csv', 'w').write('a,b\\n1,2\\n3,4,5\\n6\\n')\n"
            "open('l.csv', 'w').writelines(['a\\n', *['1\\n'] * 100_001])"
        )
        ragged = await bot.service.files.open_table(KEY, "r.csv", ANNA)
        wanted = live_data_views.parse_request({"rows": [0, 3], "columns": [0, 4]})
        page = await bot.service.queries.read_table(KEY, ragged.handle, wanted, ANNA)
        long = await bot.service.files.open_table(KEY, "l.csv", ANNA)
    assert [row[1:] for row in page.rows[1:]] == [("3", "4", "5"), ("6", None, None)]
    assert ragged.notes == ("There are 2 columns, but more or fewer values in lines 3, 4.",)
    assert long.notes == ("Only the beginning of this file is shown.",)


async def test_a_kernel_that_describes_a_file_of_an_absurd_number_fails_no_turn(open_bot):
    lies = """
import builtins
write = builtins.print
def print(text="", **options):
    write(text.replace(" 0\\n", f" {'9' * 5000}\\n") if text.startswith("--") else text, **options)
builtins.print = print
"""
    async with open_bot(openai_server.text("Yes.")) as bot:
        await bot.run(lies)
        reply = await bot.ask("What is it?", attachments=[attachment("a.csv", b"a\n1\n")])
    assert reply.end.text == "Yes."
