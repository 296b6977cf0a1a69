"""The names of the months in a dozen languages, as dates are written with them."""

from __future__ import annotations

MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan januar janvier enero gennaio januari janeiro jänner января январь янв ocak stycznia січня",
            "february feb februar février fevrier febrero febbraio februari fevereiro февраля февраль фев şubat lutego"
            " лютого",
            "march mar märz maerz mars marzo maart março марта март мар mart marca березня",
            "april apr avril abril aprile апреля апрель апр nisan kwietnia квітня",
            "may mai mayo maggio mei maio maj мая май mayıs maja травня",
            "june jun juni juin junio giugno junho июня июнь haziran czerwca червня",
            "july jul juli juillet julio luglio julho июля июль temmuz lipca липня",
            "august aug août aout agosto augustus августа август авг ağustos sierpnia серпня",
            "september sep sept septembre septiembre settembre setembro сентября сентябрь сен сент eylül"
            " września вересня",
            "october oct oktober okt octobre octubre ottobre outubro октября октябрь окт ekim października жовтня",
            "november nov novembre noviembre novembro ноября ноябрь ноя kasım listopada листопада",
            "december dec dezember dez décembre decembre diciembre dicembre desember dezembro декабря декабрь дек"
            " aralık grudnia грудня",
        ),
        1,
    )
    for name in names.split()
}
