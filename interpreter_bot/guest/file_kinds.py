"""The kind of a file by its content, because its name may be wrong."""

from __future__ import annotations

import importlib.util
import os
import zipfile

from . import delimited_text

_HEAD_BYTES = 64 * 1024
_OLE_SIGNATURE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
# Name of the stream of an encrypted document in an OLE file.
_ENCRYPTED_STREAM = "EncryptedPackage".encode("utf-16-le")
_NEEDS_PASSWORD = (
    "It is protected by a password, so it cannot be opened here. Ask the person for a copy "
    "without one."
)
# Bytes, their offset, the kind of file, and advice. If the advice begins with the name of a library
# and a colon, the library reads such files, and the rest is advice for environments without it.
_SIGNATURES = (
    (b"7z\xbc\xaf\x27\x1c", 0, "a 7-Zip archive", "py7zr: Ask the person for a zip file."),
    (b"Rar!\x1a\x07", 0, "a RAR archive", "rarfile: Ask the person for a zip file."),
    (b"$FL2", 0, "data of SPSS (sav)", "pyreadstat: Ask the person to save it as CSV."),
    (b"$FL3", 0, "data of SPSS (zsav)", "pyreadstat: Ask the person to save it as CSV."),
    (b"RDX2\n", 0, "data of R (RData)", "pyreadr: Ask the person to save it as CSV."),
    (b"RDX3\n", 0, "data of R (RData)", "pyreadr: Ask the person to save it as CSV."),
    (b"X\n\0\0\0", 0, "data of R (rds)", "pyreadr: Ask the person to save it as CSV."),
    (b"<stata_dta>", 0, "data of Stata", "Read it with pandas.read_stata."),
    (b"\0" * 12 + b"\xc2\xea\x81\x60", 0, "data of SAS", "Read it with pandas.read_sas."),
    (b"\x89HDF\r\n\x1a\n", 0, "an HDF5 file", "h5py: Ask the person for CSV or Parquet."),
    (b"CDF\x01", 0, "a NetCDF file", "netCDF4: Ask the person for CSV or Parquet."),
    (b"PAR1", 0, "a Parquet file", "Read it with pandas.read_parquet."),
    (b"ARROW1", 0, "an Arrow (Feather) file", "Read it with pandas.read_feather."),
    (b"ORC", 0, "an ORC file", "Read it with pandas.read_orc."),
    (b"Obj\x01", 0, "an Avro file", "fastavro: Ask the person for CSV or Parquet."),
    (b"SQLite format 3\0", 0, "an SQLite database", "Read it with sqlite3."),
    (b"\x93NUMPY", 0, "an array of NumPy", "Read it with numpy.load."),
    (b"%PDF-", 0, "a PDF document", "Read it with pypdf."),
    (b"{\\rtf", 0, "a document in RTF", ""),
    (b"8BPS", 0, "a Photoshop picture", ""),
    (b"ftypheic", 4, "a HEIC picture, of an iPhone", "pillow_heif: Ask the person for a JPEG."),
    (b"ftypheix", 4, "a HEIC picture, of an iPhone", "pillow_heif: Ask the person for a JPEG."),
    (b"ftypmif1", 4, "a HEIF picture", "pillow_heif: Ask the person for a JPEG."),
    (b"ftypmsf1", 4, "a HEIF picture", "pillow_heif: Ask the person for a JPEG."),
    (b"\x1f\x8b", 0, "compressed by gzip", "Read it with gzip."),
    (b"BZh", 0, "compressed by bzip2", "Read it with bz2."),
    (b"\xfd7zXZ\0", 0, "compressed by xz", "Read it with lzma."),
    (
        b"\x28\xb5\x2f\xfd",
        0,
        "compressed by Zstandard",
        "zstandard: Ask the person for a zip file.",
    ),
    (b"MZ", 0, "a program of Windows", ""),
    (b"\x7fELF", 0, "a program of Linux", ""),
    (b"\xca\xfe\xba\xbe", 0, "a program", ""),
    (b"\0\x01\0\0Standard Jet DB", 0, "a database of Access", "Ask the person to save it as CSV."),
    (b"\0\x01\0\0Standard ACE DB", 0, "a database of Access", "Ask the person to save it as CSV."),
)
_PICTURE_SIGNATURES = (
    (b"\x89PNG\r\n", 0),
    (b"\xff\xd8\xff", 0),
    (b"GIF8", 0),
    (b"II*\0", 0),
    (b"MM\0*", 0),
    (b"WEBP", 8),
    (b"BM", 0),
)
_COMPRESSED_TABLE_SUFFIXES = tuple(
    f".{table}.{packing}" for table in ("csv", "tsv") for packing in ("gz", "bz2", "xz")
)
_ZIP_KINDS = (
    ("xl/workbook.xml", "workbook"),
    ("xl/workbook.bin", "workbook"),
    ("word/document.xml", "a Word document"),
    ("ppt/presentation.xml", "a PowerPoint presentation"),
)
_KINDS_BY_MIMETYPE = {
    "application/vnd.oasis.opendocument.spreadsheet": "workbook",
    "application/vnd.oasis.opendocument.text": "a document of OpenDocument",
    "application/epub+zip": "a book in EPUB",
}


def find_kind(path: str) -> tuple[str, str]:
    """Return the kind of a file, and a sentence about it.

    Returns:
        "text", "html", "picture", "workbook", "zip" or "other"; and the sentence, which may be
        empty, but not for "html" and "other".
    """
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith(b"PK\x03\x04") or head.startswith(b"PK\x05\x06"):
        return _find_zip_kind(path)
    if head.startswith(_OLE_SIGNATURE):
        return _find_ole_kind(path)
    if (
        any(head.startswith(signature, offset) for signature, offset in _PICTURE_SIGNATURES)
        and b"\0" in head
    ):
        return "picture", "It is a picture."
    for signature, offset, kind, advice in _SIGNATURES:
        if head.startswith(signature, offset):
            if path.lower().endswith(_COMPRESSED_TABLE_SUFFIXES):
                advice = "Read it with pandas.read_csv, which unpacks it."
            return "other", " ".join(
                filter(None, (f"It is {kind}.", _complete_advice(advice), _encryption_notice(head)))
            )
    trimmed_head = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:400].lower()
    if b"urn:schemas-microsoft-com:office:spreadsheet" in head:
        return "html", "It is a workbook of Excel 2003 in XML. Read it with lxml."
    if trimmed_head.startswith(
        (b"<!doctype html", b"<html", b"<table", b"<meta", b"<head", b"<style")
    ):
        return "html", "It is a page of HTML. Read its tables with pandas.read_html."
    if b"\0" in head and not _is_wide_text(head):
        return "other", "It is a binary file of an unknown kind."
    return "text", ""


def _is_wide_text(head: bytes) -> bool:
    """Return whether this is text in UTF-16 or UTF-32, which has zero bytes."""
    has_byte_order_mark = head.startswith((b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff"))
    return has_byte_order_mark or delimited_text.find_wide_encoding(head) is not None


def _complete_advice(advice: str) -> str:
    """Replace a library's name in front of advice by a sentence about the library."""
    library, colon, sentence = advice.partition(": ")
    if not colon:
        return advice
    if importlib.util.find_spec(library) is not None:
        return f"Read it with {library}."
    return f"Nothing here reads it. {sentence}"


def _encryption_notice(head: bytes) -> str:
    is_encrypted = head.startswith(b"%PDF-") and b"/Encrypt" in head
    return "It is encrypted: its text may need a password." if is_encrypted else ""


def _find_zip_kind(path: str) -> tuple[str, str]:
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
            names = {info.filename for info in infos}
            is_encrypted = any(info.flag_bits & 1 for info in infos)
            mimetype = ""
            if "mimetype" in names and archive.getinfo("mimetype").file_size < 200:
                mimetype = archive.read("mimetype").decode("ascii", "replace").strip()
            manifest = "META-INF/manifest.xml"
            if mimetype and manifest in names and archive.getinfo(manifest).file_size < 1_000_000:
                is_encrypted = is_encrypted or b"encryption-data" in archive.read(manifest)
    except (zipfile.BadZipFile, NotImplementedError, OSError, RuntimeError):
        return "other", "It is a damaged or incomplete zip archive."
    kind = _KINDS_BY_MIMETYPE.get(mimetype) or next(
        (kind for name, kind in _ZIP_KINDS if name in names), "zip"
    )
    if is_encrypted:
        return "other", _NEEDS_PASSWORD
    if kind in ("workbook", "zip"):
        return kind, ""
    return "other", f"It is {kind}."


def _find_ole_kind(path: str) -> tuple[str, str]:
    """Distinguish workbooks, documents and encrypted files in Microsoft's OLE format."""
    with open(path, "rb") as file:
        content = file.read(min(os.path.getsize(path), 64 * 1024 * 1024))
    if _ENCRYPTED_STREAM in content:
        return "other", _NEEDS_PASSWORD
    for stream, kind in (("Workbook", "workbook"), ("Book", "workbook"), ("WordDocument", "doc")):
        if stream.encode("utf-16-le") in content:
            if kind == "workbook":
                return kind, ""
            return "other", "It is an old Word document (doc). Ask the person to save it as docx."
    if "PowerPoint Document".encode("utf-16-le") in content:
        return "other", "It is an old PowerPoint file (ppt). Ask the person to save it as pptx."
    return "other", "It is a file of an old Microsoft program. Nothing here reads it."
