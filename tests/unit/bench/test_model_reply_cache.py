"""What was asked once is not asked again."""

import openai

from bench import model_reply_cache
from tests.fakes import openai_server as server


async def said(client, text, *, stops_after=1000):
    stream = await client.chat.completions.create(
        model="scripted", messages=[{"role": "user", "content": text}], stream=True
    )
    words = ""
    async with stream:
        async for chunk in stream:
            words += chunk.choices[0].delta.content or "" if chunk.choices else ""
            if len(words) >= stops_after:
                break
    return words


async def test_same_request_is_answered_from_the_file(tmp_path, capsys):
    async with server.Server([server.text("It is ", "42."), server.text("7")]) as behind:
        for _ in range(2):
            async with (
                model_reply_cache.serving(behind.base_url, tmp_path, api_key=behind.api_key) as url,
                openai.AsyncOpenAI(base_url=url, api_key="none") as client,
            ):
                assert await said(client, "How many?") == "It is 42."
                assert await said(client, "And then?") == "7"
    assert capsys.readouterr().out.splitlines() == ["Asked 2, known 0.", "Asked 0, known 2."]


async def test_reply_that_was_hung_up_on_is_kept_as_far_as_it_went(tmp_path):
    long = server.text("```python\n1\n```", *("more " for _ in range(50)), delay_seconds=0.02)
    async with (
        server.Server([long]) as behind,
        model_reply_cache.serving(behind.base_url, tmp_path, api_key=behind.api_key) as url,
        openai.AsyncOpenAI(base_url=url, api_key="none") as client,
    ):
        await said(client, "Code?", stops_after=15)
        await behind.until_hung_up()
        again = await said(client, "Code?")
    assert again.startswith("```python\n1\n```")
    assert len(again) < 200
