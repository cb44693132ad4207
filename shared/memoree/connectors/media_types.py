"""What a file is, by its name and its bytes. Bytes that are no text are never called text: they are kept as they are,
and found by their title."""

from __future__ import annotations

import mimetypes
import re
from pathlib import PurePosixPath
from typing import Final

from memoree import limits
from memoree.media import is_text_like

BINARY: Final = "application/octet-stream"
TEXT_BY_SUFFIX: Final = {
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mdx"), "text/markdown"),
    **dict.fromkeys((".rst", ".rest"), "text/x-rst"),
    **dict.fromkeys((".adoc", ".asciidoc"), "text/asciidoc"),
    **dict.fromkeys((".txt", ".text", ".log"), "text/plain"),
    **dict.fromkeys((".yaml", ".yml"), "application/yaml"),
    **dict.fromkeys((".htm", ".html", ".xhtml"), "text/html"),
    ".org": "text/x-org",
    ".json": "application/json",
    ".toml": "application/toml",
    ".xml": "application/xml",
    ".csv": "text/csv",
    ".tex": "text/x-tex",
}
"""Fixed here: the system's own table differs between hosts, and a delivery that is repeated must be the same."""
_OTHERS = mimetypes.MimeTypes(filenames=())
_TITLE_LOOK_BYTES = 4 * limits.KIB
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def media_type_of(name: str, content: bytes) -> str:
    """Text is UTF-8: everything else is bytes, whatever its name says. A name without a known suffix is text when its
    bytes are, and hold no NUL."""
    suffix = PurePosixPath(name).suffix.lower()
    named = TEXT_BY_SUFFIX.get(suffix) or _OTHERS.guess_type(f"name{suffix}", strict=True)[0]
    if named is not None and not is_text_like(named):
        return named
    if not _is_utf8(content) or (named is None and b"\0" in content):
        return BINARY
    return f"{named or 'text/plain'}; charset=utf-8"


def title_of(name: str, media_type: str, content: bytes) -> str:
    """The first heading of a Markdown text that begins with one, otherwise the name. At most as long as a title may
    be."""
    if media_type.startswith("text/markdown"):
        beginning = content[:_TITLE_LOOK_BYTES].decode("utf-8-sig", errors="ignore")
        return as_title(_heading_of(beginning)) or as_title(name)
    return as_title(name)


def _heading_of(text: str) -> str:
    """The first line that is not blank, if it is a heading of the first level; otherwise nothing."""
    line = next(filter(None, map(str.strip, text.splitlines())), "")
    if not line.startswith(("# ", "#\t")):
        return ""
    heading = line[1:].strip()
    unclosed = heading.rstrip("#")
    return unclosed.rstrip() if unclosed.endswith((" ", "\t")) else heading


def as_title(text: str) -> str:
    """One line of at most `TITLE_BYTES_MAX` bytes."""
    line = _CONTROLS.sub(" ", text).strip()
    return line.encode()[: limits.TITLE_BYTES_MAX].decode("utf-8", errors="ignore").strip()


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode("utf-8", errors="strict")
    except UnicodeDecodeError:
        return False
    return True
