"""From what an engine answered to a verdict, one file a level."""
