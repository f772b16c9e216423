"""Buckets on loopback in the wire formats of S3, Azure and GCS, which check signatures.

S3's requests are signed by Signature Version 4 and Azure's by a shared key; both signatures are
computed here from the vendors' descriptions. GCS takes requests without a login. Lists come in
pages of two. S3 also takes writes: whole, on the condition that the object is new or unchanged, and
in parts.
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
_PAGE_SIZE = 2
_DEFAULT_WRITE_TIME = 1_777_593_600.0  # of what was there before: 2026-05-01
_MIN_PART_BYTES = 5 * 1024 * 1024


def _s3_signature(method, target, headers):
    """Return the header `Authorization` that an S3 request must have, for the headers it signed."""
    path, _, query = target.partition("?")
    parts = headers["authorization"].partition(" ")[2].split(", ")
    fields = dict(pair.split("=", 1) for pair in parts)
    scope = fields["Credential"].partition("/")[2]
    names = fields["SignedHeaders"].split(";")
    assert {"host", "x-amz-content-sha256", "x-amz-date"} <= set(names)
    signed_headers = "".join(f"{name}:{headers[name].strip()}\n" for name in names)
    parameters = urllib.parse.parse_qsl(query, keep_blank_values=True)
    query = "&".join(
        sorted("=".join(urllib.parse.quote(i, "-_.~") for i in pair) for pair in parameters)
    )
    body = headers["x-amz-content-sha256"]
    canonical = "\n".join([method, path, query, signed_headers, ";".join(names), body])
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
    """Return the header `Authorization` that an Azure request must have."""
    path, _, query = target.partition("?")
    parameters = sorted(urllib.parse.parse_qsl(query, keep_blank_values=True))
    names = ["content-encoding", "content-language", "content-length", "content-md5"]
    names += ["content-type", "date", "if-modified-since", "if-match", "if-none-match"]
    names += ["if-unmodified-since", "range"]
    standard_headers = [headers.get(name, "") for name in names]
    standard_headers[2] = standard_headers[2] if standard_headers[2] != "0" else ""
    azure_headers = [
        f"{name}:{headers[name]}" for name in sorted(headers) if name.startswith("x-ms-")
    ]
    resource = [f"/{ACCOUNT}{path}", *(f"{name}:{value}" for name, value in parameters)]
    text = "\n".join([method, *standard_headers, *azure_headers, *resource])
    key = base64.b64decode(SHARED_KEY)
    signature = base64.b64encode(hmac.digest(key, text.encode(), "sha256")).decode()
    return f"SharedKey {ACCOUNT}:{signature}"


def _http_date(timestamp):
    return email.utils.formatdate(timestamp, usegmt=True)


def _s3_list(entries, next_name):
    entries_xml = "".join(
        f"<Contents><Key>{saxutils.escape(name)}</Key><LastModified>"
        f"{time.strftime('%Y-%m-%dT%H:%M:%S.000Z', time.gmtime(at))}</LastModified>"
        f"<ETag>{_etag(data)}</ETag><Size>{len(data)}</Size></Contents>"
        for name, data, at in entries
    )
    token = saxutils.escape(next_name)
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if next_name else ""
    return f"<ListBucketResult>{entries_xml}{more}</ListBucketResult>"


def _azure_list(entries, next_name):
    entries_xml = "".join(
        f"<Blob><Name>{saxutils.escape(name)}</Name><Properties>"
        f"<Last-Modified>{_http_date(at)}</Last-Modified>"
        f"<Content-Length>{len(data)}</Content-Length>"
        "<Content-Type>text/csv</Content-Type><Etag>x</Etag></Properties></Blob>"
        for name, data, at in entries
    )
    more = f"<NextMarker>{saxutils.escape(next_name)}</NextMarker>"
    return f"<EnumerationResults><Blobs>{entries_xml}</Blobs>{more}</EnumerationResults>"


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
        fault = self.server.take_fault(self.command, self.path)
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
            parameters = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
            if bucket != "reports":
                self._refuse(404, "NoSuchBucket")
                return
            with self.server.lock:
                getattr(self, f"_{self.command.lower()}")(name, parameters)

    def _read(self, size):
        """Read a body at the rate of the network line, which all connections share."""
        rate, pieces = self.server.bytes_per_second, []
        while rate and size > 65536:
            with self.server.line:
                pieces.append(self.rfile.read(65536))
                time.sleep(65536 / rate)
            size -= 65536
        return b"".join([*pieces, self.rfile.read(size)])

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

    def _get(self, name, parameters):
        _, make_list, page = _KINDS[self.server.kind]
        files = self.server.files
        if name:
            if name in files:
                self._answer(
                    200,
                    files[name],
                    _etag(files[name]),
                    self.server.times.get(name, _DEFAULT_WRITE_TIME),
                )
            else:
                self._refuse(404, "NoSuchKey")
            return
        names = sorted(other for other in files if other.startswith(parameters.get("prefix", "")))
        start = bisect.bisect_right(names, parameters.get(page, ""))
        page_names = names[start : start + _PAGE_SIZE]
        next_name = page_names[-1] if start + _PAGE_SIZE < len(names) else ""
        self.server.pages += 1
        entries = [
            (other, files[other], self.server.times.get(other, _DEFAULT_WRITE_TIME))
            for other in page_names
        ]
        self._answer(200, make_list(entries, next_name).encode())

    _head = _get

    def _put(self, name, parameters):
        if "uploadId" in parameters:
            upload = self.server.uploads.get(parameters["uploadId"])
            if upload is None:
                self._refuse(404, "NoSuchUpload")
                return
            upload[int(parameters["partNumber"])] = self._body
            self._answer(200, b"", _etag(self._body))
            return
        current, expected_etag = self.server.files.get(name), self.headers["if-match"]
        if self.headers["if-none-match"] == "*" and current is not None:
            self._refuse(412, "PreconditionFailed")
        elif expected_etag and current is None:
            self._refuse(404, "NoSuchKey")
        elif expected_etag and expected_etag != _etag(current):
            self._refuse(412, "PreconditionFailed")
        else:
            self._store(name, self._body)
            self._answer(200, b"", _etag(self._body))

    def _post(self, name, parameters):
        text = self._body.decode()
        if "delete" in parameters:
            digest = hashlib.md5(self._body, usedforsecurity=False).digest()
            assert self.headers["content-md5"] == base64.b64encode(digest).decode()
            names = [
                saxutils.unescape(deleted_name)
                for deleted_name in re.findall("<Key>(.*?)</Key>", text)
            ]
            for deleted_name in names:
                self.server.files.pop(deleted_name, None)
            result = "".join(f"<Deleted><Key>{saxutils.escape(i)}</Key></Deleted>" for i in names)
            self._answer(200, f"<DeleteResult>{result}</DeleteResult>".encode())
        elif "uploads" in parameters:
            upload = f"upload-{time.monotonic_ns()}"
            self.server.uploads[upload] = {}
            result = f"<Bucket>reports</Bucket><Key>{saxutils.escape(name)}</Key>"
            result += f"<UploadId>{upload}</UploadId>"
            self._answer(
                200,
                f"<InitiateMultipartUploadResult>{result}</InitiateMultipartUploadResult>".encode(),
            )
        else:
            self._complete(name, self.server.uploads.get(parameters["uploadId"]), text)

    def _complete(self, name, upload, text):
        """Join the listed parts; all must be there, and all but the last have the minimum size."""
        parts = re.findall("<ETag>(.*?)</ETag><PartNumber>(.*?)</PartNumber>", text)
        numbers = [int(number) for _, number in parts]
        if upload is None:
            self._refuse(404, "NoSuchUpload")
        elif [(_etag(upload.get(int(i), b"-")), i) for _, i in parts] != [
            (saxutils.unescape(tag, {"&quot;": '"'}), i) for tag, i in parts
        ]:
            self._refuse(400, "InvalidPart")
        elif any(len(upload[number]) < _MIN_PART_BYTES for number in numbers[:-1]):
            self._refuse(400, "EntityTooSmall")
        else:
            self._store(name, b"".join(upload[number] for number in numbers))
            self.server.uploads = {
                i: other for i, other in self.server.uploads.items() if other != upload
            }
            result = f"<ETag>{_etag(self.server.files[name])}</ETag>"
            self._answer(
                200,
                f"<CompleteMultipartUploadResult>{result}</CompleteMultipartUploadResult>".encode(),
            )

    def _delete(self, name, parameters):
        if "uploadId" in parameters:
            self.server.uploads.pop(parameters["uploadId"], None)
        else:
            self.server.files.pop(name, None)
        self._answer(204, b"")

    def _store(self, name, data):
        self.server.files[name], self.server.times[name] = data, time.time()

    def _refuse(self, status, code):
        self._answer(status, f"<Error><Code>{code}</Code></Error>".encode())

    def _answer(self, status, content, etag='"x"', write_time=_DEFAULT_WRITE_TIME):
        if self._is_lost:
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Last-Modified", _http_date(write_time))
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
    """The bucket "reports" of a vendor.

    Attributes:
        files: contents by name.
        times: times of writing by name; earlier files have `_DEFAULT_WRITE_TIME`.
        uploads: parts by number, of uploads that are not complete.
        pages: the number of lists that were requested.
        faults: faults of coming requests, each for one: a method, a part of the path, and a status,
            or "lost" (carried out and not answered), "cut" (only half of the body is read) or
            "slow" (the answer takes two seconds).
        bytes_per_second: rate of the line that all bodies share; 0 for unlimited.
    """

    def __init__(self, kind, files):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.kind, self.files, self.pages = kind, files, 0
        self.times, self.uploads, self.faults = {}, {}, []
        self.lock = threading.Lock()
        self.line = threading.Lock()
        self.bytes_per_second = 0
        self.url = f"http://127.0.0.1:{self.server_port}"

    def take_fault(self, method, path):
        with self.lock:
            for fault in self.faults:
                if fault[0] == method and fault[1] in path:
                    self.faults.remove(fault)
                    return fault[2]
        return None

    def handle_error(self, request, client_address):
        """Ignore the error of a client that was killed."""
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
    """Return the environment variables of a client that may use the S3 bucket."""
    return {
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": key,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": server.url,
    }
