"""What tests share: stand-ins, checkers and processes; nothing here is a test."""
