"""Questions about letters: copy, reverse, sort, count, brackets, lookup, JSON."""

from tritgold.skills.draws import Draws
from tritgold.skills.question import Question

LETTERS = "abcdefghijklmnopqrstuvwxyz"
CLOSING = {"(": ")", "[": "]", "{": "}"}
NAMES = "Ann Bob Cleo Dan Eve Finn Gus Hana Ida Jon Kim Lea Max Nina Otto Pia Quin Rosa Sam Tess Uma Vera Will Zoe"
CITIES = "Rome Oslo Lima Bern Cairo Delhi Kyoto Paris Quito Tunis"


def copy(draws: Draws, level: int) -> Question:
    """``copy vkqa = vkqa``."""
    text = "".join(draws.pick(LETTERS) for _ in range(draws.between(*((2, 4), (5, 7), (9, 12))[level])))
    return Question(text, f"copy {text}", text)


def reverse(draws: Draws, level: int) -> Question:
    """``reverse vkqa = aqkv``."""
    text = "".join(draws.pick(LETTERS) for _ in range(draws.between(*((2, 3), (4, 6), (8, 11))[level])))
    return Question(text, f"reverse {text}", text[::-1])


def sort(draws: Draws, level: int) -> Question:
    """``sort vkqa = akqv``: different letters. The key is the set of letters, whatever their order."""
    text = "".join(draws.some(LETTERS, draws.between(*((2, 3), (4, 5), (7, 8))[level])))
    answer = "".join(sorted(text))
    return Question(answer, f"sort {text}", answer)


def count(draws: Draws, level: int) -> Question:
    """``count a in banana = 3``, of words over three letters."""
    kinds = draws.some(LETTERS, 3)
    text = "".join(draws.pick(kinds) for _ in range(draws.between(*((3, 4), (5, 7), (10, 12))[level])))
    letter = draws.pick(kinds)
    return Question(f"{letter} {text}", f"count {letter} in {text}", str(text.count(letter)))


def brackets(draws: Draws, level: int) -> Question:
    """``close ([]{ = })``: what closes the brackets that are open."""
    text, waiting = "", ""
    for _ in range(draws.between(*((2, 3), (4, 7), (9, 12))[level])):
        if waiting and level and draws.below(5) < 2:
            text, waiting = text + waiting[0], waiting[1:]
        else:
            bracket = draws.pick("([{")
            text, waiting = text + bracket, CLOSING[bracket] + waiting
    if not waiting:
        text, waiting = text + "(", ")"
    return Question(text, f"close {text}", waiting)


def lookup(draws: Draws, level: int) -> Question:
    """``k14 b27 x90: b = 27``."""
    keys = draws.some(LETTERS, (2, 4, 6)[level])
    values = [str(draws.between(10, 99)) for _ in keys]
    at = draws.below(len(keys))
    table = " ".join(key + value for key, value in zip(keys, values, strict=True))
    return Question(f"{table}: {keys[at]}", f"{table}: {keys[at]}", values[at])


def json(draws: Draws, level: int) -> Question:
    """``Ann is 42 = {"name":"Ann","age":42}``; names of the middle and hard are made up, the hard have a city."""
    name = draws.pick(NAMES.split())
    if level:
        name = draws.pick("BDFGKLMNPRST") + "".join(
            draws.pick("aeiou") + draws.pick("bdfgklmnprst") for _ in range(draws.between(1, 3 - level))
        )
    age = draws.between(1, 99)
    if level < 2:
        return Question(f"{name} {age}", f"{name} is {age}", f'{{"name":"{name}","age":{age}}}')
    city = draws.pick(CITIES.split())
    answer = f'{{"name":"{name}","age":{age},"city":"{city}"}}'
    return Question(f"{name} {age} {city}", f"{name} is {age}, {city}", answer)
