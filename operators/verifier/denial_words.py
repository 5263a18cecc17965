"""Words by which other languages than English deny an answer, doubt it, or make it conditional."""

from __future__ import annotations

from typing import NamedTuple


class DenialWords(NamedTuple):
    """The words of a language, each field the alternatives of one regular expression.

    Attributes:
        before: in the statement in front of an answer: "it is false that", "perhaps", "neither".
        after: behind an answer, in its sentence: "is wrong", "unless".
        says: somebody else "says", in front of the word for "answer".
        so: "so", "but": another statement begins.
        certain: what only looks like a denial: "no doubt", "not hard to see".
        sums: "we", "add": in a condition that is a step of the way.
        other: makes the number `#` another one than the answer, which stands before it in its
            sentence: "not #", "more than #", "# less than #".
        retracts: begins a sentence that takes back the one before: "that cannot be".
        turns: ends a denial at a comma or colon and begins a statement: "12 is wrong: the".
        frames: what still holds behind such a colon, so that nothing turns: "if", "according to".
        confirms: behind an answer, makes the claim of somebody else the response's own.
    """

    before: str = ""
    after: str = ""
    says: str = ""
    so: str = ""
    certain: str = ""
    sums: str = ""
    other: str = ""
    retracts: str = ""
    turns: str = ""
    frames: str = ""
    confirms: str = ""


DENIALS: dict[str, DenialWords] = {
    "de": DenialWords(
        before=(
            r"(?:falsch|unwahr|unrichtig|unmöglich|ausgeschlossen|undenkbar|unwahrscheinlich"
            r"|fraglich|unklar|"
            r"zweifelhaft|irrig)|(?:falsche|inkorrekte|fehlerhafte|verkehrte)[nrsm]?|irrtum"
            r"|fehler|lüge|"
            r"stimmt nicht|nicht (?:wahr|richtig|der fall|korrekt|sicher|möglich)|trifft nicht zu|"
            r"(?:glaube|denke|meine|finde|behaupte|sage|erwarte|weiß|wissen|heißt) (?:ich |wir "
            r"|auch )?nicht|"
            r"(?:darf|kann|können|sollte|würde) (?:man |wir |ich )?nicht (?:sagen|behaupten)"
            r"|bezweif\S+|"
            r"zweifle|bestreite\S*|leugne\S*|verneine\S*|vielleicht|eventuell|möglicherweise"
            r"|womöglich|wohl|"
            r"wahrscheinlich|vermutlich|angeblich|könnte|dürfte|möglich|scheint|scheinbar"
            r"|anscheinend|"
            r"rate|schätze|vermute|niemand|keiner|sonst|andernfalls|ansonsten|es sei denn"
            r"|außer wenn|sofern|"
            r"vorausgesetzt|angenommen|nehmen wir an|weder|noch$|unter keinen umständen"
            r"|auf keinen fall|in keinem fall|"
            r"unterscheidet sich|verschieden|anders als|andere[rsn]? als|statt|anstatt"
            r"|anstelle von|abgesehen von|ausgenommen|"
            r"entweder|laut|nach ansicht|keine\S* rechnung|nichts ergibt|weit entfernt"
            r"|unentschieden"
        ),
        after=(
            r"^\S* ?(?:ist|war|wäre|sind|kann|muss|stimmt) (?:\S+ ){0,2}?(?:falsch|nicht"
            r"|unmöglich|ausgeschlossen|"
            r"verkehrt|inkorrekt|ein (?:fehler|irrtum)|kein\S*|unrichtig)|es sei denn|vielleicht"
            r"|möglicherweise|"
            r"wahrscheinlich|vermutlich|vorausgesetzt|außer wenn|sofern|stimmt nicht|sonst"
            r"|bin (?:mir )?nicht sicher|"
            r"aber (?:das|sie|er|es) (?:\S+ )?(?:falsch|nicht)"
        ),
        says=(
            "sag(?:t|en|te|ten)|behaupte[nt]\\S*|mein(?:t|en|te|ten)|glaub(?:t|en|te|ten)"
            "|denk(?:t|en)|dachte\\S*|heißt es|soll"
        ),
        so=(
            "also|daher|deshalb|somit|folglich|demnach|deswegen|aber|sondern|jedoch|denn|weil"
            "|trotzdem|dennoch|mithin"
        ),
        certain=(
            r"(?:kein\S*|ohne(?: jeden)?|außer|nicht zu) (?:zweifel|bezweifeln)|zweifel\S*los"
            r"|zweifelsfrei|"
            r"(?:nicht|kein|unschwer) (?:\S+ ){0,2}?(?:schwer|schwierig|problem|wunder"
            r"|überraschend|umsonst|falsch|"
            r"bestreiten|leugnen|unmöglich|nötig|lange)|nichts anderes als|keine andere als"
            r"|nicht nur|nicht mehr als|"
            r"nicht weniger als|sehr wohl|gleichwohl|fehlerfrei|fehlerlos|entweder so oder so"
        ),
        sums=r"wir|man|du|sie|ich|\S*(?:addier|rechn|zusammen|multipliz|subtrah|zähl)\S*",
        other=(
            r"(?:und |aber )?(?:nicht|statt|anstatt|anstelle von|mehr als|weniger als|größer als"
            r"|kleiner als) #|(?:das (?:ist|sind) )?(?:um )?# (?:mehr|weniger|größer|kleiner)"
            r"(?: als #)"
        ),
        retracts=(
            r"(?:das|dies(?:er|e|es)?(?: \S+)?) (?:\S+ ){0,4}?(?:nicht|falsch|unmöglich|irrtum"
            r"|fehler)"
        ),
    ),
    "fr": DenialWords(
        before=(
            # what is said is false
            r"faux|fausses?|mauvaises?|incorrecte?s?|erronée?s?|inexacte?s?|impossible|impensable"
            r"|absurde|ridicule|insensé|inconcevable|illusoire|aberrant|improbable|douteux"
            r"|exclue?s?|erreur|mensonge|mythe|piège|illusion|hors de question|pas question|à tort"
            r"|gardez-vous|gardons-nous|évit(?:ez|ons|er)|refuse\S*|n'all(?:ez|ons) pas|interdit"
            r"|contradictoire|n'(?:est|était) pas (?:\S+ ){0,2}?(?:vrai|correct|exact|juste|le cas"
            r"|certain\S*|sûre?|possible|raisonnable|permis|prouvé|établi|dit)|pas (?:vrai|sûre?"
            r"|certaine?|d'accord)|(?:je|j'en|on|nous) doute(?:ns)?|doute(?:z|nt|ux)?|nie|nient"
            r"|nions|contest\S+|réfut\S+|rejet\S+|démen\S+|récus\S+|écart(?:e|ons|er|é\S*)"
            r"|élimin\S+|exclu(?:re|t|ons)|barr(?:e|ons|ez|er)|ray(?:e|ons|ez|er)|oubli(?:e|ons|ez"
            r"|er)|ignor(?:e|ons|ez|er|ent)|laiss(?:e|ons|ez|er) tomber|abandonn\S+|retir(?:e"
            r"|ons) ma|remplac(?:e|ez|ons|er) $|renonc\S+|(?:pense|pensons|crois|croyons|dis|dit"
            r"|dire|affirme|prétends|suppose|conclure|répondre|affirmer|trouve|obtient|obtenons"
            r"|vois|saurait|peut|peux|pouvons|faut|doit|répond(?:ez|s|ons)|veux dire) (?:surtout "
            r"|certainement |absolument |donc )?pas|jamais \S+(?: \S+)?(?: n'\S+| ne)|il s'en faut"
            r"|aucun (?:calcul|élève|résultat)\S*|aucun\S* (?:\S+ )?n(?:e|'\S+)|(?:rien"
            r"|personne) (?:\S+ )?n(?:e|'\S+)|nullement|en aucun(?:e)? (?:cas|façon|manière)"
            r"|loin d(?:e|'\S+)|ni|guère|ne saurait|ne (?:peut|peux|pouvons"
            r"|saurait) (?:pas )?(?:dire|affirmer|conclure|être|valoir)|^ ?pas|autre que"
            r"|autre chose que|sauf|excepté|hormis|au lieu de|plutôt que|à la place de"
            r"|différente?s? de|diffère de|distincte?s? de|incompatible|(?:aurai(?:t|s)|aur(?:iez"
            r"|ions)|a|ai|eu|avait) (?:eu )?tort|méfi(?:ez|ons)|oppose\S* à|nul n'\S+"
            r"|aucune raison|annul\S+|biff\S+|rature\S*|rayons|reviens sur|trompée? en"
            # doubt
            r"|mettons|(?:^|\W)je (?:suppose|présume|soupçonne)|j'imagine|impression|chances que"
            r"|tente|penche\S*|hasard|à vue d\S+|persuadée?|convaincue?|envisag\S+"
            r"|réponse possible|doigt mouillé|^ ?possible|peut[ -]être|probablement|probable"
            r"|vraisemblable\S*|pourrai(?:t|ent)|possiblement|peut (?:bien )?être|éventuel\S*"
            r"|sans doute|apparemment|à première vue|au hasard|au pif|au jugé|à vue de nez|disons"
            r"|mettons|devin\S+|pari(?:e|erais|ons)|intuition|se peut|se peuve?nt|possible qu\S+"
            r"|(?:réponse|valeur|solution|candidat|possibilité)s possibles?|candidats|possibilités"
            r"|estim(?:e|ation|ons)|hypothèses?|conjecture|semble|paraît|dirait|hésit\S+"
            r"|balanc(?:e|ons) entre|demande si|(?:sai[st]|savons|savoir) (?:pas |plus )?(?:si"
            r"|s'il\S*)|reste à (?:vérifier|prouver|démontrer)|#(?: [^\s\d,]+)?,? ou(?: bien"
            r"| peut-être| alors| même)? $|soit(?: \S+){1,3},? soit $"
            r"|ou bien\D{0,4} #\D{0,20} ou bien $|parmi # et $"
            # conditions
            r"|sous (?:réserve|l'hypothèse|condition)|en cas d\S+|imaginons|supposant"
            r"|pour peu qu\S+|sinon|autrement(?! dit)|à moins qu\S+|à condition|pourvu qu\S+"
            r"|à supposer|supposons|supposez|admettons|en (?:supposant|admettant)|au cas où"
            r"|dans le cas où|tant qu(?:e|'\S+)|dépend(?:ent)? de|lorsque [a-z] est"
            r"|quand [a-z] est|pour [a-z] (?:im)?pair|(?:n'\S+|ne \S+) (?:\S+ )?plus $"
            r"|pour autant qu\S+|si (?:la|le|les|l'\S+|ma|mon|tel|telle) (?:\S+ ){0,3}?(?:est|sont"
            r"|tient|s'appliqu\S+|dit vrai|existe)|si jamais"
            # what would be
            r"|eût|eussent|fût|(?:se|au|vaud|faud|pour|dev|fe|obtiend|viend|tiend|vend|prend|rend"
            r"|perd|attend|voud|ver|rece|paie|paye|i|sau|mett|permett|suffi|di|fini|parti|choisi"
            r"|conclu|\S*[^\W\d_](?:[ntlrsvhgcpm]|qu|gu)e)rai(?:t|ent"
            r"|s)(?<!esperait)(?<!preferait)(?<!considerait)(?<!recuperait)(?<!operait)(?<!gerait)"
            r"|(?:se|au|vaud|faud|obtiend|trouve)rions"
            # what others say
            r"|selon(?! (?:l'énoncé|nos|mes|le calcul|les (?:calculs|données)|la (?:formule"
            r"|règle)))|d'après(?! (?:l'énoncé|nos|mes|ce qui|le (?:calcul|théorème|texte"
            r"|problème)|les (?:calculs|données)|la (?:formule|règle|consigne|question)))"
            r"|à en croire|prétendu\S*|on (?:dit|raconte|prétend|croit|pense|lit) qu\S+"
            r"|entend dire|(?:certains|beaucoup|quelqu'un|d'aucuns|plusieurs|les gens"
            r"|tout le monde) (?:\S+ ){0,2}?(?:di|répond|trouv|pens|croi|croy|obtien|écri|prétend"
            r"|affirm|soutien|avanc|propos|parl)\S*|(?:amie?|voisine?|frère|sœur|cousine?|camarade"
            r"|collègue|copain|copine|père|mère|élève|étudiante?|prof|professeur|manuel|livre"
            r"|corrigé|calculatrice|internet|site|auteur|ordinateur|journal|oncle"
            r"|tante)s? (?:\S+ ){0,3}?(?:dit|disent|prétend\S*|affirm\S+|soutien\S+|pens\S+"
            r"|croi\S+|répon(?:d|dent|du|dait)|indiqu(?:e|ent)|annonc\S+|affich\S+|propos\S+"
            r"|a (?:trouvé|obtenu|écrit|noté|calculé)|trouv(?:e|ent)|obtien\S+|écri\S+|parie)"
            r"|(?:manuel|livre|corrigé|calculatrice|site|solutionnaire) (?:\S+ )?donn(?:e|ait)"
            r"|(?<!je\s)(?<!j')(?<!on\s)(?<!nous\s)(?<!vous\s)(?<!énoncé\s)(?:pense|croit|prétend"
            r"|affirme|soutient|dit|jure|assure|estime|suppose|imagine|déclare|maintient|annonce"
            r"|parie|soupçonne|se figure)(?:nt)? (?:à tort |donc |pourtant )?qu(?:e|'\S+)|rumeur"
            r"|bruit court|aux? dires? d\S+|de l'avis d\S+|(?<!je\s)réponse (?:de|du|d'"
            r"|des) (?:paul|mon|ma|son|sa|livre|manuel|corrigé)(?: \S+)?|(?:les autres|la plupart"
            r"|la majorité|l'intelligence artificielle|l'ia)(?: \S+){0,2} (?:ont|a|di\S+|répon\S+"
            r"|trouv\S+)|(?:est|était|ai) (?:\S+ )?(?:écrit|imprimé|noté) $|(?:m'a|nous a"
            r"|m'ont) (?:\S+ )?(?:soufflé|dit|répondu|assuré|juré)|sur internet|avant correction"
            r"|(?<!je\s)(?:répond(?:ent)?|a répondu|ont répondu) $|(?:donnée|proposée|fournie"
            r"|trouvée|annoncée) par|on lit|(?<!il\s)est (?:sûre?|certaine?) qu\S+|internaute"
            r"|s'obstine|persiste|s'entête|cité?e?|mentionné?e?"
            # a try before
            r"|premier temps|tentative|cru trouver|tenez pas compte|veuillez ignorer"
            r"|en (?:vérifiant|testant|essayant)|(?:autre|ancien|ancienne) (?:exercice|problème"
            r"|énoncé|valeur|question)|exemple d\S+|problème semblable|(?:question|exercice"
            r"|problème) (?:précédente?|voisine?|semblable|suivante?)|failli|(?:j'"
            r"|nous )?all(?:ais|ait|ions) (?:répondre|dire|écrire)|tentée?s? de|tout d'abord"
            r"|(?:ancienne|précédente|ancien|précédent) (?:réponse|résultat|calcul)|(?:réponse"
            r"|résultat|calcul) (?:précédente?|antérieure?|initiale?)|premi(?:er|ère)s? (?:essai"
            r"|calcul|idée|réponse|tentative|impression|intuition|résultat|réflexe|jet|estimation"
            r"|version|réaction)|(?:j'ai|j'avais|avons|avait) (?:d'abord|cru|initialement"
            r"|au départ|au début|pensé)|(?:pensai|croyai|supposai|imaginai)[st]"
            r"|j'avais (?:\S+ )?(?:trouvé|écrit|noté|obtenu|mis|répondu|calculé)|brouillon|coquille"
            # a bound, or a number of something else
            r"|(?:au[ -]|en[ -]|là[ -])?dess?ous (?:de|du|des) (?:\S+ )?$|rapproche(?:nt)? de $"
            r"|tend(?:ent)? vers $|(?:major|minor|born)\S+(?: par)? $|bas mot|à tout le moins"
            r"|(?:plus|moins) \S+ que $|(?:deux|trois|quatre) fois $|(?:étape|somme|résultat|total"
            r"|calcul)s? (?:partielle?|intermédiaire)s?|plutôt # que $|numéro (?:\S+ ){1,4}?est $"
            r"|(?:plus|moins|davantage) (?:grande?s? |petite?s? )?(?:de|que|d'\S+) $"
            r"|sous(?: \S+ \S+ des?)? $|en[ -]dessous (?:de|du|des) (?:\S+ )?$|au[ -]dessus (?:de"
            r"|du|des) (?:\S+ )?$|(?:au[ -]delà|en[ -]deçà) (?:de|du|des) $|(?:inférieure?"
            r"|supérieure?)s? (?:\S+ ){0,4}?à $|plafonn\S+ à $|(?:dépass|excèd|avoisin|frôl"
            r"|approch)(?:e|ent|er|era|ait)(?: pas)?(?: de)? $|(?:atteint|atteindra) (?:pas"
            r"|presque) (?:\S+ )?$|(?:proche|près|voisine?|autour|multiple|diviseur|moitié|tiers"
            r"|quart|double|triple|carré|opposé|inverse|racine) de $|entre #(?: [^\s\d]+)? et $"
            r"|presque $|jusqu'à $|au (?:moins|plus|minimum|maximum|mieux|pire) $|de # à $"
            r"|(?:exercice|problème|page|numéro|n°|chapitre|figure|leçon|porte le numéro) $"
        ),
        after=(
            r"^ ?(?:(?!(?:qui|que|dont|où|et|car|soit|donc|puisque)\b)[^\s,;:]+ ){0,2}?(?:(?:est"
            r"|était|serait|sont|semble|paraît|reste) (?:\S+ ){0,2}?(?:faux|fausses?|incorrecte?s?"
            r"|erronée?s?|impossible|absurde|exclue?s?|(?:à )?(?:exclure|écarter|rejeter|éliminer"
            r"|oublier|proscrire)|une? (?:erreur|faute|piège|borne|estimation|possibilité"
            r"|hypothèse|donnée|coquille|leurre)|la mauvaise|mauvaise?|inexacte?s?|trop (?:grande?"
            r"|petite?|peu|élevée?|faible)|possible|plausible|envisageable|probable|douteux"
            r"|incertaine?|incompatible|mon premier|ma première|contradictoire|hors de question"
            r"|(?:le|la) (?:nombre|quantité|prix|somme|total) (?:\S+ ){1,4}?départ)|(?:me "
            r"|nous )?(?:semblait|paraissait)|contredit|échoue|viole|n(?:e|'est|'était|'a|'ont"
            r"|'a\S+) (?:\S+ ){0,3}?(?:pas|plus|ni|guère|rien|aucune?|jamais|être)|n'est qu\S+"
            r"|ne (?:peut|saurait))|^ ?(?:[^\s,;:]+ ?){0,2},? ?\(?(?:faux|fausse|incorrect|non"
            r"|à (?:vérifier|exclure|revoir)|sous toutes réserves)\)?$|^ ?: (?:non|faux)"
            r"|par erreur|\S+ (?:reste|revient|serait|est) (?:à )?(?:se tromper|mentir|trompeur)"
            r"|doit être (?:rejet|écart|exclu|élimin)\S+|est à bannir|contradiction|sans plus$"
            r"|tant qu\S+|lorsque [a-z] est|quand [a-z] est|mais (?:la|le|les) (?:fin|suite|reste"
            r"|total|réponse|prix)(?: \S+)? (?:manque|est inconnue?|reste)|pas (?:le|la|les) \S+$"
            r"|,? non (?:celui|celle)|il faudrait (?:encore|aussi)|pour peu|dès lors|du moins si"
            r"|avant celle-ci|mais (?:\S+ ){0,6}?(?:main au feu|supposition|hypothèse|plausible"
            r"|cloche|recommencer|trop|prouver|vérifier|peux me)|a (?:crié|dit|affirmé|répondu"
            r"|écrit)|eût|^ ?(?:[^\s,;:]+ ?){0,2},? ?(?:c'est|ce n'est|ce serait|ça"
            r"|cela) (?:\S+ ){0,2}?(?:trop|faux|pas|impossible|absurde|exclu)|ce qui (?:est|était"
            r"|serait|semble|paraît) (?:\S+ )?(?:faux|absurde|impossible|exclu|incorrect|erroné"
            r"|trop|incompatible|contradictoire|douteux)|ce qui (?:n'est|ne|contredit)|à tort"
            r"|(?:est|c'est) (?:faux|impossible|absurde|exclu|hors de question|une erreur)$"
            r"|n'a (?:pas|aucun) (?:de )?sens|^ ?(?:\S+ )?ou (?:bien |alors |peut-être |même )?#"
            r"|^ ?,? ?non,? #|^ ?(?:\S+ )?(?:,? ?voire|ou) (?:plus|moins|davantage)"
            r"|^ ?(?:\S+ )?,? ?(?:au (?:moins|plus|minimum|maximum|mieux|pire)|tout au plus"
            r"|grand maximum)|de (?:plus|moins) que (?:la|le|prévu)|peut[ -]être|probablement"
            r"|sans doute|à moins|sauf (?:si|erreur|mention|s'il)|sinon|pourvu|à condition"
            r"|dans le cas|(?:seulement|uniquement|que) (?:si|s'il|dans|pour)|pour certain\S+"
            r"|si et seulement|je (?:crois|suppose|pense|dirais|devine|présume|parie)|me semble"
            r"|si je ne|faute de mieux|à vue de nez|au hasard|selon(?! l'énoncé)"
            r"|d'après(?! l'énoncé)|soit on ne|(?:dit|prétend|affirme|croit|pense|assure"
            r"|soutient)(?:-(?:il|elle|on))?(?: (?:mon|ma|mes|le|la|un|une) \S+)?$|comme (?:le |l'"
            r"|je le )?(?:prétend|dit|croit|croyais|affirme|soutient|pense|pensais)\S*|(?:mais|or"
            r"|cependant|pourtant|toutefois|seulement|sauf que),? (?:\S+ ){0,7}?(?:tort|faux"
            r"|fausse|incorrecte?|trompe\S*|trompé\S*|doute|échoue\S*|contredit|impossible|absurde"
            r"|erreur|inconnue?|ignore|garantie|(?:manque|reste) (?:une?|à|la|le|des)|(?:pas|rien"
            r"|guère) (?:\S+ ){0,3}?(?:sûre?|certaine?|juste|correcte?|bonne?|exacte?|vrai"
            r"|demandée?|demande|question|réponse|savoir|combien|pourquoi|sait|sais|dit|possible"
            r"|su|pu|trouvé|réussi|convaincue?|suffi\S*|en crois|cela|ça|celui\S*|celle\S*|la|le"
            r"|les|lui|donnée?|précisée?|connue?|permet|sert|tient|convient|marche|colle|va"
            r"|correspond)|(?:rien|personne|aucune?) (?:\S+ )?n(?:e|'\S+)"
            r"|ne (?:\S+ ){0,2}?(?:convient|marche|colle|va|tient|vérifie|satisfait|correspond"
            r"|fonctionne|dit|sert|demande|répond|permet|passe|précise|donne|sait|sais|suffit"
            r"|crois|peux|peut|parvien\S+|voi[st]) (?:\S+ )?(?:pas|rien|guère|plus)|n'(?:arrive|y"
            r"|ai|en|indique|est) (?:\S+ ){0,3}?(?:pas|rien|plus) (?:à|su|pu|trouvé|réussi|la|ce"
            r"|celui|combien|arrive\S*|crois|suis|le|une?|sûre?|de)|(?:question|énoncé|exercice"
            r"|problème|on) (?:\S+ )?(?:porte|demande|concerne|cherche)|sans (?:garantie|certitude"
            r"|conviction|réponse))|,? pas (?:celui|celle|ce que|la réponse)|mais (?:ils|elles|il"
            r"|c'est|ce|je|cela|elle) (?:\S+ ){0,2}?(?:tort|faux|trompe\S*|doute)|c'est faux"
            r"|je crois pas|figur\S+ dans|ci-dessus$|sans (?:le |la |les |y )?(?:résoudre|trouver"
            r"|conclure|aboutir|répondre|arriver|réponse|succès)|c'est tout|n'a pas de (?:solution"
            r"|réponse)|reste sans réponse|je ne (?:sais|peux|parviens)|je n'(?:ai|arrive) pas"
        ),
        says=(
            r"di(?:t|sent)|préten(?:d|dent)|pens(?:e|ent)(?! pas)|croi(?:t|ent)|(?<!j')affirm(?:e"
            r"|ent)|pensais|croyais|aurait|soutien(?:t|nent)"
        ),
        so=(
            r"donc|(?<!,\s)alors(?! que)|ainsi|mais|par conséquent|car|parce que|puisque|d'où"
            r"|c'est pourquoi|cependant|toutefois|pourtant|or|en (?:fait|réalité)|à savoir"
        ),
        certain=(
            r"(?:aucun|nul|pas de|pas le moindre|hors de|ne fait (?:aucun|pas de|pas l'ombre d'un)"
            r"|sans (?:aucun|le moindre|nul)) (?:\S+ )?doute(?: possible)?|sans l'ombre d'un doute"
            r"|sans (?:aucun )?doute possible|sans (?:erreur|peine|se tromper|hésit\S+"
            r"|rien oublier)|(?:pas|rien|guère) (?:\S+ ){0,2}?(?:difficile|dur|compliqué"
            r"|surprenant|étonnant|évident|problème|douter|impossible|faux|longtemps|nier"
            r"|contester|hésite|hésiter)|rien d'autre que|nulle? autre que|n'est autre que"
            r"|pas autre chose que|pas seulement|non seulement|indubitablement|sans plus attendre"
            r"|pas plus (?:de|d'une?)(?! #)|pas moins (?:de|d'une?)(?! #)|n(?:e |')(?:(?!pas "
            r"|\S+rai(?:t|ent) )\S+ ){1,4}?que(?= ?[\d$*(\\]| ?$)|n'hésit\S+ pas|n'(?:oubli"
            r"|ignor)\S+ pas|(?:seule?s?|unique) (?:\S+ )?possible|(?<!,\s),? ?(?:et )?ni (?:plus"
            r"|moins),? ni (?:plus|moins)(?: que(?: #\s+:)?)?|(?:personne|nul|on) ne (?:peut"
            r"|saurait|pourra) (?:\S+ )?(?:nier|contester|douter)|(?:personne|nul"
            r"|on) ne (?:contest|nie|doute|met)\S*|impossible de se tromper|(?:toute"
            r"|aucune) autre [^.]{0,40}|(?:mon|ma|le|la|mes|les) \S+ (?:a|avait|avaient"
            r"|ont) (?:donc |bien )?tort$|comme (?:prévu|attendu|annoncé|voulu|demandé"
            r"|on (?:le )?voit)|comme (?:le|la|les) (?:confirme|montre|vérifie|prouve"
            r"|demande)\S*(?: \S+){0,3}|et rien d'autre|j'en suis (?:\S+ )?(?:sûre?|certaine?"
            r"|convaincue?)|et (?:il|elle|ils|elles) (?:a|ont) (?:\S+ )?raison"
            r"|et c'est (?:bien )?(?:vrai|juste|exact|correct|le cas)|contrairement à (?:ce qu(?:e"
            r"|'\S+) )?[^,:;\d]{1,40}[,:]|(?:maximum|minimum) (?:possible|est|vaut|cherché)"
            r"|(?<!,\s)qui (?:ne \S+|n'\S+) pas(?! (?:la|le|une?|juste|bon\S*|correct\S*|exact\S*"
            r"|possible|vrai\S*))|ce qui (?:n'est pas|n'a rien de|est|semble"
            r"|paraît) (?:\S+ )?(?:surprenant|étonnant|correct|juste|exact|raisonnable|logique"
            r"|normal|cohérent|prévu)|(?:l'|bien )doute pas|ne doute (?:pas|guère|point)"
            r"|autrement dit|plus (?:simple|facile) qu\S+ (?:n'y |ne (?:le )?)\S+|(?:même si"
            r"|bien que|quoi qu\S+|puisque (?:rien|personne|aucun\S*)|malgré) [^,:;\d]{1,50}$"
            r"|n'est-ce pas(?: évident)?|et (?:rien|aucun\S*|personne) (?:\S+ )?(?:ne"
            r"|n'\S+)[^,:;\d]{0,40}$|(?:sans (?:oublier|compter)|sauf(?! erreur)|après avoir"
            r"|plutôt qu\S+|au lieu d\S+|quoi qu'\S+|n'en déplaise|on (?:écarte|élimine|exclut"
            r"|rejette|oublie)) [^,:;]{1,40} ?[,:]|comme (?:le |l')(?:dit|indique|affirme"
            r"|précise) [^,:;\d]{1,30},|mais (?:ce n'était pas|ce n'est pas"
            r"|c'était) (?:\S+ )?(?:facile|simple|difficile|long)|mais (?:le calcul"
            r"|la démonstration) est \S+|^,? ?(?:à savoir|c'est-à-dire)|même si [^,:;\d]{1,50}[,:]"
            r"|qu'on le veuille ou non"
        ),
        sums=(
            r"on|nous|vous|tu|je|l'on|\S*(?:additionn|ajout|multipl|soustra|calcul|compt|désign"
            r"|représent)\S*"
        ),
        other=(
            r"(?:(?:et|mais|donc|soit|c'est-à-dire|ou encore|qui est|qui fait|(?:ce )?qui (?:est"
            r"|fait|donne|reste|représente)|un nombre|compris|c'est|bien|beaucoup|un peu|nettement"
            r"|largement|toujours),? ){0,4}(?:(?:non|non pas|(?:certainement |surtout |sûrement "
            r"|absolument )?pas|plutôt que(?: de)?|au lieu d\S+|à la place de|et non"
            r"|contrairement à) (?:(?:de|à|les|des) )?#|(?:plus|moins|davantage|mieux) (?:grande? "
            r"|petite? |élevée? )?(?:que|de) (?:les |ses )?#|entre # et #|(?:supérieure?"
            r"|inférieure?)s? à #|(?:qui )?dépasse #|en[ -]dessous de #|au[ -]dessus de #"
            r"|# (?:[^\s\d,;:.]+ )?(?:de |en )?(?:plus|moins)(?: (?:que|de) #)?)|(?:donc|soit"
            r"|qui est|c'est-à-dire|autrement dit) (?:au (?:moins|plus)|(?:le|la|les) (?:double"
            r"|triple|moitié|tiers|quart|carré) (?:de|des)|(?:deux|trois|quatre|\d+) fois) #"
            r"|,? contre #|(?:car|puisque|parce que|vu que) # (?:[^\s\d,;:.]+ )?(?:(?:est|serait"
            r"|était) (?:\S+ )?(?:faux|impossible|exclu|incorrect|absurde|trop (?:grand|petit))"
            r"|ne (?:\S+ ){1,3}?pas|n'est pas)"
        ),
        retracts=(
            r"(?:[^\s.\d]{2,15}[,!:…]? ){0,3}?(?:(?:c'est|c'était|ceci est|cela est|ça, c'est"
            r"|(?:cet?|cette|mon|ma|la|le) \S+ (?:est|était|semble)) (?:\S+ ){0,2}?(?:faux|fausse"
            r"|impossible|absurde|incorrecte?|erronée?|mauvaise?|exclue?|inexacte?"
            r"|(?:une? )?(?:erreur|coquille|faute|hypothèse|piège)|trop (?:grande?|petite?|peu)"
            r"|contradictoire|incompatible|à (?:vérifier|rejeter|écarter|revoir))|(?:c'est|ce|cela"
            r"|ceci|ça|il|elle|(?:cet?|cette|la|le|mon|ma) \S+) (?:ne |n')(?:\S+ ){0,4}?(?:juste"
            r"|correcte?|bonne?|exacte?|vraie?|possible|le cas|sûre?|certaine?|ça|cela|la réponse"
            r"|convient|colle|marche|tient|va|vérifie|correspond|satisfait|fonctionne)(?: pas.*)?"
            r"|(?:cela|ceci|ça|ce résultat|cette réponse|la vérification) (?:contredit|échoue)"
            r"|(?:je|j'en|j'ai|j'avais) (?:\S+ ){0,2}?(?:retire|reviens|annule|doute|trompée?|tort"
            r"|rétracte|commis|fait|corrige|ignore|hésite|abandonne|suis (?:pas|trompée?))"
            r"|je (?:ne |n'en )(?:\S+ ){0,2}?(?:sais|peux|parviens|suis|crois|pense|vois"
            r"|garantis)(?: \S+)? ?pas|je (?:ne |n'en )(?:sais|peux|parviens|suis|crois|pense|vois"
            r"|garantis)|je n'(?:ai|arrive) (?:pas|rien|aucun)|j'ignore|oublie[zr]?|ignore[zr]?"
            r"|ne tenez pas|erreur|on ne (?:sait|connaît|dispose|peut (?:pas |rien "
            r"|donc )*(?:savoir|dire|conclure|trancher|répondre|déterminer|être))|(?:rien"
            r"|personne) n(?:e|'\S+)|nul ne|impossible d|reste à savoir|la (?:question|suite"
            r"|réponse) (?:reste|demeure|m'échappe|est (?:inconnue|ailleurs|autre))|l'énoncé ne"
            r"|à vérifier|sous réserve|sans garantie|mais rien|quelque chose (?:cloche|ne)"
            r"|annule[zr]?|il (?:doit )?y a(?:voir)? (?:\S+ )?(?:erreur|faute)"
            r"|je (?:\S+ )?(?:recommence|refais|recalcule)|(?:je )?(?:peux|pourrais) me tromper"
            r"|c'est une (?:\S+ )?(?:supposition|hypothèse|estimation)"
            r"|(?<!facile,\s)(?<!evident,\s)non ?$|faux$|[^.\d]{0,30} (?:illisible|échoue"
            r"|je ne l'ai pas)|[^.\d]{0,30} (?:m'est|est|reste|demeure) inconnue?)"
        ),
        turns=(
            r"(?:(?:faux|fausse|coquille|erreur|bêtise|impossible|exclue?|absurde|erronée?"
            r"|incorrecte?|inexacte?|tort|trompent?|trompée?s?|mauvaise?|trop (?:petite?|grande?"
            r"|peu)|raison|confirme)[^,:;]{0,40}?|(?:pas|plus|rien|personne|aucune?|jamais|ni"
            r"|nulle?|sans|semble|paraît|erreur|chaque|oubliez|ignorez"
            r"|avec) [^,:;]{0,60}?) ?[,:;] ?(?:donc |alors |ainsi |finalement )?(?:la|le|notre|ma"
            r"|mon|ils?|elles?|on|nous|c'est|ce sont|cela|ça|l'\S+)"
        ),
        frames=(
            r"si|s'ils?|selon|sauf erreur|d'après|peut[ -]être|à moins|pourvu|à condition|au cas"
            r"|supposons|admettons|en supposant|à supposer|soit|tant que|sûre?s?|certaine?s?"
            r"|sai[st]|savoir|ignore|hésit\S+|doute|(?:dire|répondre|affirmer|prétendre|penser"
            r"|croire) ?[,:]|remise|\S+rai(?:t|ent)(?! (?:faux|une erreur|absurde))"
        ),
        confirms=(
            r"(?:il|elle|ils|elles) (?:a|ont) (?:\S+ ){0,3}?raison|(?:et|ce qui|,) (?:c'est|est"
            r"|ceci est|cela est) (?:bien |tout à fait )?(?:vrai|juste|exact|correct|le cas)"
            r"|et \S+ a raison|et je (?:suis d'accord|confirme|le confirme)"
        ),
    ),
    "es": DenialWords(
        before=(
            r"fals[oa]|incorrect[oa]|equivocad[oa]|errón[e][oa]|errad[oa]|mala|imposible"
            r"|improbable|dudos[oa]|inciert[oa]|"
            r"(?:no|tampoco) (?:\S+ ){0,2}?(?:ciert[oa]|verdad|correct[oa]|posible|el caso"
            r"|segur[oa]|clar[oa])|"
            r"no (?:creo|pienso|digo|considero|opino|diría|sé|sabemos|parece|se puede decir"
            r"|podemos decir|acepto|significa)|"
            r"error|mentira|mito|equivocación|dudo|duda(?:n|mos)?|niego|niega\S*|rechaz\S+"
            r"|descart\S+|tal vez|quizás?|acaso|posiblemente|"
            r"probablemente|podría\S*|pudiera|puede(?: que| ser)?|a lo mejor|parece\S*"
            r"|supuestamente|aparentemente|adivin\S+|"
            r"nadie|ningún (?:cálculo|alumno)|nada|de lo contrario|si no|en otro caso"
            r"|en caso contrario|a menos que|salvo|excepto|"
            r"siempre que|con tal de|a no ser que|supongamos|suponiendo|supón|asumiendo|ni"
            r"|en lugar de|en vez de|distint[oa] (?:de|a)|"
            r"diferente (?:de|a)|difiere de|cualquier(?:a| cosa| número| valor)? (?:menos|excepto"
            r"|salvo)|otr[oa] que no sea|"
            r"de ninguna manera|de ningún modo|en ningún caso|bajo ninguna circunstancia|jamás"
            r"|nunca|lejos de|o bien|según|"
            r"se dice que|dicen que|^ ?no"
        ),
        after=(
            r"^\S* ?(?:es|era|sería|está|no|son) (?:\S+ ){0,2}?(?:fals[oa]|incorrect[oa]"
            r"|equivocad[oa]|imposible|mal|un error|correct[oa]|errón\S+|"
            r"la|una?|puede)|tal vez|quizás?|probablemente|posiblemente|a menos que|salvo que"
            r"|a no ser que|siempre que|de lo contrario|"
            r"pero (?:no|se|est\S+|es|eso) (?:\S+ ){0,2}?(?:equivoca\S*|segur[oa]|fals[oa]"
            r"|ciert[oa]|mal|estoy|de acuerdo)|solo si|sólo si"
        ),
        says=(
            r"dice|dicen|dijo|cree|creen|piensa|piensan|afirma\S*|sostiene\S*|opina\S*|creía"
            r"|pensaba|asegura\S*"
        ),
        so=(
            "así que|por (?:lo )?tanto|por eso|entonces|luego|sino|pero|porque|ya que|pues"
            "|por consiguiente|sin embargo|de modo que|en consecuencia"
        ),
        certain=(
            r"(?:no (?:hay|cabe|tengo) (?:la menor |ninguna )?|sin (?:la menor |ninguna "
            r"|lugar a )?)dudas?(?: alguna)?|"
            r"no (?:\S+ ){0,2}?(?:difícil|complicado|sorprend\S+|problema|extraña\S*|imposible"
            r"|falso|dudar|dudo|duda|niega)|"
            r"no (?:es )?otr[oa] que|nada más que|no solo|no sólo|indudablemente|no queda más de"
            r"|no más de|no menos de|"
            r"^ ?no,"
        ),
        sums=r"los|las|sumamos|se|uno|\S*(?:sum|multiplic|rest|calcul|cont|divid)\S*(?:mos|s|o)",
    ),
    "pt": DenialWords(
        before=(
            r"fals[oa]|incorret[oa]|errad[oa]|equivocad[oa]|errône[oa]|impossível|improvável"
            r"|duvidos[oa]|incert[oa]|"
            r"não (?:\S+ ){0,2}?(?:verdade|cert[oa]|corret[oa]|possível|o caso|clar[oa])|erro"
            r"|mentira|mito|engano|"
            r"não (?:acho|creio|penso|acredito|digo|diria|sei|parece|podemos dizer|se pode dizer)"
            r"|duvid\S+|nego|nega\S*|rejeit\S+|"
            r"talvez|quiçá|possivelmente|provavelmente|poderia\S*|pode(?: ser)?|parece\S*"
            r"|supostamente|aparentemente|chuto|adivinh\S+|"
            r"ninguém|nada|caso contrário|senão|a menos que|a não ser que|salvo|exceto|desde que"
            r"|contanto que|suponha\S*|supondo|"
            r"nem|em vez de|ao invés de|no lugar de|diferente de|distint[oa] de|difere de"
            r"|tudo menos|qualquer coisa (?:menos|exceto)|"
            r"de jeito nenhum|de modo algum|em hipótese alguma|em caso algum|jamais|nunca"
            r"|longe de|ou$|segundo|diz-se que|dizem que"
        ),
        after=(
            r"^\S* ?(?:é|era|seria|está|não|são) (?:\S+ ){0,2}?(?:fals[oa]|incorret[oa]|errad[oa]"
            r"|impossível|um erro|cert[oa]|a|uma?|pode)|talvez|"
            r"provavelmente|a menos que|a não ser que|caso contrário|desde que|mas (?:não|est\S+"
            r"|é|isso) (?:\S+ ){0,2}?(?:errad\S+|fals[oa]|cert\S+|tenho)|"
            r"só se|somente se"
        ),
        says=r"diz|dizem|disse\S*|acha|acham|acredita\S*|pensa|pensam|afirma\S*|achava|pensava",
        so=(
            "então|portanto|logo|por isso|mas|porque|pois|assim|por conseguinte|porém|todavia"
            "|de modo que"
        ),
        certain=(
            r"(?:não (?:há|tenho|resta)(?: nenhuma)?|sem(?: nenhuma| qualquer)?"
            r"|fora de) (?:sombra de )?dúvidas?|não (?:\S+ ){0,2}?(?:difícil|complicado|"
            r"surpreend\S+|problema|impossível|falso|duvid\S+)|não é outr[oa] senão|nada além de"
            r"|não (?:só|apenas)|mais nada menos|^ ?não,"
        ),
        sums=r"nós|se|\S*(?:som|multiplic|subtra|calcul|cont)\S*mos",
    ),
    "it": DenialWords(
        before=(
            r"fals[oa]|sbagliat[oa]|errat[oa]|scorrett[oa]|impossibile|improbabile|dubbi[oa]"
            r"|incert[oa]|"
            r"non (?:\S+ ){0,2}?(?:vero|corrett[oa]|giust[oa]|possibile|il caso|sicur[oa]"
            r"|cert[oa])|errore|bugia|sbaglio|mito|"
            r"non (?:credo|penso|dico|direi|so|sembra|ritengo|possiamo dire|si può dire)|dubito"
            r"|dubit\S+|nego|nega\S*|rifiut\S+|"
            r"forse|magari|possibilmente|probabilmente|potrebbe\S*|può (?:darsi|essere)|sembra\S*"
            r"|presumibilmente|apparentemente|indovin\S+|"
            r"nessuno|niente|altrimenti|in caso contrario|a meno che|salvo|eccetto|tranne|purché"
            r"|a patto che|supponi\S*|supponiamo|supponendo|"
            r"né|invece di|invece che|piuttosto che|al posto di|divers[oa] da|differisce da"
            r"|in nessun modo|in nessun caso|"
            r"mai|lontan[oa] da|oppure$|secondo|si dice che|dicono che"
        ),
        after=(
            r"^\S* ?(?:è|era|sarebbe|non|sono) (?:\S+ ){0,2}?(?:fals[oa]|sbagliat[oa]|errat[oa]"
            r"|impossibile|un errore|corrett[oa]|la|una?|può)|forse|"
            r"probabilmente|a meno che|altrimenti|purché|ma (?:non|si|è|sono"
            r"|hanno) (?:\S+ ){0,2}?(?:sbaglia\S*|fals[oa]|vero|sicur\S*|torto)|ma sbagliano"
            r"|solo se"
        ),
        says=(
            r"dice|dicono|disse|crede|credono|pensa|pensano|afferma\S*|sostiene\S*|credevo"
            r"|pensavo"
        ),
        so="quindi|dunque|perciò|pertanto|allora|ma|bensì|perché|poiché|così|tuttavia|però",
        certain=(
            r"(?:non (?:c'è|ci sono|ho|vi è)(?: alcun)?|senza(?: alcun)?|fuori di) dubbi?o?"
            r"|non (?:\S+ ){0,2}?(?:difficile|complicato|sorprend\S+|"
            r"problema|impossibile|falso|dubit\S+)|nient'altro che|non solo|indubbiamente|^ ?no,"
        ),
        sums=r"li|le|si|\S*(?:somm|moltiplic|sottra|calcol|cont)\S*mo",
    ),
    "ru": DenialWords(
        before=(
            r"неверно|неправда|неправильно|неправильн\S+|неверн\S+|ошибочн\S+|ложн\S+|ложь"
            r"|ошибк\S+|невозможно|немыслимо|"
            r"маловероятно|сомнительно|неясно|неизвестно|сомнева\S+|отрица\S+|отверга\S+"
            r"|исключа\S+|возможно|может быть|вероятно|"
            r"наверное|пожалуй|видимо|по-видимому|кажется|похоже|якобы|предположительно|мо(?:г"
            r"|жет|гл[ао]) бы|может|вряд ли|едва ли|"
            r"не (?:думаю|считаю|верю|уверен\S*|скажу|говорю|согласен|согласна|знаю|знаем|факт"
            r"|так|правда|верно)|нельзя (?:сказать|утверждать)|"
            r"угадыва\S+|никто|ничто|ни|никогда|никак|иначе|в противном случае|если только"
            r"|если не|разве что|при условии|"
            r"предположим|допустим|положим|пусть|либо|вместо|отлича\S+|отличн\S+ от|кроме|помимо"
            r"|по словам|по мнению|говорят|"
            r"ни в коем случае|далек\S* от|отнюдь|не может"
        ),
        after=(
            r"^\S* ?(?:—|-|–|это)? ?(?:неверн\S*|неправильн\S*|ошибк\S+|ложь|не (?:ответ|может"
            r"|верн\S+|подходит|правильн\S+|так))|возможно|может быть|"
            r"вероятно|наверное|если только|при условии|иначе|в противном случае|но (?:это|они|он"
            r"|я) (?:\S+ ){0,2}?(?:невер\S+|ошиб\S+|не)|разве что|если"
        ),
        says=(
            r"говор(?:ит|ят)|сказал\S*|дума(?:ет|ют)|считает|считают|утвержда(?:ет|ют)"
            r"|полага(?:ет|ют)|думал\S*|считал\S*"
        ),
        so="поэтому|значит|следовательно|итак|а|но|однако|потому|так что|отсюда|тогда|ведь|так как",
        certain=(
            r"(?:нет|без|вне)(?: никаких| всяких| всякого)? сомнени\S+|несомненно|безошибочно"
            r"|нетрудно|не (?:трудно|сложно|удивительно|сомнева\S+)|"
            r"не подлежит сомнению|не что иное|не кто иной|не только|не больше|не меньше|^ ?нет,"
            r"|не ошиб\S+|нельзя (?:не|отрицать)"
        ),
        sums=r"мы|сложить|сложим|умножить|умножим|вычесть|вычтем|прибавить|посчитать|разделить",
    ),
    "zh": DenialWords(
        before=(
            r"[错錯](?:误|誤)?(?:的)?(?:答案|[结結]果|[选選][项項])|(?<!不)可能|也[许許]|或[许許]|大概|恐怕|似乎|好像"
            r"|[应應][该該]是?(?:不|吧)|"
            r"[据據][说說]|[怀懷]疑|否[认認]|不(?:相信|[认認][为為]|[觉覺]得|[确確]定|同意|[见見]得|一定|是[说說])|未必|[并並]非|[难難]以"
            r"|[无無]法|[没沒]有?(?:人|任何|理由)|"
            r"否[则則]|不然|除非|除了|假[设設定如]|要么|要麼|既不|也不|[与與]其|而不是|不可能|[绝絕]不|[决決]不|不能[说說]|不[对對]|[错錯][误誤]"
            r"|猜|比\d"
        ),
        after=(
            r"^.{0,6}?(?:是[错錯]|不可能|不[对對]|不是(?! ?\d)|不正[确確]|[错錯]了|有[误誤]|不成立"
            r"|不[会會])|除非|否[则則]|也[许許]"
            r"|或[许許]|[吧嗎吗]$|可能[不是]|但(?:那|[这這]|他).{0,4}[错錯不]"
        ),
        says=r"[说說]|[认認][为為]|[觉覺]得|声称|[声聲]稱|[宣][称稱]",
        so="所以|因此|但|而是|故|于是|[从從]而|可[见見]|那[么麼]",
        certain=(
            r"[毫]?[无無][疑]?疑[问問]|不可能[错錯]|不[难難]|[没沒][错錯]|[没沒]有?[疑][问問]|不容置疑|不可否[认認]|不得不"
            r"|我[们們]?[认認][为為]|"
            r"^ ?不[,，]|不[过過]|[没沒][问問][题題]|不外乎|[无無]非"
        ),
        sums="我们|我們|加|乘|[减減]|除以|相",
    ),
    "ja": DenialWords(
        before=(
            r"間違(?:い|え|った)|誤(?:り|った)|たぶん|おそらく|恐らく|多分|もしかすると|もしかしたら|ひょっとすると|かもしれ|らしい|そうでなければ|"
            r"さもなければ|それ以外は|でない限り|と仮定|仮に|決して|もし|場合|疑わしい|疑う"
        ),
        after=(
            r"^[」\"』]?(?:だ|である|です)?(?:と(?!な)(?:いう|は|言|思|考|仮定|主張|信)|のはず(?:が|は)な|はずがな|かもし|かどうか|とは限"
            r"|らしい|以外|でな|ではな|じゃな|は(?:誤|間違|正しくな|答えでは|違))|"
            r"でない限り|かもしれ|わけがな|わけではな|たぶん|おそらく|と思われ|でしょう"
        ),
        so="ので|だから|したがって|従って|よって|ゆえに|しかし|ではなく|だが|ですが|なぜなら",
        certain=(
            r"間違い(?:は)?な[いく]|間違いありません|疑い(?:は|も|の余地)?(?:が|は)?な[いく]|疑いなく|であること(?:は|に)|違いな[いく]|明らか"
            r"|確か|ほかならな|他ならな|いいえ"
        ),
        sums="足|掛|引|割|合計|計算|すると",
    ),
    "ko": DenialWords(
        before=(
            "틀린|잘못된|아마도?|어쩌면|혹시|만약|만일|그렇지 않으면"
            "|아니면|의심|결코|절대|아무도|가정|제외|아닌 한|일 수도"
        ),
        after=(
            "(?:이|가)? ?아니|아닙|아닌|라고 (?:생각|말|주장|믿)|일 (?:수도|리)|틀[리렸린]|잘못"
            "|라는 (?:것은|말은)|인지|가 아닌|지도 모"
        ),
        so="그러므로|따라서|그래서|하지만|그러나|므로|아니라|니까|때문에",
        certain="의심의 여지가? ?없|틀림없|의심할 (?:바|여지) ?없|어렵지 않|다름 ?아닌|물론",
        sums="우리|더하|곱하|빼|나누|합",
    ),
    "nl": DenialWords(
        before=(
            r"fout|foute|onjuist|onjuiste|verkeerde?|onwaar|onmogelijk|onwaarschijnlijk"
            r"|twijfelachtig|onzeker|niet (?:waar|juist|het geval|zeker|mogelijk)|"
            r"klopt niet|vergissing|leugen|(?:denk|geloof|zeg|vind|weet) (?:ik )?niet"
            r"|betwijfel\S*|twijfel\S*|ontken\S*|verwerp\S*|misschien|wellicht|"
            r"mogelijk|waarschijnlijk|vermoedelijk|zou kunnen|kan zijn|lijkt|blijkbaar|gok"
            r"|niemand|niets|anders|zo niet|tenzij|mits|stel|aangenomen|"
            r"noch|in plaats van|behalve|verschilt van|verschillend van|in geen geval|geenszins"
            r"|verre van|ofwel|volgens"
        ),
        after=(
            r"^\S* ?(?:is|was|kan|zou|klopt) (?:\S+ ){0,2}?(?:fout|onjuist|verkeerd|niet"
            r"|onmogelijk|geen)|misschien|waarschijnlijk|tenzij|mits|anders|alleen als"
        ),
        says="zegt|zeggen|beweer[td]\\S*|beweren|denkt|denken|gelooft|geloven|dacht|meent",
        so="dus|daarom|maar|want|omdat|bijgevolg|derhalve|echter",
        certain=(
            r"(?:geen|zonder(?: enige)?) twijfel|ongetwijfeld|niet (?:\S+ ){0,2}?(?:moeilijk"
            r"|lastig|verrassend|onmogelijk|twijfelen)|niets anders dan|niet alleen|geen probleem"
            r"|^ ?nee,"
        ),
        sums=r"we|wij|je|men|\S*(?:optel|tel|vermenigvuldig|aftrek)\S*",
    ),
    "pl": DenialWords(
        before=(
            r"nieprawd\S+|błędn\S+|fałsz\S*|niepoprawn\S+|nieprawidłow\S+|niemożliw\S+"
            r"|mało prawdopodobne|wątpliw\S+|wątpię|błędem|kłamstw\S+|"
            r"nie (?:sądzę|myślę|wierzę|uważam|jestem|wiem|twierdzę|można powiedzieć|jest prawdą)"
            r"|zaprzecza\S+|odrzuca\S+|może|możliwe|być może|"
            r"prawdopodobnie|chyba|pewnie|zapewne|podobno|rzekomo|wydaje się|zgaduj\S+|nikt|nic"
            r"|ani|w przeciwnym razie|inaczej|chyba że|"
            r"pod warunkiem|załóżmy|przypuśćmy|zamiast|różni się od|innego niż|inna niż|oprócz"
            r"|w żadnym wypadku|bynajmniej|albo|według"
        ),
        after=(
            r"^\S* ?(?:to|jest|nie) (?:\S+ ){0,2}?(?:błąd\S*|błędn\S+|nie|fałsz\S*|może|jest"
            r"|niepoprawn\S+)|być może|chyba że|prawdopodobnie|w przeciwnym razie|pod warunkiem"
            r"|jeśli"
        ),
        says="mówi\\S*|twierdz\\S+|myśl[ią]\\S*|uważa\\S*|sądz[ią]\\S*",
        so="więc|zatem|dlatego|ale|lecz|tylko|ponieważ|bo|stąd|jednak",
        certain=(
            r"(?:nie ma|bez|ponad wszelką) wątpliwoś\S+|niewątpliwie|nie (?:jest )?(?:trudno"
            r"|dziwne|sposób)|nic innego jak|nie tylko|^ ?nie,"
        ),
        sums=r"dodamy|pomnożymy|odejmiemy|dodać|\S+my",
    ),
    "uk": DenialWords(
        before=(
            r"неправд\S*|неправильн\S+|невірн\S+|хибн\S+|помилк\S+|помилков\S+|неможливо"
            r"|навряд чи|сумнів\S+|заперечу\S+|можливо|може бути|"
            r"мабуть|напевно|ймовірно|здається|нібито|не (?:думаю|вважаю|вірю|впевнен\S*|знаю"
            r"|так)|ніхто|ні|ані|ніколи|інакше|в іншому випадку|"
            r"якщо тільки|хіба що|за умови|припустимо|нехай|або|замість|відрізня\S+|крім|окрім"
            r"|за словами|кажуть|може|міг би"
        ),
        after=(
            r"^\S* ?(?:—|-|–|це)? ?(?:невірн\S*|неправильн\S*|помилк\S+|не )|можливо|мабуть"
            r"|хіба що|за умови|інакше|якщо"
        ),
        says="каж(?:е|уть)|дума(?:є|ють)|вважа(?:є|ють)|стверджу\\S+",
        so="тому|отже|значить|а|але|однак|бо|так що",
        certain=(
            r"(?:немає|без|поза) (?:жодних |всякого )?сумнів\S*|безсумнівно|неважко|не (?:важко"
            r"|дивно)|не що інше|не тільки|^ ?ні,"
        ),
        sums="ми|додати|додамо|помножити|відняти",
    ),
    "sv": DenialWords(
        before=(
            r"falskt|fel|felaktig\S*|omöjligt|osannolikt|osant|inte (?:sant|rätt|fallet|säker\S*"
            r"|möjligt)|tror inte|tvivlar|förnekar|kanske|möjligen|troligen|förmodligen|sannolikt"
            r"|kan vara|skulle kunna|verkar|ingen|annars|om inte|såvida|förutsatt|antag|varken"
            r"|eller$|i stället för|istället för|förutom|skiljer sig från|annat än|aldrig"
            r"|inte alls|enligt"
        ),
        after=(
            r"^\S* ?(?:är|var|kan|stämmer) (?:\S+ ){0,2}?(?:fel\S*|inte|falskt|omöjligt)|kanske"
            r"|om inte|såvida|annars|förutsatt|bara om"
        ),
        says="säger|påstår|tror|tycker|menar",
        so="så|därför|alltså|men|utan|eftersom|således",
        certain=(
            r"(?:ingen|utan|inget) tvivel|tveklöst|inte (?:\S+ )?(?:svårt|konstigt|bara)"
            r"|ingenting annat än|^ ?nej,"
        ),
        sums="vi|man|adderar|lägger",
    ),
    "cs": DenialWords(
        before=(
            r"nepravd\S*|špatn\S+|chybn\S+|nesprávn\S+|nemožn\S+|není (?:pravda|správn\S+|jist\S+"
            r"|možn\S+)|nemyslím|nevěřím|pochybuji|popírám|možná|snad|asi|pravděpodobně|zřejmě"
            r"|údajně|mohl\S* by|nikdo|nic|ani|jinak|pokud ne|ledaže|za předpokladu"
            r"|předpokládejme|místo|kromě|liší se od|jiná než|nikdy|v žádném případě|buď|podle"
        ),
        after=(
            r"^\S* ?(?:je|není|nemůže) (?:\S+ ){0,2}?(?:špatn\S+|chybn\S+|nesprávn\S+|odpověď|být"
            r"|správn\S+)|možná|ledaže|jinak|pokud|za předpokladu"
        ),
        says="říká|říkají|tvrdí|myslí|věří",
        so="takže|proto|tedy|ale|nýbrž|protože|tudíž",
        certain=(
            r"(?:není|bez|nade vší) pochyb\S*|nepochybně|není (?:\S+ )?(?:těžké|divu)"
            r"|nic jiného než|nejen|^ ?ne,"
        ),
        sums="sečteme|vynásobíme|odečteme|my",
    ),
    "tr": DenialWords(
        before=(
            r"yanlış|hatalı|imkansız|imkânsız|belki|muhtemelen|olasılıkla|galiba|sanırım|sanki"
            r"|kimse|aksi (?:halde|takdirde)|yoksa|eğer|varsayalım|ne|asla|şüpheli|sözde|ya$"
        ),
        after=(
            r"değil|olamaz|olmayabilir|olabilir|yanlış|hatalı|hariç|dışında|diyor|diyorlar"
            r"|sanıyor|iddia|olduğun[ua] (?:\S+ )?(?:yanlış|sanm\S+|düşünm\S+|inanm\S+|şüphe\S*)"
            r"|olduğu (?:yanlış|doğru değil)|mi\b|mı\b|yerine|ise|sürece|farklı"
        ),
        so="bu yüzden|dolayısıyla|o halde|ama|fakat|çünkü|öyleyse|bu nedenle",
        certain=r"şüphe(?:siz| yok)|kuşkusuz|zor değil|başka bir şey değil|hayır,",
        sums="toplarsak|çarparsak|çıkarırsak",
    ),
    "id": DenialWords(
        before=(
            r"salah|keliru|tidak (?:benar|mungkin|betul|yakin)|bukan|mustahil|mungkin|barangkali"
            r"|kemungkinan|sepertinya|tampaknya|ragu|meragukan|menyangkal|tidak (?:berpikir"
            r"|percaya|setuju)|tak seorang pun|jika tidak|kalau tidak|kecuali|selain|asalkan"
            r"|misalkan|andaikan|maupun|daripada|alih-alih|berbeda dari|menurut|konon"
        ),
        after=r"^\S* ?(?:adalah|itu)? ?(?:salah|keliru|bukan|tidak)|mungkin|kecuali|asalkan|jika",
        says="mengatakan|berkata|bilang|mengira|percaya|berpikir|mengklaim",
        so="jadi|maka|oleh karena itu|tetapi|tapi|melainkan|karena|sehingga",
        certain=(
            r"tidak (?:diragukan|ada keraguan|sulit)|tanpa (?:ragu|keraguan)|tak diragukan"
            r"|tidak lain|bukan hanya"
        ),
        sums="kita|menjumlahkan|jumlahkan|mengalikan",
    ),
    "vi": DenialWords(
        before=(
            r"sai|không (?:đúng|phải|thể|chắc|nghĩ|tin|cho rằng)|nhầm|có lẽ|có thể|chắc là"
            r"|hình như|dường như|nghi ngờ|phủ nhận|không ai|nếu không|trừ khi|trừ|ngoại trừ"
            r"|giả sử|thay vì|khác|chưa chắc|cũng không|hoặc$|theo"
        ),
        after=r"là sai|không (?:đúng|phải|thể)|sai|có lẽ|trừ khi|nếu",
        says="nói|bảo|nghĩ|cho rằng|tin rằng",
        so="nên|vì vậy|do đó|vậy|nhưng|mà|bởi vì",
        certain=r"không (?:còn )?(?:nghi ngờ|khó)(?: gì)?|chắc chắn|không gì khác|không chỉ",
        sums="ta|chúng ta|cộng|nhân",
    ),
    "el": DenialWords(
        before=(
            r"λάθος|ψευδές|ψέμα|λανθασμέν\S+|εσφαλμέν\S+|αδύνατο\S*|απίθανο"
            r"|δεν (?:\S+ )?(?:αλήθεια|αληθεύει|πιστεύω|νομίζω|ισχύει|σωστό|σίγουρ\S+)|αμφιβάλλω"
            r"|αρνούμαι|ίσως|μπορεί|πιθανόν|πιθανώς|μάλλον|ενδεχομένως|φαίνεται|κανείς|αλλιώς"
            r"|διαφορετικ\S+|εκτός|υποθέτουμε|ας υποθέσουμε|έστω|ούτε|αντί|σύμφωνα με|ποτέ"
        ),
        after=(
            r"^\S* ?(?:είναι|δεν) (?:\S+ ){0,2}?(?:λάθος|ψευδές|λανθασμέν\S+|είναι|μπορεί)|ίσως"
            r"|εκτός αν|αλλιώς|αν"
        ),
        says="λέει|λένε|πιστεύει|πιστεύουν|νομίζει|νομίζουν|ισχυρίζ\\S+",
        so="άρα|επομένως|οπότε|αλλά|όμως|γιατί|συνεπώς|λοιπόν",
        certain=(
            r"(?:καμία|χωρίς|δεν υπάρχει) (?:καμία )?αμφιβολία|αναμφίβολα|δεν είναι δύσκολο"
            r"|τίποτα άλλο|όχι μόνο"
        ),
        sums="προσθέσουμε|πολλαπλασιάσουμε",
    ),
    "ar": DenialWords(
        before=(
            r"خطأ|خاطئة?|غير (?:صحيحة?|صحيح)|ليس (?:صحيحا|من الصحيح|صحيحًا)|مستحيل|من المستحيل"
            r"|ربما|لعل|قد|من الممكن|من المحتمل|يحتمل|يبدو|أشك|أنكر|لا (?:أظن|أعتقد|أرى)|لا أحد"
            r"|وإلا|إلا إذا|ما لم|بشرط|لنفترض|نفترض|بدلا من|سوى|عدا|باستثناء|يختلف عن|مختلف عن"
            r"|أبدا|ولا|إما|يزعم|بحسب|وفقا ل\S+"
        ),
        after=(
            r"^\S* ?(?:هو |هي )?(?:خطأ|خاطئة?|ليس\S*|غير صحيحة?|مستحيل)|ربما|إلا إذا|وإلا|إذا"
            r"|بشرط"
        ),
        says="يقول\\S*|قال\\S*|يظن\\S*|يعتقد\\S*|يزعم\\S*",
        so="إذن|لذلك|لذا|ولكن|لكن|بل|لأن|وبالتالي|إذا ف\\S+",
        certain=r"لا شك|بلا شك|دون شك|بدون شك|ليس من الصعب|لا غير|ليس سوى",
        sums="جمعنا|ضربنا|طرحنا",
    ),
    "fa": DenialWords(
        before=(
            r"غلط|اشتباه|نادرست|درست نیست|غیرممکن|ناممکن|شاید|احتمالا|ممکن است|به نظر|شک دارم"
            r"|فکر نمی\S+|هیچ ?کس|وگرنه|در غیر این صورت|مگر|به شرطی|فرض کنید|به جای|به جز"
            r"|متفاوت با|هرگز|نه|می‌?گویند"
        ),
        after=r"نیست|غلط|اشتباه|نادرست|شاید|مگر|اگر",
        says="می‌?گوید|فکر می‌?کند|معتقد",
        so="پس|بنابراین|اما|ولی|بلکه|چون|لذا",
        certain=r"بدون شک|بی‌?شک|شکی نیست|سخت نیست",
        sums="جمع|ضرب",
    ),
    "he": DenialWords(
        before=(
            r"שגוי\S*|לא נכון|אינו נכון|לא נכונה|לא ייתכן|בלתי אפשרי|אולי|ייתכן|יתכן|כנראה"
            r"|אפשר ש\S*|נראה|מסופקני|אני מטיל ספק|לא חושב\S*|לא מאמין\S*|אף אחד|אחרת|אלא אם"
            r"|בתנאי|נניח|במקום|מלבד|חוץ מ\S*|שונה מ\S*|לעולם לא|לא|לפי"
        ),
        after=r"שגוי\S*|לא נכו\S+|אינ[והי]\S*|אולי|אלא אם|אחרת|אם",
        says="אומר\\S*|טוענ\\S*|טוען|חושב\\S*|מאמינ\\S*",
        so="לכן|אז|אבל|אלא|כי|על כן|ולכן",
        certain=r"אין (?:כל )?ספק|ללא ספק|בלי ספק|לא קשה|אין זה קשה",
        sums="נחבר|נכפיל",
    ),
    "hi": DenialWords(
        before=(
            r"गलत|ग़लत|असत्य|झूठ|असंभव|शायद|संभवतः|संभव है|हो सकता|लगता है|संदेह|नहीं (?:मानता"
            r"|सोचता)|कोई नहीं|अन्यथा|वरना|नहीं तो|जब तक|बशर्ते|मान लीजिए|के बजाय|न तो|न ही"
            r"|कभी नहीं|अगर|यदि|के अनुसार"
        ),
        after=(r"नहीं|गलत|ग़लत|असत्य|शायद|हो सकता|के अलावा|को छोड़कर|कहते हैं|कहता है|यदि|अगर|बशर्ते"),
        so="इसलिए|अतः|लेकिन|मगर|बल्कि|क्योंकि|तो",
        certain=r"कोई (?:संदेह|शक) नहीं|निःसंदेह|बेशक|कठिन नहीं|मुश्किल नहीं|कुछ और नहीं",
        sums="जोड़|गुणा|हम",
    ),
    "bn": DenialWords(
        before=(
            r"ভুল|মিথ্যা|অসম্ভব|হয়তো|সম্ভবত|হতে পারে|সন্দেহ|কেউ|অন্যথায়|নইলে|যদি না|ধরা যাক"
            r"|পরিবর্তে|বাদে|ছাড়া|কখনও|না|যদি"
        ),
        after=r"নয়|ভুল|মিথ্যা|হয়তো|না|যদি|বলে মনে",
        so="তাই|সুতরাং|কিন্তু|অতএব|বরং|কারণ",
        certain=r"সন্দেহ নেই|নিঃসন্দেহে|কঠিন নয়",
        sums="যোগ|গুণ|আমরা",
    ),
    "th": DenialWords(
        before=(
            r"ผิด|ไม่จริง|ไม่ถูก|เท็จ|เป็นไปไม่ได้|อาจ|บางที|น่าจะ|คงจะ|ดูเหมือน|สงสัย|ไม่คิดว่า"
            r"|ไม่เชื่อ|ไม่มีใคร|มิฉะนั้น|ไม่เช่นนั้น|เว้นแต่|นอกจาก|ยกเว้น|แทนที่|สมมติ|ไม่ใช่"
            r"|ไม่ทั้ง|ต่างจาก"
        ),
        after=r"ไม่ใช่|ผิด|ไม่ถูก|อาจ|เว้นแต่|ถ้า|หาก|ไม่จริง",
        so="ดังนั้น|แต่|เพราะ|จึง|เลย",
        certain=r"ไม่ต้องสงสัย|ไม่มีข้อสงสัย|ไม่ยาก|แน่นอน",
        sums="เรา|บวก|คูณ",
    ),
}
