r"""Answers in twelve languages, right ones and wrong ones, made from the templates below.

`@` is the right number, `#` another one, `¤` the right one in the digits of the language, and `¶` a
new line. `[B]` before a template is the reference where it is not the number.

The rules were written with the first templates in view. Those that are `LATER` and `LAST` were each
written when the rules were finished; docs/verifier.md has what was found then.
"""

from __future__ import annotations

import pytest
from each import assert_none, check_each
from graded_cases import check_verdicts
from hostile_text import in_linear_time

from rejuice.operators.verifier import check_references, extract_answer, verify_batch
from rejuice.operators.verifier.answer import is_bare

VALUES = ((12, 13), (48, 35))
DIGITS = {"ar": "٠١٢٣٤٥٦٧٨٩", "hi": "०१२३४५६७८९", "th": "๐๑๒๓๔๕๖๗๘๙", "zh": "０１２３４５６７８９"}
DIGITS["ja"] = DIGITS["ko"] = DIGITS["zh"]
LEAST = 0.95  # of the right ones are correct; of the wrong ones none is
LEAST_LATER = 0.9

RIGHT = {
    "zh": """
答案是@。 ¦ 答案：@元 ¦ 小明原来有3个，又买了5个，所以一共有 @ 个苹果。 ¦ 最终答案为 \\boxed{@元} ¦ 答：一共有¤个苹果。
所以答案是 $@$ 平方厘米。 ¦ \\boxed{@\\text{ 元}} ¦ 因此，還剩下@個蘋果。 ¦ 先算 # 加 5，再减去 2，结果等于@。 ¦ @个
[B] 故选：B。 ¦ [B] 综上所述，应选B ¦ [B] 正确答案是B选项。 ¦ [B] 答案：**B** ¦ 答案不是#，而是@。
[@ km] 全程共@公里。 ¦ [@0000] 答案是@万元。 ¦ 最終答案：@ 公斤 ¦ 第一步：算出#。¶第二步：得到@。¶所以，答案是：@。 ¦ 方程的解为 $x=@$。
""",
    "ja": """
答えは@です。 ¦ 答え：@円 ¦ よって、答えは @ 円である。 ¦ 正解は@です。 ¦ したがって、合計は@個になります。
\\boxed{@円} ¦ 最終的な答えは ¤ 個です。 ¦ \\boxed{@ \\text{個}} ¦ りんごは3個あり、5個もらったので、全部で@個です。 ¦ @人
[B] 正解はBです。 ¦ [B] 答え：B ¦ [B] よって、正しいのはB。 ¦ 答えは#ではなく@です。 ¦ 以上より、$x=@$ である。
[@ km] 距離は@キロメートルです。 ¦ [@0000] 答えは@万円です。 ¦ まず#を求めます。次に2を引きます。よって答えは@となります。 ¦ **答え**¶@個 ¦ 合計 = @（個）
""",
    "ko": """
정답은 @입니다. ¦ 답: @원 ¦ 따라서 답은 @개입니다. ¦ 그러므로 사과는 모두 @개입니다. ¦ 최종 답은 \\boxed{@}입니다.
\\boxed{@개} ¦ \\boxed{@\\text{ 원}} ¦ 철수는 3개를 가지고 있고 5개를 더 받아서 총 @개가 됩니다. ¦ 정답: ¤ ¦ @명
[B] 정답은 B입니다. ¦ [B] 답: (B) ¦ [B] 따라서 정답은 **B**이다. ¦ 답은 #이 아니라 @입니다. ¦ 그러므로 $x=@$이다.
[@ km] 거리는 @킬로미터입니다. ¦ [@0000] 정답은 @만 원입니다. ¦ 먼저 #을 구한다. 그다음 2를 뺀다. 답은 @이다. ¦ 답¶@ ¦ 3 × 4 + 5 = @이므로 답은 @입니다.
""",
    "ru": """
Ответ: @ ¦ Ответ: @ рублей. ¦ Итак, правильный ответ — @. ¦ Таким образом, всего @ яблок. ¦ Ответ равен @.
\\boxed{@ яблок} ¦ \\boxed{@\\text{ рублей}} ¦ У Маши было 3 яблока, ей дали ещё 5. Итого получаем @ яблок. ¦ **Ответ:** $@$ ¦ @ км
[B] Ответ: B ¦ [B] Правильный ответ — (B). ¦ [B] Ответом является вариант B. ¦ Ответ не #, а @. ¦ Значит, $x = @$.
[@ km] Расстояние равно @ километров. ¦ [@000] Ответ: @ тысяч рублей. ¦ Сначала найдём #. Затем вычтем 2. Окончательный ответ: @. ¦ Ответ:¶@ ¦ Всего яблок = @ (штук)
""",
    "de": """
Die Antwort ist @. ¦ Antwort: @ Äpfel ¦ Die Antwort lautet also @ Stunden. ¦ Insgesamt sind es @ Äpfel für die Bäckerei. ¦ Die richtige Antwort ist $@$.
\\boxed{@ Äpfel} ¦ \\boxed{@\\text{ Stunden}} ¦ Er hat 3 Äpfel und kauft 5 dazu. Zusammen ergibt das @ Äpfel für ihn. ¦ **Lösung:** @ ¦ @ Kilometer
[B] Antwort: B ¦ [B] Die richtige Antwort ist (B). ¦ [B] Die Lösung lautet B. ¦ Die Antwort ist nicht #, sondern @. ¦ Also ist die gesuchte Länge $x = @$.
[@ km] Die Antwort lautet @ Kilometer. ¦ [@000000] Die Antwort ist @ Millionen Euro. ¦ Zuerst erhalten wir #. Danach ziehen wir 2 ab. Die Antwort lautet @. ¦ Ergebnis: @ ¦ @ ist die richtige Antwort.
""",
    "fr": """
La réponse est @. ¦ Réponse : @ pommes ¦ La réponse finale est donc @ euros. ¦ Il reste donc @ élèves à l'école. ¦ La bonne réponse est $@$.
\\boxed{@ élèves} ¦ \\boxed{@\\text{ mètres}} ¦ Léa a 3 pommes et elle en achète 5. En tout, cela fait @ pommes pour le goûter. ¦ **Réponse :** @ ¦ @ kilomètres
[B] Réponse : B ¦ [B] La bonne réponse est la B. ¦ [B] La réponse correcte est (B). ¦ La réponse n'est pas #, mais @. ¦ On obtient donc $x = @$, d'où la réponse : @.
[@ km] La réponse est @ kilomètres. ¦ [@000000] La réponse est @ millions d'euros. ¦ D'abord on trouve #. Ensuite on enlève 2. La réponse est @. ¦ Résultat : @ ¦ @ est la bonne réponse.
""",
    "es": """
La respuesta es @. ¦ Respuesta: @ manzanas ¦ La respuesta final es @ años. ¦ Así que María tiene en total @ manzanas, según el cálculo. ¦ La respuesta correcta es $@$.
\\boxed{@ años} ¦ \\boxed{@\\text{ niños}} ¦ Luis tenía 3 y compró 5 más. En total él tiene @ lápices. ¦ **Respuesta:** @ ¦ @ kilómetros
[B] Respuesta: B ¦ [B] La respuesta correcta es la B. ¦ [B] La opción correcta es (B). ¦ La respuesta no es #, sino @. ¦ Por lo tanto, la solución es $x = @$.
[@ km] La respuesta es @ kilómetros. ¦ [@000000] La respuesta es @ millones de dólares. ¦ Primero obtenemos #. Luego restamos 2. La respuesta es @. ¦ Resultado: @ ¦ @ es la respuesta correcta.
""",
    "hi": """
उत्तर: @ ¦ उत्तर है @ ¦ इसलिए उत्तर @ है। ¦ अंतिम उत्तर: ¤ ¦ इस प्रकार कुल @ सेब हैं।
\\boxed{@ सेब} ¦ \\boxed{@\\text{ रुपये}} ¦ राम के पास 3 सेब थे और उसने 5 खरीदे। अब उसके पास कुल @ सेब हैं। ¦ **उत्तर:** ¤ रुपये ¦ @ किलोमीटर
[B] उत्तर: B ¦ [B] सही उत्तर B है। ¦ [B] सही जवाब है (B)। ¦ उत्तर # नहीं, बल्कि @ है। ¦ अतः $x = @$ है।
[@ km] दूरी @ किलोमीटर है। ¦ [@00000] उत्तर @ लाख रुपये है। ¦ पहले # मिलता है। फिर 2 घटाते हैं। उत्तर @ होगा। ¦ जवाब: @ ¦ सही जवाब @ है।
""",
    "ar": """
الجواب هو @ ¦ الجواب: ¤ ¦ الإجابة هي @ تفاحة. ¦ الإجابة الصحيحة هي ¤. ¦ إذن المجموع هو @ كتابا.
\\boxed{@ تفاحة} ¦ \\boxed{¤} ¦ كان لدى علي 3 تفاحات واشترى 5. إذن أصبح لديه ¤ تفاحة. ¦ **الجواب:** @ ¦ @ كيلومتر
[B] الجواب: B ¦ [B] الإجابة الصحيحة هي B. ¦ [B] الجواب هو (B). ¦ الجواب ليس # بل @. ¦ إذن $x = @$.
[@ km] المسافة هي @ كيلومترا. ¦ [@000000] الجواب هو @ مليون دولار. ¦ أولا نحصل على #. ثم نطرح 2. الجواب النهائي هو @. ¦ الحل هو @. ¦ الناتج يساوي ¤.
""",
    "th": """
คำตอบคือ @ ¦ ตอบ @ บาท ¦ คำตอบ: ¤ ¦ ดังนั้นมีส้มทั้งหมด @ ผล ¦ คำตอบสุดท้ายคือ @ บาทครับ
\\boxed{@ บาท} ¦ \\boxed{@\\text{ คน}} ¦ เขามีส้ม 3 ผล ซื้อเพิ่มอีก 5 ผล รวมเป็น @ ผล ¦ **คำตอบ:** @ ¦ @ กิโลเมตร
[B] คำตอบคือ B ¦ [B] ตอบ B ¦ [B] คำตอบที่ถูกต้องคือข้อ B ¦ คำตอบไม่ใช่ # แต่เป็น @ ¦ ดังนั้น $x = @$
[@ km] ระยะทางคือ @ กิโลเมตร ¦ [@000000] คำตอบคือ @ ล้านบาท ¦ ขั้นแรกได้ #¶จากนั้นลบ 2¶คำตอบคือ @ ¦ เฉลย: @ ¦ ตอบ: ¤ ตัว
""",
    "vi": """
Đáp án là @. ¦ Đáp số: @ quả táo ¦ Vậy đáp án là @. ¦ Vậy có tất cả @ quả cam. ¦ Câu trả lời cuối cùng là $@$.
\\boxed{@ quả} ¦ \\boxed{@\\text{ đồng}} ¦ Lan có 3 quả, mẹ cho thêm 5 quả nữa. Vậy Lan có tất cả @ quả. ¦ **Đáp án:** @ ¦ @ giờ
[B] Đáp án: B ¦ [B] Chọn B. ¦ [B] Đáp án đúng là (B). ¦ Đáp án không phải là # mà là @. ¦ Vậy $x = @$.
[@ km] Đáp án là @ km. ¦ [@000000] Đáp án là @ triệu đồng. ¦ Đầu tiên ta được #. Sau đó trừ đi 2. Đáp án là @. ¦ Kết quả: @ ¦ Đáp án cần tìm là @ giờ.
""",
    "tr": """
Cevap @'dir. ¦ Cevap: @ elma ¦ Doğru cevap @. ¦ Bu durumda toplam @ elma vardır. ¦ Sonuç olarak cevap $@$ olur.
\\boxed{@ öğrenci} ¦ \\boxed{@\\text{ lira}} ¦ Ali'nin 3 elması vardı, 5 tane daha aldı. Şimdi toplam @ elması var. ¦ **Cevap:** @ ¦ @ gün
[B] Cevap: B ¦ [B] Doğru cevap B'dir. ¦ [B] Doğru cevap (B) seçeneğidir. ¦ Cevap # değil, @'dir. ¦ Buna göre $x = @$ bulunur.
[@ km] Cevap: @ km ¦ [@000000] Cevap @ milyon liradır. ¦ Önce # buluruz. Sonra 2 çıkarırız. Cevap @ olur. ¦ Yanıt: @ ¦ Sonuç: @ gün
""",
}

WRONG = {
    "zh": """
答案不是@。 ¦ 答案是#。 ¦ 答案是@万。 ¦ 答案是至少@。 ¦ @个以上
先得到@，再加上1，所以答案是#。 ¦ 答案是@。这是错误的。 ¦ 一共有@多个苹果。 ¦ 不超过@个 ¦ \\boxed{@万元}
“答案是@”这种说法不对。 ¦ 如果答案是@，就会产生矛盾。 ¦ 答案是 @ 还是 # ？我不确定。 ¦ 答案在#到@之间。 ¦ \\boxed{@}以上
[@ m] 全程共@公里。 ¦ [B] 不选B，应选C。 ¦ 答案是负@。 ¦ 答案是@的平方。 ¦ 答案是@减去5。
""",
    "ja": """
答えは@ではありません。 ¦ 答えは#です。 ¦ 答えは@万円です。 ¦ 答えは少なくとも@です。 ¦ @個以上
まず@を求めます。次に1を足すので、答えは#です。 ¦ 答えは@です。これは誤りです。 ¦ 答えは@より大きい。 ¦ @人未満 ¦ \\boxed{@万}
「答えは@」というのは間違いです。 ¦ もし答えが@なら、矛盾する。 ¦ 答えは@か#か、わかりません。 ¦ 答えは#から@までです。 ¦ \\boxed{@}以上
[@ m] 距離は@キロメートルです。 ¦ [B] 正解はBではなくCです。 ¦ 答えはマイナス@です。 ¦ 答えは@の倍数です。 ¦ 答えは@くらいです。
""",
    "ko": """
정답은 @이 아닙니다. ¦ 정답은 #입니다. ¦ 정답은 @만입니다. ¦ 답은 최소 @입니다. ¦ @개 이상
먼저 @를 구하고 1을 더하면 답은 #이다. ¦ 답은 @입니다. 이것은 틀렸습니다. ¦ 답은 @보다 큽니다. ¦ @명 미만 ¦ \\boxed{@만 원}
"답은 @"라는 말은 틀렸다. ¦ 만약 답이 @라면 모순이다. ¦ 답은 @ 또는 #입니다. ¦ 답은 #에서 @까지입니다. ¦ \\boxed{@} 이상
[@ m] 거리는 @킬로미터입니다. ¦ [B] 정답은 B가 아니라 C입니다. ¦ 답은 마이너스 @입니다. ¦ 답은 @의 배수입니다. ¦ 답이 @인지 모르겠습니다.
""",
    "ru": """
Ответ не @. ¦ Ответ: # ¦ Ответ: @ тысяч. ¦ Ответ: не менее @. ¦ Больше @ яблок.
Сначала получаем @, затем прибавляем 1. Ответ: #. ¦ Ответ: @. Это неверно. ¦ Ответ: @ или #. ¦ Ответ: @ и более. ¦ \\boxed{@ млн}
Он сказал: «Ответ @», но ошибся. ¦ Если ответ @, то получаем противоречие. ¦ Ответ равен @? Не знаю. ¦ Ответ: от # до @. ¦ \\boxed{@} или больше
[@ m] Расстояние равно @ километров. ¦ [B] Ответ не B, а C. ¦ Ответ: минус @. ¦ Ответ: @ в квадрате. ¦ Ответ: почти @.
""",
    "de": """
Die Antwort ist nicht @. ¦ Die Antwort ist #. ¦ Die Antwort ist @ Millionen. ¦ Die Antwort ist mindestens @. ¦ Höchstens @ Äpfel.
Zuerst erhalten wir @, dann addieren wir 1. Die Antwort ist #. ¦ Die Antwort ist @. Das ist falsch. ¦ Die Antwort ist @ oder #. ¦ Die Antwort ist @ oder mehr. ¦ \\boxed{@ Tausend}
Er sagte: „Die Antwort ist @“, aber das stimmt nicht. ¦ Wenn die Antwort @ ist, gibt es einen Widerspruch für Äpfel. ¦ Ist die Antwort @? Ich weiß es nicht. ¦ Die Antwort liegt zwischen # und @, also für Äpfel ungenau. ¦ \\boxed{@ oder mehr}
[@ m] Die Antwort ist @ Kilometer. ¦ [B] Die Antwort ist nicht B, sondern C. ¦ Die Antwort ist minus @. ¦ Die Antwort ist @ zum Quadrat. ¦ Die Antwort ist fast @.
""",
    "fr": """
La réponse n'est pas @. ¦ La réponse est #. ¦ La réponse est @ millions. ¦ La réponse est au moins @. ¦ Au plus @ élèves.
D'abord on obtient @, puis on ajoute 1. La réponse est #. ¦ La réponse est @. C'est faux. ¦ La réponse est @ ou #. ¦ La réponse est @ ou plus. ¦ \\boxed{@ milliards}
Il a écrit : « La réponse est @ », mais il a tort. ¦ Si la réponse est @, il y a une contradiction pour l'élève. ¦ La réponse est-elle @ ? Je ne sais pas. ¦ La réponse est entre # et @. ¦ \\boxed{@ ou davantage}
[@ m] La réponse est @ kilomètres. ¦ [B] La réponse n'est pas B, mais C. ¦ La réponse est moins @. ¦ La réponse est @ au carré. ¦ La réponse est presque @.
""",
    "es": """
La respuesta no es @. ¦ La respuesta es #. ¦ La respuesta es @ millones. ¦ La respuesta es al menos @. ¦ Como máximo @ años.
Primero obtenemos @ y después sumamos 1. La respuesta es #. ¦ La respuesta es @. Eso es incorrecto. ¦ La respuesta es @ o #. ¦ La respuesta es @ o más. ¦ \\boxed{@ mil}
Él escribió «La respuesta es @», pero se equivocó. ¦ Si la respuesta es @, hay una contradicción. ¦ ¿La respuesta es @? No lo sé. ¦ La respuesta está entre # y @. ¦ \\boxed{@ o más}
[@ m] La respuesta es @ kilómetros. ¦ [B] La respuesta no es B, sino C. ¦ La respuesta es menos @. ¦ La respuesta es @ al cuadrado. ¦ La respuesta es casi @.
""",
    "hi": """
उत्तर @ नहीं है। ¦ उत्तर # है। ¦ उत्तर @ लाख है। ¦ उत्तर कम से कम @ है। ¦ @ से अधिक सेब
पहले @ मिलता है, फिर 1 जोड़ते हैं। उत्तर # है। ¦ उत्तर @ है। यह गलत है। ¦ उत्तर @ या # है। ¦ उत्तर @ से कम है। ¦ \\boxed{@ करोड़}
उसने लिखा "उत्तर @ है" पर वह गलत था। ¦ अगर उत्तर @ है, तो विरोधाभास होता है। ¦ क्या उत्तर @ है? मुझे नहीं पता। ¦ उत्तर # से @ तक है। ¦ \\boxed{@ से अधिक}
[@ m] दूरी @ किलोमीटर है। ¦ [B] उत्तर B नहीं, C है। ¦ उत्तर माइनस @ है। ¦ उत्तर @ का वर्ग है। ¦ उत्तर अधिकतम @ है।
""",
    "ar": """
الجواب ليس @. ¦ الجواب هو #. ¦ الجواب هو @ مليون. ¦ الجواب هو على الأقل @. ¦ أكثر من @ تفاحة
أولا نحصل على @ ثم نضيف 1. الجواب هو #. ¦ الجواب هو @. هذا خطأ. ¦ الجواب هو @ أو #. ¦ الجواب هو @ أو أكثر. ¦ \\boxed{@ ألف}
قال «الجواب هو @» لكنه أخطأ. ¦ إذا كان الجواب @ فهناك تناقض. ¦ هل الجواب هو @؟ لا أعرف. ¦ الجواب بين # و @. ¦ \\boxed{@ أو أكثر}
[@ m] المسافة هي @ كيلومترا. ¦ [B] الجواب ليس B بل C. ¦ الجواب هو ناقص @. ¦ الجواب هو @ تربيع. ¦ الجواب أقل من @.
""",
    "th": """
คำตอบไม่ใช่ @ ¦ คำตอบคือ # ¦ คำตอบคือ @ ล้าน ¦ คำตอบคืออย่างน้อย @ ¦ มากกว่า @ ผล
ได้ @ แล้วบวก 1¶คำตอบคือ # ¦ คำตอบคือ @¶ซึ่งผิด ¦ คำตอบคือ @ หรือ # ¦ คำตอบคือ @ ขึ้นไป ¦ \\boxed{@ พัน}
เขาเขียนว่า "คำตอบคือ @" แต่ผิด ¦ ถ้าคำตอบคือ @ จะขัดแย้งกัน ¦ คำตอบคือ @ หรือไม่ ไม่ทราบ ¦ คำตอบอยู่ระหว่าง # ถึง @ ¦ \\boxed{@ ขึ้นไป}
[@ m] ระยะทางคือ @ กิโลเมตร ¦ [B] คำตอบไม่ใช่ B แต่เป็น C ¦ คำตอบคือลบ @ ¦ คำตอบคือ @ ยกกำลังสอง ¦ คำตอบคือไม่เกิน @
""",
    "vi": """
Đáp án không phải là @. ¦ Đáp án là #. ¦ Đáp án là @ triệu. ¦ Đáp án là ít nhất @. ¦ Nhiều hơn @ quả.
Đầu tiên ta được @, rồi cộng 1. Đáp án là #. ¦ Đáp án là @. Điều này sai. ¦ Đáp án là @ hoặc #. ¦ Đáp án là @ trở lên. ¦ \\boxed{@ nghìn}
Bạn ấy viết “Đáp án là @” nhưng sai. ¦ Nếu đáp án là @ thì mâu thuẫn. ¦ Đáp án là @ phải không? Tôi không biết. ¦ Đáp án từ # đến @. ¦ \\boxed{@ trở lên}
[@ m] Đáp án là @ km. ¦ [B] Đáp án không phải là B mà là C. ¦ Đáp án là âm @. ¦ Đáp án là @ bình phương. ¦ Đáp án là gần @.
""",
    "tr": """
Cevap @ değil. ¦ Cevap #'dir. ¦ Cevap @ milyon. ¦ Cevap en az @. ¦ En fazla @ gün.
Önce @ buluruz, sonra 1 ekleriz. Cevap # olur. ¦ Cevap @. Bu yanlıştır. ¦ Cevap @ veya #. ¦ Cevap @'den fazla. ¦ \\boxed{@ bin}
"Cevap @" dedi ama yanlış söyledi. ¦ Eğer cevap @ ise çelişki olur. ¦ Cevap @ mi? Bilmiyorum. ¦ Cevap # ile @ arasında. ¦ \\boxed{@ veya fazlası}
[@ m] Cevap: @ km ¦ [B] Cevap B değil, C'dir. ¦ Cevap eksi @. ¦ Cevap @'nin karesi. ¦ Cevap neredeyse @.
""",
}


LATER_RIGHT = {
    "zh": """
综上，小红最后手里有@张邮票。 ¦ 故本题的答案为 $\\boxed{@}$。 ¦ 解：设共有 x 人，则 3x=6+2x……解得 x=@，答：共有@人。 ¦ 由此可得，这个数是@ ¦ 本题正确答案：@
[B] 经分析可知，只有 B 项符合题意，故选 B。 ¦ [@ kg] 这袋米重@千克。 ¦ 计算过程如下：#-1=？最后结果：@ ¦ ### 答案¶@ ¦ 他一共要付@块钱
""",
    "ja": """
ゆえに、求める値は@である。 ¦ したがって正解は $\\boxed{@}$ です。 ¦ 解答　@枚 ¦ 太郎は全部で@円払いました。 ¦ 結果：@
[B] 以上から、Bが正解です。 ¦ [@ kg] 重さは@キログラムです。 ¦ 式：3＋4＝7、残りは@本 ¦ 最終的な答え：¤ ¦ ですから、答えは@回になります。
""",
    "ko": """
결국 남은 사탕은 @개이다. ¦ 그러므로 정답은 $\\boxed{@}$이다. ¦ 구하는 값은 @이다. ¦ 영희는 모두 @원을 냈습니다. ¦ 결과: @
[B] 따라서 B가 정답이다. ¦ [@ kg] 무게는 @킬로그램입니다. ¦ 식: 3+4=7, 나머지는 @자루 ¦ ## 최종 답¶@ ¦ 답은 @번입니다.
""",
    "ru": """
В итоге у Пети осталось @ марок. ¦ Следовательно, ответ: $\\boxed{@}$. ¦ Искомое число равно @. ¦ Он заплатил всего @ рублей. ¦ Результат: @
[B] Верный вариант: B. ¦ [@ kg] Масса мешка — @ кг. ¦ 3 + 4 = 7, значит, осталось @ карандашей. ¦ ### Ответ¶@ ¦ Таким образом, окончательный ответ: @ раз.
""",
    "de": """
Am Ende hat Peter noch @ Briefmarken übrig. ¦ Somit ist die Lösung $\\boxed{@}$. ¦ Die gesuchte Zahl ist @, was man leicht prüfen kann für alle Fälle. ¦ Er muss insgesamt @ Euro zahlen. ¦ Endergebnis: @
[B] Richtig ist B. ¦ [@ kg] Antwort: @ Kilogramm ¦ 3 + 4 = 7, also bleiben @ Stück übrig. ¦ ### Antwort¶@ ¦ Die endgültige Antwort lautet: **@**.
""",
    "fr": """
À la fin, Paul a encore @ timbres. ¦ La solution est donc $\\boxed{@}$. ¦ Le nombre cherché est @, ce qui se vérifie aisément. ¦ Il doit payer @ euros au total. ¦ Résultat final : @
[B] Je choisis la réponse B. ¦ [@ kg] Réponse : @ kilogrammes ¦ 3 + 4 = 7, il reste donc @ crayons à l'élève. ¦ ### Réponse¶@ ¦ Réponse finale : **@**.
""",
    "es": """
Al final, Pedro tiene todavía @ sellos. ¦ Por tanto, la solución es $\\boxed{@}$. ¦ El número buscado es @, como se puede comprobar fácilmente así. ¦ Él debe pagar @ euros en total, según la tabla. ¦ Resultado final: @
[B] La alternativa correcta es B. ¦ [@ kg] Respuesta: @ kilogramos ¦ 3 + 4 = 7, por lo que quedan @ lápices. ¦ ### Respuesta¶@ ¦ Respuesta final: **@**.
""",
    "hi": """
अंत में मोहन के पास @ टिकट बचे। ¦ अतः सही उत्तर $\\boxed{@}$ है। ¦ अभीष्ट संख्या @ है। ¦ उसे कुल @ रुपये देने होंगे। ¦ परिणाम: @
[B] विकल्प B सही उत्तर है। ¦ [@ kg] वजन @ किलोग्राम है। ¦ 3 + 4 = 7, इसलिए शेष @ पेंसिल हैं। ¦ ### उत्तर¶¤ ¦ हमारा अंतिम उत्तर: **@** बार
""",
    "ar": """
في النهاية بقي لدى سامي @ طابعا. ¦ وبالتالي فإن الجواب هو $\\boxed{@}$. ¦ العدد المطلوب هو ¤. ¦ يجب أن يدفع @ دولارا. ¦ النتيجة: @
[B] الخيار الصحيح هو B. ¦ [@ kg] الجواب: @ كيلوغرام ¦ 3 + 4 = 7 إذن يبقى @ قلما. ¦ ### الإجابة¶¤ ¦ الإجابة النهائية: **@**.
""",
    "th": """
สุดท้ายสมชายเหลือแสตมป์ @ ดวง ¦ ดังนั้นคำตอบคือ $\\boxed{@}$ ¦ จำนวนที่ต้องการคือ ¤ ¦ เขาต้องจ่ายเงินทั้งหมด @ บาท ¦ ผลลัพธ์: @
[B] ข้อที่ถูกต้องคือ B ¦ [@ kg] น้ำหนักคือ @ กิโลกรัม ¦ 3 + 4 = 7 จึงเหลือดินสอ @ แท่ง ¦ ### คำตอบ¶@ ¦ คำตอบสุดท้าย: **@**
""",
    "vi": """
Cuối cùng, Nam còn lại @ con tem. ¦ Do đó, đáp án là $\\boxed{@}$. ¦ Số cần tìm là @. ¦ Anh ấy phải trả tổng cộng @ đồng. ¦ Kết quả cuối cùng: @
[B] Vậy ta chọn đáp án B. ¦ [@ kg] Đáp số: @ ki-lô-gam ¦ 3 + 4 = 7, nên còn lại @ cái bút. ¦ ### Đáp án¶@ ¦ Câu trả lời cuối cùng: **@**.
""",
    "tr": """
Sonunda Ahmet'in @ pulu kalır. ¦ Dolayısıyla çözüm $\\boxed{@}$ olur. ¦ Aranan sayı @'dir. ¦ Toplamda @ lira ödemesi gerekir. ¦ Sonuç: @
[B] Doğru seçenek B. ¦ [@ kg] Cevap: @ kilogram ¦ 3 + 4 = 7, geriye @ kalem kalır. ¦ ### Cevap¶@ ¦ Nihai cevap: **@**.
""",
}

LATER_WRONG = {
    "zh": """
这个数绝不可能是@。 ¦ 人数多于@人。 ¦ 老师问：“答案是@吗？” ¦ 这里有@亿人。 ¦ 每人@元，共3人，合计#元。
\\boxed{\\text{至多}@} ¦ 答案是@，错！ ¦ 有同学认为答案是@，其实答案是#。 ¦ @至#之间 ¦ [B] 正确答案不是B，是D。
""",
    "ja": """
その数は@ではない。 ¦ 人数は@人を超える。 ¦ 先生は「答えは@ですか」と聞いた。 ¦ 人口は@億人です。 ¦ 1人@円で3人なので、合計#円です。
\\boxed{@以下} ¦ 答えは@、というのは誤りだ。 ¦ 誰かは答えが@だと思ったが、実は#です。 ¦ @から#の間 ¦ [B] Bは正解ではない。正解はDです。
""",
    "ko": """
그 수는 @이 될 수 없다. ¦ 인원은 @명을 초과한다. ¦ 선생님이 "답이 @입니까?"라고 물었다. ¦ 인구는 @억 명이다. ¦ 한 명당 @원이고 3명이므로 합계 #원이다.
\\boxed{@ 이하} ¦ 답은 @이라는 것은 잘못이다. ¦ 누군가는 답이 @이라고 했지만 사실은 #이다. ¦ @에서 # 사이 ¦ [B] B는 정답이 아니다. 정답은 D이다.
""",
    "ru": """
Это число не может быть @. ¦ Людей было свыше @ человек. ¦ Учитель спросил: «Ответ @?» ¦ Население — @ миллиардов. ¦ По @ рублей на троих, итого # рублей.
\\boxed{\\text{не более } @} ¦ Ответ: @ — это ошибка. ¦ Кто-то думал, что ответ @, но на самом деле #. ¦ Между # и @. ¦ [B] Ответ B неверен, правильный ответ D.
""",
    "de": """
Diese Zahl kann für Äpfel nicht @ sein. ¦ Es waren über @ Schüler. ¦ Der Lehrer fragte: „Ist die Antwort @?“ ¦ Antwort: @ Milliarden ¦ Je @ Euro für drei Schüler, zusammen also # Euro.
\\boxed{\\text{höchstens } @} ¦ Antwort: @, das ist falsch. ¦ Jemand glaubte, die Antwort sei @, aber es ist #, für Schüler. ¦ Antwort: zwischen # und @ ¦ [B] Antwort B ist falsch, richtig ist D.
""",
    "fr": """
Ce nombre ne peut pas être @, en vérité. ¦ Il y avait plus de @ élèves. ¦ Le maître a demandé : « La réponse est @ ? » ¦ Réponse : @ milliards ¦ À @ euros chacun pour trois élèves, cela fait # euros.
\\boxed{\\text{au plus } @} ¦ Réponse : @, c'est faux. ¦ On pensait que la réponse était @, mais c'est #, à vrai dire. ¦ Réponse : entre # et @ ¦ [B] La réponse B est fausse, la bonne réponse est D.
""",
    "es": """
Este número no puede ser @, según él. ¦ Había más de @ niños. ¦ El maestro preguntó: «¿La respuesta es @?» ¦ Respuesta: @ mil millones ¦ A @ euros cada uno para tres niños, son # euros.
\\boxed{\\text{a lo sumo } @} ¦ Respuesta: @, pero es incorrecto. ¦ Alguien creyó que era @, pero en realidad son # años. ¦ Respuesta: entre # y @ ¦ [B] La respuesta B es falsa, la correcta es D.
""",
    "hi": """
यह संख्या @ नहीं हो सकती। ¦ लोग @ से ज़्यादा थे। ¦ शिक्षक ने पूछा, "क्या उत्तर @ है?" ¦ जनसंख्या @ अरब है। ¦ तीन लोगों के लिए @ रुपये प्रति व्यक्ति, कुल # रुपये।
\\boxed{\\text{अधिकतम } @} ¦ उत्तर: @, यह गलत है। ¦ किसी ने सोचा कि उत्तर @ है, पर वास्तव में # है। ¦ @ और # के बीच ¦ [B] B सही उत्तर नहीं है, D है।
""",
    "ar": """
لا يمكن أن يكون هذا العدد @. ¦ كان هناك أكثر من @ شخصا. ¦ سأل المعلم: «هل الجواب @؟» ¦ عدد السكان @ مليار. ¦ كل واحد @ دولارا لثلاثة أشخاص، المجموع # دولارا.
\\boxed{\\text{على الأكثر } @} ¦ الجواب: @، وهذا خطأ. ¦ ظن أحدهم أن الجواب @ لكنه في الحقيقة #. ¦ بين @ و # ¦ [B] الجواب B خاطئ، والصحيح هو D.
""",
    "th": """
จำนวนนี้ไม่สามารถเป็น @ ได้ ¦ มีคนเกิน @ คน ¦ ครูถามว่า "คำตอบคือ @ ใช่ไหม" ¦ ประชากร @ ล้านคน ¦ คนละ @ บาท สามคน รวม # บาท
\\boxed{\\text{ไม่เกิน } @} ¦ คำตอบ: @ ซึ่งไม่ถูกต้อง ¦ มีคนคิดว่าคำตอบคือ @ แต่จริงๆ คือ # ¦ ระหว่าง @ ถึง # ¦ [B] B ไม่ใช่คำตอบ คำตอบคือ D
""",
    "vi": """
Số này không thể là @. ¦ Có hơn @ người. ¦ Thầy hỏi: “Đáp án là @ phải không?” ¦ Dân số là @ tỷ. ¦ Mỗi người @ đồng, ba người, tổng cộng # đồng.
\\boxed{\\text{nhiều nhất } @} ¦ Đáp án: @, nhưng sai. ¦ Có người nghĩ đáp án là @, nhưng thật ra là #. ¦ Giữa @ và # ¦ [B] B không phải là đáp án, đáp án là D.
""",
    "tr": """
Bu sayı @ olamaz. ¦ @ kişiden fazla öğrenci vardı. ¦ Öğretmen "Cevap @ mi?" diye sordu. ¦ Nüfus @ milyar. ¦ Kişi başı @ lira, üç kişi, toplam # lira.
\\boxed{\\text{en çok } @} ¦ Cevap: @, ama bu yanlış. ¦ Biri cevabın @ olduğunu sandı ama aslında #. ¦ @ ile # arasında ¦ [B] Cevap B değildir, doğru cevap D.
""",
}

LAST_RIGHT = {
    "zh": """
经过计算，我们得出最终的结果是@。 ¦ [B] 因此正确的选择应该是（B） ¦ 综上所述，小华一共读了@页书。 ¦ 于是，面积等于 $@$ 平方米。 ¦ **因此，总共需要 @ 分钟。** ¦ 所以小刚跑了@圈。 ¦ 最后的答案应为@。 ¦ 于是x的值是@。 ¦ [B] 正确选项：B
""",
    "ja": """
計算の結果、求める面積は@平方センチメートルとなります。 ¦ [B] よって、正しい選択肢はBです。 ¦ ゆえに、花子は@ページ読みました。 ¦ **答え：@** ¦ つまり、@分かかります。 ¦ したがって、花は@本咲いています。 ¦ 求める答えは@である。 ¦ xの値は@です。 ¦ [B] 正解：B
""",
    "ko": """
계산하면 넓이는 @제곱센티미터입니다. ¦ [B] 따라서 올바른 선택지는 B입니다. ¦ 그래서 민수는 총 @쪽을 읽었습니다. ¦ **정답: @** ¦ 즉, @분이 걸립니다. ¦ 그래서 꽃은 @송이 피었다. ¦ 최종적인 답은 @이다. ¦ x의 값은 @입니다. ¦ [B] 정답은 (B)입니다.
""",
    "ru": """
После вычислений получаем площадь $@$ квадратных сантиметров. ¦ [B] Следовательно, правильный вариант ответа — B. ¦ Значит, Оля прочитала @ страниц. ¦ **Ответ: @.**
То есть потребуется @ минут. ¦ Поэтому цветков расцвело @. ¦ Наш ответ: @ цветков. ¦ Значение x равно @. ¦ [B] Правильный ответ: (B).
""",
    "de": """
Nach der Rechnung beträgt die Fläche $@$ Quadratmeter für das Grundstück. ¦ [B] Daher lautet die richtige Antwort: B) ¦ Somit hat Jörg insgesamt @ Seiten gelesen.
**Antwort: @** ¦ Das heißt, sie benötigt dafür @ Minuten. ¦ Deshalb blühen jetzt @ Blumen im schönen Garten. ¦ Unsere Antwort ist @ Blumen. ¦ Der Wert von x beträgt @ für diese Lösung.
[B] Die korrekte Antwort lautet B.
""",
    "fr": """
Après calcul, l'aire est de $@$ mètres carrés. ¦ [B] Par conséquent, la bonne réponse est : B) ¦ Donc Zoé a lu @ pages en tout. ¦ **Réponse : @** ¦ C'est-à-dire qu'il lui faut @ minutes à pied.
C'est pourquoi @ fleurs ont éclos. ¦ Notre réponse est @ fleurs. ¦ La valeur de x est égale à @. ¦ [B] La réponse est (B).
""",
    "es": """
Tras el cálculo, el área es de $@$ metros cuadrados. ¦ [B] Por consiguiente, la respuesta correcta es: B) ¦ Así, Ángel leyó @ páginas en total. ¦ **Respuesta: @**
Por eso florecieron @ flores en el jardín de María. ¦ Nuestra respuesta es @ flores. ¦ El valor de x es igual a @, según la ecuación. ¦ [B] La respuesta es la opción B.
""",
    "hi": """
गणना के बाद क्षेत्रफल $@$ वर्ग मीटर है। ¦ [B] इसलिए सही उत्तर: B) ¦ अतः सीता ने कुल @ पृष्ठ पढ़े। ¦ **उत्तर: @** ¦ यानी उसे @ मिनट लगेंगे। ¦ इसलिए @ फूल खिले।
हमारा उत्तर @ फूल है। ¦ x का मान @ है। ¦ [B] सही उत्तर (B) है।
""",
    "ar": """
بعد الحساب نجد أن المساحة $@$ مترا مربعا. ¦ [B] لذلك الإجابة الصحيحة: B) ¦ وهكذا قرأت سارة ¤ صفحة. ¦ **الإجابة: @** ¦ أي أنه يحتاج إلى @ دقيقة. ¦ لذلك تفتحت @ زهرة.
جوابنا هو @ زهرة. ¦ قيمة x تساوي ¤. ¦ [B] الإجابة هي (B).
""",
    "th": """
หลังจากคำนวณแล้ว พื้นที่เท่ากับ $@$ ตารางเมตร ¦ [B] ดังนั้นคำตอบที่ถูกต้องคือ: B) ¦ สมหญิงจึงอ่านหนังสือไปทั้งหมด @ หน้า ¦ **ตอบ: @** ¦ นั่นคือต้องใช้เวลา @ นาที
ดังนั้นดอกไม้บาน @ ดอก ¦ คำตอบของเราคือ @ ดอก ¦ ค่าของ x เท่ากับ ¤ ¦ [B] คำตอบที่ถูกคือ (B)
""",
    "vi": """
Sau khi tính toán, diện tích là $@$ mét vuông. ¦ [B] Do đó đáp án đúng là: B) ¦ Như vậy, Mai đã đọc tổng cộng @ trang. ¦ **Đáp số: @** ¦ Nghĩa là cần @ phút.
Vì vậy có @ bông hoa nở. ¦ Câu trả lời của chúng ta là @ bông. ¦ Giá trị của x là @. ¦ [B] Đáp án là phương án B.
""",
    "tr": """
Hesaplamadan sonra alan $@$ metrekaredir. ¦ [B] Bu nedenle doğru cevap: B) ¦ Böylece Ayşe toplam @ sayfa okudu. ¦ **Cevap: @** ¦ Yani @ dakika gerekir.
Bu yüzden @ çiçek açtı. ¦ Cevabımız @ çiçektir. ¦ x'in değeri @'dir. ¦ [B] Cevap (B).
""",
}

LAST_WRONG = {
    "zh": """
他认为是@，可惜算错了。 ¦ 至多只能放@个球 ¦ 先有@个，后来又多了1个，变成#个。 ¦ 不足@元 ¦ 答案既不是@也不是#。 ¦ 我们得到的数小于@。 ¦ 答案不等于@。 ¦ 总价为@千元。 ¦ 答案：@，该答案不正确。
""",
    "ja": """
@だと思ったが、計算が間違っていた。 ¦ 多くても@個しか入らない ¦ 最初は@個で、1個増えて#個になった。 ¦ @円に満たない ¦ 答えは@でも#でもない。 ¦ 得られる数は@より小さい。 ¦ 答えは@に等しくない。 ¦ 総額は@千円です。 ¦ 答え：@。この答えは正しくない。
""",
    "ko": """
@라고 생각했지만 계산이 틀렸다. ¦ 많아야 @개만 들어간다 ¦ 처음에 @개였고 1개 늘어 #개가 되었다. ¦ @원이 안 된다 ¦ 답은 @도 #도 아니다. ¦ 얻은 수는 @보다 작다. ¦ 답은 @와 같지 않다. ¦ 총액은 @천 원입니다. ¦ 답: @. 이 답은 틀렸다.
""",
    "ru": """
Он думал, что получится @, но ошибся в расчётах. ¦ Поместится не более @ шаров ¦ Сначала было @, потом добавили 1, стало #. ¦ Меньше @ рублей ¦ Ответ ни @, ни #.
Полученное число меньше @. ¦ Ответ не равен @. ¦ Итого @ тысяч рублей. ¦ Ответ: @. Этот ответ неправильный.
""",
    "de": """
Er dachte, es wären @, aber er hat sich für die Prüfung verrechnet. ¦ Es passen höchstens @ Bälle hinein ¦ Zuerst waren es @ Bälle für Jörg, dann kam 1 dazu, also #.
Weniger als @ Euro für Jörg ¦ Die Antwort ist weder @ noch #. ¦ Die gefundene Zahl ist für Schüler kleiner als @. ¦ Die Antwort ist ungleich @. ¦ Insgesamt sind es @ Tausend Euro für Schüler.
Antwort: @. Diese Antwort ist nicht korrekt.
""",
    "fr": """
Il pensait trouver @, mais il s'est trompé dans le calcul. ¦ On peut y mettre au plus @ boules à la fois ¦ Au début il y avait @ boules, puis on en a ajouté 1, ce qui fait # à présent.
Moins de @ euros à payer ¦ La réponse n'est ni @ ni #. ¦ Le nombre trouvé est inférieur à @. ¦ La réponse n'est pas égale à @. ¦ Au total, cela coûte @ mille euros à l'école.
Réponse : @. Cette réponse est incorrecte.
""",
    "es": """
Él pensó que eran @, pero se equivocó en el cálculo. ¦ Caben como máximo @ bolas según él ¦ Al principio había @ bolas, luego se añadió 1 y ahora son #.
Menos de @ años ¦ La respuesta no es ni @ ni #. ¦ El número obtenido es menor que @, según él. ¦ La respuesta no es igual a @. ¦ En total son @ mil pesos, según María.
Respuesta: @. Esta respuesta es incorrecta.
""",
    "hi": """
उसने सोचा @ है, लेकिन गणना गलत थी। ¦ अधिकतम @ गेंदें आ सकती हैं ¦ पहले @ थे, फिर 1 बढ़ा, अब # हैं। ¦ @ रुपये से कम ¦ उत्तर न @ है न #। ¦ प्राप्त संख्या @ से कम है।
उत्तर @ के बराबर नहीं है। ¦ कुल @ हज़ार रुपये है। ¦ उत्तर: @। यह उत्तर सही नहीं है।
""",
    "ar": """
ظن أنه @ لكن الحساب خاطئ. ¦ يتسع على الأكثر @ كرة ¦ كان هناك @ ثم أضيف 1 فأصبح #. ¦ أقل من @ دولارا ¦ الجواب ليس @ ولا #. ¦ العدد الناتج أقل من @. ¦ الجواب لا يساوي @.
المجموع @ ألف دولار. ¦ الجواب: @. هذا الجواب غير صحيح.
""",
    "th": """
เขาคิดว่าเป็น @ แต่คำนวณผิด ¦ ใส่ได้ไม่เกิน @ ลูก ¦ ตอนแรกมี @ แล้วเพิ่ม 1 เป็น # ¦ น้อยกว่า @ บาท ¦ คำตอบไม่ใช่ทั้ง @ และ # ¦ จำนวนที่ได้น้อยกว่า @ ¦ คำตอบไม่เท่ากับ @
ราคารวม @ พันบาท ¦ คำตอบ: @ คำตอบนี้ไม่ถูกต้อง
""",
    "vi": """
Anh ấy nghĩ là @, nhưng tính sai. ¦ Chứa được nhiều nhất @ quả bóng ¦ Ban đầu có @, sau đó thêm 1, thành #. ¦ Ít hơn @ đồng ¦ Đáp án không phải @ cũng không phải #.
Số tìm được nhỏ hơn @. ¦ Đáp án không bằng @. ¦ Tổng cộng @ nghìn đồng. ¦ Đáp án: @. Đáp án này không đúng.
""",
    "tr": """
@ olduğunu düşündü ama hesabı yanlıştı. ¦ En fazla @ top sığar ¦ Başta @ vardı, sonra 1 eklendi, şimdi # oldu. ¦ @ liradan az ¦ Cevap ne @ ne de #. ¦ Bulunan sayı @'den küçüktür.
Cevap @'ye eşit değildir. ¦ Toplam @ bin lira. ¦ Cevap: @. Bu cevap doğru değildir.
""",
}

Graded = tuple[str, str, str, str | None]
"""A reference, a response, the verdict and the answer."""


def cases(templates: str, language: str) -> list[tuple[str, str]]:
    """(reference, response) of each template and value."""
    found = []
    for right, other in VALUES:
        digits = dict(zip("0123456789", DIGITS.get(language, "0123456789"), strict=True))
        native = str(right).translate(str.maketrans(digits))
        for template in templates.strip().replace("\n", " ¦ ").split(" ¦ "):
            reference, response = "@", template
            if response.startswith("["):
                reference, response = response[1:].split("] ", 1)
            for mark, text in (("@", str(right)), ("#", str(other)), ("¤", native), ("¶", "\n")):
                reference, response = reference.replace(mark, text), response.replace(mark, text)
            found.append((reference, response))
    return found


def graded(templates: dict[str, str], language: str) -> list[Graded]:
    pairs = cases(templates[language], language)
    verdicts = verify_batch([r for _, r in pairs], [r for r, _ in pairs])
    return [(*pair, *verdict) for pair, verdict in zip(pairs, verdicts, strict=True)]


def check(right: list[Graded], wrong: list[Graded], least: float) -> None:
    """Name each wrong one that is paid, and the right ones that are not, if they are too many."""
    __tracebackhide__ = True
    assert_none([f"paid: {each}" for each in wrong if each[2] == "correct"], of=len(wrong))
    missed = [f"missed: {each}" for each in right if each[2] != "correct"]
    enough = len(right) - len(missed) >= least * len(right)
    assert_none([] if enough else missed, of=len(right))


@pytest.mark.parametrize("language", RIGHT)
def test_answers(language: str) -> None:
    right, wrong = graded(RIGHT, language), graded(WRONG, language)
    assert (len(right), len(wrong)) == (40, 40)
    check(right, wrong, LEAST)


@pytest.mark.parametrize("language", RIGHT)
def test_templates_that_were_written_later(language: str) -> None:
    check(graded(LATER_RIGHT, language), graded(LATER_WRONG, language), LEAST_LATER)
    check(graded(LAST_RIGHT, language), graded(LAST_WRONG, language), LEAST_LATER)


def test_further_languages() -> None:
    right = """
A resposta é 12 maçãs. ¦ La risposta è 12 mele. ¦ Het antwoord is 12 appels. ¦ Odpowiedź: 12 jabłek.
Відповідь: 12 яблук. ¦ התשובה היא 12 תפוחים. ¦ پاسخ ۱۲ است. ¦ উত্তর হল ১২টি আপেল। ¦ Η απάντηση είναι 12 μήλα.
Svaret är 12 äpplen. ¦ Odpověď: 12 jablek. ¦ Jawabannya adalah 12 apel. ¦ விடை: 12 ¦ ಉತ್ತರ: ೧೨ ¦ పది. సమాధానం: 12
"""
    wrong = """
A resposta não é 12. ¦ La risposta è almeno 12. ¦ Het antwoord is niet 12. ¦ Odpowiedź: co najmniej 12.
Відповідь не 12. ¦ התשובה אינה 12. ¦ پاسخ ۱۲ نیست. ¦ উত্তর ১২ নয়। ¦ Η απάντηση δεν είναι 12.
Svaret är inte 12. ¦ Odpověď není 12. ¦ Jawabannya bukan 12. ¦ Jawabannya lebih dari 12. ¦ 12 lub więcej
"""
    texts = [(text, answer) for text, answer in ((right, True), (wrong, False))]
    check_verdicts(
        ("12", response, answer)
        for text, answer in texts
        for response in text.strip().replace("\n", " ¦ ").split(" ¦ ")
    )


def test_where_the_answer_is() -> None:
    cases = [
        ("小明有很多苹果，他把苹果都给了他的妹妹和弟弟，所以没有了。", None),
        ("Это очень сложная задача, и решить её мне не удалось совсем.", None),
        ("Ich weiß leider überhaupt nicht, wie man das löst.", None),
        ("答案是 12 还是 13？我不确定", None),
        ("北京", "北京"),
        ("Äpfel", "Äpfel"),
        ("答案是北京。", "北京"),
        ("Ответ: Париж.", "Париж"),
        ("12 个苹果", "12 个苹果"),
        ("一共有 12 个苹果。", "12 个"),
        ("<answer>一共有 12 个苹果。</answer>", "12 个"),
        ("答案是-12。", "-12"),
        ("答案：$$12$$", "12"),
        ("答案是：\\[\n12\n\\]", "12"),
        ("方程的解为x=1或x=2。", "x=1或x=2"),
        ("答えは「12」です。", "12"),
        ("C'est 12.", "12"),
        # a list item where the response was cut off
        ("1、小明有 7 个苹果。\n2、妹妹给了他 5 个。\n\n3、计算总数", "5 个"),
        ("1. Сначала сложим 3 и 4, получим 7.\n\n2. **Вычислим", "7"),
        # English with letters of other languages
        ("José has 12 apples and 小明 has 5 of them left", "5"),
        ("The café sold 30 cups, no more than 42.", "than 42"),
    ]

    def check_case(response: str, answer: str | None) -> None:
        assert extract_answer(response) == answer

    check_each(cases, check_case)
    assert not is_bare("一共有 12 个苹果。")
    assert is_bare("12 个苹果")


def test_references_in_other_languages() -> None:
    references = ["12个", "北京", "x=1或x=2", "12 км", "无解", "2\\sqrt{3}厘米", "12 Äpfel", "①③"]
    assert check_references(references) == [None] * len(references)
    check_verdicts(
        [
            ("北京", "上海", "wrong_answer"),
            ("Москва", "Ответ: москва", True),
            ("12个", "答案是12", True),
            ("大于3", r"\boxed{3}", "wrong_answer"),
            ("1,2", "方程的解为x=1或x=2。", True),
            ("12", "12或13", False),
            ("12", "Die Antwort ist 12, nicht 13.", True),
            ("12", "答案是12，不是13。", True),
            ("B", "答えはBです。これは誤りです。", False),
            ("B", "الجواب هو B. هذا خطأ.", False),
            ("12", "所以 \\boxed{12}。这是错误的。", False),
            ("12", "ответ (12). Это неверно.", False),
            ("12", "ចម្លើយ: 12។", True),
        ]
    )


def test_decimal_commas() -> None:
    check_verdicts(
        [
            ("3.5", "Die Antwort lautet 3,5.", True),
            ("3.5", r"La réponse est \boxed{3,5}", True),
            ("3.5", "Ответ: 3,5 км", True),
            ("3.5", "Đáp án là 3,5.", True),
            ("7/2", "La risposta è 3,5.", True),
            ("-0.25", "La respuesta es -0,25.", True),
            ("0.125", "Odpowiedź: 12,5%", True),
            ("1234.5", "Die Antwort lautet 1.234,5.", True),
            ("3500", "Die Antwort lautet 3.500 Euro.", True),
            ("3.5", r"So it is \boxed{3{,}5}", True),
            # As in English, too: models write both.
            ("3.5", "Die Antwort lautet 3.5.", True),
            ("3500", "Die Antwort lautet 3,500.", True),
            ("3,5", "Die Antwort lautet 3,5.", True),
            ("3,5", "Die Antwort lautet 3.5.", True),
            ("35", "Die Antwort lautet 3,5.", False),
            ("3", "Die Antwort lautet 3,5.", False),
            ("3.5", "Die Antwort lautet (3,5).", False),
            ("3.5", "Die Antwort lautet 3, 5.", False),
            ("3.5", "The answer is 3,5.", False),
            ("3.5", "答案是3,5", False),
            ("3.25", "Die Antwort lautet 3,5.", False),
        ]
    )


def test_time_grows_with_the_length_of_a_response() -> None:
    for piece in [
        *(
            "答案是",
            "“",
            "至少",
            "万",
            "了",
            "答案：\n",
            "ответ ",
            "12 или ",
            "не ",
            "１",
            "12个",
            "。",
        ),
        *(
            "réponse ",
            "Antwort ist ",
            "cevap ",
            "'dir",
            "है ",
            "答案是12，",
            "选A",
            "αβγ",
            "(個)",
            "不",
        ),
    ]:
        in_linear_time(extract_answer, piece * 32_000 + "12")
        in_linear_time(verify_batch, [piece * 300], [(piece * 300)[:900]])
