"""A package index on loopback with wheels made for the test, by the simple API (PEP 691)."""

import base64
import contextlib
import datetime
import hashlib
import http.server
import io
import json
import ssl
import threading
import urllib.parse
import zipfile

TYPE = "application/vnd.pypi.simple.v1+json"
LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


def make_wheel(name, version, files, *, requirements=(), file_modes=None):
    """Make a wheel; returns its file name and its bytes.

    Args:
        files: contents by path.
        requirements: packages that the wheel depends on.
        file_modes: modes by path.
    """
    file_modes = file_modes or {}
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {requirement}\n" for requirement in requirements)
    metadata_files = {
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    contents = {
        path: text.encode() if isinstance(text, str) else text
        for path, text in (files | metadata_files).items()
    }
    record = "".join(
        f"{path},sha256={_digest(content)},{len(content)}\n" for path, content in contents.items()
    )
    contents[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in contents.items():
            entry = zipfile.ZipInfo(path)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = file_modes.get(path, 0o100644) << 16
            archive.writestr(entry, content)
    return f"{info.removesuffix('.dist-info')}-py3-none-any.whl", buffer.getvalue()


def _digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


class PackageIndex:
    """An index.

    Attributes:
        requests: paths of the requests, in order.
        has_request: set by the first request.
        hold: answers wait until this is set, as it is at first.
        status: the status of all answers, unless it is 0.
        location: the address of a redirect, if `status` is one.
        proxy_requests: addresses of requests that came as to a proxy.
    """

    def __init__(self):
        self.url = ""
        self.requests = []
        self.proxy_requests = []
        self.status = 0
        self.location = ""
        self.has_request = threading.Event()
        self.hold = threading.Event()
        self.hold.set()
        self._files = {}
        self._entries = {}

    def add(self, name, version="1.0", files=None, *, uploaded=LONG_AGO, overrides=None, **options):
        """Offer a package: by default a module of its name.

        Args:
            uploaded: the time of upload in the index's answer; None leaves it out.
            overrides: false entries for the file in the index's answer.
        """
        module = name.replace("-", "_")
        files = files or {f"{module}/__init__.py": f"version = {version!r}\n"}
        filename, content = make_wheel(name, version, files, **options)
        entry = {
            "filename": filename,
            "url": f"/files/{filename}",
            "hashes": {"sha256": hashlib.sha256(content).hexdigest()},
            "size": len(content),
        }
        if uploaded is not None:
            entry["upload-time"] = uploaded.isoformat().replace("+00:00", "Z")
        self._files[filename] = content
        self._entries.setdefault(name, []).append(entry | (overrides or {}))

    def answer(self, path):
        """Return the media type and content of an answer, or None if there is no such path."""
        self.requests.append(path)
        self.has_request.set()
        self.hold.wait()
        kind, _, rest = path.strip("/").partition("/")
        if kind == "files" and rest in self._files:
            return "application/octet-stream", self._files[rest]
        if kind == "simple" and rest in self._entries:
            page = {"meta": {"api-version": "1.1"}, "name": rest, "files": self._entries[rest]}
            return TYPE, json.dumps(page).encode()
        return None


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        index = self.server.index
        if index.status:
            self.send_response(index.status)
            if index.location:
                self.send_header("Location", index.location)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        # A request to a proxy has the complete address in place of the path.
        path = urllib.parse.urlsplit(self.path).path
        if self.path.startswith("http://"):
            index.proxy_requests.append(self.path)
        response = index.answer(path)
        kind, content = response or ("text/plain", b"there is none")
        self.send_response(200 if response else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def do_HEAD(self):
        self.do_GET()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(certificate=None):
    """Serve an empty index on a free port.

    Args:
        certificate: paths of a certificate and its key, to serve over TLS.
    """
    index = PackageIndex()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.index = index
        index.url = f"http://127.0.0.1:{server.server_port}/simple"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            index.url = index.url.replace("http:", "https:")
        thread = threading.Thread(target=server.serve_forever, name="package index")
        thread.start()
        try:
            yield index
        finally:
            index.hold.set()
            server.shutdown()
            thread.join()
