"""What may arrive as bytes: malformed JSON, ill-formed Unicode, extreme sizes (machine protocol §1.3, §1.4; fault class
35). Every such body gets an envelope; none reaches the caller as an internal fault (the door checks that)."""

from __future__ import annotations

import json

import pytest

from .door import Door, expect_failure
from .protocol import MIB
from .workbench import Workbench, body_of

VALID = b'{"v":1,"request_id":"r","op":"doctor","input":{}}'
MALFORMED: dict[str, bytes] = {
    "nothing": b"",
    "white space": b" \n",
    "an opening brace": b"{",
    "no JSON": b"hello",
    "an array": b"[" + VALID + b"]",
    "null": b"null",
    "a string": b'"doctor"',
    "a number": b"1",
    "trailing data": VALID + b" x",
    "two documents": VALID + b"\n" + VALID,
    "a trailing comma": VALID[:-1] + b",}",
    "a comment": VALID + b"// done",
    "single quotes": VALID.replace(b'"', b"'"),
    "NaN": VALID.replace(b'"v":1', b'"v":NaN'),
    "Infinity": VALID.replace(b'"v":1', b'"v":Infinity'),
    "a leading plus": VALID.replace(b'"v":1', b'"v":+1'),
    "a leading zero": VALID.replace(b'"v":1', b'"v":01'),
    "a hexadecimal number": VALID.replace(b'"v":1', b'"v":0x1'),
    "a bare control character": VALID.replace(b'"r"', b'"r\x01"'),
    "a bare newline": VALID.replace(b'"r"', b'"r\n"'),
    "a lone high surrogate": VALID.replace(b'"r"', b'"\\ud800"'),
    "a lone low surrogate": VALID.replace(b'"r"', b'"\\udc00a"'),
    "surrogates in the wrong order": VALID.replace(b'"r"', b'"\\udc00\\ud800"'),
    "an encoded surrogate": VALID.replace(b'"r"', b'"\xed\xa0\x80"'),
    "an overlong sequence": VALID.replace(b'"r"', b'"\xc0\xaf"'),
    "a stray continuation byte": VALID.replace(b'"r"', b'"\x80"'),
    "a cut sequence": VALID.replace(b'"r"', b'"\xf0\x9f\x91"'),
    "a code point beyond Unicode": VALID.replace(b'"r"', b'"\xf5\x80\x80\x80"'),
    "UTF-16": VALID.decode().encode("utf-16"),
    "UTF-32": VALID.decode().encode("utf-32"),
    "a NUL after the document": VALID + b"\0",
    "a byte order mark": b"\xef\xbb\xbf" + VALID,
    "10 000 open arrays": b"[" * 10_000,
    "10 000 nested arrays": VALID.replace(b'"input":{}', b'"input":' + b"[" * 10_000 + b"]" * 10_000),
    "10 000 nested objects": VALID.replace(b'"input":{}', b'"input":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000),
}


@pytest.mark.fault_class(35)
@pytest.mark.proves("machine-6")
@pytest.mark.parametrize("kind", MALFORMED)
def test_a_body_that_is_no_request_gets_an_envelope_with_the_reserved_id(door: Door, kind: str) -> None:
    assert expect_failure(door.send(MALFORMED[kind]), "INVALID_REQUEST")["request_id"] == "req_transport"
    door.ok("doctor")


def test_white_space_around_the_document_is_allowed(door: Door) -> None:
    assert door.send(b" \r\n\t" + VALID + b"\n \n")["ok"]


def test_of_a_repeated_member_the_last_one_counts(door: Door) -> None:
    """JSON leaves this open; this service reads a repeated member as most parsers do, and never as two requests."""
    answer = door.send(VALID.replace(b'"request_id":"r"', b'"request_id":"first","request_id":"last"'))
    assert answer["ok"]
    assert answer["request_id"] == "last"
    answer = door.send(VALID.replace(b'"input":{}', b'"input":{"surplus":1},"input":{}'))
    assert answer["ok"]


@pytest.mark.parametrize(
    "number", ["4294967296", "9223372036854775808", "18446744073709551616", "1" + "0" * 400, "1e2", "1.0"]
)
def test_a_version_that_is_no_32_bit_integer_is_refused(door: Door, number: str) -> None:
    answer = door.send(VALID.replace(b'"v":1', f'"v":{number}'.encode()))
    assert answer["error"]["code"] in ("INVALID_REQUEST", "UNSUPPORTED_VERSION")


@pytest.mark.parametrize("number", ["4294967296", "18446744073709551616", "1" + "0" * 400, "1e1", "1e400", "-0.5"])
def test_a_limit_beyond_its_type_is_refused(door: Door, number: str) -> None:
    request = json.dumps(door.envelope("search", {"query": "cone", "limit": "LIMIT"}))
    answer = door.send(request.replace('"LIMIT"', number).encode())
    assert answer["error"]["code"] == "INVALID_REQUEST"


def test_a_body_of_24_mib_is_the_largest(door: Door) -> None:
    assert door.send(VALID + b" " * (24 * MIB - len(VALID)))["ok"]
    answer = door.send(VALID + b" " * (24 * MIB + 1 - len(VALID)))
    assert answer["error"]["code"] == "CONTENT_TOO_LARGE"
    assert answer["request_id"] == "req_transport"


@pytest.mark.fault_class(35)
@pytest.mark.parametrize("escape", ["\\ud800", "\\udc00a", "a\\ud83d", "\\ud83d\\ud83d\\udc4d"])
@pytest.mark.parametrize("member", ["title", "statement", "query", "data", "provenance"])
def test_an_ill_formed_string_is_refused_wherever_it_stands(door: Door, member: str, escape: str) -> None:
    op, valid = {
        "title": ("artifact.put", {"kind": "k", "title": "@", "content": {"type": "text", "data": "x"}}),
        "statement": ("claim.assert", {"claim_type": "fact", "statement": "@"}),
        "query": ("search", {"query": "@"}),
        "data": ("artifact.put", {"kind": "k", "title": "t", "content": {"type": "text", "data": "@"}}),
        "provenance": (
            "artifact.put",
            {"kind": "k", "title": "t", "content": {"type": "text", "data": "x"}, "provenance": {"p": "@"}},
        ),
    }[member]
    request = json.dumps(door.envelope(op, valid)).replace('"@"', f'"{escape}"')
    with door.nothing_written():
        assert door.send(request.encode())["error"]["code"] == "INVALID_REQUEST"


ODD_TEXT = {
    "a noncharacter": "cone \ufffe six",
    "the last code point": "cone \U0010ffff six",
    "a NUL": "cone \0 six",
    "a byte order mark": "\ufeffcone six",
    "a right-to-left override": "cone \u202e xis",
    "combining marks": "cone" + "\u0301" * 2_000 + " six",
    "a zero-width joiner": "cone \u200d six",
    "line separators": "cone\u2028six\u2029\u0085",
    "control characters": "cone \x01\x02\x1f\x7f six",
    "astral letters": "cone 𝒳𝒴𝒵 six",
    "a private-use character": "cone \ue000 six",
}


@pytest.mark.fault_class(35)
@pytest.mark.parametrize("kind", ODD_TEXT)
def test_odd_but_well_formed_text_is_kept_exactly_in_every_field(door: Door, bench: Workbench, kind: str) -> None:
    text = ODD_TEXT[kind]
    artifact = bench.put(text, title=text, actor=text[:100], provenance={text[:100]: text})
    record = bench.get(artifact["artifact_id"])
    assert record["title"] == text
    assert body_of(record) == text.encode()
    assert record["actor"] == text[:100]
    assert record["provenance"] == {text[:100]: text}
    claim = bench.claim(text)
    assert door.ok("claim.get", {"claim_id": claim["claim_id"]})["statement"] == text
    gone = door.ok("claim.retract", {"claim_id": claim["claim_id"], "reason": text})
    assert gone["retraction_reason"] == text
    assert bench.search(text[:200])["query"] == text[:200]


@pytest.mark.fault_class(35)
def test_a_megabyte_of_combining_marks_is_kept(bench: Workbench) -> None:
    body = "e" + "\u0301" * 500_000
    assert body_of(bench.get(bench.put(body)["artifact_id"])) == body.encode()


@pytest.mark.parametrize("depth", [2, 100, 250, 300, 900, 1_100, 5_000])
@pytest.mark.parametrize("shape", ["arrays", "objects"])
def test_nested_provenance_is_kept_or_refused(door: Door, shape: str, depth: int) -> None:
    nested = "[" * depth + "]" * depth if shape == "arrays" else '{"a":' * depth + "1" + "}" * depth
    put = {"kind": "k", "title": "t", "content": {"type": "text", "data": "x"}, "provenance": {"p": "@"}}
    request = json.dumps(door.envelope("artifact.put", put)).replace('"@"', nested)
    answer = door.send(request.encode())
    if answer["ok"]:
        assert json.dumps(answer["result"]["provenance"]["p"], separators=(",", ":")) == nested
    else:
        assert answer["error"]["code"] == "INVALID_REQUEST"
        assert depth > 100, "nesting of everyday depth is refused"


@pytest.mark.parametrize(
    "number",
    [
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775809",
        "1" + "0" * 300,
        "0.1",
        "1e-320",
        "-0.0",
        "1E5",
    ],
)
def test_numbers_in_provenance_are_kept_exactly_and_larger_integers_refused(door: Door, number: str) -> None:
    put = {"kind": "k", "title": "t", "content": {"type": "text", "data": "x"}, "provenance": {"p": "@"}}
    request = json.dumps(door.envelope("artifact.put", put)).replace('"@"', number)
    answer = door.send(request.encode())
    sent = json.loads(number)
    if isinstance(sent, int) and not -(2**63) <= sent < 2**64:
        assert answer["error"]["code"] == "INVALID_REQUEST"
    else:
        assert answer["result"]["provenance"]["p"] == sent
