"""The report and the diagnosis as data, and the parts of a report."""
