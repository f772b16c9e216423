"""An audience that remembers, and insists on what `ports.Audience` promises."""

import io

from interpreter_bot import errors


class _Saving(io.BytesIO):
    def __init__(self, audience, name):
        super().__init__()
        self._audience = audience
        self._name = name

    def complete(self):
        assert not self.closed
        self._audience.files[self._name] = self.getvalue()

    def close(self):
        self._audience.open_files.discard(self)
        super().close()


class Audience:
    """Answers from a list; raises `faults` by name of method."""

    def __init__(self, *, answers=(), faults=None, is_keeping=True):
        self._answers = list(answers)
        self._is_keeping = is_keeping
        self.faults = dict(faults or {})
        self.heard = []
        self.files = {}
        self.open_files = set()
        self._ended = -1

    def _hear(self, cell, method, what):
        assert cell == self._ended + 1, "cells end in order, and are silent after"
        if method in self.faults:
            raise self.faults[method]
        self.heard.append((cell, method, what))

    def announcement(self, cell, text):
        assert text
        self._hear(cell, "announcement", text)

    def output(self, cell, output):
        self._hear(cell, "output", output)

    async def ask(self, cell, request):
        self._hear(cell, "ask", request)
        if not self._answers:
            raise errors.BotError("Nobody answers.")
        return self._answers.pop(0)

    def save(self, cell, name):
        self._hear(cell, "save", name)
        if not self._is_keeping:
            return None
        saving = _Saving(self, name)
        self.open_files.add(saving)
        return saving

    def artifact(self, cell, artifact):
        assert not self.open_files
        self._hear(cell, "artifact", artifact)

    def finished(self, cell, finished):
        self._hear(cell, "finished", finished)
        self._ended = cell

    def of(self, method):
        """What was heard by one method, as (cell, what)."""
        return [(cell, what) for cell, heard, what in self.heard if heard == method]

    @property
    def endings(self):
        return [finished.ending.value for _, finished in self.of("finished")]
