"""Steps that tests of Discord share."""

from tests import waiting


def is_final(channel):
    """Return whether the last answer in a channel is complete."""
    return bool(channel.bot_messages) and "Stop" not in channel.bot_messages[-1].buttons


def recent_text(request):
    """Return the messages before a request, as text."""
    return "\n".join(
        f"{message.speaker}: {message.text}{''.join(f' [{name}]' for name in message.files)}"
        for message in request.recent
    )


async def wait_for_thread(channel):
    """Wait for the first thread of a channel, and return it."""
    return await waiting.until(
        lambda: next((m.thread for m in channel.messages.values() if m.thread), None),
        subject="a thread",
    )


async def wait_for_answers(channel, count=1):
    """Wait until a channel has `count` answers and the last one is complete; returns them."""
    await waiting.until(
        lambda: len(channel.bot_messages) >= count and is_final(channel), subject="an answer"
    )
    return channel.bot_messages


async def wait_for_final_text(interaction):
    """Wait until the answer to an interaction is complete; returns its text."""

    def is_over():
        messages = interaction.messages
        return messages and not messages[-1].is_loading and "Stop" not in messages[-1].buttons

    await waiting.until(is_over, subject="the answer to an interaction")
    return interaction.text


async def ask_in_thread(server, person, channel, text="hello"):
    """Mention the bot and wait for its answer; returns the thread."""
    server.say(person, channel, f"{server.bot.mention} {text}")
    thread = await wait_for_thread(channel)
    await wait_for_answers(thread)
    return thread
