"""What scenarios have in common."""

from tests.fakes.discord_server import rules


def is_final(channel):
    """The last answer there is not being written any more."""
    return bool(channel.of_bots) and "Stop" not in channel.of_bots[-1].buttons


def recent(request):
    """What was said before a request, as text."""
    return "\n".join(
        f"{said.speaker}: {said.text}{''.join(f' [{name}]' for name in said.files)}"
        for said in request.recent
    )


async def thread_in(channel):
    """Wait for the first thread of a channel."""
    return await rules.wait_until(
        lambda: next((m.thread for m in channel.messages.values() if m.thread), None),
        what="a thread",
    )


async def answered(channel, count=1):
    """Wait until so many answers stand in a channel and the last is final."""
    await rules.wait_until(
        lambda: len(channel.of_bots) >= count and is_final(channel), what="an answer"
    )
    return channel.of_bots


async def finished(interaction):
    """Wait until an interaction has been answered for good; all its words."""

    def is_over():
        messages = interaction.messages
        return messages and not messages[-1].is_loading and "Stop" not in messages[-1].buttons

    await rules.wait_until(is_over, what="the answer to an interaction")
    return interaction.text


async def ask_in_thread(server, person, channel, text="hello"):
    """Mention the bot and wait for its answer: the thread."""
    server.say(person, channel, f"{server.bot.mention} {text}")
    thread = await thread_in(channel)
    await answered(thread)
    return thread
