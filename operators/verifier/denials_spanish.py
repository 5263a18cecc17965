"""Words by which Spanish denies an answer, doubts it, or makes it conditional (`DenialWords`)."""

from __future__ import annotations

from .denial_tables import DenialWords

_WRONG = (
    r"(?:fals|incorrect|equivocad|errad|inexact|inválid|dudos|inciert|absurd|ridícul|engaños"
    r"|desacertad|fallid|contradictori|descartad|eliminad|rechazad|excluid|refutad|desmentid"
    r"|desechad|ilógic|prematur|apresurad|precipitad|infundad|hipotétic)[oa]s?|errón[e]?[oa]s?"
    r"|(?:imposible|improbable|insostenible|impensable|inverosímil|inaceptable|inadmisible"
    r"|inviable|inconcebible|incompatible|incoherente|cuestionable|discutible|disparate|trampa"
    r"|error|errata|equivocación|mentira|mito|bulo|confusión|falacia|despiste|desatino"
    r"|malentendido|espejismo|patraña|tontería|bobada|barbaridad|locura)(?:e?s)?"
)
_PEOPLE = (
    r"(?:amig|compañer|herman|prim|alumn|vecin|hij|tí|abuel|niñ|chic|maestr|profesor|coleg"
    r"|much)[oa]?s?|estudiantes?|profes?|gente|personas?|libro|solucionario|internet|foro|padre"
    r"|madre|calculadora|chatgpt"
)
_BE = (
    r"(?:es|son|era|eran|fue|fueron|será|serán|sea|sean|sería|serían|está|están|estaba|resulta"
    r"|resultan|resultó|parece|parecen|queda|quedan|quedó|quedaría|ha sido|es un|es una|era un"
    r"|era una|fue un|fue una|hay un|contiene un|lleva a una?|es claramente|tiene que ser)"
)
# Verbs whose subject or object is the amount that was asked for.
_STATES = (
    r"(?:es|son|era|eran|fue|fueron|será|serán|sea|sean|sería|serían|tien[eo]n?|tenía|tendrán?"
    r"|hay|había|habrá|quedan?|quedarán?|quedaban|dan?|dará|daría|valen?|vale|equivalen?|suman?"
    r"|hacen?|salen?|sale|obten(?:go|emos|drá|drás)|obtiene[ns]?|resultan?|ganan?|gasta[ns]?"
    r"|paga[ns]?|cuestan?|recibe[ns]?|necesita[ns]?|compra[ns]?|vende[ns]?|llega[ns]? a|puede[ns]?"
    r"|podemos|pudo|debe[ns]?|va[ns]?|se trata de|sobran?|faltan?|mide[ns]?|pesa[ns]?|corresponden?"
    r"|coinciden?|asciende[ns]?|alcanzan?|elijo|elegimos|marco|marcamos|respondo|acepto|admito"
    r"|admitimos|escribas|respondas|pongas|elijas|marques|contestes)"
)
_CONDITIONAL = (
    r"(?:ser|tendr|habr|quedar|dar|saldr|obtendr|podr|valdr|har|sumar|resultar|ganar|costar|pagar"
    r"|necesitar|faltar|sobrar|gastar|ahorrar|cobrar|bastar|llegar|estar|recibir|vender|comprar"
    r"|cambiar|medir|pesar|obtuv|tocar|corresponder|ascender)ía(?:n|s|mos)?"
)
_SUBJUNCTIVE = (
    r"(?!cualquier)(?:\S{1,12}(?:iera|iese|iéra|iése)(?:n|s|mos)?|(?:fue|hubie|tuvie|estuvie|pudie"
    r"|die|dije|traje|hicie|quisie)(?:ra|se)(?:n|s|mos)?"
    r"|(?!para|clase|base|fase|frase|compara|prepara|separa)\S{3,12}(?:ara|ase|ára|áse)"
    r"(?:n|s|mos)?)"
)
_KNOWN = (
    r"(?:sé|sabe|saben|sabemos|sabría|sabido|supe|supo|conozco|conoce|conocemos|recuerdo|entiendo"
    r"|entendí|entendido|comprendo|tengo|tenemos|logro|logré|logramos|logrado|consigo|conseguí"
    r"|conseguimos|conseguido|pude|pudo|pudimos|podido|puedo|podemos|puede|llego|llegué|llegado"
    r"|termino|terminé|terminado|resuelvo|resolví|resuelto|resolver\S*|calculé|calculado"
    r"|calcular\S*|averigü?\S+|encuentro|encontré|encontrado|hallo|hallé|hallado|respondo|respondí"
    r"|respondido|contesto|contesté|contestado|ofrezco|doy|deduce|deducir|deduzco|determin\S+"
    r"|acierto|acabé|acabado|estoy|estamos|veo|pone|ponen|dice|dicen|da|dan|indica|indican"
    r"|menciona|especifica|aclara|informa|explica|figura|aparece|consta|pregunta|preguntan|pide"
    r"|piden|interesa|corresponde|responde|contesta|resuelve|basta|alcanza|permite|sirve|sirven"
    r"|vale|cumple|cumplen|satisface|verifica|supera|pasa|cuadra|cuadran|encaja|encajan|concuerda"
    r"|coincide|casa|funciona|aguanta|resiste|tiene|es|era|fue|son|eran|sería|está|estaba|parece"
    r"|ayuda|ayudan|aporta|influye|lleva|conduce|resuelve|soluciona|convence|fío|creo|pienso"
    r"|aseguro|garantizo|confío|comparto|acepto|queda|quedó|hay|había|ha"
    r"|hemos|he|han|puse|salió|sale|debe|contradice|lo)"
)
_FAILS = (
    r"(?:no|tampoco|ni siquiera|nunca|ya no) (?:(?:se|lo|la|le|les|me|nos|te|los|las) ){0,2}"
    + _KNOWN
)
_MISTAKE = (
    r"(?:me|se|nos|te) (?:he |ha |han |hemos |había |habían )?(?:equivo|confund|olvid|despist"
    r"|contradi|descart|salt)\S*|mient[eo]n?|falla\S*|fall[óé]|contradi\S+|descart\S+|desech\S+"
    r"|rechaz\S+|rectific\S+|corrijo|retiro|incumpl\S+|viola|discrep\S+|"
    r"(?:est[aá]|están|estaba|estoy|estamos|hice|hizo|calculé|calculó|conté|sumé|resté|leí|va|iba"
    r"|iban|salió) mal|había (?:un|algún) (?:error|fallo)|hay (?:un|algún) (?:error|fallo)"
    r"|cometí|cometió|dud[aoe]\S*|olvid[éó]|ignor[oa]|desconozco|desconoce\S*|" + _WRONG
)
_TURN = (
    r"(?:pero|sin embargo|no obstante|ahora bien|mas|con todo|en realidad|por desgracia"
    r"|desgraciadamente|lamentablemente|desafortunadamente|solo que|sólo que|aunque (?:luego"
    r"|después|enseguida|más tarde|al (?:comprobar|revisar|repasar)\S*|eso|ese|esa|creo que|sé que"
    r"|reconozco|admito|yo))"
)
_THIS = (
    r"(?:es[eo]|est[eo]|esa|esta|aquello|aquel|dich[oa]|tal|el|la|lo|mi|su|un|una|al|luego|después"
    r"|enseguida|ya|y|pues|espera|ah|uy|vaya|perdón|todo|yo|ambos|así|hmm|nada|qué|bueno|sé que"
    r"|veo que|resulta que|me temo que|reconozco que)"
)

SPANISH = DenialWords(
    before=rf"""
        {_WRONG}
        |(?:mala|mal) (?:respuesta|solución|opción|decir|afirmar)
        |(?:no|tampoco|ni) (?:\S+ ){{0,2}}?(?:ciert[oa]|verdad|correct[oa]|posible|el caso
        |segur[oa]|clar[oa]|exact[oa]|cabe|probable|razonable|válid[oa]|sensat[oa]|lógic[oa]
        |creíble|aceptable|acertad[oa]|admisible|sostenible|suficiente|prudente|evidente|justo)
        |no (?:(?:se|me|lo|nos|te|le) )?(?:creo|creemos|cree|crea[ns]?|pienso|pensamos|piense[ns]?
        |digo|decimos|diga[ns]?|dig[áa]is|considero|consideramos|opino|opinamos|diría\S*|sé|sabemos
        |sabe|parece|puede\S* (?:decir|afirmar|concluir|sostener|deducir|asegurar|aceptar|responder
        |garantizar|demostrar|admitir|dar)\S*|podemos (?:decir|afirmar|concluir|sostener|deducir
        |asegurar|aceptar|responder|garantizar|demostrar|admitir|dar)|puedo (?:decir|afirmar
        |concluir|asegurar|aceptar|garantizar|creer|confirmar|admitir)|acepto|aceptamos|significa
        |implica|afirmo|afirmamos|sostengo|aseguro|comparto|estoy|estamos|deduce|deducimos|sigue
        |concluyo|concluimos|demuestra|garantiza|admito|respondas|vale|basta|sirve|debemos
        |deberíamos|debería\S*|tiene sentido|quiere decir|hay (?:motivo|razón|razones|manera|forma
        |modo|prueba|pruebas|nada)\S*|existe|me convence|confirmo|apoyo|suscribo)
        |(?<!que\s)(?<!si\s)(?<!cuando\s)(?<!como\s)(?<!quienes\s)no (?:(?:se|le|les|lo|la|me|te
        |nos) ){{0,2}}{_STATES}(?: [^\s\d,;:]+){{0,4}}\s*$|dud[oae]|duda(?:n|mos|ría)|cuestion[oa]
        |desconfío|discrepo|nieg[oa]\S*|negamos|negaría|neg[aó]|rechaz\S+|descart\S+|exclu[iy]\S*
        |refut\S+|desmient\S+|desment\S+|desech\S+
        |elimin(?:o|amos|ar|emos|ado)|tach(?:o|amos|ar|ado)|contradi\S+|me equivo\S+|se equivo\S+
        |nos equivo\S+|miente\S*|yerra\S*|tal vez|quizás?|acaso|posiblemente|igual (?:es|son)
        |capaz que|ojalá|probablemente|seguramente|presumiblemente|presuntamente|hipotéticamente
        |supuestamente|aparentemente|en apariencia|a primera vista|en teoría|a ojo|al azar
        |podría\S*|pudiera\S*
        |puede(?: que| ser|n ser)?|pueda[ns]?|cabría
        |cabe (?:la posibilidad|pensar|suponer|esperar)
        |es (?:posible|probable|concebible|plausible|de suponer|de esperar)
        |hay (?:alguna|cierta) (?:posibilidad|probabilidad)|existe la posibilidad|a lo mejor
        |deb(?:e|en|ería|erían) de (?:ser|haber|quedar|tener)
        |parec(?:e|en|ía|ían|ió)\S*|sospech\S+|supongo|supondría|imagino|imagina(?:mos|ndo)?|intuyo
        |apuesto|apostaría|adivin\S+|diría|diríamos|me da que|me suena|tengo la impresión
        |tengo entendido
        |si (?:la memoria )?no me (?:equivoco|falla)|salvo error|nadie|ninguno|ningún|nada|jamás
        |nunca|difícilmente|apenas|de lo contrario|si no|en otro caso
        |en (?:el )?caso (?:contrario|opuesto)
        |de otr[oa] (?:modo|manera|forma)|en cualquier otro caso
        |en los demás casos
        |otr[oa]s casos|a menos que|salvo|excepto|siempre que|siempre y cuando|con tal (?:de )?que
        |con la condición de
        |a condición de|a no ser que
        |mientras que? (?:sea|no)|en (?:el )?caso de que
        |en caso de|solo (?:si|cuando)|sólo (?:si|cuando)|únicamente si|supongamos|suponiendo|supón
        |supóngase|suponga\S*|asumiendo|asumamos|admitiendo|admitamos|imaginemos|pongamos que
        |digamos que
        |dando por (?:hecho|sentado|bueno)
        |de ser (?:así|ciert[oa]|par|impar|posible)|ni|en lugar de|en vez de|antes que
        |a diferencia de
        |distint[oa]s? (?:de|a|al|del)
        |diferentes? (?:de|a|al|del)|difieren? (?:de|del)|dista\S* (?:mucho )?de
        |se (?:aleja|aparta|diferencia|distingue)\S* de
        |cualquier(?:a| cosa| otra cosa| número| valor| otro \S+)? (?:menos|excepto|salvo|que no)
        |todo menos
        |otr[oa]s? (?:\S+ )?que no
        |(?:aparte|además|fuera|al margen) de
        |de ninguna (?:manera|forma)|de ningún modo
        |en (?:ningún|modo alguno)(?: caso| momento)?|en absoluto
        |bajo (?:ninguna circunstancia|ningún concepto)
        |ni (?:hablar|de broma|por asomo|en sueños)|ni mucho menos|lejos (?:está )?de|o bien|según
        |en opinión de|a juicio de|de acuerdo con|conforme a|en palabras de|al decir de
        |se (?:dice|cree|piensa|afirma|rumorea|comenta|suponía|creía|esperaba) que
        |suele[n]? (?:decir|creer|pensar|afirmar|suponer)(?:se)?(?: \S+)? que
        |(?:ignor|pregunt)(?:o|a|amos) si|desconozco
        |(?:cabe|podemos|puede) dudar
        |por (?:decir|poner|dar) (?:algo|un número|un valor|una cifra)|me inclino por
        |faltan? (?:[^\s,;:]+ ){{1,4}}?para(?: los| las)?\s*$
        |(?:mitad|doble|triple|cuádruple|tercio|parte|cuadrado|cubo|raíz|raíz cuadrada|opuesto
        |inverso) de (?:la|nuestra|mi) (?:respuesta|solución)
        |(?:erróne|equivocad|fals|incorrect|indebid|ingenu|precipitad)amente
        |(?:está|estaría|queda|quedaría|falta|faltaría|habría|habrá)(?: \S+)? (?:por|sin|que
        |a) (?:ver|saber|aclarar|comprobar|confirmar|decidir|demostrar|determinar|resolver
        |verificar)(?:se)? (?:si|que)
        |(?:sea (?:cual|lo que|la que)|cualquiera que) (?:sea|fuere|fuera|fuese) (?:la|el|mi
        |nuestr[oa]) (?:respuesta|solución|resultado|total|valor|suma)(?: \S+)?,?\s*$
        |queda\S* a (?:[^\s,;:]+ ){{1,3}}de(?: los| las)?\s*$
        |(?:doble|triple|cuádruple|mitad) (?:de \S+ )?(?:que|de)\s*$
        |(?:veces|tan|tanto) (?:(?:más|menos|tan) )?(?:[^\s\d,;:]+ )?(?:que|como|de)\s*$
        |(?:dicen|cuentan|aseguran|afirman|creen|piensan|sostienen|opinan|juran|juraría) que
        |corre el rumor|hay quien\S*
        |para (?:mi|tu|su|un|una|algunos|otros|muchos) (?:\S+ )?(?:{_PEOPLE})
        |{_SUBJUNCTIVE}[^.;]{{0,80}}{_CONDITIONAL}
        |habría\S* (?:sido|dado|dicho|tenido|quedado|salido|valido|resultado|respondido|contestado
        |puesto|escrito|\S+[aid]do)|hubie(?:ra|se)\S* \S+do
        |^ ?de (?:no )?(?:haber|ser|tener|existir|estar|contar)\S*|con otr[oa]s \S+
        |en otras (?:circunstancias|condiciones)|si fuera\S*
        |(?:como (?:mucho|poco|máximo|mínimo)|a lo (?:sumo|más)|(?:al
        |por lo) menos)(?: [^\s\d,]+){{0,2}},?\s*$
        |(?:por encima|por debajo|cerca|a punto|del orden|más allá|al borde) de(?:l)?\s*$
        |(?:próxim|cercan|superior|inferior|igual o (?:mayor|menor|superior|inferior))[oae]?s? (?:a
        |al|que)\s*$
        |(?:mayor|menor|más|menos)(?:es)? (?:que|de|grande que|pequeñ[oa] que|alt[oa] que
        |baj[oa] que)\s*$
        |(?:supera|excede|rebasa|sobrepasa|ronda|roza|iguala|bordea)\S*(?: (?:a|de|los|las|el
        |la))?\s*$
        |(?:no )?(?:llega(?!mos)|alcanza|baja|sube|pasa|acerca|aproxima)\S* (?:a|de
        |hasta)(?: (?:los|las))?\s*$
        |(?:no )?(?:alcanza|casi|hasta|mínimo|máximo)\S*\s*$
        |(?:mitad|doble|triple|cuádruple|tercio|tercera parte|cuarta parte|cuarto|quinta parte
        |décima parte|cuadrado|cubo|raíz|raíz cuadrada|raíz cúbica|múltiplo|divisor|factor|opuesto
        |inverso|recíproco|consecutivo|sucesor|anterior|siguiente|porcentaje|por ciento|dos tercios
        |tres cuartos|resto|potencia|logaritmo|factorial|%) (?:de|del|a|al)\s*$
        |(?:para|hasta) (?:llegar|alcanzar|completar|ser|tener|igualar|sumar|juntar|reunir
        |pagar)(?: a| los| las| hasta)?\s*$|entre # y\s*$|entre\s*$
        |(?:en algún (?:lugar|punto)|comprendid[oa]|situad[oa]|oscila\S*|está|estará|encuentra
        |varía\S*|va|dud[oa]|vacil[oa]|intervalo) (?:\S+ ){{0,2}}?(?:entre|desde|de)
        |(?:el|un|del|al) (?:ejercicio|número|problema|apartado|capítulo
        |tema) (?:\S+ ){{0,3}}?(?:número|es el)
        |(?:página|ejercicio|apartado|capítulo|tema|(?:el|del|al|este|^) ?paso|pregunta|sección
        |figura|tabla|línea
        |ecuación|versión|artículo|lección)(?: número)?\s*$
        |(?:enunciado|problema|texto) (?:solo |sólo |ya |también |únicamente )?(?:habla|menciona
        |cita|nombra|incluye|contiene|da|trae)
        |enunciado (?:aparece|figura|sale|pone|viene|hay|consta)\S*
        |(?:quien(?:es)?|cualquiera que|(?:el|los|la) que) (?:\S+ )?(?:respond[ae]|diga|dice|dicen
        |contest[ae]|ponga|pone|elija|elige|escrib[ae]|obten?ga|crea|marque)\S*(?: que)?(?: (?:es
        |son|la \S+ (?:es|son)))?\s*$|veces\s*$
        |(?:respecto|comparación|comparado) (?:a|de|con)(?: los| las)?\s*$
        |con (?:#|un|una|el doble|el triple|la mitad|otr[oa]s?|más|menos|much[oa]s?
        |algo) [^.;]{{0,60}}{_CONDITIONAL}|retiro|retracto|anulo
        |(?:mi|la) (?:respuesta|solución) anterior
        |donde (?:dije|puse|escribí|decía|pone)|cambio
        |(?:casi|iba a|íbamos a|a punto de|estuve por) (?:respond|dec|dig|pon|escrib|contest|eleg
        |elij|marc)\S*
        |en el (?:segundo|tercer|último|otro)(?: caso)?,|cuando (?:n|x|k|m) (?!=)\S+|da la impresión
        |la impresión de|ponen? que
        |(?:leí|oí|he (?:leído|oído|visto)) que
        |(?:hacemos|hago|hacer) caso
        |(?:sol[oa]|sólo|únicamente|lo único que|todo lo que) (?:se )?(?:sé|sabe|sabemos|saben)
        |(?:mi|nuestr[oa]) (?:primer[oa]?|anterior|antigu[oa]) \S+|^ ?no
    """,
    after=(
        r"(?:está|queda|falta)(?: aún| todavía)? (?:por|sin) (?:ver|saber|aclarar|comprobar"
        r"|confirmar|decidir|demostrar|determinar|resolver|verificar)(?:se|lo)?|"
        r"por (?:decir|poner|dar) (?:algo|un número|un valor|una cifra)|"
        r"^,? ?(?:ni (?:hablar|pensarlo|soñarlo|de broma|en broma|en sueños|por asomo)|nada de eso"
        r"|de eso nada|en absoluto)|"
        r"^[^\d.,;:]{0,40}, (?!(?:porque|pues|ya|y|que|o) )[^\d.,;:]{1,40}, (?:no (?:se |lo |la )?"
        r"(?:es|son|era|puede|podría|tiene|cumple|satisface|vale|sirve|cuadra|encaja|sostiene"
        r"|funciona|está|corresponde|convence|ajusta|verifica)(?! #)"
        rf"|{_BE} (?:\S+ ){{0,3}}?(?:{_WRONG}|mal))|"
        rf"^[^\d.,;:]{{0,30}},\s*(?:{_BE} (?:\S+ ){{0,2}}?(?:{_WRONG}|mal)|no (?:tiene sentido"
        r"|se sostiene|puede ser"
        r"|cuadra|es (?:ciert[oa]|verdad|correct[oa]|posible|creíble|así|razonable|aceptable)))|"
        rf"^\s*[:,(—–]\s*(?:no\s*[.)]?\s*$|{_WRONG}(?! #)|mal(?=\s*[.)]?$))|"
        r"no (?:es )?(?:la respuesta|la solución|lo que (?:se )?(?:pide|piden|pregunta|busca)\S*"
        r"|el resultado|el total)|"
        r"si [^\d.;:]{1,60}, (?:pero|y|aunque|cosa que|lo que|lo cual) [^\d.;:]{0,20}?(?:no"
        r"|ignor\S*|desconoc\S*)|(?:luego|así que|por (?:lo )?tanto|de modo que|conque|por lo que"
        r"|entonces),? no (?:es|son|era|puede ser|sirve|vale)(?: (?:es[eoa]|est[eoa]|la \S+"
        r"|válid[oa]|posible))?(?=\s*[.)]?\s*$)|"
        r"sería\S* (?:\S+ ){0,4}?(?:si|en otr[oa]s?)|en otr[oa]s? (?:problema|caso|ejercicio"
        r"|situaci)\S*|a condición de que|digo yo|(?:sigo|sigue|seguimos) sin|sin respuesta|"
        rf"que (?:es|era|está|resultó) (?:\S+ )?(?:{_WRONG}|mal)|"
        r"^(?:[^\s\d.,;:]+ ){0,3}?(?:(?:no|tampoco|nunca|jamás|ya no)(?:\s*$| (?!(?:es "
        r"|son )?#)\S+)|ni hablar|"
        r"(?:se|me|nos) (?:\S+ )?equivo\S*|contradi\S+|viola|incumple|miente\S*|yerra\S*|comete\S*"
        r"|(?:ha |han |he )?olvid\S+|fallan?|discrepan?|"
        r"(?:lleg|llev|conduc|desemboc|termin|acab|ca)\S* (?:\S+ )?(?:a|en) (?:un |una |lo |algo )?"
        r"(?:absurd|imposib|incoheren|incongruen|inconsisten)\S*|deben? (?:descart|exclu|rechaz"
        r"|elimin)\S+|(?:es|son) (?:(?:ambos|ambas|también|igual|igualmente) )?posibles?(?=\s*$)|"
        rf"{_BE} (?:\S+ ){{0,3}}?(?:{_WRONG}|mal|mala respuesta|demasiad[oa]\S*|la (?:mala|trampa)"
        r"|trampa|sospechos[oa]|solo un\S*|sólo un\S*|un (?:paso|dato|resultado|valor)"
        r" (?:intermedio|parcial|auxiliar|más)|un distractor|una (?:suposición|conjetura"
        r"|hipótesis))"
        r"|(?:queda|quedó|quedaría|ha sido|fue|puede ser|debe ser|hay que|resulta) (?:\S+ )?"
        r"(?:descart|elimin|exclu|rechaz|tach|refut|desech)\S+|(?:fue|era|ha sido) (?:\S+ )?(?:mi"
        r"|su|la|un|una)"
        r" (?:prim|intent|respuesta (?:anterior|inicial)|idea|conjetura|hipótesis|intuición)\S*"
        r"|(?:podría|podrían|puede|pueden|pudiera|debería|deberían|habría|parece|parecen|parecía)"
        r"(?: \S+)?|hubie(?:ra|se)\S*|sería\S* (?:si|en))|"
        r"tal vez|quizás?|acaso|probablemente|posiblemente|seguramente|supuestamente|a lo mejor"
        r"|supongo|imagino|sospecho|intuyo|me parece|parece|diría yo|o eso (?:creo|parece|dicen)"
        r"|creo yo|según (?:mi|tu|su|un|una|algun\S*|otr[oa]s?|much[oa]s|él|ella|ellos|dicen?"
        r"|(?:el|la|los|las) (?:" + _PEOPLE + r")|\S+(?=\s*[.,;]?\s*$))"
        r"|a menos que|salvo que|salvo error|excepto (?:si|que|cuando)|a no ser que|siempre que"
        r"|siempre y cuando|con tal de que|de lo contrario|si no|en (?:el )?caso (?:de"
        r"|contrario)\S*"
        r"|si acaso|como mucho|como poco|si (?:n|x|k|m) |mal que|"
        r"(?:sol[oa]|sólo|únicamente) (?:si|cuando|en caso)|siempre que|dependiendo|según (?:si|el"
        r" caso)|depende|"
        rf"(?:si|de|como|donde|cuando) (?:\S+ ){{0,5}}?{_SUBJUNCTIVE}|de (?:no )?haber(?:se|le"
        rf"|lo)? \S+do"
        r"|con otr[oa]s (?:datos|condiciones|números)|en otr[oa]s (?:circunstancias|condiciones)"
        r"|(?:dice|dicen|afirma|afirman|asegura|aseguran|cree|creen|opina|opinan|sostiene|sostienen"
        r"|piensa|piensan|insiste|dijo|pensaba|respondió|contestó|propone|sugiere|me dijo"
        rf"|anuncia) (?:mi|un|una|el|la|tu|su|algun\S*|otr[oa]s?|much[oa]s) |"
        r"lo (?:cual|que) (?:\S+ ){0,3}?(?:no|nunca|tampoco|imposible|contradi\S*|viola\S*"
        r"|incumple\S*|"
        rf"{_WRONG})|cosa que no|algo que no|sin (?:éxito|llegar|conseguir|lograr|poder|encontrar"
        rf"|saber|resolver\S*|acabar|terminar"
        r"|dar con|resultado|entender\S*|solución)|"
        rf"que {_FAILS}|"
        rf"{_TURN},? (?:\S+ ){{0,7}}?(?:{_FAILS}|{_MISTAKE}|sin (?:estar|saber)\S*|falta\S*|habría"
        r"|hay que (?:revisar|rechazar|descartar)\S*|otr[oa] cosa|sobra|es otr[oa]|piden otr[oa]\S*"
        r"|pregunta\S*|(?:se |nos |me )piden?|demasiad[oa]|solo es|sólo es|es solo|es sólo)|"
        r"(?:aunque|pero|y|si bien|mas) (?:no|tampoco) (?:(?:lo|me|te|se|puedo|podría|sé|tengo|he"
        r"|hemos"
        r"|estoy|estamos|pongo|sabría) )+(?:\S+ )?(?:segur[oa]|sé|sabemos|saber|comprob\S+"
        r"|verific\S+"
        r"|certeza|jur\S+|demostr\S+|asegur\S+|garantiz\S+|resuelt\S+|resol\S+|convenc\S+|cómo|qué"
        r"|si|cuánt\S+|fío)|sin (?:estar|mucha|demasiada|ninguna|gran|tener la) (?:segur\S+"
        r"|certeza|convicción|confianza|convencid[oa])|con (?:muchas |serias |ciertas )?(?:dudas"
        r"|reservas)"
        r"|y (?:eso |esto |ese |esa |ella |él |ellos )?(?:\S+ ){0,2}?(?:es|está|están|era|estaba) "
        rf"(?:\S+ )?(?:{_WRONG}|mal)|y (?:se|me) equivoc\S+|y (?:está|están) equivoc\S+|y no (?:es"
        r"|son|era|eran|tiene|tienen|estoy|lo es|puede|cumple|sirve|vale|cuadra)|"
        r"¿(?:no|verdad|cierto|o no)"
    ),
    says=rf"""
        di(?:ce|cen|jo|jeron|jera)|decía\S*|decían|cree|creen|creyó|creyeron|creí|creía\S*
        |pens(?:é|ó|aba|aban|ábamos|aron)|piensa|piensan
        |afirm(?:a|an|ó|aba|aban|aron|ado)|sosten(?:ía|ían)|sostiene\S*|sostuvo|opina\S*
        |asegur(?:a|an|ó|aron|aba|aban)|mantiene\S*|insist\S+|jura|juran|juró|propone\S*|propuso
        |sugiere\S*|sugirió|responde|responden|respond(?:ió|ieron)|contest(?:a|an|ó|aron)
        |escrib(?:e|ió)|anotó|apuesta|supone|supuso|sospecha|imagina|estima|estimó|conjetur\S+
        |defiende\S*|declara\S*|alega\S*|pretende\S*|presume
        |(?<!se\s)conclu(?:ye|yó)|suponía\S*|esperaba\S*|supuse|estimé|aventur\S+|respondí|contesté
        |se suponía|anuncia|cuenta que|figura(?: en)?|pone en
        |(?:mi|tu|su|un|una|otr[oa]|el|la) (?:{_PEOPLE}) (?:\S+ )?(?:calcul(?:a|ó)|obtuvo|obtiene
        |da|dio|puso|pone|encontró|halló|llegó|llega|sacó|saca|eligió|marcó)
        |a (?:mi|tu|su|un|una|otr[oa]) (?:{_PEOPLE}) (?:\S+ )?le (?:da|dio|sale|salió|salen)
        |(?:primero|antes|inicialmente|al principio|en un principio|de entrada
        |en un primer (?:momento|intento)) (?:me |yo )?(?:obtuve|obtuvimos|calculé|puse|escribí
        |salió|salían|dio|daba|conté|llegué|supuse|respondí|anoté|dije|tenía)
    """,
    so=r"""
        (?:eso|esto|ese|esa|este|esta|aquello|#)[^:.;\n]{0,60}:
        |(?:(?:me|se|nos) (?:he |ha |han |hemos |había )?equivo\S+|no lo (?:es|son|era|eran)
        |no es (?:así|ciert[oa]|verdad|correct[oa])|no tiene\S* razón|mient[ae]\S*
        |no estoy de acuerdo|hay un error|había un error|no cuadra\S*
        |está\S* mal)(?: [^\s:.;]+){0,4}? ?:
        |#[^,.:;\d]{0,40}, (?:es|son|sino|será|serán|era|la respuesta|el (?:total|resultado|valor))
        |así que|así pues|por (?:lo )?tanto|por eso|por ello|por ende|entonces|luego|sino|pero
        |porque|ya que|puesto que|dado que|pues|por consiguiente|por lo que|lo que (?:da|deja|hace)
        |sin embargo|no obstante|de modo que|de manera que|de forma que|en consecuencia|conque
        |de ahí que|en cambio|en realidad|más bien|con lo (?:cual|que)|de donde
        |y (?:por|en) (?:eso|tanto|consecuencia)|y así|ahora bien
        |(?:y|mientras que|aunque|cuando|pues) la (?:respuesta|solución)(?: correcta| final
        | verdadera)?(?= (?:es|son))
        |y(?= (?:le|les|nos|me|te) (?:queda|sobra|falta|resta|sale))
        |y(?= (?:obtenemos|tenemos|llegamos|encontramos|hallamos|concluimos|nos quedamos))
        |(?:lo|la|el) (?:correct[oa]|verdader[oa]|buen[oa])(?= (?:es|son))
    """,
    certain=rf"""
        si y (?:solo|sólo) si|para no \S+
        |(?:ya que|porque|pues|puesto que|dado que) no (?:hay|existen?)(?! que)[^.;\d]*
        |^ ?(?:como|ya que|puesto que|dado que|debido a que) [^,;:]{{0,60}}?(?:no|nadie|ningún
        |ninguna|ninguno|nada|nunca) [^,;:]{{1,60}},
        |(?:número|cantidad|probabilidad|porcentaje|fracción|parte|total|maneras|formas)
        (?: [^\s\d,;:]+){{0,5}}? que (?!no (?:es|son) )(?:[^\s\d,;:]+ ){{0,11}}?[^\s\d,;:]+
        (?= (?:es|son) )
        |no (?:es|está|tiene|existe|admite) [^\s\d,;:]+(?: [^\s\d,;:]+)? (?:si y (?:solo|sólo) si
        |si|cuando|para|en)
        (?=\s*$| \$?[a-z] ?=)
        |si hay algo (?:\S+ )?(?:claro|seguro|cierto)(?: es)? que|no dud\S+ en absoluto
        |sin dudarlo(?: en absoluto)?
        |otr[oa]s? [^\s\d]+ no (?:la |lo |las |los )?(?:hay|existen?|caben?|quedan?)
        |^ ?(?:apenas|no bien) [^\d,:;]{{1,60}},
        |(?:aunque|si bien|por más que|por mucho que|pese a|a pesar de|en contra de|contra
        |contrariamente a|al contrario (?:de|que)|a diferencia de|lejos de|en lugar de|en vez de
        |más que|frente a|tanto si|ya sea|antes que|además de|aparte de|sin contar) (?:[^,:;]
        |,(?=\d))*[,:]
        |(?<!no\s)(?<!ni\s)(?:se puede|puedo|podemos|me atrevo a|se podrá) (?:\S+ )?(?:asegur|afirm
        |dec|conclu|comprob|ver|confirm|deduc|demostr|garantiz|verific)\S*(?: \S+)? que
        |(?:sol[oa]|sólo|únicamente|exclusivamente) (?:puede|podría|cabe)n?(?: ser| haber| quedar)?
        |^ ?(?:me|nos) (?:he |había |hemos |habíamos )?equivoc\S+(?: [^\s\d,:;]+){{0,6}}?[,:]
        |^ ?(?:tras|después de|luego de|una vez|habiendo|corrijo|corrig\S+|al corregir|al revisar
        |rectific\S+|olvid\S+|deshech\S+|resuelt\S+)[^,:;\d]{{0,80}}[,:]
        |^ ?(?:excepto|salvo|quitando|dejando)(?! (?:que|si|cuando|error|mejor))(?:[^,:;]
        |,(?=\d))*,
        |(?:tal (?:y )?)?como (?:bien |ya |muy bien |nos |se )?(?:dice|dijo|afirma|indica|muestra
        |señala|pide|explica|asegura|sostiene|hemos|vimos|ve)(?:[^,:;]|,(?=\d))*,
        |(?:según|de acuerdo con|conforme a) (?:mis?|nuestr[oa]s?|lo|hemos|vimos|se|los|el|las
        |la) (?:(?:que|lo) )?(?:cálculo|cuenta|dato|enunciado|texto|problema|anterior|hemos|visto
        |se|sabemos|razonamiento|operaci|dicho|ve|desprende|pide|regla
        |fórmula)\S*(?: [^\s\d,:]+){{0,6}}?,?
        |(?:quien(?:es)?|cualquier|toda?s?|las|los) (?:\S+ ){{0,3}}?(?:otr[oa]s?|lo contrario
        |distint[oa]|diferente|demás)[^.,;:\d]{{0,60}}
        |no (?:lo |te )?(?:dudes?|quepa duda)|espero no \S+ \S+
        |(?:(?:ya )?no (?:(?:nos|te|os|se) )?(?:importa|olvid\S+|le(?:s)? demos|demos
        |tiene (?:trampa|truco|misterio|dificultad)|nos queda|hace falta|es necesario|es preciso
        |necesitamos|necesito|hay (?:ninguna )?necesidad|queda nada|hay (?:que|nada|más)
        |tiene pérdida|hay (?:truco|trampa|misterio|engaño|vuelta de hoja)|le des|te preocupes
        |busques|sigamos|nos compliquemos|perdamos))(?:[^,:;]|,(?=\d))*[:,]
        |(?:no|tampoco) (?:hay|existe|existen|queda|quedan|cabe|caben|tiene|puede haber|vemos|veo
        |encontramos)(?: ningun[oa]| ningún)? (?:otr[oa]s?|más) [^\d:.;]{{0,50}}[:,]?
        |no (?:hay|existe|queda|cabe) otr[oa]
        |no (?:es|son|puede(?:n)? ser|podría ser|cabe|hay|queda|existe|era|fue|será
        |resulta) (?:(?:ningun[oa]|ningún|nada) )?(?:otr[oa]s?(?: \S+)?|más(?: \S+)?
        |nada más(?: ni nada menos)?|nada) (?:que|sino|salvo|excepto)
        |no (?:es|son|hay|quedan|tiene|puede ser) sino
        |no (?:\S+ ){{1,3}}?más que(?! #)
        |(?:ni|no) (?:más|menos) ni (?:menos|más)(?: que| de)?
        |(?:y )?no otr[oa](?: cosa| número| valor| cantidad| cifra| resultado)?
        |y (?:ningun[oa]|ningún) otr[oa](?: [^\s\d]+)?
        |no (?:es|son|puede(?:n)? ser|podría ser|hay|cabe|existe|da|sale)(?: (?:nada|algo|(?:ningún
        |ninguna|un|una|otr[oa]) \S+))? (?:distint[oa]|diferente)s? (?:de|a|al|que)
        |no (?:\S+ )?cuesta (?:[^\s\d:;]+ ){{0,2}}?(?:ver|comprobar|darse cuenta|calcular|deducir
        |entender|notar|reconocer|hallar|mostrar)(?: de)?(?: que)?
        |no (?:voy a (?:decir|añadir|alargar|extender)\S*|diré|diremos|digo|digamos|añadiré|añado
        |añadamos|me extenderé|me extiendo|me alargo|lo alargo|alarguemos|alargo
        |nos alarguemos)(?: [^\s\d,:;]+){{0,3}}[:,]
        |nada más(?: y nada menos| ni nada menos)?(?: que)?
        |y nada más|sin más|más que nada
        |ningun[oa] otr[oa](?: \S+)? (?:que|salvo)
        |(?:no (?:me |nos )?(?:hay|cabe|tengo|tenemos|queda|existe|deja|admite|ofrece
        |albergo) ?(?:lugar a )?(?:la menor |la más mínima |ninguna |la )?
        |sin (?:la menor |la más mínima |ninguna |ningún (?:género
        |tipo) de |lugar a |sombra de |asomo de |margen de )?|fuera de (?:toda )?
        |más allá de (?:toda )?|qué )dudas?(?: (?:alguna|cabe|razonable|posible))*
        |(?:sin|no hay)(?: ningún| posibilidad de| temor a| miedo a)? (?:error|equivocar(?:me|nos
        |se)|equivocación)(?: alguno)?
        |(?:nadie |ninguno |no (?:\S+ ){{0,2}}?
        |ni siquiera \S+ |imposible )(?:(?:lo |me |se )?(?:pued[eo]n?|podemos|podría|va a|debería
        |debe|quiere) )?(?:difícil|complicad[oa]|complicado|costoso|arduo|sorprend\S+|problemas?
        |extraña\S*|casualidad|coincidencia|impos\S+|fals[oa]|incorrect[oa]|erróne[oa]|mentira|mito
        |exagerad[oa]|absurd[oa]|dudar\S*|dud[oae]n?|dudaría|duda|niega\S*|niego|negar\S*|neg[aó]
        |negaría|neguemos|discut[eoi]\S*|cuestion[aoe]\S*|rebat[ei]\S*|rechaz\S+|error(?:es)? (?:en
        |al)|equivoc\S+ (?:al|si))
        |no (?:solo|sólo|únicamente)|indudablemente
        |no queda(?: más| otro)? remedio|no queda más de
        |no más de|no menos de|no por (?:eso|ello)|no obstante|cómo no(?=,|\s*$)|a que no
        |ni que decir tiene
        |ni qué decir tiene
        |no en vano|no es para menos
        |nada (?:difícil|complicado|raro|extraño|impide|más (?:fácil|sencillo|simple|claro
        |cierto))(?: de \S+)?
        |(?:ya )?no hay vuelta atrás
        |(?:si|cuando|como|que|quienes
        |aun si) no(?![^,]{{0,60}} {_SUBJUNCTIVE})(?: [^\s\d,]+){{1,7}}?(?=,)
        |^ ?(?:(?:una vez |tras |después de |al |ya )?(?:descart|exclu|elimin|rechaz|desech
        |quit)\S+)(?:[^,:;]|,(?=\d))*,
        |aunque (?:\S+ ){{1,3}}?(?:diga|crea|piense|opine|afirme|parezca|sorprenda|cueste|insista
        |asegure|sostenga|protesten?|resulte)[^:;\d]{{0,40}}
        |(?:digan?|pese|piensen?|crean?) (?:\S+ )?(?:lo que|quien|a quien) \S+|por supuesto
        |desde luego|claro está|naturalmente|evidentemente|obviamente
        |(?:el|nuestro|este) (?:enunciado|problema|texto|ejercicio) (?:nos )?(?:dice|dicen|afirma
        |indica|pide|asegura) que
        |según (?:el|los|las|lo|nuestro\S*|est[eoa]s?|es[eoa]s?|la) (?:enunciado|dato|dicho|texto
        |problema|ejercicio|cálculo|cuenta|operaci|razonamiento|que|anterior|fórmula|hipótesis
        |condici|tabla|gráfic|teorema|ley|regla)\S*(?: [^\s,\d]+){{0,4}},?
        |(?:pero|aunque|y) no (?:importa|hace falta|hay que|te preocupes|era fácil|es fácil
        |fue fácil|tod[oa]s|por (?:ello|eso)|lo parezca|parezca|sea evidente|lo creas
        |nos sorprenda)\S*
        |(?:comprobar|verificar|ver|revisar
        |repasar)(?:\S+)? (?:\S+ ){{0,3}}?no hay (?:\S+ )?(?:error(?:es)?|fallos?|contradicci\S+)
        |no (?:hay|contiene|veo|encuentro) (?:\S+ )?(?:error(?:es)?|fallos?|contradicci\S+)
        |^ ?no(?=[,:]| #,)
    """,
    sums=r"""
        los|las|sumamos|se|uno
        |\S*(?:sum|multiplic|rest|calcul|cont|divid)\S*(?:mos|s|o)
    """,
    other=rf"""
        (?:y |pero |que |,)*(?:no|nunca|jamás|ni|en (?:vez|lugar) de|antes que|más bien que|y no
        |mejor que|a diferencia de|frente a)(?: (?:es|son|era|eran|de|puede ser|pueden ser|los|las
        |el|la|un|una|como|a|hay|quedan?|tiene)){{0,2}} #(?: (?:ni|o) #)?
        |(?:que |lo que |y |es decir |o sea )?(?:(?:es|son|supone|supera|equivale|está) )?(?:más
        |menos|mayor|menor)(?:es)? (?:que|de) (?:los |las |el |la )?#
        |(?:que |y )?(?:(?:es|son|hay) )?# (?:[^\s\d,;]+ )?(?:más|menos|veces)(?: [^\s\d]+)? (?:que
        |de)(?: [^\s\d]+){{0,3}}? #
        |(?:que |lo que |y )?(?:supera|excede|rebasa|sobrepasa|está[n]? por (?:encima
        |debajo) de)\S*(?: (?:a|los|las|el|la|en))* #
        |(?:y |pero )?(?:el )?# (?:no|tampoco)(?=\s*[.!]?\s*$)
        |(?:(?:porque|ya que|pues|y|puesto que|dado que|mientras que|pero
        |que) )?(?:el |los |la )?# (?:no \S+(?: [^\s\d.,;]+){{0,5}}|(?:es|son|era|está|queda
        |resulta|sería) (?:[^\s\d]+ ){{0,2}}?{_WRONG}|(?:está|estaba) mal|(?:llev|conduc
        |da)\S* (?:lugar )?a (?:un |una )?(?:absurdo|contradicción|imposible))
        |(?:que |lo que |es decir |o sea )?(?:(?:es|son) )?(?:el|la) (?:doble|triple|mitad
        |cuádruple|tercera parte|cuarta parte|quinta parte|décima parte) (?:de|que) #
    """,
    retracts=rf"""
        (?:{_TURN},? )?(?:{_THIS} (?:[^\s\d]+ ){{0,5}}?)?(?:{_FAILS}|{_MISTAKE}|(?:no|nunca|jamás
        |tampoco)(?=\s*$)|no (?:puede|pueden|podía|es posible|estoy|estamos|creo|lo (?:es|son|sé))
        |ni hablar|qué va|olvíd\S+|olvidemos|bórr\S+|borremos|anul\S+|tach\S+|ignor\S+|mal(?=\s*$)
        |corrección|corrijo|rectifico|perdón|me retracto|retracto|demasiad[oa]|sospech\S+|pero no
        |es broma|era broma|o no(?=\s*$))
    """,
    throughout=rf"""
        (?:más bien|mejor) que\s*$
        |(?:si [^\d.;]{{1,80}}|^\s*,[^\d.;:]{{0,30}})#[^\d.;]{{0,30}} (?:y
        |mientras que) si(?! (?:\S+ )?(?:sum|añad|agreg|rest|quit|multiplic|cont
        |divid)\S*)[^\d.;:]*$
        |(?:si|de|como
        |aunque) [^.;:\d]{{0,60}}{_SUBJUNCTIVE}[^.;:\d]{{0,60}}{_CONDITIONAL}
        (?! que)(?: [^\s\d,;:]+){{0,3}}\s*$
    """,
    aside=r"""
        [–—-] (?:no|ni|sin|nada)
        |(?:, )?(?:tal (?:y )?como|como(?! (?:máximo|mínimo|mucho|poco|si))|que (?:es|son) (?:lo|la
        |el) que|aunque|pese a|a pesar de|cosa que|algo que|lo que|lo cual|pero|y (?:no|nada|eso|es
        |así|ningun[oa]|además)|sin|ya que|porque|puesto que)
    """,
    agrees=r"""
        ^\s*(?:[^\s\d,;:.]+ ){0,3}?(?:y|,(?: y)?|—|–|\(|, cosa que|, algo que
        |, en lo que)\s*(?:(?:en efecto|efectivamente|realmente|además|desde luego|por supuesto
        |creo que|yo|eso|esto|ese \S+|ella|él|también|así|lo cual|lo que) )*(?:(?:es|está|son|están
        |resulta|era|eran|me parece) (?:\S+ )?(?:correct[oa]s?|ciert[oa]s?|verdad|así|exact[oa]s?
        |bien|cierto|justo|acertad[oa]s?|en lo cierto)|(?:tiene|tienen|lleva
        |llevan) (?:\S+ ){0,2}razón|acierta|aciertan|acertó|acertaron|estoy de acuerdo|coincido
        |coincidimos|lo confirm\S+|confirm\S+|comprob\S+|así es|así son|lo es|lo son|comparto
        |estamos de acuerdo|no se equivoc\S+|no mient\S+)
    """,
    named=r"""
        respuesta|solución|resultado|conclusión|candidat[oa]|opción|alternativa|conjetura
        |(?:total|valor|número|monto)(?! (?:total )?(?:de|que|máxim|mínim))(?<!en\stotal)
        |(?:cantidad|cifra) (?:correcta|buscada|pedida|exacta)
        |lo que (?:se |nos )?(?:pide|piden|busca|pregunta)\S*
        |(?:respond|contest|escrib|apunt|anot)\S*(?: \S+)? # ?(?=[.,;:]|$)
        |^[^a-z]*(?:(?:así que|entonces|luego|pues|pero|y|por (?:lo )?tanto|por ende|por eso|no|sí
        |bueno|creo que|ser|es|son|serán?|serían?|sean?|puede que|puede[n]?|podrían?|será que
        |quizás?|tal vez|probablemente|posiblemente|seguramente|al final|finalmente)\W+)*#
        \x20?(?:[.,;:]|$)
        |#[^\d.;:]{0,40}, pero no
        |(?:es|son|será|serán|sean?|sería|serían|era|eran|ser) # ?(?=[.,;:]|$)
    """,
    story=rf"""
        (?<!no\s)(?:podr[áa]n?|podría[ns]?|pudiera[ns]?|pudo|pudieron|pueden?)(?! (?:que|ser
        |haber (?:sido|dado)|haber (?!\S+(?:do|to|cho) )|tener|quedar|valer|dar|afirm|respond
        |conclu|decir\S* que))(?:(?: [^\s\d,;:]+){{1,3}} (?:hasta|al menos|como (?:máximo|mínimo)
        |a lo sumo)\s*$)?
        |(?:como máximo|a lo sumo|al menos|por lo menos|como mínimo) (?:podr[áa]n?|pueden?
        |podría[ns]?|deben?|necesitan?|tienen? que)(?= \S+[aei]r)
        |(?:necesita[ns]?|deben?|debemos|hay que|tienen? que|tendrán? que|hacen? falta)
        (?: \S+[aei]r\S*)? (?:al menos|por lo menos|como mínimo|como máximo|a lo sumo)\s*$
        |no (?:deben?|debería[ns]?|pueden?|podrán?) (?:superar|exceder|sobrepasar|rebasar|pasar
        |pesar más|medir más|gastar más|costar más)(?: (?:de|los|las|el|la))*
        |(?:escrib(?:e|en|ía|ió|ieron|irá|irán)|respond(?:e|en|ía|ió|ieron|erá)|contest(?:a|an|ó
        |aron|ará)|anot(?:a|an|ó|aron)|propuso|sugirió|espera[n]?|esperaba[n]?|estim(?:a|an|ó)
        (?: que)?|cabría esperar que|(?:se )?espera que|declara|declaró)(?: (?:correctamente|bien
        |mal|incorrectamente))?
        |(?:respuestas|preguntas|problemas|ejercicios)(?: (?:son|fueron|eran
        |estaban))? (?:incorrect[oa]s|equivocad[oa]s|mal|incorrectamente|errónea?o?s)
        |(?:respond|contest|hizo|resolv)\S* (?:mal|incorrectamente)
        |probablemente(?! (?:es|son|sean?|haya|hay|qued[ae]n?|tienen?|tengan?|la|el|serán?)\s)
        |no (?:(?:se|le|les|lo|la|los|las|me|nos) )?(?:pud|pued|podr|logr|consig|quis|quier
        |alcanz)\S* (?!(?:ser|haber|tener|quedar|valer|dar|dec|afirm|conclu|asegur|respond|contest
        |garantiz|demostr|acept|confirm|determin|calcul|saber|sab|resolv|compr?ob)\S*)\S+[aei]r
        (?:se|l[oa]s?)?
        |(?:no|nunca|tampoco|jamás) (?:(?:se|le|les|lo|la|los|las|me|nos) )?(?:ha|han|había
        |habían) (?!(?:sido|dado|habido|tenido|quedado|salido|resultado|sabido|podido)\s)\S+[aid]do
        |(?:no|nunca|tampoco|jamás) (?:(?:se|le|les|lo|la|los|las) )?(?!(?:{_STATES}|{_KNOWN}
        |{_BE})(?: |$))(?!\S*(?:cre|piens|pens|dig|dec|dir|afirm|conclu|acept|segur|signif|implic
        |deb|consider|opin|cab|cuadr|equival|respond|contest)\S*)(?:\S{{2,}}(?:aron|ieron|ían|aban)
        |\S+[aei]rán|vino|vendrán|irán|van)
        |(?:no|nunca) (?:fue|fueron|es|era|eran|estuvo|estuvieron|estaba|estaban|tiene|tienen
        |tendrán?|tuvo|tuvieron|tenía|hay|hubo|trabaj\S+|llov\S+) (?:[^\s\d,;:]+ ){{1,4}}(?:en|de
        |durante|por|a)(?: los| las)?\s*$
        |(?<=[a-z]\s)(?:que|y|pero) (?:no|nunca|tampoco) (?!(?:es|son|era|puede|pueden|sé|estoy|lo
        |me|fue|sería|está|cumple|sirve|vale|cuadra|tiene sentido)\s)\S+
        |si (?:nadie|nada|ningún|ninguna|ninguno)|(?:ruta|plan|bolsa|caja|equipo|camino|grupo
        |tienda|empresa|clase|ciudad|opción) [a-z]
        |(?:tod[oa]s|vinieron|asistieron|aprobaron) (?:[^\s\d,;:]+ ){{0,4}}?(?:menos|excepto|salvo)
        (?: a)?(?: los| las)?\s*$
        |(?:al|tras|después de|luego de) (?:descart|elimin|rechaz|exclu|quit)\S+
        |(?:descart|rechaz|elimin)aron
        |(?<!no\s)(?<!ni\s)(?:lleg|sub|baj|ascend|ascien|pas|aument|disminuy)\S* (?:a|hasta)
        (?: (?:los|las))?\s*$
        |(?:suponiendo|asumiendo|supongamos|asumamos)(?: que)? (?!(?:n|x|k|m) )[^,;:]{{1,90}},
        |según (?:la|el|las|los|esta|este|dicha|dicho|su) (?!(?:{_PEOPLE})(?: |,))[^\s\d,;:]+
        (?: [^\s\d,;:]+){{0,3}},
        |si (?:(?:[^\s\d,;:]{{2,}}|a|y|e) ){{0,6}}?hubie\S+(?= [^.;]{{0,80}}{_CONDITIONAL})
        |^ ?de (?:no )?haber \S+do
        |habrían? (?!sido|dado|habido|tenido|quedado)\S+[aid]do
        |con otr[oa]s #
        |con #(?! (?:[^\s\d,;:]+ )?(?:más|menos))
        |(?:si|cuando|como) (?:(?:[^\s\d,;:]{{2,}}|a|y|e) ){{0,6}}?
        (?!hubie\S+ \S+[aid]do)(?:no )?{_SUBJUNCTIVE}(?=\s)
    """,
)
