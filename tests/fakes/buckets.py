"""Buckets on loopback in the wire formats of S3, Azure and GCS: files for who signs right.

S3's requests are signed by Signature Version 4 and Azure's by a shared key, both computed anew here
from the vendors' descriptions; GCS is spoken to without a login. Lists come in pages of two.
"""

import base64
import contextlib
import hashlib
import hmac
import http.server
import threading
import urllib.parse
from xml.sax import saxutils

KEY_ID, KEY = "AKIDEXAMPLE", "the-key-of-a-bucket"
ACCOUNT, SHARED_KEY = "acme", base64.b64encode(b"the shared key of an account").decode()
REGION = "eu-central-1"
_PAGE = 2
_AT = "2026-05-01T00:00:00.000Z"
_AT_HTTP = "Fri, 01 May 2026 00:00:00 GMT"


def _s3_signature(method, target, headers):
    """The signature of a request for S3, from what it says that it signed."""
    path, _, query = target.partition("?")
    given = headers["authorization"].partition(" ")[2].split(", ")
    fields = dict(one.split("=", 1) for one in given)
    scope = fields["Credential"].partition("/")[2]
    names = fields["SignedHeaders"].split(";")
    assert {"host", "x-amz-content-sha256", "x-amz-date"} <= set(names)
    signed = "".join(f"{name}:{headers[name].strip()}\n" for name in names)
    query = "&".join(sorted(query.split("&"))) if query else ""
    body = headers["x-amz-content-sha256"]
    canonical = "\n".join([method, path, query, signed, ";".join(names), body])
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{digest}"
    key = f"AWS4{KEY}".encode()
    assert scope.split("/")[1:] == [REGION, "s3", "aws4_request"]
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


def _s3_list(entries, following):
    made = "".join(
        f"<Contents><Key>{saxutils.escape(name)}</Key><LastModified>{_AT}</LastModified>"
        f'<ETag>"x"</ETag><Size>{len(data)}</Size></Contents>'
        for name, data in entries
    )
    more = f"<NextContinuationToken>{following}</NextContinuationToken>" if following else ""
    return f"<ListBucketResult>{made}{more}</ListBucketResult>"


def _azure_list(entries, following):
    made = "".join(
        f"<Blob><Name>{saxutils.escape(name)}</Name><Properties>"
        f"<Last-Modified>{_AT_HTTP}</Last-Modified><Content-Length>{len(data)}</Content-Length>"
        "<Content-Type>text/csv</Content-Type><Etag>x</Etag></Properties></Blob>"
        for name, data in entries
    )
    more = f"<NextMarker>{following}</NextMarker>"
    return f"<EnumerationResults><Blobs>{made}</Blobs>{more}</EnumerationResults>"


_KINDS = {
    "s3": (_s3_signature, _s3_list, "continuation-token"),
    "az": (_azure_signature, _azure_list, "marker"),
    "gs": (None, _s3_list, "continuation-token"),
}


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        sign, listed, page = _KINDS[self.server.kind]
        headers = {name.lower(): value for name, value in self.headers.items()}
        if sign is not None and headers.get("authorization") != sign("GET", self.path, headers):
            self._answer(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
            return
        parts = urllib.parse.urlsplit(self.path)
        _, bucket, name = [*urllib.parse.unquote(parts.path).split("/", 2), ""][:3]
        if bucket != "reports":
            self._answer(404, b"<Error><Code>NoSuchBucket</Code></Error>")
        elif not name:
            asked = dict(urllib.parse.parse_qsl(parts.query))
            begin = int(asked.get(page) or 0)
            prefix = asked.get("prefix", "")
            found = [one for one in sorted(self.server.files.items()) if one[0].startswith(prefix)]
            following = begin + _PAGE if begin + _PAGE < len(found) else ""
            self.server.pages += 1
            self._answer(200, listed(found[begin : begin + _PAGE], following).encode())
        elif name in self.server.files:
            self._answer(200, self.server.files[name])
        else:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def _answer(self, status, content):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Last-Modified", _AT_HTTP)
        self.send_header("ETag", '"x"')
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(kind, files):
    """Serve the bucket "reports" of a kind: "s3", "az" or "gs"; `pages` counts its lists."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.kind, server.files, server.pages = kind, files, 0
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
