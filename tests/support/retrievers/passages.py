"""The passages of the small corpus."""

PASSAGES = {
    "d01": ("Lighthouses", "A lighthouse keeper trimmed the wick every four hours."),
    "d02": ("Lighthouses", "Fresnel's lens threw the light of a small lamp across the sea."),
    "d03": ("Bread", "Sour dough rises slowly because wild yeast is in no hurry."),
    "d04": (None, "Rye bread keeps for a week in a linen bag."),
    "d05": ("", "The yeast of beer and the yeast of bread are cousins."),
    "d06": ("Tides", "The moon pulls the sea twice a day, and harbours fill."),
    "d07": ("Tides", "Spring tides come with the new moon and the full moon."),
    "d08": ("Telescopes", "A mirror gathers the light of faint galaxies."),
    "d09": ("東京", "東京タワーは夜に光る。"),
    "d10": ("Bread", "Sour  dough rises slowly because WILD yeast is in no hurry."),  # d03, but for case and spaces
    "e1": ("Blank", ""),
    "Ä1": ("Umlaute", "Brot und Hefe, Mond und Meer."),
    "\U0001f30a": ("Waves", "Wind over the sea makes waves."),  # sorts after Ä1 by code point
}
