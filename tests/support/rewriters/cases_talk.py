"""Answers to requests for one text in which the model talks: headings, introductions, thoughts, comments, refusals."""

from __future__ import annotations

from tests.support.rewriters.cases import QUERY, C, Case, G, K

KEYWORD, GENERAL, PASSAGE, EXPAND = ("keyword",), ("general",), ("hyde",), ("expand",)
ICELAND = "renting a car in iceland documents"
HERE = "To rent a car in Iceland, drivers show a passport, a credit card and a driving licence that is a year old."
ZH, ZH_QUERY = "租车需要护照、信用卡和持有一年以上的驾照，自驾前应确认保险范围。", "冰岛租车要什么证件"


def is_refused(answer: str) -> bool:
    return not answer.startswith(("No ", "The ", "Sure", "Error"))


def passage(
    id: str, answer: str, text: str | None = HERE, query: str = ICELAND, reader: str = "salvage", cut: bool = False
) -> Case:
    return Case(id, answer, {"hyde": text or "!unparsable"}, reader if text else "", query, PASSAGE, cut)


def general(id: str, answer: str, text: str = G, query: str = QUERY) -> Case:
    return Case(id, answer, {"general": text}, "" if text.startswith("!") else "salvage", query, GENERAL)


INTRODUCTIONS = [
    "**Renting a Car in Iceland**",
    "# Renting a Car in Iceland",
    "### Answer",
    "**Answer**",
    "Renting a Car in Iceland",
    "Possible response:",
    "Here is a possible excerpt from an encyclopedia:",
    "Sure, here you go:",
    "Sure!",
    "Title: Renting a Car",
    "Certainly! Based on your query, this is what a page would say:",
    "Here's a short passage that could answer the query.",
    "Hier ist ein möglicher Abschnitt:",
    "Voici un passage possible :",
    "Aquí tienes un pasaje:",
    "Вот возможный отрывок:",
    "Okay, the user wants a passage about car rental.",
    "Query: renting a car in iceland documents",
    "---",
    "| Passage |\n|---|",
    "Let me write a short passage.\n\nI should name the documents.",
    "We need to write a passage of two sentences.",
]
REFUSALS = [
    "I'm sorry. I can't help with that.",
    "I apologize, but I cannot assist with this request.",
    "I can't create explicit content.",
    "I cannot create content that promotes violence.",
    "I can't satisfy your request, I'm just an AI.",
    "I can't write that passage.",
    "I must decline this one.",
    "I won't write about it.",
    "I'm not able to write that.",
    "I cannot verify this.",
    "Sorry, that's not something I can help with.",
    "I don't feel comfortable providing this.",
    "As a responsible AI, I cannot do it.",
    "Unfortunately, I am unable to do so.",
    "This request violates the rules.",
    "Ich kann dabei nicht helfen.",
    "Tut mir leid, aber das geht nicht.",
    "Je ne peux pas répondre.",
    "Désolé, je ne peux pas vous aider.",
    "No puedo ayudarte con eso.",
    "Non posso fornire queste informazioni.",
    "Não posso ajudar com isso.",
    "Ik kan je daar niet mee helpen.",
    "Nie mogę w tym pomóc.",
    "Bu konuda yardımcı olamam.",
    "Tôi không thể giúp với yêu cầu này.",
    "Saya tidak dapat membantu.",
    "Jag kan tyvärr inte hjälpa till.",
    "En voi auttaa tässä.",
    "Omlouvám se, ale nemohu pomoci.",
    "Îmi pare rău, dar nu pot ajuta.",
]
FOREIGN_REFUSALS = {
    "что взять в поход": "Я не могу помочь с этим запросом.",
    "що взяти в похід": "Вибачте, я не можу допомогти.",
    "冰岛租车": "对不起，我不能提供这些内容。",
    "荷物の送り方": "申し訳ありませんが、そのご依頼にはお答えできません。",
    "荷物の料金": "そのリクエストにはお応えできません。",
    "소포 요금": "그 요청은 도와드릴 수 없습니다.",
    "سعر الطرد": "عذرًا، لا أستطيع المساعدة في ذلك.",
    "पार्सल की कीमत": "मैं इस अनुरोध में सहायता नहीं कर सकता।",
    "ราคาพัสดุ": "ขออภัย ฉันไม่สามารถช่วยเรื่องนี้ได้",
    "τιμή δέματος": "Λυπάμαι, αλλά δεν μπορώ να βοηθήσω.",
}
NO_REFUSALS = {
    "cant create process windows": "unable to create process Windows error",
    "docker daemon not conecting": "cannot connect to Docker daemon",
    "kann nicht schlafen": "Ich kann nicht schlafen: was hilft",
    "nao consigo abrir whatsapp web": "não consigo abrir o WhatsApp Web",
    "es tut mir leid englisch": "tut mir leid auf Englisch",
    "resume du seigneur des anneaux le film": "film The Lord of the Rings résumé",
    "怎么教育孩子": "作为父母如何教育孩子",
    "rolling stones satisfaction": "I Can't Get No Satisfaction by the Rolling Stones",
    "why cant i login to facebook": "I can't log in to Facebook",
    "sorry board game rules": "Sorry board game rules",
    "teaching in japan": "As an assistant teacher in Japan",
    "免許なしで車を借りる": "免許がないと車を借りることはできません。",
    "towns with odd names": "Unfortunately named towns in England",
}
NO_THOUGHTS = [
    "Please provide a copy of the passport when renting a car.",
    "If you want to rent a car, bring a passport and a licence.",
    "We cannot see infrared light, since our eyes lack the pigments for it.",
    "To answer a call, slide the green button. To decline it, press the side button.",
    "[12.5] Out of memory: the kernel kills the process with the highest score.",
    "The user interface of Windows 11 lets you move the taskbar in its settings.",
    "First, restart the router and see if the light turns green.",
    "Well water should be tested every year; see the guide of the agency.",
    "Right of way is a question of who comes first.",
    "So many people ask this question that the agency has a page for it.",
    "The user must enter the password twice.",
    "I think, therefore I am, is a sentence by Descartes.",
]
DERIVED = [
    "Thinking...\nThe user wants a passage.\n...done thinking.\n\n",
    "Thought for 3 seconds\n\n",
    "<details><summary>Thinking</summary>\nI should write.\n</details>\n",
    "Reasoning: it must name documents.\n\nAnswer: ",
    "**Thought process:**\n1. Name documents.\n2. Be short.\n\n**Answer:** ",
    "Step 1: Find the subject.\nStep 2: Name it.\n\nFinal answer: ",
    "[Passage]\n",
    "Title: Renting a car\nText: ",
    "Passage 1: ",
    "**Renting a car in Iceland:** ",
    "1. Renting a car\n\n",
    "Renting a car in Iceland:\n\n",
    "Based on what I know: ",
]
NO_TEXTS = [
    "No rewriting needed.",
    "The query is already clear and well-formed.",
    "Unable to rewrite this query.",
    "I'm not sure what you mean.",
    "Cannot comply with this request.",
    "Could you please clarify your query?",
    "Sure! I'd be happy to help.",
    "Error: model overloaded",
]
FORMS = [
    "**Query:** {}\n**Reasoning:** the greeting is gone",
    "```\n{}\n```\n\nThis keeps everything.",
    "**Final Answer**\n\n\\boxed{{{}}}",
    "$\\boxed{{\\text{{{}}}}}$",
    'The rewritten query is "{}".',
    'A better search query would be: "{}"',
    "- {}",
    "→ {}",
    'query = "{}"',
    "Here is a rewritten query:\n\n> **{}**",
    "Reasoning: the user wants a price.\nRewritten query: {}",
    "{}\n\n*Note: the greeting is gone.*",
]
COMMENTS = [
    "**Explanation:**\n- the greeting is gone\n- nothing is added",
    "I dropped the greeting.",
    "(Greeting removed.)",
    "The original query was noisy.",
    "### Changes\n\n1. The greeting is gone.",
    "这个改写去掉了问候语。",
    "Die Begrüßung ist weggefallen.",
]

CASES = [
    *(passage(f"introduced: {one}", f"{one}\n\n{HERE}") for one in INTRODUCTIONS),
    *(
        passage(f"introduced on its line: {one}", f"{one} {HERE}")
        for one in ("Sure!", "**Passage:**", "Answer:", "Here is a passage:")
    ),
    *(
        passage(f"talk and no text: {one}", one, None)
        for one in ("Sure, here is the passage:", "### Answer", "Certainly!", "Passage:")
    ),
    *(passage(f"derived: {one}", f"{one}{HERE}") for one in DERIVED),
    *(general(f"no text: {one}", one, "!refusal" if is_refused(one) else "!unparsable") for one in NO_TEXTS),
    *(general(f"form: {one}", one.format(G)) for one in FORMS),
    Case("an object behind a label", f'Answer: {{"query": "{G}"}}', {"general": G}, "json", asked=GENERAL),
    passage(
        "a page about users",
        "The user wants to see which field is wrong. A form marks it.",
        "The user wants to see which field is wrong. A form marks it.",
        "user input validation",
    ),
    passage(
        "a note that is the subject's",
        "Note: the Note 10 battery holds 3,500 mAh.",
        "Note: the Note 10 battery holds 3,500 mAh.",
        "note 10 battery",
    ),
    passage(
        "a sentence that shows",
        "This is a common question: most companies ask for a passport.",
        "This is a common question: most companies ask for a passport.",
    ),
    passage(
        "markup within a passage",
        'A car is rented with a <a href="x">passport</a> and a licence that is a year old.',
        'A car is rented with a <a href="x">passport</a> and a licence that is a year old.',
    ),
    passage("heading without a break", f"# Renting a Car\n{HERE}"),
    passage("introduced in Chinese", f"好的，以下是一段可能的文章：\n\n{ZH}", ZH, ZH_QUERY),
    passage(
        "introduced in Japanese",
        "もちろんです。以下は文章です。\n\nレンタカーには免許証が必要です。",
        "レンタカーには免許証が必要です。",
        "レンタカー 必要なもの",
    ),
    passage("thoughts in Chinese", f"好的，用户想知道需要什么证件。\n\n{ZH}", ZH, ZH_QUERY),
    passage("thoughts and no more", "Okay, the user wants a passage about cars.\n\nI should name the documents.", None),
    Case(
        "thoughts, cut",
        f"Okay, the user wants a passage.\n\n{HERE} And",
        {"hyde": "!cut_reasoning"},
        "",
        ICELAND,
        PASSAGE,
        cut=True,
    ),
    passage("cut in its second sentence", f"{HERE} The licence must be val", cut=True),
    passage("cut within a number", f"{HERE} It costs 3.", cut=True),
    passage("cut, in Chinese", f"{ZH}保险范", ZH, ZH_QUERY, cut=True),
    Case("cut after few words", "Cars cost a lot. In Iceland, dri", {"hyde": "!truncated"}, "", ICELAND, PASSAGE, cut=True),
    Case("a cut loop", f"{HERE} " + "It is so. " * 60, {"hyde": "!repetition"}, "", ICELAND, PASSAGE, cut=True),
    passage("in a fence", f"Here is a passage:\n```\n{HERE}\n```"),
    passage("code before the text", f"```python\nprint(1)\n```\n{HERE}"),
    passage(
        "a sentence before code",
        "Call sorted on it, as in this line:\n\n```python\nsorted(x)\n```",
        "Call sorted on it, as in this line:",
    ),
    passage("nothing but code", "```python\nsorted(x)\n```", None),
    passage("an element", f"<passage>\n{HERE}\n</passage>"),
    passage("a list", "To rent a car you need:\n\n- a passport\n- a card", "To rent a car you need: a passport; a card"),
    passage("a next query", f"{HERE}\n\nQuery: weather in tokyo\n\nTokyo is humid in summer."),
    passage("a next turn without tokens", f"{HERE}\nuser\nweather in tokyo\nassistant\nTokyo is humid."),
    *(passage(f"no thought: {one}", one, one, "how does it work") for one in NO_THOUGHTS),
    *(Case(f"refusal: {one}", one, {"hyde": "!refusal"}, "", ICELAND, PASSAGE) for one in REFUSALS),
    *(Case(f"refusal: {one}", one, {"hyde": "!refusal"}, "", query, PASSAGE) for query, one in FOREIGN_REFUSALS.items()),
    *(general(f"no refusal: {one}", one, one, query) for query, one in NO_REFUSALS.items()),
    passage("a refusal before a passage", f"I'm sorry, I can't look it up, but here is a passage:\n\n{HERE}"),
    *(general(f"comment: {one}", f"{G}\n\n{one}") for one in COMMENTS),
    general("heading over the query", f"**Rewritten Query**\n\n{G}"),
    general("the query repeated", f"Original query: {QUERY}\nRewritten query: {G}"),
    general("the query repeated without a label", f"{QUERY}\n\n{G}"),
    general(
        "label in Chinese", "改写后的查询：里昂寄包裹到波尔图的价格", "里昂寄包裹到波尔图的价格", "里昂寄包裹到波尔图多少钱啊"
    ),
    general("label in Korean", "다시 작성된 검색어: 소포 요금", "소포 요금", "소포 얼마야"),
    general("label in German", f"Umformulierte Anfrage: {C}", C),
    general("label of the subject's", "Weather forecast: Lyon", "Weather forecast: Lyon", "lyon weather tmrw"),
    Case("keywords one per line", K.replace(", ", "\n"), {"keyword": K}, "salvage", asked=KEYWORD),
    Case(
        "keywords with numbers",
        "\n".join(f"{n}. {k}" for n, k in enumerate(K.split(", "), 1)),
        {"keyword": K},
        "salvage",
        asked=KEYWORD,
    ),
    Case("keywords under a heading", "**Keywords:**\n" + K.replace(", ", "\n"), {"keyword": K}, "salvage", asked=KEYWORD),
    Case("keywords with lines between", K.replace(", ", "\n\n"), {"keyword": K}, "salvage", asked=KEYWORD),
    Case("terms with numbers", "1. postage\n2. courier", {"expand": "postage courier"}, "salvage", asked=EXPAND),
]
