"""Words by which German denies an answer, doubts it, or makes it conditional."""

from __future__ import annotations

from .denial_tables import DenialWords

_WRONG = (
    r"falsch|verkehrt|inkorrekt|unrichtig|unwahr|fehlerhaft|unmöglich|ausgeschlossen|undenkbar"
    r"|unwahrscheinlich|unplausibel|unsinn\S*|sinnlos|quatsch|blödsinn|unfug|humbug|\S*irrtum"
    r"|irrtümlich\S*|irrig\S*|irreführend|(?:rechen|tipp|schreib|denk|flüchtigkeits|druck)?fehler"
    r"|trugschluss|fehlschluss|fehlannahme|abwegig|absurd|lächerlich|unhaltbar|ungültig|unzulässig"
    r"|unzutreffend|unbrauchbar|wertlos|hinfällig|widersprüchlich|widerspruch|widersprechen"
    r"|widerspricht|widerlegt|verworfen|gestrichen|zurückgewiesen|erfunden|gelogen|lügt?|märchen"
    r"|mythos|gerücht|missverständnis\S*|fehleinschätzung|finte|ablenkung|scherz|witz|zweifelhaft"
    r"|fraglich|fragwürdig"
    r"|unglaubwürdig|verrechnet|vertan|geirrt|irren?|irrt(?:e|en)?|täusch(?:t|en)|getäuscht"
    r"|verzählt|verlesen|vertippt|verschrieben|unbewiesen|ungeklärt|unklar|unsicher|ungewiss"
    r"|unentscheidbar|voreilig|vorschnell|unrecht|schwindel|ungenau"
)
_NOT = (
    r"nicht|nie|niemals|nichts|niemand|niemandem|keineswegs|keinesfalls|mitnichten|kaum|auf keinen"
    r" fall|unmöglich|keine[rs]?(?=\s*$)"
)
_NO = r"(?:kein\S*|weder|ohne)"
_PROOF = (
    r"(?:\S+ )?(?:antwort|lösung|ergebnis|endergebnis|beweis|beleg|garantie|ahnung|gewähr|sinn"
    r"|probe|rede|frage|begründung|kandidat\S*|treffer|wert|zahl|teiler|grundlage|option"
    r"|sicherheit|bedeutung|belang)"
)
_RIGHT = (
    r"(?:richtig\S*|korrekt\S*|möglich|wahr|die (?:\S+ )?(?:antwort|lösung)|das (?:\S+ )?ergebnis"
    r"|der (?:\S+ )?wert|gesucht\S*|gefragt|gemeint|zulässig|sein|zutreffend|haltbar|ganzzahlig)"
)
_VERB = (
    r"(?:ist|sind|war|waren|wäre|wären|wird|werden|kann|können|muss|müssen|darf|dürfen|stimm(?:t"
    r"|en)"
    r"|pass(?:t|en|te)|gilt|gelten|geht|gehen|ging|kommt|kommen|kam|trifft|treffen|traf|löst|lösen"
    r"|erfüll(?:t|en)|genüg(?:t|en)|ergibt|haut|liegt|hält|reicht|lässt|lassen|scheint|glaube|halte"
    r"|denke|meine|finde|weiß|sage|behaupte|bedeutet|heißt|folgt|lautet|entspricht|bestätigt"
    r"|nehme|möchte|würde|kenne|taugt|zählt|habe|haben|hat)"
)
# A main clause that gives another answer.
_MAIN = (
    r"(?:(?:die|der|das|unsere|meine) (?:\S+ )?(?:antwort|lösung|ergebnis|wert|endergebnis|anzahl"
    r"|zahl|summe) (?:ist|lautet|beträgt)|(?:es|er|sie) (?:ist|sind|bleiben|bleibt|hat)"
    r"|(?:und )?(?:wir|ich|man) (?:erhalten|erhalte|erhält|nehmen|nehme|wählen|wähle|kommen|komme"
    r"|bekommen|bekomme)|(?:jetzt|nun|nach \S+ \S+|möglich|richtig|korrekt|am ende|in wahrheit) "
    r"(?:habe|hat|sind|ist|komme|kommt|erhalte)|ich (?:habe|komme)"
    r"|\S+ sind es)(?! (?:\S+ )?(?:nicht|auch|ebenfalls))"
)
_THEN = (
    r"(?:(?:also|und|damit|somit|mithin|folglich|demnach|immerhin|aber|das (?:ist|sind)|dies (?:ist"
    r"|sind)|was|es (?:ist|sind)|genau|deutlich|weit|viel|etwas|knapp|und zwar|liegt|sogar) )*"
)

GERMAN = DenialWords(
    before=rf"""
        (?:{_WRONG})
        |(?<!zahl\s)(?:falsche|inkorrekte|fehlerhafte|verkehrte)[nrsm]?|stimmt (?:\S+ )?nicht
        |trifft (?:\S+ )?nicht zu
        |nicht (?:\S+ ){{0,2}}?(?:wahr|richtig|der fall|korrekt|sicher|möglich|gesagt|bewiesen
        |belegt|zu erwarten|so, dass|denkbar|haltbar|zulässig|zutreffend|gültig|dass)
        |kein\S* (?:\S+ )?(?:beweis|grund|hinweis|beleg|rede|rechnung|weg|anlass|lösung|option
        |kandidat)
        |kein\S* (?:\S+ )?(?:möglichkeit|chance|fall|szenario),? (?:dass|wie|in dem|bei dem|zu)
        |auszuschließen (?:ist|sind|wäre)
        |(?:bestehen|besteht|gibt|habe|hege|haben|hegen) (?:\S+ ){{0,3}}?zweifel
        |zweifel (?:daran|ob|bestehen)
        |(?:ist|trifft|gilt) (?:das|dies|dem) nicht (?:der fall|so|zu)(?=,)
        |(?:nur|lediglich|allein|einzig|bloß) (?:dann|wenn|falls|sofern|im fall)
        |im (?:ander|gegenteilig)\S* fall
        |ähnlich\S* [^\d]*(?:seite|aufgabe|nummer|nr)(?=\W*$)
        |(?:doppelt|halb|fast|nahezu|beinahe|annähernd|\S+mal) so \S+(?: [^\d\s]+)? wie(?=\W*$)
        |(?:mehr|weniger) \S+ als(?=\W*$)
        |(?:jenseits von|zumindest|(?:prim)?(?:teiler|faktor) von
        |allerhöchstens|allermindestens|eins von beide[nm]\S*)(?=\W*$)
        |(?:\S+fache|doppelte|hälfte|\S+tel|kehrwert|quadrat|\S*wurzel|bruchteil
        |vielfaches?) (?:von|aus)(?=\W*$)
        |mal (?:komm|erhalt|bekomm|ergib|ergab|ist|sind)\S* [^.]{{1,40}}, mal
        |(?:eher|lieber) # (?:[^\d\s]+ )?als(?=\W*$)
        |manche(?=\W*$)
        |(?:glaub|denk|mein|find|behaupt|sag|erwart|weiß|wiss|heißt|folgt|bedeut|halt
        |nehm)\S* (?:ich |wir |auch |daher |also |aber |es |das )*(?:gar |überhaupt |ganz )?nicht
        |(?:darf|kann|können|sollte|würde|will
        |möchte) (?:man |wir |ich |ernsthaft )*nicht (?:\S+ )?(?:sagen|behaupten|schließen|folgern
        |sein|ernsthaft|stimmen)|bezweif\S+
        |zweif(?:le|eln|elt|elte)|bestreit\S*|bestritt\S*|leugne\S*|verneine\S*|dementier\S*
        |widersprech\S*|hüten? (?:dich|euch|sich|mich|ich)|ablehn\S*|lehne|verwirf\S*|verwerfe\S*
        |schließe\S* (?:\S+ )?aus|vielleicht|eventuell|möglicherweise|womöglich
        |vermutlich|mutmaßlich|angeblich|vorgeblich|scheinbar
        |anscheinend|schätzungsweise|(?:rate|schätze|vermute|tippe) (?:ich|mal)
        |ich (?:\S+ )?(?:rate|schätze|vermute|tippe)|bauchgefühl|ins blaue
        |es sei denn|außer wenn|(?:sonst|(?:wenn|falls) nicht|andernfalls),? (?:ist|sind
        |wären?) \S+(?=\W*$)
        |weder(?=(?: \S+)?\W*$)|noch$|unter keinen umständen
        |auf (?:gar )?keinen fall
        |in keinem fall|auf keine weise|mit(?:nichten)|beileibe|unterscheidet sich|verschieden
        |(?:anders|ander\S*(?: \S+)? als|statt|anstatt|anstelle von|abgesehen von|ausgenommen
        |alles (?:andere als|außer|bis auf))(?=[^\d,]*$)
        |(?:weicht|weichen) (?:\S+ )?von
        |(?:spricht|sprechen|bin|sind) (?:\S+ )?gegen|^gegen
        |(?:kleiner|größer|weniger|mehr) oder gleich|weiger\S*|davon entfernt
        |(?:bestenfalls|schlimmstenfalls|günstigstenfalls|gewähr|nagel\S*|festlegen|munkelt|(?:internet
        |lösungsblatt|lösungsheft|lösungsbuch|lehrbuch|buch|tafel|forum|netz
        |zettel) (?:\S+ )?(?:steht|stand|heißt)|nach auffassung
        |(?:ursprünglich|zuerst|anfangs|vorher|eben) (?:stand|kam
        |hatte|war)\S* (?:hier|da|ich)|keine[rs]? (?:der|von|unserer)|verfehlt|(?:fehlt
        |fehlen) (?:jeder|jede|der|ein) (?:beweis|beleg)|von wegen|seitenzahl|hausnummer
        |jahreszahl)(?=[^\d]*$)
        |zwischen # (?:[^\d\s,]+ )?und(?=\s*$)
        |entweder
        |laut(?= [^\W\d]+ (?:hat|haben|hatte|hatten|besitz\S+)\b)|nach ansicht
        |nach meinung|zufolge|nichts ergibt|weit (?:entfernt|weg)|fern(?:ab)? von
        |gerücht
        |ob (?:[^,:\d]*)$
        |(?:zwischen|teil)(?:ergebnis\S*|summe|wert|schritt|resultat)(?=[^\d]*$)
        |(?:erste[rsn]?|frühere[rsn]?|alte[rsn]?|vorige[rsn]?|bisherige[rsn]?|vorläufige[rsn]?
        |ursprüngliche[rsn]?|spontane[rsn]?|naive[rsn]?|voreilige[rsn]?) (?:versuch|ansatz|gedanke
        |entwurf|tipp|ergebnis|antwort|rechnung|impuls|eindruck|schätzung|lösung|wert|anlauf|idee
        |überlegung|vermutung)|auf den ersten blick
        |(?:zuerst|anfangs|zunächst|ursprünglich|vorhin|spontan|erst) (?:\S+ ){{0,2}}?ich
        |ich (?:\S+ ){{0,3}}?(?:zuerst|anfangs|zunächst|ursprünglich|vorhin|fälschlich\S*|voreilig
        |versehentlich|aus versehen)|fälschlich\S*|versehentlich|aus versehen|verlockend
        |verführerisch|naheliegend, aber
        |typischer? (?:fehler|falle)
    """,
    named=r"""
        (?:end)?antwort|\S*(?:auf)?lösung(?:en)?|\S*ergebnis(?:ses)?|resultat|gesucht\S*
        |(?:der|den|dieser|welcher|einen|unser|mein|dessen|sein|ein) (?:\S+ )?(?:end)?wert
        |(?:es|x|y|n) (?:\S+ )?wären? (?:\S+ ){0,3}?#
        |(?:es|das|dies|x|y|n) (?:\S+ )?(?:ist|sind|war|sei|seien|ergibt|ergebe|beträgt
        |betrage) (?:\S+ ){0,3}?#
        |(?:ist|sind|sei|seien) (?:es|das|dies) (?:\S+ ){0,3}?#
        |(?<!dann\s)(?<!damit\s)(?<!somit\s)(?<!insgesamt\s)wären? es (?:\S+ ){0,3}?#
        |(?:es|das|dies|x|y|n) (?:\S+ ){0,4}?# (?:\S+ ){0,2}?(?:sein|ergeben|betragen|lauten|gewesen
        |sind|ist|wären?|seien|sei)
        |(?:erhält|bekommt|erhalten|bekommen|kommt|käme|erhielte|bekäme) (?:man|wir
        |ich)(?: \S+){0,2}? #(?=\W*(?:[.,;]|$))
        |(?:sollen?|mag) (?:\S+ ){0,4}?# (?:\S+ )?(?:haben|besitzen|sein|betragen)
        |# (?:\S+ )?(?:heraus|raus|als (?:antwort|lösung)|antworten|sagen|nennen|angeben|tippen
        |raten)
        |mit # geantwortet|# (?:\S+ ){0,2}?(?:richtig|stimmen|passen|zutreff\S+|herauskommen)
        |ergib\S* sich #(?=\W*(?:[.,;]|$))
        |^\W*(?:\S+ ){0,4}#(?=\W*(?:[.,;–—]|$))
    """,
    doubts=r"""
        (?:wenn|falls) (?:nicht|doch)(?=,)|bis auf|mit ausnahme von|jemand|nennt|niemand|keiner
        |sonst|andernfalls|ansonsten|wohl|wahrscheinlich|möglich(?!, (?!dass)(?:\S+ ){0,2}$)
        |denkbar|scheint|scheinen|offenbar
        |mag|sieht (?:\S+ )?aus|rate|raten|geraten|schätze|vermute\S*|vermutung|schätzung|tippe|tipp
        |hypothese|gefühlt?|sofern|vorausgesetzt|angenommen|gesetzt den fall|nur wenn
        |nehmen wir (?:einmal |mal )?an
        |unter (?:der|den|einer) (?:\S+ )?(?:annahme\S*|bedingung\S*|voraussetzung\S*)|für den fall
        |im falle?,? dass|je nach(?:dem)?
        |im (?:besten|schlimmsten|günstigsten|idealen) fall
        |sollten? (?:n|x|die|der|das|es) \S+(?=.*,)
        |(?:falls|wenn) (?:\S+ ){0,4}?(?:stimm(?:t|en)|richtig|korrekt|gilt|gelten|zutrifft
        |zutreffen|gemeint|erlaubt|fair|gerade|ungerade|prim|positiv|negativ|regnet)
        |falls(?! (?:du|dich|dir|jemand|es dich|man|sie|nötig|wir|etwas|eine?s
        |irgendetwas))(?![^,:]*\d)|weder(?=[^,]*$)
        |(?:gelesen|gehört|(?:internet|lösungsblatt|lösungsheft|lösungsbuch|lehrbuch|buch|tafel
        |forum|netz|zettel) (?:\S+ )?findet|für [^\W\d]+ (?:ist|lautet))(?=[^\d]*$)
        |(?:(?:doppelt|halb|dreimal|\S+mal) so \S+ wie|weniger \S+ als
        |mehr \S+ als)(?=[^\d,]*$)
        |laut(?! (?:aufgabe\S*|formel|text|satz|definition|angabe\S*|tabelle))|unentschieden
        |wer (?:[^,:\d]*)$
    """,
    doubts_after=rf"""
        ^[^\s,]+ {_VERB} (?:[^\s,]+ ){{0,4}}?(?:{_NOT}|{_NO} {_PROOF})
        |widerrufen|zurückge(?:nommen|zogen)|an die tafel|enthielt|übersah|unbekannt
        |wahrscheinlich|vorausgesetzt|sofern|sonst|falls|je nach\S*
        |unter (?:der|den) (?:\S+ )?(?:annahme|bedingung|voraussetzung)\S*
        |wenn (?:\S+ ){{0,6}}?(?:stimm(?:t|en)|richtig|korrekt|gilt|gelten|zutrifft|zutreffen
        |gemeint|erlaubt|fair|gerade|ungerade|regnet)
        |(?:sag|mein|behaupt|glaub|denk|vermut)(?:t|te|ten|et|ete|eten)
        |geantwortet|gesagt|getippt|geraten
    """,
    reports=r"""
        soll|sollen|antwort(?:et\S*|en)|schätzt\S*|tipp(?:t|te|ten)|vermute[nt]\S*|geantwortet
        |erzähl\S*
        |(?:der|die|das|mein|meine|ein|eine) (?:\S+ )?(?:freund|freundin|lehrer|lehrerin|bruder
        |schwester|mitschüler|mitschülerin|nachbar|nachbarin|kollege|kollegin|schüler|schülerin
        |taschenrechner|lehrbuch|lösungsheft|lösungsbuch|internet|computer
        |programm) (?:\S+ )?(?:kommt|kam|erhält|erhielt|bekommt|bekam|hat|nennt|nannte|gibt|gab
        |zeigt|zeigte|schreibt|schrieb|rechnet)
        |(?<!es\s)sei(?! \$?[a-z]\b)|seien|betrage|laute|ergebe
        |(?:sag|mein|glaub)(?:ten|en)
    """,
    contrary=r"""
        (?:gewesen|gehabt|gegeben|geworden) (?:wäre|wären|hätte|hätten)
        |(?:wäre|hätte)[nt]? [^.;]*(?:gewesen|gehabt|gegeben|geworden)
        |(?:wenn|falls|sofern) [^.;,]*(?:hätte|wäre)[nt]?(?=\W*(?:,|$))
        |^\W*(?:hätte|wäre)[nt]? [^,]*,
    """,
    after=rf"""
        (?!^(?:fehler|märchen|witze|scherze|gerüchte))(?!^(?:der|ihrer|seiner|dieser|aller) )
        (?!falsch (?:be|ge)\S+t\b)(?:{_WRONG})
        |^(?:\S+ )?(?:ist|sind|war|waren) (?:\S+ )?(?:geraten|getippt)|sonst nicht
        |^{_VERB} (?:[^\s,]+ ){{0,4}}?(?:{_NOT}|{_NO} {_PROOF})
        |(?:kann|könnte) (?:\S+ )?(?:keine|nicht die) rede|(?<=,\s)wenn nicht
        |(?:sehe|sieht) (?:ich )?(?:das|es) anders|steht nirgend\S*|^(?:\S+ )?teilbar
        |(?:geht|ging) (?:\S+ )?(?:schief|daneben)|misslang|misslingt
        |^im (?:\S+ )?buch (?:ist|sind|war|ähnelt)
        |^(?:\S+ )?(?:ist|sind|war|waren) (?:\S+ )?{_NO} {_PROOF}
        |^(?:\S+ )?(?:war|ist) (?:\S+ )?(?:mein|unser|ein) (?:\S+ )?(?:versuch|ansatz|gedanke
        |entwurf|tipp|vorschlag)|obergrenze|untergrenze|höchstwert|mindestwert
        |(?:der|die|das) (?:rest|\S+wert|antwort|lösung|ergebnis|gesamt\S*
        |endergebnis) (?:\S+ )?(?:fehlt|fehlen|kenne|steht aus|bleibt offen)
        |(?:den|die|das) \S+ (?:kenne|weiß|habe) (?:ich|wir) (?:\S+ )?nicht
        |ausgenommen|schlägt fehl|schlug fehl|vom tisch|mehr nicht|keine rolle
        |(?<=[,–—]) ?(?:gefragt|gesucht|verlangt) (?:ist|sind|war|waren|wird)
        |als (?:antwort|lösung)$
        |danach (?:\S+ ){{0,3}}?(?:nichts|nicht|unbekannt)
        |^(?:\S+ )?(?:oder|und) (?:mehr|weniger|darüber|darunter|höher|kleiner|größer)
        |^(?:\S+ )?nicht (?:\S+ )?sicher
        |(?:können|kann|müssen|muss|darf|dürfen|sollten) (?:wir|man
        |ich) (?:\S+ ){{0,3}}?(?:ausschließen|streichen|verwerfen|vergessen|ignorieren|weglassen)
        |ausschließen|verwerfen|zurückweisen|ablehnen
        |liegt (?:man|du|er|ihr) (?:\S+ )?(?:daneben|falsch)
        |(?:wie ?viel\S*|ob|was|wie|wo) [^.]{{1,60}}?(?:{_NOT}|unklar|offen|unbekannt|ungewiss)
        |^(?:\S+ ){{1,2}}?{_VERB} (?:\S+ ){{0,3}}?(?:{_NOT}) (?:\S+ ){{0,2}}?{_RIGHT}
        |^(?:\S+ ){{0,2}}?(?:es|das) (?:\S+ ){{0,3}}?(?:{_NOT})
        |^(?:\S+ )?(?:scheide(?:t|n)|schied\S*|fäll(?:t|en)|fiel\S*) (?:\S+ ){{0,3}}?(?:aus|weg
        |raus|flach)
        |^(?:\S+ )?entf(?:ällt|allen)
        |(?:lässt|lassen) sich (?:\S+ ){{0,3}}?(?:ausschließen|widerlegen|streichen|verwerfen)
        |auszuschließen
        |(?:in frage|infrage|in betracht)(?= nicht| kaum)
        |(?:nicht|kaum) (?:in frage|infrage|in betracht)|scheitert
        |verletz(?:t|en) (?:die|eine|das)|verstö(?:ßt|ßen)
        |(?<=[,:–—]) ?(?:so |dann )?{_VERB} (?:\S+ ){{0,4}}?(?:{_NOT})
        |(?:aber|doch|jedoch|allerdings|leider|obwohl|wobei|was|nur|bloß|wenngleich|obgleich
        |freilich|indes|dennoch|trotzdem) (?:\S+ ){{0,8}}?(?:{_NOT}|{_NO} {_PROOF}|etwas ander\S+
        |offen|zweifel\S*|bezweif\S+|fehlt|unklar|daneben|aus(?:steht)?|zu (?:klein|groß|hoch
        |niedrig|viel|wenig)|sicher bin)
        |(?<=[,–—]) ?(?:und )?(?:das|dies|der wert) (?:\S+ ){{0,4}}?(?:{_NOT})
        |gefragt (?:ist|war|wird) (?:\S+ ){{0,2}}?(?:nach )?(?:etwas|aber|jedoch)
        |(?:nicht|nie) (?:\S+ )?(?:gefragt|gesucht|verlangt|gemeint|ausgerechnet|geprüft)
        |^(?:\S+ )?(?:ist|sind|war|waren) (?:\S+ ){{0,2}}?(?:zwischen|teil|ausgangs|anfangs
        |start)(?:ergebnis\S*|schritt|wert|summe|resultat|größe|zahl)
        |^(?:\S+ )?(?:ist|sind|war|waren|wäre|wären|liegt|liegen) (?:\S+ )?(?:zu (?:klein|groß|hoch
        |niedrig|viel|wenig|gering)|daneben
        |(?:nur |bloß |lediglich |eher )?(?:ein\S* )?(?:\S+ )?(?:schätzung|vermutung|untere|obere
        |schranke|grenze|tipp|näherung|raten))|es sei denn|vielleicht|eventuell|möglicherweise
        |womöglich|vermutlich|angeblich|außer wenn|nur (?:dann|wenn|falls)
        |hängt (?:\S+ ){{0,3}}?(?:ab|davon)
        |(?:schätze|vermute|rate|nehme|tippe|hoffe) ich
        |ich (?:schätze|vermute|rate|tippe|nehme an)|ohne gewähr|wer weiß
        |oder (?:so|ähnlich|doch)
        |(?:bin|sicher) (?:\S+ ){{0,3}}?(?:nicht|un)sicher
        |sicher (?:bin|ist) (?:\S+ ){{0,3}}?nicht
        |(?:sein|ergeben|betragen|lauten|haben|gewesen|bleiben) (?:soll|mag)\S*
        |(?<=[,–—]) ?(?:so )?(?:sag|mein|behaupt|glaub|denk|vermut)(?:t|te|ten|et|ete|eten)
        |(?:sagen|behaupten|glauben|denken|vermuten|antworten)(?=\s*[,.]?$)
        |(?:sag|mein|glaub|denk)en (?:viele|manche|einige)
        |so (?:\S+ )?(?:mein|heißt)\S*
        |für (?:die (?:richtige )?(?:antwort|lösung)|richtig|korrekt)
        |zurück(?:nehmen|ziehen)|nehme ich zurück|ziehe ich zurück
    """,
    says=r"""
        (?:sag|mein|glaub)(?:t|te)(?! an\b| [^\d]*voraus)|(?:sag|mein|glaub)(?:en|ten)(?=,)
        |behaupte\S*|denk(?:t|en)(?! sich)|dachte\S*|heißt es
        |versicher\S*|schwör\S*|schwor\S*|munkelt|plädier\S*|argumentier\S*|verkünde\S*
        |(?:nimmt|nehmen|nahm) \S+ an
        |(?:besteht|beharrt|pocht) (?:\S+ )?(?:darauf|auf)
        |der (?:\S+ )?(?:meinung|ansicht|auffassung|überzeugung)|(?:ist|sind) überzeugt
        |(?<!ich\s)habe(?! ich)(?=[^,]*$)
    """,
    so=rf"""
        also|daher|deshalb|somit|und damit|wir[^;.\d]{{1,80}} und (?:erhalten|bekommen|finden|haben)
        |^\W*(?:da|weil|nachdem|obwohl) [^;:]*,(?= (?:\S+t|\S+en|sind|ist|war|muss|kann) )
        |folglich|demnach|deswegen|aber|sondern|jedoch|denn|weil|trotzdem
        |dennoch|mithin|vielmehr|(?<=,\s)doch|stattdessen|in wahrheit|in wirklichkeit
        |tatsächlich(?! nicht)|korrekt ist
        |richtig (?:ist|sind|wäre)(?! (?:nicht|aber))
        |(?:#|(?:das|dies|ich|mich) (?:\S+ ){{0,3}}?(?:{_WRONG}|(?:stimm(?:t|te)|geht|ging|passt
        |passte|kann) (?:\S+ )?nicht))[^,;:]{{0,60}}[,:–—] {_MAIN}
    """,
    certain=r"""
        (?:kein\S*|ohne(?: jeden| den geringsten)?|außer|nicht zu|außer jedem
        |über jeden) (?:\S+ )?(?:zweifel|bezweifeln)(?: erhaben)?|zweifel\S*los|zweifelsfrei
        |(?:niemand|keiner) (?:\S+ ){0,2}?(?:bestreit\S*|bezweif\S*|leugne\S*)
        |(?:nicht|kein\S*|unschwer|nichts|nie) (?:\S+ ){0,3}?(?:schwer|schwierig|problem|wunder
        |überrasch\S*|verwunder\S*|wundert|umsonst|falsch|bestreiten|leugnen|unmöglich|nötig|lange
        |leicht|einfach|kompliziert|geheimnis|zufall|hexerei|fehler|irrtum|vergessen|täuschen
        |beirren|irritieren|verwirren|verwechseln|übersehen|hexenwerk|ander\S* (?:lösung|antwort
        |möglichkeit|ergebnis|wert)|mehr zu tun|zu rütteln|auszusetzen|einzuwenden|widerlegen
        |weiter|alle|alles|rolle|zur sache)
        |(?:überrasch\S*|wundert|stört|schadet) (?:\S+ )?nicht|macht nichts|ändert (?:\S+ )?nichts
        |nicht (?:den |die |der )?(?:gering|leise|klein)\S* zweifel
        |zweif(?:le|eln|elt) (?:\S+ ){0,2}?nicht(?: im geringsten| im mindesten| daran)?
        |(?:nichts|niemand|nirgends) (?:\S+ )?(?:außer|als|anderes als)|niemand ander\S* als
        |alles andere (?:ist|wäre|war) \S+
        |alles andere scheidet aus
        |(?:anfangs|zuerst|zunächst|erst|vorher) [^\d,;:]{0,40}(?:zweif|unsicher
        |nicht (?:ganz )?sicher|gezögert)\S*(?: ich)?,
        |während [^\d,;:]{1,30} # (?:behaupt|sag|mein|glaub|vermut|denk)\S*,
        |denk\S* (?:\S+ )?(?:an|daran)(?= [^\d]*:)
        |(?:sonst|ansonsten) (?:gibt|bleibt|existiert|kommt|passt) [^\d,;:]{1,30}(?=[:;])
        |weder [^\d,;:]{1,40} noch [^\d,;:]{1,30}[:;]
        |(?:obwohl|auch wenn|wenngleich|obgleich) (?:es|das|man|dies|viele
        |manche) [^\d,;:]{0,40}?(?:überrasch|erstaun|aussah|aussieht|scheint|schien|erwart|vermut
        |glaub|denk|klingt|anders)\S*
        |(?:hat|haben|liegt|liegen) (?:(?!nicht|kein|un)\S+ ){0,2}?(?:recht|richtig)(?=[:,])
        |weder (?:mehr|weniger|kleiner|größer) noch (?:mehr|weniger|kleiner|größer)(?: als)?
        |(?:und )?(?:sonst|weiter) nichts|nichts (?:sonst|weiter)
        |(?:[–—-] )?(?:es|da) (?:gibt|besteht|bleibt|existiert) (?:\S+ )?kein\S* (?:ander
        |weiter)\S* \S+
        |(?:[–—-] )?(?:\w+ )?(?:andere[rs]?|anders|mehr) (?:\S+ )?(?:gibt|ist|geht|besteht|bleibt
        |kommt|existiert) (?:es |da )?nicht(?: möglich| in frage| in betracht| infrage| denkbar
        | zu \S+)?
        |(?:anders|entgegen|im gegensatz)(?: [^,;:\d]{1,40})?, (?:was|wie|als) [^,;:\d]{1,60},
        |nichts (?:anderes )?(?:\S+ )?als
        |kein\S* ander\S* (?:\S+ )?als
        |nicht nur|nicht mehr als|nicht weniger als
        |nicht mehr und nicht weniger
        |sehr wohl|gleichwohl|fehlerfrei|fehlerlos|entweder so oder so
        |so oder so|wie erwartet
        |(?:anders|entgegen|im gegensatz|abweichend|ungeachtet|auch wenn|obwohl|selbst wenn
        |obgleich|egal|gleichgültig|ganz gleich)(?: [^,;:]{1,80})?,
        |(?:da|weil|wenn) (?:niemand|nichts|keiner?|nicht) [^,;:\d]{1,40},
        |(?:dass|wo|wer|der|die|das) (?:niemand|keiner|nichts) [^,;:\d]{1,40},
        |(?:an)?zahl (?:der |ihrer |seiner |von )?(?:falsche|fehlerhafte)\S* \S+
        |# (?:\S+ ){0,2}?fehlern?|(?:wobei |mit |und )(?:die )?gleichheit [^.;]*
        |(?<!antwort\s)(?<!lösung\s)(?<!ergebnis\s)(?<!wert\s)(?<!es\s)(?<!das\s)(?<!x\s)(?:muss|müssen|kann
        |können|darf|dürfen|braucht|brauchen|benötigt|benötigen) (?:(?!nicht|antwort|lösung|ergebnis
        |wert|es|das)\S+ ){0,5}?(?:mindestens|höchstens|maximal|wenigstens)(?! (?:\S+ ){0,3}?sein)
        |(?:überrasch|erstaun|verwunder)\S* (?:\S+ )?vielleicht
        |vielleicht (?:\S+ )?(?:überrasch|erstaun|verwunder)\S*
        |(?:anders als|im gegensatz zu|verglichen mit) # (?=erfüllt|passt|löst|geht|stimmt|ist)
        |wie (?:behauptet|vermutet|gesagt|erwartet|verlangt|vorhergesagt)(?=,? (?:ist|sind|lautet
        |beträgt|ergibt|erhält|erhalten))
        |entgegen (?:\S+ ){1,3}?(?:vermutung|erwartung|behauptung|annahme|meinung|anschein|angabe
        |ansicht|aussage)\S*
        |wie (?:man|wir|sich|die probe) (?:\S+ ){0,2}?(?:sieht|sehen|nachrechne[nt]|prüf\S*
        |überprüf\S*|erkenn\S*|zeig\S*|bestätig\S*|feststell\S*)(?: lässt| kann)?
        |(?:wie|was) (?:\S+ ){0,3}?(?:richtig|zu recht|korrekt|zutreffend) (?:\S+ )?(?:sag|mein
        |behaupt|vermut|denk)\S*
        |(?:wenn|falls|sofern) ich mich nicht (?:irre|täusche|verrechnet habe)
        |fehler(?:rechnung|quote|zahl)
        |wer hätte (?:\S+ )?gedacht
        |man könnte (?:\S+ ){0,3}?(?:meinen|denken|glauben)(?=[^\d]*,)
    """,
    sums=r"""
        wir|man|du|sie|ich
        |\S*(?:addier|rechn|zusammen|multipliz|subtrah|zähl|divid|abzieh|einsetz|teil)\S*
    """,
    other=rf"""
        {_THEN}(?:nicht(?: etwa| mehr)?|statt|anstatt|anstelle von|kein\S*|(?:mehr|weniger
        |\S+er) (?:ist |sind |war )?als|(?:doppelt|halb|\S+mal) so \S+ wie|(?:das|die) (?:doppelte
        |hälfte|\S+fache|\S+tel) von) #
        |(?:also|damit|somit|und|mithin|folglich) (?:\S+ )?(?:über|unter|mindestens|höchstens) #
        |{_THEN}(?:um )?# (?:\S+ )?(?:mehr|weniger|\S+er)(?: (?:ist|sind))?(?: als (?:\S+ )?(?:#
        |[^\W\d]+))
        |um (?:auf |zu |die )?# (?:[^\d\s]+ )?zu \S+
        |(?:weil|denn|da) # [^,;:.\d]{{0,40}}(?:falsch|nicht|unmöglich|kein|ausgeschlossen|zu groß
        |zu klein)[^,;:.\d]{{0,30}}
    """,
    retracts=rf"""
        (?:(?:aber|doch|nur|leider|allerdings|moment|halt|stopp|nein|oh|ups|ach|warte|mal|und|oder
        |jedoch|hm+|nun|ehrlich gesagt)[,:!.]*\s+)*(?:(?:das|dies(?:er|e|es)?|der wert|die zahl
        |die antwort|so|hier|da) (?:\S+ ){{0,6}}?(?:{_NOT}(?! #)|{_WRONG}|{_NO} {_PROOF}|bezweif\S+
        |(?:nehm|zieh)e ich (?:\S+ ){{0,2}}?zurück|verwerfe|streiche|widerrufe)|(?:wie ?viel\S*|ob
        |was|wie|wo) [^.]{{1,60}}?(?:{_NOT}|unklar|offen|unbekannt|ungewiss)|(?:{_WRONG})
        |doch nicht|das (?:\S+ ){{0,3}}?(?:geraten|vermutung|schätzung|tipp)|(?:da|hier) fehlt
        |bitte (?:\S+ )?(?:ignorier|vergess|streich)\S*|(?:ganz |völlig |wirklich
        |hundertprozentig |absolut )?(?:richtig|korrekt|wahr|sicher) (?:ist|bin|war) (?:das|ich
        |es) (?:\S+ ){{0,3}}?nicht|glaub\S* ich (?:\S+ ){{0,3}}?nicht
        |dabei (?:\S+ ){{0,4}}?(?:verrechnet|geirrt|vertan|verzählt)|stimmt (?:\S+ )?nicht
        |auch nicht|oder (?:\S+ )?nicht|(?:streich|vergiss|ignorier|verwirf
        |vergessen)\S* (?:\S+ )?(?:das|es|dies\S*|sie|bitte)|ich (?:\S+ ){{0,5}}?(?:{_WRONG}|zurück
        |verwerfe|widerrufe|bezweif\S+|zweif\S+|nicht (?:sicher|überzeugt)|unsicher)|(?:danach
        |darum|das) (?:ist|war|wird) (?:\S+ )?nicht|(?:gefragt|gesucht|verlangt) (?:ist|war|wird
        |sind) (?:\S+ ){{0,3}}?(?:etwas|aber|jedoch|allerdings)|sicher bin ich|daran (?:zweif
        |glaub)\S*|darauf (?:\S+ ){{0,3}}?nicht|ob (?:das|dies|es)|die (?:probe|kontrolle
        |gegenprobe) (?:\S+ ){{0,3}}?(?:scheitert|nicht|fehl|widerspr\S+)|(?:keine ahnung|wer weiß)
        |(?:leider|jedoch) (?:\S+ ){{0,6}}?{_NOT})
    """,
    unreal=r"""
        (?:hätte|wäre|würde|käme|ergäbe|gäbe|läge|betrüge|bekäme|erhielte|müsste|könnte|dürfte
        |waere|haette|wuerde|kaeme|ergaebe|gaebe|laege|koennte|muesste|bräuchte|stünde|verbliebe
        |entspräche|entstünde)[nt]?|bliebe
    """,
    aside=r"""
        (?<=,\s)(?:und (?:genau |eben )?(?:das|dies|sie) (?:ist|sind|war|waren|wird|wurde|haben
        |hatten)|was|wie) (?:\S+ ){0,4}?(?:gesucht|gefragt|verlangt|gefordert|gewünscht|wollten
        |behauptet)
    """,
    throughout=r"""
        (?:mit|bei|unter|in) (?:\S+ )?ander\S* (?:umstände\S*|angabe\S*|zahl\S*|daten|werte\S*
        |bedingung\S*|voraussetzung\S*|\S*aufgabe\S*|fassung|annahme\S*|vorgaben)(?=[^\d:,;]*$)
    """,
    agrees=r"""
        (?![^.]*\b(?:nicht|kein|womöglich|vielleicht|möglicherweise))(?! ?(?:richtig|korrekt
        |wahr)(?: sein| gewesen)?\W*$)[,–—;]? ?(?:(?:und|womit|was|damit|das|dies|es|sie|er|dem
        |darin) )?(?:(?!nicht|kein)\S+ ){0,5}?(?:richtig|korrekt|stimmt(?! nicht)|zutreffend|(?:hat
        |haben|hatte|liegt|liegen)(?: \S+){0,3}? (?:recht|richtig)|(?:trifft|treffen) (?:\S+ )?zu
        |schließe ich mich|stimme ich (?:\S+ )?zu|ich stimme (?:\S+ ){0,2}?zu|bestätig\S*|zu recht
        |mit recht|wahr)
    """,
)
