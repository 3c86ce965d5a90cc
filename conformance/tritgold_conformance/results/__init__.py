"""The report and the diagnosis as data, and what a report consists of."""
