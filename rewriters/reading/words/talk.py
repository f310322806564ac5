"""What a model says beside its texts: introductions, headings, comments, and thoughts without marks.

Structure decides where it can: a line that ends in a colon while text follows introduces it, whatever its language. Words
decide where structure cannot: a few openings per language, and the words for what was asked for and given (`_GIVEN`). What
the query itself begins with is never taken for talk.
"""

from __future__ import annotations

import re

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
      | sorgu\w*|yeniden\ yaz\w+|anahtar\ kelime\w*|yanıt\w*|cevap\w*|soru(?:lar|nun)?|paragraf\w*|metin
      | (?:truy\ vấn|câu\ hỏi|câu\ trả\ lời|từ\ khóa|đoạn\ văn|viết\ lại) | kueri|kata\ kunci|jawaban|pertanyaan|pencarian
      | (?:ال)?استعلام\w*|صياغ\w+|(?:ال)?كلمات\ (?:ال)?مفتاحية|(?:ال)?إجابة|(?:ال)?سؤال|(?:ال)?أسئلة|(?:ال)?فقرة)\b
      | 改写|改寫|查询|查詢|搜索|检索|檢索|关键词|關鍵詞|关键字|問題|问题|回答|答案|段落|文段|版本|结果|結果
      | クエリ|検索|書き換え|言い換え|キーワード|答え|質問|文章 | 쿼리|검색|질의|키워드|답변|질문|문단|단락|재작성
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
# What a model says of itself and its help, and a program of its failure.
_NO_TEXT = re.compile(
    r"""[\s*_>"“]{0,4}(?:
        (?:i|we)(?:['’](?:d|m|ll)|\ (?:would|am|will|can))\ (?:be\ )?(?:happy|glad|delighted|here|pleased)\ to\b
      | (?:i|we)(?:['’]ve|\ have|\ hope)?\ (?:\w+\ ){0,2}(?:written|rewritten|rewrote|wrote|created|provided|generated
            |prepared)\b
      | (?:error|exception|traceback|http\ (?:error|status)|internal\ server\ error|service\ unavailable)\b\s?[:：(]
    )""",
    re.IGNORECASE | re.VERBOSE,
)
# "A more general question would be: x", "Based on what I know: x".
_SAYS = re.compile(
    r"(?:(?:an?|the|one|my|your)\s.{0,40}\b(?:would|could|might|can|is|are)(?:\s+be)?|.{0,40}\b(?:i|my|me|you|your)\b.{0,20})\s*$",
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
_MOST_LABEL_WORDS = 5
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

_MUST = (
    r"(?:['’]ll|['’]d\ better"
    r"|\ (?:(?:need|have|want|am\ going|are\ going)\ to|should|must|will|can|could|would|might|may)|['’]m\ going\ to)"
)
_TO_WORK = rf"""(?:(?:i|we){_MUST}\ (?:\w+\ ){{0,3}}(?:re-?write|rephrase|reformulate|generate|craft|output|come\ up
    |decompose|respond|brainstorm|make\ sure
        |produce|formulate|break\ (?:it|this|the\ query|down))\b
      | (?:i|we){_MUST}\ .{{0,60}}\b(?:write|provide|create|list|give|consider|figure|reply|answer|keep|avoid|include
      |ensure|think|extract|turn|identify
        |cover|focus|find|use|look)\b.{{0,80}}\b(?:user|quer(?:y|ies)|questions?|passage|rewrite|variants?|keywords
        |sentences?|text|json|lines?|prompt)\b
      | i\ (?:think|guess|recall|remember|know|wonder)\ (?:the\ (?:user|query|question|passage|answer)|i\ (?:should
      |need|can|could)|that['’]s|it['’]s)
      | let\ me\ (?:think|see|start\ (?:by|with)|try|write|re-?write|rephrase|reformulate|consider|craft|break
      |analy[sz]e|check|generate|draft|come|parse
        |make\ sure|list|brainstorm|figure|create|produce|formulate|go\ (?:through|with|over)|identify|extract
        |understand|recall)\b
      | let['’]s\ (?:craft|write|rewrite|produce|generate|draft|come\ up|parse|think|see|answer|respond|rephrase
      |formulate|output|do\ it
        |go\ with|make\ (?:it|them|sure)|break\ (?:it|this|the\ query))\b)"""
_ASKER = r"(?:user|searcher|asker|person)"
_THOUGHT = re.compile(
    rf"""[\s*_>"“]{{0,6}}(?:(?:okay|ok|alright|all\ right|hm+|wait|so|well|first|now|right|then|next|maybe|perhaps|also
        |but|and|actually|since
            |alternatively|given\ that)\b[\s,.…-]{{1,4}}){{0,3}}(?:
        the\ {_ASKER}(?:['’]s\ (?:quer|question|request|search|intent|input)
            |\ (?:(?:is|was|has|might|may|seems|appears|probably|likely|clearly|also|really|just|be|to)\ ){{0,3}}
             (?:wants?|asks?|asked|asking|looking\ for|searching\ for|request(?:s|ed|ing)|would\ like|provided|gave
                 |typed|wrote)\b)
      | (?:the|this)\ (?:(?:original|search|user['’]?s?)\ )?(?:query|question|prompt)
            \ (?:is\ (?:asking|about|in|ambiguous|a\ bit|quite)|asks|mentions|seems|says|appears|looks|wants|reads|here
                |at\ the\ end)\b
      | {_TO_WORK}
      | to\ (?:rewrite|rephrase|answer|decompose|reformulate|expand|break|generate|create|write)\ (?:this|the|a|an
      |it)\b.{{0,80}}
            \b(?:i|we|query|question|passage)\b
      | (?:one|another|the\ (?:first|second|third|next|last)|an?\ (?:first|second|third))
            \ (?:query|variant|version|possibility|option|rewrite|sub-?question|sub-?query|one|keyword)
            \ (?:could|might|would|can|should|is\ about|may)\b
      | (?:thinking|thought|reasoning)(?:\ process)?[*_\s]{{0,4}}(?:[:：]|$)
      )
      | [\s*_]{{0,4}}(?:okay|ok|alright|all\ right|hm{{2,}}|wait)[,.…]{{0,3}}\s.{{0,120}}\b(?:{_ASKER}|quer(?:y|ies)
      |question|rewrite|i|let\ me|we)\b
      | [\s*_]{{0,4}}hm{{1,}}[,.…]
      | (?:好的|嗯+|好|首先|那么|现在|接下来|所以)?[，,、。\s]{{0,2}}(?:
            (?:用户|使用者|用戶)(?:想|希望|询问|詢問|在问|问的|的(?:查询|问题|请求|需求|搜索|意图)|正在|输入了|提供了
                |要求|给出)
          | (?:让我|我(?:们)?(?:需要|应该|得|先|来|要|可以)).{{0,40}}?(?:改写|查询|问题|分析|思考|想想|考虑|生成|写
          |用户|段落|关键词|拆)
          | (?:这个|該|该|这条)(?:查询|问题).{{0,20}}?(?:是关于|想|需要|涉及|可能))
      | (?:まず|では|さて|うーん|えーと)?[、,\s]{{0,2}}ユーザーは?.{{0,60}}?(?:求めて|尋ねて|知りた|質問し|探して|検索して)
      | (?:먼저|우선|음|자|좋아요?)?[,.\s]{{0,2}}사용자(?:는|가|의).{{0,60}}?(?:원하|묻고|물어|찾고|요청|질문|검색)
      | (?:(?:хорошо|ладно|итак|так|хм+)[,.\s]{{1,3}})?(?:пользовател\w+\ (?:хоч\w+|спрашива\w+|ищет|прос\w+|интересу\w+)
          | (?:мне\ )?(?:нужно|надо|следует)\ .{{0,30}}(?:написать|переформул|состав|перепис|сформулир))
      | (?:(?:okay|ok|gut|also|hm+|nun)[,.\s]{{1,3}})?(?:de[rm]\ (?:be)?nutzer\w*\ (?:möchte|will|fragt|sucht|hat)
      |ich\ (?:muss|soll(?:te)?)\ .{{0,80}}
            (?:schreib|formulier|anfrage|überleg))
      | (?:(?:bon|alors|ok|hm+|bien)[,.\s]{{1,3}})?(?:l['’]utilisateur\ (?:veut|demande|cherche|souhaite)
      |je\ dois\ .{{0,60}}(?:écrire|reformul|requête|répon|génér))
      | (?:(?:bien|vale|bueno|ok|hm+)[,.\s]{{1,3}})?(?:el\ usuario\ (?:quiere|pregunta|busca|pide|desea|está)
      |(?:necesito|debo|tengo\ que)\ .{{0,60}}
            (?:escribir|reformul|consulta|respond|generar))
      | o\ usuário\ (?:quer|pergunta|busca|deseja|está|procura) | l['’]utente\ (?:vuole|chiede|cerca|desidera|sta)
      | de\ gebruiker\ (?:wil|vraagt|zoekt) | użytkownik\ (?:chce|pyta|szuka|prosi) | kullanıcı\ .{{0,80}}(?:istiyor
      |soruyor|arıyor)
      | المستخدم\ (?:يريد|يسأل|يبحث|يطلب) | उपयोगकर्ता\ .{{0,80}}(?:चाहता|पूछ|जानना) | ผู้ใช้(?:ต้องการ|ถาม|กำลัง|อยาก)
      | người\ dùng\ (?:muốn|hỏi|đang|tìm) | pengguna\ (?:ingin|bertanya|mencari|meminta)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_USER = re.compile(
    r"\b(?:user|searcher|asker|person)|用户|使用者|ユーザー|사용자|пользовател|nutzer|utilisateur|usuario|usuário|utente",
    re.IGNORECASE,
)
# After thoughts, a paragraph with one of these is one more thought.
_FIRST_PERSON = re.compile(r"\b(?:i|i['’](?:ll|m|d|ve)|me|my|we|let['’]s|maybe|hm+|wait|the user)\b|我|用户", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!。！][\"'”’)\]）」*_]{0,3}\s*$")


def given_in(text: str) -> bool:
    """Returns whether a text names what was asked for or given, such as a query, a rewrite or a passage."""
    return _GIVEN.search(text[:_MOST_TALK]) is not None


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
    if not stripped or opens_with(query, stripped.rstrip(":：*_ ")):
        return False
    if ends_in_colon(stripped):
        return True
    if _YES_ALONE.match(stripped) and not opens_with(query, stripped.split()[0]):
        return len(stripped) <= _MOST_TALK
    return len(stripped) <= _MOST_TALK and _HERE.match(stripped) is not None and given_in(stripped)


def announces_texts(paragraph: str) -> bool:
    """Returns whether a paragraph ends in a colon, or has a sentence that says what follows ("Here are the queries.")."""
    sentences = re.split(r"(?<=[.!。！])\s*", paragraph)
    return ends_in_colon(paragraph) or any(_HERE.match(one) is not None and given_in(one) for one in sentences)


def is_only_talk(line: str, query: str) -> bool:
    """Returns whether a line is no text even where nothing follows: it was cut, or the model gave no text."""
    if is_label(line, query) or _says_nothing(line, query):
        return True
    if (rest := without_label(line, query)) != line:
        return _says_nothing(rest, query)
    announces = given_in(line) and (ends_in_colon(line) or _HERE.match(line) is not None)
    return is_introduction(line, query) and (announces or not ends_in_colon(line))


def _says_nothing(line: str, query: str) -> bool:
    """Returns whether a model says that it will help, or a program that it failed; a query may ask for such a message."""
    return _NO_TEXT.match(line) is not None and not _shares_words(line, query)


def is_label(line: str, query: str) -> bool:
    """Returns whether a line says only what was asked for, such as "Rewritten query"."""
    label = line.strip(" *_#:：`")
    given = list(_GIVEN.finditer(label))
    if not given or len(label) > 60 or label_key(label) in label_key(query):
        return False
    return all(_LABEL_WORDS.match(part.strip() + " ") for part in _GIVEN.split(label) if part.strip())


def is_about_query(line: str) -> bool:
    """Returns whether a line repeats what was asked, by its label ("Original query: ...")."""
    return _ORIGINAL.match(line) is not None


def without_label(line: str, query: str) -> str:
    """Returns a line without an affirmation and a label of what was asked for at its beginning."""
    yes = _YES_ALONE.match(line)
    if yes and yes.end() < len(line.rstrip()) and not opens_with(query, line.split(maxsplit=1)[0].rstrip("!.")):
        line = line[yes.end() :].strip()
    for _ in range(2):  # "Here is the rewritten query: Query: x"
        found = _LABEL.match(line)
        if not found or not found["rest"].strip() or opens_with(query, found["label"]):
            break
        label = found["label"]
        introduces = (_HERE.match(label) and given_in(label)) or (_SAYS.match(label) and not _shares_words(label, query))
        if not introduces and not is_label(label, query) and not _is_bold_label(line, label, query):
            break
        line = found["rest"].strip()
        line = line.removeprefix("**").strip() if line.count("**") % 2 else line
    return line


def _is_bold_label(line: str, label: str, query: str) -> bool:
    """Returns whether a label is bold, short, and none of its words is the query's."""
    return (
        line.lstrip().startswith(f"**{label}") and len(label.split()) <= _MOST_LABEL_WORDS and not _shares_words(label, query)
    )


def _shares_words(text: str, query: str) -> bool:
    return bool(set(normalise(text).split()) & set(normalise(query).split()))


def is_comment(line: str, query: str) -> bool:
    """Returns whether a line behind a text comments on it."""
    if is_chatter(line, query) or is_rule(line) or (is_heading(line) and given_in(line)):
        return True
    stripped = line.strip()
    if stripped[:1] in ("(", "（") and stripped[-1:] in (")", "）"):
        return True
    return ends_as_sentence(stripped) and given_in(stripped) and not opens_with(query, stripped)


def is_thought(text: str, query: str) -> bool:
    """Returns whether a line or paragraph is the model's reasoning about its task; the query does not begin so itself."""
    found = _THOUGHT.match(text)
    if found is None or _THOUGHT.match(query) or opens_with(query, text[:40]):
        return False
    subject = _USER.search(found.group())  # a page about users may begin so, too
    return subject is None or subject.group().casefold() not in query.casefold() or given_in(text[:150])


def is_more_thought(text: str, query: str) -> bool:
    """Returns whether a paragraph behind a thought is one, too."""
    return is_thought(text, query) or _FIRST_PERSON.search(text) is not None or (given_in(text) and ends_as_sentence(text))
