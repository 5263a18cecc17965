"""Names of units in other languages than English, for the names that `measures.py` has."""

from __future__ import annotations

UNIT_NAMES: dict[str, str] = {
    "km": (
        "ki-lô-mét "
        "公里 千米 キロメートル 킬로미터 км километр километра километров кілометр кілометрів "
        'กิโลเมตร กม كيلومتر كيلومترا كم کیلومتر ק"מ קילומטר किलोमीटर किमी কিলোমিটার '
        "χιλιόμετρα χλμ kilómetro kilómetros quilômetro quilômetros kilometro kilometri "
        "chilometro chilometri kilomètre kilomètres kilometra"
    ),
    "m": (
        "米 公尺 メートル 미터 м метр метра метров метрів метри เมตร متر مترا أمتار מטר מטרים "
        "मीटर মিটার μέτρα metros metri mètre mètres mét"
    ),
    "cm": (
        "厘米 公分 センチメートル センチ 센티미터 см сантиметр сантиметра сантиметров "
        'เซนติเมตร ซม سنتيمتر سم سانتی‌متر سانتیمتر ס"מ सेंटीमीटर सेमी সেন্টিমিটার centímetro '
        "centímetros centimetri zentimeter centimètre centimètres εκατοστά"
    ),
    "mm": (
        "毫米 公厘 ミリメートル ミリ 밀리미터 мм миллиметр миллиметра миллиметров มิลลิเมตร "
        'مليمتر ملم מ"מ मिलीमीटर milímetro milímetros millimètre millimètres'
    ),
    "kg": (
        "公斤 千克 キログラム キロ 킬로그램 кг килограмм килограмма килограммов кілограм "
        'кілограмів กิโลกรัม กก كيلوغرام كيلوجرام كجم کیلوگرم ק"ג קילוגרם किलोग्राम किलो কেজি '
        "κιλά kilogramo kilogramos quilograma quilogramas ki-lô-gam "
        "kilogramm kilogramme kilogrammes "
        "chilogrammi kilo kilos"
    ),
    "g": (
        "克 グラム 그램 г гр грамм грамма граммов грам грамів กรัม غرام جرام غراما גרם ग्राम "
        "গ্রাম γραμμάρια gramo gramos gramme grammes gramm grammi"
    ),
    "mg": "毫克 ミリグラム мг миллиграмм миллиграммов มิลลิกรัม",
    "tonne": "吨 噸 公吨 トン 톤 тонна тонны тонн ตัน طن tonelada toneladas tonnes tonnen टन",
    "hour": (
        "小时 小時 个小时 個小時 钟头 鐘頭 時間 시간 ч час часа часов годин година години "
        "ชั่วโมง ساعة ساعات ساعت שעה שעות घंटे घंटा घण्टे ঘণ্টা ώρες ώρα heure heures stunde "
        "stunden hora horas uur godzin godziny godzina saat giờ timmar hodin hodiny"
    ),
    "minute": (
        "分钟 分鐘 分間 мин минута минуты минут хв хвилин хвилини นาที دقيقة دقائق دقیقه דקה "
        "דקות मिनट মিনিট λεπτά minuten minuto minutos minuti minuut minut minuty dakika phút "
        "minuter"
    ),
    "second": (
        "秒 秒钟 秒鐘 秒間 초 сек секунда секунды секунд วินาที ثانية ثوان ثانیه שנייה שניות "
        "सेकंड सेकेंड সেকেন্ড sekunde sekunden segundo segundos seconde secondes secondi "
        "saniye giây sekunder sekund"
    ),
    "day": (
        "天 日 日間 일 день дня дней днів дні วัน يوم أيام يوما روز יום ימים दिन দিন ημέρες "
        "μέρες tage tagen jour jours día días dias giorni giorno dagen gün ngày hari dagar dní "
        "dnů"
    ),
    "week": (
        "周 週 星期 礼拜 禮拜 週間 주일 неделя недели недель тижнів тижні สัปดาห์ أسبوع أسابيع "
        "هفته שבועות सप्ताह হপ্তা woche wochen semaine semaines semana semanas settimane hafta "
        "tuần"
    ),
    "month": (
        "个月 個月 か月 ヶ月 カ月 ヵ月 개월 달 месяц месяца месяцев місяців เดือน شهر أشهر ماه "
        "חודשים महीने महीना মাস monate monaten meses tháng"
    ),
    "year": (
        "年 年間 년 год года лет років роки ปี سنة سنوات سال שנים वर्ष साल বছর έτη χρόνια "
        "jahre jahren años anos année années anni yıl năm"
    ),
    "liter": (
        "升 公升 リットル 리터 л литр литра литров літрів ลิตร لتر لترا ליטר लीटर লিটার λίτρα "
        "litro litros litri"
    ),
    "ml": "毫升 ミリリットル 밀리리터 мл миллилитр миллилитров มิลลิลิตร مل मिलीलीटर",
    "dollar": (
        "美元 美金 ドル 달러 доллар доллара долларов доларів ดอลลาร์ دولار دولارا دولارات דולר "
        "דולרים डॉलर ডলার δολάρια dólar dólares dollari đô đô_la dolar"
    ),
    "euro": "欧元 歐元 ユーロ 유로 евро євро ยูโร يورو یورو אירו यूरो ইউরো ευρώ",
    "gbp": "英镑 英鎊 ポンド 파운드",
    "yuan": "元 圆 圓 块钱 塊錢 人民币 юань юаней юаня",
    "yen": "円 日元 日圓 엔 иен иена иены",
    "krw": "원 韩元 韓元",
    "ruble": "руб рубль рубля рублей рублів р ₽ rublos rubel",
    "rupee": "रुपये रुपए रुपया रुपयों रू টাকা",
    "baht": "บาท",
    "degree": (
        "度 градус градуса градусов градусів องศา درجة درجات מעלות डिग्री grados graus "
        "gradi stopni độ"
    ),
    "celsius": "摄氏度 攝氏度 ℃",
}

ASCII_UNITS = {
    word: unit for unit, text in UNIT_NAMES.items() for word in text.split() if word.isascii()
}
"""Those that an ASCII text may have: English has none of these words for anything else."""
