"""Pictures of what was run, as values that templates put into SVG: lanes on one time axis, heat maps, sparklines.

A picture is honest: its axis begins at zero, and times are drawn as the buckets that are stored.
"""
