"""The judgement as tests: ``pytest conformance/`` here, ``pytest --pyargs tritgold_conformance.suite`` from a wheel.

The engine is an option (``--tritgold-engine``); a level that it does not have is skipped, with the reason.
"""
