"""What people send and code draws, as a model sees it: made small in the sandbox, remembered."""

import io
import itertools
import struct
import zlib

import pytest
from PIL import Image

from interpreter_bot import settings, values
from tests.fakes import openai_server
from tests.integration.sessions.conftest import KEY, attachment

pytestmark = pytest.mark.kernel

LOOKING = {"decodes": True}


def make_picture(mode="RGB", size=(400, 300), kind="PNG", **options):
    image = Image.new(mode, size)
    image.paste(image.getpixel((0, 0)) if mode == "P" else "white", (0, 0, size[0] // 2, size[1]))
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **options)
    return buffer.getvalue()


def make_photograph(size):
    """Return a photograph whose EXIF data has a place, and a rotation by 90°."""
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010E] = "secret place"
    return make_picture(size=size, kind="JPEG", exif=exif)


def make_png_bomb(width, height, rows):
    """Return a small PNG that decodes to `rows` rows of the size that its header declares."""

    def chunk(name, data):
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    data = zlib.compress(bytes((4 * width + 1) * rows), 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def load_shown_pictures(bot, number=-1):
    contents = openai_server.decode_pictures(bot.server.requests[number].body)
    return [Image.open(io.BytesIO(content)) for content in contents]


async def test_a_photograph_is_seen_small_upright_and_without_its_secrets(open_bot):
    picture_data = make_photograph((4000, 3000))
    async with open_bot(openai_server.text("A wall."), server_options=LOOKING) as bot:
        reply = await bot.ask("What is it?", attachments=(attachment("me.jpg", picture_data),))
        (shown,) = load_shown_pictures(bot)
        (data,) = openai_server.decode_pictures(bot.server.requests[0].body)
    assert reply.end.text == "A wall."
    assert (shown.format, shown.size) == ("JPEG", (1176, 1568))
    assert b"secret" not in data
    assert not shown.getexif()
    assert len(data) < 1024 * 1024


KINDS = [
    ("cat.txt", make_picture(), (400, 300)),
    ("a.gif", make_picture("P", kind="GIF"), (400, 300)),
    ("b.webp", make_picture("RGBA", kind="WEBP"), (400, 300)),
    ("c.png", make_picture("RGBA", size=(3000, 100)), (1568, 52)),
    ("d.png", make_picture("LA"), (400, 300)),
    ("e.png", make_picture("1"), (400, 300)),
    ("f.jpg", make_picture("CMYK", kind="JPEG"), (400, 300)),
    ("g.jpg", make_picture("L", size=(1, 9000), kind="JPEG"), (1, 1568)),
]


@pytest.mark.slow
async def test_pictures_of_all_kinds_are_seen_whatever_they_are_called(open_bot):
    attachments = [attachment(name, data) for name, data, _ in KINDS]
    script = [openai_server.text("ok"), openai_server.text("ok")]
    async with open_bot(*script, server_options=LOOKING) as bot:
        await bot.ask("look", attachments=tuple(attachments[:4]))
        await bot.ask("and here", attachments=tuple(attachments[4:]))
        sizes = [one.size for one in load_shown_pictures(bot)]
    assert sizes == [size for _, _, size in KINDS]


async def test_bombs_and_trash_are_not_seen_and_harm_nobody(open_bot):
    noise = make_picture(size=(1200, 1200))
    hostile = [
        attachment("bomb.png", make_png_bomb(60_000, 60_000, 1)),
        attachment("heavy.png", make_png_bomb(7900, 7900, 7900)),
        attachment("short.png", noise[: len(noise) // 2]),
        attachment("empty.png", b"\x89PNG\r\n\x1a\n"),
    ]
    others = [
        attachment("text.png", b"just words"),
        attachment("page.jpg", b"<svg onload=alert(1)>"),
        attachment("fine.png", make_picture()),
    ]
    script = [openai_server.code("kept = 1"), openai_server.text("a")]
    script += [openai_server.text("b"), openai_server.code("print(kept)"), openai_server.text("c")]
    limits = settings.Limits(memory_bytes=1024**3)
    async with open_bot(*script, server_options=LOOKING, limits=limits) as bot:
        await bot.ask("go")
        await bot.ask("look", attachments=tuple(hostile))
        assert load_shown_pictures(bot) == []
        reply = await bot.ask("and these?", attachments=tuple(others))
        (shown,) = load_shown_pictures(bot)
        assert bot.server.refusals == []
    assert [output.plain for output in reply.contents("output")] == ["1\n"]
    assert shown.size == (400, 300)


@pytest.mark.slow
async def test_more_pictures_than_may_be_shown_are_told_in_words(open_bot):
    attachments = tuple(attachment(f"{n}.png", make_picture(size=(10 + n, 10))) for n in range(6))
    async with open_bot(openai_server.text("ok"), server_options=LOOKING) as bot:
        await bot.ask("look", attachments=attachments)
        assert [one.width for one in load_shown_pictures(bot)] == [10, 11, 12, 13]
        assert "5.png" in str(bot.server.requests[0].body)


@pytest.mark.slow
async def test_the_model_looks_at_what_lies_in_the_workspace(open_bot):
    """An attachment beyond those shown at once, and a file that code saved; from any directory."""
    saving = (
        "import os; from PIL import Image; Image.new('L', (3000, 90)).save('p.png'); os.chdir('/')"
    )
    script = [
        openai_server.code(saving),
        *(openai_server.call("view_image", {"name": name}) for name in ("5.png", "p.png", "../x")),
        openai_server.text("ok"),
    ]
    attachments = tuple(attachment(f"{n}.png", make_picture(size=(10 + n, 10))) for n in range(6))
    async with open_bot(*script, server_options=LOOKING) as bot:
        await bot.ask("look", attachments=attachments)
        assert [one.size for one in load_shown_pictures(bot)][4:] == [(15, 10), (1568, 47)]
        assert "This could not be done" in bot.server.requests[-1].messages[-1]["content"]


DRAWING = """
import io
from PIL import Image as pillow
from IPython.display import Image, display
for side in ({sides}):
    buffer = io.BytesIO()
    pillow.radial_gradient("L").resize((side, side)).save(buffer, format="PNG")
    display(Image(data=buffer.getvalue()))
"""


@pytest.mark.slow
async def test_plots_are_seen_again_in_later_turns_and_after_a_restart(open_bot):
    drawing = DRAWING.format(sides="300, 1900")
    script = [openai_server.code(drawing), openai_server.text("a"), openai_server.text("b")]
    async with open_bot(*script, server_options=LOOKING) as bot:
        file_attachment = attachment("x.png", make_picture())
        reply = await bot.ask("draw", attachments=(file_attachment,))
        await bot.ask("and?")
        first = openai_server.decode_pictures(bot.server.requests[1].body)
        sizes = [one.size for one in load_shown_pictures(bot)]
        bodies = [request.messages for request in bot.server.requests]
        (turn, _) = await bot.service.queries.history(KEY)
    async with open_bot(openai_server.text("c"), server_options=LOOKING) as bot:
        await bot.ask("and now?")
        again = openai_server.decode_pictures(bot.server.requests[0].body)
        bodies.append(bot.server.requests[0].messages)
    assert sizes == [(400, 300), (300, 300), (1568, 1568)]
    assert again == first
    for before, after in itertools.pairwise(bodies):
        assert after[: len(before)] == before
    # People see what they saw: what code showed, as large as it was.
    assert (
        len([output for output in reply.contents("output") if isinstance(output, values.Image)])
        == 2
    )
    assert len([event for event in turn.events if hasattr(event, "output")]) == 2


@pytest.mark.slow
async def test_a_blind_models_people_wait_for_no_scaling(open_bot):
    script = [openai_server.text("ok")]
    async with open_bot(*script, model={"can_see_images": False}) as bot:
        await bot.ask("look", attachments=(attachment("x.png", make_picture()),))
        assert load_shown_pictures(bot) == []
        assert "A picture of 400x300 pixels" in str(bot.server.requests[0].body)
