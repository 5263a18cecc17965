"""Words by which other languages than English deny an answer, doubt it, or make it conditional."""

from __future__ import annotations

from .denial_tables import DenialWords
from .denials_chinese import CHINESE
from .denials_french import FRENCH
from .denials_german import GERMAN
from .denials_spanish import SPANISH

DENIALS: dict[str, DenialWords] = {
    "zh": CHINESE,
    "de": GERMAN,
    "fr": FRENCH,
    "es": SPANISH,
    "pt": DenialWords(
        before=r"""
            fals[oa]|incorret[oa]|errad[oa]|equivocad[oa]|errône[oa]|impossível|improvável
            |duvidos[oa]|incert[oa]
            |não (?:\S+ ){0,2}?(?:verdade|cert[oa]|corret[oa]|possível|o caso|clar[oa])|erro
            |mentira|mito|engano
            |não (?:acho|creio|penso|acredito|digo|diria|sei|parece|podemos dizer|se pode dizer)
            |duvid\S+|nego|nega\S*|rejeit\S+|talvez|quiçá|possivelmente|provavelmente|poderia\S*
            |pode(?: ser)?|parece\S*|supostamente|aparentemente|chuto|adivinh\S+|ninguém|nada
            |caso contrário|senão|a menos que|a não ser que
            |salvo|exceto|desde que|contanto que|suponha\S*|supondo|nem|em vez de|ao invés de
            |no lugar de|diferente de|distint[oa] de|difere de|tudo menos
            |qualquer coisa (?:menos|exceto)|de jeito nenhum|de modo algum|em hipótese alguma
            |em caso algum|jamais|nunca|longe de|ou$|segundo|diz-se que|dizem que
        """,
        after=r"""
            ^\S* ?(?:é|era|seria|está|não|são) (?:\S+ ){0,2}?(?:fals[oa]|incorret[oa]|errad[oa]
            |impossível|um erro|cert[oa]|a|uma?|pode)|talvez|provavelmente|a menos que
            |a não ser que
            |caso contrário|desde que
            |mas (?:não|est\S+|é|isso) (?:\S+ ){0,2}?(?:errad\S+|fals[oa]|cert\S+|tenho)|só se
            |somente se
        """,
        says=r"""
            diz|dizem|disse\S*|acha|acham|acredita\S*|pensa|pensam|afirma\S*|achava|pensava
        """,
        so=r"""
            então|portanto|logo|por isso|mas|porque|pois|assim|por conseguinte|porém|todavia
            |de modo que
        """,
        certain=r"""
            (?:não (?:há|tenho|resta)(?: nenhuma)?|sem(?: nenhuma| qualquer)?
            |fora de) (?:sombra de )?dúvidas?
            |não (?:\S+ ){0,2}?(?:difícil|complicado|surpreend\S+|problema|impossível|falso
            |duvid\S+)|não é outr[oa] senão
            |nada além de|não (?:só|apenas)|mais nada menos|^ ?não,
        """,
        sums=r"""
            nós|se
            |\S*(?:som|multiplic|subtra|calcul|cont)\S*mos
        """,
    ),
    "it": DenialWords(
        before=r"""
            fals[oa]|sbagliat[oa]|errat[oa]|scorrett[oa]|impossibile|improbabile|dubbi[oa]
            |incert[oa]
            |non (?:\S+ ){0,2}?(?:vero|corrett[oa]|giust[oa]|possibile|il caso|sicur[oa]|cert[oa])
            |errore|bugia|sbaglio|mito
            |non (?:credo|penso|dico|direi|so|sembra|ritengo|possiamo dire|si può dire)|dubito
            |dubit\S+|nego|nega\S*|rifiut\S+|forse|magari|possibilmente|probabilmente|potrebbe\S*
            |può (?:darsi|essere)|sembra\S*|presumibilmente|apparentemente|indovin\S+|nessuno
            |niente|altrimenti|in caso contrario|a meno che|salvo|eccetto|tranne|purché|a patto che
            |supponi\S*|supponiamo|supponendo|né|invece di|invece che|piuttosto che|al posto di
            |divers[oa] da|differisce da|in nessun modo|in nessun caso|mai|lontan[oa] da|oppure$
            |secondo|si dice che|dicono che
        """,
        after=r"""
            ^\S* ?(?:è|era|sarebbe|non|sono) (?:\S+ ){0,2}?(?:fals[oa]|sbagliat[oa]|errat[oa]
            |impossibile|un errore|corrett[oa]|la|una?|può)|forse|probabilmente|a meno che
            |altrimenti|purché
            |ma (?:non|si|è|sono|hanno) (?:\S+ ){0,2}?(?:sbaglia\S*|fals[oa]|vero|sicur\S*|torto)
            |ma sbagliano|solo se
        """,
        says=r"""
            dice|dicono|disse|crede|credono|pensa|pensano|afferma\S*|sostiene\S*|credevo|pensavo
        """,
        so=r"""
            quindi|dunque|perciò|pertanto|allora|ma|bensì|perché|poiché|così|tuttavia|però
        """,
        certain=r"""
            (?:non (?:c'è|ci sono|ho|vi è)(?: alcun)?|senza(?: alcun)?|fuori di) dubbi?o?
            |non (?:\S+ ){0,2}?(?:difficile|complicato|sorprend\S+|problema|impossibile|falso
            |dubit\S+)|nient'altro che|non solo|indubbiamente|^ ?no,
        """,
        sums=r"""
            li|le|si
            |\S*(?:somm|moltiplic|sottra|calcol|cont)\S*mo
        """,
    ),
    "ru": DenialWords(
        before=r"""
            неверно|неправда|неправильно|неправильн\S+|неверн\S+|ошибочн\S+|ложн\S+|ложь|ошибк\S+
            |невозможно|немыслимо|маловероятно|сомнительно|неясно|неизвестно|сомнева\S+|отрица\S+
            |отверга\S+|исключа\S+|возможно|может быть|вероятно|наверное|пожалуй|видимо|по-видимому
            |кажется|похоже|якобы|предположительно|мо(?:г|жет|гл[ао]) бы|может|вряд ли|едва ли
            |не (?:думаю|считаю|верю|уверен\S*|скажу|говорю|согласен|согласна|знаю|знаем|факт|так
            |правда|верно)
            |нельзя (?:сказать|утверждать)|угадыва\S+|никто|ничто|ни|никогда|никак|иначе
            |в противном случае|если только|если не|разве что|при условии|предположим|допустим
            |положим|пусть|либо|вместо|отлича\S+|отличн\S+ от|кроме|помимо|по словам|по мнению
            |говорят|ни в коем случае
            |далек\S* от|отнюдь|не может
        """,
        after=r"""
            ^\S* ?(?:—|-|–|это)? ?(?:неверн\S*|неправильн\S*|ошибк\S+|ложь|не (?:ответ|может
            |верн\S+|подходит|правильн\S+|так))|возможно|может быть|вероятно|наверное|если только
            |при условии|иначе|в противном случае
            |но (?:это|они|он|я) (?:\S+ ){0,2}?(?:невер\S+|ошиб\S+|не)|разве что|если
        """,
        says=r"""
            говор(?:ит|ят)|сказал\S*|дума(?:ет|ют)|считает|считают|утвержда(?:ет|ют)
            |полага(?:ет|ют)|думал\S*|считал\S*
        """,
        so=r"""
            поэтому|значит|следовательно|итак|а|но|однако|потому|так что|отсюда|тогда|ведь|так как
        """,
        certain=r"""
            (?:нет|без|вне)(?: никаких| всяких| всякого)? сомнени\S+|несомненно|безошибочно
            |нетрудно
            |не (?:трудно|сложно|удивительно|сомнева\S+)|не подлежит сомнению|не что иное
            |не кто иной|не только|не больше|не меньше|^ ?нет,|не ошиб\S+|нельзя (?:не|отрицать)
        """,
        sums=r"""
            мы|сложить|сложим|умножить|умножим|вычесть|вычтем|прибавить|посчитать|разделить
        """,
    ),
    "ja": DenialWords(
        before=r"""
            間違(?:い|え|った)|誤(?:り|った)|たぶん|おそらく|恐らく|多分|もしかすると|もしかしたら
            |ひょっとすると|かもしれ|らしい|そうでなければ|さもなければ|それ以外は|でない限り
            |と仮定|仮に|決して|もし|場合|疑わしい|疑う
        """,
        after=r"""
            ^[」\"』]?(?:だ|である|です)?(?:と(?!な)(?:いう|は|言|思|考|仮定|主張|信)|のはず(?:が
            |は)な|はずがな|かもし|かどうか|とは限|らしい|以外|でな|ではな|じゃな|は(?:誤|間違
            |正しくな|答えでは|違))|でない限り|かもしれ|わけがな|わけではな|たぶん|おそらく
            |と思われ|でしょう
        """,
        so=r"""
            ので|だから|したがって|従って|よって|ゆえに|しかし|ではなく|だが|ですが|なぜなら
        """,
        certain=r"""
            間違い(?:は)?な[いく]|間違いありません
            |疑い(?:は|も|の余地)?(?:が|は)?な[いく]|疑いなく|であること(?:は|に)|違いな[いく]
            |明らか|確か|ほかならな|他ならな|いいえ
        """,
        sums=r"""
            足|掛|引|割|合計|計算|すると
        """,
    ),
    "ko": DenialWords(
        before=r"""
            틀린|잘못된|아마도?|어쩌면|혹시|만약|만일|그렇지 않으면|아니면|의심|결코|절대|아무도
            |가정|제외|아닌 한|일 수도
        """,
        after=r"""
            (?:이|가)? ?아니|아닙|아닌|라고 (?:생각|말|주장|믿)|일 (?:수도|리)|틀[리렸린]|잘못
            |라는 (?:것은|말은)|인지|가 아닌|지도 모
        """,
        so=r"""
            그러므로|따라서|그래서|하지만|그러나|므로|아니라|니까|때문에
        """,
        certain=r"""
            의심의 여지가? ?없|틀림없|의심할 (?:바|여지) ?없|어렵지 않|다름 ?아닌|물론
        """,
        sums=r"""
            우리|더하|곱하|빼|나누|합
        """,
    ),
    "nl": DenialWords(
        before=r"""
            fout|foute|onjuist|onjuiste|verkeerde?|onwaar|onmogelijk|onwaarschijnlijk|twijfelachtig
            |onzeker
            |niet (?:waar|juist|het geval|zeker|mogelijk)|klopt niet|vergissing|leugen
            |(?:denk|geloof|zeg|vind|weet) (?:ik )?niet|betwijfel\S*|twijfel\S*|ontken\S*
            |verwerp\S*|misschien|wellicht|mogelijk|waarschijnlijk|vermoedelijk|zou kunnen|kan zijn
            |lijkt|blijkbaar|gok|niemand|niets|anders|zo niet|tenzij|mits|stel|aangenomen|noch
            |in plaats van|behalve|verschilt van|verschillend van|in geen geval|geenszins|verre van
            |ofwel|volgens
        """,
        after=r"""
            ^\S* ?(?:is|was|kan|zou|klopt) (?:\S+ ){0,2}?(?:fout|onjuist|verkeerd|niet|onmogelijk
            |geen)|misschien|waarschijnlijk|tenzij|mits|anders|alleen als
        """,
        says=r"""
            zegt|zeggen|beweer[td]\S*|beweren|denkt|denken|gelooft|geloven|dacht|meent
        """,
        so=r"""
            dus|daarom|maar|want|omdat|bijgevolg|derhalve|echter
        """,
        certain=r"""
            (?:geen|zonder(?: enige)?) twijfel|ongetwijfeld
            |niet (?:\S+ ){0,2}?(?:moeilijk|lastig|verrassend|onmogelijk|twijfelen)
            |niets anders dan|niet alleen|geen probleem|^ ?nee,
        """,
        sums=r"""
            we|wij|je|men
            |\S*(?:optel|tel|vermenigvuldig|aftrek)\S*
        """,
    ),
    "pl": DenialWords(
        before=r"""
            nieprawd\S+|błędn\S+|fałsz\S*|niepoprawn\S+|nieprawidłow\S+|niemożliw\S+
            |mało prawdopodobne|wątpliw\S+|wątpię|błędem|kłamstw\S+
            |nie (?:sądzę|myślę|wierzę|uważam|jestem|wiem|twierdzę|można powiedzieć|jest prawdą)
            |zaprzecza\S+|odrzuca\S+|może|możliwe|być może|prawdopodobnie|chyba|pewnie|zapewne
            |podobno|rzekomo|wydaje się|zgaduj\S+|nikt|nic|ani|w przeciwnym razie|inaczej|chyba że
            |pod warunkiem|załóżmy|przypuśćmy|zamiast|różni się od|innego niż|inna niż|oprócz
            |w żadnym wypadku|bynajmniej|albo|według
        """,
        after=r"""
            ^\S* ?(?:to|jest|nie) (?:\S+ ){0,2}?(?:błąd\S*|błędn\S+|nie|fałsz\S*|może|jest
            |niepoprawn\S+)|być może|chyba że|prawdopodobnie|w przeciwnym razie|pod warunkiem|jeśli
        """,
        says=r"""
            mówi\S*|twierdz\S+|myśl[ią]\S*|uważa\S*|sądz[ią]\S*
        """,
        so=r"""
            więc|zatem|dlatego|ale|lecz|tylko|ponieważ|bo|stąd|jednak
        """,
        certain=r"""
            (?:nie ma|bez|ponad wszelką) wątpliwoś\S+|niewątpliwie
            |nie (?:jest )?(?:trudno|dziwne|sposób)|nic innego jak|nie tylko|^ ?nie,
        """,
        sums=r"""
            dodamy|pomnożymy|odejmiemy|dodać|\S+my
        """,
    ),
    "uk": DenialWords(
        before=r"""
            неправд\S*|неправильн\S+|невірн\S+|хибн\S+|помилк\S+|помилков\S+|неможливо|навряд чи
            |сумнів\S+|заперечу\S+|можливо|може бути|мабуть|напевно|ймовірно|здається|нібито
            |не (?:думаю|вважаю|вірю|впевнен\S*|знаю|так)|ніхто|ні|ані|ніколи|інакше
            |в іншому випадку|якщо тільки|хіба що|за умови|припустимо|нехай|або|замість|відрізня\S+
            |крім|окрім|за словами|кажуть|може|міг би
        """,
        after=r"""
            ^\S* ?(?:—|-|–|це)? ?(?:невірн\S*|неправильн\S*|помилк\S+|не )|можливо|мабуть|хіба що
            |за умови|інакше|якщо
        """,
        says=r"""
            каж(?:е|уть)|дума(?:є|ють)|вважа(?:є|ють)|стверджу\S+
        """,
        so=r"""
            тому|отже|значить|а|але|однак|бо|так що
        """,
        certain=r"""
            (?:немає|без|поза) (?:жодних |всякого )?сумнів\S*|безсумнівно|неважко
            |не (?:важко|дивно)|не що інше|не тільки|^ ?ні,
        """,
        sums=r"""
            ми|додати|додамо|помножити|відняти
        """,
    ),
    "sv": DenialWords(
        before=r"""
            falskt|fel|felaktig\S*|omöjligt|osannolikt|osant
            |inte (?:sant|rätt|fallet|säker\S*|möjligt)|tror inte|tvivlar|förnekar|kanske|möjligen
            |troligen|förmodligen|sannolikt|kan vara|skulle kunna|verkar|ingen|annars|om inte
            |såvida|förutsatt|antag|varken|eller$|i stället för|istället för|förutom
            |skiljer sig från|annat än|aldrig|inte alls|enligt
        """,
        after=r"""
            ^\S* ?(?:är|var|kan|stämmer) (?:\S+ ){0,2}?(?:fel\S*|inte|falskt|omöjligt)|kanske
            |om inte|såvida|annars|förutsatt|bara om
        """,
        says=r"""
            säger|påstår|tror|tycker|menar
        """,
        so=r"""
            så|därför|alltså|men|utan|eftersom|således
        """,
        certain=r"""
            (?:ingen|utan|inget) tvivel|tveklöst
            |inte (?:\S+ )?(?:svårt|konstigt|bara)|ingenting annat än|^ ?nej,
        """,
        sums=r"""
            vi|man|adderar|lägger
        """,
    ),
    "cs": DenialWords(
        before=r"""
            nepravd\S*|špatn\S+|chybn\S+|nesprávn\S+|nemožn\S+
            |není (?:pravda|správn\S+|jist\S+|možn\S+)|nemyslím|nevěřím|pochybuji|popírám|možná
            |snad|asi|pravděpodobně|zřejmě|údajně|mohl\S* by|nikdo|nic|ani|jinak|pokud ne|ledaže
            |za předpokladu|předpokládejme|místo|kromě|liší se od|jiná než|nikdy|v žádném případě
            |buď|podle
        """,
        after=r"""
            ^\S* ?(?:je|není|nemůže) (?:\S+ ){0,2}?(?:špatn\S+|chybn\S+|nesprávn\S+|odpověď|být
            |správn\S+)|možná|ledaže|jinak|pokud|za předpokladu
        """,
        says=r"""
            říká|říkají|tvrdí|myslí|věří
        """,
        so=r"""
            takže|proto|tedy|ale|nýbrž|protože|tudíž
        """,
        certain=r"""
            (?:není|bez|nade vší) pochyb\S*|nepochybně
            |není (?:\S+ )?(?:těžké|divu)|nic jiného než|nejen|^ ?ne,
        """,
        sums=r"""
            sečteme|vynásobíme|odečteme|my
        """,
    ),
    "tr": DenialWords(
        before=r"""
            yanlış|hatalı|imkansız|imkânsız|belki|muhtemelen|olasılıkla|galiba|sanırım|sanki|kimse
            |aksi (?:halde|takdirde)|yoksa|eğer|varsayalım|ne|asla|şüpheli|sözde|ya$
        """,
        after=r"""
            değil|olamaz|olmayabilir|olabilir|yanlış|hatalı|hariç|dışında|diyor|diyorlar|sanıyor
            |iddia
            |olduğun[ua] (?:\S+ )?(?:yanlış|sanm\S+|düşünm\S+|inanm\S+|şüphe\S*)
            |olduğu (?:yanlış|doğru değil)|mi\b|mı\b|yerine|ise|sürece|farklı
        """,
        so=r"""
            bu yüzden|dolayısıyla|o halde|ama|fakat|çünkü|öyleyse|bu nedenle
        """,
        certain=r"""
            şüphe(?:siz| yok)|kuşkusuz|zor değil|başka bir şey değil
            |hayır,
        """,
        sums=r"""
            toplarsak|çarparsak|çıkarırsak
        """,
    ),
    "id": DenialWords(
        before=r"""
            salah|keliru
            |tidak (?:benar|mungkin|betul|yakin)|bukan|mustahil|mungkin|barangkali|kemungkinan
            |sepertinya|tampaknya|ragu|meragukan|menyangkal
            |tidak (?:berpikir|percaya|setuju)|tak seorang pun|jika tidak|kalau tidak|kecuali
            |selain|asalkan|misalkan|andaikan|maupun|daripada|alih-alih|berbeda dari|menurut|konon
        """,
        after=r"""
            ^\S* ?(?:adalah|itu)? ?(?:salah|keliru|bukan|tidak)|mungkin|kecuali|asalkan|jika
        """,
        says=r"""
            mengatakan|berkata|bilang|mengira|percaya|berpikir|mengklaim
        """,
        so=r"""
            jadi|maka|oleh karena itu|tetapi|tapi|melainkan|karena|sehingga
        """,
        certain=r"""
            tidak (?:diragukan|ada keraguan|sulit)|tanpa (?:ragu|keraguan)|tak diragukan|tidak lain
            |bukan hanya
        """,
        sums=r"""
            kita|menjumlahkan|jumlahkan|mengalikan
        """,
    ),
    "vi": DenialWords(
        before=r"""
            sai
            |không (?:đúng|phải|thể|chắc|nghĩ|tin|cho rằng)|nhầm|có lẽ|có thể|chắc là|hình như
            |dường như|nghi ngờ|phủ nhận|không ai|nếu không|trừ khi|trừ|ngoại trừ|giả sử|thay vì
            |khác|chưa chắc|cũng không|hoặc$|theo
        """,
        after=r"""
            là sai|không (?:đúng|phải|thể)|sai|có lẽ|trừ khi|nếu
        """,
        says=r"""
            nói|bảo|nghĩ|cho rằng|tin rằng
        """,
        so=r"""
            nên|vì vậy|do đó|vậy|nhưng|mà|bởi vì
        """,
        certain=r"""
            không (?:còn )?(?:nghi ngờ|khó)(?: gì)?|chắc chắn|không gì khác|không chỉ
        """,
        sums=r"""
            ta|chúng ta|cộng|nhân
        """,
    ),
    "el": DenialWords(
        before=r"""
            λάθος|ψευδές|ψέμα|λανθασμέν\S+|εσφαλμέν\S+|αδύνατο\S*|απίθανο
            |δεν (?:\S+ )?(?:αλήθεια|αληθεύει|πιστεύω|νομίζω|ισχύει|σωστό|σίγουρ\S+)|αμφιβάλλω
            |αρνούμαι|ίσως|μπορεί|πιθανόν|πιθανώς|μάλλον|ενδεχομένως|φαίνεται|κανείς|αλλιώς
            |διαφορετικ\S+|εκτός|υποθέτουμε|ας υποθέσουμε|έστω|ούτε|αντί|σύμφωνα με|ποτέ
        """,
        after=r"""
            ^\S* ?(?:είναι|δεν) (?:\S+ ){0,2}?(?:λάθος|ψευδές|λανθασμέν\S+|είναι|μπορεί)|ίσως
            |εκτός αν|αλλιώς|αν
        """,
        says=r"""
            λέει|λένε|πιστεύει|πιστεύουν|νομίζει|νομίζουν|ισχυρίζ\S+
        """,
        so=r"""
            άρα|επομένως|οπότε|αλλά|όμως|γιατί|συνεπώς|λοιπόν
        """,
        certain=r"""
            (?:καμία|χωρίς|δεν υπάρχει) (?:καμία )?αμφιβολία
            |αναμφίβολα|δεν είναι δύσκολο|τίποτα άλλο|όχι μόνο
        """,
        sums=r"""
            προσθέσουμε|πολλαπλασιάσουμε
        """,
    ),
    "ar": DenialWords(
        before=r"""
            خطأ|خاطئة?|غير (?:صحيحة?|صحيح)
            |ليس (?:صحيحا|من الصحيح|صحيحًا)|مستحيل|من المستحيل|ربما|لعل|قد|من الممكن|من المحتمل
            |يحتمل|يبدو|أشك|أنكر|لا (?:أظن|أعتقد|أرى)|لا أحد|وإلا|إلا إذا|ما لم|بشرط|لنفترض|نفترض
            |بدلا من|سوى|عدا|باستثناء|يختلف عن|مختلف عن|أبدا|ولا|إما|يزعم|بحسب|وفقا ل\S+
        """,
        after=r"""
            ^\S* ?(?:هو |هي )?(?:خطأ|خاطئة?|ليس\S*|غير صحيحة?|مستحيل)|ربما|إلا إذا|وإلا|إذا|بشرط
        """,
        says=r"""
            يقول\S*|قال\S*|يظن\S*|يعتقد\S*|يزعم\S*
        """,
        so=r"""
            إذن|لذلك|لذا|ولكن|لكن|بل|لأن|وبالتالي|إذا ف\S+
        """,
        certain=r"""
            لا شك|بلا شك|دون شك|بدون شك|ليس من الصعب|لا غير|ليس سوى
        """,
        sums=r"""
            جمعنا|ضربنا|طرحنا
        """,
    ),
    "fa": DenialWords(
        before=r"""
            غلط|اشتباه|نادرست|درست نیست|غیرممکن|ناممکن|شاید|احتمالا|ممکن است|به نظر|شک دارم
            |فکر نمی\S+|هیچ ?کس|وگرنه|در غیر این صورت
            |مگر|به شرطی|فرض کنید|به جای|به جز|متفاوت با|هرگز|نه|می‌?گویند
        """,
        after=r"""
            نیست|غلط|اشتباه|نادرست|شاید|مگر|اگر
        """,
        says=r"""
            می‌?گوید|فکر می‌?کند|معتقد
        """,
        so=r"""
            پس|بنابراین|اما|ولی|بلکه|چون|لذا
        """,
        certain=r"""
            بدون شک|بی‌?شک|شکی نیست|سخت نیست
        """,
        sums=r"""
            جمع|ضرب
        """,
    ),
    "he": DenialWords(
        before=r"""
            שגוי\S*|לא נכון|אינו נכון|לא נכונה|לא ייתכן|בלתי אפשרי|אולי|ייתכן|יתכן|כנראה|אפשר ש\S*
            |נראה|מסופקני|אני מטיל ספק|לא חושב\S*|לא מאמין\S*|אף אחד|אחרת|אלא אם|בתנאי|נניח|במקום
            |מלבד|חוץ מ\S*|שונה מ\S*|לעולם לא|לא|לפי
        """,
        after=r"""
            שגוי\S*|לא נכו\S+|אינ[והי]\S*|אולי|אלא אם|אחרת|אם
        """,
        says=r"""
            אומר\S*|טוענ\S*|טוען|חושב\S*|מאמינ\S*
        """,
        so=r"""
            לכן|אז|אבל|אלא|כי|על כן|ולכן
        """,
        certain=r"""
            אין (?:כל )?ספק|ללא ספק|בלי ספק|לא קשה|אין זה קשה
        """,
        sums=r"""
            נחבר|נכפיל
        """,
    ),
    "hi": DenialWords(
        before=r"""
            गलत|ग़लत|असत्य|झूठ|असंभव|शायद|संभवतः|संभव है|हो सकता|लगता है|संदेह|नहीं (?:मानता|सोचता)
            |कोई नहीं|अन्यथा|वरना|नहीं तो|जब तक|बशर्ते|मान लीजिए|के बजाय|न तो|न ही|कभी नहीं|अगर|यदि
            |के अनुसार
        """,
        after=r"""
            नहीं|गलत|ग़लत|असत्य|शायद|हो सकता|के अलावा|को छोड़कर|कहते हैं|कहता है|यदि|अगर|बशर्ते
        """,
        so=r"""
            इसलिए|अतः|लेकिन|मगर|बल्कि|क्योंकि|तो
        """,
        certain=r"""
            कोई (?:संदेह|शक) नहीं|निःसंदेह|बेशक|कठिन नहीं|मुश्किल नहीं|कुछ और नहीं
        """,
        sums=r"""
            जोड़|गुणा|हम
        """,
    ),
    "bn": DenialWords(
        before=r"""
            ভুল|মিথ্যা|অসম্ভব|হয়তো|সম্ভবত|হতে পারে|সন্দেহ|কেউ|অন্যথায়|নইলে|যদি না|ধরা যাক
            |পরিবর্তে|বাদে|ছাড়া|কখনও|না|যদি
        """,
        after=r"""
            নয়|ভুল|মিথ্যা|হয়তো|না|যদি|বলে মনে
        """,
        so=r"""
            তাই|সুতরাং|কিন্তু|অতএব|বরং|কারণ
        """,
        certain=r"""
            সন্দেহ নেই|নিঃসন্দেহে|কঠিন নয়
        """,
        sums=r"""
            যোগ|গুণ|আমরা
        """,
    ),
    "th": DenialWords(
        before=r"""
            ผิด|ไม่จริง|ไม่ถูก|เท็จ|เป็นไปไม่ได้|อาจ|บางที|น่าจะ|คงจะ|ดูเหมือน|สงสัย|ไม่คิดว่า
            |ไม่เชื่อ|ไม่มีใคร|มิฉะนั้น|ไม่เช่นนั้น|เว้นแต่|นอกจาก|ยกเว้น|แทนที่|สมมติ|ไม่ใช่
            |ไม่ทั้ง|ต่างจาก
        """,
        after=r"""
            ไม่ใช่|ผิด|ไม่ถูก|อาจ|เว้นแต่|ถ้า|หาก|ไม่จริง
        """,
        so=r"""
            ดังนั้น|แต่|เพราะ|จึง|เลย
        """,
        certain=r"""
            ไม่ต้องสงสัย|ไม่มีข้อสงสัย|ไม่ยาก|แน่นอน
        """,
        sums=r"""
            เรา|บวก|คูณ
        """,
    ),
}
