"""What a cron expression looks like, for the rules of `inspection.schedule`."""

# Minute, hour, day of month, month, day of week; or a macro. Names (JAN, MON) are accepted as cron does.
_NUMBER = {
    "minute": "[0-5]?[0-9]",
    "hour": "([01]?[0-9]|2[0-3])",
    "day": "(0?[1-9]|[12][0-9]|3[01])",
    "month": "(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)",
    "weekday": "([0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)",
}
_NAMES = {name: number for number, name in enumerate(_NUMBER["month"][:-1].split("|")[2:], 1)} | {
    name: number for number, name in enumerate(_NUMBER["weekday"][:-1].split("|")[1:])
}


def _cron_field(number: str) -> str:
    part = f"(\\*|{number}(-{number})?)(/[1-9][0-9]*)?"
    return f"{part}(,{part})*"


CRON_PATTERN = (
    "^(?i)(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|"
    + " +".join(_cron_field(_NUMBER[f]) for f in ("minute", "hour", "day", "month", "weekday"))
    + ")$"
)
# CEL: `self` with the names of months and weekdays replaced by their numbers.
CRON_NUMBERS = "self.upperAscii()" + "".join(f".replace('{name}', '{number}')" for name, number in _NAMES.items())
