"""What a model says beside its texts: introductions, headings, comments, and thoughts without marks.

Structure decides where it can: a line that ends in a colon while text follows introduces it, whatever its language. Words
decide where structure cannot: a few openings per language, and the words for what was asked for and given (`_GIVEN`). What
the query itself begins with is never taken for talk.
"""

from __future__ import annotations

import re
from functools import lru_cache

from rewriters.normalise import normalise
from rewriters.reading.answer import label_key
from rewriters.reading.lines import is_chatter, opens_with

# Words for what a model is asked for and gives: query, rewrite, keywords, answer, passage, version, list.
_GIVEN = re.compile(
    r"""\b(?:(?:sub-?)?quer(?:y|ies)|(?:sub-?)?questions?|keywords?|rewrit\w*|rephras\w+|reword\w+|reformulat\w+
        |versions?|variants?
        |variations?|passages?|paragraphs?|answers?|responses?|replies|reply|outputs?|results?|searches|search\ terms?
        |snippets?
        |excerpts?|perspectives?|alternatives?|expansions?|synonyms|documents?|terms
      | suchanfragen?|anfragen?|umformulier\w+|umgeschrieben\w*|schlüsselwörter|stichw\w+|suchbegriffe?|antwort\w*|fragen?
        |abschnitt|absatz|fassung(?:en)?|varianten?
      | requêtes?|reformul\w+|réécri\w+|mots[- ]clés|réponses?|paragraphes?|recherches?|termes|extraits?
      | consultas?|reescri\w+|palabras\ clave|respuestas?|preguntas?|pasajes?|párrafos?|búsquedas?|versi[oó]n(?:es)?
      |términos
      | palavras-chave|respostas?|perguntas?|passage[nm]s?|trechos?|parágrafos?|buscas?|pesquisas?|vers[õã]o?(?:es)?
      | parole\ chiave|rispost[ae]|domand[ae]|bran[oi]|paragraf[oi]|ricerc[ah]e?|riformul\w+|riscritt\w+
      | zoekopdracht(?:en)?|zoekvragen|zoekvraag|herschreven|herformul\w+|trefwoorden|antwoorden?|vragen|vraag|alinea
      | запрос\w*|переформулир\w+|переписан\w+|ключев\w+\ слов\w+|ответ\w*|вопрос\w*|отрывок|фрагмент\w*|абзац
      |вариант\w*|верси\w+
      | zapyta\w+|przeformułowan\w+|słowa\ kluczowe|odpowied\w+|pyta(?:nie|nia)|fragment\w*|wersj\w+
      | (?:sök|søge|søke)?(?:fråg(?:a|or)|foresp[øo]r(?:g?sel)\w*)|omskriv\w+|omskrev\w+|omformuler\w+
      |(?:sök|nøgle|nøkkel|nyckel)ord|svar|spørg?smål|kysely\w*|hakusan\w+|avainsan\w+|vastau\w+|uudelleenmuotoil\w+
      | dotaz\w*|přeformulovan\w+|přepsan\w+|klíčov\w+\ slov\w+|odpověď|otázk\w+
      | lekérdezés\w*|keresőkifejezés\w*|átfogalmaz\w+|kulcssz\w+|válasz|kérdés\w*
      | interogar\w+|reformulat[ăa]|rescris[ăa]|cuvinte\ cheie|răspuns\w*|întreb\w+
      | ερώτημα\w*|αναζήτηση\w*|λέξεις-κλειδιά|απάντηση|ερώτηση
      | запит\w*|переформульован\w+|ключові\ слова|відповідь|питання|преформулиран\w+|отговор
      | sorgu\w*|yeniden\ yaz\w+|anahtar\ kelime\w*|yanıt\w*|cevap\w*|soru(?:lar|nun)?|paragraf\w*|metin
      | (?:truy\ vấn|câu\ hỏi|câu\ trả\ lời|từ\ khóa|đoạn\ văn|viết\ lại) | kueri|kata\ kunci|jawaban|pertanyaan|pencarian
      | (?:ال)?استعلام\w*|صياغ\w+|(?:ال)?كلمات\ (?:ال)?مفتاحية|(?:ال)?إجابة|(?:ال)?سؤال|(?:ال)?أسئلة|(?:ال)?فقرة)\b
      | 改写|改寫|查询|查詢|搜索|检索|檢索|关键词|關鍵詞|关键字|問題|问题|回答|答案|段落|文段|版本|结果|結果
      | クエリ|検索|書き換え|言い換え|キーワード|答え|質問|文章 | 쿼리|검색|질의|키워드|답변|질문|문단|단락|재작성
      | שאילת\w+|מילות\ מפתח|תשובה | پرس‌?و?جو\w*|بازنویسی\w*|کلمات\ کلیدی|پاسخ
      | প্রশ্ন|অনুসন্ধান|উত্তর | வினவல்|தேடல்|கேள்வி|பதில்
      | प्रश्न|क्वेरी|खोज|कीवर्ड|उत्तर|अनुच्छेद | คำค้น|คำถาม|คำตอบ|คำสำคัญ|ข้อความ|ย่อหน้า
    """,
    re.IGNORECASE | re.VERBOSE,
)
_YES = (
    r"(?:sure(?:\ thing)?|certainly|of\ course|absolutely|okay|ok|great|gladly|no\ problem|understood|got\ it|yes"
    r"|gerne?|natürlich|klar|selbstverständlich|bien\ sûr|d['’]accord|certainement|claro(?:\ que\ sí)?|por\ supuesto"
    r"|com\ certeza|certo|certamente|natuurlijk|zeker|конечно|хорошо|разумеется|oczywiście|jasne|tabii(?:\ ki)?|elbette"
    r"|بالطبع|بالتأكيد|حسن[اًا]+|ज़रूर|बिल्कुल|tentu(?:\ saja)?|baik|chắc\ chắn(?:\ rồi)?|vâng"
    r"|好的|当然(?:可以)?|當然(?:可以)?|没问题|沒問題|もちろん(?:です)?|承知(?:いた)?しました|かしこまりました|はい|わかりました|물론(?:입니다|이죠)?|네|알겠습니다"
    r"|ได้(?:เลย|ครับ|ค่ะ)+|แน่นอน(?:ครับ|ค่ะ)?)"
)
_YES_ALONE = re.compile(
    rf"\s*[*_]{{0,3}}{_YES}(?:[,，、]?\s(?:i|we|let|happy|glad|no)\b[^.!\n]{{0,120}}?)?\s?[!.。！]+[*_]{{0,3}}(?=\s|$|[^\x00-\u024f])",
    re.IGNORECASE,
)
# What a model says of itself, its help and the query.
_NO_TEXT = re.compile(
    r"""[\s*_>"“]{0,4}(?:
        (?:i|we)(?:['’](?:d|m|ll)|\ (?:would|am|will|can))\ (?:be\ )?(?:happy|glad|delighted|here|pleased|ready)\ to\b
      | (?:i|we)(?:['’]ve|\ have|\ hope)?\ (?:\w+\ ){0,2}(?:written|rewritten|rewrote|wrote|created|provided|generated
            |prepared)\b
      | no\ (?:re-?writ\w+|changes?|rephras\w+)\ (?:is\ |are\ |was\ )?(?:needed|necessary|required)
      | (?:the|this|your)\ (?:\w+\ ){0,2}(?:query|question)(?:\s["“'‘][^"”\n]{1,200}["”'’])?
            \ (?:is\ already|already|does\ not\ need|doesn['’]t\ need|needs\ no
            |(?:should|must|needs\ to)\ (?:be|have|include|contain|keep|preserve))\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)
# What a program says of its failure.
_FAILURE = re.compile(
    r"""[\s*_>"“]{0,4}(?:
        (?:error(?:\ code)?|exception|traceback|http\ (?:error|status)|internal\ server\ error|service\ unavailable)\b\s?[:：(]
      | (?:\d{3}\ )?(?:bad\ gateway|gateway\ time-?out|too\ many\ requests|internal\ server\ error
            |service\ unavailable)\s?(?:[.,;]|$)
      | (?:the|this|our)\ server\ (?:had\ an?\ error|encountered|is\ (?:currently\ )?(?:overloaded|busy|unavailable))
      | (?:rate\ limit\ (?:reached|exceeded)|upstream\ (?:connect\ error|request\ timeout)|no\ healthy\ upstream)\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_QUOTED = re.compile(r"(?P<label>[^\"“”:：=]{3,60}?)\s?[:：=]?\s?[\"“](?P<text>[^\"“”]{3,})[\"”]\s?[.。]?\s*$")
_IN_QUOTES = re.compile(r"[\"“‘][^\"”’\n]*[\"”’]")
_SHOWN = re.compile(r"\s*(?:this|that|these)\b(?!\s(?:is|are)\s(?:the|my|your)\b)", re.IGNORECASE)  # "this is a ..."
_NOUN = re.compile(r"[\s*_#]{0,4}(?:text|body|content|summary|texte|texto|testo)\s*$", re.IGNORECASE)
# "A more general question would be: x", "Based on what I know: x".
_SAYS = re.compile(
    r"(?:(?:an?|the|one|my|your)\s.{0,40}\b(?:would|could|might|can|is|are)(?:\s+be)?"
    r"|[^(\[]{0,40}\b(?:i\ (?:know|can|could|have|found|recall|understand)|my|me|your?)\b[^(\[]{0,20})\s*$",
    re.IGNORECASE,
)
_HERE = re.compile(
    rf"""[\s*_]{{0,4}}(?:{_YES}[\s,，、.!！。-]{{1,3}})?(?:
        here(?:['’]s|\ is|\ are|\ you)\b|below\b|the\ following\b|(?:this|that|these)\ (?:is|are)\b|following\ (?:is|are)\b
      | hier\b|nachfolgend|im\ folgenden|unten\b|nachstehend|voici|voilà|ci-dessous|aquí|a\ continuación
      |est[ae]s?\ (?:es|son)\b
      | aqui|segue|abaixo|a\ seguir|ecco|di\ seguito|hieronder|вот\b|ниже\b|далее\b|oto\b|poniżej|işte|aşağıda
      | إليك|فيما\ يلي|هذ[اه]\b|यहाँ|नीचे|निम्न|(?:นี่|นี้)คือ|ต่อไปนี้|ด้านล่าง|đây\ là|dưới\ đây|sau\ đây|berikut
      |ini\ adalah
      | 以下|下面|这是|這是|こちら|次(?:の|は|に)|다음은?|아래
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_WORD = re.compile(r"[^\W_]+")
_AROUND = " \"'>*_#`"
_ARROW = re.compile(r"(?P<before>[^→⇒⟶\n]+?)\s?(?:→|⇒|⟶|[-=]{1,2}>)\s?(?P<text>\S.*)")
_MOST_FOREIGN = 30  # characters of a label that is told without its other words
_MOST_LABEL_WORDS, _TELLING = 5, 4  # words of a label; characters of a word that is more than a function word
_MOST_TALK = 250  # characters of an introduction or a heading
# "Rewritten query:", "关键词：", "**Passage**:" - a label that says only what was asked for.
_LABEL_WORDS = re.compile(
    r"""[\s*_\#>-]{0,6}(?:(?:the|a|an|my|your|our|one|new|final|best|improved|original|given|optimi[sz]ed|refined
        |possible|suggested|revised|clean(?:ed)?
        |clear(?:er)?|core|pseudo|hypothetical|extracted|general|plain|main|key|search|user|sample|example|short|single
        |is|are|die|der
        |das|la|le|les|el|los|las|o|a|os|as|il|lo|i|de|du|des|для|по|neue?|nouvelle|nueva|nova|nuova|nieuwe|новый|новая
        |后的|後的|为|は|た|された|後の|の|어
        |重写|優化|优化|最终|最終|新しい|새로운|다시\ 작성된|된|다시\ 쓴)\ ?){0,5}$""",
    re.IGNORECASE | re.VERBOSE,
)
_ORIGINAL = re.compile(
    r"""[\s*_#>-]{0,6}(?:the\ |your\ |user['’]?s?\ )?(?:original|input|given|initial|user|your|原始|原|元の|원래
        |ursprüngliche?|исходн\w+)\s?(?:(?:search|user)\ )?
        (?:query|question|input|查询|问题|クエリ|質問|검색어|질문|anfrage|frage|запрос|вопрос)[*_]{0,3}\s?[:：]""",
    re.IGNORECASE | re.VERBOSE,
)
_LABEL = re.compile(r"[\s*_#>`-]{0,6}(?P<label>[^:：\n]{1,60}?)[*_`]{0,3}\s?[:：][*_`]{0,3}\s{0,3}(?P<rest>.*)", re.DOTALL)
_HEADING = re.compile(r"\s{0,3}#{1,6}\s+\S|\s{0,3}(?P<bold>\*\*|__)(?!\s)[^*_\n]{1,200}(?P=bold)\s?[:：]?\s*$")
_RULE = re.compile(r"\s*(?:[-=_*]\s?){3,}\s*$")
_COLON = re.compile(r"[:：][\s*_`]{0,4}$")

_SENTENCE_END = re.compile(r"[.!。！][\"'”’)\]）」*_]{0,3}\s*$")


def given_in(text: str) -> bool:
    """Returns whether a text names what was asked for or given, such as a query, a rewrite or a passage."""
    return _is_given(text[:_MOST_TALK])


@lru_cache(maxsize=1024)
def _is_given(opening: str) -> bool:
    """Returns whether words for what was asked for stand in a text; several checks ask it of the same line."""
    return _GIVEN.search(opening) is not None


def ends_in_colon(text: str) -> bool:
    """Returns whether a text introduces what follows."""
    return _COLON.search(text) is not None


def ends_as_sentence(text: str) -> bool:
    """Returns whether a text ends with a full stop or an exclamation mark."""
    return _SENTENCE_END.search(text) is not None


def is_rule(line: str) -> bool:
    """Returns whether a line is only drawn."""
    return _RULE.match(line) is not None


def is_heading(line: str) -> bool:
    """Returns whether a line is a Markdown heading, or bold from its beginning to its end."""
    return _HEADING.match(line) is not None


def is_introduction(line: str, query: str) -> bool:
    """Returns whether a line introduces the text that follows; without one, it introduces nothing."""
    stripped = line.strip()
    if not stripped:
        return False
    if ends_in_colon(stripped):
        return True
    if opens_with(query, stripped):
        return False
    if _YES_ALONE.match(stripped) and not opens_with(query, stripped.split()[0]):
        return len(stripped) <= _MOST_TALK
    return len(stripped) <= _MOST_TALK and _announces(stripped)


def announces_texts(paragraph: str) -> bool:
    """Returns whether a paragraph ends in a colon, or has a sentence that says what follows ("Here are the queries.")."""
    sentences = re.split(r"(?<=[.!。！])\s*", paragraph)
    return ends_in_colon(paragraph) or any(map(_announces, sentences))


def is_only_talk(line: str, query: str) -> bool:
    """Returns whether a line is no text even where nothing follows: it was cut, or the model gave no text."""
    if is_label(line, query) or _says_nothing(line, query):
        return True
    if (rest := without_label(line, query)) != line:
        return _says_nothing(rest, query)
    announces = given_in(line) and (ends_in_colon(line) or _announces(line))
    return is_introduction(line, query) and (announces or not ends_in_colon(line))


def _says_nothing(line: str, query: str) -> bool:
    """Returns whether a model says that it will help, or a program that it failed; a query may ask for such a message."""
    found = _NO_TEXT.match(line)
    if found is not None and not _shares_words(_IN_QUOTES.sub("", found.group()), query, _TELLING):
        return True
    return _FAILURE.match(line) is not None and not _shares_words(line, query, _TELLING)


def is_label(line: str, query: str) -> bool:
    """Returns whether a line says only what was asked for, such as "Rewritten query" or "[Passage 1]"."""
    label = line.strip(" *_#:：`[]【】")
    given = list(_GIVEN.finditer(label)) or _NOUN.match(label)
    if not given or len(label) > 60 or label_key(label) in label_key(query):
        return False
    rest = [part.strip() for part in _GIVEN.split(label) if part.strip() and not part.strip().isdigit()]
    if len(label) <= _MOST_FOREIGN and not re.search(
        r"[a-z:：]", label, re.IGNORECASE
    ):  # no Latin letters: other words for "rewritten" than ours
        return len(label.split()) <= _MOST_LABEL_WORDS and not _shares_words(label, query)
    return all(_LABEL_WORDS.match(part + " ") or _NOUN.match(part) for part in rest)


def is_about_query(line: str) -> bool:
    """Returns whether a line repeats what was asked, by its label ("Original query: ...")."""
    return _ORIGINAL.match(line) is not None


def repeats_query(line: str, query: str) -> bool:
    """Returns whether a line is the query, with or without a label of whatever words."""
    rest = re.split(r"[:：]", line, maxsplit=1)[-1]
    return normalise(query) in (normalise(one.strip(_AROUND)) for one in (line, without_label(line, query), rest))


def without_label(line: str, query: str) -> str:
    """Returns a line without an affirmation and a label of what was asked for at its beginning."""
    yes = _YES_ALONE.match(line)
    if yes and yes.end() < len(line.rstrip()) and not opens_with(query, line.split(maxsplit=1)[0].rstrip("!.")):
        line = line[yes.end() :].strip()
    arrow = _ARROW.match(line)
    if arrow and normalise(arrow["before"].strip(_AROUND)) == normalise(query):
        return arrow["text"].strip()
    quoted = _QUOTED.match(line)
    if quoted and given_in(quoted["label"]) and not opens_with(query, quoted["label"]):
        return quoted["text"]
    for _ in range(2):  # "Here is the rewritten query: Query: x"
        found = _LABEL.match(line)
        if not found or not found["rest"].strip() or opens_with(query, found["label"]):
            break
        label = found["label"]
        introduces = _announces(label) or (_SAYS.match(label) and not _shares_words(label, query, _TELLING))
        if not introduces and not is_label(label, query) and not _is_bold_label(line, label, query):
            break
        line = found["rest"].strip()
        line = line.removeprefix("**").strip() if line.count("**") % 2 else line
    return line


def _announces(text: str) -> bool:
    """Returns whether a text begins with words that show something, and names what was asked for."""
    return _HERE.match(text) is not None and given_in(text) and not _SHOWN.match(text)


def _is_bold_label(line: str, label: str, query: str) -> bool:
    """Returns whether a label is bold, short, and none of its words is the query's."""
    return (
        line.lstrip().startswith(f"**{label}") and len(label.split()) <= _MOST_LABEL_WORDS and not _shares_words(label, query)
    )


def _shares_words(text: str, query: str, least: int = 1) -> bool:
    """Returns whether two texts have a word in common, of so many characters."""
    known = set(_WORD.findall(normalise(query)))
    return any(word in known and (len(word) >= least or not word.isascii()) for word in _WORD.findall(normalise(text)))


def is_comment(line: str, query: str) -> bool:
    """Returns whether a line behind a text comments on it."""
    if is_chatter(line, query) or is_rule(line) or (is_heading(line) and given_in(line)):
        return True
    stripped = line.strip()
    if stripped[:1] in ("(", "（") and stripped[-1:] in (")", "）"):
        return True
    return ends_as_sentence(stripped) and given_in(stripped) and not opens_with(query, stripped)
