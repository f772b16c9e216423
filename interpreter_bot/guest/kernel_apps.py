"""The kernel application: ipykernel on inherited sockets, with a kernel made before the fork."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import gc
import json
import logging
import math
import os
import signal
import ssl
import sys
import threading
import warnings
from typing import Any, ClassVar

import zmq
from ipykernel import ipkernel, kernelapp
from jupyter_client import jsonutil
from jupyter_client import session as sessions
from traitlets import config
from zmq.eventloop import zmqstream

from . import (
    background_errors,
    compact_tracebacks,
    completions,
    control_messages,
    html_displays,
    interpreter_state,
    iopub_threads,
    ipython_shells,
    kernel_processes,
    nested_loops,
    open_files,
    preloads,
    standard_input,
    standard_streams,
    tool_functions,
)

# Cells with the modules that they need. If those are not preloaded, the cell is skipped.
_WARM_UP_CELLS = (
    ("1 + 1", ()),
    ("print('warm')", ()),
    ("import pandas as pd; pd.DataFrame({'a': [1.5]})", ("pandas",)),
    (
        "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.title('warm'); plt.show()",
        ("matplotlib.pyplot",),
    ),
    ("1 / 0", ()),
    ("import numpy, pandas, matplotlib.pyplot", ("numpy", "pandas", "matplotlib.pyplot")),
)
_DISPLAY_TYPES = frozenset({"display_data", "execute_result", "update_display_data"})
_UPDATES_PER_DISPLAY = 20
_MAX_WAITING_DISPLAYS = 8
_MAX_PROMPT_CHARACTERS = 4000
_END_OF_INPUT = "There is no more input."
# Slightly more than the bot shows, and slightly less than the limit of a message.
_MAX_PLAIN_CHARACTERS = 200_000
_MAX_FORM_CHARACTERS = 14 * 1024 * 1024
_TYPES_WITHOUT_PUSH = frozenset({"stream", "status", "execute_input", "iopub_welcome"})
_MAX_WAITING_MESSAGES = 50_000
# Signing key until the fork; each kernel then gets its own.
_PLACEHOLDER_KEY = b"none"


class _NullSocket:
    """Placeholder for a socket before there is one."""

    def send_multipart(self, *_: Any, **__: Any) -> None:
        """Send nothing."""


class _NoShellThread:
    """Placeholder for ipykernel's thread of the shell channel: code runs in the main thread."""

    parent_thread = threading.main_thread()

    def __bool__(self) -> bool:
        """Return False, because there is no such thread."""
        return False


class _GuestSession(sessions.Session):
    """Jupyter session that sends displays and printed text in the order of their creation.

    Attributes:
        printer: source of printed text.
        request: the request to which displays of all threads belong; None between executions.
        bot_thread: the thread that runs the bot's own code, whose displays are sent directly.
        remaining_displays: number of displays that may still be sent; the bot checks again.
        queued_displays: displays since the last execution.
        figure_hashes: hashes of pictures of figures that the execution has shown.
    """

    printer: ClassVar[standard_streams.Printer | None] = None
    request: ClassVar[dict[str, Any] | None] = None
    bot_thread: ClassVar = 0
    remaining_displays: ClassVar = 0
    queued_displays: ClassVar[collections.deque[tuple[Any, dict[str, Any], Any]]] = (
        collections.deque(maxlen=_MAX_WAITING_DISPLAYS)
    )
    figure_hashes: ClassVar[set[int]] = set()

    def send(self, stream: Any, msg_or_type: Any, *args: Any, **options: Any) -> Any:
        """Send a message; see the parent class."""
        if os.getpid() != self.pid:
            # A child that code forked must not send, and could wait for ever for a lock that
            # another thread held at the fork.
            return None
        message_type = (
            msg_or_type if isinstance(msg_or_type, str) else msg_or_type["header"]["msg_type"]
        )
        if message_type in _DISPLAY_TYPES and not isinstance(msg_or_type, str):
            if threading.get_ident() != self.bot_thread:
                if self.request is None:
                    self.queued_displays.append((stream, msg_or_type, options))
                    return None
                # This includes displays of threads that an earlier execution started.
                msg_or_type["parent_header"] = self.request["header"]
            if message_type != "update_display_data" and self._is_repeated(msg_or_type["content"]):
                return None
            _GuestSession.remaining_displays -= 1
            if self.remaining_displays < 0:
                # The bot would drop it anyway.
                return None
            html_displays.add_visible_forms(msg_or_type["content"]["data"])
            _limit_form_sizes(msg_or_type["content"]["data"])
        if message_type not in _TYPES_WITHOUT_PUSH and self.printer is not None:
            self.printer.push()
        return super().send(stream, msg_or_type, *args, **options)

    def _is_repeated(self, content: dict[str, Any]) -> bool:
        """Return whether the same picture of a figure was shown before, as `plt.show()` did."""
        data = content["data"]
        if not str(data.get("text/plain")).startswith("<Figure ") or "image/png" not in data:
            return False
        picture_hash = hash(data["image/png"])
        is_repeated = picture_hash in self.figure_hashes and not content.get("transient")
        self.figure_hashes.add(picture_hash)
        return is_repeated

    def begin(self, request: dict[str, Any], max_displays: int) -> None:
        """Send queued and later displays as outputs of this request."""
        _GuestSession.request, _GuestSession.remaining_displays = request, max_displays
        self.figure_hashes.clear()
        if self.printer is not None:
            self.printer.begin(request)
        while self.queued_displays:
            stream, message, options = self.queued_displays.popleft()
            self.send(stream, message, **options)

    def end(self) -> None:
        """Queue displays until the next request."""
        _GuestSession.request = None
        if self.printer is not None:
            self.printer.end()


def _limit_form_sizes(data: dict[str, Any]) -> None:
    """Cut or drop large forms of a display; a message that is too large would be lost."""
    for mime, form in list(data.items()):
        if isinstance(form, str) and mime == "text/plain":
            data[mime] = form[:_MAX_PLAIN_CHARACTERS]
        elif isinstance(form, str) and len(form) > _MAX_FORM_CHARACTERS:
            del data[mime]


class _GuestKernel(ipkernel.IPythonKernel):
    max_displays: int
    home: str
    open_files: open_files.OpenFiles
    standard_input: standard_input.StandardInput
    has_entered_home = False
    execution_id = ""
    _supports_kernel_subshells = False
    # ipykernel sleeps before each reply to wait for outputs. Here, `idle` is sent after them.
    _execute_sleep = 0

    def pre_handler_hook(self) -> None:
        """Ignore interrupts until `do_execute`, because in ipykernel's code they end no cell."""
        self.saved_sigint_handler = signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def do_execute(
        self, code: str, silent: bool, store_history: bool = True, *args: Any, **options: Any
    ) -> Any:
        """Run a cell; displays and text belong to it, unless the code is the bot's own."""
        kernel_pid = os.getpid()
        if not self.has_entered_home:
            # The workspace is mounted when a spare kernel is leased, over the old directory.
            os.chdir(self.home)
            self.has_entered_home = True
            # Last, so that no module of a user hides an installed one.
            sys.path.append(self.home)
            interpreter_state.record_initial_state()
            self.open_files = open_files.OpenFiles(self.home)
        parent = self.get_parent("shell")
        is_bot_code = not store_history
        if is_bot_code:
            _GuestSession.bot_thread = threading.get_ident()
            _GuestSession.remaining_displays = self.max_displays
        else:
            self._restore_streams()
            self.session.begin(parent, self.max_displays)
            self.open_files.begin()
        muting = self.session.printer.muted() if is_bot_code else contextlib.nullcontext()
        try:
            with muting:
                self.shell.end_saving()
                self.execution_id = parent["header"]["msg_id"]
                signal.signal(signal.SIGINT, signal.default_int_handler)
                reply = await super().do_execute(code, silent, store_history, *args, **options)
        except (Exception, KeyboardInterrupt) as error:
            # ipykernel would send no reply, and the bot would wait until the timeout.
            self.shell.showtraceback()
            reply = _build_failure_reply(error)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            self.execution_id = ""
            if os.getpid() != kernel_pid:
                # A child forked by the cell must not go on as a kernel.
                os._exit(0)
            if is_bot_code:
                _GuestSession.bot_thread = 0
            else:
                self._restore_streams()
                with contextlib.suppress(Exception):
                    # Code may have used up all descriptors, or replaced a function that this uses.
                    # The reply must be sent all the same, or the bot would wait for it.
                    self.open_files.end()
                self.session.end()
        with contextlib.suppress(Exception):
            # Any exception, because code may have replaced anything; the reply then has no names.
            reply["variables"] = self.shell.describe_variables()
        return reply

    def _restore_streams(self) -> None:
        """Restore the standard streams, which code may have replaced."""
        streams = self.session.printer.streams
        for stream in (sys.stdout, sys.stderr):
            if stream not in streams:
                # Any exception: the stream may be an object of the user's class.
                with contextlib.suppress(Exception):
                    stream.flush()
        sys.stdout, sys.stderr = streams
        sys.stdin = self.standard_input

    def raw_input(self, prompt: Any = "") -> str:
        """Answer `input()`: ask a person, or read from the object that replaces `sys.stdin`."""
        if sys.stdin is not self.standard_input:
            sys.stdout.write(str(prompt))
            line = sys.stdin.readline()
            if not line:
                raise EOFError(_END_OF_INPUT)
            return line.removesuffix("\n")
        if not self.may_ask:
            raise EOFError("Nobody can be asked for input here: put the value into the code.")
        try:
            return str(super().raw_input(str(prompt)[:_MAX_PROMPT_CHARACTERS]))
        except EOFError:
            raise EOFError(_END_OF_INPUT) from None

    @property
    def may_ask(self) -> bool:
        """Whether the sender of the running request answers questions."""
        return bool(self._allow_stdin)

    @property
    def requester(self) -> Any:
        """Identity of the sender of the latest execution request on the shell channel."""
        return self._parent_ident["shell"]

    def ask_bot(self, question: object) -> Any:
        """Ask the bot a question, which is sent as JSON, and return its parsed answer."""
        parent = self.get_parent("shell")
        return json.loads(self._input_request(question, self.requester, parent))

    def _input_request(self, *args: Any, **options: Any) -> Any:
        # One request at a time, because a tool call in another thread could read this answer.
        with tool_functions.CHANNEL_LOCK:
            # Outputs use another channel; this message after them tells the bot that it has all.
            parent = self.get_parent("shell")
            self.session.send(self.iopub_socket, "input_request", {}, parent=parent)
            return super()._input_request(*args, **options)


def _pack(content: Any) -> bytes:
    """Encode JSON in UTF-8; pairs of surrogates are joined, lone ones replaced.

    jupyter_client's encoder fails for surrogates, or sends invalid UTF-8, which loses the message.
    """
    options: dict[str, Any] = {"default": jsonutil.json_default, "ensure_ascii": False}
    try:
        text = json.dumps(content, allow_nan=False, **options)
    except (TypeError, ValueError):
        text = json.dumps(jsonutil.json_clean(content), allow_nan=False, **options)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _build_failure_reply(error: BaseException) -> dict[str, Any]:
    """Build the reply to a request on which the kernel itself failed."""
    name, message = type(error).__name__, compact_tracebacks.message(error)
    content = {"ename": name, "evalue": message, "traceback": [f"{name}: {message}"]}
    return content | {"status": "error", "user_expressions": {}, "payload": []}


class _GuestApp(kernelapp.IPKernelApp):
    """ipykernel's application without connection file, heartbeat, control and debugger channel.

    The bot does not need them, since it signals and watches the process. Each would cost a thread
    or milliseconds at every start.
    """

    def make_kernel(self) -> None:
        """Create the kernel around the shell, before the fork; `start_confined` adds the rest."""
        self.session = _GuestSession(key=_PLACEHOLDER_KEY, username="sandbox", pack=_pack)
        self.shell = ipython_shells.GuestShell.instance()
        self.displayhook = sys.displayhook
        self.kernel: _GuestKernel = _GuestKernel.instance(
            parent=self,
            session=self.session,
            shell_channel_thread=_NoShellThread(),
            log=self.log,
            shell_class=ipython_shells.GuestShell,
            user_ns=self.shell.user_ns,
        )
        self.shell.kernel = self.shell.parent = self.kernel
        tool_functions.install(self.kernel)
        self.init_pdb()
        self.patch_io()

    def start_confined(self, spec: kernel_processes.KernelSpec) -> None:
        """Open the channels and serve until the kernel ends."""
        self.context = zmq.Context()
        self.session.key, self.session.pid = spec.signing_key.encode(), os.getpid()
        self.session.session = sessions.new_id()
        shell_fd, iopub_fd, stdin_fd = spec.listeners
        kernel = self.kernel
        kernel.shell_stream = zmqstream.ZMQStream(self._create_socket(zmq.ROUTER, shell_fd))
        kernel.stdin_socket = self._create_socket(zmq.ROUTER, stdin_fd)
        thread = iopub_threads.IOPubThread(self._create_socket(zmq.XPUB, iopub_fd), self.session)
        kernel.iopub_thread = kernel.iopub_socket = thread
        self.shell.displayhook.pub_socket = self.shell.display_pub.pub_socket = thread
        self.shell.variables_directory = spec.variables_directory
        self._redirect_streams(spec, thread)
        _limit_visible_cores(spec.configuration.cpu_cores)
        self.init_signal()
        gc.freeze()
        gc.enable()
        loop = asyncio.get_event_loop()
        with contextlib.suppress(SystemExit):
            self.start()
        while True:
            # A task's `sys.exit()` stops the loop, but must end only the task.
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                loop.run_forever()

    def _create_socket(self, kind: int, descriptor: int) -> Any:
        """Create a ZMQ socket from a listening descriptor, so that code never sees its address."""
        endpoint = self.context.socket(kind)
        # Setting it as an attribute would change a class of `typing`, which copies 100 pages.
        endpoint.setsockopt(zmq.LINGER, 0)
        os.set_inheritable(descriptor, False)
        if kind == zmq.XPUB:
            # Unread messages use this session's memory, not the bot's. Messages beyond the limit
            # are dropped. The option must be set before the socket is bound.
            endpoint.setsockopt(zmq.SNDHWM, _MAX_WAITING_MESSAGES)
        endpoint.setsockopt(zmq.USE_FD, descriptor)
        endpoint.bind("ipc:///handed-over")
        return endpoint

    def _redirect_streams(
        self, spec: kernel_processes.KernelSpec, thread: iopub_threads.IOPubThread
    ) -> None:
        def publish(content: dict[str, Any], parent: standard_streams.Parent) -> None:
            topic = f"stream.{content['name']}".encode()
            self.session.send(thread, "stream", content, parent=parent, ident=topic)

        output_bytes = spec.configuration.output_bytes
        printer = standard_streams.Printer(publish, thread.push_soon, output_bytes)
        printer.connect()
        printer.read_after_programs()
        _GuestSession.printer = printer
        sys.stdout, sys.stderr = printer.streams
        self.kernel._stdout, self.kernel._stderr = printer.streams
        self.kernel.home = spec.home
        self.kernel.standard_input = standard_input.StandardInput(self.kernel.raw_input)
        self.kernel.max_displays = spec.configuration.max_displays * (1 + _UPDATES_PER_DISPLAY)
        thread.start(printer)


def _limit_visible_cores(cpu_cores: float) -> None:
    """Let code see the processors that it may use, so that it starts as many threads."""
    cores = max(min(math.ceil(cpu_cores), os.cpu_count() or 1), 1)

    def cpu_count() -> int:
        return cores

    # The importable name, by which variables with this function are pickled.
    cpu_count.__module__, cpu_count.__qualname__ = "os", "cpu_count"
    os.cpu_count = cpu_count
    if hasattr(os, "process_cpu_count"):
        os.process_cpu_count = cpu_count


def warm_up(configuration: control_messages.Configuration) -> None:
    """Create the shell and run cells in it, so that first uses do not slow down kernels."""
    shell = ipython_shells.create_shell(os.environ["HOME"] + "/.ipython")
    shell.can_install = bool(configuration.layers_directory)
    shell.missing_groups = configuration.missing_groups
    _get_app().make_kernel()
    shell.displayhook.pub_socket = shell.display_pub.pub_socket = _NullSocket()
    shell.set_parent({})
    stdout, sys.stdout = sys.stdout, open(os.devnull, "w")  # noqa: SIM115
    if "matplotlib" in sys.modules:
        # Figures that are open at the end of a cell are shown, as by plt.show().
        shell.enable_matplotlib("inline")
    for cell, modules in _WARM_UP_CELLS:
        if sys.modules.keys() >= set(modules):
            shell.run_cell(cell, store_history=True)
    completions.find(shell, "x['")
    sys.stdout.close()
    sys.stdout = stdout
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")
    interpreter_state.record_initial_state()
    shell.reset(new_session=True)
    shell.execution_count = 1
    _propagate_context()
    nested_loops.install()
    compact_tracebacks.install()
    # OpenSSL seeds its generator at first use, so use it; each kernel then only adds entropy.
    ssl.RAND_add(os.urandom(32), 0.0)
    ssl.RAND_bytes(1)


@functools.cache
def _get_app() -> _GuestApp:
    app = _GuestApp(config=config.Config(), log_level=logging.CRITICAL)
    # By default, the logger passes all records to a handler that drops them.
    app.log.setLevel(logging.CRITICAL)
    return app


def run(spec: kernel_processes.KernelSpec) -> None:
    """Run the kernel that `spec` describes, in a process that is already confined."""
    gc.disable()
    preloads.reseed()
    os.chdir(spec.home if os.path.isdir(spec.home) else "/")
    # Code should see a script's arguments, not those of the fork server.
    sys.argv[:] = sys.orig_argv[:] = ["main.py"]
    # Python warns about forks with threads, but the kernel always has threads.
    fork_warning = r"This process .* is multi-threaded, use of \w+\(\) may lead to deadlocks"
    warnings.filterwarnings("ignore", fork_warning, DeprecationWarning)
    loop = asyncio.new_event_loop()
    background_errors.install_handlers(loop)
    asyncio.set_event_loop(loop)
    _get_app().start_confined(spec)


def _propagate_context() -> None:
    """Propagate the execution's context to threads and pool workers."""
    import concurrent.futures
    import contextvars

    start_thread = threading.Thread.start
    submit = concurrent.futures.ThreadPoolExecutor.submit

    def start(thread: threading.Thread) -> None:
        context, original_run = contextvars.copy_context(), thread.run
        thread.run = lambda: context.run(original_run)  # type: ignore[method-assign]
        start_thread(thread)

    def submit_in_context(pool: Any, call: Any, /, *args: Any, **options: Any) -> Any:
        return submit(pool, contextvars.copy_context().run, call, *args, **options)

    threading.Thread.start = start  # type: ignore[method-assign, assignment]
    concurrent.futures.ThreadPoolExecutor.submit = submit_in_context  # type: ignore[method-assign]
