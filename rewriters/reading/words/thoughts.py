"""Thoughts of a model about its task, without marks around them: by how they begin, in some fifteen languages.

What the query itself begins with is never taken for a thought.
"""

from __future__ import annotations

import re

from rewriters.reading.lines import opens_with
from rewriters.reading.words.talk import ends_as_sentence, given_in

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
# "Reasoning: ...", "**Thought process**", "Step 1: ...": what stands before an answer with a label of its own.
_WORKING = re.compile(
    r"[\s*_#>-]{0,6}(?:reasoning|reasons?|analysis|explanation|rationale|thoughts?(?:\ process)?|thinking(?:\ process)?"
    r"|step\ \d{1,2}"
    r"|plan|approach|understanding(?:\ the\ query)?|intent|分析|思考|推理|解释|考え方|분석|анализ|рассуждени[ея]"
    r"|begründung|überlegung|raisonnement"
    r"|analyse|razonamiento|análisis)(?:[*_]{0,3}\s?[:：]|[*_]{0,3}\s*$)",
    re.IGNORECASE,
)


def is_working(line: str) -> bool:
    """Returns whether a line begins a derivation, behind which the answer may have a label."""
    return _WORKING.match(line) is not None


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
