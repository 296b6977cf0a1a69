"""The names of the months in a dozen languages, as dates are written with them."""

from __future__ import annotations

MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan يناير januar janvier enero gennaio januari janeiro jänner января январь янв ocak"
            " stycznia січня",
            "february feb فبراير februar février fevrier febrero febbraio februari fevereiro февраля февраль"
            " фев şubat lutego"
            " лютого",
            "march mar مارس märz maerz mars marzo maart março марта март мар mart marca березня",
            "april apr أبريل avril abril aprile апреля апрель апр nisan kwietnia квітня",
            "may mai مايو mayo maggio mei maio maj мая май mayıs maja травня",
            "june jun يونيو juni juin junio giugno junho июня июнь haziran czerwca червня",
            "july jul يوليو juli juillet julio luglio julho июля июль temmuz lipca липня",
            "august aug أغسطس août aout agosto augustus августа август авг ağustos sierpnia серпня",
            "september sep سبتمبر sept septembre septiembre settembre setembro сентября сентябрь сен сент eylül"
            " września вересня",
            "october oct أكتوبر oktober okt octobre octubre ottobre outubro октября октябрь окт ekim"
            " października жовтня",
            "november nov نوفمبر novembre noviembre novembro ноября ноябрь ноя kasım listopada листопада",
            "december dec ديسمبر dezember dez décembre decembre diciembre dicembre desember dezembro декабря"
            " декабрь дек"
            " aralık grudnia грудня",
        ),
        1,
    )
    for name in names.split()
}
