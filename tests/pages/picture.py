# SPDX-License-Identifier: BSD-3-Clause
"""Checks a picture of epx_particles: picture.py FILE RANKS PARTICLES."""

import re
import sys
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"


def fail(words):
    print(f"picture.py: {words}")
    sys.exit(1)


def number(element, name):
    return float(element.get(name))


def circles(groups):
    return [group.findall(f"{SVG}circle") for group in groups]


def read_legend(root):
    """Particles of all ranks, and particles and ghosts of each."""
    words = "\n".join(text.text for text in root.findall(f"{SVG}text"))
    return (
        int(re.search(r"^(\d+) particles$", words, re.MULTILINE).group(1)),
        [int(n) for n in re.findall(r"^rank \d+: (\d+) particles$", words, re.MULTILINE)],
        [int(n) for n in re.findall(r"^and (\d+) ghosts$", words, re.MULTILINE)],
    )


def colour_under(circle, tiles):
    x, y = number(circle, "cx"), number(circle, "cy")
    for tile in tiles:
        if 0 <= x - number(tile, "x") <= number(tile, "width") and 0 <= y - number(
            tile, "y"
        ) <= number(tile, "height"):
            yield tile.get("fill")


def check(file, ranks, particles):
    root = ElementTree.parse(file).getroot()
    tiles = [tile for tile in root.findall(f"{SVG}rect") if tile.get("fill-opacity")]
    groups = root.findall(f"{SVG}g")
    dots = [group for group in groups if group.get("fill") != "none"]
    rings = [group for group in groups if group.get("fill") == "none"]
    drawn = [len(points) for points in circles(dots)]
    ghosts = [len(points) for points in circles(rings)]
    if len(drawn) != ranks or sum(drawn) != particles:
        fail(f"{sum(drawn)} particles of {len(drawn)} ranks")
    if read_legend(root) != (particles, drawn, ghosts):
        fail(f"the legend says {read_legend(root)}, drawn are {drawn} and {ghosts}")
    if min(ghosts) == 0:
        fail("there is a rank without ghosts")
    for group in dots:
        for circle in group:
            if group.get("fill") not in colour_under(circle, tiles):
                fail(f"a particle lies in a tile of another rank: {circle.attrib}")
    for group in rings:
        for circle in group:
            if not set(colour_under(circle, tiles)) - {group.get("stroke")}:
                fail(f"a ghost lies in a tile of its own rank: {circle.attrib}")


check(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
