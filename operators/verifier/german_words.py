"""Parts of the German alternatives of `denial_words.py`."""

from __future__ import annotations

WRONG = (
    r"falsch|verkehrt|inkorrekt|unrichtig|unwahr|fehlerhaft|unmöglich|ausgeschlossen|undenkbar"
    r"|unwahrscheinlich|unplausibel|unsinn\S*|sinnlos|quatsch|blödsinn|unfug|humbug|\S*irrtum"
    r"|irrtümlich\S*|irrig\S*|irreführend|(?:rechen|tipp|schreib|denk|flüchtigkeits|druck)?fehler"
    r"|trugschluss|fehlschluss|fehlannahme|abwegig|absurd|lächerlich|unhaltbar|ungültig|unzulässig"
    r"|unzutreffend|unbrauchbar|wertlos|hinfällig|widersprüchlich|widerspruch|widersprechen"
    r"|widerspricht|widerlegt|verworfen|gestrichen|zurückgewiesen|erfunden|gelogen|lügt?|märchen"
    r"|mythos|gerücht|finte|ablenkung|scherz|witz|zweifelhaft|fraglich|fragwürdig"
    r"|unglaubwürdig|verrechnet|vertan|geirrt|irren?|irrt(?:e|en)?|täusch(?:t|en)|getäuscht"
    r"|verzählt|verlesen|vertippt|verschrieben|unbewiesen|ungeklärt|unklar|unsicher|ungewiss"
    r"|unentscheidbar|voreilig|vorschnell|unrecht|schwindel|ungenau"
)
NOT = (
    r"nicht|nie|niemals|nichts|niemand|niemandem|keineswegs|keinesfalls|mitnichten|kaum|auf keinen"
    r" fall|unmöglich|keine[rs]?(?=\s*$)"
)
NO = r"(?:kein\S*|weder|ohne)"
PROOF = (
    r"(?:\S+ )?(?:antwort|lösung|ergebnis|endergebnis|beweis|beleg|garantie|ahnung|gewähr|sinn"
    r"|probe|rede|frage|begründung|kandidat\S*|treffer|wert|zahl|teiler|grundlage|option"
    r"|sicherheit|bedeutung|belang)"
)
RIGHT = (
    r"(?:richtig\S*|korrekt\S*|möglich|wahr|die (?:\S+ )?(?:antwort|lösung)|das (?:\S+ )?ergebnis"
    r"|der (?:\S+ )?wert|gesucht\S*|gefragt|gemeint|zulässig|sein|zutreffend|haltbar|ganzzahlig)"
)
VERB = (
    r"(?:ist|sind|war|waren|wäre|wären|wird|werden|kann|können|muss|müssen|darf|dürfen|stimm(?:t"
    r"|en)"
    r"|pass(?:t|en|te)|gilt|gelten|geht|gehen|ging|kommt|kommen|kam|trifft|treffen|traf|löst|lösen"
    r"|erfüll(?:t|en)|genüg(?:t|en)|ergibt|haut|liegt|hält|reicht|lässt|lassen|scheint|glaube|halte"
    r"|denke|meine|finde|weiß|sage|behaupte|bedeutet|heißt|folgt|lautet|entspricht|bestätigt"
    r"|nehme|möchte|würde|kenne|taugt|zählt|habe|haben|hat)"
)
# A main clause that gives another answer.
MAIN = (
    r"(?:(?:die|der|das|unsere|meine) (?:\S+ )?(?:antwort|lösung|ergebnis|wert|endergebnis|anzahl"
    r"|zahl|summe) (?:ist|lautet|beträgt)|(?:es|er|sie) (?:ist|sind|bleiben|bleibt|hat)"
    r"|(?:und )?(?:wir|ich|man) (?:erhalten|erhalte|erhält|nehmen|nehme|wählen|wähle|kommen|komme"
    r"|bekommen|bekomme)|(?:jetzt|nun|nach \S+ \S+|möglich|richtig|korrekt|am ende|in wahrheit) "
    r"(?:habe|hat|sind|ist|komme|kommt|erhalte)|ich (?:habe|komme)"
    r"|\S+ sind es)(?! (?:\S+ )?(?:nicht|auch|ebenfalls))"
)
THEN = (
    r"(?:(?:also|und|damit|somit|mithin|folglich|demnach|immerhin|aber|das (?:ist|sind)|dies (?:ist"
    r"|sind)|was|es (?:ist|sind)|genau|deutlich|weit|viel|etwas|knapp|und zwar|liegt|sogar) )*"
)
