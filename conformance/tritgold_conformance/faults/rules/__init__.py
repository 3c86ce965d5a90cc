"""Every fault as a function whose docstring is its page, by area.

Each module here is found by ``library.collect``. An area is a module, or several that state it as their ``AREA``.
"""
