"""Text of every script is found by its own words, also where nothing separates them (retrieval §1, assertion 21 as
amended; fault classes 30, 32 and 35)."""

from __future__ import annotations

import json

import pytest

from .answers import available, only_ref, presence, recall, statements
from .door import Door
from .workbench import Workbench

RUNS = [
    "今日は成語しりとりをした",
    "오늘 끝말잇기 게임을 했다",
    "今天玩成语接龙游戏",
    "用户服务器部署在腾讯云国内节点",
    "设备清单(devices) NAS cdm-xxc",
    "中文优先",
    "系统记录了用户身份和权限",
]
WORDS = {
    "しりとり": 0, "成語": 0, "끝말잇기": 1, "게임": 1, "成语接龙": 2, "游戏": 2, "腾讯云": 3, "节点": 3, "设备": 4,
    "清单": 4, "中文": 5, "优先": 5, "用户身份": 6, "权限": 6,
}  # fmt: skip


def pieces(text: str) -> list[str]:
    """Every run of one to four characters of a script without spaces."""
    cut = {text[at : at + size] for size in range(1, 5) for at in range(len(text) - size + 1)}
    return sorted(piece for piece in cut if piece.isalpha() and not any(map(str.isascii, piece)))


@pytest.mark.proves("retrieval-21")
def test_a_word_inside_a_longer_run_is_an_answer(bench: Workbench) -> None:
    bench.claim("日本語テスト 完了")
    for query in ("日本語テスト", "日本語", "テスト", "完了", "語テ", "日"):
        assert presence(bench, query) == "claims", query
    assert presence(bench, "日語") == "none"


@pytest.mark.fault_class(32)
def test_every_piece_of_one_to_four_characters_finds_its_text(bench: Workbench) -> None:
    for text in RUNS:
        bench.claim(text)
    for text in RUNS:
        for piece in pieces(text):
            assert text in statements(bench, piece, max_claims=10), (piece, text)


@pytest.mark.fault_class(32)
@pytest.mark.parametrize("word", WORDS)
def test_a_word_of_two_characters_or_more_finds_its_text_only(bench: Workbench, word: str) -> None:
    for text in RUNS:
        bench.claim(text)
        bench.put(text, title="untitled")
    answer = recall(bench, word)
    holding = [text for text in RUNS if word in text]
    assert holding[0] == RUNS[WORDS[word]]
    assert sorted(claim["statement"] for claim in answer["claims"]) == sorted(holding)
    assert sorted(ref["excerpt"] for ref in answer["artifact_refs"]) == sorted(holding)


@pytest.mark.proves("retrieval-21")
@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("设备", "设施和备件都在仓库"),
        ("设备", "备设"),
        ("用户身份", "用户和户身以及身份"),
        ("用户身份", "身份用户"),
        ("成语接龙", "成语和语接以及接龙"),
        ("しりとり", "とりしり"),
        ("끝말잇기", "잇기끝말"),
    ],
)
def test_the_characters_of_a_word_elsewhere_in_a_text_are_no_answer(bench: Workbench, query: str, text: str) -> None:
    bench.claim(text)
    bench.put(text, title="untitled")
    assert presence(bench, query) == "none"


UNSPACED = {
    "Thai": ("ระบบบันทึกอุณหภูมิเตาเผาทุกชั่วโมง", ["อุณหภูมิ", "เตาเผา", "ทุกชั่วโมง"], "ความดัน"),
    "Lao": ("ລະບົບບັນທຶກອຸນຫະພູມຂອງເຕົາ", ["ອຸນຫະພູມ", "ເຕົາ"], "ຄວາມດັນ"),
    "Khmer": ("ប្រព័ន្ធកត់ត្រាសីតុណ្ហភាពរបស់ឡ", ["សីតុណ្ហភាព", "ប្រព័ន្ធ"], "សម្ពាធ"),
    "Burmese": ("စနစ်သည်အပူချိန်ကိုမှတ်တမ်းတင်သည်", ["အပူချိန်", "မှတ်တမ်း"], "ဖိအား"),
    "Chinese": ("系统每小时记录窑炉温度", ["温度", "窑炉", "每小时"], "压力"),
    "Japanese": ("システムは毎時窯の温度を記録する", ["温度", "システム", "記録"], "圧力"),
}


@pytest.mark.fault_class(32)
@pytest.mark.parametrize("script", UNSPACED)
def test_a_word_of_a_script_without_spaces_is_found_inside_its_sentence(bench: Workbench, script: str) -> None:
    sentence, words, absent = UNSPACED[script]
    bench.claim(sentence)
    bench.put(f"{sentence}\n", title="untitled")
    for word in words:
        answer = recall(bench, word)
        assert answer["presence"] == "claims", word
        assert [ref["excerpt"] for ref in answer["artifact_refs"]] == [f"{sentence}\n"], word
    assert presence(bench, absent) == "none"


SPACED = {
    "Arabic": ("يسجل النظام درجة حرارة الفرن كل ساعة", "حرارة الفرن", "ضغط الماء"),
    "Hebrew": ("המערכת רושמת את טמפרטורת התנור", "טמפרטורת התנור", "לחץ המים"),
    "Russian": ("Система записывает температуру печи", "ТЕМПЕРАТУРУ печи", "давление воды"),
    "Greek": ("Το σύστημα καταγράφει τη θερμοκρασία", "ΣΎΣΤΗΜΑ θερμοκρασία", "πίεση νερού"),
    "Hindi": ("प्रणाली भट्टी का तापमान दर्ज करती है", "भट्टी तापमान", "पानी दबाव"),
    "Tamil": ("அமைப்பு சூளையின் வெப்பநிலையை பதிவு செய்கிறது", "சூளையின் வெப்பநிலையை", "நீர் அழுத்தம்"),
    "Korean": ("시스템은 가마 온도를 기록한다", "가마 온도를", "수압 밸브"),
    "Vietnamese": ("Hệ thống ghi nhiệt độ lò nung", "nhiệt độ", "áp suất"),
    "Georgian": ("სისტემა იწერს ღუმელის ტემპერატურას", "ღუმელის ტემპერატურას", "წყლის წნევა"),
    "Amharic": ("ስርዓቱ የምድጃውን ሙቀት ይመዘግባል", "የምድጃውን ሙቀት", "የውሃ ግፊት"),
}


@pytest.mark.fault_class(30)
@pytest.mark.parametrize("script", SPACED)
def test_words_of_a_spaced_script_find_their_sentence_and_strangers_do_not(bench: Workbench, script: str) -> None:
    sentence, asked, absent = SPACED[script]
    claim, artifact = bench.claim(sentence), bench.put(sentence, title="untitled")
    answer = recall(bench, asked)
    assert [found["claim_id"] for found in answer["claims"]] == [claim["claim_id"]]
    assert [found["artifact_id"] for found in answer["artifact_refs"]] == [artifact["artifact_id"]]
    assert presence(bench, absent) == "none"


@pytest.mark.fault_class(30)
@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("caf\u00e9 fermé", "cafe\u0301"),
        ("cafe\u0301 fermé", "caf\u00e9"),
        ("한국어 문서", "\u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165"),
        ("ガラスの釉薬", "カ\u3099ラス"),
        ("カ\u3099ラスの釉薬", "ガラス"),
        ("Straße 7", "straße"),
        ("STRASSE 7", "strasse"),
        ("İstanbul kiln", "istanbul"),
        ("istanbul kiln", "İSTANBUL"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),
        ("журнал обжига", "ЖУРНАЛ"),
    ],
    ids=ascii,
)
def test_two_spellings_of_one_word_find_each_other(bench: Workbench, text: str, query: str) -> None:
    bench.claim(text)
    bench.put(f"{text} and more", title="untitled")
    answer = recall(bench, query)
    assert [claim["statement"] for claim in answer["claims"]] == [text]
    assert [ref["excerpt"] for ref in answer["artifact_refs"]] == [f"{text} and more"]


def test_emoji_beside_a_word_neither_hide_nor_shift_it(bench: Workbench) -> None:
    body = "👩‍🚀👩‍🚀 plan 🚀launch🚀 on Friday 👍🏽"
    bench.put(body, title="untitled")
    for query in ("launch", "🚀 launch", "launch 👍🏽", "plan launch Friday"):
        ref = only_ref(bench, query)
        assert ref["excerpt"] == body
        assert ref["citation"].endswith(f"#0-{len(body.encode())}")


@pytest.mark.parametrize("script", [*UNSPACED, *SPACED])
def test_a_citation_counts_bytes_in_any_script(bench: Workbench, script: str) -> None:
    sentence = (UNSPACED | SPACED)[script][0]
    body = f"{sentence} marlinspike {sentence}\r\n"
    bench.put(body, title="untitled")
    ref = only_ref(bench, "marlinspike", max_excerpt_bytes=1024)
    assert ref["citation"].endswith(f"#0-{len(body.encode())}")
    assert ref["excerpt"] == body


ODD = {
    "not a character": "\ufffe",
    "a byte order mark": "\ufeff",
    "a right-to-left override": "\u202e",
    "a zero": "\0",
    "many combining marks": "e" + "\u0301" * 2_000,
    "a private use character": "\ue000",
    "an unassigned plane": "\U000e0001",
}


@pytest.mark.fault_class(35)
@pytest.mark.parametrize("kind", ODD)
def test_odd_characters_break_no_operation(door: Door, bench: Workbench, kind: str) -> None:
    odd = ODD[kind]
    bench.put(f"celadon {odd} glaze", title=f"Notes {odd}")
    bench.claim(f"celadon {odd} cracked")
    for op in available(bench):
        for query in (f"celadon {odd}", f"{odd}celadon{odd}", f'"celadon {odd}"'):
            door.ok(op, {"query": query})
    assert presence(bench, "celadon") == "claims"


@pytest.mark.fault_class(35)
@pytest.mark.parametrize("escape", ["\\ud800", "\\udc00a", "celadon \\udfff"])
def test_a_lone_surrogate_in_a_query_is_refused_by_every_operation(door: Door, bench: Workbench, escape: str) -> None:
    for op in available(bench):
        request = json.dumps(door.envelope(op, {"query": "QUERY"})).replace("QUERY", escape)
        assert door.send(request.encode())["error"]["code"] == "INVALID_REQUEST"
