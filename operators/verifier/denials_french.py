"""Words by which French denies an answer, doubts it, or makes it conditional."""

from __future__ import annotations

from .denial_tables import DenialWords

FRENCH = DenialWords(
    before=r"""
        pas (?:trouvé|obtenu) $
        |(?:crois|pense|croyons|pensons|affirme|peux|peut|pouvons|saurait) pas
        (?: qu\S+| (?:dire|affirmer|conclure|prétendre))[^,;:\d]{0,60}$
        |(?:je|on|nous) doute(?:ns)? qu\S+[^,;:\d]{0,60}$
        |(?:faux|impossible|absurde|exclu|hors de question|inexact|erroné|incorrect|improbable
        |douteux|invraisemblable|ridicule) (?:que|qu'\S+|de|d'\S+)[^,;:]{0,60}$
        |peut[ -]être[^,;:\d]{0,40}$|sinon[^;:\d]{0,60}$
        |(?:au lieu d\S*|plutôt que(?: de)?|à la place d\S*|autre que|autre chose que
        |différente?s? d\S*|loin d\S*)(?: [^\s\d,;:]+){0,2} ?$
        |(?:dit|prétend|affirme|soutient|croit|pense|répond)(?:ent)?(?: (?:que
        |qu'(?:ils?|elles?|on)|c'est|y en|en|a|ont|reste|il|elle)){0,5} $
        |(?:plus|moins|davantage) (?:grande?s? |petite?s? )?(?:de|que|d'\S+) $
        |(?:en[ -]dessous|au[ -]dessus|au[ -]delà|en[ -]deçà) (?:de|du|des) (?:\S+ )?$
        |(?:inférieure?|supérieure?)s? (?:\S+ ){0,4}?à $
        |(?:dépass|excèd|avoisin|frôl|approch)(?:e|ent|er|era|ait)(?: pas)?(?: de)? $
        |entre #(?: [^\s\d]+)? et $|presque $|de # à $
        |(?:deux|trois|quatre) fois $
        |(?:multiple|diviseur|moitié|tiers|quart|double|triple|carré|opposé|inverse|racine) de $
        |#(?: [^\s\d,]+)?,? ou(?: bien| peut-être| alors| même)? $
        |soit(?: \S+){1,3},? soit $
        |(?:exercice|problème|page|numéro|n°|chapitre|figure|leçon|porte le numéro) $
        |manque\S* (?:\S+ )?#(?: [^\s\d,;:]+){0,4} (?:à|pour|jusqu'à|jusqu'aux
        |avant)(?: [^\s\d,;:]+){0,3} $
    """,
    after=r"""
        ^ ?(?:[^\s,;:]+ ){0,3}?(?:est|serait|semble|paraît) (?:\S+ )?(?:faux|fausse|incorrecte?
        |erronée?|impossible|absurde|inexacte?|trop (?:grande?|petite?|peu|élevée?|faible))
        |^ ?(?:[^\s,;:]+ ?){0,2},? ?\(?(?:faux|fausse|incorrect|non|à (?:vérifier|exclure|revoir)
        |sous toutes réserves)\)?$|par erreur
        |(?:c'est|ce qui est|ce qui serait|ce serait|cela est) (?:\S+ )?(?:faux|impossible
        |absurde|exclu|une erreur|incorrect|inexact|erroné)
        |n'a (?:pas|aucun) (?:de )?sens
        |^ ?(?:\S+ )?ou (?:bien |alors |peut-être |même )?#|^ ?,? ?non,? #
        |^ ?(?:\S+ )?(?:,? ?voire|ou) (?:plus|moins|davantage)
        |^ ?(?:\S+ )?,? ?(?:au (?:moins|plus|minimum|maximum|mieux|pire)|tout au plus)$
        |peut[ -]être|à moins qu\S+|sauf (?:si|erreur|s'il)|sinon
        |je (?:crois|suppose|pense|dirais|devine|présume|parie)|me semble|si je ne
        |(?:dit|prétend|affirme|croit|pense|assure|soutient)(?:-(?:il|elle|on))?(?: (?:mon|ma|mes
        |le|la|un|une) \S+)?$
        |comme (?:le |l'|je le )?(?:prétend|dit|croit|croyais|affirme|soutient|pense|pensais)\S*
        |mais (?:\S+ ){0,5}?(?:tort|faux|fausse|trompe\S*|trompé\S*|doute|impossible|absurde
        |erreur|n'est pas (?:ce qu\S+|la|le|demandée?)|(?:rien|pas|jamais) (?:n'est |n'a été )?
        (?:dit|précisée?|indiquée?|connue?|donnée?|savoir|combien|demandée?))
        |mais (?:je|on|nous) (?:\S+ )?(?:ignor|sai|pouvons|peu[tx]|conn)\S*
    """,
    named=r"""
        réponses?|résultats?|solutions?|conclusion|(?:la|ma|notre|cette|sa) (?:\S+ )?valeur
        |(?:le|mon|notre|ce) (?:\S+ )?total|nombre (?:cherché|demandé|voulu|correct|exact)
        |inconnue|options?|choix|candidate?s?
        |(?:c'est|ce (?:n\S+|ser\S+|sont|doit|peut|pourrait)|c'était|il s'agit)
        (?: \S+){0,5}? #
        |(?:cela|ça|ceci) (?:fait|font|donne|vaut|est|représente|sera|ferai|donnerai|doit|peut
        |pourrai|ne|n'est)\S* (?:\S+ ){0,4}?#
        |(?:je|j'\S+|on|nous) (?:\S+ ){0,5}?#
        |(?:dire|répondre|affirmer|écrire|conclure) (?:\S+ ){0,4}?#
        |[b-df-km-z] ?= ?(?:\S+ ){0,2}?#
        |(?<!/)[b-df-km-xz] (?:\S+ ){0,4}?#
        |^[^a-z]*(?:(?:donc|alors|ainsi|mais|et|or|non|oui|peut[ -]être|probablement|enfin|bref
        |finalement|certainement|sans doute|bien|eh|pas|surtout|sûrement|dire|répondre)\W+)*# ?(?:$
        |[^\sa-z]|(?:[^\s\d]+ )?(?:est|était|serait|semble|paraît|n'est|n'était|c'est|ou|et|mais
        |ne (?:peut|vaut|saurait|convient|marche|colle|va|tient|vérifie|satisfait|correspond|répond
        |remplit|respecte|résiste|passe|fonctionne|divise|donne)))
    """,
    doubts=r"""
        faux|fausses?|mauvaises?|incorrecte?s?|erronée?s?|inexacte?s?|impossible|impensable|absurde
        |ridicule|insensé|inconcevable|illusoire|aberrant|improbable|douteux|douter(?! de)
        |exclue?s?|erreur|mensonge|mythe|piège|illusion|hors de question|pas question|à tort
        |gardez-vous|gardons-nous|évit(?:ez|ons|er)|refuse\S*|n'all(?:ez|ons) pas|interdit
        |contradictoire
        |n'(?:est|était) pas (?:\S+ ){0,2}?(?:vrai|correct|exact|juste|le cas|certain\S*|sûre?
        |possible|raisonnable|permis|prouvé|établi|dit)
        |pas (?:vrai|sûre?|certaine?|d'accord)
        |(?:je|j'en|on|nous) doute(?:ns)?|doute(?:z|nt|ux)?|nie|nient|nions|contest\S+|réfut\S+
        |rejet\S+|démen\S+|récus\S+|écart(?:e|ons|er|é\S*)|élimin\S+|exclu(?:re|t|ons)
        |barr(?:e|ons|ez|er)|ray(?:e|ons|ez|er)|oubli(?:e|ons|ez|er)
        |ignor(?:e|ons|ez|er|ent)
        |laiss(?:e|ons|ez|er) tomber|abandonn\S+|retir(?:e|ons) ma
        |remplac(?:e|ez|ons|er) $|renonc\S+
        |(?:pense|pensons|crois|croyons|dis|dit|dire|affirme|prétends|suppose|conclure|répondre
        |affirmer|trouve|obtient|obtenons|vois|saurait|peut|peux|pouvons|faut|doit|répond(?:ez|s
        |ons)|veux dire) (?:surtout |certainement |absolument |donc )?pas
        |jamais \S+(?: \S+)?(?: n'\S+| ne)|il s'en faut
        |aucun (?:calcul|élève|résultat)\S*
        |aucun\S* (?:\S+ )?n(?:e|'\S+)
        |(?:rien|personne|nul) (?:\S+ )?n(?:e|'\S+)|nullement|rien à voir avec
        |(?:en |à |d')aucune? (?:cas|façon|manière|sorte|circonstance|moment|prix|titre)
        |sous aucun\S* \S+|loin d(?:e|'\S+)|ni|guère|ne saurait
        |ne (?:peut|peux|pouvons|saurait) (?:pas )?(?:dire|affirmer|conclure|être|valoir)|^ ?pas
        |autre que|autre chose que|sauf|excepté|hormis|au lieu de|plutôt que|à la place de
        |différente?s? de|diffère de|distincte?s? de|incompatible
        |(?:aurai(?:t|s)|aur(?:iez|ions)|a|ai|eu|avait) (?:eu )?tort|méfi(?:ez|ons)|oppose\S* à
        |aucune raison|annul\S+|biff\S+|rature\S*|rayons|reviens sur|trompée? en|mettons
        |(?:^|\W)je (?:suppose|présume|soupçonne)|j'imagine|impression|chances que|tente|penche\S*
        |hasard|à vue d\S+|persuadée?|convaincue?|envisag\S+|réponse possible|doigt mouillé
        |^ ?possibles?|peut[ -]être|probablement|probable|vraisemblable\S*|pourrai(?:t|ent)
        |possiblement|peut (?:bien )?être|éventuel\S*|sans doute|apparemment|à première vue
        |au hasard|au pif|au jugé|à vue de nez
        |disons|mettons|devin\S+|pari(?:e|erais|ons)|intuition|se peut|se peuve?nt|possible qu\S+
        |(?:réponse|valeur|solution|candidat|possibilité)s possibles?|candidats|possibilités
        |estim(?:e|ation|ons)|hypothèses?|conjecture|semble|paraît|dirait|hésit\S+
        |balanc(?:e|ons) entre|demande si
        |(?:sai[st]|savons|savoir) (?:pas |plus )?(?:si|s'il\S*)
        |reste à (?:vérifier|prouver|démontrer)
        |ou bien\D{0,4} #\D{0,20} ou bien $
        |parmi # et $
        |sous (?:réserve|l'hypothèse|condition)|en cas d\S+|imaginons|supposant|pour peu qu\S+
        |sinon|autrement(?! dit)|à moins qu\S+|à condition|pourvu qu\S+|à supposer|supposons
        |supposez|admettons
        |en (?:supposant|admettant)|au cas où|dans le cas où
        |tant qu(?:e|'\S+)|dépend(?:ent)? de|lorsque [a-z] est|quand [a-z] est
        |pour [a-z] (?:im)?pair
        |(?:n'\S+|ne \S+) (?:\S+ )?plus $
        |pour autant qu\S+
        |si (?:la|le|les|l'\S+|ma|mon|tel|telle) (?:\S+ ){0,3}?(?:est|sont|tient|s'appliqu\S+
        |dit vrai|existe)|si jamais|eût|eussent|fût
        |(?:se|au|vaud|faud|pour|dev|fe|obtiend|viend|tiend|vend|prend|rend|perd|attend|voud|ver
        |rece|paie|paye|i|sau|mett|permett|suffi|di|fini|parti|choisi|conclu
        |\S*[^\W\d_](?:[ntlrsvhgcpm]|qu|gu)e)rai(?:t|ent
        |s)(?<!esperait)(?<!preferait)(?<!considerait)(?<!recuperait)(?<!operait)(?<!gerait)
        |(?:se|au|vaud|faud|obtiend|trouve)rions
        |selon(?! (?:l'énoncé|nos|mes|le calcul|les (?:calculs|données)|la (?:formule|règle)))
        |d'après(?! (?:l'énoncé|nos|mes|ce qui|le (?:calcul|théorème|texte|problème)|les (?:calculs
        |données)|la (?:formule|règle|consigne|question)))|à en croire|prétendu\S*
        |on (?:dit|raconte|prétend|croit|pense|lit) qu\S+|entend dire
        |(?:certains|beaucoup|quelqu'un|d'aucuns|plusieurs|les gens
        |tout le monde) (?:\S+ ){0,2}?(?:di|répond|trouv|pens|croi|croy|obtien|écri|prétend|affirm
        |soutien|avanc|propos|parl)\S*
        |(?:amie?|voisine?|frère|sœur|cousine?|camarade|collègue|copain|copine|père|mère|élève
        |étudiante?|prof|professeur|manuel|livre|corrigé|calculatrice|internet|site|auteur
        |ordinateur|journal|oncle|tante)s? (?:\S+ ){0,3}?(?:dit|disent|prétend\S*|affirm\S+
        |soutien\S+|pens\S+|croi\S+|répon(?:d|dent|du|dait)|indiqu(?:e|ent)|annonc\S+|affich\S+
        |propos\S+|a (?:trouvé|obtenu|écrit|noté|calculé)|trouv(?:e|ent)|obtien\S+|écri\S+|parie)
        |(?:manuel|livre|corrigé|calculatrice|site|solutionnaire) (?:\S+ )?donn(?:e|ait)
        |(?<!je\s)(?<!j')(?<!on\s)(?<!nous\s)(?<!vous\s)(?<!énoncé\s)(?:pense|croit|prétend|affirme
        |soutient|dit|jure|assure|estime|suppose|imagine|déclare|maintient|annonce|parie|soupçonne
        |se figure)(?:nt)? (?:à tort |donc |pourtant )?qu(?:e|'\S+)|rumeur|bruit court
        |aux? dires? d\S+|de l'avis d\S+
        |(?<!je\s)réponse (?:de|du|d'|des) (?:paul|mon|ma|son|sa|livre|manuel|corrigé)(?: \S+)?
        |(?:les autres|la plupart|la majorité|l'intelligence artificielle|l'ia)(?: \S+){0,2} (?:ont
        |a|di\S+|répon\S+|trouv\S+)
        |(?:est|était|ai) (?:\S+ )?(?:écrit|imprimé|noté) $
        |(?:m'a|nous a|m'ont) (?:\S+ )?(?:soufflé|dit|répondu|assuré|juré)|sur internet
        |avant correction
        |(?<!je\s)(?:répond(?:ent)?|a répondu|ont répondu) $
        |(?:donnée|proposée|fournie|trouvée|annoncée) par|on lit
        |(?<!il\s)est (?:sûre?|certaine?) qu\S+|internaute|s'obstine|persiste|s'entête|cité?e?
        |mentionné?e?|premier temps|tentative|cru trouver|tenez pas compte|veuillez ignorer
        |en (?:vérifiant|testant|essayant)
        |(?:autre|ancien|ancienne) (?:exercice|problème|énoncé|valeur|question)|exemple d\S+
        |problème semblable
        |(?:question|exercice|problème) (?:précédente?|voisine?|semblable|suivante?)|failli
        |(?:j'|nous )?all(?:ais|ait|ions) (?:répondre|dire|écrire)|tentée?s? de|tout d'abord
        |(?:ancienne|précédente|ancien|précédent) (?:réponse|résultat|calcul)
        |(?:réponse|résultat|calcul) (?:précédente?|antérieure?|initiale?)
        |premi(?:er|ère)s? (?:essai|calcul|idée|réponse|tentative|impression|intuition|résultat
        |réflexe|jet|estimation|version|réaction)
        |(?:j'ai|j'avais|avons|avait) (?:d'abord|cru|initialement|au départ|au début|pensé)
        |(?:pensai|croyai|supposai|imaginai)[st]
        |j'avais (?:\S+ )?(?:trouvé|écrit|noté|obtenu|mis|répondu|calculé)|brouillon|coquille
        |(?:au[ -]|en[ -]|là[ -])?dess?ous (?:de|du|des) (?:\S+ )?$|rapproche(?:nt)? de $
        |tend(?:ent)? vers $
        |(?:major|minor|born)\S+(?: par)? $|bas mot|à tout le moins
        |(?:plus|moins) \S+ que $
        |(?:étape|somme|résultat|total|calcul)s? (?:partielle?|intermédiaire)s?|plutôt # que $
        |numéro (?:\S+ ){1,4}?est $
        |sous(?: \S+ \S+ des?)? $
        |en[ -]dessous (?:de|du|des) (?:\S+ )?$
        |au[ -]dessus (?:de|du|des) (?:\S+ )?$
        |(?:au[ -]delà|en[ -]deçà) (?:de|du|des) $
        |plafonn\S+ à $
        |(?:atteint|atteindra) (?:pas|presque) (?:\S+ )?$
        |(?:proche|près|voisine?|autour|multiple|diviseur|moitié|tiers|quart|double|triple|carré
        |opposé|inverse|racine) de $
        |entre #(?: [^\s\d]+)? et $
        |presque $|jusqu'à $
        |au (?:moins|plus|minimum|maximum|mieux|pire) $|de # à $
        |\S*(?:tiend|viend|prend|pond|tend|vend|mett|croi|connaît|écri|construi|produi|rédui
        |di)rai(?:t|ent|s)
        |^ ?(?:et |mais |car )?prétendre|#,? ou alors $
        |(?<!faut\s)(?<!nécessaire\s)(?<!obligatoire\s)(?<!normal\s)(?<!logique\s)
        (?<!bien\s)(?<!sorte\s)(?<!pour\s)(?<!afin\s)(?<!veut\s)(?<!vrai\s)(?<!jusqu'à\s)
        (?<!avant\s)(?:que|qu'\S+) (?:[^\s,;:\d]+ ){0,4}?
        (?:soi(?:t|ent)|ai(?:t|ent)|vaille|fasse(?:nt)?) (?:[^\s,;:\d]+ )?$
        |(?:à l'exception|à l'exclusion|à part|en dehors|hors)(?: de| du| des)? $|à mille lieues
        |aux antipodes
        |(?:aucune|la moindre|pas de) chance|nulle part|contrevérités?|malentendu|méprise|préjugé
        |idée reçue|non-sens|bêtise|sottise|fable|légende|aberration|absurdité|bévue|canular
        |n'importe quoi
        |soit (?:\S+ ){1,5},? ?soit (?:[^\s,;:\d]+ ){0,2}$
        |ou (?:[^\s,;:\d]+ ){1,3}?#(?: [^\s\d,]+)? ?, ou (?:[^\s,;:\d]+ ){0,3}$
        |(?:sont|restent|demeurent|semblent) (?:\S+ )?(?:possible|possibles|envisageables
        |plausibles|concevables|imaginables)
        |dans (?:le|l'autre) cas (?:contraire|opposé|inverse)|dans l'autre cas|sans quoi
        |faute de quoi
        |au (?:moins|plus|minimum|maximum|mieux|pire) (?:de|égale?s? à|équivalente?s? à) $
        |commencé par (?:trouver|obtenir|répondre|penser|croire|écrire|dire|calculer|noter)
        |(?:prête?|sur le point|parti|partie|disposée?) (?:à|de|sur|pour) (?:répondre|dire|écrire
        |affirmer|$)|(?:prime|premier) abord
        |premier (?:regard|coup d'\S+)
        |première (?:vue|lecture)|ressemble\S* à|a tout l'air|ont l'air|a l'air
        |n'y a (?:pas|aucun) lieu
        |de l'ordre d\S+ (?:\S+ )?$
        |(?:presque|quasiment|quasi) égale?s? à $
        |encore un peu et
        |pour un peu|peu s'en faut|si seulement
    """,
    doubts_after=r"""
        ^ ?(?:(?!(?:qui|que|qu'\S+|dont|où|et|car|soit|donc|puisque)\b)[^\s,;:]+ ){0,2}?
        (?:(?:est|était|serait|sont|semble|paraît|reste) (?:\S+ ){0,2}?(?:faux|fausses?
        |incorrecte?s?|erronée?s?|impossible|absurde|exclue?s?
        |(?:à )?(?:exclure|écarter|rejeter|éliminer|oublier|proscrire)
        |écartée?s?|éliminée?s?|rejetée?s?|réfutée?s?|proscrite?s?|barrée?s?|invalide|caduque?
        |disqualifiée?s?|une? (?:erreur|faute|piège|borne|estimation|possibilité|hypothèse|donnée
        |coquille|leurre)|la mauvaise|mauvaise?|inexacte?s?|trop (?:grande?|petite?|peu|élevée?
        |faible)|possible|plausible|envisageable|probable|douteux|incertaine?|incompatible
        |mon premier|ma première|contradictoire|hors de question|(?:le|la) (?:nombre|quantité|prix
        |somme|total) (?:\S+ ){1,4}?départ)|(?:me |nous )?(?:semblait|paraissait)|contredit|échoue
        |viole|n(?:e|'\S+) (?:\S+ ){0,3}?(?:pas|plus|ni|guère|rien|aucune?|jamais|être)|n'est qu\S+
        |ne (?:peut|saurait)|(?:pourrai|serai|aurai|devrai|conviendrai|irai|marcherai|ferai
        |suffirai|vaudrai)(?:t|ent))
        |^ ?(?:[^\s,;:]+ ?){0,2},? ?\(?(?:faux|fausse|incorrect|non|à (?:vérifier|exclure|revoir)
        |sous toutes réserves)\)?$|^ ?: (?:non|faux)|par erreur
        |\S+ (?:reste|revient|serait|est) (?:à )?(?:se tromper|mentir|trompeur)
        |c'est (?:se tromper|faire erreur|mentir|commettre une|aller trop vite|oublier|inventer)
        |doit être (?:rejet|écart|exclu|élimin)\S+|est à bannir|contradiction|sans plus$|tant qu\S+
        |lorsque [a-z] est|quand [a-z] est
        |mais (?:la|le|les) (?:fin|suite|reste|total|réponse|prix)(?: \S+)? (?:manque|est inconnue?
        |reste)|pas (?:le|la|les) \S+$|,? non (?:celui|celle)|il faudrait|pour peu|dès lors
        |du moins si|avant celle-ci
        |mais (?:\S+ ){0,6}?(?:main au feu|supposition|hypothèse|plausible|cloche|recommencer|trop
        |prouver|vérifier|peux me)
        |a (?:crié|dit|affirmé|répondu|écrit)|eût
        |^ ?(?:[^\s,;:]+ ?){0,2},? ?(?:c'est|ce n'est|ce serait|ça|cela) (?:\S+ ){0,2}?(?:trop|faux
        |pas|impossible|absurde|exclu)
        |ce qui (?:est|était|serait|semble|paraît) (?:\S+ )?(?:faux|absurde|impossible|exclu
        |incorrect|erroné|trop|incompatible|contradictoire|douteux)
        |ce qui (?:n'est|ne|contredit)|à tort
        |(?:est|c'est) (?:faux|impossible|absurde|exclu|hors de question|une erreur)$
        |^ ?(?:\S+ )?,? ?(?:au (?:moins|plus|minimum|maximum|mieux|pire)|tout au plus
        |grand maximum)
        |de (?:plus|moins) que (?:la|le|prévu)|peut[ -]être|probablement|sans doute|à moins
        |sauf (?:si|erreur|mention|s'il)|sinon|pourvu|à condition|dans le cas
        |(?:seulement|uniquement|que) (?:si|s'il|dans|pour)|pour certain\S+|si et seulement
        |je (?:crois|suppose|pense|dirais|devine|présume|parie)|me semble|si je ne|faute de mieux
        |à vue de nez
        |au hasard|selon(?! l'énoncé)|d'après(?! l'énoncé)|soit on ne
        |(?:mais|or|cependant|pourtant|toutefois|seulement|sauf que),? (?:\S+ ){0,7}?(?:tort|faux
        |fausse|incorrecte?|trompe\S*|trompé\S*|doute|échoue\S*|contredit|impossible|absurde|erreur
        |inconnue?|ignore|garantie|(?:manque|reste) (?:une?|à|la|le|des)|(?:pas|rien
        |guère) (?:\S+ ){0,3}?(?:sûre?|certaine?|juste|correcte?|bonne?|exacte?|vrai|demandée?
        |demande|question|réponse|savoir|combien|pourquoi|sait|sais|dit|possible|su|pu|trouvé
        |réussi|convaincue?|suffi\S*|en crois|cela|ça|celui\S*|celle\S*|la|le|les|lui|donnée?
        |précisée?|connue?|permet|sert|tient|convient|marche|colle|va|correspond)|(?:rien|personne
        |aucune?) (?:\S+ )?n(?:e|'\S+)|ne (?:\S+ ){0,2}?(?:convient|marche|colle|va|tient|vérifie
        |satisfait|correspond|fonctionne|dit|sert|demande|répond|permet|passe|précise|donne|sait
        |sais|suffit|crois|peux|peut|parvien\S+|voi[st]) (?:\S+ )?(?:pas|rien|guère|plus)
        |n'(?:arrive|y|ai|en|indique|est) (?:\S+ ){0,3}?(?:pas|rien|plus) (?:à|su|pu|trouvé|réussi
        |la|ce|celui|combien|arrive\S*|crois|suis|le|une?|sûre?|de)|(?:question|énoncé|exercice
        |problème|on) (?:\S+ )?(?:porte|demande|concerne|cherche)|sans (?:garantie|certitude
        |conviction|réponse))
        |,? pas (?:celui|celle|ce que|la réponse)
        |mais (?:ils|elles|il|c'est|ce|je|cela|elle) (?:\S+ ){0,2}?(?:tort|faux|trompe\S*|doute)
        |c'est faux|je crois pas|figur\S+ dans|ci-dessus$
        |sans (?:le |la |les |y )?(?:résoudre|trouver|conclure|aboutir|répondre|arriver|réponse
        |succès)|c'est tout
        |n'a pas de (?:solution|réponse)|reste sans réponse
        |je ne (?:sais|peux|parviens)|je n'(?:ai|arrive) pas
        |^ ?(?:[^\s,;:]+ ?){0,2},? ?(?:en tout cas|de toute façon|décidément|assurément),? (?:c'est
        |ce n'est|ça|cela|ce ne) (?:\S+ ){0,2}?(?:trop|faux|pas|impossible|absurde|exclu)
        |^[^.,;\d]{0,40}[»\"”] ?[:,]? ?(?:\S+ ){0,3}?(?:ne|n'\S+|faux|fausse|incorrecte?|erronée?
        |absurde|inexacte?|impossible|mensonge|erreur)
        |^ ?(?:[^\s,;:]+ ?){0,2},? et (?:c'est|c'était) (?:\S+ )?(?:faux|incorrect|inexact|erroné
        |absurde|impossible|une erreur)
        |,? et (?:ce n'est|ce n'était|cela n'est|ça n'est|il n'a) (?:\S+ )?pas (?:\S+ )?(?:bon
        |juste|correct|exact|vrai|ça|raison|le cas|possible|la)
        |l'un(?:e)? (?:des deux|ou l'autre|des trois)|au choix$
        |ce qui (?:est|était|serait|semble|paraît) (?:\S+ )?(?:inexact|fausse?|ridicule|aberrant
        |insensé|impensable|une (?:erreur|faute|méprise)|un non-sens|n'importe quoi|insuffisant
        |irréaliste|invraisemblable)
        |(?:c'est|est|ce serait|relève d\S+) (?:\S+ ){0,2}?(?:n'importe quoi|non-sens|bêtise
        |sottise|méprise|malentendu|aberration|absurdité|ridicule|aberrant|insensé)
        |(?:mais|or|cependant|pourtant|toutefois),? (?:\S+ ){0,7}?(?:inexacte?|erronée?|fautive?
        |méprise|faute de calcul|une faute|étourderie|à jeter|sans (?:valeur|intérêt)|ne vaut rien)
        |une (?:absurdité|impasse|aberration|égalité fausse)
        |donc ce n'est pas (?:cela|ça|la|le bon)
        |ce n'est donc pas (?:cela|ça|la|le bon)
        |(?:mais|or|seulement),? (?:j'ai|j'avais|il a|elle a|on a|nous avons
        |c'était) (?:\S+ )?(?:oublié|omis|négligé|sauté|oublier)
    """,
    reports=r"""
        (?:di(?:t|sent)|préten(?:d|dent)|pens(?:e|ent)(?! pas)|croi(?:t|ent)|(?<!j')affirm(?:e|ent)
        |pensais|croyais|soutien(?:t|nent))(?: [^\s\d]+){0,3} $
    """,
    so=r"""
        (?<!rait\s)(?<!raient\s)donc
        |(?<!,\s)(?<!\sou\s)(?<!rait\s)(?<!raient\s)alors(?! que)|ainsi|mais|par conséquent|car
        |parce que|puisque|d'où|c'est pourquoi|cependant|toutefois|pourtant|or|en (?:fait|réalité)
        |à savoir|et (?:on |nous |l'on )?(?:obtien\S+|trouv(?:e|ons)|garde|retien\S+|conclu[ts]?)
    """,
    certain=r"""
        nombre (?:total )?(?:de |d')(?:(?:fausses|mauvaises) réponses?
        |(?:réponses?|résultats?|solutions?|cas|questions?) (?:fausse|incorrecte|erronée|mauvaise
        |inexacte|possible)s?)
        |(?:l')?égalité (?:\S+ ){0,3}?(?:si|ssi|lorsque|lorsqu'\S+|quand|pour)[^.;]*
        |(?:atteinte?|réalisée?|obtenue?) (?:\S+ ){0,3}?(?:si|ssi|lorsque|lorsqu'\S+|quand)[^.;]*
        |(?:(?:ce|cela|ça) )?n'(?:est|était) pas plus \S+ que (?:cela|ça)
        |(?:aucun|nul|pas de|pas le moindre|hors de|ne fait (?:aucun|pas de|pas l'ombre d'un)
        |sans (?:aucun|le moindre|nul)) (?:\S+ )?doute(?: possible)?(?: que)?
        |sans l'ombre d'un doute
        |sans (?:aucun )?doute possible
        |sans (?:erreur|peine|se tromper|hésit\S+|rien oublier)
        |(?:pas|rien|guère) (?:\S+ ){0,2}?(?:difficile|dur|compliqué|surprenant|étonnant|évident
        |problème|douter|impossible|faux|longtemps|nier|contester|hésite|hésiter)|rien d'autre que
        |nulle? autre que|n'est autre que|pas autre chose que
        |pas seulement|non seulement|indubitablement|sans plus attendre
        |pas plus (?:de|d'une?)(?! #)
        |pas moins (?:de|d'une?)(?! #)
        |n(?:e |')(?:(?!pas |\S+rai(?:t|ent) )\S+ ){1,4}?que(?= ?[\d$*(\\]| ?$)|n'hésit\S+ pas
        |n'(?:oubli|ignor)\S+ pas
        |(?:seule?s?|unique) (?:\S+ )?possible
        |(?<!,\s),? ?(?:et )?ni (?:plus|moins),? ni (?:plus|moins)(?: que(?: #\s+:)?)?
        |(?:personne|nul|on) ne (?:peut|saurait|pourra) (?:\S+ )?(?:nier|contester|douter)
        |(?:personne|nul|on) ne (?:contest|nie|doute|met)\S*(?: que)?
        |impossible de se tromper
        |(?:toute|aucune) autre [^.]{0,40}
        |(?:mon|ma|le|la|mes|les) \S+ (?:a|avait|avaient|ont) (?:donc |bien )?tort$
        |comme (?:prévu|attendu|annoncé|voulu|demandé|on (?:le )?voit)
        |comme (?:le|la|les) (?:confirme|montre|vérifie|prouve|demande)\S*(?: \S+){0,3}
        |et rien d'autre
        |j'en suis (?:\S+ )?(?:sûre?|certaine?|convaincue?)
        |et (?:il|elle|ils|elles) (?:a|ont) (?:\S+ )?raison
        |et c'est (?:bien )?(?:vrai|juste|exact|correct|le cas)
        |(?:contrairement|à l'inverse|à l'opposé|au contraire|à la différence|à rebours) (?:à|de
        |des|du|d'\S+) (?:ce qu(?:e|'\S+) )?[^,:;\d]{1,40}[,:]
        |(?:maximum|minimum) (?:possible|est|vaut|cherché)
        |(?<!,\s)qui (?:ne \S+|n'\S+) pas(?! (?:la|le|une?|juste|bon\S*|correct\S*|exact\S*
        |possible|vrai\S*))
        |ce qui (?:n'est pas|n'a rien de|n'est guère) (?:\S+ )?(?:surprenant|étonnant|grave
        |un hasard)
        |ce qui (?:est|semble|paraît) (?:\S+ )?(?:surprenant|étonnant|correct|juste|exact
        |raisonnable|logique|normal|cohérent|prévu)|(?:l'|bien )doute pas
        |ne doute (?:pas|guère|point)(?: que)?|autrement dit
        |plus (?:simple|facile) qu\S+ (?:n'y |ne (?:le )?)\S+
        |(?:même si|bien que|quoi qu\S+|puisque (?:rien|personne|aucun\S*)|malgré) [^,:;\d]{1,50}$
        |n'est-ce pas(?: évident)?
        |et (?:rien|aucun\S*|personne) (?:\S+ )?(?:ne|n'\S+)[^,:;\d]{0,40}$
        |(?:sans (?:oublier|compter)|sauf(?! erreur)|hormis|excepté|mis à part|outre|après avoir
        |plutôt qu\S+|au lieu d\S+|quoi qu'\S+|n'en déplaise|on (?:écarte|élimine|exclut|rejette
        |oublie)) [^,:;]{1,40} ?[,:]
        |comme (?:le |l')(?:dit|indique|affirme|précise) [^,:;\d]{1,30},
        |mais (?:ce n'était pas|ce n'est pas|c'était) (?:\S+ )?(?:facile|simple|difficile|long)
        |mais (?:le calcul|la démonstration) est \S+
        |^,? ?(?:à savoir|c'est-à-dire)
        |même si [^,:;\d]{1,50}[,:]|qu'on le veuille ou non
        |(?:lève|dissipe|écarte|balaie|élimine|ôte) (?:tou[st]|les?|mes|nos|mon
        |ce) (?:\S+ )?doutes?
        |(?:ne )?(?:pas|jamais) (?:oublier|négliger|omettre|perdre de vue) [^,:;\d]{1,40}[,:]
        |(?:aucune?|(?:pas|plus) (?:d'|de|la moindre)|pas le moindre|sans (?:aucune?|la moindre
        |le moindre)) ?(?:hésitation|risque|ambiguïté|équivoque|mal|peine|difficulté|incertitude
        |doute)(?: possible)?
        |sans (?:conteste|contredit|équivoque|ambiguïté|hésitation|hésiter|discussion)
        |(?:incontesta|indénia|irréfuta|indiscuta|indubita)\S+|à n'en pas douter
        |hors de contestation
        |(?:ne (?:peut|saurait|pourrait|doit) )?pas (?:être |valoir |faire )?autre chose que
        |rien (?:d'étonnant|de surprenant|d'anormal|d'extraordinaire
        |d'étrange)(?: à ce)?(?: qu\S+)?
        |ne (?:faut|doit|devons|dois|devez|faudra) (?:surtout )?(?:pas|jamais) (?:oublier|négliger
        |omettre|perdre de vue) [^,:;\d]{1,40}[,:]
        |(?:[–—] ?)?(?:(?:il|elle|ce) )?n'(?:y a|y a donc|existe|est) (?:pas|point
        |aucune?) (?:d')?(?:autre|alternative)[^.,;:]{0,40}
        |(?:pas|point|plus) d'autre \S+(?: possible)?
        |et (?:rien|pas) (?:de plus|de moins|davantage)|point final|un point c'est tout
        |pas (?:plus|moins),? (?:et |ni )?pas (?:plus|moins)(?: que(?: #\s+:)?)?
        |n'y a plus (?:de |aucun |le moindre )doute|plus aucun doute
        |ne saurait (?:\S+ )?(?:être|valoir) que
        |(?:bien que|quoique|encore que|même si) [^,:;]{1,60},(?= ?(?:la|le|c'est|il|elle|on|nous
        |ce) )
    """,
    sums=r"""
        on|nous|vous|tu|je|l'on
        |\S*(?:additionn|ajout|multipl|soustra|calcul|compt|désign|représent)\S*
    """,
    other=r"""
        (?:(?:et|mais|donc|soit|c'est-à-dire|ou encore|qui est|qui fait|(?:ce )?qui (?:est|fait
        |donne|reste|représente)|un nombre|compris|c'est|bien|beaucoup|un peu|nettement|largement
        |toujours),? ){0,4}(?:(?:non|non pas|(?:certainement |surtout |sûrement |absolument )?pas
        |plutôt que(?: de)?|au lieu d\S+|à la place de|et non|contrairement à) (?:(?:de|à|les
        |des) )?#|(?:plus|moins|davantage|mieux) (?:grande? |petite? |élevée? )?(?:que
        |de) (?:les |ses )?#|entre # et #|(?:supérieure?|inférieure?)s? à #|(?:qui )?dépasse #
        |en[ -]dessous de #|au[ -]dessus de #|# (?:[^\s\d,;:.]+ )?(?:de |en )?(?:plus
        |moins)(?: (?:que|de) #)?)
        |(?:donc|soit|qui est|c'est-à-dire|autrement dit) (?:au (?:moins|plus)|(?:le|la
        |les) (?:double|triple|moitié|tiers|quart|carré) (?:de|des)|(?:deux|trois|quatre
        |\d+) fois) #|,? contre #
        |(?:car|puisque|parce que|vu que) # (?:[^\s\d,;:.]+ )?(?:(?:est|serait
        |était) (?:\S+ )?(?:faux|impossible|exclu|incorrect|absurde|trop (?:grand|petit))
        |ne (?:\S+ ){1,3}?pas|n'est pas)
    """,
    retracts=r"""
        (?:[^\s.\d]{2,15}[,!:…]? ){0,3}?(?:(?:c'est|c'était|ceci est|cela est|ça, c'est|(?:cet?
        |cette|mon|ma|la|le) \S+ (?:est|était|semble)) (?:\S+ ){0,2}?(?:faux|fausse|impossible
        |absurde|incorrecte?|erronée?|mauvaise?|exclue?|inexacte?|(?:une? )?(?:erreur|coquille
        |faute|hypothèse|piège)|trop (?:grande?|petite?|peu)|contradictoire|incompatible
        |à (?:vérifier|rejeter|écarter|revoir))|(?:c'est|ce|cela|ceci|ça|il|elle|(?:cet?|cette|la
        |le|mon|ma) \S+) (?:ne |n')(?:\S+ ){0,4}?(?:juste|correcte?|bonne?|exacte?|vraie?|possible
        |le cas|sûre?|certaine?|ça|cela|la réponse|convient|colle|marche|tient|va|vérifie
        |correspond|satisfait|fonctionne|remplit|respecte|résiste|passe|répond)(?: pas.*)?|(?:cela
        |ceci|ça|ce résultat|cette réponse|la vérification) (?:contredit|échoue)|(?:je|j'en|j'ai
        |j'avais) (?:\S+ ){0,2}?(?:retire|reviens|annule|doute|trompée?|tort|rétracte|commis|fait
        |corrige|ignore|hésite|abandonne|suis (?:pas|trompée?))
        |je (?:ne |n'en )(?:\S+ ){0,2}?(?:sais|peux|parviens|suis|crois|pense|vois
        |garantis)(?: \S+)? ?pas|je (?:ne |n'en )(?:sais|peux|parviens|suis|crois|pense|vois
        |garantis)|je n'(?:ai|arrive) (?:pas|rien|aucun)|j'ignore|oublie[zr]?|ignore[zr]?
        |ne tenez pas|erreur|on ne (?:sait|connaît|dispose|peut (?:pas |rien |donc )*(?:savoir|dire
        |conclure|trancher|répondre|déterminer|être))|(?:rien|personne) n(?:e|'\S+)|nul ne
        |impossible d|reste à savoir|la (?:question|suite|réponse) (?:reste|demeure|m'échappe
        |est (?:inconnue|ailleurs|autre))|l'énoncé ne|à vérifier|sous réserve|sans garantie
        |mais rien|quelque chose (?:cloche|ne)|annule[zr]?
        |il (?:doit )?y a(?:voir)? (?:\S+ )?(?:erreur|faute)|je (?:\S+ )?(?:recommence|refais
        |recalcule)|(?:je )?(?:peux|pourrais) me tromper|c'est une (?:\S+ )?(?:supposition
        |hypothèse|estimation)|(?<!facile,\s)(?<!evident,\s)non ?$|faux$|[^.\d]{0,30} (?:illisible
        |échoue|je ne l'ai pas)|[^.\d]{0,30} (?:m'est|est|reste|demeure) inconnue?)
    """,
    turns=r"""
        (?:(?:faux|fausse|coquille|erreur|bêtise|malentendu|méprise|sottise|préjugé|inexact
        |impossible|exclue?|absurde|erronée?|incorrecte?|inexacte?|tort|trompent?|trompée?s?
        |mauvaise?|trop (?:petite?|grande?|peu)|raison|confirme)[^,:;]{0,40}?|(?:pas|plus|rien
        |personne|aucune?|jamais|ni|nulle?|sans|semble|paraît|erreur|chaque|oubliez|ignorez
        |avec) [^,:;]{0,60}?|aussi|non plus|également
        |de même) ?[,:;] ?(?:donc |alors |ainsi |finalement )?(?:la|le|notre|ma|mon|ils?|elles?|on
        |nous|c'est|ce sont|cela|ça|l'\S+|\$?\\?[a-z]+(?: [a-z])? ?=)
    """,
    frames=r"""
        si|s'ils?|selon|sauf erreur|d'après|peut[ -]être|à moins|pourvu|à condition|au cas
        |supposons|admettons|en supposant|à supposer|soit|tant que|sûre?s?|certaine?s?|sai[st]
        |savoir|ignore|hésit\S+|doute
        |(?:dire|répondre|affirmer|prétendre|penser|croire) ?[,:]|remise
        |\S+rai(?:t|ent)(?! (?:faux|une erreur|absurde))
    """,
    agrees=r"""
        [,;.–—]? ?(?:(?:il|elle|ils|elles) (?:a|ont) (?:\S+ ){0,3}?raison|(?:et|ce qui|,) (?:c'est
        |est|ceci est|cela est) (?:bien |tout à fait )?(?:vrai|juste|exact|correct|le cas|cela|ça
        |bon|la bonne réponse|la réponse)|à (?:juste titre|raison)|avec raison
        |et \S+ a (?:\S+ )?raison|et je (?:suis d'accord|confirme|le confirme))
    """,
)
