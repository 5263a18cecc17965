"""Languages in Latin script: `languages.py` has the others and puts them together."""

from __future__ import annotations

from .words import Language

LATIN: dict[str, Language] = {
    "de": Language(
        comma=True,
        noun="(?:end)?antwort|lösung|loesung",
        adj=(
            r"(?:auf|der|des|zur|zu) [^\s,.:;]+(?: [^\s,.:;]+)?|also|daher|somit|demnach|folglich|"
            "hier|dann|damit|eindeutig|deshalb|schließlich"
        ),
        link="ist|lautet|wäre|beträgt|sind|heißt|heisst|lauten",
        weak="ergebnis|endergebnis|resultat|summe",
        choose="(?:richtig ist|wähle)(?: (?:option|antwort))?",
        answers=(
            "(?:ist|sind|lautet)(?: also| somit| daher| damit)? (?:die|unsere|meine|"
            "das)(?: richtige| endgültige| korrekte| gesuchte)* (?:antwort|lösung|ergebnis)|"
            r"(?:ist|sind)(?: also| somit| daher| damit| aber| jedoch)? (?:richtig|korrekt)(?! \S)"
        ),
        no=r"weder(?: \S+){1,3} noch|weder|nicht|keine?[snmr]?|niemals|keineswegs|keinesfalls|nie",
        but="sondern",
        joins=(
            "und|oder|bis|plus|minus|mal|geteilt durch|durch|von|zu|hoch|bzw|beziehungsweise|sowie"
        ),
        yields=(
            "insgesamt|ergibt|ergeben|macht|zusammen|gleich|beträgt|bleiben|bleibt|also|"
            "sind(?= [0-9])|ist(?= [0-9])"
        ),
        before=(
            "ungleich|mindestens|wenigstens|höchstens|hoechstens|maximal|minimal|(?:mehr|weniger|"
            r"[a-z]+er)(?: ist| sind| war| waren)? als|oberhalb von|unterhalb von|übersteigt|"
            "überschreitet|unterschreitet|übertrifft|in der nähe von|nahe an|nahe bei|über$"
            "|ueber$|unter$|bis zu|bis$|zwischen|fast|"
            "knapp|beinahe|nahezu|ab$|minus|halb|doppelt|außer|hälfte von|doppelte von"
        ),
        after=(
            "(?:oder|und) (?:mehr|weniger|darüber|darunter)|hoch|zum quadrat|im quadrat|"
            "quadriert|einhalb|halb|mindestens|höchstens|hoechstens|maximal|minimal|falsch|nicht"
            r"(?! (?:ge|be|ver|aus|ab|an|auf|ein|er|ent)\w+(?:t|en)\s*$)|"
            r"geteilt durch|mal(?=\W*\d)|plus|minus|oder|bis|fach|zu viel|zu wenig"
        ),
        wrong=(
            r"falsch\S*|nicht (?:richtig|korrekt|die antwort|die lösung)|inkorrekt|verrechnet|"
            r"geirrt|irrt\S*|irrtum|stimmt nicht|stimmt so nicht|unrichtig|fehlerhaft"
        ),
        supposes="wenn|falls|angenommen|ob|dass jemand|behauptet|behauptete|meint|sagt|sagte",
        next="dann|danach|anschließend|nun|als nächstes|jetzt",
        unsure=(
            "weiß (?:es |ich |ich es )?nicht|keine ahnung|nicht (?:lösen|sicher|beantworten|"
            "bestimmen)|gebe auf"
        ),
        sentence=(
            "ich|wir|er|sie|es|ist|sind|hat|haben|war|weil|dass|also|antwort|lösung|ergebnis|"
            "weiß|nicht"
        ),
        common=(
            "der die das und ist nicht ein eine sind es er sie wir hat haben also insgesamt mit "
            "von zu im auf fur wie den dem bei wird kann am aus uns wenn dann noch jeder pro tag "
            "diese dieser das dass ich mir mein meine nur nach mehr als wert gilt doch kein keine "
            "sich werden wurde zieht addiert bleiben sondern kommt liegt anzahl bleibt geht"
            " passt habe "
            "hatte haben nichts zahl ergebnis aufgabe unter gegen alles muss soll ihre seine "
            "ergibt leider stimmt oder aber lautet richtig falsch zutrifft"
        ),
        letters="ßẞ",
    ),
    "fr": Language(
        comma=True,
        noun=(
            "réponses?|solution|(?:bonne|vraie|juste) valeur|valeur (?:correcte|exacte|juste)|"
            "bon (?:résultat|nombre|total)|(?:résultat|nombre|total) (?:correct|exact|juste)"
        ),
        adj=(
            r"(?:à|de|du|au) (?:la |le |l')?[^\s,.:;]+|finale|correcte|exacte|juste|attendue|donc|"
            "alors|ainsi|cherchée"
        ),
        link=(
            "est|sont|vaut|serait|c'est|égale|(?:ne (?:peut|saurait)(?: donc)? (?:être|valoir)|"
            "n'est)(?: donc)?(?: autre(?: chose)?)? que"
        ),
        weak=r"(?<!ce\s)résultat(?: final)?|total|somme",
        choose=(
            "(?:je choisis|on choisit|l'option correcte est|le bon choix est)(?: l'option|"
            " la réponse)?"
        ),
        answers=(
            "(?:est|sont|c'est)(?: donc| bien| alors)* (?:la|notre|ma)(?: bonne)? (?:réponse|"
            "solution)"
        ),
        no=r"n'est pas|n'est|ni|ne vaut pas|ne (?:sont|font) pas|"
        r"pas(?!\s(?!être)\S{3,}(?:é|u|i|is|it)e?s?(?:\s|$))|ne|jamais|aucun\S*|non",
        but="mais(?: plutôt| bien)?|c'est plutôt|plutôt",
        joins="et|ou|à|plus|moins|fois|divisé par|par|sur|de|soit|puissance",
        yields=(
            "total|fait|font|donne|donnent|reste|restent|égal à|égale|vaut|soit|donc|obtient|"
            "obtenons|ensemble|y a|est"
        ),
        before=(
            r"différente? de|^au (?:moins|plus)|plus de|moins de|"
            r"(?:supérieur|inférieur)\S* à|entre|presque|jusqu'à$|"
            r"plus que|moins que|(?<!au\s)moins|sauf|environ la moitié de|moitié de|double de|"
            "dépasse|près de|plus grande? que|plus petite? que"
        ),
        after=(
            "ou (?:plus|moins|davantage)|au moins|au plus|au minimum|au maximum|minimum|maximum|"
            r"au carré|au cube|puissance|et demie?|fois(?=\s[$*\\(]*\d)|divisé par|"
            r"(?<!de\s)plus|(?<!de\s)moins|ou|faux|fausse|incorrecte?|n'est|environ la moitié"
        ),
        wrong=(
            "faux|trompée?s?|tort|fausse|incorrecte?|erronée?|n'est pas (?:la |une )?(?:bonne |"
            r"juste|correcte?|réponse|exacte?)\S*|pas (?:juste|correcte?)"
        ),
        supposes="si|supposons que|supposons|dirait|prétend que|pense que|croit que",
        next="ensuite|puis|après|maintenant|enfin",
        unsure=(
            "je ne sais pas|je l'ignore|je ne peux pas (?:répondre|résoudre)|j'abandonne|"
            "aucune idée|pas sûre?"
        ),
        sentence="je|nous|il|elle|ils|elles|est|sont|donc|parce|réponse|c'est|a|ont|sais|ne|on",
        common=(
            "le la les de des du et est un une il elle nous donc pour dans que qui au aux sont "
            "avec ce cette en a combien reste chaque ne pas peut etre cela ces leur leurs apres "
            "avant encore par l' d'un d'une fait nombre je mon mes c'est n'est j'ai n'ai qu'il "
            "qu'elle qu'on ils elles vous tout sous selon rien jamais ma etait "
            "semble serait aurait sans etre obtient obtiens trouve trouvons calcule calculons "
            "donne faut restent quelque chose aussi trop deux trois heures l'énoncé énoncé étape "
            "lit avait total abord d'abord n'en j'obtiens n'y c'était premier première mais se "
            "bien retrouve finit finir possède garde parce alors puisque même"
        ),
        letters="œŒ",
    ),
    "es": Language(
        comma=True,
        noun=(
            "respuestas?|solución|(?:opción|alternativa|cantidad|cifra) correcta|"
            "(?:lo|valor|resultado|número|total) correcto"
        ),
        adj=(
            r"(?:al?|del?) (?:la |el |los )?[^\s,.:;]+|final|correcta|exacta|buscada|es decir|"
            "entonces|por tanto|por lo tanto"
        ),
        link="es|sería|son|será|equivale a",
        weak="resultado(?: final)?|total|suma",
        answers=(
            "(?:es|son|sería)(?: entonces| por tanto)? (?:la|nuestra|mi) (?:respuesta|solución)"
        ),
        no=(
            r"(?<!que\s)no(?!\s(?:se\s)?\S+(?:aron|ieron)\b)"
            r"(?!\s(?:ha|han|había|habían)\s(?!sido)\S+do\b)"
            r"(?!\s(?:pudo|pudieron|logró|lograron)\s(?!ser|haber|tener))"
            r"|(?<=que\s)no(?=\s(?:es|son|será|puede|hay|quedan?|tiene)\b)|nunca|jamás"
            r"|tampoco|ni|(?<!que\s)(?<!salga\s)(?<!haya\s)ningún\S*"
        ),
        but="sino",
        joins="y|o|a|más|menos|por|dividido entre|dividido por|entre|de|e|u|elevado a",
        yields=(
            "total|hacen|hace|da|dan|queda|quedan|igual a|es|son|tiene|hay|suman|obtenemos|entonces"
        ),
        before=(
            "(?:distint[oa]|diferente) (?:de|a)|al menos|por lo menos|como mínimo|como máximo|"
            "a lo sumo|a lo más|más de|menos de|(?:mayor|menor)(?:es)? (?:que|a|de)|"
            "(?:mínimo|máximo)(?: de)?$|hasta$|entre$|casi|(?<!todos\\s)(?<!todas\\s)menos$|"
            "más que|menos que|mitad de|"
            "doble de|no menos de|no más de|supera(?: los)?|superior a|inferior a"
        ),
        after=(
            "o (?:más|menos)|como mínimo|como máximo|al menos|por lo menos|al cuadrado|al cubo|"
            "elevado a|y medi[oa]|dividido|veces|(?:más|menos)(?!\\sque\\s[^\\W\\d])|o|"
            "incorrect[oa]|(?<!que\\s)(?<!y\\s)no|fals[oa]|está mal|"
            "es erróne[oa]|de más"
        ),
        wrong=(
            "equivocó|equivoca|incorrect[oa]s?|fals[oa]|errónea?o?|equivocad[oa]|no es (?:la |"
            "una )?(?:respuesta|correct[oa]|solución)|está mal"
        ),
        supposes=(
            "si|supongamos que|supongamos|suponiendo que|dice que|dicen que|cree que|afirma que"
        ),
        next="luego|después|ahora|a continuación|finalmente",
        unsure=(
            "no (?:lo )?sé|no estoy segur[oa]|no puedo (?:resolver|responder|saber)(?:lo)?|"
            "me rindo|ni idea"
        ),
        sentence=(
            "yo|él|ella|nosotros|ellos|es|son|está|hay|tiene|tienen|porque|respuesta|entonces|sé|no"
        ),
        common=(
            "el la los las de del y es un una que en por para con se su al tiene hay son cada "
            "total entonces cuantos asi hace no este esta ser puede esto ese mas pero tambien "
            "despues numero le les sus si sea sean ser era eran fue lo nos mi sin sobre hasta "
            "entre porque cuando como donde cual queda quedan podemos puedo decir valor nada "
            "nadie ni sino "
            "dudo paso primero vayamos veamos otro otra aunque segun dice creo pues ya muy todo "
            "vamos calculemos calcular obtenemos obtiene obtengo eso esos solo tal vez quiza "
            "quizas tengo tendria habria luego ahora tambien igual ella ellos llegamos resulta "
            "hemos caso cualquier adivinar"
        ),
        letters="ñÑ¿¡",
    ),
    "pt": Language(
        comma=True,
        noun="respostas?|solução|alternativa correta|opção correta",
        adj=(
            r"(?:à|ao|da|do|de|para) (?:a |o )?[^\s,.:;]+|final|correta|certa|exata|então|portanto"
        ),
        link="é|seria|são|será",
        weak="resultado(?: final)?|total|soma",
        answers="(?:é|são|seria)(?: então| portanto)? a(?: nossa| minha)? (?:resposta|solução)",
        no=r"não|nunca|jamais|nenhum\S*|nem",
        but="mas sim|e sim|mas",
        joins="e|ou|a|mais|menos|vezes|dividido por|por|de|elevado a",
        yields="total|fazem|faz|dá|dão|resta|restam|igual a|é|são|tem|há|somam|obtemos|logo",
        before=(
            "diferente de|pelo menos|no mínimo|no máximo|mais de|menos de|(?:maior|"
            "menor)(?:es)? (?:que|do que)|mínimo|máximo|até$|entre$|quase|menos$|mais que|"
            "mais do que|menos que|menos do que|metade de|dobro de|exceto|ao menos|superior a|"
            "inferior a|acima de|abaixo de"
        ),
        after=(
            "ou (?:mais|menos)|no mínimo|no máximo|pelo menos|ao quadrado|ao cubo|elevado a|"
            "e mei[oa]|dividido|vezes|mais|menos(?!\\sque\\s[^\\W\\d])|ou|"
            "incorret[oa]|não|errad[oa]|fals[oa]"
        ),
        wrong=(
            "enganou|errou|incorret[oa]|errad[oa]|fals[oa]|não é (?:a |uma )?(?:resposta|"
            "corret[oa]|cert[oa]|solução)"
        ),
        supposes=(
            r"se(?!\s\S+(?:aron|ieron)\b|\sespera\sque)|"
            "suponha que|supondo que|diz que|dizem que|acha que"
        ),
        next="depois|em seguida|agora|então|finalmente",
        unsure="não sei|não tenho certeza|não consigo (?:resolver|responder)|desisto",
        sentence="eu|ele|ela|nós|eles|é|são|está|há|tem|porque|resposta|então|sei|não",
        common=(
            "o a os as de do da e um uma que em por para com se no na ele ela tem sao cada total "
            "entao quantos logo ha nao esse esta este ser pode isso mais mas tambem depois "
            "numero pelo pela dos das foi ter"
        ),
        letters="ãõÃÕ",
    ),
    "it": Language(
        comma=True,
        noun="risposta|soluzione|opzione corretta",
        adj=(
            r"(?:alla?|della?|del|al) [^\s,.:;]+|finale|corretta|esatta|giusta|quindi|allora|"
            "dunque"
        ),
        link="è|e'|sarebbe|sono|sarà|vale",
        weak="risultato(?: finale)?|totale|somma",
        answers="(?:è|sono)(?: quindi| dunque)? la (?:risposta|soluzione)(?: corretta)?",
        no=r"non|mai|nessun\S*",
        but="ma|bensì",
        joins="e|o|a|più|meno|per|diviso|di|oppure|su",
        yields="totale|fa|fanno|resta|restano|uguale a|è|sono|ha|quindi|otteniamo|rimangono",
        before=(
            "divers[oa] da|almeno|al massimo|al più|al minimo|più di|meno di|(?:maggiore|minore|"
            "superiore|inferiore) (?:di|a)|minimo|massimo|fino a$|tra$|fra$|quasi|meno$|metà di|"
            "doppio di|tranne|oltre$|sotto$"
        ),
        after=(
            "o (?:più|meno)|almeno|al massimo|al minimo|al quadrato|al cubo|elevato|e mezzo|"
            "diviso|volte|più|meno|o|oppure|sbagliat[oa]|non|errat[oa]"
        ),
        wrong=(
            "sbagliat[oa]|errat[oa]|scorrett[oa]|non è (?:la |una )?(?:risposta|corrett[oa]|"
            "giust[oa]|soluzione)"
        ),
        supposes="se|supponiamo che|supponendo che|dice che|pensa che",
        next="poi|dopo|ora|adesso|infine",
        unsure="non (?:lo )?so|non sono sicur[oa]|non riesco|mi arrendo",
        sentence="io|lui|lei|noi|loro|è|sono|ha|hanno|perché|risposta|quindi|so|non",
        common=(
            "il la lo gli le di del e un una che in per con si non ha sono ogni totale quindi "
            "quanti al alla piu questo questa essere puo anche dopo numero nel della dei delle "
            "cosi"
        ),
    ),
    "nl": Language(
        comma=True,
        noun="(?:eind)?antwoord|oplossing",
        adj=r"op (?:de |het )?[^\s,.:;]+|dus|hier|dan|daarom",
        link="is|luidt|zou|zijn|bedraagt",
        weak="resultaat|uitkomst|totaal|som",
        answers="(?:is|zijn)(?: dus)? (?:het|ons|de)(?: juiste| goede)? (?:antwoord|oplossing)",
        no="niet|geen|nooit",
        but="maar|doch",
        joins="en|of|tot|plus|min|keer|gedeeld door|van|op|maal",
        yields="totaal|maakt|samen|gelijk aan|blijven|blijft|is|zijn|heeft|dus",
        before=(
            "ongelijk aan|minstens|ten minste|tenminste|hoogstens|maximaal|minimaal|ten hoogste|"
            "(?:meer|minder|groter|kleiner) dan|tot$|tussen|bijna|boven$|onder$|min$|helft van|"
            "dubbele van|behalve|ruim$"
        ),
        after=(
            "of (?:meer|minder)|minstens|hoogstens|maximaal|minimaal|kwadraat|in het kwadraat|"
            "tot de macht|en een half|keer|plus|min|of|fout|niet|onjuist"
        ),
        wrong="vergist|fout|onjuist|verkeerd|niet (?:juist|correct|goed|het antwoord)|klopt niet",
        supposes="als|stel dat|stel|zegt dat|denkt dat",
        next="daarna|vervolgens|dan|nu",
        unsure="weet (?:het |ik )?(?:het )?niet|geen idee|niet zeker|geef (?:het )?op",
        sentence="ik|wij|hij|zij|het|is|zijn|heeft|hebben|omdat|antwoord|dus|weet|niet",
        common=(
            "de het een en is zijn van in op voor met hij zij niet heeft dus totaal hoeveel elke "
            "aan er dit deze kan worden ook na nog elk getal uit bij om als"
        ),
    ),
    "pl": Language(
        comma=True,
        noun="odpowied(?:ź|zią|zi)|rozwiązanie(?:m)?",
        adj=(
            "końcowa|ostateczna|prawidłowa|poprawna|właściwa|na (?:to )?pytanie|zadania|równania|"
            "więc|zatem"
        ),
        link="to|jest|brzmi|wynosi|będzie|[—–-]",
        direct=True,
        weak="wynik|suma|razem",
        answers="(?:to|jest)(?: nasza| prawidłowa| poprawna| ostateczna)* odpowied(?:ź|zią)",
        no="nie|nigdy|żaden",
        but="lecz|ale|tylko",
        joins="i|lub|albo|do|plus|minus|razy|podzielone przez|przez|z|od|oraz",
        yields="razem|łącznie|równa się|wynosi|zostało|zostaje|jest|ma|to|daje|więc",
        before=(
            "różn[yae] od|co najmniej|przynajmniej|co najwyżej|najwyżej|maksymalnie|minimalnie|"
            r"(?:więcej|mniej|większ\S+|mniejsz\S+) niż|ponad$|poniżej$|powyżej$|do$|między|"
            "prawie|minimum|maksimum|minus|połowa|oprócz|niemal"
        ),
        after=(
            "lub (?:więcej|mniej)|albo|lub|co najmniej|maksymalnie|minimalnie|do kwadratu|"
            r"do potęgi|i pół|razy|plus|minus|nie|błędn\S+|źle|niepoprawn\S+"
        ),
        wrong=(
            r"pomylił\S*|błędn\S+|źle|niepoprawn\S+|nieprawidłow\S+|nie jest (?:odpowiedzią|"
            r"poprawn\S+)|fałsz\S*"
        ),
        supposes="jeśli|jeżeli|załóżmy|gdyby|czy|twierdzi",
        next="potem|następnie|teraz|dalej",
        unsure=r"nie wiem|nie jestem pew\S+|nie potrafię|poddaję się",
        sentence="ja|my|on|ona|oni|jest|są|ma|mają|ponieważ|odpowiedź|więc|wiem|nie",
        common=(
            "i w na z do jest to nie ma sie ile po za razem wiec kazdy czyli od ze oraz mamy "
            "zatem ten ta byc moze tym tego tej kazdego liczba juz"
        ),
        letters="łŁąęśźżń",
    ),
    "tr": Language(
        comma=True,
        noun="doğru seçenek|cevap|cevab[ıi](?:m[ıi]z)?|yanıt(?:ı)?|çözüm(?:ü)?",
        adj="şudur|şu|olarak|ise|da|de|bu durumda|kesinlikle|doğru|seçenek",
        link="şudur|olur|olarak|ise",
        direct=True,
        weak="sonuç|toplam",
        answers="(?:doğru |nihai |son )?(?:cevapt[ıi]r|yanıtt[ıi]r|cevab[ıi]m[ıi]zd[ıi]r)",
        but="değil",
        joins="ve|veya|ya da|ile|artı|eksi|çarpı|bölü|ila|den|dan|kere",
        yields="toplam|eder|eşittir|kalır|kaldı|vardır|var|olur|yani|toplamda",
        before=(
            "en az|en fazla|en çok|yaklaşık yarısı|neredeyse|eksi|azami|asgari|hemen hemen|hariç"
        ),
        after=(
            r"\S{0,20}[td][ea]n (?:fazla|az|büyük|küçük|çok|önce|sonra)\S{0,6}|fazla|üzeri|üstü|"
            r"altı|arası\S*|kadar|ola?maz|veya|ya da|buçuk|yarım|kat[ıi]|değil\S*|yanlış\S*|"
            r"karesi|küpü|artı|eksi|çarpı|bölü|en az|en fazla|hatalı\S*|mı(?:dır)?|mi(?:dir)?|"
            r"küsur|doğru olma\S*"
        ),
        wrong=r"yanlış\S*|hatalı\S*|doğru değil\S*|değil\S*|cevap değil\S*",
        supposes="eğer|diyelim ki|farz edelim|varsayalım|sanıyor|diyor",
        next="sonra|ardından|daha sonra|şimdi",
        unsure="bilmiyorum|emin değilim|çözemedim|çözemiyorum|bilemiyorum|fikrim yok",
        polite="'?[td][ıiuü]r|olur|eder|'?y[ea]|bulunur|olacaktır|'?[ıiuü]n?|'?y[ıiuü]",
        sentence="ben|biz|bu|şu|çünkü|cevap|yanıt|eğer|için|bilmiyorum|değil|vardır|olur",
        common=(
            "ve bir bu icin ile toplam var kac cevap da de olur eder her gun tane elma vardir "
            "kalir olarak ise olamaz sonra kadar sayi gore onun cok kisi"
        ),
        letters="ıİğĞ",
    ),
    "vi": Language(
        comma=True,
        noun="đáp án|đáp số|câu trả lời|lời giải|kết luận|trả lời(?=:)",
        adj=(
            "đúng|cuối cùng|chính xác|của (?:bài toán|bài|câu hỏi)(?: này)?|cần tìm|sẽ|phải|"
            "chỉ có thể|này|do đó"
        ),
        link="là|bằng|chọn",
        direct=True,
        weak="kết quả|tổng cộng|tổng",
        choose="chọn(?: đáp án| phương án| câu)?",
        answers="(?:là|chính là) (?:đáp án|câu trả lời|đáp số)(?: đúng| cuối cùng)?",
        no="không phải là|không phải|không là|không bằng|không|chẳng phải|chưa phải",
        but="mà là|mà phải là|mà",
        joins="và|hoặc|hay|đến|tới|cộng|trừ|nhân|chia|trên|phần|của",
        yields="là|bằng|có|còn|tổng cộng|tất cả|được|tổng|hết|vậy",
        before=(
            "ít nhất|nhiều nhất|tối thiểu|tối đa|hơn$|trên$|dưới$|không quá|(?:lớn|nhỏ|ít|nhiều|"
            "cao|thấp) hơn|gần$|từ$|âm$|trừ$|nửa$|gấp đôi|chưa đến|chưa tới|không dưới|ngoại trừ|"
            "một nửa của|quá$|giữa$|thứ$"
        ),
        after=(
            "trở lên|trở xuống|rưỡi|mũ|bình phương|lập phương|hoặc|hay|đến|tới|cộng|trừ|nhân|"
            "chia|là sai|sai|không đúng|không phải|lần|hơn|ít nhất|nhiều nhất|tối thiểu|tối đa|"
            "không"
        ),
        wrong="sai|không đúng|không chính xác|không phải (?:là )?đáp án|nhầm",
        supposes="nếu|giả sử|cho rằng|nói rằng|nghĩ rằng|liệu",
        next="sau đó|tiếp theo|rồi|bây giờ",
        unsure=(
            r"không biết|không chắc(?: chắn)?|không thể (?:giải|xác định|trả lời)\S*|chịu thua|"
            "bó tay"
        ),
        polite="nhé|ạ",
        sentence="tôi|chúng ta|anh ấy|cô ấy|vì|nên|vậy|đáp án|nếu|đó|này",
        common=(
            "la co cua va mot vay trong so cac bao nhieu nguoi qua con nen duoc cho tat ca moi "
            "dap an khong the nay do ta ban khi sau nhung"
        ),
        letters="đĐơưƠƯạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ",
    ),
    "id": Language(
        comma=True,
        noun="jawaban(?:nya)?|jawapan(?:nya)?|jawab",
        adj=(
            "akhir(?:nya)?|(?:yang )?(?:benar|tepat|betul)|dari (?:soal|pertanyaan)(?: ini)?|"
            "untuk (?:soal|pertanyaan)(?: ini)?|kita|pasti|tersebut|itu|ini"
        ),
        link="adalah|ialah|yaitu|yakni|sama dengan",
        weak="hasil(?:nya)?|jumlah(?:nya)?|total(?:nya)?",
        answers="(?:adalah|ialah|merupakan) jawaban(?:nya)?",
        no="bukan(?:lah)?|tidak|bukanlah",
        but="melainkan|tetapi|tapi",
        joins=(
            "dan|atau|sampai|hingga|tambah|ditambah|kurang|dikurangi|kali|dikali|bagi|dibagi|"
            "dari|per"
        ),
        yields=(
            "adalah|ada|total|jumlah|sama dengan|jadi|menjadi|tersisa|sisa|semuanya|yaitu|ialah"
        ),
        before=(
            "paling sedikit|paling banyak|minimal|maksimal|setidaknya|sekurang-kurangnya|"
            "(?:lebih|kurang) dari|(?:lebih )?(?:besar|kecil) dari|hampir|antara|hingga$|sampai$|"
            "minus|negatif|setengah dari|kecuali|di atas|di bawah"
        ),
        after=(
            "atau (?:lebih|kurang)|lebih|kurang|minimal|maksimal|kuadrat|pangkat|setengah|"
            "kali lipat|tambah|kurang|kali|bagi|atau|salah|bukan|tidak"
        ),
        wrong=r"salah|tidak (?:benar|tepat)|keliru|bukan jawaban\S*",
        supposes="jika|kalau|misalkan|andaikan|apakah|bilang",
        next="lalu|kemudian|setelah itu|selanjutnya|sekarang",
        unsure="tidak tahu|tidak yakin|tidak bisa (?:menjawab|menyelesaikan)|menyerah",
        sentence="saya|kami|kita|dia|mereka|adalah|karena|jawaban|jadi|jika|tidak",
        common=(
            "yang dan di adalah ini itu dari untuk dengan jadi ada dia tidak jumlah berapa "
            "setiap semua total bisa akan pada juga setelah sebuah orang angka karena maka"
        ),
    ),
    "sv": Language(
        comma=True,
        noun="svaret|svar|lösningen",
        adj="på (?:frågan|uppgiften)|alltså|då|därför|slutgiltiga",
        link="är|blir|er|bliver|lyder",
        weak="resultatet?|summan?|totalt",
        answers="(?:är|er)(?: alltså)? (?:det rätta )?svaret",
        no="inte|ikke|ej|aldrig",
        but="utan|men",
        joins="och|og|eller|till|plus|minus|gånger|delat med|av|upp",
        yields="totalt|blir|är|er|tillsammans|lika med|kvar|har|alltså",
        before=(
            "minst|högst|åtminstone|som mest|(?:mer|fler|mindre|färre|större|mindre) än|över$|"
            "under$|upp till$|nästan|mellan|minus|hälften av|mindst|højst|mer enn|mindre enn|"
            "mere end"
        ),
        after=(
            "eller (?:mer|mindre|fler|färre)|minst|högst|i kvadrat|upphöjt|och en halv|gånger|"
            "plus|minus|eller|fel|inte|ikke|felaktigt"
        ),
        wrong=r"fel|felaktig\S*|inte (?:rätt|korrekt|svaret)|galt|forkert",
        supposes="om|anta att|säger att|tror att|hvis",
        next="sedan|därefter|nu",
        unsure="vet (?:jag )?inte|ingen aning|inte säker|ger upp",
        sentence="jag|vi|han|hon|de|är|har|eftersom|svaret|alltså|vet|inte",
        common=(
            "och det att en ett ar som pa av for med han hon har inte den totalt alltsa varje "
            "hur manga sa vi kan detta denna ocksa efter tal fran vara blir"
        ),
        letters="åÅ",
    ),
    "cs": Language(
        comma=True,
        noun="odpověď|odpoveď|řešení|riešenie",
        adj="na otázku|úlohy|rovnice|tedy|proto|konečná|správná",
        link="je|zní|by byla|[—–-]",
        weak="výsledek|výsledkem|celkem|součet",
        answers="je(?: tedy| naše| správná)* odpověď",
        no="není|ne|nikoli|nie je|nikdy",
        but="ale|nýbrž",
        joins="a|nebo|až|plus|minus|krát|děleno|z|do|či",
        yields="celkem|dohromady|rovná se|je|má|zbývá|zbude|tedy|dostaneme",
        before=(
            "alespoň|nejméně|nanejvýš|nejvýše|maximálně|minimálně|(?:více|méně|větší|menší) než|"
            "přes$|pod$|nad$|do$|skoro|téměř|mezi|minus|polovina|kromě"
        ),
        after=(
            "nebo (?:více|méně)|nebo|alespoň|nejméně|na druhou|na třetí|a půl|krát|plus|minus|"
            r"není|špatně|nesprávn\S+|chybn\S+"
        ),
        wrong=r"špatn\S+|nesprávn\S+|chybn\S+|není (?:odpověď|správn\S+)",
        supposes="pokud|kdyby|předpokládejme|jestli|tvrdí",
        next="pak|potom|poté|nyní|dále",
        unsure=r"nevím|nejsem si jist\S*|neumím|vzdávám to",
        sentence="já|my|on|ona|oni|je|jsou|má|mají|protože|odpověď|tedy|nevím|není",
        common=(
            "a je na v se to ze kolik pro ma jsou tedy celkem kazdy po ktery do od jeho aby muze "
            "byt tento tato take jeste cislo"
        ),
        letters="řŘěĚůŮ",
    ),
}
