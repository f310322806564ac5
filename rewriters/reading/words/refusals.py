"""Refusals: a subject that cannot, will not or may not, or an apology, where a text begins.

The verb behind it does not matter: no passage and no query begins with what the model cannot do. A query that speaks in the
first person itself ("i can't log in") may be rewritten so; then only what a model says of itself counts. In Japanese and
Korean the refusal ends the sentence, and is told by its humble form.
"""

from __future__ import annotations

import re

from rewriters.reading.answer import label_key

_MODEL = r"(?:ai\b|artificial|language\ model|llm\b|assistant|chat\s?bot|chatbot|helpful)"
_SORRY = r"(?:i['’]?m|i\ am|we['’]?re|we\ are)\ (?:(?:really|so|very|truly|deeply|terribly)\ )?(?:sorry|afraid)"
# What only a model says, whoever asks.
_SAYS_A_MODEL = re.compile(
    rf"""(?:{_SORRY},?\ (?:but|i|that|this|we|to\ say|you)\b | {_SORRY}[.!;:—-]\s?(?:but\ |this\ |that\ |as\ )?(?:i|we
        |it|request)\b
      | (?:(?:my\ |our\ )?(?:sincere\ )?apologies|sorry|unfortunately|regrettably|i\ apologi[sz]e
      |we\ apologi[sz]e)[,.!;:—-]?\s
            (?:but\ )?(?:i|we|as\ an\ ai|that['’]?s|this|that|for|it)\b(?=.{{0,80}}\b(?:can|could|will|able|unable|not
                |don|won|decline|something|
            inconvenience|help|assist|violat|against|request|illegal|outside|topic|subject))
      | (?:i|we)(?:\ (?:really|simply|just|honestly))?(?:\ (?:can\s?no|can['’]?)t|\ won['’]?t|\ will\ not|\ would\ not
      |\ do\ not|\ don['’]?t|['’]d\ rather\ not
            |(?:['’]?m|\ am|\ are|['’]re)\ (?:not\ able|unable|not\ comfortable|not\ allowed|not\ permitted|not\ going
            |programmed|designed)\ ?(?:to)?)
        \ (?:be\ able\ to\ |feel\ comfortable\ )?(?:help(?:\ (?:you|with|out)\b|[.,!]|$)|assist|provid|rewrite|answer
            |fulfil|comply|generat|process|engage|discuss|create|produce|satisfy|support
            |creating|providing|discussing|writing|generating|helping|assisting|with\ that|write\ (?:that|this|such
            |a\ passage|about)
            |have\ (?:enough|access|any|real|the\ ability|information|sufficient|personal)|give\ (?:you|advice
            |instructions)|participat|offer|condone|promote)
      | (?:i|we)\ (?:must|have\ to|need\ to|will\ have\ to|respectfully|am\ going\ to)?\ ?(?:respectfully\
      \ |politely\ )?(?:decline|refuse)\b
      | as\ an?\ (?:\w+\ ){{0,3}}{_MODEL}(?:\ model)?(?=,|\.|$|\ (?:i|my|trained|developed|created)\b) | i['’]?(?:m
      |\ am)\ (?:just\ |only\ |merely\ )?an?\ (?:\w+\ ){{0,2}}{_MODEL}
      | (?:that|this)(?:['’]s|\ is)\ (?:not\ )?(?:something|a\ (?:request|topic|question))\ (?:that\ )?(?:i
      |we)\b.{{0,30}}(?:can['’]?t|cannot|can\ help|won|not|will)
      | (?:this|that|your|the)\ (?:request|query|question|prompt|content)\ (?:violates|goes\ against|is\ against
      |is\ not\ something|asks\ for\ (?:harmful|illegal)
            |may\ violate|appears\ to\ (?:violate|request\ harmful)|contains\ (?:harmful|inappropriate))
      | it(?:['’]s|\ is|\ would)\ (?:not|be)\ (?:appropriate|possible|ethical|inappropriate|unethical
      |irresponsible)\ (?:for\ me\ )?to\ (?:provide|help|assist|write|create|generate
            |discuss|answer|give)
      | (?:unable|not\ able)\ to\ (?:help|assist|rewrite|provide|comply|fulfil|process|answer|generate|create)
            \ [^.\n]{{0,40}}\b(?:this|that|your|such|requests?|quer(?:y|ies))\b
      | (?:can\s?not|can['’]t)\ (?:comply|(?:assist|rewrite|fulfil|process|provide|answer|help\ with)
            \ [^.\n]{{0,40}}\b(?:this|that|your|such|requests?|quer(?:y|ies)))\b
      | (?:i|we)\ (?:don['’]t|do\ not)\ know\b | (?:i['’]m|i\ am)\ not\ (?:sure|certain|familiar|aware)\b
      | i\ (?:understand|hear|can\ (?:see|hear|tell)|know|realize)\ (?:that\ )?(?:you['’]re|you\ are|you\ may|you\ might
            |this\ is)\b
      | if\ you(?:['’]re|\ are|\ or\ someone\ you\ know)\ (?:is\ |are\ )?(?:thinking\ (?:about|of)|having\ thoughts
            |struggling|in\ crisis|feeling\ (?:suicidal|hopeless|overwhelmed)|considering)\b
            .{{0,120}}\b(?:reach\ out|call|help|talk)\b
      | [^.!?\n]{{0,80}}\b(?:you(?:['’]re|\ are)\ not\ alone|no\ est[aá]s\ sol[oa]|não\ está\ sozinh[oa]|non\ sei\ sol[oa]
            |du\ bist\ nicht\ allein|n['’](?:es|êtes)\ pas\ seule?|ты\ не\ один|вы\ не\ одн|je\ bent\ niet\ alleen
            |nie\ jesteś\ sam)\b
      | 听到(?:你|您)这么说 | [^。\n]{{0,40}}(?:(?:你|您)并不孤单|你不是一个人|一人ではありません|혼자가\ 아닙니다)
      | no,?\ i\ (?:can|will|won) | you['’]re\ (?:very\ |most\ )?welcome[.,!]
      | how\ (?:can|may)\ i\ (?:help|assist)\ you\b
      | ich\ habe\ keinen\ zu(?:griff|gang)\b | je\ n['’]ai\ pas\ accès\b | no\ tengo\ acceso\b | não\ tenho\ acesso\b
      | non\ ho\ accesso\b | ik\ heb\ geen\ toegang\b | (?:jag|jeg)\ har\ (?:inte|ikke)\ (?:tillgång|adgang|tilgang)\b
      | у\ меня\ нет\ (?:доступа|информации|данных)\b | nie\ mam\ dostępu\b | nemám\ přístup\b
      | saya\ tidak\ (?:memiliki|punya|mempunyai)\ (?:akses|informasi)\b | tôi\ không\ có\ (?:quyền\ truy\ cập|thông\ tin)
      | (?:我|本助手)(?:目前|暂时|暫時)?(?:没有|沒有)(?:办法|辦法|权限|權限|关于|相关|实时|即時)
      | (?:i|we)\ regret\ (?:that\ i|to) | (?:i|we)['’]?(?:m|\ am)\ not\ an?\ \w+\ and\ (?:can|am|do)
      | (?:i|we)\ have\ no\ (?:information|knowledge|access|data|way)\b | je\ regrette,?\ mais
      | (?:这个|這個|该|該|此|这一)(?:请求|請求|问题|內容|内容).{{0,12}}(?:违反|違反|不符合|不当)
      | [^.\n]{{0,30}}(?:요청|질문|내용)(?:은|는|을|를)\ .{{0,20}}(?:수\ 없습니다|않습니다)
      | (?:很|非常|十分|实在)?(?:抱歉|对不起|對不起|遗憾|不好意思)[，,。！!\s]{{0,2}}(?:但|不过)?(?:我|作为|作為|这|這
      |该|您|本|无法|無法|不能|由于|根据)
      | (?:作为|作為|身为|身為)(?:一个|一個|一名|一款|一位)?(?:ai|人工智能|人工智慧|语言模型|語言模型|大语言模型
      |大型语言模型|助手)
      | (?:您|你)的(?:请求|請求|问题|問題|查询).{{0,12}}(?:违反|違反|不符合|不当|敏感)
      | (?:大変)?(?:申し訳|恐れ入り|恐縮)(?:あり|ござい|ない|ます|です) | (?:すみません|ごめんなさい)(?:が|、|。|けど)
      | 残念ながら.{{0,40}}(?:できません|できかねます|いたしかねます)
      | (?:ai|言語モデル|アシスタント)(?:として|である|なので)
      | [^。\n]{{0,60}}(?:お答え|回答|お手伝い|対応|ご?提供|お応え|ご案内|生成|作成|支援
      |応じ)[^。\n]{{0,12}}(?:できません|できかね|いたしかね|することはできません|しかねます|られません)
      | (?:정말\ )?(?:죄송|미안)(?:합니다|하지만|해요|하게도|스럽) | 유감(?:입니다|스럽게도|이지만)
      | [^.\n]{{0,60}}(?:드릴\ 수\ 없|도와드릴\ 수|답변할\ 수\ 없|도움을\ 드리기)
      | (?:ai|인공지능|언어\ 모델)(?:로서|이므로|이기)
      | (?:es\ )?tut\ mir\ (?:sehr\ |wirklich\ )?leid | (?:ich\ )?(?:bitte\ um\ )?(?:entschuldigung
      |verzeihung),?\ (?:aber|ich|das|dabei)|ich\ entschuldige\ mich
      | leider\ (?:kann|darf|bin|ist\ es\ mir|muss)\ ?(?:ich|mir)? | als\ (?:ki\b|sprachmodell|künstliche)
      | (?:je\ suis\ |nous\ sommes\ )?(?:vraiment\ |sincèrement\ )?(?:désolé|navré)e?s?\b,?\ ?(?:mais|je|de|nous|\.)
      | je\ m['’]excuse|malheureusement,?\ (?:je|nous)\b
      | en\ tant\ qu['’](?:ia|intelligence|assistant)|en\ tant\ que\ (?:modèle|assistant)
      | lo\ (?:siento|lamento)\b[,.]? | (?:lamento|lamentablemente|desafortunadamente|disculpa|disculpe|perdón
      |me\ temo),?\ (?:pero|no|que)\b
      | como\ (?:una?\ |um\ |uma\ )?(?:ia\b|modelo\ de|inteligencia\ art|inteligência\ art|asistente|assistente)
      | (?:mi\ dispiace|sono\ spiacente|spiacente|purtroppo\ non)\b | come\ (?:ia\b|modello|assistente|intelligenza)
      | (?:desculp[ea]|sinto\ muito|lamento|infelizmente|peço\ desculpas),?\ (?:mas|não|eu|que|por)\b
      | (?:het\ spijt\ (?:me|mij)|helaas\ (?:kan|mag)\ ik|sorry,?\ (?:maar\ )?ik) | als\ (?:een\ )?(?:ai|taalmodel)
      | (?:извините|простите|прошу\ прощения|приношу\ извинения|к\ сожалению)[,.]?\ ?(?:но|я|мне|не|этот|это)
      | как\ (?:ии\b|языковая\ модель|искусственн|ассистент)
      | (?:вибачте|на\ жаль|перепрошую),?\ (?:але|я|не) | (?:съжалявам|за\ съжаление)
      | (?:przepraszam|przykro\ mi|niestety),?\ (?:ale|nie|jako) | jako\ (?:model|asystent|ai|sztuczna)
      | (?:üzgünüm|özür\ dilerim|maalesef)\b | bir\ (?:yapay\ zeka|dil\ modeli)\ olarak
      | [^.\n]{{0,60}}(?:yardımcı\ olamam|cevap\ veremem|yanıt\ veremem|sağlayamam)
      | (?:عذر[اًا]+|آسف\w*|أعتذر|للأسف|معذرة) | (?:بصفتي|كنموذج|كوني)
      | (?:متأسفم|متاسفم|ببخشید|با\ عرض\ پوزش) | (?:(?:אני\ )?מצטער\w*|סליחה) | (?:क्षमा\ क|माफ़?\ क|मुझे\ (?:खेद
      |माफ़)) | (?:দুঃখিত)
      | (?:ขออภัย|ขอโทษ|เสียใจด้วย) | (?:xin\ lỗi|rất\ tiếc|tôi\ (?:rất\ )?(?:xin\ lỗi|tiếc))
      | (?:mohon\ )?maaf,?\ (?:saya|tetapi|namun|kami|tapi|sebagai)
      | (?:tyvärr|desværre|dessverre)\ (?:kan|är|kan\ jeg) | (?:jag|jeg)\ (?:är|er)\ (?:ledsen|ked\ af|lei\ for)
      | (?:beklager|undskyld|förlåt),?\ (?:men|jeg|jag)
      | (?:anteeksi|valitettavasti|olen\ pahoillani)\b | (?:omlouvám\ se|ospravedlňujem\ sa|bohužel|je\ mi\ líto)\b
      | (?:λυπάμαι|συγγνώμη)\b
      | (?:îmi\ pare\ rău|ne\ pare\ rău)\b | (?:sajnálom|sajnos\ nem|elnézést)\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)
# A subject that cannot, whatever it cannot: not where the query speaks so itself. English "I" has a capital letter here and
# what follows has none, unlike a title ("I Can't Get No ...").
_SUBJECT_CANNOT = re.compile(
    r"""(?:(?:(?-i:I)|as\ such,?\ i)\ (?-i:can['’]?t|cannot|can\ not|couldn['’]t|won['’]?t|will\ not|am\ unable
        |am\ not\ able|don['’]t\ feel|shouldn['’]t|must\ not|refuse)\ (?-i:[a-z])
      | (?-i:I['’]?m|I\ am)\ (?:unable|not\ able|not\ going|not\ comfortable|not\ in\ a\ position)\b
      | (?:我|本人|本助手)(?:们)?(?:暂时|目前|恐怕)?(?:无法|無法|不能|不會|不会|没办法|沒辦法|拒绝|拒絕|不便|不可以)
      | 无法(?:提供|回答|协助|满足|生成|完成|处理|帮助) | 無法(?:提供|回答|協助)
      | (?:저는|제가|나는).{0,40}(?:수\ 없|못합니다)
      | ich\ (?:kann|darf|werde|möchte|bin)\ [^.\n]{0,80}?\b(?:nicht|keine[nrms]?)\b | je\ (?:ne\ (?:peux|suis|saurais
      |vais|pourrai)\ pas|refuse)\b
      | (?:yo\ )?no\ (?:puedo|me\ es\ posible|estoy\ (?:en\ condiciones|capacitad|autorizad))\b
      | (?:io\ )?non\ (?:posso|sono\ in\ grado|mi\ è\ possibile)\b
      | (?:eu\ )?não\ (?:posso|consigo|me\ é\ possível|estou\ autorizad)\b | ik\ (?:kan|mag|ben
      |wil)\ [^.\n]{0,80}?\b(?:niet|geen)\b
      | я\ (?:не\ (?:могу|смогу|буду|имею|в\ состоянии|вправе)|отказ)\w* | не\ могу\ (?:помочь|ответить|предостав
      |выполн|написать|созда)\w* | я\ не\ можу\b | (?:аз\ )?не\ мога\b
      | nie\ (?:mogę|jestem\ w\ stanie|potrafię)\b | (?:لا\ (?:أستطيع|يمكنني|أقدر)|لست\ قادر) | نمی‌?\s?(?:توانم|تونم)
      | (?:אני\ לא\ יכול|אינני?\ יכול|איני\ יכול)
      | मैं\ [^।\n]{0,80}नहीं\ (?:कर|दे|लिख|सकत|बता) | (?:ฉัน|ผม|ดิฉัน|เรา)?ไม่สามารถ(?:ช่วย|ให้|ตอบ|สร้าง|เขียน|ทำ)
      | tôi\ (?:không\ (?:thể|được)|từ\ chối)
      | saya\ (?:tidak|tak)\ (?:dapat|bisa|boleh|mampu) | (?:jag|jeg)\ kan\ (?:tyvärr\ |desværre\ |dessverre\ )?(?:inte
      |ikke)\b | (?:minä\ )?en\ (?:voi|pysty)\b
      | det\ kan\ (?:jag|jeg)\ [^.\n]{0,30}?\b(?:inte|ikke)\b
      | (?:dabei|damit|dazu|hierbei|hierzu|das)\ (?:kann|darf)\ ich\ [^.\n]{0,40}?\b(?:nicht|keine)\b
      | (?:daar\w*|dat)\ (?:kan|mag)\ ik\ [^.\n]{0,40}?\b(?:niet|geen)\b
      | nemohu\b | δεν\ (?:μπορώ|είμαι\ σε\ θέση) | nu\ (?:pot|sunt\ în\ măsură)\b | nem\ (?:tudok|tudom|áll\ módomban)\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)
# Questions to the asker: about the query, or for one.
_ASKS = re.compile(
    r"""(?:(?:could|can|would)\ you\ (?:please\ )?(?:clarify|specify|rephrase|elaborate|tell\ me
            |(?:provide|share|give\ me)\b.{0,60}\b(?:more|details|context|information|quer(?:y|ies)|questions?|what|which
            |your?)\b)
      | [^.\n]{0,60}\b(?:(?<!what\ )do\ you\ mean|are\ you\ (?:looking\ for|referring\ to|asking)|would\ you\ like\ me
            |do\ you\ want\ me)\b
      | please\ (?:clarify|rephrase)\b | what\ would\ you\ like\ (?:me\ )?to\ (?:compare|know|search|find|ask|rewrite)\b
      | (?:to\ [^.,\n]{1,60},\ )?(?:i|we)(?:['’]d|['’]ll|\ would|\ will)?\ (?:need|require)
            \ (?:some|(?:(?:a\ (?:bit|little|few)|some|any)\ )?(?:more|further|additional))
            \ (?:details?|information|context|clarification)\b
      | please\ (?:provide|specify|share|enter|paste|upload|send|attach|type)\b.{0,40}\b(?:query|question|details|information
            |context|more|text|what|your?|code|file|document|link)\b
      | it\ (?:seems|looks|appears|sounds)\ (?:like\ |as\ if\ |that\ )?(?:you\b|(?:your|the)\ (?:query|question|request|search
            |message))
      | (?:your|the)\ (?:search\ )?(?:query|question|message)\ (?:is|seems|appears)\ (?:to\ be\ )?(?:empty|incomplete
            |unclear|missing|cut)
      | (?:no|without\ a)\ (?:query|question)\ (?:was|is|has|to)\b | i\ (?:don['’]t|do\ not)\ (?:see|understand|know\ what)\b
      | 请(?:您)?(?:提供|输入|说明|告诉我|明确|补充) | (?:検索)?(?:クエリ|質問|キーワード)を.{0,12}(?:入力し|提供し|教えて)
      | bitte\ (?:geben|nennen|präzisieren|stellen|formulieren)\ sie | veuillez\ (?:fournir|préciser|indiquer|reformuler)
      | por\ favor,?\ (?:proporcion|indi[cq]|especific|aclar|forne[cç]a|informe)
      | пожалуйста,\ (?:уточните|предоставьте|укажите|введите)
    )""",
    re.IGNORECASE | re.VERBOSE,
)
# What a model says of itself within a text or behind its first sentence; "We can't help you" may be a company's.
_OF_ITSELF = re.compile(
    rf"""(?:[.!?:;,]|\s[–—-])\s+(?P<says>as\ an?\ (?:\w+\ ){{0,3}}{_MODEL}(?:\ model)?(?=,|\ (?:i|my)\b)
      | (?:as\ |since\ |because\ |but\ |so\ |and\ |however,?\ )?i\ (?:currently\ |also\ )?(?:(?:do\ not|don['’]t)\ have
            \ (?:\w+\ ){{0,2}}?(?:access|ability|capability|real-time|information|knowledge|data)\b
        |(?:can\s?not|can['’]t|(?:am|['’]m)\ (?:unable|not\ able)\ to)\ (?:provide|help\ with|assist|predict|access|browse
            |verify|fulfil|answer|generate|rewrite|see\ the\ future)\b
        |(?:lack|have\ no)\ (?:access|knowledge|information|ability)\b)
      | my\ (?:training\ data|knowledge\ cut-?off)\b | how\ (?:can|may)\ i\ (?:help|assist)\ you\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_SENTENCES = re.compile(r"[.!?]\s+")
_MOST_BEGINNING = 400  # characters of a text that are looked at
_FIRST_PERSON = re.compile(
    r"\b(?:can['’]?t|cannot|unable|kann (?:ich )?nicht|nao (?:consigo|posso)|peux pas"
    r"|i|i['’]m|me|my|we|our|ich|mir|mein\w*|je|j['’]|mon|mes|yo|mi|mis|no puedo|io|non (?:posso|riesco)|eu|meu|minha"
    r"|não (?:consigo|posso)|ik|mijn|я|мне|мой|моя|не могу|nie mogę|mój|moja|benim|saya|tôi|jag|jeg|en voi"
    r"|nemohu|můj|nu pot|nem tud\w+)\b|我|저|제|내 |나는|私|僕|俺|मैं|मेर|मुझे|ฉัน|ผม|لا أستطيع|لا يمكنني|δεν μπορώ|μου",
    re.IGNORECASE,
)
_QUERY = re.compile(r"\b(?:quer(?:y|ies)|search|rewrit\w+|rephras\w+)\b", re.IGNORECASE)
_SENTENCE = re.compile(r"[.?!:。？！：]")  # "could you clarify email template" asks nothing
# A model that cannot help, whoever asks: a query in the first person may be rewritten with "I can't", and asks for no help so.
_HELP = re.compile(
    r"\b(?:help|assist|helfen|hilfe|aider|aide|ayud|ajud|aiut|help(?:en)?\b|hjälp|hjælp|hjelp|помо[гщч]|допомо|pom[oó][cgž]"
    r"|yardım|segít|autta|ajut[aă]|βοηθ|bantu|giúp|hỗ\ trợ)|לעזור|مساعد|کمک|मदद|সাহায্য|ช่วย|手伝|帮助|幫助|협조|도와",
    re.IGNORECASE,
)
_OPENING = " \t\n\"'“”‘„«「*_#>-"


def is_refusal(text: str, query: str) -> bool:
    """Returns whether a text begins with a refusal that the query does not contain ("sorry, but i can't ... lyrics")."""
    begins = text.lstrip(_OPENING)
    for pattern in (_SAYS_A_MODEL, _ASKS):
        found = pattern.match(begins)
        if found is not None and not _is_of(found, query) and (pattern is _SAYS_A_MODEL or _SENTENCE.search(begins)):
            return True
    found = _SUBJECT_CANNOT.match(begins)
    if found is not None and not _is_of(found, query):
        helps = _HELP.search(re.split(r"[.!?。！？\n]", begins, maxsplit=1)[0])
        if not _FIRST_PERSON.search(query) or (helps and not _HELP.search(query)):
            return True
    return _speaks_of_itself(begins[:_MOST_BEGINNING], query)


def _is_of(found: re.Match[str], query: str) -> bool:
    return label_key(found.group()) in label_key(query)


def _speaks_of_itself(begins: str, query: str) -> bool:
    """Returns whether a model speaks of itself, or asks for a query, behind the first clause of a text."""
    for found in _OF_ITSELF.finditer(begins):
        before = begins[: found.start()]
        is_quoted = before.count('"') % 2 or before.count("“") > before.count("”")
        if not is_quoted and not _FIRST_PERSON.search(query) and label_key(found["says"]) not in label_key(query):
            return True
    if not _QUERY.search(begins):
        return False
    ends = [at.end() for at in _SENTENCES.finditer(begins)]
    return any((asks := _ASKS.match(begins, end)) and _QUERY.search(begins, end) and not _is_of(asks, query) for end in ends)


def without_questions(paragraph: str) -> str:
    """Returns a paragraph without the sentences that ask the asker something."""
    sentences = re.split(r"(?<=[.!?。！？])\s*", paragraph)
    return " ".join(one for one in sentences if not _ASKS.match(one)) if any(map(_ASKS.match, sentences)) else paragraph
