"""Buckets on loopback in the wire formats of S3, Azure and GCS: files for who signs right.

S3's requests are signed by Signature Version 4 and Azure's by a shared key, both computed anew here
from the vendors' descriptions; GCS is spoken to without a login. Lists come in pages of two. S3 is
written to as well: at once, only if it is new or unchanged, and in parts.
"""

import base64
import bisect
import contextlib
import email.utils
import hashlib
import hmac
import http.server
import re
import sys
import threading
import time
import urllib.parse
from xml.sax import saxutils

KEY_ID, KEY = "AKIDEXAMPLE", "the-key-of-a-bucket"
ACCOUNT, SHARED_KEY = "acme", base64.b64encode(b"the shared key of an account").decode()
REGION = "eu-central-1"
_PAGE = 2
_AT = 1_777_593_600.0  # of what was there before: 2026-05-01
_LEAST_PART_BYTES = 5 * 1024 * 1024


def _s3_signature(method, target, headers):
    """The signature of a request for S3, from what it says that it signed."""
    path, _, query = target.partition("?")
    given = headers["authorization"].partition(" ")[2].split(", ")
    fields = dict(one.split("=", 1) for one in given)
    scope = fields["Credential"].partition("/")[2]
    names = fields["SignedHeaders"].split(";")
    assert {"host", "x-amz-content-sha256", "x-amz-date"} <= set(names)
    signed = "".join(f"{name}:{headers[name].strip()}\n" for name in names)
    asked = urllib.parse.parse_qsl(query, keep_blank_values=True)
    query = "&".join(sorted("=".join(urllib.parse.quote(i, "-_.~") for i in one) for one in asked))
    body = headers["x-amz-content-sha256"]
    canonical = "\n".join([method, path, query, signed, ";".join(names), body])
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{digest}"
    key = f"AWS4{KEY}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    credential = f"{KEY_ID}/{scope}"
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    return f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={';'.join(names)}, " + (
        f"Signature={signature}"
    )


def _azure_signature(method, target, headers):
    """The signature of a request for Azure, by its shared key."""
    path, _, query = target.partition("?")
    asked = sorted(urllib.parse.parse_qsl(query, keep_blank_values=True))
    names = ["content-encoding", "content-language", "content-length", "content-md5"]
    names += ["content-type", "date", "if-modified-since", "if-match", "if-none-match"]
    names += ["if-unmodified-since", "range"]
    plain = [headers.get(name, "") for name in names]
    plain[2] = plain[2] if plain[2] != "0" else ""
    own = [f"{name}:{headers[name]}" for name in sorted(headers) if name.startswith("x-ms-")]
    resource = [f"/{ACCOUNT}{path}", *(f"{name}:{value}" for name, value in asked)]
    text = "\n".join([method, *plain, *own, *resource])
    key = base64.b64decode(SHARED_KEY)
    signature = base64.b64encode(hmac.digest(key, text.encode(), "sha256")).decode()
    return f"SharedKey {ACCOUNT}:{signature}"


def _http_date(at):
    return email.utils.formatdate(at, usegmt=True)


def _s3_list(entries, following):
    made = "".join(
        f"<Contents><Key>{saxutils.escape(name)}</Key><LastModified>"
        f"{time.strftime('%Y-%m-%dT%H:%M:%S.000Z', time.gmtime(at))}</LastModified>"
        f"<ETag>{_etag(data)}</ETag><Size>{len(data)}</Size></Contents>"
        for name, data, at in entries
    )
    token = saxutils.escape(following)
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if following else ""
    return f"<ListBucketResult>{made}{more}</ListBucketResult>"


def _azure_list(entries, following):
    made = "".join(
        f"<Blob><Name>{saxutils.escape(name)}</Name><Properties>"
        f"<Last-Modified>{_http_date(at)}</Last-Modified>"
        f"<Content-Length>{len(data)}</Content-Length>"
        "<Content-Type>text/csv</Content-Type><Etag>x</Etag></Properties></Blob>"
        for name, data, at in entries
    )
    more = f"<NextMarker>{saxutils.escape(following)}</NextMarker>"
    return f"<EnumerationResults><Blobs>{made}</Blobs>{more}</EnumerationResults>"


def _etag(data):
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


_KINDS = {
    "s3": (_s3_signature, _s3_list, "continuation-token"),
    "az": (_azure_signature, _azure_list, "marker"),
    "gs": (None, _s3_list, "continuation-token"),
}


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _serve(self):
        sign, _, _ = _KINDS[self.server.kind]
        headers = {name.lower(): value for name, value in self.headers.items()}
        size = int(headers.get("content-length", 0))
        fault = self.server.fault_of(self.command, self.path)
        if fault == "cut":
            self.rfile.read(size // 2)
            self.close_connection = True
            return
        self._body = self._read(size)
        self._is_lost, self._is_slow = fault == "lost", fault == "slow"
        if isinstance(fault, int):
            self._refuse(fault, "SlowDown")
        elif self.server.kind == "s3" and f"/{REGION}/s3/" not in headers.get("authorization", ""):
            self._refuse(400, "AuthorizationHeaderMalformed")
        elif sign is not None and headers.get("authorization") != sign(
            self.command, self.path, headers
        ):
            self._refuse(403, "SignatureDoesNotMatch")
        elif headers.get("x-amz-content-sha256", "") not in (
            "",
            hashlib.sha256(self._body).hexdigest(),
        ):
            self._refuse(400, "XAmzContentSHA256Mismatch")
        else:
            parts = urllib.parse.urlsplit(self.path)
            _, bucket, name = [*urllib.parse.unquote(parts.path).split("/", 2), ""][:3]
            asked = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
            if bucket != "reports":
                self._refuse(404, "NoSuchBucket")
                return
            with self.server.lock:
                getattr(self, f"_{self.command.lower()}")(name, asked)

    def _read(self, size):
        """Read a body as the one line to here carries it, beside others."""
        rate, pieces = self.server.bytes_per_second, []
        while rate and size > 65536:
            with self.server.line:
                pieces.append(self.rfile.read(65536))
                time.sleep(65536 / rate)
            size -= 65536
        return b"".join([*pieces, self.rfile.read(size)])

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

    def _get(self, name, asked):
        _, listed, page = _KINDS[self.server.kind]
        files = self.server.files
        if name:
            if name in files:
                self._answer(200, files[name], _etag(files[name]), self.server.times.get(name, _AT))
            else:
                self._refuse(404, "NoSuchKey")
            return
        found = sorted(one for one in files if one.startswith(asked.get("prefix", "")))
        begin = bisect.bisect_right(found, asked.get(page, ""))
        shown = found[begin : begin + _PAGE]
        following = shown[-1] if begin + _PAGE < len(found) else ""
        self.server.pages += 1
        entries = [(one, files[one], self.server.times.get(one, _AT)) for one in shown]
        self._answer(200, listed(entries, following).encode())

    _head = _get

    def _put(self, name, asked):
        if "uploadId" in asked:
            upload = self.server.uploads.get(asked["uploadId"])
            if upload is None:
                self._refuse(404, "NoSuchUpload")
                return
            upload[int(asked["partNumber"])] = self._body
            self._answer(200, b"", _etag(self._body))
            return
        there, wanted = self.server.files.get(name), self.headers["if-match"]
        if self.headers["if-none-match"] == "*" and there is not None:
            self._refuse(412, "PreconditionFailed")
        elif wanted and there is None:
            self._refuse(404, "NoSuchKey")
        elif wanted and wanted != _etag(there):
            self._refuse(412, "PreconditionFailed")
        else:
            self._keep(name, self._body)
            self._answer(200, b"", _etag(self._body))

    def _post(self, name, asked):
        said = self._body.decode()
        if "delete" in asked:
            digest = hashlib.md5(self._body, usedforsecurity=False).digest()
            assert self.headers["content-md5"] == base64.b64encode(digest).decode()
            names = [saxutils.unescape(one) for one in re.findall("<Key>(.*?)</Key>", said)]
            for one in names:
                self.server.files.pop(one, None)
            told = "".join(f"<Deleted><Key>{saxutils.escape(i)}</Key></Deleted>" for i in names)
            self._answer(200, f"<DeleteResult>{told}</DeleteResult>".encode())
        elif "uploads" in asked:
            upload = f"upload-{time.monotonic_ns()}"
            self.server.uploads[upload] = {}
            told = f"<Bucket>reports</Bucket><Key>{saxutils.escape(name)}</Key>"
            told += f"<UploadId>{upload}</UploadId>"
            self._answer(
                200,
                f"<InitiateMultipartUploadResult>{told}</InitiateMultipartUploadResult>".encode(),
            )
        else:
            self._complete(name, self.server.uploads.get(asked["uploadId"]), said)

    def _complete(self, name, upload, said):
        """Make an object of the parts that are listed: all there, and none but the last small."""
        listed = re.findall("<ETag>(.*?)</ETag><PartNumber>(.*?)</PartNumber>", said)
        numbers = [int(number) for _, number in listed]
        if upload is None:
            self._refuse(404, "NoSuchUpload")
        elif [(_etag(upload.get(int(i), b"-")), i) for _, i in listed] != [
            (saxutils.unescape(tag, {"&quot;": '"'}), i) for tag, i in listed
        ]:
            self._refuse(400, "InvalidPart")
        elif any(len(upload[number]) < _LEAST_PART_BYTES for number in numbers[:-1]):
            self._refuse(400, "EntityTooSmall")
        else:
            self._keep(name, b"".join(upload[number] for number in numbers))
            self.server.uploads = {
                i: one for i, one in self.server.uploads.items() if one != upload
            }
            told = f"<ETag>{_etag(self.server.files[name])}</ETag>"
            self._answer(
                200,
                f"<CompleteMultipartUploadResult>{told}</CompleteMultipartUploadResult>".encode(),
            )

    def _delete(self, name, asked):
        if "uploadId" in asked:
            self.server.uploads.pop(asked["uploadId"], None)
        else:
            self.server.files.pop(name, None)
        self._answer(204, b"")

    def _keep(self, name, data):
        self.server.files[name], self.server.times[name] = data, time.time()

    def _refuse(self, status, code):
        self._answer(status, f"<Error><Code>{code}</Code></Error>".encode())

    def _answer(self, status, content, etag='"x"', at=_AT):
        if self._is_lost:
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Last-Modified", _http_date(at))
        self.send_header("ETag", etag)
        self.end_headers()
        if self.command != "HEAD":
            pieces = 10 if self._is_slow else 1
            size = len(content) // pieces + 1
            for begin in range(0, len(content), size):
                self.wfile.write(content[begin : begin + size])
                time.sleep(0.2 if self._is_slow else 0)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    """The bucket "reports" of a kind.

    Attributes:
        files: its content by name.
        times: when it was written, where that was not before.
        uploads: parts by number, of what is uploaded in parts and not complete.
        pages: how many lists were asked for.
        faults: of requests to come, each for one: its method, what its path holds, and a status,
            or "lost" where it is done and not answered, or "cut" where half of it arrives, or
            "slow" where the answer takes two seconds.
        bytes_per_second: of the line that all bodies come by; 0 for any.
    """

    def __init__(self, kind, files):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.kind, self.files, self.pages = kind, files, 0
        self.times, self.uploads, self.faults = {}, {}, []
        self.lock = threading.Lock()
        self.line = threading.Lock()
        self.bytes_per_second = 0
        self.url = f"http://127.0.0.1:{self.server_port}"

    def fault_of(self, method, path):
        with self.lock:
            for fault in self.faults:
                if fault[0] == method and fault[1] in path:
                    self.faults.remove(fault)
                    return fault[2]
        return None

    def handle_error(self, request, client_address):
        """Say nothing of a client that was killed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def serving(kind, files):
    """Serve a `Server` of a kind: "s3", "az" or "gs"."""
    with Server(kind, files) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def s3_login(server, key=KEY):
    """What who may use a bucket of S3 has in the environment."""
    return {
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": key,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": server.url,
    }
