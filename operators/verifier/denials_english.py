"""Denials of an answer in English, and doubts, conditions, bounds and the speech of others.

Each has a scope: a whole clause ("it is false that"), the next verb ("not"), or only what follows
at once ("other than"). A scope ends where another statement begins ("13 is wrong, so it is 12").
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .denial_tables import without_double_negations

_SENTENCE = re.compile(r"[.?!][\"'”’)*]*\s|\n")
_SENTENCE_END = re.compile(r"([.?!])[\"'”’)*$]*(?=\s|$)|\n|$")
_PAIR = str.maketrans({"’": "'", "‘": "'", "*": " ", "_": " ", "“": '"', "”": '"'})

# Negations that deny nothing, and permissions: they are left out before the tests.
_NO = r"(?:\b(?:not|never|no|no one|nobody|hardly|cannot|without|nothing|scarcely)\b|\b\w+n't\b)"
_HARMLESS = re.compile(
    rf"{_NO}(?: \w+){{0,3}}? (?:only|merely|hard|difficult|tricky|tough|surpris\w+|wonder|problem"
    rf"|trouble"
    r"|matter\w*|secret|need|necessary|forget|be (?:fooled|misled|tempted|put off|confused)|worry"
    r"|mind"
    r"|take (?:\w+ )?(?:long|much)|coincidence|accident|escap\w+|counting|including|considering"
    r"|way around|choice but|hesitat\w+|complicated|simpler|easier|clearer|last but"
    r"|last but not least"
    r"|doubt\w*|den(?:y|ied|ying)|disput\w+|disagree\w*|wrong|false|untrue|incorrect|mistaken"
    r"|mistake|error|impossible|unlikely|reject\w*|refut\w+|question(?! of)\w*|argu\w+ (?:with"
    r"|against"
    r"|about)"
    r"|contest\w*|contradict\w*|uncertain\w*|unclear|unreasonable|implausible|a lie|a myth|fail\w*"
    r"|exaggerat\w+)\b(?: (?:about|to|that|in|with))?"
    r"|\blast but not least\b|\bmore often than not\b|\bcontrary to (?:what|the|popular"
    r"|common)\b[^,]*,|\bbelieve it or not\b|\b(?:like|want) it or not\b"
    r"|\bwhether (?:or not|we|you|or)\b[^,]*|\bmake no mistake\b|\bsooner or later\b"
    r"|\bmore or less\b"
    r"|\bas (?:you|one|we|some|many|everyone)(?: all)? (?:might|may|could|can) (?:have )?\w+"
    r"|\b(?:perhaps|maybe) (?:not )?(?:un)?surprisingly\b|\bnot (?:un)?surprisingly\b"
    r"|\b(?:you|we|one|i) (?:may|can|could) (?:now |also |as well |safely |easily |therefore "
    r"|thus )*"
    r"(?:check|verify|see|conclude|say|note|write|find|infer|deduce|confirm|state|be (?:sure"
    r"|certain))\b"
    r"|\b(?:you|one|it|this|that) (?:may|might) (?:be )?(?:surpris\w+|astonish\w*|look|seem"
    r"|sound)(?: \w+)?"
    r"|\b(?:otherwise|differently) (?:stated|put|phrased|expressed)\b|\beither way\b"
    r"|\bin (?:either|any|each|every|all|this|that|both) cases?\b|\beven if\b[^,]*(?:,|$)"
    r"|\b(?:correct|fix|repair|avoid|resolv|catch|undo)\w* (?:the|this|that|my|our"
    r"|an?) (?:\w+ )?(?:mistake|error)\b"
    r"|\bif not more\b|\b(?:unlike|in contrast to|in spite of|despite|regardless of) [^,]*,"
    r"|\bif (?:there is )?(?:one|any) ?thing\b[^,:]*[,:]|\bno matter\b[^,:]*[,:]"
    r"|\bif (?:i'm|i am|we are|we're) not mistaken\b|\bif (?:you|we) (?:prefer|like|wish|will)\b"
    r"|\bif (?:my|our|the) \w+ (?:is|are) (?:right|correct)\b|\bif (?:necessary|needed|anything"
    r"|so)\b"
)
# Where another statement begins, the scope of all before it ends.
_NEW = re.compile(
    r";|\b(?:so|thus|therefore|hence|consequently|accordingly|however|nevertheless|nonetheless"
    r"|because"
    r"|namely|meaning that|i\.e\.|that is,)(?!\w)(?! (?:that|far|much|many|called)\b)"
    r"|(?<!anything )(?<!everything )(?<!nothing )(?<!all )(?<!\bany )(?<!value )"
    r"(?<!number )\bbut\b"
    r"|\b(?:and|to) (?:get|find|obtain|take|conclude|have|see|so)\b"
    r"|[,—–-] ?(?:yet|instead|rather|since|as|meaning|leaving|making|giving|yielding|which"
    r"|for a total)\b"
    r"(?! (?:than|of)\b)"
)
# The same for what denies only its own verb: another subject or verb begins.
_NEXT = re.compile(
    r"[,:—–]\s*(?:and |then )?(?:it|this|that|he|she|we|they|there|x|the|our|my|a|i|you|both|all"
    r"|only)\b"
    r"(?!['\"])|\band (?:it|he|she|we|they|there|the|that|this|our|my|is|are)\b|\bthen\b"
    r"|(?<=\d) ?=|[:—–]"
    r"|\b(?:is|are|was|were|am|has|had|does|did|will|would|can|could|must|should|equals|gives"
    r"|leaves"
    r"|makes|becomes|means|gets|yields|totals|remains|comes|needs|costs|got|gave|made|became|left"
    r"|leaving|giving|yielding|number|total|that|who|which)\b"
)
_LINK = (
    r"(?:be|been|being|equal|equals|exactly|quite|really|actually|necessarily|possibly|simply"
    r"|in fact|of"
    r" course|indeed|just|ever|at all|any longer|anymore|also|the|an?|our|my|its?|this|that|value"
    r"|number|"
    r"answer|result|solution|option|choice|possibility|final|correct|right|total|sum|to|as|of|is"
    r"|was|"
    r"are|were|would|will|should|must|has|have|it's|come|comes|out|get|got|have|give|gives|gave"
    r"|make|"
    r"makes|there|only|all|about|some|around|approximately|roughly|x|y|n)"
)
_GAP = rf"[\s\"'(\[{{$\\,]*(?:\b{_LINK}\b[\s\"'(\[{{$\\,=:]*)*$"
_CLAUSE = (
    r"[\s\"',:]*(?:that |if |whether |when )?(?:(?:the|our|my|this|its?"
    r"|an?) )?(?:\w+ ){0,2}?(?:answer|"
    r"result|solution|total|value|it|x|we|you|she|he|they|there|sum|number|one)\b"
)


_WRONG = (
    r"(?<!number of )(?<!to )(?:false|untrue|wrong|incorrect|mistaken|erroneous|inaccurate|absurd"
    r"|nonsense|ridiculous"
    r"|misleading"
    r"|foolish|silly|crazy|rash|hasty|dishonest|premature|unreasonable|impossible|unlikely"
    r"|improbable|implausible|doubtful|dubious"
    r"|questionable|debatable|uncertain|unclear|untenable|inconceivable|unthinkable|invalid|flawed"
    r"|unproven|unfounded|bogus|fake|faulty|ruled out|rejected|discarded|eliminated"
    r"|refuted"
    r"|disproved|unacceptable|contradictory|incompatible|out of the question)"
)
_FALSEHOOD = (
    r"(?:mistake|error|fallacy|misconception|myth|lie|falsehood|blunder|illusion"
    r"|distractor"
    r"|decoy|misprint|typo|rumou?r|misreading|miscalculation|joke)"
)
_FOUND = (
    r"(?:answer|result|value|solution|option|choice|number|guess|conclusion|total|response|figure"
    r"|claim"
    r"|statement|sum|estimate|candidate|reply|belief|idea|assumption|one|alternative|outcome"
    r"|hypothesis)s?"
)
# In the clause of an answer, wherever it begins: these have a whole clause in their scope.
_CLAUSAL = re.compile(
    rf"\b{_WRONG}(?: of (?:you|us|me|him|her|them))?,?\s+(?:that|if|whether|for|to \w+)\b"
    rf"|(?<!\bis )(?<!\bwas )(?<!\bare )(?<!'s )\b{_WRONG}(?: {_FOUND})?\W*:"
    rf"|\bfollowing\b[^:]*\b{_WRONG}\W*:|(?<!\bmy )\b{_FALSEHOOD}\b[^,;]{{0,40}}?(?: (?:that|to"
    rf"|if)\b|:)"
    rf"|\b{_FALSEHOOD} (?:is|was|would be) to \w+{_GAP}"
    rf"|{_NO}(?: \w+){{0,3}}? (?:true|the case|so|correct|right|accurate|certain|sure|clear"
    rf"|convinced"
    r"|possible|valid|evident|obvious|likely|plausible|justified|proven|proved|given|known"
    r"|established"
    r"|guaranteed|reasonable|fair|safe|credible|conceivable|acceptable|permissible|allowed)"
    r"(?: at all)?(?:,?\s+(?:that|if|whether|for|to \w+)\b|:)"
    rf"|{_NO}(?: \w+){{0,3}}? (?:think|believe|say|claim|agree|accept|conclude|suppose|imagine"
    rf"|expect"
    r"|assert|assume|know|follow|confirm|guarantee|prove|tell|imply|suggest|argue|maintain|hold"
    r"|mean"
    rf"|recommend|answer|reply|write|hold|swear|reason to \w+|evidence|proof|grounds|chance|way"
    rf"|sign)\b"
    rf"(?={_CLAUSE}|[\s,]*(?:that|if|whether)\b|{_GAP})"
    r"|\b(?:i|we|you|he|she|they|one|people|must|to|can|cannot|should|would|will"
    r"|\w+ly) (?:\w+ly )?"
    r"(?:den(?:y|ies|ied)|doubt(?:s|ed)?|reject(?:s|ed)?|refute[sd]?|dispro\w+|dispute[sd]?"
    r"|disagree[sd]?"
    r"|contest(?:s|ed)?|rule[sd]? out|exclude[sd]?|eliminate[sd]?|discard(?:ed|s)?|dismiss(?:ed"
    r"|es)?"
    r"|refuse[sd]?|wonder(?:s|ed)?|question(?:s|ed)?|avoid(?:s|ed)?)\b"
    rf"(?={_CLAUSE}|[\s,]*(?:that|if|whether|to (?:be|accept|believe|say|equal|give))\b|{_GAP})"
    rf"|\b{_WRONG}(?:[ -]\w+){{0,2}}? {_FOUND}\b(?: (?:here|there|to \w+|given|above|is|was|are"
    rf"|were"
    rf"|would be|would have been|that|we|i|you|reads|being|often|usually|sometimes|of))*{_GAP}"
    r"|\b(?:mistaken|erroneous|false)ly\b|\bused to be\b|\b(?:wrong|incorrect)ly (?:claim|answer"
    r"|sa[iy]"
    r"|stat|believ|assum|giv|writ|conclud)\w*"
    r"|^\W*(?:ignore|disregard|forget|scratch|strike|discard|drop|dismiss|never mind|cross out"
    r"|erase|delete"
    r"|scrap)\b"
    rf"(?:(?: \w+){{0,3}}:)?{_GAP}"
    r"|\bno question of\b|\b(?:i|we) (?:\w+ )?(?:withdraw|take back|retract|revoke)\b"
    r"|\bcontrary to [^,]*$|\bhard to (?:believe|imagine|accept|defend)\b"
    r"|\bunder no circumstances\b|\bby no means (?:is|are|does|do|can|was|will|should)\b"
    r"|\bin no (?:way|case) (?:is|are|does|do|can|was|will|should)\b|\bno way\b"
    r"|\b(?:never|at no time|nowhere) (?:is|are|does|do|can|was|will|should|could|would|did) "
    rf"|\bfar from\b(?={_CLAUSE}|{_GAP})|\bthere is no (?:way|chance|evidence|reason|proof)\b"
    r"|\b(?:tempting|naive|common|popular|typical|usual|frequent) (?:\w+ )?(?:guess|mistake|error"
    r"|trap"
    r"|misconception|wrong)\b"
)
_DOUBT = re.compile(
    r"\b(?:maybe|perhaps|possibly|probably|presumably|conceivably|potentially|seemingly|apparently"
    r"|arguably|plausibly|allegedly|supposedly|reportedly|purportedly|hypothetically|might"
    r"|hypothetical|(?:i|i'd|would|my|best|a|only|just|wild|educated|rough)(?: \w+)? guess"
    r"|could (?:\w+ )?(?:be|equal|have been)|may (?:\w+ )?(?:be|equal|have been|turn out)"
    r"|(?:seem|appear|look)s? (?:that|to be|like|to equal|as if)|tempt\w+ to"
    r"|possibility (?:is )?(?:that|the|it)"
    r"|there(?: is|'s) (?:an? |some )?(?:\w+ )?(?:chance|probability|likelihood) (?:that|the|it)"
    r"|(?:is|was|be|seems|quite|very) likely|likely that|chances are|not sure"
    r"|unsure|uncertain"
    r"|who knows|wonder(?:ing)? (?:if|whether)|question (?:is|was|of) (?:if|whether)|whether"
    r"|is it)\b"
)
_SPEAKS = (
    r"(?:sa(?:y|ys|id)|(?:told|tells?) (?:me|us|him|her|them)|claim(?:s|ed)?|thinks?|thought"
    r"|believe[sd]?|guess(?:es|ed)?|argue[sd]?"
    r"|insist(?:s|ed)?|assert(?:s|ed)?|suggest(?:s|ed)?|reckon(?:s|ed)?|suppose[sd]?|maintain(?:s"
    r"|ed)?"
    r"|answer(?:s|ed)|repl(?:y|ies|ied)|state[sd]?|declare[sd]?|suspect(?:s|ed)?|contend(?:s|ed)?"
    r"|allege[sd]?|assume[sd]?|hope[sd]?|expect(?:s|ed)?|swears?|swore|pretends?|wrote|writes?"
    r"|feels?"
    r"|conclude[sd]|propose[sd]?|respond(?:s|ed)?)"
)
_OTHERS = re.compile(
    rf"(?<!\bwe )(?<!\bi )(?<!\bwe can )(?<!\bwe may )\b(?!(?:we|i|this|that|which|it|calculation"
    rf"|equation"
    rf"|formula|theorem|algebra|result|rule|math|table|graph|work|step|diagram|and|to|can|then"
    rf"|must|is|be"
    rf"|as|so|problem) )[\w']+ (?:(?:also|always|still|once|often|even|will|would|might|may|have"
    rf"|has|had"
    rf"|\w+ly) )*{_SPEAKS}"
    rf"(?=[\s,:\"']*(?:that )?[\"']?(?:(?:the|our) (?:\w+ )?(?:answer|result|solution|total)|it"
    rf"|it's)\b"
    rf"(?: \w+){{0,3}}?\s*[$\\\"'({{]*$"
    rf"|(?<!\bhe \w\w\w\w)(?<!\bshe \w\w\w\w)(?<!\bhe \w\w\w\w\w\w)"
    rf"(?<!\bshe \w\w\w\w\w\w)[\s,:\"']*(?:that )?[\s\"'$\\({{]*$)"
    r"|\b(?:i|we) (?:\w+ )?(?:thought (?:it|the|that|of)|used to|guessed|suspected|misread"
    r"|first (?:thought|got|guessed|wrote|found|said))\b"
    r"|\baccording to (?!(?:the|our|this|these)\b|\w+'s? (?:formula|theorem|law|rule|identity"
    r"|inequality|method|lemma)s?\b)"
    r"[^,]{1,40},|\bit is (?:often |sometimes |widely |commonly )?(?:sa(?:id)|claimed|believed"
    r"|rumou?red"
    r"|alleged|thought|assumed|suggested)\b|\brumou?r has it\b|\bin (?:his|her|their) (?:opinion"
    r"|view)\b"
)
# These have only what follows at once in their scope.
_NEAR = re.compile(
    rf"(?:(?:\b(?:anything|everything|something|nothing|any|every|each|some|no)(?: \w+)? (?:but"
    rf"|except|"
    r"excluding|other than|else than|save|besides|apart from|aside from)|\bother than"
    r"|\bexcept(?: for)?"
    r"|\bapart from|\baside from|\bdifferent (?:from|than|to)|\bdiffer(?:s|ed|ing)? from"
    r"|\bdistinct from"
    r"|\bunequal to|\bunlike|\bopposed to|\binstead of|\brather than|\bin place of|\bopposite of"
    r"|\bcontradicts?|\bnowhere (?:near|close to)|\bexcluding|\bneither(?! (?:is|was|are|were)\b)"
    r"|\bnor|\bwithout"
    r"|\b(?:rul\w+|ruled) out|\bin lieu of|\binconsistent with|\bincompatible with)\b)"
    rf"{_GAP}"
)
_DENIAL = re.compile(
    r"\b(?:not|never|cannot|hardly|scarcely|neither(?! (?:is|was|are|were)\b)|nor|by no means"
    r"|in no way|ain't|on no account"
    r"|no longer)\b|n't\b"
    r"|\bfail(?:s|ed)? to\b"
)
_NOBODY = re.compile(
    r"(?:^|[,;:]|\bthat\b|\band\b)\s*(?:nobody|no one|no-one|nothing"
    r"|none(?: of (?:\w+ ){0,2}\w+)?|not (?:one|"
    r"a single|any) \w+|neither of \w+(?: \w+)?|no (?!more\b|less\b|fewer\b|\w+ (?:is|are"
    r"|was) left)\w+"
    r"(?: \w+)?)(?P<rest> (?!else\b)[^,;:=]{0,60})$"
)
_LESS = (
    r"(?:(?:less|more|fewer|greater|larger|smaller|bigger|higher|lower|better|worse|other) than"
    r"(?: or equal to)?|exceed(?:s|ed|ing)?|surpass\w*|at (?:most|least)|up to|under|over|above"
    r"|below"
    r"|beyond|between|close to|near|nearly|almost|short of|shy of|within|bounded by|approach\w*"
    r"|tops?)"
)
_IS = (
    r"(?:is|are|was|be|must|should|can|will|would|has|have|to|lies|falls|comes|somewhat|slightly"
    r"|just"
    r"|much|an?|little|bit|strictly|always|not|cannot|never|stays|remains|somewhere|well|far|any"
    r"|number)"
)
_TOTAL = r"(?:answer|result|solution|it|x|n|value|total|sum|amount|maximum|minimum|price|cost)"
_ANSWER = r"(?:the|our|my) (?:\w+ )?(?:answer|result|solution)"
_PART = (
    r"(?:square|cube|root|reciprocal|negative|opposite|multiple|divisor|factorial|inverse"
    r"|logarithm|double|triple|half|third|quarter|percent)"
)
_COMPARED = re.compile(
    rf"\b{_TOTAL}\b(?! up to\b)(?: {_IS})* {_LESS}[\s$\\(]*$"
    rf"|\b(?:(?:twice|thrice|double|triple|half|\w+ times)(?: of)?|{_PART} of|divisible by"
    r"|divided by|multiplied by|times|plus|congruent to|as (?:large|big|much|high|long|old"
    r"|great|small|few|heavy|tall|low) as)[\s$\\(]*$"
    r"|\beither\b[^,;]{0,30}\bor\b[^,;\d]{0,12}$|\bbetween\b[^,;]{1,20}\band\b\W*$"
    r"|\d[^.;,]{0,30}\b(?:missing|needed|lacking|required|to go)\b[^.;,]{0,12}\b(?:reach|get to"
    r"|make|arrive at"
    r"|come to)"
    r"[\s$\\(]*$"
    r"|\b(?:more|less|fewer|greater|larger|smaller|bigger|higher|lower) than[\s$\\(]*$"
    # "12 less than 20", and what holds of a function of the answer.
    r"|\d[\s$)}*]*(?:\w+ )?(?:(?:more|less|fewer|greater|larger|smaller|bigger|higher|lower) than"
    r"|short of|shy of|away from|off|above|below|under|over|from|ahead of)[\s$\\(]*$"
    rf"|\b{_PART} of {_ANSWER}\b|\b(?:twice|thrice|double|triple|half|than) {_ANSWER}\b"
    rf"|\b(?:add|subtract|multipl|divid|doubl|tripl|squar)\w*(?: (?!to )\w+){{0,3}}(?: to| from"
    rf"| by)? {_ANSWER}\b(?![^.;]*\b(?:get|gives?|giving|obtain|yields?|makes?|find|have|is)\b)"
    r"|\b(?:the|our|my) (?:\w+ )?(?:answer|result) (?:plus|minus|times|squared|cubed|modulo"
    r"|(?:divided|multiplied|increased|decreased) by)\b|\b(?:the|our|my) (?:\w+ )?answer"
    r" (?:has|contains|ends|starts|begins)\b"
)
_SUPPOSED = re.compile(
    rf"\b(?:suppose|assume|imagine|pretend|let us say|let's say|supposing"
    rf"|assuming)(?: that)?(?={_CLAUSE}[^,]*$|{_GAP})"
)
_CONDITION = re.compile(
    r"\b(?:(?P<if>if|when)|in (?:the )?(?:case|event)(?: that| of)?|provided|providing|whenever"
    r"|as long as"
    r"|so long as|on (?:the )?condition|unless|depending on|only (?:if|when))\b"
    r"(?P<what>[^;]*?)(?:,|\bthen\b|(?=\d))"
)
_ANSWERS = re.compile(
    r"^\W*(?:then |in that case,? )?(?:(?:the|our|my) (?:\w+ )?(?:answer|solution|result)\b"
    rf"|(?:it(?: is|'s| equals| would| will| must| should)|x|we (?:would|should)|is |are "
    rf"|be )?{_GAP})"
)
_STATED = re.compile(r"\b(?:answer|solution|result)\b|\bit(?: is|'s| equals| would be) *$|^\W*$")
_ACTS = re.compile(
    r"^\W*(?:(?:we|you|one|i)\b(?! (?:\w+ )?(?:count|includ|ignor|assum|interpret|allow|exclud"
    r"|permit|requir"
    r"|read|treat|mean|want|insist|accept|suppos)\w*)|(?!(?:no|any|every"
    r"|some)thing\b)\w+ing\b(?! that)"
    r"|[^,]*\b(?:is|are|was|were|been) (?:\w+ )?(?:add|multipl|subtract|divid|combin|summ|total"
    r"|count|put|"
    r"tak|work|simplif|round|comput|calculat|sold|us|remov|join|merg|taken)\w*"
    r"|[^,a-z]*[a-z]{2,}[^,]*\d)"
)
_VARIABLE = re.compile(
    r"(?<![a-z'\\])[b-hj-z](?![a-z'])|\\?\b(?:even|odd|prime|positive|negative|integer)\b"
)
_OTHERWISE = re.compile(
    r"(?:\botherwise|(?:^|[,;:]) ?else|\bor else|\bif not|\bfailing that)\b,?(?P<rest>[^;]*)$"
)

_CLOSES = r"^(?:[\s$*)\]}\"'.,!%]|\\[)\]])*"
_UNIT = r"(?:(?!is|are|was|which|that|and|but|or|if|too|not)[a-z]+ ){0,2}?"
_VALID = (
    r"(?:(?:the|our|my|an?|in|at) )?(?:(?:final|correct|right|true|actual|real|wanted|required"
    r"|desired|"
    r"valid|possible|proper|good|all) )*(?:answer|solution|correct|right|true|it|valid|possible"
    r"|what|so|the"
    r" case|acceptable|allowed|accepted|fact|result|value|option|plausible|sure|certain"
    r"|final)\b(?! until)"
)
_BAD = (
    rf"(?:{_WRONG}|(?:too |way |far |much )+(?:big|small|large|high|low|many|few|much|little)|off\b"
    rf"|an? (?:\w+ )?{_FALSEHOOD}|(?:the|an?|my|our) (?:\w+ )?{_WRONG}|not (?:at all |really "
    rf"|quite |even )?"
    rf"{_VALID}|inadmissible|excluded|no (?:solution|answer|good)|ruled out|a guess|only a guess"
    rf"|just a guess)"
)
_BE = (
    r"(?:is|was|would be|will be|must be|has to be|should be|can be|could be|may be|might be"
    r"|seems|looks"
    r"|sounds|turns out to be|proves|appears|would have been|remains)"
)
_NOT = (
    r"(?:can ?not|can't|could(?:n't| not)|must(?:n't| not)|does(?:n't| not)|won't|will not"
    r"|would(?:n't| not)"
    r"|isn't|is not|was(?:n't| not)|fails?(?: to)?|never|hardly|should(?:n't| not)|is never"
    r"|can never)"
)
_WORKS = (
    rf"(?:be {_VALID}|{_VALID}|be(?=\W*$|,)|work|works|hold|holds|fit|fits|satisf\w+|make sense"
    rf"|makes sense|check out"
    r"|add up|apply|stand|solve|match|answer|qualify|suffice)\b"
)
_PRONOUN = (  # "12 shirts that are too small" is of the story.
    r"(?:(?<=, )that|(?<=but )that|(?<=and )that|(?<=[,t] )that's|which|this|it|it's|they|he|she"
    r"|those|these|i|i'm|we|everyone|most people)"
)


def _refuted(unit: str, verb: str) -> re.Pattern[str]:
    return re.compile(
        rf"{_CLOSES}(?:{unit}(?:{verb}) (?:\w+ly |simply |just |all |surely |of course )?{_BAD}"
        rf"|{unit}{_NOT} (?:\w+ly |even |really )?{_WORKS}"
        rf"|{_UNIT}(?:(?:drops?|falls?) (?:out|away)\b|violate[sd]?|contradict(?:s|ed)?|(?:fail(?:s"
        rf"|ed)?|conflicts?|breaks?|clashes)"
        r" (?:the|to|both|this|that|our|with|every|each|either)"
        r"|(?:leads?|led|gives?|results?|ends?) (?:(?:to|in|us to) )?(?:an? )?(?:\w+ )?"
        r"(?:contradiction|absurdity|impossib\w+|conflict))\b|,? it (?:\w+ly )?(?:is"
        r"|was) (?:\w+ly )?not\b|, never\b"
        rf"|{_UNIT}(?:is|was) (?:only |just |merely )?what \w+(?: \w+)? (?:wrote|said|got|claim\w*"
        r"|answered|guessed|thought)\b"
        rf"|{_UNIT}was (?:only |just |merely )?(?:my|the|our) (?:\w+ )?(?:guess|idea|thought"
        rf"|attempt"
        rf"|try"
        r"|estimate|impression|answer|result|value)\b"
        rf"|,? as [^.,;\d]{{1,40}}, (?:{_BE}) (?:\w+ly )?{_BAD}"
        r"|(?:(?!(?:is|are|was|were|which|that|and|but|or|if|too|not|because|since|before|as|when"
        r"|after|until|while|will|did|does|do|can|could|would|has"
        r"|have|had)\b)[a-z]+ ?){0,2}?,? ?(?:and |but "
        r"|though |although |yet |however,? |while |or |nor |which |—|–|-)*\(?"
        rf"(?:{_PRONOUN} (?:\w+ ){{0,3}}?(?:{_BAD}|disagree|doubt\w*|{_NOT} {_WORKS}|not (?:sure"
        rf"|certain"
        r"|convinced)|unsure|uncertain|wrong|denie[sd]|deny|reject\w*)"
        r"|(?<=[(,—–-] )(?:not|wrong|incorrect|false|untrue)(?:[!)]|[.\"' ]*$)|(?<=[(,—–-])(?:not"
        r"|wrong|incorrect|false|untrue)(?:[!)]|[.\"' ]*$))"
        rf"|[^.;,\d]{{0,40}},? (?:but|and|yet) (?:it|this|that)(?: {_BE}|'s) (?:\w+ly )?{_BAD}"
        r"|[^.\d]{0,60}\b(?:contradiction|absurdity)\b"
        rf"|[^.;\d]{{0,40}},? (?:but|yet) (?:it |this |that )?{_NOT} (?:\w+ly )?{_WORKS}"
        r"|[^.;\d]{0,40}, (?:but|yet) (?:he|she|they|i|we) (?:\w+ )?(?:forgot|miscalculated|misread"
        r"|missed"
        r"|overlooked|erred|slipped|made an? (?:\w+ )?(?:mistake|error))\b"
        r"|[^.;\d]{0,40}[,;] (?:but|yet|though|although) (?:\w+ ){1,3}(?:is|are|was"
        r"|were) (?:\w+ly )?"
        r"(?:wrong|mistaken|incorrect|lying|unreliable|in error))"
    )


_REFUTED = _refuted(_UNIT, _BE)
_REFUTED_STORY = _refuted("", r"(?:is|was|would be|must be|can be|seems|looks|proves)")
# What is left open behind an answer: "but nothing is said about the end".
_LEFT_OPEN = re.compile(
    r"^[^.\d]{0,60}(?:[,;] (?:but|though|although|yet|however|while|which|i)"
    r"|;)\b[^.\d]*?\b(?:nothing (?:is"
    r"|was) (?:said|known|stated)|(?:not|never|n't) (?:\w+ )?(?:how|exactly|manage|succeed|able"
    r"|stated|said|asked|specified|known"
    r"|given|mentioned|what|say|know|tell|the question|needed|solve|true|hold|the case)|unknown"
    r"|(?:cannot|can't|can not|could not|couldn't) (?:\w+ )?(?:be )?(?:found|determined|known"
    r"|computed"
    r"|decided|tell|say|know|solve|find|verify|confirm|assume)|no idea|unable|remains? open)"
    r"(?! (?:otherwise|more|why|the (?:truth|obvious)))\b"
)
# "The claim that she has 12 is not true": whose clause an answer is in, and how it ends.
_CLAIM = re.compile(
    r"^\W*(?:so |but |and |however,? )?(?:(?:the|this|that|a|any|his|her|their"
    r"|my) )?(?:\w+ )?(?:claim|statement"
    r"|assertion|idea|assumption|belief|notion|suggestion|theory|view|hypothesis|conclusion"
    r"|argument"
    r"|answer|guess) (?:that|of)\b|^\W*(?:that (?:the|it|x|he|she|they)|(?:to|by) \w+ that|saying"
    r"|claiming|concluding|answering|believing)\b"
)
_CLAIM_FAILS = re.compile(
    rf"\b(?:{_BE}|has been|must) (?:\w+ly )?(?:{_BAD}|{_FALSEHOOD})|\b{_NOT} (?:\w+ly )?{_WORKS}"
)
_CONFIRMED = re.compile(
    rf"{_CLOSES}(?:\w+ ){{0,2}}?\W*(?:and |which |—|–|-)*(?:that|this|it|he|she|they|i)?"
    r"(?: \w+)?(?:'s| ?\bis| ?\bare| ?\bwas| ?\bagree)(?: (?:\w+ly|indeed|quite"
    r"|also))*(?: (?:right|correct|true"
    r"|in agreement)\b|\b(?<=agree))"
)
_HEDGED = re.compile(
    rf"{_CLOSES}{_UNIT},? ?\(?(?:(?:or )?(?:maybe|perhaps|possibly|probably"
    rf"|presumably)\b(?! (?:not )?(?:un)?surp)"
    r"|i (?:guess|suppose|would guess)\b|or (?:so|something|not|else|other)\b|at best\b"
    r"|give or take"
    r"|if (?:at all|any)\b|(?:is|are) (?:just |only |merely )?(?:a |one |my )?(?:\w+ )?(?:guess"
    r"|possib\w+)"
    r"|(?:might|may|could) (?:\w+ )?be (?:right|correct|it|the|wrong|true|so)\b|is (?:maybe"
    r"|perhaps|probably|possibly|likely|doubtful)"
    r"|or (?:more|less|fewer|higher|lower|above|below)\b|or [$\\(]{0,3}\d(?![\d.,]*\s?\\?%)"
    r"|likely\b)"
)
_RELATED = re.compile(
    r"^(?:[\s$*)\]}%]|\\[)\]])*(?:[a-z]+ ){0,2}?(?:(?:short of|shy of|away from|(?:less|more"
    r"|fewer|greater|larger|"
    r"smaller|higher|lower|bigger) than|above|below|under|over|off|from) [$\\]?(?:\d|twenty"
    r"|thirty|forty|fifty"
    r"|a hundred|one hundred)|too (?:many|few|much|little|high|low|big|small|large)\b)"
    r"|^(?:[\s$*)\]}]|\\[)\]])*(?:(?:plus|minus|times|divided by|multiplied by|modulo"
    r"|to the power) [$\\]*"
    r"(?:\d|boxed)|squared\b|cubed\b)"
)
_ONLY_IF = re.compile(
    r"^(?:[\s$*)\]}%.,]|\\[)\]])*(?:[a-z]+ ){0,2}?[,;(]? ?(?:(?:only |but only |and only "
    r"|exactly |just )?"
    r"(?P<if>if|when)\b|(?P<always>(?:or )?otherwise|or else|unless|depending on)"
    r"|provided|providing|as long as|so long as|in case|on condition|whenever"
    r"|were(?= (?:it|there|the|n|x|he|she|they|we|i|all|every|a)\b)|only"
    r" (?:if|when))\b"
    r"(?P<what>[^.;]*)"
)
_TAKEN_BACK = re.compile(
    r"^\W*(?:(?:no|nope|wrong|incorrect|false|not|just kidding|kidding|not true|not really|psych"
    r"|or not"
    r"|not correct|not right|maybe not|maybe|perhaps|perhaps not|or maybe not)\W*$|(?:no|nope"
    r"|wrong|incorrect|false"
    r"|just kidding|not true)[,.!:—-]|"
    rf"(?:(?:but|no|wait|however|sorry|oh|actually|and|at least|of course|yet|although|though),? )*"
    rf"(?:(?:that|this|it|the above)(?: \w+)?? (?:\w+ly |just )?(?:{_BE} "
    rf"|'s )?(?:\w+ly )?(?:{_BAD})(?! (?:to|for|if|only)\b)"
    rf"|(?:that|this|it) {_NOT} be(?=\W*$|,)"
    r"|(?:that|this|it)(?: \w+)?(?: \w+ly)? (?:fails|violates|contradicts|does not"
    r"|doesn't) (?:\w+ )?"
    r"(?:meet|satisfy|fulfil\w*|fit|check|work|hold|the)\b"
    rf"|(?:that|this|it)(?: answer| result| value| claim"
    rf"| statement)? {_NOT} (?:\w+ly )?(?:be )?{_VALID}(?! (?:to|for|if|whether)\b)"
    r"|(?:i|we) (?:doubt|disagree|reject|do not|don't|am not|are not|was|were) ?(?:agree|believe"
    r"|think so|that"
    r"|it|this|so|accept|sure|certain|wrong|mistaken|kidding|joking|with that)\b(?! if)))"
)


class _Surroundings(NamedTuple):
    """What stands around an answer, in lower case."""

    left: str  # from the beginning of its sentence
    right: str  # up to the end of its sentence
    ends: str  # the mark that ends it, empty where there is none
    next: str  # the sentence behind it


def is_denied_in(text: str, start: int, end: int, computed: bool) -> bool:
    """Return whether the sentence around the answer text[start:end] takes it back.

    Args:
        text: the answer with what is read on both sides of it.
        start: of the answer.
        end: of the answer.
        computed: whether an equation of numbers precedes it, so that conditions and doubts are
            about the story: "if she sells all, she gets 3 * 4 = 12".
    """
    found = _sentence(text, start, end)
    left, right = _HARMLESS.sub(" ", found.left), _HARMLESS.sub(" ", found.right)
    right = _TAG.sub("", right) if found.ends == "?" else right
    clause = left[_last(_NEW, left) :]
    named = bool(_OF_ANSWER.search(clause))
    refuted = _REFUTED if named else _REFUTED_STORY
    if _is_negated(clause, named) or refuted.search(right) or _TAKEN_BACK.search(found.next):
        return True
    if _CLAIM.search(left) and _CLAIM_FAILS.search(right):
        return True
    if computed:
        return False
    if _CONFIRMED.match(right) or _CONFIRMED.match(found.next):
        return False
    return (
        (found.ends == "?" and bool(_ASKS.search(left)) and not found.next.startswith("yes"))
        or _is_reported_or_compared(clause, named)
        or bool(not named and _LEFT_OPEN.match(right))
        or bool(named and _RELATED.search(right))
        or bool(
            _HEDGED.search(right) and not (_OR_SO if not named else _IN_OTHER_WORDS).match(right)
        )
        or _is_conditional(left, clause, right, found.next)
    )


# A sentence about the answer, and not about the story: "the answer is", "so it is", or nothing.
_OF_ANSWER = re.compile(
    r"\b(?:answer|result|solution|conclusion|guess|response|option|choice|candidate)s?\b"
    r"|\b(?:the|our|my) (?:\w+ )?(?:total|value)\b"
    r"|^[^a-z]*(?:(?:so|thus|hence|then|and|but|therefore|now|well|no|yes|maybe|perhaps|possibly"
    r"|probably|surely|clearly|wait|that|to say|answering|trying|plugging in|setting)\W+)*$"
    r"|\b(?:(?:it|x|n|y)(?:'s|(?: \w+){0,3} (?:is|was|be|been|equals?|not))|(?:this|that)(?:'s| is"
    r"| was"
    r"| equals))(?: \w+){0,2}[^a-z]*$"
)
_ASKS = re.compile(
    r"^\W*(?:(?:so|but|and|then|or|hmm|well),? )*(?:(?:is|are|was|could|can|might|would|does|do|did"
    r"|why|how|what|which|whether|who|should|isn't|maybe|perhaps)\b|$)"
)
_IN_OTHER_WORDS = re.compile(r"[\s$*)\]}]*\(or ")  # "12 (or 12.0)"
_OR_SO = re.compile(r"\W*or so\b|\W*(?:[a-z]+ ){0,2}or [$\\(]{0,3}\d|[\s$*)\]}]*\(or ")
_TAG = re.compile(r", ?(?:right|correct|isn't it|ok|okay|yes|no)\W*$")


def _sentence(text: str, start: int, end: int) -> _Surroundings:
    before = text[:start].translate(_PAIR).lower()
    after = text[end:].translate(_PAIR).lower()
    left = before.rstrip(" $\\([{")
    lines = left.rstrip()
    if lines != left and "\n" in left[len(lines) :]:  # a displayed answer
        left = lines if _LEADS_ON.search(lines) else ""
    begins = max((m.end() for m in _SENTENCE.finditer(left)), default=0)
    stop = _SENTENCE_END.search(after)
    at, ends = (stop.start(), stop[1] or "") if stop else (len(after), "")
    rest = after[stop.end() if stop else at :].lstrip()
    following = _SENTENCE_END.search(rest)
    left = without_double_negations(left[begins:] + " 0")[:-1]
    return _Surroundings(left, after[:at], ends, rest[: following.end() if following else None])


_LEADS_ON = re.compile(r"(?:\b(?:is|be|not|to|that|equals?|nor|than|except|otherwise|or)|[:,=])$")


def _is_negated(clause: str, named: bool) -> bool:
    """Return whether what stands in front of an answer denies it."""
    if (near := _NEAR.search(clause)) and (named or not _LEFT_OUT.match(near[0])):
        return True
    given = _GIVEN.match(clause) and "," in clause
    if not given and any(not _moves_on(clause[m.end() :]) for m in _CLAUSAL.finditer(clause)):
        return True
    for cue in _DENIAL.finditer(clause):
        gap = clause[cue.end() :]
        if _ONLY_LINK.match(gap) and not _NEXT_IS.search(gap):
            return True
        if gap.rstrip(" $*({\\").endswith(",") and len(gap.split()) > 1:
            continue  # "since he does not eat any, 12 are left"
        if not named and not _HOLDS.match(gap):
            continue
        related = _RELATIVE.search(clause[: cue.start()])
        if not related and len(gap.split()) <= 5 and not _NEXT.search(gap) and not _has_digit(gap):
            return True
    if _OF_EVENT.search(clause):
        return False
    nobody = _NOBODY.search(clause)
    rest = nobody["rest"] if nobody else ""
    return bool(rest and len(_NEXT.findall(rest)) < 2 and not _has_digit(rest))


# "Everyone except 12 came", which is of the story.
_LEFT_OUT = re.compile(r"(?:except|excluding|without|apart|aside|neither|nor|unlike)\b")
_GIVEN = re.compile(r"\W*(?:since|because|as|although|though|while)\b")
_HOLDS = re.compile(
    r"(?: \w+ly)? (?:have|has|be|own|get|end up with|equal|cost|weigh|make|need|possess|hold)"
    r"(?: \w+)?[\s$\\(]*$"
)
_OR = re.compile(r"\d[\s$,]*(?:or|nor)(?: maybe| perhaps| even| possibly| rather)?[\s$\\(]*$")
_SUM = re.compile(r"[+*/×÷] ?[$\\]*\d[\d.,]* or")  # "3 + 9 or 12"
_COUNTED = re.compile(r"\b(?:answered|wrote|writes?|expects?|expected|states?)$")  # "she wrote 12"
_OF_EVENT = re.compile(
    r"\b(?:probability|chance|odds|likelihood|event|number|ways?|students?|people) (?:of|that"
    r"|who)\b"
)


def _is_reported_or_compared(clause: str, named: bool) -> bool:
    """Return whether an answer is doubted, a bound, or what somebody else says."""
    if _COMPARED.search(clause) or _SUPPOSED.search(clause):
        return True
    if named and _OR.search(clause) and not _SUM.search(clause):
        return True
    for speaks in _OTHERS.finditer(clause):
        counted = not named and _COUNTED.search(speaks[0])
        if not counted and not _moves_on(clause[speaks.end() :]):
            return True
    return any(
        not _ends_doubt(cue[0], clause[cue.end() :])
        for cue in _DOUBT.finditer(clause)
        if named or not cue[0].startswith(_MODAL)
    )


def _ends_doubt(cue: str, gap: str) -> bool:
    """Whether a doubt ends before the answer: at a comma, of a modal verb at the next verb."""
    if _COMMA.search(gap.lstrip(" ,")) or _moves_on(gap):
        return True
    return cue.startswith(_MODAL) and bool(_VERB.search(gap)) and not _THAT.search(gap)


def _moves_on(gap: str) -> bool:
    """Return whether another number was named since a cue, and then another statement begins."""
    return bool(_MOVES_ON.search(gap))


_MOVES_ON = re.compile(
    r"\d[^\d]*[,;:—–][^\d]*\b(?:is|are|it's|get|gets|got|gives?|gave|have|has|makes?|made|obtain\w*"
    r"|find|found|yields?|equals)\b"
)
_ONLY_LINK = re.compile(_GAP)
_RELATIVE = re.compile(r"\b(?:who|that|which)(?: \w+){0,2} ?$")
_MODAL = ("might", "may", "could", "seem", "appear", "look", "is ", "was ", "be ")
_VERB = re.compile(r"\b(?:is|are|was|were|equals|has|have|will|gives|makes|leaves)\b")
_THAT = re.compile(r"\b(?:that (?:the|it|we)|answer|result|solution|think|guess|believe|say)\b")

_COMMA = re.compile(r"[,:] ?(?:the|it|there|we|he|she|they|our|my|this|that)\b(?!,)|:\W*$")
_NEXT_IS = re.compile(r", (?:it|that|this) |[:,] ?the answer")


def _has_digit(gap: str) -> bool:
    return any(c.isdigit() for c in gap)


def _last(pattern: re.Pattern[str], text: str) -> int:
    """Return where the last match ends; 0 without one."""
    return max((m.end() for m in pattern.finditer(text)), default=0)


def _is_conditional(left: str, clause: str, right: str, following: str) -> bool:
    """Return whether an answer holds on a condition, with no commitment to the condition."""
    if (other := _OTHERWISE.search(left)) and not _NEW.search(other["rest"]):
        return True
    for condition in _CONDITION.finditer(clause):
        what, then = condition["what"], clause[condition.end() :]
        if not _ANSWERS.search(then) or (condition["if"] and _is_step(condition["if"], what)):
            continue
        if (
            not condition["if"]
            or _NAMES.search(then)
            or _VARIABLE.search(what)
            or _UNREAL.search(left)
        ):
            return True
    if _WERE.search(clause):
        return True
    then_if = _ONLY_IF.search(right)
    if then_if and _ATTAINED.search(right[: then_if.end()]):
        return False
    if then_if and (then_if["always"] or (_WOULD.search(clause) and _HAD.search(then_if[0]))):
        return True
    varies = bool(then_if and " is " in then_if["what"] and _VARIABLE.search(then_if["what"]))
    if then_if and (varies or _STATED.search(clause)):
        return not (then_if["if"] and _is_step(then_if["if"], then_if["what"]))
    return bool(_ELSE.match(following))


_NAMES = re.compile(r"\b(?:answer|result|solution)\b|^\W*[xn]\b")
_UNREAL = re.compile(r"\bwould\b|\bhad\b(?! to)")
_WERE = re.compile(
    r"^\W*(?:(?:were|had|should) .*\bwould\b|only (?:if|when)\b)"
    r"|\b(?:in (?:a different|another|an ideal)|with (?:other|different))\b.*\bwould\b"
    r"|\b(?:without|but for)\b.*\bwould have been\b"
)
_HAD = re.compile(r"\b(?:if|had|were)\b.*\b(?:had|were|hadn't|weren't)\b")
_WOULD = re.compile(r"\bwould\b|'d\b")
# "The minimum is 12, with equality if a = b."
_ATTAINED = re.compile(r"\b(?:equality|attained|achieved|holds|occurs|reached|rounded)\b|=")
_ELSE = re.compile(r"\W*(?:otherwise|else),? (?:it(?:'s| is)|the answer|x|we get|\W*\d)")


def _is_step(word: str, what: str) -> bool:
    """Return whether a condition is a step of the way, such as "if we add them"."""
    if word == "when":
        return not _VARIABLE.search(what)
    return bool(_ACTS.search(what)) and not _VARIABLE.search(what)
