"""What stands on the screen after outputs came."""

from interpreter_bot import values
from interpreter_bot.text import output_screens


def out(text):
    return values.Text("stdout", text)


def err(text):
    return values.Text("stderr", text)


def display(plain, name=None, *, is_update=False):
    return values.Result(plain=plain, display_id=name, is_update=is_update)


def shown(*outputs):
    screen = output_screens.Screen()
    for output in outputs:
        screen.show(output)
    return screen.outputs


def test_text_of_one_stream_is_one():
    assert shown(out("a"), out("b\n"), out("c")) == (out("ab\nc"),)


def test_things_stand_in_the_order_in_which_they_came():
    assert shown(out("a"), err("b"), out("c"), display("d"), out("e")) == (
        out("a"),
        err("b"),
        out("c"),
        display("d"),
        out("e"),
    )


def test_a_bar_is_one_line_though_other_things_are_shown_meanwhile():
    assert shown(
        err("\r  0%"), out("hello\n"), err("\r 50%"), display("d"), err("\r100%\nover\n")
    ) == (err("100%\n"), out("hello\n"), display("d"), err("over\n"))


def test_a_bar_that_returns_at_its_end_is_one_line_too():
    assert shown(err("1%\r"), out("x\n"), err("2%\r")) == (err("2%"), out("x\n"))


def test_clearing_empties_the_screen():
    assert shown(out("a"), display("b"), values.Clear(wait=False)) == ()


def test_clearing_that_waits_empties_it_when_something_follows():
    clear = values.Clear(wait=True)
    assert shown(out("a"), clear) == (out("a"),)
    assert shown(out("a"), clear, out("b")) == (out("b"),)
    assert shown(out("a"), clear, values.Clear(wait=False), out("b"), out("c")) == (out("bc"),)


def test_an_update_takes_the_place_of_every_display_it_is_for():
    assert shown(
        display("1", "x"), out("a"), display("1", "x"), display("2", "x", is_update=True)
    ) == (display("2", "x", is_update=True), out("a"), display("2", "x", is_update=True))


def test_an_update_of_what_is_gone_is_shown():
    update = display("2", "x", is_update=True)
    assert shown(update) == (update,)
    assert shown(display("1", "x"), values.Clear(wait=False), update) == (update,)


def test_a_number_names_a_thing_for_as_long_as_it_stands():
    screen = output_screens.Screen()
    screen.show(out("a"))
    screen.show(display("1", "x"))
    (text, first) = screen.items
    screen.show(display("2", "x", is_update=True))
    assert screen.items[0] == text
    assert screen.items[1].number == first.number
    assert screen.items[1].output != first.output
    screen.show(values.Clear(wait=False))
    screen.show(out("b"))
    assert screen.items[0].number not in {text.number, first.number}


def test_text_that_came_to_nothing_is_not_there():
    assert shown(out("\x1b[0m")) == ()
