"""Which words tell a question apart, and how many of them a text needs to answer it (retrieval §2.6, assertion 24 as
amended)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from memoree.retrieval.telling import is_common, is_special, is_telling, names_of

from .store import ELSEWHERE, Json, Store


def kind_of(word: str) -> str:
    """The only list a word is on, `telling` where it is on none."""
    kinds = {"common": is_common(word), "special": is_special(word), "telling": is_telling(word)}
    named = [name for name, is_it in kinds.items() if is_it]
    assert len(named) <= 1, word
    return named[0] if named else "ordinary"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("common", "uses used using water good people today"),
        ("ordinary", "temperature temperatures shelf shelves billing service harbour deployed"),
        ("special", "velvet parcel parcels granite orchestra glaciers"),
        ("telling", "postgres celadon lisbon kubernetes temprature 42 v1 fermé größe печь 设备 가마"),
    ],
)
def test_a_word_in_any_of_its_forms_is_of_one_kind(kind: str, words: str) -> None:
    assert {word: kind_of(word) for word in words.split()} == dict.fromkeys(words.split(), kind)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("which Harbour closes", "harbour"),
        ("which harbour closes", ""),
        ("Harbour closes early", ""),
        ("Harbour", ""),
        ("HARBOUR CLOSES EARLY", ""),
        ("Harbour Closes Early", ""),
        ("it rains. Harbour closes? Bridge opens! Tunnel floods: Lane", ""),
        ("it rains, Harbour closes; Bridge opens", "harbour"),
        ("the NASA budget", "nasa"),
        ("gitHub fails", "github"),
        ("GitHub fails", "github"),
        ("in 12 Houses", "houses"),
        ("12 Houses burn", ""),
        ("the O'Reilly book", "o reilly"),
        ("read src/Kiln.py now", "src kiln py"),
        ("die Straße und Škoda", "strasse skoda"),
        ("что делает Москва", "москва"),
        ("窑炉 Redis", "redis"),
        ("12 + 3", ""),
    ],
)
def test_a_name_has_a_capital_where_no_sentence_begins_or_inside(text: str, names: str) -> None:
    assert names_of(text) == set(names.split())


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One store for many questions, each of which gets a project of its own."""
    store = Store(tmp_path_factory.mktemp("telling"))
    yield store
    store.close()


@pytest.fixture
def place() -> Json:
    """A context with nothing in it."""
    return {"workspace_id": "wsp_lab", "project_id": f"prj_{next(PLACES)}"}


PLACES = itertools.count(1)
REDIS, POSTGRES = "The billing service uses Redis.", "The billing service uses Postgres."
SHELF = "The shelf temperature was noted."
DEPLOY = "The deploy window has a budget and an engine."

ANSWERS: list[tuple[str, str, bool]] = [
    # The one telling word decides, however the question is written.
    ("billing service uses Postgres", POSTGRES, True),
    ("billing service uses Postgres", REDIS, False),
    ("billing service uses postgres", POSTGRES, True),
    ("billing service uses postgres", REDIS, False),
    ("BILLING SERVICE USES POSTGRES", POSTGRES, True),
    ("BILLING SERVICE USES POSTGRES", REDIS, False),
    ("Does the billing service use Postgres?", POSTGRES, True),
    ("Does the billing service use Postgres?", REDIS, False),
    # More than half of several telling words.
    ("Postgres Redis billing", REDIS, False),
    ("celadon tenmoku saffron kiln", "The celadon and tenmoku kiln was opened.", True),
    ("celadon tenmoku saffron kiln", "The celadon kiln was opened.", False),
    # Numbers are telling words, and the digits of another are not enough.
    ("kiln 12 pressure", "Kiln 12 lost pressure.", True),
    ("kiln 12 pressure", "Kiln 13 lost pressure.", False),
    ("kiln 12 pressure", "Kiln 120 lost pressure.", False),
    ("budget 2024 line 17", "The budget of 2024 has a line for paper.", False),
    ("celadon tenmoku saffron kiln 7", "The celadon, tenmoku and saffron kiln.", False),
    # Two thirds of the special words.
    ("parcel shelf temperature", "The parcel has a temperature.", True),
    ("parcel shelf temperature", SHELF, False),
    ("velvet granite lantern carpet", "A velvet carpet near the granite.", True),
    ("velvet granite lantern carpet", "A velvet carpet near the wall.", False),
    ("velvet granite carpet", "A carpet and granite.", False),
    # Up to four words, where none of them points at something: all that are not common.
    ("shelf temperature", SHELF, True),
    ("shelf temperature pressure", SHELF, False),
    ("shelf temperature pressure garden", "Shelf and garden: temperature.", True),
    ("shelf temperature water people", SHELF, True),
    ("shelf temperature water people", "The people put water on a shelf.", True),
    ("shelf temperature 12", "The shelf has 12 boards.", True),
    # More words: as many as are required, and half of the weight, common words weighing half.
    ("shelf temperature pressure garden engine", SHELF, False),
    ("shelf temperature pressure garden engine", "Garden engine: shelf.", True),
    ("shelf temperature pressure garden engine river", "Garden engine: shelf.", True),
    ("shelf temperature pressure garden engine river bridge", "Garden engine: shelf.", False),
    ("shelf temperature pressure water people", SHELF, False),
    ("shelf temperature pressure water people", "A shelf full of water.", False),
    ("shelf temperature pressure water people", "The people put water on a shelf.", True),
    ("shelf temperature good water people", "Good people drank water.", False),
    ("shelf temperature good water people", "A shelf of good water.", True),
    # An ordinary word written as a name is asked for by that name.
    ("deploy window budget engine of harbour", DEPLOY, True),
    ("deploy window budget engine of Harbour", DEPLOY, False),
    ("deploy window budget engine of Harbour", f"Harbour: {DEPLOY}", True),
    ("Harbour deploy window budget engine", DEPLOY, True),
    ("harBour deploy window budget engine", DEPLOY, False),
    ("DEPLOY WINDOW BUDGET ENGINE OF HARBOUR", DEPLOY, True),
    ("Deploy Window Budget Engine Of Harbour", DEPLOY, True),
    ("from Harbour to Bridge: deploy window budget", f"Harbour: {DEPLOY}", False),
    ("SHELF TEMPERATURE PRESSURE GARDEN ENGINE RIVER", "Garden engine: shelf.", True),
    # Phrases and identifiers, whole.
    ('"slow lane" garden engine', "The slow lane leads to the garden.", True),
    ('"slow lane" garden engine', "The garden engine is slow in its lane.", False),
    ("slow-lane garden engine", "The garden engine is slow in its lane.", False),
    ("garden engine SKU-88", "The garden engine SKU-89 is there.", False),
    ("garden engine SKU-88", "The garden has SKU-88.", True),
    ("garden engine v1.2.3", "The garden engine v1.2.4, 3 fixes.", False),
    ("garden engine src/app/run.py", "The garden engine: app src/run.py", False),
    # Other languages than English: every word tells.
    ("Wann endet der Wartungsvertrag der Druckerpresse?", "Der Wartungsvertrag der Druckerpresse endet im März.", True),
    ("Wann endet der Wartungsvertrag der Druckerpresse?", "Der Sommer endet im September.", False),
    ("¿Cuál es la temperatura del horno?", "La temperatura del horno es de 900 grados.", True),
    ("¿Cuál es la temperatura del horno?", "La capital del agua.", False),
    ("температура печи ночью", "Температура печи растёт.", True),
    ("температура печи ночью", "Давление печи растёт.", False),
    ("حرارة الفرن", "تبلغ حرارة الفرن ٩٠٠", True),
    ("حرارة الفرن", "ضغط الفرن عال", False),
    ("भट्टी का तापमान", "भट्टी का तापमान ९०० है", True),
    ("भट्टी का तापमान", "पानी का दबाव", False),
    ("가마 온도는 얼마인가", "가마 온도는 900도이다", True),
    ("가마 온도는 얼마인가", "가마 압력은 높다", False),
    ("窑炉温度是多少", "窑炉温度为九百度", True),
    ("窑炉温度是多少", "窑炉压力为九百度", False),
    ("窯の温度は何度ですか", "窯の温度は九百です", True),
    ("窯の温度は何度ですか", "窯の圧力は九百です", False),
]


@pytest.mark.proves("retrieval-24")
@pytest.mark.parametrize(("query", "text", "answers"), ANSWERS)
def test_a_text_answers_by_the_words_that_tell_the_question_apart(
    shelf: Store, place: Json, query: str, text: str, answers: bool
) -> None:
    shelf.claim(text, place)
    shelf.artifact("untitled", text, place)
    found = [hit["entity_type"] for hit in shelf.hits(query, place) if hit["ranking"]["qualified"]]
    assert sorted(found) == (["artifact", "claim"] if answers else [])


@pytest.mark.proves("retrieval-24")
@pytest.mark.parametrize(
    ("query", "stored_elsewhere", "answers"),
    [
        ("temprature engine pressure", "The temperature was high.", True),
        ("postgras engine pressure", "Postgres was slow.", False),
        ("shalf engine pressure", "A shelf.", False),
        ("temprature engine pressure", "It was warm.", False),
    ],
    ids=["of an ordinary word", "of a telling word", "too far from any word", "of a word that nobody wrote"],
)
def test_a_misspelling_tells_as_little_as_the_ordinary_word_it_stands_for(
    shelf: Store, place: Json, query: str, stored_elsewhere: str, answers: bool
) -> None:
    text = "The garden engine is under pressure."
    shelf.claims([stored_elsewhere, text], place)
    assert (text in shelf.qualified(query, place)) is answers


def test_a_misspelling_is_read_by_what_the_caller_may_see(shelf: Store, place: Json) -> None:
    """Words of other projects explain none of this one."""
    text = "The shelf is under pressure."
    shelf.claim(text, place)
    shelf.claim("An orchestra plays.", ELSEWHERE)
    assert shelf.qualified("orchesra shelf pressure", place) == []
    shelf.claim("An orchestra sleeps.", place)
    assert text in shelf.qualified("orchesra shelf pressure", place)
