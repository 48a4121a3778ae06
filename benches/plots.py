"""Plain SVG charts: lines and grouped bars, of a few series each."""

import html
import math

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 78, 190, 44, 62
COLOURS = ["#0b6e4f", "#c1440e", "#2f4b9b", "#8a5a00", "#6b2fa0", "#00798c", "#a01a58", "#555555"]


def quantity(value):
    """3 significant figures with a unit prefix."""
    if value == 0:
        return "0"
    for limit, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{prefix}"
    return f"{value:.3g}"


def scale(highest, lowest, logarithmic):
    """(ticks, function from value to a share of the height)."""
    if logarithmic:
        first, last = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))
        last = max(last, first + 1)
        return [10.0**power for power in range(first, last + 1)], lambda value: (math.log10(value) - first) / (last - first)
    raw = highest / 5
    magnitude = 10 ** math.floor(math.log10(raw))
    step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= raw)
    count = math.ceil(highest / step)
    return [step * number for number in range(count + 1)], lambda value: value / (step * count)


def frame(title, y_label, ticks, share, x_places, series_names):
    """The parts of a chart that all have: title, axes, legend; and where y lies."""
    bottom, height = HEIGHT - BOTTOM, HEIGHT - TOP - BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="24" font-size="15" font-weight="bold">{html.escape(title)}</text>',
        f'<text transform="translate(16 {TOP + height / 2}) rotate(-90)" text-anchor="middle">{html.escape(y_label)}</text>',
    ]
    for tick in ticks:
        y = bottom - share(tick) * height
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{quantity(tick)}</text>')
    for x, label in x_places:
        lines = label.split("\n")
        for row, line in enumerate(lines):
            parts.append(f'<text x="{x:.1f}" y="{bottom + 18 + 14 * row}" text-anchor="middle">{html.escape(line)}</text>')
    for number, name in enumerate(series_names):
        y = TOP + 8 + 20 * number
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<rect x="{WIDTH - RIGHT + 14}" y="{y - 9}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 32}" y="{y + 1}">{html.escape(name)}</text>')
    return parts, lambda value: bottom - share(value) * height


def extent(series):
    values = [value for points in series.values() for value in points if value is not None and value > 0]
    return (max(values), min(values)) if values else (1.0, 0.1)


def lines(title, y_label, labels, series, logarithmic=False):
    """series: name -> one value (or None) for each label."""
    highest, lowest = extent(series)
    ticks, share = scale(highest, lowest, logarithmic)
    width = WIDTH - LEFT - RIGHT
    places = [LEFT + width * (number + 0.5) / len(labels) for number in range(len(labels))]
    parts, y = frame(title, y_label, ticks, share, zip(places, labels), series)
    for number, points in enumerate(series.values()):
        colour = COLOURS[number % len(COLOURS)]
        known = [(x, y(value)) for x, value in zip(places, points) if value is not None and value > 0]
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="'
                     + " ".join(f"{x:.1f},{at:.1f}" for x, at in known) + '"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{at:.1f}" r="3" fill="{colour}"/>' for x, at in known]
    return "\n".join([*parts, "</svg>"]) + "\n"


def bars(title, y_label, labels, series):
    """series: name -> one value (or None) for each label; bars of one label stand together."""
    highest, lowest = extent(series)
    ticks, share = scale(highest, lowest, False)
    width = (WIDTH - LEFT - RIGHT) / len(labels)
    places = [LEFT + width * (number + 0.5) for number in range(len(labels))]
    parts, y = frame(title, y_label, ticks, share, zip(places, labels), series)
    each = width * 0.8 / max(len(series), 1)
    for number, points in enumerate(series.values()):
        for place, value in zip(places, points):
            if value is not None:
                x, top = place - width * 0.4 + each * number, y(value)
                parts.append(f'<rect x="{x:.1f}" y="{top:.1f}" width="{each:.1f}" height="{HEIGHT - BOTTOM - top:.1f}" '
                             f'fill="{COLOURS[number % len(COLOURS)]}"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"
