"""Every metric read or written: name, unit, labels, meaning, aliases."""
