// One sentence in many languages: the first of the Universal Declaration of Human Rights, which is in the public domain.

export const LANGUAGES = [
  ["English", "en", "All human beings are born free and equal in dignity and rights."],
  ["German", "de", "Alle Menschen sind frei und gleich an Würde und Rechten geboren."],
  ["French", "fr", "Tous les êtres humains naissent libres et égaux en dignité et en droits."],
  ["Spanish", "es", "Todos los seres humanos nacen libres e iguales en dignidad y derechos."],
  ["Polish", "pl", "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw."],
  ["Finnish", "fi", "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan."],
  ["Turkish", "tr", "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar."],
  ["Vietnamese", "vi", "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi."],
  ["Swahili", "sw", "Watu wote wamezaliwa huru, hadhi na haki zao ni sawa."],
  ["Greek", "el", "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα."],
  ["Russian", "ru", "Все люди рождаются свободными и равными в своем достоинстве и правах."],
  ["Arabic", "ar", "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق."],
  ["Hebrew", "he", "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם."],
  ["Hindi", "hi", "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।"],
  ["Thai", "th", "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ"],
  ["Chinese", "zh", "人人生而自由，在尊严和权利上一律平等。"],
  ["Japanese", "ja", "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。"],
  ["Korean", "ko", "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다."],
];

/** What a tokenizer is trained on until somebody pastes a text of their own. */
export const SAMPLE = `The lower the river, the slower it flows. In the newest towns along the lowest banks, people know the river well:
they know where it is low and where it is lower, when it is slow and when it is slower. The wide river widens;
the wider the river, the lower its banks. New boats go slowly, newer boats go faster, and the fastest boats are the newest.
A boat that is rowed goes slower than a boat that is blown. The wind blows low over the river in the morning and
grows stronger in the evening, and the strongest wind of the year blows when the river is at its lowest.
Whoever lives on the river learns to read it: the reader of a river reads slowly, and rereads what was read before.`;
