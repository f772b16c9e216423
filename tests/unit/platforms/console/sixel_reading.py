"""What a terminal would show of a sixel: a small reader of the protocol, as strict as it is."""

import itertools
import re

_TOKEN = re.compile(r"#(\d+);2;(\d+);(\d+);(\d+)|#(\d+)|!(\d+)([?-~])|([?-~])|([$-])")


def pixels(text):
    """Return width, height and the colour of each pixel; every one must have been set once."""
    match = re.fullmatch(r'\x1bPq"1;1;(\d+);(\d+)([^\x1b]*)\x1b\\\n', text)
    width, height, body = int(match[1]), int(match[2]), match[3]
    colours, found, colour, x, y, end = {}, {}, None, 0, 0, 0
    for token in _TOKEN.finditer(body):
        assert token.start() == end
        end = token.end()
        number, red, green, blue, chosen, count, repeated, single, move = token.groups()
        if number:
            colours[number] = tuple(round(int(one) * 2.55) for one in (red, green, blue))
        elif chosen:
            colour = colours[chosen]
        elif move:
            x, y = 0, y + (6 if move == "-" else 0)
        else:
            bits, past = ord(repeated or single) - 63, x + int(count or 1)
            for place in itertools.product(range(x, past), range(6)):
                if bits >> place[1] & 1:
                    assert (place[0], y + place[1]) not in found
                    found[place[0], y + place[1]] = colour
            x = past
    assert end == len(body)
    return width, height, [found.pop((x, y)) for y in range(height) for x in range(width)]
