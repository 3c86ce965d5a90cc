"""What today's judge does not catch."""

NOT_YET: dict[str, str] = {}
