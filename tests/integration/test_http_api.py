"""The HTTP interface over a real loopback socket: programs with tokens, and some that mean harm."""

import asyncio
import base64
import contextlib
import io
import json

import aiohttp
import jsonschema
import pytest

from interpreter_bot import settings, values
from interpreter_bot.platforms import client_tokens, request_limits
from interpreter_bot.platforms.api import openapi, routes
from interpreter_bot.platforms.web import server
from tests import futures
from tests.fakes import conversations

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Program:
    """A program with a token."""

    def __init__(self, session, origin, token):
        self.session = session
        self.origin = origin
        self.headers = {"Authorization": f"Bearer {token}"}

    async def call(self, method, path, body=None, *, status=200, data=None, headers=()):
        """Send a request; return the document of the answer, or its bytes."""
        async with self.session.request(
            method,
            f"{self.origin}/v1{path}",
            json=body,
            data=data,
            headers=self.headers | dict(headers),
        ) as response:
            assert response.status == status, await response.text()
            is_json = response.content_type == "application/json"
            return await (response.json() if is_json else response.read())

    async def refused(self, method, path, body=None, **options):
        """The sentence by which a request is refused."""
        options.setdefault("status", 400)
        return (await self.call(method, path, body, **options))["error"]["message"]

    async def begin(self, **body):
        """Begin a session; return its path."""
        return "/sessions/" + (await self.call("POST", "/sessions", body, status=201))["id"]

    @contextlib.asynccontextmanager
    async def stream(self, path, **body):
        """The events that a message leads to."""
        async with self.session.post(
            f"{self.origin}/v1{path}/messages", json=body | {"stream": True}, headers=self.headers
        ) as response:
            assert response.content_type == "text/event-stream"
            yield _events(response)


async def _events(response):
    async for line in response.content:
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))


@pytest.fixture
def serving(tmp_path):
    """Serve scripted conversations: `async with serving(script, "anna") as (bot, anna, nobody)`."""

    @contextlib.asynccontextmanager
    async def serving(
        script=conversations.echo, *names, api_limits=request_limits.DEFAULT_LIMITS, **options
    ):
        data = tmp_path / "data"
        file = data / client_tokens.API_FILE
        tokens = [client_tokens.add(file, name) for name in names]
        config = settings.Web(listen="127.0.0.1:0")
        opened = conversations.opened(tmp_path, script, web=config, **options)
        async with (
            opened as bot,
            server.serve(
                futures.completed_future(bot),
                config,
                data,
                open_api=lambda service: routes.Api(service, data, api_limits).answer,
            ) as address,
            aiohttp.ClientSession() as session,
        ):
            origin = address.partition("/?")[0]
            yield bot, *(Program(session, origin, token) for token in (*tokens, "nobody's"))

    return serving


async def work(turn):
    """Say something, run code that shows a picture and makes a file, and answer."""
    turn.reply.step(1)
    turn.reply.text("I look.")
    await turn.run(0, "look()", "seen\n", values.Image(mime="image/png", data=PNG, plain="Figure"))
    turn.make(0, "a b.csv", b"1,2\n")
    turn.reply.step(2)
    turn.reply.text("Done.")
    turn.reply.usage(values.Usage(input_tokens=7, output_tokens=3, steps=2))
    return "Done."


async def test_a_message_is_answered_whole_or_event_by_event(serving):
    async with serving(work, "anna") as (bot, anna, _):
        path = await anna.begin(title="Look")
        whole = await anna.call("POST", f"{path}/messages", {"text": "Look"})
        assert (whole["status"], whole["text"], whole["code"]) == ("done", "Done.", ["look()"])
        assert [output["type"] for output in whole["outputs"]] == ["stdout", "image"]
        assert base64.b64decode(whole["outputs"][1]["data"]) == PNG
        assert whole["files"] == [{"name": "a b.csv", "size_bytes": 4}]
        used = {"input_tokens": 7, "output_tokens": 3, "steps": 2}
        assert whole["usage"] | used == whole["usage"]
        async with anna.stream(path, text="Look") as events:
            kinds = [event["type"] async for event in events]
        assert kinds[0] == "begun"
        assert kinds[-1] == "over"
        assert {"text", "code", "stdout", "image", "finished", "artifact", "usage"} < {*kinds}
        (listed,) = (await anna.call("GET", "/sessions"))["sessions"]
        assert (listed["title"], f"/sessions/{listed['id']}") == ("Look", path)
        assert {request.person.id for request in bot.requests} == {"anna"}
        assert await anna.call("DELETE", path) == {"done": True}
        assert (await anna.call("GET", "/sessions"))["sessions"] == []


async def test_files_go_up_and_down(serving):
    async def read(turn):
        return ", ".join(f"{name}: {data}" for name, data in sorted(turn.files.items()))

    limits = settings.Limits(upload_bytes=1_000_000)
    async with serving(read, "anna", limits=limits) as (_, anna, _):
        path = await anna.begin()
        data = bytes(range(256)) * 2000
        stored = await anna.call("PUT", f"{path}/files/a%20b.bin", data=data, status=201)
        assert stored == {"name": "a b.bin"}
        again = await anna.call("PUT", f"{path}/files/a%20b.bin", data=b"x", status=201)
        assert again["name"] != "a b.bin", "nothing is replaced"
        assert await anna.call("GET", f"{path}/files/a%20b.bin") == data
        files = (await anna.call("GET", f"{path}/files"))["files"]
        assert {"name": "a b.bin", "size_bytes": len(data)} in files
        await anna.call("DELETE", f"{path}/files/a%20b.bin")
        missing = await anna.refused("GET", f"{path}/files/a%20b.bin", status=404)
        assert missing.startswith("There is no such")
        for name in ("..%2F..%2Fx", "%2Fetc%2Fpasswd", "a%00b", "%ED%A0%80", "x" * 3000):
            put = await anna.call("PUT", f"{path}/files/{name}", data=b"x", status=201)
            assert ".." not in put["name"]
            assert not put["name"].startswith("/")
        assert "too large" in await anna.refused(
            "PUT", f"{path}/files/x", data=b"x" * 1_000_001, status=413
        )


async def test_a_question_waits_for_its_answer_and_for_nobody_elses(serving):
    async def ask(turn):
        await turn.reply.code(0, "input()")
        answer = await turn.reply.ask(0, values.InputRequested("Name?", is_password=False))
        turn.reply.finished(0, conversations.finished_well())
        return f"Hello {answer}"

    async with serving(ask, "anna", "ben") as (_, anna, ben, _):
        path, others = await anna.begin(), await ben.begin()
        async with anna.stream(path, text="x", attended=True) as events:
            async for event in events:
                if event["type"] == "input":
                    answer = {"id": event["id"], "answer": "Eve"}
                    assert await ben.refused("POST", f"{others}/answers", answer)
                    assert await ben.refused("POST", f"{path}/answers", answer, status=404)
                    answer["answer"] = "Anna"
                    elsewhere = await anna.begin()
                    assert await anna.refused("POST", f"{elsewhere}/answers", answer)
                    assert await anna.call("POST", f"{path}/answers", answer) == {"done": True}
                last = event
        assert last["text"] == "Hello Anna"
        unattended = await anna.call("POST", f"{path}/messages", {"text": "x"})
        assert "nobody" in unattended["reason"].lower()


async def test_a_client_that_goes_away_stops_its_turn(serving):
    began = asyncio.Event()

    async def wait(turn):
        began.set()
        await asyncio.sleep(600)

    async with serving(wait, "anna") as (bot, anna, _):
        path = await anna.begin()
        for is_stream in (True, False):
            began.clear()
            body = {"text": "x", "stream": is_stream}
            leaving = asyncio.create_task(anna.call("POST", f"{path}/messages", body))
            await asyncio.wait_for(began.wait(), 60)
            leaving.cancel()
            async with asyncio.timeout(60):
                while bot.running:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        await bot.wait_until_idle()
        history = await bot.queries.history(bot.requests[0].key)
        assert {turn.record.status for turn in history} == {values.TurnStatus.STOPPED}
        began.clear()
        staying = asyncio.create_task(anna.call("POST", f"{path}/messages", {"text": "x"}))
        await asyncio.wait_for(began.wait(), 60)
        assert await anna.call("POST", f"{path}/stop") == {"done": True}
        assert (await staying)["status"] == "stopped"


async def test_no_client_reaches_what_is_anothers(serving):
    async with serving(work, "anna", "ben") as (bot, anna, ben, nobody):
        path = await anna.begin(title="secret")
        await anna.call("POST", f"{path}/messages", {"text": "Look"})
        await anna.call("PUT", f"{path}/files/secret.txt", data=b"x", status=201)
        session = path.rpartition("/")[2]
        calls = (
            ("POST", "/messages", {"text": "x"}),
            ("POST", "/messages", {"code": "x", "stream": True}),
            ("POST", "/answers", {"id": "1", "answer": "yes"}),
            ("POST", "/stop", None),
            ("GET", "/files", None),
            ("GET", "/files/secret.txt", None),
            ("DELETE", "/files/secret.txt", None),
            ("DELETE", "", None),
        )
        before = len(bot.requests)
        for name in (session, f"..%2Fanna%2F{session}", f"anna%2F{session}", "%C3%A9", "s" * 5000):
            for method, rest, body in calls:
                said = await ben.refused(method, f"/sessions/{name}{rest}", body, status=404)
                assert said in ("There is no such session.", routes.api_words.NO_SUCH_ADDRESS)
        said = await ben.refused("PUT", f"{path}/files/x", data=b"x", status=404)
        assert said == "There is no such session."
        assert (await ben.call("GET", "/sessions"))["sessions"] == []
        for method, rest, body in (*calls, ("GET", "/files", None)):
            assert "token" in await nobody.refused(method, f"{path}{rest}", body, status=401)
        for anywhere in ("/sessions", "/models", "/openapi.json", "/nothing"):
            assert "token" in await nobody.refused("GET", anywhere, status=401)
        assert len(bot.requests) == before
        assert (await anna.call("GET", f"{path}/files"))["files"] != []


async def test_a_removed_client_is_refused_at_once(serving, tmp_path):
    async with serving(work, "anna") as (_, anna, _):
        await anna.begin()
        client_tokens.remove(tmp_path / "data" / client_tokens.API_FILE, "anna")
        assert "token" in await anna.refused("POST", "/sessions", {}, status=401)


async def test_tokens_of_page_mcp_and_api_are_worth_nothing_to_each_other(serving, tmp_path):
    other = client_tokens.add(tmp_path / "data" / client_tokens.MCP_FILE, "anna")
    async with serving(work, "anna") as (_, anna, nobody):
        page = (tmp_path / "data" / "web-token").read_text().strip()
        for token in (other, page):
            nobody.headers = {"Authorization": f"Bearer {token}"}
            assert await nobody.refused("GET", "/sessions", status=401)
        for path in ("/", "/live", "/download?thread=x"):
            async with anna.session.get(anna.origin + path, headers=anna.headers) as response:
                assert response.status == 401
        evil = {"Host": "evil.example"}
        async with anna.session.get(
            f"{anna.origin}/v1/sessions", headers=anna.headers | evil
        ) as response:
            assert response.status == 421


async def test_hostile_bodies_are_refused_in_a_sentence(serving):
    async with serving(work, "anna") as (bot, anna, _):
        path = await anna.begin()
        deep = b'{"text": ' + b"[" * 100_000
        for data, status in (
            (b"\xff", 400),
            (b'{"text": "\\ud800"}', 400),
            (b"null", 400),
            (b"[]", 400),
            (deep, 400),
            (b'{"text": 7}', 400),
            (b'{"text": "x", "extra": 1}', 400),
            (b'{"text": "x", "code": "y"}', 400),
            (json.dumps({"text": "x" * 200_000}).encode(), 400),
            (b'{"files": ["' + b"x" * 500 + b'"]}', 400),
            (io.BytesIO(b" " * 2_000_000), 413),
        ):
            said = await anna.refused("POST", f"{path}/messages", data=data, status=status)
            assert said.endswith(".")
            assert len(said) < 1000
        unknown = await anna.refused("POST", "/sessions", {"model": "nothing"})
        assert "nothing" in unknown
        assert bot.requests == []
        odd = json.dumps({"text": "a\x00b\u202e"}).encode()
        await anna.call("POST", f"{path}/messages", data=odd, status=200)
        for method, where in (("PATCH", path), ("GET", "/sessions/x/y/z"), ("POST", "/")):
            assert "nothing at this address" in await anna.refused(method, where, status=404)


async def test_bodies_of_unanswered_requests_are_limited_per_client_and_in_all(serving):
    answer = asyncio.Event()

    async def wait(turn):
        await answer.wait()
        return "Done."

    limits = request_limits.Limits(client_body_bytes=100_000, total_body_bytes=150_000)
    async with serving(wait, "anna", "ben", api_limits=limits) as (bot, anna, ben, _):
        large = {"text": "x" * 80_000}
        paths = [await client.begin() for client in (anna, anna, ben, ben)]
        waiting = asyncio.create_task(anna.call("POST", f"{paths[0]}/messages", large))
        async with asyncio.timeout(60):
            while not bot.running:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        for _ in range(3):
            sentence = await anna.refused("POST", f"{paths[1]}/messages", large, status=429)
        assert sentence.startswith("Your requests that are not answered yet have more than")
        sentence = await ben.refused("POST", f"{paths[2]}/messages", large, status=503)
        assert sentence.endswith("Send the request again in a minute.")
        # Many small values take more memory than their text.
        many = {"messages": [{"role": "user", "content": [{"type": "text", "x": [{}] * 900}]}]}
        assert len(json.dumps(many)) < 5_000
        await ben.refused("POST", "/chat/completions", many, status=429)
        assert [request.person.id for request in bot.requests] == ["anna"]
        answer.set()
        assert (await waiting)["text"] == "Done."
        for client, path in zip((anna, anna, ben, ben), paths, strict=True):
            assert (await client.call("POST", f"{path}/messages", large))["text"] == "Done."


async def test_a_session_may_begin_without_a_body(serving):
    async with serving(conversations.echo, "anna") as (_, anna, _):
        begun = await anna.call("POST", "/sessions", data=b"", status=201)
        assert begun["id"] in {
            row["id"] for row in (await anna.call("GET", "/sessions"))["sessions"]
        }
        sentence = await anna.refused("POST", f"/sessions/{begun['id']}/answers", data=b"")
        assert "Field required" in sentence


async def test_sessions_of_a_client_are_limited(serving):
    limits = request_limits.Limits(client_sessions=2)
    async with serving(work, "anna", "ben", api_limits=limits) as (_, anna, ben, _):
        path, _ = await anna.begin(), await anna.begin()
        assert "You have 2 sessions" in await anna.refused("POST", "/sessions", {})
        await ben.begin()
        await anna.call("DELETE", path)
        await anna.begin()
        # A chat in a program such as Open WebUI cannot delete sessions, so it is answered.
        chat = {"messages": [{"role": "user", "content": "Look"}]}
        assert (await anna.call("POST", "/chat/completions", chat))["choices"]


async def test_whatever_code_and_models_say_arrives(serving):
    odd = (
        "\x00\x1b[2J",
        "\udc80",
        "\u202egnp.exe",
        "a\r\n\n\ndata: x\r\r",
        "é" * 5_000,
        "</script>",
    )

    async def say(turn):
        turn.reply.step(1)
        turn.reply.text("".join(odd))
        shown = [values.Text("stdout", text) for text in odd]
        shown += [values.Result(plain=text) for text in odd]
        shown += [values.Error("E", odd[1], odd[1]), values.Html(html=b"\xff<b>", title=odd[1])]
        await turn.run(0, odd[1], *shown, reason=odd[1])
        turn.make(0, "\udc80.txt", b"x")
        turn.reply.announcement(0, odd[1])
        return "".join(odd)

    async with serving(say, "anna") as (_, anna, _):
        path = await anna.begin(title=odd[0], model="")
        whole = await anna.call("POST", f"{path}/messages", {"text": "x"})
        assert whole["status"] == "done"
        assert "gnp.exe" in whole["text"]
        assert len(whole["outputs"]) > len(odd)
        async with anna.stream(path, text="x") as events:
            received = [event async for event in events]
        assert received[-1]["type"] == "over"
        assert any(event["type"] == "html" and event["html"].endswith("<b>") for event in received)
        message = {"role": "user", "content": "x"}
        chat = await anna.call("POST", "/chat/completions", {"messages": [message]})
        assert "gnp.exe" in chat["choices"][0]["message"]["content"]
        assert len((await anna.call("GET", "/sessions"))["sessions"]) == 2


@pytest.mark.first_case
@pytest.mark.parametrize("count", [20, 100])
async def test_many_clients_at_once_get_their_own_answers(serving, count):
    async def tell(turn):
        await asyncio.sleep(0.05)
        return f"{turn.request.text} for {turn.request.person.id}"

    names = [f"client-{number}" for number in range(count)]
    async with serving(tell, *names) as (_, *programs):

        async def talk(number, program):
            path = await program.begin()
            for text in (f"one {number}", f"two {number}"):
                answer = await program.call("POST", f"{path}/messages", {"text": text})
                assert answer["text"] == f"{text} for client-{number}", answer

        await asyncio.gather(*map(talk, range(count), programs))


async def test_the_description_is_openapi_of_all_requests(serving):
    async with serving(work, "anna") as (_, anna, _):
        description = await anna.call("GET", "/openapi.json")
        assert description["openapi"] == "3.1.0"
        operations = {
            (method.upper(), path)
            for path, methods in description["paths"].items()
            for method in methods
        }
        assert operations == {(route.method, route.path) for route in routes.ROUTES}
        schemas = description["components"]["schemas"]
        for schema in schemas.values():
            jsonschema.Draft202012Validator.check_schema(schema)
        named = set(json.dumps(description).split("#/components/schemas/")[1:])
        assert {name.partition('"')[0] for name in named} <= schemas.keys()
        whole = await anna.call("POST", f"{await anna.begin()}/messages", {"text": "x"})
        root = {"$ref": "#/components/schemas/Answer", "components": description["components"]}
        jsonschema.Draft202012Validator(root).validate(whole)
        assert openapi.describe(routes.ROUTES) == description
