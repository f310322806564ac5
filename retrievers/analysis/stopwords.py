"""Stop words of languages that bm25s has no list for: the most frequent words that only join others.

Written for this project: pronouns, prepositions, conjunctions, articles, forms of to be.
"""

OURS = {
    "arabic": "في من على إلى الى عن مع هذا هذه ذلك تلك الذي التي الذين ما لا لم لن قد كان كانت هو هي هم أو او ثم أن إن ان أي "
    "كل بين عند بعد قبل حتى إذا لكن ليس كما هل حيث منذ و به بها له لها فيه فيها منه منها عليه عليها يكون تكون",
    "catalan": "el la els les l un una uns unes de del dels d a al als en i o que qui per amb com és són era eren no més se "
    "es seu seva aquest aquesta això hi ha han ser està entre sobre però si ja molt també fins quan on pel pels",
    "czech": "a i o u v k s z na do od po za pro při před přes bez nad pod mezi je jsou byl byla bylo byli být se si že aby "
    "ale nebo jako který která které co to ten ta tento tato toto jeho její jejich není tak také už když kde kdy jak ve ke ze",
    "finnish": "ja on ei se ne hän he minä sinä me te että joka jotka mikä mitä oli ovat olla ollut kun kuin jos mutta tai "
    "sekä myös niin vain nyt tämä tämän tätä tuo sen niiden hänen heidän siitä siinä sitä ole oli olivat vielä jo voi",
    "greek": "ο η το οι τα του της των τον την τους τις ένας μια ένα και να με σε από για που πως ότι θα δεν μη είναι ήταν "
    "στο στη στην στον στα στις στους ως αλλά ή αν όταν όπως αυτό αυτή αυτός κατά μετά πριν μας σας πολύ πιο",
    "hindi": "का की के में से को पर ने और या है हैं था थी थे हो होता होती होते यह ये वह वे इस उस इन उन जो कि तो ही भी नहीं एक "
    "तक लिए साथ बाद अपने अपना अपनी कर करना करने किया गया गई कुछ क्या कैसे जब हुआ हुई हुए",
    "hungarian": "a az és is hogy nem ez egy van volt meg de ha csak már mint vagy el ki be fel le azt ezt aki ami amely "
    "ahol amikor mert még sem után között alatt szerint minden lesz lehet ezek azok ő ők én te mi ti nagyon pedig így úgy",
    "indonesian": "yang dan di ke dari untuk pada dengan ini itu adalah atau tidak akan oleh dalam sebagai juga karena "
    "telah sudah dapat bisa ada saat lebih para agar seperti saya anda kami kita mereka dia ia hanya namun tetapi jika maka",
    "persian": "و در به از که را این آن با برای است بود شد می ها های هم یک تا بر یا اما اگر نیز هر هیچ چه چون شود شده کرد "
    "کند باشد بودند هستند او ما شما آنها خود دیگر پس پیش بین روی",
    "polish": "i w z na do o od po za dla przy przed przez bez nad pod między jest są był była było być się że aby ale lub "
    "albo jak który która które co to ten ta tego tej jego jej ich nie tak także już gdy gdzie kiedy a ze we u czy tym oraz",
    "romanian": "și si în in de la cu pe din pentru prin un o unui unei al a ale ai că ca nu este sunt era au fost fi se să "
    "sau dar mai care ce cum când unde dacă după între până foarte acest această aceasta lui ei lor îl îi le",
}
"""Language -> words."""
