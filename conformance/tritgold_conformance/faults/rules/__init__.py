"""Every fault as a function whose docstring is its page; a module an area, or several that state it as ``AREA``."""
