"""What could not be written is tried again, in order, and not for ever."""

from interpreter_bot.sessions import write_retries


class Pen:
    """Writes when it can."""

    def __init__(self):
        self.works = False
        self.written = []

    def __call__(self, what):
        async def write():
            if self.works:
                self.written.append(what)
            return self.works

        return write


async def test_what_was_not_written_is_written_later_in_order():
    due, pen = write_retries.WriteRetries(), Pen()
    due.add(pen("one"))
    due.add(pen("two"))
    await due.write()
    assert len(due) == 2
    pen.works = True
    await due.write()
    await due.write()
    assert pen.written == ["one", "two"]


async def test_it_does_not_grow_without_end_and_the_oldest_go():
    due, pen = write_retries.WriteRetries(), Pen()
    for number in range(25):
        due.add(pen(number))
    pen.works = True
    await due.write()
    assert pen.written == list(range(5, 25))


async def test_what_never_can_be_written_does_not_stand_before_the_rest_for_ever():
    now = 0.0
    due, never, pen = write_retries.WriteRetries(clock=lambda: now), Pen(), Pen()
    due.add(never("lost"))
    now = 3599.0
    due.add(pen("kept"))
    await due.write()
    assert len(due) == 2
    now, pen.works = 3601.0, True
    await due.write()
    assert (len(due), pen.written) == (0, ["kept"])
