"""Calls of the bot into kernels: what the bot may call is what a kernel answers."""

import inspect
import types

import pytest

from interpreter_bot import kernel_calls
from interpreter_bot.guest import bot_calls

CALLS = {
    name: call
    for name, call in vars(kernel_calls).items()
    if isinstance(call, types.FunctionType) and not name.startswith("_")
}


@pytest.mark.parametrize("name", bot_calls.CALLS.keys() | CALLS)
def test_the_kernel_has_each_call_with_the_same_parameters(name):
    _, *kernel_parameters = inspect.signature(bot_calls.CALLS[name]).parameters
    assert kernel_parameters == list(inspect.signature(CALLS[name]).parameters)


@pytest.mark.parametrize("text", ["'\"\\", "a\nb\r\u2028%x!y?", "\ud800\0", "{0}", "é☃"])
def test_arguments_arrive_unchanged(text):
    answers = []
    shell = types.SimpleNamespace(answer_bot=lambda *arguments: answers.append(arguments))
    code = kernel_calls.describe_files([text, "b"], text)
    assert code.isprintable()
    eval(code, {"get_ipython": lambda: shell})
    assert answers == [("describe_files", [text, "b"], text)]
