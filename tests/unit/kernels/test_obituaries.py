"""What is remembered of kernels that are gone, and for how long."""

from interpreter_bot.kernels import obituaries


def test_the_latest_reason_is_told_until_it_is_forgotten():
    book = obituaries.Obituaries()
    book.write("a", "First.")
    book.write("a", "Second.")
    assert book.of("a") == "Second."
    book.forget("a")
    assert book.of("a") == ""
    assert len(book) == 0


def test_an_end_that_was_asked_for_has_no_reason_to_tell():
    book = obituaries.Obituaries()
    book.write("a", "First.")
    book.write("a", "")
    assert len(book) == 0


def test_however_many_sessions_never_come_back_only_so_many_are_remembered():
    book = obituaries.Obituaries(most_sessions=3)
    for number in range(1000):
        book.write(f"session {number}", "It was let go.")
    assert len(book) == 3
    assert book.of("session 996") == ""
    assert book.of("session 997") == "It was let go."


def test_whoever_lost_one_again_is_remembered_longest():
    book = obituaries.Obituaries(most_sessions=2)
    for key in ("a", "b", "a", "c"):
        book.write(key, key)
    assert [book.of(key) for key in "abc"] == ["a", "", "c"]
