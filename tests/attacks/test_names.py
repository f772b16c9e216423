"""Names that files can have: shown harmlessly, and leading to their own file only."""

import pytest

from interpreter_bot import errors
from tests.attacks import harness

pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="session")]
NAMES = {
    "newline": b"a\nb",
    "escape": b"a\x1b[31mb",
    "carriage return": b"a\rb",
    "right to left": "a\u202efdp.exe".encode(),
    "zero width": "a\u200bb".encode(),
    "slash of another kind": "a\u2215..\u2215b".encode(),
    "full width slash": "..\uff0f..\uff0fetc".encode(),
    "invalid UTF-8": b"a\xff\xfeb",
    "overlong UTF-8": b"a\xc0\xafb",
    "surrogate": b"a\xed\xa0\x80b",
    "longest": b"x" * 255,
    "longest of others": "\u00e9".encode() * 127,
    "leading dash": b"-rf",
    "leading dots": b"...",
    "tilde": b"~root",
    "backslashes": b"..\\..\\x",
    "mention": b"@everyone",
    "markup": b"<img src=x>",
    "shell": b"$(id);`id`",
    "space": b" ",
    "drive": b"c:x",
    "composed": "e\u0301".encode(),
}


@pytest.mark.parametrize("kind", NAMES)
async def test_name_is_shown_harmlessly_and_leads_to_its_file(run, files, kind):
    made = await run(f"open({NAMES[kind]!r}, 'w').write('content')")
    assert not made.errors
    workspace = await files()

    (info,) = await workspace.list()

    assert info.name.isprintable()
    assert "/" not in info.name
    assert not set(info.name) & {"\u2215", "\uff0f", "\u202e", "\u200b", "\n", "\x1b"}
    assert await harness.read_artifact(workspace, info.name) == b"content"


@pytest.mark.parametrize(
    "name",
    [
        "../data/x",
        "/etc/passwd",
        "..",
        ".",
        "",
        "x/../x",
        "x\0y",
        "//x",
        "d/../../../etc/passwd",
        "\\x2e\\x2e/x",
        "x" * 5000,
        "a/" * 3000,
    ],
    ids=repr,
)
async def test_name_that_leads_elsewhere_is_refused(run, files, name):
    await run("open('x', 'w').close()")
    workspace = await files()

    with pytest.raises(errors.WorkspaceError):
        await harness.read_file(workspace, name)


async def test_two_names_that_look_alike_are_two_files(run, files):
    await run(
        "open('e\\u0301', 'w').write('1'); open('\\xe9', 'w').write('2');"
        " open('a\\\\x0ab', 'w').write('3'); open('a\\nb', 'w').write('4')"
    )
    workspace = await files()

    infos = await workspace.list()

    contents = {await harness.read_artifact(workspace, info.name) for info in infos}
    assert contents == {b"1", b"2", b"3", b"4"}
    assert len({info.name for info in infos}) == 4
