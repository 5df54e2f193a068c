"""Commands that set up an installation and check it: doctor, keys, settings."""
